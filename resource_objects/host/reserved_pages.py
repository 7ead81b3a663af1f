"""Pages of NUMA cells that are kept for the host, checked against the facts of a machine.

As a mapping, ``{cell: {size: count}}`` with sizes in KiB or as text, or in one line of text:
``0:2MB=64,1:2MB=64``, which is cell, size and count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from resource_objects.exceptions import DuplicateKey, InvalidInput, InvalidInventory, InvalidText
from resource_objects.host.facts import Machine, Pages
from resource_objects.resources import text
from resource_objects.resources.numa.words import page_size, show_kib

__all__ = ["ReservedPages", "read_reserved_pages", "size_kib"]

#: What is kept, as a mapping or as text; None and "" for nothing.
ReservedPages: TypeAlias = Mapping[int, Mapping[int | str, int]] | str | None

_KIB = 1024
_WHAT = "reserved pages"
_FORM = "CELL:SIZE=COUNT such as 0:2MB=64"


def read_reserved_pages(machine: Machine, given: ReservedPages) -> dict[int, dict[int, int]]:
    """Return the pages that are kept: ``{cell: {size in KiB: count}}``.

    :raises InvalidInput: if it is no mapping of that form
    :raises InvalidText: for text or a size that does not parse
    :raises DuplicateKey: for a size of a cell that is said twice
    :raises InvalidInventory: if the machine has no such cell, the cell no such pages, or fewer

    >>> from resource_objects.host.facts import MIB, Core, NUMACell
    >>> cell = NUMACell(0, (0,), 64 * MIB, (Pages(4096, 0), Pages(2 * MIB, 32)))
    >>> machine = Machine(cpus=(0,), cores=(Core(0, 0, (0,)),), memory_bytes=0, cells=(cell,))
    >>> read_reserved_pages(machine, "0:2MB=8") == read_reserved_pages(machine, {0: {2048: 8}})
    True
    """
    if given is None:
        return {}
    mapping = _parsed(given) if isinstance(given, str) else given
    if not isinstance(mapping, Mapping):
        raise InvalidInput(_WHAT, given, f"counts by cell and size, or {_FORM}")
    ids = [cell.id for cell in machine.cells]
    found: dict[int, dict[int, int]] = {}
    for cell, sizes in mapping.items():
        if type(cell) is not int or cell not in ids:
            known = ", ".join(map(str, ids)) or "none"
            raise InvalidInventory(f"{_WHAT}: cell", cell, f"a cell of the machine: {known}")
        if not isinstance(sizes, Mapping):
            raise InvalidInput(f"{_WHAT} of cell {cell}", sizes, "counts by size")
        there = {size_kib(cell, pages): pages.total for pages in machine.cell(cell).pages}
        found[cell] = _checked(cell, sizes, there)
    return found


def size_kib(cell: int, pages: Pages) -> int:
    """Return the size of pages in KiB.

    :raises InvalidInventory: if it is no power of two of them
    """
    size, rest = divmod(pages.size_bytes, _KIB)
    if rest or size & (size - 1):
        raise InvalidInventory(
            f"page size of cell {cell}", pages.size_bytes, "a power of two of 1024 bytes or more"
        )
    return size


def _parsed(given: str) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for item in given.split(",") if given.strip() else ():
        place, equals, count = (part.strip() for part in item.partition("="))
        cell, colon, size = (part.strip() for part in place.partition(":"))
        if not equals or not colon or not cell.isdecimal():
            raise InvalidText(_WHAT, item, _FORM)
        sizes = found.setdefault(text.integer(cell, f"{_WHAT}: cell"), {})
        if size in sizes:
            raise DuplicateKey(_WHAT, place, "each size of a cell once")
        sizes[size] = text.integer(count, f"{_WHAT}: count")
    return found


def _checked(cell: int, sizes: Mapping[Any, Any], there: Mapping[int, int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for kib, count in _in_kib(sizes):
        if kib not in there:
            known = ", ".join(map(show_kib, there)) or "none"
            raise InvalidInventory(
                f"{_WHAT}: size", show_kib(kib), f"one that cell {cell} has: {known}"
            )
        if kib in found:
            raise DuplicateKey(f"{_WHAT} of cell {cell}", show_kib(kib), "each size once")
        if type(count) is not int or not 0 <= count <= there[kib]:
            raise InvalidInventory(
                f"{_WHAT} of {show_kib(kib)} of cell {cell}", count, f"0 to {there[kib]}"
            )
        found[kib] = count
    return found


def _in_kib(sizes: Mapping[Any, Any]) -> Iterator[tuple[int, Any]]:
    for size, count in sizes.items():
        kib = page_size(size)
        if not kib.isdecimal():
            raise InvalidText(f"{_WHAT}: size", size, "a size such as 2MB, and no word for several")
        yield int(kib), count
