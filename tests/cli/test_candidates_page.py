"""The how-to of the command: what stands below each command is what it prints."""

from __future__ import annotations

import argparse
import pathlib
import re
import shlex
import textwrap
from collections.abc import Iterator

import pytest

from resource_objects.cli import request_arguments
from resource_objects.cli.base import add_to

DOC = pathlib.Path(__file__).parents[2] / "doc" / "source"
PAGE, REFERENCE = DOC / "howto" / "candidates.rst", DOC / "reference" / "command.rst"
OUT_OF_SERVICE = DOC / "howto" / "out_of_service.rst"
JOBS = DOC / "howto" / "jobs.rst"
OSC_PLACEMENT = DOC / "howto" / "osc_placement.rst"
_BLOCK = re.compile(r"^\.\. code-block:: console\n\n((?:    .*\n|\n)+)", re.MULTILINE)


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of the console blocks of a page, each with what stands below it."""
    for block in _BLOCK.findall(text):
        for part in re.split(r"^\$ ", textwrap.dedent(block), flags=re.MULTILINE)[1:]:
            command, _, printed = re.sub(r"\\\n *", "", part.strip()).partition("\n")
            yield command, printed.strip()


@pytest.mark.parametrize(
    "page", [PAGE, OUT_OF_SERVICE, JOBS, OSC_PLACEMENT], ids=lambda page: page.stem
)
def test_each_command_of_the_page_prints_what_stands_below_it(
    run, monkeypatch: pytest.MonkeyPatch, page: pathlib.Path
) -> None:
    monkeypatch.setenv("LOGNAME", "admin")
    status = 0
    for command, printed in commands(page.read_text(encoding="utf-8")):
        if command == "echo $?":
            assert printed == str(status)
            continue
        program, *argv = shlex.split(command)
        assert program == "resource-objects"
        done = run(*argv)
        status = done.status
        assert undated(done.out + done.err) == undated(printed), command


def undated(text: str) -> str:
    """Return a text without the days and cursors in it, which each run has of its own."""
    text = re.sub(r"\d{4}-\d\d-\d\d", "DAY", text)
    text = re.sub(r"DAY \d\d:\d\d(:\d\d(\.\d+)?)?", "DAY TIME", text)
    text = re.sub(r"cursor: \S+", "cursor: ...", text)
    text = re.sub(r"_CLAIM=\S+", "_CLAIM=...", text)
    return re.sub(r" +$", "", text, flags=re.MULTILINE).strip()


@pytest.mark.parametrize("page", [PAGE, REFERENCE], ids=lambda page: page.stem)
def test_the_pages_tell_each_word_of_the_command(page: pathlib.Path) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    add_to(parser, [*request_arguments.REQUEST, request_arguments.SEARCH])
    words = {word for action in parser._actions for word in action.option_strings}
    documented = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", page.read_text(encoding="utf-8")))
    assert words - documented == set()
