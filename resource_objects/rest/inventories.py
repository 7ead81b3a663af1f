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
from resource_objects.rest import errors, schemas, translation
from resource_objects.rest.request import ClientRequest

_RULE = "placement:resource_providers:inventories:"
_NOT_FOUND = f"{translation.NOT_FOUND} : {translation.NOT_FOUND}"

#: The beginning of the refusal of a changed set of inventories.
_CONFLICT = "update conflict: "

Edit: TypeAlias = Callable[[ListedProvider], ProviderUpdate]


def list_all(request: ClientRequest) -> webob.Response:
    request.require_json_accepted()
    provider = translation.get_provider(request.ledger, request.path["uuid"], _NOT_FOUND)
    return _reply_all(request, provider.records, translation.generation(provider))


def show(request: ClientRequest) -> webob.Response:
    request.require_json_accepted()
    uuid, name = request.path["uuid"], request.path["name"]
    provider = translation.get_provider(request.ledger, uuid, _NOT_FOUND)
    record = _record_of(provider, name)
    if record is None:
        raise errors.not_found(f"No inventory of class {name} for {uuid}")
    return _reply_one(request, record, translation.generation(provider))


def put_all(request: ClientRequest) -> webob.Response:
    uuid = request.path["uuid"]
    body = _body(request, schemas.PUT_INVENTORIES)
    inventories = body["inventories"]

    def edit(provider: ListedProvider) -> ProviderUpdate:
        translation.check_generation(provider, body["resource_provider_generation"])
        unknown = translation.unknown_classes(request.ledger, inventories)
        if unknown:
            raise errors.bad(
                f"Unknown resource class in inventory for resource provider {uuid}: "
                f"No such resource class {unknown[0]}."
            )
        context = f"Unable to update inventory for resource provider {uuid}"
        for name, figures in inventories.items():
            _check_capacity(request, name, figures, uuid, context)
        removed = [r for r in provider.records if r.resource_class not in inventories]
        _check_unused(uuid, removed, _CONFLICT)
        records = tuple(
            to_record(name, figures, uuid, context) for name, figures in inventories.items()
        )
        check_plain(provider, {*inventories, *(r.resource_class for r in provider.records)})
        return translation.updated(provider, inventories=records)

    records, generation = _change(request, edit)
    return _reply_all(request, records.values(), generation)


def put_one(request: ClientRequest) -> webob.Response:
    uuid, name = request.path["uuid"], request.path["name"]
    body = _body(request, schemas.PUT_INVENTORY)

    def edit(provider: ListedProvider) -> ProviderUpdate:
        translation.check_generation(provider, body["resource_provider_generation"])
        context = f"Unable to update inventory for resource provider {uuid}"
        _check_capacity(request, name, body, uuid, context)
        if translation.unknown_classes(request.ledger, [name]):
            raise errors.not_found(f"No such resource class {name}.")
        if _record_of(provider, name) is None:
            raise errors.bad(
                f"No inventory record with resource class for resource provider {uuid}: "
                f"No inventory of class {name} found."
            )
        check_plain(provider, {name})
        record = to_record(name, body, uuid, context)
        return translation.updated(provider, inventories=_with_record(provider, record))

    records, generation = _change(request, edit)
    return _reply_one(request, records[name], generation)


def create(request: ClientRequest) -> webob.Response:
    """Add an inventory. A generation in the body is accepted and ignored, as in Placement."""
    uuid = request.path["uuid"]
    body = _body(request, schemas.POST_INVENTORY)
    name = body["resource_class"]

    def edit(provider: ListedProvider) -> ProviderUpdate:
        context = f"Unable to create inventory for resource provider {uuid}"
        if translation.unknown_classes(request.ledger, [name]):
            raise errors.bad(f"{context}: No such resource class {name}.")
        _check_capacity(request, name, body, uuid, context)
        if _record_of(provider, name) is not None:
            raise errors.conflict(
                f"Update conflict: there is an inventory of {name} already",
                errors.CONCURRENT_UPDATE,
            )
        check_plain(provider, {name})
        record = to_record(name, body, uuid, context)
        return translation.updated(provider, inventories=_with_record(provider, record))

    records, generation = _change(request, edit)
    response = _reply_one(request, records[name], generation)
    response.status = 201
    response.location = request.url(f"/resource_providers/{uuid}/inventories/{name}")
    return response


def delete_one(request: ClientRequest) -> webob.Response:
    name = request.path["name"]

    def edit(provider: ListedProvider) -> ProviderUpdate:
        if _record_of(provider, name) is None:
            missing = f"No inventory of class {name} found for delete"
            is_unknown = translation.unknown_classes(request.ledger, [name])
            cause = f"No such resource class {name}." if is_unknown else missing
            raise errors.not_found(f"{missing}: {cause}")
        check_plain(provider, {name})
        others = (r.definition() for r in provider.records if r.resource_class != name)
        return translation.updated(provider, inventories=tuple(others))

    _write(request, edit, f"Unable to delete inventory of class {name}: ")
    return request.reply(204, cached=False)


def delete_all(request: ClientRequest) -> webob.Response:
    if not request.since(5):
        raise errors.Refused(
            405,
            "",  # the sentence that WebOb puts before the detail is the whole text
            headers={"Allow": "GET, PUT, POST"},
        )
    uuid = request.path["uuid"]

    def edit(provider: ListedProvider) -> ProviderUpdate:
        _check_unused(uuid, provider.records, "")
        check_plain(provider, {record.resource_class for record in provider.records})
        return translation.updated(provider, inventories=())

    _write(request, edit, "")
    return request.reply(204, cached=False)


# --- checks and records ---


def _check_capacity(
    request: ClientRequest, name: str, figures: Mapping[str, Any], uuid: str, context: str
) -> None:
    """Raise a 400 for figures without capacity, which Placement rounds towards zero.

    Placement compares them before it looks for the class and for an existing inventory.
    """
    try:
        capacity = int(
            (figures["total"] - figures.get("reserved", 0)) * figures.get("allocation_ratio", 1)
        )
    except (ValueError, OverflowError):  # the ratio is not a number; to_record rejects it
        return
    if capacity < 0 or (capacity == 0 and not request.since(26)):
        bound = "greater than total" if request.since(26) else "greater than or equal to total"
        raise _invalid_reserved(name, uuid, context, bound)


def _invalid_reserved(name: str, uuid: str, context: str, bound: str) -> errors.Refused:
    return errors.bad(
        f"{context}: Invalid inventory for '{name}' on resource provider '{uuid}'. "
        f"The reserved value is {bound}."
    )


def to_record(name: str, figures: Mapping[str, Any], uuid: str, context: str) -> InventoryRecord:
    """Return figures as a record. Raise a 400 for figures that the ledger rejects.

    Placement accepts some of them (:doc:`/explanation/placement_api`).

    :param context: the beginning of the message
    """
    total, reserved = int(figures["total"]), int(figures.get("reserved", 0))
    min_unit = int(figures.get("min_unit", 1))
    max_unit = int(figures.get("max_unit", schemas.MAX_INTEGER))
    try:
        millionths = ratio.to_millionths(
            ratio.ratio_from_float_column(figures.get("allocation_ratio", 1))
        )
    except InvalidInput as error:
        raise errors.bad(f"{context}: {error}") from error
    if reserved > total:
        raise _invalid_reserved(name, uuid, context, "greater than total")
    if max_unit > total:
        max_unit = schemas.MAX_INTEGER
    if min_unit > max_unit:
        raise errors.bad(f"{context}: the max_unit of {name} is less than its min_unit.")
    return InventoryRecord(
        name,
        total,
        reserved,
        min_unit,
        None if max_unit == schemas.MAX_INTEGER else max_unit,
        int(figures.get("step_size", 1)),
        millionths,
        (total - reserved) * millionths // ratio.MILLION,
    )


def to_json(record: InventoryRecord) -> dict[str, Any]:
    """Return a record as Placement's figures."""
    return {
        "total": record.total,
        "reserved": record.reserved,
        "min_unit": record.min_unit,
        "max_unit": schemas.MAX_INTEGER if record.max_unit is None else record.max_unit,
        "step_size": record.step_size,
        "allocation_ratio": record.ratio_millionths / ratio.MILLION,
    }


def _record_of(provider: ListedProvider, name: str) -> InventoryRecord | None:
    return next((record for record in provider.records if record.resource_class == name), None)


def _with_record(provider: ListedProvider, new: InventoryRecord) -> tuple[InventoryRecord, ...]:
    by_class = {record.resource_class: record.definition() for record in provider.records}
    return tuple((by_class | {new.resource_class: new}).values())


def check_plain(provider: ListedProvider, classes: set[str]) -> None:
    """Raise a 409 for a change of classes that belong to a NUMA topology or to devices."""
    for kind in provider.kinds:
        if not classes.isdisjoint(kind.classes):
            raise errors.conflict(
                f"The inventory of {', '.join(kind.classes)} on resource provider "
                f"'{provider.uuid}' is that of {kind.resource_class}, which this API cannot say."
            )


def _body(request: ClientRequest, schema: schemas.Schema) -> Any:
    """Return the body of a write. An unknown provider is reported before an invalid body."""
    request.require_json_body()
    translation.get_provider(request.ledger, request.path["uuid"])
    return request.body(schema)


def _change(request: ClientRequest, edit: Edit) -> tuple[dict[str, InventoryRecord], int]:
    """Write inventories; return them by class, and the generation after the write."""
    change = _write(request, edit)
    assert change.update is not None, "unchanged inventories are written too"
    records = {record.resource_class: record for record in change.update.definition.inventories}
    return records, change.generation(request.ledger)


def _write(
    request: ClientRequest, edit: Edit, prefix: str = _CONFLICT
) -> translation.ProviderChange:
    """Write inventories.

    :param prefix: the beginning of the refusal to remove an inventory in use
    """
    uuid = request.path["uuid"]
    try:
        return translation.change_provider(request.ledger, uuid, edit)
    except InUse as error:
        # Placement's code for a deletion is concurrent_update, which clients repeat without end
        raise in_use(uuid, [error.detail], prefix) from error
    except InvalidInput as error:
        raise errors.bad(f"Unable to update inventory for resource provider {uuid}: {error}") from (
            error
        )


def _check_unused(uuid: str, removed: Iterable[InventoryRecord], prefix: str) -> None:
    used = [record.resource_class for record in removed if record.used]
    if used:
        raise in_use(uuid, used, prefix)


def in_use(uuid: str, classes: Iterable[str], prefix: str = _CONFLICT) -> errors.Refused:
    """Return the refusal to remove inventories that have allocations.

    :param prefix: the beginning of the text
    """
    return errors.conflict(
        f"{prefix}Inventory for '{', '.join(classes)}' on resource provider '{uuid}' in use.",
        errors.INVENTORY_IN_USE,
    )


def _reply_all(
    request: ClientRequest, records: Iterable[InventoryRecord], generation: int
) -> webob.Response:
    return request.reply(
        json={
            "resource_provider_generation": generation,
            "inventories": {record.resource_class: to_json(record) for record in records},
        }
    )


def _reply_one(request: ClientRequest, record: InventoryRecord, generation: int) -> webob.Response:
    return request.reply(json=to_json(record) | {"resource_provider_generation": generation})


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
