"""Bulk reads: the whole ledger or some trees as columns, at one moment."""

from __future__ import annotations

import datetime
import json
import operator
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection

from resource_objects.backends.sql import feed
from resource_objects.backends.sql.disabled import in_force
from resource_objects.backends.sql.names import Catalogue, NameNumbers, description_of
from resource_objects.backends.sql.statements import (
    SQL,
    Result,
    chunks,
    from_moment,
    now_of,
    uuids_among,
)
from resource_objects.providers.changed import Changed, Choose
from resource_objects.providers.columns import (
    OPTIONAL_COLUMNS,
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

_T = TypeVar("_T", bound=tuple[Any, ...])
_ByName = dict[str, Sequence[Any]]


class Table:
    """Columns of one table: of all rows, or of those of some providers, in one order.

    :param columns: the columns, by the names of their field in :class:`Columns`
    :param order: columns, of which each is read
    :param provider: the column with the number of the provider, or of the root of its tree
    """

    def __init__(self, table: str, columns: str, order: str, provider: str = "provider_id") -> None:
        self._names = [column.split()[-1].split(".")[-1] for column in columns.split(", ")]
        self._order = operator.itemgetter(*map(self._names.index, order.split(", ")))
        self._all = SQL(f"SELECT {columns} FROM {table} ORDER BY {order}")
        # ORDER BY would tempt a database to read the whole table in that order
        self._some = SQL(f"SELECT {columns} FROM {table} WHERE {provider} IN :numbers*")

    def rows(self, connection: Connection, providers: Sequence[int] | None) -> Result:
        """Return the rows; ``providers`` None: all rows."""
        if providers is None:
            return self._all.rows(connection)
        return sorted(self._some.rows_for(connection, providers), key=self._order)

    def read(self, connection: Connection, providers: Sequence[int] | None) -> _ByName:
        """Return the columns by name; ``providers`` None: of all rows."""
        rows = self.rows(connection, providers)
        if not rows:
            return dict.fromkeys(self._names, ())
        # zip(*rows) would make an object for each row, which the garbage collector walks over
        return {
            name: list(map(operator.itemgetter(position), rows))
            for position, name in enumerate(self._names)
        }


_DISABLED = "disabled_reason, disabled_by, disabled_since, disabled_until"
_PROVIDERS = Table(
    "resource_providers",
    "id AS provider_id, uuid, name, parent_id, root_id, generation, "
    f"{', '.join(OPTIONAL_COLUMNS)}, {_DISABLED}",
    order="provider_id",
    provider="root_id",
)
INVENTORIES = Table(
    "inventories",
    "provider_id, class_id AS resource_class, total, reserved, min_unit, max_unit, step_size, "
    "ratio_millionths, capacity, used, id",
    order="id",
)
TRAITS = Table(
    "resource_provider_traits", "provider_id, trait_id AS trait", order="provider_id, trait"
)
AGGREGATES = Table(
    "resource_provider_aggregates",
    "provider_id, aggregate_id AS aggregate",
    order="provider_id, aggregate",
)
_SHARES = Table(
    "shares",
    "provider_id, class_id AS resource_class, of_provider_id AS of_id, of_class_id AS of_class, "
    "factor",
    order="provider_id, resource_class, of_id, of_class",
)
KINDS = Table(
    "structures",
    "provider_id, name AS resource_class, classes, body",
    order="provider_id, resource_class",
)
_ALLOCATIONS = Table(
    "allocations a JOIN consumers c ON c.id = a.consumer_id",
    "a.consumer_id, a.position, a.provider_id, a.class_id AS resource_class, c.name AS consumer, "
    "a.used AS amount",
    order="consumer_id, position, provider_id, resource_class",
    provider="a.provider_id",
)
_UNITS = Table(
    "allocation_units u JOIN consumers c ON c.id = u.consumer_id",
    "u.provider_id, u.unit, u.class_id AS resource_class, c.name AS consumer",
    order="provider_id, unit",
    provider="u.provider_id",
)
# a row for each inventory, or one with the number 0 for a provider without any
_USED = Table(
    "resource_providers p LEFT JOIN inventories i ON i.provider_id = p.id",
    "p.id, p.generation, p.disabled_reason, p.disabled_by, p.disabled_since, p.disabled_until, "
    "i.used, COALESCE(i.id,0) AS inventory_id",
    order="inventory_id",
    provider="p.root_id",
)
_UNITS_OF_TREES = Table(
    "resource_providers p JOIN allocation_units u ON u.provider_id = p.id "
    "JOIN consumers c ON c.id = u.consumer_id",
    "u.provider_id, u.unit, u.class_id AS resource_class, c.name AS consumer",
    order="provider_id, unit",
    provider="p.root_id",
)
_KEYS = SQL("""
    SELECT name, uuid, root_id FROM resource_providers WHERE name IN :names* OR uuid IN :uuids*""")
_UUIDS = SQL("SELECT name, uuid FROM resource_providers WHERE name IN :names*")
_ROOTS = SQL("SELECT root_id FROM resource_providers WHERE uuid IN :uuids*")
_ROOTS_OF = SQL("SELECT uuid, root_id FROM resource_providers WHERE id IN :ids*")


def read(
    connection: Connection,
    catalogue: Catalogue,
    epoch: int,
    trees: Sequence[str],
    allocations: bool,
) -> Columns:
    """Return everything, or the trees of some providers (see the contract).

    Cost: nine queries, and one for each kind of name that is not standard; some 3 microseconds for
    each row.
    """
    roots = _roots(connection, trees) if trees else None
    cursor = feed.read_cursor(connection, epoch)
    return _columns(connection, catalogue, roots, cursor, allocations=allocations)


def read_again(
    connection: Connection,
    catalogue: Catalogue,
    epoch: int,
    before: Columns,
    trees: Sequence[str],
) -> Columns:
    """Return trees that were read before, as they are now (see the contract).

    Cost: two queries if their definitions are unchanged; else as :func:`read`.
    """
    columns = _with_usage(connection, catalogue, before)
    return columns or read(connection, catalogue, epoch, trees, allocations=True)


def _with_usage(connection: Connection, catalogue: Catalogue, before: Columns) -> Columns | None:
    """Return trees with their present usage; None if the definition of one has changed."""
    providers = before.providers
    pairs = zip(providers.provider_id, providers.parent_id, strict=True)
    roots = [number for number, parent in pairs if parent is None]
    used = _USED.read(connection, roots)
    generations = dict(zip(providers.provider_id, providers.generation, strict=True))
    if dict(zip(used["id"], used["generation"], strict=True)) != generations:
        return None
    without = used["inventory_id"].count(0)  # those rows come first
    if list(used["id"][without:]) != list(before.inventories.provider_id):
        return None
    disabled, now = _disabled(connection, used)
    reasons = dict(zip(used["id"], disabled, strict=True))
    return Columns(
        providers._replace(disabled=[reasons[number] for number in providers.provider_id]),
        before.inventories._replace(used=used["used"][without:]),
        before.traits,
        aggregates=before.aggregates,
        shares=before.shares,
        kinds=before.kinds,
        units=Reader(connection, catalogue, roots).read(UnitColumns, _UNITS_OF_TREES),
        now=now,
    )


def read_changed(
    connection: Connection,
    catalogue: Catalogue,
    epoch: int,
    after: Cursor,
    most: int,
    choose: Choose,
) -> Changed:
    """Return the trees that were touched after a cursor (see the contract).

    Cost: two statements, and nine more, as :func:`read`, if trees are read.
    """
    cursor, count, touched = feed.read_touched(connection, epoch, after, most)
    keys = None if touched is None else choose(touched)
    if keys is None:
        return Changed(cursor, count, None)
    if not keys:
        return Changed(cursor, count, Columns(cursor=cursor))
    numbers = {root for (root,) in _ROOTS.rows_for(connection, keys)}
    columns = _columns(connection, catalogue, sorted(numbers), cursor, allocations=True)
    return Changed(cursor, count, columns)


def _columns(
    connection: Connection,
    catalogue: Catalogue,
    roots: Sequence[int] | None,
    cursor: Cursor,
    *,
    allocations: bool,
) -> Columns:
    """Return the trees of some roots, by number; of all roots if None."""
    providers = _parents_first(_PROVIDERS.read(connection, roots))
    if not providers["provider_id"]:
        return Columns(cursor=cursor)
    providers["disabled"], now = _disabled(connection, providers)
    times = [name for name, kind in OPTIONAL_COLUMNS.items() if kind is datetime.datetime]
    providers |= {name: _times(providers[name]) for name in times}
    reader = Reader(connection, catalogue, None if roots is None else providers["provider_id"])
    return Columns(
        ProviderColumns(*map(providers.__getitem__, ProviderColumns._fields)),
        reader.read(InventoryColumns, INVENTORIES),
        reader.read(TraitColumns, TRAITS),
        reader.read(AllocationColumns, _ALLOCATIONS) if allocations else AllocationColumns(),
        reader.read(AggregateColumns, AGGREGATES),
        reader.read(ShareColumns, _SHARES),
        reader.kinds(),
        reader.read(UnitColumns, _UNITS) if allocations else UnitColumns(),
        cursor,
        now,
    )


def _times(column: Sequence[Any]) -> Sequence[Any]:
    if column.count(None) == len(column):
        return column
    return [None if stored is None else from_moment(stored) for stored in column]


def _disabled(
    connection: Connection, columns: Mapping[str, Sequence[Any]]
) -> tuple[Sequence[Disabled | None], datetime.datetime | None]:
    """Return why providers are disabled, and the time of the database if one is until a time."""
    facts = [columns[name] for name in _DISABLED.split(", ")]
    reasons, *_, until = facts
    if reasons.count(None) == len(reasons):
        return reasons, None
    now = now_of(connection) if until.count(None) < len(until) else None
    return [in_force(row, now) for row in zip(*facts, strict=True)], now


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

    def __init__(
        self, connection: Connection, catalogue: Catalogue, providers: Sequence[int] | None
    ) -> None:
        self._connection = connection
        self._providers = providers
        classes = catalogue.classes, dict[int, str]()
        #: the numbers of the names in a column, and the names that are known
        self._names: Mapping[str, tuple[NameNumbers, dict[int, str]]] = {
            "resource_class": classes,
            "of_class": classes,
            "trait": (catalogue.traits, {}),
            "aggregate": (catalogue.aggregates, {}),
        }

    def read(self, make: Callable[..., _T], table: Table) -> _T:
        """Return the table of :class:`Columns` that ``make`` creates."""
        columns = table.read(self._connection, self._providers)
        fields: tuple[str, ...] = make._fields  # type: ignore[attr-defined]
        return make(*(self._with_names(field, columns[field]) for field in fields))

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
