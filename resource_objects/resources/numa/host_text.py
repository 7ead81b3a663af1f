"""The text forms of NUMA inventories and limits: the parts after ``NUMA_TOPOLOGY=``.

An inventory is each host cell as ``ID;option=value;...``, joined by ``/``, and its ratios; a limit
is ``vcpus=CELL>MOST+...:memory=CELL>MIB+...``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from resource_objects import exceptions
from resource_objects.resources import abstract, text
from resource_objects.resources.numa import pieces
from resource_objects.resources.numa.host import CellUsage, HostCell, PagePool
from resource_objects.resources.numa.inventory import NUMATopologyInventory
from resource_objects.resources.numa.limit import NUMATopologyLimit
from resource_objects.resources.numa.pieces import WHAT

_CELL = ("shared", "dedicated", "siblings", "memory", "pages", "socket", "distances", "physnets")
_USED = ("used_shared", "pinned", "loose", "used_memory", "used_pages")
_RATIOS = ("cpu_ratio", "memory_ratio", "room")


def parse_inventory(text_form: str, resource_class: str | None = None) -> NUMATopologyInventory:
    """Return the inventory of its text form.

    :raises InvalidText: if it does not parse
    :raises InvalidInventory: if what it says contradicts itself

    >>> parse_inventory("0;dedicated=0-3;memory=1024/1;dedicated=4-7;memory=1024").free_dedicated
    8
    """
    head, options = text.total_and_options(text_form, WHAT, _RATIOS)
    cells: list[HostCell] = []
    usage: list[CellUsage] = []
    for part in head.split("/"):
        cell, used = _host_cell(part)
        cells.append(cell)
        usage.append(used)
    room = None if "room" not in options else dict(_room(options.pop("room")))
    return NUMATopologyInventory(
        cells, usage=usage, room=room, resource_class=resource_class, **_any(options)
    )


def format_inventory(inventory: abstract.Inventory) -> str:
    """Return the text that :func:`parse_inventory` reads back.

    :raises InvalidInventory: for another kind
    """
    if not isinstance(inventory, NUMATopologyInventory):
        raise exceptions.InvalidInventory(WHAT, inventory, "a NUMATopologyInventory")
    pairs = zip(inventory.cells, inventory.usage, strict=True)
    parts = ["/".join(";".join(_said_host(cell, used)) for cell, used in pairs)]
    for name in ("cpu_ratio", "memory_ratio"):
        if getattr(inventory, name) != 1:
            parts.append(f"{name}={getattr(inventory, name):f}")
    if inventory.room is not None:
        parts.append(f"room={'+'.join(f'{name}>{n}' for name, n in inventory.room.items())}")
    return ":".join(parts)


def _said_host(cell: HostCell, used: CellUsage) -> Iterator[str]:
    yield str(cell.id)
    pools = "+".join(f"{pool.size_kib}>{pool.total}>{pool.reserved}" for pool in cell.pages)
    said = {
        "shared": pieces.said_cpus(cell.shared),
        "dedicated": pieces.said_cpus(cell.dedicated),
        "siblings": "|".join(map(pieces.said_cpus, cell.siblings)),
        "memory": str(cell.memory_mb or ""),
        "pages": pools,
        "socket": "" if cell.socket is None else str(cell.socket),
        "distances": "+".join(f"{other}>{far}" for other, far in cell.distances),
        "physnets": "+".join(map(pieces.quoted, sorted(cell.physnets))),
        "tunneled": "yes" if cell.tunneled else "",
        "used_shared": str(used.shared or ""),
        "pinned": pieces.said_cpus(used.pinned),
        "loose": str(used.loose or ""),
        "used_memory": str(used.memory_mb or ""),
        "used_pages": "+".join(f"{size}>{count}" for size, count in used.pages),
    }
    yield from (f"{name}={value}" for name, value in said.items() if value)


def _host_cell(part: str) -> tuple[HostCell, CellUsage]:
    head, *items = part.split(";")
    ident = text.integer(head, f"{WHAT}, host cell")
    said: dict[str, str] = {}
    for item in items:
        name, equals, value = (piece.strip() for piece in item.partition("="))
        if not equals or name not in (*_CELL, *_USED, "tunneled"):
            raise exceptions.InvalidText(WHAT, item, "option=value of a host cell")
        if name in said:
            raise exceptions.DuplicateKey(WHAT, name, "each option once")
        said[name] = value
    cell = HostCell(
        ident,
        shared=pieces.cpus(said.get("shared", "")),
        dedicated=pieces.cpus(said.get("dedicated", "")),
        siblings=[pieces.cpus(core) for core in said.get("siblings", "").split("|") if core],
        memory_mb=pieces.integer(said, "memory"),
        pages=[_pool(pool) for pool in said.get("pages", "").split("+") if pool],
        socket=pieces.integer(said, "socket") if "socket" in said else None,
        distances=pieces.pairs(said.get("distances", "")),
        physnets=pieces.names(said.get("physnets", "")),
        tunneled=pieces.flag(said, "tunneled"),
    )
    used = CellUsage(
        ident,
        shared=pieces.integer(said, "used_shared"),
        pinned=pieces.cpus(said.get("pinned", "")),
        loose=pieces.integer(said, "loose"),
        memory_mb=pieces.integer(said, "used_memory"),
        pages=pieces.pairs(said.get("used_pages", "")),
    )
    return cell, used


def _pool(part: str) -> PagePool:
    figures = [text.integer(figure, f"{WHAT}, pages") for figure in part.split(">")]
    if len(figures) not in (2, 3):
        raise exceptions.InvalidText(f"{WHAT}, pages", part, "SIZE>TOTAL or SIZE>TOTAL>RESERVED")
    return PagePool(size_kib=figures[0], total=figures[1], reserved=(*figures, 0)[2])


def _room(said: str) -> Iterator[tuple[str, int]]:
    for part in said.split("+") if said else ():
        name, _, count = part.partition(">")
        yield name, text.integer(count, f"{WHAT}, room")


def parse_limit(text_form: str) -> NUMATopologyLimit:
    """Return the limit of its text form.

    :raises InvalidText: if it does not parse

    >>> parse_limit("vcpus=0>16+1>16").of_cell(1)
    (16, None)
    """
    if not isinstance(text_form, str):
        raise exceptions.InvalidText(WHAT, text_form, "text such as vcpus=0>16+1>16")
    _, options = text.total_and_options(f":{text_form}", f"{WHAT} limit", ("vcpus", "memory"))
    return NUMATopologyLimit(
        vcpus=pieces.pairs(options.get("vcpus", "")),
        memory_mb=pieces.pairs(options.get("memory", "")),
    )


def format_limit(limit: abstract.Amount) -> str:
    """Return the text that :func:`parse_limit` reads back.

    :raises WrongAmountKind: for another kind
    """
    if not isinstance(limit, NUMATopologyLimit):
        raise exceptions.WrongAmountKind(WHAT, limit, "a NUMATopologyLimit")
    said = {"vcpus": limit.vcpus, "memory": limit.memory_mb}
    return ":".join(
        f"{name}={'+'.join(f'{cell}>{most}' for cell, most in bounds)}"
        for name, bounds in said.items()
        if bounds or name == "vcpus"
    )


def _any(options: Mapping[str, Any]) -> dict[str, Any]:
    return dict(options)
