"""Orders carried out: consumers, what they hold, and the inventories that are locked and changed.

The order of locks is the same for everybody (D8): inventory rows by number, in one statement,
before anything else is written; a write that brings definitions too locks those of its orders
together with theirs (``definitions``). Two changes then do not wait for each other in a circle, and
what was read under the lock is still true when it is written.

What consumers hold is read without a lock. Their generations tell whether that was still true when
it is written (:func:`pass_on`): every write changes them, and no later life repeats one.

Every function takes any number of consumers, with a number of statements that does not depend on
it.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import statements, tables
from resource_objects.backends.sql.errors import Transient
from resource_objects.backends.sql.statements import (
    MOST,
    Insert,
    Sized,
    Statement,
    chosen,
    chunks,
    draw_number,
    from_moment,
    listed,
    moment,
    now_as_kept,
)
from resource_objects.providers import decision
from resource_objects.providers.allocation import RELEASED
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    Key,
    Mode,
    Outcome,
    StoredRequest,
    Use,
    Write,
)
from resource_objects.providers.settle import Place, Settled, Settlement, Unit, settle
from resource_objects.resources.records import InventoryRecord

_providers = tables.resource_providers.c
_inventories = tables.inventories.c
_classes = tables.resource_classes.c
_shares = tables.shares.c
_consumers = tables.consumers.c
_allocations = tables.allocations.c
_units = tables.allocation_units.c
_operations = tables.operations.c
_changes = tables.changes.c

# --- operations -----------------------------------------------------------------------------------
#
# What makes a retry harmless: every write is recorded under its operation's id, in the transaction
# of the change itself, so that both are there or none is. Two writers of one operation meet at its
# unique id: the second waits, fails, and is given the outcome of the first.
#
# An outcome is not kept: it is what the consumers hold, as long as nobody else has written them,
# and else what the rows of the feed say.


class DoneBefore(exceptions.LedgerError):
    """The operation is recorded already: nothing was done now."""

    problem = "is recorded already"


_RECORD = Insert(tables.operations, "id", "uuid", "kind", "subject", "actor", "created_at")
_FIND_OPERATION = Statement(
    sa.select(_operations.id, _operations.kind, _operations.subject).where(
        _operations.uuid == sa.bindparam("wanted")
    )
)
_TOLD_OF = Statement(
    sa.select(_changes.part, _changes.what, _changes.consumer_id, _changes.provider_uuid)
    .add_columns(_changes.resource_class, _changes.used_before, _changes.used_after)
    .add_columns(_changes.taken, _changes.given)
    .where(_changes.operation_id == sa.bindparam("operation"), _changes.consumer_id.is_not(None))
    .order_by(_changes.part)
)


def record_operation(
    connection: Connection, write: Write, number: int, now: datetime.datetime
) -> None:
    """Record an operation as done, by its number."""
    doing = write.operation
    values = (number, doing.id, write.kind, write.subject, doing.actor, moment(connection, now))
    _RECORD.many(connection, [values])


def find_outcome(connection: Connection, operation: str) -> Outcome | None:
    """Return what a recorded operation did. Cost: one query, four more for its consumers."""
    for number, kind, subject in _FIND_OPERATION.rows(connection, {"wanted": operation}):
        return Outcome(kind, subject, tuple(_outcomes(connection, number)))
    return None


def _outcomes(connection: Connection, operation: int) -> Iterable[ConsumerRecord]:
    """Yield what became of each consumer of an operation, in the order of its orders."""
    told: dict[int, list[Sequence[Any]]] = {}
    for row in _TOLD_OF.rows(connection, {"operation": operation}):
        told.setdefault(row[2], []).append(row)
    if not told:
        return
    described = {
        row[0]: row for ids in chunks(sorted(told)) for row in _BY_ID.rows(connection, ids=ids)
    }
    at = Places()
    as_kept = [n for n, row in described.items() if row[1] == operation and not row[2]]
    holdings = _holdings(connection, as_kept, at)
    uuids = {row[3] for rows in told.values() for row in rows if row[3] is not None}
    names = names_of(connection, uuids)
    for number, rows in told.items():
        _, _, gone, *said = described[number]
        if number in holdings or number in as_kept:
            held = tuple(one.held for one in holdings[number].values())
        else:
            held = _held_as_told(rows, names, gone=gone == operation)
        record = _record(operation, said, held)
        if gone == operation:
            record = dataclasses.replace(record, state=RELEASED)
        yield record


def _held_as_told(
    rows: Iterable[Sequence[Any]], names: Mapping[str, str], *, gone: bool
) -> tuple[Use, ...]:
    """Return what a consumer held after an operation, of one that others have written since.

    It is what the operation took; of one that gave back everything, what it gave back.
    """
    held: list[Use] = []
    for _, what, _, uuid, kind, before, after, taken, given in rows:
        if uuid is None or (gone and what != Mode.SET):
            continue
        amount, units = (before, given) if gone else (after, taken)
        if amount:
            found = tuple(sorted(json.loads(units))) if units else ()
            held.append(Use(uuid, kind, amount, found, names.get(uuid, uuid)))
    return tuple(held)


_NAMES_OF = Sized(
    lambda uuids: sa.select(_providers.uuid, _providers.name).where(
        listed(_providers.uuid, "uuids", uuids)
    )
)


def names_of(connection: Connection, uuids: Collection[str]) -> dict[str, str]:
    """Return the names of providers that are there."""
    found: dict[str, str] = {}
    for part in chunks(sorted(uuids)):
        found.update(_NAMES_OF.rows(connection, uuids=part))
    return found


# --- consumers ------------------------------------------------------------------------------------

_SAID = (
    *(_consumers.id, _consumers.generation, _consumers.gone, _consumers.uuid, _consumers.name),
    *(_consumers.created_at, _consumers.state, _consumers.request, _consumers.project_id),
    *(_consumers.user_id, _consumers.consumer_type, _consumers.expires_at),
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


def _pass_on_query(ids: int, generations: int) -> sa.Update:
    return (
        sa.update(tables.consumers)
        .where(
            listed(_consumers.id, "ids", ids),
            listed(_consumers.generation, "generations", generations),
        )
        .values(generation=sa.bindparam("now"))
    )


def _forget_query(ids: int, generations: int) -> sa.Update:
    return _pass_on_query(ids, generations).values(gone=sa.bindparam("now"))


_CONSUMERS = Sized(lambda names: sa.select(*_SAID).where(*_by_name(names)))
_BY_ID = Sized(lambda ids: sa.select(*_SAID).where(listed(_consumers.id, "ids", ids)))
_HOLDS = Sized(_holds_query)
_GENERATIONS = Sized(
    lambda names: sa.select(_consumers.name, _consumers.generation).where(*_by_name(names))
)
_PASS_ON = Sized(_pass_on_query)
_FORGET = Sized(_forget_query)
_EMPTY = Sized(
    lambda ids: sa.delete(tables.allocations).where(listed(_allocations.consumer_id, "ids", ids))
)
_MAKE_CONSUMERS = Insert(
    tables.consumers,
    *("id", "uuid", "name", "gone", "state", "generation", "request", "project_id", "user_id"),
    *("consumer_type", "created_at", "expires_at"),
)


class Holding(NamedTuple):
    """One allocation as kept: where it is counted, what it is, and which of its consumer's."""

    at: Found
    held: Use
    position: int


@dataclasses.dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer as kept, with what it holds; ``part`` tells the query that found it."""

    number: int
    record: ConsumerRecord
    holdings: dict[Key, Holding]
    part: int


def find_consumers(
    connection: Connection, names: Collection[str], at: Places
) -> dict[str, Consumer]:
    """Return those of some consumers that hold something, by name; note in ``at`` where.

    Cost: three queries.
    """
    found: dict[str, Consumer] = {}
    for part, some in enumerate(chunks(list(names), MOST // 2)):  # pass_on has two such lists
        kept = _CONSUMERS.rows(connection, names=some)
        holdings = _holdings(connection, [row[0] for row in kept], at)
        for number, generation, _, *said in kept:
            held = holdings[number]
            record = _record(generation, said, tuple(one.held for one in held.values()))
            found[record.consumer] = Consumer(number, record, held, part)
    return found


def held_by(connection: Connection, names: Collection[str]) -> dict[str, ConsumerRecord]:
    """Return what some consumers hold, by name. Cost: three queries."""
    return {name: one.record for name, one in find_consumers(connection, names, Places()).items()}


def _holdings(
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


def _record(generation: int, said: Sequence[Any], held: tuple[Use, ...]) -> ConsumerRecord:
    uuid, name, created_at, state, request, project, user, kind, expires_at = said
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


def pass_on(connection: Connection, kept: Iterable[Consumer], number: int, query: Sized) -> None:
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
        query.must_match(
            connection,
            len(ids),
            lambda _, busy=busy: Transient(busy),  # type: ignore[misc]
            {"now": number},
            ids=ids,
            generations=generations,
        )


def make_consumers(
    connection: Connection, records: Sequence[ConsumerRecord], generation: int
) -> dict[str, int]:
    """Insert consumers; return their numbers by name. Cost: one statement."""
    numbers = {one.consumer: draw_number() for one in records}
    values = [
        (
            *(numbers[one.consumer], one.uuid, one.consumer, 0, one.state, generation),
            *(_text(one.request), one.project, one.user, one.consumer_type),
            *(moment(connection, one.created_at), _expiry(connection, one)),
        )
        for one in records
    ]
    _MAKE_CONSUMERS.many(connection, values)
    return numbers


def _text(request: StoredRequest | None) -> str | None:
    return None if request is None else request.text


def _expiry(connection: Connection, record: ConsumerRecord) -> Any:
    return None if record.expires_at is None else moment(connection, record.expires_at)


def change_consumers(
    connection: Connection, changed: Iterable[tuple[Consumer, ConsumerRecord]]
) -> None:
    """Write what is said of consumers where that is something else now."""
    described: list[dict[str, Any]] = []
    claims: list[dict[str, Any]] = []
    for kept, now in changed:
        was = kept.record
        whose = {
            "request": _text(now.request),
            "project_id": now.project,
            "user_id": now.user,
            "consumer_type": now.consumer_type,
        }
        if (*whose.values(),) != (_text(was.request), was.project, was.user, was.consumer_type):
            described.append({"id": kept.number, **whose})
        if (now.state, now.expires_at) != (was.state, was.expires_at):
            until = _expiry(connection, now)
            claims.append({"id": kept.number, "state": now.state, "expires_at": until})
    if described:
        statements.update(connection, tables.consumers, ["id"], described)
    if claims:
        statements.update(connection, tables.consumers, ["id"], claims)


def forget_consumers(connection: Connection, gone: Sequence[Consumer], number: int) -> None:
    """Mark consumers as gone, and delete what they hold."""
    for part in chunks(sorted(one.number for one in gone)):
        _EMPTY.run(connection, ids=part)
    pass_on(connection, gone, number, _FORGET)


def put(
    connection: Connection,
    settled: Sequence[Settled],
    kept: Mapping[str, Consumer],
    at: Places,
    number: int,
) -> dict[str, int]:
    """Write what becomes of consumers: first what is given back, then what is taken.

    Returns their numbers, by name.
    """
    work = Work(at)
    gone: list[Consumer] = []
    stays: list[tuple[Consumer, ConsumerRecord]] = []
    new: list[Settled] = []
    for one in settled:
        consumer = kept.get(one.claim.consumer)
        if consumer is None:
            new.append(one)
        elif one.is_gone:
            gone.append(consumer)
        else:
            stays.append((consumer, one.claim))
            work.add(one, consumer, consumer.number)
    if stays:
        pass_on(connection, [consumer for consumer, _ in stays], number, _PASS_ON)
    if gone:
        forget_consumers(connection, gone, number)
    work.free(connection)
    change_consumers(connection, stays)
    numbers = {name: one.number for name, one in kept.items()}
    if new:
        numbers |= make_consumers(connection, [one.claim for one in new], number)
        for one in new:
            work.add(one, None, numbers[one.claim.consumer])
    work.take(connection)
    return numbers


# --- inventories ----------------------------------------------------------------------------------

_FIGURES = (
    _inventories.total,
    _inventories.reserved,
    _inventories.min_unit,
    _inventories.max_unit,
    _inventories.step_size,
    _inventories.ratio_millionths,
    _inventories.capacity,
    _inventories.used,
)
#: what :meth:`Places.add` reads of an inventory
COLUMNS = (
    *(_providers.id, _providers.uuid, _providers.name, _providers.root_id),
    *(_classes.name, _inventories.id, _inventories.class_id, _inventories.shares),
    *_FIGURES,
)


def _find_query(uuids: int, classes: int) -> sa.Select[*tuple[Any, ...]]:
    # SELECT ... FROM resource_providers LEFT JOIN resource_classes ON name IN (:classes)
    #   LEFT JOIN inventories ON provider_id, class_id = those WHERE uuid IN (:uuids)
    # A provider without the inventory is found too. Classes go by name, which may be given to
    # another class at any time.
    wanted = listed(_classes.name, "classes", classes)
    here = sa.and_(_inventories.provider_id == _providers.id, _inventories.class_id == _classes.id)
    return (
        sa.select(now_as_kept(), *COLUMNS)
        .outerjoin_from(tables.resource_providers, tables.resource_classes, wanted)
        .outerjoin(tables.inventories, here)
        .where(listed(_providers.uuid, "uuids", uuids))
    )


def _take_query(uuids: int, classes: int) -> sa.Select[*tuple[Any, ...]]:
    # PostgreSQL finds and locks in one statement: what is asked, and what that shares, by number.
    # A place that is asked twice is locked once; one that is not there is looked for afterwards.
    sharing = tables.shares.alias()
    target = tables.inventories.alias()
    asked = (
        sa.select(_inventories.id, _inventories.provider_id, _inventories.class_id)
        .join_from(
            tables.resource_providers,
            tables.inventories,
            _inventories.provider_id == _providers.id,
        )
        .join(tables.resource_classes, _classes.id == _inventories.class_id)
        .where(
            sa.tuple_(_providers.uuid, _classes.name).in_(
                [
                    sa.tuple_(sa.bindparam(f"uuids_{n}"), sa.bindparam(f"classes_{n}"))
                    for n in range(uuids)
                ]
            )
        )
    ).cte("asked")
    shared = (
        sa.select(target.c.id)
        .join_from(
            asked,
            sharing,
            sa.and_(
                sharing.c.provider_id == asked.c.provider_id,
                sharing.c.class_id == asked.c.class_id,
            ),
        )
        .join(
            target,
            sa.and_(
                target.c.provider_id == sharing.c.of_provider_id,
                target.c.class_id == sharing.c.of_class_id,
            ),
        )
    )
    return (
        sa.select(now_as_kept(), *COLUMNS)
        .join_from(
            tables.inventories,
            tables.resource_providers,
            _providers.id == _inventories.provider_id,
        )
        .join(tables.resource_classes, _classes.id == _inventories.class_id)
        .where(_inventories.id.in_(sa.union_all(sa.select(asked.c.id), shared)))
        .order_by(_inventories.id)
        # a plain FOR UPDATE would wait for those who insert allocations of it
        .with_for_update(of=tables.inventories, key_share=True)
    )


def _shares_query(providers: int, classes: int) -> sa.Select[*tuple[Any, ...]]:
    there = sa.and_(
        _inventories.provider_id == _shares.of_provider_id,
        _inventories.class_id == _shares.of_class_id,
    )
    return (
        sa.select(_shares.provider_id, _shares.class_id, _shares.factor, *COLUMNS)
        .join_from(tables.shares, tables.inventories, there)
        .join(tables.resource_providers, _providers.id == _inventories.provider_id)
        .join(tables.resource_classes, _classes.id == _inventories.class_id)
        .where(
            listed(_shares.provider_id, "providers", providers),
            listed(_shares.class_id, "classes", classes),
        )
        .order_by(_inventories.id)
    )


def _lock_query(ids: int) -> sa.Select[*tuple[Any, ...]]:
    # by primary key, so that InnoDB, which locks rows as it meets them, meets them in this order
    return (
        sa.select(_inventories.id, _inventories.shares, *_FIGURES)
        .where(listed(_inventories.id, "ids", ids))
        .order_by(_inventories.id)
        .with_for_update()
    )


def _change_used_query(ids: int, nets: int) -> sa.Update:
    net = chosen(_inventories.id, "ids", "nets", ids)
    after = _inventories.used + net
    fits = after <= _inventories.capacity
    return (
        sa.update(tables.inventories)
        .where(listed(_inventories.id, "ids", ids), after >= 0, sa.or_(fits, net <= 0))
        .values(used=after, writes=_inventories.writes + 1)
    )


def _adopt_used_query(ids: int, nets: int) -> sa.Update:
    after = _inventories.used + chosen(_inventories.id, "ids", "nets", ids)
    return (
        sa.update(tables.inventories)
        .where(listed(_inventories.id, "ids", ids), after >= 0)
        .values(used=after, writes=_inventories.writes + 1)
    )


_FIND = Sized(_find_query)
_TAKE = Sized(_take_query)
_SHARES = Sized(_shares_query)
_LOCK = Sized(_lock_query)
_CHANGE_USED = Sized(_change_used_query)
_ADOPT_USED = Sized(_adopt_used_query)
#: how many inventories one statement changes: its CASE is looked through for each of them
MOST_CHANGES = 128


@dataclasses.dataclass(slots=True, kw_only=True)
class Found(Place):
    """One inventory as kept, with the numbers of its row, provider and class."""

    key: Key
    inventory_id: int
    provider_id: int
    class_id: int
    declared: int  #: how many shares it has


class Places:
    """What was found: inventories by key, names and roots of providers by uuid.

    ``now`` is the time of the database, once it was read with them.
    """

    __slots__ = ("by_key", "names", "now", "roots")

    def __init__(self) -> None:
        self.by_key: dict[Key, Found] = {}
        self.names: dict[str, str] = {}
        self.roots: dict[str, int] = {}
        self.now: datetime.datetime | None = None

    def add(self, row: Sequence[Any]) -> Found | None:
        """Note the provider of a row of :data:`COLUMNS`; return its inventory, if there is one."""
        provider_id, uuid, name, root, resource_class, number, class_id, shares, *figures = row
        self.names[uuid] = name
        self.roots[uuid] = root
        if number is None:
            return None
        return Found(
            provider=name,
            record=InventoryRecord(resource_class, *figures),
            key=(uuid, resource_class),
            inventory_id=number,
            provider_id=provider_id,
            class_id=class_id,
            declared=shares,
        )


def find_places(connection: Connection, at: Places, keys: Collection[Key]) -> None:
    """Add to ``at`` what there is at ``keys``, with all that it shares; lock it.

    Cost: a statement to find and, on MariaDB, one to lock; one or two more where there are shares.
    """
    if connection.dialect.name == "postgresql":
        _take(connection, at, keys)
        return
    sharers = _look(connection, at, keys)
    if at.by_key and connection.dialect.name != "sqlite":  # whose one writer has the only lock
        _lock(connection, at.by_key.values())
        if sharers:
            _check_shares(connection, sharers)


def numbers_of_places(connection: Connection, keys: Collection[Key]) -> set[int]:
    """Return the numbers of the inventories at ``keys`` and of all that they share; lock nothing.

    Cost: a statement, one more where there are shares.
    """
    at = Places()
    _look(connection, at, keys)
    return {place.inventory_id for place in at.by_key.values()}


def _take(connection: Connection, at: Places, keys: Collection[Key]) -> None:
    """Find and lock in one statement, what is shared included; see PostgreSQL's ``_take_query``."""
    at.by_key.clear()  # what was read with consumers was not locked
    asked = list(keys)
    locked: dict[int, Found] = {}
    for part in chunks(asked, MOST // 2):
        uuids, classes = [uuid for uuid, _ in part], [name for _, name in part]
        for now, *row in _TAKE.rows(connection, uuids=uuids, classes=classes):
            found = at.add(row)
            assert found is not None  # the join is an inner one
            at.now = from_moment(now)
            locked[found.inventory_id] = at.by_key[found.key] = found
    if any(key not in at.by_key for key in asked):
        missing = Places()
        _look(connection, missing, [key for key in asked if key not in at.by_key])
        if missing.by_key:
            raise Transient(exceptions.DatabaseBusy("inventory", "it was made in between"))
        at.names |= missing.names
        at.roots |= missing.roots
        at.now = at.now or missing.now
    sharers = [place for place in at.by_key.values() if place.declared]
    for sharer, factor, target_row in _shares_of(connection, sharers) if sharers else ():
        target = Places().add(target_row)
        assert target is not None
        if target.inventory_id not in locked:
            raise Transient(exceptions.DatabaseBusy(sharer.provider, "its shares were changed"))
        sharer.shares = (*sharer.shares, (target.key, factor))


def _look(connection: Connection, at: Places, keys: Collection[Key]) -> list[Found]:
    """Add to ``at`` what is missing in it, with what is shared; return all that shares."""
    missing = [key for key in keys if key not in at.by_key]
    classes = list(dict.fromkeys(name for _, name in missing))
    asked = set(missing)
    for part in chunks(list(dict.fromkeys(uuid for uuid, _ in missing))):
        for now, *row in _FIND.rows(connection, uuids=part, classes=classes):
            at.now = None if now is None else from_moment(now)
            found = at.add(row)
            if found is not None and found.key in asked:
                at.by_key[found.key] = found
    sharers = [place for place in at.by_key.values() if place.declared]
    if sharers:
        _add_shares(connection, at, sharers)
    return sharers


def _add_shares(connection: Connection, at: Places, sharers: Iterable[Found]) -> None:
    """Add what is used too where something is taken of some inventories."""
    shares: dict[Key, list[tuple[Key, int]]] = {}
    for sharer, factor, row in _shares_of(connection, sharers):
        target = at.add(row)
        assert target is not None
        at.by_key.setdefault(target.key, target)
        shares.setdefault(sharer.key, []).append((target.key, factor))
    for key, found in shares.items():
        at.by_key[key].shares = tuple(found)


def _shares_of(
    connection: Connection, sharers: Iterable[Found]
) -> list[tuple[Found, int, Sequence[Any]]]:
    """Return ``(sharer, factor, row of the target)`` of each share of some inventories."""
    by_numbers = {(place.provider_id, place.class_id): place for place in sharers}
    classes = list({class_id for _, class_id in by_numbers})
    return [
        (by_numbers[provider_id, class_id], factor, row)
        for part in chunks(list({provider_id for provider_id, _ in by_numbers}))
        for provider_id, class_id, factor, *row in _SHARES.rows(
            connection, providers=part, classes=classes
        )
        if (provider_id, class_id) in by_numbers
    ]


def _lock(connection: Connection, found: Iterable[Found]) -> None:
    """Lock what was found and read its figures again, which may have changed meanwhile."""
    by_number = {place.inventory_id: place for place in found}
    for number, shares, *figures in lock_places(connection, by_number):
        place = by_number[number]
        place.record = InventoryRecord(place.record.resource_class, *figures)
        if shares != place.declared:
            raise Transient(exceptions.DatabaseBusy(place.provider, "its shares were changed"))


def _check_shares(connection: Connection, sharers: Iterable[Found]) -> None:
    """Look at shares again, now that who would change them waits for our locks."""
    seen: dict[Key, list[tuple[Key, int]]] = {place.key: [] for place in sharers}
    for sharer, factor, row in _shares_of(connection, sharers):
        target = Places().add(row)
        assert target is not None
        seen[sharer.key].append((target.key, factor))
    for place in sharers:
        if place.shares != tuple(seen[place.key]):
            raise Transient(exceptions.DatabaseBusy(place.provider, "its shares were changed"))


def lock_places(connection: Connection, numbers: Collection[int]) -> list[Sequence[Any]]:
    """Lock inventories by number; return ``(number, how many shares, *figures)`` of each.

    The last of the figures is what is used. With SQLite it does and returns nothing: a writing
    transaction is alone there.
    """
    if connection.dialect.name == "sqlite":
        return []
    rows: list[Sequence[Any]] = []
    for part in chunks(sorted(numbers)):
        rows += _LOCK.rows(connection, ids=part)
    if len(rows) != len(numbers):
        raise Transient(exceptions.DatabaseBusy("inventory", "it was removed in between"))
    return rows


def change_used(connection: Connection, nets: Mapping[int, int], *, adopts: bool = False) -> None:
    """Add the net change to ``used`` of each inventory, by number, and count the write.

    Its guard repeats the two rules that no mistake above may break: never below zero, and never
    up beyond the capacity. The second does not bind a write that ``adopts``.
    """
    query = _ADOPT_USED if adopts else _CHANGE_USED
    for part in chunks(sorted(nets), MOST_CHANGES):
        query.must_match(
            connection,
            len(part),
            partial(_refused, len(part)),
            ids=part,
            nets=[nets[number] for number in part],
        )


def _refused(asked: int, changed: int) -> Transient:
    refused = f"{asked - changed} inventories refused a change"
    return Transient(exceptions.DatabaseBusy("used", refused))


# --- allocations and units ------------------------------------------------------------------------
#
# What is given back is written before what is taken, so that consumers may change places and units
# with each other. The primary key (provider, unit) is what makes it impossible to give a unit out
# twice (D3): of two writers the second finds a duplicate, and at its next try whoever was faster.

#: (consumer's number, provider's number, class's number): what an allocation is known by
_Row = tuple[int, int, int]
_KEYS = ("consumer_id", "provider_id", "class_id")


def _takers_query(uuids: int, units: int) -> sa.Select[*tuple[Any, ...]]:
    return (
        sa.select(_providers.uuid, _units.unit, _consumers.name)
        .join_from(
            tables.allocation_units,
            tables.resource_providers,
            _providers.id == _units.provider_id,
        )
        .join(tables.consumers, _consumers.id == _units.consumer_id)
        .where(listed(_providers.uuid, "uuids", uuids), listed(_units.unit, "units", units))
    )


_TAKERS = Sized(_takers_query)
_MAKE_ALLOCATIONS = Insert(tables.allocations, *_KEYS, "used", "position")
_TAKE_UNITS = Insert(tables.allocation_units, "provider_id", "unit", "consumer_id", "class_id")


class Work:
    """What shall happen to allocations and units, collected, then done with a few statements."""

    def __init__(self, at: Places) -> None:
        self._at = at
        self._made: list[tuple[int, int, int, int, int]] = []
        self._changed: list[dict[str, int]] = []
        self._dropped: list[dict[str, int]] = []
        self._emptied: list[dict[str, Any]] = []  # units given back
        self._taken: list[tuple[int, str, int, int]] = []

    def add(self, settled: Settled, kept: Consumer | None, consumer: int) -> None:
        """Take note of what changes for a consumer that stays or is new."""
        last = (
            0 if kept is None else max((one.position for one in kept.holdings.values()), default=0)
        )
        for change in settled.changes:
            place = self._at.by_key[change.key]
            row = (consumer, place.provider_id, place.class_id)
            keys = dict(zip(_KEYS, row, strict=True))
            if kept is None or change.key not in kept.holdings:
                last += 1
                self._made.append((*row, change.after, last))
            elif not change.after:
                self._dropped.append(keys)
            elif change.after != change.before:
                self._changed.append({**keys, "used": change.after})
            if change.after:  # those of one that is dropped go with it
                given = ({"provider_id": row[1], "unit": unit} for unit in change.given)
                self._emptied += given
            self._taken += ((row[1], unit, row[0], row[2]) for unit in change.taken)

    def free(self, connection: Connection) -> None:
        """Write what is given back."""
        statements.delete(connection, tables.allocation_units, self._emptied)
        statements.delete(connection, tables.allocations, self._dropped)
        statements.update(connection, tables.allocations, _KEYS, self._changed)

    def take(self, connection: Connection) -> None:
        """Write what is taken."""
        if self._made:
            _MAKE_ALLOCATIONS.many(connection, self._made)
        if self._taken:
            _TAKE_UNITS.many(connection, sorted(self._taken))


def takers(connection: Connection, wanted: Collection[Unit]) -> dict[Unit, str]:
    """Return which of some units are taken, and by which consumer."""
    found: dict[Unit, str] = {}
    for part in chunks(sorted(wanted), MOST // 2):
        uuids, names = list({uuid for uuid, _ in part}), list({name for _, name in part})
        for uuid, unit, consumer in _TAKERS.rows(connection, uuids=uuids, units=names):
            if (uuid, unit) in wanted:
                found[uuid, unit] = consumer
    return found


# --- who is in the way ----------------------------------------------------------------------------
#
# Asked for only to say why something is refused.

#: inventories that one query asks the holders of
_MOST_PLACES = 64


def _is(table: Any, provider: str, class_: str, position: int) -> sa.ColumnElement[bool]:
    """Return ``provider = :providers_n AND class = :classes_n``."""
    return sa.and_(
        table[provider] == sa.bindparam(f"providers_{position}"),
        table[class_] == sa.bindparam(f"classes_{position}"),
    )


def _holders_query(providers: int, classes: int) -> sa.CompoundSelect[*tuple[Any, ...]]:
    # the few largest of each inventory, in one statement for all of them
    return sa.union_all(
        *(
            sa.select(
                sa.select(
                    _allocations.provider_id,
                    _allocations.class_id,
                    _consumers.name,
                    _allocations.used,
                )
                .join_from(tables.allocations, tables.consumers)
                .where(_is(_allocations, "provider_id", "class_id", position))
                .order_by(_allocations.used.desc(), _consumers.name)
                .limit(sa.literal_column(str(decision.MOST_HOLDERS)))
                .subquery()
            )
            for position in range(providers)
        )
    )


def _shared_query(providers: int, classes: int) -> sa.Select[*tuple[Any, ...]]:
    return (
        sa.select(_shares.of_provider_id, _shares.of_class_id)
        .where(
            listed(_shares.of_provider_id, "providers", providers),
            listed(_shares.of_class_id, "classes", classes),
        )
        .distinct()
    )


def _drawers_query(providers: int, classes: int) -> sa.CompoundSelect[*tuple[Any, ...]]:
    # like the holders, but of an inventory that others share: all that one consumer takes of it
    return sa.union_all(*(_drawers_of(position) for position in range(providers)))


def _drawers_of(position: int) -> sa.Select[*tuple[Any, ...]]:
    # SELECT :provider, :class, name, SUM(used) FROM (allocations here UNION ALL allocations times
    # factor of who shares this) JOIN consumers GROUP BY name ORDER BY SUM(used) DESC LIMIT 100
    drawn = sa.union_all(
        sa.select(_allocations.consumer_id, _allocations.used).where(
            _is(_allocations, "provider_id", "class_id", position)
        ),
        sa.select(_allocations.consumer_id, (_allocations.used * _shares.factor).label("used"))
        .join_from(
            tables.shares,
            tables.allocations,
            sa.and_(
                _allocations.provider_id == _shares.provider_id,
                _allocations.class_id == _shares.class_id,
            ),
        )
        .where(_is(_shares, "of_provider_id", "of_class_id", position)),
    ).subquery()
    total = sa.func.sum(drawn.c.used)
    number = sa.BigInteger()
    return sa.select(
        sa.select(
            sa.bindparam(f"providers_{position}", type_=number).label("provider"),
            sa.bindparam(f"classes_{position}", type_=number).label("class"),
            _consumers.name,
            total.label("used"),
        )
        .join_from(drawn, tables.consumers, _consumers.id == drawn.c.consumer_id)
        .group_by(_consumers.name)
        .order_by(total.desc(), _consumers.name)
        .limit(sa.literal_column(str(decision.MOST_HOLDERS)))
        .subquery()
    )


_HOLDERS = Sized(_holders_query)
_SHARED = Sized(_shared_query)
_DRAWERS = Sized(_drawers_query)


def decide(
    connection: Connection,
    orders: Sequence[ConsumerOrder],
    kept: Mapping[str, ConsumerRecord],
    at: Places,
    now: datetime.datetime,
) -> Settlement:
    """Return what orders come to, or raise (see ``settle``)."""
    return settle(
        orders,
        kept,
        at.by_key,
        at.names,
        now,
        holders=lambda keys: _holders(connection, at, keys),
        takers=lambda wanted: takers(connection, wanted),
    )


def _holders(
    connection: Connection, at: Places, full: Collection[Key]
) -> dict[Key, list[tuple[str, int]]]:
    """Return who draws most on some inventories, in the transaction that refuses."""
    keys = {(at.by_key[key].provider_id, at.by_key[key].class_id): key for key in full}
    shared: set[tuple[int, int]] = set()
    classes = list({class_ for _, class_ in keys})
    for part in chunks(list({provider for provider, _ in keys})):
        for provider, class_ in _SHARED.rows(connection, providers=part, classes=classes):
            shared.add((provider, class_))
    found: dict[Key, set[tuple[str, int]]] = {key: set() for key in full}
    for query, asked in (
        (_HOLDERS, [numbers for numbers in keys if numbers not in shared]),
        (_DRAWERS, [numbers for numbers in keys if numbers in shared]),
    ):
        for some in chunks(asked, _MOST_PLACES):
            for provider, class_, name, used in query.rows(connection, **_as_lists(some)):
                found[keys[provider, class_]].add((name, int(used)))
    return {key: list(holders) for key, holders in found.items()}


def _as_lists(keys: Sequence[tuple[int, int]]) -> dict[str, list[int]]:
    return {"providers": [key[0] for key in keys], "classes": [key[1] for key in keys]}
