"""Statistics of providers as rows, and the times of their last reports.

Locks: the providers in the order of their numbers (shared, unless they report), then their rows of
statistics by key, before they are compared. So of two sources that report one provider, the second
sees what the first has written. A row that another source inserts at the same moment is a
duplicate: the transaction is repeated. Nothing that a claim changes is locked.

Many providers cost as many statements as one: their rows are read, compared and written in bulk.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import statements, tables
from resource_objects.backends.sql.statements import SQL, chunks, from_moment, moment
from resource_objects.providers.statistics import (
    Statistic,
    StatisticFilter,
    StatisticsByProvider,
    StatisticsOrder,
    StoredStatistic,
    changed,
)

_providers = tables.resource_providers.c
_statistics = tables.statistics.c
_COLUMNS = (_statistics.name, _statistics.value, _statistics.source, _statistics.since)
_KEYS = ("provider_id", "name")


_FIND = SQL("SELECT id, uuid FROM resource_providers WHERE uuid IN :uuids*")
_SELECT = """
    SELECT provider_id, name, value, source, since FROM statistics WHERE provider_id IN :ids*"""
_STORED = SQL(_SELECT)
_LOCK_STORED = SQL(f"{_SELECT} ORDER BY provider_id, name {{server: FOR UPDATE}}")


class _Changes:
    """The rows that an order inserts, updates and deletes."""

    def __init__(self) -> None:
        self.inserts: list[dict[str, Any]] = []
        self.updates: list[dict[str, Any]] = []
        self.deletes: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self.inserts) + len(self.updates) + len(self.deletes)


def is_news(connection: Connection, order: StatisticsOrder) -> bool:
    """Return True if an order changes anything. Nothing is locked.

    Cost: two queries, for thousands of providers.

    :raises NotFound: as :func:`put`
    """
    if order.reported:
        return True
    numbers = {
        uuid: number
        for part in chunks(sorted(order.providers))
        for number, uuid in _FIND.rows(connection, uuids=part)
    }
    return bool(_changes(connection, order, numbers))


def put(
    connection: Connection,
    order: StatisticsOrder,
    numbers: Mapping[str, int],
    now: datetime.datetime,
) -> int:
    """Write the values that changed; return their number (see the contract).

    Cost: one query, and up to three statements.

    :param numbers: those of the providers, by uuid, which are locked
    """
    changes = _changes(connection, order, numbers, now)
    statements.insert(connection, tables.statistics, changes.inserts)
    statements.update(connection, tables.statistics, _KEYS, changes.updates)
    statements.delete(connection, tables.statistics, changes.deletes)
    return len(changes)


def _changes(
    connection: Connection,
    order: StatisticsOrder,
    numbers: Mapping[str, int],
    now: datetime.datetime | None = None,
) -> _Changes:
    """Return the rows that an order changes, in the order of their keys.

    :param now: None: nothing is locked, and only the number of changes is needed
    """
    for uuid in sorted(order.providers):
        if uuid not in numbers:
            raise exceptions.NotFound("provider", uuid)
    changes = _Changes()
    query = _STORED if now is None else _LOCK_STORED
    stored = _stored(connection, query, [numbers[uuid] for uuid in order.values])
    for number, statistics in sorted((numbers[uuid], some) for uuid, some in order.values.items()):
        here = stored.get(number, {})
        written, deleted = changed(here, statistics, order.source, now)
        for name, row in sorted(written.items()):
            values = {
                "provider_id": number,
                "name": name,
                "value": row.value,
                "source": row.source,
                "since": moment(connection, row.since),
            }
            (changes.updates if name in here else changes.inserts).append(values)
        changes.deletes += ({"provider_id": number, "name": name} for name in sorted(deleted))
    return changes


def _stored(
    connection: Connection, query: SQL, providers: Collection[int]
) -> dict[int, dict[str, StoredStatistic]]:
    """Return the stored rows of some providers, by number and name."""
    rows: defaultdict[int, dict[str, StoredStatistic]] = defaultdict(dict)
    for part in chunks(sorted(providers)):
        for provider, name, value, source, since in query.rows(connection, ids=part):
            rows[provider][name] = StoredStatistic(value, source, from_moment(since))
    return rows


def read(connection: Connection, wanted: StatisticFilter) -> StatisticsByProvider:
    """Return the statistics that match a filter (see the contract). Cost: one query.

    :raises InvalidInput: if the filter names more than a statement takes
    """
    query = (
        sa.select(_providers.name, *_COLUMNS)
        .join_from(tables.statistics, tables.resource_providers)
        .where(*_conditions(wanted))
        .order_by(_providers.id)
    )
    by_provider: dict[str, list[Statistic]] = {}
    for provider, name, value, source, since in connection.execute(query):
        statistic = Statistic.from_stored(name, value, from_moment(since), source)
        by_provider.setdefault(provider, []).append(statistic)
    return {
        provider: {one.name: one for one in sorted(statistics, key=lambda one: one.name)}
        for provider, statistics in by_provider.items()
    }


def forget(connection: Connection, wanted: StatisticFilter) -> int:
    """Delete the statistics that match a filter (see the contract). Cost: one statement."""
    deleted = sa.delete(tables.statistics).where(*_conditions(wanted))
    return connection.execute(deleted).rowcount


def _conditions(wanted: StatisticFilter) -> list[sa.ColumnElement[bool]]:
    sets = (wanted.providers, wanted.names)
    statements.refuse_too_many([some for some in sets if some is not None])
    conditions: list[sa.ColumnElement[bool]] = []
    if wanted.providers is not None:
        of = sa.select(_providers.id).where(_providers.uuid.in_(sorted(wanted.providers)))
        conditions.append(_statistics.provider_id.in_(of))
    if wanted.names is not None:
        conditions.append(_statistics.name.in_(sorted(wanted.names)))
    return conditions
