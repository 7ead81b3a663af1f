"""Changes of resource classes, traits and aggregates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from resource_objects import exceptions
from resource_objects import names as forms
from resource_objects.providers.listing import ListedName
from resource_objects.providers.name_rules import NAME_RULES
from resource_objects.providers.orders import NameAction, NameChange, NameKind
from resource_objects.resources.records import KindRecord
from resource_objects.store.rows import ProviderRow, Rows, Transaction

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
    _ACTIONS[change.action](transaction, change)


def ensure_names(rows: Rows, kind: NameKind, names: Iterable[str]) -> None:
    """Create the missing names, in order."""
    for name in sorted(names):
        if (kind, name) not in rows.names:
            rows.names.write((kind, name), ListedName(next(rows.name_numbers), name))


def _ensure(transaction: Transaction, change: NameChange) -> None:
    NAME_RULES[change.kind].check(change.name)
    ensure_names(transaction.rows, change.kind, [change.name])


def _find(rows: Rows, change: NameChange) -> ListedName:
    name = rows.names.get((change.kind, change.name))
    if name is None:
        raise exceptions.NotFound(NAME_RULES[change.kind].subject, change.name)
    return name


def _rename(transaction: Transaction, change: NameChange) -> None:
    rows, rules, kind = transaction.rows, NAME_RULES[change.kind], change.kind
    rules.refuse_standard(change)
    name, old, new = _find(rows, change), change.name, change.to or ""
    if new == old:
        return
    rules.check(new)
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


def _delete(transaction: Transaction, change: NameChange) -> None:
    rows, rules = transaction.rows, NAME_RULES[change.kind]
    rules.refuse_standard(change)
    _find(rows, change)
    if _users(rows, change.kind, change.name):
        raise exceptions.InUse(rules.subject, change.name)
    rows.names.write((change.kind, change.name), None)


def _set_level(transaction: Transaction, change: NameChange) -> None:
    if change.kind is not AGGREGATE:
        expected = "an aggregate: only those have levels"
        raise exceptions.InvalidInput("field", "kind", change.kind, expected)
    if change.to is not None:
        forms.label(change.to, "level")
    name = dataclasses.replace(_find(transaction.rows, change), level=change.to)
    transaction.rows.names.write((change.kind, change.name), name)


_ACTIONS: dict[NameAction, Callable[[Transaction, NameChange], None]] = {
    NameAction.ENSURE: _ensure,
    NameAction.RENAME: _rename,
    NameAction.DELETE: _delete,
    NameAction.SET_LEVEL: _set_level,
}
