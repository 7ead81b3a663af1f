"""Columns and trees as if something were allocated, released or defined. Pure.

For decisions on what was read: several amounts are assigned one after the other, and a consumer
that moves is assigned as if nothing were allocated to it. The effects of a write, or its refusal,
are in :mod:`resource_objects.store.columns`.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from resource_objects.providers.columns import AllocationColumns, Columns, UnitColumns
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    definitions_of,
    inventories_of,
)
from resource_objects.providers.orders import Use
from resource_objects.providers.provider import Provider, Share

_Figure = TypeVar("_Figure")


def trees_after(roots: Iterable[Provider], changes: DefinitionChanges | None) -> list[Provider]:
    """Return trees after changes, by name and without their usage. Cost: linear.

    :param roots: the stored trees that the changes are about

    >>> from resource_objects.providers.definition import diff
    >>> gpus = Provider("box", "VGPU=8", uuid="1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33", generation=0)
    >>> wanted = Provider("box", "VCPU=4", children=[Provider("box/gpu0", "VGPU=8")])
    >>> [box] = trees_after([gpus], diff(gpus, wanted))
    >>> print(box, *box.children, sep=", ")
    box: VCPU=4, box/gpu0: VGPU=8
    """
    changes = changes or DefinitionChanges("")
    definitions = {uuid: stored.definition for uuid, stored in definitions_of(roots).items()}
    definitions |= {definition.uuid: definition for definition in changes.definitions}
    for removal in changes.removals:
        definitions.pop(removal.uuid, None)
    children: dict[str | None, list[ProviderDefinition]] = defaultdict(list)
    for definition in sorted(definitions.values(), key=lambda definition: definition.name):
        children[definition.parent_uuid].append(definition)

    def to_provider(definition: ProviderDefinition) -> Provider:
        return Provider(
            definition.name,
            inventories_of(definition.inventories, definition.kinds),
            traits=definition.traits,
            uuid=definition.uuid,
            aggregates=definition.aggregates or (),
            shares=[
                Share(
                    resource_class=share.resource_class,
                    of=definitions[share.of_uuid].name,
                    of_class=share.of_class,
                    factor=share.factor,
                )
                for share in definition.shares
            ],
            children=map(to_provider, children[definition.uuid]),
        )

    return list(map(to_provider, children[None]))


# --- columns as if --------------------------------------------------------------------------------


def with_taken(columns: Columns, uses: Iterable[Use], consumer: str = "") -> Columns:
    """Return columns as if amounts of their providers were allocated; other amounts are ignored.

    The allocations do not change: the result is for decisions, and names no new consumer of an
    amount. Cost: linear in the rows, nothing without an amount.

    :param consumer: the consumer of the units
    """
    uses = list(uses)
    if not uses:
        return columns
    numbers = columns.index.numbers
    changes: Counter[tuple[int, str]] = Counter()
    units = [*zip(*columns.units, strict=True)]
    for use in uses:
        number = numbers.get(use.provider_uuid)
        if number is not None:
            changes[number, use.resource_class] += use.amount
            units += [(number, unit, use.resource_class, consumer) for unit in use.units]
    return dataclasses.replace(
        _recounted(columns, changes), units=UnitColumns(*zip(*units, strict=True))
    )


def without_consumers(
    columns: Columns, *consumers: str, only: Collection[int] | None = None
) -> Columns:
    """Return columns without the allocations of some consumers. Cost: linear in the rows.

    :param only: of these providers, by number; None: of all
    """
    leaving = frozenset(consumers)
    changes: Counter[tuple[int, str]] = Counter()
    allocations: list[tuple[Any, ...]] = []
    for row in zip(*columns.allocations, strict=True):
        number, name, consumer, amount = row
        if consumer in leaving and (only is None or number in only):
            changes[number, name] -= amount
        else:
            allocations.append(row)
    units = [
        row
        for row in zip(*columns.units, strict=True)
        if row[3] not in leaving or not (only is None or row[0] in only)
    ]
    return dataclasses.replace(
        _recounted(columns, changes),
        units=UnitColumns(*zip(*units, strict=True)),
        allocations=AllocationColumns(*zip(*allocations, strict=True)),
    )


def in_place(columns: Columns, consumer: str, *, only: Collection[int] | None = None) -> Columns:
    """Return columns for a change in place: without a consumer, with capacity for its use.

    The unit rules of an inventory allow the amount that the consumer has allocated of it. Its
    capacity allows all that the consumer uses of it, through shares too. Both do so even if the
    inventory shrank below that since. Cost: linear in the rows.

    :param only: of these providers, by number; None: of all
    """
    amounts = {
        (number, name): amount
        for number, name, owner, amount in zip(*columns.allocations, strict=True)
        if owner == consumer and (only is None or number in only)
    }
    released = without_consumers(columns, consumer, only=only)
    table = released.inventories
    keys = zip(table.provider_id, table.resource_class, strict=True)
    in_use = [amounts.get(key, 0) for key in keys]

    def allowing(figures: Sequence[_Figure], allow: Callable[[_Figure, int], _Figure]) -> Any:
        pairs = zip(figures, in_use, strict=True)
        return tuple(allow(figure, amount) if amount else figure for figure, amount in pairs)

    rows = zip(table.capacity, columns.inventories.used, table.used, strict=True)  # shares too
    relaxed = table._replace(
        min_unit=allowing(table.min_unit, min),
        max_unit=allowing(table.max_unit, lambda most, n: None if most is None else max(most, n)),
        step_size=allowing(table.step_size, math.gcd),
        capacity=tuple(
            max(capacity, before) if before > used else capacity for capacity, before, used in rows
        ),
    )
    return dataclasses.replace(released, inventories=relaxed)


def held_in(columns: Columns, consumer: str) -> Iterator[Use]:
    """Yield the allocations of a consumer. Cost: linear in the rows."""
    uuids, names = columns.index.uuids, columns.index.names
    units: dict[tuple[int, str], tuple[str, ...]] = defaultdict(tuple)
    for number, unit, name, owner in zip(*columns.units, strict=True):
        if owner == consumer:
            units[number, name] += (unit,)
    for number, name, owner, amount in zip(*columns.allocations, strict=True):
        if owner == consumer:
            yield Use(uuids[number], name, amount, units[number, name], names[number])


def _recounted(columns: Columns, changes: Mapping[tuple[int, str], int]) -> Columns:
    """Return columns in which more is used, through shares too."""
    more = dict(changes)
    for number, name, of, of_class, factor in zip(*columns.shares, strict=True):
        if change := changes.get((number, name), 0):
            more[of, of_class] = more.get((of, of_class), 0) + change * factor
    table = columns.inventories
    rows = zip(table.provider_id, table.resource_class, table.used, strict=True)
    used = tuple(amount + more.get((number, name), 0) for number, name, amount in rows)
    return dataclasses.replace(columns, inventories=table._replace(used=used))
