"""The named groups of a request over a fleet: each is given by one provider.

Groups that ask for the same under the same conditions, and are in the same sets of
``same_subtree``, are one *kind* of group: who gives which of them does not matter. What a provider
meets by itself, its conditions and its room for each class, is one flag. Over the whole fleet at
once it is then seen which trees have enough providers for each kind, and enough of each class for
all; what remains is decided tree by tree (:mod:`~resource_objects.search.tree_solver`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.reasons import Rule
from resource_objects.requests import Request, RequestGroup
from resource_objects.resources.budget import Budget
from resource_objects.resources.matching import Matching
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.base import Laying, Qualification, Semantics, met, pools_of
from resource_objects.search.equivalence import equivalence
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.order import Preference

#: With more pools than these, how often each gives is not counted before a tree is looked at.
COUNTED_POOLS = 32
#: More sets of groups than any host holds; sums of it over all providers do not overflow.
_PLENTY = 1 << 40


@dataclasses.dataclass(frozen=True, eq=False)
class GroupKind:
    """Named groups that are alike."""

    fleet: Fleet
    group: RequestGroup  #: the first of them
    without_suffix: RequestGroup  #: ``group`` with the suffix ``_``; equal in equivalent sets
    suffixes: tuple[str, ...]
    classes: tuple[tuple[ClassRows, int], ...]  #: what each asks of which class
    names: tuple[str, ...]  #: of these classes
    conditions: tuple[Qualification, ...]
    met_own: Booleans  #: by provider: meets all of them, giving to its own tree
    met_pooled: Booleans  #: the same to another tree, as a pool
    own: Booleans  #: by provider: gives all of one group to its own tree
    pooled: Booleans  #: the same to another tree, as a pool
    subtrees: frozenset[int]  #: the sets of ``same_subtree`` that they are in

    @property
    def count(self) -> int:
        """How many groups there are of it."""
        return len(self.suffixes)

    @functools.cached_property
    def would(self) -> tuple[Booleans, Booleans]:
        """Who would give all of one group if nobody held anything, to its own tree and to others.

        By provider: who meets the conditions, keeps all classes, and enough of each.
        """
        able, every = np.ones(len(self.own), dtype=np.bool_), self.fleet.unheld_free
        for rows, amount in self.classes:
            has = np.zeros(len(able), dtype=np.bool_)
            most = every[rows.first : rows.first + len(rows.tree)]
            has[rows.provider[rows.could_give(amount, most) & ~rows.is_part]] = True
            able &= has
        return self.met_own & able, self.met_pooled & able

    def numbers(self, providers: Booleans) -> Integers:
        """Return the inventories of its classes that some providers keep, by number."""
        found = [rows.first + np.flatnonzero(providers[rows.provider]) for rows, _ in self.classes]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


@dataclasses.dataclass(frozen=True, eq=False)
class Named:
    """The named groups of a request over a fleet. False if there are none."""

    fleet: Fleet
    rules: Semantics
    kinds: tuple[GroupKind, ...]
    isolates: bool  #: no two of one provider
    subtrees: int  #: how many sets of ``same_subtree`` there are

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def in_service(self) -> Booleans:
        """Return, by provider, whether it is in service, or may be allocated all the same."""
        found = np.ones(len(self.fleet.names), dtype=np.bool_)
        for one in self.kinds[0].conditions:
            if one.rule is Rule.DISABLED:
                found &= one.own
        return found

    @functools.cached_property
    def equivalent_before(self) -> tuple[int | None, ...]:
        """By set of ``same_subtree``, the last equivalent set before it, None for none.

        Sets are equivalent if they have the same groups apart from suffixes, and none of the groups
        is in another set too.
        """
        last: dict[Hashable, int] = {}
        found: list[int | None] = []
        for number in range(self.subtrees):
            kinds = [kind for kind in self.kinds if number in kind.subtrees]
            key: Hashable = number
            if all(len(kind.subtrees) == 1 for kind in kinds):
                key = frozenset((kind.without_suffix, kind.count) for kind in kinds)
            found.append(last.get(key))
            last[key] = number
        return tuple(found)

    @functools.cached_property
    def equivalent_kinds(self) -> tuple[int, ...]:
        """By number of a kind, the number of the equivalent kind in the first equivalent set.

        It is the kind's own number if no set before its set is equivalent.
        """
        numbers = list(range(len(self.kinds)))
        of_set: list[dict[RequestGroup, int]] = []
        for subtree, before in enumerate(self.equivalent_before):
            here = {k.without_suffix: n for n, k in enumerate(self.kinds) if subtree in k.subtrees}
            if before is not None:
                for group, number in here.items():
                    numbers[number] = here[group] = of_set[before][group]
            of_set.append(here)
        return tuple(numbers)

    def options(self, kind: GroupKind, tree: int) -> list[int]:
        """Return who gives one group of a kind to a tree by itself: its own, then pools."""
        here = self.fleet.of_tree(tree)
        found: list[int] = (np.flatnonzero(kind.own[here.start : here.stop]) + here.start).tolist()
        if kind.pooled.any():
            found += [p for p in pools_of(self.fleet, self.rules, tree) if kind.pooled[p]]
        return found

    def possible(self, beside: Mapping[str, int]) -> Booleans:
        """Return which trees may give them all: no tree that can is left out.

        :param beside: what is asked of each class without a name
        """
        found = np.ones(len(self.fleet.hosts), dtype=np.bool_)
        for kind in self.kinds:
            found &= self._slots(kind) >= kind.count
        for name, amount in self._demand().items():
            found &= self._room(name) >= amount + beside.get(name, 0)
        return found

    def _demand(self) -> dict[str, int]:
        """Return how much all named groups ask of each class."""
        found: dict[str, int] = {}
        for kind in self.kinds:
            for name, (_, amount) in zip(kind.names, kind.classes, strict=True):
                found[name] = found.get(name, 0) + amount * kind.count
        return found

    def most(self, trees: int) -> Integers:
        """Return, by tree, how often all groups can be given at most, one time beside the other.

        Of each kind so often as its providers give one; of equivalent sets of ``same_subtree`` so
        often as providers that may be above the groups of one have these below them; of each class
        and amount so often as inventories have so much, for all groups together that ask for so
        much or more.
        """
        found = np.full(trees, MAX_AMOUNT)
        if any(kind.pooled.any() for kind in self.kinds):
            return found
        gives_of: list[Integers] = []
        for kind in self.kinds:
            each = np.where(kind.own, MAX_AMOUNT, 0)
            for rows, amount in kind.classes:
                each[rows.provider] = np.minimum(each[rows.provider], rows.free.clip(0) // amount)
            gives_of.append(each)
            if kind.classes:
                gives = np.flatnonzero(each)
                slots = np.zeros(trees, dtype=np.int64)
                np.add.at(slots, self.fleet.tree[gives], each[gives])
                np.minimum(found, slots // kind.count, out=found)
        np.minimum(found, self._most_of_sets(gives_of, trees), out=found)
        asked = [
            (name, rows, amount, kind.count)
            for kind in self.kinds
            for name, (rows, amount) in zip(kind.names, kind.classes, strict=True)
        ]
        for name, rows, least, _ in asked:
            slots = np.zeros(trees, dtype=np.int64)
            has = np.where(rows.is_part, 0, rows.free.clip(0) // least)
            np.add.at(slots, rows.tree, has)
            many = sum(n for other, _, amount, n in asked if other == name and amount >= least)
            np.minimum(found, slots // many, out=found)
        return found

    def _most_of_sets(self, gives_of: Sequence[Integers], trees: int) -> Integers:
        """Return, by tree, how often all sets of ``same_subtree`` can be given at most.

        :param gives_of: by kind and provider, how often it gives one group
        """
        found, first = np.full(trees, MAX_AMOUNT), list(range(self.subtrees))
        for subtree, before in enumerate(self.equivalent_before):
            first[subtree] = subtree if before is None else first[before]
        for subtree, count in Counter(first).items():
            numbers = [n for n, kind in enumerate(self.kinds) if subtree in kind.subtrees]
            below = [
                self._below(np.minimum(gives_of[n], _PLENTY)) // self.kinds[n].count
                for n in numbers
            ]
            each = np.minimum(np.minimum.reduce(below), _PLENTY)
            is_top = np.logical_or.reduce([gives_of[n] > 0 for n in numbers])
            sets = np.zeros(trees, dtype=np.int64)
            np.add.at(sets, self.fleet.tree, np.where(is_top, each, 0))
            np.minimum(found, sets // count, out=found)
        return found

    def _below(self, figures: Integers) -> Integers:
        """Return, by provider, the sum of a figure over itself and all below it."""
        found, at = figures.copy(), np.arange(len(figures))
        while True:
            above = self.fleet.parent[at]
            has_more = above != at
            if not has_more.any():
                return found
            np.add.at(found, above[has_more], figures[has_more])
            at = above

    def _slots(self, kind: GroupKind) -> Integers:
        """Return, by tree, how many groups of a kind could be given if there were no others."""
        each = self.each(kind)
        fleet = self.fleet
        found = np.zeros(len(fleet.hosts), dtype=np.int64)
        np.add.at(found, fleet.tree[kind.own], each[kind.own])
        return found + self._of_pools(np.where(kind.pooled, each, 0))

    def each(self, kind: GroupKind) -> Integers:
        """Return, by provider, how many groups of a kind it could give, no more than there are."""
        most = 1 if self.isolates else kind.count
        found = np.full(len(self.fleet.names), most)
        if most > 1:
            for rows, amount in kind.classes:
                times = np.minimum(rows.free, rows.max_unit).clip(0) // amount
                found[rows.provider] = np.minimum(found[rows.provider], times)
        return found

    def _room(self, name: str) -> Integers:
        """Return, by tree, how much it and its pools have left of a class, at most."""
        rows, fleet = self.fleet.rows(name), self.fleet
        free = np.where(rows.is_part, 0, rows.free.clip(0))
        found = np.zeros(len(fleet.hosts), dtype=np.int64)
        np.add.at(found, rows.tree, free)
        of_pools = np.zeros(len(fleet.names), dtype=np.int64)
        is_pool = np.isin(rows.provider, fleet.pools.providers)
        of_pools[rows.provider[is_pool]] = free[is_pool]
        return found + self._of_pools(of_pools)

    def _of_pools(self, figures: Integers) -> Integers:
        """Return, by tree, the sum of a figure over the pools that it is linked to."""
        pools = self.fleet.pools
        trees = len(self.fleet.hosts)
        having = pools.providers[figures[pools.providers] > 0]
        if len(having) > COUNTED_POOLS:
            return np.where(pools.linked_to(having, trees), np.iinfo(np.int64).max // 2, 0)
        found = np.zeros(trees, dtype=np.int64)
        for pool in having.tolist():
            found += np.where(pools.linked_to(np.array([pool]), trees), figures[pool], 0)
        return found


def lay_groups(fleet: Fleet, request: Request, laying: Laying, rules: Semantics) -> Named:
    """Return the named groups of a request laid over a fleet. Cost: as for the unnamed one.

    :raises InvalidInput: for an amount that is not kept as one count
    :raises NotFound: for a tree that is not there
    """
    kinds = tuple(_kind(fleet, *groups, laying) for groups in _alike(request))
    return Named(fleet, rules, kinds, request.isolates, len(request.same_subtree))


def _alike(request: Request) -> Iterator[tuple[RequestGroup, list[RequestGroup], frozenset[int]]]:
    """Yield the groups that are alike, with the sets of ``same_subtree`` that they are in."""
    found: dict[tuple[RequestGroup, frozenset[int]], list[RequestGroup]] = {}
    for group in request.named:
        subtrees = frozenset(
            number for number, some in enumerate(request.same_subtree) if group.suffix in some
        )
        found.setdefault((group.replace(suffix="_"), subtrees), []).append(group)
    for (without_suffix, subtrees), groups in found.items():
        yield without_suffix, groups, subtrees


def _kind(
    fleet: Fleet,
    without_suffix: RequestGroup,
    groups: list[RequestGroup],
    subtrees: frozenset[int],
    laying: Laying,
) -> GroupKind:
    group = groups[0]
    conditions = list(laying.of_group(group).each)
    counts = list(_counts(group))
    for name, _ in counts:
        conditions += laying.of_class(group, name)
    met_own, met_pooled = own, pooled = met(conditions, len(fleet.names))
    classes = tuple((fleet.rows(name), amount) for name, amount in counts)
    for rows, amount in classes:
        gives = giving(rows, amount)
        able = np.zeros(len(fleet.names), dtype=np.bool_)
        able[rows.provider[gives]] = True
        own, pooled = own & able, pooled & able
    is_pool = np.zeros(len(fleet.names), dtype=np.bool_)
    is_pool[fleet.pools.providers] = True
    return GroupKind(
        fleet,
        group,
        without_suffix,
        tuple(one.suffix for one in groups),
        classes,
        tuple(name for name, _ in counts),
        tuple(conditions),
        met_own,
        met_pooled & is_pool,
        own,
        pooled & is_pool,
        subtrees,
    )


def giving(rows: ClassRows, amount: int) -> Booleans:
    """Return which inventories of a class give so much by themselves."""
    found: Booleans = (
        (rows.low <= amount)
        & (amount <= rows.high)
        & (amount % rows.step_size == 0)
        & ~rows.is_part
    )
    return found


def _counts(group: RequestGroup) -> Iterable[tuple[str, int]]:
    """Yield how much a group asks of each class."""
    for name, amount in group.resources.by_name():
        records = amount.to_records(name)
        if len(records) != 1 or records[0].resource_class != name or records[0].units:
            raise exceptions.InvalidInput(
                "kind of amount",
                f"group {group.suffix}: {name}",
                amount,
                "one that is kept as one count",
            )
        yield name, records[0].amount


# --- steps on one tree ----------------------------------------------------------------------------
# The named groups of a request on one tree, while a search assigns them to providers.
#
# Each group is one step of :class:`~resource_objects.search.tree_solver.TreeSolver`. Before a
# step, :meth:`GroupSteps.may_finish` decides whether the remaining groups may still be assigned.
# The bounds are cheap, and exclude no solution:
#
# * isolated groups need a provider each: a matching of groups and the providers that have a slot;
# * other groups with the same conditions need as many slots as there are groups;
# * the groups of a ``same_subtree`` need one of their providers above them all, assigned or
#   possible.
#
# Of equal providers in the same state one is tried, and equal groups are assigned in the order of
# the providers, so each assignment comes once. A state in which equal sets of ``same_subtree``
# are exchanged is the same one to the rest.
#
# Rejected: the product of the providers of each group with a filter, which is n!/(n-k)! for k
# groups and n devices.


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
