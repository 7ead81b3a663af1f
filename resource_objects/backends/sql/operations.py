"""What makes a retry harmless: every write is recorded under its operation's id.

The record is written in the transaction of the change itself, so that both are there or none is.
Two writers of one operation meet at its unique id: the second waits, fails, and is given the
outcome of the first.

The outcome is JSON: a claim as an object, none as null, several as an object of ``claims`` and of
the ``requests`` they refer to by position, since those of a gang are alike (older libraries wrote a
list of claims, each with its own). The generation of a claim is not in it, because that is the
number of the operation.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import schema
from resource_objects.backends.sql.chunks import check_size
from resource_objects.backends.sql.errors import on_duplicate
from resource_objects.backends.sql.statements import Insert, Statement, moment
from resource_objects.providers.orders import ClaimRecord, Held, Outcome, Write

_operations = schema.operations.c

_INSERT = Insert(schema.operations, "uuid", "kind", "subject", "outcome", "created_at")
_FIND = Statement(
    sa.select(_operations.id, _operations.kind, _operations.subject, _operations.outcome).where(
        _operations.uuid == sa.bindparam("wanted")
    )
)
_ENCODER = json.JSONEncoder(separators=(",", ":"))
#: what an outcome says of a claim only where there is something to say
_OPTIONAL = ("request", "project", "user", "consumer_type")


class DoneBefore(exceptions.LedgerError):
    """The operation is recorded already: nothing was done now."""

    problem = "is recorded already"


def record(
    connection: Connection,
    write: Write,
    now: datetime.datetime,
    claims: Sequence[ClaimRecord],
) -> int:
    """Record an operation as done; return its number, which no other ever has.

    :raises DoneBefore: if it is recorded already
    :raises InvalidField: if its outcome is too long (``check_size``)
    """
    outcome = to_text(claims)
    if outcome is not None:
        check_size([outcome])
    values = {
        "uuid": write.operation.id,
        "kind": write.kind,
        "subject": write.subject,
        "outcome": outcome,
        "created_at": moment(connection, now),
    }
    with on_duplicate(DoneBefore(write.operation.id)):
        return _INSERT.one(connection, values)


def find(connection: Connection, operation: str) -> Outcome | None:
    """Return what a recorded operation did."""
    for number, kind, subject, outcome in _FIND.rows(connection, {"wanted": operation}):
        return Outcome(kind, subject, from_text(outcome, number))
    return None


def to_text(claims: Sequence[ClaimRecord]) -> str | None:
    """Return claims as JSON text; :func:`from_text` gives them back."""
    said = [_said(claim) for claim in claims]
    if len(said) < 2:
        return _ENCODER.encode(said[0]) if said else None
    requests: dict[str, int] = {}
    for one in said:
        if "request" in one:
            one["request"] = requests.setdefault(one["request"], len(requests))
    return _ENCODER.encode({"claims": said, "requests": list(requests)})


def _said(claim: ClaimRecord) -> dict[str, Any]:
    said: dict[str, Any] = {
        "id": claim.id,
        "consumer": claim.consumer,
        "consumer_uuid": claim.consumer_uuid,
        "created_at": claim.created_at.isoformat(),
        "held": [
            (one.provider_uuid, one.provider, one.resource_class, one.amount, *_units(one))
            for one in claim.held
        ],
        "state": claim.state,
    }
    for name in _OPTIONAL:
        value = getattr(claim, name)
        if value is not None:
            said[name] = value
    if claim.expires_at is not None:
        said["expires_at"] = claim.expires_at.isoformat()
    return said


def _units(held: Held) -> tuple[tuple[str, ...], ...]:
    return (held.units,) if held.units else ()


def from_text(text: str | None, generation: int) -> tuple[ClaimRecord, ...]:
    """Return the claims that :func:`to_text` said, of the operation of that number."""
    said = [] if text is None else json.loads(text)
    if isinstance(said, dict):
        said = _with_requests(**said) if "claims" in said else [said]
    return tuple(_claim(one, generation) for one in said)


def _with_requests(claims: list[dict[str, Any]], requests: list[str]) -> list[dict[str, Any]]:
    return [
        {**one, "request": requests[one["request"]]} if "request" in one else one for one in claims
    ]


def _claim(said: dict[str, Any], generation: int) -> ClaimRecord:
    expires_at = said.get("expires_at")
    return ClaimRecord(
        id=said["id"],
        consumer=said["consumer"],
        consumer_uuid=said["consumer_uuid"],
        created_at=datetime.datetime.fromisoformat(said["created_at"]),
        held=tuple(_held(*one) for one in said["held"]),
        state=said["state"],
        generation=generation,
        expires_at=None if expires_at is None else datetime.datetime.fromisoformat(expires_at),
        **{name: said.get(name) for name in _OPTIONAL},
    )


def _held(
    uuid: str, provider: str, resource_class: str, amount: int, units: Sequence[str] = ()
) -> Held:
    return Held(uuid, provider, resource_class, amount, tuple(units))
