"""``POST /reshaper``, from microversion 1.30 on: inventories and allocations at once."""

from __future__ import annotations

from typing import Any

import webob

from resource_objects import exceptions, names
from resource_objects.providers.definition import DefinitionChanges, ProviderUpdate
from resource_objects.providers.listing import ListedProvider
from resource_objects.rest import allocations, errors, inventories, kept, schemas
from resource_objects.rest.asked import Asked


def reshape(asked: Asked) -> webob.Response:
    asked.needs(30)
    given = asked.body(schemas.reshaper(asked.version.minor))
    wanted = {names.uuid_text(uuid): one for uuid, one in given["inventories"].items()}
    there = kept.by_uuid(asked.ledger, wanted)
    for uuid in sorted(wanted.keys() - there.keys()):
        raise errors.bad(
            f"Resource provider {uuid} in inventories not found.", errors.PROVIDER_NOT_FOUND
        )
    for uuid, one in wanted.items():
        kept.check_generation(there[uuid], one["resource_provider_generation"])
    unknown = kept.unknown_classes(
        asked.ledger, {name for one in wanted.values() for name in one["inventories"]}
    )
    if unknown:
        raise errors.bad(f"No such resource class {', '.join(unknown)}.")
    updates = tuple(_update(asked, there[uuid], one) for uuid, one in wanted.items())
    changes = DefinitionChanges(updates[0].definition.name, updates=updates)
    consumers = {names.uuid_text(uuid): one for uuid, one in given["allocations"].items()}
    try:
        allocations.write(asked, consumers, changes)
    except exceptions.InventoryInUse as error:
        raise errors.conflict(f"update conflict: {error}", errors.INVENTORY_IN_USE) from error
    except exceptions.StaleDefinition as error:
        raise errors.conflict(
            f"resource provider generation conflict: {error}", errors.CONCURRENT_UPDATE
        ) from error
    return asked.reply(204, cached=False)


def _update(asked: Asked, one: ListedProvider, given: dict[str, Any]) -> ProviderUpdate:
    cannot = "Unable to reshape the inventory of resource provider"
    records = tuple(
        inventories.record(asked, name, figures, one.uuid, cannot)
        for name, figures in given["inventories"].items()
    )
    before = {record.resource_class for record in one.records}
    inventories.check_plain(one, before.union(given["inventories"]))
    return kept.updated(one, inventories=records)


ROUTES = (("/reshaper", {"POST": ("placement:reshaper:reshape", reshape)}),)
