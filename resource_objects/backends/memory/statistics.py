"""What agents tell of providers beside what they have, in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from resource_objects import exceptions
from resource_objects.backends.memory.state import Draft, ProviderRow, State
from resource_objects.providers.statistics import (
    Statistic,
    StatisticFilter,
    StatisticsByProvider,
    StatisticsOrder,
    changed,
)


def put(draft: Draft, order: StatisticsOrder) -> int:
    """Put into a draft what is another, and who reported; return how many values these are."""
    kept = {uuid: draft.providers.get(uuid) for uuid in sorted(order.providers)}
    for uuid, provider in kept.items():
        if provider is None:
            raise exceptions.ProviderNotFound(uuid)
        if uuid in order.reported:
            reported = dataclasses.replace(provider, reported_at=draft.now)
            draft.providers.put(uuid, reported)
    for name, declared in order.declared().items():
        known = draft.statistic_types.get(name)
        if known is None:
            draft.statistic_types.put(name, declared)
        else:
            known.require(declared)
    for declared in order.types:
        draft.statistic_types.put(declared.name, declared)
    count = 0
    for uuid, said in order.values.items():
        here = draft.statistics.get(uuid) or {}
        written, gone = changed(here, said, order.source, draft.now)
        if written or gone:
            left = {name: one for name, one in {**here, **written}.items() if name not in gone}
            draft.statistics.put(uuid, left or None)
            count += len(written) + len(gone)
    return count


def read(state: State, wanted: StatisticFilter) -> StatisticsByProvider:
    """Return the statistics of a filter."""
    types = state.statistic_types
    found: StatisticsByProvider = {}
    for provider in _providers(state, wanted):
        kept = state.statistics.get(provider.uuid, {})
        some = {
            name: Statistic.from_stored(types[name], one.stored, one.since, one.source)
            for name, one in sorted(kept.items())
            if wanted.names is None or name in wanted.names
        }
        if some:
            found[provider.name] = some
    return found


def forget(draft: Draft, wanted: StatisticFilter) -> int:
    """Put into a draft what is left without the statistics of a filter; return how many go."""
    count = 0
    for provider in _providers(draft.state, wanted):
        here = draft.state.statistics.get(provider.uuid, {})
        gone = here if wanted.names is None else here.keys() & wanted.names
        left = {name: one for name, one in here.items() if name not in gone}
        if len(left) < len(here):
            count += len(here) - len(left)
            draft.statistics.put(provider.uuid, left or None)
    if wanted.providers is None:
        for name in draft.state.statistic_types:
            if wanted.names is None or name in wanted.names:
                draft.statistic_types.put(name, None)
    return count


def _providers(state: State, wanted: StatisticFilter) -> Iterator[ProviderRow]:
    """Yield the providers of a filter, in the order they were created."""
    if wanted.providers is None:
        yield from (one for uuid, one in state.providers.items() if uuid in state.statistics)
        return
    found = (state.providers.get(uuid) for uuid in wanted.providers)
    yield from sorted((one for one in found if one is not None), key=lambda one: one.number)
