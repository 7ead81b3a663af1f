"""What is asked of the host itself: traits, aggregates, its tree, and that it gives something."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.requests import Request
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.amounts import ClassCondition
from resource_objects.search.conditions.base import (
    Cut,
    Partial,
    Qualification,
    Told,
    told_unmet,
    unmet,
)
from resource_objects.search.fleet import Fleet


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class HostCondition:
    """A trait of the root, or by Placement's rules what the unnamed group asks of its host."""

    fleet: Fleet
    qualification: Qualification  #: flags by tree
    classes: Sequence[ClassCondition]  #: the counts of the unnamed group

    @property
    def rule(self) -> Rule:
        """The rule of the trait, aggregate or tree."""
        return self.qualification.rule

    def mask(self) -> Booleans:
        """Return which hosts qualify."""
        return self.qualification.own

    def cuts(self) -> Iterator[Cut]:
        """Yield one cut."""
        yield Cut(self.qualification.own, self.rule, label=self.qualification.label)

    def holds(self, tree: int) -> bool:
        """Return whether a host qualifies."""
        return bool(self.qualification.own[tree])

    def reasons(self, host: Partial) -> list[Reason]:
        """Return the reason, for each class that the unnamed group asks if it is about these."""
        if self.holds(host.tree):
            return []
        name, label = self.fleet.hosts[host.tree], self.qualification.label
        if self.rule in (Rule.ROOT_TRAIT_MISSING, Rule.ROOT_TRAIT_FORBIDDEN):
            return [unmet(self.rule, label, 1, None, name)]
        demands = [one.demand for one in self.classes]
        return [unmet(self.rule, label, one.amount, one.resource_class, name) for one in demands]

    def tell(self, trees: Booleans) -> Iterator[Told]:
        """Yield :meth:`reasons` of some trees."""
        failing, label = trees & ~self.qualification.own, self.qualification.label
        if self.rule in (Rule.ROOT_TRAIT_MISSING, Rule.ROOT_TRAIT_FORBIDDEN):
            yield told_unmet(self.rule, label, failing, 1, None)
            return
        for one in self.classes:
            demand = one.demand
            yield told_unmet(self.rule, label, failing, demand.amount, demand.resource_class)


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

    def reasons(self, host: Partial) -> list[Reason]:
        """Return that a host is another one."""
        if self.holds(host.tree):
            return []
        where = self.fleet.hosts[host.tree]
        why = f"is not {self.name}"
        return [Reason(self.rule, 1, 0, 0, where=where, unit=why, filter="host")]
