"""On a Galera cluster: locks are each node's own, what is committed is everybody's."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import sqlalchemy

from resource_objects.backends.sql import migrations
from resource_objects.backends.sql.backend import SQLBackend
from tests import databases
from tests.backends.conftest import ask, ask_all
from tests.private_servers import Missing, galera
from tests.support.checker import problems

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[str]]:
    """The URLs of an empty database, on each of two nodes."""
    try:
        with galera(2) as servers:
            ask(servers[0].admin, "CREATE DATABASE lab CHARACTER SET utf8mb4")
            yield [
                sqlalchemy.make_url(server.admin)
                .set(database="lab")
                .render_as_string(hide_password=False)
                for server in servers
            ]
    except Missing as error:
        if databases.required():
            raise
        pytest.skip(str(error))


_UPGRADE = """
import sys, time
from resource_objects.backends.sql.backend import SQLBackend
time.sleep(max(0, float(sys.argv[2]) - time.time()))
print(len(SQLBackend.upgrade_database(sys.argv[1])))
"""


def test_of_many_upgrades_on_many_nodes_one_runs_each_step(nodes: list[str]) -> None:
    start = str(time.time() + 4)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _UPGRADE, url, start],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for url in nodes * 2
    ]
    ended = [one.communicate(timeout=120) for one in running]
    assert [one.returncode for one in running] == [0] * 4, [told for _, told in ended]
    assert sum(int(done) for done, _ in ended) == migrations.NEWEST
    assert ask(nodes[0], "SELECT * FROM ro_upgrade") == []
    for url in nodes:
        SQLBackend.open(url).close()
        assert problems(url) == []


def test_an_upgrade_that_died_stands_in_the_way_for_a_while(
    nodes: list[str],
) -> None:
    ask(nodes[0], "CREATE DATABASE another CHARACTER SET utf8mb4")
    url = (
        sqlalchemy.make_url(nodes[1]).set(database="another").render_as_string(hide_password=False)
    )
    make = "CREATE TABLE ro_upgrade (id INTEGER PRIMARY KEY, owner VARCHAR(36), ends_at DATETIME)"
    put = "INSERT INTO ro_upgrade VALUES (1, 'somebody', UTC_TIMESTAMP() + INTERVAL 4 SECOND)"
    ask_all(url, make, put)
    ends_at = ask(url, "SELECT ends_at FROM ro_upgrade")[0][0]
    assert len(SQLBackend.upgrade_database(url)) == migrations.NEWEST
    assert ask(url, "SELECT UTC_TIMESTAMP()")[0][0] >= ends_at
    SQLBackend.open(url).close()
