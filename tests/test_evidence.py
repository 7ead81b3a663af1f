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


@pytest.mark.parametrize(
    "picture",
    [candidates_picture, numa_picture, pci_picture, schedulers_picture],
    ids=["candidates", "numa", "pci", "schedulers"],
)
def test_the_picture_of_the_documentation_is_of_the_committed_results(picture: ModuleType) -> None:
    how = f"run python -m {picture.__name__}"
    assert picture.PICTURE.exists() == picture.RESULT.exists(), how
    if picture.RESULT.exists():
        assert picture.PICTURE.read_text() == picture.text(), how


@pytest.mark.parametrize(
    "differences",
    [filter_differences, numa_differences, pci_differences, peer_differences, tracker_differences],
    ids=["filter", "numa", "pci", "placement", "tracker"],
)
def test_the_table_of_differences_is_of_tests_that_there_are(differences: ModuleType) -> None:
    assert differences.TABLE.read_text() == differences.text(), (
        f"run python -m {differences.__name__}"
    )
    for rows in differences.SECTIONS.values():
        for row in rows:
            assert f"def {row.test}(" in (differences.HERE / row.file).read_text(), row.test
