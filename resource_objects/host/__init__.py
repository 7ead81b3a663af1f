"""One host: what it is, what it offers, and who holds it.

==================  ===============================================================================
``compute_node``    ComputeNode: a host's record in Nova's terms, and its inventories
``columns``         how resources are stored in the columns of a record
``nova_columns``    Nova's formats: ``numa_topology``, ``pci_stats``, rows, Nova's own object
``view``            HostView: a host of a ledger as inventories to allocate from, and its save
``adoption``        the adoption of hosts that were in use before the ledger knew them
``machine``         Machine: what a machine has; ``linux``, ``sysfs``: reading one from its files
``libvirt``         reading a machine from the XML of libvirt
``discovery``       the plug-in point of readers of machines
``settings``        HostSettings: CPU sets, ratios, reserved amounts and pages, device rules
``device_rules``    DeviceRule: which devices are offered, and as which resource class
``partitions``      devices that are allocated whole or in parts
``tree``            from a machine and its settings to a tree of providers, and its NUMA cells
``sync``            syncing a host to a ledger; allocated devices are retained
``pci_ids``         names of PCI vendors and products
``holdings``        the allocations of hosts: consumers of cells, CPUs and devices
``tracker``         the resource tracker: drivers, claims and moves of an agent's hosts
==================  ===============================================================================

The names below are loaded when they are first used; what else there is, is in the modules.

    >>> import resource_objects.host
    >>> resource_objects.host.DeviceRule.parse("10de:*=PGPU").resource_class
    'PGPU'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resource_objects._lazy import lazy_attributes

if TYPE_CHECKING:
    from resource_objects.host.compute_node import ComputeNode as ComputeNode
    from resource_objects.host.device_rules import DeviceRule as DeviceRule
    from resource_objects.host.device_rules import machine_devices as machine_devices
    from resource_objects.host.device_rules import match_rules as match_rules
    from resource_objects.host.discovery import discover as discover
    from resource_objects.host.holdings import HostCells as HostCells
    from resource_objects.host.holdings import HostDevices as HostDevices
    from resource_objects.host.holdings import read_cells as read_cells
    from resource_objects.host.holdings import read_devices as read_devices
    from resource_objects.host.linux import read_machine as read_machine
    from resource_objects.host.machine import Machine as Machine
    from resource_objects.host.settings import HostSettings as HostSettings
    from resource_objects.host.sync import sync_host as sync_host
    from resource_objects.host.tree import numa_inventory as numa_inventory
    from resource_objects.host.tree import provider_tree as provider_tree

#: ``{public name: module that defines it}``
_HOME = {
    "ComputeNode": "compute_node",
    "DeviceRule": "device_rules",
    "HostCells": "holdings",
    "HostDevices": "holdings",
    "HostSettings": "settings",
    "Machine": "machine",
    "discover": "discovery",
    "machine_devices": "device_rules",
    "match_rules": "device_rules",
    "numa_inventory": "tree",
    "provider_tree": "tree",
    "read_cells": "holdings",
    "read_devices": "holdings",
    "read_machine": "linux",
    "sync_host": "sync",
}

__all__ = [  # noqa: PLE0604  # computed, so that no name is said twice
    *sorted(_HOME),
]


__getattr__, __dir__ = lazy_attributes(globals(), _HOME)
