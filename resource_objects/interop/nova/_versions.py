"""The versions of Nova's objects that are kept as JSON, and which of them go together.

Nova numbers the cells; the topology around them moved with them until 1.2 and 1.3, and hardly
since. So *a version* of a topology is, in one word, that of its cells:

========================  =========================================================================
``NUMACell`` 1.0          CPUs, memory and how much of both is used (``NUMATopology`` 1.0)
1.1                       pinned CPUs, siblings (1.1)
1.2                       pages by size (1.2, ``NUMAPagesTopology`` 1.0)
1.3                       networks (pages 1.1: reserved ones)
1.4                       dedicated CPUs beside the shared ones
1.5                       the socket
``InstanceNUMACell`` 1.0  vCPUs, memory (``InstanceNUMATopology`` 1.0)
1.1                       page size (1.1)
1.2                       pinning (1.2)
1.3                       CPU policy, thread policy
1.4                       the emulator's CPU (1.3: the emulator's policy)
1.5                       dedicated vCPUs beside the shared ones
1.6                       the policy ``mixed``
========================  =========================================================================

Before all of these, before Liberty, topologies were plain dicts; they are read, not written.

Of devices, each object has its own version, and a list of them does not move with them:

==========================  =======================================================================
``PciDevicePool`` 1.0       vendor, product, count, tags
1.1                         the NUMA node
``PciDevice`` 1.0           a device and its state (1.1: text of any language)
1.2                         the request that it was taken for
1.3                         the NUMA node
1.4                         the parent; before, it was a word of ``extra_info``
1.5                         the states ``unclaimable`` and ``unavailable``
1.6                         the uuid
1.7                         the type ``vdpa``
``InstancePCIRequest`` 1.0  count, specs, alias
1.1                         the id of the request
1.2                         the NUMA policy
1.3                         who requested it
1.4                         the NUMA policy ``socket``
==========================  =======================================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

from resource_objects.exceptions import UnsupportedVersion

HOST, HOST_CELL, PAGES, NETWORKS = (
    "NUMATopology",
    "NUMACell",
    "NUMAPagesTopology",
    "NetworkMetadata",
)
GUEST, GUEST_CELL = "InstanceNUMATopology", "InstanceNUMACell"

POOLS, POOL = "PciDevicePoolList", "PciDevicePool"
DEVICES, DEVICE = "PciDeviceList", "PciDevice"
REQUESTS, REQUEST = "InstancePCIRequests", "InstancePCIRequest"

#: Newest version that is known of each, by its second number: the first is 1.
NEWEST: Final = {
    HOST: 2,
    HOST_CELL: 5,
    PAGES: 1,
    NETWORKS: 0,
    GUEST: 3,
    GUEST_CELL: 6,
    POOLS: 1,
    POOL: 1,
    DEVICES: 3,
    DEVICE: 7,
    REQUESTS: 1,
    REQUEST: 4,
}

#: ``{name: {version: its second number}}`` of what can be read.
KNOWN: Final = {
    name: {f"1.{minor}": minor for minor in range(newest + 1)} for name, newest in NEWEST.items()
}

#: ``{name: second number of its version}``
Versions: TypeAlias = Mapping[str, int]

_TEXT = re.compile(r"1\.(0|[1-9][0-9]{0,3})\Z", re.ASCII)


def host_versions(version: str | Mapping[str, str] | None) -> Versions:
    """Return what a host's topology is written in.

    :param version: of ``NUMACell`` as text; or a manifest as oslo.versionedobjects has them,
        ``{name: version}``, newest where it names none; or None, newest
    :raises UnsupportedVersion: if there is no such version

    >>> host_versions("1.2")
    {'NUMATopology': 2, 'NUMACell': 2, 'NUMAPagesTopology': 0, 'NetworkMetadata': 0}
    """
    if not isinstance(version, str):
        return _of_manifest((HOST, HOST_CELL, PAGES, NETWORKS), version)
    cell = _of_text(HOST_CELL, version)
    return {HOST: min(cell, 2), HOST_CELL: cell, PAGES: int(cell > 2), NETWORKS: 0}


def guest_versions(version: str | Mapping[str, str] | None) -> Versions:
    """Return what a guest's topology is written in: as :func:`host_versions`, of its cells.

    >>> guest_versions({"InstanceNUMACell": "1.4", "Instance": "2.5"})
    {'InstanceNUMATopology': 3, 'InstanceNUMACell': 4}
    """
    if not isinstance(version, str):
        return _of_manifest((GUEST, GUEST_CELL), version)
    cell = _of_text(GUEST_CELL, version)
    return {GUEST: min(cell, 2) if cell < 4 else 3, GUEST_CELL: cell}


def pool_versions(version: str | Mapping[str, str] | None) -> Versions:
    """Return what pools are written in: as :func:`host_versions`, of each pool.

    >>> pool_versions("1.0")
    {'PciDevicePoolList': 0, 'PciDevicePool': 0}
    """
    if not isinstance(version, str):
        return _of_manifest((POOLS, POOL), version)
    minor = _of_text(POOL, version)
    return {POOLS: minor, POOL: minor}


def device_versions(version: str | Mapping[str, str] | None) -> Versions:
    """Return what devices are written in: as :func:`host_versions`, of each device."""
    if not isinstance(version, str):
        return _of_manifest((DEVICE,), version)
    return {DEVICE: _of_text(DEVICE, version)}


def request_versions(version: str | Mapping[str, str] | None) -> Versions:
    """Return what requests are written in: as :func:`host_versions`, of each request.

    >>> request_versions("1.2")
    {'InstancePCIRequests': 1, 'InstancePCIRequest': 2}
    """
    if not isinstance(version, str):
        return _of_manifest((REQUESTS, REQUEST), version)
    minor = _of_text(REQUEST, version)
    return {REQUESTS: min(minor, 1), REQUEST: minor}


def _of_text(name: str, version: str) -> int:
    if version not in KNOWN[name]:
        raise UnsupportedVersion(f"{name} {version}: there are 1.0 to 1.{NEWEST[name]}")
    return KNOWN[name][version]


def _of_manifest(names: tuple[str, ...], manifest: object) -> Versions:
    """Return the newest versions that a receiver reads and that are known here."""
    if manifest is None:
        return {name: NEWEST[name] for name in names}
    if not isinstance(manifest, Mapping):
        raise UnsupportedVersion(f"{manifest!r}: text, a mapping of names to text, or None")
    found = {}
    for name in names:
        given = manifest.get(name, f"1.{NEWEST[name]}")
        match = _TEXT.match(given) if isinstance(given, str) else None
        if match is None:
            raise UnsupportedVersion(f"{name} {given!r}: there are 1.0 to 1.{NEWEST[name]}")
        found[name] = min(int(match[1]), NEWEST[name])
    return found
