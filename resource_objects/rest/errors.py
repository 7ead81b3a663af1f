"""Refusals as Placement tells them: a JSON list with status, title, detail and a code.

Handlers raise what these functions return. The code of an error is told from microversion 1.23 on;
clients compare it, and some of them compare the text too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import webob.exc

from resource_objects.exceptions import ResourceObjectsError

LOG = logging.getLogger("resource_objects.rest")

#: Where the words of an error come from that is made by others: see :func:`as_json`.
REQUEST_ID = "resource_objects.rest.request_id"
VERSION = "placement.microversion"
MIN_VERSION, MAX_VERSION = "1.0", "1.39"

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

#: A refusal says at most so many characters: to strip tags of more takes time by their square.
MAX_DETAIL = 2000

#: Where the code of an error waits until it is told, and what stands beside it.
_CODE, _FACTS = "resource_objects.rest.error_code", "resource_objects.rest.error_facts"
_DETAIL = "resource_objects.rest.error_detail"
#: Set where a client of Placement's API is told what stands beside an error.
TELLS_FACTS = "resource_objects.rest.tells_facts"
#: Below this is the native API, of which each error has a code.
NATIVE = "/ro"


class Refused(Exception):
    """A request is refused: with a status, a text, and a code for programs."""

    def __init__(
        self,
        status: int,
        detail: str,
        code: str = UNDEFINED,
        *,
        headers: Mapping[str, str] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """:param facts: what stands beside the text as data"""
        super().__init__(detail)
        self.status, self.code, self.headers = status, code, dict(headers or {})
        self.facts = dict(facts or {})

    def response(self, environ: dict[str, Any]) -> webob.exc.HTTPException:
        """Return it as a response to a request."""
        detail = shortened(str(self), MAX_DETAIL)
        environ[_CODE], environ[_FACTS], environ[_DETAIL] = self.code, self.facts, detail
        made: webob.exc.HTTPException = webob.exc.status_map[self.status](
            detail, headers=self.headers, json_formatter=as_json
        )
        return made


def bad(detail: str, code: str = UNDEFINED) -> Refused:
    """Return the refusal of a request that cannot be."""
    return Refused(400, detail, code)


def not_found(detail: str) -> Refused:
    """Return the refusal of what is not there."""
    return Refused(404, detail)


def conflict(detail: str, code: str = UNDEFINED) -> Refused:
    """Return the refusal of what does not go with what is kept."""
    return Refused(409, detail, code)


def shortened(text: str, most: int) -> str:
    """Return a text of at most so many characters: its begin and its end.

    >>> shortened("aaaaaaaaaaaaaaaaaaaa is too long", 29)
    'aaaaaaaaaaaa ...  is too long'
    """
    half = (most - 5) // 2
    return text if len(text) <= most else f"{text[:half]} ... {text[-half:]}"


def as_json(*, body: str, status: str, title: str, environ: dict[str, Any]) -> dict[str, Any]:
    """Return an error as Placement's body of it; WebOb asks for it."""
    number = int(status.split()[0])
    told: dict[str, Any] = {
        "status": number,
        "title": title,
        "detail": webob.exc.strip_tags(body[: 2 * MAX_DETAIL]),  # type: ignore[attr-defined]
        "request_id": environ.get(REQUEST_ID, ""),
    }
    version = environ.get(VERSION)
    code = environ.get(_CODE, UNDEFINED)
    if is_native(environ):
        told |= {"detail": environ.get(_DETAIL) or told["detail"].strip(), **_native(code, title)}
        return {"errors": [told | environ.get(_FACTS, {})]}
    if version is not None and version.matches((1, 23)):
        told["code"] = code
    if TELLS_FACTS in environ:
        told |= environ.get(_FACTS, {})
    if version is None and number == 406:
        told |= {"max_version": MAX_VERSION, "min_version": MIN_VERSION}
    return {"errors": [told]}


def is_native(environ: Mapping[str, Any]) -> bool:
    """Return whether a request is for the native API."""
    return f"{environ.get('PATH_INFO') or ''}/".startswith(f"{NATIVE}/")


def _native(code: str, title: str) -> dict[str, Any]:
    """Return the code of an error of the native API: a name, where there is none the status's.

    >>> _native(UNDEFINED, "Not Found")
    {'code': 'NotFound'}
    """
    return {"code": title.replace(" ", "") if code == UNDEFINED else code}


def no_answer(environ: dict[str, Any], error: ResourceObjectsError) -> webob.exc.HTTPException:
    """Return the response where the ledger does not answer; the log alone tells where it is."""
    LOG.warning("%s: %s", environ.get(REQUEST_ID), error)
    code = error.code if is_native(environ) else UNDEFINED
    return Refused(503, "The ledger does not answer; the log tells why.", code).response(environ)


def internal(environ: dict[str, Any]) -> webob.exc.HTTPException:
    """Return the response where something failed that nobody meant to: the log knows what."""
    return Refused(500, "The server failed; its log tells more by the request id.").response(
        environ
    )


def body_text(made: dict[str, Any]) -> bytes:
    """Return JSON as bytes."""
    return json.dumps(made, separators=(", ", ": ")).encode()
