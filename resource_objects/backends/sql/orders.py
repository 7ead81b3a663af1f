"""Orders of consumers as rows: the inventories and consumers that they read, and their effects.

All writes lock in the same order: inventory rows by number, in one statement, before anything is
written. A write with definitions locks the inventories of its orders together with theirs
(``rows``). So two writes do not deadlock, and a row that was read under its lock is unchanged when
it is written.

Consumers are read without a lock. They are written only if they are still at the generations that
were read: every write changes the generation, and a consumer that is created again never repeats
one.

The rules are in ``store.decide``. The number of statements of a function does not depend on the
number of consumers or inventories.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from resource_objects.backends.retries import Transient, busy
from resource_objects.backends.sql import statements, tables
from resource_objects.backends.sql.names import LOCK_GROUPS, description_of, group_of
from resource_objects.backends.sql.statements import (
    MOST,
    SQL,
    Insert,
    chunks,
    disabled_of,
    draw_number,
    from_moment,
    from_moment_or_none,
    moment,
)
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.allocation import RELEASED
from resource_objects.providers.disabled import Disabled, RemovedUnit
from resource_objects.providers.holders import MOST_HOLDERS
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    Key,
    Mode,
    Operation,
    Outcome,
    StoredRequest,
    Use,
    Write,
)
from resource_objects.providers.pools import SHARES
from resource_objects.providers.tree_shape import removed_of
from resource_objects.resources.records import InventoryRecord
from resource_objects.store.decide import (
    ConsumerEffect,
    GroupMembers,
    OrderRows,
    Restrictions,
    Unit,
    keys_of,
)

# --- inventories ----------------------------------------------------------------------------------

_FIGURES = ", ".join(f"i.{name}" for name in tables.FIGURES)
#: The columns that :meth:`StoredRows.add` reads: of a provider, a class and an inventory.
_INVENTORY = f"""p.id, p.uuid, p.name, p.root_id, c.name, i.id, i.class_id, i.shares,
 i.disabled_until, i.removed_units, {_FIGURES}"""

# A provider without the inventory is returned too. Classes are searched by name, because another
# class can get the name at any time.
_FIND = SQL(f"""
    SELECT {{now}}, {_INVENTORY} FROM resource_providers p
    LEFT JOIN resource_classes c ON c.name IN :classes*
    LEFT JOIN inventories i ON i.provider_id = p.id AND i.class_id = c.id
    WHERE p.uuid IN :uuids*""")
# PostgreSQL finds and locks in one statement the inventories requested and those that they share,
# by number. An inventory requested twice is locked once; one that does not exist is looked for
# afterwards. A plain FOR UPDATE would wait for transactions that insert allocations of it.
_FIND_AND_LOCK = SQL(f"""
    WITH claimed AS (
        SELECT i.id, i.provider_id, i.class_id FROM resource_providers p
        JOIN inventories i ON i.provider_id = p.id JOIN resource_classes c ON c.id = i.class_id
        WHERE (p.uuid, c.name) IN :uuids,classes*)
    SELECT {{now}}, {_INVENTORY} FROM inventories i
    JOIN resource_providers p ON p.id = i.provider_id
    JOIN resource_classes c ON c.id = i.class_id
    WHERE i.id IN (
        SELECT id FROM claimed UNION ALL SELECT target.id FROM claimed
        JOIN shares s ON s.provider_id = claimed.provider_id AND s.class_id = claimed.class_id
        JOIN inventories target
        ON target.provider_id = s.of_provider_id AND target.class_id = s.of_class_id)
    ORDER BY i.id FOR NO KEY UPDATE OF i""")
_SHARES = SQL(f"""
    SELECT s.provider_id, s.class_id, s.factor, {_INVENTORY} FROM shares s
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


@dataclasses.dataclass(slots=True)
class StoredInventory:
    """A stored inventory, with the numbers of its row, provider and class."""

    key: Key
    provider: str  #: its name
    record: InventoryRecord
    inventory_id: int
    provider_id: int
    class_id: int
    share_count: int
    disabled_until: datetime.datetime | None
    removed_units: int
    shares: tuple[tuple[Key, int], ...] = ()


class StoredRows(OrderRows):
    """The rows that orders concern; rows for a refusal are read if a rule asks for them.

    ``now`` is the time of the database, once it was read with the inventories; ``names`` and
    ``roots`` are those of providers by uuid.

    :param number: of the operation
    """

    def __init__(self, connection: Connection, number: int = 0) -> None:
        self._connection = connection
        self.number = number
        self._restrictions: dict[str, Restrictions] | None = None
        self.inventories: dict[Key, StoredInventory] = {}
        self.consumers: dict[str, StoredConsumer] = {}
        self.names: dict[str, str] = {}
        self.roots: dict[str, int] = {}
        self.now: datetime.datetime | None = None

    def add_provider(self, uuid: str, name: str, root: int) -> None:
        """Add a provider, by the name that it has outside of this transaction."""
        self.names[uuid] = name.removeprefix(tables.GIVEN_UP)
        self.roots[uuid] = root

    def add(self, row: Sequence[Any]) -> StoredInventory:
        """Add the provider of a row of :data:`_INVENTORY`; return the inventory."""
        provider_id, uuid, name, root, resource_class, number, class_id, shares, *more = row
        until, removed_units, *figures = more
        self.add_provider(uuid, name, root)
        return StoredInventory(
            (uuid, resource_class),
            self.names[uuid],
            InventoryRecord(resource_class, *figures),
            number,
            provider_id,
            class_id,
            shares,
            from_moment_or_none(until),
            removed_units,
        )

    @property
    def records(self) -> dict[str, ConsumerRecord]:
        """The consumers, by name."""
        return {name: consumer.record for name, consumer in self.consumers.items()}

    # --- the rows that the rules read ---

    def consumer(self, name: str) -> ConsumerRecord | None:
        """Return a consumer."""
        consumer = self.consumers.get(name)
        return None if consumer is None else consumer.record

    def inventory(self, key: Key) -> StoredInventory | None:
        """Return a locked inventory."""
        return self.inventories.get(key)

    def provider_name(self, uuid: str) -> str | None:
        """Return the name of a provider."""
        return self.names.get(uuid)

    def restrictions(self, uuid: str) -> Restrictions | None:
        """Return until when a provider is disabled, and how many of its units were removed."""
        if self._restrictions is None:
            self._restrictions = {
                key[0]: Restrictions(inventory.disabled_until, inventory.removed_units)
                for key, inventory in self.inventories.items()
                if inventory.disabled_until is not None or inventory.removed_units
            }
        return self._restrictions.get(uuid)

    def users_of(self, keys: Collection[Key]) -> dict[Key, list[tuple[str, int]]]:
        """Return the largest consumers of inventories, also those through shares."""
        connection, inventories = self._connection, [self.inventories[key] for key in keys]
        key_of = {(row.provider_id, row.class_id): row.key for row in inventories}
        providers, classes = {pair[0] for pair in key_of}, list({pair[1] for pair in key_of})
        shared = {*map(tuple, _SHARED.rows_for(connection, providers, classes=classes))}
        users: dict[Key, set[tuple[str, int]]] = {key: set() for key in keys}
        for query, numbers in (
            (_USERS, [pair for pair in key_of if pair not in shared]),
            (_USERS_OF_SHARED, [pair for pair in key_of if pair in shared]),
        ):
            for pairs in chunks(numbers, _MOST_INVENTORIES):
                values = {f"provider{position}": pair[0] for position, pair in enumerate(pairs)}
                values |= {f"class{position}": pair[1] for position, pair in enumerate(pairs)}
                statement = _of_each(query, len(pairs))
                for provider, class_, name, used in statement.rows(connection, **values):
                    users[key_of[provider, class_]].add((name, int(used)))
        return {key: list(consumers) for key, consumers in users.items()}

    def unit_consumers(self, units: Collection[Unit]) -> dict[Unit, str]:
        """Return the consumers of those units that are allocated."""
        consumers: dict[Unit, str] = {}
        for part in chunks(sorted(units), MOST // 2):
            uuids, names = list({uuid for uuid, _ in part}), list({name for _, name in part})
            rows = _UNIT_CONSUMERS.rows(self._connection, uuids=uuids, units=names)
            consumers |= {(uuid, unit): consumer for uuid, unit, consumer in rows}
        return {unit: consumer for unit, consumer in consumers.items() if unit in units}

    def disabled_at(self, uuids: Collection[str], now: datetime.datetime) -> dict[str, Disabled]:
        """Return why providers or their ancestors are disabled, by name."""
        roots: dict[int, int] = dict(_ROOTS.rows_for(self._connection, {*uuids}))
        rows = {row[0]: row for row in _TREES.rows_for(self._connection, {*roots.values()})}
        reasons: dict[str, Disabled] = {}
        for number in roots:
            at: int | None = number
            while at is not None:
                _, at, name, *facts = rows[at]
                reason = disabled_of(facts, now)
                if reason is not None:
                    reasons[name.removeprefix(tables.GIVEN_UP)] = reason
        return reasons

    def removed_units_of(self, uuids: Collection[str]) -> dict[str, tuple[RemovedUnit, ...]]:
        """Return the units that were removed while allocated, by provider."""
        kinds: dict[str, list[tuple[str, str]]] = {uuid: [] for uuid in uuids}
        allocated: dict[str, set[str]] = {uuid: set() for uuid in uuids}
        for uuid, kind, body in _KINDS.rows_for(self._connection, uuids):
            kinds[uuid].append((kind, description_of(kind, body)))
        for uuid, unit in _UNITS.rows_for(self._connection, uuids):
            allocated[uuid].add(unit)
        return {uuid: removed_of(kinds[uuid], allocated[uuid]) for uuid in uuids}

    def group_members(self, names: Collection[str], uuids: Collection[str]) -> GroupMembers:
        """Lock server groups, give them the generation of the write, and return their members.

        Cost: two statements, and two more if one of the groups is strict.
        """
        connection = self._connection
        locked = LOCK_GROUPS.rows_for(connection, names)
        groups = {columns[0]: group_of(columns) for _, *columns in locked}
        strict = [name for name, group in groups.items() if not group.is_soft]
        members: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in strict}
        for name, consumer, host in _MEMBERS.rows_for(connection, strict):
            members[name][consumer].add(host)
        host_of: dict[str, str] = dict(_HOSTS.rows_for(connection, uuids if strict else ()))
        _SET_GENERATION.run_for(connection, [row[0] for row in locked], number=self.number)
        return GroupMembers(groups, members, host_of)


def read_locked_inventories(
    connection: Connection, rows: StoredRows, keys: Collection[Key]
) -> None:
    """Read the inventories of ``keys`` and those that they share into ``rows``, locked.

    SQLite has the lock of the file since BEGIN IMMEDIATE. PostgreSQL replaces the inventories that
    ``rows`` has. ``rows.now`` becomes the time of the server, and stays None on SQLite.

    :raises Transient: if inventories or shares were changed between two statements

    Cost: a statement to find and, on MySQL, one to lock; one or two more where there are shares.
    """
    if connection.dialect.name == "postgresql":
        _find_and_lock(connection, rows, keys)
        return
    _find(connection, rows, keys)
    if connection.dialect.name != "sqlite" and rows.inventories:  # SQLite locks the file
        _lock(connection, rows)


def inventory_numbers(connection: Connection, orders: Sequence[ConsumerOrder]) -> set[int]:
    """Return the numbers of the inventories of orders and of all that they share; lock nothing.

    They are read again when the orders are carried out. Cost: two to five statements.
    """
    rows = StoredRows(connection)
    read_consumers(connection, [order.consumer for order in orders], rows)
    _find(connection, rows, keys_of(orders, rows.records))
    return {inventory.inventory_id for inventory in rows.inventories.values()}


def _find_and_lock(connection: Connection, rows: StoredRows, keys: Collection[Key]) -> None:
    """Read and lock inventories and those that they share in one statement of PostgreSQL."""
    rows.inventories.clear()  # those read with consumers were not locked
    for part in chunks(list(keys), MOST // 2):
        uuids, classes = [uuid for uuid, _ in part], [name for _, name in part]
        for now, *row in _FIND_AND_LOCK.rows(connection, uuids=uuids, classes=classes):
            inventory = rows.add(row)
            rows.now = from_moment(now)
            rows.inventories[inventory.key] = inventory
    locked = set(rows.inventories)
    _find(connection, rows, keys)  # the providers without them, and shares
    if rows.inventories.keys() != locked:
        raise busy("inventory", "it was made, or its shares were changed, in between")


def _find(connection: Connection, rows: StoredRows, keys: Collection[Key]) -> None:
    """Add the missing inventories and those that they share."""
    missing = {key for key in keys if key not in rows.inventories}
    uuids, classes = {uuid for uuid, _ in missing}, list({name for _, name in missing})
    for now, *row in _FIND.rows_for(connection, uuids, classes=classes):
        rows.now = from_moment_or_none(now)
        _, uuid, name, root, resource_class, number, *_ = row
        if number is not None and (uuid, resource_class) in missing:
            rows.inventories[uuid, resource_class] = rows.add(row)
        else:
            rows.add_provider(uuid, name, root)
    _add_shares(connection, rows)


def _add_shares(connection: Connection, rows: StoredRows) -> None:
    """Read the shares of the inventories, and add the inventories that are shared."""
    by_numbers = {
        (inventory.provider_id, inventory.class_id): inventory
        for inventory in rows.inventories.values()
        if inventory.share_count
    }
    if not by_numbers:  # nearly always
        return
    shares: dict[Key, list[tuple[Key, int]]] = defaultdict(list)
    providers = {provider for provider, _ in by_numbers}
    classes = list({class_ for _, class_ in by_numbers})
    for provider, class_, factor, *row in _SHARES.rows_for(connection, providers, classes=classes):
        sharer = by_numbers.get((provider, class_))
        if sharer is not None:
            target = rows.add(row)
            rows.inventories.setdefault(target.key, target)
            shares[sharer.key].append((target.key, factor))
    for sharer in by_numbers.values():
        sharer.shares = tuple(shares[sharer.key])


def _lock(connection: Connection, rows: StoredRows) -> None:
    """Lock inventories and read them again: their figures and shares may have changed since."""
    by_number = {inventory.inventory_id: inventory for inventory in rows.inventories.values()}
    before = [(row, row.shares) for row in by_number.values() if row.shares]
    locked = _LOCK.rows_for(connection, by_number)
    if len(locked) != len(by_number):
        raise busy("inventory", "it was removed in between")
    for number, share_count, disabled_until, units, *figures in locked:
        inventory = by_number[number]
        inventory.removed_units = units
        inventory.disabled_until = from_moment_or_none(disabled_until)
        inventory.record = InventoryRecord(inventory.record.resource_class, *figures)
        if share_count != inventory.share_count:
            raise busy(inventory.provider, "its shares were changed")
    _add_shares(connection, rows)  # which cannot change any more
    for inventory, shares in before:
        if inventory.shares != shares:
            raise busy(inventory.provider, "its shares were changed")


def change_used(
    connection: Connection,
    nets: Mapping[int, int],
    counted: Collection[int],
    *,
    adopts: bool,
    bounds: Mapping[int, int],
) -> None:
    """Add the net change to ``used`` of each inventory, by number, and count the write.

    The guard of the statement repeats the rules that no defect elsewhere may break: the usage is
    never below zero, and never rises above the capacity or the limit of the write. A write that
    ``adopts`` may exceed both, at each of its inventories.

    :param counted: the inventories at which the write is counted
    :param bounds: limits by number, of some of the inventories
    """
    query = _ADOPT_USED if adopts else _CHANGE_WITHIN if bounds else _CHANGE_USED
    for part in chunks(sorted(nets), MOST_CHANGES):
        values = {
            "ids": part,
            "nets": [nets[number] for number in part],
            "counts": [int(number in counted) for number in part],
        }
        if bounds:
            values["bounds"] = [bounds.get(number, MAX_AMOUNT) for number in part]
        query.must_match(connection, len(part), functools.partial(_refused, len(part)), **values)


def _refused(expected: int, matched: int) -> Transient:
    return busy("used", f"{expected - matched} inventories refused a change")


# --- read for few writes, and for refusals ----------------------------------

#: The most inventories of one query for consumers.
_MOST_INVENTORIES = 64


# The few largest consumers of each inventory, in one statement for all of them.
_USERS = f"""SELECT * FROM (
    SELECT a.provider_id, a.class_id, c.name, a.used
    FROM allocations a JOIN consumers c ON c.id = a.consumer_id
    WHERE a.provider_id = :provider{{0}} AND a.class_id = :class{{0}}
    ORDER BY a.used DESC, c.name LIMIT {MOST_HOLDERS}) holders{{0}}"""
# The same of an inventory that others share: all that one consumer uses of it.
_USERS_OF_SHARED = f"""SELECT * FROM (
    SELECT :provider{{0}} AS provider, :class{{0}} AS class, c.name, SUM(drawn.used) AS used FROM (
        SELECT consumer_id, used FROM allocations
        WHERE provider_id = :provider{{0}} AND class_id = :class{{0}}
        UNION ALL SELECT a.consumer_id, a.used * s.factor FROM shares s
        JOIN allocations a ON a.provider_id = s.provider_id AND a.class_id = s.class_id
        WHERE s.of_provider_id = :provider{{0}} AND s.of_class_id = :class{{0}}) drawn
    JOIN consumers c ON c.id = drawn.consumer_id
    GROUP BY c.name ORDER BY SUM(drawn.used) DESC, c.name
    LIMIT {MOST_HOLDERS}) drawers{{0}}"""
_SHARED = SQL("""
    SELECT DISTINCT of_provider_id, of_class_id FROM shares
    WHERE of_provider_id IN :providers* AND of_class_id IN :classes*""")
_UNIT_CONSUMERS = SQL("""
    SELECT p.uuid, u.unit, c.name FROM allocation_units u
    JOIN resource_providers p ON p.id = u.provider_id JOIN consumers c ON c.id = u.consumer_id
    WHERE p.uuid IN :uuids* AND u.unit IN :units*""")


_ROOTS = SQL("SELECT id, root_id FROM resource_providers WHERE uuid IN :uuids*")
_TREES = SQL(f"""
    SELECT id, parent_id, name, {", ".join(tables.DISABLED)} FROM resource_providers
    WHERE root_id IN :roots*""")
_KINDS = SQL("""
    SELECT p.uuid, s.name, s.body FROM structures s
    JOIN resource_providers p ON p.id = s.provider_id WHERE p.uuid IN :uuids*""")
_UNITS = SQL("""
    SELECT p.uuid, u.unit FROM allocation_units u
    JOIN resource_providers p ON p.id = u.provider_id WHERE p.uuid IN :uuids*""")


_SET_GENERATION = SQL("UPDATE server_groups SET generation = :number WHERE id IN :ids*")
# a provider that is no pool of shared resources
_IS_NO_POOL = f"""NOT EXISTS (
    SELECT 1 FROM resource_provider_traits pt JOIN traits t ON t.id = pt.trait_id
    WHERE pt.provider_id = p.id AND t.name = '{SHARES}')"""
_MEMBERS = SQL(f"""
    SELECT DISTINCT c.server_group, c.name, root.name FROM consumers c
    JOIN allocations a ON a.consumer_id = c.id
    JOIN resource_providers p ON p.id = a.provider_id
    JOIN resource_providers root ON root.id = p.root_id
    WHERE c.server_group IN :names* AND c.gone = 0 AND {_IS_NO_POOL}""")
_HOSTS = SQL(f"""
    SELECT p.uuid, root.name FROM resource_providers p
    JOIN resource_providers root ON root.id = p.root_id
    WHERE p.uuid IN :uuids* AND {_IS_NO_POOL}""")


@functools.cache
def _of_each(query: str, count: int) -> SQL:
    """Return the query of several inventories."""
    return SQL(" UNION ALL ".join(query.format(position) for position in range(count)))


# --- consumers, read ------------------------------------------------------------------------------

_CONSUMER = """id, generation, gone, uuid, name, created_at, state, request, project_id, user_id,
 consumer_type, expires_at, writes, server_group"""

_CONSUMERS = SQL(f"SELECT {_CONSUMER} FROM consumers WHERE name IN :names* AND gone = 0")
_CONSUMERS_BY_NUMBER = SQL(f"SELECT {_CONSUMER} FROM consumers WHERE id IN :ids*")
# One row for each allocation, and one more for each further unit of it.
_ALLOCATIONS = SQL("""
    SELECT a.consumer_id, a.provider_id, a.class_id, a.used, u.unit, a.position FROM allocations a
    LEFT JOIN allocation_units u ON u.consumer_id = a.consumer_id
        AND u.provider_id = a.provider_id AND u.class_id = a.class_id
    WHERE a.consumer_id IN :ids*
    ORDER BY a.consumer_id, a.position, a.provider_id, a.class_id, u.unit""")
# Each inventory once, whatever the number of its consumers: joined to all their allocations, a
# planner may read every inventory. By old statistics MySQL would read all those of the classes.
_INVENTORIES = SQL(f"""
    SELECT {{mysql: STRAIGHT_JOIN}} i.provider_id, i.class_id, {_INVENTORY} FROM inventories i
    {{mysql: FORCE INDEX (uniq_inventories0provider_id0class_id)}}
    JOIN resource_providers p ON p.id = i.provider_id
    JOIN resource_classes c ON c.id = i.class_id
    WHERE i.provider_id IN :providers* AND i.class_id IN :classes*""")
_GENERATIONS = SQL("SELECT name, generation FROM consumers WHERE name IN :names* AND gone = 0")


@dataclasses.dataclass(frozen=True, slots=True)
class StoredConsumer:
    """A stored consumer.

    ``position`` is that of its last allocation, ``part`` numbers the query that read it.
    """

    number: int
    record: ConsumerRecord
    position: int
    part: int


def read_consumers(connection: Connection, names: Collection[str], rows: StoredRows) -> None:
    """Add the stored consumers of some names, and the inventories of their allocations.

    Cost: three queries.
    """
    # two such lists are in the statement that writes them
    for part, some_names in enumerate(chunks(list(names), MOST // 2)):
        stored = _CONSUMERS.rows(connection, names=some_names)
        uses, positions = _read_allocations(connection, [row[0] for row in stored], rows)
        for number, generation, _, *columns in stored:
            record = _record_of(generation, columns, uses[number])
            consumer = StoredConsumer(number, record, positions[number], part)
            rows.consumers[record.consumer] = consumer


def consumer_records(
    connection: Connection, consumers: Collection[str]
) -> dict[str, ConsumerRecord]:
    """Return the stored consumers of some names. Cost: three queries."""
    rows = StoredRows(connection)
    read_consumers(connection, consumers, rows)
    return rows.records


def _read_allocations(
    connection: Connection, numbers: Sequence[int], rows: StoredRows
) -> tuple[Mapping[int, Sequence[Use]], Mapping[int, int]]:
    """Return the allocations of consumers, and the position of the last one, by their numbers."""
    uses: dict[int, list[Use]] = defaultdict(list)
    positions: dict[int, int] = defaultdict(int)
    units: dict[tuple[int, int, int], list[str]] = {}
    amounts: dict[tuple[int, int, int], tuple[int, int]] = {}
    for consumer, provider, class_, amount, unit, at in _ALLOCATIONS.rows_for(connection, numbers):
        row = consumer, provider, class_
        amounts[row] = amount, at
        if unit is not None:
            units.setdefault(row, []).append(unit)
    inventories: dict[tuple[int, int], StoredInventory] = {}
    providers = {provider for _, provider, _ in amounts}
    classes = list({class_ for _, _, class_ in amounts})
    for provider, class_, *columns in _INVENTORIES.rows_for(connection, providers, classes=classes):
        inventory = inventories[provider, class_] = rows.add(columns)
        rows.inventories.setdefault(inventory.key, inventory)
    for (consumer, provider, class_), (amount, position) in amounts.items():
        if (provider, class_) not in inventories:  # released since, and then removed
            raise busy("inventory", "it was removed in between")
        inventory = inventories[provider, class_]
        names = tuple(units.get((consumer, provider, class_), ()))
        uses[consumer].append(Use(*inventory.key, amount, names, inventory.provider))
        positions[consumer] = position
    return uses, positions


def _record_of(generation: int, columns: Sequence[Any], uses: Iterable[Use]) -> ConsumerRecord:
    uuid, name, created_at, state, request, project, user, kind, expires_at, writes, group = columns
    return ConsumerRecord(
        uuid,
        name,
        from_moment(created_at),
        tuple(uses),
        state,
        None if request is None else StoredRequest(request),
        generation,
        project,
        user,
        kind,
        from_moment_or_none(expires_at),
        writes,
        group,
    )


def are_unchanged(connection: Connection, names: Collection[str], rows: StoredRows) -> bool:
    """Return True if consumers are still as they were read, the missing ones included."""
    generations: dict[str, int] = dict(_GENERATIONS.rows_for(connection, names))
    stored = rows.consumers
    return generations == {name: stored[name].record.generation for name in stored}


# --- consumers, written ---------------------------------------------------------------------------

_AS_READ = "WHERE id IN :ids* AND generation IN :generations*"
_PASS_ON = SQL(f"UPDATE consumers SET generation = :now, writes = writes + 1 {_AS_READ}")
_FORGET = SQL(
    f"UPDATE consumers SET generation = :now, writes = writes + 1, gone = :now {_AS_READ}"
)
_EMPTY = SQL("DELETE FROM allocations WHERE consumer_id IN :ids*")
#: The columns of a consumer that may change, and those of its claim.
_COLUMNS = (
    *("request", "project_id", "user_id", "consumer_type", "server_group"),
    *("state", "expires_at"),
)
_DESCRIPTION, _CLAIM = slice(0, 5), slice(5, 7)
_MAKE_CONSUMERS = Insert(
    tables.consumers,
    *("id", "uuid", "name", "gone", "generation", "created_at", "writes", *_COLUMNS),
)


def write_consumers(
    connection: Connection, effects: Sequence[ConsumerEffect], rows: StoredRows
) -> dict[str, int]:
    """Write consumers with their allocations: first the released amounts, then the allocated ones.

    Return the numbers of the consumers, by name.
    """
    numbers = {name: consumer.number for name, consumer in rows.consumers.items()}
    removed: list[StoredConsumer] = []
    changed: list[tuple[StoredConsumer, ConsumerEffect]] = []
    new: list[ConsumerEffect] = []
    for effect in effects:
        consumer = rows.consumers.get(effect.claim.consumer)
        if consumer is None:
            new.append(effect)
        elif effect.is_gone:
            removed.append(consumer)
        else:
            changed.append((consumer, effect))
    if changed:
        _write_generation(connection, [consumer for consumer, _ in changed], rows.number, _PASS_ON)
    if removed:
        _EMPTY.run_for(connection, [consumer.number for consumer in removed])
        _write_generation(connection, removed, rows.number, _FORGET)
    if changed:
        write_releases(
            connection, rows, [(consumer.number, effect) for consumer, effect in changed]
        )
        change_consumers(connection, changed)
    if new:
        numbers |= make_consumers(connection, [effect.claim for effect in new], rows.number)
    written = [(consumer.number, consumer.position, effect) for consumer, effect in changed]
    written += [(numbers[effect.claim.consumer], 0, effect) for effect in new]
    write_allocations(connection, rows, written)
    return numbers


def _write_generation(
    connection: Connection, consumers: Iterable[StoredConsumer], number: int, query: SQL
) -> None:
    """Store consumers at the next generation if they are still as they were read; lock them.

    The generations of all consumers of one query are compared as a set. That is enough: a query
    reads one moment, so no consumer can have reached a generation that another one had then.
    """
    parts: dict[int, list[StoredConsumer]] = defaultdict(list)
    for consumer in consumers:
        parts[consumer.part].append(consumer)
    for part in parts.values():
        ids = sorted(consumer.number for consumer in part)
        values = {"ids": ids, "generations": list({row.record.generation for row in part})}
        refused = functools.partial(changed_since, part[0].record.consumer)
        query.must_match(connection, len(ids), refused, now=number, **values)


def changed_since(consumer: str, _matched: int = 0) -> Transient:
    """Return the error that a consumer was written since it was read."""
    return busy(consumer, "other writes change it all the time")


def make_consumers(
    connection: Connection, records: Sequence[ConsumerRecord], generation: int
) -> dict[str, int]:
    """Insert consumers; return their numbers by name. Cost: one statement."""
    numbers = {record.consumer: draw_number() for record in records}
    values = [
        (
            *(numbers[record.consumer], record.uuid, record.consumer, 0, generation),
            *(moment(connection, record.created_at), 1, *_columns(connection, record)),
        )
        for record in records
    ]
    _MAKE_CONSUMERS.many(connection, values)
    return numbers


def change_consumers(
    connection: Connection, changed: Iterable[tuple[StoredConsumer, ConsumerEffect]]
) -> None:
    """Update the changed columns of consumers and of their claims. Cost: at most two statements."""
    values = [
        (consumer.number, _columns(connection, consumer.record), _columns(connection, effect.claim))
        for consumer, effect in changed
    ]
    for group in (_DESCRIPTION, _CLAIM):
        rows = [
            {"id": number, **dict(zip(_COLUMNS[group], now[group], strict=True))}
            for number, before, now in values
            if before[group] != now[group]
        ]
        statements.update(connection, tables.consumers, ["id"], rows)


def _columns(connection: Connection, record: ConsumerRecord) -> tuple[Any, ...]:
    """Return the values of the columns that may change, except for the generation."""
    return (
        None if record.request is None else record.request.text,
        record.project,
        record.user,
        record.consumer_type,
        record.group,
        record.state,
        None if record.expires_at is None else moment(connection, record.expires_at),
    )


# --- allocations and units ------------------------------------------------------------------------
#
# Releases are written before allocations, so that consumers can exchange inventories and units.
# The primary key (provider, unit) guarantees that a unit is allocated once: of two writers the
# second is refused as a duplicate, and its next try finds the consumer of the unit.

_KEYS = ("consumer_id", "provider_id", "class_id")
_MAKE_ALLOCATIONS = Insert(tables.allocations, *_KEYS, "used", "position")
_ALLOCATE_UNITS = Insert(tables.allocation_units, "provider_id", "unit", "consumer_id", "class_id")


def write_releases(
    connection: Connection, rows: StoredRows, effects: Iterable[tuple[int, ConsumerEffect]]
) -> None:
    """Write the released amounts and units of consumers, by number, and the changed amounts."""
    deletes: list[tuple[int, int, int]] = []
    updates: list[dict[str, int]] = []
    units: list[tuple[int, str]] = []
    for consumer, effect in effects:
        for change in effect.changes:
            inventory = rows.inventories[change.key]
            row = (consumer, inventory.provider_id, inventory.class_id)
            if not change.after:  # its units are deleted with it
                deletes.append(row)
                continue
            units += [(inventory.provider_id, unit) for unit in change.released_units]
            if change.before and change.after != change.before:
                updates.append(dict(zip(_KEYS, row, strict=True), used=change.after))
    statements.delete(connection, tables.allocation_units, ("provider_id", "unit"), units)
    statements.delete(connection, tables.allocations, _KEYS, deletes)
    statements.update(connection, tables.allocations, _KEYS, updates)


def write_allocations(
    connection: Connection, rows: StoredRows, effects: Iterable[tuple[int, int, ConsumerEffect]]
) -> None:
    """Insert the new allocations and units of consumers.

    :param effects: with the number of the consumer and the position of its last allocation
    """
    allocations: list[tuple[int, ...]] = []
    units: list[tuple[int, str, int, int]] = []
    for consumer, position, effect in effects:
        for change in effect.changes:
            inventory = rows.inventories[change.key]
            provider, class_ = inventory.provider_id, inventory.class_id
            if not change.before:
                position += 1
                allocations.append((consumer, provider, class_, change.after, position))
            units += [(provider, unit, consumer, class_) for unit in change.allocated_units]
    _MAKE_ALLOCATIONS.many(connection, allocations)
    _ALLOCATE_UNITS.many(connection, sorted(units))


# --- operations -----------------------------------------------------------------------------------
#
# Every write records its operation under the operation's id, in its own transaction: both are
# stored or neither is. So a write can be repeated. Of two writers of one operation the second waits
# at the unique id, fails, and returns the outcome of the first.
#
# An outcome is not stored. It is the present state of the consumers, unless another operation has
# written them since; then it is computed from the rows of the change feed.


_RECORD = Insert(tables.operations, "id", "uuid", "kind", "subject", "actor", "created_at")
_OPERATION = SQL("SELECT id, kind, subject FROM operations WHERE uuid = :uuid")
_CHANGES_OF = SQL("""
    SELECT part, what, consumer_id, provider_uuid, resource_class, used_before, used_after, taken,
    given FROM changes WHERE operation_id = :operation AND consumer_id IS NOT NULL ORDER BY part""")
_PROVIDER_NAMES = SQL("SELECT uuid, name FROM resource_providers WHERE uuid IN :uuids*")


def record_operation(
    connection: Connection, write: Write, number: int, now: datetime.datetime
) -> None:
    """Record an operation by its number."""
    operation, at = write.operation, moment(connection, now)
    values = (number, operation.id, write.kind, write.subject, operation.actor, at)
    _RECORD.many(connection, [values])


def find_outcome(connection: Connection, operation: Operation) -> Outcome | None:
    """Return the outcome of a recorded operation. Cost: one query, four more for its consumers."""
    for number, kind, subject in _OPERATION.rows(connection, uuid=operation.id):
        return Outcome(kind, subject, tuple(_outcomes(connection, number)))
    return None


def _outcomes(connection: Connection, operation: int) -> Iterator[ConsumerRecord]:
    """Yield the record of each consumer of an operation, in the order of its orders."""
    changes: dict[int, list[Sequence[Any]]] = {}
    for row in _CHANGES_OF.rows(connection, operation=operation):
        changes.setdefault(row[2], []).append(row)
    stored = {row[0]: row for row in _CONSUMERS_BY_NUMBER.rows_for(connection, changes)}
    unchanged = [n for n, row in stored.items() if row[1] == operation and not row[2]]
    uses_of, _ = _read_allocations(connection, unchanged, StoredRows(connection))
    uuids = {row[3] for rows in changes.values() for row in rows if row[3] is not None}
    names: dict[str, str] = dict(_PROVIDER_NAMES.rows_for(connection, uuids))
    for number, rows in changes.items():
        _, generation, removed_by, *columns = stored[number]
        is_removed = removed_by == operation
        if generation == operation and not removed_by:
            uses: Iterable[Use] = uses_of[number]
        else:
            uses = _uses_of_changes(rows, names, is_removed=is_removed)
        record = _record_of(operation, columns, uses)
        yield dataclasses.replace(record, state=RELEASED) if is_removed else record


def _uses_of_changes(
    changes: Iterable[Sequence[Any]], names: Mapping[str, str], *, is_removed: bool
) -> list[Use]:
    """Return the allocations after an operation of a consumer that was written since.

    They are those that the operation allocated; if it released the consumer, those it released.
    """
    uses: list[Use] = []
    for _, mode, _, uuid, resource_class, before, after, allocated, released in changes:
        if uuid is None or (is_removed and mode != Mode.SET):
            continue
        amount, text = (before, released) if is_removed else (after, allocated)
        if amount:
            units = tuple(sorted(json.loads(text))) if text else ()
            uses.append(Use(uuid, resource_class, amount, units, names.get(uuid, uuid)))
    return uses
