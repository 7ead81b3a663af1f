"""How devices are stored: each at a provider, as counts by class and a description.

A physical function and the functions split off it are one part: a provider named by the address of
the physical function. Any other device is a part of its own. The inventories of a part are counts,
one record for each class of its devices. An allocated device is a unit, by address. A physical
function uses up the functions split off it: a share within the provider declares this, and its
allocation names them too.

The description has the properties that no figure has: vendor, product, node, tags. Traits are those
of the provider: a trait added to it or removed from it is added to or removed from each device.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from resource_objects.exceptions import InvalidInput, InvalidInventory
from resource_objects.fields import FrozenDict
from resource_objects.resources.pci.device import (
    ALLOCATED,
    SPENT,
    UNAVAILABLE,
    Device,
    DeviceUse,
    check_devices,
)
from resource_objects.resources.pci.device_index import ReservedDevices
from resource_objects.resources.records import (
    InventoryRecord,
    StoredPart,
    allocated_units,
    changed_parts,
    parsed_description,
    part_record,
)

#: The reasons why a stored device is not allocatable: it was removed while allocated; it is spent.
_GONE, _SPENT = "gone", "spent"


def part_name(device: Device) -> str:
    """Return the name of the part that stores a device: its address, or that of its parent."""
    return device.parent or device.address


def by_part(devices: Iterable[Device]) -> dict[str, list[Device]]:
    """Return devices by the name of their part, in order."""
    parts: dict[str, list[Device]] = {}
    for device in devices:
        parts.setdefault(part_name(device), []).append(device)
    return parts


# --- devices to records ---------------------------------------------------------------------------


def _reserved_because(use: DeviceUse | None) -> str | None:
    if use is None:
        return None
    return _GONE if use.gone else _SPENT if use.state == SPENT else None


def uses_within(devices: Sequence[Device]) -> tuple[tuple[str, int, str], ...]:
    """Return how physical functions use up their parts.

    An entry is ``(class of the function, number of its parts, class of the parts)``.
    """
    counts = Counter(device.resource_class for device in devices if device.is_part)
    return tuple(
        (device.resource_class, count, name)
        for device in devices
        if device.can_be_split
        for name, count in counts.items()
        if name != device.resource_class
    )


def to_records(
    devices: Sequence[Device], usage: Iterable[DeviceUse]
) -> tuple[InventoryRecord, ...]:
    """Return the figures of the devices of one part.

    :raises InvalidInventory: if they are of several parts; or if a physical function has the class
        of a function split off it
    """
    names = sorted(by_part(devices))
    if len(names) != 1:
        raise InvalidInventory(
            "devices of one provider", names, "one device, or functions of one: parts() has each"
        )
    cards = {device.resource_class for device in devices if device.can_be_split}
    both = cards.intersection(device.resource_class for device in devices if device.is_part)
    if both:
        raise InvalidInventory(
            f"class of {names[0]}", sorted(both), "another one than that of functions split off it"
        )
    uses = {use.address: use for use in usage}
    totals: Counter[str] = Counter()
    reserved: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for device in devices:
        use = uses.get(device.address)
        totals[device.resource_class] += 1
        if use is not None and use.is_held:
            used[device.resource_class] += 1
        elif _reserved_because(use):
            reserved[device.resource_class] += 1
    return tuple(
        part_record(name, total, reserved=reserved[name], used=used[name])
        for name, total in totals.items()
    )


def describe(devices: Iterable[Device], usage: Iterable[DeviceUse]) -> str:
    """Return the properties of devices that figures lack, as JSON; equal for equal devices."""
    uses = {use.address: use for use in usage}
    entries = []
    for device in devices:
        entry: dict[str, Any] = {}
        for name in Device.fields:
            value = getattr(device, name)
            if isinstance(value, Mapping | frozenset):
                value = dict(value) if isinstance(value, Mapping) else sorted(value)
            is_unset = value is None or value in ("", {}, [])
            is_no = value is False and name != "live_migratable"
            if not (is_unset or is_no or (name == "writes_before" and not value)):
                entry[name] = value
        reason = _reserved_because(uses.get(device.address))
        entries.append({**entry, "withheld": reason} if reason else entry)
    return json.dumps(entries)


@functools.lru_cache(maxsize=4096)  # hosts are read often
def _parse(description: str | None) -> tuple[tuple[Device, ...], Mapping[str, str]]:
    """Return the devices of a description, and why some of them are not allocatable."""
    reserved: dict[str, str] = {}
    devices: list[Device] = []
    with parsed_description("devices", description) as entries:
        for entry in entries:
            values = dict(entry)
            reason = values.pop("withheld", None)
            if reason not in (None, _GONE, _SPENT):
                raise ValueError(reason)
            devices.append(Device(**values))
            if reason is not None:
                reserved[devices[-1].address] = reason
        if len({device.address for device in devices}) != len(devices):
            raise ValueError("an address twice")
    return tuple(devices), reserved


def removed_of(description: str) -> dict[str, str]:
    """Return the class of each device of a description that was removed while allocated.

    Their allocations count, so they are not reserved. Cost: most descriptions are not parsed.
    """
    if f'"{_GONE}"' not in description:
        return {}
    try:
        devices, reserved = _parse(description)
    except InvalidInventory:
        return {}
    return {d.address: d.resource_class for d in devices if reserved.get(d.address) == _GONE}


def node_of(description: str) -> int | None:
    """Return the host cell that all devices of a description are next to, None if unknown."""
    try:
        nodes = {device.numa_node for device in _parse(description)[0]}
    except InvalidInventory:
        return None
    return nodes.pop() if len(nodes) == 1 else None


# --- devices from parts ---------------------------------------------------------------------------


class StoredDevices(NamedTuple):
    """Devices as they are stored, with their use."""

    devices: Sequence[Device]
    usage: Sequence[DeviceUse]
    reserved: ReservedDevices


def from_parts(parts: Sequence[StoredPart]) -> StoredDevices:
    """Return the devices of stored parts, and their use.

    An allocation that names no device counts as one of the last free ones. A device that was
    allocated while another part stored it is allocated, whichever part stores it now.

    :raises InvalidInventory: if a description is invalid, or contradicts its records; or if several
        parts store functions of one card
    """
    devices: list[Device] = []
    usage: list[DeviceUse] = []
    names: set[str] = set()
    allocated = allocated_units(parts)
    spare: dict[tuple[str, str], int] = {}
    shared: set[tuple[str, str]] = set()
    for limited in parts:
        part = limited.without_limit or limited
        members, reserved = _parse(part.description)
        if part is limited and not reserved and _is_idle_device(part, members, allocated):
            name = part_name(members[0])
            if name not in names:
                names.add(name)
                devices.append(members[0])
                continue
        part_names = set(map(part_name, members))
        if len(part_names) != 1 or part_names & names:
            raise InvalidInventory(
                "devices of a provider",
                sorted(part_names),
                "functions of one card, stored by one provider",
            )
        names |= part_names
        devices += _devices_of(part, members)
        uses = _uses_of(part, members, reserved, allocated)
        usage += uses.values()
        if part is not limited:
            # a limit on the class itself changes its record; another one is on a class it uses up
            own_limit = {record.resource_class for record in {*limited.records} - {*part.records}}
            free = Counter(item.resource_class for item in members if _is_free(item, uses))
            for name, count in free.items():
                spare_count = count - _count_left(limited, name, count)
                if spare_count:
                    spare[part_name(members[0]), name] = spare_count
                    if name not in own_limit:
                        shared.add((part_name(members[0]), name))
    disabled = frozenset[str]().union(*(part.unavailable for part in parts if part.unavailable))
    reserved_devices = ReservedDevices(disabled, FrozenDict(spare), frozenset(shared))
    return StoredDevices(devices, usage, reserved_devices)


def _devices_of(part: StoredPart, devices: Sequence[Device]) -> Sequence[Device]:
    """Return the devices of a part with the traits of its provider.

    :raises InvalidInventory: if they contradict the records
    """
    counts = Counter(device.resource_class for device in devices)
    totals = {record.resource_class: record.total for record in part.records}
    if any(totals.get(name) != count for name, count in counts.items()):
        raise InvalidInventory(
            f"figures of {devices[0].address}", totals, f"the described devices: {dict(counts)}"
        )
    described = frozenset[str]().union(*(device.traits for device in devices))
    if part.traits is None or part.traits == described:
        return devices
    added = part.traits - described
    return [d.replace(traits=(d.traits & part.traits) | added) for d in devices]


def changed_uses(
    before: Sequence[StoredPart], parts: Sequence[StoredPart]
) -> dict[str, DeviceUse | None] | None:
    """Return the use of each device of the parts that changed, None for a free device.

    The result is None if the devices contradict each other now, or if a unit was allocated or
    released that is not a device of these parts: another part may store it.
    """
    changed, units = changed_parts(before, parts)
    result: dict[str, DeviceUse | None] = {}
    allocated = allocated_units(parts) if changed else frozenset[str]()
    stored: set[str | None] = set()
    for place in changed:
        members, reserved = _parse(parts[place].description)
        uses = _uses_of(parts[place], members, reserved, allocated)
        for device in members:
            result[device.address] = uses.get(device.address)
            stored.update((device.address, device.parent))
        try:
            check_devices(members, tuple(uses.values()))
        except InvalidInput:
            return None
    return result if units <= stored else None


def _is_idle_device(
    part: StoredPart, devices: Sequence[Device], allocated: Collection[str]
) -> bool:
    """Return whether a part is one free device, as most are: a fast path of :func:`from_parts`."""
    if len(devices) != 1 or len(part.records) != 1 or devices[0].can_be_split:
        return False
    device, record = devices[0], part.records[0]
    return (
        record.resource_class == device.resource_class
        and record.total == 1
        and record.capacity - record.used >= 1
        and part.left_by_shares.get(record.resource_class, 1) >= 1
        and (part.traits is None or part.traits == device.traits)
        and device.address not in allocated
        and device.parent not in allocated
        and device.address not in part.unavailable
    )


def _uses_of(
    part: StoredPart,
    devices: Sequence[Device],
    reserved: Mapping[str, str],
    allocated: Collection[str],
) -> dict[str, DeviceUse]:
    """Return the use of the devices of a part, by address.

    :param reserved: why devices are not allocatable after a release, by address
    :param allocated: the allocated units of all parts
    """
    uses: dict[str, DeviceUse] = {}
    for device in devices:
        address = device.address
        if device.parent in allocated:
            continue  # it is a unit of the allocation of the physical function
        if address in allocated:  # a device for one use is spent by the allocation
            gone = address in reserved and not device.one_time_use
            uses[address] = _device_use(address, ALLOCATED, gone)
        elif address in reserved:
            uses[address] = _device_use(address, SPENT)
        elif address in part.unavailable:
            uses[address] = _device_use(address, UNAVAILABLE)
    cards = [device for device in devices if device.can_be_split]
    used = {record.resource_class for record in part.records if record.used > 0}
    for device in cards:
        if device.address not in uses and device.resource_class in used:
            is_split = any(use.is_held for use in uses.values())  # functions are allocated by name
            state = UNAVAILABLE if is_split else ALLOCATED
            uses[device.address] = _device_use(device.address, state)
    # Allocations that name no device use up the last free ones; so do shares of other classes.
    parts = [device for device in devices if not device.can_be_split]
    for name in dict.fromkeys(device.resource_class for device in (*parts, *cards)):
        free = [d.address for d in devices if d.resource_class == name and _is_free(d, uses)]
        for address in free[max(0, _count_left(part, name, len(free))) :]:
            uses[address] = _device_use(address, UNAVAILABLE)
    return uses


@functools.lru_cache(maxsize=4096)  # values, of a few thousand devices
def _device_use(address: str, state: str, gone: bool = False) -> DeviceUse:
    return DeviceUse(address, state, gone=gone)


def _count_left(part: StoredPart, name: str, free: int) -> int:
    """Return the number of free devices of a class after the figures; negative if overused."""
    figures = (r.capacity - r.used for r in part.records if r.resource_class == name)
    return min(*figures, part.left_by_shares.get(name, free), free)


def _is_free(device: Device, uses: Mapping[str, DeviceUse]) -> bool:
    """Return whether neither a device of a part is used nor a device that it excludes."""
    if device.address in uses:
        return False
    if device.can_be_split:
        return not uses
    card_use = uses.get(device.parent or "")
    return card_use is None or card_use.state == UNAVAILABLE
