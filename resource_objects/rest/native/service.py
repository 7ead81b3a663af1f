"""``/ro/disabled``: the disabled providers, and the reasons."""

from __future__ import annotations

from typing import Any

from resource_objects.rest.native import schemas
from resource_objects.rest.native.api import PREFIX, Call, CheckedRequest, Parameter
from resource_objects.rest.native.claims import REPEATABLE, parse_time

_ROOT = f"{PREFIX}/disabled"
_ITEM = f"{_ROOT}/{{provider:path}}"


def list_(request: CheckedRequest) -> dict[str, Any]:
    """List the disabled providers.

    Cost: all providers are read, or those of one tree.
    """
    conditions = {"tree": request.query["tree"]} if "tree" in request.query else {}
    disabled = [
        {"provider": provider.name, "root": provider.root, **provider.disabled.to_dict()}
        for provider in request.ledger.providers(**conditions)
        if provider.disabled is not None
    ]
    return {"disabled": disabled}


def disable(request: CheckedRequest) -> dict[str, Any]:
    """Disable a provider and all its descendants.

    Searches and claims do not use them any more. Existing allocations stay; the answer names their
    consumers. A repeated call changes the reason and the end.
    """
    body = request.body
    until = parse_time("until", body["until"]) if "until" in body else None
    return request.ledger.drain(
        request.path["provider"],
        reason=body["reason"],
        until=until,
        operation=body.get("operation"),
    ).to_dict()


def enable(request: CheckedRequest) -> dict[str, Any]:
    """Enable a provider. A provider that is enabled already is not changed."""
    provider = request.path["provider"]
    return request.ledger.enable(provider, operation=request.query.get("operation")).to_dict()


_RULE = "resource_objects:disabled:"
_TREE = Parameter(schemas.TEXT, "only providers of this provider's tree, by name or uuid")

CALLS = (
    Call("GET", _ROOT, _RULE + "list", list_, "DisabledList", query={"tree": _TREE}),
    Call("PUT", _ITEM, _RULE + "update", disable, "Drained", body="Disable", refusals=(404, 409)),
    Call(
        "DELETE", _ITEM, _RULE + "delete", enable, "Provider", query=REPEATABLE, refusals=(404, 409)
    ),
)
