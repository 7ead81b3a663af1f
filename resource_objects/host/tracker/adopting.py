"""Adopting hosts as they are used: one of old records becomes one of the ledger when it is written.

Fleets that ran before there was a ledger have records of their own: a row of ``compute_nodes`` for
each host, instances with flavors and topologies. Nobody migrates them. Whoever reads a host that
the ledger does not know gets a view of its record, and nothing is written. Whoever writes first
*adopts* the host: it is made with all that is in use of it, in one transaction. From then on the
ledger is the truth, and the record is kept right for those who still read it.

What is in use is held afterwards by the consumers that are known (:class:`RecordedConsumer`); what
the record says beyond them goes to the host's *unattributed* consumer
(:mod:`resource_objects.host.adoption`), and ``ledger.attribute`` moves it to whoever turns up.

The plan is worked out by rehearsal: in a ledger in memory the host is made, its known consumers
take what they have, and the record is bound and saved. So the rules are those of ``ComputeNode``
and of the ledger, and of no third party.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from resource_objects import exceptions, names
from resource_objects.host.columns import DERIVED, units
from resource_objects.host.compute_node import ComputeNode
from resource_objects.ledger import connect
from resource_objects.providers import Claim, Provider, diff
from resource_objects.providers.columns import Columns, find
from resource_objects.providers.composite import LocatedViews
from resource_objects.providers.dry_run import held_in
from resource_objects.providers.holders import absent, unattributed
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    Operation,
    StoredRequest,
    Use,
    Write,
    subject_of,
)
from resource_objects.providers.plan import Plan
from resource_objects.requests import Request
from resource_objects.resources import Amounts
from resource_objects.resources.amounts import PlacementSplit, split_placed

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedConsumer:
    """Who is known to run on a host that the ledger does not know yet, and what it has there.

    ``amounts`` is what ``Amounts`` takes. A topology and devices are assigned where it is known
    which they are (as :func:`~resource_objects.interop.nova.load_instance_numa_topology` reads
    them); else they are put where there is room beside the others.

    >>> RecordedConsumer("vm-1", "VCPU=2,MEMORY_MB=2048").amounts["VCPU"]
    IntegerAmount(2)
    """

    consumer: str
    amounts: Any
    project: str | None = None
    user: str | None = None
    consumer_type: str | None = None
    request: Request | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "consumer", names.consumer_name(self.consumer))
        object.__setattr__(self, "amounts", Amounts.from_value(self.amounts))


class LegacyRecords(Protocol):
    """Where hosts are looked up that the ledger does not know."""

    def read(self, host: str) -> Any:
        """Return the record of a host, what ``ComputeNode.read`` takes; None if there is none."""

    def consumers(self, host: str) -> Iterable[RecordedConsumer]:
        """Return who is known to run there; whoever is missing is adopted without a name."""

    def write(self, host: str, columns: Mapping[str, Any]) -> None:
        """Keep the columns of a record that changed, for those who still read it."""


class Adopter:
    """Adopts hosts when they are first written, and keeps their records right afterwards.

    Any number of threads may call it: of each host one adopts, reads or writes the record at a
    time. Several processes may adopt the same host, and one does.
    """

    def __init__(self, ledger: Ledger, records: LegacyRecords) -> None:
        self._ledger = ledger
        self._records = records
        self._adopted: set[str] = set()
        self._locks: dict[str, threading.Lock] = {}  # by host

    def adopt(self, host: str) -> tuple[Claim, ...]:
        """Adopt a host, if it has a record and nobody did; return the claims that were made.

        Cost: nothing after the first time; then those of :func:`adoption_plan` and a write.

        Errors are those of :func:`adoption_plan`; nothing was written then.
        """
        with self._alone_at(host):
            return () if host in self._adopted else self._adopt(host)

    def _adopt(self, host: str) -> tuple[Claim, ...]:
        def plan() -> Plan | None:
            record = self._records.read(host)
            if record is None:
                return None
            return adoption_plan(self._ledger, host, record, self._records.consumers(host))

        def write(plan: Plan | None) -> tuple[Claim, ...]:
            if plan is None:
                return ()
            claims = self._ledger.apply(plan)
            self._adopted.add(host)
            return claims

        return self._ledger.retries.write(plan, write, *_FASTER)

    def forget(self, *hosts: str) -> None:
        """Forget that hosts were adopted: somebody may have removed them since."""
        self._adopted.difference_update(hosts)

    def _alone_at(self, host: str) -> threading.Lock:
        # a figure that was read before another thread's claim must not be written after that one's
        return self._locks.setdefault(host, threading.Lock())

    def view(self, host: str, consumer: str | None = None) -> ComputeNode:
        """Return a host as the ledger has it, else as its record says. Nothing is written.

        :raises NotFound: if neither knows it
        """
        try:
            return ComputeNode.load(self._ledger, host, consumer)
        except exceptions.NotFound as error:
            if not error.is_about("provider"):
                raise
            record = self._records.read(host)
            if record is None:
                raise
            return ComputeNode.read(record)

    @contextlib.contextmanager
    def rehearsal(self, host: str) -> Iterator[Ledger | None]:
        """Yield a ledger in memory in which a host is as it will be when it is adopted.

        None if it is adopted, or has no record. Nothing is written.
        """
        with self._alone_at(host):
            record = None if host in self._adopted else self._records.read(host)
            known = () if record is None else tuple(self._records.consumers(host))
        columns = Columns() if record is None else self._ledger.backend.read(host)
        found = find(columns, host)
        if record is None or (found is not None and found[1].adopted_at is not None):
            yield None
        else:
            with _rehearsed(columns, host, record, _once(known).values()) as rehearsal:
                yield rehearsal

    def write_back(self, host: str) -> Mapping[str, Any]:
        """Bring the record of a host up to what the ledger says; return the columns that changed.

        Columns that the record has not are left out. A host that has no record, or is not adopted,
        is left alone. Cost: a read of the record, and two of the host.
        """
        with self._alone_at(host):
            record = self._records.read(host) if host in self._adopted else None
            if record is None:
                return {}
            node = ComputeNode.read(record).bind(self._ledger, provider=host)
            node.reload()  # what the record says otherwise is nothing to be written to the ledger
            # what is derived of others is a column too, though a node keeps none
            has = record if isinstance(record, Mapping) else {*node.row, *DERIVED}
            columns = {name: now for name, now in node.changes().items() if name in has}
            if columns:
                self._records.write(host, columns)
            return columns


#: What tells that somebody else wrote the host meanwhile, so that it is worked out again.
_FASTER = (
    "ConsumerExists",
    "ProviderExists",
    "ProviderNotFound",
    "StaleConsumer",
    "StaleDefinition",
    "UnitTaken",
)


def adoption_plan(
    ledger: Ledger, name: str, record: Any, known: Iterable[RecordedConsumer] = ()
) -> Plan:
    """Return the plan that adopts a host, which it makes if need be; empty if that was done.

    Nothing is written. ``ledger.apply`` carries it out, or refuses it if somebody was faster. Cost:
    two reads, some milliseconds, and what the host's consumers take.

    :param name: of the host in the ledger
    :param record: what ``ComputeNode.read`` takes
    :param known: who is known to run there; those who hold something of the host already keep it
    :raises InvalidInput: if the record cannot be read; if a consumer is known twice
    :raises AlreadyExists: if the host has another uuid than the record
    :raises CapacityException: if a known consumer has what the host has none of; if two of the
        known consumers have the same CPU or device; if what is not assigned fits nowhere
    :raises ForeignAmount: if something is assigned to what the host does not have

    >>> row = {"hypervisor_hostname": "old-1", "vcpus": 8, "vcpus_used": 6}
    >>> with connect("memory://") as ledger:
    ...     print(adoption_plan(ledger, "old-1", row, [RecordedConsumer("vm-1", "VCPU=4")]))
    + old-1: VCPU=8:max_unit=8:allocation_ratio=4
    + vm-1 allocates VCPU=4 of old-1
    + old-1/unattributed allocates VCPU=2 of old-1
    ~ old-1: adopted
    """
    consumers = _once(known)
    backend, holder = ledger.backend, unattributed(name)
    before = backend.held_by([holder, *consumers])
    columns = backend.read(name)
    found = find(columns, name)
    if found is not None and found[1].adopted_at is not None:
        return Plan()
    with _rehearsed(columns, name, record, consumers.values()) as rehearsal:
        there = set(columns.allocations.consumer)
        taken = rehearsal.backend.held_by([*consumers, holder])
        uuid = rehearsal.provider(name).uuid or ""
        orders = tuple(
            _order(
                one,
                before.get(one.consumer),
                tuple(held_in(columns, one.consumer)),
                one.consumer == holder,
            )
            for one in taken.values()
            if one.consumer == holder or one.consumer not in there
        )
        made = diff(None, _as_built(rehearsal.provider(name))) if found is None else None
    return Plan(
        made, tuple(one for one in orders if one is not None), {uuid: name}, adopted=(uuid,)
    )


def _once(known: Iterable[RecordedConsumer]) -> dict[str, RecordedConsumer]:
    found: dict[str, RecordedConsumer] = {}
    for one in known:
        if one.consumer in found:
            raise exceptions.InvalidInput(
                "repetition", "consumers", one.consumer, "each consumer once"
            )
        found[one.consumer] = one
    return found


def _host(name: str, record: Any) -> Provider:
    """Return the tree that a record makes."""
    with connect("memory://") as rehearsal:
        ComputeNode.read(record).bind(rehearsal, provider=name).save()
        return rehearsal.provider(name)


def _as_built(tree: Provider) -> Provider:
    """Return a tree as if it had been built and not read: with its uuids, of no generation."""
    built = tree.obj_clone()
    for provider in built.walk():
        provider.update(generation=None, adopted_at=None, reported_at=None, disabled=None)
    return built


# --- the rehearsal --------------------------------------------------------------------------------


@contextlib.contextmanager
def _rehearsed(
    columns: Columns, name: str, record: Any, known: Iterable[RecordedConsumer]
) -> Iterator[Ledger]:
    """Yield a ledger in memory in which a host is as it will be when it is adopted.

    :param columns: the tree of the host as the ledger has it, if it has
    """
    found = find(columns, name)
    there = set(columns.allocations.consumer)
    with connect("memory://") as rehearsal:
        rehearsal.sync(_as_built(_host(name, record) if found is None else found[0]))
        held = {one: tuple(held_in(columns, one)) for one in sorted(there)}
        _hold(rehearsal, held, aggregate=True)
        for one in known:
            if one.consumer not in there:
                _take(rehearsal, name, one)
        ComputeNode.read(record).bind(rehearsal, provider=name).save()
        yield rehearsal


def _hold(rehearsal: Ledger, held: Mapping[str, tuple[Use, ...]], **said: Any) -> None:
    """Let consumers hold what they have, whatever the capacity says."""
    orders = tuple(
        ConsumerOrder.claim(name, uses, adopts=True, **said) for name, uses in held.items()
    )
    if orders:
        rehearsal.backend.commit(Write(Operation(), "adopt", subject_of(held), orders=orders))


def _take(rehearsal: Ledger, name: str, one: RecordedConsumer) -> None:
    """Let a known consumer take what it has, where it is assigned, else where there is room."""
    joint = split_placed(one.amounts)
    said: dict[str, Any] = {
        "project": one.project,
        "user": one.user,
        "consumer_type": one.consumer_type,
    }
    if joint is not None and not all(amount.is_assigned for amount in joint.placed.values()):
        rehearsal.claim(one.consumer, {name: one.amounts}, **said)
        return
    columns = rehearsal.backend.read(name)
    uses = [*_located(columns, joint)] if joint is not None else []
    counts = one.amounts if joint is None else Amounts(joint.others)
    host = find(columns, name)
    assert host is not None, "it was made for the rehearsal"
    for kind in counts.names():
        uses.append(Use(host[1].uuid or "", kind, units(counts, kind)))
    request = one.request or (None if joint is None else Request(one.amounts))
    stored = None if request is None else StoredRequest(request)
    _hold(rehearsal, {one.consumer: tuple(uses)}, request=stored, **said)


def _located(columns: Columns, joint: PlacementSplit) -> Iterator[Use]:
    """Yield what assigned amounts take of the providers of a tree.

    :raises CapacityException: if nothing of their kind lies over the tree
    """
    (root,) = set(columns.providers.root_id)
    views = LocatedViews(columns).of_host(root)
    for kind, amount in joint.placed.items():
        if kind not in views:
            where = columns.providers.name[columns.providers.provider_id.index(root)]
            raise exceptions.CapacityException([absent(kind, amount.item_count, where)])
        # what stands beside an amount is no part of what is kept of it
        yield from views[kind].deltas(amount.counting_separately(()))


def _order(
    taken: ConsumerRecord, kept: ConsumerRecord | None, had: tuple[Use, ...], is_nobody: bool
) -> ConsumerOrder | None:
    """Return the order that lets a consumer hold what it holds in the rehearsal; None: nothing.

    :param kept: as the ledger has it, None if it has not
    :param had: what of that is of the host
    :param is_nobody: whether it stands for many, of whom nothing is known
    """
    said: dict[str, Any] = {"adopts": True, "aggregate": is_nobody}
    uses = tuple(dataclasses.replace(use, provider="") for use in taken.held)
    if kept is None:
        said |= {"request": taken.request, "project": taken.project, "user": taken.user}
        return ConsumerOrder.claim(taken.consumer, uses, consumer_type=taken.consumer_type, **said)
    before = {(use.provider_uuid, use.resource_class): use for use in had}
    more = []
    for use in uses:
        was = before.get((use.provider_uuid, use.resource_class))
        if was is None:
            more.append(use)
        elif use.amount > was.amount:
            units = tuple(unit for unit in use.units if unit not in was.units)
            more.append(dataclasses.replace(use, amount=use.amount - was.amount, units=units))
    if not more:
        return None
    return ConsumerOrder.adjust(taken.consumer, tuple(more), generation=kept.generation, **said)
