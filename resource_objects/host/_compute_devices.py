"""What a compute node takes of its devices, gives back, or is told of them.

Of a record only pools are known (``_compute_pci``): what it could provide can be asked, and nobody
can take any, for nobody knows which. Of a view of a ledger, and where somebody stated them, the
devices are known; then the column says what is left of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from resource_objects import exceptions
from resource_objects.host._compute_cells import Cells
from resource_objects.host._compute_live_pci import LiveDevices
from resource_objects.host._compute_located import NUMA, gives_back_first
from resource_objects.host._compute_pci import COLUMN, PCI, DeviceContent, HostDevices
from resource_objects.resources import Inventories, Inventory
from resource_objects.resources.pci import PCIAmount, PCIInventory
from resource_objects.resources.together import Cells as HostCells
from resource_objects.resources.together import Near


class Devices(Cells):
    """A record that knows the devices of its host, and takes them."""

    def _devices(self) -> DeviceContent | None:
        """Return the devices that count, or pools; None if there are none.

        :raises InvalidRow: if the column cannot be read
        """
        kept: HostDevices | None = self._value(COLUMN, None)
        return None if kept is None else kept.known

    @property
    def _devices_are_ledger_s(self) -> bool:
        """Whether the devices are those of a ledger."""
        kept: HostDevices | None = self._value(COLUMN, None)
        return kept is not None and kept.of_ledger

    def _own_devices(self) -> dict[str, HostDevices]:
        """Return the column for a copy that belongs to no ledger; the devices are its own."""
        kept: HostDevices | None = self._value(COLUMN, None)
        if kept is None or kept.now is None:
            return {}
        return {COLUMN: kept.become(kept.now, of_ledger=False)}

    def _members(self, former: dict[str, Any]) -> Iterator[Inventory]:
        yield from super()._members(former)
        devices = self._devices()
        if devices is not None:
            live = former.pop(PCI, None)
            if live is None:
                live = LiveDevices.made(devices, self)
            else:
                live.mirror(devices)
            yield live

    # --- devices and host cells ---

    def _cells_beside(self) -> tuple[HostCells, frozenset[int]] | None:
        """Return the host cells, and those of whom asks now; None if there are none."""
        live = self._live_of(NUMA)
        cells = None if live is None else live.all_cells()
        if cells is None or not self._is_of_one:
            return None
        own = set(self._cells_held())
        for topology in gives_back_first(self.pending_topologies):
            change = own.difference_update if topology.is_negative else own.update
            change(topology.host_cells)
        return (cells, frozenset(own)) if own else None

    def _cells_held(self) -> frozenset[int]:
        """Return the host cells that the consumer of this view held before."""
        return frozenset()

    def _devices_beside(self, cells: HostCells) -> tuple[Near, ...]:
        """Return what the devices need of host cells that were just taken for whom asks now."""
        live = self._live_of(PCI)
        if live is None or not self._is_of_one:
            return ()
        nears = (live.near(one, cells) for one in self.pending_devices if not one.is_negative)
        return tuple(near for near in nears if near is not None)

    @property
    def _is_of_one(self) -> bool:
        """Whether all that this view takes is for one consumer."""
        return False

    # --- columns that follow ---

    def _place_devices(self, pending: tuple[PCIAmount, ...], live: PCIInventory) -> None:
        """Write devices of which something was taken, or given back, into the columns."""
        with self._all_or_nothing():
            self._follow_devices(live)
            self._set("pending_devices", pending)

    def _follow_devices(self, live: PCIInventory) -> None:
        """Write the states of devices that somebody has into the columns."""
        kept: HostDevices = self._value(COLUMN)
        self._set(COLUMN, kept.become(DeviceContent.of(live)))

    # --- what is stated ---

    def _state_devices(self, live: PCIInventory) -> None:
        """Write devices, and what somebody states is taken of them, into the columns.

        :raises InvalidInventory: if the devices are a ledger's
        """
        with self._all_or_nothing():
            self._write_devices(live)
        self._refresh()

    def _write_devices(self, stated: PCIInventory | None) -> None:
        now = None if stated is None else DeviceContent.stated(stated)
        if now == self._devices():
            return
        self._check_own_devices(stated)
        former: HostDevices = self._value(COLUMN, None) or HostDevices()
        self._set(COLUMN, None if now is None else former.become(now))

    def _check_own_devices(self, stated: PCIInventory | None) -> None:
        """Refuse other devices than there are where they are a ledger's."""
        if self._devices_are_ledger_s:
            shown = None if stated is None else f"{len(stated.devices)} devices, as others"
            raise exceptions.InvalidInventory(
                PCI, shown, "the devices that the ledger has: a sync of the host changes them"
            )

    def _checked_devices(self, given: Any) -> PCIInventory:
        """Return a copy of an inventory of devices."""
        if not isinstance(given, PCIInventory):
            raise exceptions.InvalidInventory(PCI, given, "a PCIInventory")
        labelled = Inventories({PCI: given})[PCI]
        assert isinstance(labelled, PCIInventory)
        return labelled


__all__ = ["Devices"]
