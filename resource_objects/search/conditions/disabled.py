"""What is out of service gives nothing: a host that is disabled, or something below it.

Where a host is disabled, or something above what is searched, it is ruled out by itself and told
so. Where only something below it is, that gives nothing to anybody (:func:`in_service`), and is
told beside whatever then stands against the host. Who requires the trait
``COMPUTE_STATUS_DISABLED`` asks for what is disabled, and is bound by none of this; what it finds
is claimed by who overrides it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from resource_objects.providers.decision import unit_removed
from resource_objects.providers.disabled import TRAIT
from resource_objects.reasons import Reason, Rule
from resource_objects.requests import Request
from resource_objects.resources.located import Identified
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.amounts import FleetDemand
from resource_objects.search.conditions.base import (
    OWN,
    Cut,
    Partial,
    Qualification,
    Semantics,
    met,
    pools_of,
    roles_of,
)
from resource_objects.search.demands import LocatedFleetDemand
from resource_objects.search.findings import Findings
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.named_groups import GroupKind


def disabled_for(fleet: Fleet, request: Request) -> Booleans | None:
    """Return which providers a request may not have since they are out of service; None: none.

    Cost: nothing where nothing is disabled; else a pass over the providers.
    """
    if not fleet.disabled:
        return None
    named = {*request.root_required}
    for group in request.groups:
        named.update(group.required, *group.any_of)
        named.update(trait for _, required, _ in group.traits_of for trait in required)
    return None if TRAIT in named else fleet.out_of_service()


def in_service(fleet: Fleet, disabled: Booleans) -> Qualification:
    """Return who may give anything: who is not out of service."""
    return Qualification(Rule.DISABLED, "", np.stack([~disabled] * roles_of(fleet)))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class HostInService:
    """A host is in service, as a whole."""

    fleet: Fleet
    disabled: Booleans  #: by provider

    rule = Rule.DISABLED

    def mask(self) -> Booleans:
        """Return which hosts are in service."""
        return ~self.disabled[self.fleet.roots]

    def cuts(self) -> Iterator[Cut]:
        """Yield one cut."""
        yield Cut(self.mask(), self.rule)

    def holds(self, tree: int) -> bool:
        """Return whether a host is in service."""
        return not self.disabled[self.fleet.roots[tree]]

    def find(self, findings: Findings, hosts: Booleans) -> None:
        """Add the reasons of some hosts, one by one."""
        findings.add_decided(self, hosts, self.reasons)

    def reasons(self, host: Partial) -> list[Reason]:
        """Return why it is not: each that is disabled, from the host upwards."""
        if self.holds(host.tree):
            return []
        every = self.fleet.upwards(int(self.fleet.roots[host.tree]))
        return [_told(self.fleet, place) for place in every if place in self.fleet.disabled]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PartsInService:
    """Some of a host, or a pool of its, may be out of service: told where it lacks something.

    Only of what would count is it told, were it in service (:class:`Counting`). That it gives
    nothing, the conditions on who gives say, and of removed devices the figures
    (:meth:`.Fleet.in_force`); nobody is ruled out here.
    """

    fleet: Fleet
    rules: Semantics
    counting: Counting

    rule = Rule.DISABLED

    def mask(self) -> Booleans:
        """Return all hosts."""
        return np.ones(len(self.fleet.hosts), dtype=np.bool_)

    def cuts(self) -> Iterable[Cut]:
        """Return none."""
        return ()

    def find(self, findings: Findings, hosts: Booleans) -> None:
        """Add the reasons of some hosts, one by one."""
        findings.add_decided(self, hosts, self.reasons)

    def reasons(self, host: Partial) -> list[Reason]:
        """Return what is disabled of what was asked for, if something else is told already."""
        if not any(host.told.values()):
            return []
        fleet, able = self.fleet, self.counting.able
        givers = (*fleet.of_tree(host.tree), *pools_of(fleet, self.rules, host.tree))
        found = {place: None for giver in givers if able[giver] for place in fleet.upwards(giver)}
        told = [_told(fleet, place) for place in found if place in fleet.disabled]
        if fleet.removed_units:
            told += self._units(host.tree)
        return told

    def _units(self, tree: int) -> Iterator[Reason]:
        """Yield the removed devices that would count for the request."""
        fleet = self.fleet
        for place in fleet.of_tree(tree):
            for unit, resource_class in fleet.removed_units.get(place, {}).items():
                if self.counting.counts(tree, place, unit, resource_class):
                    yield unit_removed(unit, fleet.names[place])


class Counting:
    """What would count for a request, were it in service: who meets all else that is asked of it.

    By the conditions on who gives and by size, which is what there is, not what is free. Told is
    too much rather than too little: a trait that some class has to answer for is asked of a
    provider only where no other class of its tree can. Worked out when somebody is refused.
    """

    def __init__(
        self,
        fleet: Fleet,
        demands: Sequence[FleetDemand],
        located: Sequence[LocatedFleetDemand],
        kinds: Sequence[GroupKind],
    ) -> None:
        self._fleet = fleet
        self._demands = demands
        self._located = located
        self._kinds = kinds

    @functools.cached_property
    def able(self) -> Booleans:
        """Which providers would give something that is asked for."""
        fleet = self._fleet
        found = np.zeros(len(fleet.names), dtype=np.bool_)
        asked = [self._of_count(one) for one in self._demands]
        asked += [_of_located(one) for one in self._located]
        for number, some in enumerate(asked):
            gives = some.gives
            for trait, has in enumerate(some.has_required):
                elsewhere = np.zeros(len(fleet.hosts), dtype=np.bool_)
                for other in asked[:number] + asked[number + 1 :]:
                    answers = other.gives & other.has_required[trait]
                    elsewhere[fleet.tree[other.provider[answers]]] = True
                gives = gives & (has | elsewhere[fleet.tree[some.provider]])
            found[some.provider[gives]] = True
        for kind in self._kinds:
            found |= self._of_kind(kind)
        return found

    def counts(self, tree: int, place: int, unit: str, resource_class: str) -> bool:
        """Return True if a removed device would count."""
        fleet = self._fleet
        if not self.able[place]:
            return False
        number = fleet.number(place, resource_class)
        used_by = [] if number is None else fleet.shares.into(number)
        names = {resource_class, *(fleet.class_of(source) for source, _ in used_by)}
        if any(
            one.resource_class in names and (not one.units or unit in one.units)
            for one in self._demands
        ):
            return True
        if any(not names.isdisjoint(kind.names) for kind in self._kinds):
            return True
        return any(self._is_asked(one, tree, place, unit) for one in self._located)

    def _is_asked(self, one: LocatedFleetDemand, tree: int, place: int, unit: str) -> bool:
        view = self._fleet.view(one.resource_class, tree)
        if view is None or place not in view.places:
            return False
        inventory = view.located.inventory
        return not isinstance(inventory, Identified) or inventory.is_asked(one.amount, unit)

    def _of_count(self, one: FleetDemand) -> _Asked:
        rows = one.rows
        gives = ~one.rows.is_part & (one.is_device | self._could_give(rows, one.amount))
        for (rule, _), barred in zip(one.barriers, one.is_barred, strict=True):
            if rule is not Rule.DISABLED:
                gives &= ~barred[OWN]
        if one.has_pools:  # to other trees by rules of their own
            gives |= self._fleet.is_pool[rows.provider]
        return _Asked(rows.provider, gives, tuple(has[OWN] for has in one.has_required))

    def _of_kind(self, kind: GroupKind) -> Booleans:
        conditions = [one for one in kind.conditions if one.rule is not Rule.DISABLED]
        found: Booleans = np.logical_or.reduce(met(self._fleet, conditions))
        for rows, amount in kind.classes:
            enough = np.zeros_like(found)
            enough[rows.provider[self._could_give(rows, amount) & ~rows.is_part]] = True
            found &= enough
        return found

    def _could_give(self, rows: ClassRows, amount: int) -> Booleans:
        """Return which inventories are large enough, with the removed units in them."""
        capacity = rows.capacity.copy()
        for place, classes in self._fleet.removed_units.items():
            for resource_class in classes.values():
                number = self._fleet.number(place, resource_class)
                if number is not None and 0 <= number - rows.first < len(capacity):
                    capacity[number - rows.first] += 1
        return rows.could_give(amount, capacity)


class _Asked(NamedTuple):
    """Of one class, who could give it: parallel arrays."""

    provider: Integers
    gives: Booleans
    has_required: tuple[Booleans, ...]


def _of_located(one: LocatedFleetDemand) -> _Asked:
    gives = np.ones(len(one.parts.provider), dtype=np.bool_)
    for (rule, _), barred in zip(one.barriers, one.is_barred, strict=True):
        if rule is not Rule.DISABLED:
            gives &= ~barred
    return _Asked(one.parts.provider, gives, one.has_required)


def _told(fleet: Fleet, place: int) -> Reason:
    facts = fleet.disabled[place].facts
    return Reason(Rule.DISABLED, 1, 0, 0, where=fleet.names[place], disabled=facts)
