"""When a request would fit: the earliest end of claims after which it does, if nothing else came.

Claims end at the times that are said of them; they are given back in that order, in a fork, and the
request is asked for again. No place is kept for anybody by that, and who extends a claim or comes
first changes the answer: it is an estimate, with its reasons.

Not each end has to be tried: the ends after which a request fits are all of those from some one on,
so half of what is left is ruled out by each search. For let it fit after some ends, by a candidate.
A later end only gives back. What the candidate takes of an inventory is free there still, for used
has not grown, and with it what the inventory may be used for through shares; its units, cells and
pages were nobody's and still are; limits bound what is used in all, which has not grown either.
Traits, aggregates, trees, places of a level and what is out of service do not depend on who holds
what. So the same candidate is one. (A preference may choose another one; that there is one stays.)
"""

from __future__ import annotations

import bisect
import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from resource_objects import exceptions
from resource_objects.exceptions import SearchLimitReached
from resource_objects.names import consumer_name
from resource_objects.requests import Request
from resource_objects.search.candidate import Candidate
from resource_objects.search.candidates import Candidates
from resource_objects.search.scenario import Scenario

#: Who takes what was found, while it is looked who stands in its way.
TRIAL = "(when)"
#: Of more ends than these it is not looked again whether each is needed.
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
    """When a request would fit, if nothing else came. True if that is known.

    =================  ==========================================
    it fits now        ``now`` is True, ``at`` None; ``because``: expired claims to release
    later              ``at`` is when, ``because`` says whose ends
    not by ends alone  ``at`` is None, ``why`` says why
    not known          ``cut_short`` is True
    =================  ==========================================
    """

    request: Request
    now: bool = False  #: whether it fits without any end that is still to come
    at: datetime.datetime | None = None  #: the earliest end after which it fits
    #: what it would be given then; None if it is not known that it ever is
    candidate: Candidate | None = None
    #: the ends that make it so: without any one of them this candidate would not be free
    because: tuple[End, ...] = ()
    #: the latest end of which it is known that it does not fit after that; None: not even now
    not_after: datetime.datetime | None = None
    cut_short: bool = False  #: whether the budget of a search ended before it was known
    #: why hosts cannot hold it after all ends, a line each; empty if that is not so
    why: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.now or self.at is not None

    def as_of(self, moment: datetime.datetime) -> When:
        """Return the same answer at a moment: ends before it are over."""
        if self.at is None or self.at >= moment:
            return self
        return dataclasses.replace(self, now=True, at=None, not_after=None)

    def __str__(self) -> str:
        if self.now:
            expired = ", ".join(f"{one.consumer}, expired {one.at}" for one in self.because)
            return f"now, without {expired}" if expired else "now"
        if self.at is not None:
            return f"{self.at}, when {', '.join(map(str, self.because))}"
        if self.cut_short:
            known = "" if self.not_after is None else f", not before {self.not_after}"
            return f"not known: the budget ended{known}"
        return "\n".join(["not by the end of claims", *self.why])


def when(
    scenario: Scenario,
    request: Request,
    ends: Mapping[str, datetime.datetime],
    **options: Any,
) -> When:
    """Return when a request would fit.

    Cost: a search for each halving of the ends, and a tenth of a millisecond for each claim that is
    given back on the way; then a search for each consumer on what was found.

    :param scenario: a fork of what is asked; what holds nothing in it is passed over
    :param ends: when claims end, by consumer
    :param options: of each search: budget and limits
    """
    return _Waiting(scenario, request, ends, options).answer()


class _Waiting:
    """A request while its time is looked for."""

    def __init__(
        self,
        scenario: Scenario,
        request: Request,
        ends: Mapping[str, datetime.datetime],
        options: Mapping[str, Any],
    ) -> None:
        self.scenario, self.request, self.options = scenario, request, options
        every = [End(consumer_name(name), _moment(name, at)) for name, at in ends.items()]
        self.ends = sorted(every, key=lambda one: (one.at, one.consumer))
        self.times = sorted({one.at for one in every})
        #: how many changes the scenario had before each end that was carried out
        self.marks: list[int] = []

    def answer(self) -> When:
        """Return when it would fit."""
        low, high = -1, len(self.times)  # it does not fit after low, and does after high
        found: Candidates | None = None
        is_known = True
        try:
            if first := self._after(-1):
                return When(self.request, now=True, candidate=first[0])
            last = self._after(high - 1)
            if not last:
                why = tuple(str(last.explain()).splitlines())
                return When(self.request, not_after=max(self.times, default=None), why=why)
            found, high = last, high - 1
        except SearchLimitReached:
            is_known = False
        while is_known and low + 1 < high:
            middle = (low + high) // 2
            try:
                here = self._after(middle)
                if here:
                    found, high = here, middle
                else:
                    low = middle
            except SearchLimitReached:
                is_known = False
        not_after = self.times[low] if low >= 0 else None
        if not is_known or found is None:
            return When(self.request, not_after=not_after, cut_short=True)
        candidate = found[0]
        because = self._because(candidate, high)
        return When(self.request, False, self.times[high], candidate, because, not_after)

    def _after(self, number: int) -> Candidates:
        """Return who could hold it after so many ends, counted from 0; -1 for none."""
        self._go(number)
        found: Candidates = self.scenario.candidates(self.request, limit=1, **self.options)
        bool(found)  # while the scenario is as it is asked
        return found

    def _go(self, number: int) -> None:
        """Carry out the ends up to the time of a number, and no more."""
        at = bisect.bisect_right(self.ends, self.times[number], key=_at) if number >= 0 else 0
        while len(self.marks) > at:
            self.scenario.undo(self.marks.pop())
        for one in self.ends[len(self.marks) : at]:
            self.marks.append(len(self.scenario))
            try:
                self.scenario.release(one.consumer)
            except exceptions.NotFound as error:
                if not error.is_about("consumer"):
                    raise
                continue  # it came after the picture was taken, or is not of it

    def _because(self, candidate: Candidate, number: int) -> tuple[End, ...]:
        """Return the ends without any of which a candidate would not be free, the first ones first.

        Those who hold something near it give back, it is taken, and all others come again as far
        as they can, the last to end first: who cannot has to end.
        """
        at = bisect.bisect_right(self.ends, self.times[number], key=_at)
        self._go(-1)
        near = self._near(candidate)
        ended = [one for one in self.ends[:at] if one.consumer in near]
        mark, needed = len(self.scenario), list[End]()
        held = [(one, self.scenario.release(one.consumer)) for one in ended]
        self.scenario.claim(TRIAL, candidate)
        for one, allocations in reversed(held):
            try:
                self.scenario.claim(one.consumer, allocations)
            except exceptions.CapacityException:
                needed.append(one)
        self.scenario.undo(mark)
        if len(needed) <= MOST_CHECKED:  # who is beyond a capacity does not come again, either way
            for one in needed.copy():
                others = [other for other in needed if other is not one]
                if self._is_free(candidate, others):
                    needed = others
        return tuple(reversed(needed))

    def _near(self, candidate: Candidate) -> frozenset[str]:
        """Return who holds something in the trees that a candidate takes something of."""
        fleet = self.scenario.snapshot.fleet
        trees = {int(fleet.tree[fleet.place_by_key[a.provider]]) for a in candidate.allocations}
        return frozenset(
            consumer
            for tree in trees
            for place in fleet.of_tree(tree)
            for _, consumer, _ in fleet.allocations.of_provider(place)
        )

    def _is_free(self, candidate: Candidate, ended: Sequence[End]) -> bool:
        """Return whether a candidate could be taken after some ends."""
        mark = len(self.scenario)
        try:
            for one in ended:
                self.scenario.release(one.consumer)
            self.scenario.claim(TRIAL, candidate)
        except exceptions.CapacityException:
            return False
        else:
            return True
        finally:
            self.scenario.undo(mark)


def _at(one: End) -> datetime.datetime:
    return one.at


def _moment(name: str, at: object) -> datetime.datetime:
    if not isinstance(at, datetime.datetime) or at.tzinfo is None:
        raise exceptions.InvalidInput("value", f"end of {name}", at, "a time with its zone")
    return at
