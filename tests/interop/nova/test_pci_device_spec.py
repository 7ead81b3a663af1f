"""``[pci] device_spec``: which devices are for guests, and what they are called."""

from __future__ import annotations

import json
from typing import Any

import pytest

from resource_objects.exceptions import InvalidInput
from resource_objects.host import HostSettings, match_rules
from resource_objects.host.machine import DeviceKind, NetworkInterface, PCIDevice
from resource_objects.interop.nova import NovaDeviceRule, parse_device_spec, tagged_device
from resource_objects.interop.nova.rules import NovaRule
from resource_objects.resources.pci import Device
from resource_objects.testing.refusals import raises_code
from tests.interop.nova.refusals import breaks

PF = Device("0000:0a:00.0", "8086", "1563", "type-PF")
VF = Device("0000:0a:10.1", "8086", "154c", "type-VF", parent=PF.address)
NIC = Device("0000:0a:00.1", "8086", "1563")
GPU = Device("0001:3b:1f.7", "10de", "2330")
SERIAL = json.dumps({"vpd": {"card_serial_number": "MT2113X00000"}})


def about(device: Device, *entries: Any, **values: Any) -> bool:
    """Return whether one of some entries is about a device."""
    return tagged_device(device, parse_device_spec(entries), **values) is not None


def tagged(device: Device, *entries: Any, report: bool = False, **values: Any) -> Device:
    """Return a device as entries call it; one is about it."""
    result = tagged_device(device, parse_device_spec(entries, report_in_placement=report), **values)
    assert result is not None
    return result


def refused(rule: NovaRule, entry: Any, **values: Any) -> str:
    """Return the message with which an entry is refused, as exactly this kind."""
    with pytest.raises(InvalidInput) as caught:
        parse_device_spec(entry, **values)
    assert caught.value.rule is rule, caught.value
    return str(caught.value)


# --- vendor and product (c.5) ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "is_so"),
    [
        ({}, True),
        ({"vendor_id": "10de"}, True),
        ({"vendor_id": " 10DE "}, True),
        ({"vendor_id": "0x10de", "product_id": "2330"}, True),
        ({"vendor_id": "*", "product_id": "*"}, True),
        ({"vendor_id": "8086"}, False),
        ({"vendor_id": "10de", "product_id": "2331"}, False),
    ],
    ids=repr,
)
def test_c5_vendor_and_product_are_numbers_or_any(values: dict[str, str], is_so: bool) -> None:
    assert about(GPU, values) is is_so


def test_c5_short_numbers_are_filled_up() -> None:
    (entry,) = parse_device_spec({"vendor_id": "de", "product_id": "0"})
    assert (entry.vendor_id, entry.product_id) == ("00de", "0000")


@pytest.mark.parametrize(
    "values", ["10000", "xyz", "", "-1", "+1", "1_0", "0x", "9" * 5000, 8086, None]
)
def test_c5_an_id_above_ffff_or_that_is_none_is_refused(values: Any) -> None:
    refused(NovaRule.INVALID_SPEC_ID, {"vendor_id": values})
    refused(NovaRule.INVALID_SPEC_ID, {"product_id": values})


# --- addresses (c.5) ------------------------------------------------------------------------------

GLOBS = [
    ("*:0a:00.*", [PF, NIC]),
    ("0000:0A:00.1", [NIC]),
    ("0a:00.0", [PF]),
    (":00.", [PF, NIC]),
    ("00", [PF, NIC]),
    ("0a:10", [VF]),
    ("a:0.0", [PF]),
    (".1", [VF, NIC]),
    (".*", [PF, VF, NIC, GPU]),
    ("*:*:*.*", [PF, VF, NIC, GPU]),
    ("", [PF, VF, NIC, GPU]),
    ("1:*:*.*", [GPU]),
    ("::1f.7", [GPU]),
    ("0002:*:*.*", []),
]


@pytest.mark.parametrize(("glob", "expected"), GLOBS, ids=[repr(glob) for glob, _ in GLOBS])
def test_c5_an_address_in_text_is_a_glob_field_by_field(glob: str, expected: list[Device]) -> None:
    """c.5: missing leading fields mean any."""
    results = [item for item in (PF, VF, NIC, GPU) if about(item, {"address": glob})]
    assert results == expected


@pytest.mark.parametrize(
    "glob", ["10000::", ":100:", "0000:0a:20.0", ".8", "g", "0*", "0000:0a:00:1.0", "0.1.2", "0x1"]
)
def test_c5_each_field_is_checked(glob: str) -> None:
    """c.5: domain <= FFFF, bus <= FF, slot <= 1F, function <= 7."""
    refused(NovaRule.INVALID_SPEC_ADDRESS, {"address": glob})


EXPRESSIONS: list[tuple[dict[str, str], list[Device]]] = [
    ({}, [PF, VF, NIC, GPU]),
    ({"bus": "0a"}, [PF, VF, NIC]),
    ({"slot": "00", "function": "[0-2]"}, [PF, NIC]),
    ({"domain": ".*1"}, [GPU]),
    ({"function": "1|7"}, [VF, NIC, GPU]),
    ({"bus": "0A"}, []),
]


@pytest.mark.parametrize(("values", "expected"), EXPRESSIONS, ids=repr)
def test_c5_an_address_that_is_an_object_is_of_regular_expressions(
    values: dict[str, str], expected: list[Device]
) -> None:
    assert [item for item in (PF, VF, NIC, GPU) if about(item, {"address": values})] == expected


@pytest.mark.parametrize("bus", ["1f", "10"])
def test_f1_14_an_expression_matches_the_whole_field(bus: str) -> None:
    """f.1 #14: in Nova bus "1" matches 1f and 10."""
    device = Device(f"0000:{bus}:00.0", "10de", "2330")
    assert not about(device, {"address": {"bus": "1"}})
    assert about(device, {"address": {"bus": "1."}})


@pytest.mark.parametrize(
    "values",
    [
        *[5, [], True, {"bus": "("}, {"bus": 5}, {"bus": None}, {"func": "0"}, {5: "0"}],
        *[{"bus": "x" * 1001}, {"bus": "(" * 900 + ")" * 900}, {"bus": "a{99999999999}"}],
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_address_is_refused(values: Any) -> None:
    refused(NovaRule.INVALID_SPEC_ADDRESS, {"address": values})


SINGLE = [
    PF.address,
    {"domain": "0000", "bus": "0a", "slot": "00", "function": "0"},
]


@pytest.mark.parametrize("address", SINGLE, ids=repr)
def test_c5_a_single_address_of_a_physical_function_is_that_of_its_parts(address: Any) -> None:
    """c.5: matches its VFs too, by parent_addr."""
    assert about(VF, {"address": address})
    assert about(PF, {"address": address})
    assert not about(NIC, {"address": address})


@pytest.mark.parametrize("address", ["*:0a:00.0", {"bus": "0a", "slot": "00"}], ids=repr)
def test_c5_several_addresses_are_not(address: Any) -> None:
    assert not about(VF, {"address": address})


# --- network interfaces (c.5) ---------------------------------------------------------------------

ADDRESSES = {"enp10s0": PF.address, "enp10s1": NIC.address}
ENTRY = {"devname": "enp10s0", "physical_network": "red"}


@pytest.mark.parametrize("devnames", [ADDRESSES, ADDRESSES.get], ids=["mapping", "function"])
def test_c5_devname_is_the_address_it_stands_for(devnames: Any) -> None:
    specs = parse_device_spec(ENTRY, devnames=devnames)
    results = [item for item in (PF, VF, NIC, GPU) if tagged_device(item, specs)]
    assert results == [PF, VF]


def test_c5_without_addresses_a_device_says_its_interface() -> None:
    assert about(PF, ENTRY, ifname="enp10s0")
    assert not about(PF, ENTRY, ifname="enp10s1")
    assert not about(PF, ENTRY)
    part = VF.replace(tags={"parent_ifname": "enp10s0"})
    assert about(part, ENTRY, ifname="enp10s0v1")
    assert not about(VF, ENTRY, ifname="enp10s0v1")


def test_c5_an_interface_that_there_is_not_is_no_device() -> None:
    specs = parse_device_spec(ENTRY, devnames={})
    assert tagged_device(PF, specs, ifname="enp10s0") is None


def test_c5_devname_is_not_with_an_address() -> None:
    refused(NovaRule.ADDRESS_AND_DEVNAME, {**ENTRY, "address": "*:0a:00.*"})
    assert parse_device_spec({"devname": "", "address": "0a:00.0"})[0].devname is None


def test_c5_devname_is_not_for_placement() -> None:
    refused(NovaRule.DEVNAME_IN_PLACEMENT, ENTRY, report_in_placement=True)


def test_a_devname_that_is_no_name_is_refused() -> None:
    refused(NovaRule.INVALID_DEVICE_SPEC, {"devname": 5})
    with raises_code("InvalidAddress"):
        parse_device_spec(ENTRY, devnames={"enp10s0": "here"})


# --- managed from elsewhere (c.5) -----------------------------------------------------------------

REMOTE = {"vendor_id": "8086", "remote_managed": "true"}


def test_c5_remote_managed_needs_a_card_serial_number() -> None:
    assert not about(VF, REMOTE)
    assert tagged(VF, REMOTE, serial_number="MT21").remote_managed
    assert tagged(VF.replace(facts={"capabilities": SERIAL}), REMOTE).remote_managed


@pytest.mark.parametrize(
    "values",
    [
        *["{", "[]", "5", "null", '{"vpd": []}'],
        *(json.dumps({"vpd": {"card_serial_number": said}}) for said in (5, "")),
    ],
)
def test_what_is_no_serial_number_is_none(values: str) -> None:
    assert not about(VF.replace(facts={"capabilities": values}), REMOTE)


def test_c5_without_one_the_next_entry_may_be_about_it() -> None:
    assert not tagged(VF, REMOTE, {"vendor_id": "8086"}).remote_managed


def test_c5_remote_managed_is_no_physical_function() -> None:
    entry = {"address": PF.address, "remote_managed": "yes"}
    with breaks(NovaRule.REMOTE_MANAGED_FUNCTION, match=PF.address):
        tagged(PF, entry)
    assert tagged(VF, entry, serial_number="x").remote_managed
    assert not about(PF, {**entry, "product_id": VF.product_id})


def test_c5_remote_managed_by_an_interface_that_there_is_not_is_refused() -> None:
    entry = {**ENTRY, "remote_managed": "true"}
    refused(NovaRule.REMOTE_MANAGED_NOT_PRESENT, entry, devnames={})
    assert parse_device_spec(entry)


# --- tags (c.5) -----------------------------------------------------------------------------------


def test_c5_everything_else_is_a_tag() -> None:
    entry = {"vendor_id": "10de", "physical_network": "red", "trusted": "true", "colour": "Blue"}
    assert tagged(GPU, entry).tags == {
        "physical_network": "red",
        "trusted": "true",
        "colour": "Blue",
    }


@pytest.mark.parametrize(
    ("values", "value"),
    [("x", "x"), (5, "5"), (True, "True"), (["a", "b"], '["a", "b"]'), ([], "[]")],
)
def test_what_is_no_text_becomes_text_and_a_list_becomes_json(values: Any, value: str) -> None:
    assert tagged(GPU, {"tag": values}).tags == {"tag": value}


def test_a_tag_that_is_null_is_not_there() -> None:
    assert tagged(GPU, {"physical_network": None}).tags == {}


@pytest.mark.parametrize("values", [{}, {"a": 1}, [1], [["a"]]], ids=repr)
def test_what_no_tag_holds_is_refused(values: Any) -> None:
    refused(NovaRule.INVALID_SPEC_TAG, {"tag": values})


@pytest.mark.parametrize("name", ["", " ", "a\n", "x" * 300])
def test_a_name_that_no_tag_has_is_refused(name: str) -> None:
    refused(NovaRule.INVALID_SPEC_TAG, {name: "x"})


@pytest.mark.parametrize(
    ("values", "is_so"),
    [("yes", True), ("TRUE", True), ("1", True), ("off", False), (False, False), (True, True)],
)
def test_c5_flags_are_normalized(values: Any, is_so: bool) -> None:
    """c.5: managed, live_migratable, one_time_use: "true" or "false"."""
    assert tagged(GPU, {"managed": values}).tags == {"managed": "true" if is_so else "false"}
    assert tagged(GPU, {"live_migratable": values}).live_migratable is is_so
    assert tagged(GPU, {"one_time_use": values}, report=True).one_time_use is is_so


def test_c5_flags_that_are_not_said_are_not_known() -> None:
    result = tagged(GPU.replace(live_migratable=True), {"live_migratable": None, "managed": None})
    assert (result.live_migratable, result.one_time_use, dict(result.tags)) == (None, False, {})


@pytest.mark.parametrize("name", ["managed", "live_migratable", "one_time_use", "remote_managed"])
@pytest.mark.parametrize("values", ["maybe", "", 5], ids=repr)
def test_c5_a_flag_that_is_neither_is_refused(name: str, values: Any) -> None:
    assert f"device_spec[0].{name}" in refused(
        NovaRule.INVALID_SPEC_FLAG, {name: values}, report_in_placement=True
    )


def test_c5_one_time_use_needs_placement() -> None:
    refused(NovaRule.ONE_TIME_USE_WITHOUT_PLACEMENT, {"one_time_use": "true"})
    assert parse_device_spec({"one_time_use": "false"})[0].one_time_use is False


@pytest.mark.parametrize("values", ["true", "false"])
def test_c5_one_time_use_is_of_no_part(values: str) -> None:
    """c.5: type-PCI and type-PF only."""
    entry = {"one_time_use": values}
    assert tagged(PF, entry, report=True).one_time_use is (values == "true")
    with breaks(NovaRule.ONE_TIME_USE_OF_PART, match=VF.address):
        tagged(VF, entry, report=True)


def test_c5_the_first_entry_that_is_about_a_device_wins() -> None:
    entries = [{"vendor_id": "8086", "n": "1"}, {"address": GPU.address, "n": "2"}, {"n": "3"}]
    assert [tagged(item, *entries).tags["n"] for item in (VF, GPU)] == ["1", "2"]
    assert tagged(GPU, *reversed(entries)).tags["n"] == "3"


def test_what_a_device_was_called_before_is_forgotten_but_for_its_interface() -> None:
    before = VF.replace(tags={"parent_ifname": "enp10s0", "colour": "red"}, remote_managed=True)
    result = tagged(before, {"trusted": "true"})
    assert result.tags == {"parent_ifname": "enp10s0", "trusted": "true"}
    assert not result.remote_managed


# --- names in Placement ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ("PGPU", "PGPU"),
        ("pgpu", "PGPU"),
        ("gpu-vf", "CUSTOM_GPU_VF"),
        ("custom_gpu", "CUSTOM_GPU"),
        ("", "CUSTOM_PCI_10DE_2330"),
        (None, "CUSTOM_PCI_10DE_2330"),
    ],
)
def test_a_class_is_the_one_that_nova_has_in_placement(values: Any, name: str) -> None:
    assert tagged(GPU, {"resource_class": values}).resource_class == name


def test_traits_are_those_that_nova_has_in_placement() -> None:
    result = tagged(GPU, {"traits": "big,HW_NIC_SRIOV,custom_h100,a-b"})
    assert result.traits == {"CUSTOM_BIG", "HW_NIC_SRIOV", "CUSTOM_H100", "CUSTOM_A_B"}
    assert tagged(GPU, {"traits": ""}).traits == frozenset()


@pytest.mark.parametrize("values", ["CUSTOM_A-B", "x" * 300, 5, ["a"]])
def test_a_class_that_is_none_is_refused(values: Any) -> None:
    refused(NovaRule.INVALID_SPEC_CLASS, {"resource_class": values})


@pytest.mark.parametrize("values", ["CUSTOM_A-B", "a,,b", "x" * 300, 5, ["a"]])
def test_a_trait_that_is_none_is_refused(values: Any) -> None:
    refused(NovaRule.INVALID_SPEC_TRAITS, {"traits": values})


# --- the option -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        {"vendor_id": "10de"},
        [{"vendor_id": "10de"}],
        '{"vendor_id": "10de"}',
        '[{"vendor_id": "10de"}]',
        ['{"vendor_id": "10de"}'],
        ['[{"vendor_id": "10de"}]'],
    ],
    ids=repr,
)
def test_an_option_is_text_or_what_it_stands_for(source: Any) -> None:
    """c.5: JSON, a dict or a list of dicts."""
    assert parse_device_spec(source) == (NovaDeviceRule("10de", "*"),)


def test_several_texts_are_entries_one_after_the_other() -> None:
    result = parse_device_spec(['[{"n": "1"}, {"n": "2"}]', '{"n": "3"}', {"n": "4"}])
    assert [entry.tags["n"] for entry in result] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("nothing", [[], "[]", ["[]"], ()], ids=repr)
def test_there_may_be_none(nothing: Any) -> None:
    assert parse_device_spec(nothing) == ()


@pytest.mark.parametrize(
    "source",
    ["", "{", "5", "null", '"x"', "[5]", '["{}"]', 5, None, [5], [["x"]], [None], b"{}"],
    ids=repr,
)
def test_what_is_no_option_is_refused(source: Any) -> None:
    refused(NovaRule.INVALID_DEVICE_SPEC, source)


@pytest.mark.parametrize("entries", [None, 5, "{}", ["{}"], [{}]], ids=repr)
def test_entries_that_were_not_parsed_are_refused(entries: Any) -> None:
    with breaks(NovaRule.INVALID_DEVICE_SPEC, match=r"expected entries as parse_device_spec"):
        tagged_device(GPU, entries)
    with raises_code("InvalidDevice", match="device: got None, expected a Device"):
        tagged_device(None, ())  # type: ignore[arg-type]


# --- as rules of a machine ------------------------------------------------------------------------


def card(address: str, parent: str | None = None, interface: str = "") -> PCIDevice:
    """Return a function of a network card, as a machine reports it."""
    return PCIDevice(
        address,
        "8086",
        "154c",
        "020000",
        kind=DeviceKind.PCI if parent is None else DeviceKind.VF,
        parent_address=parent,
        interfaces=(NetworkInterface(interface),) if interface else (),
    )


CARD, PART, OTHER = "0000:0a:00.0", "0000:0a:10.1", "0000:05:00.0"


@pytest.mark.parametrize(
    ("spec", "matched"),
    [
        ({"vendor_id": "8086"}, [CARD, PART, OTHER]),
        ({"address": "*:0a:*.*"}, [CARD, PART]),
        ({"address": CARD}, [CARD, PART]),
        ({"address": {"bus": "0[5a]", "slot": "00"}}, [CARD, OTHER]),
        ({"devname": "enp5"}, [OTHER]),
        ({"product_id": "1563"}, []),
    ],
)
def test_entries_are_rules_of_a_machine(spec: dict[str, Any], matched: list[str]) -> None:
    settings = HostSettings(device_rules=parse_device_spec(spec))
    devices = [card(CARD), card(PART, CARD), card(OTHER, interface="enp5")]
    pairs = match_rules(settings.device_rules, devices)
    assert [device.address for device, _ in pairs] == matched
