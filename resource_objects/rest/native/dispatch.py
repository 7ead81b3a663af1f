"""The layer that selects the API of a request: each API has a version of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from microversion_parse import extract_version

from resource_objects.rest import errors
from resource_objects.rest.native.api import SERVICE, VERSIONS, WAIT_SLOTS, WaitSlots
from resource_objects.rest.versions import Versioned

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

#: Responses of the native API have the headers of Placement's newest version.
_NEWEST = extract_version({}, "placement", [errors.MAX_VERSION])


def version_of(environ: Mapping[str, Any]) -> str | None:
    """Return the version of a request; None before it is known."""
    key = f"{SERVICE}.microversion" if errors.is_native(environ) else errors.VERSION
    version = environ.get(key)
    return None if version is None else str(version)


class Dispatcher:
    """An application that passes requests of the native API to one application, others to another.

    :param threads: the number of threads of the server in this process; one fewer may wait
    """

    def __init__(self, placement: WSGIApplication, native: WSGIApplication, threads: int) -> None:
        self._placement = placement
        self._native = Versioned(native, SERVICE, VERSIONS)
        self._wait_slots = WaitSlots(threads - 1)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if not errors.is_native(environ):
            return self._placement(environ, start_response)
        environ[errors.VERSION] = _NEWEST
        environ[WAIT_SLOTS] = self._wait_slots
        body: Iterable[bytes] = self._native(environ, start_response)
        return body
