"""Filters, totals and columns of plain records: what a backend is asked, answered by loops.

For backends that keep everything at hand, such as a dict or a file. A database answers filters
itself; both are held to the same tests.
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
    wanted: ProviderFilter,
    inventory_of: InventoryOf,
) -> Iterator[ListedProvider]:
    """Yield the rows that a filter wants.

    :param rows: every provider that is kept, because a tree may be asked for by any of its own
    :param inventory_of: returns the record and the shares of a stored inventory
    """
    roots = {handle: row.root_uuid for row in rows for handle in (row.uuid, row.name)}
    trees = None if wanted.trees is None else {roots.get(tree) for tree in wanted.trees}
    for row in rows:
        if (
            (wanted.names is None or row.name in wanted.names)
            and (wanted.uuids is None or row.uuid in wanted.uuids)
            and (trees is None or row.root_uuid in trees)
            and not (wanted.roots_only and row.parent_uuid is not None)
            and _is_qualified(row, wanted)
            and _is_reported_before(row, wanted)
            and not (wanted.over_capacity and not _is_over(row))
            and all(_has_room(row, *amount, inventory_of) for amount in wanted.room)
        ):
            yield row


def _is_qualified(row: ListedProvider, wanted: ProviderFilter) -> bool:
    """Return whether its traits and aggregates are as wanted."""
    traits = row.told_traits
    return (
        wanted.required <= traits
        and not wanted.forbidden & traits
        and all(some & traits for some in wanted.any_of)
        and not wanted.forbidden_aggregates & row.aggregates
        and all(some & row.aggregates for some in wanted.aggregates)
    )


def _is_reported_before(row: ListedProvider, wanted: ProviderFilter) -> bool:
    if wanted.reported_before is None:
        return True
    return row.reported_at is not None and row.reported_at < wanted.reported_before


def _is_over(row: ListedProvider) -> bool:
    return any(record.used > record.capacity for record in row.records)


def _has_room(
    row: ListedProvider, resource_class: str, amount: int, inventory_of: InventoryOf
) -> bool:
    found = inventory_of((row.uuid, resource_class))
    if found is None or decision.refusals(found[0], amount, row.name):
        return False
    for key, factor in found[1]:
        target = inventory_of(key)
        assert target is not None, "what shares it is kept"
        if amount and target[0].used + amount * factor > target[0].capacity:
            return False
    return True


def select_consumers(
    records: Iterable[ConsumerRecord], wanted: ConsumerFilter, root_of: Callable[[str], str | None]
) -> Iterator[ConsumerRecord]:
    """Yield the records that a filter wants.

    :param root_of: finds the uuid of the root of a provider, by its name or uuid
    """
    for record in records:
        if (
            _is_described(record, wanted)
            and any(_is_at(held, wanted) for held in record.held)
            and any(_is_in_tree(held, wanted, root_of) for held in record.held)
        ):
            yield record


def _is_described(record: ConsumerRecord, wanted: ConsumerFilter) -> bool:
    created, expires = record.created_at, record.expires_at
    return (
        (wanted.names is None or record.consumer in wanted.names)
        and (wanted.projects is None or record.project in wanted.projects)
        and (wanted.users is None or record.user in wanted.users)
        and (wanted.types is None or record.consumer_type in wanted.types)
        and (wanted.states is None or record.state in wanted.states)
        and (wanted.groups is None or record.group in wanted.groups)
        and (wanted.created_before is None or created < wanted.created_before)
        and (wanted.created_after is None or created > wanted.created_after)
        and (
            wanted.expires_before is None
            or (expires is not None and expires < wanted.expires_before)
        )
    )


def _is_at(held: Use, wanted: ConsumerFilter) -> bool:
    return wanted.provider in (None, held.provider, held.provider_uuid)


def _is_in_tree(held: Use, wanted: ConsumerFilter, root_of: Callable[[str], str | None]) -> bool:
    return wanted.tree is None or root_of(wanted.tree) == root_of(held.provider_uuid)


_DESCRIPTIONS: Mapping[By, Callable[[ConsumerRecord], str | None]] = {
    By.PROJECT: attrgetter("project"),
    By.USER: attrgetter("user"),
    By.CONSUMER_TYPE: attrgetter("consumer_type"),
    By.GROUP: attrgetter("group"),
}


def count_by(records: Iterable[ConsumerRecord], by: Description) -> Counter[str | None]:
    """Return how many consumers each description has."""
    return Counter(map(_DESCRIPTIONS[by], records))


def _group(record: ConsumerRecord, held: Use, by: By) -> str | None:
    if by is By.RESOURCE_CLASS:
        return None
    return held.provider if by is By.PROVIDER else _DESCRIPTIONS[by](record)


def totals_of(
    records: Iterable[ConsumerRecord],
    wanted: ConsumerFilter,
    by: By,
    root_of: Callable[[str], str | None],
) -> tuple[Total, ...]:
    """Return what the consumers of a filter use, by group and class."""
    used: dict[tuple[str | None, str], int] = defaultdict(int)
    users: dict[tuple[str | None, str], set[str]] = defaultdict(set)
    for record in select_consumers(records, wanted, root_of):
        for held in record.held:
            if _is_at(held, wanted) and _is_in_tree(held, wanted, root_of):
                group = _group(record, held, by), held.resource_class
                used[group] += held.amount
                users[group].add(record.consumer)
    return sorted_totals([Total(*key, amount, len(users[key])) for key, amount in used.items()])


def columns_of(
    rows: Collection[ListedProvider],
    shares: Mapping[str, Collection[ShareRecord]],
    claims: Iterable[ConsumerRecord],
    cursor: Cursor | None,
) -> Columns:
    """Return providers of whole trees, parents first, and what is held there, as columns.

    :param shares: those of each provider, by its uuid
    :param claims: whoever holds something; what is held elsewhere is left out
    """
    number = {row.uuid: row.number for row in rows}
    held = [
        (number[one.provider_uuid], one, claim.consumer)
        for claim in claims
        for one in claim.held
        if one.provider_uuid in number
    ]
    return Columns(
        ProviderColumns(*_turned(_provider_row(row, number) for row in rows)),
        InventoryColumns(*_turned((r.number, *inventory_row(i)) for r in rows for i in r.records)),
        TraitColumns(*_turned((r.number, t) for r in rows for t in sorted(r.traits))),
        AllocationColumns(*_turned((n, h.resource_class, c, h.amount) for n, h, c in held)),
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
        UnitColumns(*_turned((n, u, h.resource_class, c) for n, h, c in held for u in h.units)),
        cursor,
    )


def _provider_row(row: ListedProvider, number: Mapping[str, int]) -> tuple[Any, ...]:
    parent = None if row.parent_uuid is None else number[row.parent_uuid]
    root = number[row.root_uuid]
    at = row.reported_at, row.adopted_at
    return row.number, row.uuid, row.name, parent, root, row.generation, *at, row.disabled


def _turned(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    return zip(*rows, strict=True)
