"""How many guest cells there are, and what is in each."""

from __future__ import annotations

import pytest

from resource_objects.interop.nova.rules import NovaRule
from resource_objects.resources.numa import GuestCell
from tests.interop.nova.said import DEDICATED, amount, asked, refused


def cells(*parts: tuple[str, str], prefix: str = "hw:", count: str = "") -> dict[str, str]:
    """Return words for cells of (vCPUs, memory) each; None leaves a key out."""
    words = {f"{prefix}numa_nodes": count or str(len(parts))}
    for number, (vcpus, memory) in enumerate(parts):
        words[f"{prefix}numa_cpus.{number}"] = vcpus
        words[f"{prefix}numa_mem.{number}"] = memory
    return words


UNEVEN = cells(("0-2", "512"), ("3", "1536"))


# --- hw:numa_nodes, hw_numa_nodes ---


@pytest.mark.parametrize("key", ["hw:numa_nodes", "hw_numa_nodes"])
@pytest.mark.parametrize("count", ["1", "2", "4", 2])
def test_flavor_or_image_says_how_many(key: str, count: str | int) -> None:
    specs, image = ({key: count}, {}) if key.startswith("hw:") else ({}, {key: count})
    assert len(amount(specs, image).cells) == int(count)


@pytest.mark.parametrize("count", ["1", "2", "0", "two"])
def test_not_both_even_if_they_agree(count: str) -> None:
    assert "hw_numa_nodes: got" in refused(
        NovaRule.CELLS_SAID_TWICE, {"hw:numa_nodes": "2"}, {"hw_numa_nodes": count}
    )


@pytest.mark.parametrize("count", ["0", "-1", "two", "1.0", "02", "+2", " 2", "1" * 30, 0])
def test_it_is_a_number_from_1(count: str | int) -> None:
    refused(NovaRule.INVALID_CELL_COUNT, {"hw:numa_nodes": count})
    refused(NovaRule.INVALID_CELL_COUNT, {}, {"hw_numa_nodes": count})


# --- split evenly ---


def test_vcpus_are_split_in_order_and_memory_evenly() -> None:
    assert amount({"hw:numa_nodes": "2"}).cells == (
        GuestCell(shared=[0, 1], memory_mb=1024),
        GuestCell(shared=[2, 3], memory_mb=1024),
    )


def test_what_does_not_divide_is_refused() -> None:
    assert "vcpus: got 4" in refused(NovaRule.CELLS_UNEVEN, {"hw:numa_nodes": "3"})
    assert "memory_mb: got 2047" in refused(
        NovaRule.CELLS_UNEVEN, {"hw:numa_nodes": "2"}, memory_mb=2047
    )
    refused(NovaRule.CELLS_UNEVEN, {"hw:numa_nodes": "5"})


def test_no_request_has_more_cells_than_a_topology_takes() -> None:
    sizes = {"vcpus": 2050, "memory_mb": 2050}
    assert len(amount({"hw:numa_nodes": "1024"}, vcpus=1024, memory_mb=1024).cells) == 1024
    for specs, image in (({"hw:numa_nodes": "1025"}, {}), ({}, {"hw_numa_nodes": "2050"})):
        assert "numa_nodes: got " in refused(NovaRule.INVALID_CELL_COUNT, specs, image, **sizes)
    refused(NovaRule.CELLS_UNEVEN, {"hw:numa_nodes": "2048"}, **sizes)  # as nova says it


# --- hw:numa_cpus.N, hw:numa_mem.N and the image's ---


def test_each_cell_may_be_said() -> None:
    assert amount(UNEVEN).cells == (
        GuestCell(shared=[0, 1, 2], memory_mb=512),
        GuestCell(shared=[3], memory_mb=1536),
    )
    assert amount({}, cells(("0-2", "512"), ("3", "1536"), prefix="hw_")) == amount(UNEVEN)


def test_memory_is_in_mib() -> None:
    assert amount(UNEVEN).memory_mb == 2048


def test_a_dedicated_mask_goes_through_the_cells() -> None:
    mixed = {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0,3"}
    first, second = amount(UNEVEN | mixed).cells
    assert (first.shared, first.dedicated) == ((1, 2), (0,))
    assert (second.shared, second.dedicated) == ((), (3,))


def test_cpus_of_the_flavor_and_memory_of_the_image_go_together() -> None:
    flavor = {k: v for k, v in UNEVEN.items() if "mem" not in k}
    assert amount(flavor, {"hw_numa_mem.0": "512", "hw_numa_mem.1": "1536"}) == amount(UNEVEN)


@pytest.mark.parametrize("said", [{"hw_numa_cpus.0": "0"}, {"hw_numa_mem.0": "512"}])
def test_the_same_is_not_said_by_both(said: dict[str, str]) -> None:
    refused(NovaRule.CELLS_SAID_TWICE, UNEVEN, said)


@pytest.mark.parametrize("gone", [key for key in UNEVEN if "." in key])
def test_both_are_said_of_every_cell(gone: str) -> None:
    refused(NovaRule.CELLS_INCOMPLETE, {k: v for k, v in UNEVEN.items() if k != gone})


def test_one_of_both_alone_is_refused() -> None:
    refused(NovaRule.CELLS_INCOMPLETE, {"hw:numa_nodes": "1", "hw:numa_cpus.0": "0-3"})
    refused(NovaRule.CELLS_INCOMPLETE, {"hw:numa_nodes": "1", "hw:numa_mem.0": "2048"})


@pytest.mark.parametrize("count", ["1", "3"])
def test_it_is_said_of_as_many_cells_as_there_are(count: str) -> None:
    refused(NovaRule.CELLS_INCOMPLETE, UNEVEN | {"hw:numa_nodes": count})


def test_without_a_number_there_is_one_cell() -> None:
    one = {k: v for k, v in cells(("0-3", "2048")).items() if k != "hw:numa_nodes"}
    assert len(amount(DEDICATED | one).cells) == 1
    refused(NovaRule.CELLS_INCOMPLETE, DEDICATED | {k: v for k, v in UNEVEN.items() if "." in k})


def test_reading_stops_at_the_first_gap() -> None:
    assert amount(UNEVEN | {"hw:numa_cpus.3": "nonsense", "hw:numa_mem.9": "-1"}) == amount(UNEVEN)


def test_no_more_than_128_cells_are_said() -> None:
    many = cells(*((str(n), "16") for n in range(129)))
    refused(NovaRule.CELLS_INCOMPLETE, many, vcpus=129, memory_mb=129 * 16)
    many = cells(*((str(n), "16") for n in range(128)))
    assert len(amount(many, vcpus=128, memory_mb=128 * 16).cells) == 128


def test_a_vcpu_is_one_of_the_flavor() -> None:
    assert "numa_cpus.1: got 4" in refused(
        NovaRule.CELL_CPU_OUT_OF_RANGE, cells(("0-2", "512"), ("3-4", "1536"))
    )


def test_a_vcpu_is_in_one_cell() -> None:
    assert "numa_cpus.1: got 2" in refused(
        NovaRule.CELL_CPU_TWICE, cells(("0-2", "512"), ("2-3", "1536"))
    )


def test_every_vcpu_is_in_a_cell() -> None:
    assert "without 2-3" in refused(NovaRule.CELL_CPUS_MISSING, cells(("0", "512"), ("1", "1536")))


@pytest.mark.parametrize("memory", ["511", "513", "0"])
def test_memory_adds_up_to_that_of_the_flavor(memory: str) -> None:
    refused(NovaRule.CELL_MEMORY_MISMATCH, cells(("0-2", memory), ("3", "1536")))


@pytest.mark.parametrize("memory", ["many", "-512", "1.5", "", "٣"])
def test_memory_is_a_number_from_0(memory: str) -> None:
    refused(NovaRule.INVALID_CELL_MEMORY, cells(("0-2", memory), ("3", "1536")))


@pytest.mark.parametrize("vcpus", ["some", "0-", "2-0"])
def test_vcpus_are_a_list(vcpus: str) -> None:
    assert "hw:numa_cpus.0" in refused(
        NovaRule.INVALID_CPU_LIST, cells((vcpus, "512"), ("3", "1536"))
    )


def test_a_cell_may_lack_vcpus_or_memory_and_not_both() -> None:
    assert [c.memory_mb for c in amount(cells(("0-3", "0"), ("", "2048"))).cells] == [0, 2048]
    refused(NovaRule.EMPTY_CELL, cells(("0-3", "2048"), ("", "0")))
    refused(NovaRule.EMPTY_CELL, cells(("0-3", "2048"), ("1,^1", "0")))


def test_empty_text_is_a_list_of_no_vcpus_and_no_number() -> None:
    empty = {"hw:numa_nodes": "1", "hw:numa_cpus.0": "", "hw:numa_mem.0": "2048"}
    refused(NovaRule.CELL_CPUS_MISSING, empty)
    refused(NovaRule.INVALID_CELL_MEMORY, empty | {"hw:numa_cpus.0": "0-3", "hw:numa_mem.0": ""})


def test_none_says_nothing_of_a_cell_and_is_a_gap() -> None:
    two = {"hw:numa_cpus.0": None, "hw:numa_mem.0": None}
    assert amount({"hw:numa_nodes": "2"} | two) == amount({"hw:numa_nodes": "2"})
    assert amount(UNEVEN | {"hw:numa_cpus.2": None, "hw:numa_mem.3": "-1"}) == amount(UNEVEN)
    refused(NovaRule.CELLS_INCOMPLETE, UNEVEN | {"hw:numa_mem.1": None})


def test_cells_are_not_read_where_nothing_asks_for_a_topology() -> None:
    assert asked({"hw:numa_cpus.0": "nonsense", "hw:numa_mem.0": "-1"}).amount is None
