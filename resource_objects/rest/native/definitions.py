"""``/ro/providers`` and ``/ro/trees``: what there is, as lists of providers and as whole trees.

A tree is said as a site's file says it (:mod:`resource_objects.site`), with devices,
topologies, shares, and what is out of service.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from resource_objects import names
from resource_objects.exceptions import InvalidTree, NotFound
from resource_objects.ledger import Ledger
from resource_objects.providers.listing import ListedProvider
from resource_objects.rest.native import schemas
from resource_objects.rest.native.api import PREFIX, Call, Given, Parameter
from resource_objects.site import Site, apply_site, export_site, plan_site
from resource_objects.site.ranges import literal
from resource_objects.site.site import unlined

_ROOT = f"{PREFIX}/providers"
_ONE = f"{PREFIX}/trees/{{provider:path}}"
#: A page of providers, unless another limit is said.
_PAGE = 500


def list_(given: Given) -> dict[str, Any]:
    """List providers, in the order in which they were made, a page at a time."""
    limit = given.query.get("limit", _PAGE)
    said = {name: value for name, value in given.query.items() if name != "limit"}
    found = [one.to_dict() for one in given.ledger.providers(limit=limit, **said)]
    return {"providers": found, "after": found[-1]["name"] if len(found) == limit else None}


def show(given: Given) -> dict[str, Any]:
    """Tell a whole tree: its definition, what is used of it, and who has which unit.

    The definition can be sent back, with the generations, so that nobody's change is lost.
    """
    return _tree(given.ledger, given.path["provider"])


def put(given: Given) -> dict[str, Any]:
    """Make a tree look as it is said, in one transaction; what consumers hold is not touched.

    The path names its root. It is made if need be. What is not said of it goes, unless prune is
    false: then it is left alone. Generations are those that providers were read at: if one is at
    another one by now, nothing is written. With dry_run nothing is, and the answer is the tree as
    it is, with the plan.
    """
    body, ledger = given.body, given.ledger
    name = _root_name(ledger, given.path["provider"])
    kind = "pools" if body.get("pool", False) else "machines"
    site = Site.from_dict({kind: {literal(name): body["definition"]}}, file=name)
    prune, generations = body.get("prune", True), body.get("generations", {})
    with unlined():
        if body.get("dry_run", False):
            plan = plan_site(ledger, site, prune=prune, others=False, generations=generations)
            return _tree(ledger, name, str(plan))
        apply_site(ledger, site, prune=prune, others=False, generations=generations)
    return _tree(ledger, name)


def remove(given: Given) -> dict[str, Any]:
    """Remove a provider and all below it, of which nobody holds anything."""
    done = given.ledger.remove(given.path["provider"], operation=given.query.get("operation"))
    return {"removed": done.removed}


def _tree(ledger: Ledger, provider: str, plan: str | None = None) -> dict[str, Any]:
    # generations first: of what is changed meanwhile they are too old, and a write is refused
    listed = list(ledger.providers(tree=provider))
    root = next((one for one in listed if one.parent is None), None)
    if root is None:
        if plan is None:
            raise NotFound("provider", provider)
        return _told(provider, None, Site(), [], plan)
    site = export_site(ledger, [root.uuid])
    usage = ledger.usage(root.uuid)
    return _told(root.name, root, site, listed, plan) | {
        "usage": [use.to_dict() for use in usage.uses],
        "units": list(_units(ledger, root.uuid, {one.uuid for one in listed})),
    }


def _units(ledger: Ledger, root: str, inside: Collection[str]) -> Iterator[dict[str, str]]:
    """Yield the units of a tree that are taken, by whom."""
    for consumer in ledger.consumers(tree=root):
        for one in consumer.allocations:
            if one.provider_uuid in inside:
                for unit in one.units:
                    yield {
                        "provider": one.provider,
                        "resource_class": one.resource_class,
                        "unit": unit,
                        "consumer": consumer.name,
                    }


def _told(
    name: str,
    root: ListedProvider | None,
    site: Site,
    listed: list[ListedProvider],
    plan: str | None,
) -> dict[str, Any]:
    parts = (*site.machines, *site.pools)
    return {
        "name": name,
        "uuid": None if root is None else root.uuid,
        "pool": bool(site.pools),
        "definition": parts[0].to_dict() if parts else {},
        "generations": {one.name: one.generation for one in listed},
        "usage": [],
        "units": [],
        "plan": plan,
    }


def _root_name(ledger: Ledger, given: str) -> str:
    """Return the name of the root that a path names, by name or uuid.

    :raises InvalidTree: if it names what is below another one
    """
    key = names.provider_key(given)
    kind = "uuid" if names.is_uuid(key) else "name"
    for one in ledger.providers(**{kind: key}):  # type: ignore[arg-type]
        if one.parent is not None:
            raise InvalidTree("tree", one.name, f"a root, such as {one.root}")
        return one.name
    return given


_RULE = "resource_objects:providers:"
_NAMES = {"type": "array", "items": schemas.TEXT}
_LIST = {
    "name": Parameter(_NAMES, "of this name; may be repeated"),
    "uuid": Parameter(_NAMES, "of this uuid; may be repeated"),
    "tree": Parameter(_NAMES, "in the tree of this provider; may be repeated"),
    "required": Parameter(_NAMES, "with this trait; may be repeated: with each"),
    "forbidden": Parameter(_NAMES, "without this trait; may be repeated"),
    "aggregates": Parameter(_NAMES, "in this aggregate; may be repeated: in each"),
    "forbidden_aggregates": Parameter(_NAMES, "not in this aggregate; may be repeated"),
    "room": Parameter(schemas.TEXT, "with room for these amounts, such as VCPU=2"),
    "over_capacity": Parameter(schemas.FLAG, "that use more than their capacity"),
    "limit": Parameter(schemas.one_to(1000, "so many"), "at most so many (500)"),
    "after": Parameter(schemas.TEXT, "only those after this one: where the page before ended"),
}

CALLS = (
    Call("GET", _ROOT, _RULE + "list", list_, "Providers", query=_LIST, refusals=(404,)),
    Call("GET", _ONE, _RULE + "show", show, "Tree", refusals=(404,)),
    Call("PUT", _ONE, _RULE + "update", put, "Tree", body="NewTree", refusals=(404, 409)),
    Call(
        "DELETE",
        _ONE,
        _RULE + "delete",
        remove,
        "Removed",
        query={
            "operation": Parameter(schemas.UUID, "sent again with the same one, it happens once")
        },
        refusals=(404, 409),
    ),
)
