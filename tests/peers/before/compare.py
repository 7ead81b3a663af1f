"""Ask both versions, and print what differs.

::

    python -m tests.peers.before.compare                            # the sample of each subject
    python -m tests.peers.before.compare --times 20 --from 1000     # others, twenty times as many
    python -m tests.peers.before.compare --kinds search --seed 42   # one question, both answers
    python -m tests.peers.before.compare --page                     # write the page
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.peers.before import differences, subjects, versions

PAGE = pathlib.Path(__file__).resolve().parents[3] / "doc/source/contributor/before.txt"


@dataclasses.dataclass
class Compared:
    """The comparison of some questions of a kind.

    ``named`` counts questions by the differences in them. A question whose steps are done in part
    counts as answered and as refused.
    """

    questions: int = 0
    answered: int = 0
    refused: int = 0
    named: Counter[str] = dataclasses.field(default_factory=Counter)
    faults: list[str] = dataclasses.field(default_factory=list)

    def add(self, case: Mapping[str, Any], before: Any, now: Any) -> None:
        """Add the answers to a question."""
        self.questions += 1
        outcomes = set(_outcomes(now))
        self.answered += "done" in outcomes
        self.refused += "refused" in outcomes
        names = set()
        faults = []
        for found in differences.differing(before, now):
            name = differences.name_of(case, found)
            if name is None:
                faults.append(f"{found.path}: {found.before!r:.300} is now {found.now!r:.300}")
            else:
                names.add(name)
        if "failed" in outcomes:
            faults.append(f"no refusal: {now!r:.600}")
        if faults:
            self.faults.append(f"{case['kind']} {case['seed']}: {'; '.join(faults[:3])}")
        self.named.update(names)


def _outcomes(answer: Any) -> Iterator[str]:
    """Yield ``done``, ``refused`` and ``failed`` for the innermost outcomes of an answer."""
    if isinstance(answer, list):
        for one in answer:
            yield from _outcomes(one)
    if not isinstance(answer, dict):
        return
    inner = [found for one in answer.values() for found in _outcomes(one)]
    yield from inner
    if "refused" in answer and isinstance(answer["refused"], str):
        yield "refused"
    elif "failed" in answer:
        yield "failed"
    elif "done" in answer and not inner:
        yield "done"


def compared(
    before: versions.Process, now: versions.Process, kind: str, seeds: Sequence[int]
) -> Compared:
    """Ask both versions the questions of a kind."""
    found = Compared()
    cases = (subjects.case(kind, seed) for seed in seeds)
    for answer in versions.answered(before, now, cases):
        found.add(*answer)
    return found


def page() -> str:
    """Return the subjects and the differences, as the page about tests includes them."""
    lines = [".. Made by: python -m tests.peers.before.compare --page", ""]
    lines += [f"* ``{one.kind}``: {one.covers}" for one in subjects.SUBJECTS]
    if not differences.DIFFERENCES:
        return "\n".join([*lines, "", "There are no differences."]) + "\n"
    lines += ["", "The differences:", ""]
    for one in differences.DIFFERENCES:
        text = f"* ``{one.name}``: {one.sentence}"
        lines += textwrap.wrap(text, 110, subsequent_indent="  ", break_long_words=False)
    return "\n".join(lines) + "\n"


def main() -> int:
    """Ask, and return 1 if there is a difference without a name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=float, default=1, help="how many times the sample")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--kinds", nargs="+", default=list(subjects.BY_KIND))
    parser.add_argument("--seed", type=int, help="show the question of a seed, and both answers")
    parser.add_argument("--page", action="store_true", help="write the page")
    wanted = parser.parse_args()
    if wanted.page:
        PAGE.write_text(page())
        return 0
    status = 0
    with versions.running() as pair:
        if wanted.seed is not None:
            cases = [subjects.case(kind, wanted.seed) for kind in wanted.kinds]
            for answer in versions.answered(*pair, cases):
                print(*(json.dumps(one, indent=1) for one in answer), sep="\n")
            return 0
        for kind in wanted.kinds:
            begun = time.monotonic()
            count = max(1, int(subjects.BY_KIND[kind].sample * wanted.times))
            seeds = range(wanted.first, wanted.first + count)
            found = compared(*pair, kind, seeds)
            figures = f"{found.answered} answered, {found.refused} refused"
            took = f"{time.monotonic() - begun:.1f} s"
            print(f"{kind}: {found.questions} questions, {figures}, {took}", flush=True)
            print(*(f"  {name}: {n}" for name, n in found.named.items()), *found.faults, sep="\n")
            status |= bool(found.faults)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
