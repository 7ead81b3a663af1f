"""Errors in Placement's form: a JSON list with status, title, detail and code.

Handlers raise the exceptions that these functions return. Responses contain the code from
microversion 1.23 on. Clients compare codes, and some of them compare the text too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import webob.exc

from resource_objects.exceptions import ResourceObjectsError

LOG = logging.getLogger("resource_objects.rest")

#: Keys of the WSGI environment that :func:`as_json` reads.
REQUEST_ID = "resource_objects.rest.request_id"
VERSION = "placement.microversion"
#: The microversions of Placement's API, oldest first.
VERSIONS = [f"1.{minor}" for minor in range(40)]
MIN_VERSION, MAX_VERSION = VERSIONS[0], VERSIONS[-1]

UNDEFINED = "placement.undefined_code"
CONCURRENT_UPDATE = "placement.concurrent_update"
INVENTORY_IN_USE = "placement.inventory.inuse"
PROVIDER_IN_USE = "placement.resource_provider.inuse"
CANNOT_DELETE_PARENT = "placement.resource_provider.cannot_delete_parent"
PROVIDER_NOT_FOUND = "placement.resource_provider.not_found"
DUPLICATE_NAME = "placement.duplicate_name"
DUPLICATE_KEY = "placement.query.duplicate_key"
BAD_VALUE = "placement.query.bad_value"
MISSING_VALUE = "placement.query.missing_value"

#: The maximum length of a detail: the time to strip tags grows by the square of the length.
MAX_DETAIL = 2000

#: Keys of the WSGI environment with the code, the data and the detail of an error.
_CODE, _DATA = "resource_objects.rest.error_code", "resource_objects.rest.error_data"
_DETAIL = "resource_objects.rest.error_detail"
#: The key that is set if a client of Placement's API requests the data of errors.
WITH_DATA = "resource_objects.rest.with_error_data"
#: The path of the native API, whose errors always have a code.
NATIVE = "/ro"


class Refused(Exception):
    """The refusal of a request: a status, a text, and a code for programs."""

    def __init__(
        self,
        status: int,
        detail: str,
        code: str = UNDEFINED,
        *,
        headers: Mapping[str, str] | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """:param data: further keys of the error object"""
        super().__init__(detail)
        self.status, self.code, self.headers = status, code, dict(headers or {})
        self.data = dict(data or {})

    def response(self, environ: dict[str, Any]) -> webob.exc.HTTPException:
        """Return the response to a request."""
        detail = shortened(str(self), MAX_DETAIL)
        environ[_CODE], environ[_DATA], environ[_DETAIL] = self.code, self.data, detail
        response: webob.exc.HTTPException = webob.exc.status_map[self.status](
            detail, headers=self.headers, json_formatter=as_json
        )
        return response


def bad(detail: str, code: str = UNDEFINED) -> Refused:
    """Return a 400: the request is invalid."""
    return Refused(400, detail, code)


def not_found(detail: str) -> Refused:
    """Return a 404: the resource of the path does not exist."""
    return Refused(404, detail)


def conflict(detail: str, code: str = UNDEFINED) -> Refused:
    """Return a 409: the request contradicts the stored state."""
    return Refused(409, detail, code)


def shortened(text: str, length: int) -> str:
    """Return a text of at most a length: its beginning and its end.

    >>> shortened("aaaaaaaaaaaaaaaaaaaa is too long", 29)
    'aaaaaaaaaaaa ...  is too long'
    """
    half = (length - 5) // 2
    return text if len(text) <= length else f"{text[:half]} ... {text[-half:]}"


def as_json(*, body: str, status: str, title: str, environ: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON body of an error. WebOb calls this function."""
    number = int(status.split()[0])
    error: dict[str, Any] = {
        "status": number,
        "title": title,
        "detail": webob.exc.strip_tags(body[: 2 * MAX_DETAIL]),  # type: ignore[attr-defined]
        "request_id": environ.get(REQUEST_ID, ""),
    }
    version = environ.get(VERSION)
    code = environ.get(_CODE, UNDEFINED)
    if is_native(environ):
        error["detail"] = environ.get(_DETAIL) or error["detail"].strip()
        error["code"] = title.replace(" ", "") if code == UNDEFINED else code
        return {"errors": [error | environ.get(_DATA, {})]}
    if version is not None and version.matches((1, 23)):
        error["code"] = code
    if WITH_DATA in environ:
        error |= environ.get(_DATA, {})
    if version is None and number == 406:
        error |= {"max_version": MAX_VERSION, "min_version": MIN_VERSION}
    return {"errors": [error]}


def is_native(environ: Mapping[str, Any]) -> bool:
    """Return True if a request is for the native API."""
    return f"{environ.get('PATH_INFO') or ''}/".startswith(f"{NATIVE}/")


def unavailable(environ: dict[str, Any], error: ResourceObjectsError) -> webob.exc.HTTPException:
    """Return the 503 of an unavailable ledger. Only the log contains its address."""
    LOG.warning("%s: %s", environ.get(REQUEST_ID), error)
    code = error.code if is_native(environ) else UNDEFINED
    return Refused(503, "The ledger does not answer; the log tells why.", code).response(environ)


def internal(environ: dict[str, Any]) -> webob.exc.HTTPException:
    """Return the 500 of an unexpected error. The log contains the error."""
    return Refused(500, "The server failed; its log tells more by the request id.").response(
        environ
    )


def body_text(value: dict[str, Any]) -> bytes:
    """Return a value as JSON."""
    return json.dumps(value, separators=(", ", ": ")).encode()
