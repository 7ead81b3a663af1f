"""What a compute node takes of its cells, gives back, or is told of them.

What it counts, and how that goes together with its other columns, ``_compute_cell_counts`` tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.host._compute_cell_counts import MEMORY, VCPU, CellCounts
from resource_objects.host._compute_columns import KINDS, Kind
from resource_objects.host._compute_live import LiveInventory
from resource_objects.host._compute_live_numa import LiveCPUs, LiveTopology
from resource_objects.host._compute_located import (
    CPUS,
    NUMA,
    Content,
    Counts,
    counts_of,
    taken_of_host,
)
from resource_objects.host._compute_numa import COLUMN, Topology, check_sayable
from resource_objects.host._compute_placed import with_placed
from resource_objects.host._compute_record import units
from resource_objects.resources import IntegerInventory, Inventories, Inventory
from resource_objects.resources.numa import NUMATopologyAmount, NUMATopologyInventory
from resource_objects.resources.together import Cells as HostCells
from resource_objects.resources.together import Near


class Cells(CellCounts):
    """A record that knows the cells of its host, and takes what there is of them."""

    # --- live inventories ---

    def _members(self, former: dict[str, Any]) -> Iterator[Inventory]:
        yield from super()._members(former)
        cpus = self._cpu_figures()
        if cpus is not None:
            yield self._shown(LiveCPUs, cpus, former)
        topology = self._topology()
        if topology is not None:
            live = former.pop(NUMA, None)
            if live is None:
                live = LiveTopology.made(topology, self._cell_ratios(), self)
            else:
                live.mirror(topology, self._cell_ratios())
            yield live

    def _free_of(self, resource_class: str) -> int | None:
        """Return what the host has left of a class, None if it does not count it."""
        kept = self._live_of(resource_class)
        if not isinstance(kept, LiveInventory):
            return None
        limit = self._limit_of(resource_class)
        return kept.free if limit is None else min(kept.free, int(limit) - kept.used)

    # --- columns that follow ---

    def _follow(self, inventory: IntegerInventory) -> None:
        if inventory.resource_class != CPUS:
            super()._follow(inventory)
            self._show_ratio(inventory)
            return
        with self._all_or_nothing():
            self._take_loose(inventory.used - self._cpus_used())

    def _take_loose(self, change: int) -> None:
        """Count dedicated CPUs that are taken, or given back, by number."""
        beside = self._beside(VCPU.resource_class)
        self._set("loose_cpus", self.loose_cpus + change)
        self._add_pending(CPUS, change)
        self._shift(VCPU, self._beside(VCPU.resource_class) - beside)

    def _place(self, assigned: NUMATopologyAmount, live: NUMATopologyInventory) -> None:
        """Write what was taken of the cells, or given back, into the columns."""
        kept: Topology = self._value(COLUMN)
        counts = counts_of(assigned)
        implied = self._implied(assigned, counts)
        loose = -counts.said.get(CPUS, 0)
        if not self._counts_cpus():
            loose = -counts.taken.get(CPUS, 0)  # nobody took them by number
        with self._all_or_nothing():
            self._take_implied(implied)
            beside = {
                kind.resource_class: self._beside(kind.resource_class) for kind in (VCPU, MEMORY)
            }
            self._set("loose_cpus", self.loose_cpus + loose)
            self._set(COLUMN, kept.become(live.cells, live.usage))
            self._set("pending_topologies", with_placed(self.pending_topologies, assigned))
            self._book(counts, beside)
        if self._is_counted(VCPU):
            self._show_used(VCPU.resource_class, self._used_of(VCPU))
        if self._is_counted(MEMORY):
            self._show_used(MEMORY.resource_class, self._used_of(MEMORY))
        self._show_used(CPUS, self._cpus_used())

    def _devices_beside(self, cells: HostCells) -> tuple[Near, ...]:
        """Return what devices that were taken need of the host cells."""
        return ()

    def _not_located(self, resource_class: str) -> int:
        """Return how much this view has taken by number that no topology of its own locates."""
        return max(0, self._held_of(resource_class) + self._by_number(resource_class))

    def _held_of(self, resource_class: str) -> int:
        """Return what the consumer of this view held of the host by number before."""
        return 0

    def _by_number(self, resource_class: str) -> int:
        """Return what is pending by number, negative if more was given back so than taken."""
        in_cells = taken_of_host(self.pending_topologies, resource_class)
        return units(self.pending, resource_class) - in_cells

    def _implied(self, assigned: NUMATopologyAmount, counts: Counts) -> dict[str, int]:
        """Return the counts that go with a topology and that nobody took, or gave back, before."""
        found = {}
        for name, said in counts.said.items():
            if not self._counts(name):
                continue
            if assigned.is_negative:
                found[name] = min(0, said - min(0, self._by_number(name)))
            else:
                found[name] = max(0, said - self._not_located(name))
        return found

    def _counts(self, resource_class: str) -> bool:
        """Return whether there is an inventory of a class of the cells."""
        if resource_class == CPUS:
            return self._counts_cpus()
        return self._is_counted(KINDS[resource_class])

    def _take_implied(self, implied: Mapping[str, int]) -> None:
        """Count what a topology takes by itself as if it had been taken by number before."""
        for name, change in implied.items():
            if name == CPUS:
                self._take_loose(change)
            else:
                self._add_pending(name, change)
                self._shift(KINDS[name], change)

    def _book(self, counts: Counts, beside: dict[str, int]) -> None:
        """Count in the columns what an assigned topology adds to them."""
        if self._counts_cpus():
            self._add_pending(CPUS, counts.beyond(CPUS))
        memory = counts.beyond(MEMORY.resource_class)
        if self._is_counted(MEMORY):
            self._add_pending(MEMORY.resource_class, memory)
        if self._counts_like_a_ledger:
            self._shift(VCPU, self._beside(VCPU.resource_class) - beside[VCPU.resource_class])
            pages = self._beside(MEMORY.resource_class) - beside[MEMORY.resource_class]
            self._shift(MEMORY, memory + pages)
        else:
            self._shift(VCPU, counts.vcpus)
            self._shift(MEMORY, memory + counts.pages_mb)

    def _shift(self, kind: Kind, change: int) -> None:
        """Count more, or less, in a used column."""
        if change and self._has(kind.used):
            self._set(kind.used, self._value(kind.used) + change)

    def _not_taken(self, amount: NUMATopologyAmount) -> tuple[Reason, ...]:
        """Return why what is given back cannot have been taken, as far as columns tell."""
        if not amount.is_negative:
            return ()
        return tuple(
            Reason(Rule.USED_BELOW_ZERO, change, 0, used, resource_class)
            for resource_class, change, used in self._booked_back(amount)
            if used + change < 0
        )

    def _booked_back(self, amount: NUMATopologyAmount) -> Iterator[tuple[str, int, int]]:
        """Yield what giving back a topology takes off its host's counts, and what they are."""
        counts = counts_of(amount)
        implied = self._implied(amount, counts)
        memory, vcpus = counts.beyond(MEMORY.resource_class), 0
        if not self._counts_like_a_ledger:
            memory, vcpus = memory + counts.pages_mb, counts.vcpus
        if self._counts_cpus():
            yield CPUS, counts.beyond(CPUS) + implied.get(CPUS, 0), self._cpus_used()
        for kind, change in ((VCPU, vcpus), (MEMORY, memory)):
            if self._has(kind.used):
                name = kind.resource_class
                yield name, change + implied.get(name, 0), self._used_of(kind)

    # --- what is stated ---

    def _state_cells(self, live: NUMATopologyInventory) -> None:
        """Write cells, and what somebody states is used of them, into the columns.

        :raises InvalidInventory: if the column cannot say it, or the cells are a ledger's
        """
        with self._all_or_nothing():
            self._write_cells(live)
        self._refresh()

    def _write_cells(self, stated: NUMATopologyInventory | None) -> None:
        content: Content | None = None if stated is None else (stated.cells, stated.usage)
        known = self._topology()
        if content == (None if known is None else known.content):
            return
        self._check_own_cells(content)
        if stated is None:
            self._set(COLUMN, None)
        else:
            check_sayable(stated)
            former: Topology = self._value(COLUMN, None) or Topology()
            self._set(COLUMN, former.become(stated.cells, stated.usage))
        self._set("loose_cpus", 0)

    def _check_own_cells(self, content: Content | None) -> None:
        """Refuse other cells than there are where they are a ledger's."""
        if self._counts_like_a_ledger:
            shown = None if content is None else f"{len(content[0])} cells, as others"
            raise exceptions.InvalidInventory(
                NUMA, shown, "the cells that the ledger has: a sync of the host changes them"
            )

    def _checked_cells(self, given: Any) -> NUMATopologyInventory:
        """Return a copy of an inventory of cells."""
        if not isinstance(given, NUMATopologyInventory):
            raise exceptions.InvalidInventory(NUMA, given, "a NUMATopologyInventory")
        labelled = Inventories({NUMA: given})[NUMA]
        assert isinstance(labelled, NUMATopologyInventory)
        return labelled

    def _state_cpus(self, given: Any) -> None:
        """Take over how many dedicated CPUs are used; how many there are, the cells say.

        :raises InvalidInventory: if it says other figures than the cells
        """
        figures = self._cpu_figures()
        if given is None and figures is None:
            return
        there = f"an IntegerInventory of the {figures.total if figures else 0} of the cells"
        if not isinstance(given, IntegerInventory) or figures is None:
            raise exceptions.InvalidInventory(CPUS, given, there)
        stated = Inventories({CPUS: given})[CPUS]
        for figure in ("total", "reserved", "allocation_ratio"):
            if getattr(stated, figure) != getattr(figures, figure):
                raise exceptions.InvalidInventory(
                    f"{CPUS} {figure}", getattr(stated, figure), getattr(figures, figure)
                )
        self._take_loose(given.used - figures.used)

    def _show_ratio(self, inventory: IntegerInventory) -> None:
        """Let the live cells show a ratio that was changed."""
        live = self._live_of(NUMA)
        if not isinstance(live, LiveTopology):
            return
        shown = live.cpu_ratio, live.memory_ratio
        known = {VCPU.resource_class: shown[0], MEMORY.resource_class: shown[1]}
        ratio = inventory.allocation_ratio
        if known.get(inventory.resource_class or "", ratio) != ratio:
            live.mirror(self._value(COLUMN), self._cell_ratios())


__all__ = ["MEMORY", "VCPU", "Cells"]
