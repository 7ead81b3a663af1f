"""The resource tracker: what a compute agent imports.

An agent knows its hosts; a ledger keeps what they have and who holds it. A
:class:`~resource_objects.host.tracker.tracker.ResourceTracker` stands between both: it keeps hosts
and ledger in step, and claims on a host in the words of the field.

==================  ===============================================================================
``driver``          Driver: what an agent says of its hosts
``extending``       resources that a site adds to hosts, by plug-ins of its own
``drivers``         worked ones: this machine, libvirt's, thousands given out whole
``adopting``        hosts that the ledger does not know, adopted as they are used
``tracker``         ResourceTracker: hosts and ledger in step, and the claims of a host
``reconcile``       Reconciler: what a driver says compared with what is kept, and written
``reporting``       Reporting: statistics of hosts, and that they are heard of
``settings``        HostSettings: ratios and reserved amounts that an operator sets
``configuration``   provider configuration files: what an operator adds to providers
``findings``        what one look at the hosts found: what changed, what is wrong and where
``drift``           HostDrift: who holds something of a host against who runs there
``claims``          HostClaim: planned, held, confirmed or reverted
``moves``           Migration: the source held beside the destination, until it is decided
``asked``           what is asked of one host, in whichever form
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
from resource_objects.host.tracker.findings import Finding, FindingKind, HostReport, Report
from resource_objects.host.tracker.moves import Migration, MigrationKind, MigrationState
from resource_objects.host.tracker.tracker import ResourceTracker

__all__ = [
    "ClaimState",
    "Driver",
    "Finding",
    "FindingKind",
    "HostClaim",
    "HostDrift",
    "HostReport",
    "Migration",
    "MigrationKind",
    "MigrationState",
    "ProviderConfiguration",
    "Report",
    "ResourceTracker",
]
