"""What is particular about databases behind a server: first steps, and lost connections."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.stateful
import pytest
import sqlalchemy
from sqlalchemy.pool import NullPool

from resource_objects import exceptions
from resource_objects.backends.retries import RetryPolicy
from resource_objects.backends.sql import feed, migrations, orders
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers.orders import ConsumerOrder, Operation, Use, Write
from resource_objects.resources import Inventories
from resource_objects.testing.conformance import state_machine
from resource_objects.testing.conformance.suite import (
    changes_to,
    claim,
    define,
    deltas,
    host,
    ledger_state,
    release,
    stored_tree,
)
from resource_objects.testing.refusals import raises_code
from tests import conftest, databases
from tests.support.checker import problems
from tests.support.lengths import examples, some
from tests.support.network import network

upgrade = SQLBackend.upgrade_database


@pytest.fixture(params=["postgresql", "mysql"])
def database_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    conftest.require_server(kind)
    return kind


def throw_out(url: str) -> int:
    """End every other connection to a database, and wait until they are; return how many."""
    engine = sqlalchemy.create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    if engine.dialect.name == "postgresql":
        end = "SELECT pg_terminate_backend({})"
        query = (
            "SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    else:
        end = "KILL {}"
        query = (
            "SELECT id FROM information_schema.processlist"
            " WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        )
    with engine.connect() as connection:
        others = connection.exec_driver_sql(query).scalars().all()
        for number in others:
            with contextlib.suppress(sqlalchemy.exc.OperationalError):
                connection.exec_driver_sql(end.format(number))
        for _ in range(500):
            if not set(others) & set(connection.exec_driver_sql(query).scalars()):
                break
            time.sleep(0.01)
        return len(others)


@pytest.mark.drawn
def test_random_steps_agree_with_the_model(database_kind: str, scratch: databases.Scratch) -> None:
    with contextlib.ExitStack() as lent:

        def fresh() -> SQLBackend:
            lent.close()  # puts back what the example before has written
            return SQLBackend.open(lent.enter_context(scratch.prepared(database_kind, upgrade)))

        settings = hypothesis.settings(max_examples=examples(6), stateful_step_count=20)
        hypothesis.stateful.run_state_machine_as_test(state_machine(fresh), settings=settings)


# --- opening ---


def test_an_empty_database_needs_an_upgrade(database_url: str) -> None:
    with raises_code("SchemaTooOld", match="db upgrade") as refused:
        SQLBackend.open(database_url)
    assert "no tables" in str(refused.value)
    SQLBackend.upgrade_database(database_url)
    SQLBackend.open(database_url).close()


def test_tables_of_others_may_be_there_too(database_url: str) -> None:
    engine = sqlalchemy.create_engine(database_url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        connection.exec_driver_sql("CREATE TABLE books (id INTEGER)")
    assert len(SQLBackend.upgrade_database(database_url)) == migrations.NEWEST
    SQLBackend.open(database_url).close()


def test_a_mariadb_url_and_one_without_a_driver_are_understood(
    database_kind: str, ledger_url: str
) -> None:
    scheme, _, rest = ledger_url.partition("://")
    for name in {"postgresql": ["postgresql"], "mysql": ["mysql", "mariadb"]}[database_kind]:
        SQLBackend.open(f"{name}://{rest}").close()
    SQLBackend.open(f"{scheme}://{rest}").close()


@pytest.mark.parametrize("change", [{"port": 1}, {"database": "ro_test_nobody_made_this"}])
def test_what_cannot_be_reached_is_named_without_waiting(
    ledger_url: str, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"waits {seconds} s"))
    url = sqlalchemy.make_url(ledger_url).set(password="secret").set(**change)
    with raises_code("DatabaseUnavailable") as refused:
        SQLBackend.open(url.render_as_string(hide_password=False))
    assert "secret" not in str(refused.value) and str(url.host) in str(refused.value)


def test_a_missing_driver_is_named_with_what_installs_it(
    database_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = {"postgresql": "psycopg", "mysql": "pymysql"}[database_kind]
    monkeypatch.setitem(sys.modules, driver, None)
    with raises_code("BackendNotFound") as refused:
        SQLBackend.open(f"{database_kind}://127.0.0.1/nothing")
    assert f"resource_objects[{database_kind}]" in str(refused.value)


# --- lost connections ---


@pytest.fixture
def names(ledger: SQLBackend, ledger_url: str) -> Iterator[dict[str, str]]:
    """A ledger of one host; its tables are checked at the end."""
    yield define(ledger, host())
    assert problems(ledger_url) == []


def test_a_connection_lost_while_idle_is_not_noticed(
    ledger: SQLBackend, ledger_url: str, names: dict[str, str]
) -> None:
    claim(ledger, "job-1", {names["host0"]: "VCPU=1"})
    assert throw_out(ledger_url) > 0
    claim(ledger, "job-2", {names["host0"]: "VCPU=1"})
    assert throw_out(ledger_url) > 0
    assert len(ledger_state(ledger).allocations) == 2


@pytest.mark.law(2)
def test_a_connection_lost_before_the_commit_did_nothing(
    ledger: SQLBackend, ledger_url: str, names: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ledger_state(ledger)

    def lost(*_: Any) -> None:
        assert throw_out(ledger_url) > 0

    monkeypatch.setattr(orders, "make_consumers", _after(lost, orders.make_consumers))
    operation = Operation()
    order = ConsumerOrder.claim("job", deltas({names["host0"]: "VCPU=8"}))
    with raises_code("LostConnection"):
        ledger.claim(operation, order)
    monkeypatch.undo()
    assert ledger_state(ledger) == before
    assert ledger.claim(operation, order) == ledger.consumer("job")
    assert ledger_state(ledger).used("host0", "VCPU") == 8


#: what locks inventories: PostgreSQL finds and locks them in one statement
_LOCKS = {"postgresql": "_find_and_lock", "mysql": "_lock"}
_PARTS = [
    (orders, "read_locked_inventories"),
    (orders, "locks"),
    (orders, "change_used"),
    (orders, "record_operation"),
    (orders, "make_consumers"),
    (orders, "_write_generation"),
    (orders, "write_consumers"),
    (feed, "append_entries"),
]


@pytest.mark.law(2)
@pytest.mark.parametrize(("module", "name"), _PARTS)
def test_a_large_write_that_loses_its_connection_did_nothing(
    ledger: SQLBackend,
    database_kind: str,
    ledger_url: str,
    names: dict[str, str],
    module: Any,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree = host("host1", "VCPU=8,DISK_GB=9")
    tree.add("host1/disk")
    names |= define(ledger, tree)
    claim(ledger, "goes", {names["host0"]: "VCPU=8"})
    claim(ledger, "moves", {names["host1"]: "DISK_GB=2"})
    wanted = stored_tree(ledger, "host1")
    wanted.update(inventories=Inventories("VCPU=8"))
    wanted.children[0].update(inventories=Inventories("DISK_GB=9"))
    unit = Use(names["host0"], "VCPU", 8, ("cpu0",))
    write = Write(
        Operation(),
        "reshape",
        "host1",
        changes_to(ledger, wanted),
        (
            ConsumerOrder.release("goes"),
            ConsumerOrder.claim("comes", (unit,)),
            ConsumerOrder.replace("moves", deltas({names["host1/disk"]: "DISK_GB=2"})),
        ),
    )
    before, cursor = ledger_state(ledger), ledger.cursor()

    def lost(*_: Any) -> None:
        assert throw_out(ledger_url) > 0

    if name == "locks":
        name = _LOCKS[database_kind]
    monkeypatch.setattr(module, name, _after(lost, getattr(module, name)))
    with raises_code("LostConnection"):
        ledger.commit(write)
    monkeypatch.undo()
    assert (ledger_state(ledger), ledger.cursor()) == (before, cursor)
    assert len(ledger.commit(write)) == 3
    assert ledger_state(ledger).units == {("host0", "cpu0"): ("VCPU", "comes")}


def _after(first: Callable[..., None], then: Callable[..., Any]) -> Callable[..., Any]:
    def both(*args: Any, **said: Any) -> Any:
        first()
        return then(*args, **said)

    return both


@pytest.mark.law(4)
def test_a_write_whose_acknowledgement_was_lost_happens_once(
    ledger: SQLBackend, ledger_url: str, names: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect: Any = ledger._database._engine.dialect
    commit = dialect.do_commit

    def commit_and_lose(connection: Any) -> None:
        commit(connection)
        throw_out(ledger_url)
        connection.cursor().execute("SELECT 1")

    monkeypatch.setattr(dialect, "do_commit", commit_and_lose)
    operation = Operation()
    order = ConsumerOrder.claim("job", deltas({names["host0"]: "VCPU=8"}))
    with raises_code("LostConnection"):
        ledger.claim(operation, order)
    monkeypatch.undo()
    assert ledger.claim(operation, order) == ledger.consumer("job")
    assert ledger_state(ledger).used("host0", "VCPU") == 8
    release(ledger, "job")
    assert ledger.claim(operation, order).held[0].amount == 8
    assert ledger.consumer("job") is None


def test_a_connection_lost_while_it_is_made_is_no_surprise(
    database_kind: str, ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect = sqlalchemy.make_url(ledger_url).get_dialect()
    step = {"postgresql": "_set_backslash_escapes", "mysql": "_detect_sql_mode"}[database_kind]
    first = getattr(dialect, step)
    done = []

    def lose(self: Any, connection: Any) -> None:
        if not done:
            done.append(1)
            throw_out(ledger_url)
        first(self, connection)

    monkeypatch.setattr(dialect, step, lose)
    # PostgreSQL says that it shut the connection down, so it is asked again; MariaDB says nothing
    surprises = ("LostConnection", "DatabaseUnavailable")
    with contextlib.nullcontext() if database_kind == "postgresql" else raises_code(*surprises):
        SQLBackend.open(ledger_url).close()
    assert done
    monkeypatch.undo()
    SQLBackend.open(ledger_url).close()


# --- waits that end ---


def _with(url: str, **options: str) -> str:
    parsed = sqlalchemy.make_url(url).update_query_dict(options)
    return parsed.render_as_string(hide_password=False)


@pytest.mark.law(4)
@pytest.mark.parametrize("is_done", some([True, False]))
def test_a_network_that_swallows_packets_ends_a_claim(
    ledger_url: str, is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with network(ledger_url) as between:
        backend = SQLBackend.open(_with(between.url, read_timeout="1"))
        uuid = define(backend, host())["host0"]
        dialect: Any = backend._database._engine.dialect
        commit = dialect.do_commit

        def commit_into_nothing(connection: Any) -> None:
            between.swallow(requests=not is_done)
            commit(connection)

        monkeypatch.setattr(dialect, "do_commit", commit_into_nothing)
        operation = Operation()
        order = ConsumerOrder.claim("job", deltas({uuid: "VCPU=8"}))
        with raises_code("LostConnection"):  # it would wait for ever
            backend.claim(operation, order)
        monkeypatch.undo()
        between.mend()
        assert (backend.outcome(operation) is not None) == is_done
        assert backend.claim(operation, order) == backend.consumer("job")
        assert ledger_state(backend).used("host0", "VCPU") == 8
        backend.close()
    assert problems(ledger_url) == []


def test_a_read_that_loses_its_connection_is_done_again(
    ledger: SQLBackend, ledger_url: str, names: dict[str, str]
) -> None:
    lost = []

    def lose_once(connection: sqlalchemy.Connection) -> int:
        if not lost:
            lost.append(throw_out(ledger_url))
        return int(connection.exec_driver_sql("SELECT 7").scalar_one())

    assert ledger._reading(lose_once) == 7
    assert lost[0] > 0


@pytest.mark.long
def test_a_client_that_stops_within_a_transaction_is_not_waited_for(
    ledger: SQLBackend, ledger_url: str, names: dict[str, str]
) -> None:
    stopped = SQLBackend.open(_with(ledger_url, idle_timeout="1"))

    def stop(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("SELECT id FROM inventories FOR UPDATE")
        claim(ledger, "other", {names["host0"]: "VCPU=1"})
        connection.exec_driver_sql("SELECT 1")

    with raises_code("LostConnection"):
        stopped._writing(stop)
    assert ledger.consumer("other") is not None
    stopped.close()


def test_how_long_transactions_may_idle_and_wait_is_set(
    ledger: SQLBackend, database_kind: str
) -> None:
    ask = {
        "postgresql": "SELECT current_setting('lock_timeout'),"
        " current_setting('idle_in_transaction_session_timeout')",
        "mysql": "SELECT @@innodb_lock_wait_timeout, @@idle_transaction_timeout",
    }[database_kind]
    found = ledger._reading(lambda connection: connection.exec_driver_sql(ask).one())
    assert tuple(found) == {"postgresql": ("30s", "10s"), "mysql": (30, 10)}[database_kind]


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_a_session_reads_no_whole_table_for_a_foreign_key(
    ledger: SQLBackend, names: dict[str, str]
) -> None:
    """A session keeps what it planned while the table was young, however much it grows."""
    for number in range(8):
        claim(ledger, f"job-{number}", {names["host0"]: "VCPU=1"})
    ask = "EXPLAIN SELECT 1 FROM consumers x WHERE id = 1 FOR KEY SHARE OF x"  # as it does

    def planned(connection: sqlalchemy.Connection) -> str:
        connection.exec_driver_sql("ANALYZE consumers")
        return "\n".join(connection.exec_driver_sql(ask).scalars())

    assert "Seq Scan" not in ledger._writing(planned)


def test_a_statement_that_takes_longer_than_is_allowed_is_a_busy_database(
    ledger: SQLBackend, ledger_url: str, names: dict[str, str], database_kind: str
) -> None:
    allowed = {
        "postgresql": {"options": "-c statement_timeout=100ms"},
        "mysql": {"init_command": "SET SESSION max_statement_time = 0.1"},
    }[database_kind]
    hurried = SQLBackend.open(
        _with(ledger_url, run_sql="yes", **allowed), retries=RetryPolicy(tries=2)
    )

    def hold(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("SELECT id FROM inventories FOR UPDATE").all()
        with raises_code("DatabaseBusy"):
            claim(hurried, "job", {names["host0"]: "VCPU=1"})

    ledger._writing(hold)
    claim(hurried, "job", {names["host0"]: "VCPU=1"})
    hurried.close()


# --- what is shown ---


@pytest.mark.parametrize("place", ["before the host", "as an option"])
def test_no_error_and_no_log_tells_a_password(
    ledger_url: str, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = sqlalchemy.make_url(ledger_url)
    if place == "as an option":
        url = url.set(username="ro_test_nobody").update_query_dict({"password": "pass-secret"})
    else:
        url = url.set(username="ro_test_nobody", password="pass-secret")
    with raises_code("DatabaseUnavailable") as refused:
        SQLBackend.open(url.render_as_string(hide_password=False))
    told = "".join(traceback.format_exception(refused.value)) + caplog.text
    error: BaseException | None = refused.value
    while error is not None:
        told += f"{error} {error!r} {error.args}"
        error = error.__cause__ or error.__context__
    assert "pass-secret" not in told
    assert "ro_test_nobody" in str(refused.value)


def test_a_failed_statement_leaves_no_trace_in_the_log(
    ledger: SQLBackend, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(exceptions.LedgerError):
        ledger._reading(lambda connection: connection.exec_driver_sql("SELECT nonsense"))
    assert caplog.records == []


def test_a_certificate_that_is_none_is_named(
    ledger_url: str, database_kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("no certificate")
    options = {
        "postgresql": {"sslmode": "verify-full", "sslrootcert": str(path)},
        "mysql": {"ssl_disabled": "false", "ssl_ca": str(path)},
    }[database_kind]
    with raises_code("DatabaseUnavailable") as refused:
        SQLBackend.open(_with(ledger_url, **options))
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)
def test_of_several_hosts_one_that_answers_is_taken(ledger_url: str) -> None:
    url = sqlalchemy.make_url(ledger_url)
    if not url.host:
        pytest.skip("this server is asked over its socket")
    there = f"{url.host}:{url.port}" if url.port else str(url.host)
    several = f"127.0.0.1:1,{url.host}:{url.port or 5432}"
    SQLBackend.open(ledger_url.replace(there, several)).close()
