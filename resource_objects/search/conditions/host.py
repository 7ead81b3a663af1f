"""The conditions on the host itself: traits, aggregates, its tree, and that it provides some."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.requests import Request
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.amounts import ClassCondition
from resource_objects.search.findings import Check, Condition, Findings, HostContext, HostFilter
from resource_objects.search.fleet import Fleet


@dataclasses.dataclass(frozen=True, eq=False)
class HostCondition(Condition):
    """A trait of the root, or a condition of the unnamed group on its host."""

    rule: Rule
    label: str  #: the trait, aggregate or provider
    passing: Booleans  #: by tree
    classes: Sequence[ClassCondition]  #: the counts of the unnamed group

    def mask(self) -> Booleans:
        """Return the hosts that meet it."""
        return self.passing

    def checks(self) -> tuple[Check]:
        """Return one stage."""
        return (Check(self.passing, self.rule, label=self.label),)

    def find(self, findings: Findings, hosts: Booleans) -> None:
        """Add a reason for each class of the unnamed group; a single one if it is of the root."""
        failing = hosts & ~self.passing[findings.hosts.trees]
        requested = [(one.demand.amount, one.demand.resource_class) for one in self.classes]
        is_of_root = self.rule in (Rule.ROOT_TRAIT_MISSING, Rule.ROOT_TRAIT_FORBIDDEN)
        for amount, name in [(1, None)] if is_of_root else requested:
            findings.add_unmet(self, failing, (self.rule, self.label), amount, name)


@dataclasses.dataclass(frozen=True, eq=False)
class HostGives(Condition):
    """A host provides something of the unnamed group itself if that has only counts."""

    fleet: Fleet
    is_host: Booleans  #: by tree: may have candidates
    classes: Sequence[ClassCondition]  #: none if something else than counts is requested

    rule = Rule.NOT_OWN

    def mask(self) -> Booleans:
        """Return the trees that may be hosts."""
        return self.is_host

    def checks(self) -> tuple[()]:
        """Return none: trees that may not be hosts are in no stage."""
        return ()

    def reasons(self, host: HostContext) -> list[Reason]:
        """Return why no provider of the tree itself provides anything, if only pools could."""
        if not self.classes or not self.fleet.pools or host.is_refused:
            return []
        found: list[Reason] = []
        for one in self.classes:
            sources = host.sources(one) & ((1 << one.of_tree(host.tree).own) - 1)
            name, demand = self.fleet.hosts[host.tree], one.demand
            if not sources:
                found.append(Reason(self.rule, demand.amount, 0, 0, demand.resource_class, name))
                continue
            short = one.short(host.tree, sources)
            if not short:
                return []
            found += short
        return found


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

    def checks(self) -> tuple[Check]:
        """Return one stage."""
        return (Check(self.mask(), self.rule, label=self.name),)

    def among(self, trees: Integers) -> Booleans:
        """Return which of some hosts it is."""
        return self.mask()[trees]

    def find(self, findings: Findings, hosts: Booleans) -> None:
        """Add that other hosts are not it."""
        at = np.flatnonzero(hosts & ~self.mask()[findings.hosts.trees])
        findings.add(self, self.rule, at, 1, unit=f"is not {self.name}", filter="host")
