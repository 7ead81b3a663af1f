"""``/resource_providers/{uuid}/aggregates``, from microversion 1.1 on."""

from __future__ import annotations

import dataclasses

import webob

from resource_objects.providers.definition import ProviderUpdate
from resource_objects.providers.listing import ListedProvider
from resource_objects.rest import errors, kept, schemas
from resource_objects.rest.asked import Asked, uuid_text

_RULE = "placement:resource_providers:aggregates:"


def show(asked: Asked) -> webob.Response:
    asked.tells_json()
    asked.needs(1)
    one = kept.provider(asked.ledger, asked.path["uuid"])
    return _reply(asked, sorted(one.aggregates), kept.generation(one))


def put(asked: Asked) -> webob.Response:
    """Replace them; before 1.19 no generation is demanded, and none rises that clients see."""
    asked.takes_json()
    asked.needs(1)
    ledger, uuid = asked.ledger, asked.path["uuid"]
    kept.provider(ledger, uuid)
    given = asked.body(schemas.AGGREGATES_1_19 if asked.since(19) else schemas.AGGREGATES)
    told = given["aggregates"] if asked.since(19) else given
    if len(set(told)) < len(told):  # JSON Schema's uniqueItems compares each with each
        raise errors.bad(f"JSON does not validate: {told} has non-unique elements")
    wanted = frozenset(uuid_text(one) for one in told)

    def edit(one: ListedProvider) -> ProviderUpdate | None:
        if asked.since(19):
            at = given["resource_provider_generation"]
            kept.check_generation(one, at, kept.GENERATION_CHANGED)
            return kept.updated(one, aggregates=wanted)
        if wanted == one.aggregates:
            return None
        return dataclasses.replace(kept.updated(one, aggregates=wanted), counts=0)

    changed = kept.change(ledger, uuid, edit)
    return _reply(asked, told, changed.generation(ledger) if asked.since(19) else 0)


def _reply(asked: Asked, told: list[str], generation: int) -> webob.Response:
    body: dict[str, object] = {"aggregates": told}
    if asked.since(19):
        body["resource_provider_generation"] = generation
    return asked.reply(json=body)


ROUTES = (
    (
        "/resource_providers/{uuid}/aggregates",
        {"GET": (_RULE + "list", show), "PUT": (_RULE + "update", put)},
    ),
)
