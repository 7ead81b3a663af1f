"""``instance_extra.pci_requests``: the rules that Nova applies to pools are explicit, both ways."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.exceptions import CannotDowngrade
from resource_objects.interop.nova import dump_pci_requests, load_pci_pools, load_pci_requests
from resource_objects.resources.integer import IntegerAmount
from resource_objects.resources.pci import (
    Device,
    DeviceRequest,
    DeviceSpec,
    PCIAmount,
    PCIInventory,
    devices,
)
from resource_objects.testing.refusals import raises_code
from tests.interop.nova.pci_documents import INSTANCE, PROVIDER, REQUEST, port, request, sent
from tests.support.pci_devices import counted_devices

IDS = {"vendor_id": "8086", "product_id": "154c"}


def loaded(*value: dict[str, Any], placement: bool = False) -> tuple[DeviceRequest, ...]:
    """Return the requests of a column."""
    result = load_pci_requests(json.dumps(value), placement=placement)
    assert result is not None
    return result.requests


def specs(*value: dict[str, Any], **values: Any) -> tuple[DeviceSpec, ...]:
    """Return the alternatives that specs of one request say."""
    return loaded(request(*value, **values))[0].specs


def is_met(requested: dict[str, Any], *tags: dict[str, Any]) -> bool:
    """Return whether a request is met from pools of one device each."""
    base = {**IDS, "count": 1, "numa_node": 0}
    pools = [{**base, "address": f"0000:04:00.{n}", **tag} for n, tag in enumerate(tags)]
    amount = load_pci_requests([requested])
    assert amount is not None
    return PCIInventory(counted_devices(load_pci_pools(pools))).can_provide(amount)


# --- what a request is (c.4) ----------------------------------------------------------------------


def test_a_request_by_alias_says_who_wants_how_many_and_how_near() -> None:
    """c.4: count, spec (ORed), alias_name, request_id, numa_policy."""
    value = request(IDS, {"vendor_id": "10de"}, count=3, numa_policy="socket")
    assert loaded(value) == (
        DeviceRequest(
            [
                DeviceSpec(**IDS, types=["type-PCI", "type-VF"]),
                DeviceSpec(vendor_id="10de", types=["type-PCI", "type-VF"]),
            ],
            3,
            "socket",
            alias="card",
            request_id=REQUEST,
        ),
    )


def test_a_request_of_a_port_has_a_requester_and_no_alias() -> None:
    """c.4: requester_id; port requests carry physical_network, trusted, remote_managed."""
    value = port({"physical_network": "red", "remote_managed": "False", "trusted": "True"})
    (result,) = loaded(value)
    assert (result.alias, result.requester, result.affinity) == (None, "port-1", "legacy")
    assert dict(result.specs[0].tags) == {"physical_network": "red", "trusted": "True"}


@pytest.mark.parametrize("policy", ["legacy", "preferred", "required", "socket"])
def test_every_policy_is_an_affinity(policy: str) -> None:
    """c.4, b.8: numa_policy."""
    assert loaded(request(IDS, numa_policy=policy))[0].affinity == policy


def test_no_policy_is_the_legacy_one() -> None:
    assert loaded(port(IDS))[0].affinity == "legacy"


def test_what_older_columns_do_not_have_is_not_said() -> None:
    """Before request ids, policies and requesters."""
    (result,) = loaded({"count": 1, "spec": [IDS], "alias_name": "card"})
    assert (result.request_id, result.affinity, result.requester) == (None, "legacy", None)


def test_is_new_is_dead() -> None:
    """c.4: is_new is dead."""
    assert loaded(request(IDS, is_new=True)) == loaded(request(IDS))


# --- what Nova leaves to its pools (c.3, filters 1 to 7) ------------------------------------------


def test_c3_filter_1_any_of_the_specs_will_do_and_case_does_not_count() -> None:
    requested = request({"product_id": "FFFF"}, {"vendor_id": "8086", "colour": "BLUE"})
    assert is_met(requested, {"colour": "blue"})
    assert not is_met(requested, {"colour": "red"})


def test_c3_filter_1_a_null_is_met_by_what_has_no_such_tag() -> None:
    requested = port({"physical_network": None, "remote_managed": "False"})
    assert specs({"physical_network": None})[0].tags == {"physical_network": "null"}
    assert is_met(requested, {"dev_type": "type-VF"})
    assert is_met(requested, {"dev_type": "type-VF", "physical_network": None})
    assert not is_met(requested, {"dev_type": "type-VF", "physical_network": "red"})


@pytest.mark.parametrize("name", ["resource_class", "traits", "rp_uuids", "capability_type"])
def test_c3_filter_1_what_placement_matches_pools_do_not(name: str) -> None:
    """Skipped: resource_class, traits, rp_uuids; they are facts and come back."""
    spec = {**IDS, name: "pci"}
    value = port(spec) if name == "rp_uuids" else request(spec)
    assert loaded(value)[0].specs[0].facts == {name: "pci"}
    assert is_met(value, {"dev_type": "type-PCI"})
    assert json.loads(dump_pci_requests(load_pci_requests([value]))) == [value]


def test_c3_filter_3_physical_functions_are_for_requests_for_them() -> None:
    function = {"dev_type": "type-PF"}
    assert not is_met(request(IDS), function)
    assert is_met(request({**IDS, "dev_type": "type-PF"}), function)
    assert specs(IDS)[0].types == ("type-PCI", "type-VF")


def test_c3_filter_3_one_spec_that_requests_them_requests_all() -> None:
    requested = request({"vendor_id": "10de", "dev_type": "type-PF"}, IDS)
    assert is_met(requested, {"dev_type": "type-PF"})
    assert loaded(requested)[0].specs[1].types == ("type-PCI", "type-PF", "type-VF")


def test_c3_filter_4_vdpa_devices_are_for_requests_for_them() -> None:
    assert not is_met(request(IDS), {"dev_type": "vdpa"})
    assert is_met(request({"dev_type": "vdpa"}), {"dev_type": "vdpa"})
    assert specs({"dev_type": "vdpa"}, IDS)[1].types == ("type-PCI", "type-VF", "vdpa")


def test_c3_filter_5_what_others_manage_is_for_requests_for_it() -> None:
    remote = {"dev_type": "type-VF", "remote_managed": "true"}
    assert not is_met(request(IDS), remote)
    assert not is_met(port({**IDS, "remote_managed": "False"}), remote)
    assert is_met(port({**IDS, "remote_managed": "True"}), remote)
    assert not is_met(port({**IDS, "remote_managed": "True"}), {"dev_type": "type-VF"})


def test_c3_filter_5_one_spec_that_requests_it_requests_all() -> None:
    requested = request({"vendor_id": "10de", "remote_managed": "True"}, IDS)
    for values in ("true", "false"):
        assert is_met(requested, {"dev_type": "type-VF", "remote_managed": values})


def test_c3_filter_5_said_to_be_no_it_is_not_for_what_has_no_such_tag() -> None:
    """Nova tags functions that can be split and those that are; so a port has no other."""
    requested = port({**IDS, "remote_managed": "False"})
    assert loaded(requested)[0].specs[0].types == ("type-VF",)
    assert is_met(requested, {"dev_type": "type-VF"})
    assert not is_met(requested, {"dev_type": "type-PCI"})


def test_c3_filter_6_requests_with_providers_has_devices_of_these() -> None:
    """rp_uuids of spec[0], joined by commas."""
    other = PROVIDER.replace("5", "6")
    requested = request({**IDS, "rp_uuids": f"{PROVIDER},{other}"}, count=2)
    assert loaded(requested)[0].providers == (PROVIDER, other)
    assert is_met(requested, {"rp_uuid": PROVIDER}, {"rp_uuid": other})
    assert not is_met(requested, {"rp_uuid": PROVIDER}, {})
    assert not is_met(requested, {"rp_uuid": PROVIDER, "count": 2}, {"rp_uuid": "elsewhere"})


def test_c3_filter_6_ports_never_have_providers() -> None:
    assert loaded(port({**IDS, "rp_uuids": PROVIDER}))[0].providers == ()


@pytest.mark.parametrize(
    ("requested", "has", "is_so"),
    [
        ("true", "true", True),
        ("true", "false", False),
        ("true", None, False),
        ("false", "false", True),
        ("false", "true", False),
        ("false", None, False),
        (None, "true", True),
        (None, "false", True),
        (None, None, True),
        ("perhaps", "true", False),
    ],
)
def test_c3_filter_7_only_devices_of_which_it_is_specified_can_be_requested_so(
    requested: str | None, has: str | None, is_so: bool
) -> None:
    """live_migratable: "false" is only what is explicitly so; unset, there is no filtering."""
    spec = IDS if requested is None else {**IDS, "live_migratable": requested}
    assert is_met(request(spec), {} if has is None else {"live_migratable": has}) is is_so


# --- in Placement ---------------------------------------------------------------------------------


def test_in_placement_classes_and_traits_match() -> None:
    spec = {"resource_class": "gpu-vf", "traits": "blue,HW_NIC_SRIOV"}
    (result,) = loaded(request(spec), placement=True)
    assert result.resource_class == "CUSTOM_GPU_VF"
    assert result.specs[0].traits == {"CUSTOM_BLUE", "HW_NIC_SRIOV"}
    device = Device("0000:04:00.0", "10de", "2330", resource_class="CUSTOM_GPU_VF")
    assert not result.matches(device)
    assert result.matches(device.replace(traits=result.specs[0].traits))


def test_in_placement_the_class_of_who_says_none_is_that_of_the_ids() -> None:
    assert loaded(request(IDS), placement=True)[0].resource_class == "CUSTOM_PCI_8086_154C"
    assert loaded(request({}), placement=True)[0].resource_class is None


def test_in_placement_ports_match_no_classes() -> None:
    assert loaded(port(IDS), placement=True)[0].resource_class is None


# --- there and back -------------------------------------------------------------------------------

COLUMNS = {
    "alias": [request({**IDS, "dev_type": "type-PF"}, numa_policy="required")],
    "upper case": [request({"vendor_id": "10DE", "product_id": "2330"})],
    "several": [request({"vendor_id": "10de", "dev_type": "type-PF"}, IDS), request(IDS, count=4)],
    "port": [port({"physical_network": "red", "remote_managed": "False"})],
    "old port": [port({"physical_network": "red"})],
    "tunneled": [port({"physical_network": None, "remote_managed": "True", "trusted": "False"})],
    "vdpa": [port({"physical_network": "x", "remote_managed": "False", "dev_type": "vdpa"})],
    "qos": [port({"physical_network": "red", "parent_ifname": "enp4s0"}, numa_policy="socket")],
    "placement": [
        request({**IDS, "resource_class": "gpu-vf", "traits": "b, a", "rp_uuids": PROVIDER})
    ],
    "class": [request({"resource_class": "PGPU", "rp_uuids": ""})],
    "own class": [request({**IDS, "resource_class": "CUSTOM_PCI_8086_154C"})],
    "either": [request({"remote_managed": "yes"}, IDS, {"remote_managed": "no"})],
    "migratable": [request({**IDS, "live_migratable": "True"}, {"live_migratable": "maybe"})],
    "address": [request({"address": "0000:3B:00.0", "dev_type": "type-PCI"})],
    "anything": [request({})],
    "words": [request({"x": "", "y": '"'})],
}


@pytest.mark.parametrize("placement", [False, True])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_written_as_it_was(name: str, placement: bool) -> None:
    result = load_pci_requests(COLUMNS[name], placement=placement)
    assert json.loads(dump_pci_requests(result)) == [
        {**item, "is_new": False} for item in COLUMNS[name]
    ]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2", "1.3", "1.4"])
def test_an_object_of_any_version_is_read_and_written_in_the_newest(version: str) -> None:
    minor = int(version[2:])
    policy = {} if minor < 2 else {"numa_policy": "required" if minor < 4 else "socket"}
    document = sent(version, request(IDS, **policy))
    result = load_pci_requests(document)
    assert load_pci_requests(json.dumps(document)) == result
    again = json.loads(dump_pci_requests(result, versioned=True, instance_uuid=INSTANCE))
    assert again["nova_object.version"] == "1.1"
    (item,) = again["nova_object.data"]["requests"]
    (values,) = document["nova_object.data"]["requests"]
    unsaid = {"numa_policy": "legacy", "request_id": None, "requester_id": None}
    assert item["nova_object.data"] == {**unsaid, **values["nova_object.data"]}
    assert item["nova_object.version"] == "1.4"
    assert again["nova_object.data"]["instance_uuid"] == INSTANCE


@pytest.mark.parametrize("nothing", [None, "[]", "null", [], sent("1.4")], ids=repr)
def test_a_request_for_nothing_requests_nothing(nothing: Any) -> None:
    assert load_pci_requests(nothing) is None


def test_nothing_is_written_as_an_empty_list() -> None:
    assert dump_pci_requests(None) == "[]"


WORDS = st.sampled_from(["true", "True", "false", "False", "yes", "no", "maybe", "", "null", '"'])
SPEC = st.fixed_dictionaries(
    {},
    optional={
        "vendor_id": st.sampled_from(["10de", "10DE", "8086"]),
        "product_id": st.just("2330"),
        "dev_type": st.sampled_from(["type-PCI", "type-PF", "type-VF", "vdpa"]),
        "remote_managed": WORDS,
        "live_migratable": WORDS,
        "resource_class": st.sampled_from(["gpu", "PGPU", "CUSTOM_PCI_10DE_2330", ""]) | st.none(),
        "traits": st.sampled_from(["", "a,b", "b,a", "HW_NIC_SRIOV"]) | st.none(),
        "rp_uuids": st.sampled_from(["", PROVIDER, "other"]) | st.none(),
        "physical_network": st.sampled_from(["red", "null"]) | st.none(),
    },
)


@given(st.lists(SPEC, min_size=1, max_size=3), st.booleans(), st.booleans())
def test_any_spec_is_written_as_it_was(
    value: list[dict[str, Any]], is_port: bool, placement: bool
) -> None:
    column = [(port if is_port else request)(*value)]
    result = load_pci_requests(column, placement=placement)
    (again,) = json.loads(dump_pci_requests(result))
    untold = [{k: None if v == "null" and k[0] == "p" else v for k, v in s.items()} for s in value]
    assert again["spec"] == untold
    assert load_pci_requests([again], placement=placement) == result


#: One device of each kind that requests distinguish here.
EACH = [
    Device(
        "0000:04:00.0",
        "10de",
        "2330",
        kind,
        parent="0000:05:00.0" if kind in ("type-VF", "vdpa") else None,
        resource_class=name,
        traits=["CUSTOM_A"],
        live_migratable=live,
        tags=tags,
    )
    for kind in ("type-PCI", "type-PF", "type-VF", "vdpa")
    for name in ("PGPU", "CUSTOM_PCI_10DE_2330")
    for live in (None, True, False)
    for tags in ({}, {"colour": "red"})
]


@given(
    st.lists(
        st.builds(
            DeviceSpec,
            vendor_id=st.sampled_from([None, "10de"]),
            types=st.lists(
                st.sampled_from(["type-PCI", "type-PF", "type-VF", "vdpa"]), unique=True
            ),
            traits=st.sets(st.sampled_from(["CUSTOM_A", "CUSTOM_B"])),
            resource_class=st.sampled_from([None, "PGPU"]),
            live_migratable=st.sampled_from([None, True, False]),
            tags=st.dictionaries(st.just("colour"), st.sampled_from(["red", "null"])),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_what_is_written_means_the_same_when_it_is_read(value: list[DeviceSpec]) -> None:
    requested = PCIAmount([DeviceRequest(value, alias="card")])
    again = load_pci_requests(dump_pci_requests(requested), placement=True)
    assert again is not None
    assert list(map(again.requests[0].matches, EACH)) == list(
        map(requested.requests[0].matches, EACH)
    )


def test_an_amount_that_is_assigned_is_written_as_what_was_requested() -> None:
    host = PCIInventory([Device("0000:3b:00.0", "10de", "2330")])
    requested = devices("10de:2330", alias="gpu", types=["type-PCI"])
    assert dump_pci_requests(host.fit(requested)) == dump_pci_requests(requested)


def test_facts_that_are_not_true_any_more_are_not_written() -> None:
    (spec,) = specs({"vendor_id": "10DE", "remote_managed": "False"})
    changed = spec.replace(types=["type-PF"], vendor_id="8086")
    amount = PCIAmount([DeviceRequest([changed], alias="card")])
    (again,) = json.loads(dump_pci_requests(amount))
    assert again["spec"] == [{"vendor_id": "8086", "dev_type": "type-PF"}]


# --- values without a form in Nova ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "name"),
    [
        (devices("10de:2330", class_code="0302"), "class_code"),
        (devices("10de:2330", facts={"who": "me"}), "facts"),
    ],
    ids=["class code", "facts"],
)
def test_what_there_is_no_word_for_is_refused_or_left_out_when_reported(
    requested: PCIAmount, name: str
) -> None:
    with pytest.raises(CannotDowngrade, match="InstancePCIRequest cannot be expressed"):
        dump_pci_requests(requested)
    again = load_pci_requests(dump_pci_requests(requested, leave_out=[name]))
    assert again is not None
    assert again.count == 1


@pytest.mark.parametrize(
    "requested",
    [
        devices(DeviceSpec(address="0000:04:00.0")),
        devices(DeviceSpec(tags={"dev_type": "type-PF"})),
        devices([DeviceSpec(vendor_id="10de"), DeviceSpec(remote_managed=True, vendor_id="8086")]),
        PCIAmount([DeviceRequest([DeviceSpec(vendor_id="10de")], providers=[PROVIDER])]),
    ],
    ids=["address of any function", "tag", "remote or not", "providers of a port"],
)
def test_what_would_mean_something_else_is_refused(requested: PCIAmount) -> None:
    with pytest.raises(CannotDowngrade, match="request 0 has"):
        dump_pci_requests(requested)


def test_wrong_arguments_are_refused() -> None:
    with raises_code("InvalidField", match="leave_out"):
        dump_pci_requests(None, leave_out=["count"])
    with raises_code("WrongAmountKind"):
        dump_pci_requests(IntegerAmount(1))  # type: ignore[arg-type]


# --- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("{", "pci_requests: got '{', expected JSON"),
        (5, "pci_requests: got 5, expected a list"),
        ({}, "pci_requests.nova_object.name: got None"),
        ([5], "pci_requests[0]: got 5, expected an object"),
        ([request(IDS, count=0)], "pci_requests[0].count: got 0"),
        ([request(IDS, count="1")], "pci_requests[0].count: got '1'"),
        ([request()], "pci_requests[0]: alternatives"),
        ([request(5)], "pci_requests[0].spec[0]: got 5"),  # type: ignore[arg-type]
        ([request({"vendor_id": "x"})], "pci_requests[0].spec[0]: DeviceSpec.vendor_id"),
        ([request({"vendor_id": None})], "pci_requests[0].spec[0].vendor_id: got None"),
        ([request({"dev_type": "gpu"})], "pci_requests[0].spec[0]: DeviceSpec.types"),
        ([request({"address": "0000:04:00.0"})], "pci_requests[0].spec[0].address"),
        ([request({"colour": ["a"]})], "pci_requests[0].spec[0].colour"),
        ([request({**IDS, "rp_uuids": "a,b"})], "pci_requests[0]: providers"),
        ([request(IDS, numa_policy="near")], "pci_requests[0].numa_policy: got 'near'"),
        ([request(IDS, request_id=" ")], "pci_requests[0].request_id"),
        ([request(IDS), request(IDS, colour="blue")], "pci_requests[1].colour"),
        ([request(IDS)] * 1025, "pci_requests: device requests"),
        (sent("1.5", request(IDS)), "pci_requests[0].nova_object.version: got '1.5'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_reported_with_its_place(source: Any, place: str) -> None:
    with raises_code("InvalidPrimitive") as caught:
        load_pci_requests(source)
    assert str(caught.value).startswith(place)
