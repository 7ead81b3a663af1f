"""An index of devices for decisions: groups of equal devices, free devices first.

Two devices are in one group if no request and no order of preference distinguishes them: they
differ in their addresses alone. The functions of one card are never in a group with those of
another card, because an allocation of the physical function excludes the functions split off it,
and the other way round.
"""

from __future__ import annotations

import bisect
import copy
import operator
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from resource_objects.fields import FrozenDict
from resource_objects.resources.pci.amount import DeviceRequest
from resource_objects.resources.pci.device import (
    ALLOCATED,
    AVAILABLE,
    CLAIMED,
    PARTS,
    PF,
    PROVIDER,
    SPENT,
    UNAVAILABLE,
    UNCLAIMABLE,
    Device,
    DeviceUse,
)

#: States in which a physical function excludes the functions split off it.
_WITH_PARTS = (CLAIMED, ALLOCATED, SPENT)
#: The number of different requests of which an index caches the groups.
_CACHED_REQUESTS = 256


class ReservedDevices(NamedTuple):
    """Devices that a ledger does not allocate although no consumer has them allocated."""

    #: the addresses of disabled devices
    disabled: frozenset[str] = frozenset()
    #: the number of free devices that a limit keeps free, by part and class; if more devices are
    #: used than the limit allows, it is larger than the number of free devices
    spare: Mapping[tuple[str, str], int] = FrozenDict()
    #: the keys of ``spare`` whose limit is one of a class that the devices use up
    shared: frozenset[tuple[str, str]] = frozenset()


#: All devices that are not allocated can be allocated.
NOTHING_RESERVED = ReservedDevices()


class DeviceLimit(NamedTuple):
    """A limit on the number of devices of one class, of one part, in use."""

    resource_class: str
    usable: frozenset[str]  #: allocatable devices if none were in use
    free: frozenset[str]
    limit: int
    is_shared: bool  #: the limit is one of a class that the devices use up

    @property
    def used(self) -> int:
        """The number of devices in use."""
        return len(self.usable) - len(self.free)

    @property
    def remaining(self) -> int:
        """The number of free devices that may still be allocated."""
        return max(0, self.limit - self.used)

    def count_free(self, addresses: Iterable[str]) -> int:
        """Return the number of free devices, of these, that the limit is on."""
        return sum(address in self.free for address in addresses)


class DeviceGroup:
    """A group of equal devices, with one of them as the example."""

    __slots__ = ("card", "cost", "device", "node", "provider")

    def __init__(self, device: Device) -> None:
        self.device = device
        self.node = device.numa_node
        self.provider = device.facts.get(PROVIDER)
        #: the physical function that the group belongs to, if it does
        self.card = _card(device)
        self.cost = len(device.tags) + device.one_time_use  #: plain devices are allocated first


class DeviceIndex:
    """Devices with their use, by group.

    ==============  ================================================================================
    ``devices``     the devices, by address
    ``uses``        the stored use of devices, by address
    ``functions``   the functions split off a device, by its address
    ``groups``      the groups, by number; ``group_of`` is the number of the group of each address
    ``free``        the addresses of the free devices of each group, ascending
    ``parts``       the groups of functions split off a group of physical functions, by number
    ``card_of``     the group of the physical function that a group was split off, by number
    ==============  ================================================================================
    """

    def __init__(
        self,
        devices: Iterable[Device],
        uses: Iterable[DeviceUse],
        *,
        per_device: bool = False,
        reserved: ReservedDevices = NOTHING_RESERVED,
    ) -> None:
        """Index devices.

        :param per_device: whether each device is a group of its own, for requests with addresses
        :param reserved: devices that are not allocatable; ``uses`` has the disabled ones too
        """
        self.reserved = reserved
        self.devices = {device.address: device for device in devices}
        self.uses = {use.address: use for use in uses}
        self.functions: dict[str, list[str]] = defaultdict(list)
        for device in self.devices.values():
            if device.parent is not None:
                self.functions[device.parent].append(device.address)
        self.groups: list[DeviceGroup] = []
        self.group_of: dict[str, int] = {}
        self.free: list[list[str]] = []
        self._sizes: list[int] = []
        self._by_request: dict[tuple[Any, ...], tuple[int, ...]] = {}
        numbers: dict[Any, int] = {}
        for address in sorted(self.devices):
            device = self.devices[address]
            key: Any = address
            if not per_device:
                key = _GROUP_FIELDS(device), device.facts.get(PROVIDER), _card(device)
            number = numbers.setdefault(key, len(self.groups))
            if number == len(self.groups):
                self.groups.append(DeviceGroup(device))
                self.free.append([])
                self._sizes.append(0)
            self.group_of[address] = number
            self._sizes[number] += 1
            if self.state(address) == AVAILABLE:
                self.free[number].append(address)
        cards = {g.card: n for n, g in enumerate(self.groups) if g.device.type == PF}
        self.card_of: dict[int, int] = {
            number: cards[group.card]
            for number, group in enumerate(self.groups)
            if group.device.type in PARTS and group.card in cards
        }
        self.parts: dict[int, tuple[int, ...]] = {}
        for part, card in self.card_of.items():
            self.parts[card] = (*self.parts.get(card, ()), part)

    def per_device(self) -> DeviceIndex:
        """Return an index of the same devices with one group for each device."""
        return DeviceIndex(
            self.devices.values(), self.uses.values(), per_device=True, reserved=self.reserved
        )

    # --- requests and limits ---

    def groups_matching(self, request: DeviceRequest, provider: str | None) -> tuple[int, ...]:
        """Return the groups of devices that match a request, free or not.

        :param provider: the uuid of the provider that devices must be of, None for any
        """
        key = request.specs, provider
        numbers = self._by_request.get(key)
        if numbers is None:
            if len(self._by_request) >= _CACHED_REQUESTS:
                self._by_request = {}  # a new one: another thread may read the old one
            numbers = self._by_request[key] = tuple(
                number
                for number, group in enumerate(self.groups)
                if (provider is None or group.provider == provider)
                and request.matches(group.device)
            )
        return numbers

    def size(self, group: int) -> int:
        """Return the number of devices of a group, free or not."""
        return self._sizes[group]

    def counts_by_cell(self, free: Iterable[tuple[int, Sequence[str]]]) -> Mapping[int, int]:
        """Return the number of devices of each host cell, of the addresses of some groups."""
        counts: dict[int, int] = {}
        for group, addresses in free:
            node = self.groups[group].node
            if node is not None and addresses:
                counts[node] = counts.get(node, 0) + len(addresses)
        return counts

    def count_usable(self, groups: Collection[int], allowed: Collection[str] | None) -> int:
        """Return the number of devices of some groups that are allocatable unless in use.

        :param allowed: addresses that may be used, None for all
        """
        return sum(
            group in groups
            and (allowed is None or address in allowed)
            and not self._is_excluded(address)
            for address, group in self.group_of.items()
        )

    def limits(self) -> Sequence[DeviceLimit]:
        """Return the limits on devices; each device has one at most."""
        if not self.reserved.spare:
            return ()
        limits: list[DeviceLimit] = []
        for (part, name), spare in self.reserved.spare.items():
            usable = frozenset(
                address
                for address in self._devices_of(part, name)
                if not self._is_excluded(address)
            )
            free = frozenset(filter(self.is_free, usable))
            is_shared = (part, name) in self.reserved.shared
            limits.append(DeviceLimit(name, usable, free, len(usable) - spare, is_shared))
        return limits

    def devices_under_limit_of(self, device: Device) -> Sequence[str]:
        """Return the devices that have the same limit as a device; none if it has no limit."""
        part, name = device.parent or device.address, device.resource_class
        return self._devices_of(part, name) if (part, name) in self.reserved.spare else ()

    def _devices_of(self, part: str, resource_class: str) -> list[str]:
        return [
            address
            for address in (part, *self.functions.get(part, ()))
            if address in self.devices and self.devices[address].resource_class == resource_class
        ]

    def _is_excluded(self, address: str) -> bool:
        """Return whether a device is not allocatable although it is not in use."""
        family = (address, *self.functions.get(address, ()))
        return any(
            self._is_spent(at) or at in self.reserved.disabled for at in family
        ) or self._is_spent(self.devices[address].parent)

    def _is_spent(self, address: str | None) -> bool:
        return address in self.uses and self.uses[address].state == SPENT

    # --- states ---

    def state(self, address: str) -> str:
        """Return the state of a device: its own, or the one that follows from its relatives.

        Source: Nova's ``PciDevice``: a claimed function makes those that it excludes unclaimable,
        an allocated function makes them unavailable.
        """
        use = self.uses.get(address)
        if use is not None:
            return use.state
        parent = self.devices[address].parent
        if parent is not None:
            card_use = self.uses.get(parent)
            if card_use is None or card_use.state not in _WITH_PARTS:
                return AVAILABLE
            return UNCLAIMABLE if card_use.state == CLAIMED else UNAVAILABLE
        parts = self.functions.get(address)
        if not parts:
            return AVAILABLE
        states = {self.uses[part].state for part in parts if part in self.uses}
        if not states:
            return AVAILABLE
        return UNCLAIMABLE if states == {CLAIMED} else UNAVAILABLE

    def is_free(self, address: str) -> bool:
        """Return whether a device could be allocated now."""
        return self.state(address) == AVAILABLE

    def functions_of(self, device: Device) -> tuple[str, ...]:
        """Return the addresses of the functions split off a physical function, ascending."""
        return tuple(sorted(self.functions.get(device.address, ()))) if device.type == PF else ()

    def units_of(self, device: Device) -> frozenset[str]:
        """Return the units of an allocation of a device: it, and the functions split off it."""
        return frozenset((device.address, *self.functions_of(device)))

    def blocking(self, device: Device) -> frozenset[str]:
        """Return the devices in use that keep a device from being allocated."""
        address = device.address
        parts = (part for part in self.functions.get(address, ()) if part in self.uses)
        is_used = address in self.uses or device.parent in self.uses
        return frozenset((address, *parts) if is_used else parts)

    def with_uses(self, uses: Mapping[str, DeviceUse | None]) -> DeviceIndex:
        """Return an index of the same devices with another use of some of them.

        Cost: proportional to the changes; the groups are shared with this index.
        """
        index = copy.copy(self)
        index.uses, index.free = dict(self.uses), list(self.free)
        index.set_uses({at: use for at, use in uses.items() if use != self.uses.get(at)})
        return index

    def set_uses(self, uses: Mapping[str, DeviceUse | None]) -> None:
        """Change the use of devices, None for none; the states of relatives follow."""
        changed: set[str] = set()
        for address, use in uses.items():
            if use is None:
                self.uses.pop(address, None)
            else:
                self.uses[address] = use
            if address in self.devices:
                parent = self.devices[address].parent or ""
                family = (address, parent, *self.functions.get(address, ()))
                changed.update(at for at in family if at in self.devices)
        for address in changed:
            group = self.group_of[address]
            free = self.free[group]  # not changed in place: another index may have the same list
            place = bisect.bisect_left(free, address)
            was_free = place < len(free) and free[place] == address
            if was_free != self.is_free(address):
                middle = [] if was_free else [address]
                self.free[group] = [*free[:place], *middle, *free[place + was_free :]]


_GROUP_FIELDS = operator.attrgetter(
    *("vendor_id", "product_id", "type", "resource_class", "class_code", "numa_node", "tags"),
    *("traits", "remote_managed", "live_migratable", "one_time_use"),
)


def _card(device: Device) -> str | None:
    return device.parent or (device.address if device.type == PF else None)
