"""What makes a retry harmless: every write is recorded under its operation's id.

The record is written in the transaction of the change itself, so that both are there or none is.
Two writers of one operation meet at its unique id: the second waits, fails, and is given the
outcome of the first.
"""

from __future__ import annotations

import datetime
import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import schema
from resource_objects.backends.sql.errors import on_duplicate
from resource_objects.backends.sql.statements import Insert, moment
from resource_objects.providers.backend import ClaimRecord, Held, Operation, Outcome

_INSERT = Insert(schema.operations, "uuid", "kind", "subject", "outcome", "created_at")
_FIND = sa.select(
    schema.operations.c.kind,
    schema.operations.c.subject,
    schema.operations.c.outcome,
).where(schema.operations.c.uuid == sa.bindparam("wanted"))


class DoneBefore(exceptions.LedgerError):
    """The operation is recorded already: nothing was done now."""

    problem = "is recorded already"


class Write:
    """One operation: what kind of write it is, for whom, and when."""

    __slots__ = ("id", "kind", "now", "subject")

    def __init__(self, operation: Operation, kind: str, subject: str) -> None:
        self.id = operation.id
        self.kind = kind
        self.subject = subject
        self.now = datetime.datetime.now(datetime.UTC)

    def record(self, connection: Connection, outcome: ClaimRecord | None) -> int:
        """Record the operation as done; return its number, which no other ever has.

        :raises DoneBefore: if it is recorded already
        """
        values = {
            "uuid": self.id,
            "kind": self.kind,
            "subject": self.subject,
            "outcome": None if outcome is None else to_text(outcome),
            "created_at": moment(connection, self.now),
        }
        with on_duplicate(DoneBefore(self.id)):
            return _INSERT.one(connection, values)

    def outcome(self, connection: Connection) -> tuple[bool, ClaimRecord | None]:
        """Return whether the operation is recorded, and what came of it.

        :raises OperationConflict: if its id is recorded for something else
        """
        found = find(connection, self.id)
        if found is None:
            return False, None
        found.require(self.id, self.kind, self.subject)
        return True, found.claim


def find(connection: Connection, operation: str) -> Outcome | None:
    """Return what a recorded operation did."""
    row = connection.execute(_FIND, {"wanted": operation}).one_or_none()
    if row is None:
        return None
    claim = None if row.outcome is None else from_text(row.outcome)
    return Outcome(row.kind, row.subject, claim)


def to_text(record: ClaimRecord) -> str:
    """Return a claim as JSON text; :func:`from_text` gives it back."""
    held = [(h.provider_uuid, h.provider, h.resource_class, h.amount) for h in record.held]
    parts: dict[str, Any] = {
        "id": record.id,
        "consumer": record.consumer,
        "consumer_uuid": record.consumer_uuid,
        "created_at": record.created_at.isoformat(),
        "held": held,
        "state": record.state,
        "request": record.request,
    }
    return json.dumps(parts, separators=(",", ":"))


def from_text(text: str) -> ClaimRecord:
    """Return the claim that :func:`to_text` said."""
    parts = json.loads(text)
    return ClaimRecord(
        id=parts["id"],
        consumer=parts["consumer"],
        consumer_uuid=parts["consumer_uuid"],
        created_at=datetime.datetime.fromisoformat(parts["created_at"]),
        held=tuple(Held(*held) for held in parts["held"]),
        state=parts["state"],
        request=parts["request"],
    )
