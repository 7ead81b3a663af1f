"""Use over time: the resources that consumers used between two moments."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

from resource_objects import exceptions, names
from resource_objects.ledger.context import LedgerContext
from resource_objects.ledger.queries import NamesGiven, any_label, any_name
from resource_objects.providers.arguments import moment
from resource_objects.providers.use_over_time import UseBy, UseFilter, UseReport

#: Words for the class, by which use is summed in any case.
_CLASS = ("class", "resource_class")


class UseOverTime:
    """Reports of the use between two moments: ``ledger.use_over_time``.

    They are computed from the change feed, so they reach back as far as its retention
    (``feed.set_retention``).
    """

    def __init__(self, context: LedgerContext) -> None:
        self._context = context

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
        """Return the use of consumers between two moments, released allocations included.

        The report has a row for each group and class, in the order of the groups' names; the group
        of consumers without a user or project comes last. The figures are exact integers, amounts
        times microseconds; ``row.hours`` is rounded. Present allocations count until now. A move
        counts once; while a move with a ``source_consumer`` is in progress, both consumers count. A
        consumer counts for the user and project that it had last. A class counts under the name
        that it had at the time. Use from before ``report.complete_since`` is not in the change feed
        any more, and not counted. Cost: some six queries; linear in the allocations and in the
        changes that the feed retains; a database computes the sums.

        :param since: the first moment
        :param until: the first moment that does not count any more; None: now
        :param by: ``consumer``, ``user``, ``project``, several of these, or none
        :param consumer: only this consumer, or these
        :param user, project: the same; None among several matches consumers without one
        :param resource_class: only this class, or these
        :raises InvalidInput: if ``until`` is not after ``since``, ``since`` is in the future, or
            ``by`` is unknown; in a database also for a filter of more than 30,000 names
        :raises NotFound: if a class does not exist and was not used

        >>> import resource_objects as ro
        >>> with ro.connect("memory://") as ledger:
        ...     begun = ledger.now()
        ...     done = ledger.sync(ro.Provider("host0", "PGPU=4"))
        ...     done = ledger.claim("job", {"host0": "PGPU=2"}, user="ann")
        ...     [row] = ledger.use_over_time.between(begun, by="user")
        ...     print(row.user, row.resource_class, row.microseconds > 0)
        ann PGPU True
        """
        begin = moment("since", since)
        end = None if until is None else moment("until", until)
        if end is not None and end <= begin:
            after = f"a moment after {begin.isoformat()}"
            raise exceptions.InvalidInput("field", "until", end.isoformat(), after)
        criteria = UseFilter(
            consumers=any_name(consumer, names.consumer_name),
            users=any_label("user", user),
            projects=any_label("project", project),
            classes=any_name(resource_class, names.resource_class_name),
        )
        return self._context.backend.use_between(begin, end, criteria, summed_by(by))


def summed_by(by: Any) -> tuple[UseBy, ...]:
    """Return the keys that use is summed by, in addition to the resource class, each once.

    :raises InvalidInput: for an unknown key

    >>> summed_by(("user", "class"))
    (<UseBy.USER: 'user'>,)
    """
    allowed = [*UseBy, *_CLASS]
    expected = f"some of {', '.join(allowed)}"
    keys = [by] if isinstance(by, str) else by
    if isinstance(keys, bytes) or not isinstance(keys, Iterable):
        raise exceptions.InvalidInput("field", "by", by, expected)
    dimensions: dict[UseBy, None] = {}
    for key in keys:
        if not isinstance(key, str) or key not in allowed:
            raise exceptions.InvalidInput("field", "by", key, expected)
        if key not in _CLASS:
            dimensions[UseBy(key)] = None
    return tuple(dimensions)
