"""The devices of a record that may belong to a ledger: then those that the ledger has count."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from resource_objects import exceptions
from resource_objects.exceptions import CapacityException, Reason, Rule
from resource_objects.host._compute_devices import Devices
from resource_objects.host._compute_ledger import Binding
from resource_objects.host._compute_located import gives_back_first
from resource_objects.host._compute_pci import COLUMN, NO_DEVICES, PCI, DeviceContent, HostDevices
from resource_objects.resources.pci import Device, DeviceUse, PCIAmount, PCIInventory, words


class BoundDevices(Devices):
    """A record whose devices are those of the ledger that it belongs to, if it does."""

    _bound: Binding | None = None

    def _devices(self) -> DeviceContent | None:
        """Return the devices that count: of a view of a ledger, those that it has."""
        if self._bound is not None and not self._devices_are_ledger_s:
            return None
        return super()._devices()

    @property
    def _is_of_one(self) -> bool:
        return self._bound is not None and not self._bound.aggregate

    def _cells_held(self) -> frozenset[int]:
        return frozenset() if self._bound is None else self._bound.cells

    def _check_own_devices(self, stated: PCIInventory | None) -> None:
        super()._check_own_devices(stated)
        if self._bound is not None:
            raise exceptions.InvalidInventory(
                PCI, "devices", "none, as the host in the ledger: a sync of the host adds them"
            )

    def _rebase_devices(self, binding: Binding, pending: Iterable[PCIAmount]) -> None:
        """Count the devices from what the ledger has, with pending on top.

        A host that is still to be made will have the devices of this node.
        """
        wanted = tuple(pending)
        self._set("pending_devices", wanted)
        former: HostDevices = self._value(COLUMN, None) or HostDevices()
        there = self._devices_there(binding)
        if there is None:
            if wanted:
                raise CapacityException.of(_absent(one, binding) for one in wanted)
            if former.of_ledger:
                self._set(COLUMN, former.become(NO_DEVICES, of_ledger=False))
            return
        for amount in gives_back_first(wanted):
            there._take(_fitted(there, amount, binding))
        self._set(COLUMN, former.become(DeviceContent.of(there), of_ledger=True))

    def _devices_there(self, binding: Binding) -> PCIInventory | None:
        """Return the devices that the ledger has, or will have once the host is made."""
        located = binding.located.get(PCI)
        if located is not None:
            found = located.inventory
            assert isinstance(found, PCIInventory)
            return DeviceContent.stated(found).inventory()
        own = None if binding.kept is not None else super()._devices()
        if own is None or not own.devices:
            return None
        return _as_found(own)


def _as_found(own: DeviceContent) -> PCIInventory | None:
    """Return devices as a host that is made has them: who holds some has claims, or nothing."""
    uses = {use.address: use for use in own.usage}
    devices: list[Device] = []
    for device in own.devices:
        use = uses.get(device.address)
        if use is None or not use.gone:
            devices.append(device if use is None or use.then is None else use.then)
    there = {device.address for device in devices}
    spent: list[DeviceUse] = [
        use for use in own.usage if use.state == words.SPENT and use.address in there
    ]
    return PCIInventory(devices, usage=spent, resource_class=PCI) if devices else None


def _fitted(there: PCIInventory, amount: PCIAmount, binding: Binding) -> PCIAmount:
    try:
        return there.fit(amount)
    except CapacityException as refusal:
        host = binding.provider
        raise CapacityException.of(
            dataclasses.replace(reason, where=reason.where or host) for reason in refusal.reasons
        ) from refusal


def _absent(amount: PCIAmount, binding: Binding) -> Reason:
    return Reason(Rule.NO_INVENTORY, amount.count, 0, 0, PCI, where=binding.provider)


__all__ = ["BoundDevices"]
