"""This checkout beside an older revision: installed beside each other, run in turn, ratios.

``python -m benchmarks --against REVISION [--only PART] [--rounds N] [--same] [--fail-beyond 1.5]``

Figures that were taken on different days cannot be compared: machines differ, and so does one
machine from hour to hour. So both versions are measured in one run. Each is taken out of git into
a folder and installed there in an environment of its own, over the packages of the Python that
runs this; what that one lacks and a revision needs is fetched by pip. What is measured of this
checkout is its tracked files as they are now, committed or not.

Each revision runs its own benchmarks, a process for each part, and who goes first changes from
round to round. Rows pair by name. A ratio is that of the medians over the rounds, above 1 where
this checkout is better; rows that only one of both has are listed. With ``--same`` both run the
benchmarks of this checkout instead, for figures that the older one did not take yet: that needs
the public names which these benchmarks use.

With ``--fail-beyond N`` the exit status is 1 if a row is more than N times worse than it was. The
parts of such rows are measured again before it is said, because a busy machine can do that too.
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
#: The checkout may be somebody else's, which git distrusts unless it is told not to.
_GIT = ("git", "-c", f"safe.directory={_ROOT}", "-C", str(_ROOT))
_MORE_IS_BETTER = ("per second",)
_LESS_IS_BETTER = ("ns", "us", "ms", "s", "MB", "statements")
#: Rows about the machine, which a change of the library cannot make better or worse.
_NOT_OURS = ("disk:", "installed:")
#: Rows that wait for the disk: shown, but no failure. Its flushes were seen to differ 14 times
#: between two runs of the same code.
_OF_THE_DISK = "a flush per commit"


class Failed(Exception):
    """A version that cannot be installed or does not run to its end."""


@dataclasses.dataclass(frozen=True)
class Version:
    """A revision that is installed in a folder."""

    name: str
    commit: str
    folder: pathlib.Path
    python: pathlib.Path

    def knows(self, part: str) -> bool:
        """Return whether it has benchmarks of a part."""
        return (self.folder / "benchmarks" / f"{part}.py").exists()

    def run(self, part: str) -> dict[str, tuple[str, float]]:
        """Run a part once; return ``{row: (unit, figure)}``."""
        with tempfile.TemporaryDirectory() as scratch:
            result = pathlib.Path(scratch) / "result.json"
            command = [self.python, "-m", "benchmarks", "--only", part, "--write", result]
            ended = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
            if not result.exists():  # a missed target has a status of its own, and a result
                raise Failed(f"{self.name}, {part}: {(ended.stderr or ended.stdout)[-2000:]}")
            rows = json.loads(result.read_text())["rows"]
        found: dict[str, tuple[str, float]] = {}
        for row in rows:  # one with several peers comes several times
            point = row.get("point")
            name = row["name"] if point is None else f"{row['name']} {tuple(point)}"
            found.setdefault(name, (row["unit"], row["ours"]))
        return found


@dataclasses.dataclass(frozen=True)
class Pair:
    """One row of both versions; ``ratio`` is None where nothing says which figure is better."""

    name: str
    part: str
    unit: str
    ours: float
    theirs: float

    @property
    def ratio(self) -> float | None:
        """How many times better this checkout is than the other."""
        if self.name.startswith(_NOT_OURS) or not self.ours or not self.theirs:
            return None
        if self.unit in _MORE_IS_BETTER:
            return self.ours / self.theirs
        return self.theirs / self.ours if self.unit in _LESS_IS_BETTER else None

    def is_worse(self, limit: float) -> bool:
        """Return whether this checkout is more than ``limit`` times worse; never of the disk."""
        if self.ratio is None or _OF_THE_DISK in self.name:
            return False
        return self.ratio * limit < 1


@dataclasses.dataclass
class Figures:
    """What was measured: ``{(part, row): [figures]}`` of each version."""

    units: dict[tuple[str, str, str], str] = dataclasses.field(default_factory=dict)
    taken: dict[tuple[str, str, str], list[float]] = dataclasses.field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, side: str, part: str, rows: Mapping[str, tuple[str, float]]) -> None:
        """Note what one version said of a part."""
        for name, (unit, figure) in rows.items():
            self.units[side, part, name] = unit
            self.taken[side, part, name].append(figure)

    def pairs(self) -> Iterator[Pair]:
        """Yield the rows that both have, in one unit."""
        for (side, part, name), unit in self.units.items():
            if side == "ours" and self.units.get(("theirs", part, name)) == unit:
                medians = [statistics.median(self.taken[s, part, name]) for s in ("ours", "theirs")]
                yield Pair(name, part, unit, *medians)

    def unpaired(self, side: str) -> list[str]:
        """Return the rows that only one version has."""
        paired = {(pair.part, pair.name) for pair in self.pairs()}
        return [key[2] for key in self.units if key[0] == side and key[1:] not in paired]


# --- installing ---


@contextlib.contextmanager
def installed(revision: str, *, same: bool = False) -> Iterator[tuple[Version, Version]]:
    """Install this checkout and a revision beside each other for a while.

    :param same: whether the revision is given the benchmarks of this checkout
    :raises Failed: if there is no such revision, or one of both cannot be installed
    """
    theirs = git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as scratch:
        folder = pathlib.Path(scratch)
        ours = install("this checkout", _tree(folder / "index"), folder / "ours", commit())
        other = install(revision, theirs, folder / "theirs", theirs)
        if same:
            shutil.rmtree(other.folder / "benchmarks")
            shutil.copytree(ours.folder / "benchmarks", other.folder / "benchmarks")
        yield ours, other


def _tree(index: pathlib.Path) -> str:
    """Return the tree of this checkout as it is, made in an index of its own."""
    git("read-tree", "HEAD", index=index)
    git("add", "--all", index=index)
    return git("write-tree", index=index)


def install(name: str, revision: str, folder: pathlib.Path, commit: str) -> Version:
    """Take a revision out of git into a folder, and install it there in an environment of its own.

    :param name: what it is called in tables
    :param revision: a commit or a tree
    :raises Failed: if git does not have it, or it cannot be installed
    """
    source, environment = folder / "source", folder / "environment"
    source.mkdir(parents=True)
    archive = subprocess.run([*_GIT, "archive", revision], capture_output=True)
    if archive.returncode:
        raise Failed(f"{name}: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
    # without a pip, and a setuptools, of its own: those of the packages below are newer
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True)
    packages = [path for path in sys.path if path.endswith("site-packages")]
    pathlib.Path(own.stdout.strip(), "zz_packages.pth").write_text("\n".join(packages) + "\n")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    pip += ["install", "-q"]
    if _can_build():
        pip.append("--no-build-isolation")  # nothing has to be fetched
    ended = subprocess.run([*pip, "-e", source], capture_output=True, text=True)
    if ended.returncode:
        raise Failed(f"{name} cannot be installed: {ended.stderr[-2000:]}")
    return Version(name, commit, source, python)


def _can_build() -> bool:
    """Return whether there is a setuptools that makes wheels on its own."""
    try:
        version = importlib.metadata.version("setuptools")
    except importlib.metadata.PackageNotFoundError:
        return False
    return tuple(int(number) for number in version.split(".")[:2]) >= (70, 1)


def git(*words: str, index: pathlib.Path | None = None) -> str:
    """Return what git says of this checkout.

    :param index: used in the place of the checkout's own
    :raises Failed: if it has nothing to say: there is no git, no history or no such revision
    """
    try:
        ended = subprocess.run(
            [*_GIT, *words],
            env=os.environ | ({} if index is None else {"GIT_INDEX_FILE": str(index)}),
            capture_output=True,
            text=True,
        )
    except OSError as error:
        raise Failed(f"git: {error}") from error
    if ended.returncode:
        raise Failed(f"git {' '.join(words)}: {ended.stderr.strip() or 'nothing found'}")
    return ended.stdout.strip()


def commit() -> str:
    """Return the commit of this checkout, marked where tracked files differ from it; else ""."""
    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + (" with changes" if changed else "")
    except Failed:
        return ""


# --- measuring ---


def measured(ours: Version, theirs: Version, parts: Collection[str], rounds: int) -> Figures:
    """Run some parts of both in turn, so many times."""
    found = Figures()
    sides = [("ours", ours), ("theirs", theirs)]
    for number in range(rounds):
        for part in parts:
            for side, version in sides if number % 2 == 0 else sides[::-1]:
                if version.knows(part):
                    print(f"round {number + 1} of {rounds}: {part}, {version.name}", flush=True)
                    found.add(side, part, version.run(part))
    return found


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
    :returns: the result, as plain data, and whether every row is within the limit
    :raises Failed: see :func:`installed`, and if benchmarks do not run to their end
    """
    with installed(revision, same=same) as (ours, theirs):
        found = measured(ours, theirs, parts, rounds)
        show(found, ours, theirs)
        worse = [pair for pair in found.pairs() if limit is not None and pair.is_worse(limit)]
        if worse and limit is not None:
            again = list(dict.fromkeys(pair.part for pair in worse))
            print(f"\nmeasured again, because rows are worse by more than {limit:g}:")
            second = measured(ours, theirs, again, rounds)
            show(second, ours, theirs)
            still = {pair.name for pair in second.pairs() if pair.is_worse(limit)}
            worse = [pair for pair in worse if pair.name in still]
            for pair in worse:
                print(f"WORSE, twice: {pair.name}")
    return {
        "against": theirs.commit,
        "rounds": rounds,
        "rows": [dataclasses.asdict(pair) | {"ratio": pair.ratio} for pair in found.pairs()],
        "only_ours": found.unpaired("ours"),
        "only_theirs": found.unpaired("theirs"),
    }, not worse


def show(found: Figures, ours: Version, theirs: Version) -> None:
    """Print the table."""
    print(f"\n{'':<72}{theirs.name[:16]:>16}{'now':>16}  {'':<12}times better")
    for pair in found.pairs():
        ratio = "" if pair.ratio is None else f"{pair.ratio:.2f}"
        figures = f"{_figure(pair.theirs):>16}{_figure(pair.ours):>16}"
        print(f"{pair.name:<72}{figures}  {pair.unit:<12}{ratio:>5}".rstrip())
    for side, version in (("theirs", theirs), ("ours", ours)):
        for name in found.unpaired(side):
            print(f"only {version.name}: {name}")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
