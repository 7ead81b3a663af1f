"""Forgetting what is old: operations, and changes of the feed, a bounded number at a time.

A ledger in use is never held up: each transaction removes some rows and is over.
"""

from __future__ import annotations

import datetime
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import schema
from resource_objects.backends.sql.chunks import chunks
from resource_objects.backends.sql.statements import Sized, Statement, from_moment, listed, moment
from resource_objects.providers.listing import Pruned

T = TypeVar("T")

_operations = schema.operations.c
_consumers = schema.consumers.c
_heads = schema.change_heads.c
_changes = schema.changes.c

#: how many rows one transaction removes
BATCH = 1_000
#: of how many operations at a time it is asked which of them consumers need
WINDOW = 50_000


class Run(Protocol):
    """Runs work in a transaction of one kind, again if need be."""

    def __call__(self, work: Callable[[Connection], T], /) -> T:
        """Return what the work returns."""


def prune(reading: Run, writing: Run, before: datetime.datetime) -> Pruned:
    """Forget operations and changes older than a moment (see the contract).

    Cost: linear in what is forgotten, and in the consumers.
    """
    return Pruned(
        operations=_prune_operations(reading, writing, before),
        changes=_prune_changes(reading, writing, before),
    )


# --- operations ---

#: (when an operation was done, its number): where the search for old ones goes on
_Mark = tuple[datetime.datetime, int]
_FIRST: _Mark = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), 0

_OLD_OPERATIONS = Statement(
    # WHERE (created_at, id) > (:at, :number) AND created_at < :before, by the index on created_at
    sa.select(_operations.created_at, _operations.id)
    .where(
        _operations.created_at >= sa.bindparam("at"),
        _operations.created_at < sa.bindparam("before"),
        sa.or_(
            _operations.created_at > sa.bindparam("at"),
            _operations.id > sa.bindparam("number"),
        ),
    )
    .order_by(_operations.created_at, _operations.id)
    .limit(sa.bindparam("window", type_=sa.Integer))
)
_LAST_OF_CONSUMERS = Statement(
    sa.select(_consumers.generation).where(
        _consumers.generation.between(sa.bindparam("first"), sa.bindparam("last"))
    )
)
_FORGET_OPERATIONS = Sized(
    lambda ids: sa.delete(schema.operations).where(listed(_operations.id, "ids", ids))
)


def _prune_operations(reading: Run, writing: Run, before: datetime.datetime) -> int:
    count = 0
    mark: _Mark | None = _FIRST
    while mark is not None:
        numbers, mark = reading(functools.partial(_old_operations, before=before, after=mark))
        for part in chunks(numbers, BATCH):
            count += writing(functools.partial(_FORGET_OPERATIONS.run, ids=part))
    return count


def _old_operations(
    connection: Connection, before: datetime.datetime, after: _Mark
) -> tuple[list[int], _Mark | None]:
    """Return old operations that no consumer needs, and where to go on, None at the end.

    What is seen to be no consumer's last operation never becomes one again.
    """
    values = {
        "at": moment(connection, after[0]),
        "number": after[1],
        "before": moment(connection, before),
        "window": WINDOW,
    }
    rows = _OLD_OPERATIONS.rows(connection, values)
    if not rows:
        return [], None
    numbers = [number for _, number in rows]
    bounds = {"first": min(numbers), "last": max(numbers)}
    needed = {number for (number,) in _LAST_OF_CONSUMERS.rows(connection, bounds)}
    at, number = rows[-1]
    mark = (from_moment(at), number) if len(rows) == WINDOW else None
    return [number for number in numbers if number not in needed], mark


# --- changes ---

_SHARDS_WITH_OLD = Statement(
    # whose first change that is left is old
    sa.select(_heads.shard)
    .join_from(
        schema.change_heads,
        schema.changes,
        sa.and_(_changes.shard == _heads.shard, _changes.number == _heads.oldest + 1),
    )
    .where(_changes.created_at < sa.bindparam("before"))
)
_FIRST_CHANGES = Statement(
    sa.select(_changes.number, _changes.created_at)
    .where(_changes.shard == sa.bindparam("shard"))
    .order_by(_changes.number)
    .limit(sa.bindparam("batch", type_=sa.Integer))
)
_FORGET_CHANGES = Statement(
    sa.delete(schema.changes).where(
        _changes.shard == sa.bindparam("shard"), _changes.number <= sa.bindparam("upto")
    )
)
_SET_OLDEST = Statement(
    sa.update(schema.change_heads)
    .where(_heads.shard == sa.bindparam("shard"), _heads.oldest < sa.bindparam("upto"))
    .values(oldest=sa.bindparam("upto"))
)


def _prune_changes(reading: Run, writing: Run, before: datetime.datetime) -> int:
    count = 0
    for shard in reading(functools.partial(_shards_with_old, before=before)):
        forgotten = BATCH
        while forgotten == BATCH:
            forgotten = writing(functools.partial(_forget_changes, shard=shard, before=before))
            count += forgotten
    return count


def _shards_with_old(connection: Connection, before: datetime.datetime) -> list[int]:
    rows = _SHARDS_WITH_OLD.rows(connection, {"before": moment(connection, before)})
    return [shard for (shard,) in rows]


def _forget_changes(connection: Connection, shard: int, before: datetime.datetime) -> int:
    """Forget the first changes of a shard that are old; return how many.

    Never one behind another that stays, though it be older: what is left has no gap.
    """
    rows: Sequence[Sequence[Any]] = _FIRST_CHANGES.rows(
        connection, {"shard": shard, "batch": BATCH}
    )
    old = list(itertools.takewhile(lambda row: from_moment(row[1]) < before, rows))
    if not old:
        return 0
    values = {"shard": shard, "upto": old[-1][0]}
    forgotten = _FORGET_CHANGES.run(connection, values)
    _SET_OLDEST.run(connection, values)
    return forgotten
