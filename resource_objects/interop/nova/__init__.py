"""Nova's words and formats: flavors, host options, and the topologies it keeps as JSON.

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
``errors``             one type per broken rule, with the name of Nova's own
``host_topology``      ``compute_nodes.numa_topology``
``instance_topology``  ``instance_extra.numa_topology``
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

#: ``{public name: module that defines it}``
_HOME = {
    "CPUSets": "host_config",
    "FlavorTopology": "flavor",
    "InvalidWords": "errors",
    "configured_cells": "host_config",
    "cpu_sets": "host_config",
    "dump_host_numa_topology": "host_topology",
    "dump_instance_numa_topology": "instance_topology",
    "flavor_topology": "flavor",
    "format_cpu_spec": "cpu_spec",
    "load_host_numa_topology": "host_topology",
    "load_instance_numa_topology": "instance_topology",
    "parse_cpu_spec": "cpu_spec",
    "reserved_pages": "host_config",
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
