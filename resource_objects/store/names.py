"""Changes of resource classes, traits and aggregates, and what a new name of a class changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from resource_objects import exceptions
from resource_objects import names as forms
from resource_objects.providers.listing import ListedName
from resource_objects.providers.name_rules import NAME_RULES
from resource_objects.providers.orders import Key, NameAction, NameChange, NameKind
from resource_objects.resources.records import KindRecord
from resource_objects.store.rows import ProviderRow, Rows, UnitRow
from resource_objects.store.transaction import Transaction

CLASS, TRAIT, AGGREGATE = NameKind.RESOURCE_CLASS, NameKind.TRAIT, NameKind.AGGREGATE


def change_name(transaction: Transaction, change: NameChange) -> None:
    """Carry out one change of a name.

    :raises NotFound: if the name does not exist
    :raises AlreadyExists: if the new name exists
    :raises NotSupported: if a standard name would be renamed or deleted
    :raises InUse: if a name to delete is used
    """
    _ACTIONS[change.action](transaction, change)


def ensure_name(rows: Rows, kind: NameKind, name: str) -> None:
    """Create a name unless it exists."""
    if (kind, name) not in rows.names:
        rows.names.put((kind, name), ListedName(next(rows.name_numbers), name))


def _ensure(transaction: Transaction, change: NameChange) -> None:
    NAME_RULES[change.kind].check(change.name)
    ensure_name(transaction.rows, change.kind, change.name)


def _find(rows: Rows, change: NameChange) -> ListedName:
    name = rows.names.get((change.kind, change.name))
    if name is None:
        raise exceptions.NotFound(NAME_RULES[change.kind].subject, change.name)
    return name


def _rename(transaction: Transaction, change: NameChange) -> None:
    rows, rules, kind = transaction.rows, NAME_RULES[change.kind], change.kind
    rules.refuse_standard(change)
    name = _find(rows, change)
    new = change.to or ""
    if new == name.name:
        return
    rules.check(new)
    if (kind, new) in rows.names:
        raise exceptions.AlreadyExists("name", new)
    rows.names.put((kind, name.name), None)
    rows.names.put((kind, new), dataclasses.replace(name, name=new))
    if kind is CLASS:
        rename_class(transaction, name.name, new)
        return
    for provider in list(_users(rows, change)):
        if kind is TRAIT:
            traits = provider.traits - {name.name} | {new}
            _put_renamed(transaction, dataclasses.replace(provider, traits=traits))
        else:
            aggregates = provider.aggregates - {name.name} | {new}
            _put_renamed(transaction, dataclasses.replace(provider, aggregates=aggregates))


def _put_renamed(transaction: Transaction, provider: ProviderRow) -> None:
    """Store a provider of whose definition a name changed, at the next generation."""
    provider = dataclasses.replace(provider, generation=transaction.number)
    transaction.rows.providers.put(provider.uuid, provider)
    transaction.renamed.add(provider.uuid)


def _users(rows: Rows, change: NameChange) -> Iterator[ProviderRow]:
    """Yield the providers that use a name. Cost: linear in the providers, for a trait in those."""
    if change.kind is TRAIT:
        yield from (rows.providers[uuid] for uuid in rows.with_trait.of(change.name))
        return
    for provider in rows.providers.rows.values():
        used = provider.classes if change.kind is CLASS else provider.aggregates
        if change.name in used:
            yield provider


def _delete(transaction: Transaction, change: NameChange) -> None:
    rows, rules = transaction.rows, NAME_RULES[change.kind]
    rules.refuse_standard(change)
    _find(rows, change)
    if next(_users(rows, change), None) is not None:
        raise exceptions.InUse(rules.subject, change.name)
    rows.names.put((change.kind, change.name), None)


def _set_level(transaction: Transaction, change: NameChange) -> None:
    if change.kind is not AGGREGATE:
        raise exceptions.InvalidInput(
            "field", "kind", change.kind, "an aggregate: only those have levels"
        )
    if change.to is not None:
        forms.label(change.to, "level")
    name = dataclasses.replace(_find(transaction.rows, change), level=change.to)
    transaction.rows.names.put((change.kind, change.name), name)


_ACTIONS: dict[NameAction, Callable[[Transaction, NameChange], None]] = {
    NameAction.ENSURE: _ensure,
    NameAction.RENAME: _rename,
    NameAction.DELETE: _delete,
    NameAction.SET_LEVEL: _set_level,
}


# --- a new name of a resource class, which is a part of the keys of rows ---


def rename_class(transaction: Transaction, old: str, new: str) -> None:
    """Store everything that is counted in ``old`` as ``new``. Cost: linear in the ledger."""
    rows = transaction.rows
    providers = rows.providers.rows.values()
    users = [provider for provider in providers if old in _classes_named(rows, provider)]
    for provider in users:
        classes = tuple(new if name == old else name for name in provider.classes)
        kinds = tuple(_renamed_kind(kind, old, new) for kind in provider.kinds)
        _put_renamed(transaction, dataclasses.replace(provider, classes=classes, kinds=kinds))
        if old in provider.classes:
            _move_inventory(rows, (provider.uuid, old), (provider.uuid, new))
    _rename_targets(rows, old, new)


def _classes_named(rows: Rows, provider: ProviderRow) -> Iterator[str]:
    """Yield every class that the definition of a provider names."""
    yield from provider.classes
    for kind in provider.kinds:
        yield kind.resource_class
        yield from kind.classes
    for name in provider.classes:
        for target, _ in rows.inventories[provider.uuid, name].shares:
            yield target[1]


def _renamed_kind(kind: KindRecord, old: str, new: str) -> KindRecord:
    resource_class = new if kind.resource_class == old else kind.resource_class
    classes = tuple(new if name == old else name for name in kind.classes)
    return dataclasses.replace(kind, resource_class=resource_class, classes=classes)


def _move_inventory(rows: Rows, old: Key, new: Key) -> None:
    inventory = rows.inventories[old]
    record = dataclasses.replace(inventory.record, resource_class=new[1])
    rows.inventories.put(old, None)
    rows.inventories.put(new, dataclasses.replace(inventory, record=record))
    for consumer, amount in list(rows.consumers_of(old)):
        rows.allocations.put((*old, consumer), None)
        rows.allocations.put((*new, consumer), amount)
        record_of = rows.consumers[consumer]
        held = tuple(
            dataclasses.replace(use, resource_class=new[1]) if use.key == old else use
            for use in record_of.held
        )
        rows.consumers.put(consumer, dataclasses.replace(record_of, held=held))
    for key in rows.units_of.of(old[0]):
        unit = rows.units[key]
        if unit.resource_class == old[1]:
            rows.units.put(key, UnitRow(unit.consumer, new[1]))


def _rename_targets(rows: Rows, old: str, new: str) -> None:
    """Change the class in the targets of shares."""
    for key in {
        source
        for target in list(rows.sharers.keys)
        if target[1] == old
        for source in rows.sharers.of(target)
    }:
        inventory = rows.inventories[key]
        shares = tuple(
            ((target[0], new) if target[1] == old else target, factor)
            for target, factor in inventory.shares
        )
        rows.inventories.put(key, dataclasses.replace(inventory, shares=shares))
