"""Pages of providers and of consumers: whom a filter wants, then what belongs to them.

One statement finds the page, and a few more, whose number does not grow with it, what is on it.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import consumers, disabled, names, tables
from resource_objects.backends.sql.names import Catalogue
from resource_objects.backends.sql.statements import (
    Sized,
    from_moment,
    listed,
    now_of,
    plain,
    refuse_too_many,
    uuids_among,
)
from resource_objects.fields import MAX_FIGURE
from resource_objects.providers.disabled import FOREVER, TRAIT
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    Description,
    ListedProvider,
    ProviderFilter,
    Total,
    sorted_totals,
)
from resource_objects.providers.orders import ConsumerRecord
from resource_objects.ratio import MAX_RATIO
from resource_objects.resources.records import InventoryRecord, KindRecord

_T = TypeVar("_T")

_providers = tables.resource_providers.c
_inventories = tables.inventories.c
_traits = tables.resource_provider_traits.c
_aggregates = tables.resource_provider_aggregates.c
_kinds = tables.structures.c
_consumers = tables.consumers.c


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


class _PagedProvider(NamedTuple):
    """A provider of a page."""

    number: int
    uuid: str
    name: str
    generation: int
    parent: int | None
    root: int
    reported_at: Any
    adopted_at: Any
    writes: int
    definition_writes: int
    disabled: tuple[Any, ...]


def list_providers(
    connection: Connection, catalogue: Catalogue, wanted: ProviderFilter, limit: int, after: int
) -> tuple[ListedProvider, ...]:
    """Return a page of providers (see the contract).

    Cost: six queries, and one for each kind of name that is not standard. What nothing narrows
    down but ``over_capacity`` looks at every inventory.
    """
    if is_empty(wanted):
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
            _providers.adopted_at,
            _providers.allocation_writes,
            _providers.definition_writes,
            *disabled.FACTS,
        )
        .where(_providers.id > after, *of_providers(wanted, now_for(connection, wanted)))
        .order_by(_providers.id)
        .limit(_known(limit))
    )
    rows = [
        _PagedProvider(*row[:10], disabled=tuple(row[10:])) for row in connection.execute(query)
    ]
    return _Page(connection, catalogue, rows).listed() if rows else ()


class _Page:
    """Some providers, and what belongs to them."""

    def __init__(
        self, connection: Connection, catalogue: Catalogue, rows: Sequence[_PagedProvider]
    ) -> None:
        self._connection = connection
        self._rows = rows
        self._numbers = [row.number for row in rows]
        found = self._of(_RECORDS, lambda *row: row)
        ends = any(row.disabled[3] is not None for row in rows)
        self._now = now_of(connection) if ends else None
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
        self._kinds: dict[int, list[KindRecord]] = self._of(_KINDS, names.kind_record)
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

    def _listed(self, row: _PagedProvider) -> ListedProvider:
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
            adopted_at=None if row.adopted_at is None else from_moment(row.adopted_at),
            allocation_writes=row.writes + self._writes.get(row.number, 0),
            definition_writes=row.definition_writes,
            disabled=disabled.in_force(row.disabled, self._now),
        )


def _known(limit: int) -> sa.ColumnElement[int]:
    """Return a limit as part of the text.

    Of one it does not know PostgreSQL thinks that a few rows are enough, and looks for them among
    all there are, in the order asked for.
    """
    return sa.literal_column(str(int(limit)), sa.Integer)


def list_consumers(
    connection: Connection,
    catalogue: Catalogue,
    wanted: ConsumerFilter,
    limit: int,
    after: str | None,
) -> tuple[ConsumerRecord, ...]:
    """Return a page of consumers with what they hold (see the contract). Cost: four queries."""
    if is_empty(wanted):
        return ()
    query = sa.select(_consumers.name).order_by(_consumers.name).limit(_known(limit))
    if after is not None:
        query = query.where(_consumers.name > after)
    query = query.where(*of_consumers(wanted), *holders(wanted))
    names = list(connection.scalars(query))
    found = consumers.held_by(connection, names)
    return tuple(found[name] for name in names)


# --- filters --------------------------------------------------------------------------------------
#
# Filters as conditions of SQL: what must be true of a provider, a consumer or an allocation.
#
# Each condition is an ``IN`` over what is rare (who has a trait, who holds something somewhere), so
# that a database may begin there, or a ``NOT EXISTS``. Where nothing can match there is no query.


_providers = tables.resource_providers.c
_inventories = tables.inventories.c
_consumers = tables.consumers.c
_allocations = tables.allocations.c
_shares = tables.shares.c

_Condition: TypeAlias = sa.ColumnElement[bool]

#: No inventory has a larger capacity.
_MOST = int(MAX_FIGURE * MAX_RATIO)


def is_empty(wanted: ProviderFilter | ConsumerFilter) -> bool:
    """Return whether a filter names one of nothing, which nobody is.

    :raises InvalidInput: if it names more than a statement takes
    """
    sets = list(_sets(wanted))
    refuse_too_many(sets)
    return not all(sets)


def _sets(wanted: ProviderFilter | ConsumerFilter) -> Iterator[Collection[Any]]:
    """Yield the sets of which one member must be matched."""
    if isinstance(wanted, ConsumerFilter):
        given = [wanted.names, wanted.projects, wanted.users, wanted.types, wanted.states]
        given.append(wanted.groups)
        yield from (found for found in given if found is not None)
        return
    names = (wanted.names, wanted.uuids, wanted.trees)
    yield from (found for found in names if found is not None)
    yield from wanted.aggregates
    yield from wanted.any_of


def _is(keys: Collection[str]) -> _Condition:
    """Providers of one of some names or uuids."""
    return sa.or_(_providers.name.in_(keys), _providers.uuid.in_(uuids_among(keys)))


def _in_tree_of(keys: Collection[str]) -> sa.Select[int]:
    """``SELECT root_id`` of the trees that some providers are in."""
    return sa.select(_providers.root_id).where(_is(keys))


# --- providers ---


def now_for(connection: Connection, wanted: ProviderFilter) -> datetime.datetime | None:
    """Return the time of the database, if a filter asks who is out of service; else None."""
    asked = wanted.required.union(wanted.forbidden, *wanted.any_of)
    return now_of(connection) if TRAIT in asked else None


def of_providers(wanted: ProviderFilter, now: datetime.datetime | None = None) -> list[_Condition]:
    """Return what must be true of a row of ``resource_providers``.

    :param now: see :func:`now_for`
    """
    found = [*_where(wanted), *_what(wanted, now)]
    found += [_has_room(name, amount) for name, amount in wanted.room]
    if wanted.over_capacity:
        over = _inventories.used > _inventories.capacity
        found.append(_providers.id.in_(sa.select(_inventories.provider_id).where(over)))
    if wanted.reported_before is not None:
        found.append(_providers.reported_at < plain(wanted.reported_before))
    return found


def _where(wanted: ProviderFilter) -> Iterator[_Condition]:
    if wanted.names is not None:
        yield _providers.name.in_(wanted.names)
    if wanted.uuids is not None:
        yield _providers.uuid.in_(uuids_among(wanted.uuids))
    if wanted.trees is not None:
        other = tables.resource_providers.alias()
        named = sa.or_(other.c.name.in_(wanted.trees), other.c.uuid.in_(uuids_among(wanted.trees)))
        yield _providers.root_id.in_(sa.select(other.c.root_id).where(named))
    if wanted.roots_only:
        yield _providers.parent_id.is_(None)


def _what(wanted: ProviderFilter, now: datetime.datetime | None) -> Iterator[_Condition]:
    """Conditions about traits and aggregates."""
    traits, aggregates = tables.resource_provider_traits, tables.resource_provider_aggregates
    for some in (*([trait] for trait in sorted(wanted.required)), *wanted.any_of):
        has = _providers.id.in_(_members(traits, tables.traits, some))
        yield sa.or_(has, _is_disabled(now)) if TRAIT in some else has
    for some in wanted.aggregates:
        yield _providers.id.in_(_members(aggregates, tables.aggregates, some))
    if TRAIT in wanted.forbidden:
        yield sa.not_(_is_disabled(now))
    if wanted.forbidden:
        yield _is_none_of(_members(traits, tables.traits, wanted.forbidden))
    if wanted.forbidden_aggregates:
        unwanted = wanted.forbidden_aggregates
        yield _is_none_of(_members(aggregates, tables.aggregates, unwanted))


def _is_disabled(now: datetime.datetime | None) -> _Condition:
    """Providers that are out of service themselves."""
    assert now is not None, "it is read where it is asked for"
    until = sa.func.coalesce(_providers.disabled_until, plain(FOREVER))
    return sa.and_(_providers.disabled_reason.is_not(None), until > plain(now))


def _members(table: sa.Table, names: sa.Table, wanted: Collection[str]) -> sa.Select[int]:
    """``SELECT provider_id`` of who has one of some names."""
    query = sa.select(table.c.provider_id).join_from(table, names)
    return query.where(names.c.name.in_(wanted))


def _is_none_of(members: sa.Select[int]) -> _Condition:
    return (
        ~members.where(members.selected_columns[0] == _providers.id)
        .correlate(tables.resource_providers)
        .exists()
    )


def _has_room(resource_class: str, amount: int) -> _Condition:
    """Providers that have an amount free: unit rules kept, and where they share, there too.

    Nothing is asked of an amount of 0 but that there is an inventory: it changes nothing.
    """
    if amount > _MOST:
        return sa.false()
    query = (
        sa.select(_inventories.provider_id)
        .join_from(tables.inventories, tables.resource_classes)
        .where(tables.resource_classes.c.name == resource_class)
        .where(~_lacks_shared(amount).exists())
    )
    if amount:
        requested = sa.literal(amount, sa.BigInteger)
        query = query.where(
            _inventories.capacity - _inventories.used >= requested,
            _inventories.min_unit <= requested,
            sa.or_(_inventories.max_unit.is_(None), _inventories.max_unit >= requested),
            requested % _inventories.step_size == 0,
        )
    return _providers.id.in_(query)


def _lacks_shared(amount: int) -> sa.Select[int]:
    """``SELECT 1`` of what an inventory shares where an amount times the factor is not free."""
    there = tables.inventories.alias()
    most = min(_MOST // max(amount, 1), MAX_FIGURE)
    # in this order: a product above every capacity might not fit into 64 bits
    lacks = sa.case(
        (_shares.factor > most, True),
        else_=_shares.factor * sa.literal(amount, sa.BigInteger) > there.c.capacity - there.c.used,
    )
    of = sa.and_(
        there.c.provider_id == _shares.of_provider_id, there.c.class_id == _shares.of_class_id
    )
    return (
        sa.select(_shares.provider_id)
        .join_from(tables.shares, there, of)
        .where(_shares.provider_id == _inventories.provider_id)
        .where(_shares.class_id == _inventories.class_id)
        .where(lacks)
        .correlate(tables.inventories)
    )


# --- consumers and allocations ---


def of_consumers(wanted: ConsumerFilter) -> list[_Condition]:
    """Return what must be true of rows of ``consumers``."""
    found: list[_Condition] = [_consumers.gone == sa.literal_column("0")]
    if wanted.names is not None:
        found.append(_consumers.name.in_(wanted.names))
    given = (
        (_consumers.project_id, wanted.projects),
        (_consumers.user_id, wanted.users),
        (_consumers.consumer_type, wanted.types),
        (_consumers.server_group, wanted.groups),
    )
    found += [_one_of(column, some) for column, some in given if some is not None]
    if wanted.states is not None:
        found.append(_consumers.state.in_(wanted.states))
    if wanted.created_before is not None:
        found.append(_consumers.created_at < plain(wanted.created_before))
    if wanted.created_after is not None:
        found.append(_consumers.created_at > plain(wanted.created_after))
    if wanted.expires_before is not None:
        # as an IN: few have an expiry, and a planner would look for them in the order of names
        other = tables.consumers.alias()
        over = sa.select(other.c.id).where(other.c.expires_at < plain(wanted.expires_before))
        found.append(_consumers.id.in_(over))
    return found


def _one_of(column: sa.Column[Any], some: Collection[str | None]) -> _Condition:
    named = column.in_([value for value in some if value is not None])
    return sa.or_(named, column.is_(None)) if None in some else named


def holders(wanted: ConsumerFilter) -> Iterator[_Condition]:
    """Yield what must be true of consumers that hold something somewhere."""
    for place in of_places(wanted):
        yield _consumers.id.in_(sa.select(_allocations.consumer_id).where(place))


def of_places(wanted: ConsumerFilter) -> Iterator[_Condition]:
    """Yield what must be true of rows of ``allocations`` by where they are."""
    if wanted.provider is not None:
        there = sa.select(_providers.id).where(_is([wanted.provider]))
        yield _allocations.provider_id.in_(there)
    if wanted.tree is not None:
        inside = tables.resource_providers.alias()
        there = sa.select(inside.c.id).where(inside.c.root_id.in_(_in_tree_of([wanted.tree])))
        yield _allocations.provider_id.in_(there)


# --- totals ---------------------------------------------------------------------------------------
#
# What is used of each class, summed up by project, user, type, provider, or only by class.


_providers = tables.resource_providers.c
_consumers = tables.consumers.c
_allocations = tables.allocations.c

_DESCRIPTIONS = {
    By.PROJECT: _consumers.project_id,
    By.USER: _consumers.user_id,
    By.CONSUMER_TYPE: _consumers.consumer_type,
    By.GROUP: _consumers.server_group,
}
#: What is summed up by, None where it is only the class.
_GROUPS = {By.RESOURCE_CLASS: None, By.PROVIDER: _providers.name, **_DESCRIPTIONS}


def totals(
    connection: Connection, catalogue: Catalogue, wanted: ConsumerFilter, by: By
) -> tuple[Total, ...]:
    """Return what the consumers of a filter use (see the contract).

    Cost: one query, which looks at every allocation that the filter wants, and one for classes
    that are not standard.
    """
    if is_empty(wanted):
        return ()
    rows = connection.execute(_query(wanted, by)).all()
    classes = catalogue.classes.names(connection, {row[1] for row in rows})
    return sorted_totals(
        [Total(group, classes[class_], int(used), count) for group, class_, used, count in rows]
    )


def _query(wanted: ConsumerFilter, by: By) -> sa.Select[*tuple[Any, ...]]:
    group = _GROUPS[by]
    query: sa.Select[*tuple[Any, ...]] = sa.select(
        sa.null() if group is None else group,
        _allocations.class_id,
        sa.func.sum(_allocations.used),
        sa.func.count(_allocations.consumer_id.distinct()),
    )
    query = query.join_from(tables.allocations, tables.consumers)
    if by is By.PROVIDER:
        query = query.join(tables.resource_providers, _providers.id == _allocations.provider_id)
    query = query.where(*of_consumers(wanted), *of_places(wanted))
    return query.group_by(_allocations.class_id, *(() if group is None else (group,)))


def count_consumers(
    connection: Connection, wanted: ConsumerFilter, by: Description
) -> dict[str | None, int]:
    """Return how many consumers of a filter there are (see the contract). Cost: one query."""
    if is_empty(wanted):
        return {}
    described = _DESCRIPTIONS[by]
    query = sa.select(described, sa.func.count()).select_from(tables.consumers)
    query = query.where(*of_consumers(wanted), *holders(wanted)).group_by(described)
    return dict(connection.execute(query).all())
