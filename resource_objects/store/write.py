"""Everything one write changes, as a change of rows; and the statistics of providers.

:func:`carry_out` has the order of the steps. Definitions are created and updated before the orders
of the same write, and removed after them.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from resource_objects import exceptions
from resource_objects import names as forms
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderUpdate,
)
from resource_objects.providers.disabled import DisabledChange, DisableOrder
from resource_objects.providers.feed import SHARDS, FeedEntry
from resource_objects.providers.listing import ListedName
from resource_objects.providers.orders import (
    ConsumerRecord,
    GroupChange,
    Key,
    NameAction,
    NameChange,
    NameKind,
    Outcome,
    Write,
    class_renames,
    new_id,
)
from resource_objects.providers.provider import broken_share
from resource_objects.providers.statistics import (
    Statistic,
    StatisticFilter,
    StatisticsByProvider,
    StatisticsOrder,
    StoredStatistic,
    changed,
)
from resource_objects.resources.records import InventoryRecord, KindRecord
from resource_objects.store.decide import ConsumerEffect, Effects, decide
from resource_objects.store.rows import (
    NAME_RULES,
    REPORTED,
    HeadRow,
    InventoryRow,
    OperationRow,
    ProviderRow,
    Rows,
    Transaction,
    UnitRow,
)


def carry_out(
    rows: Rows, write: Write, now: datetime.datetime, number: int
) -> tuple[ConsumerRecord, ...]:
    """Change rows as a write orders and record the operation, or raise; return a record per order.

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
    # on its own a rename names no provider
    if transaction.renamed and any(getattr(transaction, name) for name in REPORTED):
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
        check_generation(provider, uuid if provider is None else provider.name, generation)
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
    for changes in shards.values():
        for name in changes.keys() & {"definitions", "reports", "claims"}:
            changes[name] = sorted({*changes[name]})
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
            renamed_classes=renamed,
            **{name: tuple(changed) for name, changed in changes.items()},
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


# --- names ----------------------------------------------------------------------------------------

CLASS, TRAIT, AGGREGATE = NameKind.RESOURCE_CLASS, NameKind.TRAIT, NameKind.AGGREGATE


def change_name(transaction: Transaction, change: NameChange) -> None:
    """Carry out one change of a name.

    A rename gives the generation of the write to every provider whose definition contains the name,
    so a definition that was compared before is refused.

    :raises NotFound: if the name does not exist
    :raises AlreadyExists: if the new name exists
    :raises NotSupported: if a standard name would be renamed or deleted
    :raises InUse: if a name to delete is used
    """
    rows, rule, key = transaction.rows, NAME_RULES[change.kind], (change.kind, change.name)
    match change.action:
        case NameAction.ENSURE:
            rule.check(change.name)
            ensure_names(rows, change.kind, [change.name])
        case NameAction.RENAME:
            rule.refuse_standard(change)
            _rename(transaction, change, _find(rows, change))
        case NameAction.DELETE:
            rule.refuse_standard(change)
            _find(rows, change)
            if _users(rows, *key):
                raise exceptions.InUse(rule.subject, change.name)
            rows.names.write(key, None)
        case NameAction.SET_LEVEL:
            if change.kind is not AGGREGATE:
                expected = "an aggregate: only those have levels"
                raise exceptions.InvalidInput("field", "kind", change.kind, expected)
            if change.to is not None:
                forms.label(change.to, "level")
            rows.names.write(key, dataclasses.replace(_find(rows, change), level=change.to))


def _find(rows: Rows, change: NameChange) -> ListedName:
    name = rows.names.get((change.kind, change.name))
    if name is None:
        raise exceptions.NotFound(NAME_RULES[change.kind].subject, change.name)
    return name


def ensure_names(rows: Rows, kind: NameKind, names: Iterable[str]) -> None:
    """Create the missing names, in order."""
    for name in sorted(names):
        if (kind, name) not in rows.names:
            rows.names.write((kind, name), ListedName(next(rows.name_numbers), name))


def _rename(transaction: Transaction, change: NameChange, name: ListedName) -> None:
    rows, kind, old, new = transaction.rows, change.kind, change.name, change.to or ""
    if new == old:
        return
    NAME_RULES[kind].check(new)
    if (kind, new) in rows.names:
        raise exceptions.AlreadyExists("name", new)
    rows.names.write((kind, old), None)
    rows.names.write((kind, new), dataclasses.replace(name, name=new))
    users = _users(rows, kind, old)
    if kind is CLASS:
        users |= _describing(rows, old)
        rows.rename_class(old, new)
    for uuid in users:
        provider = rows.providers[uuid]
        renamed = _renamed(provider, kind, old, new)
        rows.providers.write(
            uuid, dataclasses.replace(provider, generation=transaction.number, **renamed)
        )
    transaction.renamed |= users


def _users(rows: Rows, kind: NameKind, name: str) -> set[str]:
    """Return the providers that use a name. Cost: linear in the providers, for a trait in those."""
    if kind is TRAIT:
        return {*rows.with_trait.of(name)}
    providers = rows.providers.rows.values()
    if kind is AGGREGATE:
        return {provider.uuid for provider in providers if name in provider.aggregates}
    return {provider.uuid for provider in providers if name in provider.classes}


def _describing(rows: Rows, name: str) -> set[str]:
    """Return the providers with a structured inventory or a share of a class."""
    structured = {
        provider.uuid
        for provider in rows.providers.rows.values()
        for kind in provider.kinds
        if name == kind.resource_class or name in kind.classes
    }
    targets = [target for target in rows.sharers.keys if target[1] == name]
    return structured | {source[0] for target in targets for source in rows.sharers.of(target)}


def _renamed(provider: ProviderRow, kind: NameKind, old: str, new: str) -> dict[str, Any]:
    """Return the fields of a provider that contain a name, with the new name."""
    if kind is TRAIT:
        return {"traits": provider.traits - {old} | {new}}
    if kind is AGGREGATE:
        return {"aggregates": provider.aggregates - {old} | {new}}

    def replaced(classes: Iterable[str]) -> tuple[str, ...]:
        return tuple([new if name == old else name for name in classes])

    kinds = tuple(
        KindRecord(replaced([kind.resource_class])[0], replaced(kind.classes), kind.body)
        for kind in provider.kinds
    )
    return {"classes": replaced(provider.classes), "kinds": kinds}


class DefinitionWork:
    """The changes of definitions of one write, with the providers before the write.

    It is created before the write changes anything: a definition is changed at the generation at
    which it was read, also if the same write changes a name in it.
    """

    def __init__(self, transaction: Transaction, changes: DefinitionChanges) -> None:
        self.transaction = transaction
        self.rows = transaction.rows
        self.changes = changes
        #: uuids of the providers to update and to remove
        self._uuids = [update.definition.uuid for update in changes.updates]
        self._uuids += [removal.uuid for removal in changes.removals]
        self._before = {uuid: self.rows.providers.get(uuid) for uuid in self._uuids}
        self._roots: set[str] = set()

    def create_and_update(self) -> None:
        """Create and update providers and inventories, and replace shares.

        :raises AlreadyExists: if a name or uuid exists
        :raises Stale: if a provider is not at the generation at which it was read
        """
        changes, rows, transaction = self.changes, self.rows, self.transaction
        self.check()
        moving = self._moving()
        for definition in changes.creates:
            _create(transaction, definition)
        for update in changes.updates:
            _update(transaction, rows.providers[update.definition.uuid], update)
        self._check_parents()
        _restore_disabled(rows, changes)
        _replace_shares(transaction, changes.sharing)
        for uuid, root in moving.items():
            if rows.root(uuid).uuid != root.uuid:
                transaction.mark_changed(uuid)
                transaction.definitions.add((root.number, uuid))
        self._roots = {root.uuid for root in moving.values()}
        self._roots.update(moving, (definition.uuid for definition in changes.sharing))
        for uuid in (*self._uuids, *(definition.uuid for definition in changes.creates)):
            transaction.mark_changed(uuid)

    def remove(self) -> None:
        """Remove inventories and providers that are unused, and check shares and names.

        :raises InUse: if one is used. Of several the first is reported: providers in the order of
            ``removals``, then inventories in the order of ``updates``
        """
        rows, changes = self.rows, self.changes
        providers = [rows.providers[removal.uuid] for removal in changes.removals]
        removed = [(provider.uuid, name) for provider in providers for name in provider.classes]
        removed += [(u.definition.uuid, name) for u in changes.updates for name in u.removed]
        leaving = {provider.uuid for provider in providers}
        _remove_inventories(rows, removed, leaving)
        for removal in changes.removals:
            root, provider = rows.root(removal.uuid).uuid, rows.providers[removal.uuid]
            if root not in leaving and provider.disabled is not None:
                rows.removed_disabled.write((root, removal.name), provider.disabled)
            _remove(rows, provider)
        _restore_disabled(rows, changes)
        stored = [uuid for uuid in self._roots if uuid in rows.providers]
        _check_shares(rows, {rows.root(uuid).uuid for uuid in stored})

    def check(self) -> None:
        """Raise unless providers are at their generations, then unless uuids and names are free.

        Two providers may exchange their names.
        """
        updates, removals = self.changes.updates, self.changes.removals
        stated = [(of.definition.uuid, of.definition.name, of.generation) for of in updates]
        stated += [(removal.uuid, removal.name, removal.generation) for removal in removals]
        for uuid, name, generation in stated:
            before = self._before[uuid] if uuid in self.rows.providers else None
            check_generation(before, name, generation)
        created: set[str] = set()
        for definition in self.changes.creates:
            if definition.uuid in self.rows.providers or definition.uuid in created:
                raise exceptions.AlreadyExists("provider", definition.uuid)
            created.add(definition.uuid)
        names: set[str] = set()
        updated = (update.definition for update in updates)
        for definition in (*updated, *self.changes.creates):
            owner = self.rows.provider_named.key.get(definition.name)
            if definition.name in names or (owner is not None and owner not in self._before):
                raise exceptions.AlreadyExists("provider", definition.name)
            names.add(definition.name)

    def _check_parents(self) -> None:
        """Raise for a provider that is below itself, or below one that does not exist."""
        for definition in self.changes.definitions:
            path = {definition.uuid}
            uuid = definition.parent_uuid
            while uuid is not None:
                provider = self.rows.providers.get(uuid)
                if provider is None:
                    raise exceptions.Stale("provider", definition.name, "its parent does not exist")
                if uuid in path:
                    raise exceptions.Stale("provider", definition.name, "it was moved below itself")
                path.add(uuid)
                uuid = provider.parent_uuid

    def _moving(self) -> dict[str, ProviderRow]:
        """Return the providers with another parent and all below them, with their present root."""
        roots: dict[str, ProviderRow] = {}
        for update in self.changes.updates:
            uuid = update.definition.uuid
            provider = self.rows.providers.get(uuid)
            if provider is not None and provider.parent_uuid != update.definition.parent_uuid:
                roots.update(dict.fromkeys(self.rows.subtree(uuid), self.rows.root(uuid)))
        return roots


def check_generation(provider: ProviderRow | None, name: str, generation: int) -> None:
    """Raise ``Stale`` unless a provider exists and is at a generation."""
    if provider is None:
        raise exceptions.Stale("provider", name, "it was removed")
    if provider.generation != generation:
        raise exceptions.Stale(
            "provider", name, f"read at generation {generation}, now {provider.generation}"
        )


# --- providers and inventories ---


def _create(transaction: Transaction, definition: ProviderDefinition) -> None:
    rows = transaction.rows
    if definition.parent_uuid is not None and definition.parent_uuid not in rows.providers:
        raise exceptions.Stale("provider", definition.name, "its parent does not exist")
    aggregates = definition.aggregates or frozenset()
    ensure_names(rows, TRAIT, definition.traits)
    ensure_names(rows, AGGREGATE, aggregates)
    provider = ProviderRow(
        next(rows.provider_numbers),
        definition.uuid,
        definition.name,
        definition.parent_uuid,
        definition.traits,
        aggregates,
        tuple(dict.fromkeys(record.resource_class for record in definition.inventories)),
        definition.kinds,
        transaction.number,
    )
    _put_provider(rows, provider, definition.inventories)


def _update(transaction: Transaction, provider: ProviderRow, update: ProviderUpdate) -> None:
    rows, definition = transaction.rows, update.definition
    missing = [
        *sorted(update.traits_removed - provider.traits),
        *sorted(update.aggregates_removed - provider.aggregates),
        *(name for name in update.removed if (CLASS, name) not in rows.names),
    ]
    if missing:  # the same write renamed it
        raise exceptions.Stale("provider", provider.name, f"{missing[0]} does not exist")
    for expected in update.expected_use:
        inventory = rows.inventories.get((provider.uuid, expected.resource_class))
        used = 0 if inventory is None else inventory.record.used
        if used != expected.amount:
            text = f"{expected.amount} of {expected.resource_class} was used, now it is {used}"
            raise exceptions.Stale("provider", definition.name, text)
    ensure_names(rows, TRAIT, update.traits_added)
    ensure_names(rows, AGGREGATE, update.aggregates_added)
    provider = dataclasses.replace(
        provider,
        name=definition.name,
        parent_uuid=definition.parent_uuid,
        traits=(provider.traits | update.traits_added) - update.traits_removed,
        aggregates=(provider.aggregates | update.aggregates_added) - update.aggregates_removed,
        kinds=definition.kinds if update.kinds_changed else provider.kinds,
        generation=transaction.number,
        definition_writes=provider.definition_writes + update.writes,
    )
    _put_provider(rows, provider, update.changed)


def _put_provider(rows: Rows, provider: ProviderRow, records: Collection[InventoryRecord]) -> None:
    """Store a provider and some of its inventories; their use is unchanged."""
    classes = dict.fromkeys(provider.classes)
    classes.update(dict.fromkeys(record.resource_class for record in records))
    ensure_names(rows, CLASS, (record.resource_class for record in records))
    for record in records:
        key = provider.uuid, record.resource_class
        before = rows.inventories.get(key)
        used = 0 if before is None else before.record.used
        if record.used != used:
            record = record.using(used)
        row = dataclasses.replace(before, record=record) if before else InventoryRow(record)
        rows.inventories.write(key, row)
    if len(classes) > len(provider.classes):
        provider = dataclasses.replace(provider, classes=tuple(classes))
    rows.providers.write(provider.uuid, provider)


def _remove_inventories(rows: Rows, removed: Sequence[Key], leaving: Collection[str]) -> None:
    """Remove inventories, or raise ``InUse`` if an inventory is used.

    :param leaving: the providers that are removed too
    """
    records = [(key, rows.inventories.get(key)) for key in removed]
    used = [key for key, inventory in records if inventory is not None and inventory.record.used]
    keys = {*removed}
    shared = [key for key in removed if not keys.issuperset(rows.sharers.of(key))]
    for uuid, name in (*used, *shared):
        provider = rows.providers[uuid]
        if uuid in leaving:
            raise exceptions.InUse("provider", provider.name)
        raise exceptions.InUse("inventory", provider.name, name)
    for key, inventory in records:
        if inventory is not None:
            rows.inventories.write(key, None)
            provider = rows.providers[key[0]]
            classes = tuple(name for name in provider.classes if name != key[1])
            writes = provider.writes + inventory.writes
            provider = dataclasses.replace(provider, classes=classes, writes=writes)
            rows.providers.write(provider.uuid, provider)


def _remove(rows: Rows, provider: ProviderRow) -> None:
    if rows.children.of(provider.uuid):
        raise exceptions.Stale("provider", provider.name, "it has a child that was not known")
    rows.providers.write(provider.uuid, None)
    for key in list(rows.removed_disabled_of.of(provider.uuid)):
        rows.removed_disabled.write(key, None)
    if provider.uuid in rows.statistics:
        rows.statistics.write(provider.uuid, None)


# --- shares ---


def _replace_shares(transaction: Transaction, sharing: Sequence[ProviderDefinition]) -> None:
    """Replace the shares of providers, and the use through them."""
    rows = transaction.rows
    for definition in sharing:
        for name in rows.providers[definition.uuid].classes:
            _set_shares(transaction, (definition.uuid, name), ())
    for definition in sharing:
        by_source: dict[Key, list[tuple[Key, int]]] = defaultdict(list)
        for share in definition.shares:
            target = share.of_uuid, share.of_class
            by_source[definition.uuid, share.resource_class].append((target, share.factor))
        for source, shares in by_source.items():
            if source not in rows.inventories:
                raise exceptions.Stale("provider", definition.name, f"{source[1]} does not exist")
            _set_shares(transaction, source, tuple(shares))


def _set_shares(transaction: Transaction, source: Key, shares: tuple[tuple[Key, int], ...]) -> None:
    rows = transaction.rows
    inventory = rows.inventories[source]
    if inventory.shares == shares:
        return
    for target, factor in inventory.shares:
        _use_shared(transaction, source, target, -inventory.direct * factor)
    for target, factor in shares:
        _use_shared(transaction, source, target, inventory.direct * factor)
    inventory = rows.inventories[source]
    rows.inventories.write(source, dataclasses.replace(inventory, shares=shares))


def _use_shared(transaction: Transaction, source: Key, target: Key, amount: int) -> None:
    rows = transaction.rows
    inventory = rows.inventories.get(target)
    if inventory is None:
        raise exceptions.Stale(
            "provider", rows.providers[source[0]].name, f"{target[1]} does not exist"
        )
    if amount:
        used = inventory.record.used + amount
        if used > MAX_AMOUNT:
            raise exceptions.InvalidInput("amount", "used", used, f"at most {MAX_AMOUNT}")
        record = inventory.record.using(used)
        rows.inventories.write(target, dataclasses.replace(inventory, record=record))
        transaction.mark_changed(target[0])


def _check_shares(rows: Rows, roots: Collection[str]) -> None:
    """Raise ``Stale`` if a share of some trees breaks a rule. Cost: linear in these trees."""
    root_of = {uuid: root for root in roots for uuid in rows.subtree(root)}
    keys = [(uuid, name) for uuid in root_of for name in rows.providers[uuid].classes]
    pairs = [(key, target) for key in keys for target, _ in rows.inventories[key].shares]
    broken = broken_share(pairs, root_of)
    if broken is not None:
        (sharer, _), _, rule = broken
        raise exceptions.Stale("provider", rows.providers[sharer].name, f"its shares must {rule}")


# --- service ---


def disable(transaction: Transaction, order: DisableOrder, write: Write) -> None:
    """Disable or enable a provider.

    :raises NotFound: if the provider does not exist
    :raises Stale: if it is not in the expected state
    """
    rows, uuid, by = transaction.rows, order.provider_uuid, write.operation.actor
    provider = transaction.provider(uuid)
    disabled = order.carried_out(provider.disabled, by, transaction.now, provider.name)
    writes = provider.definition_writes
    if (provider.disabled is None) != (disabled is None) and uuid not in write.counted:
        writes += 1  # Placement's users see a trait appear or disappear
    provider = dataclasses.replace(provider, disabled=disabled, definition_writes=writes)
    rows.providers.write(uuid, provider)
    transaction.disabled.append((rows.root(uuid).number, DisabledChange(uuid, disabled)))


def _restore_disabled(rows: Rows, changes: DefinitionChanges) -> None:
    """Disable created providers that were disabled when they were removed from the tree."""
    for definition in changes.creates if rows.removed_disabled else ():
        provider = rows.providers[definition.uuid]
        key = rows.root(provider.uuid).uuid, provider.name
        disabled = rows.removed_disabled.get(key)
        if disabled is not None and key[0] != provider.uuid:
            rows.providers.write(provider.uuid, dataclasses.replace(provider, disabled=disabled))
            rows.removed_disabled.write(key, None)


# --- statistics -----------------------------------------------------------------------------------


def write_statistics(rows: Rows, order: StatisticsOrder, now: datetime.datetime) -> int:
    """Write changed values and the times of reports; return the number of changed values.

    :param now: the time of the ledger
    :raises NotFound: if a provider of the order does not exist
    """
    for uuid in sorted(order.providers):
        provider = rows.providers.get(uuid)
        if provider is None:
            raise exceptions.NotFound("provider", uuid)
        if uuid in order.reported:
            rows.providers.write(uuid, dataclasses.replace(provider, reported_at=now))
    count = 0
    for uuid, reported in order.values.items():
        written, deleted = changed(rows.statistics.get(uuid) or {}, reported, order.source, now)
        if written or deleted:
            _store(rows, uuid, written, deleted)
            count += len(written) + len(deleted)
    return count


def read_statistics(rows: Rows, criteria: StatisticFilter) -> StatisticsByProvider:
    """Return the statistics that match a filter, providers in the order of their creation."""
    by_provider: StatisticsByProvider = {}
    for provider in _providers(rows, criteria):
        statistics = {
            name: Statistic.from_stored(name, row.value, row.since, row.source)
            for name, row in sorted(rows.statistics[provider.uuid].items())
            if criteria.names is None or name in criteria.names
        }
        if statistics:
            by_provider[provider.name] = statistics
    return by_provider


def delete_statistics(rows: Rows, criteria: StatisticFilter) -> int:
    """Delete the statistics that match a filter; return their number."""
    count = 0
    for provider in _providers(rows, criteria):
        stored = rows.statistics[provider.uuid]
        deleted = stored.keys() if criteria.names is None else stored.keys() & criteria.names
        if deleted:
            count += len(deleted)
            _store(rows, provider.uuid, {}, deleted)
    return count


def _store(
    rows: Rows, uuid: str, written: dict[str, StoredStatistic], deleted: Collection[str]
) -> None:
    statistics = {**(rows.statistics.get(uuid) or {}), **written}
    remaining = {name: row for name, row in statistics.items() if name not in deleted}
    rows.statistics.write(uuid, remaining or None)


def _providers(rows: Rows, criteria: StatisticFilter) -> list[ProviderRow]:
    """Return the providers with statistics that match a filter, in the order of their creation."""
    uuids = rows.statistics if criteria.providers is None else criteria.providers
    providers = [rows.providers[uuid] for uuid in uuids if uuid in rows.statistics]
    return sorted(providers, key=lambda provider: provider.number)
