"""Run the benchmarks and print a table.

``python -m benchmarks`` runs the parts algebra, ledgers and startup, in a minute. The other parts
run if ``--only`` names them. Nova and Placement are measured in the same run if they are installed.
Figures depend on the machine and its other work, so compare ratios. ``--against REVISION``
alternates this checkout with an older revision, see :mod:`benchmarks.against`. The exit status is 1
if a target is missed, or a row is worse than ``--fail-beyond`` permits.
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

#: Parts that run by default.
DEFAULT = ("algebra", "ledgers", "startup")
PARTS = (*DEFAULT, "fleets", "search", "hosts", "tracker", "service", "schedulers")
_DISTRIBUTIONS = (
    *("resource_objects", "oslo.versionedobjects", "SQLAlchemy", "numpy", "psycopg"),
    *("openstack-placement", "nova"),
)


def main() -> int:
    """Return 0 if all targets are met and no row is worse than permitted, 1 if not, 2 on errors."""
    options = _parser().parse_args()
    parts = tuple(options.only or DEFAULT)
    if options.against:
        try:
            result, is_good = against.run(
                options.against,
                parts,
                rounds=options.rounds,
                same=options.same,
                limit=options.fail_beyond,
            )
        except against.Failed as error:
            print(f"cannot compare: {error}", file=sys.stderr)
            return 2
    else:
        rows = list(_measured_rows(parts))
        result = {"rows": [row.to_dict() for row in rows]}
        is_good = all(row.is_met is not False for row in rows)
    if options.write:
        _write(pathlib.Path(options.write), parts, result)
    return 0 if is_good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--only", choices=PARTS, action="append", help="run this part; may be repeated")
    add("--write", metavar="FILE", help="write the rows, the versions and the machine as JSON")
    group = parser.add_argument_group("comparison with an older revision")
    add = group.add_argument
    add("--against", metavar="REVISION", help="alternate this checkout with that revision")
    add("--rounds", type=int, default=against.ROUNDS, help="runs of each part (%(default)s)")
    add("--same", action="store_true", help="run the benchmarks of this checkout on both")
    add("--fail-beyond", type=float, metavar="N", help="fail if a row is N times worse, twice")
    return parser


def _measured_rows(parts: Collection[str]) -> Iterator[Row]:
    for part in parts:
        for row in importlib.import_module(f"benchmarks.{part}").rows():
            print(_line(row), flush=True)
            yield row


def _line(row: Row) -> str:
    figure = against.text_of(row.ours)
    peer = "" if row.peer is None else f"{against.text_of(row.peer)} {row.unit}, {row.peer_name}"
    ratio = "" if row.ratio is None else f"{row.ratio:.3g} times better"
    target = {None: "", True: "target met", False: "TARGET MISSED"}[row.is_met]
    return f"{row.name:<76}{figure:>12} {row.unit:<11}{peer:<38}{ratio:<20}{target}".rstrip()


def _write(path: pathlib.Path, parts: Collection[str], result: dict[str, Any]) -> None:
    head = {
        "command": "python -m benchmarks " + " ".join(sys.argv[1:]),
        "parts": list(parts),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": against.commit(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "versions": dict(_versions()),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(head | result, indent=1) + "\n")
    print(f"\nwritten to {path}")


def _versions() -> Iterator[tuple[str, str]]:
    for name in _DISTRIBUTIONS:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue


if __name__ == "__main__":
    sys.exit(main())
