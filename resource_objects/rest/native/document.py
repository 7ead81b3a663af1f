"""The OpenAPI document of the native API, made of its calls and schemas."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from resource_objects.rest import errors
from resource_objects.rest.native import schemas
from resource_objects.rest.native.api import PREFIX, SERVICE, VERSIONS, Call

#: Every call may be refused so; and those that need a token, and those that have a body.
_ALWAYS, _WITH_TOKEN, _WITH_BODY = (400, 406, 503), (401, 403), (413, 415)

_ABOUT = f"""\
What Placement's API cannot say of a ledger: reasons of an empty answer, amounts that say where they
go, units by name, definitions as trees, what is out of service, and the change feed.

The version is said in the header `OpenStack-API-Version: {SERVICE} {VERSIONS[-1]}`; without it, it
is the oldest. Names of providers and consumers may have slashes, which may be sent as %2F. A body
has at most 16 MiB and 20 levels.\
"""
#: What stands in paths.
_IN_PATH = {
    "provider": "name or uuid of a provider",
    "consumer": "name of a consumer",
}
#: What calls of Placement's API answer besides, if a client says this version beside Placement's:
#: the summary, of which status what schema, and the rule.
_BESIDES: Mapping[tuple[str, str], tuple[str, str, str, str]] = {
    ("GET", "/allocation_candidates"): (
        "Placement's search; where it finds nothing, the answer says why.",
        *("200", "ExplainedCandidates", "placement:allocation_candidates:list"),
    ),
    ("PUT", "/allocations/{consumer}"): (
        "Placement's claim; where it does not fit, the refusal has the reasons as data.",
        *("409", "Errors", "placement:allocations:update"),
    ),
    ("POST", "/allocations"): (
        "Placement's claims of several consumers; the refusal has the reasons as data.",
        *("409", "Errors", "placement:allocations:manage"),
    ),
    ("POST", "/reshaper"): (
        "Placement's reshape; where what is held does not fit, the reasons are told as data.",
        *("409", "Errors", "placement:reshaper:reshape"),
    ),
}
_VERSION_HEADER = {
    "name": "OpenStack-API-Version",
    "in": "header",
    "description": "the version that is asked for",
    "schema": {"type": "string", "examples": [f"{SERVICE} {VERSIONS[-1]}"]},
}


def document(calls: Iterable[Call]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of some calls."""
    paths: dict[str, dict[str, Any]] = {}
    for call in calls:
        path = re.sub(r"\{(\w+):path\}", r"{\1}", call.path)
        paths.setdefault(path, {})[call.method.lower()] = _operation(call)
    for (method, path), said in _BESIDES.items():
        paths.setdefault(path, {})[method.lower()] = _beside(method, path, *said)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "resource_objects",
            "version": VERSIONS[-1],
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "where Placement's API is served"}],
        "security": [{"token": []}, {"password": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.SCHEMAS,
            "parameters": {"Version": _VERSION_HEADER},
            "responses": {"Refused": _response("A refusal, with the cause.", "Errors")},
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"},
                "password": {"type": "http", "scheme": "basic"},
            },
        },
    }


def text_of(call: Call) -> tuple[str, str]:
    """Return what a call does, in a line, and what else is to be said of it."""
    line, _, rest = inspect.cleandoc(call.handler.__doc__ or "").partition("\n")
    return line, rest.strip()


def _operation(call: Call) -> dict[str, Any]:
    line, rest = text_of(call)
    found: dict[str, Any] = {
        "operationId": call.name,
        "summary": line,
        "description": rest or line,
        "tags": [call.path.removeprefix(PREFIX).strip("/").partition("/")[0] or "discovery"],
        "parameters": [*_parameters(call), {"$ref": "#/components/parameters/Version"}],
        "responses": _responses(call),
    }
    if call.rule is None:
        found["security"] = []
    else:
        found["x-policy-rule"] = call.rule
    if call.body is not None:
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas.ref(call.body)}},
        }
    return found


def _beside(
    method: str, path: str, summary: str, status: str, schema: str, rule: str
) -> dict[str, Any]:
    both = f"placement {errors.MAX_VERSION}, {SERVICE} {VERSIONS[-1]}"
    version = {
        **_VERSION_HEADER,
        "required": True,
        "description": "one of Placement's versions, and this one",
        "schema": {"type": "string", "examples": [both]},
    }
    kind = HTTPStatus(int(status)).phrase
    return {
        "operationId": f"placement_{method.lower()}_{path.strip('/').partition('/')[0]}",
        "summary": summary,
        "description": "All else is as in Placement's API reference, and for clients that do not "
        "say this version so is this.",
        "tags": ["placement"],
        "parameters": [*_in_path(path), version],
        "responses": {status: _response(kind, schema)},
        "x-policy-rule": rule,
    }


def _in_path(path: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _IN_PATH[name],
            "schema": schemas.TEXT,
        }
        for name in re.findall(r"\{(\w+)", path)
    ]


def _parameters(call: Call) -> list[dict[str, Any]]:
    found = _in_path(call.path)
    for name, one in call.query.items():
        found.append(
            {"name": name, "in": "query", "description": one.told, "schema": dict(one.schema)}
        )
    return found


def _responses(call: Call) -> dict[str, Any]:
    refusals = {*_ALWAYS, *call.refusals}
    if call.rule is not None:
        refusals.update(_WITH_TOKEN)
    if call.body is not None:
        refusals.update(_WITH_BODY)
    found = {str(call.status): _response(HTTPStatus(call.status).phrase, call.answer)}
    return found | {
        str(status): {"$ref": "#/components/responses/Refused"} for status in sorted(refusals)
    }


def _response(told: str, schema: str) -> dict[str, Any]:
    return {
        "description": told,
        "content": {"application/json": {"schema": schemas.ref(schema)}},
    }
