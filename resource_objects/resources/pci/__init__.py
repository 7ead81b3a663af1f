"""The PCI kind: devices, each with an identity. Pure: no I/O.

=================  ================================================================================
``device``         Device, DeviceUse: what there is, and what is taken of it
``amount``         PCIAmount, DeviceRequest, DeviceSpec, :func:`devices`: what is asked
``text``           the text form of requests
``device_groups``  devices as decisions read them: groups of which only the address differs
``fit``            the decision: which devices, by flow; or the reasons
``affinity``       which host cells devices need
``usage``          assigned amounts: checked, taken, given back; devices that come, go and change
``storage``        how devices are kept by providers, and read again (D2, D3)
``inventory``      PCIInventory: who could have which
``resource``       PCIResource and ``DEVICES``
=================  ================================================================================
"""

from __future__ import annotations

from resource_objects.resources.pci.amount import (
    DeviceRequest,
    DeviceSpec,
    PCIAmount,
    PlacedDevice,
    devices,
)
from resource_objects.resources.pci.device import Device, DeviceUse
from resource_objects.resources.pci.inventory import PCIInventory
from resource_objects.resources.pci.resource import DEVICES, PCIResource

__all__ = [
    "DEVICES",
    "Device",
    "DeviceRequest",
    "DeviceSpec",
    "DeviceUse",
    "PCIAmount",
    "PCIInventory",
    "PCIResource",
    "PlacedDevice",
    "devices",
]
