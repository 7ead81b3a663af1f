"""Charts as SVG: both axes logarithmic, so that what is polynomial is a straight line at most."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple, TypeAlias

#: Of lines of ours, from few to many; of a peer's line.
COLOURS = ("#9dbde6", "#6c9bd6", "#3b6fb6", "#2a5290", "#1f3f6e")
PEER = "#b3541e"
WIDTH, HEIGHT = 960, 380
#: Where the left chart of two begins, and the right one.
LEFT, RIGHT = 70, 530

#: Points of a line: a size, and microseconds.
Points: TypeAlias = Sequence[tuple[float, float]]


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


def picture(lines: Iterable[str], height: float = HEIGHT) -> str:
    """Return a picture of some lines of SVG."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="12">'
    )
    ground = f'  <rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, ground, *_apart(list(lines)), "</svg>"]) + "\n"


#: The name at the end of a line, as :func:`line` writes it.
_NAME = re.compile(r'  <text x="(?P<x>[\d.]+)" y="(?P<y>[\d.]+)" fill="(?P<colour>[^"]+)">')
#: How far below each other names stand at least, and how near they may end to be beside each other.
_LEADING, _BESIDE = 13.0, 80.0


def _apart(lines: list[str]) -> list[str]:
    """Return the lines of a picture with the names of lines moved down where they would overlap."""
    found = [(number, match) for number, one in enumerate(lines) if (match := _NAME.match(one))]
    placed: list[tuple[float, float]] = []
    for number, match in sorted(found, key=lambda one: float(one[1]["y"])):
        x, y = float(match["x"]), float(match["y"])
        above = [there + _LEADING for across, there in placed if abs(across - x) < _BESIDE]
        moved = max([y, *above])
        placed.append((x, moved))
        if moved == y:
            continue
        head = f'  <text x="{x:.1f}" y="{moved:.1f}" fill="{match["colour"]}">'
        lines[number] = head + lines[number][match.end() :]
    return lines


def axes(chart: Chart) -> Iterator[str]:
    """Yield the axes of a chart."""
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
    if microseconds < 10**7:
        return f"{microseconds // 1000} ms"
    return f"{microseconds // 10**6} s"


def line(chart: Chart, points: Points, colour: str, name: str) -> Iterator[str]:
    """Yield a line through some points, with its name at the end."""
    places = [(chart.x(size), chart.y(figure)) for size, figure in sorted(points)]
    path = " L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    yield f'  <path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y in places:
        yield f'  <circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
    x, y = places[-1]
    yield f'  <text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{escape(name)}</text>'
