"""The scheduler: from a request to claims on hosts, by snapshot, search, claim and retry."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from resource_objects import exceptions, names
from resource_objects.exceptions import CapacityException, NoCandidates
from resource_objects.ledger import Ledger
from resource_objects.providers import Allocation, Claim
from resource_objects.requests import Gang, Member, RequestLike
from resource_objects.requests.gang import HOST
from resource_objects.scheduler.gangs import GangPipelineRun, PlacedGang, place_gang_by, retried
from resource_objects.scheduler.pipeline import (
    DEFAULT_FILTERS,
    DEFAULT_WEIGHERS,
    Filters,
    Pipeline,
    PipelineRun,
    Weighers,
    with_members,
)
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.states import Reports
from resource_objects.scheduler.weighers import finite
from resource_objects.search import Candidate, Candidates, Explanation, Order, Snapshot
from resource_objects.search.candidate import Chosen
from resource_objects.search.fleet import Fleet
from resource_objects.search.order import check_seed
from resource_objects.search.snapshot import DEFAULT_BUDGET

#: Candidates for lost races, next to the best one and its alternates. They are computed when a race
#: is lost.
SPARE = 4
#: Asks a host after it was claimed; it raises
#: :class:`~resource_objects.exceptions.CapacityException` to refuse.
Confirm = Callable[["Destination"], object]


@dataclasses.dataclass(frozen=True, slots=True)
class Destination:
    """The host and allocations of one consumer.

    ``alternates`` are the next best candidates, which are not claimed. ``claim`` is None in a dry
    run. ``limits`` are the limits of usage by class, set by filters, under which the host was
    claimed.
    """

    consumer: str
    host: str
    allocations: tuple[Allocation, ...]
    alternates: tuple[Candidate, ...] = ()
    claim: Claim | None = None
    limits: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.consumer}: {self.host}"


@dataclasses.dataclass(frozen=True, slots=True)
class Selection(Sequence[Destination]):
    """The destinations of a request, in the order of the consumers.

    ``missing`` are the consumers without a host, if fewer were allowed, and ``explanation`` is the
    explanation of the last refusal. ``skipped`` are the filters that failed and were skipped, and
    the filters and weighers without effect, each with the reason. ``refused`` are the hosts that
    refused the confirmation, each with the reason.
    """

    destinations: tuple[Destination, ...]
    missing: tuple[str, ...] = ()
    explanation: Explanation | None = None
    skipped: Mapping[str, str] = dataclasses.field(default_factory=dict)
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __getitem__(self, index: Any) -> Any:
        return self.destinations[index]

    def __len__(self) -> int:
        return len(self.destinations)

    def __iter__(self) -> Iterator[Destination]:
        return iter(self.destinations)


class Scheduler:
    """Selects hosts for requests, in this process, from one ledger.

    It has no state of a request, so any number of threads can share one.

    :param filters, weighers, on_error: as for :meth:`.Pipeline.of`
    :param pipeline: a pipeline in place of these three
    :param order: the order of hosts with equal weights: ``pack``, ``spread``, or an
        :class:`~resource_objects.search.order.Order` with weights, preferred traits and the number
        of best hosts that are shuffled
    :param reports_for: how many seconds the reports of agents are cached, if a filter or weigher
        reads them; 0: each request reads them
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        filters: Filters = DEFAULT_FILTERS,
        weighers: Weighers = DEFAULT_WEIGHERS,
        on_error: str = "fail",
        pipeline: Pipeline | None = None,
        order: Order | str = "name",
        reports_for: float = 0,
    ) -> None:
        self._ledger = ledger
        self._reports_for = finite("reports_for", reports_for)
        self._reports: tuple[float, Reports] | None = None
        self._order = Order.of(order)
        #: the filters and weighers, in order
        self.pipeline = pipeline or Pipeline.of(filters, weighers, on_error=on_error)

    def select_destinations(
        self,
        spec: RequestSpec | RequestLike,
        count: int | None = None,
        *,
        consumers: Iterable[str] = (),
        alternates: int = 0,
        at_least: int | None = None,
        seed: int | None = None,
        confirm: Confirm | None = None,
    ) -> Selection:
        """Select a host for each consumer, next to the others, and claim it for the consumer.

        The first consumer gets the best host, the next one the best host next to that, as if they
        came one after the other. If all consumers have to be placed, they are planned in a scenario
        and claimed in one transaction. Lost races are repeated with the same filters, as the
        ledger's :class:`~resource_objects.ledger.RetryPolicy` allows.

        :param spec: a :class:`RequestSpec`, or the argument of a request
        :param count: the number of consumers; default: that of ``consumers``, or 1
        :param consumers: the names of the consumers; none: nothing is claimed (a dry run), and the
            consumers are named ``1``, ``2``, ...
        :param alternates: the number of further candidates for each
        :param at_least: the number of consumers that have to be placed; as many as possible are.
            None: all
        :param seed: shuffles the best hosts (``Order.among``); the same snapshot and seed give the
            same answer
        :param confirm: asks a host after it was claimed; if it refuses, the claim is released and
            another host is selected
        :raises NoCandidates: if too few could be placed, with the reasons of every host: of the
            search, of filters, and of the hosts that were asked; then nothing is claimed. The
            reasons are computed when they are read; only then filters are asked for them
        :raises SearchLimitReached: if the budget is exhausted before the answer is known
        :raises FilterFailed: if a filter or weigher failed
        :raises InvalidInput: for a count below 1, or other than that of the consumers
        :raises AlreadyExists: if a consumer has allocations
        :raises NotFound: if the ledger has no such server group
        """
        claimants = _consumers(consumers)
        count = _count(count, claimants)
        run = self._run(spec, _number("alternates", alternates, 0), seed)
        least = _least(at_least, count)
        return run.claim(claimants, least, confirm) if claimants else run.plan(count, least)

    def candidates(self, spec: RequestSpec | RequestLike, *, seed: int | None = None) -> Candidates:
        """Return the best candidates of a request, one for each host; nothing is claimed.

        A claim of them repeats the search with the same filters and weighers after a lost race.
        For several consumers, server groups of them, and confirmation by hosts, use
        :meth:`select_destinations`.

        :param spec, seed: as for :meth:`select_destinations`
        :raises FilterFailed: if a filter or weigher failed, when candidates are read
        :raises NotFound: if the ledger has no such server group
        """
        run, snapshot = self._run(spec, 0, seed), self._ledger.snapshot()
        run.join(())
        return run.search(snapshot, 0)

    def place_gang(
        self,
        gangs: Gang | Sequence[Gang],
        consumers: str | None = None,
        *,
        seed: int | None = None,
        budget: int = DEFAULT_BUDGET,
        **conditions: Any,
    ) -> PlacedGang:
        """Place a gang, or the first of several that fits, with the filters and the order.

        Filters decide for each member by its own request, and their limits apply to its claim. They
        have to judge one host at a time, next to the members there: a filter that compares hosts,
        or counts the usage of the fleet, is not asked again for each member (then select
        destinations one by one). The policy of a strict server group is a bound of the gang.
        Weighers are ignored: the hosts of a gang follow from all its members.

        :param consumers, seed, budget: as for :func:`~resource_objects.scheduler.gangs.place_gang`
        :param conditions: of every member, as for :class:`RequestSpec`: project, user, zone, group
        :raises NoCandidates: if none of them fits, with the shortages of each
        :raises SearchLimitReached: if the budget is exhausted before the answer is known
        :raises FilterFailed: if a filter failed
        """
        spec = RequestSpec("VCPU=1", **conditions)  # each member has its own request
        run = GangPipelineRun(self._ledger, self.pipeline, spec, self._current_reports())
        options: Any = {"order": self._order, "seed": seed, "budget": budget}
        return place_gang_by(run, gangs, consumers, _owner(spec), **options)

    def _run(self, spec: RequestSpec | RequestLike, alternates: int, seed: int | None) -> _Run:
        reports = self._current_reports()
        spec, seed = RequestSpec.of(spec), check_seed(seed)
        return _Run(self._ledger, self.pipeline, self._order, reports, spec, alternates, seed)

    def _current_reports(self) -> Reports:
        now, cached = self._ledger.retries.clock(), self._reports
        if cached is None or now - cached[0] >= self._reports_for:
            cached = self._reports = now, Reports(self._ledger)
        return cached[1]


def _consumers(consumers: Iterable[str]) -> tuple[str, ...]:
    if isinstance(consumers, str) or not isinstance(consumers, Iterable):
        raise exceptions.InvalidInput("name", "consumers", consumers, "a list of names")
    result = tuple(map(names.consumer_name, consumers))
    if len(set(result)) < len(result):
        raise exceptions.InvalidInput("repetition", "consumers", sorted(result), "each once")
    return result


def _count(count: int | None, consumers: Sequence[str]) -> int:
    number = max(1, len(consumers)) if count is None else _number("count", count, 1)
    if consumers and number != len(consumers):
        expected = f"{len(consumers)}, one for each consumer"
        raise exceptions.InvalidInput("field", "count", count, expected)
    return number


def _least(at_least: int | None, count: int) -> int:
    if at_least is None:
        return count
    if _number("at_least", at_least, 0) > count:
        expected = f"at most {count}, the number of consumers"
        raise exceptions.InvalidInput("field", "at_least", at_least, expected)
    return at_least


def _number(name: str, value: Any, least: int) -> int:
    if type(value) is not int or value < least:
        raise exceptions.InvalidInput("field", name, value, f"an integer of {least} or more")
    return value


# --- one request ----------------------------------------------------------------------------------


class _Refusal(NamedTuple):
    """The first line of a refusal, with the filters and weighers that were skipped.

    It is formatted when it is read: a filter may fail only then, when it is asked for its reason.
    """

    text: str
    pipeline: Pipeline
    failed: Mapping[str, str]  #: the filters that failed so far
    explanation: Explanation

    def __str__(self) -> str:
        if self.pipeline.on_error == "skip":
            self.explanation.first_reasons(1)  # asks every filter
        skipped = {**self.pipeline.idle, **self.failed}
        return f"{self.text} (skipped: {', '.join(skipped)})" if skipped else self.text


@dataclasses.dataclass(slots=True)
class _Run:
    """The selection of hosts for one request."""

    ledger: Ledger
    pipeline: Pipeline
    order: Order
    reports: Reports
    requested: RequestSpec
    alternates: int
    seed: int | None
    #: with the members of the server group, and the hosts that refused
    spec: RequestSpec = dataclasses.field(init=False)
    members: tuple[str, ...] = ()
    filtering: PipelineRun | None = None
    last_search: Candidates | None = None
    refused: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.spec = self.requested

    def plan(self, count: int, least: int) -> Selection:
        """Return the hosts of a number of consumers; nothing is claimed."""
        snapshot = self.ledger.snapshot()
        consumers = [str(number) for number in range(1, count + 1)]
        while any(map(snapshot.fleet.places_of_holders.get, consumers)):
            consumers = [f"new-{name}" for name in consumers]
        self.join(consumers)
        destinations = [
            self._destination(consumer, candidates[0].host, allocations, candidates, snapshot.fleet)
            for consumer, candidates, allocations in self._planned(snapshot, consumers, least)
        ]
        if len(destinations) < least:
            raise self._no_host(consumers, len(destinations))
        why = self._explanation if len(destinations) < count else None
        return self._selection(destinations, consumers, why)

    def claim(self, consumers: Sequence[str], least: int, confirm: Confirm | None) -> Selection:
        """Claim hosts for consumers, in one transaction if all have to be placed."""
        claimed: dict[str, Destination] = {}
        is_single, needs_all = len(consumers) == 1, least == len(consumers)
        if is_single:
            self.join(consumers)
        elif needs_all:
            claimed = self._claim_planned(consumers, least)
        result: list[Destination] = []
        refusal: NoCandidates | None = None
        why: Explanation | None = None
        try:
            for number, consumer in enumerate(consumers):
                place = functools.partial(self._claim_next, consumer, number)
                if number == 0 and not is_single and not needs_all:
                    place = functools.partial(self._claim_first, consumers, least)
                try:
                    destination = claimed.pop(consumer, None) or place()
                    if confirm is not None:
                        destination = self._confirmed(destination, confirm, place)
                    result.append(destination)
                except NoCandidates as error:
                    refusal, why = error, self._explanation
                    if needs_all:
                        break
            if refusal is not None and len(result) < least:
                raise refusal
        except BaseException:
            self._release([*result, *claimed.values()])
            raise
        return self._selection(result, consumers, why)

    # --- snapshot and search ---

    def search(self, snapshot: Snapshot, number: int) -> Candidates:
        """Return the best candidates of the consumer of a number."""
        if self.filtering is None:
            refresh = self._refresh if isinstance(self.requested.group, str) else None
            self.filtering = PipelineRun(self.pipeline, self.spec, self.reports, refresh)
        self.last_search = snapshot.candidates(
            self.spec.full_request,
            limit=1 + self.alternates + SPARE,
            per_host=1,
            order=self.filtering.order(self.order),
            seed=None if self.seed is None else self.seed + number,
            filters=self.filtering.filters(),
            limits=self.filtering.limits(snapshot.fleet),
        )
        return self.last_search

    def join(self, consumers: Iterable[str]) -> None:
        """Make consumers members of the server group, which is read from the ledger."""
        self.members = tuple(consumers)
        self._refresh()

    def _refresh(self) -> RequestSpec:
        group = with_members(self.ledger, self.requested, self.members).group
        if group is not self.spec.group:
            self.spec = self.spec.replace(group=group)
        return self.spec

    def _join_again(self, consumers: Iterable[str]) -> None:
        """Read the server group after a snapshot was taken.

        A member that joins later wins the race; one that joined before is in the snapshot, too.
        """
        self.join(consumers)
        if isinstance(self.requested.group, str):
            self.filtering = None

    def _planned(
        self, snapshot: Snapshot, consumers: Sequence[str], least: int
    ) -> Iterator[tuple[str, Candidates, tuple[Allocation, ...]]]:
        """Yield candidates and allocations of consumers, each next to those before it."""
        on_one_host = self._on_one_host(snapshot, consumers, least)
        scenario = snapshot.fork()
        for number, consumer in enumerate(consumers):
            candidates = on_one_host.get(consumer)
            if candidates is None:
                candidates = self.search(scenario.snapshot, number)
            if not candidates:
                return
            yield consumer, candidates, scenario.claim(consumer, candidates[0])

    def _on_one_host(
        self, snapshot: Snapshot, consumers: Sequence[str], least: int
    ) -> dict[str, Candidates]:
        """Return candidates for members of the policy affinity, on the host that fits most of them.

        The best host for the first member may be too small for the others. Empty if no host fits
        ``least`` of them, or two, and for any other policy.
        """
        group = self.spec.server_group
        if group is None or group.policy != "affinity":
            return {}
        for count in range(len(consumers), max(1, least - 1), -1):
            answer = self.search(snapshot, 0)
            assert self.filtering is not None, "set by the search"
            fit = snapshot.fit_gang(
                Gang([Member("member", self.spec.full_request, count)], together=HOST),
                order=answer.options.order,
                seed=answer.options.seed,
                limits=self.filtering.limits(snapshot.fleet),
                filters=answer.options.filters,
            )
            if fit:
                answer = self.search(snapshot, 0)  # its filters are those of a search of its own
                chosen = zip(consumers, fit.candidates.values(), strict=False)
                return {consumer: answer.instead([candidate]) for consumer, candidate in chosen}
        return {}

    # --- claim and retry ---

    def _claim_next(self, consumer: str, number: int) -> Destination:
        """Claim the best host; the ledger repeats the search after a lost race."""
        candidates = self.search(self.ledger.snapshot(), number)
        claim = self.ledger.claim(consumer, candidates, **_owner(self.requested))
        return self._claimed(claim, candidates, self.ledger.snapshot().fleet)

    def _claim_first(self, consumers: Sequence[str], least: int) -> Destination:
        """Claim for the first consumer: for affinity, on the host that fits most of them.

        That host is searched again after a lost race; the filter then keeps the others there.
        """
        first = self._claim_planned(consumers, least).get(consumers[0])
        return first or self._claim_next(consumers[0], 0)

    def _claim_planned(self, consumers: Sequence[str], least: int) -> dict[str, Destination]:
        """Claim for all consumers in one transaction; the search is repeated after a lost race.

        If fewer than all have to be placed: for the first, if one host fits ``least`` of them.
        """

        def attempt(snapshot: Snapshot) -> dict[str, Destination]:
            self._join_again(consumers)
            if least < len(consumers):
                plan = self._on_one_host(snapshot, consumers, least)
                plan = {name: plan[name] for name in consumers[:1] if name in plan}
                return self._claim_plan(snapshot, plan) if plan else {}
            planned = self._planned(snapshot, consumers, least)
            plan = {consumer: candidates for consumer, candidates, _ in planned}
            if len(plan) < len(consumers):
                raise self._no_host(consumers, len(plan))
            return self._claim_plan(snapshot, plan)

        return retried(self.ledger, attempt)

    def _claim_plan(
        self, snapshot: Snapshot, plan: Mapping[str, Candidates]
    ) -> dict[str, Destination]:
        """Claim the candidates of consumers in one transaction, without a retry."""
        claimable: Mapping[str, Any] = plan
        options = _owner(self.requested)
        if self.spec.group is not None:  # another candidate may be next to the wrong members
            claimable = {name: Chosen(answer[0], answer.request) for name, answer in plan.items()}
            limits = None if self.filtering is None else self.filtering.limits(snapshot.fleet)
            options |= {"if_generation": True, "limits": limits}
        claims = self.ledger.claim_all(claimable, **options)
        return {
            consumer: self._claimed(claim, plan[consumer], snapshot.fleet)
            for consumer, claim in zip(plan, claims, strict=True)
        }

    def _confirmed(
        self, destination: Destination, confirm: Confirm, place: Callable[[], Destination]
    ) -> Destination:
        """Return a destination that its host confirms, ``place()`` after each refusal.

        If asking the host, or placing again, fails, the consumer has no claim.
        """
        while True:
            try:
                confirm(destination)
                return destination
            except CapacityException as error:
                self._release([destination])
                self.refused[destination.host] = str(error)
                refusals = {**self.spec.tried, destination.host: str(error)}
                self.spec = self.spec.replace(tried=refusals)
                self.filtering = None
            except BaseException:
                self._release([destination])
                raise
            destination = place()

    def _release(self, destinations: Iterable[Destination]) -> None:
        errors: list[exceptions.ResourceObjectsError] = []
        for destination in destinations:
            try:
                self.ledger.release(destination.consumer)
            except exceptions.ResourceObjectsError as error:
                if not error.matches("ConsumerNotFound"):  # the host has released it already
                    errors.append(error)
        if errors:
            raise errors[0]

    # --- the answer ---

    def _destination(
        self,
        consumer: str,
        host: str,
        allocations: tuple[Allocation, ...],
        candidates: Candidates,
        fleet: Fleet,
        claim: Claim | None = None,
    ) -> Destination:
        best = candidates[: 1 + self.alternates] if self.alternates else ()
        alternates = [candidate for candidate in best if candidate.host != host]
        limits = _limits_of(host, candidates, fleet)
        return Destination(
            consumer, host, allocations, tuple(alternates[: self.alternates]), claim, limits
        )

    def _claimed(self, claim: Claim, candidates: Candidates, fleet: Fleet) -> Destination:
        host = _host_of(claim, fleet)
        return self._destination(claim.consumer, host, claim.allocations, candidates, fleet, claim)

    def _selection(
        self,
        destinations: Sequence[Destination],
        consumers: Sequence[str],
        why: Explanation | None,
    ) -> Selection:
        placed = {destination.consumer for destination in destinations}
        missing = tuple(consumer for consumer in consumers if consumer not in placed)
        skipped = {**self.pipeline.idle, **self._failed}
        return Selection(tuple(destinations), missing, why, skipped, dict(self.refused))

    def _no_host(self, consumers: Sequence[str], placed: int) -> NoCandidates:
        """Return the refusal of the first consumer that could not be placed."""
        count, why = len(consumers), self._explanation
        of_all = f", {placed} of {count} could be placed" if count > 1 else ""
        text = f"no host for {consumers[placed]}{of_all}"
        return NoCandidates(_Refusal(text, self.pipeline, self._failed, why), why)

    @property
    def _explanation(self) -> Explanation:
        assert self.last_search is not None, "a refusal follows from a search"
        return self.last_search.explain()

    @property
    def _failed(self) -> dict[str, str]:
        return {} if self.filtering is None else self.filtering.skipped


def _owner(spec: RequestSpec) -> dict[str, Any]:
    """Return the options of claims that name their owner, and a group that the ledger stores."""
    group = spec.group if isinstance(spec.group, str) else None
    options = {"project": spec.project, "user": spec.user, "group": group}
    return {name: value for name, value in options.items() if value is not None}


def _limits_of(host: str, candidates: Candidates, fleet: Fleet) -> dict[str, int]:
    """Return the limits of a host in a search, by class."""
    limits = candidates.options.limits
    uuid = fleet.uuids[fleet.place_by_key[host]] if limits else None
    return {name: limit for (provider, name), limit in limits.items() if provider == uuid}


def _host_of(claim: Claim, fleet: Fleet) -> str:
    keys = [allocation.provider_uuid or allocation.provider for allocation in claim.allocations]
    trees = [int(fleet.tree[fleet.place_by_key[key]]) for key in keys if key in fleet.place_by_key]
    hosts = [tree for tree in trees if tree not in fleet.pools.trees] or trees
    return fleet.hosts[hosts[0]]
