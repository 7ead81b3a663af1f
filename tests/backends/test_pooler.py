"""Behind PgBouncer in transaction mode: each transaction has another session of the server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy
from sqlalchemy.pool import NullPool

from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.testing.conformance.suite import claim, define, host, ledger_state, release
from tests import databases
from tests.private_servers import Missing, pooler, private_server
from tests.support.checker import problems

pytestmark = pytest.mark.long

CLIENTS, CLAIMS = 8, 25


@pytest.fixture
def urls() -> Iterator[tuple[str, str]]:
    """The URLs of an empty database, through a pooler and of its server."""
    try:
        with private_server("postgresql") as server, pooler(server) as url:
            with databases.connect(sqlalchemy.make_url(server.admin)) as connection:
                connection.exec_driver_sql("CREATE DATABASE lab")
            yield f"{_lab(url)}&pooler=transaction", _lab(server.admin)
    except Missing as error:
        if databases.required():
            raise
        pytest.skip(str(error))


def _lab(url: str) -> str:
    return sqlalchemy.make_url(url).set(database="lab").render_as_string(hide_password=False)


@pytest.mark.law(4)
def test_many_clients_behind_a_pooler_claim_without_an_error(urls: tuple[str, str]) -> None:
    url, direct = urls
    assert SQLBackend.upgrade_database(url) != []
    backends = [SQLBackend.open(url) for _ in range(CLIENTS)]
    names = define(backends[0], host("host0", f"VCPU={CLIENTS * CLAIMS}"), host("host1"))
    begun = threading.Barrier(CLIENTS)

    def work(client: int) -> None:
        begun.wait()
        for number in range(CLAIMS):
            claim(backends[client], f"job-{client}-{number}", {names["host0"]: "VCPU=1"})
            claim(backends[client], f"other-{client}", {names["host1"]: "VCPU=1"})
            assert ledger_state(backends[client]).used("host1", "VCPU") > 0
            release(backends[client], f"other-{client}")

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(work, range(CLIENTS)))
    assert ledger_state(backends[0]).used("host0", "VCPU") == CLIENTS * CLAIMS
    for backend in backends:
        backend.close()
    assert problems(direct) == []


def test_what_a_session_was_told_holds_for_one_transaction(urls: tuple[str, str]) -> None:
    url, _ = urls
    SQLBackend.upgrade_database(url)
    backend = SQLBackend.open(url)
    other = sqlalchemy.create_engine(
        sqlalchemy.make_url(url).difference_update_query(["pooler"]), poolclass=NullPool
    )
    ask = (
        "SELECT current_setting('lock_timeout'),"
        " current_setting('idle_in_transaction_session_timeout'),"
        " (SELECT count(*) FROM pg_prepared_statements)"
    )
    for run in (backend._reading, backend._writing) * 10:
        found = run(lambda connection: connection.exec_driver_sql(ask).one())
        assert tuple(found) == ("30s", "10s", 0)
        with other.connect() as stranger:  # who has the same session afterwards
            assert tuple(stranger.exec_driver_sql(ask).one()) == ("0", "0", 0)
    backend.close()
