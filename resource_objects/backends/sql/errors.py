"""Errors of drivers, SQLAlchemy and oslo.db as exceptions of this library.

oslo.db does not translate all that matters here: a locked SQLite file, PostgreSQL's serialization
failures and refused connections, MariaDB's violated CHECKs and Galera's lost quorum. So the code of
the driver's own error decides, which unlike its text does not change with language and version. An
error that does not depend on the change itself is
:class:`~resource_objects.backends.retries.Transient`.

Sources: https://sqlite.org/rescode.html, PostgreSQL's appendix "Error Codes", MariaDB's "Error
Codes".
"""

from __future__ import annotations

import logging
import re
import sqlite3
import threading

import sqlalchemy.exc
from oslo_db import exception as oslo

from resource_objects import exceptions
from resource_objects.backends.retries import Transient, busy

#: The errors of SQLAlchemy and oslo.db, and those of SQLite where it is used without them.
DATABASE_ERRORS = (sqlalchemy.exc.SQLAlchemyError, oslo.DBError, sqlite3.Error)

# Codes are SQLite's extended ones or their low byte, MySQL's numbers, and SQLSTATEs or their class.
_DUPLICATE = {"sqlite:2067", "sqlite:1555", "mysql:1062", "23505"}
#: Another transaction wrote between our read and our write; the next read sees it.
_OVERTAKEN = {
    *_DUPLICATE,
    *("sqlite:787", "mysql:1451", "mysql:1452", "23503"),  # foreign keys
    *("mysql:1050", "mysql:1061", "mysql:1684", "42P07"),  # tables, by another upgrade
}
#: Another transaction has a lock.
_BUSY = {
    *("sqlite:5", "sqlite:6", "sqlite:15"),  # BUSY, LOCKED, PROTOCOL (a race for the WAL)
    *("40001", "40P01", "55P03"),  # serialization failure, deadlock, lock timeout
    *("mysql:1213", "mysql:1205", "mysql:1020"),  # deadlock, lock wait, record has changed
    "mysql:1412",  # a table was defined anew since the snapshot was taken
    *("57014", "mysql:1969", "mysql:3024"),  # a statement exceeded a configured time
}
#: The server accepts no connection at the moment: starting up, shutting down, too many clients.
_NOT_YET = {*("57P03", "53300"), *("mysql:1040", "mysql:1203", "mysql:1226")}
#: The same if they come while connecting: the server is shutting down, or recovers.
_GOING = {*("57P01", "57P02"), "mysql:1053"}
#: The condition of the database that a code reports.
_CONDITIONS = {
    "replaced": {"sqlite:1032"},
    "read-only": {
        "sqlite:8",
        *("25006", "42501"),  # read-only transaction (a standby), no privilege
        *("mysql:1290", "mysql:1792", "mysql:1836", "mysql:1142"),  # --read-only, no privilege
    },
    "full": {*("sqlite:13", "sqlite:4874"), "53100", *("mysql:1021", "mysql:1114")},
    "damaged": {"sqlite:11", *("XX001", "XX002"), *("mysql:126", "mysql:145", "mysql:1034")},
    "unavailable": {
        *("sqlite:3", "sqlite:10", "sqlite:14", "sqlite:23"),  # PERM, IOERR, CANTOPEN, AUTH
        "sqlite:26",  # NOTADB
        *("28", "3D000", "42P01", "53", "58", "XX"),  # access, no database or table, resources, I/O
        *("mysql:1044", "mysql:1045", "mysql:1698"),  # access
        *("mysql:1049", "mysql:1146"),  # no database or table
        *("mysql:2002", "mysql:2003"),  # no server answers
    },
}
#: The connection is lost; whether a commit succeeded is unknown.
_LOST = {
    "08",
    *("57P01", "57P02", "57P05", "25P03"),  # shutdown, crash, idle timeouts
    *("mysql:2006", "mysql:2013", "mysql:2055", "mysql:1053", "mysql:1927", "mysql:1317"),
    *("mysql:1047", "mysql:1180"),  # Galera: not prepared, lost the quorum at COMMIT
}


class _Quiet(threading.local):
    """The number of open transactions of this library in this thread."""

    in_use = 0


#: While a thread is in a transaction, oslo.db does not log the errors that it wraps: the caller
#: gets them as exceptions of this library. Those of other code of this process are logged.
quiet = _Quiet()
logging.getLogger("oslo_db.sqlalchemy.exc_filters").addFilter(lambda _: not quiet.in_use)


def translate(
    error: Exception, database: str, *, connecting: bool = False, lost: bool = False
) -> exceptions.LedgerError | Transient:
    """Return the library's exception for a database's, to be raised from it.

    :param database: its name as errors show it
    :param connecting: whether no connection was made yet
    :param lost: whether the connection is known to be lost
    """
    if isinstance(error, sqlalchemy.exc.TimeoutError):
        return exceptions.DatabaseError("busy", database, "every pooled connection is in use")
    codes = _codes(driver_error(error))
    if codes & _OVERTAKEN:
        return Transient(exceptions.LedgerError("ledger", database, detail(error)))
    if codes & _BUSY:
        return busy(database, detail(error))
    if codes & _NOT_YET or (connecting and codes & _GOING):
        return Transient(
            exceptions.DatabaseError("unavailable", database, detail(error)), not_yet=True
        )
    conditions = (condition for condition, reported in _CONDITIONS.items() if codes & reported)
    condition = next(conditions, "unavailable" if connecting else None)
    is_lost = lost or codes & _LOST or isinstance(error, oslo.DBConnectionError)
    if condition is None and (is_lost or getattr(error, "connection_invalidated", False)):
        condition = "lost"
    if condition is None:
        return exceptions.LedgerError("ledger", database, detail(error))
    return exceptions.DatabaseError(condition, database, detail(error))


def duplicated(error: BaseException) -> str | None:
    """Return ``table.column`` of the unique constraint that refused a row, with its first column.

    PostgreSQL and MariaDB name the constraint (``uniq_<table>0<column>...``, the primary key by
    ``pkey`` or ``PRIMARY``), SQLite the columns.
    """
    cause = driver_error(error)
    if not _codes(cause) & _DUPLICATE:
        return None
    text = " ".join(map(str, cause.args))
    constraint = re.search(r"uniq_([a-z_]+)0([a-z_]+)", text)
    columns = re.search(r"UNIQUE constraint failed: (\w+)\.(\w+)", text)
    match = constraint or columns
    return None if match is None else f"{match[1]}.{match[2]}"


def driver_error(error: BaseException) -> BaseException:
    """Return the driver's own error from an error of SQLAlchemy or oslo.db that wraps it."""
    while True:
        inner = getattr(error, "inner_exception", None) or getattr(error, "orig", None)
        if not isinstance(inner, BaseException):
            return error
        error = inner


def _codes(error: BaseException) -> set[str]:
    """Return the codes by which the sets above identify an error."""
    sqlite_code = getattr(error, "sqlite_errorcode", None)
    if isinstance(sqlite_code, int):
        return {f"sqlite:{sqlite_code}", f"sqlite:{sqlite_code & 0xFF}"}
    if error.args and isinstance(error.args[0], int):
        return {f"mysql:{error.args[0]}"}  # of a SQLSTATE PyMySQL has only the class
    state = getattr(error, "sqlstate", None)
    return {state, state[:2]} if isinstance(state, str) else set()


def detail(error: Exception) -> str:
    """Return the message of the driver in one line."""
    cause = driver_error(error)
    parts = [str(part) for part in cause.args if not isinstance(part, int)] or [str(cause)]
    return " ".join(" ".join(parts).split())
