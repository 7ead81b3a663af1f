"""The rules by which a request is read, and the providers that are eligible for its groups.

The search asks only for the value of a rule, never whose rules apply, so each rule can be tested
individually. A rule on which both columns agree is no field;
``doc/source/explanation/compatibility.rst`` lists all of them.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from resource_objects import exceptions
from resource_objects.reasons import Rule
from resource_objects.requests import Request, RequestGroup
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.fleet import Fleet


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
