"""The conditions on the host itself, and on disabled providers.

Hosts have traits, aggregates and a tree, or have to be a certain host. Nothing is allocated of
disabled providers, or of the providers below them: a disabled host is refused for that alone.
Disabled providers below a host provide nothing (:func:`enabled`); if the host is refused, those
that the request could use are listed with the other reasons. A request that requires the trait
``COMPUTE_STATUS_DISABLED`` is for disabled providers, and none of this applies to it. A claim of
what it finds has to override the state.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np

from resource_objects.providers.disabled import TRAIT
from resource_objects.providers.holders import unit_removed
from resource_objects.reasons import Reason, Rule
from resource_objects.requests import Request
from resource_objects.resources.placed import HasNamedUnits
from resource_objects.search.arrays import Booleans
from resource_objects.search.conditions.amounts import ClassCondition
from resource_objects.search.conditions.located import LocatedCondition
from resource_objects.search.conditions.unnamed import UnnamedGroup
from resource_objects.search.demands import view_of
from resource_objects.search.eligibility import (
    OWN,
    Eligibility,
    NamedGroups,
    eligible_for,
    pools_of,
    roles_of,
)
from resource_objects.search.findings import Check, Condition, Findings, HostContext, HostFilter
from resource_objects.search.fleet import ClassRows, Fleet


@dataclasses.dataclass(frozen=True, eq=False)
class HostCondition(Condition):
    """A trait of the root, or a condition of the unnamed group on its host."""

    rule: Rule
    label: str  #: the trait, aggregate or provider
    passing: Booleans  #: by tree
    classes: Sequence[ClassCondition]  #: the counts of the unnamed group

    def checks(self) -> Iterator[Check]:
        """Yield one check."""
        yield Check(self.passing, self.rule, label=self.label)

    def find(self, findings: Findings, among: Booleans) -> None:
        """Add a reason for each class of the unnamed group; a single one if it is of the root."""
        failing = among & ~self.passing[findings.hosts.trees]
        requested = [(condition.amount, condition.resource_class) for condition in self.classes]
        is_of_root = self.rule in (Rule.ROOT_TRAIT_MISSING, Rule.ROOT_TRAIT_FORBIDDEN)
        for amount, name in [(1, None)] if is_of_root else requested:
            findings.add_unmet(self, failing, (self.rule, self.label), amount, name)


@dataclasses.dataclass(frozen=True, eq=False)
class OnlyHost(HostFilter):
    """A single host, with all that its pools provide to it: a condition of a caller.

    ``functools.partial(OnlyHost, name)`` is one of the ``filters`` of a search.
    """

    name: str
    fleet: Fleet
    request: Request

    rule = Rule.FILTER

    def mask(self) -> Booleans:
        """Return the host."""
        return np.array([name == self.name for name in self.fleet.hosts], dtype=np.bool_)

    def checks(self) -> Iterator[Check]:
        """Yield one check."""
        yield Check(self.mask(), self.rule, label=self.name)

    def find(self, findings: Findings, among: Booleans) -> None:
        """Add that other hosts are not it."""
        at = np.flatnonzero(among & ~self.mask()[findings.hosts.trees])
        findings.add(self, self.rule, at, 1, unit=f"is not {self.name}", filter="host")


# --- disabled providers ---------------------------------------------------------------------------


def disabled_for(fleet: Fleet, request: Request) -> Booleans | None:
    """Return the providers that a request may not use because they are disabled; None: none are.

    Cost: a pass over the providers if any is disabled.
    """
    if not fleet.disabled:
        return None
    required = {*request.root_required}
    for group in request.groups:
        required.update(group.required, *group.any_of)
        required.update(trait for _, traits, _ in group.traits_of for trait in traits)
    return None if TRAIT in required else fleet.disabled_mask()


def enabled(fleet: Fleet, disabled: Booleans) -> Eligibility:
    """Return the condition that providers are enabled."""
    return Eligibility(Rule.DISABLED, "", np.stack([~disabled] * roles_of(fleet)))


def _reason(fleet: Fleet, place: int) -> Reason:
    facts = fleet.disabled[place].facts
    return Reason(Rule.DISABLED, 1, 0, 0, where=fleet.names[place], disabled=facts)


@dataclasses.dataclass(frozen=True, eq=False)
class EnabledHost(Condition):
    """The host as a whole is enabled."""

    fleet: Fleet
    disabled: Booleans  #: by provider

    rule = Rule.DISABLED

    def checks(self) -> Iterator[Check]:
        """Yield the enabled hosts."""
        yield Check(~self.disabled[self.fleet.roots], self.rule)

    def reasons(self, host: HostContext) -> list[Reason]:
        """Return each disabled provider from the host upwards."""
        upwards = self.fleet.upwards(int(self.fleet.roots[host.tree]))
        return [_reason(self.fleet, place) for place in upwards if place in self.fleet.disabled]


@dataclasses.dataclass(frozen=True, eq=False)
class DisabledParts(Condition):
    """The disabled providers and removed devices of a host, listed if the host is refused.

    They exclude no host themselves: the other conditions know that they provide nothing. Listed are
    those that the request could use if they were enabled and nothing were allocated: they meet its
    conditions and are large enough. The rule lists too many rather than too few: a required trait
    that some class has to answer for excludes a provider only if no other class of the tree can.
    """

    unnamed: UnnamedGroup
    named: NamedGroups

    rule = Rule.DISABLED

    @property
    def _fleet(self) -> Fleet:
        return self.unnamed.fleet

    def reasons(self, host: HostContext) -> list[Reason]:
        """Return the disabled providers and removed devices, if the host has another reason."""
        if not host.is_refused:
            return []
        fleet, own = self._fleet, self._fleet.of_tree(host.tree)
        providers = (*own, *pools_of(fleet, self.unnamed.rules, host.tree))
        usable = [provider for provider in providers if self._usable[provider]]
        places = dict.fromkeys(place for provider in usable for place in fleet.upwards(provider))
        return [
            *(_reason(fleet, place) for place in places if place in fleet.disabled),
            *(
                unit_removed(unit, fleet.names[place])
                for place in own
                if self._usable[place]
                for unit, name in fleet.removed_units.get(place, {}).items()
                if self._is_requested(host.tree, place, unit, name)
            ),
        ]

    @functools.cached_property
    def _usable(self) -> Booleans:
        """By provider, whether the request could use it if it were enabled and free."""
        fleet, group = self._fleet, self.unnamed
        usable = np.zeros(len(fleet.names), dtype=np.bool_)
        parts = group.parts
        provides = [part.meets_others(self.rule) for part in parts]
        for condition, flags in zip(group.classes, provides, strict=False):
            rows = condition.rows
            flags &= ~rows.is_part & (condition.is_device | self._is_large(rows, condition.amount))
            if condition.has_pools:  # the conditions on pools differ
                flags |= fleet.is_pool[rows.provider]
        usable_of = [flags.copy() for flags in provides]
        for trait in range(len(group.required)):
            having = [part.has_required[trait][OWN] for part in parts]
            answers = np.zeros((len(parts), len(fleet.hosts)), dtype=np.bool_)
            for answer, part, flags, has in zip(answers, parts, provides, having, strict=True):
                answer[fleet.tree[part.source_providers[flags & has]]] = True
            has_other = answers.sum(axis=0) > answers
            for is_optional, part, flags, has in zip(
                has_other, parts, usable_of, having, strict=True
            ):
                flags &= has | is_optional[fleet.tree[part.source_providers]]
        for part, flags in zip(parts, usable_of, strict=True):
            usable[part.source_providers[flags]] = True
        for kind in self.named.kinds:
            conditions = [needed for needed in kind.conditions if needed.rule is not Rule.DISABLED]
            able: Booleans = np.logical_or.reduce(eligible_for(fleet, conditions))
            for _, rows, amount in kind.amounts:
                is_large = np.zeros_like(able)
                is_large[rows.provider[self._is_large(rows, amount) & ~rows.is_part]] = True
                able &= is_large
            usable |= able
        return usable

    def _is_large(self, rows: ClassRows, amount: int) -> Booleans:
        """Return the inventories with capacity for an amount, removed devices included."""
        capacity = rows.capacity.copy()
        for place, classes in self._fleet.removed_units.items():
            for name in classes.values():
                number = self._fleet.number(place, name)
                if number is not None and 0 <= number - rows.first < len(capacity):
                    capacity[number - rows.first] += 1
        return rows.provides(amount, capacity)

    def _is_requested(self, tree: int, place: int, unit: str, name: str) -> bool:
        """Return True if a removed device is of a class that the request asks for."""
        fleet, group = self._fleet, self.unnamed
        number = fleet.number(place, name)
        used_by = [] if number is None else fleet.shares.into(number)
        names = {name, *(fleet.class_of(source) for source, _ in used_by)}
        return (
            any(
                condition.resource_class in names and unit in (condition.units or (unit,))
                for condition in group.classes
            )
            or any(not names.isdisjoint(kind.names) for kind in self.named.kinds)
            or any(self._is_of_placed(part, tree, place, unit) for part in group.located)
        )

    def _is_of_placed(self, part: LocatedCondition, tree: int, place: int, unit: str) -> bool:
        view = view_of(self._fleet, part.resource_class, tree)
        if view is None or place not in view.places:
            return False
        inventory = view.located.inventory
        return not isinstance(inventory, HasNamedUnits) or inventory.is_requested(part.amount, unit)
