"""Small hosts for the tests of the NUMA kind, and how to ask them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import hypothesis
import pytest

from resource_objects.exceptions import CapacityException
from resource_objects.reasons import Reason
from resource_objects.resources import Amounts
from resource_objects.resources.numa import (
    CPUSet,
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PagePool,
    PlacedCell,
)

#: For laws about what fits: of random questions most do not, and that is no fault of theirs.
rarely_fits = hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.filter_too_much])

KIB_2M = 2048
KIB_1G = 1024 * 1024


def pools(*figures: tuple[int, ...]) -> list[PagePool]:
    """Return page pools of ``(size in KiB, total)`` or ``(size, total, reserved)``."""
    return [
        PagePool(size_kib=size, total=total, reserved=sum(reserved))
        for size, total, *reserved in figures
    ]


def paged(cell_id: int, ordinary_mb: int, *huge: tuple[int, ...], **facts: Any) -> HostCell:
    """Return a cell with so much in pages of 4 KiB, and huge pages."""
    memory_mb = ordinary_mb + sum(size * total // 1024 for size, total, *_ in huge)
    available = pools((4, ordinary_mb * 256), *huge)
    return HostCell(cell_id, memory_mb=memory_mb, pages=available, **facts)


def cored(cell_id: int, *cores: Sequence[int], **facts: Any) -> HostCell:
    """Return a cell of cores, all their CPUs dedicated by default."""
    facts.setdefault("dedicated", [cpu for core in cores for cpu in core])
    facts.setdefault("memory_mb", 1024)
    return HostCell(cell_id, siblings=[core for core in cores if len(core) > 1], **facts)


def plain(cell_id: int, cpus: Iterable[int], **facts: Any) -> HostCell:
    """Return a cell of dedicated CPUs without siblings, with 1024 MiB."""
    return HostCell(cell_id, dedicated=cpus, **{"memory_mb": 1024, **facts})


def host(*cells: HostCell, **figures: Any) -> NUMATopologyInventory:
    """Return an inventory of these cells."""
    return NUMATopologyInventory(cells, **figures)


def uneven(*sizes: int, memory_mb: Sequence[int] = (), **request: Any) -> NUMATopologyAmount:
    """Return an amount with ``sizes`` dedicated vCPUs in its guest cells."""
    cells, first = [], 0
    for number, size in enumerate(sizes):
        memory = memory_mb[number] if memory_mb else 0
        cells.append(GuestCell(dedicated=range(first, first + size), memory_mb=memory))
        first += size
    return NUMATopologyAmount(cells, **request)


def refused(
    inventory: NUMATopologyInventory, amount: NUMATopologyAmount, *args: Any, **how: Any
) -> tuple[Reason, ...]:
    """Return the reasons of a refusal; asking and taking refuse alike, and nothing changes."""
    before = copy.deepcopy(inventory)
    with pytest.raises(CapacityException) as request:
        inventory.fit(amount, *args, **how)
    with pytest.raises(CapacityException) as taken:
        inventory.consume(amount, *args, **how)
    assert inventory == before
    assert taken.value.reasons == request.value.reasons
    return request.value.reasons


def rules(reasons: Iterable[Reason]) -> list[str]:
    """Return the rules that were broken, each once, in order."""
    return list(dict.fromkeys(reason.rule.value for reason in reasons))


def on(assigned: NUMATopologyAmount) -> list[int]:
    """Return the host cell of each guest cell."""
    return [placed.cell for placed in assigned.placed]


# --- assigned amounts as text, for tests alone ---


def located(text: str) -> Amounts:
    """Return amounts whose topology is assigned: ``...:on=CELL;VCPU>CPU+.../...``.

    Each cell may have ``idle>CPUS``, ``shared>CPUS`` and ``pages>KIB`` too.
    """
    result: dict[str, Any] = {}
    for item in text.split(","):
        name, _, values = item.partition("=")
        result[name] = assigned(values) if name == "NUMA_TOPOLOGY" else int(values)
    return Amounts(result)


def assigned(text: str, **fields: Any) -> NUMATopologyAmount:
    """Return the topology of :func:`located`."""
    request, _, on = text.partition(":on=")
    placed = [*map(_placed, on.split("/"))]
    return NUMATopologyAmount.parse(request).replace(placed=placed, **fields)


def _placed(text: str) -> PlacedCell:
    cell, *remainder = text.split(";")
    values: dict[str, Any] = {}
    for item in remainder:
        name, _, value = item.partition(">")
        if name in ("idle", "shared"):
            values[name] = CPUSet.parse(value.replace("+", ","))
        elif name == "pages":
            values["page_size_kib"] = int(value)
        else:
            values["pins"] = [[*map(int, pair.split(">"))] for pair in item.split("+")]
    return PlacedCell(int(cell), **values)


def shown(amount: NUMATopologyAmount) -> str:
    """Return the text that :func:`assigned` reads back."""
    return f"{amount.unassigned()}:on={'/'.join(map(_shown, amount.placed))}"


def _shown(placed: PlacedCell) -> str:
    parts = [str(placed.cell), "+".join(f"{vcpu}>{cpu}" for vcpu, cpu in placed.pins)]
    parts += [f"idle>{CPUSet(placed.idle).text('+')}"] if placed.idle else []
    parts += [f"shared>{CPUSet(placed.shared).text('+')}"] if placed.shared else []
    parts += [f"pages>{placed.page_size_kib}"] if placed.page_size_kib is not None else []
    return ";".join(part for part in parts if part)
