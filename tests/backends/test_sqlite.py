"""SQLite files keep the contract, and what is particular about them."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import shutil
import sqlite3
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.stateful
import pytest

import resource_objects as ro
from resource_objects.backends.retries import RetryPolicy
from resource_objects.backends.sql import engine
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.testing.conformance import BackendConformance, state_machine
from resource_objects.testing.conformance.races import define_and_claim, on_backend, together
from resource_objects.testing.conformance.suite import claim, define, host, ledger_state, release
from resource_objects.testing.refusals import raises_code
from tests.support.checker import problems
from tests.support.lengths import examples


class TestSQLiteBackend(BackendConformance):
    """The conformance kit."""

    backend_class = SQLBackend
    backend_name = "sqlite"

    @pytest.fixture
    def url(self, sqlite_url: Callable[[str], str]) -> Iterator[str]:
        url = sqlite_url("ledger.db")
        yield url
        assert problems(url, shrunk=True) == []

    @pytest.fixture
    def another_url(self, sqlite_url: Callable[[str], str]) -> str:
        return sqlite_url("another.db")

    @pytest.fixture
    def new_url(self, tmp_path: Path) -> Iterator[str]:
        url = f"sqlite:///{tmp_path}/new.db"
        yield url
        assert problems(url) == []


@pytest.mark.drawn
def test_random_steps_agree_with_the_model(sqlite_url: Callable[[str], str]) -> None:
    numbers = itertools.count()
    machine = state_machine(lambda: SQLBackend.open(sqlite_url(f"{next(numbers)}.db")))
    settings = hypothesis.settings(max_examples=examples(20), stateful_step_count=25)
    hypothesis.stateful.run_state_machine_as_test(machine, settings=settings)


# --- making a file ---


def test_opening_makes_the_file_and_its_tables(tmp_path: Path) -> None:
    backend = SQLBackend.open(f"sqlite:///{tmp_path}/new ledger.db")
    define(backend, host())
    backend.close()
    assert [path.name for path in tmp_path.iterdir()] == ["new ledger.db"]


def test_reading_creates_no_file(tmp_path: Path) -> None:
    with ro.connect(f"sqlite:///{tmp_path}/labb.db") as ledger:
        assert list(ledger.providers()) == []
        assert "DISK_GB" in {one.name for one in ledger.names.classes.list()}
        assert not ledger.snapshot().candidates("VCPU=1")
        before = ledger.feed.cursor()
        assert not ledger.audit()
        with raises_code("ProviderNotFound"):
            ledger.claim("job", {"host0": "VCPU=1"})
        assert _files(tmp_path) == {}
        ledger.sync(ro.Provider("host0", "VCPU=8"))
        assert (tmp_path / "labb.db").is_file()
        assert ledger.claim("job", ledger.snapshot().candidates("VCPU=1"))
        changes = ledger.feed.changes(before)
        assert [change.subject for change in changes] == ["host0", "job"]


def test_ledgers_that_found_no_file_share_the_one_that_one_of_them_creates(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with ro.connect(url) as one, ro.connect(url) as other, ro.connect(url) as third:
        assert [len(list(ledger.providers())) for ledger in (one, other, third)] == [0, 0, 0]
        snapshot = other.snapshot()
        together(lambda n: (one, other)[n % 2].sync(ro.Provider(f"host{n}", "VCPU=1")))
        for ledger in (one, other, third):
            assert len(list(ledger.providers())) == 6
        assert not snapshot.candidates("VCPU=1")
        assert len(other.snapshot().candidates("VCPU=1", limit=None)) == 6
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.db"]


def test_a_file_that_is_created_is_upgraded_and_one_that_is_foreign_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    with ro.connect(f"sqlite:///{path}") as ledger:
        other = sqlite3.connect(path)
        other.execute("CREATE TABLE resource_providers (mine INTEGER)")
        other.close()
        before = _files(tmp_path)
        for act in (lambda: list(ledger.providers()), lambda: ledger.sync(ro.Provider("host0"))):
            with raises_code("DatabaseUnavailable"):
                act()
        assert _files(tmp_path) == before


def test_a_directory_that_may_not_be_searched_is_an_unavailable_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stat(path: Path, **options: Any) -> os.stat_result:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "stat", stat)
    path = f"{tmp_path}/ledger.db"
    expected = f"^{path} cannot be opened: Permission denied$"
    for act in (SQLBackend.open, SQLBackend.upgrade_database, SQLBackend.database_status):
        with raises_code("DatabaseUnavailable", match=expected):
            act(f"sqlite:///{path}")


@pytest.mark.parametrize("name", ["directory", "pipe"])
def test_what_is_no_regular_file_is_an_unavailable_database(tmp_path: Path, name: str) -> None:
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with raises_code("DatabaseUnavailable", match=r"directory$|regular file$"):
        SQLBackend.open(f"sqlite:///{tmp_path}/{name}")


def test_the_file_is_the_one_meant_when_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    backend = SQLBackend.open("sqlite:///lab.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    outcomes = together(lambda n: define(backend, host(f"host{n}")))
    assert all(isinstance(outcome, dict) for outcome in outcomes)
    backend.close()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["elsewhere", "lab.db"]


def test_many_threads_make_it_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    assert together(lambda n: on_backend(define_and_claim, SQLBackend, url, n)) == [None] * 6


@pytest.mark.parametrize(
    "name", ["missing/ledger.db", "file/ledger.db", "folder", "not-a-database", "other.db"]
)
def test_what_cannot_be_opened_is_named_and_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("a file")
    (tmp_path / "not-a-database").write_text("x" * 5000)
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE resource_providers (mine INTEGER)")
    other.close()
    before = _files(tmp_path)
    with raises_code("DatabaseUnavailable") as refused:
        SQLBackend.open(f"sqlite:///{tmp_path}/{name}")
    assert refused.value.name == f"{tmp_path}/{name}"
    assert _files(tmp_path) == before


@pytest.mark.parametrize("share", [0.001, 0.2, 0.6, 0.95])
def test_a_file_cut_short_is_no_ledger(
    sqlite_url: Callable[[str], str], tmp_path: Path, share: float
) -> None:
    url = sqlite_url("ledger.db")
    path = tmp_path / "ledger.db"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])

    def use() -> None:
        backend = SQLBackend.open(url)
        try:
            define(backend, host())
            ledger_state(backend)
        finally:
            backend.close()

    refusals = ("DatabaseDamaged", "DatabaseUnavailable")
    with raises_code(*refusals, match=r"malformed|not a database"):
        use()


def _files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


# --- how connections are set up ---


@pytest.mark.parametrize(("query", "level"), [("", 2), ("?synchronous=normal", 1)])
def test_pragmas_are_as_documented(
    sqlite_url: Callable[[str], str], query: str, level: int
) -> None:
    backend = SQLBackend.open(sqlite_url("ledger.db") + query)
    with backend._database.reading() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    backend.close()
    assert found == {
        "journal_mode": "wal",
        "synchronous": level,
        "foreign_keys": 1,
        "busy_timeout": 30_000,
    }


@pytest.mark.law(11)
def test_reading_does_not_change_a_byte(sqlite_url: Callable[[str], str], tmp_path: Path) -> None:
    url = sqlite_url("ledger.db")
    backend = SQLBackend.open(url)
    names = define(backend, host())
    claim(backend, "job", {names["host0"]: "VCPU=1"})
    before = {name: text for name, text in _files(tmp_path).items() if "-shm" not in name}
    backend.read()
    backend.read("host0")
    backend.consumer("job")
    backend.uuids(["host0"])
    backend.upgrade()
    assert {name: text for name, text in _files(tmp_path).items() if "-shm" not in name} == before
    backend.close()
    before = _files(tmp_path)
    SQLBackend.open(url).close()
    assert _files(tmp_path) == before


def test_the_statements_of_a_claim_do_not_grow_with_its_rows(
    nobody_forgets: None, sqlite_url: Callable[[str], str]
) -> None:
    backend = SQLBackend.open(sqlite_url("ledger.db"))
    names = define(backend, *(host(f"host{n}") for n in range(60)))
    claim(backend, "first", {names["host0"]: "VCPU=1,MEMORY_MB=1"})  # which looks classes up
    counts = []
    for size in (1, 60):
        wanted = {names[f"host{n}"]: "VCPU=1,MEMORY_MB=1" for n in range(size)}
        said: list[str] = []
        with backend._database.reading() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
        driver.set_trace_callback(said.append)
        claim(backend, f"job-{size}", wanted)
        release(backend, f"job-{size}")
        driver.set_trace_callback(None)
        # SQLite traces a statement once more for each row that a foreign key looks after, and one
        # prepared INSERT for each row that it is run with
        counts.append(len({text.partition(" VALUES ")[0] for text in said}))
    backend.close()
    assert counts[0] == counts[1] <= 20


# --- forks, locks ---


def _in_a_fork(work: Callable[[], None]) -> int:
    """Run ``work`` in a forked child; return its exit code, 0 if it raised nothing."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_makes_its_own_connections(sqlite_url: Callable[[str], str]) -> None:
    url = sqlite_url("ledger.db")
    backend = SQLBackend.open(url)
    names = define(backend, host())
    mine = backend._database._engine.pool

    def child() -> None:
        assert backend._database._engine.pool is not mine
        claim(backend, f"child-{os.getpid()}", {names["host0"]: "VCPU=1"})

    with backend._database.writing():  # a lock the child must not believe it holds
        pass
    assert [_in_a_fork(child) for _ in range(3)] == [0] * 3
    claim(backend, "parent", {names["host0"]: "VCPU=1"})
    assert len(ledger_state(backend).allocations) == 4
    backend.close()
    assert problems(url) == []


def test_a_writer_waits_for_another_and_then_says_busy(
    sqlite_url: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "PATIENCE", 0.1)
    backend = SQLBackend.open(sqlite_url("ledger.db"), retries=RetryPolicy(tries=2))
    names = define(backend, host())
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with raises_code("DatabaseBusy"):
        claim(backend, "job", {names["host0"]: "VCPU=1"})
    assert backend.consumer("job") is None  # readers do not wait
    other.execute("ROLLBACK")
    other.close()
    claim(backend, "job", {names["host0"]: "VCPU=1"})
    backend.close()


# --- files that go away under an open ledger ---


def _delete(path: Path) -> None:
    path.unlink()


def _replace(path: Path) -> None:
    shutil.copy(path, f"{path}.backup")
    os.replace(f"{path}.backup", path)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _copy_a_backup_over_it(path: Path) -> None:
    for ending in ("-wal", "-shm"):
        Path(f"{path}{ending}").unlink()
    path.write_bytes(path.read_bytes())


@pytest.mark.law(4)
@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("spoil", [_delete, _replace, _empty, _copy_a_backup_over_it])
def test_a_file_that_goes_away_under_an_open_ledger_is_noticed(
    sqlite_url: Callable[[str], str], tmp_path: Path, is_new: bool, spoil: Callable[[Path], None]
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db" if is_new else sqlite_url("ledger.db")
    backend = SQLBackend.open(url)
    names = define(backend, host())
    claim(backend, "job-1", {names["host0"]: "VCPU=1"})
    spoil(tmp_path / "ledger.db")
    with raises_code("DatabaseReplaced") as refused:
        claim(backend, "job-2", {names["host0"]: "VCPU=1"})
    assert str(tmp_path / "ledger.db") in str(refused.value)
    with raises_code("DatabaseReplaced"):
        backend.consumer("job-1")
    backend.close()


def test_a_log_that_the_last_of_others_removed_is_none_that_went_away(
    sqlite_url: Callable[[str], str],
) -> None:
    url = sqlite_url("ledger.db")
    backend, other = SQLBackend.open(url), SQLBackend.open(url)
    names = define(backend, host())
    for number in range(3):
        claim(backend, f"job-{number}", {names["host0"]: "VCPU=1"})
        backend._database._engine.dispose()
        claim(other, f"other-{number}", {names["host0"]: "VCPU=1"})
        other._database._engine.dispose()
    assert len(ledger_state(backend).allocations) == 6
    backend.close()
    other.close()


def test_a_full_disk_is_said_and_nothing_is_done(sqlite_url: Callable[[str], str]) -> None:
    url = sqlite_url("ledger.db")
    backend = SQLBackend.open(url)
    with backend._database.reading() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with raises_code("DatabaseFull", match="is full"):
        define(backend, *(host(f"host{n}") for n in range(500)))
    backend.close()
    assert problems(url) == []


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        backend = SQLBackend.open(f"sqlite:///{tmp_path}/ledger.db")
        define(backend, host())
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    backend.close()


@pytest.mark.parametrize(
    ("mounted", "kind"),
    [
        ("/ {folder}", "nfs4"),
        ("/ {folder}", "fuse.sshfs"),
        ("/ {folder}/shared\\040files", "cifs"),
    ],
)
def test_a_network_file_system_is_refused_by_name_unless_the_url_insists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounted: str, kind: str
) -> None:
    mounts = tmp_path / "mountinfo"
    place = mounted.format(folder=tmp_path)
    mounts.write_text(
        "22 1 254:1 / / rw shared:1 - ext4 /dev/vda rw\n"
        f"40 22 0:40 {place} rw shared:2 - {kind} server:/x rw\n"
    )
    monkeypatch.setattr(engine, "_MOUNTS", mounts)
    (tmp_path / "shared files").mkdir()
    url = f"sqlite:///{tmp_path}/shared files/ledger.db"
    with raises_code("DatabaseUnavailable", match=kind):
        SQLBackend.open(url)
    SQLBackend.open(f"{url}?network=yes").close()
    if kind == "cifs":
        SQLBackend.open(f"sqlite:///{tmp_path}/beside.db").close()


# --- files that may not be written ---


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


def _without_rights(work: Callable[[], None]) -> int:
    """Run ``work`` in a forked child that is not root."""

    def child() -> None:
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        work()

    return _in_a_fork(child)


def _as_member(uid: int, gid: int, work: Callable[[], None]) -> Callable[[], int]:
    """Begin ``work`` in a forked child that is a user, of whose groups one is ``gid``.

    Returns what waits for its exit code.
    """
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([gid])
            os.setgid(uid)
            os.setuid(uid)
            os.umask(0o077)
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_file_of_a_group_is_used_by_all_its_members(folder: Path, empty_ledger: Path) -> None:
    group, (first, second) = 64_900, (64_901, 64_902)
    path = Path(shutil.copy(empty_ledger, folder / "ledger.db"))
    url = f"sqlite:///{path}"
    backend = SQLBackend.open(url)
    uuid = define(backend, host())["host0"]
    backend.close()
    os.chown(path, first, group)
    path.chmod(0o660)
    os.chown(folder, 0, group)
    folder.chmod(0o770)  # not set-group-ID: new files have the group of who makes them
    begun, done = os.pipe(), os.pipe()

    def stays() -> None:
        mine = SQLBackend.open(url)
        claim(mine, "first", {uuid: "VCPU=1"})
        os.write(begun[1], b".")
        os.read(done[0], 1)
        claim(mine, "third", {uuid: "VCPU=1"})
        mine.close()

    def comes_and_goes() -> None:
        os.read(begun[0], 1)
        mine = SQLBackend.open(url)
        claim(mine, "second", {uuid: "VCPU=1"})
        mine.close()
        os.write(done[1], b".")

    waiting = [_as_member(first, group, stays), _as_member(second, group, comes_and_goes)]
    assert [wait() for wait in waiting] == [0, 0]
    again = _as_member(second, group, lambda: claim(SQLBackend.open(url), "4", {uuid: "VCPU=1"}))
    assert again() == 0
    backend = SQLBackend.open(url)
    assert ledger_state(backend).used("host0", "VCPU") == 4
    backend.close()


@pytest.mark.law(11)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o444, 0o777), (0o444, 0o555)])
def test_a_file_that_may_not_be_written_is_refused(
    folder: Path, empty_ledger: Path, file_mode: int, folder_mode: int
) -> None:
    path = Path(shutil.copy(empty_ledger, folder / "ledger.db"))
    before = sorted(os.listdir(folder))
    path.chmod(file_mode)
    folder.chmod(folder_mode)

    def child() -> None:
        with raises_code("ReadOnlyDatabase", match="may not write it"):
            SQLBackend.open(f"sqlite:///{path}")

    assert _without_rights(child) == 0
    assert sorted(os.listdir(folder)) == before
    folder.chmod(0o755)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_nothing_is_made_where_nothing_may_be(folder: Path) -> None:
    folder.chmod(0o555)

    def child() -> None:
        with raises_code("DatabaseUnavailable", match="cannot be written"):
            SQLBackend.open(f"sqlite:///{folder}/ledger.db")

    assert _without_rights(child) == 0
