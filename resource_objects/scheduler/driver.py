"""The scheduler: from a request to hosts that are claimed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from resource_objects import exceptions, names
from resource_objects.exceptions import CapacityException, NoCandidates
from resource_objects.ledger import Ledger
from resource_objects.providers import Allocation, Claim
from resource_objects.requests import Gang, Member, Request, RequestLike
from resource_objects.requests.gang import HOST
from resource_objects.scheduler.gangs import AskedOfGang, PlacedGang, place_gang_by, retried
from resource_objects.scheduler.pipeline import (
    DEFAULT_FILTERS,
    DEFAULT_WEIGHERS,
    Asked,
    Filters,
    Pipeline,
    Weighers,
)
from resource_objects.scheduler.reports import Reports
from resource_objects.scheduler.request_spec import RequestSpec
from resource_objects.scheduler.weighers import finite
from resource_objects.search import Candidate, Candidates, Explanation, Order, Scenario, Snapshot
from resource_objects.search.candidate import Chosen
from resource_objects.search.fleet import Fleet
from resource_objects.search.order import check_seed
from resource_objects.search.snapshot import DEFAULT_BUDGET

if TYPE_CHECKING:
    from resource_objects.search.gangs import GangFit

#: So many candidates are at hand beside the best and its alternates, for lost races. They cost
#: nothing before one is lost.
SPARE = 4
#: Asks the host itself, which has the last word, after its place was claimed: it raises
#: :class:`~resource_objects.exceptions.CapacityException` to refuse.
Confirm = Callable[["Destination"], object]


@dataclasses.dataclass(frozen=True, slots=True)
class Destination:
    """Where one consumer goes.

    ``alternates`` are the next best candidates, for whoever has to go elsewhere later; they are not
    claimed. ``claim`` is None in a dry run. ``limits`` are the most that may be used of the host in
    all, by class, as filters bound it: it was claimed under these.
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
    """What a scheduler selected: destinations, in the order of the consumers.

    ``missing`` are the consumers that found none, where fewer were allowed; ``explanation`` says
    why the hosts that were left out last were. ``skipped`` are, with why, the filters that failed
    and were left out by the policy of the scheduler, and the filters and weighers that were named
    and do nothing as they are set; ``refused`` are the hosts that had the last word.
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
    """Selects hosts for requests: in this process, on one ledger.

    It keeps nothing of a request, so any number of threads may use one.

    :param filters, weighers, on_error: as for :meth:`.Pipeline.of`; or give a ``pipeline``
    :param order: what decides where weights are alike, or where nothing is weighed: ``pack``,
        ``spread``, or an :class:`~resource_objects.search.order.Order` with weights, preferred
        traits and how many of the best are shuffled
    :param reports_for: for how many seconds what agents told is used again, where filters or
        weighers ask for it; 0: each request reads it
    :raises InvalidInput: if a pipeline is given and parts of one, too
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
        """Select a host for each consumer, beside each other, and claim it for them.

        The best host is taken for the first, then the best beside that for the next: as if they
        came one after the other. They are planned in a scenario first. Where all have to be placed,
        they are claimed in one transaction, or nobody is; lost races are tried again as the
        ledger's :class:`~resource_objects.ledger.RetryPolicy` says, with the same filters.

        :param spec: a :class:`RequestSpec`, or what a request is made from
        :param count: how many; as many as there are consumers unless told
        :param consumers: for whom it is claimed; none: nothing is claimed (a dry run), and they are
            called ``1``, ``2``, ...
        :param alternates: so many further candidates for each
        :param at_least: how many have to be placed, as many as possible are; None: all
        :param seed: shuffles the best hosts (``Order.among``); the same snapshot and seed give the
            same answer
        :param confirm: asks a host after it was claimed; where it refuses, the claim is given back
            and another host taken
        :raises NoCandidates: if not enough could be placed, with the reasons of every host: of the
            search, of filters, and of the hosts themselves; then nothing is claimed. The reasons
            are computed when they are read; only then are filters asked why they refuse a host
        :raises SearchLimitReached: if the search was cut short before it knew
        :raises FilterFailed: if a filter or weigher failed itself
        :raises InvalidInput: for a count below 1, or one that is not that of the consumers
        :raises AlreadyExists: if a consumer holds something already
        :raises NotFound: if it names a server group that the ledger does not keep
        """
        named = _named(consumers)
        wanted = _count(count, named)
        run = self._run(spec, _number("alternates", alternates, 0), seed)
        least = _least(at_least, wanted)
        return run.claimed(named, least, confirm) if named else run.planned(wanted, least)

    def candidates(self, spec: RequestSpec | RequestLike, *, seed: int | None = None) -> Candidates:
        """Return the best candidates of a request, one of each host; nothing is claimed.

        Who claims them searches by the same filters and weighers after a lost race. For many
        consumers, groups of them and hosts that have the last word there is
        :meth:`select_destinations`.

        :param spec, seed: as there
        :raises FilterFailed: if a filter or weigher failed itself, when candidates are looked at
        :raises NotFound: if it names a server group that the ledger does not keep
        """
        run, snapshot = self._run(spec, 0, seed), self._ledger.snapshot()
        run.belong(())
        return run.search(snapshot, 0)

    def _run(self, spec: RequestSpec | RequestLike, alternates: int, seed: int | None) -> _Run:
        return _Run(
            self._ledger,
            self.pipeline,
            self._order,
            self._told(),
            RequestSpec.of(spec),
            alternates,
            check_seed(seed),
        )

    def _told(self) -> Reports:
        now = self._ledger.retries.clock()
        kept = self._reports
        if kept is None or now - kept[0] >= self._reports_for:
            kept = self._reports = now, Reports(self._ledger)
        return kept[1]

    def place_gang(
        self,
        gangs: Gang | Sequence[Gang],
        consumers: str | None = None,
        *,
        seed: int | None = None,
        budget: int = DEFAULT_BUDGET,
        **said: Any,
    ) -> PlacedGang:
        """Place a gang, or the first of several that fits, by the filters and the order here.

        Filters are asked for each member by what that one asks, and what they bound is claimed so.
        They have to be about one host each, beside the members that go there: one that compares
        hosts, or counts what the fleet uses, is not asked again for each member (select
        destinations one by one for that). A strict group of members is kept like any other bound
        of the gang. Weighers are not asked: which hosts a gang gets follows from all members.

        :param consumers, seed, budget: as for :func:`~resource_objects.scheduler.gangs.place_gang`
        :param said: of every member, as for :class:`RequestSpec`: project, user, zone, group, ...
        :raises NoCandidates: if none of them fits, with what each lacks
        :raises SearchLimitReached: if the budget ends before it is known whether one fits
        :raises FilterFailed: if a filter failed itself
        """
        wanted = [gangs] if isinstance(gangs, Gang) else list(gangs)
        spec = RequestSpec(Request("VCPU=1"), **said)  # members say what they ask
        known = functools.partial(_known, self._ledger)
        asked = AskedOfGang(self.pipeline, spec, self._told(), known, whose=_whose(spec))
        return place_gang_by(
            asked, self._ledger, wanted, consumers, order=self._order, seed=seed, budget=budget
        )


def _named(given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise exceptions.InvalidInput("name", "consumers", given, "a list of names")
    result = tuple(map(names.consumer_name, given))
    if len(set(result)) < len(result):
        raise exceptions.InvalidInput("repetition", "consumers", sorted(result), "each once")
    return result


def _count(given: int | None, consumers: Sequence[str]) -> int:
    number = max(1, len(consumers)) if given is None else _number("count", given, 1)
    if consumers and number != len(consumers):
        raise exceptions.InvalidInput(
            "field", "count", given, f"{len(consumers)}, one for each consumer"
        )
    return number


def _least(given: int | None, count: int) -> int:
    if given is None:
        return count
    if _number("at_least", given, 0) > count:
        raise exceptions.InvalidInput(
            "field", "at_least", given, f"at most {count}, as many as are asked"
        )
    return given


def _number(what: str, given: Any, least: int) -> int:
    if type(given) is not int or given < least:
        raise exceptions.InvalidInput("field", what, given, f"an integer of {least} or more")
    return given


# --- one request ----------------------------------------------------------------------------------


class _Refused(NamedTuple):
    """The beginning of a refusal's message, with the filters and weighers that were skipped.

    Computed when the message is read: a filter may first fail when it is asked for its reason.
    """

    what: str
    pipeline: Pipeline
    failed: Mapping[str, str]  #: the filters that failed so far
    explanation: Explanation

    def __str__(self) -> str:
        if self.pipeline.on_error == "skip":
            self.explanation.first_reasons(1)  # asks every filter
        skipped = {**self.pipeline.idle, **self.failed}
        return f"{self.what} (skipped: {', '.join(skipped)})" if skipped else self.what


class _Run:
    """One request while it is placed."""

    def __init__(
        self,
        ledger: Ledger,
        pipeline: Pipeline,
        order: Order,
        reports: Reports,
        spec: RequestSpec,
        alternates: int,
        seed: int | None,
    ) -> None:
        self._ledger = ledger
        self._pipeline = pipeline
        self._order = order
        self._reports = reports
        self._given = spec
        self._members: frozenset[str] = frozenset()
        self._spec = spec
        self._alternates = alternates
        self._seed = seed
        self._asked: Asked | None = None
        self._searched: Candidates | None = None  #: what was searched last
        self._refused: dict[str, str] = {}

    # --- without claims ---

    def planned(self, count: int, least: int) -> Selection:
        """Return where so many would go; nothing is claimed."""
        snapshot = self._ledger.snapshot()
        called = [str(one) for one in range(1, count + 1)]
        while any(map(snapshot.fleet.places_of_holders.get, called)):
            called = [f"new-{one}" for one in called]
        self.belong(called)
        at_once = self._at_once(snapshot, called, least)
        scenario, result = snapshot.fork(), list[Destination]()
        for consumer in called:
            candidates = at_once.get(consumer)
            if candidates is None:
                candidates = self.search(scenario.snapshot, len(result))
            if not candidates:
                return self._selection(result, called, least, candidates.explain())
            taken = scenario.claim(consumer, candidates[0])
            host = candidates[0].host
            others = candidates[1 : 1 + self._alternates]
            limits = _limits_of(host, candidates, snapshot.fleet)
            result.append(Destination(consumer, host, taken, others, limits=limits))
        return self._selection(result, called, least)

    # --- with claims ---

    def claimed(self, consumers: Sequence[str], least: int, confirm: Confirm | None) -> Selection:
        """Claim for some consumers, all at once where all have to be placed."""
        if least < len(consumers) or len(consumers) == 1:
            return self._one_by_one(consumers, least, confirm)
        result = self._together(consumers)
        if confirm is None:
            return self._selection(result, consumers, least)
        for place, one in enumerate(result):
            try:
                again = functools.partial(self._next, one.consumer, place)
                result[place] = self._confirmed(one, confirm, again)
            except BaseException:  # whatever it is: nobody keeps a part of them
                self._give_back(result, but=one.consumer)
                raise
        return self._selection(result, consumers, least)

    def _one_by_one(
        self, consumers: Sequence[str], least: int, confirm: Confirm | None
    ) -> Selection:
        if len(consumers) == 1:
            self.belong(consumers)
        result: list[Destination] = []
        refusal: NoCandidates | None = None
        why: Explanation | None = None
        for number, consumer in enumerate(consumers):
            place = functools.partial(self._next, consumer, number)
            if number == 0 and len(consumers) > 1:
                place = functools.partial(self._first, consumers, least)
            try:
                one = place()
                result.append(one if confirm is None else self._confirmed(one, confirm, place))
            except NoCandidates as error:
                assert self._searched is not None, "what found none was searched"
                refusal, why = error, self._searched.explain()
            except BaseException:
                self._give_back(result)
                raise
        if refusal is not None and len(result) < least:
            self._give_back(result)
            raise refusal
        return self._selection(result, consumers, least, why)

    def _first(self, consumers: Sequence[str], least: int) -> Destination:
        """Claim for the first of some: in a strict group, on the host that holds most of them.

        After a lost race that host is searched anew; the others follow who stands there.
        """

        def claimed(snapshot: Snapshot) -> Destination | None:
            self._look(consumers)
            plan = self._at_once(snapshot, consumers, least)
            if not plan:
                return None
            return self._claim_at(snapshot, {consumers[0]: plan[consumers[0]]})[0]

        return retried(self._ledger, claimed) or self._next(consumers[0], 0)

    def _next(self, consumer: str, number: int) -> Destination:
        return self._claim(consumer, self.search(self._ledger.snapshot(), number))

    def _together(self, consumers: Sequence[str]) -> list[Destination]:
        """Claim for all in one transaction; again on a fresh picture after a lost race."""

        def claimed(snapshot: Snapshot) -> list[Destination]:
            self._look(consumers)
            return self._claim_at(snapshot, self._plan(snapshot.fork(), consumers))

        return retried(self._ledger, claimed)

    def _claim_at(self, snapshot: Snapshot, plan: Mapping[str, Candidates]) -> list[Destination]:
        """Claim what was found for some, in one transaction; lost races are not tried again."""
        wanted: Mapping[str, Any] = plan
        said = self._whose
        if self._spec.group is not None:  # another candidate might be beside the wrong members
            wanted = {name: Chosen(result[0], result.request) for name, result in plan.items()}
            limits = None if self._asked is None else self._asked.limits(snapshot.fleet)
            said = {**said, "if_generation": True, "limits": limits}
        claims = self._ledger.claim_all(wanted, **said)
        return [
            self._destination(claim, result, snapshot.fleet)
            for claim, result in zip(claims, plan.values(), strict=True)
        ]

    def _plan(self, scenario: Scenario, consumers: Sequence[str]) -> dict[str, Candidates]:
        plan = self._at_once(scenario.snapshot, consumers, len(consumers))
        if plan:
            return plan
        for number, consumer in enumerate(consumers):
            result = self.search(scenario.snapshot, number)
            if not result:
                raise self._none(consumer, result.explain(), number, len(consumers))
            scenario.claim(consumer, result[0])
            plan[consumer] = result
        return plan

    def _claim(self, consumer: str, found: Candidates) -> Destination:
        """Claim what was found; after lost races the ledger searches again, with the filters."""
        claim = self._ledger.claim(consumer, found, **self._whose)
        return self._destination(claim, found, self._ledger.snapshot().fleet)

    def _confirmed(
        self, one: Destination, confirm: Confirm, again: Callable[[], Destination]
    ) -> Destination:
        """Return a destination that its host does not refuse.

        :param again: claims another one, where it does
        """
        while True:
            try:
                confirm(one)
            except CapacityException as refusal:
                self._give_back([one])
                self._refused[one.host] = str(refusal)
                self._spec = self._spec.replace(tried={**self._spec.tried, one.host: str(refusal)})
                self._asked = None
                one = again()
            except BaseException:
                self._give_back([one])
                raise
            else:
                return one

    @property
    def _whose(self) -> dict[str, Any]:
        return _whose(self._given)

    def _give_back(self, found: Iterable[Destination], but: str | None = None) -> None:
        errors: list[exceptions.ResourceObjectsError] = []
        for one in found:
            if one.consumer != but:
                try:
                    self._ledger.release(one.consumer)
                except exceptions.ResourceObjectsError as error:
                    if not error.matches("ConsumerNotFound"):  # the host has released it already
                        errors.append(error)
        if errors:
            raise errors[0]

    # --- all on one host ---

    def _at_once(
        self, snapshot: Snapshot, consumers: Sequence[str], least: int
    ) -> dict[str, Candidates]:
        """Return candidates for members of a strict group, on the host that holds most of them.

        Who comes first does not take the best host for itself where that has no room for others.
        Empty if no host holds so many, or two at least, or nobody has to be together.
        """
        count = len(consumers)
        for fewer in range(count, max(1, least - 1), -1):
            fit = self._fit_together(snapshot, fewer)
            if fit is None:
                break
            if fit:
                asked = self.search(snapshot, 0)
                chosen = zip(consumers, fit.candidates.values(), strict=False)
                return {consumer: asked.instead([one]) for consumer, one in chosen}
        return {}

    def _fit_together(self, snapshot: Snapshot, count: int) -> GangFit | None:
        """Return whether so many of a strict group fit on one host; None if they need not."""
        group = self._spec.server_group
        if group is None or group.policy != "affinity" or count < 2:
            return None
        options = self.search(snapshot, 0).options
        return snapshot.fit_gang(
            Gang([Member("member", self._spec.wanted, count)], together=HOST),
            order=options.order,
            seed=options.seed,
            limits=None if self._asked is None else self._asked.limits(snapshot.fleet),
            filters=options.filters,
        )

    # --- searching ---

    def search(self, snapshot: Snapshot, number: int) -> Candidates:
        """Return the best candidates for the next consumer, of whom so many were placed."""
        if self._asked is None:
            again = self._known if isinstance(self._given.group, str) else None
            self._asked = Asked(self._pipeline, self._spec, self._reports, again)
        self._searched = snapshot.candidates(
            self._spec.wanted,
            limit=1 + self._alternates + SPARE,
            per_host=1,
            order=self._asked.order(self._order),
            seed=None if self._seed is None else self._seed + number,
            filters=self._asked.filters(),
            limits=self._asked.limits(snapshot.fleet),
        )
        return self._searched

    def _destination(self, claim: Claim, found: Candidates, fleet: Fleet) -> Destination:
        host = _host_of(claim, fleet)
        others = [one for one in found[: 2 + self._alternates] if one.host != host]
        return Destination(
            claim.consumer,
            host,
            claim.allocations,
            tuple(others[: self._alternates]),
            claim,
            _limits_of(host, found, fleet),
        )

    def belong(self, consumers: Iterable[str]) -> None:
        """Let consumers be members of the server group of the request."""
        self._members = frozenset(consumers)
        self._known()

    def _look(self, consumers: Iterable[str]) -> None:
        """Let consumers be members beside who is in the group now that the picture was taken.

        Who joins later was faster; who joined before the picture is in both. Cost: one query, if
        the ledger keeps the group.
        """
        self.belong(consumers)
        if isinstance(self._given.group, str):
            self._asked = None

    def _known(self) -> RequestSpec:
        group = _known(self._ledger, self._given).server_group
        if group is not None:
            members = dataclasses.replace(group, members=group.members | self._members)
            self._spec = self._spec.replace(group=members)
        return self._spec

    def _none(self, consumer: str, why: Explanation, placed: int, asked: int) -> NoCandidates:
        beside = f", {placed} of {asked} could be placed" if asked > 1 else ""
        failed = {} if self._asked is None else self._asked.skipped
        return NoCandidates(
            _Refused(f"no host for {consumer}{beside}", self._pipeline, failed, why), why
        )

    @property
    def _skipped(self) -> dict[str, str]:
        failed = {} if self._asked is None else self._asked.skipped
        return {**self._pipeline.idle, **failed}

    def _selection(
        self,
        found: Sequence[Destination],
        consumers: Sequence[str],
        least: int,
        why: Explanation | None = None,
    ) -> Selection:
        placed = {one.consumer for one in found}
        missing = tuple(one for one in consumers if one not in placed)
        if len(found) < least:
            assert why is not None, "somebody found none"
            raise self._none(missing[0], why, len(found), len(consumers))
        return Selection(tuple(found), missing, why, self._skipped, dict(self._refused))


def _known(ledger: Ledger, spec: RequestSpec) -> RequestSpec:
    """Return a request with its server group as the ledger keeps it. Cost: one query, if named.

    :raises NotFound: if the ledger does not keep it
    """
    return (
        spec.replace(group=ledger.groups.get(spec.group)) if isinstance(spec.group, str) else spec
    )


def _whose(spec: RequestSpec) -> dict[str, Any]:
    group = spec.group if isinstance(spec.group, str) else None
    said = {"project": spec.project, "user": spec.user, "group": group}
    return {name: value for name, value in said.items() if value is not None}


def _limits_of(host: str, found: Candidates, fleet: Fleet) -> dict[str, int]:
    """Return the limits under which a host was searched, by class."""
    if not found.options.limits:
        return {}
    uuid = fleet.uuids[fleet.place_by_key[host]]
    return {name: most for (of, name), most in found.options.limits.items() if of == uuid}


def _host_of(claim: Claim, fleet: Fleet) -> str:
    keys = [one.provider_uuid or one.provider for one in claim.allocations]
    trees = [int(fleet.tree[fleet.place_by_key[key]]) for key in keys if key in fleet.place_by_key]
    own = [tree for tree in trees if tree not in fleet.pools.trees] or trees
    return fleet.hosts[own[0]]
