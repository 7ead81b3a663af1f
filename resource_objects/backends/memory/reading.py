"""Pages and totals of rows in memory, also of those that a remote Placement returned."""

from __future__ import annotations

import bisect
import dataclasses
import datetime
import functools
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from resource_objects.providers.columns import TIMES
from resource_objects.providers.disabled import TRAIT as DISABLED_TRAIT
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
    RootOf,
    count_by,
    select_consumers,
    select_providers,
    totals_of,
)
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.resources.records import InventoryRecord
from resource_objects.store.columns import in_force, present_time
from resource_objects.store.rows import ProviderRow, Rows

# --- pages and totals -----------------------------------------------------------------------------

#: The number of providers that are compared with a filter at a time.
_BATCH = 256


def root_of(rows: Rows) -> RootOf:
    """Return a function that finds the uuid of the root of a provider by its name or uuid."""

    def find(key: str) -> str | None:
        provider = rows.find(key)
        return None if provider is None else rows.root(provider.uuid).uuid

    return find


def _inventory_of(
    rows: Rows, key: Key
) -> tuple[InventoryRecord, tuple[tuple[Key, int], ...]] | None:
    inventory = rows.inventories.get(key)
    return None if inventory is None else (inventory.record, inventory.shares)


def page_of_providers(
    rows: Rows, criteria: ProviderFilter, limit: int, after: int = 0
) -> tuple[ListedProvider, ...]:
    """Return a page of providers. Cost: linear in the providers compared with the filter."""
    providers = _providers_to_compare(rows, criteria, after)
    inventory_of, find_root = functools.partial(_inventory_of, rows), root_of(rows)
    now = present_time(rows)
    page: list[ListedProvider] = []
    while len(page) < limit:
        batch = [_listed(rows, provider, now) for provider in itertools.islice(providers, _BATCH)]
        if not batch:
            break
        page += select_providers(batch, criteria, inventory_of, find_root)
    return tuple(page[:limit])


def _providers_to_compare(
    rows: Rows, criteria: ProviderFilter, after: int
) -> Iterator[ProviderRow]:
    """Yield the providers of names, uuids, trees or a rare trait of a filter; else all."""
    stored = rows.providers
    traits = [rows.with_trait.of(trait) for trait in criteria.required - {DISABLED_TRAIT}]
    rarest = min(traits, key=len, default=None)
    uuids: Iterable[str]
    if criteria.uuids is not None:
        uuids = criteria.uuids
    elif criteria.names is not None:
        uuids = [rows.provider_named.key.get(name, "") for name in criteria.names]
    elif criteria.trees is not None:
        uuids = [uuid for root in rows.roots(criteria.trees) for uuid in rows.subtree(root.uuid)]
    elif rarest is not None and len(rarest) <= _BATCH:  # more are read faster a page at a time
        uuids = rarest
    else:
        order = stored.in_order()
        first = bisect.bisect_left(order, (after + 1, ""))
        return (stored[order[at][1]] for at in range(first, len(order)))
    providers = [
        provider for uuid in uuids if (provider := stored.get(uuid)) and provider.number > after
    ]
    return iter(sorted(providers, key=lambda provider: provider.number))


def _listed(rows: Rows, provider: ProviderRow, now: datetime.datetime | None) -> ListedProvider:
    parent = None if provider.parent_uuid is None else rows.providers[provider.parent_uuid]
    root = rows.root(provider.uuid)
    inventories = [rows.inventories[provider.uuid, name] for name in provider.classes]
    return ListedProvider(
        number=provider.number,
        uuid=provider.uuid,
        name=provider.name,
        generation=provider.generation,
        parent=None if parent is None else parent.name,
        parent_uuid=provider.parent_uuid,
        root=root.name,
        root_uuid=root.uuid,
        records=tuple(inventory.record for inventory in inventories),
        traits=provider.traits,
        aggregates=provider.aggregates,
        kinds=provider.kinds,
        allocation_writes=provider.writes + sum(inventory.writes for inventory in inventories),
        definition_writes=provider.definition_writes,
        disabled=in_force(provider.disabled, now),
        **{name: getattr(provider, name) for name in TIMES},
    )


def page_of_consumers(
    rows: Rows, criteria: ConsumerFilter, limit: int, after: str | None = None
) -> tuple[ConsumerRecord, ...]:
    """Return a page of consumers. Cost: linear in the consumers compared with the filter."""
    records = _consumers_to_compare(rows, criteria, after)
    return tuple(itertools.islice(select_consumers(records, criteria, root_of(rows)), limit))


def _consumers_to_compare(
    rows: Rows, criteria: ConsumerFilter, after: str | None
) -> Iterator[ConsumerRecord]:
    """Yield the consumers of the names, the provider or the tree of a filter; else all."""
    names: Sequence[str]
    if criteria.names is not None:
        names = sorted(name for name in criteria.names if name in rows.consumers)
    elif criteria.provider is not None:
        provider = rows.find(criteria.provider)
        names = _consumers_at(rows, [] if provider is None else [provider.uuid])
    elif criteria.tree is not None:
        roots = rows.roots([criteria.tree])
        names = _consumers_at(rows, [uuid for root in roots for uuid in rows.subtree(root.uuid)])
    else:
        names = rows.consumers.in_order()
    first = 0 if after is None else bisect.bisect_right(names, after)
    return (rows.with_present_names(rows.consumers[names[at]]) for at in range(first, len(names)))


def _consumers_at(rows: Rows, uuids: Iterable[str]) -> list[str]:
    keys = [(uuid, name) for uuid in uuids for name in rows.providers[uuid].classes]
    return sorted({consumer for key in keys for consumer, _ in rows.consumers_of(key)})


def page_of_names(
    rows: Rows, kind: NameKind, limit: int, after: str | None = None
) -> tuple[ListedName, ...]:
    """Return a page of names. Cost: linear in the names of all kinds."""
    names = [row for (of, _), row in rows.names.rows.items() if of is kind]
    names = [row for row in names if after is None or row.name > after]
    return tuple(sorted(names, key=lambda row: row.name)[:limit])


def page_of_server_groups(
    rows: Rows,
    limit: int,
    after: str | None = None,
    *,
    names: Collection[str] | None = None,
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


def totals_of_consumers(rows: Rows, criteria: ConsumerFilter, by: By) -> tuple[Total, ...]:
    """Return the sums used by the consumers of a filter. Cost: linear in the consumers compared."""
    return totals_of(_consumers_to_compare(rows, criteria, None), criteria, by, root_of(rows))


def counts_of_consumers(
    rows: Rows, criteria: ConsumerFilter, by: Description
) -> Counter[str | None]:
    """Return the number of consumers of a filter by description. Cost: linear in those compared."""
    records = _consumers_to_compare(rows, criteria, None)
    return count_by(select_consumers(records, criteria, root_of(rows)), by)
