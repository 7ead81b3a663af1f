"""The program ``resource-objects``: its options, its help, its errors and its exit status.

======  ===========================================================================================
0       done
1       refused: impossible even on empty hosts, or an invalid name or value; one line on the
        standard error output has the reason
2       invalid arguments
3       cut short: the budget of a search was exhausted, so the answer is unknown
70      the ledger cannot be used, or an unexpected error occurred
75      busy: other consumers use the resources, so the request may fit later
130     interrupted (Ctrl-C)
141     the reader of the output has closed it
======  ===========================================================================================

Commands and output formats are cliff's. This module runs the commands itself, because cliff logs
errors with a traceback, starts a shell where this program shows the help, and imports every command
before it runs one.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import itertools
import logging
import os
import re
import shutil
import sys
import traceback
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, TextIO, cast

import cliff.app
from cliff.commandmanager import CommandManager, EntryPointWrapper

from resource_objects import collector, exceptions, plugins
from resource_objects._version import __version__
from resource_objects.cli import base

if TYPE_CHECKING:
    import cliff.command

PROGRAM = "resource-objects"
FAILED = 1
NO_COMMAND = 2
INTERRUPTED = 130
NOBODY_READS = 141
BROKEN = 70  # EX_SOFTWARE of sysexits.h

_EXPECTED = (exceptions.ResourceObjectsError, OSError, ValueError, base.Misused)
#: Errors of the ledger itself, not of the request.
_UNUSABLE = (exceptions.DatabaseError, "InvalidURL", "BackendNotFound", "PluginError")


class Program(cliff.app.App):
    """The program, once per run."""

    NAME = PROGRAM

    def __init__(self, stdout: TextIO, stderr: TextIO) -> None:
        super().__init__(
            description="Inventories, candidates and allocations: a ledger of resources.",
            version=__version__,
            command_manager=Commands(),
            stdout=stdout,
            stderr=stderr,
            deferred_help=True,
        )
        self.command_manager.add_command("help", show_help)

    def build_option_parser(
        self,
        description: str | None,
        version: str | None,
        argparse_kwargs: dict[str, object] | None = None,
    ) -> argparse.ArgumentParser:
        """Return the parser of the options that every command has."""
        parser = argparse.ArgumentParser(
            prog=PROGRAM,
            usage="%(prog)s [options] COMMAND [arguments]",
            description=description,
            add_help=False,
            allow_abbrev=False,
        )
        add = parser.add_argument
        add("-h", "--help", dest="deferred_help", action="store_true", help="show help and exit")
        add("--version", action="version", version=f"{PROGRAM} {version}")
        add("-v", "--verbose", action="count", default=0, help="print more (-vv: even more)")
        add("--debug", action="store_true", help="show where an error comes from")
        add(
            "--database",
            metavar="URL",
            help=f"the ledger, such as sqlite:///lab.db; else ${base.VARIABLE}, else a file of "
            "your own. Others on this machine see it: a password belongs in "
            f"${base.VARIABLE}, or in a file such as ~/.pgpass",
        )
        return parser

    def run(self, argv: list[str]) -> int:
        """Run one command and return its exit status. Every error becomes one line."""
        options = list(itertools.takewhile(lambda argument: argument != "--", argv))
        self.options = argparse.Namespace(debug="--debug" in options)
        try:
            self.options, words = self.parser.parse_known_args(options)
            words += argv[len(options) :]  # words after -- are not options
            self.configure_logging()
            if not words or self.options.deferred_help:
                words = ["help", *itertools.takewhile(_is_word, words)]
            return self.run_subcommand(words)
        except SystemExit as done:  # argparse
            return done.code if isinstance(done.code, int) else 0
        except KeyboardInterrupt:
            self.complain("interrupted")
            return INTERRUPTED
        except BrokenPipeError:
            return NOBODY_READS
        except base.Refused as answer:
            self.complain(f"{answer}:" if answer.reasons else str(answer))
            self.stderr.writelines(f"  {reason}\n" for reason in answer.reasons)
            return answer.status
        except base.Misused as error:
            return self.fail(error, NO_COMMAND)
        except exceptions.SearchLimitReached as error:
            return self.fail(error, base.SearchCutShort.status)
        except Exception as error:
            if _is_interrupted(error):
                self.complain("interrupted")
                return INTERRUPTED
            return self.fail(error, BROKEN if _is_broken(error) else FAILED)

    def run_subcommand(self, argv: list[str]) -> int:
        """Run the command that ``argv`` begins with."""
        try:
            factory, name, arguments = self.command_manager.find_command(argv)
        except ValueError:
            return self.no_command(argv)
        command = factory(self, self.options, cmd_name=name)
        parser = command.get_parser(f"{PROGRAM} {name}")
        if not getattr(command, "program", False):
            return command.run(_parsed(parser, arguments))
        options = list(itertools.takewhile(lambda argument: argument != "--", arguments))
        parsed = _parsed(parser, options)
        parsed.program = arguments[len(options) + 1 :]
        if not parsed.program:
            parser.error("expected -- and the program to run")
        return command.run(parsed)

    def configure_logging(self) -> None:
        """Print log messages of libraries only if requested: errors are raised and printed once."""
        root = logging.getLogger()
        if self.options.verbose:
            level = logging.INFO if self.options.verbose == 1 else logging.DEBUG
            logging.basicConfig(stream=self.stderr, level=level, format="%(name)s: %(message)s")
        elif not root.handlers:
            root.addHandler(logging.NullHandler())

    def no_command(self, words: Sequence[str]) -> int:
        """Report an unknown command, with the commands of a similar name."""
        name = " ".join(itertools.takewhile(_is_word, words))
        if not name:
            self.parser.error(f"unrecognized arguments: {' '.join(words)}")
        names = [name for name, _ in self.command_manager]
        begun = [name for name in names if name.startswith(words[0])]
        close = begun or difflib.get_close_matches(name, names, n=2)
        hint = f"there is {', '.join(close)}" if close else f"see {PROGRAM} --help"
        self.complain(f"{name!r} is no command; {hint}")
        return NO_COMMAND

    def fail(self, error: Exception, status: int = FAILED) -> int:
        """Say an error in one line; with ``--debug`` where it comes from, too."""
        if self.options.debug:
            traceback.print_exception(error, file=self.stderr)
        message = str(error)
        if not isinstance(error, _EXPECTED) or not message:
            message = f"{type(error).__name__}: {message} (unexpected; --debug shows where)"
        self.complain("; ".join(filter(None, map(str.strip, message.splitlines()))))
        return status

    def complain(self, line: str) -> None:
        """Print a line on the standard error output."""
        self.stderr.write(f"{PROGRAM}: {line}\n")


def _parsed(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of a command; for an unknown option name a similar one."""
    parsed, unknown = parser.parse_known_args(argv)
    if unknown:
        wrong = next((word.partition("=")[0] for word in unknown if not _is_word(word)), "")
        close = difflib.get_close_matches(wrong, parser._option_string_actions, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return parsed


def _is_broken(error: Exception) -> bool:
    """Return True if the error is about the ledger itself, or is not expected at all."""
    if isinstance(error, exceptions.ResourceObjectsError):
        return error.matches(*_UNUSABLE)
    return not isinstance(error, _EXPECTED)


def _is_interrupted(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused an error: Python 3.11 reports one in a class body as another."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _is_word(argument: str) -> bool:
    return not argument.startswith("-")


@base.command(base.argument("words", "COMMAND", "a command", nargs="*"), opens=False)
def show_help(command: base.Command, args: argparse.Namespace) -> int:
    """Show the commands, or the help of one."""
    program = command.app
    assert isinstance(program, Program)
    if not args.words:
        print(f"{program.parser.format_help()}\nCommands:\n{_summary(program)}")
        return 0
    try:
        factory, name, _ = program.command_manager.find_command(args.words)
    except ValueError:
        return program.no_command(args.words)
    parser = factory(program, command.app_args, cmd_name=name).get_parser(f"{PROGRAM} {name}")
    print(parser.format_help(), end="")
    return 0


def _summary(program: Program) -> str:
    import textwrap

    commands = list(program.command_manager)
    widest = max(len(name) for name, _ in commands)
    width = shutil.get_terminal_size().columns  # argparse uses it too, also in a pipe
    if width < 2 * widest:
        widest = 0
    wrapper = textwrap.TextWrapper(
        max(width, 20), subsequent_indent=" " * (widest + 4), break_long_words=False
    )
    return "\n".join(
        wrapper.fill(f"  {name:<{widest}}  {_one_line(entry)}") for name, entry in commands
    )


def _one_line(entry: object) -> str:
    try:
        factory: type[cliff.command.Command] = entry.load()  # type: ignore[attr-defined]
    except exceptions.PluginError as error:
        return str(error)
    lines = (factory.__doc__ or "").strip().splitlines()
    return lines[0].rstrip(".") if lines else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``resource-objects`` and return its exit status."""
    if argv is None and "_ARGCOMPLETE" in os.environ:  # a shell requests completions
        from resource_objects.cli.completion import complete

        complete(Program(sys.stdout, sys.stderr))
    _prepare_streams()
    out = cast("TextIO", Printable(sys.stdout))
    err = cast("TextIO", Printable(sys.stderr))
    program = Program(out, err)
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with (
            contextlib.redirect_stdout(out),  # argparse writes there
            contextlib.redirect_stderr(err),
            collector.fewer_collections(),  # a command builds something, prints it and ends
        ):
            status = program.run(arguments)
        if status == INTERRUPTED:
            _give_up(sys.stdout)  # the reader has closed the output
        sys.stdout.flush()
    except KeyboardInterrupt:
        _give_up(sys.stdout)
        program.complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        status = NOBODY_READS
        _give_up(sys.stdout)
    except OSError as error:
        status = status or program.fail(error)
        _give_up(sys.stdout)
    return status


#: Characters that a terminal obeys: escape sequences, a cursor that goes back, text that runs from
#: right to left. Line breaks and tabs are ours.
_OBEYED = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]"
)


class Printable(io.TextIOBase):
    r"""A stream that escapes control characters: names and rows may come from other users.

    >>> _ = Printable(sys.stdout).write("job-\x1b[31m1")
    job-\x1b[31m1
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, characters that would be obeyed by their escapes."""
        return self._stream.write(_OBEYED.sub(_escaped, text))

    def flush(self) -> None:
        """Flush the stream. A closed stream has nothing left to flush."""
        if not self._stream.closed:
            self._stream.flush()

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Its encoding."""
        return self._stream.encoding


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _prepare_streams() -> None:
    """Make the streams accept any text, whatever their encoding, and replace closed streams."""
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _give_up(stream: TextIO) -> None:
    """Lead a stream nowhere, so that the interpreter's last flush of it is silent."""
    try:
        number = stream.fileno()
    except io.UnsupportedOperation:  # not the process's own
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())


NAMESPACE = "resource_objects.cli"

#: ``{command: "module:class"}``, in the order of the help.
BUILT_IN = {
    "tour": "resource_objects.cli.tour:tour",
    "host show": "resource_objects.cli.host:show_host",
    "host sync": "resource_objects.cli.host:sync_host",
    "host disable": "resource_objects.cli.service:disable_provider",
    "host enable": "resource_objects.cli.service:enable_provider",
    "host drain": "resource_objects.cli.service:drain_provider",
    "device list": "resource_objects.cli.host:list_devices",
    "device show": "resource_objects.cli.host:show_device",
    "device disable": "resource_objects.cli.service:disable_device",
    "device enable": "resource_objects.cli.service:enable_device",
    "device drain": "resource_objects.cli.service:drain_device",
    "serve": "resource_objects.cli.serve:serve",
    "simulate replay": "resource_objects.cli.simulate:simulate_replay",
    "candidates": "resource_objects.cli.candidates:list_candidates",
    "explain": "resource_objects.cli.explain:explain",
    "allocation candidate list": "resource_objects.cli.candidates:list_candidates",
    "what-if": "resource_objects.cli.what_if:what_if",
    "plan apply": "resource_objects.cli.what_if:apply_plan",
    "how-many": "resource_objects.cli.capacity:how_many",
    "report": "resource_objects.cli.capacity:report",
    "when": "resource_objects.cli.capacity:when",
    "schedule": "resource_objects.cli.schedule:schedule",
    "filters": "resource_objects.cli.schedule:list_filters",
    "weighers": "resource_objects.cli.schedule:list_weighers",
    "claim": "resource_objects.cli.job:claim",
    "run": "resource_objects.cli.job:run",
    "waiting": "resource_objects.cli.job:list_waiters",
    "release": "resource_objects.cli.job:release_consumers",
    "consumer list": "resource_objects.cli.consumer:list_consumers",
    "consumer show": "resource_objects.cli.consumer:show_consumer",
    "allocation set": "resource_objects.cli.consumer:set_allocations",
    "allocation show": "resource_objects.cli.consumer:show_allocations",
    "allocation list": "resource_objects.cli.consumer:list_allocations",
    "allocation move": "resource_objects.cli.consumer:move_consumer",
    "allocation swap": "resource_objects.cli.consumer:swap_consumers",
    "allocation delete": "resource_objects.cli.job:release_consumers",
    "usage": "resource_objects.cli.consumer:show_usage",
    "usage hosts": "resource_objects.cli.hosts:show_host_usage",
    "mine": "resource_objects.cli.hosts:list_own_consumers",
    "usage total": "resource_objects.cli.consumer:show_totals",
    "usage between": "resource_objects.cli.use_over_time:show_usage_between",
    "usage record": "resource_objects.cli.use_over_time:retain_usage",
    "provider list": "resource_objects.cli.provider:list_providers",
    "provider show": "resource_objects.cli.provider:show_provider",
    "provider tree": "resource_objects.cli.provider:draw_providers",
    "provider create": "resource_objects.cli.provider:create_provider",
    "provider set": "resource_objects.cli.provider:set_provider",
    "provider delete": "resource_objects.cli.provider:delete_provider",
    "provider disable": "resource_objects.cli.service:disable_provider",
    "provider enable": "resource_objects.cli.service:enable_provider",
    "provider drain": "resource_objects.cli.service:drain_provider",
    "provider usage show": "resource_objects.cli.provider:show_provider_usage",
    "provider inventory list": "resource_objects.cli.provider:list_inventories",
    "provider inventory set": "resource_objects.cli.provider:set_inventories",
    "provider inventory delete": "resource_objects.cli.provider:delete_inventories",
    "provider trait list": "resource_objects.cli.provider:list_provider_traits",
    "provider trait set": "resource_objects.cli.provider:set_provider_traits",
    "provider aggregate list": "resource_objects.cli.provider:list_provider_aggregates",
    "provider aggregate set": "resource_objects.cli.provider:set_provider_aggregates",
    "statistic list": "resource_objects.cli.statistic:list_statistics",
    "statistic forget": "resource_objects.cli.statistic:forget_statistics",
    "class list": "resource_objects.cli.names:list_classes",
    "class create": "resource_objects.cli.names:create_class",
    "class set": "resource_objects.cli.names:set_class",
    "class delete": "resource_objects.cli.names:delete_class",
    "trait list": "resource_objects.cli.names:list_traits",
    "trait create": "resource_objects.cli.names:create_trait",
    "trait set": "resource_objects.cli.names:set_trait",
    "trait delete": "resource_objects.cli.names:delete_trait",
    "aggregate list": "resource_objects.cli.names:list_aggregates",
    "aggregate create": "resource_objects.cli.names:create_aggregate",
    "aggregate set": "resource_objects.cli.names:set_aggregate",
    "aggregate delete": "resource_objects.cli.names:delete_aggregate",
    "server group list": "resource_objects.cli.server_groups:list_server_groups",
    "server group show": "resource_objects.cli.server_groups:show_server_group",
    "server group create": "resource_objects.cli.server_groups:create_server_group",
    "server group delete": "resource_objects.cli.server_groups:delete_server_group",
    "pool list": "resource_objects.cli.provider:list_pools",
    "pool share": "resource_objects.cli.provider:share_pool",
    "pool unshare": "resource_objects.cli.provider:unshare_pool",
    "pool report": "resource_objects.cli.provider:report_pool",
    "reshape": "resource_objects.cli.ledger:apply_reshape",
    "export": "resource_objects.cli.site:export_site",
    "apply": "resource_objects.cli.site:apply_site",
    "audit": "resource_objects.cli.ledger:list_findings",
    "complete": "resource_objects.cli.completion:print_completion",
    "changes": "resource_objects.cli.ledger:list_changes",
    "db status": "resource_objects.cli.ledger:show_database_status",
    "db upgrade": "resource_objects.cli.ledger:upgrade_database",
}


#: Words of osc-placement, and ours for the same; of two that begin alike the longer one first.
#: ``resource usage show`` is followed by a project, which ours takes as an option.
ALIASES = {
    ("resource", "provider", "allocation"): ["allocation"],
    ("resource", "provider"): ["provider"],
    ("resource", "class"): ["class"],
    ("resource", "usage", "show"): ["usage", "total", "--project"],
}


def _in_our_words(argv: list[str]) -> list[str]:
    """Return the arguments with the words of osc-placement that they begin with replaced.

    >>> _in_our_words(["resource", "provider", "list", "--name", "host0"])
    ['provider', 'list', '--name', 'host0']
    >>> _in_our_words(["resource", "usage", "show", "demo"])
    ['usage', 'total', '--project', 'demo']
    """
    for theirs, ours in ALIASES.items():
        if tuple(argv[: len(theirs)]) == theirs:
            return [*ours, *argv[len(theirs) :]]
    return argv


class Plugin(EntryPointWrapper):
    """A command of another distribution, which is imported when it is used."""

    def __init__(self, name: str, entry: str) -> None:
        self.name = name
        self.entry = entry

    def load(self) -> type[cliff.command.Command]:
        """Return the command's class.

        :raises PluginError: naming it and the reason, if it cannot be imported
        """
        loaded: type[cliff.command.Command] = plugins.load(NAMESPACE, self.entry)
        return loaded

    @property
    def value(self) -> str:
        """The module and name of the plug-in."""
        return f"{NAMESPACE}:{self.entry}"


class Commands(CommandManager):
    """The commands by name. cliff's own manager imports every one of them to list them."""

    def __init__(self, namespace: str = NAMESPACE) -> None:
        self._searched = False
        super().__init__(namespace)

    def load_commands(self, namespace: str) -> None:
        """Add the commands of this package. Plug-ins are searched for unknown commands only."""
        self.group_list.append(namespace)
        for name, path in BUILT_IN.items():
            self.commands[name] = EntryPoint(name, path, namespace)

    def add_command(self, name: str, command_class: type[cliff.command.Command]) -> None:
        """Add a command that cliff has, such as its ``complete``, unless we have one."""
        if name not in BUILT_IN:
            super().add_command(name, command_class)

    def find_command(self, argv: list[str]) -> tuple[type[cliff.command.Command], str, list[str]]:
        """Return the class, the name and the arguments of the command that ``argv`` begins with.

        :raises ValueError: if there is none
        """
        argv = _in_our_words(argv)
        try:
            return super().find_command(argv)
        except ValueError:
            self.search_plugins()
            return super().find_command(argv)

    def next_words(self, words: Sequence[str], prefix: str) -> list[str]:
        """Return the words that may follow on those that a command begins with.

        >>> Commands().next_words(["host"], "s")
        ['show', 'sync']
        """
        begun = _in_our_words(list(words))
        count = len(begun)
        names = [name.split() for name, _ in self]
        after = [name[count] for name in names if len(name) > count and name[:count] == begun]
        return [word for word in dict.fromkeys(after) if word.startswith(prefix)]

    def __iter__(self) -> Iterator[tuple[str, EntryPoint | EntryPointWrapper]]:
        self.search_plugins()
        return super().__iter__()

    def search_plugins(self) -> None:
        """Add the commands of other distributions, once. Commands of this package have priority."""
        if self._searched:
            return
        self._searched = True
        for entry in plugins.names(NAMESPACE):
            name = entry.replace("_", " ")
            if name not in self.commands:
                self.commands[name] = Plugin(name, entry)
