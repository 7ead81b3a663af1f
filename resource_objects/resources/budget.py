"""Counted steps, so that every decision and every search ends, and can be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from resource_objects.exceptions import SearchLimitReached

#: How many steps one decision on an inventory may take: some tens of milliseconds, where cells and
#: devices depend on each other about a second.
DECISION = 10_000


class Budget:
    """Steps that may still be spent. One step is one thing tried: a host, a split, a trait.

    What is found takes time and memory too: each part of a further candidate is a step.

    >>> budget = Budget(2)
    >>> budget.spend(); budget.spend()
    >>> budget.spend()
    Traceback (most recent call last):
    resource_objects.exceptions.SearchLimitReached: cut short after 2 steps, 0 found: ...
    >>> budget.spent, budget.left
    (2, 0)
    """

    __slots__ = ("_allowed", "spent")

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self.spent = 0

    @property
    def allowed(self) -> int:
        """Steps that might be spent in all."""
        return self._allowed

    @property
    def left(self) -> int:
        """Steps that may still be spent."""
        return self._allowed - self.spent

    def spend(self, steps: int = 1) -> None:
        """Spend steps, or raise if there are not so many left; then none are.

        :raises SearchLimitReached: naming all that were allowed
        """
        if steps > self._allowed - self.spent:
            self.spent = self._allowed
            raise SearchLimitReached(self._allowed)
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
