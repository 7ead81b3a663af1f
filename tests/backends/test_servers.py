"""What is particular about databases behind a server: first steps, and lost connections."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import hypothesis.stateful
import pytest
import sqlalchemy
from sqlalchemy.pool import NullPool

from resource_objects import exceptions
from resource_objects.backends.sql import claims, feed, migrations
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers.orders import (
    ConsumerOrder,
    Operation,
    Use,
    Write,
)
from resource_objects.resources import Inventories
from resource_objects.testing.conformance import state_machine
from resource_objects.testing.conformance.suite import (
    changes_to,
    claim,
    define,
    deltas,
    host,
    kept,
    picture,
    release,
)
from tests import conftest, databases
from tests.support.checker import problems
from tests.support.lengths import examples

upgrade = SQLBackend.upgrade_database


@pytest.fixture(params=["postgresql", "mysql"])
def database_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    conftest.require_server(kind)
    return kind


def throw_out(url: str) -> int:
    """End every other connection to a database; return how many there were."""
    engine = sqlalchemy.create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            query = (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return len(connection.exec_driver_sql(query).all())
        query = (
            "SELECT id FROM information_schema.processlist"
            " WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        )
        others = connection.exec_driver_sql(query).all()
        for (number,) in others:
            with contextlib.suppress(sqlalchemy.exc.OperationalError):
                connection.exec_driver_sql(f"KILL {number}")
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
    with pytest.raises(exceptions.SchemaTooOld, match="db upgrade") as refused:
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
    with pytest.raises(exceptions.DatabaseUnavailable) as refused:
        SQLBackend.open(url.render_as_string(hide_password=False))
    assert "secret" not in str(refused.value) and str(url.host) in str(refused.value)


def test_a_missing_driver_is_named_with_what_installs_it(
    database_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = {"postgresql": "psycopg", "mysql": "pymysql"}[database_kind]
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(exceptions.BackendNotFound) as refused:
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
    assert len(picture(ledger).allocations) == 2


@pytest.mark.law(2)
def test_a_connection_lost_before_the_commit_did_nothing(
    ledger: SQLBackend, ledger_url: str, names: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = picture(ledger)

    def lost(*_: Any) -> None:
        assert throw_out(ledger_url) > 0

    monkeypatch.setattr(claims, "make_consumers", _after(lost, claims.make_consumers))
    operation = Operation()
    order = ConsumerOrder.claim("job", deltas({names["host0"]: "VCPU=8"}))
    with pytest.raises(exceptions.LostConnection):
        ledger.claim(operation, order)
    monkeypatch.undo()
    assert picture(ledger) == before
    assert ledger.claim(operation, order) == ledger.held("job")
    assert picture(ledger).used("host0", "VCPU") == 8


#: what locks inventories: PostgreSQL finds and locks them in one statement
_LOCKS = {"postgresql": "_take", "mysql": "lock_places"}
_PARTS = [
    (claims, "find_places"),
    (claims, "locks"),
    (claims, "change_used"),
    (claims, "record_operation"),
    (claims, "make_consumers"),
    (claims, "forget_consumers"),
    (claims, "put"),
    (feed, "tell"),
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
    wanted = kept(ledger, "host1")
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
    before, cursor = picture(ledger), ledger.cursor()

    def lost(*_: Any) -> None:
        assert throw_out(ledger_url) > 0

    if name == "locks":
        name = _LOCKS[database_kind]
    monkeypatch.setattr(module, name, _after(lost, getattr(module, name)))
    with pytest.raises(exceptions.LostConnection):
        ledger.commit(write)
    monkeypatch.undo()
    assert (picture(ledger), ledger.cursor()) == (before, cursor)
    assert len(ledger.commit(write)) == 3
    assert picture(ledger).units == {("host0", "cpu0"): ("VCPU", "comes")}


def _after(first: Callable[..., None], then: Callable[..., Any]) -> Callable[..., Any]:
    def both(*args: Any) -> Any:
        first()
        return then(*args)

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
    with pytest.raises(exceptions.LostConnection):
        ledger.claim(operation, order)
    monkeypatch.undo()
    assert ledger.claim(operation, order) == ledger.held("job")
    assert picture(ledger).used("host0", "VCPU") == 8
    release(ledger, "job")
    assert ledger.claim(operation, order).held[0].amount == 8
    assert ledger.held("job") is None


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
    with pytest.raises((exceptions.LostConnection, exceptions.DatabaseUnavailable)):
        SQLBackend.open(ledger_url)
    monkeypatch.undo()
    SQLBackend.open(ledger_url).close()
