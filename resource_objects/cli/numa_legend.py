"""What stands below a drawing of NUMA cells: which letter is which consumer, and what it holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from resource_objects.cli.base import many
from resource_objects.host.cells import CellHolder, HostCells
from resource_objects.resources.numa import format_cpus
from resource_objects.resources.numa.words import show_kib


def letters_of(host: HostCells) -> dict[str, str]:
    """Return a letter for each consumer: first those with CPUs of their own, then those in cells.

    >>> from resource_objects.resources.numa import HostCell, NUMATopologyInventory
    >>> cells = NUMATopologyInventory([HostCell(0, memory_mb=1)])
    >>> many_jobs = tuple((f"job-{number:02}", {}) for number in range(28))
    >>> list(letters_of(HostCells("box", cells, ((),), elsewhere=many_jobs)).values())[24:]
    ['Y', 'Z', 'AA', 'AB']
    """
    cells = [one for holders in host.holders for one in holders]
    pinned = {one.consumer for one in cells if one.cpus or one.idle}
    inside = {one.consumer for one in cells}
    every = inside.union(name for name, _ in host.elsewhere)
    ordered = sorted(every, key=lambda name: (name not in pinned, name not in inside, name))
    return {name: _letter(number) for number, name in enumerate(ordered)}


def _letter(number: int) -> str:
    more, last = divmod(number, 26)
    return (_letter(more - 1) if more else "") + chr(ord("A") + last)


def consumer_lines(host: HostCells, letters: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each consumer: its letter, its name, and what it holds of the host."""
    elsewhere = dict(host.elsewhere)
    for name, letter in letters.items():
        held = [one for holders in host.holders for one in holders if one.consumer == name]
        parts = list(held_parts(held))
        if name in elsewhere:
            amounts = ", ".join(f"{kind} {amount}" for kind, amount in elsewhere[name].items())
            parts.append(f"of the host, in no cell: {amounts}")
        yield f"{letter}  {name}: {'; '.join(parts)}"


def held_parts(held: Sequence[CellHolder]) -> Iterator[str]:
    """Yield what a consumer holds of some cells, together.

    >>> first, second = CellHolder("job-1", cpus=(4,), idle=(12,)), CellHolder("job-1", cpus=(5,))
    >>> list(held_parts([first, second]))
    ['CPUs 4-5', '12 left empty']
    """
    cpus = [cpu for one in held for cpu in one.cpus]
    if cpus:
        yield f"{'CPU' if len(cpus) == 1 else 'CPUs'} {format_cpus(cpus, ', ')}"
    idle = [cpu for one in held for cpu in one.idle]
    if idle:
        yield f"{format_cpus(idle, ', ')} left empty"
    pages = Counter[int]()
    for one in held:
        pages.update(dict(one.pages))
    counts = {
        "dedicated CPU": sum(one.loose for one in held),
        "shared vCPU": sum(one.vcpus for one in held),
    }
    yield from (many(count, word) for word, count in counts.items() if count)
    memory = sum(one.memory_mb for one in held)
    if memory:
        yield f"{memory} MiB"
    yield from (
        f"{many(count, 'page')} of {show_kib(size)}" for size, count in sorted(pages.items())
    )
