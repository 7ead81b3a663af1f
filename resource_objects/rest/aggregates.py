"""``/resource_providers/{uuid}/aggregates``, from microversion 1.1 on."""

from __future__ import annotations

import dataclasses

import webob

from resource_objects.providers.definition import ProviderUpdate
from resource_objects.providers.listing import ListedProvider
from resource_objects.rest import errors, schemas, translation
from resource_objects.rest.request import ClientRequest, uuid_text

_RULE = "placement:resource_providers:aggregates:"


def show(request: ClientRequest) -> webob.Response:
    request.require_json_accepted()
    request.require_version(1)
    provider = translation.get_provider(request.ledger, request.path["uuid"])
    return _reply(request, sorted(provider.aggregates), translation.generation(provider))


def put(request: ClientRequest) -> webob.Response:
    """Replace the aggregates; before 1.19 without a generation, which then does not change."""
    request.require_json_body()
    request.require_version(1)
    ledger, uuid = request.ledger, request.path["uuid"]
    translation.get_provider(ledger, uuid)
    body = request.body(schemas.AGGREGATES_1_19 if request.since(19) else schemas.AGGREGATES)
    aggregates = body["aggregates"] if request.since(19) else body
    if len(set(aggregates)) < len(aggregates):  # uniqueItems of JSON Schema takes quadratic time
        raise errors.bad(f"JSON does not validate: {aggregates} has non-unique elements")
    uuids = frozenset(map(uuid_text, aggregates))

    def edit(provider: ListedProvider) -> ProviderUpdate | None:
        if request.since(19):
            generation = body["resource_provider_generation"]
            translation.check_generation(provider, generation, translation.GENERATION_CHANGED)
            return translation.updated(provider, aggregates=uuids)
        if uuids == provider.aggregates:
            return None
        return dataclasses.replace(translation.updated(provider, aggregates=uuids), counts=0)

    change = translation.change_provider(ledger, uuid, edit)
    return _reply(request, aggregates, change.generation(ledger) if request.since(19) else 0)


def _reply(request: ClientRequest, aggregates: list[str], generation: int) -> webob.Response:
    body: dict[str, object] = {"aggregates": aggregates}
    if request.since(19):
        body["resource_provider_generation"] = generation
    return request.reply(json=body)


ROUTES = (
    (
        "/resource_providers/{uuid}/aggregates",
        {"GET": (_RULE + "list", show), "PUT": (_RULE + "update", put)},
    ),
)
