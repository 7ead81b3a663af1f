"""Tables and drawings as wide as a terminal is.

Cells are wrapped between words, and after commas; no name is broken, because people copy names. A
table whose narrowest form is still too wide is told row by row, a line for each column, as psql
does it (``\\x auto``); what does not fit even then is left to the terminal to wrap.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

from cliff.columns import FormattableColumn
from cliff.formatters.table import TableFormatter

#: The widths of the separators of a table: between columns, and on the left and right.
_BETWEEN, _AROUND = 3, 1
#: A cell may be wrapped after these characters.
_WORDS = re.compile(r"[^ ,;]*[ ,;]*")
#: The mark of text that is cut off.
CUT = "..."


class FittingTable(TableFormatter):
    """cliff's table, wrapped to a width, or printed in blocks.

    :param width: the number of columns; None for any number
    """

    def __init__(self, width: int | None) -> None:
        self._width = width
        self._figures: list[str] = []

    def emit_list(
        self,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        """Write rows."""
        rows = [tuple(row) for row in data]
        texts = [tuple(map(_text, row)) for row in rows]
        fitted = self._fitted(column_names, texts)
        if fitted is None:
            self._write_blocks(column_names, texts, stdout)
            return
        shown = [list(map(_shown, *pair)) for pair in zip(rows, fitted, strict=True)]
        cells = zip(column_names, rows[0] if rows else (), strict=False)
        self._figures = [name for name, cell in cells if getattr(cell, "is_figure", False)]
        super().emit_list(column_names, shown, stdout, _any_width(parsed_args))

    def add_rows(
        self, table: Any, column_names: Sequence[str], data: Iterable[Sequence[Any]]
    ) -> None:
        """Add rows; figures are right-aligned, as cliff does it with plain numbers."""
        super().add_rows(table, column_names, data)
        for name in self._figures:
            table.align[name] = "r"

    def emit_one(
        self,
        column_names: Sequence[str],
        data: Sequence[Any],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        """Write one thing, a line for each value."""
        texts = [(name, _text(value)) for name, value in zip(column_names, data, strict=True)]
        fitted = self._fitted(("Field", "Value"), texts)
        if fitted is None:
            self._write_blocks(column_names, [[value for _, value in texts]], stdout)
            return
        names, values = zip(*fitted, strict=True)
        super().emit_one(names, values, stdout, _any_width(parsed_args))

    def _fitted(
        self, names: Sequence[str], rows: Sequence[Sequence[str]]
    ) -> Sequence[Sequence[str]] | None:
        if self._width is None:
            return rows
        cells = wrapped([names, *rows], self._width)
        return None if cells is None else cells[1:]

    def _write_blocks(
        self, names: Sequence[str], rows: Sequence[Sequence[str]], stdout: TextIO
    ) -> None:
        stdout.writelines(f"{line}\n" for line in blocks(names, rows, self._width or 0))


def _text(value: Any) -> str:
    return str(value.human_readable() if isinstance(value, FormattableColumn) else value)


def _shown(value: Any, fitted: str) -> Any:
    """Return a cell for cliff: a figure unchanged, so that it is right-aligned."""
    return fitted if isinstance(value, str | FormattableColumn) else value


def _any_width(parsed_args: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments with a width at which cliff leaves the table alone."""
    return argparse.Namespace(**{**vars(parsed_args), "max_width": 1_000_000})


# --- pure -----------------------------------------------------------------------------------------


def wrapped(rows: Sequence[Sequence[str]], width: int) -> list[list[str]] | None:
    """Return cells with the line breaks that make a table fit; None if it cannot.

    Narrow columns keep their width; the others share what is left.

    :param rows: the first one is the names of the columns; these are not broken

    >>> wrapped([["name", "holds"], ["job-1", "VCPU=16,MEMORY_MB=65536,PGPU=1"]], 36)
    [['name', 'holds'], ['job-1', 'VCPU=16,MEMORY_MB=65536,\\nPGPU=1']]
    >>> wrapped([["name", "holds"], ["job-1", "VCPU=16,MEMORY_MB=65536,PGPU=1"]], 20)
    """
    columns = list(zip(*rows, strict=True))
    room = width - _AROUND - _BETWEEN * len(columns)
    ideal = [max(map(_widest_line, cells)) for cells in columns]
    if sum(ideal) <= room:
        return [list(row) for row in rows]
    least = [
        max(len(cells[0]), *(len(word) for cell in cells for word in _words(cell)))
        for cells in columns
    ]
    widths = _shared(ideal, least, room)
    if widths is None:
        return None
    return [list(map(_wrap, row, widths)) for row in rows]


def _shared(ideal: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """Return widths that are together no more than there is, None if even the least are.

    >>> _shared([5, 30, 40], [5, 10, 10], 45), _shared([5, 30], [5, 10], 14)
    ([5, 20, 20], None)
    """
    if sum(least) > room:
        return None
    widths = list(least)
    remaining = room - sum(widths)
    while remaining > 0:
        short = [place for place, width in enumerate(widths) if width < ideal[place]]
        if not short:
            break
        narrowest = min(short, key=lambda place: widths[place])
        widths[narrowest] += 1
        remaining -= 1
    return widths


def blocks(names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield the lines of a table that is too wide: a block for each row, a line for each column.

    >>> rows = [["job-1", "VCPU=16,PGPU=1"], ["job-2", ""]]
    >>> print(*blocks(["name", "holds"], rows, 18), sep="\\n")
    name   job-1
    holds  VCPU=16,
           PGPU=1
    <BLANKLINE>
    name   job-2
    holds
    """
    label = max(map(len, names), default=0)
    for number, row in enumerate(rows):
        if number:
            yield ""
        for name, cell in zip(names, row, strict=True):
            start = f"{name:<{label}}  "
            if len(start) + _widest_line(cell) > width and len(start) * 2 > width:
                yield name  # the value does not fit next to it
                start = "  "
            for line in _wrap(cell, max(1, width - len(start))).split("\n"):
                yield f"{start}{line}".rstrip()
                start = " " * len(start)


def cut(line: str, width: int | None) -> str:
    """Return a line of a drawing, cut if it is too wide.

    >>> cut("lab-0  GPU 2/4", 9), cut("lab-0", 9), cut("lab-0", None)
    ('lab-0 ...', 'lab-0', 'lab-0')
    """
    if width is None or len(line) <= width:
        return line
    return line[: max(0, width - len(CUT))] + CUT[: max(0, width)]


def _words(cell: str) -> list[str]:
    return [word.rstrip() for word in _WORDS.findall(cell.replace("\n", " ")) if word.strip()]


def _widest_line(cell: str) -> int:
    return max(map(len, cell.split("\n")), default=0)


def _wrap(cell: str, width: int) -> str:
    """Return a cell with line breaks, a longer word on a line of its own.

    >>> _wrap("a, bb, ccc", 5), _wrap("host0/gpu0", 4)
    ('a,\\nbb,\\nccc', 'host0/gpu0')
    """
    if len(cell) <= width:
        return cell
    lines = []
    for paragraph in cell.split("\n"):
        line = ""
        for word in filter(None, _WORDS.findall(paragraph)):
            if line.strip() and len((line + word).rstrip()) > width:
                lines.append(line.rstrip())
                line = ""
            line += word
        lines.append(line.rstrip())
    return "\n".join(lines)
