"""What became of the hosts, and whether those that were refused could: not now, or never."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable
from typing import Protocol

from resource_objects.search.arrays import Booleans, Integers


class Outlook(enum.StrEnum):
    """Whether a host could hold a request if nobody held anything."""

    NOT_NOW = "not_now"  #: it could: others hold what is missing
    NEVER = "never"  #: not even then, as the host is
    UNKNOWN = "unknown"  #: the budget ran out before it was known


class Outlooks(Protocol):
    """The outlook of each host, by tree; nothing is worked out before it is looked at."""

    @property
    def never(self) -> Booleans:
        """Which hosts could not for sure, as far as it is known, by tree."""

    def bounds(self, trees: Integers) -> tuple[int, int]:
        """Return how many of some hosts could for sure, and how many perhaps.

        Where arrays leave few open they are decided, else nothing is that takes long.
        """

    def of(self, trees: Iterable[int]) -> list[Outlook]:
        """Return the outlook of some hosts."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SearchOutcome:
    """What became of the hosts, as trees in the order of names."""

    told: Booleans  #: it is about these: pools that could be no host are left out
    refused: Integers  #: they cannot hold the request
    undecided: tuple[int, ...]  #: the budget ran out on them
    unseen: int  #: how many were not decided because the limit was reached
    budget: int
    #: of hosts that were refused; None: nobody can say what would be
    outlooks: Callable[[], Outlooks] | None = None

    @property
    def hosts(self) -> int:
        """How many hosts it is about."""
        return int(self.told.sum())

    @property
    def found(self) -> int:
        """How many hosts can hold it."""
        return max(0, self.hosts - len(self.refused) - len(self.undecided) - self.unseen)
