"""Random devices and requests that nova has words for, a number each."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Sequence
from typing import Any

from resource_objects.resources.pci import Device, DeviceRequest, DeviceSpec
from tests.peers.nova.pci_sides import PROVIDER, Case

#: Vendor and product of devices that are not split, and of those that are, with their parts'.
_PLAIN = [("10de", "1db4"), ("10de", "0443"), ("8086", "0443")]
_SPLIT = [("8086", "1572", "154c"), ("15b3", "1017", "1018"), ("15b3", "1017", "1017")]
_AFFINITIES = ["legacy", "legacy", "preferred", "required", "socket"]
_NETWORKS = ["red", "blue", '["red", "blue"]']


def once_in(chance: random.Random, count: int) -> bool:
    """Return True once in so many times."""
    return chance.randrange(count) == 0


def case(number: int) -> Case:
    """Return a small host and requests for its devices, mostly as many as there are."""
    chance = random.Random(number)
    found = case_on(chance, cells(chance))
    if once_in(chance, 3):
        return found
    ids = [*found.sockets]
    chosen = tuple(sorted(chance.sample(ids, chance.randint(1, len(ids)))))
    return dataclasses.replace(found, chosen=chosen)


def case_on(chance: random.Random, sockets: dict[int, int | None]) -> Case:
    """Return devices of a host with some cells, and requests for them from anywhere."""
    devices = tuple(host(chance, [*sockets]))
    return Case(devices, tuple(_requests(chance, devices)), None, sockets)


def cells(chance: random.Random) -> dict[int, int | None]:
    """Return the socket of each host cell; seldom one is not known."""
    count = chance.randint(1, 4)
    unknown = chance.randrange(count) if once_in(chance, 6) else None
    return {cell: None if cell == unknown else cell * 2 // count for cell in range(count)}


def host(chance: random.Random, nodes: Sequence[int]) -> Iterable[Device]:
    """Yield the devices of a host, by address; all of them have a provider, or none."""
    has_providers = once_in(chance, 4)
    for bus in range(1, chance.randint(2, 4)):
        node = None if once_in(chance, 4) else chance.choice(nodes)
        make = _split if once_in(chance, 2) else _plain
        yield from make(chance, bus, node, has_providers)


def _plain(
    chance: random.Random, bus: int, node: int | None, has_providers: bool
) -> Iterable[Device]:
    for slot in range(chance.randint(1, 3)):
        vendor, product = chance.choice(_PLAIN)
        address = f"0000:{bus:02x}:{slot:02x}.0"
        facts = {PROVIDER: f"host_{address}"} if has_providers else {}
        yield Device(address, vendor, product, **_words(chance, node, facts))


def _split(
    chance: random.Random, bus: int, node: int | None, has_providers: bool
) -> Iterable[Device]:
    vendor, product, part = chance.choice(_SPLIT)
    whole = f"0000:{bus:02x}:00.0"
    facts = {PROVIDER: f"host_{whole}"} if has_providers else {}
    words = _words(chance, node, facts)
    kind = "vdpa" if once_in(chance, 8) else "type-VF"
    if not once_in(chance, 2 if has_providers else 8):
        yield Device(whole, vendor, product, "type-PF", **words | {"remote_managed": False})
    for slot in range(chance.randint(1, 3)):
        if once_in(chance, 8):
            words = _words(chance, node, facts)
        yield Device(f"0000:{bus:02x}:02.{slot}", vendor, part, kind, parent=whole, **words)


def _words(chance: random.Random, node: int | None, facts: dict[str, str]) -> dict[str, Any]:
    return {
        "numa_node": node,
        "tags": {"physical_network": chance.choice(_NETWORKS)} if once_in(chance, 4) else {},
        "resource_class": "CUSTOM_GPU" if once_in(chance, 6) else None,
        "traits": ["CUSTOM_FAST"] if once_in(chance, 6) else [],
        "remote_managed": once_in(chance, 10),
        "live_migratable": chance.choice([True, False]) if once_in(chance, 6) else None,
        "facts": facts,
    }


def _requests(chance: random.Random, devices: Sequence[Device]) -> Iterable[DeviceRequest]:
    left = chance.sample(devices, len(devices))
    for _ in range(chance.choice([1, 1, 2, 2, 3])):
        wanted = [left.pop() if left else chance.choice(devices) for _ in range(_count(chance))]
        if not once_in(chance, 4):
            taken = {device.address for device in wanted} | {device.parent for device in wanted}
            left = [d for d in left if d.address not in taken and d.parent not in taken]
        yield _request(chance, wanted)


def _count(chance: random.Random) -> int:
    return chance.choice([1, 1, 1, 2, 2, 3])


def _request(chance: random.Random, wanted: Sequence[Device]) -> DeviceRequest:
    """Return a request that each of some devices meets, were it alone; for as many of them."""
    specs = [_spec(chance, wanted[0])]
    for device in wanted[1:]:
        if not DeviceRequest(specs).matches(device) or once_in(chance, 6):
            specs.append(_spec(chance, device))
    providers = [device.facts.get(PROVIDER, "") for device in wanted]
    has_providers = all(providers) and not once_in(chance, 3)
    if has_providers and once_in(chance, 6):
        providers[-1] = providers[0]
    return DeviceRequest(
        specs,
        len(wanted),
        chance.choice(_AFFINITIES),
        providers=providers if has_providers else [],
    )


def _spec(chance: random.Random, device: Device) -> DeviceSpec:
    """Return an alternative that a device meets, by more words or by fewer; seldom it does not."""
    said: dict[str, Any] = {"vendor_id": device.vendor_id}
    is_special = device.type in ("type-PF", "vdpa")
    if once_in(chance, 2):
        said["product_id"] = device.product_id
    if once_in(chance, 3) or (is_special and not once_in(chance, 6)):
        said["types"] = [device.type]
    if once_in(chance, 12):
        said = {"resource_class": device.resource_class}
    if device.remote_managed and not once_in(chance, 6):
        said["remote_managed"] = True
    if once_in(chance, 4):
        said["tags"] = {"physical_network": _tag(chance, device)}
    if once_in(chance, 8):
        said["traits"] = sorted(device.traits)
    if once_in(chance, 8):
        said["live_migratable"] = device.live_migratable
    return DeviceSpec(**said)


def _tag(chance: random.Random, device: Device) -> str:
    """Return a tag as somebody asks for it: in any case, or a part of a list."""
    has = device.tags.get("physical_network", "null")
    if has.startswith("["):
        return chance.choice([has, '["BLUE"]'])
    return has.upper() if has != "null" and once_in(chance, 3) else has
