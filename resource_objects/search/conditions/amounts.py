"""The condition that a class is provided as a count, over the fleet and on one tree.

One provider provides all of it, or devices provide parts of it; each part meets the unit rules.
:class:`ClassCondition` has the inventories as arrays, :class:`.TreeDemand` those of one tree as
plain data.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from resource_objects.reasons import Reason, Rule
from resource_objects.requests import RequestedCount
from resource_objects.resources import Amount
from resource_objects.resources.catalog import is_device as is_device_class
from resource_objects.search.arrays import Booleans, Integers, integers
from resource_objects.search.conditions.shortage import Shortage, overdrawn, reasons_of_units
from resource_objects.search.demands import Source, TreeDemand, bits, members
from resource_objects.search.eligibility import (
    OWN,
    POOL,
    Eligibility,
    GroupEligibility,
    Semantics,
    pools_of,
    trees_of,
)
from resource_objects.search.findings import (
    Check,
    Condition,
    Findings,
    HostSet,
    Pairs,
    Sources,
    excluded,
    in_words,
)
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.relations import Link
from resource_objects.search.tree_solver import may_provide

#: Equal sources are one object: a suspended search has those of its tree.
_source = functools.lru_cache(1024)(Source)


@dataclasses.dataclass(eq=False)
class SourceCondition(Condition):
    """A class or a placed amount of the unnamed group is provided by some of its sources.

    Sources are the inventories of the class, or the parts of the placed amount. Their flags have a
    row for each role of a provider (:class:`.Eligibility`).
    """

    fleet: Fleet
    resource_class: str
    requirements: tuple[tuple[Rule, str], ...]  #: the conditions on each provider
    failed: tuple[Booleans, ...]  #: by such a condition, does not meet it
    has_required: tuple[Booleans, ...]  #: by required trait
    allowed: Booleans  #: meets all conditions on each provider

    rule = Rule.CAPACITY

    @property
    def source_providers(self) -> Integers:
        """The provider of each source."""
        raise NotImplementedError

    def with_trait(self, trait: int | None) -> Booleans:
        """Return the allowed sources, by role, with a required trait; None: all of them."""
        return self.allowed if trait is None else self.allowed & self.has_required[trait]

    def trees_with_trait(self, trait: int) -> Booleans:
        """Return the hosts on which an allowed source has a required trait, free or not."""
        return trees_of(self.fleet, self.source_providers, self.with_trait(trait))

    def meets_others(self, rule: Rule) -> Booleans:
        """Return the sources of a tree itself that meet all conditions but those of one rule."""
        meets = np.ones(len(self.source_providers), dtype=np.bool_)
        for (other, _), failed in zip(self.requirements, self.failed, strict=True):
            if other is not rule:
                meets &= ~failed[OWN]
        return meets


def flags_of(
    requirements: Iterable[Eligibility], providers: Integers, roles: int = 1
) -> tuple[Booleans, ...]:
    """Return, by condition, which sources of some providers meet it."""
    return tuple([needed.eligible[:roles].take(providers, axis=1) for needed in requirements])


@dataclasses.dataclass(eq=False, kw_only=True)
class ClassCondition(SourceCondition):
    """A count of one class of the unnamed group: one source provides it, or devices provide parts.

    ``allowed`` leaves out inventories of providers at which a requested unit is allocated.
    """

    rules: Semantics
    amount: int
    requested: Amount | None  #: the requested amount; None: the count is a part of another amount
    units: tuple[str, ...]  #: requested by name
    rows: ClassRows
    provides_all: Booleans  #: could provide all of it alone
    is_device: Booleans  #: may provide a part if other devices provide the rest

    def __post_init__(self) -> None:
        #: whether several devices may provide it together
        self.is_split = bool(self.is_device.any())
        #: by required trait, whether all inventories have it
        self.all_have = tuple([bool(has_trait.all()) for has_trait in self.has_required])
        self._enough: dict[int | None, Booleans] = {}
        self._last: tuple[int, TreeDemand] | None = None

    @classmethod
    def compile(
        cls,
        fleet: Fleet,
        rules: Semantics,
        count: RequestedCount,
        eligibility: GroupEligibility,
        of_class: Iterable[Eligibility],
    ) -> ClassCondition:
        """Return the condition of a requested count. Cost: a pass over the inventories for each.

        :param of_class: the conditions on the providers of this class only
        """
        name, rows = count.resource_class, fleet.rows(count.resource_class)
        roles, allowed = 1, with_free_units(fleet, rows, count.units)
        if fleet.has_pools and (is_pool := fleet.is_pool[rows.provider]).any():
            roles, allowed = 2, np.stack((allowed & ~rows.is_part, allowed & is_pool))
        else:
            allowed = (allowed & ~rows.is_part)[np.newaxis]
        requirements = (*eligibility.of_each, *of_class)
        met = flags_of(requirements, rows.provider, roles)
        for flags in met:
            allowed &= flags
        is_device = rows.is_below if is_device_class(name) else rows.is_single
        if count.units or not rules.splits_devices:
            is_device = np.zeros_like(is_device)
        return cls(
            fleet,
            name,
            requirements=tuple([(needed.rule, needed.label) for needed in requirements]),
            failed=tuple([~flags for flags in met]),
            has_required=flags_of(eligibility.of_some, rows.provider, roles),
            allowed=allowed,
            rules=rules,
            amount=count.amount,
            requested=count.requested,
            units=count.units,
            rows=rows,
            provides_all=rows.provides(count.amount),
            is_device=is_device,
        )

    @property
    def source_providers(self) -> Integers:
        """The provider of each inventory of the class."""
        return self.rows.provider

    @property
    def providers(self) -> Integers:
        """The providers that have the class, regardless of their free capacity."""
        return self.rows.provider[~self.rows.is_part]

    @property
    def is_of_devices(self) -> bool:
        """Whether it is a class of devices, or devices provide parts of it."""
        return is_device_class(self.resource_class) or self.is_split

    @property
    def has_pools(self) -> bool:
        """Whether a pool has an inventory of the class."""
        return len(self.allowed) > 1

    # --- over the fleet ---

    def from_pools(self, allowed: Booleans | None = None) -> Booleans:
        """Return the trees that are linked to a pool that provides all of it.

        :param allowed: the inventories, by role; None: all that are allowed
        """
        if not self.has_pools:
            return np.zeros(len(self.fleet.hosts), dtype=np.bool_)
        allowed = self.allowed if allowed is None else allowed
        pools = self.rows.provider[allowed[POOL] & self.provides_all]
        return self.fleet.pools.linked_to(pools, len(self.fleet.hosts))

    def enough(self, trait: int | None) -> Booleans:
        """Return the hosts that seem to have enough at sources with a required trait.

        :param trait: its number; None: at all sources. Computed once for each
        """
        if trait not in self._enough:
            allowed = self.with_trait(trait)
            is_of_all = trait is not None and (
                self.all_have[trait] or np.array_equal(allowed, self.allowed)
            )
            self._enough[trait] = self.enough(None) if is_of_all else self._has_enough(allowed)
        return self._enough[trait]

    def _has_enough(self, allowed: Booleans) -> Booleans:
        fleet, rows, sources = self.fleet, self.rows, allowed[OWN]
        enough = np.zeros(len(fleet.hosts), dtype=np.bool_)
        if not len(rows.tree):
            return enough
        if fleet.is_everywhere(self.resource_class):
            enough = sources & self.provides_all
        else:
            enough[rows.tree[sources & self.provides_all]] = True
        if self.is_split:
            provides = sources & self.is_device & (rows.low <= rows.high)
            # exact in 64 bits: a capacity is below 2^43, so no sum over a tree comes near 2^63
            parts = np.where(provides, np.minimum(rows.high, self.amount), 0)
            # np.diff would take longer than all else here
            starts = np.concatenate(([True], rows.tree[1:] != rows.tree[:-1])).nonzero()[0]
            together = np.add.reduceat(parts, starts)
            if fleet.has_shares:
                together -= _excess(fleet, rows.first, parts)[rows.tree[starts]]
            enough[rows.tree[starts[together >= self.amount]]] = True
        if self.has_pools:
            enough |= self.from_pools(allowed)
        return enough

    def checks(self) -> Iterator[Check]:
        """Yield the amount; then the class, and each condition on its providers."""
        yield self.check_of_trait(None, None)
        rows, name = self.rows, self.resource_class
        able = ~rows.is_part[np.newaxis]
        if self.has_pools:
            able = np.stack((*able, self.fleet.is_pool[rows.provider]))
        yield Check(
            trees_of(self.fleet, rows.provider, able),
            Rule.NO_INVENTORY,
            "",
            name,
            amount=self.amount,
            rows=rows,
            divisible=self.is_device & ~rows.is_part if self.is_split else None,
        )
        for number, (rule, label) in enumerate(self.requirements):
            able = able & ~self.failed[number]
            words = f"{name} {in_words(self.requirements[: number + 1])}"
            passing = trees_of(self.fleet, rows.provider, able)
            yield Check(passing, rule, "", name, label, words)

    def check_of_trait(self, trait: int | None, label: str | None) -> Check:
        """Return the check that there is enough at sources with a required trait.

        :param trait: its number; None: at all sources
        """
        conditions = [*self.requirements, *([] if label is None else [(Rule.TRAIT_MISSING, label)])]
        allowed = self.with_trait(trait)
        return Check(
            self.enough(trait),
            self.rule,
            "",
            self.resource_class,
            label,
            in_words(conditions) if conditions else "",
            self.amount,
            self.rows,
            allowed,
            allowed[OWN] & self.is_device if self.is_split else None,
        )

    # --- on one tree ---

    def of_tree(self, tree: int) -> TreeDemand:
        """Return the demand on one tree; the last one is remembered. Cost: 10 microseconds."""
        last = self._last
        if last is None or last[0] != tree:
            self._last = last = tree, self._of_tree(tree)
        return last[1]

    def _of_tree(self, tree: int) -> TreeDemand:
        rows, inventories = self.rows, self.fleet.inventories
        own = rows.of_tree(tree)
        count = own.stop - own.start
        numbers: Sequence[int] = range(rows.first + own.start, rows.first + own.stop)
        selected: Any = slice(rows.first + own.start, rows.first + own.stop)
        is_device = self.is_device[own].tolist()
        at: Any = (OWN, own)
        pools = pools_of(self.fleet, self.rules, tree) if self.has_pools else ()
        if pools:
            of_pools = np.flatnonzero(np.isin(rows.provider, pools))
            entries = np.concatenate((np.arange(own.start, own.stop), of_pools))
            numbers = selected = (entries + rows.first).tolist()
            is_device += [False] * len(of_pools)
            at = np.repeat((OWN, POOL), (count, len(of_pools))), entries
        columns = (inventories.low, inventories.high, inventories.step_size)
        return TreeDemand(
            amount=self.amount,
            numbers=numbers,
            sources=tuple(map(_source, *(c[selected].tolist() for c in columns), is_device)),
            allowed=bits(self.allowed[at].tolist()),
            with_trait=tuple(bits(has[at].tolist()) for has in self.has_required),
            shared_uses=self._shared_uses(numbers) if self.fleet.has_shares else {},
            own=count,
        )

    def _shared_uses(self, numbers: Sequence[int]) -> dict[int, list[Link]]:
        shares, result = self.fleet.shares, dict[int, list[Link]]()
        if isinstance(numbers, range):
            links = shares.between(numbers.start, numbers.stop)
        else:
            links = [link for number in numbers for link in shares.between(number, number + 1)]
        place = {number: place for place, number in enumerate(numbers)} if links else {}
        for source, target, factor in links:
            result.setdefault(place[source], []).append((target, factor))
        return result

    def can(self, tree: int, sources: int) -> bool:
        """Return True if some sources, as bits, can provide it, or if a decision takes too long."""
        demand = self.of_tree(tree).only(sources)
        most = 0
        for source in demand.sources:  # the sums need no search
            if source.high >= source.low:
                most += source.high if source.is_device else 0
                most = max(most, source.high)
        return most >= demand.amount and may_provide(self.fleet, tree, [demand])

    # --- reasons ---

    def sources_on(self, hosts: HostSet) -> Sources:
        """Return the sources on some hosts."""
        pairs = hosts.inventories(self.rows)
        if not self.has_pools and hosts.fleet.has_pools:
            pairs = pairs.where(pairs.role == OWN)
        flags = (pairs.flags(has) for has in self.has_required)
        return Sources(pairs, pairs.flags(self.allowed), tuple(flags))

    def short(self, tree: int, sources: int) -> list[Reason]:
        """Return the reasons on one tree if only some sources, as bits, may provide it."""
        hosts = HostSet(self.fleet, self.rules, integers([tree]))
        findings = Findings(hosts, decides=True)
        findings.begin(self)
        here = self.sources_on(hosts)
        flags = np.array([sources >> n & 1 for n in range(len(here.allowed))], dtype=np.bool_)
        findings.sources[self] = here, flags
        self.find(findings, ~hosts.none())
        return list(findings.by_tree().get(tree, ()))

    def find(self, findings: Findings, among: Booleans) -> None:
        """Add the reasons of some hosts."""
        self.find_within(findings, among, *findings.sources[self], self)

    def find_within(
        self,
        findings: Findings,
        hosts: Booleans,
        sources: Sources,
        may_provide: Booleans,
        condition: Condition,
        group: str | None = None,
    ) -> None:
        """Add the reasons of some hosts by which some sources do not provide it.

        :param may_provide: the sources, as flags of the pairs
        :param condition: by which the hosts fail
        :param group: the suffixes of named groups; reasons about them name the only provider
        """
        rows, host_set = self.rows, findings.hosts
        name, amount = self.resource_class, self.amount
        pairs = sources.pairs
        counted = pairs.where(~rows.is_part[pairs.entry])
        has_allowed = host_set.any(pairs.host[sources.allowed])
        is_lost = has_allowed & ~host_set.any(pairs.host[may_provide])
        is_without = hosts & (is_lost | ~host_set.any(counted.host))
        at = np.flatnonzero(is_without)
        findings.add(condition, Rule.NO_INVENTORY, at, amount, resource=name, group=group)

        def allocated_units(host: int) -> list[Reason]:
            numbers = self.of_tree(int(host_set.trees[host])).numbers
            return reasons_of_units(self.fleet, name, amount, self.units, numbers)

        is_excluded = hosts & ~is_without & ~has_allowed
        findings.add_excluded(
            condition,
            is_excluded,
            counted.host,
            self.requirements,
            [counted.flags(failed) for failed in self.failed],
            amount,
            name,
            group,
            otherwise=allocated_units,
        )
        is_open = hosts & ~is_without & ~is_excluded
        able = pairs.where(may_provide)
        is_few = host_set.sum(rows.free[able.entry].clip(0), able.host) < amount
        needs_decision = host_set.has_shares
        if self.has_pools:
            needs_decision = needs_decision | host_set.has_pools
        provider = None
        if group is not None:
            provider = host_set.fleet.roots[host_set.trees]
            is_only = np.bincount(able.host, minlength=len(host_set))[able.host] == 1
            provider[able.host[is_only]] = rows.provider[able.entry[is_only]]
        is_full = is_open & is_few & ~needs_decision
        findings.add_full(condition, is_full, able, rows, amount, name, where=provider, group=group)
        is_open &= needs_decision | ~is_few
        is_open[able.host[self.provides_all[able.entry]]] = False
        if self.is_split:
            is_open &= needs_decision | ~self._add_up(host_set, able)
        else:  # enough together, but no source has it: the reason is about that with the most
            most = able.where(_has_most(able.host, rows.free[able.entry]))
            is_full = is_open & ~needs_decision
            is_full[most.host[rows.free[most.entry] >= amount]] = False
            provider = host_set.fleet.roots[host_set.trees]
            provider[most.host] = rows.provider[most.entry]
            findings.add_full(
                condition, is_full, most, rows, amount, name, where=provider, group=group
            )
            is_open &= ~is_full

        def decide(host: int) -> list[Reason]:
            able = bits(may_provide[pairs.of_host(host)].tolist())
            reasons = self._decide(int(host_set.trees[host]), able, is_named=group is not None)
            return [dataclasses.replace(reason, group=group) for reason in reasons]

        findings.add_each(condition, is_open, decide)

    def _add_up(self, hosts: HostSet, sources: Pairs) -> Booleans:
        """Return the hosts whose devices surely provide it together: they provide any part."""
        rows, entry = self.rows, sources.entry
        is_device = self.is_device[entry] & (rows.low[entry] <= rows.high[entry])
        host, entry = sources.host[is_device], entry[is_device]
        is_odd = (rows.step_size[entry] > 1) | (rows.low[entry] > 1)
        sums = hosts.sum(np.minimum(rows.high[entry], self.amount), host)
        return (sums >= self.amount) & ~hosts.any(host[is_odd])

    def _decide(self, tree: int, sources: int, *, is_named: bool) -> list[Reason]:
        """Return the reasons on one tree of some sources, at least one."""
        demand, fleet = self.of_tree(tree), self.fleet
        places = members(demand, sources)
        shortage = Shortage(
            fleet,
            fleet.hosts[tree],
            self.resource_class,
            demand.amount,
            [demand.numbers[place] for place in places],
            {demand.numbers[place] for place in places if demand.sources[place].is_device},
            is_pooled=not (sources & ((1 << demand.own) - 1) if is_named else demand.own),
            names_provider=is_named,
        )
        if not (is_named or shortage.is_of_sums):  # one provider of a group has no joint use
            if self.can(tree, sources):
                return []
            if reasons := overdrawn(fleet, tree, [demand.only(sources)]):
                return reasons
        return shortage.reasons()

    def lacks(self, tree: int, trait: int, required: Sequence[str]) -> Reason:
        """Return the reason that no provider has a required trait, by its number.

        If a provider has it, the reason has the other conditions too: on each provider, and the
        traits before it.
        """
        host, amount, name = self.fleet.hosts[tree], self.amount, self.resource_class
        sources = self.sources_on(HostSet(self.fleet, self.rules, integers([tree])))
        counted = ~self.rows.is_part[sources.pairs.entry]
        failed = [sources.pairs.flags(flags)[counted] for flags in self.failed]
        is_allowed = bool((sources.allowed & sources.has_required[trait]).any())
        traits = range(trait + 1) if is_allowed else [trait]
        conditions = [(Rule.TRAIT_MISSING, required[number]) for number in traits]
        lacking = [~sources.has_required[number][counted] for number in traits]
        reasons = excluded(
            [*conditions, *self.requirements], [*lacking, *failed], amount, name, host
        )
        if reasons and (is_allowed or not lacking[0].all()):
            return reasons[0]
        if not is_allowed:
            return Reason(Rule.TRAIT_MISSING, amount, 0, 0, name, host, trait=required[trait])
        numbers = (sources.pairs.entry[sources.allowed] + self.rows.first).tolist()
        holders = self.fleet.holders(numbers)
        words = in_words(conditions)
        return Reason(Rule.TRAITS_AT_ONCE, amount, 0, 0, name, host, holders, unit=words)


def _has_most(host: Integers, free: Integers) -> Booleans:
    """Return the first pair of each host that has the most free; pairs are in order of hosts."""
    order = np.lexsort((-free, host))
    has_most = np.zeros(len(host), dtype=np.bool_)
    has_most[order[np.flatnonzero(np.diff(host, prepend=-1))]] = True
    return has_most


def with_free_units(fleet: Fleet, rows: ClassRows, units: Sequence[str]) -> Booleans:
    """Return the inventories of providers at which none of some units is allocated."""
    if not units:
        return np.ones(len(rows.provider), dtype=np.bool_)
    return ~np.isin(rows.provider, list(fleet.units.allocated(units)))


def _excess(fleet: Fleet, first: int, parts: Integers) -> Integers:
    """Return, by tree, how much less its inventories provide together than the sum of parts.

    Inventories that use another one through shares provide at most what is free of it. If they use
    several, the first of each are compared, then the second, and so on: the largest excess counts.

    :param first: the number of the first inventory of the class
    :param parts: the most that each of them provides
    """
    rows, shares = fleet.inventories, fleet.shares
    worst = np.zeros(len(fleet.hosts), dtype=np.int64)
    here = shares.entries(first, first + len(parts))
    source, target = shares.source[here] - first, shares.target[here]
    turn = np.arange(len(source)) - source.searchsorted(source)
    for number in range(int(turn.max()) + 1 if len(turn) else 0):
        is_now = turn == number
        order = np.argsort(target[is_now], kind="stable")
        used = target[is_now][order]
        starts = np.flatnonzero(np.diff(used, prepend=-1))
        used = used[starts]
        provided = np.add.reduceat(parts[source[is_now][order]], starts)
        factor = np.minimum.reduceat(shares.factor[here][is_now][order], starts)
        free = (rows.capacity[used] - rows.used[used]).clip(0)
        excess = np.zeros_like(worst)
        np.add.at(excess, rows.tree[used], np.maximum(provided - free // factor, 0))
        np.maximum(worst, excess, out=worst)
    return worst
