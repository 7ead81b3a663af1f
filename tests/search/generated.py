"""Fleets and requests made from a seed: small, and with little room, so that much is refused.

Hypothesis makes such trees too, and finds the smallest one that fails; from a seed they cost a
twentieth, so that thousands can be tried.
"""

from __future__ import annotations

import random

from resource_objects.providers import Provider, diff
from resource_objects.providers.provider import Share
from resource_objects.requests import Request
from resource_objects.resources import IntegerInventory

TRAITS = ["CUSTOM_A", "CUSTOM_B", "CUSTOM_C"]
CLASSES = ["VCPU", "PGPU", "CUSTOM_X"]
SHARING = "MISC_SHARES_VIA_AGGREGATE"


def mixed(seed):
    """Return hosts, in every other case with pools, and a request: anything may be anywhere."""
    chance = random.Random(seed)
    roots = [_tree(chance, f"host{n}") for n in range(chance.randint(0, 2))]
    if chance.random() < 0.5:
        roots += [_tree(chance, f"pool{n}", [SHARING]) for n in range(chance.randint(1, 2))]
    amounts = {name: chance.randint(1, 5) for name in CLASSES if chance.random() < 0.6}
    required = _some_traits(chance) if chance.random() < 0.5 else []
    forbidden = _some_traits(chance) if chance.random() < 0.3 else []
    return roots, Request(
        amounts or {"PGPU": 2}, required=required, forbidden=set(forbidden) - set(required)
    )


def crowded(seed):
    """Return a host whose devices have several classes that use the same few slices.

    host     VCPU, perhaps CUSTOM_POWER
    +- g0    CUSTOM_SLICE=7, VGPU, FPGA, ...: one of each uses 1 to 3 slices of g0,
    |        and perhaps power of the host
    +- g1    ...
    """
    chance = random.Random(seed)
    own = {"VCPU": _plain(chance, 4, 12)}
    if chance.random() < 0.5:
        own["CUSTOM_POWER"] = IntegerInventory(chance.randint(2, 9))
    host = Provider("host", own)
    names = chance.choice([["PGPU", "VGPU", "FPGA"], ["PGPU", "VGPU"], ["VGPU", "VCPU", "PCPU"]])
    for number in range(chance.randint(1, 3)):
        _device(chance, host, f"g{number}", [name for name in names if chance.random() < 0.85])
    diff(None, host)
    amounts = {name: chance.randint(1, 6) for name in names if chance.random() < 0.9}
    for name in ("VCPU", "CUSTOM_SLICE", "CUSTOM_POWER"):
        if chance.random() < 0.25:
            amounts[name] = chance.randint(1, 4)
    required = ["CUSTOM_A"] if chance.random() < 0.3 else []
    return [host], Request(amounts or {"VCPU": 1}, required=required)


def _device(chance, host, name, classes):
    inventories = {"CUSTOM_SLICE": _plain(chance, 7, 7)}
    shares = []
    for each in classes:
        inventories[each] = _plain(chance, 1, 7, step_size=chance.choice([1, 1, 1, 2]))
        if chance.random() < 0.8:
            shares.append(_share(each, name, "CUSTOM_SLICE", chance.randint(1, 3)))
        if "CUSTOM_POWER" in host.inventories and chance.random() < 0.5:
            shares.append(_share(each, host.name, "CUSTOM_POWER"))
        if each == "VCPU":
            shares.append(_share(each, host.name, "VCPU"))
    traits = chance.choice([[], [], ["CUSTOM_A"], ["CUSTOM_B"]])
    host.add(name, inventories, shares=shares, traits=traits)


def _plain(chance, least, most, **figures):
    return IntegerInventory(
        chance.randint(least, most), used=chance.choice([0, 0, 0, 1, 3]), **figures
    )


def _share(resource_class, of, of_class, factor=1):
    return Share(resource_class=resource_class, of=of, of_class=of_class, factor=factor)


def _some_traits(chance):
    return chance.sample(TRAITS, chance.choice([0, 0, 1, 2]))


def _inventories(chance, classes=CLASSES):
    return {name: _inventory(chance) for name in classes if chance.random() < 0.6}


def _inventory(chance):
    total, least = chance.randint(1, 4), chance.choice([1, 1, 1, 2, 3])
    return IntegerInventory(
        total,
        reserved=chance.choice([0, 0, 0, 1]),
        min_unit=least,
        max_unit=chance.choice([None, chance.randint(least, total)]) if least <= total else None,
        step_size=chance.choice([1, 1, 1, 2]),
        allocation_ratio=chance.choice([1, 1, "1.5", "3"]),
        used=chance.choice([0, 0, 0, 1, 2, 9]),
    )


def _tree(chance, name, traits=()):
    root = Provider(name, _inventories(chance), traits=[*traits, *_some_traits(chance)[:1]])
    places = [root]
    for number in range(chance.randint(0, 4)):
        below = chance.choice([f"{name}/{number}", f"a{number}-{name}"])
        sharing = [SHARING] if chance.random() < 0.08 else []
        classes = chance.choice([CLASSES, CLASSES[1:]])
        places.append(
            chance.choice(places).add(
                below, _inventories(chance, classes), traits=[*_some_traits(chance), *sharing]
            )
        )
    if chance.random() < 0.7:
        _tie(chance, root)
    for place in places:
        if chance.random() < 0.4:
            place.update(aggregates=chance.sample("rs", chance.choice([1, 1, 2])))
    return root


def _tie(chance, root):
    """Let providers share in what comes before them, and in what that shares in."""
    before = []
    for place in root.walk():
        found = {}
        for name in map(str, place.inventories):
            for of, of_class in chance.sample(
                before, min(len(before), chance.choice([0, 1, 1, 2]))
            ):
                found[name, of.name, of_class] = chance.choice([1, 1, 1, 2])
                for share in of.shares:
                    if share.resource_class == of_class:
                        further = name, share.of, share.of_class
                        found.setdefault(further, chance.choice([1, 2]))
        place.update(shares=[_share(*key, factor) for key, factor in found.items()])
        before += [(place, name) for name in map(str, place.inventories)]
    diff(None, root)
