"""History that went back: a backup restored under open ledgers, a standby without the last writes.

What was acknowledged is gone then. Nobody can bring it back, but whoever relies on it notices.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest
import sqlalchemy

import resource_objects as ro
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.testing.refusals import raises_code
from tests import databases
from tests.backends.conftest import ask
from tests.private_servers import Missing, private_server, run_client, standby
from tests.support.checker import problems
from tests.support.patience import until

# --- what a program remembers ---


class Remembered:
    """An open ledger, and what somebody remembers of it who saw writes that are lost later."""

    def __init__(self, ledger: ro.Ledger) -> None:
        self.ledger = ledger
        self.ledger.sync(ro.Provider("host0", "VCPU=8"), ro.Provider("host1", "VCPU=8"))
        self.ledger.claim("kept", {"host0": "VCPU=1"})

    def see_more(self) -> None:
        """Write what is lost later, and remember it."""
        ledger = self.ledger
        ledger.change("host0", inventories="VCPU=16")
        ledger.claim("lost", {"host0": "VCPU=5"})
        self.claim = ledger.adjust("kept", {"host0": "VCPU=2"})
        ledger.sync(ro.Provider("lost-host", "CUSTOM_LOST=1"))
        self.tree = next(tree for tree in ledger.trees() if tree.name == "host0")
        self.cursor = ledger.feed.cursor()
        assert ledger.snapshot().used("VCPU") == 8

    def others_write(self, url: str) -> None:
        """Write as often as what was lost, but something else."""
        with ro.connect(url) as other:
            other.change("host0", inventories="VCPU=32")
            other.claim("other", {"host0": "VCPU=3"})
            other.adjust("kept", {"host0": "VCPU=1"})
            other.sync(ro.Provider("other-host", "CUSTOM_OTHER=1"))

    def check(self, used: int, url: str) -> None:
        """Check that nothing of what is lost is believed."""
        ledger = self.ledger
        assert ledger.snapshot().used("VCPU") == used
        with raises_code("CursorExpired"):
            ledger.feed.changes(self.cursor)
        with raises_code("StaleDefinition"):
            ledger.sync(self.tree)
        with raises_code("StaleDefinition"):
            ledger.change("host0", traits=[], generation=self.tree.generation)
        with raises_code("StaleConsumer"):
            ledger.adjust("kept", {"host0": "VCPU=1"}, generation=self.claim.generation)
        with raises_code("ConsumerNotFound"):
            ledger.get_claim("lost")
        ledger.claim("lost", {"host0": "VCPU=1"})
        with ro.connect(url) as fresh:
            assert ledger.snapshot().used("VCPU") == fresh.snapshot().used("VCPU") == used + 1
            assert {tree.name for tree in ledger.trees()} == {tree.name for tree in fresh.trees()}


@pytest.fixture(params=[False, True], ids=["at once", "after as many writes"])
def others_write(request: pytest.FixtureRequest) -> bool:
    """Whether others write as much again before anybody looks."""
    found: bool = request.param
    return found


# --- a backup ---


def _restore_file(url: str) -> Callable[[], None]:
    path = str(sqlalchemy.make_url(url).database)

    def copy(source: str, target: str) -> None:
        with sqlite3.connect(source) as one, sqlite3.connect(target) as other:
            one.backup(other)
        one.close()
        other.close()

    copy(path, f"{path}.backup")
    return lambda: copy(f"{path}.backup", path)


def _restore_postgresql(url: str) -> Callable[[], None]:
    kept = run_client("pg_dump", url, "--format=custom")
    options = ("--clean", "--if-exists", "--single-transaction")
    return lambda: void(run_client("pg_restore", url, *options, said=kept))


def _restore_mysql(url: str) -> Callable[[], None]:
    kept = run_client("mariadb-dump", url, "--single-transaction")
    return lambda: void(run_client("mariadb", url, said=kept))


def void(said: bytes) -> None:
    """Drop what a program said."""


_BACKUP = {
    "sqlite": _restore_file,
    "postgresql": _restore_postgresql,
    "mysql": _restore_mysql,
}


def test_a_backup_restored_under_an_open_ledger_is_noticed(
    database_kind: str, database_url: str, others_write: bool
) -> None:
    SQLBackend.upgrade_database(database_url)
    with ro.connect(database_url) as ledger:
        remembered = Remembered(ledger)
        try:
            restore = _BACKUP[database_kind](database_url)
        except Missing as error:
            if databases.required():
                raise
            pytest.skip(str(error))
        remembered.see_more()
        restore()
        if others_write:
            remembered.others_write(database_url)
        remembered.check(5 if others_write else 1, database_url)
    assert problems(database_url) == []


# --- a standby ---


@pytest.mark.long
def test_a_standby_promoted_without_the_last_writes_is_noticed(others_write: bool) -> None:
    try:
        with private_server("postgresql") as primary, standby(primary) as second:
            ask(primary.admin, "CREATE DATABASE lab")
            one, two = (sqlalchemy.make_url(server.admin) for server in (primary, second))
            hosts = f"{one.host}:{one.port},{two.host}:{two.port}"
            both = f"postgresql://postgres@{hosts}/lab?target_session_attrs=read-write"
            SQLBackend.upgrade_database(both)
            with ro.connect(both) as ledger:
                remembered = Remembered(ledger)
                wait_for(second.admin, ask(primary.admin, "SELECT pg_current_wal_lsn()")[0][0])
                ask(second.admin, "ALTER SYSTEM SET primary_conninfo = ''")
                ask(second.admin, "SELECT pg_reload_conf()")
                until(lambda: not ask(second.admin, "SELECT 1 FROM pg_stat_wal_receiver"))
                remembered.see_more()
                primary.kill()
                assert ask(second.admin, "SELECT pg_promote()")[0][0] is True
                if others_write:
                    remembered.others_write(both)
                remembered.check(5 if others_write else 1, both)
            alone = two.set(database="lab").render_as_string(hide_password=False)
            assert problems(alone) == []
    except Missing as error:
        if databases.required():
            raise
        pytest.skip(str(error))


def wait_for(url: str, position: str) -> None:
    """Wait until a standby has what was written up to a position."""
    query = f"SELECT pg_last_wal_replay_lsn() >= '{position}'"
    until(lambda: ask(url, query)[0][0] is True)
