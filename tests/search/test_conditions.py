"""Each condition by itself: what its mask says of the fleet, it says of the host, and tells why."""

from __future__ import annotations

import numpy as np
import pytest

from resource_objects.providers import Provider
from resource_objects.reasons import Rule
from resource_objects.requests import Request, RequestGroup
from resource_objects.search import Snapshot
from resource_objects.search.explain import find_reasons
from resource_objects.search.fleet_io import read
from resource_objects.search.problem import compile_request
from tests.search import generated
from tests.support.columns import columns_of
from tests.support.lengths import some


def problem_of(roots, request):
    return compile_request(request, read(columns_of(roots)))


def failing(problem, tree):
    """Return the conditions by which a host has reasons."""
    found = find_reasons(problem, np.array([tree])).failing
    return {condition for condition, hosts in found.items() if hosts[0]}


def mask_of(condition):
    """Return the hosts of the first check, which excludes most; None if there is no check."""
    check = next(iter(condition.checks()), None)
    return None if check is None else check.passing


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
                mask = mask_of(condition)
                if mask is None:
                    continue
                without = [tree for tree in range(len(mask)) if not mask[tree]]
                so_far = problem.conditions[: problem.conditions.index(condition) + 1]
                for tree in without:  # a condition on several repeats no reason of one
                    assert failing(problem, tree) & {*so_far}, (seed, condition)
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
            failing_by_itself = {one for one in failing(problem, tree) if one.rule in BY_THEMSELVES}
            for condition in problem.conditions:
                mask = mask_of(condition)
                assert mask is None or mask[tree], (seed, condition)
                assert condition not in failing_by_itself, (seed, condition)
            assert problem.unnamed.may_fit(tree), seed
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
        Rule.TRAIT_MISSING,
        Rule.TOGETHER,
        Rule.GROUPS,
    ]
    masks = [mask_of(condition) for condition in problem.conditions]
    assert all(mask is None or mask[0] for mask in masks)


def test_a_condition_tells_of_itself_alone():
    problem = problem_of([Provider("host0", "VCPU=8,PGPU=2")], Request("VCPU=9,PGPU=1"))
    cpus, gpus = problem.unnamed.classes
    (reason,) = cpus.short(0, 1)
    assert str(reason) == "host0: VCPU requested 9, free 8 of 8"
    assert gpus.short(0, 1) == []
