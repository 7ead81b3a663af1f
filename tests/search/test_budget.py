"""Bounded and repeatable: fits, refused, or cut short, which is never said to be a no."""

from __future__ import annotations

import pytest

from resource_objects import exceptions
from resource_objects.exceptions import SearchLimitReached
from resource_objects.providers import Provider
from resource_objects.requests import Request, RequestGroup
from resource_objects.resources import Inventories
from resource_objects.resources.backtracking import Budget
from resource_objects.search import Snapshot
from resource_objects.search import search as matcher
from tests.support.columns import columns_of

#: asked of :func:`hard`: no parts of it add up to this, which only trying can tell
HARD = "VGPU=20999"


def hard(name):
    """A host whose devices each give one odd amount or nothing."""
    root = Provider(name)
    root.update(
        children=[
            Provider(f"{name}/{n}", f"VGPU={size}:min_unit={size}")
            for n, size in enumerate(range(1000, 1280, 7))
        ]
    )
    return root


def easy(name):
    return Provider(name, "VGPU=30000")


def shared(name):
    """A host whose two devices share, which takes steps to find out."""
    root = Provider(name)
    root.update(children=[Provider(f"{name}/{n}", "VGPU=20000") for n in range(2)])
    return root


def search(*roots, **options):
    return Snapshot(columns_of(roots)).candidates(HARD, **options)


@pytest.mark.parametrize(
    "look", [bool, len, list, lambda found: found[0], lambda found: found[:1], iter,
             lambda found: None in found]
)  # fmt: skip
@pytest.mark.law(9)
def test_cut_short_with_nothing_found_is_neither_yes_nor_no(look):
    found = search(hard("host0"), budget=2000)
    assert found.cut_short
    with pytest.raises(exceptions.SearchLimitReached, match="cut short after 2000 steps, 0 found"):
        look(found)


@pytest.mark.law(9)
def test_what_can_be_looked_at_all_the_same():
    found = search(hard("host0"), Provider("small", "VGPU=1"), budget=2000)
    assert repr(found) == "<Candidates: 0 for VGPU=20999, cut short>"
    assert found.steps == found.budget == 2000
    assert found.explain().undecided == ("host0",)
    assert str(found.explain()) == (
        "small: VGPU requested 20999, free 1 of 1\n"
        "host0: undecided, the budget of 2000 steps ran out"
    )


@pytest.mark.law(9)
def test_what_takes_too_long_to_find_out_is_no_reason():
    root = hard("host0")
    root.update(inventories=Inventories.parse("VCPU=1"))
    found = Snapshot(columns_of([root])).candidates(Request(f"{HARD},VCPU=2"))
    assert not found
    assert str(found.explain()) == "host0: VCPU requested 2, free 1 of 1"


@pytest.mark.law(9)
def test_cut_short_with_something_found_is_a_yes_that_says_so():
    found = search(hard("host0"), easy("host1"), budget=2000)
    assert found
    assert found.cut_short
    assert [candidate.host for candidate in found] == ["host1"]


@pytest.mark.law(9)
def test_a_hard_host_does_not_starve_the_others():
    roots = [hard(f"hard{n}") for n in range(3)] + [easy(f"host{n}") for n in range(5)]
    found = search(*roots, budget=10_000)
    assert [candidate.host for candidate in found] == [f"host{n}" for n in range(5)]
    assert found.explain().undecided == ("hard0", "hard1", "hard2")


@pytest.mark.law(9)
def test_what_is_found_late_stands_in_the_order_of_names_too(monkeypatch):
    monkeypatch.setattr(
        matcher, "STEPS_OF_FIRST_TURN", 2
    )  # enough for one provider, not for a split
    late = Provider("a")
    late.add("a/0", "VGPU=1")
    late.add("a/1", "VGPU=1")
    found = Snapshot(columns_of([late, Provider("b", "VGPU=2")])).candidates("VGPU=2")
    assert [candidate.host for candidate in found] == ["a", "b"]


@pytest.mark.law(9)
def test_a_reached_limit_is_not_cut_short():
    found = search(hard("hard"), easy("host0"), easy("host1"), limit=1, budget=2000)
    assert not found.cut_short
    assert [candidate.host for candidate in found] == ["host0"]
    assert str(found.explain()) == "and 2 more hosts not looked at: the limit was reached"


@pytest.mark.law(9)
def test_hosts_that_the_budget_does_not_reach_are_undecided():
    roots = [shared(f"host{n}") for n in range(10)]
    found = search(*roots, budget=9)
    assert [candidate.host for candidate in found] == ["host0", "host1"]
    assert found.explain().undecided == tuple(f"host{n}" for n in range(2, 10))


@pytest.mark.law(9)
def test_hosts_that_arrays_decide_take_no_steps():
    found = search(shared("host0"), *[easy(f"host{n}") for n in range(1, 9)], budget=1)
    assert [candidate.host for candidate in found] == [f"host{n}" for n in range(1, 9)]
    assert found.explain().undecided == ("host0",)


@pytest.mark.law(9)
def test_many_undecided_hosts_are_counted():
    found = search(*[shared(f"host{n:02}") for n in range(30)], budget=1)
    assert str(found.explain()).splitlines()[-1] == "and 10 more hosts undecided"


@pytest.mark.law(9)
def test_refused_is_no_and_not_cut_short():
    found = search(Provider("host0", "VGPU=1"), budget=1)
    assert not found
    assert not found.cut_short
    assert list(found) == []
    assert len(found) == 0
    with pytest.raises(IndexError):
        found[0]


@pytest.mark.law(9)
def test_the_same_budget_gives_the_same_answer():
    roots = [hard("host0"), easy("host1"), easy("host2")]
    first, again = search(*roots, budget=1500), search(*roots, budget=1500)
    assert (list(first), first.steps, first.cut_short) == (
        list(again), again.steps, again.cut_short)  # fmt: skip


@pytest.mark.law(9)
def test_a_budget_is_never_overdrawn():
    budget = Budget(10)
    budget.spend(7)
    with pytest.raises(SearchLimitReached):
        budget.spend(4)
    assert (budget.spent, budget.remaining) == (10, 0)


def test_what_candidates_hold_is_paid_for():
    """Beside the first candidate of each host, each part that is kept of others takes a step."""
    host = Provider("host0")
    host.update(
        children=[Provider(f"host0/{n:02}", "PGPU=1", traits=[f"CUSTOM_{n}"]) for n in range(30)]
    )
    found = Snapshot(columns_of([host])).candidates(
        "PGPU=15", limit=10**9, per_host=10**6, budget=3000
    )
    _, *others = found
    assert others
    assert sum(len(candidate.allocations) for candidate in others) <= found.steps == 3000
    assert found.cut_short


@pytest.mark.parametrize("policy", ["isolate", "none"])
def test_what_groups_hold_is_paid_for(policy):
    host = Provider("host0")
    host.update(children=[Provider(f"host0/{n:02}", f"PGPU={n + 1}") for n in range(20)])
    groups = [RequestGroup("PGPU=1", suffix=f"_{n}") for n in range(5)]
    found = Snapshot(columns_of([host])).candidates(
        Request(groups=groups, group_policy=policy), limit=10**9, per_host=10**6, budget=3000
    )
    _, *others = found
    assert others
    assert 5 * len(others) <= found.steps == 3000
    assert found.cut_short
