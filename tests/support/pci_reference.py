"""A naive matcher of PCI devices: obviously right, for small inputs only, kept for ever.

Written from the rules and nothing else: sets and :mod:`itertools`. It shares no code with the
decision (``resources/pci``), which is tested against it, and so can another one be.
:func:`has_assignment` tries everything; :func:`most` tells how many devices there are to be had at
once; :func:`faults` says what is wrong with one assignment, rule by rule; :func:`states` is the
table of states.

Whoever has no host cells is near to every device: ``chosen`` is then None. Else it is the ids of
the host cells that somebody has, and ``sockets`` the socket of every host cell there is.

What it costs grows with the subsets of the devices: ten devices and three requests are some
milliseconds, twenty are not meant.

    >>> from resource_objects.resources.pci import Device, DeviceUse, devices
    >>> gpus = [Device(f"0000:0{n}:00.0", "10de", "2330", numa_node=n) for n in range(3)]
    >>> asked = devices("10de:*", 2, affinity="required")
    >>> has_assignment(gpus, (), asked), has_assignment(gpus, (), asked, chosen=[1])
    (True, False)

:func:`choices` decides host cells and devices together. It knows the rules only through
:mod:`~tests.support.numa_reference` and what is above: a set of host cells will do if the guest
cells fit on exactly these and the devices can be had next to them.

    >>> from resource_objects.resources.numa import HostCell, NUMATopologyInventory, numa
    >>> host = NUMATopologyInventory([HostCell(0, dedicated=range(4)), HostCell(1, dedicated=[4])])
    >>> gpu = Device("0000:3b:00.0", "10de", "2330", numa_node=1)
    >>> list(choices(host, numa(dedicated=1), [gpu], (), devices("10de:*", affinity="required")))
    [(1,)]
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from resource_objects.resources.numa import (
    NUMATopologyAmount,
    NUMATopologyInventory,
    NUMATopologyLimit,
)
from resource_objects.resources.pci import (
    Device,
    DeviceRequest,
    DeviceSpec,
    DeviceUse,
    PCIAmount,
    PlacedDevice,
)
from tests.support.numa_reference import faults as numa_reference_faults
from tests.support.numa_reference import has_placement

__all__ = [
    "assignments",
    "choices",
    "faults",
    "fits_together",
    "has_assignment",
    "is_near",
    "joint_faults",
    "matches",
    "most",
    "sockets_of",
    "states",
]


#: For each request the devices it is given.
Assignment: TypeAlias = tuple[frozenset[str], ...]
_Sockets: TypeAlias = Mapping[int, int | None]


# --- does a device match (Nova's filters of pools, in their order) ---


def _spec_faults(spec: DeviceSpec, device: Device) -> Iterator[str]:
    """The words of one alternative: each that is said, has to hold."""
    values = {
        "resource_class": spec.resource_class,
        "vendor_id": spec.vendor_id,
        "product_id": spec.product_id,
        "address": spec.address,
    }
    for word, expected in values.items():
        if expected is not None and getattr(device, word) != expected:
            yield f"{word} is {getattr(device, word)}, not {expected}"
    if device.class_code[: len(spec.class_code)] != spec.class_code:
        yield f"class code is {device.class_code}, not {spec.class_code}"
    for trait in sorted(spec.traits - device.traits):
        yield f"no trait {trait}"
    for tag, expected in spec.tags.items():
        existing = device.tags.get(tag)
        if expected != "null" if existing is None else not _is_tag(existing, expected):
            yield f"tag {tag} is {device.tags.get(tag)}, not {expected}"
    yield from _type_faults(spec, device)


def _type_faults(spec: DeviceSpec, device: Device) -> Iterator[str]:
    """Kinds that only whoever asks for them gets: PFs, vDPA devices, those managed elsewhere."""
    if spec.types and device.type not in spec.types:
        yield f"type is {device.type}, none of {spec.types}"
    is_special = device.type in ("type-PF", "vdpa")
    if is_special and not spec.types and spec.resource_class is None:
        yield f"{device.type} was not asked for"
    if device.remote_managed is not spec.remote_managed:
        yield f"remote_managed is {device.remote_managed}"
    if spec.live_migratable is not None and device.live_migratable is not spec.live_migratable:
        yield f"live_migratable is {device.live_migratable}"


def _is_tag(has: str, expected: str) -> bool:
    has, expected = has.lower(), expected.lower()
    lists = [_list_of(has), _list_of(expected)]
    if has == expected or None in lists:
        return has == expected
    existing, request = lists
    return all(item in (existing or ()) for item in request or ())


def _list_of(text: str) -> list[object] | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, list) else None


def matches(request: DeviceRequest, device: Device) -> bool:
    """Return whether a device is of any of the kinds that a request names."""
    return any(not list(_spec_faults(spec, device)) for spec in request.specs)


# --- is it near enough ---


def is_near(
    affinity: str, node: int | None, chosen: Collection[int] | None, sockets: _Sockets | None = None
) -> bool:
    """Return whether a device next to ``node`` is near enough to the chosen host cells."""
    if chosen is None or affinity == "preferred" or node in chosen:
        return True
    if affinity == "legacy":
        return node is None
    if affinity == "required" or node is None:
        return False
    available = dict(sockets or {})
    if None in available.values() or node not in available:
        return False
    return available[node] in {available[cell] for cell in chosen if cell in available}


# --- what is taken, and what excludes what ---

#: States of a PF in which its parts are nobody's. What is used up in another way leaves them.
_WITH_PARTS = ("claimed", "allocated", "spent")


class _Host:
    """Devices, what is taken of them, and which host cells are chosen."""

    def __init__(
        self,
        devices: Iterable[Device],
        usage: Iterable[DeviceUse],
        chosen: Collection[int] | None,
        sockets: _Sockets | None,
    ) -> None:
        self.devices = {device.address: device for device in devices}
        self.own = {used.address: used.state for used in usage}
        self.chosen = chosen
        self.sockets = sockets

    def parts(self, address: str) -> set[str]:
        """Return the addresses of what was split off a device."""
        return {device.address for device in self.devices.values() if device.parent == address}

    def relatives(self, address: str) -> set[str]:
        """Return what a device excludes: a PF its parts, and a part its PF."""
        parent = self.devices[address].parent
        return self.parts(address) | ({parent} & self.devices.keys() if parent else set())

    def excluded(self, addresses: Iterable[str]) -> set[str]:
        """Return what nobody else can have once these are taken."""
        return {item for address in addresses for item in (address, *self.relatives(address))}

    def effects(self, address: str) -> set[str]:
        """Return the states of the taken devices that exclude one."""
        parent = self.devices[address].parent
        result = {self.own[part] for part in self.parts(address) if part in self.own}
        if parent in self.devices and self.own.get(parent) in _WITH_PARTS:
            result.add(self.own[parent])
        return result

    def state(self, address: str) -> str:
        """Return the state of a device: its own, or what those make of it that exclude it."""
        effects = self.effects(address)
        if address in self.own or not effects:
            return self.own.get(address, "available")
        return "unclaimable" if effects == {"claimed"} else "unavailable"

    def is_free(self, address: str) -> bool:
        """Return whether neither a device is taken nor what excludes it."""
        return address not in self.own and not self.effects(address)


class _Wish(NamedTuple):
    """So many devices of a request; of one provider, if somebody has chosen these."""

    request: DeviceRequest
    provider: str | None
    how_many: int

    def domain(self, host: _Host) -> list[str]:
        """Return the free devices that will do, if nobody else asks."""
        return [
            address
            for address, device in sorted(host.devices.items())
            if matches(self.request, device)
            and self.provider in (None, device.facts.get("rp_uuid"))
            and is_near(self.request.affinity, device.numa_node, host.chosen, host.sockets)
            and host.is_free(address)
        ]


def _wishes(request: DeviceRequest) -> list[_Wish]:
    if not request.providers:
        return [_Wish(request, None, request.count)]
    counts = sorted(Counter(request.providers).items())
    return [_Wish(request, provider, count) for provider, count in counts]


# --- trying everything ---


def _choices(
    host: _Host, wishes: Sequence[_Wish], removed: frozenset[str] = frozenset()
) -> Iterator[Assignment]:
    """Yield every choice of devices, so many for each wish, none of ``gone``."""
    if not wishes:
        yield ()
        return
    domain = [address for address in wishes[0].domain(host) if address not in removed]
    for chosen in itertools.combinations(domain, wishes[0].how_many):
        if any(host.relatives(address) & set(chosen) for address in chosen):
            continue
        for choice in _choices(host, wishes[1:], removed | host.excluded(chosen)):
            yield (frozenset(chosen), *choice)


def assignments(
    devices: Iterable[Device],
    usage: Iterable[DeviceUse],
    amount: PCIAmount,
    chosen: Collection[int] | None = None,
    sockets: _Sockets | None = None,
) -> Iterator[Assignment]:
    """Yield every choice of devices for the requests that the rules allow."""
    wishes = [_wishes(request) for request in amount.requests]
    result = _choices(_Host(devices, usage, chosen, sockets), [*itertools.chain(*wishes)])
    for item in result:
        remainder = iter(item)
        yield tuple(frozenset().union(*itertools.islice(remainder, len(its))) for its in wishes)


def has_assignment(
    devices: Iterable[Device],
    usage: Iterable[DeviceUse],
    amount: PCIAmount,
    chosen: Collection[int] | None = None,
    sockets: _Sockets | None = None,
) -> bool:
    """Return whether the rules allow any choice of devices. Cost: everything is tried."""
    return next(assignments(devices, usage, amount, chosen, sockets), None) is not None


def most(
    devices: Iterable[Device],
    usage: Iterable[DeviceUse],
    amount: PCIAmount,
    chosen: Collection[int] | None = None,
    sockets: _Sockets | None = None,
) -> int:
    """Return how many of the devices asked for can be had at once. Cost: everything is tried."""
    host = _Host(devices, usage, chosen, sockets)
    wishes = [wish for request in amount.requests for wish in _wishes(request)]
    ranges = [range(wish.how_many + 1) for wish in wishes]
    for counts in sorted(itertools.product(*ranges), key=sum, reverse=True):
        fewer = [wish._replace(how_many=count) for wish, count in zip(wishes, counts, strict=True)]
        if next(_choices(host, fewer), None) is not None:
            return sum(counts)
    raise AssertionError("no devices can always be had")


# --- judging one assignment ---


def faults(
    devices: Iterable[Device],
    usage: Iterable[DeviceUse],
    assigned: PCIAmount,
    chosen: Collection[int] | None = None,
    sockets: _Sockets | None = None,
) -> list[str]:
    """Return what is wrong with an assigned amount, nothing if it may be taken as it is."""
    host = _Host(devices, usage, chosen, sockets)
    counts = Counter(placed.request for placed in assigned.placed)
    results = [
        f"request {number} has {counts[number]} devices, not {request.count}"
        for number, request in enumerate(assigned.requests)
        if counts[number] != request.count
    ]
    for number, request in enumerate(assigned.requests):
        results += _provider_faults(host, number, request, assigned.placed)
    addresses = [placed.address for placed in assigned.placed]
    results += [f"{address} twice" for address, count in Counter(addresses).items() if count > 1]
    unknown = set(addresses) - host.devices.keys()
    if unknown:
        return [*results, f"no devices: {sorted(unknown)}"]
    for placed in assigned.placed:
        wrong = _placed_faults(host, assigned.requests[placed.request], placed, addresses)
        results += [f"request {placed.request}, {placed.address}: {fault}" for fault in wrong]
    return results


def _provider_faults(
    host: _Host, number: int, request: DeviceRequest, placed: Sequence[PlacedDevice]
) -> Iterator[str]:
    """Yield where a request does not have the devices of the providers it was given."""
    ours = [host.devices.get(item.address) for item in placed if item.request == number]
    has = Counter(device.facts.get("rp_uuid") for device in ours if device is not None)
    if request.providers and has != Counter(request.providers):
        yield f"request {number} has devices of {dict(has)}, not of {request.providers}"


def _placed_faults(
    host: _Host, request: DeviceRequest, placed: PlacedDevice, addresses: Collection[str]
) -> Iterator[str]:
    """Yield what is wrong with one device for one request."""
    device = host.devices[placed.address]
    if not matches(request, device):
        yield "is of no kind that was asked for"
    if not is_near(request.affinity, device.numa_node, host.chosen, host.sockets):
        yield f"node {device.numa_node} is not near {host.chosen} ({request.affinity})"
    if not host.is_free(placed.address):
        yield "is not free"
    if host.relatives(placed.address) & set(addresses):
        yield "is taken, and what it excludes too"
    if sorted(placed.parts) != sorted(host.parts(placed.address)):
        yield f"parts {placed.parts}, not {sorted(host.parts(placed.address))}"
    values = placed.resource_class, placed.numa_node
    if values != (device.resource_class, device.numa_node):
        yield f"is said to be {values}"


def states(devices: Iterable[Device], usage: Iterable[DeviceUse]) -> dict[str, str]:
    """Return the state of each device: its own, or what those make of it that exclude it."""
    host = _Host(devices, usage, None, None)
    return {address: host.state(address) for address in host.devices}


# --- cells and devices together ---


def sockets_of(inventory: NUMATopologyInventory) -> dict[int, int | None]:
    """Return the socket of every host cell, None where it is not known."""
    return {cell.id: cell.socket for cell in inventory.cells}


def choices(
    inventory: NUMATopologyInventory,
    topology: NUMATopologyAmount,
    devices: Iterable[Device],
    usage: Iterable[DeviceUse],
    request: PCIAmount,
    limit: NUMATopologyLimit | None = None,
    within: Collection[int] | None = None,
) -> Iterator[tuple[int, ...]]:
    """Yield every set of host cells on which both can be had, ascending."""
    existing, taken = list(devices), list(usage)
    ids = sorted(sockets_of(inventory) if within is None else within)
    for chosen in itertools.combinations(ids, len(topology.cells)):
        # guest cells are on host cells of their own: on so many, they are on all of them
        if has_placement(inventory, topology, limit, chosen) and has_assignment(
            existing, taken, request, chosen, sockets_of(inventory)
        ):
            yield chosen


def fits_together(
    inventory: NUMATopologyInventory,
    topology: NUMATopologyAmount,
    devices: Iterable[Device],
    usage: Iterable[DeviceUse],
    request: PCIAmount,
    limit: NUMATopologyLimit | None = None,
    within: Collection[int] | None = None,
) -> bool:
    """Return whether there are host cells for both. Cost: everything is tried."""
    result = choices(inventory, topology, devices, usage, request, limit, within)
    return next(result, None) is not None


def joint_faults(
    inventory: NUMATopologyInventory,
    topology: NUMATopologyAmount,
    devices: Iterable[Device],
    usage: Iterable[DeviceUse],
    request: PCIAmount,
    limit: NUMATopologyLimit | None = None,
) -> list[str]:
    """Return what is wrong with two assigned amounts, nothing if both may be taken as they are."""
    chosen = [placed.cell for placed in topology.placed]
    result = numa_reference_faults(inventory, topology, limit)
    return result + faults(devices, usage, request, chosen, sockets_of(inventory))
