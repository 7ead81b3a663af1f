"""First starts: many processes that make the same database at once."""

from __future__ import annotations

import subprocess
import sys

import os_resource_classes

from resource_objects.backends.sql import migrations
from resource_objects.providers.feed import SHARDS
from resource_objects.resources.traits import standard_traits
from tests.backends.conftest import ask
from tests.support import checker

_FIRST_START = """
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.testing.conformance.suite import claim, define, host
url, who = sys.argv[1:]
print("ready", flush=True)
sys.stdin.read()
done = SQLBackend.upgrade_database(url)
backend = SQLBackend.open(url)
names = define(backend, host(who))
claim(backend, who, {names[who]: "VCPU=1"})
backend.close()
print(len(done))
"""


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for a program, which must succeed; return what it said."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip()


def test_a_first_start_by_many_processes_creates_everything_once(database_url: str) -> None:
    program = f"import sys\n{_FIRST_START}"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", program, database_url, f"host{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    for worker in workers:
        assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.close()
        worker.stdin = None
    assert sorted(int(finish(worker)) for worker in workers) == [0, 0, 0, 0, 0, 0, 0, 1]
    assert ask(database_url, f"SELECT version_num FROM {migrations.VERSION_TABLE}") == [("0001",)]
    assert ask(database_url, "SELECT COUNT(*) FROM ledger_info") == [(1,)]
    shards = [row[0] for row in ask(database_url, "SELECT shard FROM change_heads")]
    assert sorted(shards) == list(range(SHARDS))
    classes = [row[0] for row in ask(database_url, "SELECT name FROM resource_classes")]
    assert sorted(classes) == sorted(os_resource_classes.STANDARDS)
    traits = [row[0] for row in ask(database_url, "SELECT name FROM traits")]
    assert sorted(traits) == sorted(standard_traits())
    assert checker.problems(database_url) == []
    assert len(ask(database_url, "SELECT name FROM consumers")) == 8
