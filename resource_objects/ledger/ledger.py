"""The front door: :class:`Ledger`, all its methods, and :func:`connect`, which opens one.

A ledger does nothing by itself. It is composed of parts, each of which has one thing to do and is
given what it needs by its constructor:

====================  =============================================================================
``Store``             the backend, operations, retries; what is kept, as objects
``Reader``            providers, consumers and figures, as they are kept
``Assigner``          assigns placed amounts and named units, on fresh rows
``Snapshots``         the last picture of everything, kept fresh by the change feed
``Claims``            taking and giving back
``ExpiredClaims``     claims whose time is over
``Queue``             claims that wait, first come, first served
``Definitions``       which providers there are, and what they have
``Plans``             diff, apply, reshape, audit
``Service``           which providers are out of service
``UseOverTime``       who used how much of what between two moments
``Pools``             :attr:`Ledger.pools`
``Names``             :attr:`Ledger.names`
``ServerGroups``      :attr:`Ledger.groups`
``Feed``              :attr:`Ledger.feed`
``Statistics``        :attr:`Ledger.statistics`
====================  =============================================================================
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from resource_objects import exceptions, names, plugins
from resource_objects.ledger.assign import Assigner
from resource_objects.ledger.claims import Claims, IfGeneration, claim_options
from resource_objects.ledger.context import RetryPolicy, Store, claim_of
from resource_objects.ledger.definitions import Definitions, Parent, SyncResult
from resource_objects.ledger.demand import Claimable
from resource_objects.ledger.expired import ExpiredClaims
from resource_objects.ledger.feed import Feed, Snapshots, checked_snapshot
from resource_objects.ledger.maintenance import DrainStatus, Maintenance
from resource_objects.ledger.names import Names
from resource_objects.ledger.plans import Plans
from resource_objects.ledger.pools import Pools
from resource_objects.ledger.queue import Queue
from resource_objects.ledger.reading import NamesGiven, Reader, consumer_filter, provider_filter
from resource_objects.ledger.server_groups import ServerGroups
from resource_objects.ledger.statistics import Statistics
from resource_objects.ledger.use_over_time import UseOverTime
from resource_objects.providers import Allocation, Backend, Claim, Consumer, Provider
from resource_objects.providers.arguments import Limited, expiry
from resource_objects.providers.audit import Audit
from resource_objects.providers.definition import changed_fields
from resource_objects.providers.disabled import FOREVER
from resource_objects.providers.listing import By, ConsumerFilter, ListedProvider, Total
from resource_objects.providers.plan import Plan
from resource_objects.providers.reshape import Move, Reshape
from resource_objects.providers.usage import Usage
from resource_objects.providers.waiting import Waiter
from resource_objects.reasons import Reason
from resource_objects.requests import RequestLike
from resource_objects.resources import Amounts, AmountsLike, Inventories, InventoriesLike

if TYPE_CHECKING:
    from resource_objects.search import Candidates, Snapshot
    from resource_objects.search.when import When

BACKEND_NAMESPACE = "resource_objects.backends"


class Ledger:
    """Providers, what they have, and who uses it, kept in a backend.

    ==============  ===============================================================================
    declare         :meth:`sync`, :meth:`change`, :meth:`remove`
    take, give      :meth:`claim`, :meth:`claim_all`, :meth:`adjust`, :meth:`replace`,
                    :meth:`move`, :meth:`swap`, :meth:`attribute`, :meth:`release`,
                    :meth:`release_all`
    wait            ``claim(wait=...)``; :meth:`queue`, :meth:`is_satisfiable`
    in service      :meth:`disable`, :meth:`enable`, :meth:`drain`
    keep            :meth:`confirm`, :meth:`renew`, :meth:`expired`, :meth:`release_expired`
    read            :meth:`provider`, :meth:`providers`, :meth:`trees`, :meth:`inventories`,
                    :meth:`get_claim`, :meth:`assigned_amounts`, :meth:`consumers`, :meth:`usage`,
                    :meth:`totals`, :meth:`now`
    over time       :attr:`use_over_time`: ``between``
    search          :meth:`snapshot`, then ``candidates``
    plan            :meth:`diff`, :meth:`apply`, :meth:`reshape`, :meth:`audit`
    pools           :attr:`pools`: ``share``, ``unshare``, ``report``, ``list``
    names           :attr:`names`: ``classes``, ``traits`` and ``aggregates``, each with ``list``,
                    ``ensure``, ``rename``, ``remove``
    groups          :attr:`groups`: consumers that are to be on one host, or on different ones:
                    ``ensure``, ``get``, ``list``, ``remove``
    history         :attr:`feed`: ``cursor``, ``changes``, ``is_fresh``, ``set_retention``
    who did it      :attr:`actor`, :meth:`with_actor`
    statistics      :attr:`statistics`: ``put``, ``read``, ``forget``
    end             :meth:`close`, or use it in a ``with`` statement
    ==============  ===============================================================================

    A verb that takes or gives back returns a :class:`Claim`, one for several consumers a tuple of
    claims, one that declares a :class:`SyncResult`. Lists are iterators, read a page at a time;
    ``limit`` bounds them, ``after`` (the name of the last one that was seen) goes on. Providers are
    given by name or uuid. What is there is read in two forms: one thing by its name as an object
    with all that belongs to it (:meth:`provider` with those below it, :meth:`get_claim`), many in a
    list as rows that say where each stands (:meth:`providers`: its parent, its root); what both
    say has the same name in both.

    A writing method takes an ``operation`` id (a uuid, made up if not given): after a lost
    acknowledgement call again with the same id, and it happens once. An id is of one operation: of
    another method, of another subject, or of a claim or replacement that asked for something else
    (another request, or other counts; where it went does not count) it is refused with
    ``OperationConflict``. What was asked is known as long as nobody else wrote the consumer; after
    that the recorded outcome is returned. Those take none that just do the rest when they are
    called again: :meth:`release_expired` and ``feed.set_retention``.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        retries: RetryPolicy | None = None,
        actor: str | None = None,
        snapshots: Snapshots | None = None,
    ) -> None:
        """:param snapshots: those of another ledger on the same backend; None: its own"""
        self._store = store = Store(backend, retries, actor)
        self._reader = reader = Reader(store)
        self._assigner = assigner = Assigner(store)
        self._snapshots = snapshots = Snapshots(store) if snapshots is None else snapshots
        self._expired = expired = ExpiredClaims(store)
        self._queue = queue = Queue(store, snapshots, expired)
        self._claims = Claims(store, assigner, snapshots, queue)
        #: comparison and writes of definitions, for packages that build on a ledger
        self.definitions = definitions = Definitions(store, reader)
        self._plans = Plans(store, definitions)
        self._maintenance = Maintenance(store, reader)
        #: resources that several hosts share
        self.pools = Pools(definitions, reader)
        #: names of resource classes, traits and aggregates
        self.names = Names(store)
        #: server groups: consumers on one host, or on different hosts
        self.groups = ServerGroups(store)
        #: the change feed
        self.feed = Feed(store)
        #: resources that consumers used between two moments
        self.use_over_time = UseOverTime(store)
        #: statistics that agents report in addition to inventories
        self.statistics = Statistics(store)

    @property
    def backend(self) -> Backend:
        """The backend that stores this ledger.

        :raises DatabaseError: after :meth:`close`
        """
        return self._store.backend

    @property
    def retries(self) -> RetryPolicy:
        """The policy for repeating a write after a concurrent change."""
        return self._store.retries

    @property
    def actor(self) -> str | None:
        """The actor of writes, as the change feed records it."""
        return self._store.actor

    def with_actor(self, actor: str | None = None, *, retries: RetryPolicy | None = None) -> Ledger:
        """Return this ledger for another actor, whose name the change feed records.

        It uses the same backend and the same snapshot; only an object is created. Close this
        ledger, not the returned one.

        :param actor: None: the same
        :param retries: the policy for retries and waits; None: the same. An exception from its
            ``sleep`` ends a wait without an allocation

        >>> import resource_objects as ro
        >>> with ro.connect("memory://", actor="service") as ledger:
        ...     done = ledger.sync(ro.Provider("host0", "VCPU=8"))
        ...     print(ledger.with_actor("ann").disable("host0", reason="fan").disabled.by)
        ann
        """
        return Ledger(
            self.backend,
            retries=retries or self.retries,
            actor=actor or self.actor,
            snapshots=self._snapshots,
        )

    def close(self) -> None:
        """Give back every connection. Closing twice is allowed; any other use is refused."""
        self._store.close()
        self._snapshots.forget()

    def __reduce__(self) -> NoReturn:
        """Refuse a pickle and a copy: connections and locks belong to one process."""
        raise TypeError("a Ledger cannot be pickled or copied; call connect() in each process")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- declaring ---

    def sync(
        self, *roots: Provider, moves: Sequence[Move] = (), operation: str | None = None
    ) -> SyncResult:
        """Make the kept trees look like ``roots``, all in one transaction.

        What a tree does not have any more goes, unless it is used. What consumers hold is not
        touched: shrinking below use is allowed and shows as a negative ``free``. Cost: one read
        of these trees and one write; the number of statements does not grow with theirs.

        Where something is counted elsewhere from now on, ``moves`` say where allocations go: a
        :meth:`reshape` whose outcome is stated as trees, in the same write. A move that the trees
        do not make (any more) is none, so it may be said again and again. Cost: if anything
        changes, two more reads.

        :param moves: see :func:`~resource_objects.providers.reshape_plan.inventory_moves`; several
            from one place, named alike, are one
        :raises InvalidPlan: if an allocation would be lost or invented, it is not said where one
            goes, or totals are not as the moves say
        :raises CapacityException: if what is to go somewhere does not fit there
        :raises InvalidTree: if a root or a provider is named twice, or what providers keep in parts
            contradicts itself, as two cells with one CPU would, or two with one device
        :raises Stale: if a provider was read at an older generation
        :raises AlreadyExists: if a name or uuid belongs to another tree
        :raises InUse: if a provider that would go has allocations; of devices, with who holds
            which; if an inventory that would go has allocations, or a unit that is held by name
            would be given out in another way: a dedicated CPU as a shared one, a device as one of
            another class or provider
        :raises Conflict: if a class would be counted in a host's tree that a pool gives to it
        """
        return self.definitions.sync(roots, operation, moves)

    def change(
        self,
        provider: str,
        *,
        name: str | None = None,
        parent: Parent = ...,
        inventories: InventoriesLike | None = None,
        traits: Iterable[str] | None = None,
        aggregates: Iterable[str] | None = None,
        generation: int | None = None,
        operation: str | None = None,
    ) -> SyncResult:
        """Change one provider, in one transaction; what is not given, and its tree, stay.

        What is held of it stays held.

        :param provider: name or uuid
        :param name: another name
        :param parent: the provider below which it goes, with all below it, in whichever tree; None
            makes it a root
        :param inventories: all that it has: :class:`Inventories`, or what these are made from
        :param traits: all its traits
        :param aggregates: all that it is in; one that is not there is made
        :param generation: the one it was read at; None demands none
        :raises NotFound: if it, or the parent, is not there
        :raises AlreadyExists: if the new name is another provider's
        :raises InUse: if an inventory that would go is used
        :raises InvalidTree: if the parent is below it, a share would lead nowhere or cross trees,
            or the tree would be too deep
        :raises Conflict: if a pool gives a class to its tree that it would count
        :raises InvalidInput: for a trait that is neither standard nor custom
        :raises Stale: if it was changed since it was read at ``generation``
        """
        fields = changed_fields(name, inventories, traits, aggregates)
        return self.definitions.change(provider, fields, parent, generation, operation)

    def remove(self, provider: str, *, operation: str | None = None) -> SyncResult:
        """Remove a provider (by name or uuid) and all below it, in one transaction.

        :raises NotFound: if it is not there
        :raises InUse: if it or one below has allocations
        :raises InvalidTree: if what stays of its tree has shares of it
        """
        return self.definitions.remove(provider, operation)

    # --- waiting ---

    def queue(self, *, limit: int | None = None, after: int | None = None) -> Iterator[Waiter]:
        """Yield the consumers that wait in a claim, in the order of arrival.

        A process that was killed is left out once its lease is over. Cost: two statements per page.

        :param limit: the maximum number of entries
        :param after: only entries with a larger ``number``
        """
        return self._queue.waiting(limit, after)

    def is_satisfiable(self, candidates: Candidates) -> bool:
        """Return True if a search would have a result on a ledger without allocations.

        What tells busy from refused, where a search found nothing: False means that it cannot be
        had whoever gives back. True also where the budget of the search ran out. Cost: one read of
        everything, or of the tree that it was confined to, and a search.

        :param candidates: what a search returned, of which the request and the options count
        :raises InvalidInput: if it is nothing that a search returned

        >>> import resource_objects as ro
        >>> with ro.connect("memory://") as ledger:
        ...     done = ledger.sync(ro.Provider("host0", "VCPU=8"))
        ...     big = ledger.claim("big", {"host0": "VCPU=8"})
        ...     for asked in ("VCPU=4", "VCPU=9"):
        ...         found = ledger.snapshot().candidates(asked)
        ...         print(bool(found), ledger.is_satisfiable(found))
        False True
        False False
        """
        return self._queue.is_satisfiable(candidates)

    def earliest_start(
        self,
        request: RequestLike,
        *,
        budget: int | None = None,
        limits: Limited = None,
        snapshot: Snapshot | None = None,
    ) -> When:
        """Return when a request would fit if all claims end when they expire, and nothing comes.

        The earliest such moment, with the claims whose end makes it so: an estimate. A claim that
        has expired ends now. The answer assumes that each claim is released when it expires
        (:meth:`release_expired`), and that no other claim is made or renewed. Cost: a snapshot, the
        claims that expire read once, and some searches.

        :param budget: at most so many steps of each search; None: as for ``candidates``
        :param limits: as for :meth:`claim`
        :param snapshot: which picture is asked, such as that of a scenario; None: one of now
        :raises InvalidInput: for a request that cannot be, or what is no snapshot

        >>> import datetime, resource_objects as ro
        >>> end = datetime.datetime(2030, 1, 2, tzinfo=datetime.UTC)
        >>> with ro.connect("memory://") as ledger:
        ...     done = ledger.sync(ro.Provider("host0", "VCPU=8"))
        ...     one = ledger.claim("job-1", {"host0": "VCPU=6"}, expires_at=end)
        ...     print(ledger.earliest_start("VCPU=2"))
        ...     print(ledger.earliest_start("VCPU=4"))
        ...     print(ledger.earliest_start("VCPU=9"))
        now
        2030-01-02 00:00:00+00:00, when job-1 ends 2030-01-02 00:00:00+00:00
        not by the end of claims
        host0: VCPU asked 9, free 8 of 8
        """
        ends = {
            one.name: one.expires_at
            for one in self._reader.consumers(ConsumerFilter(expires_before=FOREVER), None, None)
            if one.expires_at is not None
        }
        more = {} if budget is None else {"budget": budget}
        asked = (
            self.snapshot() if snapshot is None else checked_snapshot(snapshot, "earliest_start")
        )
        found = asked.when(request, ends, limits=limits, **more)
        return found if found.at is None else found.as_of(self.now())

    # --- maintenance ---

    def disable(
        self,
        provider: str,
        *,
        reason: str,
        until: datetime.datetime | None = None,
        operation: str | None = None,
    ) -> ListedProvider:
        """Disable a host, a device or any other provider, with all providers below it.

        From now on no search finds the provider, and every claim of it that is committed after this
        returns is refused (``ProviderDisabled``) unless the claim passes ``ignore_maintenance``.
        Existing allocations stay; they can be confirmed, renewed, released and moved away. A sync
        does not change the state. A disabled provider that is removed and created again below the
        same host is still disabled. Of a provider that is disabled already the reason and the end
        are replaced. The actor of the ledger is recorded. Cost: a read, and one write of the
        inventories of the tree that are concerned.

        :param provider: name or uuid of a host, of a device (``host0/0000:81:00.0``: with its
            virtual functions) or of a pool
        :param reason: text of one line
        :param until: the end of the state, by the clock of the ledger; None: until :meth:`enable`
        :returns: the provider after the write, as from :meth:`providers`
        :raises NotFound: if there is no such provider
        :raises InvalidInput: for a reason that is no line of text; if the end has no time zone, or
            is in the past

        >>> import resource_objects as ro
        >>> with ro.connect("memory://", actor="admin") as ledger:
        ...     done = ledger.sync(ro.Provider("host2", "VCPU=8"))
        ...     print(ledger.disable("host2", reason="fan").disabled.reason)
        ...     print(len(ledger.snapshot().candidates("VCPU=1")))
        ...     print(ledger.enable("host2").disabled)
        fan
        0
        None
        """
        return self._maintenance.disable(provider, reason, until, operation)

    def enable(self, provider: str, *, operation: str | None = None) -> ListedProvider:
        """Enable a provider; one that is enabled already stays so.

        Below a disabled host it is still not allocatable.

        :param provider: name or uuid
        :returns: the provider after the write, as from :meth:`providers`
        :raises NotFound: if there is no such provider
        """
        return self._maintenance.enable(provider, operation)

    def drain(
        self,
        provider: str,
        *,
        reason: str | None = None,
        until: datetime.datetime | None = None,
        operation: str | None = None,
    ) -> DrainStatus:
        """Disable a provider, and return the consumers with allocations there or below it.

        No consumer is moved. To repeat the call until no consumer is left, pass no reason: the
        recorded reason stays.

        :param provider: name or uuid
        :param reason: as for :meth:`disable`; None: the provider is disabled already
        :param until: as for :meth:`disable`
        :raises InvalidInput: without a reason, if the provider is enabled
        :raises NotFound: if there is no such provider
        """
        return self._maintenance.drain(provider, reason, until, operation)

    # --- taking and giving back ---

    def claim(
        self,
        consumer: str,
        candidates: Claimable,
        *,
        project: str | None = None,
        user: str | None = None,
        consumer_type: str | None = None,
        group: str | None = None,
        expires_in: datetime.timedelta | None = None,
        expires_at: datetime.datetime | None = None,
        if_generation: IfGeneration = False,
        ignore_maintenance: bool = False,
        limits: Limited = None,
        wait: datetime.timedelta | None = None,
        operation: str | None = None,
    ) -> Claim:
        """Take what a search found for a consumer that holds nothing yet; all or nothing.

        :param candidates: candidates (the next one on a lost race, then a fresh search, as long as
            the ledger's :class:`RetryPolicy` says); one candidate, or several of one's own choice,
            of which the first that is still free is taken; allocations, with their units; or
            ``{provider: amounts}``, providers by name or uuid, by whoever decides elsewhere. An
            amount that lies over a tree (a NUMA topology, devices) is asked of the host: assigned
            it is taken as it is; else the ledger puts it somewhere on what is free at that moment,
            cells and devices together, again if somebody is faster
            (:attr:`RetryPolicy.assignments`). A count of devices without their units, taken of
            their provider, names none: no tree is read for it, and it counts as the last ones that
            are free there
        :param project, user, consumer_type: of the consumer, for lists and totals
        :param group: the server group (:attr:`groups`) that it is a member of until it is gone,
            wherever it moves. If its policy is strict, that is judged in the same transaction:
            members that others claim at the same moment count. Cost: four statements more
        :param expires_in, expires_at: when whoever cleans up may release it
            (:meth:`release_expired`); neither: never. ``expires_in`` counts from when it is
            written, by the clock of the ledger's database
        :param if_generation: True to take a candidate only if the definitions it was found at are
            as they were, or ``{provider: generation}``; those of the cells that a topology was
            found on have to be in any case
        :param ignore_maintenance: True to take also of what is out of service (:meth:`disable`).
            The change feed tells that it was, and the actor that the ledger was opened with did it
        :param limits: ``{provider: limits}``, providers by name or uuid: the most that may be used
            of a class there in all, by everybody, once this is taken; a total that a scheduler
            computed for this claim, whatever the capacity. What is not named has no such bound. It
            binds what the claim takes of the provider's own inventory, also through its cells and
            devices; a limit of what the claim does not touch refuses nothing, so that those of
            several candidates' hosts can be sent together. What a search under limits returned is
            claimed under these too, and searched again under both; of single candidates taken out
            of that they have to be said again
        :param wait: for how long it waits if others hold what it asks for, or wait for it already;
            None: it does not. Who waits stands in a queue (:meth:`queue`) and tries only while
            nobody is before it who came earlier and waits for one of the same classes, where both
            could be given it in the same tree: first come, first served. A large request at the
            front so holds back smaller ones behind it, and who does not wait may overtake them all.
            Before each try the expired claims of the trees that it waits for are released, and
            candidates are searched afresh. The same consumer that waits for the same
            again keeps its place. What could not be had whoever gave back is refused at once, and
            at the front within seconds of the change that made it so. The
            place goes with the end of the wait, whatever ends it; if the process is killed, with
            its lease (:attr:`RetryPolicy.lease`)
        :raises WaitTimedOut: (a ``CapacityException``) if the time is over, with the last refusal
            and who stood before it
        :raises NoCandidates: (a ``CapacityException``) if the search found nothing, or after lost
            races a fresh one does not; with the reasons of every refused host
        :raises SearchLimitReached: if the search was cut short before it found anything
        :raises CapacityException: (a ``CapacityException``) if all that would do is out of service,
            whatever others hold, with why; if it does not fit (any more), or more would be used
            than a limit allows, with who holds what; (a ``CapacityException``) if its other
            members, who are named, are on that host or on another one, against its policy
        :raises InvalidInput: if it overrides that and the ledger has no actor; if limits are no
            mapping of providers; for a limit below 0; if a count does not agree with the topology
            beside it, or a topology is asked of what is no host, or of two, or if units are not as
            many as the amount, or only some of those that go together (a physical function, and
            those split off it)
        :raises NotFound: if there is no such server group; if a provider named directly, or in the
            limits, is not there; for a unit that a cell does not have, or a device of another
            provider
        :raises AlreadyExists: if the consumer holds something already
        :raises Stale: if a definition was changed that was to be unchanged
        :raises ForeignAmount: if it is assigned to what the host does not have
        """
        return self._claims.claim(
            consumer,
            candidates,
            claim_options(
                project=project,
                user=user,
                consumer_type=consumer_type,
                group=group,
                expires_in=expires_in,
                expires_at=expires_at,
                if_generation=if_generation,
                limits=limits,
                ignore_maintenance=ignore_maintenance,
                wait=wait,
                operation=operation,
            ),
        )

    def claim_all(
        self,
        candidates: Mapping[str, Claimable],
        *,
        project: str | None = None,
        user: str | None = None,
        consumer_type: str | None = None,
        group: str | None = None,
        expires_in: datetime.timedelta | None = None,
        expires_at: datetime.datetime | None = None,
        if_generation: IfGeneration = False,
        ignore_maintenance: bool = False,
        limits: Limited = None,
        operation: str | None = None,
    ) -> tuple[Claim, ...]:
        """Take for several consumers that hold nothing yet, all of them or none.

        Each takes the first of its candidates that is free beside what those before it take, in
        the order of the mapping; where somebody finds none that way, all choices of candidates are
        searched, so who could go elsewhere makes room. The candidates are not
        searched again. The other arguments are of all of them, as for :meth:`claim`. Cost: one
        write; if that is refused, one read of the trees that the candidates are of, and one more
        write for each place that fills up meanwhile; a search of all choices at most a second.

        Amounts that lie over a tree and are not assigned are put somewhere after that, beside what
        all others take; for these the trees of their hosts are read first.

        :param candidates: ``{consumer: what was found}``, each as for :meth:`claim`
        :raises InvalidInput: if it is empty
        :raises NoCandidates: if nothing was found for one of them
        :raises CapacityException: if they do not fit together, with who holds what
        :raises SearchLimitReached: if it takes too long to find out whether they do
        :raises AlreadyExists: if one of them holds something already
        """
        return self._claims.claim_all(
            candidates,
            claim_options(
                project=project,
                user=user,
                consumer_type=consumer_type,
                group=group,
                expires_in=expires_in,
                expires_at=expires_at,
                if_generation=if_generation,
                limits=limits,
                ignore_maintenance=ignore_maintenance,
                operation=operation,
            ),
        )

    def adjust(
        self,
        consumer: str,
        changes: Mapping[str, AmountsLike] | Sequence[Allocation],
        *,
        aggregate: bool = False,
        generation: int | None = None,
        ignore_maintenance: bool = False,
        limits: Limited = None,
        operation: str | None = None,
    ) -> Claim:
        """Change what a consumer holds by ``{provider name: amounts}``; negative gives back.

        All or nothing. A consumer that held nothing is made, one that holds nothing afterwards is
        forgotten. What others hold is never touched. Unit rules bind all that the consumer will
        hold, unless it is an ``aggregate``, which stands for many.

        A topology is given back assigned and negative, as :meth:`assigned_amounts` returns it; one
        that is taken is put somewhere as by :meth:`claim`, beside what the consumer holds: devices
        near the cells it has, and cells near its devices.

        :param changes: by provider, or allocations, which may say units
        :param generation: the one the consumer was read at; None demands none
        :param ignore_maintenance: as for :meth:`claim`; giving back needs none
        :param limits: as for :meth:`claim`; they bind what grows, never what is given back
        :raises CapacityException: if it does not fit, or gives back more than the consumer holds
        :raises NotFound: if a provider is not there; as :meth:`claim`
        :raises Stale: if the consumer is not at ``generation`` any more
        :raises Conflict: if a unit is given back that it does not hold
        :raises InvalidInput: as :meth:`claim`, or for a second topology
        """
        return self._claims.adjust(
            consumer,
            changes,
            aggregate,
            claim_options(
                generation=generation,
                limits=limits,
                ignore_maintenance=ignore_maintenance,
                operation=operation,
            ),
        )

    def attribute(
        self,
        host: str,
        consumer: str,
        what: Mapping[str, AmountsLike] | Sequence[Allocation] | None = None,
        *,
        project: str | None = None,
        user: str | None = None,
        consumer_type: str | None = None,
        operation: str | None = None,
    ) -> Claim:
        """Move allocations of the *unattributed* consumer of a host to another consumer, or none.

        Use that the record of a host reports and that no consumer explains is allocated to the
        *unattributed* consumer of the host (``ComputeNode.bind``). This method moves all or a part
        of it to the actual consumer in one transaction: it is never free in between, and it may
        exceed the capacity. The consumer is created if needed, and keeps its other allocations.

        :param host: name of the host
        :param what: ``{provider name: amounts}``, or allocations, which name the units of CPUs and
            devices; None: everything unattributed
        :returns: the claim of the consumer after the write
        :raises NotFound: if nothing is unattributed there
        :raises CapacityException: if more is named than is unattributed
        :raises Conflict: if a unit is named that is not unattributed
        :raises InvalidInput: as :meth:`claim`; or for some CPUs of a cell without naming any

        >>> import resource_objects as ro
        >>> with ro.connect("memory://") as ledger:
        ...     row = {"hypervisor_hostname": "host0", "vcpus": 8, "vcpus_used": 6}
        ...     saved = ro.ComputeNode.from_row(row).bind(ledger).save()
        ...     print(ledger.attribute("host0", "vm-1", {"host0": "VCPU=4"}))
        ...     print(ledger.get_claim("host0/unattributed"))
        vm-1 holds VCPU=4 of host0
        host0/unattributed holds VCPU=2 of host0
        """
        options = claim_options(
            project=project, user=user, consumer_type=consumer_type, operation=operation
        )
        return self._claims.attribute(host, consumer, what, options)

    def replace(
        self,
        consumer: str,
        candidates: Claimable,
        *,
        project: str | None = None,
        user: str | None = None,
        consumer_type: str | None = None,
        group: str | None = None,
        if_generation: IfGeneration = False,
        generation: int | None = None,
        ignore_maintenance: bool = False,
        limits: Limited = None,
        wait: datetime.timedelta | None = None,
        operation: str | None = None,
    ) -> Claim:
        """Let a consumer hold this and nothing else; all or nothing. It is made if need be.

        Its claim keeps its id, state and expiry; of the rest, what is not given stays. Of the host
        of the first candidate it keeps the devices, partitions, cells and CPUs that it uses and
        that the new request allows, and the pool.

        :param candidates: what it shall hold, as for :meth:`claim`
        :param generation: the one the consumer was read at; None demands none
        :param ignore_maintenance: as for :meth:`claim`; what it holds already needs none
        :param limits: as for :meth:`claim`; they bind where more is used than before
        :raises CapacityException: if it does not fit, with who holds what
        :raises Stale: if the consumer is not at ``generation`` any more
        """
        return self._claims.replace(
            consumer,
            candidates,
            claim_options(
                project=project,
                user=user,
                consumer_type=consumer_type,
                group=group,
                generation=generation,
                if_generation=if_generation,
                limits=limits,
                ignore_maintenance=ignore_maintenance,
                wait=wait,
                operation=operation,
            ),
        )

    def move(
        self,
        consumer: str,
        candidates: Claimable,
        *,
        source_consumer: str | None = None,
        source_consumer_type: str | None = None,
        source_consumer_id: str | None = None,
        generation: int | None = None,
        if_generation: IfGeneration = False,
        ignore_maintenance: bool = False,
        limits: Limited = None,
        operation: str | None = None,
    ) -> Claim:
        """Let a consumer hold what was found instead of what it holds, in one transaction.

        With ``source_consumer``, that consumer is created and gets the previous allocations of the
        consumer, as in a migration: the source stays allocated until the migration ends.
        ``release(source_consumer)`` then confirms the migration; :meth:`swap` of the two consumers
        and ``release(source_consumer)`` revert it.

        What both places use of a pool is counted once: the consumer holds it, ``source_consumer``
        only what goes beyond that, and a swap exchanges it too. Only a ledger that stores no
        requests (a remote Placement) counts it twice.

        :param candidates: where to, as for :meth:`claim`
        :param source_consumer: who is to hold what the consumer held; it gets its project, user and
            type. It is in no server group: the consumer itself is, where it goes
        :param source_consumer_type: another type for it, such as ``MIGRATION``
        :param source_consumer_id: the uuid of its claim; None: one is made up
        :param generation: the one the consumer was read at; None demands none
        :param ignore_maintenance: as for :meth:`claim`, of where it goes
        :param limits: as for :meth:`claim`, of where it goes
        :returns: what the consumer holds now
        :raises NotFound: if it holds nothing
        :raises AlreadyExists: if ``source_consumer`` holds something already
        :raises CapacityException: if it does not fit, with who holds what; nothing moved then
        :raises Stale: if others write the consumer again and again, or it is not at ``generation``
            any more
        """
        return self._claims.move(
            consumer,
            candidates,
            source_consumer,
            source_consumer_type,
            source_consumer_id,
            claim_options(
                generation=generation,
                if_generation=if_generation,
                limits=limits,
                ignore_maintenance=ignore_maintenance,
                operation=operation,
            ),
        )

    def swap(self, consumer: str, other: str, *, operation: str | None = None) -> tuple[Claim, ...]:
        """Exchange the allocations of two consumers in one transaction, also on full hosts.

        Their requests are exchanged too; project, state and expiry stay.

        :returns: the claims of the first and of the second consumer after the write
        :raises NotFound: if one of them has no allocation
        :raises Stale: if concurrent writes change them more often than the retries allow
        """
        return self._claims.swap(consumer, other, operation)

    def confirm(
        self,
        consumer: str,
        *,
        claim: str | None = None,
        generation: int | None = None,
        operation: str | None = None,
    ) -> Claim:
        """Confirm a claim: it is in use, and expires no more.

        :param claim: the id of the claim that is meant; None: whichever the consumer has
        :param generation: the one the consumer was read at; None demands none
        :raises NotFound: if the consumer holds nothing (any more)
        :raises Stale: if it has another claim than the one that is meant, or is not at
            ``generation`` any more
        """
        return self._claims.confirm(consumer, claim, generation, operation)

    def renew(
        self,
        consumer: str,
        *,
        expires_in: datetime.timedelta | None = None,
        expires_at: datetime.datetime | None = None,
        claim: str | None = None,
        operation: str | None = None,
    ) -> Claim:
        """Give a claim another expiry, later or sooner; its state stays.

        :param expires_in, expires_at: one of them (a claim that expires no more: :meth:`confirm`)
        :param claim: the id of the claim that is meant; None: whichever the consumer has
        :raises NotFound: if the consumer holds nothing (any more)
        :raises Stale: if it has another claim than the one that is meant
        """
        return self._claims.renew(consumer, expiry(expires_in, expires_at), claim, operation)

    def release(self, consumer: str, *, operation: str | None = None) -> Claim:
        """Give back all that a consumer holds; return what it held.

        :raises NotFound: if it holds nothing
        """
        return self._claims.release([consumer], operation)[0]

    def release_all(
        self, consumers: Iterable[str], *, operation: str | None = None
    ) -> tuple[Claim, ...]:
        """Release all allocations of several consumers in one transaction; return their claims.

        :raises NotFound: if one has no allocation; then nothing is released
        """
        if isinstance(consumers, str) or not isinstance(consumers, Iterable):
            raise exceptions.InvalidInput("field", "consumers", consumers, "a list of names")
        return self._claims.release(list(consumers), operation)

    def expired(
        self,
        now: datetime.datetime | None = None,
        *,
        limit: int | None = None,
        after: str | None = None,
        reasons: Iterable[Reason] | None = None,
    ) -> Iterator[Claim]:
        """Yield the claims whose time is over and that are still held, by consumer.

        Cost: a few statements per page.

        :param now: the moment to judge by, with its time zone; None: this one, by the clock of the
            ledger's database
        :param limit: at most so many
        :param after: only those of consumers after this name
        :param reasons: only the consumers of these reasons of a refusal, such as ``error.reasons``:
            after :meth:`release_expired` the same claim may succeed
        :raises InvalidInput: if one of them is no reason
        """
        return self._expired.expired(now, limit, after, reasons)

    def release_expired(
        self,
        now: datetime.datetime | None = None,
        *,
        tree: str | None = None,
        excluding: str | None = None,
        limit: int | None = None,
    ) -> tuple[Claim, ...]:
        """Release the claims whose time is over; return what was released.

        One that is renewed, confirmed or otherwise changed meanwhile stays. Cost: a few statements
        per page; each page is one transaction. If a page fails after others are done, what these
        released is returned, and the rest is still there: the next call goes on with it, and
        raises if it fails again. So call until nothing is returned; ``feed.changes`` tells every
        release, also one whose acknowledgement was lost.

        :param now: the moment to judge by, with its time zone; None: this one, by the clock of the
            ledger's database
        :param tree: only claims with an allocation in the tree of this provider (name or uuid)
        :param excluding: a consumer whose claim stays, such as one that is changed next
        :param limit: look at so many at most
        :raises ResourceObjectsError: whatever the first page fails for; nothing is released then
        """
        return self._expired.release(now, limit, tree, excluding)

    # --- reading ---

    def provider(self, name: str) -> Provider:
        """Return a provider (by name or uuid) with all below it, and what is used.

        :raises NotFound: if there is none
        """
        return self._adopted(self._reader.provider(name))

    def providers(
        self,
        *,
        name: NamesGiven = None,
        uuid: NamesGiven = None,
        tree: NamesGiven = None,
        aggregates: Iterable[str | Iterable[str]] = (),
        forbidden_aggregates: Iterable[str] = (),
        required: Iterable[str] = (),
        forbidden: Iterable[str] = (),
        any_of: Iterable[Iterable[str]] = (),
        room: AmountsLike | None = None,
        over_capacity: bool = False,
        reported_before: datetime.datetime | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Iterator[ListedProvider]:
        """Yield the providers that match all that is given, in the order they were made.

        Those that one call made are in no order among themselves. Each comes alone, without
        those below it (:meth:`trees` gives these). Cost: a few statements per page; who is made,
        removed or changed between two pages may be in it or not.

        :param name: its name is this, or one of these
        :param uuid: the same for its uuid
        :param tree: it is in the tree of this provider, or of one of these (names or uuids)
        :param aggregates: it is a member of each; where a set is given, of at least one of the set
        :param forbidden_aggregates: it is a member of none of these
        :param required: it has all of these traits, itself
        :param forbidden: it has none of these
        :param any_of: it has at least one of each of these sets
        :param room: amounts that it has free by itself, unit rules kept
        :param over_capacity: it uses more of something than its capacity
        :param reported_before: its owner or agent reported last before this moment, and is perhaps
            dead; one that never reported is not in it
        :param limit: at most so many
        :param after: only those made after this one (name or uuid)
        :raises InvalidInput: if ``room`` is less than nothing
        :raises NotFound: if ``after`` is not there
        """
        wanted = provider_filter(
            name=name,
            uuid=uuid,
            tree=tree,
            aggregates=aggregates,
            forbidden_aggregates=forbidden_aggregates,
            required=required,
            forbidden=forbidden,
            any_of=any_of,
            room=room,
            over_capacity=over_capacity,
            reported_before=reported_before,
        )
        return self._reader.providers(wanted, limit, after)

    def trees(
        self, *given: str, limit: int | None = None, after: str | None = None
    ) -> Iterator[Provider]:
        """Yield the roots, each with its tree, and what is used, in the order they were made.

        Each tree is of one moment. Cost: a few statements per page.

        :param given: only the trees of these providers (names or uuids), in this order, each once;
            then there is no ``limit`` and no ``after``
        :param limit: at most so many
        :param after: only the trees of roots made after this one (name or uuid)
        :raises NotFound: if one given is not there
        """
        return map(self._adopted, self._reader.trees(given, limit, after))

    def inventories(self, name: str) -> Inventories:
        """Return what a provider (by name or uuid) has, and what of it is used.

        That of a host is all that is counted at the host itself, and what lies over its tree: a
        NUMA topology over all its cells, with the CPUs that are taken. That of another provider is
        its own. It is a copy: what is consumed of it is not taken in the ledger. Cost: one read of
        the tree.

        :raises NotFound: if there is none
        :raises InvalidInventory: if what is kept of cells does not go together

        >>> import resource_objects as ro
        >>> ledger = ro.connect("memory://")
        >>> host = ro.Provider("host0", "PCPU=8,DISK_GB=100")
        >>> cells = [ro.HostCell(n, dedicated=range(4 * n, 4 * n + 4)) for n in (0, 1)]
        >>> _ = host.add_parts("NUMA_TOPOLOGY", ro.NUMATopologyInventory(cells))
        >>> _ = ledger.sync(host)
        >>> print(ledger.inventories("host0").fit("NUMA_TOPOLOGY=1:dedicated=2,DISK_GB=10"))
        DISK_GB=10,PCPU=2,NUMA_TOPOLOGY=1:dedicated=2:on=0:cpus=0-1
        """
        return self._reader.inventories(name)

    def get_claim(self, consumer: str) -> Claim:
        """Return the claim of a consumer, with its allocations.

        :raises NotFound: if the consumer has no allocation
        """
        return claim_of(self._store.held(names.consumer_name(consumer)))

    def assigned_amounts(self, consumer: str) -> Mapping[str, Amounts]:
        """Return what a consumer holds and where, as it can be claimed again.

        That is ``{provider name: amounts}``, read-only, as :meth:`claim`, :meth:`replace` and
        :meth:`adjust` take it.

        A topology is an assigned amount of its host: which cell, which CPU for each vCPU; so are
        devices, by request. It is the amount of the request that the claim was made for, with the
        units that are held: of more devices than it asked for, the first that meet it. What is
        held of cells in addition is a count of each cell, and is claimed again by :meth:`adjust`.
        If nobody can tell which units belong to the request (it was changed by counts since), or
        the CPUs held are of another cell now (firmware numbered anew), all of it is counts of the
        cells. :meth:`get_claim` names other units. Cost: two reads.

        :raises NotFound: if the consumer holds nothing
        """
        kept = self._store.held(names.consumer_name(consumer))
        return MappingProxyType(self._assigner.assigned_amounts(kept))

    def consumers(
        self,
        *,
        name: NamesGiven = None,
        project: NamesGiven = None,
        user: NamesGiven = None,
        consumer_type: NamesGiven = None,
        group: NamesGiven = None,
        older_than: datetime.timedelta | None = None,
        younger_than: datetime.timedelta | None = None,
        state: NamesGiven = None,
        tree: str | None = None,
        provider: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Iterator[Consumer]:
        """Yield the consumers that match all that is given, with what they hold, by name.

        Cost: a few statements per page.

        :param name: its name is this, or one of these
        :param project: the same for its project; None among several stands for not given
        :param user: the same for its user
        :param consumer_type: the same for its type
        :param group: the same for its server group
        :param older_than: it took what it holds longer ago than this
        :param younger_than: it took it less long ago
        :param state: its claim is ``held`` or ``confirmed``
        :param tree: it holds something in the tree of this provider (name or uuid)
        :param provider: it holds something at this provider (name or uuid)
        :param limit: at most so many
        :param after: only those after this name
        """
        wanted = consumer_filter(
            self._reader.now,
            name=name,
            state=state,
            older_than=older_than,
            younger_than=younger_than,
            project=project,
            user=user,
            consumer_type=consumer_type,
            group=group,
            tree=tree,
            provider=provider,
        )
        return self._reader.consumers(wanted, limit, after)

    def usage(self, tree: str | None = None, *, over_capacity: bool = False) -> Usage:
        """Return what is used and by whom, everywhere or in the tree of one provider.

        Cost: one read of it all; :meth:`totals` does not read it.

        :param over_capacity: only what is used beyond its capacity, after a shrink. Everywhere,
            that costs a few statements per page of over-full providers; the others are not read
        :raises NotFound: if the provider is not there
        """
        return self._reader.usage(tree, over_capacity)

    def totals(
        self,
        by: str = By.RESOURCE_CLASS,
        *,
        project: NamesGiven = None,
        user: NamesGiven = None,
        consumer_type: NamesGiven = None,
        group: NamesGiven = None,
        tree: str | None = None,
        provider: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Iterator[Total]:
        """Yield what consumers use, summed by class within each group; groups by name.

        What is of no group, such as no project, comes last. Cost: a few statements; the database
        sums all that the filter wants, whatever ``limit`` and ``after`` leave of it.

        :param by: ``resource_class`` (each class is a group), ``provider``, ``project``, ``user``,
            ``consumer_type`` or ``group`` (the server group)
        :param project: only what consumers of this project use, or of one of these; the rest as
            in :meth:`consumers`, but of ``tree`` and ``provider`` only what is used there
        :param limit: the totals of at most so many groups
        :param after: only those of groups after this one
        """
        wanted = consumer_filter(
            self._reader.now,
            project=project,
            user=user,
            consumer_type=consumer_type,
            group=group,
            tree=tree,
            provider=provider,
        )
        return self._reader.totals(by, wanted, limit, after)

    def now(self) -> datetime.datetime:
        """Return the time of the ledger, by which claims are made and expire: the database's."""
        return self._reader.now()

    def snapshot(self, at: str | None = None) -> Snapshot:
        """Return an immutable picture of the ledger, to search in.

        It shows everything that was committed before the call, by whichever thread, process or
        machine. The first one reads everything. It is kept, and the next is made of it: if nothing
        was written meanwhile it is the same one again, at the cost of one small statement; else the
        trees that were touched are read, in one transaction, and put in the place of what was
        there. ``snapshot.refreshed`` says how a snapshot came to be. Those given out before do not
        change. Any number of threads may call this at once.

        Everything is read again after a change that names no provider (a class, trait or aggregate
        was made, renamed or removed), when the feed was pruned beyond the last snapshot, and when
        more than a quarter of the trees were touched.

        On Galera a node may lag behind what another one has acknowledged. It needs
        ``wsrep_sync_wait=1`` for the program's sessions to show that too: each reading transaction
        then waits until its node has applied what was committed in the cluster when it began, also
        the one that finds nothing new. Without it a snapshot shows what the node has; a claim is
        right all the same. A replica of PostgreSQL lags likewise.

        :param at: a provider (by name or uuid): then only that one, what is below it, and the pools
            that give to it; the whole tree, and those of the pools, are read each time
        :raises NotFound: if ``at`` is not there
        :raises DatabaseError: if the ledger is closed
        """
        return self._snapshots.snapshot(at)

    def _adopted(self, root: Provider) -> Provider:
        """Return a tree that was read, each provider of which knows its ledger."""
        for provider in root.walk():
            provider._context = self
        return root

    # --- planning ---

    def diff(self, *roots: Provider, moves: Sequence[Move] = ()) -> Plan:
        """Return the changes that :meth:`sync` of these trees would make now; write nothing.

        The plan is valid for the definitions that were read: :meth:`apply` refuses it if they
        changed since. Cost: one read of these trees.

        Errors are those of :meth:`sync`, as far as they show without writing.
        """
        return self._plans.diff(roots, moves)

    def apply(
        self, plan: Plan, *, dry_run: bool = False, operation: str | None = None
    ) -> tuple[Claim, ...]:
        """Carry out a plan, in one transaction; return the claims of its orders, in their order.

        Cost: one write; a dry run, and a plan with definitions, also read the trees concerned, and
        one of pictures who holds what, and where the feed is.

        :param dry_run: only look whether it could be carried out now, and return nothing
        :raises InvalidPlan: if it says what cannot be, as a file may that somebody edited: shares
            across trees or of themselves, providers below themselves, changes that do not lead to
            the definitions beside them; or if it was made of pictures of another ledger
        :raises Stale: if a provider was changed since the plan was made; if a consumer was, of whom
            the plan says what it held, or at which generation it was
        :raises CapacityException: if what a consumer is to hold does not fit
        :raises AlreadyExists, InUse, Conflict: as :meth:`sync`
        :raises AlreadyExists, NotFound: if one to claim holds something, or one to release
            nothing
        """
        return self._plans.apply(plan, dry_run, operation)

    def reshape(
        self, reshape: Reshape, *, dry_run: bool = False, operation: str | None = None
    ) -> Plan:
        """Move inventories and allocations between providers, in one transaction.

        Every consumer has the same amounts before and after; the moves are described in
        :mod:`resource_objects.providers.reshape`. The plan that was carried out is returned, an
        empty one for an operation that was done before. Cost: one read of the trees, one of the
        consumers concerned, one write; the number of statements is constant.

        A claim that commits between the read and the write stays. A source that shrinks may then
        be above its capacity, as after any shrink; ``usage(over_capacity=True)`` lists it.

        :param dry_run: only work out the plan, and look whether it could be carried out now
        :raises InvalidPlan: if an allocation or some of an inventory would be lost or invented, it
            is not said where one goes, or one fits nowhere
        :raises NotFound: if a provider is neither kept nor created
        :raises AlreadyExists: if one to create is there already
        :raises CapacityException: if what is to go somewhere does not fit there
        :raises InvalidTree: if the providers would form no tree any more, or a share lead nowhere
        :raises Stale: if somebody was faster, again and again
        """
        return self._plans.reshape(reshape, dry_run, operation)

    def audit(
        self,
        *,
        now: datetime.datetime | None = None,
        older_than: datetime.timedelta | None = None,
    ) -> Audit:
        """Return what is not as it should be. Nothing is changed.

        Cost: one read of everything, of the expired claims a page at a time, and of the claims
        that are spread over several trees.

        :param now: the moment to judge by, with its time zone; None: this one, by the clock of the
            ledger's database
        :param older_than: how long ago the owner of a pool may have reported; None: for ever
        :raises InvalidInput: if these are no moment and no age
        """
        return self._plans.audit(now, older_than)


# --- opening one ----------------------------------------------------------------------------------


def connect(
    url: str = "memory://",
    *,
    retries: RetryPolicy | None = None,
    actor: str | None = None,
    session: Any = None,
) -> Ledger:
    """Open the ledger that ``url`` names.

    ====================================  ========================================================
    ``memory://``                         a new one in this process, gone when closed
    ``sqlite:///lab.db``                  a file (four slashes for an absolute path), upgraded by
                                          opening it; the first write creates it
    ``postgresql+psycopg://host/name``    a server's database; ``resource-objects db upgrade`` makes
                                          and upgrades it
    ``mysql+pymysql://host/name``         the same on MariaDB, Galera or MySQL
    ``placement+https://host/placement``  a remote Placement (extra ``[placement]``), which keeps
                                          less; with a ``session``, ``placement://`` finds it
    ====================================  ========================================================

    More come from plug-ins (namespace ``resource_objects.backends``).

    :param retries: how often a write is tried again after somebody else was faster
    :param actor: who writes, as the change feed shall tell it
    :param session: a session or adapter of keystoneauth1, by which a remote Placement is asked
    :raises InvalidURL: if it is no URL, or not one of its backend's
    :raises NotFound: if no backend of its name is installed
    :raises DatabaseError: if it cannot be opened; nothing is left behind; if a newer library made
        it; if it needs ``db upgrade``
    """
    kind = backend_for(url)
    opened = kind.open(url) if session is None else kind.open_with(url, session)
    return Ledger(opened, retries=retries, actor=actor)


def backend_for(url: str) -> type[Backend]:
    """Return the backend class that serves a URL.

    :raises InvalidURL: if it is no URL
    :raises NotFound: if no backend of that name is installed

    >>> backend_for("memory://").__name__
    'MemoryBackend'
    """
    if not isinstance(url, str) or "://" not in url:
        raise exceptions.InvalidURL("ledger URL", url, "a URL such as sqlite:///lab.db")
    name = url.partition("://")[0].partition("+")[0]
    if name not in plugins.names(BACKEND_NAMESPACE):
        raise exceptions.NotFound("backend", name, plugins.offered(BACKEND_NAMESPACE, name))
    backend: type[Backend] = plugins.load(BACKEND_NAMESPACE, name)
    return backend
