"""The scenario: a fork of a snapshot, in which one may try things.

A scenario is a chain of pictures. Each change makes the next one of the last: three columns of
figures are copied, and the rows of the trees that it touches, when somebody looks; everything else
belongs to all of them (copy on write). Between two looks there is nobody to copy for: the second of
two changes writes where the first did. So the snapshot it was forked from stays as it is, and what
was found in an earlier picture stays true of that one. To undo is to make the opposite change,
which is exact: all of it is counted in integers.

What may be taken is settled by the decision of every write,
:mod:`~resource_objects.store.decide`.
"""

from __future__ import annotations

import datetime
import itertools
import types
import uuid as uuids
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from resource_objects import exceptions
from resource_objects.fields import FrozenDict
from resource_objects.names import consumer_name, label, provider_key
from resource_objects.providers import Allocation, Provider
from resource_objects.providers.arguments import Limited, limits, moment, of_uuids, tighter
from resource_objects.providers.columns import Columns, stored_definitions, trees
from resource_objects.providers.definition import (
    changed_fields,
    compare_tree,
    diff,
    edited,
    merge_changes,
    tree_of,
)
from resource_objects.providers.disabled import DisableOrder
from resource_objects.providers.dry_run import in_place
from resource_objects.providers.feed import Cursor
from resource_objects.providers.orders import (
    UNLIMITED,
    Change,
    ConsumerOrder,
    ConsumerRecord,
    StoredRequest,
    Use,
    UseLimits,
)
from resource_objects.providers.plan import Plan
from resource_objects.requests import Request, RequestLike
from resource_objects.resources import InventoriesLike, resource
from resource_objects.search.candidate import Candidate, Chosen
from resource_objects.search.candidates import Candidates
from resource_objects.search.difference import difference
from resource_objects.search.fleet import Fleet
from resource_objects.search.limits import uuids_in
from resource_objects.search.redefining import redefine, spliced, trees_with
from resource_objects.search.taking import NO_MOMENT, decided, used_since

#: What is taken in a scenario: candidates, of which the first that is still free is meant; one of
#: them; or allocations, also those of a claim.
Taken: TypeAlias = Candidates | Candidate | Chosen | Sequence[Candidate] | Sequence[Allocation]

#: Stands for who is not known by a number, where nothing is kept.
_NOBODY = str(uuids.UUID(int=0))


class Picture(Protocol):
    """What a scenario is a chain of: a snapshot."""

    def candidates(self, *request: Any, **options: Any) -> Candidates:
        """Return who could hold a request."""

    def rehearsed(
        self,
        scenario: Any,
        providers: tuple[str, ...],
        requests: Mapping[str, Request],
        options: Mapping[str, Any],
    ) -> Any:
        """Return what would become of those who hold something at providers that go."""

    def kept_in_place(
        self, found: Candidates, uses: Iterable[Use], without: Callable[[], Columns]
    ) -> Iterator[Chosen]:
        """Yield a candidate with what its consumer uses of its host already."""


P = TypeVar("P", bound=Picture)


class _Used(NamedTuple):
    """What was taken or given back: where and by whom, and what the consumer held before.

    Not the picture before it: pictures that nobody looks at any more would fill the memory.
    """

    uses: list[tuple[int, int, Change]]
    consumer: str
    held: ConsumerRecord | None
    hosts: frozenset[str]


class _Redefined(NamedTuple):
    """What was defined otherwise: the trees as they were, and the hosts that are there since."""

    before: Columns
    now: tuple[str, ...]
    hosts: frozenset[str]


class Scenario(Generic[P]):
    """A fork of a snapshot, in which one may try things, and ask again.

    ================  =============================================================================
    take, give back   :meth:`claim`, :meth:`claim_all`, :meth:`move`, :meth:`release`,
                      :meth:`drain`
    define            :meth:`add`, :meth:`remove`, :meth:`change`, :meth:`resize`,
                      :meth:`reparent`
    in service        :meth:`disable`, :meth:`enable`
    ask               :attr:`snapshot`, and all that can be asked of one; :meth:`candidates`,
                      :meth:`held`, :meth:`tree`, :meth:`rehearse_drain`
    compare           :meth:`diff`: the plan that makes a ledger what this is
    go back           :meth:`undo`, :meth:`fork`
    ================  =============================================================================

    ``snapshot`` is the picture as it is now. Nothing in here reaches a ledger, until somebody lets
    ``ledger.apply`` carry out :meth:`diff`. One thread at a time may change a scenario. Server
    groups are not in a picture: what they ask is judged by the ledger alone.

    Cost: nothing to make; a tenth of a millisecond for a claim on 10,000 hosts: linear in the tree
    where cells or devices are taken, and if somebody has looked since the one before, in the
    inventories (24 bytes of each are copied). The first one also looks up who holds what and where
    each provider stands, once for a snapshot. A change of definitions costs copies of all columns,
    some milliseconds.

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

    __slots__ = ("_fleet", "_held", "_like", "_origin", "_picture", "_steps")

    def __init__(self, fleet: Fleet, like: Callable[[Fleet], P]) -> None:
        """:param fleet: as it is kept, with all units

        :param like: makes a snapshot of other figures
        """
        self._origin = self._fleet = fleet
        self._like = like
        self._picture: P | None = None
        self._held: dict[str, ConsumerRecord | None] = {}  # of those who took or gave back here
        self._steps: list[_Used | _Redefined] = []

    @property
    def snapshot(self) -> P:
        """The picture as it is now; it does not change with the scenario."""
        if self._picture is None:
            self._picture = self._like(self._fleet)
        return self._picture

    def candidates(self, request: RequestLike, **options: Any) -> Candidates:
        """Return who could hold a request now: ``scenario.snapshot.candidates``."""
        return self.snapshot.candidates(request, **options)

    def claim(
        self, consumer: str, found: Taken, *, limits: Limited = None
    ) -> tuple[Allocation, ...]:
        """Take what a search found for a consumer that holds nothing yet; all or nothing.

        :param limits: as for ``ledger.claim``, besides those that candidates were found under
        :returns: what was taken
        :raises NoCandidates: if the search found nothing
        :raises SearchLimitReached: if it was cut short before it found anything
        :raises CapacityException: if nothing of what was found is free (any more)
        :raises AlreadyExists: if the consumer holds something already
        :raises InvalidInput: if it is nothing that a search found
        """
        return self._take(consumer_name(consumer), found, ConsumerOrder.claim, limits)

    def claim_all(
        self, found: Mapping[str, Taken], *, limits: Limited = None
    ) -> dict[str, tuple[Allocation, ...]]:
        """Take for several consumers, each the first that is free beside those before it, or none.

        So a gang that fits is taken: ``scenario.claim_all(dict(zip(names, fit.candidates)))``. It
        counts as one change for each. Errors are those of :meth:`claim`; nothing is taken then.
        """
        before = len(self)
        try:
            return {name: self.claim(name, one, limits=limits) for name, one in found.items()}
        except exceptions.ResourceObjectsError:
            self.undo(before)
            raise

    def move(
        self, consumer: str, found: Taken, *, limits: Limited = None
    ) -> tuple[Allocation, ...]:
        """Let a consumer hold what was found instead of what it holds; all or nothing.

        Errors are those of :meth:`claim`, but for ``ConsumerExists``.

        :returns: what it holds now
        :raises NotFound: if it holds nothing
        """
        name = consumer_name(consumer)
        if self._kept(name) is None:
            raise exceptions.NotFound("consumer", name)
        return self._take(name, found, ConsumerOrder.replace, limits)

    def _take(
        self, name: str, found: Taken, order: Callable[..., ConsumerOrder], limits: Limited
    ) -> tuple[Allocation, ...]:
        """Write the first of what was found that is free."""
        lost: exceptions.CapacityException | None = None
        said = {}
        within = self._within(limits)
        if isinstance(found, Candidates):
            within = tighter(within, found.options.limits)
        if isinstance(found, Candidates | Chosen):
            said = {"request": StoredRequest(found.request)}
        kept = self._in_place(name, found) if order == ConsumerOrder.replace else ()
        for allocations in itertools.chain(kept, _ways(found)):
            uses = tuple(use for one in allocations for use in _uses(one))
            try:
                self._write(order(name, uses, uuid=_NOBODY, **said), within)
            except exceptions.CapacityException as refusal:
                lost = lost or refusal
            else:
                return tuple(allocations)
        if lost is not None:
            raise lost
        if isinstance(found, Candidates):
            raise exceptions.NoCandidates(f"no candidate for {name}", found.explain())
        raise exceptions.NoCandidates(f"no candidate for {name}")

    def _in_place(self, name: str, found: Taken) -> Iterator[Sequence[Allocation]]:
        """Yield the allocations of a candidate that keeps what a consumer uses of its host."""
        record = self._kept(name)
        if record is None or not isinstance(found, Candidates) or not found:
            return
        places = {self._place(use.provider_uuid) for use in record.held}
        host = self._place(found[0].host)
        if self._fleet.tree[host] not in {self._fleet.tree[place] for place in places}:
            return
        places.update(self._place(one.provider) for one in found[0].allocations)

        def without() -> Columns:
            return in_place(trees_with(self._fleet, places), name)

        for one in self.snapshot.kept_in_place(found, record.held, without):
            yield one.candidate.allocations

    def _within(self, said: Limited) -> UseLimits:
        if said is None:
            return UNLIMITED
        return of_uuids(limits(said), partial(uuids_in, self._fleet))

    def release(self, consumer: str) -> tuple[Allocation, ...]:
        """Give back all that a consumer holds; return what that was.

        :raises NotFound: if it holds nothing
        """
        name = consumer_name(consumer)
        kept = self._kept(name)
        self._write(ConsumerOrder.release(name))
        assert kept is not None, "who holds nothing is not released"
        names, at = self._fleet.names, self._fleet.place_by_key  # they may have others by now
        return tuple(
            Allocation(
                provider=names[at[one.provider_uuid]],
                provider_uuid=one.provider_uuid,
                resource_class=one.resource_class,
                amount=resource(one.resource_class).make_amount(one.amount),
                units=one.units,
            )
            for one in kept.held
        )

    def drain(
        self, *providers: str, requests: Mapping[str, Request] = FrozenDict(), **options: Any
    ) -> dict[str, tuple[Allocation, ...]]:
        """Take providers out of service, and move all who hold something there; all or nothing.

        It counts as one change for each provider, and two for each that moves. Arguments are those
        of ``snapshot.rehearse_drain``, which also tells who could go where some cannot.

        :returns: by the name of each that moved, what it holds now
        :raises NoCandidates: naming who finds no other place, and why
        :raises SearchLimitReached: if it is not known whether all find one
        :raises NotFound: if one of the providers is not there
        """
        done = self.rehearse_drain(*providers, requests=requests, **options)
        done.require()
        went: Scenario[P] = done.scenario
        self._steps += went._steps
        self._held |= went._held
        self._picture = went.snapshot  # so that neither writes into the figures of both
        self._fleet = went._fleet
        return {one.consumer: one.candidate.allocations for one in done.placed}

    def rehearse_drain(
        self, *providers: str, requests: Mapping[str, Request] = FrozenDict(), **options: Any
    ) -> Any:
        """Return what would become of those who hold something at providers that go.

        As ``snapshot.rehearse_drain`` does, whose arguments it takes; who took something here goes
        by the request it took it for. This scenario stays as it is.

        :returns: a :class:`~resource_objects.search.drain.Rehearsal`
        """
        return self.snapshot.rehearsed(self, providers, requests, options)

    def held(self, consumer: str) -> ConsumerRecord:
        """Return what a consumer holds now, and of one that took it here the request.

        :raises NotFound: if it holds nothing
        """
        kept = self._kept(consumer_name(consumer))
        if kept is None:
            raise exceptions.NotFound("consumer", consumer)
        return kept

    def tree(self, provider: str) -> Provider:
        """Return the whole tree of a provider (name or uuid) as it is now, its root.

        :raises NotFound: if it is not there
        """
        return self._tree_of(provider)[1]

    # --- definitions and service ---

    def add(self, *roots: Provider, below: str | None = None) -> None:
        """Add providers, each with all below it.

        :param below: the provider (name or uuid) that they are to be children of; None: they are
            hosts, or pools
        :raises AlreadyExists: if a name or uuid is taken
        :raises InvalidTree: if they are no trees
        :raises Conflict: if a pool would give a class to a tree that counts it
        :raises NotFound: if ``below`` is not there
        """
        for root in roots:
            if not isinstance(root, Provider):
                raise exceptions.InvalidTree("add", root, "providers, each the root of a tree")
            for key in (key for one in root.walk() for key in (one.name, one.uuid)):
                if key is not None and key in self._fleet.place_by_key:
                    raise exceptions.AlreadyExists("provider", key)
        if below is None:
            every = [diff(None, root) for root in roots]
            self._redefine(Columns(), Plan(merge_changes("", every)))
            return
        columns, root, above = self._tree_of(below)
        above.update(children=(*above.children, *roots))
        stored = tree_of(stored_definitions(columns), root.uuid or "")
        self._redefine(columns, Plan(compare_tree(stored, root)))

    def remove(self, provider: str) -> None:
        """Remove a provider (by name or uuid) and all below it.

        :raises NotFound: if it is not there
        :raises InUse: if it or one below has allocations
        :raises InvalidTree: if what stays of its tree has shares of it
        """
        place = self._place(provider)
        columns, uuid = trees_with(self._fleet, [place]), self._fleet.uuids[place]
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
        """Change one provider, as ``ledger.change`` does; what is not given, and its tree, stay.

        Arguments and errors are those of ``ledger.change``.
        """
        fields = changed_fields(name, inventories, traits, aggregates)
        keys = [provider] if parent is None or parent is ... else [provider, parent]
        columns = trees_with(self._fleet, map(self._place, keys))
        stored = stored_definitions(columns)
        uuid, *above = (self._fleet.uuids[self._place(key)] for key in keys)
        if parent is not ...:
            fields["parent_uuid"] = above[0] if above else None
        self._redefine(columns, Plan(edited(stored, {uuid: fields})[0]))

    def resize(self, provider: str, inventories: InventoriesLike) -> None:
        """Give a provider other inventories of some classes, none for total 0; its others stay.

        Less than is used may be said: free is negative then, until enough is released.

        :param inventories: ``"VCPU=16"``, or what :class:`Inventories` are made of
        :raises NotFound: if it is not there
        """
        _, _, one = self._tree_of(provider)
        self.change(provider, inventories=one.inventories.amended(inventories))

    def reparent(self, provider: str, parent: str | None) -> None:
        """Put a provider, with all below it, below another one; None makes it a root.

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
        """Disable a provider, with all providers below it.

        Arguments and errors are those of ``ledger.disable``.
        """
        end = None if until is None else moment("until", until)
        self._serve(provider, label(reason, "reason"), end)

    def enable(self, provider: str) -> None:
        """Enable a provider.

        :raises NotFound: if it is not there
        """
        self._serve(provider, None, None)

    def _serve(self, provider: str, reason: str | None, until: datetime.datetime | None) -> None:
        place = self._place(provider)
        order = DisableOrder(self._fleet.uuids[place], reason, until)
        self._redefine(trees_with(self._fleet, [place]), Plan(disabling=(order,)))

    def _place(self, provider: str) -> int:
        place = self._fleet.place_by_key.get(provider_key(provider))
        if place is None:
            raise exceptions.NotFound("provider", provider)
        return place

    def _tree_of(self, provider: str) -> tuple[Columns, Provider, Provider]:
        """Return the tree of a provider: as columns, its root, and the provider itself."""
        columns = trees_with(self._fleet, [self._place(provider)])
        return columns, *_found(trees(columns), provider)

    def _redefine(self, columns: Columns, plan: Plan) -> None:
        if not plan:
            return
        if not columns.providers.provider_id and self._fleet.within is not None:
            columns = trees_with(self._fleet, ())
        fleet, before, now = redefine(self._fleet, columns, plan)
        given = before.providers
        was = [n for n, up in zip(given.name, given.parent_id, strict=True) if up is None]
        self._steps.append(_Redefined(before, now, frozenset({*was, *now})))
        self._fleet, self._picture = fleet, None

    # --- compared, and gone back ---

    def diff(self, since: Picture | Scenario[Any] | None = None) -> Plan:
        """Return the plan that leads from another picture to this one.

        ``ledger.apply`` carries it out in one transaction, or refuses it and names what changed
        since the snapshot was taken: a definition, what a consumer holds, or who has the room. That
        is so however long ago it was taken, also if the change feed knows no more of it. What takes
        several steps, more taken of a host before it was made too small for it, no plan brings
        about in one.

        :param since: a snapshot, or a scenario as it is now; None: what this one was forked from
        :returns: an empty plan where nothing differs
        :raises InvalidInput: for a picture of another ledger

        Cost: linear in the trees that were touched; from another picture, in all.
        """
        if since is not None:
            return plan_between(since, self, self._requests())
        of = ledger_of(self)
        return difference(self._origin, self._fleet, self._touched(), self._requests(), ledger=of)

    def _requests(self) -> dict[str, StoredRequest]:
        """Return what consumers were made for that took something here, as far as known."""
        return {
            name: one.request
            for name, one in self._held.items()
            if one is not None and one.request is not None
        }

    def _touched(self) -> set[str]:
        """Return the hosts whose trees may differ, and where those whose holdings do hold more."""
        hosts = {host for step in self._steps for host in step.hosts}
        for consumer in {one.consumer for one in self._steps if isinstance(one, _Used)}:
            origin = self._origin
            for place in origin.places_of_holders.get(consumer) or ():
                hosts.add(origin.hosts[int(origin.tree[place])])
            held = self._held.get(consumer)
            for use in () if held is None else held.held:
                place = self._fleet.place_by_key[use.provider_uuid]
                hosts.add(self._fleet.hosts[int(self._fleet.tree[place])])
        return hosts

    def fork(self) -> Scenario[P]:
        """Return a scenario that begins as this one is now; neither sees what the other tries."""
        found = Scenario(fleet_of(self.snapshot), self._like)
        found._held = dict(self._held)
        return found

    def undo(self, to: int | None = None) -> None:
        """Go back to before the last change, or to when there were so many.

        :param to: what ``len(scenario)`` was then
        :raises InvalidInput: if nothing was changed, or all is undone, or there were never so many
        """
        if to is None:
            if not self._steps:
                raise exceptions.InvalidInput(
                    "field", "undo", "nothing", "a change that was made before"
                )
            to = len(self._steps) - 1
        if type(to) is not int or not 0 <= to <= len(self._steps):
            raise exceptions.InvalidInput(
                "field", "undo", to, f"an integer from 0 to {len(self._steps)}"
            )
        while len(self._steps) > to:
            self._undo_one()

    def _undo_one(self) -> None:
        step = self._steps.pop()
        if isinstance(step, _Used):
            self._held[step.consumer] = step.held
        if not self._steps:
            self._fleet = self._origin
        elif isinstance(step, _Used):
            back = [(number, place, _inverse(change)) for number, place, change in step.uses]
            self._fleet = self._after(back)
        else:
            self._fleet = spliced(self._fleet, step.now, step.before)
        self._picture = None

    def __len__(self) -> int:
        """Return how many changes were made that are not undone."""
        return len(self._steps)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<Scenario: {len(self._steps)} changes of {self.snapshot!r}>"

    # --- writing ---

    def _write(self, order: ConsumerOrder, limits: UseLimits = UNLIMITED) -> None:
        name, fleet = order.consumer, self._fleet
        before = self._kept(name)
        uses, after = decided(fleet, order, before, limits)
        hosts = frozenset([fleet.hosts[int(fleet.tree[place])] for _, place, _ in uses])
        self._steps.append(_Used(uses, name, before, hosts))
        self._fleet, self._picture = self._after(uses), None
        self._held[name] = after

    def _after(self, uses: Sequence[tuple[int, int, Change]]) -> Fleet:
        """Return the fleet after changes; what nobody has seen yet gives its figures to it."""
        is_own = self._picture is None and self._fleet is not self._origin
        return used_since(self._fleet, uses, in_place=is_own)

    def _kept(self, consumer: str) -> ConsumerRecord | None:
        """Return what a consumer holds, None if nothing."""
        if consumer in self._held:
            return self._held[consumer]
        fleet, held = self._origin, []
        for place in fleet.places_of_holders.get(consumer) or ():
            units: dict[str, list[str]] = {}
            for unit, name, who in fleet.units.of_provider(place):
                if who == consumer:
                    units.setdefault(name, []).append(unit)
            for name, who, amount in fleet.allocations.of_provider(place):
                if who == consumer:
                    some = tuple(sorted(units.get(name, ())))
                    held.append(Use(fleet.uuids[place], name, amount, some, fleet.names[place]))
        return ConsumerRecord(_NOBODY, consumer, NO_MOMENT, tuple(held)) if held else None


def fleet_of(picture: object) -> Fleet:
    """Return the fleet, with all units, of a snapshot or of a scenario as it is now.

    :raises InvalidInput: for anything else
    """
    found = picture.snapshot if isinstance(picture, Scenario) else picture
    fleet = getattr(found, "_fleet", None)
    if not isinstance(fleet, Fleet):
        raise exceptions.InvalidInput("field", "diff", picture, "a snapshot or a scenario")
    return fleet


def ledger_of(picture: object) -> int:
    """Return which ledger a snapshot or a scenario is of; 0 where that is not known."""
    found = picture.snapshot if isinstance(picture, Scenario) else picture
    cursor = getattr(found, "cursor", None)
    return cursor.ledger if isinstance(cursor, Cursor) else 0


def plan_between(
    before: object, after: object, requests: Mapping[str, StoredRequest] = FrozenDict()
) -> Plan:
    """Return the plan that leads from one picture to another one. Cost: linear in all rows.

    :param requests: what consumers were made for in the other one, as far as known
    :raises InvalidInput: for what is no picture, or one of another ledger
    """
    fleets = fleet_of(before), fleet_of(after)
    ledgers = {ledger_of(before), ledger_of(after)} - {0}
    if len(ledgers) > 1:
        raise exceptions.InvalidInput("field", "diff", after, "a picture of the same ledger")
    return difference(*fleets, None, requests, ledger=max(ledgers, default=0))


def _found(roots: Iterable[Provider], key: str) -> tuple[Provider, Provider]:
    """Return (root, provider) of a name or uuid."""
    wanted = provider_key(key)
    for root in roots:
        for one in root.walk():
            if wanted in (one.name, one.uuid):
                return root, one
    raise exceptions.NotFound("provider", key)


def _inverse(one: Change) -> Change:
    units = one.released_units, one.allocated_units
    return Change(one.consumer, one.key, one.after, one.before, *units)


def _ways(found: Any) -> Iterator[Sequence[Allocation]]:
    """Yield the ways that something found says, in its order."""
    if isinstance(found, Chosen):
        found = found.candidate
    if isinstance(found, Candidate):
        found = [found]
    if isinstance(found, list | tuple) and found and isinstance(found[0], Allocation):
        yield found
    elif isinstance(found, Candidates | list | tuple):
        for one in found:
            if not isinstance(one, Candidate):
                raise exceptions.InvalidInput("amount", "claim", one, "a candidate")
            yield one.allocations
    else:
        raise exceptions.InvalidInput("amount", "claim", found, "candidates or allocations")


def _uses(one: Allocation) -> Iterator[Use]:
    if one.provider_uuid is None:
        raise exceptions.InvalidInput(
            "amount", "claim", str(one), "an allocation that a search found"
        )
    for record in one.amount.to_records(one.resource_class):
        units = record.units or one.units
        yield Use(one.provider_uuid, record.resource_class, record.amount, units, one.provider)
