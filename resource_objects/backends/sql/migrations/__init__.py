"""How a database gets its tables, and which library may use it.

Each step is a revision under ``versions``, numbered from ``0001``. Alembic orders and stamps them
(table ``ro_alembic_version``); no ini file is involved. A released revision never changes: a later
schema is a later revision. Until 0.1.0 is released there is one revision, which creates the tables
of ``tables``.

Revisions *expand* first and *contract* later, so that libraries of two versions can use a database
at once: ``ledger_info.oldest_library`` is the oldest schema that a library which uses the database
may know. A contracting revision raises it.

An unreleased library may create other tables under the same number. So the tables have a
fingerprint, which the database stores (table ``ledger_schema``) and which is compared when the
database is opened. After a change of a table, run ``tests/backends/test_schema.py`` and
put the digest that it shows into ``FINGERPRINT``. Databases with the old tables are then refused as
``UNRELEASED``. A revision that changes the tables ends with ``store_fingerprint``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import tables
from resource_objects.backends.sql.statements import SQL

VERSION_TABLE = "ro_alembic_version"
#: The number of the newest revision this library knows.
NEWEST = 1
#: The fingerprint of ``tables.metadata``. It is a constant, so that no later SQLAlchemy, which may
#: describe the same tables in other words, changes it; a test compares it with the tables.
FINGERPRINT = "2d4b261a16ccee30cdde09329c091f21"

_REVISIONS = SQL(f"SELECT version_num FROM {VERSION_TABLE}")
_REVISIONS_AND_FINGERPRINT = SQL(
    f"SELECT version_num, (SELECT fingerprint FROM ledger_schema) FROM {VERSION_TABLE}"
)


class Standing(enum.Enum):
    """Whether this library may use a database."""

    EMPTY = "it has no tables"
    FOREIGN = "it has tables, but not those of a ledger"
    OLD = "it lacks tables or revisions this library needs"
    BEFORE = "a library before 0.1.0 made it, whose ledgers are not read"
    UNRELEASED = (
        "an unreleased version of this library made its tables, which differ from those of this "
        "version; use that version, or a new database"
    )
    USABLE = "this library may use it"
    TOO_NEW = "a newer library made it and does not admit this one"


def standing(connection: Connection) -> Standing:
    """Return whether this library may use a database, or the reason. Cost: two small queries."""
    inspector = sa.inspect(connection)
    if not inspector.has_table(VERSION_TABLE):
        names = set(inspector.get_table_names())
        if connection.dialect.name != "sqlite":  # a server may have tables of other programs
            names &= set(tables.metadata.tables)
        return Standing.FOREIGN if names else Standing.EMPTY
    if not inspector.has_table(tables.ledger_schema.name):
        return _standing_without_fingerprint(connection, inspector)
    rows = list(_REVISIONS_AND_FINGERPRINT.rows(connection))
    newest = _newest_of(number for number, _ in rows)
    if newest < NEWEST:
        return Standing.OLD
    if newest == NEWEST:
        return Standing.USABLE if rows[0][1] == FINGERPRINT else Standing.UNRELEASED
    oldest = connection.scalar(sa.select(tables.ledger_info.c.oldest_library))
    return Standing.USABLE if oldest is not None and oldest <= NEWEST else Standing.TOO_NEW


def _standing_without_fingerprint(connection: Connection, inspector: sa.Inspector) -> Standing:
    """Return the standing of a database that was made before fingerprints were stored."""
    if inspector.has_table("schema_info"):
        return Standing.BEFORE
    if revision(connection) == 0 or _has_current_columns(connection, inspector):
        return Standing.OLD
    return Standing.UNRELEASED


def _has_current_columns(connection: Connection, inspector: sa.Inspector) -> bool:
    """Return True if the tables, but for that of the fingerprint, have the columns of ``tables``.

    Columns suffice: no commit before fingerprints had these columns and other constraints.
    """
    columns_of = {table.name: table.columns.keys() for table in tables.metadata.sorted_tables}
    del columns_of[tables.ledger_schema.name]
    return columns_of.keys() <= set(inspector.get_table_names()) and all(
        list(connection.execute(sa.text(f"SELECT * FROM {name} WHERE 1 = 0")).keys()) == columns
        for name, columns in columns_of.items()
    )


def revision(connection: Connection) -> int:
    """Return the number of the newest revision that was run, 0 if none was."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return 0
    return _newest_of(number for (number,) in _REVISIONS.rows(connection))


def _newest_of(revisions: Iterable[str]) -> int:
    # a revision that is no number is one of a future library
    numbers = (int(name) if name.isdecimal() else NEWEST + 1 for name in revisions)
    return max(numbers, default=0)


def store_fingerprint(connection: Connection) -> None:
    """Replace the stored fingerprint by that of the tables."""
    connection.execute(sa.delete(tables.ledger_schema))
    connection.execute(sa.insert(tables.ledger_schema).values(id=1, fingerprint=FINGERPRINT))


def upgrade(connection: Connection) -> list[str]:
    """Run the missing revisions; return their names.

    The caller excludes other upgrades. After an interruption, a repetition continues.
    """
    # a ledger in use never needs Alembic
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(Path(__file__).parent))
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    has_fingerprint = sa.inspect(connection).has_table(tables.ledger_schema.name)
    if not context.get_current_heads() or not has_fingerprint:
        context.stamp(scripts, "base")  # creates the version table
        # without a fingerprint the first revision is run again, which creates the missing tables
    done: list[str] = []
    heads = tuple(context.get_current_heads()) or "base"
    for script in reversed(list(scripts.iterate_revisions("head", heads))):  # the oldest first
        with Operations.context(context):
            script.module.upgrade()
        context.stamp(scripts, script.revision)
        done.append(f"{script.revision} {script.doc}")
    return done
