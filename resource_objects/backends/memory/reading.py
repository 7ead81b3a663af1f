"""Columns, pages and totals of the rows in memory."""

from __future__ import annotations

import bisect
import dataclasses
import datetime
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from resource_objects import clock
from resource_objects.providers.columns import (
    AggregateColumns,
    AllocationColumns,
    Columns,
    InventoryColumns,
    KindColumns,
    ProviderColumns,
    ShareColumns,
    TraitColumns,
    UnitColumns,
)
from resource_objects.providers.disabled import TRAIT as DISABLED_TRAIT
from resource_objects.providers.disabled import Disabled
from resource_objects.providers.feed import Cursor
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    Description,
    ListedName,
    ListedProvider,
    ProviderFilter,
    Total,
)
from resource_objects.providers.orders import ConsumerRecord, Key, NameKind
from resource_objects.providers.selection import (
    count_by,
    select_consumers,
    select_providers,
    totals_of,
)
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.providers.settle import Place
from resource_objects.resources.records import inventory_row
from resource_objects.store.rows import ProviderRow, Rows


def columns_of(
    rows: Rows, roots: Iterable[ProviderRow], cursor: Cursor | None, allocations: bool = True
) -> Columns:
    """Return the trees of some roots. Cost: linear in what is returned.

    :param allocations: whether to include allocations and units
    """
    trees = [
        (rows.providers[uuid], root.number) for root in roots for uuid in rows.subtree(root.uuid)
    ]
    providers = [provider for provider, _ in trees]
    allocating = providers if allocations else []
    now = _now(rows)
    return Columns(
        ProviderColumns(*zip(*_provider_rows(rows, trees, now), strict=True)),
        InventoryColumns(*zip(*_inventory_rows(rows, providers), strict=True)),
        TraitColumns(*zip(*_name_rows((p.number, p.traits) for p in providers), strict=True)),
        AllocationColumns(*zip(*_allocation_rows(rows, allocating), strict=True)),
        AggregateColumns(
            *zip(*_name_rows((p.number, p.aggregates) for p in providers), strict=True)
        ),
        ShareColumns(*zip(*_share_rows(rows, providers), strict=True)),
        KindColumns(*zip(*_kind_rows(providers), strict=True)),
        UnitColumns(*zip(*_unit_rows(rows, allocating), strict=True)),
        cursor,
        now,
    )


def roots_of_all(rows: Rows) -> list[ProviderRow]:
    """Return the roots of all trees. Cost: linear in the providers."""
    return [provider for provider in rows.providers.rows.values() if provider.parent_uuid is None]


def with_present_use(rows: Rows, before: Columns) -> Columns | None:
    """Return trees with their present use; None if the definition of a provider changed."""
    given = before.providers
    providers: list[ProviderRow] = []
    for uuid, generation in zip(given.uuid, given.generation, strict=True):
        provider = rows.providers.get(uuid)
        if provider is None or provider.generation != generation:
            return None
        providers.append(provider)
    inventories, now = rows.inventories.rows, _now(rows)
    used = [inventories[p.uuid, name].record.used for p in providers for name in p.classes]
    disabled = [_in_force(provider.disabled, now) for provider in providers]
    return Columns(
        given._replace(disabled=tuple(disabled)),
        before.inventories._replace(used=tuple(used)),
        before.traits,
        aggregates=before.aggregates,
        shares=before.shares,
        kinds=before.kinds,
        units=UnitColumns(*zip(*_unit_rows(rows, providers), strict=True)),
        now=now,
    )


def _now(rows: Rows) -> datetime.datetime | None:
    """Return the present time if anything is disabled: that can end by time."""
    return clock.now() if rows.disabled.keys else None


def _in_force(disabled: Disabled | None, now: datetime.datetime | None) -> Disabled | None:
    """Return why a provider is disabled, None if that has ended."""
    if disabled is None or now is None or disabled.ends_at <= now:
        return None
    return disabled


def _provider_rows(
    rows: Rows, trees: Iterable[tuple[ProviderRow, int]], now: datetime.datetime | None
) -> Iterator[tuple[object, ...]]:
    for provider, root in trees:
        parent = provider.parent_uuid
        yield (
            provider.number,
            provider.uuid,
            provider.name,
            None if parent is None else rows.providers[parent].number,
            root,
            provider.generation,
            provider.reported_at,
            provider.adopted_at,
            _in_force(provider.disabled, now),
        )


def _inventory_rows(rows: Rows, providers: Iterable[ProviderRow]) -> Iterator[tuple[object, ...]]:
    for provider in providers:
        for name in provider.classes:
            yield provider.number, *inventory_row(rows.inventories[provider.uuid, name].record)


def _name_rows(names_of: Iterable[tuple[int, frozenset[str]]]) -> Iterator[tuple[int, str]]:
    return ((number, name) for number, names in names_of for name in sorted(names))


def _kind_rows(providers: Iterable[ProviderRow]) -> Iterator[tuple[object, ...]]:
    for provider in providers:
        for kind in provider.kinds:
            yield provider.number, kind.resource_class, kind.classes, kind.body


def _allocation_rows(rows: Rows, providers: Iterable[ProviderRow]) -> Iterator[tuple[object, ...]]:
    for provider in providers:
        for name in provider.classes:
            for consumer, amount in rows.consumers_of((provider.uuid, name)):
                yield provider.number, name, consumer, amount


def _share_rows(rows: Rows, providers: Iterable[ProviderRow]) -> Iterator[tuple[object, ...]]:
    for provider in providers:
        for name in provider.classes:
            for (uuid, target), factor in rows.inventories[provider.uuid, name].shares:
                yield provider.number, name, rows.providers[uuid].number, target, factor


def _unit_rows(rows: Rows, providers: Iterable[ProviderRow]) -> Iterator[tuple[object, ...]]:
    for provider in providers:
        for key in rows.units_of.of(provider.uuid):
            unit = rows.units[key]
            yield provider.number, key[1], unit.resource_class, unit.consumer


# --- pages and totals -----------------------------------------------------------------------------

#: How many providers are compared with a filter at a time, so that a page costs what fills it.
_BATCH = 256


def _root_of(rows: Rows) -> Callable[[str], str | None]:
    """Return a function that finds the uuid of the root of a provider by its name or uuid."""

    def root_of(key: str) -> str | None:
        provider = rows.find(key)
        return None if provider is None else rows.root(provider.uuid).uuid

    return root_of


def _place_of(rows: Rows) -> Callable[[Key], Place | None]:
    """Return a function that finds an inventory with its shares."""

    def place_of(key: Key) -> Place | None:
        inventory = rows.inventories.get(key)
        if inventory is None:
            return None
        return Place(rows.providers[key[0]].name, inventory.record, inventory.shares)

    return place_of


def page_of_providers(
    rows: Rows, wanted: ProviderFilter, limit: int, after: int
) -> tuple[ListedProvider, ...]:
    """Return a page of providers. Cost: linear in the providers compared with the filter."""
    providers = _providers_to_compare(rows, wanted, after)
    rest = dataclasses.replace(wanted, trees=None)
    now = _now(rows)
    page: list[ListedProvider] = []
    while len(page) < limit:
        batch = [_listed(rows, one, now) for one in itertools.islice(providers, _BATCH)]
        if not batch:
            break
        page += select_providers(batch, rest, _place_of(rows))
    return tuple(page[:limit])


def _providers_to_compare(rows: Rows, wanted: ProviderFilter, after: int) -> Iterator[ProviderRow]:
    """Yield the providers of names, uuids, trees or a rare trait of a filter; else all."""
    stored = rows.providers
    traits = [rows.with_trait.of(trait) for trait in wanted.required - {DISABLED_TRAIT}]
    rarest = min(traits, key=len, default=None)
    uuids: Iterable[str]
    if wanted.uuids is not None:
        uuids = wanted.uuids
    elif wanted.names is not None:
        uuids = [rows.provider_named.key.get(name, "") for name in wanted.names]
    elif wanted.trees is not None:
        uuids = [uuid for root in rows.roots(wanted.trees) for uuid in rows.subtree(root.uuid)]
    elif rarest is not None and len(rarest) <= _BATCH:  # more are read faster a page at a time
        uuids = rarest
    else:
        order = stored.in_order()
        first = bisect.bisect_left(order, (after + 1, ""))
        return (stored[order[at][1]] for at in range(first, len(order)))
    providers = [one for uuid in uuids if (one := stored.get(uuid)) and one.number > after]
    if wanted.trees is not None:
        roots = {root.uuid for root in rows.roots(wanted.trees)}
        providers = [one for one in providers if rows.root(one.uuid).uuid in roots]
    return iter(sorted(providers, key=lambda provider: provider.number))


def _listed(rows: Rows, provider: ProviderRow, now: datetime.datetime | None) -> ListedProvider:
    parent = None if provider.parent_uuid is None else rows.providers[provider.parent_uuid]
    root = rows.root(provider.uuid)
    inventories = [rows.inventories[provider.uuid, name] for name in provider.classes]
    return ListedProvider(
        provider.number,
        provider.uuid,
        provider.name,
        provider.generation,
        None if parent is None else parent.name,
        provider.parent_uuid,
        root.name,
        root.uuid,
        tuple(inventory.record for inventory in inventories),
        provider.traits,
        provider.aggregates,
        provider.kinds,
        provider.reported_at,
        provider.adopted_at,
        provider.writes + sum(inventory.writes for inventory in inventories),
        provider.definition_writes,
        _in_force(provider.disabled, now),
    )


def page_of_consumers(
    rows: Rows, wanted: ConsumerFilter, limit: int, after: str | None
) -> tuple[ConsumerRecord, ...]:
    """Return a page of consumers. Cost: linear in the consumers compared with the filter."""
    records = _consumers_to_compare(rows, wanted, after)
    return tuple(itertools.islice(select_consumers(records, wanted, _root_of(rows)), limit))


def _consumers_to_compare(
    rows: Rows, wanted: ConsumerFilter, after: str | None
) -> Iterator[ConsumerRecord]:
    """Yield the consumers of the names, the provider or the tree of a filter; else all."""
    names: Sequence[str]
    if wanted.names is not None:
        names = sorted(name for name in wanted.names if name in rows.consumers)
    elif wanted.provider is not None:
        provider = rows.find(wanted.provider)
        names = _consumers_at(rows, [] if provider is None else [provider.uuid])
    elif wanted.tree is not None:
        roots = rows.roots([wanted.tree])
        names = _consumers_at(rows, [uuid for root in roots for uuid in rows.subtree(root.uuid)])
    else:
        names = rows.consumers.in_order()
    first = 0 if after is None else bisect.bisect_right(names, after)
    return (rows.with_present_names(rows.consumers[names[at]]) for at in range(first, len(names)))


def _consumers_at(rows: Rows, uuids: Iterable[str]) -> list[str]:
    keys = [(uuid, name) for uuid in uuids for name in rows.providers[uuid].classes]
    return sorted({consumer for key in keys for consumer, _ in rows.consumers_of(key)})


def page_of_names(
    rows: Rows, kind: NameKind, limit: int, after: str | None
) -> tuple[ListedName, ...]:
    """Return a page of names. Cost: linear in the names of all kinds."""
    names = [row for (of, _), row in rows.names.rows.items() if of is kind]
    names = [row for row in names if after is None or row.name > after]
    return tuple(sorted(names, key=lambda row: row.name)[:limit])


def page_of_server_groups(
    rows: Rows, limit: int, after: str | None, names: Collection[str] | None
) -> tuple[ServerGroup, ...]:
    """Return a page of server groups. Cost: linear in all of them, and in the members returned."""
    page = [
        name
        for name in rows.server_groups.in_order()
        if (after is None or name > after) and (names is None or name in names)
    ]
    return tuple(
        dataclasses.replace(rows.server_groups[name], members=frozenset(rows.members.of(name)))
        for name in page[:limit]
    )


def totals_of_consumers(rows: Rows, wanted: ConsumerFilter, by: By) -> tuple[Total, ...]:
    """Return what the consumers of a filter use. Cost: linear in the consumers compared."""
    return totals_of(_consumers_to_compare(rows, wanted, None), wanted, by, _root_of(rows))


def counts_of_consumers(rows: Rows, wanted: ConsumerFilter, by: Description) -> Counter[str | None]:
    """Return the number of consumers of a filter by description. Cost: linear in those compared."""
    records = _consumers_to_compare(rows, wanted, None)
    return count_by(select_consumers(records, wanted, _root_of(rows)), by)
