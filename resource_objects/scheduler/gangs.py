"""Gangs placed: where all members fit at once is claimed, in one transaction.

The search is :mod:`resource_objects.search.gangs`; here stand the filters of a scheduler, the
alternatives in their order, and what follows when somebody was faster.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from resource_objects import exceptions
from resource_objects.exceptions import CapacityException, NoCandidates
from resource_objects.fields import FrozenDict
from resource_objects.ledger import Ledger
from resource_objects.requests import Gang, Request
from resource_objects.requests.gang import HOST
from resource_objects.scheduler.pipeline import Asked, Pipeline
from resource_objects.scheduler.reports import Reports
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.search.snapshot import DEFAULT_BUDGET

if TYPE_CHECKING:
    from resource_objects.providers import Claim
    from resource_objects.providers.arguments import Limited
    from resource_objects.search import Order, Snapshot
    from resource_objects.search.conditions.base import HostFilter, LaysFilter
    from resource_objects.search.fleet import Fleet
    from resource_objects.search.gangs import GangFit

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class PlacedGang:
    """A gang that was placed: which of the alternatives, and what its members hold.

    ``claims`` are by the name of the member, and empty in a dry run. ``skipped`` are the filters
    that failed and were left out by the policy of the scheduler, with why.
    """

    fit: GangFit
    alternative: int  #: its number among those that were asked for, from 0
    claims: Mapping[str, Claim]
    skipped: Mapping[str, str] = FrozenDict()

    def __str__(self) -> str:
        if not self.claims:
            return str(self.fit)
        return "\n".join(map(str, self.claims.values()))


def levels_of(ledger: Ledger) -> dict[str, list[str]]:
    """Return the aggregates of each level that the ledger keeps. Cost: the list of aggregates."""
    found: dict[str, list[str]] = {}
    for one in ledger.names.aggregates.list():
        if one.level is not None:
            found.setdefault(one.level, []).append(one.name)
    return found


def place_gang(
    ledger: Ledger,
    gangs: Gang | Sequence[Gang],
    consumers: str | None = None,
    *,
    order: Order | str = "name",
    seed: int | None = None,
    budget: int = DEFAULT_BUDGET,
    limits: Limited = None,
    filters: Iterable[LaysFilter] = (),
    **said: Any,
) -> PlacedGang:
    """Place a gang, or the first of several alternatives that fits, and claim it.

    All or nothing: members are claimed in one transaction. If somebody was faster, it is fitted
    anew on a fresh picture, as the ledger's :class:`~resource_objects.ledger.RetryPolicy` says.

    :param gangs: a gang, or several in the order of preference
    :param consumers: what the consumers are called: this, a ``/`` and the name of the member; None:
        nothing is claimed (a dry run)
    :param order: which hosts are taken first, as for ``snapshot.candidates``
    :param limits: the most that may be used of hosts, as there; it is claimed under them, too
    :param filters: what hosts have to meet besides, as there
    :param said: of all claims, as for ``ledger.claim_all``: project, user, group, expires_in
    :raises NoCandidates: if none of them fits, with what each lacks
    :raises SearchLimitReached: if the budget ends before it is known whether one fits
    :raises AlreadyExists: if one of the consumers holds something already
    :raises InvalidInput: for no gang, and for levels that are none

    >>> import resource_objects as ro
    >>> from resource_objects.requests import Member
    >>> big, small = (Gang([Member("worker", "VCPU=4", count=count)]) for count in (4, 2))
    >>> with ro.connect("memory://") as ledger:
    ...     done = ledger.sync(ro.Provider("host0", "VCPU=12"))
    ...     placed = place_gang(ledger, [big, small], "train-7")
    >>> placed.alternative
    1
    >>> print(placed)
    train-7/worker-0 holds VCPU=4 of host0
    train-7/worker-1 holds VCPU=4 of host0
    """
    wanted, picked = _several(gangs), tuple(filters)
    levels = _levels(ledger, wanted)

    def fit(snapshot: Snapshot, gang: Gang) -> tuple[GangFit, Limited]:
        options: Any = {"order": order, "seed": seed, "budget": budget, "limits": limits}
        return snapshot.fit_gang(gang, levels=levels, filters=picked, **options), limits

    return _placed(ledger, wanted, consumers, fit, said, is_bound=bool(picked))


def place_gang_by(
    asked: AskedOfGang,
    ledger: Ledger,
    gangs: Gang | Sequence[Gang],
    consumers: str | None = None,
    *,
    order: Order | str = "name",
    seed: int | None = None,
    budget: int = DEFAULT_BUDGET,
) -> PlacedGang:
    """Place a gang as :func:`place_gang` does, by a pipeline.

    :raises FilterFailed: if a filter failed itself
    """
    wanted = _several(gangs)
    levels = _levels(ledger, wanted)

    def fit(snapshot: Snapshot, gang: Gang) -> tuple[GangFit, Limited]:
        asked.look(snapshot)
        bound = asked.gang(gang, consumers)
        limits = asked.limits(snapshot.fleet, bound)
        options: Any = {"order": order, "seed": seed, "budget": budget, "limits": limits}
        return snapshot.fit_gang(bound, levels=levels, filters=asked.filters(), **options), limits

    placed = _placed(ledger, wanted, consumers, fit, asked.whose, is_bound=True)
    return dataclasses.replace(placed, skipped=FrozenDict(asked.skipped))


#: Returns where a gang fits in a picture, and under which limits.
_Fit: TypeAlias = "Callable[[Snapshot, Gang], tuple[GangFit, Limited]]"


def _several(gangs: Gang | Sequence[Gang]) -> list[Gang]:
    wanted = [gangs] if isinstance(gangs, Gang) else list(gangs)
    if not wanted:
        raise exceptions.InvalidInput("request", "gangs", gangs, "at least one gang")
    return wanted


def _levels(ledger: Ledger, gangs: Iterable[Gang]) -> Mapping[str, Sequence[str]]:
    return levels_of(ledger) if any(one.levels for one in gangs) else {}


def _placed(
    ledger: Ledger,
    wanted: Sequence[Gang],
    consumers: str | None,
    fit: _Fit,
    said: Mapping[str, Any],
    *,
    is_bound: bool,
) -> PlacedGang:
    """Place the first of some gangs that fits.

    :param is_bound: whether more than the request was asked of hosts, so that what was found must
        not have been defined anew meanwhile
    """

    def fitted(snapshot: Snapshot) -> tuple[int, GangFit, Limited]:
        lacking: list[GangFit] = []
        for number, gang in enumerate(wanted):
            found, limits = fit(snapshot, gang)
            if found:
                return number, found, limits
            lacking.append(found)
        told = "\n".join(map(str, lacking))
        every = (one.explanation for found in lacking for one in found.shortages)
        why = next((one for one in every if one is not None), None)
        raise NoCandidates(f"no place for the gang:\n{told}", reasons=why or ())

    if consumers is None:
        number, found, _ = fitted(ledger.snapshot())
        return PlacedGang(found, number, {})

    def claimed(snapshot: Snapshot) -> PlacedGang:
        number, found, limits = fitted(snapshot)
        named = {f"{consumers}/{name}": one for name, one in found.candidates.items()}
        claims = ledger.claim_all(named, if_generation=is_bound, limits=limits, **said)
        return PlacedGang(found, number, dict(zip(found.candidates, claims, strict=True)))

    return retried(ledger, claimed)


class AskedOfGang:
    """A pipeline asked for the members of one gang after the other, of each by what that one asks.

    :param spec: what all members have in common; its request is not looked at
    :param known: returns the spec with who is in its server group now
    :param whose: what is said of all claims: project, user, the server group that the ledger keeps
    """

    def __init__(
        self,
        pipeline: Pipeline,
        spec: RequestSpec,
        reports: Reports,
        known: Callable[[RequestSpec], RequestSpec],
        *,
        whose: Mapping[str, Any] = FrozenDict(),
    ) -> None:
        self._pipeline = pipeline
        self._given = self._spec = spec
        self._reports = reports
        self._known = known
        self._asked: dict[Request, Asked] = {}
        self._skipped: dict[str, str] = {}
        self._seen: Snapshot | None = None
        self.whose = whose

    def gang(self, gang: Gang, consumers: str | None) -> Gang:
        """Return a gang with what the spec asks of its members: image traits, and their group.

        Filters and limits are asked for these members from now on. A strict group on one host is
        a gang that is together there; of one apart no host gets more than it may have. Who holds
        something already is left to the filter.
        """
        names = [name for one in gang.members for name in one.names]
        belonging = self._belonging(names, consumers)
        self._skipped, self._asked = self.skipped, {}
        members = []
        for one in gang.members:
            spec = belonging.replace(request=one.request)
            self._asked.setdefault(spec.wanted, Asked(self._pipeline, spec, self._reports))
            members.append(dataclasses.replace(one, request=spec.wanted))
        together, at_most = gang.together, dict(gang.at_most)
        group = self._spec.server_group
        if group is not None and group.policy == "affinity":
            if together not in (None, HOST):  # on one host, which is in such a place
                at_most.setdefault(together, gang.count)
            together = HOST
        elif group is not None and group.policy == "anti-affinity":
            at_most[HOST] = min(group.max_per_host, at_most.get(HOST, group.max_per_host))
        return Gang(members, together, at_most)

    def filters(self) -> tuple[LaysFilter, ...]:
        """Return the filters as the search takes them, each for whichever member it is asked.

        They stay those of the gang that was told last, also when its reasons are asked later.
        """
        count = len(Asked(self._pipeline, self._spec, self._reports).filters())
        return tuple(functools.partial(_laid, self._asked, number) for number in range(count))

    def limits(self, fleet: Fleet, gang: Gang) -> dict[str, dict[str, int]]:
        """Return the most that may be used of hosts, by uuid, whichever member is there."""
        found: dict[str, dict[str, int]] = {}
        for request in {one.request: None for one in gang.members}:
            for uuid, bounds in self._asked[request].limits(fleet).items():
                there = found.setdefault(uuid, {})
                for name, most in bounds.items():
                    there[name] = min(most, there.get(name, most))
        return found

    @property
    def skipped(self) -> dict[str, str]:
        """Why filters were skipped, by their names."""
        now = {name: why for one in self._asked.values() for name, why in one.skipped.items()}
        return {**self._skipped, **now}

    def look(self, snapshot: Snapshot) -> None:
        """Read who is in the server group, for another picture than the last one.

        After that was taken: who joins later was faster, who joined before is in both.
        """
        if snapshot is not self._seen:
            self._seen, self._spec = snapshot, self._known(self._given)
            self._asked, self._skipped = {}, {}

    def _belonging(self, names: Sequence[str], consumers: str | None) -> RequestSpec:
        """Return the spec with members in the group, by the names they get and are tried by."""
        from resource_objects.search.gangs import trial_name  # as the snapshot loads it

        group = self._spec.server_group
        if group is None:
            return self._spec
        trial = map(trial_name, range(len(names)))
        own = [f"{consumers}/{name}" for name in names] if consumers is not None else []
        return self._spec.replace(
            group=dataclasses.replace(group, members=group.members.union(trial, own))
        )


def _laid(
    asked: Mapping[Request, Asked], number: int, fleet: Fleet, request: Request
) -> HostFilter:
    return asked[request].filters()[number](fleet, request)


def retried(ledger: Ledger, claimed: Callable[[Snapshot], T]) -> T:
    """Return what comes of claiming by a fresh picture; again after a lost race.

    By the policy of the ledger, which does the same for one consumer by itself: what several get
    beside each other only the caller can search again.

    :param claimed: searches a picture and claims, all in one write
    """
    afresh = ledger.retries.search_attempts()
    while True:
        snapshot = ledger.snapshot()
        try:
            return claimed(snapshot)
        except NoCandidates:
            raise
        except (CapacityException, exceptions.Stale, exceptions.NotFound) as error:
            if not error.matches(CapacityException, "StaleDefinition", "ProviderNotFound"):
                raise
            nobody_was_faster = ledger.feed.is_fresh(snapshot)
            if nobody_was_faster or next(afresh, None) is None:
                raise
