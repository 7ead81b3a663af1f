"""Who asks: nobody is believed without a token or a password, but for ``/`` and ``/health``."""

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
from resource_objects.rest.reread import Reread

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

_invalid_field = functools.partial(InvalidInput, "field")

#: Returns what policy is told of who asks: ``roles``, ``user_id``, ``project_id``.
Identify = Callable[[dict[str, Any]], Mapping[str, Any]]

METHODS = ("noauth2", "http_basic", "keystone")

#: What may be asked without a token or a password.
OPEN = ("/", "/health", *native.OPEN)

_BELIEVED = "resource_objects.rest.believed"
_REFUSED = {
    401: "A valid token of Keystone is needed: header x-auth-token.",
    503: "Keystone does not answer.",
}

#: A digest of bcrypt: its kind, its cost, salt and digest.
_BCRYPT = re.compile(r"\$2[aby]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}")


def noauth2(environ: dict[str, Any]) -> Mapping[str, Any]:
    """Believe a token: ``admin`` is an administrator, ``user:project`` are these.

    For tests, and for a service that only its own machine reaches: nothing is checked but that it
    is that machine that asks, whatever server this runs under.

    >>> noauth2({"HTTP_X_AUTH_TOKEN": "admin"})["roles"]
    ['admin']
    >>> noauth2({"HTTP_X_AUTH_TOKEN": "ann:lab", "HTTP_X_ROLES": "reader,member"})
    {'user_id': 'ann', 'project_id': 'lab', 'roles': ['reader', 'member']}
    """
    address = environ.get("REMOTE_ADDR")  # of a Unix socket, and within a process, there is none
    if address and not is_loopback(address):
        raise errors.Refused(403, "Whatever a token says is believed of this machine alone.")
    token = environ.get("HTTP_X_AUTH_TOKEN")
    if not token:
        raise errors.Refused(401, "A token is needed: header x-auth-token.")
    user, _, project = token.partition(":")
    said = environ.get("HTTP_X_ROLES")
    roles = ["admin"] if user == "admin" else []
    if said is not None:
        roles = _words(said)
    project = environ.get("HTTP_X_PROJECT_ID", project or user)
    return {"user_id": user, "project_id": project, "roles": roles} | _scope(environ)


@functools.lru_cache(1024)
def is_loopback(host: str) -> bool:
    """Return whether an address, or a name, is that of this machine for itself.

    >>> [is_loopback(one) for one in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "localhost")]
    [True, True, True, True]
    >>> [is_loopback(one) for one in ("0.0.0.0", "", "lab.example", "10.0.0.1", "::ffff:10.0.0.1")]
    [False, False, False, False, False]
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def keystone(environ: dict[str, Any]) -> Mapping[str, Any]:
    """Take what keystonemiddleware found out; it passes on only whom it identified or nobody."""
    if environ.get("HTTP_X_IDENTITY_STATUS") != "Confirmed" or not environ.get("HTTP_X_USER_ID"):
        raise errors.Refused(401, _REFUSED[401])
    return {
        "user_id": environ["HTTP_X_USER_ID"],
        "project_id": environ.get("HTTP_X_PROJECT_ID"),
        "roles": _words(environ.get("HTTP_X_ROLES", "")),
    } | _scope(environ)


def _scope(environ: dict[str, Any]) -> dict[str, Any]:
    """Return what a token is for, if it is for no project."""
    said = {
        "system_scope": environ.get("HTTP_OPENSTACK_SYSTEM_SCOPE"),
        "domain_id": environ.get("HTTP_X_DOMAIN_ID"),
    }
    return {key: value for key, value in said.items() if value is not None}


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


class HTTPBasic:
    """Who has a password (RFC 7617), by two files, for a lab without Keystone.

    ``password_file`` is what ``htpasswd -B`` makes, ``user:$2y$...``; ``roles_file`` says
    ``user:role,role`` or ``user:role,role:project``. Who is not in it has no role.

    The header and the digests are read by oslo.middleware's functions. Its middleware itself keeps
    its setting for the whole process, reads the file for each request, and tells every failure of
    what is behind it as a wrong password.

    bcrypt is slow on purpose, a tenth of a second and more: so a process remembers of a password
    that was right a digest by a key of its own, until the file is changed.
    """

    def __init__(
        self, password_file: str | os.PathLike[str], roles_file: str | os.PathLike[str]
    ) -> None:
        """Read both files.

        :raises InvalidInput: for one that is not there, or for a line that cannot be
        """
        self._passwords = Reread("password_file", password_file, passwords)
        self._roles = Reread("roles_file", roles_file, roles)
        self._key = secrets.token_bytes(32)
        #: by line of the file; of those that are not there any longer some stay
        self._right: dict[str, bytes] = {}

    def __call__(self, environ: dict[str, Any]) -> Mapping[str, Any]:
        """Return who asks, or refuse."""
        from oslo_middleware import basic_auth

        try:
            user, password = basic_auth.parse_token(basic_auth.parse_header(environ))
        except webob.exc.HTTPClientError as error:
            raise _who_is_it() from error
        if not self._is_right(user, password):
            raise _who_is_it()
        return {"user_id": user} | self._roles.said().get(user, {"roles": []})

    def _is_right(self, user: str, password: bytes) -> bool:
        from oslo_middleware import basic_auth

        lines = self._passwords.said()
        # of somebody unknown another one's is compared, so that time does not tell who there is
        line = lines.get(user) or next(iter(lines.values()))
        digest = hmac.digest(self._key, password, hashlib.sha256)
        if user in lines and hmac.compare_digest(self._right.get(line, b""), digest):
            return True
        try:
            basic_auth.auth_entry(line, password)
        except (webob.exc.HTTPClientError, ValueError):  # ValueError: one longer than bcrypt takes
            return False
        if user not in lines:
            return False
        if len(self._right) > 2 * len(lines):
            self._right.clear()
        self._right[line] = digest
        return True


def _who_is_it() -> errors.Refused:
    challenge = {"WWW-Authenticate": 'Basic realm="placement", charset="UTF-8"'}
    return errors.Refused(401, "A user and a password are needed, which fit.", headers=challenge)


def passwords(text: str) -> dict[str, str]:
    """Return the lines of a password file by user.

    :raises ValueError: for a line that is none

    >>> passwords("ann:secret")
    Traceback (most recent call last):
    ValueError: line 1: expected 'user:$2y$...' once for each user, as htpasswd -B makes it ...
    """
    found: dict[str, str] = {}
    for number, line in _lines(text):
        user, _, digest = line.partition(":")
        if not user or user in found or not _BCRYPT.fullmatch(digest):
            expected = "'user:$2y$...' once for each user, as htpasswd -B makes it (bcrypt)"
            raise ValueError(f"line {number}: expected {expected}")
        found[user] = line
    if not found:
        raise ValueError("expected a line for each user, and there is none")
    return found


def roles(text: str) -> dict[str, dict[str, Any]]:
    """Return what a roles file says of each user.

    :raises ValueError: for a line that is none

    >>> roles("root:admin\\n# who looks\\nann:reader,member:lab")
    {'root': {'roles': ['admin']}, 'ann': {'roles': ['reader', 'member'], 'project_id': 'lab'}}
    """
    found: dict[str, dict[str, Any]] = {}
    for number, line in _lines(text):
        user, *said = line.split(":")
        if not user or user in found or len(said) not in (1, 2):
            raise ValueError(
                f"line {number}: expected user:role,role or user:role,role:project, each user once"
            )
        found[user] = {"roles": _words(said[0])}
        if said[1:] and said[1].strip():
            found[user]["project_id"] = said[1].strip()
    return found


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
    """Return how to find out who asks.

    :raises InvalidInput: for a way that there is not; for files that it needs or does not take
    """
    if auth not in METHODS:
        raise _invalid_field("auth", auth, f"one of {', '.join(METHODS)}")
    for name, given in (("password_file", password_file), ("roles_file", roles_file)):
        if (given is not None) != (auth == "http_basic"):
            expected = "a file with auth http_basic, and none without"
            raise _invalid_field(name, given, expected)
    if password_file is not None and roles_file is not None:
        return HTTPBasic(password_file, roles_file)
    return noauth2 if auth == "noauth2" else keystone


class BehindKeystone:
    """An application before which keystonemiddleware stands, but for what everybody may ask.

    keystonemiddleware decides itself: if it left that to the application, a Keystone that does not
    answer would look like a token that is wrong. What it refuses is told as all else is.
    """

    def __init__(
        self,
        application: WSGIApplication,
        options: Mapping[str, Any] | None = None,
        file: str | os.PathLike[str] | None = None,
    ) -> None:
        """Make it.

        :param options: those of ``[keystone_authtoken]``, such as ``auth_url``
        :param file: with a section ``[keystone_authtoken]``, such as Placement's own configuration;
            ``options`` go before it
        :raises InvalidInput: for a file that cannot be read, or an option of the wrong type
        """
        from keystonemiddleware import auth_token
        from keystonemiddleware import exceptions as refusals
        from oslo_config import cfg

        conf = cfg.ConfigOpts()  # or keystonemiddleware takes that of the whole process
        try:
            files = [] if file is None else [os.fspath(file)]
            conf([], "placement", default_config_files=files, default_config_dirs=[])
        except cfg.Error as error:
            raise _invalid_field("keystone_file", file, f"a file; {error}") from error
        given = {**(options or {}), "delay_auth_decision": False, "oslo_config_config": conf}
        self._application = application
        try:
            self._asking: WSGIApplication = auth_token.AuthProtocol(  # type: ignore[no-untyped-call]
                self._believed, given
            )
        except (refusals.ConfigurationError, cfg.Error) as error:
            raise _invalid_field("keystone", sorted(options or {}), str(error)) from error

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") in OPEN:
            return self._application(environ, start_response)
        response: Any = webob.Request(environ).get_response(self._asking)
        if not environ.get(_BELIEVED):
            said = {name: response.headers.get(name) for name in ("WWW-Authenticate",)}
            headers = {name: value for name, value in said.items() if value is not None}
            detail = _REFUSED.get(response.status_int, response.status)
            response = errors.Refused(response.status_int, detail, headers=headers).response(
                environ
            )
        told: Iterable[bytes] = response(environ, start_response)
        return told

    def _believed(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        environ[_BELIEVED] = True
        return self._application(environ, start_response)
