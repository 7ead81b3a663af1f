"""Rules of devices that were broken once, each with its smallest case."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from resource_objects.exceptions import (
    CapacityException,
    InvalidInput,
    InvalidInventory,
)
from resource_objects.resources import Amounts, Inventories
from resource_objects.resources.integer import IntegerInventory
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, numa
from resource_objects.resources.pci import (
    DEVICES,
    Device,
    DeviceUse,
    PCIAmount,
    PCIInventory,
    PlacedDevice,
    devices,
)
from resource_objects.resources.records import StoredPart
from resource_objects.testing.refusals import raises_code
from tests.resources.pci.hosts import PF, VFS, cells, gpu, host, nic, part, physical, used
from tests.support.pci_devices import put_in_state

GPU = "0000:01:00.0"
PLAIN = Device(PF, "8086", "1572")
ANY_PF = devices("8086:1572", types=["type-PF"], affinity="required")
ANY_VF = devices("8086:154c", affinity="required")


# --- devices and host cells -----------------------------------------------------------------------


def test_cells_are_not_alike_if_what_their_devices_exclude_is_elsewhere() -> None:
    """A PF at cell 0 with its VF at 2, another at 1 with its VF at 3: of 0 and 2 only one."""
    first = [physical(numa_node=0), part(0, numa_node=2)]
    second = [physical(bus=0x5E, numa_node=1), part(0, bus=0x5E, numa_node=3)]
    near = host(first, second).affinity(ANY_PF + ANY_VF, cells(4))
    assert near is not None
    assert not near.is_met({0, 2}) and near.is_met({1, 2})
    assert near.symmetry_key(0) != near.symmetry_key(1) and near.symmetry_key(
        2
    ) != near.symmetry_key(3)


def test_cells_whose_devices_exclude_what_is_elsewhere_are_all_tried() -> None:
    """Cell 3 is full: only 1 and 2 have a PF and a VF of two NICs."""
    first = [physical(numa_node=0), part(0, numa_node=2)]
    second = [physical(bus=0x5E, numa_node=1), part(0, bus=0x5E, numa_node=3)]
    host_cells = [HostCell(n, dedicated=[n]) for n in range(3)] + [HostCell(3)]
    place = Inventories(
        {"NUMA_TOPOLOGY": NUMATopologyInventory(host_cells), "DEVICES": host(first, second)}
    )
    assigned = place.fit({"NUMA_TOPOLOGY": numa(dedicated=2, cells=2), "DEVICES": ANY_PF + ANY_VF})
    assert assigned["NUMA_TOPOLOGY"].host_cells == {1, 2}


# --- all or nothing -------------------------------------------------------------------------------


@pytest.mark.law(2)
@pytest.mark.parametrize("now", [[], [gpu(numa_node=1)]], ids=["gone", "changed"])
def test_releasing_that_fails_half_way_takes_nothing_back(
    now: list[Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Inventories({"DEVICES": host(gpu()), "VCPU": 4})
    taken = place.consume({"DEVICES": devices("PGPU"), "VCPU": 1})
    existing = place["DEVICES"]
    assert isinstance(existing, PCIInventory)
    put_in_state(existing, taken["DEVICES"], "allocated")
    existing.rediscover(now)
    before = place.obj_to_primitive()

    def fails(*_args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(IntegerInventory, "apply", fails)
    with pytest.raises(KeyboardInterrupt):
        place.consume(-taken)
    assert place.obj_to_primitive() == before
    assert existing.states() == {GPU: "allocated"}


# --- a look at the devices ------------------------------------------------------------------------


def test_what_is_allocated_and_contradicts_what_is_there_remains_valid_whenever_it_is_freed() -> (
    None
):
    inventory = host(nic(1))
    taken = inventory.consume(ANY_VF)
    inventory.rediscover([PLAIN])
    inventory.consume(-taken)
    inventory.rediscover([PLAIN])
    assert PCIInventory.obj_from_primitive(inventory.obj_to_primitive()) == host(PLAIN)


def test_a_part_of_a_plain_device_waits_only_if_it_is_specified_for_what() -> None:
    with pytest.raises(InvalidInput, match="expected type-PF"):
        host(PLAIN, part(0), usage=used(vf0="claimed"))
    assert host(PLAIN, part(0), usage=[DeviceUse(VFS[0], "claimed", gone=True)]).free == 0


def test_a_part_that_waits_takes_nothing_from_others_where_it_is_stored() -> None:
    """It is used, and not reserved in addition: the other VF is free."""
    use = DeviceUse(VFS[0], "allocated", gone=True)
    (stored,) = host(nic(2), usage=[use]).parts()
    records = stored.inventory.to_records()
    by_class = {record.resource_class: record for record in records}
    assert (by_class["CUSTOM_PCI_8086_154C"].capacity, by_class["CUSTOM_PCI_8086_154C"].used) == (
        2,
        1,
    )
    units = {"CUSTOM_PCI_8086_154C": (VFS[0],)}
    again = DEVICES.inventory_from_parts([StoredPart(records, stored.inventory.describe(), units)])
    assert again.usage == (DeviceUse(VFS[0], "allocated", gone=True),)
    assert again.state(VFS[1]) == "available"


def test_descriptions_that_contradict_themselves_are_no_inventory() -> None:
    (stored,) = host(nic(1)).parts()
    entries = json.loads(stored.inventory.describe())
    entries[0]["type"] = "type-PCI"
    with pytest.raises(InvalidInventory):
        DEVICES.inventory_from_parts(
            [StoredPart(stored.inventory.to_records(), json.dumps(entries))]
        )


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["[" * 100_000, "[" * 5000 + "]" * 5000], ids=["open", "deep"])
def test_a_tag_nested_deeper_than_can_be_read_is_another_one(value: str) -> None:
    inventory = host(gpu(tags={"a": value}))
    with pytest.raises(CapacityException):
        inventory.fit(devices("PGPU", tags={"a": value[1:]}))
    assert inventory.can_provide(devices("PGPU", tags={"a": value}))


@pytest.mark.parametrize("value", ["\n", "a\t", " \u2003", "\x00", "%0A", "\u00e9", "100%", ""])
def test_invisible_letters_of_tags_are_in_the_text(value: str) -> None:
    amounts = Amounts({"DEVICES": devices("PGPU", tags={"a": value})})
    assert Amounts.parse(str(amounts)) == amounts


def test_codes_of_no_letter_are_no_text() -> None:
    with raises_code("InvalidText", match="UTF-8"):
        PCIAmount.parse("PGPU@requester=%FF")


def test_inventories_and_assigned_devices_have_no_text_form() -> None:
    existing = host(gpu())
    assert str(Inventories({"DEVICES": existing})) == "DEVICES=1*PGPU"
    with raises_code("InvalidText", match="Device objects"):
        Inventories.parse("DEVICES=1*PGPU")
    assigned = existing.fit(devices("PGPU"))
    assert str(assigned) == f"PGPU@on={assigned.addresses[0]}"
    assert repr(-assigned) == f"<PCIAmount -PGPU@on={assigned.addresses[0]}>"
    with raises_code("InvalidText", match="option"):
        PCIAmount.parse(str(assigned))


def test_a_wrong_word_with_a_kind_is_named_itself() -> None:
    with pytest.raises(InvalidInput, match="types: got"):
        devices("10de:2330", types=["pf"])


def test_parts_without_end_are_not_gone_through() -> None:
    with pytest.raises(InvalidInput, match="parts"):
        PlacedDevice(0, GPU, "PGPU", parts=itertools.repeat(GPU))
