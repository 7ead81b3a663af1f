"""Provider trees as rows: locked and loaded for one write, and the differences written back.

The rules of a write of definitions are in :mod:`resource_objects.store`. This module loads the rows
that such a write concerns into the tables that the rules work on, and flushes what they changed. It
contains no rule.

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
import itertools
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.retries import Transient
from resource_objects.backends.sql import disabled, names, statements, tables
from resource_objects.backends.sql.feed import FeedRows
from resource_objects.backends.sql.names import Catalogue, NameNumbers
from resource_objects.backends.sql.statements import SQL, chunks, from_moment, moment
from resource_objects.providers.definition import DefinitionChanges, ProviderDefinition
from resource_objects.providers.listing import ListedName
from resource_objects.providers.orders import Key, NameKind, Write
from resource_objects.providers.removed_units import removed_units
from resource_objects.resources.records import InventoryRecord
from resource_objects.store import tables as core
from resource_objects.store.rows import InventoryRow, ProviderRow, Rows
from resource_objects.store.transaction import Transaction
from resource_objects.store.write import begin

_K = TypeVar("_K", bound=Hashable)
_R = TypeVar("_R")

_providers = tables.resource_providers.c
_inventories = tables.inventories.c
_shares = tables.shares.c
_allocations = tables.allocations.c

_FIGURES = (
    *("total", "reserved", "min_unit", "max_unit", "step_size", "ratio_millionths", "capacity"),
)
_SHARE = ("provider_id", "class_id", "of_provider_id", "of_class_id")

_LOCATE = SQL("SELECT id, root_id FROM resource_providers WHERE uuid IN :uuids*")
# On PostgreSQL FOR NO KEY UPDATE does not block inserts of rows that refer to a provider.
_LOCK = SQL("""
    SELECT root_id, name FROM resource_providers WHERE id IN :ids* ORDER BY id
    {postgresql: FOR NO KEY UPDATE}{mysql: FOR UPDATE}""")
_TREES = SQL("""
    SELECT id, uuid, name, parent_id, root_id, generation, definition_writes, allocation_writes,
    reported_at, adopted_at, disabled_reason, disabled_by, disabled_since, disabled_until
    FROM resource_providers WHERE root_id IN :roots* ORDER BY id""")
_OWNERS = SQL("SELECT name, uuid FROM resource_providers WHERE name IN :names*")
_NUMBERS = SQL("SELECT uuid, id FROM resource_providers WHERE uuid IN :uuids*")
_SHARES_OF_TREES = SQL("""
    SELECT s.provider_id, s.class_id, s.of_provider_id, s.of_class_id, s.factor
    FROM resource_providers p JOIN shares s ON p.id = s.provider_id WHERE p.root_id IN :roots*""")
# by primary key: InnoDB locks rows in the order in which it reads them
_LOCK_INVENTORIES = SQL("""
    SELECT id, used, writes FROM inventories WHERE id IN :ids* ORDER BY id {server: FOR UPDATE}""")
_ALLOCATED = SQL("""
    SELECT provider_id, class_id, SUM(used) FROM allocations WHERE provider_id IN :ids*
    GROUP BY provider_id, class_id""")
_SET_ROOT = SQL("UPDATE resource_providers SET root_id = id WHERE id IN :ids*")
_UNLINK = SQL("UPDATE resource_providers SET parent_id = NULL, root_id = NULL WHERE id IN :ids*")


def _of_providers(table: sa.Table, *columns: str) -> SQL:
    return SQL(
        f"SELECT provider_id, {', '.join(columns)} FROM {table.name} WHERE provider_id IN :ids*"
    )


_INVENTORIES = _of_providers(tables.inventories, "class_id", "id", "writes", *_FIGURES, "used")
_INVENTORY_IDS = _of_providers(tables.inventories, "id")
_TRAITS = _of_providers(tables.resource_provider_traits, "trait_id")
_AGGREGATES = _of_providers(tables.resource_provider_aggregates, "aggregate_id")
_KINDS = _of_providers(tables.structures, "name", "classes", "body")


class TreeRows:
    """The trees that a write concerns: :meth:`lock`, :meth:`apply`, the orders, :meth:`remove`.

    :param number: of the operation
    :param now: the time of the database
    """

    def __init__(
        self,
        connection: Connection,
        catalogue: Catalogue,
        write: Write,
        number: int,
        now: datetime.datetime,
    ) -> None:
        self._connection = connection
        self._catalogue = catalogue
        self._write = write
        self._changes = write.definitions or DefinitionChanges("")
        self._now = now
        self._at = moment(connection, now)
        self._is_sqlite = connection.dialect.name == "sqlite"
        self._rows = Rows()
        self._rows.provider_numbers = itertools.count(-1, -1)  # until they are inserted
        self._transaction = Transaction(self._rows, now, number)
        self._flushing: list[tuple[core.Table[Any, Any], Any, Any, Any]] = []
        self._trees: list[Sequence[Any]] = []
        self._numbers: dict[str, int] = {}  # of providers, by uuid
        self._uuids: dict[int | None, str] = {}  # the reverse
        self._roots: dict[str, int] = {}
        self._inventory_numbers: dict[Key, int] = {}
        self._name_numbers: dict[NameKind, dict[str, int]] = {kind: {} for kind in NameKind}

    # --- loading ---

    def lock(self) -> None:
        """Lock the providers that the write names and their roots; load the structure of the trees.

        Cost: three statements.
        """
        named = sorted(self._named())
        located = {
            number
            for part in chunks(named)
            for row in _LOCATE.rows(self._connection, uuids=part)
            for number in row
        }
        for part in chunks(sorted(located)) if not self._is_sqlite else ():
            for root, name in _LOCK.rows(self._connection, ids=part):
                if root not in located:
                    raise Transient(exceptions.StaleDefinition(name, "it was moved"))
        for part in chunks(sorted(located)):  # of which the roots match
            self._trees += _TREES.rows(self._connection, roots=part)
        self._uuids = {row[0]: row[1] for row in self._trees}
        self._numbers = {row[1]: row[0] for row in self._trees}
        self._roots = {row[1]: row[4] for row in self._trees}

    def apply(self, inventories: Collection[int] = ()) -> None:
        """Carry out everything but the orders and the removals (see the contract), and flush it.

        :param inventories: numbers of inventories that the orders of the write are about
        """
        self._load(inventories)
        write = dataclasses.replace(self._write, names=(), groups=())  # which are written already
        self._definitions = begin(self._transaction, write)
        if self._definitions is not None and not write.orders:
            self._definitions.remove()
        self._flush()

    def remove(self) -> None:
        """Remove inventories and providers after the orders of the write, and flush it."""
        gone = [(update.definition.uuid, update.removed) for update in self._changes.updates]
        gone += [
            (one.uuid, self._rows.providers[one.uuid].classes) for one in self._changes.removals
        ]
        keys = [(uuid, name) for uuid, classes in gone for name in classes]
        self._lock_inventories(key for key in keys if key in self._inventory_numbers)
        if self._definitions is not None:
            self._definitions.remove()
        self._flush()

    def feed(self, told: FeedRows) -> None:
        """Add the entries of the changed providers to the change feed."""
        roots = self._root_numbers()
        for uuid, root in self.changed_providers():
            told.provider(uuid, [root])
        for root, uuid in self._transaction.reports:
            told.report(uuid, roots.get(root, root))
        for root, change in self._transaction.disabled:
            told.disabled(roots.get(root, root), change)

    def changed_providers(self) -> list[tuple[str, int]]:
        """Return the providers whose definition changed, each with the number of its root."""
        roots = self._root_numbers()
        return [(uuid, roots.get(root, root)) for root, uuid in self._transaction.definitions]

    def _root_numbers(self) -> dict[int, int]:
        """Return the numbers of inserted providers by those that they had until then."""
        providers = self._rows.providers.rows.values()
        return {one.number: self._numbers[one.uuid] for one in providers if one.number < 0}

    def _wanted(self) -> Iterator[ProviderDefinition]:
        yield from self._changes.creates
        for update in self._changes.updates:
            yield update.definition

    def _sharing(self) -> Iterator[ProviderDefinition]:
        """Yield the definitions whose shares replace the stored ones."""
        yield from (created for created in self._changes.creates if created.shares)
        yield from (one.definition for one in self._changes.updates if one.shares_changed)

    def _named(self) -> set[str]:
        """Return the uuids of all providers that the write names."""
        write = self._write
        named = {uuid for uuid, _ in write.unchanged} | {*write.reported, *write.adopted}
        named |= {order.provider_uuid for order in write.disabling}
        named |= {removal.uuid for removal in self._changes.removals}
        for one in self._wanted():
            named |= {one.uuid, one.parent_uuid or one.uuid}
        for one in self._sharing():
            named |= {share.of_uuid for share in one.shares}
        return named

    def _load(self, inventories: Collection[int]) -> None:
        """Load the tables that the write concerns. Cost: ten statements, most of them optional."""
        stored_rows, number, updates = self._rows, self._numbers, self._changes.updates
        stored = [update for update in updates if update.definition.uuid in number]
        self._load_removed_disabled()
        kinds = self._rows_of(_KINDS, self._with_kinds())
        shares = self._read_shares()
        inventories_of = self._rows_of(_INVENTORIES, self._with_inventories(shares))
        rows = {id: sorted(some, key=itemgetter(1)) for id, some in inventories_of.items()}
        classes = self._names_of(
            NameKind.RESOURCE_CLASS, {row[0] for some in rows.values() for row in some}
        )
        traits = self._read_names(
            _TRAITS,
            NameKind.TRAIT,
            [number[u.definition.uuid] for u in stored if u.traits_added or u.traits_removed],
        )
        aggregates = self._read_names(
            _AGGREGATES,
            NameKind.AGGREGATE,
            [
                number[u.definition.uuid]
                for u in stored
                if u.aggregates_added or u.aggregates_removed
            ],
        )
        for id, uuid, name, parent, _, generation, *more in self._trees:
            written, allocated, reported_at, adopted_at, *facts = more
            provider = ProviderRow(
                number=id,
                uuid=uuid,
                name=name,
                parent_uuid=self._uuids.get(parent),
                traits=traits.get(id, frozenset()),
                aggregates=aggregates.get(id, frozenset()),
                classes=tuple([classes[row[0]] for row in rows.get(id, ())]),
                kinds=tuple([names.kind_record(*row) for row in kinds.get(id, ())]),
                generation=generation,
                reported_at=None if reported_at is None else from_moment(reported_at),
                adopted_at=None if adopted_at is None else from_moment(adopted_at),
                writes=allocated,
                definition_writes=written,
                disabled=disabled.from_columns(facts),
            )
            stored_rows.providers.change(uuid, None, provider)
        self._add_inventories(rows, shares, classes)
        if not self._is_sqlite:
            self._lock_inventories(self._changing(), inventories)
        self._load_allocated(classes)
        owners = stored_rows.provider_named.key
        unknown = [one.name for one in self._wanted() if one.name not in owners]
        for part in chunks(unknown):
            owners.update(_OWNERS.rows(self._connection, names=part))

    def _add_inventories(
        self,
        rows: Mapping[int, Sequence[Sequence[Any]]],
        shares: Iterable[Sequence[Any]],
        classes: Mapping[int, str],
    ) -> None:
        uuids = self._uuids
        shares_of: dict[Key, list[tuple[Key, int]]] = defaultdict(list)
        for provider, class_, of_provider, of_class, factor in shares:
            source, of = (uuids[provider], classes[class_]), (uuids[of_provider], classes[of_class])
            shares_of[source].append((of, factor))
        for id, some in rows.items():
            for class_, inventory, writes, *figures in some:
                key = uuids[id], classes[class_]
                record = InventoryRecord(key[1], *figures)
                row = InventoryRow(record, 0, writes, tuple(shares_of.get(key, ())))
                self._rows.inventories.change(key, None, row)
                self._inventory_numbers[key] = inventory

    def _with_kinds(self) -> set[int]:
        """Return the providers whose structured resources are replaced."""
        updates = self._changes.updates
        found = {one.definition.uuid for one in updates if one.changed or one.kinds_changed}
        return {self._numbers[uuid] for uuid in found if uuid in self._numbers}

    def _with_inventories(self, shares: Iterable[Sequence[Any]]) -> set[int]:
        """Return the providers whose inventories the rules read."""
        found = {
            one.definition.uuid
            for one in self._changes.updates
            if one.changed or one.removed or one.shares_changed or one.expected_use
        }
        found |= {removal.uuid for removal in self._changes.removals}
        found |= {share.of_uuid for one in self._sharing() for share in one.shares}
        of_shares = {number for row in shares for number in (row[0], row[2])}
        return of_shares | {self._numbers[uuid] for uuid in found if uuid in self._numbers}

    def _read_shares(self) -> list[Sequence[Any]]:
        """Read the shares of the trees, if the write may change or break some."""
        parents = {row[1]: self._uuids.get(row[3]) for row in self._trees}
        is_needed = self._changes.removals or next(self._sharing(), None) is not None
        if not is_needed and not any(
            one.removed or parents.get(one.definition.uuid) != one.definition.parent_uuid
            for one in self._changes.updates
        ):
            return []
        return [
            row
            for part in chunks(sorted({row[4] for row in self._trees}))
            for row in _SHARES_OF_TREES.rows(self._connection, roots=part)
        ]

    def _load_allocated(self, classes: Mapping[int, str]) -> None:
        """Load what is allocated at each inventory whose shares change."""
        inventories = self._rows.inventories
        sharing = {one.definition.uuid for one in self._changes.updates if one.shares_changed}
        used = {uuid for (uuid, _), row in inventories.rows.items() if row.record.used}
        numbers = {self._numbers[uuid] for uuid in used & sharing}
        for provider, some in self._rows_of(_ALLOCATED, numbers).items():
            for class_, amount in some:
                key = self._uuids[provider], classes[class_]
                row = inventories[key]  # servers return a Decimal
                inventories.change(key, row, dataclasses.replace(row, direct=int(amount)))

    def _load_removed_disabled(self) -> None:
        """Load the disabled providers that were removed from the trees."""
        if not (self._changes.creates or self._changes.removals):
            return
        roots = {row[4] for row in self._trees}
        for root, name, *facts in disabled.removed_rows(self._connection, roots):
            reason = disabled.from_columns(facts)
            assert reason is not None  # the column is not null
            self._rows.removed_disabled.change((self._uuids[root], name), None, reason)

    def _rows_of(self, query: SQL, providers: Iterable[int]) -> dict[int, list[Sequence[Any]]]:
        """Return the rows of a table for some providers, by provider."""
        found: dict[int, list[Sequence[Any]]] = {}
        for part in chunks(sorted(providers)):
            for number, *row in query.rows(self._connection, ids=part):
                found.setdefault(number, []).append(row)
        return found

    def _look(self, kind: NameKind) -> NameNumbers:
        catalogue = self._catalogue
        return {
            NameKind.RESOURCE_CLASS: catalogue.classes,
            NameKind.TRAIT: catalogue.traits,
            NameKind.AGGREGATE: catalogue.aggregates,
        }[kind]

    def _names_of(self, kind: NameKind, numbers: Collection[int]) -> dict[int, str]:
        """Return names by number, and remember them for the flush."""
        found = self._look(kind).names(self._connection, numbers) if numbers else {}
        self._name_numbers[kind].update((name, number) for number, name in found.items())
        for number, name in found.items():
            self._rows.names.change((kind, name), None, ListedName(number, name))
        return found

    def _read_names(
        self, query: SQL, kind: NameKind, providers: Iterable[int]
    ) -> dict[int, frozenset[str]]:
        rows = self._rows_of(query, providers)
        names_of = self._names_of(kind, {number for some in rows.values() for (number,) in some})
        return {
            provider: frozenset(names_of[number] for (number,) in some)
            for provider, some in rows.items()
        }

    def _changing(self) -> set[Key]:
        """Return the stored inventories that the write changes or removes."""
        providers, found = self._rows.providers, set[Key]()
        for update in self._changes.updates:
            uuid = update.definition.uuid
            found |= {(uuid, record.resource_class) for record in update.changed}
            found |= {(uuid, name) for name in update.removed}
        for removal in self._changes.removals:
            kept = providers.get(removal.uuid)
            found |= {(removal.uuid, name) for name in (() if kept is None else kept.classes)}
        for one in self._sharing():
            kept = providers.get(one.uuid)
            before = {
                ((one.uuid, name), share)
                for name in (() if kept is None else kept.classes)
                for share in self._rows.inventories[one.uuid, name].shares
            }
            after = {
                ((one.uuid, s.resource_class), ((s.of_uuid, s.of_class), s.factor))
                for s in one.shares
            }
            for source, (of, _) in before ^ after:
                found |= {source, of}
        return found & self._inventory_numbers.keys()

    def _lock_inventories(self, keys: Iterable[Key], others: Collection[int] = ()) -> None:
        """Lock inventories, and read again how much of them is used."""
        keys = list(keys)
        key_of = {self._inventory_numbers[key]: key for key in keys}
        wanted = {*key_of, *others}
        count = 0
        for part in chunks(sorted(wanted)):
            for number, used, writes in _LOCK_INVENTORIES.rows(self._connection, ids=part):
                count += 1
                if number in key_of:
                    self._set_used(key_of[number], used, writes)
        if count != len(wanted):
            raise Transient(exceptions.DatabaseBusy("inventory", "it was removed in between"))

    def _set_used(self, key: Key, used: int, writes: int) -> None:
        before = self._rows.inventories[key]
        row = dataclasses.replace(before, record=before.record.using(used), writes=writes)
        self._rows.inventories.change(key, before, row)

    # --- flushing ---

    def _flush(self) -> None:
        """Write the differences. Cost: three statements at most for each table that changed."""
        self._flushing = list(core.changes(self._rows.journal))
        self._free_names()
        self._insert_providers()
        self._update_providers()
        self._write_inventories()
        self._write_names(NameKind.TRAIT, tables.resource_provider_traits, "trait_id")
        self._write_names(NameKind.AGGREGATE, tables.resource_provider_aggregates, "aggregate_id")
        self._write_kinds()
        self._write_disabled()
        self._delete()
        self._rows.commit()

    def _changed(self, table: core.Table[_K, _R]) -> Iterator[tuple[_K, _R | None, _R | None]]:
        """Yield each changed row of a table: its key, the row in the database and the row now."""
        return ((key, was, now) for of, key, was, now in self._flushing if of is table)

    def _free_names(self) -> None:
        """Take names from providers that give them up: two providers may swap theirs."""
        changed = {uuid: (was, now) for uuid, was, now in self._changed(self._rows.providers)}
        for removal in self._changes.removals:  # one that is created may take the name before
            changed.setdefault(removal.uuid, (self._rows.providers.get(removal.uuid), None))
        wanted = {
            now.name
            for was, now in changed.values()
            if now is not None and (was is None or was.name != now.name)
        }
        freed = [
            {"id": was.number, "name": f"{tables.GIVEN_UP}{was.name}"}
            for was, now in changed.values()
            if was is not None and was.name in wanted and (now is None or now.name != was.name)
        ]
        statements.update(self._connection, tables.resource_providers, ["id"], freed)

    def _insert_providers(self) -> None:
        """Insert providers level by level: a child refers to the number of its parent."""
        waiting = [
            now
            for _, was, now in self._changed(self._rows.providers)
            if was is None and now is not None
        ]
        numbers, roots = self._numbers, self._roots
        columns = ("uuid", "name", "generation", "root_id", "parent_id", "created_at", "updated_at")
        while waiting:
            level: list[ProviderRow] = []
            later: list[ProviderRow] = []
            for one in waiting:
                is_ready = one.parent_uuid is None or one.parent_uuid in numbers
                (level if is_ready else later).append(one)
            waiting = later
            rows = [
                (
                    *(one.uuid, one.name, one.generation),
                    *(
                        (None, None)
                        if one.parent_uuid is None
                        else (roots[one.parent_uuid], numbers[one.parent_uuid])
                    ),
                    *(self._at, self._at),
                )
                for one in level
            ]
            statements.insert_tuples(self._connection, tables.resource_providers, columns, rows)
            for part in chunks([one.uuid for one in level]):
                numbers.update(_NUMBERS.rows(self._connection, uuids=part))
            tops = [numbers[one.uuid] for one in level if one.parent_uuid is None]
            for ids in chunks(sorted(tops)):
                _SET_ROOT.run(self._connection, ids=ids)
            for one in level:
                above = one.parent_uuid
                roots[one.uuid] = numbers[one.uuid] if above is None else roots[above]

    def _update_providers(self) -> None:
        updates: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
        is_moved = False
        for uuid, was, now in self._changed(self._rows.providers):
            if now is None:
                continue
            if was is None:  # as it was inserted
                was = dataclasses.replace(now, reported_at=None, adopted_at=None)
            is_moved = is_moved or was.parent_uuid != now.parent_uuid
            before, after = self._columns_of(was), self._columns_of(now)
            values = {name: value for name, value in after.items() if value != before[name]}
            if "generation" in values:
                more = ("name", "parent_id", "definition_writes")
                values |= {name: after[name] for name in more} | {"updated_at": self._at}
            updates[tuple(sorted(values))].append({"id": self._numbers[uuid], **values})
        for columns, rows in updates.items():
            if columns:
                rows.sort(key=itemgetter("id"))
                statements.update(self._connection, tables.resource_providers, ["id"], rows)
        if is_moved:
            self._update_roots()

    def _columns_of(self, row: ProviderRow) -> dict[str, Any]:
        reported, adopted = row.reported_at, row.adopted_at
        return {
            "name": row.name,
            "parent_id": None if row.parent_uuid is None else self._numbers[row.parent_uuid],
            "generation": row.generation,
            "definition_writes": row.definition_writes,
            "allocation_writes": row.writes,
            "reported_at": None if reported is None else moment(self._connection, reported),
            "adopted_at": None if adopted is None else moment(self._connection, adopted),
        }

    def _update_roots(self) -> None:
        """Write the root of each provider that was moved, and of all below it."""
        rows = []
        for uuid in self._rows.providers:
            root = self._numbers[self._rows.root(uuid).uuid]
            if root != self._roots[uuid]:
                rows.append({"id": self._numbers[uuid], "root_id": root})
                self._roots[uuid] = root
        rows.sort(key=itemgetter("id"))
        statements.update(self._connection, tables.resource_providers, ["id"], rows)

    def _write_inventories(self) -> None:
        """Insert and update inventories with their shares; delete shares of those removed."""
        changed = [*self._changed(self._rows.inventories)]
        classes = self._name_numbers[NameKind.RESOURCE_CLASS]
        missing = {key[1] for key, _, now in changed if now is not None} - classes.keys()
        if missing:
            classes.update(self._catalogue.classes.ensure(self._connection, missing))
        new: list[tuple[Any, ...]] = []
        figures: list[dict[str, Any]] = []
        used: list[dict[str, Any]] = []
        for key, was, now in changed:
            if now is None:
                continue
            record, count = now.record, len(now.shares)
            if was is None:
                source = self._numbers[key[0]], classes[key[1]]
                new.append((*source, record.used, count, *_figures(record)))
                continue
            number = self._inventory_numbers[key]
            if _figures(was.record) != _figures(record) or len(was.shares) != count:
                values = dict(zip(_FIGURES, _figures(record), strict=True))
                figures.append({"id": number, "shares": count, **values})
            if was.record.used != record.used:
                used.append({"id": number, "used": record.used})
        old_shares, new_shares = self._changed_shares(changed)
        statements.delete(self._connection, tables.shares, old_shares)
        columns = ("provider_id", "class_id", "used", "shares", *_FIGURES)
        statements.insert_tuples(self._connection, tables.inventories, columns, new)
        for rows in (figures, used):
            rows.sort(key=itemgetter("id"))
            statements.update(self._connection, tables.inventories, ["id"], rows)
        statements.insert(self._connection, tables.shares, new_shares)

    def _changed_shares(
        self, changed: Iterable[tuple[Key, InventoryRow | None, InventoryRow | None]]
    ) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
        """Return the rows of shares to delete, and those to insert."""
        classes, numbers = self._name_numbers[NameKind.RESOURCE_CLASS], self._numbers
        old: list[dict[str, int]] = []
        new: list[dict[str, int]] = []
        for (uuid, name), was, now in changed:
            before = set(was.shares if was is not None else ())
            after = set(now.shares if now is not None else ())
            for (of_uuid, of_class), factor in before ^ after:
                pair = numbers[uuid], classes[name], numbers[of_uuid], classes[of_class]
                row = dict(zip(_SHARE, pair, strict=True))
                if ((of_uuid, of_class), factor) in before:
                    old.append(row)
                else:
                    new.append({**row, "factor": factor})
        return old, new

    def _write_names(self, kind: NameKind, table: sa.Table, column: str) -> None:
        """Write the traits or the aggregates of providers."""
        of = attrgetter("traits" if kind is NameKind.TRAIT else "aggregates")
        old: list[tuple[str, str]] = []
        new: list[tuple[str, str]] = []
        for uuid, was, now in self._changed(self._rows.providers):
            if now is not None:
                before = frozenset() if was is None else of(was)
                old += [(uuid, name) for name in before - of(now)]
                new += [(uuid, name) for name in of(now) - before]
        known = self._name_numbers[kind]
        missing = {name for _, name in new} - known.keys()
        if missing:
            known.update(self._look(kind).ensure(self._connection, missing))
        number = self._numbers
        removed = sorted((number[uuid], known[name]) for uuid, name in old)
        rows = [{"provider_id": provider, column: name} for provider, name in removed]
        statements.delete(self._connection, table, rows)
        added = sorted((number[uuid], known[name]) for uuid, name in new)
        statements.insert_tuples(self._connection, table, ("provider_id", column), added)

    def _write_kinds(self) -> None:
        wanted = {
            uuid: now.kinds
            for uuid, was, now in self._changed(self._rows.providers)
            if now is not None and (() if was is None else was.kinds) != now.kinds
        }
        inserted = {uuid for uuid, was, _ in self._changed(self._rows.providers) if was is None}
        replaced = sorted(self._numbers[uuid] for uuid in wanted.keys() - inserted)
        names.drop_kinds(self._connection, replaced)
        kinds = {self._numbers[uuid]: some for uuid, some in wanted.items()}
        names.insert_kinds(self._connection, kinds)

    def _write_disabled(self) -> None:
        """Write which providers are disabled, and pass it on to the inventories."""
        connection = self._connection
        facts = [
            {"id": self._numbers[uuid], **disabled.to_columns(connection, now.disabled)}
            for uuid, was, now in self._changed(self._rows.providers)
            if now is not None and (None if was is None else was.disabled) != now.disabled
        ]
        statements.update(connection, tables.resource_providers, ["id"], facts)
        old: list[dict[str, Any]] = []
        new: list[dict[str, Any]] = []
        for (root, name), before, after in self._changed(self._rows.removed_disabled):
            key = {"root_id": self._numbers[root], "name": name}
            old += [] if before is None else [key]
            if after is not None:
                new.append(key | disabled.to_removed_columns(connection, after))
        statements.delete(connection, tables.removed_disabled_providers, old)
        statements.insert(connection, tables.removed_disabled_providers, new)
        self._pass_down()

    def _pass_down(self) -> None:
        """Write to inventories until when they are disabled, and how many units were removed.

        A claim locks these rows and reads them locked: so no claim commits after a disable that it
        has not seen.
        """
        rows, changed = self._rows, [*self._changed(self._rows.providers)]
        inserted = {uuid for uuid, was, _ in changed if was is None}
        new = {uuid for (uuid, _), was, _ in self._changed(rows.inventories) if was is None}
        units = {uuid for uuid, was, now in changed if now and (not was or was.kinds != now.kinds)}
        units |= new
        counts: dict[Any, set[int]] = defaultdict(set)
        for uuid in units:
            provider = rows.providers.get(uuid)
            if provider is not None:
                described = ((kind.resource_class, kind.body) for kind in provider.kinds)
                count = len(removed_units(described))
                if count or uuid not in inserted:
                    counts[count].add(self._numbers[uuid])
        self._update_inventories("removed_units", counts)
        if not rows.disabled.keys and not any(was and was.disabled for _, was, _ in changed):
            return
        stored = rows.providers.rows | {uuid: was for uuid, was, _ in changed if was is not None}
        ends: dict[Any, set[int]] = defaultdict(set)
        for uuid in rows.providers:
            before = None if uuid in inserted | new else _end(stored, uuid)
            after = _end(rows.providers.rows, uuid)
            if after != before:
                end = None if after is None else moment(self._connection, after)
                ends[end].add(self._numbers[uuid])
        self._update_inventories("disabled_until", ends)

    def _update_inventories(self, column: str, providers: Mapping[Any, Collection[int]]) -> None:
        """Set one column of all inventories of some providers, by its value."""
        numbers = {number for some in providers.values() for number in some}
        if not numbers:
            return
        rows = self._rows_of(_INVENTORY_IDS, numbers)
        if not self._is_sqlite:
            for part in chunks(sorted(row[0] for some in rows.values() for row in some)):
                _LOCK_INVENTORIES.rows(self._connection, ids=part)
        changed = [
            {"id": row[0], column: value}
            for value, some in providers.items()
            for number in some
            for row in rows.get(number, ())
        ]
        changed.sort(key=itemgetter("id"))
        statements.update(self._connection, tables.inventories, ["id"], changed)

    def _delete(self) -> None:
        """Delete removed inventories and providers."""
        connection = self._connection
        inventories = sorted(
            self._inventory_numbers[key]
            for key, was, now in self._changed(self._rows.inventories)
            if was is not None and now is None
        )
        for part in chunks(inventories):
            connection.execute(sa.delete(tables.inventories).where(_inventories.id.in_(part)))
        providers = sorted(
            was.number for _, was, now in self._changed(self._rows.providers) if was and now is None
        )
        for part in chunks(providers):
            for column in (
                tables.resource_provider_traits.c.provider_id,
                tables.resource_provider_aggregates.c.provider_id,
                tables.structures.c.provider_id,
                tables.removed_disabled_providers.c.root_id,
            ):
                connection.execute(sa.delete(column.table).where(column.in_(part)))
            _UNLINK.run(connection, ids=part)
        for part in chunks(providers):
            connection.execute(sa.delete(tables.resource_providers).where(_providers.id.in_(part)))


_figures = attrgetter(*_FIGURES)


def _end(providers: Mapping[str, ProviderRow], uuid: str | None) -> datetime.datetime | None:
    """Return until when a provider is disabled, itself or by an ancestor; None if it is not."""
    ends: list[datetime.datetime] = []
    while uuid is not None:
        provider = providers[uuid]
        if provider.disabled is not None:
            ends.append(provider.disabled.ends_at)
        uuid = provider.parent_uuid
    return max(ends, default=None)
