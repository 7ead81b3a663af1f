"""A drain, rehearsed: if these hosts go, who can be placed again, where, and who cannot and why.

Everybody who holds something there is placed anew, as a whole, by the request it was made for: its
topology and devices too. The largest come first. Where somebody finds no place beside the others,
all is begun again with those first that found none. If that does not place everybody, the exact
search for all at once does (:mod:`~resource_objects.search.gangs`), or says that nothing can
(:attr:`Rehearsal.is_certain`); then what left the fewest is told. Whom to leave so that the fewest
are left is as hard as packing, and not searched exactly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from resource_objects import exceptions
from resource_objects.exceptions import SearchLimitReached
from resource_objects.names import provider_key
from resource_objects.providers.plan import Plan
from resource_objects.requests import Gang, Member, Request
from resource_objects.search.candidate import Candidate, Chosen
from resource_objects.search.explain import Explanation
from resource_objects.search.scenario import Scenario
from resource_objects.search.script import Requests, counts_held, made_for, without

#: So many candidates are looked at for each.
FEW = 4
#: So often all is begun again with those first that found no place.
ROUNDS = 4
#: What is said of a search for one consumer, and not of one for all at once.
_OF_ONE = ("limit", "per_host")

_Options: TypeAlias = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """A consumer that finds another place."""

    consumer: str
    request: Request
    held: str  #: what it holds now, as text
    candidate: Candidate

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "consumer": self.consumer,
            "request": str(self.request),
            "holds": self.held,
            "to": self.candidate.to_dict(),
        }

    def __str__(self) -> str:
        return f"{self.consumer}: {self.held} -> {self.candidate}"


@dataclasses.dataclass(frozen=True, slots=True)
class Stuck:
    """A consumer that finds none, and why.

    ``is_certain`` says that it would find none if nobody else came from there; else others that
    leave were before it. ``cut_short`` that the search ended before it was known: neither yes nor
    no.
    """

    consumer: str
    request: Request
    held: str
    why: tuple[str, ...]  #: lines: of each host, what stands in the way
    is_certain: bool
    cut_short: bool = False
    #: the same of each host, and the picture that it is of; None if no search could be made
    explanation: Explanation | None = dataclasses.field(default=None, repr=False, compare=False)
    picture: Any = dataclasses.field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "consumer": self.consumer,
            "request": str(self.request),
            "holds": self.held,
            "why": list(self.why),
            "is_certain": self.is_certain,
            "cut_short": self.cut_short,
        }

    def __str__(self) -> str:
        return "\n  ".join([f"{self.consumer}: {self.held} -> nowhere", *self.why])


@dataclasses.dataclass(frozen=True, slots=True)
class Rehearsal:
    """What would become of those who hold something at providers that go. True if all find a place.

    ``scenario`` is how it would be then: the providers are out of service, and who can has moved.
    ``is_certain`` tells that it is known: all find a place, or not all can, whichever they take.
    """

    providers: tuple[str, ...]
    placed: tuple[Placed, ...]
    stuck: tuple[Stuck, ...]
    scenario: Scenario
    is_certain: bool
    budget: int  #: steps that each search might take

    def __bool__(self) -> bool:
        return not self.stuck

    def require(self) -> None:
        """Raise unless all find a place.

        :raises NoCandidates: naming who finds none and why, if it is known that not all can
        :raises SearchLimitReached: if that is not known
        """
        if self.stuck and not self.is_certain:
            raise SearchLimitReached(self.budget, len(self.placed))
        if self.stuck:
            raise exceptions.NoCandidates("\n".join(map(str, self.stuck)))

    @property
    def plan(self) -> Plan:
        """What ``ledger.apply`` does to make it so, in one transaction."""
        return self.scenario.diff()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "providers": list(self.providers),
            "placed": [one.to_dict() for one in self.placed],
            "stuck": [one.to_dict() for one in self.stuck],
            "is_certain": self.is_certain,
        }

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.placed, *self.stuck))) or "nobody is there"


def rehearse(
    scenario: Scenario, providers: Sequence[str], requests: Requests, **options: Any
) -> Rehearsal:
    """Return what would become of those who hold something at some providers or below them.

    Cost: for each of them a search, and copies of three columns.

    :param scenario: it stays as it is
    :param requests: what consumers were made for; where nobody says, the counts they hold
    :param options: as for ``snapshot.candidates``, the budget among them
    :raises NotFound: if one of them is not there
    """
    return _Drain(scenario, tuple(dict.fromkeys(providers)), requests, options).answer()


@dataclasses.dataclass(slots=True)
class _Round:
    """How it is after everybody was placed who could be, in some order."""

    scenario: Scenario
    went: dict[str, Candidate] = dataclasses.field(default_factory=dict)
    left: list[str] = dataclasses.field(default_factory=list)


class _Drain:
    """A drain while it is rehearsed."""

    def __init__(
        self,
        scenario: Scenario,
        providers: tuple[str, ...],
        requests: Requests,
        options: _Options,
    ) -> None:
        self.scenario, self.providers, self.options = scenario, providers, options
        self.begun = self._begin()
        self.leaving = self._there()
        #: what each was made for; of the others the counts they hold are asked for
        self.known = {
            name: one for name in self.leaving if (one := made_for(self.begun, requests, name))
        }
        self.wanted = {
            name: self.known.get(name) or counts_held(self.begun, name) for name in self.leaving
        }

    def answer(self) -> Rehearsal:
        """Return what becomes of each."""
        best, is_certain = self._best()
        went = sorted(best.went.items())
        stuck = tuple(self._stuck(name, best.scenario) for name in sorted(best.left))
        return Rehearsal(
            self.providers,
            tuple(Placed(name, self.wanted[name], self._held(name), one) for name, one in went),
            stuck,
            best.scenario,
            is_certain or any(one.is_certain for one in stuck),
            self.options["budget"],
        )

    def _begin(self) -> Scenario:
        """Return a fork in which the providers are out of service."""
        found = self.scenario.fork()
        for name in self.providers:
            found.disable(name, reason="drained")
        return found

    def _there(self) -> tuple[str, ...]:
        """Return who holds something at the providers, or below them."""
        fleet = self.begun.snapshot._fleet
        roots = {fleet.place_by_key[provider_key(name)] for name in self.providers}
        inside = [
            place
            for tree in sorted({int(fleet.tree[root]) for root in roots})
            for place in fleet.of_tree(tree)
            if not roots.isdisjoint(fleet.upwards(place))
        ]
        return tuple(sorted({who for _, _, who, _ in fleet.allocations.of(inside)}))

    def _held(self, name: str) -> str:
        held = self.begun.held(name).held
        return ", ".join(f"{use.resource_class}={use.amount} of {use.provider}" for use in held)

    def _size(self, name: str) -> int:
        """Return how much of all there is a consumer holds, in millionths: of its dearest class.

        As in dominant resource fairness (Ghodsi and others, NSDI 2011).
        """
        total: dict[str, int] = {}
        for use in self.begun.held(name).held:
            total[use.resource_class] = total.get(use.resource_class, 0) + use.amount
        fleet = self.begun.snapshot._fleet
        return max(
            10**6 * amount // max(1, int(fleet.rows(each).capacity.sum()))
            for each, amount in total.items()
        )

    # --- who goes where ---

    def _best(self) -> tuple[_Round, bool]:
        """Return what leaves the fewest, and whether it is known that nothing leaves fewer."""
        order = sorted(self.leaving, key=lambda name: (-self._size(name), name))
        best = self._in_turn(order)
        for _ in range(ROUNDS - 1):
            again = [*best.left, *(name for name in order if name not in best.left)]
            if again == order:
                break
            order = again
            best = min(best, self._in_turn(order), key=lambda one: len(one.left))
        if not best.left:
            return best, True
        return self._at_once(best)

    def _in_turn(self, order: Iterable[str]) -> _Round:
        """Place who leaves, one beside the others."""
        done = _Round(self._begin())
        for name in order:
            before = len(done.scenario)
            done.scenario.release(name)
            taken = self._taken(done.scenario, name)
            if taken is None:
                done.scenario.undo(before)
                done.left.append(name)
            else:
                done.went[name] = taken
        return done

    def _taken(self, scenario: Scenario, name: str) -> Candidate | None:
        """Take the first candidate for a consumer; None if there is none that may be taken."""
        try:
            for one in scenario.candidates(self.wanted[name], **{"limit": FEW, **self.options}):
                try:
                    self._take(scenario, name, one)
                except exceptions.CapacityException:  # a search may not see all that a claim does
                    continue
                return one
        except (SearchLimitReached, exceptions.InvalidInput):  # it is told why when all is over
            pass
        return None

    def _take(self, scenario: Scenario, name: str, one: Candidate) -> None:
        """Take a candidate, and keep what the consumer was made for, if that is known."""
        request = self.known.get(name)
        found = one if request is None else Chosen(one, request)
        scenario.claim(name, found, limits=self.options.get("limits"))

    def _at_once(self, best: _Round) -> tuple[_Round, bool]:
        """Return places for all, if the search for all at once finds some."""
        names = {f"{number}": name for number, name in enumerate(self.leaving)}
        gang = Gang([Member(number, self.wanted[name]) for number, name in names.items()])
        said = {name: one for name, one in self.options.items() if name not in _OF_ONE}
        done = _Round(self._begin())
        for name in self.leaving:
            done.scenario.release(name)
        try:
            fit = done.scenario.snapshot.fit_gang(gang, **said)
            for number, one in fit.candidates.items():
                done.went[names[number]] = one
                self._take(done.scenario, names[number], one)
        except (SearchLimitReached, exceptions.InvalidInput, exceptions.CapacityException):
            return best, False
        return (done, True) if fit else (best, True)

    # --- who does not ---

    def _stuck(self, name: str, after: Scenario) -> Stuck:
        """Return why a consumer finds no place: at all, or beside the others."""
        alone = without(self.begun, *self.leaving)
        for scenario, is_certain in ((alone, True), (without(after, name), False)):
            try:
                found = scenario.candidates(self.wanted[name], **{"limit": 1, **self.options})
                if not found:
                    why = found.explain()
                    return self._told(
                        name,
                        str(why),
                        is_certain=is_certain,
                        explanation=why,
                        picture=scenario.snapshot,
                    )
            except exceptions.InvalidInput as error:  # it was claimed of a host, not searched
                return self._told(name, str(error))
            except SearchLimitReached:
                told = f"cut short after {found.budget} steps"
                return self._told(name, told, cut_short=True)
        return self._told(name, "others that leave were before it; it fits where one would go")

    def _told(self, name: str, why: str, *, is_certain: bool = False, **more: Any) -> Stuck:
        lines = tuple(why.splitlines())
        return Stuck(name, self.wanted[name], self._held(name), lines, is_certain, **more)
