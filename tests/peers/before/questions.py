"""Random questions for both versions, as plain data; the same ones for the same seed.

They are those that the naive references of ``tests/support`` are asked, so most are such that
somebody just fits, or just does not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.requests import query
from resource_objects.resources.numa import HostCell, NUMATopologyInventory
from tests.peers.before.answers import DEVICES, written
from tests.support import fleets, numa_strategies, pci_strategies

Case = dict[str, Any]


def case(kind: str, seed: int) -> Case:
    """Return the question of a kind and a seed."""
    made = MAKERS[kind](random.Random(f"{kind} {seed}"), seed)
    return {"kind": kind, "seed": seed, **made}


# --- text ---


def _query(chance: random.Random, seed: int) -> Case:
    while True:
        asked = fleets.request(chance, fleets.fleet(chance), compatibility="placement")
        limit = chance.choice([None, None, 1, 1000])
        try:
            return {"text": _damaged(chance, query.format(asked, limit))}
        except exceptions.InvalidRequest:  # a group that says nothing, which a query cannot say
            continue


def _amounts(chance: random.Random, seed: int) -> Case:
    names = ["VCPU", "MEMORY_MB", "PGPU", "CUSTOM_LICENCE", "NUMA_TOPOLOGY"]
    parts = [
        f"{name}={_topology(chance) if name == 'NUMA_TOPOLOGY' else chance.choice(_NUMBERS)}"
        for name in chance.sample(names, chance.randint(1, 4))
    ]
    return {"text": _damaged(chance, chance.choice([",", ", ", "\n"]).join(parts))}


_NUMBERS = ["0", "1", "2", "4096", "-3", "+1", "1.5", str(2**63 - 1), str(2**63), "07", " 5", ""]


def _topology(chance: random.Random) -> str:
    return str(numa_strategies.question_of(chance.randrange(2**32)).amount)


def _damaged(chance: random.Random, text: str) -> str:
    """Return a text, in two cases of three with up to two characters of it wrong."""
    for _ in range(chance.randrange(3)):
        place = chance.randrange(len(text) + 1)
        put = chance.choice(["", "", "=", ",", ":", "&", "!", "in:", "0", "_", " ", "x", "%", "é"])
        text = text[:place] + put + text[place + chance.randrange(2) :]
    return text


# --- one host ---


def _cells(chance: random.Random, seed: int) -> Case:
    asked = numa_strategies.question_of(chance.randrange(2**32))
    return {
        "inventory": written(asked.inventory),
        "amount": written(asked.amount),
        "limit": written(asked.limit),
    }


def _devices(chance: random.Random, seed: int) -> Case:
    asked = pci_strategies.question_of(chance.randrange(2**32))
    return {
        "devices": written(asked.devices),
        "usage": written(asked.usage),
        "amount": written(asked.amount),
        "chosen": None if asked.chosen is None else list(asked.chosen),
        "sockets": [list(pair) for pair in asked.sockets.items()],
    }


def _both(chance: random.Random, seed: int) -> Case:
    asked = pci_strategies.joint_question_of(chance.randrange(2**32))
    return {word: written(getattr(asked, word)) for word in asked._fields}


# --- fleets ---


def _search(chance: random.Random, seed: int) -> Case:
    compatibility = chance.choice([None, "placement"])
    if chance.random() < 0.2:
        roots, asked = fleets.alike(chance, compatibility=compatibility)
    else:
        roots = fleets.fleet(chance, shares=compatibility is None and chance.random() < 0.75)
        asked = fleets.request(chance, roots, compatibility=compatibility)
    used = [
        [place.name, str(name), inventory.used]
        for root in roots
        for place in root.walk()
        for name, inventory in place.inventories.items()
        if inventory.used
    ]
    return {"trees": written(roots), "used": used, "request": written(asked)}


#: What hosts with cells and devices are called.
_LOCATED = "machine"
CONSUMERS = [f"job-{number}" for number in range(5)]


def _claims(chance: random.Random, seed: int) -> Case:
    made = chance.choice([_counted_host, _counted_host, _host_of_cells, _host_of_devices])
    trees = fleets.fleet(chance, shares=True) if chance.random() < 0.5 else [made(chance, 0)]
    trees += [made(chance, number) for number in range(1, chance.choice([1, 1, 2, 3]))]
    steps = [_step(chance, trees) for _ in range(chance.randint(3, 12))]
    return {"trees": written(trees), "steps": steps, "consumers": CONSUMERS}


def _counted_host(chance: random.Random, number: int) -> ro.Provider:
    return ro.Provider(f"plain{number}", {"VCPU": 8, "MEMORY_MB": 64, "DISK_GB": 10})


def _host_of_cells(chance: random.Random, number: int) -> ro.Provider:
    host = ro.Provider(f"{_LOCATED}{number}", "DISK_GB=10")
    there = [
        HostCell(cell, dedicated=range(4 * cell, 4 * cell + 4), memory_mb=64, socket=cell)
        for cell in range(chance.choice([1, 2, 2]))
    ]
    host.add_parts("NUMA_TOPOLOGY", NUMATopologyInventory(there))
    return host


def _host_of_devices(chance: random.Random, number: int) -> ro.Provider:
    host = _host_of_cells(chance, number)
    card = f"0000:{number + 16:02x}:00.0"
    devices = [
        ro.Device(f"0000:{bus:02x}:00.0", "10de", "2330", resource_class="PGPU", numa_node=bus % 2)
        for bus in range(1, chance.choice([2, 3, 4]))
    ]
    devices.append(ro.Device(card, "8086", "1572", "type-PF", resource_class="CUSTOM_CARD"))
    devices += [
        ro.Device(
            card.replace("00.0", f"02.{function}"),
            "8086",
            "154c",
            "type-VF",
            resource_class="SRIOV_NET_VF",
            parent=card,
        )
        for function in range(2)
    ]
    host.add_parts(DEVICES, ro.PCIInventory(devices))
    return host


def _step(chance: random.Random, trees: Sequence[ro.Provider]) -> Case:
    do = chance.choice(["claim"] * 6 + ["release"] * 3 + ["move"] * 3 + ["adjust"] * 3)
    do = chance.choice([do] * 4 + ["replace", "swap"])
    consumer, other = chance.sample(CONSUMERS, 2)
    if do == "release":
        return {"do": do, "consumer": consumer}
    if do == "swap":
        return {"do": do, "consumer": consumer, "other": [other]}
    step: Case = {"do": do, "consumer": consumer}
    if do == "move":
        step["leaving"] = chance.choice([None, None, other])
    counted = [root for root in trees if not root.name.startswith(_LOCATED)]
    if do != "adjust" and counted and chance.random() < 0.3:
        return step | {"is_request": True, "what": written(fleets.request(chance, counted))}
    return step | {"what": _what(chance, trees, may_give_back=do == "adjust")}


def _what(chance: random.Random, trees: Sequence[ro.Provider], *, may_give_back: bool) -> Case:
    """Return amounts by provider, topologies and devices among them."""
    root = chance.choice(trees)
    if not may_give_back and root.name.startswith(_LOCATED) and chance.random() < 0.7:
        located = _located(chance, root)
        if located:
            return {root.name: located}
    found: dict[str, dict[str, int]] = {}
    for _ in range(chance.choice([1, 1, 2, 3])):
        place = chance.choice([one for one in root.walk() if one.inventories] or [root])
        counted = sorted(map(str, place.inventories)) or ["VCPU"]
        least = -2 if may_give_back else 0
        amount = chance.choice([least, 1, 1, 1, 2, 2, 3, 4, 9])
        found.setdefault(place.name, {})[chance.choice(counted)] = amount
    return found


def _located(chance: random.Random, host: ro.Provider) -> dict[str, Any]:
    classes = {str(name) for one in host.walk() for name in one.inventories}
    found: dict[str, Any] = {}
    if "PCPU" in classes and chance.random() < 0.8:
        cells = chance.choice([1, 1, 2])
        size = cells * chance.choice([1, 1, 2, 3])
        found["NUMA_TOPOLOGY"] = written(ro.numa(cells, dedicated=size, memory_mb=cells * 8))
    if "PGPU" in classes and chance.random() < 0.7:
        name = chance.choice(["PGPU", "PGPU", "CUSTOM_CARD", "SRIOV_NET_VF"])
        found[DEVICES] = written(ro.devices(name, chance.choice([1, 1, 2])))
    return found


MAKERS: dict[str, Callable[[random.Random, int], Case]] = {
    "query": _query,
    "amounts": _amounts,
    "cells": _cells,
    "devices": _devices,
    "both": _both,
    "search": _search,
    "claims": _claims,
}
