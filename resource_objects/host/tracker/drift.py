"""Drift: what the ledger says is used of a host, against who really runs there.

A ledger is never computed anew from what runs: that would hide who leaks. What differs is told,
with a plan that would mend it; who decides that it is right applies the plan, which is refused as a
whole if one of its consumers was changed since.

==================  ===============================================================================
an orphan           holds something of a host and does not run there
an unknown one      runs on a host and holds nothing
one elsewhere       runs on a host and holds something of others only
one that differs    holds other amounts than it runs with
==================  ===============================================================================

What is on its way is no drift: a claim that is held and not confirmed, and a consumer that moves,
which may run at the source, at the destination or, while it is migrated live, at both. Nor is what
is used by nobody in particular.

Driver and ledger cannot be asked at the same moment. So who seems to have drifted is looked at
again: drift is what the driver said before and after the consumers were read, and the plan holds
for these only as they were read.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from resource_objects import exceptions, names
from resource_objects.host.tracker.driver import Driver
from resource_objects.host.tracker.moves import MIGRATION_TYPES, migration_of
from resource_objects.host.tracker.report import Finding, FindingKind
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
    """What differs, and a plan that would mend as much of it as can be said. False if nothing does.

    >>> print(HostDrift())
    no drift
    """

    findings: tuple[Finding, ...] = ()
    plan: Plan = dataclasses.field(default_factory=Plan)

    def __bool__(self) -> bool:
        return bool(self.findings)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "no drift"


@dataclasses.dataclass(frozen=True, slots=True)
class _Tree:
    """The tree of a host: its name, and the numbers and names of its providers by uuid."""

    host: str
    uuid: str
    uuids: frozenset[str]


def drift_of(
    ledger: Ledger,
    driver: Driver,
    hosts: Iterable[str],
    older_than: datetime.timedelta | None = None,
) -> HostDrift:
    """Compare who runs on hosts with who holds something of them. Nothing is changed.

    Hosts of which the driver does not know who runs there, or that the ledger does not have, are
    left out. A consumer that comes, goes or changes meanwhile has not drifted: of hosts where
    somebody has, the driver is asked before the consumers are read and after, and what it says both
    times counts. Cost: a read of all the hosts; if somebody has drifted one of these consumers, and
    of the pools that orphans hold something of.

    :param older_than: what is held and not confirmed counts if it is older than this; None: it does
        not count
    """
    before = None if older_than is None else ago("older_than", older_than, ledger.now())
    running, findings = _asked(driver, hosts)
    if not running:
        return HostDrift(tuple(findings))
    columns = ledger.backend.read(*running)
    kept = _trees(columns)
    holders = _holders(columns)
    suspects = {
        host: frozenset(_suspects(kept[host], runs, holders[kept[host].uuid]))
        for host, runs in running.items()
        if host in kept
    }
    suspects = {host: some for host, some in suspects.items() if some}
    if not suspects:
        return HostDrift(tuple(findings))
    every = frozenset[str]().union(*suspects.values())
    records = ledger.backend.held_by({*every, *map(migration_of, every)})
    again, failed = _asked(driver, suspects)
    compared = _Compared(records, before)
    for host, now in again.items():
        compared.compare(kept[host], suspects[host], running[host], now)
    orders = compared.orders(functools.partial(_pools, ledger))
    plan = Plan(orders=orders, names={one.uuid: one.host for one in kept.values()})
    return HostDrift((*findings, *failed, *compared.findings), plan)


def _asked(
    driver: Driver, hosts: Iterable[str]
) -> tuple[dict[str, dict[str, Amounts | None]], list[Finding]]:
    """Return who runs on the hosts of which the driver knows it, and what is wrong with others."""
    running: dict[str, dict[str, Amounts | None]] = {}
    findings: list[Finding] = []
    for host in hosts:
        try:
            found = driver.consumers(host)
            if found is not None:
                running[host] = _running(found)
        except exceptions.InvalidInput as error:
            findings.append(Finding.of(host, error))
        except Exception as error:  # a driver may fail in any way: it is told with its host
            findings.append(Finding(host, FindingKind.DRIVER_FAILED, error))
    return running, findings


def _running(found: object) -> dict[str, Amounts | None]:
    """Return who runs as a driver says, checked."""
    if not isinstance(found, Mapping):
        raise exceptions.InvalidInput("field", "consumers", found, "{consumer: amounts}, or None")
    return {
        names.consumer_name(name): None if amounts is None else Amounts(amounts)
        for name, amounts in found.items()
    }


def _trees(columns: Columns) -> dict[str, _Tree]:
    """Return the trees of roots, by name."""
    given = columns.providers
    uuids: dict[int, set[str]] = defaultdict(set)
    for uuid, root in zip(given.uuid, given.root_id, strict=True):
        uuids[root].add(uuid)
    rows = zip(given.name, given.uuid, given.provider_id, given.root_id, strict=True)
    return {
        name: _Tree(name, uuid, frozenset(uuids[number]))
        for name, uuid, number, root in rows
        if number == root
    }


def _holders(columns: Columns) -> Mapping[str, Mapping[str, dict[str, int]]]:
    """Return ``{uuid of a root: {consumer: {class: amount}}}`` of all that is held."""
    root_of = columns.index.roots
    uuid_of = columns.index.uuids
    found: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for number, kind, consumer, amount in zip(*columns.allocations, strict=True):
        held = found[uuid_of[root_of[number]]][consumer]
        held[kind] = held.get(kind, 0) + amount
    return found


def _suspects(
    tree: _Tree, running: Mapping[str, Amounts | None], holders: Mapping[str, dict[str, int]]
) -> Iterator[str]:
    """Yield those of a host who may have drifted; of all others nothing more is read."""
    yield from running.keys() ^ holders.keys()
    for name in running.keys() & holders.keys():
        amounts = running[name]
        if amounts is not None and _differ(tree, amounts, holders[name]):
            yield name


def _differ(tree: _Tree, amounts: Amounts, held: Mapping[str, int]) -> bool:
    """Return whether somebody runs with other amounts than it holds.

    Of a topology or devices only those counts are compared that are said beside them.
    """
    runs = _summed(_counted(tree, amounts))
    if all(isinstance(amount, IntegerAmount) for _, amount in amounts.by_name()):
        return runs != held
    return any(held.get(name) != amount for name, amount in runs.items())


@dataclasses.dataclass(frozen=True, slots=True)
class _Pools:
    """Of some providers: of what tree each is, and to which trees each that is a pool gives."""

    root_of: Mapping[str, str]
    members: Mapping[str, frozenset[str]]

    def left(self, uses: Iterable[Use]) -> tuple[Use, ...]:
        """Return what stays: what is held of hosts, and of the pools that give to these."""
        every = tuple(uses)
        at = {self.root_of.get(use.key[0]) for use in every if use.key[0] not in self.members}
        return tuple(
            use
            for use in every
            if use.key[0] not in self.members or not at.isdisjoint(self.members[use.key[0]])
        )


def _pools(ledger: Ledger, uuids: Collection[str]) -> _Pools:
    """Read which of some providers are pools. Cost: nothing for none; else two lists."""
    found = list(ledger.providers(uuid=sorted(uuids))) if uuids else []
    pools = {one.uuid: one.aggregates for one in found if SHARES in one.traits}
    inside: dict[str, set[str]] = defaultdict(set)
    for aggregate in sorted(frozenset[str]().union(*pools.values())):
        inside[aggregate].update(one.root_uuid for one in ledger.providers(aggregates=[aggregate]))
    return _Pools(
        {one.uuid: one.root_uuid for one in found},
        {
            uuid: frozenset[str]().union(*(inside[one] for one in own))
            for uuid, own in pools.items()
        },
    )


class _Compared:
    """The comparison of allocations with running guests, host by host."""

    def __init__(
        self, records: Mapping[str, ConsumerRecord], before: datetime.datetime | None
    ) -> None:
        self._records = records
        self._before = before
        self._orphans: dict[str, set[str]] = defaultdict(set)  #: uuids of the trees to leave
        self._unknown: dict[str, list[Use]] = defaultdict(list)
        self._others: dict[str, ConsumerOrder] = {}
        self.findings: list[Finding] = []

    def orders(self, pools: Callable[[Collection[str]], _Pools]) -> tuple[ConsumerOrder, ...]:
        """Return what would mend it, of each consumer once.

        :param pools: tells what of the providers with these uuids is a pool
        """
        rest = {
            name: [use for use in self._records[name].held if use.key[0] not in gone]
            for name, gone in self._orphans.items()
        }
        known = pools({use.key[0] for uses in rest.values() for use in uses})
        orders: dict[str, ConsumerOrder] = {}
        for name, uses in rest.items():
            left, at = known.left(uses), self._records[name].generation
            orders[name] = (
                ConsumerOrder.replace(name, left, generation=at)
                if left
                else ConsumerOrder.release(name, at)
            )
        for name, uses in self._unknown.items():
            # it is in use already, whether there is room or not
            orders.setdefault(name, ConsumerOrder.claim(name, tuple(uses), adopts=True))
        return tuple({**self._others, **orders}.values())

    def compare(
        self,
        tree: _Tree,
        suspects: Iterable[str],
        before: Mapping[str, Amounts | None],
        now: Mapping[str, Amounts | None],
    ) -> None:
        """Say what differs on a host.

        :param before: who ran there before the consumers were read, ``now`` who runs there since
        """
        for name in sorted(suspects):
            if (name in before) is not (name in now):
                continue  # it came or went meanwhile
            record = self._records.get(name)
            here = () if record is None else _at(tree, record)
            if name not in now:
                if record is not None and here and self._is_orphan(record):
                    self._orphan(tree, record)
            elif record is not None and here:
                was, runs = before[name], now[name]
                if was is None or runs is None or self._is_on_its_way(record):
                    continue
                if all(_differ(tree, one, _summed(here)) for one in (was, runs)):
                    self._differs(tree, record, runs)
            elif not _at(tree, self._records.get(migration_of(name))):
                if record is None:
                    self._stray(tree, name, now[name])
                else:
                    where = ", ".join(sorted({use.provider or use.key[0] for use in record.held}))
                    said = f"runs here, and holds of {where}"
                    self._tell(tree, FindingKind.ELSEWHERE, name, said)

    def _is_on_its_way(self, record: ConsumerRecord) -> bool:
        """Return whether a consumer moves, or is on trial and not too old for that."""
        if migration_of(record.consumer) in self._records:
            return True
        if record.state == CONFIRMED:
            return False
        return self._before is None or record.created_at >= self._before

    def _is_orphan(self, record: ConsumerRecord) -> bool:
        if record.consumer_type in MIGRATION_TYPES or is_unattributed(record.consumer):
            return False
        return not self._is_on_its_way(record)

    def _orphan(self, tree: _Tree, record: ConsumerRecord) -> None:
        said = f"holds {_said(_at(tree, record))} and does not run here"
        self._tell(tree, FindingKind.ORPHAN, record.consumer, said)
        self._orphans[record.consumer] |= tree.uuids

    def _stray(self, tree: _Tree, name: str, amounts: Amounts | None) -> None:
        uses = () if amounts is None else tuple(_counted(tree, amounts))
        if uses:
            self._unknown[name] += uses
        self._tell(tree, FindingKind.UNKNOWN_CONSUMER, name, "runs here and holds nothing")

    def _differs(self, tree: _Tree, record: ConsumerRecord, amounts: Amounts) -> None:
        uses = tuple(_counted(tree, amounts))
        said = f"holds {_said(_at(tree, record))} and runs with {_said(uses)}"
        self._tell(tree, FindingKind.DIFFERS, record.consumer, said)
        if any(use.key[0] != tree.uuid or use.units for use in record.held):
            return  # nobody can say of which cell or device it has more or less
        if uses:
            self._others[record.consumer] = ConsumerOrder.replace(
                record.consumer, uses, generation=record.generation, adopts=True
            )

    def _tell(self, tree: _Tree, kind: FindingKind, consumer: str, said: str) -> None:
        self.findings.append(
            Finding(tree.host, kind, detail=f"{consumer} {said}", consumer=consumer)
        )


def _at(tree: _Tree, record: ConsumerRecord | None) -> tuple[Use, ...]:
    """Return what a consumer holds of a host."""
    held = () if record is None else record.held
    return tuple(use for use in held if use.key[0] in tree.uuids)


def _counted(tree: _Tree, amounts: Amounts) -> Iterator[Use]:
    """Yield amounts as uses of the host itself."""
    for name, amount in amounts.by_name():
        # where a topology goes nobody can say who did not place it; what it counts is beside it
        for record in amount.to_records(name) if isinstance(amount, IntegerAmount) else ():
            if record.amount:
                yield Use(tree.uuid, record.resource_class, record.amount)


def _summed(uses: Iterable[Use]) -> dict[str, int]:
    found: dict[str, int] = {}
    for use in uses:
        found[use.key[1]] = found.get(use.key[1], 0) + use.amount
    return found


def _said(uses: Iterable[Use]) -> str:
    return str(Amounts(_summed(uses)))
