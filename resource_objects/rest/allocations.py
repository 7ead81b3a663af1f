"""``/allocations``, and the allocations of a provider."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias

import webob

from resource_objects import exceptions, names
from resource_objects.ledger.context import pages_of
from resource_objects.providers.definition import DefinitionChanges
from resource_objects.providers.listing import ConsumerFilter
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    Expect,
    Mode,
    Use,
    subject_of,
)
from resource_objects.reasons import Rule, sentences
from resource_objects.resources.records import InventoryRecord
from resource_objects.rest import errors, schemas, translation
from resource_objects.rest.native import api as native
from resource_objects.rest.request import ClientRequest, is_uuid, uuid_text

_RULE = "placement:allocations:"
#: The number of consumers that are read at once.
_PAGE = 1000

#: The requested allocations by consumer: values of a body.
Bodies: TypeAlias = Mapping[str, Mapping[str, Any]]


# --- reading ---


def show(request: ClientRequest) -> webob.Response:
    """Return the allocations of a consumer; none for an unknown consumer."""
    request.require_json_accepted()
    uuid = request.path["uuid"]
    consumer = request.ledger.backend.consumer(uuid_text(uuid)) if is_uuid(uuid) else None
    if consumer is None:
        return request.reply(json={"allocations": {}})
    uuids = {use.provider_uuid for use in consumer.held}
    providers = translation.providers_by_uuid(request.ledger, uuids)
    allocations: dict[str, Any] = {}
    for use in consumer.held:
        provider = providers.get(use.provider_uuid)
        generation = 0 if provider is None else translation.generation(provider)
        empty = {"generation": generation, "resources": {}}
        resources = allocations.setdefault(use.provider_uuid, empty)["resources"]
        resources[use.resource_class] = use.amount
    body: dict[str, Any] = {"allocations": allocations}
    if request.since(12):
        body["project_id"] = consumer.project or translation.INCOMPLETE
        body["user_id"] = consumer.user or translation.INCOMPLETE
    if request.since(28):
        body["consumer_generation"] = translation.consumer_generation(consumer)
    if request.since(38):
        body["consumer_type"] = consumer.consumer_type or translation.UNKNOWN_TYPE
    return request.reply(json=body, modified=consumer.created_at)


def of_provider(request: ClientRequest) -> webob.Response:
    request.require_json_accepted()
    message = f"Resource provider '{{uuid}}' not found: {translation.NOT_FOUND}"
    provider = translation.get_provider(request.ledger, request.path["uuid"], message)
    conditions = ConsumerFilter(provider=provider.uuid)
    read = partial(request.ledger.backend.list_consumers, conditions)
    allocations: dict[str, Any] = {}
    for page in pages_of(read, attrgetter("consumer"), _PAGE):
        for consumer in page:
            uses = [use for use in consumer.held if use.provider_uuid == provider.uuid]
            of_consumer: dict[str, Any] = {
                "resources": {use.resource_class: use.amount for use in uses}
            }
            if request.since(28):
                of_consumer["consumer_generation"] = translation.consumer_generation(consumer)
            # a consumer that is created again has another uuid under the same name
            is_uuid_name = names.is_uuid(consumer.consumer)
            allocations[consumer.consumer if is_uuid_name else consumer.uuid] = of_consumer
    generation = translation.generation(provider)
    return request.reply(
        json={"resource_provider_generation": generation, "allocations": allocations}
    )


# --- writing ---


def put(request: ClientRequest) -> webob.Response:
    """Replace the allocations of a consumer."""
    body = request.body(schemas.allocations(request.version.minor, put=True))
    consumer = _consumer_uuid(request.path["uuid"])
    write(request, {consumer: body}, f"Unable to allocate inventory for consumer {consumer}:")
    return request.reply(204, cached=False)


def post(request: ClientRequest) -> webob.Response:
    """Replace the allocations of several consumers, of all of them or of none."""
    request.require_version(13)
    body = request.body(schemas.many_allocations(request.version.minor))
    bodies = {_consumer_uuid(uuid): of_consumer for uuid, of_consumer in body.items()}
    write(request, bodies, "Unable to allocate inventory")
    return request.reply(204, cached=False)


def delete(request: ClientRequest) -> webob.Response:
    uuid = request.path["uuid"]
    missing = errors.not_found(f"No allocations for consumer '{uuid}'")
    if not is_uuid(uuid):
        raise missing
    order = ConsumerOrder.release(uuid_text(uuid))
    try:
        translation.commit(request.ledger, "release", order.consumer, orders=(order,))
    except exceptions.NotFound as error:
        raise missing from error
    return request.reply(204, cached=False)


def write(
    request: ClientRequest,
    bodies: Bodies,
    unknown_class: str,
    definitions: DefinitionChanges | None = None,
) -> None:
    """Replace the allocations of consumers in one write, with changes of definitions.

    Bodies without consumer generations (before 1.28) are written again after a concurrent write.

    :param unknown_class: the beginning of the message about an unknown resource class
    """
    if definitions is None and _are_new(request, bodies) and _claim_new(request, bodies):
        return
    updates = () if definitions is None else definitions.updates
    new_records = {update.definition.uuid: update.definition.inventories for update in updates}

    def attempt() -> None:
        orders = tuple(_orders(request, bodies, new_records, unknown_class))
        if not orders and definitions is None:
            return
        if definitions is not None:
            kind, subject = "reshape", definitions.root
        else:
            kind, subject = "replace", subject_of(order.consumer for order in orders)
        translation.commit(request.ledger, kind, subject, definitions, orders)

    repeated = () if request.since(28) else ("StaleConsumer", "ConsumerExists")
    try:
        request.ledger.retries.retry(attempt, *repeated)
    except exceptions.CapacityException as error:
        keys = {u.provider_uuid for body in bodies.values() for u in _uses(body["allocations"])}
        providers = translation.providers_by_uuid(request.ledger, keys)
        uuids = {provider.name: provider.uuid for provider in providers.values()}
        raise native.with_reasons(request, _refused(error, uuids), error) from error
    except exceptions.LedgerError as error:
        if error.matches("StaleConsumer", "ConsumerExists"):
            text = f"consumer generation conflict - {error}"
            raise errors.conflict(text, errors.CONCURRENT_UPDATE) from error
        if not error.matches("ProviderNotFound"):
            raise
        raise errors.bad(
            f"Allocation for resource provider '{error.name}' that does not exist."
        ) from error
    except exceptions.InvalidInput as error:
        raise errors.bad(f"Unable to allocate inventory: {error}") from error


def _are_new(request: ClientRequest, bodies: Bodies) -> bool:
    """Return True if all consumers are expected to have no allocations, and get some."""
    if not bodies or not request.since(28):
        return False
    return all(
        body["consumer_generation"] is None and body["allocations"] for body in bodies.values()
    )


def _claim_new(request: ClientRequest, bodies: Bodies) -> bool:
    """Claim for new consumers without reading first; return False if the ledger refuses.

    A claim that the ledger accepts for new consumers is valid in Placement too. The reason of a
    refusal, in Placement's words, is found by the other path.
    """
    try:
        orders = tuple(
            _order(consumer, body, _uses(body["allocations"]), None)
            for consumer, body in bodies.items()
        )
        if any(use.amount > schemas.MAX_INTEGER for order in orders for use in order.uses):
            return False  # the ledger's inventories may be larger
        translation.commit(request.ledger, "replace", subject_of(bodies), orders=orders)
    except exceptions.ResourceObjectsError as error:
        if error.matches(
            *(exceptions.CapacityException, exceptions.InvalidInput),
            *("ConsumerExists", "ProviderNotFound"),
        ):
            return False
        raise
    return True


def _orders(
    request: ClientRequest,
    bodies: Bodies,
    new_records: Mapping[str, Iterable[InventoryRecord]],
    unknown_class: str,
) -> Iterator[ConsumerOrder]:
    """Yield an order for each consumer: a replacement, or a release if it gets no allocations.

    :param new_records: inventories that providers get in the same write
    :param unknown_class: the beginning of the message about an unknown resource class
    """
    consumers = request.ledger.backend.held_by(bodies)
    check_consumers(request, bodies, consumers)
    uses_by_consumer = {name: _uses(body["allocations"]) for name, body in bodies.items()}
    all_uses = [use for uses in uses_by_consumer.values() for use in uses]
    _check_providers(request, all_uses, new_records, unknown_class)
    for name, body in bodies.items():
        current = consumers.get(name)
        if uses_by_consumer[name]:
            yield _order(name, body, uses_by_consumer[name], current)
        elif current is not None:
            release = ConsumerOrder.release(name, current.generation)
            yield dataclasses.replace(release, counted=True)


def _order(
    consumer: str, body: Mapping[str, Any], uses: Iterable[Use], current: ConsumerRecord | None
) -> ConsumerOrder:
    """Return the order that replaces a consumer's present allocations."""
    return ConsumerOrder(
        consumer,
        Expect.ABSENT if current is None else current.generation,
        Mode.SET,
        tuple(uses) if current is None else _with_units(tuple(uses), current),
        request=None if current is None else current.request,
        project=body.get("project_id", translation.INCOMPLETE),
        user=body.get("user_id", translation.INCOMPLETE),
        consumer_type=body.get("consumer_type"),
    )


def check_consumers(
    request: ClientRequest, bodies: Bodies, consumers: Mapping[str, ConsumerRecord]
) -> None:
    """Raise a 409 if a consumer is not at the generation in its body."""
    if not request.since(28):
        return
    for name, body in bodies.items():
        requested = body["consumer_generation"]
        actual = translation.consumer_generation(consumers.get(name))
        if requested != actual:
            expected = "null" if actual is None else actual
            raise errors.conflict(
                f"consumer generation conflict - expected {expected} but got {requested}",
                errors.CONCURRENT_UPDATE,
            )


def _uses(allocations: Any) -> list[Use]:
    """Return the allocations of a body in either form.

    An amount that no inventory can provide is replaced by the least such amount.
    """
    pairs = (
        ((entry["resource_provider"]["uuid"], entry["resources"]) for entry in allocations)
        if isinstance(allocations, list)
        else ((uuid, entry["resources"]) for uuid, entry in allocations.items())
    )
    resources_by_uuid = {uuid_text(uuid): resources for uuid, resources in pairs}  # the last wins
    return [
        Use(uuid, name, min(int(amount), schemas.MAX_INTEGER + 1))
        for uuid, resources in resources_by_uuid.items()
        for name, amount in resources.items()
    ]


def _with_units(uses: tuple[Use, ...], consumer: ConsumerRecord) -> tuple[Use, ...]:
    """Return uses with the units of the consumer's present uses of the same amount."""
    current = {use.key: use for use in consumer.held if use.units}
    return tuple(
        current[use.key] if use.key in current and current[use.key].amount == use.amount else use
        for use in uses
    )


def _check_providers(
    request: ClientRequest,
    uses: list[Use],
    new_records: Mapping[str, Iterable[InventoryRecord]],
    unknown_class: str,
) -> None:
    """Raise an error for an unknown provider or resource class, or a violated unit rule.

    Placement's unit rules bind existing allocations too; the ledger's only increases.
    """
    uuids = {use.provider_uuid for use in uses}
    providers = translation.providers_by_uuid(request.ledger, uuids)
    for uuid in sorted(uuids - providers.keys()):
        raise errors.bad(f"Allocation for resource provider '{uuid}' that does not exist.")
    unknown = translation.unknown_classes(request.ledger, [use.resource_class for use in uses])
    if unknown:
        raise errors.bad(f"{unknown_class} No such resource class {unknown[0]}.")
    records = {
        (uuid, record.resource_class): record
        for uuid, provider in providers.items()
        for record in new_records.get(uuid, provider.records)
    }
    for use in uses:
        record = records.get(use.key)
        if record is None:
            continue
        max_unit = schemas.MAX_INTEGER if record.max_unit is None else record.max_unit
        if not record.min_unit <= use.amount <= max_unit or use.amount % record.step_size:
            raise errors.conflict(
                f"Unable to allocate inventory: Unable to create allocation for "
                f"'{use.resource_class}' on resource provider '{use.provider_uuid}'. The requested "
                "amount would violate inventory constraints."
            )


def _refused(error: exceptions.CapacityException, uuids: Mapping[str, str]) -> errors.Refused:
    """Return the refusal of allocations: Placement's text, followed by the ledger's reasons.

    :param uuids: of providers by name
    """
    reasons = "; ".join(sentences(error.reasons)) or str(error)
    providers = sorted({str(reason.where) for reason in error.reasons})
    provider_uuids = ", ".join(uuids.get(name, name) for name in providers)
    classes = ", ".join(sorted({str(reason.resource) for reason in error.reasons}))
    text = "Unable to allocate inventory:"
    of_class = f"'{classes}' on resource provider '{provider_uuids}'"
    if error.code == "InventoryNotFound":
        return errors.conflict(f"{text} Inventory for {of_class} invalid. {reasons}")
    text += f" Unable to create allocation for {of_class}."
    if error.code == "UnitRuleViolated":
        text += " The requested amount would violate inventory constraints."
    elif any(reason.rule is Rule.CAPACITY for reason in error.reasons):
        text += " The requested amount would exceed the capacity."
    return errors.conflict(f"{text} {reasons}")


def _consumer_uuid(text: str) -> str:
    if not is_uuid(text):
        raise errors.bad(f"Malformed consumer_uuid: {text}")
    return uuid_text(text)


ROUTES = (
    ("/allocations", {"POST": (_RULE + "manage", post)}),
    (
        "/allocations/{uuid}",
        {
            "GET": (_RULE + "list", show),
            "PUT": (_RULE + "update", put),
            "DELETE": (_RULE + "delete", delete),
        },
    ),
    (
        "/resource_providers/{uuid}/allocations",
        {"GET": ("placement:resource_providers:allocations:list", of_provider)},
    ),
)
