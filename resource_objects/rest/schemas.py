"""JSON Schemas of the bodies and queries of Placement's API, by microversion."""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

# ``\Z``: ``$`` would also match before a newline at the end
CLASS = r"^[A-Z0-9_]+\Z"
CUSTOM = r"^CUSTOM_[A-Z0-9_]+\Z"
UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z"
CONSUMER_TYPE = "^[A-Z0-9_]+$"  # clients compare it; a separate pattern rejects newlines
MAX_INTEGER = 2147483647

_UUID: Schema = {"type": "string", "format": "uuid"}
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 255}
_GENERATION: Schema = {"type": "integer"}


def _object(required: list[str], /, **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _mapping(pattern: str, values: Schema, minimum: int = 1) -> Schema:
    return {
        "type": "object",
        "patternProperties": {pattern: values},
        "additionalProperties": False,
        "minProperties": minimum,
    }


# --- resource classes, traits, aggregates ---

CUSTOM_NAME: Schema = {"type": "string", "pattern": CUSTOM, "minLength": 1, "maxLength": 255}
RESOURCE_CLASS = _object(["name"], name=CUSTOM_NAME)
TRAITS_QUERY = _object([], name={"type": "string"}, associated={"type": "string"})
PROVIDER_TRAITS = _object(
    ["traits", "resource_provider_generation"],
    traits={"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 255}},
    resource_provider_generation=_GENERATION,
)
AGGREGATES: Schema = {"type": "array", "items": _UUID}
AGGREGATES_1_19 = _object(
    ["aggregates", "resource_provider_generation"],
    aggregates=AGGREGATES,
    resource_provider_generation=_GENERATION,
)

# --- providers ---

_PROVIDER_NAME: Schema = {"type": "string", "maxLength": 200, "minLength": 1}
_PARENT: Schema = {"anyOf": [_UUID, {"type": "null"}]}


@functools.cache
def new_provider(minor: int) -> Schema:
    """Return the schema of a new provider."""
    parent = {"parent_provider_uuid": _PARENT} if minor >= 14 else {}
    return _object(["name"], name=_PROVIDER_NAME, uuid=_UUID, **parent)


@functools.cache
def provider(minor: int) -> Schema:
    """Return the schema of a change of a provider."""
    parent = {"parent_provider_uuid": _PARENT} if minor >= 14 else {}
    return _object(["name"], name=_PROVIDER_NAME, **parent)


@functools.cache
def providers_query(minor: int) -> Schema:
    """Return the schema of the query of a list of providers."""
    text = {"type": "string"}
    since = {"member_of": 3, "resources": 4, "in_tree": 14, "required": 18}
    keys = {name: _UUID if name == "in_tree" else text for name, at in since.items() if minor >= at}
    return _object([], name=text, uuid=_UUID, **keys)


# --- inventories ---

_FIGURES: Schema = {
    "total": {"type": "integer", "minimum": 1, "maximum": MAX_INTEGER},
    "reserved": {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER},
    "min_unit": {"type": "integer", "minimum": 1, "maximum": MAX_INTEGER},
    "max_unit": {"type": "integer", "minimum": 1, "maximum": MAX_INTEGER},
    "step_size": {"type": "integer", "minimum": 1, "maximum": MAX_INTEGER},
    "allocation_ratio": {"type": "number", "maximum": 3.40282e38},
}
# with any name: an impossible name is rejected like an unknown class, after the generation is
# compared
INVENTORIES: Schema = {
    "type": "object",
    "patternProperties": {CLASS: _object(["total"], **_FIGURES)},
}
PUT_INVENTORIES = _object(
    ["resource_provider_generation", "inventories"],
    resource_provider_generation=_GENERATION,
    inventories=INVENTORIES,
)
PUT_INVENTORY = _object(
    ["total", "resource_provider_generation"], resource_provider_generation=_GENERATION, **_FIGURES
)
POST_INVENTORY = _object(
    ["resource_class", "total"],
    resource_class={"type": "string", "pattern": CLASS},
    resource_provider_generation=_GENERATION,
    **_FIGURES,
)

# --- allocations ---

_RESOURCES = _mapping(CLASS, {"type": "integer", "minimum": 1})
_CONSUMER_GENERATION: Schema = {"type": ["integer", "null"]}


@functools.cache
def allocations(minor: int, *, put: bool) -> Schema:
    """Return the schema of the allocations of one consumer.

    :param put: whether it is for ``PUT /allocations/{consumer}``, where no allocations are allowed
        from 1.28 on
    """
    keys: Schema = {}
    required = ["allocations"]
    if minor >= 8:
        keys |= {"project_id": _NAME, "user_id": _NAME}
        required += ["project_id", "user_id"]
    if minor >= 28:
        keys["consumer_generation"] = _CONSUMER_GENERATION
        required.append("consumer_generation")
    if minor >= 34:
        # not stored; as in Placement, keys without a letter are not validated
        keys["mappings"] = {
            "type": "object",
            "minProperties": 1,
            "patternProperties": {
                "[a-zA-Z0-9_-]": {"type": "array", "minItems": 1, "items": _UUID}
            },
        }
    if minor >= 38:
        keys["consumer_type"] = {
            "type": "string",
            "pattern": CONSUMER_TYPE,
            "not": {"pattern": "\n"},
            "minLength": 1,
            "maxLength": 255,
        }
        required.append("consumer_type")
    if minor < 12:
        provider = _object(["uuid"], uuid=_UUID)
        use = _object(
            ["resource_provider", "resources"], resource_provider=provider, resources=_RESOURCES
        )
        uses: Schema = {"type": "array", "minItems": 1, "items": use}
    else:
        use = _object(["resources"], resources=_RESOURCES, generation=_GENERATION)
        uses = _mapping(UUID, use, 1 if put and minor < 28 else 0)
    return _object(required, allocations=uses, **keys)


@functools.cache
def many_allocations(minor: int) -> Schema:
    """Return the schema of the allocations of several consumers."""
    return _mapping(UUID, allocations(minor, put=False))


@functools.cache
def reshaper(minor: int) -> Schema:
    """Return the schema of a reshape."""
    provider = _object(
        ["inventories", "resource_provider_generation"],
        inventories=INVENTORIES,
        resource_provider_generation=_GENERATION,
    )
    uses = _mapping(UUID, allocations(minor, put=False), 0)
    return _object(
        ["inventories", "allocations"], inventories=_mapping(UUID, provider), allocations=uses
    )


# --- usages ---


@functools.cache
def usages_query(minor: int) -> Schema:
    """Return the schema of the query of usages."""
    keys: Schema = {}
    if minor >= 38:
        keys["consumer_type"] = {
            "type": "string",
            "pattern": "^[A-Z0-9_]+$|^all|^unknown$",  # as in Placement, which allows allx
            "not": {"pattern": "\n"},
            "minLength": 1,
            "maxLength": 255,
        }
    return _object(["project_id"], project_id=_NAME, user_id=_NAME, **keys)


# --- candidates ---


@functools.cache
def candidates_query(minor: int) -> Schema:
    """Return the schema of the query of candidates."""
    text: Schema = {"type": "string"}
    keys: Schema = {}
    since = {
        "limit": 16,
        "required": 17,
        "member_of": 21,
        "group_policy": 25,
        "in_tree": 31,
        "root_required": 35,
        "same_subtree": 36,
    }
    for name, at in since.items():
        if minor >= at:
            keys[name] = text
    if minor >= 16:
        keys["limit"] = {"type": "string", "pattern": r"^[1-9][0-9]*\Z"}
    if minor >= 25:
        keys["group_policy"] = {"type": "string", "enum": ["none", "isolate"]}
    if minor < 25:
        return _object(["resources"], resources=text, **keys)
    suffix = "([1-9][0-9]*)?" if minor < 33 else "([a-zA-Z0-9_-]{1,64})?"
    of_group = ("resources", "required", "member_of", *(("in_tree",) if minor >= 31 else ()))
    schema = _object([], **{name: value for name, value in keys.items() if name not in of_group})
    schema["patternProperties"] = {
        f"^{name}{suffix}$": text for name in of_group
    }  # clients compare
    schema["propertyNames"] = {"not": {"pattern": "\n"}}
    return schema
