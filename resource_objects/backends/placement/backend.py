"""The backend that is a remote Placement: the contract, in its requests."""

from __future__ import annotations

import datetime
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, ClassVar, NoReturn, Self

from resource_objects import clock, exceptions
from resource_objects.backends.placement import absent, words
from resource_objects.backends.placement.allocations import Allocations, Settling
from resource_objects.backends.placement.client import REPARENTING, client_of
from resource_objects.backends.placement.client import Client as Client
from resource_objects.backends.placement.definitions import Definitions, Steps
from resource_objects.backends.placement.picture import FEW_TREES, Picture, Read
from resource_objects.backends.retries import Retries
from resource_objects.providers.backend import RETENTION, Backend
from resource_objects.providers.capabilities import Capability
from resource_objects.providers.changed import Changed, Choose
from resource_objects.providers.columns import Columns
from resource_objects.providers.feed import Cursor, FeedEntry
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    ListedName,
    ListedProvider,
    ProviderFilter,
    Pruned,
    Total,
)
from resource_objects.providers.orders import (
    ConsumerRecord,
    NameKind,
    Operation,
    Outcome,
    Use,
    Write,
)
from resource_objects.providers.selection import select_consumers, select_providers, totals_of
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.providers.statistics import (
    StatisticFilter,
    StatisticsByProvider,
    StatisticsOrder,
)
from resource_objects.providers.use_over_time import UseBy, UseFilter, UseReport
from resource_objects.providers.waiting import Waiter, WaiterFilter, WaitOrder

#: So many outcomes of operations are remembered, by this process alone.
_REMEMBERED = 10_000


class PlacementBackend(Backend):
    """Keeps a ledger in a remote Placement, by its HTTP API. Safe for use by several threads.

    What it lacks is refused by name. What it keeps it keeps as Placement does: a claim raises the
    generation of its providers, and a definition takes several requests.
    """

    unsupported: ClassVar[frozenset[Capability]] = absent.LACKS

    def __init__(self, client: Client) -> None:
        if client.minor < REPARENTING:
            self.unsupported = absent.LACKS | {Capability.REPARENTING}  # type: ignore[misc]
        self._client = client
        consumers, aggregates = words.Names(words.CONSUMERS), words.Names(words.AGGREGATES)
        self._aggregates = aggregates
        self._picture = Picture(client, consumers, aggregates)
        self._allocations = Allocations(client, self._picture, consumers)
        self._definitions = Definitions(client, self._picture, self._allocations, aggregates)
        self._done: OrderedDict[str, Outcome] = OrderedDict()
        #: of operations that are under way
        self._doing: weakref.WeakValueDictionary[str, threading.Lock]
        self._doing = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._looked = threading.local()
        self._closed = False

    @classmethod
    def open(cls, url: str) -> Self:
        """Open what ``placement+https://`` names; it is asked for its versions. One request."""
        return cls.open_with(url, None)

    @classmethod
    def open_with(cls, url: str, session: Any, *, retries: Retries | None = None) -> Self:
        """Open what a URL names by a session or an adapter of keystoneauth1 (None: one of its own).

        :param retries: how often something is sent again that was not answered, or that Placement
            gave up
        :raises InvalidInput: if it is neither
        """
        client = client_of(url, session, retries)
        try:
            client.negotiate()
        except exceptions.LostConnection as error:
            raise exceptions.DatabaseError("unavailable", error.name, error.detail) from error
        return cls(client)

    @classmethod
    def database_status(cls, url: str) -> dict[str, str]:
        """Return what a URL names, without the password or token in it. One request."""
        opened = cls.open(url)
        said = f"Placement, asked by microversion 1.{opened._client.minor}"
        return {"database": opened._client.where, "status": said}

    def close(self) -> None:
        """Forget what was read; the session is whose it was."""
        self._closed = True
        self._picture.forget()

    def reread(self) -> None:
        """Let the next snapshot read everything: also what no generation tells of."""
        self._picture.forget()

    # --- reading ---

    def now(self) -> datetime.datetime:
        """Return this moment by the clock of this machine: Placement tells none."""
        self._open()
        return clock.now()

    def read(self, *trees: str, allocations: bool = True) -> Columns:
        """Return everything kept, or some trees (see the contract).

        Cost: of everything a look; of trees one or two requests for each, and four for each of
        their providers. What is held is read in any case: figures of use are made of it.
        """
        picture = self._open()
        if trees:
            return picture.columns(*picture.read_trees(trees))
        picture.look()
        return picture.columns(*picture.all())

    def uuids(self, names: Collection[str]) -> dict[str, str]:
        """Return ``{name: uuid}`` of the providers of these names; a request each, or one list."""
        picture = self._open()
        if len(names) > FEW_TREES:
            return {one.name: one.uuid for one in picture.told() if one.name in names}
        found = {name: picture.named(name) for name in names}
        return {name: uuid for name, uuid in found.items() if uuid is not None}

    def list_providers(
        self, wanted: ProviderFilter, limit: int, after: int = 0
    ) -> tuple[ListedProvider, ...]:
        """Return a page of providers, in the order in which this process saw them first.

        Cost: a look, or where few are named, what reading their trees costs.
        """
        picture = self._open()
        for name in wanted.forbidden_aggregates.union(*wanted.aggregates):
            self._aggregates.uuid(name)  # so that it is known by its name
        keys = wanted.uuids or wanted.names or wanted.trees
        rows = picture.rows(self._found(keys if keys and len(keys) <= FEW_TREES else None))
        records = {(row.uuid, one.resource_class): (one, ()) for row in rows for one in row.records}
        found = (one for one in select_providers(rows, wanted, records.get) if one.number > after)
        return tuple(sorted(found, key=lambda one: one.number)[:limit])

    def list_consumers(
        self, wanted: ConsumerFilter, limit: int, after: str | None = None
    ) -> tuple[ConsumerRecord, ...]:
        """Return a page of consumers by name.

        Cost: a look, and a request for each consumer looked at.
        """
        found = self._where(wanted)
        root_of, claims = self._root_of(found), self._claims(wanted, found)
        order = sorted(name for name in claims if after is None or name > after)
        page: list[ConsumerRecord] = []
        for first in range(0, len(order), limit):
            some = order[first : first + limit]
            records = self._allocations.held_by(some)
            page += select_consumers(records.values(), wanted, root_of)
            for name in set(some) - records.keys():  # given back, which raised no generation
                self._picture.doubt(use.provider_uuid for use in claims[name])
            if len(page) >= limit:
                break
        return tuple(page[:limit])

    def _where(self, wanted: ConsumerFilter) -> Sequence[Read]:
        """Return the providers that a filter of consumers is about."""
        place = wanted.provider or wanted.tree
        if place is None and wanted.names is not None:
            return ()
        return self._found(None if place is None else [place])

    def _claims(self, wanted: ConsumerFilter, found: Sequence[Read]) -> dict[str, tuple[Use, ...]]:
        """Return whom a filter may want, and what they hold of some providers as far as known."""
        if wanted.names is not None:
            return dict.fromkeys(wanted.names, ())
        places = ConsumerFilter(tree=wanted.tree, provider=wanted.provider)
        claims = self._picture.claims(found)
        return {
            one.consumer: one.held for one in select_consumers(claims, places, self._root_of(found))
        }

    def _root_of(self, found: Sequence[Read]) -> Callable[[str], str | None]:
        rows = self._picture.rows(found)
        return {key: row.root_uuid for row in rows for key in (row.uuid, row.name)}.get

    def _found(self, trees: Collection[str] | None) -> Sequence[Read]:
        """Return the providers of some trees as they are now; None: all of them, by a look."""
        picture = self._open()
        if trees is not None:
            return picture.read_trees(trees)[0]
        picture.look()
        return picture.all()[0]

    def list_names(
        self, kind: NameKind, limit: int, after: str | None = None
    ) -> tuple[ListedName, ...]:
        """Return a page of names. One request for all of them; for aggregates a look."""
        self._open()
        every = enumerate(self._definitions.names(kind), 1)
        found = [ListedName(n, name) for n, name in every if after is None or name > after]
        return tuple(found[:limit])

    def totals(self, wanted: ConsumerFilter, by: By) -> tuple[Total, ...]:
        """Return what the consumers of a filter use. Cost: a look; a request for each consumer
        where it is asked who they are."""
        found = self._where(wanted)
        places = ConsumerFilter(tree=wanted.tree, provider=wanted.provider)
        if wanted == places and by in (By.RESOURCE_CLASS, By.PROVIDER):
            claims: Iterable[ConsumerRecord] = self._picture.claims(found)
        else:
            claims = self._allocations.held_by(self._claims(wanted, found)).values()
        return totals_of(claims, wanted, by, self._root_of(found))

    def held(self, consumer: str) -> ConsumerRecord | None:
        """Return what a consumer holds, None if nothing. A request, or two."""
        self._open()
        return self._allocations.held(consumer)

    def held_by(self, consumers: Collection[str]) -> dict[str, ConsumerRecord]:
        """Return what several consumers hold, by name: a request each, not of one moment."""
        self._open()
        return self._allocations.held_by(consumers)

    def outcome(self, operation: Operation) -> Outcome | None:
        """Return what an operation did that this backend carried out itself; no other is known."""
        self._open()
        with self._lock:
            return self._done.get(operation.id)

    def cursor(self) -> Cursor:
        """Look, and return the version of what was seen: a number of this process. A look.

        It is where snapshots go on from, and no place in a feed: it does not tell what others
        wrote where no generation does.
        """
        picture = self._open()
        picture.look()
        self._looked.is_so = True
        return picture.cursor

    def changes(self, after: Cursor, limit: int) -> tuple[FeedEntry, ...]:
        """Refuse: there is no feed."""
        return self._absent(Capability.FEED)

    def read_changed(self, after: Cursor, most: int, choose: Choose) -> Changed:
        """Return the trees that are others than at a version.

        Cost: a look, but for a thread whose last one was by :meth:`cursor`: it has just seen all.
        """
        picture = self._open()
        if not getattr(self._looked, "is_so", False):
            picture.look()
        self._looked.is_so = False
        return picture.changed(after, most, choose)

    # --- writing ---

    def check(self, write: Write) -> None:
        """Raise for what a Placement cannot keep of a write (see the contract)."""
        absent.check(write)
        self._allocations.check(write.orders)

    def commit(self, write: Write) -> tuple[ConsumerRecord, ...]:
        """Carry out a write.

        Orders alone are one request, and so whole or not at all; with inventories that change they
        are one too (``/reshaper``). Definitions and names are several.

        :raises NotSupported: for what cannot be kept, before anything is sent
        :raises LedgerError: if some requests were carried out, and one was refused
        """
        self._open()
        self._looked.is_so = False
        self.check(write)
        with self._lock:
            doing = self._doing.setdefault(write.operation.id, threading.Lock())
        with doing:  # whoever repeats it at the same moment waits for its outcome
            return self._commit(write)

    def _commit(self, write: Write) -> tuple[ConsumerRecord, ...]:
        done = self.outcome(write.operation)
        if done is not None:
            done.require(write.operation.id, write.kind, write.subject)
            return done.claims
        write.operation.require_known(clock.now(), RETENTION)
        changes = write.definitions
        settling: Settling | None = None
        steps = Steps(write.subject)
        with steps.told():
            for change in write.names:
                self._definitions.change_name(change, steps)
            if changes is not None:
                if write.orders:
                    updated = (one.definition for one in changes.updates)
                    defined = {one.uuid: one for one in (*changes.creates, *updated)}
                    settling = self._allocations.settle(write.orders, defined)
                self._definitions.write(changes, write.unchanged, settling, steps)
            elif write.orders:
                settling = self._allocations.carry_out(write.orders)
        claims = () if settling is None else settling.records
        self._remember(write, claims)
        return claims

    def _remember(self, write: Write, claims: tuple[ConsumerRecord, ...]) -> None:
        with self._lock:
            self._done[write.operation.id] = Outcome(write.kind, write.subject, claims)
            while len(self._done) > _REMEMBERED:
                self._done.popitem(last=False)

    def retain(self, age: datetime.timedelta) -> None:
        """Refuse: nothing is kept of what was done."""
        self._absent(Capability.FEED)

    def prune(self, before: datetime.datetime) -> Pruned:
        """Refuse: nothing is kept of what was done."""
        return self._absent(Capability.FEED)

    # --- what it cannot keep ---

    def list_server_groups(
        self, limit: int, after: str | None = None, *, names: Collection[str] | None = None
    ) -> tuple[ServerGroup, ...]:
        """Refuse: there are none."""
        return self._absent(Capability.SERVER_GROUPS)

    def wait(self, order: WaitOrder) -> Waiter:
        """Refuse: there is no queue."""
        return self._absent(Capability.WAITING)

    def list_waiters(self, wanted: WaiterFilter, limit: int, after: int = 0) -> tuple[Waiter, ...]:
        """Refuse: there is no queue."""
        return self._absent(Capability.WAITING)

    def leave(self, entry: str) -> None:
        """Refuse: there is no queue."""
        self._absent(Capability.WAITING)

    def put_statistics(self, order: StatisticsOrder) -> int:
        """Refuse: there are none."""
        return self._absent(Capability.STATISTICS)

    def read_statistics(self, wanted: StatisticFilter) -> StatisticsByProvider:
        """Refuse: there are none."""
        return self._absent(Capability.STATISTICS)

    def forget_statistics(self, wanted: StatisticFilter) -> int:
        """Refuse: there are none."""
        return self._absent(Capability.STATISTICS)

    def use_between(
        self,
        since: datetime.datetime,
        until: datetime.datetime | None,
        wanted: UseFilter,
        by: Sequence[UseBy],
    ) -> UseReport:
        """Refuse: nothing is kept of the past."""
        return self._absent(Capability.USE_OVER_TIME)

    def _absent(self, ability: Capability) -> NoReturn:
        self._open()
        raise absent.refusal(ability)

    def _open(self) -> Picture:
        if self._closed:
            raise exceptions.DatabaseError("closed", self._client.where)
        return self._picture
