"""Draw how the decision about devices grows, from the committed result file.

``python -m benchmarks.pci_picture`` rewrites ``doc/source/_static/pci_growth.svg``; a test compares
it with the result file. Both axes of both charts are logarithmic: what is polynomial is a straight
line at most.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from benchmarks import charts
from benchmarks.charts import Chart
from benchmarks.table import RESULTS, ROOT

PICTURE = ROOT / "doc" / "source" / "_static" / "pci_growth.svg"
RESULT = RESULTS / "pci.json"

#: What is drawn: the beginning of a row's name, and the title of its chart.
_CHARTS = {
    "growth: functions wanted whole": "Functions wanted whole and in parts",
    "growth: no two alike": "No two devices alike, fits in one way only",
}
_SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)


def text() -> str:
    """Return the picture of the committed results."""
    rows = json.loads(RESULT.read_text())["rows"]
    return charts.picture(_lines([row for row in rows if "point" in row]))


def _lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    points: dict[str, dict[int, list[tuple[float, float]]]] = {name: {} for name in _CHARTS}
    for row in rows:
        devices, requests = row["point"]
        for name, found in points.items():
            if row["name"].startswith(name):
                found.setdefault(requests, []).append((devices, row["ours"]))
    for left, (name, title) in zip((charts.LEFT, charts.RIGHT), _CHARTS.items(), strict=True):
        chart = Chart(title, left, _SIZES, "devices", 1e6)
        yield from charts.axes(chart)
        for colour, requests in zip(charts.COLOURS, sorted(points[name]), strict=True):
            said = f"{requests} request{'s' * (requests > 1)}"
            yield from charts.line(chart, points[name][requests], colour, said)


if __name__ == "__main__":
    PICTURE.write_text(text())
    print(f"written to {PICTURE}")
