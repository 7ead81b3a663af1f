"""The program ``resource-objects``: its options, its help, its errors and its exit status.

======  ===========================================================================================
0       done
1       refused, or an error: one line on the standard error output says which
2       the arguments are no command, or say what cannot be
3       cut short: the budget of a search ran out, so the answer is neither yes nor no
130     interrupted (Ctrl-C)
141     nobody reads the output any more
======  ===========================================================================================

The commands and the output formats are cliff's; running them is not, because cliff logs an error
where we say it in one line, starts a shell where we show the help, and imports every command
before it runs one.
"""

from __future__ import annotations

import argparse
import difflib
import io
import itertools
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

import cliff.app

from resource_objects import exceptions
from resource_objects._version import __version__
from resource_objects.cli.base import Command, CutShort, Misused, Refused
from resource_objects.cli.commands import Commands
from resource_objects.cli.database import VARIABLE

if TYPE_CHECKING:
    import cliff.command

PROGRAM = "resource-objects"
FAILED = 1
NO_COMMAND = 2
INTERRUPTED = 130
NOBODY_READS = 141

_EXPECTED = (exceptions.ResourceObjectsError, OSError, ValueError, Misused)


class Program(cliff.app.App):
    """The program, once per run."""

    NAME = PROGRAM

    def __init__(self, stdout: TextIO, stderr: TextIO) -> None:
        super().__init__(
            description="What is there, who could hold it, who holds it: a ledger of resources.",
            version=__version__,
            command_manager=Commands(),
            stdout=stdout,
            stderr=stderr,
            deferred_help=True,
        )
        self.command_manager.add_command("help", Help)

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
        add("-v", "--verbose", action="count", default=0, help="tell more (-vv: even more)")
        add("--debug", action="store_true", help="show where an error comes from")
        add(
            "--database",
            metavar="URL",
            help=f"the ledger, such as sqlite:///lab.db; else ${VARIABLE}, else a file of your own",
        )
        return parser

    def run(self, argv: list[str]) -> int:
        """Run one command and return its exit status. Every error becomes one line."""
        self.options = argparse.Namespace(debug="--debug" in argv)
        try:
            self.options, words = self.parser.parse_known_args(argv)
            self.configure_logging()
            if not words or self.options.deferred_help:
                words = ["help", *itertools.takewhile(_is_word, words)]
            return self.run_subcommand(words)
        except SystemExit as done:  # argparse
            return done.code if isinstance(done.code, int) else 0
        except KeyboardInterrupt:
            return INTERRUPTED
        except BrokenPipeError:
            return NOBODY_READS
        except Refused as answer:
            self.complain(f"{answer}:")
            self.stderr.writelines(f"  {reason}\n" for reason in answer.reasons)
            return answer.status
        except Misused as error:
            return self.fail(error, NO_COMMAND)
        except exceptions.SearchLimitReached as error:
            return self.fail(error, CutShort.status)
        except Exception as error:
            return self.fail(error)

    def run_subcommand(self, argv: list[str]) -> int:
        """Run the command that ``argv`` begins with."""
        try:
            factory, name, rest = self.command_manager.find_command(argv)
        except ValueError:
            return self.no_command(argv)
        command = factory(self, self.options, cmd_name=name)
        return command.run(command.get_parser(f"{PROGRAM} {name}").parse_args(rest))

    def configure_logging(self) -> None:
        """Show what libraries log only when asked: what matters is raised, and said once."""
        root = logging.getLogger()
        if self.options.verbose:
            level = logging.INFO if self.options.verbose == 1 else logging.DEBUG
            logging.basicConfig(stream=self.stderr, level=level, format="%(name)s: %(message)s")
        elif not root.handlers:
            root.addHandler(logging.NullHandler())

    def no_command(self, words: Sequence[str]) -> int:
        """Say that there is no such command, and which ones begin alike."""
        said = " ".join(itertools.takewhile(_is_word, words))
        if not said:
            self.parser.error(f"unrecognized arguments: {' '.join(words)}")
        known = [name for name, _ in self.command_manager]
        begun = [name for name in known if name.startswith(words[0])]
        close = begun or difflib.get_close_matches(said, known, n=2)
        hint = f"there is {', '.join(close)}" if close else f"see {PROGRAM} --help"
        self.complain(f"{said!r} is no command; {hint}")
        return NO_COMMAND

    def fail(self, error: Exception, status: int = FAILED) -> int:
        """Say an error in one line; with ``--debug`` where it comes from, too."""
        if self.options.debug:
            traceback.print_exception(error, file=self.stderr)
        said = str(error)
        if not isinstance(error, _EXPECTED) or not said:
            said = f"{type(error).__name__}: {said} (unexpected; --debug shows where)"
        self.complain("; ".join(filter(None, map(str.strip, said.splitlines()))))
        return status

    def complain(self, line: str) -> None:
        """Print a line where errors go."""
        self.stderr.write(f"{PROGRAM}: {line}\n")


def _is_word(argument: str) -> bool:
    return not argument.startswith("-")


class Help(Command):
    """Show the commands, or the help of one."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("words", nargs="*", metavar="COMMAND", help="a command")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Print the help."""
        words = parsed_args.words
        if not words:
            self.say(f"{self.app.parser.format_help()}\nCommands:\n{self._summary()}")
            return 0
        try:
            factory, name, _ = self.app.command_manager.find_command(words)
        except ValueError:
            assert isinstance(self.app, Program)
            return self.app.no_command(words)
        command = factory(self.app, self.app_args, cmd_name=name)
        self.app.stdout.write(command.get_parser(f"{PROGRAM} {name}").format_help())
        return 0

    def _summary(self) -> str:
        known = list(self.app.command_manager)
        widest = max(len(name) for name, _ in known)
        return "\n".join(f"  {name:<{widest}}  {_one_line(entry)}" for name, entry in known)


def _one_line(entry: object) -> str:
    try:
        factory: type[cliff.command.Command] = entry.load()  # type: ignore[attr-defined]
    except exceptions.PluginError as error:
        return str(error)
    lines = (factory.__doc__ or "").strip().splitlines()
    return lines[0].rstrip(".") if lines else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``resource-objects`` and return its exit status."""
    _prepare_streams()
    program = Program(sys.stdout, sys.stderr)
    status = program.run(list(sys.argv[1:] if argv is None else argv))
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        status = NOBODY_READS
        _give_up(sys.stdout)
    except OSError as error:
        status = status or program.fail(error)
        _give_up(sys.stdout)
    return status


def _prepare_streams() -> None:
    """Make the streams take any text, whatever their encoding; closed ones lead nowhere."""
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _give_up(stream: TextIO) -> None:
    """Lead a stream nowhere, so that the interpreter's last flush of it is silent."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
