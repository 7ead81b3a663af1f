"""Which provider gives which named group, on one tree: every way, the preferred first.

The groups are given one after the other, those that are alike in a row. Before each step it is
seen whether the rest can still be given, by bounds that are cheap and leave no way out:

* isolated groups need a provider each: a matching between them and who may still give;
* others that ask for the same need as many places as there are of them, by what is left everywhere;
* the groups of a ``same_subtree`` need one of their providers, chosen or still possible, above all.

Equal providers in the same state are tried once, and groups that are alike are given in the order
of the providers, so no way comes twice under another name. Where one way is enough, sets of
``same_subtree`` that are equal are given in that order too, compared group by group. A state from
which there was no way is not tried again. Packing groups of several sizes is a hard problem in
general (it contains bin packing), so every trial is paid for from a budget.

Rejected: the product of the groups' lists of providers with a filter behind it, which is n!/(n-k)!
for k groups and n devices; a solver for constraints, which knows neither equal providers nor why it
failed; an answer per group with the sums checked later, which finds no way where there is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from resource_objects.resources.backtracking import Solution, solutions
from resource_objects.resources.budget import Budget
from resource_objects.resources.matching import Matching
from resource_objects.search.conditions.groups import GroupKind, Named
from resource_objects.search.equivalence import equivalence
from resource_objects.search.fleet import Fleet
from resource_objects.search.order import Preference

#: So many small things are looked at in the time of one step: where a request is so large that each
#: step looks at more, it counts as several, so that a budget bounds the time whatever is asked.
PER_STEP = 512
#: So many of them it takes to look for who may give groups of a kind, and to make ready each.
_PER_KIND, _PER_OPTION = 128, 32


class Assignment(NamedTuple):
    """Who gives each named group: ``(kind, provider)`` in the order they were given."""

    given: tuple[tuple[int, int], ...]
    used: dict[int, int]  #: of inventories, by their numbers
    own: dict[int, int]  #: the same without what is used because of shares


class Rest(Protocol):
    """What is asked beside the named groups."""

    @property
    def reach(self) -> frozenset[int]:
        """The inventories that it may use."""

    def may_be_beside(self, used: Mapping[int, int], own: Mapping[int, int]) -> bool:
        """Return whether it may be given beside what some groups use of inventories.

        :param own: the same without what is used because of shares
        """


class Assigning:
    """The named groups asked of one tree."""

    def __init__(
        self,
        named: Named,
        tree: int,
        budget: Budget,
        preference: Preference | None = None,
        rest: Rest | None = None,
        options: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """:param rest: what is asked besides, None for nothing
        :param options: by kind, who may give a group; None: whoever gives one by itself
        """
        self._rest = rest
        self._fleet = named.fleet
        self._budget = budget
        self._kinds = named.kinds
        self._isolates = named.isolates
        self._subtrees = named.subtrees
        self._equivalent = named.equivalent_before
        budget.spend(len(named.kinds) * _PER_KIND // PER_STEP)
        if options is None:
            options = [named.options(kind, tree) for kind in named.kinds]
        budget.spend(sum(map(len, options)) * _PER_OPTION // PER_STEP)
        self._places, self._equal = self._ordered(options, tree, preference)
        local = {provider: place for place, provider in enumerate(self._places)}
        self._options = [sorted(local[p] for p in some) for some in options]
        self._slots = Slots(named.fleet, named.kinds, named.isolates, self._places, self._options)
        self._above = self._ancestors(local) if named.subtrees else []
        #: by subtree, the kinds in it
        self._within = [
            [number for number, kind in enumerate(self._kinds) if subtree in kind.subtrees]
            for subtree in range(self._subtrees)
        ]
        self._order = self._in_order(named.equivalent_kinds)
        self._spans = self._in_spans()
        self._families = self._in_families()
        size = len(self._kinds) + len(self._order) + len(self._places) * (1 + self._subtrees)
        self._cost = 1 + size // PER_STEP
        self._start()

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
        kin = equivalence(self._fleet)
        together: dict[Hashable, list[int]] = {}
        for provider in every:
            together.setdefault(kin.of(self._fleet, provider), []).append(provider)
        places = [provider for some in together.values() for provider in some]
        equal = [number for number, some in enumerate(together.values()) for _ in some]
        return places, equal

    def _ancestors(self, local: dict[int, Local]) -> list[int]:
        """Return, by provider, who of them is above it or itself, as bits."""
        above = (self._fleet.upwards(provider) for provider in self._places)
        return [bits_of(local[at] for at in some if at in local) for some in above]

    def _in_order(self, like: Sequence[int]) -> list[int]:
        """Return the kinds in the order they are given, as often as there are groups of each.

        Those of a subtree together, the ones that only mark a place first; then who has least
        choice.
        """

        def key(number: int) -> tuple[int, bool, int, int]:
            kind = self._kinds[number]
            first = min(kind.subtrees, default=self._subtrees)
            return first, bool(kind.classes), len(self._options[number]), like[number]

        order = sorted(range(len(self._kinds)), key=key)
        return [number for number in order for _ in range(self._kinds[number].count)]

    def _in_spans(self) -> list[tuple[int, int]]:
        """Return, by subtree, where its groups begin and end in the order.

        Groups of other sets may stand between, unless there are equivalent sets.
        """
        found: list[tuple[int, int]] = []
        for numbers in self._within:
            depths = [depth for depth, number in enumerate(self._order) if number in numbers]
            found.append((depths[0], depths[-1] + 1))
        return found

    def _in_families(self) -> list[list[int]]:
        """Return the kinds, those together that differ in their subtrees alone."""
        if not self._subtrees:
            return [[number] for number in range(len(self._kinds))]
        found: dict[Hashable, list[int]] = {}
        for number, kind in enumerate(self._kinds):
            found.setdefault((kind.without_suffix, tuple(self._options[number])), []).append(number)
        return list(found.values())

    def _start(self) -> None:
        self._is_once = False  # whether equivalent sets are not exchanged
        self._chosen: list[Local] = []  # who gives, in the order of the kinds
        self._remaining = [kind.count for kind in self._kinds]
        self._matching = Matching()
        #: by subtree, who is below some possible top, as bits
        self._below = [-1] * self._subtrees
        self._over: dict[int, int] = {}  # by set of providers, who is above one of it
        #: by subtree, how many of its groups each gives
        self._given: list[Counter[Local]] = [Counter() for _ in range(self._subtrees)]

    def _give(self, number: int, place: Local, sign: int) -> None:
        """Let a provider give a group of a kind, or (sign -1) take that back."""
        self._slots.give(number, place, sign)
        if sign > 0:
            self._chosen.append(place)
        else:
            self._chosen.pop()
        self._remaining[number] -= sign
        for subtree in self._kinds[number].subtrees:
            given = self._given[subtree]
            given[place] += sign
            if not given[place]:
                del given[place]

    # --- the search ---

    def ways(self, *, is_once: bool = False) -> Iterator[Assignment]:
        """Yield every way, each once; the state is this one's own while it is looked at.

        :param is_once: whether of ways that differ in which of equivalent sets has what, the first
            one is enough
        :raises SearchLimitReached: if the budget runs out first
        """
        self._is_once = is_once
        if not self._can_finish():
            return
        yield from solutions(0, self._expand, self._budget, self._key, cost=0)

    def _expand(self, depth: int) -> Iterator[int | Solution[Assignment]]:
        """Give the next group to each who may have it, one after the other."""
        number = self._order[depth]
        for place in self._choices(depth):
            self._budget.spend(self._cost)
            self._give(number, place, 1)
            if self._can_finish() and self._leaves_the_rest(number, place):
                yield Solution(self._assignment()) if depth + 1 == len(self._order) else depth + 1
            self._give(number, place, -1)

    def _leaves_the_rest(self, number: int, place: Local) -> bool:
        """Return whether what is asked besides can still be given, after one more has given."""
        rest, takes = self._rest, self._slots.takes[number][place]
        if rest is None or rest.reach.isdisjoint(one.inventory for one in takes):
            return True
        return rest.may_be_beside(self._slots.used, self._slots.own)

    def _choices(self, depth: int) -> Iterator[Local]:
        """Yield who may give the next group."""
        number = self._order[depth]
        is_alike = depth > 0 and self._order[depth - 1] == number
        first = max(self._chosen[depth - 1] if is_alike else 0, self._after_equivalent(depth))
        allowed = self._inside(number)
        tried: set[Hashable] = set()
        for place in self._options[number]:
            state = self._equal[place], self._slots.holds.get(place)
            if (
                place >= first
                and self._slots.of_kind[number][place]
                and allowed >> place & 1
                and state not in tried
            ):
                tried.add(state)
                yield place

    def _assignment(self) -> Assignment:
        places = (self._places[place] for place in self._chosen)
        return Assignment(
            tuple(zip(self._order, places, strict=True)),
            {number: count for number, count in self._slots.used.items() if count},
            {number: count for number, count in self._slots.own.items() if count},
        )

    def _key(self, depth: int) -> Hashable:
        """Return what the rest depends on."""
        is_alike = self._order[depth - 1] == self._order[depth]
        holding = sorted((self._equal[place], held) for place, held in self._slots.holds.items())
        marks = (*self._marks(), *self._bounds(depth)) if self._subtrees else ()
        return depth, self._chosen[-1] if is_alike else -1, tuple(holding), marks

    # --- bounds ---

    def _can_finish(self) -> bool:
        """Return whether the rest may still be given; False means that it cannot."""
        if not self._find_below():
            return False
        for numbers in self._families:
            count = sum(self._remaining[number] for number in numbers)
            if count and self._slots_of(numbers) < count:
                return False
        if not self._can_go_on():
            return False
        return not self._isolates or self._can_match()

    def _slots_of(self, numbers: Sequence[int]) -> int:
        """Return the maximum number of groups of equal kinds that can still be assigned."""
        slots, inside = self._slots, 0
        for number in numbers:
            if self._remaining[number]:
                inside |= self._inside(number)
        if inside < 0:
            return slots.total[numbers[0]]
        every = slots.of_kind[numbers[0]].items()
        return sum(count for place, count in every if inside >> place & 1)

    def _can_go_on(self) -> bool:
        """Return whether those like the last one given have places left, in their order."""
        number, last = self._last()
        count = self._remaining[number]
        slots = self._slots.of_kind[number]
        return not count or sum(n for place, n in slots.items() if place >= last) >= count

    def _last(self) -> tuple[int, Local]:
        """Return the kind of the last group given, and by whom: those like it come no earlier."""
        if not self._chosen:
            return self._order[0], 0
        return self._order[len(self._chosen) - 1], self._chosen[-1]

    def _can_match(self) -> bool:
        return self._matching.can(
            [(count, self._may(number)) for number, count in enumerate(self._remaining)]
        )

    def _may(self, number: int) -> int:
        """Return who may still give a group of a kind, as bits."""
        found = self._slots.open[number]
        kind, last = self._last()
        if number == kind:
            found = found >> last << last
        return found & self._inside(number)

    # --- subtrees ---

    def _marks(self) -> Iterator[int]:
        """Yield, by set of ``same_subtree``, who gives some group of it, as bits."""
        return (bits_of(given) for given in self._given)

    def _after_equivalent(self, depth: int) -> Local:
        """Return the first provider for the next group that is not before its equivalent group's.

        Sets are compared group by group: what the groups before decide is not compared.
        """
        for subtree in self._kinds[self._order[depth]].subtrees:
            equivalent = self._equivalent[subtree]
            if equivalent is not None and self._is_once:
                begin, before = self._spans[subtree][0], self._spans[equivalent][0]
                at = before + depth - begin
                if self._chosen[begin:depth] == self._chosen[before:at]:
                    return self._chosen[at]
        return 0

    def _bounds(self, depth: int) -> Iterator[Hashable]:
        """Yield the assignments of earlier equivalent sets that bound the remaining search."""
        for (begin, end), equivalent in zip(self._spans, self._equivalent, strict=True):
            if equivalent is not None and depth < end and self._spans[equivalent][0] < depth:
                before = self._spans[equivalent][0]
                given = self._chosen[before : before + end - begin]
                yield tuple(given), self._chosen[begin:depth] == given[: max(0, depth - begin)]

    def _find_below(self) -> bool:
        """Find who may give the rest of each set; return False if a set cannot be given."""
        for subtree, equivalent in enumerate(self._equivalent):
            if equivalent is not None and not self._given[equivalent]:
                self._below[subtree] = self._below[equivalent]  # nothing is given of either
                continue
            tops, below = self._tops(subtree), 0
            if not tops:
                return False
            for place, above in enumerate(self._above):
                if above & tops:
                    below |= 1 << place
            self._below[subtree] = below
        return True

    def _tops(self, subtree: int) -> int:
        """Return the providers that can be above all groups of a set, as bits."""
        tops, possible = -1, bits_of(self._given[subtree])
        for place in self._given[subtree]:
            tops &= self._above[place]
        for number in self._within[subtree]:
            if self._remaining[number]:
                may = self._slots.open[number]
                if not self._given[subtree] and number == self._order[self._spans[subtree][0]]:
                    may &= -1 << self._after_equivalent(self._spans[subtree][0])
                possible |= may
                tops &= self._over_any(may)
        return tops & possible

    def _over_any(self, places: int) -> int:
        """Return the providers of a set and all providers above them, as bits."""
        if places not in self._over:
            found = 0
            for place, above in enumerate(self._above):
                if places >> place & 1:
                    found |= above
            self._over[places] = found
        return self._over[places]

    def _inside(self, number: int) -> int:
        """Return who may give a group of a kind without leaving the subtrees it is in."""
        found = -1
        for subtree in self._kinds[number].subtrees:
            found &= self._below[subtree]
        return found


# --- residual slots -----------------------------------------------------------------------------
# How many groups each provider could still give, while groups are given to providers one by one.
#
# A *slot* is room for one group of a kind at a provider, if that gave no others from then on.
# What is given takes room of inventories, through shares of inventories elsewhere too; so only
# the slots of who gave, and of those that draw on the same inventories, are counted again.
# Providers are told by their places among those that matter, and sets of them are numbers with a
# bit for each.


#: So many slots as nobody asks for.
_PLENTY = 1 << 40
#: A provider by its place among those that matter.
Local: TypeAlias = int


class GroupUse(NamedTuple):
    """What one group takes of one inventory, and because what it takes is used there too."""

    inventory: int
    amount: int  #: all of it
    own: int  #: of that as its own, which the unit rules bind


class Slots:
    """The slots of some kinds of groups at those who may give them."""

    def __init__(
        self,
        fleet: Fleet,
        kinds: Sequence[GroupKind],
        isolates: bool,
        places: Sequence[int],
        options: Sequence[Sequence[Local]],
    ) -> None:
        """Make the slots where nothing is given yet. Cost: some 5 microseconds for each option.

        :param places: the providers that matter
        :param options: by kind, who of them gives one group by itself
        """
        self._isolates = isolates
        #: by kind and provider, what a group takes
        self.takes = [
            dict(zip(some, _taken(fleet, kind, [places[at] for at in some]), strict=True))
            for kind, some in zip(kinds, options, strict=True)
        ]
        every = list(
            {one.inventory for some in self.takes for takes in some.values() for one in takes}
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
        self.open = [bits_of(at for at, count in slots.items() if count) for slots in self.of_kind]
        self._kinds_of: list[list[int]] = [[] for _ in places]
        for number, some in enumerate(options):
            for at in some:
                self._kinds_of[at].append(number)

    def give(self, number: int, place: Local, sign: int) -> None:
        """Let a provider give a group of a kind, or (sign -1) take that back."""
        for inventory, amount, own in self.takes[number][place]:
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
        for one in self.takes[number][place]:
            for kind, other in self._sharing.get(one.inventory, ()):
                self._count_again(kind, other)

    def _count(self, number: int, place: Local) -> int:
        most = int(place not in self.holds) if self._isolates else _PLENTY
        for inventory, amount, own in self.takes[number][place]:
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
        for some in self.takes:
            for takes in some.values():
                found.update((one.inventory, []) for one in takes if one.own < one.amount)
        for number, some in enumerate(self.takes):
            for place, takes in some.items():
                for one in takes:
                    if one.inventory in found:
                        found[one.inventory].append((number, place))
        return found


def bits_of(places: Iterable[Local]) -> int:
    """Return a number with the bits of some places set.

    >>> bits_of([0, 2])
    5
    """
    found = 0
    for place in places:
        found |= 1 << place
    return found


def _taken(
    fleet: Fleet, kind: GroupKind, providers: Sequence[int]
) -> Iterator[tuple[GroupUse, ...]]:
    """Yield what a group of a kind would take of each of some providers, who give all of it."""
    amounts = [amount for _, amount in kind.classes]
    numbers = [
        (rows.provider.searchsorted(providers) + rows.first).tolist() for rows, _ in kind.classes
    ]
    for own in zip(*numbers, strict=True) if numbers else ((),) * len(providers):
        pairs = zip(own, amounts, strict=True)
        takes = tuple(GroupUse(number, amount, amount) for number, amount in pairs)
        yield _summed(takes, fleet) if fleet.shares else takes


def _summed(takes: Sequence[GroupUse], fleet: Fleet) -> tuple[GroupUse, ...]:
    """Return what is taken, here and because of shares, with one entry of each inventory."""
    every = list(takes)
    for one in takes:
        links = fleet.shares.between(one.inventory, one.inventory + 1)
        every += [GroupUse(target, one.amount * factor, 0) for _, target, factor in links]
    found: dict[int, GroupUse] = {}
    for one in every:
        _, amount, own = found.get(one.inventory, (0, 0, 0))
        found[one.inventory] = GroupUse(one.inventory, one.amount + amount, one.own + own)
    return tuple(found.values())
