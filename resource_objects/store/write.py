"""Everything one write changes, as a change of rows."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

from resource_objects import exceptions
from resource_objects.providers.feed import SHARDS, FeedEntry
from resource_objects.providers.orders import (
    ConsumerRecord,
    GroupChange,
    Key,
    Outcome,
    Write,
    class_renames,
    new_id,
)
from resource_objects.store.decide import ConsumerEffect, Effects, decide
from resource_objects.store.definitions import DefinitionWork, check_generation, disable
from resource_objects.store.names import change_name
from resource_objects.store.rows import (
    REPORTED,
    HeadRow,
    InventoryRow,
    OperationRow,
    Rows,
    Transaction,
    UnitRow,
)


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
    rows.operations.write(write.operation.id, OperationRow(number, stored_from, outcome))
    _append_to_feed(transaction, write)
    return records


def begin(transaction: Transaction, write: Write) -> DefinitionWork | None:
    """Carry out the steps before the orders; return the definitions to finish after them."""
    changes = write.definitions
    definitions = None if changes is None else DefinitionWork(transaction, changes)
    for uuid, generation in write.unchanged:
        provider = transaction.rows.providers.get(uuid)
        if provider is None:
            raise exceptions.Stale("provider", uuid, "it was removed")
        check_generation(provider, provider.name, generation)
    for name in write.names:
        change_name(transaction, name)
    for group in write.groups:
        change_group(transaction, group)
    if definitions is not None:
        definitions.create_and_update()
    rows, now = transaction.rows, transaction.now
    for uuid in write.reported:
        provider = dataclasses.replace(transaction.provider(uuid), reported_at=now)
        rows.providers.write(uuid, provider)
    for uuid in write.adopted:
        provider = transaction.provider(uuid)
        at = provider.adopted_at or now  # the first time counts
        rows.providers.write(uuid, dataclasses.replace(provider, adopted_at=at))
    for uuid in (*write.reported, *write.adopted):
        transaction.reports.add((rows.root(uuid).number, uuid))
    for order in write.disabling:
        disable(transaction, order, write)
    return definitions


def _append_to_feed(transaction: Transaction, write: Write) -> None:
    """Append an entry to the feed of each shard in which something changed."""
    rows, number, operation = transaction.rows, transaction.number, write.operation
    shards: dict[int, dict[str, list[Any]]] = {}
    for name in REPORTED:
        for root, change in getattr(transaction, name):
            shards.setdefault(root % SHARDS, {}).setdefault(name, []).append(change)
    renamed = class_renames(write.names) if write.names else ()
    for shard, changes in (shards or {0: {}}).items():  # a write that touches no tree is in shard 0
        head = rows.heads.get(shard)
        last = 1 if head is None else head.number + 1
        rows.heads.write(shard, HeadRow(last, number))
        entry = FeedEntry(
            shard,
            last,
            transaction.now,
            operation.id,
            write.kind,
            write.subject,
            operation.actor,
            number,
            tuple(changes.get("uses", ())),
            tuple(sorted(changes.get("definitions", ()))),
            tuple(sorted(set(changes.get("reports", ())))),
            tuple(sorted(set(changes.get("claims", ())))),
            tuple(changes.get("disabled", ())),
            tuple(changes.get("overrides", ())),
            renamed,
        )
        rows.changes.write((shard, last), entry)
        renamed = ()  # it is recorded once, in the first shard


# --- server groups ---


def change_group(transaction: Transaction, change: GroupChange) -> None:
    """Create or delete a server group.

    :raises NotFound: if a group to delete does not exist
    :raises InUse: if a group to delete has members
    :raises AlreadyExists: if a group to create exists with another policy
    """
    groups, policy = transaction.rows.server_groups, change.group
    group = groups.get(change.name)
    if policy is None:
        if group is None:
            raise exceptions.NotFound("server group", change.name)
        if transaction.rows.members.of(change.name):
            raise exceptions.InUse("server group", change.name)
        groups.write(change.name, None)
    elif group is None:
        uuid, number = policy.uuid or new_id(), transaction.number
        group = dataclasses.replace(policy, members=frozenset(), uuid=uuid, generation=number)
        groups.write(change.name, group)
    elif not policy.is_like(group):
        raise exceptions.AlreadyExists("server group", change.name, policy.difference(group))


# --- orders ---


def carry_out_orders(transaction: Transaction, write: Write) -> tuple[ConsumerRecord, ...]:
    """Carry out the orders of a write together; return a record for each."""
    if not write.orders:
        return ()
    rows, number = transaction.rows, transaction.number
    effects = decide(rows, write.orders, transaction.now, generation=number, limits=write.limits)
    for uuid in sorted(effects.overridden):
        transaction.overrides.append((rows.root(uuid).number, uuid))
    for name in effects.groups if rows.has_groups else ():
        group = dataclasses.replace(rows.server_groups[name], generation=number)
        rows.server_groups.write(name, group)
    _use_inventories(rows, effects)
    for effect in effects.consumers:
        _release(rows, effect)
    for effect in effects.consumers:
        _allocate(transaction, effect)
    return tuple([effect.claim for effect in effects.consumers])


def _use_inventories(rows: Rows, effects: Effects) -> None:
    """Store the use of each inventory, directly and in total."""
    direct: dict[Key, int] = {}
    for effect in effects.consumers:
        for change in effect.changes:
            net = change.after - change.before
            direct[change.key] = direct.get(change.key, 0) + net
    counted = effects.counted(rows)
    inventories = rows.inventories
    for key, net in effects.nets.items():
        row = inventories.rows[key]
        record = row.record.using(row.record.used + net) if net else row.record
        used = row.direct + direct.get(key, 0)
        inventories.write(
            key, InventoryRow(record, used, row.writes + (key in counted), row.shares)
        )


def _release(rows: Rows, effect: ConsumerEffect) -> None:
    """Delete the released units and consumers, before others allocate them."""
    if effect.is_gone:
        rows.consumers.write(effect.claim.consumer, None)
    for change in effect.changes:
        for unit in change.released_units:
            rows.units.write((change.key[0], unit), None)


def _allocate(transaction: Transaction, effect: ConsumerEffect) -> None:
    """Store a consumer with its allocations and units."""
    rows, claim = transaction.rows, effect.claim
    if not effect.is_gone:
        if rows.consumer_of_claim.key.get(claim.uuid, claim.consumer) != claim.consumer:
            raise exceptions.Conflict("operation", claim.uuid, "a claim of this id exists")
        rows.consumers.write(claim.consumer, claim)
    if not effect.changes:
        for use in claim.held:
            transaction.claims.add((rows.root(use.provider_uuid).number, claim.consumer))
    for change in effect.changes:
        uuid, name = change.key
        transaction.uses.append((rows.root(uuid).number, change))
        rows.allocations.write((uuid, name, claim.consumer), change.after or None)
        for unit in change.allocated_units:
            rows.units.write((uuid, unit), UnitRow(claim.consumer, name))
