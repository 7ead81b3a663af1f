"""What people wait for at the prompt: commands in processes of their own, the list of machines, a
site in a file, and a search for what is near.

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
from collections.abc import Callable, Iterator
from functools import partial

import resource_objects as ro
from benchmarks.measure import Row
from resource_objects.cli.host_lines import host_lines
from resource_objects.search import Snapshot
from resource_objects.site import Site, apply_site, export_site

MACHINES, GPUS = 10_000, 8
_SITE = f"""machines:
  host-[0-{MACHINES - 1}]:
    inventories: VCPU=64,MEMORY_MB=515000
    children:
      /gpu[0-{GPUS - 1}]: {{inventories: PGPU=1}}
"""
#: What is applied and exported; the GPUs are split, so each gives two classes.
_SPLIT = """machines:
  lab-[0-%d]:
    inventories: VCPU=64,MEMORY_MB=%d
    aggregates: [rack-1]
    children:
      /gpu[0-7]: {inventories: PGPU=1, split: halves, traits: [CUSTOM_H100]}
"""
_LEAST = 2000.0
_HOSTS = 1000
_CELLS = f"""machines:
  host-[0-{_HOSTS - 1}]:
    inventories: DISK_GB=1000
    children:
      /cell[0-1]:
        inventories: VCPU=32,MEMORY_MB=262144
        traits: [HW_NUMA_ROOT]
        children:
          /gpu[0-3]: {{inventories: PGPU=1}}
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
    "oslo.db": "import oslo_db.exception, oslo_db.sqlalchemy.exc_filters",
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
    with tempfile.TemporaryDirectory() as folder:
        yield from _site("memory", "memory://")
        file = pathlib.Path(folder) / "applied.db"
        yield from _site("SQLite", f"sqlite:///{file}?synchronous=NORMAL")
    yield from _near()


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
                spent.append(_seconds(lambda: host_lines(snapshot.host_usage())))
            assert len(snapshot.host_usage()) == MACHINES
        command = [*_COMMAND, "--database", url, "usage", "hosts"]
        cold = statistics.median(_processor_seconds(command, {}) for _ in range(5)) - start
    best = min(spent)
    name = f"prompt: a line for each of {MACHINES:,} machines with {GPUS} GPUs each"
    yield Row(name, "ms", best * 1e3, target="< 1 s", met=best < 1)
    name = f"prompt: usage hosts of {MACHINES:,} such machines, less such a start"
    yield Row(name, "ms", cold * 1e3, target="< 1 s", met=cold < 1)


def _site(backend: str, url: str) -> Iterator[Row]:
    """Yield how many machines with eight GPUs each are applied and exported per second."""
    site, changed = (Site.parse(_SPLIT % (MACHINES - 1, memory)) for memory in (512000, 500000))
    with ro.connect(url) as ledger:
        steps: dict[str, Callable[[], object]] = {
            "apply": lambda: apply_site(ledger, site),
            "apply again": lambda: apply_site(ledger, site),
            "export": lambda: str(export_site(ledger)),
            "apply, each with other memory": lambda: apply_site(ledger, changed),
        }
        for step, do in steps.items():
            found = MACHINES / _seconds(do)
            name = f"{backend}: machines of a site with eight GPUs each, {step}"
            target = f"at least {_LEAST:,.0f}"
            yield Row(name, "per second", found, target=target, met=found >= _LEAST)


def _near() -> Iterator[Row]:
    """Yield what it costs to look for what is near, beside the same without.

    Of a fleet where half of the hosts have a GPU left in each cell: what is asked is of two cells.
    """
    with ro.connect("memory://") as ledger:
        apply_site(ledger, Site.parse(_CELLS))
        for number in range(0, _HOSTS, 2):
            gpus = [f"host-{number}/cell{cell}/gpu{gpu}" for cell in (0, 1) for gpu in (0, 1, 2)]
            ledger.claim(f"job-{number}", dict.fromkeys(gpus, "PGPU=1"))
        snapshot = ledger.snapshot()
    plain = ro.Request("VCPU=8,MEMORY_MB=65536,PGPU=2")
    ways = {
        "near": plain.replace(near="numa"),
        "near required": plain.replace(near="numa", near_policy="required"),
    }
    for limit, asked in ((1, "one candidate"), (None, "all candidates")):
        for way, request in ways.items():
            found: tuple[list[float], list[float]] = [], []
            for _ in range(5):
                for one, spent in zip((request, plain), found, strict=True):
                    spent.append(_seconds(partial(_search, snapshot, one, limit)))
            ours, peer = (min(some) * 1e3 for some in found)
            name = f"{way}: {asked} over {_HOSTS:,} hosts with two cells and eight GPUs"
            yield Row(name, "ms", ours, peer, "the same without", ours / peer)


def _search(snapshot: Snapshot, request: ro.Request, limit: int | None) -> None:
    assert list(snapshot.candidates(request, limit=limit))


def _seconds(do: Callable[[], object]) -> float:
    """Return the processor's time of a call."""
    begun = time.process_time()
    do()
    return time.process_time() - begun


def _processor_seconds(command: list[str], environ: dict[str, str]) -> float:
    """Return the processor's time of a command and what it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env={**os.environ, **environ}, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
