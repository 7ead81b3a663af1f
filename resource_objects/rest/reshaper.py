"""``POST /reshaper``, from microversion 1.30 on: inventories and allocations at once."""

from __future__ import annotations

import dataclasses
from typing import Any

import webob

from resource_objects.exceptions import InUse, Stale
from resource_objects.providers.definition import DefinitionChanges, ProviderUpdate
from resource_objects.providers.listing import ListedProvider
from resource_objects.rest import allocations, errors, inventories, kept, schemas
from resource_objects.rest.asked import Asked, uuid_text


def reshape(asked: Asked) -> webob.Response:
    asked.needs(30)
    given = asked.body(schemas.reshaper(asked.version.minor))
    wanted = {uuid_text(uuid): one for uuid, one in given["inventories"].items()}
    there = kept.by_uuid(asked.ledger, wanted)
    for uuid, one in wanted.items():
        if uuid not in there:
            raise errors.bad(
                f"Resource provider {uuid} in inventories not found: "
                + kept.NOT_FOUND.format(uuid=uuid),
                errors.PROVIDER_NOT_FOUND,
            )
        kept.check_generation(
            there[uuid],
            one["resource_provider_generation"],
            "resource provider generation conflict for provider {uuid}: actual: {actual}, "
            "given: {given}",
        )
    consumers = {uuid_text(uuid): one for uuid, one in given["allocations"].items()}
    allocations.check_consumers(asked, consumers, asked.ledger.backend.held_by(consumers))
    unknown = kept.unknown_classes(
        asked.ledger, [name for one in wanted.values() for name in one["inventories"]]
    )
    if unknown:
        raise errors.bad(f"malformed reshaper data: No such resource class {unknown[0]}.")
    updates = tuple(_update(there[uuid], one) for uuid, one in wanted.items())
    changes = DefinitionChanges(updates[0].definition.name, updates=updates)
    try:
        allocations.write(asked, consumers, "malformed reshaper data:", changes)
    except InUse as error:
        if not error.is_about("inventory"):
            raise
        uuids = {one.name: one.uuid for one in there.values()}
        uuid = uuids.get(error.name, error.name)
        raise inventories.in_use(uuid, [error.detail]) from error
    except Stale as error:
        if not error.is_about("provider"):
            raise
        raise errors.conflict(
            f"resource provider generation conflict: {error}", errors.CONCURRENT_UPDATE
        ) from error
    return asked.reply(204, cached=False)


def _update(one: ListedProvider, given: dict[str, Any]) -> ProviderUpdate:
    cannot = f"Unable to reshape the inventory of resource provider {one.uuid}"
    records = tuple(
        inventories.record(name, figures, one.uuid, cannot)
        for name, figures in given["inventories"].items()
    )
    before = {record.resource_class for record in one.records}
    inventories.check_plain(one, before.union(given["inventories"]))
    # Placement writes inventories twice, those of before and after and then those of after; where
    # none are left that is once
    return dataclasses.replace(kept.updated(one, inventories=records), counts=1 + bool(records))


ROUTES = (("/reshaper", {"POST": ("placement:reshaper:reshape", reshape)}),)
