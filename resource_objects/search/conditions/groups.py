"""The condition that the named groups of a request are provided, and its reasons.

The reasons of each kind of group come first, class by class: no inventory, providers that do not
meet the conditions, too little free; or no provider has all classes. If each kind can be provided,
the reasons are what all groups lack together: providers for isolated groups, enough of a class, or
a provider above the others. Listed with these are the consumers at the providers that would do if
nothing were allocated.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.requests import RequestedCount
from resource_objects.resources.matching import matching_size
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.conditions.amounts import ClassCondition
from resource_objects.search.eligibility import (
    ClassAmount,
    GroupEligibility,
    GroupKind,
    NamedGroups,
    having,
    pools_of,
    roles_of,
    trees_of,
)
from resource_objects.search.findings import Check, Condition, Findings, Pairs, in_words
from resource_objects.search.fleet import ClassRows
from resource_objects.search.tree_solver import may_provide


def _suffixes(kinds: Sequence[GroupKind]) -> tuple[str, ...]:
    return tuple(suffix for kind in kinds for suffix in kind.suffixes)


def _joined(kinds: Sequence[GroupKind]) -> str:
    return ", ".join(_suffixes(kinds))


@dataclasses.dataclass(frozen=True, eq=False)
class Groups(Condition):
    """The named groups are provided, each by one provider, together with the unnamed group."""

    named: NamedGroups
    is_host: Booleans  #: by tree: may have candidates
    unnamed: Mapping[str, int]  #: the amount of each class of the unnamed group
    is_all: bool = False  #: nothing else is requested

    rule = Rule.GROUPS

    def checks(self) -> Iterator[Check]:
        """Yield all groups; then kind by kind the classes, the conditions and the amounts."""
        yield Check(self._possible, self.rule)
        for kind in self.named.kinds:
            yield from self._checks_of(kind)

    @functools.cached_property
    def _possible(self) -> Booleans:
        return self.named.possible(self.unnamed)

    def _checks_of(self, kind: GroupKind) -> Iterator[Check]:
        fleet, group = self.named.fleet, _joined([kind])
        providers = np.arange(len(fleet.names))
        able = np.stack((np.ones_like(fleet.is_pool), fleet.is_pool))[: roles_of(fleet)]
        for number, (name, rows, amount) in enumerate(kind.amounts, 1):
            able = able & having(fleet, rows, ~rows.is_part)
            passing, words = trees_of(fleet, providers, able), " and ".join(kind.names[:number])
            yield Check(
                passing, Rule.NO_INVENTORY, group, name, words=words, amount=amount, rows=rows
            )
        labels = [(condition.rule, condition.label) for condition in kind.conditions]
        resource = kind.names[0] if len(kind.names) == 1 else None
        classes = " and ".join(kind.names) or "provider"
        for number, condition in enumerate(kind.conditions, 1):
            able = able & condition.eligible
            passing = trees_of(fleet, providers, able)
            words = f"{classes} {in_words(labels[:number])}"
            yield Check(passing, condition.rule, group, resource, condition.label, words)
        amounts = dict.fromkeys(kind.names, "")
        for requested in kind.amounts:
            name, rows, amount = requested
            allowed = able.take(rows.provider, axis=1)
            able = able & having(fleet, rows, requested.sources)
            next_to = " and ".join(other + amounts[other] for other in amounts if other != name)
            amounts[name] = f"={amount}"
            parts = [f"beside {next_to}" if next_to else "", in_words(labels)]
            yield Check(
                trees_of(fleet, providers, able),
                Rule.CAPACITY,
                group,
                name,
                words=" ".join(filter(None, parts)),
                amount=amount,
                rows=rows,
                allowed=allowed,
            )

    def holds(self, tree: int) -> bool:
        """Return whether all groups could be provided if nothing else were requested."""
        return may_provide(self.named.fleet, tree, named=self.named)

    def find(self, findings: Findings, among: Booleans) -> None:
        """Add the reasons of some hosts; if there are none, that not all groups fit together."""
        _GroupFindings(self, findings, among).find()

    def not_own(self, tree: int) -> list[Reason]:
        """Return the reasons if only pools could provide the groups, else none."""
        named = self.named
        host_has_to = self.is_all and named.rules.host_gives
        is_of_pools = bool(host_has_to and pools_of(named.fleet, named.rules, tree))
        if self.is_host[tree] and not (is_of_pools and self.holds(tree)):
            return []
        host = named.fleet.hosts[tree]
        return [
            Reason(Rule.NOT_OWN, amount, 0, 0, name, host, group=_joined([kind]))
            for kind in named.kinds
            for name, _, amount in kind.amounts
        ]


class _GroupFindings:
    """The reasons of some hosts that are about groups."""

    def __init__(self, groups: Groups, findings: Findings, among: Booleans) -> None:
        self._groups = groups
        self._kinds = groups.named.kinds
        self._fleet = groups.named.fleet
        self._findings = findings
        self._hosts = hosts = findings.hosts
        self._among = among
        pairs = hosts.providers
        #: by kind, the providers of one group
        self._options = [pairs.where(pairs.flags(kind.provides)) for kind in self._kinds]

    def find(self) -> None:
        for kind, options in zip(self._kinds, self._options, strict=True):
            self._of_kind(kind, self._among & ~self._hosts.any(options.host))
        if self._groups.named.isolates:
            self._find_too_few(self._undecided())
        self._find_too_little(self._undecided())
        if self._groups.named.subtrees:
            self._find_apart(self._undecided())
        if self._findings.decides:
            trees = self._hosts.trees
            unexplained = self._among & ~self._findings.is_refused
            self._findings.add_each(
                self._groups, unexplained, lambda host: self._groups.not_own(int(trees[host]))
            )
            demands = () if self._groups.is_all else ("", *_suffixes(self._kinds))
            unexplained &= ~self._findings.is_refused
            self._at_once(Rule.GROUPS, self._kinds, unexplained, demands=demands)

    def _undecided(self) -> Booleans:
        """Return the hosts that may provide the groups as far as it is known."""
        findings = self._findings
        return self._among & ~findings.failing[self._groups] & ~findings.is_open

    def _of_rows(self, rows: ClassRows) -> tuple[Pairs, Pairs]:
        """Return the inventories of a class that are not a part of another, and the providers."""
        pairs = self._hosts.inventories(rows)
        pairs = pairs.where(~rows.is_part[pairs.entry])
        return pairs, pairs._replace(entry=rows.provider[pairs.entry])

    # --- one kind ---

    def _of_kind(self, kind: GroupKind, hosts: Booleans) -> None:
        if not hosts.any():
            return
        lacking = self._hosts.none()
        for requested in kind.amounts:
            lacking |= self._of_class(kind, requested, hosts)
        if not kind.amounts:
            providers = self._hosts.providers
            labels = [(condition.rule, condition.label) for condition in kind.conditions]
            unmet = [~providers.flags(condition.eligible) for condition in kind.conditions]
            subject = hosts, providers.host, labels, unmet, 1, "provider", _joined([kind])
            self._findings.add_excluded(self._groups, *subject)
        else:
            self._one_provider(kind, hosts & ~lacking & ~self._findings.is_open)

    def _of_class(self, kind: GroupKind, requested: ClassAmount, hosts: Booleans) -> Booleans:
        """Add why no qualified provider has an amount of a class; return the hosts of these."""
        pairs, providers = self._of_rows(requested.rows)
        is_able = providers.flags(kind.eligible) & requested.sources[pairs.entry]
        lacking = hosts & ~self._hosts.any(pairs.host[is_able])
        if lacking.any():
            named, count = self._groups.named, RequestedCount(requested.name, requested.amount)
            conditions = GroupEligibility(kind.conditions, ())
            condition = ClassCondition.compile(self._fleet, named.rules, count, conditions, ())
            condition = dataclasses.replace(condition, is_device=np.zeros_like(condition.is_device))
            sources = condition.sources_on(self._hosts)
            findings, group = self._findings, _joined([kind])
            condition.find_within(findings, lacking, sources, sources.allowed, self._groups, group)
        return lacking

    def _one_provider(self, kind: GroupKind, hosts: Booleans) -> None:
        """Add that each class is provided by some provider, and all of them by none."""
        provided = np.zeros(len(self._fleet.names), dtype=np.int64)
        for requested in kind.amounts:
            provided[requested.rows.provider[requested.sources]] += 1
        pairs = self._hosts.providers
        qualified = pairs.where(pairs.flags(kind.eligible))
        most = np.zeros(len(self._hosts), dtype=np.int64)
        np.maximum.at(most, qualified.host, provided[qualified.entry])
        self._at_once(Rule.ONE_PROVIDER, [kind], hosts, len(kind.amounts), most)

    # --- all kinds ---

    def _at_once(
        self,
        rule: Rule,
        kinds: Sequence[GroupKind],
        hosts: Booleans,
        count: int | None = None,
        bound: Integers | None = None,
        *,
        but_able: bool = False,
        demands: tuple[str, ...] = (),
    ) -> None:
        """Add what groups lack together, with the consumers at providers that could have them.

        :param count: the requested number; None: the number of the groups
        :param but_able: whether the providers that can provide them now are left out
        """
        at = np.flatnonzero(hosts)
        if not len(at):
            return
        size = len(self._fleet.inventories.tree)
        keys = [np.zeros(0, dtype=np.int64)]  # of hosts and inventories
        for kind in kinds:
            for _, rows, _ in kind.amounts:
                pairs, providers = self._of_rows(rows)
                would = providers.flags(kind.would_provide) & hosts[pairs.host]
                if but_able:
                    would &= ~providers.flags(kind.provides)
                keys.append((pairs.host * size + pairs.entry + rows.first)[would])
        host, numbers = np.divmod(np.unique(np.concatenate(keys)), max(1, size))
        self._findings.add(
            self._groups,
            rule,
            at,
            sum(kind.count for kind in kinds) if count is None else count,
            bound=0 if bound is None else bound[at],
            group=None if demands else _joined(kinds),
            demands=demands,
            inventories=numbers,
            starts=host.searchsorted(at),
            counts_providers=True,
        )

    def _find_too_few(self, hosts: Booleans) -> None:
        """Add where isolated groups have too few providers."""
        counts = [kind.count for kind in self._kinds]
        if len(counts) == 1:
            options = np.bincount(self._options[0].host, minlength=len(hosts))
            most = np.minimum(options, counts[0])
        else:
            most = np.full(len(hosts), sum(counts))
            pairs = self._hosts.providers
            first = pairs.host.searchsorted(np.arange(len(hosts)))
            able = [[0] * len(hosts) for _ in counts]  # as bits, by kind and host
            for kind, masks in zip(self._kinds, able, strict=True):
                position = np.flatnonzero(pairs.flags(kind.provides) & hosts[pairs.host])
                of_host = pairs.host[position]
                bits = (position - first[of_host]).tolist()
                for host, bit in zip(of_host.tolist(), bits, strict=True):
                    masks[host] |= 1 << bit
            most_by_masks: dict[tuple[int, ...], int] = {}
            for host in np.flatnonzero(hosts).tolist():
                key = tuple([masks[host] for masks in able])
                if key not in most_by_masks:
                    most_by_masks[key] = matching_size(zip(counts, key, strict=True))
                most[host] = most_by_masks[key]
        few = hosts & (most < sum(counts))
        self._at_once(Rule.ISOLATED, self._kinds, few, bound=most, but_able=True)

    def _find_too_little(self, hosts: Booleans) -> None:
        """Add the classes of which there is too little for all groups, named or not."""
        if not hosts.any():
            return
        requested = dict(self._groups.unnamed)
        kinds_of: dict[str, list[GroupKind]] = {}
        for kind in self._kinds:
            for name, _, amount in kind.amounts:
                requested[name] = requested.get(name, 0) + amount * kind.count
                kinds_of.setdefault(name, []).append(kind)
        in_service = self._groups.named.enabled()
        for name, kinds in kinds_of.items():
            rows = self._fleet.rows(name)
            pairs, providers = self._of_rows(rows)
            pairs = pairs.where(in_service[providers.entry])
            capacity = rows.capacity[pairs.entry]
            free = self._hosts.sum((capacity - rows.used[pairs.entry]).clip(0), pairs.host)
            few = hosts & (free < requested[name])
            if few.any():
                unnamed = [""] if name in self._groups.unnamed else []
                self._findings.add_full(
                    *(self._groups, few, pairs, rows, requested[name], name),
                    used=self._hosts.sum(capacity, pairs.host) - free,
                    demands=(*unnamed, *_suffixes(kinds)),
                )
            has_few_slots = np.logical_or.reduce([self._slots(kind) < kind.count for kind in kinds])
            self._at_once(Rule.GROUPS, kinds, hosts & ~few & has_few_slots)

    def _slots(self, kind: GroupKind) -> Integers:
        """Return, by host, how many groups of a kind fit if there are no others."""
        options = self._options[self._kinds.index(kind)]
        return self._hosts.sum(kind.times[options.entry], options.host)

    def _find_apart(self, hosts: Booleans) -> None:
        """Add the sets of groups of which none can be above the others."""
        if not self._findings.decides:
            self._findings.is_open |= hosts
            return
        for subtree in range(self._groups.named.subtrees):
            kinds = tuple(
                dataclasses.replace(kind, subtrees=frozenset({0}))
                for kind in self._kinds
                if subtree in kind.subtrees
            )
            only_set = dataclasses.replace(
                self._groups.named, kinds=kinds, isolates=False, subtrees=1
            )
            failing = hosts.copy()
            for host in np.flatnonzero(hosts).tolist():
                tree = int(self._hosts.trees[host])
                failing[host] = not may_provide(self._fleet, tree, named=only_set)
            self._at_once(Rule.SUBTREE, kinds, failing)
