"""How many members of a gang each host gets: exact, over places within places.

Members alike are a *kind*, and only how many of a kind a host gets matters. A *portion* says how
many of each kind; what a place can hold is a set of portions that contains with each portion all
smaller ones, so the largest of them say all (its *frontier*). What two places hold together is each
sum of a portion of the one and one of the other, cut down to what is needed; what a place may hold
at most cuts it once more. So the frontier of a tree of places is worked out from its hosts upwards,
and the gang fits if and only if that of the root contains what is needed.

With one kind a frontier is a number, and all of it is an addition for each host. With several kinds
it may grow with the product of their counts; that is what the budget is for. What fits easily is
found before by handing out the kinds in turn, first the one that fewest hosts can take; what
plainly does not is found by each kind alone.

It is no search by backtracking (:mod:`resource_objects.resources.backtracking`): the stacks walk
a tree of places once, and nothing is tried and taken back. To try what each host gets would be
exponential in the hosts, where sums of frontiers are polynomial for any fixed number of kinds.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from resource_objects.resources.budget import Budget

#: How many members of each kind.
Portion: TypeAlias = tuple[int, ...]


class Bound(NamedTuple):
    """What a place has for members of all kinds: so much, of which each kind uses so much."""

    weights: Portion  #: of each kind, 0 or more
    most: int

    def allows(self, portion: Portion) -> bool:
        """Return whether a portion keeps it."""
        used: int = sum(map(operator.mul, self.weights, portion))
        return used <= self.most


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A host, or a place with others below it, and what it can hold."""

    name: str
    portions: tuple[Portion, ...] = ()  #: of a host, the largest that it can hold; else nothing
    below: tuple[Place, ...] = ()
    most: Portion | None = None  #: so many of each kind at most; None: no bound
    bounds: tuple[Bound, ...] = ()  #: on all kinds together

    def hosts(self) -> Iterator[Place]:
        """Yield the places that have none below them, in order."""
        waiting = [self]
        while waiting:
            place = waiting.pop()
            if place.below:
                waiting.extend(reversed(place.below))
            else:
                yield place


def deal(place: Place, need: Portion, budget: Budget) -> dict[str, Portion] | None:
    """Return what each host gets so that all of ``need`` is had, None if that cannot be.

    Hosts that come first get as much as they can. Hosts that get nothing are left out.

    Cost: linear in the hosts with one kind, or where handing out in turn succeeds; else a step for
    each pair of portions that is added, times the number of hosts.

    :raises SearchLimitReached: if the budget ends before it is known

    >>> rack = Place("rack", below=(Place("h1", ((1, 0), (0, 1))), Place("h2", ((1, 0),))))
    >>> deal(rack, (1, 1), Budget(100))  # h1 alone can take the second kind
    {'h1': (0, 1), 'h2': (1, 0)}
    >>> print(deal(rack, (2, 1), Budget(100)))
    None
    """
    found = _in_turn(place, need)
    if found is not None:
        return found
    if any(most_of(place, need, kind) < count for kind, count in enumerate(need)):
        return None  # linear, and what nearly every no comes from
    for whole in _frontier(place, need, budget):
        if whole.portion == need:
            return _handed_out(whole, need)
    return None


def most_of(place: Place, need: Portion, kind: int) -> int:
    """Return how many of one kind alone a place can hold, of those that are needed. Exact."""
    alone = tuple(count if k == kind else 0 for k, count in enumerate(need))
    return max(whole.portion[kind] for whole in _frontier(place, alone, None))


# --- in turn ------------------------------------------------------------------------------------
# What nearly always suffices: the scarcest kind first, to each host in order as many as it takes.


def _in_turn(place: Place, need: Portion) -> dict[str, Portion] | None:
    """Return what each host gets, the kinds handed out one after the other, None if that fails."""
    hosts = list(_with_bounds(place))
    room = {id(one): Room(one, need) for _, above in hosts for one in above}
    able = [sum(any(p[k] for p in host.portions) for host, _ in hosts) for k in range(len(need))]
    given: list[list[int] | None] = [None] * len(hosts)
    for kind in sorted(range(len(need)), key=lambda k: able[k]):
        left = need[kind]
        for number, (host, above) in enumerate(hosts):
            if not left:
                break
            has = given[number] or [0] * len(need)
            # only what leaves it all that it has of the kinds before
            most = max((p[kind] for p in host.portions if _covers(p, has)), default=0) - has[kind]
            more = min([left, most, *(room[id(one)].left(kind) for one in above)])
            if more <= 0:
                continue
            has[kind] += more
            given[number] = has
            left -= more
            for one in above:
                room[id(one)].take(kind, more)
        if left:
            return None
    return {
        host.name: tuple(has)
        for (host, _), has in zip(hosts, given, strict=True)
        if has is not None
    }


def _with_bounds(place: Place) -> Iterator[tuple[Place, tuple[Place, ...]]]:
    """Yield each host with the places from the root down to it that bind, itself among them."""
    waiting: list[tuple[Place, tuple[Place, ...]]] = [(place, ())]
    while waiting:
        one, above = waiting.pop()
        if one.most is not None or one.bounds:
            above = (*above, one)
        if one.below:
            waiting.extend((each, above) for each in reversed(one.below))
        else:
            yield one, above


class Room:
    """What a place that binds may still get, while members are given to it one after the other."""

    __slots__ = ("_bounds", "_left", "_of_each")

    def __init__(self, place: Place, need: Portion) -> None:
        self._of_each = list(need if place.most is None else place.most)
        self._bounds = place.bounds
        self._left = [bound.most for bound in place.bounds]

    @property
    def state(self) -> tuple[int, ...]:
        """What is left, for who has to tell it from what was left before."""
        return (*self._of_each, *self._left)

    def left(self, kind: int) -> int:
        """Return how many more of a kind it may get."""
        most = self._of_each[kind]
        for bound, left in zip(self._bounds, self._left, strict=True):
            if bound.weights[kind]:
                most = min(most, left // bound.weights[kind])
        return most

    def take(self, kind: int, count: int) -> None:
        """Give it so many of a kind; fewer than none are given back."""
        self._of_each[kind] -= count
        for number, bound in enumerate(self._bounds):
            self._left[number] -= count * bound.weights[kind]


def _covers(portion: Portion, has: Sequence[int]) -> bool:
    return all(p >= h for p, h in zip(portion, has, strict=True))


# --- frontiers ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Whole:
    """A portion, and the two of which it is the sum, or the host that holds it."""

    portion: Portion
    parts: tuple[_Whole, _Whole] | None = None
    host: str | None = None


def _frontier(place: Place, need: Portion, budget: Budget | None) -> list[_Whole]:
    """Return the largest portions of what is needed that a place can hold; at least one.

    :param budget: None where one kind is asked for, so that each frontier is one portion
    """
    nothing = _Whole((0,) * len(need))
    if place.below:
        found, enough = [nothing], _cut(place, need)
        for one in place.below:
            found = _sums(found, _frontier(one, need, budget), need, budget)
            if len(found) == 1 and _covers(found[0].portion, enough):
                break  # nothing below can add to that
    else:
        found = [_Whole(_less(p, need), host=place.name) for p in place.portions] or [nothing]
    return _within(place, found, budget)


def _cut(place: Place, need: Portion) -> Portion:
    """Return the most of each kind that is of use at a place."""
    return need if place.most is None else _less(place.most, need)


def _less(some: Sequence[int], most: Sequence[int]) -> Portion:
    return tuple(map(min, some, most))


def _sums(
    some: Sequence[_Whole], others: Sequence[_Whole], need: Portion, budget: Budget | None
) -> list[_Whole]:
    """Return the largest sums of a portion of each."""
    if len(others) == 1 and not any(others[0].portion):
        return list(some)
    if budget is not None:
        budget.spend(len(some) * len(others))
    found: dict[Portion, _Whole] = {}
    for one in some:
        for other in others:
            total = _less([a + b for a, b in zip(one.portion, other.portion, strict=True)], need)
            if total not in found:
                found[total] = _Whole(total, (one, other))
    return _largest(found.values())


def _within(place: Place, found: list[_Whole], budget: Budget | None) -> list[_Whole]:
    """Return what is left of a frontier within the bounds of a place."""
    if place.most is not None:
        found = _largest([_part(one, _less(one.portion, place.most)) for one in found])
    for bound in place.bounds:
        cut: list[_Whole] = []
        for one in found:
            for portion in bounded(one.portion, bound.weights, bound.most):
                if budget is not None:
                    budget.spend()
                cut.append(_part(one, portion))
        found = _largest(cut)
    return found


def _part(whole: _Whole, portion: Portion) -> _Whole:
    """Return a part of a portion, which can be handed out as the whole can."""
    return whole if portion == whole.portion else dataclasses.replace(whole, portion=portion)


def bounded(portion: Portion, weights: Portion, most: int) -> Iterator[Portion]:
    """Yield the largest portions within one that use at most ``most``, and some smaller ones.

    >>> list(bounded((2, 3), (1, 1), 3))
    [(2, 1), (1, 2), (0, 3)]
    """
    if sum(map(operator.mul, weights, portion)) <= most:
        yield portion
        return
    count, weight = portion[0], weights[0]
    if weight:
        count = min(count, most // weight)
    if len(portion) == 1:
        yield (count,)
        return
    rest = sum(map(operator.mul, weights[1:], portion[1:]))
    for first in range(count, -1, -1):
        for others in bounded(portion[1:], weights[1:], most - first * weight):
            yield (first, *others)
        if not weight or rest <= most - first * weight:
            return  # fewer of the first leave no more of the others


def _largest(some: Iterable[_Whole]) -> list[_Whole]:
    """Return those of some portions that no other contains, one of each."""
    by_portion = {one.portion: one for one in some}
    return [by_portion[portion] for portion in largest(by_portion)]


def largest(some: Iterable[Portion]) -> tuple[Portion, ...]:
    """Return those of some portions that no other contains, from the largest count of the first.

    >>> largest([(1, 1), (0, 2), (1, 2), (2, 0)])
    ((2, 0), (1, 2))
    """
    ordered = sorted(set(some), reverse=True)
    if len(ordered) < 2 or len(ordered[0]) == 1:
        return tuple(ordered[:1])
    found: list[Portion] = []
    if len(ordered[0]) == 2:  # the second has to grow while the first falls
        for one in ordered:
            if not found or one[1] > found[-1][1]:
                found.append(one)
        return tuple(found)
    for one in ordered:
        if not any(_covers(other, one) for other in found):
            found.append(one)
    return tuple(found)


def _handed_out(whole: _Whole, need: Portion) -> dict[str, Portion]:
    """Return what each host gets of a portion, the first as much as they can."""
    found: dict[str, Portion] = {}
    waiting = [(whole, need)]
    while waiting:
        one, wanted = waiting.pop()
        if not any(wanted):
            continue
        if one.parts is None:
            assert one.host is not None, "what holds something is a host or a sum"
            found[one.host] = wanted
            continue
        first, second = one.parts
        of_first = _less(first.portion, wanted)
        rest = tuple(w - f for w, f in zip(wanted, of_first, strict=True))
        waiting += [(second, rest), (first, of_first)]
    return found
