"""The compute node and its devices: the column of pools, what is taken, and what is refused."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Collection
from typing import Any

import pytest
from hypothesis import given, settings

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.compute_node import ComputeNode
from resource_objects.interop.nova.pci_devices import (
    device_pools,
    dump_pci_pools,
    load_pci_pools,
)
from resource_objects.reasons import Rule
from resource_objects.resources.numa import NUMATopologyInventory, numa
from resource_objects.resources.pci import (
    DeviceUse,
    PCIAmount,
    PCIInventory,
    PlacedDevice,
    devices,
)
from resource_objects.testing.refusals import raises_code
from tests.host.placed import (
    NUMA,
    PCI,
    POOLS,
    WHOLE,
    addresses,
    agent,
    card,
    cells,
    gpu,
    lab,
    live_of,
    pools_of,
    record,
    states,
)
from tests.host.views import pending_devices
from tests.support.lengths import some
from tests.support.pci_devices import put_in_state
from tests.support.pci_strategies import JointQuestion, PCIQuestion, joint_questions, pci_questions

GPU = devices("10de:2330")
TEXT = dump_pci_pools(POOLS)


# --- a record: the text is carried ----------------------------------------------------------------


@pytest.mark.parametrize(
    "text", [TEXT, TEXT.encode(), "what nobody can read", "5", b"\xff", None, "", "[]"], ids=str
)
def test_a_row_s_counts_are_carried_and_make_no_inventory(text: object) -> None:
    compute_node = record(pci_stats=text)
    assert PCI not in compute_node.inventories
    assert not compute_node.inventories.can_provide({PCI: GPU})
    assert compute_node.update_inventories({PCI: None}) is False
    compute_node.inventories.consume({"VCPU": 2})
    assert compute_node.to_row()["pci_stats"] == text
    assert sorted(compute_node.changes()) == ["vcpus_used"]
    again = ComputeNode.obj_from_primitive(compute_node.obj_to_primitive())
    assert again == compute_node == copy.deepcopy(compute_node)


# --- devices that are known: the specification's words ------------------------------------------


@pytest.mark.law(1)
def test_devices_add_nothing_to_counts() -> None:
    """D1: ``PGPU=2`` and a request of two such devices come to two devices."""
    together, single = agent(), agent()
    together.inventories.consume({"PGPU": 2, PCI: devices("PGPU", 2)})
    single.inventories.consume({PCI: devices("PGPU", 2)})
    assert together == single and not together.pending
    with raises_code("InvalidAmount", match=r"PGPU: got .*1.*, expected 2"):
        agent().inventories.consume({"PGPU": 1, PCI: devices("PGPU", 2)})


@pytest.mark.law(3)
def test_a_device_for_one_use_is_spent() -> None:
    """The named exception of law 3."""
    compute_node = agent(PCIInventory([gpu("3b", one_time_use=True)]))
    taken = compute_node.inventories.consume({PCI: devices("PGPU")})
    compute_node.inventories.consume(-taken)
    assert states(compute_node) == {"0000:3b:00.0": "spent"} and not pending_devices(compute_node)
    assert not compute_node.inventories.can_provide({PCI: devices("PGPU")})
    live = live_of(compute_node)
    put_in_state(live, "0000:3b:00.0", None)
    assert compute_node.inventories.can_provide({PCI: devices("PGPU")})
    assert compute_node.changes() == {}


def test_a_function_and_those_split_off_it_exclude_each_other() -> None:
    """c.1: a claimed function makes those it excludes unclaimable."""
    compute_node = agent()
    assigned = compute_node.inventories.consume({PCI: devices("8086:1572", types=["type-PF"])})
    assert states(compute_node)["0000:81:02.0"] == "unclaimable"
    assert not compute_node.inventories.can_provide({PCI: devices("8086:154c")})
    assert pools_of(compute_node) == {("2330", 0): 1, ("2330", 1): 1}
    compute_node.inventories.consume(-assigned)
    compute_node.inventories.consume({PCI: devices("8086:154c")})
    assert pools_of(compute_node)["154c", None] == 1
    assert ("1572", None) not in pools_of(compute_node)


def test_claimed_devices_are_reported_as_in_use() -> None:
    compute_node = agent()
    live = live_of(compute_node)
    taken = compute_node.inventories.consume({PCI: devices("8086:154c")})[PCI]
    before = compute_node.pci_stats, pending_devices(compute_node)
    put_in_state(live, taken, "allocated")
    assert states(compute_node)["0000:81:02.0"] == "allocated"
    assert states(compute_node)[WHOLE] == "unavailable"
    assert (compute_node.pci_stats, pending_devices(compute_node)) == before
    assert copy.deepcopy(compute_node).inventories[PCI] == live
    live.consume(-taken)
    assert compute_node == agent()


def test_a_required_affinity_chooses_the_cells() -> None:
    """b.8, D13: the device is next to cell 1, and cell 0 would be taken first."""
    far = PCIInventory([gpu("5e", 1), gpu("5f", 1)])
    compute_node = agent(far)
    live = compute_node.inventories
    assert live.fit({NUMA: numa(dedicated=2)})[NUMA].host_cells == {0}  # the other cell has devices
    near = {NUMA: numa(dedicated=4), PCI: devices("PGPU", affinity="required")}
    taken = live.consume(near)
    assert taken[NUMA].host_cells == {1} and addresses(taken) == ("0000:5e:00.0",)
    assert not live.can_provide(near)
    (reason,) = live.refusals({NUMA: numa(dedicated=1), PCI: near[PCI]})
    assert reason.rule is Rule.AFFINITY
    assert live.can_provide({NUMA: numa(dedicated=4), PCI: devices("PGPU", affinity="preferred")})
    live.consume(-taken)
    assert live.consume(near)[NUMA].host_cells == {1}


def test_requested_one_by_one_of_a_record_nothing_is_near() -> None:
    """A record has no consumers: affinity needs one request for cells and devices."""
    compute_node = agent(
        PCIInventory([gpu("5e", 1)]),
        numa_topology=ComputeNode(numa_topology=cells()).numa_topology,
        vcpus=16,
    )
    compute_node.inventories[NUMA].consume(numa(dedicated=2))
    assert compute_node.inventories[PCI].can_provide(devices("PGPU", affinity="required"))


# --- the column ---------------------------------------------------------------------------------


OLD = [
    {"nova_object.name": "PciDevicePoolList", "nova_object.namespace": "nova",
     "nova_object.version": "1.0", "nova_object.data": {"objects": [
        {"nova_object.name": "PciDevicePool", "nova_object.namespace": "nova",
         "nova_object.version": "1.0", "nova_object.data": {
            "vendor_id": "10de", "product_id": "2330", "count": 2, "tags": {}}}]}},
    [{"vendor_id": "10de", "product_id": "2330", "count": 2}],
]  # fmt: skip


@pytest.mark.parametrize("old", OLD, ids=["1.0", "a list of dicts"])
def test_the_column_is_written_in_the_newest_version_whichever_it_came_in(old: Any) -> None:
    compute_node = agent(PCIInventory([gpu("3b", 1)]), pci_stats=json.dumps(old))
    assert '"1.1"' in compute_node.pci_stats and pools_of(compute_node) == {("2330", 1): 1}


@pytest.mark.parametrize("form", [str, str.encode], ids=["text", "bytes"])
def test_what_no_consumer_changed_returns_byte_by_byte(form: Callable[[str], object]) -> None:
    raw = form(json.dumps(json.loads(TEXT), indent=3))
    compute_node = record(pci_stats=raw)
    assert compute_node.to_row()["pci_stats"] is raw and compute_node.changes() == {}
    compute_node.update_inventories({PCI: lab()})
    assert compute_node.pci_stats != raw
    compute_node.update_inventories({PCI: None})
    assert compute_node.pci_stats == raw and compute_node.changes() == {}


def test_what_is_equal_in_other_words_is_no_change() -> None:
    """A compute agent states its devices each minute: the column changes when the counts do."""
    stated = PCIInventory([gpu("3b", 0, resource_class=None), gpu("5e", 0, resource_class=None)])
    raw = json.dumps(json.loads(dump_pci_pools(device_pools(stated, per_device=True))), indent=3)
    compute_node = record(pci_stats=raw)
    assert compute_node.update_inventories({PCI: stated}) is True
    assert compute_node.changes() == {} and compute_node.to_row()["pci_stats"] == raw
    taken = compute_node.inventories.consume({PCI: GPU})
    assert pools_of(compute_node) == {("2330", 0): 1} and "pci_stats" in compute_node.changes()
    compute_node.inventories.consume(-taken)
    assert compute_node.changes() == {} and compute_node.to_row()["pci_stats"] == raw


def test_what_nova_has_no_word_for_is_left_out_of_the_column() -> None:
    stated = PCIInventory([gpu("3b", class_code="030200", facts={"revision": "a1"})])
    compute_node = agent(stated)
    assert "030200" not in compute_node.pci_stats
    assert compute_node.inventories[PCI] == stated


def test_a_node_made_by_hand_takes_text_or_an_inventory() -> None:
    by_text = ComputeNode(vcpus=8, vcpus_used=0, pci_stats=TEXT)
    assert by_text.pci_stats == TEXT and PCI not in by_text.inventories
    available = ComputeNode(pci_stats=lab())
    assert available.inventories[PCI] == lab()
    with pytest.raises(exceptions.FieldNotSet, match="pci_stats is not set"):
        ComputeNode().pci_stats  # noqa: B018
    with raises_code("InvalidField", match="text, bytes"):
        ComputeNode(pci_stats=POOLS)


# --- the adapter --------------------------------------------------------------------------------


def test_update_inventories_takes_over_devices_and_usage() -> None:
    compute_node = agent()
    live = compute_node.inventories[PCI]
    stated = PCIInventory(lab().devices, usage=[DeviceUse("0000:3b:00.0", "allocated")])
    assert compute_node.update_inventories({ro.resource(PCI): stated}) is True
    assert live == stated and not pending_devices(compute_node)
    assert pools_of(compute_node) == {("2330", 1): 1, ("1572", None): 1, ("154c", None): 2}


def test_the_order_of_devices_says_nothing() -> None:
    compute_node = agent()
    back = PCIInventory(lab().devices[::-1])
    assert compute_node.update_inventories({PCI: back}) is False
    assert compute_node == agent() and live_of(compute_node) == lab()
    assert ComputeNode(pci_stats=back) == ComputeNode(pci_stats=lab())


def test_stated_on_the_live_inventory_it_counts_too() -> None:
    compute_node = agent()
    live = live_of(compute_node)
    live.usage = (DeviceUse("0000:3b:00.0", "claimed"),)
    assert pools_of(compute_node) == {("2330", 1): 1, ("1572", None): 1, ("154c", None): 2}
    live.update(devices=[device for device in live.devices if device.address != "0000:5e:00.0"])
    assert ("2330", 1) not in pools_of(compute_node)
    with pytest.raises(exceptions.InvalidInventory, match="resource_class: got 'PGPU'"):
        live.resource_class = "PGPU"
    before = copy.deepcopy(compute_node)
    for wrong in (
        lambda: live.update(usage=[DeviceUse("0000:99:00.0", "claimed")]),
        lambda: live.update(devices=[*live.devices, live.devices[0]]),
        lambda: live.update(devices=live.devices[1:]),
        lambda: live.rediscover([gpu("5e"), gpu("5e")]),
    ):
        with pytest.raises(exceptions.InvalidInput):
            wrong()
        assert compute_node == before and live == before.inventories[PCI]
    live.update(devices=(), usage=())
    assert not live.can_provide(GPU) and compute_node.changes()["pci_stats"] != TEXT


def test_devices_that_change_while_they_are_allocated() -> None:
    """c.2: removed and changed devices remain until they are released and discovered again."""
    compute_node = agent()
    live = live_of(compute_node)
    taken = compute_node.inventories.consume({PCI: devices("PGPU", 2)})
    values = live.rediscover([gpu("5e", 0), *card(), gpu("aa", 1)])
    assert values.retained == ("0000:3b:00.0", "0000:5e:00.0") and values.added == ("0000:aa:00.0",)
    assert pools_of(compute_node)["2330", 1] == 1
    twin = ComputeNode.obj_from_primitive(compute_node.obj_to_primitive())
    assert twin == compute_node and twin.inventories[PCI] == live
    compute_node.inventories.consume(-taken)
    live.rediscover([gpu("5e", 0), *card(), gpu("aa", 1)])
    assert pools_of(compute_node) == {
        ("2330", 0): 1,  # 5e, which moved
        ("2330", 1): 1,  # the new one
        ("1572", None): 1,
        ("154c", None): 2,
    }


@pytest.mark.law(2)
def test_when_something_else_fails_devices_do_not_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An undo restores allocated, waiting and spent devices, not the sum of two consumptions."""
    compute_node = agent(PCIInventory([gpu("3b", one_time_use=True), gpu("5e")]))
    live = live_of(compute_node)
    taken = compute_node.inventories.consume({PCI: devices("PGPU", 2), "VCPU": 1})
    put_in_state(live, taken[PCI], "allocated")
    live.rediscover([gpu("5e")])
    before = copy.deepcopy(compute_node)

    def fail(self: object, assigned: object) -> None:
        raise RuntimeError

    kind = type(compute_node.inventories["MEMORY_MB"])
    monkeypatch.setattr(kind, "apply", fail)
    for back in (taken[PCI], given_amount(taken[PCI]).with_only(["0000:5e:00.0"])):
        with pytest.raises(RuntimeError):
            compute_node.inventories.consume(ro.Amounts({PCI: -back, "MEMORY_MB": 1}))
        assert compute_node == before and live == before.inventories[PCI]
        assert pending_devices(compute_node) == pending_devices(before)


def given_amount(amount: ro.Amount) -> PCIAmount:
    assert isinstance(amount, PCIAmount)
    return amount


@pytest.mark.law(3)
@pytest.mark.parametrize("seed", some(range(20), 5))
def test_what_is_pending_is_what_was_taken_less_what_was_released(seed: int) -> None:
    """Consumed in some amounts and released in others: the same devices are pending."""
    chance = random.Random(seed)
    compute_node = agent(PCIInventory([gpu(f"{bus:02x}") for bus in range(8)]))
    live, taken = live_of(compute_node), set[str]()
    for _ in range(30):
        if taken and chance.random() < 0.5:
            back = chance.sample(sorted(taken), chance.randint(1, len(taken)))
            live.consume(-live_amount(back))
            taken -= set(back)
        elif live.free:
            taken |= set(live.consume(devices("PGPU", chance.randint(1, live.free))).addresses)
        pending = [
            address for device in pending_devices(compute_node) for address in device.addresses
        ]
        assert sorted(pending) == sorted(taken)
        assert not any(device.gives_back for device in pending_devices(compute_node))
    for address in sorted(taken):
        live.consume(-live_amount([address]))
    assert compute_node == agent(PCIInventory([gpu(f"{bus:02x}") for bus in range(8)]))


def live_amount(addresses: Collection[str]) -> PCIAmount:
    """Return an amount with these devices that another process assigned."""
    placed = [PlacedDevice(0, address, "PGPU") for address in addresses]
    return PCIAmount(devices("PGPU", len(placed)).requests, placed=placed)


# --- laws ---------------------------------------------------------------------------------------


def outcome(inventories: ro.Inventories, amounts: dict[str, Any]) -> object:
    """Return the assigned amounts, or the reasons of the refusal."""
    try:
        return inventories.consume(amounts)
    except ro.CapacityException as refusal:
        return refusal.reasons
    except exceptions.SearchLimitReached as cut_short:
        return str(cut_short)


def located(result: object) -> object:
    """Return the placed amounts: counts differ, for the node adds its own (`_compute_live`)."""
    if not isinstance(result, ro.Amounts):
        return result
    return {name: amount for name, amount in result.by_name() if name in (NUMA, PCI)}


def of_record(inventory: PCIInventory, topology: NUMATopologyInventory | None) -> ComputeNode:
    return ComputeNode(
        hypervisor_hostname="host0",
        vcpus=1000,
        vcpus_used=0,
        memory_mb=1 << 24,
        memory_mb_used=0,
        pci_stats=inventory,
        numa_topology=None
        if topology is None
        else NUMATopologyInventory(
            topology.cells, usage=[used.replace(loose=0) for used in topology.usage]
        ),
    )


def check_decides_alike(compute_node: ComputeNode, request: dict[str, Any]) -> None:
    """Check that a node decides as its inventories do, and that its column follows."""
    before = copy.deepcopy(compute_node)
    model = ro.Inventories(compute_node.get_inventories())
    result = outcome(compute_node.inventories, request)
    assert located(result) == located(outcome(model, request))
    available, other = compute_node.inventories[PCI], model[PCI]
    assert (
        isinstance(available, PCIInventory)
        and isinstance(other, PCIInventory)
        and available == other
    )
    counts = [(pool.product_id, pool.count) for pool in device_pools(other, per_device=True)]
    assert [(p.product_id, p.count) for p in load_pci_pools(compute_node.pci_stats)] == counts
    wire = json.loads(json.dumps(compute_node.obj_to_primitive()))
    assert ComputeNode.obj_from_primitive(wire) == compute_node
    if isinstance(result, ro.Amounts):
        compute_node.inventories.consume(-result)
        if not any(available.device(address).one_time_use for address in addresses(result)):
            assert compute_node == before


@pytest.mark.law(5)
@settings(deadline=None)
@given(pci_questions())
def test_a_node_decides_like_its_devices(question: PCIQuestion) -> None:
    compute_node = of_record(question.inventory(), None)
    check_decides_alike(compute_node, {PCI: question.amount})


@pytest.mark.law(5)
@settings(deadline=None)
@given(joint_questions())
def test_a_node_decides_like_its_cells_and_devices_together(question: JointQuestion) -> None:
    compute_node = of_record(question.inventory(), question.cells)
    check_decides_alike(compute_node, {NUMA: question.topology, PCI: question.amount})
