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
from resource_objects.backends.sql.statements import SQL, Insert, chunks
from resource_objects.providers.orders import GroupChange, new_id
from resource_objects.providers.pools import SHARES
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.store.decide import GroupMembers

_groups = tables.server_groups.c
_consumers = tables.consumers.c

_COLUMNS = (_groups.name, _groups.policy, _groups.max_per_host, _groups.uuid, _groups.generation)
_IS_HERE = _consumers.gone == sa.literal_column("0")

# a provider that is no pool
_GIVES_ITSELF = f"""NOT EXISTS (
    SELECT 1 FROM resource_provider_traits pt JOIN traits t ON t.id = pt.trait_id
    WHERE pt.provider_id = p.id AND t.name = '{SHARES}')"""
_LOCK = SQL("""
    SELECT id, name, policy, max_per_host, uuid, generation FROM server_groups
    WHERE name IN :names* ORDER BY name {server: FOR UPDATE}""")
_COUNT_UP = SQL("UPDATE server_groups SET generation = :now WHERE id IN :ids*")
_MEMBERS = SQL(f"""
    SELECT DISTINCT c.server_group, c.name, root.name FROM consumers c
    JOIN allocations a ON a.consumer_id = c.id
    JOIN resource_providers p ON p.id = a.provider_id
    JOIN resource_providers root ON root.id = p.root_id
    WHERE c.server_group IN :names* AND c.gone = 0 AND {_GIVES_ITSELF}""")
_HOSTS = SQL(f"""
    SELECT p.uuid, root.name FROM resource_providers p
    JOIN resource_providers root ON root.id = p.root_id
    WHERE p.uuid IN :uuids* AND {_GIVES_ITSELF}""")
_MEMBER = SQL("SELECT name FROM consumers WHERE server_group IN :names* AND gone = 0 LIMIT 1")
_REMOVE = SQL("DELETE FROM server_groups WHERE id IN :ids*")
_MAKE = Insert(tables.server_groups, *("name", "policy", "max_per_host", "uuid", "generation"))


def members_of(
    connection: Connection, names: Collection[str], uuids: Collection[str], number: int
) -> GroupMembers:
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
        _COUNT_UP.run(connection, now=number, ids=some)
    return GroupMembers(found, members, host_of)


def change_groups(connection: Connection, changes: Iterable[GroupChange], number: int) -> None:
    """Make and remove server groups (see the contract). Cost: two or three statements for each."""
    for one in changes:
        kept = _LOCK.rows(connection, names=[one.name])
        if one.wanted is None:
            if not kept:
                raise exceptions.NotFound("server group", one.name)
            if _MEMBER.rows(connection, names=[one.name]):
                raise exceptions.InUse("server group", one.name)
            _REMOVE.run(connection, ids=[kept[0][0]])
        elif not kept:
            said = one.wanted.policy, one.wanted.max_per_host
            _MAKE.many(connection, [(one.name, *said, one.wanted.uuid or new_id(), number)])
        elif not one.wanted.is_like(_group(kept[0][1:])):
            raise exceptions.AlreadyExists(
                "server group", one.name, one.wanted.difference(_group(kept[0][1:]))
            )


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
