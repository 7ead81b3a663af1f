"""Whether what is assigned keeps what was asked of it: threads, pages, sockets, networks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from resource_objects.exceptions import Reason, Rule
from resource_objects.resources.numa import threads, words
from resource_objects.resources.numa.amount import NUMATopologyAmount
from resource_objects.resources.numa.cells import Cell
from resource_objects.resources.numa.cpus import mask_of
from resource_objects.resources.numa.pair import Need, needs_of, possible_sizes
from resource_objects.resources.numa.question import networks_of

_TOPOLOGY = "NUMA_TOPOLOGY"


def broken(
    cells: Sequence[Cell], amount: NUMATopologyAmount, within: Collection[int] | None
) -> list[Reason]:
    """Return what of an assigned amount is not as it asks for itself.

    :param within: ids of the host cells that may be used, None for all
    """
    places = {cell.facts.id: place for place, cell in enumerate(cells)}
    hosts = [places[placed.cell] for placed in amount.placed]
    found: list[Reason] = []
    for number, need in enumerate(needs_of(amount)):
        found += _of_guest(cells[hosts[number]], amount, number, need)
    found += _of_all(cells, hosts, amount)
    if within is not None:
        ids = set(within)
        there = sum(placed.cell in ids for placed in amount.placed)
        if there < len(hosts):
            found.append(Reason(Rule.HOST_CELLS, len(hosts), there, 0, _TOPOLOGY))
    return found


def _of_guest(cell: Cell, amount: NUMATopologyAmount, number: int, need: Need) -> Iterator[Reason]:
    placed, ident = amount.placed[number], cell.facts.id
    if need.memory_mb and placed.page_size_kib not in possible_sizes(cell, need):
        word = amount.page_size
        yield Reason(Rule.PAGE_SIZE, need.memory_mb, 0, 0, "MEMORY_MB", unit=word, cell=ident)
    taken = placed.pinned_mask
    if need.has_emulator and amount.emulator_cpu is not None:
        taken |= 1 << amount.emulator_cpu
    if not _keeps_threads(cell, need, taken, mask_of(cpu for _, cpu in placed.pins)):
        word = need.thread_policy or words.PREFER
        yield Reason(Rule.THREADS, need.dedicated, 0, 0, "PCPU", unit=word, cell=ident)


def _keeps_threads(cell: Cell, need: Need, taken: int, vcpus: int) -> bool:
    """Return whether the CPUs taken are what the thread policy takes."""
    cores = cell.facts.cores
    if need.thread_policy == words.ISOLATE:
        count, policy = need.dedicated, need.thread_policy
        return threads.layout(cores, taken, count, policy, need.has_emulator) is not None
    if taken.bit_count() != need.cpus:
        return False
    if need.thread_policy != words.REQUIRE or not need.dedicated:
        return True
    counts = sorted((core & vcpus).bit_count() for core in cores if core & vcpus)
    return cell.facts.threads > 1 and (len(counts) < 2 or counts[1] > 1)


def _of_all(
    cells: Sequence[Cell], hosts: Sequence[int], amount: NUMATopologyAmount
) -> Iterator[Reason]:
    sockets = {cells[place].facts.socket for place in hosts}
    if amount.one_socket and (len(sockets) > 1 or None in sockets):
        yield Reason(Rule.TOGETHER, len(hosts), 0, 0, _TOPOLOGY, unit="socket")
    used = sum(1 << place for place in hosts)
    for name, places in networks_of(cells, amount).items():
        if not places & used:
            yield Reason(Rule.NETWORK, len(hosts), 0, 0, _TOPOLOGY, unit=name)
