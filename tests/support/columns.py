"""Columns made from trees, and what columns say, provider by provider.

:func:`columns_of` makes what a backend would return: input for whatever reads columns. The other
way round, naive references read plain values: nothing is precomputed and nothing is an array, each
question walks the rows it is about.
"""

from __future__ import annotations

import dataclasses
import uuid as uuids
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from resource_objects.providers import Provider
from resource_objects.providers.columns import (
    TIMES,
    AggregateColumns,
    AllocationColumns,
    Columns,
    InventoryColumns,
    ProviderColumns,
    ShareColumns,
    TraitColumns,
)
from resource_objects.resources.catalog import is_device

#: (provider's number, resource class)
Place = tuple[int, str]
#: The trait of a provider that gives to all trees it shares an aggregate with.
SHARING = "MISC_SHARES_VIA_AGGREGATE"


@dataclasses.dataclass(frozen=True)
class Stock:
    """An inventory of counted things."""

    total: int
    capacity: int
    used: int
    min_unit: int
    max_unit: int | None
    step_size: int

    def gives(self, amount: int) -> bool:
        """Return whether it may give an amount at once."""
        least = amount >= self.min_unit and amount % self.step_size == 0
        return least and self.holds(amount)

    def holds(self, amount: int) -> bool:
        """Return whether amounts that land on it together are not too much."""
        within = self.max_unit is None or amount <= self.max_unit
        return within and self.used + amount <= self.capacity


@dataclasses.dataclass
class Row:
    """A provider with what is its own."""

    number: int
    uuid: str
    name: str
    parent: int | None
    traits: set[str] = dataclasses.field(default_factory=set)
    aggregates: set[str] = dataclasses.field(default_factory=set)
    stocks: dict[str, Stock] = dataclasses.field(default_factory=dict)

    @property
    def is_sharing(self) -> bool:
        """Whether it gives to other trees too."""
        return SHARING in self.traits


class Kept:
    """What columns say. Cost: linear in the rows."""

    def __init__(self, columns: Columns) -> None:
        table = columns.providers
        rows = zip(table.provider_id, table.uuid, table.name, table.parent_id, strict=True)
        #: by number
        self.rows = {row[0]: Row(*row) for row in rows}
        for number, trait in zip(*columns.traits, strict=True):
            self.rows[number].traits.add(trait)
        for number, aggregate in zip(*columns.aggregates, strict=True):
            self.rows[number].aggregates.add(aggregate)
        for figures in zip(*columns.inventories, strict=True):
            number, name, total, _reserved, least, most, step, _ratio, capacity, used = figures
            self.rows[number].stocks[name] = Stock(total, capacity, used, least, most, step)
        #: what is used elsewhere too by what is taken in a place, with the factor
        self.shares: dict[Place, list[tuple[Place, int]]] = {}
        for number, name, of, of_name, factor in zip(*columns.shares, strict=True):
            self.shares.setdefault((number, name), []).append(((of, of_name), factor))

    def above(self, number: int) -> Iterator[int]:
        """Yield a provider and those above it, upwards."""
        at: int | None = number
        while at is not None:
            yield at
            at = self.rows[at].parent

    def root(self, number: int) -> int:
        """Return the root of the tree that a provider is in."""
        return list(self.above(number))[-1]

    def roots(self) -> list[int]:
        """Return the roots, by name."""
        found = [row for row in self.rows.values() if row.parent is None]
        return [row.number for row in sorted(found, key=lambda row: row.name)]

    def tree(self, root: int) -> list[int]:
        """Return the providers of a tree."""
        return [number for number in self.rows if self.root(number) == root]

    def pools(self, root: int) -> list[int]:
        """Return the sharing providers of other trees that share an aggregate with a tree."""
        linked = {name for number in self.tree(root) for name in self.rows[number].aggregates}
        return [
            row.number
            for row in self.rows.values()
            if row.is_sharing and row.aggregates & linked and self.root(row.number) != root
        ]

    def named(self, key: str) -> int | None:
        """Return the provider of a name or uuid, None if there is none."""
        for row in self.rows.values():
            if key in (row.name, row.uuid):
                return row.number
        return None

    def may_split(self, number: int, name: str) -> bool:
        """Return whether it is one device of a class, which several may give together."""
        row = self.rows[number]
        return row.parent is not None and (is_device(name) or row.stocks[name].total == 1)

    def left(self, place: Place) -> int:
        """Return how much can be taken in a place, seeing what is used elsewhere by it too."""
        links = [(place, 1), *self.shares.get(place, [])]
        stocks = [(self.rows[number].stocks[name], factor) for (number, name), factor in links]
        return min((stock.capacity - stock.used) // factor for stock, factor in stocks)

    def has_room(self, taken: Mapping[Place, int]) -> bool:
        """Return whether amounts fit together, here and wherever they are used too."""
        used: dict[Place, int] = {}
        for place, amount in taken.items():
            used[place] = used.get(place, 0) + amount
            for of, factor in self.shares.get(place, []):
                used[of] = used.get(of, 0) + amount * factor
        stocks = {(number, name): self.rows[number].stocks[name] for number, name in used}
        return all(
            stocks[place].used + amount <= stocks[place].capacity for place, amount in used.items()
        ) and all(stocks[place].holds(amount) for place, amount in taken.items())

    def uuids(self, numbers: Iterable[int]) -> frozenset[str]:
        """Return the uuids of providers."""
        return frozenset(self.rows[number].uuid for number in numbers)


# --- made from trees ---


def columns_of(
    roots: Iterable[Provider], allocations: Iterable[tuple[str, str, str, int]] = ()
) -> Columns:
    """Return the columns that a backend would return for some trees.

    :param allocations: ``(consumer, provider name, resource class, amount)``; the ``used`` figures
        are theirs, shares included, and those of the trees where there are none

    >>> columns_of([Provider("host0", "VCPU=8")], [("job-1", "host0", "VCPU", 3)]).inventories.used
    [3]
    """
    held = list(allocations)
    trees = [list(root.parents()) for root in roots]
    everybody = [pair for tree in trees for pair in tree]
    ids = {provider.name: number for number, (provider, _) in enumerate(everybody, 1)}
    uses = _uses(held, [provider for provider, _ in everybody])
    rows: dict[Any, list[Any]] = {}
    for tree in trees:
        for provider, parent in tree:
            pid = ids[provider.name]
            uuid = provider.uuid or str(uuids.uuid5(uuids.NAMESPACE_DNS, provider.name))
            above = None if parent is None else ids[parent.name]
            root, generation = ids[tree[0][0].name], provider.generation or 0
            optional = [getattr(provider, name, None) for name in TIMES]
            own = (pid, uuid, provider.name, above, root, generation, *optional, None)
            rows.setdefault(ProviderColumns, []).append(own)
            for name in sorted(provider.traits):
                rows.setdefault(TraitColumns, []).append((pid, name))
            for name in sorted(provider.aggregates or ()):
                rows.setdefault(AggregateColumns, []).append((pid, name))
            for share in provider.shares:
                of = (ids[share.of], share.of_class, share.factor)
                rows.setdefault(ShareColumns, []).append((pid, share.resource_class, *of))
            for record in _records(provider):
                used = uses.get((provider.name, record.resource_class)) or record.used
                figures = dataclasses.astuple(dataclasses.replace(record, used=used))
                rows.setdefault(InventoryColumns, []).append((pid, *figures))
    for who, name, kind, amount in held:
        rows.setdefault(AllocationColumns, []).append((ids[name], kind, who, amount))
    return Columns(
        _table(ProviderColumns, rows),
        _table(InventoryColumns, rows),
        _table(TraitColumns, rows),
        _table(AllocationColumns, rows),
        aggregates=_table(AggregateColumns, rows),
        shares=_table(ShareColumns, rows),
    )


def _records(provider: Provider) -> Iterator[Any]:
    for inventory in provider.inventories.values():
        yield from inventory.to_records()


def _uses(
    held: Iterable[tuple[str, str, str, int]], providers: Iterable[Provider]
) -> dict[tuple[str, str], int]:
    """Return what is used, by provider and class: there, and where it is shared."""
    used: dict[tuple[str, str], int] = {}
    shares = [(provider.name, share) for provider in providers for share in provider.shares]
    for _, name, kind, amount in held:
        used[name, kind] = used.get((name, kind), 0) + amount
        for sharer, share in shares:
            if (sharer, share.resource_class) == (name, kind):
                of = share.of, share.of_class
                used[of] = used.get(of, 0) + amount * share.factor
    return used


def _table(table: Any, rows: Mapping[Any, list[Any]]) -> Any:
    columns = zip(*rows[table], strict=True) if rows.get(table) else ([] for _ in table._fields)
    return table(*map(list, columns))
