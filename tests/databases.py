"""Scratch databases for the tests: made empty, dropped afterwards, never shared.

A test asks for one of two fixtures (``conftest.py``), each of which runs it once per kind of
database in :data:`KINDS`:

``database_url``
    the URL of an empty database of its own. Costs a CREATE DATABASE, some 30 ms: for tests of
    migrations, of first starts and of the schema.

``prepared_database``
    a function ``prepare -> URL``. ``prepare(url)`` makes the schema and is called once in a test
    process; every test finds the database as ``prepare`` left it. Costs a DELETE per table, about
    10 ms in all: for the hundreds of tests that only write rows. Sequences go on counting; a test
    must not change the schema.

Servers are found through ``RO_TEST_POSTGRESQL`` and ``RO_TEST_MYSQL``, SQLAlchemy URLs of somebody
who may create databases. Without them, a local server is tried, without TLS: over TCP as its
administrator, then over its socket as the current user. Where none answers, the tests that need it
are skipped and say so; with ``CI=true`` or ``RO_TEST_REQUIRE_DATABASES=1`` they fail.

Names of scratch databases hold the process id and a random part, so test processes side by side
(pytest-xdist), also of several machines, do not meet. A killed process leaves its databases, named
``ro_test_*``, behind.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import getpass
import itertools
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import URL, make_url
from sqlalchemy.pool import NullPool

KINDS = ("sqlite", "postgresql", "mysql")

Prepare = Callable[[str], object]

#: Seconds that making, emptying or dropping a database waits for somebody's lock.
PATIENCE = 10

_POSTGRESQL_SOCKETS = "/var/run/postgresql"
_MYSQL_SOCKET = "/run/mysqld/mysqld.sock"


class Unreachable(Exception):
    """No server of a kind lets us create databases; the message says what was tried."""


def required() -> bool:
    """Return whether a server that cannot be reached is a failure, not a skip."""
    return os.environ.get("CI") == "true" or os.environ.get("RO_TEST_REQUIRE_DATABASES") == "1"


class Scratch:
    """The scratch databases of one test process; ``folder`` takes those that are files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._prepared: dict[tuple[str, Prepare], _Prepared] = {}

    def create(self, kind: str) -> str:
        """Return the URL of a new empty database.

        :raises Unreachable: if no server of that kind can be used
        """
        if kind == "sqlite":
            return f"sqlite:///{self._folder / _new_name()}.db"
        return _text(find_server(kind).create())

    def drop(self, url: str) -> None:
        """Remove a database, whoever is still connected to it."""
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            for leftover in self._folder.glob(f"{Path(str(parsed.database)).name}*"):
                leftover.unlink()  # with its -wal, -shm and -journal
        else:
            find_server(parsed.get_backend_name()).drop(parsed)

    @contextlib.contextmanager
    def prepared(self, kind: str, prepare: Prepare) -> Iterator[str]:
        """Lend the database that ``prepare`` was called on, and put it back as it was.

        What cannot be put back (an open transaction holds a row) is an error of the borrower, and
        the next one gets a new database. ``prepare`` is a function of a module: it is the key.
        """
        found = self._prepared.get((kind, prepare))
        if found is None:
            found = self._prepare(kind, prepare)
        yield found.url
        try:
            found.restore()
        except BaseException:
            del self._prepared[kind, prepare]
            self.drop(found.url)
            raise

    def _prepare(self, kind: str, prepare: Prepare) -> _Prepared:
        url = self.create(kind)
        try:
            prepare(url)
            found = self._prepared[kind, prepare] = _Prepared.of(url)
        except BaseException:
            self.drop(url)
            raise
        return found

    def close(self) -> None:
        """Drop the prepared databases."""
        while self._prepared:
            _, found = self._prepared.popitem()
            self.drop(found.url)


@dataclasses.dataclass(frozen=True)
class Server:
    """A database server: the URL of somebody who may create databases on it."""

    admin: URL

    def create(self) -> URL:
        """Make an empty database of text in UTF-8 and return its URL."""
        name = _new_name()
        how = "TEMPLATE template0 ENCODING 'UTF8'" if self._is_postgresql else "CHARSET utf8mb4"
        with connect(self.admin) as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name} {how}")
            if self._is_postgresql:  # no test takes its power away, and each commit would wait
                connection.exec_driver_sql(f"ALTER DATABASE {name} SET synchronous_commit = off")
        return self.admin.set(database=name)

    def drop(self, url: URL) -> None:
        """Drop a database; whoever is connected to it is thrown out."""
        name = url.database
        with connect(self.admin) as connection:
            if self._is_postgresql:
                connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
                return
            query = "SELECT id FROM information_schema.processlist WHERE db = %s"
            for (client,) in connection.exec_driver_sql(query, (name,)).all():
                with contextlib.suppress(sqlalchemy.exc.OperationalError):  # it left by itself
                    connection.exec_driver_sql(f"KILL {client}")
            connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {name}")

    @property
    def _is_postgresql(self) -> bool:
        return self.admin.get_backend_name() == "postgresql"


def find_server(kind: str) -> Server:
    """Return the server of a kind; it is looked for once in a process.

    :raises Unreachable: if there is none that lets us create databases
    """
    found = _find_server(kind, os.environ.get(f"RO_TEST_{kind.upper()}"))
    if isinstance(found, str):
        raise Unreachable(found)
    return found


@functools.cache
def _find_server(kind: str, given: str | None) -> Server | str:
    """Return the first server that makes and drops a database, or why none does."""
    problems = [f"no {kind} server lets us create databases (RO_TEST_{kind.upper()})"]
    for admin in [make_url(given)] if given else _local_servers(kind):
        server = Server(admin)
        try:
            server.drop(server.create())
            return server
        except sqlalchemy.exc.SQLAlchemyError as error:
            said = " ".join(str(getattr(error, "orig", error)).split())
            problems.append(f"{admin.render_as_string()}: {said}")
    return "; ".join(problems)


def _local_servers(kind: str) -> list[URL]:
    """Return where a server of this machine may answer.

    Without TLS: a driver that may use it reads the certificates of the machine for each connection,
    which takes longer than what most tests do on one.
    """
    me = getpass.getuser()
    if kind == "postgresql":
        driver, base, plain = "postgresql+psycopg", "postgres", {"sslmode": "disable"}
        found = [
            URL.create(driver, "postgres", host="127.0.0.1", port=5432, database=base),
            URL.create(driver, me, database=base, query={"host": _POSTGRESQL_SOCKETS}),
        ]
    else:
        driver, plain = "mysql+pymysql", {"ssl_disabled": "true"}
        found = [
            URL.create(driver, "root", host="127.0.0.1", port=3306, database=""),
            URL.create(driver, me, database="", query={"unix_socket": _MYSQL_SOCKET}),
        ]
    return [url.update_query_dict(plain) for url in found]


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """A database with a schema, and the rows that belong to it (a version, standard names)."""

    url: str
    tables: tuple[sqlalchemy.Table, ...]  #: referenced ones before those that refer to them
    rows: dict[str, list[tuple[Any, ...]]]

    @classmethod
    def of(cls, url: str) -> _Prepared:
        """Remember what is in a database now."""
        metadata = sqlalchemy.MetaData()
        with connect(make_url(url)) as connection:
            metadata.reflect(connection)
            tables = tuple(metadata.sorted_tables)
            return cls(url, tables, {table.name: _rows(connection, table) for table in tables})

    @functools.cached_property
    def _are_used(self) -> sqlalchemy.Select[*tuple[Any, ...]]:
        """The query that says of each table whether it has a row.

        It waits for who has a row of it in an open transaction, as the change of that row would.
        """
        looks = (
            sqlalchemy.select(sqlalchemy.literal(1)).select_from(table).with_for_update(read=True)
            for table in self.tables
        )
        return sqlalchemy.select(*map(sqlalchemy.exists, looks))

    def restore(self) -> None:
        """Make every table hold exactly the remembered rows again."""
        with connect(make_url(self.url)) as connection:
            if connection.dialect.name == "mysql":  # it checks row by row, also within one table
                connection.exec_driver_sql("SET foreign_key_checks = 0")
            connection.exec_driver_sql("BEGIN")  # one wait for the disk
            used = zip(self.tables, connection.execute(self._are_used).one(), strict=True)
            changed = [
                table
                for table, is_used in used
                if is_used != bool(rows := self.rows[table.name])
                or (rows and _rows(connection, table) != rows)
            ]
            for table in reversed(changed):
                connection.execute(table.delete())
            for table in changed:
                if rows := self.rows[table.name]:
                    names = [column.name for column in _kept(table)]
                    values = [dict(zip(names, row, strict=True)) for row in rows]
                    connection.execute(table.insert(), values)
            connection.exec_driver_sql("COMMIT")


def _rows(connection: sqlalchemy.Connection, table: sqlalchemy.Table) -> list[tuple[Any, ...]]:
    query = sqlalchemy.select(*_kept(table)).order_by(*table.primary_key.columns)
    return [tuple(row) for row in connection.execute(query)]


def _kept(table: sqlalchemy.Table) -> list[sqlalchemy.Column[Any]]:
    """Return the columns that are written, and not computed of others."""
    return [column for column in table.columns if column.computed is None]


@contextlib.contextmanager
def connect(url: URL) -> Iterator[sqlalchemy.Connection]:
    """Connect on our own, each statement committed, waiting for locks no longer than PATIENCE."""
    with _engine(url, PATIENCE).connect() as connection:
        yield connection


@functools.lru_cache
def _engine(url: URL, patience: int) -> sqlalchemy.Engine:
    """Return what connects, which keeps no connection: it asks a server what it is only once."""
    wait = f"SET lock_wait_timeout = {patience}, innodb_lock_wait_timeout = {patience}"
    waits: dict[str, dict[str, Any]] = {
        "sqlite": {"timeout": patience},
        "postgresql": {"connect_timeout": 5, "options": f"-c lock_timeout={patience}s"},
        "mysql": {"connect_timeout": 5, "init_command": wait},
    }
    return sqlalchemy.create_engine(
        url,
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
        connect_args=waits[url.get_backend_name()],
    )


_numbers = itertools.count()


def _new_name() -> str:
    return f"ro_test_{os.getpid()}_{secrets.token_hex(4)}_{next(_numbers)}"


def _text(url: URL) -> str:
    return url.render_as_string(hide_password=False)
