"""How a database gets its tables, and which library may use it.

Each step is a revision under ``versions``, numbered from ``0001``, and stays as it is for ever: a
later schema is a later revision. Alembic orders and stamps them (table ``ro_alembic_version``); no
ini file is involved.

Revisions *expand* first and *contract* later, so that libraries of two versions can work side by
side: ``ledger_info.oldest_library`` says the number of the oldest schema a library may know and
still use the database. An expanding revision leaves it alone, a contracting one raises it.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import tables
from resource_objects.backends.sql.statements import Statement

if TYPE_CHECKING:
    from alembic.script import Script, ScriptDirectory

VERSION_TABLE = "ro_alembic_version"
#: The number of the newest revision this library knows.
NEWEST = 1

_REVISIONS = Statement(sa.select(sa.column("version_num")).select_from(sa.table(VERSION_TABLE)))


class Standing(enum.Enum):
    """What a database is to this library."""

    EMPTY = "it has no tables"
    FOREIGN = "it has tables, but not those of a ledger"
    OLD = "it lacks revisions this library needs"
    BEFORE = "a library before 0.1.0 made it, whose ledgers are not read"
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
    if inspector.has_table("schema_info"):
        return Standing.BEFORE
    found = _newest_of(connection)
    if found < NEWEST:
        return Standing.OLD
    if found == NEWEST:
        return Standing.USABLE
    oldest = connection.scalar(sa.select(tables.ledger_info.c.oldest_library))
    return Standing.USABLE if oldest is not None and oldest <= NEWEST else Standing.TOO_NEW


def revision(connection: Connection) -> int:
    """Return the number of the newest revision that was run, 0 if none was."""
    return _newest_of(connection) if sa.inspect(connection).has_table(VERSION_TABLE) else 0


def _newest_of(connection: Connection) -> int:
    found = [number for (number,) in _REVISIONS.rows(connection, {})]
    # a revision that is no number is none of ours: of a future in which that changed
    return max((int(one) if one.isdecimal() else NEWEST + 1 for one in found), default=0)


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
    if not context.get_current_heads():
        context.stamp(scripts, "base")  # makes the version table: what follows is ours from now on
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
