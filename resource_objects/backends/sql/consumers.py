"""Stored consumers with their allocations.

Consumers are read without a lock. ``claims.pass_on`` writes them only if they are still at the
generations that were read: every write changes the generation, and a consumer that is created again
never repeats one.

The number of statements of a function does not depend on the number of consumers.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.retries import Transient
from resource_objects.backends.sql.places import COLUMNS, Found, Places
from resource_objects.backends.sql.statements import MOST, SQL, chunks, from_moment
from resource_objects.providers.orders import ConsumerRecord, Key, StoredRequest, Use

_COLUMNS = """id, generation, gone, uuid, name, created_at, state, request, project_id, user_id,
 consumer_type, expires_at, writes, server_group"""

_CONSUMERS = SQL(f"SELECT {_COLUMNS} FROM consumers WHERE name IN :names* AND gone = 0")
BY_ID = SQL(f"SELECT {_COLUMNS} FROM consumers WHERE id IN :ids*")
# One row for each allocation, and one more for each further unit of it.
_HOLDS = SQL("""
    SELECT a.consumer_id, a.provider_id, a.class_id, a.used, u.unit, a.position FROM allocations a
    LEFT JOIN allocation_units u ON u.consumer_id = a.consumer_id
        AND u.provider_id = a.provider_id AND u.class_id = a.class_id
    WHERE a.consumer_id IN :ids*
    ORDER BY a.consumer_id, a.position, a.provider_id, a.class_id, u.unit""")
# Each inventory once, whatever the number of its consumers: joined to all their allocations, a
# planner may read every inventory. By old statistics MySQL would read all those of the classes.
_PLACES = SQL(f"""
    SELECT {{mysql: STRAIGHT_JOIN}} i.provider_id, i.class_id, {COLUMNS} FROM inventories i
    {{mysql: FORCE INDEX (uniq_inventories0provider_id0class_id)}}
    JOIN resource_providers p ON p.id = i.provider_id
    JOIN resource_classes c ON c.id = i.class_id
    WHERE i.provider_id IN :providers* AND i.class_id IN :classes*""")
_GENERATIONS = SQL("SELECT name, generation FROM consumers WHERE name IN :names* AND gone = 0")


class Holding(NamedTuple):
    """A stored allocation: its inventory, its amount, and its position among the consumer's."""

    at: Found
    held: Use
    position: int


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerRow:
    """A stored consumer with its allocations; ``part`` numbers the query that read it."""

    number: int
    record: ConsumerRecord
    holdings: dict[Key, Holding]
    part: int


def find_consumers(
    connection: Connection, names: Collection[str], at: Places
) -> dict[str, ConsumerRow]:
    """Return the stored consumers of some names, and add their inventories to ``at``.

    Cost: three queries.
    """
    found: dict[str, ConsumerRow] = {}
    for part, some in enumerate(chunks(list(names), MOST // 2)):  # pass_on has two such lists
        kept = _CONSUMERS.rows(connection, names=some)
        held_there = holdings(connection, [row[0] for row in kept], at)
        for number, generation, _, *columns in kept:
            held = held_there[number]
            record = record_of(generation, columns, tuple(one.held for one in held.values()))
            found[record.consumer] = ConsumerRow(number, record, held, part)
    return found


def held_by(connection: Connection, names: Collection[str]) -> dict[str, ConsumerRecord]:
    """Return the stored consumers of some names. Cost: three queries."""
    return {name: one.record for name, one in find_consumers(connection, names, Places()).items()}


def holdings(
    connection: Connection, numbers: Sequence[int], at: Places
) -> dict[int, dict[Key, Holding]]:
    """Return the allocations of consumers, by the numbers of these."""
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
        if there is None:  # released since, and then removed
            raise Transient(
                exceptions.DatabaseError("busy", "inventory", "it was removed in between")
            )
        uuid, name = there.key
        held = Use(uuid, name, amount, tuple(units.get(row, ())), there.provider)
        found[row[0]][there.key] = Holding(there, held, position)
    return found


def _places(
    connection: Connection, wanted: Collection[tuple[int, int]], at: Places
) -> dict[tuple[int, int], Found]:
    """Return inventories by the numbers of provider and class, after adding them to ``at``."""
    found: dict[tuple[int, int], Found] = {}
    classes = sorted({class_ for _, class_ in wanted})
    for part in chunks(sorted({provider for provider, _ in wanted})):
        for provider, class_, *row in _PLACES.rows(connection, providers=part, classes=classes):
            if (provider, class_) in wanted:
                there = at.add(row)
                assert there is not None  # it has a number
                found[provider, class_] = there
    return found


def record_of(generation: int, columns: Sequence[Any], held: tuple[Use, ...]) -> ConsumerRecord:
    uuid, name, created_at, state, request, project, user, kind, expires_at, writes, group = columns
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
    """Return True if a consumer of that name is stored."""
    return bool(_GENERATIONS.rows(connection, names=[name]))


def are_unchanged(
    connection: Connection, names: Collection[str], kept: Mapping[str, ConsumerRow]
) -> bool:
    """Return True if consumers are still as they were read, the missing ones included."""
    now: dict[str, int] = {}
    for part in chunks(list(names)):
        now.update(_GENERATIONS.rows(connection, names=part))
    return now == {name: one.record.generation for name, one in kept.items()}
