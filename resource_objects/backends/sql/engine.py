"""Connections and transactions: the other modules see an engine only as a :class:`Database`.

A *reading* transaction sees one moment, however many statements it takes. A *writing* one is
serialized with others where it matters: by SQLite itself (BEGIN IMMEDIATE), or by the row locks
that its statements take. The first statements of a transaction depend on the database; a listener
of the ``begin`` event sends them. psycopg is configured, and sends them as part of its own BEGIN.

After a fork the child uses none of the parent's connections, and does not close them either: on a
server that would end the parent's session, and with SQLite it would run code on locks and memory
maps of the parent.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import socket
import sqlite3
import stat
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.pool import Pool, QueuePool

from resource_objects import exceptions
from resource_objects.backends.retries import Transient, busy
from resource_objects.backends.sql import errors
from resource_objects.backends.sql.names import CATALOGUE, NameNumbers
from resource_objects.backends.sql.urls import Address
from resource_objects.providers.orders import NameKind

_BEGIN = "resource_objects_begin"
_SNAPSHOT = "resource_objects_snapshot"
#: Seconds that a transaction waits for a lock of another transaction.
PATIENCE = 30


class Database:
    """An engine with its two kinds of transactions.

    :param name: the database as it is shown in errors
    :param reading: statements that begin a reading transaction
    :param writing: statements that begin a writing one
    :param file: the file of an embedded database, which one connection at a time may write. Threads
        then wait for each other here, which is fair and prompt, and not at the file's polled lock
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        *,
        reading: Sequence[str] = (),
        writing: Sequence[str] = (),
        file: DatabaseFile | None = None,
    ) -> None:
        self.name = name
        self.dialect = engine.dialect.name
        self.closed = False
        self._engine = engine
        self._driver: Any = engine.dialect.loaded_dbapi
        self._errors = (*errors.DATABASE_ERRORS, self._driver.Error)
        catalogue = {CATALOGUE: {kind: NameNumbers(kind) for kind in NameKind}}
        reader = {_BEGIN: tuple(reading), _SNAPSHOT: True}
        writer = {_BEGIN: tuple(writing), _SNAPSHOT: False}
        self._reader = engine.execution_options(**reader, **catalogue)
        self._writer = engine.execution_options(**writer, **catalogue)
        self.embedded = file is not None
        self._file = file
        self._queue = threading.Lock()
        event.listen(engine, "begin", _send_begin)
        _open_databases.add(self)

    def is_missing(self) -> bool:
        """Return True if the database is a file that does not exist yet."""
        return self._file is not None and self._file.is_missing()

    def close(self) -> None:
        """Close every connection; one in use is closed when it returns to the pool."""
        self.closed = True
        self._engine.dispose()

    def reading(self) -> contextlib.AbstractContextManager[Connection]:
        """Begin a transaction that sees one moment and writes nothing."""
        return self._transaction(self._reader)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Begin a transaction that the end of the block commits, or an error in it rolls back."""
        queue = self._queue if self.embedded else None
        if queue is not None and not queue.acquire(timeout=PATIENCE):
            raise busy(self.name, "other threads are writing")
        try:
            with self._transaction(self._writer) as connection:
                yield connection
        finally:
            if queue is not None:
                queue.release()

    @contextlib.contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Connection]:
        if self.closed:
            raise exceptions.DatabaseError("closed", self.name)
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
            connecting = connection is None
            raise errors.translate(error, self.name, connecting=connecting, lost=lost) from error
        except NotImplementedError as error:
            # oslo.db calls a method of a connection that was lost while SQLAlchemy made its first
            # one, which is not in the pool yet and has no such method
            if connection is not None:
                raise
            cause = error.__context__ if isinstance(error.__context__, Exception) else error
            raise errors.translate(cause, self.name, connecting=True) from error
        except OSError as error:  # such as an invalid certificate
            if connection is not None:
                raise
            raise exceptions.DatabaseError("unavailable", self.name, str(error)) from error
        finally:
            errors.quiet.in_use -= 1

    def _discard_if_broken(self, connection: Connection, error: BaseException) -> bool:
        """Invalidate a connection that an error made unusable; return True if it was lost.

        SQLAlchemy does so for its own statements, not for those on the driver's cursor.
        """
        if connection.invalidated:
            return True
        driver: Any = connection.connection.dbapi_connection
        lost = isinstance(error, self._driver.Error) and connection.dialect.is_disconnect(
            error, driver, None
        )
        if lost or not isinstance(error, Exception):  # an interrupt in the middle of a message
            connection.invalidate()
        return lost

    def use_wal(self) -> None:
        """Put a file into WAL mode, which is permanent. It is busy while others use the file."""
        file = cast(DatabaseFile, self._file)
        file.check()
        try:
            with contextlib.closing(self._engine.raw_connection()) as connection:
                connection.cursor().execute("PRAGMA journal_mode = WAL")
                file.note_log(cast(sqlite3.Connection, connection.driver_connection))
        except self._errors as error:
            raise errors.translate(error, self.name, connecting=True) from error

    def _after_fork(self) -> None:
        _abandoned.append(self._engine.pool)
        self._engine.dispose(close=False)
        if self._file is not None:
            self._file.connections = 0
        self._queue = threading.Lock()


def _send_begin(connection: Connection) -> None:
    options, dialect = connection.get_execution_options(), connection.dialect
    driver: Any = connection.connection.driver_connection
    if dialect.name == "postgresql":  # psycopg sends BEGIN with the first statement
        is_snapshot = options.get(_SNAPSHOT, False)
        read_only = True if is_snapshot else None  # a standby refuses READ WRITE
        if driver.read_only is not read_only or driver.isolation_level is None:
            postgresql: Any = dialect
            postgresql.set_readonly(driver, read_only)
            level = "REPEATABLE READ" if is_snapshot else "READ COMMITTED"
            postgresql.set_isolation_level(driver, level)
    for statement in options.get(_BEGIN, ()):
        if dialect.name == "sqlite":  # SQLAlchemy would double the cost of a short transaction
            driver.execute(statement)
        else:
            connection.exec_driver_sql(statement)


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


# --- SQLite files ---------------------------------------------------------------------------------
#
# oslo.db's own engine opens a new connection for every transaction, and closing the last connection
# to a file in WAL mode costs a checkpoint: a transaction of one SELECT takes 249 microseconds with
# it, 311 with its enginefacade, 28 on a pooled connection, and 44 with its translation of errors.
#
# * WAL: readers and the one writer do not wait for each other.
# * BEGIN IMMEDIATE: a writer locks before it reads, so what it read is still true when it writes.
#   Readers begin deferred and see one moment.
# * synchronous=FULL: what is acknowledged is on disk. In WAL mode a commit is one flush of the log;
#   EXTRA adds nothing. ``?synchronous=NORMAL`` flushes at checkpoints: a commit survives the death
#   of the process at any instruction, but the last commits may be lost with the power, never half
#   of one. Where ``fsync`` does not reach the disk (macOS), ``fullfsync`` does.
# * A checkpoint each 4,000 pages of the log (16 MB), not 1,000: a page that many claims change is
#   copied into the file once for all of them. A claim takes a sixth less of the processor.
#
# A reader also writes next to the file, the index of its log. So a process that may not write there
# is refused.


#: The pages of the log after which a commit copies them into the file.
_LOG_PAGES = 4000


class DatabaseFile:
    """The file of a database, checked before each transaction.

    A deleted file stays open, and accepts writes that no other process will see. So before each
    transaction :meth:`check` compares the file of that name with the one that was opened, and its
    log with the one that was begun. Cost: two calls of ``stat``.
    """

    def __init__(self, path: Path) -> None:
        # strings: os.stat of a Path takes four times as long
        self._path, self._log = str(path), f"{path}-wal"
        self._seen: tuple[int, int] | None = None
        self._seen_log: tuple[int, int] | None = None
        self._is_filled = False
        #: open connections; while there is one, SQLite does not remove the log
        self.connections = 0

    def check(self) -> None:
        """Raise DatabaseError unless the file and its log are those that were opened."""
        if self._seen is None:
            self._create()
        status = self._stat(self._path)
        if status is None:
            if self._seen is not None:
                raise exceptions.DatabaseError("replaced", self._path, "it was deleted")
            return  # it cannot be created: SQLite reports why
        identity = status.st_dev, status.st_ino
        if self._seen not in (None, identity):
            raise exceptions.DatabaseError("replaced", self._path, "another file has its name")
        if self._is_filled and not status.st_size:
            raise exceptions.DatabaseError("replaced", self._path, "it was emptied")
        self._seen, self._is_filled = identity, status.st_size > 0
        begun = self._seen_log
        if begun is not None:
            log = self._stat(self._log)
            is_same = log is not None and (log.st_dev, log.st_ino) == begun
            if not is_same and self._seen_log == begun:  # no last connection was closed just now
                raise exceptions.DatabaseError("replaced", self._path, f"{self._log} was deleted")

    def is_missing(self) -> bool:
        """Return True if no file has the name."""
        return self._stat(self._path) is None

    def _stat(self, path: str) -> os.stat_result | None:
        try:
            return os.stat(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise exceptions.DatabaseError("unavailable", path, str(error.strerror)) from error

    def _create(self) -> None:
        """Create the file if it does not exist, for its owner alone; SQLite would let all read it.

        It must not be opened and closed here: that would end SQLite's locks on a file that exists.
        """
        with contextlib.suppress(OSError):
            os.mknod(self._path, stat.S_IFREG | 0o600)

    def opened(self, connection: sqlite3.Connection, record: Any) -> None:
        """Count a new connection, and share the files next to the database with its group."""
        self.connections += 1
        self.note_log(connection)
        share_with_group(Path(self._path))

    def note_log(self, connection: sqlite3.Connection) -> None:
        """Record the identity of the log, which is not removed while a connection is open."""
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()  # begins it
        log = self._stat(self._log)
        if self._seen_log is None and log is not None:
            self._seen_log = log.st_dev, log.st_ino

    def closed(self, connection: sqlite3.Connection, record: Any) -> None:
        """Count a closed connection; the last one may have removed the log."""
        self.connections = max(self.connections - 1, 0)
        if not self.connections:
            self._seen_log = None


def share_with_group(path: Path) -> None:
    """Give our files next to a database its group and mode.

    SQLite gives them its mode, but a new file has the group of its creator, unless the directory is
    set-group-ID: then other members of the database's group could not continue.
    """
    try:
        database = os.stat(path)
        for suffix in ("-wal", "-shm"):
            name = f"{path}{suffix}"
            status = os.stat(name)
            if status.st_uid == os.geteuid() and status.st_gid != database.st_gid:
                os.chown(name, -1, database.st_gid)
                os.chmod(name, stat.S_IMODE(database.st_mode))
    except (FileNotFoundError, PermissionError):  # removed just now; we are no member of the group
        return


def connect_file(address: Address) -> Database:
    """Return the database of a file, which need not exist yet and is not created here.

    :raises DatabaseError: if its directory does not exist, the file cannot be created there, or it
        is on a network file system; if this process may not write the file
    """
    path = Path(str(address.url.database)).absolute()  # the working directory may change later
    _check_path(path, address.ours["network"])
    file = DatabaseFile(path)
    engine = _sqlite_engine(
        address.url.set(database=str(path)),
        pool_size=16,
        pool_use_lifo=True,
        # the driver begins no transactions itself, which it would do too late
        connect_args={"timeout": PATIENCE, "check_same_thread": False, "isolation_level": None},
    )
    run_on_connect(
        engine,
        "PRAGMA foreign_keys = ON",
        f"PRAGMA synchronous = {address.ours['synchronous']}",
        "PRAGMA fullfsync = ON",
        f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}",
    )
    event.listen(engine, "connect", file.opened)
    for closing in ("close", "close_detached"):
        event.listen(engine, closing, file.closed)
    return Database(engine, str(path), reading=["BEGIN"], writing=["BEGIN IMMEDIATE"], file=file)


def empty_database(name: str) -> Database:
    """Return an empty database in memory, read in place of a file that does not exist yet.

    :param name: the file, as errors show it
    """
    uri = f"file:{uuid.uuid4().hex}?mode=memory&cache=shared"
    open_shared = functools.partial(
        sqlite3.connect, uri, uri=True, check_same_thread=False, isolation_level=None
    )
    engine = _sqlite_engine("sqlite://", creator=open_shared)
    return Database(engine, name, reading=["BEGIN"], writing=["BEGIN"])


def _sqlite_engine(url: URL | str, **options: Any) -> Engine:
    engine = sa.create_engine(url, poolclass=QueuePool, max_overflow=-1, **options)
    event.listen(
        engine,
        "connect",
        lambda connection, _: connection.create_aggregate("sum_of_products", 2, _SumOfProducts),
    )
    return engine


def _check_path(path: Path, may_be_remote: bool) -> None:
    """Raise DatabaseError if a path cannot be the file of a ledger."""
    condition, reason = "unavailable", None
    try:
        exists = path.exists()
        if not path.parent.is_dir():
            reason = f"there is no directory {path.parent}"
        elif path.is_dir():
            reason = "it is a directory"
        elif exists and not path.is_file():
            reason = "it is not a regular file"
        elif exists and not os.access(path, os.R_OK):
            reason = "this process may not read it"
        elif not exists and not os.access(path.parent, os.W_OK):
            reason = "its directory cannot be written"
        elif exists and not _is_writable(path):
            condition = "read-only"
            reason = "this process may not write it, and SQLite writes next to a file to read it"
        elif not may_be_remote and (system := _network_system(path)) is not None:
            reason = (
                f"it is on a network file system ({system}), which does not lock as SQLite needs "
                "it; use a server, or ?network=yes if only one machine uses the file"
            )
    except OSError as error:  # a parent directory that this process may not search
        reason = str(error.strerror)
    if reason is not None:
        raise exceptions.DatabaseError(condition, str(path), reason)


_MOUNTS = Path("/proc/self/mountinfo")
#: as Linux calls them
_NETWORK_SYSTEMS = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "9p", "afs", "coda", "ceph", "lustre"),
    *("beegfs", "gpfs", "orangefs", "pvfs2", "ocfs2", "gfs2", "glusterfs", "davfs", "davfs2"),
    *("sshfs", "s3fs", "rclone", "gcsfuse", "juicefs", "moosefs", "mfs"),
}


def _network_system(path: Path) -> str | None:
    """Return the network file system that a file is on, or would be; None if none, or unknown.

    proc_pid_mountinfo(5) describes the lines: the fifth field is the mount point, with octal
    escapes, and the first field after a single hyphen is the type.
    """
    try:
        lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:  # not Linux
        return None
    target = os.path.realpath(path)
    longest, kind = "", ""
    for line in lines:
        fields = line.split(" ")
        point = re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), fields[4])
        is_above = target.startswith(point.rstrip("/") + "/") or target == point
        if is_above and len(point) >= len(longest):  # of two mounts at one point the later is seen
            longest, kind = point, fields[fields.index("-") + 1]
    return kind if kind.removeprefix("fuse.") in _NETWORK_SYSTEMS else None


class _SumOfProducts:
    """``sum_of_products(a, b)``, exact, as text: SQLite's own integers have 64 bits."""

    def __init__(self) -> None:
        self._sum = 0

    def step(self, first: int, second: int, /) -> None:
        self._sum += first * second

    def finalize(self) -> str:
        return str(self._sum)


def _is_writable(path: Path) -> bool:
    """Return True if this process may write a file and those that SQLite stores next to it."""
    if not os.access(path, os.W_OK):
        return False
    names = (f"{path}-wal", f"{path}-shm")
    return os.access(path.parent, os.W_OK) or all(os.access(name, os.W_OK) for name in names)


# --- servers --------------------------------------------------------------------------------------
#
# PostgreSQL, MariaDB, Galera and MySQL.
#
# The engine is oslo.db's, which guards connections against forks, tests them before use and
# translates errors. Its enginefacade is not used: a transaction of one SELECT on PostgreSQL takes
# 447 microseconds with its sessions, 353 with the engine and 168 without oslo.db; the larger part
# of the difference was the test before use (:func:`_ping_if_readable`).
#
# Writers run at READ COMMITTED: they lock the rows that they decide on, and must see what others
# committed while they waited for the lock. Readers request one snapshot.


def connect_server(address: Address) -> Database:
    """Return the database that a URL names; no connection is made yet.

    The first transaction connects, once, so a program does not hang on a server that is down. A
    caller that wants to wait for a server tries again.

    :raises NotFound: if the driver is not installed; names the extra that installs it
    """
    connect = {"postgresql": _postgresql, "mysql": _mysql}[address.kind]
    try:
        return connect(address)
    except ImportError as error:
        detail = f"{error}; pip install 'resource_objects[{address.kind}]'"
        raise exceptions.NotFound("backend", address.url.drivername, detail) from error


#: PostgreSQL's planner cost of a page read by an index, where one of a sequential scan costs 1: a
#: ledger is in memory. By the default of 4 it plans to scan a table of a page or two, and a session
#: caches its plans, also those of foreign keys, until the next ANALYZE: in the first minutes of a
#: ledger each claim would scan all consumers.
_RANDOM_PAGE_COST = "0.2"


def _postgresql(address: Address) -> Database:
    # of an extra, which may not be installed
    from resource_objects.backends.sql import psycopg_connection

    engine = _server_engine(address)
    _ping_if_readable(engine.dialect, lambda connection: connection.pgconn.socket)
    pooled = address.ours["pooler"] is not None
    read_timeout = address.ours["read_timeout"]
    options = {"tcp_user_timeout": read_timeout * 1000, **address.driver}
    if pooled:
        options["prepare_threshold"] = None  # the next transaction is in another session

    @event.listens_for(engine, "do_connect")
    def _connect(dialect: Any, record: Any, args: Any, defaults: dict[str, Any]) -> Any:
        return psycopg_connection.connect(read_timeout, **{**defaults, **options})

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
    options = dict(address.driver)
    probes = {option: options.pop(name) for name, option in _KEEPALIVES.items()}
    options["read_timeout"] = options["write_timeout"] = address.ours["read_timeout"]

    @event.listens_for(engine, "do_connect")
    def _connect(dialect: Any, record: Any, args: Any, defaults: dict[str, Any]) -> None:
        defaults.update(options)

    @event.listens_for(engine, "connect")
    def _probe(connection: Any, record: Any) -> None:
        # PyMySQL enables keepalive probes, and has no option for their times
        connected: socket.socket = connection._sock
        if connected.family != socket.AF_UNIX:
            for option, value in probes.items():
                connected.setsockopt(socket.IPPROTO_TCP, option, value)

    idle = address.ours["idle_timeout"]
    run_on_connect(
        engine,
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        # only MariaDB reads the comment: MySQL has no such timeout
        f"SET SESSION innodb_lock_wait_timeout = {PATIENCE}"
        f" /*M!100300 , idle_transaction_timeout = {idle} */",
    )
    reading = [
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
    ]
    return Database(engine, address.shown, reading=reading)


def _ping_if_readable(dialect: Any, socket_of: Callable[[Any], int]) -> None:
    """Test a pooled connection by a ping only if its socket is readable.

    SQLAlchemy pings each connection that it takes from the pool: one round trip more for each
    transaction, one in five of a claim's. Nothing arrives on an idle connection until the server
    ends it, which is visible here. A server that disappeared without a message is found by the
    first statement, as it is when it disappears right after a ping.
    """
    ping = dialect.do_ping

    def do_ping(connection: Any) -> bool:
        try:
            is_silent = not select.select([socket_of(connection)], [], [], 0)[0]
        except (OSError, ValueError, AttributeError, dialect.loaded_dbapi.Error):
            is_silent = False  # closed on our side, or not supported by select()
        return is_silent or bool(ping(connection))

    dialect.do_ping = do_ping


#: The options of a socket, by their names in libpq.
_KEEPALIVES = {
    "keepalives_idle": getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", 0)),
    "keepalives_interval": socket.TCP_KEEPINTVL,
    "keepalives_count": socket.TCP_KEEPCNT,
}


def _server_engine(address: Address, **options: Any) -> Engine:
    from oslo_db.sqlalchemy import engines  # imports the ORM, which a file does not need

    engine: Engine = engines.create_engine(
        # where oslo.db reads it; its default is utf8
        address.url.set(query={"charset": "utf8mb4"} if address.kind == "mysql" else {}),
        connection_debug=-1,  # leave the program's logging alone
        max_pool_size=10,
        max_overflow=20,
        pool_timeout=PATIENCE,
        max_retries=0,  # of oslo.db's test of the connection
        thread_checkin=False,
        **options,
    )
    return engine


@contextlib.contextmanager
def upgrading(database: Database) -> Iterator[Connection]:
    """Begin a writing transaction of an upgrade, of which there is one at a time.

    PostgreSQL defines tables in transactions; a lock that ends with one is enough. MySQL commits at
    each definition, so its lock belongs to a second connection and outlasts the last commit. That
    lock is local to the server, so on a Galera cluster a row is the lock: it is committed on all
    nodes or on none.
    """
    if database.dialect == "postgresql":
        with database.writing() as connection:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtext('ro_upgrade'))"))
            yield connection
        return
    with database.writing() as guard:
        # the lock is of the server, not of the database
        name = "CONCAT('ro_upgrade_', MD5(DATABASE()))"
        if guard.scalar(sa.text(f"SELECT GET_LOCK({name}, {PATIENCE})")) != 1:
            raise busy(database.name, "another process upgrades it")
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


#: Seconds after which an upgrade that was killed on a Galera node blocks no other.
_LEASE = 600
_MAKE_LEASES = """CREATE TABLE IF NOT EXISTS ro_upgrade
 (id INTEGER PRIMARY KEY, owner VARCHAR(36) NOT NULL, ends_at DATETIME NOT NULL)"""


@contextlib.contextmanager
def _leased(database: Database) -> Iterator[None]:
    """Hold the row that locks out other upgrades on every node of a cluster.

    The process that inserts the row holds the lock: if two nodes insert it at once, the commit of
    one fails. Deleting it is the last step, so a process that can insert it on any node sees
    everything that was done before.
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
        except Transient as error:  # another node holds it, or inserts it now
            if time.monotonic() > until:
                reason = (
                    f"another node upgrades it, or was killed during an upgrade within {_LEASE} s"
                )
                raise busy(database.name, reason) from error
        time.sleep(0.1)
    try:
        yield
    finally:
        with database.writing() as connection:
            connection.exec_driver_sql("DELETE FROM ro_upgrade WHERE owner = %s", (owner,))
