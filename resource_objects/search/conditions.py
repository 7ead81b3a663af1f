"""The conditions of a group on who gives, laid over a fleet.

A provider meets a condition or not, and it may matter to whom it gives: its own tree, or as a pool
another one. What counts for it besides itself (the providers above, its root) is by the rules of
the request (:mod:`.semantics`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from resource_objects import exceptions
from resource_objects.exceptions import Rule
from resource_objects.requests import RequestGroup
from resource_objects.search.arrays import Booleans
from resource_objects.search.fleet import Fleet
from resource_objects.search.semantics import Reach, Semantics


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """Who meets one condition: flags by provider."""

    rule: Rule  #: that fails where it is not met
    label: str  #: the trait, aggregate or provider it is about
    own: Booleans  #: giving to its own tree
    pooled: Booleans  #: giving to another tree

    def negated(self) -> tuple[Booleans, Booleans]:
        """Return who does not meet it."""
        return ~self.own, ~self.pooled


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Conditions:
    """The conditions of one group."""

    each: tuple[Condition, ...]  #: met by everybody who gives
    some: tuple[Condition, ...]  #: each met by all who give some class


class Laying:
    """How conditions are laid over a fleet by some rules."""

    def __init__(self, fleet: Fleet, rules: Semantics) -> None:
        self._fleet = fleet
        self._rules = rules

    def of_group(self, group: RequestGroup) -> Conditions:
        """Return the conditions of a group. Cost: a pass over the providers for each.

        A group that asks for nothing stands for a provider itself: what is above it does not count.

        :raises ProviderNotFound: for a tree that is not there, if the rules refuse that
        """
        itself_only = not group.resources
        each = [self.lacking(trait, itself_only) for trait in sorted(group.forbidden)]
        each += self._of_aggregates(group, self._reaches(group))
        if group.in_tree is not None:
            inside = self._fleet.tree == self._tree(group.in_tree)
            each.append(Condition(Rule.OTHER_TREE, group.in_tree, inside, inside))
        needed = [self.having((trait,), itself_only) for trait in sorted(group.required)]
        needed += [self.having(some, itself_only) for some in group.any_of]
        if group.suffix:
            return Conditions((*each, *needed), ())
        return Conditions(tuple(each), tuple(needed))

    def of_host(self, group: RequestGroup) -> Iterator[Condition]:
        """Yield what the unnamed group's conditions ask of the host, as flags by tree.

        By Placement's rules a root that must not be a member rules out pools as well, and what is
        to come of a tree has it as its host.
        """
        fleet, rules = self._fleet, self._rules
        if rules.root_keeps_pools_out:
            for name in sorted(group.not_member_of):
                met = ~fleet.having(fleet.aggregates, (name,))[fleet.tops]
                yield Condition(Rule.AGGREGATE_FORBIDDEN, name, met, met)
        if rules.in_tree_is_host and group.in_tree is not None:
            met = np.arange(len(fleet.hosts)) == self._tree(group.in_tree)
            yield Condition(Rule.OTHER_TREE, group.in_tree, met, met)

    def of_class(self, group: RequestGroup, resource_class: str) -> Iterator[Condition]:
        """Yield what else who gives a class must meet."""
        for name, required, forbidden in group.traits_of:
            if name == resource_class:
                yield from (self.having((trait,)) for trait in sorted(required))
                yield from (self.lacking(trait) for trait in sorted(forbidden))

    def having(self, traits: Iterable[str], itself_only: bool = False) -> Condition:
        """Return who has one of some traits."""
        told = tuple(sorted(traits))
        itself = self._fleet.having(self._fleet.traits, told)
        inherits = self._rules.inherits_traits and not itself_only
        own = self._fleet.below(itself) if inherits else itself
        return Condition(Rule.TRAIT_MISSING, " or ".join(told), own, itself)

    def lacking(self, trait: str, itself_only: bool = False) -> Condition:
        """Return who has not a trait."""
        own, pooled = self.having((trait,), itself_only).negated()
        return Condition(Rule.TRAIT_FORBIDDEN, trait, own, pooled)

    def _reaches(self, group: RequestGroup) -> tuple[Reach, Reach]:
        """Return whose aggregates count for who gives to its own tree, and to another."""
        if not group.resources and group.suffix:
            return Reach.ITSELF, Reach.ITSELF
        rules = self._rules
        return rules.named_reach if group.suffix else rules.unnamed_reach, rules.pool_reach

    def _of_aggregates(
        self, group: RequestGroup, reaches: tuple[Reach, Reach]
    ) -> Iterator[Condition]:
        fleet = self._fleet
        together = [fleet.having(fleet.aggregates, some) for some in group.member_of]
        if together and self._rules.members_at_once and not group.suffix:
            label = ", ".join(" or ".join(sorted(some)) for some in group.member_of)
            every = np.logical_and.reduce(together)
            yield self._members(Rule.AGGREGATE_MISSING, label, every, reaches)
        else:
            for some, itself in zip(group.member_of, together, strict=True):
                label = " or ".join(sorted(some))
                yield self._members(Rule.AGGREGATE_MISSING, label, itself, reaches)
        for name in sorted(group.not_member_of):
            itself = fleet.having(fleet.aggregates, (name,))
            found = self._members(Rule.AGGREGATE_FORBIDDEN, name, itself, reaches)
            own, pooled = found.negated()
            yield dataclasses.replace(found, own=own, pooled=pooled)

    def _members(
        self, rule: Rule, label: str, itself: Booleans, reaches: tuple[Reach, Reach]
    ) -> Condition:
        own, pooled = (self._reached(itself, reach) for reach in reaches)
        return Condition(rule, label, own, pooled)

    def _reached(self, itself: Booleans, reach: Reach) -> Booleans:
        if reach is Reach.ITSELF:
            return itself
        if reach is Reach.ABOVE:
            return self._fleet.below(itself)
        return itself | itself[self._fleet.tops][self._fleet.tree]

    def _tree(self, key: str) -> int:
        """Return the tree of a provider, -1 if it is not there and that is no error."""
        place = self._fleet.place_of(key)
        if place is not None:
            return self._fleet.true_tree(place)
        if self._rules.refuses_unknown_trees:
            raise exceptions.ProviderNotFound(key)
        return -1

    def of_root(self, required: Iterable[str], forbidden: Iterable[str]) -> Iterator[Condition]:
        """Yield the conditions on the roots themselves: flags by tree."""
        fleet = self._fleet
        for rule, traits in (
            (Rule.ROOT_TRAIT_MISSING, required),
            (Rule.ROOT_TRAIT_FORBIDDEN, forbidden),
        ):
            for trait in sorted(traits):
                has = fleet.having(fleet.traits, (trait,))[fleet.tops]
                met = has if rule is Rule.ROOT_TRAIT_MISSING else ~has
                yield Condition(rule, trait, met, met)


def met(conditions: Iterable[Condition], providers: int) -> tuple[Booleans, Booleans]:
    """Return who meets all of some conditions: giving to its own tree, and to another."""
    own, pooled = np.ones(providers, dtype=np.bool_), np.ones(providers, dtype=np.bool_)
    for one in conditions:
        own &= one.own
        pooled &= one.pooled
    return own, pooled
