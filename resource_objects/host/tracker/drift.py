"""Drift: what the ledger says is used of a host, against who really runs there.

A ledger is never computed anew from what runs: that would hide who leaks. What differs is told,
with a plan that would mend it; who decides that it is right applies the plan, which does nothing if
somebody changed a consumer since.

==================  ===============================================================================
an orphan           holds something of a host and does not run there
an unknown one      runs on a host and holds nothing
one elsewhere       runs on a host and holds something of others only
one that differs    holds other amounts than it runs with
==================  ===============================================================================

What is on its way is no drift: a claim that is held and not confirmed, and both ends of a move. Nor
is what is used by nobody in particular.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from resource_objects import exceptions, names
from resource_objects.host.tracker.driver import Driver
from resource_objects.host.tracker.findings import Finding, FindingKind
from resource_objects.host.tracker.moves import MIGRATION, migration_of
from resource_objects.providers.allocation import CONFIRMED
from resource_objects.providers.attribution import unattributed
from resource_objects.providers.columns import Columns
from resource_objects.providers.given import ago
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Use
from resource_objects.providers.plan import Plan
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
    left out. Cost: a read of all the hosts, and one of the consumers that differ.

    :param older_than: an orphan whose claim is not confirmed counts if it is older than this; None:
        it does not count
    """
    before = None if older_than is None else ago("older_than", older_than, ledger.now())
    findings: list[Finding] = []
    running: dict[str, dict[str, Amounts | None]] = {}
    for host in hosts:
        try:
            found = driver.consumers(host)
            if found is not None:
                running[host] = _running(found)
        except exceptions.InvalidInput as error:
            findings.append(Finding.of(host, error))
        except Exception as error:  # a driver may fail in any way: it is told with its host
            findings.append(Finding(host, FindingKind.DRIVER_FAILED, error))
    if not running:
        return HostDrift(tuple(findings))
    columns = ledger.backend.read(*running)
    kept = _trees(columns)
    holders = _holders(columns)
    looked = [(kept[host], runs) for host, runs in running.items() if host in kept]
    suspects = {name for tree, runs in looked for name in _suspects(tree, runs, holders[tree.uuid])}
    records = ledger.backend.held_by({*suspects, *map(migration_of, suspects)}) if suspects else {}
    compared = _Compared(records, before)
    for tree, runs in looked:
        compared.compare(tree, runs, holders[tree.uuid])
    plan = Plan(orders=compared.orders, names={one.uuid: one.host for one in kept.values()})
    return HostDrift((*findings, *compared.findings), plan)


def _running(found: object) -> dict[str, Amounts | None]:
    """Return who runs as a driver says, checked."""
    if not isinstance(found, Mapping):
        raise exceptions.InvalidField("consumers", found, "{consumer: amounts}, or None")
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
    given = columns.providers
    root_of = dict(zip(given.provider_id, given.root_id, strict=True))
    uuid_of = dict(zip(given.provider_id, given.uuid, strict=True))
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


class _Compared:
    """What is held is compared with what runs, host by host. Pure."""

    def __init__(
        self, records: Mapping[str, ConsumerRecord], before: datetime.datetime | None
    ) -> None:
        self._records = records
        self._before = before
        self._orders: dict[str, ConsumerOrder] = {}
        self.findings: list[Finding] = []

    @property
    def orders(self) -> tuple[ConsumerOrder, ...]:
        """What would mend it, of each consumer once."""
        return tuple(self._orders.values())

    def compare(
        self,
        tree: _Tree,
        running: Mapping[str, Amounts | None],
        holders: Mapping[str, dict[str, int]],
    ) -> None:
        """Say what differs on a host."""
        suspects = set(_suspects(tree, running, holders))
        for name in sorted(suspects.difference(running)):
            record = self._records.get(name)
            if record is not None and self._is_orphan(tree, record):
                self._orphan(tree, record)
        for name in sorted(suspects.intersection(running)):
            record, amounts = self._records.get(name), running[name]
            if record is None:
                self._unknown(tree, name, amounts)
            elif amounts is not None and name in holders:
                self._differs(tree, record, amounts)
            elif migration_of(name) not in holders:
                where = ", ".join(sorted({use.provider or use.key[0] for use in record.held}))
                self._tell(tree, FindingKind.ELSEWHERE, name, f"runs here, and holds of {where}")

    def _is_orphan(self, tree: _Tree, record: ConsumerRecord) -> bool:
        if record.consumer_type == MIGRATION or record.consumer == unattributed(tree.host):
            return False
        if migration_of(record.consumer) in self._records:
            return False  # it is on its way here
        is_old = self._before is not None and record.created_at < self._before
        return record.state == CONFIRMED or is_old

    def _orphan(self, tree: _Tree, record: ConsumerRecord) -> None:
        here = [use for use in record.held if use.key[0] in tree.uuids]
        rest = tuple(use for use in record.held if use.key[0] not in tree.uuids)
        at = record.generation
        name = record.consumer
        self._tell(tree, FindingKind.ORPHAN, name, f"holds {_said(here)} and does not run here")
        self._orders[name] = (
            ConsumerOrder.replace(name, rest, generation=at)
            if rest
            else ConsumerOrder.release(name, at)
        )

    def _unknown(self, tree: _Tree, name: str, amounts: Amounts | None) -> None:
        said = "runs here and holds nothing"
        uses = None if amounts is None else tuple(_counted(tree, amounts))
        if uses:
            # it is in use already, whether there is room or not
            order = ConsumerOrder.claim(name, uses, adopts=True)
            self._orders.setdefault(name, order)
        self._tell(tree, FindingKind.UNKNOWN_CONSUMER, name, said)

    def _differs(self, tree: _Tree, record: ConsumerRecord, amounts: Amounts) -> None:
        held = _said(use for use in record.held if use.key[0] in tree.uuids)
        said = f"holds {held or 'nothing'} and runs with {_said(_counted(tree, amounts))}"
        self._tell(tree, FindingKind.DIFFERS, record.consumer, said)
        if any(use.key[0] != tree.uuid or use.units for use in record.held):
            return  # nobody can say of which cell or device it has more or less
        uses = tuple(_counted(tree, amounts))
        if uses:
            order = ConsumerOrder.replace(
                record.consumer, uses, generation=record.generation, adopts=True
            )
            self._orders.setdefault(record.consumer, order)

    def _tell(self, tree: _Tree, kind: FindingKind, consumer: str, said: str) -> None:
        self.findings.append(Finding(tree.host, kind, said=f"{consumer} {said}", consumer=consumer))


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
