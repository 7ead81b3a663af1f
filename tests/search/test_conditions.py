"""Each condition by itself: what its mask says of the fleet, it says of the host, and tells why."""

from __future__ import annotations

import pytest

from resource_objects.providers import Provider
from resource_objects.reasons import Rule
from resource_objects.requests import Request, RequestGroup
from resource_objects.search import Snapshot
from resource_objects.search.conditions.base import Partial
from resource_objects.search.fleet_build import read
from resource_objects.search.problem import lay
from tests.search import generated
from tests.support.columns import columns_of
from tests.support.lengths import some


def problem_of(roots, request):
    return lay(request, read(columns_of(roots)))


def told(problem, tree):
    """Return the reasons of each condition for a host, in order."""
    host = Partial(tree, problem.traits.sources(tree), {})
    for condition in problem.conditions:
        host.told[condition] = condition.reasons(host)
    return host.told


#: Rules of conditions that look at nothing else than what they are about.
BY_THEMSELVES = {Rule.CAPACITY, Rule.TRAIT_MISSING, Rule.ROOT_TRAIT_MISSING}


@pytest.mark.law(5, 6)
@pytest.mark.parametrize("cases", [generated.mixed, generated.crowded], ids=["mixed", "crowded"])
@pytest.mark.parametrize("start", some(range(0, 400, 50), 2))
def test_what_a_mask_rules_out_does_not_hold(cases, start):
    ruled_out = 0
    for seed in range(start, start + 50):
        problem = problem_of(*cases(seed))
        for condition in problem.conditions:
            if condition.rule in BY_THEMSELVES:
                mask = condition.mask()
                without = [tree for tree in range(len(mask)) if not mask[tree]]
                so_far = problem.conditions[: problem.conditions.index(condition) + 1]
                for tree in without:  # a condition on several repeats no reason of one
                    assert any(map(told(problem, tree).get, so_far)), (seed, condition)
                ruled_out += len(without)
    assert ruled_out > 5


@pytest.mark.law(5, 6)
@pytest.mark.parametrize("cases", [generated.mixed, generated.crowded], ids=["mixed", "crowded"])
@pytest.mark.parametrize("start", some(range(0, 400, 50), 2))
def test_a_host_that_is_found_meets_every_condition(cases, start):
    hosts = 0
    for seed in range(start, start + 50):
        roots, request = cases(seed)
        problem = problem_of(roots, request)
        found = Snapshot(columns_of(roots)).candidates(request, limit=None)
        for tree in {problem.fleet.hosts.index(one.host) for one in found}:
            hosts += 1
            for condition in problem.conditions:
                assert condition.mask()[tree], (seed, condition)
                if condition.rule in BY_THEMSELVES:
                    assert not told(problem, tree)[condition], (seed, condition)
            assert problem.together.holds(tree), seed
    assert hosts > 2


def test_the_conditions_of_a_request_stand_in_the_order_in_which_they_are_told():
    host = Provider("host0", "VCPU=8,PGPU=2", traits=["CUSTOM_A"])
    request = Request(
        "VCPU=1,PGPU=1",
        required=["CUSTOM_A"],
        root_required=["CUSTOM_A"],
        groups=[RequestGroup("VCPU=1", suffix="_A")],
    )
    problem = problem_of([host], request)
    assert [condition.rule for condition in problem.conditions] == [
        Rule.ROOT_TRAIT_MISSING,
        Rule.CAPACITY,  # of each class
        Rule.CAPACITY,
        Rule.CAPACITY,  # of what several draw on
        Rule.TRAIT_MISSING,
        Rule.NOT_OWN,
        Rule.TOGETHER,
        Rule.GROUPS,
    ]
    assert all(condition.mask()[0] for condition in problem.conditions)


def test_a_condition_tells_of_itself_alone():
    problem = problem_of([Provider("host0", "VCPU=8,PGPU=2")], Request("VCPU=9,PGPU=1"))
    cpus, gpus = problem.classes
    host = Partial(0, problem.traits.sources(0), {})
    (reason,) = cpus.reasons(host)
    assert str(reason) == "host0: VCPU requested 9, free 8 of 8"
    assert gpus.reasons(host) == []
