"""The outcome of a search by host, and whether refused hosts could ever hold the request."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Hashable, Iterable

import numpy as np

from resource_objects.exceptions import SearchLimitReached
from resource_objects.requests import Request
from resource_objects.resources.backtracking import Budget
from resource_objects.search.arrays import Booleans, Integers
from resource_objects.search.fleet import Fleet
from resource_objects.search.host_classes import HostClasses
from resource_objects.search.order import Options, Order, Preference
from resource_objects.search.problem import compile_request, decide_by_arrays, possible_trees
from resource_objects.search.tree_search import TreeSearch


class Outlook(enum.StrEnum):
    """Whether a host could hold a request if nothing were allocated."""

    NOT_NOW = "not_now"  #: it could: what is missing is allocated to consumers
    NEVER = "never"  #: it could not
    UNKNOWN = "unknown"  #: the budget ran out


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SearchOutcome:
    """The outcome of a search by host, as trees in the order of names."""

    considered: Booleans  #: all hosts, without the pools that cannot be a host
    refused: Integers  #: the hosts that cannot hold the request
    undecided: tuple[int, ...]  #: the hosts on which the budget ran out
    unseen: int  #: the number of hosts that are not decided because the limit was reached
    budget: int
    #: whether refused hosts are feasible; None: unknown
    feasibility: Callable[[], Feasibility] | None = None

    @property
    def hosts(self) -> int:
        """The number of hosts."""
        return int(self.considered.sum())

    @property
    def found(self) -> int:
        """The number of hosts that can hold the request."""
        return max(0, self.hosts - len(self.refused) - len(self.undecided) - self.unseen)


#: The maximum number of hosts that are decided to count the feasible ones.
FEW_OPEN = 50

_NEVER, _NOT_NOW, _UNKNOWN, _OPEN = range(4)
_OUTLOOKS = (Outlook.NEVER, Outlook.NOT_NOW, Outlook.UNKNOWN)


class Feasibility:
    """The outlook of each host: of the same search if nothing were allocated.

    Disabled providers stay disabled, and limits, traits and places stay as they are. Arrays decide
    most hosts; of each class of hosts in the same state, one is decided. Cost: some passes over the
    fleet; then some 200 microseconds for each class.
    """

    def __init__(self, fleet: Fleet, request: Request, options: Options) -> None:
        """:param fleet: as it is recorded, with all units"""
        released = fleet.released.as_of_now().with_limits(options.limits)
        self._problem = compile_request(request, released, options.filters)
        self._code = np.full(len(released.hosts), _NEVER, dtype=np.int8)
        self._code[possible_trees(self._problem)] = _OPEN
        decided = decide_by_arrays(self._problem, True, of_each=False)
        if decided is not None:
            self._code[decided.decides & (self._code == _OPEN)] = _NOT_NOW
        self._budget = Budget(options.budget)
        self._preference = Preference(released, request, Order(), None)
        self._by_class: dict[Hashable, int] = {}

    @property
    def is_never(self) -> Booleans:
        """By tree, whether the host surely could not, as far as it is known."""
        flags: Booleans = self._code == _NEVER
        return flags

    def bounds(self, trees: Integers) -> tuple[int, int]:
        """Return the numbers of hosts that surely could, and that perhaps could.

        Hosts that arrays leave open are decided if they are few.
        """
        undecided = trees[self._code[trees] == _OPEN]
        if len(undecided) <= FEW_OPEN:
            self.of(undecided.tolist())
        codes = self._code[trees]
        sure = int(np.count_nonzero(codes == _NOT_NOW))
        return sure, sure + int(np.count_nonzero(codes >= _UNKNOWN))

    def of(self, trees: Iterable[int]) -> list[Outlook]:
        """Return the outlooks of some hosts."""
        outlooks = []
        for tree in trees:
            if self._code[tree] == _OPEN:
                self._code[tree] = self._decide(tree)
            outlooks.append(_OUTLOOKS[int(self._code[tree])])
        return outlooks

    def _decide(self, tree: int) -> int:
        host_class = self._classes.of(tree)
        if host_class not in self._by_class:
            self._by_class[host_class] = self._search(tree)
        return self._by_class[host_class]

    @functools.cached_property
    def _classes(self) -> HostClasses:
        return HostClasses([self._problem])

    def _search(self, tree: int) -> int:
        search = TreeSearch(self._problem, tree, self._preference)
        try:
            return _NEVER if search.next_candidate(self._budget) is None else _NOT_NOW
        except SearchLimitReached:
            return _UNKNOWN
