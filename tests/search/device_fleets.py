"""Small fleets with devices made from a seed, and requests: with little room, much is refused.

They are kept by a ledger in memory, so that what is found can be claimed. Who uses something has
devices by name, or by number, or a topology.
"""

from __future__ import annotations

import random

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers import diff
from resource_objects.requests import Request
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, numa

DEVICES = "DEVICES"
TOPOLOGY = "NUMA_TOPOLOGY"
TRAITS = ["CUSTOM_A", "CUSTOM_B"]
CLASSES = ["PGPU", "CUSTOM_GPU", "SRIOV_NET_VF", "CUSTOM_CARD", "CUSTOM_VF"]
AFFINITIES = ["legacy", "preferred", "required", "socket"]


def fleet(seed, *, traits=True, loose=True):
    """Return a ledger with a host or two, on which something is used, and a request.

    :param traits: whether providers have some and the request asks for some
    :param loose: whether who uses devices may not say which
    """
    chance = random.Random(seed)
    ledger = ro.connect("memory://")
    names = [f"host{number}" for number in range(chance.choice([1, 1, 2]))]
    for name in names:
        ledger.sync(_host(chance, name, traits))
    for number in range(chance.choice([0, 0, 1, 2, 4])):
        _use(chance, ledger, f"job-{number}", chance.choice(names), loose)
    return ledger, _request(chance, traits, _there(chance, ledger))


def _there(chance, ledger):
    """Return classes of devices, mostly those that there are."""
    kept = set(ledger.backend.read().inventories.resource_class).intersection(CLASSES)
    return sorted(kept) if kept and not _once_in(chance, 5) else CLASSES


def _once_in(chance, times):
    return chance.randrange(times) == 0


def _host(chance, name, traits):
    count = chance.choice([0, 1, 2, 2, 3])
    figures = {"VCPU": 4, "DISK_GB": 9}
    if count and not _once_in(chance, 4):
        figures["PCPU"] = 2 * count - chance.choice([0, 0, 1])
    host = ro.Provider(name, ro.Inventories(figures), traits=_traits(chance, 4, traits))
    if count:
        sockets = chance.choice([[0, 0, 0], [0, 1, 1], [0, 1, None]])
        cells = [
            HostCell(n, dedicated=[2 * n, 2 * n + 1], memory_mb=16, socket=sockets[n])
            for n in range(count)
        ]
        host.add_parts(TOPOLOGY, NUMATopologyInventory(cells))
    devices = list(_devices(chance, max(1, count)))
    if devices:
        for part in host.add_parts(DEVICES, ro.PCIInventory(devices)):
            if traits:
                part.update(traits=[*part.traits, *_traits(chance, 4, traits)])
    diff(None, host)
    return host


def _devices(chance, nodes):
    node = [*range(nodes), None]
    for bus in range(chance.choice([0, 2, 3, 3, 4])):
        where = chance.choice(node)
        if _once_in(chance, 2):
            kind = chance.choice(["PGPU", "PGPU", "CUSTOM_GPU", "SRIOV_NET_VF"])
            tags = {"slot": "red"} if _once_in(chance, 4) else {}
            yield ro.Device(
                f"0000:{bus:02x}:00.0",
                chance.choice(["10de", "8086"]),
                "0001",
                resource_class=kind,
                numa_node=where,
                tags=tags,
            )
            continue
        whole = f"0000:{bus:02x}:00.0"
        yield ro.Device(
            whole, "8086", "1572", "type-PF", resource_class="CUSTOM_CARD", numa_node=where
        )
        kinds = chance.choice([["SRIOV_NET_VF"], ["CUSTOM_VF"], ["SRIOV_NET_VF", "CUSTOM_VF"]])
        for number in range(chance.choice([0, 1, 2, 3])):
            yield ro.Device(
                f"0000:{bus:02x}:02.{number}",
                "8086",
                "154c",
                "type-VF",
                resource_class=chance.choice(kinds),
                parent=whole,
                numa_node=where,
            )


def _traits(chance, times, wanted):
    return [trait for trait in TRAITS if wanted and _once_in(chance, times)]


def _use(chance, ledger, consumer, host, loose):
    """Let somebody take something: devices by name or by number, a topology, a candidate."""
    how = chance.choice(["located", "located", "count", "topology", "found"])
    try:
        if how == "located":
            ledger.claim(consumer, {host: {DEVICES: located(chance, CLASSES)}})
        elif how == "topology":
            ledger.claim(consumer, {host: {TOPOLOGY: numa(dedicated=chance.choice([1, 2]))}})
        elif how == "found":
            found = ledger.snapshot().candidates({chance.choice(CLASSES): chance.choice([1, 2])})
            if found:
                ledger.claim(consumer, found)
        elif loose:
            parts = [one for one in ledger.provider(host).walk() if DEVICES in one.inventories]
            if parts:
                part = chance.choice(parts)
                records = part.inventories[DEVICES].to_records()
                ledger.claim(consumer, {part.name: {chance.choice(records).resource_class: 1}})
    except exceptions.CapacityException:
        pass  # there is no room for it, then


def located(chance, classes, most=2):
    """Return an amount of devices, mostly of some classes."""
    amount = None
    for _ in range(chance.choice([1, 1, most])):
        kind = chance.choice([*classes, *classes, "8086:154c", "10de:0001", "8086:1572"])
        also = {"types": ["type-PF"]} if kind == "8086:1572" else {}
        if _once_in(chance, 12):
            also["tags"] = {"slot": "red"}
        count, affinity = chance.choice([1, 1, 1, 2, 3]), chance.choice(AFFINITIES)
        one = ro.devices(kind, count, affinity=affinity, **also)
        amount = one if amount is None else amount + one
    return amount


def _request(chance, traits, classes):
    asked = {}
    if not _once_in(chance, 3):
        asked[DEVICES] = located(chance, classes)
    if not _once_in(chance, 3):
        cells = chance.choice([1, 1, 1, 1, 2])
        asked[TOPOLOGY] = numa(cells, dedicated=cells * chance.choice([1, 1, 2]))
    elif DEVICES in asked:  # near to nothing
        anywhere = [one.replace(affinity="legacy") for one in asked[DEVICES].requests]
        asked[DEVICES] = asked[DEVICES].replace(requests=anywhere)
    known = asked[DEVICES].placed_counts if DEVICES in asked else {}
    for name in classes:
        if _once_in(chance, 5):
            asked[name] = known.get(name) or chance.choice([1, 1, 1, 2, 3])
    if _once_in(chance, 5):
        asked["VCPU"] = chance.choice([1, 4])
    required = [trait for trait in TRAITS if traits and _once_in(chance, 7)]
    forbidden = [t for t in TRAITS if traits and _once_in(chance, 9) and t not in required]
    return Request(asked or {"PGPU": 1}, required=required, forbidden=forbidden)
