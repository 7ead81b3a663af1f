"""The long form of the kill suite: minutes of storm, in which the servers are killed too.

Not collected by itself: ``tox -e kill`` names it. ``RO_TEST_KILL_SECONDS`` says how long each storm
lasts.
"""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path

import pytest
import sqlalchemy

from resource_objects.backends.sql.backend import SQLBackend
from tests.private_servers import PrivateServer, private_server
from tests.support import storm

SECONDS = float(os.environ.get("RO_TEST_KILL_SECONDS", "150"))


def _check(report: storm.Report) -> None:
    print(report)
    assert not report.problems, report
    assert len(report.acknowledged) == 19, report


@pytest.mark.law(1, 2, 4)
@pytest.mark.backend("sqlite")
@pytest.mark.parametrize("synchronous", ["normal", "full"])
def test_writers_of_a_file_are_killed(tmp_path: Path, synchronous: str) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    report = storm.storm(
        SQLBackend,
        f"{url}?synchronous={synchronous}",
        tmp_path / "diaries",
        seconds=SECONDS / 2,
        kill_every=0.4,
        sql=url,
    )
    _check(report)


@pytest.mark.law(1, 2, 4)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("postgresql", marks=pytest.mark.backend("postgresql")),
        pytest.param("mysql", marks=pytest.mark.backend("mysql")),
    ],
)
def test_the_server_is_killed_under_its_writers(kind: str, tmp_path: Path) -> None:
    crashes = []

    def crash(server: PrivateServer) -> None:
        crashes.append(time.monotonic())
        server.crash()

    with private_server(kind) as server:
        url = _new_database(server.admin)
        SQLBackend.upgrade_database(url)
        report = storm.storm(
            SQLBackend,
            url,
            tmp_path / "diaries",
            seconds=SECONDS,
            cut=functools.partial(storm.cut_connections, url),
            disaster=functools.partial(crash, server),
            disaster_every=10,
            sql=url,
        )
    _check(report)
    assert len(crashes) >= SECONDS // 30


def _new_database(admin: str) -> str:
    engine = sqlalchemy.create_engine(admin, isolation_level="AUTOCOMMIT")
    postgresql = engine.dialect.name == "postgresql"
    how = "TEMPLATE template0 ENCODING 'UTF8'" if postgresql else "CHARSET utf8mb4"
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE ledger {how}")
    engine.dispose()
    return engine.url.set(database="ledger").render_as_string(hide_password=False)
