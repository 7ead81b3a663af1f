"""The tables of a ledger: the rows of each, their keys and their indexes; and one write on them.

A row is immutable: a change stores another row under the same key. Every change is appended to the
journal of its tables before it is made. So the journal is the write set of a transaction, and it
can undo the transaction: at any moment, and again if the undoing is interrupted.

Rows refer to each other by the uuids of providers and by names, as requests and answers do.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import os_resource_classes

from resource_objects import exceptions, names
from resource_objects._dataclass import fast_init
from resource_objects.providers.disabled import Disabled, DisabledChange, RemovedUnit
from resource_objects.providers.feed import FeedEntry
from resource_objects.providers.listing import ListedName
from resource_objects.providers.orders import (
    Change,
    ConsumerRecord,
    Key,
    NameChange,
    NameKind,
    Outcome,
)
from resource_objects.providers.pools import SHARES
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.providers.statistics import StoredStatistic
from resource_objects.providers.tree_shape import removed_of
from resource_objects.resources import resource
from resource_objects.resources.records import InventoryRecord, KindRecord
from resource_objects.resources.traits import checked_traits, standard_traits
from resource_objects.store.decide import GroupMembers, OrderRows, Restrictions, Unit

# --- names ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class NameRule:
    """The rule for one kind of name."""

    standard: Callable[[], Collection[str]]  #: returns the names that always exist
    check: Callable[[str], object]  #: raises for a name that is not allowed
    subject: str  #: the kind, as errors name it

    def refuse_standard(self, change: NameChange) -> None:
        """Raise ``NotSupported`` if a standard name would be renamed or deleted."""
        if change.name in self.standard():
            raise exceptions.NotSupported("standard name", change.name)


NAME_RULES: Mapping[NameKind, NameRule] = {
    NameKind.RESOURCE_CLASS: NameRule(
        lambda: os_resource_classes.STANDARDS, resource, "resource class"
    ),
    NameKind.TRAIT: NameRule(standard_traits, lambda name: checked_traits([name]), "trait"),
    NameKind.AGGREGATE: NameRule(tuple, names.aggregate_name, "aggregate"),
}


# --- tables ---------------------------------------------------------------------------------------

_Key = TypeVar("_Key", bound=Hashable)
_Row = TypeVar("_Row")
_Value = TypeVar("_Value", bound=Hashable)

#: Changes in their order: (table, key, row before, row after); None for no row.
Journal: TypeAlias = "list[tuple[Table[Any, Any], Any, Any, Any]]"


class Index(Generic[_Value, _Key]):
    """The keys of the rows of a table that have a value, in the order of insertion."""

    __slots__ = ("_values", "keys")

    def __init__(self, values: Callable[[Any, Any], Collection[_Value]]) -> None:
        self._values = values
        self.keys: dict[_Value, dict[_Key, None]] = {}

    def of(self, value: _Value) -> Collection[_Key]:
        """Return the keys of the rows with a value."""
        return self.keys.get(value, ())

    def move(self, key: _Key, before: object | None, after: object | None) -> None:
        """Replace the values of one row. Doing it twice has no further effect."""
        old = () if before is None else self._values(key, before)
        new = () if after is None else self._values(key, after)
        if old == new:
            return
        for value in old:
            if value not in new and value in self.keys:
                keys = self.keys[value]
                keys.pop(key, None)
                if not keys:
                    del self.keys[value]
        for value in new:
            if value not in old:
                self.keys.setdefault(value, {})[key] = None


class UniqueIndex(Generic[_Value, _Key]):
    """The key of the row of a table that has a value. Of two such rows, the later one counts.

    So two rows can exchange their values in one transaction. That a value is used once when the
    transaction ends is a rule of the transaction.
    """

    __slots__ = ("_value", "key")

    def __init__(self, value: Callable[[Any], _Value]) -> None:
        self._value = value
        self.key: dict[_Value, _Key] = {}

    def move(self, key: _Key, before: object | None, after: object | None) -> None:
        """Replace the value of one row. Doing it twice has no further effect."""
        old = None if before is None else self._value(before)
        new = None if after is None else self._value(after)
        if old == new:
            return
        if old is not None and self.key.get(old) == key:
            del self.key[old]
        if new is not None:
            self.key[new] = key


class Table(Generic[_Key, _Row]):
    """Rows by key.

    :param journal: the journal of all tables that change together
    :param order: for :meth:`in_order`: returns the sort key of a row from its key and the row;
        None: the rows are sorted by their keys
    """

    __slots__ = ("_indexes", "_journal", "_order", "_sorted", "get", "rows")

    def __init__(self, journal: Journal, order: Callable[[Any, Any], Any] | None = None) -> None:
        self.rows: dict[_Key, _Row] = {}
        #: ``get(key)`` returns a row, or None
        self.get = self.rows.get
        self._journal = journal
        self._indexes: list[Index[Any, _Key] | UniqueIndex[Any, _Key]] = []
        self._order = order
        self._sorted: list[Any] | None = None

    def index(self, values: Callable[[_Key, _Row], Collection[_Value]]) -> Index[_Value, _Key]:
        """Add an index by the values that are computed from each row, and return it."""
        index: Index[_Value, _Key] = Index(values)
        self._indexes.append(index)
        return index

    def unique_index(self, value: Callable[[_Row], _Value]) -> UniqueIndex[_Value, _Key]:
        """Add an index by a value that only one row has, and return it."""
        index: UniqueIndex[_Value, _Key] = UniqueIndex(value)
        self._indexes.append(index)
        return index

    def __getitem__(self, key: _Key) -> _Row:
        return self.rows[key]

    def __contains__(self, key: _Key) -> bool:
        return key in self.rows

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[_Key]:
        return iter(self.rows)

    def write(self, key: _Key, row: _Row | None) -> None:
        """Insert or replace a row, and record the change in the journal; None deletes the row."""
        before = self.rows.get(key)
        self._journal.append((self, key, before, row))
        self.put_unjournaled(key, before, row)

    def put_unjournaled(self, key: _Key, before: _Row | None, after: _Row | None) -> None:
        """Replace a row without recording it in the journal: to load stored rows, or to undo.

        Doing it twice has no further effect.

        :param before: the row that the indexes contain; None for none
        """
        if after is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = after
        if before is None or after is None:
            self._sorted = None
        for index in self._indexes:
            index.move(key, before, after)

    def in_order(self) -> list[Any]:
        """Return the sort keys of all rows, sorted again if a row was inserted or deleted."""
        if self._sorted is None:
            order = self._order
            self._sorted = sorted(
                self.rows if order is None else itertools.starmap(order, self.rows.items())
            )
        return self._sorted


def changes(journal: Journal) -> Iterator[tuple[Table[Any, Any], Any, Any, Any]]:
    """Yield each changed row once: (table, key, row before the first change, row now)."""
    before: dict[tuple[int, Any], tuple[Table[Any, Any], Any]] = {}
    for table, key, row, _ in journal:
        before.setdefault((id(table), key), (table, row))
    for (_, key), (table, row) in before.items():
        now = table.get(key)
        if now != row:
            yield table, key, row, now


def undo(journal: Journal) -> None:
    """Undo the changes of a journal, the last one first, and empty it.

    If this is interrupted, it can be called again.
    """
    while journal:
        table, key, before, after = journal[-1]
        table.put_unjournaled(key, after, before)
        journal.pop()


# --- rows -----------------------------------------------------------------------------------------

#: (kind, name) of a resource class, trait or aggregate.
NameKey: TypeAlias = tuple[NameKind, str]
_First = TypeVar("_First")


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class ProviderRow:
    """A provider. ``classes`` are those of its inventories, in the order of their creation.

    ``generation`` is the number of the write that changed its definition last. No generation is
    used twice, also not for a provider that is created again with its uuid.
    """

    number: int
    uuid: str
    name: str
    parent_uuid: str | None = None
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    classes: tuple[str, ...] = ()
    kinds: tuple[KindRecord, ...] = ()
    generation: int = 0
    reported_at: datetime.datetime | None = None
    adopted_at: datetime.datetime | None = None
    writes: int = 0  #: of allocations, counted at inventories that were removed
    definition_writes: int = 0  #: as Placement counts them
    disabled: Disabled | None = None  #: why the provider itself is disabled, also if that ended


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class InventoryRow:
    """An inventory: its figures with everything that is used of it, and what is used directly.

    ``shares`` are ``(key, factor)``: an allocation here also uses ``factor`` of that inventory for
    each unit. ``writes`` counts the writes of allocations that are counted here; each write is
    counted at one inventory of each provider.
    """

    record: InventoryRecord
    direct: int = 0
    writes: int = 0
    shares: tuple[tuple[Key, int], ...] = ()


class UnitRow(NamedTuple):
    """An allocated unit: its consumer and its resource class."""

    consumer: str
    resource_class: str


class OperationRow(NamedTuple):
    """An operation that was carried out. It is stored for the retention time from ``at`` on."""

    number: int
    at: datetime.datetime
    outcome: Outcome


class HeadRow(NamedTuple):
    """The head of one shard of the change feed: its last entry and the operation of that entry."""

    number: int
    operation: int


# The values of indexes. These are no lambdas: tests pickle the tables.


def _by_number(_: str, provider: ProviderRow) -> tuple[int, str]:
    return provider.number, provider.uuid


def _parent(_: str, provider: ProviderRow) -> tuple[str, ...]:
    return () if provider.parent_uuid is None else (provider.parent_uuid,)


def _traits(_: str, provider: ProviderRow) -> frozenset[str]:
    return provider.traits


def _is_disabled(_: str, provider: ProviderRow) -> tuple[bool, ...]:
    return () if provider.disabled is None else (True,)


def _targets(_: Key, inventory: InventoryRow) -> list[Key]:
    return [target for target, _ in inventory.shares]


def _group(_: str, consumer: ConsumerRecord) -> tuple[str, ...]:
    return () if consumer.group is None else (consumer.group,)


def _inventory(key: tuple[str, str, str], _: int) -> tuple[Key, ...]:
    return (key[:2],)


def _first(key: tuple[_First, Any], _: object) -> tuple[_First, ...]:
    return key[:1]


class Rows(OrderRows):
    """All tables of a ledger, or those rows of them that one write is about."""

    def __init__(self) -> None:
        self.journal: Journal = []
        #: whether server groups and their members are among the rows
        self.has_groups = True
        #: resource classes, traits and aggregates
        self.names: Table[NameKey, ListedName] = self._table()

        self.providers: Table[str, ProviderRow] = self._table(_by_number)
        self.provider_named: UniqueIndex[str, str] = self.providers.unique_index(attrgetter("name"))
        self.children = self.providers.index(_parent)
        self.with_trait = self.providers.index(_traits)
        self.disabled = self.providers.index(_is_disabled)
        #: by the uuid of a root and the name: disabled providers that were removed from its tree,
        #: which are disabled again if they are created again
        self.removed_disabled: Table[tuple[str, str], Disabled] = self._table()
        self.removed_disabled_of = self.removed_disabled.index(_first)

        self.inventories: Table[Key, InventoryRow] = self._table()
        self.sharers = self.inventories.index(_targets)

        self.consumers: Table[str, ConsumerRecord] = self._table()
        self.consumer_of_claim: UniqueIndex[str, str] = self.consumers.unique_index(
            attrgetter("uuid")
        )
        self.members = self.consumers.index(_group)
        #: amounts by (provider's uuid, resource class, consumer)
        self.allocations: Table[tuple[str, str, str], int] = self._table()
        self.allocations_of = self.allocations.index(_inventory)
        #: allocated units by (provider's uuid, unit)
        self.units: Table[tuple[str, str], UnitRow] = self._table()
        self.units_of = self.units.index(_first)

        self.server_groups: Table[str, ServerGroup] = self._table()
        self.statistics: Table[str, dict[str, StoredStatistic]] = self._table()

        #: by the operation's id, in the order of the writes
        self.operations: Table[str, OperationRow] = self._table()
        #: by shard
        self.heads: Table[int, HeadRow] = self._table()
        #: by (shard, number)
        self.changes: Table[tuple[int, int], FeedEntry] = self._table()
        self.changes_of = self.changes.index(_first)

        # numbers are used once, also if their transaction is undone
        self.provider_numbers = itertools.count(1)
        self.name_numbers = itertools.count(1)
        self.operation_numbers = itertools.count(1)

    def _table(self, *order: Any) -> Table[Any, Any]:
        return Table(self.journal, *order)

    def add_standard_names(self) -> None:
        """Insert the resource classes and traits that every ledger has from the start."""
        for kind, rule in NAME_RULES.items():
            for name in sorted(rule.standard()):
                self.names.write((kind, name), ListedName(next(self.name_numbers), name))

    def rollback(self) -> None:
        """Undo the changes since the last commit. It can be repeated if it is interrupted."""
        undo(self.journal)

    def commit(self) -> None:
        """Make the changes since the last commit permanent, in one instruction."""
        self.journal.clear()

    def root(self, uuid: str) -> ProviderRow:
        """Return the root of the tree of a provider, which exists."""
        providers = self.providers.rows
        provider = providers[uuid]
        while provider.parent_uuid is not None:
            provider = providers[provider.parent_uuid]
        return provider

    def find(self, key: str) -> ProviderRow | None:
        """Return the provider of a name, or else of a uuid."""
        return self.providers.get(self.provider_named.key.get(key, key))

    def roots(self, keys: Iterable[str]) -> list[ProviderRow]:
        """Return the roots of the trees of some providers, by name or uuid; each once."""
        roots: dict[str, ProviderRow] = {}
        for key in keys:
            provider = self.find(key)
            if provider is not None:
                root = self.root(provider.uuid)
                roots[root.uuid] = root
        return list(roots.values())

    def subtree(self, uuid: str) -> list[str]:
        """Return the uuids of a provider and of all providers below it, parents first."""
        uuids = [uuid]
        for parent in uuids:  # the list grows: breadth first
            uuids += self.children.of(parent)
        return uuids

    def rename_class(self, old: str, new: str) -> None:
        """Rename a resource class in the keys of rows and where they are referred to.

        Cost: linear in the inventories. A database does not load them: its keys are numbers.
        """
        for key in [key for key in self.inventories.rows if key[1] == old]:
            self._move_inventory(key, (key[0], new))
        targets = [target for target in self.sharers.keys if target[1] == old]
        for key in {source for target in targets for source in self.sharers.of(target)}:
            inventory = self.inventories[key]
            shares = tuple(
                ((target[0], new) if target[1] == old else target, factor)
                for target, factor in inventory.shares
            )
            self.inventories.write(key, dataclasses.replace(inventory, shares=shares))

    def _move_inventory(self, old: Key, new: Key) -> None:
        inventory = self.inventories[old]
        record = dataclasses.replace(inventory.record, resource_class=new[1])
        self.inventories.write(old, None)
        self.inventories.write(new, dataclasses.replace(inventory, record=record))
        for consumer, amount in list(self.consumers_of(old)):
            self.allocations.write((*old, consumer), None)
            self.allocations.write((*new, consumer), amount)
            claim = self.consumers[consumer]
            uses = tuple(
                dataclasses.replace(use, resource_class=new[1]) if use.key == old else use
                for use in claim.held
            )
            self.consumers.write(consumer, dataclasses.replace(claim, held=uses))
        for key in self.units_of.of(old[0]):
            unit = self.units[key]
            if unit.resource_class == old[1]:
                self.units.write(key, UnitRow(unit.consumer, new[1]))

    def _disabled_above(self, uuid: str) -> Iterator[tuple[str, Disabled]]:
        """Yield why a provider, which exists, and its ancestors are disabled, with their names."""
        above: str | None = uuid
        while above is not None:
            provider = self.providers[above]
            if provider.disabled is not None:
                yield provider.name, provider.disabled
            above = provider.parent_uuid

    def consumers_of(self, key: Key) -> Iterator[tuple[str, int]]:
        """Yield the consumers of an inventory with their amounts, without those through shares."""
        amounts = self.allocations.rows
        for allocation in self.allocations_of.of(key):
            yield allocation[2], amounts[allocation]

    def with_present_names(self, record: ConsumerRecord) -> ConsumerRecord:
        """Return a record with the present names of the providers."""
        providers = self.providers.rows
        if all(use.provider == providers[use.provider_uuid].name for use in record.held):
            return record
        uses = [
            dataclasses.replace(use, provider=providers[use.provider_uuid].name)
            for use in record.held
        ]
        return dataclasses.replace(record, held=tuple(uses))

    # --- what the rules of orders read: see ``OrderRows`` ---

    def consumer(self, name: str) -> ConsumerRecord | None:
        """Return a consumer with the present names of its providers."""
        record = self.consumers.rows.get(name)
        return None if record is None else self.with_present_names(record)

    def inventory(self, key: Key) -> InventoryRow | None:
        """Return an inventory."""
        return self.inventories.rows.get(key)

    def provider_name(self, uuid: str) -> str | None:
        """Return the name of a provider."""
        provider = self.providers.rows.get(uuid)
        return None if provider is None else provider.name

    def restrictions(self, uuid: str) -> Restrictions | None:
        """Return until when a provider is disabled, and how many of its units were removed."""
        provider = self.providers.rows.get(uuid)
        if provider is None or not (provider.kinds or self.disabled.keys):
            return None
        removed = removed_of(((kind.resource_class, kind.body) for kind in provider.kinds), ())
        ends = [disabled.ends_at for _, disabled in self._disabled_above(uuid)]
        return Restrictions(max(ends, default=None), len(removed)) if ends or removed else None

    def users_of(self, keys: Collection[Key]) -> dict[Key, Iterable[tuple[str, int]]]:
        """Return the consumers of inventories, also through shares, with their amounts."""
        users: dict[Key, Iterable[tuple[str, int]]] = {}
        for key in keys:
            amounts: dict[str, int] = defaultdict(int, self.consumers_of(key))
            for source in self.sharers.of(key):
                factor = dict(self.inventories[source].shares)[key]
                for consumer, amount in self.consumers_of(source):
                    amounts[consumer] += amount * factor
            users[key] = amounts.items()
        return users

    def unit_consumers(self, units: Collection[Unit]) -> dict[Unit, str]:
        """Return the consumers of those units that are allocated."""
        return {unit: self.units[unit].consumer for unit in units if unit in self.units}

    def disabled_at(self, uuids: Collection[str], now: datetime.datetime) -> dict[str, Disabled]:
        """Return why providers or their ancestors are disabled, by name."""
        above = (pair for uuid in uuids for pair in self._disabled_above(uuid))
        return {name: disabled for name, disabled in above if disabled.ends_at > now}

    def removed_units_of(self, uuids: Collection[str]) -> dict[str, tuple[RemovedUnit, ...]]:
        """Return the units that were removed while allocated, by provider."""
        return {
            uuid: removed_of(
                [(kind.resource_class, kind.body) for kind in self.providers[uuid].kinds],
                {unit for _, unit in self.units_of.of(uuid)},
            )
            for uuid in uuids
        }

    def group_members(self, names: Collection[str], uuids: Collection[str]) -> GroupMembers | None:
        """Return server groups, and the hosts of their members and of providers."""
        if not self.has_groups:
            return None
        groups = {name: self.server_groups[name] for name in names if name in self.server_groups}
        members = {
            name: {
                consumer: self._hosts(use.provider_uuid for use in self.consumers[consumer].held)
                for consumer in self.members.of(name)
            }
            for name, group in groups.items()
            if not group.is_soft
        }
        return GroupMembers(
            groups, members, {uuid: host for uuid in uuids for host in self._hosts([uuid])}
        )

    def _hosts(self, uuids: Iterable[str]) -> set[str]:
        """Return the names of the hosts of some providers; a pool has none."""
        return {
            self.root(uuid).name
            for uuid in uuids
            if uuid in self.providers and SHARES not in self.providers[uuid].traits
        }


#: The attributes of a transaction that the change feed reports, with the number of a root each.
REPORTED = ("uses", "definitions", "reports", "claims", "disabled", "overrides")


class Transaction:
    """One write on rows: all rows, its time and number, and its changes for the change feed.

    It neither commits nor rolls back: the journal of the rows does.

    Each change is recorded with the number of the root of its tree: of the present root of the
    provider, or of the root before it moved.

    :param now: the time of the ledger
    :param number: of the operation: the generation of what it changes
    """

    __slots__ = (*REPORTED, "now", "number", "renamed", "rows")

    def __init__(self, rows: Rows, now: datetime.datetime, number: int) -> None:
        self.rows = rows
        self.now = now
        self.number = number
        #: changed allocations
        self.uses: list[tuple[int, Change]] = []
        #: uuids of providers with a changed definition, of providers that reported
        self.definitions: set[tuple[int, str]] = set()
        self.reports: set[tuple[int, str]] = set()
        #: names of consumers of which the claim changed and the allocations did not
        self.claims: set[tuple[int, str]] = set()
        self.disabled: list[tuple[int, DisabledChange]] = []
        #: uuids of disabled providers that an order allocates from nevertheless
        self.overrides: list[tuple[int, str]] = []
        #: uuids of providers of whose definition only a name changed
        self.renamed: set[str] = set()

    def mark_changed(self, uuid: str) -> None:
        """Record that the definition of a provider, which exists, changed."""
        self.definitions.add((self.rows.root(uuid).number, uuid))

    def provider(self, uuid: str) -> ProviderRow:
        """Return a provider.

        :raises NotFound: if it does not exist
        """
        provider = self.rows.providers.get(uuid)
        if provider is None:
            raise exceptions.NotFound("provider", uuid)
        return provider
