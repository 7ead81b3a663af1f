"""``/allocations``, and the allocations of a provider."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

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
    Write,
    subject_of,
)
from resource_objects.reasons import Rule, sentences
from resource_objects.resources.records import InventoryRecord
from resource_objects.rest import errors, kept, schemas
from resource_objects.rest.asked import Asked, is_uuid, uuid_text
from resource_objects.rest.native import api as native

_RULE = "placement:allocations:"


# --- reading ---


def show(asked: Asked) -> webob.Response:
    """What a consumer holds; of one that nobody knows: nothing."""
    asked.tells_json()
    uuid = asked.path["uuid"]
    found = asked.ledger.backend.held(uuid_text(uuid)) if is_uuid(uuid) else None
    if found is None:
        return asked.reply(json={"allocations": {}})
    listed = kept.by_uuid(asked.ledger, {use.provider_uuid for use in found.held})
    allocations: dict[str, Any] = {}
    for use in found.held:
        one = listed.get(use.provider_uuid)
        generation = 0 if one is None else kept.generation(one)
        told = allocations.setdefault(
            use.provider_uuid, {"generation": generation, "resources": {}}
        )
        told["resources"][use.resource_class] = use.amount
    body: dict[str, Any] = {"allocations": allocations}
    if asked.since(12):
        body |= {
            "project_id": found.project or kept.INCOMPLETE,
            "user_id": found.user or kept.INCOMPLETE,
        }
    if asked.since(28):
        body["consumer_generation"] = kept.consumer_generation(found)
    if asked.since(38):
        body["consumer_type"] = found.consumer_type or kept.UNKNOWN_TYPE
    return asked.reply(json=body, modified=found.created_at)


def of_provider(asked: Asked) -> webob.Response:
    asked.tells_json()
    missing = f"Resource provider '{{uuid}}' not found: {kept.NOT_FOUND}"
    one = kept.provider(asked.ledger, asked.path["uuid"], missing)
    allocations: dict[str, Any] = {}
    for record in _holders(asked, one.uuid):
        here = [use for use in record.held if use.provider_uuid == one.uuid]
        told: dict[str, Any] = {"resources": {use.resource_class: use.amount for use in here}}
        if asked.since(28):
            told["consumer_generation"] = kept.consumer_generation(record)
        # whoever comes again has another claim, and the same name
        allocations[record.consumer if names.is_uuid(record.consumer) else record.uuid] = told
    body = {"resource_provider_generation": kept.generation(one), "allocations": allocations}
    return asked.reply(json=body)


def _holders(asked: Asked, provider: str) -> Iterator[ConsumerRecord]:
    read = partial(asked.ledger.backend.list_consumers, ConsumerFilter(provider=provider))
    for page in pages_of(read, lambda one: one.consumer, 1000):
        yield from page


# --- writing ---


def put(asked: Asked) -> webob.Response:
    """Let a consumer hold this and nothing else."""
    given = asked.body(schemas.allocations(asked.version.minor, put=True))
    consumer = _consumer(asked.path["uuid"])
    write(asked, {consumer: given}, f"Unable to allocate inventory for consumer {consumer}:")
    return asked.reply(204, cached=False)


def post(asked: Asked) -> webob.Response:
    """Let several consumers hold this and nothing else, all of them or none."""
    asked.needs(13)
    given = asked.body(schemas.many_allocations(asked.version.minor))
    consumers = {_consumer(uuid): one for uuid, one in given.items()}
    write(asked, consumers, "Unable to allocate inventory")
    return asked.reply(204, cached=False)


def delete(asked: Asked) -> webob.Response:
    uuid = asked.path["uuid"]
    missing = errors.not_found(f"No allocations for consumer '{uuid}'")
    if not is_uuid(uuid):
        raise missing
    try:
        order = ConsumerOrder.release(uuid_text(uuid))
        asked.ledger.backend.commit(
            Write(kept.operation(asked.ledger), "release", order.consumer, orders=(order,))
        )
    except exceptions.NotFound as error:
        raise missing from error
    return asked.reply(204, cached=False)


def write(
    asked: Asked,
    given: Mapping[str, Mapping[str, Any]],
    unknown_class: str,
    definitions: DefinitionChanges | None = None,
) -> None:
    """Let consumers hold what is said, in one write, with changes of definitions.

    Where no generation of a consumer is said (before 1.28) it is tried again if somebody was
    faster.

    :param unknown_class: how the text of the error about an unknown resource class begins
    """
    if definitions is None and _are_new(asked, given) and _is_claimed(asked, given):
        return
    updates = () if definitions is None else definitions.updates
    new = {update.definition.uuid: update.definition.inventories for update in updates}

    def attempt() -> None:
        orders = tuple(_orders(asked, given, new, unknown_class))
        if not orders and definitions is None:
            return
        if definitions is not None:
            subject = definitions.root
            doing = Write(kept.operation(asked.ledger), "reshape", subject, definitions, orders)
        else:
            subject = subject_of(order.consumer for order in orders)
            doing = Write(kept.operation(asked.ledger), "replace", subject, orders=orders)
        asked.ledger.backend.commit(doing)

    faster = () if asked.since(28) else ("StaleConsumer", "ConsumerExists")
    try:
        asked.ledger.retries.retry(attempt, *faster)
    except exceptions.CapacityException as error:
        places = kept.by_uuid(asked.ledger, {u.provider_uuid for u in _all_uses(given)})
        uuids = {one.name: one.uuid for one in places.values()}
        raise native.with_reasons(asked, _refused(error, uuids), error) from error
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


def _are_new(asked: Asked, given: Mapping[str, Mapping[str, Any]]) -> bool:
    if not given or not asked.since(28):
        return False
    return all(one["consumer_generation"] is None and one["allocations"] for one in given.values())


def _is_claimed(asked: Asked, given: Mapping[str, Mapping[str, Any]]) -> bool:
    """Let consumers hold their first allocations, or return False if that is refused.

    Nothing is looked up before: what the ledger allows to whom it does not know, Placement allows.
    Why it is refused in Placement's words is found by looking, as for all others.
    """
    try:
        orders = tuple(
            _order(consumer, one, _uses(one["allocations"]), None)
            for consumer, one in given.items()
        )
        if any(use.amount > schemas.MOST for order in orders for use in order.uses):
            return False  # a ledger may have so much
        asked.ledger.backend.commit(
            Write(kept.operation(asked.ledger), "replace", subject_of(given), orders=orders)
        )
    except (
        exceptions.CapacityException,
        exceptions.AlreadyExists,
        exceptions.InvalidInput,
        exceptions.NotFound,
    ) as error:
        if not error.matches(
            *(exceptions.CapacityException, "ConsumerExists"),
            *(exceptions.InvalidInput, "ProviderNotFound"),
        ):
            raise
        return False
    return True


def _orders(
    asked: Asked,
    given: Mapping[str, Mapping[str, Any]],
    new: Mapping[str, Iterable[InventoryRecord]],
    unknown_class: str,
) -> Iterator[ConsumerOrder]:
    """Yield what each consumer shall hold, as orders; of one that shall hold nothing a release.

    :param new: inventories that providers get in the same write
    :param unknown_class: how the text of the error about an unknown resource class begins
    """
    held = asked.ledger.backend.held_by(given)
    check_consumers(asked, given, held)
    wanted = {consumer: _uses(one["allocations"]) for consumer, one in given.items()}
    _check_places(asked, _all_uses(given), new, unknown_class)
    for consumer, one in given.items():
        kept_now = held.get(consumer)
        if not wanted[consumer]:
            if kept_now is not None:
                released = ConsumerOrder.release(consumer, kept_now.generation)
                yield dataclasses.replace(released, counted=True)
            continue
        yield _order(consumer, one, wanted[consumer], kept_now)


def _order(
    consumer: str, given: Mapping[str, Any], uses: Iterable[Use], now: ConsumerRecord | None
) -> ConsumerOrder:
    """Return the order that lets a consumer hold something and nothing else.

    :param now: what it holds
    """
    return ConsumerOrder(
        consumer,
        Expect.ABSENT if now is None else now.generation,
        Mode.SET,
        tuple(uses) if now is None else _with_units(tuple(uses), now),
        request=None if now is None else now.request,
        project=given.get("project_id", kept.INCOMPLETE),
        user=given.get("user_id", kept.INCOMPLETE),
        consumer_type=given.get("consumer_type"),
    )


def check_consumers(
    asked: Asked, given: Mapping[str, Mapping[str, Any]], held: Mapping[str, ConsumerRecord]
) -> None:
    """Refuse generations of consumers that these are not at."""
    if asked.since(28):
        for consumer, one in given.items():
            _check_generation(one["consumer_generation"], held.get(consumer))


def _check_generation(given: int | None, now: ConsumerRecord | None) -> None:
    is_at = kept.consumer_generation(now)
    if given != is_at:
        expected = "null" if is_at is None else is_at
        raise errors.conflict(
            f"consumer generation conflict - expected {expected} but got {given}",
            errors.CONCURRENT_UPDATE,
        )


def _uses(given: Any) -> list[Use]:
    """Return what is to be held, of either form of a body.

    What no inventory gives at once is as good as the least such amount.
    """
    pairs = (
        ((one["resource_provider"]["uuid"], one["resources"]) for one in given)
        if isinstance(given, list)
        else ((uuid, one["resources"]) for uuid, one in given.items())
    )
    last = {uuid_text(uuid): resources for uuid, resources in pairs}  # as in Placement
    return [
        Use(uuid, name, min(int(amount), schemas.MOST + 1))
        for uuid, resources in last.items()
        for name, amount in resources.items()
    ]


def _all_uses(given: Mapping[str, Mapping[str, Any]]) -> list[Use]:
    return [use for one in given.values() for use in _uses(one["allocations"])]


def _with_units(uses: tuple[Use, ...], now: ConsumerRecord) -> tuple[Use, ...]:
    had = {use.key: use for use in now.held if use.units}
    return tuple(
        had[use.key] if use.key in had and had[use.key].amount == use.amount else use
        for use in uses
    )


def _check_places(
    asked: Asked,
    uses: list[Use],
    new: Mapping[str, Iterable[InventoryRecord]],
    unknown_class: str,
) -> None:
    """Refuse what is of no resource class or provider, or against unit rules.

    Placement's unit rules bind what is held already, too; the ledger's only what grows.
    """
    places = {use.provider_uuid for use in uses}
    there = kept.by_uuid(asked.ledger, places)
    for uuid in sorted(places - there.keys()):
        raise errors.bad(f"Allocation for resource provider '{uuid}' that does not exist.")
    unknown = kept.unknown_classes(asked.ledger, [use.resource_class for use in uses])
    if unknown:
        raise errors.bad(f"{unknown_class} No such resource class {unknown[0]}.")
    records = {
        (uuid, record.resource_class): record
        for uuid, one in there.items()
        for record in new.get(uuid, one.records)
    }
    for use in uses:
        record = records.get(use.key)
        if record is not None and not _keeps_rules(use.amount, record):
            raise errors.conflict(
                f"Unable to allocate inventory: Unable to create allocation for "
                f"'{use.resource_class}' on resource provider '{use.provider_uuid}'. The requested "
                "amount would violate inventory constraints."
            )


def _keeps_rules(amount: int, record: InventoryRecord) -> bool:
    most = schemas.MOST if record.max_unit is None else record.max_unit
    return record.min_unit <= amount <= most and amount % record.step_size == 0


def _refused(error: exceptions.CapacityException, uuids: Mapping[str, str]) -> errors.Refused:
    """Return the refusal of allocations: Placement's text, followed by the reasons of the ledger.

    :param uuids: of providers by name
    """
    reasons = "; ".join(sentences(error.reasons)) or str(error)
    names = sorted({str(reason.where) for reason in error.reasons})
    where = ", ".join(uuids.get(name, name) for name in names)
    classes = ", ".join(sorted({str(reason.resource) for reason in error.reasons}))
    cannot = "Unable to allocate inventory:"
    of_class = f"'{classes}' on resource provider '{where}'"
    if error.code == "InventoryNotFound":
        return errors.conflict(f"{cannot} Inventory for {of_class} invalid. {reasons}")
    cannot += f" Unable to create allocation for {of_class}."
    if error.code == "UnitRuleViolated":
        cannot += " The requested amount would violate inventory constraints."
    elif any(reason.rule is Rule.CAPACITY for reason in error.reasons):
        cannot += " The requested amount would exceed the capacity."
    return errors.conflict(f"{cannot} {reasons}")


def _consumer(text: str) -> str:
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
