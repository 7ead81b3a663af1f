"""Pages of providers and of consumers: whom a filter wants, then what belongs to them.

One statement finds the page, and a few more, whose number does not grow with it, what is on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import consumers as kept
from resource_objects.backends.sql import filters, kinds, schema
from resource_objects.backends.sql.classes import Catalogue
from resource_objects.backends.sql.statements import Sized, from_moment, listed
from resource_objects.providers.listing import ConsumerFilter, ListedProvider, ProviderFilter
from resource_objects.providers.orders import ClaimRecord
from resource_objects.resources.records import InventoryRecord, KindRecord

_T = TypeVar("_T")

_providers = schema.resource_providers.c
_inventories = schema.inventories.c
_traits = schema.resource_provider_traits.c
_aggregates = schema.resource_provider_aggregates.c
_kinds = schema.kind_records.c
_consumers = schema.consumers.c


def _of_providers(*columns: sa.Column[Any]) -> Sized:
    """A query for what some providers have; its first column is the provider's number."""
    return Sized(lambda ids: sa.select(*columns).where(listed(columns[0], "ids", ids)))


_NAMED = _of_providers(_providers.id, _providers.name, _providers.uuid)
_RECORDS = _of_providers(
    *(_inventories.provider_id, _inventories.id, _inventories.class_id, _inventories.writes),
    *(_inventories.total, _inventories.reserved, _inventories.min_unit, _inventories.max_unit),
    *(_inventories.step_size, _inventories.ratio_millionths, _inventories.capacity),
    _inventories.used,
)
_TRAITS = _of_providers(_traits.provider_id, _traits.trait_id)
_AGGREGATES = _of_providers(_aggregates.provider_id, _aggregates.aggregate_id)
_KINDS = _of_providers(_kinds.provider_id, _kinds.name, _kinds.classes, _kinds.body)


class _Row(NamedTuple):
    """A provider of a page."""

    number: int
    uuid: str
    name: str
    generation: int
    parent: int | None
    root: int
    reported_at: Any
    writes: int


def providers(
    connection: Connection, catalogue: Catalogue, wanted: ProviderFilter, limit: int, after: int
) -> tuple[ListedProvider, ...]:
    """Return a page of providers (see the contract).

    Cost: six queries, and one for each kind of name that is not standard. What nothing narrows
    down but ``over_capacity`` looks at every inventory.
    """
    if filters.is_empty(wanted):
        return ()
    query = (
        sa.select(
            _providers.id,
            _providers.uuid,
            _providers.name,
            _providers.generation,
            _providers.parent_id,
            _providers.root_id,
            _providers.reported_at,
            _providers.allocation_writes,
        )
        .where(_providers.id > after, *filters.of_providers(wanted))
        .order_by(_providers.id)
        .limit(_known(limit))
    )
    rows = [_Row(*row) for row in connection.execute(query)]
    return _Page(connection, catalogue, rows).listed() if rows else ()


class _Page:
    """Some providers, and what belongs to them."""

    def __init__(self, connection: Connection, catalogue: Catalogue, rows: Sequence[_Row]) -> None:
        self._connection = connection
        self._rows = rows
        self._numbers = [row.number for row in rows]
        found = self._of(_RECORDS, lambda *row: row)
        numbers = {class_ for records in found.values() for _, class_, *_ in records}
        classes = catalogue.classes.names(connection, numbers)
        self._writes = {
            number: sum(record[2] for record in records) for number, records in found.items()
        }
        self._records = {
            number: tuple(InventoryRecord(classes[record[1]], *record[3:]) for record in records)
            for number, records in found.items()
        }
        self._traits = self._names(_TRAITS, catalogue.traits.names)
        self._aggregates = self._names(_AGGREGATES, catalogue.aggregates.names)
        self._kinds: dict[int, list[KindRecord]] = self._of(_KINDS, kinds.record)
        above = {number for row in rows for number in (row.parent, row.root) if number is not None}
        self._above = {
            number: (name, uuid)
            for number, name, uuid in _NAMED.rows(connection, ids=sorted(above))
        }

    def _of(self, query: Sized, make: Callable[..., _T]) -> dict[int, list[_T]]:
        """Return what is made of the rows of a query, by provider."""
        found: dict[int, list[_T]] = defaultdict(list)
        for number, *rest in sorted(query.rows(self._connection, ids=self._numbers)):
            found[number].append(make(*rest))
        return found

    def _names(
        self, query: Sized, look: Callable[[Connection, Iterable[int]], dict[int, str]]
    ) -> dict[int, frozenset[str]]:
        found = self._of(query, int)
        names = look(self._connection, {number for some in found.values() for number in some})
        return {number: frozenset(names[one] for one in some) for number, some in found.items()}

    def listed(self) -> tuple[ListedProvider, ...]:
        """Return the page."""
        return tuple(self._listed(row) for row in self._rows)

    def _listed(self, row: _Row) -> ListedProvider:
        parent = (None, None) if row.parent is None else self._above[row.parent]
        root = self._above[row.root]
        return ListedProvider(
            number=row.number,
            uuid=row.uuid,
            name=row.name,
            generation=row.generation,
            parent=parent[0],
            parent_uuid=parent[1],
            root=root[0],
            root_uuid=root[1],
            records=self._records.get(row.number, ()),
            traits=self._traits.get(row.number, frozenset()),
            aggregates=self._aggregates.get(row.number, frozenset()),
            kinds=tuple(self._kinds.get(row.number, ())),
            reported_at=None if row.reported_at is None else from_moment(row.reported_at),
            allocation_writes=row.writes + self._writes.get(row.number, 0),
        )


def _known(limit: int) -> sa.ColumnElement[int]:
    """Return a limit as part of the text.

    Of one it does not know PostgreSQL thinks that a few rows are enough, and looks for them among
    all there are, in the order asked for.
    """
    return sa.literal_column(str(int(limit)), sa.Integer)


def consumers(
    connection: Connection,
    catalogue: Catalogue,
    wanted: ConsumerFilter,
    limit: int,
    after: str | None,
) -> tuple[ClaimRecord, ...]:
    """Return a page of consumers with what they hold (see the contract). Cost: four queries."""
    if filters.is_empty(wanted):
        return ()
    query = sa.select(_consumers.name).order_by(_consumers.name).limit(_known(limit))
    if filters.asks_claims(wanted):
        query = query.join(schema.claims)
    if after is not None:
        query = query.where(_consumers.name > after)
    query = query.where(*filters.of_consumers(wanted), *filters.holders(wanted))
    names = list(connection.scalars(query))
    found = kept.held_by(connection, names)
    return tuple(found[name] for name in names)
