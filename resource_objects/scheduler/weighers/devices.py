"""Free devices: hosts that have some are reserved for requests that need devices."""

from __future__ import annotations

import numpy as np

from resource_objects.resources.catalog import is_device
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import HostStates
from resource_objects.scheduler.weighers import ArrayWeigher
from resource_objects.search.arrays import Figures

#: Hosts with more free devices weigh the same: there is no shortage.
MOST = 99


class FreeDevices(ArrayWeigher):
    """Prefers hosts with the fewest free devices (Nova's PCIWeigher).

    A request without devices avoids hosts that have some; a request with devices fills up hosts
    that are partly used. Classes of parts of devices do not count.
    """

    takes_negative = False

    def weights(self, hosts: HostStates, spec: RequestSpec) -> Figures:
        """Return 100 for a host without free devices, less by one for each, at least 1."""
        free = np.zeros(len(hosts), dtype=np.int64)
        for name in filter(is_device, hosts.fleet.classes):
            free += hosts.free(name)
        return (1 + MOST - np.minimum(free, MOST)).astype(np.float64)
