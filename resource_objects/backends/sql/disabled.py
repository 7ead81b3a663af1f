"""Providers that are out of service, as rows: disabled, enabled, and told why.

That a provider is disabled stands in its own row, and until when in the row of each inventory that
is out of service with it: its own, and those of all below it. A claim locks these rows and reads
them locked, so it sees what was committed before; who disables waits for the claims that have
locked them. So no claim commits after a disable that it has not seen, and none takes a statement
more for it.

Locks: the provider and the root of its tree, by number, as definitions do and beside what they
lock; then inventories, by number. Whoever gives a tree other providers or inventories has locked
its root too, and passes on what holds above them (:func:`inherit`).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import statements, tables
from resource_objects.backends.sql.feed import FeedRows
from resource_objects.backends.sql.statements import Sized, chunks, from_moment, listed, moment
from resource_objects.providers.disabled import Disabled, DisabledChange, ends_of
from resource_objects.providers.orders import Write

_providers = tables.resource_providers.c
_inventories = tables.inventories.c

#: what a provider's row says of it
FACTS = (
    *(_providers.disabled_reason, _providers.disabled_by),
    *(_providers.disabled_since, _providers.disabled_until),
)

_LOCATE = Sized(
    lambda uuids: sa.select(_providers.id, _providers.root_id).where(
        listed(_providers.uuid, "uuids", uuids)
    )
)
_LOCK = Sized(
    lambda ids: (
        sa.select(_providers.id, _providers.uuid, _providers.root_id, *FACTS)
        .where(listed(_providers.id, "ids", ids))
        .order_by(_providers.id)
        # on PostgreSQL FOR NO KEY UPDATE: not in the way of whoever refers to a provider
        .with_for_update(key_share=True)
    )
)
_OF_TREES = Sized(
    lambda roots: sa.select(_providers.id, _providers.parent_id, _providers.name, *FACTS).where(
        listed(_providers.root_id, "roots", roots)
    )
)
_ROOTS = Sized(
    lambda uuids: sa.select(_providers.root_id, _providers.id).where(
        listed(_providers.uuid, "uuids", uuids)
    )
)


def _concerned_query(roots: int) -> sa.CompoundSelect[Any]:
    # SELECT root_id FROM resource_providers WHERE disabled UNION those with inventories that are
    here = listed(_providers.root_id, "roots", roots)
    of_inventories = sa.select(_providers.root_id).join_from(
        tables.resource_providers, tables.inventories, _inventories.provider_id == _providers.id
    )
    return sa.union(
        sa.select(_providers.root_id).where(here, _providers.disabled_reason.is_not(None)),
        of_inventories.where(here, _inventories.disabled_until.is_not(None)),
    )


_CONCERNED = Sized(_concerned_query)
# by primary key, so that InnoDB, which locks rows as it meets them, meets them in this order
_INVENTORIES = Sized(
    lambda ids: sa.select(_inventories.id).where(listed(_inventories.provider_id, "ids", ids))
)
_LOCK_INVENTORIES = Sized(
    lambda ids: (
        sa.select(_inventories.id, _inventories.provider_id, _inventories.disabled_until)
        .where(listed(_inventories.id, "ids", ids))
        .order_by(_inventories.id)
        .with_for_update(key_share=True)
    )
)


def in_force(facts: Sequence[Any], now: datetime.datetime | None) -> Disabled | None:
    """Return what the columns :data:`FACTS` of a row say, None if nothing or if it is over.

    :param now: the time of the database; only needed where it ends
    """
    kept = _kept(facts)
    if kept is None or (now is not None and kept.ends_at <= now):
        return None
    return kept


def _kept(facts: Sequence[Any]) -> Disabled | None:
    reason, by, since, until = facts
    if reason is None:
        return None
    ends = None if until is None else from_moment(until)
    return Disabled(reason=reason, by=by, since=from_moment(since), until=ends)


def lock(connection: Connection, uuids: Iterable[str]) -> dict[str, Sequence[Any]]:
    """Lock some providers and the roots of their trees; return the rows of both, by uuid.

    Cost: two statements.
    """
    numbers = {
        number
        for part in chunks(sorted(uuids))
        for row in _LOCATE.rows(connection, uuids=part)
        for number in row
    }
    return {
        row[1]: row for part in chunks(sorted(numbers)) for row in _LOCK.rows(connection, ids=part)
    }


def carry_out(
    connection: Connection,
    write: Write,
    locked: Mapping[str, Sequence[Any]],
    now: datetime.datetime,
    told: FeedRows,
) -> None:
    """Put providers out of service, or into it again, with all below them.

    Cost: nothing if it says nothing of any; else four statements, and one or two more for each
    thousand inventories of their trees; two more for those that the write has just made.

    :param locked: what :func:`lock` returned of those that were there before
    :raises ProviderNotFound: if one is not there
    :raises InvalidField: if it would end before it begins
    """
    if not write.disabling:
        return
    orders = {order.provider_uuid: order for order in write.disabling}
    made = orders.keys() - locked.keys()
    rows = {**locked, **(lock(connection, made) if made and write.definitions else {})}
    changed = []
    for uuid, order in orders.items():
        if uuid not in rows:
            raise exceptions.ProviderNotFound(uuid)
        number, _, root, *facts = rows[uuid]
        said = order.carried_out(_kept(facts), write.operation.actor, now)
        changed.append({"id": number, **_columns(connection, said)})
        told.disabled(root, DisabledChange(uuid, said))
    statements.update(connection, tables.resource_providers, ["id"], changed)
    _pass_down(connection, {rows[uuid][2] for uuid in orders})


def _columns(connection: Connection, said: Disabled | None) -> dict[str, Any]:
    if said is None:
        return {column.name: None for column in FACTS}
    return {
        "disabled_reason": said.reason,
        "disabled_by": said.by,
        "disabled_since": moment(connection, said.since),
        "disabled_until": None if said.until is None else moment(connection, said.until),
    }


def inherit(connection: Connection, roots: Iterable[int]) -> None:
    """Give the inventories of trees, whose roots are locked, what is disabled above them.

    Cost: a statement; where something is disabled, some more.
    """
    concerned = {
        root
        for part in chunks(sorted(set(roots)))
        for (root,) in _CONCERNED.rows(connection, roots=part)
    }
    if concerned:
        _pass_down(connection, concerned)


def _pass_down(connection: Connection, roots: Iterable[int]) -> None:
    """Write to the inventories of some trees until when they are out of service."""
    found = [
        row for part in chunks(sorted(roots)) for row in _OF_TREES.rows(connection, roots=part)
    ]
    parents = {number: parent for number, parent, *_ in found}
    disabled = {row[0]: one for row in found if (one := _kept(row[3:])) is not None}
    ends = ends_of(_parents_first(parents), disabled)
    numbers = [
        number
        for part in chunks(sorted(parents))
        for (number,) in _INVENTORIES.rows(connection, ids=part)
    ]
    changed: list[dict[str, Any]] = []
    for part in chunks(sorted(numbers)):
        for number, provider, before in _LOCK_INVENTORIES.rows(connection, ids=part):
            after = ends.get(provider)
            if after != (None if before is None else from_moment(before)):
                until = None if after is None else moment(connection, after)
                changed.append({"id": number, "disabled_until": until})
    statements.update(connection, tables.inventories, ["id"], changed)


def _parents_first(parents: dict[int, int | None]) -> dict[int, int | None]:
    below: dict[int | None, list[int]] = {}
    for number, parent in parents.items():
        below.setdefault(parent, []).append(number)
    ordered = list(below.get(None, ()))
    for number in ordered:  # grows while it is read: breadth first
        ordered.extend(below.get(number, ()))
    return {number: parents[number] for number in ordered}


def out_of_service(
    connection: Connection, uuids: Iterable[str], now: datetime.datetime
) -> dict[str, Disabled]:
    """Return what is disabled at some providers or above them, by name: asked to refuse."""
    located: dict[int, int] = {}
    for part in chunks(sorted(set(uuids))):
        located.update((number, root) for root, number in _ROOTS.rows(connection, uuids=part))
    rows = {
        row[0]: row
        for part in chunks(sorted(set(located.values())))
        for row in _OF_TREES.rows(connection, roots=part)
    }
    found: dict[str, Disabled] = {}
    for number in located:
        at: int | None = number
        while at is not None:
            _, parent, name, *facts = rows[at]
            said = in_force(facts, now)
            if said is not None:
                found[name] = said
            at = parent
    return found
