"""The rehearsal of a drain: where the consumers of some providers could be placed again.

Each consumer is placed as a whole, by the request of its claim, topology and devices included, in a
scenario where the providers are disabled. The largest consumers come first. If some find no place,
all are placed again with these first. If a few such rounds leave consumers without a place, the
exact search for all at once (:mod:`~resource_objects.search.gangs`) places them, or proves that not
all can be placed (:attr:`Rehearsal.is_certain`). Then the round that left the fewest is the answer.
To leave as few as possible is as hard as bin packing, and is not searched exactly.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from resource_objects import exceptions
from resource_objects.exceptions import SearchLimitReached
from resource_objects.names import provider_key
from resource_objects.providers.plan import Plan
from resource_objects.requests import Gang, Member, Request
from resource_objects.search.candidate import Candidate, Chosen
from resource_objects.search.explain import Explanation
from resource_objects.search.scenario import DRAINED, Scenario, State
from resource_objects.search.script import (
    Requests,
    request_for_counts,
    request_of,
    without_consumers,
)

#: The maximum number of candidates that are tried for each consumer.
MOST_CANDIDATES = 4
#: The maximum number of rounds.
ROUNDS = 4
#: The options of a search for one consumer that a search for all at once does not have.
_OF_ONE_CONSUMER = ("limit", "per_host")


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """A consumer that can be placed elsewhere."""

    consumer: str
    request: Request
    allocated: str  #: its allocations, as text
    candidate: Candidate
    #: the candidate, with the request if that is known, to be claimed
    chosen: Candidate | Chosen = dataclasses.field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "consumer": self.consumer,
            "request": str(self.request),
            "holds": self.allocated,
            "to": self.candidate.to_dict(),
        }

    def __str__(self) -> str:
        return f"{self.consumer}: {self.allocated} -> {self.candidate}"


@dataclasses.dataclass(frozen=True, slots=True)
class Stuck:
    """A consumer without another place, and the reasons."""

    consumer: str
    request: Request
    allocated: str
    why: tuple[str, ...]  #: a line for each host, with its reasons
    #: whether it has no place even if no other consumer is moved; else others were placed before it
    is_certain: bool = False
    cut_short: bool = False  #: whether the search was cut short, so that the answer is unknown
    #: the reasons as data, and the snapshot that they are of; None without a search
    explanation: Explanation | None = dataclasses.field(default=None, repr=False, compare=False)
    snapshot: Any = dataclasses.field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "consumer": self.consumer,
            "request": str(self.request),
            "holds": self.allocated,
            "why": list(self.why),
            "is_certain": self.is_certain,
            "cut_short": self.cut_short,
        }

    def __str__(self) -> str:
        return "\n  ".join([f"{self.consumer}: {self.allocated} -> nowhere", *self.why])


@dataclasses.dataclass(frozen=True, slots=True)
class Rehearsal:
    """The consumers of drained providers, placed and stuck. True if all are placed."""

    providers: tuple[str, ...]
    placed: tuple[Placed, ...]
    stuck: tuple[Stuck, ...]
    #: the providers are disabled in it, and the placed consumers are moved
    scenario: Scenario[State]
    is_certain: bool  #: whether all are placed, or it is proved that not all can be
    budget: int  #: the maximum number of steps of each search

    def __bool__(self) -> bool:
        return not self.stuck

    def require(self) -> None:
        """Raise an exception unless all consumers are placed.

        :raises NoCandidates: with the stuck consumers and their reasons, if not all can be placed
        :raises SearchLimitReached: if that is unknown
        """
        if self.stuck and not self.is_certain:
            raise SearchLimitReached(self.budget, len(self.placed))
        if self.stuck:
            raise exceptions.NoCandidates("\n".join(map(str, self.stuck)))

    @property
    def plan(self) -> Plan:
        """The plan of the drain: ``ledger.apply`` carries it out in one transaction."""
        return self.scenario.diff()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "providers": list(self.providers),
            "placed": [move.to_dict() for move in self.placed],
            "stuck": [stuck.to_dict() for stuck in self.stuck],
            "is_certain": self.is_certain,
        }

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.placed, *self.stuck))) or "no allocations to move"


def rehearse(
    scenario: Scenario[State], providers: Sequence[str], requests: Requests, **options: Any
) -> Rehearsal:
    """Return the possible placements of the consumers of providers, and of providers below them.

    Cost: for each consumer and round a search, and copies of three columns.

    :param scenario: left unchanged
    :param requests: the requests of consumers; for the others the allocated counts are requested
    :param options: as for ``snapshot.candidates``, with the budget
    :raises NotFound: for an unknown provider
    """
    return _Drain(scenario, tuple(dict.fromkeys(providers)), requests, options).rehearse()


@dataclasses.dataclass(slots=True)
class _Round:
    """A scenario in which the consumers were placed one after the other."""

    scenario: Scenario[State]
    placed: dict[str, Placed] = dataclasses.field(default_factory=dict)
    unplaced: list[str] = dataclasses.field(default_factory=list)


class _Drain:
    """The rehearsal of a drain."""

    def __init__(
        self,
        scenario: Scenario[State],
        providers: tuple[str, ...],
        requests: Requests,
        options: dict[str, Any],
    ) -> None:
        self.before, self.providers, self.options = scenario, providers, options
        self.scenario = self._with_disabled_providers()
        self.consumers = self._consumers()
        #: None if it is unknown: the counts are placed then
        self.known_requests = {
            name: request_of(self.scenario, requests, name) for name in self.consumers
        }
        self.requests = {
            name: request or request_for_counts(self.scenario, name)
            for name, request in self.known_requests.items()
        }

    def rehearse(self) -> Rehearsal:
        """Return the rehearsal."""
        best, is_certain = self._best()
        stuck = tuple(self._stuck(name, best.scenario) for name in sorted(best.unplaced))
        return Rehearsal(
            self.providers,
            tuple(best.placed[name] for name in sorted(best.placed)),
            stuck,
            best.scenario,
            is_certain or any(reason.is_certain for reason in stuck),
            self.options["budget"],
        )

    def _with_disabled_providers(self) -> Scenario[State]:
        scenario = self.before.fork()
        for name in self.providers:
            scenario.disable(name, reason=DRAINED)
        return scenario

    def _consumers(self) -> tuple[str, ...]:
        """Return the consumers of the providers and of those below them."""
        fleet = self.scenario.snapshot.fleet
        roots = {fleet.place_by_key[provider_key(name)] for name in self.providers}
        drained = [
            place
            for tree in sorted({int(fleet.tree[root]) for root in roots})
            for place in fleet.of_tree(tree)
            if not roots.isdisjoint(fleet.upwards(place))
        ]
        return tuple(sorted({consumer for _, _, consumer, _ in fleet.allocations.of(drained)}))

    def _allocated(self, name: str) -> str:
        uses = self.scenario.held(name).held
        return ", ".join(f"{use.resource_class}={use.amount} of {use.provider}" for use in uses)

    def _size(self, name: str) -> int:
        """Return the dominant share of a consumer: the largest part of a class, in millionths.

        Source: A. Ghodsi et al., "Dominant Resource Fairness", NSDI 2011.
        """
        total = Counter[str]()
        for use in self.scenario.held(name).held:
            total[use.resource_class] += use.amount
        fleet = self.scenario.snapshot.fleet
        return max(
            10**6 * amount // max(1, int(fleet.rows(kind).capacity.sum()))
            for kind, amount in total.items()
        )

    # --- placements ---

    def _best(self) -> tuple[_Round, bool]:
        """Return the round that leaves the fewest, and whether no other can leave fewer."""
        by_size = sorted(self.consumers, key=lambda name: (-self._size(name), name))
        order, best = by_size, self._place_in_order(by_size)
        for _ in range(ROUNDS - 1):
            unplaced = best.unplaced
            again = [*unplaced, *(name for name in order if name not in unplaced)]
            if again == order:
                break
            order = again
            best = min(best, self._place_in_order(order), key=lambda done: len(done.unplaced))
        return (best, True) if not best.unplaced else self._place_at_once(best)

    def _place_in_order(self, order: Iterable[str]) -> _Round:
        done = _Round(self._with_disabled_providers())
        for name in order:
            before = len(done.scenario)
            done.scenario.release(name)
            if not self._place_first(done, name):
                done.scenario.undo(before)
                done.unplaced.append(name)
        return done

    def _place_first(self, done: _Round, name: str) -> bool:
        """Claim the first candidate that can be claimed for a consumer, if there is one."""
        options = {"limit": MOST_CANDIDATES, **self.options}
        with contextlib.suppress(SearchLimitReached, exceptions.InvalidInput):  # explained later
            for candidate in done.scenario.candidates(self.requests[name], **options):
                # a claim may check more than a search
                with contextlib.suppress(exceptions.CapacityException):
                    self._place(done, name, candidate)
                    return True
        return False

    def _place(self, done: _Round, name: str, candidate: Candidate) -> None:
        request = self.known_requests[name]
        chosen = candidate if request is None else Chosen(candidate, request)
        done.scenario.claim(name, chosen, limits=self.options.get("limits"))
        allocated = self._allocated(name)
        done.placed[name] = Placed(name, self.requests[name], allocated, candidate, chosen)

    def _place_at_once(self, best: _Round) -> tuple[_Round, bool]:
        """Return a round that places all consumers, if the search for all at once finds one."""
        names = {f"{number}": name for number, name in enumerate(self.consumers)}
        gang = Gang([Member(number, self.requests[name]) for number, name in names.items()])
        options = {key: v for key, v in self.options.items() if key not in _OF_ONE_CONSUMER}
        done = _Round(self._with_disabled_providers())
        for name in self.consumers:
            done.scenario.release(name)
        try:
            fit = done.scenario.snapshot.fit_gang(gang, **options)
            for number, candidate in fit.candidates.items():
                self._place(done, names[number], candidate)
        except (SearchLimitReached, exceptions.InvalidInput, exceptions.CapacityException):
            return best, False
        return (done, True) if fit else (best, True)

    # --- reasons ---

    def _stuck(self, name: str, after: Scenario[State]) -> Stuck:
        """Return the reasons that a consumer has no place: at all, or next to the others."""
        why, facts = "no candidate of a short search could be claimed", dict[str, Any]()
        individually = without_consumers(self.scenario, *self.consumers)
        for scenario, is_certain in ((individually, True), (without_consumers(after, name), False)):
            options = {"limit": 1, **self.options}
            try:
                candidates = scenario.candidates(self.requests[name], **options)
                if candidates:
                    continue
                explanation = candidates.explain()
            except exceptions.InvalidInput as error:  # it was claimed at a host, without a search
                why = str(error)
            except SearchLimitReached:
                why, facts = f"cut short after {self.options['budget']} steps", {"cut_short": True}
            else:
                why, facts = str(explanation), {"is_certain": is_certain}
                facts |= {"explanation": explanation, "snapshot": scenario.snapshot}
            break
        lines = tuple(why.splitlines())
        return Stuck(name, self.requests[name], self._allocated(name), lines, **facts)
