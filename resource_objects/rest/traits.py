"""``/traits``, and the traits of a provider, from microversion 1.6 on."""

from __future__ import annotations

import re

import webob

from resource_objects.exceptions import InUse, NotFound, NotSupported
from resource_objects.providers.definition import ProviderUpdate
from resource_objects.providers.disabled import TRAIT, DisableOrder
from resource_objects.providers.listing import ListedProvider
from resource_objects.providers.orders import NameKind
from resource_objects.rest import errors, schemas, translation
from resource_objects.rest.request import ClientRequest

_INVALID = (
    "The trait is invalid. A valid trait must be no longer than 255 characters, start with the "
    'prefix "CUSTOM_" and use following characters: "A"-"Z", "0"-"9" and "_"'
)
#: The reason of a provider that a client of this API disabled.
_REASON = f"{TRAIT} was set"
_RULE = "placement:traits:"
_RULE_OF_PROVIDER = "placement:resource_providers:traits:"


def list_all(request: ClientRequest) -> webob.Response:
    request.require_version(6)
    request.require_json_accepted()
    request.check_query(schemas.TRAITS_QUERY)
    traits = translation.all_names(request.ledger, NameKind.TRAIT)
    name = request.http.GET.get("name")
    if name is not None:
        operator, colon, value = name.partition(":")
        if not colon:
            raise errors.bad(
                "Badly formatted name parameter. Expected name query string parameter in form: "
                f'?name=[in|startswith]:[name1,name2|prefix]. Got: "{name}"'
            )
        if operator == "in":
            traits = [trait for trait in traits if trait in value.split(",")]
        elif operator == "startswith":  # Placement ignores any other operator
            traits = [trait for trait in traits if trait.startswith(value)]
    associated = request.http.GET.get("associated")
    if associated is not None:
        associated = associated.lower()
        if associated not in ("true", "false"):
            raise errors.bad('The query parameter "associated" only accepts "true" or "false"')
        of_providers = request.ledger.snapshot().fleet.traits
        traits = [trait for trait in traits if (trait in of_providers) == (associated == "true")]
    return request.reply(json={"traits": traits})


def show(request: ClientRequest) -> webob.Response:
    request.require_version(6)
    _existing_name(request)
    return request.reply(204)


def put(request: ClientRequest) -> webob.Response:
    request.require_version(6)
    name = request.path["name"]
    if len(name) > 255 or not re.fullmatch("CUSTOM_[A-Z0-9_]+", name):
        raise errors.bad(_INVALID)
    exists = not translation.unknown_traits(request.ledger, [name])
    if not exists:
        request.ledger.names.traits.ensure(name)
    return request.reply(204 if exists else 201, location=request.url(f"/traits/{name}"))


def delete(request: ClientRequest) -> webob.Response:
    request.require_version(6)
    name = _existing_name(request)
    try:
        request.ledger.names.traits.remove(name)
    except NotSupported as error:
        if not error.is_about("standard name"):
            raise
        raise errors.bad(f"Cannot delete standard trait {name}.") from error
    except InUse as error:
        raise errors.conflict(f"The trait {name} is in use by a resource provider.") from error
    except NotFound as error:
        raise errors.not_found(f"No such trait(s): {name}.") from error
    return request.reply(204, cached=False)


def _existing_name(request: ClientRequest) -> str:
    name = request.path["name"]
    if translation.unknown_traits(request.ledger, [name]):
        raise errors.not_found(f"No such trait(s): {name}.")
    return name


# --- of a provider ---


def of_provider(request: ClientRequest) -> webob.Response:
    request.require_version(6)
    request.require_json_accepted()
    message = f"{translation.NOT_FOUND}: {translation.NOT_FOUND}"
    provider = translation.get_provider(request.ledger, request.path["uuid"], message)
    return _reply(request, provider.all_traits, translation.generation(provider))


def set_of_provider(request: ClientRequest) -> webob.Response:
    request.require_version(6)
    body = request.body(schemas.PROVIDER_TRAITS)
    traits, generation = frozenset(body["traits"]), body["resource_provider_generation"]

    def edit(provider: ListedProvider) -> ProviderUpdate | None:
        translation.check_generation(provider, generation, translation.GENERATION_CHANGED)
        unknown = translation.unknown_traits(request.ledger, traits)
        if unknown:
            raise errors.bad(f"No such trait {', '.join(unknown)}")
        if traits | _permanent_traits(provider) == provider.all_traits:
            return None
        return translation.updated(provider, traits=traits - {TRAIT})

    change = translation.change_provider(
        request.ledger,
        request.path["uuid"],
        edit,
        disabling=lambda provider: _disable_orders(provider, traits),
    )
    current = traits | _permanent_traits(change.before)
    return _reply(request, current, change.generation(request.ledger))


def clear_of_provider(request: ClientRequest) -> webob.Response:
    request.require_version(6)
    none = frozenset[str]()

    def edit(provider: ListedProvider) -> ProviderUpdate | None:
        removable = provider.all_traits - _permanent_traits(provider)
        return translation.updated(provider, traits=none) if removable else None

    translation.change_provider(
        request.ledger,
        request.path["uuid"],
        edit,
        disabling=lambda provider: _disable_orders(provider, none),
    )
    return request.reply(204, cached=False)


def _permanent_traits(provider: ListedProvider) -> frozenset[str]:
    """Return the trait of a disabled provider that a client of this API did not disable.

    Clients cannot enable such a provider. They remove the trait for reasons of their own, as Nova
    does at each start of a compute service, without knowing why an operator disabled the host.
    """
    is_disabled_otherwise = provider.disabled is not None and provider.disabled.reason != _REASON
    return frozenset([TRAIT]) if is_disabled_otherwise else frozenset()


def _disable_orders(provider: ListedProvider, traits: frozenset[str]) -> tuple[DisableOrder, ...]:
    is_disabled = provider.disabled is not None
    will_be_disabled = TRAIT in traits | _permanent_traits(provider)
    if is_disabled == will_be_disabled:
        return ()
    return (DisableOrder(provider.uuid, _REASON if will_be_disabled else None),)


def _reply(request: ClientRequest, traits: frozenset[str], generation: int) -> webob.Response:
    names = sorted(traits, key=translation.name_sort_key)
    return request.reply(json={"traits": names, "resource_provider_generation": generation})


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
            "GET": (_RULE_OF_PROVIDER + "list", of_provider),
            "PUT": (_RULE_OF_PROVIDER + "update", set_of_provider),
            "DELETE": (_RULE_OF_PROVIDER + "delete", clear_of_provider),
        },
    ),
)
