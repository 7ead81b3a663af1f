"""``/resource_providers``."""

from __future__ import annotations

import dataclasses
import uuid as uuids

import webob

from resource_objects import exceptions, names
from resource_objects.providers.definition import ProviderDefinition, ProviderUpdate
from resource_objects.providers.listing import ListedProvider, ProviderFilter
from resource_objects.rest import errors, kept, schemas, words
from resource_objects.rest.asked import Asked, uuid_text

_RULE = "placement:resource_providers:"
#: Parts of Placement's errors.
_CREATE_FAILED = "Object action create failed because"
_UPDATE_FAILED = "Object action update failed because"
_NO_PARENT = "parent provider UUID does not exist."
#: Links to what a provider has, and since which microversion they are told.
_LINKS = {"inventories": 0, "usages": 0, "aggregates": 1, "traits": 6, "allocations": 11}


def list_all(asked: Asked) -> webob.Response:
    asked.tells_json()
    asked.query(schemas.providers_query(asked.version.minor))
    given = asked.http.GET
    wanted = ProviderFilter(
        names=_known_names(given["name"]) if given.get("name") else None,
        uuids=frozenset([uuid_text(given["uuid"])]) if "uuid" in given else None,
        trees=frozenset([words.tree(given["in_tree"])]) if "in_tree" in given else None,
    )
    if "member_of" in given:
        told = words.aggregates(asked, given.getall("member_of"))
        wanted = dataclasses.replace(
            wanted, aggregates=told.required, forbidden_aggregates=told.forbidden
        )
    if "required" in given:
        traits = words.traits(asked, given.getall("required"))
        words.check_traits(asked.ledger, traits.all(), 'Invalid trait(s) in "required" parameter: ')
        wanted = dataclasses.replace(
            wanted, required=traits.required, forbidden=traits.forbidden, any_of=traits.any_of
        )
    if "resources" in given:
        room = words.resources(given["resources"])
        words.check_classes(asked.ledger, room)
        if words.is_too_much(room):
            return asked.reply(json={"resource_providers": []})
        wanted = dataclasses.replace(wanted, room=tuple(room.items()))
    found = [_told(asked, one) for one in kept.listed(asked.ledger, wanted)]
    return asked.reply(json={"resource_providers": found})


def _known_names(name: str) -> frozenset[str]:
    try:
        return frozenset([names.provider_name(name), kept.kept_name(name, "")])
    except exceptions.InvalidInput:
        return frozenset()


def show(asked: Asked) -> webob.Response:
    asked.tells_json()
    return asked.reply(json=_told(asked, kept.provider(asked.ledger, asked.path["uuid"])))


def create(asked: Asked) -> webob.Response:
    given = asked.body(schemas.new_provider(asked.version.minor))
    ledger, name = asked.ledger, given["name"]
    uuid = uuid_text(given["uuid"]) if "uuid" in given else str(uuids.uuid4())
    parent = given.get("parent_provider_uuid")
    above = None if parent is None else uuid_text(parent)
    cannot = f'Unable to create resource provider "{name}", {uuid}'
    kept_as = _kept_name(name, uuid, cannot)
    if above == uuid:
        raise errors.bad(
            f"{cannot}: {_CREATE_FAILED}: parent provider UUID cannot be same as UUID. Please set "
            "parent provider UUID to None if there is no parent."
        )
    if above is not None and not kept.by_uuid(ledger, [above]):
        raise errors.bad(f"{cannot}: {_CREATE_FAILED}: {_NO_PARENT}")
    made = ProviderDefinition(uuid, kept_as, above, (), frozenset())
    try:
        kept.write(ledger, kept_as, creates=(made,))
    except exceptions.AlreadyExists as error:
        raise _exists(asked, name, uuid) from error
    except exceptions.Stale as error:
        raise errors.bad(f"{cannot}: {_CREATE_FAILED}: {_NO_PARENT}") from error
    except exceptions.InvalidInput as error:
        raise errors.bad(f"{cannot}: {error}") from error
    location = asked.url(f"/resource_providers/{uuid}")
    if not asked.since(20):
        return asked.reply(201, location=location, cached=False)
    return asked.reply(json=_told(asked, kept.provider(ledger, uuid)), location=location)


def _kept_name(name: str, uuid: str, cannot: str) -> str:
    """Return a name as it is kept, or refuse one that cannot be printed."""
    try:
        return names.provider_name(kept.kept_name(name, uuid))
    except exceptions.InvalidInput as error:
        raise errors.bad(f"{cannot}: {error}") from error


def _exists(asked: Asked, name: str, uuid: str) -> errors.Refused:
    clash = f"uuid: {uuid}" if kept.by_uuid(asked.ledger, [uuid]) else f"name: {name}"
    return errors.conflict(
        f"Conflicting resource provider {clash} already exists.", errors.DUPLICATE_NAME
    )


def put(asked: Asked) -> webob.Response:
    """Give it another name, and another place in its tree or another one."""
    ledger, uuid = asked.ledger, asked.path["uuid"]
    asked.takes_json()
    one = kept.provider(ledger, uuid)
    given = asked.body(schemas.provider(asked.version.minor))
    name = given["name"]
    cannot = f"Unable to save resource provider {uuid}"
    kept_as = _kept_name(name, one.uuid, cannot)
    try:
        if "parent_provider_uuid" in given:
            _move(asked, one, given["parent_provider_uuid"], kept_as, cannot)
        kept.change(ledger, uuid, lambda now: _named(now, kept_as))
    except exceptions.AlreadyExists as error:
        raise errors.conflict(
            f"Conflicting resource provider {name} already exists.", errors.DUPLICATE_NAME
        ) from error
    except exceptions.InvalidInput as error:
        raise errors.bad(f"{cannot}: {error}") from error
    return asked.reply(json=_told(asked, kept.provider(ledger, uuid)))


def _named(one: ListedProvider, name: str) -> ProviderUpdate | None:
    if one.name == name:
        return None
    return dataclasses.replace(kept.updated(one, name=name), counts=0)


def _move(asked: Asked, one: ListedProvider, parent: str | None, name: str, cannot: str) -> None:
    above = None if parent is None else uuid_text(parent)
    if above == one.parent_uuid:
        return
    if not asked.since(37) and one.parent_uuid is not None:
        what = "un-parenting" if above is None else "re-parenting"
        raise errors.bad(f"{cannot}: {_UPDATE_FAILED}: {what} a provider is not currently allowed.")
    if above is not None and not kept.by_uuid(asked.ledger, [above]):
        raise errors.bad(f"{cannot}: {_CREATE_FAILED}: {_NO_PARENT}")  # "create" in Placement, too
    try:
        kept.move(asked.ledger, one.uuid, above, name)
    except exceptions.InvalidTree as error:
        raise errors.bad(
            f"{cannot}: {_UPDATE_FAILED}: creating loop in the provider tree is not allowed."
        ) from error


def delete(asked: Asked) -> webob.Response:
    ledger, uuid = asked.ledger, asked.path["uuid"]
    cannot = f"Unable to delete resource provider {uuid}: Resource provider has allocations."
    is_parent = errors.conflict(
        f"Unable to delete parent resource provider {uuid}: It has child resource providers.",
        errors.CANNOT_DELETE_PARENT,
    )

    def attempt() -> None:
        one = kept.provider(ledger, uuid, f"{kept.NOT_FOUND} for delete")
        if any(
            other.parent_uuid == one.uuid
            for other in kept.listed(asked.ledger, ProviderFilter(trees=frozenset([one.uuid])))
        ):
            raise is_parent
        kept.remove(ledger, one)

    try:
        ledger.retries.retry(attempt, "StaleDefinition")
    except exceptions.InUse as error:
        raise errors.conflict(cannot, errors.PROVIDER_IN_USE) from error
    return asked.reply(204, cached=False)


def _told(asked: Asked, one: ListedProvider) -> dict[str, object]:
    """Return a provider as Placement tells it."""
    href = asked.url(f"/resource_providers/{one.uuid}")
    links = [{"rel": "self", "href": href}]
    links += [
        {"rel": rel, "href": f"{href}/{rel}"} for rel, minor in _LINKS.items() if asked.since(minor)
    ]
    told: dict[str, object] = {
        "uuid": one.uuid,
        "name": kept.told_name(one),
        "generation": kept.generation(one),
        "links": links,
    }
    if asked.since(14):
        told |= {"parent_provider_uuid": one.parent_uuid, "root_provider_uuid": one.root_uuid}
    return told


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
