#!/usr/bin/env python3
"""Measure how plainly a Python package is written, and show the places to rewrite first.

    python3 prose.py resource_objects                 # figures of a package, by room
    python3 prose.py resource_objects --worst 40      # the docstrings and comments to rewrite first
    python3 prose.py --docs doc/source README.rst     # the same for reStructuredText
    python3 prose.py --installed trio sqlalchemy      # other packages, for comparison

Figures are per 1,000 words of docstrings and comments (or of documentation), and per 1,000
functions:

vague      indefinite pronouns as persons or things: nobody, somebody, whoever, anybody, "who" or
           "what" or "those that" standing for a noun that has a name (the consumer, the host, ...)
dialect    told, asked, said, kept, held, given, had, beside, besides, goes, stands, so many ... as
           they are used where the field has a term: reported, requested, stored, allocated,
           specified, available, alongside, removed, is recorded in, n
free       first lines of docstrings that begin with a clause in place of a noun: "Return what ...",
           "Yield who ...", "What ...", "Who ..."; in 100 first lines. It is the figure that
           ``tools/budget.toml`` and ``tools/house.py`` name "clause"
names      functions, classes, arguments and variables whose whole name is a pronoun, a participle
           or an adverb: told, said, given, kept, found, one, there, own, known, some, beside

They are places to look, never targets by themselves: a sentence is good when a stranger can say
what it means without the code next to it. ``tools/budget.toml`` has a ceiling for each figure of
each package, which ``tools/house.py --check`` compares.
"""

from __future__ import annotations

import argparse
import ast
import collections
import importlib.util
import io
import pathlib
import re
import sys
import tokenize
from collections.abc import Iterator

VAGUE = re.compile(
    r"\b(nobody|somebody|anybody|everybody|whoever|whatever|nothing else|"
    r"(?<!someone )(?:of|by|from|to|for|as|with|than|is|are) "
    r"(?:who|what|those (?:who|that)|one (?:who|that))|"
    r"(?:^|[.;:] )(?:who|what|those who|whose)\b(?! is the| are the))\b",
    re.IGNORECASE | re.MULTILINE,
)
DIALECT = re.compile(
    r"\b(told|tells|tell|asked|asks|said|says|kept|keeps|given|had|held|beside|besides|goes|go|stands|"
    r"stay|stays|lies|laid|dealt|so many|as many as go|once more|by itself|by themselves)\b",
    re.IGNORECASE,
)
FREE = re.compile(
    r"^(?:(?:Return|Yield|Give|Take|Say|Tell|Refuse|Leave|Put|Make|Read|Keep|Let|Raise|Know|Find|"
    r"Show|Look)\s+(?:out\s+|of\s+)?"
    r"(?:what|who|whose|how|where|when|those|that|the same|some|whatever|whoever)\b|"
    r"(?:What|Who|Whose|How|Where|When|Those|Whoever|Whatever)\b)"
)
NAMES = frozenset(
    """
    told said asked given kept found one ones there own known some beside besides had held tried
    made each every rest whole others another apart alone meant wanted left gone way ways
    who what which whose where spot spots put lay laid told_of so
    """.split()  # noqa: SIM905
)


def words(text: str) -> int:
    """Return the number of words."""
    return len(re.findall(r"[A-Za-z][A-Za-z'-]+", text))


class Figures:
    """Counts of one room."""

    def __init__(self) -> None:
        self.words = self.vague = self.dialect = self.names = 0
        self.free = self.first = self.functions = 0
        self.worst: list[tuple[float, str, str]] = []
        self.which: collections.Counter[str] = collections.Counter()

    def text(self, text: str, where: str, *, prose: bool = False) -> None:
        """Count one docstring, comment or paragraph."""
        plain = re.sub(r"``[^`]*``|:\w+:`[^`]*`|>>>.*|\.\.\. .*", " ", text)
        count = words(plain)
        if not count:
            return
        vague, dialect = len(VAGUE.findall(plain)), len(DIALECT.findall(plain))
        self.words += count
        self.vague += vague
        self.dialect += dialect
        if count >= 6:
            rate = (2 * vague + dialect + (2 if FREE.match(plain.strip()) else 0)) / (count + 6)
            self.worst.append((rate, where, " ".join(plain.split())[:150]))

    def first_line(self, text: str) -> None:
        """Count the first line of a docstring."""
        self.first += 1
        self.free += bool(FREE.match(text.strip()))

    def name(self, name: str) -> None:
        """Count the name of a function, class, argument or variable."""
        if name.strip("_") in NAMES:
            self.names += 1
            self.which[name.strip("_")] += 1

    def rates(self) -> tuple[float | None, ...]:
        """Return the rates of vague, dialect, free and names, in the units of the module docstring.

        A rate is None in a package without words, docstrings or functions.
        """
        counts = (
            (1000 * self.vague, self.words),
            (1000 * self.dialect, self.words),
            (100 * self.free, self.first),
            (1000 * self.names, self.functions),
        )
        return tuple(round(count / base, 1) if base else None for count, base in counts)

    def row(self) -> str:
        """Return the figures as a line of a table."""
        formats = "{:7.1f}", "{:7.1f}", "{:6.1f}%", "{:7.1f}"
        cells = (
            "      -" if rate is None else form.format(rate)
            for form, rate in zip(formats, self.rates(), strict=True)
        )
        return " ".join((f"{self.words:8d}", *cells))


def of_module(path: pathlib.Path, figures: Figures, label: str) -> None:
    """Add a Python module."""
    try:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (SyntaxError, UnicodeDecodeError):
        return
    for node in ast.walk(tree):
        _add_names(node, figures)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            _add_docstring(node, figures, label)
    for line, text in _comments(source):
        figures.text(text, f"{label}:{line}")


def _add_names(node: ast.AST, figures: Figures) -> None:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        figures.functions += 1
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        figures.name(node.name)
    elif isinstance(node, ast.arg):
        figures.name(node.arg)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        figures.name(node.id)


def _add_docstring(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
    figures: Figures,
    label: str,
) -> None:
    text = ast.get_docstring(node)
    if text:
        figures.text(text, f"{label}:{getattr(node, 'lineno', 1)}")
        if not isinstance(node, ast.Module):
            figures.first_line(text.split("\n", 1)[0])


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments with their first line; comments on consecutive lines are one."""
    block: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith("#!"):
            continue
        if block and token.start[0] != last + 1:
            yield start, " ".join(block)
            block = []
        if not block:
            start = token.start[0]
        block.append(token.string.lstrip("#: "))
        last = token.start[0]
    if block:
        yield start, " ".join(block)


def of_rst(path: pathlib.Path, figures: Figures, label: str) -> None:
    """Add a reStructuredText file: its paragraphs, without code."""
    text = path.read_text(encoding="utf-8")
    line = 1
    for block in re.split(r"\n\s*\n", text):
        body = block.strip()
        if body and not re.match(r"(\.\. |>>>|\$ |::)", body) and not block.startswith("    "):
            figures.text(body, f"{label}:{line}")
        line += block.count("\n") + 2


def collect(root: pathlib.Path, kind: str) -> dict[str, Figures]:
    """Return figures by room below a folder, or of one file."""
    found: dict[str, Figures] = collections.defaultdict(Figures)
    files = [root] if root.is_file() else sorted(root.rglob("*.py" if kind == "code" else "*.rst"))
    for path in files:
        below = path.relative_to(root).parts if root.is_dir() else (path.name,)
        room = below[0] if len(below) > 1 else "."
        add = of_module if path.suffix == ".py" else of_rst
        add(path, found[room], "/".join(below) if root.is_dir() else path.name)
    return found


def total(rooms: dict[str, Figures]) -> Figures:
    """Return the sum of several figures."""
    result = Figures()
    for room in rooms.values():
        for key in ("words", "vague", "dialect", "free", "first", "functions", "names"):
            setattr(result, key, getattr(result, key) + getattr(room, key))
        result.which.update(room.which)
        result.worst += room.worst
    return result


def show(title: str, rooms: dict[str, Figures], worst: int, names: bool) -> None:
    """Print the figures of one package, and its worst places."""
    if len(rooms) > 1 and worst >= 0:
        for room, figures in sorted(rooms.items(), key=lambda item: -item[1].words):
            print(f"  {room:24.24s} {figures.row()}")
    package = total(rooms)
    print(f"{title:26.26s} {package.row()}")
    if names and package.which:
        common = package.which.most_common(16)
        print("  names:", ", ".join(f"{name} {count}" for name, count in common))
    if worst > 0:
        for _, where, text in sorted(package.worst, reverse=True)[:worst]:
            print(f"  {where}: {text}")


def main() -> int:
    """Print the figures of the packages that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("paths", nargs="*", help="packages, modules or folders of .rst (--docs)")
    parser.add_argument("--docs", action="store_true", help="reStructuredText in place of Python")
    parser.add_argument(
        "--installed", action="store_true", help="the paths are names of installed packages"
    )
    parser.add_argument(
        "--worst", type=int, default=0, metavar="N", help="show the N places to rewrite first"
    )
    parser.add_argument("--short", action="store_true", help="one line for each package")
    options = parser.parse_args()
    print(f"{'':26s} {'words':>8s} {'vague':>7s} {'dialect':>7s} {'free':>7s} {'names':>7s}")
    for path in options.paths or ["resource_objects"]:
        if options.installed:
            spec = importlib.util.find_spec(path)
            if spec is None or not spec.origin:
                print(f"{path}: not installed")
                continue
            root = pathlib.Path(spec.origin)
            root = root.parent if root.name == "__init__.py" else root
        else:
            root = pathlib.Path(path)
        kind = "docs" if options.docs else "code"
        worst = -1 if options.short else options.worst
        show(path, collect(root, kind), worst, not options.docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
