"""The search for host cells with constraints: few steps, complete and repeatable.

The constraints are of kinds that the library does not know (:mod:`tests.resources.lamps`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Hashable, Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from resource_objects.exceptions import CapacityException, SearchLimitReached
from resource_objects.reasons import Rule
from resource_objects.resources.backtracking import DECISION, Budget
from resource_objects.resources.context import AffinityConstraint, Context
from resource_objects.resources.numa import NUMATopologyAmount, NUMATopologyInventory, numa
from tests.resources.lamps import (
    LAMP,
    Anywhere,
    CountedLampInventory,
    LampAmount,
    LampInventory,
    Scattered,
    cells_of,
    decide,
    hard,
    lamps_of,
    reasons,
    two_cpu_cells,
)
from tests.resources.numa.hosts import host, plain, uneven
from tests.support import numa_reference, numa_strategies
from tests.support.lengths import some


def fit_near_to(
    cells: NUMATopologyInventory, request: NUMATopologyAmount, *nears: AffinityConstraint
) -> NUMATopologyAmount:
    """Return the host cells of a topology with constraints."""
    return cells.fit(request, None, Context(near=nears))


# --- never permutations ---------------------------------------------------------------------------


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows with every step of every search."""
    taken: list[int] = []
    spend = Budget.spend

    def count(self: Budget, steps: int = 1) -> None:
        taken.extend([1] * steps)
        spend(self, steps)

    monkeypatch.setattr(Budget, "spend", count)
    return taken


UNEVEN = {cell: cell + 1 for cell in range(16)}


@pytest.mark.parametrize("guests", [4, 8])
@pytest.mark.parametrize(
    ("free", "lacking", "most"),
    [
        (LampInventory({99: 50}), 1, 0),
        (LampInventory(dict.fromkeys(range(16), 1)), 1, 10),
        (LampInventory({cell: 1 + cell % 2 for cell in range(16)}), 1, 50),
        (CountedLampInventory(UNEVEN), 1, 1),
        (CountedLampInventory(UNEVEN), 7, 1),
    ],
    ids=["at no cell", "one at each cell", "one or two at each", "other counts", "many too many"],
)
def test_a_condition_that_never_holds_is_found_out_in_a_few_steps(
    guests: int, free: LampInventory, lacking: int, most: int, steps: list[int]
) -> None:
    """Permutations would be 43,680 of 4 on 16 host cells, and 518,918,400 of 8."""
    cells = two_cpu_cells(16)
    counts = sorted((n for cell, n in free.free if cell < 16), reverse=True)
    can = sum(counts[:guests])
    (reason,) = reasons(cells, numa(guests, dedicated=guests), free, LampAmount(can + lacking))
    assert (reason.rule, reason.bound) == (Rule.AFFINITY, can)
    assert len(steps) <= most + 1, "one more tells that the topology alone would fit"
    if can:
        result = decide(cells, numa(guests, dedicated=guests), free, LampAmount(can))
        assert sum(lamps_of(result).values()) == can


@pytest.mark.parametrize("hosts", [8, 64])
def test_nothing_that_has_to_be_near_takes_no_search(hosts: int, steps: list[int]) -> None:
    request = numa(8, dedicated=8)
    result = decide(two_cpu_cells(hosts), request, UNEVEN, LampAmount(99, is_near=False))
    assert result[LAMP].is_assigned and not steps


@pytest.mark.parametrize("hosts", [8, 64])
def test_one_guest_cell_takes_a_step_for_each_host_cell(hosts: int, steps: list[int]) -> None:
    """Lamps of as many kinds as there are host cells, and networks."""
    cells = host(*(plain(i, [i], physnets=[f"net{i}"]) for i in range(hosts)))
    free = {cell: cell + 1 for cell in range(hosts)}
    request = numa(dedicated=1, physnets=["net5"])
    assert cells_of(decide(cells, request, free, LampAmount(6))) == [5]
    assert reasons(cells, request, free, LampAmount(7))[0].rule is Rule.AFFINITY
    assert len(steps) <= 2 * (hosts + 1)


def test_cells_of_few_kinds_take_as_many_steps_as_there_are_ways_to_count_them(
    steps: list[int],
) -> None:
    """Three kinds of sixteen cells: of each some, eight in all, are at most 165 ways."""
    free = {cell: (1, 10, 100)[cell % 3] for cell in range(48)}
    (reason,) = reasons(two_cpu_cells(48), numa(8, dedicated=8), free, LampAmount(801))
    assert reason.bound == 800
    assert len(steps) <= 165 + 1


def test_cells_are_distinguished_by_what_they_hold_and_are_next_to(steps: list[int]) -> None:
    """Equal lamps, but only cell 5 has a network and only cells 6 and 7 hold the large guest."""
    cells = host(
        *(plain(i, [4 * i], physnets=["red"] if i == 5 else []) for i in range(6)),
        *(plain(i, range(4 * i, 4 * i + 4)) for i in (6, 7)),
    )
    request = uneven(1, 4, physnets=["red"])
    result = decide(cells, request, {5: 1, 7: 1}, LampAmount(2))
    assert cells_of(result) == [5, 7]
    assert reasons(cells, request, {4: 1, 7: 1}, LampAmount(2))[0].rule is Rule.AFFINITY
    assert len(steps) < 10


# --- against everything that there is -------------------------------------------------------------


class Alone(NamedTuple):
    """A constraint of lamps under which all cells differ."""

    near: Scattered | Any

    @property
    def counts(self) -> Mapping[int, int]:
        result: Mapping[int, int] = self.near.counts
        return result

    def is_met(self, cells: Collection[int]) -> bool:
        return bool(self.near.is_met(cells))

    def extensions(self, cells: Collection[int]) -> frozenset[int]:
        return frozenset(self.near.extensions(cells))

    def symmetry_key(self, cell: int) -> Hashable:
        return cell


def nears_of(
    chance: random.Random, cells: NUMATopologyInventory, guests: int
) -> list[AffinityConstraint]:
    """Return constraints on some of the cells, most of them tight."""
    ids = [cell.id for cell in cells.cells]
    result: list[AffinityConstraint] = []
    for _ in range(chance.choice([1, 1, 2])):
        if chance.random() < 0.6:
            free = {cell: chance.choice([0, 0, 1, 1, 2, 5]) for cell in ids}
            most = sum(sorted(free.values())[-guests:])
            expected = max(1, most - chance.choice([0, 0, 1, 2]))
            kind = chance.choice([LampInventory, CountedLampInventory]).near_kind
            result.append(kind(free, LampAmount(expected)))
        else:
            several = [
                chance.sample(range(4), chance.choice([0, 1, 1, 2])) for _ in range(ids[-1] + 1)
            ]
            result.append(Scattered(chance.choice([1, 2, 3, 4]), several))
    return result


@given(st.integers(0, 2**32))
def test_what_is_found_is_right_and_what_is_refused_cannot_be(seed: int) -> None:
    """All sets of host cells are tried, with networks, sockets, room, pages and threads."""
    chance = random.Random(seed)
    request = numa_strategies.question_of(seed, max_cells=4, max_guests=3)
    cells, topology, limit = request.inventory, request.amount, request.limit
    nears = nears_of(chance, cells, len(topology.cells))
    ids = [cell.id for cell in cells.cells]
    choices = [
        frozenset(chosen)
        for chosen in itertools.combinations(ids, len(topology.cells))
        if all(near.is_met(chosen) for near in nears)
        and numa_reference.has_placement(cells, topology, limit, chosen)
    ]
    try:
        assigned = cells.fit(topology, limit, Context(near=tuple(nears)))
    except CapacityException as refusal:
        assert not choices
        single = numa_reference.has_placement(cells, topology, limit)
        rules = {reason.rule for reason in refusal.reasons}
        assert (rules == {Rule.AFFINITY}) is single
        return
    assert assigned.host_cells in choices
    assert not numa_reference.faults(cells, assigned, limit)
    single = Context(near=tuple(Alone(near) for near in nears))
    assert cells.fit(topology, limit, single) == assigned


@given(st.integers(0, 2**32))
def test_cells_that_would_be_taken_anyway_are_taken_if_they_will_do(seed: int) -> None:
    request = numa_strategies.question_of(seed, max_cells=4, max_guests=3)
    cells, topology, limit = request.inventory, request.amount, request.limit
    (near, *_) = nears_of(random.Random(seed), cells, len(topology.cells))
    try:
        anyway = cells.fit(topology, limit, Context(near=(Anywhere(near.counts),)))
    except CapacityException:
        assume(False)
        raise
    if near.is_met(anyway.host_cells):
        assert cells.fit(topology, limit, Context(near=(near,))) == anyway


@pytest.mark.law(9)
@given(st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_the_same_question_has_the_same_answer_however_cells_are_listed(
    seed: int, chance: random.Random
) -> None:
    request = numa_strategies.question_of(seed, max_cells=4, max_guests=3)
    cells, topology = request.inventory, request.amount
    nears = nears_of(random.Random(seed), cells, len(topology.cells))
    pairs = list(zip(cells.cells, cells.usage, strict=True))
    chance.shuffle(pairs)
    shuffled = cells.obj_clone()
    shuffled.update(cells=[cell for cell, _ in pairs], usage=[used for _, used in pairs])
    answers: list[NUMATopologyAmount | None] = []
    for item in (cells, cells, shuffled):
        try:
            answers.append(fit_near_to(item, topology, *nears))
        except CapacityException:
            answers.append(None)
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.law(9)
@pytest.mark.parametrize("steps", some([1_000, DECISION]))
def test_a_search_that_would_take_too_long_is_cut_short_and_is_reported(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource_objects.resources.numa.placement.DECISION", steps)
    cells, request, colours = hard()
    with pytest.raises(SearchLimitReached, match="neither yes nor no"):
        fit_near_to(cells, request, colours)
