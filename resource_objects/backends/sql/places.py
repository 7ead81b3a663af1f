"""Inventories that orders concern: read, locked and updated; and their consumers, for refusals.

All writes lock in the same order: inventory rows by number, in one statement, before anything is
written. A write with definitions locks the inventories of its orders together with theirs
(``rows``). So two writes do not deadlock, and a row that was read under its lock is still true when
it is written.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.retries import Transient
from resource_objects.backends.sql import tables
from resource_objects.backends.sql.statements import (
    MOST,
    SQL,
    chunks,
    from_moment,
)
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers import decision
from resource_objects.providers.orders import Key
from resource_objects.resources.records import InventoryRecord
from resource_objects.store.decide import Unit

_FIGURES = """i.total, i.reserved, i.min_unit, i.max_unit, i.step_size, i.ratio_millionths,
 i.capacity, i.used"""
#: What :meth:`Places.add` reads: of a provider ``p``, a class ``c`` and an inventory ``i``.
COLUMNS = f"""p.id, p.uuid, p.name, p.root_id, c.name, i.id, i.class_id, i.shares,
 i.disabled_until, i.removed_units, {_FIGURES}"""

# A provider without the inventory is found too. Classes are found by name, because a name may be
# given to another class at any time.
_FIND = SQL(f"""
    SELECT {{now}}, {COLUMNS} FROM resource_providers p
    LEFT JOIN resource_classes c ON c.name IN :classes*
    LEFT JOIN inventories i ON i.provider_id = p.id AND i.class_id = c.id
    WHERE p.uuid IN :uuids*""")
# PostgreSQL finds and locks in one statement the inventories requested and those that they share,
# by number. An inventory requested twice is locked once; one that does not exist is looked for
# afterwards. A plain FOR UPDATE would wait for transactions that insert allocations of it.
_TAKE = SQL(f"""
    WITH claimed AS (
        SELECT i.id, i.provider_id, i.class_id FROM resource_providers p
        JOIN inventories i ON i.provider_id = p.id JOIN resource_classes c ON c.id = i.class_id
        WHERE (p.uuid, c.name) IN :uuids,classes*)
    SELECT {{now}}, {COLUMNS} FROM inventories i
    JOIN resource_providers p ON p.id = i.provider_id
    JOIN resource_classes c ON c.id = i.class_id
    WHERE i.id IN (
        SELECT id FROM claimed UNION ALL SELECT target.id FROM claimed
        JOIN shares s ON s.provider_id = claimed.provider_id AND s.class_id = claimed.class_id
        JOIN inventories target
        ON target.provider_id = s.of_provider_id AND target.class_id = s.of_class_id)
    ORDER BY i.id FOR NO KEY UPDATE OF i""")
_SHARES = SQL(f"""
    SELECT s.provider_id, s.class_id, s.factor, {COLUMNS} FROM shares s
    JOIN inventories i ON i.provider_id = s.of_provider_id AND i.class_id = s.of_class_id
    JOIN resource_providers p ON p.id = i.provider_id
    JOIN resource_classes c ON c.id = i.class_id
    WHERE s.provider_id IN :providers* AND s.class_id IN :classes* ORDER BY i.id""")
# by primary key: InnoDB locks rows in the order in which it reads them
_LOCK = SQL(f"""
    SELECT i.id, i.shares, i.disabled_until, i.removed_units, {_FIGURES} FROM inventories i
    WHERE i.id IN :ids* ORDER BY i.id FOR UPDATE""")

_NET = "CASE id WHEN :ids THEN :nets* END"
_CHANGE = f"""
    UPDATE inventories SET writes = writes + CASE id WHEN :ids THEN :counts* END,
    used = used + {_NET} WHERE id IN :ids* AND used + {_NET} >= 0"""
_FITS = f"{_CHANGE} AND (used + {_NET} <= capacity OR {_NET} <= 0)"
_ADOPT_USED = SQL(_CHANGE)
_CHANGE_USED = SQL(_FITS)
# and no inventory above the limit that came with the claim
_CHANGE_WITHIN = SQL(f"""{_FITS}
    AND (used + {_NET} <= CASE id WHEN :ids THEN :bounds* END OR used + {_NET} <= used)""")
#: The most inventories that one statement changes: it looks through its CASE for each of them.
MOST_CHANGES = 128


@dataclasses.dataclass(slots=True, kw_only=True)
class Found:
    """A stored inventory, with the numbers of its row, provider and class."""

    provider: str  #: its name
    record: InventoryRecord
    shares: tuple[tuple[Key, int], ...] = ()
    disabled_until: datetime.datetime | None = None
    removed_units: int = 0
    key: Key
    inventory_id: int
    provider_id: int
    class_id: int
    declared: int  #: how many shares it has


class Places:
    """Inventories by key, and the names and roots of providers by uuid.

    ``now`` is the time of the database, once it was read with them.
    """

    __slots__ = ("by_key", "names", "now", "roots")

    def __init__(self) -> None:
        self.by_key: dict[Key, Found] = {}
        self.names: dict[str, str] = {}
        self.roots: dict[str, int] = {}
        self.now: datetime.datetime | None = None

    def add(self, row: Sequence[Any]) -> Found | None:
        """Add the provider of a row of :data:`COLUMNS`; return its inventory, or None."""
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
    """Lock the inventories of ``keys`` and those that they share, and add them to ``at``.

    Cost: a statement to find and, on MariaDB, one to lock; one or two more where there are shares.
    """
    if connection.dialect.name == "postgresql":
        _take(connection, at, keys)
        return
    sharers = _look(connection, at, keys)
    if at.by_key and connection.dialect.name != "sqlite":  # which locks the file
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
    """Read and lock inventories and those that they share in one statement of PostgreSQL."""
    at.by_key.clear()  # those read with consumers were not locked
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
            raise Transient(exceptions.DatabaseError("busy", "inventory", "it was made in between"))
        at.names |= missing.names
        at.roots |= missing.roots
        at.now = at.now or missing.now
    sharers = [place for place in at.by_key.values() if place.declared]
    for sharer, factor, target_row in _shares_of(connection, sharers) if sharers else ():
        target = Places().add(target_row)
        assert target is not None
        if target.inventory_id not in locked:
            raise Transient(
                exceptions.DatabaseError("busy", sharer.provider, "its shares were changed")
            )
        sharer.shares = (*sharer.shares, (target.key, factor))


def _look(connection: Connection, at: Places, keys: Collection[Key]) -> list[Found]:
    """Add the missing inventories and those that they share to ``at``; return the sharers."""
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
    """Add the inventories that others share to ``at``."""
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
    """Lock inventories and read their figures again: they may have changed since."""
    by_number = {place.inventory_id: place for place in found}
    for number, shares, disabled, units, *figures in lock_places(connection, by_number):
        place = by_number[number]
        place.removed_units = units
        place.disabled_until = None if disabled is None else from_moment(disabled)
        place.record = InventoryRecord(place.record.resource_class, *figures)
        if shares != place.declared:
            raise Transient(
                exceptions.DatabaseError("busy", place.provider, "its shares were changed")
            )


def _check_shares(connection: Connection, sharers: Iterable[Found]) -> None:
    """Compare the shares with those read before the lock, under which they cannot change."""
    seen: dict[Key, list[tuple[Key, int]]] = {place.key: [] for place in sharers}
    for sharer, factor, row in _shares_of(connection, sharers):
        target = Places().add(row)
        assert target is not None
        seen[sharer.key].append((target.key, factor))
    for place in sharers:
        if place.shares != tuple(seen[place.key]):
            raise Transient(
                exceptions.DatabaseError("busy", place.provider, "its shares were changed")
            )


def lock_places(connection: Connection, numbers: Collection[int]) -> list[Sequence[Any]]:
    """Lock inventories by number; return the columns of ``_LOCK`` of each.

    SQLite locks the file for a write: there nothing is done, and no row is returned.
    """
    if connection.dialect.name == "sqlite":
        return []
    rows: list[Sequence[Any]] = []
    for part in chunks(sorted(numbers)):
        rows += _LOCK.rows(connection, ids=part)
    if len(rows) != len(numbers):
        raise Transient(exceptions.DatabaseError("busy", "inventory", "it was removed in between"))
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

    The guard of the statement repeats the rules that no defect elsewhere may break: the usage is
    never below zero, and never rises above the capacity or the limit of the write. A write that
    ``adopts`` may exceed the capacity.

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
        query.must_match(connection, len(part), functools.partial(_refused, len(part)), **given)


def _refused(written: int, changed: int) -> Transient:
    refused = f"{written - changed} inventories refused a change"
    return Transient(exceptions.DatabaseError("busy", "used", refused))


# --- consumers of inventories and units, read only for a refusal ----------------------------------

#: The most inventories of one query for consumers.
_MOST_PLACES = 64


# The few largest consumers of each inventory, in one statement for all of them.
_HOLDERS = f"""SELECT * FROM (
    SELECT a.provider_id, a.class_id, c.name, a.used
    FROM allocations a JOIN consumers c ON c.id = a.consumer_id
    WHERE a.provider_id = :provider{{0}} AND a.class_id = :class{{0}}
    ORDER BY a.used DESC, c.name LIMIT {decision.MOST_HOLDERS}) holders{{0}}"""
# The same of an inventory that others share: all that one consumer uses of it.
_DRAWERS = f"""SELECT * FROM (
    SELECT :provider{{0}} AS provider, :class{{0}} AS class, c.name, SUM(drawn.used) AS used FROM (
        SELECT consumer_id, used FROM allocations
        WHERE provider_id = :provider{{0}} AND class_id = :class{{0}}
        UNION ALL SELECT a.consumer_id, a.used * s.factor FROM shares s
        JOIN allocations a ON a.provider_id = s.provider_id AND a.class_id = s.class_id
        WHERE s.of_provider_id = :provider{{0}} AND s.of_class_id = :class{{0}}) drawn
    JOIN consumers c ON c.id = drawn.consumer_id
    GROUP BY c.name ORDER BY SUM(drawn.used) DESC, c.name
    LIMIT {decision.MOST_HOLDERS}) drawers{{0}}"""
_SHARED = SQL("""
    SELECT DISTINCT of_provider_id, of_class_id FROM shares
    WHERE of_provider_id IN :providers* AND of_class_id IN :classes*""")
_TAKERS = SQL("""
    SELECT p.uuid, u.unit, c.name FROM allocation_units u
    JOIN resource_providers p ON p.id = u.provider_id JOIN consumers c ON c.id = u.consumer_id
    WHERE p.uuid IN :uuids* AND u.unit IN :units*""")


@functools.cache
def _of_each(query: str, count: int) -> SQL:
    """Return the query of several inventories."""
    return SQL(" UNION ALL ".join(query.format(position) for position in range(count)))


def holders(
    connection: Connection, at: Places, full: Collection[Key]
) -> dict[Key, list[tuple[str, int]]]:
    """Return the largest consumers of some inventories, also those through shares."""
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
            values = {
                f"{name}{position}": number
                for position, key in enumerate(some)
                for name, number in zip(("provider", "class"), key, strict=True)
            }
            statement = _of_each(query, len(some))
            for provider, class_, name, used in statement.rows(connection, **values):
                found[keys[provider, class_]].add((name, int(used)))
    return {key: list(holders) for key, holders in found.items()}


def takers(connection: Connection, wanted: Collection[Unit]) -> dict[Unit, str]:
    """Return the consumers of those units that are allocated."""
    found: dict[Unit, str] = {}
    for part in chunks(sorted(wanted), MOST // 2):
        uuids, names = list({uuid for uuid, _ in part}), list({name for _, name in part})
        for uuid, unit, consumer in _TAKERS.rows(connection, uuids=uuids, units=names):
            if (uuid, unit) in wanted:
                found[uuid, unit] = consumer
    return found
