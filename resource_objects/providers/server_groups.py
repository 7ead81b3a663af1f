"""Server groups: consumers that are to be on one host, or on different ones. Pure.

The field's word (Nova) for consumers that are placed with regard to each other; a *group* alone is
one of a request. What a group asks is judged where orders are decided
(:mod:`~resource_objects.store.decide`), so it holds whoever claims, and however.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from resource_objects import exceptions, names

#: How the members of a group stand to each other: on one host or never, strictly or if it can be.
POLICIES = ("affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity")
#: The most members of one host that can be said.
MOST = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class ServerGroup:
    """Consumers that are to be together, or apart.

    :param name: as refusals name it
    :param policy: one of :data:`POLICIES`; those that begin with ``soft`` refuse no host
    :param members: the consumers in it that hold something
    :param max_per_host: by ``anti-affinity``, how many of them one host may hold
    :param uuid, generation: of one that a ledger keeps. The generation is the number of the
        operation that let a member take something of another host last, or made the group

    :raises InvalidInput: for another policy, or a number below 1, or above 1 by another policy
    :raises InvalidInput: if the name is none, or members are no names of consumers

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
        """Whether no host is refused for it."""
        return self.policy.startswith("soft-")

    @property
    def is_apart(self) -> bool:
        """Whether its members are to be on different hosts."""
        return self.policy.endswith("anti-affinity")

    def is_like(self, other: ServerGroup) -> bool:
        """Return whether another one asks the same."""
        return (self.policy, self.max_per_host) == (other.policy, other.max_per_host)

    def difference(self, kept: ServerGroup) -> str:
        """Return in words what it asks, and what the one that is kept asks."""
        asked = f"max_per_host={self.max_per_host}, {self.policy}"
        return f"asked {asked}; kept max_per_host={kept.max_per_host}, {kept.policy}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**dataclasses.asdict(self), "members": sorted(self.members)}

    def __str__(self) -> str:
        most = f", at most {self.max_per_host} on a host" if self.policy == "anti-affinity" else ""
        return f"{self.name}: {self.policy}{most}"
