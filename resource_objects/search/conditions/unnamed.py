"""The unnamed group as a whole: the required traits, shared inventories, and the joint decision.

Each class and placed amount of the group is a condition of its own. Here are the conditions on
several of them (:class:`UnnamedGroup`).

A class answers for a required trait if all providers of the class have it. Which class answers for
which trait is a choice, so all traits are one condition. If only one class can answer for a trait,
its sources are those with the trait (:meth:`UnnamedGroup.narrow`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.search.arrays import Booleans, Integers, integers
from resource_objects.search.conditions.amounts import ClassCondition
from resource_objects.search.conditions.located import LocatedCondition, Refusal
from resource_objects.search.conditions.shortage import overdrawn
from resource_objects.search.demands import LocatedTreeDemand, TreeDemand, bits
from resource_objects.search.eligibility import OWN, Semantics
from resource_objects.search.findings import (
    Check,
    Condition,
    Findings,
    HostContext,
    HostSet,
    in_words,
)
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.tree_solver import may_provide


@dataclasses.dataclass(frozen=True, eq=False)
class UnnamedGroup:
    """The unnamed group of a request over a fleet."""

    fleet: Fleet
    rules: Semantics
    classes: tuple[ClassCondition, ...]  #: each class that is requested as a count
    located: tuple[LocatedCondition, ...]  #: each placed amount
    required: tuple[str, ...]  #: the traits of which some class has to answer for each
    _blamed: dict[int, int] = dataclasses.field(default_factory=dict, init=False)

    @property
    def parts(self) -> tuple[ClassCondition | LocatedCondition, ...]:
        """The classes, then the placed amounts."""
        return (*self.classes, *self.located)

    def on_tree(self, tree: int, traits: int) -> tuple[list[TreeDemand], list[LocatedTreeDemand]]:
        """Return the counts and the placed amounts on one tree, with the first required traits."""
        counts = [condition.of_tree(tree).with_traits(traits) for condition in self.classes]
        return counts, [condition.of_tree(tree).with_traits(traits) for condition in self.located]

    def may_fit(self, tree: int, traits: int | None = None) -> bool:
        """Return whether a tree provides it, or the decision takes too long.

        :param traits: only this number of the required traits; None: all
        """
        count = len(self.required) if traits is None else traits
        return may_provide(self.fleet, tree, *self.on_tree(tree, count))

    # --- which class answers for which trait ---

    def always_has_traits(self) -> Booleans | None:
        """Return the trees with each required trait whichever inventories are used; None: all."""
        result: Booleans | None = None
        for trait in range(len(self.required)):
            of_trees = [condition for condition in self.classes if not condition.has_pools]
            if any(condition.all_have[trait] for condition in of_trees):
                continue
            has_trait = np.zeros(len(self.fleet.hosts), dtype=np.bool_)
            for condition in of_trees:
                lacks = np.zeros_like(has_trait)
                is_without = (condition.allowed & ~condition.has_required[trait])[OWN]
                lacks[condition.rows.tree[is_without]] = True
                has_trait |= ~lacks
            result = has_trait if result is None else result & has_trait
        return result

    def sources(self, tree: int) -> dict[Condition, int]:
        """Return, by class, the sources on one tree that may provide it, as bits."""
        findings = Findings(HostSet(self.fleet, self.rules, integers([tree])), decides=True)
        self.narrow(findings)
        return {
            condition: bits(flags.tolist()) for condition, (_, flags) in findings.sources.items()
        }

    def narrow(self, findings: Findings) -> None:
        """Set the sources of each class, with the traits that only they can answer for.

        Set also the traits that no source has, each with the number of a class and the hosts; and
        the hosts on which several classes may answer for a trait, or the only class with it loses
        all of its sources by it.
        """
        hosts, parts = findings.hosts, self.parts
        sources = [condition.sources_on(hosts) for condition in parts]
        may_provide = [of_class.allowed for of_class in sources]
        missing: list[tuple[int, int, Booleans]] = []
        is_open = hosts.none()
        for trait in range(len(self.required)):
            has_trait = [
                hosts.any(of_class.pairs.host[of_class.allowed & of_class.has_required[trait]])
                for of_class in sources
            ]
            owners = np.sum(has_trait, axis=0)
            is_open |= owners > 1
            missing.append((trait, self.blamed(trait), owners == 0))
            for number, of_class in enumerate(sources):
                is_only = has_trait[number] & (owners == 1)
                host = of_class.pairs.host
                remaining = may_provide[number] & (of_class.has_required[trait] | ~is_only[host])
                is_lost = is_only & ~hosts.any(host[remaining])
                is_open |= is_lost
                missing.append((trait, number, is_lost))
                may_provide[number] = np.where(is_lost[host], may_provide[number], remaining)
        pairs = zip(sources, may_provide, strict=True)
        findings.sources = dict(zip(parts, pairs, strict=True))
        findings.missing_traits = [item for item in missing if item[2].any()], is_open

    def owners(self, tree: int, trait: int) -> list[tuple[int, int]]:
        """Return the classes of which some sources have a trait, with these as bits."""
        demands = [condition.of_tree(tree) for condition in self.parts]
        owners = [
            (n, demand.allowed & demand.with_trait[trait]) for n, demand in enumerate(demands)
        ]
        return [(number, sources) for number, sources in owners if sources]

    def missing(self, tree: int, trait: int, number: int) -> Reason:
        """Return the reason that a class lacks a trait."""
        return self.parts[number].lacks(tree, trait, self.required)

    def not_next_to(self, tree: int, trait: int) -> Reason:
        """Return the reason for a trait that no source has together with those before it."""
        owners = [number for number, _ in self.owners(tree, trait)]
        return self.missing(tree, trait, owners[0] if owners else self.blamed(trait))

    def blamed(self, trait: int) -> int:
        """Return the class that is named if no source of a tree has a trait.

        It is a class whose sources have the trait elsewhere, else one of devices, else the first.
        """
        if trait not in self._blamed:
            having, parts = self.fleet.traits.get(self.required[trait], ()), self.parts
            elsewhere = [np.isin(condition.providers, having).any() for condition in parts]
            devices = [condition.is_of_devices for condition in parts]
            named = next((flags for flags in (elsewhere, devices) if any(flags)), [True])
            self._blamed[trait] = [bool(flag) for flag in named].index(True)
        return self._blamed[trait]


@dataclasses.dataclass(frozen=True, eq=False)
class RequiredTraits(Condition):
    """Some class answers for each required trait."""

    group: UnnamedGroup

    rule = Rule.TRAIT_MISSING

    def checks(self) -> Iterator[Check]:
        """Yield all traits; then of each whether a source has it, and whether these have enough."""
        required, parts = self.group.required, self.group.parts
        answered = [self._answered(trait) for trait in range(len(required))]
        yield Check(np.logical_and.reduce(answered), Rule.TOGETHER)
        names = [condition.resource_class for condition in parts]
        for trait, label in enumerate(required):
            has_trait = [condition.trees_with_trait(trait) for condition in parts]
            name = names[0] if len(names) == 1 else None
            words = f"{' or '.join(names)} {self._in_words(label)}"
            yield Check(np.logical_or.reduce(has_trait), self.rule, "", name, label, words)
            able = [part for part, hosts in zip(parts, has_trait, strict=True) if hosts.any()]
            if len(able) == 1:
                yield able[0].check_of_trait(trait, label)._replace(passing=answered[trait])
            else:
                yield Check(answered[trait], Rule.CAPACITY, "", label=label, words=words)

    def _answered(self, trait: int) -> Booleans:
        """Return the hosts that seem to have enough of some class at sources with a trait."""
        enough = [condition.enough(trait) for condition in self.group.parts]
        answered: Booleans = np.logical_or.reduce(enough)
        return answered

    def _in_words(self, label: str) -> str:
        """Return a required trait in words, with the conditions on each provider."""
        conditions = {condition.requirements for condition in self.group.parts}
        common = conditions.pop() if len(conditions) == 1 else ()
        words = in_words([*common, (self.rule, label)])
        return f"{words} among those that may give" if conditions else words

    def find(self, findings: Findings, among: Booleans) -> None:
        """Add the traits that no source has, and what prevents those that have the others."""
        group, hosts, (missing, is_open) = self.group, findings.hosts, findings.missing_traits
        for trait, number, lacking in missing:
            condition = group.parts[number]
            sources, _ = findings.sources[condition]
            lacking = lacking & among & ~findings.without_provider[condition]
            has_trait = hosts.none()
            if isinstance(condition, ClassCondition):
                counts = ~condition.rows.is_part[sources.pairs.entry]
                has_trait = hosts.any(sources.pairs.host[counts & sources.has_required[trait]])
                of_trait = (self.rule, group.required[trait])
                amount, name = condition.amount, condition.resource_class
                findings.add_unmet(self, lacking & ~has_trait, of_trait, amount, name)
                lacking &= has_trait

            def lacks(host: int, trait: int = trait, number: int = number) -> list[Reason]:
                return [group.missing(int(hosts.trees[host]), trait, number)]

            findings.add_each(self, lacking, lacks)
        findings.add_each(self, among & is_open, functools.partial(self._of_several, findings))

    def _of_several(self, findings: Findings, host: int) -> Iterator[Reason]:
        """Yield what prevents each class that may answer for a trait, if that is all of them."""
        tree, parts = int(findings.hosts.trees[host]), self.group.parts
        for trait in range(len(self.group.required)):
            owners = self.group.owners(tree, trait)
            if not any(parts[number].can(tree, sources) for number, sources in owners):
                for number, sources in owners:
                    if not findings.failing[parts[number]][host]:
                        yield from parts[number].short(tree, sources)


@dataclasses.dataclass(frozen=True, eq=False)
class JointCapacity(Condition):
    """The classes and placed amounts fit together, each of which fits individually.

    Placed amounts may have to be near each other. Classes may use the same inventories through
    shares.
    """

    group: UnnamedGroup

    rule = Rule.CAPACITY

    def checks(self) -> Iterator[Check]:
        """Yield the hosts with enough where classes can only use one inventory."""
        group = self.group
        if group.fleet.has_shares:
            uses = [_shared_use(condition) for condition in group.classes]
            uses += [use for condition in group.located for use in condition.shared_demands()]
            yield Check(~exceeds_shared_capacity(group.fleet, uses), Rule.TOGETHER)

    def reasons(self, host: HostContext) -> list[Reason]:
        """Return why placed amounts do not fit near each other, or what is used too much."""
        tree, group = host.tree, self.group
        if len(group.located) > 1 and not any(map(host.fails, group.located)):
            reasons = Refusal(group.located, tree).reasons([*map(host.sources, group.located)])
            if reasons:
                return reasons
        counts = [c.of_tree(tree).with_traits(0) for c in group.classes if not host.fails(c)]
        placed = [c.of_tree(tree).with_traits(0) for c in group.located if not host.fails(c)]
        if not placed and not any(demand.shared_uses for demand in counts):
            return []
        if may_provide(group.fleet, tree, counts, placed):
            return []
        return overdrawn(group.fleet, tree, counts, placed)


@dataclasses.dataclass(frozen=True, eq=False)
class HostProvides(Condition):
    """A host provides something of the unnamed group itself, not only its pools."""

    group: UnnamedGroup

    rule = Rule.NOT_OWN

    def reasons(self, host: HostContext) -> list[Reason]:
        """Return why no provider of the tree itself provides anything, if only pools could."""
        if host.is_refused:
            return []
        reasons: list[Reason] = []
        for condition in self.group.classes:
            of_host = condition.of_tree(host.tree).own
            sources = host.sources(condition) & ((1 << of_host) - 1)
            if not sources:
                name, host_name = condition.resource_class, condition.fleet.hosts[host.tree]
                reasons.append(Reason(self.rule, condition.amount, 0, 0, name, host_name))
                continue
            short = condition.short(host.tree, sources)
            if not short:
                return []
            reasons += short
        return reasons


@dataclasses.dataclass(frozen=True, eq=False)
class JointDecision(Condition):
    """All of the unnamed group is provided, and a class answers for each required trait."""

    group: UnnamedGroup

    rule = Rule.TOGETHER

    def reasons(self, host: HostContext) -> list[Reason]:
        """Return, if nothing else fails, the first trait that excludes those before it."""
        if host.is_refused:
            return []
        group, count = self.group, len(self.group.required)
        for trait in range(count):
            if not group.may_fit(host.tree, trait + 1):
                return [group.not_next_to(host.tree, trait)]
        # the decision took too long: why the classes fail where each is provided as if alone
        reasons = overdrawn(group.fleet, host.tree, *group.on_tree(host.tree, 0))
        if not reasons and count:
            return [group.not_next_to(host.tree, count - 1)]
        return reasons or list(self._few_units(host.tree))

    def _few_units(self, tree: int) -> Iterator[Reason]:
        """Yield the classes with enough free by count, and too few units."""
        fleet = self.group.fleet
        for condition in self.group.classes:
            name, numbers = condition.resource_class, condition.of_tree(tree).numbers
            places = {int(fleet.inventories.provider[number]) for number in numbers}
            if any(fleet.device_resource(place, name) for place in places):
                yield Reason(Rule.INVALID, condition.amount, 0, 0, name, fleet.hosts[tree])


# --- shared capacity ----------------------------------------------------------------------------

#: The requested amount of a class, and the inventories that may provide it.
SharedDemand: TypeAlias = tuple[int, ClassRows, Booleans]


def exceeds_shared_capacity(fleet: Fleet, demands: Iterable[SharedDemand]) -> Booleans:
    """Return the trees in which classes that can only use one inventory do not fit there."""
    inventories = fleet.inventories
    targets = fleet.shares.targets
    free = (inventories.capacity[targets] - inventories.used[targets]).clip(0)
    needed = np.zeros(len(targets), dtype=np.int64)
    for amount, rows, able in demands:
        number, factor = _used_by_all(fleet, rows, able, targets)
        room = free[number]
        # an amount that does not fit alone counts as one too much, which cannot overflow
        needed[number] += np.where(
            amount <= room // factor, np.minimum(amount, room // factor) * factor, room + 1
        )
    exceeds = np.zeros(len(fleet.hosts), dtype=np.bool_)
    exceeds[inventories.tree[targets[needed > free]]] = True
    return exceeds


def _shared_use(condition: ClassCondition) -> SharedDemand:
    """Return the requested amount of a class, and the inventories that may provide it."""
    rows = condition.rows
    is_part = condition.is_device & (rows.low <= rows.high)
    able = condition.allowed[OWN] & (is_part | condition.provides_all)
    return condition.amount, rows, able & ~condition.from_pools()[rows.tree]


def _used_by_all(
    fleet: Fleet, rows: ClassRows, able: Booleans, targets: Integers
) -> tuple[Integers, Integers]:
    """Return the inventories that all sources of a class in a tree use, with the least factors."""
    shares = fleet.shares
    entries = shares.entries(rows.first, rows.first + len(able))
    is_able = able[shares.source[entries] - rows.first]
    direct = targets[slice(*targets.searchsorted((rows.first, rows.first + len(able))))]
    direct = direct[able[direct - rows.first]]
    target = np.concatenate((shares.target[entries][is_able], direct))
    factor = np.concatenate((shares.factor[entries][is_able], np.ones_like(direct)))
    order = np.argsort(target, kind="stable")
    target, factor = target[order], factor[order]
    begins = np.flatnonzero(np.diff(target, prepend=-1))
    if not len(begins):
        return begins, begins
    sources = np.bincount(rows.tree[able], minlength=len(fleet.hosts))
    count = np.diff(begins, append=len(target))
    is_of_all = count == sources[fleet.inventories.tree[target[begins]]]
    least = np.minimum.reduceat(factor, begins)
    return targets.searchsorted(target[begins[is_of_all]]), least[is_of_all]
