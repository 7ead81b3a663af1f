"""Server groups in memory: made, removed, listed, and where their members are."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from resource_objects import exceptions
from resource_objects.backends.memory.state import Draft, State
from resource_objects.providers.orders import GroupChange, new_id
from resource_objects.providers.pools import SHARES
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.providers.settle import GroupPlaces, Settled


def change(draft: Draft, change: GroupChange) -> None:
    """Make or remove a server group (see the contract)."""
    kept, wanted = draft.server_groups.get(change.name), change.wanted
    if wanted is None:
        if kept is None:
            raise exceptions.ServerGroupNotFound(change.name)
        if draft.members.get(change.name):
            raise exceptions.ServerGroupInUse(change.name)
        draft.server_groups.put(change.name, None)
    elif kept is None:
        uuid = wanted.uuid or new_id()
        made = dataclasses.replace(wanted, members=frozenset(), uuid=uuid, generation=draft.number)
        draft.server_groups.put(change.name, made)
    elif not wanted.is_like(kept):
        raise exceptions.ServerGroupExists(change.name, wanted.difference(kept))


def places_of(draft: Draft, names: Collection[str], uuids: Collection[str]) -> GroupPlaces:
    """Count server groups up, and return where their members are. Cost: linear in these."""
    found = {name: one for name in names if (one := draft.server_groups.get(name)) is not None}
    for name, one in found.items():
        draft.server_groups.put(name, dataclasses.replace(one, generation=draft.number))
    members = {
        name: {
            consumer: {
                host
                for held in draft.claims[consumer].held
                if (host := _host(draft, held.provider_uuid)) is not None
            }
            for consumer in draft.members.get(name)
        }
        for name, one in found.items()
        if not one.is_soft
    }
    host_of = {uuid: host for uuid in uuids if (host := _host(draft, uuid)) is not None}
    return GroupPlaces(found, members, host_of)


def _host(draft: Draft, uuid: str) -> str | None:
    """Return the name of the host of a provider, None of a pool."""
    return None if SHARES in draft.providers[uuid].traits else draft.top(uuid).name


def keep_member(draft: Draft, settled: Settled) -> None:
    """Write which server group a consumer is in."""
    claim = settled.claim
    before = None if settled.kept is None else settled.kept.group
    if before is not None and (settled.is_gone or before != claim.group):
        draft.members.put(before, claim.consumer, None)
    if claim.group is not None and not settled.is_gone:
        draft.members.put(claim.group, claim.consumer, claim.uuid)


def page(
    state: State, limit: int, after: str | None, names: Collection[str] | None
) -> tuple[ServerGroup, ...]:
    """Return a page of server groups. Cost: linear in all of them, and in those members."""
    found = [
        name
        for name in sorted(state.server_groups)
        if (after is None or name > after) and (names is None or name in names)
    ]
    return tuple(
        dataclasses.replace(
            state.server_groups[name], members=frozenset(state.members.get(name, ()))
        )
        for name in found[:limit]
    )
