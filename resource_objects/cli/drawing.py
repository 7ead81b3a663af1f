"""The NUMA cells of a host as a drawing: cores, memory, pages and consumers. Pure.

Each cell is a box. Its CPUs are listed core by core, threads side by side, with a mark below each:
a capital letter for its consumer, or a small one for its state (:data:`FREE` ...). Bars show the
usage of the other resources. A legend explains the letters.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import textwrap
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.cli import base
from resource_objects.cli.render import UNICODE as UNICODE_BARS
from resource_objects.cli.render import Glyphs, bar
from resource_objects.host.holdings import (
    CellFigures,
    CellUser,
    HostCells,
    PageFigures,
    cores_of,
    read_cells,
)
from resource_objects.host.settings import HostSettings
from resource_objects.host.tree import numa_inventory
from resource_objects.resources.numa import CellUsage, CPUSet, HostCell
from resource_objects.resources.numa.cells import show_kib

if TYPE_CHECKING:
    from resource_objects.host.machine import Machine

#: Marks of CPUs that no consumer runs on, and what they mean.
FREE, SHARED, IDLE, OWN, TAKEN = ".", "s", "-", "h", "?"
_MEANINGS = {
    FREE: "dedicated, free",
    SHARED: "shared",
    IDLE: "left empty on purpose",
    OWN: "the host's own",
    TAKEN: "taken, by whom is not known",
}
#: The default and the minimum number of columns of a drawing.
WIDTH, LEAST_WIDTH = 80, 60
_LABEL = len("dedicated")
_BAR = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """The characters boxes are drawn with."""

    line: str
    side: str
    corners: tuple[str, str, str, str]  #: above left and right, below left and right


_UNICODE = Frame("─", "│", ("┌", "┐", "└", "┘"))
_ASCII = Frame("-", "|", ("+", "+", "+", "+"))


def numa_drawing(host: HostCells, glyphs: Glyphs = UNICODE_BARS, width: int = WIDTH) -> str:
    """Return the cells of a host as a drawing, at most ``width`` columns wide.

    Only the name of a consumer can be longer than that.

    >>> from resource_objects.cli.render import ASCII
    >>> from resource_objects.resources.numa import NUMATopologyInventory
    >>> cell = HostCell(0, dedicated=[1, 3], siblings=[(0, 2), (1, 3)], memory_mb=1024)
    >>> used = CellUsage(0, pinned=[1, 3], memory_mb=256)
    >>> host = HostCells("box", NUMATopologyInventory([cell], usage=[used]),
    ...                  ((CellUser("job-1", cpus=(1,), idle=(3,), memory_mb=256),),))
    >>> print(numa_drawing(host, ASCII, 60))
    box: 1 NUMA cell, 4 CPUs on 2 cores, 1024 MiB
    <BLANKLINE>
    +- cell 0 -------------------------------------------------+
    | CPUs       0 2  1 3                                      |
    |            h h  A -                                      |
    | dedicated  ################  2 of 2 CPUs  A 2            |
    | memory     ####............  256 of 1024 MiB  A 256      |
    +----------------------------------------------------------+
    <BLANKLINE>
    A  job-1: CPU 1; 3 left empty; 256 MiB
    -  left empty on purpose
    h  the host's own
    """
    letters = letters_of(host)
    frame = _UNICODE if glyphs.branch == UNICODE_BARS.branch else _ASCII
    inner = max(width, LEAST_WIDTH) - 4
    drawing = _Drawing(letters, glyphs, inner)
    lines = _wrapped(_headline(host), inner + 4)
    for name, facts in host.disabled:
        lines += _wrapped(f"{name}: {facts}", inner + 4)
    lines.append("")
    shown: set[str] = set()
    for place, cell in enumerate(host.inventory.cells):
        content = list(drawing.cell(host, place, shown))
        lines += _boxed(_title(cell), content, frame, inner)
    lines.append("")
    for line in (*consumer_lines(host, letters), *_marks(shown)):
        lines += _wrapped(line, inner + 4)
    return "\n".join(lines).rstrip()


def _wrapped(line: str, width: int) -> list[str]:
    """Return a line as lines of a maximum width; a long name is not broken."""
    return textwrap.wrap(
        line, width, subsequent_indent="   ", break_long_words=False, break_on_hyphens=False
    )


def _headline(host: HostCells) -> str:
    cells = host.inventory.cells
    sockets = {cell.socket for cell in cells} - {None}
    parts = [
        base.many(len(cells), "NUMA cell")
        + (f" in {base.many(len(sockets), 'socket')}" if sockets else ""),
        f"{base.many(sum(len(cell.cpus) for cell in cells), 'CPU')}"
        f" on {base.many(sum(len(cores_of(cell)) for cell in cells), 'core')}",
        f"{sum(cell.memory_mb for cell in cells)} MiB",
    ]
    return f"{host.host}: {', '.join(parts)}"


def _title(cell: HostCell) -> str:
    return f"cell {cell.id}" + ("" if cell.socket is None else f", socket {cell.socket}")


def _boxed(title: str, content: Iterable[str], frame: Frame, inner: int) -> list[str]:
    above_left, above_right, below_left, below_right = frame.corners
    head = f"{frame.line} {title} ".ljust(inner + 2, frame.line)
    return [
        f"{above_left}{head}{above_right}",
        *(f"{frame.side} {line.ljust(inner)} {frame.side}" for line in content),
        f"{below_left}{frame.line * (inner + 2)}{below_right}",
    ]


# --- one cell -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Drawing:
    """The letters of consumers, the glyphs and the width, which all lines of a drawing share."""

    letters: Mapping[str, str]
    glyphs: Glyphs
    inner: int

    def cell(self, host: HostCells, place: int, shown: set[str]) -> Iterator[str]:
        """Yield the lines of one cell; the marks they use are added to ``shown``."""
        cell, used = host.inventory.cells[place], host.inventory.usage[place]
        holders = host.holders[place]
        marks = _cpu_marks(cell, used, holders, self.letters)
        shown.update(marks.values())
        yield from self._cpus(cell, marks)
        figures = CellFigures.of(host.inventory, place)
        yield from self._counts(cell, figures, holders)
        yield from self._memory(cell, figures, holders)
        yield from self._near(cell)

    def _cpus(self, cell: HostCell, marks: Mapping[int, str]) -> Iterator[str]:
        if not marks:
            yield _labelled("CPUs", "none")
            return
        wide = max(len(str(cell.cpus[-1])), max(map(len, marks.values())))
        cores = cores_of(cell)
        between = "  " if cell.threads_per_core > 1 else " "
        column = cell.threads_per_core * (wide + 1) - 1 + len(between)
        room = self.inner - len(_labelled("", "")) + len(between)
        for row in _rows(cores, max(1, room // column)):
            for label, text_of in (("CPUs", str), ("", marks.__getitem__)):
                texts = (" ".join(text_of(cpu).rjust(wide) for cpu in core) for core in row)
                yield _labelled(label, between.join(texts))

    def _counts(
        self, cell: HostCell, figures: CellFigures, holders: Sequence[CellUser]
    ) -> Iterator[str]:
        if cell.shared:
            by = {user.consumer: user.vcpus for user in holders}
            yield self._bar("shared", figures.shared_used, figures.shared_capacity, "vCPUs", by)
        if cell.dedicated:
            by = {user.consumer: len(user.cpus) + len(user.idle) + user.loose for user in holders}
            yield self._bar("dedicated", figures.dedicated_used, figures.dedicated, "CPUs", by)

    def _memory(
        self, cell: HostCell, figures: CellFigures, holders: Sequence[CellUser]
    ) -> Iterator[str]:
        if not cell.memory_mb:
            yield _labelled("memory", "none")
            return
        by = {user.consumer: user.memory_mb for user in holders}
        yield self._bar("memory", figures.memory_used_mb, figures.memory_capacity_mb, "MiB", by)
        for pool in figures.pages:
            by = {user.consumer: dict(user.pages).get(pool.size_kib, 0) for user in holders}
            available = pool.total - pool.reserved
            title = f"pages ({pool.reserved} kept)" if pool.reserved else "pages"
            yield self._bar(show_kib(pool.size_kib), pool.used, available, title, by)

    def _near(self, cell: HostCell) -> Iterator[str]:
        at: dict[int, list[int]] = {}
        for other, far in cell.distances:
            if other != cell.id:
                at.setdefault(far, []).append(other)
        distances = [f"{far} to {CPUSet(at[far])}" for far in sorted(at)]
        networks = [*sorted(cell.physnets), *(["tunnels"] if cell.tunneled else [])]
        for label, texts in (("distance", distances), ("networks", networks)):
            lines = textwrap.wrap(", ".join(texts), self.inner - _LABEL - 2)
            for number, line in enumerate(lines):
                yield _labelled("" if number else label, line)

    def _bar(self, label: str, used: int, capacity: int, unit: str, by: Mapping[str, int]) -> str:
        drawn = bar(used, capacity, self.glyphs, _BAR)
        line = _labelled(label, f"{drawn}  {used} of {capacity} {unit}")
        amounts = Counter({self.letters[name]: amount for name, amount in by.items() if amount})
        return line + _fitting(amounts, self.inner - len(line))


def _labelled(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}  {text}"


def _fitting(amounts: Mapping[str, int], room: int) -> str:
    """Return the largest holders that there is room for, and how many more there are."""
    ordered = sorted(amounts.items(), key=lambda item: (-item[1], len(item[0]), item[0]))
    for count in range(len(ordered), -1, -1):
        remaining = len(ordered) - count
        parts = [f"{letter} {amount}" for letter, amount in ordered[:count]]
        text = "  " + ", ".join([*parts, *([f"{remaining} more"] if remaining else [])])
        if ordered and len(text) <= room:
            return text
    return ""


def _rows(cores: Sequence[tuple[int, ...]], most: int) -> Iterator[Sequence[tuple[int, ...]]]:
    """Yield the cores in rows of equal length, ``most`` or less."""
    rows = -(-len(cores) // most)
    size = -(-len(cores) // rows)
    for first in range(0, len(cores), size):
        yield cores[first : first + size]


def _cpu_marks(
    cell: HostCell, used: CellUsage, holders: Iterable[CellUser], letters: Mapping[str, str]
) -> dict[int, str]:
    """Return the mark of each CPU of a cell."""
    marks = dict.fromkeys(cell.cpus, OWN)
    marks |= dict.fromkeys(cell.shared, SHARED) | dict.fromkeys(cell.dedicated, FREE)
    marks |= dict.fromkeys(used.pinned, TAKEN)
    for user in holders:
        marks |= dict.fromkeys(user.cpus, letters[user.consumer]) | dict.fromkeys(user.idle, IDLE)
    return marks


def _marks(shown: Iterable[str]) -> Iterator[str]:
    return (f"{mark}  {meaning}" for mark, meaning in _MEANINGS.items() if mark in shown)


def letters_of(host: HostCells) -> dict[str, str]:
    """Return a letter for each consumer: first those with CPUs of their own, then those in cells.

    >>> from resource_objects.resources.numa import HostCell, NUMATopologyInventory
    >>> cells = NUMATopologyInventory([HostCell(0, memory_mb=1)])
    >>> many_jobs = tuple((f"job-{number:02}", {}) for number in range(28))
    >>> list(letters_of(HostCells("box", cells, ((),), outside_cells=many_jobs)).values())[24:]
    ['Y', 'Z', 'AA', 'AB']
    """
    cells = [user for holders in host.holders for user in holders]
    pinned = {user.consumer for user in cells if user.cpus or user.idle}
    inside = {user.consumer for user in cells}
    consumers = inside.union(name for name, _ in host.outside_cells)
    ordered = sorted(consumers, key=lambda name: (name not in pinned, name not in inside, name))
    return {name: _letter(number) for number, name in enumerate(ordered)}


def _letter(number: int) -> str:
    more, last = divmod(number, 26)
    return (_letter(more - 1) if more else "") + chr(ord("A") + last)


def consumer_lines(host: HostCells, letters: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each consumer: its letter, its name, and what it holds of the host."""
    elsewhere = dict(host.outside_cells)
    for name, letter in letters.items():
        users = [user for holders in host.holders for user in holders if user.consumer == name]
        parts = list(allocated_parts(users))
        if name in elsewhere:
            amounts = ", ".join(f"{kind} {amount}" for kind, amount in elsewhere[name].items())
            parts.append(f"of the host, in no cell: {amounts}")
        yield f"{letter}  {name}: {'; '.join(parts)}"


def allocated_parts(users: Sequence[CellUser]) -> Iterator[str]:
    """Yield the allocations of a consumer in some cells, summed.

    >>> first, second = CellUser("job-1", cpus=(4,), idle=(12,)), CellUser("job-1", cpus=(5,))
    >>> list(allocated_parts([first, second]))
    ['CPUs 4-5', '12 left empty']
    """
    cpus = [cpu for user in users for cpu in user.cpus]
    if cpus:
        yield f"{'CPU' if len(cpus) == 1 else 'CPUs'} {CPUSet(cpus).text(', ')}"
    idle = [cpu for user in users for cpu in user.idle]
    if idle:
        yield f"{CPUSet(idle).text(', ')} left empty"
    pages = Counter[int]()
    for user in users:
        pages.update(dict(user.pages))
    counts = {
        "dedicated CPU": sum(user.loose for user in users),
        "shared vCPU": sum(user.vcpus for user in users),
    }
    yield from (base.many(count, word) for word, count in counts.items() if count)
    memory = sum(user.memory_mb for user in users)
    if memory:
        yield f"{memory} MiB"
    yield from (
        f"{base.many(count, 'page')} of {show_kib(size)}" for size, count in sorted(pages.items())
    )


#: A drawing is not wider than that, however wide the terminal is.
MOST_WIDTH = 120


def _holders(users: Iterable[CellUser]) -> base.Cell:
    """Return the consumers of a cell: mappings for programs, a line each for people."""
    return base.Cell(
        list(users),
        lambda users: "\n".join(
            f"{user.consumer}: {'; '.join(allocated_parts([user]))}" for user in users
        ),
        lambda users: [user.to_dict() for user in users],
    )


def _cores(cores: Iterable[Iterable[int]]) -> base.Cell:
    """Return the threads of cores: lists of CPUs for programs, threads joined by + for people."""
    return base.Cell(
        list(map(list, cores)), lambda cores: ", ".join("+".join(map(str, core)) for core in cores)
    )


def _huge_pages(pools: Iterable[PageFigures]) -> base.Cell:
    """Return huge pages by size: mappings of figures for programs, one line each for people."""
    return base.Cell(
        list(pools),
        lambda pools: "\n".join(map(_pages, pools)),
        lambda pools: list(map(dataclasses.asdict, pools)),
    )


def _pages(figures: PageFigures) -> str:
    """Return huge pages of one size in words.

    >>> _pages(PageFigures(2048, total=1024, reserved=24, used=1))
    '1024 pages of 2 MiB: 24 reserved, 1 used'
    """
    counts = {"reserved": figures.reserved, "used": figures.used}
    counted = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    text = f"{base.many(figures.total, 'page')} of {show_kib(figures.size_kib)}"
    return f"{text}: {counted}" if counted else text


# --- which host ---------------------------------------------------------------------------------


def stored_cells(command: base.Command, host: str) -> HostCells:
    """Return the cells of a host of the ledger.

    :raises NotFound: if the ledger does not have the host
    :raises Refused: if the host has no cells
    """
    with command.open_ledger() as ledger:
        cells = read_cells(ledger, host)
    if cells is None:
        raise base.Refused(
            f"{host} has no NUMA cells in the ledger", ["host sync --numa adds them"]
        )
    return cells


def cells_here(
    command: base.Command, machine: Machine, args: Namespace
) -> tuple[HostCells | None, str]:
    """Return the cells of this machine, from the ledger or from discovery, and a note.

    None if the machine has no cells. A ledger is opened only if it exists.
    """
    names = ("shared", "dedicated", "reserved_pages")
    options = {name: getattr(args, name) for name in names if getattr(args, name)}
    inventory = numa_inventory(machine, HostSettings(**options))
    host = machine.hostname or "host"
    discovered = None if inventory is None else HostCells.unused(host, inventory)
    if options:
        return discovered, "host sync --numa would store this."
    if args.root != "/":
        return discovered, "These are facts."
    if machine.hostname and _has_ledger(command.app.options.database):
        with command.open_ledger() as ledger:
            try:
                cells = read_cells(ledger, machine.hostname)
            except exceptions.NotFound as error:
                if not error.is_about("provider"):
                    raise
            else:
                if cells is not None:
                    return cells, ""
                remark = "the ledger does not have them: host sync --numa adds them."
                return discovered, f"These are facts; {remark}"
    return discovered, "These are facts; host sync --numa adds them."


def _has_ledger(option: str | None, environ: Mapping[str, str] = os.environ) -> bool:
    """Return True if a ledger is named, or the default one exists."""
    if option or environ.get(base.VARIABLE):
        return True
    try:
        return base.default_path(environ).exists()
    except exceptions.DatabaseError as error:
        if not error.is_about("unavailable"):
            raise
        return False


# --- showing them -------------------------------------------------------------------------------


def cell_rows(host: HostCells | None) -> Iterator[Sequence[Any]]:
    """Yield a row for each cell, then one for allocations outside of all cells, if any."""
    if host is None:
        return
    for cell, figures, holders in zip(
        host.inventory.cells, host.figures(), host.holders, strict=True
    ):
        yield (
            cell.id,
            base.optional(cell.socket),
            base.ids(cell.cpus),
            _cores(cores_of(cell)),
            base.ids(cell.shared),
            figures.shared_used,
            figures.shared_capacity,
            base.ids(cell.dedicated),
            figures.dedicated_used,
            cell.memory_mb,
            figures.memory_used_mb,
            figures.memory_capacity_mb,
            _huge_pages(figures.pages),
            base.listed(far for _, far in cell.distances),
            base.listed(sorted(cell.physnets)),
            cell.tunneled,
            _holders(holders),
        )
    if host.outside_cells:
        yield (*_NO_CELL, _holders(host.holders_outside_cells()))


#: The row without a cell has no figures of its own.
_NO_CELL = (
    *(base.optional(None), base.optional(None), base.ids([]), _cores([])),
    *(base.ids([]), base.optional(None), base.optional(None)),
    *(base.ids([]), base.optional(None)),
    *(base.optional(None), base.optional(None), base.optional(None)),
    *(_huge_pages([]), base.listed([]), base.listed([]), base.optional(None)),
)


def terminal_drawing(host: HostCells | None, note: str, glyphs: Glyphs) -> str:
    """Return the drawing of the cells, for this terminal, with a note below."""
    width = min(shutil.get_terminal_size().columns, MOST_WIDTH)
    drawn = "no NUMA cells" if host is None else numa_drawing(host, glyphs, width)
    return "\n\n".join(filter(None, (drawn, note)))
