"""The table of Placement's errors, ``placement_errors.yaml``, and how an answer is held to it."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import webob
import yaml

Row: TypeAlias = dict[str, Any]

_NAMES = ("HOST", "CHILD", "OTHER", "EMPTY", "NONE", "USER", "NEW", "NOWHERE")
_UUIDS = {name: f"00000000-0000-4000-8000-{n:012d}" for n, name in enumerate(_NAMES, 1)}
_TABLE = yaml.safe_load(
    string.Template(Path(__file__).with_suffix(".yaml").read_text()).safe_substitute(_UUIDS)
)
ERRORS: list[Row] = _TABLE["errors"]
_UNDEFINED = "placement.undefined_code"
_BY_WEBOB = re.compile(r"^(The server could not|There was a conflict|The resource could)[^\n]*\n+ ")


def send(app: Any, row: Row) -> webob.Response:
    """Return the answer of a WSGI application to the request of a row."""
    method, path = row["request"].split(" ", 1)
    headers = {
        "x-auth-token": "admin",
        "x-roles": "admin,service,member,reader",
        "accept": "application/json",
        "openstack-api-version": f"placement {row.get('version', '1.39')}",
    }
    request = webob.Request.blank(path, method=method, headers=headers)
    if "body" in row or "raw" in row:
        request.content_type = "application/json"
        request.body = row["raw"].encode() if "raw" in row else json.dumps(row["body"]).encode()
    request.headers.update(row.get("headers", {}))
    return request.get_response(app)


def start(app: Any) -> None:
    """Bring an empty service into the state in which each row is requested."""
    for row in _TABLE["start"]:
        answer = send(app, row)
        assert answer.status_int < 300, (row["request"], answer.text)


def check(app: Any, row: Row, *, is_placement: bool) -> None:
    """Assert that the answer to a row has its status, code and text."""
    answer = send(app, row)
    assert answer.status_int == row["status"], answer.text
    is_json = answer.content_type == "application/json"
    error = answer.json["errors"][0] if is_json else {"detail": answer.text}
    code = row.get("code", _UNDEFINED)
    assert error.get("code", code) == (code if is_placement else row.get("code_here", code))
    text = _BY_WEBOB.sub("", error["detail"].strip()).split("Failed validating")[0].strip()
    equals: Callable[[str], bool] = text.startswith if "goes_on" in row else text.__eq__
    assert equals(row["text"]), text
