"""Usage: who uses how much of what, read at one moment."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from resource_objects import exceptions
from resource_objects.providers.columns import Columns, trees
from resource_objects.providers.provider import Provider
from resource_objects.resources.records import InventoryRecord


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """What is used of one resource at one provider; ``holders`` are (consumer, amount) pairs."""

    provider: str
    depth: int
    resource_class: str
    total: int
    reserved: int
    capacity: int
    used: int
    holders: tuple[tuple[str, int], ...]

    @property
    def free(self) -> int:
        """Units left, negative when over-full."""
        return self.capacity - self.used

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**dataclasses.asdict(self), "free": self.free, "holders": dict(self.holders)}


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """What is used, provider by provider, and the trees it was read from.

    ``uses`` has a :class:`Use` per inventory, parents before children. ``usage[provider, class]``
    finds one. :attr:`consumers` sums by consumer.
    """

    providers: tuple[Provider, ...]
    uses: tuple[Use, ...]

    def __iter__(self) -> Iterator[Use]:
        return iter(self.uses)

    def __getitem__(self, key: tuple[str, str]) -> Use:
        for use in self.uses:
            if (use.provider, use.resource_class) == key:
                return use
        raise exceptions.InvalidName("usage", key, "a (provider name, resource class) that is kept")

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
    def over_capacity(self) -> tuple[Use, ...]:
        """What is used beyond its capacity, after a shrink."""
        return tuple(use for use in self.uses if use.free < 0)

    def __str__(self) -> str:
        return "\n".join(
            f"{use.provider}: {use.resource_class} {use.used} of {use.capacity}"
            for use in self.uses
        )


def usage_of(columns: Columns) -> Usage:
    """Return the usage that columns tell. Cost: linear in the rows."""
    names = dict(zip(columns.providers.provider_id, columns.providers.name, strict=True))
    holders: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for provider_id, kind, consumer, amount in zip(*columns.allocations, strict=True):
        holders.setdefault((names[provider_id], kind), []).append((consumer, amount))
    roots = tuple(trees(columns))
    uses = tuple(
        _use(provider, depth, record, holders.get((provider.name, record.resource_class), []))
        for provider, depth in _with_depth(roots)
        for _, inventory in provider.inventories.by_name()
        for record in inventory.to_records()
    )
    return Usage(roots, uses)


def _with_depth(providers: tuple[Provider, ...], depth: int = 0) -> Iterator[tuple[Provider, int]]:
    for provider in providers:
        yield provider, depth
        yield from _with_depth(provider.children, depth + 1)


def _use(
    provider: Provider, depth: int, record: InventoryRecord, holders: list[tuple[str, int]]
) -> Use:
    return Use(
        provider.name,
        depth,
        record.resource_class,
        record.total,
        record.reserved,
        record.capacity,
        record.used,
        tuple(sorted(holders)),
    )
