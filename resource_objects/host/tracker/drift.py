"""Drift: the allocations of hosts compared with the consumers that run there.

A ledger is never rebuilt from the running consumers, which would hide leaks. Differences are
reported, with a plan that corrects them. An operator checks and applies the plan, which is refused
as a whole if one of its consumers was changed since.

====================  =============================================================================
``ORPHAN``            has allocations of a host and does not run there
``UNKNOWN_CONSUMER``  runs on a host and has no allocations
``ELSEWHERE``         runs on a host and has allocations of others only
``DIFFERS``           has other amounts allocated than it runs with
====================  =============================================================================

Three kinds of consumers do not drift: unconfirmed claims; moving consumers, which may run at the
source, at the destination or, during a live migration, at both; and unattributed usage.

Driver and ledger cannot be read at the same moment. So the driver is asked again about hosts with
suspects. A difference is drift if it is in both reports of the driver, and the plan applies only to
consumers as they were read in between.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions, names
from resource_objects.host.holdings import Holdings
from resource_objects.host.tracker.driver import Driver
from resource_objects.host.tracker.moves import MIGRATION_TYPES, migration_of
from resource_objects.host.tracker.report import FindingKind, HostFinding
from resource_objects.providers.allocation import CONFIRMED
from resource_objects.providers.arguments import ago
from resource_objects.providers.columns import Columns
from resource_objects.providers.holders import is_unattributed
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Use
from resource_objects.providers.plan import Plan
from resource_objects.providers.pools import SHARES
from resource_objects.resources import Amounts, IntegerAmount

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger


@dataclasses.dataclass(frozen=True, slots=True)
class HostDrift:
    """The differences, and a plan that corrects those that it can. False without differences.

    >>> print(HostDrift())
    no drift
    """

    findings: tuple[HostFinding, ...] = ()
    plan: Plan = dataclasses.field(default_factory=Plan)

    def __bool__(self) -> bool:
        return bool(self.findings)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "no drift"


@dataclasses.dataclass(frozen=True, slots=True)
class _Tree:
    """The tree of a host: its name, its uuid, and the uuids of all its providers."""

    host: str
    uuid: str
    uuids: frozenset[str]

    def uses(self, record: ConsumerRecord | None) -> tuple[Use, ...]:
        """Return the allocations of a consumer in the tree."""
        allocated = () if record is None else record.held
        return tuple(use for use in allocated if use.key[0] in self.uuids)

    def counted(self, amounts: Amounts) -> tuple[Use, ...]:
        """Return amounts as allocations of the host itself, without the placed ones."""
        return tuple(
            Use(self.uuid, record.resource_class, record.amount)
            for name, amount in amounts.by_name()
            if isinstance(amount, IntegerAmount)  # the placement of another one is not known
            for record in amount.to_records(name)
            if record.amount
        )

    def differs(self, amounts: Amounts, allocated: Mapping[str, int]) -> bool:
        """Return True if a consumer runs with other amounts than it has allocated.

        With a placed amount, only the counts that the driver reports are compared.
        """
        counts = _total(self.counted(amounts))
        if all(isinstance(amount, IntegerAmount) for _, amount in amounts.by_name()):
            return counts != allocated
        return any(allocated.get(name) != amount for name, amount in counts.items())


def drift_of(
    ledger: Ledger,
    driver: Driver,
    hosts: Iterable[str],
    older_than: datetime.timedelta | None = None,
) -> HostDrift:
    """Compare the allocations of hosts with the consumers that run there. Nothing is changed.

    Hosts whose consumers the driver does not know, or that the ledger does not have, are left out.
    Cost: a read of all the hosts; with suspects, a read of these, and of the pools that orphans
    have allocations of.

    :param older_than: unconfirmed claims count only if they are older than this; None: never
    """
    since = None if older_than is None else ago("older_than", older_than, ledger.now())
    running, findings = _running(driver, hosts)
    if not running:
        return HostDrift(tuple(findings))
    columns = ledger.backend.read(*running)
    trees, totals = _trees(columns), Holdings(columns).totals()
    suspects: dict[str, set[str]] = {}
    for host, consumers in running.items():
        if (tree := trees.get(host)) is not None:
            allocated = totals.get(tree.uuid, {})
            suspects[host] = consumers.keys() ^ allocated.keys()
            for name in consumers.keys() & allocated.keys():
                amounts = consumers[name]
                if amounts is not None and tree.differs(amounts, allocated[name]):
                    suspects[host].add(name)
    suspects = {host: consumers for host, consumers in suspects.items() if consumers}
    if not suspects:
        return HostDrift(tuple(findings))
    suspected = set[str]().union(*suspects.values())
    records = ledger.backend.held_by({*suspected, *map(migration_of, suspected)})
    again, failures = _running(driver, suspects)
    comparison = _Comparison(records, since)
    for host, consumers in again.items():
        for name in sorted(suspects[host]):
            if (name in running[host]) is (name in consumers):  # else it came or left meanwhile
                comparison.compare(trees[host], name, running[host], consumers)
    plan = Plan(
        orders=comparison.orders(ledger), names={tree.uuid: tree.host for tree in trees.values()}
    )
    return HostDrift((*findings, *failures, *comparison.findings), plan)


def _running(
    driver: Driver, hosts: Iterable[str]
) -> tuple[dict[str, dict[str, Amounts | None]], list[HostFinding]]:
    """Return the consumers by host where the driver knows them, and the findings about others."""
    running: dict[str, dict[str, Amounts | None]] = {}
    findings: list[HostFinding] = []
    for host in hosts:
        try:
            consumers: Any = driver.consumers(host)
            if consumers is None:
                continue
            if not isinstance(consumers, Mapping):
                expected = "{consumer: amounts}, or None"
                raise exceptions.InvalidInput("field", "consumers", consumers, expected)
            running[host] = {
                names.consumer_name(name): None if amounts is None else Amounts(amounts)
                for name, amounts in consumers.items()
            }
        except exceptions.InvalidInput as error:
            findings.append(HostFinding.of(host, error))
        except Exception as error:  # a driver may fail in any way: the finding names its host
            findings.append(HostFinding(host, FindingKind.DRIVER_FAILED, error=error))
    return running, findings


def _trees(columns: Columns) -> dict[str, _Tree]:
    """Return the trees by the names of their roots."""
    providers = columns.providers
    uuids: dict[int, set[str]] = defaultdict(set)
    for uuid, root in zip(providers.uuid, providers.root_id, strict=True):
        uuids[root].add(uuid)
    rows = zip(providers.name, providers.uuid, providers.provider_id, strict=True)
    return {
        name: _Tree(name, uuid, frozenset(uuids[number]))
        for name, uuid, number in rows
        if number in uuids
    }


class _Comparison:
    """The comparison of allocations with running consumers: findings, and orders that correct."""

    def __init__(
        self, records: Mapping[str, ConsumerRecord], since: datetime.datetime | None
    ) -> None:
        self._records = records
        self._since = since
        self._orphans: dict[str, set[str]] = defaultdict(set)  # uuids of the trees to leave
        self._missing: dict[str, tuple[Use, ...]] = defaultdict(tuple)
        self._replacements: dict[str, ConsumerOrder] = {}
        self.findings: list[HostFinding] = []

    def compare(
        self,
        tree: _Tree,
        name: str,
        before: Mapping[str, Amounts | None],
        now: Mapping[str, Amounts | None],
    ) -> None:
        """Compare one suspect.

        :param before, now: the running consumers before and after the allocations were read
        """
        record = self._records.get(name)
        uses = tree.uses(record)
        if record is not None and uses:
            if self._is_in_progress(record):
                return
            if name in now:
                self._compare_amounts(tree, record, before[name], now[name])
            elif record.consumer_type not in MIGRATION_TYPES and not is_unattributed(name):
                detail = f"has {_text(uses)} allocated and does not run here"
                self._add(tree, FindingKind.ORPHAN, name, detail)
                self._orphans[name] |= tree.uuids
        elif name in now and not tree.uses(self._records.get(migration_of(name))):
            if record is not None:
                hosts = ", ".join(sorted({use.provider or use.key[0] for use in record.held}))
                detail = f"runs here and has allocations of {hosts} only"
                self._add(tree, FindingKind.ELSEWHERE, name, detail)
                return
            amounts = now[name]
            if amounts is not None and (running := tree.counted(amounts)):
                self._missing[name] += running
            self._add(tree, FindingKind.UNKNOWN_CONSUMER, name, "runs here and has no allocations")

    def _compare_amounts(
        self, tree: _Tree, record: ConsumerRecord, before: Amounts | None, now: Amounts | None
    ) -> None:
        """Compare the amounts that a consumer runs with, before and now, with its allocations."""
        name, uses = record.consumer, tree.uses(record)
        if before is None or now is None:
            return
        if not all(tree.differs(amounts, _total(uses)) for amounts in (before, now)):
            return
        running = tree.counted(now)
        detail = f"has {_text(uses)} allocated and runs with {_text(running)}"
        self._add(tree, FindingKind.DIFFERS, name, detail)
        # with units or other providers, it is not known which of them are in excess
        is_counted = all(use.key[0] == tree.uuid and not use.units for use in record.held)
        if is_counted and running:
            self._replacements[name] = ConsumerOrder.replace(
                name, running, generation=record.generation, adopts=True
            )

    def _is_in_progress(self, record: ConsumerRecord) -> bool:
        """Return True if a consumer moves, or its claim is unconfirmed and not too old."""
        if migration_of(record.consumer) in self._records:
            return True
        if record.state == CONFIRMED:
            return False
        return self._since is None or record.created_at >= self._since

    def _add(self, tree: _Tree, kind: FindingKind, consumer: str, detail: str) -> None:
        detail = f"{consumer} {detail}"
        self.findings.append(HostFinding(tree.host, kind, detail, consumer=consumer))

    def orders(self, ledger: Ledger) -> tuple[ConsumerOrder, ...]:
        """Return the orders that correct the differences, one per consumer.

        An orphan keeps its allocations of other hosts, and of the pools of those hosts. Cost:
        nothing without orphans; else two lists.
        """
        remaining = {
            name: [use for use in self._records[name].held if use.key[0] not in uuids]
            for name, uuids in self._orphans.items()
        }
        uuids = sorted({use.key[0] for uses in remaining.values() for use in uses})
        listed = list(ledger.providers(uuid=uuids)) if uuids else []
        root_of = {provider.uuid: provider.root_uuid for provider in listed}
        pools = {entry.uuid: entry.aggregates for entry in listed if SHARES in entry.traits}
        roots_in: dict[str, set[str]] = {
            aggregate: {entry.root_uuid for entry in ledger.providers(aggregates=[aggregate])}
            for aggregate in sorted(frozenset[str]().union(*pools.values()))
        }
        orders: dict[str, ConsumerOrder] = {}
        for name, uses in remaining.items():
            hosts = {root_of.get(use.key[0]) for use in uses if use.key[0] not in pools}
            retained = tuple(
                use
                for use in uses
                if use.key[0] not in pools
                or any(hosts & roots_in[aggregate] for aggregate in pools[use.key[0]])
            )
            generation = self._records[name].generation
            orders[name] = (
                ConsumerOrder.replace(name, retained, generation=generation)
                if retained
                else ConsumerOrder.release(name, generation)
            )
        for name, uses_here in self._missing.items():
            # the amounts are in use already, whatever the capacity
            orders.setdefault(name, ConsumerOrder.claim(name, uses_here, adopts=True))
        return tuple({**self._replacements, **orders}.values())


def _total(uses: Iterable[Use]) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for use in uses:
        totals[use.key[1]] += use.amount
    return dict(totals)


def _text(uses: Iterable[Use]) -> str:
    return str(Amounts(_total(uses)))
