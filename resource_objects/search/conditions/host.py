"""The conditions on the host itself: traits, aggregates, its tree, or that it is a certain host."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from resource_objects.reasons import Rule
from resource_objects.requests import Request
from resource_objects.search.arrays import Booleans
from resource_objects.search.conditions.amounts import ClassCondition
from resource_objects.search.findings import Check, Condition, Findings, HostFilter
from resource_objects.search.fleet import Fleet


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
        requested = [(one.amount, one.resource_class) for one in self.classes]
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
