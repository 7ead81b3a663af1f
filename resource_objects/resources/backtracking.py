"""Backtracking search within a budget of steps.

One search serves candidates and placements. A caller states the start, the successors of a state
and, optionally, a key of what the rest of a state depends on. The stack, the memory of dead states
and the budget are here. The budget counts steps and never reads a clock, so that answers repeat.

Rejected: recursion, whose depth is that of the request; a constraint solver, which neither uses the
symmetry of equal providers nor reports reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from resource_objects.exceptions import SearchLimitReached

S = TypeVar("S")
R = TypeVar("R")

#: The budget of one decision of an inventory: some tens of milliseconds, about a second if cells
#: and devices depend on each other.
DECISION = 10_000
#: The bound on remembered dead states, in choices: a state of depth n counts n + 1. They take some
#: 50 MB; further dead states may be searched again.
REMEMBERED = 200_000


class Budget:
    """The steps that a search may still spend. One step tries one host, split or trait.

    Each part of a further candidate is a step as well, because results take time and memory.

    >>> budget = Budget(2)
    >>> budget.spend(); budget.spend()
    >>> budget.spend()
    Traceback (most recent call last):
    resource_objects.exceptions.SearchLimitReached: cut short after 2 steps, 0 found: ...
    >>> budget.spent, budget.remaining
    (2, 0)
    """

    __slots__ = ("_allowed", "spent")

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self.spent = 0

    @property
    def allowed(self) -> int:
        """The number of steps in total."""
        return self._allowed

    @property
    def remaining(self) -> int:
        """The number of steps that remain."""
        return self._allowed - self.spent

    def spend(self, steps: int = 1) -> None:
        """Spend steps; if fewer remain, spend these and raise.

        :raises SearchLimitReached: with the number of allowed steps
        """
        if steps > self._allowed - self.spent:
            self.spent = self._allowed
            raise SearchLimitReached(self._allowed)
        self.spent += steps

    @contextmanager
    def lend(self, other: Budget, max_steps: int) -> Iterator[None]:
        """Let another budget spend at most ``max_steps`` of the remaining steps within a block.

        >>> budget, other = Budget(10), Budget(0)
        >>> with budget.lend(other, 3):
        ...     other.spend(2)
        >>> other.remaining, budget.remaining
        (0, 8)
        """
        before = other.spent
        other._allowed = before + min(max_steps, self.remaining)
        try:
            yield
        finally:
            self.spent += other.spent - before
            other._allowed = other.spent


class CutShort(SearchLimitReached):
    """A nested decision reached its own bound, which a larger budget does not move. Internal."""


class Solution(Generic[R]):
    """A solution among the successors of a state."""

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
    """Yield the solutions below a state, depth first, in the order in which ``expand`` yields.

    :param expand: yields the successors of a state: states or solutions. It may change state of its
        own before it yields and restore it afterwards, because it is resumed only when everything
        below the successor is searched
    :param key: returns what the solutions below a state depend on: below equal keys the search
        happens once if it finds nothing. None: all states differ
    :param cost: the steps of each state; 0 if ``expand`` spends steps itself
    :raises SearchLimitReached: if the budget runs out

    >>> def sums(parts):  # which of 5, 3 and 2 make 5?
    ...     for part in (5, 3, 2):
    ...         if sum(parts) + part == 5:
    ...             yield Solution((*parts, part))
    ...         elif sum(parts) + part < 5:
    ...             yield (*parts, part)
    >>> list(solutions((), sums, Budget(10), sum))
    [(5,), (3, 2), (2, 3)]
    """
    dead: set[Hashable] = set()
    memory = REMEMBERED
    budget.spend(cost)
    stack = [expand(start)]
    keys: list[Hashable] = [None]
    fruitful = 0  # the number of states on the stack, from the first, that led to a solution
    while stack:
        state = next(stack[-1], None)
        if state is None:
            stack.pop()
            state_key = keys.pop()
            # a state that led to a solution is not dead: there may be more below it
            if fruitful > len(stack):
                fruitful = len(stack)
            elif key is not None and len(stack) < memory:
                memory -= 1 + len(stack)
                dead.add(state_key)
        elif isinstance(state, Solution):
            fruitful = len(stack)
            yield state.value
        else:
            state_key = None if key is None else key(state)
            if state_key is not None and state_key in dead:
                continue
            if cost:
                budget.spend(cost)
            stack.append(expand(state))
            keys.append(state_key)
