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
import select
import socket
import sqlite3
import stat
import threading
import time
import urllib.parse
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import sqlalchemy as sa
from oslo_db.sqlalchemy import exc_filters
from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.pool import NullPool, Pool, QueuePool

from resource_objects import exceptions
from resource_objects.backends.retries import Transient
from resource_objects.backends.sql import errors
from resource_objects.backends.sql.urls import DRIVERS, Address

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
    :param file: what it is kept in, if it runs in this process and lets one connection write at a
        time; threads then queue up here, which is fair and prompt, and not at its polled lock
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
        file: KeptFile | None = None,
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
        self.embedded = file is not None
        self._file = file
        self.read_only = read_only
        self._queue = threading.Lock()
        event.listen(engine, "begin", _send_begin)
        _open_databases.add(self)

    def is_missing(self) -> bool:
        """Return whether it is a file that nobody has made yet."""
        return self._file is not None and self._file.is_missing()

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
        if self._file is not None:
            self._file.check()
        connection: Connection | None = None
        lost = False
        errors.quiet.in_use += 1
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
        except OSError as error:  # a certificate that is none, and what else a driver needs
            if connection is not None:
                raise
            raise exceptions.DatabaseUnavailable(self.where, str(error)) from error
        finally:
            errors.quiet.in_use -= 1

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
        if self._file is not None:
            self._file.check()
        try:
            connection = self._engine.raw_connection()
            try:
                connection.cursor().execute(statement)
                if self._file is not None:
                    self._file.note_log(cast(sqlite3.Connection, connection.driver_connection))
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
        if self._file is not None:
            self._file.connections = 0
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


# --- sqlite ---------------------------------------------------------------------------------------
#
# SQLite files.
#
# oslo.db's own engine gives every transaction a new connection, because that is what old programs
# relied on, and closing the last connection to a file in WAL mode costs a checkpoint: a transaction
# of one SELECT takes 249 microseconds with it, 311 with its enginefacade, 28 on a pooled connection
# and 44 with oslo.db's translation of errors, which is the part that is used.
#
# * WAL: readers and the one writer do not wait for each other.
# * BEGIN IMMEDIATE: a writer takes its lock before it looks, so what it saw is still true when it
#   writes. Readers begin deferred and see one moment.
# * synchronous=FULL: what is acknowledged is on disk. In WAL mode a commit is one flush of the log,
#   and FULL is what it takes; EXTRA adds nothing there. ``?synchronous=NORMAL`` flushes at
#   checkpoints: a commit survives the death of the process at any instruction, but the last ones
#   may be lost with the power, never half of one. Where ``fsync`` does not reach the disk (macOS),
#   ``fullfsync`` does.
# * A checkpoint each 4,000 pages of the log, 16 MB, not 1,000: a page that many claims change is
#   copied into the file once for all of them. A claim takes a sixth less of the processor.
#
# A file that this process may not write is read all the same; see :class:`ReadOnlyConnection`.


#: pages of the log after which a commit writes them to the file
_LOG_PAGES = 4000


class KeptFile:
    """The file that a ledger is kept in, watched: nobody sees what is written to one that is gone.

    A file that was deleted stays open, and takes writes, as long as somebody has it. So before
    each transaction it is looked at whether the file of that name is the one that was opened, and
    its log the one that was begun. Cost: two calls of ``stat``.
    """

    def __init__(self, path: Path) -> None:
        # text: to ask about a Path takes four times as long
        self._path, self._log = str(path), str(_beside(path, "-wal"))
        self._seen: tuple[int, int] | None = None
        self._seen_log: tuple[int, int] | None = None
        self._is_filled = False
        #: those that are open; while there is one, nobody removes the log
        self.connections = 0

    def check(self) -> None:
        """Raise DatabaseReplaced unless it is what it was."""
        if self._seen is None:
            self._make()
        found = self._look(self._path)
        if found is None:
            if self._seen is not None:
                raise exceptions.DatabaseReplaced(self._path, "it was deleted")
            return  # it cannot be made: SQLite says why
        identity = found.st_dev, found.st_ino
        if self._seen not in (None, identity):
            raise exceptions.DatabaseReplaced(self._path, "another file has its name")
        if self._is_filled and not found.st_size:
            raise exceptions.DatabaseReplaced(self._path, "it was emptied")
        self._seen, self._is_filled = identity, found.st_size > 0
        begun = self._seen_log
        if begun is not None:
            found = self._look(self._log)
            is_same = found is not None and (found.st_dev, found.st_ino) == begun
            if not is_same and self._seen_log == begun:  # nobody closed the last connection now
                raise exceptions.DatabaseReplaced(self._path, f"{self._log} was deleted")

    def is_missing(self) -> bool:
        """Return whether no file has the name."""
        return self._look(self._path) is None

    def _look(self, path: str) -> os.stat_result | None:
        try:
            return os.stat(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise exceptions.DatabaseUnavailable(path, str(error.strerror)) from error

    def _make(self) -> None:
        """Make it, if it is not there, for its owner alone; SQLite would make it for all to read.

        It must not be opened and closed here: that would end SQLite's locks on it, if it is there.
        """
        with contextlib.suppress(OSError):
            os.mknod(self._path, stat.S_IFREG | 0o600)

    def opened(self, connection: sqlite3.Connection, record: Any) -> None:
        """Note a new connection, and see to it that its group may use the files beside it."""
        self.connections += 1
        self.note_log(connection)
        share_with_group(Path(self._path))

    def note_log(self, connection: sqlite3.Connection) -> None:
        """Note which log it is, which nobody removes from now on while a connection is open."""
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()  # begins it
        found = self._look(self._log)
        if self._seen_log is None and found is not None:
            self._seen_log = found.st_dev, found.st_ino

    def closed(self, connection: sqlite3.Connection, record: Any) -> None:
        """Note that a connection is gone, and with the last of them perhaps the log."""
        self.connections = max(self.connections - 1, 0)
        if not self.connections:
            self._seen_log = None


def share_with_group(path: Path) -> None:
    """Give the files beside a database, where they are ours, to its group, with its mode.

    SQLite gives them its mode, but new files have the group of who made them, unless their
    directory is set-group-ID: then other members of the database's group could not go on.
    """
    try:
        kept = os.stat(path)
        for ending in ("-wal", "-shm"):
            beside = _beside(path, ending)
            found = os.stat(beside)
            if found.st_uid == os.geteuid() and found.st_gid != kept.st_gid:
                os.chown(beside, -1, kept.st_gid)
                os.chmod(beside, stat.S_IMODE(kept.st_mode))
    except (FileNotFoundError, PermissionError):  # somebody else has just removed it; no member
        return


def _obstacle(path: Path, exists: bool) -> str:
    """Return why a path cannot be the file of a ledger; empty if it can."""
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}"
    if path.is_dir():
        return "it is a directory"
    if exists and not path.is_file():
        return "it is no regular file"
    if exists and not os.access(path, os.R_OK):
        return "this process may not read it"
    return "" if exists or os.access(path.parent, os.W_OK) else "its directory cannot be written"


def connect_file(address: Address) -> Database:
    """Return the database of a file, which need not exist yet; nothing is made of it here.

    :raises DatabaseUnavailable: if its directory does not exist, or it cannot be made there
    """
    path = Path(str(address.url.database)).absolute()  # the working directory may change later
    try:
        exists = path.exists()
        reason = _obstacle(path, exists)
    except OSError as error:  # a directory on the way that this process may not search
        raise exceptions.DatabaseUnavailable(str(path), str(error.strerror)) from error
    if reason:
        raise exceptions.DatabaseUnavailable(str(path), reason)
    if exists and not _is_writable(path):
        return Database(
            _read_only_engine(path),
            str(path),
            reading=["BEGIN"],
            after_reading=_check_unchanged,
            read_only=True,
        )
    system = _network_system(path)
    if system is not None and not address.ours["network"]:
        raise exceptions.DatabaseUnavailable(
            str(path),
            f"it lies on a network file system ({system}), which does not lock as SQLite needs it;"
            " use a server, or insist with ?network=yes if one machine alone uses it",
        )
    file = KeptFile(path)
    return Database(
        _file_engine(address.url.set(database=str(path)), address.ours["synchronous"], file),
        str(path),
        reading=["BEGIN"],
        writing=["BEGIN IMMEDIATE"],
        file=file,
    )


_MOUNTS = Path("/proc/self/mountinfo")
#: as Linux calls them
_NETWORK_SYSTEMS = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "9p", "afs", "coda", "ceph", "lustre"),
    *("beegfs", "gpfs", "orangefs", "pvfs2", "ocfs2", "gfs2", "glusterfs", "davfs", "davfs2"),
    *("sshfs", "s3fs", "rclone", "gcsfuse", "juicefs", "moosefs", "mfs"),
}


def _network_system(path: Path) -> str | None:
    """Return the network file system that a file lies on, or would; None if on none, or unknown.

    What a mount shows is described in proc_pid_mountinfo(5): the fifth field is where, with octal
    escapes, and the first one behind a lone hyphen which kind.
    """
    try:
        lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:  # no Linux
        return None
    wanted = os.path.realpath(path)
    longest, kind = "", ""
    for line in lines:
        fields = line.split(" ")
        place = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[4])
        is_above = wanted.startswith(place.rstrip("/") + "/") or wanted == place
        if is_above and len(place) >= len(longest):  # of two on one place the later one is seen
            longest, kind = place, fields[fields.index("-") + 1]
    return kind if kind.removeprefix("fuse.") in _NETWORK_SYSTEMS else None


def use_wal(database: Database) -> None:
    """Put a file into WAL mode, which it stays in. It is busy while somebody else is inside."""
    database.run("PRAGMA journal_mode = WAL")


def _file_engine(url: URL, synchronous: str, file: KeptFile) -> Engine:
    engine = sa.create_engine(
        url,
        poolclass=QueuePool,
        pool_size=16,
        max_overflow=-1,
        pool_use_lifo=True,
        connect_args={"timeout": PATIENCE, "check_same_thread": False},
    )
    event.listen(engine, "connect", _we_begin)
    event.listen(engine, "connect", _add_sums)
    run_on_connect(
        engine,
        "PRAGMA foreign_keys = ON",
        f"PRAGMA synchronous = {synchronous}",
        "PRAGMA fullfsync = ON",
        f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}",
    )
    event.listen(engine, "connect", file.opened)
    for gone in ("close", "close_detached"):
        event.listen(engine, gone, file.closed)
    exc_filters.register_engine(engine)  # type: ignore[no-untyped-call]  # as all of oslo.db
    return engine


def _we_begin(connection: sqlite3.Connection, record: Any) -> None:
    """Keep the driver from beginning transactions by itself (and late)."""
    connection.isolation_level = None


class _SumOfProducts:
    """``sum_of_products(a, b)``, exact, as text: SQLite's own integers have 64 bits."""

    def __init__(self) -> None:
        self._sum = 0

    def step(self, one: int, other: int, /) -> None:
        self._sum += one * other

    def finalize(self) -> str:
        return str(self._sum)


def _add_sums(connection: sqlite3.Connection, record: Any) -> None:
    aggregate: Any = _SumOfProducts  # typed for one argument
    connection.create_aggregate("sum_of_products", 2, aggregate)


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
    event.listen(engine, "connect", _add_sums)
    exc_filters.register_engine(engine)  # type: ignore[no-untyped-call]  # as all of oslo.db
    return engine


def empty_database(where: str) -> Database:
    """Return a database in memory, to read in place of a file that does not exist yet.

    :param where: the file, for errors
    """
    uri = f"file:{uuid.uuid4().hex}?mode=memory&cache=shared"
    engine = sa.create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(
            uri, uri=True, check_same_thread=False, isolation_level=None
        ),
        poolclass=QueuePool,
        max_overflow=-1,
    )
    event.listen(engine, "connect", _add_sums)
    exc_filters.register_engine(engine)  # type: ignore[no-untyped-call]  # as all of oslo.db
    return Database(engine, where, reading=["BEGIN"], writing=["BEGIN"])


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
# translates errors. Its enginefacade is not used: a transaction of one SELECT on PostgreSQL takes
# 447 microseconds with its sessions, 353 with the engine and 168 without oslo.db, of which the test
# before use was the larger part (:func:`_ping_if_readable`).
#
# Writers run at READ COMMITTED: they lock what they decide on, and must see what others committed
# while they waited for the lock. Readers ask for one snapshot.


def connect_server(address: Address) -> Database:
    """Return the database that a URL names; nothing is asked of it yet.

    The first transaction connects, once: a dead server is found out at once, and no program hangs
    over it. Whoever wants to wait for a server tries again.

    :raises BackendNotFound: if the driver is not installed; names the extra that brings it
    """
    make = {"postgresql": _postgresql, "mysql": _mysql}[address.kind]
    try:
        return make(address)
    except ImportError as error:
        extra = DRIVERS[address.kind].extra
        raise exceptions.BackendNotFound(
            address.url.drivername, f"{error}; pip install 'resource_objects[{extra}]'"
        ) from error


#: What PostgreSQL reckons a page costs by an index, where one of a whole table costs 1: a ledger is
#: in memory. By its own 4 it plans to read all of a table that has a page or two, and a session
#: keeps what it planned, for foreign keys too, until statistics are taken again: in the first
#: minutes of a ledger each claim would read all consumers.
_RANDOM_PAGE_COST = "0.2"


def _postgresql(address: Address) -> Database:
    from resource_objects.backends.sql import psycopg_connection  # an extra: may not be there

    engine = _server_engine(address)
    _ping_if_readable(engine.dialect, lambda connection: connection.pgconn.socket)
    pooled = address.ours["pooler"] is not None
    read_timeout = address.ours["read_timeout"]
    given = {"tcp_user_timeout": read_timeout * 1000, **address.driver}
    if pooled:
        given["prepare_threshold"] = None  # what one session prepared, the next one lacks

    @event.listens_for(engine, "do_connect")
    def _connect(dialect: Any, record: Any, args: Any, options: dict[str, Any]) -> Any:
        return psycopg_connection.connect(read_timeout, **{**options, **given})

    settings = {
        "lock_timeout": f"{PATIENCE}s",
        "idle_in_transaction_session_timeout": f"{address.ours['idle_timeout']}s",
        "random_page_cost": _RANDOM_PAGE_COST,
    }
    if not pooled:
        run_on_connect(engine, *(f"SET {name} = '{value}'" for name, value in settings.items()))
        return Database(engine, address.shown)
    local = (f"set_config('{name}', '{value}', true)" for name, value in settings.items())
    begin = [f"SELECT {', '.join(local)}"]
    return Database(engine, address.shown, reading=begin, writing=begin)


def _mysql(address: Address) -> Database:
    engine = _server_engine(address, mysql_sql_mode="TRADITIONAL")
    _ping_if_readable(engine.dialect, lambda connection: connection._sock.fileno())
    given = dict(address.driver)
    probes = {option: given.pop(name) for name, option in _KEEPALIVES.items()}
    given["read_timeout"] = given["write_timeout"] = address.ours["read_timeout"]

    @event.listens_for(engine, "do_connect")
    def _connect(dialect: Any, record: Any, args: Any, options: dict[str, Any]) -> None:
        options.update(given)

    @event.listens_for(engine, "connect")
    def _probe(connection: Any, record: Any) -> None:
        found: socket.socket = connection._sock  # PyMySQL asks for probes, and says not when
        if found.family != socket.AF_UNIX:
            for option, value in probes.items():
                found.setsockopt(socket.IPPROTO_TCP, option, value)

    idle = address.ours["idle_timeout"]
    run_on_connect(
        engine,
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        # what is in the comment is MariaDB's alone: MySQL has nothing of the kind
        f"SET SESSION innodb_lock_wait_timeout = {PATIENCE}"
        f" /*M!100300 , idle_transaction_timeout = {idle} */",
    )
    reading = [
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
    ]
    return Database(engine, address.shown, reading=reading)


def _ping_if_readable(dialect: Any, socket_of: Callable[[Any], int]) -> None:
    """Ask the server whether it is there only where its side of the connection says something.

    SQLAlchemy asks it each time that a connection is taken from the pool, which is a round trip
    more for each transaction, and one in five of a claim's. Nothing comes on an idle connection
    until the server ends it, and that can be seen here. A server that is gone without a word is
    found out by the first statement, as it is where it goes right after it was asked.
    """
    ping = dialect.do_ping

    def do_ping(connection: Any) -> bool:
        try:
            is_silent = not select.select([socket_of(connection)], [], [], 0)[0]
        except (OSError, ValueError, AttributeError, dialect.loaded_dbapi.Error):
            is_silent = False  # it is closed on our side, or select() cannot look at it
        return is_silent or bool(ping(connection))

    dialect.do_ping = do_ping


#: the options of a socket, by what libpq calls them
_KEEPALIVES = {
    "keepalives_idle": getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", 0)),
    "keepalives_interval": socket.TCP_KEEPINTVL,
    "keepalives_count": socket.TCP_KEEPCNT,
}


def _server_engine(address: Address, **options: Any) -> Engine:
    from oslo_db.sqlalchemy import engines  # which imports the ORM: a file does without

    engine: Engine = engines.create_engine(
        # oslo.db looks there, and says utf8 if it finds nothing
        address.url.set(query={"charset": "utf8mb4"} if address.kind == "mysql" else {}),
        connection_debug=-1,  # leave the program's logging alone
        max_pool_size=10,
        max_overflow=20,
        pool_timeout=PATIENCE,
        max_retries=0,  # of its own test of the connection
        thread_checkin=False,
        **options,
    )
    return engine


@contextlib.contextmanager
def upgrading(database: Database) -> Iterator[Connection]:
    """A writing transaction that no other upgrade runs beside.

    PostgreSQL defines tables in transactions; a lock that ends with one is enough. MySQL commits
    as it goes, so its lock belongs to a second connection and outlasts the last commit. That lock
    is its server's own, so on a Galera cluster a row says who upgrades: it is committed on all
    nodes or on none.
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
            cluster = guard.exec_driver_sql("SHOW VARIABLES LIKE 'wsrep_on'").first()
            is_cluster = cluster is not None and cluster[1] == "ON"
            with (
                _leased(database) if is_cluster else contextlib.nullcontext(),
                database.writing() as connection,
            ):
                yield connection
        finally:
            guard.execute(sa.text(f"SELECT RELEASE_LOCK({name})"))


#: Seconds after which an upgrade that was killed on a Galera node stands in nobody's way.
_LEASE = 600
_MAKE_LEASES = """CREATE TABLE IF NOT EXISTS ro_upgrade
 (id INTEGER PRIMARY KEY, owner VARCHAR(36) NOT NULL, ends_at DATETIME NOT NULL)"""


@contextlib.contextmanager
def _leased(database: Database) -> Iterator[None]:
    """Keep other upgrades out on every node of a cluster.

    Who inserts the row has it: of two nodes that do at once, the commit of one fails. To delete it
    is the last step, so who can insert it on any node sees there what was done before.
    """
    owner = uuid.uuid4().hex
    until = time.monotonic() + PATIENCE
    while True:
        try:
            with database.writing() as connection:
                connection.exec_driver_sql(_MAKE_LEASES)
                connection.exec_driver_sql("DELETE FROM ro_upgrade WHERE ends_at < UTC_TIMESTAMP()")
                ends = f"UTC_TIMESTAMP() + INTERVAL {_LEASE} SECOND"
                connection.exec_driver_sql(f"INSERT INTO ro_upgrade SELECT 1, %s, {ends}", (owner,))
            break
        except Transient as error:  # somebody else has it, or gets it now
            if time.monotonic() > until:
                reason = f"somebody upgrades it on another node, or died at it within {_LEASE} s"
                raise Transient(exceptions.DatabaseBusy(database.where, reason)) from error
        time.sleep(0.1)
    try:
        yield
    finally:
        with database.writing() as connection:
            connection.exec_driver_sql("DELETE FROM ro_upgrade WHERE owner = %s", (owner,))
