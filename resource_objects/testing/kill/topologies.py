"""What a writer of topologies does: it fits them on what it reads, and takes what was fitted.

Between the two anything may happen: somebody else takes one of the CPUs, all of them float away to
who takes of the host by number, or a CPU goes offline. Nobody takes a dedicated CPU of a cell
without naming it, so that each one that is counted must be a unit.
"""

from __future__ import annotations

from collections.abc import Callable

from resource_objects import exceptions
from resource_objects.providers import Backend, Provider, diff
from resource_objects.providers.columns import Columns
from resource_objects.providers.located import Located, LocatedViews, add_parts
from resource_objects.providers.orders import (
    Adjustment,
    ClaimOrder,
    ClaimRecord,
    Delta,
    Release,
    Replacement,
)
from resource_objects.providers.supposing import without
from resource_objects.resources.numa import (
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PagePool,
    numa,
)
from resource_objects.testing.kill.diary import Diary
from resource_objects.testing.kill.writers import Task, Writer

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


class TopologyWriter(Writer):
    """A writer of topologies, on hosts of its own kind."""

    def __init__(self, task: Task, backend: Backend, diary: Diary) -> None:
        super().__init__(task, backend, diary)
        self._steps: list[tuple[int, Callable[[], None]]] = [
            (32, self._place),
            (16, self._release),
            (10, self._replace),
            (10, self._give_back),
            (10, self._steal),
            (10, self._exchange),
            (8, self._float),
            (5, self._switch),
        ]

    def _look(self) -> None:
        """Find nothing: what is where is read before each decision."""
        self._disk["read"] = "each time"

    # --- what is asked ---

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

    def _fitted(self, columns: Columns) -> tuple[Delta, ...]:
        """Return what some amount would take, nothing if it does not fit."""
        located = self._view(columns)
        try:
            return located.deltas(located.fit(self._amount()))
        except exceptions.CapacityException:
            return ()

    def _read(self) -> Columns:
        return self._backend.read(self._chance.choice(NUMA_HOSTS))

    def _view(self, columns: Columns) -> Located:
        views = LocatedViews(columns)
        [root] = views.trees(_TOPOLOGY)
        located = views.of_tree(root, _TOPOLOGY)
        assert located is not None, "every host has cells"
        return located

    # --- what is done ---

    def _place(self) -> None:
        """Take a topology; many units of several cells in one write."""
        deltas = self._fitted(self._read()) if len(self._own) < 8 else ()
        if deltas:
            self._write("place", [ClaimOrder(self._new_name(), deltas)])
        else:
            self._release()

    def _release(self) -> None:
        names = self._some_own(self._chance.choice([1, 1, 2]))
        if names:
            self._write("free", [Release(name) for name in names])

    def _replace(self) -> None:
        """Exchange a topology for another one, on whichever host, within what it gives back."""
        for name in self._some_own(1):
            deltas = self._fitted(without(self._read(), name))
            if deltas:
                self._write("replace", [Replacement(name, deltas)])

    def _give_back(self) -> None:
        """Give back all of one, unit by unit, as a negative amount does."""
        for name in self._some_own(1):
            held = self._own[name].held
            deltas = tuple(Delta(*one.key, -one.amount, one.units) for one in held)
            self._write("give back", [Adjustment(name, deltas)])

    def _steal(self) -> None:
        """Ask for CPUs by name that somebody may have."""
        columns = self._read()
        located = self._view(columns)
        spot = self._chance.choice(located.spots)
        ids = located.inventory.part_ids()
        first = 6 * ids[located.spots.index(spot)] + 2
        units = tuple(f"cpu{first + cpu}" for cpu in sorted(self._chance.sample(range(_CPUS), 2)))
        order = ClaimOrder(self._new_name(), (Delta(spot.uuid, "PCPU", 2, units),))
        self._write("take by name", [order])

    def _exchange(self) -> None:
        """Let two change places, also on full hosts."""
        names = self._some_own(2)
        if len(names) == 2:
            first, second = (_deltas(self._own[name]) for name in names)
            orders = [Replacement(names[0], second), Replacement(names[1], first)]
            self._write("exchange", orders)

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


def _deltas(record: ClaimRecord) -> tuple[Delta, ...]:
    return tuple(Delta(*one.key, one.amount, one.units) for one in record.held)
