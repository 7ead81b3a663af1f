"""Devices as decisions read them: in groups of which only the address differs, free ones first.

Two devices are in one group if no request and no order of preference can tell them apart. A
physical function that has been split is a group of its own, and so are the functions split off it
that are alike: taking the one takes the others away (Nova's states; see :meth:`Devices.state`).
"""

from __future__ import annotations

import bisect
import copy
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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

#: States in which a physical function takes those split off it with it.
_WITH_PARTS = (CLAIMED, ALLOCATED, SPENT)


class Withheld(NamedTuple):
    """What nobody is given though nobody has it, beside what devices say themselves."""

    out: frozenset[str] = frozenset()  #: out of service, by address
    #: how many of the free ones stay so under a limit, whichever these are, by part and class;
    #: more than there are where more are used than it allows
    spare: Mapping[tuple[str, str], int] = FrozenDict()
    #: of which of these the limit is one of something that they use up
    shared: frozenset[tuple[str, str]] = frozenset()


class Bound(NamedTuple):
    """Devices of one class of a part, of which a limit lets no more than so many be used."""

    resource_class: str
    every: frozenset[str]  #: that could be had if nobody had any
    free: frozenset[str]
    limit: int
    is_shared: bool  #: the limit is one of something that they use up

    @property
    def used(self) -> int:
        """How many somebody has."""
        return len(self.every) - len(self.free)

    @property
    def most(self) -> int:
        """How many of the free ones may be taken; less than none where too many are used."""
        return self.limit - self.used

    def open_of(self, free: Iterable[Any]) -> int:
        """Return how many of some devices it binds that are free."""
        return sum(one in self.free for one in free)


#: Whatever nobody has is given.
NOTHING_WITHHELD = Withheld()


class Group:
    """Devices that are alike: one of them, and who they are."""

    __slots__ = ("cost", "kind", "node", "owner", "provider")

    def __init__(self, kind: Device, owner: str | None) -> None:
        self.kind = kind
        self.node = kind.numa_node
        self.provider = kind.facts.get(PROVIDER)
        self.owner = owner  #: the physical function whose fate they share
        self.cost = len(kind.tags) + kind.one_time_use  #: plain ones are given out first


class DeviceGroups:
    """The groups of an inventory, what is free of each, and which exclude each other."""

    def __init__(self, groups: Sequence[Group], free: Sequence[Sequence[Any]]) -> None:
        self.groups = groups
        self.free = list(free)  #: by group, what is free, in order
        self.parts: dict[int, tuple[int, ...]] = {}  #: groups split off, by that of their function
        self.whole: dict[int, int] = {}  #: the other way round
        self._served: dict[tuple[Any, ...], tuple[int, ...]] = {}
        self._tie()

    def _tie(self) -> None:
        owners = {g.owner: n for n, g in enumerate(self.groups) if g.kind.type == PF}
        found: dict[int, list[int]] = defaultdict(list)
        for number, group in enumerate(self.groups):
            if group.kind.type in PARTS and group.owner is not None:
                above = owners.get(group.owner)
                if above is not None:
                    found[above].append(number)
                    self.whole[number] = above
        self.parts = {above: tuple(below) for above, below in found.items()}

    def size(self, group: int) -> int:
        """Return how many devices a group has, as far as that is known: those that are free."""
        return len(self.free[group])

    def usable(self, groups: Collection[int], within: Collection[str] | None) -> int:
        """Return how many devices of some groups could be had if nobody had any.

        :param within: addresses that may be used, None for all
        """
        return sum(map(self.size, groups))

    def bounds(self) -> Sequence[Bound]:
        """Return what limits bind; each device is of one of them at most."""
        return ()

    def serving(self, request: DeviceRequest, provider: str | None = None) -> tuple[int, ...]:
        """Return the groups of which a request may have some, be they free or not."""
        key = request.specs, provider
        found = self._served.get(key)
        if found is None:
            if len(self._served) >= _REMEMBERED:  # not one by one: other threads may have the same
                self._served = {}
            found = self._served[key] = tuple(
                number
                for number, group in enumerate(self.groups)
                if (provider is None or group.provider == provider)
                and any(spec.matches(group.kind) for spec in request.specs)
            )
        return found


#: How many different requests a shelf remembers the groups of.
_REMEMBERED = 256


class Devices(DeviceGroups):
    """A shelf of devices with addresses, some of them taken."""

    def __init__(
        self,
        devices: Iterable[Device],
        uses: Iterable[DeviceUse],
        *,
        apart: bool = False,
        withheld: Withheld = NOTHING_WITHHELD,
    ) -> None:
        """Put devices on the shelf.

        :param apart: whether each is a group of its own, for requests that name addresses
        :param withheld: what is not given out; of what is out of service ``uses`` say so too
        """
        self.withheld = withheld
        self.devices = {device.address: device for device in devices}
        self.uses = {use.address: use for use in uses}
        self.split: dict[str, list[str]] = defaultdict(list)  #: functions split off, by address
        for device in self.devices.values():
            if device.parent is not None:
                self.split[device.parent].append(device.address)
        numbers: dict[Any, int] = {}
        groups: list[Group] = []
        self.group_of: dict[str, int] = {}
        self._size: list[int] = []
        free: list[list[str]] = []
        for address in sorted(self.devices):
            device = self.devices[address]
            key = address if apart else self._key(device)
            number = numbers.setdefault(key, len(groups))
            if number == len(groups):
                groups.append(Group(device, self._owner(device)))
                free.append([])
                self._size.append(0)
            self.group_of[address] = number
            self._size[number] += 1
            if self.is_free(address):
                free[number].append(address)
        super().__init__(groups, free)

    def apart(self) -> Devices:
        """Return the same shelf with each device a group of its own."""
        return Devices(
            self.devices.values(), self.uses.values(), apart=True, withheld=self.withheld
        )

    def _owner(self, device: Device) -> str | None:
        """Return the physical function whose fate a device shares, if it shares any: its own too,
        so that pools of functions know which parts are not theirs."""
        if device.parent is not None:
            return device.parent
        return device.address if device.type == PF else None

    def _key(self, device: Device) -> tuple[Any, ...]:
        return (
            device.vendor_id,
            device.product_id,
            device.type,
            device.resource_class,
            device.class_code,
            device.numa_node,
            device.tags,
            device.traits,
            device.remote_managed,
            device.live_migratable,
            device.one_time_use,
            device.facts.get(PROVIDER),
            self._owner(device),
        )

    def size(self, group: int) -> int:
        """Return how many devices a group has, free or not."""
        return self._size[group]

    def usable(self, groups: Collection[int], within: Collection[str] | None) -> int:
        """Return how many devices of some groups could be had if nobody had any."""
        return sum(
            group in groups and (within is None or address in within) and not self._is_lost(address)
            for address, group in self.group_of.items()
        )

    def bounds(self) -> Sequence[Bound]:
        """Return what limits bind; each device is of one of them at most."""
        found: list[Bound] = []
        for (part, name), spare in self.withheld.spare.items():
            every = frozenset(one for one in self._of(part, name) if not self._is_lost(one))
            free = frozenset(filter(self.is_free, every))
            is_shared = (part, name) in self.withheld.shared
            found.append(Bound(name, every, free, len(every) - spare, is_shared))
        return found

    def beside(self, device: Device) -> Sequence[str]:
        """Return the devices that a limit on a device binds too; none where there is no limit."""
        part, name = device.parent or device.address, device.resource_class
        return self._of(part, name) if (part, name) in self.withheld.spare else ()

    def _of(self, part: str, name: str) -> list[str]:
        """Return the devices of a class that one provider keeps."""
        own = (part, *self.split.get(part, ()))
        known = self.devices
        return [one for one in own if one in known and known[one].resource_class == name]

    def _is_lost(self, address: str) -> bool:

        def is_gone(one: str | None) -> bool:
            return one in self.uses and self.uses[one].state == SPENT

        below = (address, *self.split.get(address, ()))
        if any(is_gone(one) or one in self.withheld.out for one in below):
            return True
        return is_gone(self.devices[address].parent)

    # --- states ---

    def state(self, address: str) -> str:
        """Return the state of a device: its own, or the one its relatives give it.

        Source: Nova's ``PciDevice``: a claimed function makes those it excludes unclaimable, an
        allocated one unavailable.
        """
        use = self.uses.get(address)
        if use is not None:
            return use.state
        device = self.devices[address]
        if device.parent is not None:
            above = self.uses.get(device.parent)
            if above is None or above.state not in _WITH_PARTS:
                return AVAILABLE
            return UNCLAIMABLE if above.state == CLAIMED else UNAVAILABLE
        states = {
            self.uses[part].state for part in self.split.get(address, ()) if part in self.uses
        }
        if not states:
            return AVAILABLE
        return UNCLAIMABLE if states == {CLAIMED} else UNAVAILABLE

    def is_free(self, address: str) -> bool:
        """Return whether somebody could have a device now."""
        return self.state(address) == AVAILABLE

    def parts_of(self, address: str) -> tuple[str, ...]:
        """Return the functions that are split off a device, by address."""
        return tuple(sorted(self.split.get(address, ())))

    def with_uses(self, uses: Mapping[str, DeviceUse | None]) -> Devices:
        """Return a shelf of the same devices of which something else is taken.

        Cost: that of what changes; the groups, and which serve what, are those of this shelf.
        """
        found = copy.copy(self)
        found.uses, found.free = dict(self.uses), list(self.free)
        found.put({name: use for name, use in uses.items() if use != self.uses.get(name)})
        return found

    def put(self, uses: Mapping[str, DeviceUse | None]) -> None:
        """Change what is taken, None for nothing; those that are related change with it."""
        touched: set[str] = set()
        for address, use in uses.items():
            if use is None:
                self.uses.pop(address, None)
            else:
                self.uses[address] = use
            touched.update(self._related(address))
        for address in touched:
            self._refresh(address)

    def _related(self, address: str) -> Iterator[str]:
        device = self.devices.get(address)
        if device is None:
            return
        yield address
        yield from self.split.get(address, ())
        if device.parent in self.devices:
            yield device.parent

    def _refresh(self, address: str) -> None:
        group = self.group_of[address]
        free = self.free[group]  # another shelf may have the same: it is not changed in place
        place = bisect.bisect_left(free, address)
        was_free = place < len(free) and free[place] == address
        if was_free and not self.is_free(address):
            self.free[group] = [*free[:place], *free[place + 1 :]]
        elif not was_free and self.is_free(address):
            self.free[group] = [*free[:place], address, *free[place:]]
