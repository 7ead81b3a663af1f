"""Recorded operations and their outcomes.

Every write records its operation under the operation's id, in its own transaction: both are stored
or neither is. So a write can be repeated. Of two writers of one operation the second waits at the
unique id, fails, and returns the outcome of the first.

An outcome is not stored. It is the present state of the consumers, unless another operation has
written them since; then it is computed from the rows of the change feed.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import tables
from resource_objects.backends.sql.consumers import BY_ID, holdings, record_of
from resource_objects.backends.sql.places import Places
from resource_objects.backends.sql.statements import SQL, Insert, chunks, moment
from resource_objects.providers.allocation import RELEASED
from resource_objects.providers.orders import ConsumerRecord, Mode, Outcome, Use, Write


class DoneBefore(exceptions.LedgerError):
    """The operation is recorded already: this write has changed nothing."""

    def __init__(self, operation: str) -> None:
        super().__init__("recorded operation", operation)
        self.args = (operation,)


_RECORD = Insert(tables.operations, "id", "uuid", "kind", "subject", "actor", "created_at")
_FIND_OPERATION = SQL("SELECT id, kind, subject FROM operations WHERE uuid = :wanted")
_TOLD_OF = SQL("""
    SELECT part, what, consumer_id, provider_uuid, resource_class, used_before, used_after, taken,
    given FROM changes WHERE operation_id = :operation AND consumer_id IS NOT NULL ORDER BY part""")


def record_operation(
    connection: Connection, write: Write, number: int, now: datetime.datetime
) -> None:
    """Record an operation by its number."""
    doing = write.operation
    values = (number, doing.id, write.kind, write.subject, doing.actor, moment(connection, now))
    _RECORD.many(connection, [values])


def find_outcome(connection: Connection, operation: str) -> Outcome | None:
    """Return the outcome of a recorded operation. Cost: one query, four more for its consumers."""
    for number, kind, subject in _FIND_OPERATION.rows(connection, wanted=operation):
        return Outcome(kind, subject, tuple(_outcomes(connection, number)))
    return None


def _outcomes(connection: Connection, operation: int) -> Iterable[ConsumerRecord]:
    """Yield the record of each consumer of an operation, in the order of its orders."""
    told: dict[int, list[Sequence[Any]]] = {}
    for row in _TOLD_OF.rows(connection, operation=operation):
        told.setdefault(row[2], []).append(row)
    if not told:
        return
    described = {
        row[0]: row for ids in chunks(sorted(told)) for row in BY_ID.rows(connection, ids=ids)
    }
    at = Places()
    unchanged = [n for n, row in described.items() if row[1] == operation and not row[2]]
    held_now = holdings(connection, unchanged, at)
    uuids = {row[3] for rows in told.values() for row in rows if row[3] is not None}
    names = names_of(connection, uuids)
    for number, rows in told.items():
        _, _, gone, *said = described[number]
        if number in held_now or number in unchanged:
            held = tuple(one.held for one in held_now[number].values())
        else:
            held = _held_as_told(rows, names, gone=gone == operation)
        record = record_of(operation, said, held)
        if gone == operation:
            record = dataclasses.replace(record, state=RELEASED)
        yield record


def _held_as_told(
    rows: Iterable[Sequence[Any]], names: Mapping[str, str], *, gone: bool
) -> tuple[Use, ...]:
    """Return the allocations after an operation of a consumer that was written since.

    They are those that the operation allocated; if it released the consumer, those it released.
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


_NAMES_OF = SQL("SELECT uuid, name FROM resource_providers WHERE uuid IN :uuids*")


def names_of(connection: Connection, uuids: Collection[str]) -> dict[str, str]:
    """Return the names of stored providers."""
    found: dict[str, str] = {}
    for part in chunks(sorted(uuids)):
        found.update(_NAMES_OF.rows(connection, uuids=part))
    return found
