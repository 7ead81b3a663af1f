"""Use over time in a database, computed from the change feed (``providers/use_over_time``)."""

from __future__ import annotations

import datetime
import functools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy import Connection

from resource_objects.backends.sql import feed
from resource_objects.backends.sql.statements import (
    SQL,
    from_moment,
    moment,
    now_of,
    refuse_too_many,
)
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

_COLUMNS = {UseBy.CONSUMER: "name", UseBy.USER: "user_id", UseBy.PROJECT: "project_id"}
_RENAMES = SQL("""
    SELECT o.created_at, c.resource_class, c.given
    FROM changes c JOIN operations o ON o.id = c.operation_id
    WHERE c.what = 'names' AND c.resource_class IS NOT NULL AND o.created_at > :since""")
_CLASSES = SQL("SELECT name FROM resource_classes WHERE name IN :names*")
# the seconds of PostgreSQL are a double before version 14, exact for some 200 years
_MICROSECONDS = """
    {mysql: TIMESTAMPDIFF(MICROSECOND, :since, o.created_at)}
    {postgresql: CAST(ROUND(CAST(EXTRACT(EPOCH FROM (o.created_at - CAST(:since AS TIMESTAMP)))
    AS NUMERIC) * 1000000) AS BIGINT)}
    {sqlite: (strftime('%s', substr(o.created_at, 1, 19)) * 1000000 + substr(o.created_at, 21, 6)
    - :microseconds)}"""
_SUM = """
    {server: SUM(CAST(c.used_after - c.used_before AS DECIMAL(38, 0)) *}
    {sqlite: sum_of_products(c.used_after - c.used_before,}"""


def between(
    connection: Connection,
    since: datetime.datetime,
    until: datetime.datetime | None,
    criteria: UseFilter,
    by: Sequence[UseBy],
) -> UseReport:
    """Return the use between two moments (see the contract).

    Cost: some six queries, one more for each rename of a class; linear in the allocations and in
    the changes that the feed retains. The database computes the sums.
    """
    now = now_of(connection)
    until = check_span(since, until, now)
    complete = feed.complete_since(connection, now)
    sets = {"name": criteria.consumers, "user_id": criteria.users, "project_id": criteria.projects}
    refuse_too_many([members for members in (*sets.values(), criteria.classes) if members])
    present_query, changes_query = _queries(tuple(by), _conditions(sets))
    filters = {
        column: [value for value in members or () if value is not None]
        for column, members in sets.items()
    }
    present: Counter[tuple[Group, str]] = Counter()
    for *group, name, amount in present_query.rows(connection, **filters):
        present[tuple(group), name] += int(amount)

    def changes(after: datetime.datetime, upto: datetime.datetime | None) -> Iterable[UseChange]:
        times = {
            "since": moment(connection, after),
            "until": moment(connection, upto or _LAST),
            "microseconds": (after - _EPOCH) // MICROSECOND,
        }
        for *group, name, amount, weighted in changes_query.rows(connection, **filters, **times):
            yield UseChange(tuple(group), name, int(amount), int(weighted))

    first = moment(connection, max(since, complete))
    renames = [
        ClassRename(from_moment(at), old, *json.loads(new))
        for at, old, new in _RENAMES.rows(connection, since=first)
    ]
    existing = [name for (name,) in _CLASSES.rows_for(connection, criteria.classes or ())]
    return report(present, changes, renames, criteria, by, (since, until, complete), existing)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LAST = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)


def _conditions(sets: Mapping[str, Collection[str | None] | None]) -> tuple[str, ...]:
    """Return the conditions of a filter on a consumer, as text, by sets of values of a column."""
    conditions: list[str] = []
    for column, members in sets.items():
        if members is None:
            continue
        parts = [f"k.{column} IN :{column}*"] if {*members} - {None} else []
        parts += [f"k.{column} IS NULL"] if None in members else []
        conditions.append(f"({' OR '.join(parts) or '1 = 0'})")
    return tuple(conditions)


@functools.cache
def _queries(by: tuple[UseBy, ...], conditions: tuple[str, ...]) -> tuple[SQL, SQL]:
    """Return the queries for the present amounts, and for the sums of changes, by group."""
    group = "".join(f"k.{_COLUMNS[dimension]}, " for dimension in by)
    filters = "".join(f" AND {condition}" for condition in conditions)
    present = SQL(f"""
        SELECT {group}r.name, SUM(a.used) FROM allocations a
        JOIN consumers k ON k.id = a.consumer_id JOIN resource_classes r ON r.id = a.class_id
        WHERE k.gone = 0{filters} GROUP BY {group}r.name""")
    changes = SQL(f"""
        SELECT {group}c.resource_class, SUM(c.used_after - c.used_before),
        {_SUM} {_MICROSECONDS})
        FROM changes c JOIN operations o ON o.id = c.operation_id
        JOIN consumers k ON k.id = c.consumer_id
        WHERE c.used_after IS NOT NULL AND o.created_at > :since AND o.created_at <= :until{filters}
        GROUP BY {group}c.resource_class""")
    return present, changes
