"""Ledgers in memory and on a SQLite file, and with two hosts on every backend that answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import resource_objects as ro
from tests.tracker import labs


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, sqlite_url: Callable[[str], str]) -> str:
    return "memory://" if request.param == "memory" else sqlite_url("ledger.db")


@pytest.fixture
def ledger(url: str) -> Iterator[ro.Ledger]:
    with ro.connect(url) as opened:
        yield opened


@pytest.fixture
def lab(everywhere_with: Callable[[Callable[[ro.Ledger], object]], ro.Ledger]) -> ro.Ledger:
    """A ledger with box-0 and box-1, once for each backend."""
    return everywhere_with(labs.declare)
