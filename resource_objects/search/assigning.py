"""Which provider gives which named group, on one tree: every way, the preferred first.

The groups are given one after the other, those that are alike in a row. Before each step it is
seen whether the rest can still be given, by bounds that are cheap and leave no way out:

* isolated groups need a provider each: a matching between them and who may still give;
* others of a kind need as many places as there are of them, by what is left everywhere;
* the groups of a ``same_subtree`` need one of their providers, chosen or still possible, above all.

Equal providers in the same state are tried once, and groups that are alike are given in the order
of the providers, so no way comes twice under another name. A state from which there was no way is
not tried again. Packing groups of several sizes is a hard problem in general (it contains bin
packing), so every trial is paid for from a budget.

Rejected: the product of the groups' lists of providers with a filter behind it, which is n!/(n-k)!
for k groups and n devices; a solver for constraints, which knows neither equal providers nor why it
failed; an answer per group with the sums checked later, which finds no way where there is one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from resource_objects.search.budget import Budget
from resource_objects.search.matching import can_match
from resource_objects.search.named import Kind, Named
from resource_objects.search.preference import Preference

#: So many places as nobody asks for.
_PLENTY = 1 << 40


class Taken(NamedTuple):
    """What one group takes of one inventory: as its own, or because what it takes is used there."""

    inventory: int
    amount: int
    is_own: bool


class Assignment(NamedTuple):
    """Who gives each named group: ``(kind, provider)`` in the order they were given."""

    given: tuple[tuple[int, int], ...]
    used: dict[int, int]  #: of inventories, by their numbers
    own: dict[int, int]  #: the same without what is used because of shares


#: A provider by its place among those that matter here.
_Local = int


class Assigning:
    """The named groups asked of one tree."""

    def __init__(
        self, named: Named, tree: int, budget: Budget, preference: Preference | None = None
    ) -> None:
        self._fleet = named.fleet
        self._budget = budget
        self._kinds = named.kinds
        self._isolates = named.isolates
        self._subtrees = named.subtrees
        options = [named.options(kind, tree) for kind in named.kinds]
        self.options = options
        self._places, self._equal = self._ordered(options, tree, preference)
        local = {provider: place for place, provider in enumerate(self._places)}
        self._options = [sorted(local[p] for p in some) for some in options]
        self._takes = [self._taken(kind, some) for kind, some in zip(named.kinds, self._options,
                                                                     strict=True)]  # fmt: skip
        self._above = self._ancestors(local) if named.subtrees else []
        self._order = self._in_order()
        self._start()

    # --- what is there ---

    def _ordered(
        self, options: Sequence[Sequence[int]], tree: int, preference: Preference | None
    ) -> tuple[list[int], list[int]]:
        """Return all providers that matter, the preferred first, equal ones together.

        Also return a number for each that equal ones have in common.
        """
        own = self._fleet.of_tree(tree)
        every = sorted(
            {provider for some in options for provider in some},
            key=lambda provider: (provider not in own, provider),
        )
        if preference is not None:
            every = preference.of_providers(tree, every)
        kin = self._fleet.kin
        together: dict[Hashable, list[int]] = {}
        for provider in every:
            together.setdefault(kin.of(self._fleet, provider), []).append(provider)
        places = [provider for some in together.values() for provider in some]
        equal = [number for number, some in enumerate(together.values()) for _ in some]
        return places, equal

    def _taken(self, kind: Kind, options: Sequence[_Local]) -> dict[_Local, tuple[Taken, ...]]:
        """Return what a group of a kind would take of whom."""
        return {place: tuple(self._uses(kind, self._places[place])) for place in options}

    def _uses(self, kind: Kind, provider: int) -> Iterator[Taken]:
        fleet = self._fleet
        for name, (_, amount) in zip(kind.names, kind.classes, strict=True):
            number = fleet.number(provider, name)
            assert number is not None, "who gives a class has it"
            yield Taken(number, amount, True)
            if fleet.shares:
                for _, target, factor in fleet.shares.between(number, number + 1):
                    yield Taken(target, amount * factor, False)

    def _ancestors(self, local: dict[int, _Local]) -> list[int]:
        """Return, by provider, who of them is above it or itself, as bits."""
        parent, found = self._fleet.parent, []
        for provider in self._places:
            bits, at = 0, provider
            while True:
                if at in local:
                    bits |= 1 << local[at]
                if int(parent[at]) == at:
                    break
                at = int(parent[at])
            found.append(bits)
        return found

    def _in_order(self) -> list[int]:
        """Return the kinds in the order they are given, as often as there are groups of each.

        Those of a subtree together, the ones that only mark a place first; then who has least
        choice.
        """

        def key(number: int) -> tuple[int, bool, int, int]:
            kind = self._kinds[number]
            first = min(kind.subtrees, default=self._subtrees)
            return first, bool(kind.classes), len(self._options[number]), number

        order = sorted(range(len(self._kinds)), key=key)
        return [number for number in order for _ in range(self._kinds[number].count)]

    # --- the state ---

    def _start(self) -> None:
        fleet = self._fleet
        every = {taken for some in self._takes for takes in some.values() for taken in takes}
        self._left = {one.inventory: fleet.left(one.inventory) for one in every}
        most = fleet.inventories.max_unit
        self._most = {one.inventory: int(most[one.inventory]) for one in every}
        #: inventories that are used because of shares: who takes of them
        self._sharing = self._sharers() if fleet.shares else {}
        self._used = dict.fromkeys(self._left, 0)
        self._own = dict.fromkeys(self._left, 0)
        self._chosen: list[_Local] = []
        self._holds: dict[_Local, tuple[int, ...]] = {}  # the kinds each gives
        self._remaining = [kind.count for kind in self._kinds]
        self._slots = [
            {place: self._places_for(number, place) for place in some}
            for number, some in enumerate(self._options)
        ]
        self._total = [sum(slots.values()) for slots in self._slots]
        self._below: list[int] = []  # by subtree, who is below some possible top, as bits

    def _sharers(self) -> dict[int, list[tuple[int, _Local]]]:
        targets: dict[int, list[tuple[int, _Local]]] = {}
        for some in self._takes:
            for takes in some.values():
                targets.update((one.inventory, []) for one in takes if not one.is_own)
        for number, some in enumerate(self._takes):
            for place, takes in some.items():
                for one in takes:
                    if one.inventory in targets:
                        targets[one.inventory].append((number, place))
        return targets

    def _places_for(self, number: int, place: _Local) -> int:
        """Return how many groups of a kind a provider could still give, if it gave no others."""
        most = int(place not in self._holds) if self._isolates else _PLENTY
        for inventory, amount, is_own in self._takes[number][place]:
            room = self._left[inventory] - self._used[inventory]
            if is_own:
                room = min(room, self._most[inventory] - self._own[inventory])
            most = min(most, room // amount)
        return max(0, most)

    def _give(self, number: int, place: _Local, sign: int) -> None:
        """Let a provider give a group of a kind, or (sign -1) take that back."""
        for inventory, amount, is_own in self._takes[number][place]:
            self._used[inventory] += sign * amount
            if is_own:
                self._own[inventory] += sign * amount
        held = list(self._holds.get(place, ()))
        if sign > 0:
            self._chosen.append(place)
            held.append(number)
        else:
            self._chosen.pop()
            held.remove(number)
        self._remaining[number] -= sign
        self._holds[place] = tuple(sorted(held))
        if not held:
            del self._holds[place]
        for kind, slots in enumerate(self._slots):
            if place in slots:
                self._count_again(kind, place)
        for one in self._takes[number][place]:
            for kind, other in self._sharing.get(one.inventory, ()):
                self._count_again(kind, other)

    def _count_again(self, number: int, place: _Local) -> None:
        """Note how many groups of a kind a provider could give now."""
        slots, now = self._slots[number], self._places_for(number, place)
        self._total[number] += now - slots[place]
        slots[place] = now

    # --- the search ---

    def ways(self) -> Iterator[Assignment]:
        """Yield every way, each once; the state is this one's own while it is looked at.

        :raises Exhausted: if the budget runs out first
        """
        if not self._can_finish():
            return
        dead: set[Hashable] = set()
        waiting = [self._choices(0)]
        keys: list[Hashable] = [None]
        found = [False]
        while waiting:
            depth = len(waiting) - 1
            if len(self._chosen) > depth:
                self._give(self._order[depth], self._chosen[-1], -1)
            place = next(waiting[-1], None)
            if place is None:
                waiting.pop()
                key, has_found = keys.pop(), found.pop()
                if not has_found:
                    dead.add(key)
                elif found:
                    found[-1] = True
                continue
            self._budget.spend()
            self._give(self._order[depth], place, 1)
            if not self._can_finish():
                continue
            if depth + 1 == len(self._order):
                found[-1] = True
                yield self._assignment()
                continue
            key = self._key(depth + 1)
            if key not in dead:
                waiting.append(self._choices(depth + 1))
                keys.append(key)
                found.append(False)

    def _choices(self, depth: int) -> Iterator[_Local]:
        """Yield who may give the next group."""
        number = self._order[depth]
        is_alike = depth > 0 and self._order[depth - 1] == number
        first = self._chosen[depth - 1] if is_alike else 0
        allowed = self._inside(number)
        tried: set[Hashable] = set()
        for place in self._options[number]:
            state = self._equal[place], self._holds.get(place)
            if (
                place >= first
                and self._slots[number][place]
                and allowed >> place & 1
                and state not in tried
            ):
                tried.add(state)
                yield place

    def _assignment(self) -> Assignment:
        places = (self._places[place] for place in self._chosen)
        return Assignment(
            tuple(zip(self._order, places, strict=True)),
            {number: count for number, count in self._used.items() if count},
            {number: count for number, count in self._own.items() if count},
        )

    def _key(self, depth: int) -> Hashable:
        """Return what the rest depends on."""
        is_alike = self._order[depth - 1] == self._order[depth]
        holding = sorted((self._equal[place], held) for place, held in self._holds.items())
        marks = tuple(self._marks()) if self._subtrees else ()
        return depth, self._chosen[-1] if is_alike else -1, tuple(holding), marks

    # --- bounds ---

    def _can_finish(self) -> bool:
        """Return whether the rest may still be given; False means that it cannot."""
        for number, count in enumerate(self._remaining):
            if count and self._total[number] < count:
                return False
        if not self._can_go_on():
            return False
        tops = [self._tops(number) for number in range(self._subtrees)]
        if not all(top for top, _ in tops):
            return False
        self._below = [below for _, below in tops]
        return not self._isolates or self._can_match()

    def _can_go_on(self) -> bool:
        """Return whether those like the last one given have places left, in their order."""
        number, last = self._last()
        count = self._remaining[number]
        slots = self._slots[number]
        return not count or sum(n for place, n in slots.items() if place >= last) >= count

    def _last(self) -> tuple[int, _Local]:
        """Return the kind of the last group given, and by whom: those like it come no earlier."""
        if not self._chosen:
            return self._order[0], 0
        return self._order[len(self._chosen) - 1], self._chosen[-1]

    def _can_match(self) -> bool:
        groups = [
            (count, self._open(number)) for number, count in enumerate(self._remaining) if count
        ]
        return can_match(groups)

    def _open(self, number: int) -> int:
        """Return who may still give a group of a kind, as bits."""
        found = 0
        for place, slots in self._slots[number].items():
            if slots:
                found |= 1 << place
        kind, last = self._last()
        if number == kind:
            found = found >> last << last
        return found & self._inside(number)

    # --- subtrees ---

    def _marks(self) -> Iterator[int]:
        """Yield, by set of ``same_subtree``, who gives some group of it."""
        for subtree in range(self._subtrees):
            found = 0
            for place, held in self._holds.items():
                if any(subtree in self._kinds[number].subtrees for number in held):
                    found |= 1 << place
            yield found

    def _tops(self, subtree: int) -> tuple[int, int]:
        """Return who may be above all groups of a set, and who is below one of these, as bits."""
        tops, given, possible = -1, 0, 0
        for place, held in self._holds.items():
            if any(subtree in self._kinds[number].subtrees for number in held):
                tops &= self._above[place]
                given |= 1 << place
        for number, kind in enumerate(self._kinds):
            if subtree in kind.subtrees and self._remaining[number]:
                for place, slots in self._slots[number].items():
                    possible |= bool(slots) << place
        tops &= given | possible
        below = 0
        for place, above in enumerate(self._above):
            if above & tops:
                below |= 1 << place
        return tops, below

    def _inside(self, number: int) -> int:
        """Return who may give a group of a kind without leaving the subtrees it is in."""
        found = -1
        for subtree in self._kinds[number].subtrees:
            found &= self._below[subtree]
        return found
