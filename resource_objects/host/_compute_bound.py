"""A record bound to a host of a ledger: whose view it is, and counting from what the ledger has.

What is pending stays on top, whatever the ledger says now.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

from resource_objects import exceptions, names
from resource_objects.exceptions import CapacityException, Reason, Rule
from resource_objects.host import _compute_ledger as ledgers
from resource_objects.host._compute_bound_devices import BoundDevices
from resource_objects.host._compute_cells import MEMORY, VCPU
from resource_objects.host._compute_columns import KINDS, Kind
from resource_objects.host._compute_ledger import Binding, Pending, unattributed
from resource_objects.host._compute_live import follow_total
from resource_objects.host._compute_located import (
    CPUS,
    NUMA,
    Content,
    figures_of,
    gives_back_first,
    taken_of_host,
)
from resource_objects.host._compute_numa import COLUMN, Topology
from resource_objects.host._compute_record import units
from resource_objects.host.ratios import stated_ratio
from resource_objects.providers import Provider
from resource_objects.resources import IntegerInventory
from resource_objects.resources.numa import NUMATopologyInventory

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger


class Bound(BoundDevices):
    """A record that may belong to a ledger."""

    def _unit_rules(self, kind: Kind, total: int) -> dict[str, Any]:
        """Return the rules that the ledger has, else those that Nova reports."""
        kept = None if self._bound is None else self._bound.kept_inventory(kind.resource_class)
        if kept is None:
            return super()._unit_rules(kind, total)
        most = follow_total(kept.max_unit, kept.total, total)
        return {"min_unit": kept.min_unit, "max_unit": most, "step_size": kept.step_size}

    def _claimed_with(self, resource_class: str) -> int:
        """Return what the consumer holds of the host after a save: unit rules bind all of it."""
        if self._bound is None or self._bound.aggregate:
            return 0
        in_cells = taken_of_host(self.pending_topologies, resource_class)
        held = self._bound.holds.get(resource_class, 0)
        return held + units(self.pending, resource_class) - in_cells

    def _held_of(self, resource_class: str) -> int:
        if self._bound is None or self._bound.aggregate:
            return 0  # what is held for many is promised to one of them
        return self._bound.holds.get(resource_class, 0)

    # --- cells of a ledger ---

    def _topology(self) -> Topology | None:
        """Return the cells that count: of a view of a ledger, those that it has."""
        if self._bound is not None and not self._counts_like_a_ledger:
            return None
        return super()._topology()

    def _counts_cpus(self) -> bool:
        if self._bound is None or self._bound.kept is None:
            return super()._counts_cpus()
        return self._topology() is not None and self._bound.kept_inventory(CPUS) is not None

    def _cpu_figures(self) -> IntegerInventory | None:
        kept = None if self._bound is None else self._bound.kept_inventory(CPUS)
        if kept is None or not self._counts_cpus():
            return super()._cpu_figures()
        found = kept.obj_clone()
        found.update(used=self._cpus_used())
        return found

    def _check_own_cells(self, content: Content | None) -> None:
        super()._check_own_cells(content)
        if self._bound is not None:
            raise exceptions.InvalidInventory(
                NUMA, "cells", "none, as the host in the ledger: a sync of the host adds them"
            )

    # --- whose view it is ---

    def _host_name(self) -> str:
        for name in ("hypervisor_hostname", "host"):
            found: str | None = self._value(name, None)
            if found is not None:
                return found
        raise exceptions.InvalidName("provider name", None, "hypervisor_hostname or host to be set")

    def _provider_uuid(self) -> str | None:
        uuid = self._value("uuid", None)
        return None if uuid is None else names.uuid_text(uuid)

    def _binding(self) -> Binding:
        if self._bound is None:
            host = self._value("hypervisor_hostname", None) or self._value("host", None)
            raise exceptions.NotBound(host or "compute node")
        return self._bound

    def _attach(
        self, ledger: Ledger, name: str, consumer: str | None, found: ledgers.Host | None
    ) -> None:
        holder = names.consumer_name(unattributed(name) if consumer is None else consumer)
        was, made = self._bound, Binding(ledger, name, holder, aggregate=consumer is None).at(found)
        if was is not None and was.writes_where(made):
            made = dataclasses.replace(made, sent=was.sent)
        self._bound = made
        self._context = ledger

    def _stated(self) -> dict[str, dict[str, Any]]:
        """Return the figures that this node states and does not only assume."""
        found: dict[str, dict[str, Any]] = {name: {} for name in KINDS}
        for name, kind in KINDS.items():
            if self._has(kind.total):
                found[name]["total"] = self._value(kind.total)
            if self._has("reserved"):
                found[name]["reserved"] = self._own_reserved(kind)
            if name in self.ratios or stated_ratio(kind.ratio, self._value(kind.ratio, None)):
                found[name]["allocation_ratio"] = self._ratio_of(kind)
        return found

    def _adopt_ratios(self, stated: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over the ledger's ratios where this node states none; no column is changed."""
        kept = ledgers.counted_inventories(self._binding().kept)
        adopted = {
            name: inventory.allocation_ratio
            for name, inventory in kept.items()
            if "allocation_ratio" not in stated[name]
        }
        self._set("ratios", {**self.ratios, **adopted})

    # --- counting from the ledger ---

    def _rebase(self, pending: Pending, stated: Mapping[str, Mapping[str, Any]]) -> None:
        """Count from what the ledger has, but for what is stated here, with pending on top."""
        kept = self._binding().kept
        inventories = ledgers.counted_inventories(kept)
        with self._all_or_nothing():
            self._set("pending_topologies", pending.topologies)
            aside = self._rebase_cells(pending)
            self._rebase_devices(self._binding(), pending.devices)
            for name, kind in KINDS.items():
                has = inventories.get(name)
                says = dict(stated.get(name, {}))
                if kind is MEMORY and "reserved" in says:
                    most = says.get("total", 0 if has is None else has.total)
                    says["reserved"] += min(aside, max(0, most - says["reserved"]))
                used = 0 if has is None else has.used
                change = units(pending.amounts, name)
                if used + change < 0:
                    raise CapacityException([_gives_back_too_much(name, change, used, kept)])
                if kept is not None or "total" in says:
                    self._rebase_one(kind, has, says, used + change)
            self._set("pending", pending.amounts)

    def _rebase_one(
        self, kind: Kind, has: IntegerInventory | None, says: Mapping[str, Any], used: int
    ) -> None:
        reserved = says.get("reserved", 0 if has is None else has.reserved)
        self._set(kind.total, says.get("total", 0 if has is None else has.total))
        self._set_reserved(kind, reserved)
        self._set_used(kind, used)
        if has is not None and "allocation_ratio" not in says:
            self._state_ratio_if_other(kind, has)

    def _state_ratio_if_other(self, kind: Kind, has: IntegerInventory) -> None:
        if has.allocation_ratio != self._ratio_of(kind):
            self._state_ratio(kind, has.allocation_ratio)

    def _rebase_cells(self, pending: Pending) -> int:
        """Count the cells from what the ledger has; return how much of them is huge pages, in MiB.

        A host that is still to be made will have the cells of this node.
        """
        cells = self._cells_there()
        if cells is None:
            if pending.topologies:
                reasons = [
                    Reason(Rule.NO_INVENTORY, len(one.cells), 0, 0, NUMA)
                    for one in pending.topologies
                ]
                raise CapacityException(reasons)
            if self._counts_like_a_ledger:
                self._set(COLUMN, None)
            self._set("cell_ratios", {})
            self._set("loose_cpus", 0)
            return 0
        for topology in gives_back_first(pending.topologies):
            if topology.is_negative:
                cells.fit(topology)
            cells._take(topology)
        former: Topology = self._value(COLUMN, None) or Topology()
        self._set(COLUMN, former.become(cells.cells, cells.usage))
        self._set("cell_ratios", _ratios_of(cells))
        figures = figures_of(cells.cells, cells.usage)
        self._set("loose_cpus", self._cpus_there(pending) - figures.taken)
        return figures.huge_mb

    def _cells_there(self) -> NUMATopologyInventory | None:
        """Return the cells that the ledger has, or will have once the host is made."""
        binding = self._binding()
        located = binding.located.get(NUMA)
        if located is not None:
            found = located.inventory
            assert isinstance(found, NUMATopologyInventory)
            return NUMATopologyInventory(
                found.cells,
                usage=found.usage,
                cpu_ratio=found.cpu_ratio,
                memory_ratio=found.memory_ratio,
            )
        own = None if binding.kept is not None else super()._topology()
        if own is None or own.content is None:
            return None
        ratios = self._cell_ratios()
        return NUMATopologyInventory(
            own.content[0], cpu_ratio=ratios[0], memory_ratio=ratios[1], resource_class=NUMA
        )

    def _cpus_there(self, pending: Pending) -> int:
        """Return how many dedicated CPUs of the host are used, with pending on top."""
        binding = self._binding()
        kept = binding.kept_inventory(CPUS)
        used = 0 if kept is None else kept.used
        change = units(pending.amounts, CPUS)
        if used + change < 0:
            raise CapacityException([_gives_back_too_much(CPUS, change, used, binding.kept)])
        return used + change

    def _read_again(self, uuid: str | None = None) -> Binding:
        """Return the binding with the host as it is now; ``uuid`` of one that was just made."""
        binding = self._binding()
        found = (
            binding.read()
            if uuid is None
            else ledgers.read_host(binding.ledger, binding.provider, uuid)
        )
        if found is None:
            raise exceptions.ProviderNotFound(binding.provider)
        return binding.at(found)

    # --- copies ---

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy the record; the copy is a view of the same ledger."""
        twin = super().__deepcopy__(memo)
        twin._bound = self._bound
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the record, without the ledger."""
        return {**super().__getstate__(), "_bound": None}


def _ratios_of(cells: NUMATopologyInventory) -> dict[str, Decimal]:
    return {VCPU.resource_class: cells.cpu_ratio, MEMORY.resource_class: cells.memory_ratio}


def _gives_back_too_much(name: str, change: int, used: int, kept: Provider | None) -> Reason:
    where = None if kept is None else kept.name
    return Reason(Rule.USED_BELOW_ZERO, change, bound=0, used=used, resource=name, where=where)
