"""Run the benchmarks, print one table, write one result file.

``python -m benchmarks [--only PART] [--write FILE]``. Takes some seconds. Figures are of one noisy
machine: believe the ratios. Only where they are named run ``placement``, ``candidates`` (both with
Placement installed), ``growth`` and ``schedulers``, which take minutes, and ``numa`` and ``pci``,
which have a peer where Nova is installed.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
from collections.abc import Iterator

from benchmarks.measure import Row

PARTS = ("algebra", "objects", "imports", "ledgers")
#: Parts with a peer: ``tox -e placement``, ``tox -e nova``.
PEERS = ("placement", "candidates", "numa", "pci")
#: Parts that take minutes.
LONG = ("growth", "schedulers")
RESULTS = pathlib.Path(__file__).parent / "results"
_VERSIONS = ("resource_objects", "oslo.versionedobjects", "oslo.db", "SQLAlchemy", "numpy")
#: Told where they are installed.
_MORE_VERSIONS = ("psycopg", "psycopg2-binary", "openstack-placement", "nova")


def main() -> int:
    """Return 0 if every target was met, else 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", choices=(*PARTS, *PEERS, *LONG), action="append", help="run only this part"
    )
    parser.add_argument("--write", metavar="FILE", help="result file; '-' writes none")
    options = parser.parse_args()
    rows: list[Row] = []
    for part in options.only or PARTS:
        for row in importlib.import_module(f"benchmarks.{part}").rows():
            print(_line(row), flush=True)
            rows.append(row)
    if options.write != "-":
        path = pathlib.Path(options.write) if options.write else RESULTS / "benchmarks.json"
        _write(path, rows)
        print(f"\nwritten to {path}")
    return 1 if any(row.met is False for row in rows) else 0


def _line(row: Row) -> str:
    ours = f"{_figure(row.ours)} {row.unit}"
    at = "" if row.point is None else f" {row.point}"
    more = "more than " if row.stopped else ""
    peer = "" if row.peer is None else f"{row.peer_name} {more}{_figure(row.peer)} {row.unit}"
    ratio = "" if row.ratio is None else f"{row.ratio:.3g} times"
    verdict = {None: "", True: "met", False: "MISSED"}[row.met]
    return f"{row.name + at:<72}{ours:>20}  {peer:<42}{ratio:<15}{row.target} {verdict}".rstrip()


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _write(path: pathlib.Path, rows: list[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "command": "python -m benchmarks " + " ".join(sys.argv[1:]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "host": {
            "system": f"{platform.system()} {platform.machine()}",
            "cpus": os.cpu_count(),
            "processor": _processor(),
        },
        "versions": dict(_versions()),
        "rows": [row.to_dict() for row in rows],
    }
    path.write_text(json.dumps(result, indent=1) + "\n")


def _versions() -> Iterator[tuple[str, str]]:
    for name in (*_VERSIONS, *_MORE_VERSIONS):
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if name in _VERSIONS:
                raise


def _processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    sys.exit(main())
