"""Published figures are measured ones: the documentation's tables come from committed results."""

from __future__ import annotations

import json

from benchmarks import numa_picture, table
from tests.peers.nova import numa_differences


def test_the_table_of_the_documentation_is_the_committed_results() -> None:
    assert table.TABLE.read_text() == table.text(), "run python -m benchmarks.table"


def test_the_picture_of_the_documentation_is_of_the_committed_results() -> None:
    expected = numa_picture.text()
    assert numa_picture.PICTURE.read_text() == expected, "run python -m benchmarks.numa_picture"


def test_the_table_of_differences_is_of_tests_that_there_are() -> None:
    how = "run python -m tests.peers.nova.numa_differences"
    assert numa_differences.TABLE.read_text() == numa_differences.text(), how
    for rows in numa_differences.SECTIONS.values():
        for row in rows:
            assert f"def {row.test}(" in (numa_differences.HERE / row.file).read_text(), row.test


def test_every_result_says_where_it_comes_from() -> None:
    results = sorted(table.RESULTS.glob("*.json"))
    assert results
    for path in results:
        result = json.loads(path.read_text())
        assert {"command", "date", "python", "host", "versions", "rows"} <= result.keys()
        assert result["rows"], path.name
