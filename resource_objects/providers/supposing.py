"""Columns as they would be: with something taken, or without what a consumer holds. Pure.

Who decides where several amounts go at once decides each beside those before it; who moves a
consumer decides as if it held nothing. Neither changes what is kept.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from resource_objects.providers.columns import AllocationColumns, Columns, UnitColumns
from resource_objects.providers.orders import Delta, Held

_T = TypeVar("_T", AllocationColumns, UnitColumns)

#: (provider's number, resource class)
_Place: TypeAlias = tuple[int, str]


def with_taken(columns: Columns, deltas: Iterable[Delta], consumer: str = "") -> Columns:
    """Return columns as if ``deltas`` were taken, as far as they are of providers in them.

    Allocations are left as they are: it is for deciding, not for telling who holds what. Cost:
    linear in the rows.

    :param consumer: who has their units then
    """
    numbers = dict(zip(columns.providers.uuid, columns.providers.provider_id, strict=True))
    counts: dict[_Place, int] = defaultdict(int)
    more: list[tuple[int, str, str, str]] = []
    for delta in deltas:
        if delta.provider_uuid in numbers:
            number = numbers[delta.provider_uuid]
            counts[number, delta.resource_class] += delta.amount
            more += [(number, unit, delta.resource_class, consumer) for unit in delta.units]
    units = [*zip(*columns.units, strict=True), *more]
    return dataclasses.replace(_recounted(columns, counts), units=_table(UnitColumns, units))


def without(columns: Columns, consumer: str) -> Columns:
    """Return columns as if a consumer held nothing. Cost: linear in the rows."""
    counts: dict[_Place, int] = defaultdict(int)
    others: list[tuple[Any, ...]] = []
    for row in zip(*columns.allocations, strict=True):
        number, name, who, amount = row
        if who == consumer:
            counts[number, name] -= amount
        else:
            others.append(row)
    units = [row for row in zip(*columns.units, strict=True) if row[3] != consumer]
    return dataclasses.replace(
        _recounted(columns, counts),
        units=_table(UnitColumns, units),
        allocations=_table(AllocationColumns, others),
    )


def held_in(columns: Columns, consumer: str) -> Iterator[Held]:
    """Yield what a consumer holds of the providers in columns. Cost: linear in the rows."""
    given = columns.providers
    rows = zip(given.provider_id, given.uuid, given.name, strict=True)
    keys = {number: (uuid, name) for number, uuid, name in rows}
    units: dict[_Place, list[str]] = defaultdict(list)
    for number, unit, kind, who in zip(*columns.units, strict=True):
        if who == consumer:
            units[number, kind].append(unit)
    for number, kind, who, amount in zip(*columns.allocations, strict=True):
        if who == consumer:
            yield Held(*keys[number], kind, amount, tuple(units.get((number, kind), ())))


def _recounted(columns: Columns, counts: Mapping[_Place, int]) -> Columns:
    """Return columns in which so much more is used, through shares too."""
    changes = dict(counts)
    for number, name, of, of_class, factor in zip(*columns.shares, strict=True):
        more = counts.get((number, name), 0)
        if more:
            changes[of, of_class] = changes.get((of, of_class), 0) + more * factor
    table = columns.inventories
    rows = zip(table.provider_id, table.resource_class, table.used, strict=True)
    used = tuple(count + changes.get((number, name), 0) for number, name, count in rows)
    return dataclasses.replace(columns, inventories=table._replace(used=used))


def _table(kind: type[_T], rows: Iterable[tuple[Any, ...]]) -> _T:
    columns = list(zip(*rows, strict=True))
    return kind(*columns) if columns else kind()
