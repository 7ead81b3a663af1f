"""The benchmarks beside an older revision: what pairs, which way is better, what is not lost."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import __main__, against
from benchmarks.measure import Row


def figures(**of: dict[str, tuple[str, list[float]]]) -> against.Figures:
    """Return what was measured: ``side={row: (unit, figures)}``, all of one part."""
    found = against.Figures()
    for side, rows in of.items():
        for name, (unit, taken) in rows.items():
            for figure in taken:
                found.add(side, "part", {name: (unit, figure)})
    return found


def test_a_ratio_is_that_of_the_medians_and_above_one_where_we_are_better() -> None:
    found = figures(
        ours={
            "claim": ("per second", [10, 300, 200]),
            "import": ("ms", [50, 1, 90]),
            "disk: one flush": ("ms", [1]),
            "installed": ("", [3]),
        },
        theirs={
            "claim": ("per second", [100, 1, 1000]),
            "import": ("ms", [25, 26, 24]),
            "disk: one flush": ("ms", [2]),
            "installed": ("", [6]),
        },
    )
    ratios = {pair.name: pair.ratio for pair in found.pairs()}
    assert ratios == {"claim": 2, "import": 0.5, "disk: one flush": None, "installed": None}
    assert [pair.name for pair in found.pairs() if pair.is_worse(1.5)] == ["import"]
    assert [pair.name for pair in found.pairs() if pair.is_worse(2)] == []


def test_what_waits_for_the_disk_is_shown_and_is_no_failure() -> None:
    name = "SQLite, synchronous=FULL (a flush per commit): claim"
    found = figures(ours={name: ("per second", [1])}, theirs={name: ("per second", [10])})
    (pair,) = found.pairs()
    assert (pair.ratio, pair.is_worse(1.5)) == (0.1, False)


def test_rows_of_one_side_or_of_another_unit_are_listed() -> None:
    found = figures(
        ours={"new": ("ms", [1]), "both": ("ms", [1]), "other": ("us", [1])},
        theirs={"old": ("ms", [1]), "both": ("ms", [1]), "other": ("ms", [1])},
    )
    assert [pair.name for pair in found.pairs()] == ["both"]
    assert found.unpaired("ours") == ["new", "other"]
    assert found.unpaired("theirs") == ["old", "other"]


def test_without_such_a_revision_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(against.Failed, match="rev-parse"), against.installed("no-such-revision"):
        pass


def test_a_result_of_less_is_not_written_over_one_of_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    committed = tmp_path / "benchmarks.json"
    before = json.dumps({"parts": ["algebra", "ledgers"], "rows": []})
    committed.write_text(before)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "algebra", "--write", str(committed)])
    with pytest.raises(SystemExit):
        __main__.main()
    assert "results of ledgers, which would be lost" in capsys.readouterr().err
    assert committed.read_text() == before


def test_a_part_alone_writes_nothing_unless_a_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(__main__, "RESULTS", tmp_path)
    monkeypatch.setattr("benchmarks.algebra.rows", lambda: [Row("one", "ms", 1.0)])
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "algebra"])
    assert __main__.main() == 0 and not list(tmp_path.iterdir())
    named = tmp_path / "named.json"
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "algebra", "--write", str(named)])
    assert __main__.main() == 0
    found = json.loads(named.read_text())
    assert [row["name"] for row in found["rows"]] == ["one"]
    assert found["parts"] == ["algebra"]
    assert {"command", "date", "python", "versions"} <= found.keys()
    assert found["commit"] == against.commit()
    assert found["host"]["processor"] and found["host"]["cpus"]
