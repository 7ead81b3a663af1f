"""What stands before the service: requests of the native API have a version of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from microversion_parse import extract_version

from resource_objects.rest import errors
from resource_objects.rest.native.api import SERVICE, VERSIONS, WAITING, Waiting
from resource_objects.rest.versions import Versioned

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

#: Replies are made as for the newest clients of Placement.
_NEWEST = extract_version({}, "placement", [errors.MAX_VERSION])


def version_of(environ: Mapping[str, Any]) -> str | None:
    """Return the version of its API that a request is of; None before that is known."""
    key = f"{SERVICE}.microversion" if errors.is_native(environ) else errors.VERSION
    found = environ.get(key)
    return None if found is None else str(found)


class Beside:
    """Hands a request of the native API to one application, and all others to another one.

    :param threads: how many the server has in this process; one fewer requests may wait
    """

    def __init__(self, placement: WSGIApplication, native: WSGIApplication, threads: int) -> None:
        self._placement = placement
        self._native = Versioned(native, SERVICE, VERSIONS)
        self._waiting = Waiting(threads - 1)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if not errors.is_native(environ):
            return self._placement(environ, start_response)
        environ[errors.VERSION] = _NEWEST
        environ[WAITING] = self._waiting
        answered: Iterable[bytes] = self._native(environ, start_response)
        return answered
