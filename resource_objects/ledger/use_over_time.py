"""Use over time: whether it is recorded, and what was used between two moments."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

from resource_objects import exceptions
from resource_objects.ledger.context import Store
from resource_objects.ledger.reading import NamesGiven, use_filter
from resource_objects.providers.given import moment
from resource_objects.providers.use_over_time import UseBy, UseRecording, UseReport

#: For how long use can be kept after it ended.
LEAST, MOST = datetime.timedelta(days=1), datetime.timedelta(days=36_525)
#: What is summed by in any case, in words that people say.
_CLASS = ("class", "resource_class")


class UseOverTime:
    """Who used how much of what between two moments: ``ledger.use_over_time``."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def record(self, keep: datetime.timedelta | None) -> UseRecording | None:
        """Record from now on who uses how much of what, or no more.

        Off unless somebody switches it on, once for the ledger: every program that uses it obeys
        from its next write on. What is held now counts from now on; nobody knows the past. Cost:
        one write that waits for all others, and reads all that is held; from then on an insert for
        each claim and an update for each release, with PostgreSQL in the statement that is sent
        anyway.

        :param keep: for how long use is kept after it ended, a day or more; those who write forget
            what is older. ``feed.keep`` has nothing to do with it. Said again it is changed. None:
            record no more; what was recorded can be asked for as long as it is kept
        :returns: what is recorded now; None if it never was
        :raises InvalidInput: if it is no such time

        >>> import resource_objects as ro
        >>> with ro.connect("memory://") as ledger:
        ...     ledger.use_over_time.record(datetime.timedelta(days=400)).is_on
        True
        """
        if keep is not None and not (
            isinstance(keep, datetime.timedelta) and LEAST <= keep <= MOST
        ):
            expected = f"a timedelta from {LEAST.days} day to {MOST.days} days, or None"
            raise exceptions.InvalidInput("field", "keep", keep, expected)
        self._store.backend.record_use(keep)
        return self.recording()

    def recording(self) -> UseRecording | None:
        """Return since when use is recorded, and for how long it is kept; None if it never was."""
        return self._store.backend.use_recording()

    def between(
        self,
        since: datetime.datetime,
        until: datetime.datetime | None = None,
        by: str | Iterable[str] = "user",
        *,
        consumer: NamesGiven = None,
        user: NamesGiven = None,
        project: NamesGiven = None,
        resource_class: NamesGiven = None,
    ) -> UseReport:
        """Return who used how much of what between two moments, what was given back included.

        A row for each group and class; groups by name, what is of none last. The figures are exact
        integers, amounts times microseconds; ``row.hours`` is to be shown. What is had now counts
        until now, a move counts once, and what a consumer holds counts in the classes that its
        allocations are of: half a GPU of thousandths as 500 of these. While a ``move(leaving=...)``
        lasts, both of its consumers hold, and both count. A class that was renamed goes by the name
        that it has, one that was removed by the last it had. Cost: a few small queries and one that
        the database makes the sums of, of all that was had in between.

        :param since: the first moment
        :param until: the first moment that does not count any more; None: now
        :param by: ``consumer``, ``user``, ``project``, several of these, or none; beside the class
        :param consumer: only of this one, or of one of these
        :param user, project: the same; None among several stands for not given
        :param resource_class: only of this class, or of one of these
        :raises NotSupported: if it is not recorded, or was ended before ``since``; it says how to
            switch it on
        :raises InvalidInput: if ``until`` is not after ``since``, ``since`` is to come, or it
            cannot be summed by that; in a
            database also for a filter of more than 30,000 names
        :raises NotFound: if a class is not there and never was used

        >>> import resource_objects as ro
        >>> with ro.connect("memory://") as ledger:
        ...     begun = ledger.use_over_time.record(datetime.timedelta(days=400)).since
        ...     done = ledger.sync(ro.Provider("host0", "PGPU=4"))
        ...     done = ledger.claim("job", {"host0": "PGPU=2"}, user="ann")
        ...     [row] = ledger.use_over_time.between(begun, by="user")
        ...     print(row.user, row.resource_class, row.microseconds > 0)
        ann PGPU True
        """
        began = moment("since", since)
        ended = None if until is None else moment("until", until)
        if ended is not None and ended <= began:
            after = f"a moment after {began.isoformat()}"
            raise exceptions.InvalidInput("field", "until", ended.isoformat(), after)
        wanted = use_filter(consumer, user, project, resource_class)
        return self._store.backend.use_between(began, ended, wanted, summed_by(by))


def summed_by(given: Any) -> tuple[UseBy, ...]:
    """Return what use is summed by beside the class, each once.

    :raises InvalidInput: for what it cannot be summed by

    >>> summed_by(("user", "class"))
    (<UseBy.USER: 'user'>,)
    """
    known = [*(one.value for one in UseBy), *_CLASS]
    expected = f"some of {', '.join(known)}"
    several = [given] if isinstance(given, str) else given
    if isinstance(several, bytes) or not isinstance(several, Iterable):
        raise exceptions.InvalidInput("field", "by", given, expected)
    found: dict[UseBy, None] = {}
    for one in several:
        if not isinstance(one, str) or one not in known:
            raise exceptions.InvalidInput("field", "by", one, expected)
        if one not in _CLASS:
            found[UseBy(one)] = None
    return tuple(found)
