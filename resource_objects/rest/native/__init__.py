"""The native API: what Placement's cannot say, served beside it below ``/ro``.

Reasons of an empty answer, amounts that say where they go, units by name, ``near``, definitions as
trees, what is out of service, and the change feed. Its version is called ``resource-objects`` in
the header ``OpenStack-API-Version``; clients of Placement never meet any of it. A path, what it
takes and what it answers are said once, by a :class:`~resource_objects.rest.native.api.Call` and
the schemas it names: bodies are checked by these, and ``/ro/openapi.json`` shows them.

===============  ==================================================================================
``api``          what a call is; refusals; places for those who wait
``schemas``      bodies and answers (JSON Schema)
``document``     the OpenAPI document of all calls
``discovery``    ``/ro``: versions
``search``       ``/ro/search``
``claims``       ``/ro/claims``, ``/ro/consumers``
``definitions``  ``/ro/providers``, ``/ro/trees``
``service``      ``/ro/disabled``
``feed``         ``/ro/feed``
``beside``       what stands before the service: whose version a request says
===============  ==================================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from resource_objects.rest.native import claims, definitions, discovery, feed, search, service
from resource_objects.rest.native.api import PREFIX, Call, Given
from resource_objects.rest.native.beside import Beside as Beside
from resource_objects.rest.native.beside import version_of as version_of
from resource_objects.rest.native.document import document


def openapi(given: Given) -> dict[str, Any]:
    """Return the OpenAPI document of this API."""
    return _made() | {"servers": [{"url": given.asked.url("/")}]}


@functools.cache
def _made() -> dict[str, Any]:
    return document(CALLS)


#: All calls, in the order of the document.
CALLS: tuple[Call, ...] = (
    *discovery.CALLS,
    Call("GET", discovery.DOCUMENT, None, openapi, "Document"),
    *search.CALLS,
    *claims.CALLS,
    *definitions.CALLS,
    *service.CALLS,
    *feed.CALLS,
)

#: What may be asked without a token.
OPEN = tuple(call.path for call in CALLS if call.rule is None)

#: The rules of policy.
RULES = tuple(dict.fromkeys(call.rule for call in CALLS if call.rule is not None))


def _routes() -> tuple[tuple[str, Mapping[str, tuple[str | None, Call]]], ...]:
    found: dict[str, dict[str, tuple[str | None, Call]]] = {}
    for call in CALLS:
        found.setdefault(call.path, {})[call.method] = (call.rule, call)
    return tuple(found.items())


ROUTES = _routes()

__all__ = ["CALLS", "OPEN", "PREFIX", "ROUTES", "RULES", "Beside", "version_of"]
