"""Keeping a host in a ledger as it is now, beside what of its devices is held."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING

from resource_objects.exceptions import InventoryInUse, ProviderInUse, ProviderNotFound
from resource_objects.host.held_devices import HeldTree, StayingDevice, with_held
from resource_objects.host.kept_devices import HostDevices, read_devices
from resource_objects.providers import Provider
from resource_objects.resources.pci import PCI_DEVICES, Device, PCIInventory

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger, SyncResult

__all__ = ["HostSync", "sync_host"]

#: So often is looked again who holds devices, if somebody took one that was about to go.
_MOST_LOOKS = 5


@dataclasses.dataclass(frozen=True, slots=True)
class HostSync:
    """What a sync of a host did, and the devices that are not kept as they were found."""

    result: SyncResult
    staying: tuple[StayingDevice, ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(str, (self.result, *self.staying)))


def sync_host(ledger: Ledger, tree: Provider, *, reset: Collection[str] = ()) -> HostSync:
    """Keep a host as ``ledger.sync`` does, but for devices that are held.

    These stay as :func:`~resource_objects.host.held_devices.with_held` says: a device that is gone
    does not keep the rest of the host from being kept. Cost: that of a sync, and a read.

    :param tree: what :func:`~resource_objects.host.model.provider_tree` made of the host
    :param reset: addresses of devices that were for one use and can be given out again
    :raises InvalidDevice: if a device to be reset is held, or was not for one use
    :raises ProviderInUse: if something else that would go is held; nothing changed. So does
        InventoryInUse; both, and the errors of ``ledger.sync``, are as there

    >>> import resource_objects as ro
    >>> from resource_objects.host import provider_tree
    >>> from resource_objects.host.facts import Core, Machine, PCIDevice
    >>> gpu = PCIDevice("0000:3b:00.0", "10de", "2330", "030200")
    >>> machine = Machine(hostname="box", cpus=(0,), cores=(Core(0, 0, (0,)),), memory_bytes=0,
    ...                   devices=(gpu,))
    >>> with ro.connect("memory://") as ledger:
    ...     print(sync_host(ledger, provider_tree(machine, rules=["10de:*=PGPU"])))
    ...     _ = ledger.claim("job-1", ledger.snapshot().candidates("PCI_DEVICES=PGPU"))
    ...     print(sync_host(ledger, provider_tree(machine)).staying[0])
    + box
    + box/0000:3b:00.0
    0000:3b:00.0 stays reserved: it is not offered any more, and job-1 holds it
    """
    before: HeldTree | None = None
    for _ in range(_MOST_LOOKS):
        held = _beside(ledger, tree, reset)
        try:
            return HostSync(ledger.sync(held.tree), held.staying)
        except (InventoryInUse, ProviderInUse):
            if before is not None and held == before:
                raise  # nobody took anything since: it is held for good
            before = held
    return HostSync(ledger.sync(held.tree), held.staying)


def _beside(ledger: Ledger, tree: Provider, reset: Collection[str]) -> HeldTree:
    """Return the tree to sync, beside what is held now."""
    kept = _kept(ledger, tree)
    found = [device for child in tree.children for device in _devices(child)]
    known = [one.device for one in kept.devices]
    if not any(device.one_time_use for device in (*found, *known)):
        return with_held(tree, kept, reset=reset)
    # what was written is read before what is held: a use between the two shows in either
    writes = _writes(ledger, tree)
    return with_held(tree, _kept(ledger, tree), writes=writes, reset=reset)


def _devices(provider: Provider) -> tuple[Device, ...]:
    inventory = provider.inventories.get(PCI_DEVICES)
    return inventory.devices if isinstance(inventory, PCIInventory) else ()


def _kept(ledger: Ledger, tree: Provider) -> HostDevices:
    try:
        return read_devices(ledger, tree.uuid or tree.name)[0]
    except ProviderNotFound:
        return HostDevices(tree.name)


def _writes(ledger: Ledger, tree: Provider) -> dict[str, int]:
    """Return how many allocations were ever written at each provider of a host, by name."""
    listed = ledger.providers(tree=tree.uuid or tree.name)
    return {one.name: one.allocation_writes for one in listed}
