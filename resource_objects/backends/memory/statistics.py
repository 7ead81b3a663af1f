"""What agents tell of providers beside what they have, in memory."""

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
    """Put into a draft what is another, and who reported; return how many values these are."""
    kept = {uuid: rows.providers.get(uuid) for uuid in sorted(order.providers)}
    for uuid, provider in kept.items():
        if provider is None:
            raise exceptions.ProviderNotFound(uuid)
        if uuid in order.reported:
            reported = dataclasses.replace(provider, reported_at=now)
            rows.providers.put(uuid, reported)
    for name, declared in order.declared().items():
        known = rows.statistic_types.get(name)
        if known is None:
            rows.statistic_types.put(name, declared)
        else:
            known.require(declared)
    for declared in order.types:
        rows.statistic_types.put(declared.name, declared)
    count = 0
    for uuid, said in order.values.items():
        here = rows.statistics.get(uuid) or {}
        written, gone = changed(here, said, order.source, now)
        if written or gone:
            left = {name: one for name, one in {**here, **written}.items() if name not in gone}
            rows.statistics.put(uuid, left or None)
            count += len(written) + len(gone)
    return count


def read(rows: Rows, wanted: StatisticFilter) -> StatisticsByProvider:
    """Return the statistics of a filter."""
    types = rows.statistic_types
    found: StatisticsByProvider = {}
    for provider in _providers(rows, wanted):
        kept = rows.statistics.rows.get(provider.uuid, {})
        some = {
            name: Statistic.from_stored(types[name], one.stored, one.since, one.source)
            for name, one in sorted(kept.items())
            if wanted.names is None or name in wanted.names
        }
        if some:
            found[provider.name] = some
    return found


def forget(rows: Rows, wanted: StatisticFilter) -> int:
    """Put into a draft what is left without the statistics of a filter; return how many go."""
    count = 0
    for provider in list(_providers(rows, wanted)):
        here = rows.statistics.get(provider.uuid) or {}
        gone = here if wanted.names is None else here.keys() & wanted.names
        left = {name: one for name, one in here.items() if name not in gone}
        if len(left) < len(here):
            count += len(here) - len(left)
            rows.statistics.put(provider.uuid, left or None)
    if wanted.providers is None:
        for name in list(rows.statistic_types):
            if wanted.names is None or name in wanted.names:
                rows.statistic_types.put(name, None)
    return count


def _providers(rows: Rows, wanted: StatisticFilter) -> Iterator[ProviderRow]:
    """Yield the providers of a filter, in the order they were created."""
    if wanted.providers is None:
        yield from (one for uuid, one in rows.providers.rows.items() if uuid in rows.statistics)
        return
    found = (rows.providers.get(uuid) for uuid in wanted.providers)
    yield from sorted((one for one in found if one is not None), key=lambda one: one.number)
