"""``/resource_providers/{uuid}/inventories``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import webob

from resource_objects import exceptions, ratio
from resource_objects.providers.definition import ProviderUpdate
from resource_objects.providers.listing import ListedProvider
from resource_objects.resources.records import InventoryRecord
from resource_objects.rest import errors, kept, schemas
from resource_objects.rest.asked import Asked

_RULE = "placement:resource_providers:inventories:"


def list_all(asked: Asked) -> webob.Response:
    one = kept.provider(asked.ledger, asked.path["uuid"])
    return _reply_all(asked, one.records, kept.generation(one))


def show(asked: Asked) -> webob.Response:
    uuid, name = asked.path["uuid"], asked.path["name"]
    one = kept.provider(asked.ledger, uuid)
    found = record_of(one, name)
    if found is None:
        raise errors.not_found(f"No inventory of class {name} for {uuid}")
    return _reply_one(asked, found, kept.generation(one))


def put_all(asked: Asked) -> webob.Response:
    uuid = asked.path["uuid"]
    given = asked.body(schemas.PUT_INVENTORIES)
    records: tuple[InventoryRecord, ...] = ()

    def edit(one: ListedProvider) -> ProviderUpdate:
        nonlocal records
        kept.check_generation(one, given["resource_provider_generation"])
        unknown = kept.unknown_classes(asked.ledger, given["inventories"])
        if unknown:
            raise errors.bad(
                f"Unknown resource class in inventory for resource provider {uuid}: "
                f"No such resource class {', '.join(unknown)}."
            )
        cannot = f"Unable to update inventory for resource provider {uuid}"
        records = tuple(
            record(asked, name, figures, uuid, cannot)
            for name, figures in given["inventories"].items()
        )
        check_plain(one, {*given["inventories"], *(r.resource_class for r in one.records)})
        return kept.updated(one, inventories=records)

    one = _change(asked, edit)
    return _reply_all(asked, records, kept.generation(one) + 1)


def put_one(asked: Asked) -> webob.Response:
    uuid, name = asked.path["uuid"], asked.path["name"]
    given = asked.body(schemas.PUT_INVENTORY)
    new: list[InventoryRecord] = []

    def edit(one: ListedProvider) -> ProviderUpdate:
        kept.check_generation(one, given["resource_provider_generation"])
        _check_class(asked, name)
        cannot = f"Unable to update inventory for resource provider {uuid}"
        made = record(asked, name, given, uuid, cannot)
        if record_of(one, name) is None:
            raise errors.bad(
                f"No inventory record with resource class for resource provider {uuid}: {name}"
            )
        check_plain(one, {name})
        new[:] = [made]
        return kept.updated(one, inventories=_with(one, made))

    one = _change(asked, edit)
    return _reply_one(asked, new[0], kept.generation(one) + 1)


def create(asked: Asked) -> webob.Response:
    """Add one; a generation may be said, and is not looked at."""
    uuid = asked.path["uuid"]
    given = asked.body(schemas.POST_INVENTORY)
    name = given["resource_class"]
    new: list[InventoryRecord] = []

    def edit(one: ListedProvider) -> ProviderUpdate:
        _check_class(asked, name)
        cannot = f"Unable to create inventory for resource provider {uuid}"
        new[:] = [record(asked, name, given, uuid, cannot)]
        if record_of(one, name) is not None:
            raise errors.conflict(
                f"Update conflict: there is an inventory of {name} already", errors.UNDEFINED
            )
        check_plain(one, {name})
        return kept.updated(one, inventories=_with(one, new[0]))

    one = _change(asked, edit)
    made = _reply_one(asked, new[0], kept.generation(one) + 1)
    made.status = 201
    made.location = asked.url(f"/resource_providers/{uuid}/inventories/{name}")
    return made


def delete_one(asked: Asked) -> webob.Response:
    uuid, name = asked.path["uuid"], asked.path["name"]

    def edit(one: ListedProvider) -> ProviderUpdate:
        if record_of(one, name) is None:
            raise errors.not_found(f"No inventory of class {name} found for delete")
        check_plain(one, {name})
        left = (r.definition() for r in one.records if r.resource_class != name)
        return kept.updated(one, inventories=tuple(left))

    try:
        kept.change(asked.ledger, uuid, edit)
    except exceptions.InventoryInUse as error:
        # Placement says concurrent_update here, upon which clients try again for ever
        raise _in_use(uuid, [name]) from error
    return asked.reply(204, cached=False)


def delete_all(asked: Asked) -> webob.Response:
    if not asked.since(5):
        raise errors.Refused(
            405, "The method DELETE is not allowed for this resource.", allow="GET, PUT, POST"
        )
    uuid = asked.path["uuid"]

    def edit(one: ListedProvider) -> ProviderUpdate:
        used = [record.resource_class for record in one.records if record.used]
        if used:
            raise _in_use(uuid, used)
        check_plain(one, {record.resource_class for record in one.records})
        return kept.updated(one, inventories=())

    try:
        kept.change(asked.ledger, uuid, edit)
    except exceptions.InventoryInUse as error:
        raise _in_use(uuid, [error.detail]) from error
    return asked.reply(204, cached=False)


# --- what they share ---


def record(
    asked: Asked, name: str, figures: Mapping[str, Any], uuid: str, cannot: str
) -> InventoryRecord:
    """Return figures as they are kept, or refuse what they are.

    :param cannot: how the refusal begins
    """
    total, reserved = figures["total"], figures.get("reserved", 0)
    least, most = figures.get("min_unit", 1), figures.get("max_unit", schemas.MOST)
    bound = "greater than total" if asked.since(26) else "greater than or equal to total"
    if reserved > total or (reserved == total and not asked.since(26)):
        raise errors.bad(
            f"{cannot} {uuid}: Invalid inventory for '{name}' on resource provider '{uuid}'. "
            f"The reserved value is {bound}."
        )
    try:
        millionths = ratio.to_millionths(
            ratio.ratio_from_float_column(figures.get("allocation_ratio", 1))
        )
    except exceptions.InvalidInput as error:
        raise errors.bad(f"{cannot} {uuid}: {error}") from error
    if most > total:
        most = schemas.MOST
    if least > most:
        raise errors.bad(f"{cannot} {uuid}: the max_unit of {name} is less than its min_unit.")
    return InventoryRecord(
        *(name, total, reserved, least, None if most == schemas.MOST else most),
        figures.get("step_size", 1),
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


def _check_class(asked: Asked, name: str) -> None:
    if kept.unknown_classes(asked.ledger, [name]):
        raise errors.bad(f"No such resource class {name}.")


def check_plain(one: ListedProvider, touched: set[str]) -> None:
    """Refuse to change figures that a topology or devices stand for."""
    for kind in one.kinds:
        if not touched.isdisjoint(kind.classes):
            raise errors.conflict(
                f"The inventory of {', '.join(kind.classes)} on resource provider '{one.uuid}' is "
                f"that of {kind.resource_class}, which this API cannot say."
            )


def _change(asked: Asked, edit: Any) -> ListedProvider:
    uuid = asked.path["uuid"]
    try:
        return kept.change(asked.ledger, uuid, edit)
    except exceptions.InventoryInUse as error:
        raise _in_use(uuid, [error.detail]) from error
    except exceptions.InvalidInput as error:
        raise errors.bad(f"Unable to update inventory for resource provider {uuid}: {error}") from (
            error
        )


def _in_use(uuid: str, used: Iterable[str]) -> errors.Refused:
    return errors.conflict(
        f"Inventory for '{', '.join(used)}' on resource provider '{uuid}' in use.",
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
