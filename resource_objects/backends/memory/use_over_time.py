"""Use over time in memory, computed from the change feed."""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from resource_objects import clock
from resource_objects.providers.orders import ConsumerRecord, NameKind
from resource_objects.providers.use_over_time import (
    MICROSECOND,
    ClassRename,
    Group,
    UseBy,
    UseChange,
    UseFilter,
    UseReport,
    check_span,
    report,
)
from resource_objects.store.rows import Rows


def between(
    rows: Rows,
    since: datetime.datetime,
    until: datetime.datetime | None,
    criteria: UseFilter,
    by: Sequence[UseBy],
    complete: datetime.datetime,
) -> UseReport:
    """Return the use between two moments. Cost: linear in the change feed and the claims.

    :param complete: the moment from which on the feed is complete
    """
    until = check_span(since, until, clock.now())
    owners: dict[str, Group | None] = {}
    present: Counter[tuple[Group, str]] = Counter()
    for record in rows.consumers.rows.values():
        group = owners[record.uuid] = _group(record, criteria, by)
        if group is not None:
            for use in record.held:
                present[group, use.resource_class] += use.amount
    first = max(since, complete)
    use_changes = list(_changes(rows, first, criteria, by, owners))

    def changes(after: datetime.datetime, upto: datetime.datetime | None) -> Iterable[UseChange]:
        sums: dict[tuple[Group, str], list[int]] = defaultdict(lambda: [0, 0])
        for at, group, name, amount in use_changes:
            if at > after and (upto is None or at <= upto):
                sums[group, name][0] += amount
                sums[group, name][1] += amount * ((at - after) // MICROSECOND)
        return [UseChange(*key, *amounts) for key, amounts in sums.items()]

    renames = (
        ClassRename(entry.at, *pair)
        for entry in rows.changes.rows.values()
        for pair in entry.renamed_classes
    )
    classes = [
        name for name in criteria.classes or () if (NameKind.RESOURCE_CLASS, name) in rows.names
    ]
    return report(present, changes, renames, criteria, by, (since, until, complete), classes)


def _changes(
    rows: Rows,
    since: datetime.datetime,
    criteria: UseFilter,
    by: Sequence[UseBy],
    owners: dict[str, Group | None],
) -> Iterator[tuple[datetime.datetime, Group, str, int]]:
    """Yield the changes after a moment: time, group, class and amount, the latest first.

    A consumer's group is the one that it had last: that of its latest record.
    """
    for entry in reversed(rows.changes.rows.values()):
        if entry.at <= since or not entry.uses:
            continue
        records = {
            record.consumer: record for record in rows.operations[entry.operation].outcome.claims
        }
        for change in entry.uses:
            record = records[change.consumer]
            if record.uuid not in owners:
                owners[record.uuid] = _group(record, criteria, by)
            group = owners[record.uuid]
            if group is not None:
                yield entry.at, group, change.key[1], change.after - change.before


def _group(record: ConsumerRecord, criteria: UseFilter, by: Sequence[UseBy]) -> Group | None:
    """Return the group of a consumer, None if it does not match the filter."""
    if not criteria.matches(record.consumer, record.user, record.project):
        return None
    return tuple(getattr(record, dimension.value) for dimension in by)
