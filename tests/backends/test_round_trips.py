"""How often PostgreSQL is waited for, counted in what the driver sends and receives."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import resource_objects as ro
from resource_objects.backends.sql.backend import SQLBackend
from tests import conftest, databases

upgrade = SQLBackend.upgrade_database


@pytest.fixture
def database_kind() -> str:
    conftest.require_server("postgresql")
    return "postgresql"


@pytest.fixture
def made(
    prepared_database: Callable[[databases.Prepare], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ro.Ledger, list[Any]]]:
    """A ledger with a host, and the connections that it makes."""
    psycopg = pytest.importorskip("psycopg")
    url, connections = prepared_database(upgrade), []
    connect = psycopg.Connection.connect.__func__

    def connect_noted(cls: Any, *args: Any, **options: Any) -> Any:
        connections.append(connect(cls, *args, **options))
        return connections[-1]

    monkeypatch.setattr(psycopg.Connection, "connect", classmethod(connect_noted))
    with ro.connect(url) as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=64,MEMORY_MB=1000"))
        yield ledger, connections


def waits(connection: Any, work: Callable[[], object]) -> int:
    """Return how often a connection sends something and waits for the answer."""
    with tempfile.TemporaryFile() as traced:
        connection.pgconn.trace(traced.fileno())
        try:
            work()
        finally:
            connection.pgconn.untrace()
        traced.seek(0)
        # a line for each message: time, F (sent) or B (received), length, kind
        senders = [line.split(b"\t")[1] for line in traced if line.count(b"\t") >= 3]
    return sum(
        one == b"F" and before != b"F"
        for before, one in zip([b"B", *senders], senders, strict=False)
    )


def test_a_claim_is_begin_two_statements_and_commit(made: tuple[ro.Ledger, list[Any]]) -> None:
    ledger, connections = made
    uuid = ledger.provider("host0").uuid
    assert uuid is not None
    work = {"VCPU": 1, "MEMORY_MB": 2}
    ledger.claim("job-1", {uuid: work})
    # on a connection that was idle in the pool
    assert waits(connections[-1], lambda: ledger.claim("job-2", {uuid: work})) == 4
    assert len(ledger.get_claim("job-2").allocations) == 2


def test_where_the_feed_is_costs_begin_a_statement_and_commit(
    made: tuple[ro.Ledger, list[Any]],
) -> None:
    ledger, connections = made
    assert waits(connections[-1], ledger.feed.cursor) == 3


def test_a_connection_that_the_server_ended_is_replaced(made: tuple[ro.Ledger, list[Any]]) -> None:
    ledger, connections = made
    [kept] = connections
    number = kept.info.backend_pid
    with databases.connect(databases.find_server("postgresql").admin) as administrator:
        administrator.exec_driver_sql(f"SELECT pg_terminate_backend({number}, 5000)")
    assert ledger.claim("job", {"host0": "VCPU=1"}).consumer == "job"
    assert len(connections) == 2


def test_many_rows_are_told_in_a_statement_of_few_parameters(
    made: tuple[ro.Ledger, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver reads each mark in the text of a statement, which took a third of an apply."""
    ledger, _ = made
    psycopg = pytest.importorskip("psycopg")
    marks: list[int] = []
    execute = psycopg.Cursor.execute

    def counted(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        if "INSERT" in str(query):
            marks.append(str(query).count("%"))
        return execute(self, query, *args, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", counted)
    hosts = []
    for number in range(40):
        host = ro.Provider(f"many{number}", "VCPU=64,MEMORY_MB=1000", traits=["CUSTOM_A"])
        host.add(f"many{number}/gpu", "PGPU=1,CUSTOM_HALF=2")
        hosts.append(host)
    before = ledger.feed.cursor()
    ledger.sync(*hosts)
    assert marks and max(marks) < 20
    told = ledger.feed.changes(before)
    made_now = {one.uuid: one.name for one in ledger.providers() if one.name != "host0"}
    assert len(made_now) == 80
    assert {uuid for one in told for uuid in one.definitions} == set(made_now)
    assert not ledger.audit()
