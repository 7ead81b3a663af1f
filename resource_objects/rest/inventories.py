"""``/resource_providers/{uuid}/inventories``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import webob

from resource_objects import ratio
from resource_objects.exceptions import InUse, InvalidInput
from resource_objects.providers.definition import ProviderUpdate
from resource_objects.providers.listing import ListedProvider
from resource_objects.resources.records import InventoryRecord
from resource_objects.rest import errors, kept, schemas
from resource_objects.rest.asked import Asked

_RULE = "placement:resource_providers:inventories:"
_NOT_FOUND = f"{kept.NOT_FOUND} : {kept.NOT_FOUND}"

#: How the refusal of a changed set of inventories begins.
_CONFLICT = "update conflict: "

Edit: TypeAlias = Callable[[ListedProvider], ProviderUpdate]


def list_all(asked: Asked) -> webob.Response:
    asked.tells_json()
    one = kept.provider(asked.ledger, asked.path["uuid"], _NOT_FOUND)
    return _reply_all(asked, one.records, kept.generation(one))


def show(asked: Asked) -> webob.Response:
    asked.tells_json()
    uuid, name = asked.path["uuid"], asked.path["name"]
    one = kept.provider(asked.ledger, uuid, _NOT_FOUND)
    found = record_of(one, name)
    if found is None:
        raise errors.not_found(f"No inventory of class {name} for {uuid}")
    return _reply_one(asked, found, kept.generation(one))


def put_all(asked: Asked) -> webob.Response:
    uuid = asked.path["uuid"]
    given = _given(asked, schemas.PUT_INVENTORIES)

    def edit(one: ListedProvider) -> ProviderUpdate:
        kept.check_generation(one, given["resource_provider_generation"])
        unknown = kept.unknown_classes(asked.ledger, given["inventories"])
        if unknown:
            raise errors.bad(
                f"Unknown resource class in inventory for resource provider {uuid}: "
                f"No such resource class {unknown[0]}."
            )
        cannot = f"Unable to update inventory for resource provider {uuid}"
        for name, figures in given["inventories"].items():
            _check_capacity(asked, name, figures, uuid, cannot)
        gone = [r for r in one.records if r.resource_class not in given["inventories"]]
        _check_unused(uuid, gone, _CONFLICT)
        records = tuple(
            record(name, figures, uuid, cannot) for name, figures in given["inventories"].items()
        )
        check_plain(one, {*given["inventories"], *(r.resource_class for r in one.records)})
        return kept.updated(one, inventories=records)

    records, generation = _change(asked, edit)
    return _reply_all(asked, records.values(), generation)


def put_one(asked: Asked) -> webob.Response:
    uuid, name = asked.path["uuid"], asked.path["name"]
    given = _given(asked, schemas.PUT_INVENTORY)

    def edit(one: ListedProvider) -> ProviderUpdate:
        kept.check_generation(one, given["resource_provider_generation"])
        cannot = f"Unable to update inventory for resource provider {uuid}"
        _check_capacity(asked, name, given, uuid, cannot)
        if kept.unknown_classes(asked.ledger, [name]):
            raise errors.not_found(f"No such resource class {name}.")
        if record_of(one, name) is None:
            raise errors.bad(
                f"No inventory record with resource class for resource provider {uuid}: "
                f"No inventory of class {name} found."
            )
        check_plain(one, {name})
        made = record(name, given, uuid, cannot)
        return kept.updated(one, inventories=_with(one, made))

    records, generation = _change(asked, edit)
    return _reply_one(asked, records[name], generation)


def create(asked: Asked) -> webob.Response:
    """Add one; a generation may be said, and is not looked at."""
    uuid = asked.path["uuid"]
    given = _given(asked, schemas.POST_INVENTORY)
    name = given["resource_class"]

    def edit(one: ListedProvider) -> ProviderUpdate:
        cannot = f"Unable to create inventory for resource provider {uuid}"
        if kept.unknown_classes(asked.ledger, [name]):
            raise errors.bad(f"{cannot}: No such resource class {name}.")
        _check_capacity(asked, name, given, uuid, cannot)
        if record_of(one, name) is not None:
            raise errors.conflict(
                f"Update conflict: there is an inventory of {name} already",
                errors.CONCURRENT_UPDATE,
            )
        check_plain(one, {name})
        new = record(name, given, uuid, cannot)
        return kept.updated(one, inventories=_with(one, new))

    records, generation = _change(asked, edit)
    made = _reply_one(asked, records[name], generation)
    made.status = 201
    made.location = asked.url(f"/resource_providers/{uuid}/inventories/{name}")
    return made


def delete_one(asked: Asked) -> webob.Response:
    name = asked.path["name"]

    def edit(one: ListedProvider) -> ProviderUpdate:
        if record_of(one, name) is None:
            missing = f"No inventory of class {name} found for delete"
            unknown = kept.unknown_classes(asked.ledger, [name])
            why = f"No such resource class {name}." if unknown else missing
            raise errors.not_found(f"{missing}: {why}")
        check_plain(one, {name})
        left = (r.definition() for r in one.records if r.resource_class != name)
        return kept.updated(one, inventories=tuple(left))

    _write(asked, edit, f"Unable to delete inventory of class {name}: ")
    return asked.reply(204, cached=False)


def delete_all(asked: Asked) -> webob.Response:
    if not asked.since(5):
        raise errors.Refused(
            405,
            "",  # what WebOb puts before the text is all of it
            headers={"Allow": "GET, PUT, POST"},
        )
    uuid = asked.path["uuid"]

    def edit(one: ListedProvider) -> ProviderUpdate:
        _check_unused(uuid, one.records, "")
        check_plain(one, {record.resource_class for record in one.records})
        return kept.updated(one, inventories=())

    _write(asked, edit, "")
    return asked.reply(204, cached=False)


# --- what they share ---


def _check_capacity(
    asked: Asked, name: str, figures: Mapping[str, Any], uuid: str, cannot: str
) -> None:
    """Refuse figures that leave no room, as Placement reckons: rounded towards zero.

    It does so before it looks whether there is such a class, or such an inventory already.
    """
    try:
        capacity = int(
            (figures["total"] - figures.get("reserved", 0)) * figures.get("allocation_ratio", 1)
        )
    except (ValueError, OverflowError):  # by a ratio that is no number, which is not kept
        return
    if capacity < 0 or (capacity == 0 and not asked.since(26)):
        bound = "greater than total" if asked.since(26) else "greater than or equal to total"
        raise _invalid(name, uuid, cannot, bound)


def _invalid(name: str, uuid: str, cannot: str, bound: str) -> errors.Refused:
    return errors.bad(
        f"{cannot}: Invalid inventory for '{name}' on resource provider '{uuid}'. "
        f"The reserved value is {bound}."
    )


def record(name: str, figures: Mapping[str, Any], uuid: str, cannot: str) -> InventoryRecord:
    """Return figures as they are kept, or refuse what they are, which Placement does not.

    :param cannot: how the refusal begins
    """
    total, reserved = int(figures["total"]), int(figures.get("reserved", 0))
    least, most = int(figures.get("min_unit", 1)), int(figures.get("max_unit", schemas.MOST))
    try:
        millionths = ratio.to_millionths(
            ratio.ratio_from_float_column(figures.get("allocation_ratio", 1))
        )
    except InvalidInput as error:
        raise errors.bad(f"{cannot}: {error}") from error
    if reserved > total:
        raise _invalid(name, uuid, cannot, "greater than total")
    if most > total:
        most = schemas.MOST
    if least > most:
        raise errors.bad(f"{cannot}: the max_unit of {name} is less than its min_unit.")
    return InventoryRecord(
        *(name, total, reserved, least, None if most == schemas.MOST else most),
        int(figures.get("step_size", 1)),
        millionths,
        (total - reserved) * millionths // ratio.MILLION,
    )


def told(found: InventoryRecord) -> dict[str, Any]:
    """Return figures as Placement tells them."""
    return {
        "total": found.total,
        "reserved": found.reserved,
        "min_unit": found.min_unit,
        "max_unit": schemas.MOST if found.max_unit is None else found.max_unit,
        "step_size": found.step_size,
        "allocation_ratio": found.ratio_millionths / ratio.MILLION,
    }


def record_of(one: ListedProvider, name: str) -> InventoryRecord | None:
    """Return the figures of a class, None if the provider has none of it."""
    return next((record for record in one.records if record.resource_class == name), None)


def _with(one: ListedProvider, new: InventoryRecord) -> tuple[InventoryRecord, ...]:
    found = {record.resource_class: record.definition() for record in one.records}
    return tuple((found | {new.resource_class: new}).values())


def check_plain(one: ListedProvider, touched: set[str]) -> None:
    """Refuse to change figures that a topology or devices stand for."""
    for kind in one.kinds:
        if not touched.isdisjoint(kind.classes):
            raise errors.conflict(
                f"The inventory of {', '.join(kind.classes)} on resource provider '{one.uuid}' is "
                f"that of {kind.resource_class}, which this API cannot say."
            )


def _given(asked: Asked, schema: schemas.Schema) -> Any:
    """Return the body of a write; that there is no such provider is told before what is wrong."""
    asked.takes_json()
    kept.provider(asked.ledger, asked.path["uuid"])
    return asked.body(schema)


def _change(asked: Asked, edit: Edit) -> tuple[dict[str, InventoryRecord], int]:
    """Write inventories; return them by class, and the generation that the write made."""
    changed = _write(asked, edit)
    assert changed.update is not None, "inventories are written, also as they were"
    made = {one.resource_class: one for one in changed.update.definition.inventories}
    return made, changed.generation(asked.ledger)


def _write(asked: Asked, edit: Edit, conflict: str = _CONFLICT) -> kept.Changed:
    """Write inventories.

    :param conflict: how the text of the refusal to remove an inventory in use begins
    """
    uuid = asked.path["uuid"]
    try:
        return kept.change(asked.ledger, uuid, edit)
    except InUse as error:
        # of one that is deleted Placement says concurrent_update: clients then try again for ever
        raise in_use(uuid, [error.detail], conflict) from error
    except InvalidInput as error:
        raise errors.bad(f"Unable to update inventory for resource provider {uuid}: {error}") from (
            error
        )


def _check_unused(uuid: str, gone: Iterable[InventoryRecord], conflict: str) -> None:
    used = [one.resource_class for one in gone if one.used]
    if used:
        raise in_use(uuid, used, conflict)


def in_use(uuid: str, used: Iterable[str], conflict: str = _CONFLICT) -> errors.Refused:
    """Return the refusal to remove the inventories of some classes.

    :param conflict: how its text begins
    """
    return errors.conflict(
        f"{conflict}Inventory for '{', '.join(used)}' on resource provider '{uuid}' in use.",
        errors.INVENTORY_IN_USE,
    )


def _reply_all(asked: Asked, records: Iterable[InventoryRecord], generation: int) -> webob.Response:
    return asked.reply(
        json={
            "resource_provider_generation": generation,
            "inventories": {one.resource_class: told(one) for one in records},
        }
    )


def _reply_one(asked: Asked, found: InventoryRecord, generation: int) -> webob.Response:
    return asked.reply(json=told(found) | {"resource_provider_generation": generation})


ROUTES = (
    (
        "/resource_providers/{uuid}/inventories",
        {
            "GET": (_RULE + "list", list_all),
            "PUT": (_RULE + "update", put_all),
            "POST": (_RULE + "create", create),
            "DELETE": (_RULE + "delete", delete_all),
        },
    ),
    (
        "/resource_providers/{uuid}/inventories/{name}",
        {
            "GET": (_RULE + "show", show),
            "PUT": (_RULE + "update", put_one),
            "DELETE": (_RULE + "delete", delete_one),
        },
    ),
)
