"""The request specification: a request with what only a scheduler asks about."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Self, cast

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.fields import FrozenDict
from resource_objects.providers import ServerGroup
from resource_objects.requests import Request, RequestLike
from resource_objects.resources import Amounts
from resource_objects.resources.traits import known_traits


@dataclasses.dataclass(frozen=True, slots=True)
class RequestSpec:
    """What somebody asks of a scheduler. It never changes: filters and weighers only read it.

    :param request: a :class:`~resource_objects.requests.Request`, or what one is made from
    :param project, user: whose it is
    :param zone: the availability zone that it is to be in
    :param only: the hosts it may go to; None: any
    :param forced: the hosts it has to go to, whatever filters say (what is out of service and
        what does not fit is refused all the same); none: filters decide
    :param ignored: hosts it must not go to
    :param tried: hosts that refused it already, each with why
    :param image_traits: the traits that its image asks of a host
    :param extra_specs: conditions on hosts in the words of the field:
        ``{"capabilities:hypervisor_version": ">= 5"}``
    :param group: the server group it belongs to: the name of one that the ledger keeps, of which
        the scheduler reads policy and members, and which the claims are made members of; or one
        that the caller keeps (:class:`~resource_objects.providers.ServerGroup`), with its members
    :raises InvalidInput: for a request that cannot be; for what are no names of hosts, or of a
        server group; for a trait that there is not

    >>> spec = RequestSpec("VCPU=2,MEMORY_MB=4096", project="lab", zone="north")
    >>> for resource, amount in spec.resources.items():
    ...     print(resource, amount)
    VCPU 2
    MEMORY_MB 4096
    """

    request: Request
    project: str | None = None
    user: str | None = None
    zone: str | None = None
    only: frozenset[str] | None = None
    forced: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()
    tried: Mapping[str, str] = FrozenDict()
    image_traits: frozenset[str] = frozenset()
    extra_specs: Mapping[str, str] = FrozenDict()
    group: ServerGroup | str | None = None

    def __init__(
        self,
        request: RequestLike,
        *,
        project: str | None = None,
        user: str | None = None,
        zone: str | None = None,
        only: Iterable[str] | None = None,
        forced: Iterable[str] = (),
        ignored: Iterable[str] = (),
        tried: Mapping[str, str] = FrozenDict(),
        image_traits: Iterable[str] = (),
        extra_specs: Mapping[str, str] = FrozenDict(),
        group: ServerGroup | str | None = None,
    ) -> None:
        values = {
            "request": Request.of(request),
            "project": _label("project", project),
            "user": _label("user", user),
            "zone": _label("zone", zone),
            "only": None if only is None else _hosts(only),
            "forced": _hosts(forced),
            "ignored": _hosts(ignored),
            "tried": FrozenDict({names.provider_name(h): str(why) for h, why in tried.items()}),
            "image_traits": known_traits(image_traits),
            "extra_specs": _texts("extra_specs", extra_specs),
            "group": group if isinstance(group, ServerGroup) else _label("server group", group),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, given: Self | RequestLike) -> Self:
        """Return ``given`` itself if it is one already, else one of that request."""
        return given if isinstance(given, cls) else cls(cast(RequestLike, given))

    def replace(self, **changed: Any) -> Self:
        """Return one with other values of some fields."""
        kept = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        given = {**kept, **changed}
        return type(self)(given.pop("request"), **given)

    @property
    def resources(self) -> Amounts:
        """All that is asked for, over all groups."""
        return self.request.resources

    @property
    def server_group(self) -> ServerGroup | None:
        """The server group, if it has one and its members are known."""
        return self.group if isinstance(self.group, ServerGroup) else None

    @property
    def wanted(self) -> Request:
        """The request with the traits that the image asks for: of who gives, or of the host."""
        traits, request = self.image_traits, self.request
        if not traits:
            return request
        group = request.unnamed
        if not group.resources:
            return request.replace(root_required=request.root_required | traits)
        return request.with_unnamed(group.replace(required=group.required | traits))


def _several(given: object) -> Iterable[Any]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidInput("name", "names", given, "a list of names")
    return given


def _hosts(given: object) -> frozenset[str]:
    return frozenset(map(names.provider_name, _several(given)))


def _label(what: str, given: str | None) -> str | None:
    return None if given is None else names.label(given, what)


def _texts(what: str, given: object) -> FrozenDict:
    if not isinstance(given, Mapping):
        raise InvalidInput("field", what, given, "a mapping of keys to texts")
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidInput("field", f"{what} {key}", value, "a text")
    return FrozenDict(given)
