"""Hypothesis strategies for PCI devices: what there is, what is taken of it, what is asked.

All are small enough for :mod:`~tests.support.pci_reference`, which tries everything,
and crowded enough that much is refused.

=========================  =======================================================================
:func:`pci_devices`        what machines have: GPUs, NICs that are split into virtual functions or
                           vDPA devices, with and without tags and traits, next to a host cell, to
                           none, or to one that is not there; parts whose PF is not offered
:func:`pci_usages`         such devices, and consistent usage of them, with what waits
:func:`pci_amounts`        any amounts, not assigned
:func:`pci_questions`      devices, usage, an amount and the host cells of who asks, or None:
                           mostly what just fits, or just does not
:func:`joint_questions`    host cells and a topology beside that
=========================  =======================================================================

Each takes its chances from a ``random.Random``: Hypothesis's or, in :func:`question_of` and
:func:`joint_question_of`, that of a seed. From a seed thousands can be tried; Hypothesis finds the
smallest one that fails.

    >>> question = question_of(5)
    >>> question == question_of(5), len(question.devices), question.amount.count
    (True, 4, 2)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from hypothesis import strategies as st

from resource_objects.resources.numa import (
    CellUsage,
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
)
from resource_objects.resources.pci import (
    Device,
    DeviceRequest,
    DeviceSpec,
    DeviceUse,
    PCIAmount,
    PCIInventory,
)
from tests.support.numa_strategies import question_of as numa_strategies_question_of

__all__ = [
    "JointQuestion",
    "PCIQuestion",
    "joint_question_of",
    "joint_questions",
    "pci_amounts",
    "pci_devices",
    "pci_questions",
    "pci_usages",
    "question_of",
]


_T = TypeVar("_T")


class PCIQuestion(NamedTuple):
    """What is asked of which devices; and which host cells who asks has, of those there are."""

    devices: tuple[Device, ...]
    usage: tuple[DeviceUse, ...]
    amount: PCIAmount
    chosen: tuple[int, ...] | None
    #: the socket of every host cell
    sockets: dict[int, int | None]

    def inventory(self) -> PCIInventory:
        """Return the devices with their usage, as an inventory of its own."""
        return PCIInventory(self.devices, usage=self.usage)


class JointQuestion(NamedTuple):
    """What is asked of the cells and of the devices of one host."""

    cells: NUMATopologyInventory
    topology: NUMATopologyAmount
    devices: tuple[Device, ...]
    usage: tuple[DeviceUse, ...]
    amount: PCIAmount

    def inventory(self) -> PCIInventory:
        """Return the devices with their usage, as an inventory of its own."""
        return PCIInventory(self.devices, usage=self.usage)


def pci_devices(*, max_groups: int = 4) -> st.SearchStrategy[tuple[Device, ...]]:
    """Return devices, by address; a group is a device, or a PF with what was split off it."""
    return _by_chance(lambda chance: _devices(chance, _cells(chance), max_groups))


def pci_usages(
    *, max_groups: int = 4
) -> st.SearchStrategy[tuple[tuple[Device, ...], tuple[DeviceUse, ...]]]:
    """Return devices, and consistent usage of them."""

    def both(chance: random.Random) -> tuple[tuple[Device, ...], tuple[DeviceUse, ...]]:
        devices = _devices(chance, _cells(chance), max_groups)
        return devices, _usage(chance, devices)

    return _by_chance(both)


def pci_amounts(*, max_requests: int = 3) -> st.SearchStrategy[PCIAmount]:
    """Return amounts of any kind, not assigned."""
    return _by_chance(
        lambda chance: PCIAmount(
            [_any_request(chance) for _ in range(chance.randint(1, max_requests))]
        )
    )


def pci_questions(*, max_groups: int = 4, max_requests: int = 3) -> st.SearchStrategy[PCIQuestion]:
    """Return devices, usage, an amount made from what is there, and host cells or None."""
    return _by_chance(lambda chance: _question(chance, max_groups, max_requests))


def question_of(seed: int, *, max_groups: int = 4, max_requests: int = 3) -> PCIQuestion:
    """Return the question of a seed: always the same one."""
    return _question(random.Random(seed), max_groups, max_requests)


def joint_questions(*, max_cells: int = 4) -> st.SearchStrategy[JointQuestion]:
    """Return host cells and devices next to them, and what is asked of both."""
    return _by_chance(lambda chance: _joint_question(chance, max_cells))


def joint_question_of(seed: int, *, max_cells: int = 4) -> JointQuestion:
    """Return the question of a seed about both: always the same one."""
    return _joint_question(random.Random(seed), max_cells)


def _by_chance(make: Callable[[random.Random], _T]) -> st.SearchStrategy[_T]:
    return st.randoms(use_true_random=False).map(make)


def _once_in(chance: random.Random, times: int) -> bool:
    """Return True seldom; the smallest example is False."""
    return chance.randrange(times) == times - 1


# --- devices --------------------------------------------------------------------------------------

_TRAITS = ["CUSTOM_FAST", "CUSTOM_QUIET"]
_NETWORKS = ["red", "blue", '["red", "blue"]']
#: Vendor, product, class code and whether it has a class of its own.
_PLAIN = [
    ("10de", "2330", "030200", "PGPU"),
    ("10de", "2330", "030200", None),
    ("10de", "1db4", "030200", None),
    ("144d", "a80a", "010802", None),
]
#: The ids of a PF, and of what is split off it.
_SPLIT = [("8086", "1572", "154c"), ("15b3", "1017", "1018")]


def _cells(chance: random.Random) -> dict[int, int | None]:
    """Return the socket of each host cell; seldom it is not known."""
    count = chance.randint(1, 4)
    knows = not _once_in(chance, 6)
    ids = sorted(chance.sample(range(8), count)) if _once_in(chance, 4) else range(count)
    return {
        cell: number * 2 // count if knows or _once_in(chance, 2) else None
        for number, cell in enumerate(ids)
    }


def _node(chance: random.Random, cells: Iterable[int]) -> int | None:
    """Return the cell a device is next to: none is known, or it is not there, but seldom."""
    if _once_in(chance, 5):
        return None
    return 9 if _once_in(chance, 20) else chance.choice([*cells])


def _devices(chance: random.Random, cells: Iterable[int], max_groups: int) -> tuple[Device, ...]:
    results: list[Device] = []
    ids = [*cells]
    has_providers = _once_in(chance, 8)
    for bus in range(1, 1 + chance.randint(1, max_groups)):
        node = _node(chance, ids)
        if _once_in(chance, 2) and len(results) < 8:
            results += _split(chance, bus, node)
        else:
            for slot in range(chance.choice([1, 1, 2, 3])):
                results.append(_plain(chance, f"0000:{bus:02x}:{slot:02x}.0", node))
    if has_providers:
        results = [item.replace(facts={"rp_uuid": f"rp-{item.address[5:7]}"}) for item in results]
    chance.shuffle(results)
    return tuple(results)


def _plain(chance: random.Random, address: str, node: int | None) -> Device:
    vendor, product, class_code, resource_class = chance.choice(_PLAIN)
    return Device(
        address,
        vendor,
        product,
        resource_class=resource_class,
        class_code=class_code if not _once_in(chance, 4) else "",
        numa_node=node,
        tags=_tags(chance),
        traits=_traits(chance),
        remote_managed=_once_in(chance, 12),
        live_migratable=_migrates(chance),
        one_time_use=_once_in(chance, 6),
    )


def _split(chance: random.Random, bus: int, node: int | None) -> list[Device]:
    """Return a PF with its parts; or these alone, for it is not offered."""
    vendor, product, part = chance.choice(_SPLIT)
    full = f"0000:{bus:02x}:00.0"
    alike: dict[str, Any] = {
        "numa_node": (None if node else 0) if _once_in(chance, 16) else node,
        "tags": _tags(chance),
        "class_code": "020000",
    }
    kinds = ["type-VF", "vdpa"] if _once_in(chance, 12) else ["type-VF"]
    remote_managed = _once_in(chance, 12)
    parts = [
        Device(
            f"0000:{bus:02x}:02.{number}",
            vendor,
            part,
            chance.choice(kinds),
            parent=full,
            traits=_traits(chance) if _once_in(chance, 4) else (),
            remote_managed=remote_managed,
            live_migratable=_migrates(chance),
            **alike,
        )
        for number in range(chance.randint(0, 3))
    ]
    if parts and _once_in(chance, 6):
        return parts
    once = _once_in(chance, 8)
    facts = alike | {"numa_node": node}
    return [Device(full, vendor, product, "type-PF", one_time_use=once, **facts), *parts]


def _tags(chance: random.Random) -> dict[str, str]:
    return {"physical_network": chance.choice(_NETWORKS)} if _once_in(chance, 3) else {}


def _traits(chance: random.Random) -> set[str]:
    return {trait for trait in _TRAITS if _once_in(chance, 3)}


def _migrates(chance: random.Random) -> bool | None:
    return chance.choice([None, None, None, True, False])


# --- what is taken --------------------------------------------------------------------------------


def _usage(chance: random.Random, devices: Sequence[Device]) -> tuple[DeviceUse, ...]:
    """Return usage in which a PF is not taken together with one of its parts."""
    result: list[DeviceUse] = []
    taken: set[str | None] = set()
    times = chance.choice([3, 4, 8, 16])
    for device in sorted(devices, key=lambda item: item.address):
        parts = {item.address for item in devices if item.parent == device.address}
        if _once_in(chance, times) and not taken & {device.parent, *parts}:
            taken.add(device.address)
            result.append(_use(chance, device))
    chance.shuffle(result)
    return tuple(result)


def _use(chance: random.Random, device: Device) -> DeviceUse:
    if device.one_time_use and _once_in(chance, 3):
        return DeviceUse(device.address, "spent")
    if _once_in(chance, 6):
        return DeviceUse(device.address, "unavailable")
    state = chance.choice(["claimed", "allocated"])
    if _once_in(chance, 8):
        return DeviceUse(device.address, state, gone=True)
    return DeviceUse(device.address, state)


# --- what is asked --------------------------------------------------------------------------------

_AFFINITIES = ["legacy", "preferred", "required", "socket"]


def _question(chance: random.Random, max_groups: int, max_requests: int) -> PCIQuestion:
    sockets = _cells(chance)
    devices = _devices(chance, sockets, max_groups)
    usage = _usage(chance, devices)
    amount = _amount(chance, devices, usage, max_requests)
    return PCIQuestion(devices, usage, amount, _chosen(chance, devices, sockets), sockets)


def _chosen(
    chance: random.Random, devices: Sequence[Device], sockets: Iterable[int]
) -> tuple[int, ...] | None:
    """Return some of the host cells, mostly near to a device; None: there are none to be near."""
    if _once_in(chance, 3):
        return None
    ids = [*sockets]
    result = set(chance.sample(ids, chance.randint(1, len(ids))))
    result |= {chance.choice(devices).numa_node} & set(ids)  # type: ignore[arg-type]
    return tuple(sorted(result))


def _joint_question(chance: random.Random, max_cells: int) -> JointQuestion:
    cells, topology = (
        _any_topology(chance, max_cells) if _once_in(chance, 4) else _topology(chance, max_cells)
    )
    devices = _devices(chance, [cell.id for cell in cells.cells], 4)
    usage = _usage(chance, devices)
    return JointQuestion(cells, topology, devices, usage, _amount(chance, devices, usage, 3))


def _any_topology(
    chance: random.Random, max_cells: int
) -> tuple[NUMATopologyInventory, NUMATopologyAmount]:
    """Return cells and a topology of any kind, which mostly does not fit."""
    seed, guests = chance.randrange(2**32), max(1, max_cells - 1)
    request = numa_strategies_question_of(seed, max_cells=max_cells, max_guests=guests)
    return request.inventory, request.amount


def _topology(
    chance: random.Random, max_cells: int
) -> tuple[NUMATopologyInventory, NUMATopologyAmount]:
    """Return cells of a few CPUs, and a topology that mostly fits on some of them."""
    sockets = _cells(chance)
    ids = [*sockets][:max_cells]
    cells = NUMATopologyInventory(
        [HostCell(i, dedicated=range(4 * i, 4 * i + 4), socket=sockets[i]) for i in ids],
        usage=[
            CellUsage(i, pinned=range(4 * i, 4 * i + chance.randint(1, 4)))
            for i in ids
            if _once_in(chance, 3)
        ],
    )
    guests = chance.randint(1, len(ids))
    sizes = [chance.choice([1, 1, 2, 4]) for _ in range(guests)]
    first = [sum(sizes[:number]) for number in range(guests)]
    return cells, NUMATopologyAmount(
        [GuestCell(dedicated=range(at, at + size)) for at, size in zip(first, sizes, strict=True)],
        one_socket=_once_in(chance, 8),
    )


def _amount(
    chance: random.Random,
    devices: Sequence[Device],
    usage: Sequence[DeviceUse],
    max_requests: int,
) -> PCIAmount:
    """Return requests for devices that are there: mostly for free ones that are all different."""
    taken = {used.address for used in usage}
    free = [item for item in devices if not taken & {item.address, item.parent}] or list(devices)
    remaining = chance.sample(free, len(free))
    requests = []
    for _ in range(min(max_requests, chance.choice([1, 1, 2, 2, 3]))):
        if _once_in(chance, 24):
            requests.append(_any_request(chance))
            continue
        count = chance.choice([1, 1, 1, 2, 2, 3])
        expected = [remaining.pop() if remaining else chance.choice(free) for _ in range(count)]
        if _once_in(chance, 12):
            expected[0] = chance.choice(devices)
        for device in expected:
            remaining = [item for item in remaining if not _exclude(item, device)]
        requests.append(_request(chance, expected))
    return PCIAmount(requests)


def _exclude(item: Device, other: Device) -> bool:
    """Return whether nobody can have both: one was split off the other."""
    return item.parent == other.address or other.parent == item.address


def _request(chance: random.Random, expected: Sequence[Device]) -> DeviceRequest:
    """Return a request that each of some devices meets, were it alone; for as many of them."""
    first, *other_items = expected
    specs = [_spec(chance, first, may_name=len(expected) == 1)]
    for device in other_items:
        request = DeviceRequest(specs)
        if not request.matches(device) or _once_in(chance, 4):
            specs.append(_spec(chance, device, may_name=False))
    providers = [device.facts.get("rp_uuid") for device in expected]
    is_given = None not in providers and _once_in(chance, 2)
    return DeviceRequest(
        specs,
        len(expected),
        chance.choice(_AFFINITIES),
        requester=chance.choice([None, "port-1", "flavor"]),
        providers=[str(provider) for provider in providers] if is_given else [],
    )


def _spec(chance: random.Random, device: Device, *, may_name: bool) -> DeviceSpec:
    """Return an alternative that a device meets, by more words or by fewer."""
    how = chance.choice(["vendor_id", "resource_class", "product_id", "types", "address"])
    values = {"remote_managed": device.remote_managed, **_qualities(chance, device)}
    if how == "types" or device.type in ("type-PF", "vdpa"):
        values["types"] = [device.type]
    if how in ("vendor_id", "product_id", "types"):
        values["vendor_id"] = device.vendor_id
    if how in ("resource_class", "product_id") or (how == "address" and may_name):
        values[how] = getattr(device, how)
    return DeviceSpec(**values)


def _qualities(chance: random.Random, device: Device) -> dict[str, Any]:
    """Return what else somebody may say of a device, by chance."""
    tags = {name: _said(chance, value) for name, value in device.tags.items()}
    all_items = {
        "traits": sorted(device.traits)[:1],
        "tags": tags or {"physical_network": "null"},  # there is none
        "live_migratable": device.live_migratable,
        "class_code": device.class_code[:4],
    }
    times = {"traits": 4, "tags": 3, "live_migratable": 8, "class_code": 8}
    return {word: value for word, value in all_items.items() if _once_in(chance, times[word])}


def _said(chance: random.Random, value: str) -> str:
    """Return a tag as somebody asks for it: the case does not count, of a list some will do."""
    if value.startswith("[") and _once_in(chance, 2):
        return '["BLUE"]'
    return value.upper() if _once_in(chance, 3) else value


def _any_request(chance: random.Random) -> DeviceRequest:
    vendor, product, class_code, resource_class = chance.choice(_PLAIN)
    words: dict[str, Any] = {
        "resource_class": resource_class,
        "vendor_id": vendor,
        "product_id": product,
        "types": chance.choice([(), ("type-PCI",), ("type-VF", "vdpa"), ("type-PF",)]),
        "class_code": class_code[:2],
        "traits": _traits(chance),
        "tags": _tags(chance),
        "live_migratable": _migrates(chance),
    }
    specs = [
        DeviceSpec(**{word: value for word, value in words.items() if _once_in(chance, 3)})
        for _ in range(chance.choice([1, 1, 2, 3]))
    ]
    return DeviceRequest(specs, chance.randint(1, 3), chance.choice(_AFFINITIES))
