"""The PCI devices of a host, what is taken of them, and who could have which: the inventory."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from resource_objects import base, exceptions, fields
from resource_objects.reasons import Reason
from resource_objects.resources import abstract
from resource_objects.resources.context import (
    ANYWHERE,
    AffinityConstraint,
    CellMap,
    Context,
)
from resource_objects.resources.pci import storage, usage
from resource_objects.resources.pci.affinity import AssignedDevices, RequestedDevices
from resource_objects.resources.pci.amount import PCIAmount, devices, given
from resource_objects.resources.pci.device import (
    ALLOCATED,
    MAX_DEVICES,
    PF,
    SPENT,
    Device,
    DeviceUse,
    listed,
    parse_address,
    retain_allocated,
)
from resource_objects.resources.pci.device_groups import (
    NOTHING_WITHHELD,
    Devices,
    Withheld,
)
from resource_objects.resources.pci.fit import (
    may_meet_all,
    names_addresses,
    place,
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
)

_invalid_device = functools.partial(exceptions.InvalidInput, "device")


class Rediscovery(NamedTuple):
    """The addresses that a discovery added to an inventory, removed from it, or changed."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    retained: tuple[str, ...]  #: not as discovered, until an allocated device is released


@base.register
class PCIInventory(HasNamedUnits, PlacedInventory[PCIAmount], HasAffinity, abstract.Inventory):
    """PCI devices, what is taken of each, and which would meet an amount.

    =============  =================================================================================
    ``devices``    the devices, each at its address
    ``usage``      what is taken of some of them; what follows for their relatives is not stated
    =============  =================================================================================

    :meth:`fit` finds devices whenever there are some (see :mod:`.divide` for what is hard, and
    then bounded), takes plain ones before those with tags and breaks as few physical functions as
    it can. :meth:`consume` claims them; a negative amount releases them.

    >>> from resource_objects.resources.pci import devices
    >>> lab = PCIInventory([
    ...     Device("0000:3b:00.0", "10de", "2330", resource_class="PGPU"),
    ...     Device("0000:5e:00.0", "10de", "2330", resource_class="PGPU")])
    >>> taken = lab.consume(devices("PGPU"))
    >>> taken.addresses, lab.state("0000:3b:00.0"), lab.free
    (('0000:3b:00.0',), 'claimed', 1)
    >>> lab.consume(devices("PGPU", 2))
    Traceback (most recent call last):
    resource_objects.exceptions.CapacityException: PGPU requested 2, free 1 of 2
    >>> print(lab.consume(-taken).is_negative, lab.free)
    True 2
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    devices: fields.TupleFrom[Device] = fields.tuple_of("Device", default=(), kw_only=False)
    usage: fields.TupleFrom[DeviceUse] = fields.tuple_of("DeviceUse", default=())
    taken: fields.Coerced[tuple[PCIAmount, ...] | None, Iterable[PCIAmount] | None] = (
        fields.tuple_of("PCIAmount", default=None)
    )
    NOT_COMPARED = frozenset({"resource_class", "taken"})
    #: What a ledger does not give out for now; a copy gives it out.
    _withheld: Withheld = NOTHING_WITHHELD

    def _validate(self) -> None:
        usage.check_devices(self.devices, self.usage)
        ordered = tuple(sorted(self.usage, key=lambda use: use.address))
        if ordered != self.usage:
            self._store("usage", ordered)
        self._after_copy()

    def _after_copy(self) -> None:
        self._made: Devices | None = None
        self._places: Mapping[str, int] | None = None
        self._undo: tuple[Any, ...] | None = None  # usage and what was taken before

    def withhold(self, withheld: Withheld) -> None:
        """Give no more out what a ledger withholds; it is no part of what devices are."""
        object.__setattr__(self, "_withheld", withheld)
        self._made = None

    @property
    def _shelf(self) -> Devices:
        """The devices as decisions read them: made for the first, for many are only read."""
        if self._made is None:
            self._made = Devices(self.devices, self.usage, withheld=self._withheld)
        return self._made

    # --- figures ---

    @property
    def free(self) -> int:
        """How many devices can be had, one by one; a whole function and its parts all count."""
        return sum(map(len, self._shelf.free))

    def free_groups(self) -> Iterator[tuple[Device, str | None, Sequence[str]]]:
        """Yield groups of devices that are equal except for their addresses.

        Each is ``(a device of it, the physical function that all of it belongs to, addresses of its
        free devices)``.
        """
        for group, free in zip(self._shelf.groups, self._shelf.free, strict=True):
            yield group.kind, group.owner, free

    def device(self, address: str) -> Device:
        """Return the device at an address.

        :raises InvalidInput: if there is none
        """
        found = self._shelf.devices.get(parse_address(address))
        if found is None:
            raise _invalid_device("device", address, "one of these")
        return found

    def state(self, address: str) -> str:
        """Return the state of a device: its own, or the one its relatives give it.

        :raises InvalidInput: if there is none at that address
        """
        return self._shelf.state(self.device(address).address)

    def states(self) -> Mapping[str, str]:
        """Return the state of every device by address."""
        known = self._shelf
        return {address: known.state(address) for address in sorted(known.devices)}

    # --- the decision ---

    def _fit(
        self, amount: abstract.Amount, limit: abstract.Amount | None, context: Context
    ) -> PCIAmount:
        """Return the assigned amount: which devices it would be. Nothing changes.

        What is assigned already is checked as it is, and what is given back too. Affinity is about
        the host cells that were chosen for who asks (``context.chosen``); where there are none it
        has no meaning.

        :param limit: devices have none
        :raises InvalidInput: for an amount of another kind, or a limit
        :raises ForeignAmount: if it is assigned to devices that are not here, or are others now
        :raises CapacityException: with, for each request, the rule that failed and its figures
        :raises SearchLimitReached: if the budget ran out: neither yes nor no

        Cost: 10 to 30 microseconds and some 2 for each group of devices that would do.
        """
        wanted = given(amount)
        if limit is not None:
            raise exceptions.InvalidInput(
                "kind of amount", "limit of devices", limit, "none: devices have no limit"
            )
        where = context.chosen
        within = None if context.allowed is None else self._addresses(context.allowed)
        if wanted.placed:
            usage.check_assigned(self._shelf, wanted, where, within)
            return wanted
        return place(self._shelf, wanted, where, within)

    def consume(
        self,
        amount: abstract.Amount,
        limit: abstract.Amount | None = None,
        context: Context = ANYWHERE,
    ) -> PCIAmount:
        """Claim the devices that :meth:`fit` returns, or release assigned ones."""
        assigned = self.fit(amount, limit, context)
        self.apply(assigned)
        return assigned

    def _apply(self, assigned: abstract.Amount) -> None:
        taken = given(assigned)
        self._undo = self.usage, self.taken
        self._write(usage.after(self._shelf, taken))

    def _revert(self, assigned: abstract.Amount) -> None:
        """Take back what :meth:`take` did a moment ago: nothing was used meanwhile."""
        if self._undo is not None:
            used, taken = self._undo
            self._store("usage", used)
            self._store("taken", taken)
            self._made = None

    def _recorded_in_part(self, taken: tuple[Any, ...], assigned: Any) -> tuple[Any, ...]:
        return usage.noted_in_part(taken, assigned)

    def merged(self, several: Sequence[abstract.Amount]) -> PCIAmount | None:
        """Return one amount that says what several say, None if some take and some give back."""
        return usage.joined([given(one) for one in several])

    def without_allocation(self, assigned: abstract.Amount) -> PCIInventory:
        """Return a copy as if devices that are taken had never been taken."""
        found: PCIInventory = self.obj_clone()
        found.withhold(self._withheld)
        placed = given(assigned).placed
        found._write(dict.fromkeys((device.address for device in placed), None))
        return found

    def _write(self, uses: Mapping[str, DeviceUse | None]) -> None:
        shelf = self._shelf
        shelf.put(uses)
        self._store("usage", tuple(shelf.uses[address] for address in sorted(shelf.uses)))

    # --- discovery ---

    def rediscover(self, devices: Iterable[Device]) -> Rediscovery:
        """Take over how devices are now, and return what changed.

        An allocated device stays as it was (:func:`~.device.retain_allocated`); the next call after
        its release changes or removes it. A removed device is not allocated again.

        :raises InvalidInput: for a repeated address; if devices contradict each other; nothing
            changed
        """
        now = listed(devices)
        if not isinstance(now, list):
            raise _invalid_device("devices", now, f"a list of at most {MAX_DEVICES}")
        for device in now:
            if not isinstance(device, Device):
                raise _invalid_device("device", device, "a Device")
        usage.check_devices(now, ())
        before = {device.address: device for device in self.devices}
        held = {use.address: use for use in self.usage if use.is_held}
        retained = retain_allocated(now, self.devices, held)
        uses = {use.address: use for use in self.usage if use.address in retained.devices}
        for address, device in retained.devices.items():
            if address in held:
                uses[address] = held[address].replace(gone=device.withdrawn)
            elif device.withdrawn:
                uses[address] = DeviceUse(address, SPENT)
            elif address in before and before[address].withdrawn:
                uses.pop(address, None)  # it was discovered again
        after = {address: retained.devices[address] for address in sorted(retained.devices)}
        self.update(devices=tuple(after.values()), usage=tuple(uses.values()))
        changed = [at for at in after if at in before and after[at] != before[at]]
        return Rediscovery(
            tuple(at for at in after if at not in before),
            tuple(sorted(before.keys() - after.keys())),
            tuple(at for at in changed if at not in retained.reasons),
            tuple(sorted(retained.reasons)),
        )

    # --- devices and host cells ---

    def affinity(
        self, amount: abstract.Amount, cells: CellMap, allowed: Collection[int] | None = None
    ) -> AffinityConstraint | None:
        """Return what devices need of the host cells; None if any will do.

        :param allowed: ids of the parts that may be used, None for all
        """
        wanted = given(amount)
        if wanted.gives_back:
            return None
        if wanted.placed:
            return AssignedDevices(wanted, cells)
        shelf = self._shelf
        if names_addresses(wanted):
            shelf = shelf.apart()
        return RequestedDevices(
            shelf, wanted, cells, None if allowed is None else self._addresses(allowed)
        )

    def device_counts(self) -> Mapping[int, int]:
        """Return how many free devices there are at each host cell."""
        counts: Counter[int] = Counter()
        for group, free in zip(self._shelf.groups, self._shelf.free, strict=True):
            if group.node is not None and free:
                counts[group.node] += len(free)
        return counts

    # --- how it is kept ---

    @classmethod
    def from_storage(
        cls,
        parts: Sequence[StoredPart],
        resource_class: str,
        room: Mapping[str, int] | None = None,
        *,
        has_allocations: bool = True,
    ) -> Self:
        gathered = storage.from_parts(parts)
        uses = [*gathered.usage]
        if not has_allocations and (removed := storage.removed_of(parts[0].description or "")):
            uses = [use for use in uses if use.address not in removed]
            uses += [DeviceUse(address, ALLOCATED, gone=True) for address in sorted(removed)]
        try:
            made = cls(gathered.devices, usage=uses, resource_class=resource_class)
        except exceptions.InvalidInput as error:
            names = sorted(storage.by_part(gathered.devices))
            raise exceptions.InvalidInventory(
                "devices of providers", names, f"such as go together ({error})"
            ) from error
        if gathered.withheld != NOTHING_WITHHELD:
            made.withhold(gathered.withheld)
        return made

    @classmethod
    def cell_of_description(cls, description: str) -> int | None:
        return storage.node_of(description)

    def summary(self) -> str:
        counts = Counter(device.resource_class for device in self.devices)
        return "+".join(f"{count}*{name}" for name, count in counts.items()) or "none"

    def parts(self) -> tuple[InventoryPart, ...]:
        """Return the devices of each provider: one device, or a function with its parts."""
        return tuple(
            InventoryPart(
                one.name,
                type(self)(one.devices, usage=one.usage, resource_class=self.resource_class),
                traits=one.traits,
                uses=one.within,
            )
            for one in storage.split_parts(self.devices, self.usage)
        )

    def with_use(
        self, before: Sequence[StoredPart], parts: Sequence[StoredPart], room: Mapping[str, int]
    ) -> PCIInventory | None:
        """Return the inventory over the same devices, of which others are taken; None if that is
        not about the devices of the changed parts alone, or they do not go together any more."""
        changed = storage.usage_changed(before, parts)
        if changed is None:
            return None
        shelf = self._shelf.with_uses(changed)
        found = self._evolve(usage=tuple([shelf.uses[one] for one in sorted(shelf.uses)]))
        found._made, found._places = shelf, self._place_of
        return found

    def part_ids(self) -> tuple[int, ...]:
        """Return numbers of the parts, in their order."""
        return tuple(range(len(storage.by_part(self.devices))))

    @property
    def _by_part(self) -> Sequence[Sequence[Device]]:
        """The devices of each part, in their order."""
        return list(storage.by_part(self.devices).values())

    @property
    def _place_of(self) -> Mapping[str, int]:
        """The place of the part of each device, by address."""
        if self._places is None:
            parts = enumerate(self._by_part)
            self._places = {device.address: place for place, own in parts for device in own}
        return self._places

    def _addresses(self, ids: Collection[int]) -> frozenset[str]:
        every = self._by_part
        return frozenset(
            device.address for place in ids if 0 <= place < len(every) for device in every[place]
        )

    def in_use(self) -> tuple[tuple[str, tuple[AmountRecord, ...]], ...]:
        """Return the devices that somebody has, each by name."""
        return tuple(storage.in_use(self._shelf, self.usage))

    def units(self, resource_class: str) -> frozenset[str]:
        """Return the addresses of the devices of a class."""
        return frozenset(d.address for d in self.devices if d.resource_class == resource_class)

    def units_elsewhere(self, resource_class: str) -> frozenset[str]:
        """Return the addresses of the devices of other classes."""
        return frozenset(d.address for d in self.devices if d.resource_class != resource_class)

    def unit_count(self, resource_class: str, units: Collection[str]) -> int:
        """Return how many devices of a class these are: parts that go with one do not count."""
        return len(self.units(resource_class).intersection(units))

    def dependent_units(self, resource_class: str) -> Mapping[str, frozenset[str]]:
        """Return the units that go with a unit of a class: the functions split off it."""
        return {
            device.address: frozenset(parts)
            for device in self.devices
            if device.resource_class == resource_class
            and device.type == PF
            and (parts := self._shelf.parts_of(device.address))
        }

    def is_requested(self, amount: abstract.Amount, unit: str) -> bool:
        """Return whether a device, or the one that it is a part of, is of a kind asked for."""
        device = self._shelf.devices.get(unit)
        if device is None or not isinstance(amount, PCIAmount):
            return True
        whole = None if device.parent is None else self._shelf.devices.get(device.parent)
        family = [one for one in (device, whole) if one is not None]
        return any(request.matches(one) for request in amount.requests for one in family)

    def may_provide_all(self, requested: Iterable[PartialRequest]) -> bool:
        """Return False if these amounts cannot all be provided at once."""
        found: list[tuple[PCIAmount, Collection[str], int]] = []
        for name, asked, parts, times in requested:
            amount = devices(name, asked) if isinstance(asked, int) else given(asked)
            found.append((amount, self._addresses(parts), times))
        return may_meet_all(self._shelf, found)

    def select_units(
        self, place: int, resource_class: str, count: int, taken: Collection[str] = ()
    ) -> tuple[str, ...] | None:
        """Return so many devices of a part that are free, by address; None if there are fewer."""
        own = self._by_part[place]
        return storage.some_units(self._shelf, own, resource_class, count, taken)

    def symmetry_key(self, place: int) -> Hashable | None:
        """Return what the devices of a part are, but for their addresses: kind, node, labels.

        A part whose devices belong to one of another part is like nobody.
        """
        own = self._by_part[place]
        here = {device.address for device in own}
        if any(device.parent is not None and device.parent not in here for device in own):
            return None
        told = [name for name in Device.fields if name not in ("address", "parent")]
        alike = Counter(tuple(getattr(device, name) for name in told) for device in own)
        return frozenset(alike.items())

    def blocking_units(
        self, amount: abstract.Amount, reason: Reason
    ) -> Mapping[int, Mapping[str, frozenset[str]]]:
        """Return the devices that a refused amount would need and cannot have, by part.

        Of each it is told which devices are in the way: itself, or functions that are split off it.
        """
        found: dict[int, dict[str, frozenset[str]]] = {}
        for address, taken in storage.blocking_units(self._shelf, given(amount), reason).items():
            found.setdefault(self._place_of[address], {})[address] = taken
        return found

    @classmethod
    def removed_of_description(cls, description: str) -> Mapping[str, str]:
        """Return ``{address: resource class}`` of the devices removed while allocated."""
        return storage.removed_of(description)

    def to_records(self) -> tuple[InventoryRecord, ...]:
        """Return how many devices there are of each class, and how many are taken."""
        return storage.to_records(self.devices, self.usage)

    def describe(self) -> str:
        """Return what the devices are, as JSON."""
        return storage.describe(self.devices, self.usage)

    def to_allocations(
        self, assigned: abstract.Amount
    ) -> tuple[tuple[int, tuple[AmountRecord, ...]], ...]:
        """Return what an assigned amount takes of each part: the part's place, and records."""
        return storage.to_allocations(self._place_of, given(assigned))

    def from_allocations(
        self,
        amount: abstract.Amount,
        held: Mapping[int, Sequence[AmountRecord]],
        context: Context = ANYWHERE,
    ) -> PCIAmount:
        """Return the assigned amount that takes ``held`` of the parts, by their place.

        :param context: the host cells of who holds it (``chosen``)
        :raises ForeignAmount: if ``amount`` cannot take that
        """
        return storage.from_allocations(self._shelf, given(amount), held, context.chosen)
