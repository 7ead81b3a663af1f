"""Search by backtracking within a budget: the one search, of candidates and of one decision.

What differs from one search to the next is where it starts, what follows on a state and what the
rest of a state depends on. What they have in common is here: the stack, the states that are known
to lead nowhere, and the budget, counted in steps and never by a clock, so that answers can be
repeated.

Rejected: recursion, whose depth is that of the request; a solver for constraints, which knows
neither equal providers nor why it failed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from resource_objects.exceptions import SearchLimitReached
from resource_objects.resources.budget import Budget

S = TypeVar("S")
R = TypeVar("R")

#: The memory for dead states, counted in choices: a state of depth n takes n + 1. It is some 50 MB;
#: further dead states may be entered again.
REMEMBERED = 200_000


class CutShort(SearchLimitReached):
    """A decision inside came to a bound of its own, which no larger budget moves. Internal."""


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
    :raises SearchLimitReached: if the budget runs out first

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
    fruitful = 0  # the number of waiting states, from the first, that led to a solution
    while waiting:
        state = next(waiting[-1], None)
        if state is None:
            waiting.pop()
            known = keys.pop()
            # only what led nowhere is dead: below what led somewhere there may be more
            if fruitful > len(waiting):
                fruitful = len(waiting)
            elif key is not None and len(waiting) < room:
                room -= 1 + len(waiting)
                dead.add(known)
        elif isinstance(state, Solution):
            fruitful = len(waiting)
            yield state.value
        else:
            known = None if key is None else key(state)
            if known is not None and known in dead:
                continue
            if cost:
                budget.spend(cost)
            waiting.append(expand(state))
            keys.append(known)
