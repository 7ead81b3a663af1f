"""Columns and trees as if something were allocated, released or defined. Pure.

For decisions on what was read: several amounts are assigned one after the other, and a consumer
that moves is assigned as if nothing were allocated to it. What a write would do or refuse is in
:mod:`resource_objects.store.dry_run`.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from resource_objects.providers.columns import (
    AllocationColumns,
    Columns,
    UnitColumns,
)
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    definitions_of,
    inventories_of,
)
from resource_objects.providers.orders import Change, Use
from resource_objects.providers.provider import Provider, Share


def trees_after(roots: Iterable[Provider], changes: DefinitionChanges | None) -> list[Provider]:
    """Return trees as changes would leave them, by name, without what is used. Cost: linear.

    :param roots: the trees that the changes are about, as they are kept

    >>> from resource_objects.providers.definition import diff
    >>> gpus = Provider("box", "VGPU=8", uuid="1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33", generation=0)
    >>> wanted = Provider("box", "VCPU=4", children=[Provider("box/gpu0", "VGPU=8")])
    >>> [box] = trees_after([gpus], diff(gpus, wanted))
    >>> print(box, *box.children, sep=", ")
    box: VCPU=4, box/gpu0: VGPU=8
    """
    final = {uuid: one.definition for uuid, one in definitions_of(roots).items()}
    if changes is not None:
        final.update((one.uuid, one) for one in changes.creates)
        final.update((one.definition.uuid, one.definition) for one in changes.updates)
        for removal in changes.removals:
            final.pop(removal.uuid, None)
    below: dict[str | None, list[ProviderDefinition]] = defaultdict(list)
    for one in sorted(final.values(), key=lambda one: one.name):
        below[one.parent_uuid].append(one)
    names = {uuid: one.name for uuid, one in final.items()}

    def made(one: ProviderDefinition) -> Provider:
        return Provider(
            one.name,
            inventories_of(one.inventories, one.kinds),
            traits=one.traits,
            uuid=one.uuid,
            aggregates=one.aggregates or (),
            shares=[
                Share(
                    resource_class=share.resource_class,
                    of=names[share.of_uuid],
                    of_class=share.of_class,
                    factor=share.factor,
                )
                for share in one.shares
            ],
            children=map(made, below[one.uuid]),
        )

    return list(map(made, below[None]))


# --- columns as if ---


_T = TypeVar("_T", bound=tuple[Any, ...])
_F = TypeVar("_F")

#: (provider's number, resource class)
_Place: TypeAlias = tuple[int, str]


def with_taken(columns: Columns, deltas: Iterable[Use], consumer: str = "") -> Columns:
    """Return columns as if ``deltas`` were taken, as far as they are of providers in them.

    Allocations are left as they are: it is for deciding, not for telling who holds what. Cost:
    linear in the rows, nothing where there are no deltas.

    :param consumer: who has their units then
    """
    deltas = list(deltas)
    if not deltas:
        return columns
    numbers = columns.index.numbers
    counts: dict[_Place, int] = defaultdict(int)
    more: list[tuple[int, str, str, str]] = []
    for delta in deltas:
        if delta.provider_uuid in numbers:
            number = numbers[delta.provider_uuid]
            counts[number, delta.resource_class] += delta.amount
            more += [(number, unit, delta.resource_class, consumer) for unit in delta.units]
    units = [*zip(*columns.units, strict=True), *more]
    return dataclasses.replace(_recounted(columns, counts), units=_table(UnitColumns, units))


def after(columns: Columns, changes: Iterable[Change]) -> Columns:
    """Return columns after changes of what consumers hold, as far as they are of providers in them.

    Cost: linear in the rows.
    """
    numbers = columns.index.numbers
    counts: dict[_Place, int] = defaultdict(int)
    given: set[tuple[int, str]] = set()
    taken: list[tuple[int, str, str, str]] = []
    held = {row[:3]: row[3] for row in zip(*columns.allocations, strict=True)}
    for one in changes:
        (uuid, name), who = one.key, one.consumer
        if uuid in numbers:
            number = numbers[uuid]
            counts[number, name] += one.after - one.before
            held[number, name, who] = one.after
            given.update((number, unit) for unit in one.given)
            taken += [(number, unit, name, who) for unit in one.taken]
    units = [row for row in zip(*columns.units, strict=True) if row[:2] not in given]
    return dataclasses.replace(
        _recounted(columns, counts),
        units=_table(UnitColumns, [*units, *taken]),
        allocations=_table(AllocationColumns, [(*key, n) for key, n in held.items() if n]),
    )


def without_consumers(
    columns: Columns, *consumers: str, only: Collection[int] | None = None
) -> Columns:
    """Return columns without the allocations of some consumers. Cost: linear in the rows.

    :param only: of these providers, by number; None: of all
    """
    gone = frozenset(consumers)
    counts: dict[_Place, int] = defaultdict(int)
    others: list[tuple[Any, ...]] = []
    for row in zip(*columns.allocations, strict=True):
        number, name, who, amount = row
        if who in gone and (only is None or number in only):
            counts[number, name] -= amount
        else:
            others.append(row)
    units = [
        row
        for row in zip(*columns.units, strict=True)
        if row[3] not in gone or not (only is None or row[0] in only)
    ]
    return dataclasses.replace(
        _recounted(columns, counts),
        units=_table(UnitColumns, units),
        allocations=_table(AllocationColumns, others),
    )


def in_place(columns: Columns, consumer: str, *, only: Collection[int] | None = None) -> Columns:
    """Return columns for a change in place: without a consumer, with capacity for its use.

    The unit rules of an inventory allow the amount that the consumer has allocated of it. Its
    capacity allows all that the consumer uses of it, through shares too. Both do so even if the
    inventory shrank below that since. Cost: linear in the rows.

    :param only: of these providers, by number; None: of all
    """
    amounts = {
        (number, name): n
        for number, name, who, n in zip(*columns.allocations, strict=True)
        if who == consumer and (only is None or number in only)
    }
    found = without_consumers(columns, consumer, only=only)
    table = found.inventories
    places = zip(table.provider_id, table.resource_class, strict=True)
    in_use = [amounts.get(place, 0) for place in places]

    def allowed(figures: Sequence[_F], allow: Callable[[_F, int], _F]) -> tuple[_F, ...]:
        pairs = zip(figures, in_use, strict=True)
        return tuple(allow(figure, amount) if amount else figure for figure, amount in pairs)

    rows = zip(table.capacity, columns.inventories.used, table.used, strict=True)  # shares too
    capacity = [max(most, before) if before > used else most for most, before, used in rows]
    relaxed = table._replace(
        min_unit=allowed(table.min_unit, min),
        max_unit=allowed(table.max_unit, lambda most, n: None if most is None else max(most, n)),
        step_size=allowed(table.step_size, math.gcd),
        capacity=tuple(capacity),
    )
    return dataclasses.replace(found, inventories=relaxed)


def held_in(columns: Columns, consumer: str) -> Iterator[Use]:
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
            yield Use(
                keys[number][0], kind, amount, tuple(units.get((number, kind), ())), keys[number][1]
            )


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
