"""The required traits of the unnamed group: some class answers for each.

A class answers for a trait if all providers of the class have it. Which class answers for which
trait is a choice, so all traits are one condition. If only one class can answer for a trait, its
sources are those with the trait (:meth:`RequiredTraits.narrow`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.search.arrays import Booleans, integers
from resource_objects.search.conditions.amounts import ClassCondition
from resource_objects.search.conditions.located import LocatedCondition
from resource_objects.search.demands import bits
from resource_objects.search.eligibility import Semantics
from resource_objects.search.findings import Check, Condition, Findings, HostSet, in_words
from resource_objects.search.fleet import Fleet


@dataclasses.dataclass(eq=False)
class RequiredTraits(Condition):
    """Some class answers for each required trait."""

    fleet: Fleet
    rules: Semantics
    required: tuple[str, ...]
    classes: Sequence[ClassCondition | LocatedCondition]

    rule = Rule.TRAIT_MISSING

    def __post_init__(self) -> None:
        self._blamed: dict[int, int] = {}

    def mask(self) -> Booleans:
        """Return the hosts that seem to have a class that answers for each trait."""
        found = np.ones(len(self.fleet.hosts), dtype=np.bool_)
        for number in range(len(self.required)):
            if found.any():
                found &= self._answered(number)
        return found

    def checks(self) -> Iterator[Check]:
        """Yield for each trait whether an allowed source has it, then whether these have enough."""
        for number, label in enumerate(self.required):
            having = [condition.had(number) for condition in self.classes]
            name = self.classes[0].name if len(self.classes) == 1 else None
            words = f"{' or '.join(one.name for one in self.classes)} {self._in_words(label)}"
            yield Check(np.logical_or.reduce(having), self.rule, "", name, label, words)
            able = [one for one, hosts in zip(self.classes, having, strict=True) if hosts.any()]
            passing = self._answered(number)
            if len(able) == 1:
                yield able[0].check_of_trait(number, label)._replace(passing=passing)
            else:
                yield Check(passing, Rule.CAPACITY, "", label=label, words=words)

    def _in_words(self, label: str) -> str:
        """Return a required trait in words, with the conditions on each provider."""
        conditions = {condition.demand.requirements for condition in self.classes}
        common = conditions.pop() if len(conditions) == 1 else ()
        words = in_words([*common, (self.rule, label)])
        return f"{words} among those that may give" if conditions else words

    def _answered(self, trait: int) -> Booleans:
        """Return the hosts that seem to have enough of some class at sources with a trait."""
        found = np.zeros(len(self.fleet.hosts), dtype=np.bool_)
        for one in self.classes:
            found |= one.enough(trait)
        return found

    def sources(self, tree: int) -> dict[Condition, int]:
        """Return, by class, the sources on one tree that may provide it, as bits."""
        findings = Findings(HostSet(self.fleet, self.rules, integers([tree])), decides=True)
        self.narrow(findings)
        return {one: bits(flags.tolist()) for one, (_, flags) in findings.sources.items()}

    def narrow(self, findings: Findings) -> None:
        """Set the sources of each class, with the traits that only they can answer for.

        Set also the traits that no source has, each with the number of a class and the hosts; and
        the hosts on which several classes may answer for a trait, or the only one does not beside
        other traits.
        """
        hosts = findings.hosts
        here = [one.sources_on(hosts) for one in self.classes]
        sources = [one.allowed for one in here]
        missing: list[tuple[int, int, Booleans]] = []
        is_open = hosts.none()
        for trait in range(len(self.required)):
            able = [one.allowed & one.has_required[trait] for one in here]
            has = [hosts.any(one.pairs.host[flags]) for one, flags in zip(here, able, strict=True)]
            owners = np.sum(has, axis=0)
            is_open |= owners > 1
            missing.append((trait, self._blame(trait), owners == 0))
            for number, one in enumerate(here):
                is_only = has[number] & (owners == 1)
                host = one.pairs.host
                left = sources[number] & (one.has_required[trait] | ~is_only[host])
                is_lost = is_only & ~hosts.any(host[left])
                is_open |= is_lost
                missing.append((trait, number, is_lost))
                sources[number] = np.where(is_lost[host], sources[number], left)
        pairs = zip(here, sources, strict=True)
        findings.sources = dict(zip(self.classes, pairs, strict=True))
        findings.missing_traits = [one for one in missing if one[2].any()], is_open

    def find(self, findings: Findings, among: Booleans) -> None:
        """Add the traits that no source has, and what stands against those that have the others."""
        hosts, (missing, is_open) = findings.hosts, findings.missing_traits
        for trait, number, lacking in missing:
            condition = self.classes[number]
            sources, _ = findings.sources[condition]
            lacking = lacking & among & ~findings.without_provider[condition]
            has_trait = hosts.none()
            if isinstance(condition, ClassCondition):
                counts = ~condition.demand.rows.is_part[sources.pairs.entry]
                has_trait = hosts.any(sources.pairs.host[counts & sources.has_required[trait]])
                amount, name = condition.demand.amount, condition.name
                of_trait = (self.rule, self.required[trait])
                findings.add_unmet(self, lacking & ~has_trait, of_trait, amount, name)
                lacking &= has_trait

            def lacks(host: int, trait: int = trait, number: int = number) -> list[Reason]:
                return [self._missing(int(hosts.trees[host]), trait, number)]

            findings.add_each(self, lacking, lacks)
        findings.add_each(self, among & is_open, functools.partial(self._of_several, findings))

    def _of_several(self, findings: Findings, host: int) -> Iterator[Reason]:
        """Yield what stands against each class that may answer for a trait, if against all."""
        tree = int(findings.hosts.trees[host])
        for trait in range(len(self.required)):
            tries = self._tries(tree, trait)
            if not any(self.classes[number].can(tree, some) for number, some in tries):
                for number, some in tries:
                    if not findings.failing[self.classes[number]][host]:
                        yield from self.classes[number].short(tree, some)

    def not_beside(self, tree: int, trait: int) -> Reason:
        """Return the reason for a trait that no source has together with those before it."""
        owners = [number for number, _ in self._tries(tree, trait)]
        return self._missing(tree, trait, owners[0] if owners else self._blame(trait))

    def _missing(self, tree: int, trait: int, number: int) -> Reason:
        return self.classes[number].lacks(tree, trait, self.required)

    def _tries(self, tree: int, trait: int) -> list[tuple[int, int]]:
        """Return the classes of which some sources have a trait, with these as bits."""
        here = [one.of_tree(tree) for one in self.classes]
        found = [(n, demand.allowed & demand.with_trait[trait]) for n, demand in enumerate(here)]
        return [(number, sources) for number, sources in found if sources]

    def _blame(self, trait: int) -> int:
        """Return the class that is named if no source of a tree has a trait.

        It is a class whose sources have the trait elsewhere, else one of devices, else the first.
        """
        if trait not in self._blamed:
            having = self.fleet.traits.get(self.required[trait], ())
            elsewhere = [np.isin(one.providers, having).any() for one in self.classes]
            devices = [one.is_of_devices for one in self.classes]
            named = next((flags for flags in (elsewhere, devices) if any(flags)), [True])
            self._blamed[trait] = [bool(flag) for flag in named].index(True)
        return self._blamed[trait]
