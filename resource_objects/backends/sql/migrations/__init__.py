"""How a database gets its tables, and which library may use it.

Each step is a revision under ``versions``, numbered from ``0001``. Alembic orders and stamps them
(table ``ro_alembic_version``); no ini file is involved. A released revision never changes: a later
schema is a later revision. Until 0.1.0 is released there is one revision, which creates the tables
of ``tables``.

Revisions *expand* first and *contract* later, so that libraries of two versions can work side by
side: ``ledger_info.oldest_library`` says the number of the oldest schema a library may know and
still use the database. An expanding revision leaves it alone, a contracting one raises it.

The number of a revision does not tell which tables an unreleased library made under it. So the
tables have a fingerprint, which the database stores (table ``ledger_schema``) and which is compared
when the database is opened. After a change of a table, run ``tests/backends/test_schema.py`` and
put the digest that it shows into ``FINGERPRINT``. Databases with the old tables are then refused as
``UNRELEASED``. A revision that changes the tables ends with ``store_fingerprint``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import tables
from resource_objects.backends.sql.statements import SQL

if TYPE_CHECKING:
    from alembic.script import Script, ScriptDirectory

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
    """What a database is to this library."""

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
    """Return what a database is to this library. Cost: two small queries."""
    inspector = sa.inspect(connection)
    if not inspector.has_table(VERSION_TABLE):
        found_tables = set(inspector.get_table_names())
        # a server's database may be shared with programs that have other tables
        ours = (
            found_tables
            if connection.dialect.name == "sqlite"
            else found_tables & set(tables.metadata.tables)
        )
        return Standing.FOREIGN if ours else Standing.EMPTY
    if not inspector.has_table(tables.ledger_schema.name):
        return _standing_without_fingerprint(connection, inspector)
    rows = list(_REVISIONS_AND_FINGERPRINT.rows(connection))
    found = _newest_of(number for number, _ in rows)
    if found < NEWEST:
        return Standing.OLD
    if found == NEWEST:
        return Standing.USABLE if rows[0][1] == FINGERPRINT else Standing.UNRELEASED
    oldest = connection.scalar(sa.select(tables.ledger_info.c.oldest_library))
    return Standing.USABLE if oldest is not None and oldest <= NEWEST else Standing.TOO_NEW


def _standing_without_fingerprint(connection: Connection, inspector: sa.Inspector) -> Standing:
    """Return the standing of a database that was made before fingerprints were stored."""
    if inspector.has_table("schema_info"):
        return Standing.BEFORE
    if _stored_revision(connection) == 0 or _has_current_columns(connection, inspector):
        return Standing.OLD
    return Standing.UNRELEASED


def _has_current_columns(connection: Connection, inspector: sa.Inspector) -> bool:
    """Return True if the tables, but for that of the fingerprint, have the columns of ``tables``.

    Columns suffice: no commit before fingerprints had these columns and other constraints.
    """
    wanted = {table.name: table.columns.keys() for table in tables.metadata.sorted_tables}
    del wanted[tables.ledger_schema.name]
    return wanted.keys() <= set(inspector.get_table_names()) and all(
        list(connection.execute(sa.text(f"SELECT * FROM {name} WHERE 1 = 0")).keys()) == columns
        for name, columns in wanted.items()
    )


def revision(connection: Connection) -> int:
    """Return the number of the newest revision that was run, 0 if none was."""
    return _stored_revision(connection) if sa.inspect(connection).has_table(VERSION_TABLE) else 0


def _stored_revision(connection: Connection) -> int:
    return _newest_of(number for (number,) in _REVISIONS.rows(connection))


def _newest_of(revisions: Iterable[str]) -> int:
    # a revision that is no number is none of ours: of a future in which that changed
    return max((int(one) if one.isdecimal() else NEWEST + 1 for one in revisions), default=0)


def store_fingerprint(connection: Connection) -> None:
    """Store the fingerprint of the tables, in place of the one that is stored."""
    connection.execute(sa.delete(tables.ledger_schema))
    connection.execute(sa.insert(tables.ledger_schema).values(id=1, fingerprint=FINGERPRINT))


def upgrade(connection: Connection) -> list[str]:
    """Run the revisions that are missing; return their names.

    The caller holds whatever keeps other upgrades out. Running it again after it was cut short
    goes on where it stopped.
    """
    # a ledger in use never needs Alembic
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(Path(__file__).parent))
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    has_fingerprint = sa.inspect(connection).has_table(tables.ledger_schema.name)
    if not context.get_current_heads() or not has_fingerprint:
        context.stamp(scripts, "base")  # makes the version table: what follows is ours from now on
        # without a fingerprint the first revision is run again, which creates what is missing
    done: list[str] = []
    for script in _missing(scripts, context.get_current_heads()):
        with Operations.context(context):
            script.module.upgrade()
        context.stamp(scripts, script.revision)
        done.append(f"{script.revision} {script.doc}")
    return done


def _missing(scripts: ScriptDirectory, heads: Sequence[str]) -> list[Script]:
    """Return the revisions that were not run yet, oldest first."""
    missing = list(scripts.iterate_revisions("head", tuple(heads) or "base"))
    return missing[::-1]
