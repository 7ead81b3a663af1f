"""The request specification: a request with the conditions that only a scheduler knows."""

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
from resource_objects.resources.traits import checked_traits


@dataclasses.dataclass(frozen=True, slots=True)
class RequestSpec:
    """A request to a scheduler. It is frozen: filters and weighers only read it.

    :param request: a :class:`~resource_objects.requests.Request`, or the argument of one
    :param project, user: the owner
    :param zone: the requested availability zone
    :param only: the hosts that are allowed; None: all
    :param forced: the hosts that are allowed whatever filters decide (a disabled host, and one
        without capacity, is refused all the same); none: filters decide
    :param ignored: hosts that are excluded
    :param tried: hosts that refused the request before, each with the reason
    :param image_traits: the traits that the image requires
    :param extra_specs: conditions on hosts as Nova's extra specs:
        ``{"capabilities:hypervisor_version": ">= 5"}``
    :param group: the server group. Either the name of one that is stored in the ledger: the
        scheduler reads its policy and members, and the claims join it. Or one of the caller
        (:class:`~resource_objects.providers.ServerGroup`), with its members
    :raises InvalidInput: for an invalid request, an invalid name of a host or server group, or an
        unknown trait

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
            "image_traits": checked_traits(image_traits),
            "extra_specs": _texts("extra_specs", extra_specs),
            "group": group if isinstance(group, ServerGroup) else _label("server group", group),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, spec: Self | RequestLike) -> Self:
        """Return a specification itself, or one of a request."""
        return spec if isinstance(spec, cls) else cls(cast(RequestLike, spec))

    def replace(self, **changes: Any) -> Self:
        """Return a specification with other values of some fields."""
        return dataclasses.replace(self, **changes)

    @property
    def resources(self) -> Amounts:
        """The requested amounts of all groups."""
        return self.request.resources

    @property
    def server_group(self) -> ServerGroup | None:
        """The server group, if its members are known."""
        return self.group if isinstance(self.group, ServerGroup) else None

    @property
    def full_request(self) -> Request:
        """The request with the traits of the image: of its providers, or of the host."""
        traits, request = self.image_traits, self.request
        if not traits:
            return request
        group = request.unnamed
        if not group.resources:
            return request.replace(root_required=request.root_required | traits)
        return request.with_unnamed(group.replace(required=group.required | traits))


def _label(name: str, value: str | None) -> str | None:
    return None if value is None else names.label(value, name)


def _hosts(hosts: object) -> frozenset[str]:
    if isinstance(hosts, str | bytes) or not isinstance(hosts, Iterable):
        raise InvalidInput("name", "names", hosts, "a list of names")
    return frozenset(map(names.provider_name, hosts))


def _texts(name: str, texts: object) -> FrozenDict:
    if not isinstance(texts, Mapping):
        raise InvalidInput("field", name, texts, "a mapping of keys to texts")
    for key, value in texts.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidInput("field", f"{name} {key}", value, "a text")
    return FrozenDict(texts)
