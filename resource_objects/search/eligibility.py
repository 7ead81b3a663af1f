"""The rules by which a request is read, and the providers and named groups by these rules.

The search asks only for the value of a rule, never whose rules apply, so each rule can be tested
individually. A rule on which both columns agree is no field;
``doc/source/explanation/compatibility.rst`` lists all of them.

One provider provides each named group. Groups with the same amounts and conditions, in the same
sets of ``same_subtree``, are one *kind*: which of them has which provider does not matter. The
conditions and the capacity for one group are flags by provider, so arrays exclude the trees that
have too few providers of a kind, or too little of a class for all groups. The search decides the
other trees (:mod:`~resource_objects.search.tree_solver`).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.reasons import Rule
from resource_objects.requests import Request, RequestGroup
from resource_objects.search.arrays import Booleans, Integers, sums_by
from resource_objects.search.fleet import ClassRows, Fleet


class Reach(enum.Enum):
    """The providers whose aggregates apply to a provider."""

    ITSELF = "its own"
    ROOT = "its own, and those of its root"
    ABOVE = "its own, and those of its ancestors"


@dataclasses.dataclass(frozen=True, slots=True)
class Semantics:
    """The rules by which a request is read."""

    #: several devices of a tree may provide a count of the unnamed group together
    splits_devices: bool
    #: providers have the traits of the providers above them, for their own tree
    inherits_traits: bool
    #: aggregates of a provider, for the unnamed group
    unnamed_reach: Reach
    #: aggregates of a provider, for a named group
    named_reach: Reach
    #: aggregates of a pool that provides to another tree
    pool_reach: Reach
    #: if the unnamed group requires several aggregates, a single provider is in all of them
    members_at_once: bool
    #: a root in an aggregate that the unnamed group forbids excludes the pools of its tree too
    root_keeps_pools_out: bool
    #: the tree that the unnamed group requires is the host
    in_tree_is_host: bool
    #: the host of a candidate provides something itself
    host_gives: bool
    #: an affinity of devices is invalid without host cells; else it is ignored
    affinity_needs_cells: bool
    #: an unknown tree is an error; else there are no candidates
    refuses_unknown_trees: bool
    #: the default number of candidates of a host; None: all
    per_host: int | None


#: The rules of requests made in Python.
OURS = Semantics(
    splits_devices=True,
    inherits_traits=True,
    unnamed_reach=Reach.ABOVE,
    named_reach=Reach.ABOVE,
    pool_reach=Reach.ABOVE,
    members_at_once=False,
    root_keeps_pools_out=False,
    in_tree_is_host=False,
    host_gives=True,
    affinity_needs_cells=True,
    refuses_unknown_trees=True,
    per_host=1,
)

#: The rules of requests in the terms of Placement or Nova: Placement's, without its bugs.
PLACEMENT = Semantics(
    splits_devices=False,
    inherits_traits=False,
    unnamed_reach=Reach.ROOT,
    named_reach=Reach.ITSELF,
    pool_reach=Reach.ITSELF,
    members_at_once=True,
    root_keeps_pools_out=True,
    in_tree_is_host=True,
    host_gives=False,
    affinity_needs_cells=False,
    refuses_unknown_trees=False,
    per_host=None,
)


def semantics_of(request: Request) -> Semantics:
    """Return the rules by which a request is read.

    >>> semantics_of(Request("VCPU=1")) is OURS
    True
    >>> semantics_of(Request("VCPU=1", compatibility="placement")) is PLACEMENT
    True
    """
    return PLACEMENT if request.compatibility == "placement" else OURS


# --- providers ------------------------------------------------------------------------------------

#: The roles of a provider: it provides to its own tree, or as a pool to other trees.
OWN, POOL = 0, 1


def roles_of(fleet: Fleet) -> int:
    """Return the number of roles that providers can have."""
    return 2 if fleet.has_pools else 1


def pools_of(fleet: Fleet, rules: Semantics, tree: int) -> list[int]:
    """Return the pools of other trees that may provide to a tree.

    If a host has to provide something itself, none may provide to the tree of a pool.
    """
    if rules.host_gives and tree in fleet.pools.trees:
        return []
    return [pool for pool in fleet.pools.of_tree(tree) if int(fleet.tree[pool]) != tree]


def trees_of(fleet: Fleet, provider: Integers, provides: Booleans) -> Booleans:
    """Return the trees that some providers, or their inventories, can provide to.

    :param provider: of each
    :param provides: by role (see :class:`Eligibility`) and provider or inventory
    """
    trees = np.zeros(len(fleet.hosts), dtype=np.bool_)
    trees[fleet.tree[provider[provides[OWN]]]] = True
    if len(provides) > 1 and len(pools := provider[provides[POOL]]):
        trees |= fleet.pools.linked_to(pools, len(trees))
    return trees


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Eligibility:
    """A condition on providers.

    Flags of providers and inventories have a row for each role: :data:`OWN`, and :data:`POOL` where
    there are pools.
    """

    rule: Rule  #: that fails where it is not met
    label: str  #: the trait, aggregate or provider of the condition
    eligible: Booleans  #: by role and provider


def eligible_for(fleet: Fleet, conditions: Iterable[Eligibility]) -> Booleans:
    """Return, by role, the providers that meet all of some conditions."""
    flags = np.ones((roles_of(fleet), len(fleet.names)), dtype=np.bool_)
    for condition in conditions:
        flags &= condition.eligible
    return flags


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class GroupEligibility:
    """The conditions of one group on providers."""

    of_each: tuple[Eligibility, ...]  #: met by each provider
    of_some: tuple[Eligibility, ...]  #: each met by all providers of some class


class EligibilityCompiler:
    """Compiles the conditions of groups on the providers of a fleet, by the rules of a request."""

    def __init__(self, fleet: Fleet, rules: Semantics, of_all: Sequence[Eligibility] = ()) -> None:
        """:param of_all: the conditions on each provider, whatever the group"""
        self.rules = rules
        self._fleet = fleet
        self._of_all = of_all
        self._roles = roles_of(fleet)

    def of_group(self, group: RequestGroup) -> GroupEligibility:
        """Return the conditions of a group. Cost: a pass over the providers for each.

        A group without resources requires a provider itself: those above it do not count.

        :raises NotFound: for an unknown tree, if the rules refuse that
        """
        itself_only = not group.resources
        of_each, required = [*self._of_all], list[Eligibility]()
        for trait in sorted(group.forbidden):
            of_each.append(self._lacking(trait, itself_only))
        if group.member_of or group.not_member_of:
            of_each += self._of_aggregates(group)
        if (in_tree := group.in_tree) is not None:
            is_inside = self._fleet.tree == self._tree(in_tree)
            of_each.append(
                Eligibility(Rule.OTHER_TREE, in_tree, np.stack([is_inside] * self._roles))
            )
        for traits in (*[(trait,) for trait in sorted(group.required)], *group.any_of):
            required.append(self._having(traits, itself_only))
        if group.suffix:
            return GroupEligibility((*of_each, *required), ())
        return GroupEligibility(tuple(of_each), tuple(required))

    def of_class(self, group: RequestGroup, resource_class: str) -> Iterator[Eligibility]:
        """Yield the further conditions on providers of a resource class."""
        for name, required, forbidden in group.traits_of:
            if name == resource_class:
                yield from (self._having((trait,)) for trait in sorted(required))
                yield from (self._lacking(trait) for trait in sorted(forbidden))

    def of_host(self, request: Request) -> Iterator[tuple[Rule, str, Booleans]]:
        """Yield the conditions on the host itself, with flags by tree.

        They are on the traits of its root; by Placement's rules also on a root in an aggregate that
        the unnamed group forbids, which excludes pools too, and on the tree that it requires.
        """
        fleet, rules = self._fleet, self.rules
        for trait in sorted(request.root_required):
            has_trait = fleet.having(fleet.traits, (trait,))[fleet.tops]
            yield Rule.ROOT_TRAIT_MISSING, trait, has_trait
        for trait in sorted(request.root_forbidden):
            has_trait = fleet.having(fleet.traits, (trait,))[fleet.tops]
            yield Rule.ROOT_TRAIT_FORBIDDEN, trait, ~has_trait
        group = request.unnamed
        if rules.root_keeps_pools_out:
            for name in sorted(group.not_member_of):
                is_member = fleet.having(fleet.aggregates, (name,))
                yield Rule.AGGREGATE_FORBIDDEN, name, ~is_member[fleet.tops]
        if rules.in_tree_is_host and group.in_tree is not None:
            is_host = np.arange(len(fleet.hosts)) == self._tree(group.in_tree)
            yield Rule.OTHER_TREE, group.in_tree, is_host

    def _having(self, traits: Iterable[str], itself_only: bool = False) -> Eligibility:
        """Return the condition that a provider has one of some traits."""
        names = sorted(traits)
        itself = self._fleet.having(self._fleet.traits, names)
        inherits = self.rules.inherits_traits and not itself_only
        has_one = self._fleet.below(itself) if inherits else itself
        by_role = np.stack((has_one, itself)[: self._roles])
        return Eligibility(Rule.TRAIT_MISSING, " or ".join(names), by_role)

    def _lacking(self, trait: str, itself_only: bool = False) -> Eligibility:
        has_trait = self._having((trait,), itself_only).eligible
        return Eligibility(Rule.TRAIT_FORBIDDEN, trait, ~has_trait)

    def _of_aggregates(self, group: RequestGroup) -> Iterator[Eligibility]:
        fleet, rules = self._fleet, self.rules
        reaches = (rules.named_reach if group.suffix else rules.unnamed_reach), rules.pool_reach
        if not group.resources and group.suffix:
            reaches = Reach.ITSELF, Reach.ITSELF

        def members(itself: Booleans) -> Booleans:
            return np.stack([self._reached(itself, reach) for reach in reaches[: self._roles]])

        required = [
            (" or ".join(sorted(names)), fleet.having(fleet.aggregates, names))
            for names in group.member_of
        ]
        if required and rules.members_at_once and not group.suffix:
            labels, flags = zip(*required, strict=True)
            required = [(", ".join(labels), np.logical_and.reduce(flags))]
        for label, itself in required:
            yield Eligibility(Rule.AGGREGATE_MISSING, label, members(itself))
        for name in sorted(group.not_member_of):
            is_member = members(fleet.having(fleet.aggregates, (name,)))
            yield Eligibility(Rule.AGGREGATE_FORBIDDEN, name, ~is_member)

    def _reached(self, itself: Booleans, reach: Reach) -> Booleans:
        if reach is Reach.ITSELF:
            return itself
        if reach is Reach.ABOVE:
            return self._fleet.below(itself)
        return itself | itself[self._fleet.tops][self._fleet.tree]

    def _tree(self, key: str) -> int:
        """Return the tree of a provider; -1 if it is unknown and that is no error."""
        place = self._fleet.place_by_key.get(key)
        if place is not None:
            return self._fleet.whole_tree(place)
        if self.rules.refuses_unknown_trees:
            raise exceptions.NotFound("provider", key)
        return -1


#: With more pools than these, their capacity is not summed before a tree is searched.
COUNTED_POOLS = 32
#: More groups than any request has: sums of it over all providers do not overflow.
_UNBOUNDED = 1 << 40


class ClassAmount(NamedTuple):
    """The amount of a class that one provider provides to a group."""

    name: str
    rows: ClassRows
    amount: int

    @property
    def sources(self) -> Booleans:
        """By inventory of the class, whether it can provide the amount."""
        return self.rows.provides(self.amount) & ~self.rows.is_part


@dataclasses.dataclass(frozen=True, eq=False)
class GroupKind:
    """Named groups that are alike. Flags are by role and provider (:class:`.Eligibility`)."""

    fleet: Fleet
    group: RequestGroup  #: the first of them
    suffixes: tuple[str, ...]
    amounts: tuple[ClassAmount, ...]  #: the amount of each class
    conditions: tuple[Eligibility, ...]
    eligible: Booleans  #: meets all conditions
    provides: Booleans  #: meets them and has capacity for one group
    subtrees: frozenset[int]  #: the sets of ``same_subtree`` that they are in

    @property
    def names(self) -> tuple[str, ...]:
        """The classes."""
        return tuple([name for name, _, _ in self.amounts])

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.suffixes)

    @property
    def provides_own(self) -> Booleans:
        """By provider, whether it provides one group to its own tree."""
        flags: Booleans = self.provides[OWN]
        return flags

    @functools.cached_property
    def provides_as_pool(self) -> Booleans:
        """By provider, whether it provides one group to other trees."""
        flags: Booleans = self.provides[-1] & self.fleet.is_pool
        return flags

    @functools.cached_property
    def times(self) -> Integers:
        """By provider, the maximum number of these groups if there are no others."""
        result = np.full(len(self.fleet.names), self.count)
        if self.count > 1:
            for _, rows, amount in self.amounts:
                fits = np.minimum(rows.free, rows.max_unit).clip(0) // amount
                result[rows.provider] = np.minimum(result[rows.provider], fits)
        return result

    @functools.cached_property
    def would_provide(self) -> Booleans:
        """The providers of one group if nothing were allocated."""
        able, free = self.eligible.copy(), self.fleet.released.inventories.free
        for _, rows, amount in self.amounts:
            is_enough = rows.provides(amount, free[rows.first : rows.first + len(rows.tree)])
            able &= having(self.fleet, rows, is_enough & ~rows.is_part)
        return able


@dataclasses.dataclass(frozen=True, eq=False)
class NamedGroups:
    """The named groups of a request over a fleet. False if there are none."""

    fleet: Fleet
    rules: Semantics
    kinds: tuple[GroupKind, ...]
    isolates: bool  #: no two groups of one provider
    subtrees: int  #: the number of sets of ``same_subtree``

    def __bool__(self) -> bool:
        return bool(self.kinds)

    def enabled(self) -> Booleans:
        """Return, by provider, whether it is enabled, or allocatable although it is disabled."""
        result = np.ones(len(self.fleet.names), dtype=np.bool_)
        for condition in self.kinds[0].conditions:
            if condition.rule is Rule.DISABLED:
                result &= condition.eligible[OWN]
        return result

    @functools.cached_property
    def equivalent_sets(self) -> tuple[int, ...]:
        """By set of ``same_subtree``, the number of the first equivalent set.

        Sets are equivalent if they have the same groups apart from suffixes, and none of the groups
        is in another set too.
        """
        first: dict[Hashable, int] = {}
        result = []
        for number in range(self.subtrees):
            kinds = [kind for kind in self.kinds if number in kind.subtrees]
            is_separate = all(len(kind.subtrees) == 1 for kind in kinds)
            groups = frozenset((kind.group.definition, kind.count) for kind in kinds)
            result.append(first.setdefault(groups, number) if is_separate else number)
        return tuple(result)

    @functools.cached_property
    def equivalent_kinds(self) -> tuple[int, ...]:
        """By number of a kind, the number of the first kind of equal groups in equivalent sets."""
        first, sets = dict[Hashable, int](), self.equivalent_sets
        return tuple(
            first.setdefault((kind.group.definition, *(sets[n] for n in kind.subtrees)), number)
            for number, kind in enumerate(self.kinds)
        )

    def options(self, kind: GroupKind, tree: int) -> list[int]:
        """Return the providers of one group of a kind to a tree: its own, then pools."""
        places = self.fleet.of_tree(tree)
        provides = kind.provides_own[places.start : places.stop]
        providers: list[int] = (np.flatnonzero(provides) + places.start).tolist()
        if (is_pool := kind.provides_as_pool).any():
            providers += [pool for pool in pools_of(self.fleet, self.rules, tree) if is_pool[pool]]
        return providers

    # --- bounds by arrays ---

    def possible(self, unnamed: Mapping[str, int]) -> Booleans:
        """Return which trees may provide all groups: no tree that can is excluded.

        :param unnamed: the amounts of the unnamed group, by class
        """
        result = np.ones(len(self.fleet.hosts), dtype=np.bool_)
        amounts = Counter(unnamed)
        for kind in self.kinds:
            times, able = self.times_of(kind), np.flatnonzero(kind.provides_own)
            pools = np.flatnonzero(kind.provides_as_pool) if self.fleet.has_pools else able[:0]
            sums = self._by_tree(self.fleet.tree[able], times[able], pools, times[pools])
            result &= sums >= kind.count
            for name, _, amount in kind.amounts:
                amounts[name] += amount * kind.count
        for name in dict.fromkeys(name for kind in self.kinds for name in kind.names):
            rows = self.fleet.rows(name)
            free = np.where(rows.is_part, 0, rows.free.clip(0))
            pools = rows.tree[:0]
            if self.fleet.has_pools:
                pools = np.flatnonzero(self.fleet.is_pool[rows.provider])
            sums = self._by_tree(rows.tree, free, rows.provider[pools], free[pools])
            result &= sums >= amounts[name]
        return result

    def times_of(self, kind: GroupKind) -> Integers:
        """Return, by provider, the maximum number of groups of a kind, up to all of them."""
        return np.ones(len(self.fleet.names), np.int64) if self.isolates else kind.times

    def _by_tree(
        self, tree: Integers, figures: Integers, pools: Integers, of_pools: Integers
    ) -> Integers:
        """Return, by tree, the sum of figures, and of those of the pools that it is linked to.

        :param tree: of each figure
        :param of_pools: the figures of ``pools``
        """
        fleet, trees = self.fleet, len(self.fleet.hosts)
        result = sums_by(figures, tree, trees)
        pools, of_pools = pools[of_pools > 0], of_pools[of_pools > 0]
        if len(pools) > COUNTED_POOLS:
            return np.where(
                fleet.pools.linked_to(pools, trees), np.iinfo(np.int64).max // 2, result
            )
        for number, figure in enumerate(of_pools.tolist()):
            result[fleet.pools.linked_to(pools[number : number + 1], trees)] += figure
        return result

    def upper_bounds(self, trees: int) -> Integers:
        """Return, by tree, an upper bound of how many requests have their groups at once.

        The least over three bounds: the capacity of the providers of each kind; the providers that
        may be above the groups of equivalent sets of ``same_subtree``; for each class and amount,
        the capacity for all groups with this amount or more.
        """
        result = np.full(trees, MAX_AMOUNT)
        if any(kind.provides_as_pool.any() for kind in self.kinds):
            return result
        slots: list[Integers] = []  # by kind and provider, the capacity in groups
        for kind in self.kinds:
            times = np.where(kind.provides_own, MAX_AMOUNT, 0)
            for _, rows, amount in kind.amounts:
                fits = rows.free.clip(0) // amount
                times[rows.provider] = np.minimum(times[rows.provider], fits)
            slots.append(times)
            if kind.amounts:
                able = np.flatnonzero(times)
                total = sums_by(times[able], self.fleet.tree[able], trees)
                np.minimum(result, total // kind.count, out=result)
        np.minimum(result, self._most_sets(slots, trees), out=result)
        amounts = [
            (name, rows, amount, kind.count)
            for kind in self.kinds
            for name, rows, amount in kind.amounts
        ]
        for name, rows, least, _ in amounts:
            has = np.where(rows.is_part, 0, rows.free.clip(0) // least)
            groups = sum(n for other, _, amount, n in amounts if other == name and amount >= least)
            np.minimum(result, sums_by(has, rows.tree, trees) // groups, out=result)
        return result

    def _most_sets(self, slots: Sequence[Integers], trees: int) -> Integers:
        """Return, by tree, an upper bound of how many requests have their sets at once."""
        result = np.full(trees, MAX_AMOUNT)
        for subtree, count in Counter(self.equivalent_sets).items():
            numbers = [n for n, kind in enumerate(self.kinds) if subtree in kind.subtrees]
            sets = np.full(len(self.fleet.names), _UNBOUNDED)
            for n in numbers:
                below = self._sums_below(np.minimum(slots[n], _UNBOUNDED))
                np.minimum(sets, below // self.kinds[n].count, out=sets)
            is_top = np.logical_or.reduce([slots[n] > 0 for n in numbers])
            total = sums_by(np.where(is_top, sets, 0), self.fleet.tree, trees)
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


def having(fleet: Fleet, rows: ClassRows, inventories: Booleans) -> Booleans:
    """Return, by provider, whether it has one of some inventories of a class."""
    flags = np.zeros(len(fleet.names), dtype=np.bool_)
    flags[rows.provider[inventories]] = True
    return flags


def compile_groups(
    fleet: Fleet, request: Request, compiler: EligibilityCompiler, rules: Semantics
) -> NamedGroups:
    """Return the named groups of a request over a fleet. Cost: as for the unnamed group.

    :raises InvalidInput: for an amount that is not stored as one count
    :raises NotFound: for a tree that does not exist
    """
    alike: dict[tuple[Any, frozenset[int]], list[RequestGroup]] = {}
    for group in request.named:
        sets = enumerate(request.same_subtree)
        subtrees = frozenset(number for number, suffixes in sets if group.suffix in suffixes)
        alike.setdefault((group.definition, subtrees), []).append(group)
    kinds = [_kind(fleet, groups, subtrees, compiler) for (_, subtrees), groups in alike.items()]
    return NamedGroups(fleet, rules, tuple(kinds), request.isolates, len(request.same_subtree))


def _kind(
    fleet: Fleet,
    groups: Sequence[RequestGroup],
    subtrees: frozenset[int],
    compiler: EligibilityCompiler,
) -> GroupKind:
    conditions = list(compiler.of_group(groups[0]).of_each)
    amounts = [ClassAmount(name, fleet.rows(name), n) for name, n in _counts(groups[0])]
    for name, _, _ in amounts:
        conditions += compiler.of_class(groups[0], name)
    eligible = eligible_for(fleet, conditions)
    provides = eligible.copy()
    for amount in amounts:
        provides &= having(fleet, amount.rows, amount.sources)
    return GroupKind(
        fleet=fleet,
        group=groups[0],
        suffixes=tuple(group.suffix for group in groups),
        amounts=tuple(amounts),
        conditions=tuple(conditions),
        eligible=eligible,
        provides=provides,
        subtrees=subtrees,
    )


def _counts(group: RequestGroup) -> Iterator[tuple[str, int]]:
    """Yield the amount of each class of a group."""
    counts = {
        count.resource_class: count.amount
        for count in group.counts
        if count.requested is not None and not count.units
    }
    for name, amount in group.resources.by_name():
        if name not in counts:
            raise exceptions.InvalidInput(
                "kind of amount",
                f"group {group.suffix}: {name}",
                amount,
                "one that is stored as one count",
            )
        yield name, counts[name]
