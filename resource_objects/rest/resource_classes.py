"""``/resource_classes``, from microversion 1.2 on."""

from __future__ import annotations

import webob

from resource_objects import exceptions
from resource_objects.providers.orders import NameKind
from resource_objects.rest import errors, kept, schemas
from resource_objects.rest.asked import Asked, validate

_RULE = "placement:resource_classes:"


def list_all(asked: Asked) -> webob.Response:
    asked.needs(2)
    asked.tells_json()
    found = kept.all_names(asked.ledger, NameKind.RESOURCE_CLASS)
    return asked.reply(json={"resource_classes": [_told(asked, name) for name in found]})


def show(asked: Asked) -> webob.Response:
    asked.needs(2)
    asked.tells_json()
    name = _there(asked)
    return asked.reply(json=_told(asked, name))


def create(asked: Asked) -> webob.Response:
    asked.needs(2)
    name = asked.body(schemas.RESOURCE_CLASS)["name"]
    if not kept.unknown_classes(asked.ledger, [name]):
        raise errors.conflict(f"Conflicting resource class already exists: {name}")
    asked.ledger.names.classes.ensure(name)
    return asked.reply(201, location=asked.url(f"/resource_classes/{name}"), cached=False)


def put(asked: Asked) -> webob.Response:
    """Make one or find it (1.7), or give it another name (1.2 to 1.6)."""
    asked.needs(2)
    return _ensure(asked) if asked.since(7) else _rename(asked)


def _ensure(asked: Asked) -> webob.Response:
    name = asked.path["name"]
    validate({"name": name}, schemas.RESOURCE_CLASS, "JSON does not validate")
    known = not kept.unknown_classes(asked.ledger, [name])
    if not known:
        asked.ledger.names.classes.ensure(name)
    url = asked.url(f"/resource_classes/{name}")
    return asked.reply(204 if known else 201, location=url, cached=False)


def _rename(asked: Asked) -> webob.Response:
    new = asked.body(schemas.RESOURCE_CLASS)["name"]
    name = _there(asked)
    try:
        asked.ledger.names.classes.rename(name, new)
    except exceptions.NotSupported as error:
        if not error.is_about("standard name"):
            raise
        raise errors.bad(f"Cannot update standard resource class {name}") from error
    except exceptions.AlreadyExists as error:
        raise errors.conflict(f"Resource class already exists: {new}") from error
    return asked.reply(json=_told(asked, new))


def delete(asked: Asked) -> webob.Response:
    asked.needs(2)
    name = _there(asked)
    try:
        asked.ledger.names.classes.remove(name)
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
    return asked.reply(204, cached=False)


def _there(asked: Asked) -> str:
    name = asked.path["name"]
    if kept.unknown_classes(asked.ledger, [name]):
        raise errors.not_found(f"No such resource class {name}.")
    return name


def _told(asked: Asked, name: str) -> dict[str, object]:
    href = asked.url(f"/resource_classes/{name}")
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
