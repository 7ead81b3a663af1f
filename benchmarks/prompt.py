"""What people wait for at the prompt: commands in processes of their own, and the list of machines.

The command is compared with the start of an interpreter that imports what it needs, on the same
machine and in turns, so the ratio says what the command itself costs.
"""

from __future__ import annotations

import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import resource_objects as ro
from benchmarks.measure import Row
from resource_objects.cli.host_lines import host_lines
from resource_objects.host.site import Site, apply_site

MACHINES, GPUS = 10_000, 8
_SITE = f"""machines:
  host-[0-{MACHINES - 1}]:
    inventories: VCPU=64,MEMORY_MB=515000
    children:
      /gpu[0-{GPUS - 1}]: {{inventories: PGPU=1}}
"""
_COMMAND = [sys.executable, "-m", "resource_objects"]
_LIBRARIES = [
    sys.executable,
    "-c",
    "import resource_objects.cli.job, resource_objects.backends.sql.backend, "
    "resource_objects.ledger, resource_objects.search, resource_objects.host",
]


#: What a command imports, each after those before it: what it costs more is its own.
_PARTS = {
    "the interpreter": "pass",
    "SQLAlchemy": "import sqlalchemy, sqlalchemy.dialects.sqlite.pysqlite",
    "oslo.versionedobjects, without a bus": "import resource_objects._ovo",
    "cliff": "import cliff.app, cliff.lister, cliff.show",
    "oslo.db, which imports the ORM": "import oslo_db.sqlalchemy.engines",
    "what is ours": "import resource_objects.cli.main, resource_objects.ledger, "
    "resource_objects.backends.sql.backend",
}


def rows() -> Iterator[Row]:
    """Yield what commands and a press of the tab key cost, and a line for each machine."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{pathlib.Path(folder) / 'lab.db'}"
        name = os.uname().nodename
        with ro.connect(url) as ledger:
            ledger.sync(ro.Provider(name, "VCPU=4"))
        run = [*_COMMAND, "--database", url, "run", "VCPU=1", "--", "true"]
        usage = [*_COMMAND, "--database", url, "usage"]
        ways = {"libraries": (_LIBRARIES, {}), "run": (run, {}), "usage": (usage, {})}
        line = f"resource-objects --database {url} release "
        asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}
        ways["tab"] = (_COMMAND, {**asked, "_ARGCOMPLETE_STDOUT_FILENAME": os.devnull})
        imports = list(_PARTS.values())
        for count, part in enumerate(_PARTS, 1):
            ways[part] = ([sys.executable, "-c", "\n".join(imports[:count])], {})
        spent: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(5):
            for way, (command, environ) in ways.items():
                spent[way].append(_processor_seconds(command, environ))
    seconds = {way: min(some) for way, some in spent.items()}  # others make it more, never less
    yield Row("prompt: an interpreter with the libraries", "ms", seconds["libraries"] * 1e3)
    yield Row("prompt: run -- true", "ms", seconds["run"] * 1e3)
    starts = seconds["run"] / seconds["libraries"]
    yield Row("prompt: run -- true, in such starts", "", starts, target="< 2", met=starts < 2)
    met = seconds["usage"] < 0.4
    yield Row(
        "prompt: usage of one machine", "ms", seconds["usage"] * 1e3, target="< 400 ms", met=met
    )
    before = 0.0
    for part in _PARTS:
        yield Row(f"prompt: usage, of it {part}", "ms", (seconds[part] - before) * 1e3)
        before = seconds[part]
    yield Row("prompt: usage, of it the work", "ms", (seconds["usage"] - before) * 1e3)
    yield Row("prompt: a press of the tab key", "ms", seconds["tab"] * 1e3)
    yield from _lines(seconds["libraries"])


def _lines(start: float) -> Iterator[Row]:
    """Yield what a line for each machine costs: of a snapshot at hand, and as a command.

    :param start: seconds that an interpreter takes with the libraries
    """
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{pathlib.Path(folder) / 'site.db'}?synchronous=NORMAL"
        with ro.connect(url) as ledger:
            apply_site(ledger, Site.parse(_SITE))
            for number in range(0, MACHINES, 10):
                gpu = {f"host-{number}/gpu0": "PGPU=1"}
                ledger.claim(f"job-{number}", {f"host-{number}": "VCPU=8,MEMORY_MB=65536", **gpu})
            snapshot = ledger.snapshot()
            spent = []
            for _ in range(5):
                begun = time.process_time()
                lines = host_lines(snapshot.host_usage())
                spent.append(time.process_time() - begun)
            assert len(lines) == MACHINES
        command = [*_COMMAND, "--database", url, "usage", "hosts"]
        cold = statistics.median(_processor_seconds(command, {}) for _ in range(5)) - start
    best = min(spent)
    name = f"prompt: a line for each of {MACHINES:,} machines with {GPUS} GPUs each"
    yield Row(name, "ms", best * 1e3, target="< 1 s", met=best < 1)
    name = f"prompt: usage hosts of {MACHINES:,} such machines, less such a start"
    yield Row(name, "ms", cold * 1e3, target="< 1 s", met=cold < 1)


def _processor_seconds(command: list[str], environ: dict[str, str]) -> float:
    """Return the processor's time of a command and what it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env={**os.environ, **environ}, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
