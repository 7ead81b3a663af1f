"""``/traits``, and the traits of a provider, from microversion 1.6 on."""

from __future__ import annotations

import re

import webob

from resource_objects.exceptions import InUse, NotFound, NotSupported
from resource_objects.providers.definition import ProviderUpdate
from resource_objects.providers.disabled import TRAIT, DisableOrder
from resource_objects.providers.listing import ListedProvider
from resource_objects.providers.orders import NameKind
from resource_objects.rest import errors, kept, schemas
from resource_objects.rest.asked import Asked

_INVALID = (
    "The trait is invalid. A valid trait must be no longer than 255 characters, start with the "
    'prefix "CUSTOM_" and use following characters: "A"-"Z", "0"-"9" and "_"'
)
#: Why a provider is out of service that a client of this API took out of it.
_REASON = f"{TRAIT} was set"
_RULE = "placement:traits:"
_OF_PROVIDER = "placement:resource_providers:traits:"


def list_all(asked: Asked) -> webob.Response:
    asked.needs(6)
    asked.tells_json()
    asked.query(schemas.TRAITS_QUERY)
    found = kept.all_names(asked.ledger, NameKind.TRAIT)
    said = asked.http.GET.get("name")
    if said is not None:
        kind, colon, value = said.partition(":")
        if not colon:
            raise errors.bad(
                "Badly formatted name parameter. Expected name query string parameter in form: "
                f'?name=[in|startswith]:[name1,name2|prefix]. Got: "{said}"'
            )
        if kind == "in":
            found = [name for name in found if name in value.split(",")]
        elif kind == "startswith":  # of any other word Placement lists them all
            found = [name for name in found if name.startswith(value)]
    wanted = asked.http.GET.get("associated")
    if wanted is not None:
        wanted = wanted.lower()
        if wanted not in ("true", "false"):
            raise errors.bad('The query parameter "associated" only accepts "true" or "false"')
        had = asked.ledger.snapshot().fleet.traits
        found = [name for name in found if (name in had) == (wanted == "true")]
    return asked.reply(json={"traits": found})


def show(asked: Asked) -> webob.Response:
    asked.needs(6)
    _there(asked)
    return asked.reply(204)


def put(asked: Asked) -> webob.Response:
    asked.needs(6)
    name = asked.path["name"]
    if len(name) > 255 or not re.fullmatch("CUSTOM_[A-Z0-9_]+", name):
        raise errors.bad(_INVALID)
    known = not kept.unknown_traits(asked.ledger, [name])
    if not known:
        asked.ledger.names.traits.ensure(name)
    return asked.reply(204 if known else 201, location=asked.url(f"/traits/{name}"))


def delete(asked: Asked) -> webob.Response:
    asked.needs(6)
    name = _there(asked)
    try:
        asked.ledger.names.traits.remove(name)
    except NotSupported as error:
        if not error.is_about("standard name"):
            raise
        raise errors.bad(f"Cannot delete standard trait {name}.") from error
    except InUse as error:
        raise errors.conflict(f"The trait {name} is in use by a resource provider.") from error
    except NotFound as error:
        raise errors.not_found(f"No such trait(s): {name}.") from error
    return asked.reply(204, cached=False)


def _there(asked: Asked) -> str:
    name = asked.path["name"]
    if kept.unknown_traits(asked.ledger, [name]):
        raise errors.not_found(f"No such trait(s): {name}.")
    return name


# --- of a provider ---


def of_provider(asked: Asked) -> webob.Response:
    asked.needs(6)
    asked.tells_json()
    one = kept.provider(asked.ledger, asked.path["uuid"], f"{kept.NOT_FOUND}: {kept.NOT_FOUND}")
    return _reply(asked, one.all_traits, kept.generation(one))


def set_of_provider(asked: Asked) -> webob.Response:
    asked.needs(6)
    given = asked.body(schemas.PROVIDER_TRAITS)
    wanted, at = frozenset(given["traits"]), given["resource_provider_generation"]

    def edit(one: ListedProvider) -> ProviderUpdate | None:
        kept.check_generation(one, at, kept.GENERATION_CHANGED)
        unknown = kept.unknown_traits(asked.ledger, wanted)
        if unknown:
            raise errors.bad(f"No such trait {', '.join(unknown)}")
        is_so = wanted | _lasting(one) == one.all_traits
        return None if is_so else kept.updated(one, traits=wanted - {TRAIT})

    uuid = asked.path["uuid"]
    made = kept.change(asked.ledger, uuid, edit, disabling=lambda one: _disabling(one, wanted))
    return _reply(asked, wanted | _lasting(made.before), made.generation(asked.ledger))


def clear_of_provider(asked: Asked) -> webob.Response:
    asked.needs(6)
    none = frozenset[str]()
    kept.change(
        asked.ledger,
        asked.path["uuid"],
        lambda one: kept.updated(one, traits=none) if one.all_traits - _lasting(one) else None,
        disabling=lambda one: _disabling(one, none),
    )
    return asked.reply(204, cached=False)


def _lasting(one: ListedProvider) -> frozenset[str]:
    """Return the trait of a provider that was disabled otherwise than by it.

    Clients cannot enable that: they take the trait away by what they know of a service of their
    own, as Nova does whenever one starts, not of why an operator took the host out.
    """
    is_so = one.disabled is not None and one.disabled.reason != _REASON
    return frozenset([TRAIT]) if is_so else frozenset()


def _disabling(one: ListedProvider, wanted: frozenset[str]) -> tuple[DisableOrder, ...]:
    is_out, shall_be_out = one.disabled is not None, TRAIT in wanted | _lasting(one)
    if is_out == shall_be_out:
        return ()
    return (DisableOrder(one.uuid, _REASON if shall_be_out else None),)


def _reply(asked: Asked, found: frozenset[str], generation: int) -> webob.Response:
    told = sorted(found, key=kept.name_order)
    return asked.reply(json={"traits": told, "resource_provider_generation": generation})


ROUTES = (
    ("/traits", {"GET": (_RULE + "list", list_all)}),
    (
        "/traits/{name}",
        {
            "GET": (_RULE + "show", show),
            "PUT": (_RULE + "update", put),
            "DELETE": (_RULE + "delete", delete),
        },
    ),
    (
        "/resource_providers/{uuid}/traits",
        {
            "GET": (_OF_PROVIDER + "list", of_provider),
            "PUT": (_OF_PROVIDER + "update", set_of_provider),
            "DELETE": (_OF_PROVIDER + "delete", clear_of_provider),
        },
    ),
)
