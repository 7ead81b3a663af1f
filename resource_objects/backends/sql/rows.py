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
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.retries import Transient
from resource_objects.backends.sql import disabled, names, statements, tables
from resource_objects.backends.sql.feed import FeedRows
from resource_objects.backends.sql.names import Catalogue
from resource_objects.backends.sql.statements import SQL, chunks, from_moment, moment
from resource_objects.providers.definition import DefinitionChanges, ProviderDefinition
from resource_objects.providers.disabled import FOREVER, Disabled
from resource_objects.providers.listing import ListedName
from resource_objects.providers.orders import Key, NameKind, Write
from resource_objects.providers.removed_units import removed_units
from resource_objects.resources.records import InventoryRecord
from resource_objects.store.definitions import DefinitionWork
from resource_objects.store.rows import InventoryRow, ProviderRow, Rows
from resource_objects.store.tables import changes
from resource_objects.store.transaction import Transaction
from resource_objects.store.write import begin

_Row = TypeVar("_Row")
#: Changed rows by key, as they were and as they are; None stands for no row.
_Changed: TypeAlias = Mapping[Any, tuple[_Row | None, _Row | None]]

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


_INVENTORIES = _of_providers(tables.inventories, "class_id", "id", "writes", *_FIGURES, "used")
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
        self._is_sqlite = connection.dialect.name == "sqlite"
        self._rows = Rows()
        self._rows.provider_numbers = itertools.count(-1, -1)  # until they are inserted
        self._transaction = Transaction(self._rows, now, number)
        self._work: DefinitionWork | None = None
        self._trees: list[Sequence[Any]] = []
        self._numbers: dict[str, int] = {}  # of providers, by uuid
        self._uuids: dict[int | None, str] = {}  # of the stored providers, by number
        self._roots: dict[str, int] = {}
        self._parents: dict[str, str | None] = {}
        self._disabled: dict[str, datetime.datetime] = {}  # until when, by the row of each
        self._inventories: dict[Key, int] = {}  # their numbers
        self._names: dict[NameKind, dict[str, int]] = {kind: {} for kind in NameKind}

    def lock(self) -> None:
        """Lock the providers that the write names and their roots; load the structure of the trees.

        Cost: three statements.
        """
        located = {
            number
            for part in chunks(sorted(self._named()))
            for row in _LOCATE.rows(self._connection, uuids=part)
            for number in row
        }
        for part in chunks(sorted(located)) if not self._is_sqlite else ():
            for root, name in _LOCK.rows(self._connection, ids=part):
                if root not in located:
                    raise Transient(exceptions.Stale("provider", name, "it was moved"))
        for part in chunks(sorted(located)):  # only the roots among them match
            self._trees += _TREES.rows(self._connection, roots=part)
        self._uuids = {row[0]: row[1] for row in self._trees}
        self._numbers = {row[1]: row[0] for row in self._trees}
        self._roots = {row[1]: row[4] for row in self._trees}
        self._parents = {row[1]: self._uuids.get(row[3]) for row in self._trees}
        self._disabled = {
            row[1]: FOREVER if row[-1] is None else from_moment(row[-1])
            for row in self._trees
            if row[-4] is not None
        }

    def apply(self, inventories: Collection[int] = ()) -> None:
        """Carry out what comes before the orders (see the contract); without orders, everything.

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
        for root, uuid in transaction.definitions:
            rows.provider(uuid, [self._number_of(root)])
        for root, uuid in transaction.reports:
            rows.report(uuid, self._number_of(root))
        for root, change in transaction.disabled:
            rows.disabled(self._number_of(root), change)

    def _number_of(self, number: int) -> int:
        """Return the number in the database of a provider that may be new."""
        return number if number > 0 else self._numbers[self._uuids[number]]

    # --- what the write concerns ---

    def _stated(self) -> Iterator[ProviderDefinition]:
        yield from self._changes.creates
        for update in self._changes.updates:
            yield update.definition

    def _sharing(self) -> Iterator[ProviderDefinition]:
        """Yield the definitions whose shares replace the stored ones."""
        yield from (created for created in self._changes.creates if created.shares)
        yield from (update.definition for update in self._changes.updates if update.shares_changed)

    def _named(self) -> set[str]:
        """Return the uuids of all providers that the write names."""
        write = self._write
        named = {uuid for uuid, _ in write.unchanged} | {*write.reported, *write.adopted}
        named |= {order.provider_uuid for order in write.disabling}
        named |= {removal.uuid for removal in self._changes.removals}
        for definition in self._stated():
            named |= {definition.uuid, definition.parent_uuid or definition.uuid}
        return named | {
            share.of_uuid for definition in self._sharing() for share in definition.shares
        }

    def _stored(self, uuids: Iterable[str]) -> set[int]:
        """Return the numbers of those of some providers that are stored."""
        return {self._numbers[uuid] for uuid in uuids if uuid in self._numbers}

    def _removed(self) -> set[Key]:
        """Return the stored inventories that the write removes."""
        inventories = self._inventories
        removed = {(u.definition.uuid, name) for u in self._changes.updates for name in u.removed}
        providers = {removal.uuid for removal in self._changes.removals}
        return {key for key in inventories if key in removed or key[0] in providers}

    def _changing(self) -> set[Key]:
        """Return the stored inventories that the write changes or removes."""
        changing = self._removed()
        for update in self._changes.updates:
            uuid = update.definition.uuid
            changing |= {(uuid, record.resource_class) for record in update.changed}
        for definition in self._sharing():
            provider = self._rows.providers.get(definition.uuid)
            before = {
                ((definition.uuid, name), share)
                for name in (() if provider is None else provider.classes)
                for share in self._rows.inventories[definition.uuid, name].shares
            }
            after = {
                (
                    (definition.uuid, share.resource_class),
                    ((share.of_uuid, share.of_class), share.factor),
                )
                for share in definition.shares
            }
            for source, (target, _) in before ^ after:
                changing |= {source, target}
        return changing & self._inventories.keys()

    # --- loading ---

    def _load(self, inventories: Collection[int]) -> None:
        """Load the tables that the write concerns. Cost: nine statements, most of them optional."""
        rows, updates = self._rows, self._changes.updates
        self._load_removed_disabled()
        with_kinds = (
            update.definition.uuid for update in updates if update.changed or update.kinds_changed
        )
        kinds = self._rows_of(_KINDS, self._stored(with_kinds))
        shares = self._read_shares()
        stored = self._rows_of(_INVENTORIES, self._with_inventories(shares))
        classes = self._names_of(
            NameKind.RESOURCE_CLASS,
            {row[0] for stored_rows in stored.values() for row in stored_rows},
        )
        traits = self._names_of_providers(
            *(_TRAITS, NameKind.TRAIT),
            (u.definition.uuid for u in updates if u.traits_added or u.traits_removed),
        )
        aggregates = self._names_of_providers(
            *(_AGGREGATES, NameKind.AGGREGATE),
            (u.definition.uuid for u in updates if u.aggregates_added or u.aggregates_removed),
        )
        structure = self._trees if self._changes else self._named_with_ancestors()
        for id, uuid, name, parent, _, generation, written, allocated, *times in structure:
            provider = ProviderRow(
                id,
                uuid,
                name,
                self._uuids.get(parent),
                traits.get(id, _NO_NAMES),
                aggregates.get(id, _NO_NAMES),
                tuple([classes[row[0]] for row in sorted(stored.get(id, ()), key=itemgetter(1))]),
                tuple([names.kind_record(*row) for row in kinds.get(id, ())]),
                generation,
                None if times[0] is None else from_moment(times[0]),
                None if times[1] is None else from_moment(times[1]),
                allocated,
                written,
                disabled.from_columns(times[2:]),
            )
            rows.providers.change(uuid, None, provider)
        self._add_inventories(stored, shares, classes)
        if not self._is_sqlite:  # which locks the file
            self._lock_inventories(self._changing(), inventories)
        self._load_allocated(classes)
        unknown = {
            definition.name for definition in self._stated()
        } - rows.provider_named.key.keys()
        for part in chunks(sorted(unknown)):
            rows.provider_named.key.update(_OWNERS.rows(self._connection, names=part))

    def _named_with_ancestors(self) -> list[Sequence[Any]]:
        """Return the rows of the named providers and their ancestors, of trees of thousands."""
        row_of = {row[0]: row for row in self._trees}
        loaded: dict[int, Sequence[Any]] = {}
        for number in self._stored(self._named()):
            above: int | None = number
            while above is not None:
                loaded[above] = row_of[above]
                above = row_of[above][3]
        return list(loaded.values())

    def _load_removed_disabled(self) -> None:
        """Load the disabled providers that were removed from the trees."""
        if self._changes.creates or self._changes.removals:
            roots = set(self._roots.values())
            for root, name, *facts in disabled.removed_rows(self._connection, roots):
                key = self._uuids[root], name
                self._rows.removed_disabled.change(key, None, disabled.from_columns(facts))

    def _with_inventories(self, shares: Iterable[Sequence[Any]]) -> set[int]:
        """Return the providers whose inventories the rules read."""
        uuids = {
            update.definition.uuid
            for update in self._changes.updates
            if update.changed or update.removed or update.shares_changed or update.expected_use
        }
        uuids |= {removal.uuid for removal in self._changes.removals}
        uuids |= {share.of_uuid for definition in self._sharing() for share in definition.shares}
        return self._stored(uuids) | {number for row in shares for number in (row[0], row[2])}

    def _read_shares(self) -> list[Sequence[Any]]:
        """Read the shares of the trees, if the write may change or break some."""
        is_needed = self._changes.removals or next(self._sharing(), None) is not None
        if not is_needed and not any(
            update.removed
            or self._parents.get(update.definition.uuid) != update.definition.parent_uuid
            for update in self._changes.updates
        ):
            return []
        return [
            row
            for part in chunks(sorted(set(self._roots.values())))
            for row in _SHARES_OF_TREES.rows(self._connection, roots=part)
        ]

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
                self._rows.inventories.change(key, None, row)
                self._inventories[key] = number

    def _lock_inventories(self, keys: Iterable[Key], numbers: Collection[int] = ()) -> None:
        """Lock inventories, and read again how much of them is used."""
        key_of = {self._inventories[key]: key for key in keys}
        locked = [
            row
            for part in chunks(sorted({*key_of, *numbers}))
            for row in _LOCK_INVENTORIES.rows(self._connection, ids=part)
        ]
        if len(locked) != len({*key_of, *numbers}):
            raise Transient(
                exceptions.DatabaseError("busy", "inventory", "it was removed in between")
            )
        inventories = self._rows.inventories
        for number, used, writes in locked:
            if number in key_of:
                row = inventories[key_of[number]]
                now = InventoryRow(row.record.using(used), row.direct, writes, row.shares)
                inventories.change(key_of[number], row, now)

    def _load_allocated(self, classes: Mapping[int, str]) -> None:
        """Load what is allocated at each inventory whose shares change."""
        inventories = self._rows.inventories
        sharing = {
            update.definition.uuid for update in self._changes.updates if update.shares_changed
        }
        used = {uuid for (uuid, _), row in inventories.rows.items() if row.record.used}
        for provider, amounts in self._rows_of(_ALLOCATED, self._stored(sharing & used)).items():
            for class_, amount in amounts:
                key = self._uuids[provider], classes[class_]
                row = inventories[key]
                now = dataclasses.replace(row, direct=int(amount))  # a Decimal on servers
                inventories.change(key, row, now)

    def _rows_of(self, query: SQL, providers: Iterable[int]) -> dict[int, list[Sequence[Any]]]:
        """Return the rows of a table for some providers, by provider."""
        rows: dict[int, list[Sequence[Any]]] = {}
        for part in chunks(sorted(providers)):
            for number, *row in query.rows(self._connection, ids=part):
                rows.setdefault(number, []).append(row)
        return rows

    def _names_of(self, kind: NameKind, numbers: Collection[int]) -> dict[int, str]:
        """Return names by number, and remember them for the flush."""
        found_names = self._catalogue.of(kind).names(self._connection, numbers) if numbers else {}
        for number, name in found_names.items():
            self._names[kind][name] = number
            self._rows.names.change((kind, name), None, ListedName(number, name))
        return found_names

    def _names_of_providers(
        self, query: SQL, kind: NameKind, uuids: Iterable[str]
    ) -> dict[int, frozenset[str]]:
        rows = self._rows_of(query, self._stored(uuids))
        names_of = self._names_of(
            kind, {number for numbers in rows.values() for (number,) in numbers}
        )
        return {
            provider: frozenset([names_of[number] for (number,) in numbers])
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
        self._write_inventories(inventories)
        self._write_names(providers, NameKind.TRAIT, tables.resource_provider_traits)
        self._write_names(providers, NameKind.AGGREGATE, tables.resource_provider_aggregates)
        self._write_kinds(providers)
        self._write_removed_disabled(changed[id(rows.removed_disabled)])
        self._pass_down(providers, inventories)
        self._delete(
            [self._inventories[key] for key, (was, now) in inventories.items() if was and not now],
            [was.number for was, now in providers.values() if was and not now],
        )
        rows.commit()

    def _update(self, table: sa.Table, rows: list[dict[str, Any]]) -> None:
        rows.sort(key=itemgetter("id"))
        statements.update(self._connection, table, ["id"], rows)

    def _free_names(self, changed: _Changed[ProviderRow]) -> None:
        """Take names from providers that give them up: two providers may exchange theirs."""
        owners = {now.name: now for was, now in changed.values() if now and now != was}
        leaving = [removal.uuid for removal in self._changes.removals]  # maybe not removed yet
        before = {uuid: was for uuid, (was, _) in changed.items()}
        before |= {uuid: self._rows.providers.get(uuid) for uuid in leaving if uuid not in before}
        freed = [
            {"id": was.number, "name": f"{tables.GIVEN_UP}{was.name}"}
            for uuid, was in before.items()
            if was is not None and owners.get(was.name, was).uuid != uuid
        ]
        self._update(tables.resource_providers, freed)

    def _insert_providers(self, waiting: list[ProviderRow]) -> None:
        """Insert providers level by level: a child refers to the number of its parent."""
        numbers, roots = self._numbers, self._roots
        columns = ("uuid", "name", "generation", "root_id", "parent_id", "created_at", "updated_at")
        at = moment(self._connection, self._transaction.now)
        while waiting:
            level: list[ProviderRow] = []
            later: list[ProviderRow] = []
            for provider in waiting:
                above = provider.parent_uuid
                (level if above is None or above in numbers else later).append(provider)
            rows = [
                (
                    *(provider.uuid, provider.name, provider.generation),
                    *(
                        roots.get(provider.parent_uuid or ""),
                        numbers.get(provider.parent_uuid or ""),
                        at,
                        at,
                    ),
                )
                for provider in level
            ]
            statements.insert_tuples(self._connection, tables.resource_providers, columns, rows)
            for part in chunks([provider.uuid for provider in level]):
                numbers.update(_NUMBERS.rows(self._connection, uuids=part))
            for ids in chunks(sorted(numbers[p.uuid] for p in level if p.parent_uuid is None)):
                _SET_ROOT.run(self._connection, ids=ids)
            for provider in level:
                roots[provider.uuid] = roots.get(provider.parent_uuid or "", numbers[provider.uuid])
                self._uuids[provider.number] = provider.uuid
            waiting = later

    def _update_providers(self, changed: _Changed[ProviderRow]) -> None:
        updates: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
        for uuid, (was, now) in changed.items():
            if now is not None:
                values = self._changed_columns(was, now)
                if values:
                    updates[tuple(values)].append({"id": self._numbers[uuid], **values})
        for rows in updates.values():
            self._update(tables.resource_providers, rows)
        if any(was and now and was.parent_uuid != now.parent_uuid for was, now in changed.values()):
            moved = {
                uuid: root
                for uuid in self._rows.providers
                if (root := self._numbers[self._rows.root(uuid).uuid]) != self._roots[uuid]
            }
            roots = [{"id": self._numbers[uuid], "root_id": root} for uuid, root in moved.items()]
            self._update(tables.resource_providers, roots)

    def _changed_columns(self, was: ProviderRow | None, now: ProviderRow) -> dict[str, Any]:
        """Return the changed columns of a provider; of a new one, those that were not inserted."""
        connection = self._connection
        values: dict[str, Any] = {}
        if was is None:
            was = _NEW
        elif was.generation != now.generation:
            values = {
                "name": now.name,
                "parent_id": self._numbers.get(now.parent_uuid or ""),
                "generation": now.generation,
                "updated_at": moment(connection, self._transaction.now),
            }
        if was.definition_writes != now.definition_writes:
            values["definition_writes"] = now.definition_writes
        if was.writes != now.writes:
            values["allocation_writes"] = now.writes
        if was.reported_at != now.reported_at and now.reported_at is not None:
            values["reported_at"] = moment(connection, now.reported_at)
        if was.adopted_at != now.adopted_at and now.adopted_at is not None:
            values["adopted_at"] = moment(connection, now.adopted_at)
        if was.disabled != now.disabled:
            values |= disabled.to_columns(connection, now.disabled)
        return values

    def _numbers_of(self, kind: NameKind, added: Iterable[str]) -> dict[str, int]:
        """Return the numbers of names by name, of those loaded and of these, which are created."""
        numbers = self._names[kind]
        missing = set(added) - numbers.keys()
        if missing:
            numbers.update(self._catalogue.of(kind).ensure(self._connection, missing))
        return numbers

    def _write_inventories(self, changed: _Changed[InventoryRow]) -> None:
        """Insert and update inventories with their shares; delete shares of those removed."""
        classes = self._numbers_of(
            NameKind.RESOURCE_CLASS, (key[1] for key, (_, now) in changed.items() if now)
        )
        new: list[tuple[Any, ...]] = []
        figures: list[dict[str, Any]] = []
        counts: list[dict[str, Any]] = []
        used: list[dict[str, Any]] = []
        for key, (was, now) in changed.items():
            if now is None:
                continue
            record, count = now.record, len(now.shares)
            if was is None:
                source = self._numbers[key[0]], classes[key[1]]
                new.append((*source, record.used, count, *_figures(record)))
                continue
            number = self._inventories[key]
            if _figures(was.record) != _figures(record):
                values = dict(zip(_FIGURES, _figures(record), strict=True))
                figures.append({"id": number, **values})
            if len(was.shares) != count:  # shares are loaded only if the write may change some
                counts.append({"id": number, "shares": count})
            if was.record.used != record.used:
                used.append({"id": number, "used": record.used})
        old_shares, new_shares = self._changed_shares(changed, classes)
        statements.delete(self._connection, tables.shares, old_shares)
        columns = ("provider_id", "class_id", "used", "shares", *_FIGURES)
        statements.insert_tuples(self._connection, tables.inventories, columns, new)
        self._update(tables.inventories, figures)
        self._update(tables.inventories, counts)
        self._update(tables.inventories, used)
        statements.insert(self._connection, tables.shares, new_shares)

    def _changed_shares(
        self, changed: _Changed[InventoryRow], classes: Mapping[str, int]
    ) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
        """Return the rows of shares to delete, and those to insert."""
        numbers = self._numbers
        old: list[dict[str, int]] = []
        new: list[dict[str, int]] = []
        for (uuid, name), (was, now) in changed.items():
            before = set(was.shares) if was is not None else set()
            after = set(now.shares) if now is not None else set()
            for (of_uuid, of_class), factor in before ^ after:
                pair = numbers[uuid], classes[name], numbers[of_uuid], classes[of_class]
                row = dict(zip(_SHARE, pair, strict=True))
                if ((of_uuid, of_class), factor) in before:
                    old.append(row)
                else:
                    new.append({**row, "factor": factor})
        return old, new

    def _write_names(self, changed: _Changed[ProviderRow], kind: NameKind, table: sa.Table) -> None:
        """Write the traits or the aggregates of providers."""
        of = attrgetter("traits" if kind is NameKind.TRAIT else "aggregates")
        old: list[tuple[str, str]] = []
        new: list[tuple[str, str]] = []
        for uuid, (was, now) in changed.items():
            if now is not None:
                before, after = _NO_NAMES if was is None else of(was), of(now)
                if before != after:
                    old += [(uuid, name) for name in before - after]
                    new += [(uuid, name) for name in after - before]
        names_of = self._numbers_of(kind, (name for _, name in new))
        columns = ("provider_id", f"{kind.value}_id")
        removed = sorted((self._numbers[uuid], names_of[name]) for uuid, name in old)
        added = sorted((self._numbers[uuid], names_of[name]) for uuid, name in new)
        rows = [dict(zip(columns, row, strict=True)) for row in removed]
        statements.delete(self._connection, table, rows)
        statements.insert_tuples(self._connection, table, columns, added)

    def _write_kinds(self, changed: _Changed[ProviderRow]) -> None:
        kinds = {
            self._numbers[uuid]: now.kinds
            for uuid, (was, now) in changed.items()
            if now is not None and (() if was is None else was.kinds) != now.kinds
        }
        names.drop_kinds(self._connection, sorted(kinds.keys() & self._uuids.keys()))
        names.insert_kinds(self._connection, kinds)

    def _write_removed_disabled(self, changed: _Changed[Disabled]) -> None:
        old: list[dict[str, Any]] = []
        new: list[dict[str, Any]] = []
        for (root, name), (was, now) in changed.items():
            key = {"root_id": self._numbers[root], "name": name}
            if was is not None:
                old.append(key)
            if now is not None:
                new.append({**key, **disabled.to_removed_columns(self._connection, now)})
        statements.delete(self._connection, tables.removed_disabled_providers, old)
        statements.insert(self._connection, tables.removed_disabled_providers, new)

    def _pass_down(
        self, providers: _Changed[ProviderRow], inventories: _Changed[InventoryRow]
    ) -> None:
        """Write to inventories until when they are disabled, and how many units were removed.

        A claim locks these rows and reads them locked: so no claim commits after a disable that it
        has not seen.
        """
        rows = self._rows
        new = {key[0] for key, (was, now) in inventories.items() if now and not was}
        with_units = new | {
            uuid
            for uuid, (was, now) in providers.items()
            if now is not None and now.kinds != (() if was is None else was.kinds)
        }
        units = {uuid: self._removed_units(uuid) for uuid in with_units if uuid in rows.providers}
        ends = self._changed_ends(providers, new)
        is_new = {uuid for uuid, (was, _) in providers.items() if was is None}
        uuid_of = {
            self._numbers[uuid]: uuid
            for uuid in (*units, *ends)
            if uuid not in is_new or units.get(uuid) or ends.get(uuid)  # else as it was inserted
        }
        stored = {
            end: None if end is None else moment(self._connection, end) for end in {*ends.values()}
        }
        changed: list[dict[str, Any]] = []
        for provider, stored_rows in self._rows_of(_DISABLED, uuid_of).items():
            uuid = uuid_of[provider]
            for number, until, count in stored_rows:
                end = stored[ends[uuid]] if uuid in ends else until
                now = units.get(uuid, count)
                if (until, count) != (end, now):
                    changed.append({"id": number, "disabled_until": end, "removed_units": now})
        for part in chunks(sorted(row["id"] for row in changed)) if not self._is_sqlite else ():
            _LOCK_INVENTORIES.rows(self._connection, ids=part)
        self._update(tables.inventories, changed)

    def _removed_units(self, uuid: str) -> int:
        kinds = self._rows.providers[uuid].kinds
        return (
            len(removed_units((kind.resource_class, kind.body) for kind in kinds)) if kinds else 0
        )

    def _changed_ends(
        self, changed: _Changed[ProviderRow], new: Collection[str]
    ) -> dict[str, datetime.datetime | None]:
        """Return until when providers are disabled of which that changes, and those of ``new``."""
        parents, disabled = self._parents, self._disabled
        before = _ends(parents, disabled) if disabled else {}
        for uuid, (_, now) in changed.items():
            disabled.pop(uuid, None)
            if now is None:
                parents.pop(uuid, None)
            else:
                parents[uuid] = now.parent_uuid
                if now.disabled is not None:
                    disabled[uuid] = now.disabled.ends_at
        if not disabled and not before:
            return {}
        after = _ends(parents, disabled)
        return {
            uuid: after[uuid] for uuid in parents if uuid in new or after[uuid] != before.get(uuid)
        }

    def _delete(self, inventories: Collection[int], providers: Collection[int]) -> None:
        for part in chunks(sorted(inventories)):
            _DELETE_INVENTORIES.run(self._connection, ids=part)
        for statement in _DELETE_PROVIDERS:
            for part in chunks(sorted(providers)):
                statement.run(self._connection, ids=part)


def _ends(
    parents: Mapping[str, str | None], ends_of: Mapping[str, datetime.datetime]
) -> dict[str, datetime.datetime | None]:
    """Return until when each provider is disabled, itself or by one above it; None if it is not.

    :param parents: the parent of each provider
    :param ends_of: until when providers are disabled themselves
    """
    ends: dict[str | None, datetime.datetime | None] = {None: None}
    for uuid in parents:
        path: list[str] = []
        above: str | None = uuid
        while above not in ends:
            assert above is not None
            path.append(above)
            above = parents[above]
        end = ends[above]
        for provider in reversed(path):
            own_end = ends_of.get(provider)
            end = own_end if end is None or (own_end is not None and own_end > end) else end
            ends[provider] = end
    return {uuid: ends[uuid] for uuid in parents}


_figures = attrgetter(*_FIGURES)
_NO_NAMES = frozenset[str]()
#: A provider as it is inserted, as far as other columns are concerned.
_NEW = ProviderRow(0, "", "")
