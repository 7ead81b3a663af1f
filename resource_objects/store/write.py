"""Everything one write changes, as a change of rows."""

from __future__ import annotations

import dataclasses
import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from resource_objects import exceptions
from resource_objects.providers.disabled import Disabled, DisabledChange, RemovedUnit
from resource_objects.providers.feed import FeedEntry, shard_of
from resource_objects.providers.orders import (
    Change,
    ConsumerRecord,
    GroupChange,
    Key,
    Outcome,
    Write,
    new_id,
)
from resource_objects.providers.pools import SHARES
from resource_objects.providers.removed_units import removed_of, removed_units
from resource_objects.providers.settle import (
    GroupPlaces,
    Place,
    Settled,
    Settlement,
    Unit,
    keys_of,
    settle,
)
from resource_objects.store import use_over_time
from resource_objects.store.definitions import DefinitionWork, check_generation, disable
from resource_objects.store.names import change_name
from resource_objects.store.rows import HeadRow, InventoryRow, OperationRow, Rows, UnitRow
from resource_objects.store.transaction import Transaction


def carry_out(
    rows: Rows, write: Write, now: datetime.datetime, number: int
) -> tuple[ConsumerRecord, ...]:
    """Change rows as a write says and record the operation, or raise; return a record per order.

    The order of the steps is that of :class:`~resource_objects.providers.orders.Write`. If this
    raises, the caller undoes what was changed (``rows.rollback``).

    :param now: the time of the ledger
    :param number: of the operation
    """
    transaction = Transaction(rows, now, number)
    definitions = begin(transaction, write)
    records = carry_out_orders(transaction, write)
    if definitions is not None:
        definitions.remove()
    if transaction.renamed and transaction.has_changes:  # on its own a rename names no provider
        for uuid in transaction.renamed & rows.providers.rows.keys():
            transaction.mark_changed(uuid)
    outcome = Outcome(write.kind, write.subject, records)
    stored_from = write.operation.kept_from(now)
    rows.operations.put(write.operation.id, OperationRow(number, stored_from, outcome))
    _append_to_feed(transaction, write)
    return records


def begin(transaction: Transaction, write: Write) -> DefinitionWork | None:
    """Carry out what comes before the orders; return what is left to do after them."""
    definitions: DefinitionWork | None = None
    if write.definitions is not None:
        definitions = DefinitionWork(transaction, write.definitions)
    for uuid, generation in write.unchanged:
        provider = transaction.rows.providers.get(uuid)
        if provider is None:
            raise exceptions.Stale("provider", uuid, "it is gone")
        check_generation(provider, provider.name, generation)
    for name in write.names:
        change_name(transaction, name)
    for group in write.groups:
        _change_group(transaction, group)
    if definitions is not None:
        definitions.create_and_update()
    rows, now = transaction.rows, transaction.now
    for uuid in write.reported:
        provider = dataclasses.replace(transaction.provider(uuid), reported_at=now)
        rows.providers.put(uuid, provider)
        transaction.reports.add((rows.root(uuid).number, uuid))
    for uuid in write.adopted:
        provider = transaction.provider(uuid)
        at = provider.adopted_at or now  # the first time counts
        rows.providers.put(uuid, dataclasses.replace(provider, adopted_at=at))
        transaction.reports.add((rows.root(uuid).number, uuid))
    for order in write.disabling:
        disable(transaction, order, write)
    return definitions


@dataclasses.dataclass(slots=True)
class _ShardChanges:
    """What one shard of the feed reports of a write."""

    uses: list[Change] = dataclasses.field(default_factory=list)
    definitions: list[str] = dataclasses.field(default_factory=list)
    reports: list[str] = dataclasses.field(default_factory=list)
    claims: list[str] = dataclasses.field(default_factory=list)
    disabled: list[DisabledChange] = dataclasses.field(default_factory=list)
    overrides: list[str] = dataclasses.field(default_factory=list)


def _by_shard(transaction: Transaction) -> dict[int, _ShardChanges]:
    shards: dict[int, _ShardChanges] = {}
    for name in _ShardChanges.__slots__:
        for root, change in getattr(transaction, name):
            shard = shard_of(root)
            if shard not in shards:
                shards[shard] = _ShardChanges()
            getattr(shards[shard], name).append(change)
    return shards or {0: _ShardChanges()}  # a write that touches no tree is in shard 0


def _append_to_feed(transaction: Transaction, write: Write) -> None:
    """Append an entry to the feed of each shard in which something changed."""
    rows, number, operation = transaction.rows, transaction.number, write.operation
    for shard, changes in _by_shard(transaction).items():
        head = rows.heads.get(shard)
        last = 1 if head is None else head.number + 1
        rows.heads.put(shard, HeadRow(last, number))
        entry = FeedEntry(
            shard,
            last,
            transaction.now,
            operation.id,
            write.kind,
            write.subject,
            operation.actor,
            number,
            tuple(changes.uses),
            tuple(sorted(changes.definitions)),
            tuple(sorted(set(changes.reports))),
            tuple(sorted(set(changes.claims))),
            tuple(changes.disabled),
            tuple(changes.overrides),
        )
        rows.changes.put((shard, last), entry)


# --- server groups ---


def _change_group(transaction: Transaction, change: GroupChange) -> None:
    groups, wanted = transaction.rows.server_groups, change.wanted
    group = groups.get(change.name)
    if wanted is None:
        if group is None:
            raise exceptions.NotFound("server group", change.name)
        if transaction.rows.members.of(change.name):
            raise exceptions.InUse("server group", change.name)
        groups.put(change.name, None)
    elif group is None:
        uuid, number = wanted.uuid or new_id(), transaction.number
        group = dataclasses.replace(wanted, members=frozenset(), uuid=uuid, generation=number)
        groups.put(change.name, group)
    elif not wanted.is_like(group):
        raise exceptions.AlreadyExists("server group", change.name, wanted.difference(group))


def _group_places(
    transaction: Transaction, names: Collection[str], uuids: Collection[str]
) -> GroupPlaces:
    """Return server groups and the hosts of their members, and store their next generation."""
    rows = transaction.rows
    groups = {name: group for name in names if (group := rows.server_groups.get(name)) is not None}
    for name, group in groups.items():
        rows.server_groups.put(name, dataclasses.replace(group, generation=transaction.number))
    members = {
        name: {
            consumer: _hosts(rows, (use.provider_uuid for use in rows.consumers[consumer].held))
            for consumer in rows.members.of(name)
        }
        for name, group in groups.items()
        if not group.is_soft
    }
    host_of = {uuid: host for uuid in uuids for host in _hosts(rows, [uuid])}
    return GroupPlaces(groups, members, host_of)


def _hosts(rows: Rows, uuids: Iterable[str]) -> set[str]:
    """Return the names of the hosts of some providers; a pool has none."""
    return {rows.root(uuid).name for uuid in uuids if SHARES not in rows.providers[uuid].traits}


# --- orders ---


def carry_out_orders(transaction: Transaction, write: Write) -> tuple[ConsumerRecord, ...]:
    """Carry out the orders of a write together; return a record for each."""
    if not write.orders:
        return ()
    rows = transaction.rows
    stored = {
        order.consumer: rows.with_present_names(record)
        for order in write.orders
        if (record := rows.consumers.get(order.consumer)) is not None
    }
    places, names = _places(transaction, keys_of(write.orders, stored))
    settlement = settle(
        write.orders,
        stored,
        places,
        names,
        transaction.now,
        holders=lambda keys: _holders(rows, keys),
        takers=lambda units: _takers(rows, units),
        generation=transaction.number,
        out_of_service=lambda uuids: _out_of_service(transaction, uuids),
        removed_units=lambda uuids: _removed_units(rows, uuids),
        groups=lambda names, uuids: _group_places(transaction, names, uuids),
        limits=write.limits,
    )
    for uuid in sorted(settlement.overridden):
        transaction.overrides.append((rows.root(uuid).number, uuid))
    _use_inventories(rows, settlement, places)
    for settled in settlement.consumers:
        _release(rows, settled)
    for settled in settlement.consumers:
        _allocate(transaction, settled)
    use_over_time.record(rows, settlement.consumers, transaction.now)
    return tuple([settled.claim for settled in settlement.consumers])


def _use_inventories(rows: Rows, settlement: Settlement, places: Mapping[Key, Place]) -> None:
    """Store what is used of each inventory, directly and in all."""
    direct: dict[Key, int] = defaultdict(int)  # also 0, where only units or consumers change
    for settled in settlement.consumers:
        for change in settled.changes:
            direct[change.key] += change.after - change.before
            for target, _ in places[change.key].shares:
                direct[target] += 0
        for key in settled.stated:
            for one in (key, *(target for target, _ in places[key].shares)):
                direct[one] += 0
    nets, counted = settlement.nets, settlement.counted(places)
    for key, more in direct.items():
        row, net = rows.inventories[key], nets.get(key, 0)
        record = row.record.using(row.record.used + net) if net else row.record
        writes = row.writes + (key in counted)
        rows.inventories.put(key, InventoryRow(record, row.direct + more, writes, row.shares))


def _release(rows: Rows, settled: Settled) -> None:
    """Delete what a consumer releases, before any consumer allocates it."""
    if settled.is_gone:
        rows.consumers.put(settled.claim.consumer, None)
    for change in settled.changes:
        for unit in change.given:
            rows.units.put((change.key[0], unit), None)


def _allocate(transaction: Transaction, settled: Settled) -> None:
    """Store a consumer with its allocations and units."""
    rows, claim = transaction.rows, settled.claim
    if not settled.is_gone:
        if rows.consumer_of_claim.key.get(claim.uuid, claim.consumer) != claim.consumer:
            raise exceptions.Conflict("operation", claim.uuid, "a claim of this id exists")
        rows.consumers.put(claim.consumer, claim)
    if not settled.changes:
        for use in claim.held:
            transaction.claims.add((rows.root(use.provider_uuid).number, claim.consumer))
    for change in settled.changes:
        uuid, name = change.key
        transaction.uses.append((rows.root(uuid).number, change))
        rows.allocations.put((uuid, name, claim.consumer), change.after or None)
        for unit in change.taken:
            rows.units.put((uuid, unit), UnitRow(claim.consumer, name))


# --- what ``settle`` asks ---


def _places(
    transaction: Transaction, keys: Iterable[Key]
) -> tuple[dict[Key, Place], dict[str, str]]:
    """Return inventories with those that they share, and the names of their providers."""
    rows, now = transaction.rows, transaction.now
    places: dict[Key, Place] = {}
    names: dict[str, str] = {}
    waiting = list(keys)
    for key in waiting:  # the list grows by what is shared
        uuid = key[0]
        if uuid not in names:
            provider = rows.providers.get(uuid)
            if provider is None:
                continue
            names[uuid] = provider.name
        inventory = rows.inventories.get(key)
        if inventory is not None and key not in places:
            places[key] = Place(names[uuid], inventory.record, inventory.shares)
            waiting += [target for target, _ in inventory.shares]
    if rows.disabled.keys:
        for (uuid, _), place in places.items():
            ends = [disabled.ends_at for disabled in rows.disabled_above(uuid, now).values()]
            place.disabled_until = max(ends, default=None)
    for (uuid, _), place in places.items():
        kinds = rows.providers.rows[uuid].kinds
        if kinds:
            described = [(kind.resource_class, kind.body) for kind in kinds]
            place.removed_units = len(removed_units(described))
    return places, names


def _out_of_service(transaction: Transaction, uuids: Iterable[str]) -> dict[str, Disabled]:
    return {
        name: disabled
        for uuid in uuids
        for name, disabled in transaction.rows.disabled_above(uuid, transaction.now).items()
    }


def _removed_units(rows: Rows, uuids: Iterable[str]) -> dict[str, tuple[RemovedUnit, ...]]:
    return {
        uuid: removed_of(
            [(kind.resource_class, kind.body) for kind in rows.providers[uuid].kinds],
            {unit for _, unit in rows.units_of.of(uuid)},
        )
        for uuid in uuids
    }


def _holders(rows: Rows, keys: Collection[Key]) -> dict[Key, Iterable[tuple[str, int]]]:
    """Return the consumers of inventories, also through shares, with what they use."""
    holders: dict[Key, Iterable[tuple[str, int]]] = {}
    for key in keys:
        amounts: dict[str, int] = defaultdict(int, rows.consumers_of(key))
        for source in rows.sharers.of(key):
            factor = dict(rows.inventories[source].shares)[key]
            for consumer, amount in rows.consumers_of(source):
                amounts[consumer] += amount * factor
        holders[key] = amounts.items()
    return holders


def _takers(rows: Rows, units: Collection[Unit]) -> dict[Unit, str]:
    taken = {unit: rows.units.get(unit) for unit in units}
    return {unit: row.consumer for unit, row in taken.items() if row is not None}
