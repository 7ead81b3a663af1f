"""Times are judged by the clock of the ledger's database, never by that of a client."""

from __future__ import annotations

import ast
import datetime
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import resource_objects as ro
from resource_objects import clock
from resource_objects.backends.sql import feed
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.ledger import new_operation
from resource_objects.providers.orders import Operation
from resource_objects.testing.refusals import raises_code
from tests import conftest, databases

HOUR, DAY = datetime.timedelta(hours=1), datetime.timedelta(days=1)
#: how far the clock of a client is off, either way
SHIFT = 3 * HOUR
KEPT = datetime.timedelta(days=7)

upgrade = SQLBackend.upgrade_database
true_now, true_milliseconds = clock.now, clock.milliseconds


class Client:
    """The clock of this process, which the tests set."""

    ahead = datetime.timedelta(0)

    def now(self) -> datetime.datetime:
        return true_now() + self.ahead

    def milliseconds(self) -> int:
        return true_milliseconds() + int(self.ahead.total_seconds() * 1000)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    monkeypatch.setattr(clock, "now", made.now)
    monkeypatch.setattr(clock, "milliseconds", made.milliseconds)
    return made


@pytest.fixture(params=["postgresql", "mysql"])
def database_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    conftest.require_server(kind)
    return kind


@pytest.fixture
def server(prepared_database: Callable[[databases.Prepare], str]) -> Iterator[ro.Ledger]:
    """A ledger on a server, whose clock the tests do not set, with a host."""
    with ro.connect(prepared_database(upgrade)) as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=64"))
        yield ledger


@pytest.fixture(params=["memory", "sqlite"])
def embedded(
    request: pytest.FixtureRequest, sqlite_url: Callable[[str], str]
) -> Iterator[ro.Ledger]:
    """A ledger on this machine, by whose clock it goes, with a host."""
    url = "memory://" if request.param == "memory" else sqlite_url("ledger.db")
    with ro.connect(url) as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=64"))
        yield ledger


@pytest.mark.parametrize("ahead", [SHIFT, -SHIFT])
def test_claims_expire_by_the_clock_of_the_server(
    server: ro.Ledger, client: Client, ahead: datetime.timedelta
) -> None:
    server.claim("by-a-right-clock", {"host0": "VCPU=1"}, expires_in=HOUR)
    server.claim("over", {"host0": "VCPU=1"}, expires_in=datetime.timedelta(microseconds=1))
    client.ahead = ahead
    claims = [server.claim("job", {"host0": "VCPU=1"}, expires_in=HOUR)]
    claims += server.claim_all({"gang": {"host0": "VCPU=1"}}, expires_in=HOUR)
    claims.append(server.renew("job", expires_in=2 * HOUR))
    for claim, hours in zip(claims, (1, 1, 2), strict=True):
        assert claim.expires_at is not None
        assert abs(claim.expires_at - true_now() - hours * HOUR) < HOUR / 60
        assert abs(claim.created_at - true_now()) < HOUR / 60
    assert [claim.consumer for claim in server.expired()] == ["over"]
    assert [finding.consumer for finding in server.audit()] == ["over"]
    assert [claim.consumer for claim in server.release_expired()] == ["over"]


@pytest.mark.parametrize("ahead", [SHIFT, -SHIFT])
def test_ages_are_those_of_the_server(
    server: ro.Ledger, client: Client, ahead: datetime.timedelta
) -> None:
    server.claim("job", {"host0": "VCPU=1"})
    server.sync(ro.Provider("nfs", "DISK_GB=9", traits=["MISC_SHARES_VIA_AGGREGATE"]))
    server.pools.report("nfs", "DISK_GB=9")
    client.ahead = ahead
    assert not list(server.consumers(older_than=HOUR))
    assert [one.name for one in server.consumers(younger_than=HOUR)] == ["job"]
    assert not list(server.pools.list(older_than=HOUR))
    assert not server.audit(older_than=HOUR)
    [pool] = server.pools.list()
    assert pool.age is not None and abs(pool.age) < HOUR / 60


def test_nothing_younger_is_forgotten_by_a_client_that_is_ahead(
    server: ro.Ledger, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation, cursor = new_operation(), server.feed.cursor()
    first = server.claim("job", {"host0": "VCPU=1"}, operation=operation)
    server.feed.set_retention(2 * HOUR)
    client.ahead = SHIFT
    monkeypatch.setattr(feed, "EVERY", 1)
    for _ in range(5):  # who writes forgets
        server.adjust("other", {"host0": "VCPU=1"})
        server.release("other")
    assert len(server.feed.changes(cursor, limit=1)) == 1
    assert server.claim("job", {"host0": "VCPU=1"}, operation=operation) == first


@pytest.mark.parametrize("ahead", [SHIFT, -SHIFT])
def test_what_was_forgotten_is_never_done_again(ahead: datetime.timedelta) -> None:
    """An id that looks younger than it is, is kept for as much longer."""
    done = true_now()
    made = int((done + ahead).timestamp() * 1000)
    operation = Operation(f"{made >> 16:08x}-{made & 0xFFFF:04x}-7000-8000-000000000000")
    forgotten = operation.kept_from(done) + KEPT
    operation.require_known(done + HOUR, KEPT)
    with raises_code("OperationExpired"):
        operation.require_known(forgotten, KEPT)


def _forgets_by_the_id(ledger: ro.Ledger, client: Client) -> None:
    client.ahead = SHIFT
    operation = new_operation()
    client.ahead = datetime.timedelta(0)
    ledger.claim("job", {"host0": "VCPU=1"}, operation=operation)
    ledger.claim("other", {"host0": "VCPU=1"})  # the last write of a shard always stays
    for later, is_kept in ((HOUR, True), (SHIFT + HOUR, False)):
        ledger.backend.prune(ledger.backend.now() + later)
        assert (ledger.backend.outcome(Operation(operation)) is not None) == is_kept


def test_a_server_keeps_an_operation_until_its_id_is_old(server: ro.Ledger, client: Client) -> None:
    _forgets_by_the_id(server, client)


def test_an_embedded_ledger_keeps_an_operation_until_its_id_is_old(
    embedded: ro.Ledger, client: Client
) -> None:
    _forgets_by_the_id(embedded, client)


def test_an_embedded_ledger_goes_by_the_clock_of_its_machine(
    embedded: ro.Ledger, client: Client
) -> None:
    embedded.claim("job", {"host0": "VCPU=1"}, expires_in=HOUR)
    assert not list(embedded.expired())
    client.ahead = SHIFT
    assert [claim.consumer for claim in embedded.expired()] == ["job"]
    assert [one.name for one in embedded.consumers(older_than=2 * HOUR)] == ["job"]
    assert embedded.backend.prune(embedded.backend.now() - 2 * HOUR).operations


@pytest.mark.parametrize(
    ("milliseconds", "is_told"), [(253402300799999, True), (253402300800000, False)]
)
def test_an_operation_of_after_the_year_9999_does_not_say_its_time(
    milliseconds: int, is_told: bool
) -> None:
    text = f"{milliseconds:012x}"
    id = f"{text[:8]}-{text[8:]}-7000-8000-000000000000"
    assert (Operation(id).made_at is not None) == is_told
    with ro.connect("memory://") as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=4"))
        if not is_told:  # it is done once, as one of any other version is
            for _ in range(2):
                ledger.claim("job", {"host0": "VCPU=1"}, operation=id)
            assert str(ledger.get_claim("job").amounts) == "VCPU=1"


def test_the_clock_of_the_machine_is_read_in_one_place() -> None:
    package = Path(ro.__file__).parent
    readers = {"now", "utcnow", "today", "time", "time_ns"}
    found = [
        str(path.relative_to(package))
        for path in sorted(package.rglob("*.py"))
        if "testing" not in path.parts
        if any(f".{name}" in (text := path.read_text(encoding="utf-8")) for name in readers)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
        and node.attr in readers
        and ast.unparse(node.value) in ("datetime", "datetime.datetime", "datetime.date", "time")
    ]
    assert set(found) == {"clock.py"}, found
