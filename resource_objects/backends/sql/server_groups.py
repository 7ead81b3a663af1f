"""Server groups: made, removed, listed, and locked where a member goes to another host.

A write without such a member sends none of these statements. One with some locks the groups by
their names, after the inventories that it takes of, reads where their members are, and counts the
groups up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import tables
from resource_objects.backends.sql.statements import Insert, Sized, chunks, listed
from resource_objects.providers.orders import GroupChange, new_id
from resource_objects.providers.pools import SHARES
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.providers.settle import GroupPlaces

_groups = tables.server_groups.c
_consumers = tables.consumers.c
_allocations = tables.allocations.c
_providers = tables.resource_providers.c

_COLUMNS = (_groups.name, _groups.policy, _groups.max_per_host, _groups.uuid, _groups.generation)
_IS_HERE = _consumers.gone == sa.literal_column("0")
_ROOT = tables.resource_providers.alias("root")


def _gives_itself() -> sa.ColumnElement[bool]:
    """Return what is true of a provider that is no pool."""
    shares: sa.Select[Any] = (
        sa.select(sa.literal_column("1"))
        .join_from(tables.resource_provider_traits, tables.traits)
        .where(tables.resource_provider_traits.c.provider_id == _providers.id)
        .where(tables.traits.c.name == sa.literal_column(f"'{SHARES}'"))
        .correlate(tables.resource_providers)
    )
    return ~shares.exists()


def _members_query(names: int) -> sa.Select[*tuple[Any, ...]]:
    # SELECT DISTINCT server_group, name, root.name FROM consumers JOIN allocations JOIN
    #   resource_providers JOIN resource_providers AS root WHERE server_group IN (:names)
    return (
        sa.select(_consumers.server_group, _consumers.name, _ROOT.c.name)
        .join_from(tables.consumers, tables.allocations, _allocations.consumer_id == _consumers.id)
        .join(tables.resource_providers, _providers.id == _allocations.provider_id)
        .join(_ROOT, _ROOT.c.id == _providers.root_id)
        .where(listed(_consumers.server_group, "names", names), _IS_HERE, _gives_itself())
        .distinct()
    )


def _hosts_query(uuids: int) -> sa.Select[*tuple[Any, ...]]:
    return (
        sa.select(_providers.uuid, _ROOT.c.name)
        .join_from(tables.resource_providers, _ROOT, _ROOT.c.id == _providers.root_id)
        .where(listed(_providers.uuid, "uuids", uuids), _gives_itself())
    )


_LOCK = Sized(
    lambda names: (
        sa.select(_groups.id, *_COLUMNS)
        .where(listed(_groups.name, "names", names))
        .order_by(_groups.name)
        .with_for_update()
    )
)
_COUNT_UP = Sized(
    lambda ids: (
        sa.update(tables.server_groups)
        .where(listed(_groups.id, "ids", ids))
        .values(generation=sa.bindparam("now"))
    )
)
_MEMBERS = Sized(_members_query)
_HOSTS = Sized(_hosts_query)
_MEMBER = Sized(
    lambda names: (
        sa.select(_consumers.name)
        .where(listed(_consumers.server_group, "names", names), _IS_HERE)
        .limit(sa.literal_column("1"))
    )
)
_REMOVE = Sized(lambda ids: sa.delete(tables.server_groups).where(listed(_groups.id, "ids", ids)))
_MAKE = Insert(tables.server_groups, *("name", "policy", "max_per_host", "uuid", "generation"))


def places_of(
    connection: Connection, names: Collection[str], uuids: Collection[str], number: int
) -> GroupPlaces:
    """Lock server groups, count them up, and return where their members are.

    Cost: a statement to lock and one to count up, and two to read, where one of them is strict.

    :param uuids: of providers whose hosts are wanted
    :param number: of the operation
    """
    ids: list[int] = []
    found: dict[str, ServerGroup] = {}
    for part in chunks(sorted(names)):
        for row in _LOCK.rows(connection, names=part):
            ids.append(row[0])
            found[row[1]] = _group(row[1:])
    strict = [name for name, one in found.items() if not one.is_soft]
    members: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in strict}
    for part in chunks(strict):
        for name, consumer, host in _MEMBERS.rows(connection, names=part):
            members[name][consumer].add(host)
    host_of: dict[str, str] = {}
    for part in chunks(sorted(uuids) if strict else ()):
        host_of.update(_HOSTS.rows(connection, uuids=part))
    for some in chunks(sorted(ids)):
        _COUNT_UP.run(connection, {"now": number}, ids=some)
    return GroupPlaces(found, members, host_of)


def change_groups(connection: Connection, changes: Iterable[GroupChange], number: int) -> None:
    """Make and remove server groups (see the contract). Cost: two or three statements for each."""
    for one in changes:
        kept = _LOCK.rows(connection, names=[one.name])
        if one.wanted is None:
            if not kept:
                raise exceptions.ServerGroupNotFound(one.name)
            if _MEMBER.rows(connection, names=[one.name]):
                raise exceptions.ServerGroupInUse(one.name)
            _REMOVE.run(connection, ids=[kept[0][0]])
        elif not kept:
            said = one.wanted.policy, one.wanted.max_per_host
            _MAKE.many(connection, [(one.name, *said, one.wanted.uuid or new_id(), number)])
        elif not one.wanted.is_like(_group(kept[0][1:])):
            raise exceptions.ServerGroupExists(one.name, one.wanted.difference(_group(kept[0][1:])))


def list_groups(
    connection: Connection, limit: int, after: str | None, names: Collection[str] | None
) -> tuple[ServerGroup, ...]:
    """Return a page of server groups with their members (see the contract). Cost: one query."""
    page = sa.select(*_COLUMNS).order_by(_groups.name).limit(limit)
    if after is not None:
        page = page.where(_groups.name > after)
    if names is not None:
        page = page.where(_groups.name.in_(names))
    of = page.subquery()
    here = sa.and_(_consumers.server_group == of.c.name, _IS_HERE)
    query = sa.select(*of.c, _consumers.name).outerjoin_from(of, tables.consumers, here)
    groups: dict[str, Any] = {}
    members: dict[str, list[str]] = defaultdict(list)
    for *said, member in connection.execute(query.order_by(of.c.name)):
        groups[said[0]] = said
        if member is not None:
            members[said[0]].append(member)
    return tuple(_group(said, members[name]) for name, said in groups.items())


def _group(said: Any, members: Iterable[str] = ()) -> ServerGroup:
    name, policy, most, uuid, generation = said
    return ServerGroup(name, policy, members, most, str(uuid), generation)
