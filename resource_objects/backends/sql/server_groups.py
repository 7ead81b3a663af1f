"""Server groups: created, deleted, listed, and locked when a member allocates on another host.

A write without such a member sends none of these statements. With one it
locks the groups by name, after the inventories, reads the hosts of their members, and gives the
groups a new generation.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import tables
from resource_objects.backends.sql.statements import SQL, Insert
from resource_objects.providers.orders import ConsumerRecord, GroupChange
from resource_objects.providers.pools import SHARES
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.store.decide import GroupMembers
from resource_objects.store.rows import Rows, Transaction
from resource_objects.store.rows import changes as changed_rows
from resource_objects.store.write import change_group

_groups = tables.server_groups.c
_consumers = tables.consumers.c

#: The columns of a group, in the order of :func:`_group`; the attributes have the same names.
_COLUMNS = ("name", "policy", "max_per_host", "uuid", "generation")
_IS_HERE = _consumers.gone == sa.literal_column("0")

# a provider that is no pool of shared resources
_IS_NO_POOL = f"""NOT EXISTS (
    SELECT 1 FROM resource_provider_traits pt JOIN traits t ON t.id = pt.trait_id
    WHERE pt.provider_id = p.id AND t.name = '{SHARES}')"""
_LOCK = SQL(f"""
    SELECT id, {", ".join(_COLUMNS)} FROM server_groups
    WHERE name IN :names* ORDER BY name {{server: FOR UPDATE}}""")
_SET_GENERATION = SQL("UPDATE server_groups SET generation = :number WHERE id IN :ids*")
_MEMBERS = SQL(f"""
    SELECT DISTINCT c.server_group, c.name, root.name FROM consumers c
    JOIN allocations a ON a.consumer_id = c.id
    JOIN resource_providers p ON p.id = a.provider_id
    JOIN resource_providers root ON root.id = p.root_id
    WHERE c.server_group IN :names* AND c.gone = 0 AND {_IS_NO_POOL}""")
_HOSTS = SQL(f"""
    SELECT p.uuid, root.name FROM resource_providers p
    JOIN resource_providers root ON root.id = p.root_id
    WHERE p.uuid IN :uuids* AND {_IS_NO_POOL}""")
_FIRST_MEMBERS = SQL("""
    SELECT server_group, MIN(name) FROM consumers
    WHERE server_group IN :names* AND gone = 0 GROUP BY server_group""")
_REMOVE = SQL("DELETE FROM server_groups WHERE name IN :names*")
_CREATE = Insert(tables.server_groups, *_COLUMNS)


def members_of(
    connection: Connection, names: Collection[str], uuids: Collection[str], number: int
) -> GroupMembers:
    """Lock server groups, give them a new generation, and return the hosts of their members.

    Cost: two statements, and two more if one of the groups is strict.

    :param uuids: of providers whose hosts are returned
    :param number: of the operation
    """
    ids: list[int] = []
    groups: dict[str, ServerGroup] = {}
    for id, name, *columns in _LOCK.rows_for(connection, names):
        ids.append(id)
        groups[name] = _group([name, *columns])
    strict = [name for name, group in groups.items() if not group.is_soft]
    members: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in strict}
    for name, consumer, host in _MEMBERS.rows_for(connection, strict):
        members[name][consumer].add(host)
    host_of: dict[str, str] = dict(_HOSTS.rows_for(connection, uuids if strict else ()))
    _SET_GENERATION.run_for(connection, ids, number=number)
    return GroupMembers(groups, members, host_of)


def change_groups(
    connection: Connection, changes: Sequence[GroupChange], number: int, now: datetime.datetime
) -> None:
    """Create and delete server groups (see the contract). Cost: at most four statements.

    :param number: of the operation
    :param now: the time of the database
    """
    if not changes:
        return
    rows = Rows()
    transaction = Transaction(rows, now, number)
    for _, name, *columns in _LOCK.rows_for(connection, {change.name for change in changes}):
        rows.server_groups.put_unjournaled(name, None, _group([name, *columns]))
    removing = {change.name for change in changes if change.group is None}
    for name, member in _FIRST_MEMBERS.rows_for(connection, removing):
        rows.consumers.put_unjournaled(
            member, None, ConsumerRecord("", member, now, (), group=name)
        )
    for change in changes:
        change_group(transaction, change)
    changed = list(changed_rows(rows.journal))
    removed = [name for _, name, before, _ in changed if before is not None]
    created = [attrgetter(*_COLUMNS)(group) for *_, group in changed if group is not None]
    _REMOVE.run_for(connection, removed)
    _CREATE.many(connection, created)


def list_groups(
    connection: Connection,
    limit: int,
    after: str | None = None,
    *,
    names: Collection[str] | None = None,
) -> tuple[ServerGroup, ...]:
    """Return a page of server groups with their members (see the contract). Cost: one query."""
    page = sa.select(*[_groups[name] for name in _COLUMNS]).order_by(_groups.name).limit(limit)
    if after is not None:
        page = page.where(_groups.name > after)
    if names is not None:
        page = page.where(_groups.name.in_(names))
    of = page.subquery()
    is_member = sa.and_(_consumers.server_group == of.c.name, _IS_HERE)
    query = sa.select(*of.c, _consumers.name).outerjoin_from(of, tables.consumers, is_member)
    groups: dict[str, Any] = {}
    members: dict[str, list[str]] = defaultdict(list)
    for *columns, member in connection.execute(query.order_by(of.c.name)):
        groups[columns[0]] = columns
        if member is not None:
            members[columns[0]].append(member)
    return tuple(_group(columns, members[name]) for name, columns in groups.items())


def _group(columns: Any, members: Iterable[str] = ()) -> ServerGroup:
    name, policy, most, uuid, generation = columns
    return ServerGroup(name, policy, members, most, str(uuid), generation)
