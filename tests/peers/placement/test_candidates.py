"""Who could hold it: Placement, the complete enumerator and the search give the same answer.

Both columns of the compatibility table on the same fleets: by Placement's rules all three agree,
with nothing missing and nothing extra; by ours the search and the enumerator do. What Placement
does wrong is told by :mod:`tests.peers.placement.peer_bugs`, exactly: where such a bug is at work
its answer is what the bug makes of the right one, and nothing else.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.peer import Placement
from resource_objects.providers.columns import Columns
from resource_objects.requests import Request
from tests.peers.placement import peer_bugs
from tests.peers.placement.peer_fleets import Kept, keep
from tests.search import oracle
from tests.search.compatibility_cases import CASES, ERROR, Case, told
from tests.support.columns import columns_of
from tests.support.enumerator import Found, candidates
from tests.support.fleets import fleet
from tests.support.fleets import request as fleets_request

# other libraries' own, at import and at the first request
pytestmark = pytest.mark.filterwarnings("ignore")

BLOCKS, FLEETS, REQUESTS = 12, 50, 10


def asked(block: int, *, compatibility: str | None) -> Iterator[tuple[Columns, list[Request]]]:
    """Yield fleets, each with several requests: the same fleets in both columns."""
    for seed in range(block * FLEETS, (block + 1) * FLEETS):
        roots = fleet(random.Random(seed))
        chance = random.Random(f"{seed} {compatibility}")
        requests = [
            fleets_request(chance, roots, compatibility=compatibility) for _ in range(REQUESTS)
        ]
        yield columns_of(roots), requests


# --- thousands of cases ---


@pytest.mark.parametrize("block", range(BLOCKS))
def test_placement_and_the_enumerator_find_the_same(placement: Placement, block: int) -> None:
    seen: Counter[str] = Counter()
    for columns, requests in asked(block, compatibility="placement"):
        kept = keep(placement, columns)
        for request in requests:
            right = candidates(columns, request)
            bug = check(kept, columns, request, right)
            seen.update([bug, "possible" if right else "impossible"])
    assert seen["possible"] > 100 and seen["impossible"] > 100 and seen[""] > 300


def check(kept: Kept, columns: Columns, request: Request, right: list[Found]) -> str:
    """Hold Placement's answer to the right one; return which bug changed it."""
    if peer_bugs.empties(request):
        assert kept.answers(request) == []
        return "empties"
    if peer_bugs.forgets_tree(request):
        request = peer_bugs.without_forgotten_trees(request)
        right = candidates(columns, request)
    try:
        with peer_bugs.mended(leaks=peer_bugs.leaks(request)):
            found = kept.answers(request)
    except KeyError:
        assert peer_bugs.may_fail(columns, request)
        return "fails"
    assert len(set(found)) == len(found)
    expected = {(one.allocations, one.mappings) for one in right}
    if set(found) == expected:
        return ""
    assert peer_bugs.is_lost_anchor(columns, request, set(found), right), request
    return "loses"


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("compatibility", ["placement", None], ids=["placement", "ours"])
def test_the_search_and_the_enumerator_find_the_same(block: int, compatibility: str | None) -> None:
    for columns, requests in asked(block, compatibility=compatibility):
        for request in requests:
            oracle.check_complete(columns, request)


# --- one case per row of the table ---


@pytest.mark.parametrize("case", CASES, ids=[case.row for case in CASES])
def test_a_row_as_placement_answers_it(placement: Placement, case: Case) -> None:
    columns = columns_of(case.fleet)
    kept = keep(placement, columns)
    if case.theirs == ERROR:
        with pytest.raises(KeyError):
            kept.answers(case.request)
        return
    found = told(columns, [Found("", *one) for one in kept.answers(case.request)], host=False)
    if case.theirs == "none or one":
        assert len(found) <= 1 and set(found) < set(case.placement)
    elif case.theirs == "amounts leak":
        assert len(found) == len(case.placement) and found != sorted(case.placement)
    else:
        assert found == sorted(case.placement if case.theirs is None else case.theirs)


@pytest.mark.parametrize("case", CASES, ids=[case.row for case in CASES])
def test_a_row_as_the_search_answers_it(case: Case) -> None:
    columns = columns_of(case.fleet)
    for compatibility, expected in ((None, case.ours), ("placement", case.placement)):
        request = case.request.replace(compatibility=compatibility)
        right = oracle.check_complete(columns, request)
        lines = told(columns, right, host=compatibility is None)
        assert sorted(set(lines)) == sorted(expected)


def test_placement_lists_permutations_and_the_search_does_not(placement: Placement) -> None:
    (case,) = (case for case in CASES if case.row.startswith("9:"))
    columns = columns_of(case.fleet)
    assert len(keep(placement, columns).answers(case.request)) == 6
    for compatibility in (None, "placement"):
        request = case.request.replace(compatibility=compatibility)
        assert len(oracle.listed(columns, request)) == 1


# --- bugs, as a client sees them ---


def ask(placement: Placement, row: str, query: str) -> tuple[int, list[Any]]:
    """Return the status and the candidates of a request in its words, on the fleet of a row."""
    (case,) = (case for case in CASES if case.row == row)
    keep(placement, columns_of(case.fleet))
    status, body = placement.answer("GET", f"/allocation_candidates?{query}")
    return status, body.get("allocation_requests", [])


def test_amounts_of_groups_leak_without_a_policy(placement: Placement) -> None:
    row, query = "amounts of groups stay where they are", "resources=VCPU:1&resources_1=VCPU:1"
    for policy, most in (("", 3), ("&group_policy=isolate", 3), ("&group_policy=none", 2)):
        status, found = ask(placement, row, query + policy)
        sums = [
            sum(taken["resources"]["VCPU"] for taken in one["allocations"].values())
            for one in found
        ]
        assert (status, len(found), max(sums)) == (200, 4, most), policy


def test_a_pool_below_a_root_is_a_server_error(placement: Placement) -> None:
    row = "a pool may be below the root of a tree"
    assert ask(placement, row, "resources=VCPU:1,DISK_GB:1")[0] == 500


def test_a_group_without_amounts_and_with_negative_conditions_matches_nobody(
    placement: Placement,
) -> None:
    row = "a group that asks for nothing may have negative conditions only"
    query = "resources_1=PGPU:1&same_subtree=_1,_2&group_policy=none"
    assert len(ask(placement, row, f"{query}&required_2=HW_CPU_X86_AVX")[1]) == 0
    assert len(ask(placement, row, f"{query}&required_2=CUSTOM_H100")[1]) == 1
    assert len(ask(placement, row, f"{query}&required_2=!HW_CPU_X86_AVX")[1]) == 0
