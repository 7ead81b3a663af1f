"""Counts beside located amounts that draw on the same inventories: who gives what, together.

That is rare: a count that a located amount stands for is no count (D1), and what a part has of its
host's is the host's to give. But huge pages may be counted too, and a device may draw on the memory
of its host. So first both are decided as if alone, and only if the sum does not fit somewhere

1. the counts are decided on what the located amounts leave, as they are;
2. the located amounts are decided on what the counts leave, for every way to give those counts that
   come near them.

The second is complete. It may try much, so each trial is paid for from the budget.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

from resource_objects.resources import Amount
from resource_objects.search import joint
from resource_objects.search.asked import Asked, Decision, Parts, Sets
from resource_objects.search.budget import Budget
from resource_objects.search.located import LocatedAsked
from resource_objects.search.placing import Assigned, Placing, Used
from resource_objects.search.plan import members, plan
from resource_objects.search.ties import Over, Ties

#: What is left of an inventory, by its number.
Left = Callable[[int], int]
#: A way to give some classes, by their number in the request.
_Way = dict[int, Parts]


def over(asks: Sequence[Asked], placing: Placing, found: Decision) -> list[Over]:
    """Return the inventories that located amounts use and of which more is used than is left."""
    located = placing.located
    if not _may_meet(asks, located, found.plans):
        return []
    used = _used(located, found.assigned)
    theirs = set(used)
    for asked, parts in zip(asks, found.plans, strict=True):
        for giver, part in parts:
            _add(used, (each for each in asked.drawn(giver, part) if each[0] in theirs))
    return [
        Over(number, count, placing.left(number))
        for number, count in sorted(used.items())
        if count > placing.left(number)
    ]


def _may_meet(
    asks: Sequence[Asked], located: Sequence[LocatedAsked], plans: Iterable[Parts]
) -> bool:
    """Return whether several of them draw on the same, looking at classes alone."""
    classes: set[str] = set()
    for one in located:
        if not classes.isdisjoint(one.ask.classes):
            return True
        classes |= one.ask.classes
    fleet = located[0].ask.fleet
    return any(
        fleet.class_of(number) in classes
        for asked, parts in zip(asks, plans, strict=True)
        for giver, part in parts
        for number, _ in asked.drawn(giver, part)
    )


def _used(located: Sequence[LocatedAsked], assigned: Assigned) -> dict[int, int]:
    """Return what assigned amounts use of inventories, through shares too."""
    found: dict[int, int] = {}
    for one, each in zip(located, assigned, strict=True):
        _add(found, one.uses(each).items())
    return found


def solve(asks: Sequence[Asked], placing: Placing, sets: Sets, budget: Budget) -> Decision | None:
    """Return who of some sets gives what, with room for all of it; None if they cannot.

    :param sets: of the counts, then of the located amounts
    :raises Exhausted: if the budget runs out first
    """
    return _Search(asks, placing, sets, budget).run()


class _Search:
    """The decision on some sets."""

    def __init__(self, asks: Sequence[Asked], placing: Placing, sets: Sets, budget: Budget) -> None:
        self._asks = asks
        self._placing = placing
        self._located = placing.located
        self._sets = sets[: len(asks)]
        self._parts = sets[len(asks) :]
        self._budget = budget
        self._left: Left = placing.left

    def run(self) -> Decision | None:
        return self._located_first() or self._counts_first()

    def _located_first(self) -> Decision | None:
        assigned = self._locate({})
        if assigned is None:
            return None
        every = dict(enumerate(self._asks))
        plans = self._count(every, _used(self._located, assigned))
        return None if plans is None else Decision(tuple(plans.values()), assigned)

    def _counts_first(self) -> Decision | None:
        near = [number for number, asked in enumerate(self._asks) if self._is_near(number, asked)]
        rest = {n: asked for n, asked in enumerate(self._asks) if n not in near}
        for way, used in self._ways(near, {}):
            assigned = self._locate(used)
            plans = None if assigned is None else self._count(rest, used)
            if assigned is not None and plans is not None:
                every = {**way, **plans}
                return Decision(tuple(every[n] for n in range(len(self._asks))), assigned)
        return None

    def _is_near(self, number: int, asked: Asked) -> bool:
        """Return whether somebody who may give draws on what a located amount may use."""
        return any(
            target in self._placing.reach
            for giver in members(asked, self._sets[number])
            for target, _ in asked.drawn(giver, 1)
        )

    def _locate(self, used: Used) -> Assigned | None:
        """Return the located amounts assigned, beside what is used and each other."""
        found = self._placing.fit(self._parts, self._budget, used)
        if found is None or self._has_room(found, used):
            return found
        found = self._one_by_one(used)
        self._placing.cut_short |= found is None  # some of them might leave more elsewhere
        return found

    def _has_room(self, assigned: Assigned, used: Used) -> bool:
        """Return whether located amounts fit beside each other wherever they draw on the same."""
        total = _used(self._located, assigned)
        return all(n + used.get(key, 0) <= self._left(key) for key, n in total.items())

    def _one_by_one(self, used: Used) -> Assigned | None:
        """Return them assigned, each beside what those before it use, if they go together."""
        found: list[Amount] = []
        total = dict(used)
        for alone, parts in zip(self._placing.alone, self._parts, strict=True):
            assigned = alone.fit([parts], self._budget, total)
            if assigned is None:
                return None
            found += assigned
            _add(total, _used(alone.located, assigned).items())
        return self._placing.checked(self._parts, tuple(found))

    def _count(self, asks: dict[int, Asked], used: Used) -> _Way | None:
        """Return who gives some classes, beside what is used."""
        rest = [less(asked, used, self._left) for asked in asks.values()]
        sets = tuple(self._sets[number] for number in asks)
        plans = together(rest, sets, self._budget)
        return None if plans is None else dict(zip(asks, plans, strict=True))

    def _ways(self, numbers: Sequence[int], used: Used) -> Iterator[tuple[_Way, Used]]:
        """Yield every way to give some classes that fits, with what it uses."""
        if not numbers:
            yield {}, used
            return
        first, *others = numbers
        asked = less(self._asks[first], used, self._left)
        for parts in ways(asked, self._sets[first], self._budget):
            total = dict(used)
            for giver, part in parts:
                _add(total, asked.drawn(giver, part))
            if all(count <= self._left(number) for number, count in total.items()):
                for way, most in self._ways(others, total):
                    yield {first: parts, **way}, most


def together(asks: Sequence[Asked], sets: Sets, budget: Budget) -> tuple[Parts, ...] | None:
    """Return who of some sets gives each class, with room for all of it; None if they cannot."""
    found: list[Parts] = []
    for asked, givers in zip(asks, sets, strict=True):
        parts = plan(asked, givers, budget)
        if parts is None:
            return None
        found.append(parts)
    ties = Ties(asks)
    return joint.solve(ties, sets, budget) if ties and ties.over(found) else tuple(found)


def less(asked: Asked, used: Used, left: Left) -> Asked:
    """Return the same asked where more is used of some inventories."""
    if not used:
        return asked
    draws = tuple(draw._replace(room=draw.room - used.get(draw.target, 0)) for draw in asked.draws)
    room = {
        giver: left(number) - used[number]
        for giver, number in enumerate(asked.numbers)
        if number in used
    }
    for draw in draws:
        if draw.target in used:
            most = draw.room // draw.factor
            room[draw.giver] = min(most, room.get(draw.giver, most))
    givers = list(asked.givers)
    for place, most in room.items():
        giver = givers[place]
        givers[place] = giver._replace(high=min(giver.high, most // giver.step * giver.step))
    return dataclasses.replace(asked, givers=tuple(givers), draws=draws)


def ways(asked: Asked, givers: int, budget: Budget) -> Iterator[Parts]:
    """Yield every way in which one of some givers, or several devices, give all of a class."""
    places = members(asked, givers)
    for place in places:
        budget.spend()
        if asked.givers[place].gives(asked.amount):
            yield ((place, asked.amount),)
    devices = [place for place in places if asked.givers[place].is_device]
    yield from (parts for parts in _splits(asked, devices, asked.amount, budget) if len(parts) > 1)


def _splits(asked: Asked, devices: Sequence[int], rest: int, budget: Budget) -> Iterator[Parts]:
    """Yield every way in which devices give so much, what is most first."""
    reach = [0]
    for place in reversed(devices):
        reach.append(reach[-1] + max(0, asked.givers[place].high))
    reach.reverse()
    waiting: list[Iterator[tuple[int, Parts]]] = [iter([(rest, ())])]
    while waiting:
        step = next(waiting[-1], None)
        if step is None:
            waiting.pop()
            continue
        budget.spend()
        left, parts = step
        at = len(waiting) - 1
        if not left:
            yield parts
        elif left <= reach[at]:
            waiting.append(_steps(asked, devices[at], left, parts))


def _steps(asked: Asked, device: int, left: int, parts: Parts) -> Iterator[tuple[int, Parts]]:
    """Yield what a device may leave of so much, the least first, and what is given then."""
    low, high, step, _ = asked.givers[device]
    for part in range(min(high, left) // step * step, low - 1, -step):
        yield left - part, (*parts, (device, part))
    yield left, parts


def _add(used: dict[int, int], more: Iterable[tuple[int, int]]) -> None:
    for number, count in more:
        used[number] = used.get(number, 0) + count
