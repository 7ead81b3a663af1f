"""Usage: who uses how much of what, read at one moment."""

from __future__ import annotations

import dataclasses
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from resource_objects import exceptions
from resource_objects.names import resource_class_order
from resource_objects.providers.columns import (
    Columns,
    InventoryColumns,
    KindColumns,
    trees,
)
from resource_objects.providers.disabled import Disabled
from resource_objects.providers.provider import Provider
from resource_objects.providers.removed_units import free_removed_units
from resource_objects.resources.records import InventoryRecord


@dataclasses.dataclass(frozen=True, slots=True)
class InventoryUsage:
    """What is used of one resource at one provider.

    ``holders`` are (consumer, amount) pairs of what is held here; what is held elsewhere and uses
    it too (shares) is in ``used`` alone. ``elsewhere`` is for how many units there is room where
    each of them uses something too, None if that is nowhere. ``disabled`` is why the provider, or
    what is above it, is out of service: then nobody can take what is free.
    """

    provider: str
    depth: int
    resource_class: str
    total: int
    reserved: int
    capacity: int
    used: int
    holders: tuple[tuple[str, int], ...]
    elsewhere: int | None = None
    disabled: Disabled | None = None

    @property
    def free(self) -> int:
        """Capacity minus use, or less if an inventory that this one draws on has less (D2).

        Unlike :meth:`.Snapshot.free` it is not 0 for a disabled provider (see ``disabled``), and it
        is negative when over-full.
        """
        left = self.capacity - self.used
        return left if self.elsewhere is None else min(left, self.elsewhere)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        said = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        said["disabled"] = None if self.disabled is None else self.disabled.to_dict()
        return {**said, "free": self.free, "holders": dict(self.holders)}


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """What is used, provider by provider, and the trees it was read from.

    ``providers`` are the roots, with the inventories that are kept as one figure each: what a
    structured one is, ``ledger.trees()`` tells.

    ``uses`` has an :class:`InventoryUsage` per inventory, parents before children;
    ``usage[provider, class]`` finds one. :attr:`consumers` sums by consumer.
    """

    providers: tuple[Provider, ...]
    uses: tuple[InventoryUsage, ...]

    def __iter__(self) -> Iterator[InventoryUsage]:
        return iter(self.uses)

    def __getitem__(self, key: tuple[str, str]) -> InventoryUsage:
        for use in self.uses:
            if (use.provider, use.resource_class) == key:
                return use
        raise exceptions.InvalidInput(
            "name", "usage", key, "a (provider name, resource class) that is kept"
        )

    @classmethod
    def joined(cls, parts: Iterable[Usage]) -> Usage:
        """Return the usage of several reads as one."""
        every = list(parts)
        return cls(
            tuple(root for one in every for root in one.providers),
            tuple(use for one in every for use in one.uses),
        )

    def only(self, uses: Iterable[InventoryUsage]) -> Usage:
        """Return the same trees, with some of their uses."""
        return dataclasses.replace(self, uses=tuple(uses))

    @property
    def consumers(self) -> dict[str, dict[str, int]]:
        """``{consumer: {resource class: amount}}``, by name."""
        found: dict[str, dict[str, int]] = {}
        for use in self.uses:
            for consumer, amount in use.holders:
                held = found.setdefault(consumer, {})
                held[use.resource_class] = held.get(use.resource_class, 0) + amount
        return dict(sorted(found.items()))

    @property
    def over_capacity(self) -> tuple[InventoryUsage, ...]:
        """What is used beyond its capacity, after a shrink."""
        return tuple(use for use in self.uses if use.used > use.capacity)

    def __str__(self) -> str:
        return "\n".join(
            f"{use.provider}: {use.resource_class} {use.used} of {use.capacity}"
            for use in self.uses
        )


def usage_of(columns: Columns) -> Usage:
    """Return the usage in columns. Cost: linear in the rows.

    A description that cannot be read hides no figures. Units that were removed from the host while
    they were allocated are no part of the capacity once they are free.
    """
    numbers = columns.index.numbers
    holders: dict[_Place, list[tuple[str, int]]] = defaultdict(list)
    for number, kind, consumer, amount in zip(*columns.allocations, strict=True):
        holders[number, kind].append((consumer, amount))
    records = columns.index.inventories
    removed = free_removed_units(columns).amounts
    elsewhere = _elsewhere(columns, removed)
    roots = tuple(trees(_plain(columns)))
    uses = tuple(
        _use(
            provider,
            depth,
            record,
            record.capacity - removed[number, record.resource_class],
            holders.get((number, record.resource_class), []),
            elsewhere.get((number, record.resource_class)),
            disabled,
        )
        for provider, depth, disabled in _with_depth(roots)
        for number in [numbers[provider.uuid or ""]]
        for record in sorted(records.get(number, ()), key=_in_order)
    )
    return Usage(roots, uses)


_Place = tuple[int, str]  # provider, class


def _elsewhere(columns: Columns, removed: Mapping[_Place, int]) -> dict[_Place, int]:
    """Return for how many units of each inventory there is room in what they share."""
    table, found = columns.inventories, dict[_Place, int]()
    places = zip(table.provider_id, table.resource_class, strict=True)
    left = dict(zip(places, map(operator.sub, table.capacity, table.used), strict=True))
    for place, count in removed.items():
        left[place] -= count
    for number, kind, of_number, of_kind, factor in zip(*columns.shares, strict=True):
        most = left[of_number, of_kind] // factor
        found[number, kind] = min(most, found.get((number, kind), most))
    return found


def _in_order(record: InventoryRecord) -> tuple[int, str]:
    """Sort records as their classes are listed everywhere."""
    return resource_class_order(record.resource_class)


def _plain(columns: Columns) -> Columns:
    """Return columns without structured inventories."""
    kinds = columns.kinds
    structured = {
        (number, name)
        for number, classes in zip(kinds.provider_id, kinds.classes, strict=True)
        for name in classes
    }
    if not structured:
        return columns
    left = [row for row in zip(*columns.inventories, strict=True) if row[:2] not in structured]
    plain = InventoryColumns(*zip(*left, strict=True)) if left else InventoryColumns()
    return dataclasses.replace(columns, inventories=plain, kinds=KindColumns())


def _with_depth(
    providers: tuple[Provider, ...], depth: int = 0, above: Disabled | None = None
) -> Iterator[tuple[Provider, int, Disabled | None]]:
    """Yield each provider, how deep it is, and why it is out of service, or what is above it."""
    for provider in providers:
        disabled = provider.disabled or above
        yield provider, depth, disabled
        yield from _with_depth(provider.children, depth + 1, disabled)


def _use(
    provider: Provider,
    depth: int,
    record: InventoryRecord,
    capacity: int,
    holders: list[tuple[str, int]],
    elsewhere: int | None,
    disabled: Disabled | None,
) -> InventoryUsage:
    return InventoryUsage(
        provider.name,
        depth,
        record.resource_class,
        record.total,
        record.reserved,
        capacity,
        record.used,
        tuple(sorted(holders)),
        elsewhere,
        disabled,
    )
