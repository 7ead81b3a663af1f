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
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.pool import Pool

from resource_objects import exceptions
from resource_objects.backends.sql import errors
from resource_objects.backends.sql.retry import Transient

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
