"""The change feed as rows: written by every write, as its last step (D9).

The writing transaction counts the heads of the shards it touched up, which locks them until it
ends, and writes one row for each. So within a shard the rows are there in the order of their
numbers, without gaps. Heads are the last locks a write takes, in the order of the shards: nobody
waits for another in a circle, and nobody waits long.
"""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import schema
from resource_objects.backends.sql.chunks import check_size
from resource_objects.backends.sql.statements import (
    Sized,
    Statement,
    chosen,
    from_moment,
    listed,
    moment,
)
from resource_objects.backends.sql.together import sent_together
from resource_objects.providers.changed import Touched as Told
from resource_objects.providers.feed import SHARDS, Change, Cursor, shard_of
from resource_objects.providers.orders import Write

_heads = schema.change_heads.c
_changes = schema.changes.c

_ENCODER = json.JSONEncoder(separators=(",", ":"))

_READ_HEADS = Statement(sa.select(_heads.shard, _heads.head, _heads.oldest))
_SAID = ("created_at", "operation", "kind", "subject", "actor")
_COLUMNS = ("shard", "number", *_SAID, "touched")


def _lock_heads_query(shards: int) -> sa.Select[*tuple[Any, ...]]:
    return (
        sa.select(_heads.shard)
        # of so small a table MySQL would read and lock all
        .with_hint(schema.change_heads, "FORCE INDEX (PRIMARY)", "mysql")
        .where(listed(_heads.shard, "shards", shards))
        .order_by(_heads.shard)
        .with_for_update()
    )


def _count_up_query(shards: int) -> sa.Update:
    return (
        sa.update(schema.change_heads)
        .where(listed(_heads.shard, "shards", shards))
        .values(head=_heads.head + 1)
    )


def _tell_query(shards: int, touched: int, heads: Any = _heads) -> sa.Insert:
    # INSERT INTO changes SELECT shard, head, ... FROM change_heads WHERE shard IN (:shards):
    # the number is the head that was just counted up, and never leaves the database
    said = [sa.bindparam(name, type_=_changes[name].type) for name in _SAID]
    told = chosen(heads.shard, "shards", "touched", touched, _changes.touched.type)
    found = sa.select(heads.shard, heads.head, *said, told).where(
        listed(heads.shard, "shards", shards)
    )
    return sa.insert(schema.changes).from_select(_COLUMNS, found, include_defaults=False)


_LOCK_HEADS = Sized(_lock_heads_query)
_COUNT_UP = Sized(_count_up_query)
_TELL = Sized(_tell_query)
# changes sent together do not see each other: the second one reads what the first one returns
_COUNTED = sa.table("counted", sa.column("shard", sa.Integer), sa.column("head", sa.BigInteger)).c
_COUNT_UP_TOGETHER = Sized(
    lambda shards: _count_up_query(shards).returning(_heads.shard, _heads.head), name="counted"
)
_TELL_TOGETHER = Sized(lambda shards, touched: _tell_query(shards, touched, _COUNTED))


# --- writing ---


class Touched:
    """What a write touched, by shard: providers and consumers."""

    __slots__ = ("_by_shard",)

    def __init__(self) -> None:
        self._by_shard: dict[int, tuple[set[str], set[str]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_shard)

    def provider(self, uuid: str, roots: Iterable[int]) -> None:
        """Name a provider in the shards of some trees, by the numbers of their roots."""
        for root in roots:
            self._at(root)[0].add(uuid)

    def consumer(self, name: str, roots: Iterable[int]) -> None:
        """Name a consumer in the shards of some trees."""
        for root in roots:
            self._at(root)[1].add(name)

    def _at(self, root: int) -> tuple[set[str], set[str]]:
        shard = shard_of(root)
        found = self._by_shard.get(shard)
        if found is None:
            found = self._by_shard[shard] = (set(), set())
        return found

    def texts(self) -> dict[int, str]:
        """Return what is kept for each shard, by number; a write of no tree is told in shard 0."""
        return {
            shard: _ENCODER.encode([sorted(part) for part in parts])
            for shard, parts in sorted(self._by_shard.items())
        } or {0: "[[],[]]"}


def tell(connection: Connection, write: Write, now: datetime.datetime, touched: Touched) -> None:
    """Count the heads up and write a row for each shard. Cost: two statements, at most three."""
    texts = touched.texts()
    check_size(texts.values())
    said = {
        "created_at": moment(connection, now),
        "operation": write.operation.id,
        "kind": write.kind,
        "subject": write.subject,
        "actor": write.operation.actor,
    }
    shards = list(texts)
    if len(texts) > 1 and connection.dialect.name != "sqlite":
        _LOCK_HEADS.rows(connection, shards=shards)
    count_up, put = _COUNT_UP, _TELL
    if sent_together(connection) is not None:
        count_up, put = _COUNT_UP_TOGETHER, _TELL_TOGETHER
    count_up.must_match(connection, len(shards), partial(_no_head, len(shards)), shards=shards)
    put.run(connection, said, shards=shards, touched=list(texts.values()))


def _no_head(asked: int, counted: int) -> exceptions.DatabaseUnavailable:
    missing = f"{asked - counted} of its shards have no head"
    return exceptions.DatabaseUnavailable("change feed", missing)


def missing_heads(connection: Connection) -> list[int]:
    """Return the shards without a head, which every ledger that may be written has."""
    there = {shard for shard, _, _ in _READ_HEADS.rows(connection, {})}
    return [shard for shard in range(SHARDS) if shard not in there]


def ensure_heads(connection: Connection) -> None:
    """Make the heads that are missing, from where the changes of their shards are."""
    missing = missing_heads(connection)
    if not missing:
        return
    first, last = sa.func.min(_changes.number), sa.func.max(_changes.number)
    told = sa.select(_changes.shard, first - 1, last).group_by(_changes.shard)
    found = {shard: (oldest, head) for shard, oldest, head in connection.execute(told)}
    rows = []
    for shard in missing:
        oldest, head = found.get(shard, (0, 0))
        rows.append({"shard": shard, "head": head, "oldest": oldest})
    connection.execute(sa.insert(schema.change_heads), rows)


# --- reading ---


def heads(connection: Connection) -> Cursor:
    """Return where the feed is at the moment of this transaction. Cost: one small statement."""
    return Cursor(_read_heads(connection)[0])


def _read_heads(connection: Connection) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the head of each shard, and the number of the last change forgotten."""
    found, oldest = [0] * SHARDS, [0] * SHARDS
    for shard, head, forgotten in _READ_HEADS.rows(connection, {}):
        found[shard], oldest[shard] = head, forgotten
    return tuple(found), tuple(oldest)


def changes(connection: Connection, after: Cursor, limit: int) -> tuple[Change, ...]:
    """Return the next changes after a cursor, at most ``limit`` (see the contract).

    Cost: two statements, which read at most about twice as many rows as are returned.
    """
    now, oldest = _read_heads(connection)
    waiting = _waiting(after, now, oldest)
    most = _share_out(waiting.values(), 2 * limit)
    ranges = [
        (shard, after.heads[shard], after.heads[shard] + min(number, most))
        for shard, number in waiting.items()
    ]
    if not ranges:
        return ()
    found = [_change(row) for row in _CHANGES.rows(connection, **_as_lists(ranges))]
    return tuple(_in_order_of_time(found)[:limit])


def touched(connection: Connection, after: Cursor, most: int) -> tuple[Cursor, int, Told | None]:
    """Return where the feed is, how many changes come after a cursor, and whom they touched.

    The last is None if they are more than ``most``: then they are not read.

    Cost: one small statement if there are none, else two, the second linear in the changes.
    """
    now, oldest = _read_heads(connection)
    waiting = _waiting(after, now, oldest)
    count = sum(waiting.values())
    if count > most:
        return Cursor(now), count, None
    ranges = [(shard, after.heads[shard], now[shard]) for shard in waiting]
    rows = _TOUCHED.rows(connection, **_as_lists(ranges)) if ranges else ()
    return Cursor(now), count, Told.of_parts(json.loads(text) for (text,) in rows)


def _waiting(after: Cursor, now: Sequence[int], oldest: Sequence[int]) -> dict[int, int]:
    """Return how many changes each shard has after a cursor, of those that have some."""
    if len(after.heads) != SHARDS:
        raise exceptions.CursorExpired(str(after), "it is of another ledger")
    for shard, head in enumerate(after.heads):
        if head > now[shard]:
            raise exceptions.CursorExpired(str(after), f"it is ahead of shard {shard}")
        if head < oldest[shard]:
            raise exceptions.CursorExpired(
                str(after), f"changes of shard {shard} to {oldest[shard]} are forgotten"
            )
    return {shard: now[shard] - head for shard, head in enumerate(after.heads) if now[shard] > head}


def _share_out(waiting: Iterable[int], room: int) -> int:
    """Return how many changes a shard may have, so that all of them together fit ``room``.

    Shards with fewer leave their room to the others; at least one each.

    >>> _share_out([1, 100, 100], 21)
    10
    """
    level, ordered = 0, sorted(waiting)
    for place, number in enumerate(ordered):
        level = max(1, room // (len(ordered) - place))
        if number > level:
            break
        room -= number
        level = number
    return level


def _in_order_of_time(found: Iterable[Change]) -> list[Change]:
    """Sort changes by time, those of a shard by number: clocks differ, and waiting takes time.

    A change counts as no older than those before it in its shard.
    """
    keyed: list[tuple[tuple[datetime.datetime, int, int], Change]] = []
    for shard, ones in itertools.groupby(found, key=lambda change: change.shard):
        latest = datetime.datetime.min.replace(tzinfo=datetime.UTC)
        for one in ones:
            latest = max(latest, one.at)
            keyed.append(((latest, shard, one.number), one))
    return [change for _, change in sorted(keyed, key=lambda pair: pair[0])]


def _after_query(shards: int, *columns: sa.Column[Any]) -> sa.Select[*tuple[Any, ...]]:
    def after(position: int) -> sa.ColumnElement[bool]:
        return sa.and_(
            _changes.shard == sa.bindparam(f"shards_{position}"),
            _changes.number > sa.bindparam(f"above_{position}"),
            _changes.number <= sa.bindparam(f"upto_{position}"),
        )

    return sa.select(*columns).where(sa.or_(*(after(position) for position in range(shards))))


_CHANGES = Sized(
    lambda shards, above, upto: _after_query(
        shards, *(_changes[name] for name in _COLUMNS)
    ).order_by(_changes.shard, _changes.number)
)
_TOUCHED = Sized(lambda shards, above, upto: _after_query(shards, _changes.touched))


def _as_lists(ranges: Sequence[tuple[int, int, int]]) -> dict[str, list[int]]:
    columns = zip(*ranges, strict=True)
    return {
        name: list(column)
        for name, column in zip(("shards", "above", "upto"), columns, strict=True)
    }


def _change(row: Sequence[Any]) -> Change:
    shard, number, at, operation, kind, subject, actor, touched = row
    providers, consumers = json.loads(touched)
    return Change(
        shard,
        number,
        from_moment(at),
        operation,
        kind,
        subject,
        actor,
        tuple(providers),
        tuple(consumers),
    )
