"""Whatever is sent, it is answered or refused: never a failure of the service."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects.rest.native import CALLS, PREFIX, Call
from resource_objects.rest.native.schemas import SCHEMAS
from tests.rest.native.conftest import Native, serving

_SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text()
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
_TEXTS = st.sampled_from(
    ["host0", "job", "VCPU=1", "VCPU=0", "PGPU=1,VCPU=1", "NUMA_TOPOLOGY=1:dedicated=2", "CUSTOM_A",
     "numa", "name", "7:", "7:1=1@1", "2030-01-01T00:00:00Z", "", "a\nb", "\x00", "\ud800", "%"]
) | st.text(max_size=5)  # fmt: skip


def shaped(schema: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return values that are nearly what a schema says."""
    if "$ref" in schema:
        return shaped(SCHEMAS[schema["$ref"].rpartition("/")[2]], depth + 1)
    if depth > 6:
        return _SCALARS
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([shaped(one, depth + 1) for one in schema["anyOf"]])
    kinds = schema.get("type", "null")
    made = [
        _of_kind(kind, schema, depth) for kind in ([kinds] if isinstance(kinds, str) else kinds)
    ]
    return st.one_of([*made, *made, *made, _SCALARS])


def _of_kind(kind: str, schema: Any, depth: int) -> st.SearchStrategy[Any]:
    if kind == "object":
        said = {key: shaped(one, depth + 1) for key, one in schema.get("properties", {}).items()}
        always = {key: said[key] for key in schema.get("required", ()) if key in said}
        rest = {key: one for key, one in said.items() if key not in always}
        more = schema.get("additionalProperties")
        if isinstance(more, dict):
            return st.dictionaries(_TEXTS, shaped(more, depth + 1), max_size=3)
        return st.fixed_dictionaries(always, optional=rest) if said else _JSON
    if kind == "array":
        return st.lists(shaped(schema.get("items") or {}, depth + 1), max_size=3)
    simple = {
        "string": _TEXTS,
        "integer": st.integers(-1, 9) | st.integers(),
        "number": st.floats() | st.integers(),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return simple[kind]


_WRITES = [call for call in CALLS if call.body is not None]
_BODIES = st.sampled_from(_WRITES).flatmap(
    lambda call: st.tuples(st.just(call), shaped(SCHEMAS[call.body or ""]) | _JSON)
)


def _native() -> Native:
    ledger = ro.connect("memory://")
    host = ro.Provider("host0", "VCPU=8", traits=["CUSTOM_A"])
    host.add("host0/gpu", "PGPU=2")
    ledger.sync(host)
    ledger.claim("job", {"host0": "VCPU=1"})
    return Native(serving(ledger))


def _path(call: Call, name: str) -> str:
    return re.sub(r"\{\w+:path\}", name, call.path).removeprefix(PREFIX)


@given(_BODIES, st.sampled_from(["host0", "job", "x"]))
def test_bodies_are_answered_or_refused(asked: tuple[Call, Any], name: str) -> None:
    call, body = asked
    native = _native()
    text = json.dumps(body).encode()
    response = native.ask(call.method, _path(call, name), text)
    assert response.status_int < 500 or response.status_int == 503, response.text


@given(
    st.sampled_from(CALLS),
    st.sampled_from(["host0", "job", "%00", "%ff", "a%0Ab", "%2F", "%C3%A9"]),
    st.dictionaries(
        st.sampled_from(sorted({name for call in CALLS for name in call.query} | {"x", "%ff"})),
        st.sampled_from(["", "0", "1", "-1", "x", "VCPU=1", "true", "%ff", "9" * 30, "7:", "%00"]),
        max_size=3,
    ),
)
def test_queries_and_paths_are_answered_or_refused(
    call: Call, name: str, query: dict[str, str]
) -> None:
    native = _native()
    said = "&".join(f"{key}={value}" for key, value in query.items())
    body = None if call.body is None else {}
    response = native.ask(call.method, f"{_path(call, name)}?{said}", body)
    assert response.status_int < 500, response.text


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 100_000, 400),
        (b'{"request": ' + b'{"groups": [' * 30 + b"]}" * 30 + b"}", 400),
        (b"\xff\xfe", 400),
        (b'{"request": "VCPU=1", "limit": NaN}', 400),
        (b"{" + b" " * (17 * 2**20) + b"}", 413),
    ],
)
def test_what_is_too_deep_or_too_long_is_refused(body: bytes, status: int) -> None:
    assert _native().ask("POST", "/search", body).status_int == status


def test_another_media_type_is_refused() -> None:
    response = _native().ask(
        "POST", "/search", {"request": "VCPU=1"}, headers={"content-type": "text/plain"}
    )
    assert response.status_int == 415
