"""Draw what many schedulers do to each other, from the committed result file.

``python -m benchmarks.schedulers_picture`` rewrites ``doc/source/_static/schedulers.svg``; a test
compares it with the result file. A row for each kind of database: to the left what is lost where
jobs take whole hosts, then the same and what is won where eight go on one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any, NamedTuple

from benchmarks import charts
from benchmarks.table import RESULTS, ROOT

PICTURE = ROOT / "doc" / "source" / "_static" / "schedulers.svg"
RESULT = RESULTS / "schedulers.json"

#: What is drawn: the jobs and the figure of a row's name, and the title of its chart.
_CHARTS = {
    "whole hosts: lost races": "Whole hosts: lost races in 100 claims",
    "eighths of hosts: lost races": "Eight on a host: lost races in 100 claims",
    "eighths of hosts: changed, and taken at once": "Eight on a host: changed, but taken, of 100",
}
_COLOURS = ("#b3541e", "#d98e4a", "#7a7a7a", "#6c9bd6", "#2a5290", "#2e7d4f")
_LEFT, _APART, _WIDE, _HIGH = 56, 305, 230, 190
_TOP, _LINE = 60, 285
_PLAIN = 'fill="#333"'

#: Of an order: what was measured with so many schedulers.
Lines = Mapping[str, Mapping[int, float]]


class _Panel(NamedTuple):
    left: float
    top: float
    sizes: tuple[int, ...]
    highest: float

    def x(self, size: int) -> float:
        return self.left + _WIDE * math.log2(size) / math.log2(self.sizes[-1])

    def y(self, figure: float) -> float:
        return self.top + _HIGH * (1 - figure / self.highest)


def text() -> str:
    """Return the picture of the committed results."""
    rows = json.loads(RESULT.read_text())["rows"]
    kinds = list(dict.fromkeys(row["name"].partition(",")[0] for row in rows))
    lines = [line for number, kind in enumerate(kinds) for line in _of_kind(rows, kind, number)]
    below = _TOP + len(kinds) * _LINE
    orders = list(dict.fromkeys(row["point"][1] for row in rows))
    return charts.picture([*lines, *_legend(orders, below)], height=below + 30)


def _of_kind(rows: Iterable[Mapping[str, Any]], kind: str, number: int) -> Iterator[str]:
    rows, top = list(rows), _TOP + number * _LINE
    for place, (what, title) in enumerate(_CHARTS.items()):
        found: dict[str, dict[int, float]] = {}
        for row in rows:
            if row["name"] == f"{kind}, {what}":
                schedulers, order = row["point"]
                found.setdefault(order, {})[schedulers] = row["ours"]
        yield from _chart(kind, title, _LEFT + place * _APART, top, found)


def _chart(kind: str, title: str, left: float, top: float, lines: Lines) -> Iterator[str]:
    sizes = tuple(sorted({size for points in lines.values() for size in points}))
    most = max((figure for points in lines.values() for figure in points.values()), default=0)
    panel = _Panel(left, top, sizes, _round(most))
    for said, above, look in ((kind, 30, 'font-weight="bold" fill="#1f3f6e"'), (title, 13, _PLAIN)):
        yield f'  <text x="{left}" y="{top - above}" {look}>{escape(said)}</text>'
    for part in range(5):
        figure = panel.highest * part / 4
        y = panel.y(figure)
        yield f'  <path d="M{left} {y:.1f} h{_WIDE}" stroke="#dddddd"/>'
        yield _label(left - 6, y + 4, f"{figure:g}", "end")
    for size in sizes:
        yield _label(panel.x(size), top + _HIGH + 16, str(size), "middle")
    yield _label(left + _WIDE / 2, top + _HIGH + 32, "schedulers", "middle")
    for colour, points in zip(_COLOURS, lines.values(), strict=False):
        places = [(panel.x(size), panel.y(figure)) for size, figure in sorted(points.items())]
        path = " L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        yield f'  <path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        yield from (
            f'  <circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places
        )


def _round(most: float) -> float:
    """Return the end of an axis: 1, 2, 4 or 8 of a power of ten that is not less."""
    power = 10 ** math.floor(math.log10(max(most, 1)))
    return next(power * times for times in (1, 2, 4, 8, 10) if most <= power * times)


def _label(x: float, y: float, said: str, anchor: str) -> str:
    return (
        f'  <text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#666">{escape(said)}</text>'
    )


def _legend(orders: Iterable[str], top: float) -> Iterator[str]:
    for number, (colour, order) in enumerate(zip(_COLOURS, orders, strict=False)):
        x = _LEFT + number * 150
        yield f'  <path d="M{x} {top} h22" stroke="{colour}" stroke-width="3"/>'
        yield f'  <text x="{x + 28}" y="{top + 4}" fill="#333">{escape(order)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(text())
    print(f"written to {PICTURE}")
