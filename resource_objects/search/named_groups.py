"""The named groups of a request: over a fleet, and as steps of the search on one tree.

One provider provides each named group. Groups with the same amounts and conditions, in the same
sets of ``same_subtree``, are one *kind*: which of them has which provider does not matter. The
conditions and the capacity for one group are flags by provider, so arrays exclude the trees that
have too few providers of a kind, or too little of a class for all groups. The search decides the
other trees (:mod:`~resource_objects.search.tree_solver`), one group in each step
(:class:`GroupSteps`).
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
from resource_objects.search.eligibility import (
    OWN,
    Eligibility,
    EligibilityCompiler,
    Semantics,
    eligible_for,
    pools_of,
)
from resource_objects.search.equivalence import equivalence
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.order import Preference

#: With more pools than these, their capacity is not summed before a tree is searched.
COUNTED_POOLS = 32
#: More groups than any request has: sums of it over all providers do not overflow.
_UNBOUNDED = 1 << 40


@dataclasses.dataclass(frozen=True, eq=False)
class GroupKind:
    """Named groups that are alike. Flags are by role and provider (:class:`.Eligibility`)."""

    fleet: Fleet
    group: RequestGroup  #: the first of them
    without_suffix: RequestGroup  #: ``group`` with the suffix ``_``; equal in equivalent sets
    suffixes: tuple[str, ...]
    classes: tuple[tuple[ClassRows, int], ...]  #: the amount of each class
    names: tuple[str, ...]  #: of these classes
    conditions: tuple[Eligibility, ...]
    eligible: Booleans  #: meets all conditions
    provides: Booleans  #: meets them and has capacity for one group
    subtrees: frozenset[int]  #: the sets of ``same_subtree`` that they are in

    @property
    def own(self) -> Booleans:
        """By provider, whether it provides one group to its own tree."""
        found: Booleans = self.provides[OWN]
        return found

    @functools.cached_property
    def pooled(self) -> Booleans:
        """By provider, whether it provides one group to other trees."""
        found: Booleans = self.provides[-1] & self.fleet.is_pool
        return found

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.suffixes)

    @functools.cached_property
    def would(self) -> Booleans:
        """The providers of one group if nothing were allocated."""
        able, free = self.eligible.copy(), self.fleet.released_free
        for rows, amount in self.classes:
            is_enough = rows.could_give(amount, free[rows.first : rows.first + len(rows.tree)])
            able &= _by_provider(self.fleet, rows, is_enough & ~rows.is_part)
        return able

    def numbers(self, providers: Booleans) -> Integers:
        """Return the numbers of the inventories of its classes at some providers."""
        result = [rows.first + np.flatnonzero(providers[rows.provider]) for rows, _ in self.classes]
        return np.concatenate(result) if result else np.zeros(0, dtype=np.int64)


@dataclasses.dataclass(frozen=True, eq=False)
class Named:
    """The named groups of a request over a fleet. False if there are none."""

    fleet: Fleet
    rules: Semantics
    kinds: tuple[GroupKind, ...]
    isolates: bool  #: no two groups of one provider
    subtrees: int  #: the number of sets of ``same_subtree``

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def in_service(self) -> Booleans:
        """Return, by provider, whether it is enabled, or allocatable although it is disabled."""
        result = np.ones(len(self.fleet.names), dtype=np.bool_)
        for condition in self.kinds[0].conditions:
            if condition.rule is Rule.DISABLED:
                result &= condition.eligible[OWN]
        return result

    @functools.cached_property
    def equivalent_before(self) -> tuple[int | None, ...]:
        """By set of ``same_subtree``, the last equivalent set before it, None for none.

        Sets are equivalent if they have the same groups apart from suffixes, and none of the groups
        is in another set too.
        """
        last: dict[Hashable, int] = {}
        result: list[int | None] = []
        for number in range(self.subtrees):
            kinds = [kind for kind in self.kinds if number in kind.subtrees]
            key: Hashable = number
            if all(len(kind.subtrees) == 1 for kind in kinds):
                key = frozenset((kind.without_suffix, kind.count) for kind in kinds)
            result.append(last.get(key))
            last[key] = number
        return tuple(result)

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
        """Return the providers of one group of a kind to a tree: its own, then pools."""
        here = self.fleet.of_tree(tree)
        result: list[int] = (np.flatnonzero(kind.own[here.start : here.stop]) + here.start).tolist()
        if kind.pooled.any():
            result += [p for p in pools_of(self.fleet, self.rules, tree) if kind.pooled[p]]
        return result

    # --- bounds by arrays ---

    def possible(self, beside: Mapping[str, int]) -> Booleans:
        """Return which trees may provide all groups: no tree that can is excluded.

        :param beside: the amounts of the unnamed group, by class
        """
        result = np.ones(len(self.fleet.hosts), dtype=np.bool_)
        amounts = Counter(beside)
        for kind in self.kinds:
            result &= self._by_tree(self.each(kind), kind.own, kind.pooled) >= kind.count
            for name, (_, amount) in zip(kind.names, kind.classes, strict=True):
                amounts[name] += amount * kind.count
        for name in dict.fromkeys(name for kind in self.kinds for name in kind.names):
            rows = self.fleet.rows(name)
            free = np.zeros(len(self.fleet.names), dtype=np.int64)
            free[rows.provider] = np.where(rows.is_part, 0, rows.free.clip(0))
            result &= self._by_tree(free, free > 0, self.fleet.is_pool) >= amounts[name]
        return result

    def each(self, kind: GroupKind) -> Integers:
        """Return, by provider, the maximum number of groups of a kind, up to all of them."""
        most = 1 if self.isolates else kind.count
        result = np.full(len(self.fleet.names), most)
        if most > 1:
            for rows, amount in kind.classes:
                times = np.minimum(rows.free, rows.max_unit).clip(0) // amount
                result[rows.provider] = np.minimum(result[rows.provider], times)
        return result

    def _by_tree(self, figures: Integers, own: Booleans, pooled: Booleans) -> Integers:
        """Return, by tree, the sum of a figure over its own providers and its pools."""
        fleet, trees = self.fleet, len(self.fleet.hosts)
        result = np.zeros(trees, dtype=np.int64)
        np.add.at(result, fleet.tree[own], figures[own])
        pools = np.flatnonzero(pooled & (figures > 0))
        if len(pools) > COUNTED_POOLS:
            return np.where(
                fleet.pools.linked_to(pools, trees), np.iinfo(np.int64).max // 2, result
            )
        for pool in pools.tolist():
            is_linked = fleet.pools.linked_to(np.array([pool]), trees)
            result[is_linked] += figures[pool]
        return result

    def most(self, trees: int) -> Integers:
        """Return, by tree, an upper bound of how many requests have their groups at once.

        The least over three bounds: the capacity of the providers of each kind; the providers that
        may be above the groups of equivalent sets of ``same_subtree``; for each class and amount,
        the capacity for all groups with this amount or more.
        """
        result = np.full(trees, MAX_AMOUNT)
        if any(kind.pooled.any() for kind in self.kinds):
            return result
        slots: list[Integers] = []  # by kind and provider, the capacity in groups
        for kind in self.kinds:
            each = np.where(kind.own, MAX_AMOUNT, 0)
            for rows, amount in kind.classes:
                each[rows.provider] = np.minimum(each[rows.provider], rows.free.clip(0) // amount)
            slots.append(each)
            if kind.classes:
                able = np.flatnonzero(each)
                total = _sums(self.fleet.tree[able], each[able], trees)
                np.minimum(result, total // kind.count, out=result)
        np.minimum(result, self._most_sets(slots, trees), out=result)
        amounts = [
            (name, rows, amount, kind.count)
            for kind in self.kinds
            for name, (rows, amount) in zip(kind.names, kind.classes, strict=True)
        ]
        for name, rows, least, _ in amounts:
            has = np.where(rows.is_part, 0, rows.free.clip(0) // least)
            groups = sum(n for other, _, amount, n in amounts if other == name and amount >= least)
            np.minimum(result, _sums(rows.tree, has, trees) // groups, out=result)
        return result

    def _most_sets(self, slots: Sequence[Integers], trees: int) -> Integers:
        """Return, by tree, an upper bound of how many requests have their sets at once."""
        result, first = np.full(trees, MAX_AMOUNT), list(range(self.subtrees))
        for subtree, before in enumerate(self.equivalent_before):
            first[subtree] = subtree if before is None else first[before]
        for subtree, count in Counter(first).items():
            numbers = [n for n, kind in enumerate(self.kinds) if subtree in kind.subtrees]
            sets = np.full(len(self.fleet.names), _UNBOUNDED)
            for n in numbers:
                below = self._sums_below(np.minimum(slots[n], _UNBOUNDED))
                np.minimum(sets, below // self.kinds[n].count, out=sets)
            is_top = np.logical_or.reduce([slots[n] > 0 for n in numbers])
            total = _sums(self.fleet.tree, np.where(is_top, sets, 0), trees)
            np.minimum(result, total // count, out=result)
        return result

    def _sums_below(self, figures: Integers) -> Integers:
        """Return, by provider, the sum of a figure over itself and all providers below it."""
        result, at = figures.copy(), np.arange(len(figures))
        while True:
            above = self.fleet.parent[at]
            has_more = above != at
            if not has_more.any():
                return result
            np.add.at(result, above[has_more], figures[has_more])
            at = above


def _sums(trees: Integers, figures: Integers, count: int) -> Integers:
    result = np.zeros(count, dtype=np.int64)
    np.add.at(result, trees, figures)
    return result


def _by_provider(fleet: Fleet, rows: ClassRows, flags: Booleans) -> Booleans:
    """Return, by provider, whether one of some inventories is at it."""
    result = np.zeros(len(fleet.names), dtype=np.bool_)
    result[rows.provider[flags]] = True
    return result


def compile_groups(
    fleet: Fleet, request: Request, compiler: EligibilityCompiler, rules: Semantics
) -> Named:
    """Return the named groups of a request over a fleet. Cost: as for the unnamed group.

    :raises InvalidInput: for an amount that is not stored as one count
    :raises NotFound: for a tree that does not exist
    """
    alike: dict[tuple[RequestGroup, frozenset[int]], list[RequestGroup]] = {}
    for group in request.named:
        sets = enumerate(request.same_subtree)
        subtrees = frozenset(number for number, suffixes in sets if group.suffix in suffixes)
        alike.setdefault((group.replace(suffix="_"), subtrees), []).append(group)
    kinds = [
        _kind(fleet, without_suffix, groups, subtrees, compiler)
        for (without_suffix, subtrees), groups in alike.items()
    ]
    return Named(fleet, rules, tuple(kinds), request.isolates, len(request.same_subtree))


def _kind(
    fleet: Fleet,
    without_suffix: RequestGroup,
    groups: Sequence[RequestGroup],
    subtrees: frozenset[int],
    compiler: EligibilityCompiler,
) -> GroupKind:
    conditions = list(compiler.of_group(groups[0]).each)
    counts = dict(_counts(groups[0]))
    for name in counts:
        conditions += compiler.of_class(groups[0], name)
    classes = tuple((fleet.rows(name), amount) for name, amount in counts.items())
    met_all = eligible_for(fleet, conditions)
    provides = met_all.copy()
    for rows, amount in classes:
        provides &= _by_provider(fleet, rows, giving(rows, amount))
    return GroupKind(
        fleet=fleet,
        group=groups[0],
        without_suffix=without_suffix,
        suffixes=tuple(group.suffix for group in groups),
        classes=classes,
        names=tuple(counts),
        conditions=tuple(conditions),
        eligible=met_all,
        provides=provides,
        subtrees=subtrees,
    )


def giving(rows: ClassRows, amount: int) -> Booleans:
    """Return which inventories of a class can provide an amount."""
    result: Booleans = (
        (rows.low <= amount)
        & (amount <= rows.high)
        & (amount % rows.step_size == 0)
        & ~rows.is_part
    )
    return result


def _counts(group: RequestGroup) -> Iterator[tuple[str, int]]:
    """Yield the amount of each class of a group."""
    for name, amount in group.resources.by_name():
        records = amount.to_records(name)
        if len(records) != 1 or records[0].resource_class != name or records[0].units:
            raise exceptions.InvalidInput(
                "kind of amount",
                f"group {group.suffix}: {name}",
                amount,
                "one that is stored as one count",
            )
        yield name, records[0].amount


# --- steps on one tree --------------------------------------------------------------------------

#: The number of small things that are examined in the time of one step. A step of a large request
#: counts as several, so that a budget bounds the time of any request.
PER_STEP = 512
#: The small things that it takes to find the providers of a kind, and to prepare each of them.
_PER_KIND, _PER_OPTION = 128, 32
#: A provider by its place among those that may provide a group.
Local: TypeAlias = int
#: The use of an inventory by a group: the inventory, the amount including shares, and the amount
#: without shares, to which the unit rules apply.
_Use: TypeAlias = tuple[int, int, int]


class GroupSteps:
    """The named groups on one tree, as steps of a search that assigns one group each.

    Before a step, :meth:`may_finish` decides whether the remaining groups may still be assigned.
    Its bounds are cheap, and exclude no solution:

    * isolated groups need a provider each: a matching of groups and providers with a slot;
    * other groups with the same conditions need as many slots as there are groups;
    * the groups of a ``same_subtree`` need one of their providers above them all.

    A *slot* is capacity for one group of a kind at a provider if no further group is assigned. An
    assignment changes the slots of its provider, and of those that share the inventories it uses.

    Of equal providers in the same state one is tried, and equal groups are assigned in the order of
    the providers, so each assignment comes once. Sets of providers are numbers with a bit for each.

    Rejected: the product of the providers of each group with a filter, which is n!/(n-k)! for k
    groups and n devices.
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
        self._sets = [
            [number for number, kind in enumerate(self._kinds) if subtree in kind.subtrees]
            for subtree in range(named.subtrees)
        ]
        self._above = [
            bits_of(local[p] for p in self._fleet.upwards(provider) if p in local)
            for provider in (self.providers if self._sets else ())
        ]
        #: the kind that each step assigns a group of
        self.kinds = self._kinds_in_order(named.subtrees)
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
        self._above_any: dict[int, int] = {}
        #: by set, how many of its groups each provider has
        self._members: list[Counter[Local]] = [Counter() for _ in self._sets]
        self._prepare_slots()

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
        result: dict[Hashable, list[int]] = {}
        for number, kind in enumerate(self._kinds):
            key: Hashable = number
            if self._sets:
                key = kind.without_suffix, tuple(self._options[number])
            result.setdefault(key, []).append(number)
        return list(result.values())

    # --- one step ---

    def choices(self, step: int) -> Iterator[Local]:
        """Yield the providers that the group of a step may be assigned to."""
        kind = self.kinds[step]
        allowed = self._slots_open[kind] & self._inside(kind) & -1 << self._first(kind)
        tried: set[Hashable] = set()
        for place in self._options[kind]:
            if allowed >> place & 1:
                state = self._equal[place], self._holds.get(place)
                if state not in tried:
                    tried.add(state)
                    yield place

    def assign(self, step: int, place: Local) -> None:
        """Assign the group of a step to a provider."""
        self.chosen.append(place)
        kind = self.kinds[step]
        self._holds[place] = tuple(sorted((*self._holds.get(place, ()), kind)))
        self._move(kind, place, 1)

    def unassign(self, step: int) -> None:
        """Undo the last assignment."""
        kind, place = self.kinds[step], self.chosen.pop()
        kinds_at = list(self._holds.pop(place))
        kinds_at.remove(kind)
        if kinds_at:
            self._holds[place] = tuple(kinds_at)
        self._move(kind, place, -1)

    def _move(self, kind: int, place: Local, sign: int) -> None:
        self._remaining[kind] -= sign
        for subtree in self._kinds[kind].subtrees:
            members = self._members[subtree]
            members[place] += sign
            if not members[place]:
                del members[place]
        changed = {(other, place) for other, slots in enumerate(self._slots) if place in slots}
        for inventory, amount, own in self._uses[kind][place]:
            self.used[inventory] += sign * amount
            self.own[inventory] += sign * own
            changed.update(self._sharing.get(inventory, ()))
        for other, at in changed:
            self._set_slots(other, at)

    def uses(self, step: int) -> Iterator[int]:
        """Yield the inventories that the group of a step uses where it is assigned."""
        return (use[0] for use in self._uses[self.kinds[step]][self.chosen[step]])

    def held_by(self, provider: int) -> tuple[int, ...]:
        """Return the kinds of the groups that are assigned to a provider."""
        place = self._local.get(provider)
        return () if place is None else self._holds.get(place, ())

    def assigned(self) -> tuple[tuple[int, int], ...]:
        """Return ``(kind, provider)`` of each step."""
        places = (self.providers[place] for place in self.chosen)
        return tuple(zip(self.kinds, places, strict=True))

    def key(self, step: int) -> Hashable:
        """Return a key of all that the search depends on before a step.

        States in which equal sets of ``same_subtree`` are exchanged have the same key.
        """
        holding = [
            (self._equal[place], tuple(sorted([self._like[kind] for kind in kinds_at])))
            for place, kinds_at in self._holds.items()
        ]
        open_sets = [
            bits_of(self._members[subtree])
            for subtree, kinds in enumerate(self._sets)
            if any(self._remaining[kind] for kind in kinds)
        ]
        return self._first(self.kinds[step]), tuple(sorted(holding)), tuple(open_sets)

    # --- slots ---

    def _prepare_slots(self) -> None:
        """Count all slots. Cost: some 5 microseconds for each provider of each kind."""
        fleet = self._fleet
        #: by kind and provider, what a group uses
        self._uses = [
            dict(zip(places, _uses(fleet, kind, [self.providers[p] for p in places]), strict=True))
            for kind, places in zip(self._kinds, self._options, strict=True)
        ]
        every = [
            (use, kind, place)
            for kind, of_kind in enumerate(self._uses)
            for place, some in of_kind.items()
            for use in some
        ]
        numbers = list({inventory for (inventory, _, _), _, _ in every})
        rows = fleet.inventories
        left = (rows.capacity[numbers] - rows.used[numbers]).tolist() if numbers else []
        most = rows.max_unit[numbers].tolist() if numbers else []
        #: by inventory, what is left of it, and the most that a consumer may have of it
        self._limits = dict(zip(numbers, zip(left, most, strict=True), strict=True))
        #: by inventory that is used through shares, the slots that depend on it
        self._sharing: dict[int, list[tuple[int, Local]]] = {
            inventory: [] for (inventory, amount, own), _, _ in every if own < amount
        }
        for (inventory, _, _), kind, place in every if self._sharing else ():
            if inventory in self._sharing:
                self._sharing[inventory].append((kind, place))
        #: by inventory, the amount in use; and the same without what is used through shares
        self.used = dict.fromkeys(numbers, 0)
        self.own = dict.fromkeys(numbers, 0)
        #: by provider, the kinds of its groups
        self._holds: dict[Local, tuple[int, ...]] = {}
        #: by kind, the slots of each provider, of all, and the providers that have one
        self._slots: list[dict[Local, int]] = [dict.fromkeys(some, 0) for some in self._options]
        self._slots_total = [0] * len(self._kinds)
        self._slots_open = [0] * len(self._kinds)
        for kind, slots in enumerate(self._slots):
            for place in slots:
                self._set_slots(kind, place)

    def _set_slots(self, kind: int, place: Local) -> None:
        count = int(place not in self._holds) if self._isolates else _UNBOUNDED
        for inventory, amount, own in self._uses[kind][place]:
            left, most = self._limits[inventory]
            count = min(count, (left - self.used[inventory]) // amount)
            if own:
                count = min(count, (most - self.own[inventory]) // own)
        count = max(0, count)
        self._slots_total[kind] += count - self._slots[kind][place]
        self._slots[kind][place] = count
        bit = 1 << place
        opened = self._slots_open[kind]
        self._slots_open[kind] = opened | bit if count else opened & ~bit

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
                (count, self._slots_open[kind] & self._inside(kind) & -1 << self._first(kind))
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
            return self._slots_total[kinds[0]]
        slots = self._slots[kinds[0]].items()
        return sum(count for place, count in slots if place >= first and inside >> place & 1)

    def _first(self, kind: int) -> Local:
        """Return the first provider that a group of a kind may still be assigned to."""
        is_last = bool(self.chosen) and self.kinds[len(self.chosen) - 1] == kind
        return self.chosen[-1] if is_last else 0

    def _inside(self, kind: int) -> int:
        """Return the providers within the subtrees that a kind is in."""
        result = -1
        for subtree in self._kinds[kind].subtrees:
            result &= self._below[subtree]
        return result

    def _find_below(self) -> bool:
        """Find the providers of the rest of each set; return False if a set has none."""
        for subtree, before in enumerate(self._set_before):
            if before is not None and not self._members[before]:
                self._below[subtree] = self._below[before]  # nothing of either is assigned
                continue
            tops = self._tops(subtree)
            if not tops:
                return False
            self._below[subtree] = bits_of(
                place for place, above in enumerate(self._above) if above & tops
            )
        return True

    def _tops(self, subtree: int) -> int:
        """Return the providers that can be above all groups of a set."""
        members = self._members[subtree]
        tops, possible = -1, bits_of(members)
        for place in members:
            tops &= self._above[place]
        for kind in self._sets[subtree]:
            if self._remaining[kind]:
                places = self._slots_open[kind]
                if places not in self._above_any:
                    every = [above for at, above in enumerate(self._above) if places >> at & 1]
                    self._above_any[places] = functools.reduce(int.__or__, every, 0)
                possible |= places
                tops &= self._above_any[places]
        return tops & possible


def bits_of(places: Iterable[int]) -> int:
    """Return a number with the bits of some places set.

    >>> bits_of([0, 2])
    5
    """
    result = 0
    for place in places:
        result |= 1 << place
    return result


def _uses(fleet: Fleet, kind: GroupKind, providers: Sequence[int]) -> Iterator[tuple[_Use, ...]]:
    """Yield the use of inventories by a group at each provider, one entry for each inventory."""
    amounts = [amount for _, amount in kind.classes]
    numbers = [
        (rows.provider.searchsorted(providers) + rows.first).tolist() for rows, _ in kind.classes
    ]
    for own in zip(*numbers, strict=True) if numbers else ((),) * len(providers):
        result = {n: (n, amount, amount) for n, amount in zip(own, amounts, strict=True)}
        for inventory, amount, _ in tuple(result.values()) if fleet.shares else ():
            for target, factor in fleet.shares.of(inventory):
                _, total, itself = result.get(target, (target, 0, 0))
                result[target] = target, total + amount * factor, itself
        yield tuple(result.values())
