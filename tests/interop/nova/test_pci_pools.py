"""``compute_nodes.pci_stats``: both forms in every version, written in the newest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.exceptions import CannotDowngrade, InvalidInventory
from resource_objects.interop.nova import DevicePool, dump_pci_pools, load_pci_pools
from resource_objects.testing.refusals import raises_code
from tests.interop.nova.pci_documents import PROVIDER, plain, pool, pools


def loaded(**changed: Any) -> DevicePool:
    """Return the pool that tags make."""
    (result,) = load_pci_pools(pools(pool(**changed)))
    return result


def tags_of(text: str) -> list[dict[str, Any]]:
    """Return the tags of each pool that was written."""
    objects = json.loads(text)["nova_object.data"]["objects"]
    return [item["nova_object.data"]["tags"] for item in objects]


def unchanged(document: Any) -> Any:
    """Return a document without its changed fields, which are not written."""
    if isinstance(document, list):
        return [unchanged(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {
        key: unchanged(value) for key, value in document.items() if key != "nova_object.changes"
    }


# --- what each key is -----------------------------------------------------------------------------


def test_a_pool_of_the_newest_version_says_all_it_says() -> None:
    assert loaded() == DevicePool(
        "8086",
        "154c",
        6,
        "type-VF",
        address="0000:04:00.0",
        numa_node=0,
        tags={
            "parent_ifname": "enp4s0",
            "physical_network": "red",
            "trusted": "true",
            "managed": "false",
        },
        live_migratable=True,
        facts={"rp_uuid": PROVIDER},
    )


def written(result: Any) -> list[dict[str, Any]]:
    """Return pools as they are written, each as a dict of its fields and tags."""
    document = json.loads(dump_pci_pools(result))
    return [plain(item) for item in document["nova_object.data"]["objects"]]


def test_the_keys_of_a_pool_are_those_of_its_devices_and_its_place() -> None:
    """c.3, pool key: product, vendor, node, type, tags, address, interface, remote_managed."""
    keys = set(plain(pool()))
    assert keys == set(written([loaded()])[0])


def test_a_key_that_is_unknown_is_a_tag() -> None:
    assert loaded(colour="Blue").tags["colour"] == "Blue"


def test_a_tag_that_is_null_is_not_there_and_returns() -> None:
    """A tunneled network is ``physical_network: null`` in ``device_spec``."""
    result = loaded(physical_network=None)
    assert "physical_network" not in result.tags
    assert result.facts["physical_network"] == "null"
    assert tags_of(dump_pci_pools([result]))[0]["physical_network"] is None


@pytest.mark.parametrize("number", [3, -1, 2.5, True])
def test_a_number_among_the_tags_is_the_text_that_nova_makes_of_it(number: Any) -> None:
    assert loaded(colour=number).tags["colour"] == str(number)


@pytest.mark.parametrize(
    ("values", "is_so"),
    [("true", True), ("True", True), ("yes", True), ("maybe", False), ("", False)],
)
def test_remote_managed_is_read_as_nova_reads_it_and_written_as_it_was(
    values: str, is_so: bool
) -> None:
    """c.3, pool key: ``remote_managed`` of functions that can be split or are."""
    result = loaded(remote_managed=values)
    assert result.remote_managed is is_so
    assert tags_of(dump_pci_pools([result]))[0]["remote_managed"] == values


def test_remote_managed_is_written_of_what_can_be_split_or_was() -> None:
    kinds = ["type-PCI", "type-PF", "type-VF", "vdpa"]
    text = dump_pci_pools([DevicePool("8086", "154c", 1, kind) for kind in kinds])
    assert [values.get("remote_managed") for values in tags_of(text)] == [None, *["false"] * 3]
    remote = DevicePool("8086", "154c", 1, remote_managed=True)
    assert tags_of(dump_pci_pools([remote]))[0]["remote_managed"] == "true"


@pytest.mark.parametrize(("values", "value"), [("true", True), ("False", False), (..., None)])
def test_whether_devices_can_migrate_is_a_field(values: Any, value: bool | None) -> None:
    assert loaded(live_migratable=values).live_migratable is value


@pytest.mark.parametrize("name", ["live_migratable", "one_time_use"])
def test_a_word_that_no_request_of_novas_requests_is_a_tag(name: str) -> None:
    result = loaded(**{name: "perhaps"})
    assert (result.tags[name], result.live_migratable is None) == ("perhaps", name[0] == "l")


def test_one_time_use_and_the_names_of_placement_are_fields() -> None:
    result = loaded(one_time_use="true", resource_class="gpu-vf", traits="big,blue")
    assert result.one_time_use
    assert (result.resource_class, result.traits) == (
        "CUSTOM_GPU_VF",
        frozenset({"CUSTOM_BIG", "CUSTOM_BLUE"}),
    )
    assert tags_of(dump_pci_pools([result]))[0]["traits"] == "big,blue"


def test_names_of_placement_are_written_where_they_are_not_those_of_the_ids() -> None:
    text = dump_pci_pools(
        [
            DevicePool("10de", "2330", 1),
            DevicePool("10de", "2330", 1, resource_class="PGPU", traits=["CUSTOM_B", "CUSTOM_A"]),
        ]
    )
    first, second = tags_of(text)
    assert "resource_class" not in first
    assert (second["resource_class"], second["traits"]) == ("PGPU", "CUSTOM_A,CUSTOM_B")


def test_a_pool_from_before_there_were_types_is_of_what_cannot_be_split() -> None:
    result = loaded(dev_type=...)
    assert result.type == "type-PCI"
    assert "dev_type" not in tags_of(dump_pci_pools([result]))[0]


# --- there and back -------------------------------------------------------------------------------


@pytest.mark.parametrize("as_text", [False, True])
def test_a_document_is_written_as_it_was(as_text: bool) -> None:
    document = pools(pool(), pool(colour="blue"))
    result = load_pci_pools(json.dumps(document) if as_text else document)
    assert json.loads(dump_pci_pools(result)) == unchanged(document)


def test_a_document_of_an_older_version_is_written_in_the_newest() -> None:
    old = pools(pool("1.0"), pool("1.0", colour="blue"), version="1.0")
    new = json.loads(dump_pci_pools(load_pci_pools(old)))
    for item in old["nova_object.data"]["objects"]:
        item["nova_object.data"]["numa_node"] = None
        item["nova_object.version"] = "1.1"
    old["nova_object.version"] = "1.1"
    assert new == unchanged(old)


@pytest.mark.parametrize("dropped", [(), ("numa_node",), ("dev_type", "address"), ("rp_uuid",)])
def test_a_list_of_dicts_is_written_in_the_same_words(dropped: tuple[str, ...]) -> None:
    values = {key: value for key, value in plain(pool()).items() if key not in dropped}
    result = load_pci_pools([values, {**values, "numa_node": None}])
    assert written(result) == [{"numa_node": None, **values}, {**values, "numa_node": None}]


def test_a_dict_individually_is_a_list_of_one() -> None:
    assert load_pci_pools(plain(pool())) == load_pci_pools([plain(pool())])


@pytest.mark.parametrize("nothing", [None, "[]", "{}", "null", [], {}, (), pools()], ids=repr)
def test_no_pools_are_no_pools(nothing: Any) -> None:
    assert load_pci_pools(nothing) == ()


WORDS = st.sampled_from(
    ["", "null", '"', "true", "True", "false", "yes", "gpu", "type-PF", "A", "0000:04:00.1"]
)
NAMES = st.sampled_from(
    ["remote_managed", "live_migratable", "one_time_use", "physical_network", "managed", "x"]
)


@given(
    st.fixed_dictionaries(
        {"vendor_id": st.sampled_from(["10de", "10DE"]), "count": st.integers(0, 9)},
        optional={
            "dev_type": st.sampled_from(["type-PCI", "type-PF", "type-VF", "vdpa", ""]) | st.none(),
            "address": st.sampled_from(["0000:04:00.0", "0000:0A:1F.7"]) | st.none(),
            "numa_node": st.none() | st.integers(0, 3),
            "rp_uuid": st.just(PROVIDER) | st.just("null"),
            "resource_class": st.sampled_from(["gpu", "PGPU", "CUSTOM_PCI_10DE_2330", ""]),
            "traits": st.sampled_from(["", "a,b", "b,a", " a", "HW_NIC_SRIOV"]),
        },
    ),
    st.dictionaries(NAMES, WORDS | st.none()),
)
def test_whatever_is_read_is_written_as_it_was(
    fields: dict[str, Any], tags: dict[str, str | None]
) -> None:
    values = {"product_id": "2330", **tags, **fields}
    result = load_pci_pools([values])
    assert written(result) == [{"numa_node": None, **values}]
    assert load_pci_pools(dump_pci_pools(result)) == result


@given(
    st.builds(
        DevicePool,
        st.just("10de"),
        st.just("2330"),
        st.integers(0, 65536),
        st.sampled_from(["type-PCI", "type-PF", "type-VF", "vdpa"]),
        resource_class=st.sampled_from([None, "PGPU", "CUSTOM_A"]),
        address=st.sampled_from([None, "0000:04:00.0"]),
        numa_node=st.none() | st.integers(0, 65535),
        tags=st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=3)),
        traits=st.sets(st.sampled_from(["CUSTOM_A", "HW_NIC_SRIOV"])),
        remote_managed=st.booleans(),
        live_migratable=st.sampled_from([None, True, False]),
        one_time_use=st.booleans(),
    )
)
def test_whatever_is_written_is_read_again(pool: DevicePool) -> None:
    assert load_pci_pools(dump_pci_pools([pool])) == (pool,)


def test_facts_that_are_not_true_any_more_are_not_written() -> None:
    result = loaded(remote_managed="True").replace(remote_managed=False, count=1)
    assert tags_of(dump_pci_pools([result]))[0]["remote_managed"] == "false"
    wrong = loaded().replace(facts={"address": "nowhere"})
    assert tags_of(dump_pci_pools([wrong]))[0]["address"] == "0000:04:00.0"


# --- values without a form in Nova ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (DevicePool("10de", "2330", 1, class_code="0302"), "class_code"),
        (DevicePool("10de", "2330", 1, facts={"driver": "vfio"}), "facts"),
    ],
    ids=["class code", "facts"],
)
def test_what_there_is_no_word_for_is_refused_or_left_out_when_reported(
    value: DevicePool, name: str
) -> None:
    with pytest.raises(CannotDowngrade, match="PciDevicePool cannot be expressed in version 1"):
        dump_pci_pools([value])
    again = load_pci_pools(dump_pci_pools([value], leave_out=[name]))
    assert [item.count for item in again] == [1]


def test_only_what_there_may_be_no_word_for_can_be_left_out() -> None:
    with raises_code("InvalidField", match="leave_out"):
        dump_pci_pools([], leave_out=["count"])


@pytest.mark.parametrize("value", [None, 5, "x", [1], [{}]], ids=repr)
def test_what_is_no_pool_is_not_written(value: Any) -> None:
    with pytest.raises(InvalidInventory, match="DevicePool"):
        dump_pci_pools(value)


# --- what is wrong --------------------------------------------------------------------------------

GOOD = {"vendor_id": "10de", "product_id": "2330", "count": 1}


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("[", "pci_stats: got '[', expected JSON"),
        (5, "pci_stats: got 5, expected a list"),
        ("5", "pci_stats: got 5, expected a list"),
        ([5], "pci_stats[0]"),
        ([{**GOOD, "vendor_id": "x"}], "pci_stats[0]: DevicePool.vendor_id: got 'x'"),
        ([{**GOOD, "vendor_id": None}], "pci_stats[0]: DevicePool.vendor_id: got None"),
        ([{"count": 1}], "pci_stats[0]"),
        ([{**GOOD, "count": -1}], "pci_stats[0].count: got -1"),
        ([{**GOOD, "count": "1"}], "pci_stats[0].count: got '1'"),
        ([{**GOOD, "count": True}], "pci_stats[0].count: got True"),
        ([{**GOOD, "numa_node": "0"}], "pci_stats[0].numa_node: got '0'"),
        ([{**GOOD, "dev_type": "type-GPU"}], "pci_stats[0]: DevicePool.type: got 'type-GPU'"),
        ([{**GOOD, "address": "10000:00:02.0"}], "pci_stats[0]: PCI address"),
        ([{**GOOD, "tag": ["a"]}], "pci_stats[0].tags.tag: got ['a']"),
        ([{**GOOD, "tag": {}}], "pci_stats[0].tags.tag: got {}"),
        ([{**GOOD, "": "a"}], "pci_stats[0]"),
        ([{**GOOD, "resource_class": "CUSTOM_A-B"}], "pci_stats[0]: resource class"),
        (pools(version="1.2"), "pci_stats.nova_object.version: got '1.2'"),
        (pools(pool("1.1"), {"x": 1}), "pci_stats[1].nova_object.name"),
        (pools(pool(vendor_id="10de")), "pci_stats[0].tags.vendor_id: got '10de'"),
        ({"nova_object.name": "PciDevice"}, "pci_stats.nova_object.name: got 'PciDevice'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_reported_with_its_place(source: Any, place: str) -> None:
    with raises_code("InvalidPrimitive") as caught:
        load_pci_pools(source)
    assert str(caught.value).startswith(place)
