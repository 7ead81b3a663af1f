"""What the commands share: opening the ledger, printing, columns that are data for programs."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import cliff.command
import cliff.lister
import cliff.show
from cliff.columns import FormattableColumn

from resource_objects.cli import database

if TYPE_CHECKING:
    from resource_objects.cli.render import Glyphs
    from resource_objects.ledger import Ledger
    from resource_objects.resources import Inventories
    from resource_objects.resources.records import InventoryRecord


class Refused(Exception):
    """The answer is no, which is no error; ``reasons`` are lines that say why."""

    #: exit status
    status = 1

    def __init__(self, answer: str, reasons: Iterable[str]) -> None:
        super().__init__(answer)
        self.reasons = tuple(reasons)


class CutShort(Refused):
    """The answer is neither yes nor no: the budget of a search ran out."""

    status = 3


class Misused(Exception):
    """What was said on the command line cannot be."""


@contextlib.contextmanager
def misused() -> Iterator[None]:
    """Let bad input of the block be a mistake in the arguments, with their exit status.

    :raises Misused: for bad input, from it
    """
    from resource_objects import exceptions

    try:
        yield
    except exceptions.InvalidInput as error:
        raise Misused(str(error)) from error


class Command(cliff.command.Command):
    """Base of the commands; mixed into those that list and show."""

    def get_epilog(self) -> str:
        """Return what stands at the end of the help.

        cliff's own looks through everything that is installed, which takes a fifth of a second.
        """
        return self._epilog or ""

    def open_ledger(self) -> Ledger:
        """Open the ledger the user chose."""
        return database.open_ledger(self.app.options.database)

    def say(self, text: str) -> None:
        """Print a line, or several."""
        self.app.stdout.write(f"{text}\n")

    @property
    def glyphs(self) -> Glyphs:
        """What trees are drawn with, where the output goes."""
        from resource_objects.cli import render

        return render.glyphs_for(self.app.stdout.encoding)


def add_name(
    parser: argparse.ArgumentParser, *, generation: bool = False
) -> argparse.ArgumentParser:
    """Add the argument that names a provider, and the option for the generation it was read at."""
    parser.add_argument("name", metavar="NAME", help="name or uuid")
    if generation:
        parser.add_argument(
            "--generation", metavar="N", type=int, help="refuse if it was changed since this one"
        )
    return parser


def records_of(inventories: Inventories) -> list[InventoryRecord]:
    """Return the figures of inventories, used included, one record for each class."""
    return [record for _, one in inventories.by_name() for record in one.to_records()]


class Lister(Command, cliff.lister.Lister):
    """Base of the commands that list."""


class ShowOne(Command, cliff.show.ShowOne):
    """Base of the commands that show one thing."""


class Text(tuple[str, ...]):
    """What a command that may list prints instead of a list: lines."""

    __slots__ = ()

    @classmethod
    def of(cls, text: str) -> Text:
        """Return the lines of a text."""
        return cls(text.splitlines())


class ListerOrText(Lister):
    """Base of the commands that list, or print a text meant for people."""

    def produce_output(
        self,
        parsed_args: argparse.Namespace,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
    ) -> int:
        """Print the text, or the list in the format that was asked for."""
        if isinstance(data, Text):
            self.say("\n".join(data))
            return 0
        return super().produce_output(parsed_args, column_names, data)


class Many(FormattableColumn[list[Any]]):
    """Several things: a list for programs, separated by commas for people."""

    def human_readable(self) -> str:
        """Return the things, separated by commas."""
        return ", ".join(map(str, self._value))


class Pairs(FormattableColumn[dict[str, Any]]):
    """Names with values: a mapping for programs, ``name value, ...`` for people."""

    def human_readable(self) -> str:
        """Return the pairs, separated by commas."""
        return ", ".join(f"{name} {value}" for name, value in self._value.items())


class Dicts(FormattableColumn[list[dict[str, Any]]]):
    """Records: a list of mappings for programs, one line each for people."""

    def human_readable(self) -> str:
        """Return the values of each record, one record per line; lists by commas."""
        return "\n".join(" ".join(map(_said, record.values())) for record in self._value)


def _said(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


class Maybe(FormattableColumn[Any]):
    """A value that may be missing: None for programs, nothing for people."""

    def human_readable(self) -> str:
        """Return the value, if there is one."""
        return "" if self._value is None else str(self._value)


class Ids(FormattableColumn[list[int]]):
    """Ids, as the kernel lists them for people: ``0-3,8``."""

    def human_readable(self) -> str:
        """Return the runs of ids."""
        return runs_text(self._value)


def runs_text(ids: Iterable[int]) -> str:
    """Return ascending ids as the kernel lists them.

    >>> runs_text([0, 1, 2, 8])
    '0-2,8'
    """
    from resource_objects.resources.numa.cpus import format_cpus

    return format_cpus(ids)


def many(count: int, word: str) -> str:
    """Return a count with its word.

    >>> many(1, "core"), many(2, "core")
    ('1 core', '2 cores')
    """
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
