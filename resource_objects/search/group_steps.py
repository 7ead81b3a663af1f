"""The named groups of a request on one tree, while a search assigns them to providers.

Each group is one step of :class:`~resource_objects.search.tree_solver.TreeSolver`. Before a step,
:meth:`GroupSteps.may_finish` decides whether the remaining groups may still be assigned. The bounds
are cheap, and exclude no solution:

* isolated groups need a provider each: a matching of groups and the providers that have a slot;
* other groups with the same conditions need as many slots as there are groups;
* the groups of a ``same_subtree`` need one of their providers above them all, assigned or possible.

Of equal providers in the same state one is tried, and equal groups are assigned in the order of the
providers, so each assignment comes once. A state in which equal sets of ``same_subtree`` are
exchanged is the same one to the rest.

Rejected: the product of the providers of each group with a filter, which is n!/(n-k)! for k groups
and n devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TypeAlias

from resource_objects.resources.budget import Budget
from resource_objects.resources.matching import Matching
from resource_objects.search.equivalence import equivalence
from resource_objects.search.fleet import Fleet
from resource_objects.search.named_groups import GroupKind, Named
from resource_objects.search.order import Preference

#: The number of small things that are examined in the time of one step. A step of a large request
#: counts as several, so that a budget bounds the time of any request.
PER_STEP = 512
#: The small things that it takes to find the providers of a kind, and to prepare each of them.
_PER_KIND, _PER_OPTION = 128, 32
#: A number of slots that no request needs.
_UNBOUNDED = 1 << 40
#: A provider by its place among those that may provide a group.
Local: TypeAlias = int


class GroupSteps:
    """The named groups of one tree, as steps of a search that assigns one group each.

    Sets of providers are numbers with a bit for each local place.
    """

    def __init__(
        self,
        named: Named,
        tree: int,
        budget: Budget,
        options: Sequence[Sequence[int]] | None = None,
        preference: Preference | None = None,
    ) -> None:
        """Prepare the steps.

        :param options: by kind, the providers of one group; None for all that have capacity for it
        """
        self._fleet = named.fleet
        self._kinds = named.kinds
        self._isolates = named.isolates
        self._set_before = named.equivalent_before
        self._like = named.equivalent_kinds
        budget.spend(len(named.kinds) * _PER_KIND // PER_STEP)
        if options is None:
            options = [named.options(kind, tree) for kind in named.kinds]
        budget.spend(sum(map(len, options)) * _PER_OPTION // PER_STEP)
        #: the providers by local place, and a number for each that equal ones have in common
        self.providers, self._equal = self._in_order(options, tree, preference)
        self._local = local = {provider: place for place, provider in enumerate(self.providers)}
        self._options = [sorted(local[p] for p in of_kind) for of_kind in options]
        #: the kind that each step assigns a group of
        self.kinds = self._kinds_in_order(named.subtrees)
        self._slots = _Slots(named, self.providers, self._options)
        self.used, self.own = self._slots.used, self._slots.own
        self._sets = [
            [number for number, kind in enumerate(self._kinds) if subtree in kind.subtrees]
            for subtree in range(named.subtrees)
        ]
        self._above = [
            bits_of(local[p] for p in self._fleet.upwards(provider) if p in local)
            for provider in (self.providers if self._sets else ())
        ]
        self._families = self._kinds_alike()
        size = len(self._kinds) + len(self.kinds) + len(self.providers) * (1 + named.subtrees)
        #: the steps of the budget that assigning one group costs
        self.cost = 1 + size // PER_STEP
        #: by step, the provider of its group
        self.chosen: list[Local] = []
        self._remaining = [kind.count for kind in self._kinds]
        self._matching = Matching()
        #: by set, the providers below a provider that can be above the whole set
        self._below = [-1] * len(self._sets)
        self._over: dict[int, int] = {}
        #: by set, how many of its groups each provider has
        self._members: list[Counter[Local]] = [Counter() for _ in self._sets]

    def _in_order(
        self, options: Sequence[Sequence[int]], tree: int, preference: Preference | None
    ) -> tuple[list[int], list[int]]:
        """Return all providers, the preferred first, equal ones together; and what is equal."""
        own = self._fleet.of_tree(tree)
        every = sorted({p for of_kind in options for p in of_kind}, key=lambda p: (p not in own, p))
        if preference is not None:
            every = preference.of_providers(tree, every)
        classes = equivalence(self._fleet)
        together: dict[Hashable, list[int]] = {}
        for provider in every:
            together.setdefault(classes.of(self._fleet, provider), []).append(provider)
        equal = [number for number, alike in enumerate(together.values()) for _ in alike]
        return [provider for alike in together.values() for provider in alike], equal

    def _kinds_in_order(self, subtrees: int) -> list[int]:
        """Return the kinds in the order of the steps, once for each group.

        The groups of a subtree are together, those without resources first; then those with the
        fewest providers.
        """

        def key(number: int) -> tuple[int, bool, int, int]:
            kind = self._kinds[number]
            first = min(kind.subtrees, default=subtrees)
            return first, bool(kind.classes), len(self._options[number]), self._like[number]

        order = sorted(range(len(self._kinds)), key=key)
        return [number for number in order for _ in range(self._kinds[number].count)]

    def _kinds_alike(self) -> list[list[int]]:
        """Return the kinds, those together that differ in their subtrees only."""
        found: dict[Hashable, list[int]] = {}
        for number, kind in enumerate(self._kinds):
            key: Hashable = number
            if self._sets:
                key = kind.without_suffix, tuple(self._options[number])
            found.setdefault(key, []).append(number)
        return list(found.values())

    # --- one step ---

    def choices(self, step: int) -> Iterator[Local]:
        """Yield the providers that the group of a step may be assigned to."""
        kind = self.kinds[step]
        first, allowed = self._first(kind), self._inside(kind)
        tried: set[Hashable] = set()
        for place in self._options[kind]:
            if place >= first and self._slots.of_kind[kind][place] and allowed >> place & 1:
                state = self._equal[place], self._slots.holds.get(place)
                if state not in tried:
                    tried.add(state)
                    yield place

    def assign(self, step: int, place: Local) -> None:
        """Assign the group of a step to a provider."""
        self.chosen.append(place)
        self._move(self.kinds[step], place, 1)

    def unassign(self, step: int) -> None:
        """Undo the last assignment."""
        self._move(self.kinds[step], self.chosen.pop(), -1)

    def _move(self, kind: int, place: Local, sign: int) -> None:
        self._remaining[kind] -= sign
        self._slots.move(kind, place, sign)
        for subtree in self._kinds[kind].subtrees:
            members = self._members[subtree]
            members[place] += sign
            if not members[place]:
                del members[place]

    def uses(self, step: int) -> Iterator[int]:
        """Yield the inventories that the group of a step uses where it is assigned."""
        return (use[0] for use in self._slots.takes[self.kinds[step]][self.chosen[step]])

    def held_by(self, provider: int) -> tuple[int, ...]:
        """Return the kinds of the groups that are assigned to a provider."""
        place = self._local.get(provider)
        return () if place is None else self._slots.holds.get(place, ())

    def assigned(self) -> tuple[tuple[int, int], ...]:
        """Return ``(kind, provider)`` of each step."""
        places = (self.providers[place] for place in self.chosen)
        return tuple(zip(self.kinds, places, strict=True))

    def key(self, step: int) -> Hashable:
        """Return a key of all that the search depends on before a step."""
        holding = [
            (self._equal[place], tuple(sorted([self._like[kind] for kind in held])))
            for place, held in self._slots.holds.items()
        ]
        open_sets = [
            bits_of(self._members[subtree])
            for subtree, kinds in enumerate(self._sets)
            if any(self._remaining[kind] for kind in kinds)
        ]
        return self._first(self.kinds[step]), tuple(sorted(holding)), tuple(open_sets)

    # --- bounds ---

    def may_finish(self) -> bool:
        """Return False if the remaining groups cannot be assigned."""
        if not self._find_below():
            return False
        for kinds in self._families:
            count = sum(self._remaining[kind] for kind in kinds)
            if count and self._slots_of(kinds) < count:
                return False
        return not self._isolates or self._matching.can(
            [
                (count, self._slots.open[kind] & self._inside(kind) & -1 << self._first(kind))
                for kind, count in enumerate(self._remaining)
            ]
        )

    def _slots_of(self, kinds: Sequence[int]) -> int:
        """Return the maximum number of groups of equal kinds that can still be assigned."""
        inside, first = 0, self._first(kinds[0]) if len(kinds) == 1 else 0
        for kind in kinds:
            if self._remaining[kind]:
                inside |= self._inside(kind)
        if inside == -1 and not first:
            return self._slots.total[kinds[0]]
        slots = self._slots.of_kind[kinds[0]].items()
        return sum(count for place, count in slots if place >= first and inside >> place & 1)

    def _first(self, kind: int) -> Local:
        """Return the first provider that a group of a kind may still be assigned to."""
        is_last = bool(self.chosen) and self.kinds[len(self.chosen) - 1] == kind
        return self.chosen[-1] if is_last else 0

    # --- subtrees ---

    def _inside(self, kind: int) -> int:
        """Return the providers of a kind within the subtrees that it is in."""
        found = -1
        for subtree in self._kinds[kind].subtrees:
            found &= self._below[subtree]
        return found

    def _find_below(self) -> bool:
        """Find the providers of the rest of each set; return False if a set has none."""
        for subtree, before in enumerate(self._set_before):
            if before is not None and not self._members[before]:
                self._below[subtree] = self._below[before]  # nothing of either is assigned
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
        """Return the providers that can be above all groups of a set."""
        members = self._members[subtree]
        tops, possible = -1, bits_of(members)
        for place in members:
            tops &= self._above[place]
        for kind in self._sets[subtree]:
            if self._remaining[kind]:
                possible |= self._slots.open[kind]
                tops &= self._over_any(self._slots.open[kind])
        return tops & possible

    def _over_any(self, places: int) -> int:
        """Return the providers of a set and all providers above them."""
        if places not in self._over:
            found = 0
            for place, above in enumerate(self._above):
                if places >> place & 1:
                    found |= above
            self._over[places] = found
        return self._over[places]


# --- slots --------------------------------------------------------------------------------------
# A *slot* is capacity for one group of a kind at a provider, if no other group is assigned from
# then on. A group uses inventories, through shares of inventories of other providers too. So only
# the slots of its provider, and of those that draw on the same inventories, are counted again.


#: What one group uses of an inventory: the number of the inventory, the amount with what is used
#: through shares, and the amount without; the unit rules bind the latter.
_Use: TypeAlias = tuple[int, int, int]


class _Slots:
    """The slots of each kind of group at each provider."""

    def __init__(
        self, named: Named, providers: Sequence[int], options: Sequence[Sequence[Local]]
    ) -> None:
        """Count all slots. Cost: some 5 microseconds for each option.

        :param options: by kind, the providers that have capacity for one group
        """
        fleet = named.fleet
        self._isolates = named.isolates
        #: by kind and provider, what a group uses
        self.takes = [
            dict(zip(places, _uses(fleet, kind, [providers[p] for p in places]), strict=True))
            for kind, places in zip(named.kinds, options, strict=True)
        ]
        uses = [use for of_kind in self.takes for some in of_kind.values() for use in some]
        numbers = list({inventory for inventory, _, _ in uses})
        rows = fleet.inventories
        left = (rows.capacity[numbers] - rows.used[numbers]).tolist() if numbers else []
        self._left = dict(zip(numbers, left, strict=True))
        most = rows.max_unit[numbers].tolist() if numbers else []
        self._most = dict(zip(numbers, most, strict=True))
        #: by inventory that is used through shares, the slots that depend on it
        self._sharing: dict[int, list[tuple[int, Local]]] = {
            inventory: [] for inventory, amount, own in uses if own < amount
        }
        for kind, of_kind in enumerate(self.takes if self._sharing else ()):
            for place, some in of_kind.items():
                for inventory, _, _ in some:
                    if inventory in self._sharing:
                        self._sharing[inventory].append((kind, place))
        #: by inventory, the amount in use; and the same without what is used through shares
        self.used = dict.fromkeys(numbers, 0)
        self.own = dict.fromkeys(numbers, 0)
        #: by provider, the kinds of its groups
        self.holds: dict[Local, tuple[int, ...]] = {}
        #: by kind, the slots of each provider, of all, and the providers that have one
        self.of_kind = [
            {place: self._count(kind, place) for place in places}
            for kind, places in enumerate(options)
        ]
        self.total = [sum(slots.values()) for slots in self.of_kind]
        self.open = [bits_of(at for at, count in slots.items() if count) for slots in self.of_kind]

    def move(self, kind: int, place: Local, sign: int) -> None:
        """Add a group to a provider, or (sign -1) remove it."""
        for inventory, amount, own in self.takes[kind][place]:
            self.used[inventory] += sign * amount
            self.own[inventory] += sign * own
        held = list(self.holds.pop(place, ()))
        if sign > 0:
            held.append(kind)
        else:
            held.remove(kind)
        if held:
            self.holds[place] = tuple(sorted(held))
        for other, slots in enumerate(self.of_kind):
            if place in slots:
                self._count_again(other, place)
        for inventory, _, _ in self.takes[kind][place] if self._sharing else ():
            for other, at in self._sharing.get(inventory, ()):
                self._count_again(other, at)

    def _count(self, kind: int, place: Local) -> int:
        most = int(place not in self.holds) if self._isolates else _UNBOUNDED
        for inventory, amount, own in self.takes[kind][place]:
            most = min(most, (self._left[inventory] - self.used[inventory]) // amount)
            if own:
                most = min(most, (self._most[inventory] - self.own[inventory]) // own)
        return max(0, most)

    def _count_again(self, kind: int, place: Local) -> None:
        slots, now = self.of_kind[kind], self._count(kind, place)
        self.total[kind] += now - slots[place]
        slots[place] = now
        bit = 1 << place
        self.open[kind] = self.open[kind] | bit if now else self.open[kind] & ~bit


def bits_of(places: Iterable[int]) -> int:
    """Return a number with the bits of some places set.

    >>> bits_of([0, 2])
    5
    """
    found = 0
    for place in places:
        found |= 1 << place
    return found


def _uses(fleet: Fleet, kind: GroupKind, providers: Sequence[int]) -> Iterator[tuple[_Use, ...]]:
    """Yield what a group of a kind would use of each of some providers, with one entry of each
    inventory.
    """
    amounts = [amount for _, amount in kind.classes]
    numbers = [
        (rows.provider.searchsorted(providers) + rows.first).tolist() for rows, _ in kind.classes
    ]
    for own in zip(*numbers, strict=True) if numbers else ((),) * len(providers):
        found = {n: (n, amount, amount) for n, amount in zip(own, amounts, strict=True)}
        for inventory, amount, _ in tuple(found.values()) if fleet.shares else ():
            for target, factor in fleet.shares.of(inventory):
                _, total, itself = found.get(target, (target, 0, 0))
                found[target] = target, total + amount * factor, itself
        yield tuple(found.values())
