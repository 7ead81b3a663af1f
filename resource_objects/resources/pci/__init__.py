"""The PCI kind: devices, each with an identity. Pure: no I/O.

==============  ===================================================================================
``device``      Device: what it is and as what it is taken; DeviceUse: what is taken of it
``wish``        DeviceSpec, DeviceRequest: so many of such a kind
``amount``      PCIAmount: all that is asked, and which devices it has
``build``       :func:`devices`, from plain words to an amount
``pool``        DevicePool: counts, for who knows no devices
``text``        the text form of amounts
``host_text``   the text form of inventories
``pieces``      what text forms are made of
``inventory``   PCIInventory: who could have which
``resource``    PCIResource and ``PCI_DEVICES``
``kept``        how devices are kept by providers, and gathered again (D2, D3)
``fit``         the decision: which devices
``question``    an amount laid over devices: who may have which, the best first
``divide``      who has what where functions exclude each other
``flow``        demands met from groups, polynomial
``near``        how near devices are to host cells
``near_cells``  which host cells devices need
``refusal``     why not
``taking``      taking and giving back what is assigned
``renewal``     devices that come, go and change while they are held
``shelf``       devices as a decision reads them, and their states
``valid``       what makes devices an inventory
``words``       types, policies, states, addresses
==============  ===================================================================================
"""

from __future__ import annotations

from resource_objects.resources.pci.amount import PCIAmount, PlacedDevice
from resource_objects.resources.pci.build import devices
from resource_objects.resources.pci.device import Device, DeviceUse
from resource_objects.resources.pci.inventory import PCIInventory
from resource_objects.resources.pci.pool import DevicePool
from resource_objects.resources.pci.resource import PCI_DEVICES, PCIResource
from resource_objects.resources.pci.wish import DeviceRequest, DeviceSpec

__all__ = [
    "PCI_DEVICES",
    "Device",
    "DevicePool",
    "DeviceRequest",
    "DeviceSpec",
    "DeviceUse",
    "PCIAmount",
    "PCIInventory",
    "PCIResource",
    "PlacedDevice",
    "devices",
]
