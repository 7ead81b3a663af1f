"""The microversion of a request.

microversion-parse interprets the header. Its middleware folds every header of a request and makes
every response twice, which is a tenth of the service's work for a PUT. So the few lines around
the header are here; a test compares them with that middleware.
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

#: The number of different headers whose versions are cached.
_CACHED = 256


class Versioned:
    """An application with the microversion at ``<service>.microversion`` of the environment.

    The default is the first version. An unsupported version is a 406, a malformed one a 400.

    :param versions: all versions, in ascending order
    """

    def __init__(self, application: WSGIApplication, service: str, versions: Sequence[str]) -> None:
        self._application, self._service, self._versions = application, service, versions
        self._parsed = functools.lru_cache(_CACHED)(self._parse)

    def _parse(self, header: str | None) -> Version:
        headers = {} if header is None else {STANDARD_HEADER: header}
        return extract_version(headers, self._service, self._versions)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        try:
            version = self._parsed(environ.get("HTTP_OPENSTACK_API_VERSION"))
        except (ValueError, TypeError) as error:
            status = 400 if isinstance(error, TypeError) else 406
            refused = webob.exc.status_map[status](
                f"Invalid microversion: {error}", json_formatter=errors.as_json
            )
            body: Iterable[bytes] = refused(environ, start_response)
            return body
        environ[f"{self._service}.microversion"] = version
        more = [(STANDARD_HEADER, f"{self._service} {version}"), ("vary", STANDARD_HEADER)]

        def start_versioned(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            return start_response(status, [*headers, *more], *error)

        return self._application(environ, start_versioned)
