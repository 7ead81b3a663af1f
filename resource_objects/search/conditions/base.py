"""By whose rules a request is read: the compatibility table, one field per row.

Nothing in the search asks *whose* rules apply, only what a row says; so each row can be seen, and
tested, by itself. Rows in which both columns agree, because the rule of Placement is right or is a
bug that nobody wants back, are no fields; ``doc/source/explanation/compatibility.rst`` tells all.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from resource_objects import exceptions
from resource_objects.reasons import Reason, Rule
from resource_objects.requests import Request, RequestGroup
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.fleet import ClassRows, Fleet


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


def trees_of(fleet: Fleet, rows: ClassRows, own: Booleans, pooled: Booleans) -> Booleans:
    """Return the trees of some inventories of a class, and those linked to pools of others."""
    found = np.zeros(len(fleet.hosts), dtype=np.bool_)
    found[rows.tree[own]] = True
    pools = rows.provider[pooled]
    return found | fleet.pools.linked_to(pools, len(found)) if len(pools) else found


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
    #: who of them may give it, to its own tree and to others: parallel to them; None: everybody
    may: tuple[Booleans, Booleans] | None = None
    together: Booleans | None = None  #: of which of them a tree may give it in parts


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """One host while its reasons are collected."""

    tree: int
    #: by the condition of each class: who may give it where the required traits are had, as bits
    sources: Mapping[Condition, int]
    told: dict[Condition, list[Reason]]  #: of the conditions so far


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Told:
    """Reasons of one rule, of many hosts at once: what :class:`.Reason` has of one, as arrays.

    ``tree`` ascends, each once. Figures and ``where`` (providers; None: the hosts themselves) are
    parallel to it. Who holds it is told of ``inventories``, those of each host together; ``starts``
    says where the ones of each begin. None: of nobody.
    """

    rule: Rule
    tree: Integers
    requested: int
    bound: Integers | int = 0
    used: Integers | int = 0
    resource: str | None = None
    where: Integers | None = None
    trait: str | None = None
    unit: str | None = None
    group: str | None = None
    inventories: Integers | None = None  #: by number
    starts: Integers | None = None
    counts_providers: bool = False  #: told is at how many providers somebody holds some of these
    demands: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What hosts with such reasons are counted by."""
        return label_of(self.rule, self.resource, self.trait, None)

    def reasons(self, fleet: Fleet) -> Iterator[tuple[int, Reason]]:
        """Yield the trees with their reasons. Cost: some 5 microseconds each."""
        trees = self.tree.tolist()
        names = fleet.hosts if self.where is None else fleet.names
        at = trees if self.where is None else self.where.tolist()
        bounds, useds = (
            itertools.repeat(one) if isinstance(one, int) else one.tolist()
            for one in (self.bound, self.used)
        )
        held: Iterable[tuple[tuple[str, int], ...]] = itertools.repeat(())
        if self.inventories is not None and self.starts is not None:
            told = fleet.there_of_each if self.counts_providers else fleet.holders_of_each
            held = told(self.inventories, self.starts)
        for tree, place, bound, used, holders in zip(trees, at, bounds, useds, held, strict=False):
            yield (
                tree,
                Reason(
                    self.rule,
                    self.requested,
                    bound,
                    used,
                    self.resource,
                    names[place],
                    holders,
                    self.trait,
                    self.unit,
                    None,
                    None,
                    self.group,
                    demands=self.demands,
                ),
            )


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


class Telling(NamedTuple):
    """What arrays tell of why hosts fail a condition.

    Where they cannot tell, because it takes a decision or a look at what is shared, it is ``open``:
    :meth:`Condition.reasons` tells it, host by host. What both tell is the same; a test compares
    them.
    """

    told: list[Told]
    open: Booleans  #: by tree


class Condition(Protocol):
    """What is asked of a host: rules hosts out, is decided on one, and says why it fails."""

    @property
    def rule(self) -> Rule:
        """What fails where it is not met, in short."""

    def mask(self) -> Booleans:
        """Return, by tree, False where it is surely not met. Cost: some passes over arrays."""

    def cuts(self) -> Iterable[Cut]:
        """Return what each part of it leaves of the hosts, in order."""

    def reasons(self, host: Partial) -> list[Reason]:
        """Return the figures by which a host does not meet it; nothing if it does.

        A condition on several things at once says nothing of what failed by itself already.
        """


class HostFilter(Condition, Protocol):
    """A condition that others bring, such as a scheduler's filter.

    What it would have to ask host by host it says of those alone that everything else leaves.
    """

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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Qualification:
    """Who meets one condition on who gives: flags by provider, or of the hosts by tree."""

    rule: Rule  #: that fails where it is not met
    label: str  #: the trait, aggregate or provider it is about
    own: Booleans  #: giving to its own tree
    pooled: Booleans  #: giving to another tree

    def negated(self) -> tuple[Booleans, Booleans]:
        """Return who does not meet it."""
        return ~self.own, ~self.pooled


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
            each.append(Qualification(Rule.OTHER_TREE, group.in_tree, inside, inside))
        needed = [self.having((trait,), itself_only) for trait in sorted(group.required)]
        needed += [self.having(some, itself_only) for some in group.any_of]
        if group.suffix:
            return Qualifications((*each, *needed), ())
        return Qualifications(tuple(each), tuple(needed))

    def of_host(self, group: RequestGroup) -> Iterator[Qualification]:
        """Yield what the unnamed group's conditions ask of the host, as flags by tree.

        By Placement's rules a root that must not be a member rules out pools as well, and what is
        to come of a tree has it as its host.
        """
        fleet, rules = self._fleet, self._rules
        if rules.root_keeps_pools_out:
            for name in sorted(group.not_member_of):
                met = ~fleet.having(fleet.aggregates, (name,))[fleet.tops]
                yield Qualification(Rule.AGGREGATE_FORBIDDEN, name, met, met)
        if rules.in_tree_is_host and group.in_tree is not None:
            met = np.arange(len(fleet.hosts)) == self._tree(group.in_tree)
            yield Qualification(Rule.OTHER_TREE, group.in_tree, met, met)

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
        return Qualification(Rule.TRAIT_MISSING, " or ".join(told), own, itself)

    def lacking(self, trait: str, itself_only: bool = False) -> Qualification:
        """Return who has not a trait."""
        own, pooled = self.having((trait,), itself_only).negated()
        return Qualification(Rule.TRAIT_FORBIDDEN, trait, own, pooled)

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
            own, pooled = found.negated()
            yield dataclasses.replace(found, own=own, pooled=pooled)

    def _members(
        self, rule: Rule, label: str, itself: Booleans, reaches: tuple[Reach, Reach]
    ) -> Qualification:
        own, pooled = (self._reached(itself, reach) for reach in reaches)
        return Qualification(rule, label, own, pooled)

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

    def of_root(self, required: Iterable[str], forbidden: Iterable[str]) -> Iterator[Qualification]:
        """Yield the conditions on the roots themselves: flags by tree."""
        fleet = self._fleet
        for rule, traits in (
            (Rule.ROOT_TRAIT_MISSING, required),
            (Rule.ROOT_TRAIT_FORBIDDEN, forbidden),
        ):
            for trait in sorted(traits):
                has = fleet.having(fleet.traits, (trait,))[fleet.tops]
                met = has if rule is Rule.ROOT_TRAIT_MISSING else ~has
                yield Qualification(rule, trait, met, met)


def met(conditions: Iterable[Qualification], providers: int) -> tuple[Booleans, Booleans]:
    """Return who meets all of some conditions: giving to its own tree, and to another."""
    own, pooled = np.ones(providers, dtype=np.bool_), np.ones(providers, dtype=np.bool_)
    for one in conditions:
        own &= one.own
        pooled &= one.pooled
    return own, pooled


# --- reasons ------------------------------------------------------------------------------------


def sums(values: Any, tree: Integers, trees: int) -> Integers:
    """Return the sum of some values for each tree, exactly."""
    found = np.zeros(trees, dtype=np.int64)
    np.add.at(found, tree, values)
    return found


def told_unmet(
    rule: Rule, label: str, trees: Booleans, amount: int, resource_class: str | None
) -> Told:
    """Return :func:`unmet` of some trees."""
    is_trait = rule in _OF_TRAITS
    return Told(
        rule,
        np.flatnonzero(trees),
        amount,
        resource=resource_class,
        trait=label if is_trait else None,
        unit=None if is_trait else label,
    )


#: The rules that are about a trait; what others are about is a name of another kind.
_OF_TRAITS = frozenset(
    {
        Rule.TRAIT_MISSING,
        Rule.TRAIT_FORBIDDEN,
        Rule.ROOT_TRAIT_MISSING,
        Rule.ROOT_TRAIT_FORBIDDEN,
    }
)
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
    if rule in _OF_TRAITS:
        return Reason(rule, amount, 0, 0, resource_class, host, trait=label)
    return Reason(rule, amount, 0, 0, resource_class, host, unit=label)
