"""The gang: several members asked for at once, all or nothing, and how near or far they stand."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

from resource_objects import names
from resource_objects.exceptions import InvalidInput
from resource_objects.fields import MAX_AMOUNT, FrozenDict
from resource_objects.requests.request import Request, RequestLike, read_keys

_invalid_request = functools.partial(InvalidInput, "request")

#: The level of a host itself: the innermost of all.
HOST = "host"


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class Member:
    """So many consumers that ask for the same, as a part of a gang.

    A *level* is what kind of place an aggregate is, such as ``rack``
    (``ledger.names.aggregates.ensure("r7", level="rack")``); ``host`` is the host itself.

    >>> worker = Member("worker", "VCPU=4,PGPU=1", count=8, at_most={"host": 2})
    >>> print(worker)
    8 worker of VCPU=4,PGPU=1, at most 2 per host
    >>> worker.names
    ('worker-0', 'worker-1', 'worker-2', 'worker-3', 'worker-4', 'worker-5', 'worker-6', 'worker-7')
    """

    name: str
    request: Request
    count: int
    at_most: Mapping[str, int]  #: by level, how many one place may get of these
    together: str | None  #: the level of which one place gets all of these; None: any

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
        """One for each: the name itself if there is one, else with numbers from 0."""
        if self.count == 1:
            return (self.name,)
        return tuple(f"{self.name}-{number}" for number in range(self.count))

    def __str__(self) -> str:
        many = f"{self.count} " if self.count > 1 else ""
        return f"{many}{self.name} of {self.request}{_told(self.together, self.at_most)}"


@dataclasses.dataclass(frozen=True, slots=True)
class Gang:
    """Members that are placed all at once or not at all.

    Each argument after the members is for all of them: ``at_most`` counts them together.

    :raises InvalidInput: for what is no such thing, or contradicts itself

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
        for one in self.members:
            if not isinstance(one, Member):
                raise _invalid_request("gang", one, "a Member")
        _set(self, members=tuple(self.members), at_most=_bounds(self.at_most))
        _set(self, together=_level(self.together))
        seen: set[str] = set()
        for name in (name for one in self.members for name in one.names):
            if name in seen:
                raise _invalid_request("gang", name, "each member once")
            seen.add(name)
        _check_count("members", self.count)
        _check_together(self.together, self.at_most, self.count, "gang")
        for one in self.members:
            _check_together(self.together, one.at_most, one.count, f"member {one.name}")
            _check_together(one.together, self.at_most, one.count, f"member {one.name}")

    @property
    def count(self) -> int:
        """How many are placed in all."""
        return sum(one.count for one in self.members)

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels that are named, but for that of hosts, each once."""
        every = [self.together, *self.at_most]
        for one in self.members:
            every += [one.together, *one.at_most]
        return tuple(dict.fromkeys(level for level in every if level not in (None, HOST)))

    @classmethod
    def from_dict(cls, given: Any) -> Self:
        """Return a gang of plain data, as a file says it.

        >>> print(Gang.from_dict({"members": {"worker": {"request": "PGPU=1", "count": 2}},
        ...                       "together": "rack"}))
        2 worker of PGPU=1; all in one rack

        :raises InvalidInput: naming what is wrong, also keys that mean nothing
        """
        known = read_keys("gang", given, ("members", "together", "at_most"))
        members = known.pop("members", None)
        if not isinstance(members, Mapping):
            raise _invalid_request("members", members, "{name: what it asks}")
        every = []
        for name, one in members.items():
            said = read_keys(f"member {name}", one, ("request", "count", "at_most", "together"))
            if "request" not in said:
                raise _invalid_request(f"member {name}", dict(said), "a request")
            every.append(Member(name, **said))
        return cls(every, **known)

    def __str__(self) -> str:
        told = _told(self.together, self.at_most, "all ").removeprefix(", ")
        return "; ".join([*map(str, self.members), *([told] if told else [])])


def _set(value: Any, **fields: object) -> None:
    for name, field in fields.items():
        object.__setattr__(value, name, field)


def _check_count(what: str, count: object) -> None:
    if type(count) is not int or not 1 <= count <= MAX_AMOUNT:
        raise _invalid_request(what, count, f"an integer from 1 to {MAX_AMOUNT}")


def _level(level: object) -> str | None:
    return None if level is None else names.label(level, "level")


def _bounds(given: object) -> FrozenDict:
    if not isinstance(given, Mapping):
        raise _invalid_request("at_most", given, "{level: how many}")
    for level, count in given.items():
        _check_count(f"at_most {names.label(level, 'level')}", count)
    return FrozenDict(given)


def _check_together(level: str | None, at_most: Mapping[str, int], count: int, what: str) -> None:
    """Refuse to ask for all in one place that may not have them all."""
    if level is not None and at_most.get(level, count) < count:
        raise _invalid_request(
            what, f"all in one {level}", f"at least {count} per {level}, not {at_most[level]}"
        )


def _told(level: str | None, at_most: Mapping[str, int], every: str = "") -> str:
    parts = [f"{every}in one {level}"] if level else []
    parts += [f"at most {count} per {name}" for name, count in at_most.items()]
    return "".join(f", {part}" for part in parts)
