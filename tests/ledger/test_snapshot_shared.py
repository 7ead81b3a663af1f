"""Many ask one ledger for snapshots, and many write: each sees all that was written before."""

from __future__ import annotations

import contextlib
import datetime
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.backends.memory import MemoryBackend
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers.backend import Changed, Choose
from resource_objects.providers.columns import Columns
from resource_objects.providers.feed import Cursor
from resource_objects.search import Snapshot
from resource_objects.testing.conformance.races import processes
from resource_objects.testing.refusals import raises_code
from tests import databases
from tests.ledger.fleet_pictures import picture_of
from tests.support.patience import PATIENCE


class Watched(MemoryBackend):
    """Writes down what it is asked, and does what a test has it do then."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.before: dict[str, Callable[[], None]] = {}

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        self.before.pop(what, lambda: None)()

    def cursor(self) -> Cursor:
        self._ask("cursor")
        return super().cursor()

    def read(self, *trees: str, allocations: bool = True) -> Columns:
        self._ask("read")
        return super().read(*trees, allocations=allocations)

    def read_changed(self, after: Cursor, most: int, choose: Choose) -> Changed:
        self._ask("read_changed")
        return super().read_changed(after, most, choose)


def hosts(ledger: ro.Ledger, count: int = 3) -> ro.Ledger:
    """Declare some hosts."""
    ledger.sync(*(ro.Provider(f"host{n}", "VCPU=1000") for n in range(count)))
    return ledger


def shown(snapshot: Snapshot) -> dict[str, int]:
    """Return how much each consumer holds, over all hosts."""
    found: dict[str, int] = {}
    for _, (_, consumer, amount) in snapshot._fleet.allocations.all():
        found[consumer] = found.get(consumer, 0) + amount
    return found


# --- what it costs --------------------------------------------------------------------------------


def test_nothing_new_costs_one_look() -> None:
    backend = Watched()
    ledger = hosts(ro.Ledger(backend))
    ledger.snapshot()
    backend.asked.clear()
    for _ in range(3):
        ledger.snapshot()
    assert backend.asked == ["cursor"] * 3
    ledger.claim("job", {"host0": "VCPU=1"})
    backend.asked.clear()
    ledger.snapshot()
    assert backend.asked == ["cursor", "read_changed"]


def test_nothing_new_costs_one_statement(tmp_path: Path) -> None:
    """Whatever the ledger holds, the heads of the feed are read and nothing else."""
    ledger = hosts(ro.connect(f"sqlite:///{tmp_path}/ledger.db"))
    first = ledger.snapshot()
    backend = ledger.backend
    assert isinstance(backend, SQLBackend)
    said: list[str] = []
    with backend._database.reading() as connection:
        driver = connection.connection.driver_connection
    assert driver is not None
    driver.set_trace_callback(said.append)
    assert ledger.snapshot() is first
    driver.set_trace_callback(None)
    assert len([text for text in said if text.startswith("SELECT")]) == 1
    assert "change_heads" in " ".join(said)
    ledger.close()


# --- when it cannot go on -------------------------------------------------------------------------


def test_a_closed_ledger_has_no_snapshot(ledger: ro.Ledger) -> None:
    hosts(ledger).snapshot()
    ledger.close()
    for _ in range(2):
        with raises_code("LedgerClosed"):
            ledger.snapshot()
        with raises_code("LedgerClosed"):
            ledger.snapshot(at="host0")
    assert ledger._snapshots._last is None, "nothing of it stays in memory"


def test_a_closed_ledger_never_had_one(ledger: ro.Ledger) -> None:
    ledger.close()
    with raises_code("LedgerClosed"):
        ledger.snapshot()


def test_a_snapshot_outlives_its_ledger(ledger: ro.Ledger) -> None:
    found = hosts(ledger).snapshot()
    ledger.close()
    assert found.free("VCPU") == 3000


def test_a_feed_that_has_forgotten_is_read_anew(ledger: ro.Ledger) -> None:
    hosts(ledger).snapshot()
    ledger.claim("job", {"host0": "VCPU=1"})
    ledger.adjust("job", {"host0": "VCPU=1"})
    time.sleep(0.002)
    ledger.backend.prune(datetime.datetime.now(datetime.UTC))
    found = ledger.snapshot()
    assert found.refreshed.is_full and found.used("VCPU") == 2
    ledger.claim("job-2", {"host1": "VCPU=1"})
    assert ledger.snapshot().refreshed.way == "patched"


def test_a_database_that_fails_leaves_the_snapshot_that_was() -> None:
    backend = Watched()
    ledger = hosts(ro.Ledger(backend))
    first = ledger.snapshot()
    ledger.claim("job", {"host0": "VCPU=1"})

    def fail() -> None:
        raise exceptions.DatabaseError("busy", "ledger", "of a test")

    for what in ("cursor", "read_changed"):
        backend.before[what] = fail
        with raises_code("DatabaseBusy"):
            ledger.snapshot()
    assert first.used("VCPU") == 0
    found = ledger.snapshot()
    assert (found.refreshed.way, found.used("VCPU")) == ("patched", 1)


def test_a_ledger_that_was_put_back_is_read_anew() -> None:
    """Its feed is behind what the snapshot shows, which so is no more."""
    ledger, backup = ro.Ledger(MemoryBackend()), ro.Ledger(MemoryBackend())
    hosts(ledger).claim("job", {"host0": "VCPU=1"})
    hosts(backup)
    assert ledger.snapshot().used("VCPU") == 1
    ledger._context._backend = backup.backend
    found = ledger.snapshot()
    assert found.refreshed.is_full and found.used("VCPU") == 0


class Timeless(MemoryBackend):
    """A backend whose columns do not say when they were read."""

    def read(self, *trees: str, allocations: bool = True) -> Columns:
        found = super().read(*trees, allocations=allocations)
        return Columns(found.providers, found.inventories)


def test_columns_that_do_not_say_when_are_read_each_time() -> None:
    ledger = hosts(ro.Ledger(Timeless()))
    first = ledger.snapshot()
    ledger.claim("job", {"host0": "VCPU=1"})
    assert first.cursor is None
    assert ledger.snapshot().used("VCPU") == 1


# --- others write meanwhile -----------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["cursor", "read_changed", "read"])
def test_who_writes_while_it_is_made(moment: str) -> None:
    """Whenever it is, the snapshot is of one moment, and the next one shows it."""
    backend = Watched()
    ledger, other = hosts(ro.Ledger(backend)), ro.Ledger(backend)
    ledger.snapshot()
    ledger.claim("before", {"host0": "VCPU=1"})

    def write() -> None:
        other.claim("meanwhile", {"host0": "VCPU=1", "host1": "VCPU=1"})
        other.sync(ro.Provider("late", "VCPU=5"))

    backend.before[moment] = write
    found = ledger.snapshot()
    assert shown(found)["before"] == 1
    assert shown(found).get("meanwhile", 0) in (0, 2)
    assert (found.capacity("VCPU") == 3005) is (found.hosts[-1] == "late")
    backend.before.clear()
    if "meanwhile" not in shown(found):
        write()
    assert shown(ledger.snapshot()) == {"before": 1, "meanwhile": 2}
    assert picture_of(ledger.snapshot()) == picture_of(Snapshot(backend.read()))


@pytest.mark.law(2)
@pytest.mark.parametrize("kind", ["memory", *databases.KINDS])
def test_many_threads_see_what_was_written_before(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if kind == "memory":
        backend = MemoryBackend()
        ledger, other = ro.Ledger(backend), ro.Ledger(backend)
    else:
        url = f"sqlite:///{tmp_path}/ledger.db"
        if kind != "sqlite":
            url = _server(kind, request)
        ledger, other = ro.connect(url), ro.connect(url)
    with ledger, other:
        hosts(ledger, 6)
        _race(ledger, other)


def _server(kind: str, request: pytest.FixtureRequest) -> str:
    from tests.conftest import require_server

    require_server(kind)
    scratch: databases.Scratch = request.getfixturevalue("scratch")
    url = scratch.create(kind)
    request.addfinalizer(lambda: scratch.drop(url))
    SQLBackend.upgrade_database(url)
    return url


def _race(ledger: ro.Ledger, other: ro.Ledger) -> None:
    """Write and look from many threads; each sees what it has written itself, and whole."""
    done = threading.Event()

    def work(number: int) -> None:
        of = other if number % 2 else ledger
        for turn in range(8):
            name = f"job-{number}-{turn}"
            of.claim(name, {f"host{number}": "VCPU=1", f"host{(number + turn) % 6}": "VCPU=1"})
            assert name in shown(ledger.snapshot())
            if turn % 2:
                of.release(name)
                assert name not in shown(ledger.snapshot())
            if turn == 5:
                of.change(f"host{number}", traits=["CUSTOM_A"])
                assert number in ledger.snapshot()._fleet.traits["CUSTOM_A"].tolist()

    def look() -> None:
        last: Snapshot | None = None
        while not done.is_set():
            found = ledger.snapshot()
            assert found.used("VCPU") == sum(shown(found).values())
            assert last is None or _is_later(found, last)
            last = found

    with ThreadPoolExecutor(8) as pool:
        looking = [pool.submit(look) for _ in range(2)]
        try:
            for future in [pool.submit(work, number) for number in range(6)]:
                future.result()
        finally:
            done.set()
        for future in looking:
            future.result()
    assert picture_of(ledger.snapshot()) == picture_of(Snapshot(ledger.backend.read()))


def _is_later(one: Snapshot, other: Snapshot) -> bool:
    """Return whether a snapshot shows all that another one does."""
    assert one.cursor is not None and other.cursor is not None
    return all(a >= b for a, b in zip(one.cursor.heads, other.cursor.heads, strict=True))


def test_one_thread_reads_for_all_who_wait() -> None:
    backend = Watched()
    ledger = hosts(ro.Ledger(backend))
    ledger.snapshot()
    ledger.claim("job", {"host0": "VCPU=1"})
    backend.asked.clear()
    waiting = threading.Barrier(4)
    backend.before["read_changed"] = lambda: time.sleep(0.2)  # while the others come and wait

    def ask() -> Snapshot:
        waiting.wait()
        return ledger.snapshot()

    with ThreadPoolExecutor(4) as pool:
        found = [future.result() for future in [pool.submit(ask) for _ in range(4)]]
    assert len(set(map(id, found))) == 1
    assert backend.asked.count("read_changed") <= 2  # one who came before all others waited


# --- other processes ------------------------------------------------------------------------------


def _write_what_is_told(url: str, told: Connection) -> None:
    with ro.connect(url) as ledger, contextlib.suppress(EOFError):
        while True:
            name, host = told.recv()
            if name == "new":
                ledger.sync(ro.Provider(host, "VCPU=7"))
            else:
                ledger.claim(name, {host: "VCPU=2"})
            told.send("done")


@pytest.mark.law(2)
def test_what_another_process_wrote_is_seen(
    prepared_database: Callable[[databases.Prepare], str],
) -> None:
    url = prepared_database(SQLBackend.upgrade_database)
    with ro.connect(url) as ledger:
        hosts(ledger).snapshot()
        telling, told = Pipe()
        writer = processes().Process(target=_write_what_is_told, args=(url, told), daemon=True)
        writer.start()
        told.close()

        def tell(*what: str) -> Snapshot:
            telling.send(what)
            assert telling.recv() == "done"
            return ledger.snapshot()

        with telling:
            for number in range(1, 5):
                found = tell(f"job-{number}", f"host{number % 3}")
                assert found.used("VCPU") == 2 * number
                assert found.refreshed.way == "patched"
            assert tell("new", "host9").refreshed.way == "replaced"
            assert ledger.snapshot().capacity("VCPU") == 3007
        writer.join()
        assert writer.exitcode == 0


def _fork_while_a_snapshot_is_made(url: str) -> None:
    with ro.connect(url) as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=8"))
        ledger.snapshot()
        ledger.claim("job", {"host0": "VCPU=1"})
        with ledger._snapshots._lock:  # as by another thread that makes one
            child = os.fork()
            if not child:
                code = 2
                try:
                    code = int(ledger.snapshot().used("VCPU") != 1)
                finally:
                    os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert ledger.snapshot().used("VCPU") == 1


def test_a_child_does_not_wait_for_who_stayed_in_the_parent(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    process = processes().Process(target=_fork_while_a_snapshot_is_made, args=(url,), daemon=True)
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0
