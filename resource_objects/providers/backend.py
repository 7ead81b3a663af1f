"""The contract of a backend: where a ledger is stored.

A backend stores providers with their inventories, traits, aggregates and shares, and consumers with
their claims and allocations. It knows nothing of requests, candidates or hosts: a search reads
:class:`Columns`, and the backend decides again when the result is written.

A backend **reads**: columns of trees, pages of lists, and the trees that changed since a cursor. It
**writes** by one method, :meth:`Backend.commit`. What a write does is not a part of a backend. The
backend loads the rows that the write is about, with their locks, into
:class:`~resource_objects.store.rows.Rows` or behind
:class:`~resource_objects.store.decide.OrderRows`. It runs the rules of
:mod:`resource_objects.store` on them, and writes the rows that changed (the journal) in the same
transaction. If a rule raises, the backend rolls back.

The queue of waiting consumers and the statistics of providers are written by methods of their own.
No search and no claim reads them, and the change feed does not report them.

The laws a backend keeps, under any number of threads and processes and a kill at any instruction:

* every :class:`~resource_objects.providers.orders.Write` happens whole or not at all;
* ``used`` of an inventory is the sum of the allocations there and of those that share it, times
  their shares; a write that increases it never takes it above the capacity (one that does not is
  never refused for that). What orders come to is decided by
  :func:`~resource_objects.store.decide.decide`, on rows nobody else can change meanwhile;
* a unit belongs to one consumer;
* members of a server group whose policy is strict are on one host, or on different ones: no write
  that is committed puts one where the policy does not want it, whoever else writes meanwhile;
* of a provider that is disabled (``Write.disabling``), and of all below it, no write that is
  committed later takes anything, unless its order overrides it; it ends by the ledger's clock;
* a write whose operation was done before returns the recorded outcome and does nothing. An
  operation is one kind of write for one subject (the root's name, the consumer); the amounts do
  not count, because a retry may have searched again. The same id for another kind or subject is
  refused (``OperationConflict``);
* definitions change only at the generation they were compared with; orders neither look at nor
  change it, unless the write demands it (``Write.unchanged``). A rename moves all whose definition
  says the name to another generation. None is given twice, nor to a provider that is made again
  with its uuid;
* shares stay within their tree, of something else, and flat
  (:func:`~resource_objects.providers.provider.check_shares`), whoever states them;
* the change feed tells every write, in the order of its shard, as soon as it can be read;
* of those who wait, whoever came earlier has the smaller number; one that does not renew is gone by
  the ledger's clock;
* statistics are deleted with their provider, and written only where the value changes.

:mod:`resource_objects.testing.conformance` holds the tests every backend passes, also yours.
"""

from __future__ import annotations

import abc
import datetime
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Self

from resource_objects import exceptions
from resource_objects.providers.capabilities import Capability
from resource_objects.providers.changed import Changed, Choose, Touched
from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import DefinitionChanges
from resource_objects.providers.feed import Cursor, FeedEntry
from resource_objects.providers.listing import (
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
    ConsumerOrder,
    ConsumerRecord,
    NameKind,
    Operation,
    Outcome,
    Use,
    Write,
)
from resource_objects.providers.selection import count_by
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.providers.statistics import (
    StatisticFilter,
    StatisticsByProvider,
    StatisticsOrder,
)
from resource_objects.providers.use_over_time import UseBy, UseFilter, UseReport
from resource_objects.providers.waiting import Waiter, WaiterFilter, WaitOrder

__all__ = [
    "Backend",
    "ConsumerOrder",
    "ConsumerRecord",
    "Operation",
    "Outcome",
    "Use",
]


#: The default retention of operations and changes.
RETENTION = datetime.timedelta(days=7)

#: How often ``Backend.read_changed`` looks again, when somebody wrote between two of its steps.
TRIES = 5
#: How many changes it reads at a time.
PAGE = 1000


class Backend(abc.ABC):
    """The store of a ledger, safe for use by several threads."""

    #: The capabilities that the backend lacks. It refuses them by name before it writes.
    unsupported: ClassVar[frozenset[Capability]] = frozenset()

    @classmethod
    @abc.abstractmethod
    def open(cls, url: str) -> Self:
        """Open what ``url`` names; an embedded one is upgraded.

        A file that does not exist is created by the first write, and reads as empty until then.

        The standard resource classes and traits are there afterwards, unless it cannot be written.

        :raises InvalidURL: if the URL is none of this backend's
        :raises DatabaseError: if it cannot be reached or is no ledger; if a newer library made it;
            if it is a server's and needs :meth:`upgrade_database`
        """

    def is_missing(self) -> bool:
        """Return whether it is a file that does not exist until the first write."""
        return False

    @classmethod
    def open_with(cls, url: str, session: Any) -> Self:
        """Open what ``url`` names by somebody's session: only where that is over a network.

        :raises InvalidURL: if a ledger of this kind is opened by its URL alone
        """
        raise exceptions.InvalidURL("ledger URL with a session", url, "one of a remote Placement")

    @classmethod
    def upgrade_database(cls, url: str) -> list[str]:
        """Bring what ``url`` names to this library's schema; return the steps that were run.

        For a database that :meth:`open` refuses as too old: an empty one, or an older library's.
        Safe while others do the same, and again after it was cut short. Errors are those of
        :meth:`open`.
        """
        backend = cls.open(url)
        try:
            return backend.upgrade()
        finally:
            backend.close()

    @classmethod
    def database_status(cls, url: str) -> dict[str, str]:
        """Return what ``url`` names is to this library, in words; nothing is changed.

        Errors are those of :meth:`open`, but a schema that is too old or too new is only told.
        """
        cls.open(url).close()
        return {"database": url, "status": "this library may use it"}

    @abc.abstractmethod
    def close(self) -> None:
        """Give back every connection. Closing twice is allowed."""

    def upgrade(self) -> list[str]:
        """Bring the schema up to this library's; return the names of the steps that were run."""
        return []

    def require(self, *capabilities: Capability) -> None:
        """Raise for the first of some capabilities that is unsupported.

        :raises NotSupported: naming it
        """
        for capability in capabilities:
            if capability in self.unsupported:
                raise exceptions.NotSupported("capability", capability.value)

    def check(self, write: Write) -> None:
        """Raise if a write needs an unsupported capability; sends nothing, for dry runs.

        :raises NotSupported: naming it
        """
        return  # most backends support every capability

    # --- reading: never writes ---

    @abc.abstractmethod
    def now(self) -> datetime.datetime:
        """Return this moment by the ledger's clock, which all that use the ledger share.

        Whatever it keeps or judges of times goes by it (expiry, retention, the age of operations),
        never by the clock of whoever asks. Cost: one small statement on a server.
        """

    @abc.abstractmethod
    def read(self, *trees: str, allocations: bool = True) -> Columns:
        """Return everything kept, or some trees, at one moment.

        :param trees: name or uuid of any provider of each tree; unknown ones give nothing. None
            given: everything
        :param allocations: whether to read allocations and units, which may be many
        """

    def read_again(self, before: Columns, *trees: str) -> Columns:
        """Return trees that were read before, as they are now, for who decides on them once more.

        What trees are changes seldom, what is used of them with each claim. Where none of their
        providers is at another generation, a backend may read what is used alone, the units that
        are taken, and what is out of service; the rest is that of ``before``, as is when a host
        reported and was adopted. It then leaves out allocations, and ``cursor``, which says so.
        This default reads all of it.

        :param before: the whole of these trees as they were read once; what was used does not count
        :param trees: the uuids of their roots
        """
        return self.read(*trees)

    @abc.abstractmethod
    def uuids(self, names: Collection[str]) -> dict[str, str]:
        """Return ``{name: uuid}`` of the providers of these names that are kept."""

    @abc.abstractmethod
    def list_providers(
        self, criteria: ProviderFilter, limit: int, after: int = 0
    ) -> tuple[ListedProvider, ...]:
        """Return a page of providers, in the order they were created.

        :param after: ``number`` of the last one of the page before
        """

    @abc.abstractmethod
    def list_consumers(
        self, criteria: ConsumerFilter, limit: int, after: str | None = None
    ) -> tuple[ConsumerRecord, ...]:
        """Return a page of consumers with what they hold, by name (code points).

        :param after: name of the last one of the page before
        """

    @abc.abstractmethod
    def list_names(
        self, kind: NameKind, limit: int, after: str | None = None
    ) -> tuple[ListedName, ...]:
        """Return a page of resource classes, traits or aggregates, by name (code points)."""

    @abc.abstractmethod
    def list_server_groups(
        self, limit: int, after: str | None = None, *, names: Collection[str] | None = None
    ) -> tuple[ServerGroup, ...]:
        """Return a page of server groups with their members, by name (code points). One query.

        :param names: of these alone; None: of all
        """

    @abc.abstractmethod
    def totals(self, criteria: ConsumerFilter, by: By) -> tuple[Total, ...]:
        """Return what the consumers of a filter use, by group and class (``sorted_totals``).

        With ``provider`` or ``tree`` only what they use there. Groups that use nothing are not
        in it.
        """

    def count_consumers(
        self, criteria: ConsumerFilter, by: Description
    ) -> Mapping[str | None, int]:
        """Return how many consumers of a filter there are, by what describes them (None: nothing).

        This default lists them all. A backend that can count does, which costs less.
        """
        found: Counter[str | None] = Counter()
        page = self.list_consumers(criteria, PAGE)
        while page:
            found += count_by(page, by)
            page = self.list_consumers(criteria, PAGE, page[-1].consumer)
        return found

    @abc.abstractmethod
    def held(self, consumer: str) -> ConsumerRecord | None:
        """Return what a consumer holds, None if nothing."""

    @abc.abstractmethod
    def held_by(self, consumers: Collection[str]) -> dict[str, ConsumerRecord]:
        """Return what several consumers hold, by name, at one moment; those that hold nothing
        are left out. The number of statements does not grow with theirs."""

    @abc.abstractmethod
    def outcome(self, operation: Operation) -> Outcome | None:
        """Return what an operation did, None if none of that id is recorded."""

    @abc.abstractmethod
    def cursor(self) -> Cursor:
        """Return where the change feed is now. Cost: one small statement."""

    @abc.abstractmethod
    def changes(self, after: Cursor, limit: int) -> tuple[FeedEntry, ...]:
        """Return at most ``limit`` changes after a cursor, of each shard in its order.

        Also of shards that get many changes the others are not starved: a page is taken in the
        order of time as far as it is known.

        :raises Expired: if changes after it were pruned, or it is ahead of the feed
        """

    def read_changed(self, after: Cursor, most: int, choose: Choose) -> Changed:
        """Return the trees that were touched after a cursor, as they are at one moment.

        What keeps a snapshot fresh. Whoever applies the trees to a picture that was right at
        ``after`` has one that is right at the cursor returned: everything committed before the call
        is in it. This default is made of :meth:`cursor`, :meth:`changes` and :meth:`read`: changes
        first, trees then, and again if somebody wrote in between, which the cursor of the trees
        tells. A backend that can do it in one transaction does, which costs less, and is not
        disturbed by those who write meanwhile.

        :param most: of more changes than so many, nothing is read
        :param choose: is told whom the changes touched, and says of which trees to read all (by
            uuids of their providers; those not there give nothing), or None to read nothing
        :raises Expired: if changes after it were pruned, or it is ahead of the feed
        """
        found: list[FeedEntry] = []
        at, now = after, self.cursor()
        for _ in range(TRIES):
            while at != now:
                page = self.changes(at, min(PAGE, most + 1 - len(found)))
                if not page:  # it is further than where the feed was
                    break
                found += page
                at = at.moved(page)
                if len(found) > most:
                    return Changed(at, len(found), None)
            keys = choose(Touched.of(found))
            if keys is None:
                break
            columns = self.read(*keys) if keys else Columns(cursor=at)
            if columns.cursor is None or _are_names(keys, columns):
                break
            if columns.cursor == at:
                return Changed(at, len(found), columns)
            now = columns.cursor
        return Changed(at, len(found), None)

    # --- waiting ---

    @abc.abstractmethod
    def wait(self, order: WaitOrder) -> Waiter:
        """Put a consumer into the queue, or keep it there for another lease; return its place.

        A consumer that is there and waits for the same keeps its number; the entry becomes that of
        the order, unless it renews. One that waits for something else, or whose lease is over, is
        given a new number, above those of all that are there. Numbers are drawn by what keeps the
        ledger, so that they are in the order of arrival; of those who come at the very same time
        either may be the first. Waiters whose lease is over are forgotten. Nothing of it is told in
        the change feed. Cost: a transaction of few statements.
        """

    @abc.abstractmethod
    def list_waiters(
        self, criteria: WaiterFilter, limit: int, after: int = 0
    ) -> tuple[Waiter, ...]:
        """Return a page of those in the queue, by number, without those whose lease is over.

        :param after: ``number`` of the last one of the page before
        """

    @abc.abstractmethod
    def leave(self, entry: str) -> None:
        """Remove the entry of a consumer from the queue, if it exists."""

    # --- statistics ---

    @abc.abstractmethod
    def put_statistics(self, order: StatisticsOrder) -> int:
        """Write the statistics that a source reports; return the number of changed values.

        One transaction writes all; the number of statements does not grow with the providers. If no
        value changes and no provider reports, nothing is written. A value without ``since`` gets
        the time of the ledger's clock.

        :raises NotFound: if one of ``values`` or ``reported`` is not there
        """

    @abc.abstractmethod
    def read_statistics(self, criteria: StatisticFilter) -> StatisticsByProvider:
        """Return the statistics of a filter, by name of the provider and of the statistic.

        Providers come in the order they were created, statistics by name; a provider without any
        is left out. The number of statements does not grow with the providers.
        """

    @abc.abstractmethod
    def forget_statistics(self, criteria: StatisticFilter) -> int:
        """Delete the statistics that match a filter; return the number of values."""

    # --- writing ---

    @abc.abstractmethod
    def commit(self, write: Write) -> tuple[ConsumerRecord, ...]:
        """Carry out a write, whole or not at all; return a record per order.

        A record tells the consumer as it is now (``generation`` included); of a consumer that is
        forgotten, what it held, with state ``released`` (an adjustment or replacement that leaves
        nothing: that it holds nothing). An operation that is repeated returns what it did, told as
        if it came now; a class that was renamed meanwhile may be called by either name.

        Of several faults in what goes, the first in this order is told, after every fault of the
        orders: providers in use, in the order of ``removals``; inventories in use, in the order of
        ``updates`` and of each one's ``removed``.

        :raises Conflict: if the operation's id was used for something else, or the id of a claim to
            make is another claim's
        :raises NotFound: if one of ``reported``, ``adopted`` or ``disabling`` is not there; if a
            name to rename, delete or give a level is not there; if a group to remove, or to be in,
            is not there
        :raises InvalidInput: if one would be disabled until what is over by the ledger's clock
        :raises Stale: if a definition, or one that must be unchanged, is not at its generation any
            more, or shares would not be as they must
        :raises AlreadyExists: if a name or uuid to create is taken; if a new name is taken; if a
            group to make is there and asks something else
        :raises InUse: if one to remove has allocations; if an inventory to remove is used; if a
            group to remove has members; if a name to delete is used
        :raises NotSupported: if a standard name would be renamed or deleted
        :raises Expired: if it is older than what is kept, and not known
        :raises ResourceObjectsError: whatever :func:`~resource_objects.store.decide.decide` refuses
        """

    @abc.abstractmethod
    def retain(self, age: datetime.timedelta) -> None:
        """Keep operations and changes for so long from now on: :data:`RETENTION` unless told.

        What is older is forgotten in small steps by those who write. Cursors that need a forgotten
        change expire. An operation that is repeated after it was forgotten is refused where its id
        says when it was made (:class:`Operation`); with an id of somebody else's it is done again,
        so ``age`` is longer than anybody waits.
        """

    @abc.abstractmethod
    def prune(self, before: datetime.datetime) -> Pruned:
        """Forget operations and changes older than a moment at once."""

    # --- use over time ---

    @abc.abstractmethod
    def use_between(
        self,
        since: datetime.datetime,
        until: datetime.datetime | None,
        criteria: UseFilter,
        by: Sequence[UseBy],
    ) -> UseReport:
        """Return what was used between two moments, summed by groups and class.

        It is computed from the change feed, by :func:`.providers.use_over_time.report`. A consumer
        counts for the user and project that it had last, a class under its name at the time.

        :param until: None: now
        :param by: each once; in addition to the class
        :raises InvalidInput: if ``since`` is in the future by the ledger's clock, or the filter has
            more names than a database takes
        :raises NotFound: if a class of the filter does not exist and was not used
        """

    # --- writing, in short ---

    def define(self, operation: Operation, changes: DefinitionChanges) -> None:
        """Apply changes of definitions, all or none, and bump the generation of each provider."""
        self.commit(Write(operation, "define", changes.root, changes))

    def claim(self, operation: Operation, order: ConsumerOrder) -> ConsumerRecord:
        """Take all deltas of an order for a new consumer, or none."""
        return self.commit(Write(operation, "claim", order.consumer, orders=(order,)))[0]

    def adjust(self, operation: Operation, order: ConsumerOrder) -> ConsumerRecord:
        """Change what one consumer holds by all deltas of an order, or by none."""
        return self.commit(Write(operation, "adjust", order.consumer, orders=(order,)))[0]

    def release(self, operation: Operation, consumer: str) -> ConsumerRecord:
        """Give back all that a consumer holds and forget the consumer; return what it held."""
        return self.commit(
            Write(operation, "release", consumer, orders=(ConsumerOrder.release(consumer),))
        )[0]


def _are_names(keys: Collection[str], columns: Columns) -> bool:
    """Return whether a key is the name of somebody else, which wins over a uuid."""
    wanted = frozenset(keys)
    pairs = zip(columns.providers.name, columns.providers.uuid, strict=True)
    return any(name in wanted and name != uuid for name, uuid in pairs)
