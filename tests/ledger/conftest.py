"""A ledger in memory and on a SQLite file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import resource_objects as ro
from resource_objects.testing.conformance.numa_model import host_of
from tests.ledger.numa_hosts import cells


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture
def ledger(url: str) -> Iterator[ro.Ledger]:
    with ro.connect(url) as opened:
        yield opened


@pytest.fixture
def numa_ledger(ledger: ro.Ledger) -> ro.Ledger:
    """A ledger with host0 and host1, each of two cells."""
    for name in ("host0", "host1"):
        ledger.sync(host_of(name, cells(), DISK_GB=100))
    return ledger
