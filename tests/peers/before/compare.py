"""Ask both versions, count what differs by its name, and write the table of the documentation.

::

    python -m tests.peers.before.compare --count 5000           # writes the table
    python -m tests.peers.before.compare --kinds search --seed 42   # one question, both answers
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import platform
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import against
from tests.peers.before import differences, questions, versions

COUNT = 150
PAGE = pathlib.Path(__file__).resolve().parents[3] / "doc/source/contributor/before.txt"
COUNTS = pathlib.Path(__file__).with_name("counts.json")
WHAT = {
    "query": "``query``: Placement's query strings, two of three damaged",
    "amounts": "``amounts``: texts of amounts, likewise",
    "cells": "``cells``: topologies on the cells of a host",
    "devices": "``devices``: near to some cells or anywhere",
    "both": "``both``: topologies and devices together",
    "search": "``search``: the set of candidates of a small fleet, and reasons",
    "claims": "``claims``: lives of consumers in memory, step by step",
}


@dataclasses.dataclass
class Compared:
    """What came of the questions of a kind; ``named`` counts questions by what differs in them.

    Of a life some steps may be done and others refused, so it counts as both.
    """

    questions: int = 0
    answered: int = 0
    refused: int = 0
    same: int = 0
    named: Counter[str] = dataclasses.field(default_factory=Counter)
    faults: list[str] = dataclasses.field(default_factory=list)

    def add(self, case: Mapping[str, Any], before: Any, now: Any) -> None:
        """Note the answers to a question."""
        self.questions += 1
        outcomes = [one["step"] for one in now] if isinstance(now, list) else [now]
        no = [isinstance(one, dict) and ("refused" in one or "reasons" in one) for one in outcomes]
        self.answered += not all(no)
        self.refused += any(no)
        self.same += before == now
        names = set()
        for found in differences.differing(before, now):
            name = differences.name_of(case, found)
            if name is None:
                self.faults.append(f"{case['kind']} {case['seed']}: {found}")
            else:
                names.add(name)
        self.named.update(names)


def compared(before: versions.Process, now: versions.Process, kind: str, count: int) -> Compared:
    """Ask both versions so many questions of a kind."""
    found = Compared()
    cases = (questions.case(kind, seed) for seed in range(count))
    for answer in versions.answered(before, now, cases):
        found.add(*answer)
    return found


def keep(found: Mapping[str, Compared]) -> None:
    """Write what was found into the committed counts, in place of what was there of these kinds."""
    counts = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    made = {"commit": against.commit(), "python": platform.python_version()}
    for kind, one in found.items():
        counts[kind] = {**made, **vars(one), "named": dict(sorted(one.named.items()))}
    COUNTS.write_text(json.dumps({k: counts[k] for k in WHAT if k in counts}, indent=1) + "\n")
    PAGE.write_text(page(counts))


def page(counts: Mapping[str, Any]) -> str:
    """Return the table of some counts, as it is included by the page about tests."""
    rows = [("questions", "asked", "the same", "different, by name", "other", "commit")]
    for kind, one in counts.items():
        other = len({fault.partition(":")[0] for fault in one["faults"]})
        named = one["questions"] - one["same"] - other
        figures = (f"{count:,}" for count in (one["questions"], one["same"], named, other))
        rows.append((WHAT[kind], *figures, one["commit"][:7]))
    lines = [
        ".. Made by: python -m tests.peers.before.compare",
        "",
        ".. table::",
        "",
        *_table(rows),
    ]
    lines += ["", "The differences, each with the number of questions in which it is seen:", ""]
    for one in differences.DIFFERENCES:
        seen = {kind: of["named"].get(one.name, 0) for kind, of in counts.items()}
        told = ", ".join(f"{count:,} of ``{kind}``" for kind, count in seen.items() if count)
        lines += textwrap.wrap(
            f"* {one.sentence} ({told or 'none'})",
            110,
            subsequent_indent="  ",
            break_long_words=False,
        )
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    ruler = "   " + "  ".join("=" * width for width in widths)
    padded = (map(str.ljust, row, widths) for row in rows)
    head, *said = (f"   {'  '.join(cells)}".rstrip() for cells in padded)
    return [ruler, head, ruler, *said, ruler]


def main() -> None:
    """Ask, and write the counts and the table, or show one question."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--kinds", nargs="+", default=list(questions.MAKERS))
    parser.add_argument("--seed", type=int, help="show the question of a seed, and both answers")
    wanted = parser.parse_args()
    with versions.running() as pair:
        if wanted.seed is not None:
            cases = [questions.case(kind, wanted.seed) for kind in wanted.kinds]
            for answer in versions.answered(*pair, cases):
                print(*(json.dumps(one, indent=1) for one in answer), sep="\n")
            return
        for kind in wanted.kinds:
            found = compared(*pair, kind, wanted.count)
            print(kind, dict(found.named), *found.faults, sep="\n  ", flush=True)
            keep({kind: found})


if __name__ == "__main__":
    main()
