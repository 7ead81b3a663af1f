"""The feed under a real server: whoever waits, there is a thread for others."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import resource_objects as ro
from resource_objects.backends.sql.backend import SQLBackend
from resource_objects.rest.serving import THREADS
from tests.support.patience import until
from tests.support.served import served

#: More than there are threads in all processes.
MANY = 4 * THREADS
_WRITER = """
import sys
import resource_objects as ro
with ro.connect(sys.argv[1], actor="other") as ledger:
    ledger.claim("job", {"host0": "VCPU=1"})
"""


@pytest.mark.long
def test_a_thread_is_left_however_many_wait(database_url: str, tmp_path: Path) -> None:
    """Many ask again and again; others are answered, and a write of another process ends it."""
    SQLBackend.upgrade_database(database_url)
    with ro.connect(database_url) as ledger:
        ledger.sync(ro.Provider("host0", "VCPU=8"))
    with served(tmp_path, database_url) as service:
        cursor = service.ask("GET", "/ro/feed")[1]["cursor"]
        told: list[list[Any]] = []
        empty: list[float] = []

        def follow() -> None:
            while True:
                began = time.monotonic()
                status, found = service.ask("GET", f"/ro/feed?after={cursor}&wait=20")
                assert status == 200
                if found["changes"]:
                    told.append([one["actor"] for one in found["changes"]])
                    return
                empty.append(time.monotonic() - began)
                time.sleep(0.2)

        following = [threading.Thread(target=follow) for _ in range(MANY)]
        for one in following:
            one.start()
        until(lambda: len(empty) > 2 * MANY)  # all places are taken: others are told at once
        for _ in range(20):
            assert service.ask("POST", "/ro/search", {"request": "VCPU=1"})[0] == 200
        subprocess.run([sys.executable, "-c", _WRITER, database_url], check=True, timeout=60)
        for one in following:
            one.join(60)
        assert told == [["other"]] * MANY


@pytest.mark.long
def test_who_waits_is_answered_before_the_service_stops(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lab.db"
    answers: list[int] = []
    with served(tmp_path, url) as service:
        cursor = service.ask("GET", "/ro/feed")[1]["cursor"]

        def wait() -> None:
            answers.append(service.ask("GET", f"/ro/feed?after={cursor}&wait=10")[0])

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(1)  # it is sent, most likely: else it finds nobody, and the test fails
    waiting.join(60)
    assert answers == [200]
