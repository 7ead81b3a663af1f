"""The native API: calls that Placement's API lacks, served below ``/ro``.

Reasons of an empty answer, placed amounts, units by name, ``near``, definitions as trees, disabled
providers, and the change feed. Its version is ``resource-objects`` in the header
``OpenStack-API-Version``; clients of Placement are not affected. A
:class:`~resource_objects.rest.native.api.Call` declares a path, with its body and answer by the
names of schemas. The same schemas validate bodies and make up ``/ro/openapi.json``.

===============  ==================================================================================
``api``          calls, errors, threads for requests that wait, and the selection of an API
``schemas``      JSON Schemas of bodies and answers
``document``     the OpenAPI document of all calls
``discovery``    ``/ro``: the versions
``search``       ``/ro/search``
``claims``       ``/ro/claims``, ``/ro/consumers``
``definitions``  ``/ro/providers``, ``/ro/trees``
``service``      ``/ro/disabled``
``feed``         ``/ro/feed``
===============  ==================================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from resource_objects.rest.native import claims, definitions, discovery, feed, search, service
from resource_objects.rest.native.api import DOCUMENT, PREFIX, Call, CheckedRequest
from resource_objects.rest.native.api import Dispatcher as Dispatcher
from resource_objects.rest.native.api import version_of as version_of
from resource_objects.rest.native.document import document


def openapi(request: CheckedRequest) -> dict[str, Any]:
    """Return the OpenAPI document of this API."""
    return _document() | {"servers": [{"url": request.client.url("/")}]}


@functools.cache
def _document() -> dict[str, Any]:
    return document(CALLS)


#: All calls, in the order of the document.
CALLS: tuple[Call, ...] = (
    *discovery.CALLS,
    Call("GET", DOCUMENT, None, openapi, "Document"),
    *search.CALLS,
    *claims.CALLS,
    *definitions.CALLS,
    *service.CALLS,
    *feed.CALLS,
)

#: The paths that need no token.
OPEN = tuple(call.path for call in CALLS if call.rule is None)

#: The rules of the policy.
RULES = tuple(dict.fromkeys(call.rule for call in CALLS if call.rule is not None))


def _routes() -> tuple[tuple[str, Mapping[str, tuple[str | None, Call]]], ...]:
    routes: dict[str, dict[str, tuple[str | None, Call]]] = {}
    for call in CALLS:
        routes.setdefault(call.path, {})[call.method] = (call.rule, call)
    return tuple(routes.items())


ROUTES = _routes()

__all__ = ["CALLS", "OPEN", "PREFIX", "ROUTES", "RULES", "Dispatcher", "version_of"]
