"""What ``host show --numa`` shows: the cells of which host, as rows and as a drawing."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cliff.columns import FormattableColumn

from resource_objects import exceptions
from resource_objects.cli import database, numa_drawing
from resource_objects.cli.base import Command, Ids, Many, Maybe, Refused, many
from resource_objects.cli.numa_legend import held_parts
from resource_objects.cli.render import Glyphs
from resource_objects.host.cells import HostCells, PageFigures, cores_of, read_cells
from resource_objects.host.numa import numa_inventory
from resource_objects.resources.numa.words import show_kib

if TYPE_CHECKING:
    from resource_objects.host.facts import Machine

#: A drawing is not wider than that, however wide the terminal is.
MOST_WIDTH = 120


class Holders(FormattableColumn[Any]):
    """Who holds what of a cell: mappings for programs, one line each for people."""

    def human_readable(self) -> str:
        """Return what each holds."""
        return "\n".join(f"{one.consumer}: {'; '.join(held_parts([one]))}" for one in self._value)

    def machine_readable(self) -> list[dict[str, Any]]:
        """Return what each holds, as plain data."""
        return [one.to_dict() for one in self._value]


class Cores(FormattableColumn[list[list[int]]]):
    """The threads of cores: lists of CPUs for programs, threads joined by + for people."""

    def human_readable(self) -> str:
        """Return the cores, each with its threads."""
        return ", ".join("+".join(map(str, core)) for core in self._value)


class HugePages(FormattableColumn[Any]):
    """Huge pages by size: mappings of figures for programs, one line each for people."""

    def human_readable(self) -> str:
        """Return how many there are, and of these how many are used or reserved."""
        return "\n".join(map(_pages, self._value))

    def machine_readable(self) -> list[dict[str, int]]:
        """Return the figures, as plain data."""
        return [dataclasses.asdict(one) for one in self._value]


def _pages(figures: PageFigures) -> str:
    """Return huge pages of one size in words.

    >>> _pages(PageFigures(2048, total=1024, reserved=24, used=1))
    '1024 pages of 2 MiB: 24 reserved, 1 used'
    """
    counts = {"reserved": figures.reserved, "used": figures.used}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    text = f"{many(figures.total, 'page')} of {show_kib(figures.size_kib)}"
    return f"{text}: {said}" if said else text


# --- which host ---------------------------------------------------------------------------------


def kept_cells(command: Command, parsed_args: argparse.Namespace) -> HostCells:
    """Return the cells of the host of the ledger that is named.

    :raises InvalidInput: if a setting is given, for what is kept has its own
    :raises ProviderNotFound: if it is not kept
    :raises Refused: if it is kept without cells
    """
    host = parsed_args.numa
    for name, value in _settings(parsed_args).items():
        raise exceptions.InvalidInput(
            f"--{name.replace('_', '-')}", value, f"nothing, for {host} is shown as it is kept"
        )
    with command.open_ledger() as ledger:
        cells = read_cells(ledger, host)
    if cells is None:
        raise Refused(f"{host} is kept without NUMA cells", ["host sync --numa keeps them"])
    return cells


def _settings(parsed_args: argparse.Namespace) -> dict[str, Any]:
    """Return what is said of the machine, as arguments of its inventory."""
    names = ("shared", "dedicated", "reserved_pages")
    return {name: getattr(parsed_args, name) for name in names if getattr(parsed_args, name)}


def cells_here(command: Command, parsed_args: argparse.Namespace) -> tuple[HostCells | None, str]:
    """Return the cells of this machine, as they are kept or else as they are found, and a note.

    None if the machine has no cells. A ledger is looked into only if there is one.
    """
    from resource_objects.host.discovery import discover

    machine = discover(root=parsed_args.root)
    settings = _settings(parsed_args)
    if settings:
        return _found(machine, settings), "This is what host sync --numa would keep."
    if parsed_args.root != "/":
        return _found(machine, settings), "These are facts."
    note = "These are facts; host sync --numa keeps them."
    if machine.hostname and _has_ledger(command.app.options.database):
        cells, is_kept = _as_kept(command, machine.hostname)
        if cells is not None:
            return cells, ""
        if is_kept:
            note = "These are facts; the host is kept without them: host sync --numa adds them."
    return _found(machine, settings), note


def _has_ledger(option: str | None, environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether a ledger is named, or the default one is there."""
    if option or environ.get(database.VARIABLE):
        return True
    try:
        return database.default_path(environ).exists()
    except exceptions.DatabaseUnavailable:
        return False


def _as_kept(command: Command, host: str) -> tuple[HostCells | None, bool]:
    """Return the cells of a host as they are kept, and whether the host is kept at all."""
    with command.open_ledger() as ledger:
        try:
            return read_cells(ledger, host), True
        except exceptions.ProviderNotFound:
            return None, False


def _found(machine: Machine, settings: Mapping[str, Any]) -> HostCells | None:
    inventory = numa_inventory(machine, **settings)
    return None if inventory is None else HostCells.unused(machine.hostname or "host", inventory)


# --- showing them -------------------------------------------------------------------------------


def rows(host: HostCells | None) -> Iterator[Sequence[Any]]:
    """Yield a row for each cell, then one for what is held of the host in no cell, if anything."""
    if host is None:
        return
    for cell, figures, holders in zip(
        host.inventory.cells, host.figures(), host.holders, strict=True
    ):
        yield (
            cell.id,
            Maybe(cell.socket),
            Ids(list(cell.cpus)),
            Cores(list(map(list, cores_of(cell)))),
            Ids(list(cell.shared)),
            figures.shared_used,
            figures.shared_capacity,
            Ids(list(cell.dedicated)),
            figures.dedicated_used,
            cell.memory_mb,
            figures.memory_used_mb,
            figures.memory_capacity_mb,
            HugePages(list(figures.pages)),
            Many([far for _, far in cell.distances]),
            Many(sorted(cell.physnets)),
            cell.tunneled,
            Holders(list(holders)),
        )
    if host.elsewhere:
        yield (*_NO_CELL, Holders(list(host.in_no_cell())))


#: What the row of no cell says: there are no figures of its own.
_NO_CELL = (
    *(Maybe(None), Maybe(None), Ids([]), Cores([])),
    *(Ids([]), Maybe(None), Maybe(None)),
    *(Ids([]), Maybe(None)),
    *(Maybe(None), Maybe(None), Maybe(None)),
    *(HugePages([]), Many([]), Many([]), Maybe(None)),
)


def drawing(host: HostCells | None, note: str, glyphs: Glyphs) -> str:
    """Return the drawing of the cells, for this terminal, with a note below."""
    width = min(shutil.get_terminal_size().columns, MOST_WIDTH)
    drawn = "no NUMA cells" if host is None else numa_drawing.numa_drawing(host, glyphs, width)
    return "\n\n".join(filter(None, (drawn, note)))
