"""How devices are kept: each by a provider, as counts by class and a description (D2, D3, D11).

A physical function and the functions split off it are one provider, named by its address; any
other device has its own. Its inventories are counts, one record per class of its devices; a device
that is taken is a unit, by address. A physical function uses up all functions split off it, by a
share within the provider, and its allocation names them too.

The description says what no figure does: vendor, product, node, tags. Traits are the provider's:
what is added to these is added to each of its devices, what is removed from them from all.
"""

from __future__ import annotations

import functools
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from resource_objects.exceptions import ForeignAmount, InvalidInput, InvalidInventory
from resource_objects.fields import FrozenDict
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.context import ChosenCells
from resource_objects.resources.parts import (
    allocations_of,
    part_record,
    reading,
    units_taken,
    used_otherwise,
)
from resource_objects.resources.pci.amount import DeviceRequest, PCIAmount, PlacedDevice
from resource_objects.resources.pci.device import (
    ALLOCATED,
    PF,
    SPENT,
    UNAVAILABLE,
    Device,
    DeviceUse,
)
from resource_objects.resources.pci.device_groups import Devices, Withheld
from resource_objects.resources.pci.fit import (
    ANY_CLASS,
    Flow,
    assigned,
    demands_of,
    lay,
    with_devices,
)
from resource_objects.resources.pci.usage import check_devices
from resource_objects.resources.records import AmountRecord, InventoryRecord, StoredPart

#: Why a device that is here is not given out: it is gone, or another by now; or it is spent.
_GONE, _SPENT = "gone", "spent"


def part_name(device: Device) -> str:
    """Return what the provider of a device is called: by its address, or its parent's."""
    return device.parent or device.address


def by_part(devices: Iterable[Device]) -> dict[str, list[Device]]:
    """Return devices by the provider that keeps them, in order."""
    found: dict[str, list[Device]] = {}
    for device in devices:
        found.setdefault(part_name(device), []).append(device)
    return found


# --- what is kept of an inventory -----------------------------------------------------------------


class DevicePart(NamedTuple):
    """What one provider keeps of devices."""

    name: str
    devices: Sequence[Device]
    usage: Sequence[DeviceUse]  #: why some are not given out: nothing of who holds them
    traits: frozenset[str]
    within: tuple[tuple[str, int, str], ...]


def split_parts(devices: Sequence[Device], usage: Iterable[DeviceUse]) -> Iterator[DevicePart]:
    """Yield what each provider keeps of devices, in order."""
    withheld = {use.address: use for use in usage if _withheld(use)}
    for name, own in by_part(devices).items():
        traits: frozenset[str] = frozenset().union(*(device.traits for device in own))
        uses = [withheld[device.address] for device in own if device.address in withheld]
        yield DevicePart(name, own, uses, traits, tuple(_within(own)))


def _withheld(use: DeviceUse) -> str | None:
    """Return why a device is not given out when it is free, None if it is."""
    if use.gone:
        return _GONE
    return _SPENT if use.state == SPENT else None


def _within(devices: Sequence[Device]) -> Iterator[tuple[str, int, str]]:
    """Yield what a physical function uses up of its provider."""
    counts = Counter(device.resource_class for device in devices if device.is_part)
    for device in devices:
        if device.can_be_split:
            for name, count in counts.items():
                if name != device.resource_class:
                    yield device.resource_class, count, name


def to_records(
    devices: Sequence[Device], usage: Iterable[DeviceUse]
) -> tuple[InventoryRecord, ...]:
    """Return the figures of the devices that one provider keeps.

    :raises InvalidInventory: if they are of several providers; or if a physical function is of the
        same class as functions split off it
    """
    _check_one(devices)
    uses = {use.address: use for use in usage}
    totals: Counter[str] = Counter()
    reserved: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for device in devices:
        use = uses.get(device.address)
        totals[device.resource_class] += 1
        if use is not None:
            used[device.resource_class] += use.is_held
            reserved[device.resource_class] += not use.is_held and _withheld(use) is not None
    return tuple(
        part_record(name, total, reserved=reserved[name], used=used[name])
        for name, total in totals.items()
    )


def _check_one(devices: Sequence[Device]) -> None:
    names = sorted(by_part(devices))
    if len(names) != 1:
        raise InvalidInventory(
            "devices of one provider", names, "one device, or functions of one: parts() has each"
        )
    whole = {device.resource_class for device in devices if device.can_be_split}
    both = whole.intersection(device.resource_class for device in devices if device.is_part)
    if both:
        raise InvalidInventory(
            f"class of {names[0]}", sorted(both), "another one than that of functions split off it"
        )


def describe(devices: Iterable[Device], usage: Iterable[DeviceUse]) -> str:
    """Return what the figures do not tell of the devices, as JSON; the same text for the same."""
    uses = {use.address: use for use in usage}
    return json.dumps([_said(device, uses.get(device.address)) for device in devices])


def _said(device: Device, use: DeviceUse | None) -> dict[str, Any]:
    said: dict[str, Any] = {
        "address": device.address,
        "vendor_id": device.vendor_id,
        "product_id": device.product_id,
        "type": device.type,
        "resource_class": device.resource_class,
        "class_code": device.class_code,
        "parent": device.parent,
        "numa_node": device.numa_node,
        "tags": dict(device.tags),
        "traits": sorted(device.traits),
        "remote_managed": device.remote_managed,
        "live_migratable": device.live_migratable,
        "one_time_use": device.one_time_use,
        "facts": dict(device.facts),
        "withdrawn": device.withdrawn,
        "writes_before": device.writes_before or None,
        "withheld": None if use is None else _withheld(use),
    }
    return {key: value for key, value in said.items() if not _is_default(key, value)}


def _is_default(key: str, value: object) -> bool:
    """Return whether a device says by saying nothing that something is so."""
    if key == "live_migratable":
        return value is None
    return value is None or value is False or value in ("", {}, [])


# --- and back -------------------------------------------------------------------------------------


class GatheredDevices(NamedTuple):
    """What an inventory over providers is made of."""

    devices: Sequence[Device]
    usage: Sequence[DeviceUse]
    withheld: Withheld


def from_parts(parts: Sequence[StoredPart]) -> GatheredDevices:
    """Return devices as they are kept, and what is used of them.

    Who took some without saying which has the last ones that are free, as far as anybody can tell.
    A device that was another part's when it was taken is taken, whichever keeps it now.

    :raises InvalidInventory: if a description is none, or does not go with its records, or devices
        of one function are kept by several providers
    """
    devices: list[Device] = []
    usage: list[DeviceUse] = []
    seen: set[str] = set()
    taken = units_taken(parts)
    out = frozenset[str]().union(*[part.unavailable for part in parts if part.unavailable])
    spare: dict[tuple[str, str], int] = {}
    shared: set[tuple[str, str]] = set()
    for limited in parts:
        part = limited.without_limit or limited
        own, withheld = _devices(part.description)
        is_plain = len(own) == 1 and not withheld and part is limited
        if is_plain and _is_idle(part, own[0], taken):
            name = part_name(own[0])
            if name not in seen:
                seen.add(name)
                devices.append(own[0])
                continue
        names = set(map(part_name, own))
        if len(names) != 1 or names & seen:
            raise InvalidInventory(
                "devices of a provider",
                sorted(names),
                "those of one function, kept by one provider",
            )
        seen |= names
        _check_figures(part, own)
        devices += _with_traits(own, part.traits)
        uses = _usage(part, own, dict(withheld), taken)
        usage += uses.values()
        if part is not limited:
            kept_back = dict(_spare(limited, own, uses))
            itself = {one.resource_class for one in {*limited.records} - {*part.records}}
            shared |= {key for key in kept_back if key[1] not in itself}
            spare |= kept_back
    return GatheredDevices(devices, usage, Withheld(out, FrozenDict(spare), frozenset(shared)))


def usage_changed(
    before: Sequence[StoredPart], parts: Sequence[StoredPart]
) -> dict[str, DeviceUse | None] | None:
    """Return what is used of each device of the parts that changed, None for nothing.

    None in all if they do not go together any more; or if a unit was taken, or given back, that is
    no device of these parts: it may be one of another.
    """
    changed, units = used_otherwise(before, parts)
    found: dict[str, DeviceUse | None] = {}
    taken = units_taken(parts) if changed else frozenset[str]()
    there: set[str | None] = set()
    for place in changed:
        part = parts[place]
        own, withheld = _devices(part.description)
        uses = _usage(part, own, dict(withheld), taken)
        for device in own:
            found[device.address] = uses.get(device.address)
            there.update((device.address, device.parent))
        try:
            check_devices(own, tuple(uses.values()))
        except InvalidInput:
            return None
    return found if units <= there else None


def _is_idle(part: StoredPart, device: Device, taken: Collection[str]) -> bool:
    """Return whether a part is one device of which nothing is used, as most are when one is taken.

    What is asked here in one look, the rest of :func:`from_parts` asks step by step.
    """
    if len(part.records) != 1 or device.can_be_split:
        return False
    record = part.records[0]
    return (
        record.resource_class == device.resource_class
        and record.total == 1
        and record.capacity - record.used >= 1
        and part.left_by_shares.get(record.resource_class, 1) >= 1
        and (part.traits is None or part.traits == device.traits)
        and device.address not in taken
        and device.parent not in taken
        and device.address not in part.unavailable
    )


@functools.lru_cache(maxsize=4096)  # hosts are read often
def _devices(description: str | None) -> tuple[tuple[Device, ...], tuple[tuple[str, str], ...]]:
    """Return the devices of a description, and why some are not given out."""
    withheld: list[tuple[str, str]] = []
    devices: list[Device] = []
    with reading("devices", description) as entries:
        for entry in entries:
            said = dict(entry)
            why = said.pop("withheld", None)
            if why not in (None, _GONE, _SPENT):
                raise ValueError(why)
            devices.append(Device(**said))
            if why is not None:
                withheld.append((devices[-1].address, why))
        if len({device.address for device in devices}) != len(devices):
            raise ValueError("an address twice")
    return tuple(devices), tuple(withheld)


def removed_of(description: str) -> dict[str, str]:
    """Return the class of each device of a description that was removed while allocated.

    Their allocations count, so they are not reserved. Cost: most descriptions are not parsed.
    """
    if f'"{_GONE}"' not in description:
        return {}
    try:
        devices, withheld = _devices(description)
    except InvalidInventory:
        return {}
    removed = {address for address, why in withheld if why == _GONE}
    return {one.address: one.resource_class for one in devices if one.address in removed}


def node_of(description: str) -> int | None:
    """Return the host cell that all devices of a description are next to, None if nobody says."""
    try:
        nodes = {device.numa_node for device in _devices(description)[0]}
    except InvalidInventory:
        return None
    return nodes.pop() if len(nodes) == 1 else None


def _check_figures(part: StoredPart, devices: Sequence[Device]) -> None:
    counts = Counter(device.resource_class for device in devices)
    totals = {record.resource_class: record.total for record in part.records}
    if any(totals.get(name) != count for name, count in counts.items()):
        raise InvalidInventory(
            f"figures of {devices[0].address}", totals, f"as many as described: {dict(counts)}"
        )


def _with_traits(devices: Sequence[Device], traits: frozenset[str] | None) -> Iterable[Device]:
    """Return devices with what was added to the traits of their provider, or removed from them."""
    said = frozenset[str]().union(*(device.traits for device in devices))
    if traits is None or traits == said:
        return devices
    added = traits - said
    return [device.replace(traits=(device.traits & traits) | added) for device in devices]


def _usage(
    part: StoredPart, devices: Sequence[Device], withheld: Mapping[str, str], taken: Collection[str]
) -> dict[str, DeviceUse]:
    """Return what is used of the devices of a part.

    :param taken: the units that somebody has, of whichever part they were when they were taken
    """
    uses: dict[str, DeviceUse] = {}
    for device in devices:
        address = device.address
        if device.parent in taken:  # it went with the whole function
            continue
        if address in taken:
            gone = address in withheld and not device.one_time_use  # else it is spent by now
            uses[address] = _use(address, ALLOCATED, gone)
        elif address in withheld:
            uses[address] = _use(address, SPENT)
        elif address in part.unavailable:
            uses[address] = _use(address, UNAVAILABLE)
    whole = [device for device in devices if device.can_be_split]
    for device in whole:
        if device.address not in uses and any(
            record.used > 0
            for record in part.records
            if record.resource_class == device.resource_class
        ):
            is_split = any(use.is_held for use in uses.values())  # somebody named its parts as it
            state = UNAVAILABLE if is_split else ALLOCATED
            uses[device.address] = _use(device.address, state)
    parts = [device for device in devices if not device.can_be_split]
    for name in dict.fromkeys(device.resource_class for device in (*parts, *whole)):
        for address in _used_up(part, name, devices, uses):
            uses[address] = _use(address, UNAVAILABLE)
    return uses


@functools.lru_cache(maxsize=4096)  # values, of a few thousand devices
def _use(address: str, state: str, gone: bool = False) -> DeviceUse:
    return DeviceUse(address, state, gone=gone)


def _used_up(
    part: StoredPart, name: str, devices: Sequence[Device], uses: Mapping[str, DeviceUse]
) -> Sequence[str]:
    """Return devices of a class that seem free and are not, as far as anybody can tell.

    Whoever took some did not say which, or something else has used them up: counts are guarded, so
    no more are given out than they leave.
    """
    free = [one.address for one in devices if one.resource_class == name and _is_free(one, uses)]
    return free[max(0, _left(part, name, len(free))) :]


def _spare(
    part: StoredPart, devices: Sequence[Device], uses: Mapping[str, DeviceUse]
) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield how many of the free devices of each class have to stay so, where some have.

    :param part: with what a limit holds back of it
    """
    free = Counter(one.resource_class for one in devices if _is_free(one, uses))
    for name, count in free.items():
        spare = count - _left(part, name, count)
        if spare:
            yield (part_name(devices[0]), name), spare


def _left(part: StoredPart, name: str, free: int) -> int:
    """Return how many of the free devices of a class its figures leave; less than none, too."""
    figures = (one.capacity - one.used for one in part.records if one.resource_class == name)
    return min(*figures, part.left_by_shares.get(name, free), free)


def _is_free(device: Device, uses: Mapping[str, DeviceUse]) -> bool:
    """Return whether nothing is used of a device of a part, nor of what it excludes."""
    if device.address in uses:
        return False
    if device.can_be_split:
        return not any(use.address != device.address for use in uses.values())
    above = uses.get(device.parent or "")
    return above is None or above.state == UNAVAILABLE


# --- what is kept of an amount --------------------------------------------------------------------


def to_allocations(
    places: Mapping[str, int], amount: PCIAmount
) -> tuple[tuple[int, tuple[AmountRecord, ...]], ...]:
    """Return what an assigned amount takes of each part, by the part's place.

    :param places: the place of the part of each device, by address
    :raises InvalidInput: if it does not say which devices
    :raises ForeignAmount: if one is not here
    """
    if not amount.placed:
        raise InvalidInput(
            "unassigned amount", "devices", str(amount), "assigned ones, as fit() returns"
        )
    taken: dict[int, list[PlacedDevice]] = defaultdict(list)
    for one in amount.placed:
        if one.address not in places:
            raise ForeignAmount("device", one.address, "one of these devices")
        taken[places[one.address]].append(one)
    return allocations_of(amount, ((place, _counts(taken[place])) for place in sorted(taken)))


def _counts(taken: Sequence[PlacedDevice]) -> Iterator[tuple[str, int, Iterable[str]]]:
    for name in sorted({device.resource_class for device in taken}):
        own = [device for device in taken if device.resource_class == name]
        yield name, len(own), sorted(unit for device in own for unit in device.units)


def in_use(
    shelf: Devices, usage: Iterable[DeviceUse]
) -> Iterator[tuple[str, tuple[AmountRecord, ...]]]:
    """Yield each device that somebody has, by the name of its part, with what goes with it.

    So is one that is unavailable, unless that is because of a relative of it that somebody has.
    """
    uses = list(usage)
    held = {use.address for use in uses if use.is_held}
    for use in uses:
        device = shelf.devices[use.address]
        relatives = {device.parent, *shelf.parts_of(device.address)}
        if use.is_held or (use.state == UNAVAILABLE and held.isdisjoint(relatives)):
            units = tuple(sorted(taken_with(shelf, device)))
            yield part_name(device), (AmountRecord(device.resource_class, 1, units),)


def from_allocations(
    shelf: Devices,
    amount: PCIAmount,
    held: Mapping[int, Sequence[AmountRecord]],
    where: ChosenCells | None,
) -> PCIAmount:
    """Return the assigned amount of which ``held`` is kept: :func:`to_allocations` undone.

    Of more devices than it asks for it has the first that meet it.

    :raises ForeignAmount: if ``amount`` cannot take that
    """
    known = shelf.devices
    units = {u for records in held.values() for record in records for u in record.units}
    if amount.placed and units == {u for one in amount.placed for u in one.units}:
        return amount
    unknown = sorted(units.difference(known))
    if unknown:
        raise ForeignAmount("devices that are held", unknown, "some of these devices")
    chosen = [known[unit] for unit in sorted(units) if known[unit].parent not in units]
    if len(chosen) > amount.count:
        chosen = some_of(amount.unassigned(), chosen, where)
    ours = assigned(shelf, amount.unassigned(), chosen, where)
    return with_devices(shelf, amount, ours)


# --- devices as units -----------------------------------------------------------------------------


#: The rules that fail because somebody has devices.
_BY_OTHERS = frozenset({Rule.CAPACITY, Rule.LIMIT, Rule.AFFINITY, Rule.AT_ONCE})


def some_units(
    shelf: Devices,
    devices: Sequence[Device],
    resource_class: str,
    count: int,
    taken: Collection[str],
) -> tuple[str, ...] | None:
    """Return units of so many devices of a class, None if so many are not free.

    Plain devices come before those with tags, then the order is by address. What goes with a
    physical function is among them.

    :param devices: those of one part
    :param taken: units that somebody else is going to have
    """
    free = [
        device
        for device in devices
        if device.resource_class == resource_class
        and shelf.is_free(device.address)
        and taken_with(shelf, device).isdisjoint(taken)
    ]
    if len(free) < count:
        return None
    free.sort(
        key=lambda device: (shelf.groups[shelf.group_of[device.address]].cost, device.address)
    )
    return tuple(sorted(unit for one in free[:count] for unit in taken_with(shelf, one)))


def taken_with(shelf: Devices, device: Device) -> frozenset[str]:
    """Return the units that whoever has a device has: itself, and functions split off it."""
    parts = shelf.parts_of(device.address) if device.type == PF else ()
    return frozenset((device.address, *parts))


def blocking_units(shelf: Devices, amount: PCIAmount, reason: Reason) -> dict[str, frozenset[str]]:
    """Return the devices that a refused amount would need and cannot have, with what is in the way.

    That is the device itself; of a function that is needed whole those that are split off it.
    """
    if reason.rule is Rule.UNIT_TAKEN:
        device = shelf.devices.get(reason.unit or "")
        return {} if device is None else _held_of(shelf, [device])
    if reason.rule not in _BY_OTHERS:
        return {}
    meant = [request for request in amount.requests if _is_about(reason, request)]
    every = [
        device
        for device in shelf.devices.values()
        if any(request.matches(device) for request in meant)
    ]
    if reason.rule is Rule.LIMIT:
        others = dict.fromkeys(one for device in every for one in shelf.beside(device))
        every += [shelf.devices[address] for address in others]
    return _held_of(shelf, every)


def _held_of(shelf: Devices, devices: Iterable[Device]) -> dict[str, frozenset[str]]:
    held = {device.address: frozenset(_held(shelf, device)) for device in devices}
    return {address: taken for address, taken in held.items() if taken}


def _is_about(reason: Reason, request: DeviceRequest) -> bool:
    if reason.rule is Rule.AT_ONCE:
        return reason.resource == ANY_CLASS
    kind, name = request.kinds, request.resource_class
    if reason.rule is Rule.LIMIT and name is None:
        return reason.unit in (None, kind)
    is_class = reason.resource == (name or ANY_CLASS)
    return is_class and reason.unit in (None, kind)


def _held(shelf: Devices, device: Device) -> Iterator[str]:
    """Yield what is held of a device: itself, or what it excludes."""
    address = device.address
    if address in shelf.uses or device.parent in shelf.uses:
        yield address
    yield from (part for part in shelf.split.get(address, ()) if part in shelf.uses)


def some_of(
    amount: PCIAmount, devices: Sequence[Device], where: ChosenCells | None
) -> list[Device]:
    """Return those of some devices that meet an amount, as many as it asks for, by address.

    :param devices: by address
    :raises ForeignAmount: if they do not meet it
    """
    own = Devices(devices, (), apart=True)
    problem = lay(own, demands_of(own, amount), where)
    flow = Flow(problem.counts, problem.may, dict.fromkeys(range(len(devices)), 1))
    if not flow.is_complete:
        shown = [device.address for device in devices]
        raise ForeignAmount("devices", shown, f"what {amount} takes")
    return [devices[group] for group in sorted({g for has in flow.given for g in has})]
