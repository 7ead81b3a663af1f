"""Filters as conditions of SQL: what must be true of a provider, a consumer or an allocation.

Each condition is an ``IN`` over what is rare (who has a trait, who holds something somewhere), so
that a database may begin there, or a ``NOT EXISTS``. Where nothing can match there is no query.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator
from typing import Any, TypeAlias

import sqlalchemy as sa

from resource_objects import exceptions
from resource_objects.backends.sql import schema
from resource_objects.fields import MAX_FIGURE
from resource_objects.providers.listing import ConsumerFilter, ProviderFilter
from resource_objects.ratio import MAX_RATIO

_providers = schema.resource_providers.c
_inventories = schema.inventories.c
_consumers = schema.consumers.c
_claims = schema.claims.c
_allocations = schema.allocations.c
_shares = schema.shares.c

_Condition: TypeAlias = sa.ColumnElement[bool]

#: No inventory has a larger capacity.
_MOST = int(MAX_FIGURE * MAX_RATIO)
#: SQLite takes at most 32,766 values in one statement.
_MOST_VALUES = 30_000


def is_empty(wanted: ProviderFilter | ConsumerFilter) -> bool:
    """Return whether a filter names one of nothing, which nobody is.

    :raises InvalidField: if it names more than a statement takes
    """
    sets = list(_sets(wanted))
    count = sum(map(len, sets))
    if count > _MOST_VALUES:
        raise exceptions.InvalidField("filter", count, f"at most {_MOST_VALUES} names in all")
    return not all(sets)


def _sets(wanted: ProviderFilter | ConsumerFilter) -> Iterator[Collection[Any]]:
    """Yield the sets of which one member must be matched."""
    if isinstance(wanted, ConsumerFilter):
        given = [wanted.names, wanted.projects, wanted.users, wanted.types, wanted.states]
        yield from (found for found in given if found is not None)
        return
    names = (wanted.names, wanted.uuids, wanted.trees)
    yield from (found for found in names if found is not None)
    yield from wanted.aggregates
    yield from wanted.any_of


def _is(keys: Collection[str]) -> _Condition:
    """Providers of one of some names or uuids."""
    return sa.or_(_providers.name.in_(keys), _providers.uuid.in_(keys))


def _in_tree_of(keys: Collection[str]) -> sa.Select[int]:
    """``SELECT root_id`` of the trees that some providers are in."""
    return sa.select(_providers.root_id).where(_is(keys))


# --- providers ---


def of_providers(wanted: ProviderFilter) -> list[_Condition]:
    """Return what must be true of a row of ``resource_providers``."""
    found = [*_where(wanted), *_what(wanted)]
    found += [_has_room(name, amount) for name, amount in wanted.room]
    if wanted.over_capacity:
        over = _inventories.used > _inventories.capacity
        found.append(_providers.id.in_(sa.select(_inventories.provider_id).where(over)))
    if wanted.reported_before is not None:
        found.append(_providers.reported_at < _utc(wanted.reported_before))
    return found


def _where(wanted: ProviderFilter) -> Iterator[_Condition]:
    if wanted.names is not None:
        yield _providers.name.in_(wanted.names)
    if wanted.uuids is not None:
        yield _providers.uuid.in_(wanted.uuids)
    if wanted.trees is not None:
        other = schema.resource_providers.alias()
        named = sa.or_(other.c.name.in_(wanted.trees), other.c.uuid.in_(wanted.trees))
        yield _providers.root_id.in_(sa.select(other.c.root_id).where(named))
    if wanted.roots_only:
        yield _providers.parent_id.is_(None)


def _what(wanted: ProviderFilter) -> Iterator[_Condition]:
    """Conditions about traits and aggregates."""
    traits, aggregates = schema.resource_provider_traits, schema.resource_provider_aggregates
    for trait in sorted(wanted.required):
        yield _providers.id.in_(_members(traits, schema.traits, [trait]))
    for some in wanted.any_of:
        yield _providers.id.in_(_members(traits, schema.traits, some))
    for some in wanted.aggregates:
        yield _providers.id.in_(_members(aggregates, schema.aggregates, some))
    if wanted.forbidden:
        yield _is_none_of(_members(traits, schema.traits, wanted.forbidden))
    if wanted.forbidden_aggregates:
        unwanted = wanted.forbidden_aggregates
        yield _is_none_of(_members(aggregates, schema.aggregates, unwanted))


def _members(table: sa.Table, names: sa.Table, wanted: Collection[str]) -> sa.Select[int]:
    """``SELECT provider_id`` of who has one of some names."""
    query = sa.select(table.c.provider_id).join_from(table, names)
    return query.where(names.c.name.in_(wanted))


def _is_none_of(members: sa.Select[int]) -> _Condition:
    return (
        ~members.where(members.selected_columns[0] == _providers.id)
        .correlate(schema.resource_providers)
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
        .join_from(schema.inventories, schema.resource_classes)
        .where(schema.resource_classes.c.name == resource_class)
        .where(~_lacks_shared(amount).exists())
    )
    if amount:
        asked = sa.literal(amount, sa.BigInteger)
        query = query.where(
            _inventories.capacity - _inventories.used >= asked,
            _inventories.min_unit <= asked,
            sa.or_(_inventories.max_unit.is_(None), _inventories.max_unit >= asked),
            asked % _inventories.step_size == 0,
        )
    return _providers.id.in_(query)


def _lacks_shared(amount: int) -> sa.Select[int]:
    """``SELECT 1`` of what an inventory shares where an amount times the factor is not free."""
    there = schema.inventories.alias()
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
        .join_from(schema.shares, there, of)
        .where(_shares.provider_id == _inventories.provider_id)
        .where(_shares.class_id == _inventories.class_id)
        .where(lacks)
        .correlate(schema.inventories)
    )


# --- consumers and allocations ---


def of_consumers(wanted: ConsumerFilter) -> list[_Condition]:
    """Return what must be true of rows of ``consumers`` and their ``claims``."""
    found: list[_Condition] = []
    if wanted.names is not None:
        found.append(_consumers.name.in_(wanted.names))
    given = (
        (_consumers.project_id, wanted.projects),
        (_consumers.user_id, wanted.users),
        (_consumers.consumer_type, wanted.types),
    )
    found += [_one_of(column, some) for column, some in given if some is not None]
    if wanted.states is not None:
        found.append(_claims.state.in_(wanted.states))
    if wanted.created_before is not None:
        found.append(_claims.created_at < _utc(wanted.created_before))
    if wanted.created_after is not None:
        found.append(_claims.created_at > _utc(wanted.created_after))
    if wanted.expires_before is not None:
        found.append(_claims.expires_at < _utc(wanted.expires_before))
    return found


def asks_claims(wanted: ConsumerFilter) -> bool:
    """Return whether a filter asks something of claims."""
    asked = (wanted.created_before, wanted.created_after, wanted.expires_before, wanted.states)
    return any(value is not None for value in asked)


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
        inside = schema.resource_providers.alias()
        there = sa.select(inside.c.id).where(inside.c.root_id.in_(_in_tree_of([wanted.tree])))
        yield _allocations.provider_id.in_(there)


def _utc(when: datetime.datetime) -> datetime.datetime:
    """Return a time as it is kept: in UTC, without a zone."""
    return when if when.tzinfo is None else when.astimezone(datetime.UTC).replace(tzinfo=None)
