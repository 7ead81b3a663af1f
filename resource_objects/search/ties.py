"""Which givers of one tree draw on the same inventories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from resource_objects.search.asked import Asked, Parts, Sets
from resource_objects.search.plan import members

#: A giver by the number of its class in the request, and its place.
Key: TypeAlias = tuple[int, int]


class Over(NamedTuple):
    """An inventory of which more would be used than is left."""

    target: int
    used: int
    room: int


class Ties:
    """Which givers of a tree draw on which inventories. False if no two draw on the same."""

    def __init__(self, asks: Sequence[Asked]) -> None:
        self.asks = asks
        #: by inventory, what is left
        self.room: dict[int, int] = {}
        #: by giver, the inventories drawn on with others, and the factor
        self.links: dict[Key, dict[int, int]] = {}
        for number, asked in enumerate(asks):
            for giver, target, factor, room in asked.draws:
                self.room[target] = room
                self.links.setdefault((number, giver), {})[target] = factor
        if self.links:
            self._draw_on_themselves()
            self._leave_those_alone()

    def __bool__(self) -> bool:
        return bool(self.links)

    def _draw_on_themselves(self) -> None:
        for ask, asked in enumerate(self.asks):
            for giver, number in enumerate(asked.numbers):
                if number in self.room:
                    self.links.setdefault((ask, giver), {})[number] = 1

    def _leave_those_alone(self) -> None:
        """Forget inventories on which one giver draws alone: it knows what is left."""
        count = dict.fromkeys(self.room, 0)
        for targets in self.links.values():
            for target in targets:
                count[target] += 1
        met = {
            giver: {target: factor for target, factor in targets.items() if count[target] > 1}
            for giver, targets in sorted(self.links.items())
        }
        self.links = {giver: targets for giver, targets in met.items() if targets}

    def over(self, plans: Sequence[Parts]) -> list[Over]:
        """Return the inventories of which these parts use more than is left."""
        used: dict[int, int] = {}
        for ask, parts in enumerate(plans):
            for giver, part in parts:
                for target, factor in self.links.get((ask, giver), {}).items():
                    used[target] = used.get(target, 0) + factor * part
        return [
            Over(target, total, self.room[target])
            for target, total in sorted(used.items())
            if total > self.room[target]
        ]

    def crowded(self, sets: Sets) -> bool:
        """Return whether classes that can only draw on one inventory do not fit there."""
        needed = dict.fromkeys(self.room, 0)
        for ask, asked in enumerate(self.asks):
            givers = members(asked, sets[ask])
            drawn = [self.links.get((ask, giver), {}) for giver in givers]
            for target in drawn[0] if drawn else ():
                if all(target in links for links in drawn):
                    needed[target] += asked.amount * min(links[target] for links in drawn)
        return any(needed[target] > max(room, 0) for target, room in self.room.items())

    def groups(self, sets: Sets) -> list[list[Key]]:
        """Return the givers of some sets that draw on the same, directly or through others."""
        above: dict[int, int] = {}

        def top(target: int) -> int:
            while above.setdefault(target, target) != target:
                above[target] = above[above[target]]
                target = above[target]
            return target

        keys = [key for key in self.links if sets[key[0]] >> key[1] & 1]
        for key in keys:
            first, *rest = self.links[key]
            for target in rest:
                above[top(target)] = top(first)
        found: dict[int, list[Key]] = {}
        for key in keys:
            found.setdefault(top(next(iter(self.links[key]))), []).append(key)
        return list(found.values())
