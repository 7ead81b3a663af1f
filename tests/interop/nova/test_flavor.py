"""A flavor and its image as one topology: the examples of ``flavors.yaml``, and any input."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from resource_objects import Amounts, Request
from resource_objects.exceptions import InvalidInput
from resource_objects.interop.nova import FlavorTopology, flavor_topology
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule
from resource_objects.resources.numa import NUMATopologyAmount
from tests.interop.nova.refusals import breaks

EXAMPLES = yaml.safe_load(Path(__file__).with_name("flavors.yaml").read_text("utf-8"))
DEDICATED = {"hw:cpu_policy": "dedicated"}
TRAIT = "trait:HW_CPU_HYPERTHREADING"


def topology(
    specs: dict[str, Any] | None = None,
    image: dict[str, Any] | None = None,
    sizes: dict[str, int] | None = None,
) -> FlavorTopology:
    """Return the topology of a flavor of 4 vCPUs and 2048 MiB, or of other sizes."""
    all_sizes = {"vcpus": 4, "memory_mb": 2048, **(sizes or {})}
    return flavor_topology(**all_sizes, extra_specs=specs or {}, image=image or {})


def described(result: FlavorTopology) -> str:
    """Return a topology as the examples write it."""
    words = ["none" if result.amount is None else str(result.amount)]
    if result.realtime:
        words.append("realtime=" + "+".join(map(str, result.realtime)))
    if result.locked_memory:
        words.append("locked")
    return " ".join([*words, *(f"{name}={count}" for name, count in result.pmem.items())])


def refused_examples() -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    for rule, by_subject in EXAMPLES["refused"].items():
        for subject, examples in by_subject.items():
            for example in examples:
                yield rule, subject, example


@pytest.mark.parametrize(
    ("expected", "example"),
    [(text, example) for text, rows in EXAMPLES["accepted"].items() for example in rows],
    ids=str,
)
def test_a_topology_is_made_of_the_words(expected: str, example: list[dict[str, Any]]) -> None:
    before = repr(example)
    result = topology(*example)
    assert described(result) == expected and repr(example) == before
    sizes = example[2] if len(example) > 2 else {}
    assert (result.vcpus, result.memory_mb) == (sizes.get("vcpus", 4), sizes.get("memory_mb", 2048))
    if result.amount is None:
        assert result == FlavorTopology(result.vcpus, result.memory_mb, None)
    else:
        assert result.amount.vcpus == result.vcpus
        assert result.amount.memory_mb == result.memory_mb
        assert result.amount == NUMATopologyAmount.parse(str(result.amount))


@pytest.mark.parametrize(("rule", "subject", "example"), list(refused_examples()), ids=str)
def test_words_are_refused_by_one_rule(
    rule: str, subject: str, example: list[dict[str, Any]]
) -> None:
    with breaks(NovaRule[rule]) as caught:
        topology(*example)
    assert caught.value.what == subject


def test_cells_are_described_up_to_128() -> None:
    for count in (128, 129):
        words = {"hw:numa_nodes": str(count)}
        for number in range(count):
            words |= {f"hw:numa_cpus.{number}": str(number), f"hw:numa_mem.{number}": "16"}
        sizes = {"vcpus": count, "memory_mb": 16 * count}
        if count == 128:
            amount = topology(words, sizes=sizes).amount
            assert amount is not None and len(amount.cells) == 128
        else:
            with breaks(NovaRule.CELLS_INCOMPLETE):
                topology(words, sizes=sizes)


# --- the request --------------------------------------------------------------------------------


def test_without_a_topology_a_request_has_vcpus_and_memory() -> None:
    assert topology().resources == Amounts.from_value({"VCPU": 4, "MEMORY_MB": 2048})


def test_vcpus_are_counted_as_vcpu_and_pcpu() -> None:
    mixed = topology({"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0", "hw:pmem": "6GB"})
    counts = {k.name: str(v) for k, v in mixed.resources.items() if k.name != "NUMA_TOPOLOGY"}
    assert counts == {
        "VCPU": "3",
        "PCPU": "1",
        "MEMORY_MB": "2048",
        "CUSTOM_PMEM_NAMESPACE_6GB": "1",
    }
    isolated = topology(DEDICATED | {"hw:emulator_threads_policy": "isolate"}).amount
    assert isolated is not None
    assert isolated.placed_counts == {"PCPU": 5, "MEMORY_MB": 2048}
    request = topology(DEDICATED | {"hw:numa_nodes": "2"})
    assert Request(request.resources).resources == request.resources.with_implied_counts()


def test_it_is_a_value() -> None:
    values = [topology(DEDICATED | {"hw:pmem": "6GB"}) for _ in range(2)]
    assert values[0] == values[1] and hash(values[0]) == hash(values[1])
    assert pickle.loads(pickle.dumps(values[0])) == values[0]


# --- other input --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [2.0, ["2"], b"2", object(), 10**5000], ids=type)
def test_a_value_that_is_no_text_is_refused_by_its_key(value: object) -> None:
    with breaks(NovaRule.NOT_WORDS) as caught:
        topology({"hw:numa_nodes": value})
    assert caught.value.what == "hw:numa_nodes"
    with breaks(NovaRule.NOT_WORDS):
        topology({}, {"hw_cpu_policy": value})


def test_a_long_label_is_refused() -> None:
    with breaks(NovaRule.INVALID_PMEM_LABEL):
        topology({"hw:pmem": "x" * 300})


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


# --- any words ---

NAMES = [
    *("numa_nodes", "cpu_policy", "cpu_thread_policy", "emulator_threads_policy", "cpu_realtime"),
    *("cpu_realtime_mask", "cpu_dedicated_mask", "mem_page_size", "locked_memory", "pmem"),
    *("numa_cpus.0", "numa_cpus.1", "numa_mem.0", "numa_mem.1"),
]
WORDS = """
    dedicated mixed shared prefer require isolate share small large any required forbidden yes no
    true 0 1 2 3 4 5 512 1024 1536 2048 2MB 1GB 6GB 0-1 2-3 0-3 ^0 ^0-1 0-9 -1 x
""".split()  # noqa: SIM905
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
def test_any_words_are_accepted_or_refused_by_a_rule(
    vcpus: int, memory_mb: int, specs: dict[Any, Any], image: dict[Any, Any]
) -> None:
    try:
        result = flavor_topology(vcpus, memory_mb, extra_specs=specs, image=image)
    except InvalidInput as error:
        assert isinstance(error, InvalidNovaInput), error
        assert str(error)
        return
    assert result == flavor_topology(vcpus, memory_mb, extra_specs=specs, image=image)
    if result.amount is not None:
        assert result.amount.vcpus == vcpus
        assert result.amount.memory_mb == memory_mb
        assert not result.amount.is_assigned
    counts = {str(name): value for name, value in result.resources.items()}
    isolated = result.amount is not None and result.amount.has_emulator
    cpus = [counts[name].value for name in ("VCPU", "PCPU") if name in counts]  # type: ignore[attr-defined]
    assert sum(cpus) == vcpus + isolated
