"""A hook for what counts requests: called once for each, with what became of it.

    def count(answered):
        REQUESTS.labels(answered.method, answered.route, answered.status).observe(answered.seconds)

It is given to :func:`~resource_objects.rest.wsgi.application`, or declared as an entry point of
``resource_objects.rest.metrics`` and named: ``resource-objects serve --metrics NAME``.
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

#: Where the route of a request is told.
ROUTE = "resource_objects.rest.route"


@dataclasses.dataclass(frozen=True, slots=True)
class Answered:
    """A request that was answered. It names nobody and nothing: there are few of its kind.

    >>> Answered("GET", "/traits/{name}", 204, 0.0012, "1.39", "req-1").route
    '/traits/{name}'
    """

    #: ``GET`` and the like, in capitals; ``OTHER`` for what no route has
    method: str
    #: the path, with the names of what differs in place of it; empty if there is no such path
    route: str
    status: int
    #: from when the request had come until there was an answer to send
    seconds: float
    #: such as ``1.39``, or the native API's; None if the request was refused before it was known
    microversion: str | None
    #: as in the log and in ``x-openstack-request-id``
    request_id: str


Hook = Callable[[Answered], object]

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def hook_of(given: Hook | str | None) -> Hook | None:
    """Return a hook, which may be given by the name of its entry point.

    :raises PluginError: if there is none of that name, or it does not load
    :raises InvalidInput: for what cannot be called
    """
    found: Any = plugins.load(NAMESPACE, given) if isinstance(given, str) else given
    if found is not None and not callable(found):
        raise InvalidInput("field", "metrics", given, "what can be called with a request")
    hook: Hook | None = found
    return hook


def method_of(environ: dict[str, Any]) -> str:
    """Return the method of a request as it is counted: a client may say whatever it likes."""
    said = str(environ.get("REQUEST_METHOD"))
    return said if said in _METHODS else "OTHER"


def tell(hook: Hook, answered: Answered) -> None:
    """Call a hook; if it fails the request is answered all the same, and the log says why."""
    try:
        hook(answered)
    except Exception:  # it is not ours, and may fail in any way
        LOG.exception("%s: the metrics hook failed", answered.request_id)
