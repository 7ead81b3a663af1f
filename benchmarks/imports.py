"""What it costs to have the library: import time, distributions, megabytes."""

from __future__ import annotations

import importlib.metadata
import pathlib
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.measure import Row

_IMPORTS = {
    "import: the package": "import resource_objects",
    "import: the algebra": "import resource_objects as ro; ro.IntegerAmount",
    "import: a ledger in memory": "import resource_objects as ro; ro.connect('memory://')",
    "import: a ledger in SQLite": (
        "import resource_objects as ro, tempfile, pathlib;"
        "ro.connect(f'sqlite:///{pathlib.Path(tempfile.mkdtemp())}/l.db')"
    ),
}


def rows() -> Iterator[Row]:
    """Yield import times in a fresh interpreter, then the size of the installation."""
    for name, statement in _IMPORTS.items():
        yield Row(name, "ms", _seconds(statement) * 1000)
    needed = _distributions("resource_objects")
    size = sum(_bytes(name) for name in needed)
    yield Row("installed: distributions", "", len(needed))
    yield Row("installed: megabytes", "", size / 1e6)


def _seconds(statement: str, rounds: int = 5) -> float:
    code = f"import time; s = time.perf_counter(); {statement}; print(time.perf_counter() - s)"
    times = []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        times.append(float(done.stdout))
    return statistics.median(times)


def _distributions(name: str, found: set[str] | None = None) -> set[str]:
    """Return the distribution and all it requires, without extras."""
    found = set() if found is None else found
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found:
        return found
    try:
        requirements = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return found
    found.add(key)
    for requirement in requirements:
        if "extra ==" not in requirement:
            _distributions(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0], found)
    return found


def _bytes(name: str) -> int:
    files = importlib.metadata.files(name) or []
    paths = (pathlib.Path(str(file.locate())) for file in files)
    return sum(path.stat().st_size for path in paths if path.is_file())
