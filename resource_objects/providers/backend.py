"""The contract of a backend: where a ledger is stored.

A backend stores providers with their inventories, and consumers with their claims and allocations.
It has no requests, candidates or hosts: a search reads :class:`Columns`, and the result is decided
again when it is written.

The rules of a write are not a part of a backend. :meth:`Backend.carry_out` loads the rows that a
write concerns, with their locks, into :class:`~resource_objects.store.rows.Rows` or behind
:class:`~resource_objects.store.decide.OrderRows`. It runs the rules of
:mod:`resource_objects.store` on them, and stores the changed rows (the journal) in the same
transaction. If a rule raises, it rolls back. A backend that loads all rows derives from
:class:`~resource_objects.backends.memory.RowsBackend`, which implements the contract on them.

The queue of waiting consumers and the statistics of providers are written by methods of their own.
Searches and claims do not read them, and the change feed does not report them.

The invariants hold for any number of threads and processes, and a kill at any instruction:

* A :class:`~resource_objects.providers.orders.Write` is carried out completely or not at all.
* ``used`` of an inventory is the sum of the allocations there and of those that share it, times
  their factors. No write raises it above the capacity; a write that does not raise it is not
  refused for the capacity. Orders are decided on rows that no other write can change until the
  commit.
* A unit is allocated to one consumer.
* Members of a server group with a strict policy are on one host, or on different hosts, whatever is
  written concurrently.
* No write that commits after a provider was disabled allocates from it or from a provider below it,
  unless the order overrides that. Disabling ends by the ledger's clock.
* A write whose operation is recorded returns the recorded outcome and changes nothing. An operation
  is identified by its id, and is one kind of write for one subject (the name of the root, the
  consumer). The amounts do not count, because a retry may have searched again. The same id with
  another kind or subject is refused (``Conflict``, code ``OperationConflict``).
* Definitions change only at the generation at which they were compared. Orders neither read nor
  change it, unless the write requires that (``Write.unchanged``). A rename changes the generation
  of all providers whose definition contains the name. No generation is used twice, also not for a
  provider that is created again with its uuid.
* Shares stay within their tree, have a target other than their source, and are flat
  (:func:`~resource_objects.providers.provider.broken_share`).
* The change feed reports every write, in the order of its shard, as soon as it can be read.
* In the queue an earlier arrival has a smaller number. An entry that is not renewed ends by the
  ledger's clock.
* Statistics are deleted with their provider, and written only where a value changes.

The number of statements of a method does not grow with the number of its names or providers.

:mod:`resource_objects.testing.conformance` has the tests of this contract, for any backend.
"""

from __future__ import annotations

import abc
import dataclasses
import datetime
import enum
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Self, TypeAlias

from resource_objects import exceptions
from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import DefinitionChanges
from resource_objects.providers.feed import Cursor, FeedEntry
from resource_objects.providers.listing import (
    DESCRIPTIONS,
    By,
    ConsumerFilter,
    Description,
    ListedName,
    ListedProvider,
    ProviderFilter,
    Pruned,
    Total,
)
from resource_objects.providers.orders import (
    Change,
    ConsumerOrder,
    ConsumerRecord,
    NameKind,
    Operation,
    Outcome,
    Write,
)
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.providers.statistics import (
    StatisticFilter,
    StatisticsByProvider,
    StatisticsOrder,
)
from resource_objects.providers.use_over_time import UseBy, UseFilter, UseReport
from resource_objects.providers.waiting import Waiter, WaiterFilter, WaitOrder


class Capability(enum.Enum):
    """A part of the contract that some backends do not support; the value names it in a refusal.

    A backend lists the parts that it lacks in :attr:`Backend.unsupported`. It refuses a write that
    needs one before anything is sent (:class:`~resource_objects.exceptions.NotSupported`).

    >>> Capability.EXPIRY.value
    'claims that expire'
    """

    UNITS = "units taken by name (CPUs, devices)"
    TOPOLOGIES = "topologies and devices over a tree"
    SHARES = "shares between inventories"
    EXPIRY = "claims that expire"
    CONFIRMING = "claims that are held first and confirmed later"
    CLAIM_IDS = "a claim id of the caller's own"
    REQUESTS = "the request that a consumer was made for"
    LIMITS = "limits of a single claim"
    UNCHANGED = "claims that demand an unchanged definition"
    AGGREGATES_ALONE = "aggregates that are made, renamed or removed by themselves"
    LEVELS = "levels of aggregates"
    RENAMED_TRAITS = "traits that are renamed"
    CONSUMER_TYPES = "consumer types of this form"
    ADOPTING = "consumers that stand for many, and what is adopted"
    REPORTS = "when a host reported"
    DISABLING = "providers out of service, with a reason"
    SERVER_GROUPS = "server groups"
    FEED = "a change feed"
    WAITING = "claims that wait in a queue"
    STATISTICS = "statistics"
    USE_OVER_TIME = "use over time"
    REPARENTING = "providers that are moved"


# --- the refresh of a snapshot --------------------------------------------------------------------
#
# A refresh does not read everything again. The change feed lists the providers that changed, and
# only their trees are read, at the same moment (``Backend.read_changed``).


@dataclasses.dataclass(frozen=True, slots=True)
class Touched:
    """The providers and uses that some entries of the feed changed.

    ``is_wide`` is True if an entry names neither providers nor consumers. It created, renamed or
    removed a class, trait or aggregate, so any provider may have changed.

    >>> Touched.of([]).is_wide
    False
    """

    definitions: frozenset[str] = frozenset()  #: uuids of providers whose definition changed
    uses: tuple[Change, ...] = ()  #: allocated and released amounts, in the order of each shard
    reports: frozenset[str] = frozenset()  #: uuids of providers that reported or were adopted
    is_wide: bool = False
    disabled: frozenset[str] = frozenset()  #: uuids of providers that were disabled or enabled

    @classmethod
    def of(cls, entries: Iterable[FeedEntry]) -> Self:
        """Return the providers and uses that entries changed."""
        entries = tuple(entries)
        return cls(
            frozenset(uuid for entry in entries for uuid in entry.definitions),
            tuple(use for entry in entries for use in entry.uses),
            frozenset(uuid for entry in entries for uuid in entry.reports),
            any(not (entry.providers or entry.consumers) for entry in entries),
            frozenset(change.provider_uuid for entry in entries for change in entry.disabled),
        )

    @property
    def changed(self) -> frozenset[str]:
        """The uuids of changed providers; a report alone is no change."""
        used = {use.key[0] for use in self.uses}
        return self.definitions | self.disabled | used

    @property
    def providers(self) -> frozenset[str]:
        """The uuids of all providers concerned, without the targets of shares."""
        return self.changed | self.reports


#: Returns uuids of providers of all trees to read, or None to read nothing, from the changes. It is
#: called within a transaction, so it must not block.
Choose: TypeAlias = Callable[[Touched], "Collection[str] | None"]


@dataclasses.dataclass(frozen=True, slots=True)
class Changed:
    """The changes after a cursor.

    ``cursor`` is the head of the feed, ``changes`` the number of changes after the first cursor; a
    minimum if the trees were not read. ``columns`` are the requested trees, complete and with their
    allocations. They are None if they were not read, because there were too many changes, or
    ``choose`` returned None. Then the caller must read everything.
    """

    cursor: Cursor
    changes: int
    columns: Columns | None


#: The default retention of operations and changes.
RETENTION = datetime.timedelta(days=7)
#: The number of consumers that a default implementation reads at a time.
PAGE = 1000


class AlreadyRecorded(exceptions.LedgerError):
    """The operation of a write is recorded already; the write changed nothing."""

    def __init__(self, operation: str) -> None:
        super().__init__("recorded operation", operation)
        self.args = (operation,)


class Backend(abc.ABC):
    """The store of a ledger, safe for use by several threads.

    The methods of an optional capability refuse by default: server groups, the feed, the queue,
    statistics, and use over time.
    """

    #: The capabilities that the backend lacks. It refuses them by name before it writes.
    unsupported: ClassVar[frozenset[Capability]] = frozenset()

    @classmethod
    @abc.abstractmethod
    def open(cls, url: str) -> Self:
        """Open the ledger of a URL; an embedded database is upgraded.

        The standard resource classes and traits exist afterwards. A file that does not exist is
        created by the first write, and reads as a new ledger until then.

        :raises InvalidInput: if this backend has no such URL
        :raises DatabaseError: if the database cannot be reached, is no ledger, was made by a newer
            library, or is on a server and needs :meth:`upgrade_database`
        """

    def is_missing(self) -> bool:
        """Return whether the ledger is a file that does not exist until the first write."""
        return False

    @classmethod
    def open_with(cls, url: str, session: Any) -> Self:
        """Open a remote ledger with a session of the caller.

        :raises InvalidInput: if a ledger of this kind is opened by its URL alone
        """
        raise exceptions.InvalidInput("URL", "ledger URL", url, "no session: this is no Placement")

    @classmethod
    def upgrade_database(cls, url: str) -> list[str]:
        """Upgrade a database that is empty or too old for :meth:`open`; return the steps' names.

        It can run concurrently, and again after an interruption. Errors are those of :meth:`open`.
        """
        backend = cls.open(url)
        try:
            return backend.upgrade()
        finally:
            backend.close()

    @classmethod
    def database_status(cls, url: str) -> dict[str, str]:
        """Return whether this library can use a database, in words; an old schema is no error."""
        cls.open(url).close()
        return {"database": url, "status": "this library may use it"}

    @abc.abstractmethod
    def close(self) -> None:
        """Close every connection. Closing twice is allowed."""

    def upgrade(self) -> list[str]:
        """Upgrade the schema to that of this library; return the names of the steps."""
        return []

    def require(self, *capabilities: Capability) -> None:
        """Raise ``NotSupported`` for the first unsupported one of some capabilities."""
        for capability in capabilities:
            if capability in self.unsupported:
                raise self.refusal(capability)

    def refusal(self, capability: Capability) -> exceptions.NotSupported:
        """Return the error for an unsupported capability."""
        return exceptions.NotSupported("capability", capability.value)

    def check(self, write: Write) -> None:
        """Raise ``NotSupported`` if a write needs an unsupported capability; send nothing."""
        return  # most backends support every capability

    # --- reading: never writes ---

    @abc.abstractmethod
    def now(self) -> datetime.datetime:
        """Return the present time by the ledger's clock, which judges expiry, retention and age.

        Cost: one small statement on a server.
        """

    @abc.abstractmethod
    def read(self, *trees: str, allocations: bool = True) -> Columns:
        """Return all trees, or some, at one moment.

        :param trees: the name or uuid of any provider of each tree, unknown ones are ignored;
            without any, all trees are returned
        :param allocations: whether to read allocations and units, which may be many
        """

    def read_again(self, before: Columns, *trees: str) -> Columns:
        """Return trees that were read before in their present state, for another decision.

        If no provider has another generation, a backend may read only the use, the allocated units
        and the disabled providers. The rest is that of ``before``, without allocations and without
        ``cursor``. This default reads everything.

        :param before: the complete trees as they were read
        :param trees: the uuids of their roots
        """
        return self.read(*trees)

    @abc.abstractmethod
    def uuids(self, names: Collection[str]) -> dict[str, str]:
        """Return ``{name: uuid}`` of the stored providers of some names."""

    @abc.abstractmethod
    def list_providers(
        self, criteria: ProviderFilter, limit: int, after: int = 0
    ) -> tuple[ListedProvider, ...]:
        """Return a page of providers, in the order of their creation.

        :param after: ``number`` of the last provider of the page before
        """

    @abc.abstractmethod
    def list_consumers(
        self, criteria: ConsumerFilter, limit: int, after: str | None = None
    ) -> tuple[ConsumerRecord, ...]:
        """Return a page of consumers with their allocations, by name (code points).

        :param after: the name of the last consumer of the page before
        """

    @abc.abstractmethod
    def list_names(
        self, kind: NameKind, limit: int, after: str | None = None
    ) -> tuple[ListedName, ...]:
        """Return a page of resource classes, traits or aggregates, by name (code points)."""

    def list_server_groups(
        self, limit: int, after: str | None = None, *, names: Collection[str] | None = None
    ) -> tuple[ServerGroup, ...]:
        """Return a page of server groups with their members, by name (code points). One query.

        :param names: only these groups; None: all
        """
        raise self.refusal(Capability.SERVER_GROUPS)

    @abc.abstractmethod
    def totals(self, criteria: ConsumerFilter, by: By) -> tuple[Total, ...]:
        """Return the sums used by the consumers of a filter, by group and class, without zeros.

        With ``provider`` or ``tree`` only the use there counts.
        """

    def count_consumers(
        self, criteria: ConsumerFilter, by: Description
    ) -> Mapping[str | None, int]:
        """Return the number of consumers of a filter by their description (None: without one).

        This default lists them all. A backend that can count overrides it.
        """
        counts: Counter[str | None] = Counter()
        described = attrgetter(DESCRIPTIONS[by].attribute)
        page = self.list_consumers(criteria, PAGE)
        while page:
            counts.update(map(described, page))
            page = self.list_consumers(criteria, PAGE, page[-1].consumer)
        return counts

    def consumer(self, consumer: str) -> ConsumerRecord | None:
        """Return the record of a consumer, None if it does not exist."""
        return self.held_by([consumer]).get(consumer)

    @abc.abstractmethod
    def held_by(self, consumers: Collection[str]) -> dict[str, ConsumerRecord]:
        """Return the records of those of some consumers that exist, by name, at one moment."""

    @abc.abstractmethod
    def outcome(self, operation: Operation) -> Outcome | None:
        """Return the outcome of an operation, None if none of that id is recorded."""

    @abc.abstractmethod
    def cursor(self) -> Cursor:
        """Return the end of the change feed. Cost: one small statement."""

    def changes(self, after: Cursor, limit: int) -> tuple[FeedEntry, ...]:
        """Return at most ``limit`` changes after a cursor, of each shard in its order.

        A page is taken in the order of time as far as that is known, so a shard with many changes
        does not starve the others.

        :raises Expired: if changes after the cursor were pruned, or it is ahead of the feed
        """
        raise self.refusal(Capability.FEED)

    @abc.abstractmethod
    def read_changed(self, after: Cursor, most: int, choose: Choose) -> Changed:
        """Return the trees that were touched after a cursor, at one moment, to refresh a snapshot.

        Everything committed before the call is included.

        :param most: if there are more changes, nothing is read
        :param choose: returns the uuids of providers of the trees to read, or None to read nothing
        :raises Expired: if changes after the cursor were pruned, or it is ahead of the feed
        """

    # --- the queue ---

    def wait(self, order: WaitOrder) -> Waiter:
        """Put a consumer into the queue, or renew its lease there; return its place.

        A consumer in the queue that waits for the same keeps its number; its entry becomes that of
        the order, unless the order renews. One that waits for something else, or whose lease is
        over, gets a new number, above those of all others: numbers are in the order of arrival.
        Waiters whose lease is over are deleted.
        """
        raise self.refusal(Capability.WAITING)

    def list_waiters(
        self, criteria: WaiterFilter, limit: int, after: int = 0
    ) -> tuple[Waiter, ...]:
        """Return a page of the queue by number, without consumers whose lease is over.

        :param after: ``number`` of the last waiter of the page before
        """
        raise self.refusal(Capability.WAITING)

    def leave(self, entry: str) -> None:
        """Remove an entry from the queue, if it exists."""
        raise self.refusal(Capability.WAITING)

    # --- statistics ---

    def put_statistics(self, order: StatisticsOrder) -> int:
        """Store the statistics that a source reports; return the number of changed values.

        One transaction writes all; nothing is written if no value changes and ``reported`` is
        empty. A value without ``since`` gets the time of the ledger's clock.

        :raises NotFound: if a provider of ``values`` or ``reported`` does not exist
        """
        raise self.refusal(Capability.STATISTICS)

    def read_statistics(self, criteria: StatisticFilter) -> StatisticsByProvider:
        """Return the statistics of a filter, by name of the provider and of the statistic.

        Providers are in the order of their creation, statistics by name. Providers without any are
        left out.
        """
        raise self.refusal(Capability.STATISTICS)

    def forget_statistics(self, criteria: StatisticFilter) -> int:
        """Delete the statistics of a filter; return the number of values."""
        raise self.refusal(Capability.STATISTICS)

    # --- writing ---

    def commit(self, write: Write) -> tuple[ConsumerRecord, ...]:
        """Carry out a write completely or not at all; return a record per order.

        A record describes the consumer after the write. Of a consumer that is deleted, it has the
        state ``released`` and the released allocations (after an adjustment or a replacement that
        leaves none: no allocations). A repeated operation returns its recorded outcome; a class
        that was renamed since may have either name. The outcome is looked up after a refusal.

        Faults of names and definitions are raised first, then those of the orders, then providers
        in use by ``removals``, then inventories in use by ``updates`` and their ``removed``.

        :raises Conflict: if the operation's id was used for something else, or another claim has
            the id of a claim to make
        :raises NotFound: if a provider of ``reported``, ``adopted`` or ``disabling``, a name to
            change, or a server group to remove or to join does not exist
        :raises InvalidInput: if a provider would be disabled until a moment that is over
        :raises Stale: if a definition to change, or to stay unchanged, has another generation, or
            shares would break their rules
        :raises AlreadyExists: if a name or uuid to create exists, or a server group with another
            policy
        :raises InUse: if a provider to remove has allocations, an inventory or name to remove is
            used, or a server group to remove has members
        :raises NotSupported: if a standard name would be renamed or deleted
        :raises Expired: if the operation was made more than the retention less an hour ago, and is
            not recorded
        :raises ResourceObjectsError: as :func:`~resource_objects.store.decide.decide`
        """
        try:
            return self.carry_out(write)
        except exceptions.DatabaseError:  # reading the outcome would fail too
            raise
        except exceptions.ResourceObjectsError:
            outcome = self.outcome(write.operation)
            if outcome is None:
                raise
        outcome.require(write.operation.id, write.kind, write.subject)
        return outcome.claims

    @abc.abstractmethod
    def carry_out(self, write: Write) -> tuple[ConsumerRecord, ...]:
        """Carry out a write in one transaction; return a record per order.

        The operation is recorded in the same transaction. Errors are those of :meth:`commit`.

        :raises AlreadyRecorded: if it is recorded already
        """

    def retain(self, age: datetime.timedelta) -> None:
        """Set how long operations and changes are stored (:data:`RETENTION` by default).

        Writes delete older ones in small steps. A cursor that needs a deleted change expires. The
        repetition of a deleted operation is refused if its id has a creation time, else it is
        carried out again. So ``age`` must exceed the time after which a caller repeats a write.
        """
        raise self.refusal(Capability.FEED)

    def prune(self, before: datetime.datetime) -> Pruned:
        """Delete operations and changes older than a moment at once."""
        raise self.refusal(Capability.FEED)

    # --- use over time ---

    def use_between(
        self,
        since: datetime.datetime,
        until: datetime.datetime | None,
        criteria: UseFilter,
        by: Sequence[UseBy],
    ) -> UseReport:
        """Return what was used between two moments, summed by groups and class.

        It is computed from the change feed (:func:`.providers.use_over_time.report`). A consumer
        counts for its last user and project, a class under its name at the time.

        :param until: None: now
        :param by: the dimensions of a group, in addition to the class
        :raises InvalidInput: if ``since`` is in the future by the ledger's clock, or the filter has
            more names than a database takes
        :raises NotFound: if a class of the filter does not exist and was not used
        """
        raise self.refusal(Capability.USE_OVER_TIME)

    # --- writing, in short ---

    def define(self, operation: Operation, changes: DefinitionChanges) -> None:
        """Apply changes of definitions, all or none."""
        self.commit(Write(operation, "define", changes.root, changes))

    def claim(self, operation: Operation, order: ConsumerOrder) -> ConsumerRecord:
        """Allocate all uses of an order to a new consumer, or none."""
        return self.commit(Write(operation, "claim", order.consumer, orders=(order,)))[0]

    def adjust(self, operation: Operation, order: ConsumerOrder) -> ConsumerRecord:
        """Change the allocations of a consumer by all uses of an order, or by none."""
        return self.commit(Write(operation, "adjust", order.consumer, orders=(order,)))[0]

    def release(self, operation: Operation, consumer: str) -> ConsumerRecord:
        """Release all allocations of a consumer and delete it; return its last record."""
        order = ConsumerOrder.release(consumer)
        return self.commit(Write(operation, "release", consumer, orders=(order,)))[0]
