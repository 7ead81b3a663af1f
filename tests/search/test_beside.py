"""Every way to give one class is tried where a located amount is in the way of some."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resource_objects.exceptions import SearchLimitReached
from resource_objects.resources.budget import Budget
from resource_objects.search.conditions.amounts import Draw, Source, TreeDemand
from resource_objects.search.solver import alternatives, residual
from tests.support.lengths import examples


@st.composite
def givers(draw):
    step = draw(st.integers(1, 2))
    low = step * draw(st.integers(1, 3))
    return Source(low, step * draw(st.integers(0, 4)), step, draw(st.booleans()))


def asked(amount, some):
    everybody = (1 << len(some)) - 1
    return TreeDemand(amount, range(len(some)), tuple(some), everybody, ())


def every_way(amount, some):
    """Yield every way, trying all parts of all."""
    for parts in itertools.product(range(amount + 1), repeat=len(some)):
        taking = [place for place, part in enumerate(parts) if part]
        fits = all(some[place].gives(parts[place]) for place in taking)
        shared = len(taking) == 1 or all(some[place].is_device for place in taking)
        if sum(parts) == amount and fits and shared:
            yield tuple((place, parts[place]) for place in taking)


@settings(max_examples=examples(200))
@given(st.integers(1, 6), st.lists(givers(), max_size=4))
def test_every_way_comes_once(amount, some):
    found = list(alternatives(asked(amount, some), (1 << len(some)) - 1, Budget(10**6)))
    assert sorted(found) == sorted(every_way(amount, some))


def test_givers_that_are_left_out_give_nothing():
    some = [Source(1, 4, 1, True)] * 3
    assert set(alternatives(asked(2, some), 0b101, Budget(100))) == {
        ((0, 2),),
        ((2, 2),),
        ((0, 1), (2, 1)),
    }


def test_a_huge_amount_is_cut_short_and_not_written_out():
    some = [Source(1, 2**40, 1, True)] * 2
    with pytest.raises(SearchLimitReached):
        list(alternatives(asked(2**40, some), 0b11, Budget(1000)))


def test_what_is_used_leaves_sources_less_here_and_where_they_draw():
    """
    giver 0     of inventory 0, uses 2 of inventory 7 each
    giver 1     of inventory 1
    """
    two = TreeDemand(
        4,
        range(2),
        (Source(2, 8, 2, True), Source(1, 5, 1, True)),
        0b11,
        (),
        draws=(Draw(0, 7, 2, 20),),
    )
    left = {0: 9, 1: 5, 7: 20}.__getitem__
    assert [source.high for source in residual(two, {}, left).sources] == [8, 5]
    assert [source.high for source in residual(two, {7: 6}, left).sources] == [6, 5]
    assert [source.high for source in residual(two, {0: 6, 7: 3, 1: 6}, left).sources] == [2, -1]
    assert residual(two, {7: 6}, left).draws == (Draw(0, 7, 2, 14),)
