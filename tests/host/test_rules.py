"""Device rules: their text form, what they match, and physical against virtual functions."""

from __future__ import annotations

import sys
import types

import os_resource_classes
import os_traits
import pytest
from hypothesis import given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import plugins
from resource_objects.exceptions import FrozenValue, InvalidInput, PluginError
from resource_objects.host.device_rules import ANY, DeviceRule, match_rules
from resource_objects.host.machine import DeviceKind, PCIDevice
from resource_objects.resources import catalog
from resource_objects.testing.refusals import raises_code

HEX = "0123456789abcdef"


def hexadecimal(digits: int) -> st.SearchStrategy[str]:
    return st.text(HEX, min_size=digits, max_size=digits)


DEVICES = [name for name in os_resource_classes.STANDARDS if catalog.is_device(name)]
CUSTOM = st.text("ABCXYZ0189_", min_size=1, max_size=20).map("CUSTOM_{}".format)
TAGS = st.dictionaries(
    st.sampled_from(["physnet", "pool", "A.b-c_9"]),
    st.text('aB1 ,=[]"/+&@', min_size=1, max_size=12).filter(lambda text: text == text.strip()),
    max_size=2,
)
RULES = st.builds(
    DeviceRule,
    vendor_id=st.just(ANY) | hexadecimal(4),
    product_id=st.just(ANY) | hexadecimal(4),
    resource_class=st.none() | st.sampled_from(DEVICES) | CUSTOM,
    traits=st.lists(st.sampled_from(os_traits.get_traits()) | CUSTOM, max_size=3, unique=True).map(
        tuple
    ),
    address=st.none() | st.text(HEX + ":.*?[]-!", min_size=1, max_size=16),
    class_id=st.none() | st.sampled_from([2, 4, 6]).flatmap(hexadecimal),
    types=st.lists(st.sampled_from(list(DeviceKind)), max_size=2, unique=True).map(tuple),
    tags=TAGS,
    one_time_use=st.booleans(),
    remote_managed=st.booleans(),
    live_migratable=st.none() | st.booleans(),
)


VF = DeviceKind.VF


def gpu(address: str = "0000:3b:00.0", **changes: object) -> PCIDevice:
    facts = {"vendor_id": "10de", "product_id": "2330", "class_id": "030200"}
    return PCIDevice(address, **(facts | changes))


def pf(address: str = "0000:60:00.0") -> PCIDevice:
    return PCIDevice(
        address, "8086", "37d2", "020000", kind=DeviceKind.PF, sriov_totalvfs=8, sriov_numvfs=2
    )


def vf(index: int, parent: str = "0000:60:00.0") -> PCIDevice:
    address = f"{parent[:7]}:02.{index}"
    return PCIDevice(address, "8086", "154c", "020000", kind=DeviceKind.VF, parent_address=parent)


def addresses(rules: list[str], devices: list[PCIDevice]) -> list[str]:
    parsed = [DeviceRule.parse(rule) for rule in rules]
    return [device.address for device, _ in match_rules(parsed, devices)]


# --- the text form ------------------------------------------------------------------------------


@given(RULES)
def test_a_rule_is_its_text(rule):
    assert DeviceRule.parse(str(rule)) == rule


@given(RULES)
def test_hexadecimal_digits_may_be_upper_case(rule):
    subject, equals, remainder = str(rule).partition("=")
    assert DeviceRule.parse(f" {subject.upper()}{equals}{remainder} ") == rule


@given(st.text(max_size=40) | st.text("0de:*/@=+PGU_[&;typ-VF", max_size=40))
def test_any_text_is_a_rule_or_refused(text):
    try:
        rule = DeviceRule.parse(text)
    except InvalidInput as error:
        if not error.is_about("device rule"):
            raise
        assert error.expected
    else:
        assert DeviceRule.parse(str(rule)) == rule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("10de:*=PGPU", DeviceRule("10de", "*", "PGPU")),
        ("*:*=PCI_DEVICE", DeviceRule("*", "*", "PCI_DEVICE")),
        ("10de:*/0302=PGPU", DeviceRule("10de", "*", "PGPU", class_id="0302")),
        (
            "10de:2330@0000:3b:*=CUSTOM_GPU+CUSTOM_H100+HW_GPU_API_VULKAN",
            DeviceRule(
                "10de",
                "2330",
                "CUSTOM_GPU",
                ("CUSTOM_H100", "HW_GPU_API_VULKAN"),
                address="0000:3b:*",
            ),
        ),
        ("10de:2330=", DeviceRule("10de", "2330")),
        ("10de:*=+CUSTOM_H100", DeviceRule("10de", "*", traits=("CUSTOM_H100",))),
        ("8086:*&type-VF=SRIOV_NET_VF", DeviceRule("8086", "*", "SRIOV_NET_VF", types=(VF,))),
        (
            "8086:*/02@0000:60:*&type-VF&vdpa=SRIOV_NET_VF+CUSTOM_FAST;physnet=net1;pool=a b",
            DeviceRule(
                "8086",
                "*",
                "SRIOV_NET_VF",
                ("CUSTOM_FAST",),
                address="0000:60:*",
                class_id="02",
                types=(VF, DeviceKind.VDPA),
                tags={"pool": "a b", "physnet": "net1"},
            ),
        ),
        (
            "1e0f:*=CUSTOM_NVME;one_time_use;remote_managed;live_migratable",
            DeviceRule(
                "1e0f",
                "*",
                "CUSTOM_NVME",
                one_time_use=True,
                remote_managed=True,
                live_migratable=True,
            ),
        ),
        ("1e0f:*=;live_migratable=no", DeviceRule("1e0f", "*", live_migratable=False)),
        ("1e0f:*=;caps=a=b", DeviceRule("1e0f", "*", tags={"caps": "a=b"})),
    ],
)
def test_text_forms(text, rule):
    assert DeviceRule.parse(text) == rule
    assert str(rule) == text


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "device rule"),
        ("10de=PGPU", "device rule"),
        ("10de:2330", "device rule"),
        ("10de:2330=PGPU=VGPU", "device rule"),
        (None, "device rule"),
        (b"10de:*=PGPU", "device rule"),
        ("nvidia:*=PGPU", "vendor of a device rule"),
        ("10d:*=PGPU", "vendor of a device rule"),
        ("0x10de:*=PGPU", "vendor of a device rule"),
        ("10d*:*=PGPU", "vendor of a device rule"),
        ("10de:23300=PGPU", "product of a device rule"),
        ("10de:*/030=PGPU", "class of a device rule"),
        ("10de:*/=PGPU", "class of a device rule"),
        ("10de:*@=PGPU", "address of a device rule"),
        ("10de:*@eth0=PGPU", "address of a device rule"),
        ("10de:*=NUMA_TOPOLOGY", "resource class of a device rule"),
        ("10de:*=DEVICES", "resource class of a device rule"),
        ("10de:*=VCPU", "resource class of a device rule"),
        ("10de:*=MEMORY_MB", "resource class of a device rule"),
        ("144d:*=DISK_GB", "resource class of a device rule"),
        ("8086:*=NET_BW_EGR_KILOBIT_PER_SEC", "resource class of a device rule"),
        ("10de:*&=PGPU", "type of a device rule"),
        ("10de:*&VF=PGPU", "type of a device rule"),
        ("10de:*&type-VF&type-vf=PGPU", "type of a device rule"),
        ("10de:*=PGPU;", "word of a device rule"),
        ("10de:*=PGPU;once", "word of a device rule"),
        ("10de:*=PGPU;physnet", "word of a device rule"),
        ("10de:*=PGPU;one_time_use=", "word of a device rule"),
        ("10de:*=PGPU;one_time_use=1", "word of a device rule"),
        ("10de:*=PGPU;one_time_use;one_time_use=no", "word of a device rule"),
        ("10de:*=PGPU;a=1;a=2", "word of a device rule"),
        ("10de:*=PGPU;=1", "tag of a device rule"),
        ("10de:*=PGPU;5=1", "tag of a device rule"),
        ("10de:*=PGPU;a=", "tag a of a device rule"),
        ("10de:*=PGPU;a=\x07", "tag a of a device rule"),
        ("10de:*=pgpu", "resource class of a device rule"),
        ("10de:*=PGPUS", "resource class of a device rule"),
        ("10de:*=CUSTOM_", "resource class of a device rule"),
        (f"10de:*=CUSTOM_{'X' * 249}", "resource class of a device rule"),
        ("10de:*=PGPU+", "trait of a device rule"),
        ("10de:*=PGPU+H100", "trait of a device rule"),
        ("10de:*=PGPU+CUSTOM_A+CUSTOM_A", "trait of a device rule"),
        ("10de:*=PGPU + CUSTOM_A", "resource class of a device rule"),
    ],
)
def test_a_bad_rule_names_the_part_that_is_wrong(text, wrong):
    with raises_code("InvalidRule") as caught:
        DeviceRule.parse(text)
    assert caught.value.what == wrong
    assert caught.value.expected


def test_a_rule_made_by_hand_is_checked_too():
    with raises_code("InvalidRule"):
        DeviceRule("10DE", "*", "PGPU")
    with raises_code("InvalidRule"):
        DeviceRule("10de", "*", "PGPU", traits=("nonsense",))


@pytest.mark.parametrize(
    ("subject", "values"),
    [
        ("type of a device rule", {"types": ("type-VF",)}),
        ("type of a device rule", {"types": [VF]}),
        ("type of a device rule", {"types": (VF, VF)}),
        ("tags of a device rule", {"tags": "physnet=net1"}),
        ("tag of a device rule", {"tags": {5: "net1"}}),
        ("tag of a device rule", {"tags": {"one_time_use": "yes"}}),
        ("tag physnet of a device rule", {"tags": {"physnet": 5}}),
        ("tag physnet of a device rule", {"tags": {"physnet": "a;b"}}),
        ("one_time_use of a device rule", {"one_time_use": None}),
        ("remote_managed of a device rule", {"remote_managed": "yes"}),
        ("live_migratable of a device rule", {"live_migratable": 1}),
    ],
)
def test_words_by_hand_are_checked_too(subject, values):
    with raises_code("InvalidRule") as refused:
        DeviceRule("10de", "*", "PGPU", **values)
    assert refused.value.what == subject


def test_a_rule_is_a_value():
    rule = DeviceRule.parse("10de:*=PGPU;b=2;a=1")
    assert {rule: 1}[DeviceRule.parse("10de:*=PGPU;a=1;b=2")] == 1
    with pytest.raises(FrozenValue):
        rule.tags["a"] = "2"  # type: ignore[index]


def test_a_class_that_is_not_said_is_named_after_the_device():
    rule = DeviceRule.parse("10de:*=")
    assert rule.class_of(gpu()) == "CUSTOM_PCI_10DE_2330"
    assert match_rules([rule], [gpu()]) == ((gpu(), rule),)


@pytest.fixture
def site(monkeypatch):
    """A plug-in that brings SITE_WIDGET, and one that does not load."""
    module = types.ModuleType("site_of_test_rules")
    module.WIDGET = ro.IntegerResource("SITE_WIDGET", "device", "widgets", "Widgets")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    declared = plugins.BUILT_IN[catalog.PLUGIN_NAMESPACE]
    monkeypatch.setitem(declared, "SITE_WIDGET", f"{module.__name__}:WIDGET")
    monkeypatch.setitem(declared, "SITE_BROKEN", f"{module.__name__}:BROKEN")
    catalog.forget()
    yield
    catalog.forget()


@pytest.mark.usefixtures("site")
def test_the_resource_class_of_a_plug_in_is_one():
    assert DeviceRule.parse("10de:*=SITE_WIDGET").resource_class == "SITE_WIDGET"
    with pytest.raises(PluginError, match="BROKEN"):
        DeviceRule.parse("10de:*=SITE_BROKEN")


@pytest.mark.parametrize("name", ["PGPUS", "pgpu", "CUSTOM_", ""])
def test_a_class_is_refused_in_the_words_of_the_catalog(name):
    with pytest.raises(InvalidInput) as catalogs:
        ro.resource(name)
    with raises_code("InvalidRule") as refused:
        DeviceRule("10de", "*", name)
    assert refused.value.expected == catalogs.value.expected
    assert type(refused.value.__cause__) is type(catalogs.value)


def test_a_trait_is_refused_with_what_is_near_to_it():
    with raises_code("InvalidRule", match="HW_CPU_X86_AVX") as refused:
        DeviceRule.parse("10de:*=PGPU+HW_CPU_X86_AVX9")
    assert refused.value.value == "HW_CPU_X86_AVX9"


# --- what is matched ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        ("*:*=PGPU", True),
        ("10de:*=PGPU", True),
        ("*:2330=PGPU", True),
        ("10de:2331=PGPU", False),
        ("8086:*=PGPU", False),
        ("10de:*/03=PGPU", True),
        ("10de:*/0302=PGPU", True),
        ("10de:*/0300=PGPU", False),
        ("10de:*@0000:3b:*=PGPU", True),
        ("10de:*@*.[1-7]=PGPU", False),
        ("10de:*@0000:3b:00.?=PGPU", True),
        ("10de:*@3b:00.0=PGPU", False),  # the whole address, with its domain
        ("10de:*&type-PCI=PGPU", True),
        ("10de:*&type-PF&type-PCI=PGPU", True),
        ("10de:*&type-VF=PGPU", False),
    ],
)
def test_what_a_rule_matches(rule, matches):
    assert DeviceRule.parse(rule).matches(gpu()) is matches


def test_the_first_rule_that_matches_decides():
    rules = [
        DeviceRule.parse("10de:2330=PGPU+CUSTOM_H100"),
        DeviceRule.parse("10de:*=CUSTOM_OLD_GPU"),
    ]
    old = gpu("0000:5e:00.0", product_id="1db4")
    matches = match_rules(rules, [gpu(), old])
    assert [(rule.class_of(device), rule.traits) for device, rule in matches] == [
        ("PGPU", ("CUSTOM_H100",)),
        ("CUSTOM_OLD_GPU", ()),
    ]
    ((_, only),) = match_rules(rules[::-1], [gpu()])
    assert only.resource_class == "CUSTOM_OLD_GPU"


def test_devices_that_no_rule_matches_are_left_out():
    assert match_rules([], [gpu()]) == ()
    assert addresses(["8086:*=PGPU"], [gpu()]) == []


def test_a_device_twice_is_refused():
    with raises_code("DuplicateKey", match=r"0000:3b:00\.0"):
        match_rules([], [gpu(), gpu()])


# --- physical and virtual functions -------------------------------------------------------------


def test_a_rule_may_match_a_physical_function_and_its_own_virtual_ones():
    """Both can be taken then, and exclude each other; Nova offers the one or the others (a.3)."""
    rules = ["8086:154c=SRIOV_NET_VF", "8086:37d2=CUSTOM_NIC"]
    assert addresses(rules, [pf(), vf(0), vf(1)]) == [
        "0000:60:00.0",
        "0000:60:02.0",
        "0000:60:02.1",
    ]


def test_a_rule_for_virtual_functions_leaves_the_physical_one():
    assert addresses(["8086:*&type-VF=SRIOV_NET_VF"], [pf(), vf(0)]) == ["0000:60:02.0"]
    assert addresses(["8086:*&type-PF=CUSTOM_NIC"], [pf(), vf(0)]) == ["0000:60:00.0"]


@given(
    rules=st.lists(
        st.builds(
            DeviceRule,
            vendor_id=st.sampled_from(["8086", ANY]),
            product_id=st.sampled_from(["37d2", "154c", ANY]),
            resource_class=st.just("PCI_DEVICE"),
            address=st.none() | st.sampled_from(["0000:60:*", "*.0", "*.1"]),
            types=st.sampled_from([(), (VF,), (DeviceKind.PF,)]),
        ),
        max_size=3,
    ),
    devices=st.permutations([pf(), vf(0), vf(1), pf("0000:61:00.0"), vf(0, "0000:61:00.0")]),
)
def test_each_device_has_the_first_rule_that_is_about_it_and_no_other_is_left_out(rules, devices):
    matches = match_rules(rules, devices)
    taken = {device.address for device, _ in matches}
    assert [device for device, _ in matches] == [item for item in devices if item.address in taken]
    for device, first in matches:
        assert first == next(rule for rule in rules if rule.matches(device))
    for device in devices:
        assert (device.address in taken) == any(rule.matches(device) for rule in rules)
