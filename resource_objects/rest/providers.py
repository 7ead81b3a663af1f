"""``/resource_providers``."""

from __future__ import annotations

import dataclasses
import uuid as uuids

import webob

from resource_objects import exceptions, names
from resource_objects.providers.definition import ProviderDefinition, ProviderUpdate
from resource_objects.providers.listing import ListedProvider, ProviderFilter
from resource_objects.rest import errors, query_values, schemas, translation
from resource_objects.rest.request import ClientRequest, uuid_text

_RULE = "placement:resource_providers:"
#: Parts of Placement's messages.
_CREATE_FAILED = "Object action create failed because"
_UPDATE_FAILED = "Object action update failed because"
_NO_PARENT = "parent provider UUID does not exist."
#: The links of a provider, and the first microversion that has each.
_LINKS = {"inventories": 0, "usages": 0, "aggregates": 1, "traits": 6, "allocations": 11}


def list_all(request: ClientRequest) -> webob.Response:
    request.require_json_accepted()
    request.check_query(schemas.providers_query(request.version.minor))
    query = request.http.GET
    in_tree = query.get("in_tree")
    conditions = ProviderFilter(
        names=_possible_names(query["name"]) if query.get("name") else None,
        uuids=frozenset([uuid_text(query["uuid"])]) if "uuid" in query else None,
        trees=None if in_tree is None else frozenset([query_values.parse_in_tree(in_tree)]),
    )
    if "member_of" in query:
        aggregates = query_values.parse_aggregates(request, query.getall("member_of"))
        conditions = dataclasses.replace(
            conditions, aggregates=aggregates.required, forbidden_aggregates=aggregates.forbidden
        )
    if "required" in query:
        traits = query_values.parse_traits(request, query.getall("required"))
        query_values.check_traits(
            request.ledger, traits.all(), 'Invalid trait(s) in "required" parameter: '
        )
        conditions = dataclasses.replace(
            conditions,
            required=traits.required,
            forbidden=traits.forbidden,
            any_of=traits.any_of,
        )
    if "resources" in query:
        amounts = query_values.parse_resources(query["resources"])
        query_values.check_classes(request.ledger, amounts)
        if query_values.exceed_all_inventories(amounts):
            return request.reply(json={"resource_providers": []})
        conditions = dataclasses.replace(conditions, room=tuple(amounts.items()))
    providers = [
        _to_json(request, provider)
        for provider in translation.list_providers(request.ledger, conditions)
    ]
    return request.reply(json={"resource_providers": providers})


def _possible_names(name: str) -> frozenset[str]:
    try:
        return frozenset([names.provider_name(name), translation.stored_name(name, "")])
    except exceptions.InvalidInput:
        return frozenset()


def show(request: ClientRequest) -> webob.Response:
    request.require_json_accepted()
    provider = translation.get_provider(request.ledger, request.path["uuid"])
    return request.reply(json=_to_json(request, provider))


def create(request: ClientRequest) -> webob.Response:
    body = request.body(schemas.new_provider(request.version.minor))
    ledger, name = request.ledger, body["name"]
    uuid = uuid_text(body["uuid"]) if "uuid" in body else str(uuids.uuid4())
    parent_text = body.get("parent_provider_uuid")
    parent = None if parent_text is None else uuid_text(parent_text)
    context = f'Unable to create resource provider "{name}", {uuid}'
    stored_name = _stored_name(name, uuid, context)
    if parent == uuid:
        raise errors.bad(
            f"{context}: {_CREATE_FAILED}: parent provider UUID cannot be same as UUID. Please set "
            "parent provider UUID to None if there is no parent."
        )
    if parent is not None and not translation.providers_by_uuid(ledger, [parent]):
        raise errors.bad(f"{context}: {_CREATE_FAILED}: {_NO_PARENT}")
    definition = ProviderDefinition(uuid, stored_name, parent, (), frozenset())
    try:
        translation.write_definitions(ledger, stored_name, creates=(definition,))
    except exceptions.AlreadyExists as error:
        is_uuid = translation.providers_by_uuid(ledger, [uuid])
        conflicting = f"uuid: {uuid}" if is_uuid else f"name: {name}"
        text = f"Conflicting resource provider {conflicting} already exists."
        raise errors.conflict(text, errors.DUPLICATE_NAME) from error
    except exceptions.Stale as error:
        raise errors.bad(f"{context}: {_CREATE_FAILED}: {_NO_PARENT}") from error
    except exceptions.InvalidInput as error:
        raise errors.bad(f"{context}: {error}") from error
    location = request.url(f"/resource_providers/{uuid}")
    if not request.since(20):
        return request.reply(201, location=location, cached=False)
    provider = translation.get_provider(ledger, uuid)
    return request.reply(json=_to_json(request, provider), location=location)


def _stored_name(name: str, uuid: str, context: str) -> str:
    """Return the stored name, or raise a 400 for an invalid name."""
    try:
        return names.provider_name(translation.stored_name(name, uuid))
    except exceptions.InvalidInput as error:
        raise errors.bad(f"{context}: {error}") from error


def put(request: ClientRequest) -> webob.Response:
    """Change the name and the parent of a provider."""
    ledger, uuid = request.ledger, request.path["uuid"]
    request.require_json_body()
    provider = translation.get_provider(ledger, uuid)
    body = request.body(schemas.provider(request.version.minor))
    name = body["name"]
    context = f"Unable to save resource provider {uuid}"
    stored_name = _stored_name(name, provider.uuid, context)

    def rename(current: ListedProvider) -> ProviderUpdate | None:
        if current.name == stored_name:
            return None
        return dataclasses.replace(translation.updated(current, name=stored_name), counts=0)

    try:
        if "parent_provider_uuid" in body:
            _move(request, provider, body["parent_provider_uuid"], stored_name, context)
        translation.change_provider(ledger, uuid, rename)
    except exceptions.AlreadyExists as error:
        raise errors.conflict(
            f"Conflicting resource provider {name} already exists.", errors.DUPLICATE_NAME
        ) from error
    except exceptions.InvalidInput as error:
        raise errors.bad(f"{context}: {error}") from error
    return request.reply(json=_to_json(request, translation.get_provider(ledger, uuid)))


def _move(
    request: ClientRequest,
    provider: ListedProvider,
    parent_text: str | None,
    name: str,
    context: str,
) -> None:
    parent = None if parent_text is None else uuid_text(parent_text)
    if parent == provider.parent_uuid:
        return
    if not request.since(37) and provider.parent_uuid is not None:
        action = "un-parenting" if parent is None else "re-parenting"
        raise errors.bad(
            f"{context}: {_UPDATE_FAILED}: {action} a provider is not currently allowed."
        )
    try:
        translation.move_provider(request.ledger, provider.uuid, parent, name)
    except exceptions.InvalidTree as error:
        raise errors.bad(
            f"{context}: {_UPDATE_FAILED}: creating loop in the provider tree is not allowed."
        ) from error


def delete(request: ClientRequest) -> webob.Response:
    ledger, uuid = request.ledger, request.path["uuid"]

    def attempt() -> None:
        message = f"{translation.NOT_FOUND} for delete"
        provider = translation.get_provider(ledger, uuid, message)
        tree = ProviderFilter(trees=frozenset([provider.uuid]))
        if any(
            other.parent_uuid == provider.uuid for other in translation.list_providers(ledger, tree)
        ):
            raise errors.conflict(
                f"Unable to delete parent resource provider {uuid}: "
                "It has child resource providers.",
                errors.CANNOT_DELETE_PARENT,
            )
        translation.remove_provider(ledger, provider)

    try:
        ledger.retries.retry(attempt, "StaleDefinition")
    except exceptions.InUse as error:
        raise errors.conflict(
            f"Unable to delete resource provider {uuid}: Resource provider has allocations.",
            errors.PROVIDER_IN_USE,
        ) from error
    return request.reply(204, cached=False)


def _to_json(request: ClientRequest, provider: ListedProvider) -> dict[str, object]:
    href = request.url(f"/resource_providers/{provider.uuid}")
    links = [{"rel": "self", "href": href}]
    links += [
        {"rel": rel, "href": f"{href}/{rel}"}
        for rel, minor in _LINKS.items()
        if request.since(minor)
    ]
    body: dict[str, object] = {
        "uuid": provider.uuid,
        "name": translation.client_name(provider),
        "generation": translation.generation(provider),
        "links": links,
    }
    if request.since(14):
        body["parent_provider_uuid"] = provider.parent_uuid
        body["root_provider_uuid"] = provider.root_uuid
    return body


ROUTES = (
    (
        "/resource_providers",
        {"GET": (_RULE + "list", list_all), "POST": (_RULE + "create", create)},
    ),
    (
        "/resource_providers/{uuid}",
        {
            "GET": (_RULE + "show", show),
            "PUT": (_RULE + "update", put),
            "DELETE": (_RULE + "delete", delete),
        },
    ),
)
