"""The kind of PCI devices, each with an identity. Pure: no I/O.

================  =================================================================================
``device``        Device, DeviceUse; addresses; devices that are retained by a discovery
``amount``        PCIAmount, DeviceRequest, DeviceSpec, :func:`devices`, and their text form
``device_index``  devices by groups that differ in their addresses alone
``fit``           the decision: which devices meet an amount, or the reasons of a refusal
``affinity``      the constraints of devices on the choice of host cells
``storage``       devices and amounts as they are stored by providers
``inventory``     PCIInventory
``resource``      PCIResource, ``DEVICES``, and relaxations
================  =================================================================================
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
