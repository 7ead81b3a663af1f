"""Filters, totals and columns of plain records, evaluated by loops in Python.

They serve backends whose records are in memory, such as a dict or a file. A database evaluates
filters itself. The same tests check both.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, TypeAlias

from resource_objects.providers import decision
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
from resource_objects.providers.definition import ShareRecord
from resource_objects.providers.feed import Cursor
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    Description,
    ListedProvider,
    ProviderFilter,
    Total,
    sorted_totals,
)
from resource_objects.providers.orders import ConsumerRecord, Key, Use
from resource_objects.resources.records import InventoryRecord, inventory_row

#: Returns the record and the shares ``(key, factor)`` of a stored inventory.
InventoryOf: TypeAlias = Callable[[Key], tuple[InventoryRecord, Iterable[tuple[Key, int]]] | None]


def select_providers(
    rows: Collection[ListedProvider],
    condition: ProviderFilter,
    inventory_of: InventoryOf,
) -> Iterator[ListedProvider]:
    """Yield the rows that match a filter.

    :param rows: all stored providers, because any provider of a tree may name the tree
    :param inventory_of: returns the record and the shares of a stored inventory
    """
    roots = {handle: row.root_uuid for row in rows for handle in (row.uuid, row.name)}
    trees = None if condition.trees is None else {roots.get(tree) for tree in condition.trees}
    for row in rows:
        if (
            (condition.names is None or row.name in condition.names)
            and (condition.uuids is None or row.uuid in condition.uuids)
            and (trees is None or row.root_uuid in trees)
            and not (condition.roots_only and row.parent_uuid is not None)
            and _is_qualified(row, condition)
            and _is_reported_before(row, condition)
            and not (condition.over_capacity and not _is_over(row))
            and all(_has_room(row, *amount, inventory_of) for amount in condition.room)
        ):
            yield row


def _is_qualified(row: ListedProvider, condition: ProviderFilter) -> bool:
    """Return True if the traits and aggregates of a row match."""
    traits = row.told_traits
    return (
        condition.required <= traits
        and not condition.forbidden & traits
        and all(names & traits for names in condition.any_of)
        and not condition.forbidden_aggregates & row.aggregates
        and all(names & row.aggregates for names in condition.aggregates)
    )


def _is_reported_before(row: ListedProvider, condition: ProviderFilter) -> bool:
    if condition.reported_before is None:
        return True
    return row.reported_at is not None and row.reported_at < condition.reported_before


def _is_over(row: ListedProvider) -> bool:
    return any(record.used > record.capacity for record in row.records)


def _has_room(
    row: ListedProvider, resource_class: str, amount: int, inventory_of: InventoryOf
) -> bool:
    stored = inventory_of((row.uuid, resource_class))
    if stored is None or decision.refusals(stored[0], amount, row.name):
        return False
    for key, factor in stored[1]:
        target = inventory_of(key)
        assert target is not None, "the target of a share is stored"
        if amount and target[0].used + amount * factor > target[0].capacity:
            return False
    return True


def select_consumers(
    records: Iterable[ConsumerRecord],
    condition: ConsumerFilter,
    root_of: Callable[[str], str | None],
) -> Iterator[ConsumerRecord]:
    """Yield the records that match a filter.

    :param root_of: returns the uuid of the root of a provider, by its name or uuid
    """
    for record in records:
        if (
            _is_described(record, condition)
            and any(_is_at(use, condition) for use in record.held)
            and any(_is_in_tree(use, condition, root_of) for use in record.held)
        ):
            yield record


def _is_described(record: ConsumerRecord, condition: ConsumerFilter) -> bool:
    created, expires = record.created_at, record.expires_at
    return (
        (condition.names is None or record.consumer in condition.names)
        and (condition.projects is None or record.project in condition.projects)
        and (condition.users is None or record.user in condition.users)
        and (condition.types is None or record.consumer_type in condition.types)
        and (condition.states is None or record.state in condition.states)
        and (condition.groups is None or record.group in condition.groups)
        and (condition.created_before is None or created < condition.created_before)
        and (condition.created_after is None or created > condition.created_after)
        and (
            condition.expires_before is None
            or (expires is not None and expires < condition.expires_before)
        )
    )


def _is_at(use: Use, condition: ConsumerFilter) -> bool:
    return condition.provider in (None, use.provider, use.provider_uuid)


def _is_in_tree(use: Use, condition: ConsumerFilter, root_of: Callable[[str], str | None]) -> bool:
    return condition.tree is None or root_of(condition.tree) == root_of(use.provider_uuid)


_DESCRIPTIONS: Mapping[By, Callable[[ConsumerRecord], str | None]] = {
    By.PROJECT: attrgetter("project"),
    By.USER: attrgetter("user"),
    By.CONSUMER_TYPE: attrgetter("consumer_type"),
    By.GROUP: attrgetter("group"),
}


def count_by(records: Iterable[ConsumerRecord], by: Description) -> Counter[str | None]:
    """Return the number of consumers of each description."""
    return Counter(map(_DESCRIPTIONS[by], records))


def _group(record: ConsumerRecord, use: Use, by: By) -> str | None:
    if by is By.RESOURCE_CLASS:
        return None
    return use.provider if by is By.PROVIDER else _DESCRIPTIONS[by](record)


def totals_of(
    records: Iterable[ConsumerRecord],
    condition: ConsumerFilter,
    by: By,
    root_of: Callable[[str], str | None],
) -> tuple[Total, ...]:
    """Return the use of the consumers that match a filter, by group and class."""
    used: dict[tuple[str | None, str], int] = defaultdict(int)
    users: dict[tuple[str | None, str], set[str]] = defaultdict(set)
    for record in select_consumers(records, condition, root_of):
        for use in record.held:
            if _is_at(use, condition) and _is_in_tree(use, condition, root_of):
                group = _group(record, use, by), use.resource_class
                used[group] += use.amount
                users[group].add(record.consumer)
    return sorted_totals([Total(*key, amount, len(users[key])) for key, amount in used.items()])


def columns_of(
    rows: Collection[ListedProvider],
    shares: Mapping[str, Collection[ShareRecord]],
    claims: Iterable[ConsumerRecord],
    cursor: Cursor | None,
) -> Columns:
    """Return the providers of whole trees, parents first, and their allocations as columns.

    :param shares: the shares of each provider, by its uuid
    :param claims: the consumers; their allocations of other providers are left out
    """
    number = {row.uuid: row.number for row in rows}
    uses = [
        (number[use.provider_uuid], use, claim.consumer)
        for claim in claims
        for use in claim.held
        if use.provider_uuid in number
    ]
    return Columns(
        ProviderColumns(*_turned(_provider_row(row, number) for row in rows)),
        InventoryColumns(*_turned((r.number, *inventory_row(i)) for r in rows for i in r.records)),
        TraitColumns(*_turned((r.number, t) for r in rows for t in sorted(r.traits))),
        AllocationColumns(*_turned((n, h.resource_class, c, h.amount) for n, h, c in uses)),
        AggregateColumns(*_turned((r.number, a) for r in rows for a in sorted(r.aggregates))),
        ShareColumns(
            *_turned(
                (r.number, s.resource_class, number[s.of_uuid], s.of_class, s.factor)
                for r in rows
                for s in shares.get(r.uuid, ())
            )
        ),
        KindColumns(
            *_turned((r.number, k.resource_class, k.classes, k.body) for r in rows for k in r.kinds)
        ),
        UnitColumns(*_turned((n, u, h.resource_class, c) for n, h, c in uses for u in h.units)),
        cursor,
    )


def _provider_row(row: ListedProvider, number: Mapping[str, int]) -> tuple[Any, ...]:
    parent = None if row.parent_uuid is None else number[row.parent_uuid]
    root = number[row.root_uuid]
    at = row.reported_at, row.adopted_at
    return row.number, row.uuid, row.name, parent, root, row.generation, *at, row.disabled


def _turned(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    return zip(*rows, strict=True)
