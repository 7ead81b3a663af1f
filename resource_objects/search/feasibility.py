"""What became of the hosts, and whether those that were refused could: not now, or never."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

import numpy as np

from resource_objects.exceptions import SearchLimitReached
from resource_objects.requests import Request
from resource_objects.resources.budget import Budget
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.fleet import Fleet
from resource_objects.search.host_classes import HostClasses
from resource_objects.search.order import Options, Order, Preference
from resource_objects.search.problem import direct, lay, possible
from resource_objects.search.tree_search import TreeSearch, Wider
from resource_objects.search.usage import with_limits


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


# --- the outlook of hosts -----------------------------------------------------------------------
# What is out of service stays so, and so do limits, traits and places. Arrays decide most hosts; of
# those that are alike in all that the request asks about, one is decided.

#: So many hosts are decided for a count of them.
FEW_OPEN = 50

#: How an outlook is kept of each tree.
_NEVER, _NOT_NOW, _UNKNOWN, _OPEN = range(4)
_OF_CODE = {_NEVER: Outlook.NEVER, _NOT_NOW: Outlook.NOT_NOW, _UNKNOWN: Outlook.UNKNOWN}


class UnheldFleet:
    """The outlook of each host. Nothing is worked out before it is looked at.

    Cost: once some passes over the fleet; then some 200 microseconds for each host that arrays do
    not decide, and is like none that was looked at before.
    """

    def __init__(self, fleet: Fleet, request: Request, options: Options) -> None:
        """:param fleet: as it is kept, with all units"""
        then = with_limits(fleet.released().as_of_now(), options.limits)
        self._problem = lay(request, then, options.filters)
        self._code = np.full(len(then.hosts), _NEVER, dtype=np.int8)
        self._code[possible(self._problem)] = _OPEN
        decided = direct(self._problem, True, of_each=False)
        if decided is not None:
            self._code[decided.decides & (self._code == _OPEN)] = _NOT_NOW
        self._budget = Budget(options.budget)
        self._preference = Preference(then, request, Order(), None)
        self._known: dict[Hashable, int] = {}

    def bounds(self, trees: Integers) -> tuple[int, int]:
        """Return how many of some hosts could for sure, and how many perhaps.

        Where arrays leave few open they are decided, else nothing is that takes long.
        """
        open_ = trees[self._code[trees] == _OPEN]
        if len(open_) <= FEW_OPEN:
            self.of(open_.tolist())
        codes = self._code[trees]
        sure = int(np.count_nonzero(codes == _NOT_NOW))
        return sure, sure + int(np.count_nonzero(codes >= _UNKNOWN))

    @property
    def never(self) -> Booleans:
        """Which hosts could not for sure, as far as it is known, by tree."""
        found: Booleans = self._code == _NEVER
        return found

    def of(self, trees: Iterable[int]) -> list[Outlook]:
        """Return the outlook of some hosts."""
        found = []
        for tree in trees:
            if self._code[tree] == _OPEN:
                self._code[tree] = self._decided(tree)
            found.append(_OF_CODE[int(self._code[tree])])
        return found

    @functools.cached_property
    def _classes(self) -> HostClasses:
        return HostClasses([self._problem])

    def _decided(self, tree: int) -> int:
        key = self._classes.of(tree)
        if key not in self._known:
            self._known[key] = self._searched(tree)
        return self._known[key]

    def _searched(self, tree: int) -> int:
        hosting = TreeSearch(self._problem, tree, self._preference)
        try:
            found = hosting.next(self._budget, self._budget.left)
            while isinstance(found, Wider):
                found = hosting.next(self._budget, self._budget.left)
        except SearchLimitReached:
            return _UNKNOWN
        return _NEVER if found is None else _NOT_NOW
