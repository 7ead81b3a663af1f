"""Published figures are measured ones: the documentation's tables come from committed results."""

from __future__ import annotations

import json

from benchmarks import table


def test_the_table_of_the_documentation_is_the_committed_results() -> None:
    assert table.TABLE.read_text() == table.text(), "run python -m benchmarks.table"


def test_every_result_says_where_it_comes_from() -> None:
    results = sorted(table.RESULTS.glob("*.json"))
    assert results
    for path in results:
        result = json.loads(path.read_text())
        assert {"command", "date", "python", "host", "versions", "rows"} <= result.keys()
        assert result["rows"], path.name
