"""Pages of providers, consumers and server groups, and totals, by filters.

One statement reads the page; a few more, whose number does not grow with it, read what belongs to
its rows.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import orders, read, tables
from resource_objects.backends.sql.names import GROUP, group_of
from resource_objects.backends.sql.statements import (
    SQL,
    disabled_of,
    from_moment_or_none,
    now_of,
    plain,
    refuse_too_many,
    sql_now,
    uuids_among,
)
from resource_objects.fields import MAX_FIGURE
from resource_objects.providers.columns import TIMES, Columns
from resource_objects.providers.disabled import FOREVER, TRAIT
from resource_objects.providers.listing import (
    DESCRIPTIONS,
    By,
    ConsumerFilter,
    Description,
    ListedProvider,
    Operator,
    ProviderFilter,
    Total,
    conditions_of,
    sorted_totals,
)
from resource_objects.providers.orders import ConsumerRecord
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.ratio import MAX_RATIO

_providers = tables.resource_providers.c
_inventories = tables.inventories.c
_consumers = tables.consumers.c
_allocations = tables.allocations.c
_shares = tables.shares.c
_IS_STORED = _consumers.gone == sa.literal_column("0")


_NAMES = SQL("SELECT id, name, uuid FROM resource_providers WHERE id IN :ids*")
#: The number of writes that allocated some of an inventory of a provider.
_WRITES = (
    sa.select(sa.func.coalesce(sa.func.sum(_inventories.writes), 0))
    .where(_inventories.provider_id == _providers.id)
    .scalar_subquery()
)
_LISTED = [
    *(column for column in _providers if column.name not in ("created_at", "updated_at")),
    _WRITES.label("inventory_writes"),
]


def list_providers(
    connection: Connection, criteria: ProviderFilter, limit: int, after: int = 0
) -> tuple[ListedProvider, ...]:
    """Return a page of providers (see the contract).

    Cost: six queries, and one for each kind of name that is not standard. A filter with nothing but
    ``over_capacity`` reads every inventory.
    """
    query = (
        sa.select(*_LISTED)
        .where(_providers.id > after, *of_providers(criteria, sql_now(connection)))
        .order_by(_providers.id)
        .limit(_literal(limit))
    )
    rows = connection.execute(query).all()
    return _listed(connection, rows) if rows else ()


def _listed(
    connection: Connection, rows: Sequence[sa.Row[*tuple[Any, ...]]]
) -> tuple[ListedProvider, ...]:
    """Return rows of ``resource_providers`` with everything that belongs to them."""
    reader = read.Reader(connection, [row.id for row in rows])
    index = Columns(
        inventories=reader.read(read.INVENTORIES),
        traits=reader.read(read.TRAITS),
        aggregates=reader.read(read.AGGREGATES),
        kinds=reader.kinds(),
    ).index
    relatives = {row.root_id for row in rows} | {row.parent_id for row in rows} - {None}
    names: dict[int | None, tuple[Any, Any]] = {None: (None, None)}
    for number, *name_and_uuid in _NAMES.rows(connection, ids=[*relatives]):
        names[number] = tuple(name_and_uuid)
    is_timed = any(row.disabled_until is not None for row in rows)
    now = now_of(connection) if is_timed else None
    page = []
    for row in rows:
        parent, parent_uuid = names[row.parent_id]
        root, root_uuid = names[row.root_id]
        reason = [getattr(row, name) for name in tables.DISABLED]
        listed = ListedProvider(
            number=row.id,
            uuid=row.uuid,
            name=row.name,
            generation=row.generation,
            parent=parent,
            parent_uuid=parent_uuid,
            root=root,
            root_uuid=root_uuid,
            records=tuple(index.inventories.get(row.id, ())),
            traits=frozenset(index.traits.get(row.id, ())),
            aggregates=frozenset(index.aggregates.get(row.id, ())),
            kinds=tuple(index.kinds.get(row.id, ())),
            allocation_writes=row.allocation_writes + int(row.inventory_writes),
            definition_writes=row.definition_writes,
            disabled=disabled_of(reason, now),
            **{name: from_moment_or_none(getattr(row, name)) for name in TIMES},
        )
        page.append(listed)
    return tuple(page)


def _literal(limit: int) -> sa.ColumnElement[int]:
    """Return a limit as part of the text.

    For a limit in a parameter PostgreSQL plans for a few rows, and looks for them by reading all
    rows in the order of the page.
    """
    return sa.literal_column(str(int(limit)), sa.Integer)


def list_consumers(
    connection: Connection, criteria: ConsumerFilter, limit: int, after: str | None = None
) -> tuple[ConsumerRecord, ...]:
    """Return a page of consumers with their allocations (see the contract). Cost: four queries."""
    query = sa.select(_consumers.name).order_by(_consumers.name).limit(_literal(limit))
    if after is not None:
        query = query.where(_consumers.name > after)
    query = query.where(*of_consumers(criteria), *holders(criteria))
    names = list(connection.scalars(query))
    records = orders.consumer_records(connection, names)
    return tuple(records[name] for name in names)


def list_groups(
    connection: Connection,
    limit: int,
    after: str | None = None,
    *,
    names: Collection[str] | None = None,
) -> tuple[ServerGroup, ...]:
    """Return a page of server groups with their members (see the contract). Cost: one query."""
    groups = tables.server_groups.c
    page = sa.select(*[groups[name] for name in GROUP]).order_by(groups.name).limit(limit)
    if after is not None:
        page = page.where(groups.name > after)
    if names is not None:
        page = page.where(groups.name.in_(names))
    of = page.subquery()
    is_member = sa.and_(_consumers.server_group == of.c.name, _IS_STORED)
    query = sa.select(*of.c, _consumers.name).outerjoin_from(of, tables.consumers, is_member)
    columns_of: dict[str, Sequence[Any]] = {}
    members: dict[str, list[str]] = defaultdict(list)
    for *columns, member in connection.execute(query.order_by(of.c.name)):
        columns_of[columns[0]] = columns
        if member is not None:
            members[columns[0]].append(member)
    return tuple(group_of(columns, members[name]) for name, columns in columns_of.items())


# --- filters --------------------------------------------------------------------------------------
#
# The conditions of a filter (:mod:`resource_objects.providers.listing`) as SQL.
#
# Each is an ``IN`` over rare rows (the providers with a trait, the consumers of a provider), so a
# database may begin there, or a ``NOT EXISTS``.


_Condition: TypeAlias = sa.ColumnElement[bool]
#: The time of the database.
_Time: TypeAlias = sa.ColumnElement[Any]

#: The largest capacity of an inventory.
_MOST = int(MAX_FIGURE * MAX_RATIO)
#: The rows and the names of a column that has several names for each provider.
_NAMED = {
    "traits": (tables.resource_provider_traits, tables.traits),
    "aggregates": (tables.resource_provider_aggregates, tables.aggregates),
}


def _check_size(criteria: ProviderFilter | ConsumerFilter) -> None:
    """Raise InvalidInput if a filter names more than one statement takes."""
    sets: list[Collection[Any]] = []
    for condition, value in conditions_of(criteria):
        if condition.operator is Operator.IN:
            sets.append(value)
        elif condition.operator is Operator.ANY_OF_EACH:
            sets += value
    if isinstance(criteria, ProviderFilter) and criteria.trees is not None:
        sets.append(criteria.trees)
    refuse_too_many(sets)


def _is_one_of(column: sa.ColumnElement[Any], values: Collection[str | None]) -> _Condition:
    if column is _providers.uuid:
        return column.in_(uuids_among(map(str, values)))
    is_named = column.in_([value for value in values if value is not None])
    return sa.or_(is_named, column.is_(None)) if None in values else is_named


def _in_tree(trees: Collection[str]) -> sa.Select[int]:
    """Return ``SELECT root_id`` of the trees of some providers (names or uuids)."""
    other = tables.resource_providers.alias().c
    is_named = sa.or_(other.name.in_(trees), other.uuid.in_(uuids_among(trees)))
    return sa.select(other.root_id).where(is_named)


# --- providers ---


def of_providers(criteria: ProviderFilter, now: _Time) -> Iterator[_Condition]:
    """Yield the conditions of a filter on rows of ``resource_providers``."""
    _check_size(criteria)
    for condition, value in conditions_of(criteria):
        yield _COMPARE[condition.operator](_providers, condition.column, value, now)
    if criteria.trees is not None:
        yield _providers.root_id.in_(_in_tree(criteria.trees))
    for resource_class, amount in criteria.room:
        yield _has_room(resource_class, amount)


def _has_one_of(column: str, any_of: Collection[str], now: _Time) -> _Condition:
    has = _providers.id.in_(_bearers(column, any_of))
    return sa.or_(has, _is_disabled(now)) if TRAIT in any_of else has


def _has_none_of(column: str, forbidden: Collection[str], now: _Time) -> _Condition:
    bearers = _bearers(column, forbidden)
    bearers = bearers.where(bearers.selected_columns[0] == _providers.id)
    has_none = ~bearers.correlate(tables.resource_providers).exists()
    return sa.and_(has_none, sa.not_(_is_disabled(now))) if TRAIT in forbidden else has_none


def _bearers(column: str, any_of: Collection[str]) -> sa.Select[int]:
    """Return ``SELECT provider_id`` of the providers with one of some traits or aggregates."""
    rows, named = _NAMED[column]
    query = sa.select(rows.c.provider_id).join_from(rows, named)
    return query.where(named.c.name.in_(any_of))


def _is_disabled(now: _Time) -> _Condition:
    """Return the condition that a provider is disabled itself."""
    until = sa.func.coalesce(_providers.disabled_until, plain(FOREVER))
    return sa.and_(_providers.disabled_reason.is_not(None), until > now)


def _has_room(resource_class: str, amount: int) -> _Condition:
    """Return the condition that a provider has capacity for an amount, its shares included.

    An amount of 0 changes nothing, and only requires that the inventory exists.
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
    """Return a SELECT of the shares of an inventory without capacity for an amount."""
    target = tables.inventories.alias()
    most = min(_MOST // max(amount, 1), MAX_FIGURE)
    # in this order: a product above every capacity might not fit into 64 bits
    lacks = sa.case(
        (_shares.factor > most, True),
        else_=_shares.factor * sa.literal(amount, sa.BigInteger)
        > target.c.capacity - target.c.used,
    )
    of = sa.and_(
        target.c.provider_id == _shares.of_provider_id, target.c.class_id == _shares.of_class_id
    )
    return (
        sa.select(_shares.provider_id)
        .join_from(tables.shares, target, of)
        .where(_shares.provider_id == _inventories.provider_id)
        .where(_shares.class_id == _inventories.class_id)
        .where(lacks)
        .correlate(tables.inventories)
    )


# --- consumers and allocations ---


def of_consumers(criteria: ConsumerFilter) -> Iterator[_Condition]:
    """Yield the conditions of a filter on rows of ``consumers``, without their allocations."""
    _check_size(criteria)
    yield _IS_STORED
    for condition, value in conditions_of(criteria):
        yield _COMPARE[condition.operator](_consumers, condition.column, value, sa.null())


def holders(criteria: ConsumerFilter) -> Iterator[_Condition]:
    """Yield the conditions on consumers by the places of their allocations."""
    for place in of_places(criteria):
        yield _consumers.id.in_(sa.select(_allocations.consumer_id).where(place))


def of_places(criteria: ConsumerFilter) -> Iterator[_Condition]:
    """Yield the conditions on rows of ``allocations`` by provider and tree."""
    if criteria.provider is not None:
        keys = [criteria.provider]
        is_named = sa.or_(_providers.name.in_(keys), _providers.uuid.in_(uuids_among(keys)))
        yield _allocations.provider_id.in_(sa.select(_providers.id).where(is_named))
    if criteria.tree is not None:
        inside = tables.resource_providers.alias().c
        providers = sa.select(inside.id).where(inside.root_id.in_(_in_tree([criteria.tree])))
        yield _allocations.provider_id.in_(providers)


def _expires_before(moment: datetime.datetime) -> _Condition:
    # an IN: few claims expire, and a planner would look for them in the order of names
    other = tables.consumers.alias().c
    return _consumers.id.in_(sa.select(other.id).where(other.expires_at < plain(moment)))


#: The SQL of each operator: of the columns of a table, a name, the value of a filter and the time.
_COMPARE: Mapping[Operator, Callable[[Any, str, Any, _Time], _Condition]] = {
    Operator.IN: lambda columns, name, values, _: _is_one_of(columns[name], values),
    Operator.BEFORE: lambda columns, name, moment, _: (
        _expires_before(moment) if name == "expires_at" else columns[name] < plain(moment)
    ),
    Operator.AFTER: lambda columns, name, moment, _: columns[name] > plain(moment),
    Operator.MISSING: lambda columns, name, *_: columns[name].is_(None),
    Operator.ALL_OF: lambda _, table, names, now: sa.and_(
        *(_has_one_of(table, [name], now) for name in sorted(names))
    ),
    Operator.NONE_OF: lambda _, table, names, now: _has_none_of(table, names, now),
    Operator.ANY_OF_EACH: lambda _, table, sets, now: sa.and_(
        *(_has_one_of(table, names, now) for names in sets)
    ),
    Operator.OVER_CAPACITY: lambda *_: _providers.id.in_(
        sa.select(_inventories.provider_id).where(_inventories.used > _inventories.capacity)
    ),
}


# --- totals ---------------------------------------------------------------------------------------
#
# The sum used of each class, by project, user, type or provider, or only by class.


#: The column to sum by; for the class alone there is none.
_GROUPS = {By.PROVIDER: _providers.name} | {
    by: _consumers[condition.column] for by, condition in DESCRIPTIONS.items()
}


def totals(connection: Connection, criteria: ConsumerFilter, by: By) -> tuple[Total, ...]:
    """Return the sums used by the consumers of a filter (see the contract).

    Cost: one query, which reads every allocation of these consumers.
    """
    group, class_ = _GROUPS.get(by), tables.resource_classes.c
    sums = sa.select(
        _allocations.class_id.label("class_id"),
        (sa.null() if group is None else group).label("group"),
        sa.func.sum(_allocations.used).label("used"),
        sa.func.count(_allocations.consumer_id.distinct()).label("consumers"),
    )
    sums = sums.join_from(tables.allocations, tables.consumers)
    if by is By.PROVIDER:
        sums = sums.join(tables.resource_providers, _providers.id == _allocations.provider_id)
    sums = sums.where(*of_consumers(criteria), *of_places(criteria))
    summed = sums.group_by(_allocations.class_id, *(() if group is None else (group,))).subquery()
    query = sa.select(summed.c.group, class_.name, summed.c.used, summed.c.consumers)
    query = query.join_from(summed, tables.resource_classes, class_.id == summed.c.class_id)
    rows = connection.execute(query)
    return sorted_totals([Total(of, name, int(used), n) for of, name, used, n in rows])


def count_consumers(
    connection: Connection, criteria: ConsumerFilter, by: Description
) -> dict[str | None, int]:
    """Return the number of consumers of a filter (see the contract). Cost: one query."""
    described = _GROUPS[by]
    query = sa.select(described, sa.func.count()).select_from(tables.consumers)
    query = query.where(*of_consumers(criteria), *holders(criteria)).group_by(described)
    return dict(connection.execute(query).all())
