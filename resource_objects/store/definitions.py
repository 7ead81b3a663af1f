"""Changes of providers, their inventories, shares and parents, and of their service.

Providers and inventories are created and updated before the orders of the same write, and removed
after them.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Sequence

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderRemoval,
    ProviderUpdate,
)
from resource_objects.providers.disabled import DisabledChange, DisableOrder
from resource_objects.providers.orders import Key, Write
from resource_objects.providers.provider import broken_share
from resource_objects.resources.records import InventoryRecord
from resource_objects.store.names import AGGREGATE, CLASS, TRAIT, ensure_names
from resource_objects.store.rows import InventoryRow, ProviderRow, Rows, Transaction


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
        for update in self.changes.updates:
            self._check_generation(update.definition, update.generation)
        for removal in self.changes.removals:
            self._check_generation(removal, removal.generation)
        created: set[str] = set()
        for definition in self.changes.creates:
            if definition.uuid in self.rows.providers or definition.uuid in created:
                raise exceptions.AlreadyExists("provider", definition.uuid)
            created.add(definition.uuid)
        names: set[str] = set()
        updated = (update.definition for update in self.changes.updates)
        for definition in (*updated, *self.changes.creates):
            owner = self.rows.provider_named.key.get(definition.name)
            if definition.name in names or (owner is not None and owner not in self._before):
                raise exceptions.AlreadyExists("provider", definition.name)
            names.add(definition.name)

    def _check_generation(self, stated: ProviderRemoval | ProviderDefinition, read: int) -> None:
        before = self._before[stated.uuid]
        if before is None or stated.uuid not in self.rows.providers:
            raise exceptions.Stale("provider", stated.name, "it was removed")
        check_generation(before, stated.name, read)

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


def check_generation(provider: ProviderRow, name: str, generation: int) -> None:
    """Raise ``Stale`` unless a provider is at a generation."""
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
