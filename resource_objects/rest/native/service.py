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
    """List what is out of service: providers, and units of theirs that are so alone.

    Cost: all providers are read, or those of one tree.
    """
    said = {"tree": given.query["tree"]} if "tree" in given.query else {}
    found: list[dict[str, Any]] = []
    for one in given.ledger.providers(**said):
        if one.disabled is not None:
            found.append(_told(one.name, one.root, None, one.disabled))
        for unit, disabled in sorted(one.disabled_units.items()):
            found.append(_told(one.name, one.root, unit, disabled))
    return {"disabled": found}


def _told(provider: str, root: str, unit: str | None, disabled: Any) -> dict[str, Any]:
    return {"provider": provider, "root": root, "unit": unit, **disabled.to_dict()}


def disable(given: Given) -> dict[str, Any]:
    """Take a provider out of service, with all below it; or one unit of it alone.

    No search finds it and no claim takes of it any more. What is held there stays held: who holds
    it is answered. Said again it gets the new reason and end.
    """
    body = given.body
    until = moment("until", body["until"]) if "until" in body else None
    return given.ledger.drain(
        given.path["provider"],
        reason=body["reason"],
        unit=body.get("unit"),
        until=until,
        operation=body.get("operation"),
    ).to_dict()


def enable(given: Given) -> dict[str, Any]:
    """Put a provider, or a unit of it, into service again; one that is in service stays so."""
    ledger: Ledger = given.ledger
    said = {name: given.query.get(name) for name in ("unit", "operation")}
    return ledger.enable(given.path["provider"], **said).to_dict()


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
            "unit": Parameter(schemas.TEXT, "this unit alone, such as the address of a device"),
            "operation": Parameter(schemas.UUID, "sent again with the same one, it happens once"),
        },
        refusals=(404, 409),
    ),
)
