"""``/ro/disabled``: what is out of service, and why."""

from __future__ import annotations

from typing import Any

from resource_objects.ledger import Ledger
from resource_objects.rest.native import schemas
from resource_objects.rest.native.api import PREFIX, Call, Given, Parameter
from resource_objects.rest.native.claims import moment

_ROOT = f"{PREFIX}/disabled"
_ONE = f"{_ROOT}/{{provider:path}}"


def list_(given: Given) -> dict[str, Any]:
    """List the disabled providers.

    Cost: all providers are read, or those of one tree.
    """
    said = {"tree": given.query["tree"]} if "tree" in given.query else {}
    disabled = [
        {"provider": one.name, "root": one.root, **one.disabled.to_dict()}
        for one in given.ledger.providers(**said)
        if one.disabled is not None
    ]
    return {"disabled": disabled}


def disable(given: Given) -> dict[str, Any]:
    """Disable a provider, with all providers below it.

    No search finds it and no claim takes of it any more. What is held there stays held: who holds
    it is answered. Said again it gets the new reason and end.
    """
    body = given.body
    until = moment("until", body["until"]) if "until" in body else None
    return given.ledger.drain(
        given.path["provider"],
        reason=body["reason"],
        until=until,
        operation=body.get("operation"),
    ).to_dict()


def enable(given: Given) -> dict[str, Any]:
    """Enable a provider; one that is enabled already stays so."""
    ledger: Ledger = given.ledger
    return ledger.enable(given.path["provider"], operation=given.query.get("operation")).to_dict()


_RULE = "resource_objects:disabled:"
_TREE = Parameter(schemas.TEXT, "only in the tree of this provider, by name or uuid")

CALLS = (
    Call("GET", _ROOT, _RULE + "list", list_, "DisabledList", query={"tree": _TREE}),
    Call(
        "PUT",
        _ONE,
        _RULE + "update",
        disable,
        "Drained",
        body="Disable",
        refusals=(404, 409),
    ),
    Call(
        "DELETE",
        _ONE,
        _RULE + "delete",
        enable,
        "Provider",
        query={
            "operation": Parameter(schemas.UUID, "sent again with the same one, it happens once"),
        },
        refusals=(404, 409),
    ),
)
