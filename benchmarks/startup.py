"""The start of a program: imports, the command, and the size of the installation.

A command is compared with an interpreter that imports the same libraries.
"""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import resource_objects as ro
from benchmarks.measure import Row

ROUNDS = 5
LIBRARIES = "import sqlalchemy.dialects.sqlite.pysqlite, cliff.app, numpy, resource_objects.ledger"
IMPORTS = {
    "import: the package": "import resource_objects",
    "import: the algebra": "import resource_objects as ro; ro.IntegerAmount",
    "import: a ledger in memory": "import resource_objects as ro; ro.connect('memory://')",
    "import: a ledger in SQLite": (
        "import resource_objects as ro, tempfile, pathlib;"
        "ro.connect(f'sqlite:///{pathlib.Path(tempfile.mkdtemp())}/l.db')"
    ),
}


def rows() -> Iterator[Row]:
    """Yield CPU times of new processes, then the size of the installation."""
    start = _cpu_ms([sys.executable, "-c", "pass"])
    for name, statement in IMPORTS.items():
        yield Row(name, "ms", _cpu_ms([sys.executable, "-c", statement]) - start)
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{pathlib.Path(folder) / 'lab.db'}"
        with ro.connect(url) as ledger:
            ledger.sync(ro.Provider(os.uname().nodename, "VCPU=4"))
        program = [sys.executable, "-m", "resource_objects", "--database", url]
        libraries = _cpu_ms([sys.executable, "-c", LIBRARIES])
        for name, arguments, limit in (
            ("command: usage hosts", ["usage", "hosts"], 600.0),
            ("command: run VCPU=1 -- true", ["run", "VCPU=1", "--", "true"], None),
        ):
            figure = _cpu_ms([*program, *arguments])
            yield Row(name, "ms", figure, libraries, "its libraries alone", limit)
    names = _requirements("resource_objects")
    yield Row("installed: distributions", "", len(names))
    yield Row("installed: megabytes", "", sum(_bytes(name) for name in names) / 1e6)


def _cpu_ms(command: list[str]) -> float:
    """Return the CPU milliseconds of a command and its children, the least of some runs."""
    times = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times) * 1e3


def _requirements(name: str, names: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return a distribution and the distributions that it requires, without extras."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in names:
        return names
    try:
        requirements = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return names
    names |= {key}
    for requirement in requirements:
        if "extra ==" not in requirement:
            names = _requirements(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0], names)
    return names


def _bytes(name: str) -> int:
    files = importlib.metadata.files(name) or []
    paths = (pathlib.Path(str(file.locate())) for file in files)
    return sum(path.stat().st_size for path in paths if path.is_file())
