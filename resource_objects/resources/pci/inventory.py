"""The inventory of the PCI devices of a host: devices, their use, and the decisions on them."""

from __future__ import annotations

import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from resource_objects import base, fields
from resource_objects.exceptions import (
    CapacityException,
    ForeignAmount,
    InvalidInput,
    InvalidInventory,
)
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import abstract
from resource_objects.resources.context import (
    ANYWHERE,
    AffinityConstraint,
    CellMap,
    ChosenCells,
    Context,
)
from resource_objects.resources.pci import storage
from resource_objects.resources.pci.affinity import AssignedDevices, RequestedDevices
from resource_objects.resources.pci.amount import (
    DeviceRequest,
    PCIAmount,
    PlacedDevice,
    devices,
    require_devices,
)
from resource_objects.resources.pci.device import (
    ALLOCATED,
    CLAIMED,
    MAX_DEVICES,
    SPENT,
    UNAVAILABLE,
    Device,
    DeviceUse,
    check_devices,
    listed,
    parse_address,
    retain_allocated,
)
from resource_objects.resources.pci.device_index import (
    NOTHING_RESERVED,
    DeviceGroup,
    DeviceIndex,
    ReservedDevices,
)
from resource_objects.resources.pci.fit import (
    ANY_CLASS,
    affinity_tier,
    assign_devices,
    limit_reasons,
    match_requests,
    may_meet_all,
    with_devices,
)
from resource_objects.resources.placed import (
    HasAffinity,
    HasNamedUnits,
    PartialRequest,
    PlacedInventory,
)
from resource_objects.resources.records import (
    AmountRecord,
    InventoryPart,
    InventoryRecord,
    StoredPart,
    allocation_records,
)

#: The rules that fail because devices are in use.
_RULES_OF_USE = frozenset({Rule.CAPACITY, Rule.LIMIT, Rule.AFFINITY, Rule.AT_ONCE})

_invalid_device = functools.partial(InvalidInput, "device")


class Rediscovery(NamedTuple):
    """The addresses that a discovery added to an inventory, removed from it, or changed."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    retained: tuple[str, ...]  #: not as discovered, until an allocated device is released


@base.register
class PCIInventory(HasNamedUnits, PlacedInventory[PCIAmount], HasAffinity, abstract.Inventory):
    """The PCI devices of a host, and the use of each.

    =============  =================================================================================
    ``devices``    the devices, each with its address
    ``usage``      the use of some of them; the states of their relatives follow and are not stored
    =============  =================================================================================

    :meth:`fit` is exact (:func:`~.fit.solve` describes which cases are hard, and then bounded). It
    prefers plain devices to devices with tags, and prefers to split few physical functions, request
    by request.
    :meth:`consume` claims devices; a negative amount releases them.

    >>> from resource_objects.resources.pci import devices
    >>> lab = PCIInventory([
    ...     Device("0000:3b:00.0", "10de", "2330", resource_class="PGPU"),
    ...     Device("0000:5e:00.0", "10de", "2330", resource_class="PGPU")])
    >>> assigned = lab.consume(devices("PGPU"))
    >>> assigned.addresses, lab.state("0000:3b:00.0"), lab.free
    (('0000:3b:00.0',), 'claimed', 1)
    >>> lab.consume(devices("PGPU", 2))
    Traceback (most recent call last):
    resource_objects.exceptions.CapacityException: PGPU requested 2, free 1 of 2
    >>> print(lab.consume(-assigned).is_negative, lab.free)
    True 2
    """

    # Version 1.0: Initial version
    VERSION = "1.0"
    REMOVED_FIELDS: ClassVar[Mapping[str, Any]] = {"pools": []}

    devices: fields.TupleFrom[Device] = fields.tuple_of("Device", default=(), kw_only=False)
    usage: fields.TupleFrom[DeviceUse] = fields.tuple_of("DeviceUse", default=())
    taken: fields.Coerced[tuple[PCIAmount, ...] | None, Iterable[PCIAmount] | None] = (
        fields.tuple_of("PCIAmount", default=None)
    )
    NOT_COMPARED = frozenset({"resource_class", "taken"})
    #: Devices that a ledger does not allocate; a copy has none.
    _reserved: ReservedDevices = NOTHING_RESERVED

    def _validate(self) -> None:
        check_devices(self.devices, self.usage)
        ordered = tuple(sorted(self.usage, key=lambda use: use.address))
        if ordered != self.usage:
            self._store("usage", ordered)
        self._after_copy()

    def _after_copy(self) -> None:
        self._built_index: DeviceIndex | None = None
        self._built_parts: tuple[list[list[Device]], dict[str, int]] | None = None
        self._undo: tuple[Any, ...] | None = None  # usage and taken before the last allocation

    @property
    def _index(self) -> DeviceIndex:
        """The index, built by the first decision: many inventories are only read."""
        if self._built_index is None:
            self._built_index = DeviceIndex(self.devices, self.usage, reserved=self._reserved)
        return self._built_index

    # --- figures ---

    @property
    def free(self) -> int:
        """The number of free devices; an unsplit physical function and its parts all count."""
        return sum(map(len, self._index.free))

    def free_groups(self) -> Iterator[tuple[DeviceGroup, Sequence[str]]]:
        """Yield groups of devices that differ in their addresses alone, with the free addresses."""
        yield from zip(self._index.groups, self._index.free, strict=True)

    def device(self, address: str) -> Device:
        """Return the device at an address.

        :raises InvalidInput: if there is none
        """
        device = self._index.devices.get(parse_address(address))
        if device is None:
            raise _invalid_device("device", address, "one of these")
        return device

    def state(self, address: str) -> str:
        """Return the state of a device: its own, or the one that follows from its relatives.

        :raises InvalidInput: if there is none at that address
        """
        return self._index.state(self.device(address).address)

    def states(self) -> Mapping[str, str]:
        """Return the state of every device by address."""
        index = self._index
        return {address: index.state(address) for address in sorted(index.devices)}

    # --- the decision ---

    def _fit(
        self, amount: abstract.Amount, limit: abstract.Amount | None, context: Context
    ) -> PCIAmount:
        """Return the assigned amount. Nothing changes.

        An assigned amount is checked as it is, and so is one that is released. Affinity is about
        the chosen host cells (``context.chosen``); without any it has no meaning.

        :param limit: devices have none
        :raises InvalidInput: for an amount of another kind, or a limit
        :raises ForeignAmount: if it is assigned to unknown devices, or to changed ones
        :raises CapacityException: with, for each request, the rule that failed and its figures
        :raises SearchLimitReached: if the budget ended before the answer was known

        Cost: 10 to 30 microseconds, and 2 for each group of matching devices.
        """
        amount = require_devices(amount)
        if limit is not None:
            raise InvalidInput(
                "kind of amount", "limit of devices", limit, "none: devices have no limit"
            )
        allowed = None if context.allowed is None else self._addresses(context.allowed)
        if amount.placed:
            _check_assigned(self._index, amount, context.chosen, allowed)
            return amount
        return assign_devices(self._index, amount, context.chosen, allowed)

    def _apply(self, assigned: abstract.Amount) -> None:
        amount = require_devices(assigned)
        self._undo = self.usage, self.taken
        uses: dict[str, DeviceUse | None] = {}
        for address in amount.addresses:
            if not amount.gives_back:
                uses[address] = DeviceUse._construct(address=address, state=CLAIMED, gone=False)
                continue
            use = self._index.uses.get(address)
            is_spent = self._index.devices[address].one_time_use or (use is not None and use.gone)
            uses[address] = DeviceUse(address, SPENT) if is_spent else None
        self._set_uses(uses)

    def _revert(self, assigned: abstract.Amount) -> None:
        """Undo :meth:`apply`, if nothing changed since."""
        if self._undo is not None:
            usage, taken = self._undo
            self._store("usage", usage)
            self._store("taken", taken)
            self._built_index = None

    def _set_uses(self, uses: Mapping[str, DeviceUse | None]) -> None:
        index = self._index
        index.set_uses(uses)
        self._store("usage", tuple(index.uses[address] for address in sorted(index.uses)))

    def _recorded_in_part(
        self, taken: tuple[PCIAmount, ...], assigned: PCIAmount
    ) -> tuple[PCIAmount, ...]:
        """Return the recorded amounts after one more: released devices are removed from them."""
        if not assigned.gives_back:
            return (*taken, assigned)
        released = set(assigned.addresses)
        amounts: list[PCIAmount] = []
        for amount in taken:
            matched = set() if amount.gives_back else released.intersection(amount.addresses)
            if matched != set(amount.addresses):
                amounts.append(amount.with_only(set(amount.addresses) - matched))
            released -= matched
        return (*amounts, assigned.with_only(released)) if released else tuple(amounts)

    def merged(self, several: Sequence[abstract.Amount]) -> PCIAmount | None:
        """Return one amount of several assigned ones, None if some allocate and some release."""
        amounts = [require_devices(amount) for amount in several]
        if len(amounts) == 1:
            return amounts[0]
        if any(amount.gives_back for amount in amounts):
            return None
        placed: list[PlacedDevice] = []
        count = 0
        for amount in amounts:
            placed += [device.replace(request=device.request + count) for device in amount.placed]
            count += len(amount.requests)
        requests = [request for amount in amounts for request in amount.requests]
        return PCIAmount(requests, placed=placed)

    def without_allocation(self, assigned: abstract.Amount) -> PCIInventory:
        """Return a copy in which assigned devices are free."""
        result: PCIInventory = self.obj_clone()
        result._reserved = self._reserved
        result._set_uses(
            dict.fromkeys(device.address for device in require_devices(assigned).placed)
        )
        return result

    # --- discovery ---

    def rediscover(self, devices: Iterable[Device]) -> Rediscovery:
        """Replace the devices by discovered ones, and return the changes.

        An allocated device stays as it was (:func:`~.device.retain_allocated`); the next call after
        its release changes or removes it. A removed device is not allocated again.

        :raises InvalidInput: for a repeated address; if devices contradict each other; nothing
            changed
        """
        discovered = listed(devices)
        if not isinstance(discovered, list):
            raise _invalid_device("devices", discovered, f"a list of at most {MAX_DEVICES}")
        for device in discovered:
            if not isinstance(device, Device):
                raise _invalid_device("device", device, "a Device")
        check_devices(discovered, ())
        before = {device.address: device for device in self.devices}
        allocated = {use.address: use for use in self.usage if use.is_held}
        retained = retain_allocated(discovered, self.devices, allocated)
        after = {address: retained.devices[address] for address in sorted(retained.devices)}
        uses = {use.address: use for use in self.usage if use.address in after}
        for address, device in after.items():
            if address in allocated:
                uses[address] = allocated[address].replace(gone=device.withdrawn)
            elif device.withdrawn:
                uses[address] = DeviceUse(address, SPENT)
            elif address in before and before[address].withdrawn:
                uses.pop(address, None)  # it was discovered again
        self.update(devices=tuple(after.values()), usage=tuple(uses.values()))
        changed = [at for at in after if at in before and after[at] != before[at]]
        return Rediscovery(
            added=tuple(at for at in after if at not in before),
            removed=tuple(sorted(before.keys() - after.keys())),
            changed=tuple(at for at in changed if at not in retained.reasons),
            retained=tuple(sorted(retained.reasons)),
        )

    # --- devices and host cells ---

    def affinity(
        self, amount: abstract.Amount, cells: CellMap, allowed: Collection[int] | None = None
    ) -> AffinityConstraint | None:
        """Return the constraint of devices on the choice of host cells; None if any will do.

        :param allowed: numbers of the parts that may be used, None for all
        """
        amount = require_devices(amount)
        if amount.gives_back:
            return None
        if amount.placed:
            return AssignedDevices(amount, cells)
        index = self._index.per_device() if amount.has_addresses else self._index
        addresses = None if allowed is None else self._addresses(allowed)
        return RequestedDevices(index, amount, cells, addresses)

    def device_counts(self) -> Mapping[int, int]:
        """Return the number of free devices of each host cell."""
        return self._index.counts_by_cell(enumerate(self._index.free))

    # --- storage ---

    @classmethod
    def from_storage(
        cls,
        parts: Sequence[StoredPart],
        resource_class: str,
        room: Mapping[str, int] | None = None,
        *,
        has_allocations: bool = True,
    ) -> Self:
        stored = storage.from_parts(parts)
        uses = [*stored.usage]
        if not has_allocations and (removed := storage.removed_of(parts[0].description or "")):
            uses = [use for use in uses if use.address not in removed]
            uses += [DeviceUse(address, ALLOCATED, gone=True) for address in sorted(removed)]
        try:
            result = cls(stored.devices, usage=uses, resource_class=resource_class)
        except InvalidInput as error:
            names = sorted(storage.by_part(stored.devices))
            raise InvalidInventory(
                "devices of providers", names, f"devices that agree with each other ({error})"
            ) from error
        if stored.reserved != NOTHING_RESERVED:
            object.__setattr__(result, "_reserved", stored.reserved)
        return result

    @classmethod
    def cell_of_description(cls, description: str) -> int | None:
        return storage.node_of(description)

    @classmethod
    def removed_of_description(cls, description: str) -> Mapping[str, str]:
        return storage.removed_of(description)

    def summary(self) -> str:
        counts = Counter(device.resource_class for device in self.devices)
        return "+".join(f"{count}*{name}" for name, count in counts.items()) or "none"

    def with_use(
        self, before: Sequence[StoredPart], parts: Sequence[StoredPart], room: Mapping[str, int]
    ) -> PCIInventory | None:
        changed = storage.changed_uses(before, parts)
        if changed is None:
            return None
        index = self._index.with_uses(changed)
        result = self._evolve(usage=tuple([index.uses[at] for at in sorted(index.uses)]))
        result._built_index, result._built_parts = index, self._divided
        return result

    def to_records(self) -> tuple[InventoryRecord, ...]:
        """Return the number of devices of each class, and how many of them are in use."""
        return storage.to_records(self.devices, self.usage)

    def describe(self) -> str:
        """Return the devices, as JSON."""
        return storage.describe(self.devices, self.usage)

    def to_allocations(
        self, assigned: abstract.Amount
    ) -> tuple[tuple[int, tuple[AmountRecord, ...]], ...]:
        """Return the allocations of an assigned amount, by the number of the part.

        :raises InvalidInput: if it is not assigned
        :raises ForeignAmount: if a device is not one of these
        """
        amount, part_of = require_devices(assigned), self._divided[1]
        by_part: dict[int, dict[str, list[PlacedDevice]]] = defaultdict(lambda: defaultdict(list))
        for address, device in zip(amount.addresses, amount.placed, strict=True):
            if address not in part_of:
                raise ForeignAmount("device", address, "one of these devices")
            by_part[part_of[address]][device.resource_class].append(device)
        return allocation_records(
            (
                (
                    number,
                    (
                        (name, len(placed), sorted(unit for d in placed for unit in d.units))
                        for name, placed in sorted(by_part[number].items())
                    ),
                )
                for number in sorted(by_part)
            ),
            is_negative=amount.gives_back,
        )

    def from_allocations(
        self,
        amount: abstract.Amount,
        allocations: Mapping[int, Sequence[AmountRecord]],
        context: Context = ANYWHERE,
    ) -> PCIAmount:
        """Return the assigned amount of stored allocations: the inverse of :meth:`to_allocations`.

        If there are more devices than requested, the first that meet the amount are used.

        :raises ForeignAmount: if the allocations do not meet ``amount``
        """
        request, index = require_devices(amount), self._index
        stored = itertools.chain.from_iterable(allocations.values())
        units = {unit for record in stored for unit in record.units}
        if request.placed and units == {unit for device in request.placed for unit in device.units}:
            return request
        unknown = sorted(units.difference(index.devices))
        if unknown:
            raise ForeignAmount("allocated devices", unknown, "some of these devices")
        devices = [index.devices[unit] for unit in sorted(units)]
        cards = [device for device in devices if device.parent not in units]
        requested = request.unassigned()
        assigned = match_requests(index, requested, cards, context.chosen)
        return with_devices(index, request, assigned)

    def in_use(self) -> tuple[tuple[str, tuple[AmountRecord, ...]], ...]:
        """Return each device in use by the name of its part, with the units of its allocation.

        An unavailable device is in use unless a relative of it is allocated.
        """
        index = self._index
        allocated = {use.address for use in self.usage if use.is_held}
        result: list[tuple[str, tuple[AmountRecord, ...]]] = []
        for use in self.usage:
            device = index.devices[use.address]
            relatives = {device.parent, *index.functions_of(device)}
            if use.is_held or (use.state == UNAVAILABLE and allocated.isdisjoint(relatives)):
                units = tuple(sorted(index.units_of(device)))
                record = AmountRecord(device.resource_class, 1, units)
                result.append((storage.part_name(device), (record,)))
        return tuple(result)

    # --- parts and units ---

    @property
    def _divided(self) -> tuple[list[list[Device]], dict[str, int]]:
        """The devices of each part, and the number of the part of each device, by address."""
        if self._built_parts is None:
            parts = list(storage.by_part(self.devices).values())
            numbers = {device.address: n for n, members in enumerate(parts) for device in members}
            self._built_parts = parts, numbers
        return self._built_parts

    def _addresses(self, ids: Collection[int]) -> frozenset[str]:
        parts = self._divided[0]
        return frozenset(
            device.address for number in ids if 0 <= number < len(parts) for device in parts[number]
        )

    def parts(self) -> tuple[InventoryPart, ...]:
        reserved = {use.address: use for use in self.usage if use.gone or use.state == SPENT}
        parts: list[InventoryPart] = []
        for members in self._divided[0]:
            usage = [reserved[d.address] for d in members if d.address in reserved]
            inventory = type(self)(members, usage=usage, resource_class=self.resource_class)
            traits = frozenset[str]().union(*(device.traits for device in members))
            name, uses = storage.part_name(members[0]), storage.uses_within(members)
            parts.append(InventoryPart(name, inventory, traits=traits, uses=uses))
        return tuple(parts)

    def part_ids(self) -> tuple[int, ...]:
        return tuple(range(len(self._divided[0])))

    def units(self, resource_class: str) -> frozenset[str]:
        return frozenset(d.address for d in self.devices if d.resource_class == resource_class)

    def units_elsewhere(self, resource_class: str) -> frozenset[str]:
        return frozenset(d.address for d in self.devices if d.resource_class != resource_class)

    def unit_count(self, resource_class: str, units: Collection[str]) -> int:
        return len(self.units(resource_class).intersection(units))

    def dependent_units(self, resource_class: str) -> Mapping[str, frozenset[str]]:
        return {
            device.address: frozenset(functions)
            for device in self.devices
            if device.resource_class == resource_class
            and (functions := self._index.functions_of(device))
        }

    def is_requested(self, amount: abstract.Amount, unit: str) -> bool:
        """Return whether a request matches a device, or the card that it is a part of."""
        by_address = self._index.devices
        if unit not in by_address or not isinstance(amount, PCIAmount):
            return True
        family = [by_address[at] for at in (unit, by_address[unit].parent) if at in by_address]
        return any(request.matches(device) for request in amount.requests for device in family)

    def may_provide_all(self, requested: Iterable[PartialRequest]) -> bool:
        partial: list[tuple[PCIAmount, Collection[str], int]] = []
        for name, value, parts, times in requested:
            amount = devices(name, value) if isinstance(value, int) else require_devices(value)
            partial.append((amount, self._addresses(parts), times))
        return may_meet_all(self._index, partial)

    def select_units(
        self, place: int, resource_class: str, count: int, taken: Collection[str] = ()
    ) -> tuple[str, ...] | None:
        """Return the units of ``count`` free devices of a class, None if there are fewer.

        Plain devices come before devices with tags, then the order is by address. The units of a
        physical function include the functions split off it.
        """
        index = self._index
        free = [
            device
            for device in self._divided[0][place]
            if device.resource_class == resource_class
            and index.is_free(device.address)
            and index.units_of(device).isdisjoint(taken)
        ]
        if len(free) < count:
            return None
        free.sort(key=lambda d: (index.groups[index.group_of[d.address]].cost, d.address))
        return tuple(sorted(unit for device in free[:count] for unit in index.units_of(device)))

    def symmetry_key(self, place: int) -> Hashable | None:
        """Return the devices of a part without their addresses.

        A part whose devices belong to a card of another part is equal to no other: None.
        """
        members = self._divided[0][place]
        addresses = {device.address for device in members}
        if any(device.parent is not None and device.parent not in addresses for device in members):
            return None
        names = [name for name in Device.fields if name not in ("address", "parent")]
        counts = Counter(tuple(getattr(device, name) for name in names) for device in members)
        return frozenset(counts.items())

    def blocking_units(
        self, amount: abstract.Amount, reason: Reason
    ) -> Mapping[int, Mapping[str, frozenset[str]]]:
        """Return the devices that a refused amount needs and cannot have, by part.

        Each is with the units in use: itself, or functions split off it if it is needed whole.
        """
        index, requests = self._index, require_devices(amount).requests
        if reason.rule is Rule.UNIT_TAKEN:
            needed = [index.devices[at] for at in (reason.unit,) if at in index.devices]
        elif reason.rule in _RULES_OF_USE:
            meant = [request for request in requests if _is_about(reason, request)]
            needed = [d for d in self.devices if any(request.matches(d) for request in meant)]
            if reason.rule is Rule.LIMIT:
                limited = {at: None for d in needed for at in index.devices_under_limit_of(d)}
                needed += [index.devices[address] for address in limited]
        else:
            return {}
        blocking: dict[int, dict[str, frozenset[str]]] = {}
        for device in needed:
            if units := index.blocking(device):
                blocking.setdefault(self._divided[1][device.address], {})[device.address] = units
        return blocking


def _is_about(reason: Reason, request: DeviceRequest) -> bool:
    if reason.rule is Rule.AT_ONCE:
        return reason.resource == ANY_CLASS
    name = request.resource_class
    is_class = reason.resource == (name or ANY_CLASS)
    if reason.rule is Rule.LIMIT and name is None:
        is_class = True  # the reason names the class of the limit
    return is_class and reason.unit in (None, request.kinds)


def _check_assigned(
    index: DeviceIndex,
    amount: PCIAmount,
    cells: ChosenCells | None,
    allowed: Collection[str] | None,
) -> None:
    """Raise unless an assigned amount can be allocated, or released, as it is.

    :raises ForeignAmount: if a device is unknown, or has changed
    :raises CapacityException: if a device is not free; if a device to be released is not allocated
    """
    for device in amount.placed:
        _check_same_device(index, amount, device)
    reasons = [
        Reason(Rule.USED_BELOW_ZERO, -1, 0, 0, device.resource_class, unit=device.address)
        for device in amount.placed
        if amount.gives_back and not _is_allocated(index, device.address)
    ]
    if not amount.gives_back:
        reasons += _reasons_against(index, amount, cells, allowed)
    if reasons:
        raise CapacityException(reasons)


def _is_allocated(index: DeviceIndex, address: str) -> bool:
    use = index.uses.get(address)
    return use is not None and use.is_held


def _reasons_against(
    index: DeviceIndex,
    amount: PCIAmount,
    cells: ChosenCells | None,
    allowed: Collection[str] | None,
) -> Iterator[Reason]:
    """Yield the reasons why assigned devices cannot be allocated."""
    assigned = {device.address for device in amount.placed}
    for device in amount.placed:
        is_free = index.is_free(device.address)
        if not is_free or index.devices[device.address].parent in assigned:
            yield Reason(Rule.UNIT_TAKEN, 1, 0, 1, device.resource_class, unit=device.address)
    for limit in index.limits():
        yield from limit_reasons(limit, limit.count_free(assigned))
    for number, request in enumerate(amount.requests):
        placed = [device for device in amount.placed if device.request == number]
        tiers = [affinity_tier(request.affinity, d.numa_node, cells) for d in placed]
        near = [tier for tier in tiers if tier is not None]
        if len(near) < len(placed):
            yield Reason(Rule.AFFINITY, len(placed), len(near), 0, placed[0].resource_class)
    for device in amount.placed if allowed is not None else ():
        if device.address not in (allowed or ()):
            yield Reason(Rule.FOREIGN, 1, 0, 0, device.resource_class, unit=device.address)


def _check_same_device(index: DeviceIndex, amount: PCIAmount, placed: PlacedDevice) -> None:
    device, address = index.devices.get(placed.address), placed.address
    if device is None:
        raise ForeignAmount("device", address, "one of these devices")
    if device.resource_class != placed.resource_class:
        raise ForeignAmount(f"device {address}", placed.resource_class, device.resource_class)
    if amount.gives_back:
        return
    if not amount.requests[placed.request].matches(device):
        expected = f"a device that matches {amount.unassigned()}"
        raise ForeignAmount(f"device {address}", str(device), expected)
    if placed.numa_node != device.numa_node:
        raise ForeignAmount(f"node of device {address}", placed.numa_node, str(device.numa_node))
    functions = index.functions_of(device)
    if placed.parts != functions:
        raise ForeignAmount(f"functions split off {address}", placed.parts, str(functions))
