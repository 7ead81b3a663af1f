"""The base classes of commands: the ledger, the output, and columns as data for programs."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import errno
import getpass
import os
import pathlib
import re
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import cliff.command
import cliff.lister
import cliff.show
from cliff.columns import FormattableColumn

from resource_objects import exceptions

if TYPE_CHECKING:
    from resource_objects.cli.render import Glyphs
    from resource_objects.host.machine import Machine
    from resource_objects.ledger import Ledger
    from resource_objects.reasons import Reason
    from resource_objects.resources import Inventories
    from resource_objects.resources.records import InventoryRecord


#: The columns and rows of a list.
Table: TypeAlias = tuple[Sequence[str], Iterable[Sequence[Any]]]


class Refused(Exception):
    """A search without candidates, which is not an error. ``reasons`` are lines of text."""

    #: exit status
    status = 1

    def __init__(self, answer: str, reasons: Iterable[str]) -> None:
        super().__init__(answer)
        self.reasons = tuple(reasons)


class Busy(Refused):
    """A refusal for now: the request would fit after other consumers release resources."""

    status = 75  # EX_TEMPFAIL of sysexits.h


class SearchCutShort(Refused):
    """The answer is neither yes nor no: the budget of a search ran out."""

    status = 3


class Misused(Exception):
    """The arguments are invalid."""


@contextlib.contextmanager
def misused() -> Iterator[None]:
    """Let bad input of the block be a mistake in the arguments, with their exit status.

    :raises Misused: for bad input, from it
    """
    try:
        yield
    except exceptions.InvalidInput as error:
        raise Misused(str(error)) from error


#: Commands that refuse a SQLite file that does not exist: they write nothing to an empty ledger, so
#: the name of the file is probably mistyped. Every other command, also one of a plug-in, may create
#: the file with its first write. Add a new command that only reads.
COMMANDS_THAT_NEED_A_FILE = frozenset(
    {
        *("host show", "device list", "device show"),
        *("candidates", "allocation candidate list", "explain", "what-if", "how-many", "report"),
        *("when", "schedule", "waiting", "consumer list", "consumer show"),
        *("allocation show", "allocation list", "usage", "usage hosts", "usage total"),
        *("usage between", "mine", "provider list", "provider show", "provider tree"),
        *("provider usage show", "provider inventory list", "provider trait list"),
        *("provider aggregate list", "statistic list", "class list", "trait list"),
        *("aggregate list", "server group list", "server group show", "pool list"),
        *("export", "audit", "changes"),
    }
)


class Command(cliff.command.Command):
    """Base of the commands; mixed into those that list and show."""

    #: the columns of the output, for ``-c`` and for programs
    columns: ClassVar[tuple[str, ...]] = ()
    #: those that there are instead with an option
    columns_with: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def get_epilog(self) -> str:
        """Return the end of the help: the columns.

        cliff's own version searches all installed distributions, which takes a fifth of a second.
        """
        columns_by_option = {
            "": self.columns,
            **{f" with {o}": columns for o, columns in self.columns_with.items()},
        }
        return " ".join(
            f"Columns{o}: {', '.join(columns)}."
            for o, columns in columns_by_option.items()
            if columns
        )

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        self.add_arguments(parser)
        return parser

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command; by default none."""

    def open_ledger(self, actor: str | None = None) -> Ledger:
        """Open the ledger of the options.

        :param actor: the actor of writes in the change feed; None: the logged-in user
        """
        must_exist = self.cmd_name in COMMANDS_THAT_NEED_A_FILE
        return open_ledger(self.app.options.database, actor=actor or login(), must_exist=must_exist)

    def say(self, text: str) -> None:
        """Print a line, or several."""
        self.app.stdout.write(f"{text}\n")

    def machine(self, parsed_args: argparse.Namespace) -> Machine:
        """Return this machine or a captured one, and print the findings of the discovery.

        :raises DiscoveryError: for a finding, if the option --strict is set
        """
        from resource_objects.host.discovery import discover

        root = getattr(parsed_args, "root", "/")
        machine = discover(root=root, strict=parsed_args.strict)
        self.tell_findings(machine)
        return machine

    def tell_findings(self, machine: Machine) -> None:
        """Print the parts of a machine that could not be read."""
        for finding in machine.findings:
            self.app.stderr.write(f"resource-objects: not read: {finding}\n")

    def width(self, max_width: int = 0) -> int | None:
        """Return the maximum width of a line: that of the option or the terminal; None if there is
        neither.
        """
        if max_width > 0:
            return max_width
        return shutil.get_terminal_size().columns if self.app.stdout.isatty() else None

    @property
    def glyphs(self) -> Glyphs:
        """The characters that trees are drawn with, as far as the output's encoding has them."""
        from resource_objects.cli import render

        return render.glyphs_for(self.app.stdout.encoding)


def add_name(
    parser: argparse.ArgumentParser, *, generation: bool = False
) -> argparse.ArgumentParser:
    """Add the argument that names a provider, and the option for the generation it was read at."""
    parser.add_argument("name", metavar="PROVIDER", help="name or uuid")
    if generation:
        parser.add_argument(
            "--generation", metavar="N", type=int, help="refuse if it was changed since this one"
        )
    return parser


def add_actor(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the option of the actor; the default is the user."""
    parser.add_argument(
        "--actor", metavar="NAME", default=login(), help="the operator (default: your user name)"
    )
    return parser


def login() -> str | None:
    """Return the name of the user who is logged in, None for a user without one."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def read_input(name: str) -> bytes:
    """Return the content of a file, or of the standard input for ``-``.

    The result of a too long file is one byte too long: the parser refuses more than
    :data:`~resource_objects.providers.serialization.MAX_LENGTH` characters.

    :raises Misused: if it cannot be read, or is not a regular file, such as a device without an
        end or a pipe without a writer
    """
    from resource_objects.providers.serialization import MAX_LENGTH

    if name == "-":
        stream = getattr(sys.stdin, "buffer", None)
        if stream is None:  # a stream of text, in place of the process's own
            return sys.stdin.read(MAX_LENGTH + 1).encode()
        return bytes(stream.read(MAX_LENGTH + 1))
    path = pathlib.Path(name)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise Misused(f"{name} is no regular file; pipe it into -")
        with path.open("rb") as file:
            return file.read(MAX_LENGTH + 1)
    except OSError as error:
        raise Misused(f"{name} cannot be read: {error.strerror or error}") from error


def records_of(inventories: Inventories) -> list[InventoryRecord]:
    """Return the figures of inventories, used included, one record for each class."""
    return [record for _, inventory in inventories.by_name() for record in inventory.to_records()]


class Text(tuple[str, ...]):
    """Lines of text that a command prints in place of a list."""

    __slots__ = ()

    @classmethod
    def of(cls, text: str) -> Text:
        """Return the lines of a text."""
        return cls(text.splitlines())


class Drawing(Text):
    """Lines that are cut where the terminal ends, for a wrapped one would spoil the picture."""

    __slots__ = ()


def _fit(command: Any, parsed_args: argparse.Namespace) -> None:
    """Have a table printed as wide as the terminal is."""
    if parsed_args.formatter == "table":
        from resource_objects.cli.fitting import FittingTable

        max_width = parsed_args.max_width
        command.formatter = FittingTable(
            shutil.get_terminal_size().columns
            if parsed_args.fit_width and max_width <= 0
            else command.width(max_width)
        )


class Lister(Command, cliff.lister.Lister):
    """Base of the commands that list.

    One of :attr:`in_brief` finds in :attr:`is_brief` whether it is to be brief.
    """

    #: whether the output is brief or drawn, unless a format or columns are specified
    in_brief: ClassVar[bool] = False
    is_brief = False

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        if self.in_brief:
            parser.set_defaults(formatter=None)  # so that run() knows whether one is specified
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """List them, having noted whether in brief."""
        if self.in_brief:
            self.is_brief = not parsed_args.formatter and not parsed_args.columns
            parsed_args.formatter = parsed_args.formatter or "table"
        status: int = super().run(parsed_args)
        return status

    #: the sentence in place of a table without rows
    nothing: str = "nothing"

    def produce_output(
        self,
        parsed_args: argparse.Namespace,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
    ) -> int:
        """Print the list in the requested format; or a text, if there is one instead."""
        if isinstance(data, Drawing):
            from resource_objects.cli.fitting import cut

            width = self.width(parsed_args.max_width)
            data = Text(cut(line, width) for line in data)
        if isinstance(data, Text):
            self.say("\n".join(data))
            return 0
        rows = [cells(row, parsed_args.formatter) for row in data]
        if not rows and parsed_args.formatter == "table" and not parsed_args.print_empty:
            self._generate_columns_and_selector(parsed_args, column_names)  # refuses unknown ones
            self.say(self.nothing)
            return 0
        _fit(self, parsed_args)
        status: int = super().produce_output(parsed_args, column_names, rows)
        return status


class ShowOne(Command, cliff.show.ShowOne):
    """Base of the commands that show one thing."""

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]
    ) -> int:
        """Print the row in the requested format."""
        shown = cells(data, parsed_args.formatter)
        _fit(self, parsed_args)
        status: int = super().produce_output(parsed_args, column_names, shown)
        return status


#: Formats whose values do not depend on the presentation.
_OF_DATA = ("json", "yaml")
#: Formats for programs that know text alone.
_OF_TEXT = ("csv", "shell", "value")
#: The characters that begin a formula in a spreadsheet.
_FORMULA = ("=", "+", "-", "@")


def cells(row: Iterable[Any], formatter: str) -> tuple[Any, ...]:
    """Return the cells of a row as a format can say them.

    A line break within a name is shown, for it would begin another row. Where there is only text, a
    value that is not set is empty, and in CSV text that a spreadsheet would calculate is quoted.

    >>> cells(["job\\n2", Maybe(None), -1], "csv"), cells(["=1+1", None], "csv")
    (('job\\\\n2', '', -1), ("'=1+1", ''))
    """
    if formatter in _OF_DATA:
        return tuple(row)
    return tuple(_cell(value, formatter) for value in row)


def _cell(value: Any, formatter: str) -> Any:
    if formatter in _OF_TEXT:
        plain = value.machine_readable() if isinstance(value, FormattableColumn) else value
        if plain is None:
            return ""
        value = plain if isinstance(plain, str) else value
    if not isinstance(value, str):
        return value
    text = value.replace("\n", "\\n")
    return f"'{text}" if formatter == "csv" and text.startswith(_FORMULA) else text


class Many(FormattableColumn[list[Any]]):
    """Several things: a list for programs, separated by commas for people."""

    def human_readable(self) -> str:
        """Return the things, separated by commas."""
        return ", ".join(map(str, self._value))


class Lines(Many):
    """Several lines of text: a list for programs, one below the other for people."""

    def human_readable(self) -> str:
        """Return the lines."""
        return "\n".join(map(str, self._value))


class Pairs(FormattableColumn[dict[str, Any]]):
    """Names with values: a mapping for programs, ``name value, ...`` for people."""

    def human_readable(self) -> str:
        """Return the pairs, separated by commas."""
        return ", ".join(f"{name} {value}" for name, value in self._value.items())


class Dicts(FormattableColumn[list[dict[str, Any]]]):
    """Records: a list of mappings for programs, one line each for people."""

    def human_readable(self) -> str:
        """Return the values of each record, one record per line; lists by commas."""
        return "\n".join(" ".join(map(_as_text, record.values())) for record in self._value)


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


class Maybe(FormattableColumn[Any]):
    """A value that may be missing: None for programs, nothing for people."""

    def human_readable(self) -> str:
        """Return the value, if there is one."""
        return "" if self._value is None else str(self._value)


class Figure(Maybe):
    """A number that may be missing, on the right of its column as other numbers are."""

    is_figure = True  #: read by :mod:`resource_objects.cli.fitting`


class Age(FormattableColumn[Any]):
    """The age of something, ``(time, now)``; for programs the time. Empty if the time is None."""

    def human_readable(self) -> str:
        """Return the time since then, as people say it."""
        time, now = self._value
        return "" if time is None else age_text(now - time)

    def machine_readable(self) -> str | None:
        """Return the time itself, to the second."""
        time, _ = self._value
        return None if time is None else str(time.isoformat(timespec="seconds"))


class Ago(Age):
    """The time since an event, ``(time, now)``; for programs the time of the event."""

    def human_readable(self) -> str:
        """Return the time since then, as people say it."""
        age = super().human_readable()
        return age and f"{age} ago"


class Expiry(Age):
    """The time until a claim expires or since then, ``(time, now)``; for programs the time."""

    def human_readable(self) -> str:
        """Return the time until then, or that the claim has expired and since when."""
        time, now = self._value
        if time is not None and time >= now:
            return age_text(time - now)
        age = super().human_readable()
        return age and f"expired {age} ago"


def age_text(age: datetime.timedelta) -> str:
    """Return a time between two others as people say it, in whole units, rounded down.

    >>> hour = datetime.timedelta(hours=1)
    >>> [age_text(one * hour) for one in (0, 0.5, 3.9, 47, 49, 24 * 20)]
    ['0 s', '30 min', '3 h', '47 h', '2 days', '20 days']
    """
    seconds = max(0, int(age.total_seconds()))
    for length, unit in _UNITS:
        if seconds >= 2 * length or (length < _DAY and seconds >= length):
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


_DAY = 24 * 60 * 60
_UNITS = ((_DAY, "days"), (60 * 60, "h"), (60, "min"))


def expired_lines(
    ledger: Ledger, reasons: Iterable[Reason], option: str = "claim --release-expired"
) -> list[str]:
    """Return a line for each consumer of a refusal whose claim has expired.

    :param option: the option that releases it; empty if it was in use already
    """
    now = ledger.now()
    hint = f"; {option} releases it" if option else ""
    return [
        f"{claim.consumer}: its claim expired {age_text(now - claim.expires_at)} ago{hint}"
        for claim in ledger.expired(now, reasons=reasons)
        if claim.expires_at is not None
    ]


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
    from resource_objects.resources.numa.cpuset import CPUSet

    return str(CPUSet(ids))


def many(count: int, word: str) -> str:
    """Return a count with its word.

    >>> many(1, "core"), many(2, "core")
    ('1 core', '2 cores')
    """
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


#: Names the ledger where ``--database`` does not.
VARIABLE = "RESOURCE_OBJECTS_DATABASE"
_HOW_ELSE = f"choose another ledger with --database or {VARIABLE}"


def default_path(environ: Mapping[str, str]) -> pathlib.Path:
    """Return the file of the user's own ledger, after the XDG base directory specification.

    >>> str(default_path({"XDG_DATA_HOME": "/data"}))
    '/data/resource_objects/ledger.db'

    :raises DatabaseError: if the user has no home
    """
    data_home = environ.get("XDG_DATA_HOME", "")
    if os.path.isabs(data_home):  # the specification has relative ones ignored
        return pathlib.Path(data_home, "resource_objects", "ledger.db")
    try:
        home = pathlib.Path(environ["HOME"]) if environ.get("HOME") else pathlib.Path.home()
    except RuntimeError as error:
        raise exceptions.DatabaseError(
            "unavailable", "the ledger of this user", f"no home; {_HOW_ELSE}"
        ) from error
    return home / ".local" / "share" / "resource_objects" / "ledger.db"


def database_url(option: str | None, environ: Mapping[str, str]) -> str:
    """Return the URL of the ledger to open; the default one is made for its owner alone.

    :raises DatabaseError: if it cannot be made; or if others could put theirs in its place, because
        they can write to its directory, or what is there is no file of this user's
    """
    named = option or environ.get(VARIABLE)
    if named:
        return named
    path = default_path(environ)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owned(path.parent)
        # SQLite gives its further files the mode of this one; O_NOFOLLOW refuses a planted link
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise exceptions.DatabaseError("unavailable", str(path), f"no file; {_HOW_ELSE}")
        finally:
            os.close(descriptor)
    except OSError as error:
        culprit = path.parent if error.errno not in (errno.ELOOP, errno.EISDIR) else path
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise exceptions.DatabaseError(
            "unavailable", str(culprit), f"{reason}; {_HOW_ELSE}"
        ) from error
    return f"sqlite:///{path}"


def _check_owned(directory: pathlib.Path) -> None:
    """Refuse a directory to which others can write: they could put a file of theirs in place."""
    status = directory.stat()
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        reason = f"others can write to it; {_HOW_ELSE}"
        raise exceptions.DatabaseError("unavailable", str(directory), reason)


def open_ledger(
    option: str | None,
    environ: Mapping[str, str] | None = None,
    actor: str | None = None,
    *,
    must_exist: bool = False,
) -> Ledger:
    """Open the ledger that the option, the environment or the default names.

    :param must_exist: True to refuse a SQLite file that does not exist
    :raises DatabaseError: if the file has to exist and does not
    """
    from resource_objects.ledger import connect

    url = database_url(option, os.environ if environ is None else environ)
    ledger = connect(url) if actor is None else connect(url, actor=actor)
    if must_exist and ledger.backend.is_missing():
        ledger.close()
        path = url.removeprefix("sqlite:///")
        reason = "there is no such file; `db upgrade` and commands that write create it"
        raise exceptions.DatabaseError("unavailable", path, reason)
    return ledger


_DURATION = re.compile(
    r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?\Z", re.ASCII | re.IGNORECASE
)
_IN_SECONDS = (86400, 3600, 60, 1)
#: The maximum duration in seconds: ten years.
_LONGEST = 10 * 365 * 86400


def duration(text: str) -> datetime.timedelta:
    """Return a duration: ``90`` or ``90s``, ``10m``, ``1h30m``, ``2d``.

    :raises argparse.ArgumentTypeError: naming the text, if it is not a duration above 0 of at most
        ten years

    >>> print(duration("1h30m"), duration("0.5"))
    1:30:00 0:00:00.500000
    """
    match = _DURATION.match(text)
    parts = [float(part or 0) for part in match.groups()] if match and len(text) <= 32 else [0.0]
    seconds = sum(part * unit for part, unit in zip(parts, _IN_SECONDS, strict=False))
    if not 0 < seconds <= _LONGEST:
        expected = "a time above 0 such as 90s, 10m, 1h30m or 2d, of at most ten years"
        raise argparse.ArgumentTypeError(f"got {text!r}, expected {expected}")
    return datetime.timedelta(seconds=seconds)
