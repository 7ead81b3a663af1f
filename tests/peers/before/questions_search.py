"""Questions about searches: small fleets, some hosts with cells and devices, and requests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import resource_objects as ro
from resource_objects import exceptions
from tests.peers.before.questions import Case, wire
from tests.peers.before.questions_ledger import classes_of, host_of_cells, host_of_devices
from tests.support import fleets

_ORDERS: list[Any] = [
    *("name", "name", "pack", "spread", "random"),
    {"by": "pack", "weights": {"VCPU": 2}},
    {"by": "name", "preferred": {"CUSTOM_A": 1, "CUSTOM_B": -2}},
    {"by": "spread", "preferred": {"CUSTOM_C": 3}},
]


def _fleet(chance: random.Random, compatibility: str | None) -> Case:
    """Return trees with what is used of them, and a request that some of them may meet."""
    if chance.random() < 0.2:
        roots, request = fleets.alike(chance, compatibility=compatibility)
    else:
        roots = fleets.fleet(chance, shares=compatibility is None and chance.random() < 0.75)
        request = fleets.request(chance, roots, compatibility=compatibility)
    out = [one.name for root in roots for one in root.walk() if chance.random() < 0.05]
    return {
        "trees": wire(roots),
        "used": _used(roots),
        "request": wire(request),
        "disabled": out,
    }


def _used(roots: Sequence[ro.Provider]) -> list[Any]:
    return [
        [place.name, str(name), inventory.used]
        for root in roots
        for place in root.walk()
        for name, inventory in place.inventories.items()
        if getattr(inventory, "used", 0)
    ]


def _placed(chance: random.Random) -> Case:
    """Return hosts with cells and devices, and a request for some of these."""
    made = chance.choice([host_of_cells, host_of_devices])
    roots = [made(chance, number) for number in range(chance.choice([1, 2, 3]))]
    used = [
        [place.name, name, chance.randint(1, 3)]
        for root in roots
        for place in root.walk()
        for name in classes_of(place)
        if chance.random() < 0.2
    ]
    while True:
        amounts = _placed_amounts(chance)
        near = chance.choice(
            [{}, {}, {"near": "numa"}, {"near": "numa", "near_policy": "preferred"}]
        )
        try:
            request = ro.Request(amounts, **near)
        except (exceptions.InvalidInput, TypeError):
            continue
        return {
            "trees": wire(roots),
            "used": used,
            "request": wire(request),
            "disabled": [
                one.name for root in roots for one in root.walk() if chance.random() < 0.05
            ],
        }


def _placed_amounts(chance: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if chance.random() < 0.7:
        cells = chance.choice([1, 1, 2])
        size = cells * chance.choice([1, 1, 2, 3, 4])
        found["NUMA_TOPOLOGY"] = ro.numa(cells, dedicated=size, memory_mb=cells * 8)
    if chance.random() < 0.6 or not found:
        name = chance.choice(["PGPU", "PGPU", "CUSTOM_CARD", "SRIOV_NET_VF"])
        found["DEVICES"] = ro.devices(name, chance.choice([1, 1, 2]))
    if chance.random() < 0.3:
        found["DISK_GB"] = chance.choice([1, 5, 10])
    return found


def _either(chance: random.Random) -> Case:
    if chance.random() < 0.25:
        return _placed(chance)
    return _fleet(chance, chance.choice([None, None, "placement"]))


def search(chance: random.Random, seed: int) -> Case:
    """A search of a small fleet, in an order and with a limit."""
    options: dict[str, Any] = {
        "order": chance.choice(_ORDERS),
        "limit": chance.choice([1, 2, 5, 100]),
        "per_host": chance.choice([None, None, 1, 2, 0]) if chance.random() < 0.3 else None,
        "seed": chance.choice([None, None, 7]),
    }
    return {**_either(chance), "options": options}


def explanations(chance: random.Random, seed: int) -> Case:
    """A search, more often without a candidate, that is explained."""
    return {**_either(chance), "options": {"limit": chance.choice([1, 100])}}


def how_many(chance: random.Random, seed: int) -> Case:
    """A request that is counted on a small fleet."""
    return _either(chance)


def gangs(chance: random.Random, seed: int) -> Case:
    """Members of a gang on hosts in racks and rows."""
    roots = []
    for number in range(chance.choice([2, 3, 4])):
        host = ro.Provider(
            f"host{number}",
            {"VCPU": chance.choice([2, 4, 8]), "MEMORY_MB": 64},
            aggregates=[f"rack{number % 2}"] if chance.random() < 0.9 else [],
            traits=fleets.some(chance, fleets.TRAITS, 0.3),
        )
        for gpu in range(chance.choice([0, 1, 2])):
            host.add(f"host{number}/gpu{gpu}", "PGPU=1")
        roots.append(host)
    members: dict[str, Any] = {}
    for name in ("driver", "worker")[: chance.choice([1, 2, 2])]:
        asked = chance.choice(["VCPU=1", "VCPU=2", "VCPU=3", "PGPU=1", "VCPU=1,PGPU=1", "VCPU=9"])
        members[name] = {"request": asked, "count": chance.choice([1, 2, 3])}
        if chance.random() < 0.3:
            members[name]["at_most"] = {chance.choice(["host", "rack"]): chance.choice([1, 2])}
        if chance.random() < 0.2:
            members[name]["together"] = chance.choice(["host", "rack"])
    gang: Case = {"members": members}
    if chance.random() < 0.3:
        gang["together"] = "rack"
    used = [[root.name, "VCPU", chance.choice([1, 2])] for root in roots if chance.random() < 0.4]
    levels = {"rack": ["rack0", "rack1"]} if chance.random() < 0.95 else {}
    found = {"trees": wire(roots), "used": used, "disabled": [], "gang": gang, "levels": levels}
    return found | {"order": chance.choice(["name", "name", "pack", "spread"])}
