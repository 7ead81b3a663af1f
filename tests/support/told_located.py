"""A checker of what is told of cells and devices: whether each sentence is true, by the rows alone.

It reads the descriptions of cells and devices as they are kept, and decides by the naive matchers
(:mod:`~tests.support.numa_reference`, :mod:`~tests.support.pci_reference`), which know the rules
and nothing of the search. Figures and holders have to be just those of the rows; what says *at most
so many* has to be no less than what trying everything finds, and less than what is asked.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from resource_objects.providers.columns import Columns
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.numa import (
    CellUsage,
    GuestCell,
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    NUMATopologyLimit,
    PagePool,
)
from resource_objects.resources.pci import Device, DeviceUse, PCIAmount
from tests.support import numa_reference, pci_reference
from tests.support.columns import Kept, Place

TOPOLOGY, DEVICES = "NUMA_TOPOLOGY", "DEVICES"
_PAGES = "CUSTOM_HUGEPAGES_{}KB"
#: What a host has of its cells, as a whole.
_OF_HOST = ("VCPU", "PCPU", "MEMORY_MB")


class LocatedRows:
    """The cells and devices of one host, read from the rows."""

    def __init__(self, columns: Columns, kept: Kept, own: Sequence[int], root: int) -> None:
        self.kept, self.root, self.columns = kept, root, columns
        here = set(own)
        #: by the id of a host cell, or the address of a device, its provider
        self.cells: dict[int, int] = {}
        self.devices: dict[str, int] = {}
        self._said: dict[int, dict[str, Any]] = {}
        self.all_devices: list[Device] = []
        self.withheld: set[str] = set()
        table = columns.kinds
        for number, kind, body in zip(
            table.provider_id, table.resource_class, table.body, strict=True
        ):
            if number in here and kind == TOPOLOGY:
                said = json.loads(body)
                self.cells[said["id"]] = number
                self._said[said["id"]] = said
            elif number in here and kind == DEVICES:
                for said in json.loads(body):
                    why = said.pop("withheld", None)
                    device = Device(said.pop("address"), **said)
                    self.devices[device.address] = number
                    self.all_devices.append(device)
                    if why is not None:
                        self.withheld.add(device.address)
        #: who has which unit of which provider, as which class
        self.units = {
            (number, unit): (name, who)
            for number, unit, name, who in zip(*columns.units, strict=True)
            if number in here
        }

    @property
    def name(self) -> str:
        """What the host is called."""
        return self.kept.rows[self.root].name

    # --- cells ---

    def figures(self, cell: int, name: str) -> tuple[int, int]:
        """Return the capacity of a class at a host cell, and what is used of it."""
        stock = self.kept.rows[self.cells[cell]].stocks.get(name)
        return (0, 0) if stock is None else (stock.capacity, stock.used)

    def facts(self, cell: int) -> HostCell:
        """Return what a host cell is."""
        said, number = self._said[cell], self.cells[cell]
        stocks = self.kept.rows[number].stocks
        pages = []
        if "base" in said:
            size, total, reserved = said["base"]
            pages = [PagePool(size_kib=size, total=total, reserved=reserved)]
        for name, stock in stocks.items():
            if name.startswith("CUSTOM_HUGEPAGES_"):
                size = int(name.removeprefix("CUSTOM_HUGEPAGES_").removesuffix("KB"))
                taken = stock.total - stock.capacity
                pages.append(PagePool(size_kib=size, total=stock.total, reserved=taken))
        memory = stocks.get("MEMORY_MB")
        return HostCell(
            cell,
            shared=said.get("shared", ()),
            dedicated=said.get("dedicated", ()),
            siblings=said.get("siblings", ()),
            memory_mb=0 if memory is None else memory.total,
            pages=sorted(pages, key=lambda pool: pool.size_kib),
            socket=said.get("socket"),
            physnets=said.get("physnets", ()),
            tunneled=said.get("tunneled", False),
        )

    def usage(self, cell: int) -> CellUsage:
        """Return what is used of a host cell."""
        number = self.cells[cell]
        pinned = [
            int(unit.removeprefix("cpu"))
            for (at, unit), (name, _) in self.units.items()
            if at == number and name == "PCPU"
        ]
        used = {name: stock.used for name, stock in self.kept.rows[number].stocks.items()}
        return CellUsage(
            cell,
            shared=used.get("VCPU", 0),
            pinned=sorted(pinned),
            loose=self._dedicated_lost(cell, len(pinned)),
            memory_mb=used.get("MEMORY_MB", 0),
            pages=[
                (pool.size_kib, used.get(_PAGES.format(pool.size_kib), 0))
                for pool in self.facts(cell).huge_pages
            ],
        )

    def _dedicated_lost(self, cell: int, pinned: int) -> int:
        capacity, used = self.figures(cell, "PCPU")
        there = len(self._said[cell].get("dedicated", ()))
        return max(0, there - pinned - max(0, capacity - used))

    def limit(self) -> NUMATopologyLimit:
        """Return how much shared CPUs and memory of each cell may be used, limits included."""
        of = {
            field: [(cell, self.figures(cell, name)[0]) for cell in sorted(self.cells)]
            for field, name in (("vcpus", "VCPU"), ("memory_mb", "MEMORY_MB"))
        }
        return NUMATopologyLimit(**of)

    def inventory(self, *, is_whole: bool = True) -> NUMATopologyInventory:
        """Return the cells as one inventory.

        :param is_whole: whether what the host as a whole has left counts
        """
        ids = sorted(self.cells)
        numbers = [self.cells[cell] for cell in ids]
        links = {
            (of, name)
            for number in numbers
            for name in _OF_HOST
            for (of, of_name), _ in self.kept.shares.get((number, name), ())
            if of_name == name
        }
        room = {name: self.own_left((of, name)) for of, name in links} if is_whole else {}
        ratios: dict[str, Any] = {}
        for field, name in (("cpu_ratio", "VCPU"), ("memory_ratio", "MEMORY_MB")):
            table = self.columns.inventories
            every = {
                millionths
                for number, kind, millionths in zip(
                    table.provider_id, table.resource_class, table.ratio_millionths, strict=True
                )
                if number in numbers and kind == name
            }
            assert len(every) < 2, "cells of one host have one ratio"
            ratios[field] = (max(every) if every else 10**6) / 10**6
        return NUMATopologyInventory(
            [self.facts(cell) for cell in ids],
            usage=[self.usage(cell) for cell in ids],
            room=room or None,
            **ratios,
        )

    def own_left(self, place: Place) -> int:
        """Return what is left of an inventory itself."""
        stock = self.kept.rows[place[0]].stocks[place[1]]
        return max(0, stock.capacity - stock.used)

    # --- devices ---

    def parts(self, address: str) -> list[str]:
        """Return the functions that are split off a device."""
        return [one.address for one in self.all_devices if one.parent == address]

    def in_the_way(self, device: Device) -> list[str]:
        """Return the devices of which one that is had keeps this one from being had."""
        above = [] if device.parent is None else [device.parent]
        return [device.address, *above, *self.parts(device.address)]

    def holders_of(self, device: Device) -> set[str]:
        """Return who has a device, or what keeps it from being had."""
        family = self.in_the_way(device)
        return {
            self.units[self.devices[one], one][1]
            for one in family
            if one in self.devices and (self.devices[one], one) in self.units
        }

    def is_lost(self, device: Device) -> bool:
        """Return whether nobody could have a device, whatever others hold."""
        below = [device.address, *self.parts(device.address)]
        return any(one in self.withheld for one in (*below, device.parent))

    def loose(self, number: int, name: str) -> dict[str, int]:
        """Return who holds how many devices of a class at a provider without saying which."""
        named = Counter(
            who
            for (at, unit), (kind, who) in self.units.items()
            if at == number and kind == name and self._is_of(unit, name)
        )
        found: dict[str, int] = {}
        for at, kind, who, amount in zip(*self.columns.allocations, strict=True):
            if (at, kind) == (number, name) and amount > named[who]:
                most = max(
                    (factor for _, factor in self.kept.shares.get((at, kind), ())), default=1
                )
                found[who] = (amount - named[who]) * most  # so many functions at the most
        return found

    def _is_of(self, unit: str, name: str) -> bool:
        return any(one.address == unit and one.resource_class == name for one in self.all_devices)

    def uses(self) -> list[DeviceUse]:
        """Return the devices that are had, or that nobody can have."""
        taken = {unit for (_, unit) in self.units if unit in self.devices}
        taken |= {one for one in self.devices if one in self.withheld}
        for number in set(self.devices.values()):  # of these nobody knows which: the first ones
            for name in self.kept.rows[number].stocks:
                every = [
                    one.address
                    for one in self.all_devices
                    if self.devices[one.address] == number and one.resource_class == name
                ]
                free = [one for one in every if one not in taken]
                taken.update(free[: sum(self.loose(number, name).values())])
        return [DeviceUse(address=one, state="allocated") for one in sorted(taken)]


@dataclasses.dataclass
class LocatedSentence:
    """One reason about cells or devices of a host."""

    rows: LocatedRows
    reason: Reason
    topology: NUMATopologyAmount | None  #: what is asked
    devices: PCIAmount | None
    may: Callable[[int, str], bool]  #: whether a provider may give a kind, by its traits
    holders: Callable[[Collection[Place]], Mapping[str, int]]

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with it."""
        reason = self.reason
        if reason.cell is not None and reason.cell not in self.rows.cells:
            yield "there is no such cell"
            return
        check = _CHECKS.get(reason.rule)
        if check is None:
            yield "there is no check of this rule"
            return
        yield from check(self)

    # --- cells ---

    @functools.cached_property
    def cells(self) -> list[int]:
        """The host cells that may be used."""
        return [
            cell for cell, number in sorted(self.rows.cells.items()) if self.may(number, TOPOLOGY)
        ]

    @functools.cached_property
    def guests(self) -> list[int]:
        """The guest cells that it may be about: one, or one kind."""
        assert self.topology is not None, "it is about one"
        if self.reason.guest is not None:
            return [self.reason.guest]
        return [0]

    def _alone(self, guest: int, *, cell: int | None = None, **but: Any) -> bool:
        """Return whether a guest cell by itself fits some host cell, or one of them."""
        return self._fit([guest], self.cells if cell is None else [cell], is_whole=False, **but)

    def _fit(
        self, guests: Sequence[int], cells: Sequence[int], *, is_whole: bool, **but: Any
    ) -> bool:
        """Return whether some guest cells fit at once on some host cells.

        :param is_whole: whether what the host as a whole has left counts, and networks and sockets
        """
        assert self.topology is not None, "it is about one"
        changes = dict(but)
        if not is_whole:
            changes = {"physnets": (), "tunneled": False, "one_socket": False, **changes}
        if 0 not in guests:
            changes["emulator_policy"] = None
        some = list(_numbered(self.topology.cells[guest] for guest in guests))
        if not any(one.dedicated for one in some):
            changes["emulator_policy"] = changes["thread_policy"] = None
        amount = self.topology.replace(cells=some, **changes)
        inventory = self.rows.inventory(is_whole=is_whole)
        return numa_reference.has_placement(inventory, amount, self.rows.limit(), cells)

    def _of_cell(self, name: str) -> Iterator[str]:
        """The figures and holders are those of a class at the cell, which is what is short."""
        reason = self.reason
        assert reason.cell is not None
        capacity, used = self.rows.figures(reason.cell, name)
        if (reason.bound, reason.used) != (capacity, used):
            yield f"it is {used} of {capacity}"
        yield from self._holds([(self.rows.cells[reason.cell], name)])
        yield from self._fits_not()

    def _holds(self, places: Collection[Place]) -> Iterator[str]:
        held = dict(self.holders(places))
        if dict(self.reason.holders) != held:
            yield f"{held} hold it"

    def _fits_not(self) -> Iterator[str]:
        """The guest cell does not fit the host cell that is named."""
        if self.topology is None:
            yield "no topology is asked for"
        elif any(self._alone(guest, cell=self.reason.cell) for guest in self.guests):
            yield "it fits there"

    def capacity(self) -> Iterator[str]:
        reason, name = self.reason, self.reason.resource or ""
        if reason.requested <= reason.free:
            yield "so much is free"
        if reason.cell is None:
            whole = name in _OF_HOST and reason.where in (None, self.rows.name)
            yield from self._of_whole() if whole else self.of_devices()
            return
        yield from self._of_cell(name)
        guest = self.topology.cells[self.guests[0]] if self.topology else None
        if guest is None:
            return
        size = name.removeprefix("CUSTOM_HUGEPAGES_").removesuffix("KB")
        asked = {
            "VCPU": {len(guest.shared)},
            # cores that are left empty are taken too
            "PCPU": set(range(len(guest.dedicated), 99)),
            "MEMORY_MB": {guest.memory_mb},
        }.get(name) or {guest.memory_mb * 1024 // int(size)}
        if reason.requested not in asked:
            yield f"{asked} is asked"

    def limited(self) -> Iterator[str]:
        """As of a capacity; of devices, the limits are those of some providers of the class."""
        reason, name = self.reason, self.reason.resource or ""
        if reason.cell is not None or name in _OF_HOST or self.devices is None:
            yield from self.capacity()
            return
        if reason.requested <= reason.free:
            yield "so much is free"

    def _of_whole(self) -> Iterator[str]:
        """The host as a whole has less left than all guest cells take."""
        reason, name = self.reason, self.reason.resource or ""
        stock = self.rows.kept.rows[self.rows.root].stocks.get(name)
        if stock is None:
            yield "the host keeps none of it"
            return
        if (reason.bound, reason.used) != (stock.capacity, stock.used):
            yield f"it is {stock.used} of {stock.capacity}"
        yield from self._holds([(self.rows.root, name)])
        assert self.topology is not None
        if reason.requested < sum(self._asked(guest, name) for guest in self.topology.cells):
            yield "more is asked"
        if self._fit(range(len(self.topology.cells)), self.cells, is_whole=True):
            yield "it fits"

    @staticmethod
    def _asked(guest: Any, name: str) -> int:
        if name == "MEMORY_MB":
            return 0  # in pages of whichever size
        return len(guest.shared if name == "VCPU" else guest.dedicated)

    def physical(self) -> Iterator[str]:
        """Memory that is given out once: there is so much of it, and so much is used."""
        reason = self.reason
        assert reason.cell is not None
        facts, used = self.rows.facts(reason.cell), self.rows.figures(reason.cell, "MEMORY_MB")[1]
        if (reason.bound, reason.used) != (facts.ordinary_mb, used):
            yield f"it is {used} of {facts.ordinary_mb}"
        if reason.requested <= reason.free:
            yield "so much is free"
        yield from self._holds([(self.rows.cells[reason.cell], "MEMORY_MB")])
        yield from self._fits_not()

    def max_unit(self) -> Iterator[str]:
        reason = self.reason
        if reason.cell is None:
            yield "no cell is named"
            return
        facts = self.rows.facts(reason.cell)
        there = {"VCPU": len(facts.shared), "MEMORY_MB": facts.ordinary_mb}[reason.resource or ""]
        if reason.bound != there or reason.requested <= there:
            yield f"there are {there}"
        yield from self._fits_not()

    def indivisible(self) -> Iterator[str]:
        reason = self.reason
        if reason.requested * 1024 % reason.bound == 0:
            yield "it is a whole number of pages"
        yield from self._fits_not()

    def page_size(self) -> Iterator[str]:
        """No pages of the size are at the cell."""
        reason = self.reason
        assert self.topology is not None and reason.cell is not None
        sizes = [pool.size_kib for pool in self.rows.facts(reason.cell).pages]
        asked = self.topology.page_size
        has = {
            "large": len(sizes) > 1,
            "small": bool(sizes),
            "any": bool(sizes),
        }.get(asked, asked.isdigit() and int(asked) in sizes)
        if has:
            yield f"there are {sizes}"
        yield from self._fits_not()

    def threads(self) -> Iterator[str]:
        """A thread policy leaves so many CPUs of the cell."""
        reason = self.reason
        assert self.topology is not None and reason.cell is not None
        guest = self.topology.cells[self.guests[0]]
        most = self._most_threads(reason.cell)
        if (reason.requested, reason.bound) != (len(guest.dedicated), most):
            yield f"it is {most} of {len(guest.dedicated)}"
        if reason.requested <= reason.bound and not self._has_emulator:
            yield "so many are free"
        yield from self._holds([(self.rows.cells[reason.cell], "PCPU")])
        yield from self._fits_not()

    @property
    def _has_emulator(self) -> bool:
        assert self.topology is not None
        return self.topology.emulator_policy == "isolate" and 0 in self.guests

    def _most_threads(self, cell: int) -> int:
        assert self.topology is not None
        facts, usage = self.rows.facts(cell), self.rows.usage(cell)
        free = set(facts.dedicated) - set(usage.pinned)
        cores = [set(core) for core in facts.siblings]
        cores += [{cpu} for cpu in facts.dedicated if not any(cpu in core for core in cores)]
        policy = self.topology.thread_policy
        if policy == "isolate":
            return sum(core <= free for core in cores)
        if policy == "require":
            sizes = range(2, 1 + max(map(len, cores), default=1))
            return max((k * sum(len(core & free) >= k for core in cores) for k in sizes), default=0)
        return len(free)

    def emulator(self) -> Iterator[str]:
        """The guest cell would fit but for the emulator's core."""
        assert self.reason.cell is not None
        if not self._alone(0, cell=self.reason.cell, emulator_policy=None):
            # memory, or shared CPUs, may be short too, and are told then
            free = self._most_threads(self.reason.cell)
            assert self.topology is not None
            if free < len(self.topology.cells[0].dedicated):
                yield "it would not fit without the emulator"
        yield from self._holds([(self.rows.cells[self.reason.cell], "PCPU")])
        yield from self._fits_not()

    def host_cells(self) -> Iterator[str]:
        reason = self.reason
        assert self.topology is not None
        asked = len(self.topology.cells)
        if (reason.requested, reason.bound) != (asked, len(self.cells)) or asked <= reason.bound:
            yield f"there are {len(self.cells)} for {asked}"

    def together(self) -> Iterator[str]:
        """So many guest cells fit at most, each on a cell of its own."""
        reason = self.reason
        assert self.topology is not None
        count = len(self.topology.cells)
        if reason.requested != count or reason.bound >= count:
            yield f"{count} are asked"
        if self._fit(range(count), self.cells, is_whole=True):
            yield "they fit"
        if self._most(self.cells, is_whole=True) > reason.bound:
            yield "more of them fit"

    def _most(self, cells: Sequence[int], *, is_whole: bool) -> int:
        """Return how many guest cells fit at once at most, by trying everything."""
        assert self.topology is not None
        guests = range(len(self.topology.cells))
        for count in range(len(guests), 0, -1):
            for some in itertools.combinations(guests, count):
                if self._fit(some, cells, is_whole=False):
                    return count
        return 0

    def network(self) -> Iterator[str]:
        reason = self.reason
        assert self.topology is not None
        names = (reason.unit or "").removeprefix("each of ").split(", ")
        beside = [
            cell for cell in self.cells if all(self._is_next_to(cell, name) for name in names)
        ]
        guests = range(len(self.topology.cells))
        if len(names) == 1 and any(
            self._fit([guest], [cell], is_whole=False) for guest in guests for cell in beside
        ):
            yield "a cell next to it may be used"
        if self._fit(guests, self.cells, is_whole=True, one_socket=False):
            yield "it fits"

    def _is_next_to(self, cell: int, name: str) -> bool:
        facts = self.rows.facts(cell)
        return facts.tunneled if name == "tunnelled networks" else name in facts.physnets

    def one_socket(self) -> Iterator[str]:
        reason = self.reason
        assert self.topology is not None
        sockets: dict[int, list[int]] = {}
        for cell in self.cells:
            socket = self.rows.facts(cell).socket
            if socket is not None:
                sockets.setdefault(socket, []).append(cell)
        most = max((self._most(some, is_whole=False) for some in sockets.values()), default=0)
        # one guest cell is in one socket, known or not
        if reason.bound not in {most, max(most, 1)} or reason.requested <= reason.bound:
            yield f"at most {most} fit in one"

    def socket_unknown(self) -> Iterator[str]:
        assert self.reason.cell is not None
        if self.rows.facts(self.reason.cell).socket is not None:
            yield "its socket is known"

    # --- devices ---

    def _wanted(self) -> list[Any]:
        """Return the requests for devices that it may be about."""
        assert self.devices is not None
        reason = self.reason
        if reason.rule is Rule.AT_ONCE:
            return list(self.devices.requests)
        found = []
        for one in self.devices.requests:
            name = one.resource_class or DEVICES
            if reason.resource == name and reason.unit in (None, one.kinds):
                found.append(one)
        return found

    def _matching(self) -> list[Device]:
        wanted = self._wanted()
        return [
            one
            for one in self.rows.all_devices
            if self.may(self.rows.devices[one.address], DEVICES)
            and any(pci_reference.matches(request, one) for request in wanted)
        ]

    def of_devices(self) -> Iterator[str]:
        """Devices that would do are too few: some are had, or keep each other from being had."""
        reason = self.reason
        if self.devices is None:
            yield "no devices are asked for"
            return
        if reason.requested not in {one.count for one in self._wanted()}:
            yield f"{[one.count for one in self._wanted()]} are asked"
        every = [one for one in self._matching() if not self.rows.is_lost(one)]
        used = [one for one in every if self.rows.holders_of(one)]
        loose = self._loose()
        if reason.bound != len(every):
            yield f"there are {len(every)}"
        if not len(used) <= reason.used <= len(used) + sum(loose.values()):
            yield f"{len(used)} are used"
        yield from self._have(every)

    def _loose(self) -> dict[str, int]:
        """Return who has how many devices of which nobody knows which they are."""
        found: Counter[str] = Counter()
        names = {(self.rows.devices[one.address], one.resource_class) for one in self._matching()}
        related = {
            (self.rows.devices[other], one.resource_class)
            for mine in self._matching()
            for other in self.rows.in_the_way(mine)
            for one in self.rows.all_devices
            if one.address == other
        }
        for number, name in names | related:
            found.update(self.rows.loose(number, name or ""))
        return dict(found)

    def _have(self, devices: Sequence[Device]) -> Iterator[str]:
        own: Counter[tuple[int, str]] = Counter()
        keeps: Counter[tuple[int, str]] = Counter()
        for one in devices:
            at = self.rows.devices[one.address]
            keeps.update((at, who) for who in self.rows.holders_of(one))
            if (at, one.address) in self.rows.units:
                own[at, self.rows.units[at, one.address][1]] += 1
        held: Counter[str] = Counter()
        for (at, who), count in keeps.items():
            held[who] += own[at, who] or count
        loose = self._loose()
        told = dict(self.reason.holders)
        wrong = {
            who
            for who in {*told, *held}
            if not held[who] <= told.get(who, 0) <= held[who] + loose.get(who, 0)
        }
        if wrong:
            yield f"{dict(held)} hold them, and {loose} some"

    def no_inventory(self) -> Iterator[str]:
        name = self.reason.resource or ""
        if name == TOPOLOGY:
            some: Collection[Any] = self.rows.cells
        else:
            some = self._matching() if self.devices is not None else ()
        if some:
            yield "somebody has it"

    def affinity(self) -> Iterator[str]:
        """So many devices are near the host cells at most, whichever are chosen."""
        reason = self.reason
        if self.topology is None or self.devices is None:
            yield "it is about cells and devices"
            return
        if reason.requested <= reason.free:
            yield "so many are near"
        inventory = self.rows.inventory()
        sockets = {cell: self.rows.facts(cell).socket for cell in self.rows.cells}
        near: list[int] = []
        for cells in itertools.combinations(self.cells, len(self.topology.cells)):
            if numa_reference.has_placement(inventory, self.topology, self.rows.limit(), cells):
                near.append(self._near(cells, sockets))
        if not near:
            yield "the topology does not fit"
        elif reason.free not in near:
            yield f"{near} are near"
        yield from self._have([one for one in self._matching() if not self.rows.is_lost(one)])

    def _near(self, cells: Collection[int], sockets: Mapping[int, int | None]) -> int:
        """Return how many devices that would do are free, and near some host cells."""
        return sum(
            not self.rows.is_lost(one)
            and not self.rows.holders_of(one)
            and any(
                pci_reference.is_near(request.affinity, one.numa_node, cells, sockets)
                and pci_reference.matches(request, one)
                for request in self._wanted()
            )
            for one in self._matching()
        )

    def at_once(self) -> Iterator[str]:
        reason = self.reason
        assert self.devices is not None
        asked = sum(one.count for one in self.devices.requests)
        if reason.requested != asked or reason.bound >= asked:
            yield f"{asked} are asked"
        usable = [
            one
            for one in self.rows.all_devices
            if self.may(self.rows.devices[one.address], DEVICES)
        ]
        taken = [one for one in self.rows.uses() if one.address in {d.address for d in usable}]
        sockets = {cell: self.rows.facts(cell).socket for cell in self.rows.cells}
        where: list[Collection[int] | None] = [None]
        if self.topology is not None:
            inventory = self.rows.inventory()
            where = [
                cells
                for cells in itertools.combinations(self.cells, len(self.topology.cells))
                if numa_reference.has_placement(inventory, self.topology, self.rows.limit(), cells)
            ]
        most = max(
            (pci_reference.most(usable, taken, self.devices, at, sockets) for at in where),
            default=0,
        )
        if most > reason.bound:
            yield f"{most} can be had"
        yield from self._have([one for one in self._matching() if not self.rows.is_lost(one)])


def _numbered(cells: Iterable[GuestCell]) -> Iterator[GuestCell]:
    """Yield guest cells with their vCPUs numbered from 0 on."""
    following = itertools.count()
    for one in cells:
        shared = [next(following) for _ in one.shared]
        yield one.replace(shared=shared, dedicated=[next(following) for _ in one.dedicated])


_CHECKS: Mapping[Rule, Callable[[LocatedSentence], Iterator[str]]] = {
    Rule.CAPACITY: LocatedSentence.capacity,
    Rule.LIMIT: LocatedSentence.limited,
    Rule.PHYSICAL: LocatedSentence.physical,
    Rule.MAX_UNIT: LocatedSentence.max_unit,
    Rule.INDIVISIBLE: LocatedSentence.indivisible,
    Rule.PAGE_SIZE: LocatedSentence.page_size,
    Rule.THREADS: LocatedSentence.threads,
    Rule.EMULATOR: LocatedSentence.emulator,
    Rule.HOST_CELLS: LocatedSentence.host_cells,
    Rule.TOGETHER: LocatedSentence.together,
    Rule.NETWORK: LocatedSentence.network,
    Rule.ONE_SOCKET: LocatedSentence.one_socket,
    Rule.SOCKET_UNKNOWN: LocatedSentence.socket_unknown,
    Rule.NO_INVENTORY: LocatedSentence.no_inventory,
    Rule.AFFINITY: LocatedSentence.affinity,
    Rule.AT_ONCE: LocatedSentence.at_once,
}
