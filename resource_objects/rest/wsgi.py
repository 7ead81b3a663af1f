"""The WSGI application: the table of routes, and the layers around all of them.

From the outside in: CORS, request id and log, microversion, authentication, route, policy, handler.
Each module of a resource has its ``ROUTES``: ``(path, {method: (rule, handler)})``.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import webob
import webob.exc
from microversion_parse.middleware import MicroversionMiddleware

from resource_objects import clock
from resource_objects.exceptions import DatabaseError, InvalidInput, Stale
from resource_objects.ledger import Ledger, connect
from resource_objects.rest import (
    aggregates,
    allocations,
    candidates,
    errors,
    inventories,
    native,
    providers,
    reshaper,
    resource_classes,
    root,
    traits,
    usages,
)
from resource_objects.rest import auth as authentication
from resource_objects.rest import metrics as request_metrics
from resource_objects.rest.policy import Policy
from resource_objects.rest.request import ClientRequest, accepts_json

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

LOG = logging.getLogger("resource_objects.rest")

Handler: TypeAlias = Callable[[ClientRequest], webob.Response]
#: The rule of the policy (None: no authorization), and the handler.
Action: TypeAlias = tuple[str | None, Handler]

#: The form of a request id among OpenStack's services.
_REQUEST_ID = "req-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"

_MODULES = (
    *(root, resource_classes, traits, providers, inventories, aggregates, usages, allocations),
    *(reshaper, candidates, native),
)


def application(
    database_url: str,
    *,
    auth: str,
    policy: str = "secure",
    cors_allowed_origin: Iterable[str] = (),
    cors_allow_headers: Iterable[str] = (),
    password_file: str | os.PathLike[str] | None = None,
    roles_file: str | os.PathLike[str] | None = None,
    keystone: Mapping[str, Any] | None = None,
    keystone_file: str | os.PathLike[str] | None = None,
    metrics: request_metrics.Hook | str | None = None,
    threads: int = 1,
) -> Application:
    """Return a WSGI application that serves a ledger by Placement's API, microversions 1.0 to 1.39.

    The native API is served below ``/ro`` (:mod:`resource_objects.rest.native`).

    A process may have several applications, of one ledger or of different ones. Any number of
    processes may serve one database. ``close()`` of the application closes its ledger.

    :param database_url: as for :func:`resource_objects.connect`
    :param auth: ``noauth2`` accepts every token of a client on this machine, for tests;
        ``http_basic`` checks passwords, for a lab; ``keystone`` validates tokens by Keystone. There
        is no default
    :param policy: ``secure``, ``legacy``, ``open``, or a file of rules
    :param password_file: for ``http_basic``: lines ``user:$2y$...``, as ``htpasswd -B`` makes them
    :param roles_file: for ``http_basic``: lines ``user:role,role`` or ``user:role,role:project``
    :param cors_allowed_origin: the origins of browsers that may send requests
    :param cors_allow_headers: the headers that they may send
    :param keystone: options of ``[keystone_authtoken]``, which override those of the file
    :param keystone_file: a configuration file with that section, such as Placement's
    :param metrics: a hook that is called for each request, or the name of its entry point, see
        :mod:`~resource_objects.rest.metrics`
    :param threads: the number of threads of the server in this process. At least one of them is
        reserved for requests that do not wait (for the change feed, or for a claim)
    :raises InvalidInput: for an unknown kind of authentication or policy; for a file that does not
        exist or is invalid, with the line
    :raises InvalidInput, DatabaseError: as for ``connect``

    >>> app = application("memory://", auth="noauth2", policy="legacy")
    >>> webob.Request.blank("/").get_response(app).json["versions"][0]["max_version"]
    '1.39'
    """
    identify = authentication.identify_by(auth, password_file, roles_file)
    rules, hook = Policy(policy), request_metrics.load_hook(metrics)
    if auth != "keystone" and (keystone or keystone_file is not None):
        raise InvalidInput("field", "keystone", auth, "auth keystone with options of it")
    ledger = connect(database_url, actor="rest")
    try:
        service = Service(ledger, identify, rules)
        layers: WSGIApplication = MicroversionMiddleware(
            service, "placement", errors.VERSIONS, json_error_formatter=errors.as_json
        )
        layers = native.Dispatcher(layers, service, threads)
        if auth == "keystone":
            layers = authentication.BehindKeystone(layers, keystone, keystone_file)
        layers = RequestLog(layers, hook)
        origins = list(cors_allowed_origin)
        if origins:
            layers = _with_cors(layers, origins, list(cors_allow_headers))
    except BaseException:
        ledger.close()
        raise
    return Application(layers, ledger)


class Application:
    """A WSGI application and its ledger."""

    def __init__(self, layers: WSGIApplication, ledger: Ledger) -> None:
        self._layers, self.ledger = layers, ledger
        #: ``{path: {method: rule}}``: the names of policy rules; None for no authorization
        self.routes = {
            path: {method: rule for method, (rule, _) in methods.items()}
            for module in _MODULES
            for path, methods in module.ROUTES
        }

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        return self._layers(environ, start_response)

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()


def _with_cors(application: WSGIApplication, origins: list[str], headers: list[str]) -> Any:
    from oslo_config import cfg
    from oslo_middleware import cors

    conf = cfg.ConfigOpts()
    conf.register_opts(cors.OPTS, "cors")
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override("allowed_origin", origins, "cors")
    conf.set_override("allow_headers", headers, "cors")
    return cors.CORS(application, conf)


class RequestLog:
    """An application that assigns an id to each request, and logs and counts the request."""

    def __init__(self, application: WSGIApplication, hook: request_metrics.Hook | None) -> None:
        self._application, self._hook = application, hook

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        started_at = 0.0 if self._hook is None else clock.monotonic()
        http = webob.Request(environ)
        environ[errors.REQUEST_ID] = request_id = f"req-{uuid.uuid4()}"
        if not environ.get("HTTP_ACCEPT") or accepts_json(http):
            environ["HTTP_ACCEPT"] = "application/json"
        start = _StartResponse(start_response, request_id)
        try:
            body = self._application(environ, start)
        except Exception:  # of a layer around the service, which handles its own exceptions
            LOG.exception("%s failed", request_id)
            body = errors.internal(environ)(environ, start)
        version = native.version_of(environ)
        LOG.info(
            '%s%s %s "%s %s" status: %s len: %s microversion: %s',
            *(request_id, _client_request_id(environ), http.remote_addr, http.method),
            *(_printable_path(environ), start.status, start.length, version or "-"),
        )
        if self._hook is not None:
            answered = request_metrics.Answered(
                request_metrics.method_of(environ),
                environ.get(request_metrics.ROUTE, ""),
                start.status,
                clock.monotonic() - started_at,
                version,
                request_id,
            )
            request_metrics.call_hook(self._hook, answered)
        return body


class _StartResponse:
    """A ``start_response`` that adds the request id and records the status and length."""

    def __init__(self, start_response: StartResponse, request_id: str) -> None:
        self._start_response, self._request_id = start_response, request_id
        self.status, self.length = 0, "None"

    def __call__(self, status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
        self.status = int(status[:3])
        lengths = (value for name, value in headers if name.lower() == "content-length")
        self.length = next(lengths, "None")
        headers = [*headers, ("x-openstack-request-id", self._request_id)]
        return self._start_response(status, headers, *error)


class Service:
    """Authenticates and authorizes a request, calls its handler, and handles exceptions."""

    def __init__(self, ledger: Ledger, identify: authentication.Identify, policy: Policy) -> None:
        self._ledger, self._identify, self._policy = ledger, identify, policy
        routes: dict[str, Mapping[str, Action]] = {}
        for module in _MODULES:
            routes.update(module.ROUTES)
        self._routes = [(path, _pattern(path), methods) for path, methods in routes.items()]

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        response: webob.Response | webob.exc.HTTPException
        try:
            response = self._answer(webob.Request(environ))
        except errors.Refused as refused:
            response = refused.response(environ)
        except Stale as error:  # after all retries
            conflict = errors.conflict(f"update conflict: {error}", errors.CONCURRENT_UPDATE)
            response = conflict.response(environ)
        except DatabaseError as error:
            response = errors.unavailable(environ, error)
        except Exception:  # the client gets JSON for every error, and the log the cause
            LOG.exception("%s failed", environ.get(errors.REQUEST_ID))
            response = errors.internal(environ)
        body: Iterable[bytes] = response(environ, start_response)
        return body

    def _answer(self, http: webob.Request) -> webob.Response:
        path = _path(http.environ)
        creds = {} if path in authentication.OPEN else self._identify(http.environ)
        _check_content(http)
        http.environ[request_metrics.ROUTE], parts, methods = self._route(path)
        if http.method not in methods:
            raise errors.Refused(
                405,
                "The method specified is not allowed for this resource.",
                headers={"Allow": ", ".join(methods)},
            )
        rule, handler = methods[http.method]
        if rule is not None and not self._policy.allows(rule, _target(rule, http, creds), creds):
            raise errors.Refused(403, f"Policy does not allow {rule} to be performed.")
        return handler(ClientRequest(http, self._ledger_of(creds), parts))

    def _ledger_of(self, creds: Mapping[str, Any]) -> Ledger:
        """Return the ledger with the client's user as the actor. Cost: 10 microseconds."""
        user = creds.get("user_id")
        try:
            return self._ledger.with_actor(user) if user else self._ledger
        except InvalidInput:  # the change feed cannot contain this name
            return self._ledger

    def _route(self, path: str) -> tuple[str, Mapping[str, str], Mapping[str, Action]]:
        for route, pattern, methods in self._routes:
            match = pattern.fullmatch(path)
            if match:
                return route, match.groupdict(), methods
        raise errors.not_found("")


def _target(rule: str, http: webob.Request, creds: Mapping[str, Any]) -> dict[str, Any]:
    if rule != usages.RULE_OF_PROJECT:
        return {name: creds.get(name) for name in ("project_id", "user_id")}
    try:
        return {"project_id": http.GET.get("project_id")}
    except UnicodeDecodeError:  # the handler rejects the query
        return {"project_id": None}


def _check_content(http: webob.Request) -> None:
    length = http.environ.get("CONTENT_LENGTH")
    if not length:
        return
    if not re.fullmatch("[0-9]{1,18}", length):
        raise errors.bad("content-length header must be an integer")
    if int(length) and not http.environ.get("CONTENT_TYPE"):
        raise errors.bad("content-type header required when content-length > 0")


def _client_request_id(environ: Mapping[str, Any]) -> str:
    """Return the id of the client's own request as text for the log, if there is a valid one.

    >>> number = "req-1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"
    >>> _client_request_id({"HTTP_X_OPENSTACK_REQUEST_ID": number}) == f" (of {number})"
    True
    >>> _client_request_id({"HTTP_X_OPENSTACK_REQUEST_ID": "req-1 was here"})
    ''
    """
    request_id = str(environ.get("HTTP_X_OPENSTACK_REQUEST_ID", ""))
    return f" (of {request_id})" if re.fullmatch(_REQUEST_ID, request_id) else ""


def _printable_path(environ: Mapping[str, Any]) -> str:
    path, query = str(environ.get("PATH_INFO") or "/"), environ.get("QUERY_STRING")
    return ascii(f"{path}?{query}" if query else path)[1:-1]


def _path(environ: Mapping[str, Any]) -> str:
    """Return the decoded path. Servers pass its bytes as latin-1, or decode it themselves."""
    path = str(environ.get("PATH_INFO") or "/")
    try:
        return path.encode("latin-1").decode()
    except UnicodeError:
        return path


def _pattern(path: str) -> re.Pattern[str]:
    """Return the pattern of a path: ``{name}`` matches a part, ``{name:path}`` several parts.

    >>> _pattern("/ro/trees/{provider:path}").fullmatch("/ro/trees/host0/gpu0")["provider"]
    'host0/gpu0'
    """
    pattern = re.sub(r"\{(\w+):path\}", r"(?P<\1>.+)", path)
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern), re.DOTALL)
