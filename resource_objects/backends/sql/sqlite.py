"""SQLite files.

oslo.db's own engine gives every transaction a new connection, because that is what old programs
relied on; a pool is three times as fast, and closing the last connection to a file in WAL mode
costs a checkpoint. So the engine is made here, and oslo.db only translates its errors.

* WAL: readers and the one writer do not wait for each other.
* BEGIN IMMEDIATE: a writer takes its lock before it looks, so what it saw is still true when it
  writes. Readers begin deferred and see one moment.
* synchronous=NORMAL (default): a commit survives the death of the process at any instruction, but
  the last ones may be lost with the power, never half of one. ``?synchronous=FULL`` flushes every
  commit to disk.

A file that this process may not write is read all the same; see :class:`ReadOnlyConnection`.
"""

from __future__ import annotations

import os
import sqlite3
import urllib.parse
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from oslo_db.sqlalchemy import exc_filters
from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.pool import NullPool, QueuePool

from resource_objects import exceptions
from resource_objects.backends.sql import urls
from resource_objects.backends.sql.engine import PATIENCE, Database, run_on_connect
from resource_objects.backends.sql.retry import Transient


def connect(url: URL) -> Database:
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
        _engine(url.set(database=str(path), query={}), urls.synchronous(url)),
        str(path),
        reading=["BEGIN"],
        writing=["BEGIN IMMEDIATE"],
        embedded=True,
    )


def use_wal(database: Database) -> None:
    """Put a file into WAL mode, which it stays in. It is busy while somebody else is inside."""
    database.run("PRAGMA journal_mode = WAL")


def _engine(url: URL, synchronous: str) -> Engine:
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
