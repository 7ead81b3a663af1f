"""Nova's formats: flavors, host options, and the topologies and devices in its database.

===============  ==================================================================================
``flavors``      :func:`request`: a flavor and its image as one request; its topology and devices
``specs``        options: ``[pci] alias``, ``[pci] device_spec``, CPU sets and reserved pages
``topologies``   ``compute_nodes.numa_topology`` and ``instance_extra.numa_topology``
``pci_devices``  the table ``pci_devices``, and ``compute_nodes.pci_stats``
``pci_requests`` ``instance_extra.pci_requests``
``statistics``   ``compute_nodes.metrics`` and ``stats``
``primitive``    Nova's versioned objects as data
``rules``        the rules of these formats, and the exception that names the broken one
===============  ==================================================================================

A reader of a document takes its JSON text, the value of that text, or the object that Nova makes of
it: anything with ``obj_to_primitive()``. Nova is not needed. The names below are loaded when they
are first used.

    >>> from resource_objects.interop import nova
    >>> print(nova.format_cpu_spec(nova.parse_cpu_spec("0-7,^2")))
    0-1,3-7
"""

# ruff: noqa: F403
from __future__ import annotations

from typing import TYPE_CHECKING

from resource_objects._lazy import lazy_attributes

if TYPE_CHECKING:
    from resource_objects.interop.nova.flavors import *
    from resource_objects.interop.nova.pci_devices import *
    from resource_objects.interop.nova.pci_requests import *
    from resource_objects.interop.nova.primitive import *
    from resource_objects.interop.nova.rules import *
    from resource_objects.interop.nova.specs import *
    from resource_objects.interop.nova.statistics import *
    from resource_objects.interop.nova.topologies import *

_EXPORTS = {
    "flavors": (
        *("Flavor", "FlavorTopology", "NovaRequest"),
        *("alias_requests", "flavor_devices", "flavor_topology"),
        *("load_flavor", "pci_affinity", "request"),
    ),
    "pci_devices": (
        *("DeviceConsumer", "DevicePool", "NovaDevices", "device_pools"),
        *("dump_pci_devices", "dump_pci_pools", "load_pci_devices", "load_pci_pools"),
    ),
    "pci_requests": ("dump_pci_requests", "load_pci_requests"),
    "primitive": ("format_cpu_spec", "image_properties", "parse_cpu_spec"),
    "rules": ("InvalidNovaInput", "NovaRule"),
    "specs": (
        *("Alias", "NovaDeviceRule", "configured_cells", "host_settings"),
        *("parse_alias", "parse_device_spec", "tagged_device"),
    ),
    "statistics": ("NovaStatistics", "load_statistics"),
    "topologies": (
        *("dump_host_numa_topology", "dump_instance_numa_topology"),
        *("load_host_numa_topology", "load_instance_numa_topology"),
    ),
}
_HOME = {name: module for module, exports in _EXPORTS.items() for name in exports}

__all__ = [  # noqa: PLE0604  # computed from the one table
    *sorted(_HOME),
]

__getattr__, __dir__ = lazy_attributes(globals(), _HOME)
