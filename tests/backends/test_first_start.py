"""First starts: many processes that make the same database at once."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path

import os_resource_classes
import pytest

import resource_objects as ro
from resource_objects.backends.sql import migrations
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.providers.feed import SHARDS
from resource_objects.resources.traits import standard_traits
from resource_objects.testing.conformance.races import processes
from resource_objects.testing.conformance.suite import claim, define, host
from tests.backends.conftest import ask
from tests.support import checker

_WORKERS = 5


def wait_for_all(gate: Barrier) -> None:
    """Let a process begin its work when all are there."""
    gate.wait(60)


def first_start(url: str, who: str) -> int:
    """Make the tables unless they are there, and use them; return how many steps that took."""
    done = SQLBackend.upgrade_database(url)
    backend = SQLBackend.open(url)
    names = define(backend, host(who))
    claim(backend, who, {names[who]: "VCPU=1"})
    backend.close()
    return len(done)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_first_start_by_many_processes_creates_everything_once(database_url: str) -> None:
    context = processes()
    gate = (context.Barrier(_WORKERS),)
    with ProcessPoolExecutor(_WORKERS, context, wait_for_all, gate) as pool:
        begun = [pool.submit(first_start, database_url, f"host{n}") for n in range(_WORKERS)]
        steps = sorted(one.result(120) for one in begun)
    assert steps == [0] * (_WORKERS - 1) + [1]
    assert ask(database_url, f"SELECT version_num FROM {migrations.VERSION_TABLE}") == [("0001",)]
    assert ask(database_url, "SELECT COUNT(*) FROM ledger_info") == [(1,)]
    shards = [row[0] for row in ask(database_url, "SELECT shard FROM change_heads")]
    assert sorted(shards) == list(range(SHARDS))
    classes = [row[0] for row in ask(database_url, "SELECT name FROM resource_classes")]
    assert sorted(classes) == sorted(os_resource_classes.STANDARDS)
    traits = [row[0] for row in ask(database_url, "SELECT name FROM traits")]
    assert sorted(traits) == sorted(standard_traits())
    assert checker.problems(database_url) == []
    assert len(ask(database_url, "SELECT name FROM consumers")) == _WORKERS


@pytest.mark.parametrize("writer", ["the reader", "another ledger"])
def test_changes_after_a_cursor_of_a_missing_file(tmp_path: Path, writer: str) -> None:
    url = f"sqlite:///{tmp_path}/lab.db"
    with ro.connect(url) as ledger, ro.connect(url) as other:
        cursor, snapshot = ledger.feed.cursor(), ledger.snapshot()
        assert not snapshot.candidates("VCPU=1")
        (ledger if writer == "the reader" else other).sync(ro.Provider("host0", "VCPU=1"))
        changes = ledger.feed.changes(cursor)
        assert [change.subject for change in changes] == ["host0"]
        assert not ledger.feed.changes(changes.cursor)
        assert ledger.snapshot().candidates("VCPU=1")
