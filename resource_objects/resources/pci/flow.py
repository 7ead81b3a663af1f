"""So many of each: demands met from groups, all at once. Polynomial and complete.

A demand asks for a number of devices, each of any of some groups; a group has a number of them.
What can be met is met: where taking the best first does not do, devices are passed on along
the shortest chain of demands that can do with others (Ford and Fulkerson; Edmonds and Karp).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence


class Flow:
    """Demands met from groups, as far as that is possible.

    ``given[d][g]`` is how many of group ``g`` demand ``d`` has.

    >>> Flow([1, 3], [[0, 1], [1]], {0: 1, 1: 3}).given
    [{0: 1}, {1: 3}]
    >>> Flow([1, 3], [[1, 0], [1]], {0: 1, 1: 3}).given    # the first has to take what is left
    [{0: 1}, {1: 3}]
    """

    def __init__(
        self, counts: Sequence[int], may: Sequence[Sequence[int]], capacity: Mapping[int, int]
    ) -> None:
        """Meet demands.

        :param counts: how many each asks for
        :param may: the groups of each, the best first
        :param capacity: how many there are of each group
        """
        self._may = may
        self._spare = dict(capacity)
        self._holders: dict[int, set[int]] = defaultdict(set)  #: demands, by group
        self.given: list[dict[int, int]] = [{} for _ in counts]
        self.missing = list(counts)
        for demand in range(len(counts)):
            self._take_first(demand)
            while self.missing[demand] and self._pass_on(demand):
                pass

    @property
    def is_complete(self) -> bool:
        """Whether every demand is met."""
        return not any(self.missing)

    def _take_first(self, demand: int) -> None:
        """Take what nobody has, the best first."""
        for group in self._may[demand]:
            if not self.missing[demand]:
                return
            count = min(self.missing[demand], self._spare.get(group, 0))
            if count > 0:
                self._move(demand, group, count)
                self._spare[group] -= count
                self.missing[demand] -= count

    def _pass_on(self, start: int) -> bool:
        """Let others do with something else, along a shortest chain; return whether they can."""
        came: dict[int, tuple[int, int]] = {}  # demand: (the one before it, the group it gives up)
        seen: set[int] = set()
        waiting = deque([start])
        while waiting:
            demand = waiting.popleft()
            for group in self._may[demand]:
                if group in seen:
                    continue
                if self._spare.get(group, 0) > 0:
                    self._along(start, demand, group, came)
                    return True
                seen.add(group)
                for other in sorted(self._holders[group]):
                    if other != start and other not in came:
                        came[other] = demand, group
                        waiting.append(other)
        return False

    def _along(
        self, start: int, demand: int, group: int, came: Mapping[int, tuple[int, int]]
    ) -> None:
        count, at = min(self.missing[start], self._spare[group]), demand
        while at != start:
            before, given_up = came[at]
            count, at = min(count, self.given[at][given_up]), before
        self._spare[group] -= count
        self.missing[start] -= count
        self._move(demand, group, count)
        while demand != start:
            before, given_up = came[demand]
            self._move(demand, given_up, -count)
            self._move(before, given_up, count)
            demand = before

    def _move(self, demand: int, group: int, count: int) -> None:
        has = self.given[demand]
        has[group] = has.get(group, 0) + count
        if has[group]:
            self._holders[group].add(demand)
        else:
            del has[group]
            self._holders[group].discard(demand)

    def short(self) -> list[frozenset[int]]:
        """Return sets of demands that are short together: only more for one of them could help.

        One for each that is not met: itself, and those who have what it could use (a violator of
        Hall's condition); none if all are met.
        """
        return [self._beside(demand) for demand, count in enumerate(self.missing) if count]

    def _beside(self, start: int) -> frozenset[int]:
        found = {start}
        waiting = [start]
        while waiting:
            for group in self._may[waiting.pop()]:
                waiting += self._holders[group] - found
                found |= self._holders[group]
        return frozenset(found)
