"""The OpenAPI document of the native API, built from its calls and schemas."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from resource_objects.rest import errors
from resource_objects.rest.native import schemas
from resource_objects.rest.native.api import PREFIX, SERVICE, VERSIONS, Call

#: The error statuses of every call; of calls with a token; of calls with a body.
_ALWAYS, _WITH_TOKEN, _WITH_BODY = (400, 406, 503), (401, 403), (413, 415)

_ABOUT = f"""\
Calls that Placement's API lacks: reasons of an empty answer, placed amounts, units by name,
definitions as trees, disabled providers, and the change feed.

The header `OpenStack-API-Version: {SERVICE} {VERSIONS[-1]}` selects the version; the default is the
oldest one. Names of providers and consumers may contain slashes, which may be sent as %2F. A body
has at most 16 MiB and 20 levels.\
"""
#: The descriptions of parts of paths.
_IN_PATH = {
    "provider": "name or uuid of a provider",
    "consumer": "name of a consumer",
}
#: The calls of Placement's API with additional data for clients that also request this version: the
#: summary, the status and schema of the answer, and the rule.
_EXTENDED: Mapping[tuple[str, str], tuple[str, str, str, str]] = {
    ("GET", "/allocation_candidates"): (
        "Placement's search; an answer without candidates has an explanation.",
        *("200", "ExplainedCandidates", "placement:allocation_candidates:list"),
    ),
    ("PUT", "/allocations/{consumer}"): (
        "Placement's claim; a refusal has the reasons as data.",
        *("409", "Errors", "placement:allocations:update"),
    ),
    ("POST", "/allocations"): (
        "Placement's claims of several consumers; a refusal has the reasons as data.",
        *("409", "Errors", "placement:allocations:manage"),
    ),
    ("POST", "/reshaper"): (
        "Placement's reshape; a refusal for lack of capacity has the reasons as data.",
        *("409", "Errors", "placement:reshaper:reshape"),
    ),
}
_VERSION_HEADER = {
    "name": "OpenStack-API-Version",
    "in": "header",
    "description": "the requested version",
    "schema": {"type": "string", "examples": [f"{SERVICE} {VERSIONS[-1]}"]},
}


def document(calls: Iterable[Call]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of calls."""
    paths: dict[str, dict[str, Any]] = {}
    for call in calls:
        path = re.sub(r"\{(\w+):path\}", r"{\1}", call.path)
        paths.setdefault(path, {})[call.method.lower()] = _operation(call)
    for (method, path), extension in _EXTENDED.items():
        paths.setdefault(path, {})[method.lower()] = _extended(method, path, *extension)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "resource_objects",
            "version": VERSIONS[-1],
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "the root of Placement's API"}],
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
    """Return the first line and the rest of the documentation of a call."""
    line, _, rest = inspect.cleandoc(call.handler.__doc__ or "").partition("\n")
    return line, rest.strip()


def _operation(call: Call) -> dict[str, Any]:
    line, rest = text_of(call)
    operation: dict[str, Any] = {
        "operationId": call.name,
        "summary": line,
        "description": rest or line,
        "tags": [call.path.removeprefix(PREFIX).strip("/").partition("/")[0] or "discovery"],
        "parameters": [*_parameters(call), {"$ref": "#/components/parameters/Version"}],
        "responses": _responses(call),
    }
    if call.rule is None:
        operation["security"] = []
    else:
        operation["x-policy-rule"] = call.rule
    if call.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas.ref(call.body)}},
        }
    return operation


def _extended(
    method: str, path: str, summary: str, status: str, schema: str, rule: str
) -> dict[str, Any]:
    both = f"placement {errors.MAX_VERSION}, {SERVICE} {VERSIONS[-1]}"
    version = {
        **_VERSION_HEADER,
        "required": True,
        "description": "one of Placement's versions, and this one",
        "schema": {"type": "string", "examples": [both]},
    }
    phrase = HTTPStatus(int(status)).phrase
    return {
        "operationId": f"placement_{method.lower()}_{path.strip('/').partition('/')[0]}",
        "summary": summary,
        "description": "Everything else is as in Placement's API reference. Clients that do not "
        "request this version get Placement's answer.",
        "tags": ["placement"],
        "parameters": [*_in_path(path), version],
        "responses": {status: _response(phrase, schema)},
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
    parameters = _in_path(call.path)
    for name, parameter in call.query.items():
        parameters.append(
            {
                "name": name,
                "in": "query",
                "description": parameter.description,
                "schema": dict(parameter.schema),
            }
        )
    return parameters


def _responses(call: Call) -> dict[str, Any]:
    refusals = {*_ALWAYS, *call.refusals}
    if call.rule is not None:
        refusals.update(_WITH_TOKEN)
    if call.body is not None:
        refusals.update(_WITH_BODY)
    answer = {str(call.status): _response(HTTPStatus(call.status).phrase, call.answer)}
    return answer | {
        str(status): {"$ref": "#/components/responses/Refused"} for status in sorted(refusals)
    }


def _response(description: str, schema: str) -> dict[str, Any]:
    return {
        "description": description,
        "content": {"application/json": {"schema": schemas.ref(schema)}},
    }
