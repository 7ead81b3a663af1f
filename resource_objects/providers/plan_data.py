"""The plain data of a plan, read: every key known, every value checked.

Plans come from files that people edit, so that what is read must hold as much as what is computed:
figures of inventories agree with each other, and changes with the definitions they lead to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from resource_objects import exceptions, names
from resource_objects.providers import given, plain
from resource_objects.providers.columns import inventories_of
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderUpdate,
    to_records,
)
from resource_objects.providers.orders import Adjustment, ClaimOrder, Release, Replacement
from resource_objects.providers.plan_check import check_readable
from resource_objects.requests import Request

#: What a plan may ask of a consumer.
PlanOrder: TypeAlias = ClaimOrder | Adjustment | Replacement | Release

#: Each kind of order, by the word for it in a file.
KINDS: dict[str, type[PlanOrder]] = {
    "claim": ClaimOrder,
    "adjust": Adjustment,
    "replace": Replacement,
    "release": Release,
}


def _request(text: str) -> str:
    try:
        Request.obj_from_primitive(json.loads(text))
    except ValueError as error:
        raise exceptions.InvalidField("request", text, "the wire form of a request") from error
    return text


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "uuid": names.uuid_text,
    "parent_uuid": names.uuid_text,
    "of_uuid": names.uuid_text,
    "provider_uuid": names.uuid_text,
    "claim_id": names.uuid_text,
    "name": names.provider_name,
    "root": names.label,
    "resource_class": names.resource_class_name,
    "of_class": names.resource_class_name,
    "classes": names.resource_class_name,
    "removed": names.resource_class_name,
    "traits": names.trait_name,
    "traits_added": names.trait_name,
    "traits_removed": names.trait_name,
    "aggregates": names.aggregate_name,
    "aggregates_added": names.aggregate_name,
    "aggregates_removed": names.aggregate_name,
    "units": names.label,
    "consumer": names.consumer_name,
    "project": names.label,
    "user": names.label,
    "consumer_type": names.label,
    "request": _request,
    "generation": given.generation,
}


def read_changes(data: Any) -> DefinitionChanges:
    """Return the changes of definitions that plain data says, or raise ``InvalidInput``."""
    changes = plain.from_plain(DefinitionChanges, data, "plan.definitions", _CHECKS)
    for definition in (*changes.creates, *(update.definition for update in changes.updates)):
        _check_definition(definition)
    for update in changes.updates:
        _check_update(update)
    return changes


def read_order(data: Any, where: str) -> PlanOrder:
    """Return the order that plain data says, or raise ``InvalidInput``."""
    word = data.get("order") if isinstance(data, Mapping) else None
    if not isinstance(word, str) or word not in KINDS:
        raise exceptions.InvalidField(
            f"{where}.order", word, f"an object whose order is one of {', '.join(KINDS)}"
        )
    rest = {key: value for key, value in data.items() if key != "order"}
    return plain.from_plain(KINDS[word], rest, where, _CHECKS)


def read_names(data: Any) -> Mapping[str, str]:
    """Return ``{uuid: name}`` as plain data says it, or raise ``InvalidInput``."""
    if not isinstance(data, Mapping):
        raise exceptions.InvalidField("plan.names", data, "an object {uuid: name}")
    return {names.uuid_text(uuid): names.provider_name(name) for uuid, name in data.items()}


def _check_definition(definition: ProviderDefinition) -> None:
    """Raise unless figures, kinds and capacities are what inventories would be kept as."""
    check_readable(definition)
    given = {record.resource_class: record for record in definition.inventories}
    if len(given) != len(definition.inventories):
        raise exceptions.DuplicateKey(definition.name, sorted(given), "each resource class once")
    kept = inventories_of(definition.inventories, definition.kinds)
    again, kinds = to_records(kept)
    for record in again:
        if given.get(record.resource_class) != record:
            raise exceptions.InvalidInventory(
                f"{definition.name}: {record.resource_class}",
                given.get(record.resource_class),
                str(record),
            )
    if len(again) != len(given) or set(kinds) != set(definition.kinds):
        raise exceptions.InvalidInventory(
            definition.name, definition.kinds, "inventories that are kept as these figures"
        )


def _check_update(update: ProviderUpdate) -> None:
    """Raise unless what an update changes is what its definition says."""
    wanted = update.definition
    classes = {record.resource_class for record in wanted.inventories}
    aggregates = wanted.aggregates or frozenset()
    told = (
        set(update.changed) <= set(wanted.inventories)
        and not classes & set(update.removed)
        and update.traits_added <= wanted.traits
        and not update.traits_removed & wanted.traits
        and update.aggregates_added <= aggregates
        and not update.aggregates_removed & aggregates
    )
    if not told:
        raise exceptions.InvalidField(
            f"update of {wanted.name}", str(update), "changes that lead to its definition"
        )
