"""Random questions for both versions, as plain data; the same ones for the same seed.

Many are those that the naive references of ``tests/support`` are asked, so that most of them just
fit, or just do not. Objects are in their wire forms. ``questions_*.py`` have those about searches,
ledgers and hosts, and ``subjects.py`` the table of all kinds.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.interop.nova import DevicePool
from resource_objects.providers import Aggregate, ResourceClass, Trait
from resource_objects.requests import query
from tests.support import fleets, numa_strategies, pci_strategies

Case = dict[str, Any]


def wire(value: Any) -> Any:
    """Return objects as their wire forms, which either version reads."""
    if hasattr(value, "obj_to_primitive"):
        return with_removed_fields(value.obj_to_primitive())
    if isinstance(value, Mapping):
        return {key: wire(one) for key, one in value.items()}
    return [wire(one) for one in value] if isinstance(value, (list, tuple)) else value


def with_removed_fields(made: Any) -> Any:
    """Return a wire form with the fields that this version has no more, which the other needs."""
    if isinstance(made, list):
        return [with_removed_fields(one) for one in made]
    if not isinstance(made, dict):
        return made
    made = {key: with_removed_fields(value) for key, value in made.items()}
    removed = _REMOVED_FIELDS.get(made.get("versioned_object.name", ""), {})
    if removed:
        made["versioned_object.data"] = {**removed, **made["versioned_object.data"]}
    return made


_REMOVED_FIELDS: dict[str, dict[str, Any]] = {
    "resource_objects.DeviceUse": {"then": None},
    "resource_objects.PCIInventory": {"pools": []},
}


# --- text ---


def query_string(chance: random.Random, seed: int) -> Case:
    """A query string of Placement, in two cases of three damaged."""
    while True:
        request = fleets.request(chance, fleets.fleet(chance), compatibility="placement")
        limit = chance.choice([None, None, 1, 1000])
        try:
            return {"text": damaged(chance, query.format(request, limit))}
        except (
            exceptions.InvalidInput
        ) as error:  # a group without conditions, which a query cannot say
            if not error.is_about("request"):
                raise
            continue


def amounts(chance: random.Random, seed: int) -> Case:
    """Amounts as text, in two cases of three damaged."""
    names = ["VCPU", "MEMORY_MB", "PGPU", "CUSTOM_LICENCE", "NUMA_TOPOLOGY"]
    parts = [
        f"{name}={_topology(chance) if name == 'NUMA_TOPOLOGY' else chance.choice(_NUMBERS)}"
        for name in chance.sample(names, chance.randint(1, 4))
    ]
    return {"text": damaged(chance, chance.choice([",", ", ", "\n"]).join(parts))}


_NUMBERS = ["0", "1", "2", "4096", "-3", "+1", "1.5", str(2**63 - 1), str(2**63), "07", " 5", ""]


def _topology(chance: random.Random) -> str:
    return str(numa_strategies.question_of(chance.randrange(2**32)).amount)


def damaged(chance: random.Random, text: str) -> str:
    """Return a text, in two cases of three with up to two characters of it changed."""
    for _ in range(chance.randrange(3)):
        place = chance.randrange(len(text) + 1)
        put = chance.choice(["", "", "=", ",", ":", "&", "!", "in:", "0", "_", " ", "x", "%", "é"])
        text = text[:place] + put + text[place + chance.randrange(2) :]
    return text


# --- one host ---


def cells(chance: random.Random, seed: int) -> Case:
    """A topology for the cells of a host, some of them in use."""
    question = numa_strategies.question_of(chance.randrange(2**32))
    return {word: wire(getattr(question, word)) for word in ("inventory", "amount", "limit")}


def devices(chance: random.Random, seed: int) -> Case:
    """Devices for a host of devices, near some cells or anywhere."""
    question = pci_strategies.question_of(chance.randrange(2**32))
    return {
        **{word: wire(getattr(question, word)) for word in ("devices", "usage", "amount")},
        "chosen": None if question.chosen is None else list(question.chosen),
        "sockets": [list(pair) for pair in question.sockets.items()],
        "distances": [
            [one, other, 10 if one == other else chance.choice([11, 21, 31])]
            for one in question.sockets
            for other in question.sockets
        ],
    }


def joint(chance: random.Random, seed: int) -> Case:
    """A topology and devices for one host."""
    question = pci_strategies.joint_question_of(chance.randrange(2**32))
    return {word: wire(getattr(question, word)) for word in question._fields}


# --- Nova's words ---

_SPECS: dict[str, list[str]] = {
    "hw:numa_nodes": ["1", "2", "2", "3", "0"],
    "hw:cpu_policy": ["shared", "dedicated", "dedicated", "mixed", "odd"],
    "hw:cpu_thread_policy": ["prefer", "isolate", "require", "no"],
    "hw:emulator_threads_policy": ["share", "isolate", "x"],
    "hw:mem_page_size": ["small", "large", "any", "2MB", "2048", "1GB", "3"],
    "hw:cpu_dedicated_mask": ["^0", "0-1", "^0-1", "9"],
    "hw:cpu_realtime": ["yes", "no"],
    "hw:cpu_realtime_mask": ["^0", "^0-1", "8"],
    "hw:numa_cpus.0": ["0,1", "0", "0-3"],
    "hw:numa_mem.0": ["512", "1024"],
    "hw:pci_numa_affinity_policy": ["required", "preferred", "legacy", "socket", "none"],
    "pci_passthrough:alias": ["gpu:1", "gpu:2,nic:1", "nic", "other:1", "gpu:0"],
    "resources:VCPU": ["1", "2", "x"],
    "resources:CUSTOM_LICENCE": ["1", "0"],
    "resources1:PGPU": ["1"],
    "resources_NIC:SRIOV_NET_VF": ["2"],
    "trait:CUSTOM_SSD": ["required", "forbidden", "maybe"],
    "trait1:CUSTOM_H100": ["required"],
    "group_policy": ["none", "isolate", "odd"],
    "hw:locked_memory": ["true", "no"],
    "hw:watchdog_action": ["reset"],
    "unknown:key": ["1"],
}
_IMAGE: dict[str, list[str]] = {
    "hw_numa_nodes": ["1", "2"],
    "hw_cpu_policy": ["dedicated", "shared"],
    "hw_cpu_thread_policy": ["isolate", "require"],
    "hw_mem_page_size": ["large", "2MB"],
    "hw_pci_numa_affinity_policy": ["preferred"],
    "trait:CUSTOM_SSD": ["required"],
    "hw_vm_mode": ["hvm"],
}
_ALIASES = [
    '{"name": "gpu", "vendor_id": "10de", "product_id": "2330"}',
    '{"name": "nic", "vendor_id": "8086", "product_id": "154c", "device_type": "type-VF", '
    '"numa_policy": "preferred"}',
    '{"name": "gpu", "resource_class": "PGPU", "traits": "CUSTOM_H100"}',
    '{"name": "nic"}',
]


def flavors(chance: random.Random, seed: int) -> Case:
    """A flavor, an image and the aliases of devices, in Nova's words."""
    count = chance.choice([0, 1, 2, 2, 3, 4, 6])
    specs = {key: chance.choice(_SPECS[key]) for key in chance.sample(sorted(_SPECS), count)}
    image = chance.sample(sorted(_IMAGE), chance.choice([0, 0, 0, 1, 2]))
    return {
        "flavor": {
            "vcpus": chance.choice([1, 2, 4, 4, 6, 8]),
            "memory_mb": chance.choice([512, 1024, 2048, 2049]),
            "root_gb": chance.choice([0, 1, 20]),
            "ephemeral_gb": chance.choice([0, 0, 5]),
            "swap_mb": chance.choice([0, 0, 100]),
            "extra_specs": specs,
        },
        "image": {key: chance.choice(_IMAGE[key]) for key in image},
        "aliases": _ALIASES[:2] if chance.random() < 0.9 else chance.sample(_ALIASES, 2),
        "refuse_unread": chance.random() < 0.3,
    }


def pci_specs(chance: random.Random, seed: int) -> Case:
    """Entries of ``[pci] device_spec``, and devices that they may be about."""
    found = pci_strategies.question_of(chance.randrange(2**32)).devices
    return {
        "specs": [_entry(chance, found) for _ in range(chance.choice([1, 1, 2, 3]))],
        "devices": wire(found),
    }


def _entry(chance: random.Random, found: Any) -> Any:
    device = chance.choice(found)
    entry: dict[str, Any] = {}
    if chance.random() < 0.6:
        entry["vendor_id"] = chance.choice([device.vendor_id, "*", "10DE"])
        entry["product_id"] = chance.choice([device.product_id, "*"])
    if chance.random() < 0.6:
        parts = device.address.rsplit(":", 1)[0]
        entry["address"] = chance.choice(
            [device.address, f"{parts}:*.*", "*:*:*.*", ":00.", {"bus": "0.*", "slot": ".*"}, "x"]
        )
    for key, values in {
        "resource_class": ["PGPU", "gpu", "CUSTOM_A-B", ""],
        "traits": ["CUSTOM_H100", "fast, big"],
        "physical_network": ["left", None],
        "remote_managed": ["true", "maybe"],
        "live_migratable": ["yes", "no"],
        "one_time_use": ["true"],
        "devname": ["eth0"],
    }.items():
        if chance.random() < 0.15:
            entry[key] = chance.choice(values)
    return entry if chance.random() < 0.95 else "{"


# --- wire forms ---


def objects(chance: random.Random) -> list[Any]:
    """Return objects of every registered class, most of them inside others."""
    topology = numa_strategies.question_of(chance.randrange(2**32))
    joint = pci_strategies.joint_question_of(chance.randrange(2**32))
    lab = pci_strategies.question_of(chance.randrange(2**32))
    roots = fleets.fleet(chance, shares=True)
    request = fleets.request(chance, roots)
    inventory = ro.PCIInventory(lab.devices, usage=lab.usage)
    found: list[Any] = [
        topology.inventory,
        topology.amount,
        topology.limit,
        joint.amount,
        joint.topology,
    ]
    found += [inventory, *lab.devices, *lab.usage, *roots, request, *request.groups]
    found += [ro.Limits("VCPU=3"), ro.resource("VCPU"), ro.NUMA_TOPOLOGY, ro.DEVICES]
    found += [Aggregate(name="r7", level="rack"), Trait(name="CUSTOM_A")]
    found += [ResourceClass(name="PGPU")]
    found.append(DevicePool("10de", "2330", 4, numa_node=0, tags={"rack": "r7"}))
    found.append(ro.Inventories({"VCPU": 4, "NUMA_TOPOLOGY": topology.inventory}))
    found.append(ro.Amounts({"VCPU": 4, "NUMA_TOPOLOGY": topology.amount}))
    with ro.connect("memory://", actor="admin") as ledger:
        ledger.sync(ro.Provider("host", "VCPU=8"), ro.Provider("other", "VCPU=8"))
        ledger.disable("other", reason="fan")
        candidates = ledger.snapshot().candidates("VCPU=1", limit=3)
        found += [*candidates, ledger.claim("a", {"host": "VCPU=2"}), *ledger.trees()]
        found += ledger.consumers()
        found += [one.disabled for one in ledger.providers() if one.disabled is not None]
    for assigned in (
        lambda: topology.inventory.fit(topology.amount),
        lambda: inventory.fit(lab.amount),
    ):
        try:
            found.append(assigned())
        except exceptions.CapacityException:
            continue
    row = {"hypervisor_hostname": "h", "vcpus": 8, "vcpus_used": 1, "memory_mb": 64}
    found.append(ro.ComputeNode.from_row({**row, "memory_mb_used": 0}))
    return [one for one in found if one is not None]


def wire_form(chance: random.Random, seed: int) -> Case:
    """The wire form of an object, in one case of three damaged; the first question is of all."""
    if seed == 0:
        return {"registered": True}
    made = _pinned(wire(chance.choice(objects(chance))))
    if chance.random() < 0.4:
        _damage(chance, made)
    return {"wire": made, "target": chance.choice([None, None, "1.0", "0.9"])}


def _pinned(made: Any) -> Any:
    """Return a wire form with uuids and moments that are the same each time."""
    numbers: dict[str, str] = {}

    def pinned(found: re.Match[str]) -> str:
        number = len(numbers)
        return numbers.setdefault(found[0], f"00000000-0000-4000-8000-{number:012x}")

    text = _UUID.sub(pinned, json.dumps(made))
    return json.loads(_MOMENT.sub("2026-01-01T00:00:00", text))


_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b")
_MOMENT = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?")


def _damage(chance: random.Random, made: Any) -> None:
    """Take a field away, or put another value into a field."""
    data = made["versioned_object.data"]
    inside = [
        one for one in data.values() if isinstance(one, dict) and "versioned_object.data" in one
    ]
    if inside and chance.random() < 0.5:
        _damage(chance, chance.choice(inside))
    elif chance.random() < 0.2:
        made["versioned_object.version"] = chance.choice(["1.7", "2.0", "x"])
    elif data:
        key = chance.choice(sorted(data))
        if chance.random() < 0.4:
            del data[key]
        else:
            data[key] = chance.choice([None, -1, "", "x", 2**70, [], {}, [1, 1], 1.5])
