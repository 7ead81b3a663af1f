"""Search by backtracking within a budget: the one search of this room.

What differs from one search to the next is where it starts, what follows on a state and what the
rest of a state depends on. What they have in common is here: the stack, the states that are known
to lead nowhere, and the budget, counted in steps and never by a clock, so that answers can be
repeated.

Rejected: recursion, whose depth is that of the request; a solver for constraints, which knows
neither equal providers nor why it failed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

S = TypeVar("S")
R = TypeVar("R")

#: So many places of states that led nowhere are remembered, one for each choice that a state is
#: made of: some 50 MB. Further ones may be met again.
REMEMBERED = 200_000


class Exhausted(Exception):
    """The allowance ran out. Internal: it never leaves the search."""


class CutShort(Exhausted):
    """A decision inside came to a bound of its own, which no larger allowance moves. Internal."""


class Budget:
    """Steps that may still be spent. One step is one thing tried: a host, a split, a trait.

    What is found takes time and memory too: each part of a further candidate is a step.

    >>> budget = Budget(2)
    >>> budget.spend(); budget.spend()
    >>> budget.spend()
    Traceback (most recent call last):
    resource_objects.search.backtracking.Exhausted
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


class Solution(Generic[R]):
    """What a search looks for, among the states that follow on another."""

    __slots__ = ("value",)

    def __init__(self, value: R) -> None:
        self.value = value


def solutions(
    start: S,
    expand: Callable[[S], Iterator[S | Solution[R]]],
    budget: Budget,
    key: Callable[[S], Hashable] | None = None,
    *,
    cost: int = 1,
) -> Iterator[R]:
    """Yield the solutions below a state, depth first, in the order in which states are given.

    :param expand: yields what follows on a state: further states, or solutions. It may change
        something of its own before it yields and change it back when it is asked for the next one:
        it is only asked when everything below is done
    :param key: what the rest of a state depends on: where there was no solution once, there is
        none. None: no two states are alike
    :param cost: steps that each state costs; 0 where ``expand`` pays
    :raises Exhausted: if the budget runs out first

    >>> def sums(given):  # which of 5, 3 and 2 make 5?
    ...     for part in (5, 3, 2):
    ...         if sum(given) + part == 5:
    ...             yield Solution((*given, part))
    ...         elif sum(given) + part < 5:
    ...             yield (*given, part)
    >>> list(solutions((), sums, Budget(10), sum))
    [(5,), (3, 2), (2, 3)]
    """
    dead: set[Hashable] = set()
    room = REMEMBERED
    budget.spend(cost)
    waiting = [expand(start)]
    keys: list[Hashable] = [None]
    found = [False]
    while waiting:
        state = next(waiting[-1], None)
        if state is None:
            waiting.pop()
            known, has_found = keys.pop(), found.pop()
            if has_found and found:
                found[-1] = True
            elif not has_found and key is not None and len(waiting) < room:
                room -= 1 + len(waiting)
                dead.add(known)
        elif isinstance(state, Solution):
            found[-1] = True
            yield state.value
        else:
            known = None if key is None else key(state)
            if known is not None and known in dead:
                continue
            budget.spend(cost)
            waiting.append(expand(state))
            keys.append(known)
            found.append(False)
