"""By whose rules a request is read: the compatibility table, one field per row.

Nothing in the search asks *whose* rules apply, only what a row says; so each row can be seen, and
tested, by itself. Rows in which both columns agree, because the rule of Placement is right or is a
bug that nobody wants back, are no fields; ``doc/source/explanation/compatibility.rst`` tells all.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from resource_objects import exceptions
from resource_objects.reasons import Reason, Rule
from resource_objects.requests import Request, RequestGroup
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.fleet import ClassRows, Fleet

if TYPE_CHECKING:
    from resource_objects.search.findings import Findings


class Reach(enum.Enum):
    """The providers whose aggregates apply to a provider."""

    ITSELF = "its own"
    ROOT = "its own, and those of its root"
    ABOVE = "its own, and those of its ancestors"


@dataclasses.dataclass(frozen=True, slots=True)
class Semantics:
    """The rules by which a request is read."""

    #: a count of the unnamed group may be given by several devices of a tree
    splits_devices: bool
    #: a host's own providers have the traits of those above them too
    inherits_traits: bool
    #: aggregates of a provider, for the unnamed group
    unnamed_reach: Reach
    #: aggregates of a provider, for a named group
    named_reach: Reach
    #: aggregates of a pool that gives to another tree
    pool_reach: Reach
    #: where the unnamed group has to be in several aggregates, one provider is in all of them: who
    #: gives, or one that counts for it
    members_at_once: bool
    #: an aggregate that the unnamed group must not be in keeps away the pools of a root that is
    root_keeps_pools_out: bool
    #: the tree that the unnamed group has to be of is the host
    in_tree_is_host: bool
    #: what is found has a host that gives something itself
    host_gives: bool
    #: who says how near devices have to be asks for host cells too; else it means nothing
    affinity_needs_cells: bool
    #: a tree that is named and not there is an error, not an empty answer
    refuses_unknown_trees: bool
    #: candidates per host unless told otherwise; None for all
    per_host: int | None


#: What requests made in Python have.
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

#: What requests in the words of Placement or Nova have: its rules, less its bugs.
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


def pools_of(fleet: Fleet, rules: Semantics, tree: int) -> list[int]:
    """Return the pools of other trees that may give to a tree; by our rules none to a pool's."""
    if rules.host_gives and tree in fleet.pools.trees:
        return []
    return [pool for pool in fleet.pools.of_tree(tree) if int(fleet.tree[pool]) != tree]


def trees_of(fleet: Fleet, provider: Integers, provides: Booleans) -> Booleans:
    """Return the trees that some providers, or their inventories, can provide to.

    :param provider: of each
    :param provides: by role (see :class:`Qualification`) and provider or inventory
    """
    found = np.zeros(len(fleet.hosts), dtype=np.bool_)
    found[fleet.tree[provider[provides[OWN]]]] = True
    if len(provides) > 1 and len(pools := provider[provides[POOL]]):
        found |= fleet.pools.linked_to(pools, len(found))
    return found


# --- conditions ---------------------------------------------------------------------------------
# What a request asks of a host is a list of conditions (``problem.Problem.conditions``). The
# prefilter, the stages and the explanation walk that list; none knows what a condition is about.


class Cut(NamedTuple):
    """What one part of a condition leaves of the hosts, for the stages of an explanation."""

    passing: Booleans  #: by tree
    rule: Rule
    group: str | None = None  #: suffixes of the groups it is about, "" for the unnamed one
    resource: str | None = None
    label: str | None = None  #: the trait, aggregate or provider it is about
    words: str = ""  #: the conditions on who gives, this one and those before it
    amount: int | None = None  #: how much is asked for
    rows: ClassRows | None = None  #: of whose inventories the most free is told
    may: Booleans | None = None  #: by role, which of them may provide it; None: all
    together: Booleans | None = None  #: of which of them a tree may give it in parts


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """One host while its reasons are collected."""

    tree: int
    #: by the condition of each class: who may give it where the required traits are had, as bits
    sources: Mapping[Condition, int]
    told: Mapping[Condition, bool]  #: of the conditions so far, whether it has reasons by them


def label_of(rule: Rule, resource: str | None, trait: str | None, filter: str | None) -> str:
    """Return what hosts that fail by some rule are counted by."""
    match rule:
        case Rule.TRAIT_MISSING:
            return f"{resource} with {trait}"
        case Rule.TRAIT_FORBIDDEN:
            return f"{resource} without {trait}"
    if resource is None:  # about the host, or about groups as a whole
        return " ".join(one for one in (rule.value, filter or trait) if one)
    return resource


class Condition(Protocol):
    """A condition on hosts: as a filter over the fleet, as stages, and as reasons."""

    @property
    def rule(self) -> Rule:
        """The rule that fails where it is not met."""

    def mask(self) -> Booleans:
        """Return, by tree, False where it is surely not met. Cost: some passes over arrays."""

    def cuts(self) -> Iterable[Cut]:
        """Return what each part of it leaves of the hosts, in order."""

    def find(self, findings: Findings, hosts: Booleans) -> None:
        """Add the reasons by which some hosts do not meet it.

        A condition on several parts adds nothing where a part failed already.
        """


class HostFilter(Condition, Protocol):
    """A condition of a caller, such as a scheduler's filter."""

    def among(self, trees: Integers) -> Booleans:
        """Return which of some hosts meet it: exactly, parallel to these."""

    def holds(self, tree: int) -> bool:
        """Return whether a host meets it."""


#: Lays a condition that others bring over a fleet, for a request: once for each search.
LaysFilter: TypeAlias = Callable[[Fleet, Request], HostFilter]


# --- who gives ----------------------------------------------------------------------------------
# The conditions of a group on who gives, laid over a fleet.
#
# A provider meets a condition or not, and it may matter to whom it gives: its own tree, or as a
# pool another one. What counts for it besides itself (the providers above, its root) is by the
# rules of the request (:class:`Semantics`).


#: The roles of a provider: it provides to its own tree, or as a pool to other trees.
OWN, POOL = 0, 1


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Qualification:
    """A condition on providers.

    Flags of providers and inventories have a row for each role: :data:`OWN`, and :data:`POOL` where
    there are pools.
    """

    rule: Rule  #: that fails where it is not met
    label: str  #: the trait, aggregate or provider it is about
    met: Booleans  #: by role and provider


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Qualifications:
    """The conditions of one group on who gives."""

    each: tuple[Qualification, ...]  #: met by everybody who gives
    some: tuple[Qualification, ...]  #: each met by all who give some class


class Laying:
    """How conditions are laid over a fleet by some rules."""

    def __init__(
        self, fleet: Fleet, rules: Semantics, always: Sequence[Qualification] = ()
    ) -> None:
        """:param always: what is asked of everybody who gives, whatever the request says"""
        self._fleet = fleet
        self._rules = rules
        self._always = tuple(always)
        self._roles = roles_of(fleet)

    def of_group(self, group: RequestGroup) -> Qualifications:
        """Return the conditions of a group. Cost: a pass over the providers for each.

        A group that asks for nothing stands for a provider itself: what is above it does not count.

        :raises NotFound: for a tree that is not there, if the rules refuse that
        """
        itself_only = not group.resources
        each = [*self._always]
        each += [self.lacking(trait, itself_only) for trait in sorted(group.forbidden)]
        each += self._of_aggregates(group, self._reaches(group))
        if group.in_tree is not None:
            inside = self._fleet.tree == self._tree(group.in_tree)
            met = np.stack([inside] * self._roles)
            each.append(Qualification(Rule.OTHER_TREE, group.in_tree, met))
        needed = [self.having((trait,), itself_only) for trait in sorted(group.required)]
        needed += [self.having(some, itself_only) for some in group.any_of]
        if group.suffix:
            return Qualifications((*each, *needed), ())
        return Qualifications(tuple(each), tuple(needed))

    def of_host(self, group: RequestGroup) -> Iterator[tuple[Rule, str, Booleans]]:
        """Yield what the unnamed group's conditions ask of the host, with flags by tree.

        By Placement's rules a root that must not be a member rules out pools as well, and what is
        to come of a tree has it as its host.
        """
        fleet, rules = self._fleet, self._rules
        if rules.root_keeps_pools_out:
            for name in sorted(group.not_member_of):
                met = ~fleet.having(fleet.aggregates, (name,))[fleet.tops]
                yield Rule.AGGREGATE_FORBIDDEN, name, met
        if rules.in_tree_is_host and group.in_tree is not None:
            met = np.arange(len(fleet.hosts)) == self._tree(group.in_tree)
            yield Rule.OTHER_TREE, group.in_tree, met

    def of_class(self, group: RequestGroup, resource_class: str) -> Iterator[Qualification]:
        """Yield what else who gives a class must meet."""
        for name, required, forbidden in group.traits_of:
            if name == resource_class:
                yield from (self.having((trait,)) for trait in sorted(required))
                yield from (self.lacking(trait) for trait in sorted(forbidden))

    def having(self, traits: Iterable[str], itself_only: bool = False) -> Qualification:
        """Return who has one of some traits."""
        told = tuple(sorted(traits))
        itself = self._fleet.having(self._fleet.traits, told)
        inherits = self._rules.inherits_traits and not itself_only
        own = self._fleet.below(itself) if inherits else itself
        met = np.stack((own, itself)[: self._roles])
        return Qualification(Rule.TRAIT_MISSING, " or ".join(told), met)

    def lacking(self, trait: str, itself_only: bool = False) -> Qualification:
        """Return who has not a trait."""
        return Qualification(Rule.TRAIT_FORBIDDEN, trait, ~self.having((trait,), itself_only).met)

    def _reaches(self, group: RequestGroup) -> tuple[Reach, Reach]:
        """Return whose aggregates count for who gives to its own tree, and to another."""
        if not group.resources and group.suffix:
            return Reach.ITSELF, Reach.ITSELF
        rules = self._rules
        return rules.named_reach if group.suffix else rules.unnamed_reach, rules.pool_reach

    def _of_aggregates(
        self, group: RequestGroup, reaches: tuple[Reach, Reach]
    ) -> Iterator[Qualification]:
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
            yield dataclasses.replace(found, met=~found.met)

    def _members(
        self, rule: Rule, label: str, itself: Booleans, reaches: tuple[Reach, Reach]
    ) -> Qualification:
        met = [self._reached(itself, reach) for reach in reaches[: self._roles]]
        return Qualification(rule, label, np.stack(met))

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
            raise exceptions.NotFound("provider", key)
        return -1

    def of_root(
        self, required: Iterable[str], forbidden: Iterable[str]
    ) -> Iterator[tuple[Rule, str, Booleans]]:
        """Yield the conditions on the roots themselves, with flags by tree."""
        fleet = self._fleet
        for rule, traits in (
            (Rule.ROOT_TRAIT_MISSING, required),
            (Rule.ROOT_TRAIT_FORBIDDEN, forbidden),
        ):
            for trait in sorted(traits):
                has = fleet.having(fleet.traits, (trait,))[fleet.tops]
                yield rule, trait, has if rule is Rule.ROOT_TRAIT_MISSING else ~has


def roles_of(fleet: Fleet) -> int:
    """Return the number of roles that providers can have."""
    return 2 if fleet.pools else 1


def met(fleet: Fleet, conditions: Iterable[Qualification]) -> Booleans:
    """Return, by role and provider, who meets all of some conditions."""
    found = np.ones((roles_of(fleet), len(fleet.names)), dtype=np.bool_)
    for condition in conditions:
        found &= condition.met
    return found


# --- reasons ------------------------------------------------------------------------------------


def sums(values: Any, tree: Integers, trees: int) -> Integers:
    """Return the sum of some values for each tree, exactly."""
    found = np.zeros(trees, dtype=np.int64)
    np.add.at(found, tree, values)
    return found


#: The rules that are about a trait; what others are about is a name of another kind.
_OF_TRAITS = frozenset(
    {
        Rule.TRAIT_MISSING,
        Rule.TRAIT_FORBIDDEN,
        Rule.ROOT_TRAIT_MISSING,
        Rule.ROOT_TRAIT_FORBIDDEN,
    }
)


def is_about_trait(rule: Rule) -> bool:
    """Return whether the label of a condition is a trait."""
    return rule in _OF_TRAITS


#: What is asked by a condition, in words.
_WORDS = {
    Rule.TRAIT_MISSING: "with",
    Rule.TRAIT_FORBIDDEN: "without",
    Rule.AGGREGATE_MISSING: "in",
    Rule.AGGREGATE_FORBIDDEN: "outside",
    Rule.OTHER_TREE: "of the tree of",
    Rule.DISABLED: "in service",
}


def excluded(
    conditions: Sequence[tuple[Rule, str]],
    flags: Sequence[Booleans],
    amount: int,
    resource_class: str,
    host: str,
) -> list[Reason]:
    """Return what leaves nobody to give a class: nothing if the conditions leave somebody.

    Told is each condition that nobody meets. Where each is met by somebody, they exclude each
    other: then those without which somebody would be left are one reason.

    :param flags: by condition, who does not meet it
    """
    alone = [one for one, some in zip(conditions, flags, strict=True) if some.all()]
    if alone:
        return [unmet(rule, label, amount, resource_class, host) for rule, label in alone]
    needed = [number for number, some in enumerate(flags) if some.any()]
    if not needed or not np.logical_or.reduce([flags[n] for n in needed]).all():
        return []
    for number in tuple(needed):
        rest = [other for other in needed if other != number]
        if np.logical_or.reduce([flags[n] for n in rest]).all():
            needed = rest
    words = in_words(conditions[n] for n in needed)
    return [Reason(Rule.CONDITIONS, amount, 0, 0, resource_class, host, unit=words)]


def in_words(conditions: Iterable[tuple[Rule, str]]) -> str:
    """Return conditions on who gives in words.

    >>> in_words([(Rule.TRAIT_MISSING, "CUSTOM_A"), (Rule.AGGREGATE_MISSING, "rack1")])
    'with CUSTOM_A in rack1'
    """
    parts = (part for rule, label in conditions for part in (_WORDS[rule], label))
    return " ".join(filter(None, parts))


def unmet(rule: Rule, label: str, amount: int, resource_class: str | None, host: str) -> Reason:
    """Return a reason about one condition that nobody meets."""
    if is_about_trait(rule):
        return Reason(rule, amount, 0, 0, resource_class, host, trait=label)
    return Reason(rule, amount, 0, 0, resource_class, host, unit=label)
