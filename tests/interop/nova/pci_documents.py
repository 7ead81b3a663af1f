"""Devices as Nova's databases hold them, spelled out: one of each form and version."""

from __future__ import annotations

import json
from typing import Any

from tests.interop.nova.documents import UUID, nova

INSTANCE = UUID
REQUEST = "0c2f1e8a-6f0b-4d55-8f1c-2b9a5f4e1d3c"
PROVIDER = "5ce1f3d0-8c5d-4d7e-9a25-6a0c0d6a5e11"


# --- compute_nodes.pci_stats ----------------------------------------------------------------------

TAGS: dict[str, Any] = {
    "dev_type": "type-VF",
    "address": "0000:04:00.0",
    "parent_ifname": "enp4s0",
    "remote_managed": "false",
    "physical_network": "red",
    "trusted": "true",
    "live_migratable": "true",
    "managed": "false",
    "rp_uuid": PROVIDER,
}


def pool(version: str = "1.1", **changed: Any) -> dict[str, Any]:
    """Return a pool of virtual functions; ``changed`` are tags, None for null, ... for none."""
    data: dict[str, Any] = {"vendor_id": "8086", "product_id": "154c", "count": 6}
    if version != "1.0":
        data["numa_node"] = 0
    tags = {key: value for key, value in {**TAGS, **changed}.items() if value is not ...}
    return nova("PciDevicePool", version, **data, tags=tags)


def pools(*value: dict[str, Any], version: str = "1.1") -> dict[str, Any]:
    """Return the pools of a host."""
    return nova("PciDevicePoolList", version, objects=list(value))


def plain(versioned: dict[str, Any]) -> dict[str, Any]:
    """Return a pool as it was before there were objects."""
    data = dict(versioned["nova_object.data"])
    return {**data.pop("tags"), **data}


# --- pci_devices ----------------------------------------------------------------------------------


def row(at: str, status: str = "available", **changed: Any) -> dict[str, Any]:
    """Return a row of ``pci_devices``: by default a function that cannot be split."""
    return {
        "created_at": None,
        "updated_at": None,
        "deleted_at": None,
        "deleted": 0,
        "id": 7,
        "uuid": "0d5e6c1a-1f2b-4d3c-9e8f-7a6b5c4d3e2f",
        "compute_node_id": 1,
        "address": at,
        "vendor_id": "10de",
        "product_id": "2330",
        "dev_type": "type-PCI",
        "dev_id": "pci_" + at.replace(":", "_").replace(".", "_"),
        "label": "label_10de_2330",
        "status": status,
        "instance_uuid": INSTANCE if status in ("claimed", "allocated") else None,
        "request_id": REQUEST if status in ("claimed", "allocated") else None,
        "extra_info": "{}",
        "numa_node": 0,
        "parent_addr": None,
        **changed,
    }


def function(address: str, status: str = "available", **changed: Any) -> dict[str, Any]:
    """Return a physical function of a network card."""
    values = {"vendor_id": "8086", "product_id": "1563", "dev_type": "type-PF"}
    return row(address, status, **{**values, "label": "label_8086_1563", **changed})


def part(parent: str, address: str, status: str = "available", **changed: Any) -> dict[str, Any]:
    """Return a virtual function of one."""
    values = {"vendor_id": "8086", "product_id": "154c", "dev_type": "type-VF"}
    more = {"label": "label_8086_154c", "parent_addr": parent}
    return row(address, status, **{**values, **more, **changed})


#: The second number of each version of ``PciDevice``, and the columns that it brought.
NEW_COLUMNS = {2: ["request_id"], 3: ["numa_node"], 4: ["parent_addr"], 6: ["uuid"]}


def device(minor: int, values: dict[str, Any]) -> dict[str, Any]:
    """Return a row as the object of a version."""
    late = {name for since, names in NEW_COLUMNS.items() if since > minor for name in names}
    data = {name: value for name, value in values.items() if name not in late}
    data["extra_info"] = json.loads(data["extra_info"])
    if minor < 4 and values["parent_addr"] is not None:
        data["extra_info"]["phys_function"] = values["parent_addr"]
    return nova("PciDevice", f"1.{minor}", **data)


# --- instance_extra.pci_requests ------------------------------------------------------------------


def request(*specs: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """Return a request by alias, as the column holds it."""
    return {
        "count": 1,
        "spec": list(specs),
        "alias_name": "card",
        "is_new": False,
        "numa_policy": "legacy",
        "request_id": REQUEST,
        "requester_id": None,
        **changed,
    }


def port(*specs: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """Return a request of a port, as the column holds it."""
    values = {"alias_name": None, "numa_policy": None, "requester_id": "port-1"}
    return request(*specs, **{**values, **changed})


def sent(version: str, *requests: dict[str, Any]) -> dict[str, Any]:
    """Return requests as the object of a version."""
    minor = int(version[2:])
    late = {3: "requester_id", 2: "numa_policy", 1: "request_id"}
    unknown = {name for since, name in late.items() if since > minor}
    data = [{key: item[key] for key in item if key not in unknown} for item in requests]
    return nova(
        "InstancePCIRequests",
        f"1.{min(minor, 1)}",
        instance_uuid=INSTANCE,
        requests=[nova("InstancePCIRequest", version, **item) for item in data],
    )
