"""Draw how searches grow beside Placement, from the committed result file.

``python -m benchmarks.candidates_picture`` rewrites ``doc/source/_static/candidates_growth.svg``; a
test compares it with the result file. Both axes of both charts are logarithmic. Where Placement was
stopped, a ring stands at the time after which it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from benchmarks import charts
from benchmarks.charts import Chart
from benchmarks.table import RESULTS, ROOT

PICTURE = ROOT / "doc" / "source" / "_static" / "candidates_growth.svg"
RESULT = RESULTS / "candidates.json"

_GROUPS = "SQLite: a host with 8 equal devices"
_HOSTS = "growth: "
_CAPPED = "#d98e4a"
_HIGHEST = 1e8

Rows: TypeAlias = Iterable[Mapping[str, Any]]


def text() -> str:
    """Return the picture of the committed results."""
    rows = json.loads(RESULT.read_text())["rows"]
    beside = [row for row in rows if "point" in row and row["peer"] is not None]
    return charts.picture(_lines(beside))


def _lines(rows: Rows) -> Iterator[str]:
    for left, start, axis, title, across in (
        (charts.LEFT, _GROUPS, 1, "One host with 8 equal devices", "isolated groups"),
        (charts.RIGHT, _HOSTS, 0, "Hosts of three classes, 10 candidates", "hosts"),
    ):
        found = [row for row in rows if row["name"].startswith(start)]
        sizes = tuple(sorted({row["point"][axis] for row in found}))
        chart = Chart(title, left, sizes, across, _HIGHEST)
        yield from charts.axes(chart)
        yield from _sides(chart, found, axis)


def _sides(chart: Chart, rows: list[Mapping[str, Any]], axis: int) -> Iterator[str]:
    peers = list(dict.fromkeys(row["peer_name"] for row in rows))
    first = [row for row in rows if row["peer_name"] == peers[0]]
    ours = [(row["point"][axis], row["ours"] * 1e3) for row in first]
    yield from charts.line(chart, ours, charts.COLOURS[2], "ours")
    for colour, peer in zip((charts.PEER, _CAPPED), peers, strict=False):
        theirs = [row for row in rows if row["peer_name"] == peer]
        points = [(row["point"][axis], row["peer"] * 1e3, "stopped" in row) for row in theirs]
        ended = [(size, figure) for size, figure, is_stopped in points if not is_stopped]
        said = "with caps" if peer.endswith("caps") else "Placement"
        yield from charts.line(chart, ended, colour, said)
        for size, figure, is_stopped in points:
            if is_stopped:
                x, y = chart.x(size), chart.y(figure)
                yield f'  <circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="none" stroke="{colour}"/>'


if __name__ == "__main__":
    PICTURE.write_text(text())
    print(f"written to {PICTURE}")
