"""Providers that a write demands to be as they were read, and those that report.

Locks: these providers, by number, in one statement. A write of definitions locks providers too: it
locks all of them at once (``define``), and here they are only looked at.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import schema
from resource_objects.backends.sql.chunks import chunks
from resource_objects.backends.sql.feed import Touched
from resource_objects.backends.sql.statements import Sized, listed, moment
from resource_objects.providers.orders import Write

_providers = schema.resource_providers.c


def _locate_query(uuids: int) -> sa.Select[int]:
    return sa.select(_providers.id).where(listed(_providers.uuid, "uuids", uuids))


def _read_query(ids: int) -> sa.Select[*tuple[Any, ...]]:
    return (
        sa.select(
            _providers.id,
            _providers.uuid,
            _providers.name,
            _providers.root_id,
            _providers.generation,
        )
        .where(listed(_providers.id, "ids", ids))
        .order_by(_providers.id)
    )


def _report_query(ids: int) -> sa.Update:
    return (
        sa.update(schema.resource_providers)
        .where(listed(_providers.id, "ids", ids))
        .values(reported_at=sa.bindparam("at"))
    )


_LOCATE = Sized(_locate_query)
_SHARE = Sized(lambda ids: _read_query(ids).with_for_update(read=True))
_LOCK = Sized(lambda ids: _read_query(ids).with_for_update())
_REPORT = Sized(_report_query)


class Kept(NamedTuple):
    """A locked provider as kept."""

    id: int
    uuid: str
    name: str
    root_id: int
    generation: int


def asked(write: Write) -> set[str]:
    """Return the uuids of the providers that must be unchanged, and of those that report."""
    return {*write.reported, *(uuid for uuid, _ in write.unchanged)}


def hold(
    connection: Connection,
    write: Write,
    now: datetime.datetime,
    touched: Touched,
    there: Mapping[str, Any] | None = None,
) -> None:
    """Check the providers that must be unchanged, and write that others have reported.

    Claims that only look do not wait for each other. Cost: two statements, to report one more.

    :param there: those that are there, by uuid, if they are locked; else they are locked now
    :raises StaleDefinition: if one is not at the generation it must have
    :raises ProviderNotFound: if one that reported is not there
    """
    if there is None:
        there = _locked(connection, sorted(asked(write)), _LOCK if write.reported else _SHARE)
    for uuid, generation in write.unchanged:
        if uuid not in there:
            raise exceptions.StaleDefinition(uuid, "it is gone")
        found = there[uuid]
        if found.generation != generation:
            raise exceptions.StaleDefinition(
                found.name, f"read at generation {generation}, now {found.generation}"
            )
    _report(connection, write.reported, there, now, touched)


def _locked(connection: Connection, uuids: Sequence[str], query: Sized) -> dict[str, Kept]:
    """Lock providers, by number as everybody does; return those that are there, by uuid."""
    numbers = [
        number for part in chunks(uuids) for (number,) in _LOCATE.rows(connection, uuids=part)
    ]
    return {
        row[1]: Kept(*row)
        for part in chunks(sorted(numbers))
        for row in query.rows(connection, ids=part)
    }


def _report(
    connection: Connection,
    uuids: Sequence[str],
    there: Mapping[str, Any],
    now: datetime.datetime,
    touched: Touched,
) -> None:
    numbers = []
    for uuid in uuids:
        if uuid not in there:
            raise exceptions.ProviderNotFound(uuid)
        numbers.append(there[uuid].id)
        touched.provider(uuid, [there[uuid].root_id])
    for part in chunks(numbers):
        _REPORT.run(connection, {"at": moment(connection, now)}, ids=part)
