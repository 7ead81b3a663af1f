"""Options of a compute host: which CPUs serve what, and which pages are kept.

=======================  ===========================================================================
``cpu_shared_set``       CPUs for shared vCPUs
``cpu_dedicated_set``    CPUs that are given to one vCPU each; the two are disjoint
``vcpu_pin_set``         before there were two: its CPUs serve either way
none of them             all CPUs are shared
``reserved_huge_pages``  ``node:0,size:2048,count:64``: pages of a cell that are nobody's
=======================  ===========================================================================

CPUs that no set names are kept by the host. Source: Nova 34 and its libvirt driver. Unlike there,
two entries for the same pages and entries for pages that the host does not have, or not so many of,
are refused, and a host of which no set is given offers no dedicated CPUs: there it pins on them
all, as before PCPU, while placement counts them as shared only. ``vcpu_pin_set`` says that in so
many words.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from resource_objects.interop.nova.primitive import (
    format_cpu_spec,
    option_text,
    page_size_kib,
    parse_cpu_spec,
)
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule
from resource_objects.resources.numa.cells import HostCell, PagePool
from resource_objects.resources.numa.cpuset import MAX_ID

__all__ = ["CPUSets", "configured_cells", "cpu_sets", "reserved_pages"]

_ENTRY = "an entry such as node:0,size:2048,count:64"
_NUMBER = re.compile(r"[0-9]{1,9}\Z", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True)
class CPUSets:
    """Which CPUs of a host serve what; ``shared`` None: all there are, and none is dedicated.

    :raises InvalidNovaInput: ``NOT_WORDS`` unless each is numbers of CPUs, ascending;
        ``CPU_SETS_OVERLAP`` unless they are apart, or the same: then they serve either way
    """

    shared: tuple[int, ...] | None = None
    dedicated: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        shared = () if self.shared is None else self.shared
        for what, cpus in (("shared", shared), ("dedicated", self.dedicated)):
            if not _are_cpus(cpus):
                raise InvalidNovaInput(
                    NovaRule.NOT_WORDS,
                    what,
                    cpus,
                    f"CPUs from 0 to {MAX_ID}, ascending, as a tuple",
                )
        both = set(self.dedicated).intersection(self.dedicated if self.shared is None else shared)
        if both and self.shared != self.dedicated:
            raise InvalidNovaInput(
                NovaRule.CPU_SETS_OVERLAP,
                "dedicated",
                format_cpu_spec(both),
                "CPUs that are not shared, or the shared ones",
            )


def _are_cpus(cpus: object) -> bool:
    return (
        isinstance(cpus, tuple)
        and all(type(cpu) is int and 0 <= cpu <= MAX_ID for cpu in cpus)
        and list(cpus) == sorted(set(cpus))
    )


def cpu_sets(
    *,
    cpu_shared_set: str | None = None,
    cpu_dedicated_set: str | None = None,
    vcpu_pin_set: str | None = None,
) -> CPUSets:
    """Return which CPUs serve what, by the options; None and ``""`` are not set.

    Beside ``vcpu_pin_set``, ``cpu_shared_set`` is only where emulator threads run, and has no say.

    :raises InvalidNovaInput: ``INVALID_CPU_LIST`` for an option that is no list of CPUs;
        ``CPU_SET_EMPTY`` for one that leaves no CPU; ``CPU_SETS_OVERLAP`` if CPUs are shared and
        dedicated; ``PIN_SET_CONFLICT`` for ``vcpu_pin_set`` beside ``cpu_dedicated_set``

    >>> cpu_sets(cpu_shared_set="0-1", cpu_dedicated_set="2-7,^4")
    CPUSets(shared=(0, 1), dedicated=(2, 3, 5, 6, 7))
    >>> cpu_sets(vcpu_pin_set="2-3")
    CPUSets(shared=(2, 3), dedicated=(2, 3))
    """
    pinned = _cpus("vcpu_pin_set", vcpu_pin_set)
    shared = _cpus("cpu_shared_set", cpu_shared_set)
    dedicated = _cpus("cpu_dedicated_set", cpu_dedicated_set)
    if pinned is not None:
        if dedicated is not None:
            raise InvalidNovaInput(
                NovaRule.PIN_SET_CONFLICT, "vcpu_pin_set", vcpu_pin_set, "none beside the other"
            )
        return CPUSets(pinned, pinned)
    if dedicated is None:
        return CPUSets(shared)
    both = set(shared or ()).intersection(dedicated)
    if both:
        raise InvalidNovaInput(
            NovaRule.CPU_SETS_OVERLAP,
            "cpu_dedicated_set",
            format_cpu_spec(both),
            "CPUs that are not in cpu_shared_set",
        )
    return CPUSets(shared or (), dedicated)


def _cpus(option: str, text: str | None) -> tuple[int, ...] | None:
    if text is None or text == "":
        return None
    result = parse_cpu_spec(text, option)
    if not result:
        raise InvalidNovaInput(
            NovaRule.CPU_SET_EMPTY, option, text, "a list that leaves at least one CPU"
        )
    return result


def reserved_pages(
    entries: Iterable[str | Mapping[str, Any]],
) -> dict[int, dict[int, int]]:
    """Return the pages that are kept, ``{cell: {size in KiB: count}}``.

    :param entries: of ``reserved_huge_pages``: as text, or as the mapping of text that the
        configuration library makes of it
    :raises InvalidNovaInput: ``INVALID_RESERVED_PAGES`` for an entry that cannot be read;
        ``PAGES_RESERVED_TWICE`` for two entries of the same pages

    >>> reserved_pages(["node:0,size:2048,count:64", "node:1,size:1GB,count:1"])
    {0: {2048: 64}, 1: {1048576: 1}}
    """
    if isinstance(entries, str | bytes | Mapping) or not isinstance(entries, Iterable):
        raise InvalidNovaInput(
            NovaRule.NOT_WORDS, "reserved_huge_pages", entries, f"a list, each {_ENTRY}"
        )
    result: dict[int, dict[int, int]] = {}
    for entry in entries:
        cell, size, count = _entry(entry)
        sizes = result.setdefault(cell, {})
        if size in sizes:
            raise InvalidNovaInput(
                NovaRule.PAGES_RESERVED_TWICE,
                "reserved_huge_pages",
                entry,
                f"one entry for pages of {size} KiB of cell {cell}",
            )
        sizes[size] = count
    return result


def _entry(entry: object) -> tuple[int, int, int]:
    """Return (cell, size in KiB, count) of an entry."""
    pairs: list[Any] = []
    if isinstance(entry, Mapping):
        pairs = list(entry.items())
    elif isinstance(entry, str):
        pairs = [[part.strip() for part in item.split(":", 1)] for item in entry.split(",")]
    try:
        said = {key: option_text("reserved_huge_pages", value).strip() for key, value in pairs}
        if len(pairs) != len(said) or said.keys() != {"node", "size", "count"}:
            raise ValueError(pairs)
        numbers = [said["node"], said["count"]]
        if not all(_NUMBER.match(number) for number in numbers):
            raise ValueError(numbers)
        return int(said["node"]), page_size_kib("size", said["size"]), int(said["count"])
    except (ValueError, TypeError) as error:
        raise InvalidNovaInput(
            NovaRule.INVALID_RESERVED_PAGES, "reserved_huge_pages", entry, _ENTRY
        ) from error


def configured_cells(
    cells: Iterable[HostCell],
    cpus: CPUSets | None = None,
    reserved: Mapping[int, Mapping[int, int]] | None = None,
) -> tuple[HostCell, ...]:
    """Return the cells of a host as its options say.

    :param cells: as they are found: the CPUs in either of their sets are those that there are
    :param cpus: which of them serve what, as :func:`cpu_sets` returns
    :param reserved: pages that are kept, as :func:`reserved_pages` returns
    :raises InvalidNovaInput: ``NOT_WORDS`` for cells, sets or pages of another kind;
        ``CPUS_NOT_OF_HOST`` if a set names CPUs that no cell gives; ``RESERVED_PAGES_NOT_OF_HOST``
        if the host has no such cell, or the cell no such pages; ``TOO_MANY_PAGES_RESERVED`` if more
        pages are reserved than there are

    >>> found = HostCell(0, shared=range(4), memory_mb=1024,
    ...                  pages=[PagePool(size_kib=4, total=131072),
    ...                         PagePool(size_kib=2048, total=256)])
    >>> (cell,) = configured_cells([found], cpu_sets(cpu_dedicated_set="2-3"),
    ...                            reserved_pages(["node:0,size:2MB,count:64"]))
    >>> cell.shared, cell.dedicated, cell.pages[1].reserved
    ((), (2, 3), 64)
    """
    cells = _host_cells(cells)
    sets = _sets(cpus)
    kept = _checked(reserved or {})
    there = {cpu for cell in cells for cpu in (*cell.shared, *cell.dedicated)}
    for what, named in (("cpu_shared_set", sets.shared), ("cpu_dedicated_set", sets.dedicated)):
        unknown = set(named or ()) - there
        if unknown:
            raise InvalidNovaInput(
                NovaRule.CPUS_NOT_OF_HOST,
                what,
                format_cpu_spec(unknown),
                f"CPUs among {format_cpu_spec(there)}",
            )
    _check_pages(cells, kept)
    return tuple(_configured(cell, sets, kept.get(cell.id, {})) for cell in cells)


def _host_cells(cells: object) -> tuple[HostCell, ...]:
    result = tuple(cells) if isinstance(cells, Iterable) else (cells,)
    for cell in result:
        if not isinstance(cell, HostCell):
            raise InvalidNovaInput(NovaRule.NOT_WORDS, "cells", cell, "HostCells")
    return result


def _sets(cpus: object) -> CPUSets:
    if cpus is not None and not isinstance(cpus, CPUSets):
        raise InvalidNovaInput(NovaRule.NOT_WORDS, "cpus", cpus, "what cpu_sets returns")
    return cpus or CPUSets()


def _checked(reserved: Any) -> dict[int, dict[int, int]]:
    """Return ``{cell: {size in KiB: count}}``, refusing what is none."""
    rows = list(reserved.values()) if isinstance(reserved, Mapping) else [None]
    if not all(_are_counts(sizes) for sizes in rows):
        raise InvalidNovaInput(
            NovaRule.NOT_WORDS, "reserved", reserved, "what reserved_pages returns"
        )
    return {cell: dict(sizes) for cell, sizes in reserved.items()}


def _are_counts(sizes: object) -> bool:
    return isinstance(sizes, Mapping) and all(
        type(count) is int and count >= 0 for count in sizes.values()
    )


def _check_pages(cells: tuple[HostCell, ...], kept: dict[int, dict[int, int]]) -> None:
    there = {(cell.id, pool.size_kib): pool.total for cell in cells for pool in cell.pages}
    for cell, sizes in kept.items():
        for size, count in sizes.items():
            total = there.get((cell, size))
            if total is None:
                raise InvalidNovaInput(
                    NovaRule.RESERVED_PAGES_NOT_OF_HOST,
                    "reserved_huge_pages",
                    f"{size} KiB of cell {cell}",
                    "pages that the host has",
                )
            if count > total:
                raise InvalidNovaInput(
                    NovaRule.TOO_MANY_PAGES_RESERVED,
                    "reserved_huge_pages",
                    count,
                    f"at most {total} of {size} KiB of cell {cell}",
                )


def _configured(cell: HostCell, sets: CPUSets, kept: dict[int, int]) -> HostCell:
    there = {*cell.shared, *cell.dedicated}
    return cell.replace(
        shared=there if sets.shared is None else there.intersection(sets.shared),
        dedicated=there.intersection(sets.dedicated),
        pages=[
            PagePool(
                size_kib=pool.size_kib,
                total=pool.total,
                reserved=kept.get(pool.size_kib, pool.reserved),
            )
            for pool in cell.pages
        ],
    )
