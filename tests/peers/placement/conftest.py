"""The real Placement in this process, on a file of SQLite; its configuration is global, so once."""

from __future__ import annotations

import pytest

from benchmarks.peer import Placement
from tests.peers.placement import peer_fleets


@pytest.fixture(scope="session")
def placement(tmp_path_factory: pytest.TempPathFactory) -> Placement:
    """Start Placement on a new file."""
    folder = tmp_path_factory.mktemp("placement")
    return Placement(f"sqlite:///{folder}/placement.db", folder)


@pytest.fixture(scope="module", autouse=True)
def _empty(placement: Placement) -> None:
    """Give every module an empty Placement, whichever modules ran before it."""
    peer_fleets.empty(placement)
