"""Devices: hosts that have some free are kept for who asks for devices."""

from __future__ import annotations

import numpy as np

from resource_objects.resources.catalog import is_device
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostState, HostStates
from resource_objects.search.arrays import Figures

#: A host with so many free devices, or more, weighs the same: there is no shortage there.
MOST = 99


class FreeDevices:
    """Prefers hosts with the fewest free devices (Nova's PCIWeigher).

    Who asks for none so avoids hosts that have some, and who asks for some fills up those that were
    begun. Parts of devices count as little: a class of parts is none of devices.
    """

    takes_negative = False

    def weigh(self, host: HostState, spec: RequestSpec) -> float:
        """Return the more, the fewer devices are free."""
        classes = filter(is_device, host.beside.fleet.classes)
        return 1 + MOST - min(MOST, sum(host.free(name) for name in classes))

    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return the more for each host, the fewer devices are free there."""
        free = np.zeros(len(hosts), dtype=np.int64)
        for name in filter(is_device, hosts.fleet.classes):
            free += hosts.free(name)
        return (1 + MOST - np.minimum(free, MOST)).astype(np.float64)
