"""What a compute node counts of its cells, and how that goes together with its other columns.

The record's figures are Nova's, and Nova adds up what is kept apart here:

* ``vcpus_used`` counts the dedicated vCPUs with the shared ones;
* ``memory_mb`` and ``memory_mb_used`` count huge pages with the ordinary memory.

**Of a node that was read from a record** the inventories say what the columns say: VCPU and
MEMORY_MB are as large, and as much used, as Nova reports them. That nobody is given page memory
who did not ask for it, a limit of the view sees to, as with the report of disk: of MEMORY_MB no
more may be used than there is of ordinary memory, and what is used of pages. An assigned topology
adds its dedicated vCPUs to ``vcpus_used`` and its memory in pages to ``memory_mb_used``, as Nova
does.

**Of a view of a ledger** that has cells, the inventories are the ledger's: VCPU is of shared vCPUs,
and huge pages are reserved of MEMORY_MB and counted by themselves. There the columns count besides
what the inventories do: ``vcpus_used`` the dedicated CPUs that are taken, ``memory_mb_used`` the
pages that are used instead of those there are. (A CPU left empty, or an emulator's, is a taken one;
Nova does not count these, and a ledger cannot tell them.)

The dedicated CPUs are an inventory too, ``PCPU``, so that a request's counts find it; no column
says it but the cells. ``loose_cpus`` are those taken that no cell knows of.
"""

from __future__ import annotations

from decimal import Decimal

from resource_objects import ratio
from resource_objects.host._compute_columns import KINDS, Kind
from resource_objects.host._compute_counting import Counting
from resource_objects.host._compute_live import LiveInventory
from resource_objects.host._compute_located import CPUS
from resource_objects.host._compute_numa import COLUMN, Topology
from resource_objects.host.ratios import counted_class
from resource_objects.resources import IntegerAmount, IntegerInventory, Inventory

VCPU, MEMORY = KINDS["VCPU"], KINDS["MEMORY_MB"]


class CellCounts(Counting):
    """A record that counts the cells of its host."""

    # --- what there is ---

    def _topology(self) -> Topology | None:
        """Return the cells that count, None if there are none.

        :raises InvalidRow: if the column cannot be read
        """
        kept: Topology | None = self._value(COLUMN, None)
        return None if kept is None or kept.content is None else kept

    @property
    def _counts_like_a_ledger(self) -> bool:
        """Whether the cells are those of a ledger."""
        return bool(self._value("cell_ratios", None))

    def _cell_ratios(self) -> tuple[Decimal, Decimal]:
        """Return the ratios of shared CPUs and of ordinary memory in a cell."""
        kept = self._value("cell_ratios", {})
        cpu, memory = (kept.get(kind.resource_class, None) for kind in (VCPU, MEMORY))
        return cpu or self._ratio_of(VCPU), memory or self._ratio_of(MEMORY)

    def _beside(self, resource_class: str) -> int:
        topology = self._topology() if self._counts_like_a_ledger else None
        if topology is None:
            return 0
        if resource_class == VCPU.resource_class:
            return self._cpus_used()
        if resource_class == MEMORY.resource_class:
            return topology.figures.used_pages_mb - self._pages_aside(topology)
        return 0

    def _pages_aside(self, topology: Topology) -> int:
        """Return how much of the memory that a ledger says is reserved is huge pages."""
        return min(topology.figures.huge_mb, self._reserved_of(MEMORY))

    def _own_reserved(self, kind: Kind) -> int:
        """Return what the host keeps for itself, without the pages that a ledger sets aside."""
        topology = self._topology() if self._counts_like_a_ledger else None
        aside = 0 if topology is None or kind is not MEMORY else self._pages_aside(topology)
        return self._reserved_of(kind) - aside

    def _counts_cpus(self) -> bool:
        """Return whether there are dedicated CPUs."""
        topology = self._topology()
        return topology is not None and topology.figures.dedicated > 0

    def _cpus_used(self) -> int:
        """Return how many dedicated CPUs are used."""
        topology = self._topology()
        return 0 if topology is None else max(0, topology.figures.taken + self.loose_cpus)

    def _cpu_figures(self) -> IntegerInventory | None:
        """Return what there is of dedicated CPUs, None if there are none."""
        topology = self._topology()
        if topology is None or not self._counts_cpus():
            return None
        total = topology.figures.dedicated
        return IntegerInventory(total, max_unit=total, used=self._cpus_used(), resource_class=CPUS)

    def _check_counted(self, name: str) -> None:
        if name != CPUS:
            counted_class(name, "ComputeNode")

    # --- limits ---

    def _limit_of(self, resource_class: str) -> IntegerAmount | None:
        if resource_class != MEMORY.resource_class or self._counts_like_a_ledger:
            return super()._limit_of(resource_class)
        topology = self._topology()
        if topology is None or not topology.figures.huge_mb or not self._has(MEMORY.total):
            return None
        left = self._value(MEMORY.total) - self._reserved_of(MEMORY) - topology.figures.huge_mb
        times = ratio.to_millionths(self._ratio_of(MEMORY))
        ordinary = max(0, left) * times // ratio.MILLION
        return IntegerAmount(ordinary + topology.figures.used_pages_mb)

    # --- live inventories that change beside others ---

    def _live_of(self, resource_class: str) -> Inventory | None:
        """Return a live inventory that somebody may hold."""
        if self._live is None or resource_class not in self._live.names():
            return None
        return self._live[resource_class]

    def _show_used(self, resource_class: str, used: int) -> None:
        """Let a live inventory show what is used, if somebody may hold it."""
        live = self._live_of(resource_class)
        if isinstance(live, LiveInventory):
            live.mirror_used(used)


__all__ = ["MEMORY", "VCPU", "CellCounts"]
