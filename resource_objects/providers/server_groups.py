"""Server groups (Nova): consumers to place on one host, or on different hosts.

A *group* without further words is a group of a request. Policies are checked when orders are
decided (:mod:`~resource_objects.store.decide`), so they apply to every claim.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from resource_objects import exceptions, names

#: The policies: members on one host or on different hosts, required or preferred (soft).
POLICIES = ("affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity")
#: The maximum of ``max_per_host``.
MOST = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class ServerGroup:
    """Consumers to place on one host, or on different hosts.

    :param name: the name in refusals
    :param policy: one of :data:`POLICIES`; ``soft`` policies refuse no host
    :param members: the consumers of the group that have allocations
    :param max_per_host: for ``anti-affinity``, the maximum number of members on one host
    :param uuid, generation: of a stored group. The generation is the number of the operation that
        last allocated from a further host to a member, or that created the group

    :raises InvalidInput: for another policy, or a number below 1, or above 1 by another policy; if
        the name, or the name of a member, is invalid

    >>> print(ServerGroup("db", "anti-affinity", ["db-1", "db-2"]))
    db: anti-affinity, at most 1 on a host
    """

    name: str
    policy: str
    members: frozenset[str] = frozenset()
    max_per_host: int = 1
    uuid: str | None = None
    generation: int | None = None

    def __init__(
        self,
        name: str,
        policy: str,
        members: Iterable[str] = (),
        max_per_host: int = 1,
        uuid: str | None = None,
        generation: int | None = None,
    ) -> None:
        if policy not in POLICIES:
            raise exceptions.InvalidInput(
                "field", "policy", policy, f"one of {', '.join(POLICIES)}"
            )
        most: Any = max_per_host
        if type(most) is not int or not 1 <= most <= MOST:
            raise exceptions.InvalidInput(
                "field", "max_per_host", most, f"an integer from 1 to {MOST}"
            )
        if most > 1 and policy != "anti-affinity":
            raise exceptions.InvalidInput(
                "field", "max_per_host", most, f"1, as the policy is {policy}"
            )
        if isinstance(members, str | bytes) or not isinstance(members, Iterable):
            raise exceptions.InvalidInput("name", "members", members, "a list of names")
        values = {
            "name": names.label(name, "server group"),
            "policy": policy,
            "members": frozenset(map(names.consumer_name, members)),
            "max_per_host": max_per_host,
            "uuid": uuid,
            "generation": generation,
        }
        for field, value in values.items():
            object.__setattr__(self, field, value)

    @property
    def is_soft(self) -> bool:
        """True if the group refuses no host."""
        return self.policy.startswith("soft-")

    @property
    def is_apart(self) -> bool:
        """True if members are placed on different hosts."""
        return self.policy.endswith("anti-affinity")

    def is_like(self, other: ServerGroup) -> bool:
        """Return True if another group has the same policy and maximum."""
        return (self.policy, self.max_per_host) == (other.policy, other.max_per_host)

    def difference(self, stored: ServerGroup) -> str:
        """Return the requested and the stored policy as text."""
        requested = f"max_per_host={self.max_per_host}, {self.policy}"
        return f"requested {requested}; stored max_per_host={stored.max_per_host}, {stored.policy}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**dataclasses.asdict(self), "members": sorted(self.members)}

    def __str__(self) -> str:
        most = f", at most {self.max_per_host} on a host" if self.policy == "anti-affinity" else ""
        return f"{self.name}: {self.policy}{most}"
