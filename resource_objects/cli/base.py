"""Commands declared as functions: their arguments, their ledger and their output.

:func:`command`, :func:`table` and :func:`record` make a command of a function. Its docstring is the
help, its arguments are declared by :func:`argument`, :func:`flag` and :func:`repeated`, and it is
called with the ledger and the parsed arguments::

    @table(argument("name", "PROVIDER", "name or uuid"), columns=("name",), reads=True)
    def list_traits(ledger, args):
        "List the traits of a provider."
        return [(name,) for name in sorted(ledger.provider(args.name).traits)]

A cell of a table is a plain value, or a :class:`Cell` if people and programs read different forms.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import errno
import getpass
import os
import pathlib
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import cliff.command
import cliff.lister
import cliff.show
from cliff.columns import FormattableColumn

from resource_objects import exceptions

if TYPE_CHECKING:
    from resource_objects.cli.render import Glyphs
    from resource_objects.ledger import Ledger
    from resource_objects.reasons import Reason
    from resource_objects.resources import Inventories
    from resource_objects.resources.records import InventoryRecord


Rows: TypeAlias = Iterable[Sequence[Any]]
#: Adds an argument to a parser, or to a group of one.
Argument: TypeAlias = Callable[[Any], object]


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


# --- arguments ------------------------------------------------------------------------------------


def argument(
    name: str | tuple[str, ...], metavar: str | None, help: str | None, **options: Any
) -> Argument:
    """Return an argument or option; ``options`` are those of argparse."""
    names = (name,) if isinstance(name, str) else name
    return lambda parser: parser.add_argument(*names, metavar=metavar, help=help, **options)


def flag(name: str, help: str, **options: Any) -> Argument:
    """Return an option without a value, False by default."""
    return lambda parser: parser.add_argument(name, action="store_true", help=help, **options)


def repeated(name: str | tuple[str, ...], metavar: str, help: str, **options: Any) -> Argument:
    """Return an option that may be repeated; its value is a list, by default an empty one."""
    return argument(name, metavar, help, action="append", **{"default": [], **options})


def exclusive(*arguments: Argument) -> Argument:
    """Return options of which at most one may be specified."""
    return lambda parser: add_to(parser.add_mutually_exclusive_group(), arguments)


def section(title: str, *arguments: Argument, description: str | None = None) -> Argument:
    """Return options with a heading of their own in the help."""
    return lambda parser: add_to(parser.add_argument_group(title, description), arguments)


def add_to(parser: Any, arguments: Iterable[Argument]) -> None:
    """Add arguments to a parser, or to a group of one."""
    for add in arguments:
        add(parser)


def actor(parser: Any) -> None:
    """Add the option of the actor of a write; the default is the user."""
    parser.add_argument(
        "--actor", metavar="NAME", default=login(), help="the operator (default: your user name)"
    )


PROVIDER = argument("name", "PROVIDER", "name or uuid")
GENERATION = argument("--generation", "N", "refuse if it was changed since this one", type=int)


# --- declarations ---------------------------------------------------------------------------------


@dataclasses.dataclass
class Answer:
    """The output of a command: rows, or a text in place of them, and the exit status."""

    rows: Rows = ()
    #: other columns than the declared ones
    columns: Sequence[str] | None = None
    text: str | None = None
    #: whether lines of the text are cut where the terminal ends, since a wrapped drawing is spoiled
    is_cut: bool = False
    #: another sentence in place of a table without rows
    empty: str | None = None
    status: int = 0
    #: called if the output cannot be written
    undo: Callable[[], object] | None = None


class Command(cliff.command.Command):
    """Base of the declared commands."""

    #: called with the ledger, or with this command if it opens the ledger itself
    function: ClassVar[Callable[..., Any]]
    arguments: ClassVar[tuple[Argument, ...]] = ()
    #: whether ``function`` is called with an open ledger
    opens: ClassVar[bool] = True
    #: whether a SQLite file that does not exist is refused: the command writes nothing to an empty
    #: ledger, so the name of the file is probably mistyped
    reads: ClassVar[bool] = False
    #: whether a terminal shows after some seconds that the command is still at work
    slow: ClassVar[bool] = False
    #: whether ``--`` and a program follow on the arguments
    program: ClassVar[bool] = False
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
        add_to(parser, self.arguments)
        return parser

    def open_ledger(self, actor: str | None = None) -> Ledger:
        """Open the ledger that the option, the environment or the default names.

        :param actor: the actor of writes in the change feed; None: the logged-in user
        :raises DatabaseError: if a SQLite file has to exist and does not
        """
        from resource_objects.ledger import connect

        url = database_url(self.app.options.database, os.environ)
        name = actor or login()
        ledger = connect(url) if name is None else connect(url, actor=name)
        if self.reads and ledger.backend.is_missing():
            ledger.close()
            path = url.removeprefix("sqlite:///")
            reason = "there is no such file; `db upgrade` and commands that write create it"
            raise exceptions.DatabaseError("unavailable", path, reason)
        return ledger

    def call(self, args: argparse.Namespace) -> Any:
        """Call the function; return its result, with rows that are read completely."""
        with contextlib.ExitStack() as stack:
            subject: Command | Ledger = self
            if self.opens:
                subject = stack.enter_context(self.open_ledger(getattr(args, "actor", None)))
            if self.slow:
                from resource_objects.cli.progress import Bar

                stack.enter_context(Bar(self.cmd_name or "", is_told=False))
            result = self.function(subject, args)
            if isinstance(result, Answer):
                result.rows = list(result.rows)
            return list(result) if isinstance(result, Iterator) else result

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        """Call the function, and print its result if that is text."""
        result = self.call(parsed_args)
        if isinstance(result, str):
            print(result)
        return result if isinstance(result, int) else 0


class Lister(Command, cliff.lister.Lister):
    """Base of the declared commands that print a table."""

    #: whether the output is brief or drawn, unless a format or columns are specified; then
    #: ``args.is_brief`` is True
    brief: ClassVar[bool] = False
    #: the sentence in place of a table without rows
    empty: ClassVar[str] = "nothing"
    _answer = Answer()

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        if self.brief:
            parser.set_defaults(formatter=None)  # so that run() knows whether one is specified
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the answer and return its status."""
        if self.brief:
            parsed_args.is_brief = not parsed_args.formatter and not parsed_args.columns
            parsed_args.formatter = parsed_args.formatter or "table"
        try:
            super().run(parsed_args)
            self.app.stdout.flush()
        except OSError:
            if self._answer.undo is not None:
                self._answer.undo()
            raise
        return self._answer.status

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        """Call the function and return the columns and rows of its answer."""
        result = self.call(parsed_args)
        self._answer = result if isinstance(result, Answer) else Answer(result)
        columns = self._answer.columns
        return self.columns if columns is None else columns, self._answer.rows

    def produce_output(
        self,
        parsed_args: argparse.Namespace,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
    ) -> int:
        """Print the rows in the requested format; or the text, if there is one instead."""
        if self._answer.text is not None:
            _print_text(self._answer, line_width(parsed_args.max_width))
            return 0
        rows = [cells(row, parsed_args.formatter) for row in data]
        if not rows and parsed_args.formatter == "table" and not parsed_args.print_empty:
            self._generate_columns_and_selector(parsed_args, column_names)  # refuses unknown ones
            print(self._answer.empty or self.empty)
            return 0
        _fit(self, parsed_args)
        status: int = super().produce_output(parsed_args, column_names, rows)
        return status


class ShowOne(Command, cliff.show.ShowOne):
    """Base of the declared commands that print one record: ``{column: value}``."""

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        """Call the function and return the columns and values."""
        result = self.call(parsed_args)
        return ((), result) if isinstance(result, Answer) else (tuple(result), result.values())

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Any
    ) -> int:
        """Print the record in the requested format; or the text, if there is one instead."""
        if isinstance(data, Answer):
            _print_text(data, None)
            return 0
        shown = cells(data, parsed_args.formatter)
        _fit(self, parsed_args)
        status: int = super().produce_output(parsed_args, column_names, shown)
        return status


def command(*arguments: Argument, **attributes: Any) -> Callable[..., type[Command]]:
    """Declare a command that prints the text that a function returns, if it returns one.

    :param attributes: further attributes of :class:`Command`, such as ``reads``
    """
    return _declared(Command, arguments, attributes)


def table(
    *arguments: Argument, columns: tuple[str, ...], **attributes: Any
) -> Callable[..., type[Command]]:
    """Declare a command that prints the rows, or the :class:`Answer`, that a function returns.

    :param attributes: further attributes of :class:`Lister`, such as ``empty``
    """
    return _declared(Lister, arguments, {"columns": columns, **attributes})


def record(
    *arguments: Argument, columns: tuple[str, ...], **attributes: Any
) -> Callable[..., type[Command]]:
    """Declare a command that prints the values by column that a function returns."""
    return _declared(ShowOne, arguments, {"columns": columns, **attributes})


def _declared(
    base: type[Command], arguments: tuple[Argument, ...], attributes: Mapping[str, Any]
) -> Callable[..., type[Command]]:
    def declare(function: Callable[..., Any], doc: str | None = None) -> type[Command]:
        namespace = {
            "__doc__": doc or function.__doc__,
            "__module__": function.__module__,
            "function": staticmethod(function),
            "arguments": arguments,
            **attributes,
        }
        return type(function.__name__, (base,), namespace)

    return declare


# --- output ---------------------------------------------------------------------------------------


def note(text: str) -> None:
    """Print a line on the standard error output."""
    print(text, file=sys.stderr)


def line_width(max_width: int = 0) -> int | None:
    """Return the maximum width of a line: that of the option or the terminal; None if there is
    neither.
    """
    if max_width > 0:
        return max_width
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def glyphs() -> Glyphs:
    """Return the characters that trees are drawn with, as far as the output's encoding has them."""
    from resource_objects.cli import render

    return render.glyphs_for(sys.stdout.encoding)


def drawing(lines: Iterable[str], **fields: Any) -> Answer:
    """Return the answer of a drawing, whose lines are cut where the terminal ends."""
    return Answer(text="\n".join(lines), is_cut=True, **fields)


def _print_text(answer: Answer, width: int | None) -> None:
    from resource_objects.cli.fitting import cut

    lines = (answer.text or "").splitlines()
    print("\n".join(cut(line, width) if answer.is_cut else line for line in lines))


def _fit(command: Any, parsed_args: argparse.Namespace) -> None:
    """Have a table printed as wide as the terminal is."""
    if parsed_args.formatter == "table":
        from resource_objects.cli.fitting import FittingTable

        max_width = parsed_args.max_width
        command.formatter = FittingTable(
            shutil.get_terminal_size().columns
            if parsed_args.fit_width and max_width <= 0
            else line_width(max_width)
        )


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

    >>> cells(["job\\n2", optional(None), -1], "csv"), cells(["=1+1", None], "csv")
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


class Cell(FormattableColumn[Any]):
    """A value with a text for people and plain data for programs.

    :param text: returns the text of the value
    :param plain: returns the plain data of the value; by default the value itself
    :param is_figure: whether it is on the right of its column, as numbers are
    """

    def __init__(
        self,
        value: Any,
        text: Callable[[Any], str],
        plain: Callable[[Any], Any] | None = None,
        *,
        is_figure: bool = False,
    ) -> None:
        super().__init__(value)
        self._text, self._plain, self.is_figure = text, plain, is_figure

    def human_readable(self) -> str:
        """Return the text."""
        return self._text(self._value)

    def machine_readable(self) -> Any:
        """Return the plain data."""
        return self._value if self._plain is None else self._plain(self._value)


def listed(values: Iterable[Any]) -> Cell:
    """Return a list for programs, whose values people read with commas between."""
    return Cell(list(values), _with_commas)


def lines(values: Iterable[str]) -> Cell:
    """Return a list for programs, whose values people read one below the other."""
    return Cell(list(values), "\n".join)


def pairs(mapping: Mapping[str, Any]) -> Cell:
    """Return a mapping for programs, ``name value, ...`` for people."""
    return Cell(dict(mapping), _as_text)


def records(rows: Iterable[Mapping[str, Any]]) -> Cell:
    """Return a list of mappings for programs, whose values people read one mapping per line."""
    return Cell(
        list(rows), lambda rows: "\n".join(" ".join(map(_as_text, row.values())) for row in rows)
    )


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    return _with_commas(value) if isinstance(value, list) else str(value)


def _with_commas(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))


def optional(value: Any, *, is_figure: bool = False) -> Cell:
    """Return a value that may be missing: None for programs, nothing for people."""
    return Cell(value, lambda value: "" if value is None else str(value), is_figure=is_figure)


def figure(value: Any) -> Cell:
    """Return a number that may be missing, on the right of its column as other numbers are."""
    return optional(value, is_figure=True)


def _iso(value: tuple[datetime.datetime | None, datetime.datetime]) -> str | None:
    time, _ = value
    return None if time is None else time.isoformat(timespec="seconds")


def age(time: datetime.datetime | None, now: datetime.datetime, ending: str = "") -> Cell:
    """Return the age of something; for programs the time to the second. Empty without a time."""
    text = "" if time is None else age_text(now - time) + ending
    return Cell((time, now), lambda value: text, _iso)


def ago(time: datetime.datetime | None, now: datetime.datetime) -> Cell:
    """Return the time since an event; for programs the time of the event."""
    return age(time, now, " ago")


def expiry(time: datetime.datetime | None, now: datetime.datetime) -> Cell:
    """Return the time until a claim expires, or since then; for programs the time."""
    if time is None:
        return age(time, now)
    text = age_text(time - now) if time >= now else f"expired {age_text(now - time)} ago"
    return Cell((time, now), lambda value: text, _iso)


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


def ids(values: Iterable[int]) -> Cell:
    """Return ids, as the kernel lists them for people: ``0-3,8``."""
    return Cell(list(values), runs_text)


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
