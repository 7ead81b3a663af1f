"""One host: what it is, what it offers, and who holds it.

==================  ===============================================================================
``compute_node``    ComputeNode: a host's record in the words of the field, and its inventories
``columns``         how resources are kept in columns; ``located_columns``: in those that say where
``rows``            foreign records: rows of ``compute_nodes`` and Nova's own objects
``stated``          what somebody states of a node: inventories, and figures for a ledger
``binding``         the host that a node is bound to, as it was read, and what is pending on top
``adoption``        what a record says is used, and no consumer of the ledger explains
``saving``          how a bound node is saved: merged, decided, sent
``facts``           Machine: what a machine is; ``linux``: reading one; ``sysfs``: from its files
``libvirt``         reading one from the XML of libvirt
``discovery``       the plug-in point for finding out what a machine is
``rules``           DeviceRule: which devices can be taken, and as what; ``devices``: those of one
``partitions``      devices that are allocated whole or in parts
``numa``            from the facts of a machine to the inventory of its cells
``pci_ids``         names of PCI vendors, products and classes
``model``           from the facts of a machine to a tree of providers
``sync``            keeping a host in a ledger as it is now
``shown``           ShownMachine: a machine as text, to be kept from elsewhere
``holdings``        the allocations of hosts: consumers of cells, CPUs and devices
``tracker``         the resource tracker: drivers, claims and moves of an agent's hosts
``environment``     the variables that tell a job which part of a host is its own
==================  ===============================================================================

The names below are loaded when they are first used; what else there is, is in the modules.

    >>> import resource_objects.host
    >>> resource_objects.host.DeviceRule.parse("10de:*=PGPU").resource_class
    'PGPU'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resource_objects._lazy import lazily

if TYPE_CHECKING:
    from resource_objects.host.compute_node import ComputeNode as ComputeNode
    from resource_objects.host.devices import machine_devices as machine_devices
    from resource_objects.host.discovery import discover as discover
    from resource_objects.host.environment import export_lines as export_lines
    from resource_objects.host.environment import job_environment as job_environment
    from resource_objects.host.environment import read_environment as read_environment
    from resource_objects.host.facts import Machine as Machine
    from resource_objects.host.holdings import HostCells as HostCells
    from resource_objects.host.holdings import HostDevices as HostDevices
    from resource_objects.host.holdings import read_cells as read_cells
    from resource_objects.host.holdings import read_devices as read_devices
    from resource_objects.host.linux import read_machine as read_machine
    from resource_objects.host.model import provider_tree as provider_tree
    from resource_objects.host.numa import numa_inventory as numa_inventory
    from resource_objects.host.rules import DeviceRule as DeviceRule
    from resource_objects.host.rules import match_rules as match_rules
    from resource_objects.host.shown import ShownMachine as ShownMachine
    from resource_objects.host.sync import sync_host as sync_host

#: ``{public name: module that defines it}``
_HOME = {
    "ComputeNode": "compute_node",
    "DeviceRule": "rules",
    "HostCells": "holdings",
    "HostDevices": "holdings",
    "Machine": "facts",
    "ShownMachine": "shown",
    "discover": "discovery",
    "job_environment": "environment",
    "export_lines": "environment",
    "machine_devices": "devices",
    "match_rules": "rules",
    "numa_inventory": "numa",
    "provider_tree": "model",
    "read_cells": "holdings",
    "read_devices": "holdings",
    "read_environment": "environment",
    "read_machine": "linux",
    "sync_host": "sync",
}

__all__ = [  # noqa: PLE0604  # computed, so that no name is said twice
    *sorted(_HOME),
]


__getattr__, __dir__ = lazily(globals(), _HOME)
