"""Published figures are measured ones: the documentation's tables come from committed results."""

from __future__ import annotations

import pathlib
from types import ModuleType

import pytest

from benchmarks import candidates_picture, numa_picture, pci_picture, schedulers_picture, table
from tests.peers.nova import (
    filter_differences,
    numa_differences,
    pci_differences,
    tracker_differences,
)
from tests.peers.placement import peer_differences


@pytest.mark.parametrize("path", table.TABLES, ids=[path.stem for path in table.TABLES])
def test_the_table_of_the_documentation_is_the_committed_results(path: pathlib.Path) -> None:
    assert path.read_text() == table.text(path), "run python -m benchmarks.table"


def test_every_result_is_in_some_table() -> None:
    shown = {name for some in table.TABLES.values() for name in some}
    assert {path.stem for path in table.RESULTS.glob("*.json")} == shown


@pytest.mark.parametrize(
    "drawn",
    [candidates_picture, numa_picture, pci_picture, schedulers_picture],
    ids=["candidates", "numa", "pci", "schedulers"],
)
def test_the_picture_of_the_documentation_is_of_the_committed_results(drawn: ModuleType) -> None:
    how = f"run python -m {drawn.__name__}"
    assert drawn.PICTURE.exists() == drawn.RESULT.exists(), how
    if drawn.RESULT.exists():
        assert drawn.PICTURE.read_text() == drawn.text(), how


@pytest.mark.parametrize(
    "told",
    [filter_differences, numa_differences, pci_differences, peer_differences, tracker_differences],
    ids=["filter", "numa", "pci", "placement", "tracker"],
)
def test_the_table_of_differences_is_of_tests_that_there_are(told: ModuleType) -> None:
    assert told.TABLE.read_text() == told.text(), f"run python -m {told.__name__}"
    for rows in told.SECTIONS.values():
        for row in rows:
            assert f"def {row.test}(" in (told.HERE / row.file).read_text(), row.test
