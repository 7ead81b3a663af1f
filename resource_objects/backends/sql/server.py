"""PostgreSQL, MariaDB, Galera and MySQL.

The engine is oslo.db's, which guards connections against forks, tests them before use and
translates errors. Writers run at READ COMMITTED: they lock what they decide on, and must see what
others committed while they waited for the lock. Readers ask for one snapshot.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa
from oslo_db.sqlalchemy import engines
from sqlalchemy import URL, Connection, Engine

from resource_objects import exceptions
from resource_objects.backends.sql import urls
from resource_objects.backends.sql.engine import PATIENCE, Database, run_on_connect
from resource_objects.backends.sql.retry import Transient


class _Kind(NamedTuple):
    """How one kind of server is talked to."""

    options: dict[str, Any]
    on_connect: list[str]
    reading: list[str]


_KINDS = {
    "postgresql": _Kind(
        options={},
        on_connect=[
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
            f"SET lock_timeout = '{PATIENCE}s'",
        ],
        reading=[],  # the driver's own BEGIN says it
    ),
    "mysql": _Kind(
        options={"mysql_sql_mode": "TRADITIONAL"},
        on_connect=[
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            f"SET SESSION innodb_lock_wait_timeout = {PATIENCE}",
        ],
        reading=[
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
        ],
    ),
}


def connect(url: URL) -> Database:
    """Return the database that a URL names; nothing is asked of it yet.

    The first transaction connects, once: a dead server is found out at once, and no program hangs
    over it. Whoever wants to wait for a server tries again.

    :raises BackendNotFound: if the driver is not installed; names the extra that brings it
    """
    kind = _KINDS[url.get_backend_name()]
    try:
        engine = _engine(url, kind)
    except ImportError as error:
        extra = urls.DRIVERS[url.get_backend_name()][1]
        raise exceptions.BackendNotFound(
            url.drivername, f"{error}; pip install 'resource_objects[{extra}]'"
        ) from error
    return Database(engine, urls.shown(url), reading=kind.reading)


def _engine(url: URL, kind: _Kind) -> Engine:
    engine: Engine = engines.create_engine(
        url,
        connection_debug=-1,  # leave the program's logging alone
        max_pool_size=10,
        max_overflow=20,
        pool_timeout=PATIENCE,
        max_retries=0,  # of its own test of the connection
        thread_checkin=False,
        **kind.options,
    )
    run_on_connect(engine, *kind.on_connect)
    return engine


@contextlib.contextmanager
def upgrading(database: Database) -> Iterator[Connection]:
    """A writing transaction that no other upgrade runs beside.

    PostgreSQL defines tables in transactions; a lock that ends with one is enough. MySQL commits
    as it goes, so its lock belongs to a second connection and outlasts the last commit.
    """
    if database.dialect == "postgresql":
        with database.writing() as connection:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtext('ro_upgrade'))"))
            yield connection
        return
    with database.writing() as guard:
        # locks are the server's, not the database's
        name = "CONCAT('ro_upgrade_', MD5(DATABASE()))"
        if guard.scalar(sa.text(f"SELECT GET_LOCK({name}, {PATIENCE})")) != 1:
            raise Transient(exceptions.DatabaseBusy(database.where, "somebody else upgrades it"))
        try:
            with database.writing() as connection:
                yield connection
        finally:
            guard.execute(sa.text(f"SELECT RELEASE_LOCK({name})"))
