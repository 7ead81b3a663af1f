"""Host cells and constraints on them, decided at once (D13), for kinds without a name.

Devices are lamps here (:mod:`tests.resources.lamps`), which the library does not know, so that none
of it can be about PCI. ``test_joint_devices.py`` has the tests of PCI.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from resource_objects.exceptions import (
    CapacityException,
    ForeignAmount,
    SearchLimitReached,
)
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import Amount, IntegerInventory, Inventory, placed
from resource_objects.resources.context import ANYWHERE, CellMap, Context
from resource_objects.resources.numa import CellUsage, HostCell, NUMATopologyLimit, numa
from resource_objects.resources.placed import cell_map_of
from tests.resources.lamps import (
    LAMP,
    NUMA,
    LampAmount,
    LampInventory,
    cells_of,
    decide,
    hard,
    lamps_of,
    reasons,
    two_cpu_cells,
)
from tests.resources.numa.hosts import KIB_2M, cored, host, paged, plain, uneven

# --- one follows the other ------------------------------------------------------------------------


def test_host_cells_follow_devices() -> None:
    cells = two_cpu_cells(4)
    assert cells_of(decide(cells, numa(dedicated=2), {2: 1}, LampAmount(1))) == [2]
    assert cells_of(decide(cells, numa(2, dedicated=2), {2: 1, 3: 1}, LampAmount(2))) == [2, 3]


def test_devices_follow_host_cells() -> None:
    """Only cell 1 has four CPUs, so the lamps are those next to it."""
    cells = host(plain(0, [0]), plain(1, range(1, 5)), plain(2, [5]))
    result = decide(cells, numa(dedicated=4), {0: 5, 1: 2, 2: 5}, LampAmount(2))
    assert (cells_of(result), lamps_of(result)) == ([1], {1: 2})


def test_cells_with_the_most_devices_that_would_do_come_first() -> None:
    """Source: Nova's order of host cells, for requests with devices."""
    result = decide(two_cpu_cells(4), numa(dedicated=1), {1: 1, 3: 2}, LampAmount(1))
    assert cells_of(result) == [3]
    anywhere = LampAmount(1, is_near=False)
    assert cells_of(decide(two_cpu_cells(4), numa(dedicated=1), {1: 1, 3: 2}, anywhere)) == [3]


def test_cells_with_devices_are_left_to_others_where_none_are_requested() -> None:
    """Source: Nova's order of host cells, for requests without devices."""
    cells = two_cpu_cells(3)
    assert cells_of(decide(cells, numa(dedicated=1), {0: 2, 1: 1}, None)) == [2]
    assert cells_of(decide(cells, numa(2, dedicated=2), {0: 2, 1: 1}, None)) == [1, 2]
    assert cells_of(decide(cells, numa(3, dedicated=3), {0: 2, 1: 1}, None)) == [0, 1, 2]


def test_one_guest_cell_with_a_device_is_enough() -> None:
    """The others are placed as before."""
    cells = host(plain(0, range(2)), plain(1, range(2, 6)), plain(2, range(6, 9)))
    result = decide(cells, numa(2, dedicated=2), {0: 1}, LampAmount(1))
    assert cells_of(result) == [0, 1]


def test_guest_cells_are_exchanged_so_that_the_cell_with_the_device_is_used() -> None:
    cells = host(plain(0, [0]), plain(1, [1, 2]), plain(2, [3, 4, 5]))
    request = uneven(2, 1)
    assert cells_of(decide(cells, request, {0: 1}, LampAmount(1))) == [2, 0]
    assert cells_of(decide(cells, request, {1: 1}, LampAmount(1))) == [1, 2]
    assert cells_of(decide(cells, request, {0: 1, 1: 1}, LampAmount(2))) == [1, 0]


def test_without_a_topology_nothing_is_near_and_devices_are_decided_alone() -> None:
    existing = {NUMA: two_cpu_cells(2), LAMP: LampInventory({0: 1, 7: 1})}
    result = placed.fit_together({LAMP: LampAmount(2)}, existing)
    assert lamps_of(result) == {0: 1, 7: 1}


def test_a_place_without_host_cells_has_none_to_be_near_to() -> None:
    result = placed.fit_together({LAMP: LampAmount(2)}, {LAMP: LampInventory({0: 1, 7: 1})})
    assert lamps_of(result) == {0: 1, 7: 1}


def test_parts_that_may_be_used_narrow_both() -> None:
    cells, free = two_cpu_cells(4), {0: 1, 1: 1, 2: 1}
    within: dict[str, Collection[int]] = {NUMA: [1, 2, 3]}
    result = decide(cells, numa(dedicated=1), free, LampAmount(1), within=within)
    assert (cells_of(result), lamps_of(result)) == ([1], {1: 1})
    within[LAMP] = [0, 2]
    result = decide(cells, numa(dedicated=1), free, LampAmount(1), within=within)
    assert (cells_of(result), lamps_of(result)) == ([2], {2: 1})
    within[NUMA] = [1, 3]
    (reason,) = reasons(cells, numa(dedicated=1), free, LampAmount(1), within=within)
    assert (reason.rule, reason.requested, reason.bound) == (Rule.AFFINITY, 1, 0)


def test_limits_narrow_the_cells_that_devices_may_be_near_to() -> None:
    cells = host(HostCell(0, shared=range(4)), HostCell(1, shared=range(4, 8)))
    limits = {NUMA: NUMATopologyLimit(vcpus={0: 1})}
    request = numa(shared=2), {0: 2, 1: 1}
    assert cells_of(decide(cells, *request, LampAmount(1))) == [0]
    assert cells_of(decide(cells, *request, LampAmount(1), limits=limits)) == [1]
    assert reasons(cells, *request, LampAmount(2), limits=limits)[0].rule is Rule.AFFINITY


# --- networks, sockets and free counts with devices -----------------------------------------------


def test_networks_and_devices_are_decided_together() -> None:
    """Cell 1 is next to red and has no lamp, cell 3 has both; two guest cells may be on any two."""
    cells = host(
        plain(0, [0]),
        plain(1, [1, 2], physnets=["red"]),
        plain(2, [3]),
        plain(3, [4], physnets=["red"]),
    )
    request = numa(dedicated=1, physnets=["red"])
    assert cells_of(decide(cells, request, {0: 1, 3: 1}, LampAmount(1))) == [3]
    (reason,) = reasons(cells, request, {0: 1}, LampAmount(1))
    assert str(reason) == f"{LAMP} requested 1, at most 0 near its host cells"
    two = numa(2, dedicated=2, physnets=["red"])
    assert sorted(cells_of(decide(cells, two, {0: 1}, LampAmount(1)))) == [0, 1]


def test_networks_that_take_all_guest_cells_leave_none_for_devices() -> None:
    cells = host(plain(0, [0], physnets=["red"]), plain(1, [1], physnets=["blue"]), plain(2, [2]))
    request = numa(2, dedicated=2, physnets=["red", "blue"])
    assert reasons(cells, request, {2: 1}, LampAmount(1))[0].rule is Rule.AFFINITY
    three = numa(3, dedicated=3, physnets=["red", "blue"])
    assert sorted(cells_of(decide(cells, three, {2: 1}, LampAmount(1)))) == [0, 1, 2]


def test_one_socket_and_devices_are_decided_together() -> None:
    cells = host(*(plain(i, [i], socket=i // 2) for i in range(4)))
    requested = numa(2, dedicated=2, one_socket=True)
    assert cells_of(decide(cells, requested, {0: 1, 3: 2}, LampAmount(2))) == [2, 3]
    assert reasons(cells, requested, {0: 1, 3: 1}, LampAmount(2))[0].rule is Rule.AFFINITY
    request = numa(2, dedicated=2)
    assert cells_of(decide(cells, request, {0: 1, 3: 1}, LampAmount(2))) == [0, 3]


def test_cores_left_empty_and_devices_and_what_the_host_has_left_are_decided_together() -> None:
    """Isolated vCPUs take four CPUs of cell 0, whose siblings are idle, and two of the others."""
    cells = host(
        cored(0, (0, 1), (2, 3)), cored(1, (4,), (5,)), cored(2, (6,), (7,)), cored(3, (8,))
    )
    request = numa(dedicated=2, thread_policy="isolate")
    free = {0: 3, 2: 1, 3: 1}
    for room in ({}, {"PCPU": 3}):  # the smaller draw comes first, for any free counts of the host
        assert cells_of(decide(cells, request, free, LampAmount(1), room=room)) == [2]
    assert cells_of(decide(cells, request, {0: 3}, LampAmount(1))) == [0]
    assert reasons(cells, request, {0: 3}, LampAmount(1), room={"PCPU": 3})[0].rule is Rule.AFFINITY
    assert reasons(cells, request, free, LampAmount(1), room={"PCPU": 1})[0].rule is Rule.CAPACITY


def test_pages_of_any_size_and_devices_and_what_the_host_has_left_are_decided_together() -> None:
    """CellMap 0 and 1 give ordinary memory, of which the host has too little for both."""
    cells = host(
        paged(0, 512), paged(1, 512), paged(2, 0, (KIB_2M, 256)), paged(3, 0, (KIB_2M, 256))
    )
    request = numa(2, memory_mb=1024, page_size="any")
    free = {0: 2, 1: 1, 2: 1}
    room = {"MEMORY_MB": 512}
    for remaining in ({}, room):
        assert cells_of(decide(cells, request, free, LampAmount(3), room=remaining)) == [0, 2]
    assert cells_of(decide(cells, request, {0: 2, 1: 1}, LampAmount(3))) == [0, 1]
    assert sorted(cells_of(decide(cells, request, {1: 1}, LampAmount(1), room=room))) in (
        [1, 2],
        [1, 3],
    )
    assert reasons(cells, request, {0: 1, 1: 1}, LampAmount(2), room=room)[0].rule is Rule.AFFINITY


# --- what is assigned already ---------------------------------------------------------------------


def test_assigned_cells_are_the_only_choice_there_is() -> None:
    cells = two_cpu_cells(3)
    topology = cells.fit(numa(dedicated=1), context=Context(allowed=[1]))
    result = decide(cells, topology, {0: 5, 1: 1}, LampAmount(1))
    assert (result[NUMA], lamps_of(result)) == (topology, {1: 1})
    (reason,) = reasons(cells, topology, {0: 5, 1: 1}, LampAmount(2))
    assert str(reason) == f"{LAMP} requested 2, at most 1 near its host cells"


def test_assigned_devices_narrow_the_cells() -> None:
    cells = two_cpu_cells(3)
    lamps = LampAmount(2, placed=((1, 1), (2, 1)))
    result = decide(cells, numa(2, dedicated=2), {0: 5, 1: 1, 2: 1}, lamps)
    assert (cells_of(result), result[LAMP]) == ([1, 2], lamps)
    assert reasons(cells, numa(dedicated=1), {0: 5, 1: 1, 2: 1}, lamps)[0].rule is Rule.AFFINITY


def test_both_assigned_are_checked_as_they_are() -> None:
    cells = two_cpu_cells(2)
    lamps = LampAmount(1, placed=((1, 1),))
    near, far = (cells.fit(numa(dedicated=1), context=Context(allowed=[cell])) for cell in (1, 0))
    assert decide(cells, near, {1: 1}, lamps) == {NUMA: near, LAMP: lamps}
    assert reasons(cells, far, {1: 1}, lamps)[0].rule is Rule.AFFINITY
    foreign = two_cpu_cells(9).fit(numa(dedicated=1), context=Context(allowed=[8]))
    with pytest.raises(ForeignAmount):
        decide(cells, foreign, {1: 1}, lamps)


def test_what_is_released_is_near_to_nothing() -> None:
    cells, lamps = two_cpu_cells(2), LampAmount(1, placed=((0, 1),), gives_back=True)
    topology = cells.consume(numa(dedicated=1), context=Context(allowed=[1]))
    assert decide(cells, -topology, {0: 0}, lamps) == {NUMA: -topology, LAMP: lamps}
    lamps = lamps.replace(placed=((1, 1),))
    assert cells_of(decide(cells, numa(dedicated=1), {1: 0}, lamps)) == [0]
    assert lamps_of(decide(cells, -topology, {0: 1}, LampAmount(1))) == {0: 1}


# --- why not --------------------------------------------------------------------------------------


def test_what_is_refused_alone_is_refused_for_that() -> None:
    cells = two_cpu_cells(2)
    topology, lamps = reasons(cells, numa(dedicated=3), {0: 1}, LampAmount(2))[::2]
    assert (topology.rule, topology.cell) == (Rule.CAPACITY, 0)
    assert (lamps.resource, lamps.rule, lamps.bound) == (LAMP, Rule.CAPACITY, 1)
    (lamps,) = reasons(cells, numa(dedicated=2), {0: 1}, LampAmount(2))
    assert (lamps.resource, lamps.rule) == (LAMP, Rule.CAPACITY)
    result = reasons(cells, numa(dedicated=3), {0: 1}, LampAmount(1))
    assert [(reason.resource, reason.cell) for reason in result] == [("PCPU", 0), ("PCPU", 1)]


def test_who_cannot_be_near_says_how_many_could_be() -> None:
    """On the two cells with the most of them."""
    (reason,) = reasons(two_cpu_cells(4), numa(2, dedicated=2), {0: 1, 1: 2, 2: 3}, LampAmount(6))
    assert reason == Reason(Rule.AFFINITY, 6, 5, 0, LAMP)
    assert str(reason) == f"{LAMP} requested 6, at most 5 near its host cells"


def test_of_several_only_those_are_named_who_cannot_be_near() -> None:
    existing: dict[str, Inventory] = {
        NUMA: two_cpu_cells(2),
        LAMP: LampInventory({0: 1, 1: 1}),
        "CUSTOM_BELL": LampInventory({0: 1}),
    }
    request = {NUMA: numa(dedicated=1), LAMP: LampAmount(2), "CUSTOM_BELL": LampAmount(1)}
    with pytest.raises(CapacityException) as refusal:
        placed.fit_together(request, existing)
    assert [str(reason) for reason in refusal.value.reasons] == [
        f"{LAMP} requested 2, at most 1 near its host cells"
    ]


def test_several_that_cannot_be_near_at_once_are_refused_at_once() -> None:
    """Each could be near the one cell, but it is not the same one."""
    existing: dict[str, Inventory] = {
        NUMA: two_cpu_cells(2),
        LAMP: LampInventory({0: 1}),
        "CUSTOM_BELL": LampInventory({1: 2}),
    }
    request = {NUMA: numa(dedicated=1), LAMP: LampAmount(1), "CUSTOM_BELL": LampAmount(1)}
    with pytest.raises(CapacityException) as refusal:
        placed.fit_together(request, existing)
    (reason,) = refusal.value.reasons
    assert reason.rule is Rule.AFFINITY
    both = placed.fit_together({**request, NUMA: numa(2, dedicated=2)}, existing)
    assert cells_of(both) == [0, 1]


def test_what_is_absent_is_named_and_the_rest_is_tried_alone() -> None:
    cells = two_cpu_cells(2)
    with pytest.raises(CapacityException) as refusal:
        placed.fit_together({NUMA: numa(dedicated=3), LAMP: LampAmount(1)}, {NUMA: cells})
    rules = [reason.rule for reason in refusal.value.reasons]
    assert rules == [Rule.CAPACITY, Rule.CAPACITY, Rule.NO_INVENTORY]
    with pytest.raises(CapacityException) as refusal:
        placed.fit_together(
            {NUMA: numa(dedicated=1), LAMP: LampAmount(2)}, {LAMP: LampInventory({0: 1})}
        )
    assert [reason.resource for reason in refusal.value.reasons] == [NUMA, LAMP]


def test_a_kind_that_refuses_the_cells_it_was_given_is_believed() -> None:
    """The constraint and the decision of a kind should agree; the decision counts."""

    class Moody(LampInventory):
        @classmethod
        def obj_name(cls) -> str:
            return LampInventory.obj_name()

        def fit(self, amount: Amount, limit: Any = None, context: Context = ANYWHERE) -> LampAmount:
            if context.chosen is None:
                return super().fit(amount, limit, context)
            raise CapacityException([Reason(Rule.UNIT_TAKEN, 1, 0, 1, LAMP, unit="lamp0")])

    (reason,) = reasons(two_cpu_cells(2), numa(dedicated=1), Moody({0: 1}), LampAmount(1))
    assert reason.rule is Rule.UNIT_TAKEN


# --- neither yes nor no ---------------------------------------------------------------------------


class Colours(LampInventory):
    """Lamps that need what is hard."""

    @classmethod
    def obj_name(cls) -> str:
        return LampInventory.obj_name()

    def affinity(self, *args: Any) -> Any:
        return hard()[2]


@pytest.mark.law(9)
def test_who_is_refused_alone_is_refused_although_the_search_is_cut_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A no of any is a no."""
    monkeypatch.setattr("resource_objects.resources.numa.placement.DECISION", 1_000)
    cells, request, _ = hard()
    with pytest.raises(SearchLimitReached):
        decide(cells, request, Colours({0: 1}), LampAmount(1))
    (reason,) = reasons(cells, request, Colours({0: 1}), LampAmount(2))
    assert (reason.rule, reason.resource) == (Rule.CAPACITY, LAMP)


def test_what_one_does_not_know_is_no_refusal() -> None:
    unknown = SearchLimitReached(9)

    class Dim(LampInventory):
        @classmethod
        def obj_name(cls) -> str:
            return LampInventory.obj_name()

        def _fit(self, *args: Any) -> LampAmount:
            raise unknown

    with pytest.raises(type(unknown)):
        decide(two_cpu_cells(2), numa(dedicated=1), Dim({0: 1}), LampAmount(1))
    with pytest.raises(type(unknown)):
        placed.fit_together({LAMP: LampAmount(1)}, {LAMP: Dim({0: 1})})
    result = reasons(two_cpu_cells(2), numa(dedicated=3), Dim({0: 1}), LampAmount(1))
    assert {reason.resource for reason in result} == {"PCPU"}


def test_a_cell_in_use_is_no_cell_to_be_near_to() -> None:
    cells = two_cpu_cells(3).obj_clone()
    cells.update(usage=[CellUsage(1, pinned=[2, 3])])
    assert cells_of(decide(cells, numa(dedicated=1), {1: 9, 2: 1}, LampAmount(1))) == [2]
    assert reasons(cells, numa(dedicated=1), {1: 9, 2: 1}, LampAmount(2))[0].rule is Rule.AFFINITY


def test_host_cells_say_where_they_are() -> None:
    cells = host(
        plain(0, [0], socket=1, distances={0: 10, 3: 21}), plain(3, [1], distances={3: 10})
    )
    assert cells.cell_map() == CellMap({0: 1, 3: None}, {0: {0: 10, 3: 21}, 3: {3: 10}})
    assert LampInventory({}).cell_map() is None
    assert cells.fit(numa(2, dedicated=2)).host_cells == {0, 3}
    assert numa(2, dedicated=2).host_cells == LampAmount(1).host_cells == frozenset()


def test_kinds_without_cells_or_devices_say_so() -> None:
    cells = two_cpu_cells(1)
    assert cells.affinity(numa(dedicated=1), cells.cell_map()) is None
    assert cells.device_counts() == {}
    assert cell_map_of(IntegerInventory(1)) is cell_map_of(None) is None
