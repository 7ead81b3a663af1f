"""Numbers of names that never go: resource classes and traits.

A backend keeps what it looked up, because a row of these tables is neither changed nor removed. It
keeps only what it *found*: a number made by a transaction of its own may never be committed, and
would then be somebody else's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import sqlalchemy as sa
from sqlalchemy import Connection, Table
from sqlalchemy.dialects import mysql, postgresql, sqlite

from resource_objects.backends.sql import schema
from resource_objects.backends.sql.chunks import chunks


class Names:
    """The numbers of the names in one table."""

    def __init__(self, table: Table) -> None:
        columns = table.c
        by_name = columns.name.in_(sa.bindparam("wanted", expanding=True))
        by_number = columns.id.in_(sa.bindparam("wanted", expanding=True))
        self._by_name = sa.select(columns.name, columns.id).where(by_name)
        self._by_number = sa.select(columns.name, columns.id).where(by_number)
        self._insert = _insert_unless_there(table)
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def find(self, connection: Connection, names: Collection[str]) -> dict[str, int]:
        """Return ``{name: number}`` of the names that are there.

        Not for a transaction that inserts names itself. Cost: nothing for names found before.
        """
        known = self._numbers
        self._learn(connection, self._by_name, [name for name in names if name not in known])
        return {name: known[name] for name in names if name in known}

    def names(self, connection: Connection, numbers: Iterable[int]) -> dict[int, str]:
        """Return ``{number: name}``; not for a transaction that inserts names itself."""
        known = self._names
        self._learn(connection, self._by_number, list(set(numbers) - known.keys()))
        return known

    def ensure(self, connection: Connection, names: Collection[str]) -> dict[str, int]:
        """Return ``{name: number}`` of all names, inserting those that are not there.

        Inserters of one name wait for each other; all insert in the same order.
        """
        found = {name: self._numbers[name] for name in names if name in self._numbers}
        found |= self._kept(connection, set(names) - found.keys())
        missing = set(names) - found.keys()
        if missing:
            statement = self._insert[connection.dialect.name]
            connection.execute(statement, [{"name": name} for name in sorted(missing)])
        return found | self._kept(connection, missing)

    def _kept(self, connection: Connection, names: Collection[str]) -> dict[str, int]:
        return {
            row.name: row.id
            for part in chunks(sorted(names))
            for row in connection.execute(self._by_name, {"wanted": part})
        }

    def _learn(
        self, connection: Connection, query: sa.Select[str, int], wanted: list[object]
    ) -> None:
        for part in chunks(wanted):
            for name, number in connection.execute(query, {"wanted": part}):
                self._numbers[name] = number
                self._names[number] = name


def _insert_unless_there(table: Table) -> dict[str, sa.Insert]:
    """Return, by dialect, the INSERT that does nothing where the name is there already."""
    of_mysql = mysql.insert(table)
    return {
        "sqlite": sqlite.insert(table).on_conflict_do_nothing(),
        "postgresql": postgresql.insert(table).on_conflict_do_nothing(),
        "mysql": of_mysql.on_duplicate_key_update(id=table.c.id),
    }


class Catalogue:
    """The names one backend has looked up."""

    def __init__(self) -> None:
        self.classes = Names(schema.resource_classes)
        self.traits = Names(schema.traits)
