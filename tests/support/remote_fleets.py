"""Random fleets written into a remote Placement, and read and asked again: as in a local ledger."""

from __future__ import annotations

import random
import uuid
from typing import Any

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers.columns import Columns
from resource_objects.testing.conformance.suite import define
from tests.support.fleets import fleet, request, uuid_of

REQUESTS = 12


def check(local: ro.Ledger, remote: ro.Ledger, reader: ro.Ledger, seed: int) -> int:
    """Write a fleet into two ledgers that are empty, and hold one to the other.

    What is read, who could hold something, and why nobody can is compared.

    :param remote: writes into a remote Placement; ``reader`` reads it, as another process does
    :return: how many requests were possible
    """
    chance = random.Random(seed)
    roots = fleet(chance)
    for root in roots:
        for provider in root.walk():  # whose uuids are all that another process sees
            provider.update(aggregates=[uuid_of(name) for name in provider.aggregates or ()])
    for ledger in (local, remote):
        define(ledger.backend, *roots)  # what Placement takes: a class at a pool and at its hosts
    _claim(local, remote, roots)
    assert told(reader.backend.read()) == told(local.backend.read())
    mine, theirs = local.snapshot(), reader.snapshot()
    possible = 0
    for _ in range(REQUESTS):
        asked = request(chance, roots, compatibility=chance.choice(["placement", None]))
        asked = asked.replace(groups=[_by_uuid(group) for group in asked.groups])
        found = answers(theirs, asked)
        assert found == answers(mine, asked), asked
        possible += bool(found[0])
    return possible


def _claim(local: ro.Ledger, remote: ro.Ledger, roots: list[ro.Provider]) -> None:
    """Let somebody hold what the fleet says is used, as far as there is room."""
    for place in (one for root in roots for one in root.walk()):
        for name, inventory in place.inventories.by_name():
            assert isinstance(inventory, ro.IntegerInventory)
            job, wanted = str(uuid.uuid4()), {place.name: {name: inventory.used}}
            try:
                local.claim(job, wanted)
            except (exceptions.CapacityException, exceptions.InvalidInput):
                continue
            remote.claim(job, wanted)


def _by_uuid(group: ro.RequestGroup) -> ro.RequestGroup:
    return group.replace(
        member_of=[{uuid_of(name) for name in some} for some in group.member_of],
        not_member_of=[uuid_of(name) for name in group.not_member_of],
    )


def answers(snapshot: ro.Snapshot, asked: ro.Request) -> tuple[set[Any], list[str]]:
    """Return every candidate, and if there is none why."""
    try:
        found = snapshot.candidates(asked, limit=None)
    except exceptions.ResourceObjectsError as error:
        return set(), [error.code]
    every = {
        (
            one.host,
            frozenset((a.provider_uuid, a.resource_class, str(a.amount)) for a in one.allocations),
            frozenset((suffix, frozenset(names)) for suffix, names in one.mappings.items()),
        )
        for one in found
    }
    return every, [] if every else sorted(str(found.explain()).splitlines())


def told(columns: Columns) -> dict[str, Any]:
    """Return what columns say of each provider, by uuid."""
    table = columns.providers
    uuids: dict[int | None, str] = dict(zip(table.provider_id, table.uuid, strict=True))
    rows = zip(table.uuid, table.name, table.parent_id, table.root_id, strict=True)
    found: dict[str, tuple[Any, ...]] = {
        uuid: (name, uuids.get(parent), uuids[root], set()) for uuid, name, parent, root in rows
    }
    parts = (columns.inventories, columns.traits, columns.aggregates, columns.allocations)
    for part in parts:
        for number, *said in zip(*part, strict=True):
            found[uuids[number]][-1].add((type(part), *said))
    return found
