"""Units as rows: which CPUs and devices are taken, and by which allocation (D3).

The primary key (provider, unit) is what makes it impossible to give one out twice: of two writers
the second finds a duplicate, and at its next try whoever was faster.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import schema
from resource_objects.backends.sql.chunks import MOST, chunks
from resource_objects.backends.sql.statements import Insert, Sized, listed
from resource_objects.providers.settle import Unit

_providers = schema.resource_providers.c
_consumers = schema.consumers.c
_allocations = schema.allocations.c
_units = schema.allocation_units.c


def _takers_query(uuids: int, units: int) -> sa.Select[*tuple[Any, ...]]:
    return (
        sa.select(_providers.uuid, _units.unit, _consumers.name)
        .join_from(
            schema.allocation_units,
            schema.resource_providers,
            _providers.id == _units.provider_id,
        )
        .join(schema.allocations, _allocations.id == _units.allocation_id)
        .join(schema.consumers, _consumers.id == _allocations.consumer_id)
        .where(listed(_providers.uuid, "uuids", uuids), listed(_units.unit, "units", units))
    )


def _give_back_query(ids: int) -> sa.Delete:
    return sa.delete(schema.allocation_units).where(listed(_units.allocation_id, "ids", ids))


_TAKERS = Sized(_takers_query)
_GIVE_BACK = Sized(_give_back_query)
_TAKE = Insert(schema.allocation_units, "provider_id", "unit", "allocation_id")


def takers(connection: Connection, wanted: Collection[Unit]) -> dict[Unit, str]:
    """Return which of some units are taken, and by which consumer."""
    found: dict[Unit, str] = {}
    for part in chunks(sorted(wanted), MOST // 2):
        uuids, names = list({uuid for uuid, _ in part}), list({name for _, name in part})
        for uuid, unit, consumer in _TAKERS.rows(connection, uuids=uuids, units=names):
            if (uuid, unit) in wanted:
                found[uuid, unit] = consumer
    return found


def give_back(connection: Connection, allocations: Sequence[int]) -> None:
    """Forget all units of some allocations, by number."""
    for part in chunks(allocations):
        _GIVE_BACK.run(connection, ids=part)


def take(connection: Connection, rows: Sequence[tuple[int, str, int]]) -> None:
    """Write down ``(provider's number, unit, allocation's number)`` of units that are free."""
    if rows:
        _TAKE.many(connection, rows)
