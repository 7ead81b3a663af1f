"""Shell completion of commands, options and names of the ledger.

`argcomplete <https://pypi.org/project/argcomplete/>`_ communicates with the shells and completes
the arguments of a parser. This module provides the parser of the typed command, and the names of
the ledger by the metavariable of an argument (``CONSUMER``).
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from argcomplete.completers import BaseCompleter, DirectoriesCompleter, FilesCompleter
from argcomplete.finders import CompletionFinder
from argcomplete.shell_integration import shellcode

from resource_objects.backends.sql.completion import names_beginning
from resource_objects.cli import base

if TYPE_CHECKING:
    import cliff.app

SHELLS = ("bash", "zsh", "fish")
#: Returns the names of a kind with a prefix.
_Names = Callable[[str, str], list[str]]
#: Returns the completions of a prefix.
_Completer = Callable[[_Names, str], Iterable[str]]


@base.command(base.argument("shell", "SHELL", ", ".join(SHELLS), choices=SHELLS), opens=False)
def print_completion(command: base.Command, args: argparse.Namespace) -> str:
    """Print the setup of a shell for the completion of commands, options and names of the ledger.

    For bash: eval "$(resource-objects complete bash)", in ~/.bashrc. For zsh the same, after
    compinit, in ~/.zshrc. For fish: resource-objects complete fish | source. The ledger is that of
    --database in the line, or of $RESOURCE_OBJECTS_DATABASE. If it cannot be read, nothing is
    completed and no error is printed.
    """
    options = ["-o", "nospace"]
    code = shellcode([command.app.NAME], shell=args.shell, complete_arguments=options)
    return str(code).strip()


def complete(program: cliff.app.App) -> None:
    """Answer the request of a shell and end the process. No error is printed."""
    try:
        Finder(program)(program.parser, always_complete_options=False)
    finally:
        os._exit(1)  # a refusal to answer; an answer has ended the process before


class Finder(CompletionFinder):
    """Finds what may follow on a command line."""

    def __init__(self, program: Any = None, *arguments: Any, **options: Any) -> None:
        # argcomplete calls it again with a parser
        if not isinstance(program, argparse.ArgumentParser):
            self._program: cliff.app.App = program
            program = program.parser
        super().__init__(program, *arguments, **options)

    def _get_completions(
        self,
        comp_words: list[str],
        cword_prefix: str,
        cword_prequote: str,
        last_wordbreak_pos: int | None,
    ) -> list[str]:
        """Return the completions of the last word of a line."""
        before = list(itertools.takewhile(lambda word: word != "--", comp_words[1:]))
        after = comp_words[len(before) + 1 :]  # -- and the words after it
        try:
            options, words = self._program.parser.parse_known_args(before)
        except SystemExit:  # the value of --database is typed
            return []
        self._program.options = options
        manager: Any = self._program.command_manager
        remaining = words
        self._words = manager.next_words(words, cword_prefix)
        try:
            factory, name, remaining = manager.find_command(words)
        except ValueError:
            if words:
                self._parser = argparse.ArgumentParser(add_help=False)
        else:
            command = factory(self._program, options, cmd_name=name)
            self._parser = command.get_parser(name)
            if after and getattr(command, "program", False):
                self._words = list(FilesCompleter()(cword_prefix))
                self._parser, remaining, after = argparse.ArgumentParser(add_help=False), [], []
            elif after:
                self._words = []
        self._takes_hyphens = bool(after)
        self.default_completer = _OfArgument(_ledger_names(options.database or ""))
        completions: list[str] = super()._get_completions(  # type: ignore[no-untyped-call]
            [comp_words[0], *remaining, *after], cword_prefix, cword_prequote, last_wordbreak_pos
        )
        return completions

    def collect_completions(
        self, active_parsers: Any, parsed_args: argparse.Namespace, cword_prefix: str
    ) -> list[str]:
        """Return the words of commands that may follow, and what the command takes.

        A name that begins with a hyphen is read as an option, so it is offered only where it is
        not: after ``--``, and in ``--at=-name``.
        """
        parser = active_parsers[-1]
        if self._takes_hyphens:
            parser.prefix_chars = ""  # the parser is not used for anything else
        completions = super().collect_completions(active_parsers, parsed_args, cword_prefix)
        self._display_completions.update(dict.fromkeys(self._words, ""))
        takes = self._takes_hyphens or (cword_prefix[:1] == "-" and "=" in cword_prefix)
        return [
            *self._words,
            *(
                completion
                for completion in completions
                if completion.isprintable()
                and (takes or completion[:1] != "-" or completion in parser._option_string_actions)
            ),
        ]

    def quote_completions(
        self, completions: list[str], cword_prequote: str, last_wordbreak_pos: int | None
    ) -> list[str]:
        """Return completions quoted for the shell; fish quotes them itself.

        In addition to argcomplete's own quotes: ``#`` begins a comment (argcomplete reads the line,
        and within a word too), and in zsh a word that begins with ``=`` is a program.
        """
        quoted = super().quote_completions(completions, cword_prequote, last_wordbreak_pos)
        if cword_prequote or os.environ.get("_ARGCOMPLETE_SHELL") == "fish":
            return quoted
        for place, completion in enumerate(quoted):
            escaped = completion.replace("#", "\\#")
            escaped = f"\\{escaped}" if escaped[:1] == "=" else escaped
            self._display_completions[escaped] = self._display_completions.get(completion, "")
            quoted[place] = escaped
        return quoted


# --- arguments ------------------------------------------------------------------------------------


def _ledger_names(option: str) -> _Names:
    """Return a function that looks up names in the ledger, without creating it."""

    def names(kind: str, prefix: str) -> list[str]:
        try:
            url = (
                option
                or os.environ.get(base.VARIABLE)
                or f"sqlite:///{base.default_path(os.environ)}"
            )
            return names_beginning(url, kind, prefix)
        except Exception:  # an error must not disturb the line
            return []

    return names


class _OfArgument(BaseCompleter):
    """Completes an argument by its metavariable."""

    def __init__(self, names: _Names) -> None:
        self._names = names

    def __call__(self, *, prefix: str, action: argparse.Action, **context: Any) -> Iterable[str]:
        """Return the completions of a prefix."""
        completer = _COMPLETERS.get(str(action.metavar))
        return () if completer is None else completer(self._names, prefix)


def _single(kind: str) -> _Completer:
    return lambda names, prefix: names(kind, prefix)


def _listed(kind: str, ends: str = "") -> _Completer:
    """Return a completer of the last name in a list with commas.

    >>> names = lambda kind, prefix: [prefix + "GPU"]
    >>> _listed("class", "=")(names, "VCPU=2,P"), _listed("class", "=")(names, "VCPU=2")
    (['VCPU=2,PGPU='], [])
    """

    def completions(names: _Names, prefix: str) -> list[str]:
        before, comma, last = prefix.rpartition(",")
        if "=" in last:
            return []
        for sign in ("!", "in:"):
            if last.startswith(sign):
                comma, last = comma + sign, last.removeprefix(sign)
        return [f"{before}{comma}{name}{ends}" for name in names(kind, last)]

    return completions


_amounts = _listed("class", "=")


def _limits(names: _Names, prefix: str) -> list[str]:
    """Return completions of ``PROVIDER:AMOUNTS``; a name of a provider may contain colons.

    >>> names = lambda kind, prefix: [{"provider": "host0", "class": "VCPU"}[kind]]
    >>> _limits(names, "ho"), _limits(names, "host0:V")
    (['host0:'], ['host0:', 'host0:VCPU='])
    """
    providers = [f"{name}:" for name in names("provider", prefix)]
    provider, colon, last = prefix.rpartition(":")
    return [*providers, *(f"{provider}:{amount}" for amount in _amounts(names, last) if colon)]


#: By the name of an argument in the help.
_COMPLETERS: dict[str, _Completer] = {
    **dict.fromkeys(("PROVIDER", "HOST/ADDRESS", "TREE"), _single("provider")),
    **dict.fromkeys(("HOST", "POOL"), _single("host")),
    "CONSUMER": _single("consumer"),
    "CLASS": _single("class"),
    **dict.fromkeys(("AMOUNTS", "INVENTORIES", "CLASS=NUMBER"), _amounts),
    "PROVIDER:AMOUNTS": _limits,
    **dict.fromkeys(("TRAIT", "TRAITS"), _listed("trait")),
    "TRAIT[=NUMBER]": _single("trait"),
    "AGGREGATE": _single("aggregate"),
    "STATISTIC": _single("statistic"),
    "AGGREGATES": _listed("aggregate"),
    "FILE": lambda names, prefix: FilesCompleter()(prefix),
    "DIR": lambda names, prefix: DirectoriesCompleter()(prefix),
}
