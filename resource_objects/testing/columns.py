"""The columns that a backend would return, made from trees: input for whatever reads columns."""

from __future__ import annotations

import dataclasses
import uuid as uuids
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from resource_objects.providers import Provider
from resource_objects.providers.columns import (
    AggregateColumns,
    AllocationColumns,
    Columns,
    InventoryColumns,
    ProviderColumns,
    ShareColumns,
    TraitColumns,
)


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
            own = (pid, uuid, provider.name, above, root, generation, provider.reported_at)
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
