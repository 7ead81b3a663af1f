"""The snapshot: an immutable picture of the ledger at one moment."""

from __future__ import annotations

import bisect
import dataclasses
import datetime
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from resource_objects import clock, exceptions
from resource_objects.fields import FrozenDict, Shared
from resource_objects.names import consumer_name, resource_class_order
from resource_objects.providers import arguments
from resource_objects.providers.columns import Columns
from resource_objects.providers.feed import Cursor
from resource_objects.providers.orders import Use
from resource_objects.providers.plan import Plan
from resource_objects.providers.usage import Usage, usage_of
from resource_objects.requests import Gang, Request, RequestLike
from resource_objects.resources import Resource, resource
from resource_objects.search import fleet_build, host_usage, search
from resource_objects.search.arrays import Booleans
from resource_objects.search.candidate import Chosen
from resource_objects.search.candidates import Candidates
from resource_objects.search.conditions.base import LaysFilter, semantics_of
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.fleet_columns import columns_of
from resource_objects.search.host_usage import HostUsage
from resource_objects.search.limits import uuids_in
from resource_objects.search.order import Options, Order, check_seed
from resource_objects.search.scenario import Scenario, plan_between

if TYPE_CHECKING:
    from resource_objects.search.bundle import Bundle
    from resource_objects.search.capacity import CapacityReport
    from resource_objects.search.drain import Rehearsal
    from resource_objects.search.gangs import GangFit
    from resource_objects.search.how_many import HowMany
    from resource_objects.search.relaxations import Relaxations
    from resource_objects.search.when import When

#: How many candidates are returned, and how many steps are taken, unless told otherwise.
DEFAULT_LIMIT = 10
DEFAULT_BUDGET = 30_000


@dataclasses.dataclass(frozen=True, slots=True)
class Refresh:
    """How a snapshot came to be.

    >>> print(Refresh(3, 2, "patched"))
    3 changes absorbed, 2 trees read, patched
    """

    #: how many writes it shows, as the feed tells them, that the one before did not; 0 if there was
    #: none before, or nobody knows
    changes: int
    trees: int  #: how many trees were read for it
    #: ``patched``: what is used of some trees was put in the place of what was; ``replaced``: whole
    #: trees were; ``read``: everything was read
    way: str

    @property
    def is_full(self) -> bool:
        """Whether everything was read."""
        return self.way == "read"

    def __str__(self) -> str:
        return f"{self.changes} changes absorbed, {self.trees} trees read, {self.way}"


class Snapshot(Shared):
    """Everything a ledger kept at one moment; it never changes.

    Asking who could hold a request: :meth:`candidates`. Looking: :attr:`hosts`, :attr:`pools`,
    :meth:`capacity`, :meth:`used`, :meth:`free`. Any number of threads may share one, and processes
    of one machine may send it to each other by ``pickle``.

    >>> from resource_objects.providers.columns import InventoryColumns, ProviderColumns
    >>> snapshot = Snapshot(Columns(
    ...     ProviderColumns([1], ["1fa4cd25-8a38-4bb3-8a37-7b5d4a6f6f33"], ["host0"], [None], [1],
    ...                     [0]),
    ...     InventoryColumns([1], ["VCPU"], [8], [0], [1], [None], [1], [1000000], [8], [3])))
    >>> snapshot
    <Snapshot: 1 hosts, 1 providers>
    >>> print(snapshot.candidates("VCPU=2")[0])
    VCPU=2 of host0
    >>> print(snapshot.candidates("VCPU=6").explain())
    host0: VCPU requested 6, free 5 of 8
    """

    __slots__ = ("_fleet", "at", "cursor", "refreshed")  # in the order in which they are set
    _fleet: Fleet
    #: the provider to which this picture is confined, None for everything
    at: str | None
    #: where the change feed was at that moment, None where the columns did not say
    cursor: Cursor | None
    #: how it came to be: what was read for it
    refreshed: Refresh

    def __init__(self, columns: Columns, *, at: str | None = None) -> None:
        """Make a snapshot of what ``backend.read()`` returned.

        :param at: a provider (by name or uuid) to which it is confined: only that one and what is
            below it gives anything, with pools that give to it if the columns have them, and a
            claim of what is found searches there again after a lost race. Columns of its whole
            tree tell what applies to it from above: traits, and what is left where it shares

        Cost: linear, about 2 microseconds per provider and per inventory.

        :raises InvalidInput: if the columns do not belong together
        :raises InvalidTree: if the parents of some provider never end
        :raises NotFound: if ``at`` is not in the columns
        """
        fleet = fleet_build.read(columns, at)
        self._set(fleet, at, columns.cursor, Refresh(0, len(fleet.hosts), "read"))

    @classmethod
    def _of(cls, fleet: Fleet, cursor: Cursor | None, refreshed: Refresh) -> Self:
        """Return a snapshot of everything, of arrays that are made already."""
        self = object.__new__(cls)
        self._set(fleet, None, cursor, refreshed)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), *(getattr(self, name) for name in self.__slots__))

    def _set(self, *values: object) -> None:
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)

    def candidates(
        self,
        request: RequestLike,
        *,
        limit: int | None = DEFAULT_LIMIT,
        per_host: int | None = None,
        order: Order | str = "name",
        seed: int | None = None,
        budget: int = DEFAULT_BUDGET,
        limits: arguments.Limited = None,
        filters: Iterable[LaysFilter] = (),
    ) -> Candidates:
        """Return who could hold a request.

        A host is found whenever some choice of its providers holds the request. Each class of the
        unnamed group is given by one provider; where devices give it (providers below the root, of
        a class of devices or with one unit each) also by several of them together. Each named group
        is given by one provider. Each part keeps the unit rules of its provider, and all parts
        together fit wherever what is taken is used too (shares). Each required trait is had by all
        who give some class, themselves or through a provider above them; a forbidden one by nobody
        who gives, nor above; so for aggregates.

        An amount that says where it goes (a topology, devices) is one class, given by all parts
        it is put on: the cells, the devices. What it stands for is not asked for once more,
        its candidate carries it assigned (``Candidate.located``), and one that is assigned already
        is found where it can be just so. Cells and the devices near them are one decision.
        A count is given by the host as a whole, not by a part of it; a count of devices by the
        providers that keep them, and the candidate says which (``Allocation.units``).

        So a required trait that devices answer for is had by every one of them: two H100 are not
        one of them and an A100, and a network card beside them would need the trait too. What only
        some of the devices need is said of these (``devices("PGPU", traits=["CUSTOM_H100"])``):
        then it is a trait of the device itself, not one of a provider above it. What the givers of
        one class need is said of that class (``traits_of={"DISK_GB": ["CUSTOM_SSD"]}``).

        A pool that the tree is linked to may give a class or group instead of the tree itself, who
        comes first; of a pool only its own traits count. A host gives something itself: what
        only pools have is found once, at the pool that has all of it.

        Requests in Placement's words go by its rules instead, less its bugs; what differs is a
        table (:mod:`~resource_objects.search.conditions.base`).

        Where all is to be near at a level (``Request.near``), hosts come first on which the fewest
        places of it will do, and of a host those candidates; where that is required, all comes from
        one. What a host keeps for the level as a whole is not meant. Cells then give the counts
        that they share with their host, several of them where one has too little.

        What is out of service (``ledger.disable``) is not found, nor what is below it; that ends
        with its time, also for a snapshot that was taken before. Who requires the trait
        ``COMPUTE_STATUS_DISABLED`` asks for it all the same.

        Providers that are equal are considered once: which of eight equal devices is taken makes
        no candidate of its own. The same snapshot, request and options give the same answer.
        Cost: milliseconds for the hosts that cannot, however many. For each that can, where counts
        alone are asked for, a microsecond and some 8 to build the candidate when it is looked at;
        some 200 where devices share an amount, traits meet or groups are named; half a millisecond
        where a topology is looked at. It grows with
        the limit, not with the number of candidates that there might be.

        :param request: a :class:`~resource_objects.requests.Request`, or what one is made from
        :param limit: at most so many candidates; None is all
        :param per_host: at most so many of one host; None is by the request: one, or all where it
            is in Placement's words. Hosts take turns: the first of each, then the second
        :param order: which hosts come first: ``name``, ``pack``, ``spread``, ``random``, or an
            :class:`~resource_objects.search.order.Order` with weights and preferred traits
        :param seed: shuffles: all hosts in a random order, else those that are nearly best
        :param budget: at most so many steps: one for each thing tried, and beside the first
            candidate of each host one for each part of a candidate
        :param limits: ``{provider: limits}``, as for ``ledger.claim``: where more than that would
            be used in all, nothing is found. Who claims what was found claims under them, too
        :param filters: what else hosts have to meet, as a scheduler brings it; who searches again
            after a lost race searches with them too
        :raises InvalidInput: for a request that cannot be, or a limit or budget below 1
        :raises NotFound: for a request in the tree of a provider that is not there, or limits of
            one
        """
        wanted = Request.of(request)
        options = self._options(
            None if limit is None else _check("limit", limit),
            semantics_of(wanted).per_host if per_host is None else _check("per_host", per_host),
            order=order,
            seed=seed,
            budget=budget,
            limits=limits,
            filters=filters,
        )
        return search.search(self._fleet, wanted, options, at=self.at)

    def searched(self, request: Request, options: Options) -> Candidates:
        """Return who could hold a request, searched as another search was."""
        return search.search(self._fleet, request, options, at=self.at)

    def fit_gang(
        self,
        gang: Gang,
        *,
        levels: Mapping[str, Collection[str]] = FrozenDict(),
        order: Order | str = "name",
        seed: int | None = None,
        budget: int = DEFAULT_BUDGET,
        limits: arguments.Limited = None,
        filters: Iterable[LaysFilter] = (),
    ) -> GangFit:
        """Return where a gang fits: a candidate for each member, for all of them at once.

        Exact: what is returned can be claimed together (``ledger.claim_all(fit.candidates)``), and
        a no is one whichever candidates members take. The same snapshot, gang and seed give the
        same answer. Cost: some passes over the fleet for each kind of member, then some 10
        microseconds for each member where counts alone are asked for, half a millisecond where
        devices or cells are chosen.

        :param levels: the aggregates of each level that the gang names, ``{"rack": ["r1", "r2"]}``.
            A host that is in no place of a level is left out for the members that name the level;
            for all members, if the gang itself names it
        :param order: which hosts are taken first, as for :meth:`candidates`
        :param seed: as there
        :param budget: at most so many steps
        :param limits: as there
        :param filters: what hosts have to meet besides, as there
        :raises InvalidInput: for a level without places, with a host in two of its places, or
            levels that do not lie within each other
        :raises SearchLimitReached: if the budget ends before it is known
        """
        from resource_objects.search.gangs import fit_gang  # most who search place no gang

        options = self._options(
            None, 1, order=order, seed=seed, budget=budget, limits=limits, filters=filters
        )
        return fit_gang(self.fork(), gang, levels, options)

    def how_many(
        self,
        request: Gang | RequestLike,
        *,
        budget: int = DEFAULT_BUDGET,
        limits: arguments.Limited = None,
    ) -> HowMany:
        """Return how many of a request fit at once: so many for sure, and so many at most.

        What is found can be claimed, one after the other, on an unchanged ledger
        (:attr:`.HowMany.placements`). Where both bounds meet, which :attr:`.HowMany.is_exact`
        tells, no other choice holds more. A budget that ends leaves them apart, and never makes
        the answer wrong. Each pool is counted once, except in :attr:`.HowMany.by_host`.

        Cost: some passes over the fleet where counts alone are asked for, 50 ms for 10,000 hosts.
        Else half a millisecond for each that is placed on hosts in different states, and the
        search for more where it cannot be told at once that there are none.

        :param request: a request, or what one is made from; or a mix, as a
            :class:`~resource_objects.requests.gang.Gang` whose counts are the ratio: then how many
            times all of its members fit
        :param budget: at most so many steps
        :param limits: as for :meth:`candidates`
        :raises InvalidInput: for a request that cannot be, or a mix that is bound to places
        """
        from resource_objects.search.how_many import how_many, mix_of  # few ask that

        options = self._options(
            None, 1, order="name", seed=None, budget=budget, limits=limits, filters=()
        )
        return how_many(self.fork(), mix_of(request), options)

    def report(
        self,
        mix: Gang | RequestLike | None = None,
        *,
        levels: Mapping[str, Collection[str]] = FrozenDict(),
        budget: int = DEFAULT_BUDGET,
    ) -> CapacityReport:
        """Return what there is, is used and is free, and what of that requests cannot use.

        By class, for all, each host and each place of levels: capacity, used, free, out of service,
        there by an allocation ratio alone, and the largest amount that one request can be given.
        With a mix also how many of each of its requests fit, what is stranded, and how fragmented
        it is (:mod:`~resource_objects.search.capacity` has the definitions).

        Cost: some passes over the inventories, and what :meth:`how_many` takes for each request of
        the mix; lines of hosts are made when somebody looks, some 30 microseconds each.

        :param mix: what is usual: a request, or what one is made from; or several, as a
            :class:`~resource_objects.requests.gang.Gang` whose counts say how usual each is
        :param levels: the aggregates of each level, ``{"rack": ["r1", "r2"]}``
        :param budget: steps of the search for each request, where one is needed
        :raises InvalidInput: for a mix that cannot be, or a level without places, or with a host in
            two of them
        """
        from resource_objects.search.capacity import CapacityReport
        from resource_objects.search.how_many import mix_of

        usual = None if mix is None else mix_of(mix)
        fits = {
            one.name: self.how_many(one.request, budget=budget)
            for one in (() if usual is None else usual.members)
        }

        def can(host: str, name: str, amount: int) -> bool | None:
            try:
                asked = Request({name: amount}, in_tree=host)
                return bool(self.candidates(asked, limit=1, budget=budget))
            except exceptions.SearchLimitReached:
                return None

        return CapacityReport(self._fleet.in_force(), self._fleet, usual, fits, levels, can)

    def when(
        self,
        request: RequestLike,
        ends: Mapping[str, datetime.datetime],
        *,
        budget: int = DEFAULT_BUDGET,
        limits: arguments.Limited = None,
    ) -> When:
        """Return when a request would fit if claims end as said and nothing else comes.

        An estimate, with the ends that make it so; nothing is kept free for anybody. What is out of
        service stays so. ``ledger.when`` knows the ends of all claims.

        Cost: a search for each halving of the ends, and a tenth of a millisecond for each claim
        that is given back in a fork.

        :param ends: when claims end, by consumer
        :param budget: at most so many steps of each search
        :param limits: as for :meth:`candidates`
        :raises InvalidInput: for a request that cannot be, or an end that is no time with its zone
        """
        from resource_objects.search.when import when

        return when(self.fork(), request, ends, {"budget": budget, "limits": limits})

    def _options(
        self,
        limit: int | None,
        per_host: int | None,
        *,
        order: Order | str,
        seed: int | None,
        budget: int,
        limits: arguments.Limited,
        filters: Iterable[LaysFilter],
    ) -> Options:
        """Return how a search is made, of what was given for it."""
        return Options(
            limit,
            per_host,
            Order.of(order),
            check_seed(seed),
            _check("budget", budget),
            arguments.of_uuids(arguments.limits(limits), partial(uuids_in, self._fleet)),
            tuple(filters),
        )

    def fork(self) -> Scenario[Self]:
        """Return a scenario that begins as this snapshot: in it one may try things.

        Nothing is copied before something is tried, and the snapshot stays as it is.

        >>> import resource_objects as ro
        >>> with ro.connect("memory://") as ledger:
        ...     done = ledger.sync(ro.Provider("host0", "VCPU=8"))
        ...     snapshot = ledger.snapshot()
        >>> scenario = snapshot.fork()
        >>> print(*scenario.claim("job-1", scenario.candidates("VCPU=6")))
        VCPU=6 of host0
        >>> print(scenario.candidates("VCPU=6").explain())
        host0: VCPU requested 6, free 2 of 8 (job-1 holds 6)
        >>> bool(snapshot.candidates("VCPU=6"))
        True
        """
        return Scenario(self._fleet, self._like)

    def relaxations(
        self,
        request: RequestLike,
        k: int = 5,
        *,
        costs: Mapping[str, int | Fraction] | None = None,
        priorities: Mapping[str, int] = FrozenDict(),
        protected: Collection[str] = (),
        ends: Mapping[str, datetime.datetime] = FrozenDict(),
        now: datetime.datetime | None = None,
        kinds: Collection[str] | None = None,
        budget: int = DEFAULT_BUDGET,
        tries: int = 2000,
    ) -> Relaxations:
        """Return the smallest single changes after which a candidate exists.

        Of the request, or of the ledger; each is tried in a scenario, and has the candidate that is
        there then. What they cost is the weight of the kind times the size, which
        :mod:`~resource_objects.search.relaxations` states.

        Cost: a search for each condition of the request, and for each step by which a topology or
        devices may be less; some passes over the fleet, then a millisecond or two for each trial
        of one tree; at most ``tries``.

        :param request: a :class:`~resource_objects.requests.Request`, or what one is made from
        :param k: at most so many
        :param costs: other weights, by kind: integers or fractions above 0
        :param priorities: of consumers, 0 and more: who has a higher one is dearer to release
        :param protected: the consumers that are not to be released
        :param ends: when the claims of consumers end, as far as they do: to wait is a change, too
        :param now: from when on one would wait; None: this moment
        :param kinds: only these, such as ``["add"]``, the question of an autoscaler
        :param budget: steps of each search, as for :meth:`candidates`
        :param tries: at most so many searches in all
        :raises InvalidInput: for a request that cannot be, or options that cannot
        :raises SearchLimitReached: if it is not known whether the request fits as it is

        >>> import resource_objects as ro
        >>> with ro.connect("memory://") as ledger:
        ...     done = ledger.sync(ro.Provider("host0", "VCPU=8"))
        ...     done = ledger.claim("job-1", {"host0": "VCPU=2"})
        ...     print(ledger.snapshot().relaxations("VCPU=8"))
        VCPU=6 instead of 8: VCPU=6 of host0
        VCPU of host0 at a ratio of 1.25 instead of 1: VCPU=8 of host0
        job-1 released: VCPU=8 of host0
        one more host like host0: VCPU=8 of host0-like-1
        """
        from resource_objects.search import relaxations as of  # who finds some needs none

        asked = of.asked_of(
            k,
            costs,
            priorities,
            protected,
            ends,
            clock.now() if now is None else arguments.moment("now", now),
            kinds,
            _check("budget", budget),
            tries,
        )
        return of.relaxations(self._fleet, self._like, Request.of(request), asked)

    def rehearse_drain(
        self,
        *providers: str,
        requests: Mapping[str, Request] = FrozenDict(),
        budget: int = DEFAULT_BUDGET,
        **options: Any,
    ) -> Rehearsal:
        """Return what would become of those who hold something at providers that go.

        Each is placed again by the request it was made for, topology and devices included, beside
        the others. Nobody is moved: ``ledger.apply(rehearsal.plan)`` would.

        :param providers: names or uuids of hosts, or of any others; what is below them goes too
        :param requests: what consumers were made for (``Consumer.request``); of whom nobody says,
            the counts that it holds
        :param budget: steps of each search
        :param options: as for :meth:`candidates`
        :raises NotFound: if one is not there

        >>> import resource_objects as ro
        >>> with ro.connect("memory://") as ledger:
        ...     done = ledger.sync(ro.Provider("host0", "VCPU=8"), ro.Provider("host1", "VCPU=4"))
        ...     for name, cpus in (("job-1", 3), ("job-2", 5)):
        ...         done = ledger.claim(name, {"host0": f"VCPU={cpus}"})
        ...     print(ledger.snapshot().rehearse_drain("host0"))
        job-1: VCPU=3 of host0 -> VCPU=3 of host1
        job-2: VCPU=5 of host0 -> nowhere
          host0: disabled since ...: drained
          host1: VCPU requested 5, free 4 of 4
        """
        return self.rehearsed(self.fork(), providers, requests, {**options, "budget": budget})

    @staticmethod
    def rehearsed(
        scenario: Scenario[Any],
        providers: tuple[str, ...],
        requests: Mapping[str, Request],
        options: Mapping[str, Any],
    ) -> Rehearsal:
        """Return what :meth:`rehearse_drain` does, of a scenario, which it leaves as it is."""
        from resource_objects.search import drain  # who drains nothing needs none of it

        return drain.rehearse(
            scenario, providers, requests, **{"budget": DEFAULT_BUDGET, **options}
        )

    @classmethod
    def kept_in_place(
        cls, found: Candidates, uses: Iterable[Use], without: Callable[[], Columns]
    ) -> Iterator[Chosen]:
        """Yield a candidate with what its consumer uses of its host already, for a scenario.

        :param without: returns the columns of the host, in which the consumer uses nothing
        """
        from resource_objects.search.in_place import kept_in_place

        def scenario(host: str) -> Scenario[Any]:
            return cls(without(), at=found.at or host).fork()

        return kept_in_place(found, uses, scenario, lambda *_: {})

    def bundle(self, request: RequestLike, **options: Any) -> Bundle:
        """Return what it takes to ask this again elsewhere: the picture, the request, the options.

        ``bundle.to_json()`` goes to a file, ``bundle.shrunk()`` leaves out what the answer does not
        need. Cost: linear in all rows.

        :param options: as for :meth:`candidates`, but for filters
        :raises InvalidInput: for other options, or an order that no file can say

        >>> import resource_objects as ro
        >>> with ro.connect("memory://") as ledger:
        ...     done = ledger.sync(*(ro.Provider(f"host{n}", "VCPU=8") for n in range(9)))
        ...     bundle = ledger.snapshot().bundle("VCPU=9")
        >>> small = Snapshot.load(bundle.shrunk().to_json())
        >>> print(small.ask().explain())
        host8: VCPU requested 9, free 8 of 8
        """
        from resource_objects.search import bundle as of  # few report anything

        return of.Bundle(
            columns_of(self._fleet),
            Request.of(request),
            of.checked_options(options.items()),
            self.at,
            _opened,
        )

    @classmethod
    def load(cls, text: str | bytes) -> Bundle:
        """Return the bundle that a file says, which gives the answer that it gave.

        :raises InvalidInput: naming what is wrong with it
        """
        from resource_objects.search import bundle as of

        return of.Bundle.from_json(text, _opened)

    def diff(self, after: Snapshot | Scenario[Any]) -> Plan:
        """Return the plan that leads from this picture to another one of the same ledger.

        What :meth:`Scenario.diff` says of it holds here, too. Cost: linear in all rows.

        >>> import resource_objects as ro
        >>> with ro.connect("memory://") as ledger:
        ...     done = ledger.sync(ro.Provider("host0", "VCPU=8"))
        ...     before = ledger.snapshot()
        ...     done = ledger.claim("job-1", {"host0": "VCPU=6"})
        ...     print(before.diff(ledger.snapshot()))
        + job-1 allocates VCPU=6 of host0
        """
        return after.diff(self) if isinstance(after, Scenario) else plan_between(self, after)

    def _like(self, fleet: Fleet) -> Self:
        """Return a snapshot of the same moment with other figures."""
        found = object.__new__(type(self))
        found._set(fleet, self.at, self.cursor, self.refreshed)
        return found

    @property
    def fleet(self) -> Fleet:
        """The picture as arrays, as it is in force now: for who builds on the search."""
        return self._fleet.in_force()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the hosts, sorted. The root of a pool is none."""
        fleet = self._fleet
        return tuple(
            name
            for tree, name in enumerate(fleet.hosts)
            if fleet.is_within(tree) and tree not in fleet.pools.trees
        )

    @property
    def pools(self) -> tuple[str, ...]:
        """The names of the pools, sorted: the providers whose classes other trees may take."""
        fleet = self._fleet
        places = fleet.pools.providers.tolist()
        return tuple(sorted(fleet.names[p] for p in places if fleet.is_within(int(fleet.tree[p]))))

    @property
    def classes(self) -> tuple[str, ...]:
        """The resource classes of which there are inventories, as they are listed everywhere."""
        fleet = self._fleet
        kept = (
            name
            for name, rows in fleet.classes.items()
            if fleet.within is None or bool((rows.tree == fleet.within).any())
        )
        return tuple(sorted(kept, key=resource_class_order))

    def capacity(self, key: Resource | str) -> int:
        """Return how much of a resource there is, over all providers.

        What uses the same resource of another provider of its tree (a cell's CPUs, which are the
        host's) is part of that, and not counted again.
        """
        rows, counted = self._counted(key)
        return sum(rows.capacity[counted].tolist())

    def used(self, key: Resource | str) -> int:
        """Return how much of a resource is used, over all providers, counted in the same way."""
        rows, counted = self._counted(key)
        return sum(rows.used[counted].tolist())

    def free(self, key: Resource | str) -> int:
        """Return how much of a resource can be allocated: the sum of what each provider can give.

        A provider gives its capacity minus what is used, and no more than is left of what an
        allocation there uses elsewhere: a device of which a part is allocated is not free. A
        provider that is disabled, or used above its capacity after a shrink, gives 0. Where several
        providers draw on one inventory, each counts with all that is left of it.
        """
        fleet = self._fleet.in_force()
        rows = fleet.rows(resource(key).name)
        free = fleet.free(rows)
        return int(free.sum() if fleet.within is None else free[rows.tree == fleet.within].sum())

    def usage(self, *hosts: str) -> Usage:
        """Return who uses how much of what, provider by provider, as ``ledger.usage`` tells it.

        Cost: linear in the rows of these trees.

        :param hosts: only these and their trees, by name; none for all
        :raises NotFound: for one that is no root of a tree

        >>> import resource_objects as ro
        >>> with ro.connect("memory://") as ledger:
        ...     done = ledger.sync(ro.Provider("host0", "VCPU=8"))
        ...     scenario = ledger.snapshot().fork()
        >>> done = scenario.claim("job-1", scenario.candidates("VCPU=2"))
        >>> print(scenario.snapshot.usage("host0"))
        host0: VCPU 2 of 8
        """
        fleet, trees = self._fleet, set[int]()
        for name in hosts:
            tree = bisect.bisect_left(fleet.hosts, name)
            if tree == len(fleet.hosts) or fleet.hosts[tree] != name:
                raise exceptions.NotFound("provider", name)
            trees.add(tree)
        return usage_of(columns_of(fleet, trees if hosts else None))

    def host_usage(
        self, *hosts: str, consumers: Iterable[str] | None = None
    ) -> tuple[HostUsage, ...]:
        """Return who has what, a line for each host, in natural order: ``lab-2`` before ``lab-10``.

        Each line says of every class what is used and free over all providers of the host, of
        devices that can be had in parts also what is left of those of which somebody has a part,
        and who holds how much. What pools give is not a host's, and in no line. What is disabled
        is not free.

        Cost: no statement. Linear in the inventories and allocations of all hosts: some 80
        microseconds per host of eight devices and four consumers.

        :param hosts: only these, by name; none for all
        :param consumers: only what these hold, and only hosts where they hold something
        :raises NotFound: for a name that is none of :attr:`hosts`
        :raises InvalidInput: if consumers are no names

        >>> import resource_objects as ro
        >>> from resource_objects.host import partitions
        >>> with ro.connect("memory://") as ledger:
        ...     host = ro.Provider("lab-0", "VCPU=64")
        ...     for number in range(4):
        ...         gpu = partitions.thousandths(host.add(f"lab-0/gpu{number}", "PGPU=1"))
        ...     done = ledger.sync(host)
        ...     done = ledger.claim("job-7", ledger.snapshot().candidates("VCPU=8,PGPU=2"))
        ...     half = ledger.snapshot().candidates("CUSTOM_PGPU_THOUSANDTHS=500")
        ...     done = ledger.claim("job-9", half)
        ...     (line,) = ledger.snapshot().host_usage()
        >>> line["PGPU"].used, line["PGPU"].free, line["PGPU"].parts
        (3, 1, (Fraction(1, 2),))
        >>> print(*line.holders, sep="; ")
        job-7 PGPU 2, VCPU 8; job-9 PGPU 1/2
        """
        fleet = self._fleet.providers_in_force()
        known = frozenset(self.hosts) if hosts else frozenset()
        for name in hosts:
            if name not in known:
                raise exceptions.NotFound("provider", name)
        some = None if consumers is None else frozenset(_names_of(consumers))
        wanted = frozenset(hosts) if hosts else None
        return tuple(host_usage.host_usage(fleet, self._fleet.in_force(), wanted, some))

    def _counted(self, key: Resource | str) -> tuple[ClassRows, Booleans]:
        """Return the inventories of a resource, and which of them are not a part of another."""
        fleet = self._fleet
        rows = fleet.rows(resource(key).name)
        counted = fleet.counted(rows)
        return rows, counted if fleet.within is None else counted & (rows.tree == fleet.within)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise exceptions.FrozenValue(f"Snapshot.{name} cannot change")

    def __delattr__(self, name: str) -> NoReturn:
        raise exceptions.FrozenValue(f"Snapshot.{name} cannot change")

    def __repr__(self) -> str:
        fleet = self._fleet
        is_within = True if fleet.within is None else fleet.tree == fleet.within
        count = np.count_nonzero(np.broadcast_to(is_within, fleet.tree.shape))
        return f"<Snapshot: {len(self.hosts)} hosts, {count} providers>"


def _unpickled(cls: type[Snapshot], *values: object) -> Snapshot:
    self = object.__new__(cls)
    self._set(*values)
    return self


def _opened(columns: Columns, at: str | None) -> Snapshot:
    return Snapshot(columns, at=at)


def _names_of(consumers: Iterable[str]) -> Iterator[str]:
    if isinstance(consumers, str) or not isinstance(consumers, Iterable):
        raise exceptions.InvalidInput("name", "consumers", consumers, "a list of names")
    return map(consumer_name, consumers)


def _check(what: str, value: object) -> int:
    if type(value) is not int or value < 1:
        raise exceptions.InvalidInput("request", what, value, "an integer of 1 or more")
    return value
