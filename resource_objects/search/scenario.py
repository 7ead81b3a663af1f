"""The scenario: a fork of a snapshot in which changes can be tried.

Each change makes the next fleet from the last one. Its columns of figures are copied if the last
one is part of a snapshot (copy on write); the other columns are shared. So the base snapshot never
changes, and earlier snapshots of the scenario stay valid. An undo makes the opposite change, which
is exact because all figures are integers.

Allocations are settled by :mod:`~resource_objects.store.decide`, as in every ledger.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import types
import uuid as uuids
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar, cast

from resource_objects import exceptions
from resource_objects.fields import FrozenDict
from resource_objects.names import consumer_name, label, provider_key
from resource_objects.providers import Allocation, Provider
from resource_objects.providers.arguments import Limited, limits, moment, of_uuids, tighter
from resource_objects.providers.columns import Columns, find, stored_definitions
from resource_objects.providers.definition import (
    changed_fields,
    compare_tree,
    diff,
    edited,
    merge_changes,
    tree_of,
)
from resource_objects.providers.disabled import Disabled, DisableOrder, ServiceState
from resource_objects.providers.dry_run import in_place
from resource_objects.providers.feed import Cursor
from resource_objects.providers.orders import (
    UNLIMITED,
    Change,
    ConsumerOrder,
    ConsumerRecord,
    Key,
    StoredRequest,
    Use,
    UseLimits,
)
from resource_objects.providers.plan import Plan, diff_rows, holdings
from resource_objects.requests import Request, RequestLike
from resource_objects.resources import Amount, Amounts, InventoriesLike, resource
from resource_objects.search import fleet_io
from resource_objects.search.candidate import MOST_PARTS, Candidate, Chosen
from resource_objects.search.candidates import Candidates, Claimable, choices
from resource_objects.search.fleet import Fleet
from resource_objects.search.fleet_io import columns_of
from resource_objects.search.order import Options
from resource_objects.search.settlement import (
    NO_MOMENT,
    columns_with,
    settle,
    with_columns,
    with_definitions,
)

#: The reason for which the providers of a drain are disabled.
DRAINED = "drained"
#: The uuid of all consumers of a scenario.
_NO_UUID = str(uuids.UUID(int=0))


class State(Protocol):
    """A snapshot, as far as scenarios and the questions that try changes use it."""

    @property
    def _fleet(self) -> Fleet: ...
    @property
    def fleet(self) -> Fleet: ...
    @property
    def at(self) -> str | None: ...
    @property
    def cursor(self) -> Cursor | None: ...
    @property
    def candidates(self) -> Callable[..., Candidates]: ...
    @property
    def fit_gang(self) -> Callable[..., Any]: ...
    @property
    def rehearse_drain(self) -> Callable[..., Any]: ...
    def searched(self, request: Request, options: Options) -> Candidates: ...
    def fork(self) -> Scenario[Self]: ...
    def _with_fleet(self, fleet: Fleet) -> Self: ...


#: The class of the snapshots of a scenario.
S_co = TypeVar("S_co", bound=State, covariant=True)


class _UsageStep(NamedTuple):
    """Changes of allocations of one consumer, with its record before.

    It has no reference to the fleet before, which would fill the memory.
    """

    uses: list[tuple[int, int, Change]]
    consumer: str
    record: ConsumerRecord | None
    hosts: frozenset[str]


class _DefinitionStep(NamedTuple):
    """Changes of definitions: the trees before, and the hosts of these trees after."""

    before: Columns
    hosts_after: tuple[str, ...]
    hosts: frozenset[str]


class Scenario(Generic[S_co]):
    """A fork of a snapshot in which changes can be tried.

    ==============  ===============================================================================
    allocations     :meth:`claim`, :meth:`claim_all`, :meth:`move`, :meth:`release`, :meth:`drain`
    definitions     :meth:`add`, :meth:`remove`, :meth:`change`, :meth:`resize`, :meth:`reparent`
    maintenance     :meth:`disable`, :meth:`enable`
    queries         :attr:`snapshot` with all its methods, :meth:`candidates`, :meth:`held`,
                    :meth:`tree`, :meth:`rehearse_drain`
    comparison      :meth:`diff`: the plan that changes a ledger in the same way
    history         :meth:`undo`, :meth:`fork`, ``len(scenario)``
    ==============  ===============================================================================

    Nothing reaches a ledger before ``ledger.apply`` applies :meth:`diff`. One thread at a time may
    change a scenario. Server groups are not in a snapshot: only the ledger checks them.

    Cost: none to make. A claim on 10,000 hosts takes a tenth of a millisecond: it is linear in the
    tree for a placed amount, and in the inventories (24 bytes of each are copied) if the snapshot
    was read since the last change. The first claim also builds two indexes, once for a snapshot. A
    change of definitions copies all columns, some milliseconds.

    >>> import resource_objects as ro
    >>> with ro.connect("memory://") as ledger:
    ...     done = ledger.sync(ro.Provider("host0", "VCPU=8"))
    ...     done = ledger.claim("job-1", {"host0": "VCPU=6"})
    ...     scenario = ledger.snapshot().fork()
    >>> bool(scenario.candidates("VCPU=4"))
    False
    >>> print(*scenario.release("job-1"))
    VCPU=6 of host0
    >>> print(*scenario.claim("job-2", scenario.candidates("VCPU=4")))
    VCPU=4 of host0
    >>> scenario.snapshot.free("VCPU")
    4
    >>> print(scenario.diff())
    - job-1 releases everything
    + job-2 allocates VCPU=4 of host0
    >>> scenario.undo()
    >>> scenario.undo()
    >>> scenario.snapshot.free("VCPU")
    2
    """

    __slots__ = ("_base", "_fleet", "_records", "_snapshot", "_steps")

    def __init__(self, snapshot: S_co) -> None:
        self._base = snapshot
        self._fleet = snapshot._fleet
        #: None if no snapshot has the fleet, which then may be changed in place
        self._snapshot: S_co | None = snapshot
        self._records: dict[str, ConsumerRecord | None] = {}  # of consumers that changed here
        self._steps: list[_UsageStep | _DefinitionStep] = []

    @property
    def snapshot(self) -> S_co:
        """The present state, as a snapshot that does not change with the scenario."""
        if self._snapshot is None:
            self._snapshot = self._base._with_fleet(self._fleet)
        return self._snapshot

    def candidates(self, request: RequestLike, **options: Any) -> Candidates:
        """Return the candidates of a request: ``scenario.snapshot.candidates``."""
        return self.snapshot.candidates(request, **options)

    # --- allocations ---

    def claim(
        self, consumer: str, candidates: Claimable, *, limits: Limited = None
    ) -> tuple[Allocation, ...]:
        """Allocate the first candidate that is free to a consumer without allocations.

        :param limits: as for ``ledger.claim``, in addition to those of the search
        :returns: the allocations
        :raises NoCandidates: if the search found none
        :raises SearchLimitReached: if the search ended before it found one
        :raises CapacityException: if no candidate is free
        :raises AlreadyExists: if the consumer has allocations
        :raises InvalidInput: for anything else than candidates or allocations
        """
        return self._allocate(consumer_name(consumer), candidates, ConsumerOrder.claim, limits)

    def claim_all(
        self, candidates: Mapping[str, Claimable], *, limits: Limited = None
    ) -> dict[str, tuple[Allocation, ...]]:
        """Claim for several consumers, each next to those before it; all or nothing.

        ``scenario.claim_all(dict(zip(names, fit.candidates)))`` claims a gang. It counts as one
        change for each consumer. Errors are those of :meth:`claim`.
        """
        before = len(self)
        try:
            return {name: self.claim(name, of, limits=limits) for name, of in candidates.items()}
        except exceptions.ResourceObjectsError:
            self.undo(before)
            raise

    def move(
        self, consumer: str, candidates: Claimable, *, limits: Limited = None
    ) -> tuple[Allocation, ...]:
        """Replace the allocations of a consumer by the first candidate that is free.

        Other errors are those of :meth:`claim`.

        :returns: the new allocations
        :raises NotFound: if the consumer has no allocations
        """
        name = consumer_name(consumer)
        self.held(name)
        return self._allocate(name, candidates, ConsumerOrder.replace, limits)

    def _allocate(
        self, name: str, candidates: Claimable, order: Callable[..., ConsumerOrder], limits: Limited
    ) -> tuple[Allocation, ...]:
        bounds = self._limits(limits)
        fields = {}
        if isinstance(candidates, Candidates):
            bounds = tighter(bounds, candidates.options.limits)
        if isinstance(candidates, Candidates | Chosen):
            fields = {"request": StoredRequest(candidates.request)}
        retained = self._retained(name, candidates) if order == ConsumerOrder.replace else ()
        refusal: exceptions.CapacityException | None = None
        for allocations in itertools.chain(retained, choices(candidates)):
            uses = tuple(use for allocation in allocations for use in _uses(allocation))
            try:
                self._write(order(name, uses, uuid=_NO_UUID, **fields), bounds)
            except exceptions.CapacityException as error:
                refusal = refusal or error
            else:
                return tuple(allocations)
        if refusal is not None:
            raise refusal
        explanation = candidates.explain() if isinstance(candidates, Candidates) else ""
        raise exceptions.NoCandidates(f"no candidate for {name}", explanation)

    def _retained(self, name: str, candidates: Claimable) -> Iterator[Sequence[Allocation]]:
        """Yield the allocations of a candidate that retains what a consumer uses of its host."""
        record = self._record(name)
        if record is None or not isinstance(candidates, Candidates) or not candidates:
            return
        fleet, first = self._fleet, candidates[0]
        places = {self._place(use.provider_uuid) for use in record.held}
        if fleet.tree[self._place(first.host)] not in {fleet.tree[place] for place in places}:
            return
        places.update(self._place(allocation.provider) for allocation in first.allocations)

        def without(host: str) -> State:
            columns = in_place(columns_with(fleet, places), name)
            return self._base._with_fleet(fleet_io.read(columns, candidates.at or host))

        for chosen in kept_in_place(candidates, record.held, without, lambda *_: {}):
            yield chosen.candidate.allocations

    def release(self, consumer: str) -> tuple[Allocation, ...]:
        """Release all allocations of a consumer, and return them.

        :raises NotFound: if the consumer has no allocations
        """
        record = self.held(consumer)
        self._write(ConsumerOrder.release(record.consumer))
        fleet = self._fleet  # providers may have been renamed since
        return tuple(
            Allocation(
                provider=fleet.names[fleet.place_by_key[use.provider_uuid]],
                provider_uuid=use.provider_uuid,
                resource_class=use.resource_class,
                amount=resource(use.resource_class).make_amount(use.amount),
                units=use.units,
            )
            for use in record.held
        )

    def drain(
        self, *providers: str, requests: Mapping[str, Request] = FrozenDict(), **options: Any
    ) -> dict[str, tuple[Allocation, ...]]:
        """Disable providers and move all their consumers; all or nothing.

        It counts as one change for each provider, and two for each consumer. Arguments are those of
        :meth:`.Snapshot.rehearse_drain`, which also returns partial results.

        :returns: the new allocations, by consumer
        :raises NoCandidates: naming the consumers that fit nowhere else, and why
        :raises SearchLimitReached: if it is not known whether all fit
        :raises NotFound: for an unknown provider
        """
        rehearsal = self.rehearse_drain(*providers, requests=requests, **options)
        rehearsal.require()
        for provider in rehearsal.providers:
            self.disable(provider, reason=DRAINED)
        for move in rehearsal.placed:
            self.release(move.consumer)
        for move in rehearsal.placed:
            self.claim(move.consumer, move.chosen)
        return {move.consumer: move.candidate.allocations for move in rehearsal.placed}

    def rehearse_drain(
        self, *providers: str, requests: Mapping[str, Request] = FrozenDict(), **options: Any
    ) -> Any:
        """Return where the consumers of some providers could be placed if these were drained.

        As :meth:`.Snapshot.rehearse_drain`; consumers that claimed here are placed by the request
        of that claim. This scenario does not change.

        :returns: a :class:`~resource_objects.search.drain.Rehearsal`
        """
        stored = {name: request.request for name, request in self._requests().items()}
        return self.snapshot.rehearse_drain(*providers, requests={**requests, **stored}, **options)

    def held(self, consumer: str) -> ConsumerRecord:
        """Return the record of a consumer, with the request if it claimed here.

        :raises NotFound: if the consumer has no allocations
        """
        record = self._record(consumer_name(consumer))
        if record is None:
            raise exceptions.NotFound("consumer", consumer)
        return record

    # --- definitions and maintenance ---

    def tree(self, provider: str) -> Provider:
        """Return the root of the tree of a provider (name or uuid), with all providers below it.

        :raises NotFound: for an unknown provider
        """
        return self._tree_of(provider)[1]

    def add(self, *roots: Provider, below: str | None = None) -> None:
        """Add providers, each with all providers below it.

        :param below: the parent (name or uuid); None for new roots
        :raises AlreadyExists: if a name or uuid exists
        :raises InvalidTree: for a provider that is not the root of a tree
        :raises Conflict: if a pool would provide a class to a tree that counts it
        :raises NotFound: for an unknown parent
        """
        for root in roots:
            if not isinstance(root, Provider):
                raise exceptions.InvalidTree("add", root, "providers, each the root of a tree")
            for key in (key for provider in root.walk() for key in (provider.name, provider.uuid)):
                if key is not None and key in self._fleet.place_by_key:
                    raise exceptions.AlreadyExists("provider", key)
        if below is None:
            self._redefine(Columns(), Plan(merge_changes("", [diff(None, root) for root in roots])))
            return
        columns, root, parent = self._tree_of(below)
        parent.update(children=(*parent.children, *roots))
        stored = tree_of(stored_definitions(columns), root.uuid or "")
        self._redefine(columns, Plan(compare_tree(stored, root)))

    def remove(self, provider: str) -> None:
        """Remove a provider (name or uuid) and all providers below it.

        :raises NotFound: for an unknown provider
        :raises InUse: if one of them has allocations
        :raises InvalidTree: if the rest of its tree has shares of one of them
        """
        place = self._place(provider)
        columns, uuid = columns_with(self._fleet, [place]), self._fleet.uuids[place]
        tree = tree_of(stored_definitions(columns), uuid)
        self._redefine(columns, Plan(edited(tree, {}, uuid)[0]))

    def change(
        self,
        provider: str,
        *,
        name: str | None = None,
        parent: str | types.EllipsisType | None = ...,
        inventories: InventoriesLike | None = None,
        traits: Iterable[str] | None = None,
        aggregates: Iterable[str] | None = None,
    ) -> None:
        """Change fields of one provider, as ``ledger.change``, with its arguments and errors."""
        fields = changed_fields(name, inventories, traits, aggregates)
        keys = [provider] if parent is None or parent is ... else [provider, parent]
        places = [self._place(key) for key in keys]
        columns = columns_with(self._fleet, places)
        uuid, *above = (self._fleet.uuids[place] for place in places)
        if parent is not ...:
            fields["parent_uuid"] = above[0] if above else None
        self._redefine(columns, Plan(edited(stored_definitions(columns), {uuid: fields})[0]))

    def resize(self, provider: str, inventories: InventoriesLike) -> None:
        """Replace the inventories of some classes at a provider; total 0 removes one.

        Less than the used amount is possible: free is negative until enough is released.

        :param inventories: such as ``"VCPU=16"``
        :raises NotFound: for an unknown provider
        """
        stored = self._tree_of(provider)[2].inventories
        self.change(provider, inventories=stored.amended(inventories))

    def reparent(self, provider: str, parent: str | None) -> None:
        """Move a provider, with all providers below it, to a new parent; None makes it a root.

        Errors are those of ``ledger.change``.
        """
        self.change(provider, parent=parent)

    def disable(
        self,
        provider: str,
        *,
        reason: str = "tried",
        until: datetime.datetime | None = None,
    ) -> None:
        """Disable a provider and all providers below it.

        Arguments and errors are those of ``ledger.disable``.
        """
        end = None if until is None else moment("until", until)
        self._set_service(provider, label(reason, "reason"), end)

    def enable(self, provider: str) -> None:
        """Enable a provider.

        :raises NotFound: for an unknown provider
        """
        self._set_service(provider, None, None)

    def _set_service(
        self, provider: str, reason: str | None, until: datetime.datetime | None
    ) -> None:
        place = self._place(provider)
        order = DisableOrder(self._fleet.uuids[place], reason, until)
        self._redefine(columns_with(self._fleet, [place]), Plan(disabling=(order,)))

    def _place(self, provider: str) -> int:
        place = self._fleet.place_by_key.get(provider_key(provider))
        if place is None:
            raise exceptions.NotFound("provider", provider)
        return place

    def _tree_of(self, provider: str) -> tuple[Columns, Provider, Provider]:
        """Return the tree of a provider as columns, its root, and the provider."""
        columns = columns_with(self._fleet, [self._place(provider)])
        match = find(columns, provider_key(provider))
        if match is None:
            raise exceptions.NotFound("provider", provider)
        return columns, *match

    # --- comparison and history ---

    def diff(self, since: State | Scenario[State] | None = None) -> Plan:
        """Return the plan that leads from another snapshot to the present state.

        ``ledger.apply`` applies it in one transaction. However old the snapshot is, it refuses the
        plan if something that the plan depends on has changed, and names it: a definition, the
        allocations of a consumer, or free capacity. No plan contains steps: more allocated of a
        host than it has after it was reduced cannot be done at once.

        Cost: linear in the trees that changed; in all rows if ``since`` is passed.

        :param since: another state; None for the base snapshot
        :returns: an empty plan if nothing differs
        :raises InvalidInput: for a snapshot of another ledger
        """
        if since is None:
            return plan_between(self._base, self, self._requests(), self._changed_hosts())
        return plan_between(since, self, self._requests())

    def _requests(self) -> dict[str, StoredRequest]:
        """Return the requests of the consumers that claimed here."""
        return {
            name: record.request
            for name, record in self._records.items()
            if record is not None and isinstance(record.request, StoredRequest)
        }

    def _changed_hosts(self) -> set[str]:
        """Return the hosts whose trees may differ, and all hosts of the changed consumers."""
        hosts = {host for step in self._steps for host in step.hosts}
        before, after = self._base._fleet, self._fleet
        for consumer in {step.consumer for step in self._steps if isinstance(step, _UsageStep)}:
            for place in before.places_of_holders.get(consumer) or ():
                hosts.add(before.hosts[int(before.tree[place])])
            record = self._records.get(consumer)
            for use in () if record is None else record.held:
                place = after.place_by_key[use.provider_uuid]
                hosts.add(after.hosts[int(after.tree[place])])
        return hosts

    def fork(self) -> Scenario[S_co]:
        """Return a scenario that starts from the present state, independent of this one."""
        fork = Scenario(self.snapshot)
        fork._records = dict(self._records)
        return fork

    def undo(self, to: int | None = None) -> None:
        """Undo the last change, or all changes after the first ones.

        :param to: an earlier ``len(scenario)``
        :raises InvalidInput: if there is no change to undo, or fewer than ``to``
        """
        if to is None:
            if not self._steps:
                raise exceptions.InvalidInput("field", "undo", "nothing", "an earlier change")
            to = len(self._steps) - 1
        if type(to) is not int or not 0 <= to <= len(self._steps):
            expected = f"an integer from 0 to {len(self._steps)}"
            raise exceptions.InvalidInput("field", "undo", to, expected)
        while len(self._steps) > to:
            self._undo_step()

    def _undo_step(self) -> None:
        step = self._steps.pop()
        if isinstance(step, _UsageStep):
            self._records[step.consumer] = step.record
        if not self._steps:
            self._fleet, self._snapshot = self._base._fleet, self._base
        elif isinstance(step, _UsageStep):
            self._use([(number, place, _inverse(change)) for number, place, change in step.uses])
        else:
            self._fleet = with_columns(self._fleet, step.hosts_after, step.before)
            self._snapshot = None

    def __len__(self) -> int:
        """Return the number of changes that are not undone."""
        return len(self._steps)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<Scenario: {len(self._steps)} changes of {self.snapshot!r}>"

    # --- changes of the fleet ---

    def _redefine(self, columns: Columns, plan: Plan) -> None:
        if not plan:
            return
        if not columns.providers.provider_id and self._fleet.within is not None:
            columns = columns_with(self._fleet, ())
        fleet, before, hosts_after = with_definitions(self._fleet, columns, plan)
        providers = before.providers
        parents = zip(providers.name, providers.parent_id, strict=True)
        roots = [name for name, parent in parents if parent is None]
        self._steps.append(_DefinitionStep(before, hosts_after, frozenset({*roots, *hosts_after})))
        self._fleet, self._snapshot = fleet, None

    def _write(self, order: ConsumerOrder, limits: UseLimits = UNLIMITED) -> None:
        name, fleet = order.consumer, self._fleet
        record = self._record(name)
        uses, self._records[name] = settle(fleet, order, record, limits)
        hosts = frozenset([fleet.hosts[int(fleet.tree[place])] for _, place, _ in uses])
        self._steps.append(_UsageStep(uses, name, record, hosts))
        self._use(uses)

    def _use(self, uses: Sequence[tuple[int, int, Change]]) -> None:
        self._fleet = self._fleet.with_use(uses, in_place=self._snapshot is None)
        self._snapshot = None

    def _limits(self, value: Limited) -> UseLimits:
        if value is None:
            return UNLIMITED
        return of_uuids(limits(value), self._fleet.uuids_of)

    def _record(self, consumer: str) -> ConsumerRecord | None:
        """Return the record of a consumer, None if it has no allocations."""
        if consumer in self._records:
            return self._records[consumer]
        fleet, uses = self._base._fleet, []
        for place in fleet.places_of_holders.get(consumer) or ():
            units: dict[str, list[str]] = {}
            for unit, name, owner in fleet.units.of_provider(place):
                if owner == consumer:
                    units.setdefault(name, []).append(unit)
            for name, owner, amount in fleet.allocations.of_provider(place):
                if owner == consumer:
                    allocated = tuple(sorted(units.get(name, ())))
                    uses.append(
                        Use(fleet.uuids[place], name, amount, allocated, fleet.names[place])
                    )
        return ConsumerRecord(_NO_UUID, consumer, NO_MOMENT, tuple(uses)) if uses else None


def _inverse(change: Change) -> Change:
    units = change.released_units, change.allocated_units
    return Change(change.consumer, change.key, change.after, change.before, *units)


def _uses(allocation: Allocation) -> Iterator[Use]:
    uuid, name = allocation.provider_uuid, allocation.provider
    if uuid is None:
        expected = "an allocation of a search"
        raise exceptions.InvalidInput("amount", "claim", str(allocation), expected)
    for record in allocation.amount.to_records(allocation.resource_class):
        units = record.units or allocation.units
        yield Use(uuid, record.resource_class, record.amount, units, name)


# --- a change of a consumer in place ---
#
# A search may choose other devices, partitions and CPUs that are as good as those in use. So its
# first host is searched again, without the use of the consumer, and with its providers first.


def kept_in_place(
    candidates: Candidates,
    uses: Iterable[Use],
    without: Callable[[str], State],
    staying: Callable[[str, Mapping[str, Amount]], Mapping[str, Amount]],
) -> Iterator[Chosen]:
    """Yield a candidate on the host of the first one that retains the use of the consumer there.

    No candidate is yielded if the first one retains all that the request needs. Cost: a search of
    one host; if a placed amount changes, a search for each part that is added to those in use.

    :param uses: the use of the consumer
    :param without: returns a snapshot of a host in which the consumer uses nothing
    :param staying: returns which of some placed amounts the consumer has on a host, assigned
    """
    first, used = candidates[0], {use.key: use for use in uses}
    if not _is_lost(first, used):
        return
    options = dataclasses.replace(candidates.options, keeps=frozenset(uuid for uuid, _ in used))
    scenario = without(first.host).fork()
    fleet = scenario.snapshot.fleet
    for uuid in options.keeps:  # it may keep providers that are disabled
        if fleet.place_by_key.get(uuid) in fleet.disabled:
            scenario.enable(uuid)
    request = candidates.request
    if first.located:
        group = request.groups[0]
        requested = dict(group.resources.by_name())
        amounts = {
            name: amount
            for name, amount in requested.items()
            if name in first.located.names() and not amount.is_assigned
        }
        resources = Amounts({**requested, **staying(first.host, amounts)})
        request = request.replace(groups=(group.replace(resources=resources), *request.groups[1:]))
    for trial in dict.fromkeys((request, candidates.request)):
        for snapshot in _snapshots(scenario, _unused_parts(scenario, trial, options.keeps)):
            try:
                best = snapshot.searched(trial, options)[:1]
            except exceptions.SearchLimitReached:
                continue
            for candidate in best:
                yield Chosen(_with_units(candidate, used), candidates.request)
                return


def _is_lost(first: Candidate, used: Mapping[Key, Use]) -> bool:
    """Return True if the consumer would lose an inventory or a unit of the classes of a candidate.

    Amounts of the host itself are the same wherever they are allocated.
    """
    allocations = first.allocations
    if all(a.provider == first.host and not a.units for a in allocations):
        return False
    classes = {allocation.resource_class for allocation in allocations}
    lost = {key for key in used if key[1] in classes}
    for allocation in allocations:
        key = allocation.provider_uuid or "", allocation.resource_class
        if key in used and set(allocation.units) <= set(used[key].units):
            lost.discard(key)
    return bool(lost)


def _unused_parts(scenario: Scenario[State], request: Request, used: frozenset[str]) -> list[str]:
    """Return the parts of a host that may get a placed amount, but for those in use."""
    fleet = scenario.snapshot.fleet
    places = {
        place
        for name, amount in request.groups[0].resources.by_name()
        if not amount.is_assigned
        for place in fleet.parts_of(name).provider.tolist()
    }
    return [
        fleet.names[place]
        for place in sorted(places - fleet.disabled.keys())
        if fleet.uuids[place] not in used
    ]


def _snapshots(scenario: Scenario[State], parts: Sequence[str]) -> Iterator[State]:
    """Yield a snapshot with all parts disabled, then one after each part that is enabled again.

    After ``MOST_PARTS`` snapshots the last one has all parts enabled. The scenario is changed: it
    has the parts of the last snapshot that was yielded.
    """
    for part in parts:
        scenario.disable(part)
    for part in parts[:MOST_PARTS]:
        yield scenario.snapshot
        scenario.enable(part)
    for part in parts[MOST_PARTS:]:
        scenario.enable(part)
    yield scenario.snapshot


def _with_units(candidate: Candidate, used: Mapping[Key, Use]) -> Candidate:
    """Return a candidate with the units of its consumer, if the request names none."""
    if candidate.located:  # its units are assigned
        return candidate
    allocations = []
    for allocation in candidate.allocations:
        use = used.get((allocation.provider_uuid or "", allocation.resource_class))
        if allocation.units and use is not None:
            units = tuple(dict.fromkeys((*use.units, *allocation.units)))
            allocation = allocation.replace(units=units[: len(allocation.units)])
        allocations.append(allocation)
    return candidate.replace(allocations=tuple(allocations))


# --- differences ---


def plan_between(
    before: State | Scenario[State],
    after: State | Scenario[State],
    requests: Mapping[str, StoredRequest] = FrozenDict(),
    hosts: Collection[str] | None = None,
) -> Plan:
    """Return the plan that leads from one state to another one. Cost: linear in their trees.

    A snapshot has no generations of consumers. So the plan has the allocations of each consumer
    before (``Plan.held``), and is refused if they have changed.

    :param requests: the requests of consumers that have other allocations after, as far as known
    :param hosts: the hosts whose trees may differ, and all hosts of consumers that may; None: all
    :raises InvalidInput: for other objects, or if the states are of different ledgers
    """
    states = _snapshot_of(before), _snapshot_of(after)
    ledgers = {state.cursor.ledger for state in states if state.cursor is not None} - {0}
    if len(ledgers) > 1:
        raise exceptions.InvalidInput("field", "diff", after, "a snapshot of the same ledger")
    was, now = (columns_of(state._fleet, _trees(state._fleet, hosts)) for state in states)
    plan, allocated = diff_rows(was, now), holdings(was)
    disabled_before, disabled = _disabled(was), _disabled(now)
    blocked = {
        now.index.uuids[number]
        for number in (now.providers.provider_id if disabled else ())
        if any(now.index.uuids[above] in disabled for above in now.index.ancestors(number))
    }
    names_before, names_after = (
        dict(zip(columns.providers.uuid, columns.providers.name, strict=True))
        for columns in (was, now)
    )
    disabling: list[DisableOrder] = []
    for uuid in sorted({*disabled_before, *disabled} & names_after.keys()):
        # without the actor and the time, which the ledger records
        old, new = (ServiceState.of(facts.get(uuid)) for facts in (disabled_before, disabled))
        if old != new:
            disabling.append(DisableOrder(uuid, new.reason, new.until, old))

    def completed(order: ConsumerOrder) -> ConsumerOrder:
        request = requests.get(order.consumer, order.request)
        return dataclasses.replace(
            order,
            request=None if order.is_release else request,
            overrides_disabled=any(use.provider_uuid in blocked for use in order.uses),
        )

    return dataclasses.replace(
        plan,
        orders=tuple(map(completed, plan.orders)),
        disabling=tuple(disabling),
        held={
            order.consumer: tuple(
                dataclasses.replace(use, provider=names_before[use.provider_uuid])
                for use in allocated[order.consumer].values()
            )
            for order in plan.orders
            if order.consumer in allocated
        },
        ledger=max(ledgers, default=0),
        names={**plan.names, **{o.provider_uuid: names_after[o.provider_uuid] for o in disabling}},
    )


def _snapshot_of(state: object) -> State:
    snapshot = state.snapshot if isinstance(state, Scenario) else state
    if not isinstance(getattr(snapshot, "_fleet", None), Fleet):
        raise exceptions.InvalidInput("field", "diff", state, "a snapshot or a scenario")
    return cast("State", snapshot)


def _trees(fleet: Fleet, hosts: Collection[str] | None) -> set[int] | None:
    if hosts is None or fleet.within is not None:
        return None
    trees = map(fleet.tree_of_host, hosts)
    return {tree for tree in trees if tree is not None}


def _disabled(columns: Columns) -> dict[str, Disabled]:
    """Return the disabled providers, by uuid."""
    return {columns.index.uuids[number]: facts for number, facts in columns.disabled.items()}
