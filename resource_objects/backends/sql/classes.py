"""Numbers of names: resource classes, traits and aggregates.

A backend keeps the numbers of *standard* names that it looked up, because their rows are neither
changed nor removed. Any other name may be renamed or removed by another process at any time, so it
is looked up in each transaction anew, all of them by one small statement.

It keeps only what it *found*: a number made by a transaction of its own may never be committed,
and would then be somebody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import os_resource_classes
import sqlalchemy as sa
from sqlalchemy import Connection, Table
from sqlalchemy.dialects import mysql, postgresql, sqlite

from resource_objects import exceptions
from resource_objects.backends.sql import schema
from resource_objects.backends.sql.chunks import chunks
from resource_objects.backends.sql.retry import Transient
from resource_objects.resources.traits import standard_traits


class Names:
    """The numbers of the names in one table.

    :param standard: returns the names whose rows never change
    """

    def __init__(self, table: Table, standard: Callable[[], Collection[str]]) -> None:
        columns = table.c
        by_name = columns.name.in_(sa.bindparam("wanted", expanding=True))
        by_number = columns.id.in_(sa.bindparam("wanted", expanding=True))
        self._by_name = sa.select(columns.name, columns.id).where(by_name)
        self._by_number = sa.select(columns.name, columns.id).where(by_number)
        self._insert = _insert_unless_there(table)
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
        statement = self._insert[connection.dialect.name]
        connection.execute(statement, [{"name": name} for name in missing])
        found |= self._look(connection, missing)
        for name in missing:
            if name not in found:  # it was there when we would have inserted it
                raise Transient(exceptions.DatabaseBusy(name, "it was removed in between"))
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
        self.classes = Names(schema.resource_classes, lambda: os_resource_classes.STANDARDS)
        self.traits = Names(schema.traits, standard_traits)
        self.aggregates = Names(schema.aggregates, tuple)
