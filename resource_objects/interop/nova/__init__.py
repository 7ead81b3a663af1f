"""Nova's words and formats: flavors, host options, the topologies and devices it keeps as JSON.

=====================  ============================================================================
``flavor``             :func:`flavor_topology`: a flavor and its image as one topology amount
``flavor_words``       the extra specs and image properties it reads
``cpu_policy``         shared, dedicated or mixed; the emulator's threads
``cpu_resources``      ``resources:PCPU`` and ``resources:VCPU``, which imply a policy
``thread_policy``      prefer, require, isolate; ``trait:HW_CPU_HYPERTHREADING``
``masks``              which vCPUs are real-time, and which are dedicated
``pages``              page sizes, locked memory
``pmem``               persistent memory
``cells``              how many guest cells, and what is in each
``cpu_spec``           lists of CPUs
``host_config``        ``cpu_shared_set``, ``cpu_dedicated_set``, ``reserved_huge_pages``
``extra_specs``        :func:`flavor_request`: ``resources:``, ``trait:`` and ``group_policy``
``extra_spec_words``   their keys and values
``flavor_specs``       a flavor that asks for what a request asks
``request_errors``     one type per broken rule of those
``errors``             one type per broken rule, with the name of Nova's own
``host_topology``      ``compute_nodes.numa_topology``
``instance_topology``  ``instance_extra.numa_topology``
``pci_alias``          ``[pci] alias``
``pci_flavor``         what a flavor and its image ask of devices
``pci_device_spec``    ``[pci] device_spec``: which devices of a host are for guests
``pci_address``        the addresses in it
``pci_tagging``        what that makes of a device
``pci_pools``          ``compute_nodes.pci_stats``
``pci_devices``        the table ``pci_devices``
``pci_requests``       ``instance_extra.pci_requests``
``pci_errors``         one type per broken rule of devices
=====================  ============================================================================

The names below are loaded when they are first used. Nova itself is not needed.

    >>> from resource_objects.interop import nova
    >>> print(nova.format_cpu_spec(nova.parse_cpu_spec("0-7,^2")))
    0-1,3-7
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resource_objects.interop.nova.cpu_spec import format_cpu_spec as format_cpu_spec
    from resource_objects.interop.nova.cpu_spec import parse_cpu_spec as parse_cpu_spec
    from resource_objects.interop.nova.errors import InvalidWords as InvalidWords
    from resource_objects.interop.nova.extra_specs import flavor_request as flavor_request
    from resource_objects.interop.nova.flavor import FlavorTopology as FlavorTopology
    from resource_objects.interop.nova.flavor import flavor_topology as flavor_topology
    from resource_objects.interop.nova.flavor_specs import FlavorSpecs as FlavorSpecs
    from resource_objects.interop.nova.flavor_specs import request_flavor as request_flavor
    from resource_objects.interop.nova.host_config import CPUSets as CPUSets
    from resource_objects.interop.nova.host_config import configured_cells as configured_cells
    from resource_objects.interop.nova.host_config import cpu_sets as cpu_sets
    from resource_objects.interop.nova.host_config import reserved_pages as reserved_pages
    from resource_objects.interop.nova.host_topology import (
        dump_host_numa_topology as dump_host_numa_topology,
    )
    from resource_objects.interop.nova.host_topology import (
        load_host_numa_topology as load_host_numa_topology,
    )
    from resource_objects.interop.nova.instance_topology import (
        dump_instance_numa_topology as dump_instance_numa_topology,
    )
    from resource_objects.interop.nova.instance_topology import (
        load_instance_numa_topology as load_instance_numa_topology,
    )
    from resource_objects.interop.nova.pci_alias import Alias as Alias
    from resource_objects.interop.nova.pci_alias import parse_alias as parse_alias
    from resource_objects.interop.nova.pci_device_spec import DeviceSpecEntry as DeviceSpecEntry
    from resource_objects.interop.nova.pci_device_spec import parse_device_spec as parse_device_spec
    from resource_objects.interop.nova.pci_devices import DeviceFinding as DeviceFinding
    from resource_objects.interop.nova.pci_devices import DeviceHolder as DeviceHolder
    from resource_objects.interop.nova.pci_devices import NovaDevices as NovaDevices
    from resource_objects.interop.nova.pci_devices import SkippedDevice as SkippedDevice
    from resource_objects.interop.nova.pci_devices import dump_pci_devices as dump_pci_devices
    from resource_objects.interop.nova.pci_devices import load_pci_devices as load_pci_devices
    from resource_objects.interop.nova.pci_flavor import alias_requests as alias_requests
    from resource_objects.interop.nova.pci_flavor import flavor_devices as flavor_devices
    from resource_objects.interop.nova.pci_flavor import pci_affinity as pci_affinity
    from resource_objects.interop.nova.pci_pools import dump_pci_pools as dump_pci_pools
    from resource_objects.interop.nova.pci_pools import load_pci_pools as load_pci_pools
    from resource_objects.interop.nova.pci_requests import dump_pci_requests as dump_pci_requests
    from resource_objects.interop.nova.pci_requests import load_pci_requests as load_pci_requests
    from resource_objects.interop.nova.pci_tagging import tagged_device as tagged_device

#: ``{public name: module that defines it}``
_HOME = {
    "Alias": "pci_alias",
    "CPUSets": "host_config",
    "DeviceFinding": "pci_devices",
    "DeviceHolder": "pci_devices",
    "DeviceSpecEntry": "pci_device_spec",
    "FlavorSpecs": "flavor_specs",
    "FlavorTopology": "flavor",
    "InvalidWords": "errors",
    "NovaDevices": "pci_devices",
    "SkippedDevice": "pci_devices",
    "alias_requests": "pci_flavor",
    "configured_cells": "host_config",
    "cpu_sets": "host_config",
    "dump_host_numa_topology": "host_topology",
    "dump_instance_numa_topology": "instance_topology",
    "dump_pci_devices": "pci_devices",
    "dump_pci_pools": "pci_pools",
    "dump_pci_requests": "pci_requests",
    "flavor_devices": "pci_flavor",
    "flavor_request": "extra_specs",
    "flavor_topology": "flavor",
    "format_cpu_spec": "cpu_spec",
    "load_host_numa_topology": "host_topology",
    "load_instance_numa_topology": "instance_topology",
    "load_pci_devices": "pci_devices",
    "load_pci_pools": "pci_pools",
    "load_pci_requests": "pci_requests",
    "parse_alias": "pci_alias",
    "parse_cpu_spec": "cpu_spec",
    "parse_device_spec": "pci_device_spec",
    "pci_affinity": "pci_flavor",
    "request_flavor": "flavor_specs",
    "reserved_pages": "host_config",
    "tagged_device": "pci_tagging",
}

__all__ = [  # noqa: PLE0604  # computed, so that no name is said twice
    *sorted(_HOME),
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
