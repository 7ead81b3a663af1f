"""Disabled providers as rows, and the reasons that a refusal states.

The row of a provider states why and until when it is disabled itself. The row of each inventory
states until when it is disabled with its provider or with a provider above it. A claim locks these
rows and reads them locked, and a disable waits for the claims that have locked them. So no claim
commits after a disable that it has not seen, and a claim needs no further statement. ``rows``
writes both.

Each inventory states how many units of its provider were removed from the host while they were
allocated (``removed_units``). So only a claim that finds some reads which they are.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection

from resource_objects.backends.sql import tables
from resource_objects.backends.sql.names import description_of
from resource_objects.backends.sql.statements import SQL, from_moment, from_moment_or_none, moment
from resource_objects.providers.disabled import Disabled, RemovedUnit
from resource_objects.providers.tree_shape import removed_of

_OF_TREES = SQL(f"""
    SELECT id, parent_id, name, {", ".join(tables.DISABLED)} FROM resource_providers
    WHERE root_id IN :roots*""")
_ROOTS = SQL("SELECT id, root_id FROM resource_providers WHERE uuid IN :uuids*")
_ALLOCATED_OF = SQL("""
    SELECT p.uuid, u.unit FROM allocation_units u
    JOIN resource_providers p ON p.id = u.provider_id WHERE p.uuid IN :uuids*""")
_KINDS_OF = SQL("""
    SELECT p.uuid, s.name, s.body FROM structures s
    JOIN resource_providers p ON p.id = s.provider_id WHERE p.uuid IN :uuids*""")


def in_force(facts: Sequence[Any], now: datetime.datetime | None) -> Disabled | None:
    """Return the reason that the columns ``tables.DISABLED`` of a row state, None if it is over.

    :param now: the time of the database; only needed where the reason has an end
    """
    reason = from_columns(facts)
    if reason is None or (now is not None and reason.ends_at <= now):
        return None
    return reason


def from_columns(facts: Sequence[Any]) -> Disabled | None:
    """Return the reason that the columns ``tables.DISABLED`` of a row state, also if it is over."""
    reason, by, since, until = facts
    if reason is None:
        return None
    ends = from_moment_or_none(until)
    return Disabled(reason=reason, by=by, since=from_moment(since), until=ends)


def removed_units_of(
    connection: Connection, uuids: Collection[str]
) -> dict[str, tuple[RemovedUnit, ...]]:
    """Return the units of some providers that were removed while they were allocated.

    Cost: two statements.
    """
    kinds: dict[str, list[tuple[str, str]]] = {uuid: [] for uuid in uuids}
    allocated: dict[str, set[str]] = {uuid: set() for uuid in uuids}
    for uuid, kind, body in _KINDS_OF.rows_for(connection, uuids):
        kinds[uuid].append((kind, description_of(kind, body)))
    for uuid, unit in _ALLOCATED_OF.rows_for(connection, uuids):
        allocated[uuid].add(unit)
    return {uuid: removed_of(kinds[uuid], allocated[uuid]) for uuid in uuids}


def to_columns(connection: Connection, reason: Disabled | None) -> dict[str, Any]:
    """Return the columns ``tables.DISABLED`` of a provider: all null if it is not disabled."""
    facts = (None,) * len(tables.DISABLED) if reason is None else values(connection, reason)
    return dict(zip(tables.DISABLED, facts, strict=True))


def values(connection: Connection, reason: Disabled) -> tuple[Any, ...]:
    """Return the values of ``tables.DISABLED``."""
    until = None if reason.until is None else moment(connection, reason.until)
    return reason.reason, reason.by, moment(connection, reason.since), until


def disabled_at(
    connection: Connection, uuids: Iterable[str], now: datetime.datetime
) -> dict[str, Disabled]:
    """Return why providers or their ancestors are disabled, by name. Cost: two statements."""
    roots: dict[int, int] = dict(_ROOTS.rows_for(connection, {*uuids}))
    rows = {row[0]: row for row in _OF_TREES.rows_for(connection, {*roots.values()})}
    reasons: dict[str, Disabled] = {}
    for number in roots:
        at: int | None = number
        while at is not None:
            _, parent, name, *facts = rows[at]
            reason = in_force(facts, now)
            if reason is not None:
                reasons[name.removeprefix(tables.GIVEN_UP)] = reason
            at = parent
    return reasons
