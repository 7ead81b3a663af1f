"""What a writer of topologies does.

CPUs float away to who takes of the host by number, or go offline. Nobody takes a dedicated CPU of a
cell without naming it, so that each one that is counted must be a unit.
"""

from __future__ import annotations

from resource_objects.providers import Backend, Provider, diff
from resource_objects.providers.located import Located, add_parts
from resource_objects.providers.orders import ClaimOrder, Delta
from resource_objects.resources.numa import (
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PagePool,
    numa,
)
from resource_objects.testing.kill.diary import Diary
from resource_objects.testing.kill.located import LocatedWriter
from resource_objects.testing.kill.writers import Task

NUMA_HOSTS = ("numa0", "numa1")
_TOPOLOGY = "NUMA_TOPOLOGY"
_CPUS = 4  #: dedicated ones of a cell
_PAGES = [PagePool(size_kib=4, total=64 * 256), PagePool(size_kib=2048, total=4)]


def numa_hosts() -> list[Provider]:
    """Return the hosts: three cells each, of two shared CPUs and two cores of two threads."""
    return [_numa_host(name) for name in NUMA_HOSTS]


def _numa_host(name: str) -> Provider:
    cells = [_cell(number) for number in range(3)]
    host = Provider(name, "VCPU=6,PCPU=12,MEMORY_MB=216:reserved=24")
    add_parts(host, _TOPOLOGY, NUMATopologyInventory(cells))
    return host


def _cell(number: int, dedicated: int = _CPUS) -> HostCell:
    """Return a cell, or what is left of it when some of its CPUs are offline."""
    first = 6 * number
    return HostCell(
        number,
        shared=[first, first + 1],
        dedicated=range(first + 2, first + 2 + dedicated),
        siblings=[(first + 2, first + 3), (first + 4, first + 5)],
        memory_mb=72,
        pages=_PAGES,
    )


class TopologyWriter(LocatedWriter):
    """A writer of topologies, on hosts of its own kind."""

    hosts = NUMA_HOSTS
    kind = _TOPOLOGY

    def __init__(self, task: Task, backend: Backend, diary: Diary) -> None:
        super().__init__(task, backend, diary)
        self._steps.append((8, self._float))

    def _amount(self) -> NUMATopologyAmount:
        chance = self._chance
        cells, dedicated = chance.choice([1, 1, 1, 2, 3]), chance.choice([0, 1, 1, 2])
        policy = chance.choice([None, None, "require", "isolate"]) if dedicated else None
        size = chance.choice(["", "", "2MB"])
        return numa(
            cells,
            shared=cells * (chance.randint(0, 1) if dedicated else 1),
            dedicated=cells * dedicated,
            memory_mb=cells * chance.choice([0, 2, 8] if size else [0, 1, 24]),
            page_size=size,
            thread_policy=policy,
        )

    def _units(self, located: Located) -> Delta:
        spot = self._chance.choice(located.spots)
        ids = located.inventory.part_ids()
        first = 6 * ids[located.spots.index(spot)] + 2
        units = tuple(f"cpu{first + cpu}" for cpu in sorted(self._chance.sample(range(_CPUS), 2)))
        return Delta(spot.uuid, "PCPU", 2, units)

    def _float(self) -> None:
        """Take CPUs of a host as a whole, whichever they are."""
        columns = self._read()
        kind = self._chance.choice(["PCPU", "VCPU"])
        root = columns.providers.uuid[columns.providers.parent_id.index(None)]
        deltas = (Delta(root, kind, self._chance.randint(1, 3)),)
        self._write("float", [ClaimOrder(self._new_name(), deltas)])

    def _switch(self) -> None:
        """Switch CPUs of a cell off or on, taken or not."""
        kept = self._tree(self._chance.choice(NUMA_HOSTS))
        wanted = kept.obj_clone()
        child = self._chance.choice(wanted.children)
        number = int(child.name.rpartition("numa")[2])
        cell = _cell(number, self._chance.choice([_CPUS, _CPUS, _CPUS - 1]))
        child.inventories[_TOPOLOGY] = NUMATopologyInventory([cell])
        changes = diff(kept, wanted)
        if changes:
            self._write("switch", definitions=changes)
