"""Nova's words and formats: flavors, host options, the topologies and devices it keeps as JSON.

=====================  ============================================================================
``requests``           :func:`request`: a flavor and its image as one request
``flavor``             :func:`flavor_topology`: a flavor and its image as one topology amount
``flavor_words``       the extra specs and image properties it reads
``cpus``               lists of CPUs; CPU and thread policies, real-time and dedicated vCPUs
``extra_specs``        ``resources:``, ``trait:`` and ``group_policy``
``host_config``        ``cpu_shared_set``, ``cpu_dedicated_set``, ``reserved_huge_pages``
``host_topology``      ``compute_nodes.numa_topology``
``instance_topology``  ``instance_extra.numa_topology``
``pci_alias``          ``[pci] alias``, and what a flavor and its image ask of devices
``pci_specs``          ``[pci] device_spec``: which devices of a host are for guests
``pci_pools``          ``compute_nodes.pci_stats``
``pci_devices``        the table ``pci_devices``
``pci_requests``       ``instance_extra.pci_requests``
``statistics``         ``compute_nodes.metrics`` and ``stats``
``nova_objects``       Nova's own ``Flavor`` and ``ImageMeta``, as these words
``primitive``          the JSON of Nova's objects, and their versions
``rules``              the rules that words can break, and the exception that names one
=====================  ============================================================================

Each reader of what Nova keeps takes its JSON text, what that text stands for, and the object that
Nova itself makes of it: anything with ``obj_to_primitive()``.

The names below are loaded when they are first used. Nova itself is not needed.

    >>> from resource_objects.interop import nova
    >>> print(nova.format_cpu_spec(nova.parse_cpu_spec("0-7,^2")))
    0-1,3-7
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resource_objects._lazy import lazily

if TYPE_CHECKING:
    from resource_objects.interop.nova.cpus import format_cpu_spec as format_cpu_spec
    from resource_objects.interop.nova.cpus import parse_cpu_spec as parse_cpu_spec
    from resource_objects.interop.nova.flavor import FlavorTopology as FlavorTopology
    from resource_objects.interop.nova.flavor import flavor_topology as flavor_topology
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
    from resource_objects.interop.nova.nova_objects import image_properties as image_properties
    from resource_objects.interop.nova.pci_alias import Alias as Alias
    from resource_objects.interop.nova.pci_alias import alias_requests as alias_requests
    from resource_objects.interop.nova.pci_alias import flavor_devices as flavor_devices
    from resource_objects.interop.nova.pci_alias import parse_alias as parse_alias
    from resource_objects.interop.nova.pci_alias import pci_affinity as pci_affinity
    from resource_objects.interop.nova.pci_devices import DeviceFinding as DeviceFinding
    from resource_objects.interop.nova.pci_devices import DeviceHolder as DeviceHolder
    from resource_objects.interop.nova.pci_devices import NovaDevices as NovaDevices
    from resource_objects.interop.nova.pci_devices import SkippedRow as SkippedRow
    from resource_objects.interop.nova.pci_devices import dump_pci_devices as dump_pci_devices
    from resource_objects.interop.nova.pci_devices import load_pci_devices as load_pci_devices
    from resource_objects.interop.nova.pci_pools import DevicePool as DevicePool
    from resource_objects.interop.nova.pci_pools import device_pools as device_pools
    from resource_objects.interop.nova.pci_pools import dump_pci_pools as dump_pci_pools
    from resource_objects.interop.nova.pci_pools import load_pci_pools as load_pci_pools
    from resource_objects.interop.nova.pci_requests import dump_pci_requests as dump_pci_requests
    from resource_objects.interop.nova.pci_requests import load_pci_requests as load_pci_requests
    from resource_objects.interop.nova.pci_specs import DeviceSpecEntry as DeviceSpecEntry
    from resource_objects.interop.nova.pci_specs import parse_device_spec as parse_device_spec
    from resource_objects.interop.nova.pci_specs import tagged_device as tagged_device
    from resource_objects.interop.nova.requests import Flavor as Flavor
    from resource_objects.interop.nova.requests import NovaRequest as NovaRequest
    from resource_objects.interop.nova.requests import load_flavor as load_flavor
    from resource_objects.interop.nova.requests import request as request
    from resource_objects.interop.nova.rules import InvalidNovaInput as InvalidNovaInput
    from resource_objects.interop.nova.rules import NovaRule as NovaRule
    from resource_objects.interop.nova.statistics import NovaStatistics as NovaStatistics
    from resource_objects.interop.nova.statistics import SkippedStatistic as SkippedStatistic
    from resource_objects.interop.nova.statistics import load_statistics as load_statistics

#: ``{public name: module that defines it}``
_HOME = {
    "Alias": "pci_alias",
    "CPUSets": "host_config",
    "DeviceFinding": "pci_devices",
    "DeviceHolder": "pci_devices",
    "DeviceSpecEntry": "pci_specs",
    "Flavor": "requests",
    "FlavorTopology": "flavor",
    "NovaDevices": "pci_devices",
    "NovaRequest": "requests",
    "NovaRule": "rules",
    "NovaStatistics": "statistics",
    "InvalidNovaInput": "rules",
    "SkippedRow": "pci_devices",
    "SkippedStatistic": "statistics",
    "alias_requests": "pci_alias",
    "configured_cells": "host_config",
    "cpu_sets": "host_config",
    "dump_host_numa_topology": "host_topology",
    "dump_instance_numa_topology": "instance_topology",
    "dump_pci_devices": "pci_devices",
    "DevicePool": "pci_pools",
    "device_pools": "pci_pools",
    "dump_pci_pools": "pci_pools",
    "dump_pci_requests": "pci_requests",
    "flavor_devices": "pci_alias",
    "flavor_topology": "flavor",
    "image_properties": "nova_objects",
    "load_flavor": "requests",
    "format_cpu_spec": "cpus",
    "load_host_numa_topology": "host_topology",
    "load_instance_numa_topology": "instance_topology",
    "load_pci_devices": "pci_devices",
    "load_pci_pools": "pci_pools",
    "load_pci_requests": "pci_requests",
    "load_statistics": "statistics",
    "parse_alias": "pci_alias",
    "parse_cpu_spec": "cpus",
    "parse_device_spec": "pci_specs",
    "pci_affinity": "pci_alias",
    "request": "requests",
    "reserved_pages": "host_config",
    "tagged_device": "pci_specs",
}

__all__ = [  # noqa: PLE0604  # computed, so that no name is said twice
    *sorted(_HOME),
]


__getattr__, __dir__ = lazily(globals(), _HOME)
