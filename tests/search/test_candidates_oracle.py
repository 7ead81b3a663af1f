"""The search finds what the complete enumerator finds, by either reading of a request.

Laws, besides those of the table in :mod:`tests.search.compatibility_cases`: one candidate per host
finds exactly the hosts that can; without bounds exactly one of each form is listed; what is asked
less strictly is found wherever it was; a limit, a budget and an order change which candidates are
listed and how soon, never what a candidate is; every candidate can be claimed; and asking changes
nothing.
"""

from __future__ import annotations

import copy
import random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions, search
from resource_objects.providers.provider import Share
from resource_objects.requests import Request, RequestGroup
from resource_objects.testing.refusals import raises_code
from tests.search import oracle
from tests.search.compatibility_cases import CASES, Case, tree
from tests.support import enumerator
from tests.support.columns import columns_of
from tests.support.fleets import Case as fleets_Case
from tests.support.fleets import alike, cases, fleet
from tests.support.fleets import request as fleets_request
from tests.support.lengths import examples, some

READINGS = pytest.mark.parametrize("compatibility", [None, "placement"], ids=["ours", "placement"])


def generated(seed: int, compatibility: str | None = None) -> tuple[list[ro.Provider], Request]:
    chance = random.Random(seed)
    roots = fleet(chance, shares=compatibility is None and seed % 4 != 0)
    return roots, fleets_request(chance, roots, compatibility=compatibility)


def tell(found: list[object]) -> None:
    event("possible" if found else "impossible")
    event(f"candidates: {'none' if not found else '1 to 4' if len(found) < 5 else '5 and more'}")


# --- complete and correct ---


@READINGS
@pytest.mark.parametrize("case", CASES, ids=[case.row for case in CASES])
def test_a_row_of_the_compatibility_table(case: Case, compatibility: str | None) -> None:
    request = case.request.replace(compatibility=compatibility)
    oracle.check_complete(columns_of(case.fleet), request)


def test_an_unknown_tree_is_an_error_by_ours_and_nothing_by_placement() -> None:
    snapshot, request = search.Snapshot(columns_of([tree("h", "VCPU=4")])), {"in_tree": "i"}
    with raises_code("ProviderNotFound", match="i"):
        list(snapshot.candidates(Request("VCPU=1", **request)))
    assert not list(
        snapshot.candidates(Request("VCPU=1", **request, compatibility="placement"), limit=None)
    )


@pytest.mark.law(5, 6)
@READINGS
@pytest.mark.parametrize("start", some(range(0, 2000, 125)))
def test_every_candidate_is_listed_once(start: int, compatibility: str | None) -> None:
    for seed in range(start, start + 125):
        roots, request = generated(seed, compatibility)
        oracle.check_complete(columns_of(roots), request)


@pytest.mark.law(5, 6)
@READINGS
@pytest.mark.parametrize("start", some(range(0, 240, 30)))
def test_every_candidate_of_equal_devices_is_listed_once(
    start: int, compatibility: str | None
) -> None:
    for seed in range(start, start + 30):
        shares = compatibility is None and seed % 2 == 0
        case = alike(random.Random(seed), shares=shares, compatibility=compatibility)
        oracle.check_complete(columns_of(case.roots), case.request)


def test_all_of_a_named_group_is_used_elsewhere_together() -> None:
    """Two classes of one group draw on the same memory, which has no room for both."""
    host = tree("h", "DISK_GB=2")
    uses = [
        Share(resource_class="SRIOV_NET_VF", of="h", of_class="DISK_GB", factor=2),
        Share(resource_class="PGPU", of="h", of_class="DISK_GB"),
    ]
    host.update(children=[tree("h/0", "SRIOV_NET_VF=1,PGPU=1", shares=uses)])
    for amounts in ("SRIOV_NET_VF=1,PGPU=1", "SRIOV_NET_VF=1", "PGPU=1"):
        request = Request(groups=[RequestGroup(amounts, suffix="_0")])
        assert len(oracle.check_complete(columns_of([host]), request)) == (len(amounts) < 15)


@READINGS
def test_the_first_candidate_by_arrays_is_not_the_first_of_the_search(
    compatibility: str | None,
) -> None:
    """Arrays choose the first provider of each class, the search first one with the trait."""
    trait = ["CUSTOM_B"]
    cells = [tree(f"h/{number}", "VCPU=8", traits=trait) for number in range(2)]
    cells.append(tree("h/2", "SRIOV_NET_VF=4", traits=trait))
    request = Request("VCPU=1,SRIOV_NET_VF=1", required=trait, compatibility=compatibility)
    oracle.check_complete(columns_of([tree("h", "VCPU=1", *cells)]), request)


@READINGS
def test_groups_may_be_together_beside_the_unnamed_one(compatibility: str | None) -> None:
    """Of two equal devices one gives both classes of the unnamed group, one both named groups."""
    devices = [tree(f"h/{number}", "SRIOV_NET_VF=8,PGPU=8") for number in range(2)]
    groups = [RequestGroup("PGPU=1", suffix="_0"), RequestGroup("SRIOV_NET_VF=1", suffix="_1")]
    request = Request("SRIOV_NET_VF=1,PGPU=1", groups=groups, compatibility=compatibility)
    assert len(oracle.check_complete(columns_of([tree("h", None, *devices)]), request)) == 16


@pytest.mark.law(5)
@READINGS
@given(st.data())
def test_every_candidate_is_listed_once_in_the_smallest_case(
    compatibility: str | None, data: st.DataObject
) -> None:
    made = cases(shares=compatibility is None, compatibility=compatibility)
    case = data.draw(made)
    tell(oracle.check_complete(columns_of(case.roots), case.request))


@pytest.mark.law(5)
@pytest.mark.parametrize("start", some(range(0, 2000, 125), 2))
def test_exactly_the_hosts_that_can_are_found(start: int) -> None:
    for seed in range(start, start + 125):
        roots, request = generated(seed)
        oracle.check_hosts(columns_of(roots), request)


@given(cases())
def test_exactly_the_hosts_that_can_are_found_in_the_smallest_case(case: fleets_Case) -> None:
    tell(oracle.check_hosts(columns_of(case.roots), case.request))


@pytest.mark.drawn
def test_one_candidate_per_host_is_what_is_asked_in_python_and_all_by_placement() -> None:
    for seed in range(examples(300)):
        for compatibility, per_host in ((None, 1), ("placement", oracle.ALL)):
            roots, request = generated(seed, compatibility)
            columns = columns_of(roots)
            told = oracle.listed(columns, request, per_host=None)
            assert told == oracle.listed(columns, request, per_host=per_host)


# --- bounded and repeatable ---


@pytest.mark.law(9)
@READINGS
@settings(max_examples=examples(50))
@given(st.data())
def test_the_same_question_has_the_same_answer(
    compatibility: str | None, data: st.DataObject
) -> None:
    case = data.draw(cases(compatibility=compatibility))
    columns = columns_of(case.roots)
    snapshot = search.Snapshot(columns)
    found = list(snapshot.candidates(case.request, limit=None, per_host=oracle.ALL))
    again = search.Snapshot(copy.deepcopy(columns))
    assert found == list(snapshot.candidates(case.request, limit=None, per_host=oracle.ALL))
    assert found == list(again.candidates(case.request, limit=None, per_host=oracle.ALL))


@pytest.mark.law(9)
@READINGS
@settings(max_examples=examples(50))
@given(st.data())
def test_a_limit_takes_the_first_of_them(compatibility: str | None, data: st.DataObject) -> None:
    case = data.draw(cases(compatibility=compatibility))
    limit = data.draw(st.integers(1, 5))
    snapshot = search.Snapshot(columns_of(case.roots))
    found = list(snapshot.candidates(case.request, limit=None, per_host=3))
    assert list(snapshot.candidates(case.request, limit=limit, per_host=3)) == found[:limit]


@settings(max_examples=examples(50))
@given(cases())
def test_hosts_take_turns(case: fleets_Case) -> None:
    found = oracle.listed(columns_of(case.roots), case.request, per_host=4)
    hosts = [one.host for one in found]
    turn = [hosts[:at].count(host) for at, host in enumerate(hosts)]
    assert turn == sorted(turn)
    assert len(set(zip(turn, hosts, strict=True))) == len(hosts)


@pytest.mark.law(9)
@READINGS
@settings(max_examples=examples(100))
@given(st.data())
def test_a_search_that_is_cut_short_says_so_and_never_no(
    compatibility: str | None, data: st.DataObject
) -> None:
    case = data.draw(cases(compatibility=compatibility))
    budget = data.draw(st.integers(1, 200))
    columns = columns_of(case.roots)
    right = oracle.right(columns, case.request)
    found = search.Snapshot(columns).candidates(
        case.request, limit=None, per_host=oracle.ALL, budget=budget
    )
    assert found.steps <= budget
    event("cut short" if found.cut_short else "complete")
    forms = set(enumerator.forms(columns, case.request, right))
    try:
        told = [enumerator.found_of(columns, one) for one in found]
    except exceptions.SearchLimitReached:
        assert found.cut_short
        return
    assert all(one in right for one in told)
    if not found.cut_short:
        assert oracle.forms(columns, case.request, told) == forms


@pytest.mark.parametrize("order", ["name", "pack", "spread", "random"])
@settings(max_examples=examples(50))
@given(case=cases(), seed=st.integers(0, 3))
def test_an_order_changes_the_order_alone(order: str, case: fleets_Case, seed: int) -> None:
    snapshot = search.Snapshot(columns_of(case.roots))
    more = {"order": order, "seed": seed if order == "random" else None}
    found = snapshot.candidates(case.request, limit=None, **more)
    plain = snapshot.candidates(case.request, limit=None)
    assert sorted(one.host for one in found) == [one.host for one in plain]
    assert list(found) == list(snapshot.candidates(case.request, limit=None, **more))


# --- less asked, more found ---

EASIER = {
    "required": (),
    "forbidden": (),
    "any_of": (),
    "member_of": (),
    "not_member_of": (),
    "in_tree": None,
    "traits_of": (),
}


@READINGS
@settings(max_examples=examples(100))
@given(st.data())
def test_what_is_asked_less_strictly_is_found_wherever_it_was(
    compatibility: str | None, data: st.DataObject
) -> None:
    case = data.draw(cases(compatibility=compatibility))
    name = data.draw(st.sampled_from(sorted(EASIER)))
    groups = tuple(group.replace(**{name: EASIER[name]}) for group in case.request.groups)
    easier = case.request.replace(
        groups=groups, group_policy="none", root_required=(), root_forbidden=()
    )
    columns = columns_of(case.roots)
    before = set(oracle.listed(columns, case.request))
    after = enumerator.forms(columns, easier, oracle.listed(columns, easier))
    # seen by the easier request more groups may be alike, so each is told by its rules
    assert set(enumerator.forms(columns, easier, before)) <= set(after)


# --- claims ---


@pytest.mark.law(6)
@READINGS
@pytest.mark.parametrize("start", some(range(0, 160, 40), 2))
def test_every_candidate_can_be_claimed(start: int, compatibility: str | None) -> None:
    claimed = 0
    for seed in range(start, start + 40):
        roots, request = generated(seed, compatibility)
        with ro.connect("memory://") as ledger:
            request = _without(request, _keep(ledger, roots))
            _use_some(ledger, random.Random(seed))
            found = ledger.snapshot().candidates(request, limit=6, per_host=3)
            for number, candidate in enumerate(found):
                claim = ledger.claim(f"job-{number}", candidate)
                assert claim.allocations == candidate.allocations
                ledger.release(f"job-{number}")
                claimed += 1
            assert list(ledger.snapshot().candidates(request, limit=6, per_host=3)) == list(found)
    assert claimed > 15


def _keep(ledger: ro.Ledger, roots: list[ro.Provider]) -> set[str | None]:
    """Keep the trees that a ledger may; return the uuids of the others' providers."""
    left_out: set[str | None] = set()
    for root in roots:
        try:
            ledger.sync(root)
        except exceptions.Conflict as error:  # a pool that gives what a host has itself
            if not error.is_about("pool"):
                raise
            left_out.update(one.uuid for one in root.walk())
    return left_out


def _without(request: Request, left_out: set[str | None]) -> Request:
    """Return a request that is not in the tree of who is not there."""
    groups = [
        group.replace(in_tree=None) if group.in_tree in left_out else group
        for group in request.groups
    ]
    return request.replace(groups=tuple(groups))


def _use_some(ledger: ro.Ledger, chance: random.Random) -> None:
    """Let others hold something of what is there."""
    for name in ("VCPU", "DISK_GB", "PGPU", "SRIOV_NET_VF"):
        hosts = ledger.snapshot().candidates({name: 1}, limit=None)
        for number, candidate in enumerate(hosts):
            if chance.random() < 0.4:
                ledger.claim(f"other-{name}-{number}", candidate)


@pytest.mark.law(5)
@given(cases())
def test_asking_changes_nothing(case: fleets_Case) -> None:
    columns = columns_of(case.roots)
    kept, request = copy.deepcopy(columns), copy.deepcopy(case.request)
    snapshot = search.Snapshot(columns)
    list(snapshot.candidates(case.request, limit=None, per_host=oracle.ALL))
    assert (columns, case.request) == (kept, request)
