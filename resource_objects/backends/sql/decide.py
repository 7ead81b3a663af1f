"""What a decision asks the database: who draws on an inventory, and who has a unit.

Decided is by :func:`resource_objects.providers.settle.settle`, on rows that are locked. It asks
for the names only to say why it refuses.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import schema, units
from resource_objects.backends.sql.chunks import chunks
from resource_objects.backends.sql.places import Places
from resource_objects.backends.sql.statements import Sized, listed
from resource_objects.providers import decision
from resource_objects.providers.orders import ClaimRecord, Key, Order
from resource_objects.providers.settle import Settlement, settle

_consumers = schema.consumers.c
_allocations = schema.allocations.c
_shares = schema.shares.c

#: inventories that one query asks the holders of
_MOST_PLACES = 64


def _is(table: Any, provider: str, class_: str, position: int) -> sa.ColumnElement[bool]:
    """Return ``provider = :providers_n AND class = :classes_n``."""
    return sa.and_(
        table[provider] == sa.bindparam(f"providers_{position}"),
        table[class_] == sa.bindparam(f"classes_{position}"),
    )


def _holders_query(providers: int, classes: int) -> sa.CompoundSelect[*tuple[Any, ...]]:
    # the few largest of each inventory, in one statement for all of them
    return sa.union_all(
        *(
            sa.select(
                sa.select(
                    _allocations.provider_id,
                    _allocations.class_id,
                    _consumers.name,
                    _allocations.used,
                )
                .join_from(schema.allocations, schema.consumers)
                .where(_is(_allocations, "provider_id", "class_id", position))
                .order_by(_allocations.used.desc(), _consumers.name)
                .limit(sa.literal_column(str(decision.MOST_HOLDERS)))
                .subquery()
            )
            for position in range(providers)
        )
    )


def _shared_query(providers: int, classes: int) -> sa.Select[*tuple[Any, ...]]:
    return (
        sa.select(_shares.of_provider_id, _shares.of_class_id)
        .where(
            listed(_shares.of_provider_id, "providers", providers),
            listed(_shares.of_class_id, "classes", classes),
        )
        .distinct()
    )


def _drawers_query(providers: int, classes: int) -> sa.CompoundSelect[*tuple[Any, ...]]:
    # like the holders, but of an inventory that others share: all that one consumer takes of it
    return sa.union_all(*(_drawers_of(position) for position in range(providers)))


def _drawers_of(position: int) -> sa.Select[*tuple[Any, ...]]:
    # SELECT :provider, :class, name, SUM(used) FROM (allocations here UNION ALL allocations times
    # factor of who shares this) JOIN consumers GROUP BY name ORDER BY SUM(used) DESC LIMIT 100
    drawn = sa.union_all(
        sa.select(_allocations.consumer_id, _allocations.used).where(
            _is(_allocations, "provider_id", "class_id", position)
        ),
        sa.select(_allocations.consumer_id, (_allocations.used * _shares.factor).label("used"))
        .join_from(
            schema.shares,
            schema.allocations,
            sa.and_(
                _allocations.provider_id == _shares.provider_id,
                _allocations.class_id == _shares.class_id,
            ),
        )
        .where(_is(_shares, "of_provider_id", "of_class_id", position)),
    ).subquery()
    total = sa.func.sum(drawn.c.used)
    number = sa.BigInteger()
    return sa.select(
        sa.select(
            sa.bindparam(f"providers_{position}", type_=number).label("provider"),
            sa.bindparam(f"classes_{position}", type_=number).label("class"),
            _consumers.name,
            total.label("used"),
        )
        .join_from(drawn, schema.consumers, _consumers.id == drawn.c.consumer_id)
        .group_by(_consumers.name)
        .order_by(total.desc(), _consumers.name)
        .limit(sa.literal_column(str(decision.MOST_HOLDERS)))
        .subquery()
    )


_HOLDERS = Sized(_holders_query)
_SHARED = Sized(_shared_query)
_DRAWERS = Sized(_drawers_query)


def decide(
    connection: Connection,
    orders: Sequence[Order],
    kept: Mapping[str, ClaimRecord],
    at: Places,
    now: datetime.datetime,
) -> Settlement:
    """Return what orders come to, or raise (see ``settle``)."""
    return settle(
        orders,
        kept,
        at.by_key,
        at.names,
        now,
        holders=lambda keys: _holders(connection, at, keys),
        takers=lambda wanted: units.takers(connection, wanted),
    )


def _holders(
    connection: Connection, at: Places, full: Collection[Key]
) -> dict[Key, list[tuple[str, int]]]:
    """Return who draws most on some inventories, in the transaction that refuses."""
    keys = {(at.by_key[key].provider_id, at.by_key[key].class_id): key for key in full}
    shared: set[tuple[int, int]] = set()
    classes = list({class_ for _, class_ in keys})
    for part in chunks(list({provider for provider, _ in keys})):
        for provider, class_ in _SHARED.rows(connection, providers=part, classes=classes):
            shared.add((provider, class_))
    found: dict[Key, set[tuple[str, int]]] = {key: set() for key in full}
    for query, asked in (
        (_HOLDERS, [numbers for numbers in keys if numbers not in shared]),
        (_DRAWERS, [numbers for numbers in keys if numbers in shared]),
    ):
        for some in chunks(asked, _MOST_PLACES):
            for provider, class_, name, used in query.rows(connection, **_as_lists(some)):
                found[keys[provider, class_]].add((name, int(used)))
    return {key: list(holders) for key, holders in found.items()}


def _as_lists(keys: Sequence[tuple[int, int]]) -> dict[str, list[int]]:
    return {"providers": [key[0] for key in keys], "classes": [key[1] for key in keys]}
