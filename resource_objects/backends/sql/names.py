"""Resource classes, traits, aggregates and structured inventories as rows.

A backend caches the numbers of *standard* names, because their rows are never changed or removed.
Another process can rename or remove any other name at any time. So these are looked up in each
transaction, all of them by one small statement.

Only numbers that were *read* are cached: a number that this transaction inserted may be rolled back
and used again for another name.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import os_resource_classes
import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects import names as forms
from resource_objects.backends.retries import Transient
from resource_objects.backends.sql import statements, tables
from resource_objects.backends.sql.statements import SQL, chunks
from resource_objects.providers.listing import ListedName
from resource_objects.providers.name_rules import NAME_RULES
from resource_objects.providers.orders import NameAction, NameChange, NameKind
from resource_objects.resources.records import KindRecord
from resource_objects.resources.traits import standard_traits

_TABLES = {
    NameKind.RESOURCE_CLASS: tables.resource_classes,
    NameKind.TRAIT: tables.traits,
    NameKind.AGGREGATE: tables.aggregates,
}
#: The column that refers to a name, of the table that makes it used.
_USED_BY = {
    NameKind.RESOURCE_CLASS: ("inventories", "class_id"),
    NameKind.TRAIT: ("resource_provider_traits", "trait_id"),
    NameKind.AGGREGATE: ("resource_provider_aggregates", "aggregate_id"),
}


class NameNumbers:
    """The numbers of the names in one table.

    :param standard: returns the names whose rows never change
    """

    def __init__(self, table: sa.Table, standard: Callable[[], Collection[str]]) -> None:
        self._table = table.name
        self._by_name = SQL(f"SELECT name, id FROM {table.name} WHERE name IN :names*")
        self._by_number = SQL(f"SELECT name, id FROM {table.name} WHERE id IN :ids*")
        self._standard = standard
        self._inserted: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def find(self, connection: Connection, names: Collection[str]) -> dict[str, int]:
        """Return ``{name: number}`` of the names that exist.

        Cost: nothing for cached names, else one query.
        """
        cached = self._numbers
        numbers = {name: cached[name] for name in names if name in cached}
        missing = [name for name in names if name not in numbers]
        return numbers | self._look(connection, missing) if missing else numbers

    def names(self, connection: Connection, numbers: Iterable[int]) -> dict[int, str]:
        """Return ``{number: name}`` of these numbers. Cost: as :meth:`find`."""
        requested = set(numbers)
        names = {number: self._names[number] for number in requested & self._names.keys()}
        for part in chunks(sorted(requested - names.keys())):
            for name, number in self._by_number.rows(connection, ids=part):
                names[number] = name
                self._cache(name, number)
        return names

    def ensure(self, connection: Connection, names: Collection[str]) -> dict[str, int]:
        """Return ``{name: number}`` of all names, after inserting the missing ones.

        Transactions that insert the same name wait for each other; all insert in one order.
        """
        numbers = self.find(connection, names)
        missing = sorted(set(names) - numbers.keys())
        if not missing:
            return numbers
        self._inserted.update(missing)
        dialect = connection.dialect.name
        mark = "?" if dialect == "sqlite" else "%s"
        skip = "DUPLICATE KEY UPDATE id = id" if dialect == "mysql" else "CONFLICT DO NOTHING"
        text = f"INSERT INTO {self._table} (name) VALUES ({mark}) ON {skip}"
        connection.exec_driver_sql(text, [(name,) for name in missing])
        numbers |= self._look(connection, missing)
        for name in missing:
            if name not in numbers:  # it existed when it would have been inserted
                raise Transient(exceptions.DatabaseError("busy", name, "it was removed in between"))
        return numbers

    def _look(self, connection: Connection, names: Collection[str]) -> dict[str, int]:
        numbers: dict[str, int] = {}
        for part in chunks(sorted(names)):
            numbers.update(self._by_name.rows(connection, names=part))
        for name, number in numbers.items():
            self._cache(name, number)
        return numbers

    def _cache(self, name: str, number: int) -> None:
        """Cache a standard name, unless its transaction may not have ended."""
        if name in self._standard() and name not in self._inserted:
            self._numbers[name] = number
            self._names[number] = name


class Catalogue:
    """The names that one backend has looked up."""

    def __init__(self) -> None:
        self.classes = NameNumbers(tables.resource_classes, lambda: os_resource_classes.STANDARDS)
        self.traits = NameNumbers(tables.traits, standard_traits)
        self.aggregates = NameNumbers(tables.aggregates, tuple)

    def of(self, kind: NameKind) -> NameNumbers:
        """Return the names of a kind."""
        if kind is NameKind.RESOURCE_CLASS:
            return self.classes
        return self.traits if kind is NameKind.TRAIT else self.aggregates


# --- structured inventories -----------------------------------------------------------------------
#
# A row has what a structured inventory is in addition to its figures. The text with which a
# resource describes its inventory has no version. The stored form has one; only this module writes
# and reads it.


_ENCODER = json.JSONEncoder(separators=(",", ":"))
#: The version of stored descriptions. The oldest rows have none.
_STORED = 1
#: Begins and ends a stored description. MySQL, which formats JSON anew, formats it like this.
_BEGIN, _END = f'{{"version": {_STORED}, "description": ', "}"
_VERSION = re.compile(r'\{"version": ([^,}]*), "description": ')
_EVERY = SQL("SELECT provider_id, name, classes, body FROM structures")
_DROP_KINDS = SQL("DELETE FROM structures WHERE provider_id IN :ids*")


def insert_kinds(connection: Connection, kinds: Mapping[int, Iterable[KindRecord]]) -> None:
    """Insert the structured inventories of some providers, by number."""
    rows = [
        {
            "provider_id": number,
            "name": record.resource_class,
            "classes": _ENCODER.encode(record.classes),
            "body": f"{_BEGIN}{record.body}{_END}" if record.body else None,
        }
        for number, records in kinds.items()
        for record in records
    ]
    statements.insert(connection, tables.structures, rows)


def drop_kinds(connection: Connection, providers: Sequence[int]) -> None:
    """Delete the structured inventories of some providers, by number."""
    for part in chunks(providers):
        _DROP_KINDS.run(connection, ids=part)


def kind_record(name: str, classes: str, body: str | None) -> KindRecord:
    """Return the structured inventory of a row.

    :raises UnsupportedVersion: if a newer library described the inventory
    """
    return KindRecord(name, tuple(json.loads(classes)), description_of(name, body))


def description_of(name: str, body: str | None) -> str:
    """Return the description of an inventory from its stored form, "" for none.

    A row that was written without a version is its own description.

    :param name: the resource class of the inventory
    :raises UnsupportedVersion: if a newer library described the inventory

    >>> description_of("TRAY", '{"version": 1, "description": {"slots": 4}}')
    '{"slots": 4}'
    >>> description_of("TRAY", '{"slots": 4}')
    '{"slots": 4}'
    >>> description_of("TRAY", '{"version": 2, "description": {"slots": 4}}')
    Traceback (most recent call last):
    resource_objects.exceptions.UnsupportedVersion: stored description of TRAY: version 2, ...
    """
    if not body:
        return ""
    if body.startswith(_BEGIN):
        return body[len(_BEGIN) : -len(_END)]
    newer = _VERSION.match(body)
    if newer is not None:
        raise exceptions.UnsupportedVersion(
            f"stored description of {name}: version {newer[1]}, this library reads version "
            f"{_STORED}: use the library that wrote it, or a newer one"
        )
    return body


def rename_kinds(connection: Connection, names: Mapping[str, str]) -> set[int]:
    """Rename classes in structured inventories; return the numbers of the providers concerned.

    Cost: three statements, linear in the structured inventories of the ledger.
    """
    before: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    for number, name, encoded, body in _EVERY.rows(connection):
        classes = json.loads(encoded)
        if name in names or not names.keys().isdisjoint(classes):
            classes = _ENCODER.encode([names.get(old, old) for old in classes])
            key = {"provider_id": number, "name": name}
            before.append(key)
            row = {"name": names.get(name, name), "classes": classes, "body": body}
            after.append({**key, **row})
    statements.delete(connection, tables.structures, before)
    statements.insert(connection, tables.structures, after)
    return {row["provider_id"] for row in before}


# --- changes of names -----------------------------------------------------------------------------


def change_names(
    connection: Connection, catalogue: Catalogue, changes: Sequence[NameChange], number: int
) -> set[int]:
    """Carry out changes of names, in their order (see the contract).

    A provider whose definition contains a renamed name is stored at the next generation, so a
    definition that was compared before is refused. The numbers of these providers are returned.

    Cost: two to ten statements for consecutive changes of one kind and action.

    :param number: of the operation
    """
    renamed: set[int] = set()
    for part in _runs(changes):
        work = _NameChanges(connection, catalogue, part)
        providers = work.carry_out(part[0].action) - renamed
        for ids in chunks(sorted(providers)):
            _SET_GENERATION.run(connection, number=number, ids=ids)
        renamed |= providers
    return renamed


_SET_GENERATION = SQL("UPDATE resource_providers SET generation = :number WHERE id IN :ids*")


def _runs(changes: Iterable[NameChange]) -> Iterator[list[NameChange]]:
    """Yield changes that can be carried out together: of one kind and action, each name once."""
    for _, alike in itertools.groupby(changes, key=lambda change: (change.kind, change.action)):
        part: list[NameChange] = []
        seen: set[str | None] = set()
        for change in alike:
            names = {change.name}
            if change.action is NameAction.RENAME:
                names.add(change.to or "")
            if seen & names:
                yield part
                part, seen = [], set()
            part.append(change)
            seen |= names
        yield part


class _NameChanges:
    """Changes of names of one kind by one action."""

    def __init__(
        self, connection: Connection, catalogue: Catalogue, changes: Sequence[NameChange]
    ) -> None:
        self._connection = connection
        self._changes = changes
        self._kind = changes[0].kind
        self._table = _TABLES[self._kind]
        self._rule = NAME_RULES[self._kind]
        self._numbers = catalogue.of(self._kind)

    def carry_out(self, action: NameAction) -> set[int]:
        """Carry out the changes; return the numbers of the providers with a renamed name."""
        if action is NameAction.RENAME:
            return self._rename()
        actions = {
            NameAction.ENSURE: self._ensure,
            NameAction.DELETE: self._delete,
            NameAction.SET_LEVEL: self._set_level,
        }
        actions[action]()
        return set()

    def _ensure(self) -> None:
        for change in self._changes:
            self._rule.check(change.name)
        self._numbers.ensure(self._connection, [change.name for change in self._changes])

    def _rename(self) -> set[int]:
        numbers = self._custom()
        new_names = {
            change.name: change.to or "" for change in self._changes if change.to != change.name
        }
        for new in new_names.values():
            self._rule.check(new)
        existing = self._numbers.find(self._connection, list(new_names.values()))
        for new in new_names.values():
            if new in existing:
                raise exceptions.AlreadyExists("name", new)
        self._update({numbers[old]: {"name": new} for old, new in new_names.items()})
        # The rows of the names are locked now. A write that uses one of them waits, and then
        # for the inventory or the provider: so none comes in between.
        renamed = sorted(numbers[name] for name in new_names)
        providers = self._users(*_USED_BY[self._kind], renamed)
        if self._kind is NameKind.RESOURCE_CLASS:
            providers |= self._users("shares", "of_class_id", renamed)
            providers |= rename_kinds(self._connection, new_names)
        return providers

    def _users(self, table: str, column: str, numbers: Sequence[int]) -> set[int]:
        """Return the numbers of the providers that refer to a name in a column."""
        query = SQL(f"SELECT DISTINCT provider_id FROM {table} WHERE {column} IN :ids*")
        return {
            provider
            for part in chunks(numbers)
            for (provider,) in query.rows(self._connection, ids=part)
        }

    def _delete(self) -> None:
        numbers = self._custom()
        name_of = {number: name for name, number in numbers.items()}
        table, column = _USED_BY[self._kind]
        used = SQL(f"SELECT {column} FROM {table} WHERE {column} IN :ids* LIMIT 1")
        for part in chunks(sorted(name_of)):
            for (number,) in used.rows(self._connection, ids=part):
                raise exceptions.InUse(self._rule.subject, name_of[number])
            SQL(f"DELETE FROM {self._table.name} WHERE id IN :ids*").run(self._connection, ids=part)

    def _set_level(self) -> None:
        if self._kind is not NameKind.AGGREGATE:
            raise exceptions.InvalidInput(
                "field", "kind", self._kind.value, "an aggregate: only those have levels"
            )
        for change in self._changes:
            if change.to is not None:
                forms.label(change.to, "level")
        numbers = self._existing()
        self._update({numbers[change.name]: {"level": change.to} for change in self._changes})

    def _update(self, values: Mapping[int, Mapping[str, Any]]) -> None:
        rows = [{"id": number, **columns} for number, columns in sorted(values.items())]
        statements.update(self._connection, self._table, ["id"], rows)

    def _custom(self) -> dict[str, int]:
        """Return the numbers of names that may be renamed and removed."""
        for change in self._changes:
            self._rule.refuse_standard(change)
        return self._existing()

    def _existing(self) -> dict[str, int]:
        """Return the numbers of the names, all of which must exist."""
        numbers = self._numbers.find(self._connection, [change.name for change in self._changes])
        for change in self._changes:
            if change.name not in numbers:
                raise exceptions.NotFound(self._rule.subject, change.name)
        return numbers


def list_names(
    connection: Connection, kind: NameKind, limit: int, after: str | None
) -> tuple[ListedName, ...]:
    """Return a page of names, by their code points (see the contract). Cost: one query."""
    table = _TABLES[kind]
    query = sa.select(table.c.id, table.c.name).order_by(table.c.name).limit(limit)
    if kind is NameKind.AGGREGATE:
        query = query.add_columns(table.c.level)
    if after is not None:
        query = query.where(table.c.name > after)
    return tuple(ListedName(*row) for row in connection.execute(query))


def has_standard(connection: Connection) -> bool:
    """Return True if all standard names that this library knows exist. Cost: one query."""
    [counts] = _count_standard().rows(connection)
    return tuple(counts) == tuple(len(names) for _, names in _standard())


@functools.cache
def _count_standard() -> SQL:
    """Return the statement that counts the existing standard names.

    Each open of a database runs it. The names are part of the text, which is made once.
    """
    counts = []
    for table, names in _standard():
        listed = ", ".join(f"'{name}'" for name in names)
        counts.append(f"(SELECT COUNT(*) FROM {table.name} WHERE name IN ({listed}))")
    return SQL(f"SELECT {', '.join(counts)}")


def ensure_standard(connection: Connection) -> None:
    """Insert the missing standard names; those of a newer library stay.

    Safe with several processes at once. Cost: one query if all exist.
    """
    if not has_standard(connection):
        for table, names in _standard():
            NameNumbers(table, tuple).ensure(connection, names)


@functools.cache
def _standard() -> list[tuple[sa.Table, list[str]]]:
    """Return the standard names by table, sorted: all processes insert them in the same order."""
    return [
        (tables.resource_classes, sorted(os_resource_classes.STANDARDS)),
        (tables.traits, sorted(standard_traits())),
    ]
