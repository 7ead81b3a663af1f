"""Inventories found and locked, the change of what is used of them, and who stands in the way.

The order of locks is the same for everybody (D8): inventory rows by number, in one statement,
before anything else is written; a write that brings definitions too locks those of its orders
together with theirs (``definitions``). Two changes then do not wait for each other in a circle, and
what was read under the lock is still true when it is written.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.retries import Transient
from resource_objects.backends.sql import tables
from resource_objects.backends.sql.statements import (
    MOST,
    Sized,
    chosen,
    chunks,
    from_moment,
    listed,
    now_as_kept,
)
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers import decision
from resource_objects.providers.orders import Key
from resource_objects.providers.settle import Place, Unit
from resource_objects.resources.records import InventoryRecord

_providers = tables.resource_providers.c
_inventories = tables.inventories.c
_classes = tables.resource_classes.c
_shares = tables.shares.c
_consumers = tables.consumers.c
_allocations = tables.allocations.c
_units = tables.allocation_units.c

_FIGURES = (
    _inventories.total,
    _inventories.reserved,
    _inventories.min_unit,
    _inventories.max_unit,
    _inventories.step_size,
    _inventories.ratio_millionths,
    _inventories.capacity,
    _inventories.used,
)
#: what :meth:`Places.add` reads of an inventory
COLUMNS = (
    *(_providers.id, _providers.uuid, _providers.name, _providers.root_id),
    *(_classes.name, _inventories.id, _inventories.class_id, _inventories.shares),
    *(_inventories.disabled_until, _inventories.removed_units, *_FIGURES),
)


def _find_query(uuids: int, classes: int) -> sa.Select[*tuple[Any, ...]]:
    # SELECT ... FROM resource_providers LEFT JOIN resource_classes ON name IN (:classes)
    #   LEFT JOIN inventories ON provider_id, class_id = those WHERE uuid IN (:uuids)
    # A provider without the inventory is found too. Classes go by name, which may be given to
    # another class at any time.
    wanted = listed(_classes.name, "classes", classes)
    here = sa.and_(_inventories.provider_id == _providers.id, _inventories.class_id == _classes.id)
    return (
        sa.select(now_as_kept(), *COLUMNS)
        .outerjoin_from(tables.resource_providers, tables.resource_classes, wanted)
        .outerjoin(tables.inventories, here)
        .where(listed(_providers.uuid, "uuids", uuids))
    )


def _take_query(uuids: int, classes: int) -> sa.Select[*tuple[Any, ...]]:
    # PostgreSQL finds and locks in one statement: what is asked, and what that shares, by number.
    # A place that is asked twice is locked once; one that is not there is looked for afterwards.
    sharing = tables.shares.alias()
    target = tables.inventories.alias()
    claimed = (
        sa.select(_inventories.id, _inventories.provider_id, _inventories.class_id)
        .join_from(
            tables.resource_providers,
            tables.inventories,
            _inventories.provider_id == _providers.id,
        )
        .join(tables.resource_classes, _classes.id == _inventories.class_id)
        .where(
            sa.tuple_(_providers.uuid, _classes.name).in_(
                [
                    sa.tuple_(sa.bindparam(f"uuids_{n}"), sa.bindparam(f"classes_{n}"))
                    for n in range(uuids)
                ]
            )
        )
    ).cte("claimed")
    shared = (
        sa.select(target.c.id)
        .join_from(
            claimed,
            sharing,
            sa.and_(
                sharing.c.provider_id == claimed.c.provider_id,
                sharing.c.class_id == claimed.c.class_id,
            ),
        )
        .join(
            target,
            sa.and_(
                target.c.provider_id == sharing.c.of_provider_id,
                target.c.class_id == sharing.c.of_class_id,
            ),
        )
    )
    return (
        sa.select(now_as_kept(), *COLUMNS)
        .join_from(
            tables.inventories,
            tables.resource_providers,
            _providers.id == _inventories.provider_id,
        )
        .join(tables.resource_classes, _classes.id == _inventories.class_id)
        .where(_inventories.id.in_(sa.union_all(sa.select(claimed.c.id), shared)))
        .order_by(_inventories.id)
        # a plain FOR UPDATE would wait for those who insert allocations of it
        .with_for_update(of=tables.inventories, key_share=True)
    )


def _shares_query(providers: int, classes: int) -> sa.Select[*tuple[Any, ...]]:
    there = sa.and_(
        _inventories.provider_id == _shares.of_provider_id,
        _inventories.class_id == _shares.of_class_id,
    )
    return (
        sa.select(_shares.provider_id, _shares.class_id, _shares.factor, *COLUMNS)
        .join_from(tables.shares, tables.inventories, there)
        .join(tables.resource_providers, _providers.id == _inventories.provider_id)
        .join(tables.resource_classes, _classes.id == _inventories.class_id)
        .where(
            listed(_shares.provider_id, "providers", providers),
            listed(_shares.class_id, "classes", classes),
        )
        .order_by(_inventories.id)
    )


def _lock_query(ids: int) -> sa.Select[*tuple[Any, ...]]:
    # by primary key, so that InnoDB, which locks rows as it meets them, meets them in this order
    return (
        sa.select(
            *(_inventories.id, _inventories.shares, _inventories.disabled_until),
            *(_inventories.removed_units, *_FIGURES),
        )
        .where(listed(_inventories.id, "ids", ids))
        .order_by(_inventories.id)
        .with_for_update()
    )


def _change_used_query(ids: int, nets: int, counts: int) -> sa.Update:
    net = chosen(_inventories.id, "ids", "nets", ids)
    after = _inventories.used + net
    fits = after <= _inventories.capacity
    counted = chosen(_inventories.id, "ids", "counts", ids)
    return (
        sa.update(tables.inventories)
        .where(listed(_inventories.id, "ids", ids), after >= 0, sa.or_(fits, net <= 0))
        .values(used=after, writes=_inventories.writes + counted)
    )


def _change_within_query(ids: int, nets: int, counts: int, bounds: int) -> sa.Update:
    # the same, and of each row no more afterwards than the limit that came with the claim
    after = _inventories.used + chosen(_inventories.id, "ids", "nets", ids)
    bound = chosen(_inventories.id, "ids", "bounds", ids)
    is_less = after <= _inventories.used
    return _change_used_query(ids, nets, counts).where(sa.or_(after <= bound, is_less))


def _adopt_used_query(ids: int, nets: int, counts: int) -> sa.Update:
    counted = chosen(_inventories.id, "ids", "counts", ids)
    after = _inventories.used + chosen(_inventories.id, "ids", "nets", ids)
    return (
        sa.update(tables.inventories)
        .where(listed(_inventories.id, "ids", ids), after >= 0)
        .values(used=after, writes=_inventories.writes + counted)
    )


_FIND = Sized(_find_query)
_TAKE = Sized(_take_query)
_SHARES = Sized(_shares_query)
_LOCK = Sized(_lock_query)
_CHANGE_USED = Sized(_change_used_query)
_CHANGE_WITHIN = Sized(_change_within_query)
_ADOPT_USED = Sized(_adopt_used_query)
#: how many inventories one statement changes: its CASE is looked through for each of them
MOST_CHANGES = 128


@dataclasses.dataclass(slots=True, kw_only=True)
class Found(Place):
    """One inventory as kept, with the numbers of its row, provider and class."""

    key: Key
    inventory_id: int
    provider_id: int
    class_id: int
    declared: int  #: how many shares it has


class Places:
    """What was found: inventories by key, names and roots of providers by uuid.

    ``now`` is the time of the database, once it was read with them.
    """

    __slots__ = ("by_key", "names", "now", "roots")

    def __init__(self) -> None:
        self.by_key: dict[Key, Found] = {}
        self.names: dict[str, str] = {}
        self.roots: dict[str, int] = {}
        self.now: datetime.datetime | None = None

    def add(self, row: Sequence[Any]) -> Found | None:
        """Note the provider of a row of :data:`COLUMNS`; return its inventory, if there is one."""
        provider_id, uuid, name, root, resource_class, number, class_id, shares, *more = row
        name = self.names[uuid] = tables.called(name)
        self.roots[uuid] = root
        if number is None:
            return None
        return Found(
            provider=name,
            record=InventoryRecord(resource_class, *more[2:]),
            disabled_until=None if more[0] is None else from_moment(more[0]),
            removed_units=more[1],
            key=(uuid, resource_class),
            inventory_id=number,
            provider_id=provider_id,
            class_id=class_id,
            declared=shares,
        )


def find_places(connection: Connection, at: Places, keys: Collection[Key]) -> None:
    """Add to ``at`` what there is at ``keys``, with all that it shares; lock it.

    Cost: a statement to find and, on MariaDB, one to lock; one or two more where there are shares.
    """
    if connection.dialect.name == "postgresql":
        _take(connection, at, keys)
        return
    sharers = _look(connection, at, keys)
    if at.by_key and connection.dialect.name != "sqlite":  # whose one writer has the only lock
        _lock(connection, at.by_key.values())
        if sharers:
            _check_shares(connection, sharers)


def numbers_of_places(connection: Connection, keys: Collection[Key]) -> set[int]:
    """Return the numbers of the inventories at ``keys`` and of all that they share; lock nothing.

    Cost: a statement, one more where there are shares.
    """
    at = Places()
    _look(connection, at, keys)
    return {place.inventory_id for place in at.by_key.values()}


def _take(connection: Connection, at: Places, keys: Collection[Key]) -> None:
    """Find and lock in one statement, what is shared included; see PostgreSQL's ``_take_query``."""
    at.by_key.clear()  # what was read with consumers was not locked
    wanted = list(keys)
    locked: dict[int, Found] = {}
    for part in chunks(wanted, MOST // 2):
        uuids, classes = [uuid for uuid, _ in part], [name for _, name in part]
        for now, *row in _TAKE.rows(connection, uuids=uuids, classes=classes):
            found = at.add(row)
            assert found is not None  # the join is an inner one
            at.now = from_moment(now)
            locked[found.inventory_id] = at.by_key[found.key] = found
    if any(key not in at.by_key for key in wanted):
        missing = Places()
        _look(connection, missing, [key for key in wanted if key not in at.by_key])
        if missing.by_key:
            raise Transient(exceptions.DatabaseBusy("inventory", "it was made in between"))
        at.names |= missing.names
        at.roots |= missing.roots
        at.now = at.now or missing.now
    sharers = [place for place in at.by_key.values() if place.declared]
    for sharer, factor, target_row in _shares_of(connection, sharers) if sharers else ():
        target = Places().add(target_row)
        assert target is not None
        if target.inventory_id not in locked:
            raise Transient(exceptions.DatabaseBusy(sharer.provider, "its shares were changed"))
        sharer.shares = (*sharer.shares, (target.key, factor))


def _look(connection: Connection, at: Places, keys: Collection[Key]) -> list[Found]:
    """Add to ``at`` what is missing in it, with what is shared; return all that shares."""
    missing: set[Key] = set()
    uuids: dict[str, None] = {}
    names: dict[str, None] = {}
    for key in keys:
        if key not in at.by_key:
            missing.add(key)
            uuids[key[0]] = names[key[1]] = None
    for part in chunks(list(uuids)):
        for now, *row in _FIND.rows(connection, uuids=part, classes=list(names)):
            at.now = None if now is None else from_moment(now)
            found = at.add(row)
            if found is not None and found.key in missing:
                at.by_key[found.key] = found
    sharers = [place for place in at.by_key.values() if place.declared]
    if sharers:
        _add_shares(connection, at, sharers)
    return sharers


def _add_shares(connection: Connection, at: Places, sharers: Iterable[Found]) -> None:
    """Add what is used too where something is taken of some inventories."""
    shares: dict[Key, list[tuple[Key, int]]] = {}
    for sharer, factor, row in _shares_of(connection, sharers):
        target = at.add(row)
        assert target is not None
        at.by_key.setdefault(target.key, target)
        shares.setdefault(sharer.key, []).append((target.key, factor))
    for key, found in shares.items():
        at.by_key[key].shares = tuple(found)


def _shares_of(
    connection: Connection, sharers: Iterable[Found]
) -> list[tuple[Found, int, Sequence[Any]]]:
    """Return ``(sharer, factor, row of the target)`` of each share of some inventories."""
    by_numbers = {(place.provider_id, place.class_id): place for place in sharers}
    classes = list({class_id for _, class_id in by_numbers})
    return [
        (by_numbers[provider_id, class_id], factor, row)
        for part in chunks(list({provider_id for provider_id, _ in by_numbers}))
        for provider_id, class_id, factor, *row in _SHARES.rows(
            connection, providers=part, classes=classes
        )
        if (provider_id, class_id) in by_numbers
    ]


def _lock(connection: Connection, found: Iterable[Found]) -> None:
    """Lock what was found and read its figures again, which may have changed meanwhile."""
    by_number = {place.inventory_id: place for place in found}
    for number, shares, disabled, units, *figures in lock_places(connection, by_number):
        place = by_number[number]
        place.removed_units = units
        place.disabled_until = None if disabled is None else from_moment(disabled)
        place.record = InventoryRecord(place.record.resource_class, *figures)
        if shares != place.declared:
            raise Transient(exceptions.DatabaseBusy(place.provider, "its shares were changed"))


def _check_shares(connection: Connection, sharers: Iterable[Found]) -> None:
    """Look at shares again, now that who would change them waits for our locks."""
    seen: dict[Key, list[tuple[Key, int]]] = {place.key: [] for place in sharers}
    for sharer, factor, row in _shares_of(connection, sharers):
        target = Places().add(row)
        assert target is not None
        seen[sharer.key].append((target.key, factor))
    for place in sharers:
        if place.shares != tuple(seen[place.key]):
            raise Transient(exceptions.DatabaseBusy(place.provider, "its shares were changed"))


def lock_places(connection: Connection, numbers: Collection[int]) -> list[Sequence[Any]]:
    """Lock inventories by number; return ``(number, how many shares, until when it is out of
    service, how many units may be so alone, *figures)`` of each.

    The last of the figures is what is used. With SQLite it does and returns nothing: a writing
    transaction is alone there.
    """
    if connection.dialect.name == "sqlite":
        return []
    rows: list[Sequence[Any]] = []
    for part in chunks(sorted(numbers)):
        rows += _LOCK.rows(connection, ids=part)
    if len(rows) != len(numbers):
        raise Transient(exceptions.DatabaseBusy("inventory", "it was removed in between"))
    return rows


def change_used(
    connection: Connection,
    nets: Mapping[int, int],
    counted: Collection[int],
    *,
    adopts: bool = False,
    bounds: Mapping[int, int] | None = None,
) -> None:
    """Add the net change to ``used`` of each inventory, by number, and count the write.

    Its guard repeats the rules that no mistake above may break: never below zero, and never up
    beyond the capacity, nor beyond the limit that came with the write. The second does not bind a
    write that ``adopts``.

    :param counted: the inventories at which the write is counted
    :param bounds: limits by number, of some of the inventories
    """
    query = _ADOPT_USED if adopts else _CHANGE_WITHIN if bounds else _CHANGE_USED
    for part in chunks(sorted(nets), MOST_CHANGES):
        given = {
            "ids": part,
            "nets": [nets[number] for number in part],
            "counts": [int(number in counted) for number in part],
        }
        if bounds:
            given["bounds"] = [bounds.get(number, MAX_AMOUNT) for number in part]
        query.must_match(connection, len(part), partial(_refused, len(part)), **given)


def _refused(written: int, changed: int) -> Transient:
    refused = f"{written - changed} inventories refused a change"
    return Transient(exceptions.DatabaseBusy("used", refused))


# --- who is in the way ----------------------------------------------------------------------------
#
# Asked for only to say why something is refused.

#: inventories that one query asks the holders of
_MOST_PLACES = 64


def _is(table: Any, provider: str, class_: str, position: int) -> sa.ColumnElement[bool]:
    """Return ``provider = :providers_n AND class = :classes_n``."""
    return sa.and_(
        table[provider] == sa.bindparam(f"providers_{position}"),
        table[class_] == sa.bindparam(f"classes_{position}"),
    )


def _holders_query(providers: int, classes: int) -> sa.CompoundSelect[*tuple[Any, ...]]:
    # the few largest of each inventory, in one statement for all of them
    return sa.union_all(
        *(
            sa.select(
                sa.select(
                    _allocations.provider_id,
                    _allocations.class_id,
                    _consumers.name,
                    _allocations.used,
                )
                .join_from(tables.allocations, tables.consumers)
                .where(_is(_allocations, "provider_id", "class_id", position))
                .order_by(_allocations.used.desc(), _consumers.name)
                .limit(sa.literal_column(str(decision.MOST_HOLDERS)))
                .subquery()
            )
            for position in range(providers)
        )
    )


def _shared_query(providers: int, classes: int) -> sa.Select[*tuple[Any, ...]]:
    return (
        sa.select(_shares.of_provider_id, _shares.of_class_id)
        .where(
            listed(_shares.of_provider_id, "providers", providers),
            listed(_shares.of_class_id, "classes", classes),
        )
        .distinct()
    )


def _drawers_query(providers: int, classes: int) -> sa.CompoundSelect[*tuple[Any, ...]]:
    # like the holders, but of an inventory that others share: all that one consumer takes of it
    return sa.union_all(*(_drawers_of(position) for position in range(providers)))


def _drawers_of(position: int) -> sa.Select[*tuple[Any, ...]]:
    # SELECT :provider, :class, name, SUM(used) FROM (allocations here UNION ALL allocations times
    # factor of who shares this) JOIN consumers GROUP BY name ORDER BY SUM(used) DESC LIMIT 100
    drawn = sa.union_all(
        sa.select(_allocations.consumer_id, _allocations.used).where(
            _is(_allocations, "provider_id", "class_id", position)
        ),
        sa.select(_allocations.consumer_id, (_allocations.used * _shares.factor).label("used"))
        .join_from(
            tables.shares,
            tables.allocations,
            sa.and_(
                _allocations.provider_id == _shares.provider_id,
                _allocations.class_id == _shares.class_id,
            ),
        )
        .where(_is(_shares, "of_provider_id", "of_class_id", position)),
    ).subquery()
    total = sa.func.sum(drawn.c.used)
    number = sa.BigInteger()
    return sa.select(
        sa.select(
            sa.bindparam(f"providers_{position}", type_=number).label("provider"),
            sa.bindparam(f"classes_{position}", type_=number).label("class"),
            _consumers.name,
            total.label("used"),
        )
        .join_from(drawn, tables.consumers, _consumers.id == drawn.c.consumer_id)
        .group_by(_consumers.name)
        .order_by(total.desc(), _consumers.name)
        .limit(sa.literal_column(str(decision.MOST_HOLDERS)))
        .subquery()
    )


def _takers_query(uuids: int, units: int) -> sa.Select[*tuple[Any, ...]]:
    return (
        sa.select(_providers.uuid, _units.unit, _consumers.name)
        .join_from(
            tables.allocation_units,
            tables.resource_providers,
            _providers.id == _units.provider_id,
        )
        .join(tables.consumers, _consumers.id == _units.consumer_id)
        .where(listed(_providers.uuid, "uuids", uuids), listed(_units.unit, "units", units))
    )


_TAKERS = Sized(_takers_query)
_HOLDERS = Sized(_holders_query)
_SHARED = Sized(_shared_query)
_DRAWERS = Sized(_drawers_query)


def holders(
    connection: Connection, at: Places, full: Collection[Key]
) -> dict[Key, list[tuple[str, int]]]:
    """Return who draws most on some inventories, in the transaction that refuses."""
    keys = {(at.by_key[key].provider_id, at.by_key[key].class_id): key for key in full}
    shared: set[tuple[int, int]] = set()
    classes = list({class_ for _, class_ in keys})
    for part in chunks(list({provider for provider, _ in keys})):
        for provider, class_ in _SHARED.rows(connection, providers=part, classes=classes):
            shared.add((provider, class_))
    found: dict[Key, set[tuple[str, int]]] = {key: set() for key in full}
    for query, full_there in (
        (_HOLDERS, [numbers for numbers in keys if numbers not in shared]),
        (_DRAWERS, [numbers for numbers in keys if numbers in shared]),
    ):
        for some in chunks(full_there, _MOST_PLACES):
            for provider, class_, name, used in query.rows(connection, **_as_lists(some)):
                found[keys[provider, class_]].add((name, int(used)))
    return {key: list(holders) for key, holders in found.items()}


def _as_lists(keys: Sequence[tuple[int, int]]) -> dict[str, list[int]]:
    return {"providers": [key[0] for key in keys], "classes": [key[1] for key in keys]}


def takers(connection: Connection, wanted: Collection[Unit]) -> dict[Unit, str]:
    """Return which of some units are taken, and by which consumer."""
    found: dict[Unit, str] = {}
    for part in chunks(sorted(wanted), MOST // 2):
        uuids, names = list({uuid for uuid, _ in part}), list({name for _, name in part})
        for uuid, unit, consumer in _TAKERS.rows(connection, uuids=uuids, units=names):
            if (uuid, unit) in wanted:
                found[uuid, unit] = consumer
    return found
