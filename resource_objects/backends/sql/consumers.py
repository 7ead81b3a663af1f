"""Consumers as they are kept, with what they hold.

They are read without a lock. Their generations tell whether that was still true when it is written
(``claims.pass_on``): every write changes them, and no later life repeats one.

Every function takes any number of consumers, with a number of statements that does not depend on
it.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.retries import Transient
from resource_objects.backends.sql import tables
from resource_objects.backends.sql.places import COLUMNS, Found, Places
from resource_objects.backends.sql.statements import MOST, Sized, chunks, from_moment, listed
from resource_objects.providers.orders import ConsumerRecord, Key, StoredRequest, Use

_providers = tables.resource_providers.c
_inventories = tables.inventories.c
_classes = tables.resource_classes.c
_consumers = tables.consumers.c
_allocations = tables.allocations.c
_units = tables.allocation_units.c

_SAID = (
    *(_consumers.id, _consumers.generation, _consumers.gone, _consumers.uuid, _consumers.name),
    *(_consumers.created_at, _consumers.state, _consumers.request, _consumers.project_id),
    *(_consumers.user_id, _consumers.consumer_type, _consumers.expires_at),
    _consumers.writes,
    _consumers.server_group,
)


def _by_name(names: int) -> tuple[sa.ColumnElement[bool], ...]:
    return listed(_consumers.name, "names", names), _consumers.gone == sa.literal_column("0")


def _holds_query(ids: int) -> sa.Select[*tuple[Any, ...]]:
    # a row for each allocation, and one more for each further unit of it
    return (
        sa.select(_allocations.consumer_id, _allocations.provider_id, _allocations.class_id)
        .add_columns(_allocations.used, _units.unit, _allocations.position)
        .outerjoin_from(
            tables.allocations,
            tables.allocation_units,
            sa.and_(
                _units.consumer_id == _allocations.consumer_id,
                _units.provider_id == _allocations.provider_id,
                _units.class_id == _allocations.class_id,
            ),
        )
        .where(listed(_allocations.consumer_id, "ids", ids))
        .order_by(_allocations.consumer_id, _allocations.position, _allocations.provider_id)
        .order_by(_allocations.class_id, _units.unit)
    )


def _places_query(providers: int, classes: int) -> sa.Select[*tuple[Any, ...]]:
    # each place once, however many hold something there; joined to all their allocations, a
    # planner may think it better to go through every inventory there is
    return (
        sa.select(_inventories.provider_id, _inventories.class_id, *COLUMNS)
        .join_from(
            tables.inventories,
            tables.resource_providers,
            _providers.id == _inventories.provider_id,
        )
        .join(tables.resource_classes, _classes.id == _inventories.class_id)
        .where(
            listed(_inventories.provider_id, "providers", providers),
            listed(_inventories.class_id, "classes", classes),
        )
        # by old statistics MySQL would go through all that there is of these classes
        .prefix_with("STRAIGHT_JOIN", dialect="mysql")
        .with_hint(
            tables.inventories, "FORCE INDEX (uniq_inventories0provider_id0class_id)", "mysql"
        )
    )


_CONSUMERS = Sized(lambda names: sa.select(*_SAID).where(*_by_name(names)))
BY_ID = Sized(lambda ids: sa.select(*_SAID).where(listed(_consumers.id, "ids", ids)))
_HOLDS = Sized(_holds_query)
_GENERATIONS = Sized(
    lambda names: sa.select(_consumers.name, _consumers.generation).where(*_by_name(names))
)


class Holding(NamedTuple):
    """One allocation as kept: where it is counted, what it is, and which of its consumer's."""

    at: Found
    held: Use
    position: int


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerRow:
    """A consumer as kept, with what it holds; ``part`` tells the query that found it."""

    number: int
    record: ConsumerRecord
    holdings: dict[Key, Holding]
    part: int


def find_consumers(
    connection: Connection, names: Collection[str], at: Places
) -> dict[str, ConsumerRow]:
    """Return those of some consumers that hold something, by name; note in ``at`` where.

    Cost: three queries.
    """
    found: dict[str, ConsumerRow] = {}
    for part, some in enumerate(chunks(list(names), MOST // 2)):  # pass_on has two such lists
        kept = _CONSUMERS.rows(connection, names=some)
        held_there = holdings(connection, [row[0] for row in kept], at)
        for number, generation, _, *said in kept:
            held = held_there[number]
            record = record_of(generation, said, tuple(one.held for one in held.values()))
            found[record.consumer] = ConsumerRow(number, record, held, part)
    return found


def held_by(connection: Connection, names: Collection[str]) -> dict[str, ConsumerRecord]:
    """Return what some consumers hold, by name. Cost: three queries."""
    return {name: one.record for name, one in find_consumers(connection, names, Places()).items()}


def holdings(
    connection: Connection, numbers: Sequence[int], at: Places
) -> dict[int, dict[Key, Holding]]:
    """Return what consumers hold, by their numbers."""
    found: dict[int, dict[Key, Holding]] = defaultdict(dict)
    if not numbers:
        return found
    units: dict[tuple[int, int, int], list[str]] = {}
    amounts: dict[tuple[int, int, int], tuple[int, int]] = {}
    for part in chunks(numbers):
        for consumer, provider, class_, amount, unit, position in _HOLDS.rows(connection, ids=part):
            row = consumer, provider, class_
            amounts[row] = amount, position
            if unit is not None:
                units.setdefault(row, []).append(unit)
    places = _places(connection, {row[1:] for row in amounts}, at)
    for row, (amount, position) in amounts.items():
        there = places.get(row[1:])
        if there is None:  # given back since, and then removed
            raise Transient(exceptions.DatabaseBusy("inventory", "it was removed in between"))
        uuid, name = there.key
        held = Use(uuid, name, amount, tuple(units.get(row, ())), there.provider)
        found[row[0]][there.key] = Holding(there, held, position)
    return found


_PLACES = Sized(_places_query)


def _places(
    connection: Connection, wanted: Collection[tuple[int, int]], at: Places
) -> dict[tuple[int, int], Found]:
    """Return inventories by the numbers of their providers and classes; note them in ``at``."""
    found: dict[tuple[int, int], Found] = {}
    classes = sorted({class_ for _, class_ in wanted})
    for part in chunks(sorted({provider for provider, _ in wanted})):
        for provider, class_, *row in _PLACES.rows(connection, providers=part, classes=classes):
            if (provider, class_) in wanted:
                there = at.add(row)
                assert there is not None  # it has a number
                found[provider, class_] = there
    return found


def record_of(generation: int, said: Sequence[Any], held: tuple[Use, ...]) -> ConsumerRecord:
    uuid, name, created_at, state, request, project, user, kind, expires_at, writes, group = said
    return ConsumerRecord(
        uuid,
        name,
        from_moment(created_at),
        held,
        state,
        None if request is None else StoredRequest(request),
        generation,
        project,
        user,
        kind,
        None if expires_at is None else from_moment(expires_at),
        writes,
        group,
    )


def is_there(connection: Connection, name: str) -> bool:
    """Return whether a consumer of that name holds something."""
    return bool(_GENERATIONS.rows(connection, names=[name]))


def are_unchanged(
    connection: Connection, names: Collection[str], kept: Mapping[str, ConsumerRow]
) -> bool:
    """Return whether some consumers are still as they were found, those not found included."""
    now: dict[str, int] = {}
    for part in chunks(list(names)):
        now.update(_GENERATIONS.rows(connection, names=part))
    return now == {name: one.record.generation for name, one in kept.items()}
