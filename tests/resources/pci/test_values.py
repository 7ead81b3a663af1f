"""Devices, requests and amounts: their text, their counts and their wire forms."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given

from resource_objects import base, exceptions
from resource_objects.interop.nova.pci_devices import DevicePool, device_pools
from resource_objects.resources import Amounts
from resource_objects.resources.pci import (
    DEVICES,
    Device,
    DeviceRequest,
    DeviceSpec,
    DeviceUse,
    PCIAmount,
    PCIInventory,
    PCIResource,
    PlacedDevice,
    devices,
)
from resource_objects.resources.records import AmountRecord
from tests.resources.pci.hosts import PF, VFS, gpu, how, nic, part
from tests.support.pci_strategies import (
    PCIQuestion,
    pci_amounts,
    pci_devices,
    pci_questions,
    pci_usages,
)

# --- devices --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("0000:3B:1F.7", "0000:3b:1f.7"),
        ("0:0:0.0", "0000:00:00.0"),
        ("ffff:ff:1f.7", "ffff:ff:1f.7"),
        ("0000ab:1:2.3", "00ab:01:02.3"),
    ],
)
def test_addresses_are_specified_in_many_ways_and_stored_in_one(values: str, stored: str) -> None:
    assert Device(values, "10de", "2330").address == stored


def test_a_device_is_plain_and_of_its_own_class_unless_reported_otherwise() -> None:
    device = Device("0000:3b:00.0", "10DE", "1Db4")
    assert (device.vendor_id, device.product_id) == ("10de", "1db4")
    assert (device.type, device.resource_class) == ("type-PCI", "CUSTOM_PCI_10DE_1DB4")
    assert (device.numa_node, device.parent, device.live_migratable) == (None, None, None)
    assert not (device.tags or device.traits or device.facts)
    assert not (device.remote_managed or device.one_time_use)
    assert str(device) == "0000:3b:00.0 10de:1db4 type-PCI"


@pytest.mark.parametrize(
    ("kind", "can_be_split", "is_part"),
    [
        ("type-PCI", False, False),
        ("type-PF", True, False),
        ("type-VF", False, True),
        ("vdpa", False, True),
    ],
)
def test_a_type_says_whether_it_can_be_split_or_was(
    kind: str, can_be_split: bool, is_part: bool
) -> None:
    device = Device("0000:3b:02.0", "8086", "1572", kind, parent=PF if is_part else None)
    assert (device.can_be_split, device.is_part) == (can_be_split, is_part)


def test_facts_are_carried_and_tell_devices_apart() -> None:
    plain = gpu(facts={"mac_address": "00:11:22:33:44:55"})
    assert plain.facts["mac_address"] == "00:11:22:33:44:55"
    assert plain != gpu() and plain.replace(facts={}) == gpu()


def test_usage_is_allocated_by_another_consumer_or_used_up() -> None:
    allocated = {
        state: DeviceUse(PF, state).is_held
        for state in ("claimed", "allocated", "spent", "unavailable")
    }
    assert allocated == {"claimed": True, "allocated": True, "spent": False, "unavailable": False}
    assert DeviceUse(PF, "allocated", gone=True).is_held


# --- requests, in plain words ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "spec"),
    [
        (devices("PGPU"), DeviceSpec(resource_class="PGPU")),
        (devices("10de:2330"), DeviceSpec(vendor_id="10de", product_id="2330")),
        (devices("10DE:*"), DeviceSpec(vendor_id="10de")),
        (devices("*:2330"), DeviceSpec(product_id="2330")),
        (devices("*:*"), DeviceSpec()),
        (
            devices("8086:154c", types=["type-VF"], tags={"net": "red"}),
            DeviceSpec(vendor_id="8086", product_id="154c", types=["type-VF"], tags={"net": "red"}),
        ),
        (devices(DeviceSpec(), traits=["CUSTOM_A"]), DeviceSpec(traits=["CUSTOM_A"])),
        (devices(DeviceSpec(address=PF)), DeviceSpec(address="0000:3B:00.0")),
    ],
    ids=str,
)
def test_a_kind_is_specified_in_plain_words(amount: PCIAmount, spec: DeviceSpec) -> None:
    assert amount == PCIAmount([DeviceRequest([spec])])


def test_alternatives_count_and_names_are_specified_too() -> None:
    amount = devices(
        ["PGPU", "10de:*"], 3, affinity="required", requester="r", alias="a", request_id="i"
    )
    (request,) = amount.requests
    assert (request.count, request.affinity, len(request.specs)) == (3, "required", 2)
    assert (request.requester, request.alias, request.request_id) == ("r", "a", "i")
    assert request.resource_class is None, "the alternatives differ"
    assert devices(iter(["PGPU", "PGPU"])).requests[0].resource_class == "PGPU"


def test_legacy_is_how_near_devices_are_unless_reported_otherwise() -> None:
    assert devices("PGPU").requests[0].affinity == "legacy"


def test_amounts_add_up_request_by_request() -> None:
    item, other = devices("PGPU", 2), devices("8086:154c")
    assert (item + other).requests == (*item.requests, *other.requests)
    assert (item + other).count == 3
    assert (item + other) != (other + item), "requests have their place"


def test_the_resource_makes_the_same_amounts() -> None:
    assert DEVICES.make_amount("PGPU", 2) == devices("PGPU", 2)
    assert PCIResource.make_amount("PGPU", affinity="socket") == devices("PGPU", affinity="socket")
    assert Amounts(DEVICES=devices("PGPU"))["DEVICES"] == devices("PGPU")


def test_the_resource_makes_inventories() -> None:
    created = DEVICES.make_inventory(nic())
    assert created == PCIInventory(nic()) and created.resource_class == "DEVICES"
    assert PCIResource.make_inventory(nic()) == PCIInventory(nic())


# --- their counts (D1) ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "located"),
    [
        (devices("PGPU", 2), {"PGPU": 2}),
        (devices("PGPU") + devices("PGPU", 3), {"PGPU": 4}),
        (devices("PGPU") + devices("VGPU"), {"PGPU": 1, "VGPU": 1}),
        (devices("10de:2330"), {}),
        (devices(["PGPU", "VGPU"]), {}),
        (devices("10de:2330") + devices("PGPU"), {"PGPU": 1}),
    ],
    ids=str,
)
def test_what_is_located_is_counts_of_classes_that_are_specified(
    requested: PCIAmount, located: dict[str, int]
) -> None:
    assert requested.placed_counts == located
    assert requested.is_placed, "it says which, even where the class is not known before"


def test_what_is_assigned_stands_for_the_classes_of_its_devices() -> None:
    request = devices(["PGPU", "8086:154c"], 2)
    assigned = PCIInventory([gpu(), part()]).fit(request)
    assert assigned.placed_counts == {"PGPU": 1, "CUSTOM_PCI_8086_154C": 1}
    assert set(assigned.to_records("DEVICES")) == {
        AmountRecord("PGPU", 1),
        AmountRecord("CUSTOM_PCI_8086_154C", 1),
    }
    assert set((-assigned).to_records("DEVICES")) == {
        AmountRecord("PGPU", -1),
        AmountRecord("CUSTOM_PCI_8086_154C", -1),
    }


@pytest.mark.law(1)
@given(pci_questions())
def test_what_was_said_to_be_located_is_what_is_taken(question: PCIQuestion) -> None:
    inventory = question.inventory()
    try:
        assigned = inventory.fit(question.amount, **how(question))
    except exceptions.CapacityException:
        return
    available = question.amount.placed_counts
    assert sum(assigned.placed_counts.values()) == question.amount.count
    assert all(assigned.placed_counts.get(name, 0) >= count for name, count in available.items())


# --- which they are -------------------------------------------------------------------------------

ASSIGNED = PCIAmount(
    [
        DeviceRequest([DeviceSpec(resource_class="PGPU")], 2, requester="flavor", alias="gpu"),
        DeviceRequest([DeviceSpec(types=["type-PF"])], request_id="port-1"),
    ],
    placed=[
        PlacedDevice(1, PF, "CUSTOM_PCI_8086_1572", parts=VFS[:2]),
        PlacedDevice(0, "0000:02:00.0", "PGPU", numa_node=0),
        PlacedDevice(0, "0000:01:00.0", "PGPU", numa_node=0),
    ],
)


def test_devices_are_identified_by_request_and_by_address() -> None:
    assert ASSIGNED.addresses == ("0000:01:00.0", "0000:02:00.0", PF)
    assert ASSIGNED.of(0) == ASSIGNED.of("flavor") == ASSIGNED.of("gpu")
    assert ASSIGNED.of(0) == ("0000:01:00.0", "0000:02:00.0")
    assert ASSIGNED.of("port-1") == ASSIGNED.of(1) == (PF,)


def test_a_function_that_can_be_split_takes_its_parts() -> None:
    assert ASSIGNED.placed[2].units == (PF, *VFS[:2])
    assert ASSIGNED.placed[0].units == ("0000:01:00.0",)


def test_what_is_released_is_the_negative_of_what_is_assigned() -> None:
    back = -ASSIGNED
    assert back.is_negative and not ASSIGNED.is_negative
    assert -back == ASSIGNED != back and hash(-back) == hash(ASSIGNED)
    assert not ASSIGNED.is_zero and ASSIGNED.is_assigned
    assert not ASSIGNED.unassigned().is_assigned
    assert back.unassigned() == ASSIGNED.unassigned()


# --- wire forms -----------------------------------------------------------------------------------


def comes_back(value: base.ResourceObject) -> None:
    """Check that a value is the same from the wire, from pickle and as a copy."""
    for again in (
        type(value).obj_from_primitive(value.obj_to_primitive()),
        pickle.loads(pickle.dumps(value)),
        copy.deepcopy(value),
    ):
        assert again == value and hash(again) == hash(value) and repr(again) == repr(value)


@pytest.mark.law(10)
@given(pci_amounts())
def test_amounts_return_from_the_wire_and_from_pickle(amount: PCIAmount) -> None:
    comes_back(amount)
    for request in amount.requests:
        comes_back(request)


@pytest.mark.law(10)
@given(pci_devices())
def test_devices_and_pools_return_from_the_wire_and_from_pickle(
    given_devices: tuple[Device, ...],
) -> None:
    for device in given_devices:
        comes_back(device)
    for pool in device_pools(PCIInventory(given_devices)):
        comes_back(pool)


@pytest.mark.law(10)
@given(pci_questions())
def test_assigned_amounts_return_from_the_wire_and_from_pickle(question: PCIQuestion) -> None:
    try:
        assigned = question.inventory().fit(question.amount, **how(question))
    except exceptions.CapacityException:
        return
    for amount in (assigned, -assigned):
        comes_back(amount)


@pytest.mark.law(10)
@given(pci_usages())
def test_inventories_return_from_the_wire_and_from_pickle(
    given_both: tuple[tuple[Device, ...], tuple[DeviceUse, ...]],
) -> None:
    inventory = PCIInventory(given_both[0], usage=given_both[1])
    for again in (
        PCIInventory.obj_from_primitive(inventory.obj_to_primitive()),
        pickle.loads(pickle.dumps(inventory)),
        copy.deepcopy(inventory),
    ):
        assert again == inventory
        assert again.states() == inventory.states() and again.free == inventory.free


def test_values_are_frozen() -> None:
    for frozen, field in [
        (gpu(), "numa_node"),
        (DeviceUse(PF, "claimed"), "state"),
        (DeviceSpec(), "types"),
        (DeviceRequest([DeviceSpec()]), "count"),
        (ASSIGNED, "placed"),
        (ASSIGNED.placed[0], "parts"),
        (DevicePool("10de", "2330", 1), "count"),
    ]:
        with pytest.raises(exceptions.FrozenValue):
            setattr(frozen, field, [])


@pytest.mark.parametrize(
    ("value", "field", "empty", "used"),
    [
        (DeviceUse(PF, "claimed"), "then", None, {}),
        (PCIInventory([gpu()]), "pools", [], [{"count": 1}]),
    ],
)
def test_wire_forms_with_a_removed_field_are_read_if_it_is_empty(
    value: DeviceUse | PCIInventory, field: str, empty: object, used: object
) -> None:
    created = value.obj_to_primitive()
    data = created["versioned_object.data"]
    assert (
        type(value).obj_from_primitive({**created, "versioned_object.data": {**data, field: empty}})
        == value
    )
    with pytest.raises(exceptions.InvalidInput, match=f"no \\['{field}'\\]"):
        type(value).obj_from_primitive({**created, "versioned_object.data": {**data, field: used}})
