"""A hook that counts requests. The service calls it once after each response.

    def count(answered):
        REQUESTS.labels(answered.method, answered.route, answered.status).observe(answered.seconds)

The hook is an argument of :func:`~resource_objects.rest.wsgi.application`, or an entry point of
``resource_objects.rest.metrics`` named by ``resource-objects serve --metrics NAME``.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

from resource_objects import plugins
from resource_objects.exceptions import InvalidInput

LOG = logging.getLogger("resource_objects.rest")

NAMESPACE = "resource_objects.rest.metrics"

#: The key of the WSGI environment with the route of a request.
ROUTE = "resource_objects.rest.route"


@dataclasses.dataclass(frozen=True, slots=True)
class Answered:
    """An answered request, without names of users and resources: it has few distinct values.

    >>> Answered("GET", "/traits/{name}", 204, 0.0012, "1.39", "req-1").route
    '/traits/{name}'
    """

    #: the method in capitals; ``OTHER`` for a method without any route
    method: str
    #: the pattern of the path; empty for an unknown path
    route: str
    status: int
    #: from the arrival of the request until the response was complete
    seconds: float
    #: such as ``1.39``, or the native API's; None if the request was refused before it was known
    microversion: str | None
    #: as in the log and in ``x-openstack-request-id``
    request_id: str


Hook = Callable[[Answered], object]

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def load_hook(hook: Hook | str | None) -> Hook | None:
    """Return a hook, which may be specified by the name of its entry point.

    :raises PluginError: if there is no entry point of this name, or it does not load
    :raises InvalidInput: if the hook is not callable
    """
    loaded: Any = plugins.load(NAMESPACE, hook) if isinstance(hook, str) else hook
    if loaded is not None and not callable(loaded):
        raise InvalidInput("field", "metrics", hook, "what can be called with a request")
    callable_hook: Hook | None = loaded
    return callable_hook


def method_of(environ: dict[str, Any]) -> str:
    """Return the method of a request, or ``OTHER``: a client may send any word."""
    method = str(environ.get("REQUEST_METHOD"))
    return method if method in _METHODS else "OTHER"


def call_hook(hook: Hook, answered: Answered) -> None:
    """Call a hook. An exception of the hook is logged and does not affect the response."""
    try:
        hook(answered)
    except Exception:  # a hook is foreign code and may raise anything
        LOG.exception("%s: the metrics hook failed", answered.request_id)
