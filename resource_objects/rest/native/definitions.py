"""``/ro/providers`` and ``/ro/trees``: lists of providers, and definitions of whole trees.

The definition of a tree has the keys of a site file (:mod:`resource_objects.site`), with devices,
topologies, shares, and disabled providers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from resource_objects import names
from resource_objects.exceptions import InvalidTree, NotFound
from resource_objects.ledger import Ledger
from resource_objects.providers.listing import ListedProvider
from resource_objects.rest.native import schemas
from resource_objects.rest.native.api import PREFIX, Call, CheckedRequest, Parameter, limit
from resource_objects.rest.native.claims import REPEATABLE
from resource_objects.site import Site, apply_site, export_site, plan_site
from resource_objects.site.ranges import escape
from resource_objects.site.site import without_lines

_ROOT = f"{PREFIX}/providers"
_ITEM = f"{PREFIX}/trees/{{provider:path}}"
#: The number of providers in a page, by default.
_PAGE = 500


def list_(request: CheckedRequest) -> dict[str, Any]:
    """List providers in the order of their creation, one page at a time."""
    count = request.query.get("limit", _PAGE)
    conditions = {name: value for name, value in request.query.items() if name != "limit"}
    providers = [
        provider.to_dict() for provider in request.ledger.providers(limit=count, **conditions)
    ]
    after = providers[-1]["name"] if len(providers) == count else None
    return {"providers": providers, "after": after}


def show(request: CheckedRequest) -> dict[str, Any]:
    """Return a whole tree: its definition, its usage, and the consumer of each allocated unit.

    The definition can be changed and sent back with the generations, so that no concurrent change
    is lost.
    """
    return _tree(request.ledger, request.path["provider"])


def put(request: CheckedRequest) -> dict[str, Any]:
    """Write the definition of a tree, in one transaction. Allocations do not change.

    The path names the root, which is created if necessary. Everything that the definition does not
    name is removed, unless prune is false. Nothing is written if a provider is not at its
    generation in generations. With dry_run nothing is written: the answer is the present tree and
    the plan.
    """
    body, ledger = request.body, request.ledger
    name = _root_name(ledger, request.path["provider"])
    kind = "pools" if body.get("pool", False) else "machines"
    site = Site.from_dict({kind: {escape(name): body["definition"]}}, file=name)
    prune, generations = body.get("prune", True), body.get("generations", {})
    with without_lines():
        if body.get("dry_run", False):
            plan = plan_site(ledger, site, prune=prune, prune_others=False, generations=generations)
            return _tree(ledger, name, str(plan))
        apply_site(ledger, site, prune=prune, prune_others=False, generations=generations)
    return _tree(ledger, name)


def remove(request: CheckedRequest) -> dict[str, Any]:
    """Remove a provider and all its descendants, which must have no allocations."""
    operation = request.query.get("operation")
    result = request.ledger.remove(request.path["provider"], operation=operation)
    return {"removed": result.removed}


def _tree(ledger: Ledger, provider: str, plan: str | None = None) -> dict[str, Any]:
    # generations are read first: a concurrent change then makes them stale, and the client's write
    # is refused
    providers = list(ledger.providers(tree=provider))
    root = next((p for p in providers if p.parent is None), None)
    if root is None:
        if plan is None:
            raise NotFound("provider", provider)
        return _to_json(provider, None, Site(), [], plan)
    site = export_site(ledger, [root.uuid])
    usage = ledger.usage(root.uuid)
    return _to_json(root.name, root, site, providers, plan) | {
        "usage": [use.to_dict() for use in usage.uses],
        "units": list(_units(ledger, root.uuid, {p.uuid for p in providers})),
    }


def _units(ledger: Ledger, root: str, providers: Collection[str]) -> Iterator[dict[str, str]]:
    """Yield the allocated units of a tree with their consumers."""
    for consumer in ledger.consumers(tree=root):
        for allocation in consumer.allocations:
            if allocation.provider_uuid in providers:
                for unit in allocation.units:
                    yield {
                        "provider": allocation.provider,
                        "resource_class": allocation.resource_class,
                        "unit": unit,
                        "consumer": consumer.name,
                    }


def _to_json(
    name: str,
    root: ListedProvider | None,
    site: Site,
    providers: list[ListedProvider],
    plan: str | None,
) -> dict[str, Any]:
    parts = (*site.machines, *site.pools)
    return {
        "name": name,
        "uuid": None if root is None else root.uuid,
        "pool": bool(site.pools),
        "definition": parts[0].to_dict() if parts else {},
        "generations": {provider.name: provider.generation for provider in providers},
        "usage": [],
        "units": [],
        "plan": plan,
    }


def _root_name(ledger: Ledger, key_text: str) -> str:
    """Return the name of a root that is specified by its name or uuid.

    :raises InvalidTree: if the provider is not a root
    """
    key = names.provider_key(key_text)
    field = "uuid" if names.is_uuid(key) else "name"
    for provider in ledger.providers(**{field: key}):  # type: ignore[arg-type]
        if provider.parent is not None:
            raise InvalidTree("tree", provider.name, f"a root, such as {provider.root}")
        return provider.name
    return key_text


_RULE = "resource_objects:providers:"
_NAMES = {"type": "array", "items": schemas.TEXT}
_LIST = {
    "name": Parameter(_NAMES, "providers of this name; may be repeated"),
    "uuid": Parameter(_NAMES, "providers of this uuid; may be repeated"),
    "tree": Parameter(_NAMES, "providers in the tree of this provider; may be repeated"),
    "required": Parameter(_NAMES, "with this trait; if repeated, with all of them"),
    "forbidden": Parameter(_NAMES, "without this trait; may be repeated"),
    "aggregates": Parameter(_NAMES, "in this aggregate; if repeated, in all of them"),
    "forbidden_aggregates": Parameter(_NAMES, "not in this aggregate; may be repeated"),
    "room": Parameter(schemas.TEXT, "with these amounts free, such as VCPU=2"),
    "over_capacity": Parameter(schemas.FLAG, "with more usage than capacity"),
    "limit": limit(1000, "providers", _PAGE),
    "after": Parameter(schemas.TEXT, "the last name of the previous page"),
}

CALLS = (
    Call("GET", _ROOT, _RULE + "list", list_, "Providers", query=_LIST, refusals=(404,)),
    Call("GET", _ITEM, _RULE + "show", show, "Tree", refusals=(404,)),
    Call("PUT", _ITEM, _RULE + "update", put, "Tree", body="NewTree", refusals=(404, 409)),
    Call(
        "DELETE", _ITEM, _RULE + "delete", remove, "Removed", query=REPEATABLE, refusals=(404, 409)
    ),
)
