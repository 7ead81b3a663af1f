"""Questions for ledgers: trees, and steps that change what consumers hold and what there is."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

import resource_objects as ro
from resource_objects.resources.numa import HostCell, NUMATopologyInventory
from tests.peers.before.questions import Case, wire
from tests.support import fleets

#: What hosts with cells and devices are called.
_PLACED = "machine"
CONSUMERS = [f"job-{number}" for number in range(5)]


# --- hosts ---


def _counted_host(chance: random.Random, number: int) -> ro.Provider:
    return ro.Provider(f"plain{number}", {"VCPU": 8, "MEMORY_MB": 64, "DISK_GB": 10})


def host_of_cells(chance: random.Random, number: int) -> ro.Provider:
    """Return a host with one or two cells."""
    host = ro.Provider(f"{_PLACED}{number}", "DISK_GB=10")
    cells = [
        HostCell(cell, dedicated=range(4 * cell, 4 * cell + 4), memory_mb=64, socket=cell)
        for cell in range(chance.choice([1, 2, 2]))
    ]
    host.add_parts("NUMA_TOPOLOGY", NUMATopologyInventory(cells))
    return host


def host_of_devices(chance: random.Random, number: int) -> ro.Provider:
    """Return a host with cells, GPUs, and a card with virtual functions."""
    host = host_of_cells(chance, number)
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
    host.add_parts("DEVICES", ro.PCIInventory(devices))
    return host


def _trees(chance: random.Random) -> list[ro.Provider]:
    made = chance.choice([_counted_host, _counted_host, host_of_cells, host_of_devices])
    trees = fleets.fleet(chance, shares=True) if chance.random() < 0.4 else [made(chance, 0)]
    return trees + [made(chance, number) for number in range(1, chance.choice([1, 1, 2, 3]))]


def classes_of(place: ro.Provider) -> list[str]:
    """Return the classes that a provider counts; those of a cell, or of a device."""
    counted = {"NUMA_TOPOLOGY": ["MEMORY_MB", "PCPU"], "DEVICES": ["PGPU"]}
    names = sorted(map(str, place.inventories))
    return [one for name in names for one in counted.get(name, [name])]


# --- steps ---


def _step(chance: random.Random, trees: Sequence[ro.Provider], verbs: Sequence[str]) -> Case:
    """Return one step of some verbs."""
    do = chance.choice(verbs)
    consumer, other = chance.sample(CONSUMERS, 2)
    step: Case = {"do": do, "consumer": consumer}
    if do in ("release", "assigned"):
        return step
    if do == "swap":
        return step | {"other": [other]}
    if do == "confirm":
        return step | {"options": chance.choice([{}, {"generation": 99}])}
    if do == "renew":
        return step | {"options": {"expires_in": 7200}}
    if do == "claim_all":
        claims = {consumer: _taken(chance, trees), other: _taken(chance, trees)}
        return {"do": do, "claims": claims}
    step |= _taken(chance, trees, may_give_back=do == "adjust", by_request=do != "adjust")
    step["options"] = _options(chance, trees, do, other)
    return step


def _options(
    chance: random.Random, trees: Sequence[ro.Provider], do: str, other: str
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if do == "move":
        found["leaving"] = chance.choice([None, None, other])
    if do == "claim" and chance.random() < 0.3:
        found["expires_in"] = 3600
    if do in ("claim", "replace", "move") and chance.random() < 0.1:
        found["limits"] = {chance.choice(trees).name: {"VCPU": chance.choice([1, 4])}}
    if do in ("claim", "replace", "move") and chance.random() < 0.1:
        found["override_disabled"] = True
    return found


def _taken(
    chance: random.Random,
    trees: Sequence[ro.Provider],
    *,
    may_give_back: bool = False,
    by_request: bool = True,
) -> Case:
    """Return what a step allocates: a request to search, or amounts by provider."""
    counted = [root for root in trees if not root.name.startswith(_PLACED)]
    if by_request and counted and chance.random() < 0.3:
        return {"is_request": True, "what": wire(fleets.request(chance, counted))}
    return {"what": _what(chance, trees, may_give_back=may_give_back)}


def _what(chance: random.Random, trees: Sequence[ro.Provider], *, may_give_back: bool) -> Case:
    """Return amounts by provider, topologies and devices among them."""
    root = chance.choice(trees)
    if not may_give_back and root.name.startswith(_PLACED) and chance.random() < 0.7:
        placed = _placed(chance, root)
        if placed:
            return {root.name: placed}
    found: dict[str, dict[str, int]] = {}
    for _ in range(chance.choice([1, 1, 2, 3])):
        place = chance.choice([one for one in root.walk() if one.inventories] or [root])
        counted = classes_of(place) or ["VCPU"]
        least = -2 if may_give_back else 0
        amount = chance.choice([least, 1, 1, 1, 2, 2, 3, 4, 9])
        found.setdefault(place.name, {})[chance.choice(counted)] = amount
    return found


def _placed(chance: random.Random, host: ro.Provider) -> dict[str, Any]:
    classes = {str(name) for one in host.walk() for name in one.inventories}
    found: dict[str, Any] = {}
    if "NUMA_TOPOLOGY" in classes and chance.random() < 0.8:
        cells = chance.choice([1, 1, 2])
        size = cells * chance.choice([1, 1, 2, 3])
        found["NUMA_TOPOLOGY"] = wire(ro.numa(cells, dedicated=size, memory_mb=cells * 8))
    if "DEVICES" in classes and chance.random() < 0.7:
        name = chance.choice(["PGPU", "PGPU", "CUSTOM_CARD", "SRIOV_NET_VF"])
        found["DEVICES"] = wire(ro.devices(name, chance.choice([1, 1, 2])))
    return found


def _out_step(chance: random.Random, trees: Sequence[ro.Provider]) -> Case:
    """Return a step that disables or enables a provider or a unit."""
    every = [one.name for root in trees for one in root.walk()]
    do = chance.choice(["disable", "disable", "enable", "drain"])
    name = chance.choice([*every, *every, "nothing"])
    options: dict[str, Any] = {} if do == "enable" else {"reason": chance.choice(["fan", "x", ""])}
    address = name.rpartition("/")[2]
    if ":" in address and chance.random() < 0.5:
        options["unit"] = chance.choice([address, address.replace("00.0", "02.1")])
    return {"do": do, "provider": name, "options": options}


_TAKING = [*["claim"] * 6, *["release"] * 3, *["move"] * 3, *["adjust"] * 3]
_TAKING += ["replace", "swap", "confirm", "renew", "claim_all", "assigned"]


def claims(chance: random.Random, seed: int) -> Case:
    """Claims, moves and releases, one after the other."""
    trees = _trees(chance)
    steps = [_step(chance, trees, _TAKING) for _ in range(chance.randint(3, 10))]
    return {"trees": wire(trees), "steps": steps}


def disabled(chance: random.Random, seed: int) -> Case:
    """Providers and units that are disabled and enabled, between claims."""
    trees = _trees(chance)
    steps = [
        _out_step(chance, trees)
        if chance.random() < 0.5
        else _step(chance, trees, ["claim", "claim", "release", "move", "replace"])
        for _ in range(chance.randint(4, 9))
    ]
    return {"trees": wire(trees), "steps": steps}


def server_groups(chance: random.Random, seed: int) -> Case:
    """Claims and moves of members of server groups."""
    trees = [_counted_host(chance, number) for number in range(chance.choice([2, 3]))]
    strict = ["anti-affinity"] * 5 + ["affinity"] * 3
    policy = chance.choice([*strict, "soft-affinity", "soft-anti-affinity", "odd"])
    most = chance.choice([1, 1, 2]) if policy == "anti-affinity" else 1
    groups = [{"name": "db", "policy": policy, "max_per_host": most}]
    if chance.random() < 0.2:
        groups.append({"name": "db", "policy": "affinity", "max_per_host": 1})
    steps = []
    for _ in range(chance.randint(5, 10)):
        if chance.random() < 0.1:
            verb = chance.choice(["get", "get", "remove"])
            steps.append({"do": "group", "verb": verb, "name": chance.choice(["db", "db", "no"])})
            continue
        do = chance.choice([*["claim"] * 6, *["move"] * 2, "replace", "release"])
        step: Case = {"do": do, "consumer": chance.choice(CONSUMERS)}
        if do != "release":
            amount = chance.choice([1, 2, 4])
            step["what"] = {chance.choice(trees).name: {"VCPU": amount}}
            if chance.random() < 0.4:
                step |= {"is_request": True, "what": wire(ro.Request({"VCPU": amount}))}
        if do == "claim" and chance.random() < 0.95:
            step["options"] = {"group": chance.choice([*["db"] * 9, "no"])}
        steps.append(step)
    return {"trees": wire(trees), "groups": groups, "steps": steps}


# --- definitions ---


def _changed(chance: random.Random, trees: Sequence[ro.Provider]) -> list[ro.Provider]:
    """Return other trees of the same roots: figures, traits, children."""
    found = [copy.deepcopy(root) for root in trees]
    for root in found:
        for place in list(root.walk()):
            if place.name.startswith(_PLACED):
                continue
            if chance.random() < 0.3:
                place.traits = set(fleets.some(chance, fleets.TRAITS, 0.5))
            if chance.random() < 0.3 and place.inventories:
                name = chance.choice(sorted(map(str, place.inventories)))
                others = {str(k): one for k, one in place.inventories.items() if str(k) != name}
                changed = chance.choice([{}, {name: chance.choice([1, 4, 16, 100])}])
                place.inventories = ro.Inventories({**others, **changed})
        if chance.random() < 0.2 and not root.name.startswith(_PLACED):
            root.add(f"{root.name}/new", "PGPU=2")
    return found


def plans(chance: random.Random, seed: int) -> Case:
    """Plans of changed trees, dry and applied, some of them stale; and plans of scenarios."""
    trees = _trees(chance)
    steps = [_step(chance, trees, ["claim"]) for _ in range(chance.randint(1, 4))]
    for _ in range(chance.randint(1, 3)):
        if chance.random() < 0.4:
            steps.append({"do": "scenario", "tried": _tried(chance, trees)})
            continue
        try:
            planned: Case = {"do": "plan", "trees": wire(_changed(chance, trees))}
        except (ro.ResourceObjectsError, ValueError):
            continue
        if chance.random() < 0.2:
            planned["between"] = {"do": "sync", "trees": planned["trees"]}
        steps.append(planned)
    if chance.random() < 0.3:
        name = chance.choice([one.name for root in trees for one in root.walk()])
        steps.append({"do": "remove", "provider": name})
    return {"trees": wire(trees), "steps": steps}


def _tried(chance: random.Random, trees: Sequence[ro.Provider]) -> list[Case]:
    counted = [root for root in trees if not root.name.startswith(_PLACED)]
    found: list[Case] = []
    for _ in range(chance.randint(1, 4)):
        do = chance.choice(["claim", "claim", "move", "release", "disable"])
        if do == "disable":
            name = chance.choice(trees).name
            found.append({"do": do, "provider": name, "options": {"reason": "fan"}})
            continue
        found.append({"do": do, "consumer": chance.choice(CONSUMERS)})
        if do != "release":
            topology = ro.numa(1, dedicated=chance.choice([1, 2, 9]))
            request = (
                fleets.request(chance, counted)
                if counted
                else ro.Request({"NUMA_TOPOLOGY": topology})
            )
            found[-1]["what"] = wire(request)
    return found


def reshapes(chance: random.Random, seed: int) -> Case:
    """GPUs that are counted at hosts, and go to children or other classes."""
    total = chance.choice([2, 4, 4])
    trees = [ro.Provider(f"host{number}", f"VCPU=8,PGPU={total}") for number in range(2)]
    steps: list[Case] = []
    for number in range(chance.choice([0, 2, 3, 4, 4])):
        amounts = {chance.choice(["PGPU", "PGPU", "PGPU", "VCPU"]): chance.choice([1, 1, 2])}
        what = {chance.choice(["host0", "host0", "host0", "host1"]): amounts}
        steps.append({"do": "claim", "consumer": CONSUMERS[number], "what": what})
    for _ in range(chance.choice([1, 1, 2])):
        steps.append({"do": "reshape", "reshape": _reshape(chance, total)})
    steps.append({"do": "claim", "consumer": CONSUMERS[4], "what": {"host0/gpu0": {"PGPU": 1}}})
    return {"trees": wire(trees), "steps": steps}


def _reshape(chance: random.Random, total: int) -> Case:
    host = chance.choice(["host0", "host0", "host0", "host1"])
    count = chance.choice([1, 2, 2, total])
    names = [f"{host}/gpu{number}" for number in range(count)]
    parts: list[Case] = []
    left = total
    for name in names:
        some = chance.choice([*[total // count] * 8, 1, 3])
        parts.append({"provider": name, "total": min(some, left) or 1})
        left -= parts[-1]["total"]
        if chance.random() < 0.2:
            parts[-1]["consumers"] = {chance.choice(CONSUMERS): 1}
        if chance.random() < 0.1:
            parts[-1]["resource_class"] = "CUSTOM_GPU"
    move: Case = {"from": host, "resource_class": "PGPU", "to": parts}
    for word in ("fill", "split"):
        if chance.random() < (0.7 if word == "fill" else 0.2):
            move[word] = True
    if chance.random() < 0.1:
        move["total"] = chance.choice([0, 1, total])
    created = [{"name": name, "parent": host} for name in names if chance.random() < 0.95]
    removed = [chance.choice(["host0", "host1"])] if chance.random() < 0.05 else []
    return {"version": 1, "create": created, "moves": [move], "remove": removed}
