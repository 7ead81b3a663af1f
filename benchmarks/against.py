"""A comparison of this checkout with an older revision.

``python -m benchmarks --against REVISION [--only PART] [--rounds N] [--same] [--fail-beyond 1.5]``

Figures of different days or machines cannot be compared, so both versions are measured in one run.
Each is exported from git into a folder and installed in an environment of its own, over the
packages of the Python that runs this; pip fetches requirements that are missing there. This
checkout is its tracked files as they are now, committed or not.

Each revision runs its own benchmarks, in a process for each part, and the first one changes from
round to round. A part that the older revision does not have is run with the benchmarks of this
checkout, and so are all parts with ``--same``; they use public names that both versions have. Rows
are paired by name. A ratio is that of the medians over the rounds, above 1 if this checkout is
better; rows of only one version are listed.

With ``--fail-beyond N`` the exit status is 1 if a row is more than N times worse. The parts of such
rows are measured a second time first, because a busy machine has the same effect.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

ROUNDS = 5
_ROOT = pathlib.Path(__file__).parent.parent
#: git refuses a checkout of another user unless it is declared safe.
_GIT = ("git", "-c", f"safe.directory={_ROOT}", "-C", str(_ROOT))
_MORE_IS_BETTER = ("per second",)
_LESS_IS_BETTER = ("ns", "us", "us per host", "ms", "s", "MB", "statements")
#: Rows about the machine, which no change of the library improves.
_OF_THE_MACHINE = ("disk:", "installed:")
#: Rows that wait for the disk never fail: its flushes differed 14 times between two runs of the
#: same code.
_OF_THE_DISK = "a flush per commit"


class Failed(Exception):
    """A version cannot be installed, or its benchmarks fail."""


@dataclasses.dataclass(frozen=True)
class Version:
    """A revision that is installed in a folder."""

    name: str
    commit: str
    folder: pathlib.Path
    python: pathlib.Path

    def has(self, part: str) -> bool:
        """Return True if the revision has benchmarks of the part."""
        return (self.folder / "benchmarks" / f"{part}.py").exists()

    def run(self, part: str, folder: pathlib.Path) -> dict[str, tuple[str, float]]:
        """Run a part of the benchmarks in a folder; return ``{row: (unit, figure)}``."""
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch) / "result.json"
            command = [self.python, "-m", "benchmarks", "--only", part, "--write", path]
            process = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if not path.exists():  # the status is 1 after a missed target too
                message = (process.stderr or process.stdout)[-2000:]
                raise Failed(f"{self.name}, {part}: {message}")
            rows = json.loads(path.read_text())["rows"]
        figures: dict[str, tuple[str, float]] = {}
        for row in rows:  # a row with several peers is written several times
            point = row.get("point")  # of grids in older revisions
            name = row["name"] if point is None else f"{row['name']} {tuple(point)}"
            figures.setdefault(name, (row["unit"], row["ours"]))
        return figures


@dataclasses.dataclass(frozen=True)
class Pair:
    """One row of both versions."""

    name: str
    part: str
    unit: str
    ours: float
    theirs: float

    @property
    def ratio(self) -> float | None:
        """How many times better this checkout is; None if the unit has no better direction."""
        if self.name.startswith(_OF_THE_MACHINE) or not self.ours or not self.theirs:
            return None
        if self.unit in _MORE_IS_BETTER:
            return self.ours / self.theirs
        return self.theirs / self.ours if self.unit in _LESS_IS_BETTER else None

    def is_worse(self, limit: float) -> bool:
        """Return True if this checkout is more than ``limit`` times worse; never for disk rows."""
        if self.ratio is None or _OF_THE_DISK in self.name:
            return False
        return self.ratio * limit < 1


@dataclasses.dataclass
class Figures:
    """The measured figures of both versions, ``ours`` and ``theirs``, by part and row."""

    units: dict[tuple[str, str, str], str] = dataclasses.field(default_factory=dict)
    figures: dict[tuple[str, str, str], list[float]] = dataclasses.field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, side: str, part: str, rows: Mapping[str, tuple[str, float]]) -> None:
        """Add the rows of one run of a part."""
        for name, (unit, figure) in rows.items():
            self.units[side, part, name] = unit
            self.figures[side, part, name].append(figure)

    def pairs(self) -> Iterator[Pair]:
        """Yield the rows that both versions have in the same unit."""
        for (side, part, name), unit in self.units.items():
            if side == "ours" and self.units.get(("theirs", part, name)) == unit:
                ours, theirs = (
                    statistics.median(self.figures[version, part, name])
                    for version in ("ours", "theirs")
                )
                yield Pair(name, part, unit, ours, theirs)

    def unpaired(self, side: str) -> list[str]:
        """Return the names of the rows that only one version has."""
        paired = {(pair.part, pair.name) for pair in self.pairs()}
        return [key[2] for key in self.units if key[0] == side and key[1:] not in paired]


# --- installation ---------------------------------------------------------------------------------


@contextlib.contextmanager
def installed(revision: str) -> Iterator[tuple[Version, Version]]:
    """Install this checkout and a revision in a temporary folder.

    :raises Failed: if the revision is not found, or a version cannot be installed
    """
    theirs = git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as scratch:
        folder = pathlib.Path(scratch)
        ours = install("this checkout", _tree(folder / "index"), folder / "ours", commit())
        yield ours, install(revision, theirs, folder / "theirs", theirs)


def _tree(index: pathlib.Path) -> str:
    """Return a git tree of this checkout with its uncommitted changes, by a temporary index."""
    git("read-tree", "HEAD", index=index)
    git("add", "--all", index=index)
    return git("write-tree", index=index)


def install(name: str, revision: str, folder: pathlib.Path, commit: str) -> Version:
    """Export a revision from git into a folder, and install it in an environment of its own.

    :param name: its title in tables
    :param revision: a commit or a tree
    :raises Failed: if git does not have it, or pip fails
    """
    source, environment = folder / "source", folder / "environment"
    source.mkdir(parents=True)
    archive = subprocess.run([*_GIT, "archive", revision], capture_output=True)
    if archive.returncode:
        raise Failed(f"{name}: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
    # pip and setuptools are those of the packages below, which are newer than Python's
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    process = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    packages = [path for path in sys.path if path.endswith("site-packages")]
    pathlib.Path(process.stdout.strip(), "zz_packages.pth").write_text("\n".join(packages) + "\n")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    pip += ["install", "-q"]
    if _can_build():
        pip.append("--no-build-isolation")  # fetches nothing
    process = subprocess.run([*pip, "-e", source], capture_output=True, text=True)
    if process.returncode:
        raise Failed(f"{name} cannot be installed: {process.stderr[-2000:]}")
    return Version(name, commit, source, python)


def _can_build() -> bool:
    """Return True if the installed setuptools builds wheels without the package wheel."""
    try:
        version = importlib.metadata.version("setuptools")
    except importlib.metadata.PackageNotFoundError:
        return False
    return tuple(int(number) for number in version.split(".")[:2]) >= (70, 1)


def git(*words: str, index: pathlib.Path | None = None) -> str:
    """Return the output of a git command in this checkout.

    :param index: replaces the index of the checkout
    :raises Failed: if git is missing or the command fails
    """
    try:
        process = subprocess.run(
            [*_GIT, *words],
            env=os.environ | ({} if index is None else {"GIT_INDEX_FILE": str(index)}),
            capture_output=True,
            text=True,
        )
    except OSError as error:
        raise Failed(f"git: {error}") from error
    if process.returncode:
        raise Failed(f"git {' '.join(words)}: {process.stderr.strip() or 'no result'}")
    return process.stdout.strip()


def commit() -> str:
    """Return the commit of this checkout, marked if tracked files differ; "" without git."""
    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + (" with changes" if changed else "")
    except Failed:
        return ""


# --- measurement ----------------------------------------------------------------------------------


def measure(
    ours: Version, theirs: Version, parts: Collection[str], rounds: int, *, same: bool
) -> Figures:
    """Run the parts of both versions in turn."""
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as scratch:
        # without the package next to them, the benchmarks import the version of each environment
        shared = pathlib.Path(scratch)
        shutil.copytree(ours.folder / "benchmarks", shared / "benchmarks")
        (shared / "tests").mkdir()
        shutil.copy(ours.folder / "tests" / "databases.py", shared / "tests")
        sides = [("ours", ours), ("theirs", theirs)]
        for number in range(rounds):
            for part in parts:
                is_shared = same or not theirs.has(part)
                for side, version in sides if number % 2 == 0 else sides[::-1]:
                    print(f"round {number + 1} of {rounds}: {part}, {version.name}", flush=True)
                    folder = shared if is_shared else version.folder
                    figures.add(side, part, version.run(part, folder))
    return figures


def run(
    revision: str,
    parts: Sequence[str],
    *,
    rounds: int = ROUNDS,
    same: bool = False,
    limit: float | None = None,
) -> tuple[dict[str, Any], bool]:
    """Measure this checkout against a revision, and print the table.

    :param limit: how many times worse a row may be
    :returns: the result as plain data, and whether every row is within the limit
    :raises Failed: see :func:`installed`, and if benchmarks fail
    """
    with installed(revision) as (ours, theirs):
        figures = measure(ours, theirs, parts, rounds, same=same)
        show(figures, ours, theirs)
        worse = [pair for pair in figures.pairs() if limit is not None and pair.is_worse(limit)]
        if worse and limit is not None:
            print(f"\nmeasured again, because rows are worse by more than {limit:g}:")
            again = list(dict.fromkeys(pair.part for pair in worse))
            second = measure(ours, theirs, again, rounds, same=same)
            show(second, ours, theirs)
            names = {pair.name for pair in second.pairs() if pair.is_worse(limit)}
            worse = [pair for pair in worse if pair.name in names]
            for pair in worse:
                print(f"WORSE, twice: {pair.name}")
    return {
        "against": theirs.commit,
        "rounds": rounds,
        "rows": [dataclasses.asdict(pair) | {"ratio": pair.ratio} for pair in figures.pairs()],
        "only_ours": figures.unpaired("ours"),
        "only_theirs": figures.unpaired("theirs"),
    }, not worse


def show(figures: Figures, ours: Version, theirs: Version) -> None:
    """Print the table."""
    print(f"\n{'':<76}{theirs.name[:16]:>16}{'now':>16}  {'':<12}times better")
    for pair in figures.pairs():
        ratio = "" if pair.ratio is None else f"{pair.ratio:.2f}"
        cells = f"{text_of(pair.theirs):>16}{text_of(pair.ours):>16}"
        print(f"{pair.name:<76}{cells}  {pair.unit:<12}{ratio:>5}".rstrip())
    for side, version in (("theirs", theirs), ("ours", ours)):
        for name in figures.unpaired(side):
            print(f"only {version.name}: {name}")


def text_of(figure: float) -> str:
    """Return a figure with three digits, or as an integer from 100 on."""
    return f"{figure:,.0f}" if figure >= 100 or figure == int(figure) else f"{figure:.3g}"
