"""Devices that are allocated whole or in parts: their inventories and shares."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.partitions import add_partition, mediated, split, thousandths, type_class
from resource_objects.providers import Provider, Share, diff
from resource_objects.testing.refusals import raises_code

SLICE, MEMORY = "CUSTOM_GPU_SLICE", "CUSTOM_GPU_MEMORY_SLICE"
SLICES = {SLICE: 7, MEMORY: 8}
SMALL, LARGE = "CUSTOM_MIG_1G_10GB", "CUSTOM_MIG_3G_40GB"
PARTITIONS = {SMALL: {SLICE: 1, MEMORY: 1}, LARGE: {SLICE: 3, MEMORY: 4}}


def gpu(inventories: str = "PGPU=1") -> Provider:
    return Provider("host0/gpu0", inventories)


def totals(provider: Provider) -> dict[str, int]:
    return {
        record.resource_class: record.total
        for _, inventory in provider.inventories.by_name()
        for record in inventory.to_records()
    }


def used_by(provider: Provider) -> dict[str, dict[str, int]]:
    """Return the classes of the same provider that each class uses, with their amounts."""
    result: dict[str, dict[str, int]] = {}
    for share in provider.shares:
        assert share.of == provider.name
        result.setdefault(share.resource_class, {})[share.of_class] = share.factor
    return result


# --- the inventories of a device ---


def test_a_split_device_has_its_slices_its_partitions_and_itself() -> None:
    device = gpu("")
    assert split(device, "PGPU", SLICES, PARTITIONS) is device
    assert totals(device) == {"PGPU": 1, **SLICES, SMALL: 7, LARGE: 2}
    assert used_by(device) == {"PGPU": SLICES, **PARTITIONS}
    diff(None, device)


def test_a_device_that_counts_itself_already_remains_as_it_is() -> None:
    device = Provider(
        "host0/gpu0", "PGPU=1:max_unit=1,CUSTOM_POWER=300", traits=["CUSTOM_H100"], uuid=UUID
    )
    split(device, "PGPU", SLICES)
    assert str(device.inventories["PGPU"].max_unit) == "1"  # type: ignore[attr-defined]
    assert (totals(device)["CUSTOM_POWER"], device.uuid) == (300, UUID)
    assert device.traits == frozenset({"CUSTOM_H100"})


UUID = "1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"


def test_a_device_that_no_consumer_may_have_whole() -> None:
    device = split(gpu(""), None, SLICES, PARTITIONS)
    assert totals(device) == {**SLICES, SMALL: 7, LARGE: 2}
    assert used_by(device) == PARTITIONS


def test_shares_that_are_there_remain() -> None:
    """
    host0           CUSTOM_POWER=2000
    +- host0/gpu0   PGPU=1, which uses 700 of it
    """
    host = Provider("host0", "CUSTOM_POWER=2000")
    power = Share(resource_class="PGPU", of="host0", of_class="CUSTOM_POWER", factor=700)
    device = host.add("host0/gpu0", "PGPU=1", shares=[power])
    split(device, "PGPU", SLICES)
    assert device.shares[0] == power
    assert len(device.shares) == 3
    diff(None, host)


@pytest.mark.parametrize(
    ("uses", "most"),
    [
        ({SLICE: 1}, 7),
        ({SLICE: 2}, 3),
        ({SLICE: 1, MEMORY: 2}, 4),
        ({SLICE: 7, MEMORY: 8}, 1),
        ({MEMORY: 8}, 1),
        ({SLICE: 4, MEMORY: 1}, 1),
    ],
    ids=str,
)
def test_of_a_partition_there_are_as_many_as_could_exist_at_most(
    uses: dict[str, int], most: int
) -> None:
    assert totals(split(gpu(), "PGPU", SLICES, {SMALL: uses}))[SMALL] == most


def test_slices_alone_may_be_requested_by_their_number() -> None:
    device = split(gpu(""), "PGPU", {"CUSTOM_GPU_MEMORY_MB": 81_920})
    assert used_by(device) == {"PGPU": {"CUSTOM_GPU_MEMORY_MB": 81_920}}


def test_a_fraction_is_counted_in_thousandths() -> None:
    device = thousandths(gpu())
    assert totals(device) == {"PGPU": 1, "CUSTOM_PGPU_THOUSANDTHS": 1000}
    assert used_by(device) == {"PGPU": {"CUSTOM_PGPU_THOUSANDTHS": 1000}}


def test_fractions_may_have_names() -> None:
    device = thousandths(
        Provider("fpga0"),
        device_class="FPGA",
        fraction="CUSTOM_T",
        partitions={"CUSTOM_THIRD": 333},
    )
    assert totals(device) == {"FPGA": 1, "CUSTOM_T": 1000, "CUSTOM_THIRD": 3}


def test_a_partition_may_be_a_provider_of_its_own() -> None:
    host = Provider("host0")
    card = split(host.add("host0/card"), "CUSTOM_FPGA_CARD", {"CUSTOM_REGION": 2})
    region = add_partition(
        card, "host0/card/region0", "FPGA", {"CUSTOM_REGION": 1}, traits=["CUSTOM_AES"]
    )
    assert totals(region) == {"FPGA": 1}
    assert region.traits == frozenset({"CUSTOM_AES"})
    assert [str(share) for share in region.shares] == ["FPGA uses 1 CUSTOM_REGION of host0/card"]
    assert card.children == (region,)
    diff(None, host)


# --- mediated devices ---


def test_one_of_n_is_one_nth_of_the_device() -> None:
    device = mediated(gpu(""), {"nvidia-35": 16, "nvidia-36": 10, "nvidia-38": 4}, mixed=True)
    assert totals(device) == {
        "CUSTOM_MDEV_SHARE": 80,
        "CUSTOM_NVIDIA_35": 16,
        "CUSTOM_NVIDIA_36": 10,
        "CUSTOM_NVIDIA_38": 4,
    }
    assert [uses["CUSTOM_MDEV_SHARE"] for uses in used_by(device).values()] == [5, 8, 20]


def test_the_type_a_device_is_configured_for_is_there_alone() -> None:
    device = mediated(
        gpu(), {"nvidia-35": 16, "nvidia-38": 4}, device_class="PGPU", only="nvidia-38"
    )
    assert totals(device) == {"PGPU": 1, "CUSTOM_NVIDIA_38": 4}
    assert used_by(device) == {"PGPU": {"CUSTOM_NVIDIA_38": 4}}


def test_one_type_needs_no_measure() -> None:
    assert totals(mediated(gpu(""), {"VGPU": 16})) == {"VGPU": 16}


@pytest.mark.parametrize(
    ("types", "are_apart"),
    [
        ({"a": 1, "b": 1}, True),
        ({"a": 1, "b": 16}, True),
        ({"a": 1, "b": 16, "c": 1}, True),
        ({"a": 2, "b": 2}, False),
        ({"a": 4, "b": 16, "c": 1}, False),
    ],
    ids=str,
)
def test_types_are_stored_apart_or_refused(types: dict[str, int], are_apart: bool) -> None:
    if not are_apart:
        with pytest.raises(exceptions.InvalidInventory, match="shares cannot keep others apart"):
            mediated(gpu(""), types)
        return
    uses = used_by(device := mediated(gpu(""), types))
    measure = totals(device)["CUSTOM_MDEV_SHARE"]
    for item, other in itertools.combinations(uses.values(), 2):
        assert item["CUSTOM_MDEV_SHARE"] + other["CUSTOM_MDEV_SHARE"] > measure


@pytest.mark.parametrize(("a", "b"), [(a, b) for a in range(1, 7) for b in range(1, 7)])
def test_shares_keep_types_apart_only_if_there_is_one_of_either(a: int, b: int) -> None:
    """All linear rules with small factors: those that allow a of A and b of B, but not one of each.

    A rule that allows the first two and not one of each exists exactly if a or b is 1, which the
    module proves for all rules.
    """
    bounds = range(1, a * b + 1)
    rules = [
        (k_a, k_b, bound)
        for bound in bounds
        for k_a in range(bound // a + 1)
        for k_b in range(bound // b + 1)
    ]
    separate = [rule for rule in rules if rule[0] + rule[1] > rule[2]]
    assert bool(separate) is (a == 1 or b == 1)


@hypothesis.given(
    st.integers(1, 2000), st.lists(st.integers(1, 500), min_size=2, max_size=4, unique=True)
)
def test_a_measure_never_allows_more_than_fits_into_memory(memory: int, sizes: list[int]) -> None:
    sizes = [size for size in sizes if size <= memory]
    hypothesis.assume(len(sizes) > 1)
    types = {f"type-{size}": memory // size for size in sizes}
    try:
        device = mediated(gpu(""), types, mixed=True)
    except exceptions.InvalidInventory:
        return
    measure, uses = totals(device)["CUSTOM_MDEV_SHARE"], used_by(device)
    shares = [uses[type_class(f"type-{size}")]["CUSTOM_MDEV_SHARE"] for size in sizes]
    for first in range(types[f"type-{sizes[0]}"] + 1):
        second = (measure - first * shares[0]) // shares[1]  # as many as the measure allows
        assert first * sizes[0] + second * sizes[1] <= memory


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvidia-35", "CUSTOM_NVIDIA_35"),
        ("i915-GVTg_V5_4", "CUSTOM_I915_GVTG_V5_4"),
        ("VGPU", "VGPU"),
        ("CUSTOM_A40_8Q", "CUSTOM_A40_8Q"),
    ],
)
def test_a_type_has_a_class(name: str, expected: str) -> None:
    assert type_class(name) == expected


# --- what cannot be ---


@pytest.mark.law(8)
@pytest.mark.parametrize(
    ("error", "full", "slices", "partitions", "says"),
    [
        (exceptions.InvalidInventory, "PGPU", {}, {}, "at least one"),
        (exceptions.InvalidInventory, "PGPU", [SLICE], {}, "a mapping by resource class"),
        (exceptions.InvalidInventory, "PGPU", SLICES, [SMALL], "a mapping by resource class"),
        (exceptions.InvalidInventory, "PGPU", SLICES, {SMALL: {}}, "at least one slice"),
        (exceptions.InvalidInventory, "PGPU", SLICES, {SMALL: 1}, "a mapping by resource class"),
        (exceptions.InvalidInventory, "PGPU", SLICES, {SMALL: {SLICE: 8}}, "at most the 7"),
        (exceptions.InvalidInventory, "PGPU", SLICES, {SMALL: {"VGPU": 1}}, "one of CUSTOM_GPU_"),
        (
            exceptions.InvalidInventory,
            "PGPU",
            SLICES,
            {SMALL: {LARGE: 1}, LARGE: {SLICE: 1}},
            "one of",
        ),
        (exceptions.InvalidInventory, "PGPU", SLICES, {SMALL: {"PGPU": 1}}, "one of CUSTOM_GPU_"),
        (exceptions.InvalidInventory, "PGPU", {"NUMA_TOPOLOGY": 2}, {}, "one that is counted"),
        (exceptions.InvalidInventory, "NUMA_TOPOLOGY", SLICES, {}, "one that is counted"),
        ("InvalidAmount", "PGPU", {SLICE: 0}, {}, "from 1 to"),
        ("InvalidAmount", "PGPU", {SLICE: True}, {}, "from 1 to"),
        ("InvalidAmount", "PGPU", {SLICE: 7.0}, {}, "from 1 to"),
        ("InvalidAmount", "PGPU", {SLICE: 2**31}, {}, "from 1 to"),
        ("InvalidAmount", "PGPU", SLICES, {SMALL: {SLICE: 0}}, "from 1 to"),
        ("InvalidAmount", "PGPU", SLICES, {SMALL: {SLICE: -1}}, "from 1 to"),
        ("InvalidAmount", "PGPU", SLICES, {SMALL: {SLICE: "1"}}, "from 1 to"),
        ("DuplicateKey", "PGPU", {SLICE: 7, "PGPU": 1}, {}, "each once"),
        ("DuplicateKey", "PGPU", SLICES, {SLICE: {MEMORY: 1}}, "each once"),
        ("DuplicateKey", "PGPU", SLICES, {"PGPU": {MEMORY: 1}}, "each once"),
        ("DuplicateKey", "PGPU", {"CUSTOM_POWER": 7}, {}, "each once"),
        ("DuplicateKey", "PGPU", SLICES, {"CUSTOM_POWER": {SLICE: 1}}, "each once"),
        ("UnknownResourceClass", "PGPU", {"GPU_SLICE": 7}, {}, "GPU_SLICE"),
        ("UnknownResourceClass", "GPU", SLICES, {}, "PGPU"),
        ("InvalidResourceClass", "PGPU", SLICES, {"mig": {SLICE: 1}}, "mig"),
        ("InvalidResourceClass", "", SLICES, {}, "resource class"),
        (exceptions.InvalidInventory, "CUSTOM_POWER", SLICES, {}, "1: the device itself"),
        (exceptions.InvalidInventory, None, SLICES, {}, "PGPU, which it has already"),
    ],
)
def test_what_cannot_be_split_so_is_refused_and_nothing_changed(
    error: type[exceptions.InvalidInput], full: Any, slices: Any, partitions: Any, says: str
) -> None:
    device = gpu("PGPU=1,CUSTOM_POWER=300")
    before = device.obj_to_primitive()
    with raises_code(error, match=says):
        split(device, full, slices, partitions)
    assert device.obj_to_primitive() == before


@pytest.mark.law(8)
@pytest.mark.parametrize("inventories", ["PGPU=4", "PGPU=2:reserved=2", "PGPU=1:reserved=1"])
def test_several_devices_in_one_inventory_cannot_be_split(inventories: str) -> None:
    with pytest.raises(exceptions.InvalidInventory, match="the device itself"):
        split(gpu(inventories), "PGPU", SLICES)


@pytest.mark.law(8)
def test_what_is_split_is_not_split_again() -> None:
    device = split(gpu(), "PGPU", SLICES)
    before = device.obj_to_primitive()
    with raises_code("DuplicateKey"):
        split(device, "PGPU", SLICES)
    with raises_code("DuplicateKey"):
        split(device, "FPGA", SLICES)
    assert device.obj_to_primitive() == before


@pytest.mark.law(8)
@pytest.mark.parametrize(
    ("error", "value"),
    [
        ("InvalidAmount", {"partitions": {"CUSTOM_NONE": 0}}),
        ("InvalidAmount", {"partitions": {"CUSTOM_HALF": 0.5}}),
        (exceptions.InvalidInventory, {"partitions": {"CUSTOM_MORE": 1001}}),
        (exceptions.InvalidInventory, {"partitions": [("CUSTOM_HALF", 500)]}),
        ("DuplicateKey", {"fraction": "PGPU"}),
        ("DuplicateKey", {"partitions": {"PGPU": 1000}}),
    ],
    ids=str,
)
def test_what_is_no_fraction_is_refused_and_nothing_changed(
    error: type[Exception] | str, value: dict[str, Any]
) -> None:
    device = gpu()
    before = device.obj_to_primitive()
    with raises_code(error):
        thousandths(device, **value)
    assert device.obj_to_primitive() == before


@pytest.mark.law(8)
@pytest.mark.parametrize(
    ("error", "types", "value"),
    [
        (exceptions.InvalidInventory, {}, {}),
        (exceptions.InvalidInventory, [("nvidia-35", 16)], {}),
        (exceptions.InvalidInventory, {"a": 16, "b": 4}, {"only": "c"}),
        (exceptions.InvalidInventory, {"a": 2**30, "b": 3**19}, {"mixed": True}),
        ("InvalidAmount", {"nvidia-35": 0}, {}),
        ("InvalidAmount", {"nvidia-35": 16.0}, {}),
        ("InvalidResourceClass", {"": 16}, {}),
        ("InvalidResourceClass", {35: 16}, {}),
        ("InvalidResourceClass", {"CUSTOM_a": 16}, {}),
        ("DuplicateKey", {"nvidia-35": 16, "nvidia_35": 4}, {"mixed": True}),
        ("DuplicateKey", {"a": 16, "b": 4}, {"mixed": True, "measure": "CUSTOM_A"}),
    ],
    ids=str,
)
def test_types_that_cannot_be_are_refused_and_nothing_changed(
    error: type[Exception] | str, types: Any, value: dict[str, Any]
) -> None:
    device = gpu("")
    before = device.obj_to_primitive()
    with raises_code(error):
        mediated(device, types, **value)
    assert device.obj_to_primitive() == before


@pytest.mark.law(8)
@pytest.mark.parametrize(
    ("error", "name", "kind", "uses"),
    [
        (exceptions.InvalidInventory, "p", "FPGA", {}),
        (exceptions.InvalidInventory, "p", "FPGA", {"CUSTOM_REGION": 3}),
        (exceptions.InvalidInventory, "p", "FPGA", {"CUSTOM_OTHER": 1}),
        (exceptions.InvalidInventory, "p", "NUMA_TOPOLOGY", {"CUSTOM_REGION": 1}),
        ("InvalidAmount", "p", "FPGA", {"CUSTOM_REGION": 0}),
        ("UnknownResourceClass", "p", "REGION", {"CUSTOM_REGION": 1}),
        ("InvalidName", " ", "FPGA", {"CUSTOM_REGION": 1}),
        (exceptions.InvalidTree, "card", "FPGA", {"CUSTOM_REGION": 1}),
    ],
)
def test_a_partition_that_cannot_be_is_not_added(
    error: type[Exception] | str, name: str, kind: str, uses: Any
) -> None:
    card = split(Provider("card"), None, {"CUSTOM_REGION": 2})
    before = card.obj_to_primitive()
    with raises_code(error):
        add_partition(card, name, kind, uses)
    assert card.obj_to_primitive() == before


@pytest.mark.law(8)
@pytest.mark.parametrize("subject", ["gpu0", None, ro.Inventories("PGPU=1")], ids=repr)
def test_only_providers_are_split(subject: Any) -> None:
    with pytest.raises(exceptions.InvalidTree):
        split(subject, "PGPU", SLICES)
    with pytest.raises(exceptions.InvalidTree):
        add_partition(subject, "part", "PGPU", {SLICE: 1})


# --- stored shares ---

_counts: st.SearchStrategy[Mapping[str, int]] = st.dictionaries(
    st.sampled_from(["CUSTOM_S1", "CUSTOM_S2", "CUSTOM_S3"]), st.integers(1, 9), min_size=1
)


@hypothesis.given(_counts, st.lists(_counts, max_size=3), st.booleans())
def test_whatever_is_split_is_a_tree_a_sync_takes(
    slices: dict[str, int], expected: list[dict[str, int]], has_whole: bool
) -> None:
    partitions = {f"CUSTOM_P{n}": uses for n, uses in enumerate(expected)}
    fits = all(k <= slices.get(s, 0) for uses in expected for s, k in uses.items())
    device = Provider("device")
    if not fits:
        with pytest.raises(exceptions.InvalidInventory):
            split(device, "PGPU" if has_whole else None, slices, partitions)
        assert not device.inventories
        return
    split(device, "PGPU" if has_whole else None, slices, partitions)
    diff(None, device)
    assert Provider.obj_from_primitive(device.obj_to_primitive()) == device
    for name, uses in partitions.items():
        count = totals(device)[name]
        assert all(count * k <= slices[s] for s, k in uses.items())
        assert any((count + 1) * k > slices[s] for s, k in uses.items())
