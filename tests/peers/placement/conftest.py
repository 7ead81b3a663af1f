"""The real Placement in this process, on a file of SQLite; its configuration is global, so once."""

from __future__ import annotations

import pytest

from benchmarks.peer import Placement


@pytest.fixture(scope="session")
def placement(tmp_path_factory: pytest.TempPathFactory) -> Placement:
    """Start Placement on a new file."""
    folder = tmp_path_factory.mktemp("placement")
    return Placement(f"sqlite:///{folder}/placement.db", folder)
