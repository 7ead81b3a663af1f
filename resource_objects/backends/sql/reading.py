"""Columns out: everything kept, or some trees, at one moment."""

from __future__ import annotations

import datetime
import json
import operator
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import feed, tables
from resource_objects.backends.sql.disabled import in_force
from resource_objects.backends.sql.names import Catalogue, NameNumbers, description_of
from resource_objects.backends.sql.statements import (
    Sized,
    Statement,
    chunks,
    from_moment,
    listed,
    now_of,
    uuids_among,
)
from resource_objects.providers.changed import Changed, Choose
from resource_objects.providers.columns import (
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
from resource_objects.providers.feed import Cursor

_providers = tables.resource_providers.c
_inventories = tables.inventories.c
_traits = tables.resource_provider_traits.c
_aggregates = tables.resource_provider_aggregates.c
_shares = tables.shares.c
_kinds = tables.structures.c
_consumers = tables.consumers.c
_allocations = tables.allocations.c
_units = tables.allocation_units.c

_Query: TypeAlias = sa.Select[*tuple[Any, ...]]
_Rows: TypeAlias = Sequence[Sequence[Any]]


class _Table:
    """The rows of one table: all of them, or those of some providers, in one order."""

    def __init__(self, query: _Query, provider: sa.Column[int], *order: sa.Column[Any]) -> None:
        """:param provider: the column that tells the provider"""
        self._all = Statement(query.order_by(*order))
        # not sorted there: it would tempt a database to go through the table in that order
        self._of = Sized(lambda ids: query.where(listed(provider, "ids", ids)))
        self._places = [list(query.selected_columns).index(column) for column in order]

    def all(self, connection: Connection) -> _Rows:
        return self._all.rows(connection, {})

    def of(self, connection: Connection, providers: Sequence[int]) -> _Rows:
        found: list[Sequence[Any]] = []
        for part in chunks(providers):
            found += self._of.rows(connection, ids=part)
        return sorted(found, key=operator.itemgetter(*self._places))


_COLUMNS = (
    *(_providers.id, _providers.uuid, _providers.name, _providers.parent_id, _providers.root_id),
    *(_providers.generation, _providers.reported_at, _providers.adopted_at),
    *(_providers.disabled_reason, _providers.disabled_by, _providers.disabled_since),
    _providers.disabled_until,
)
_PROVIDERS = _Table(sa.select(*_COLUMNS), _providers.root_id, _providers.id)
_INVENTORIES = _Table(
    sa.select(
        *(_inventories.provider_id, _inventories.class_id, _inventories.total),
        *(_inventories.reserved, _inventories.min_unit, _inventories.max_unit),
        *(_inventories.step_size, _inventories.ratio_millionths, _inventories.capacity),
        *(_inventories.used, _inventories.id),
    ),
    _inventories.provider_id,
    _inventories.id,
)
_TRAITS = _Table(
    sa.select(_traits.provider_id, _traits.trait_id),
    _traits.provider_id,
    *(_traits.provider_id, _traits.trait_id),
)
_AGGREGATES = _Table(
    sa.select(_aggregates.provider_id, _aggregates.aggregate_id),
    _aggregates.provider_id,
    *(_aggregates.provider_id, _aggregates.aggregate_id),
)
_SHARES = _Table(
    sa.select(
        *(_shares.provider_id, _shares.class_id, _shares.of_provider_id, _shares.of_class_id),
        _shares.factor,
    ),
    _shares.provider_id,
    *(_shares.provider_id, _shares.class_id, _shares.of_provider_id, _shares.of_class_id),
)
_KINDS = _Table(
    sa.select(_kinds.provider_id, _kinds.name, _kinds.classes, _kinds.body),
    _kinds.provider_id,
    *(_kinds.provider_id, _kinds.name),
)
_ALLOCATIONS = _Table(
    sa.select(
        *(_allocations.provider_id, _allocations.class_id, _consumers.name, _allocations.used),
        *(_allocations.consumer_id, _allocations.position),
    ).join_from(tables.allocations, tables.consumers),
    _allocations.provider_id,
    *(_allocations.consumer_id, _allocations.position, _allocations.provider_id),
    _allocations.class_id,
)
_UNITS = _Table(
    sa.select(_units.provider_id, _units.unit, _units.class_id, _consumers.name).join_from(
        tables.allocation_units, tables.consumers, _consumers.id == _units.consumer_id
    ),
    _units.provider_id,
    *(_units.provider_id, _units.unit),
)


def _use_query(roots: int) -> _Query:
    """Return the query of generations of trees, what is out of service, and what is used."""
    return (
        sa.select(
            *(_providers.id, _providers.generation, _inventories.used),
            *(_inventories.id, _providers.disabled_reason),
            *(_providers.disabled_by, _providers.disabled_since, _providers.disabled_until),
        )
        .join_from(
            tables.resource_providers,
            tables.inventories,
            _inventories.provider_id == _providers.id,
            isouter=True,
        )
        .where(listed(_providers.root_id, "roots", roots))
    )


def _units_query(roots: int) -> _Query:
    return (
        sa.select(_units.provider_id, _units.unit, _units.class_id, _consumers.name)
        .join_from(
            tables.resource_providers,
            tables.allocation_units,
            _units.provider_id == _providers.id,
        )
        .join(tables.consumers, _consumers.id == _units.consumer_id)
        .where(listed(_providers.root_id, "roots", roots))
    )


_USE = Sized(_use_query)
_UNITS_OF = Sized(_units_query)


def _keys_query(names: int, uuids: int) -> _Query:
    return sa.select(_providers.name, _providers.uuid, _providers.root_id).where(
        sa.or_(listed(_providers.name, "names", names), listed(_providers.uuid, "uuids", uuids))
    )


_KEYS = Sized(_keys_query)
_UUIDS = Sized(
    lambda names: sa.select(_providers.name, _providers.uuid).where(
        listed(_providers.name, "names", names)
    )
)
_ROOTS = Sized(
    lambda uuids: sa.select(_providers.root_id).where(listed(_providers.uuid, "uuids", uuids))
)
_ROOTS_OF = Sized(
    lambda ids: sa.select(_providers.uuid, _providers.root_id).where(
        listed(_providers.id, "ids", ids)
    )
)


def read(
    connection: Connection,
    catalogue: Catalogue,
    epoch: int,
    trees: Sequence[str],
    allocations: bool,
) -> Columns:
    """Return everything, or the trees of some providers (see the contract).

    Cost: ten queries, and one for each kind of name that is not standard, and one where units are
    out of service alone; some 3 microseconds per row.
    """
    roots = _roots(connection, trees) if trees else None
    return _columns(connection, catalogue, roots, feed.read_cursor(connection, epoch), allocations)


def read_again(
    connection: Connection,
    catalogue: Catalogue,
    epoch: int,
    before: Columns,
    trees: Sequence[str],
) -> Columns:
    """Return trees that were read before, as they are now (see the contract).

    Cost: two queries; else as :func:`read`.
    """
    found = _as_defined(connection, catalogue, before)
    return found or read(connection, catalogue, epoch, trees, allocations=True)


def _as_defined(connection: Connection, catalogue: Catalogue, before: Columns) -> Columns | None:
    """Return trees with what is used of them now; None if one of them is defined anew."""
    given = before.providers
    pairs = zip(given.provider_id, given.parent_id, strict=True)
    roots = [number for number, parent in pairs if parent is None]
    found: list[Sequence[Any]] = []
    for part in chunks(roots):
        found += _USE.rows(connection, roots=part)
    if {row[0]: row[1] for row in found} != dict(
        zip(given.provider_id, given.generation, strict=True)
    ):
        return None
    inventories = sorted([(number, n, used) for number, _, used, n, *_ in found if n is not None])
    if [row[0] for row in inventories] != list(before.inventories.provider_id):
        return None
    units: list[Sequence[Any]] = []
    for part in chunks(roots):
        units += _UNITS_OF.rows(connection, roots=part)
    facts = {row[0]: row[4:] for row in found if row[4] is not None}
    ends = any(one[3] is not None for one in facts.values())
    now = now_of(connection) if ends else None
    disabled = [in_force(facts[n], now) if n in facts else None for n in given.provider_id]
    classes = _Numbered(connection, catalogue.classes)
    return Columns(
        given._replace(disabled=disabled),
        before.inventories._replace(used=[row[2] for row in inventories]),
        before.traits,
        aggregates=before.aggregates,
        shares=before.shares,
        kinds=before.kinds,
        units=UnitColumns(*classes.columns(sorted(units, key=operator.itemgetter(0, 1)), 2)),
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

    Cost: two statements, and if something is read, ten more, as :func:`read`.
    """
    now, count, told = feed.read_touched(connection, epoch, after, most)
    keys = None if told is None else choose(told)
    if keys is None:
        return Changed(now, count, None)
    if not keys:
        return Changed(now, count, Columns(cursor=now))
    roots = _roots_of_uuids(connection, list(keys))
    return Changed(now, count, _columns(connection, catalogue, roots, now, allocations=True))


def _columns(
    connection: Connection,
    catalogue: Catalogue,
    roots: Sequence[int] | None,
    cursor: Cursor,
    allocations: bool,
) -> Columns:
    """Return the trees of some roots, by number; None is everything."""
    if roots is None:
        providers = _PROVIDERS.all(connection)
    else:
        providers = _PROVIDERS.of(connection, roots) if roots else ()
    if not providers:
        return Columns(cursor=cursor)
    numbers = [row[0] for row in providers]

    def rows(table: _Table) -> _Rows:
        return table.all(connection) if roots is None else table.of(connection, numbers)

    inventories = rows(_INVENTORIES)
    ends = any(row[11] is not None for row in providers)
    now = now_of(connection) if ends else None
    classes = _Numbered(connection, catalogue.classes)
    traits = _Numbered(connection, catalogue.traits)
    aggregates = _Numbered(connection, catalogue.aggregates)
    return Columns(
        _providers_of(_parents_first(providers), now),
        InventoryColumns(*classes.columns(inventories, 1)[:-1]),
        TraitColumns(*traits.columns(rows(_TRAITS), 1)),
        AllocationColumns(*(classes.columns(rows(_ALLOCATIONS), 1)[:-2] if allocations else ())),
        AggregateColumns(*aggregates.columns(rows(_AGGREGATES), 1)),
        ShareColumns(*classes.columns(rows(_SHARES), 1, 3)),
        KindColumns(*_structures(rows(_KINDS))),
        UnitColumns(*(classes.columns(rows(_UNITS), 2) if allocations else ())),
        cursor,
        now,
    )


def _roots(connection: Connection, trees: Sequence[str]) -> list[int]:
    """Return the numbers of the roots of the trees that some providers are in."""
    by_name: dict[str, int] = {}
    by_uuid: dict[str, int] = {}
    for part in chunks(trees):
        for name, uuid, root in _KEYS.rows(connection, names=part, uuids=uuids_among(part)):
            by_name[name] = by_uuid[uuid] = root
    # a name wins over a uuid: somebody may have named a provider after another's uuid
    found = {by_name.get(key, by_uuid.get(key)) for key in trees}
    return sorted(root for root in found if root is not None)


def _roots_of_uuids(connection: Connection, uuids: Sequence[str]) -> list[int]:
    """Return the numbers of the roots of the trees that some providers are in."""
    found: set[int] = set()
    for part in chunks(uuids):
        found.update(root for (root,) in _ROOTS.rows(connection, uuids=part))
    return sorted(found)


def roots(connection: Connection, providers: Collection[int]) -> dict[str, int]:
    """Return ``{uuid: number of its root}`` of providers, by number, of those that are there."""
    found: dict[str, int] = {}
    for part in chunks(sorted(providers)):
        found.update(_ROOTS_OF.rows(connection, ids=part))
    return found


def uuids(connection: Connection, names: Collection[str]) -> dict[str, str]:
    """Return ``{name: uuid}`` of the providers of these names."""
    found: dict[str, str] = {}
    for part in chunks(list(names)):
        found.update(_UUIDS.rows(connection, names=part))
    return found


# --- rows to columns ---


def _turned(rows: _Rows) -> list[Sequence[Any]]:
    """Return rows as columns; none if there are no rows."""
    # zip(*rows) would make an object for each row, for the collector of garbage to walk over
    places = range(len(rows[0]) if rows else 0)
    return [list(map(operator.itemgetter(place), rows)) for place in places]


class _Numbered:
    """Names for the numbers of one table; those that are not standard are looked up once."""

    def __init__(self, connection: Connection, names: NameNumbers) -> None:
        self._connection = connection
        self._names = names
        self._known: dict[int, str] = {}

    def columns(self, rows: _Rows, *places: int) -> list[Sequence[Any]]:
        """Return rows as columns, some of them with names for numbers."""
        columns = _turned(rows)
        if not columns:
            return columns
        numbers = {number for place in places for number in set(columns[place])}
        missing = numbers - self._known.keys()
        if missing:
            self._known.update(self._names.names(self._connection, missing))
        for place in places:
            columns[place] = [self._known[number] for number in columns[place]]
        return columns


def _structures(rows: _Rows) -> list[Sequence[Any]]:
    """Return the rows of structures as columns."""
    return _turned(
        [
            (number, name, tuple(json.loads(classes)), description_of(name, body))
            for number, name, classes, body in rows
        ]
    )


def _providers_of(rows: _Rows, now: datetime.datetime | None) -> ProviderColumns:
    columns = _turned(rows)
    number, uuid, name, parent, root, generation, reported, adopted, disabled = columns[:9]
    if disabled.count(None) < len(rows):
        facts = zip(*columns[8:12], strict=True)
        disabled = [None if one[0] is None else in_force(one, now) for one in facts]
    times = _moments(reported), _moments(adopted)
    return ProviderColumns(number, uuid, name, parent, root, generation, *times, disabled)


def _moments(column: Sequence[Any]) -> Sequence[datetime.datetime | None]:
    if column.count(None) == len(column):
        return column
    return [None if one is None else from_moment(one) for one in column]


def _parents_first(rows: _Rows) -> _Rows:
    """Return providers in an order in which parents come before children.

    By number they nearly always do; only one that was moved below a younger one does not.
    """
    if all(row[3] is None or row[3] < row[0] for row in rows):
        return rows
    below: dict[int | None, list[Sequence[Any]]] = defaultdict(list)
    for row in rows:
        below[row[3]].append(row)
    ordered = list(below[None])
    for row in ordered:  # grows while it is read: breadth first
        ordered.extend(below[row[0]])
    return ordered
