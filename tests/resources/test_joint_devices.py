"""Topologies, devices and counts of one place, requested together: every row of Nova's affinity.

Source: nova.md b.8 (``hw:pci_numa_affinity_policy``) and f.2 (the search over permutations).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given

import resource_objects as ro
from resource_objects.exceptions import (
    CapacityException,
    ForeignAmount,
    SearchLimitReached,
)
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import placed
from resource_objects.resources.context import Context
from resource_objects.resources.numa import HostCell, NUMATopologyInventory
from resource_objects.resources.pci import Device, DeviceUse, PCIAmount, PCIInventory, devices
from resource_objects.testing.refusals import raises_code
from tests.resources.pci.hosts import gpu, nic
from tests.support.numa_reference import has_placement
from tests.support.pci_reference import fits_together, has_assignment, joint_faults
from tests.support.pci_strategies import JointQuestion, joint_questions

NUMA, PCI = "NUMA_TOPOLOGY", "DEVICES"

#: No socket is known.
UNKNOWN = (None, None, None, None)


def place(
    nodes: Iterable[int | None],
    *,
    sockets: Iterable[int | None] = (0, 0, 1, 1),
    usage: Iterable[DeviceUse] = (),
    **counts: Any,
) -> ro.Inventories:
    """Return host cells of four CPUs in these sockets, and a GPU next to each of these nodes."""
    cells = [
        HostCell(i, dedicated=range(4 * i, 4 * i + 4), socket=socket)
        for i, socket in enumerate(sockets)
    ]
    gpus = [gpu(number, numa_node=node) for number, node in enumerate(nodes)]
    return ro.Inventories(
        {NUMA: NUMATopologyInventory(cells), PCI: PCIInventory(gpus, usage=usage), **counts}
    )


def ask(affinity: str, count: int = 1, guests: int = 1, **facts: Any) -> dict[str, Any]:
    """Return a topology of ``cells`` cells, and GPUs of an affinity."""
    return {
        NUMA: ro.numa(guests, dedicated=guests, **facts),
        PCI: devices("PGPU", count, affinity=affinity),
    }


def cells_of(inventories: ro.Inventories) -> NUMATopologyInventory:
    """Return the host cells, live."""
    result = inventories[NUMA]
    assert isinstance(result, NUMATopologyInventory)
    return result


def nodes_of(assigned: ro.Amounts) -> list[int | None]:
    """Return the nodes of the devices."""
    result = assigned[PCI]
    assert isinstance(result, PCIAmount)
    return [device.numa_node for device in result.placed]


def places(assigned: ro.Amounts) -> tuple[list[int], list[int | None]]:
    """Return the host cells, and the nodes of the devices."""
    return sorted(assigned[NUMA].host_cells), nodes_of(assigned)


def refused(inventories: ro.Inventories, amounts: Any) -> list[str]:
    """Return the reasons of a refusal as text; nothing changes."""
    before = inventories.obj_clone()
    with pytest.raises(CapacityException) as refusal:
        inventories.consume(amounts)
    assert inventories == before
    assert not inventories.can_provide(amounts)
    return [str(reason) for reason in refusal.value.reasons]


# --- b.8: affinity --------------------------------------------------------------------------------


@pytest.mark.parametrize("affinity", ["required", "legacy", "preferred", "socket"])
def test_b8_every_policy_takes_the_device_and_the_cell_next_to_each_other(
    affinity: str,
) -> None:
    assert places(place([None, 2, 3, 3]).fit(ask(affinity))) == ([3], [3])
    assert places(place([0, 2]).fit(ask(affinity, 2, guests=2))) == ([0, 2], [0, 2])


def test_b8_required_is_in_the_cells_alone() -> None:
    """Row *required*: numa_node in cells."""
    assert places(place([None, 1, 0]).fit(ask("required", 2, guests=2))) == ([0, 1], [1, 0])
    assert refused(place([None, 1, 0]), ask("required", 2)) == [
        "PGPU requested 2, at most 1 near its host cells"
    ]
    assert refused(place([None, None]), ask("required")) == [
        "PGPU requested 1, at most 0 near its host cells"
    ]


def test_b8_legacy_is_in_the_cells_or_where_the_firmware_does_not_say() -> None:
    """Row *legacy*, the default: numa_node in cells, else also None."""
    assert places(place([None, 1]).fit(ask("legacy", 2))) == ([1], [None, 1])
    assert places(place([None, None]).fit(ask("legacy", 2))) == ([0], [None, None])
    assert refused(place([None, 1, 2]), ask("legacy", 3)) == [
        "PGPU requested 3, at most 2 near its host cells"
    ]
    default = {**ask("required"), PCI: devices("PGPU", 3)}
    assert refused(place([None, 1, 2]), default) == [
        "PGPU requested 3, at most 2 near its host cells"
    ]


def test_b8_preferred_is_anywhere_the_nearest_first() -> None:
    """Row *preferred*: stricter sets first; then any, those in cells or None first."""
    assert places(place([None, 1, 2]).fit(ask("preferred"))) == ([1], [1])
    assert places(place([None, 1, 2]).fit(ask("preferred", 2))) == ([1], [None, 1])
    assert places(place([None, 1, 2]).fit(ask("preferred", 3))) == ([1], [None, 1, 2])
    assert places(place([7]).fit(ask("preferred"))) == ([0], [7])


def test_b8_socket_is_in_the_cells_else_in_their_sockets() -> None:
    """Row *socket*: numa_node in cells if that suffices; else any node in the sockets; not None."""
    assert places(place([0, 0, 1]).fit(ask("socket", 2))) == ([0], [0, 0])
    assert places(place([0, 0, 1]).fit(ask("socket", 3))) == ([0], [0, 0, 1])
    assert refused(place([0, 1, 2]), ask("socket", 3)) == [
        "PGPU requested 3, at most 2 near its host cells"
    ]
    assert refused(place([0, None]), ask("socket", 2)) == [
        "PGPU requested 2, at most 1 near its host cells"
    ]
    assert places(place([0, 1, 2, 3]).fit(ask("socket", 4, guests=2))) == ([0, 2], [0, 1, 2, 3])


@pytest.mark.parametrize("sockets", [UNKNOWN, (0, 0, 1, None)], ids=["none", "all but one"])
def test_b8_socket_is_in_the_cells_alone_where_a_socket_is_not_known(sockets: Any) -> None:
    """Row *socket*: if any host cell has socket None, only the local ones."""
    assert places(place([0, 0], sockets=sockets).fit(ask("socket", 2))) == ([0], [0, 0])
    assert refused(place([0, 1], sockets=sockets), ask("socket", 2)) == [
        "PGPU requested 2, at most 1 near its host cells"
    ]


def test_b8_socket_leads_to_a_cell_with_the_devices() -> None:
    """The CPUs of cells 2 and 0 are taken: cell 3 shares a socket with the device of cell 2."""
    inventories = place([2])
    for cell in (0, 2):
        cells_of(inventories).consume(ro.numa(dedicated=4), context=Context(allowed=[cell]))
    assert places(inventories.fit(ask("socket"))) == ([3], [2])
    assert refused(inventories, ask("required")) == [
        "PGPU requested 1, at most 0 near its host cells"
    ]


@pytest.mark.parametrize("affinity", ["required", "legacy", "preferred", "socket"])
def test_b8_requests_for_no_cells_has_any_device(affinity: str) -> None:
    """The list of cells is empty then, and no policy means anything."""
    inventories = place([None, 1, 3], sockets=UNKNOWN)
    assigned = inventories.consume({PCI: devices("PGPU", 3, affinity=affinity)})
    assert len(nodes_of(assigned)) == 3
    assert refused(inventories, {PCI: devices("PGPU", affinity=affinity)}) == [
        "PGPU requested 1, free 0 of 3"
    ]


def test_b8_the_stricter_set_is_used_request_by_request() -> None:
    """One request is near its cells, another of the same amount uses devices without a cell."""
    inventories = place([None, 2])
    request = {
        NUMA: ro.numa(dedicated=1),
        PCI: devices("PGPU", affinity="legacy") + devices("PGPU", affinity="required"),
    }
    assigned = inventories.fit(request)
    assert places(assigned)[0] == [2]
    assert nodes_of(assigned) == [None, 2]


def test_b8_policies_of_several_requests_count_each_for_itself() -> None:
    inventories = place([0, 3])
    near, anywhere = devices("PGPU", affinity="required"), devices("PGPU", affinity="preferred")
    assert places(inventories.fit({NUMA: ro.numa(dedicated=1), PCI: near + anywhere}))[1] == [0, 3]
    assert refused(inventories, {NUMA: ro.numa(dedicated=1), PCI: near + near}) == [
        "DEVICES requested 2 devices, at most 1 fit at once"
    ]


# --- one follows the other ------------------------------------------------------------------------


def test_cells_follow_devices_and_devices_follow_cells() -> None:
    inventories = place([1, 2, 3])
    cells_of(inventories).consume(ro.numa(dedicated=4), context=Context(allowed=[1]))
    inventories[PCI].consume(devices("PGPU", address="0000:02:00.0"))
    assert places(inventories.fit(ask("required"))) == ([3], [3])


def test_requests_for_no_devices_keeps_away_from_them() -> None:
    inventories = place([0, 1, 2])
    assert inventories.fit({NUMA: ro.numa(dedicated=1)})[NUMA].host_cells == {3}
    inventories.consume({PCI: devices("PGPU", address="0000:02:00.0")})
    assert inventories.fit({NUMA: ro.numa(2, dedicated=2)})[NUMA].host_cells == {1, 3}


def test_a_device_and_its_parts_are_near_to_one_cell() -> None:
    cells = NUMATopologyInventory([HostCell(i, dedicated=[i]) for i in range(3)])
    card = nic(3, numa_node=1)
    inventories = ro.Inventories({NUMA: cells, PCI: PCIInventory(card)})
    part = devices("8086:154c", 3, affinity="required", types=["type-VF"])
    request = devices("8086:1572", affinity="required", types=["type-PF"])
    assert places(inventories.fit({NUMA: ro.numa(dedicated=1), PCI: part})) == ([1], [1, 1, 1])
    assert places(inventories.fit({NUMA: ro.numa(dedicated=1), PCI: request})) == ([1], [1])
    both = {NUMA: ro.numa(dedicated=1), PCI: request + devices("8086:154c", types=["type-VF"])}
    assert not inventories.can_provide(both)


@pytest.mark.parametrize("near", [(0, 1), (1, 0)])
def test_cells_whose_devices_exclude_others_elsewhere_do_not_stand_for_each_other(
    near: tuple[int, int],
) -> None:
    """Each of the first two cells has a function; the cell of its card decides.

    The cell of one card has no CPU, so the other card is taken, which excludes its own function.
    """
    cards = [
        ro.Device(f"0000:0{bus}:00.0", "8086", "1572", "type-PF", numa_node=node)
        for bus, node in ((1, 2), (2, 3))
    ]
    functions = [
        ro.Device(
            f"0000:0{bus}:02.0",
            "8086",
            "154c",
            "type-VF",
            parent=f"0000:0{bus}:00.0",
            numa_node=node,
        )
        for bus, node in enumerate(near, 1)
    ]
    cells = [HostCell(i, dedicated=[i]) for i in (0, 1, 3)]
    host = ro.Inventories(
        {
            NUMA: NUMATopologyInventory([*cells, HostCell(2, shared=[2])]),
            PCI: PCIInventory([*cards, *functions]),
        }
    )
    request = devices("8086:1572", types=["type-PF"], affinity="required")
    request += devices("8086:154c", types=["type-VF"], affinity="required")
    assigned = host.fit({NUMA: ro.numa(2, dedicated=2), PCI: request})
    assert places(assigned) == ([near[0], 3], [3, near[0]])


def test_networks_and_devices_are_decided_together() -> None:
    cells = NUMATopologyInventory(
        [HostCell(i, dedicated=[i], physnets=["red"] if i in (1, 3) else []) for i in range(4)]
    )
    inventories = ro.Inventories({NUMA: cells, PCI: PCIInventory([gpu(0, numa_node=0)])})
    item, two = ask("required", physnets=["red"]), ask("required", guests=2, physnets=["red"])
    assert refused(inventories, item) == ["PGPU requested 1, at most 0 near its host cells"]
    assert places(inventories.fit(two)) == ([0, 1], [0])


def test_counts_bind_both_and_are_taken_once() -> None:
    inventories = place([0, 0, 3], PCPU=2)
    request = {"PCPU": 2, "PGPU": 2, **ask("required", 2, guests=2)}
    assigned = inventories.consume(request)
    pcpu = inventories["PCPU"]
    assert isinstance(pcpu, ro.IntegerInventory) and pcpu.used == 2
    assert places(assigned)[1] == [0, 0]
    assert refused(inventories, ask("required")) == ["PCPU requested 1, free 0 of 2"]
    inventories.consume(-assigned)
    assert inventories == place([0, 0, 3], PCPU=2)
    with raises_code("InvalidAmount", match="expected 2, as DEVICES specifies"):
        inventories.fit({**request, "PGPU": 3})


def test_the_text_form_requests_both() -> None:
    inventories = place([1, 3])
    request = "PGPU=1,NUMA_TOPOLOGY=1:dedicated=2,DEVICES=1*PGPU@required"
    assigned = inventories.consume(request)
    assert places(assigned) == ([1], [1])
    assert ro.Amounts.parse(request) == ro.Amounts(request)


# --- what is assigned already ---------------------------------------------------------------------


def test_assigned_cells_choose_the_devices() -> None:
    inventories = place([0, 0, 3])
    topology = cells_of(inventories).fit(ro.numa(dedicated=1), context=Context(allowed=[3]))
    assert places(inventories.fit({**ask("required"), NUMA: topology})) == ([3], [3])
    assert refused(inventories, {**ask("required", 2), NUMA: topology}) == [
        "PGPU requested 2, at most 1 near its host cells"
    ]


@pytest.mark.parametrize("affinity", ["required", "legacy", "socket"])
def test_assigned_devices_choose_the_cells(affinity: str) -> None:
    inventories = place([0, 0, 3])
    chosen = inventories[PCI].fit(devices("PGPU", affinity=affinity, address="0000:03:00.0"))
    assert places(inventories.fit({NUMA: ro.numa(dedicated=1), PCI: chosen})) == ([3], [3])
    cells_of(inventories).consume(ro.numa(2, dedicated=8), context=Context(allowed=[2, 3]))
    assert refused(inventories, {NUMA: ro.numa(dedicated=1), PCI: chosen}) == [
        "PGPU requested 1, at most 0 near its host cells"
    ]


def test_both_assigned_are_checked_as_they_are_and_released() -> None:
    inventories = place([0, 3])
    assigned = inventories.fit(ask("required"))
    assert inventories.consume(assigned) == assigned
    assert refused(inventories, assigned)
    inventories.consume(-assigned)
    assert inventories == place([0, 3])
    far = cells_of(inventories).fit(ro.numa(dedicated=1), context=Context(allowed=[2]))
    assert refused(inventories, {**dict(assigned.by_name()), NUMA: far}) == [
        "PGPU requested 1, at most 0 near its host cells"
    ]
    with pytest.raises(ForeignAmount):
        place([]).fit(assigned)


@pytest.mark.law(2)
def test_a_failure_in_the_middle_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device for one use that was taken a moment ago is not spent by taking it back."""
    cells = NUMATopologyInventory([HostCell(0, dedicated=[0])])
    once = PCIInventory([gpu(0, numa_node=0, one_time_use=True)])
    inventories = ro.Inventories({PCI: once, NUMA: cells, "DISK_GB": 9})
    before = inventories.obj_clone()

    def fail(self: object, assigned: object) -> None:
        raise KeyboardInterrupt

    for name in (NUMA, "DISK_GB"):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(type(inventories[name]), "apply", fail)
            inventories.consume({**ask("required"), "DISK_GB": 1})
        assert inventories == before
    assert inventories.can_provide(ask("required"))


# --- why not, and what is not known ---------------------------------------------------------------


def test_each_is_refused_for_its_own_reasons_first() -> None:
    inventories = place([0], sockets=[0, 0])
    request = {NUMA: ro.numa(dedicated=5), PCI: devices("PGPU", 2, affinity="required")}
    assert refused(inventories, request) == [
        "cell 0: PCPU requested 5, free 4 of 4",
        "cell 1: PCPU requested 5, free 4 of 4",
        "PGPU requested 2, free 1 of 1",
    ]
    assert refused(inventories, {**request, NUMA: ro.numa(dedicated=4)}) == [
        "PGPU requested 2, free 1 of 1"
    ]


def test_a_topology_where_there_are_no_cells_is_absent_and_devices_are_tried_alone() -> None:
    single = ro.Inventories({PCI: PCIInventory([gpu(0, numa_node=0)])})
    assert refused(single, ask("required")) == ["NUMA_TOPOLOGY requested 1, there is none"]
    assert refused(single, ask("required", 2)) == [
        "NUMA_TOPOLOGY requested 1, there is none",
        "PGPU requested 2, free 1 of 1",
    ]


# --- f.2: never permutations ----------------------------------------------------------------------


def big(hosts: int, nodes: Iterable[int | None]) -> ro.Inventories:
    """Return many host cells, two to a socket."""
    return place(nodes, sockets=[i // 2 for i in range(hosts)])


NEVER: Mapping[str, tuple[int, int, list[int | None], str]] = {
    "4 on 8, next to no cell": (8, 4, [9], "required"),
    "4 on 8, one at each": (8, 4, [*range(8)], "required"),
    "8 on 8, next to no cell": (8, 8, [9, None], "required"),
    "8 on 8, none in a socket": (8, 8, [None], "socket"),
    "8 on 16, next to no cell": (16, 8, [16], "legacy"),
    "8 on 16, one at each": (16, 8, [*range(16)], "required"),
    "8 on 16, one or two at each": (16, 8, [*range(16), *range(0, 16, 2)], "legacy"),
}


@pytest.mark.parametrize("case", NEVER)
def test_f2_a_device_condition_that_never_holds_is_found_out_in_a_few_steps(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row *search over permutations*: 8 on 8 are 40,320 of them, 8 on 16 are 518,918,400."""
    monkeypatch.setattr("resource_objects.resources.numa.placement.DECISION", 60)
    hosts, guests, nodes, affinity = NEVER[case]
    inventories = big(hosts, nodes)
    most = sum(sorted((nodes.count(i) for i in range(hosts)), reverse=True)[:guests])
    request = ask(affinity, most + 1, guests)
    assert refused(inventories, request) == [
        f"PGPU requested {most + 1}, at most {most} near its host cells"
    ]
    if most:
        assert inventories.can_provide(ask(affinity, most, guests))


# --- against everything that there is -------------------------------------------------------------


def fitted(request: JointQuestion) -> dict[str, Any]:
    """Return the cells and devices of both."""
    return placed.fit_together(
        {NUMA: request.topology, PCI: request.amount},
        {NUMA: request.cells, PCI: request.inventory()},
    )


@given(joint_questions())
def test_both_fit_exactly_if_there_is_any_way(request: JointQuestion) -> None:
    """All sets of host cells and of devices are tried."""
    value = (request.cells, request.topology, request.devices, request.usage)
    try:
        result = fitted(request)
    except CapacityException as refusal:
        assert not fits_together(*value, request.amount)
        check_reasons(request, refusal.reasons)
        return
    topology = result[NUMA]
    assert not joint_faults(request.cells, topology, request.devices, request.usage, result[PCI])
    # an assigned amount fits unchanged, both or either
    existing = {NUMA: request.cells, PCI: request.inventory()}
    assert placed.fit_together(result, existing) == result
    assert placed.fit_together({**result, PCI: request.amount}, existing)[NUMA] == topology
    again = placed.fit_together({**result, NUMA: request.topology}, existing)
    assert again[PCI] == result[PCI]


def check_reasons(request: JointQuestion, reasons: Iterable[Reason]) -> None:
    """Check that reasons are about what is refused alone; if there is nothing, who is not near."""
    rules = {reason.rule for reason in reasons}
    single = has_placement(request.cells, request.topology)
    if single and has_assignment(request.devices, request.usage, request.amount):
        assert rules <= {Rule.AFFINITY, Rule.AT_ONCE}
    else:
        assert Rule.AFFINITY not in rules


@pytest.mark.law(5)
@given(joint_questions())
def test_asking_together_changes_nothing(request: JointQuestion) -> None:
    inventories = ro.Inventories({NUMA: request.cells, PCI: request.inventory()})
    before = inventories.obj_clone()
    amounts = ro.Amounts({NUMA: request.topology, PCI: request.amount})
    fits = inventories.can_provide(amounts)
    assert inventories == before
    assert (not inventories.refusals(amounts)) is fits
    if not fits:
        return
    expected = inventories.fit(amounts)
    assert inventories.consume(amounts) == expected
    once = any(device.one_time_use for device in request.devices)
    inventories.consume(-expected)
    assert once or inventories == before


@pytest.mark.law(9)
@given(joint_questions())
def test_the_same_question_has_the_same_answer(request: JointQuestion) -> None:
    def answer(devices_: Iterable[Device]) -> Any:
        changed = request._replace(devices=tuple(devices_))
        try:
            return fitted(changed)
        except (CapacityException, SearchLimitReached) as no:
            return str(no)

    shuffled = random.Random(0).sample(request.devices, len(request.devices))
    assert answer(request.devices) == answer(request.devices) == answer(shuffled)
