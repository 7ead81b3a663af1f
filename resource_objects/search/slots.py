"""How many groups each provider could still give, while groups are given to providers one by one.

A *slot* is room for one group of a kind at a provider, if that gave no others from then on. What is
given takes room of inventories, through shares of inventories elsewhere too; so only the slots of
who gave, and of those that draw on the same inventories, are counted again. Providers are told by
their places among those that matter, and sets of them are numbers with a bit for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from resource_objects.search.fleet import Fleet
from resource_objects.search.named import Kind

#: So many slots as nobody asks for.
_PLENTY = 1 << 40
#: A provider by its place among those that matter.
Local: TypeAlias = int


class Taken(NamedTuple):
    """What one group takes of one inventory, and because what it takes is used there too."""

    inventory: int
    amount: int  #: all of it
    own: int  #: of that as its own, which the unit rules bind


class Slots:
    """The slots of some kinds of groups at those who may give them."""

    def __init__(
        self,
        fleet: Fleet,
        kinds: Sequence[Kind],
        isolates: bool,
        places: Sequence[int],
        options: Sequence[Sequence[Local]],
    ) -> None:
        """Make the slots where nothing is given yet. Cost: some 5 microseconds for each option.

        :param places: the providers that matter
        :param options: by kind, who of them gives one group by itself
        """
        self._isolates = isolates
        self._takes = [
            dict(zip(some, _taken(fleet, kind, [places[at] for at in some]), strict=True))
            for kind, some in zip(kinds, options, strict=True)
        ]
        every = list(
            {one.inventory for some in self._takes for takes in some.values() for one in takes}
        )
        rows = fleet.inventories
        left = (rows.capacity[every] - rows.used[every]).tolist() if every else []
        self._left = dict(zip(every, left, strict=True))
        most = rows.max_unit[every].tolist() if every else []
        self._most = dict(zip(every, most, strict=True))
        #: inventories that are used because of shares: who takes of them
        self._sharing = self._sharers() if fleet.shares else {}
        #: of inventories, by their numbers
        self.used = dict.fromkeys(self._left, 0)
        #: the same without what is used because of shares
        self.own = dict.fromkeys(self._left, 0)
        #: by provider, the kinds that it gives
        self.holds: dict[Local, tuple[int, ...]] = {}
        #: by kind, the slots of each provider
        self.of_kind = [
            {at: self._count(number, at) for at in some} for number, some in enumerate(options)
        ]
        #: by kind, all slots
        self.total = [sum(slots.values()) for slots in self.of_kind]
        #: by kind, who has a slot
        self.open = [bits(at for at, count in slots.items() if count) for slots in self.of_kind]
        self._kinds_of: list[list[int]] = [[] for _ in places]
        for number, some in enumerate(options):
            for at in some:
                self._kinds_of[at].append(number)

    def give(self, number: int, place: Local, sign: int) -> None:
        """Let a provider give a group of a kind, or (sign -1) take that back."""
        for inventory, amount, own in self._takes[number][place]:
            self.used[inventory] += sign * amount
            self.own[inventory] += sign * own
        held = list(self.holds.pop(place, ()))
        if sign > 0:
            held.append(number)
        else:
            held.remove(number)
        if held:
            self.holds[place] = tuple(sorted(held))
        for kind in self._kinds_of[place]:
            self._count_again(kind, place)
        for one in self._takes[number][place]:
            for kind, other in self._sharing.get(one.inventory, ()):
                self._count_again(kind, other)

    def _count(self, number: int, place: Local) -> int:
        most = int(place not in self.holds) if self._isolates else _PLENTY
        for inventory, amount, own in self._takes[number][place]:
            most = min(most, (self._left[inventory] - self.used[inventory]) // amount)
            if own:
                most = min(most, (self._most[inventory] - self.own[inventory]) // own)
        return max(0, most)

    def _count_again(self, number: int, place: Local) -> None:
        slots, now = self.of_kind[number], self._count(number, place)
        self.total[number] += now - slots[place]
        slots[place] = now
        bit = 1 << place
        self.open[number] = self.open[number] | bit if now else self.open[number] & ~bit

    def _sharers(self) -> dict[int, list[tuple[int, Local]]]:
        found: dict[int, list[tuple[int, Local]]] = {}
        for some in self._takes:
            for takes in some.values():
                found.update((one.inventory, []) for one in takes if one.own < one.amount)
        for number, some in enumerate(self._takes):
            for place, takes in some.items():
                for one in takes:
                    if one.inventory in found:
                        found[one.inventory].append((number, place))
        return found


def bits(places: Iterable[Local]) -> int:
    """Return a number with the bits of some places set.

    >>> bits([0, 2])
    5
    """
    found = 0
    for place in places:
        found |= 1 << place
    return found


def _taken(fleet: Fleet, kind: Kind, providers: Sequence[int]) -> Iterator[tuple[Taken, ...]]:
    """Yield what a group of a kind would take of each of some providers, who give all of it."""
    amounts = [amount for _, amount in kind.classes]
    numbers = [
        (rows.provider.searchsorted(providers) + rows.first).tolist() for rows, _ in kind.classes
    ]
    for own in zip(*numbers, strict=True) if numbers else ((),) * len(providers):
        pairs = zip(own, amounts, strict=True)
        takes = tuple(Taken(number, amount, amount) for number, amount in pairs)
        yield _summed(takes, fleet) if fleet.shares else takes


def _summed(takes: Sequence[Taken], fleet: Fleet) -> tuple[Taken, ...]:
    """Return what is taken, here and because of shares, with one entry of each inventory."""
    every = list(takes)
    for one in takes:
        links = fleet.shares.between(one.inventory, one.inventory + 1)
        every += [Taken(target, one.amount * factor, 0) for _, target, factor in links]
    found: dict[int, Taken] = {}
    for one in every:
        _, amount, own = found.get(one.inventory, (0, 0, 0))
        found[one.inventory] = Taken(one.inventory, one.amount + amount, one.own + own)
    return tuple(found.values())
