"""What is asked of the host itself: traits, aggregates, its tree, and that it gives something."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.requests import Request
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.amounts import ClassCondition
from resource_objects.search.conditions.base import Cut, Partial
from resource_objects.search.findings import Findings
from resource_objects.search.fleet import Fleet


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class HostCondition:
    """A trait of the root, or by Placement's rules what the unnamed group asks of its host."""

    fleet: Fleet
    rule: Rule
    label: str  #: the trait, aggregate or provider
    passing: Booleans  #: by tree
    classes: Sequence[ClassCondition]  #: the counts of the unnamed group

    def mask(self) -> Booleans:
        """Return which hosts qualify."""
        return self.passing

    def cuts(self) -> Iterator[Cut]:
        """Yield one cut."""
        yield Cut(self.passing, self.rule, label=self.label)

    def find(self, findings: Findings, hosts: Booleans) -> None:
        """Add the reason, of each class of the unnamed group if it is about these."""
        failing = hosts & ~self.passing[findings.hosts.trees]
        requested = [(one.demand.amount, one.demand.resource_class) for one in self.classes]
        is_of_root = self.rule in (Rule.ROOT_TRAIT_MISSING, Rule.ROOT_TRAIT_FORBIDDEN)
        for amount, name in [(1, None)] if is_of_root else requested:
            findings.add_unmet(self, failing, (self.rule, self.label), amount, name)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class HostGives:
    """A host gives something of the unnamed group itself, where nothing is named or located."""

    fleet: Fleet
    is_host: Booleans  #: by tree: may be found
    classes: Sequence[ClassCondition]  #: none where something else than counts is asked for

    rule = Rule.NOT_OWN

    def mask(self) -> Booleans:
        """Return which trees may be hosts."""
        return self.is_host

    def cuts(self) -> Iterable[Cut]:
        """Return none: trees that may not be hosts are in no stage."""
        return ()

    def find(self, findings: Findings, hosts: Booleans) -> None:
        """Add the reasons of some hosts, one by one."""
        findings.add_decided(self, hosts, self.reasons)

    def reasons(self, host: Partial) -> list[Reason]:
        """Return why nobody of the tree itself gives anything, if only pools could."""
        if not self.classes or not self.fleet.pools or any(host.told.values()):
            return []
        found: list[Reason] = []
        for one in self.classes:
            own = host.sources[one] & ((1 << one.of_tree(host.tree).own) - 1)
            name, demand = self.fleet.hosts[host.tree], one.demand
            if not own:
                found.append(Reason(self.rule, demand.amount, 0, 0, demand.resource_class, name))
                continue
            short = one.short(host.tree, own)
            if not short:
                return []
            found += short
        return found


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class OnlyHost:
    """One host alone, with whatever its pools give it: a condition that who asks brings.

    ``functools.partial(OnlyHost, name)`` is one of the ``filters`` of a search.
    """

    name: str
    fleet: Fleet
    request: Request

    rule = Rule.FILTER

    def mask(self) -> Booleans:
        """Return which host it is."""
        return np.array([name == self.name for name in self.fleet.hosts], dtype=np.bool_)

    def among(self, trees: Integers) -> Booleans:
        """Return which of some hosts it is."""
        return self.mask()[trees]

    def cuts(self) -> Iterator[Cut]:
        """Yield one cut."""
        yield Cut(self.mask(), self.rule, label=self.name)

    def holds(self, tree: int) -> bool:
        """Return whether a host is it."""
        return self.fleet.hosts[tree] == self.name

    def find(self, findings: Findings, hosts: Booleans) -> None:
        """Add that other hosts are not it."""
        at = np.flatnonzero(hosts & ~self.mask()[findings.hosts.trees])
        findings.add(self, self.rule, at, 1, unit=f"is not {self.name}", filter="host")
