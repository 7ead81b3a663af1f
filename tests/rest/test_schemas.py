"""Code made of a schema allows what jsonschema allows, and nothing else."""

from __future__ import annotations

import uuid
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resource_objects.rest import request, schemas

UUID = str(uuid.uuid4())
BODIES = {
    "resource class": schemas.RESOURCE_CLASS,
    "traits": schemas.PROVIDER_TRAITS,
    "aggregates": schemas.AGGREGATES,
    "aggregates 1.19": schemas.AGGREGATES_1_19,
    "inventories": schemas.PUT_INVENTORIES,
    "inventory": schemas.PUT_INVENTORY,
    "new inventory": schemas.POST_INVENTORY,
    **{f"new provider 1.{minor}": schemas.new_provider(minor) for minor in (0, 14)},
    **{f"provider 1.{minor}": schemas.provider(minor) for minor in (0, 14)},
    **{
        f"allocations 1.{minor}": schemas.allocations(minor, put=put)
        for minor in (0, 8, 12, 28, 34, 38)
        for put in (False, True)
    },
    **{f"many 1.{minor}": schemas.many_allocations(minor) for minor in (13, 28, 34, 38)},
    **{f"reshaper 1.{minor}": schemas.reshaper(minor) for minor in (30, 34, 38)},
}
QUERIES = {
    "traits": schemas.TRAITS_QUERY,
    **{f"providers 1.{minor}": schemas.providers_query(minor) for minor in (0, 4, 14, 18)},
    **{f"usages 1.{minor}": schemas.usages_query(minor) for minor in (9, 38)},
    **{
        f"candidates 1.{minor}": schemas.candidates_query(minor)
        for minor in (10, 16, 17, 21, 25, 31, 33, 35, 36)
    },
}

TEXTS = st.sampled_from(
    [
        *("", "a", "VCPU", "CUSTOM_A", "CUSTOM_", "vcpu", "VCPU\n", "1", "0", "01", "isolate"),
        *("none", "all", "unknown", "INSTANCE\n", "A" * 255, "A" * 256, "a" * 200, "é", "x" * 201),
        *(
            UUID,
            UUID.upper(),
            UUID.replace("-", ""),
            f"{{{UUID}}}",
            f"{UUID}\n",
            "urn:uuid:" + UUID,
        ),
    ]
)
NUMBERS = st.sampled_from([0, 1, -1, 1.0, 0.5, 2**31 - 1, 2**31, 1e39, True, False, float("nan")])
KEYS = st.one_of(
    TEXTS,
    st.sampled_from(
        [
            *("resources", "resources1", "resources_a", "resources\n", "required_A", "member_of1"),
            *("in_tree", "in_tree2", "limit", "group_policy", "root_required", "same_subtree"),
        ]
    ),
)


def near(schema: Any) -> st.SearchStrategy[Any]:
    """Return what a schema allows, or nearly."""
    junk = st.one_of(TEXTS, NUMBERS, st.none(), st.just([]), st.just({}))
    if not isinstance(schema, dict):
        return junk
    if "anyOf" in schema:
        return st.one_of(*map(near, schema["anyOf"]), junk)
    if schema.get("type") == "array":
        return st.one_of(st.lists(near(schema.get("items")), max_size=2), junk)
    if schema.get("type") != "object":
        return junk
    named = {name: near(one) for name, one in schema.get("properties", {}).items()}
    other = next(iter(schema.get("patternProperties", {}).values()), None)
    if isinstance(schema.get("additionalProperties"), dict):
        other = schema["additionalProperties"]
    need = {name: named[name] for name in schema.get("required", ())}
    may = {name: one for name, one in named.items() if name not in need}
    whole = st.fixed_dictionaries(need, optional=may)
    more = st.dictionaries(KEYS, near(other), max_size=2)
    less = st.dictionaries(st.sampled_from([*named, "x"]), junk, max_size=3)
    return st.one_of(whole, st.builds(lambda a, b: {**a, **b}, whole, more), more, less, junk)


def is_right(given: Any, schema: Any, formats: jsonschema.FormatChecker) -> bool:
    validator = jsonschema.Draft202012Validator(schema, format_checker=formats)
    return bool(validator.is_valid(given))


@pytest.mark.parametrize("name", BODIES)
@given(data=st.data())
def test_a_body_is_allowed_as_jsonschema_allows_it(name: str, data: st.DataObject) -> None:
    schema = BODIES[name]
    body = data.draw(near(schema))
    assert request.is_certainly_valid(body, schema) == is_right(body, schema, request._FORMATS)


@pytest.mark.parametrize("name", QUERIES)
@given(data=st.data())
def test_a_query_is_allowed_as_jsonschema_allows_it(name: str, data: st.DataObject) -> None:
    schema = QUERIES[name]
    keys = st.one_of(KEYS, st.sampled_from([*schema["properties"], "x"]))
    query = data.draw(st.dictionaries(keys, TEXTS, max_size=5))
    right = is_right(query, schema, request._QUERY_FORMATS)
    assert request.is_certainly_valid(query, schema, request._QUERY_FORMATS) == right


def test_what_clients_say_each_day_is_allowed_by_the_code_alone() -> None:
    held = {UUID: {"resources": {"VCPU": 1, "CUSTOM_A": 2}, "generation": 3}}
    said = {"project_id": "p", "user_id": "u", "consumer_generation": None}
    body = {**said, "allocations": held, "consumer_type": "INSTANCE", "mappings": {"": [UUID]}}
    assert request.is_certainly_valid(body, schemas.allocations(39, put=True))
    query = {"resources": "VCPU:1", "required_A": "CUSTOM_A", "limit": "10"}
    assert request.is_certainly_valid(query, schemas.candidates_query(39), request._QUERY_FORMATS)
