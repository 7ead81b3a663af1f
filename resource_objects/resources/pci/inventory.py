"""The PCI devices of a host, what is taken of them, and who could have which: the inventory."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

from resource_objects import base, exceptions, fields
from resource_objects.reasons import Reason
from resource_objects.resources import abstract
from resource_objects.resources.context import (
    ANYWHERE,
    AffinityConstraint,
    CellMap,
    ChosenCells,
    Context,
)
from resource_objects.resources.located import Affine, Identified, Located, PartialRequest
from resource_objects.resources.pci import storage, usage
from resource_objects.resources.pci.affinity import AssignedDevices, RequestedDevices
from resource_objects.resources.pci.amount import PCIAmount, devices, given
from resource_objects.resources.pci.device import (
    PF,
    SPENT,
    Device,
    DevicePool,
    DeviceUse,
    listed,
    parse_address,
)
from resource_objects.resources.pci.device_groups import (
    NOTHING_WITHHELD,
    DeviceGroups,
    Devices,
    PooledGroups,
    Withheld,
    pools_of,
)
from resource_objects.resources.pci.fit import (
    demands_of,
    divide,
    lay,
    may_meet_all,
    names_addresses,
    place,
    reasons,
)
from resource_objects.resources.pci.storage import PoolComparison
from resource_objects.resources.pci.usage import Renewed
from resource_objects.resources.records import (
    AmountRecord,
    InventoryPart,
    InventoryRecord,
    KeptPart,
)

_invalid_unassigned_amount = functools.partial(exceptions.InvalidInput, "unassigned amount")
_invalid_device = functools.partial(exceptions.InvalidInput, "device")


@base.register
class PCIInventory(Identified, Located[PCIAmount], Affine, abstract.Inventory):
    """PCI devices, what is taken of each, and which would meet an amount.

    =============  =================================================================================
    ``devices``    the devices, each at its address
    ``usage``      what is taken of some of them; what follows for their relatives is not stated
    ``pools``      where no device is known, but counts: how many are free of which kind
    =============  =================================================================================

    :meth:`fit` finds devices whenever there are some (see :mod:`.divide` for what is hard, and
    then bounded), takes plain ones before those with tags and breaks as few physical functions as
    it can. :meth:`consume` claims them; :meth:`allocate` says that they are in use now; a negative
    amount gives them back. From pools nothing can be claimed; :meth:`can_provide` answers, or
    raises :class:`~resource_objects.exceptions.Undetermined`.

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
    pools: fields.TupleFrom[DevicePool] = fields.tuple_of("DevicePool", default=())
    taken: fields.Coerced[tuple[PCIAmount, ...] | None, Iterable[PCIAmount] | None] = (
        fields.tuple_of("PCIAmount", default=None)
    )
    NOT_COMPARED = frozenset({"resource_class", "taken"})
    #: What a ledger does not give out for now; a copy gives it out.
    _withheld: Withheld = NOTHING_WITHHELD

    def _validate(self) -> None:
        usage.check_devices(self.devices, self.usage, self.pools)
        ordered = tuple(sorted(self.usage, key=lambda use: use.address))
        if ordered != self.usage:
            self._store("usage", ordered)
        self._after_copy()

    def _after_copy(self) -> None:
        self._made: DeviceGroups | None = None
        self._places: Mapping[str, int] | None = None
        self._undo: tuple[Any, ...] | None = None  # devices, usage and what was taken before

    def withhold(self, withheld: Withheld) -> None:
        """Give no more out what a ledger withholds; it is no part of what devices are."""
        object.__setattr__(self, "_withheld", withheld)
        self._made = None

    @property
    def _shelf(self) -> DeviceGroups:
        """The devices as decisions read them: made for the first, for many are only read."""
        if self._made is None:
            self._made = (
                PooledGroups(self.pools)
                if self.pools
                else Devices(self.devices, self.usage, withheld=self._withheld)
            )
        return self._made

    @property
    def _known(self) -> Devices:
        """The same, where devices are known.

        :raises InvalidInput: where only pools are
        """
        if not isinstance(self._shelf, Devices):
            raise _invalid_unassigned_amount(
                "devices", "pools", "devices by address: only those are had"
            )
        return self._shelf

    def _shelf_for(self, allowed: Collection[int] | None) -> DeviceGroups:
        """The same, where it is known which devices are of the parts that may be used."""
        return self._shelf if allowed is None else self._known

    # --- figures ---

    @property
    def free(self) -> int:
        """How many devices can be had, one by one; a whole function and its parts all count."""
        return sum(map(len, self._shelf.free))

    def as_pools(self, *, apart: bool = False) -> tuple[DevicePool, ...]:
        """Return how many are free of each kind, for who needs no addresses.

        Functions of one physical device are pools of their own, with its address.

        :param apart: whether any other device is a pool of its own too, as in Nova's columns
        """
        return self.pools or pools_of(self._known, apart=apart)

    def compare_pools(self, pools: Iterable[DevicePool]) -> PoolComparison:
        """Return how pools that somebody else counted differ from these devices.

        What a pool and a device both say has to agree; what one of them does not say is all the
        same. Of the devices that are free here so many stay free as pools count, those of the
        greatest addresses; the others are in use. A physical function that is split is told by its
        parts: it is not in use as long as these are not, and they are not if it is counted.

        :raises InvalidInput: where only pools are known here

        >>> lab = PCIInventory([Device(f"0000:3{n}:00.0", "10de", "2330") for n in range(3)])
        >>> [part for part, _ in lab.compare_pools([DevicePool("10de", "2330", 2)]).in_use]
        ['0000:30:00.0']
        >>> [pool.count for pool in lab.compare_pools([DevicePool("10de", "2330", 5)]).absent]
        [2]

        Cost: devices by pools; where pools have to share devices, by devices once more.
        """
        return storage.compare_pools(self._known, tuple(pools))

    def device(self, address: str) -> Device:
        """Return the device at an address.

        :raises InvalidInput: if there is none
        """
        found = self._known.devices.get(parse_address(address))
        if found is None:
            raise _invalid_device("device", address, "one of these")
        return found

    def state(self, address: str) -> str:
        """Return the state of a device: its own, or the one its relatives give it.

        :raises InvalidInput: if there is none at that address
        """
        return self._known.state(self.device(address).address)

    def states(self) -> Mapping[str, str]:
        """Return the state of every device by address."""
        known = self._known
        return {address: known.state(address) for address in sorted(known.devices)}

    # --- the decision ---

    def _fit(
        self, amount: abstract.Amount, limit: abstract.Amount | None, context: Context
    ) -> PCIAmount:
        """Return the assigned amount: which devices it would be. Nothing changes.

        What is assigned already is checked as it is, and what is given back too. Where only pools
        are known the amount is returned as it is. Affinity is about the host cells that were chosen
        for who asks (``context.chosen``); where there are none it has no meaning.

        :param limit: devices have none
        :raises InvalidInput: for an amount of another kind, or a limit; for ``context.allowed``
            where only pools are known: they have no parts
        :raises ForeignAmount: if it is assigned to devices that are not here, or are others now
        :raises CapacityException: with, for each request, the rule that failed and its figures
        :raises SearchLimitReached: if the budget ran out: neither yes nor no
        :raises Undetermined: if pools do not tell

        Cost: 10 to 30 microseconds and some 2 for each group of devices that would do.
        """
        wanted = given(amount)
        if limit is not None:
            raise exceptions.InvalidInput(
                "kind of amount", "limit of devices", limit, "none: devices have no limit"
            )
        where = context.chosen
        shelf = self._shelf_for(context.allowed)
        if isinstance(shelf, PooledGroups):
            return self._fit_pools(shelf, wanted, where)
        within = None if context.allowed is None else self._addresses(context.allowed)
        if wanted.placed:
            usage.check_assigned(self._known, wanted, where, within)
            return wanted
        return place(self._known, wanted, where, within)

    def _fit_pools(
        self, shelf: PooledGroups, wanted: PCIAmount, where: ChosenCells | None
    ) -> PCIAmount:
        """Return the amount if pools tell that it can be had: as if nothing were known to exclude
        anything that is not known, which is a yes only where nothing could."""
        if wanted.placed:
            raise _invalid_unassigned_amount(
                "devices", "pools", "devices by address: only those are had"
            )
        if names_addresses(wanted):
            raise exceptions.Undetermined(wanted)
        problem = lay(shelf, demands_of(shelf, wanted), where)
        if divide(problem) is None:
            raise exceptions.CapacityException(reasons(problem, where))
        if shelf.is_vague({group for may in problem.may for group in may}):
            raise exceptions.Undetermined(wanted)
        return wanted

    def consume(
        self,
        amount: abstract.Amount,
        limit: abstract.Amount | None = None,
        context: Context = ANYWHERE,
    ) -> PCIAmount:
        """Claim the devices that :meth:`fit` says, or give back assigned ones; parameters as there.

        :raises InvalidInput: where only pools are known
        """
        self._known  # noqa: B018  # raises if only pools are
        assigned = self.fit(amount, limit, context)
        self.take(assigned)
        return assigned

    def _take(self, assigned: abstract.Amount) -> None:
        taken = given(assigned)
        self._undo = self.devices, self.usage, self.taken
        changed = usage.after(self._known, taken)
        self._write(changed, usage.waiting(self._known, changed) if taken.gives_back else {})

    def _untake(self, assigned: abstract.Amount) -> None:
        """Take back what :meth:`take` did a moment ago: nothing was used meanwhile."""
        if self._undo is not None:
            devices, used, taken = self._undo
            self._store("usage", used)
            self._store("taken", taken)
            self._renew(devices)

    def _noted_in_part(self, taken: tuple[Any, ...], assigned: Any) -> tuple[Any, ...]:
        return usage.noted_in_part(taken, assigned)

    def joined(self, several: Sequence[abstract.Amount]) -> PCIAmount | None:
        """Return one amount that says what several say, None if some take and some give back."""
        return usage.joined([given(one) for one in several])

    def without(self, assigned: abstract.Amount) -> PCIInventory:
        """Return a copy as if devices that are taken had never been taken."""
        found: PCIInventory = self.obj_clone()
        found.withhold(self._withheld)
        placed = given(assigned).placed
        found._write(dict.fromkeys((device.address for device in placed), None), {})
        return found

    def _write(
        self,
        uses: Mapping[str, DeviceUse | None],
        renewed: Mapping[str, Device | None],
    ) -> None:
        shelf = self._known
        shelf.put(uses)
        self._store("usage", tuple(shelf.uses[address] for address in sorted(shelf.uses)))
        if renewed:
            self._renew(
                tuple(
                    device
                    for one in self.devices
                    if (device := renewed.get(one.address, one)) is not None
                )
            )

    def _renew(self, devices: tuple[Device, ...]) -> None:
        self._store("devices", devices)
        self._made = self._places = None

    def allocate(self, assigned: abstract.Amount) -> None:
        """Say that claimed devices are in use now.

        :raises InvalidInput: if it does not say which devices; if it gives them back
        :raises CapacityException: if one of them is not claimed; nothing changed
        """
        self._write(usage.allocated(self._known, given(assigned)), {})

    # --- devices that come, go and change ---

    def rediscover(self, devices: Iterable[Device]) -> Renewed:
        """Take over how devices are now, and return what changed.

        A device that somebody holds stays as it was: that it is gone or is another now is
        remembered, and takes effect when it is given back. Source: Nova's ``PciDevTracker``.

        :raises InvalidInput: for an address given twice; if devices contradict each other; nothing
            changed
        """
        found = usage.renew(self._known, listed(devices))
        usage.check_devices(found.devices, found.usage, ())
        self._store("usage", found.usage)
        self._renew(found.devices)
        return found.said

    def remove(self, address: str) -> None:
        """Remove a device that nobody holds.

        :raises InvalidInput: if there is none, or somebody holds it
        """
        device = self.device(address)
        use = self._known.uses.get(device.address)
        if use is not None and use.is_held:
            raise _invalid_device(f"device {address}", use.state, "one that nobody holds")
        self._store("usage", tuple(use for use in self.usage if use.address != device.address))
        self._renew(tuple(one for one in self.devices if one.address != device.address))

    def reset(self, address: str) -> None:
        """Make a spent device available again.

        :raises InvalidInput: if it is not spent
        """
        device = self.device(address)
        state = self._known.state(device.address)
        if state != SPENT:
            raise _invalid_device(f"device {address}", state, SPENT)
        self._write({device.address: None}, {})

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
        shelf = self._shelf_for(allowed)
        if names_addresses(wanted):
            if not isinstance(shelf, Devices):
                return None  # pools do not tell, wherever who asks is
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

    def parts(self) -> tuple[InventoryPart, ...]:
        """Return the devices of each provider: one device, or a function with its parts."""
        return tuple(
            InventoryPart(
                one.name,
                type(self)(one.devices, usage=one.usage, resource_class=self.resource_class),
                traits=one.traits,
                within=one.within,
            )
            for one in storage.split_parts(self.devices, self.usage)
        )

    def with_use(
        self, before: Sequence[KeptPart], parts: Sequence[KeptPart], room: Mapping[str, int]
    ) -> PCIInventory | None:
        """Return the inventory over the same devices, of which others are taken; None if that is
        not about the devices of the changed parts alone, or they do not go together any more."""
        changed = storage.usage_changed(before, parts)
        if changed is None:
            return None
        shelf = self._known.with_uses(changed)
        found = self._copied(usage=tuple([shelf.uses[one] for one in sorted(shelf.uses)]))
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
        """Return the devices that somebody has, each by name; of pools nothing is known."""
        return tuple(storage.in_use(self._known, self.usage)) if self.devices else ()

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
            and (parts := self._known.parts_of(device.address))
        }

    def is_asked(self, amount: abstract.Amount, unit: str) -> bool:
        """Return whether a device, or the one that it is a part of, is of a kind asked for."""
        device = self._known.devices.get(unit)
        if device is None or not isinstance(amount, PCIAmount):
            return True
        whole = None if device.parent is None else self._known.devices.get(device.parent)
        family = [one for one in (device, whole) if one is not None]
        return any(request.matches(one) for request in amount.requests for one in family)

    def may_provide_all(self, requested: Iterable[PartialRequest]) -> bool:
        """Return False if these amounts cannot all be provided at once."""
        found: list[tuple[PCIAmount, Collection[str], int]] = []
        for name, asked, parts, times in requested:
            amount = devices(name, asked) if isinstance(asked, int) else given(asked)
            found.append((amount, self._addresses(parts), times))
        return may_meet_all(self._known, found)

    def some_units(
        self, place: int, resource_class: str, count: int, taken: Collection[str] = ()
    ) -> tuple[str, ...] | None:
        """Return so many devices of a part that are free, by address; None if there are fewer."""
        own = self._by_part[place]
        return storage.some_units(self._known, own, resource_class, count, taken)

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
        for address, taken in storage.blocking_units(self._known, given(amount), reason).items():
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
        return storage.from_allocations(self._known, given(amount), held, context.chosen)


def given_inventory(value: Any) -> PCIInventory:
    """Return an inventory of devices as it is.

    :raises InvalidInventory: for one of another kind
    """
    if not isinstance(value, PCIInventory):
        raise exceptions.InvalidInventory("inventory of devices", value, "a PCIInventory")
    return value
