"""What there is of NUMA cells at a host, and who fits where: the inventory of the kind."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final

from resource_objects import base, fields, ratio
from resource_objects.exceptions import CapacityException, InvalidInventory
from resource_objects.resources import abstract
from resource_objects.resources.context import ANYWHERE, CellMap, Context
from resource_objects.resources.numa import storage, usage
from resource_objects.resources.numa.amount import NUMATopologyAmount, given
from resource_objects.resources.numa.cell_fit import given_limit
from resource_objects.resources.numa.cells import (
    Cell,
    CellUsage,
    HostCell,
    cell_of,
    facts_of,
    usage_of,
)
from resource_objects.resources.numa.fit import far_from, place
from resource_objects.resources.placed import HasAffinity, PlacedInventory
from resource_objects.resources.records import (
    AmountRecord,
    InventoryPart,
    InventoryRecord,
    StoredPart,
)

_ONE: Final = Decimal(1)


@base.register
class NUMATopologyInventory(PlacedInventory[NUMATopologyAmount], HasAffinity, abstract.Inventory):
    """The NUMA cells of a host, what is used of each, and where an amount would go.

    ================  ==============================================================================
    ``cells``         the host cells; none are nothing, which is kept nowhere
    ``usage``         what is used of each, in the same order
    ``cpu_ratio``     how often a shared CPU is given out; dedicated ones once
    ``memory_ratio``  how often ordinary memory is given out; huge pages once. Nobody gets more
                      than exists once, of either
    ``room``          what the host as a whole has left, by class (``VCPU``, ``PCPU``,
                      ``MEMORY_MB``), where others draw on it too; None: what the cells have
    ================  ==============================================================================

    :meth:`fit` finds a placement whenever the rules allow one, in time polynomial in cells; but
    where several of them are next to the networks or devices asked for, exactly within a budget.
    Only assigned amounts can be given back.

    >>> from resource_objects.resources.numa import numa
    >>> host = NUMATopologyInventory([
    ...     HostCell(0, dedicated=range(4), memory_mb=1024),
    ...     HostCell(1, dedicated=range(4, 8), memory_mb=1024)])
    >>> taken = host.consume(numa(cells=2, dedicated=6, memory_mb=1024))
    >>> taken.cpuset, taken.memory_nodes
    ('0-2,4-6', '0-1')
    >>> host.consume(numa(dedicated=2))
    Traceback (most recent call last):
    resource_objects.exceptions.CapacityException: each of cells 0, 1: PCPU requested 2, free 1 of 4
    >>> print(host.consume(-taken).is_negative, host.free_dedicated)
    True 8
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    cells: fields.TupleFrom[HostCell] = fields.tuple_of(
        "HostCell", kw_only=False, factory=lambda _: ()
    )
    usage: fields.TupleFrom[CellUsage] = fields.tuple_of("CellUsage", default=())
    cpu_ratio: fields.Ratio = fields.ratio(default=_ONE)
    memory_ratio: fields.Ratio = fields.ratio(default=_ONE)
    room: Mapping[str, int] | None = fields.counts(default=None)
    taken: fields.Coerced[
        tuple[NUMATopologyAmount, ...] | None, Iterable[NUMATopologyAmount] | None
    ] = fields.tuple_of("NUMATopologyAmount", default=None)
    NOT_COMPARED = frozenset({"resource_class", "taken"})

    # --- being valid ---

    def _validate(self) -> None:
        self._check_apart("host cells", [cell.id for cell in self.cells])
        cpus = [cell.cpu_set for cell in self.cells]
        if len(set().union(*cpus)) != sum(map(len, cpus)):
            self._check_apart("CPUs of the host cells", [*itertools.chain.from_iterable(cpus)])
        by_cell = {used.cell: used for used in self.usage}
        self._check_apart("usage of host cells", [used.cell for used in self.usage])
        unknown = sorted(set(by_cell).difference(cell.id for cell in self.cells))
        if unknown:
            raise InvalidInventory("usage of host cells", unknown, "cells there are")
        usage = tuple(by_cell.get(cell.id) or CellUsage(cell.id) for cell in self.cells)
        for cell, used in zip(self.cells, usage, strict=True):
            _check_usage(cell, used)
        if usage != self.usage:
            self._store("usage", usage)
        self._after_copy()

    def _check_apart(self, what: str, numbers: Sequence[int]) -> None:
        if len(set(numbers)) != len(numbers):
            twice = sorted(number for number, count in Counter(numbers).items() if count > 1)
            raise InvalidInventory(what, twice, "each once")

    def _after_copy(self) -> None:
        self._made: list[Cell] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there are no cells."""
        return not self.cells

    @property
    def _working(self) -> list[Cell]:
        """The cells as decisions read them: made for the first, for many are only read."""
        if self._made is None:
            ratios = ratio.to_millionths(self.cpu_ratio), ratio.to_millionths(self.memory_ratio)
            self._made = [
                cell_of(facts_of(cell, *ratios), used)
                for cell, used in zip(self.cells, self.usage, strict=True)
            ]
        return self._made

    # --- figures ---

    @property
    def free_shared(self) -> int:
        """How many shared vCPUs there may still be, over all cells."""
        return self._bounded("VCPU", sum(max(0, cell.free_shared) for cell in self._working))

    @property
    def free_dedicated(self) -> int:
        """How many dedicated CPUs can still be given, over all cells."""
        return self._bounded("PCPU", sum(max(0, cell.free_dedicated) for cell in self._working))

    @property
    def free_memory_mb(self) -> int:
        """MiB of ordinary memory left, over all cells."""
        return self._bounded("MEMORY_MB", sum(max(0, cell.free_memory) for cell in self._working))

    def _bounded(self, name: str, count: int) -> int:
        return count if self.room is None else min(count, self.room.get(name, count))

    def cell(self, cell_id: int) -> HostCell:
        """Return the host cell of an id.

        :raises InvalidInventory: if there is none
        """
        for cell in self.cells:
            if cell.id == cell_id:
                return cell
        ids = [cell.id for cell in self.cells]
        raise InvalidInventory("host cell", cell_id, f"one of {ids}")

    # --- the decision ---

    def _fit(
        self, amount: abstract.Amount, limit: abstract.Amount | None, context: Context
    ) -> NUMATopologyAmount:
        """Return the assigned amount: where ``amount`` would go. Nothing changes.

        What is assigned already is checked as it is, and what is given back too. Cells with the
        most devices that would do (``context.near``) are taken first; where none are asked for,
        those with the fewest (``context.spare``); of equal ones those with the most free, or the
        least (``context.pack``). Source: Nova's order of host cells.

        :param limit: a :class:`NUMATopologyLimit`: totals per cell, for this one claim
        :raises InvalidInput: for an amount of another kind
        :raises ForeignAmount: if it is assigned to cells, CPUs or pages that are not here
        :raises CapacityException: with, for each host cell, the rule that failed and its figures;
            with ``Rule.AFFINITY`` alone if only ``context.near`` stands against it
        :raises SearchLimitReached: if the budget ran out on networks that many cells are next to,
            or on what the host as a whole has left: neither yes nor no

        Cost: per kind of guest cell and host cell some 2 microseconds where counts decide, and up
        to 1 for each core where threads are chosen.
        """
        wanted = given(amount)
        bounds = given_limit(limit)
        room = self._least_room(context.room)
        if wanted.placed:
            wanted = usage.refreshed(self._working, wanted)
            usage.check(self._working, room, wanted, bounds, context.allowed)
            far = far_from(context.near, wanted.host_cells)
            if far:
                raise CapacityException(far)
            return wanted
        found = place(self._working, wanted, bounds, room, context)
        if not wanted.has_emulator or len(wanted.cells) == 1:
            return found
        # the CPUs kept may be read in two ways, as an emulator's or a vCPU's: there is one answer
        return self.from_allocations(wanted, dict(self.to_allocations(found)))

    def _least_room(self, room: Mapping[str, int]) -> Mapping[str, int] | None:
        if not room:
            return self.room
        own = {} if self.room is None else self.room
        both = {name: min(left, own.get(name, left)) for name, left in room.items()}
        return {**own, **both}

    def cell_map(self) -> CellMap:
        """Return the host cells there are, with what is known of where they are."""
        facts = [cell.facts for cell in self._working]
        return CellMap(
            {one.id: one.socket for one in facts}, {one.id: one.distances for one in facts}
        )

    def refreshed(self, assigned: abstract.Amount) -> NUMATopologyAmount:
        """Return an assigned amount with the CPUs that its shared vCPUs may run on now.

        Where CPUs serve either way, one that somebody has dedicated since runs them no more, and
        one that was given back does again; elsewhere it is the amount as it is.

        :raises InvalidInput: for an amount of another kind
        :raises ForeignAmount: if it is on cells or pages that are not here

        >>> from resource_objects.resources.numa import numa
        >>> host = NUMATopologyInventory([HostCell(0, shared=range(4), dedicated=range(4))])
        >>> shared, dedicated = host.consume(numa(shared=1)), host.consume(numa(dedicated=2))
        >>> shared.cpuset, host.refreshed(shared).cpuset
        ('0-3', '2-3')
        """
        return usage.refreshed(self._working, given(assigned))

    def record_allocation(self, assigned: abstract.Amount) -> None:
        if self.taken and any(cell.serves_either_way for cell in self._working):
            self._store("taken", tuple(map(self.refreshed, self.taken)))
            assigned = self.refreshed(assigned)
        super().record_allocation(assigned)

    def _apply(self, assigned: abstract.Amount) -> None:
        changed, room = usage.after(self._working, self.room, given(assigned))
        used = list(self.usage)
        for number, cell in changed.items():
            self._working[number] = cell
            used[number] = usage_of(cell)
        self._store("usage", tuple(used))
        if room is not self.room:
            self._store("room", fields.FrozenDict(room or {}))

    # --- how it is kept ---

    def parts(self) -> tuple[InventoryPart, ...]:
        """Return each cell as an inventory of one cell, to be kept by a provider of its own."""
        alone = (
            type(self)(
                [cell],
                cpu_ratio=self.cpu_ratio,
                memory_ratio=self.memory_ratio,
                resource_class=self.resource_class,
            )
            for cell in self.cells
        )
        return tuple(
            InventoryPart(
                storage.part_name(one.cells[0]), one, storage.classes_of_host(one.to_records())
            )
            for one in alone
        )

    def in_use(self) -> tuple[tuple[str, tuple[AmountRecord, ...]], ...]:
        """Return what is used of each cell: counts, and each dedicated CPU by name."""
        return tuple(storage.in_use(self.cells, self.usage))

    def units(self, resource_class: str) -> frozenset[str]:
        """Return the dedicated CPUs as they are kept; of any other class nothing has a name."""
        return storage.units_of(self.cells, resource_class)

    def units_elsewhere(self, resource_class: str) -> frozenset[str]:
        """Return the shared CPUs, which are no units of dedicated ones."""
        return storage.units_elsewhere(self.cells, resource_class)

    def identifying_units(self) -> frozenset[str]:
        """Return all CPUs: firmware may number cells anew, or report one as several."""
        return frozenset(storage.unit_of(cpu) for cell in self.cells for cpu in cell.cpus)

    def to_records(self) -> tuple[InventoryRecord, ...]:
        """Return the figures of the one cell that a provider keeps.

        :raises InvalidInventory: for several cells: each is kept by a provider of its own
            (:meth:`parts`); or for a CPU that is both shared and dedicated
        """
        return storage.to_records(self.cells, self.usage, self.cpu_ratio, self.memory_ratio)

    def describe(self) -> str:
        """Return what the figures do not tell of the one cell, as JSON."""
        return storage.describe(self.cells)

    def to_allocations(
        self, assigned: abstract.Amount
    ) -> tuple[tuple[int, tuple[AmountRecord, ...]], ...]:
        """Return what an assigned amount takes of each cell: the cell's place, and records."""
        return storage.to_allocations(self._working, given(assigned))

    def with_use(
        self, before: Sequence[StoredPart], parts: Sequence[StoredPart], room: Mapping[str, int]
    ) -> NUMATopologyInventory:
        """Return the inventory over the same cells, of which something else is used."""
        usage, working = list(self.usage), list(self._working)
        for number, used in storage.usage_changed(self.cells, before, parts):
            usage[number], working[number] = used, cell_of(working[number].facts, used)
        for cell in working:  # most cells stay as they are from claim to claim
            if cell.choices is None:
                cell.choices = {}
        found = self._evolve(usage=tuple(usage), room=fields.FrozenDict(room))
        found._made = working
        return found

    def part_ids(self) -> tuple[int, ...]:
        """Return the ids of the cells."""
        return tuple(cell.id for cell in self.cells)

    def from_allocations(
        self,
        amount: abstract.Amount,
        held: Mapping[int, Sequence[AmountRecord]],
        context: Context = ANYWHERE,
    ) -> NUMATopologyAmount:
        """Return the assigned amount that takes ``held`` of the cells, by their place.

        :raises ForeignAmount: if ``amount`` cannot take that
        """
        return storage.from_allocations(self.cells, self._working, given(amount), held)


def _check_usage(cell: HostCell, used: CellUsage) -> None:
    unknown = set(used.pinned).difference(cell.dedicated)
    if unknown:
        raise InvalidInventory(
            f"pinned CPUs of cell {cell.id}", sorted(unknown), f"dedicated ones: {cell.dedicated}"
        )
    for size, _ in used.pages:
        sizes = [pool.size_kib for pool in cell.huge_pages]
        if size not in sizes:
            raise InvalidInventory(f"used page size of cell {cell.id}", size, f"one of {sizes} KiB")
