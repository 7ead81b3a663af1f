"""Who asks: nobody is believed without a token, but for ``/``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.rest import errors

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

#: Returns what policy is told of who asks: ``roles``, ``user_id``, ``project_id``.
Identify = Callable[[dict[str, Any]], Mapping[str, Any]]

METHODS = ("noauth2", "keystone")


def noauth2(environ: dict[str, Any]) -> Mapping[str, Any]:
    """Believe a token: ``admin`` is an administrator, ``user:project`` are these.

    For tests, and for a service that only its own machine reaches: nothing is checked.

    >>> noauth2({"HTTP_X_AUTH_TOKEN": "admin"})["roles"]
    ['admin']
    >>> noauth2({"HTTP_X_AUTH_TOKEN": "ann:lab", "HTTP_X_ROLES": "reader,member"})
    {'user_id': 'ann', 'project_id': 'lab', 'roles': ['reader', 'member']}
    """
    token = environ.get("HTTP_X_AUTH_TOKEN")
    if not token:
        raise errors.Refused(401, "A token is needed: header x-auth-token.")
    user, _, project = token.partition(":")
    said = environ.get("HTTP_X_ROLES")
    if said is not None:
        roles = [role.strip() for role in said.split(",") if role.strip()]
    else:
        roles = ["admin"] if user == "admin" else []
    project = environ.get("HTTP_X_PROJECT_ID", project or user)
    return {"user_id": user, "project_id": project, "roles": roles} | _system(environ)


def keystone(environ: dict[str, Any]) -> Mapping[str, Any]:
    """Take what keystonemiddleware found out; it passes on only whom it identified or nobody."""
    if environ.get("HTTP_X_IDENTITY_STATUS") != "Confirmed" or not environ.get("HTTP_X_USER_ID"):
        raise errors.Refused(401, "A valid token of Keystone is needed: header x-auth-token.")
    roles = environ.get("HTTP_X_ROLES", "")
    return {
        "user_id": environ["HTTP_X_USER_ID"],
        "project_id": environ.get("HTTP_X_PROJECT_ID"),
        "roles": [role.strip() for role in roles.split(",") if role.strip()],
    } | _system(environ)


def _system(environ: dict[str, Any]) -> dict[str, Any]:
    scope = environ.get("HTTP_OPENSTACK_SYSTEM_SCOPE")
    return {} if scope is None else {"system_scope": scope}


def identify_by(auth: str) -> Identify:
    """Return how to find out who asks.

    :raises InvalidField: for a way that there is not
    """
    if auth not in METHODS:
        raise exceptions.InvalidField("auth", auth, f"one of {', '.join(METHODS)}")
    return noauth2 if auth == "noauth2" else keystone


def behind_keystone(
    application: WSGIApplication, options: Mapping[str, Any] | None
) -> WSGIApplication:
    """Return an application that keystonemiddleware stands in front of.

    :param options: those of ``[keystone_authtoken]``, such as ``auth_url``
    """
    from keystonemiddleware import auth_token

    protected: WSGIApplication = auth_token.AuthProtocol(  # type: ignore[no-untyped-call]
        application, {"delay_auth_decision": True, **(options or {})}
    )
    return protected
