"""The scenarios asked of Placement itself: their column ``placement`` is what it answers.

Answers that differ in the names of equal devices or of equal groups alone count as one, as they do
here. Where Placement has a bug, or takes minutes, it is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from pathlib import Path

import pytest

import resource_objects as ro
from benchmarks.peer import Placement
from resource_objects.providers.columns import Columns
from resource_objects.requests import Request, RequestGroup
from tests.peers.placement import peer_fleets
from tests.support import drawn_cases
from tests.support.drawn_cases import Ask, DrawnCase, Run

# other libraries' own, at import and at the first request
pytestmark = pytest.mark.filterwarnings("ignore")

FILES = sorted((Path(__file__).parents[2] / "scenarios").glob("*.txt"))

#: What Placement answers otherwise: scenario, number of the step, and what it does.
OTHERWISE = {
    ("aggregates_of_pools", 1): "fails: a pool below another provider",
    ("amounts_stay_apart", 0): "adds up what is taken of two",
    ("exact_capacity", 0): "refuses the last unit: its capacity is a float",
    ("groups_with_forbidden_traits", 0): "finds nobody",
    ("in_tree_of_a_group_without_amounts", 0): "does not look at in_tree",
    ("pools_and_lost_hosts", 0): "loses hosts",
    ("traits_of_pools", 0): "fails: a pool below another provider",
    ("traits_of_pools", 1): "fails: a pool below another provider",
    ("pools_below_others", 0): "fails: a pool below another provider",
}
#: Their errors are not told by a status alone, see ``test_query.py``.
ERRORS = "malformed_requests"
#: More groups than this take minutes.
MOST_GROUPS = 4


def asks() -> Iterator[tuple[Path, int]]:
    """Yield the questions that Placement can answer: file, and number of the step."""
    for path in FILES:
        for number, step in enumerate(DrawnCase.read(path).steps):
            if path.stem != ERRORS and isinstance(step, Ask) and _can_be_asked(step):
                yield path, number


def _can_be_asked(ask: Ask) -> bool:
    if not any("placement" in one.columns and one.error is None for one in ask.answers):
        return False
    request, limit = ask.request("placement")
    is_said = not any(
        group.traits_of or any(kind.is_placed for kind in group.resources)
        for group in request.groups
    )
    return is_said and limit is None and len(request.named) <= MOST_GROUPS


CASES = list(asks())


@pytest.mark.parametrize(
    ("path", "number"), CASES, ids=[f"{path.stem}-{number}" for path, number in CASES]
)
def test_placement_answers_what_the_scenario_says(
    placement: Placement, path: Path, number: int
) -> None:
    scenario = DrawnCase.read(path)
    with ro.connect("memory://") as ledger:
        scenario.build(ledger)
        run = Run(ledger)
        for step in scenario.steps[:number]:
            step.run(run)
        columns = ledger.backend.read()
    ask = scenario.steps[number]
    assert isinstance(ask, Ask)
    request, _ = ask.request("placement")
    (answer,) = (one for one in ask.answers if "placement" in one.columns)
    kinds = Kinds(columns, request)
    said = {kinds.of_line(line) for line in answer.candidates}
    found = _found(placement, columns, request, kinds)
    assert (found != said) is ((path.stem, number) in OTHERWISE)


def _found(
    placement: Placement, columns: Columns, request: Request, kinds: Kinds
) -> set[Hashable] | None:
    """Return the candidates of Placement, None if it fails."""
    kept = peer_fleets.keep(placement, columns)
    try:
        return {kinds.of_answer(one) for one in kept.answers(_with_uuids(request, columns))}
    except KeyError:
        return None


class Kinds:
    """What is told apart: of equal devices and equal groups only how they go together."""

    def __init__(self, columns: Columns, request: Request) -> None:
        self._names = dict(zip(columns.providers.uuid, columns.providers.name, strict=True))
        self._request = request
        self._groups = {group.suffix: self._group(group) for group in request.groups}
        self._kinds = dict(_kinds(columns))

    def _group(self, group: RequestGroup) -> Hashable:
        within = [some for some in self._request.same_subtree if group.suffix in some]
        if not group.suffix:
            return ""
        return str(group.replace(suffix="a")), frozenset(map(frozenset, within))

    def of_answer(self, answer: peer_fleets.Answer) -> Hashable:
        """Return what an answer of Placement's is."""
        allocations, mappings = answer
        left = Counter({(self._names[uuid], kind): n for uuid, kind, n in allocations})
        parts = []
        for group in self._request.named:
            (uuid,) = dict(mappings)[group.suffix]
            parts.append((group.suffix, self._names[uuid]))
            for kind, amount in group.resources.items():
                left[self._names[uuid], kind.name] -= int(str(amount))
        return self._together(parts, left)

    def of_line(self, line: str) -> Hashable:
        """Return what a candidate of a scenario is."""
        _, taken = drawn_cases.candidate_key(line, "line")
        left: Counter[tuple[str, str]] = Counter()
        for suffix, name, amounts in taken:
            for kind, amount in ro.Amounts(amounts).items() if not suffix else ():
                left[name, kind.name] += int(str(amount))
        return self._together([(suffix, name) for suffix, name, _ in taken if suffix], left)

    def _together(self, parts: list[tuple[str, str]], left: Counter[tuple[str, str]]) -> Hashable:
        by_name: dict[str, list[str]] = {}
        for suffix, name in parts:
            by_name.setdefault(name, []).append(str(self._groups[suffix]))
        for (name, kind), amount in left.items():
            if amount:
                by_name.setdefault(name, []).append(f"{kind}={amount}")
        found = Counter((self._kinds[name], *sorted(said)) for name, said in by_name.items())
        return frozenset(found.items())


def _kinds(columns: Columns) -> Iterator[tuple[str, str]]:
    """Yield each provider's name with what is equal for those that are."""
    table = columns.providers
    parents = set(table.parent_id)
    for pid, name, parent in zip(table.provider_id, table.name, table.parent_id, strict=True):
        own: list[object] = [
            row[1:]
            for part in (columns.inventories, columns.traits, columns.aggregates, columns.shares)
            for row in sorted(zip(*part, strict=True), key=str)
            if row[0] == pid
        ]
        yield name, name if parent is None or pid in parents else f"{parent} {own}"


def _with_uuids(request: Request, columns: Columns) -> Request:
    """Return a request that names trees by uuid, as Placement does; one of nobody for nobody."""
    uuids = dict(zip(columns.providers.name, columns.providers.uuid, strict=True))
    nobody = "6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e"
    groups = [
        group if group.in_tree is None else group.replace(in_tree=uuids.get(group.in_tree, nobody))
        for group in request.groups
    ]
    return request.replace(groups=tuple(groups))
