"""Who has what, host by host: the classes of each with what is free, and who holds how much.

A device may be had in parts (:mod:`resource_objects.host.partitions`): its provider has an
inventory of the device itself, which uses all of its slices, and partitions use some of them. Here
all of that is one device: what consumers hold of its slices and partitions is a fraction of it, the
largest over its slices, and what is left of it is the smallest. So is what they hold of partitions
that are providers of their own.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from resource_objects import exceptions
from resource_objects.names import natural_order, resource_class_order
from resource_objects.resources.catalog import is_device
from resource_objects.search.arrays import Booleans
from resource_objects.search.fleet import ClassRows, Fleet


@dataclasses.dataclass(frozen=True, slots=True)
class ClassUsage:
    """What is used and free of one class, over all providers of a host.

    Of devices that can be had in parts, ``used`` counts each of which somebody has something, and
    ``free`` those that can be had whole; ``parts`` is what is left of each of the others of which
    something is left, the largest first.
    """

    resource_class: str
    capacity: int
    used: int
    free: int
    parts: tuple[Fraction, ...] = ()
    #: whether each unit is a thing of its own, such as a GPU
    is_device: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "resource_class": self.resource_class,
            "capacity": self.capacity,
            "used": self.used,
            "free": self.free,
            "parts": list(map(str, self.parts)),
        }

    def __str__(self) -> str:
        parts = f" and {', '.join(map(str, self.parts))} of one" if self.parts else ""
        return f"{self.resource_class} {self.used} of {self.capacity}, {self.free}{parts} free"


@dataclasses.dataclass(frozen=True, slots=True)
class HostHolder:
    """What one consumer holds of a host.

    ``amounts`` are what it holds, by class, as the ledger has them; ``shown`` are the same, what it
    holds of devices in parts as fractions of these devices, summed.
    """

    consumer: str
    amounts: tuple[tuple[str, int], ...]
    shown: tuple[tuple[str, int | Fraction], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "consumer": self.consumer,
            "amounts": dict(self.amounts),
            "shown": {name: str(amount) for name, amount in self.shown},
        }

    def __str__(self) -> str:
        held = ", ".join(f"{name} {amount}" for name, amount in self.shown)
        return f"{self.consumer} {held}"


@dataclasses.dataclass(frozen=True, slots=True)
class HostUsage:
    """What is used and free of a host, class by class, and who holds how much of it.

    Devices come first, then other classes, each in the order of ``os-resource-classes``; who holds
    most of the first class comes first.
    """

    host: str
    classes: tuple[ClassUsage, ...]
    holders: tuple[HostHolder, ...]
    is_disabled: bool = False  #: whether it is out of service, as a whole

    def __getitem__(self, resource_class: str) -> ClassUsage:
        for one in self.classes:
            if one.resource_class == resource_class:
                return one
        raise exceptions.InvalidInput(
            "name", "host usage", resource_class, f"a class of {self.host}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "host": self.host,
            "is_disabled": self.is_disabled,
            "classes": [one.to_dict() for one in self.classes],
            "holders": [one.to_dict() for one in self.holders],
        }

    def __str__(self) -> str:
        disabled = ["disabled"] if self.is_disabled else []
        return f"{self.host}: {'; '.join([*disabled, *map(str, (*self.classes, *self.holders))])}"


def host_usage(
    fleet: Fleet, now: Fleet, hosts: Collection[str] | None, consumers: Collection[str] | None
) -> Iterator[HostUsage]:
    """Yield the usage of hosts, in natural order.

    :param fleet: with all units, also those that are out of service alone: they are of the capacity
    :param now: the same without these: they are not free
    :param hosts: only these
    :param consumers: only what these hold, and only hosts where they hold something
    """
    pools = fleet.pools.trees
    trees = {
        tree: name
        for tree, name in enumerate(fleet.hosts)
        if fleet.is_within(tree) and tree not in pools and (hosts is None or name in hosts)
    }
    devices = Devices(fleet, now)
    disabled = fleet.disabled_mask()
    held = _held(devices, trees, consumers)
    classes = _classes(devices, disabled)
    for tree, name in sorted(trees.items(), key=lambda one: natural_order(one[1])):
        if consumers is not None and tree not in held:
            continue
        here = classes.get(tree, ())
        holders = held.get(tree, {})
        out = disabled is not None and bool(disabled[fleet.roots[tree]])
        yield HostUsage(name, tuple(here), tuple(_holders(holders, here)), out)


# --- what is had of a device in parts -------------------------------------------------------------


class Use(NamedTuple):
    """What one unit of an inventory is of a device."""

    device: int  #: the inventory of the device itself, by number
    part: Fraction  #: of it


class Devices:
    """The devices of a fleet that can be had in parts, and what is a part of them.

    Such a device is an inventory of one unit below or at a host that uses all of some slices of its
    own provider. Where several do (a partition that is all of the device), it is the first by the
    order of classes. Cost: some passes over the arrays of shares.
    """

    def __init__(self, fleet: Fleet, now: Fleet) -> None:
        """:param now: the same fleet without the units that are out of service alone"""
        self.fleet = fleet
        self.now = now
        shares, kept = fleet.shares, fleet.inventories
        found = np.zeros(len(kept.tree), dtype=np.bool_)
        if shares:
            source, target = shares.source, shares.target
            whole = (kept.provider[source] == kept.provider[target]) & (
                kept.capacity[target] == shares.factor
            )
            found[source] = True
            found[source[~whole]] = False
            found &= kept.capacity == 1
            found = self._first(found)
        #: the devices, as flags by number of inventory
        self.is_whole: Booleans = found
        slices = np.zeros_like(found)
        slices[shares.target[found[shares.source]]] = True
        parts = slices.copy()
        parts[shares.source[slices[shares.target]]] = True
        #: slices and partitions of devices, as flags by number of inventory
        self.is_part: Booleans = parts & ~found
        self._slices = slices

    def _first(self, found: Booleans) -> Booleans:
        """Return of each provider the first alone, by the order of classes."""
        fleet = self.fleet
        numbers = np.flatnonzero(found)
        places = fleet.inventories.provider[numbers]
        if len(np.unique(places)) == len(places):
            return found
        chosen: dict[int, int] = {}
        for number, place in zip(numbers.tolist(), places.tolist(), strict=True):
            before = chosen.get(place)
            if before is None or self._order(number) < self._order(before):
                chosen[place] = number
        kept = np.zeros_like(found)
        kept[list(chosen.values())] = True
        return kept

    def _order(self, number: int) -> tuple[int, str]:
        return resource_class_order(self.fleet.class_of(number))

    @functools.cached_property
    def part_classes(self) -> frozenset[str]:
        """The classes of slices and partitions."""
        return frozenset(self.fleet.classes_of(np.flatnonzero(self.is_part)))

    @functools.cached_property
    def _whole_of(self) -> dict[int, int]:
        """The device that each slice is of."""
        shares = self.fleet.shares
        of = self.is_whole[shares.source]
        return dict(zip(shares.target[of].tolist(), shares.source[of].tolist(), strict=True))

    def use(self, number: int) -> Use:
        """Return what a unit of a slice or partition is of its device."""
        capacity = self.fleet.inventories.capacity
        if self._slices[number]:
            return Use(self._whole_of[number], Fraction(1, int(capacity[number])))
        uses = [(t, f) for t, f in self.fleet.shares.of(number) if self._slices[t]]
        part = max(Fraction(factor, int(capacity[target])) for target, factor in uses)
        return Use(self._whole_of[uses[0][0]], part)

    def left(self, number: int) -> Fraction:
        """Return what is left of a device: the smallest part over its slices, 1 at most."""
        if self.now.left(number) <= 0:
            return Fraction(0)
        parts = [Fraction(self.now.left(t), f) for t, f in self.fleet.shares.of(number)]
        return min(Fraction(1), max(Fraction(0), min(parts)))


# --- classes --------------------------------------------------------------------------------------


def _classes(devices: Devices, disabled: Booleans | None) -> dict[int, list[ClassUsage]]:
    """Return the classes of each tree, devices first."""
    fleet = devices.fleet
    found: dict[int, list[ClassUsage]] = {}
    told = [(name, _is_of_devices(devices, name, rows)) for name, rows in fleet.classes.items()]
    told.sort(key=lambda one: (not one[1], resource_class_order(one[0])))
    for name, is_thing in told:
        rows = fleet.classes[name]
        here = slice(rows.first, rows.first + len(rows.tree))
        some = fleet.counted(rows) & ~devices.is_part[here]
        entries = np.flatnonzero(some)
        if not len(entries):
            continue
        tree = rows.tree[entries]
        whole = devices.is_whole[here][entries]
        used = rows.used[entries].copy()
        used[whole & (used == 0) & (rows.free[entries] <= 0)] = 1
        free = devices.now.free(devices.now.rows(name))[entries]
        parts: dict[int, list[Fraction]] = {}
        if whole.any():
            for entry in entries[whole & (rows.used[entries] == 0) & (used == 1)].tolist():
                left = devices.left(rows.first + entry)
                if disabled is not None and disabled[rows.provider[entry]]:
                    continue
                if left:
                    parts.setdefault(int(rows.tree[entry]), []).append(left)
        starts = np.flatnonzero(np.diff(tree, prepend=-1))
        columns = (
            tree[starts],
            *(np.add.reduceat(column, starts) for column in (rows.capacity[entries], used, free)),
        )
        for number, *figures in zip(*(column.tolist() for column in columns), strict=True):
            left_of = tuple(sorted(parts.get(number, ()), reverse=True))
            capacity, taken, untaken = figures
            told_of = ClassUsage(name, capacity, taken, untaken, left_of, is_thing)
            found.setdefault(number, []).append(told_of)
    return found


def _is_of_devices(devices: Devices, name: str, rows: ClassRows) -> bool:
    """Return whether a class is of devices: by its name, or since they can be had in parts."""
    whole = devices.is_whole[rows.first : rows.first + len(rows.tree)]
    return is_device(name) or bool(whole.any())


# --- holders --------------------------------------------------------------------------------------


class _Held:
    """What a consumer holds of one host, by class: as it is kept, and devices as fractions."""

    __slots__ = ("amounts", "shown")

    def __init__(self) -> None:
        self.amounts: dict[str, int] = {}
        self.shown: dict[str, int | Fraction] = {}


def _held(
    devices: Devices, trees: Mapping[int, str], consumers: Collection[str] | None
) -> dict[int, dict[str, _Held]]:
    """Return what consumers hold, by tree and consumer. Cost: linear in all allocations."""
    fleet = devices.fleet
    tree_of = fleet.tree.tolist()
    parts = devices.part_classes
    found: dict[int, dict[str, _Held]] = {}
    for place, (name, consumer, amount) in fleet.allocations.all():
        tree = tree_of[place]
        if tree not in trees or (consumers is not None and consumer not in consumers):
            continue
        held = found.setdefault(tree, {}).get(consumer)
        if held is None:
            held = found[tree][consumer] = _Held()
        held.amounts[name] = held.amounts.get(name, 0) + amount
        shown, seen = name, amount
        if name in parts:
            number = fleet.number(place, name)
            if number is not None and devices.is_part[number]:
                device, part = devices.use(number)
                shown, seen = fleet.class_of(device), amount * part
        held.shown[shown] = held.shown.get(shown, 0) + seen
    return found


def _holders(held: Mapping[str, _Held], classes: Sequence[ClassUsage]) -> Iterator[HostHolder]:
    """Yield the consumers of a host: by how much they hold of its first class, and so on."""
    order = [one.resource_class for one in classes]

    def by_most(one: tuple[str, _Held]) -> tuple[Any, ...]:
        return *(-one[1].shown.get(name, 0) for name in order), natural_order(one[0])

    rank = {name: number for number, name in enumerate(order)}
    for consumer, one in sorted(held.items(), key=by_most) if len(held) > 1 else held.items():
        shown = sorted(one.shown.items(), key=lambda item: rank.get(item[0], len(rank)))
        amounts = sorted(one.amounts.items(), key=lambda item: resource_class_order(item[0]))
        yield HostHolder(consumer, tuple(amounts), tuple(shown))
