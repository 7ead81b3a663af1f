"""What a topology needs of each host cell at least: a glance that rules out most of a fleet.

Every host cell that :mod:`.pair` lets a guest cell be on has this much left. The other way round it
is not so: threads, whole pages and what is not given out twice are looked at there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from resource_objects.resources.numa import words
from resource_objects.resources.numa.amount import NUMATopologyAmount
from resource_objects.resources.numa.host import KIB
from resource_objects.resources.numa.pair import needs_of, page_class, size_of_pages


def at_least(amount: NUMATopologyAmount, classes: Collection[str]) -> tuple[Mapping[str, int], ...]:
    """Return what each guest cell needs of a host cell, by class.

    :param classes: those that the host cell is kept as; they tell its sizes of huge pages

    >>> from resource_objects.resources.numa import numa
    >>> at_least(numa(cells=2, dedicated=4, memory_mb=64, page_size="2MB"),
    ...          ["PCPU", "MEMORY_MB", "CUSTOM_HUGEPAGES_2048KB"])
    ({'PCPU': 2, 'CUSTOM_HUGEPAGES_2048KB': 16}, {'PCPU': 2, 'CUSTOM_HUGEPAGES_2048KB': 16})
    """
    found: list[Mapping[str, int]] = []
    for need in needs_of(amount):
        counts = {"VCPU": need.shared, "PCPU": need.cpus}
        counts |= _memory(need.memory_mb, amount.page_size, classes)
        found.append({name: count for name, count in counts.items() if count})
    return tuple(found)


def _memory(mebibytes: int, page_size: str, classes: Collection[str]) -> dict[str, int]:
    """Return what memory needs, if that is known: pages of which size depends on the host cell."""
    if page_size in ("", words.SMALL):
        return {"MEMORY_MB": mebibytes}
    if page_size == words.ANY:
        return {}
    sizes = [size for name in classes if (size := size_of_pages(name)) is not None]
    if page_size == words.LARGE:
        if len(sizes) != 1:
            return {}
        (size,) = sizes
    else:
        size = int(page_size)
        if size not in sizes:  # its ordinary pages are of that size, or none are
            return {"MEMORY_MB": mebibytes}
    return {page_class(size): mebibytes * KIB // size}
