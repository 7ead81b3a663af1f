"""What is out of service gives nothing: a host that is disabled, or something below it.

Where a host is disabled, or something above what is searched, it is ruled out by itself and told
so. Where only something below it is, that gives nothing to anybody (:func:`in_service`), and is
told beside whatever then stands against the host. Who requires the trait
``COMPUTE_STATUS_DISABLED`` asks for what is disabled, and is bound by none of this; what it finds
is claimed by who overrides it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from resource_objects.exceptions import Reason, Rule
from resource_objects.providers.decision import unit_disabled
from resource_objects.providers.disabled import TRAIT
from resource_objects.requests import Request
from resource_objects.search.arrays import Booleans
from resource_objects.search.conditions.base import Cut, Partial, Qualification
from resource_objects.search.fleet import Fleet


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


def in_service(disabled: Booleans) -> Qualification:
    """Return who may give anything: who is not out of service."""
    return Qualification(Rule.DISABLED, "", ~disabled, ~disabled)


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

    def reasons(self, host: Partial) -> list[Reason]:
        """Return why it is not: each that is disabled, from the host upwards."""
        if self.holds(host.tree):
            return []
        every = self.fleet.upwards(int(self.fleet.roots[host.tree]))
        return [_told(self.fleet, place) for place in every if place in self.fleet.disabled]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PartsInService:
    """Some of a host, or a pool of its, may be out of service: told where it lacks something.

    That it gives nothing, the conditions on who gives say, and of single devices that are
    disabled the figures (:meth:`.Fleet.in_force`); nobody is ruled out here.
    """

    fleet: Fleet
    classes: tuple[str, ...]  #: all that is asked for

    rule = Rule.DISABLED

    def mask(self) -> Booleans:
        """Return all hosts."""
        return np.ones(len(self.fleet.hosts), dtype=np.bool_)

    def cuts(self) -> Iterable[Cut]:
        """Return none."""
        return ()

    def holds(self, tree: int) -> bool:
        """Return True."""
        return True

    def reasons(self, host: Partial) -> list[Reason]:
        """Return what is disabled of what was asked for, if something else is told already."""
        if not any(host.told.values()):
            return []
        fleet = self.fleet
        givers = (
            giver
            for giver in (*fleet.of_tree(host.tree), *fleet.pools.of_tree(host.tree))
            if any(fleet.number(giver, name) is not None for name in self.classes)
        )
        found = {place: None for giver in givers for place in fleet.upwards(giver)}
        told = [_told(fleet, place) for place in found if place in fleet.disabled]
        if fleet.disabled_units:
            told += self._units(host.tree)
        return told

    def _units(self, tree: int) -> Iterator[Reason]:
        """Yield the devices that are disabled alone, of what was asked for or goes with it."""
        fleet = self.fleet
        for place in fleet.of_tree(tree):
            for one in fleet.disabled_units.get(place, ()):
                number = fleet.number(place, one.resource_class)
                used_by = [] if number is None else fleet.shares.into(number)
                names = {one.resource_class, *(fleet.class_of(source) for source, _ in used_by)}
                if not names.isdisjoint(self.classes):
                    yield unit_disabled(one.unit, one.facts, fleet.names[place])


def _told(fleet: Fleet, place: int) -> Reason:
    facts = fleet.disabled[place].facts
    return Reason(Rule.DISABLED, 1, 0, 0, where=fleet.names[place], disabled=facts)
