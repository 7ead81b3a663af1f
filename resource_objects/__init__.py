"""Versioned objects that model, place and claim any consumable resource.

    >>> import resource_objects as ro
    >>> host = ro.Inventories("VCPU=8,MEMORY_MB=16384")
    >>> host.can_provide("VCPU=2,MEMORY_MB=4096")
    True

This package has the most common names; further public names are in the subpackages
(``resource_objects.providers.reshape.Reshape``). The standard resources are attributes too
(``ro.VCPU``). All are imported when they are first used, so that importing this package is cheap,
and a program that only counts loads no database driver.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from resource_objects._version import __version__ as __version__

if TYPE_CHECKING:  # type checkers and _modules() read this, the only list of public names
    from resource_objects import exceptions as exceptions
    from resource_objects.exceptions import CapacityException as CapacityException
    from resource_objects.exceptions import NoCandidates as NoCandidates
    from resource_objects.exceptions import ResourceObjectsError as ResourceObjectsError
    from resource_objects.exceptions import SearchLimitReached as SearchLimitReached
    from resource_objects.host.compute_node import ComputeNode as ComputeNode
    from resource_objects.ledger import Ledger as Ledger
    from resource_objects.ledger import connect as connect
    from resource_objects.providers import Allocation as Allocation
    from resource_objects.providers import Claim as Claim
    from resource_objects.providers import Provider as Provider
    from resource_objects.providers import Share as Share
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
    from resource_objects.resources import resource as resource
    from resource_objects.resources.numa import GuestCell as GuestCell
    from resource_objects.resources.numa import HostCell as HostCell
    from resource_objects.resources.numa import NUMATopologyAmount as NUMATopologyAmount
    from resource_objects.resources.numa import NUMATopologyInventory as NUMATopologyInventory
    from resource_objects.resources.numa import NUMATopologyResource as NUMATopologyResource
    from resource_objects.resources.numa import PagePool as PagePool
    from resource_objects.resources.numa import numa as numa
    from resource_objects.resources.pci import Device as Device
    from resource_objects.resources.pci import PCIAmount as PCIAmount
    from resource_objects.resources.pci import PCIInventory as PCIInventory
    from resource_objects.resources.pci import PCIResource as PCIResource
    from resource_objects.resources.pci import devices as devices
    from resource_objects.search.candidate import Candidate as Candidate
    from resource_objects.search.order import Order as Order

    NUMA_TOPOLOGY: Resource
    DEVICES: Resource
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


def _modules() -> dict[str, str]:
    """Return ``{public name: module}`` of the imports above, "" for a resource of the catalog."""
    if not _MODULES:
        import re

        assert __spec__.loader is not None, "it was imported"
        source = __spec__.loader.get_source(__name__)  # type: ignore[attr-defined]  # of a file
        imported = re.findall(r"^    from (\S+) import (\w+) as \2$", source, re.MULTILINE)
        _MODULES.update((name, module) for module, name in imported)
        resources = re.findall(r"^    (\w+): Resource$", source, re.MULTILINE)
        _MODULES.update(dict.fromkeys(resources, ""))
    return _MODULES


_MODULES: dict[str, str] = {}


def __getattr__(name: str) -> Any:
    value: Any
    if name == "__all__":
        value = ["__version__", *_modules()]
    elif name.startswith("_") or name not in _modules():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    elif not _modules()[name]:
        value = importlib.import_module(f"{__name__}.resources.catalog").resource(name)
    elif _modules()[name] == __name__:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        value = getattr(importlib.import_module(_modules()[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), "__version__", *_modules()})
