"""Rows as columns, columns as rows, and dry runs: writes carried out on rows made of columns."""

from __future__ import annotations

import datetime
import itertools
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from resource_objects import clock, exceptions
from resource_objects.providers.columns import (
    TIMES,
    AggregateColumns,
    AllocationColumns,
    Columns,
    InventoryColumns,
    KindColumns,
    ProviderColumns,
    ShareColumns,
    TraitColumns,
    UnitColumns,
    stored_definitions,
)
from resource_objects.providers.definition import DefinitionChanges
from resource_objects.providers.disabled import Disabled
from resource_objects.providers.feed import Cursor
from resource_objects.providers.holders import holders_of
from resource_objects.providers.listing import ListedName
from resource_objects.providers.orders import ConsumerRecord, Key, NameKind, Operation
from resource_objects.providers.plan import Plan, check_plan
from resource_objects.store.rows import InventoryRow, ProviderRow, Rows, Transaction, UnitRow
from resource_objects.store.write import DefinitionWork, carry_out


def columns_of(
    rows: Rows,
    roots: Iterable[ProviderRow],
    cursor: Cursor | None,
    allocations: bool = True,
    now: datetime.datetime | None = None,
) -> Columns:
    """Return the trees of some roots. Cost: linear in what is returned.

    :param allocations: whether to include allocations and units
    :param now: the time of the rows; None: the present time, if anything is disabled
    """
    providers: list[ProviderRow] = []
    root_ids: list[int] = []
    numbers: dict[str | None, int | None] = {None: None}
    for root in roots:
        tree = [rows.providers[uuid] for uuid in rows.subtree(root.uuid)]
        providers += tree
        root_ids += [root.number] * len(tree)
        numbers.update((provider.uuid, provider.number) for provider in tree)
    allocating = providers if allocations else []
    now = now or present_time(rows)
    return Columns(
        ProviderColumns(
            provider_id=_values(providers, "number"),
            uuid=_values(providers, "uuid"),
            name=_values(providers, "name"),
            parent_id=tuple([numbers[provider.parent_uuid] for provider in providers]),
            root_id=tuple(root_ids),
            generation=_values(providers, "generation"),
            disabled=tuple([in_force(provider.disabled, now) for provider in providers]),
            **{name: _values(providers, name) for name in TIMES},
        ),
        _inventory_columns(rows, providers),
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
    providers: list[ProviderRow] = []
    for uuid, generation in zip(before.providers.uuid, before.providers.generation, strict=True):
        provider = rows.providers.get(uuid)
        if provider is None or provider.generation != generation:
            return None
        providers.append(provider)
    inventories, now = rows.inventories.rows, present_time(rows)
    used = [inventories[p.uuid, name].record.used for p in providers for name in p.classes]
    disabled = [in_force(provider.disabled, now) for provider in providers]
    return Columns(
        before.providers._replace(disabled=tuple(disabled)),
        before.inventories._replace(used=tuple(used)),
        before.traits,
        aggregates=before.aggregates,
        shares=before.shares,
        kinds=before.kinds,
        units=UnitColumns(*zip(*_unit_rows(rows, providers), strict=True)),
        now=now,
    )


def present_time(rows: Rows) -> datetime.datetime | None:
    """Return the present time if anything is disabled: that can end by time."""
    return clock.now() if rows.disabled.keys else None


def in_force(disabled: Disabled | None, now: datetime.datetime | None) -> Disabled | None:
    """Return why a provider is disabled, None if that has ended."""
    if disabled is None or now is None or disabled.ends_at <= now:
        return None
    return disabled


# Providers and inventories are read column by column: a tuple for each of 100,000 rows would make
# the garbage collector go through all of them several times.


def _inventory_columns(rows: Rows, providers: Sequence[ProviderRow]) -> InventoryColumns:
    inventories = rows.inventories.rows
    records = [inventories[p.uuid, name].record for p in providers for name in p.classes]
    ids = [provider.number for provider in providers for _ in provider.classes]
    return InventoryColumns(
        tuple(ids), *(_values(records, n) for n in InventoryColumns._fields[1:])
    )


def _values(rows: Iterable[object], field: str) -> tuple[Any, ...]:
    return tuple(map(operator.attrgetter(field), rows))


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


# --- columns as rows ------------------------------------------------------------------------------


def rows_of(columns: Columns, consumers: Mapping[str, ConsumerRecord] | None = None) -> Rows:
    """Return the rows of some trees, to carry out a write on them. Cost: linear in the columns.

    They have no server groups and no feed. Removed providers that were disabled are not in columns
    either: a provider that is created again is enabled.

    :param consumers: the records of consumers, by name; others have allocations only
    """
    rows = Rows()
    rows.has_groups = False
    providers, inventories = columns.providers, columns.inventories
    uuid_of, disabled = columns.index.uuids, columns.disabled
    rows.provider_numbers = itertools.count(max(uuid_of, default=0) + 1)
    direct: dict[Key, int] = defaultdict(int)
    for number, name, consumer, amount in zip(*columns.allocations, strict=True):
        key = uuid_of[number], name
        direct[key] += amount
        rows.allocations.put_unjournaled((*key, consumer), None, amount)
    for number, unit, name, consumer in zip(*columns.units, strict=True):
        rows.units.put_unjournaled((uuid_of[number], unit), None, UnitRow(consumer, name))
    keys = zip(inventories.provider_id, inventories.resource_class, strict=True)
    used = dict(zip(keys, inventories.used, strict=True))
    definitions = stored_definitions(columns).values()
    times = providers.reported_at, providers.adopted_at
    rows_of_providers = zip(providers.provider_id, definitions, *times, strict=True)
    for number, stored, reported_at, adopted_at in rows_of_providers:
        definition, uuid = stored.definition, stored.definition.uuid
        provider = ProviderRow(
            number,
            uuid,
            definition.name,
            definition.parent_uuid,
            definition.traits,
            definition.aggregates or frozenset(),
            tuple(record.resource_class for record in definition.inventories),
            definition.kinds,
            stored.generation,
            reported_at,
            adopted_at,
            disabled=disabled.get(number),
        )
        rows.providers.put_unjournaled(uuid, None, provider)
        shares: dict[str, list[tuple[Key, int]]] = defaultdict(list)
        for share in definition.shares:
            target = share.of_uuid, share.of_class
            shares[share.resource_class].append((target, share.factor))
        for record in definition.inventories:
            name = record.resource_class
            record = record.using(used[number, name])
            row = InventoryRow(record, direct[uuid, name], 0, tuple(shares[name]))
            rows.inventories.put_unjournaled((uuid, name), None, row)
    for claim in (consumers or {}).values():
        rows.consumers.put_unjournaled(claim.consumer, None, claim)
    for kind, names in (
        (NameKind.RESOURCE_CLASS, inventories.resource_class),
        (NameKind.TRAIT, columns.traits.trait),
        (NameKind.AGGREGATE, columns.aggregates.aggregate),
    ):
        for name in {*names}:
            rows.names.put_unjournaled((kind, name), None, ListedName(0, name))
    return rows


# --- dry runs -------------------------------------------------------------------------------------


def rehearse(
    plan: Plan, columns: Columns, claims: Mapping[str, ConsumerRecord], now: datetime.datetime
) -> Rows:
    """Return the rows after a plan, or raise the error that the write would raise.

    Policies of server groups are not checked: groups are not among the columns.

    :param columns: the trees of all :attr:`Plan.places`, of the allocations of its consumers, and
        of providers that have a name to create
    :param claims: the records of :attr:`Plan.consumers`, by name
    :param now: the time of the ledger
    :raises InvalidPlan: as :func:`check_definitions`
    :raises ResourceObjectsError: as :meth:`~resource_objects.providers.backend.Backend.commit`
    """
    if plan.definitions is not None:
        check_definitions(plan.definitions, columns)
    write = plan.write(Operation(), "dry run", "dry run")
    rows = rows_of(columns, claims)
    try:
        carry_out(rows, write, now, _next_generation(columns))
    except exceptions.InUse as error:
        consumers = consumers_of(columns, error.name, error.detail)
        raise exceptions.InUse(error.subject, error.name, error.detail, consumers) from error
    return rows


def consumers_of(columns: Columns, provider: str, resource_class: str = "") -> tuple[str, ...]:
    """Return the consumers of a provider, through shares too, by name.

    :param resource_class: only of this inventory
    """
    number = columns.index.numbers_by_name.get(provider)
    inventories = columns.inventories
    consumers = {
        consumer
        for at, name in zip(inventories.provider_id, inventories.resource_class, strict=True)
        if at == number and resource_class in ("", name)
        for consumer in holders_of(columns, at, name)
    }
    return tuple(sorted(consumers))


def check_definitions(changes: DefinitionChanges, columns: Columns) -> None:
    """Raise unless changes are possible and lead to the definitions that they state.

    :param columns: as for :func:`rehearse`; allocations are not read
    :raises Stale: if a provider is not at the generation of the changes
    :raises AlreadyExists: if a name or uuid to create exists
    :raises InvalidPlan: if the result is not a set of trees, a share breaks a rule of shares, or
        it differs from the definitions that the changes state
    """
    moment = datetime.datetime.min.replace(tzinfo=datetime.UTC)
    transaction = Transaction(rows_of(columns), moment, _next_generation(columns))
    DefinitionWork(transaction, changes).check()
    before = {uuid: row.definition for uuid, row in stored_definitions(columns).items()}
    after = {**before, **{definition.uuid: definition for definition in changes.definitions}}
    for removal in changes.removals:
        after.pop(removal.uuid, None)
    for definition in after.values():
        if definition.parent_uuid is not None and definition.parent_uuid not in after:
            raise exceptions.Stale("provider", definition.name, "its parent does not exist")
    check_plan(changes, before, after)


def redefined(columns: Columns, plan: Plan, now: datetime.datetime) -> Columns:
    """Return columns after a plan without orders, or raise the error that the write would raise.

    :param now: the time of the ledger
    :returns: parents before children. Cost: linear in the rows
    """
    rows = rehearse(plan, columns, {}, now)
    return columns_of(rows, roots_of_all(rows), None, now=columns.now or now)


def _next_generation(columns: Columns) -> int:
    return max(columns.providers.generation, default=0) + 1
