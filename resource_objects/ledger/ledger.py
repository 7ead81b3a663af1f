"""The entry point of the library: :class:`Ledger` with all its methods, and :func:`connect`.

A ledger contains no rules: each method checks its arguments and forwards to one of the parts that
the constructor composes.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from resource_objects import exceptions, names, plugins
from resource_objects.backends.retries import RetryPolicy
from resource_objects.ledger import queries
from resource_objects.ledger.assign import Assigner
from resource_objects.ledger.claims import Claims
from resource_objects.ledger.context import LedgerContext, any_limit, claim_of, consumer_of
from resource_objects.ledger.definitions import Definitions, Parent, SyncResult
from resource_objects.ledger.demand import Claimable, IfGeneration, claim_options
from resource_objects.ledger.feed import Feed, Snapshots, checked_snapshot
from resource_objects.ledger.maintenance import DrainStatus, drain_status, write_disabling
from resource_objects.ledger.names import Names
from resource_objects.ledger.pools import Pools
from resource_objects.ledger.queries import NamesGiven, UseOverTime
from resource_objects.ledger.queue import ExpiredClaims, Queue
from resource_objects.ledger.server_groups import ServerGroups
from resource_objects.ledger.statistics import Statistics
from resource_objects.providers import Allocation, Backend, Claim, Consumer, Provider
from resource_objects.providers.arguments import Limited, ago, expiry, moment
from resource_objects.providers.audit import Audit
from resource_objects.providers.definition import changed_fields
from resource_objects.providers.disabled import FOREVER
from resource_objects.providers.listing import By, ListedProvider, ProviderFilter, Total
from resource_objects.providers.plan import Plan
from resource_objects.providers.reshape import Move, Reshape
from resource_objects.providers.usage import Usage
from resource_objects.providers.waiting import Waiter
from resource_objects.reasons import Reason
from resource_objects.requests import RequestLike
from resource_objects.resources import Amounts, AmountsLike, Inventories, InventoriesLike
from resource_objects.resources.traits import checked_traits

if TYPE_CHECKING:
    from resource_objects.search import Candidates, Snapshot
    from resource_objects.search.when import When

BACKEND_NAMESPACE = "resource_objects.backends"


class Ledger:
    """Providers, their inventories and the allocations of consumers, stored in a backend.

    ==============  ===============================================================================
    define          :meth:`sync`, :meth:`change`, :meth:`remove`
    allocate        :meth:`claim`, :meth:`claim_all`, :meth:`adjust`, :meth:`replace`,
                    :meth:`move`, :meth:`swap`, :meth:`attribute`, :meth:`release`,
                    :meth:`release_all`
    wait            ``claim(wait=...)``; :meth:`queue`, :meth:`is_satisfiable`,
                    :meth:`earliest_start`
    maintenance     :meth:`disable`, :meth:`enable`, :meth:`drain`
    expiry          :meth:`confirm`, :meth:`renew`, :meth:`expired`, :meth:`release_expired`
    read            :meth:`provider`, :meth:`providers`, :meth:`trees`, :meth:`inventories`,
                    :meth:`get_claim`, :meth:`assigned_amounts`, :meth:`consumers`, :meth:`usage`,
                    :meth:`totals`, :meth:`now`
    over time       :attr:`use_over_time`: ``between``
    search          :meth:`snapshot`, then ``candidates``
    plan            :meth:`diff`, :meth:`apply`, :meth:`reshape`, :meth:`audit`
    pools           :attr:`pools`: ``share``, ``unshare``, ``report``, ``list``
    names           :attr:`names`: ``classes``, ``traits`` and ``aggregates``, each with ``list``,
                    ``ensure``, ``rename``, ``remove``
    groups          :attr:`groups`: consumers to be placed on one host, or on different hosts:
                    ``ensure``, ``get``, ``list``, ``remove``
    history         :attr:`feed`: ``cursor``, ``changes``, ``is_fresh``, ``set_retention``
    actor           :attr:`actor`, :meth:`with_actor`
    statistics      :attr:`statistics`: ``put``, ``read``, ``forget``
    end             :meth:`close`, or a ``with`` statement
    ==============  ===============================================================================

    A method that allocates or releases returns a :class:`Claim`, one for several consumers a tuple
    of claims, one that writes definitions a :class:`SyncResult`. Each write is one transaction,
    carried out completely or not at all. Lists are iterators that read a page at a time.

    These arguments mean the same in every method that has them:

    - A *provider* is identified by name or uuid.
    - ``limit`` is the maximum number of results; ``after`` is the last result of the previous page.
    - ``generation`` is the version at which the caller read the provider or consumer; another
      version is refused with ``Stale``. None accepts every version.
    - ``operation`` is the id of a write (a uuid, generated if None). After a lost acknowledgement
      call again with the same id: the write happens once. An id belongs to one kind of write, one
      subject and request (its placement does not count); another use raises ``Conflict`` with the
      code ``OperationConflict``. The request
      is known as long as no other write changes the consumer; after that the recorded outcome is
      returned. :meth:`release_expired` and ``feed.set_retention`` have no id: a repeated call does
      the rest.
    - ``project``, ``user``, ``consumer_type`` and ``group`` describe the consumer, for lists and
      totals. ``group`` is its server group (:attr:`groups`) until its claim ends, on any host. A
      strict policy is checked in the same transaction, also against concurrent claims: four more
      statements.
    - ``expires_in`` and ``expires_at`` set the time after which :meth:`release_expired` may release
      the claim; neither: never. ``expires_in`` counts from the write, by the clock of the database.
    - ``if_generation``: True accepts a candidate only while the definitions of the search are
      unchanged; ``{provider: generation}`` names them. The definitions of the cells that a topology
      was found on must be unchanged in any case.
    - ``ignore_maintenance``: True allocates from disabled providers (:meth:`disable`) too. The
      change feed records that, with the actor, which the ledger must have.
    - ``limits``, ``{provider: limits}``, bounds the total use of a class by all consumers after the
      write, independent of the capacity. A limit applies where the write allocates more of the
      provider's own inventory, also through its cells and devices, so limits of the hosts of
      several candidates can be passed together. The limits of a search apply to its candidates,
      also in a fresh search, together with these; for single candidates taken from the result,
      repeat them.

    These errors mean the same in every method. ``NotFound``: a provider does not exist, or a
    consumer has no allocations. ``CapacityException``: an amount does not fit, exceeds a limit, or
    breaks the policy of a server group; the error names the consumers. ``Stale``: concurrent writes
    prevented this one, more often than :attr:`retries` allows. ``InvalidInput``: an argument has
    another type or form.
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
        self._context = context = LedgerContext(backend, retries, actor)
        self._assigner = assigner = Assigner(context)
        self._snapshots = snapshots = Snapshots(context) if snapshots is None else snapshots
        self._expired = expired = ExpiredClaims(context)
        self._queue = queue = Queue(context, snapshots, expired)
        self._claims = Claims(context, assigner, snapshots, queue)
        #: comparison and writes of definitions, for packages that build on a ledger
        self.definitions = definitions = Definitions(context)
        #: resources that several hosts share
        self.pools = Pools(context, definitions)
        #: names of resource classes, traits and aggregates
        self.names = Names(context)
        #: server groups: consumers on one host, or on different hosts
        self.groups = ServerGroups(context)
        #: the change feed
        self.feed = Feed(context)
        #: resources that consumers used between two moments
        self.use_over_time = UseOverTime(context)
        #: statistics that agents report in addition to inventories
        self.statistics = Statistics(context)

    @property
    def backend(self) -> Backend:
        """The backend that stores this ledger.

        :raises DatabaseError: after :meth:`close`
        """
        return self._context.backend

    @property
    def retries(self) -> RetryPolicy:
        """The policy for repeating a write after a concurrent change."""
        return self._context.retries

    @property
    def actor(self) -> str | None:
        """The actor of writes, as the change feed records it."""
        return self._context.actor

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
        """Close the ledger; one in memory is deleted. Closed, it refuses all but closing again."""
        self._context.close()
        self._snapshots.forget()

    def __reduce__(self) -> NoReturn:
        """Refuse a pickle and a copy: connections and locks belong to one process."""
        raise TypeError("a Ledger cannot be pickled or copied; call connect() in each process")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- definitions ---

    def sync(
        self, *roots: Provider, moves: Sequence[Move] = (), operation: str | None = None
    ) -> SyncResult:
        """Replace the stored trees by ``roots``.

        Providers and inventories that a tree lacks are removed; if one of them is used, the sync is
        refused with ``InUse``. Allocations are unchanged: a total may shrink below the used amount,
        and ``free`` is negative then.
        Cost: one read of these trees and one write; the number of statements is constant. While 100
        trees or more are written, the process collects garbage less often.

        ``moves`` move allocations to the inventories that count them from now on: a :meth:`reshape`
        whose result is written as trees, in the same write. A move that the trees do not require
        (any more) has no effect, so a sync with moves may be repeated. Cost: two more reads if a
        definition changes.

        :param moves: see :func:`~resource_objects.providers.reshape_plan.inventory_moves`; equal
            moves from one inventory count once
        :raises InvalidPlan: if an allocation would be lost or invented, has no destination, or
            totals contradict the moves
        :raises CapacityException: if a moved allocation does not fit
        :raises InvalidTree: if a root or provider occurs twice, or the parts of an inventory
            contradict each other, as two cells with one CPU, or two parts with one device
        :raises Stale: if a provider was read at an older generation
        :raises AlreadyExists: if a name or uuid belongs to another tree
        :raises InUse: if a provider or inventory to remove is used, with the consumers of devices;
            if a unit that is allocated by name would be allocated in another form: a dedicated CPU
            as a shared one, a device as one of another class or provider
        :raises Conflict: if a class would be counted both in the tree of a host and at its pool
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
        """Change one provider; arguments that are None, and its tree, stay as they are.

        Its allocations do not change.

        :param name: the new name
        :param parent: the new parent, in any tree; all providers below the provider move with it.
            None makes it a root
        :param inventories: all its inventories: :class:`Inventories`, or a value that these are
            made from
        :param traits: all its traits
        :param aggregates: all its aggregates; a missing one is created
        :raises NotFound: if the provider or the parent does not exist
        :raises AlreadyExists: if another provider has the new name
        :raises InUse: if an inventory to remove is used
        :raises InvalidTree: if the parent is below the provider, a share would lead nowhere or to
            another tree, or the tree would be too deep
        :raises Conflict: if a class would be counted both in its tree and at a pool of the tree
        :raises InvalidInput: for a trait that is neither standard nor custom
        """
        fields = changed_fields(name, inventories, traits, aggregates)
        return self.definitions.change(provider, fields, parent, generation, operation)

    def remove(self, provider: str, *, operation: str | None = None) -> SyncResult:
        """Remove a provider and all providers below it.

        :raises InUse: if one of them has allocations
        :raises InvalidTree: if a provider that remains shares an inventory of a removed one
        """
        return self.definitions.remove(provider, operation)

    # --- waiting ---

    def queue(self, *, limit: int | None = None, after: int | None = None) -> Iterator[Waiter]:
        """Yield the consumers that wait in a claim, in the order of arrival.

        An entry of a process that was killed is omitted once its lease has ended. Cost: two
        statements per page.

        :param after: only entries with a larger ``number``
        """
        return self._queue.waiting(limit, after)

    def is_satisfiable(self, candidates: Candidates) -> bool:
        """Return True if a search would have a result on a ledger without allocations.

        False means that the request does not fit even if every consumer releases. True also if the
        budget of the search is exhausted. Cost: one read of everything, or of the tree that the
        search was confined to, and a search.

        :param candidates: the result of a search, of which the request and the options count

        >>> import resource_objects as ro
        >>> with ro.connect("memory://") as ledger:
        ...     done = ledger.sync(ro.Provider("host0", "VCPU=8"))
        ...     big = ledger.claim("big", {"host0": "VCPU=8"})
        ...     for request in ("VCPU=4", "VCPU=9"):
        ...         candidates = ledger.snapshot().candidates(request)
        ...         print(bool(candidates), ledger.is_satisfiable(candidates))
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
        """Return when a request fits at the earliest, with the claims that end by then.

        The estimate assumes that claims are released when they expire (:meth:`release_expired`),
        and that none is made or renewed. Cost: a snapshot, one read of the claims that expire, and
        some searches.

        :param budget: the maximum number of steps of each search; None: as for ``candidates``
        :param snapshot: the snapshot to search in, such as that of a scenario; None: a new one
        :raises InvalidInput: for an invalid request, or a value that is no snapshot

        >>> import datetime, resource_objects as ro
        >>> end = datetime.datetime(2030, 1, 2, tzinfo=datetime.UTC)
        >>> with ro.connect("memory://") as ledger:
        ...     done = ledger.sync(ro.Provider("host0", "VCPU=8"))
        ...     claim = ledger.claim("job-1", {"host0": "VCPU=6"}, expires_at=end)
        ...     print(ledger.earliest_start("VCPU=2"))
        ...     print(ledger.earliest_start("VCPU=4"))
        ...     print(ledger.earliest_start("VCPU=9"))
        now
        2030-01-02 00:00:00+00:00, when job-1 ends 2030-01-02 00:00:00+00:00
        not by the end of claims
        host0: VCPU requested 9, free 8 of 8
        """
        snapshot = self.snapshot() if snapshot is None else snapshot
        ends = {
            claim.consumer: claim.expires_at
            for claim in self._expired.expired(FOREVER, None, None)
            if claim.expires_at is not None
        }
        options = {} if budget is None else {"budget": budget}
        searched = checked_snapshot(snapshot, "earliest_start")
        start = searched.when(request, ends, limits=limits, **options)
        return start if start.at is None else start.as_of(self.now())

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

        From now on no search returns the provider, and each claim of it that is committed later is
        refused (``ProviderDisabled``) unless it passes ``ignore_maintenance``. Allocations remain;
        they can be confirmed, renewed, released and moved away. A sync does not change the state,
        and a disabled provider that is removed and created again below the same host is still
        disabled. Of a disabled provider the reason and the end are replaced. The actor of the
        ledger is recorded. Cost: a read, and one write of the inventories concerned.

        :param provider: a host, a device (``host0/0000:81:00.0``: with its virtual functions) or a
            pool
        :param reason: text of one line
        :param until: the end of the state, by the clock of the ledger; None: until :meth:`enable`
        :returns: the provider after the write, as from :meth:`providers`
        :raises InvalidInput: for a reason of another form; for an end without time zone, or in the
            past

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
        end = None if until is None else moment("until", until)
        reason = names.label(reason, "reason")
        return write_disabling(self._context, "disable", provider, operation, reason, end)

    def enable(self, provider: str, *, operation: str | None = None) -> ListedProvider:
        """Enable a provider; for an enabled one this has no effect.

        Below a disabled host it is still not allocatable.

        :returns: the provider after the write, as from :meth:`providers`
        """
        return write_disabling(self._context, "enable", provider, operation)

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
        recorded reason does not change.

        :param reason: as for :meth:`disable`; None: the provider is disabled already
        :param until: as for :meth:`disable`
        :raises InvalidInput: without a reason, if the provider is enabled
        """
        if reason is not None:
            listed = self.disable(provider, reason=reason, until=until, operation=operation)
            return drain_status(self._context, listed)
        listed = self._context.listed(names.provider_key(provider))
        if listed.disabled is None:
            expected = f"a reason: {listed.name} is enabled"
            raise exceptions.InvalidInput("field", "reason", None, expected)
        if until is not None:
            raise exceptions.InvalidInput("field", "until", until, "a reason too")
        return drain_status(self._context, listed)

    # --- allocations ---

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
        """Allocate to a consumer that has no allocations.

        An amount that spans a tree (a NUMA topology, devices) is requested of the host. An assigned
        amount is allocated as it is. For another one the ledger chooses cells and devices that are
        free at that moment, together, and again after a lost race
        (:attr:`RetryPolicy.assignments`). A count of devices that is requested of their provider
        without units is allocated without reading a tree, and counts as the last units that are
        free there.

        With ``wait``, a claim that does not fit waits in the :meth:`queue`. It is tried only while
        no earlier entry waits for one of its classes that both could be allocated in the same tree:
        first come, first served. So a large request at the front delays smaller ones behind it, and
        claims that do not wait may overtake them all. Before each try the expired claims of the
        trees concerned are released, and candidates are searched again. A consumer that waits again
        for the same request retains its position. A request that no release could satisfy is
        refused at once, and at the front within seconds of the change that made it so. The entry is
        removed when the wait ends; if the process is killed, when its lease ends
        (:attr:`RetryPolicy.lease`).

        :param candidates: the result of a search (after a lost race the next candidate, then a
            fresh search, as often as :class:`RetryPolicy` allows); one candidate, or several of the
            caller's choice, of which the first that is still free is allocated; allocations, with
            their units; or ``{provider: amounts}``, for a caller that decides itself
        :param wait: the maximum time to wait; None: do not wait
        :raises WaitTimedOut: (a ``CapacityException``) after ``wait``, with the last refusal and
            the consumers ahead in the queue
        :raises NoCandidates: (a ``CapacityException``) if the search has no result, or after lost
            races a fresh one has none; with the reasons of each refused host
        :raises SearchLimitReached: if the search was cut short without a result
        :raises CapacityException: also if all that would fit is disabled, with the reason
        :raises InvalidInput: for ``ignore_maintenance`` without an actor; if limits are not a
            mapping, or below 0; if a count contradicts the topology; for a topology of a provider
            that is no host, or of two hosts; if units are not as many as the amount, or only a part
            of units that belong together (a physical function, and those split off it)
        :raises NotFound: if a provider, the server group, or a unit of a cell or device does not
            exist
        :raises AlreadyExists: if the consumer has allocations
        :raises Stale: if a definition that ``if_generation`` requires was changed
        :raises ForeignAmount: if an amount is assigned to units that the host does not have
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
        """Allocate to several consumers that have no allocations: to all of them, or to none.

        Each consumer gets the first of its candidates that is free in addition to those of the
        consumers before it, in the order of the mapping. If that fails, all choices of candidates
        are searched. There is no fresh search for candidates. The other arguments apply to each
        consumer. Cost: one write; if that is refused, one read of the trees of the candidates, and
        one more write for each host that fills up in between; a search of all choices takes at most
        a second.

        Amounts that span a tree and are not assigned are assigned last, in addition to all others;
        the trees of their hosts are read for that.

        :param candidates: ``{consumer: candidates}``, each as for :meth:`claim`
        :raises InvalidInput: if it is empty
        :raises NoCandidates: if a consumer has no candidates
        :raises CapacityException: if the claims do not fit together
        :raises SearchLimitReached: if the search of all choices takes too long
        :raises AlreadyExists: if a consumer has allocations
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
        """Change the allocations of a consumer by amounts; negative amounts are released.

        A consumer without allocations is created, one that has none afterwards is removed. Unit
        rules apply to all allocations of the consumer, unless it is an ``aggregate``, which stands
        for several.

        A topology is released assigned and negative, as :meth:`assigned_amounts` returns it. One
        that is allocated is assigned as by :meth:`claim`, with the allocations of the consumer:
        devices near its cells, and cells near its devices.

        :param changes: ``{provider: amounts}``, or allocations, which may name units
        :param ignore_maintenance, limits: for the amounts that grow
        :raises CapacityException: also if more is released than is allocated
        :raises NotFound: for a provider; as :meth:`claim`
        :raises Conflict: if a unit to release is not allocated to the consumer
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
        """Move allocations of the *unattributed* consumer of a host to another consumer.

        Use that the record of a host reports and that no consumer explains is allocated to the
        *unattributed* consumer of the host (``ComputeNode.bind``). This method moves all or a part
        of it to the actual consumer: it is never free in between, and it may exceed the capacity.
        The consumer is created if needed, and its other allocations remain.

        :param host: name of the host
        :param what: ``{provider: amounts}``, or allocations, which name the units of CPUs and
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
        """Replace all allocations of a consumer, which is created if needed; returns its claim.

        The claim retains its id, state and expiry, and each further argument that is None. On the
        host of the first candidate the consumer retains the devices, partitions, cells, CPUs and
        pool that it uses and that the new request allows.

        :param candidates: the new allocations, as for :meth:`claim`
        :param ignore_maintenance, limits: for the amounts that grow
        :param wait: as for :meth:`claim`
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
        """Replace the allocations of a consumer; another one may get the previous ones.

        ``source_consumer`` is created with the previous allocations, as in a migration: the source
        remains allocated until the migration ends. ``release(source_consumer)`` then confirms the
        migration; :meth:`swap` of the two consumers and ``release(source_consumer)`` revert it.
        Without it the previous allocations are released.

        An amount of a pool that both hosts use is counted once: it is allocated to the consumer,
        and ``source_consumer`` has the excess; a swap exchanges that too. Only a ledger that stores
        no requests (a remote Placement) counts it twice.

        :param candidates: the new allocations, as for :meth:`claim`
        :param source_consumer: the consumer to create, with the project, user and type of the
            consumer; it is in no server group
        :param source_consumer_type: another type for it, such as ``MIGRATION``
        :param source_consumer_id: the uuid of its claim; None: a new one
        :returns: the claim of the consumer after the write
        :raises AlreadyExists: if ``source_consumer`` has allocations
        :raises CapacityException: if the amounts do not fit; then nothing is moved
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
        """Exchange the allocations of two consumers, also on full hosts.

        Their requests are exchanged too; project, state and expiry are not.

        :returns: the claims of the first and of the second consumer after the write
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
        """Confirm a claim: it is in use, and does not expire.

        :param claim: the id of the claim; None: any claim of the consumer
        :raises Stale: also if the consumer has another claim
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
        """Set another expiry of a claim, later or earlier; its state does not change.

        :param expires_in, expires_at: one of them; :meth:`confirm` ends the expiry
        :param claim: the id of the claim; None: any claim of the consumer
        :raises Stale: also if the consumer has another claim
        """
        return self._claims.renew(consumer, expiry(expires_in, expires_at), claim, operation)

    def release(self, consumer: str, *, operation: str | None = None) -> Claim:
        """Release all allocations of a consumer; return the released claim."""
        return self._claims.release([consumer], operation)[0]

    def release_all(
        self, consumers: Iterable[str], *, operation: str | None = None
    ) -> tuple[Claim, ...]:
        """Release all allocations of several consumers; return their claims."""
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
        """Yield the claims that have expired and are not released, by consumer.

        Cost: a few statements per page.

        :param now: the time of comparison, with its time zone; None: the present one, by the clock
            of the database
        :param after: only consumers after this name
        :param reasons: only the consumers in these reasons of a refusal, such as ``error.reasons``:
            after :meth:`release_expired` the same claim may succeed
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
        """Release the claims that have expired; return them.

        A claim that is renewed, confirmed or changed in between is not released. Cost: a few
        statements per page; each page is one transaction. If a later page fails, the claims
        released before are returned, and the next call continues, or raises if it fails again. So
        call until nothing is returned; ``feed.changes`` records each release, also one whose
        acknowledgement was lost.

        :param now: as for :meth:`expired`
        :param tree: only claims with an allocation in the tree of this provider
        :param excluding: a consumer whose claim is not released, such as one that is changed next
        :param limit: the maximum number of claims to read
        :raises ResourceObjectsError: the error of the first page; then nothing is released
        """
        return self._expired.release(now, limit, tree, excluding)

    # --- reading ---

    def provider(self, name: str) -> Provider:
        """Return a provider with all providers below it, and the used amounts."""
        return self._adopted(queries.find_provider(self._context, name)[2])

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
        """Yield the providers that match all arguments, in the order of their creation.

        Those that one call created are in no particular order. Each is returned without its
        children (:meth:`trees` returns these). Cost: a few statements per page; a provider that is
        created, removed or changed between two pages may be missing.

        :param name: its name, or several
        :param uuid: its uuid, or several
        :param tree: the provider, or several, in whose tree it is
        :param aggregates: it is a member of each; of a set, of at least one
        :param forbidden_aggregates: it is a member of none of these
        :param required: it has all of these traits itself
        :param forbidden: it has none of these traits
        :param any_of: it has at least one of each of these sets of traits
        :param room: amounts that are free there, by capacity and unit rules
        :param over_capacity: it uses more of a class than its capacity
        :param reported_before: the last report of its owner or agent was before this time; a
            provider without reports is omitted
        :param after: only those created after this one
        :raises InvalidInput: for a negative ``room``
        :raises NotFound: if ``after`` does not exist
        """
        member_of = [
            [name_or_set] if isinstance(name_or_set, str) else name_or_set
            for name_or_set in queries.list_of("aggregates", aggregates)
        ]
        reported = None if reported_before is None else moment("reported_before", reported_before)
        criteria = ProviderFilter(
            names=queries.any_name(name, names.provider_name),
            uuids=queries.any_name(uuid, names.uuid_text),
            trees=queries.any_name(tree, names.provider_key),
            aggregates=tuple(
                queries.each_checked(members, names.aggregate_name) for members in member_of
            ),
            forbidden_aggregates=queries.each_checked(forbidden_aggregates, names.aggregate_name),
            required=checked_traits(required),
            forbidden=checked_traits(forbidden),
            any_of=tuple(checked_traits(traits) for traits in queries.list_of("any_of", any_of)),
            room=queries.counts_by_class(room),
            over_capacity=over_capacity,
            reported_before=reported,
        )
        return self._context.providers(criteria, limit, after)

    def trees(
        self, *providers: str, limit: int | None = None, after: str | None = None
    ) -> Iterator[Provider]:
        """Yield the roots, each with its tree and the used amounts, in the order of their creation.

        Each tree shows one moment. Cost: a few statements per page.

        :param providers: only their trees, in this order, each once; excludes ``limit`` and
            ``after``
        :param after: only roots created after this one
        """
        return map(self._adopted, queries.trees_of(self._context, providers, limit, after))

    def inventories(self, name: str) -> Inventories:
        """Return the inventories of a provider, with the used amounts.

        Those of a host include the inventories that span its tree: a NUMA topology of all its
        cells, with the allocated CPUs. The result is a copy: consuming from it does not change the
        ledger. Cost: one read of the tree.

        :raises InvalidInventory: if the stored cells contradict each other

        >>> import resource_objects as ro
        >>> ledger = ro.connect("memory://")
        >>> host = ro.Provider("host0", "PCPU=8,DISK_GB=100")
        >>> cells = [ro.HostCell(n, dedicated=range(4 * n, 4 * n + 4)) for n in (0, 1)]
        >>> _ = host.add_parts("NUMA_TOPOLOGY", ro.NUMATopologyInventory(cells))
        >>> _ = ledger.sync(host)
        >>> print(ledger.inventories("host0").fit("NUMA_TOPOLOGY=1:dedicated=2,DISK_GB=10"))
        DISK_GB=10,PCPU=2,NUMA_TOPOLOGY=1:dedicated=2:on=0:cpus=0-1
        """
        columns, root, provider = queries.find_provider(self._context, name, allocations=True)
        inventories = dict(provider.inventories.by_name())
        inventories |= queries.inventories_of_tree(columns, root.uuid or "", provider.uuid or "")
        return Inventories(inventories)

    def get_claim(self, consumer: str) -> Claim:
        """Return the claim of a consumer, with its allocations."""
        return claim_of(self._context.held_by(names.consumer_name(consumer))[0])

    def assigned_amounts(self, consumer: str) -> Mapping[str, Amounts]:
        """Return the allocations of a consumer in a form that can be claimed again.

        That is ``{provider name: amounts}``, read-only, as :meth:`claim`, :meth:`replace` and
        :meth:`adjust` accept it. A topology is an assigned amount of its host: the cell and the CPU
        of each vCPU; so are devices, by request. It is the amount of the request of the claim, with
        the allocated units: of more devices than requested, the first that meet it. Further amounts
        of cells are counts of each cell, to be claimed by :meth:`adjust`. If the units of the
        request cannot be determined (it was changed by counts), or the CPUs belong to another cell
        now (after a firmware update), all of it is returned as counts of the cells.
        :meth:`get_claim` names other units. Cost: two reads.
        """
        (record,) = self._context.held_by(names.consumer_name(consumer))
        return MappingProxyType(self._assigner.assigned_amounts(record))

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
        """Yield the consumers that match all arguments, with their allocations, by name.

        Cost: a few statements per page.

        :param name, project, user, consumer_type, group: its value, or several; None among several
            stands for a consumer without one
        :param older_than: its claim is older
        :param younger_than: its claim is younger
        :param state: the state of its claim, ``held`` or ``confirmed``
        :param tree: it has an allocation in the tree of this provider
        :param provider: it has an allocation at this provider
        :param after: only those after this name
        """
        older = None if older_than is None else ago("older_than", older_than, self.now())
        younger = None if younger_than is None else ago("younger_than", younger_than, self.now())
        criteria = dataclasses.replace(
            queries.consumers_with(project, user, consumer_type, group, tree, provider),
            names=queries.any_name(name, names.consumer_name),
            states=queries.any_name(state, queries.stored_state),
            created_before=older,
            created_after=younger,
        )
        last = None if after is None else names.consumer_name(after)
        pages = self._context.consumer_pages(criteria, any_limit(limit), last)
        return (consumer_of(record) for page in pages for record in page)

    def usage(self, tree: str | None = None, *, over_capacity: bool = False) -> Usage:
        """Return the used amounts with their consumers, of all providers or of one tree.

        Cost: one read of it all; :meth:`totals` does not read it.

        :param tree: a provider of the tree; None: all
        :param over_capacity: only amounts beyond a capacity, after a shrink; for all providers at
            the cost of a few statements per page of such providers
        """
        return queries.usage(self._context, tree, over_capacity)

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
        """Yield the used amounts, summed by class within each group; groups by name.

        The total of consumers without a group, such as without a project, is last. Cost: a few
        statements; the database sums everything that matches, independent of ``limit`` and
        ``after``.

        :param by: ``resource_class`` (each class is a group), ``provider``, ``project``, ``user``,
            ``consumer_type`` or ``group`` (the server group)
        :param project, user, consumer_type, group: only consumers that match, as in
            :meth:`consumers`
        :param tree, provider: only amounts that are used there
        :param limit: the maximum number of groups
        :param after: only groups after this one
        """
        criteria = queries.consumers_with(project, user, consumer_type, group, tree, provider)
        return queries.totals(self._context, by, criteria, limit, after)

    def now(self) -> datetime.datetime:
        """Return the time of the ledger, by which claims expire: that of the database."""
        return self.backend.now()

    def snapshot(self, at: str | None = None) -> Snapshot:
        """Return an immutable snapshot of the ledger, to search in.

        It contains everything that was committed before the call, by any thread, process or
        machine. The first one reads everything. A later one is made from the previous one: the same
        again if nothing was written, at the cost of one small statement; else claims are applied,
        and trees with other changes read, in one transaction. ``snapshot.refreshed`` describes how.
        Previous snapshots do not change. Threads may call this concurrently.

        Everything is read again after a change that names neither providers nor consumers (a class,
        trait or aggregate was created, renamed or removed), if the feed was pruned beyond the last
        snapshot, if more than 64 trees and more than a quarter of all changed, and after more than
        10,000 changes, if these are more than there are providers.

        On Galera a node may lag behind another one's acknowledgements. ``wsrep_sync_wait=1`` in the
        sessions of the program makes each read transaction wait until its node has applied
        everything that was committed in the cluster when it began. Without it a snapshot shows the
        state of the node; claims are correct in any case. A replica of PostgreSQL lags likewise.

        :param at: a provider: then only that one, the providers below it, and its pools; the whole
            tree, and those of the pools, are read each time
        """
        return self._snapshots.snapshot(at)

    def _adopted(self, root: Provider) -> Provider:
        for provider in root.walk():
            provider._context = self
        return root

    # --- planning ---

    def diff(self, *roots: Provider, moves: Sequence[Move] = ()) -> Plan:
        """Return the changes that :meth:`sync` of these trees would make now; write nothing.

        The plan is valid for the definitions that were read: :meth:`apply` refuses it if they have
        changed. Cost: one read of these trees. Errors are those of :meth:`sync` that need no write.
        """
        return self.definitions.diff(roots, moves)

    def apply(
        self, plan: Plan, *, dry_run: bool = False, operation: str | None = None
    ) -> tuple[Claim, ...]:
        """Carry out a plan; return the claims of its orders, in their order.

        Cost: one write; a dry run, and a plan with definitions, also read the trees concerned, and
        a plan of snapshots the consumers and the end of the feed.

        :param dry_run: only check whether it could be carried out now, and return nothing
        :raises InvalidPlan: if it contradicts itself, as an edited file may: shares across trees,
            providers below themselves; or if it was made of snapshots of another ledger
        :raises Stale: if a provider was changed since the plan was made, or a consumer whose
            allocations or generation the plan states
        :raises AlreadyExists, InUse, Conflict: as :meth:`sync`
        :raises AlreadyExists: if a consumer to claim for has allocations
        :raises NotFound: if a consumer to release has none
        """
        return self.definitions.apply(plan, dry_run, operation)

    def reshape(
        self, reshape: Reshape, *, dry_run: bool = False, operation: str | None = None
    ) -> Plan:
        """Move inventories and allocations between providers; return the plan that was carried out.

        Every consumer has the same amounts before and after; the moves are described in
        :mod:`resource_objects.providers.reshape`. The plan of a repeated operation is empty. Cost:
        one read of the trees, one of the consumers concerned, one write; the number of statements
        is constant.

        A claim that commits between the read and the write remains. A source that shrinks may then
        exceed its capacity, as after any shrink; ``usage(over_capacity=True)`` lists it.

        :param dry_run: only return the plan, after a check whether it could be carried out now
        :raises InvalidPlan: if a part of an allocation or inventory would be lost or invented, has
            no destination, or fits nowhere
        :raises NotFound: if a provider is neither stored nor created
        :raises AlreadyExists: if a provider to create exists
        :raises CapacityException: if a moved allocation does not fit
        :raises InvalidTree: if the providers would form no tree, or a share would lead nowhere
        """
        return self.definitions.reshape(reshape, dry_run, operation)

    def audit(
        self,
        *,
        now: datetime.datetime | None = None,
        older_than: datetime.timedelta | None = None,
    ) -> Audit:
        """Return the findings about the ledger: states that should not occur. Nothing is changed.

        Cost: one read of everything, of the expired claims a page at a time, and of the claims that
        span several trees.

        :param now: the time of comparison, with its time zone; None: the present one, by the clock
            of the database
        :param older_than: the maximum age of a report of a pool's owner; None: any
        """
        return self.definitions.audit(now, older_than)


# --- opening a ledger -----------------------------------------------------------------------------


def connect(
    url: str = "memory://",
    *,
    retries: RetryPolicy | None = None,
    actor: str | None = None,
    session: Any = None,
) -> Ledger:
    """Open the ledger of a URL.

    ====================================  ========================================================
    ``memory://``                         a new one in this process, lost when closed
    ``sqlite:///lab.db``                  a file (four slashes for an absolute path), upgraded when
                                          opened, created by the first write
    ``postgresql+psycopg://host/name``    a database of a server; ``resource-objects db upgrade``
                                          creates and upgrades it
    ``mysql+pymysql://host/name``         the same on MariaDB, Galera or MySQL
    ``placement+https://host/placement``  a remote Placement (extra ``[placement]``), which stores
                                          less; with a ``session``, ``placement://`` finds it
    ====================================  ========================================================

    Plug-ins add further ones (namespace ``resource_objects.backends``).

    :param retries: the policy for repeating a write after a concurrent change
    :param actor: the actor of writes, for the change feed
    :param session: a session or adapter of keystoneauth1, for requests to a remote Placement
    :raises InvalidInput: if it is no URL, or not valid for its backend
    :raises NotFound: if no backend of this name is installed
    :raises DatabaseError: if it cannot be opened, was made by a newer library, or needs ``db
        upgrade``
    """
    kind = backend_for(url)
    backend = kind.open(url) if session is None else kind.open_with(url, session)
    return Ledger(backend, retries=retries, actor=actor)


def backend_for(url: str) -> type[Backend]:
    """Return the backend class that serves a URL.

    :raises InvalidInput: if it is no URL
    :raises NotFound: if no backend of that name is installed

    >>> backend_for("memory://").__name__
    'MemoryBackend'
    """
    if not isinstance(url, str) or "://" not in url:
        raise exceptions.InvalidInput("URL", "ledger URL", url, "a URL such as sqlite:///lab.db")
    name = url.partition("://")[0].partition("+")[0]
    if name not in plugins.names(BACKEND_NAMESPACE):
        raise exceptions.NotFound("backend", name, plugins.offered(BACKEND_NAMESPACE, name))
    backend: type[Backend] = plugins.load(BACKEND_NAMESPACE, name)
    return backend
