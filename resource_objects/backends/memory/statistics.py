"""Statistics of providers, in memory."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator

from resource_objects import exceptions
from resource_objects.providers.statistics import (
    Statistic,
    StatisticFilter,
    StatisticsByProvider,
    StatisticsOrder,
    changed,
)
from resource_objects.store.rows import ProviderRow, Rows


def put(rows: Rows, order: StatisticsOrder, now: datetime.datetime) -> int:
    """Write changed values and the times of reports; return the number of changed values."""
    providers = {uuid: rows.providers.get(uuid) for uuid in sorted(order.providers)}
    for uuid, provider in providers.items():
        if provider is None:
            raise exceptions.NotFound("provider", uuid)
        if uuid in order.reported:
            rows.providers.put(uuid, dataclasses.replace(provider, reported_at=now))
    count = 0
    for uuid, statistics in order.values.items():
        stored = rows.statistics.get(uuid) or {}
        written, deleted = changed(stored, statistics, order.source, now)
        if written or deleted:
            merged = {**stored, **written}
            remaining = {name: row for name, row in merged.items() if name not in deleted}
            rows.statistics.put(uuid, remaining or None)
            count += len(written) + len(deleted)
    return count


def read(rows: Rows, criteria: StatisticFilter) -> StatisticsByProvider:
    """Return the statistics that match a filter."""
    by_provider: StatisticsByProvider = {}
    for provider in _providers(rows, criteria):
        statistics = {
            name: Statistic.from_stored(name, row.value, row.since, row.source)
            for name, row in sorted(rows.statistics.rows.get(provider.uuid, {}).items())
            if criteria.names is None or name in criteria.names
        }
        if statistics:
            by_provider[provider.name] = statistics
    return by_provider


def forget(rows: Rows, criteria: StatisticFilter) -> int:
    """Delete the statistics that match a filter; return their number."""
    count = 0
    for provider in list(_providers(rows, criteria)):
        stored = rows.statistics.get(provider.uuid) or {}
        deleted = stored if criteria.names is None else stored.keys() & criteria.names
        remaining = {name: row for name, row in stored.items() if name not in deleted}
        if deleted:
            count += len(deleted)
            rows.statistics.put(provider.uuid, remaining or None)
    return count


def _providers(rows: Rows, criteria: StatisticFilter) -> Iterator[ProviderRow]:
    """Yield the providers that match a filter, in the order in which they were created."""
    if criteria.providers is None:
        yield from (
            provider for uuid, provider in rows.providers.rows.items() if uuid in rows.statistics
        )
        return
    providers = (rows.providers.get(uuid) for uuid in criteria.providers)
    yield from sorted(
        (provider for provider in providers if provider is not None),
        key=lambda provider: provider.number,
    )
