"""The snapshot: an immutable copy of the ledger at one moment."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from resource_objects import clock, exceptions
from resource_objects.fields import FrozenDict, Shared
from resource_objects.names import consumer_name, resource_class_order
from resource_objects.providers import arguments
from resource_objects.providers.columns import Columns
from resource_objects.providers.feed import Cursor
from resource_objects.providers.plan import Plan
from resource_objects.providers.usage import Usage, usage_of
from resource_objects.requests import Gang, Request, RequestLike
from resource_objects.resources import Resource, resource
from resource_objects.search import fleet_io, host_usage, search
from resource_objects.search.arrays import Booleans
from resource_objects.search.candidates import Candidates
from resource_objects.search.eligibility import semantics_of
from resource_objects.search.findings import FilterFactory
from resource_objects.search.fleet import ClassRows, Fleet
from resource_objects.search.fleet_io import columns_of
from resource_objects.search.host_usage import HostUsage
from resource_objects.search.order import Options, Order, check_seed
from resource_objects.search.scenario import Scenario, State, plan_between

if TYPE_CHECKING:  # together they take a tenth of the start of a program, and most need none
    from resource_objects.search.bundle import Bundle
    from resource_objects.search.capacity import CapacityReport
    from resource_objects.search.drain import Rehearsal
    from resource_objects.search.gangs import GangFit
    from resource_objects.search.how_many import HowMany
    from resource_objects.search.relaxations import Relaxations
    from resource_objects.search.when import When

#: The defaults of a search: the number of candidates, and the number of steps.
DEFAULT_LIMIT = 10
DEFAULT_BUDGET = 30_000


@dataclasses.dataclass(frozen=True, slots=True)
class Refresh:
    """How a snapshot was built.

    >>> print(Refresh(3, 2, "patched"))
    3 changes absorbed, 2 trees updated, patched
    """

    #: the writes since the snapshot before it; 0 if there was none or the number is unknown
    changes: int
    trees: int  #: the number of trees that were read or whose usage was updated
    #: ``patched``: the usage of some trees was updated; ``replaced``: whole trees were; ``read``:
    #: everything was read
    way: str

    @property
    def is_full(self) -> bool:
        """Whether everything was read."""
        return self.way == "read"

    def __str__(self) -> str:
        return f"{self.changes} changes absorbed, {self.trees} trees updated, {self.way}"


class Snapshot(Shared):
    """An immutable copy of a ledger, or of one provider's subtree, at one moment.

    =================  =============================================================================
    search             :meth:`candidates`, :meth:`fit_gang`, :meth:`how_many`
    what if            :meth:`fork`, :meth:`relaxations`, :meth:`when`, :meth:`rehearse_drain`,
                       :meth:`diff`, :meth:`bundle`
    usage              :attr:`hosts`, :attr:`pools`, :attr:`classes`, :meth:`capacity`,
                       :meth:`used`, :meth:`free`, :meth:`usage`, :meth:`host_usage`,
                       :meth:`report`
    =================  =============================================================================

    Threads may share a snapshot, and processes of one machine may exchange it by ``pickle``.

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

    __slots__ = ("_fleet", "at", "cursor", "refreshed")
    _fleet: Fleet
    #: the provider to which the snapshot is confined, None for the whole ledger
    at: str | None
    #: the position of the change feed at that moment, None if the columns have none
    cursor: Cursor | None
    #: how it was built
    refreshed: Refresh

    def __init__(self, columns: Columns, *, at: str | None = None) -> None:
        """Make a snapshot of what ``backend.read()`` returned.

        Cost: linear, about 2 microseconds per provider and per inventory.

        :param at: the provider (name or uuid) to which the snapshot is confined: only this provider
            and those below it provide anything, with the pools in the columns that serve it. Its
            ancestors in the columns supply inherited traits and shared capacity. A claim repeats
            its search there after a lost race
        :raises InvalidInput: if the columns are inconsistent
        :raises InvalidTree: if the parents of a provider form a cycle
        :raises NotFound: if ``at`` is not in the columns
        """
        fleet = fleet_io.read(columns, at)
        self._set(fleet, columns.cursor, Refresh(0, len(fleet.hosts), "read"), at)

    @classmethod
    def _of(
        cls, fleet: Fleet, cursor: Cursor | None, refreshed: Refresh, at: str | None = None
    ) -> Self:
        self = object.__new__(cls)
        self._set(fleet, cursor, refreshed, at)
        return self

    def _set(self, fleet: Fleet, cursor: Cursor | None, refreshed: Refresh, at: str | None) -> None:
        for name, value in zip(self.__slots__, (fleet, at, cursor, refreshed), strict=True):
            object.__setattr__(self, name, value)

    def _with_fleet(self, fleet: Fleet) -> Self:
        """Return a snapshot of the same moment with other arrays."""
        return self._of(fleet, self.cursor, self.refreshed, self.at)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._of, (self._fleet, self.cursor, self.refreshed, self.at)

    # --- search ---

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
        filters: Iterable[FilterFactory] = (),
    ) -> Candidates:
        """Return the candidates of a request: the complete ways in which hosts can satisfy it.

        The search finds a host if any choice of its providers satisfies the request:

        - Each class of the unnamed group comes from one provider. Several devices (providers below
          the root, of a device class or with one unit each) may share an amount. Each named group
          comes from one provider. Each part obeys the unit rules of its provider, and all parts
          together fit wherever they share capacity.
        - A required trait must be on every provider that provides a class or on an ancestor of it,
          a forbidden trait on none of them. The same holds for aggregates. So each of two devices
          needs a trait that devices have, and so does a network card of the same group. A condition
          on some devices only is ``devices("PGPU", traits=["CUSTOM_H100"])``, and on one class
          ``traits_of={"DISK_GB": ["CUSTOM_SSD"]}``.
        - A placed amount (a topology, devices) is assigned to cells and devices in one decision
          (``Candidate.located``); the counts that it implies are not requested again. An assigned
          amount fits only exactly there. A count of devices comes from their providers, named by
          ``Allocation.units``; any other count from the host as a whole.
        - A linked pool may provide a class or a group; providers of the tree come first. Only a
          pool's own traits count. A host must provide something itself: what only pools have is
          found once, at the pool that has all of it.
        - With ``Request.near`` the hosts that need the fewest domains of the level come first, or
          one domain must be enough. Capacity outside all domains does not count. Cells then provide
          the counts that they share with their host, several cells where one is too small.
        - Disabled providers and those below them are excluded until their time ends, also in older
          snapshots, unless the request requires ``COMPUTE_STATUS_DISABLED``.

        A request with ``compatibility="placement"`` follows the rules of Placement instead
        (:mod:`~resource_objects.search.eligibility` lists the differences). Equal providers are
        considered once. The same snapshot, request and options give the same answer.

        Cost: milliseconds to exclude the hosts that do not fit, however many. For each other host:
        1 microsecond, and 8 to build a candidate, if it is about counts alone; 200 with devices,
        traits of several providers or named groups; 500 with a topology. It grows with the limit,
        not with the number of possible candidates.

        :param limit: the maximum number of candidates; None for all
        :param per_host: the maximum number per host; None for one, or for all if the request
            follows Placement's rules. Hosts take turns
        :param order: which hosts come first: ``name``, ``pack``, ``spread``, ``random``, or an
            :class:`~resource_objects.search.order.Order` with weights and preferred traits
        :param seed: of the random order, or of the shuffle of nearly equal hosts
        :param budget: the maximum number of steps: one for each trial, and after the first
            candidate of a host one for each part of a candidate
        :param limits: ``{provider: limits}``, as for ``ledger.claim``; a claim of the candidates
            applies them too
        :param filters: further conditions on hosts, from a scheduler; a claim that repeats the
            search applies them too
        :raises InvalidInput: for an invalid request, or a limit or budget below 1
        :raises NotFound: for an unknown provider in ``in_tree`` or in limits
        """
        request = Request.of(request)
        options = self._options(
            limit=None if limit is None else _positive("limit", limit),
            per_host=semantics_of(request).per_host
            if per_host is None
            else _positive("per_host", per_host),
            order=order,
            seed=seed,
            budget=budget,
            limits=limits,
            filters=filters,
        )
        return self.searched(request, options)

    def searched(self, request: Request, options: Options) -> Candidates:
        """Return the candidates of a request, searched with the options of another search."""
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
        filters: Iterable[FilterFactory] = (),
    ) -> GangFit:
        """Return a candidate for each member of a gang, all feasible at the same time.

        Exact: ``ledger.claim_all(fit.candidates)`` can claim them together, and a refusal means
        that no choice of candidates fits. The same snapshot, gang and seed give the same answer.
        Cost: some passes over the fleet for each kind of member, then for each member some 10
        microseconds if it requests counts alone, else half a millisecond.

        Options are those of :meth:`candidates`, and:

        :param levels: the aggregates of each level that the gang names, ``{"rack": ["r1", "r2"]}``.
            A host outside a level is excluded for the members that name the level; for all members
            if the gang names it
        :raises InvalidInput: for a level without aggregates or with a host in two of them, or for
            levels that are not nested
        :raises SearchLimitReached: if the budget is exhausted before the answer is known
        """
        from resource_objects.search.gangs import fit_gang

        options = self._options(
            order=order, seed=seed, budget=budget, limits=limits, filters=filters
        )
        return fit_gang(self.fork(), gang, levels, options)

    def how_many(
        self,
        request: Gang | RequestLike,
        *,
        budget: int = DEFAULT_BUDGET,
        limits: arguments.Limited = None,
    ) -> HowMany:
        """Return how many of a request fit at the same time: a lower and an upper bound.

        The placements of the lower bound (:attr:`.HowMany.placements`) can be claimed one after the
        other. Where both bounds are equal (:attr:`.HowMany.is_exact`) no other choice holds more.
        An exhausted budget leaves the bounds apart. Each pool counts once, except in
        :attr:`.HowMany.by_host`.

        Cost: some passes over the fleet for counts alone, 50 ms for 10,000 hosts. Else half a
        millisecond for each placement on a host in a new state, and a search for more where the
        arrays leave it open.

        :param request: a request; or a :class:`~resource_objects.requests.gang.Gang` as a mix,
            whose counts are the ratio, for the number of times that all members fit
        :raises InvalidInput: for an invalid request, or a mix with topology constraints
        """
        from resource_objects.search.how_many import how_many, mix_of

        options = self._options(budget=budget, limits=limits)
        return how_many(self.fork(), mix_of(request), options)

    def _options(
        self,
        *,
        limit: int | None = None,
        per_host: int | None = 1,
        order: Order | str = "name",
        seed: int | None = None,
        budget: int,
        limits: arguments.Limited,
        filters: Iterable[FilterFactory] = (),
    ) -> Options:
        return Options(
            limit,
            per_host,
            Order.of(order),
            check_seed(seed),
            _positive("budget", budget),
            arguments.of_uuids(arguments.limits(limits), self._fleet.uuids_of),
            tuple(filters),
        )

    # --- what if ---

    def fork(self) -> Scenario[Self]:
        """Return a scenario in which changes can be tried; the snapshot does not change.

        Cost: nothing is copied before the first change.

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
        return Scenario(self)

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
        """Return the smallest single changes of the request or the ledger after which it fits.

        Each was tried in a scenario and has its candidate. The cost of a change is the weight of
        its kind times its size (:mod:`~resource_objects.search.relaxations`).

        Cost: a search for each condition of the request and for each step of a placed amount; some
        passes over the fleet; then a millisecond or two for each trial on one tree.

        :param k: the maximum number of changes
        :param costs: other weights, by kind: integers or fractions above 0
        :param priorities: of consumers, 0 and more: a higher one is more expensive to release
        :param protected: consumers that must not be released
        :param ends: when the claims of consumers end: waiting is a change, too
        :param now: from when on the wait is counted; None for the present time
        :param kinds: only these kinds, such as ``["add"]`` for an autoscaler
        :param budget: the maximum number of steps of each search, as for :meth:`candidates`
        :param tries: the maximum number of searches
        :raises InvalidInput: for an invalid request or option
        :raises SearchLimitReached: if it is not known whether the request fits without a change

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
        from resource_objects.search.relaxations import COSTS, RelaxationSearch

        return RelaxationSearch(
            self,
            Request.of(request),
            k,
            costs or {},
            priorities,
            protected,
            ends,
            clock.now() if now is None else arguments.moment("now", now),
            tuple(COSTS) if kinds is None else kinds,
            _positive("budget", budget),
            tries,
        ).answer()

    def when(
        self,
        request: RequestLike,
        ends: Mapping[str, datetime.datetime],
        *,
        budget: int = DEFAULT_BUDGET,
        limits: arguments.Limited = None,
    ) -> When:
        """Return when a request would fit if claims end as stated and no others are made.

        An estimate, with the ends that it depends on; nothing is reserved. Disabled providers stay
        disabled. ``ledger.when`` knows the ends of all claims.

        Cost: a search for each bisection of the ends, and a tenth of a millisecond for each claim
        that is released in a fork.

        :param ends: when claims end, by consumer
        :param budget: the maximum number of steps of each search
        :param limits: as for :meth:`candidates`
        :raises InvalidInput: for an invalid request, or an end without a time zone
        """
        from resource_objects.search.when import when

        return when(self.fork(), Request.of(request), ends, budget=budget, limits=limits)

    def rehearse_drain(
        self,
        *providers: str,
        requests: Mapping[str, Request] = FrozenDict(),
        budget: int = DEFAULT_BUDGET,
        **options: Any,
    ) -> Rehearsal:
        """Return where the consumers of some providers could be placed if these were drained.

        Each consumer is placed by the request of its claim, topology and devices included, next to
        the others. Nothing is moved: ``ledger.apply(rehearsal.plan)`` would do that.

        :param providers: names or uuids; the providers below them are drained too
        :param requests: the requests of consumers (``Consumer.request``); for the others the counts
            that they have allocated are placed
        :param budget: the maximum number of steps of each search
        :param options: as for :meth:`candidates`
        :raises NotFound: for an unknown provider

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
        from resource_objects.search.drain import rehearse

        return rehearse(self.fork(), providers, requests, budget=budget, **options)

    def bundle(self, request: RequestLike, **options: Any) -> Bundle[Snapshot]:
        """Return the snapshot, a request and the options of a search, to repeat it elsewhere.

        ``bundle.to_json()`` is the text of a file, ``bundle.shrunk()`` a smaller bundle with the
        same answer. Cost: linear in all rows.

        :param options: as for :meth:`candidates`, without filters
        :raises InvalidInput: for other options, or an order that a file cannot express

        >>> import resource_objects as ro
        >>> with ro.connect("memory://") as ledger:
        ...     done = ledger.sync(*(ro.Provider(f"host{n}", "VCPU=8") for n in range(9)))
        ...     bundle = ledger.snapshot().bundle("VCPU=9")
        >>> small = Snapshot.load(bundle.shrunk().to_json())
        >>> print(small.ask().explain())
        host8: VCPU requested 9, free 8 of 8
        """
        from resource_objects.search.bundle import Bundle, checked_options

        columns, checked = columns_of(self._fleet), checked_options(options)
        return Bundle(columns, Request.of(request), checked, self.at, open_snapshot=Snapshot)

    @staticmethod
    def load(text: str | bytes) -> Bundle[Snapshot]:
        """Return the bundle of a file, which gives the same answer.

        :raises InvalidInput: naming the invalid part
        """
        from resource_objects.search.bundle import Bundle

        return Bundle.from_json(text, Snapshot)

    def diff(self, after: State | Scenario[State]) -> Plan:
        """Return the plan that leads from this snapshot to another one of the same ledger.

        See :meth:`Scenario.diff`. Cost: linear in all rows.

        >>> import resource_objects as ro
        >>> with ro.connect("memory://") as ledger:
        ...     done = ledger.sync(ro.Provider("host0", "VCPU=8"))
        ...     before = ledger.snapshot()
        ...     done = ledger.claim("job-1", {"host0": "VCPU=6"})
        ...     print(before.diff(ledger.snapshot()))
        + job-1 allocates VCPU=6 of host0
        """
        return after.diff(self) if isinstance(after, Scenario) else plan_between(self, after)

    # --- usage ---

    @property
    def fleet(self) -> Fleet:
        """The arrays, as they are in force now, for programs that build on the search."""
        return self._fleet.as_of_now()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The sorted names of the hosts: the roots that are not pools."""
        fleet = self._fleet
        return tuple(
            name
            for tree, name in enumerate(fleet.hosts)
            if fleet.is_within(tree) and tree not in fleet.pools.trees
        )

    @property
    def pools(self) -> tuple[str, ...]:
        """The sorted names of the pools: the providers that other trees may allocate from."""
        fleet = self._fleet
        places = fleet.pools.providers.tolist()
        return tuple(sorted(fleet.names[p] for p in places if fleet.is_within(int(fleet.tree[p]))))

    @property
    def classes(self) -> tuple[str, ...]:
        """The resource classes of all inventories, in their usual order."""
        within = self._fleet.within
        names = (
            name
            for name, rows in self._fleet.classes.items()
            if within is None or bool((rows.tree == within).any())
        )
        return tuple(sorted(names, key=resource_class_order))

    def capacity(self, key: Resource | str) -> int:
        """Return the capacity of a resource over all providers.

        An inventory that uses the same resource of another provider of its tree (the CPUs of a
        cell, which are CPUs of the host) is a part of that one, and not counted again.
        """
        rows, counted = self._counted(key)
        return sum(rows.capacity[counted].tolist())

    def used(self, key: Resource | str) -> int:
        """Return the used amount of a resource over all providers, counted in the same way."""
        rows, counted = self._counted(key)
        return sum(rows.used[counted].tolist())

    def _counted(self, key: Resource | str) -> tuple[ClassRows, Booleans]:
        """Return the inventories of a resource, and which of them are not a part of another."""
        fleet = self._fleet
        rows = fleet.rows(resource(key).name)
        counted = fleet.counted(rows)
        return rows, counted if fleet.within is None else counted & (rows.tree == fleet.within)

    def free(self, key: Resource | str) -> int:
        """Return the sum of what each provider can allocate of a resource.

        That is the capacity minus the usage, bounded by what is left of the inventories that an
        allocation also uses: a device of which a part is allocated is not free. It is 0 for a
        disabled provider, and for one used above its capacity. Where several providers share one
        inventory, each counts all that is left of it.
        """
        fleet = self._fleet.as_of_now()
        rows = fleet.rows(resource(key).name)
        free = fleet.free(rows)
        return int(free.sum() if fleet.within is None else free[rows.tree == fleet.within].sum())

    def usage(self, *hosts: str) -> Usage:
        """Return the usage of each provider, as ``ledger.usage`` does.

        Cost: linear in the rows of these trees.

        :param hosts: the names of the roots of trees; none for all
        :raises NotFound: for a name that is not a root

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
            if (tree := fleet.tree_of_host(name)) is None:
                raise exceptions.NotFound("provider", name)
            trees.add(tree)
        return usage_of(columns_of(fleet, trees if hosts else None))

    def host_usage(
        self, *hosts: str, consumers: Iterable[str] | None = None
    ) -> tuple[HostUsage, ...]:
        """Return a line per host with its usage and consumers, in natural order.

        Each line has, for every class over all providers of the host, what is used and free, the
        rest of partly allocated devices, and the amounts of the consumers. Allocations from pools
        are in no line. Disabled capacity is not free.

        Cost: no statement; linear in the inventories and allocations of all hosts: some 80
        microseconds per host of eight devices and four consumers.

        :param hosts: only these, by name; none for all
        :param consumers: only the allocations of these, and only hosts where they have some
        :raises NotFound: for a name that is none of :attr:`hosts`
        :raises InvalidInput: for an invalid name of a consumer

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
        fleet = self._fleet.enabled_as_of_now()
        all_hosts = frozenset(self.hosts) if hosts else frozenset()
        for name in hosts:
            if name not in all_hosts:
                raise exceptions.NotFound("provider", name)
        names = None if consumers is None else frozenset(_consumer_names(consumers))
        selected = frozenset(hosts) if hosts else None
        return tuple(host_usage.host_usage(fleet, self._fleet.as_of_now(), selected, names))

    def report(
        self,
        mix: Gang | RequestLike | None = None,
        *,
        levels: Mapping[str, Collection[str]] = FrozenDict(),
        budget: int = DEFAULT_BUDGET,
    ) -> CapacityReport:
        """Return the capacity and usage of each class, and how much of it a mix cannot use.

        For the ledger, each host and each aggregate of levels: capacity, used, free, disabled, due
        to an allocation ratio alone, and the largest amount of one request. With a mix also how
        many of each request fit, what is stranded, and the fragmentation
        (:mod:`~resource_objects.search.capacity` defines these).

        Cost: some passes over the inventories, and :meth:`how_many` for each request of the mix;
        some 30 microseconds for each line of a host that is read.

        :param mix: the usual request; or several, as a
            :class:`~resource_objects.requests.gang.Gang` whose counts weigh them
        :param levels: the aggregates of each level, ``{"rack": ["r1", "r2"]}``
        :param budget: the maximum number of steps of the search for each request
        :raises InvalidInput: for an invalid mix, a level without aggregates, or a host in two of
            them
        """
        from resource_objects.search.capacity import CapacityReport
        from resource_objects.search.how_many import mix_of

        usual = None if mix is None else mix_of(mix)
        fits = {
            member.name: self.how_many(member.request, budget=budget)
            for member in (() if usual is None else usual.members)
        }

        def can_hold(host: str, name: str, amount: int) -> bool | None:
            try:
                request = Request({name: amount}, in_tree=host)
                return bool(self.candidates(request, limit=1, budget=budget))
            except exceptions.SearchLimitReached:
                return None

        return CapacityReport(self._fleet.as_of_now(), self._fleet, usual, fits, levels, can_hold)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise exceptions.FrozenValue(f"Snapshot.{name} cannot change")

    def __delattr__(self, name: str) -> NoReturn:
        raise exceptions.FrozenValue(f"Snapshot.{name} cannot change")

    def __repr__(self) -> str:
        fleet = self._fleet
        is_within = True if fleet.within is None else fleet.tree == fleet.within
        count = np.count_nonzero(np.broadcast_to(is_within, fleet.tree.shape))
        return f"<Snapshot: {len(self.hosts)} hosts, {count} providers>"


def _consumer_names(consumers: Iterable[str]) -> Iterator[str]:
    if isinstance(consumers, str) or not isinstance(consumers, Iterable):
        raise exceptions.InvalidInput("name", "consumers", consumers, "a list of names")
    return map(consumer_name, consumers)


def _positive(name: str, value: object) -> int:
    if type(value) is not int or value < 1:
        raise exceptions.InvalidInput("request", name, value, "an integer of 1 or more")
    return value
