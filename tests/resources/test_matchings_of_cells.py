"""Matchings against trying everything: largest, best, first, cheapest."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from resource_objects.resources import matching

#: By guest: the hosts it may have, as a mask of up to five.
graphs = st.lists(st.integers(0, 31), min_size=1, max_size=5)
rankings = st.permutations(range(5))


def ways(may: Sequence[int]) -> list[tuple[int, ...]]:
    """Return every complete matching: a host for each guest."""
    return [
        hosts
        for hosts in itertools.permutations(range(5), len(may))
        if all(allowed >> host & 1 for allowed, host in zip(may, hosts, strict=True))
    ]


@given(graphs)
def test_whether_a_matching_is_complete_is_known(may: list[int]) -> None:
    assert matching.is_complete(may) == bool(ways(may))


@given(graphs, rankings)
def test_the_best_matching_is_as_large_as_any(may: list[int], ranking: list[int]) -> None:
    result = matching.best(may, ranking)
    assert len(set(result)) == len(result)
    sizes = [
        size
        for size in range(len(may) + 1)
        for combination in itertools.combinations(may, size)
        if ways(combination)
    ]
    assert len(result) == max(sizes, default=0)


@given(graphs, rankings)
def test_the_best_matching_uses_the_best_set_of_hosts(may: list[int], ranking: list[int]) -> None:
    everything = ways(may)
    assume(everything)
    result = matching.best(may, ranking)
    best = min(sorted(map(ranking.index, hosts)) for hosts in everything)
    assert sorted(map(ranking.index, result)) == best


@given(graphs, rankings, st.sets(st.integers(0, 4), max_size=3))
def test_hosts_that_are_required_are_used_if_they_can_be(
    may: list[int], ranking: list[int], required: set[int]
) -> None:
    with_them = [hosts for hosts in ways(may) if required <= set(hosts)]
    assume(with_them)
    result = matching.best(may, ranking, sorted(required))
    assert required <= set(result)
    best = min(sorted(map(ranking.index, hosts)) for hosts in with_them)
    assert sorted(map(ranking.index, result)) == best


@given(graphs, rankings)
def test_the_first_assignment_of_a_set_is_the_first(may: list[int], ranking: list[int]) -> None:
    assume(ways(may))
    hosts = set(matching.best(may, ranking))
    expected = min(result for result in ways(may) if set(result) == hosts)
    assert matching.first_assignment(may, sum(1 << host for host in hosts)) == list(expected)


costs = st.lists(
    st.lists(st.none() | st.integers(0, 9), min_size=5, max_size=5), min_size=1, max_size=5
)


@given(costs)
def test_the_cheapest_assignment_is_as_cheap_as_any(table: list[list[int | None]]) -> None:
    may = [sum(1 << host for host, cost in enumerate(row) if cost is not None) for row in table]
    result = matching.cheapest(table)
    everything = ways(may)
    if not everything:
        assert result is None
        return
    assert result is not None and tuple(result) in everything

    def cost_of(hosts: Sequence[int]) -> int:
        return sum(table[guest][host] or 0 for guest, host in enumerate(hosts))

    assert cost_of(result) == min(map(cost_of, everything))


def test_more_guests_than_hosts_have_no_complete_matching() -> None:
    assert not matching.is_complete([1, 1])
    assert not matching.is_complete([0])
    assert matching.is_complete([])
    assert len(matching.best([3, 3, 3], range(2))) == 2


@pytest.mark.parametrize("size", [16, 64])
def test_what_is_nearly_a_matching_is_decided_though_permutations_are_many(size: int) -> None:
    """Every guest but one wants the same hosts, one fewer than they are: there is no way."""
    few = (1 << (size - 2)) - 1
    may = [few] * (size - 1) + [1 << (size - 1)]
    assert not matching.is_complete(may)
    assert len(matching.best(may, range(size))) == size - 1
    chain = [0b11 << guest for guest in range(size - 1)] + [1]
    assert matching.first_assignment(chain, (1 << size) - 1) == [*range(1, size), 0]
