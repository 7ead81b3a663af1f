"""Resource classes, traits, aggregates, server groups and structured inventories as rows.

A backend caches the numbers of *standard* names, because their rows are never changed or removed.
Another process can rename or remove any other name at any time. So these are looked up in each
transaction, all of them by one small statement.

Only numbers that were *read* are cached: a number that this transaction inserted may be rolled back
and used again for another name.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.retries import busy
from resource_objects.backends.sql import statements, tables
from resource_objects.backends.sql.statements import SQL, Insert
from resource_objects.providers.listing import ListedName
from resource_objects.providers.orders import (
    ConsumerRecord,
    GroupChange,
    NameAction,
    NameChange,
    NameKind,
    Write,
    class_renames,
)
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.resources.records import KindRecord
from resource_objects.store.rows import NAME_RULES, ProviderRow, Rows, Transaction
from resource_objects.store.rows import changes as changed_rows
from resource_objects.store.write import begin

_TABLES = {
    NameKind.RESOURCE_CLASS: tables.resource_classes,
    NameKind.TRAIT: tables.traits,
    NameKind.AGGREGATE: tables.aggregates,
}


_USERS = {
    # a share counts as an inventory here: a rename concerns both, and it refers to an inventory
    NameKind.RESOURCE_CLASS: SQL("""
        SELECT n.class_id, p.id, p.uuid, p.name FROM resource_providers p JOIN (
            SELECT class_id, provider_id FROM inventories WHERE class_id IN :ids* UNION
            SELECT of_class_id, provider_id FROM shares WHERE of_class_id IN :ids*
        ) n ON p.id = n.provider_id"""),
    NameKind.TRAIT: SQL("""
        SELECT n.trait_id, p.id, p.uuid, p.name FROM resource_provider_traits n
        JOIN resource_providers p ON p.id = n.provider_id WHERE n.trait_id IN :ids*"""),
    NameKind.AGGREGATE: SQL("""
        SELECT n.aggregate_id, p.id, p.uuid, p.name FROM resource_provider_aggregates n
        JOIN resource_providers p ON p.id = n.provider_id WHERE n.aggregate_id IN :ids*"""),
}
#: The field of a provider with its names of each kind.
_FIELDS = dict(zip(NameKind, ("classes", "traits", "aggregates"), strict=True))
_STRUCTURES = SQL("""
    SELECT s.name, s.classes, s.body, p.id, p.uuid, p.name FROM structures s
    JOIN resource_providers p ON p.id = s.provider_id""")
_SET_GENERATION = SQL("UPDATE resource_providers SET generation = :number WHERE id IN :ids*")
#: The columns of a server group; the attributes have the same names.
GROUP = ("name", "policy", "max_per_host", "uuid", "generation")
LOCK_GROUPS = SQL(f"""
    SELECT id, {", ".join(GROUP)} FROM server_groups
    WHERE name IN :names* ORDER BY name {{server: FOR UPDATE}}""")
_FIRST_MEMBERS = SQL("""
    SELECT server_group, MIN(name) FROM consumers
    WHERE server_group IN :names* AND gone = 0 GROUP BY server_group""")
_REMOVE_GROUPS = SQL("DELETE FROM server_groups WHERE name IN :names*")
_CREATE_GROUPS = Insert(tables.server_groups, *GROUP)


class NameNumbers:
    """The numbers of the names of one kind."""

    def __init__(self, kind: NameKind) -> None:
        self._table = _TABLES[kind].name
        self._by_name = SQL(f"SELECT name, id FROM {self._table} WHERE name IN :names*")
        self._by_number = SQL(f"SELECT name, id FROM {self._table} WHERE id IN :ids*")
        self._standard = NAME_RULES[kind].standard
        self._inserted: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def names(self, connection: Connection, numbers: Iterable[int]) -> dict[int, str]:
        """Return ``{number: name}`` of these numbers. Cost: nothing if cached, else one query."""
        requested = set(numbers)
        names = {number: self._names[number] for number in requested & self._names.keys()}
        for name, number in self._by_number.rows_for(connection, requested - names.keys()):
            names[number] = name
            self._cache(name, number)
        return names

    def ensure(self, connection: Connection, names: Collection[str]) -> dict[str, int]:
        """Return ``{name: number}`` of all names, after inserting the missing ones.

        Transactions that insert the same name wait for each other; all insert in one order.
        """
        numbers = {name: self._numbers[name] for name in names if name in self._numbers}
        numbers |= self._look(connection, set(names) - numbers.keys())
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
                raise busy(name, "it was removed in between")
        return numbers

    def _look(self, connection: Connection, names: Collection[str]) -> dict[str, int]:
        numbers: dict[str, int] = dict(self._by_name.rows_for(connection, names))
        for name, number in numbers.items():
            self._cache(name, number)
        return numbers

    def _cache(self, name: str, number: int) -> None:
        """Cache a standard name, unless its transaction may not have ended."""
        if name in self._standard() and name not in self._inserted:
            self._numbers[name] = number
            self._names[number] = name


#: The option of an engine with the names that were looked up in its database, by kind.
CATALOGUE: Final = "resource_objects_names"


def catalogue_of(connection: Connection) -> Mapping[NameKind, NameNumbers]:
    """Return the names that were looked up in a database, by kind."""
    catalogue: Mapping[NameKind, NameNumbers] = connection.get_execution_options()[CATALOGUE]
    return catalogue


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


def kind_columns(provider: int, record: KindRecord) -> tuple[Any, ...]:
    """Return a structured inventory of a provider, by number, as a row."""
    body = f"{_BEGIN}{record.body}{_END}" if record.body else None
    return provider, record.resource_class, _ENCODER.encode(record.classes), body


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


# --- changes of names -----------------------------------------------------------------------------


def change_names(
    connection: Connection, write: Write, number: int, now: datetime.datetime
) -> set[int]:
    """Change the names and the server groups of a write; return the providers with a renamed name.

    The names and groups to change are locked and loaded, then the providers that use the names. A
    write that uses such a name waits for the lock, so no provider starts to use one in between.

    Cost: two to ten statements for each kind of name, at most four for groups. Linear in the users
    of the names, and to rename a class in the structured inventories of the ledger.

    :param number: of the operation
    :param now: the time of the database
    :returns: the numbers of the providers
    """
    if not write.names and not write.groups:
        return set()
    rows = Rows()
    rows.name_numbers = itertools.count(-1, -1)  # until they are inserted
    kinds = {change.kind: None for change in write.names}
    for kind in kinds:
        numbers = _load_names(connection, rows, kind, [c for c in write.names if c.kind is kind])
        for used, *provider in _USERS[kind].rows_for(connection, numbers):
            _extend_provider(rows, provider, _FIELDS[kind], numbers[used])
    renamed = {old for old, _ in class_renames(write.names)}
    for name, encoded, body, *provider in _STRUCTURES.rows(connection) if renamed else ():
        classes = tuple(json.loads(encoded))
        if not {name, *classes}.isdisjoint(renamed):  # the description as it is stored
            _extend_provider(rows, provider, "kinds", KindRecord(name, classes, body or ""))
    _load_groups(connection, rows, write.groups, now)
    begin(
        Transaction(rows, now, number),
        Write(write.operation, write.kind, write.subject, names=write.names, groups=write.groups),
    )
    changed = list(changed_rows(rows.journal))
    for kind in kinds:
        of_kind = [row for row in changed if row[0] is rows.names and row[1][0] is kind]
        before = {was.number: was for _, _, was, _ in of_kind if was is not None}
        after = {row.number: row for _, _, _, row in of_kind if row is not None}
        _write_names(connection, kind, before, after)
    groups = [(name, row) for table, name, _, row in changed if table is rows.server_groups]
    _REMOVE_GROUPS.run_for(connection, [name for name, row in groups if row is None])
    created = [attrgetter(*GROUP)(row) for _, row in groups if row is not None]
    _CREATE_GROUPS.many(connection, created)
    providers = [(was, row) for table, _, was, row in changed if table is rows.providers]
    users = {provider.number for _, provider in providers}
    _SET_GENERATION.run_for(connection, users, number=number)
    old = {row for was, _ in providers for row in _structure_rows(was)}
    new = {row for _, provider in providers for row in _structure_rows(provider)}
    statements.replace(connection, tables.structures, 2, old, new)
    return users


def _load_groups(
    connection: Connection, rows: Rows, changes: Sequence[GroupChange], now: datetime.datetime
) -> None:
    """Lock and load server groups, with a member of each to delete."""
    for _, *columns in LOCK_GROUPS.rows_for(connection, {change.name for change in changes}):
        group = group_of(columns)
        rows.server_groups.put_unjournaled(group.name, None, group)
    removing = {change.name for change in changes if change.group is None}
    for name, member in _FIRST_MEMBERS.rows_for(connection, removing):
        record = ConsumerRecord("", member, now, (), group=name)
        rows.consumers.put_unjournaled(member, None, record)


def group_of(columns: Sequence[Any], members: Iterable[str] = ()) -> ServerGroup:
    """Return the server group of a row, with its columns as in :data:`GROUP`."""
    name, policy, most, uuid, generation = columns
    return ServerGroup(name, policy, members, most, str(uuid), generation)


def _structure_rows(provider: ProviderRow) -> Iterator[tuple[Any, ...]]:
    for kind in provider.kinds:  # the description as it is stored
        encoded = _ENCODER.encode(kind.classes)
        yield provider.number, kind.resource_class, encoded, kind.body or None


def _load_names(
    connection: Connection, rows: Rows, kind: NameKind, changes: Sequence[NameChange]
) -> dict[int, str]:
    """Load the names of some changes; lock and return those to rename and to delete."""
    actions = NameAction.RENAME, NameAction.DELETE
    locked = {change.name for change in changes if change.action in actions}
    locked.difference_update(NAME_RULES[kind].standard())
    unlocked = {name for change in changes for name in (change.name, change.to) if name} - locked
    numbers: dict[int, str] = {}
    table = _TABLES[kind]
    select = f"SELECT {', '.join(table.columns.keys())} FROM {table.name} WHERE name IN :names*"
    lock = f"{select} ORDER BY id {{server: FOR UPDATE}}"
    for text, names in ((lock, locked), (select, unlocked)):
        for number, name, *level in SQL(text).rows_for(connection, names):
            rows.names.put_unjournaled((kind, name), None, ListedName(number, name, *level))
            numbers[number] = name
    return {number: name for number, name in numbers.items() if name in locked}


def _extend_provider(rows: Rows, provider: Sequence[Any], field: str, part: Any) -> None:
    """Add a part to a field of a provider, loaded as its number, its uuid and its name."""
    _, uuid, _ = provider
    before = rows.providers.get(uuid)
    row = before or ProviderRow(*provider)
    parts = getattr(row, field)
    changed: Any = {field: parts | {part} if isinstance(parts, frozenset) else (*parts, part)}
    rows.providers.put_unjournaled(uuid, before, dataclasses.replace(row, **changed))


def _write_names(
    connection: Connection,
    kind: NameKind,
    before: Mapping[int, ListedName],
    after: Mapping[int, ListedName],
) -> None:
    """Write the differences between the names of a kind, by number."""
    table = _TABLES[kind]
    delete = SQL(f"DELETE FROM {table.name} WHERE id IN :ids*")
    delete.run_for(connection, before.keys() - after.keys())
    rows = [row for _, row in sorted(after.items())]
    renamed = [row for row in rows if row.name != before.get(row.number, row).name]
    names = {row.name for row in rows}
    # two names may be exchanged, so names that change their number are freed first
    freed = [
        {"id": row.number, "name": f"{tables.GIVEN_UP}{row.number}"}
        for row in renamed
        if before[row.number].name in names
    ]
    statements.update(connection, table, ["id"], freed)
    renames = [{"id": row.number, "name": row.name} for row in renamed]
    statements.update(connection, table, ["id"], renames)
    created = catalogue_of(connection)[kind].ensure(
        connection, [row.name for row in rows if row.number < 0]
    )
    levels = [
        {"id": created.get(row.name, row.number), "level": row.level}
        for row in rows
        if row.level != (before[row.number].level if row.number in before else None)
    ]
    statements.update(connection, table, ["id"], levels)


def list_names(
    connection: Connection, kind: NameKind, limit: int, after: str | None = None
) -> tuple[ListedName, ...]:
    """Return a page of names, by their code points (see the contract). Cost: one query."""
    table = _TABLES[kind]
    query = sa.select(*table.c).order_by(table.c.name).limit(limit)
    if after is not None:
        query = query.where(table.c.name > after)
    return tuple(ListedName(*row) for row in connection.execute(query))


def has_standard(connection: Connection) -> bool:
    """Return True if all standard names that this library knows exist. Cost: one query."""
    counts = []
    for kind, names in _standard().items():
        listed = ", ".join(f"'{name}'" for name in names)
        counts.append(f"(SELECT COUNT(*) FROM {_TABLES[kind].name} WHERE name IN ({listed}))")
    row = connection.exec_driver_sql(f"SELECT {', '.join(counts)}").one()
    return tuple(row) == tuple(map(len, _standard().values()))


def ensure_standard(connection: Connection) -> None:
    """Insert the missing standard names; those of a newer library are not deleted.

    Safe with several processes at once.
    """
    for kind, names in _standard().items():
        NameNumbers(kind).ensure(connection, names)


@functools.cache
def _standard() -> dict[NameKind, list[str]]:
    """Return the standard names, sorted: all processes insert them in the same order."""
    names = {kind: sorted(rule.standard()) for kind, rule in NAME_RULES.items()}
    return {kind: standard for kind, standard in names.items() if standard}
