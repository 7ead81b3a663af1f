"""Gangs: all members are placed at once and claimed in one transaction, or none.

The search is :mod:`resource_objects.search.gangs`. This module adds the filters of a scheduler,
alternatives in order of preference, and the retry after a lost race.
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
from resource_objects.scheduler.pipeline import Pipeline, PipelineRun, with_members
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import Reports
from resource_objects.search.snapshot import DEFAULT_BUDGET

if TYPE_CHECKING:
    from resource_objects.providers import Claim
    from resource_objects.providers.arguments import Limited
    from resource_objects.search import Order, Snapshot
    from resource_objects.search.findings import FilterFactory, HostFilter
    from resource_objects.search.fleet import Fleet
    from resource_objects.search.gangs import GangFit

T = TypeVar("T")
#: Returns the placement of a gang in a snapshot, and the limits of the search.
Fit: TypeAlias = "Callable[[Snapshot, Gang], tuple[GangFit, Limited]]"


@dataclasses.dataclass(frozen=True, slots=True)
class PlacedGang:
    """A gang that was placed: the chosen alternative and the claims of its members.

    ``claims`` are by name of the member, and empty in a dry run. ``skipped`` are the filters that
    failed and were skipped, with the reasons.
    """

    fit: GangFit
    alternative: int  #: its position in the requested alternatives, from 0
    claims: Mapping[str, Claim]
    skipped: Mapping[str, str] = FrozenDict()

    def __str__(self) -> str:
        return "\n".join(map(str, self.claims.values())) if self.claims else str(self.fit)


def levels_of(ledger: Ledger) -> dict[str, list[str]]:
    """Return the aggregates of each level. Cost: the list of aggregates."""
    levels: dict[str, list[str]] = {}
    for aggregate in ledger.names.aggregates.list():
        if aggregate.level is not None:
            levels.setdefault(aggregate.level, []).append(aggregate.name)
    return levels


def place_gang(
    ledger: Ledger,
    gangs: Gang | Sequence[Gang],
    consumers: str | None = None,
    *,
    order: Order | str = "name",
    seed: int | None = None,
    budget: int = DEFAULT_BUDGET,
    limits: Limited = None,
    filters: Iterable[FilterFactory] = (),
    **owner: Any,
) -> PlacedGang:
    """Place a gang, or the first of several alternatives that fits, and claim it.

    Members are claimed in one transaction, all or none. After a lost race the gang is placed again
    in a new snapshot, as the ledger's :class:`~resource_objects.ledger.RetryPolicy` allows.

    :param gangs: a gang, or several in the order of preference
    :param consumers: the prefix of the names of the consumers, before a ``/`` and the name of the
        member; None: nothing is claimed (a dry run)
    :param order: the order of hosts, as for ``snapshot.candidates``
    :param limits: limits of usage, as for ``snapshot.candidates``, for the search and the claims
    :param filters: further conditions on hosts, as for ``snapshot.candidates``
    :param owner: options of all claims, as for ``ledger.claim_all``: project, user, group,
        expires_in
    :raises NoCandidates: if none of them fits, with the shortages of each
    :raises SearchLimitReached: if the budget is exhausted before the answer is known
    :raises AlreadyExists: if one of the consumers has allocations
    :raises InvalidInput: for no gang, and for invalid levels

    >>> import resource_objects as ro
    >>> from resource_objects.requests import Member
    >>> big, small = (Gang([Member("worker", "VCPU=4", count=count)]) for count in (4, 2))
    >>> with ro.connect("memory://") as ledger:
    ...     plan = ledger.sync(ro.Provider("host0", "VCPU=12"))
    ...     placed = place_gang(ledger, [big, small], "train-7")
    >>> placed.alternative
    1
    >>> print(placed)
    train-7/worker-0 holds VCPU=4 of host0
    train-7/worker-1 holds VCPU=4 of host0
    """
    alternatives, filters = _alternatives(gangs), tuple(filters)
    levels = _levels(ledger, alternatives)
    options: Any = {"order": order, "seed": seed, "budget": budget, "limits": limits}

    def fit(snapshot: Snapshot, gang: Gang) -> tuple[GangFit, Limited]:
        return snapshot.fit_gang(gang, levels=levels, filters=filters, **options), limits

    return _place(ledger, alternatives, consumers, fit, owner, if_generation=bool(filters))


def place_gang_by(
    run: GangPipelineRun,
    gangs: Gang | Sequence[Gang],
    consumers: str | None,
    owner: Mapping[str, Any],
    **options: Any,
) -> PlacedGang:
    """Place a gang as :func:`place_gang` does, with the filters of a pipeline.

    :raises FilterFailed: if a filter failed
    """
    alternatives = _alternatives(gangs)
    levels = _levels(run.ledger, alternatives)

    def fit(snapshot: Snapshot, gang: Gang) -> tuple[GangFit, Limited]:
        bound = run.bind(snapshot, gang, consumers)
        limits = run.limits(snapshot.fleet, bound)
        result = snapshot.fit_gang(
            bound, levels=levels, filters=run.filters(), limits=limits, **options
        )
        return result, limits

    placed = _place(run.ledger, alternatives, consumers, fit, owner, if_generation=True)
    return dataclasses.replace(placed, skipped=FrozenDict(run.skipped))


def _levels(ledger: Ledger, gangs: Iterable[Gang]) -> Mapping[str, Sequence[str]]:
    """Return the aggregates of each level if one of the gangs names a level."""
    return levels_of(ledger) if any(gang.levels for gang in gangs) else {}


def _alternatives(gangs: Gang | Sequence[Gang]) -> list[Gang]:
    alternatives = [gangs] if isinstance(gangs, Gang) else list(gangs)
    if not alternatives:
        raise exceptions.InvalidInput("request", "gangs", gangs, "at least one gang")
    return alternatives


def _place(
    ledger: Ledger,
    alternatives: Sequence[Gang],
    consumers: str | None,
    fit: Fit,
    owner: Mapping[str, Any],
    *,
    if_generation: bool,
) -> PlacedGang:
    """Place the first alternative that fits.

    :param if_generation: whether a claim fails if its providers were redefined since the snapshot:
        then filters would have to decide again
    """

    def first_fit(snapshot: Snapshot) -> tuple[int, GangFit, Limited]:
        refusals: list[GangFit] = []
        for number, gang in enumerate(alternatives):
            result, limits = fit(snapshot, gang)
            if result:
                return number, result, limits
            refusals.append(result)
        explanations = (
            shortage.explanation for refusal in refusals for shortage in refusal.shortages
        )
        reasons = next((answer for answer in explanations if answer is not None), None)
        lines = "\n".join(map(str, refusals))
        raise NoCandidates(f"no place for the gang:\n{lines}", reasons=reasons or ())

    if consumers is None:
        number, result, _ = first_fit(ledger.snapshot())
        return PlacedGang(result, number, {})

    def claim(snapshot: Snapshot) -> PlacedGang:
        number, result, limits = first_fit(snapshot)
        candidates = {
            f"{consumers}/{name}": candidate for name, candidate in result.candidates.items()
        }
        claims = ledger.claim_all(candidates, if_generation=if_generation, limits=limits, **owner)
        return PlacedGang(result, number, dict(zip(result.candidates, claims, strict=True)))

    return retried(ledger, claim)


class GangPipelineRun:
    """A pipeline for the members of one gang after the other, for each by its own request.

    :param spec: the conditions of all members; its request is ignored
    """

    def __init__(
        self, ledger: Ledger, pipeline: Pipeline, spec: RequestSpec, reports: Reports
    ) -> None:
        self.ledger = ledger
        self._pipeline = pipeline
        self._spec = spec
        self._group_spec = spec  # with the members of the server group
        self._reports = reports
        self._runs: dict[Request, PipelineRun] = {}
        self._skipped: dict[str, str] = {}
        self._snapshot: Snapshot | None = None

    def bind(self, snapshot: Snapshot, gang: Gang, consumers: str | None) -> Gang:
        """Return a gang with the conditions of the specification: image traits and server group.

        Filters and limits are those of its members from now on. A strict group on one host becomes
        the level of the gang, a strict group on different hosts a bound of each host; the filter
        decides about members with allocations. The group is read after the snapshot was taken: a
        member that joins later wins the race, and a member that joined before is in both.
        """
        if snapshot is not self._snapshot:
            self._snapshot, self._runs, self._skipped = snapshot, {}, {}
            self._group_spec = with_members(self.ledger, self._spec)
        self._skipped, self._runs = self.skipped, {}
        common = with_members(self.ledger, self._group_spec, _consumers(gang, consumers))
        members = []
        for member in gang.members:
            spec = common.replace(request=member.request)
            run = PipelineRun(self._pipeline, spec, self._reports)
            self._runs.setdefault(spec.full_request, run)
            members.append(dataclasses.replace(member, request=spec.full_request))
        together, at_most = gang.together, dict(gang.at_most)
        group = common.server_group
        if group is not None and group.policy == "affinity":
            if together not in (None, HOST):  # the one host is in one domain of the level
                at_most.setdefault(together, gang.count)
            together = HOST
        elif group is not None and group.policy == "anti-affinity":
            at_most[HOST] = min(group.max_per_host, at_most.get(HOST, group.max_per_host))
        return Gang(members, together, at_most)

    def filters(self) -> tuple[FilterFactory, ...]:
        """Return the filters for one search: each decides for the member whose request it gets.

        They remain those of the last gang, also when its reasons are computed later.
        """
        count = len(PipelineRun(self._pipeline, self._spec, self._reports).filters())
        return tuple(functools.partial(_compile, self._runs, number) for number in range(count))

    def limits(self, fleet: Fleet, gang: Gang) -> dict[str, dict[str, int]]:
        """Return the maximum usage of hosts by uuid and class: the least of any member's."""
        limits: dict[str, dict[str, int]] = {}
        for request in {member.request: None for member in gang.members}:
            for uuid, bounds in self._runs[request].limits(fleet).items():
                by_class = limits.setdefault(uuid, {})
                for name, bound in bounds.items():
                    by_class[name] = min(bound, by_class.get(name, bound))
        return limits

    @property
    def skipped(self) -> dict[str, str]:
        """Why filters were skipped, by name."""
        skipped = dict(self._skipped)
        for run in self._runs.values():
            skipped |= run.skipped
        return skipped


def _consumers(gang: Gang, consumers: str | None) -> list[str]:
    """Return the names of the members in the search, and in the ledger."""
    from resource_objects.search.gangs import trial_name  # most processes place no gang

    names = [name for member in gang.members for name in member.names]
    claimed = [] if consumers is None else [f"{consumers}/{name}" for name in names]
    return [*map(trial_name, range(len(names))), *claimed]


def _compile(
    runs: Mapping[Request, PipelineRun], number: int, fleet: Fleet, request: Request
) -> HostFilter:
    return runs[request].filters()[number](fleet, request)


def retried(ledger: Ledger, claim: Callable[[Snapshot], T]) -> T:
    """Return the result of a search and claim in a new snapshot, repeated after lost races.

    The policy is that of the ledger, which itself repeats the search of one consumer. The search
    for several consumers next to each other is repeated by their scheduler.

    :param claim: searches a snapshot, and claims in one transaction
    """
    attempts = ledger.retries.search_attempts()
    while True:
        snapshot = ledger.snapshot()
        try:
            return claim(snapshot)
        except NoCandidates:
            raise
        except (CapacityException, exceptions.Stale, exceptions.NotFound) as error:
            if not error.matches(CapacityException, "StaleDefinition", "ProviderNotFound"):
                raise
            if ledger.feed.is_fresh(snapshot) or next(attempts, None) is None:
                raise  # no other process was faster, or the policy allows no more attempts
