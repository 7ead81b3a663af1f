"""The decision of a change, with the words for a refusal.

It is taken by the resource's own inventory (:mod:`resource_objects.providers.decision`), on rows
that are locked, by the same pure function that a search asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import schema
from resource_objects.backends.sql.chunks import chunks
from resource_objects.backends.sql.places import Key, Place, Places, key_of
from resource_objects.backends.sql.statements import Sized
from resource_objects.exceptions import CapacityException, Reason, Rule
from resource_objects.providers import decision
from resource_objects.providers.backend import Delta

_consumers = schema.consumers.c
_allocations = schema.allocations.c


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
                .where(
                    _allocations.provider_id == sa.bindparam(f"providers_{n}"),
                    _allocations.class_id == sa.bindparam(f"classes_{n}"),
                )
                .order_by(_allocations.used.desc(), _consumers.name)
                .limit(sa.literal_column(str(decision.MOST_HOLDERS)))
                .subquery()
            )
            for n in range(providers)
        )
    )


_HOLDERS = Sized(_holders_query)


def decide(
    connection: Connection,
    at: Places,
    deltas: Iterable[Delta],
    holds: Mapping[Key, int],
    *,
    aggregate: bool = False,
) -> None:
    """Raise unless every delta fits what is kept, for a consumer that holds ``holds``."""
    reasons = [
        (key_of(delta), reason)
        for delta in deltas
        for reason in _refusals(at, delta, holds, aggregate)
    ]
    if not reasons:
        return
    full = {key for key, reason in reasons if reason.rule is Rule.CAPACITY}
    holders = _holders(connection, {key: at.by_key[key] for key in full})
    raise CapacityException.of(
        decision.held_by(reason, holders[key]) if reason.rule is Rule.CAPACITY else reason
        for key, reason in reasons
    )


def _refusals(
    at: Places, delta: Delta, holds: Mapping[Key, int], aggregate: bool
) -> Sequence[Reason]:
    name = at.name(delta.provider_uuid)
    holding = holds.get(key_of(delta), 0)
    place = at.by_key.get(key_of(delta))
    if holding + delta.amount < 0:
        return [decision.not_held(delta.resource_class, delta.amount, holding, name)]
    if place is None:
        return [decision.absent(delta.resource_class, delta.amount, name)]
    return decision.refusals(place.record, delta.amount, name, holding, aggregate=aggregate)


def _holders(connection: Connection, full: dict[Key, Place]) -> dict[Key, list[tuple[str, int]]]:
    """Return who holds most of some inventories, in the transaction that refuses."""
    keys = {(place.provider_id, place.class_id): key for key, place in full.items()}
    found: dict[Key, set[tuple[str, int]]] = {key: set() for key in full}
    for part in chunks(list(keys), 64):
        rows = _HOLDERS.rows(
            connection, providers=[key[0] for key in part], classes=[key[1] for key in part]
        )
        for provider, class_, name, used in rows:
            found[keys[provider, class_]].add((name, used))
    return {key: list(holders) for key, holders in found.items()}
