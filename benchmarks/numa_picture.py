"""Draw how the NUMA decision grows, from the committed result file.

``python -m benchmarks.numa_picture`` rewrites ``doc/source/_static/numa_growth.svg``; a test
compares it with the result file. Both axes of both charts are logarithmic: what is polynomial is a
straight line at most.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from benchmarks.table import RESULTS, ROOT

PICTURE = ROOT / "doc" / "source" / "_static" / "numa_growth.svg"
RESULT = RESULTS / "numa.json"

_GROWTH = "growth: fits in one way only"
_REFUSAL = "refusal with its reasons"
_WIDTH, _HEIGHT = 960, 380
_COLOURS = ("#9dbde6", "#6c9bd6", "#3b6fb6", "#2a5290", "#1f3f6e")
_PEER = "#b3541e"

#: Points of a line: a size, and microseconds.
Points = Sequence[tuple[float, float]]


class Chart(NamedTuple):
    """Two logarithmic axes and where they are."""

    title: str
    left: float
    sizes: tuple[int, ...]  #: marked across
    across: str
    highest: float  #: microseconds

    def x(self, size: float) -> float:
        """Return where a size is."""
        first, last = math.log(self.sizes[0]), math.log(self.sizes[-1])
        return self.left + 280 * (math.log(size) - first) / (last - first)

    def y(self, microseconds: float) -> float:
        """Return where a time is; the axis begins at 10 microseconds."""
        return 320 - 240 * math.log10(microseconds / 10) / math.log10(self.highest / 10)


def text() -> str:
    """Return the picture of the committed results."""
    rows = json.loads(RESULT.read_text())["rows"]
    return "\n".join(_picture([row for row in rows if "point" in row])) + "\n"


def _picture(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
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
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="12">'
    )
    yield f'  <rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>'
    sizes: tuple[int, ...] = (2, 4, 8, 16, 32, 64)
    chart = Chart("Fits in one way only, no two cells equal", 70, sizes, "host cells", 1e5)
    yield from _axes(chart)
    for colour, (guests, points) in zip(_COLOURS, sorted(growth.items()), strict=True):
        yield from _line(chart, points, colour, f"{guests} guest cell{'s' * (guests > 1)}")
    sizes = tuple(int(size) for size, _ in ours)
    chart = Chart("No host cell has the CPUs", 530, sizes, "guest cells = host cells", 1e5)
    yield from _axes(chart)
    yield from _line(chart, ours, _COLOURS[2], "ours, with its reasons")
    yield from _line(chart, theirs, _PEER, peer)
    yield "</svg>"


def _axes(chart: Chart) -> Iterator[str]:
    low, high = chart.x(chart.sizes[0]), chart.x(chart.sizes[-1])
    bottom = chart.y(10)
    yield (
        f'  <text x="{chart.left}" y="40" font-size="14" font-weight="bold" fill="#1f3f6e">'
        f"{escape(chart.title)}</text>"
    )
    for power in range(1, round(math.log10(chart.highest)) + 1):
        y = chart.y(10**power)
        yield f'  <path d="M{low:.1f} {y:.1f} H{high:.1f}" stroke="#dddddd"/>'
        yield (
            f'  <text x="{low - 8:.1f}" y="{y + 4:.1f}" text-anchor="end" fill="#666">'
            f"{_said(10**power)}</text>"
        )
    for size in chart.sizes:
        yield (
            f'  <text x="{chart.x(size):.1f}" y="{bottom + 18:.1f}" text-anchor="middle" '
            f'fill="#666">{size}</text>'
        )
    yield (
        f'  <text x="{(low + high) / 2:.1f}" y="{bottom + 40:.1f}" text-anchor="middle" '
        f'fill="#333">{escape(chart.across)}</text>'
    )


def _said(microseconds: int) -> str:
    if microseconds < 1000:
        return f"{microseconds} us"
    return f"{microseconds // 1000} ms"


def _line(chart: Chart, points: Points, colour: str, name: str) -> Iterator[str]:
    places = [(chart.x(size), chart.y(figure)) for size, figure in sorted(points)]
    path = " L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    yield f'  <path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y in places:
        yield f'  <circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
    x, y = places[-1]
    yield f'  <text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{escape(name)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(text())
    print(f"written to {PICTURE}")
