"""Versioned objects that model, place and claim any consumable resource.

    >>> import resource_objects as ro
    >>> host = ro.Inventories("VCPU=8,MEMORY_MB=16384")
    >>> host.can_provide("VCPU=2,MEMORY_MB=4096")
    True

The public names are imported when they are first used: importing this package costs next to
nothing, and whoever only counts never loads a database driver.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from resource_objects._version import __version__

if TYPE_CHECKING:
    from resource_objects import exceptions as exceptions
    from resource_objects.exceptions import CapacityException as CapacityException
    from resource_objects.exceptions import ResourceObjectsError as ResourceObjectsError
    from resource_objects.exceptions import SearchLimitReached as SearchLimitReached
    from resource_objects.host.compute_node import ComputeNode as ComputeNode
    from resource_objects.ledger import Ledger as Ledger
    from resource_objects.ledger import RetryPolicy as RetryPolicy
    from resource_objects.ledger import SyncResult as SyncResult
    from resource_objects.ledger import connect as connect
    from resource_objects.providers import Aggregate as Aggregate
    from resource_objects.providers import Allocation as Allocation
    from resource_objects.providers import Claim as Claim
    from resource_objects.providers import Consumer as Consumer
    from resource_objects.providers import Cursor as Cursor
    from resource_objects.providers import Provider as Provider
    from resource_objects.providers import ResourceClass as ResourceClass
    from resource_objects.providers import Share as Share
    from resource_objects.providers import Trait as Trait
    from resource_objects.providers.audit import Audit as Audit
    from resource_objects.providers.mediated import mediated as mediated
    from resource_objects.providers.partitions import add_partition as add_partition
    from resource_objects.providers.partitions import split as split
    from resource_objects.providers.partitions import thousandths as thousandths
    from resource_objects.providers.plan import Plan as Plan
    from resource_objects.providers.pools import Pool as Pool
    from resource_objects.providers.reshape import Reshape as Reshape
    from resource_objects.requests import Request as Request
    from resource_objects.requests import RequestGroup as RequestGroup
    from resource_objects.resources import Amount as Amount
    from resource_objects.resources import Amounts as Amounts
    from resource_objects.resources import IntegerAmount as IntegerAmount
    from resource_objects.resources import IntegerInventory as IntegerInventory
    from resource_objects.resources import IntegerResource as IntegerResource
    from resource_objects.resources import Inventories as Inventories
    from resource_objects.resources import Inventory as Inventory
    from resource_objects.resources import Limits as Limits
    from resource_objects.resources import Resource as Resource
    from resource_objects.resources import SlotResource as SlotResource
    from resource_objects.resources import resource as resource
    from resource_objects.resources import standard_resources as standard_resources
    from resource_objects.resources.numa import CellUsage as CellUsage
    from resource_objects.resources.numa import GuestCell as GuestCell
    from resource_objects.resources.numa import HostCell as HostCell
    from resource_objects.resources.numa import NUMAAmount as NUMAAmount
    from resource_objects.resources.numa import NUMAInventory as NUMAInventory
    from resource_objects.resources.numa import NUMATopologyAmount as NUMATopologyAmount
    from resource_objects.resources.numa import NUMATopologyInventory as NUMATopologyInventory
    from resource_objects.resources.numa import NUMATopologyLimit as NUMATopologyLimit
    from resource_objects.resources.numa import NUMATopologyResource as NUMATopologyResource
    from resource_objects.resources.numa import PagePool as PagePool
    from resource_objects.resources.numa import PlacedCell as PlacedCell
    from resource_objects.resources.numa import numa as numa
    from resource_objects.resources.pci import Device as Device
    from resource_objects.resources.pci import DevicePool as DevicePool
    from resource_objects.resources.pci import DeviceRequest as DeviceRequest
    from resource_objects.resources.pci import DeviceSpec as DeviceSpec
    from resource_objects.resources.pci import DeviceUse as DeviceUse
    from resource_objects.resources.pci import PCIAmount as PCIAmount
    from resource_objects.resources.pci import PCIInventory as PCIInventory
    from resource_objects.resources.pci import PCIResource as PCIResource
    from resource_objects.resources.pci import PlacedDevice as PlacedDevice
    from resource_objects.resources.pci import devices as devices
    from resource_objects.search.candidates import Candidate as Candidate
    from resource_objects.search.candidates import Candidates as Candidates
    from resource_objects.search.order import Order as Order

    NUMA_TOPOLOGY: Resource
    PCI_DEVICES: Resource
    VCPU: Resource
    MEMORY_MB: Resource
    DISK_GB: Resource
    PCI_DEVICE: Resource
    SRIOV_NET_VF: Resource
    NUMA_SOCKET: Resource
    NUMA_CORE: Resource
    NUMA_THREAD: Resource
    NUMA_MEMORY_MB: Resource
    IPV4_ADDRESS: Resource
    VGPU: Resource
    VGPU_DISPLAY_HEAD: Resource
    NET_BW_EGR_KILOBIT_PER_SEC: Resource
    NET_BW_IGR_KILOBIT_PER_SEC: Resource
    PCPU: Resource
    MEM_ENCRYPTION_CONTEXT: Resource
    FPGA: Resource
    PGPU: Resource
    NET_PACKET_RATE_KILOPACKET_PER_SEC: Resource
    NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC: Resource
    NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC: Resource

#: ``{public name: module that defines it}``
_HOME = {
    "Aggregate": "providers",
    "Allocation": "providers",
    "Amount": "resources",
    "Amounts": "resources",
    "Audit": "providers.audit",
    "Candidate": "search.candidates",
    "Candidates": "search.candidates",
    "CapacityException": "exceptions",
    "CellUsage": "resources.numa",
    "Claim": "providers",
    "ComputeNode": "host.compute_node",
    "Consumer": "providers",
    "Cursor": "providers",
    "Device": "resources.pci",
    "DevicePool": "resources.pci",
    "DeviceRequest": "resources.pci",
    "DeviceSpec": "resources.pci",
    "DeviceUse": "resources.pci",
    "GuestCell": "resources.numa",
    "HostCell": "resources.numa",
    "IntegerAmount": "resources",
    "IntegerInventory": "resources",
    "IntegerResource": "resources",
    "Inventories": "resources",
    "Inventory": "resources",
    "Ledger": "ledger",
    "Limits": "resources",
    "NUMAAmount": "resources.numa",
    "NUMAInventory": "resources.numa",
    "NUMATopologyAmount": "resources.numa",
    "NUMATopologyInventory": "resources.numa",
    "NUMATopologyLimit": "resources.numa",
    "NUMATopologyResource": "resources.numa",
    "Order": "search.order",
    "PCIAmount": "resources.pci",
    "PCIInventory": "resources.pci",
    "PCIResource": "resources.pci",
    "PagePool": "resources.numa",
    "PlacedCell": "resources.numa",
    "PlacedDevice": "resources.pci",
    "Plan": "providers.plan",
    "Pool": "providers.pools",
    "Provider": "providers",
    "Request": "requests",
    "RequestGroup": "requests",
    "Reshape": "providers.reshape",
    "Resource": "resources",
    "ResourceClass": "providers",
    "ResourceObjectsError": "exceptions",
    "RetryPolicy": "ledger",
    "SearchLimitReached": "exceptions",
    "Share": "providers",
    "SlotResource": "resources",
    "SyncResult": "ledger",
    "Trait": "providers",
    "add_partition": "providers.partitions",
    "connect": "ledger",
    "devices": "resources.pci",
    "mediated": "providers.mediated",
    "numa": "resources.numa",
    "resource": "resources",
    "split": "providers.partitions",
    "standard_resources": "resources",
    "thousandths": "providers.partitions",
}

#: The resources of the library and of the standard, which are public names too.
_STANDARD = (
    "VCPU",
    "MEMORY_MB",
    "DISK_GB",
    "PCI_DEVICE",
    "SRIOV_NET_VF",
    "NUMA_SOCKET",
    "NUMA_CORE",
    "NUMA_THREAD",
    "NUMA_MEMORY_MB",
    "IPV4_ADDRESS",
    "VGPU",
    "VGPU_DISPLAY_HEAD",
    "NET_BW_EGR_KILOBIT_PER_SEC",
    "NET_BW_IGR_KILOBIT_PER_SEC",
    "PCPU",
    "MEM_ENCRYPTION_CONTEXT",
    "FPGA",
    "PGPU",
    "NET_PACKET_RATE_KILOPACKET_PER_SEC",
    "NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC",
    "NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC",
    "NUMA_TOPOLOGY",
    "PCI_DEVICES",
)

#: Modules that are public under their own names.
_MODULES = ("exceptions",)

__all__ = [  # noqa: PLE0604  # computed, so that no name is said twice
    "__version__",
    *_MODULES,
    *sorted(_HOME),
    *_STANDARD,
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    elif name in _STANDARD:
        value = importlib.import_module(f"{__name__}.resources.catalog").resource(name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
