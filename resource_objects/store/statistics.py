"""Statistics of providers: written, read and deleted as rows."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection

from resource_objects import exceptions
from resource_objects.providers.statistics import (
    Statistic,
    StatisticFilter,
    StatisticsByProvider,
    StatisticsOrder,
    StoredStatistic,
    changed,
)
from resource_objects.store.rows import ProviderRow, Rows


def write_statistics(rows: Rows, order: StatisticsOrder, now: datetime.datetime) -> int:
    """Write changed values and the times of reports; return the number of changed values.

    :param now: the time of the ledger
    :raises NotFound: if a provider of the order does not exist
    """
    for uuid in sorted(order.providers):
        provider = rows.providers.get(uuid)
        if provider is None:
            raise exceptions.NotFound("provider", uuid)
        if uuid in order.reported:
            rows.providers.write(uuid, dataclasses.replace(provider, reported_at=now))
    count = 0
    for uuid, reported in order.values.items():
        written, deleted = changed(rows.statistics.get(uuid) or {}, reported, order.source, now)
        if written or deleted:
            _store(rows, uuid, written, deleted)
            count += len(written) + len(deleted)
    return count


def read_statistics(rows: Rows, criteria: StatisticFilter) -> StatisticsByProvider:
    """Return the statistics that match a filter, providers in the order of their creation."""
    by_provider: StatisticsByProvider = {}
    for provider in _providers(rows, criteria):
        statistics = {
            name: Statistic.from_stored(name, row.value, row.since, row.source)
            for name, row in sorted(rows.statistics[provider.uuid].items())
            if criteria.names is None or name in criteria.names
        }
        if statistics:
            by_provider[provider.name] = statistics
    return by_provider


def delete_statistics(rows: Rows, criteria: StatisticFilter) -> int:
    """Delete the statistics that match a filter; return their number."""
    count = 0
    for provider in _providers(rows, criteria):
        stored = rows.statistics[provider.uuid]
        deleted = stored.keys() if criteria.names is None else stored.keys() & criteria.names
        if deleted:
            count += len(deleted)
            _store(rows, provider.uuid, {}, deleted)
    return count


def _store(
    rows: Rows, uuid: str, written: dict[str, StoredStatistic], deleted: Collection[str]
) -> None:
    statistics = {**(rows.statistics.get(uuid) or {}), **written}
    remaining = {name: row for name, row in statistics.items() if name not in deleted}
    rows.statistics.write(uuid, remaining or None)


def _providers(rows: Rows, criteria: StatisticFilter) -> list[ProviderRow]:
    """Return the providers with statistics that match a filter, in the order of their creation."""
    uuids = rows.statistics if criteria.providers is None else criteria.providers
    providers = [rows.providers[uuid] for uuid in uuids if uuid in rows.statistics]
    return sorted(providers, key=lambda provider: provider.number)
