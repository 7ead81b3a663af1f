"""``/resource_classes``, from microversion 1.2 on."""

from __future__ import annotations

import webob

from resource_objects import exceptions
from resource_objects.providers.orders import NameKind
from resource_objects.rest import errors, schemas, translation
from resource_objects.rest.request import ClientRequest, validate

_RULE = "placement:resource_classes:"


def list_all(request: ClientRequest) -> webob.Response:
    request.require_version(2)
    request.require_json_accepted()
    names = translation.all_names(request.ledger, NameKind.RESOURCE_CLASS)
    return request.reply(json={"resource_classes": [_to_json(request, name) for name in names]})


def show(request: ClientRequest) -> webob.Response:
    request.require_version(2)
    request.require_json_accepted()
    return request.reply(json=_to_json(request, _existing_name(request)))


def create(request: ClientRequest) -> webob.Response:
    request.require_version(2)
    name = request.body(schemas.RESOURCE_CLASS)["name"]
    if not translation.unknown_classes(request.ledger, [name]):
        raise errors.conflict(f"Conflicting resource class already exists: {name}")
    request.ledger.names.classes.ensure(name)
    return request.reply(201, location=request.url(f"/resource_classes/{name}"), cached=False)


def put(request: ClientRequest) -> webob.Response:
    """Create a class unless it exists (from 1.7 on), or rename it (1.2 to 1.6)."""
    request.require_version(2)
    return _ensure(request) if request.since(7) else _rename(request)


def _ensure(request: ClientRequest) -> webob.Response:
    name = request.path["name"]
    validate({"name": name}, schemas.RESOURCE_CLASS, "JSON does not validate")
    exists = not translation.unknown_classes(request.ledger, [name])
    if not exists:
        request.ledger.names.classes.ensure(name)
    url = request.url(f"/resource_classes/{name}")
    return request.reply(204 if exists else 201, location=url, cached=False)


def _rename(request: ClientRequest) -> webob.Response:
    new = request.body(schemas.RESOURCE_CLASS)["name"]
    name = _existing_name(request)
    try:
        request.ledger.names.classes.rename(name, new)
    except exceptions.NotSupported as error:
        if not error.is_about("standard name"):
            raise
        raise errors.bad(f"Cannot update standard resource class {name}") from error
    except exceptions.AlreadyExists as error:
        raise errors.conflict(f"Resource class already exists: {new}") from error
    return request.reply(json=_to_json(request, new))


def delete(request: ClientRequest) -> webob.Response:
    request.require_version(2)
    name = _existing_name(request)
    try:
        request.ledger.names.classes.remove(name)
    except exceptions.NotSupported as error:
        if not error.is_about("standard name"):
            raise
        raise errors.bad(
            f"Error in delete resource class: Cannot delete standard resource class {name}."
        ) from error
    except exceptions.InUse as error:
        raise errors.conflict(
            f"Error in delete resource class: Cannot delete resource class {name}. "
            "Class is in use in inventory."
        ) from error
    except exceptions.NotFound as error:
        raise errors.not_found(f"No such resource class {name}.") from error
    return request.reply(204, cached=False)


def _existing_name(request: ClientRequest) -> str:
    name = request.path["name"]
    if translation.unknown_classes(request.ledger, [name]):
        raise errors.not_found(f"No such resource class {name}.")
    return name


def _to_json(request: ClientRequest, name: str) -> dict[str, object]:
    href = request.url(f"/resource_classes/{name}")
    return {"name": name, "links": [{"rel": "self", "href": href}]}


ROUTES = (
    ("/resource_classes", {"GET": (_RULE + "list", list_all), "POST": (_RULE + "create", create)}),
    (
        "/resource_classes/{name}",
        {
            "GET": (_RULE + "show", show),
            "PUT": (_RULE + "update", put),
            "DELETE": (_RULE + "delete", delete),
        },
    ),
)
