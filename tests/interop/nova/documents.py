"""Topologies as Nova's databases hold them, spelled out: one of each version."""

from __future__ import annotations

import json
from typing import Any

from resource_objects.resources.numa import HostCell

UUID = "7f5c3b7e-3a4b-4c59-9d0e-0d6f1a2b3c4d"


def nova(name: str, version: str, /, **data: Any) -> dict[str, Any]:
    """Return the wire form of an object of Nova, with its changed fields."""
    return {
        "nova_object.name": name,
        "nova_object.namespace": "nova",
        "nova_object.version": version,
        "nova_object.data": data,
        "nova_object.changes": sorted(data),
    }


def pages(size_kb: int, total: int, used: int = 0, **more: Any) -> dict[str, Any]:
    """Return the pages of one size; with ``reserved`` of version 1.1, else of 1.0."""
    version = "1.1" if "reserved" in more else "1.0"
    return nova("NUMAPagesTopology", version, size_kb=size_kb, total=total, used=used, **more)


def networks(*physnets: str, tunneled: bool = False) -> dict[str, Any]:
    """Return the networks of a host cell."""
    return nova("NetworkMetadata", "1.0", physnets=list(physnets), tunneled=tunneled)


def host(version: str, *cells: dict[str, Any]) -> dict[str, Any]:
    """Return a host of cells of one version; ``cells`` are their data."""
    topology = f"1.{min(int(version[2:]), 2)}"
    return nova("NUMATopology", topology, cells=[nova("NUMACell", version, **c) for c in cells])


def guest(version: str, *cells: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a guest of cells of one version; ``more`` is the data of the topology."""
    minor = int(version[2:])
    topology = f"1.{min(minor, 2) if minor < 4 else 3}"
    value = [nova("InstanceNUMACell", version, **cell) for cell in cells]
    return nova("InstanceNUMATopology", topology, cells=value, **more)


def text(document: object) -> str:
    """Return a document as a column holds it."""
    return json.dumps(document)


def sayable(cell: HostCell) -> HostCell:
    """Return a host cell as Nova can say it: without distances, and with every core named."""
    available = {cpu for core in cell.siblings for cpu in core}
    single = {*cell.shared, *cell.dedicated} - available
    return cell.replace(distances=(), siblings=sorted([*cell.siblings, *((n,) for n in single)]))


# --- one host in each version of Nova ------------------------------------------------------------

_FIRST = {"id": 0, "cpuset": [0, 1, 2, 3], "memory": 4096, "cpu_usage": 2, "memory_usage": 1024}
_PINS = {**_FIRST, "pinned_cpus": [2, 3], "siblings": [[0, 1], [2, 3]], "cpu_usage": 4}
_PAGES = {**_PINS, "mempages": [pages(4, 524288), pages(2048, 1024, 256)]}
_NETWORKS = {
    **_PINS,
    "mempages": [pages(4, 524288, reserved=0), pages(2048, 1024, 256, reserved=64)],
    "network_metadata": networks("red", tunneled=True),
}
_DEDICATED = {**_NETWORKS, "cpuset": [0, 1], "pcpuset": [2, 3], "cpu_usage": 1}

HOSTS = {
    "1.0": host("1.0", _FIRST),
    "1.1": host("1.1", _PINS),
    "1.2": host("1.2", _PAGES),
    "1.3": host("1.3", _NETWORKS),
    "1.4": host("1.4", _DEDICATED),
    "1.5": host("1.5", {**_DEDICATED, "cpu_usage": 2, "socket": 1}),
}

PLAIN_HOST = {
    "cells": [
        {"id": 0, "cpus": "0,1,2,3", "mem": {"total": 4096, "used": 1024}, "cpu_usage": 2},
        {"id": 1, "cpus": "4-7", "mem": {"total": 4096, "used": 0}, "cpu_usage": 0},
    ]
}

# --- guests ---------------------------------------------------------------------------------------

SHARED_CELL = {"id": 0, "cpuset": [0, 1], "memory": 512}
PINS = {"0": 6, "1": 7}
DEDICATED_CELL = {
    "id": 1,
    "cpuset": [],
    "pcpuset": [0, 1],
    "cpuset_reserved": None,
    "memory": 512,
    "pagesize": 2048,
    "cpu_topology": nova("VirtCPUTopology", "1.0", sockets=1, cores=1, threads=2),
    "cpu_pinning_raw": PINS,
    "cpu_policy": "dedicated",
    "cpu_thread_policy": None,
}

_OLD_CELL = {
    **{key: DEDICATED_CELL[key] for key in ("id", "memory", "pagesize", "cpu_pinning_raw")},
    "cpuset": [0, 1],
    "cpu_topology": None,
}
_POLICY_CELL = {**_OLD_CELL, "cpu_policy": "dedicated", "cpu_thread_policy": "prefer"}

#: Each of 1.2 and later is on host cell 1, on its CPUs 6 and 7.
GUESTS = {
    "1.0": guest("1.0", SHARED_CELL),
    "1.1": guest("1.1", {**SHARED_CELL, "pagesize": -2}),
    "1.2": guest("1.2", _OLD_CELL),
    "1.3": guest("1.3", _POLICY_CELL),
    "1.4": guest(
        "1.4", {**_POLICY_CELL, "cpuset_reserved": [5]}, emulator_threads_policy="isolate"
    ),
    "1.5": guest("1.5", DEDICATED_CELL, emulator_threads_policy=None),
    "1.6": guest(
        "1.6",
        {**DEDICATED_CELL, "cpuset": [2], "cpu_policy": "mixed"},
        emulator_threads_policy="share",
        instance_uuid=UUID,
    ),
}

PLAIN_GUEST = {"cells": [{"id": 0, "cpus": "0-1", "mem": {"total": 512}, "pagesize": -1}]}
