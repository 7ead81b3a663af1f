"""Many rows in one statement: inserted, changed and removed, each with values of its own.

A driver's ``executemany`` will not do everywhere: PyMySQL sends an UPDATE per row, psycopg a
message per row. So on servers the rows are given as a table that the statement joins with:

* PostgreSQL: ``unnest`` of one array for each column;
* MariaDB and MySQL: ``SELECT ... UNION ALL SELECT ...``, which all their versions know. Its
  ``executemany`` does make one INSERT of many rows;
* SQLite runs in the process: one prepared statement, run for each row, is what it does best.

Rows are mappings with the same keys. Values go to the driver as they are: times are those of
``statements.moment``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql.chunks import MOST_TEXT, chunks

Rows: TypeAlias = Sequence[Mapping[str, Any]]

#: Rows of one statement: MySQL parses a SELECT for each.
_MOST = {"mysql": 500, "postgresql": 10_000, "sqlite": 10_000}


def insert(connection: Connection, table: sa.Table, rows: Rows) -> None:
    """Insert rows, none of which may be there. Cost: a statement for thousands of rows."""
    if not rows:
        return
    names = list(rows[0])
    listed = ", ".join(names)
    if connection.dialect.name == "postgresql":
        text = f"INSERT INTO {table} ({listed}) SELECT {listed} FROM {_arrays(table, names)}"
        for part in chunks(rows, _MOST["postgresql"]):
            connection.exec_driver_sql(text, _columns(part, names))
        return
    marks = ", ".join([_mark(connection)] * len(names))
    text = f"INSERT INTO {table} ({listed}) VALUES ({marks})"
    connection.exec_driver_sql(text, [tuple(row[name] for name in names) for row in rows])


def update(connection: Connection, table: sa.Table, keys: Sequence[str], rows: Rows) -> int:
    """Give each row that has the values of ``keys`` its other values; return how many there were.

    Cost: a statement for thousands of rows, on MariaDB for 500.
    """
    changed = [name for name in rows[0] if name not in keys] if rows else []
    sets = {
        "sqlite": ", ".join(f"{name} = ?" for name in changed),
        "postgresql": ", ".join(f"{name} = given.{name}" for name in changed),
        "mysql": ", ".join(f"kept.{name} = given.{name}" for name in changed),
    }
    forms = {
        "sqlite": "UPDATE {table} SET {sets} WHERE {where}",
        "postgresql": "UPDATE {table} AS kept SET {sets} FROM {given} WHERE {where}",
        "mysql": "UPDATE {given} STRAIGHT_JOIN {table} AS kept ON {where} SET {sets}",
    }
    dialect = connection.dialect.name
    return _for_each(
        connection, table, [*changed, *keys], keys, rows, forms[dialect], sets[dialect]
    )


def delete(connection: Connection, table: sa.Table, rows: Rows) -> int:
    """Delete the rows that have these values; return how many there were. Cost: as ``update``."""
    forms = {
        "sqlite": "DELETE FROM {table} WHERE {where}",
        "postgresql": "DELETE FROM {table} AS kept USING {given} WHERE {where}",
        "mysql": "DELETE kept FROM {given} STRAIGHT_JOIN {table} AS kept ON {where}",
    }
    keys = list(rows[0]) if rows else []
    return _for_each(connection, table, keys, keys, rows, forms[connection.dialect.name], "")


def _for_each(
    connection: Connection,
    table: sa.Table,
    names: Sequence[str],
    keys: Sequence[str],
    rows: Rows,
    form: str,
    sets: str,
) -> int:
    """Run a statement on the rows of a table that have the values of ``keys``."""
    dialect = connection.dialect.name
    count = 0
    for part in chunks(rows, _most(dialect, rows)):
        if dialect == "sqlite":
            where = " AND ".join(f"{name} = ?" for name in keys)
            given: Any = [tuple(row[name] for name in names) for row in part]
            text = form.format(table=table, sets=sets, where=where)
        else:
            where = " AND ".join(f"kept.{name} = given.{name}" for name in keys)
            if dialect == "postgresql":
                source, given = _arrays(table, names), _columns(part, names)
            else:
                source = _selects(names, len(part))
                given = tuple(row[name] for row in part for name in names)
            text = form.format(table=table, sets=sets, where=where, given=source)
        count += connection.exec_driver_sql(text, given).rowcount
    return count


def _most(dialect: str, rows: Rows) -> int:
    """Return how many of some rows go into one statement, which MySQL takes of 16 MiB only."""
    if dialect != "mysql" or not rows:
        return _MOST[dialect]
    longest = max(sum(len(v) for v in row.values() if type(v) is str) for row in rows)
    return max(1, min(_MOST[dialect], MOST_TEXT // (4 * longest + 1)))  # up to 4 bytes each


def _mark(connection: Connection) -> str:
    return "?" if connection.dialect.name == "sqlite" else "%s"


def _arrays(table: sa.Table, names: Sequence[str]) -> str:
    """Return ``unnest(...) AS given (...)`` for an array of each column, by its name."""
    arrays = ", ".join(f"%({name})s::{_array_type(table.c[name])}" for name in names)
    return f"unnest({arrays}) AS given ({', '.join(names)})"


def _array_type(column: sa.Column[Any]) -> str:
    if isinstance(column.type, sa.Integer):
        return "bigint[]"
    return "timestamp[]" if isinstance(column.type, sa.DateTime) else "text[]"


def _columns(rows: Rows, names: Sequence[str]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in names}


def _selects(names: Sequence[str], count: int) -> str:
    """Return ``(SELECT ... UNION ALL SELECT ...) AS given`` for a number of rows."""
    first = ", ".join(f"%s AS {name}" for name in names)
    another = f" UNION ALL SELECT {', '.join(['%s'] * len(names))}"
    return f"(SELECT {first}{another * (count - 1)}) AS given"
