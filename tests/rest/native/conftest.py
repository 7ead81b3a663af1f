"""The native API, called in process: each answer is what its document says."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jsonschema
import pytest
import webob

from resource_objects.ledger import Ledger
from resource_objects.rest import application, wsgi
from resource_objects.rest.native import CALLS, PREFIX, Call
from resource_objects.rest.native.document import document
from resource_objects.rest.wsgi import Application

DOCUMENT = document(CALLS)


def strict(schema: Any) -> Any:
    """Return a schema of answers that allows nothing that it does not name."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "type" in schema:
        found.setdefault("additionalProperties", False)
    return found


@functools.cache
def _validator(path: str, method: str, status: str) -> jsonschema.Draft202012Validator:
    answers = DOCUMENT["paths"][path][method]["responses"]
    assert status in answers, f"{method} {path} does not say that it answers {status}"
    answer = answers[status]
    if "$ref" in answer:
        answer = DOCUMENT["components"]["responses"]["Refused"]
    components = {"schemas": strict(DOCUMENT["components"]["schemas"])}
    schema = strict(answer["content"]["application/json"]["schema"])
    return jsonschema.Draft202012Validator({**schema, "components": components})


def check(call: Call, response: webob.Response) -> None:
    """Assert that a response is one that the document has."""
    path = re.sub(r":path\}", "}", call.path)
    validator = _validator(path, call.method.lower(), str(response.status_int))
    validator.validate(response.json)


class Native:
    """Asks a service; what it answers is checked."""

    def __init__(self, app: Application) -> None:
        self.app = app
        #: the ledger that is served
        self.ledger: Ledger = app.ledger

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        environ: dict[str, Any] | None = None,
    ) -> webob.Response:
        """Return the response to a request below ``/ro``."""
        said = {"x-auth-token": "admin", "accept": "application/json", **(headers or {})}
        request = webob.Request.blank(f"{PREFIX}{path}", environ, method=method, headers=said)
        if body is not None:
            request.body = body if isinstance(body, bytes) else json.dumps(body).encode()
            request.content_type = said.get("content-type", "application/json")
        response = request.get_response(self.app)
        call = _call_of(method, request.environ["PATH_INFO"])
        if call is not None:
            check(call, response)
        return response

    def do(self, method: str, path: str, body: Any = None) -> Any:
        """Return what is answered to a request that must succeed."""
        response = self.ask(method, path, body)
        assert response.status_int < 300, response.text
        return response.json

    def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Return the status and the code of a refusal."""
        response = self.ask(method, path, body)
        [one] = response.json["errors"]
        assert one["status"] == response.status_int
        return response.status_int, one["code"]


def _call_of(method: str, path: str) -> Call | None:
    for call in CALLS:
        pattern = re.sub(r"\{\w+:path\}", ".+", call.path)
        if call.method == method and re.fullmatch(pattern, path, re.DOTALL):
            return call
    return None


def serving(ledger: Ledger, **said: Any) -> Application:
    """Return a service of a ledger that is there."""
    with mock.patch.object(wsgi, "connect", lambda *given, **options: ledger):
        return application("memory://", auth="noauth2", policy="legacy", **said)


@pytest.fixture
def native() -> Iterator[Native]:
    """A service on an empty ledger in memory."""
    app = application("memory://", auth="noauth2", policy="legacy")
    yield Native(app)
    app.close()
