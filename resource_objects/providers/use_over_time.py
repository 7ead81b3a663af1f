"""Use over time: who used how much of what between two moments, also after it was given back.

A ledger that records it keeps *intervals*: a consumer used so much of a class, over all providers,
from one moment to another, for a project and a user. The transaction that changes the amount, the
project or the user ends one interval and begins the next; a move or a swap changes none of these
and writes nothing. An interval without an end goes on. What is used is the sum of amounts times
the time between, in microseconds, which is what clocks of databases tell: an integer, exact.

Nothing that the change feed forgets is asked for: intervals are a table of their own, kept for a
time of their own after they ended. Before it was switched on nobody knows what was used, and no
answer pretends to (:attr:`UseReport.is_complete`).

The decision which intervals end and begin is pure and the same for every backend.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from resource_objects import exceptions, names
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.orders import ConsumerRecord, Use

_MICROSECOND = datetime.timedelta(microseconds=1)
_PER_HOUR = 3_600_000_000

#: How to switch it on, as errors tell it.
HOW = "switch it on by ledger.use_over_time.record() or `resource-objects usage record --keep 400d`"


class UseBy(enum.StrEnum):
    """What use over time is summed by, beside the class."""

    CONSUMER = "consumer"
    USER = "user"
    PROJECT = "project"


@dataclasses.dataclass(frozen=True, slots=True)
class UseFilter:
    """Whose use of what is asked: one of these; None asks nothing. None as a member: not given."""

    consumers: frozenset[str] | None = None
    users: frozenset[str | None] | None = None
    projects: frozenset[str | None] | None = None
    classes: frozenset[str] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class UseRecording:
    """That a ledger records use over time, or did.

    ``since``: from when on everything that was used is known, and not forgotten because of a
    shorter ``keep`` of before. ``until``: when it was switched off; None: it is on. ``keep``: for
    how long an interval is kept after it ended.
    """

    since: datetime.datetime
    until: datetime.datetime | None
    keep: datetime.timedelta

    @property
    def is_on(self) -> bool:
        """Whether it records."""
        return self.until is None

    def kept_for(self, keep: datetime.timedelta, now: datetime.datetime) -> UseRecording:
        """Return the same that keeps for another time: what a shorter one forgot stays forgotten.

        >>> day = datetime.timedelta(days=1)
        >>> since = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        >>> print(UseRecording(since, None, 30 * day).kept_for(400 * day, since + 90 * day).since)
        2026-03-02 00:00:00+00:00
        """
        since = max(self.since, now - self.keep) if keep > self.keep else self.since
        return UseRecording(since, self.until, keep)


@dataclasses.dataclass(frozen=True, slots=True)
class UsedOverTime:
    """What a group of consumers used of one class between two moments.

    ``consumer``, ``user`` and ``project`` say the group: None for what is not summed by, and for
    consumers of none. ``microseconds`` is the sum of amounts times the time that they were had: of
    four devices had for an hour, 14,400,000,000. ``str()`` tells hours.

    >>> one = UsedOverTime(resource_class="PGPU", microseconds=14_400_000_000, user="ann")
    >>> one.hours, one.to_dict()["microseconds"]
    (4.0, 14400000000)
    >>> print(one)
    ann: PGPU 4.00 hours
    """

    resource_class: str
    microseconds: int
    consumer: str | None = None
    user: str | None = None
    project: str | None = None

    @property
    def hours(self) -> float:
        """The amount times hours, as near as a float is: to be shown."""
        return self.microseconds / _PER_HOUR

    @property
    def seconds(self) -> float:
        """The amount times seconds, as near as a float is: to be shown."""
        return self.microseconds / 1_000_000

    def __str__(self) -> str:
        who = ", ".join(filter(None, (self.project, self.user, self.consumer))) or "in all"
        return f"{who}: {self.resource_class} {self.hours:.2f} hours"

    def group(self, by: Iterable[UseBy]) -> tuple[str | None, ...]:
        """Return the consumer, user and project that it is summed by, in this order."""
        return tuple(getattr(self, one.value) for one in by)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, slots=True)
class UseReport:
    """What was used between two moments: iterates over :class:`UsedOverTime`.

    ``until`` is the moment that was asked for, or that of the question, if that is earlier: what is
    had now counts until then. ``complete_since`` is from when on nothing is missing, because it is
    recorded and not forgotten.
    """

    since: datetime.datetime
    until: datetime.datetime
    rows: tuple[UsedOverTime, ...]
    recording: UseRecording
    complete_since: datetime.datetime

    def __iter__(self) -> Iterator[UsedOverTime]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_complete(self) -> bool:
        """Whether everything that was used between the two moments is in it."""
        ended = self.recording.until
        return self.complete_since <= self.since and (ended is None or self.until <= ended)


def report(
    rows: Iterable[UsedOverTime],
    by: Collection[UseBy],
    since: datetime.datetime,
    upto: datetime.datetime,
    recording: UseRecording,
    now: datetime.datetime,
) -> UseReport:
    """Return what was used, the rows in the order of their groups and classes; those of 0 go.

    :param upto: the moment that was asked for, or now
    """

    def order(one: UsedOverTime) -> tuple[Any, ...]:
        group = one.group(by)
        given = ((name is None, name or "") for name in group)
        return (*given, names.resource_class_order(one.resource_class))

    told = sorted((one for one in rows if one.microseconds), key=order)
    complete = max(recording.since, now - recording.keep)
    return UseReport(since, upto, tuple(told), recording, complete)


def span(
    recording: UseRecording | None,
    since: datetime.datetime,
    until: datetime.datetime | None,
    now: datetime.datetime,
) -> tuple[datetime.datetime, datetime.datetime]:
    """Return until when is told, and until when an interval without an end counts.

    :param now: by the clock of the ledger
    :raises NotSupported: if it never was recorded, or ended before
    :raises InvalidInput: if the time between is none, or is all to come
    """
    if recording is None:
        raise exceptions.NotSupported("use over time", "use over time", HOW)
    if recording.until is not None and since >= recording.until:
        ended = f"it was switched off at {recording.until:%Y-%m-%d %H:%M:%S} UTC; {HOW}"
        raise exceptions.NotSupported("use over time", "use over time", ended)
    if since >= now:
        before = f"a moment before now, which is {now.isoformat()}"
        raise exceptions.InvalidInput("field", "since", since.isoformat(), before)
    upto = now if until is None else min(until, now)
    return upto, upto if recording.until is None else min(upto, recording.until)


# --- which intervals end and begin ----------------------------------------------------------------

#: ``{resource class: amount}`` over all providers.
ByClass: TypeAlias = Mapping[str, int]


def by_class(held: Iterable[Use]) -> ByClass:
    """Return what is held of each class, over all providers.

    :raises InvalidInput: for more than can be kept as one amount

    >>> by_class([Use("uuid-0", "PGPU", 1), Use("uuid-1", "PGPU", 1), Use("uuid-1", "VCPU", 4)])
    {'PGPU': 2, 'VCPU': 4}
    """
    found: dict[str, int] = {}
    for use in held:
        kind = use.resource_class
        amount = found[kind] = found.get(kind, 0) + use.amount
        if amount > MAX_AMOUNT:
            raise exceptions.InvalidInput("amount", f"use of {kind} over time", amount, _AT_MOST)
    return found


_AT_MOST = f"at most {MAX_AMOUNT} of a class for one consumer"


# --- how much is forgotten ---


def turns_of(orders: int, every: int, drawn: int) -> int:
    """Return how many batches of intervals a write forgets: one for so many orders, by chance.

    Writes of many orders end many intervals, so the orders are counted and not the writes.

    :param orders: how many the write has
    :param every: of how many orders one batch is forgotten
    :param drawn: a number, drawn at random

    >>> [turns_of(1, 64, drawn) for drawn in (0, 1, 63)]
    [1, 0, 0]
    >>> [turns_of(160, 64, drawn) for drawn in (0, 31, 32)]
    [3, 3, 2]
    """
    sure, rest = divmod(max(orders, 1), every)
    return sure + (drawn % every < rest)


# --- for backends without a query language --------------------------------------------------------


class UseInterval(NamedTuple):  # every claim makes some: a frozen dataclass takes thrice as long
    """A consumer used so much of a class from one moment to another; ``ended_at`` None: it does."""

    consumer: str
    user: str | None
    project: str | None
    resource_class: str
    amount: int
    began_at: datetime.datetime
    ended_at: datetime.datetime | None = None
    is_of_removed: bool = False  # the class was removed: another one may get its name, or another's

    def ended(self, now: datetime.datetime) -> UseInterval:
        """Return the same that ended now; clocks may go back, intervals never do."""
        return self._replace(ended_at=max(self.began_at, now))

    def microseconds(self, since: datetime.datetime, upto: datetime.datetime) -> int:
        """Return the amount times the microseconds that lie between two moments.

        >>> at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        >>> second = datetime.timedelta(seconds=1)
        >>> used = UseInterval("job", None, None, "PGPU", 2, at)
        >>> used.microseconds(at - second, at + second), used.microseconds(at - second, at)
        (2000000, 0)
        """
        ended = upto if self.ended_at is None else min(self.ended_at, upto)
        return self.amount * max(0, (ended - max(self.began_at, since)) // _MICROSECOND)

    def is_wanted(self, wanted: UseFilter) -> bool:
        """Return whether it is of those that are asked for."""
        asked = (
            (self.consumer, wanted.consumers),
            (self.user, wanted.users),
            (self.project, wanted.projects),
            (self.resource_class, wanted.classes),
        )
        return all(some is None or value in some for value, some in asked)


def intervals_of(record: ConsumerRecord, now: datetime.datetime) -> dict[str, UseInterval]:
    """Return the intervals that begin now of what a consumer holds, by class."""
    consumer, user, project = record.consumer, record.user, record.project
    return {
        kind: UseInterval(consumer, user, project, kind, amount, now)
        for kind, amount in by_class(record.held).items()
    }


def next_intervals(
    open_now: Mapping[str, UseInterval], record: ConsumerRecord | None, now: datetime.datetime
) -> tuple[list[UseInterval], dict[str, UseInterval]]:
    """Return the intervals of a consumer that end, and those that are open then, by class.

    :param open_now: those that are open, by class
    :param record: what the consumer holds from now on; None: nothing
    """
    wanted = {} if record is None else intervals_of(record, now)
    ended: list[UseInterval] = []
    for kind, one in open_now.items():
        then = wanted.get(kind)
        if then is not None and _is_same_use(one, then):
            wanted[kind] = one
            continue
        ended.append(one.ended(now))
        if then is not None:
            wanted[kind] = then._replace(began_at=max(one.began_at, now))
    return ended, wanted


def _is_same_use(one: UseInterval, then: UseInterval) -> bool:
    return (one.amount, one.user, one.project) == (then.amount, then.user, then.project)


def summed(
    intervals: Iterable[UseInterval],
    wanted: UseFilter,
    by: Sequence[UseBy],
    since: datetime.datetime,
    upto: datetime.datetime,
) -> list[UsedOverTime]:
    """Return what intervals of a filter come to between two moments, by group and class."""
    found: dict[tuple[str | None, ...], int] = defaultdict(int)
    for one in intervals:
        if one.is_wanted(wanted):
            group = tuple(getattr(one, name.value) for name in by)
            found[(*group, one.resource_class)] += one.microseconds(since, upto)
    return [used_by(by, group, str(kind), total) for (*group, kind), total in found.items()]


def used_by(
    by: Sequence[UseBy], group: Sequence[str | None], resource_class: str, microseconds: int
) -> UsedOverTime:
    """Return what a group used of a class."""
    said = {one.value: name for one, name in zip(by, group, strict=True)}
    return UsedOverTime(resource_class, microseconds, **said)
