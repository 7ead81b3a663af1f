"""A ledger in memory and on a SQLite file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import resource_objects as ro
from resource_objects.ledger import backend_for
from tests import databases
from tests.conftest import require_server


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, sqlite_url: Callable[[str], str]) -> str:
    return "memory://" if request.param == "memory" else sqlite_url("ledger.db")


@pytest.fixture
def ledger(url: str) -> Iterator[ro.Ledger]:
    with ro.connect(url) as opened:
        yield opened


@pytest.fixture(params=("memory", *databases.KINDS))
def everywhere_url(request: pytest.FixtureRequest, scratch: databases.Scratch) -> Iterator[str]:
    """A ledger in memory and on every kind of database."""
    kind: str = request.param
    if kind == "memory":
        yield "memory://"
        return
    if kind != "sqlite":
        require_server(kind)
    with scratch.prepared(kind, _upgrade) as made:
        yield made


def _upgrade(url: str) -> None:
    backend_for(url).upgrade_database(url)


@pytest.fixture
def everywhere(everywhere_url: str) -> Iterator[ro.Ledger]:
    with ro.connect(everywhere_url) as opened:
        yield opened
