"""``/allocations``, and the allocations of a provider."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import webob

from resource_objects import exceptions, names
from resource_objects.exceptions import Rule
from resource_objects.providers.definition import DefinitionChanges, ProviderUpdate
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
from resource_objects.resources.records import InventoryRecord
from resource_objects.rest import errors, kept, schemas
from resource_objects.rest.asked import Asked

_RULE = "placement:allocations:"


# --- reading ---


def show(asked: Asked) -> webob.Response:
    """What a consumer holds; of one that nobody knows: nothing."""
    found = asked.ledger.backend.held(_consumer(asked.path["uuid"]))
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
    one = kept.provider(asked.ledger, asked.path["uuid"])
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
    wanted, after = ConsumerFilter(provider=provider), None
    while True:
        page = asked.ledger.backend.list_consumers(wanted, 1000, after)
        yield from page
        if len(page) < 1000:
            return
        after = page[-1].consumer


# --- writing ---


def put(asked: Asked) -> webob.Response:
    """Let a consumer hold this and nothing else."""
    given = asked.body(schemas.allocations(asked.version.minor, put=True))
    write(asked, {_consumer(asked.path["uuid"]): given})
    return asked.reply(204, cached=False)


def post(asked: Asked) -> webob.Response:
    """Let several consumers hold this and nothing else, all of them or none."""
    asked.needs(13)
    given = asked.body(schemas.many_allocations(asked.version.minor))
    write(asked, {_consumer(uuid): one for uuid, one in given.items()})
    return asked.reply(204, cached=False)


def delete(asked: Asked) -> webob.Response:
    uuid = asked.path["uuid"]
    missing = errors.not_found(f"No allocations for consumer '{uuid}'")
    if not names.is_uuid(uuid):
        raise missing
    try:
        order = ConsumerOrder.release(names.uuid_text(uuid))
        asked.ledger.backend.commit(
            Write(kept.operation(), "release", order.consumer, orders=(order,))
        )
    except exceptions.ConsumerNotFound as error:
        raise missing from error
    return asked.reply(204, cached=False)


def write(
    asked: Asked,
    given: Mapping[str, Mapping[str, Any]],
    definitions: DefinitionChanges | None = None,
) -> None:
    """Let consumers hold what is said, in one write, with changes of definitions.

    Where no generation of a consumer is said (before 1.28) it is tried again if somebody was
    faster.
    """

    updates = () if definitions is None else definitions.updates
    new = {update.definition.uuid: update.definition.inventories for update in updates}

    def attempt() -> None:
        orders = tuple(_orders(asked, given, new))
        if not orders and definitions is None:
            return
        if definitions is not None:
            subject = definitions.root
            changes = dataclasses.replace(
                definitions, updates=tuple(_counted(one, orders, asked) for one in updates)
            )
            doing = Write(kept.operation(), "reshape", subject, changes, orders)
        else:
            subject = subject_of(order.consumer for order in orders)
            doing = Write(kept.operation(), "replace", subject, orders=orders)
        asked.ledger.backend.commit(doing)

    faster = () if asked.since(28) else (exceptions.StaleConsumer, exceptions.ConsumerExists)
    try:
        asked.ledger.retries.again(attempt, *faster)
    except (exceptions.StaleConsumer, exceptions.ConsumerExists) as error:
        raise errors.conflict(
            f"consumer generation conflict - {error}", errors.CONCURRENT_UPDATE
        ) from error
    except exceptions.CapacityException as error:
        raise _refused(error, [*given]) from error
    except exceptions.ProviderNotFound as error:
        raise errors.bad(
            f"Allocation for resource provider '{error.subject}' that does not exist."
        ) from error
    except exceptions.InvalidInput as error:
        raise errors.bad(f"Unable to allocate inventory: {error}") from error


def _counted(
    update: ProviderUpdate, orders: Iterable[ConsumerOrder], asked: Asked
) -> ProviderUpdate:
    """Return the update of a provider in a reshape, with the writes that Placement counts for it.

    These are two of inventories, and one of allocations, also of those that stay as they are.
    """
    uuid = update.definition.uuid
    here = {
        order.consumer: [use for use in order.uses if use.provider_uuid == uuid] for order in orders
    }
    some = {name: uses for name, uses in here.items() if uses}
    held = asked.ledger.backend.held_by(some)
    before = {(name, use.key): use.amount for name in held for use in held[name].held}
    stays = all(
        before.get((name, use.key)) == use.amount for name, uses in some.items() for use in uses
    )
    return dataclasses.replace(update, counts=2 + bool(some and stays))


def _orders(
    asked: Asked,
    given: Mapping[str, Mapping[str, Any]],
    new: Mapping[str, Iterable[InventoryRecord]],
) -> Iterator[ConsumerOrder]:
    """Yield what each consumer shall hold, as orders; of one that shall hold nothing a release.

    :param new: inventories that providers get in the same write
    """
    held = asked.ledger.backend.held_by(given)
    wanted = {consumer: _uses(one["allocations"]) for consumer, one in given.items()}
    _check_places(asked, [use for uses in wanted.values() for use in uses], [*given], new)
    for consumer, one in given.items():
        kept_now = held.get(consumer)
        if asked.since(28):
            _check_generation(consumer, one["consumer_generation"], kept_now)
        if not wanted[consumer]:
            if kept_now is not None:
                yield ConsumerOrder.release(consumer, kept_now.generation)
            continue
        uses = tuple(wanted[consumer])
        if kept_now is not None:
            uses = _with_units(uses, kept_now)
        type_ = one.get("consumer_type")
        yield ConsumerOrder(
            consumer,
            Expect.ABSENT if kept_now is None else kept_now.generation,
            Mode.SET,
            uses,
            request=None if kept_now is None else kept_now.request,
            project=one.get("project_id", kept.INCOMPLETE),
            user=one.get("user_id", kept.INCOMPLETE),
            consumer_type=None if type_ == kept.UNKNOWN_TYPE else type_,
        )


def _check_generation(consumer: str, given: int | None, now: ConsumerRecord | None) -> None:
    is_at = kept.consumer_generation(now)
    if given != is_at:
        expected, got = ("null" if one is None else one for one in (is_at, given))
        raise errors.conflict(
            f"consumer generation conflict - expected {expected} but got {got}",
            errors.CONCURRENT_UPDATE,
        )


def _uses(given: Any) -> list[Use]:
    """Return what is to be held, of either form of a body."""
    pairs = (
        ((one["resource_provider"]["uuid"], one["resources"]) for one in given)
        if isinstance(given, list)
        else ((uuid, one["resources"]) for uuid, one in given.items())
    )
    found: dict[tuple[str, str], int] = {}
    for uuid, resources in pairs:
        for name, amount in resources.items():
            key = names.uuid_text(uuid) if names.is_uuid(uuid) else uuid, name
            found[key] = found.get(key, 0) + amount
    return [Use(*key, amount) for key, amount in found.items()]


def _with_units(uses: tuple[Use, ...], now: ConsumerRecord) -> tuple[Use, ...]:
    """Return uses with the units by name that are held already, where as much stays held."""
    had = {use.key: use for use in now.held if use.units}
    return tuple(
        had[use.key] if use.key in had and had[use.key].amount == use.amount else use
        for use in uses
    )


def _check_places(
    asked: Asked,
    uses: list[Use],
    consumers: list[str],
    new: Mapping[str, Iterable[InventoryRecord]],
) -> None:
    """Refuse what is of no resource class or provider, or against unit rules.

    Placement's unit rules bind what is held already, too; the ledger's only what grows.
    """
    unknown = kept.unknown_classes(asked.ledger, {use.resource_class for use in uses})
    if unknown:
        raise errors.bad(
            f"Unable to allocate inventory for consumer {', '.join(consumers)}: "
            f"No such resource class {', '.join(unknown)}."
        )
    places = {use.provider_uuid for use in uses}
    there = kept.by_uuid(asked.ledger, places)
    for uuid in sorted(places - there.keys()):
        raise errors.bad(f"Allocation for resource provider '{uuid}' that does not exist.")
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
    most = record.max_unit
    is_within = record.min_unit <= amount and (most is None or amount <= most)
    return is_within and amount % record.step_size == 0


def _refused(error: exceptions.CapacityException, consumers: list[str]) -> errors.Refused:
    """Return why something does not fit, with the reasons of the ledger."""
    rules = {reason.rule for reason in error.reasons}
    reasons = "; ".join(map(str, error.reasons)) or str(error)
    where = ", ".join(sorted({str(reason.where) for reason in error.reasons}))
    classes = ", ".join(sorted({str(reason.resource) for reason in error.reasons}))
    begin = f"Unable to allocate inventory: Unable to create allocation for '{classes}' on {where}"
    if isinstance(error, exceptions.InventoryNotFound):
        said = f"Inventory for '{classes}' on resource provider '{where}' invalid"
        return errors.conflict(f"Unable to allocate inventory: {said}: {reasons}")
    if isinstance(error, exceptions.UnitRuleViolated):
        return errors.conflict(f"{begin}: it would violate inventory constraints: {reasons}")
    if Rule.CAPACITY in rules:
        return errors.conflict(
            f"{begin}: The requested amount would exceed the capacity: {reasons}"
        )
    return errors.conflict(f"{begin}: {reasons}")


def _consumer(text: str) -> str:
    if not names.is_uuid(text):
        raise errors.bad(f"Malformed consumer_uuid: {text}")
    return names.uuid_text(text)


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
