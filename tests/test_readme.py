"""The example of the README prints the output that the README shows."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.rst"


def _block(language: str) -> str:
    """Return the first code block of a language, without its indentation."""
    match = re.search(rf"\.\. code-block:: {language}\n\n((?:    .*\n|\n)+)", README.read_text())
    assert match is not None, f"no {language} block in README.rst"
    return textwrap.dedent(match.group(1)).strip()


def test_the_example_prints_what_the_readme_shows() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _block("python")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.strip() == _block("text")
