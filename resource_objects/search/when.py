"""The time at which a request would fit: the earliest sufficient end of claims.

The claims are released in a fork in the order of their ends, and the request is searched again. The
answer is an estimate: nothing is reserved, and a claim that is extended or made first changes it.

A bisection is exact, because a request that fits after some ends fits after all later ones, too. A
later end only releases. It reduces the usage of every inventory, also through shares, so capacity
and limits still allow the candidate. Its units, cells and pages stay free. Traits, aggregates,
trees, domains of a level and disabled providers do not depend on allocations. (A preference may
choose another candidate.)
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Mapping
from typing import Any

from resource_objects import exceptions
from resource_objects.exceptions import SearchLimitReached
from resource_objects.names import consumer_name
from resource_objects.requests import Request
from resource_objects.search.candidate import Candidate
from resource_objects.search.candidates import Candidates
from resource_objects.search.scenario import Scenario, State

#: The consumer of the candidate while the ends that it needs are determined.
TRIAL = "(when)"
#: The maximum number of ends of which each is checked for being needed.
MOST_CHECKED = 64


@dataclasses.dataclass(frozen=True, slots=True)
class End:
    """The end of a claim.

    >>> import datetime
    >>> print(End("job-1", datetime.datetime(2030, 1, 2, 3, tzinfo=datetime.UTC)))
    job-1 ends 2030-01-02 03:00:00+00:00
    """

    consumer: str
    at: datetime.datetime

    def __str__(self) -> str:
        return f"{self.consumer} ends {self.at}"


@dataclasses.dataclass(frozen=True, slots=True)
class When:
    """The time at which a request would fit if no other claims are made. True if it is known.

    ==============  ===========================================================================
    now             ``now`` is True, ``at`` is None, ``because`` has expired claims to release
    later           ``at`` is the time, ``because`` has the ends that are needed
    never by ends   ``at`` is None, ``why`` has the reasons
    unknown         ``cut_short`` is True
    ==============  ===========================================================================
    """

    request: Request
    now: bool = False  #: whether the request fits without any future end
    at: datetime.datetime | None = None  #: the earliest end after which the request fits
    #: the candidate at that time; None if it is not known to fit
    candidate: Candidate | None = None
    #: the ends without any one of which this candidate would not be free
    because: tuple[End, ...] = ()
    #: the latest end after which the request is known not to fit; None if there is none
    not_after: datetime.datetime | None = None
    cut_short: bool = False  #: whether the budget of a search was exhausted
    #: the reasons of the hosts after all ends, a line each; empty if it fits or is unknown
    why: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.now or self.at is not None

    def as_of(self, moment: datetime.datetime) -> When:
        """Return the answer at a moment: ends before it have passed."""
        if self.at is None or self.at >= moment:
            return self
        return dataclasses.replace(self, now=True, at=None, not_after=None)

    def __str__(self) -> str:
        if self.now:
            expired = ", ".join(f"{end.consumer}, expired {end.at}" for end in self.because)
            return f"now, without {expired}" if expired else "now"
        if self.at is not None:
            return f"{self.at}, when {', '.join(map(str, self.because))}"
        if self.cut_short:
            bound = "" if self.not_after is None else f", not before {self.not_after}"
            return f"not known: the budget ended{bound}"
        return "\n".join(["not by the end of claims", *self.why])


def when(
    scenario: Scenario[State],
    request: Request,
    ends: Mapping[str, datetime.datetime],
    **options: Any,
) -> When:
    """Return when a request would fit.

    Cost: a search for each bisection of the times, and a tenth of a millisecond for each claim that
    is released on the way; then a search for each consumer on the trees of the candidate.

    :param scenario: a fork without changes
    :param ends: when claims end, by consumer; consumers without allocations have no effect
    :param options: of each search: budget and limits
    """
    stated = [End(consumer_name(name), _moment(name, at)) for name, at in ends.items()]
    times = sorted({end.at for end in stated})
    consumers = scenario.snapshot._fleet.places_of_holders
    effective = [end for end in stated if consumers.get(end.consumer)]
    effective.sort(key=lambda end: (end.at, end.consumer))

    def ended(number: int) -> list[End]:
        """Return the ends up to one of the times; none for 0."""
        return [end for end in effective if number and end.at <= times[number - 1]]

    def candidates_after(number: int) -> Candidates:
        count = len(ended(number))
        scenario.undo(min(count, len(scenario)))
        for end in effective[len(scenario) : count]:
            scenario.release(end.consumer)
        candidates = scenario.candidates(request, limit=1, **options)
        bool(candidates)  # the search is lazy: it runs before the scenario changes
        return candidates

    low, high = 0, len(times)  # numbers of times: it does not fit after low, and fits after high
    try:
        if candidates := candidates_after(0):
            return When(request, now=True, candidate=candidates[0])
        if not (last := candidates_after(high)):
            why = tuple(str(last.explain()).splitlines())
            return When(request, not_after=max(times, default=None), why=why)
        candidate = last[0]
        while low + 1 < high:
            middle = (low + high) // 2
            if candidates := candidates_after(middle):
                candidate, high = candidates[0], middle
            else:
                low = middle
    except SearchLimitReached:
        return When(request, not_after=times[low - 1] if low else None, cut_short=True)
    needed = _needed(scenario, candidate, ended(high))
    not_after = times[low - 1] if low else None
    return When(request, False, times[high - 1], candidate, needed, not_after)


def _needed(
    scenario: Scenario[State], candidate: Candidate, ended: Collection[End]
) -> tuple[End, ...]:
    """Return the ends without any one of which a candidate would not be free, in order.

    All consumers on its trees are released, and the candidate is claimed. Then they return as far
    as they fit, the last to end first: the ends of the others are needed.
    """
    scenario.undo(0)
    fleet = scenario.snapshot.fleet
    trees = {int(fleet.tree[fleet.place_by_key[a.provider]]) for a in candidate.allocations}
    places = [place for tree in sorted(trees) for place in fleet.of_tree(tree)]
    nearby = {consumer for _, _, consumer, _ in fleet.allocations.of(places)}
    released = [(end, scenario.release(end.consumer)) for end in ended if end.consumer in nearby]
    scenario.claim(TRIAL, candidate)
    needed: list[End] = []
    for end, allocations in reversed(released):
        try:
            scenario.claim(end.consumer, allocations)
        except exceptions.CapacityException:
            needed.append(end)
    if len(needed) <= MOST_CHECKED:  # a consumer above a capacity never returns
        for end in needed.copy():
            fewer = [other for other in needed if other is not end]
            if _is_free(scenario, candidate, fewer):
                needed = fewer
    return tuple(reversed(needed))


def _is_free(scenario: Scenario[State], candidate: Candidate, ended: Collection[End]) -> bool:
    """Return True if a candidate can be claimed after some ends."""
    scenario.undo(0)
    for end in ended:
        scenario.release(end.consumer)
    try:
        scenario.claim(TRIAL, candidate)
    except exceptions.CapacityException:
        return False
    return True


def _moment(name: str, at: object) -> datetime.datetime:
    if not isinstance(at, datetime.datetime) or at.tzinfo is None:
        raise exceptions.InvalidInput("value", f"end of {name}", at, "a time with its zone")
    return at
