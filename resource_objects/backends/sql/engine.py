"""Connections and transactions: a :class:`Database` is all that the rest sees of an engine.

There are two kinds of transactions. A *reading* one sees one moment, however many statements it
takes; a *writing* one is serialised with others where it matters: by SQLite itself (BEGIN
IMMEDIATE), or by the row locks its statements take.

What a transaction begins with depends on the database, and is sent by a listener of the ``begin``
event; psycopg is told, and says it in its own BEGIN.

After a fork the child keeps none of the parent's connections. It does not close them either: on a
server that would end the parent's session, and with SQLite it would run code on locks and memory
maps that are the parent's.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import threading
import urllib.parse
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
import sqlalchemy.exc
from oslo_db.sqlalchemy import engines, exc_filters
from sqlalchemy import URL, Connection, Engine, event, make_url
from sqlalchemy.pool import NullPool, Pool, QueuePool

from resource_objects import exceptions
from resource_objects.backends.sql import errors
from resource_objects.backends.sql.errors import Transient

_BEGIN = "resource_objects_begin"
_SNAPSHOT = "resource_objects_snapshot"
#: How long, in seconds, a transaction waits for somebody else's lock.
PATIENCE = 30


class Database:
    """An engine with its two kinds of transactions.

    :param where: the database as it is shown to people
    :param reading: statements that begin a reading transaction
    :param writing: statements that begin a writing one
    :param after_reading: called before a reading transaction ends, also by an error; may
        raise to have it repeated
    :param embedded: whether it runs in this process and lets one connection write at a time;
        threads then queue up here, which is fair and prompt, and not at its polled lock
    :param read_only: whether nothing can be written, which is then found out before any work
    """

    def __init__(
        self,
        engine: Engine,
        where: str,
        *,
        reading: Sequence[str] = (),
        writing: Sequence[str] = (),
        after_reading: Callable[[Connection], None] | None = None,
        embedded: bool = False,
        read_only: bool = False,
    ) -> None:
        self.where = where
        self.dialect = engine.dialect.name
        self.closed = False
        self._engine = engine
        self._driver: Any = engine.dialect.loaded_dbapi
        self._errors = (*errors.DATABASE_ERRORS, self._driver.Error)
        self._reader = engine.execution_options(**{_BEGIN: tuple(reading), _SNAPSHOT: True})
        self._writer = engine.execution_options(**{_BEGIN: tuple(writing), _SNAPSHOT: False})
        self._after_reading = after_reading
        self.embedded = embedded
        self.read_only = read_only
        self._queue = threading.Lock()
        event.listen(engine, "begin", _send_begin)
        _open_databases.add(self)

    def is_missing(self) -> bool:
        """Return whether it is a file that nobody has made yet."""
        return self.embedded and not Path(self.where).exists()

    def close(self) -> None:
        """Close every connection; those in use when they are given back."""
        self.closed = True
        self._engine.dispose()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one moment and writes nothing."""
        with self._transaction(self._reader) as connection:
            try:
                yield connection
            finally:
                if self._after_reading is not None:
                    self._after_reading(connection)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is committed at the end of the block, or rolled back by its error."""
        self._check_writable()
        if not self.embedded:
            with self._transaction(self._writer) as connection:
                yield connection
            return
        queue = self._queue
        if not queue.acquire(timeout=PATIENCE):
            raise Transient(exceptions.DatabaseBusy(self.where, "other threads are writing"))
        try:
            with self._transaction(self._writer) as connection:
                yield connection
        finally:
            queue.release()

    @contextlib.contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Connection]:
        if self.closed:
            raise exceptions.LedgerClosed(self.where)
        connection: Connection | None = None
        lost = False
        try:
            with engine.connect() as connection, connection.begin():
                try:
                    yield connection
                except BaseException as error:
                    lost = self._discard_if_broken(connection, error)
                    raise
        except self._errors as error:
            found = errors.translate(error, self.where, connecting=connection is None, lost=lost)
            raise found from error
        except NotImplementedError as error:
            # oslo.db asks something of a connection that was lost while SQLAlchemy made its first
            # one, which is none of the pool yet and cannot answer
            if connection is not None:
                raise
            lost_at = error.__context__ if isinstance(error.__context__, Exception) else error
            raise errors.translate(lost_at, self.where, connecting=True) from error

    def _discard_if_broken(self, connection: Connection, error: BaseException) -> bool:
        """Keep a connection out of the pool that an error of the driver's own left unusable.

        SQLAlchemy does so for statements that go through it (``statements`` do not).
        """
        if connection.invalidated:
            return True
        driver: Any = connection.connection.dbapi_connection
        lost = isinstance(error, self._driver.Error) and connection.dialect.is_disconnect(
            error, driver, None
        )
        if lost or not isinstance(error, Exception):  # an interrupt may come in mid-protocol
            connection.invalidate()
        return lost

    def run(self, statement: str) -> None:
        """Run one statement outside of any transaction, such as a pragma."""
        self._check_writable()
        try:
            connection = self._engine.raw_connection()
            try:
                connection.cursor().execute(statement)
            finally:
                connection.close()
        except self._errors as error:
            raise errors.translate(error, self.where, connecting=True) from error

    def _check_writable(self) -> None:
        if self.read_only:
            raise exceptions.ReadOnlyDatabase(self.where, "this process may only read it")

    def _after_fork(self) -> None:
        _abandoned.append(self._engine.pool)
        self._engine.dispose(close=False)
        self._queue = threading.Lock()


def _send_begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    if connection.dialect.name == "postgresql":
        _set_kind(connection, snapshot=options.get(_SNAPSHOT, False))
    for statement in options.get(_BEGIN, ()):
        if connection.dialect.name == "sqlite":
            # to the driver: SQLAlchemy's bookkeeping would double the cost of a short transaction
            driver: Any = connection.connection.driver_connection
            driver.execute(statement)
        else:
            connection.exec_driver_sql(statement)


def _set_kind(connection: Connection, *, snapshot: bool) -> None:
    """Have the driver's own BEGIN, which it sends with the first statement, say what begins."""
    driver: Any = connection.connection.driver_connection
    read_only = True if snapshot else None  # a standby refuses to be asked for a writing one
    if driver.read_only is not read_only or driver.isolation_level is None:
        dialect: Any = connection.dialect
        dialect.set_readonly(driver, read_only)
        dialect.set_isolation_level(driver, "REPEATABLE READ" if snapshot else "READ COMMITTED")


_open_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_abandoned: list[Pool] = []


def _after_fork_in_child() -> None:
    for database in list(_open_databases):
        database._after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)


def run_on_connect(engine: Engine, *statements: str) -> None:
    """Run statements on each new connection, outside of any transaction."""

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, record: Any) -> None:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        cursor.close()
        connection.commit()


# --- urls -----------------------------------------------------------------------------------------
#
# Which URLs are served, and by which driver.
#
# One driver per database, the one the tests run: a URL without a driver gets it, a URL with another
# one is refused. ``mariadb://`` is said as ``mysql://``, because oslo.db knows the dialect by that
# name only.


#: ``{backend: (driver, extra that installs it)}``
DRIVERS = {
    "sqlite": ("pysqlite", ""),
    "postgresql": ("psycopg", "postgresql"),
    "mysql": ("pymysql", "mysql"),
}
_ALIASES = {"mariadb": "mysql", "postgres": "postgresql"}
_SYNCHRONOUS = ("NORMAL", "FULL")
#: What makes a name a string of letters that compares by code points, on a connection to MySQL.
_CHARSET = "utf8mb4"
_SECONDS = re.compile("[1-9][0-9]{0,3}", re.ASCII)


def parse_url(url: str) -> URL:
    """Return a URL with its driver, or raise.

    :raises InvalidURL: if it is no URL, or of a database, driver or option that is not served

    >>> parse_url("mariadb://root@db/lab").drivername
    'mysql+pymysql'
    >>> parse_url("sqlite://")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidURL: ledger URL: got 'sqlite://', expected a file, ...
    """
    try:
        given = make_url(url)
        port = given.port
    except (sqlalchemy.exc.ArgumentError, ValueError, TypeError) as error:
        raise _refuse(url, "a URL such as sqlite:///lab.db or postgresql://db/lab") from error
    name, _, driver = given.drivername.partition("+")
    name = _ALIASES.get(name, name)
    if name not in DRIVERS or driver not in ("", DRIVERS[name][0]):
        served = ", ".join(f"{name}+{driver}" for name, (driver, _) in DRIVERS.items())
        raise _refuse(url, f"one of {served}")
    if port is not None and not 0 < port < 65536:
        raise _refuse(url, "a port from 1 to 65535")
    parsed = given.set(drivername=f"{name}+{DRIVERS[name][0]}")
    return _CHECKS[name](url, parsed)


def _sqlite(url: str, parsed: URL) -> URL:
    if "\0" in (parsed.database or ""):
        raise _refuse(url, "a path without a NUL character")
    if not parsed.database or ":memory:" in parsed.database:
        raise _refuse(url, "a file, as in sqlite:///lab.db; for memory use memory://")
    if parsed.host or parsed.username or parsed.database.startswith("file:"):
        raise _refuse(url, "sqlite:/// and a path (four slashes for an absolute one)")
    unknown = set(parsed.query) - {"synchronous"}
    if unknown or synchronous(parsed) not in _SYNCHRONOUS:
        raise _refuse(url, f"no option but ?synchronous={' or '.join(_SYNCHRONOUS)}")
    return parsed


def synchronous(parsed: URL) -> str:
    """Return how a SQLite file is flushed: NORMAL unless the URL says FULL."""
    return str(parsed.query.get("synchronous", "NORMAL")).upper()


def _postgresql(url: str, parsed: URL) -> URL:
    return _server(url, parsed)


def _mysql(url: str, parsed: URL) -> URL:
    if parsed.query.get("charset", _CHARSET) != _CHARSET:
        raise _refuse(url, f"no charset but {_CHARSET}")
    return _server(url, parsed).update_query_dict({"charset": _CHARSET})


def _server(url: str, parsed: URL) -> URL:
    if not parsed.database:
        raise _refuse(url, "the name of a database after the host")
    try:
        url.encode()
    except UnicodeEncodeError:  # a driver would say it in an error of its own
        raise _refuse(url, "text that can be encoded: no lone surrogates") from None
    waits = parsed.query.get("connect_timeout", "5")
    if not isinstance(waits, str) or not _SECONDS.fullmatch(waits):
        raise _refuse(url, "connect_timeout in whole seconds, from 1 to 9999")
    if "connect_timeout" not in parsed.query:
        parsed = parsed.update_query_dict({"connect_timeout": "5"})
    return parsed


_CHECKS = {"sqlite": _sqlite, "postgresql": _postgresql, "mysql": _mysql}


def shown_url(parsed: URL) -> str:
    """Return a URL as it may be shown: without its password and options.

    >>> shown_url(parse_url("postgresql://me:secret@db/lab"))
    'postgresql+psycopg://me:***@db/lab'
    """
    if parsed.get_backend_name() == "sqlite":
        return f"sqlite:///{parsed.database}"
    return parsed.set(query={}).render_as_string()


def _refuse(url: object, expected: str) -> exceptions.InvalidURL:
    return exceptions.InvalidURL("ledger URL", url, expected)


# --- sqlite ---------------------------------------------------------------------------------------
#
# SQLite files.
#
# oslo.db's own engine gives every transaction a new connection, because that is what old programs
# relied on; a pool is three times as fast, and closing the last connection to a file in WAL mode
# costs a checkpoint. So the engine is made here, and oslo.db only translates its errors.
#
# * WAL: readers and the one writer do not wait for each other.
# * BEGIN IMMEDIATE: a writer takes its lock before it looks, so what it saw is still true when it
#   writes. Readers begin deferred and see one moment.
# * synchronous=NORMAL (default): a commit survives the death of the process at any instruction, but
#   the last ones may be lost with the power, never half of one. ``?synchronous=FULL`` flushes every
#   commit to disk.
#
# A file that this process may not write is read all the same; see :class:`ReadOnlyConnection`.


def connect_file(url: URL) -> Database:
    """Return the database of a file, which need not exist yet; nothing is made of it here.

    :raises DatabaseUnavailable: if its directory does not exist, or it cannot be made there
    """
    path = Path(str(url.database)).absolute()  # the working directory may change later
    if not path.parent.is_dir():
        raise exceptions.DatabaseUnavailable(str(path), f"there is no directory {path.parent}")
    if path.is_dir():
        raise exceptions.DatabaseUnavailable(str(path), "it is a directory")
    if not path.exists() and not os.access(path.parent, os.W_OK):
        raise exceptions.DatabaseUnavailable(str(path), "its directory cannot be written")
    if path.exists() and not _is_writable(path):
        return Database(
            _read_only_engine(path),
            str(path),
            reading=["BEGIN"],
            after_reading=_check_unchanged,
            read_only=True,
        )
    return Database(
        _file_engine(url.set(database=str(path), query={}), synchronous(url)),
        str(path),
        reading=["BEGIN"],
        writing=["BEGIN IMMEDIATE"],
        embedded=True,
    )


def use_wal(database: Database) -> None:
    """Put a file into WAL mode, which it stays in. It is busy while somebody else is inside."""
    database.run("PRAGMA journal_mode = WAL")


def _file_engine(url: URL, synchronous: str) -> Engine:
    engine = sa.create_engine(
        url,
        poolclass=QueuePool,
        pool_size=16,
        max_overflow=-1,
        pool_use_lifo=True,
        connect_args={"timeout": PATIENCE, "check_same_thread": False},
    )
    event.listen(engine, "connect", _we_begin)
    run_on_connect(engine, "PRAGMA foreign_keys = ON", f"PRAGMA synchronous = {synchronous}")
    exc_filters.register_engine(engine)  # type: ignore[no-untyped-call]  # as all of oslo.db
    return engine


def _we_begin(connection: sqlite3.Connection, record: Any) -> None:
    """Keep the driver from beginning transactions by itself (and late)."""
    connection.isolation_level = None


# --- files that may not be written ---


def _beside(path: Path, ending: str) -> Path:
    """Return one of the files that SQLite keeps beside a database."""
    return path.with_name(path.name + ending)


def _is_writable(path: Path) -> bool:
    """Return whether this process may write a file and what SQLite keeps beside it."""
    if not os.access(path, os.W_OK):
        return False
    beside = [_beside(path, ending) for ending in ("-wal", "-shm")]
    return os.access(path.parent, os.W_OK) or all(os.access(one, os.W_OK) for one in beside)


def _read_only_engine(path: Path) -> Engine:
    engine = sa.create_engine(
        "sqlite://", creator=lambda: ReadOnlyConnection.to(path), poolclass=NullPool
    )
    exc_filters.register_engine(engine)  # type: ignore[no-untyped-call]  # as all of oslo.db
    return engine


class ReadOnlyConnection(sqlite3.Connection):
    """A connection to a file that this process may not write, for one transaction.

    Even a reader writes, beside a file in WAL mode: the index of its log. Where it may not, or
    would leave files of its own in somebody else's way, SQLite can be told that the file is
    immutable; it then takes no locks. Whether that was true is checked after the transaction
    (:func:`_check_unchanged`), which is repeated if not. While somebody writes, the log is there,
    and is read in the usual way.
    """

    path: Path
    seen: tuple[int, int] | None = None  #: the file when it was taken for immutable

    @classmethod
    def to(cls, path: Path) -> ReadOnlyConnection:
        """Return a new connection."""
        seen = None if _is_in_use(path) else _state(path)
        options = "mode=ro" if seen is None else "mode=ro&immutable=1"
        connection = sqlite3.connect(
            f"file:{urllib.parse.quote(str(path))}?{options}",
            uri=True,
            timeout=PATIENCE,
            check_same_thread=False,
            isolation_level=None,
            factory=cls,
        )
        connection.path, connection.seen = path, seen
        return connection


def _is_in_use(path: Path) -> bool:
    """Return whether a log or journal says that the file itself is not the whole truth."""
    return any(
        one.exists() and one.stat().st_size
        for one in (_beside(path, "-wal"), _beside(path, "-journal"))
    )


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _check_unchanged(connection: Connection) -> None:
    """Raise, to have the transaction repeated, if a file was not as immutable as thought."""
    reader = connection.connection.driver_connection
    assert isinstance(reader, ReadOnlyConnection)
    if reader.seen is not None and (reader.seen != _state(reader.path) or _is_in_use(reader.path)):
        raise Transient(exceptions.DatabaseBusy(str(reader.path), "it is written all the time"))


# --- server ---------------------------------------------------------------------------------------
#
# PostgreSQL, MariaDB, Galera and MySQL.
#
# The engine is oslo.db's, which guards connections against forks, tests them before use and
# translates errors. Writers run at READ COMMITTED: they lock what they decide on, and must see what
# others committed while they waited for the lock. Readers ask for one snapshot.


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


def connect_server(url: URL) -> Database:
    """Return the database that a URL names; nothing is asked of it yet.

    The first transaction connects, once: a dead server is found out at once, and no program hangs
    over it. Whoever wants to wait for a server tries again.

    :raises BackendNotFound: if the driver is not installed; names the extra that brings it
    """
    kind = _KINDS[url.get_backend_name()]
    try:
        engine = _server_engine(url, kind)
    except ImportError as error:
        extra = DRIVERS[url.get_backend_name()][1]
        raise exceptions.BackendNotFound(
            url.drivername, f"{error}; pip install 'resource_objects[{extra}]'"
        ) from error
    return Database(engine, shown_url(url), reading=kind.reading)


def _server_engine(url: URL, kind: _Kind) -> Engine:
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
    if url.get_backend_name() == "postgresql":
        event.listen(engine, "connect", _json_as_text)
    return engine


def _json_as_text(connection: Any, record: Any) -> None:
    """Have the driver return JSON as it is kept: who needs it parsed does that."""
    from psycopg.types.string import TextLoader  # an extra: it may not be installed

    connection.adapters.register_loader("json", TextLoader)


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
