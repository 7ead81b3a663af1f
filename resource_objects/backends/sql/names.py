"""Numbers of names: resource classes, traits and aggregates.

A backend keeps the numbers of *standard* names that it looked up, because their rows are neither
changed nor removed. Any other name may be renamed or removed by another process at any time, so it
is looked up in each transaction anew, all of them by one small statement.

It keeps only what it *found*: a number made by a transaction of its own may never be committed,
and would then be somebody else's.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import os_resource_classes
import sqlalchemy as sa
from sqlalchemy import Connection, Table

from resource_objects import exceptions
from resource_objects import names as shapes
from resource_objects.backends.retries import Transient
from resource_objects.backends.sql import statements, tables
from resource_objects.backends.sql.statements import SQL, chunks
from resource_objects.providers.listing import ListedName
from resource_objects.providers.name_rules import NAME_RULES
from resource_objects.providers.orders import NameAction, NameChange, NameKind
from resource_objects.resources.records import KindRecord
from resource_objects.resources.traits import standard_traits


class NameNumbers:
    """The numbers of the names in one table.

    :param standard: returns the names whose rows never change
    """

    def __init__(self, table: Table, standard: Callable[[], Collection[str]]) -> None:
        self._table = table
        self._by_name, self._by_number = _lookups(table)
        self._standard = standard
        self._made: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def find(self, connection: Connection, names: Collection[str]) -> dict[str, int]:
        """Return ``{name: number}`` of the names that are there.

        Cost: nothing for standard names found before, else one query.
        """
        known = self._numbers
        found = {name: known[name] for name in names if name in known}
        missing = [name for name in names if name not in found]
        return found | self._look(connection, missing) if missing else found

    def names(self, connection: Connection, numbers: Iterable[int]) -> dict[int, str]:
        """Return ``{number: name}`` of these numbers. Cost: as :meth:`find`."""
        wanted = set(numbers)
        known = self._names
        found = {number: known[number] for number in wanted if number in known}
        for part in chunks(sorted(wanted - found.keys())):
            for name, number in connection.execute(self._by_number, {"wanted": part}):
                found[number] = name
                self._keep(name, number)
        return found

    def ensure(self, connection: Connection, names: Collection[str]) -> dict[str, int]:
        """Return ``{name: number}`` of all names, inserting those that are not there.

        Inserters of one name wait for each other; all insert in the same order.
        """
        found = self.find(connection, names)
        missing = sorted(set(names) - found.keys())
        if not missing:
            return found
        self._made.update(missing)
        statement = _insert_unless_there(self._table, connection.dialect.name)
        connection.execute(statement, [{"name": name} for name in missing])
        found |= self._look(connection, missing)
        for name in missing:
            if name not in found:  # it was there when we would have inserted it
                raise Transient(exceptions.DatabaseError("busy", name, "it was removed in between"))
        return found

    def _look(self, connection: Connection, names: Collection[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for part in chunks(sorted(names)):
            for name, number in connection.execute(self._by_name, {"wanted": part}):
                found[name] = number
                self._keep(name, number)
        return found

    def _keep(self, name: str, number: int) -> None:
        """Remember a standard name, unless it may be of a transaction that is not over."""
        if name in self._standard() and name not in self._made:
            self._numbers[name] = number
            self._names[number] = name


@functools.cache
def _lookups(table: Table) -> tuple[sa.Select[Any], sa.Select[Any]]:
    """Return the queries for names and numbers by name, and by number."""
    columns = table.c
    wanted: sa.BindParameter[Any] = sa.bindparam("wanted", expanding=True)
    query = sa.select(columns.name, columns.id)
    return query.where(columns.name.in_(wanted)), query.where(columns.id.in_(wanted))


@functools.cache
def _insert_unless_there(table: Table, dialect: str) -> sa.Insert:
    """Return the INSERT that does nothing where the name is there already.

    The dialect's module is loaded by whoever connects; importing all of them would take a tenth of
    a command's start.
    """
    statement = importlib.import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    inserted: sa.Insert = (
        statement.on_duplicate_key_update(id=table.c.id)
        if dialect == "mysql"
        else statement.on_conflict_do_nothing()
    )
    return inserted


class Catalogue:
    """The names one backend has looked up."""

    def __init__(self) -> None:
        self.classes = NameNumbers(tables.resource_classes, lambda: os_resource_classes.STANDARDS)
        self.traits = NameNumbers(tables.traits, standard_traits)
        self.aggregates = NameNumbers(tables.aggregates, tuple)


# --- kinds ----------------------------------------------------------------------------------------
#
# Kind records: what structured inventories are beside their figures. The text with which a kind
# describes an inventory has no version; the stored form of it has one, which this module alone
# writes and reads.


_structures = tables.structures.c
_ENCODER = json.JSONEncoder(separators=(",", ":"))
#: The version of stored descriptions. Rows of the time before there were versions have none.
_STORED = 1
#: Begins and ends a stored description. MySQL, which formats JSON anew, formats it like this.
_BEGIN, _END = f'{{"version": {_STORED}, "description": ', "}"
_VERSION = re.compile(r'\{"version": ([^,}]*), "description": ')
_EVERY = SQL("SELECT provider_id, name, classes, body FROM structures")
_DROP_KINDS = sa.delete(tables.structures).where(
    _structures.provider_id.in_(sa.bindparam("providers", expanding=True))
)


def insert_kinds(connection: Connection, kept: Mapping[int, Iterable[KindRecord]]) -> None:
    """Insert the kind records of some providers, by number."""
    found = [
        {
            "provider_id": number,
            "name": record.resource_class,
            "classes": _ENCODER.encode(record.classes),
            "body": f"{_BEGIN}{record.body}{_END}" if record.body else None,
        }
        for number, records in kept.items()
        for record in records
    ]
    statements.insert(connection, tables.structures, found)


def drop_kinds(connection: Connection, providers: Sequence[int]) -> None:
    """Delete the kind records of some providers, by number."""
    for part in chunks(providers):
        connection.execute(_DROP_KINDS, {"providers": part})


def kind_record(name: str, classes: str, body: str | None) -> KindRecord:
    """Return the kind record of a row.

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
    """Call classes by other names; return the numbers of the providers whose records say them.

    Cost: three statements, and a look at each structure.
    """
    before: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    for number, name, classes, body in _EVERY.rows(connection):
        said = json.loads(classes)
        if name not in names and not names.keys() & set(said):
            continue
        now = _ENCODER.encode([names.get(one, one) for one in said])
        before.append({"provider_id": number, "name": name})
        after.append({**before[-1], "name": names.get(name, name), "classes": now, "body": body})
    statements.delete(connection, tables.structures, before)
    statements.insert(connection, tables.structures, after)
    return {row["provider_id"] for row in before}


# --- names ----------------------------------------------------------------------------------------
#
# Resource classes, traits and aggregates by name: made, renamed, removed, listed.
#
# Standard names are put in when a writer opens the ledger, and never change; see ``classes``.


@dataclasses.dataclass(frozen=True)
class _Kind:
    """How one kind of name is kept: its table, and the column that refers to it."""

    table: sa.Table
    used_by: sa.Column[Any]
    of: Callable[[Catalogue], NameNumbers]


_KINDS = {
    NameKind.RESOURCE_CLASS: _Kind(
        tables.resource_classes, tables.inventories.c.class_id, lambda catalogue: catalogue.classes
    ),
    NameKind.TRAIT: _Kind(
        tables.traits,
        tables.resource_provider_traits.c.trait_id,
        lambda catalogue: catalogue.traits,
    ),
    NameKind.AGGREGATE: _Kind(
        tables.aggregates,
        tables.resource_provider_aggregates.c.aggregate_id,
        lambda catalogue: catalogue.aggregates,
    ),
}


# --- changing ---


def change_names(
    connection: Connection, catalogue: Catalogue, changes: Sequence[NameChange], number: int
) -> set[int]:
    """Carry out changes of names, in their order (see the contract).

    Returns the numbers of the providers whose definition says a name that is another now.

    Whoever's definition says a name that is another now is at its next generation, so that nobody
    writes what was compared before.

    Cost: two to ten statements for all changes of one kind and action that follow one another.
    """
    bumped: set[int] = set()  # one write, one step
    for part in _runs(changes):
        _NamesChange(connection, catalogue, part[0].kind, bumped, number).run(part[0].action, part)
    return bumped


def _runs(changes: Iterable[NameChange]) -> Iterator[list[NameChange]]:
    """Yield changes that can be made together: alike, and of no name twice."""
    for _, alike in itertools.groupby(changes, key=lambda change: (change.kind, change.action)):
        part: list[NameChange] = []
        seen: set[str | None] = set()
        for one in alike:
            of = {one.name, one.to if one.action is NameAction.RENAME else one.name}
            if seen & of:
                yield part
                part, seen = [], set()
            part.append(one)
            seen |= of
        yield part


class _NamesChange:
    """Changes of names of one kind."""

    def __init__(
        self,
        connection: Connection,
        catalogue: Catalogue,
        kind: NameKind,
        bumped: set[int],
        number: int,
    ) -> None:
        self._number = number
        self._connection = connection
        self._bumped = bumped
        self._kind, self._rule = _KINDS[kind], NAME_RULES[kind]
        self._names = self._kind.of(catalogue)

    def run(self, action: NameAction, changes: Sequence[NameChange]) -> None:
        actions = {
            NameAction.ENSURE: self._ensure,
            NameAction.RENAME: self._rename,
            NameAction.DELETE: self._delete,
            NameAction.SET_LEVEL: self._set_level,
        }
        actions[action](changes)

    def _ensure(self, changes: Sequence[NameChange]) -> None:
        for one in changes:
            self._rule.check(one.name)
        self._names.ensure(self._connection, [one.name for one in changes])

    def _rename(self, changes: Sequence[NameChange]) -> None:
        numbers = self._custom(changes)
        wanted = {one.name: one.to or "" for one in changes if one.to != one.name}
        for to in wanted.values():
            self._rule.check(to)
        taken = self._names.find(self._connection, list(wanted.values()))
        for to in wanted.values():
            if to in taken:
                raise exceptions.AlreadyExists("name", to)
        self._set({numbers[name]: {"name": to} for name, to in wanted.items()})
        self._count_up(sorted(numbers[name] for name in wanted), wanted)

    def _count_up(self, numbers: Sequence[int], wanted: Mapping[str, str]) -> None:
        """Count up the generation of everybody whose definition says names.

        Their rows of the names are changed already: who would use one waits for that, and then who
        would share an inventory of it for its provider. So nobody comes in between.
        """
        self._bump(self._providers(self._kind.used_by, numbers))
        if self._kind.table is tables.resource_classes:
            self._bump(self._providers(tables.shares.c.of_class_id, numbers))
            self._bump(rename_kinds(self._connection, wanted))

    def _providers(self, column: sa.Column[Any], numbers: Sequence[int]) -> set[int]:
        """Return the numbers of the providers that have a name in a column."""
        said = sa.select(column.table.c.provider_id).distinct()
        return {
            provider
            for part in chunks(numbers)
            for provider in self._connection.scalars(said.where(column.in_(part)))
        }

    def _bump(self, providers: set[int]) -> None:
        """Count up the generation of providers, in the order of their numbers, but none twice."""
        table = tables.resource_providers
        for part in chunks(sorted(providers - self._bumped)):
            bumped = sa.update(table).values(generation=self._number)
            self._connection.execute(bumped.where(table.c.id.in_(part)))
        self._bumped |= providers

    def _delete(self, changes: Sequence[NameChange]) -> None:
        numbers = self._custom(changes)
        name_of = {number: name for name, number in numbers.items()}
        for part in chunks(sorted(name_of)):
            used = sa.select(self._kind.used_by).where(self._kind.used_by.in_(part)).limit(1)
            for (number,) in self._connection.execute(used):
                raise exceptions.InUse(self._rule.subject, name_of[number])
            self._connection.execute(
                sa.delete(self._kind.table).where(self._kind.table.c.id.in_(part))
            )

    def _set_level(self, changes: Sequence[NameChange]) -> None:
        if self._kind.table is not tables.aggregates:
            kind = changes[0].kind.value
            raise exceptions.InvalidInput(
                "field", "kind", kind, "an aggregate: only those have levels"
            )
        for one in changes:
            if one.to is not None:
                shapes.label(one.to, "level")
        numbers = self._find(changes)
        self._set({numbers[one.name]: {"level": one.to} for one in changes})

    def _set(self, values: dict[int, dict[str, Any]]) -> None:
        found = [{"id": number, **given} for number, given in sorted(values.items())]
        statements.update(self._connection, self._kind.table, ["id"], found)

    def _custom(self, changes: Sequence[NameChange]) -> dict[str, int]:
        """Return the numbers of names that may be renamed and removed."""
        for one in changes:
            self._rule.refuse_standard(one)
        return self._find(changes)

    def _find(self, changes: Sequence[NameChange]) -> dict[str, int]:
        """Return the numbers of names that are there."""
        found = self._names.find(self._connection, [one.name for one in changes])
        for one in changes:
            if one.name not in found:
                raise exceptions.NotFound(self._rule.subject, one.name)
        return found


# --- listing ---


def list_names(
    connection: Connection, kind: NameKind, limit: int, after: str | None
) -> tuple[ListedName, ...]:
    """Return a page of names, by their code points (see the contract). Cost: one query."""
    table = _KINDS[kind].table
    query = sa.select(table.c.id, table.c.name).order_by(table.c.name).limit(limit)
    if kind is NameKind.AGGREGATE:
        query = query.add_columns(table.c.level)
    if after is not None:
        query = query.where(table.c.name > after)
    return tuple(ListedName(*row) for row in connection.execute(query))


# --- standard names ---


def has_standard(connection: Connection) -> bool:
    """Return whether every standard name that this library knows is there. Cost: one query."""
    [found] = _count_standard().rows(connection)
    return tuple(found) == tuple(len(names) for _, names in _standard())


@functools.cache
def _count_standard() -> SQL:
    """Return what counts the standard names that are there.

    Each open of a database asks it, and most ask nothing else of this size: so the names stand in
    its text, which is made once.
    """
    counts = []
    for table, names in _standard():
        listed = ", ".join(f"'{name}'" for name in names)
        counts.append(f"(SELECT COUNT(*) FROM {table.name} WHERE name IN ({listed}))")
    return SQL(f"SELECT {', '.join(counts)}")


def ensure_standard(connection: Connection) -> None:
    """Put in the standard names that are not there; those of a newer library stay.

    Safe with many processes at once: whoever is second finds them there. Cost: one query when all
    are there.
    """
    if has_standard(connection):
        return
    for table, names in _standard():
        there = set(connection.scalars(sa.select(table.c.name).where(table.c.name.in_(names))))
        missing = [name for name in names if name not in there]
        NameNumbers(table, tuple).ensure(connection, missing)


@functools.cache
def _standard() -> list[tuple[sa.Table, list[str]]]:
    """Return the standard names by table, sorted: everybody inserts them in the same order."""
    return [
        (tables.resource_classes, sorted(os_resource_classes.STANDARDS)),
        (tables.traits, sorted(standard_traits())),
    ]
