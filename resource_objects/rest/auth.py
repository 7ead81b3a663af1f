"""Authentication by token or password. Only ``/`` and ``/health`` need none."""

from __future__ import annotations

import functools
import hashlib
import hmac
import ipaddress
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import webob
import webob.exc

from resource_objects.exceptions import InvalidInput
from resource_objects.rest import errors, native
from resource_objects.rest.watched_file import WatchedFile

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

_invalid_field = functools.partial(InvalidInput, "field")

#: Returns the credentials of a client: ``roles``, ``user_id``, ``project_id``.
Identify = Callable[[dict[str, Any]], Mapping[str, Any]]

METHODS = ("noauth2", "http_basic", "keystone")

#: Paths that need neither a token nor a password.
OPEN = ("/", "/health", *native.OPEN)

_AUTHENTICATED = "resource_objects.rest.authenticated"
_REFUSED = {
    401: "A valid token of Keystone is needed: header x-auth-token.",
    503: "Keystone does not answer.",
}

#: A digest of bcrypt: kind, cost, salt and digest.
_BCRYPT = re.compile(r"\$2[aby]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}")


def noauth2(environ: dict[str, Any]) -> Mapping[str, Any]:
    """Accept every token: ``admin`` is an administrator, ``user:project`` names both.

    For tests, and for a service that only its own machine can reach. The only check, under every
    server, is that the client is on this machine.

    >>> noauth2({"HTTP_X_AUTH_TOKEN": "admin"})["roles"]
    ['admin']
    >>> noauth2({"HTTP_X_AUTH_TOKEN": "ann:lab", "HTTP_X_ROLES": "reader,member"})
    {'user_id': 'ann', 'project_id': 'lab', 'roles': ['reader', 'member']}
    """
    address = environ.get("REMOTE_ADDR")  # absent on a Unix socket and within a process
    if address and not is_loopback(address):
        raise errors.Refused(403, "noauth2 accepts tokens of clients on this machine only.")
    token = environ.get("HTTP_X_AUTH_TOKEN")
    if not token:
        raise errors.Refused(401, "A token is needed: header x-auth-token.")
    user, _, project = token.partition(":")
    roles_text = environ.get("HTTP_X_ROLES")
    roles = ["admin"] if user == "admin" else []
    if roles_text is not None:
        roles = _words(roles_text)
    project = environ.get("HTTP_X_PROJECT_ID", project or user)
    return {"user_id": user, "project_id": project, "roles": roles} | _scope(environ)


@functools.lru_cache(1024)
def is_loopback(host: str) -> bool:
    """Return True if an address or a name is a loopback address.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "localhost")]
    [True, True, True, True]
    >>> [is_loopback(host) for host in ("0.0.0.0", "", "lab.example", "::ffff:10.0.0.1")]
    [False, False, False, False]
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def keystone(environ: dict[str, Any]) -> Mapping[str, Any]:
    """Return the credentials that keystonemiddleware found; it rejects all other requests."""
    if environ.get("HTTP_X_IDENTITY_STATUS") != "Confirmed" or not environ.get("HTTP_X_USER_ID"):
        raise errors.Refused(401, _REFUSED[401])
    return {
        "user_id": environ["HTTP_X_USER_ID"],
        "project_id": environ.get("HTTP_X_PROJECT_ID"),
        "roles": _words(environ.get("HTTP_X_ROLES", "")),
    } | _scope(environ)


def _scope(environ: dict[str, Any]) -> dict[str, Any]:
    """Return the scope of a token that is not for a project."""
    scopes = {
        "system_scope": environ.get("HTTP_OPENSTACK_SYSTEM_SCOPE"),
        "domain_id": environ.get("HTTP_X_DOMAIN_ID"),
    }
    return {key: value for key, value in scopes.items() if value is not None}


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


class HTTPBasic:
    """Authentication by password (RFC 7617) and two files, for a lab without Keystone.

    ``password_file`` has lines ``user:$2y$...``, as ``htpasswd -B`` makes them; ``roles_file`` has
    lines ``user:role,role`` or ``user:role,role:project``. A user without a line has no role.

    oslo.middleware's functions parse the header and check digests. Its middleware is not used: it
    has one setting for the whole process, reads the file for each request, and reports every
    failure of the application as a wrong password.

    bcrypt takes a tenth of a second or more. So each process caches a digest of a correct password,
    by a key of its own, until the file changes.
    """

    def __init__(
        self, password_file: str | os.PathLike[str], roles_file: str | os.PathLike[str]
    ) -> None:
        """Read both files.

        :raises InvalidInput: for a file that does not exist, or for an invalid line
        """
        self._passwords = WatchedFile("password_file", password_file, passwords)
        self._roles = WatchedFile("roles_file", roles_file, roles)
        self._key = secrets.token_bytes(32)
        #: digests of correct passwords by line of the file; removed lines may remain
        self._verified: dict[str, bytes] = {}

    def __call__(self, environ: dict[str, Any]) -> Mapping[str, Any]:
        """Return the credentials of a client, or raise a 401."""
        from oslo_middleware import basic_auth

        try:
            user, password = basic_auth.parse_token(basic_auth.parse_header(environ))
        except webob.exc.HTTPClientError as error:
            raise _unauthorized() from error
        if not self._is_correct(user, password):
            raise _unauthorized()
        return {"user_id": user} | self._roles.content().get(user, {"roles": []})

    def _is_correct(self, user: str, password: bytes) -> bool:
        from oslo_middleware import basic_auth

        lines = self._passwords.content()
        # for an unknown user another line is compared: the time must not reveal which users exist
        line = lines.get(user) or next(iter(lines.values()))
        digest = hmac.digest(self._key, password, hashlib.sha256)
        if user in lines and hmac.compare_digest(self._verified.get(line, b""), digest):
            return True
        try:
            basic_auth.auth_entry(line, password)
        except (webob.exc.HTTPClientError, ValueError):  # ValueError: too long for bcrypt
            return False
        if user not in lines:
            return False
        if len(self._verified) > 2 * len(lines):
            self._verified.clear()
        self._verified[line] = digest
        return True


def _unauthorized() -> errors.Refused:
    challenge = {"WWW-Authenticate": 'Basic realm="placement", charset="UTF-8"'}
    return errors.Refused(401, "A valid user and password are required.", headers=challenge)


def passwords(text: str) -> dict[str, str]:
    """Return the lines of a password file by user.

    :raises ValueError: for an invalid line

    >>> passwords("ann:secret")
    Traceback (most recent call last):
    ValueError: line 1: expected 'user:$2y$...' once for each user, as htpasswd -B makes it ...
    """
    by_user: dict[str, str] = {}
    for number, line in _lines(text):
        user, _, digest = line.partition(":")
        if not user or user in by_user or not _BCRYPT.fullmatch(digest):
            expected = "'user:$2y$...' once for each user, as htpasswd -B makes it (bcrypt)"
            raise ValueError(f"line {number}: expected {expected}")
        by_user[user] = line
    if not by_user:
        raise ValueError("expected a line for each user, and there is none")
    return by_user


def roles(text: str) -> dict[str, dict[str, Any]]:
    """Return the roles, and the project if there is one, of each user in a roles file.

    :raises ValueError: for an invalid line

    >>> roles("root:admin\\n# readers\\nann:reader,member:lab")
    {'root': {'roles': ['admin']}, 'ann': {'roles': ['reader', 'member'], 'project_id': 'lab'}}
    """
    by_user: dict[str, dict[str, Any]] = {}
    for number, line in _lines(text):
        user, *fields = line.split(":")
        if not user or user in by_user or len(fields) not in (1, 2):
            raise ValueError(
                f"line {number}: expected user:role,role or user:role,role:project, each user once"
            )
        by_user[user] = {"roles": _words(fields[0])}
        if fields[1:] and fields[1].strip():
            by_user[user]["project_id"] = fields[1].strip()
    return by_user


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped


def identify_by(
    auth: str,
    password_file: str | os.PathLike[str] | None = None,
    roles_file: str | os.PathLike[str] | None = None,
) -> Identify:
    """Return the function that authenticates clients.

    :raises InvalidInput: for an unknown kind of authentication, or a missing or superfluous file
    """
    if auth not in METHODS:
        raise _invalid_field("auth", auth, f"one of {', '.join(METHODS)}")
    for name, path in (("password_file", password_file), ("roles_file", roles_file)):
        if (path is not None) != (auth == "http_basic"):
            expected = "a file with auth http_basic, and none without"
            raise _invalid_field(name, path, expected)
    if password_file is not None and roles_file is not None:
        return HTTPBasic(password_file, roles_file)
    return noauth2 if auth == "noauth2" else keystone


class BehindKeystone:
    """An application behind keystonemiddleware, except for the paths that need no token.

    keystonemiddleware itself rejects requests: if it delegated this to the application, an
    unavailable Keystone would look like an invalid token. The form of its rejections is changed to
    that of the other errors.
    """

    def __init__(
        self,
        application: WSGIApplication,
        options: Mapping[str, Any] | None = None,
        file: str | os.PathLike[str] | None = None,
    ) -> None:
        """:param options: those of ``[keystone_authtoken]``, such as ``auth_url``
        :param file: with a section ``[keystone_authtoken]``, such as Placement's own configuration;
            ``options`` override it
        :raises InvalidInput: for a file that cannot be read, or an option of the wrong type
        """
        from keystonemiddleware import auth_token
        from keystonemiddleware import exceptions as refusals
        from oslo_config import cfg

        conf = cfg.ConfigOpts()  # the default is the configuration of the whole process
        try:
            files = [] if file is None else [os.fspath(file)]
            conf([], "placement", default_config_files=files, default_config_dirs=[])
        except cfg.Error as error:
            raise _invalid_field("keystone_file", file, f"a file; {error}") from error
        settings = {**(options or {}), "delay_auth_decision": False, "oslo_config_config": conf}
        self._application = application
        try:
            self._middleware: WSGIApplication = auth_token.AuthProtocol(  # type: ignore[no-untyped-call]
                self._authenticated, settings
            )
        except (refusals.ConfigurationError, cfg.Error) as error:
            raise _invalid_field("keystone", sorted(options or {}), str(error)) from error

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") in OPEN:
            return self._application(environ, start_response)
        response: Any = webob.Request(environ).get_response(self._middleware)
        if not environ.get(_AUTHENTICATED):
            challenge = response.headers.get("WWW-Authenticate")
            headers = {} if challenge is None else {"WWW-Authenticate": challenge}
            detail = _REFUSED.get(response.status_int, response.status)
            response = errors.Refused(response.status_int, detail, headers=headers).response(
                environ
            )
        body: Iterable[bytes] = response(environ, start_response)
        return body

    def _authenticated(
        self, environ: dict[str, Any], start_response: StartResponse
    ) -> Iterable[bytes]:
        environ[_AUTHENTICATED] = True
        return self._application(environ, start_response)
