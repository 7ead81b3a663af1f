"""Ledgers in memory and on a SQLite file, and with two hosts on every backend that answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import resource_objects as ro
from resource_objects.ledger import backend_for
from tests import databases
from tests.conftest import require_server
from tests.tracker import labs


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, sqlite_url: Callable[[str], str]) -> str:
    return "memory://" if request.param == "memory" else sqlite_url("ledger.db")


@pytest.fixture
def ledger(url: str) -> Iterator[ro.Ledger]:
    with ro.connect(url) as opened:
        yield opened


@pytest.fixture(params=("memory", *databases.KINDS))
def database_kind(request: pytest.FixtureRequest) -> str:
    """Run the test on each backend that can be reached."""
    kind: str = request.param
    if kind not in ("memory", "sqlite"):
        require_server(kind)
    return kind


@pytest.fixture
def everywhere_url(
    database_kind: str, scratch: databases.Scratch, sqlite_url: Callable[[str], str]
) -> Iterator[str]:
    """A ledger in memory and on every kind of database."""
    if database_kind == "memory":
        yield "memory://"
    elif database_kind == "sqlite":
        yield sqlite_url("everywhere.db")
    else:
        with scratch.prepared(database_kind, _upgrade) as made:
            yield made


def _upgrade(url: str) -> None:
    backend_for(url).upgrade_database(url)


@pytest.fixture
def everywhere(everywhere_url: str) -> Iterator[ro.Ledger]:
    with ro.connect(everywhere_url) as opened:
        yield opened


@pytest.fixture
def lab(everywhere: ro.Ledger) -> ro.Ledger:
    """A ledger with box-0 and box-1, once for each backend."""
    labs.declare(everywhere)
    return everywhere
