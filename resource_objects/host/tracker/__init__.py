"""The resource tracker of a compute agent.

A :class:`~resource_objects.host.tracker.tracker.ResourceTracker` connects the hosts of an agent
with a ledger: it keeps both in step, and allocates the resources of the hosts.

==================  ===============================================================================
``tracker``         ResourceTracker: updates of hosts, claims and moves
``driver``          Driver: reports the hosts of an agent; the class to subclass
``drivers``         drivers for this machine, for libvirt, and for bare-metal machines
``extending``       resources that the plug-ins of a site add to hosts
``configuration``   provider configuration files of Nova; ratios and reserved amounts
``reconcile``       Reconciler: compares reports with the stored trees, and writes
``report``          findings and reports of an update; statistics of hosts
``claims``          HostClaim: a planned, held, confirmed or reverted claim on a host
``placement``       HostRequest: the requested amounts of one host; where they are placed
``moves``           Migration: a move, whose source stays allocated until it ends
``drift``           HostDrift: allocations compared with the running consumers
``adopting``        adoption of hosts of which there are only records
==================  ===============================================================================

    >>> import resource_objects as ro
    >>> from resource_objects.host.tracker import Driver, ResourceTracker
    >>> class Lab(Driver):
    ...     def hosts(self):
    ...         return ["box"]
    ...     def get_available_resource(self, host):
    ...         return "VCPU=8,MEMORY_MB=16384"
    >>> ledger = ro.connect("memory://")
    >>> tracker = ResourceTracker(ledger, Lab())
    >>> print(tracker.update_available_resource())
    + box
    >>> with tracker.claim("vm-1", "box", "VCPU=2,MEMORY_MB=4096") as claim:
    ...     print(claim)
    vm-1 on box: held, VCPU=2,MEMORY_MB=4096
    >>> print(tracker.update_available_resource())
    nothing changed
"""

from __future__ import annotations

from resource_objects.host.tracker.claims import ClaimState, HostClaim
from resource_objects.host.tracker.configuration import ProviderConfiguration
from resource_objects.host.tracker.drift import HostDrift
from resource_objects.host.tracker.driver import Driver
from resource_objects.host.tracker.moves import Migration, MigrationKind, MigrationState
from resource_objects.host.tracker.report import FindingKind, HostFinding, HostReport, Report
from resource_objects.host.tracker.tracker import ResourceTracker

__all__ = [
    "ClaimState",
    "Driver",
    "FindingKind",
    "HostClaim",
    "HostDrift",
    "HostFinding",
    "HostReport",
    "Migration",
    "MigrationKind",
    "MigrationState",
    "ProviderConfiguration",
    "Report",
    "ResourceTracker",
]
