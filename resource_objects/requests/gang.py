"""Gangs: several members that are placed at once or not at all, near each other or apart."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.fields import MAX_AMOUNT, FrozenDict
from resource_objects.requests.request import Request, RequestLike, read_keys

_invalid_request = functools.partial(InvalidInput, "request")

#: The level of hosts, the innermost of all.
HOST = "host"


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class Member:
    """A number of consumers with the same request, as a part of a gang.

    A *level* is the kind of an aggregate, such as ``rack``
    (``ledger.names.aggregates.ensure("r7", level="rack")``); each aggregate of that level is a
    domain. ``host`` is the level of hosts.

    >>> worker = Member("worker", "VCPU=4,PGPU=1", count=8, at_most={"host": 2})
    >>> print(worker)
    8 worker of VCPU=4,PGPU=1, at most 2 per host
    >>> worker.names
    ('worker-0', 'worker-1', 'worker-2', 'worker-3', 'worker-4', 'worker-5', 'worker-6', 'worker-7')
    """

    name: str
    request: Request
    count: int
    at_most: Mapping[str, int]  #: by level, the maximum number of these in one domain
    together: str | None  #: the level of which one domain gets all of these; None: any

    def __init__(
        self,
        name: str,
        request: RequestLike,
        count: int = 1,
        at_most: Mapping[str, int] = FrozenDict(),
        together: str | None = None,
    ) -> None:
        _set(self, name=names.label(name, "member"), request=Request.of(request))
        _check_count("count", count)
        _set(self, count=count, at_most=_bounds(at_most), together=_level(together))
        _check_together(self.together, self.at_most, self.count, f"member {self.name}")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the consumers: the name itself for one, else with numbers from 0."""
        if self.count == 1:
            return (self.name,)
        return tuple(f"{self.name}-{number}" for number in range(self.count))

    def __str__(self) -> str:
        count = f"{self.count} " if self.count > 1 else ""
        return ", ".join([f"{count}{self.name} of {self.request}", *_levels_of(self)])


@dataclasses.dataclass(frozen=True, slots=True)
class Gang:
    """Members that are placed all at once or not at all.

    ``together`` and ``at_most`` apply to all members as a whole.

    :raises InvalidInput: for invalid members or bounds, and for a contradiction

    >>> gang = Gang([Member("driver", "VCPU=2"), Member("worker", "VCPU=4,PGPU=1", count=8)],
    ...             together="rack", at_most={"host": 4})
    >>> print(gang)
    driver of VCPU=2; 8 worker of VCPU=4,PGPU=1; all in one rack, at most 4 per host
    >>> gang.count
    9
    >>> Gang([Member("worker", "VCPU=4", count=8)], together="rack", at_most={"rack": 4})
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: gang: got 'all in one rack', expected at least 8 ...
    """

    members: Sequence[Member]
    together: str | None = None
    at_most: Mapping[str, int] = FrozenDict()

    def __post_init__(self) -> None:
        if not isinstance(self.members, list | tuple) or not self.members:
            raise _invalid_request("gang", self.members, "a list of members")
        for member in self.members:
            if not isinstance(member, Member):
                raise _invalid_request("gang", member, "a Member")
        _set(self, members=tuple(self.members), at_most=_bounds(self.at_most))
        _set(self, together=_level(self.together))
        counts = Counter(name for member in self.members for name in member.names)
        for name, count in counts.items():
            if count > 1:
                raise _invalid_request("gang", name, "each member once")
        _check_count("members", self.count)
        _check_together(self.together, self.at_most, self.count, "gang")
        for member in self.members:
            label = f"member {member.name}"
            _check_together(self.together, member.at_most, member.count, label)
            _check_together(member.together, self.at_most, member.count, label)

    @property
    def count(self) -> int:
        """The number of consumers of all members."""
        return sum(member.count for member in self.members)

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of the gang and its members, other than that of hosts, each once."""
        levels = [self.together, *self.at_most]
        for member in self.members:
            levels += [member.together, *member.at_most]
        return tuple(dict.fromkeys(level for level in levels if level not in (None, HOST)))

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return the gang of plain data, such as that of a file.

        >>> print(Gang.from_dict({"members": {"worker": {"request": "PGPU=1", "count": 2}},
        ...                       "together": "rack"}))
        2 worker of PGPU=1; all in one rack

        :raises InvalidInput: for invalid data, and for unknown keys
        """
        arguments = read_keys("gang", data, ("members", "together", "at_most"))
        by_name = arguments.pop("members", None)
        if not isinstance(by_name, Mapping):
            raise _invalid_request("members", by_name, "{name: options}")
        members = []
        for name, member in by_name.items():
            label, keys = f"member {name}", ("request", "count", "at_most", "together")
            options = read_keys(label, member, keys)
            if "request" not in options:
                raise _invalid_request(label, options, "a request")
            members.append(Member(name, **options))
        return cls(members, **arguments)

    def __str__(self) -> str:
        levels = ", ".join(_levels_of(self, "all "))
        return "; ".join([*map(str, self.members), *filter(None, [levels])])


def _set(value: Any, **fields: object) -> None:
    for name, field in fields.items():
        object.__setattr__(value, name, field)


def _check_count(name: str, count: object) -> None:
    if type(count) is not int or not 1 <= count <= MAX_AMOUNT:
        raise _invalid_request(name, count, f"an integer from 1 to {MAX_AMOUNT}")


def _level(level: object) -> str | None:
    return None if level is None else names.label(level, "level")


def _bounds(at_most: object) -> FrozenDict:
    if not isinstance(at_most, Mapping):
        raise _invalid_request("at_most", at_most, "{level: number}")
    for level, count in at_most.items():
        _check_count(f"at_most {names.label(level, 'level')}", count)
    return FrozenDict(at_most)


def _check_together(level: str | None, at_most: Mapping[str, int], count: int, label: str) -> None:
    """Raise for members that need one domain of a level with a bound below their number."""
    if level is not None and at_most.get(level, count) < count:
        expected = f"at least {count} per {level}, not {at_most[level]}"
        raise _invalid_request(label, f"all in one {level}", expected)


def _levels_of(part: Member | Gang, prefix: str = "") -> list[str]:
    together = [f"{prefix}in one {part.together}"] if part.together else []
    return together + [f"at most {count} per {level}" for level, count in part.at_most.items()]
