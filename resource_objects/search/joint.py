"""Givers that draw on the same inventory: who gives what, when not everything fits everywhere.

What is taken of a NUMA cell is taken of its host too, and each profile of a partitioned device uses
slices of it. A giver alone knows that: what is free to it is the least of what is left wherever it
draws. But two givers that draw on one inventory, of one class or of two, must fit there together.

That is rare, so first everybody gives as if alone, and only if the sum does not fit somewhere the
givers that meet are tried together: one after the other, and group by group (those that no
inventory ties to the rest), so that what is left in a group is forgotten when its givers are
through. A state that led nowhere is not tried twice, and no more is asked of the rest than they
could give. The problem contains the packing of knapsacks, so each trial is paid for from a budget.
The search is complete: None means that there is no way. Where there are several, the first is
taken, trying who comes first and what is most first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from resource_objects.search.asked import Parts, Sets
from resource_objects.search.budget import Budget
from resource_objects.search.plan import members, plan, shared
from resource_objects.search.ties import Ties


def solve(ties: Ties, sets: Sets, budget: Budget) -> tuple[Parts, ...] | None:
    """Return who of some sets gives how much, with room for all of it; None if they cannot.

    :raises Exhausted: if the budget runs out first
    """
    return None if ties.crowded(sets) else _Search(ties, sets, budget).run()


class _Giver(NamedTuple):
    """A giver that meets others, at its place in the order."""

    ask: int
    place: int
    targets: tuple[tuple[int, int], ...]  #: place among those of its group, and factor


#: What is not given yet, by class.
_Left = tuple[int, ...]
#: What is left of the inventories of a group.
_Rooms = tuple[int, ...]
#: What a giver gives, and what is left after it.
_Step = tuple[int, _Left, _Rooms]


class _Search:
    """The joint decision on some sets of givers."""

    def __init__(self, ties: Ties, sets: Sets, budget: Budget) -> None:
        self._asks = ties.asks
        self._budget = budget
        self._givers: list[_Giver] = []
        self._opening: dict[int, _Rooms] = {}  # by the first giver of each group
        others = list(sets)
        for group in ties.groups(sets):
            targets = dict.fromkeys(target for key in group for target in ties.links[key])
            numbers = {target: number for number, target in enumerate(targets)}
            self._opening[len(self._givers)] = tuple(ties.room[target] for target in targets)
            for ask, place in group:
                links = ties.links[ask, place].items()
                used = tuple((numbers[target], factor) for target, factor in links)
                self._givers.append(_Giver(ask, place, used))
                others[ask] &= ~(1 << place)
        self._opening[len(self._givers)] = ()  # after the last one nothing of them counts
        self._others = others  # those who meet nobody
        self._known: dict[tuple[int, int], Parts | None] = {}
        self._reach = self._reaches()

    def run(self) -> tuple[Parts, ...] | None:
        given = [0] * (len(self._givers) + 1)
        dead: set[tuple[int, _Left, _Rooms]] = set()
        start = tuple(asked.amount for asked in self._asks)
        waiting: list[Iterator[_Step]] = [iter([(0, start, ())])]
        while waiting:
            step = next(waiting[-1], None)
            if step is None:
                waiting.pop()
                continue
            place = len(waiting) - 1
            given[place], left, rooms = step
            rooms = self._opening.get(place, rooms)
            self._budget.spend()
            if (place, left, rooms) in dead or not self._in_reach(place, left):
                continue
            dead.add((place, left, rooms))
            if place < len(self._givers):
                waiting.append(self._steps(place, left, rooms))
            elif (found := self._finished(left, given[1:])) is not None:
                return found
        return None

    def _steps(self, place: int, left: _Left, rooms: _Rooms) -> Iterator[_Step]:
        """Yield what a giver may give, the most first, nothing last."""
        giver = self._givers[place]
        later = self._reach[place + 1][0][giver.ask]
        for part in self._parts(giver, left[giver.ask], left[giver.ask] - later, rooms):
            after = list(rooms)
            for target, factor in giver.targets:
                after[target] -= factor * part
            yield part, _less(left, giver.ask, part), tuple(after)
        yield 0, left, rooms

    def _parts(self, giver: _Giver, left: int, least: int, rooms: _Rooms) -> range:
        """Return what a giver may give above nothing, when ``least`` is what others cannot."""
        asked = self._asks[giver.ask]
        low, high, step, is_device = asked.givers[giver.place]
        most = min(high, left, *(rooms[target] // factor for target, factor in giver.targets))
        if is_device:
            return range(most // step * step, max(low, least) - 1, -step)
        if most == asked.amount and asked.givers[giver.place].gives(most):
            return range(most, most + 1)
        return range(0)

    def _finished(self, left: _Left, given: Sequence[int]) -> tuple[Parts, ...] | None:
        """Return all parts, those of who meets nobody too; None if they cannot give the rest."""
        found: list[list[tuple[int, int]]] = [[] for _ in self._asks]
        for ask, rest in enumerate(left):
            parts = self._rest(ask, rest) if rest else ()
            if parts is None:
                return None
            found[ask] += parts
        for giver, part in zip(self._givers, given, strict=True):
            if part:
                found[giver.ask].append((giver.place, part))
        return tuple(tuple(sorted(parts)) for parts in found)

    def _rest(self, ask: int, rest: int) -> Parts | None:
        """Return how those who meet nobody give the rest of a class."""
        if (ask, rest) not in self._known:
            asked, givers = self._asks[ask], self._others[ask]
            if rest == asked.amount:
                parts = plan(asked, givers, self._budget)
            else:
                parts = shared(asked, givers, rest, self._budget)
            self._known[ask, rest] = parts
        return self._known[ask, rest]

    # --- what can be given from some place on ---

    def _in_reach(self, place: int, left: _Left) -> bool:
        sums, alone = self._reach[place]
        return all(
            rest <= sums[ask] or (alone[ask] and rest == self._asks[ask].amount)
            for ask, rest in enumerate(left)
        )

    def _reaches(self) -> list[tuple[tuple[int, ...], tuple[bool, ...]]]:
        """Return, by place, how much devices could give, and whether another could give all."""
        sums, alone = [0] * len(self._asks), [False] * len(self._asks)

        def count(ask: int, place: int) -> None:
            giver = self._asks[ask].givers[place]
            if giver.is_device:
                sums[ask] += giver.high if giver.high >= giver.low else 0
            elif giver.gives(self._asks[ask].amount):
                alone[ask] = True

        for ask, asked in enumerate(self._asks):
            for place in members(asked, self._others[ask]):
                count(ask, place)
        found = [(tuple(sums), tuple(alone))]
        end, later = len(self._givers), tuple(sums)
        for number in range(len(self._givers) - 1, -1, -1):
            count(self._givers[number].ask, self._givers[number].place)
            if number in self._opening:
                for ask, most in self._most(number, end).items():
                    sums[ask] = min(sums[ask], later[ask] + most)
                end, later = number, tuple(sums)
            found.append((tuple(sums), tuple(alone)))
        return found[::-1]

    def _most(self, start: int, end: int) -> dict[int, int]:
        """Return the most that a group gives of a class whose givers all draw on one inventory."""
        found: dict[int, int] = {}
        for target, room in enumerate(self._opening[start]):
            factors: dict[int, list[int]] = {}
            for giver in self._givers[start:end]:
                factors.setdefault(giver.ask, []).append(dict(giver.targets).get(target, 0))
            for ask, each in factors.items():
                if min(each):
                    most = max(0, room) // min(each)
                    found[ask] = min(found.get(ask, most), most)
        return found


def _less(left: _Left, ask: int, part: int) -> _Left:
    return (*left[:ask], left[ask] - part, *left[ask + 1 :])
