"""A ledger in memory and on a SQLite file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import resource_objects as ro


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, sqlite_url: Callable[[str], str]) -> str:
    return "memory://" if request.param == "memory" else sqlite_url("ledger.db")


@pytest.fixture
def ledger(url: str) -> Iterator[ro.Ledger]:
    with ro.connect(url) as opened:
        yield opened
