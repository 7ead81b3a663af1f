"""Use over time: whether it is recorded, and what was used between two moments."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

from resource_objects import exceptions
from resource_objects.ledger.reading import NamesGiven, use_filter
from resource_objects.ledger.store import Store
from resource_objects.providers.given import moment
from resource_objects.providers.use_over_time import UseBy, UseRecording, UseReport

#: For how long use can be kept after it ended.
LEAST, MOST = datetime.timedelta(days=1), datetime.timedelta(days=36_525)
#: What is summed by in any case, in words that people say.
_CLASS = ("class", "resource_class")


class UseOverTime:
    """Use over time; :class:`~resource_objects.ledger.Ledger` says what each method does."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def record(self, keep: datetime.timedelta | None) -> UseRecording | None:
        if keep is not None and not (
            isinstance(keep, datetime.timedelta) and LEAST <= keep <= MOST
        ):
            expected = f"a timedelta from {LEAST.days} day to {MOST.days} days, or None"
            raise exceptions.InvalidField("keep", keep, expected)
        self._store.backend.record_use(keep)
        return self.recording()

    def recording(self) -> UseRecording | None:
        return self._store.backend.use_recording()

    def between(
        self,
        since: datetime.datetime,
        until: datetime.datetime | None,
        by: str | Iterable[str],
        consumer: NamesGiven,
        user: NamesGiven,
        project: NamesGiven,
        resource_class: NamesGiven,
    ) -> UseReport:
        began = moment("since", since)
        ended = None if until is None else moment("until", until)
        if ended is not None and ended <= began:
            after = f"a moment after {began.isoformat()}"
            raise exceptions.InvalidField("until", ended.isoformat(), after)
        wanted = use_filter(consumer, user, project, resource_class)
        return self._store.backend.use_between(began, ended, wanted, summed_by(by))


def summed_by(given: Any) -> tuple[UseBy, ...]:
    """Return what use is summed by beside the class, each once.

    :raises InvalidField: for what it cannot be summed by

    >>> summed_by(("user", "class"))
    (<UseBy.USER: 'user'>,)
    """
    known = [*(one.value for one in UseBy), *_CLASS]
    expected = f"some of {', '.join(known)}"
    several = [given] if isinstance(given, str) else given
    if isinstance(several, bytes) or not isinstance(several, Iterable):
        raise exceptions.InvalidField("by", given, expected)
    found: dict[UseBy, None] = {}
    for one in several:
        if not isinstance(one, str) or one not in known:
            raise exceptions.InvalidField("by", one, expected)
        if one not in _CLASS:
            found[UseBy(one)] = None
    return tuple(found)
