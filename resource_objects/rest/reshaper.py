"""``POST /reshaper``, from microversion 1.30 on: inventories and allocations in one write."""

from __future__ import annotations

import dataclasses
from typing import Any

import webob

from resource_objects.exceptions import InUse, Stale
from resource_objects.providers.definition import DefinitionChanges, ProviderUpdate
from resource_objects.providers.listing import ListedProvider
from resource_objects.rest import allocations, errors, inventories, schemas, translation
from resource_objects.rest.request import ClientRequest, uuid_text


def reshape(request: ClientRequest) -> webob.Response:
    request.require_version(30)
    body = request.body(schemas.reshaper(request.version.minor))
    bodies = {uuid_text(uuid): of_provider for uuid, of_provider in body["inventories"].items()}
    providers = translation.providers_by_uuid(request.ledger, bodies)
    for uuid, of_provider in bodies.items():
        if uuid not in providers:
            raise errors.bad(
                f"Resource provider {uuid} in inventories not found: "
                + translation.NOT_FOUND.format(uuid=uuid),
                errors.PROVIDER_NOT_FOUND,
            )
        translation.check_generation(
            providers[uuid],
            of_provider["resource_provider_generation"],
            "resource provider generation conflict for provider {uuid}: actual: {actual}, "
            "given: {given}",
        )
    consumers = {uuid_text(uuid): consumer for uuid, consumer in body["allocations"].items()}
    records = request.ledger.backend.held_by(consumers)
    allocations.check_consumers(request, consumers, records)
    classes = [name for of_provider in bodies.values() for name in of_provider["inventories"]]
    unknown = translation.unknown_classes(request.ledger, classes)
    if unknown:
        raise errors.bad(f"malformed reshaper data: No such resource class {unknown[0]}.")
    updates = tuple(_update(providers[uuid], of_provider) for uuid, of_provider in bodies.items())
    changes = DefinitionChanges(updates[0].definition.name, updates=updates)
    try:
        allocations.write(request, consumers, "malformed reshaper data:", changes)
    except InUse as error:
        if not error.is_about("inventory"):
            raise
        uuids = {provider.name: provider.uuid for provider in providers.values()}
        uuid = uuids.get(error.name, error.name)
        raise inventories.in_use(uuid, [error.detail]) from error
    except Stale as error:
        if not error.is_about("provider"):
            raise
        raise errors.conflict(
            f"resource provider generation conflict: {error}", errors.CONCURRENT_UPDATE
        ) from error
    return request.reply(204, cached=False)


def _update(provider: ListedProvider, of_provider: dict[str, Any]) -> ProviderUpdate:
    context = f"Unable to reshape the inventory of resource provider {provider.uuid}"
    records = tuple(
        inventories.to_record(name, figures, provider.uuid, context)
        for name, figures in of_provider["inventories"].items()
    )
    before = {record.resource_class for record in provider.records}
    inventories.check_plain(provider, before.union(of_provider["inventories"]))
    # Placement writes inventories twice: the union of old and new ones, then the new ones. Without
    # new ones it writes once.
    update = translation.updated(provider, inventories=records)
    return dataclasses.replace(update, counts=1 + bool(records))


ROUTES = (("/reshaper", {"POST": ("placement:reshaper:reshape", reshape)}),)
