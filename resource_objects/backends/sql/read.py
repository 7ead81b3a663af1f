"""Bulk reads: the whole ledger or some trees as columns, at one moment."""

from __future__ import annotations

import datetime
import json
import operator
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from resource_objects.backends.sql import feed
from resource_objects.backends.sql.disabled import in_force
from resource_objects.backends.sql.names import Catalogue, NameNumbers, description_of
from resource_objects.backends.sql.statements import SQL, chunks, from_moment, now_of, uuids_among
from resource_objects.providers.changed import Changed, Choose
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

_ByName = dict[str, Sequence[Any]]


class _Table:
    """The columns of one table by name: of all rows, or of those of some providers, in one order.

    :param order: columns, of which each is read
    :param provider: the column with the number of the provider, or of the root of its tree
    """

    def __init__(self, table: str, columns: str, order: str, provider: str = "provider_id") -> None:
        self._names = [column.split()[-1].split(".")[-1] for column in columns.split(", ")]
        self._order = operator.itemgetter(*map(self._names.index, order.split(", ")))
        self._all = SQL(f"SELECT {columns} FROM {table} ORDER BY {order}")
        # ORDER BY would tempt a database to read the whole table in that order
        self._some = SQL(f"SELECT {columns} FROM {table} WHERE {provider} IN :numbers*")

    def read(self, connection: Connection, providers: Sequence[int] | None) -> _ByName:
        """Return the columns; ``providers`` None: of all rows."""
        rows: list[Sequence[Any]] = []
        if providers is None:
            rows += self._all.rows(connection)
        else:
            for part in chunks(providers):
                rows += self._some.rows(connection, numbers=part)
            rows.sort(key=self._order)
        if not rows:
            return dict.fromkeys(self._names, ())
        # zip(*rows) would make an object for each row, which the garbage collector walks over
        return {
            name: list(map(operator.itemgetter(position), rows))
            for position, name in enumerate(self._names)
        }


_DISABLED = "disabled_reason, disabled_by, disabled_since, disabled_until"
_PROVIDERS = _Table(
    "resource_providers",
    f"id, uuid, name, parent_id, root_id, generation, {', '.join(TIMES)}, {_DISABLED}",
    order="id",
    provider="root_id",
)
_INVENTORIES = _Table(
    "inventories",
    "provider_id, class_id, total, reserved, min_unit, max_unit, step_size, ratio_millionths, "
    "capacity, used, id",
    order="id",
)
_TRAITS = _Table("resource_provider_traits", "provider_id, trait_id", order="provider_id, trait_id")
_AGGREGATES = _Table(
    "resource_provider_aggregates",
    "provider_id, aggregate_id",
    order="provider_id, aggregate_id",
)
_SHARES = _Table(
    "shares",
    "provider_id, class_id, of_provider_id, of_class_id, factor",
    order="provider_id, class_id, of_provider_id, of_class_id",
)
_KINDS = _Table("structures", "provider_id, name, classes, body", order="provider_id, name")
_ALLOCATIONS = _Table(
    "allocations a JOIN consumers c ON c.id = a.consumer_id",
    "a.consumer_id, a.position, a.provider_id, a.class_id, c.name AS consumer, a.used AS amount",
    order="consumer_id, position, provider_id, class_id",
    provider="a.provider_id",
)
_UNITS = _Table(
    "allocation_units u JOIN consumers c ON c.id = u.consumer_id",
    "u.provider_id, u.unit, u.class_id, c.name AS consumer",
    order="provider_id, unit",
    provider="u.provider_id",
)
# a row for each inventory, or one with the number 0 for a provider without any
_USED = _Table(
    "resource_providers p LEFT JOIN inventories i ON i.provider_id = p.id",
    "p.id, p.generation, p.disabled_reason, p.disabled_by, p.disabled_since, p.disabled_until, "
    "i.used, COALESCE(i.id,0) AS inventory_id",
    order="inventory_id",
    provider="p.root_id",
)
_UNITS_OF_TREES = _Table(
    "resource_providers p JOIN allocation_units u ON u.provider_id = p.id "
    "JOIN consumers c ON c.id = u.consumer_id",
    "u.provider_id, u.unit, u.class_id, c.name AS consumer",
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
    names = _Names(connection, catalogue.classes)
    return Columns(
        providers._replace(disabled=[reasons[number] for number in providers.provider_id]),
        before.inventories._replace(used=used["used"][without:]),
        before.traits,
        aggregates=before.aggregates,
        shares=before.shares,
        kinds=before.kinds,
        units=_units(_UNITS_OF_TREES.read(connection, roots), names),
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
    numbers = {
        root for part in chunks(list(keys)) for (root,) in _ROOTS.rows(connection, uuids=part)
    }
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
    if not providers["id"]:
        return Columns(cursor=cursor)
    numbers = None if roots is None else providers["id"]
    classes = _Names(connection, catalogue.classes)
    traits = _TRAITS.read(connection, numbers)
    aggregates = _AGGREGATES.read(connection, numbers)
    shares = _SHARES.read(connection, numbers)
    disabled, now = _disabled(connection, providers)
    return Columns(
        providers=ProviderColumns(
            provider_id=providers["id"],
            uuid=providers["uuid"],
            name=providers["name"],
            parent_id=providers["parent_id"],
            root_id=providers["root_id"],
            generation=providers["generation"],
            disabled=disabled,
            **{name: _times(providers[name]) for name in TIMES},
        ),
        inventories=_inventories(_INVENTORIES.read(connection, numbers), classes),
        traits=TraitColumns(
            traits["provider_id"], _Names(connection, catalogue.traits).of(traits["trait_id"])
        ),
        allocations=_allocations(_ALLOCATIONS.read(connection, numbers), classes)
        if allocations
        else AllocationColumns(),
        aggregates=AggregateColumns(
            aggregates["provider_id"],
            _Names(connection, catalogue.aggregates).of(aggregates["aggregate_id"]),
        ),
        shares=ShareColumns(
            provider_id=shares["provider_id"],
            resource_class=classes.of(shares["class_id"]),
            of_id=shares["of_provider_id"],
            of_class=classes.of(shares["of_class_id"]),
            factor=shares["factor"],
        ),
        kinds=_kinds(_KINDS.read(connection, numbers)),
        units=_units(_UNITS.read(connection, numbers), classes) if allocations else UnitColumns(),
        cursor=cursor,
        now=now,
    )


def _inventories(columns: _ByName, classes: _Names) -> InventoryColumns:
    del columns["id"]
    return InventoryColumns(resource_class=classes.of(columns.pop("class_id")), **columns)


def _allocations(columns: _ByName, classes: _Names) -> AllocationColumns:
    return AllocationColumns(
        provider_id=columns["provider_id"],
        resource_class=classes.of(columns["class_id"]),
        consumer=columns["consumer"],
        amount=columns["amount"],
    )


def _units(columns: _ByName, classes: _Names) -> UnitColumns:
    return UnitColumns(resource_class=classes.of(columns.pop("class_id")), **columns)


def _kinds(columns: _ByName) -> KindColumns:
    names = columns["name"]
    return KindColumns(
        provider_id=columns["provider_id"],
        resource_class=names,
        classes=tuple([tuple(json.loads(classes)) for classes in columns["classes"]]),
        body=tuple(map(description_of, names, columns["body"])),
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
    pairs = list(zip(columns["id"], columns["parent_id"], strict=True))
    if all(parent is None or parent < number for number, parent in pairs):
        return columns
    children: dict[int | None, list[int]] = defaultdict(list)
    for position, (_, parent) in enumerate(pairs):
        children[parent].append(position)
    order = list(children[None])
    for position in order:  # it grows in the loop: breadth first
        order.extend(children[pairs[position][0]])
    return {name: [column[position] for position in order] for name, column in columns.items()}


class _Names:
    """Names for the numbers of one table; those that are not standard are looked up once."""

    def __init__(self, connection: Connection, numbers: NameNumbers) -> None:
        self._connection = connection
        self._numbers = numbers
        self._names: dict[int, str] = {}

    def of(self, column: Sequence[int]) -> Sequence[str]:
        missing = set(column) - self._names.keys()
        if missing:
            self._names.update(self._numbers.names(self._connection, missing))
        names = self._names
        return tuple([names[number] for number in column])


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
    roots: dict[str, int] = {}
    for part in chunks(sorted(providers)):
        roots.update(_ROOTS_OF.rows(connection, ids=part))
    return roots


def uuids(connection: Connection, names: Collection[str]) -> dict[str, str]:
    """Return ``{name: uuid}`` of the providers of these names."""
    uuids: dict[str, str] = {}
    for part in chunks(list(names)):
        uuids.update(_UUIDS.rows(connection, names=part))
    return uuids
