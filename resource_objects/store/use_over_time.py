"""Use over time in memory: intervals that writes end and begin, summed and forgotten."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections.abc import Iterable, Sequence

from resource_objects import clock, exceptions
from resource_objects.providers.orders import NameKind
from resource_objects.providers.use_over_time import (
    UseBy,
    UseFilter,
    UseInterval,
    UseRecording,
    UseReport,
    by_class,
    intervals_of,
    next_intervals,
    report,
    span,
    summed,
)
from resource_objects.store.decide import ConsumerEffect
from resource_objects.store.rows import Rows

#: the one row of ``State.use_recording``
_IT = "use"
#: how many intervals a write forgets that forgets what is old
BATCH = 2000


def recording(rows: Rows) -> UseRecording | None:
    """Return whether use is recorded, None if it never was."""
    return rows.use_recording.get(_IT)


def switch(rows: Rows, keep: datetime.timedelta | None, now: datetime.datetime) -> None:
    """Record use from now on, or no more; or keep it for another time. Cost: linear in claims."""
    known = recording(rows)
    if keep is None:
        if known is not None and known.is_on:
            rows.use_recording.put(_IT, dataclasses.replace(known, until=now))
            for consumer, found in list(rows.open_use.rows.items()):
                rows.open_use.put(consumer, None)
                _end(rows, (one.ended(now) for one in found.values()))
    elif known is not None and known.is_on:
        rows.use_recording.put(_IT, known.kept_for(keep, now))
    else:
        rows.use_recording.put(_IT, UseRecording(now, None, keep))
        for consumer, claim in rows.consumers.rows.items():
            rows.open_use.put(consumer, intervals_of(claim, now))


def record(rows: Rows, settled: Iterable[ConsumerEffect], now: datetime.datetime) -> None:
    """Record what consumers use from now on. Cost: linear in what they hold."""
    known = recording(rows)
    if known is None or not known.is_on:
        return
    for one in settled:
        if is_changed(one):
            consumer = one.claim.consumer
            left = None if one.is_gone else one.claim
            before = rows.open_use.get(consumer) or {}
            ended, found = next_intervals(before, left, now)
            rows.open_use.put(consumer, found or None)
            _end(rows, ended)


def _end(rows: Rows, intervals: Iterable[UseInterval]) -> None:
    for one in intervals:
        rows.ended_use.put(next(rows.interval_numbers), one)


def rename_class(rows: Rows, old: str, new: str) -> None:
    """Tell what was used of a class by its new name. Cost: linear in the intervals."""
    for consumer, found in list(rows.open_use.rows.items()):
        if old in found:
            renamed = {one.resource_class: one for one in _renamed(found.values(), old, new)}
            rows.open_use.put(consumer, renamed)
    for number, interval in list(rows.ended_use.rows.items()):
        if interval.resource_class == old and not interval.is_of_removed:
            [renamed_one] = _renamed([interval], old, new)
            rows.ended_use.put(number, renamed_one)


def remove_class(rows: Rows, name: str) -> None:
    """Tell what was used of a class by the name it had last. Cost: linear in the intervals."""
    for number, interval in list(rows.ended_use.rows.items()):
        if interval.resource_class == name:
            rows.ended_use.put(number, interval._replace(is_of_removed=True))


def _renamed(intervals: Iterable[UseInterval], old: str, new: str) -> list[UseInterval]:
    return [
        one._replace(resource_class=new) if one.resource_class == old else one for one in intervals
    ]


def between(
    rows: Rows,
    since: datetime.datetime,
    until: datetime.datetime | None,
    wanted: UseFilter,
    by: Sequence[UseBy],
) -> UseReport:
    """Return what was used between two moments. Cost: linear in the intervals that are kept."""
    now, known = clock.now(), recording(rows)
    upto, end = span(known, since, until, now)
    assert known is not None
    intervals = [
        *rows.ended_use.rows.values(),
        *(one for found in rows.open_use.rows.values() for one in found.values()),
    ]
    if wanted.classes is not None:
        used = {one.resource_class for one in intervals}
        for name in sorted(wanted.classes - used):
            if (NameKind.RESOURCE_CLASS, name) not in rows.names:
                raise exceptions.NotFound("resource class", name)
    return report(summed(intervals, wanted, by, since, end), by, since, upto, known, now)


def expired(rows: Rows, before: datetime.datetime, most: int) -> list[int]:
    """Return the numbers of intervals that ended before a moment, at most ``most``."""
    old = itertools.takewhile(
        lambda pair: pair[1].ended_at is not None and pair[1].ended_at < before,
        rows.ended_use.rows.items(),
    )
    return [number for number, _ in itertools.islice(old, most)]


def is_changed(settled: ConsumerEffect) -> bool:
    """Return whether an interval of a consumer ends or begins by what becomes of it."""
    before, after = settled.kept, settled.claim
    if before is None or settled.is_gone:
        return True
    if (before.user, before.project) != (after.user, after.project):
        return True
    return bool(settled.changes) and by_class(before.held) != by_class(after.held)
