"""The WSGI application: which handler serves a request, and what is around all of them.

From the outside in: CORS, the request id, the microversion, who asks, the route, the policy, the
handler. Each room below has the routes of its resource, ``(path, {method: (rule, handler)})``.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import webob
import webob.exc
from microversion_parse.middleware import MicroversionMiddleware

from resource_objects import exceptions
from resource_objects.ledger import Ledger, connect
from resource_objects.rest import (
    aggregates,
    allocations,
    candidates,
    errors,
    inventories,
    providers,
    reshaper,
    resource_classes,
    root,
    traits,
    usages,
)
from resource_objects.rest import (
    auth as authentication,
)
from resource_objects.rest.asked import Asked
from resource_objects.rest.policy import Policy

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

LOG = logging.getLogger("resource_objects.rest")

Handler: TypeAlias = Callable[[Asked], webob.Response]
#: What a policy is asked (None: nobody is), and who answers.
Action: TypeAlias = tuple[str | None, Handler]

VERSIONS = [f"1.{minor}" for minor in range(40)]

#: What is no failure of the service, and may go better soon.
_NO_ANSWER = (
    exceptions.DatabaseBusy,
    exceptions.DatabaseUnavailable,
    exceptions.LostConnection,
)
#: What may be asked without a token.
_OPEN = ("/", "/health")

_ROOMS = (
    *(root, resource_classes, traits, providers, inventories, aggregates, usages, allocations),
    *(reshaper, candidates),
)


def application(
    database_url: str,
    *,
    auth: str = "noauth2",
    policy: str = "secure",
    cors_allowed_origin: Iterable[str] = (),
    cors_allow_headers: Iterable[str] = (),
    keystone: Mapping[str, Any] | None = None,
) -> Application:
    """Return a WSGI application that serves a ledger by Placement's API, microversions 1.0 to 1.39.

    One process may have several, of one ledger or of different ones; any number of processes may
    serve one database. ``close()`` of what is returned closes its ledger.

    :param database_url: as for :func:`resource_objects.connect`
    :param auth: ``noauth2`` believes whatever a token says, for tests and a loopback address;
        ``keystone`` asks Keystone
    :param policy: ``secure``, ``legacy``, ``open``, or a file of rules
    :param cors_allowed_origin: origins from which browsers may ask
    :param cors_allow_headers: headers that these may send
    :param keystone: options of ``[keystone_authtoken]``
    :raises InvalidField: for a way of authentication, or a policy, that there is not
    :raises InvalidURL, DatabaseUnavailable, SchemaTooOld: as for ``connect``

    >>> app = application("memory://", policy="legacy")
    >>> webob.Request.blank("/").get_response(app).json["versions"][0]["max_version"]
    '1.39'
    """
    identify, rules = authentication.identify_by(auth), Policy(policy)
    ledger = connect(database_url, actor="rest")
    made: WSGIApplication = Service(ledger, identify, rules)
    made = MicroversionMiddleware(made, "placement", VERSIONS, json_error_formatter=errors.as_json)
    if auth == "keystone":
        made = authentication.behind_keystone(made, keystone)
    made = _Numbered(made)
    origins = list(cors_allowed_origin)
    if origins:
        made = _with_cors(made, origins, list(cors_allow_headers))
    return Application(made, ledger)


class Application:
    """A WSGI application, and the ledger that it serves."""

    def __init__(self, served: WSGIApplication, ledger: Ledger) -> None:
        self._served, self._ledger = served, ledger

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        return self._served(environ, start_response)

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()


def _with_cors(application: WSGIApplication, origins: list[str], headers: list[str]) -> Any:
    from oslo_config import cfg
    from oslo_middleware import cors

    conf = cfg.ConfigOpts()
    conf.register_opts(cors.OPTS, "cors")
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override("allowed_origin", origins, "cors")
    conf.set_override("allow_headers", headers, "cors")
    return cors.CORS(application, conf)


class _Numbered:
    """Gives each request an id, logs it, and fills in what all of them accept."""

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        request = webob.Request(environ)
        environ[errors.REQUEST_ID] = number = f"req-{uuid.uuid4()}"
        if not environ.get("HTTP_ACCEPT") or _takes_json(request):
            environ["HTTP_ACCEPT"] = "application/json"
        try:
            self._check_content(request)
            response = request.get_response(self._application)
        except errors.Refused as refused:
            response = request.get_response(refused.response(environ))
        response.headers["x-openstack-request-id"] = number
        LOG.info(
            '%s %s "%s %s" status: %s len: %s microversion: %s',
            *(number, request.remote_addr, request.method, _said(environ)),
            *(response.status_int, response.content_length, environ.get(errors.VERSION, "-")),
        )
        return response(environ, start_response)

    def _check_content(self, request: webob.Request) -> None:
        """Refuse a length that is none, and a body of which nobody says what it is."""
        length = request.environ.get("CONTENT_LENGTH")
        if not length:
            return
        if not re.fullmatch("[0-9]{1,18}", length):
            raise errors.bad("content-length header must be an integer")
        if int(length) and not request.environ.get("CONTENT_TYPE"):
            raise errors.bad("content-type header required")


class Service:
    """Finds who answers a request, and whether they may ask; turns refusals into replies."""

    def __init__(self, ledger: Ledger, identify: authentication.Identify, policy: Policy) -> None:
        self._ledger, self._identify, self._policy = ledger, identify, policy
        routes: dict[str, Mapping[str, Action]] = {}
        for room in _ROOMS:
            routes.update(room.ROUTES)
        self._routes = [(_pattern(path), methods) for path, methods in routes.items()]

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        response: webob.Response | webob.exc.HTTPException
        try:
            response = self._answer(webob.Request(environ))
        except errors.Refused as refused:
            response = refused.response(environ)
        except exceptions.StaleDefinition as error:  # others were faster each time it was tried
            conflict = errors.conflict(f"update conflict: {error}", errors.CONCURRENT_UPDATE)
            response = conflict.response(environ)
        except _NO_ANSWER as error:
            response = errors.Refused(503, f"The ledger does not answer: {error}").response(environ)
        except Exception:  # whatever it is, who asks is told of it in JSON, and the log of why
            LOG.exception("%s failed", environ.get(errors.REQUEST_ID))
            response = errors.internal(environ)
        told: Iterable[bytes] = response(environ, start_response)
        return told

    def _answer(self, request: webob.Request) -> webob.Response:
        path = _path(request.environ)
        try:
            project = request.GET.get("project_id")
        except UnicodeDecodeError as error:
            raise errors.bad(f"Invalid query string parameters: {error}") from error
        creds = {} if path in _OPEN else self._identify(request.environ)
        found, methods = self._route(path)
        if request.method not in methods:
            raise errors.Refused(
                405,
                f"The method {request.method} is not allowed for this resource.",
                allow=", ".join(methods),
            )
        rule, handler = methods[request.method]
        if request.method == "GET" and not _takes_json(request):
            raise errors.Refused(406, "Only application/json is provided")
        asked = Asked(request, self._ledger, found, creds, self._policy)
        if rule is not None:
            target = {"project_id": project}
            if not self._policy.allows(rule, target, creds):
                raise errors.Refused(403, f"Policy does not allow {rule} to be performed.")
        return handler(asked)

    def _route(self, path: str) -> tuple[Mapping[str, str], Mapping[str, Action]]:
        for pattern, methods in self._routes:
            found = pattern.fullmatch(path)
            if found:
                return found.groupdict(), methods
        raise errors.not_found("")


def _takes_json(request: webob.Request) -> bool:
    """Return whether who asks accepts JSON."""
    return bool(request.accept.acceptable_offers(["application/json"]))


def _said(environ: Mapping[str, Any]) -> str:
    """Return what was asked for, as it is logged."""
    path, query = str(environ.get("PATH_INFO") or "/"), environ.get("QUERY_STRING")
    return ascii(f"{path}?{query}" if query else path)[1:-1]


def _path(environ: Mapping[str, Any]) -> str:
    """Return the path as text; a server hands on its bytes, or what it made of them."""
    said = str(environ.get("PATH_INFO") or "/")
    try:
        return said.encode("latin-1").decode()
    except UnicodeError:
        return said


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))
