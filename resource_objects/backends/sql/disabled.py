"""Providers and units that are out of service, as rows: disabled, enabled, and told why.

That a provider is disabled stands in its own row, and until when in the row of each inventory that
is out of service with it: its own, and those of all below it. A claim locks these rows and reads
them locked, so it sees what was committed before; who disables waits for the claims that have
locked them. So no claim commits after a disable that it has not seen, and none takes a statement
more for it.

A device that is out of service alone has a row of its own (``disabled_units``), and each inventory
of its provider says how many there are. So only a claim that finds some there asks which they are.

Locks: the provider and the root of its tree, by number, as definitions do and beside what they
lock; then inventories, by number. Whoever gives a tree other providers or inventories has locked
its root too, and passes on what holds above them (:func:`inherit`).
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import statements, tables
from resource_objects.backends.sql.feed import FeedRows
from resource_objects.backends.sql.names import description_of
from resource_objects.backends.sql.statements import (
    Insert,
    Sized,
    chunks,
    from_moment,
    listed,
    moment,
)
from resource_objects.providers.disabled import (
    Disabled,
    DisabledChange,
    DisabledUnit,
    DisableOrder,
    ends_of,
)
from resource_objects.providers.located import classes_of_units, disabled_of, removed_units
from resource_objects.providers.orders import Write

_providers = tables.resource_providers.c
_inventories = tables.inventories.c
_units = tables.disabled_units.c
_kinds = tables.structures.c
_taken = tables.allocation_units.c

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
# UPDATE resource_providers SET definition_writes = definition_writes + 1 WHERE id IN :ids
_COUNT = Sized(
    lambda ids: (
        sa.update(tables.resource_providers)
        .where(listed(_providers.id, "ids", ids))
        .values(definition_writes=_providers.definition_writes + 1)
    )
)
_FACTS_OF = Sized(
    lambda ids: sa.select(_providers.id, *FACTS).where(listed(_providers.id, "ids", ids))
)
_LOCK = Sized(
    lambda ids: (
        sa.select(_providers.id, _providers.uuid, _providers.root_id, _providers.name, *FACTS)
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
        of_inventories.where(
            here, sa.or_(_inventories.disabled_until.is_not(None), _inventories.disabled_units > 0)
        ),
        sa.select(_providers.root_id)
        .join_from(
            tables.resource_providers, tables.disabled_units, _units.provider_id == _providers.id
        )
        .where(here),
    )


_CONCERNED = Sized(_concerned_query)
# by primary key, so that InnoDB, which locks rows as it meets them, meets them in this order
_INVENTORIES = Sized(
    lambda ids: sa.select(_inventories.id).where(listed(_inventories.provider_id, "ids", ids))
)
_LOCK_INVENTORIES = Sized(
    lambda ids: (
        sa.select(
            *(_inventories.id, _inventories.provider_id, _inventories.disabled_until),
            _inventories.disabled_units,
        )
        .where(listed(_inventories.id, "ids", ids))
        .order_by(_inventories.id)
        .with_for_update(key_share=True)
    )
)

_UNIT_FACTS = _units.reason, _units.disabled_by, _units.since, _units.until
_UNITS = Sized(
    lambda ids: sa.select(_units.provider_id, _units.unit, *_UNIT_FACTS).where(
        listed(_units.provider_id, "ids", ids)
    )
)
_COUNTS = Sized(
    lambda roots: (
        sa.select(_units.provider_id, sa.func.count())
        .join_from(
            tables.disabled_units, tables.resource_providers, _units.provider_id == _providers.id
        )
        .where(listed(_providers.root_id, "roots", roots))
        .group_by(_units.provider_id)
    )
)
# the units that are disabled, with whoever has them
_UNITS_OF = Sized(
    lambda uuids: (
        sa.select(_providers.uuid, _units.unit, _taken.consumer_id, *_UNIT_FACTS)
        .join_from(
            tables.disabled_units, tables.resource_providers, _units.provider_id == _providers.id
        )
        .outerjoin(
            tables.allocation_units,
            sa.and_(_taken.provider_id == _units.provider_id, _taken.unit == _units.unit),
        )
        .where(listed(_providers.uuid, "uuids", uuids))
        .order_by(_providers.uuid, _units.unit)
    )
)
_TAKEN_OF = Sized(
    lambda uuids: (
        sa.select(_providers.uuid, _taken.unit)
        .join_from(
            tables.allocation_units, tables.resource_providers, _taken.provider_id == _providers.id
        )
        .where(listed(_providers.uuid, "uuids", uuids))
    )
)
_KINDS_OF = Sized(
    lambda uuids: (
        sa.select(_providers.uuid, _kinds.name, _kinds.body)
        .join_from(tables.structures, tables.resource_providers)
        .where(listed(_providers.uuid, "uuids", uuids))
    )
)
_KINDS_OF_TREES = Sized(
    lambda roots: (
        sa.select(_kinds.provider_id, _kinds.name, _kinds.body)
        .join_from(tables.structures, tables.resource_providers)
        .where(listed(_providers.root_id, "roots", roots))
    )
)


_MAKE_UNITS = Insert(
    tables.disabled_units,
    *("provider_id", "unit", "reason", "disabled_by", "since", "until"),
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
    touched = {order.provider_uuid for order in write.disabling}
    made = touched - locked.keys()
    rows = {**locked, **(lock(connection, made) if made and write.definitions else {})}
    changed = []
    turned = []  # others see it by a trait that comes or goes: a write by Placement's count
    for order in write.disabling:
        uuid = order.provider_uuid
        if uuid not in rows:
            raise exceptions.ProviderNotFound(uuid)
        if order.unit is not None:
            continue
        number, _, root, name, *facts = rows[uuid]
        was = _kept(facts)
        said = order.carried_out(was, write.operation.actor, now, name)
        changed.append({"id": number, **_columns(connection, said)})
        if (was is None) != (said is None) and uuid not in write.counted:
            turned.append(number)
        told.disabled(root, DisabledChange(uuid, said))
    statements.update(connection, tables.resource_providers, ["id"], changed)
    for part in chunks(sorted(turned)):
        _COUNT.run(connection, ids=part)
    units = [order for order in write.disabling if order.unit is not None]
    if units:
        _carry_out_units(connection, units, write.operation.actor, rows, now, told)
    _pass_down(connection, {rows[uuid][2] for uuid in touched})


def _carry_out_units(
    connection: Connection,
    orders: Sequence[DisableOrder],
    by: str | None,
    rows: Mapping[str, Sequence[Any]],
    now: datetime.datetime,
    told: FeedRows,
) -> None:
    """Put units out of service, or into it again. Cost: four statements, whatever their number."""
    uuids = sorted({order.provider_uuid for order in orders})
    numbers = [rows[uuid][0] for uuid in uuids]
    kept = {(number, unit): _kept(facts) for number, unit, *facts in unit_rows(connection, numbers)}
    classes = _classes(connection, uuids)
    gone: list[dict[str, Any]] = []
    new: list[tuple[Any, ...]] = []
    for order in orders:
        number, _, root, name, *_ = rows[order.provider_uuid]
        key = number, order.unit
        if key not in kept:
            order.require_unit(classes.get(order.provider_uuid, {}), name)
        said = order.carried_out(kept.get(key), by, now, name)
        keys = {"provider_id": number, "unit": order.unit}
        if key in kept:
            gone.append(keys)
        if said is not None:
            until = None if said.until is None else moment(connection, said.until)
            facts = said.reason, said.by, moment(connection, said.since), until
            new.append((number, order.unit, *facts))
        told.disabled(root, DisabledChange(order.provider_uuid, said, order.unit))
    statements.delete(connection, tables.disabled_units, gone)
    if new:
        _MAKE_UNITS.many(connection, new)


def unit_rows(connection: Connection, providers: Iterable[int]) -> list[Sequence[Any]]:
    """Return ``(provider, unit, *facts)`` of the units that are disabled alone at some providers.

    Also of those whose time is over, and of devices that went away.
    """
    return [row for part in chunks(sorted(providers)) for row in _UNITS.rows(connection, ids=part)]


def _classes(connection: Connection, uuids: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the class of each unit of some providers that can be disabled alone."""
    return {uuid: classes_of_units(some) for uuid, some in _kinds_of(connection, uuids).items()}


def _kinds_of(connection: Connection, uuids: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    """Return the structured resources that some providers keep, each with its description."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for part in chunks(sorted(uuids)):
        for uuid, kind, body in _KINDS_OF.rows(connection, uuids=part):
            kinds.setdefault(uuid, []).append((kind, description_of(kind, body)))
    return kinds


def disabled_units(connection: Connection, uuids: Collection[str]) -> dict[str, list[DisabledUnit]]:
    """Return the units that are disabled alone at some providers, and those that were removed.

    Also those whose time is over. Cost: two statements, three where units were removed.
    """
    kinds = _kinds_of(connection, uuids)
    out: dict[str, list[tuple[str, Disabled]]] = {uuid: [] for uuid in kinds}
    taken: dict[str, set[str]] = {}
    for part in chunks(sorted(uuids)):
        for uuid, unit, taker, *facts in _UNITS_OF.rows(connection, uuids=part):
            said = _kept(facts)
            if said is not None:
                out.setdefault(uuid, []).append((unit, said))
            if taker is not None:
                taken.setdefault(uuid, set()).add(unit)
    removed = [uuid for uuid, some in kinds.items() if removed_units(some)]
    for part in chunks(sorted(removed)):
        for uuid, unit in _TAKEN_OF.rows(connection, uuids=part):
            taken.setdefault(uuid, set()).add(unit)
    return {
        uuid: disabled_of(kinds.get(uuid, ()), some, taken.get(uuid, ()))
        for uuid, some in out.items()
    }


def _columns(connection: Connection, said: Disabled | None) -> dict[str, Any]:
    if said is None:
        return {column.name: None for column in FACTS}
    return {
        "disabled_reason": said.reason,
        "disabled_by": said.by,
        "disabled_since": moment(connection, said.since),
        "disabled_until": None if said.until is None else moment(connection, said.until),
    }


def inherit(
    connection: Connection,
    roots: Iterable[int],
    made: Mapping[int, tuple[int, str]],
    devices: Mapping[int, tuple[int, Collection[str]]],
    removed: Collection[int] = (),
) -> None:
    """Give the inventories of trees, whose roots are locked, what is disabled above them.

    What was kept at a host of what had gone is of that again (see ``providers/disabled.py``).
    Cost: a statement; where something is disabled, some more.

    :param made: the root and the name of each provider that came, by number
    :param devices: the root and the devices of each provider whose devices came or changed
    :param removed: the roots of trees with devices that were removed while they were allocated
    """
    concerned = _concerned(connection, roots).union(removed)
    if concerned:
        _give_back(connection, concerned, made, devices)
        _pass_down(connection, concerned)


def _concerned(connection: Connection, roots: Iterable[int]) -> set[int]:
    """Return the trees of which something is out of service."""
    return {
        root
        for part in chunks(sorted(set(roots)))
        for (root,) in _CONCERNED.rows(connection, roots=part)
    }


def keep(connection: Connection, gone: Mapping[int, tuple[int, str]]) -> set[int]:
    """Keep what is out of service of providers that go with their host; return the hosts' roots.

    Cost: a statement; where something is disabled, four more.

    :param gone: the root and the name of each, by number, as they still are
    """
    concerned = _concerned(connection, (root for root, _ in gone.values() if root not in gone))
    numbers = [number for number, (root, _) in gone.items() if root in concerned]
    rows: dict[tuple[int, str], Sequence[Any]] = {}
    for part in chunks(sorted(numbers)):
        for number, *facts in _FACTS_OF.rows(connection, ids=part):
            if facts[0] is not None:
                rows[gone[number]] = facts
    for number, unit, *facts in unit_rows(connection, numbers):
        rows.setdefault((gone[number][0], unit), facts)
    _move_units(connection, rows, rows)
    return concerned if rows else set()


def _give_back(
    connection: Connection,
    roots: Iterable[int],
    made: Mapping[int, tuple[int, str]],
    devices: Mapping[int, tuple[int, Collection[str]]],
) -> None:
    kept = {(root, unit): facts for root, unit, *facts in unit_rows(connection, roots)}
    again = {number: key for number, key in made.items() if key in kept}
    names = [column.name for column in FACTS]
    statements.update(
        connection,
        tables.resource_providers,
        ["id"],
        [{"id": n, **dict(zip(names, kept[key], strict=True))} for n, key in again.items()],
    )
    gone = set(again.values())
    new: dict[tuple[int, str], Sequence[Any]] = {}
    for number, (root, units) in devices.items():
        for unit in units if number != root else ():
            if (root, unit) in kept:
                new[number, unit] = kept[root, unit]
                gone.add((root, unit))
    _move_units(connection, gone, new)


def _move_units(
    connection: Connection,
    gone: Iterable[tuple[int, str]],
    new: Mapping[tuple[int, str], Sequence[Any]],
) -> None:
    """Delete some rows of units that are disabled, then make some."""
    keys = [{"provider_id": number, "unit": unit} for number, unit in gone]
    statements.delete(connection, tables.disabled_units, keys)
    if new:
        _MAKE_UNITS.many(connection, [(*key, *facts) for key, facts in new.items()])


def _pass_down(connection: Connection, roots: Iterable[int]) -> None:
    """Write to the inventories of some trees what is out of service of their providers."""
    found = [
        row for part in chunks(sorted(roots)) for row in _OF_TREES.rows(connection, roots=part)
    ]
    parents = {number: parent for number, parent, *_ in found}
    disabled = {row[0]: one for row in found if (one := _kept(row[3:])) is not None}
    ends = ends_of(_parents_first(parents), disabled)
    counts: dict[int, int] = {}
    for part in chunks(sorted(roots)):
        counts.update(_COUNTS.rows(connection, roots=part))
        for number, kind, body in _KINDS_OF_TREES.rows(connection, roots=part):
            removed = removed_units([(kind, description_of(kind, body))])
            if removed:
                counts[number] = counts.get(number, 0) + len(removed)
    numbers = [
        number
        for part in chunks(sorted(parents))
        for (number,) in _INVENTORIES.rows(connection, ids=part)
    ]
    changed: list[dict[str, Any]] = []
    for part in chunks(sorted(numbers)):
        for number, provider, before, had in _LOCK_INVENTORIES.rows(connection, ids=part):
            after, units = ends.get(provider), counts.get(provider, 0)
            if after != (None if before is None else from_moment(before)) or units != had:
                until = None if after is None else moment(connection, after)
                said = {"disabled_until": until, "disabled_units": units}
                changed.append({"id": number, **said})
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
                found[tables.called(name)] = said
            at = parent
    return found
