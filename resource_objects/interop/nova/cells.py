"""How many guest cells there are, and what is in each.

Either nothing is said of what is in them (vCPUs and memory are split evenly, vCPUs in order), or
``numa_cpus.N`` and ``numa_mem.N`` (MiB) are said of every one. Reading stops at the first N that
is missing or None; empty text is a list without vCPUs, as in Nova, and no number. Each of the three
is said by the flavor or by the image, not by both. Where nothing asks for a topology, ``numa_cpus``
and ``numa_mem`` are not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from resource_objects.interop.nova import errors
from resource_objects.interop.nova.cpu_spec import format_cpu_spec, parse_cpu_spec
from resource_objects.interop.nova.flavor_words import FlavorWords, text_of
from resource_objects.resources.numa.guest import GuestCell
from resource_objects.resources.numa.valid import MAX_GUEST_CELLS

#: Cells beyond these are not read.
MAX_CELLS = 128

_COUNT = re.compile(r"[1-9][0-9]{0,17}\Z", re.ASCII)
_MEMORY = re.compile(r"[0-9]{1,10}\Z", re.ASCII)

_T = TypeVar("_T")


def cell_count(words: FlavorWords) -> int | None:
    """Return the number of guest cells that is asked for, None if none is.

    :raises CellsSaidTwice: if flavor and image both say it
    :raises InvalidCellCount: for what is no number from 1

    >>> cell_count(FlavorWords(4, 512, {"hw:numa_nodes": "2"}, {}))
    2
    """
    flavor, image = words.flavor("numa_nodes"), words.image("numa_nodes")
    if flavor and image:
        raise _twice("numa_nodes", image)
    key = "hw:numa_nodes" if flavor else "hw_numa_nodes"
    text = flavor or image
    if text and not _COUNT.match(text):
        raise errors.InvalidCellCount(key, text, "a number of guest cells from 1")
    return int(text) if text else None


def guest_cells(words: FlavorWords, count: int, dedicated: Iterable[int]) -> list[GuestCell]:
    """Return the guest cells; ``dedicated`` are the vCPUs that have a CPU each.

    :raises CellsSaidTwice: if flavor and image both say what is in them
    :raises InvalidCPUList, InvalidCellMemory: for what cannot be read
    :raises CellsUneven: if nothing is said, and the split is not even
    :raises InvalidCellCount: if the split is into more than a request can have
    :raises CellsIncomplete: if something is said, and not both for each
    :raises CellCPUOutOfRange, CellCPUTwice, CellCPUsMissing: unless each vCPU is in one cell
    :raises CellMemoryMismatch: if the memory of all is not the flavor's
    :raises EmptyCell: if one has neither vCPUs nor memory

    >>> guest_cells(FlavorWords(4, 512, {}, {}), 2, dedicated=[3])[1]
    GuestCell(shared=(2,), dedicated=(3,), memory_mb=256)
    """
    cpus = _said(words, "numa_cpus", parse_cpu_spec)
    memory = _said(words, "numa_mem", _memory)
    if cpus is None and memory is None:
        parts = _even(words, count)
    else:
        for name, said in (("numa_cpus", cpus or []), ("numa_mem", memory or [])):
            if len(said) != count:
                raise errors.CellsIncomplete(
                    f"hw:{name}.N, hw_{name}.N",
                    f"of {len(said)} guest cells",
                    f"of {count}: of none, or of each with the other of numa_cpus and numa_mem",
                )
        parts = list(zip(cpus or [], memory or [], strict=True))
        _check(words, parts)
    pinned = frozenset(dedicated)
    return [
        GuestCell(
            shared=[vcpu for vcpu in vcpus if vcpu not in pinned],
            dedicated=[vcpu for vcpu in vcpus if vcpu in pinned],
            memory_mb=memory_mb,
        )
        for vcpus, memory_mb in parts
    ]


def _even(words: FlavorWords, count: int) -> list[tuple[tuple[int, ...], int]]:
    """Return (vCPUs, memory) of each cell, split evenly."""
    for what, total in (("vcpus", words.vcpus), ("memory_mb", words.memory_mb)):
        if total % count:
            raise errors.CellsUneven(what, total, f"a multiple of {count} guest cells")
    if count > MAX_GUEST_CELLS:
        raise errors.InvalidCellCount(
            "hw:numa_nodes, hw_numa_nodes", count, f"at most {MAX_GUEST_CELLS} guest cells"
        )
    each, memory = words.vcpus // count, words.memory_mb // count
    return [(tuple(range(n * each, (n + 1) * each)), memory) for n in range(count)]


def _check(words: FlavorWords, parts: list[tuple[tuple[int, ...], int]]) -> None:
    seen: set[int] = set()
    for number, (vcpus, memory) in enumerate(parts):
        key = f"numa_cpus.{number}"
        for vcpu in vcpus:
            if vcpu >= words.vcpus:
                raise errors.CellCPUOutOfRange(key, vcpu, f"vCPUs below {words.vcpus}")
            if vcpu in seen:
                raise errors.CellCPUTwice(key, vcpu, "each vCPU in one guest cell")
            seen.add(vcpu)
        if not vcpus and not memory:
            raise errors.EmptyCell(f"guest cell {number}", "nothing", "vCPUs or memory, or both")
    missing = set(range(words.vcpus)) - seen
    if missing:
        raise errors.CellCPUsMissing(
            "numa_cpus", f"without {format_cpu_spec(missing)}", "every vCPU in a guest cell"
        )
    total = sum(memory for _, memory in parts)
    if total != words.memory_mb:
        raise errors.CellMemoryMismatch("numa_mem", total, f"{words.memory_mb} MiB all together")


def _said(words: FlavorWords, name: str, read: Callable[[str, str], _T]) -> list[_T] | None:
    """Return what is said of each cell, None if nothing is."""
    flavor = _each(words.extra_specs, f"hw:{name}", read)
    image = _each(words.properties, f"hw_{name}", read)
    if flavor and image:
        raise _twice(name, f"{len(image)} guest cells")
    return flavor or image or None


def _each(given: Mapping[str, Any], prefix: str, read: Callable[[str, str], _T]) -> list[_T]:
    """Read the keys ``<prefix>.0``, ``<prefix>.1``... up to the first that is missing."""
    found: list[_T] = []
    for number in range(MAX_CELLS):
        key = f"{prefix}.{number}"
        if given.get(key) is None:
            break
        found.append(read(text_of(key, given[key]), key))
    return found


def _memory(text: str, key: str) -> int:
    if not _MEMORY.match(text):
        raise errors.InvalidCellMemory(key, text, "MiB, a whole number from 0")
    return int(text)


def _twice(name: str, said: str) -> errors.CellsSaidTwice:
    return errors.CellsSaidTwice(f"hw_{name}", said, f"none, for the flavor says hw:{name}")
