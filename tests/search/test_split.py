"""One amount in parts: exact, and bounded by a budget."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.exceptions import SearchLimitReached
from resource_objects.resources.backtracking import Budget
from resource_objects.search.split import combine, split

PLENTY = 1_000_000


@st.composite
def devices(draw):
    step = draw(st.integers(1, 4))
    low = step * draw(st.integers(1, 4))
    high = step * draw(st.integers(0, 6))
    return low, high, step


def parts_of(low, high, step):
    return [0, *range(low, high + 1, step)]


def reachable(given_devices):
    return {sum(parts) for parts in itertools.product(*(parts_of(*d) for d in given_devices))}


@given(st.lists(devices(), max_size=5), st.integers(1, 40))
def test_a_split_is_found_exactly_when_there_is_one(given_devices, amount):
    found = split(amount, given_devices, Budget(PLENTY))
    assert (found is not None) == (amount in reachable(given_devices))
    if found is not None:
        assert sum(part for _, part in found) == amount
        assert [number for number, _ in found] == sorted({number for number, _ in found})
        for number, part in found:
            assert part and part in parts_of(*given_devices[number])


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 6)), min_size=1, max_size=4),
    st.integers(0, 200),
)
def test_an_equation_over_steps_is_solved_exactly_when_it_can_be(terms, rest):
    terms = sorted(dict(terms).items(), reverse=True)
    steps, room = zip(*terms, strict=True)
    counts = itertools.product(*(range(most + 1) for most in room))
    sums = {sum(s * c for s, c in zip(steps, each, strict=True)) for each in counts}
    found = combine(rest, steps, room, Budget(PLENTY))
    assert (found is not None) == (rest in sums)
    if found is not None:
        assert sum(s * c for s, c in zip(steps, found, strict=True)) == rest
        assert all(0 <= c <= most for c, most in zip(found, room, strict=True))


def test_what_most_can_be_given_by_is_taken_first():
    assert split(9, [(1, 2, 1), (1, 8, 1), (1, 4, 1)], Budget(PLENTY)) == [(1, 8), (2, 1)]


def test_like_devices_give_in_their_order():
    assert split(3, [(1, 1, 1)] * 4, Budget(PLENTY)) == [(0, 1), (1, 1), (2, 1)]


def test_an_amount_that_is_no_multiple_of_any_step_costs_nothing():
    budget = Budget(1)
    assert split(5, [(2, 100, 2), (4, 100, 4)], budget) is None
    assert budget.spent == 0


def test_an_odd_amount_of_even_parts_costs_nothing():
    budget = Budget(1)
    assert split(20_999, [(n, n, 1) for n in range(1000, 1080, 2)], budget) is None
    assert budget.spent == 0


def test_two_steps_are_solved_without_trial():
    budget = Budget(4)
    assert combine(10_009 * 600, [10_009, 10_007], [0, 999], budget) is None
    assert combine(10_007 * 600, [10_009, 10_007], [999, 999], budget) == (0, 600)


@pytest.mark.parametrize("count", [10, 1000, 100_000])
def test_like_devices_are_considered_once(count):
    budget = Budget(100)
    assert len(split(count - 1, [(1, 1, 1)] * count, budget)) == count - 1
    assert budget.spent <= 2


def test_large_figures_cost_no_more_than_small_ones():
    big = 2**40
    budget = Budget(100)
    assert split(2 * big + 1, [(3, 3 * big, 3), (2, 2 * big, 2)], budget) is not None
    assert split(10, [(8, big * 8, 8), (6, big * 6, 6)], budget) is None
    assert budget.spent <= 20


@pytest.mark.parametrize("wider", [0, 1])
def test_a_thousand_different_min_units_do_not_exhaust_the_stack(wider):
    different = [(2 * n, 2 * n + wider, 1) for n in range(2, 1500)]
    assert split(2 * 2998, different, Budget(PLENTY)) is not None


def test_a_subset_sum_is_cut_short_by_the_budget():
    hard = [(1000 + 7 * n, 1000 + 7 * n, 1) for n in range(40)]
    budget = Budget(500)
    with pytest.raises(SearchLimitReached):
        split(20_999, hard, budget)
    assert budget.spent == 500
