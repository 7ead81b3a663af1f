"""Use over time: the use between two moments, of released allocations too.

It is derived from the change feed, which records each change of an allocation with its time. So it
is known for as long as the feed is retained, and no write costs more for it. What is used is the
sum of amounts times the time between: amounts times microseconds, an exact integer.

The sums are computed backwards. Let A be the amount at the end of a span from ``a`` to ``b``, and
``d`` the change of the amount at a time ``t`` within it. Then the use is
``A * (b - a) - sum(d * (t - a))``, and the amount at ``a`` is ``A - sum(d)``. A database computes
both sums for each group, without reading the changes one by one.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from resource_objects import exceptions, names

MICROSECOND = datetime.timedelta(microseconds=1)
_PER_HOUR = 3_600_000_000


class UseBy(enum.StrEnum):
    """A key that use over time is summed by, in addition to the class."""

    CONSUMER = "consumer"
    USER = "user"
    PROJECT = "project"


@dataclasses.dataclass(frozen=True, slots=True)
class UseFilter:
    """A filter of use over time. None matches all; None as a member matches consumers of none."""

    consumers: frozenset[str] | None = None
    users: frozenset[str | None] | None = None
    projects: frozenset[str | None] | None = None
    classes: frozenset[str] | None = None

    def matches(self, consumer: str, user: str | None, project: str | None) -> bool:
        """Return True if a consumer matches; classes are not compared."""
        pairs = ((consumer, self.consumers), (user, self.users), (project, self.projects))
        return all(members is None or value in members for value, members in pairs)


@dataclasses.dataclass(frozen=True, slots=True)
class UsedOverTime:
    """The use of one class by a group of consumers between two moments.

    ``consumer``, ``user`` and ``project`` identify the group: None for keys that are not summed
    by, and for consumers of none. ``microseconds`` is the sum of amounts times the time of use: of
    four devices used for an hour, 14,400,000,000. ``str()`` prints hours.

    >>> use = UsedOverTime(resource_class="PGPU", microseconds=14_400_000_000, user="ann")
    >>> use.hours, use.to_dict()["microseconds"]
    (4.0, 14400000000)
    >>> print(use)
    ann: PGPU 4.00 hours
    """

    resource_class: str
    microseconds: int
    consumer: str | None = None
    user: str | None = None
    project: str | None = None

    @property
    def hours(self) -> float:
        """The amount times hours, rounded to a float."""
        return self.microseconds / _PER_HOUR

    @property
    def seconds(self) -> float:
        """The amount times seconds, rounded to a float."""
        return self.microseconds / 1_000_000

    def __str__(self) -> str:
        group = ", ".join(filter(None, (self.project, self.user, self.consumer))) or "in all"
        return f"{group}: {self.resource_class} {self.hours:.2f} hours"

    def group(self, by: Iterable[UseBy]) -> tuple[str | None, ...]:
        """Return the values of the group, in the order of ``by``."""
        return tuple(getattr(self, dimension.value) for dimension in by)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, slots=True)
class UseReport:
    """The use between two moments: iterates over :class:`UsedOverTime`.

    ``until`` is the requested moment, or now if that is earlier. ``complete_since`` is the moment
    from which on the change feed is complete; use before it is not counted.
    """

    since: datetime.datetime
    until: datetime.datetime
    rows: tuple[UsedOverTime, ...]
    complete_since: datetime.datetime

    def __iter__(self) -> Iterator[UsedOverTime]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def is_complete(self) -> bool:
        """True if everything that was used between the two moments is in the report."""
        return self.complete_since <= self.since


#: The values of a group: of the consumer, user and project that it is summed by.
Group: TypeAlias = tuple[str | None, ...]


class ClassRename(NamedTuple):
    """A resource class that was renamed."""

    at: datetime.datetime
    old: str
    new: str


class UseChange(NamedTuple):
    """The sums of the changes of what a group uses of a class, within a span.

    ``weighted`` is the sum of the changes, each times the microseconds since the span's begin.
    """

    group: Group
    resource_class: str
    amount: int
    weighted: int


#: Returns the changes after a moment and up to another one; None: all that are later.
Changes: TypeAlias = Callable[[datetime.datetime, datetime.datetime | None], Iterable[UseChange]]


def check_span(
    since: datetime.datetime, until: datetime.datetime | None, now: datetime.datetime
) -> datetime.datetime:
    """Return the end of a span: ``until``, or now if that is earlier.

    :param now: by the clock of the ledger
    :raises InvalidInput: if the span begins in the future
    """
    if since >= now:
        before = f"a moment before now, which is {now.isoformat()}"
        raise exceptions.InvalidInput("field", "since", since.isoformat(), before)
    return now if until is None else min(until, now)


def report(
    present: Mapping[tuple[Group, str], int],
    changes: Changes,
    renames: Iterable[ClassRename],
    criteria: UseFilter,
    by: Collection[UseBy],
    span: tuple[datetime.datetime, datetime.datetime, datetime.datetime],
    existing: Collection[str],
) -> UseReport:
    """Return the use within a span, the rows in the order of their groups and classes.

    :param present: the present amounts by group and class
    :param renames: the renames of classes; use is reported under the name at its time
    :param span: since when, until when, and since when the feed is complete
    :param existing: the names of the classes of the filter that exist now
    :raises NotFound: if a class of the filter does not exist, and was not used
    """
    since, until, complete = span
    used = _used(present, changes, renames, max(since, complete), until)
    if criteria.classes is not None:
        for name in sorted(criteria.classes.difference(existing, (name for _, name in used))):
            raise exceptions.NotFound("resource class", name)
    rows = [
        UsedOverTime(name, total, **dict(zip(by, group, strict=True)))
        for (group, name), total in used.items()
        if total > 0 and (criteria.classes is None or name in criteria.classes)
    ]

    def order(row: UsedOverTime) -> tuple[Any, ...]:
        group = ((name is None, name or "") for name in row.group(by))
        return (*group, names.resource_class_order(row.resource_class))

    return UseReport(since, until, tuple(sorted(rows, key=order)), complete)


def _used(
    present: Mapping[tuple[Group, str], int],
    changes: Changes,
    renames: Iterable[ClassRename],
    since: datetime.datetime,
    until: datetime.datetime,
) -> Counter[tuple[Group, str]]:
    """Return the use by group and class, from the latest span back to the first.

    A rename ends a span: before it, what is counted under the new name was used under the old one.
    """
    used: Counter[tuple[Group, str]] = Counter()
    amounts = Counter(present)
    cuts = [(rename.at, rename.old, rename.new) for rename in renames if rename.at > since]
    end: datetime.datetime | None = None
    for at, old, new in sorted([*cuts, (until, "", ""), (since, "", "")], reverse=True):
        is_counted = end is not None and end <= until
        if is_counted and end is not None:
            for key, amount in amounts.items():
                used[key] += amount * ((end - at) // MICROSECOND)
        for change in changes(at, end):
            key = change.group, change.resource_class
            amounts[key] -= change.amount
            if is_counted:
                used[key] -= change.weighted
        for group, name in [key for key in amounts if old and key[1] == new]:
            amounts[group, old] += amounts.pop((group, name))
        end = at
    return used
