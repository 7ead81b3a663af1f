"""Draw how the NUMA decision grows, from the committed result file.

``python -m benchmarks.numa_picture`` rewrites ``doc/source/_static/numa_growth.svg``; a test
compares it with the result file. Both axes of both charts are logarithmic: what is polynomial is a
straight line at most.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from benchmarks import charts
from benchmarks.charts import Chart
from benchmarks.table import RESULTS, ROOT

PICTURE = ROOT / "doc" / "source" / "_static" / "numa_growth.svg"
RESULT = RESULTS / "numa.json"

_GROWTH = "growth: fits in one way only"
_REFUSAL = "refusal with its reasons"


def text() -> str:
    """Return the picture of the committed results."""
    rows = json.loads(RESULT.read_text())["rows"]
    return charts.picture(_lines([row for row in rows if "point" in row]))


def _lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    growth: dict[int, list[tuple[float, float]]] = {}
    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    peer = ""
    for row in rows:
        hosts, guests = row["point"]
        if row["name"].startswith(_GROWTH):
            growth.setdefault(guests, []).append((hosts, row["ours"]))
        elif row["name"].startswith(_REFUSAL):
            ours.append((hosts, row["ours"] * 1e3))
            theirs.append((hosts, row["peer"] * 1e3))
            peer = row["peer_name"]
    sizes: tuple[int, ...] = (2, 4, 8, 16, 32, 64)
    title = "Fits in one way only, no two cells equal"
    chart = Chart(title, charts.LEFT, sizes, "host cells", 1e5)
    yield from charts.axes(chart)
    for colour, (guests, points) in zip(charts.COLOURS, sorted(growth.items()), strict=True):
        name = f"{guests} guest cell{'s' * (guests > 1)}"
        yield from charts.line(chart, points, colour, name)
    sizes = tuple(int(size) for size, _ in ours)
    title = "No host cell has the CPUs"
    chart = Chart(title, charts.RIGHT, sizes, "guest cells = host cells", 1e5)
    yield from charts.axes(chart)
    yield from charts.line(chart, ours, charts.COLOURS[2], "ours, with its reasons")
    yield from charts.line(chart, theirs, charts.PEER, peer)


if __name__ == "__main__":
    PICTURE.write_text(text())
    print(f"written to {PICTURE}")
