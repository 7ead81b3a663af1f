"""The README does what it says: its example prints what stands below it, and stays short."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.rst"


def _block(language: str) -> str:
    """Return the first code block of a language, without its indentation."""
    found = re.search(rf"\.\. code-block:: {language}\n\n((?:    .*\n|\n)+)", README.read_text())
    assert found is not None, f"no {language} block in README.rst"
    return textwrap.dedent(found.group(1)).strip()


def test_the_example_prints_what_the_readme_shows() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _block("python")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.strip() == _block("text")


def test_the_example_has_at_most_25_lines() -> None:
    assert len(_block("python").splitlines()) <= 25


def test_the_readme_says_what_it_is_in_five_lines() -> None:
    text = README.read_text()
    first = text.split("================\n")[2].strip().split("\n\n")[0]
    assert len(first.splitlines()) <= 5


def test_the_two_commands_are_there() -> None:
    commands = re.findall(r"^    (python3 -m venv .*)$", README.read_text(), flags=re.MULTILINE)
    assert len(commands) == 2
    assert commands[0].endswith("resource-objects tour")
    assert commands[1].endswith(".venv/bin/pytest -n auto")
