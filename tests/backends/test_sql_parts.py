"""The parts of the SQL backend that can be asked without a database."""

from __future__ import annotations

import itertools
import re
import socket
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

import pymysql
import pytest
import sqlalchemy
from oslo_db import exception as oslo
from psycopg import errors as psycopg_errors

from resource_objects import exceptions
from resource_objects.backends.retries import RetryPolicy, Transient
from resource_objects.backends.sql import errors, names, psycopg_connection, urls
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers.orders import NameKind
from resource_objects.testing.refusals import raises_code

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
    assert urls.parse(given).url.drivername == driver


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
    with raises_code("InvalidURL"):
        urls.parse(wrong)


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
        "postgresql://me@db:secret/lab",
        "postgresql://me@db,b:secret/lab",
        "postgresql://db/lab?password=secret&prepare=1",
        "mysql://db/lab?passwd=secret&secret%20word=1",
        "mysql://db/lab?password=a&password=secret",
    ],
)
def test_a_refused_url_does_not_tell_its_password(wrong: str) -> None:
    with raises_code("InvalidURL") as refused:
        urls.parse(wrong)
    told, error = "", refused.value
    while error is not None:
        told += f"{error} {error.args} {error!r}"
        error = error.__context__
    assert "secret" not in told and "ret@" not in told


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("sqlite:///lab.db?synchronus=FULL", "synchronus"),
        ("postgresql://db/lab?prepare_threshold=None", "prepare_threshold"),
        ("mysql://db/lab?compress=1", "compress"),
        ("mysql://db/lab?client_flag=65536", "client_flag"),
        ("mysql://db/lab?local_infile=1", "local_infile"),
        ("postgresql://db/lab?sslmode=verify", "sslmode"),
        ("postgresql://db/lab?sslrootcert=/nowhere/ca.pem", "sslrootcert"),
        ("mysql://db/lab?ssl_ca=/nowhere/ca.pem", "ssl_ca"),
        ("mysql://db/lab?read_timeout=soon", "read_timeout"),
        ("mysql://db/lab?ssl_verify_cert=perhaps", "ssl_verify_cert"),
        ("mysql://db/lab?pooler=transaction", "pooler"),
        ("postgresql://db/lab?pooler=session", "pooler"),
        ("postgresql://db/lab?read_timeout=1&read_timeout=2", "read_timeout"),
        ("mysql://db/lab?init_command=SET+autocommit=1", "run_sql=yes"),
        ("postgresql://db/lab?options=-csearch_path%3Dx", "run_sql=yes"),
        ("mysql://a,b/lab", "one host"),
    ],
)
def test_an_option_that_is_none_is_named(wrong: str, named: str) -> None:
    with raises_code("InvalidURL", match=named) as refused:
        urls.parse(wrong)
    assert refused.value.__cause__ is None and refused.value.__context__ is None


def test_options_that_run_statements_are_taken_where_the_url_asks_for_it() -> None:
    found = urls.parse("mysql://db/lab?init_command=SET+autocommit=1&run_sql=yes")
    assert found.driver["init_command"] == "SET autocommit=1"
    found = urls.parse("postgresql://db/lab?options=-csearch_path%3Dx&run_sql=yes")
    assert found.driver["options"] == "-csearch_path=x"


@pytest.mark.parametrize(
    ("given", "host", "port", "shown"),
    [
        ("db/lab", "db", None, "db"),
        ("db:5433/lab", "db", "5433", "db:5433"),
        ("a,b/lab", "a,b", None, "a,b"),
        ("me:secret@a:5432,b:5433/lab", "a,b", "5432,5433", "a:5432,b:5433"),
        ("[::1]:5432,b/lab", "::1,b", "5432,", "[::1]:5432,b"),
        ("/lab?host=a,b&port=5432,5433", "a,b", "5432,5433", "a:5432,b:5433"),
        ("/lab?host=a:5432&host=b", "a,b", "5432,", "a:5432,b"),
        ("/lab?host=/var/run/postgresql&port=5433", "/var/run/postgresql", "5433", ""),
        ("/lab", None, None, ""),
    ],
)
def test_several_hosts_are_given_in_either_place(
    given: str, host: str | None, port: str | None, shown: str
) -> None:
    found = urls.parse(f"postgresql://{given}")
    assert (found.driver.get("host"), found.driver.get("port")) == (host, port)
    assert "secret" not in found.shown and found.shown.endswith(f"{shown}/lab")


def test_every_default_is_a_value_that_its_option_takes() -> None:
    for _, options in urls.DRIVERS.values():
        for option in options.values():
            if option.default is not None:
                text = {True: "yes", False: "no"}.get(option.default, str(option.default))
                assert option.read(text) == option.default


def test_the_driver_names_an_option_whose_value_it_refuses() -> None:
    url = "postgresql://127.0.0.1:1/lab?channel_binding=perhaps"
    with raises_code("DatabaseUnavailable", match="channel_binding"):
        SQLBackend.open(url, retries=RetryPolicy(tries=1))


def test_memory_is_pointed_to_its_backend() -> None:
    with raises_code("InvalidURL", match="memory://"):
        SQLBackend.open("sqlite:///:memory:")


# --- errors ---


def _sqlite(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("said by SQLite")
    error.sqlite_errorcode = code  # type: ignore[misc]
    return error


def _wrapped(driver: Exception) -> sqlalchemy.exc.DBAPIError:
    return sqlalchemy.exc.OperationalError("SELECT 1", {}, driver)


_BUSY = "DatabaseBusy"
_READ_ONLY = "ReadOnlyDatabase"
_UNAVAILABLE = "DatabaseUnavailable"
_LOST = "LostConnection"
_OTHER = "LedgerError"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (_sqlite(sqlite3.SQLITE_BUSY), _BUSY),
        (_sqlite(sqlite3.SQLITE_BUSY_SNAPSHOT), _BUSY),
        (_sqlite(sqlite3.SQLITE_READONLY), _READ_ONLY),
        (_sqlite(sqlite3.SQLITE_READONLY_DBMOVED), "DatabaseReplaced"),
        (_sqlite(sqlite3.SQLITE_NOTADB), _UNAVAILABLE),
        (_sqlite(sqlite3.SQLITE_FULL), "DatabaseFull"),
        (_sqlite(sqlite3.SQLITE_CORRUPT), "DatabaseDamaged"),
        (_sqlite(sqlite3.SQLITE_CONSTRAINT_CHECK), _OTHER),
        (psycopg_errors.SerializationFailure("x"), _BUSY),
        (psycopg_errors.DeadlockDetected("x"), _BUSY),
        (psycopg_errors.LockNotAvailable("x"), _BUSY),
        (psycopg_errors.ReadOnlySqlTransaction("x"), _READ_ONLY),
        (psycopg_errors.AdminShutdown("x"), _LOST),
        (psycopg_errors.DiskFull("x"), "DatabaseFull"),
        (psycopg_errors.DataCorrupted("x"), "DatabaseDamaged"),
        (psycopg_errors.QueryCanceled("statement timeout"), _BUSY),
        (psycopg_errors.IdleInTransactionSessionTimeout("x"), _LOST),
        (psycopg_errors.CheckViolation("x"), _OTHER),
        (pymysql.err.OperationalError(1213, "Deadlock found"), _BUSY),
        (pymysql.err.OperationalError(1205, "Lock wait timeout"), _BUSY),
        (pymysql.err.OperationalError(1020, "Record has changed"), _BUSY),
        (pymysql.err.OperationalError(1412, "Table definition has changed"), _BUSY),
        (pymysql.err.OperationalError(1969, "max_statement_time exceeded"), _BUSY),
        (pymysql.err.OperationalError(1114, "The table is full"), "DatabaseFull"),
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
    error: Exception, kind: str, wrap: Callable[[Any], Exception]
) -> None:
    found = errors.translate(wrap(error), "lab.db")
    final = found.final if isinstance(found, Transient) else found
    assert final.code == kind
    assert isinstance(found, Transient) == (kind == _BUSY)
    assert str(final).startswith("lab.db ")


@pytest.mark.parametrize(
    "error",
    [
        psycopg_errors.CannotConnectNow("the database system is starting up"),
        psycopg_errors.CannotConnectNow("the database system is shutting down"),
        psycopg_errors.TooManyConnections("sorry, too many clients already"),
        pymysql.err.OperationalError(1040, "Too many connections"),
        pymysql.err.OperationalError(1203, "User has already more than 'max_user_connections'"),
    ],
    ids=repr,
)
def test_a_server_that_takes_no_connection_yet_is_tried_again(error: Exception) -> None:
    found = errors.translate(error, "db", connecting=True)
    assert isinstance(found, Transient) and found.final.code == _UNAVAILABLE


@pytest.mark.parametrize(
    "error",
    [psycopg_errors.AdminShutdown("x"), pymysql.err.OperationalError(1053, "x")],
    ids=repr,
)
def test_a_server_that_goes_while_it_is_connected_to_is_tried_again(error: Exception) -> None:
    found = errors.translate(error, "db", connecting=True)
    assert isinstance(found, Transient) and found.final.code == _UNAVAILABLE
    assert errors.translate(error, "db").code == _LOST


_REFUSALS = {
    "the database system is starting up": "57P03",
    "the database system is shutting down": "57P03",
    "the database system is in recovery mode": "57P03",
    "the database system is not yet accepting connections": "57P03",
    "the database system is not accepting connections": "57P03",
    "sorry, too many clients already": "53300",
    "remaining connection slots are reserved for roles with the SUPERUSER attribute": "53300",
    'too many connections for role "app"': "53300",
    'too many connections for database "lab"': "53300",
    'database "lab" does not exist': None,
    'password authentication failed for user "app"': None,
}


@pytest.mark.parametrize("said", _REFUSALS)
def test_why_postgresql_refused_a_connection_is_known(said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                body = f"SFATAL\0VFATAL\0CXXXXX\0M{said}\0\0".encode()
                connection.sendall(b"E" + (len(body) + 4).to_bytes(4, "big") + body)

        thread = threading.Thread(target=refuse)
        thread.start()
        where = {"host": "127.0.0.1", "port": server.getsockname()[1], "sslmode": "disable"}
        with pytest.raises(psycopg_errors.OperationalError, match=re.escape(said)) as refused:
            psycopg_connection.connect(1, gssencmode="disable", **where)
        thread.join()
    assert refused.value.sqlstate == _REFUSALS[said]


def test_what_oslo_db_recognised_is_recognised() -> None:
    lost = oslo.DBConnectionError(psycopg_errors.OperationalError("x"))
    assert errors.translate(lost, "lab.db").code == _LOST
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
        assert errors.translate(error, "db", connecting=True).code == _UNAVAILABLE


# --- trying again ---


def _failing(times: int) -> Callable[[], int]:
    tries = itertools.count(1)

    def attempt() -> int:
        number = next(tries)
        if number <= times:
            raise Transient(exceptions.DatabaseError("busy", "lab.db"))
        return number

    return attempt


def test_a_busy_database_is_tried_again_after_growing_random_sleeps() -> None:
    slept: list[float] = []
    bounds: list[float] = []

    def uniform(least: float, most: float) -> float:
        bounds.append(most)
        return most

    retries = RetryPolicy(first_sleep=1, longest_sleep=6, sleep=slept.append, uniform=uniform)
    assert retries.run(_failing(4)) == 5
    assert slept == bounds == [2, 4, 6, 6]


def test_tries_and_time_are_bounded() -> None:
    nothing = RetryPolicy(tries=3, sleep=lambda _: None)
    with raises_code("DatabaseBusy"):
        nothing.run(_failing(3))
    assert nothing.run(_failing(2)) == 3
    clock = itertools.count(0, 20)
    late = RetryPolicy(seconds=30, sleep=lambda _: None, clock=lambda: next(clock))
    with raises_code("DatabaseBusy"):
        late.run(_failing(2))


def test_it_may_be_tried_as_often_as_one_likes() -> None:
    slept: list[float] = []
    retries = RetryPolicy(tries=5000, sleep=slept.append, uniform=lambda least, most: most)
    assert retries.run(_failing(4000)) == 4001
    assert max(slept) == 0.25


def test_who_is_not_taken_yet_asks_until_the_time_is_over() -> None:
    clock = itertools.count()
    retries = RetryPolicy(tries=3, seconds=30, sleep=lambda _: None, clock=lambda: next(clock))
    asked = itertools.count(1)

    def refuse() -> None:
        next(asked)
        raise Transient(exceptions.DatabaseError("unavailable", "lab", "it starts"), not_yet=True)

    with raises_code("DatabaseUnavailable", match="it starts"):
        retries.run(refuse)
    assert next(asked) == 31


def test_what_is_not_transient_is_not_tried_again() -> None:
    tries = itertools.count(1)

    def refuse() -> None:
        next(tries)
        raise exceptions.AlreadyExists("consumer", "job")

    with raises_code("ConsumerExists"):
        RetryPolicy().run(refuse)
    assert next(tries) == 2


# --- numbers of names ---


def test_a_number_of_a_rolled_back_transaction_is_not_believed(
    sqlite_url: Callable[[str], str],
) -> None:
    backend = SQLBackend.open(sqlite_url("ledger.db"))
    classes = backend._reading(names.catalogue_of)[NameKind.RESOURCE_CLASS]

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
    assert backend._reading(lambda c: classes._look(c, ["CUSTOM_A", "CUSTOM_B"])) == made
    assert backend._reading(lambda c: classes.names(c, numbers))[numbers[0]] == "CUSTOM_B"
    backend.close()
