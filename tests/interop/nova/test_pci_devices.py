"""``pci_devices``: rows and objects of every version, who has which, and back again."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.exceptions import CannotDowngrade, InvalidInventory
from resource_objects.findings import Finding
from resource_objects.interop.nova import (
    DeviceConsumer,
    NovaDevices,
    dump_pci_devices,
    load_pci_devices,
    parse_device_spec,
)
from resource_objects.interop.nova.rules import NovaRule
from resource_objects.resources.pci import Device, DeviceUse, PCIInventory, devices
from resource_objects.testing.refusals import raises_code
from tests.interop.nova.documents import nova
from tests.interop.nova.pci_documents import INSTANCE, REQUEST, device, function, part, row
from tests.interop.nova.refusals import breaks

PF, VF0, VF1 = "0000:04:00.0", "0000:04:10.0", "0000:04:10.1"
GPU = "0000:3b:00.0"


def card(pf: str, vf0: str, vf1: str) -> list[dict[str, Any]]:
    """Return a network card of two virtual functions in some states."""
    return [function(PF, pf), part(PF, VF0, vf0), part(PF, VF1, vf1)]


def states(result: NovaDevices) -> list[str]:
    """Return the states that this library computes, by address."""
    inventory = PCIInventory(result.devices, usage=result.usage)
    return list(inventory.states().values())


# --- the fields of a row --------------------------------------------------------------------------


def test_a_row_says_what_a_device_is() -> None:
    info = {
        "parent_ifname": "enp4s0",
        "managed": "true",
        "live_migratable": "true",
        "mac_address": "3c:ec:ef:01:02:03",
        "capabilities": '{"network": ["rx"]}',
    }
    result = load_pci_devices([part(PF, VF0, extra_info=json.dumps(info), numa_node=1)])
    assert result.devices == (
        Device(
            VF0,
            "8086",
            "154c",
            "type-VF",
            parent=PF,
            numa_node=1,
            tags={"parent_ifname": "enp4s0", "managed": "true"},
            live_migratable=True,
            facts={"mac_address": "3c:ec:ef:01:02:03", "capabilities": '{"network": ["rx"]}'},
        ),
    )
    assert (result.usage, result.consumers, result.skipped, result.findings) == ((), {}, (), ())


def test_who_has_a_device_is_with_it() -> None:
    result = load_pci_devices([row(GPU, "allocated"), row("0000:3c:00.0", "claimed")])
    assert result.usage == (DeviceUse(GPU, "allocated"), DeviceUse("0000:3c:00.0", "claimed"))
    assert result.consumers[GPU] == DeviceConsumer(INSTANCE, REQUEST)
    assert result.consumers.keys() == {GPU, "0000:3c:00.0"}


def test_what_only_a_row_has_is_stored_apart() -> None:
    stored = load_pci_devices([row(GPU)]).rows[GPU]
    assert {stored["id"], stored["label"], stored["compute_node_id"]} == {7, "label_10de_2330", 1}


def test_digits_of_ids_and_addresses_are_stored_in_lower_case() -> None:
    (result,) = load_pci_devices([row("0000:3B:00.0", vendor_id="10DE")]).devices
    assert (result.address, result.vendor_id) == (GPU, "10de")


@pytest.mark.parametrize("value", [["rx", "tx"], {"sriov": {}}, 3, True, None], ids=repr)
def test_what_is_no_text_in_extra_info_is_json(value: Any) -> None:
    (result,) = load_pci_devices([row(GPU, extra_info=json.dumps({"fact": value}))]).devices
    assert json.loads(result.facts["fact"]) == value


@pytest.mark.parametrize("value", [None, "null", "{}", {}], ids=repr)
def test_no_extra_info_is_nothing(value: Any) -> None:
    assert load_pci_devices([row(GPU, extra_info=value)]).devices[0].facts == {}


@pytest.mark.parametrize("kind", ["type-PCI", "type-PF"])
def test_what_is_no_part_keeps_the_word_of_one_as_a_fact(kind: str) -> None:
    info = json.dumps({"phys_function": PF})
    (result,) = load_pci_devices([row(GPU, dev_type=kind, extra_info=info)]).devices
    assert (result.parent, dict(result.facts)) == (None, {"phys_function": PF})


# --- states (c.1) ---------------------------------------------------------------------------------

CONSISTENT = [
    ("available", "available", "available"),
    ("claimed", "unclaimable", "unclaimable"),
    ("allocated", "unavailable", "unavailable"),
    ("unclaimable", "claimed", "available"),
    ("unavailable", "allocated", "available"),
    ("unavailable", "allocated", "claimed"),
]


@pytest.mark.parametrize("values", CONSISTENT, ids="-".join)
def test_states_of_relatives_follow_from_who_has_which(values: tuple[str, str, str]) -> None:
    result = load_pci_devices(card(*values))
    assert [use.state for use in result.usage] == [
        s for s in values if s in ("claimed", "allocated")
    ]
    assert states(result) == list(values)
    assert result.findings == ()
    assert [item["status"] for item in dump_pci_devices(result)] == list(values)


def test_a_function_remains_unavailable_after_the_part_that_made_it_so_was_freed() -> None:
    """Nova does not look again which of the two it is; that is no contradiction."""
    result = load_pci_devices(card("unavailable", "claimed", "available"))
    assert states(result)[0] == "unclaimable"
    assert (result.findings, dump_pci_devices(result)[0]["status"]) == ((), "unavailable")


@pytest.mark.parametrize(
    ("values", "findings"),
    [
        (("available", "unavailable", "available"), [(VF0, "unavailable", "available")]),
        (("unclaimable", "available", "available"), [(PF, "unclaimable", "available")]),
        (("available", "allocated", "available"), [(PF, "available", "unavailable")]),
        (
            ("claimed", "available", "unclaimable"),
            [(VF0, "available", "unclaimable")],
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value[0], str) else "",
)
def test_a_state_that_does_not_follow_is_reported_and_not_believed(
    values: tuple[str, str, str], findings: list[tuple[str, str, str]]
) -> None:
    result = load_pci_devices(card(*values))
    assert result.findings == tuple(
        Finding(address, "contradiction", f"{status}, expected {state}")
        for address, status, state in findings
    )
    assert len(result.devices) == 3
    follows = {address: state for address, _, state in findings}
    expected = [
        follows.get(item.address, s) for item, s in zip(result.devices, values, strict=True)
    ]
    assert states(result) == expected


def test_a_function_and_a_part_of_it_that_are_both_allocated_are_reported() -> None:
    result = load_pci_devices(card("allocated", "allocated", "unavailable"))
    assert [(finding.subject, finding.detail) for finding in result.findings] == [
        (PF, f"allocated, expected not: {VF0} is allocated too"),
        (VF0, f"allocated, expected not: {PF} is allocated too"),
    ]
    assert len(result.usage) == 2


def test_allocated_by_no_consumer_and_free_with_an_owner_are_reported() -> None:
    rows = [row(GPU, "claimed", instance_uuid=None), row(VF0, instance_uuid=INSTANCE)]
    result = load_pci_devices(rows)
    assert [finding.detail for finding in result.findings] == [
        "claimed without a consumer, expected a consumer",
        f"available with the consumer {INSTANCE}, expected no consumer",
    ]
    assert result.consumers == {GPU: DeviceConsumer(None, REQUEST)}


@pytest.mark.parametrize("state", ["removed", "deleted"])
def test_what_was_removed_is_left_out_and_reported(state: str) -> None:
    result = load_pci_devices([row(GPU, state), row(VF0)])
    assert [device.address for device in result.devices] == [VF0]
    assert result.skipped == (Finding(GPU, "skipped", "removed"),)


@pytest.mark.parametrize("deleted", [7, True])
def test_a_row_that_is_deleted_is_left_out_and_reported(deleted: Any) -> None:
    result = load_pci_devices([row(GPU, deleted=deleted), row(GPU)])
    assert (len(result.devices), result.skipped) == (1, (Finding(GPU, "skipped", "deleted"),))


@pytest.mark.parametrize("address", ["10000:3b:00.0", "0000:3b:20.0", "3b:00.0", "gpu"])
def test_c2_an_address_that_cannot_be_read_leaves_out_that_device_only(address: str) -> None:
    """c.2, discovery: an address such as one of a 32-bit domain skips that device only."""
    result = load_pci_devices([row(address), row(GPU)])
    assert [device.address for device in result.devices] == [GPU]
    (skipped,) = result.skipped
    assert skipped.subject == address
    assert "PCI address" in skipped.detail


def test_so_does_an_address_of_its_parent() -> None:
    result = load_pci_devices([part("10000:04:00.0", VF0), row(GPU)])
    assert [skipped.subject for skipped in result.skipped] == [VF0]


def test_a_part_of_what_cannot_be_split_any_more_is_left_out_unless_it_is_allocated() -> None:
    """c.2, changed type: a function that lost SR-IOV."""
    rows = card("available", "allocated", "available")
    result = load_pci_devices([{**rows[0], "dev_type": "type-PCI"}, *rows[1:]])
    assert result.skipped == (Finding(VF1, "skipped", f"its parent {PF} is type-PCI"),)
    assert result.usage == (DeviceUse(VF0, "allocated", gone=True),)
    inventory = PCIInventory(result.devices, usage=result.usage)
    assert inventory.states() == {PF: "unavailable", VF0: "allocated"}


# --- with device_spec (c.2, c.5) ------------------------------------------------------------------


def test_devices_have_the_tags_class_and_traits_of_their_entry() -> None:
    specs = parse_device_spec(
        {"vendor_id": "10de", "resource_class": "gpu", "traits": "big", "colour": "red"}
    )
    info = json.dumps({"parent_ifname": "enp4s0", "managed": "true"})
    (result,) = load_pci_devices([row(GPU, extra_info=info)], specs=specs).devices
    assert (result.resource_class, result.traits) == ("CUSTOM_GPU", frozenset({"CUSTOM_BIG"}))
    assert result.tags == {"colour": "red", "parent_ifname": "enp4s0"}


def test_c3_a_free_device_that_no_entry_is_about_is_left_out() -> None:
    """c.3, no spec matches: the device is not in any pool."""
    result = load_pci_devices([row(GPU), *card(*CONSISTENT[0])], specs=parse_device_spec({}))
    assert len(result.devices) == 4
    result = load_pci_devices([row(GPU), row(VF0)], specs=parse_device_spec({"address": GPU}))
    assert result.skipped == (Finding(VF0, "skipped", "no entry of device_spec matches it"),)


def test_c2_an_allocated_device_that_no_entry_is_about_is_gone_when_it_is_free() -> None:
    """c.2, gone device: if in use, remembered and removed when freed."""
    result = load_pci_devices([row(GPU, "allocated"), row(VF0)], specs=())
    assert result.usage == (DeviceUse(GPU, "allocated", gone=True),)
    assert [skipped.subject for skipped in result.skipped] == [VF0]


def test_what_an_entry_forbids_is_an_error() -> None:
    specs = parse_device_spec({"one_time_use": "true"}, report_in_placement=True)
    with breaks(NovaRule.ONE_TIME_USE_OF_PART):
        load_pci_devices([part(PF, VF0)], specs=specs)


def test_an_inventory_can_be_made_and_taken_from_and_written_again() -> None:
    result = load_pci_devices(card("available", "available", "available"))
    inventory = PCIInventory(result.devices, usage=result.usage)
    taken = inventory.consume(devices("8086:154c"))
    (address,) = taken.addresses
    consumers = {address: DeviceConsumer(INSTANCE, "r")}
    after = result._replace(usage=inventory.usage, consumers=consumers)
    rows = {item["address"]: item for item in dump_pci_devices(after)}
    assert rows[address]["status"] == "claimed"
    assert (rows[address]["instance_uuid"], rows[address]["request_id"]) == (INSTANCE, "r")
    assert rows[PF]["status"] == "unclaimable"


# --- there and back -------------------------------------------------------------------------------


def read(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with their JSON parsed."""
    return [{**item, "extra_info": json.loads(item["extra_info"])} for item in rows]


@pytest.mark.parametrize("values", CONSISTENT, ids="-".join)
def test_rows_are_written_as_they_were(values: tuple[str, str, str]) -> None:
    info = json.dumps({"parent_ifname": "enp4s0", "live_migratable": "false", "rp_uuid": "x"})
    when = datetime.datetime(2024, 5, 6, tzinfo=datetime.UTC)
    rows = [{**item, "created_at": when, "extra_info": info} for item in card(*values)]
    result = load_pci_devices(rows)
    assert read(dump_pci_devices(result)) == read(rows)
    assert load_pci_devices(dump_pci_devices(result)) == result


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("minor", range(8))
def test_objects_of_any_version_are_read_and_written_in_the_newest(
    minor: int, as_list: bool
) -> None:
    rows = [row(GPU, "allocated"), *card(*CONSISTENT[0])]
    value: Any = [device(minor, item) for item in rows]
    result = load_pci_devices(nova("PciDeviceList", "1.3", objects=value) if as_list else value)
    again = dump_pci_devices(result, versioned=True)
    assert {item["nova_object.version"] for item in again} == {"1.7"}
    if minor == 7:
        datas = [[item["nova_object.data"] for item in objects] for objects in (again, value)]
        assert datas[0] == datas[1]
    parents = [None, None, PF, PF]
    assert [device.parent for device in result.devices] == parents
    assert load_pci_devices(json.dumps(again)) == result


def test_times_are_text_in_objects() -> None:
    when = datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)
    (result,) = dump_pci_devices(load_pci_devices([row(GPU, created_at=when)]), versioned=True)
    assert result["nova_object.data"]["created_at"] == "2024-05-06T07:08:09Z"


@pytest.mark.parametrize(
    "nothing", [None, "[]", "null", [], nova("PciDeviceList", "1.0", objects=[])]
)
def test_no_rows_are_no_devices(nothing: Any) -> None:
    assert load_pci_devices(nothing) == NovaDevices(())
    assert dump_pci_devices(NovaDevices(())) == []


def test_devices_that_never_were_in_nova_are_rows_too() -> None:
    (values,) = dump_pci_devices(NovaDevices((Device(GPU, "10de", "2330", numa_node=1),)))
    assert values == {
        "dev_id": "pci_0000_3b_00_0",
        "label": "label_10de_2330",
        "address": GPU,
        "vendor_id": "10de",
        "product_id": "2330",
        "dev_type": "type-PCI",
        "status": "available",
        "instance_uuid": None,
        "request_id": None,
        "extra_info": "{}",
        "numa_node": 1,
        "parent_addr": None,
    }


@given(
    st.lists(
        st.sampled_from(["available", "claimed", "allocated", "unclaimable", "unavailable"]),
        min_size=3,
        max_size=3,
    )
)
def test_whatever_states_rows_are_in_none_is_lost(values: list[str]) -> None:
    result = load_pci_devices(card(*values))
    assert len(result.devices) == 3
    assert {use.state for use in result.usage} == {*values} & {"claimed", "allocated"}
    again = [item["status"] for item in dump_pci_devices(result)]
    assert result.findings or again == values
    if not any("allocated too" in finding.detail for finding in result.findings):
        PCIInventory(result.devices, usage=result.usage)


# --- values without a form in Nova ----------------------------------------------------------------


def test_a_device_that_is_spent_has_no_word_in_nova() -> None:
    spent = NovaDevices((Device(GPU, "10de", "2330"),), (DeviceUse(GPU, "spent"),))
    with pytest.raises(CannotDowngrade, match="the status spent"):
        dump_pci_devices(spent)
    assert dump_pci_devices(spent, leave_out=["spent"])[0]["status"] == "available"


def test_what_something_else_uses_up_is_unavailable() -> None:
    used = NovaDevices((Device(GPU, "10de", "2330"),), (DeviceUse(GPU, "unavailable"),))
    assert dump_pci_devices(used)[0]["status"] == "unavailable"


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(InvalidInventory, match="NovaDevices"):
        dump_pci_devices([])  # type: ignore[arg-type]
    with raises_code("InvalidField", match="leave_out"):
        dump_pci_devices(NovaDevices(()), leave_out=["status"])


# --- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("{", "pci_devices: got '{', expected JSON"),
        (5, "pci_devices: got 5, expected a list"),
        ([5], "pci_devices[0]: got 5, expected an object"),
        ({"objects": []}, "pci_devices.nova_object.name: got None"),
        ([row(GPU, address=None)], "pci_devices[0].address: got None"),
        ([row(GPU, "lost")], "pci_devices[0].status: got 'lost'"),
        ([row(GPU, vendor_id="8O86")], "pci_devices[0]: Device.vendor_id: got '8o86'"),
        ([row(GPU, dev_type="gpu")], "pci_devices[0]: Device.type: got 'gpu'"),
        ([row(GPU, dev_type="type-VF")], "pci_devices[0]: parent of 0000:3b:00.0"),
        ([row(GPU, parent_addr=PF)], "pci_devices[0]: parent of 0000:3b:00.0"),
        ([row(GPU, numa_node=-1)], "pci_devices[0].numa_node: got -1"),
        ([row(GPU, extra_info="[]")], "pci_devices[0].extra_info: got []"),
        ([row(GPU, extra_info="{")], "pci_devices[0].extra_info: got '{', expected JSON"),
        ([row(GPU, extra_info={"a": {1}})], "pci_devices[0].extra_info.a"),
        ([row(GPU), row(GPU, instance="x")], "pci_devices[1].instance: got 'x'"),
        ([row(GPU), row(GPU)], "pci_devices.address: got ['0000:3b:00.0']"),
        ([row(GPU, compute_node_id=[1])], "pci_devices[0].compute_node_id: got [1]"),
        ([row(GPU, id="7")], "pci_devices[0].id: got '7'"),
        ([row(GPU), row(VF0, compute_node_id=2)], "pci_devices.compute_node_id: got ['1', '2']"),
        ([device(8, row(GPU))], "pci_devices[0].nova_object.version: got '1.8'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_reported_with_its_place(source: Any, place: str) -> None:
    with raises_code("InvalidPrimitive") as caught:
        load_pci_devices(source)
    assert str(caught.value).startswith(place)
