"""The complete enumerator, against answers that are written down: it judges the search."""

from __future__ import annotations

import random

import pytest

from resource_objects.requests import Request
from resource_objects.search import eligibility
from resource_objects.testing.refusals import raises_code
from tests.search import generated
from tests.search.compatibility_cases import CASES, Case, told, tree
from tests.support import enumerator, fleets, naive_search
from tests.support.columns import columns_of
from tests.support.lengths import examples, some


@pytest.mark.parametrize("case", CASES, ids=[case.row for case in CASES])
def test_all_candidates_of_a_row(case: Case) -> None:
    columns = columns_of(case.fleet)
    ours = enumerator.candidates(columns, case.request, eligibility.OURS)
    theirs = enumerator.candidates(columns, case.request, eligibility.PLACEMENT)
    assert told(columns, ours, host=True) == sorted(case.ours)
    assert sorted(set(told(columns, theirs, host=False))) == sorted(case.placement)


def test_every_row_of_the_table_has_a_case() -> None:
    rows = {case.row.partition(":")[0] for case in CASES if ":" in case.row}
    assert rows == {str(number) for number in range(1, 13)}


def test_an_unknown_tree_is_an_error_by_ours_and_nothing_by_theirs() -> None:
    columns, request = columns_of([tree("h", "VCPU=4")]), Request("VCPU=1", in_tree="i")
    with raises_code("ProviderNotFound", match="i"):
        enumerator.candidates(columns, request)
    assert enumerator.candidates(columns, request, eligibility.PLACEMENT) == []


@pytest.mark.drawn
@pytest.mark.parametrize("compatibility", [None, "placement"], ids=["ours", "placement"])
def test_about_as_much_is_possible_as_is_not(compatibility: str | None) -> None:
    possible = many = swapped = 0
    tries = examples(1000)
    for seed in range(tries):
        chance = random.Random(seed)
        roots = fleets.fleet(chance, shares=compatibility is None)
        request = fleets.request(chance, roots, compatibility=compatibility)
        columns = columns_of(roots)
        found = enumerator.candidates(columns, request)
        possible += bool(found)
        many += len(found) > 3
        swapped += len(set(enumerator.forms(columns, request, found))) < len(found)
    assert 0.3 < possible / tries < 0.7
    assert many > tries / 15
    assert swapped > tries / 20


@pytest.mark.parametrize("start", some(range(0, 400, 50), 4))
def test_it_agrees_with_the_reference_on_which_hosts_there_are(start: int) -> None:
    """Two naive programs that share nothing but the rules; the other knows no groups."""
    for seed in range(start, start + 50):
        for make in (generated.mixed, generated.crowded):
            roots, request = make(seed)
            columns = columns_of([root for root in roots if root.name.startswith("host")])
            hosts = {one.host for one in enumerator.candidates(columns, request)}
            assert sorted(hosts) == naive_search.hosts_that_fit(columns, request), seed


@pytest.mark.drawn
@pytest.mark.parametrize("compatibility", [None, "placement"], ids=["ours", "placement"])
def test_swapping_what_is_interchangeable_makes_another_candidate(
    compatibility: str | None,
) -> None:
    swapped, tries = 0, examples(600)
    for seed in range(tries):
        chance = random.Random(seed)
        roots = fleets.fleet(chance, shares=compatibility is None)
        request = fleets.request(chance, roots, compatibility=compatibility)
        columns = columns_of(roots)
        found = enumerator.candidates(columns, request)
        for one, other in enumerator.pairs(columns):
            for candidate in found:
                made = _swapped(candidate, one, other)
                assert made in found, (seed, one, other)
                swapped += made != candidate
                both = enumerator.forms(columns, request, [candidate, made])
                assert both[0] == both[1], seed
    assert swapped > tries / 2


def _swapped(candidate: enumerator.Found, one: str, other: str) -> enumerator.Found:
    swap = {one: other, other: one}
    return enumerator.Found(
        candidate.host,
        frozenset((swap.get(uuid, uuid), *rest) for uuid, *rest in candidate.allocations),
        frozenset(
            (suffix, frozenset(swap.get(uuid, uuid) for uuid in uuids))
            for suffix, uuids in candidate.mappings
        ),
    )
