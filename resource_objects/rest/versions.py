"""The microversion of a request: found, given to the application, and told in its answer.

What the header means is microversion-parse's to say. Its middleware folds every header of a request
and makes every answer a second time, which is a tenth of what the service itself does for a PUT; so
the lines around the header stand here, and a test holds both to the same answers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import webob.exc
from microversion_parse import STANDARD_HEADER, Version, extract_version

from resource_objects.rest import errors

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

#: Headers of so many wordings are remembered.
_REMEMBERED = 256


class Versioned:
    """An application that finds the microversion at ``<service>.microversion`` of its environment.

    Without a header it is the first one. One that there is not is a 406, what is none a 400.

    :param versions: all that there are, in their order
    """

    def __init__(self, application: WSGIApplication, service: str, versions: Sequence[str]) -> None:
        self._application, self._service, self._versions = application, service, versions
        self._said = functools.lru_cache(_REMEMBERED)(self._read)

    def _read(self, header: str | None) -> Version:
        said = {} if header is None else {STANDARD_HEADER: header}
        return extract_version(said, self._service, self._versions)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        try:
            version = self._said(environ.get("HTTP_OPENSTACK_API_VERSION"))
        except (ValueError, TypeError) as error:
            status = 400 if isinstance(error, TypeError) else 406
            refused = webob.exc.status_map[status](
                f"Invalid microversion: {error}", json_formatter=errors.as_json
            )
            told: Iterable[bytes] = refused(environ, start_response)
            return told
        environ[f"{self._service}.microversion"] = version
        more = [(STANDARD_HEADER, f"{self._service} {version}"), ("vary", STANDARD_HEADER)]

        def started(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            return start_response(status, [*headers, *more], *error)

        return self._application(environ, started)
