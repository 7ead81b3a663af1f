"""The request: what somebody asks for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from resource_objects import base, exceptions, fields
from resource_objects.requests.group import RequestGroup
from resource_objects.resources import Amounts


@base.register
class Request(base.Value):
    """What somebody asks for: amounts, and the conditions on who gives them.

    Made from whatever :class:`~resource_objects.resources.Amounts` are made from. A required
    trait is had by everybody who gives some class of the request, themselves or through a
    provider above them; a forbidden one by nobody who gives anything, nor by anybody above.

    A request has exactly one group today, the one without a name; :attr:`resources` is the sum
    over all of them. Cost: some 40 microseconds to make.

    >>> request = Request("VCPU=16,MEMORY_MB=65536,PGPU=3", required=["CUSTOM_H100"])
    >>> for resource, amount in request.resources.items():
    ...     print(resource, amount)
    VCPU 16
    MEMORY_MB 65536
    PGPU 3
    >>> print(request)
    VCPU=16,MEMORY_MB=65536,PGPU=3 required=CUSTOM_H100
    >>> Request("")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidRequest: request: got '', expected an amount of something
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {"groups": fields.TupleOfObjectsField("RequestGroup")}
    groups: tuple[RequestGroup, ...]

    def __init__(
        self,
        resources: Any,
        /,
        *,
        required: Iterable[str] = (),
        forbidden: Iterable[str] = (),
    ) -> None:
        group = RequestGroup(resources, required=required, forbidden=forbidden)
        super().__init__(groups=(group,))

    @classmethod
    def of(cls, given: Any) -> Self:
        """Return ``given`` itself if it is one already, else one made from it."""
        return given if isinstance(given, cls) else cls(given)

    @property
    def resources(self) -> Amounts:
        """All that is asked, over all groups, for whoever takes one after the other.

        A structured amount says where; what it is counted in is in it too, stated or not, and as
        often as the host as a whole gives it (:meth:`Amounts.counted`).

        >>> for resource, amount in Request("NUMA_TOPOLOGY=2:shared=4").resources.items():
        ...     print(resource, amount)
        VCPU 4
        NUMA_TOPOLOGY 2:shared=4
        """
        total = self.groups[0].resources.counted()
        for group in self.groups[1:]:
            total = total + group.resources.counted()
        return total

    def _validate(self) -> None:
        suffixes = [group.suffix for group in self.groups]
        if suffixes != [""]:
            raise exceptions.InvalidRequest("groups", suffixes, "one group, without a suffix")
        if not self.resources:
            raise exceptions.InvalidRequest("request", str(self), "an amount of something")

    def __str__(self) -> str:
        return "; ".join(str(group) for group in self.groups)

    def __repr__(self) -> str:
        group = self.groups[0]
        parts = [repr(str(self.resources))]
        parts += [f"required={sorted(group.required)}"] if group.required else []
        parts += [f"forbidden={sorted(group.forbidden)}"] if group.forbidden else []
        return f"Request({', '.join(parts)})"
