"""Use over time in memory: intervals that writes end and begin, summed and forgotten."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections.abc import Iterable, Sequence

from resource_objects import clock, exceptions
from resource_objects.backends.memory.state import Draft, State
from resource_objects.providers.orders import NameKind
from resource_objects.providers.settle import Settled
from resource_objects.providers.use_over_time import (
    UseBy,
    UseFilter,
    UseInterval,
    UseRecording,
    UseReport,
    intervals_of,
    is_changed,
    next_intervals,
    report,
    span,
    summed,
)

#: the one row of ``State.use_recording``
_IT = "use"
#: how many intervals a write forgets that forgets what is old
BATCH = 2000


def recording(state: State) -> UseRecording | None:
    """Return whether use is recorded, None if it never was."""
    return state.use_recording.get(_IT)


def switch(state: State, draft: Draft, keep: datetime.timedelta | None) -> None:
    """Record use from now on, or no more; or keep it for another time. Cost: linear in claims."""
    known = recording(state)
    if keep is None:
        if known is not None and known.is_on:
            draft.use_recording.put(_IT, dataclasses.replace(known, until=draft.now))
            for consumer, found in state.open_use.items():
                draft.open_use.put(consumer, None)
                _end(draft, (one.ended(draft.now) for one in found.values()))
    elif known is not None and known.is_on:
        draft.use_recording.put(_IT, known.kept_for(keep, draft.now))
    else:
        draft.use_recording.put(_IT, UseRecording(draft.now, None, keep))
        for consumer, claim in state.claims.items():
            draft.open_use.put(consumer, intervals_of(claim, draft.now))


def record(draft: Draft, settled: Iterable[Settled]) -> None:
    """Record what consumers use from now on. Cost: linear in what they hold."""
    known = recording(draft.state)
    if known is None or not known.is_on:
        return
    for one in settled:
        if is_changed(one):
            consumer = one.claim.consumer
            left = None if one.is_gone else one.claim
            before = draft.open_use.get(consumer) or {}
            ended, found = next_intervals(before, left, draft.now)
            draft.open_use.put(consumer, found or None)
            _end(draft, ended)


def _end(draft: Draft, intervals: Iterable[UseInterval]) -> None:
    for one in intervals:
        draft.ended_use.put(next(draft.state.interval_numbers), one)


def rename_class(draft: Draft, old: str, new: str) -> None:
    """Tell what was used of a class by its new name. Cost: linear in the intervals."""
    for consumer, found in draft.open_use.items():
        if old in found:
            renamed = {one.resource_class: one for one in _renamed(found.values(), old, new)}
            draft.open_use.put(consumer, renamed)
    for number, interval in draft.ended_use.items():
        if interval.resource_class == old and not interval.is_of_removed:
            [renamed_one] = _renamed([interval], old, new)
            draft.ended_use.put(number, renamed_one)


def remove_class(draft: Draft, name: str) -> None:
    """Tell what was used of a class by the name it had last. Cost: linear in the intervals."""
    for number, interval in draft.ended_use.items():
        if interval.resource_class == name:
            draft.ended_use.put(number, interval._replace(is_of_removed=True))


def _renamed(intervals: Iterable[UseInterval], old: str, new: str) -> list[UseInterval]:
    return [
        one._replace(resource_class=new) if one.resource_class == old else one for one in intervals
    ]


def between(
    state: State,
    since: datetime.datetime,
    until: datetime.datetime | None,
    wanted: UseFilter,
    by: Sequence[UseBy],
) -> UseReport:
    """Return what was used between two moments. Cost: linear in the intervals that are kept."""
    now, known = clock.now(), recording(state)
    upto, end = span(known, since, until, now)
    assert known is not None
    intervals = [
        *state.ended_use.values(),
        *(one for found in state.open_use.values() for one in found.values()),
    ]
    if wanted.classes is not None:
        used = {one.resource_class for one in intervals}
        for name in sorted(wanted.classes - used):
            if (NameKind.RESOURCE_CLASS, name) not in state.names:
                raise exceptions.ClassNotFound(name)
    return report(summed(intervals, wanted, by, since, end), by, since, upto, known, now)


def forget(state: State, draft: Draft, before: datetime.datetime, most: int) -> None:
    """Forget intervals that ended before a moment, at most so many."""
    old = itertools.takewhile(
        lambda pair: pair[1].ended_at is not None and pair[1].ended_at < before,
        state.ended_use.items(),
    )
    numbers = [number for number, _ in itertools.islice(old, most)]
    for number in numbers:
        draft.ended_use.put(number, None)
