"""Write the tables of the documentation from the committed result files.

``python -m benchmarks.table`` rewrites :data:`TABLES`; a test compares them with the result files,
so that no figure is published that was not measured.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
_PAGES = ROOT / "doc" / "source" / "explanation"
#: Of which result files each is made.
TABLES = {
    _PAGES / "benchmarks_table.txt": (
        *("benchmarks", "prompt", "jobs", "tracker", "numa", "pci", "placement", "service"),
    ),
    _PAGES / "candidates_table.txt": (
        *("candidates", "schedulers", "scheduling", "gangs", "explain"),
    ),
    _PAGES / "answers_table.txt": ("answers", "what_if"),
    _PAGES.parent / "howto" / "remote_placement_table.txt": ("remote",),
    _PAGES / "against_table.txt": (
        *("against_7ca3d86", "against_7ca3d86_ledgers", "against_5fcb39e", "against_4e2f1f3"),
        "against_4e2f1f3_numa",
    ),
}


def text(table: pathlib.Path) -> str:
    """Return a table per result file of one of :data:`TABLES`, as reStructuredText."""
    paths = [RESULTS / f"{name}.json" for name in TABLES[table]]
    return "\n".join(line for path in paths if path.exists() for line in _table(path))


def _table(path: pathlib.Path) -> Iterator[str]:
    result = json.loads(path.read_text())
    host, versions = result["host"], result["versions"]
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield f"``{result['command'].strip()}``, {result['date']}, Python {result['python']}, {said},"
    of = f", of commit {result['commit'][:7]}" if result.get("commit") else ""
    yield f"{host['cpus']} CPUs ({host['processor']}), {host['system']}{of}:"
    yield ""
    if "against" in result:
        yield from _beside(result)
        return
    points = [row for row in result["rows"] if "point" in row and row["peer"] is None]
    rows = [row for row in result["rows"] if row not in points]
    if rows:
        yield ".. list-table::"
        yield "   :header-rows: 1"
        yield "   :widths: 40 15 22 11 12"
        yield ""
        yield from _lines([["", "ours", "peer", "ratio", "target"], *map(_cells, rows)])
    for name in dict.fromkeys(row["name"] for row in points):
        yield from _grid(name, [row for row in points if row["name"] == name])


def _beside(result: dict[str, Any]) -> Iterator[str]:
    """Yield a table of medians of this version and an older one."""
    yield ".. list-table::"
    yield "   :header-rows: 1"
    yield ""
    lines = [
        [
            row["name"],
            f"{_figure(row['theirs'])} {row['unit']}",
            f"{_figure(row['ours'])} {row['unit']}",
            "" if row["ratio"] is None else f"{row['ratio']:.2f}",
        ]
        for row in result["rows"]
    ]
    yield from _lines([["", result["against"][:7], "now", "times better"], *lines])


def _grid(name: str, points: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table of figures of two sizes, such as host cells down and guest cells across."""
    figures = {tuple(row["point"]): _figure(row["ours"]) for row in points}
    down, across = (_along({point[axis]: None for point in figures}) for axis in (0, 1))
    unit = points[0]["unit"]
    said = unit if unit.startswith(("per ", "of ")) else f"in {unit}"
    yield f"{name[:1].upper()}{name[1:]}, {said}:"
    yield ""
    yield ".. list-table::"
    yield "   :header-rows: 1"
    yield "   :stub-columns: 1"
    yield ""
    many, one = points[0].get("axes", ("host cells", "guest cell"))
    head = [many, *(_headed(size, one) for size in across)]
    lines = [[f"{size:,}", *(figures.get((size, other), "") for other in across)] for size in down]
    yield from _lines([head, *lines])


def _along(axis: Iterable[Any]) -> list[Any]:
    """Return numbers in their order, words in that in which they were measured."""
    found = list(axis)
    return found if isinstance(found[0], str) else sorted(found)


def _headed(size: int | str, one: str) -> str:
    return size if isinstance(size, str) else f"{size:,} {one}{'s' * (size > 1)}"


def _lines(table: list[list[str]]) -> Iterator[str]:
    for cells in table:
        for place, cell in enumerate(cells):
            yield f"   {'* -' if place == 0 else '  -'} {cell}".rstrip()
    yield ""


def _cells(row: dict[str, Any]) -> list[str]:
    more = "more than " if row.get("stopped") else ""
    peer = (
        ""
        if row["peer"] is None
        else f"{more}{_figure(row['peer'])} {row['unit']}, {row['peer_name']}"
    )
    ratio = "" if row["ratio"] is None else ("under " if more else "") + _ratio(row["ratio"])
    verdict = {None: "", True: ": met", False: ": **missed**"}[row["met"]]
    ours = f"{_figure(row['ours'])} {row['unit']}".strip()
    return [row["name"], ours, peer, ratio, f"{row['target']}{verdict}"]


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value >= 0.005 else f"{value:.1g}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


if __name__ == "__main__":
    for each in TABLES:
        each.write_text(text(each))
        print(f"written to {each}")
