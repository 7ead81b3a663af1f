"""A WSGI application, asked by requests in this process: no socket, no server."""

from __future__ import annotations

import io
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any

import requests.adapters
from keystoneauth1 import adapter, session, token_endpoint

import resource_objects as ro

#: Where the application seems to be.
URL = "http://placement.test"


class WSGITransport(requests.adapters.BaseAdapter):
    """Calls an application for each request, and counts them.

    ``before`` is called with the method and path of each; it may raise what a connection would, and
    may return a function that is called with the response, once it is there.
    """

    def __init__(self, app: Any) -> None:
        super().__init__()
        self.app = app
        self.asked: list[tuple[str, str]] = []
        self.before: Callable[[str, str], Callable[[int], None] | None] = lambda method, path: None

    def send(self, request: Any, *args: Any, **kwargs: Any) -> requests.Response:
        """Return the response to a prepared request."""
        parts = urllib.parse.urlsplit(request.url)
        self.asked.append((request.method, parts.path))
        after = self.before(request.method, parts.path)
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        environ: dict[str, Any] = {
            "REQUEST_METHOD": request.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": urllib.parse.unquote(parts.path or "/"),
            "QUERY_STRING": parts.query,
            "SERVER_NAME": parts.hostname,
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            "CONTENT_LENGTH": str(len(body)),
        }
        for name, value in request.headers.items():
            value = value.decode() if isinstance(value, bytes) else value
            if name.lower() == "content-type":
                environ["CONTENT_TYPE"] = value
            elif name.lower() != "content-length":
                environ["HTTP_" + name.upper().replace("-", "_")] = value
        found = requests.Response()

        def start_response(status: str, headers: Iterable[tuple[str, str]], *error: Any) -> None:
            found.status_code = int(status.split()[0])
            found.reason = status.partition(" ")[2]
            found.headers.update(headers)

        chunks = self.app(environ, start_response)
        try:
            found.raw = io.BytesIO(b"".join(chunks))
        finally:
            if hasattr(chunks, "close"):
                chunks.close()
        found.url, found.request = request.url, request
        found.encoding = "utf-8"
        if after is not None:
            after(found.status_code)
        return found

    def close(self) -> None:
        """Nothing is open."""


def ledger_on(transport: WSGITransport, options: str = "workers=1") -> ro.Ledger:
    """Return a ledger kept in the Placement that a transport asks."""
    return ro.connect(f"placement://?{options}", session=session_for(transport))


def session_for(transport: WSGITransport, roles: str = "admin,service") -> adapter.Adapter:
    """Return an adapter of keystoneauth1 that asks an application as an administrator."""
    inner = requests.Session()
    inner.trust_env = False  # no proxies: nothing leaves this process
    inner.mount(URL, transport)
    made = session.Session(auth=token_endpoint.Token(URL, "admin"), session=inner)
    return adapter.Adapter(
        made,
        service_type="placement",
        endpoint_override=URL,
        additional_headers={"x-roles": roles},
    )
