"""The budget of a search: counted steps, never a clock, so that answers can be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Exhausted(Exception):
    """The allowance ran out. Internal: it never leaves the search."""


class CutShort(Exhausted):
    """A decision inside came to a bound of its own, which no larger allowance moves. Internal."""


class Budget:
    """Steps that may still be spent. One step is one thing tried: a host, a split, a trait.

    >>> budget = Budget(2)
    >>> budget.spend(); budget.spend()
    >>> budget.spend()
    Traceback (most recent call last):
    resource_objects.search.budget.Exhausted
    >>> budget.spent, budget.left
    (2, 0)
    """

    __slots__ = ("_allowed", "spent")

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self.spent = 0

    @property
    def left(self) -> int:
        """Steps that may still be spent."""
        return self._allowed - self.spent

    def spend(self, steps: int = 1) -> None:
        """Spend steps, or raise ``Exhausted`` if there are not so many left; then none are."""
        if steps > self.left:
            self.spent = self._allowed
            raise Exhausted
        self.spent += steps

    @contextmanager
    def lend(self, purse: Budget, most: int) -> Iterator[None]:
        """Let another budget spend at most ``most`` of what is left; then it has nothing again.

        >>> budget, purse = Budget(10), Budget(0)
        >>> with budget.lend(purse, 3):
        ...     purse.spend(2)
        >>> purse.left, budget.left
        (0, 8)
        """
        before = purse.spent
        purse._allowed = before + min(most, self.left)
        try:
            yield
        finally:
            self.spent += purse.spent - before
            purse._allowed = purse.spent

    @contextmanager
    def share(self, most: int) -> Iterator[Budget]:
        """Give a budget of at most ``most`` of what is left; what it spends is spent here.

        >>> budget = Budget(10)
        >>> with budget.share(3) as part:
        ...     part.spend()
        >>> part.left, budget.left
        (2, 9)
        """
        part = Budget(min(most, self.left))
        try:
            yield part
        finally:
            self.spent += part.spent
