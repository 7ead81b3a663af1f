"""The parts of the SQL backend that can be asked without a database."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from typing import Any

import pymysql
import pytest
import sqlalchemy
from oslo_db import exception as oslo
from psycopg import errors as psycopg_errors

from resource_objects import exceptions
from resource_objects.backends.sql import engine, errors
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.backends.sql.errors import Retries, Transient

# --- URLs ---


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("sqlite:///lab.db", "sqlite+pysqlite"),
        ("sqlite+pysqlite:///lab.db", "sqlite+pysqlite"),
        ("postgresql://db/lab", "postgresql+psycopg"),
        ("postgres://db/lab", "postgresql+psycopg"),
        ("postgresql+psycopg://db/lab", "postgresql+psycopg"),
        ("mysql://db/lab", "mysql+pymysql"),
        ("mariadb://db/lab", "mysql+pymysql"),
        ("mariadb+pymysql://db/lab?charset=utf8mb4", "mysql+pymysql"),
    ],
)
def test_each_database_has_one_driver(given: str, driver: str) -> None:
    assert engine.parse_url(given).drivername == driver


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "lab.db", "sqlite", "sqlite:", "://", "sqlite://", "sqlite:///", "oracle://db/lab"),
        *("sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true", "sqlite://host/lab.db"),
        *("sqlite:///lab.db?synchronous=OFF", "sqlite:///lab.db?cache=shared"),
        *("postgresql+psycopg2://db/lab", "postgresql+asyncpg://db/lab", "postgresql://db"),
        *("mysql+mysqldb://db/lab", "mysql://db/lab?charset=latin1", "mysql://db/"),
        *(
            "postgresql://db:port/lab",
            "postgresql://db:99999/lab",
            "mariadb+mariadbconnector://d/l",
        ),
        *("sqlite+aiosqlite:///lab.db", "sqlite:///lab.db?synchronous=FULL&synchronous=NORMAL"),
        "postgresql://db/lab?connect_timeout=abc",
        "mysql://db/lab?connect_timeout=0",
        "mysql://db/lab?connect_timeout=1&connect_timeout=2",
        "postgresql://me@\udcff/lab",
        "mysql://me@\udcff/lab",
    ],
)
def test_other_urls_are_refused(wrong: str) -> None:
    with pytest.raises(exceptions.InvalidURL):
        engine.parse_url(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        "oracle://me:secret@db/lab",
        "oracle://me:se/c@ret@db/lab",
        "postgresql+psycopg2://me:secret@db/lab",
        "mysql://me:secret@db:port/lab",
        "postgresql://me:secret@",
        "postgresql://me:secret@db",
        "mysql://?password=secret",
        "mysql://db/?passwd=secret",
        "postgresql://db?password=secret",
        "sqlite:///x?password=secret",
        "mysql://me:secret@db/lab?charset=latin1",
        "postgresql://me:secret @db",
    ],
)
def test_a_refused_url_does_not_tell_its_password(wrong: str) -> None:
    with pytest.raises(exceptions.InvalidURL) as refused:
        engine.parse_url(wrong)
    told = f"{refused.value} {refused.value.args} {refused.value!r}"
    assert "secret" not in told and "ret@" not in told


def test_memory_is_pointed_to_its_backend() -> None:
    with pytest.raises(exceptions.InvalidURL, match="memory://"):
        SQLBackend.open("sqlite:///:memory:")


# --- errors ---


def _sqlite(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("said by SQLite")
    error.sqlite_errorcode = code  # type: ignore[misc]
    return error


def _wrapped(driver: Exception) -> sqlalchemy.exc.DBAPIError:
    return sqlalchemy.exc.OperationalError("SELECT 1", {}, driver)


_BUSY = exceptions.DatabaseBusy
_READ_ONLY = exceptions.ReadOnlyDatabase
_UNAVAILABLE = exceptions.DatabaseUnavailable
_LOST = exceptions.LostConnection
_OTHER = exceptions.LedgerError


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (_sqlite(sqlite3.SQLITE_BUSY), _BUSY),
        (_sqlite(sqlite3.SQLITE_BUSY_SNAPSHOT), _BUSY),
        (_sqlite(sqlite3.SQLITE_READONLY_DBMOVED), _READ_ONLY),
        (_sqlite(sqlite3.SQLITE_NOTADB), _UNAVAILABLE),
        (_sqlite(sqlite3.SQLITE_FULL), _UNAVAILABLE),
        (_sqlite(sqlite3.SQLITE_CONSTRAINT_CHECK), _OTHER),
        (psycopg_errors.SerializationFailure("x"), _BUSY),
        (psycopg_errors.DeadlockDetected("x"), _BUSY),
        (psycopg_errors.LockNotAvailable("x"), _BUSY),
        (psycopg_errors.ReadOnlySqlTransaction("x"), _READ_ONLY),
        (psycopg_errors.AdminShutdown("x"), _LOST),
        (psycopg_errors.DiskFull("x"), _UNAVAILABLE),
        (psycopg_errors.TooManyConnections("x"), _UNAVAILABLE),
        (psycopg_errors.CheckViolation("x"), _OTHER),
        (pymysql.err.OperationalError(1213, "Deadlock found"), _BUSY),
        (pymysql.err.OperationalError(1205, "Lock wait timeout"), _BUSY),
        (pymysql.err.OperationalError(1020, "Record has changed"), _BUSY),
        (pymysql.err.OperationalError(1412, "Table definition has changed"), _BUSY),
        (pymysql.err.OperationalError(1290, "--read-only"), _READ_ONLY),
        (pymysql.err.OperationalError(2013, "Lost connection"), _LOST),
        (pymysql.err.OperationalError(1047, "WSREP has not yet prepared node"), _LOST),
        (pymysql.err.OperationalError(1180, "Got error during COMMIT"), _LOST),
        (pymysql.err.OperationalError(4025, "CONSTRAINT failed"), _OTHER),
    ],
    ids=repr,
)
@pytest.mark.parametrize("wrap", [lambda error: error, _wrapped], ids=["raw", "wrapped"])
def test_every_error_has_its_type(
    error: Exception, kind: type[Exception], wrap: Callable[[Any], Exception]
) -> None:
    found = errors.translate(wrap(error), "lab.db")
    final = found.final if isinstance(found, Transient) else found
    assert type(final) is kind
    assert isinstance(found, Transient) == (kind is _BUSY)
    assert str(final).startswith("lab.db ")


def test_what_oslo_db_recognised_is_recognised() -> None:
    lost = oslo.DBConnectionError(psycopg_errors.OperationalError("x"))
    assert type(errors.translate(lost, "lab.db")) is _LOST
    busy = oslo.DBDeadlock(pymysql.err.OperationalError(1213, "x"))
    assert isinstance(errors.translate(busy, "lab.db"), Transient)


@pytest.mark.parametrize(
    "error",
    [
        _sqlite(sqlite3.SQLITE_CONSTRAINT_UNIQUE),
        psycopg_errors.UniqueViolation("x"),
        psycopg_errors.ForeignKeyViolation("x"),
        pymysql.err.IntegrityError(1062, "Duplicate entry"),
        pymysql.err.IntegrityError(1452, "Cannot add or update a child row"),
    ],
    ids=repr,
)
def test_who_was_overtaken_tries_again(error: Exception) -> None:
    assert isinstance(errors.translate(error, "lab.db"), Transient)


def test_before_there_is_a_connection_it_is_the_database_that_is_missing() -> None:
    for error in (psycopg_errors.OperationalError("refused"), oslo.DBConnectionError(None)):
        assert type(errors.translate(error, "db", connecting=True)) is _UNAVAILABLE


# --- trying again ---


def _failing(times: int) -> Callable[[], int]:
    tries = itertools.count(1)

    def attempt() -> int:
        number = next(tries)
        if number <= times:
            raise Transient(exceptions.DatabaseBusy("lab.db"))
        return number

    return attempt


def test_a_busy_database_is_tried_again_after_growing_random_sleeps() -> None:
    slept: list[float] = []
    bounds: list[float] = []

    def uniform(least: float, most: float) -> float:
        bounds.append(most)
        return most

    retries = Retries(first_sleep=1, longest_sleep=6, sleep=slept.append, uniform=uniform)
    assert retries.run(_failing(4)) == 5
    assert slept == bounds == [2, 4, 6, 6]


def test_tries_and_time_are_bounded() -> None:
    nothing = Retries(tries=3, sleep=lambda _: None)
    with pytest.raises(exceptions.DatabaseBusy):
        nothing.run(_failing(3))
    assert nothing.run(_failing(2)) == 3
    clock = itertools.count(0, 20)
    late = Retries(seconds=30, sleep=lambda _: None, clock=lambda: next(clock))
    with pytest.raises(exceptions.DatabaseBusy):
        late.run(_failing(2))


def test_what_is_not_transient_is_not_tried_again() -> None:
    tries = itertools.count(1)

    def refuse() -> None:
        next(tries)
        raise exceptions.ConsumerExists("job")

    with pytest.raises(exceptions.ConsumerExists):
        Retries().run(refuse)
    assert next(tries) == 2


# --- numbers of names ---


def test_a_number_of_a_rolled_back_transaction_is_not_believed(
    sqlite_url: Callable[[str], str],
) -> None:
    backend = SQLBackend.open(sqlite_url("ledger.db"))
    classes = backend._catalogue.classes

    numbers: list[int] = []

    def make_and_fail(connection: sqlalchemy.Connection) -> None:
        made = classes.ensure(connection, ["CUSTOM_A"])
        assert classes.ensure(connection, ["CUSTOM_A"]) == made
        numbers.extend(made.values())
        raise RuntimeError("rolled back")

    with pytest.raises(RuntimeError):
        backend._writing(make_and_fail)
    made = backend._writing(lambda connection: classes.ensure(connection, ["CUSTOM_B"]))
    assert made == {"CUSTOM_B": numbers[0]}
    assert backend._reading(lambda c: classes.find(c, ["CUSTOM_A", "CUSTOM_B"])) == made
    assert backend._reading(lambda c: classes.names(c, numbers))[numbers[0]] == "CUSTOM_B"
    backend.close()
