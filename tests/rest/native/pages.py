"""What the documentation shows of the native API, made of its document.

``doc/source/reference/native_api.txt`` and ``native_openapi.json`` beside it; a test holds both to
this. After a change of the API: ``python -m tests.rest.native.pages``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from resource_objects.rest.native import CALLS
from resource_objects.rest.native.document import document

_REFERENCE = Path(__file__).parents[3] / "doc" / "source" / "reference"
PAGE: Final = _REFERENCE / "native_api.txt"
RAW: Final = _REFERENCE / "native_openapi.json"


def raw() -> str:
    """Return the document as it can be downloaded."""
    return json.dumps(document(CALLS), indent=1) + "\n"


def page() -> str:
    """Return the reference: each call, then each schema."""
    made = document(CALLS)
    lines = ["Calls", "=====", ""]
    for path, methods in made["paths"].items():
        for method, one in methods.items():
            lines += _call(f"{method.upper()} {path}", one)
    lines += ["Bodies and answers", "==================", ""]
    for name, schema in made["components"]["schemas"].items():
        lines += _schema(name, schema)
    return "\n".join(lines).rstrip() + "\n"


def _title(text: str) -> list[str]:
    return [text, "-" * len(text), ""]


def _call(title: str, one: Mapping[str, Any]) -> Iterator[str]:
    yield from _title(title)
    yield from (one["summary"], "")
    if one["description"] != one["summary"]:
        yield from (one["description"], "")
    said = [(f"``{p['name']}``", p["in"], p) for p in one["parameters"] if "name" in p]
    for name, where, parameter in said:
        kind = _kind(parameter["schema"])
        yield f"* {name} ({where}, {kind}): {parameter['description']}"
    if said:
        yield ""
    facts = []
    if "requestBody" in one:
        facts.append(f"Body: {_of(one['requestBody'])}.")
    answers = one["responses"]
    for status, answer in answers.items():
        if "$ref" not in answer:
            facts.append(f"Answer {status}: {_of(answer)}.")
    refused = ", ".join(status for status, answer in answers.items() if "$ref" in answer)
    if refused:
        facts.append(f"Refused with {refused}.")
    facts.append(f"Rule: ``{one['x-policy-rule']}``." if "x-policy-rule" in one else "No token.")
    yield from (" ".join(facts), "")


def _of(holder: Mapping[str, Any]) -> str:
    return _kind(holder["content"]["application/json"]["schema"])


def _kind(schema: Mapping[str, Any]) -> str:
    """Return what a value is, in a few words."""
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`_"
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(f"``{one}``" for one in schema["enum"])
    kinds = schema.get("type", "any")
    if isinstance(kinds, str):
        kinds = [kinds]
    return " or ".join(_named(kind, schema) for kind in kinds)


def _named(kind: str, schema: Mapping[str, Any]) -> str:
    if kind == "array" and "prefixItems" in schema:
        return f"a list of {', '.join(_kind(one) for one in schema['prefixItems'])}"
    if kind == "array":
        return f"a list of {_kind(schema['items'])}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"a mapping to {_kind(schema['additionalProperties'])}"
    return {"string": schema.get("format", "text"), "null": "null"}.get(kind, kind)


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield from _title(name)
    if "description" in schema:
        yield from (schema["description"], "")
    if "properties" not in schema:
        yield from (f"{_kind(schema)}".capitalize() + ".", "")
        return
    needed = schema.get("required", ())
    for key, value in schema["properties"].items():
        told = f": {value['description']}" if "description" in value else ""
        must = ", always" if key in needed else ""
        yield f"* ``{key}`` ({_kind(value)}{must}){told}"
    yield ""


def write() -> None:
    """Write both."""
    PAGE.write_text(page(), encoding="utf-8")
    RAW.write_text(raw(), encoding="utf-8")


if __name__ == "__main__":
    write()
