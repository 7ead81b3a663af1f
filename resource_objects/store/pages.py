"""Pages and totals of rows, by filters that are evaluated in Python.

The backend in memory and that of a remote Placement use them; a database evaluates the same
:class:`conditions <resource_objects.providers.listing.Condition>` by SQL.
"""

from __future__ import annotations

import bisect
import dataclasses
import datetime
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from resource_objects.providers.columns import TIMES
from resource_objects.providers.disabled import TRAIT as DISABLED_TRAIT
from resource_objects.providers.listing import (
    DESCRIPTIONS,
    By,
    ConsumerFilter,
    Description,
    ListedName,
    ListedProvider,
    Operator,
    ProviderFilter,
    Total,
    conditions_of,
    sorted_totals,
)
from resource_objects.providers.orders import ConsumerRecord, NameKind, Use
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.resources import resource
from resource_objects.store.columns import in_force, present_time
from resource_objects.store.rows import ProviderRow, Rows

#: The number of providers that are compared with a filter at a time.
_BATCH = 256

_COMPARE: Mapping[Operator, Callable[[Any, Any], bool]] = {
    Operator.IN: lambda value, members: value in members,
    Operator.BEFORE: lambda value, moment: value is not None and value < moment,
    Operator.AFTER: lambda value, moment: value is not None and value > moment,
    Operator.MISSING: lambda value, _: value is None,
    Operator.ALL_OF: lambda names, required: required <= names,
    Operator.NONE_OF: lambda names, forbidden: forbidden.isdisjoint(names),
    Operator.ANY_OF_EACH: lambda names, sets: all(names & members for members in sets),
    Operator.OVER_CAPACITY: lambda records, _: any(r.used > r.capacity for r in records),
}


def _matching(rows: Iterable[Any], criteria: ProviderFilter | ConsumerFilter) -> Iterator[Any]:
    tests = [
        (attrgetter(condition.attribute), _COMPARE[condition.operator], value)
        for condition, value in conditions_of(criteria)
    ]
    return (row for row in rows if all(test(of(row), value) for of, test, value in tests))


# --- providers ------------------------------------------------------------------------------------


def page_of_providers(
    rows: Rows, criteria: ProviderFilter, limit: int, after: int = 0
) -> tuple[ListedProvider, ...]:
    """Return a page of providers. Cost: linear in the providers compared with the filter."""
    providers = _providers_to_compare(rows, criteria, after)
    roots = {root.uuid for root in rows.roots(criteria.trees or ())}
    now = present_time(rows)
    page: list[ListedProvider] = []
    while len(page) < limit:
        batch = [_listed(rows, provider, now) for provider in itertools.islice(providers, _BATCH)]
        if not batch:
            break
        page += [
            listed
            for listed in _matching(batch, criteria)
            if (criteria.trees is None or listed.root_uuid in roots)
            and all(_has_room(rows, listed, *amount) for amount in criteria.room)
        ]
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
        uuids = _uuids_in_trees(rows, criteria.trees)
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


def _has_room(rows: Rows, listed: ListedProvider, resource_class: str, amount: int) -> bool:
    inventory = rows.inventories.get((listed.uuid, resource_class))
    if inventory is None or resource(resource_class).refusals(
        inventory.record, amount, listed.name
    ):
        return False
    if not amount:
        return True
    targets = [(rows.inventories[key].record, factor) for key, factor in inventory.shares]
    return all(target.used + amount * factor <= target.capacity for target, factor in targets)


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


# --- consumers ------------------------------------------------------------------------------------


def page_of_consumers(
    rows: Rows, criteria: ConsumerFilter, limit: int, after: str | None = None
) -> tuple[ConsumerRecord, ...]:
    """Return a page of consumers. Cost: linear in the consumers compared with the filter."""
    records = _consumers_to_compare(rows, criteria, after)
    return tuple(itertools.islice(select_consumers(rows, records, criteria), limit))


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
        names = _consumers_at(rows, _uuids_in_trees(rows, [criteria.tree]))
    else:
        names = rows.consumers.in_order()
    first = 0 if after is None else bisect.bisect_right(names, after)
    return (rows.with_present_names(rows.consumers[names[at]]) for at in range(first, len(names)))


def _consumers_at(rows: Rows, uuids: Iterable[str]) -> list[str]:
    keys = [(uuid, name) for uuid in uuids for name in rows.providers[uuid].classes]
    return sorted({consumer for key in keys for consumer, _ in rows.consumers_of(key)})


def select_consumers(
    rows: Rows, records: Iterable[ConsumerRecord], criteria: ConsumerFilter
) -> Iterator[ConsumerRecord]:
    """Yield the records that match a filter.

    :param rows: the providers of the tree that the filter names
    """
    is_at, is_in_tree = _place_tests(rows, criteria)
    for record in _matching(records, criteria):
        if any(map(is_at, record.held)) and any(map(is_in_tree, record.held)):
            yield record


def _place_tests(
    rows: Rows, criteria: ConsumerFilter
) -> tuple[Callable[[Use], bool], Callable[[Use], bool]]:
    """Return whether a use is at the provider of a filter, and whether it is in its tree."""
    provider, tree = criteria.provider, criteria.tree
    inside = frozenset(() if tree is None else _uuids_in_trees(rows, [tree]))
    return (
        lambda use: provider in (None, use.provider, use.provider_uuid),
        lambda use: tree is None or use.provider_uuid in inside,
    )


def _uuids_in_trees(rows: Rows, keys: Iterable[str]) -> list[str]:
    return [uuid for root in rows.roots(keys) for uuid in rows.subtree(root.uuid)]


def totals_of(
    rows: Rows, records: Iterable[ConsumerRecord], criteria: ConsumerFilter, by: By
) -> tuple[Total, ...]:
    """Return the use of the consumers that match a filter, by group and class."""
    is_at, is_in_tree = _place_tests(rows, criteria)
    used: dict[tuple[str | None, str], int] = defaultdict(int)
    users: dict[tuple[str | None, str], set[str]] = defaultdict(set)
    for record in select_consumers(rows, records, criteria):
        described = getattr(record, DESCRIPTIONS[by].attribute) if by in DESCRIPTIONS else None
        for use in record.held:
            if is_at(use) and is_in_tree(use):
                group = use.provider if by is By.PROVIDER else described
                used[group, use.resource_class] += use.amount
                users[group, use.resource_class].add(record.consumer)
    return sorted_totals([Total(*key, amount, len(users[key])) for key, amount in used.items()])


def totals_of_consumers(rows: Rows, criteria: ConsumerFilter, by: By) -> tuple[Total, ...]:
    """Return the sums used by the consumers of a filter. Cost: linear in the consumers compared."""
    return totals_of(rows, _consumers_to_compare(rows, criteria, None), criteria, by)


def counts_of_consumers(
    rows: Rows, criteria: ConsumerFilter, by: Description
) -> Counter[str | None]:
    """Return the number of consumers of a filter by description. Cost: linear in those compared."""
    records = select_consumers(rows, _consumers_to_compare(rows, criteria, None), criteria)
    return Counter(map(attrgetter(DESCRIPTIONS[by].attribute), records))


# --- names and server groups ----------------------------------------------------------------------


def page_of_names(
    rows: Rows, kind: NameKind, limit: int, after: str | None = None
) -> tuple[ListedName, ...]:
    """Return a page of names. Cost: linear in the names of all kinds."""
    rows_of_kind = (row for (of, _), row in rows.names.rows.items() if of is kind)
    names = [row for row in rows_of_kind if after is None or row.name > after]
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
