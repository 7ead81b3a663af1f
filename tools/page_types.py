"""Check the types of the examples in the documentation with mypy.

    .venv/bin/python tools/page_types.py                     # README.rst and doc/source
    .venv/bin/python tools/page_types.py doc/source/howto/gangs.rst

The examples of a page become one module. An example that shows an exception is left out: many pass
what is not allowed. An error is reported at its line of the page; then the exit status is 1.
"""

from __future__ import annotations

import doctest
import pathlib
import re
import subprocess
import sys
import tempfile

_ROOT = pathlib.Path(__file__).resolve().parents[1]
#: Functions of examples have no annotations, and names are used again.
_OPTIONS = (
    "--strict",
    "--allow-redefinition",
    "--allow-untyped-defs",
    "--allow-untyped-calls",
    "--allow-untyped-decorators",
    "--allow-incomplete-defs",
    "--no-warn-return-any",
    "--no-warn-unreachable",
    "--no-pretty",
    "--hide-error-context",
)


#: The name that pytest defines for doctests, on the line of the title.
_FIXTURES = "import typing; getfixture: typing.Callable[[str], typing.Any]"


def module(text: str) -> str:
    """Return the examples of a page as a module whose line numbers are those of the page.

    >>> module("Text\\n\\n    >>> a = 1\\n    >>> a / 0\\n    Traceback (most recent call last):\\n"
    ...        "    ZeroDivisionError: division by zero\\n").splitlines()
    ['import typing; ...', '', 'a = 1', '', '', '']
    """
    lines: list[str] = [""] * (text.count("\n") + 1)
    for example in doctest.DocTestParser().get_examples(text):
        if example.exc_msg is None:
            for number, line in enumerate(example.source.splitlines(), example.lineno):
                lines[number] = line
    return "\n".join([_FIXTURES, *lines[1:]])


def main(pages: list[pathlib.Path]) -> int:
    """Check some pages; print the errors and return the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        names: dict[str, pathlib.Path] = {}
        for page in pages:
            text = page.read_text(encoding="utf-8")
            if ">>>" in text:
                name = re.sub(r"\W", "_", str(page.relative_to(_ROOT).with_suffix("")))
                names[name] = page.relative_to(_ROOT)
                pathlib.Path(folder, f"{name}.py").write_text(module(text), encoding="utf-8")
        command = [sys.executable, "-m", "mypy", "--config-file", str(_ROOT / "pyproject.toml")]
        modules = [f"{folder}/{name}.py" for name in names]
        ran = subprocess.run(
            [*command, *_OPTIONS, *modules], cwd=_ROOT, capture_output=True, text=True
        )
    pattern = re.compile(r"^\S*?(\w+)\.py:(.*)")
    found = [match for line in ran.stdout.splitlines() if (match := pattern.match(line))]
    errors = [f"{names[match[1]]}:{match[2]}" for match in found if match[1] in names]
    # an error in the package itself is mypy's own to report, with its own options
    print(*errors, f"{len(names)} pages, {len(errors)} errors", sep="\n")
    print(ran.stderr, end="", file=sys.stderr)
    return int(bool(errors or ran.stderr))


if __name__ == "__main__":
    named = [pathlib.Path(word).resolve() for word in sys.argv[1:]]
    sys.exit(main(named or [_ROOT / "README.rst", *sorted((_ROOT / "doc/source").rglob("*.rst"))]))
