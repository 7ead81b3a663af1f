"""Providers and units that are out of service, as rows: disabled, enabled, and told why.

That a provider is disabled stands in its own row, and until when in the row of each inventory that
is out of service with it: its own, and those of all below it. A claim locks these rows and reads
them locked, so it sees what was committed before; who disables waits for the claims that have
locked them. So no claim commits after a disable that it has not seen, and none takes a statement
more for it.

A device that is out of service alone has a row of its own (``disabled_units``), and each inventory
of its provider says how many there are. So only a claim that finds some there asks which they are.

Locks: the provider and the root of its tree, by number, as definitions do and beside what they
lock; then inventories, by number. Whoever gives a tree other providers or inventories has locked
its root too, and passes on what holds above them (:func:`inherit`).
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import tables
from resource_objects.backends.sql.names import description_of
from resource_objects.backends.sql.statements import (
    Sized,
    chunks,
    from_moment,
    listed,
    moment,
)
from resource_objects.providers.disabled import (
    Disabled,
    DisabledUnit,
)
from resource_objects.providers.located import disabled_of, removed_units

_providers = tables.resource_providers.c
_inventories = tables.inventories.c
_units = tables.disabled_units.c
_kinds = tables.structures.c
_taken = tables.allocation_units.c

#: what a provider's row says of it
FACTS = (
    *(_providers.disabled_reason, _providers.disabled_by),
    *(_providers.disabled_since, _providers.disabled_until),
)

_OF_TREES = Sized(
    lambda roots: sa.select(_providers.id, _providers.parent_id, _providers.name, *FACTS).where(
        listed(_providers.root_id, "roots", roots)
    )
)
_ROOTS = Sized(
    lambda uuids: sa.select(_providers.root_id, _providers.id).where(
        listed(_providers.uuid, "uuids", uuids)
    )
)


_UNIT_FACTS = _units.reason, _units.disabled_by, _units.since, _units.until
_UNITS = Sized(
    lambda ids: sa.select(_units.provider_id, _units.unit, *_UNIT_FACTS).where(
        listed(_units.provider_id, "ids", ids)
    )
)
# the units that are disabled, with whoever has them
_UNITS_OF = Sized(
    lambda uuids: (
        sa.select(_providers.uuid, _units.unit, _taken.consumer_id, *_UNIT_FACTS)
        .join_from(
            tables.disabled_units, tables.resource_providers, _units.provider_id == _providers.id
        )
        .outerjoin(
            tables.allocation_units,
            sa.and_(_taken.provider_id == _units.provider_id, _taken.unit == _units.unit),
        )
        .where(listed(_providers.uuid, "uuids", uuids))
        .order_by(_providers.uuid, _units.unit)
    )
)
_TAKEN_OF = Sized(
    lambda uuids: (
        sa.select(_providers.uuid, _taken.unit)
        .join_from(
            tables.allocation_units, tables.resource_providers, _taken.provider_id == _providers.id
        )
        .where(listed(_providers.uuid, "uuids", uuids))
    )
)
_KINDS_OF = Sized(
    lambda uuids: (
        sa.select(_providers.uuid, _kinds.name, _kinds.body)
        .join_from(tables.structures, tables.resource_providers)
        .where(listed(_providers.uuid, "uuids", uuids))
    )
)


def in_force(facts: Sequence[Any], now: datetime.datetime | None) -> Disabled | None:
    """Return what the columns :data:`FACTS` of a row say, None if nothing or if it is over.

    :param now: the time of the database; only needed where it ends
    """
    kept = from_columns(facts)
    if kept is None or (now is not None and kept.ends_at <= now):
        return None
    return kept


def from_columns(facts: Sequence[Any]) -> Disabled | None:
    """Return the reason that the columns :data:`FACTS` of a row state, also if it is over."""
    reason, by, since, until = facts
    if reason is None:
        return None
    ends = None if until is None else from_moment(until)
    return Disabled(reason=reason, by=by, since=from_moment(since), until=ends)


def unit_rows(connection: Connection, providers: Iterable[int]) -> list[Sequence[Any]]:
    """Return ``(provider, unit, *facts)`` of the disabled units of some providers.

    Expired ones are included, and those of devices that were removed.
    """
    return [row for part in chunks(sorted(providers)) for row in _UNITS.rows(connection, ids=part)]


def _kinds_of(connection: Connection, uuids: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    """Return the structured resources that some providers keep, each with its description."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for part in chunks(sorted(uuids)):
        for uuid, kind, body in _KINDS_OF.rows(connection, uuids=part):
            kinds.setdefault(uuid, []).append((kind, description_of(kind, body)))
    return kinds


def disabled_units(connection: Connection, uuids: Collection[str]) -> dict[str, list[DisabledUnit]]:
    """Return the units that are disabled alone at some providers, and those that were removed.

    Also those whose time is over. Cost: two statements, three where units were removed.
    """
    kinds = _kinds_of(connection, uuids)
    out: dict[str, list[tuple[str, Disabled]]] = {uuid: [] for uuid in kinds}
    taken: dict[str, set[str]] = {}
    for part in chunks(sorted(uuids)):
        for uuid, unit, taker, *facts in _UNITS_OF.rows(connection, uuids=part):
            said = from_columns(facts)
            if said is not None:
                out.setdefault(uuid, []).append((unit, said))
            if taker is not None:
                taken.setdefault(uuid, set()).add(unit)
    removed = [uuid for uuid, some in kinds.items() if removed_units(some)]
    for part in chunks(sorted(removed)):
        for uuid, unit in _TAKEN_OF.rows(connection, uuids=part):
            taken.setdefault(uuid, set()).add(unit)
    return {
        uuid: disabled_of(kinds.get(uuid, ()), some, taken.get(uuid, ()))
        for uuid, some in out.items()
    }


def to_columns(connection: Connection, reason: Disabled | None) -> dict[str, Any]:
    """Return the columns :data:`FACTS` of a provider: all null if it is not disabled."""
    if reason is None:
        return {column.name: None for column in FACTS}
    return {f"disabled_{name}": value for name, value in _values(connection, reason).items()}


def to_unit_columns(connection: Connection, reason: Disabled) -> dict[str, Any]:
    """Return the columns of a row of ``disabled_units``, without its key."""
    values = _values(connection, reason)
    return {"disabled_by": values.pop("by"), **values}


def _values(connection: Connection, reason: Disabled) -> dict[str, Any]:
    until = None if reason.until is None else moment(connection, reason.until)
    since = moment(connection, reason.since)
    return {"reason": reason.reason, "by": reason.by, "since": since, "until": until}


def out_of_service(
    connection: Connection, uuids: Iterable[str], now: datetime.datetime
) -> dict[str, Disabled]:
    """Return what is disabled at some providers or above them, by name: asked to refuse."""
    located: dict[int, int] = {}
    for part in chunks(sorted(set(uuids))):
        located.update((number, root) for root, number in _ROOTS.rows(connection, uuids=part))
    rows = {
        row[0]: row
        for part in chunks(sorted(set(located.values())))
        for row in _OF_TREES.rows(connection, roots=part)
    }
    found: dict[str, Disabled] = {}
    for number in located:
        at: int | None = number
        while at is not None:
            _, parent, name, *facts = rows[at]
            said = in_force(facts, now)
            if said is not None:
                found[tables.called(name)] = said
            at = parent
    return found
