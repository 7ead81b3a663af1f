"""Servers that are there and take nobody yet: full, starting up, shutting down.

They are asked again until the time of the retry policy is over; then the error says what they said.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy

from resource_objects import exceptions
from resource_objects.backends.retries import RetryPolicy
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers.orders import ConsumerOrder, Operation
from resource_objects.testing.conformance.suite import define, deltas, host, ledger_state
from resource_objects.testing.refusals import raises_code
from tests import databases
from tests.backends.conftest import ask_all
from tests.private_servers import Missing, PrivateServer, private_server
from tests.support.checker import problems

pytestmark = [pytest.mark.long, pytest.mark.law(4)]

#: A policy that gives up soon.
SOON = RetryPolicy(seconds=0.5)


class Lab:
    """A ledger of one host on a server of its own, whose application is an account of its own."""

    def __init__(self, kind: str, server: PrivateServer) -> None:
        self.kind, self.server = kind, server
        made = {
            "postgresql": [
                "CREATE DATABASE lab",
                "CREATE ROLE app LOGIN PASSWORD 'pass-secret'",
                "ALTER DATABASE lab OWNER TO app",
            ],
            "mysql": [
                "CREATE DATABASE lab CHARACTER SET utf8mb4",
                "CREATE USER app IDENTIFIED BY 'pass-secret'",
                "GRANT ALL ON lab.* TO app",
            ],
        }
        ask_all(server.admin, *made[kind])
        own = sqlalchemy.make_url(server.admin).set(
            username="app", password="pass-secret", database="lab"
        )
        self.url = own.render_as_string(hide_password=False)
        self.admin = sqlalchemy.make_url(server.admin).set(database="lab")
        SQLBackend.upgrade_database(self.url)
        with contextlib.closing(SQLBackend.open(self.url)) as backend:
            self.host = define(backend, host("host0", "VCPU=100"))["host0"]

    def order(self, name: str) -> ConsumerOrder:
        """Return the claim of one VCPU."""
        return ConsumerOrder.claim(name, deltas({self.host: "VCPU=1"}))

    def connections(self, most: int) -> None:
        """Let the account have so many connections at once, 0 for as many as there are."""
        change = {
            "postgresql": f"ALTER ROLE app CONNECTION LIMIT {most or -1}",
            "mysql": f"ALTER USER app WITH MAX_USER_CONNECTIONS {most}",
        }
        ask_all(self.server.admin, change[self.kind])

    @contextlib.contextmanager
    def held(self, count: int = 1) -> Iterator[None]:
        """Have somebody hold so many connections of the account."""
        with contextlib.ExitStack() as held:
            for _ in range(count):
                held.enter_context(databases.connect(sqlalchemy.make_url(self.url)))
            yield

    def check(self, *consumers: str) -> None:
        """Check that these consumers, and nobody else, hold one VCPU each."""
        with contextlib.closing(SQLBackend.open(self.url)) as backend:
            assert ledger_state(backend).used("host0", "VCPU") == len(consumers)
            assert all(backend.consumer(name) for name in consumers)
        assert problems(self.admin.render_as_string(hide_password=False)) == []


@pytest.fixture(scope="module", params=["postgresql", "mysql"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, PrivateServer]]:
    """A server, once for each kind."""
    try:
        with private_server(request.param) as made:
            yield request.param, made
    except Missing as error:
        if databases.required():
            raise
        pytest.skip(str(error))


@pytest.fixture
def lab(server: tuple[str, PrivateServer]) -> Iterator[Lab]:
    """A ledger on a server that is up."""
    made = Lab(*server)
    yield made
    drop_user = {"postgresql": "DROP ROLE app", "mysql": "DROP USER app"}
    force = {"postgresql": " WITH (FORCE)", "mysql": ""}
    ask_all(made.server.admin, f"DROP DATABASE lab{force[made.kind]}", drop_user[made.kind])


def in_background(work: Callable[[], Any]) -> Future[Any]:
    """Run something in a thread."""
    pool = ThreadPoolExecutor(1)
    done = pool.submit(work)
    pool.shutdown(wait=False)
    return done


def told(error: BaseException) -> str:
    """Return all that an error and those below it say."""
    said = f"{error} {error!r}"
    below = error.__cause__ or error.__context__
    return said if below is None else f"{said} {told(below)}"


# --- too many clients ---

_FULL = {
    "postgresql": 'too many connections for role "app"',
    "mysql": "max_user_connections",
}


def test_a_claim_waits_until_an_account_has_a_connection_to_spare(lab: Lab) -> None:
    backend = SQLBackend.open(lab.url)
    backend._database._engine.dispose()  # who was idle for long has none left
    lab.connections(1)
    with lab.held():
        claimed = in_background(lambda: backend.claim(Operation(), lab.order("job")))
        time.sleep(4)  # longer than twenty tries take
        assert not claimed.done()
    assert claimed.result(30).consumer == "job"
    lab.connections(0)
    backend.close()
    lab.check("job")


def test_an_account_without_a_connection_to_spare_is_named_in_the_end(lab: Lab) -> None:
    backend = SQLBackend.open(lab.url, retries=SOON)
    backend._database._engine.dispose()
    lab.connections(1)
    with lab.held():
        for ask in (
            lambda: backend.claim(Operation(), lab.order("job")),
            lambda: backend.consumer("job"),
            lambda: SQLBackend.open(lab.url, retries=SOON),
        ):
            with raises_code("DatabaseUnavailable", match=_FULL[lab.kind]) as refused:
                ask()
            assert "pass-secret" not in told(refused.value)
    lab.connections(0)
    backend.close()
    lab.check()


def test_more_clients_than_a_server_has_room_for_take_turns(lab: Lab) -> None:
    """Twelve processes' worth of clients, each of which connects anew for each claim."""
    lab.connections(3)
    begun = threading.Barrier(12)

    def work(client: int) -> None:
        backend = SQLBackend.open(lab.url)
        for number in range(4):
            if not number:
                backend._database._engine.dispose()
                begun.wait(30)
            backend.claim(Operation(), lab.order(f"job-{client}-{number}"))
            backend._database._engine.dispose()
        backend.close()

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(work, range(12)))
    lab.connections(0)
    lab.check(*(f"job-{client}-{number}" for client in range(12) for number in range(4)))


# --- shut down, and brought up again ---

#: How a server of each kind is shut down.
_HOW = [
    pytest.param("postgresql", signal.SIGINT, id="postgresql-fast"),
    pytest.param("postgresql", signal.SIGTERM, id="postgresql-smart"),
    pytest.param("mysql", signal.SIGTERM, id="mysql"),
]


@pytest.mark.parametrize(("server", "how"), _HOW, indirect=["server"])
def test_of_a_server_that_is_shut_down_nothing_is_lost_or_claimed_twice(
    lab: Lab, how: signal.Signals
) -> None:
    """Writers repeat what failed, by the id of the operation; it happens once."""
    over = threading.Event()
    done: list[list[str]] = [[] for _ in range(4)]
    seen: set[str] = set()

    def write(client: int) -> None:
        backend = SQLBackend.open(lab.url)
        for number in range(20):
            name, operation = f"job-{client}-{number}", Operation()
            while True:
                try:
                    held = backend.claim(operation, lab.order(name))
                    break
                except exceptions.LedgerError as error:
                    seen.add(error.code)
                    assert "pass-secret" not in told(error)
                    time.sleep(0.05)
            assert held.consumer == name
            done[client].append(name)
            if number == 5:
                over.wait(60)  # all of them are open when it goes
        backend.close()

    with ThreadPoolExecutor(4) as pool:
        working = [pool.submit(write, client) for client in range(4)]
        while any(len(one) < 6 for one in done):
            assert not any(one.done() for one in working), [one.exception() for one in working]
            time.sleep(0.01)
        over.set()
        lab.server.tell(how)
        if how == signal.SIGTERM and lab.kind == "postgresql":  # it waits for those there are
            time.sleep(0.5)
            lab.server.tell(signal.SIGINT)
        lab.server.wait()
        time.sleep(0.3)
        lab.server.start()
        for one in working:
            one.result(60)
    assert seen <= {"LostConnection", "DatabaseUnavailable"}
    lab.check(*(name for names in done for name in names))


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_a_claim_waits_while_a_server_shuts_down(lab: Lab) -> None:
    """Smartly: who is there may stay, who comes is told that it shuts down."""
    backend = SQLBackend.open(lab.url, retries=SOON)
    with lab.held():
        backend._database._engine.dispose()
        lab.server.tell(signal.SIGTERM)
        time.sleep(0.2)
        with raises_code("DatabaseUnavailable", match="is shutting down") as refused:
            backend.claim(Operation(), lab.order("job"))
        assert "pass-secret" not in told(refused.value)
    lab.server.wait()
    lab.server.start()
    backend.claim(Operation(), lab.order("job"))
    backend.close()
    lab.check("job")


# --- starting up ---


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_a_claim_waits_until_a_server_has_recovered(lab: Lab) -> None:
    """It reads its log first, here from an archive that is slow."""
    hasty, patient = (SQLBackend.open(lab.url, retries=how) for how in (SOON, RetryPolicy()))
    lab.server.kill()
    lab.server.put("recovery.signal")
    lab.server.put(
        "postgresql.auto.conf", "restore_command = 'sleep 3; false'\nhot_standby = off\n"
    )
    lab.server.begin()
    refused = set()
    until = time.monotonic() + 30
    while "database system is" not in str(refused) and time.monotonic() < until:
        with pytest.raises(exceptions.LedgerError) as error:
            hasty.claim(Operation(), lab.order("hasty"))
        refused.add((type(error.value), str(error.value)))
        assert "pass-secret" not in told(error.value)
    assert "starting up" in str(refused) or "accepting connections" in str(refused), refused
    patient.claim(Operation(), lab.order("patient"))
    for backend in (hasty, patient):
        backend.close()
    lab.server.put("postgresql.auto.conf")
    lab.check("patient")
