"""The WSGI application: which handler serves a request, and what is around all of them.

From the outside in: CORS, the request id, the microversion, who asks, the route, the policy, the
handler. Each room below has the routes of its resource, ``(path, {method: (rule, handler)})``.
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
from resource_objects.rest import metrics as metering
from resource_objects.rest.asked import Asked, accepts_json
from resource_objects.rest.policy import Policy
from resource_objects.rest.versions import Versioned

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

LOG = logging.getLogger("resource_objects.rest")

Handler: TypeAlias = Callable[[Asked], webob.Response]
#: What a policy is asked (None: nobody is), and who answers.
Action: TypeAlias = tuple[str | None, Handler]

#: As OpenStack's services say it to each other.
_REQUEST_ID = "req-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"

VERSIONS = [f"1.{minor}" for minor in range(40)]

_ROOMS = (
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
    metrics: metering.Hook | str | None = None,
    threads: int = 1,
) -> Application:
    """Return a WSGI application that serves a ledger by Placement's API, microversions 1.0 to 1.39.

    Beside it, below ``/ro``, is what that API cannot say (:mod:`resource_objects.rest.native`).

    One process may have several, of one ledger or of different ones; any number of processes may
    serve one database. ``close()`` of what is returned closes its ledger.

    :param database_url: as for :func:`resource_objects.connect`
    :param auth: ``noauth2`` believes whatever a token says, if who asks is on this machine, for
        tests; ``http_basic`` asks for a password, for a lab; ``keystone`` asks Keystone. Nobody is
        believed unless it is said by whom
    :param policy: ``secure``, ``legacy``, ``open``, or a file of rules
    :param password_file: for ``http_basic``: ``user:$2y$...`` as ``htpasswd -B`` makes it
    :param roles_file: for ``http_basic``: ``user:role,role`` or ``user:role,role:project``
    :param cors_allowed_origin: origins from which browsers may ask
    :param cors_allow_headers: headers that these may send
    :param keystone: options of ``[keystone_authtoken]``, which go before those of the file
    :param keystone_file: a configuration with that section, such as Placement's
    :param metrics: is called for each request, see :mod:`~resource_objects.rest.metrics`; or the
        name of its entry point
    :param threads: how many the server runs in this process: of requests that wait (the feed of
        :mod:`resource_objects.rest.native`) there is at any time at least one fewer
    :raises InvalidInput: for a way of authentication, or a policy, that there is not; for a file
        that is not there, or says what cannot be, with the line
    :raises InvalidInput, DatabaseError: as for ``connect``

    >>> app = application("memory://", auth="noauth2", policy="legacy")
    >>> webob.Request.blank("/").get_response(app).json["versions"][0]["max_version"]
    '1.39'
    """
    identify = authentication.identify_by(auth, password_file, roles_file)
    rules, hook = Policy(policy), metering.hook_of(metrics)
    if auth != "keystone" and (keystone or keystone_file is not None):
        raise InvalidInput("field", "keystone", auth, "auth keystone with options of it")
    ledger = connect(database_url, actor="rest")
    try:
        service = Service(ledger, identify, rules)
        made: WSGIApplication = Versioned(service, "placement", VERSIONS)
        made = native.Beside(made, service, threads)
        if auth == "keystone":
            made = authentication.BehindKeystone(made, keystone, keystone_file)
        made = Numbered(made, hook)
        origins = list(cors_allowed_origin)
        if origins:
            made = _with_cors(made, origins, list(cors_allow_headers))
    except BaseException:
        ledger.close()
        raise
    return Application(made, ledger)


class Application:
    """A WSGI application, and the ledger that it serves."""

    def __init__(self, served: WSGIApplication, ledger: Ledger) -> None:
        self._served, self.ledger = served, ledger
        #: ``{path: {method: rule}}``, rules by the names of policies; None: nobody is asked
        self.routes = {
            path: {method: rule for method, (rule, _) in methods.items()}
            for room in _ROOMS
            for path, methods in room.ROUTES
        }

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        return self._served(environ, start_response)

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


class Numbered:
    """Gives each request an id, logs and counts it, and fills in what all of them accept."""

    def __init__(self, application: WSGIApplication, hook: metering.Hook | None) -> None:
        self._application, self._hook = application, hook

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        began = 0.0 if self._hook is None else clock.monotonic()
        request = webob.Request(environ)
        environ[errors.REQUEST_ID] = number = f"req-{uuid.uuid4()}"
        if not environ.get("HTTP_ACCEPT") or accepts_json(request):
            environ["HTTP_ACCEPT"] = "application/json"
        begun = _Begun(start_response, number)
        try:
            answer = self._application(environ, begun)
        except Exception:  # of what stands before the service: it is told as the service's own
            LOG.exception("%s failed", number)
            answer = errors.internal(environ)(environ, begun)
        version = native.version_of(environ)
        LOG.info(
            '%s%s %s "%s %s" status: %s len: %s microversion: %s',
            *(number, _part_of(environ), request.remote_addr, request.method, _said(environ)),
            *(begun.status, begun.length, version or "-"),
        )
        if self._hook is not None:
            answered = metering.Answered(
                metering.method_of(environ),
                environ.get(metering.ROUTE, ""),
                begun.status,
                clock.monotonic() - began,
                version,
                number,
            )
            metering.tell(self._hook, answered)
        return answer


class _Begun:
    """Begins an answer with the id of its request, and notes what it begins with."""

    def __init__(self, start_response: StartResponse, number: str) -> None:
        self._start_response, self._number = start_response, number
        self.status, self.length = 0, "None"

    def __call__(self, status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
        self.status = int(status[:3])
        told = (value for name, value in headers if name.lower() == "content-length")
        self.length = next(told, "None")
        headers = [*headers, ("x-openstack-request-id", self._number)]
        return self._start_response(status, headers, *error)


class Service:
    """Finds who answers a request, and whether they may ask; turns refusals into replies."""

    def __init__(self, ledger: Ledger, identify: authentication.Identify, policy: Policy) -> None:
        self._ledger, self._identify, self._policy = ledger, identify, policy
        routes: dict[str, Mapping[str, Action]] = {}
        for room in _ROOMS:
            routes.update(room.ROUTES)
        self._routes = [(path, _pattern(path), methods) for path, methods in routes.items()]

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        response: webob.Response | webob.exc.HTTPException
        try:
            response = self._answer(webob.Request(environ))
        except errors.Refused as refused:
            response = refused.response(environ)
        except Stale as error:  # other writers won each time that it was tried
            conflict = errors.conflict(f"update conflict: {error}", errors.CONCURRENT_UPDATE)
            response = conflict.response(environ)
        except DatabaseError as error:
            response = errors.no_answer(environ, error)
        except Exception:  # whatever it is, who asks is told of it in JSON, and the log of why
            LOG.exception("%s failed", environ.get(errors.REQUEST_ID))
            response = errors.internal(environ)
        told: Iterable[bytes] = response(environ, start_response)
        return told

    def _answer(self, request: webob.Request) -> webob.Response:
        path = _path(request.environ)
        creds = {} if path in authentication.OPEN else self._identify(request.environ)
        _check_content(request)
        request.environ[metering.ROUTE], found, methods = self._route(path)
        if request.method not in methods:
            raise errors.Refused(
                405,
                "The method specified is not allowed for this resource.",
                headers={"Allow": ", ".join(methods)},
            )
        rule, handler = methods[request.method]
        asked = Asked(request, self._acting(creds), found)
        if rule is not None and not self._policy.allows(rule, _target(rule, request, creds), creds):
            raise errors.Refused(403, f"Policy does not allow {rule} to be performed.")
        return handler(asked)

    def _acting(self, creds: Mapping[str, Any]) -> Ledger:
        """Return the ledger in which who asks is the one who writes, as the change feed tells it.

        Cost: 10 microseconds.
        """
        user = creds.get("user_id")
        try:
            return self._ledger.with_actor(user) if user else self._ledger
        except InvalidInput:  # nothing that the feed can tell
            return self._ledger

    def _route(self, path: str) -> tuple[str, Mapping[str, str], Mapping[str, Action]]:
        for route, pattern, methods in self._routes:
            found = pattern.fullmatch(path)
            if found:
                return route, found.groupdict(), methods
        raise errors.not_found("")


def _target(rule: str, request: webob.Request, creds: Mapping[str, Any]) -> dict[str, Any]:
    if rule != usages.OF_PROJECT:
        return {name: creds.get(name) for name in ("project_id", "user_id")}
    try:
        return {"project_id": request.GET.get("project_id")}
    except UnicodeDecodeError:  # nobody's, and refused by who looks at the query
        return {"project_id": None}


def _check_content(request: webob.Request) -> None:
    length = request.environ.get("CONTENT_LENGTH")
    if not length:
        return
    if not re.fullmatch("[0-9]{1,18}", length):
        raise errors.bad("content-length header must be an integer")
    if int(length) and not request.environ.get("CONTENT_TYPE"):
        raise errors.bad("content-type header required when content-length > 0")


def _part_of(environ: Mapping[str, Any]) -> str:
    """Return of which request of a client this one is a part, if it says so, as it is logged.

    >>> _part_of({"HTTP_X_OPENSTACK_REQUEST_ID": "req-1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"})
    ' (of req-1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33)'
    >>> _part_of({"HTTP_X_OPENSTACK_REQUEST_ID": "req-1 was here"})
    ''
    """
    said = str(environ.get("HTTP_X_OPENSTACK_REQUEST_ID", ""))
    return f" (of {said})" if re.fullmatch(_REQUEST_ID, said) else ""


def _said(environ: Mapping[str, Any]) -> str:
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
    """Return the pattern of a path; ``{name}`` stands for one part of it, ``{name:path}`` for all.

    >>> _pattern("/ro/trees/{provider:path}").fullmatch("/ro/trees/host0/gpu0")["provider"]
    'host0/gpu0'
    """
    pattern = re.sub(r"\{(\w+):path\}", r"(?P<\1>.+)", path)
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern), re.DOTALL)
