"""Statistics of providers as rows, and the times of their last reports.

Locks: the providers in the order of their numbers (shared, unless they report), then their rows of
statistics by key, before they are compared. So of two sources that report one provider, the second
sees what the first has written. A row that another source inserts at the same moment is a
duplicate: the transaction is repeated. Nothing that a claim changes is locked.

Many providers cost as many statements as one: their rows are read, compared and written in bulk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import clock
from resource_objects.backends.sql import statements, tables
from resource_objects.backends.sql.rows import lock_providers
from resource_objects.backends.sql.statements import SQL, from_moment, moment, now_of
from resource_objects.providers.statistics import (
    Statistic,
    StatisticFilter,
    StatisticsByProvider,
    StatisticsOrder,
    StoredStatistic,
)
from resource_objects.store.rows import ProviderRow, Rows
from resource_objects.store.rows import changes as changed_rows
from resource_objects.store.write import write_statistics

_providers = tables.resource_providers.c
_statistics = tables.statistics.c

_FIND = SQL("SELECT uuid, id FROM resource_providers WHERE uuid IN :uuids*")
_SELECT = """
    SELECT provider_id, name, value, source, since FROM statistics WHERE provider_id IN :ids*"""
_STORED = SQL(_SELECT)
_LOCK_STORED = SQL(f"{_SELECT} ORDER BY provider_id, name {{server: FOR UPDATE}}")
_REPORT = SQL("UPDATE resource_providers SET reported_at = :at WHERE id IN :ids*")


def is_news(connection: Connection, order: StatisticsOrder) -> bool:
    """Return True if an order changes anything. Nothing is locked.

    Cost: two queries, for thousands of providers.

    :raises NotFound: as :func:`write`
    """
    if order.reported:
        return True
    numbers: dict[str, int] = dict(_FIND.rows_for(connection, order.providers))
    rows = _load(connection, _STORED, order, numbers)
    return write_statistics(rows, order, clock.now()) > 0


def write(connection: Connection, order: StatisticsOrder) -> int:
    """Write the values that changed and the times of reports; return the number of values.

    Cost: up to three queries, and up to three statements.

    :raises NotFound: if a provider of the order does not exist
    """
    locked = lock_providers(connection, order.providers, is_shared=not order.reported)
    numbers = {uuid: number for uuid, number, *_ in locked}
    now = now_of(connection)
    rows = _load(connection, _LOCK_STORED, order, numbers)
    count = write_statistics(rows, order, now)

    def stored(uuid: str, values: Mapping[str, StoredStatistic] | None) -> list[tuple[Any, ...]]:
        return [
            (numbers[uuid], name, row.value, row.source, moment(connection, row.since))
            for name, row in (values or {}).items()
        ]

    changed = [row for row in changed_rows(rows.journal) if row[0] is rows.statistics]
    old = {row for _, uuid, before, _ in changed for row in stored(uuid, before)}
    new = {row for _, uuid, _, after in changed for row in stored(uuid, after)}
    statements.replace(connection, tables.statistics, 2, old, new)
    reported = [numbers[uuid] for uuid in order.reported]
    _REPORT.run_for(connection, reported, at=moment(connection, now))
    return count


def _load(
    connection: Connection, query: SQL, order: StatisticsOrder, numbers: Mapping[str, int]
) -> Rows:
    """Return the providers of an order, as far as statistics need them, and their statistics."""
    rows = Rows()
    for uuid, number in numbers.items():  # the names of providers are not needed
        rows.providers.put_unjournaled(uuid, None, ProviderRow(number, uuid, uuid))
    uuid_of = {numbers[uuid]: uuid for uuid in order.values if uuid in numbers}
    stored: defaultdict[str, dict[str, StoredStatistic]] = defaultdict(dict)
    for provider, name, value, source, since in query.rows_for(connection, uuid_of):
        stored[uuid_of[provider]][name] = StoredStatistic(value, source, from_moment(since))
    for uuid, statistics in stored.items():
        rows.statistics.put_unjournaled(uuid, None, statistics)
    return rows


def read(connection: Connection, criteria: StatisticFilter) -> StatisticsByProvider:
    """Return the statistics that match a filter (see the contract). Cost: one query.

    :raises InvalidInput: if the filter names more than a statement takes
    """
    query = (
        sa.select(_providers.name, *list(_statistics)[1:])
        .join_from(tables.statistics, tables.resource_providers)
        .where(*_conditions(criteria))
        .order_by(_providers.id)
    )
    by_provider: StatisticsByProvider = defaultdict(dict)
    for provider, name, value, source, since in connection.execute(query):
        statistic = Statistic.from_stored(name, value, from_moment(since), source)
        by_provider[provider][name] = statistic
    return {name: dict(sorted(statistics.items())) for name, statistics in by_provider.items()}


def forget(connection: Connection, criteria: StatisticFilter) -> int:
    """Delete the statistics that match a filter (see the contract). Cost: one statement."""
    deleted = sa.delete(tables.statistics).where(*_conditions(criteria))
    return connection.execute(deleted).rowcount


def _conditions(criteria: StatisticFilter) -> list[sa.ColumnElement[bool]]:
    sets = (criteria.providers, criteria.names)
    statements.refuse_too_many([values for values in sets if values is not None])
    conditions: list[sa.ColumnElement[bool]] = []
    if criteria.providers is not None:
        of = sa.select(_providers.id).where(_providers.uuid.in_(sorted(criteria.providers)))
        conditions.append(_statistics.provider_id.in_(of))
    if criteria.names is not None:
        conditions.append(_statistics.name.in_(sorted(criteria.names)))
    return conditions
