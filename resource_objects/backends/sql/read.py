"""Bulk reads: the whole ledger or some trees as columns, at one moment."""

from __future__ import annotations

import datetime
import json
import operator
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection

from resource_objects.backends.sql import feed, tables
from resource_objects.backends.sql.names import NameNumbers, catalogue_of, description_of
from resource_objects.backends.sql.statements import (
    SQL,
    chunks,
    disabled_of,
    from_moment_or_none,
    now_of,
    uuids_among,
)
from resource_objects.providers.backend import Changed, Choose
from resource_objects.providers.columns import (
    TIMES,
    AggregateColumns,
    AllocationColumns,
    Columns,
    InventoryColumns,
    KindColumns,
    ProviderColumns,
    ShareColumns,
    TraitColumns,
    UnitColumns,
)
from resource_objects.providers.disabled import Disabled
from resource_objects.providers.feed import Cursor
from resource_objects.providers.orders import NameKind

_T = TypeVar("_T", bound=tuple[Any, ...])
_ByName = dict[str, Sequence[Any]]


class Table(Generic[_T]):
    """A table of :class:`Columns`: of all rows, or of those of some providers, in one order.

    :param columns: the type of the columns
    :param table: the table, or a join
    :param order: columns, of which each is read
    :param provider: the column with the number of the provider, or of the root of its tree
    :param sources: the columns of the table, by the names of their fields, where these differ
    """

    def __init__(
        self,
        columns: type[_T],
        table: str,
        order: str,
        provider: str = "provider_id",
        /,
        **sources: str,
    ) -> None:
        self.columns = columns
        fields: tuple[str, ...] = getattr(columns, "_fields", ())
        self._names = list(dict.fromkeys([*sources, *fields, *order.split(", ")]))
        self._order = operator.itemgetter(*map(self._names.index, order.split(", ")))
        selected = ", ".join(f"{sources.get(name, name)} AS {name}" for name in self._names)
        self._all = SQL(f"SELECT {selected} FROM {table} ORDER BY {order}")
        # ORDER BY would tempt a database to read the whole table in that order
        self._some = SQL(f"SELECT {selected} FROM {table} WHERE {provider} IN :numbers*")

    def read(self, connection: Connection, providers: Sequence[int] | None) -> _ByName:
        """Return the columns by name; ``providers`` None: of all rows."""
        if providers is None:
            rows = self._all.rows(connection)
        else:
            rows = sorted(self._some.rows_for(connection, providers), key=self._order)
        if not rows:
            return dict.fromkeys(self._names, ())
        # zip(*rows) would make an object for each row, which the garbage collector walks over
        return {
            name: list(map(operator.itemgetter(position), rows))
            for position, name in enumerate(self._names)
        }


_DISABLED = {name: f"p.{name}" for name in tables.DISABLED}
_OF_UNITS = {"provider_id": "u.provider_id", "resource_class": "u.class_id", "consumer": "c.name"}
_PROVIDERS = Table(
    ProviderColumns,
    "resource_providers p",
    "provider_id",
    "root_id",
    provider_id="id",
    disabled="NULL",  # made of the others
    **_DISABLED,
)
INVENTORIES = Table(InventoryColumns, "inventories", "id", resource_class="class_id")
TRAITS = Table(TraitColumns, "resource_provider_traits", "provider_id, trait", trait="trait_id")
AGGREGATES = Table(
    AggregateColumns,
    "resource_provider_aggregates",
    "provider_id, aggregate",
    aggregate="aggregate_id",
)
_SHARES = Table(
    ShareColumns,
    "shares",
    "provider_id, resource_class, of_id, of_class",
    resource_class="class_id",
    of_id="of_provider_id",
    of_class="of_class_id",
)
KINDS = Table(KindColumns, "structures", "provider_id, resource_class", resource_class="name")
_ALLOCATIONS = Table(
    AllocationColumns,
    "allocations a JOIN consumers c ON c.id = a.consumer_id",
    "consumer_id, position, provider_id, resource_class",
    resource_class="a.class_id",
    consumer="c.name",
    amount="a.used",
)
_UNITS = Table(
    UnitColumns,
    "allocation_units u JOIN consumers c ON c.id = u.consumer_id",
    "provider_id, unit",
    **_OF_UNITS,
)
_UNITS_OF_TREES = Table(
    UnitColumns,
    "resource_providers p JOIN allocation_units u ON u.provider_id = p.id "
    "JOIN consumers c ON c.id = u.consumer_id",
    "provider_id, unit",
    "p.root_id",
    **_OF_UNITS,
)
# a row for each inventory, or one with the number 0 for a provider without any
_USED = Table(
    tuple,
    "resource_providers p LEFT JOIN inventories i ON i.provider_id = p.id",
    "inventory_id",
    "p.root_id",
    id="p.id",
    generation="p.generation",
    used="i.used",
    inventory_id="COALESCE(i.id,0)",
    **_DISABLED,
)
_KEYS = SQL("""
    SELECT name, uuid, root_id FROM resource_providers WHERE name IN :names* OR uuid IN :uuids*""")
_UUIDS = SQL("SELECT name, uuid FROM resource_providers WHERE name IN :names*")
_ROOTS = SQL("SELECT root_id FROM resource_providers WHERE uuid IN :uuids*")
_ROOTS_OF = SQL("SELECT uuid, root_id FROM resource_providers WHERE id IN :ids*")


def read(connection: Connection, *trees: str, allocations: bool = True) -> Columns:
    """Return everything, or the trees of some providers (see the contract).

    Cost: nine queries, and one for each kind of name that is not standard; some 3 microseconds for
    each row.
    """
    roots = _roots(connection, trees) if trees else None
    cursor = feed.read_cursor(connection)
    return _columns(connection, roots, cursor, allocations=allocations)


def read_again(connection: Connection, before: Columns, *trees: str) -> Columns:
    """Return trees that were read before, as they are now (see the contract).

    Cost: two queries if their definitions are unchanged; else as :func:`read`.
    """
    providers = before.providers
    pairs = zip(providers.provider_id, providers.parent_id, strict=True)
    roots = [number for number, parent in pairs if parent is None]
    used = _USED.read(connection, roots)
    generations = dict(zip(providers.provider_id, providers.generation, strict=True))
    without = used["inventory_id"].count(0)  # the rows without inventories, which come first
    if dict(zip(used["id"], used["generation"], strict=True)) != generations or used["id"][
        without:
    ] != list(before.inventories.provider_id):
        return read(connection, *trees)
    disabled, now = _disabled(connection, used)
    reasons = dict(zip(used["id"], disabled, strict=True))
    return Columns(
        providers._replace(disabled=[reasons[number] for number in providers.provider_id]),
        before.inventories._replace(used=used["used"][without:]),
        before.traits,
        aggregates=before.aggregates,
        shares=before.shares,
        kinds=before.kinds,
        units=Reader(connection, roots).read(_UNITS_OF_TREES),
        now=now,
    )


def read_changed(connection: Connection, after: Cursor, most: int, choose: Choose) -> Changed:
    """Return the trees that were touched after a cursor (see the contract).

    Cost: two statements, and nine more, as :func:`read`, if trees are read.
    """
    cursor, count, touched = feed.read_touched(connection, after, most)
    keys = None if touched is None else choose(touched)
    if keys is None:
        return Changed(cursor, count, None)
    if not keys:
        return Changed(cursor, count, Columns(cursor=cursor))
    numbers = {root for (root,) in _ROOTS.rows_for(connection, keys)}
    columns = _columns(connection, sorted(numbers), cursor, allocations=True)
    return Changed(cursor, count, columns)


def _columns(
    connection: Connection, roots: Sequence[int] | None, cursor: Cursor, *, allocations: bool
) -> Columns:
    """Return the trees of some roots, by number; of all roots if None."""
    providers = _parents_first(_PROVIDERS.read(connection, roots))
    if not providers["provider_id"]:
        return Columns(cursor=cursor)
    providers["disabled"], now = _disabled(connection, providers)
    for name in TIMES:
        if any(providers[name]):
            providers[name] = list(map(from_moment_or_none, providers[name]))
    reader = Reader(connection, None if roots is None else providers["provider_id"])
    return Columns(
        ProviderColumns(*map(providers.__getitem__, ProviderColumns._fields)),
        reader.read(INVENTORIES),
        reader.read(TRAITS),
        reader.read(_ALLOCATIONS) if allocations else AllocationColumns(),
        reader.read(AGGREGATES),
        reader.read(_SHARES),
        reader.kinds(),
        reader.read(_UNITS) if allocations else UnitColumns(),
        cursor,
        now,
    )


def _disabled(
    connection: Connection, columns: Mapping[str, Sequence[Any]]
) -> tuple[Sequence[Disabled | None], datetime.datetime | None]:
    """Return why providers are disabled, and the time of the database if one is until a time."""
    facts = [columns[name] for name in tables.DISABLED]
    reasons, *_, until = facts
    if reasons.count(None) == len(reasons):
        return reasons, None
    now = now_of(connection) if until.count(None) < len(until) else None
    return [disabled_of(row, now) for row in zip(*facts, strict=True)], now


def _parents_first(columns: _ByName) -> _ByName:
    """Return providers in an order in which parents come before children.

    By number they nearly always do; only a provider that was moved below a younger one does not.
    """
    pairs = list(zip(columns["provider_id"], columns["parent_id"], strict=True))
    if all(parent is None or parent < number for number, parent in pairs):
        return columns
    children: dict[int | None, list[int]] = defaultdict(list)
    for position, (_, parent) in enumerate(pairs):
        children[parent].append(position)
    order = list(children[None])
    for position in order:  # it grows in the loop: breadth first
        order.extend(children[pairs[position][0]])
    return {name: [column[position] for position in order] for name, column in columns.items()}


class Reader:
    """Reads tables of some providers; names that are not standard are looked up once.

    :param providers: their numbers; None: all rows
    """

    def __init__(self, connection: Connection, providers: Sequence[int] | None) -> None:
        self._connection = connection
        self._providers = providers
        catalogue = catalogue_of(connection)
        classes = catalogue[NameKind.RESOURCE_CLASS], dict[int, str]()
        #: the numbers of the names in a column, and the names that are known
        self._names: Mapping[str, tuple[NameNumbers, dict[int, str]]] = {
            "resource_class": classes,
            "of_class": classes,
            "trait": (catalogue[NameKind.TRAIT], {}),
            "aggregate": (catalogue[NameKind.AGGREGATE], {}),
        }

    def read(self, table: Table[_T]) -> _T:
        """Return a table of :class:`Columns`."""
        columns = table.read(self._connection, self._providers)
        fields: tuple[str, ...] = getattr(table.columns, "_fields", ())
        return table.columns(*(self._with_names(field, columns[field]) for field in fields))

    def _with_names(self, field: str, column: Sequence[Any]) -> Sequence[Any]:
        if field not in self._names:
            return column
        numbers, names = self._names[field]
        missing = set(column) - names.keys()
        if missing:
            names.update(numbers.names(self._connection, missing))
        return tuple([names[number] for number in column])

    def kinds(self) -> KindColumns:
        """Return the structured inventories."""
        columns = KINDS.read(self._connection, self._providers)
        names = columns["resource_class"]
        return KindColumns(
            provider_id=columns["provider_id"],
            resource_class=names,
            classes=tuple([tuple(json.loads(classes)) for classes in columns["classes"]]),
            body=tuple(map(description_of, names, columns["body"])),
        )


# --- providers by key ---


def _roots(connection: Connection, keys: Sequence[str]) -> list[int]:
    """Return the numbers of the roots of providers, found by their names or uuids."""
    by_name: dict[str, int] = {}
    by_uuid: dict[str, int] = {}
    for part in chunks(keys):
        for name, uuid, root in _KEYS.rows(connection, names=part, uuids=uuids_among(part)):
            by_name[name] = by_uuid[uuid] = root
    # a name has precedence: a provider may have the uuid of another one as its name
    numbers = {by_name.get(key, by_uuid.get(key)) for key in keys}
    return sorted(root for root in numbers if root is not None)


def roots(connection: Connection, providers: Collection[int]) -> dict[str, int]:
    """Return ``{uuid: number of its root}`` of the providers that exist, found by number."""
    return dict(_ROOTS_OF.rows_for(connection, providers))


def uuids(connection: Connection, names: Collection[str]) -> dict[str, str]:
    """Return ``{name: uuid}`` of the providers of these names."""
    return dict(_UUIDS.rows_for(connection, names))
