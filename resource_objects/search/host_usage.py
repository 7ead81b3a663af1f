"""The usage of hosts: what is used and free of each resource class, and by which consumers.

A device may be provided in parts (:mod:`resource_objects.host.partitions`): its provider has an
inventory of the whole device, which uses all of its slices, and partitions, which use some of them.
Here all of that is one device. The slices and partitions of a consumer are a fraction of it, the
largest over its slices, and its free part is the smallest over its slices. Partitions may also be
providers of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from resource_objects import exceptions
from resource_objects.names import natural_order, resource_class_order
from resource_objects.resources.catalog import is_device
from resource_objects.search.arrays import Booleans
from resource_objects.search.fleet import Fleet


@dataclasses.dataclass(frozen=True, slots=True)
class ClassUsage:
    """The usage of one resource class over all providers of a host.

    For devices that can be provided in parts, ``used`` counts each device with an allocation, and
    ``free`` the devices that are free as a whole. ``parts`` are the free fractions of the other
    devices, the largest first.
    """

    resource_class: str
    capacity: int
    used: int
    free: int
    parts: tuple[Fraction, ...] = ()
    #: whether each unit is a device of its own, such as a GPU
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
    """The usage of a host by one consumer.

    ``amounts`` are its allocations by class, as the ledger has them. ``shown`` are the same, but
    slices and partitions as fractions of their devices, summed.
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
        amounts = ", ".join(f"{name} {amount}" for name, amount in self.shown)
        return f"{self.consumer} {amounts}"


@dataclasses.dataclass(frozen=True, slots=True)
class HostUsage:
    """The usage of a host by class and by consumer.

    Classes of devices come first, then other classes, each in the order of ``os-resource-classes``.
    Consumers are sorted by their amount of the first class, the largest first.
    """

    host: str
    classes: tuple[ClassUsage, ...]
    holders: tuple[HostHolder, ...]
    is_disabled: bool = False  #: whether the whole host is disabled

    def __getitem__(self, resource_class: str) -> ClassUsage:
        for usage in self.classes:
            if usage.resource_class == resource_class:
                return usage
        raise exceptions.InvalidInput(
            "name", "host usage", resource_class, f"a class of {self.host}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "host": self.host,
            "is_disabled": self.is_disabled,
            "classes": [usage.to_dict() for usage in self.classes],
            "holders": [holder.to_dict() for holder in self.holders],
        }

    def __str__(self) -> str:
        disabled = ["disabled"] if self.is_disabled else []
        return f"{self.host}: {'; '.join([*disabled, *map(str, (*self.classes, *self.holders))])}"


def host_usage(
    fleet: Fleet, now: Fleet, hosts: Collection[str] | None, consumers: Collection[str] | None
) -> Iterator[HostUsage]:
    """Yield the usage of hosts, in natural order.

    :param fleet: with all units; those that were removed count as capacity
    :param now: the same without free units that were removed: these are not free
    :param hosts: only these; None for all
    :param consumers: only the usage of these, and only hosts that they use; None for all
    """
    names = {
        tree: name
        for tree, name in enumerate(fleet.hosts)
        if fleet.is_within(tree)
        and tree not in fleet.pools.trees
        and (hosts is None or name in hosts)
    }
    devices = _Devices(fleet, now)
    disabled = fleet.disabled_mask()
    amounts = _amounts(devices, names, consumers)
    classes = _classes(devices, disabled)
    for tree, name in sorted(names.items(), key=lambda pair: natural_order(pair[1])):
        if consumers is None or tree in amounts:
            of_host = classes.get(tree, ())
            holders = tuple(_holders(amounts.get(tree, {}), of_host))
            is_disabled = disabled is not None and bool(disabled[fleet.roots[tree]])
            yield HostUsage(name, tuple(of_host), holders, is_disabled)


class _Devices:
    """The devices of a fleet that can be provided in parts, with their slices and partitions.

    Such a device is an inventory of one unit that uses all of some slices of its own provider. If
    several do, because a partition is the whole device, it is the first in the order of classes.
    ``is_whole`` and ``is_part`` are the devices, and their slices and partitions, as flags by
    inventory; ``part_classes`` the classes of the latter. Cost: some passes over the shares.
    """

    def __init__(self, fleet: Fleet, now: Fleet) -> None:
        self.fleet, self.now = fleet, now
        shares, rows = fleet.shares, fleet.inventories
        source, target = shares.source, shares.target
        uses_all = (rows.provider[source] == rows.provider[target]) & (
            rows.capacity[target] == shares.factor
        )
        self.is_whole = np.zeros(len(rows.tree), dtype=np.bool_)
        self.is_whole[source] = True
        self.is_whole[source[~uses_all]] = False
        self.is_whole &= rows.capacity == 1
        first: dict[int, int] = {}
        for number in np.flatnonzero(self.is_whole).tolist():
            other = first.setdefault(int(rows.provider[number]), number)
            if other != number:
                pair = sorted((other, number), key=self._order)
                first[int(rows.provider[number])] = pair[0]
                self.is_whole[pair[1]] = False
        of_device = self.is_whole[source]
        #: the device of each slice
        self._device_of = dict(
            zip(target[of_device].tolist(), source[of_device].tolist(), strict=True)
        )
        self.is_part = np.zeros(len(rows.tree), dtype=np.bool_)
        self.is_part[target[of_device]] = True
        self.is_part[source[self.is_part[target]]] = True
        self.is_part &= ~self.is_whole
        self.part_classes = set(fleet.by_class.names_of(np.flatnonzero(self.is_part)))

    def _order(self, number: int) -> tuple[int, str]:
        return resource_class_order(self.fleet.class_of(number))

    def fraction(self, number: int) -> tuple[int, Fraction]:
        """Return the device of a slice or partition, and which fraction of it a unit is."""
        capacity = self.fleet.inventories.capacity
        if number in self._device_of:
            return self._device_of[number], Fraction(1, int(capacity[number]))
        shares = [share for share in self.fleet.shares.of(number) if share[0] in self._device_of]
        part = max(Fraction(factor, int(capacity[target])) for target, factor in shares)
        return self._device_of[shares[0][0]], part

    def free_part(self, number: int) -> Fraction:
        """Return the free fraction of a device: the smallest over its slices, at most 1."""
        if self.now.left(number) <= 0:
            return Fraction(0)
        parts = [Fraction(self.now.left(t), f) for t, f in self.fleet.shares.of(number)]
        return min(Fraction(1), max(Fraction(0), min(parts)))


def _classes(devices: _Devices, disabled: Booleans | None) -> dict[int, list[ClassUsage]]:
    """Return the usage of each class by tree, devices first."""
    fleet = devices.fleet
    classes: dict[int, list[ClassUsage]] = {}
    ordered = sorted(
        (not (is_device(name) or bool(devices.is_whole[span].any())), resource_class_order(name))
        for name, span in zip(fleet.by_class, map(fleet.by_class.span, fleet.by_class), strict=True)
    )
    for is_plain, (_, name) in ordered:
        rows, span = fleet.classes[name], fleet.by_class.span(name)
        entries = np.flatnonzero(fleet.counted(rows) & ~devices.is_part[span])
        if not len(entries):
            continue
        tree, used = rows.tree[entries], rows.used[entries].copy()
        is_split = devices.is_whole[span][entries] & (used == 0) & (rows.free[entries] <= 0)
        used[is_split] = 1  # its parts are used
        free = devices.now.free(devices.now.rows(name))[entries]
        parts: dict[int, list[Fraction]] = {}
        for entry in entries[is_split].tolist():
            part = devices.free_part(rows.first + entry)
            if part and not (disabled is not None and disabled[rows.provider[entry]]):
                parts.setdefault(int(rows.tree[entry]), []).append(part)
        starts = np.flatnonzero(np.diff(tree, prepend=-1))
        sums = [np.add.reduceat(column, starts) for column in (rows.capacity[entries], used, free)]
        columns = [column.tolist() for column in (tree[starts], *sums)]
        for number, capacity, n_used, n_free in zip(*columns, strict=True):
            free_parts = tuple(sorted(parts.get(number, ()), reverse=True))
            usage = ClassUsage(name, capacity, n_used, n_free, free_parts, not is_plain)
            classes.setdefault(number, []).append(usage)
    return classes


#: The amounts of a consumer by class: as the ledger has them, and as they are shown.
_Amounts = tuple[dict[str, int], dict[str, int | Fraction]]


def _amounts(
    devices: _Devices, trees: Collection[int], consumers: Collection[str] | None
) -> dict[int, dict[str, _Amounts]]:
    """Return the amounts of consumers by tree. Cost: linear in all allocations."""
    fleet = devices.fleet
    tree_of = fleet.tree.tolist()
    amounts: dict[int, dict[str, _Amounts]] = {}
    for place, (name, consumer, amount) in fleet.allocations.all():
        tree = tree_of[place]
        if tree not in trees or (consumers is not None and consumer not in consumers):
            continue
        stored, shown = amounts.setdefault(tree, {}).setdefault(consumer, ({}, {}))
        stored[name] = stored.get(name, 0) + amount
        shown_name: str = name
        shown_amount: int | Fraction = amount
        number = fleet.number(place, name) if name in devices.part_classes else None
        if number is not None and devices.is_part[number]:
            device, part = devices.fraction(number)
            shown_name, shown_amount = fleet.class_of(device), amount * part
        shown[shown_name] = shown.get(shown_name, 0) + shown_amount
    return amounts


def _holders(
    amounts: Mapping[str, _Amounts], classes: Sequence[ClassUsage]
) -> Iterator[HostHolder]:
    """Yield the consumers of a host by their amounts of its first class, its second, and so on."""
    rank = {usage.resource_class: number for number, usage in enumerate(classes)}

    def order(item: tuple[str, _Amounts]) -> tuple[Any, ...]:
        consumer, (_, shown) = item
        return *(-shown.get(name, 0) for name in rank), natural_order(consumer)

    for consumer, (stored, shown) in sorted(amounts.items(), key=order):
        yield HostHolder(
            consumer,
            tuple(sorted(stored.items(), key=lambda item: resource_class_order(item[0]))),
            tuple(sorted(shown.items(), key=lambda item: rank.get(item[0], len(rank)))),
        )
