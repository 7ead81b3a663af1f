"""Every way to give the unnamed group on one tree, beside what named groups take there.

The first way is that of the decision (:mod:`.tree`), which knows what is hard: amounts in parts,
several classes that draw on one inventory, amounts that say where they go. Further ways are only
looked for if somebody wants more than one candidate of a host: class by class, who gives all of it
or which devices share it; equal providers in the same state are tried once. Where an amount says
where it goes, the first way is the only one.

What is used beside it decides, not who uses it: most ways to give named groups leave the same here,
so each such state is decided once. Rejected: one search over named and unnamed classes together,
in which what is hard about each (matchings and subtrees there; traits, parts and topologies here)
would have to be known everywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Mapping, Sequence

from resource_objects.resources import resource
from resource_objects.search.asked import Asked, Decision, Parts, bits
from resource_objects.search.beside import less
from resource_objects.search.budget import Budget
from resource_objects.search.fleet import Fleet
from resource_objects.search.located import LocatedAsked
from resource_objects.search.plan import members
from resource_objects.search.tree import decide

#: How much is used of inventories, by their numbers.
Used = Mapping[int, int]
#: So many states are remembered; then what is known is forgotten, and decided again if need be.
REMEMBERED = 10_000


class Unnamed:
    """The unnamed group asked of one tree, beside what others of the request use there."""

    def __init__(
        self,
        fleet: Fleet,
        asks: Sequence[Asked],
        located: Sequence[LocatedAsked],
        budget: Budget,
    ) -> None:
        self._fleet = fleet
        self.asks = tuple(asks)
        self.located = tuple(located)
        self._budget = budget
        numbers = {number for asked in asks for number in asked.numbers}
        numbers.update(draw.target for asked in asks for draw in asked.draws)
        numbers.update(number for one in located for number in one.reach if one.places)
        #: the inventories that it may use
        self.reach = frozenset(numbers)
        self._known: dict[Hashable, Decision | None] = {}

    def first(self, used: Used, own: Used, own_needed: bool) -> Decision | None:
        """Return the first way; None if there is none. Each state is decided once.

        :param used: what others use of inventories, :param own: not counting shares
        :param own_needed: whether somebody of the tree itself must give something
        :raises Exhausted: if the budget runs out first
        """
        near, own = self._near(used), self._near(own)
        key = frozenset(near.items()), frozenset(own.items()), own_needed
        if key not in self._known:
            if len(self._known) == REMEMBERED:
                self._known.clear()
            self._known[key] = self._decided(near, own, own_needed)
        return self._known[key]

    def _near(self, used: Used) -> dict[int, int]:
        """Return what is used of inventories that it may use."""
        return {number: count for number, count in used.items() if number in self.reach}

    def with_less(self, ask: int, giver: int, amount: int) -> Unnamed:
        """Return the same where somebody gives no more than so much of a class."""
        asks = list(self.asks)
        asks[ask] = asks[ask].at_most(giver, amount)
        return Unnamed(self._fleet, asks, self.located, self._budget)

    def left(self, used: Used, own: Used) -> list[Asked]:
        """Return what is asked, of what is left beside what others use."""
        if not used:
            return list(self.asks)
        rows = self._fleet.inventories

        def left(number: int) -> int:
            return self._fleet.left(number)

        found = []
        for asked in self.asks:
            now = less(asked, used, left)
            for giver, number in enumerate(now.numbers):
                if number in own:
                    now = now.at_most(giver, max(0, int(rows.max_unit[number]) - own[number]))
            found.append(now)
        return found

    def _decided(self, used: Used, own: Used, own_needed: bool) -> Decision | None:
        asks = self.left(used, own)
        located = [self._beside(one, own) for one in self.located]
        found = decide(asks, self._budget, located, used)
        if found is None or not own_needed or self._has_own(asks, found):
            return found
        for number, asked in enumerate(asks):
            some = [*asks[:number], asked.within(asked.own), *asks[number + 1 :]]
            found = decide(some, self._budget, located, used)
            if found is not None:
                return found
        return None

    def _beside(self, located: LocatedAsked, own: Used) -> LocatedAsked:
        """Return the same asked of the parts whose units nobody takes without saying which.

        A cell gives a topology its CPUs by name. Of a consumer that has others there by number
        nobody could tell which are the topology's.
        """
        fleet, kind = self._fleet, resource(located.ask.resource_class).inventory_kind
        if not own or not located.places or kind.of_devices:
            return located
        inventory, taken = located.view.located.inventory, located.ask.amount.located
        barred = {
            int(fleet.inventories.provider[number])
            for number in own
            if (name := fleet.class_of(number)) in taken and inventory.units(name)
        }
        allowed = bits(place not in barred for place in located.places) & located.allowed
        if allowed == located.allowed:
            return located
        return dataclasses.replace(located, allowed=allowed)

    def _has_own(self, asks: Sequence[Asked], found: Decision) -> bool:
        """Return whether somebody of the tree itself gives something."""
        return bool(self.located) or any(
            giver < asked.own
            for asked, parts in zip(asks, found.plans, strict=True)
            for giver, _ in parts
        )

    def others(self, used: Used, own: Used, own_needed: bool, state: Mapping[int, Hashable]
               ) -> Iterator[Decision]:  # fmt: skip
        """Yield every way, of those that differ in equal providers one; the first is among them.

        :param state: what else the providers give, by their places: equal ones that give different
            things are not equal any more
        """
        if not self.located:
            asks = self.left(used, own)
            for plans in _Ways(self._fleet, asks, used, self._budget, state).every():
                found = Decision(plans)
                if not own_needed or self._has_own(asks, found):
                    yield found


class _Ways:
    """The ways of some asks while they are found."""

    def __init__(
        self,
        fleet: Fleet,
        asks: Sequence[Asked],
        used: Used,
        budget: Budget,
        state: Mapping[int, Hashable],
    ) -> None:
        self._fleet = fleet
        self._asks = asks
        self._budget = budget
        self._used = dict(used)
        self._held: dict[int, list[Hashable]] = {
            place: [("named", held)] for place, held in state.items()
        }
        rows = fleet.inventories
        self._providers = [
            [int(place) for place in rows.provider[list(asked.numbers)]] for asked in asks
        ]
        self._room = {draw.target: draw.room for asked in asks for draw in asked.draws}
        self._plans: list[Parts] = []
        conditions = len(asks[0].with_trait) if asks else 0
        self._having = [
            [asked.with_trait[number] for asked in asks] for number in range(conditions)
        ]

    def every(self) -> Iterator[tuple[Parts, ...]]:
        """Yield who gives each class."""
        waiting = [self._options(0)] if self._asks else []
        if not waiting:
            yield ()
        while waiting:
            at = len(waiting) - 1
            if len(self._plans) > at:
                self._book(at, self._plans.pop(), -1)
            parts = next(waiting[-1], None)
            if parts is None:
                waiting.pop()
                continue
            self._budget.spend()
            self._plans.append(parts)
            self._book(at, parts, 1)
            if not self._can_answer(at + 1) or not self._has_room():
                continue
            if at + 1 == len(self._asks):
                yield tuple(self._plans)
            else:
                waiting.append(self._options(at + 1))

    def _book(self, at: int, parts: Parts, sign: int) -> None:
        """Note what a class uses of inventories that several draw on, and who gives it."""
        asked = self._asks[at]
        for giver, part in parts:
            held = self._held.setdefault(self._providers[at][giver], [])
            if sign > 0:
                held.append((at, part))
            else:
                held.pop()
            if asked.draws or self._room:
                for number, count in asked.drawn(giver, part):
                    if number in self._room:
                        self._used[number] = self._used.get(number, 0) + sign * count

    def _has_room(self) -> bool:
        left = self._fleet.left  # below 0 where a shrink left too little: then nobody may draw
        return all(
            count <= left(number) for number in self._room if (count := self._used.get(number, 0))
        )

    def _can_answer(self, decided: int) -> bool:
        """Return whether each condition is answered for by some class, or may still be."""
        for having in self._having:
            answered = any(
                all(having[number] >> giver & 1 for giver, _ in parts)
                for number, parts in enumerate(self._plans[:decided])
            )
            if not answered and not any(
                having[number] & self._asks[number].allowed
                for number in range(decided, len(self._asks))
            ):
                return False
        return True

    def _options(self, at: int) -> Iterator[Parts]:
        """Yield who may give a class, of those that are equal in the same state one."""
        asked = self._asks[at]
        tried: set[Hashable] = set()
        for giver in members(asked, asked.allowed):
            if asked.givers[giver].gives(asked.amount):
                key = self._key(at, giver)
                if key not in tried:
                    tried.add(key)
                    yield ((giver, asked.amount),)
        devices = [
            giver for giver in members(asked, asked.allowed)
            if asked.givers[giver].is_device and asked.givers[giver].high > 0
        ]  # fmt: skip
        if len(devices) > 1:
            together: dict[Hashable, list[int]] = {}
            for giver in devices:
                together.setdefault(self._key(at, giver), []).append(giver)
            yield from self._splits(asked, list(together.values()))

    def _key(self, at: int, giver: int) -> Hashable:
        place = self._providers[at][giver]
        return self._fleet.kin.of(self._fleet, place), tuple(self._held.get(place, ()))

    def _splits(self, asked: Asked, groups: Sequence[Sequence[int]]) -> Iterator[Parts]:
        """Yield how devices share a class, equal ones the most first, at least two of them."""
        devices = [giver for group in groups for giver in group]
        follows = [place > 0 for group in groups for place in range(len(group))]
        reach = [0]
        for giver in reversed(devices):
            reach.append(reach[-1] + asked.givers[giver].high)
        reach.reverse()
        waiting: list[Iterator[tuple[int, ...]]] = [iter([()])]
        while waiting:
            given = next(waiting[-1], None)
            if given is None:
                waiting.pop()
                continue
            self._budget.spend()
            at, rest = len(given), asked.amount - sum(given)
            if not rest:
                parts = tuple(
                    (giver, part) for giver, part in zip(devices, given, strict=False) if part
                )
                if len(parts) > 1:
                    yield parts
            elif at < len(devices) and rest <= reach[at]:
                most = given[-1] if follows[at] else rest
                waiting.append(_next(asked, devices[at], given, min(most, rest)))


def _next(
    asked: Asked, device: int, given: tuple[int, ...], most: int
) -> Iterator[tuple[int, ...]]:
    """Yield what the next device may give, the most first, nothing last."""
    low, high, step, _ = asked.givers[device]
    for part in range(min(high, most) // step * step, low - 1, -step):
        yield (*given, part)
    yield (*given, 0)
