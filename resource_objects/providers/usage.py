"""The usage of inventories by consumers, read at one moment."""

from __future__ import annotations

import dataclasses
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from resource_objects import exceptions
from resource_objects.names import resource_class_order
from resource_objects.providers.columns import Columns, InventoryColumns, KindColumns, trees
from resource_objects.providers.disabled import Disabled
from resource_objects.providers.provider import Provider
from resource_objects.providers.tree_shape import free_removed_units


@dataclasses.dataclass(frozen=True, slots=True)
class InventoryUsage:
    """The usage of one inventory.

    ``holders`` are the (consumer, amount) pairs of the allocations of this inventory. ``used``
    also includes the use by shares of other inventories. ``elsewhere`` is the number of units that
    fit into the inventories that this one shares, None if it shares none. ``disabled`` is the
    reason why the provider or an ancestor is disabled: then nothing of it can be allocated.
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
        """Capacity minus use, or the lower limit of the inventories that it shares.

        Unlike :meth:`.Snapshot.free` it is not 0 for a disabled provider (see ``disabled``), and it
        is negative if the use exceeds the capacity.
        """
        free = self.capacity - self.used
        return free if self.elsewhere is None else min(free, self.elsewhere)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        data["disabled"] = None if self.disabled is None else self.disabled.to_dict()
        return {**data, "free": self.free, "holders": dict(self.holders)}


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """The usage by provider, with the trees that it was read from.

    ``providers`` are the roots, without structured inventories: ``ledger.trees()`` returns those.

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
            "name", "usage", key, "a (provider name, resource class) of a stored inventory"
        )

    @classmethod
    def joined(cls, parts: Iterable[Usage]) -> Usage:
        """Return the usage of several reads as one."""
        usages = list(parts)
        return cls(
            tuple(root for part in usages for root in part.providers),
            tuple(use for part in usages for use in part.uses),
        )

    def only(self, uses: Iterable[InventoryUsage]) -> Usage:
        """Return the usage of some inventories."""
        return dataclasses.replace(self, uses=tuple(uses))

    @property
    def consumers(self) -> dict[str, dict[str, int]]:
        """``{consumer: {resource class: amount}}``, by name."""
        amounts: dict[str, dict[str, int]] = {}
        for use in self.uses:
            for consumer, amount in use.holders:
                allocated = amounts.setdefault(consumer, {})
                allocated[use.resource_class] = allocated.get(use.resource_class, 0) + amount
        return dict(sorted(amounts.items()))

    @property
    def over_capacity(self) -> tuple[InventoryUsage, ...]:
        """The inventories whose use exceeds their capacity, for example after a shrink."""
        return tuple(use for use in self.uses if use.used > use.capacity)

    def __str__(self) -> str:
        return "\n".join(
            f"{use.provider}: {use.resource_class} {use.used} of {use.capacity}"
            for use in self.uses
        )


def usage_of(columns: Columns) -> Usage:
    """Return the usage in columns. Cost: linear in the rows.

    A structured inventory that cannot be read does not hide its figures. Units that were removed
    from the host while allocated do not count towards the capacity once they are free.
    """
    numbers, records = columns.index.numbers, columns.index.inventories
    holders: dict[_Place, list[tuple[str, int]]] = defaultdict(list)
    for number, kind, consumer, amount in zip(*columns.allocations, strict=True):
        holders[number, kind].append((consumer, amount))
    removed = free_removed_units(columns).amounts
    elsewhere = _elsewhere(columns, removed)
    roots = tuple(trees(_plain(columns)))
    uses = tuple(
        InventoryUsage(
            provider.name,
            depth,
            record.resource_class,
            record.total,
            record.reserved,
            record.capacity - removed[number, record.resource_class],
            record.used,
            tuple(sorted(holders.get((number, record.resource_class), ()))),
            elsewhere.get((number, record.resource_class)),
            disabled,
        )
        for provider, depth, disabled in _with_depth(roots)
        for number in [numbers[provider.uuid or ""]]
        for record in sorted(
            records.get(number, ()), key=lambda record: resource_class_order(record.resource_class)
        )
    )
    return Usage(roots, uses)


_Place = tuple[int, str]  # provider, class


def _elsewhere(columns: Columns, removed: Mapping[_Place, int]) -> dict[_Place, int]:
    """Return the number of units of each sharer that fit into the inventories it shares."""
    table, amounts = columns.inventories, dict[_Place, int]()
    places = zip(table.provider_id, table.resource_class, strict=True)
    free = dict(zip(places, map(operator.sub, table.capacity, table.used), strict=True))
    for place, count in removed.items():
        free[place] -= count
    for number, kind, of_number, of_kind, factor in zip(*columns.shares, strict=True):
        most = free[of_number, of_kind] // factor
        amounts[number, kind] = min(most, amounts.get((number, kind), most))
    return amounts


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
    rows = [row for row in zip(*columns.inventories, strict=True) if row[:2] not in structured]
    plain = InventoryColumns(*zip(*rows, strict=True)) if rows else InventoryColumns()
    return dataclasses.replace(columns, inventories=plain, kinds=KindColumns())


def _with_depth(
    providers: tuple[Provider, ...], depth: int = 0, above: Disabled | None = None
) -> Iterator[tuple[Provider, int, Disabled | None]]:
    """Yield each provider with its depth and the reason why it or an ancestor is disabled."""
    for provider in providers:
        disabled = provider.disabled or above
        yield provider, depth, disabled
        yield from _with_depth(provider.children, depth + 1, disabled)
