"""Consumers as rows: with their claims and allocations, found, made, changed and forgotten.

What consumers hold is read without a lock. Their generations tell whether that was still true when
it is written (:func:`pass_on`): every write changes them, and no later life repeats one.

Every function takes any number of consumers, with a number of statements that does not depend on
it.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import rows, schema
from resource_objects.backends.sql.chunks import MOST, chunks
from resource_objects.backends.sql.places import COLUMNS, Found, Places
from resource_objects.backends.sql.retry import Transient
from resource_objects.backends.sql.statements import Insert, Sized, from_moment, listed, moment
from resource_objects.providers.orders import ClaimRecord, Held, Key

_providers = schema.resource_providers.c
_inventories = schema.inventories.c
_classes = schema.resource_classes.c
_consumers = schema.consumers.c
_claims = schema.claims.c
_allocations = schema.allocations.c
_units = schema.allocation_units.c


def _consumers_query(names: int) -> sa.Select[*tuple[Any, ...]]:
    return (
        sa.select(
            *(_consumers.id, _consumers.generation, _claims.uuid, _consumers.name),
            *(_consumers.uuid, _claims.created_at, _claims.state, _consumers.request),
            *(_consumers.project_id, _consumers.user_id, _consumers.consumer_type),
            _claims.expires_at,
        )
        .join_from(schema.consumers, schema.claims)
        .where(listed(_consumers.name, "names", names))
    )


def _holds_query(ids: int) -> sa.Select[*tuple[Any, ...]]:
    # a row for each allocation, and one more for each further unit of it
    return (
        sa.select(_allocations.consumer_id, _allocations.id, _allocations.provider_id)
        .add_columns(_allocations.class_id, _allocations.used, _units.unit)
        .outerjoin_from(
            schema.allocations, schema.allocation_units, _units.allocation_id == _allocations.id
        )
        .where(listed(_allocations.consumer_id, "ids", ids))
        .order_by(_allocations.id, _units.unit)
    )


def _places_query(providers: int, classes: int) -> sa.Select[*tuple[Any, ...]]:
    # each place once, however many hold something there; joined to all their allocations, a
    # planner may think it better to go through every inventory there is
    return (
        sa.select(_inventories.provider_id, _inventories.class_id, *COLUMNS)
        .join_from(
            schema.inventories,
            schema.resource_providers,
            _providers.id == _inventories.provider_id,
        )
        .join(schema.resource_classes, _classes.id == _inventories.class_id)
        .where(
            listed(_inventories.provider_id, "providers", providers),
            listed(_inventories.class_id, "classes", classes),
        )
        # by old statistics MySQL would go through all that there is of these classes
        .prefix_with("STRAIGHT_JOIN", dialect="mysql")
        .with_hint(
            schema.inventories, "FORCE INDEX (uniq_inventories0provider_id0class_id)", "mysql"
        )
    )


def _generations_query(names: int) -> sa.Select[*tuple[Any, ...]]:
    return sa.select(_consumers.name, _consumers.generation).where(
        listed(_consumers.name, "names", names)
    )


def _numbers_query(names: int) -> sa.Select[*tuple[Any, ...]]:
    return sa.select(_consumers.name, _consumers.id).where(listed(_consumers.name, "names", names))


def _pass_on_query(ids: int, generations: int) -> sa.Update:
    return (
        sa.update(schema.consumers)
        .where(
            listed(_consumers.id, "ids", ids),
            listed(_consumers.generation, "generations", generations),
        )
        .values(generation=sa.bindparam("now"))
    )


def _forget_query(table: sa.Table, column: sa.Column[int]) -> Sized:
    return Sized(lambda ids: sa.delete(table).where(listed(column, "ids", ids)))


_CONSUMERS = Sized(_consumers_query)
_HOLDS = Sized(_holds_query)
_PLACES = Sized(_places_query)
_GENERATIONS = Sized(_generations_query)
_NUMBERS = Sized(_numbers_query)
_PASS_ON = Sized(_pass_on_query)
_SAID = (
    *("uuid", "name", "generation", "request", "project_id", "user_id", "consumer_type"),
    "created_at",
)
_MAKE = Insert(schema.consumers, *_SAID)
_MAKE_CLAIMS = Insert(schema.claims, "uuid", "consumer_id", "state", "expires_at", "created_at")
#: what goes with consumers, in this order
_FORGET = (
    _forget_query(schema.allocations, _allocations.consumer_id),
    _forget_query(schema.claims, _claims.consumer_id),
    _forget_query(schema.consumers, _consumers.id),
)


class Holding(NamedTuple):
    """One allocation as kept: its number, where it is counted, and what it is."""

    number: int
    at: Found
    held: Held


@dataclasses.dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer as kept, with what it holds; ``part`` tells the query that found it."""

    number: int
    record: ClaimRecord
    holdings: dict[Key, Holding]
    part: int


# --- found ---


def find(connection: Connection, names: Collection[str], at: Places) -> dict[str, Consumer]:
    """Return those of some consumers that hold something, by name; note in ``at`` where.

    Cost: three queries.
    """
    found: dict[str, Consumer] = {}
    for part, some in enumerate(chunks(list(names), MOST // 2)):  # pass_on has two such lists
        kept = _CONSUMERS.rows(connection, names=some)
        holdings = _holdings(connection, [row[0] for row in kept], at)
        for number, generation, *said in kept:
            held = holdings[number]
            record = _record(generation, said, tuple(one.held for one in held.values()))
            found[record.consumer] = Consumer(number, record, held, part)
    return found


def held_by(connection: Connection, names: Collection[str]) -> dict[str, ClaimRecord]:
    """Return what some consumers hold, by name. Cost: three queries."""
    return {name: one.record for name, one in find(connection, names, Places()).items()}


def _holdings(
    connection: Connection, numbers: Sequence[int], at: Places
) -> dict[int, dict[Key, Holding]]:
    """Return what consumers hold, by their numbers."""
    found: dict[int, dict[Key, Holding]] = defaultdict(dict)
    if not numbers:
        return found
    units: dict[int, list[str]] = {}
    first: dict[int, Sequence[Any]] = {}
    for row in _HOLDS.rows(connection, ids=numbers):
        first.setdefault(row[1], row)
        if row[5] is not None:
            units.setdefault(row[1], []).append(row[5])
    places = _places(connection, {(row[2], row[3]) for row in first.values()}, at)
    for number, (consumer, _, provider, class_, amount, _) in first.items():
        there = places.get((provider, class_))
        if there is None:  # given back since, and then removed
            raise Transient(exceptions.DatabaseBusy("inventory", "it was removed in between"))
        (uuid, name), taken = there.key, tuple(units.get(number, ()))
        held = Held(uuid, there.provider, name, amount, taken)
        found[consumer][there.key] = Holding(number, there, held)
    return found


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


def _record(generation: int, said: Sequence[Any], held: tuple[Held, ...]) -> ClaimRecord:
    claim_id, name, uuid, created_at, state, request, project, user, kind, expires_at = said
    return ClaimRecord(
        claim_id,
        name,
        uuid,
        from_moment(created_at),
        held,
        state,
        request,
        generation,
        project,
        user,
        kind,
        None if expires_at is None else from_moment(expires_at),
    )


def is_there(connection: Connection, name: str) -> bool:
    """Return whether a consumer of that name holds something."""
    return bool(_GENERATIONS.rows(connection, names=[name]))


def are_unchanged(
    connection: Connection, names: Collection[str], kept: Mapping[str, Consumer]
) -> bool:
    """Return whether some consumers are still as they were found, those not found included."""
    now: dict[str, int] = {}
    for part in chunks(list(names)):
        now.update(_GENERATIONS.rows(connection, names=part))
    return now == {name: one.record.generation for name, one in kept.items()}


# --- written ---


def pass_on(connection: Connection, kept: Iterable[Consumer], number: int) -> None:
    """Move consumers on from the generations they were found at, which also locks them.

    It is enough to ask for a generation that one of them was found at: a query sees one moment, so
    none can have come since to where another one was.
    """
    parts: dict[int, list[Consumer]] = defaultdict(list)
    for one in kept:
        parts[one.part].append(one)
    for part in parts.values():
        ids = sorted(one.number for one in part)
        generations = list({one.record.generation for one in part})
        busy = exceptions.DatabaseBusy(
            part[0].record.consumer, "somebody else changes it all the time"
        )
        _PASS_ON.must_match(
            connection,
            len(ids),
            lambda _, busy=busy: Transient(busy),  # type: ignore[misc]
            {"now": number},
            ids=ids,
            generations=generations,
        )


def make(connection: Connection, records: Sequence[ClaimRecord], generation: int) -> dict[str, int]:
    """Insert consumers; return their numbers by name. Cost: one statement, for several two."""
    values = [
        (
            *(one.consumer_uuid, one.consumer, generation, one.request, one.project, one.user),
            *(one.consumer_type, moment(connection, one.created_at)),
        )
        for one in records
    ]
    if len(records) == 1:
        number = _MAKE.one(connection, dict(zip(_SAID, values[0], strict=True)))
        return {records[0].consumer: number}
    _MAKE.many(connection, values)
    found: dict[str, int] = {}
    for part in chunks([one.consumer for one in records]):
        found.update(_NUMBERS.rows(connection, names=part))
    return found


def make_claims(
    connection: Connection, records: Iterable[ClaimRecord], numbers: Mapping[str, int]
) -> None:
    """Insert the claims of consumers just made."""
    values = [
        (
            *(one.id, numbers[one.consumer], one.state, _expiry(connection, one)),
            moment(connection, one.created_at),
        )
        for one in records
    ]
    _MAKE_CLAIMS.many(connection, values)


def _expiry(connection: Connection, record: ClaimRecord) -> Any:
    return None if record.expires_at is None else moment(connection, record.expires_at)


def change(connection: Connection, changed: Iterable[tuple[Consumer, ClaimRecord]]) -> None:
    """Write what is said of consumers, and of their claims, where that is something else now."""
    consumers, claims = [], []
    for kept, now in changed:
        was = kept.record
        whose = {
            "request": now.request,
            "project_id": now.project,
            "user_id": now.user,
            "consumer_type": now.consumer_type,
        }
        if (*whose.values(),) != (was.request, was.project, was.user, was.consumer_type):
            consumers.append({"id": kept.number, **whose})
        if (now.state, now.expires_at) != (was.state, was.expires_at):
            expires_at = _expiry(connection, now)
            claims.append(
                {"consumer_id": kept.number, "state": now.state, "expires_at": expires_at}
            )
    if consumers:
        rows.update(connection, schema.consumers, ["id"], consumers)
    if claims:
        rows.update(connection, schema.claims, ["consumer_id"], claims)


def forget(connection: Connection, numbers: Sequence[int]) -> None:
    """Delete consumers with their claims and whatever allocations are left."""
    for part in chunks(numbers):
        for statement in _FORGET:
            statement.run(connection, ids=part)
