"""The real Placement in this process; its configuration is global, so once.

It is on a file of SQLite, with ``RO_TEST_PLACEMENT_ON=postgresql`` on a database of that server.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from benchmarks import servers
from benchmarks.peer import Placement
from tests.peers.placement import peer_fleets

#: What the database is of.
ON = os.environ.get("RO_TEST_PLACEMENT_ON", "sqlite")


@pytest.fixture(scope="session")
def placement(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Placement]:
    """Start Placement on a new database."""
    with servers.database(ON) as url:
        made = Placement(url, tmp_path_factory.mktemp("placement"))
        yield made
        made.reconnect()


@pytest.fixture(scope="module", autouse=True)
def _empty(placement: Placement) -> None:
    """Give every module an empty Placement, whichever modules ran before it."""
    peer_fleets.empty(placement)
