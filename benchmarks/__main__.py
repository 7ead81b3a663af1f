"""Run the benchmarks, print one table, write one result file.

``python -m benchmarks`` takes some seconds, and writes ``benchmarks/results/benchmarks.json``.
Figures are of one noisy machine: believe the ratios. Only where they are named with ``--only``
run ``placement``, ``candidates``, ``service`` (with Placement installed), ``remote``, ``growth``,
``schedulers`` and ``scheduling``, which take minutes, ``gangs``, ``explain``, ``what_if``,
``answers`` and ``prompt``, which take one, ``jobs`` and ``refreshes``, which older versions can run
too, and ``numa``, ``pci`` and ``tracker``; these three and ``scheduling`` have a peer where Nova is
installed. They write a file only where ``--write`` names one. ``--against REVISION`` measures this
checkout and an older one in turn instead, see :mod:`benchmarks.against`.
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
from collections.abc import Collection, Iterator
from typing import Any

from benchmarks import against
from benchmarks.measure import Row

PARTS = ("algebra", "objects", "imports", "ledgers")
#: Parts with a peer: ``tox -e placement``, ``tox -e nova``.
PEERS = ("placement", "candidates", "service", "numa", "pci", "tracker")
#: Parts that take minutes, or are for ``--against``.
LONG = (
    *("growth", "schedulers", "scheduling", "jobs", "refreshes", "prompt", "gangs"),
    *("explain", "what_if", "remote", "answers"),
)
RESULTS = pathlib.Path(__file__).parent / "results"
_VERSIONS = ("resource_objects", "oslo.versionedobjects", "oslo.db", "SQLAlchemy", "numpy")
#: Told where they are installed.
_MORE_VERSIONS = ("psycopg", "psycopg2-binary", "openstack-placement", "nova")


def main() -> int:
    """Return 0 if every target was met and nothing is worse than it may be, else 1."""
    parser = _parser()
    options = parser.parse_args()
    parts = tuple(options.only or PARTS)
    path = _path(options)
    if path is not None and (lost := _known_parts(path) - set(parts)):
        parser.error(
            f"{path} has results of {', '.join(sorted(lost))}, which would be lost: "
            "name another file with --write, or '-' for none"
        )
    if options.against:
        return _against(options, parts, path)
    rows: list[Row] = []
    for part in parts:
        for row in importlib.import_module(f"benchmarks.{part}").rows():
            print(_line(row), flush=True)
            rows.append(row)
    if path is not None:
        _write(path, parts, {"rows": [row.to_dict() for row in rows]})
    return 1 if any(row.met is False for row in rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", choices=(*PARTS, *PEERS, *LONG), action="append", help="run only this part"
    )
    parser.add_argument("--write", metavar="FILE", help="result file; '-' writes none")
    beside = parser.add_argument_group("beside an older revision")
    beside.add_argument("--against", metavar="REVISION", help="run this checkout and that in turn")
    beside.add_argument(
        "--rounds", type=int, default=against.ROUNDS, help="how often each runs (%(default)s)"
    )
    beside.add_argument(
        "--same", action="store_true", help="let both run the benchmarks of this checkout"
    )
    beside.add_argument(
        "--fail-beyond", type=float, metavar="N", help="fail if a row is N times worse, twice"
    )
    return parser


def _path(options: argparse.Namespace) -> pathlib.Path | None:
    if options.write:
        return None if options.write == "-" else pathlib.Path(options.write)
    return None if options.only or options.against else RESULTS / "benchmarks.json"


def _known_parts(path: pathlib.Path) -> set[str]:
    """Return the parts whose results a file has."""
    if not path.exists():
        return set()
    found = json.loads(path.read_text())
    return set(found["parts"])


def _against(options: argparse.Namespace, parts: Collection[str], path: pathlib.Path | None) -> int:
    try:
        result, is_within = against.run(
            options.against,
            tuple(parts),
            rounds=options.rounds,
            same=options.same,
            limit=options.fail_beyond,
        )
    except against.Failed as error:
        print(f"cannot compare: {error}", file=sys.stderr)
        return 2
    if path is not None:
        _write(path, parts, result)
    return 0 if is_within else 1


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


def _write(path: pathlib.Path, parts: Collection[str], result: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {
        "command": "python -m benchmarks " + " ".join(sys.argv[1:]),
        "parts": list(parts),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": against.commit(),
        "python": platform.python_version(),
        "host": {
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "cpus": os.cpu_count(),
            "processor": _processor(),
            "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        },
        "versions": dict(_versions()),
    }
    path.write_text(json.dumps(head | result, indent=1) + "\n")
    print(f"\nwritten to {path}")


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
