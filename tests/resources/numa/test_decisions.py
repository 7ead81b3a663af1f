"""The decisions of ``decisions.yaml``: which host cells and CPUs, or which rules refuse."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from resource_objects.reasons import Reason
from resource_objects.resources.context import Context
from resource_objects.resources.numa import (
    CellUsage,
    CPUSet,
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    NUMATopologyLimit,
    PagePool,
    numa,
)
from resource_objects.testing.refusals import raises_code
from tests.resources.numa.hosts import KIB_1G, KIB_2M, assigned, host, paged, refused, shown
from tests.support.numa_reference import faults, has_placement


def examples() -> Iterator[Any]:
    text = Path(__file__).with_name("decisions.yaml").read_text("utf-8")
    for example in yaml.safe_load(text):
        for request in example["requests"]:
            name = f"{example['cells']} {request}"
            yield pytest.param(example["cells"], request, id=name.replace("'", "")[:120])


def cpus(text: str | int) -> CPUSet:
    return CPUSet.parse(str(text).replace("+", ",")) if text != "" else CPUSet()


def host_cell(facts: dict[str, Any]) -> HostCell:
    pages = []
    for size_kib, counts in facts.get("pages", {}).items():
        total, reserved = counts if isinstance(counts, list) else (counts, 0)
        pages.append(PagePool(size_kib=size_kib, total=total, reserved=reserved))
    names = "memory_mb", "socket", "physnets", "tunneled", "distances"
    return HostCell(
        facts["id"],
        shared=cpus(facts.get("shared", "")),
        dedicated=cpus(facts.get("dedicated", "")),
        siblings=[cpus(core) for core in facts.get("cores", ())],
        pages=pages,
        **{name: facts[name] for name in names if name in facts},
    )


def cell_usage(facts: dict[str, Any]) -> CellUsage:
    pinned = cpus(facts.get("pinned", ""))
    remainder = {name: facts[name] for name in facts if name not in ("cell", "pinned")}
    return CellUsage(facts["cell"], pinned=pinned, **remainder)


def host_of(cells: list[dict[str, Any]], request: dict[str, Any]) -> NUMATopologyInventory:
    usage = [cell_usage(facts) for facts in request.get("usage", ())]
    names = "cpu_ratio", "memory_ratio", "room"
    figures = {name: request[name] for name in names if name in request}
    return NUMATopologyInventory(map(host_cell, cells), usage=usage, **figures)


def amount_of(request: dict[str, Any]) -> NUMATopologyAmount:
    amount = NUMATopologyAmount.parse(request["request"])
    if "placed" in request:
        text = f"{request['request']}:on={request['placed']}"
        amount = assigned(text, emulator_cpu=request.get("emulator"))
    return -amount if request.get("releases") else amount


def described(reason: Reason) -> str:
    """Return the data of a reason as the examples write it."""
    words = [reason.rule.value]
    words += [
        f"{n}={getattr(reason, n)}" for n in ("guest", "cell") if getattr(reason, n) is not None
    ]
    words += [reason.resource] if reason.resource is not None else []
    words += [f"requested={reason.requested}", f"bound={reason.bound}"]
    words += [f"used={reason.used}"] if reason.used else []
    words += [f"unit={reason.unit}"] if reason.unit is not None else []
    return " ".join(words)


def used_after(
    inventory: NUMATopologyInventory, amount: NUMATopologyAmount
) -> tuple[CellUsage, ...]:
    """Return the usage of host cells with an assigned amount in addition."""
    usage = {used.cell: used for used in inventory.usage}
    for number, (guest, placed) in enumerate(zip(amount.cells, amount.placed, strict=True)):
        used, pages = usage[placed.cell], dict(usage[placed.cell].pages)
        pinned = {cpu for _, cpu in placed.pins} | {*placed.idle, *used.pinned}
        if number == 0 and amount.emulator_cpu is not None:
            pinned.add(amount.emulator_cpu)
        memory_mb = used.memory_mb
        if placed.page_size_kib is None:
            memory_mb += guest.memory_mb
        else:
            count = guest.memory_mb * 1024 // placed.page_size_kib
            pages[placed.page_size_kib] = pages.get(placed.page_size_kib, 0) + count
        usage[placed.cell] = used.replace(
            shared=used.shared + len(guest.shared), pinned=pinned, memory_mb=memory_mb, pages=pages
        )
    return tuple(usage.values())


@pytest.mark.parametrize(("cells", "request_"), list(examples()))
def test_a_decision(cells: list[dict[str, Any]], request_: dict[str, Any]) -> None:
    inventory, before = host_of(cells, request_), host_of(cells, request_)
    amount = amount_of(request_)
    limit = NUMATopologyLimit(**request_["limit"]) if "limit" in request_ else None
    context = Context(allowed=request_.get("allowed"), pack=request_.get("pack", False))
    if "refused" in request_:
        reasons = refused(inventory, amount, limit, context)
        assert list(map(described, reasons)) == request_["refused"]
        if not amount.is_assigned:
            assert not has_placement(inventory, amount, limit, context.allowed)
        return
    result = inventory.fit(amount, limit, context)
    assert inventory == before and inventory.consume(amount, limit, context) == result
    if amount.is_negative:
        inventory.consume(-amount, None, context)
        assert inventory == before
        return
    assert shown(result).partition(":on=")[2] == request_["result"]
    assert result.emulator_cpu == request_.get("emulator_cpu")
    assert faults(before, result, limit, context.allowed) == []
    assert inventory.usage == used_after(before, result)
    inventory.consume(-result)
    assert inventory.usage == before.usage and inventory == before


# --- what the examples do not have --------------------------------------------------------------


def two_cells(**figures: Any) -> NUMATopologyInventory:
    """Return two cells of 2 shared and 4 dedicated CPUs, with pages of one size each."""
    return host(
        paged(0, 1024, (KIB_2M, 512), shared=[8, 9], dedicated=[0, 4, 1, 5]),
        paged(1, 1024, (KIB_1G, 2), shared=[10, 11], dedicated=[2, 6, 3, 7]),
        **figures,
    )


@pytest.mark.law(5)
def test_a_decision_changes_neither_request_nor_earlier_copies() -> None:
    inventory = two_cells()
    request = numa(2, memory_mb=2048, page_size="large")
    primitive, copied, usage = request.obj_to_primitive(), copy.deepcopy(inventory), inventory.usage
    result = inventory.consume(request)
    refused(inventory, numa(2, memory_mb=8192, page_size="large"))
    assert request.obj_to_primitive() == primitive and not request.is_assigned
    assert result.unassigned() == request
    assert copied == two_cells() and copied.usage == usage


def test_an_allocated_cpu_is_refused_by_its_name() -> None:
    inventory = two_cells()
    result = inventory.consume(numa(dedicated=2), context=Context(allowed=[0]))
    with raises_code("UnitTaken", match="cpu0, which is allocated"):
        inventory.consume(result)


def test_counts_of_the_whole_host_fall_by_ordinary_memory_and_cpus() -> None:
    inventory = two_cells(room={"VCPU": 4, "PCPU": 8, "MEMORY_MB": 2048})
    request = numa(dedicated=2, memory_mb=1024, page_size="2MB")
    result = inventory.consume(request)
    assert inventory.room == {"VCPU": 4, "PCPU": 6, "MEMORY_MB": 2048}
    inventory.consume(numa(shared=1, memory_mb=24))
    assert inventory.room == {"VCPU": 3, "PCPU": 6, "MEMORY_MB": 2024}
    inventory.consume(-result)
    assert inventory.room == {"VCPU": 3, "PCPU": 8, "MEMORY_MB": 2024}


@pytest.mark.parametrize(
    ("figures", "usage", "free"),
    [
        ({"cpu_ratio": "1.5"}, CellUsage(0, shared=6), (0, 4, 100)),
        ({"cpu_ratio": "0.5"}, CellUsage(0), (2, 4, 100)),
        ({}, CellUsage(0, pinned=[4], loose=2), (4, 1, 100)),
        ({"memory_ratio": 2}, CellUsage(0, memory_mb=60), (4, 4, 140)),
        ({"room": {"VCPU": 1, "PCPU": 2, "MEMORY_MB": 3}}, CellUsage(0), (1, 2, 3)),
    ],
)
def test_free_counts(figures: dict[str, Any], usage: CellUsage, free: tuple[int, ...]) -> None:
    cell = HostCell(0, shared=range(4), dedicated=range(4, 8), memory_mb=100)
    inventory = host(cell, usage=[usage], **figures)
    counts = inventory.free_shared, inventory.free_dedicated, inventory.free_memory_mb
    assert counts == free


def test_shared_vcpus_run_on_the_cpus_that_are_not_dedicated() -> None:
    cell = HostCell(0, shared=range(4), dedicated=range(4), memory_mb=1000)
    inventory = host(cell, cpu_ratio=4)
    inventory.taken = ()
    shared = inventory.consume(numa(shared=2))
    assert shared.cpuset == "0-3"
    dedicated = inventory.consume(numa(dedicated=3))
    assert inventory.refreshed(shared).cpuset == "3"
    assert inventory.fit(shared.unassigned().replace(cells=[GuestCell(shared=[0])])).cpuset == "3"
    assert [amount.cpuset for amount in inventory.taken] == ["3", "0-2"]
    inventory.consume(-dedicated)
    assert inventory.refreshed(shared) == shared == inventory.taken[0]
    inventory.consume(numa(dedicated=1))
    inventory.consume(-shared)
    assert [amount.cpuset for amount in inventory.taken] == ["0"]
    assert inventory.usage == (CellUsage(0, pinned=[0]),)
