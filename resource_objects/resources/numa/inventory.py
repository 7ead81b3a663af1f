"""The inventory of ``NUMA_TOPOLOGY``: the cells of a host and their usage."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final, Self

from resource_objects import base, fields, ratio
from resource_objects.exceptions import CapacityException, InvalidInput, InvalidInventory
from resource_objects.resources import abstract
from resource_objects.resources.context import ANYWHERE, CellMap, Context
from resource_objects.resources.numa import storage
from resource_objects.resources.numa.allocation import (
    apply_allocation,
    check_assigned,
    with_current_cpus,
)
from resource_objects.resources.numa.amount import (
    ISOLATE,
    NUMATopologyAmount,
    NUMATopologyLimit,
    require_topology,
)
from resource_objects.resources.numa.cells import CellState, CellUsage, HostCell
from resource_objects.resources.numa.placement import affinity_reason, place_cells
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
    """The NUMA cells of a host and their usage.

    ================  ==============================================================================
    ``cells``         the host cells; an inventory without cells is not stored
    ``usage``         the usage of each cell, in the same order
    ``cpu_ratio``     allocation ratio of shared CPUs; dedicated CPUs are not overcommitted
    ``memory_ratio``  allocation ratio of ordinary memory; huge pages are not overcommitted. One
                      claim never gets more CPUs or memory of a cell than the cell physically has
    ``room``          free counts of the whole host by class (``VCPU``, ``PCPU``, ``MEMORY_MB``), if
                      other resources use them too; None: the cells are the only bound
    ================  ==============================================================================

    :meth:`fit` finds a placement whenever the rules allow one, in time polynomial in the number of
    cells; where several cells are near the requested networks or devices, exactly within a budget.
    Only assigned amounts can be released.

    >>> from resource_objects.resources.numa import numa
    >>> host = NUMATopologyInventory([
    ...     HostCell(0, dedicated=range(4), memory_mb=1024),
    ...     HostCell(1, dedicated=range(4, 8), memory_mb=1024)])
    >>> assigned = host.consume(numa(cells=2, dedicated=6, memory_mb=1024))
    >>> assigned.cpuset, assigned.memory_nodes
    ('0-2,4-6', '0-1')
    >>> host.consume(numa(dedicated=2))
    Traceback (most recent call last):
    resource_objects.exceptions.CapacityException: each of cells 0, 1: PCPU requested 2, free 1 of 4
    >>> print(host.consume(-assigned).is_negative, host.free_dedicated)
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

    def _validate(self) -> None:
        _check_distinct("host cells", [cell.id for cell in self.cells])
        cpus = [cell.cpus for cell in self.cells]
        _check_distinct("CPUs of the host cells", [*itertools.chain.from_iterable(cpus)])
        _check_distinct("usage of host cells", [used.cell for used in self.usage])
        by_cell = {used.cell: used for used in self.usage}
        unknown = sorted(by_cell.keys() - {cell.id for cell in self.cells})
        if unknown:
            raise InvalidInventory("usage of host cells", unknown, "cells of the inventory")
        usage = tuple(by_cell.get(cell.id) or CellUsage(cell.id) for cell in self.cells)
        for cell, used in zip(self.cells, usage, strict=True):
            unknown = sorted(set(used.pinned).difference(cell.dedicated))
            if unknown:
                subject = f"pinned CPUs of cell {cell.id}"
                raise InvalidInventory(subject, unknown, f"dedicated ones: {cell.dedicated}")
            sizes = [pool.size_kib for pool in cell.huge_pages] if used.pages else []
            for size, _ in used.pages:
                if size not in sizes:
                    subject = f"used page size of cell {cell.id}"
                    raise InvalidInventory(subject, size, f"one of {sizes} KiB")
        if usage != self.usage:
            self._store("usage", usage)
        self._after_copy()

    def _after_copy(self) -> None:
        self._states_or_none: list[CellState] | None = None

    @property
    def _states(self) -> list[CellState]:
        """The cells as the search reads them, made when they are first needed."""
        if self._states_or_none is None:
            ratios = ratio.to_millionths(self.cpu_ratio), ratio.to_millionths(self.memory_ratio)
            self._states_or_none = [
                CellState.of(cell, used, *ratios)
                for cell, used in zip(self.cells, self.usage, strict=True)
            ]
        return self._states_or_none

    # --- figures ---

    @property
    def is_empty(self) -> bool:
        """Whether there are no cells."""
        return not self.cells

    @property
    def free_shared(self) -> int:
        """The number of further shared vCPUs that all cells have capacity for."""
        return self._within_room("VCPU", [state.free_shared for state in self._states])

    @property
    def free_dedicated(self) -> int:
        """The number of free dedicated CPUs of all cells."""
        return self._within_room("PCPU", [state.free_dedicated for state in self._states])

    @property
    def free_memory_mb(self) -> int:
        """MiB of free ordinary memory of all cells."""
        return self._within_room(
            "MEMORY_MB", [state.memory_capacity - state.memory_used for state in self._states]
        )

    def _within_room(self, name: str, counts: Iterable[int]) -> int:
        total = sum(count for count in counts if count > 0)
        return total if self.room is None else min(total, self.room.get(name, total))

    def cell(self, cell_id: int) -> HostCell:
        """Return the host cell of an id.

        :raises InvalidInventory: if there is none
        """
        for cell in self.cells:
            if cell.id == cell_id:
                return cell
        raise InvalidInventory("host cell", cell_id, f"one of {[cell.id for cell in self.cells]}")

    def cell_map(self) -> CellMap:
        """Return the host cells with their sockets and distances."""
        return CellMap(
            {cell.id: cell.socket for cell in self.cells},
            {cell.id: dict(cell.distances) for cell in self.cells},
        )

    # --- the decision ---

    def _fit(
        self, amount: abstract.Amount, limit: abstract.Amount | None, context: Context
    ) -> NUMATopologyAmount:
        """Return the assigned amount. Nothing changes.

        An assigned amount is not placed again: the CPUs of its shared vCPUs are updated, and it is
        checked; so is a release. Cells with the most devices that the request may use
        (``context.near``) come first; without such devices, the cells with the fewest
        (``context.spare``). Of equal cells, those with the most free come first, or with the least
        (``context.pack``). Source: Nova's order of host cells.

        :param limit: a :class:`NUMATopologyLimit` for this one claim
        :raises InvalidInput: for an amount of another kind
        :raises ForeignAmount: if an assigned cell, CPU or page size is not of this host
        :raises CapacityException: with, for each host cell, the broken rule and its figures; with
            ``Rule.AFFINITY`` alone as :meth:`~.abstract.Inventory.fit`
        :raises SearchLimitReached: if the budget ended before the search

        Cost: per kind of guest cell and host cell about 2 microseconds if counts decide, and up to
        1 for each core if threads are chosen.
        """
        amount = require_topology(amount)
        if limit is not None and not isinstance(limit, NUMATopologyLimit):
            raise InvalidInput("kind of amount", "limit", limit, "a NUMATopologyLimit or None")
        room = self.room
        if context.room:
            room = {**(room or {}), **context.room}
            for name, count in (self.room or {}).items():
                room[name] = min(count, room[name])
        if amount.placed:
            assigned = with_current_cpus(self._states, amount)
            check_assigned(self._states, room, assigned, limit, context.allowed)
            met = sum(constraint.is_met(assigned.host_cells) for constraint in context.near)
            if met < len(context.near):
                raise CapacityException([affinity_reason(context.near, met)])
            return assigned
        assigned = place_cells(self._states, amount, limit, room, context)
        if amount.emulator_policy != ISOLATE or len(amount.cells) == 1:
            return assigned
        # a stored set of CPUs may not identify the emulator's: return the amount as it is read back
        return self.from_allocations(amount, dict(self.to_allocations(assigned)))

    def refreshed(self, assigned: abstract.Amount) -> NUMATopologyAmount:
        """Return an assigned amount with the CPUs that may run its shared vCPUs now.

        Where CPUs serve either purpose, one that was pinned since runs them no more, and one that
        was released runs them again; elsewhere the amount is unchanged.

        :raises InvalidInput: for an amount of another kind
        :raises ForeignAmount: if a cell or page size is not of this host

        >>> from resource_objects.resources.numa import numa
        >>> host = NUMATopologyInventory([HostCell(0, shared=range(4), dedicated=range(4))])
        >>> shared, dedicated = host.consume(numa(shared=1)), host.consume(numa(dedicated=2))
        >>> shared.cpuset, host.refreshed(shared).cpuset
        ('0-3', '2-3')
        """
        return with_current_cpus(self._states, require_topology(assigned))

    def record_allocation(self, assigned: abstract.Amount) -> None:
        if self.taken and any(state.facts.dual for state in self._states):
            self._store("taken", tuple(map(self.refreshed, self.taken)))
            assigned = self.refreshed(assigned)
        super().record_allocation(assigned)

    def _apply(self, assigned: abstract.Amount) -> None:
        states = self._states
        changed, room = apply_allocation(states, self.room, require_topology(assigned))
        usage = list(self.usage)
        for index, state in changed.items():
            states[index] = state
            usage[index] = state.usage()
        self._store("usage", tuple(usage))
        if room is not self.room:
            self._store("room", fields.FrozenDict(room or {}))

    # --- storage ---

    @classmethod
    def from_storage(
        cls,
        parts: Sequence[StoredPart],
        resource_class: str,
        room: Mapping[str, int] | None = None,
        *,
        has_allocations: bool = True,
    ) -> Self:
        gathered = storage.from_parts(parts)
        return cls(**gathered._asdict(), room=room, resource_class=resource_class)

    @classmethod
    def cell_of_description(cls, description: str) -> int | None:
        return storage.cell_id(description)

    def summary(self) -> str:
        counts = {
            "shared CPUs": sum(len(cell.shared) for cell in self.cells),
            "dedicated CPUs": sum(len(cell.dedicated) for cell in self.cells),
            "MiB": sum(cell.memory_mb for cell in self.cells),
        }
        figures = " ".join(f"{count} {name}" for name, count in counts.items() if count)
        return f"cell {'+'.join(str(cell.id) for cell in self.cells)}: {figures}"

    def parts(self) -> tuple[InventoryPart, ...]:
        """Return each cell as an inventory of one cell, stored at a provider of its own."""
        parts: list[InventoryPart] = []
        for cell in self.cells:
            inventory = type(self)(
                [cell],
                cpu_ratio=self.cpu_ratio,
                memory_ratio=self.memory_ratio,
                resource_class=self.resource_class,
            )
            classes = {record.resource_class for record in inventory.to_records()}
            host_classes = tuple(name for name in storage.OF_HOST if name in classes)
            parts.append(InventoryPart(storage.part_name(cell), inventory, host_classes))
        return tuple(parts)

    def part_ids(self) -> tuple[int, ...]:
        """Return the ids of the cells."""
        return tuple(cell.id for cell in self.cells)

    def in_use(self) -> tuple[tuple[str, tuple[AmountRecord, ...]], ...]:
        """Return the usage of each cell: counts, and each dedicated CPU by name."""
        return tuple(
            (storage.part_name(cell), storage.usage_records(used))
            for cell, used in zip(self.cells, self.usage, strict=True)
        )

    def units(self, resource_class: str) -> frozenset[str]:
        """Return the dedicated CPUs as units of ``PCPU``; other classes have no units."""
        cpus = [cpu for cell in self.cells for cpu in cell.dedicated]
        return frozenset(map(storage.unit_of, cpus if resource_class == storage.PCPU else ()))

    def units_elsewhere(self, resource_class: str) -> frozenset[str]:
        """Return the CPUs that are shared only, and so are no units of ``PCPU``."""
        cpus = [cpu for cell in self.cells for cpu in set(cell.shared).difference(cell.dedicated)]
        return frozenset(map(storage.unit_of, cpus if resource_class == storage.PCPU else ()))

    def identifying_units(self) -> frozenset[str]:
        """Return all CPUs: firmware may renumber cells, or split one into several."""
        return frozenset(storage.unit_of(cpu) for cell in self.cells for cpu in cell.cpus)

    def to_records(self) -> tuple[InventoryRecord, ...]:
        """Return the figures of the one cell of a provider.

        :raises InvalidInventory: for several cells, which are stored at providers of their own
            (:meth:`parts`); for a CPU that is both shared and dedicated
        """
        ratios = ratio.to_millionths(self.cpu_ratio), ratio.to_millionths(self.memory_ratio)
        return storage.to_records(storage.only_cell(self.cells), self.usage[0], *ratios)

    def describe(self) -> str:
        """Return the facts of the one cell that are not in its figures, as JSON."""
        return storage.describe(storage.only_cell(self.cells))

    def to_allocations(
        self, assigned: abstract.Amount
    ) -> tuple[tuple[int, tuple[AmountRecord, ...]], ...]:
        """Return the usage of an assigned amount: the index of each host cell, and records."""
        return storage.to_allocations(self._states, require_topology(assigned))

    def from_allocations(
        self,
        amount: abstract.Amount,
        allocations: Mapping[int, Sequence[AmountRecord]],
        context: Context = ANYWHERE,
    ) -> NUMATopologyAmount:
        """Return the assigned amount that has ``allocations``, by the index of the host cell.

        :raises ForeignAmount: if ``amount`` cannot have this allocation
        """
        return storage.from_allocations(self._states, require_topology(amount), allocations)

    def with_use(
        self, before: Sequence[StoredPart], parts: Sequence[StoredPart], room: Mapping[str, int]
    ) -> NUMATopologyInventory:
        """Return the inventory of the same cells with another usage."""
        usage, states = list(self.usage), list(self._states)
        for index, used in storage.changed_usage(self.cells, before, parts):
            usage[index], states[index] = used, states[index].with_usage(used)
        inventory = self._evolve(usage=tuple(usage), room=fields.FrozenDict(room))
        inventory._states_or_none = states
        return inventory


def _check_distinct(subject: str, numbers: Sequence[int]) -> None:
    if len(set(numbers)) != len(numbers):
        repeated = sorted(number for number, count in Counter(numbers).items() if count > 1)
        raise InvalidInventory(subject, repeated, "each once")
