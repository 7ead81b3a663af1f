"""The adoption of hosts that are in use, from legacy records, when they are first written.

Fleets that ran before there was a ledger have records of their own: a row of ``compute_nodes`` for
each host, instances with flavors and topologies. They need no migration. A reader of a host that
the ledger does not have gets a view of its record, and nothing is written. The first writer
*adopts* the host: one transaction creates it with all its usage. From then on the ledger is the
truth, and the record is updated for its other readers.

The usage is allocated to the recorded consumers (:class:`RecordedConsumer`). What the record
reports beyond them is allocated to the host's *unattributed* consumer
(:mod:`resource_objects.host.adoption`); ``ledger.attribute`` moves it to others later.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from resource_objects import exceptions, names
from resource_objects.host.adoption import HostState, adoption_order, allocation_of_used
from resource_objects.host.columns import DERIVED
from resource_objects.host.compute_node import ComputeNode
from resource_objects.ledger import connect
from resource_objects.providers import Claim
from resource_objects.providers.columns import Columns, find
from resource_objects.providers.composite import LocatedViews, fit_together
from resource_objects.providers.dry_run import held_in
from resource_objects.providers.holders import absent, unattributed, with_holders
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    Expect,
    Operation,
    StoredRequest,
    Use,
    Write,
)
from resource_objects.providers.plan import Plan
from resource_objects.requests import Request
from resource_objects.resources import Amount, Amounts
from resource_objects.resources.amounts import split_placed
from resource_objects.store.columns import columns_of, redefined, roots_of_all, rows_of
from resource_objects.store.write import carry_out

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedConsumer:
    """A consumer that runs on a host that the ledger does not have yet, with its amounts.

    ``amounts`` is an argument of ``Amounts``. A topology and devices are assigned if it is known
    which they are (as :func:`~resource_objects.interop.nova.load_instance_numa_topology` reads
    them); others are assigned where they fit next to the other consumers.

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
    """The records of hosts that the ledger does not have."""

    def read(self, host: str) -> Any:
        """Return the record of a host as ``ComputeNode.read`` accepts it; None if there is none."""

    def consumers(self, host: str) -> Iterable[RecordedConsumer]:
        """Return the consumers of a host; usage of further ones is adopted without a name."""

    def write(self, host: str, columns: Mapping[str, Any]) -> None:
        """Store the changed columns of a record, for its other readers."""


class Adopter:
    """Adopts hosts when they are first written, and updates their records afterwards.

    Threads may share it: of each host, one thread at a time adopts, reads or writes the record.
    If several processes adopt the same host, one of them does.
    """

    def __init__(self, ledger: Ledger, records: LegacyRecords) -> None:
        self._ledger = ledger
        self._records = records
        self._adopted: set[str] = set()
        self._locks: dict[str, threading.Lock] = {}  # by host

    def adopt(self, host: str) -> tuple[Claim, ...]:
        """Adopt a host that has a record and was not adopted; return the claims that were made.

        Cost: nothing after the first time; else those of :func:`adoption_plan` and a write.

        Errors are those of :func:`adoption_plan`; nothing was written then.
        """

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

        with self._lock(host):
            if host in self._adopted:
                return ()
            return self._ledger.retries.write(plan, write, *_CONCURRENT)

    def forget(self, *hosts: str) -> None:
        """Forget that hosts were adopted: another process may have removed them since."""
        self._adopted.difference_update(hosts)

    def _lock(self, host: str) -> threading.Lock:
        # a figure that was read before another thread's claim must not be written after that claim
        return self._locks.setdefault(host, threading.Lock())

    def view(self, host: str, consumer: str | None = None) -> ComputeNode:
        """Return a host as the ledger has it, else as its record reports it. Nothing is written.

        :raises NotFound: if neither the ledger nor the records have it
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
        with self._lock(host):
            record = None if host in self._adopted else self._records.read(host)
            consumers = () if record is None else tuple(self._records.consumers(host))
        plan = Plan()
        if record is not None:
            columns = self._ledger.backend.read(host)
            plan = adoption_plan(self._ledger, host, record, consumers)
        if not plan:
            yield None
            return
        with connect("memory://") as rehearsal:
            stored = find(columns, host)
            if stored is not None:
                tree = stored[0].obj_clone()
                for provider in tree.walk():  # as if it was built here, with its uuids
                    provider.update(
                        generation=None, adopted_at=None, reported_at=None, disabled=None
                    )
                rehearsal.sync(tree)
            allocations = tuple(
                ConsumerOrder.claim(
                    name, tuple(held_in(columns, name)), adopts=True, aggregate=True
                )
                for name in sorted(set(columns.allocations.consumer))
            )
            if allocations:
                rehearsal.backend.commit(Write(Operation(), "adopt", host, orders=allocations))
            orders = tuple(
                dataclasses.replace(order, expect=Expect.ANY)
                if order.generation is not None
                else order
                for order in plan.orders
            )
            rehearsal.apply(dataclasses.replace(plan, orders=orders))
            yield rehearsal

    def write_back(self, host: str) -> Mapping[str, Any]:
        """Update the record of a host from the ledger; return the changed columns.

        Columns that the record does not have are left out. A host without a record, or that is not
        adopted, is not changed. Cost: a read of the record, and two of the host.
        """
        with self._lock(host):
            record = self._records.read(host) if host in self._adopted else None
            if record is None:
                return {}
            node = ComputeNode.read(record).bind(self._ledger, provider=host)
            node.reload()  # figures that differ in the record are not to be written to the ledger
            # computed columns are columns of the record too, though a node does not store them
            recorded = record if isinstance(record, Mapping) else {*node.row, *DERIVED}
            columns = {name: now for name, now in node.changes().items() if name in recorded}
            if columns:
                self._records.write(host, columns)
            return columns


#: Codes of the errors by which a write reports that another process wrote the host first.
_CONCURRENT = (
    "ConsumerExists",
    "ProviderExists",
    "ProviderNotFound",
    "StaleConsumer",
    "StaleDefinition",
    "UnitTaken",
)


def adoption_plan(
    ledger: Ledger, name: str, record: Any, consumers: Iterable[RecordedConsumer] = ()
) -> Plan:
    """Return the plan that adopts a host and creates it if necessary; empty if it was adopted.

    Nothing is written. ``ledger.apply`` carries it out, or refuses it if another process was
    faster. Cost: three reads, some milliseconds, and the assignment of the consumers' amounts.

    :param name: of the host in the ledger
    :param record: as ``ComputeNode.read`` accepts it
    :param consumers: those of the host; one that has allocations of the host already keeps these
    :raises InvalidInput: if the record cannot be read; if a consumer occurs twice
    :raises AlreadyExists: if the host has another uuid than the record
    :raises CapacityException: if a consumer has an amount of a resource that the host lacks; if two
        consumers have the same CPU or device; if an amount that is not assigned does not fit
    :raises ForeignAmount: if an amount is assigned to cells or devices that the host does not have

    >>> row = {"hypervisor_hostname": "old-1", "vcpus": 8, "vcpus_used": 6}
    >>> with connect("memory://") as ledger:
    ...     print(adoption_plan(ledger, "old-1", row, [RecordedConsumer("vm-1", "VCPU=4")]))
    + old-1: VCPU=8:max_unit=8:allocation_ratio=4
    + vm-1 allocates VCPU=4 of old-1
    + old-1/unattributed allocates VCPU=2 of old-1
    ~ old-1: adopted
    """
    recorded: dict[str, RecordedConsumer] = {}
    for consumer in consumers:
        if consumer.consumer in recorded:
            raise exceptions.InvalidInput(
                "repetition", "consumers", consumer.consumer, "each consumer once"
            )
        recorded[consumer.consumer] = consumer
    holder = unattributed(name)
    stored = ledger.backend.held_by([holder, *recorded])
    columns = ledger.backend.read(name)
    host, definitions = HostState.find(columns, name), None
    if host is not None and host.adopted_at is not None:
        return Plan()
    view = ComputeNode.read(record).bind(ledger, provider=name).view
    usage = view.record
    if usage is None:  # another process adopted it since the read
        return Plan()
    if host is None:
        definitions = view.creation()
        columns = redefined(Columns(), Plan(definitions), ledger.now())
    rows, now = rows_of(columns, stored), ledger.now()
    present = set(columns.allocations.consumer)
    orders: list[ConsumerOrder] = []
    for consumer in recorded.values():
        if consumer.consumer not in present:
            state = columns_of(rows, roots_of_all(rows), None)
            order, is_assigned = _order_of(consumer, state, name, stored.get(consumer.consumer))
            decided = order if is_assigned else dataclasses.replace(order, adopts=False)
            write = Write(Operation(), "adopt", consumer.consumer, orders=(decided,))
            carry_out(rows, write, now, len(orders) + 1)
            orders.append(order)
    host = HostState.find(columns_of(rows, roots_of_all(rows), None), name)
    assert host is not None, "it is stored or created"
    unattributed_order = adoption_order(host, usage, stored.get(holder))
    if unattributed_order is not None:
        orders.append(unattributed_order)
    return Plan(definitions, tuple(orders), {host.uuid: name}, adopted=(host.uuid,))


def _order_of(
    consumer: RecordedConsumer, columns: Columns, host: str, stored: ConsumerRecord | None
) -> tuple[ConsumerOrder, bool]:
    """Return the order for the amounts of a consumer, and whether these were assigned before.

    :param columns: the tree of the host, with the allocations of the other consumers
    """
    state = HostState.find(columns, host)
    assert state is not None, "it is stored or created"
    split = split_placed(consumer.amounts)
    placed: Mapping[str, Amount] = {} if split is None else split.placed
    counts = consumer.amounts if split is None else Amounts(split.unplaced)
    views = LocatedViews(columns).of_host(columns.index.roots[state.number])
    missing = [absent(kind, placed[kind].item_count, host) for kind in placed if kind not in views]
    if missing:
        raise exceptions.CapacityException(missing)
    is_assigned = all(amount.is_assigned for amount in placed.values())
    if not is_assigned:
        try:
            placed = fit_together(placed, views)
        except exceptions.CapacityException as refusal:
            requested = [views[kind] for kind in placed]
            raise with_holders(refusal, requested, columns, placed) from refusal
    uses = [
        # an amount that is counted separately is no part of the allocation
        use
        for kind, amount in placed.items()
        for use in views[kind].deltas(amount.counting_separately(()))
    ]
    for kind, amount in counts.by_name():
        uses += [Use(state.uuid, kind, record.amount) for record in amount.to_records(kind)]
    request = consumer.request or (Request(consumer.amounts) if placed else None)
    order = allocation_of_used(
        consumer.consumer,
        tuple(uses),
        stored,
        request=None if request is None else StoredRequest(request),
        project=consumer.project,
        user=consumer.user,
        consumer_type=consumer.consumer_type,
    )
    if order is None:
        raise exceptions.InvalidInput(
            "amount", f"amounts of {consumer.consumer}", consumer.amounts, "at least one"
        )
    return order, is_assigned
