"""A flavor and its image as one topology: when there is one, what else is said, bad input."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import Amounts, Request
from resource_objects.exceptions import InvalidInput
from resource_objects.interop.nova import FlavorTopology, flavor_topology
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule
from resource_objects.resources.numa import NUMATopologyAmount
from tests.interop.nova.said import DEDICATED, TRAIT, amount, asked, breaks, refused

# --- a topology is made if, and only if, one of four is asked for ---


@pytest.mark.parametrize(
    "specs",
    [
        {"hw:numa_nodes": "1"},
        {"hw:mem_page_size": "small"},
        {"hw:pmem": "6GB"},
        {"hw:cpu_policy": "dedicated"},
        {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0"},
        {"resources:PCPU": "4"},
    ],
    ids=lambda specs: next(iter(specs)),
)
def test_each_of_these_makes_a_topology_of_one_cell(specs: dict[str, str]) -> None:
    made = amount(specs)
    assert len(made.cells) == 1
    assert (made.vcpus, made.memory_mb) == (4, 2048)


@pytest.mark.parametrize(
    "specs",
    [
        {},
        {"hw:cpu_policy": "shared"},
        {"resources:VCPU": "4"},
        {"hw:emulator_threads_policy": "share"},
        {"hw:locked_memory": "no"},
        {"hw:cpu_realtime_mask": "1"},
        {"hw:numa_cpus.0": "0-3", "hw:numa_mem.0": "2048"},
        {"hw:cpu_sockets": "2", "quota:cpu_shares": "5", "capabilities:x": "y"},
    ],
    ids=lambda specs: next(iter(specs), "nothing"),
)
def test_nothing_else_makes_one(specs: dict[str, str]) -> None:
    assert asked(specs) == FlavorTopology(4, 2048, None)


def test_all_cells_have_the_same_policies_and_page_size() -> None:
    made = amount(
        {
            "hw:numa_nodes": "2",
            "hw:cpu_policy": "dedicated",
            "hw:cpu_thread_policy": "require",
            "hw:emulator_threads_policy": "isolate",
            "hw:mem_page_size": "2MB",
        }
    )
    assert made == NUMATopologyAmount(
        made.cells, page_size=2048, thread_policy="require", emulator_policy="isolate"
    )
    assert made.cpu_policy == "dedicated"


# --- what a request asks for ---


def test_without_a_topology_a_request_asks_for_vcpus_and_memory() -> None:
    assert asked().resources == Amounts.from_value({"VCPU": 4, "MEMORY_MB": 2048})


def test_vcpus_of_the_flavor_are_vcpu_and_pcpu() -> None:
    mixed = asked({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0", "hw:pmem": "6GB"})
    counts = {str(k): v for k, v in mixed.resources.items() if str(k) != "NUMA_TOPOLOGY"}
    assert {k: v.value for k, v in counts.items()} == {
        "VCPU": 3,
        "PCPU": 1,
        "MEMORY_MB": 2048,
        "CUSTOM_PMEM_NAMESPACE_6GB": 1,
    }


def test_a_request_can_be_made_of_it() -> None:
    found = asked(DEDICATED | {"hw:numa_nodes": "2"})
    assert Request(found.resources).resources == found.resources.with_implied_counts()


def test_it_is_a_value() -> None:
    found = asked(DEDICATED | {"hw:pmem": "6GB"})
    assert found == asked(DEDICATED | {"hw:pmem": "6GB"})
    assert hash(found) == hash(asked(DEDICATED | {"hw:pmem": "6GB"}))
    assert pickle.loads(pickle.dumps(found)) == found


# --- words as they come ---


def test_empty_text_and_none_say_nothing() -> None:
    words = dict.fromkeys(
        [
            "numa_nodes",
            "cpu_policy",
            "cpu_thread_policy",
            "emulator_threads_policy",
            "cpu_realtime",
            "cpu_dedicated_mask",
            "mem_page_size",
            "locked_memory",
            "pmem",
        ],
        "",
    )
    specs = {f"hw:{name}": text for name, text in words.items()} | {"resources:PCPU": "", TRAIT: ""}
    assert asked(specs, {f"hw_{name}": None for name in words}).amount is None


def test_numbers_and_truth_values_are_read_as_text() -> None:
    specs = {"hw:numa_nodes": 2, "hw:mem_page_size": 2048, "hw:locked_memory": True}
    text = {"hw:numa_nodes": "2", "hw:mem_page_size": "2048", "hw:locked_memory": "true"}
    assert asked(specs) == asked(text)


@pytest.mark.parametrize("value", [2.0, ["2"], b"2", object()])
def test_another_value_is_refused_by_its_key(value: object) -> None:
    assert "hw:numa_nodes: got" in refused(NovaRule.NOT_WORDS, {"hw:numa_nodes": value})
    refused(NovaRule.NOT_WORDS, {}, {"hw_cpu_policy": value})


def test_a_number_that_no_key_has_is_refused() -> None:
    refused(NovaRule.NOT_WORDS, {"hw:numa_nodes": 10**5000})


@pytest.mark.parametrize("value", [None, "hw:numa_nodes=2", [("hw:numa_nodes", "2")], 7])
def test_words_are_a_mapping(value: Any) -> None:
    with breaks(NovaRule.NOT_WORDS):
        flavor_topology(4, 2048, extra_specs=value)
    with breaks(NovaRule.NOT_WORDS):
        flavor_topology(4, 2048, image=value)


@pytest.mark.parametrize("value", [0, -1, 2.0, "4", None, True, 2**40])
def test_a_flavor_has_vcpus_and_memory(value: Any) -> None:
    with breaks(NovaRule.INVALID_FLAVOR_SIZE, match="vcpus"):
        flavor_topology(value, 2048)
    with breaks(NovaRule.INVALID_FLAVOR_SIZE, match="memory_mb"):
        flavor_topology(4, value)


def test_the_words_are_left_as_they_are() -> None:
    specs, image = {"hw:mem_page_size": "large"}, {"hw_mem_page_size": "2MB"}
    asked(specs, image)
    assert specs == {"hw:mem_page_size": "large"}
    assert image == {"hw_mem_page_size": "2MB"}


# --- any words ---

NAMES = [
    *("numa_nodes", "cpu_policy", "cpu_thread_policy", "emulator_threads_policy", "cpu_realtime"),
    *("cpu_realtime_mask", "cpu_dedicated_mask", "mem_page_size", "locked_memory", "pmem"),
    *("numa_cpus.0", "numa_cpus.1", "numa_mem.0", "numa_mem.1"),
]
WORDS = [
    "dedicated",
    "mixed",
    "shared",
    "prefer",
    "require",
    "isolate",
    "share",
    "small",
    "large",
    "any",
    "required",
    "forbidden",
    "yes",
    "no",
    "true",
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "512",
    "1024",
    "1536",
    "2048",
    "2MB",
    "1GB",
    "6GB",
    "0-1",
    "2-3",
    "0-3",
    "^0",
    "^0-1",
    "0-9",
    "-1",
    "x",
]
VALUES = (
    st.sampled_from(WORDS)
    | st.text(max_size=12)
    | st.text("0123456789-,^kMGB. ", max_size=12)
    | st.integers()
    | st.sampled_from([None, True, False, 1.5, (), b"x"])
)
EXTRA = ["resources:PCPU", "resources:VCPU", "resources2:PCPU", TRAIT, "trait1:" + TRAIT[6:]]
SPECS = st.dictionaries(
    st.sampled_from([f"hw:{name}" for name in NAMES] + EXTRA), VALUES, max_size=5
)
IMAGE = st.dictionaries(
    st.sampled_from([f"hw_{name}" for name in NAMES] + [TRAIT]), VALUES, max_size=3
)
ANYTHING = st.dictionaries(st.text(max_size=8) | st.integers() | st.none(), VALUES, max_size=3)


@given(
    st.integers(1, 9) | st.just(4),
    st.sampled_from([2048, 1024, 1, 513]),
    st.builds(lambda a, b: a | b, ANYTHING, SPECS),
    st.builds(lambda a, b: a | b, ANYTHING, IMAGE),
)
def test_any_words_are_read_or_refused_by_a_rule(
    vcpus: int, memory_mb: int, specs: dict[Any, Any], image: dict[Any, Any]
) -> None:
    try:
        found = flavor_topology(vcpus, memory_mb, extra_specs=specs, image=image)
    except InvalidInput as error:
        assert isinstance(error, InvalidNovaInput), error
        assert str(error)
        return
    assert found == flavor_topology(vcpus, memory_mb, extra_specs=specs, image=image)
    if found.amount is not None:
        assert found.amount.vcpus == vcpus
        assert found.amount.memory_mb == memory_mb
        assert not found.amount.is_assigned
    counts = {str(name): value for name, value in found.resources.items()}
    isolated = found.amount is not None and found.amount.has_emulator
    cpus = [counts[name].value for name in ("VCPU", "PCPU") if name in counts]  # type: ignore[attr-defined]
    assert sum(cpus) == vcpus + isolated
