"""A naive decision of host cells and devices together: everything is tried, kept for ever.

It knows the rules only through :mod:`~resource_objects.testing.numa_reference` and
:mod:`~resource_objects.testing.pci_reference`: a set of host cells will do if the guest cells fit
on exactly these and the devices can be had next to them.

    >>> from resource_objects.resources.numa import HostCell, NUMATopologyInventory, numa
    >>> from resource_objects.resources.pci import Device, devices
    >>> host = NUMATopologyInventory([HostCell(0, dedicated=range(4)), HostCell(1, dedicated=[4])])
    >>> gpu = Device("0000:3b:00.0", "10de", "2330", numa_node=1)
    >>> list(choices(host, numa(dedicated=1), [gpu], (), devices("10de:*", affinity="required")))
    [(1,)]
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator

from resource_objects.resources.numa import (
    NUMATopologyAmount,
    NUMATopologyInventory,
    NUMATopologyLimit,
)
from resource_objects.resources.pci import Device, DeviceUse, PCIAmount
from resource_objects.testing import numa_reference, pci_reference

__all__ = ["choices", "faults", "fits_together", "sockets_of"]


def sockets_of(inventory: NUMATopologyInventory) -> dict[int, int | None]:
    """Return the socket of every host cell, None where it is not known."""
    return {cell.id: cell.socket for cell in inventory.cells}


def choices(
    inventory: NUMATopologyInventory,
    topology: NUMATopologyAmount,
    devices: Iterable[Device],
    usage: Iterable[DeviceUse],
    asked: PCIAmount,
    limit: NUMATopologyLimit | None = None,
    within: Collection[int] | None = None,
) -> Iterator[tuple[int, ...]]:
    """Yield every set of host cells on which both can be had, ascending."""
    there, taken = list(devices), list(usage)
    ids = sorted(sockets_of(inventory) if within is None else within)
    for chosen in itertools.combinations(ids, len(topology.cells)):
        # guest cells are on host cells of their own: on so many, they are on all of them
        if numa_reference.has_placement(
            inventory, topology, limit, chosen
        ) and pci_reference.has_assignment(there, taken, asked, chosen, sockets_of(inventory)):
            yield chosen


def fits_together(
    inventory: NUMATopologyInventory,
    topology: NUMATopologyAmount,
    devices: Iterable[Device],
    usage: Iterable[DeviceUse],
    asked: PCIAmount,
    limit: NUMATopologyLimit | None = None,
    within: Collection[int] | None = None,
) -> bool:
    """Return whether there are host cells for both. Cost: everything is tried."""
    found = choices(inventory, topology, devices, usage, asked, limit, within)
    return next(found, None) is not None


def faults(
    inventory: NUMATopologyInventory,
    topology: NUMATopologyAmount,
    devices: Iterable[Device],
    usage: Iterable[DeviceUse],
    asked: PCIAmount,
    limit: NUMATopologyLimit | None = None,
) -> list[str]:
    """Return what is wrong with two assigned amounts, nothing if both may be taken as they are."""
    chosen = [placed.cell for placed in topology.placed]
    found = numa_reference.faults(inventory, topology, limit)
    return found + pci_reference.faults(devices, usage, asked, chosen, sockets_of(inventory))
