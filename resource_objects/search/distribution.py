"""The distribution of members over hosts, within bounds of the domains that contain them. Exact.

Members with the same request and the same bounds are one *kind*, of which only the number matters:
:data:`Counts` has a number for each kind. The counts that a domain can hold contain, with each
counts, all smaller ones, so their Pareto frontier describes all of them. The frontier of a domain
is the sum of the frontiers of its parts, cut to the requested counts and to its own bounds. So the
frontier of a tree of domains is computed from the hosts upwards, and the members fit if and only if
the frontier of the root contains the requested counts.

With one kind, a frontier is a number, and the whole computation is one addition for each host. With
several kinds it may grow with the product of their counts, which the budget limits. Two linear
passes come first and decide nearly all cases: members are assigned kind by kind, the kind with
the fewest hosts first; and each kind is checked individually.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from resource_objects.resources.backtracking import Budget

#: The number of members of each kind.
Counts: TypeAlias = tuple[int, ...]


class LinearBound(NamedTuple):
    """An upper bound on a weighted sum of counts."""

    weights: Counts  #: by kind, 0 or more
    most: int

    def allows(self, counts: Counts) -> bool:
        """Return True if counts are within the bound."""
        used: int = sum(map(operator.mul, self.weights, counts))
        return used <= self.most


@dataclasses.dataclass(frozen=True, slots=True)
class Domain:
    """A host, or a set of domains, with bounds on the members that it may hold."""

    host: int = -1  #: the number of a host
    maximal: Sequence[Counts] = ()  #: of a host: the maximal counts that it can hold
    parts: tuple[Domain, ...] = ()  #: of a set of domains
    bounds: tuple[LinearBound, ...] = ()

    def most(self, limit: Counts) -> Counts:
        """Return for each kind individually the maximum count that the bounds allow."""
        return tuple(
            min([count, *(b.most // b.weights[n] for b in self.bounds if b.weights[n])])
            for n, count in enumerate(limit)
        )


def distribute(root: Domain, need: Counts, budget: Budget) -> dict[int, Counts] | None:
    """Return the counts of each host, by its number; None if the members do not fit.

    Hosts that come first get as many members as they can. Hosts without members are left out.

    Cost: linear in the hosts with one kind, or if members can be assigned kind by kind; else a
    step of the budget for each pair of counts that is added, times the number of hosts.

    :param need: the requested counts
    :raises SearchLimitReached: if the budget runs out first

    >>> rack = Domain(parts=(Domain(1, ((1, 0), (0, 1))), Domain(2, ((1, 0),))))
    >>> distribute(rack, (1, 1), Budget(100))  # only h1 can hold the second kind
    {1: (0, 1), 2: (1, 0)}
    >>> print(distribute(rack, (2, 1), Budget(100)))
    None
    """
    assignment = _by_kind(root, need)
    if assignment is not None:
        return assignment
    if any(most_of_kind(root, need, kind) < count for kind, count in enumerate(need)):
        return None  # linear, and decides nearly all refusals
    for point in _frontier(root, need, budget):
        if point.counts == need:
            return _assignment(point, need)
    return None


def most_of_kind(root: Domain, need: Counts, kind: int) -> int:
    """Return the number of members of one kind that fit without the others, up to the need."""
    only = tuple(count if n == kind else 0 for n, count in enumerate(need))
    return max(point.counts[kind] for point in _frontier(root, only, None))


# --- kind by kind -----------------------------------------------------------------------------


class Remaining:
    """The members that hosts may still get, while members are assigned one after the other."""

    def __init__(self, root: Domain, need: Counts) -> None:
        #: the hosts by number, in order
        self.hosts: dict[int, Domain] = {}
        self._need = need
        self._bounds_of: dict[int, list[list[LinearBound]]] = {}
        self._shared: list[list[LinearBound]] = []
        self._add(root, [])

    def _add(self, domain: Domain, around: list[list[LinearBound]]) -> None:
        if domain.bounds:
            around = [*around, list(domain.bounds)]
        if domain.parts:
            self._shared += around[-1:] if domain.bounds else []
            for part in domain.parts:
                self._add(part, around)
        else:
            self.hosts[domain.host] = domain
            self._bounds_of[domain.host] = around

    def most(self, host: int, kind: int) -> int:
        """Return the number of further members of a kind that a host may get."""
        return min(
            [
                self._need[kind],
                *(
                    bound.most // bound.weights[kind]
                    for bounds in self._bounds_of[host]
                    for bound in bounds
                    if bound.weights[kind]
                ),
            ]
        )

    def assign(self, host: int, kind: int, count: int) -> None:
        """Assign members of a kind to a host; a negative count removes them."""
        for bounds in self._bounds_of[host]:
            bounds[:] = [
                bound._replace(most=bound.most - count * bound.weights[kind]) for bound in bounds
            ]

    @property
    def state(self) -> Counts:
        """The remaining bounds of the domains that contain several hosts."""
        return tuple(bound.most for bounds in self._shared for bound in bounds)


def _by_kind(root: Domain, need: Counts) -> dict[int, Counts] | None:
    """Return the counts of each host, assigned kind by kind; None if that fails."""
    remaining = Remaining(root, need)
    able = [
        sum(any(counts[kind] for counts in host.maximal) for host in remaining.hosts.values())
        for kind in range(len(need))
    ]
    assigned: dict[int, list[int]] = {}
    for kind in sorted(range(len(need)), key=able.__getitem__):
        missing = need[kind]
        for number, host in remaining.hosts.items():
            if not missing:
                break
            has = assigned.get(number) or [0] * len(need)
            # the members of the kinds before stay
            fits = max((c[kind] for c in host.maximal if _contains(c, has)), default=0)
            count = min(missing, fits - has[kind])
            if count > 0:
                count = min(count, remaining.most(number, kind))
            if count <= 0:
                continue
            has[kind] += count
            assigned[number] = has
            missing -= count
            remaining.assign(number, kind, count)
        if missing:
            return None
    return {host: tuple(assigned[host]) for host in remaining.hosts if host in assigned}


def _contains(counts: Counts, other: Sequence[int]) -> bool:
    return all(map(operator.ge, counts, other))


# --- Pareto frontiers ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Point:
    """Counts of a frontier: a sum of two others, or held by a host."""

    counts: Counts
    summands: tuple[_Point, _Point] | None = None
    host: int = -1


def _frontier(domain: Domain, need: Counts, budget: Budget | None) -> list[_Point]:
    """Return the maximal counts within ``need`` that a domain can hold; at least one.

    :param budget: None if only one kind is needed: then a frontier is one point
    """
    points = [_Point((0,) * len(need))]
    if domain.parts:
        enough = domain.most(need)
        for part in domain.parts:
            points = _sums(points, _frontier(part, need, budget), need, budget)
            if len(points) == 1 and _contains(points[0].counts, enough):
                break  # further parts cannot add to that
    elif domain.maximal:
        points = [_Point(_minimum(c, need), host=domain.host) for c in domain.maximal]
    for bound in domain.bounds:
        bounded = [_part(p, counts) for p in points for counts in within_bound(p.counts, bound)]
        if budget is not None:
            budget.spend(len(bounded) - len(points))
        points = _maximal_points(bounded)
    return points


def _minimum(counts: Iterable[int], other: Counts) -> Counts:
    return tuple(map(min, counts, other))


def _sums(
    points: Sequence[_Point], summands: Sequence[_Point], need: Counts, budget: Budget | None
) -> list[_Point]:
    """Return the maximal sums of a point of each."""
    if len(summands) == 1 and not any(summands[0].counts):
        return list(points)
    if budget is not None:
        budget.spend(len(points) * len(summands))
    sums: dict[Counts, _Point] = {}
    for point in points:
        for other in summands:
            total = _minimum(map(operator.add, point.counts, other.counts), need)
            if total not in sums:
                sums[total] = _Point(total, (point, other))
    return _maximal_points(sums.values())


def _part(point: _Point, counts: Counts) -> _Point:
    """Return smaller counts, which are assigned like the larger ones."""
    return point if counts == point.counts else dataclasses.replace(point, counts=counts)


def _maximal_points(points: Iterable[_Point]) -> list[_Point]:
    by_counts = {point.counts: point for point in points}
    return [by_counts[counts] for counts in maximal(by_counts)]


def within_bound(counts: Counts, bound: LinearBound) -> Iterator[Counts]:
    """Yield the maximal counts within others and within a bound, and some that are smaller.

    >>> list(within_bound((2, 3), LinearBound((1, 1), 3)))
    [(2, 1), (1, 2), (0, 3)]
    """
    weights, most = bound
    if bound.allows(counts):
        yield counts
        return
    first, weight = counts[0], weights[0]
    if weight:
        first = min(first, most // weight)
    if len(counts) == 1:
        yield (first,)
        return
    of_others = sum(map(operator.mul, weights[1:], counts[1:]))
    for count in range(first, -1, -1):
        bound = LinearBound(weights[1:], most - count * weight)
        for tail in within_bound(counts[1:], bound):
            yield (count, *tail)
        if not weight or of_others <= bound.most:
            return  # smaller counts of the first kind leave no more to the others


def maximal(points: Iterable[Counts]) -> tuple[Counts, ...]:
    """Return the counts that no others contain, from the largest count of the first kind.

    >>> maximal([(1, 1), (0, 2), (1, 2), (2, 0)])
    ((2, 0), (1, 2))
    """
    ordered = sorted(set(points), reverse=True)
    if len(ordered) < 2 or len(ordered[0]) == 1:
        return tuple(ordered[:1])
    frontier: list[Counts] = []
    if len(ordered[0]) == 2:  # the second count has to grow while the first falls
        for counts in ordered:
            if not frontier or counts[1] > frontier[-1][1]:
                frontier.append(counts)
        return tuple(frontier)
    for counts in ordered:
        if not any(_contains(other, counts) for other in frontier):
            frontier.append(counts)
    return tuple(frontier)


def _assignment(point: _Point, need: Counts) -> dict[int, Counts]:
    """Return the counts of each host for a point; the first hosts get as many as they can."""
    assigned: dict[int, Counts] = {}
    pending = [(point, need)]
    while pending:
        point, counts = pending.pop()
        if not any(counts):
            continue
        if point.summands is None:
            assigned[point.host] = counts
            continue
        first, second = point.summands
        of_first = _minimum(first.counts, counts)
        pending += [(second, tuple(map(operator.sub, counts, of_first))), (first, of_first)]
    return assigned
