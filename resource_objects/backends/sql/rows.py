"""Provider trees as rows: locked and loaded for one write, and the differences written back.

The rules of a write are in ``store``: they change rows in memory and record each change in a
journal. This module loads the rows that a write of definitions concerns, and flushes the changes of
the journal. It contains no rule.

Locks, each in one statement, in the order of the row numbers: the providers that the write names
with the roots of their trees, then the inventories that change, with those of the orders of the
same write. The lock of a root keeps the structure, the shares and the disabled providers of its
tree unchanged, so everything else is read without a lock. A provider or inventory that appears
after it was searched for is locked later, out of order: the server resolves such a deadlock, and
the write is tried again (``retries``).

The number of statements does not depend on the number of providers, only on the depth of new trees.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.retries import Transient, busy
from resource_objects.backends.sql import names, statements, tables
from resource_objects.backends.sql.feed import REPORT, FeedRows
from resource_objects.backends.sql.statements import (
    SQL,
    Insert,
    disabled_columns,
    disabled_of,
    from_moment_or_none,
    moment,
)
from resource_objects.providers.columns import TIMES
from resource_objects.providers.definition import DefinitionChanges
from resource_objects.providers.disabled import Disabled
from resource_objects.providers.listing import ListedName
from resource_objects.providers.orders import Key, NameKind, Write
from resource_objects.providers.tree_shape import removed_of
from resource_objects.resources.records import InventoryRecord
from resource_objects.store.rows import InventoryRow, ProviderRow, Rows, Transaction, changes
from resource_objects.store.write import DefinitionWork, begin

_Row = TypeVar("_Row")
#: Changed rows by key, as they were and as they are; None is no row.
_Changed: TypeAlias = Mapping[Any, tuple[_Row | None, _Row | None]]
#: The parent of each provider of some trees, and why it is disabled itself.
_Structure: TypeAlias = dict[str, tuple[str | None, Disabled | None]]

_LOCATE = SQL("SELECT id, root_id FROM resource_providers WHERE uuid IN :uuids*")
# On PostgreSQL FOR NO KEY UPDATE does not block inserts of rows that refer to a provider.
_LOCK = SQL("""
    SELECT root_id, name FROM resource_providers WHERE id IN :ids* ORDER BY id
    {postgresql: FOR NO KEY UPDATE}{mysql: FOR UPDATE}""")
_TREES = SQL(f"""
    SELECT id, uuid, name, parent_id, root_id, generation, definition_writes, allocation_writes,
    {", ".join(TIMES)}, {", ".join(tables.DISABLED)}
    FROM resource_providers WHERE root_id IN :roots* ORDER BY id""")
_OWNERS = SQL("SELECT name, uuid FROM resource_providers WHERE name IN :names*")
_NUMBERS = SQL("SELECT uuid, id FROM resource_providers WHERE uuid IN :uuids*")
_REMOVED_DISABLED = SQL("""
    SELECT root_id, name, reason, disabled_by, since, until FROM removed_disabled_providers
    WHERE root_id IN :roots*""")
_SHARES_OF_TREES = SQL("""
    SELECT s.provider_id, s.class_id, s.of_provider_id, s.of_class_id, s.factor
    FROM resource_providers p JOIN shares s ON p.id = s.provider_id WHERE p.root_id IN :roots*""")
# by primary key: InnoDB locks rows in the order in which it reads them
_LOCK_INVENTORIES = SQL("""
    SELECT id, used, writes FROM inventories WHERE id IN :ids* ORDER BY id {server: FOR UPDATE}""")
_ALLOCATED = SQL("""
    SELECT provider_id, class_id, SUM(used) FROM allocations WHERE provider_id IN :ids*
    GROUP BY provider_id, class_id""")
_INSERT_PROVIDERS = Insert(
    tables.resource_providers,
    *("uuid", "name", "generation", "parent_id", "root_id", "created_at", "updated_at"),
)
_INSERT_INVENTORIES = Insert(
    tables.inventories, *("provider_id", "class_id", "shares", *tables.FIGURES)
)
_SET_ROOT = SQL("UPDATE resource_providers SET root_id = id WHERE id IN :ids*")
_DELETE_INVENTORIES = SQL("DELETE FROM inventories WHERE id IN :ids*")
#: In this order: a provider refers to its parent and its root.
_DELETE_PROVIDERS = (
    SQL("DELETE FROM resource_provider_traits WHERE provider_id IN :ids*"),
    SQL("DELETE FROM resource_provider_aggregates WHERE provider_id IN :ids*"),
    SQL("DELETE FROM structures WHERE provider_id IN :ids*"),
    SQL("DELETE FROM removed_disabled_providers WHERE root_id IN :ids*"),
    SQL("UPDATE resource_providers SET parent_id = NULL, root_id = NULL WHERE id IN :ids*"),
    SQL("DELETE FROM resource_providers WHERE id IN :ids*"),
)


def _of_providers(table: sa.Table, *columns: str) -> SQL:
    return SQL(
        f"SELECT provider_id, {', '.join(columns)} FROM {table.name} WHERE provider_id IN :ids*"
    )


_INVENTORIES = _of_providers(tables.inventories, "class_id", "id", "writes", *tables.FIGURES)
_DISABLED = _of_providers(tables.inventories, "id", "disabled_until", "removed_units")
_TRAITS = _of_providers(tables.resource_provider_traits, "trait_id")
_AGGREGATES = _of_providers(tables.resource_provider_aggregates, "aggregate_id")
_KINDS = _of_providers(tables.structures, "name", "classes", "body")


class TreeRows:
    """The trees that a write concerns: :meth:`lock`, :meth:`apply`, the orders, :meth:`remove`.

    :param number: of the operation
    :param now: the time of the database
    """

    def __init__(
        self, connection: Connection, write: Write, number: int, now: datetime.datetime
    ) -> None:
        self._connection = connection
        self._catalogue = names.catalogue_of(connection)
        self._write = write
        self._changes = write.definitions or DefinitionChanges("")
        #: uuids of the providers that new shares refer to
        self._targets = {
            share.of_uuid for definition in self._changes.sharing for share in definition.shares
        }
        self._is_sqlite = connection.dialect.name == "sqlite"
        self._rows = Rows()
        self._rows.provider_numbers = itertools.count(-1, -1)  # until they are inserted
        self._transaction = Transaction(self._rows, now, number)
        self._work: DefinitionWork | None = None
        self._trees: list[tuple[Any, ...]] = []
        self._numbers: dict[str, int] = {}  # of providers, by uuid
        self._uuids: dict[int, str] = {}  # of the stored providers, by number
        self._roots: dict[str, int] = {}
        self._structure: _Structure = {}  # of the trees as they are stored
        self._inventories: dict[Key, int] = {}  # their numbers

    def lock(self) -> None:
        """Lock the providers that the write names and their roots; load the structure of the trees.

        Cost: three statements.
        """
        located = _LOCATE.rows_for(self._connection, self._named())
        numbers = {number for row in located for number in row}
        if not self._is_sqlite:  # which locks the file
            for root, name in _LOCK.rows_for(self._connection, numbers):
                if root not in numbers:
                    raise Transient(exceptions.Stale("provider", name, "it was moved"))
        # only the roots among the numbers match
        self._trees = _TREES.rows_for(self._connection, numbers)
        self._uuids = {row[0]: row[1] for row in self._trees}
        self._numbers = {row[1]: row[0] for row in self._trees}
        self._roots = {row[1]: row[4] for row in self._trees}
        self._structure = {
            row[1]: (self._uuids.get(row[3] or 0), disabled_of(row[-4:])) for row in self._trees
        }

    def apply(self, inventories: Collection[int] = ()) -> None:
        """Carry out the steps before the orders (see the contract); without orders, all steps.

        :param inventories: numbers of inventories that the orders of the write are about
        """
        self._load(inventories)
        write = dataclasses.replace(self._write, names=(), groups=())
        self._work = begin(self._transaction, write)
        if self._work is not None and not write.orders:
            self._work.remove()
        self._flush()

    def remove(self) -> None:
        """Remove inventories and providers after the orders of the write."""
        if self._work is not None:
            self._lock_inventories(self._removed())
            self._work.remove()
            self._flush()

    def feed(self, rows: FeedRows) -> None:
        """Add the changed providers to the change feed."""
        transaction = self._transaction
        numbers = {new: self._numbers[uuid] for new, uuid in self._uuids.items() if new < 0}
        for root, uuid in transaction.definitions:
            rows.provider(numbers.get(root, root), uuid)
        for root, uuid in transaction.reports:
            rows.provider(numbers.get(root, root), uuid, REPORT)
        for root, change in transaction.disabled:
            rows.disabled(numbers.get(root, root), change)

    # --- the rows that the write concerns ---

    def _named(self) -> set[str]:
        """Return the uuids of all providers that the write names."""
        write = self._write
        named = {uuid for uuid, _ in write.unchanged} | {*write.reported, *write.adopted}
        named |= {order.provider_uuid for order in write.disabling}
        named |= {removal.uuid for removal in self._changes.removals}
        for definition in self._changes.definitions:
            named |= {definition.uuid, definition.parent_uuid or definition.uuid}
        return named | self._targets

    def _stored(self, uuids: Iterable[str]) -> set[int]:
        """Return the numbers of those of some providers that are stored."""
        return {self._numbers[uuid] for uuid in uuids if uuid in self._numbers}

    def _removed(self) -> set[Key]:
        """Return the stored inventories that the write removes."""
        removed = {(u.definition.uuid, name) for u in self._changes.updates for name in u.removed}
        providers = {removal.uuid for removal in self._changes.removals}
        return {key for key in self._inventories if key in removed or key[0] in providers}

    def _changing(self) -> set[Key]:
        """Return the stored inventories that the write changes or removes."""
        changing = self._removed()
        for update in self._changes.updates:
            uuid = update.definition.uuid
            changing |= {(uuid, record.resource_class) for record in update.changed}
        for definition in self._changes.sharing:
            uuid, rows = definition.uuid, self._rows
            classes = rows.providers[uuid].classes if uuid in rows.providers else ()
            before = {
                ((uuid, n), share) for n in classes for share in rows.inventories[uuid, n].shares
            }
            after = {
                ((uuid, share.resource_class), ((share.of_uuid, share.of_class), share.factor))
                for share in definition.shares
            }
            for source, (target, _) in before ^ after:
                changing |= {source, target}
        return changing & self._inventories.keys()

    # --- loading ---

    def _load(self, inventories: Collection[int]) -> None:
        """Load the tables that the write concerns. Cost: nine statements, most of them optional."""
        rows, updates = self._rows, self._changes.updates
        if self._changes.creates or self._changes.removals:
            roots = {*self._roots.values()}
            for root, name, *facts in _REMOVED_DISABLED.rows_for(self._connection, roots):
                key = self._uuids[root], name
                rows.removed_disabled.put_unjournaled(key, None, disabled_of(facts))
        with_kinds = [u.definition.uuid for u in updates if u.changed or u.kinds_changed]
        kinds = self._rows_of(_KINDS, self._stored(with_kinds))
        shares = self._read_shares()
        stored = self._rows_of(_INVENTORIES, self._with_inventories(shares))
        numbers = {row[0] for stored_rows in stored.values() for row in stored_rows}
        classes = self._names_of(NameKind.RESOURCE_CLASS, numbers)
        with_traits = [u.definition.uuid for u in updates if u.traits_added or u.traits_removed]
        traits = self._names_of_providers(_TRAITS, NameKind.TRAIT, with_traits)
        members = [u.definition.uuid for u in updates if u.aggregates_added or u.aggregates_removed]
        aggregates = self._names_of_providers(_AGGREGATES, NameKind.AGGREGATE, members)
        structure = self._trees if self._changes else self._named_with_ancestors()
        for id, uuid, name, _, _, generation, written, allocated, *facts in structure:
            parent, reason = self._structure[uuid]
            times = dict(zip(TIMES, map(from_moment_or_none, facts), strict=False))
            provider = ProviderRow(
                id,
                uuid,
                name,
                parent,
                traits.get(id, frozenset()),
                aggregates.get(id, frozenset()),
                tuple([classes[row[0]] for row in sorted(stored.get(id, ()), key=itemgetter(1))]),
                tuple([names.kind_record(*row) for row in kinds.get(id, ())]),
                generation,
                writes=allocated,
                definition_writes=written,
                disabled=reason,
                **times,
            )
            rows.providers.put_unjournaled(uuid, None, provider)
        self._add_inventories(stored, shares, classes)
        if not self._is_sqlite:
            self._lock_inventories(self._changing(), inventories)
        self._load_allocated(classes)
        stated = {definition.name for definition in self._changes.definitions}
        owners = _OWNERS.rows_for(self._connection, stated - rows.provider_named.key.keys())
        rows.provider_named.key.update(owners)

    def _named_with_ancestors(self) -> list[tuple[Any, ...]]:
        """Return the rows of the named providers and their ancestors, of trees of thousands."""
        row_of = {row[0]: row for row in self._trees}
        loaded: dict[int, tuple[Any, ...]] = {}
        for number in self._stored(self._named()):
            above: int | None = number
            while above is not None:
                loaded[above] = row_of[above]
                above = row_of[above][3]
        return list(loaded.values())

    def _with_inventories(self, shares: Iterable[Sequence[Any]]) -> set[int]:
        """Return the providers whose inventories the rules read."""
        uuids = {
            update.definition.uuid
            for update in self._changes.updates
            if update.changed or update.removed or update.shares_changed or update.expected_use
        }
        uuids |= {removal.uuid for removal in self._changes.removals}
        uuids |= self._targets
        return self._stored(uuids) | {number for row in shares for number in (row[0], row[2])}

    def _read_shares(self) -> list[tuple[Any, ...]]:
        """Read the shares of the trees, if the write may change or break some."""
        may_break = self._changes.removals or any(
            update.removed
            or self._structure.get(update.definition.uuid, (None,))[0]
            != update.definition.parent_uuid
            for update in self._changes.updates
        )
        if not may_break and not self._changes.sharing:
            return []
        return _SHARES_OF_TREES.rows_for(self._connection, {*self._roots.values()})

    def _add_inventories(
        self,
        stored: Mapping[int, Sequence[Sequence[Any]]],
        shares: Iterable[Sequence[Any]],
        classes: Mapping[int, str],
    ) -> None:
        uuids = self._uuids
        shares_of: dict[Key, list[tuple[Key, int]]] = defaultdict(list)
        for provider, class_, of_provider, of_class, factor in shares:
            target = uuids[of_provider], classes[of_class]
            shares_of[uuids[provider], classes[class_]].append((target, factor))
        for id, stored_rows in stored.items():
            for class_, number, writes, *figures in stored_rows:
                key = uuids[id], classes[class_]
                record = InventoryRecord(key[1], *figures)
                row = InventoryRow(record, 0, writes, tuple(shares_of.get(key, ())))
                self._rows.inventories.put_unjournaled(key, None, row)
                self._inventories[key] = number

    def _lock_inventories(self, keys: Iterable[Key], numbers: Collection[int] = ()) -> None:
        """Lock inventories, and read again how much of them is used."""
        key_of = {self._inventories[key]: key for key in keys}
        ids = {*key_of, *numbers}
        locked = _LOCK_INVENTORIES.rows_for(self._connection, ids)
        if len(locked) != len(ids):
            raise busy("inventory", "it was removed in between")
        inventories = self._rows.inventories
        for number, used, writes in locked:
            if number in key_of:
                row = inventories[key_of[number]]
                now = InventoryRow(row.record.using(used), row.direct, writes, row.shares)
                inventories.put_unjournaled(key_of[number], row, now)

    def _load_allocated(self, classes: Mapping[int, str]) -> None:
        """Load what is allocated at each inventory whose shares change."""
        inventories = self._rows.inventories
        sharing = {u.definition.uuid for u in self._changes.updates if u.shares_changed}
        used = {uuid for (uuid, _), row in inventories.rows.items() if row.record.used}
        for provider, class_, amount in _ALLOCATED.rows_for(
            self._connection, self._stored(sharing & used)
        ):
            key = self._uuids[provider], classes[class_]
            row = inventories[key]
            now = dataclasses.replace(row, direct=int(amount))  # a Decimal on servers
            inventories.put_unjournaled(key, row, now)

    def _rows_of(self, query: SQL, providers: Collection[int]) -> dict[int, list[Sequence[Any]]]:
        """Return the rows of a table for some providers, by provider."""
        rows: dict[int, list[Sequence[Any]]] = {}
        for number, *row in query.rows_for(self._connection, providers):
            rows.setdefault(number, []).append(row)
        return rows

    def _names_of(self, kind: NameKind, numbers: Collection[int]) -> dict[int, str]:
        """Load names by number."""
        name_of = self._catalogue[kind].names(self._connection, numbers)
        for number, name in name_of.items():
            self._rows.names.put_unjournaled((kind, name), None, ListedName(number, name))
        return name_of

    def _names_of_providers(
        self, query: SQL, kind: NameKind, uuids: Iterable[str]
    ) -> dict[int, frozenset[str]]:
        rows = self._rows_of(query, self._stored(uuids))
        name_of = self._names_of(kind, {number for part in rows.values() for (number,) in part})
        return {
            provider: frozenset([name_of[number] for (number,) in numbers])
            for provider, numbers in rows.items()
        }

    # --- flushing ---

    def _flush(self) -> None:
        """Write the changes of the journal. Cost: three statements at most for each table."""
        rows = self._rows
        changed: dict[int, dict[Any, Any]] = defaultdict(dict)
        for table, key, was, now in changes(rows.journal):
            changed[id(table)][key] = was, now
        providers: _Changed[ProviderRow] = changed[id(rows.providers)]
        inventories: _Changed[InventoryRow] = changed[id(rows.inventories)]
        self._free_names(providers)
        self._insert_providers([now for was, now in providers.values() if now and not was])
        self._update_providers(providers)
        self._create_names(changed[id(rows.names)])
        self._write_inventories(inventories)
        write = self._write_parts
        write(tables.shares, 4, self._share_rows, inventories)
        remaining = {uuid: row for uuid, row in providers.items() if row[1] is not None}
        write(tables.resource_provider_traits, 2, self._trait_rows, remaining)
        write(tables.resource_provider_aggregates, 2, self._aggregate_rows, remaining)
        write(tables.structures, 2, self._kind_rows, remaining)
        removed = changed[id(rows.removed_disabled)]
        write(tables.removed_disabled_providers, 2, self._removed_rows, removed)
        self._pass_down(providers, inventories)
        ids = [self._inventories[key] for key, (was, now) in inventories.items() if not now]
        _DELETE_INVENTORIES.run_for(self._connection, ids)
        numbers = [was.number for was, now in providers.values() if was and not now]
        for statement in _DELETE_PROVIDERS:
            statement.run_for(self._connection, numbers)
        rows.commit()

    def _write_parts(
        self,
        table: sa.Table,
        key: int,
        parts: Callable[[Any, Any], Iterable[tuple[Any, ...]]],
        changed: _Changed[Any],
    ) -> None:
        """Write the table of what changed rows consist of. Cost: two statements.

        :param key: how many of the first columns are the key of the table
        :param parts: returns the rows of the table for a row, from the key of that row and the row
        """
        old = {part for name, (was, _) in changed.items() if was for part in parts(name, was)}
        new = {part for name, (_, now) in changed.items() if now for part in parts(name, now)}
        statements.replace(self._connection, table, key, old, new)

    def _free_names(self, changed: _Changed[ProviderRow]) -> None:
        """Take names from providers that give them up: two providers may exchange theirs."""
        owners = {now.name: now for was, now in changed.values() if now and now != was}
        leaving = [removal.uuid for removal in self._changes.removals]  # maybe not removed yet
        before = {uuid: self._rows.providers.get(uuid) for uuid in leaving}
        before |= {uuid: was for uuid, (was, _) in changed.items()}
        freed = [
            {"id": was.number, "name": f"{tables.GIVEN_UP}{was.name}"}
            for uuid, was in before.items()
            if was is not None and owners.get(was.name, was).uuid != uuid
        ]
        statements.update(self._connection, tables.resource_providers, ["id"], freed)

    def _insert_providers(self, providers: Sequence[ProviderRow]) -> None:
        """Insert providers level by level: a child refers to the number of its parent."""
        numbers, roots = self._numbers, self._roots
        at = moment(self._connection, self._transaction.now)
        while providers:
            level = [p for p in providers if p.parent_uuid is None or p.parent_uuid in numbers]
            rows = []
            for provider in level:
                above = provider.parent_uuid or ""
                values = provider.uuid, provider.name, provider.generation
                rows.append((*values, numbers.get(above), roots.get(above), at, at))
            _INSERT_PROVIDERS.many(self._connection, rows)
            numbers.update(_NUMBERS.rows_for(self._connection, [p.uuid for p in level]))
            new_roots = [numbers[p.uuid] for p in level if p.parent_uuid is None]
            _SET_ROOT.run_for(self._connection, new_roots)
            for provider in level:
                roots[provider.uuid] = roots.get(provider.parent_uuid or "", numbers[provider.uuid])
                self._uuids[provider.number] = provider.uuid
            providers = [provider for provider in providers if provider.uuid not in numbers]

    def _update_providers(self, changed: _Changed[ProviderRow]) -> None:
        updates = [
            {"id": self._numbers[uuid], **values}
            for uuid, (was, now) in changed.items()
            if now is not None and (values := self._changed_columns(was, now))
        ]
        statements.update(self._connection, tables.resource_providers, ["id"], updates)
        if any(was and now and was.parent_uuid != now.parent_uuid for was, now in changed.values()):
            root_of = {
                uuid: self._numbers[self._rows.root(uuid).uuid] for uuid in self._rows.providers
            }
            moved = [
                {"id": self._numbers[uuid], "root_id": root}
                for uuid, root in root_of.items()
                if root != self._roots[uuid]
            ]
            statements.update(self._connection, tables.resource_providers, ["id"], moved)

    def _changed_columns(self, was: ProviderRow | None, now: ProviderRow) -> dict[str, Any]:
        """Return the changed columns of a provider; of a new one, those that were not inserted."""
        connection = self._connection
        values: dict[str, Any] = {}
        if was is not None and was.generation != now.generation:
            values = {
                "name": now.name,
                "parent_id": self._numbers.get(now.parent_uuid or ""),
                "generation": now.generation,
                "updated_at": moment(connection, self._transaction.now),
            }
        was = was or _NEW
        if was.definition_writes != now.definition_writes:
            values["definition_writes"] = now.definition_writes
        if was.writes != now.writes:
            values["allocation_writes"] = now.writes
        for name in TIMES:
            time = getattr(now, name)
            if time is not None and time != getattr(was, name):
                values[name] = moment(connection, time)
        if was.disabled != now.disabled:
            facts = disabled_columns(connection, now.disabled)
            values |= zip(tables.DISABLED, facts, strict=True)
        return values

    def _create_names(self, changed: _Changed[ListedName]) -> None:
        """Insert the new names that do not exist yet, and load the numbers of all new names."""
        new: dict[NameKind, list[str]] = defaultdict(list)
        for kind, name in changed:
            new[kind].append(name)
        for kind, listed in new.items():
            for name, number in self._catalogue[kind].ensure(self._connection, listed).items():
                self._rows.names.put_unjournaled((kind, name), None, ListedName(number, name))

    def _write_inventories(self, changed: _Changed[InventoryRow]) -> None:
        new: list[tuple[Any, ...]] = []
        updates: list[dict[str, Any]] = []
        for key, (was, now) in changed.items():
            if was is None and now is not None:
                new.append((*self._numbered(key), len(now.shares), *_figures(now.record)))
            elif was is not None and now is not None:
                if was.record != now.record:
                    figures = dict(zip(tables.FIGURES, _figures(now.record), strict=True))
                    updates.append({"id": self._inventories[key], **figures})
                if len(was.shares) != len(now.shares):  # loaded only if some may change
                    updates.append({"id": self._inventories[key], "shares": len(now.shares)})
        _INSERT_INVENTORIES.many(self._connection, new)
        statements.update(self._connection, tables.inventories, ["id"], updates)

    def _numbered(self, key: Key) -> tuple[int, int]:
        """Return the numbers of the provider and the class of an inventory."""
        return self._numbers[key[0]], self._rows.names[NameKind.RESOURCE_CLASS, key[1]].number

    def _share_rows(self, key: Key, inventory: InventoryRow) -> Iterator[tuple[Any, ...]]:
        for target, factor in inventory.shares:
            yield *self._numbered(key), *self._numbered(target), factor

    def _trait_rows(self, uuid: str, provider: ProviderRow) -> Iterator[tuple[Any, ...]]:
        for name in provider.traits:
            yield self._numbers[uuid], self._rows.names[NameKind.TRAIT, name].number

    def _aggregate_rows(self, uuid: str, provider: ProviderRow) -> Iterator[tuple[Any, ...]]:
        for name in provider.aggregates:
            yield self._numbers[uuid], self._rows.names[NameKind.AGGREGATE, name].number

    def _kind_rows(self, uuid: str, provider: ProviderRow) -> list[tuple[Any, ...]]:
        return [names.kind_columns(self._numbers[uuid], kind) for kind in provider.kinds]

    def _removed_rows(self, key: tuple[str, str], reason: Disabled) -> Iterator[tuple[Any, ...]]:
        yield self._numbers[key[0]], key[1], *disabled_columns(self._connection, reason)

    def _pass_down(
        self, providers: _Changed[ProviderRow], inventories: _Changed[InventoryRow]
    ) -> None:
        """Write to inventories until when they are disabled, and how many units were removed.

        A claim locks these rows and reads them locked: so no claim commits after a disable that it
        has not seen.
        """
        new = {uuid for (uuid, _), (was, _) in inventories.items() if was is None}
        before = _ends(self._structure)
        units = {uuid: count for uuid in new if (count := self._removed_units(uuid))}
        for uuid, (was, now) in providers.items():
            self._structure.pop(uuid, None)
            if now is not None:
                self._structure[uuid] = now.parent_uuid, now.disabled
                if was is not None and was.kinds != now.kinds:
                    units[uuid] = self._removed_units(uuid)
        ends = _ends(self._structure)
        differing = {uuid for uuid in self._structure if ends.get(uuid) != before.get(uuid)}
        differing |= {uuid for uuid in new if ends.get(uuid)}
        uuid_of = {self._numbers[uuid]: uuid for uuid in (*units, *differing)}
        changed: list[dict[str, Any]] = []
        for provider, stored in self._rows_of(_DISABLED, uuid_of).items():
            uuid = uuid_of[provider]
            end = ends.get(uuid)
            until = None if end is None else moment(self._connection, end)
            for number, *columns in stored:
                now_stored = [until, units.get(uuid, columns[1])]
                if columns != now_stored:
                    values = {"disabled_until": until, "removed_units": now_stored[1]}
                    changed.append({"id": number, **values})
        if not self._is_sqlite:
            _LOCK_INVENTORIES.rows_for(self._connection, [row["id"] for row in changed])
        statements.update(self._connection, tables.inventories, ["id"], changed)

    def _removed_units(self, uuid: str) -> int:
        provider = self._rows.providers.get(uuid)
        kinds = () if provider is None else provider.kinds
        return len(removed_of(((kind.resource_class, kind.body) for kind in kinds), ()))


def _ends(structure: _Structure) -> dict[str, datetime.datetime | None]:
    """Return until when providers are disabled, themselves or by one above; {} if none is."""
    if not any(reason for _, reason in structure.values()):
        return {}

    @functools.cache
    def end_of(uuid: str | None) -> datetime.datetime | None:
        if uuid is None:
            return None
        parent, reason = structure[uuid]
        ends = [end_of(parent), None if reason is None else reason.ends_at]
        return max(filter(None, ends), default=None)

    return {uuid: end_of(uuid) for uuid in structure}


_figures = attrgetter(*tables.FIGURES)
#: A provider as it is inserted, as far as other columns are concerned.
_NEW = ProviderRow(0, "", "")


# --- locked providers, without their trees ---

_COLUMNS = "SELECT uuid, id, name, generation FROM resource_providers"
_FIND = SQL(f"{_COLUMNS} WHERE uuid IN :uuids*")
_SHARE = SQL(f"""{_COLUMNS} WHERE id IN :ids*
    ORDER BY id {{postgresql: FOR SHARE}}{{mysql: LOCK IN SHARE MODE}}""")
_LOCK_ALONE = SQL(f"{_COLUMNS} WHERE id IN :ids* ORDER BY id FOR UPDATE")


def lock_providers(
    connection: Connection, uuids: Collection[str], *, is_shared: bool
) -> list[tuple[str, int, str, int]]:
    """Lock providers in the order of their numbers; return their uuid, id, name and generation.

    Cost: one statement with SQLite, else two.

    :param is_shared: whether several writes can lock them at once
    """
    rows = _FIND.rows_for(connection, uuids)
    if connection.dialect.name == "sqlite":  # where the writer has the lock of the file
        return rows
    return (_SHARE if is_shared else _LOCK_ALONE).rows_for(connection, [row[1] for row in rows])


def check_unchanged(connection: Connection, write: Write, now: datetime.datetime) -> None:
    """Raise unless the providers of a write are at its generations (``Write.unchanged``).

    They cannot change until the write ends. Cost: as :func:`lock_providers`.

    :raises Stale: if one is not
    """
    rows = Rows()
    uuids = {uuid for uuid, _ in write.unchanged}
    for uuid, number, name, generation in lock_providers(connection, uuids, is_shared=True):
        provider = ProviderRow(number, uuid, name, generation=generation)
        rows.providers.put_unjournaled(uuid, None, provider)
    begin(Transaction(rows, now, 0), dataclasses.replace(write, names=(), groups=()))
