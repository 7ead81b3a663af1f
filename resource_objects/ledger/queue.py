"""The queue: claims that wait, first come, first served; and claims whose time is over.

A waiting consumer has a row (:mod:`resource_objects.providers.waiting`) and tries to claim only
while no waiter is ahead of it. It looks for waiters ahead before each pause; the pauses are at most
some seconds, and shorter near the front. The heads of the change feed report whether anything was
written since the last attempt, so it searches only where the answer may differ. Without a queue, a
large request would see small ones pass for ever.

The row is removed when the claim is written, when the time is over and after any error, in a
transaction of its own. A killed process leaves its row until the lease is over, and the waiters
behind it wait for that long.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from resource_objects import clock, exceptions, names
from resource_objects.ledger.context import (
    LedgerContext,
    any_limit,
    claim_of,
    pages_of,
    written_claim_of,
)
from resource_objects.ledger.demand import Claimable, Demand, demands_of
from resource_objects.ledger.feed import Snapshots, snapshot_in_place, unused_snapshot
from resource_objects.providers import Claim
from resource_objects.providers.arguments import generation
from resource_objects.providers.backend import Capability
from resource_objects.providers.feed import Cursor, FeedEntry
from resource_objects.providers.holders import MOST_HOLDERS
from resource_objects.providers.listing import ConsumerFilter, ProviderFilter
from resource_objects.providers.orders import (
    UNLIMITED,
    ConsumerOrder,
    ConsumerRecord,
    UseLimits,
    Write,
    subject_of,
)
from resource_objects.providers.waiting import Awaited, Waiter, WaiterFilter, WaitOrder
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import Amount, Amounts
from resource_objects.search.candidate import Candidate
from resource_objects.search.candidates import Candidates

if TYPE_CHECKING:
    from resource_objects.search.order import Options

#: Seconds: the first pause between two looks at the queue, and the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
#: Seconds: the longest pause of the first waiter, and the addition for each waiter ahead.
_AT_THE_FRONT, _BEHIND_EACH = 1.0, 0.5
#: Seconds after which the first waiter tries again without any write: claims may have expired.
_RETRY_AFTER = 5.0
#: The maximum number of changes that are read to find one of a definition.
_MOST_CHANGES = 1000
#: A lease is renewed after this part of it.
_PART = 3
#: The maximum number of waiters ahead that are reported.
_MAX_REPORTED = 8
#: Refusals that no release of allocations changes.
_FINAL = ("UnitRuleViolated", "InventoryNotFound", "ProviderDisabled")

#: Rules whose bound is the largest possible amount.
_BOUNDS = (Rule.CAPACITY, Rule.LIMIT)

#: Claims candidates once.
Attempt = Callable[[Claimable], Claim]
#: Returns whether no release of allocations changes a refusal.
Final = Callable[[exceptions.CapacityException], bool]


class Queue:
    """The waiting claims; :class:`~resource_objects.ledger.Ledger` documents the methods."""

    def __init__(
        self, context: LedgerContext, snapshots: Snapshots, expired: ExpiredClaims
    ) -> None:
        self._context = context
        self._snapshots = snapshots
        self._expired = expired

    def waiting(self, limit: int | None, after: int | None) -> Iterator[Waiter]:
        backend = self._context.backend
        pages = pages_of(
            lambda count, last: backend.list_waiters(WaiterFilter(), count, last or 0),
            lambda waiter: waiter.number,
            self._context.page,
            any_limit(limit),
            None if after is None else generation(after, "after"),
        )
        return (waiter for page in pages for waiter in page)

    def is_satisfiable(self, candidates: Candidates, options: Options | None = None) -> bool:
        if not isinstance(candidates, Candidates):
            raise exceptions.InvalidInput(
                "field", "is_satisfiable", candidates, "Candidates of a search"
            )
        snapshot = unused_snapshot(self._context.backend, candidates.at)
        try:
            return bool(snapshot.searched(candidates.request, options or candidates.options))
        except exceptions.SearchLimitReached:  # unknown, so it may be
            return True

    def claim(
        self,
        consumer: str,
        candidates: Claimable,
        wait: datetime.timedelta,
        attempt: Attempt,
        is_replacement: bool = False,
        limits: UseLimits = UNLIMITED,
    ) -> Claim:
        """Claim candidates as soon as they are free and no waiter is ahead of the consumer.

        Each attempt first releases the expired claims of the trees that the consumer waits for.

        :param attempt: claims candidates once; these are searched again for each attempt
        :param is_replacement: the consumer releases its allocations in the same write, so a search
            ignores these; else it must have none
        :param limits: of further searches
        """
        retries, backend = self._context.retries, self._context.backend
        until = retries.clock() + wait.total_seconds()
        refusal: exceptions.CapacityException | None = None
        demands: list[Demand] = []
        options: Options | None = None
        final: Final = _is_final
        if isinstance(candidates, Candidates):
            options = candidates.options.within(limits)
            final = _Satisfiability(self, self._context, candidates, options).is_final
        else:
            demands += demands_of(candidates, self._context.uuids, "claim")
        awaits = self._awaits(candidates, demands)
        order = WaitOrder(
            consumer, awaits, datetime.timedelta(seconds=retries.lease), self._context.actor
        )
        if len(demands) > 1:
            attempt = functools.partial(_one_of_several, attempt)
        in_place = consumer if is_replacement else None

        def attempt_now(is_first: bool = False) -> Claim:
            if self._release_expired(awaits, in_place) or not is_first:
                return attempt(self._search_again(candidates, options, in_place))
            return attempt(candidates)

        if not backend.list_waiters(WaiterFilter(awaits), 1):
            try:
                return attempt_now(is_first=True)
            except exceptions.CapacityException as error:
                refusal = error
        if in_place is None and backend.consumer(consumer) is not None:
            raise exceptions.AlreadyExists("consumer", consumer) from refusal
        if refusal is None and isinstance(candidates, Candidates) and not candidates:
            refusal = exceptions.NoCandidates(f"no candidate for {consumer}", candidates.explain())
        if refusal is not None and final(refusal):
            raise refusal
        try:
            return self._wait(order, until, final, refusal, attempt_now)
        finally:
            with contextlib.suppress(exceptions.LedgerError):  # else its lease ends it
                backend.leave(order.entry)

    def _search_again(
        self, candidates: Claimable, options: Options | None, in_place: str | None
    ) -> Claimable:
        """Return the present candidates of the same search; other candidates unchanged."""
        if options is None or not isinstance(candidates, Candidates):
            return candidates
        if in_place is None:
            snapshot = self._snapshots.snapshot(candidates.at)
        else:
            snapshot = snapshot_in_place(self._context.backend, in_place, candidates.at)
        return snapshot.searched(candidates.request, options)

    def _release_expired(self, awaits: Iterable[Awaited], excluding: str | None) -> bool:
        """Release the expired claims of the trees that are waited for; return if there were any."""
        if Capability.EXPIRY in self._context.backend.unsupported:
            return False
        trees = {awaited.root_uuid for awaited in awaits}
        is_released = False
        for tree in [None] if None in trees else trees:
            is_released |= bool(self._expired.release(None, None, tree, excluding))
        return is_released

    def _wait(
        self,
        order: WaitOrder,
        until: float,
        final: Final,
        refusal: exceptions.CapacityException | None,
        attempt: Callable[[], Claim],
    ) -> Claim:
        """Stand in the queue until an attempt succeeds.

        :param until: by the clock of the retry policy
        :param final: whether a refusal ends the wait, because no release would help
        """
        retries, backend = self._context.retries, self._context.backend
        renewing = retries.lease / _PART
        waiter, renewed = backend.wait(order), retries.clock()
        order = dataclasses.replace(order, renews=True)
        cursor: Cursor | None = None
        attempted = renewed
        for turn in itertools.count():
            if retries.clock() - renewed >= renewing:
                waiter, renewed = backend.wait(order), retries.clock()
            upto = WaiterFilter(order.awaits, waiter.number)
            waiters = backend.list_waiters(upto, _MAX_REPORTED + 1)
            # by name: the number of a removed waiter may be used again
            ahead = [other.consumer for other in waiters if other.consumer != waiter.consumer]
            is_queued = len(waiters) > len(ahead) or len(waiters) > _MAX_REPORTED
            if not is_queued:  # it was stopped for longer than its lease, and is last now
                waiter, renewed = backend.wait(order), retries.clock()
            elif not ahead:
                latest = backend.cursor()
                if latest != cursor or retries.clock() - attempted >= _RETRY_AFTER:
                    cursor, attempted = latest, retries.clock()
                    try:
                        return attempt()
                    except exceptions.CapacityException as error:
                        if final(error):  # its first attempt, or the definitions changed
                            raise
                        refusal = error
            remaining = until - retries.clock()
            if remaining <= 0:
                raise exceptions.WaitTimedOut(
                    order.consumer, ahead[:_MAX_REPORTED], refusal
                ) from refusal
            most = min(_LONGEST_PAUSE, _AT_THE_FRONT + _BEHIND_EACH * len(ahead), renewing)
            longest = clock.longest_pause(_FIRST_PAUSE, most, turn)
            retries.sleep(min(remaining, retries.uniform(longest / 2, longest)))
        raise AssertionError("the loop has no other end")

    # --- what is waited for ---

    def _awaits(self, candidates: Claimable, demands: Iterable[Demand]) -> tuple[Awaited, ...]:
        """Return the awaited amounts: of any tree, of that of a search, or of the named trees."""
        if isinstance(candidates, Candidates):
            at = candidates.at
            root = None if at is None else self._context.listed(names.provider_key(at)).root_uuid
            counts = self._counts(candidates.request.resources, at)
            return tuple(Awaited(name, amount, root) for name, amount in counts.items())
        usages = [self._by_provider(demand) for demand in demands]
        uuids = frozenset(uuid for usage in usages for uuid, _ in usage)
        listed = self._context.backend.list_providers(ProviderFilter(uuids=uuids), len(uuids))
        roots = {provider.uuid: provider.root_uuid for provider in listed}
        largest: dict[tuple[str, str | None], int] = {}
        for usage in usages:
            total: Counter[tuple[str, str | None]] = Counter()
            for (uuid, name), amount in usage.items():
                total[name, roots.get(uuid)] += amount
            for key, amount in total.items():
                largest[key] = max(amount, largest.get(key, 0))
        return tuple(Awaited(name, amount, root) for (name, root), amount in largest.items())

    def _counts(self, requested: Amounts, at: str | None) -> dict[str, int]:
        """Return requested amounts as counts by class.

        A placed amount counts in the classes that it locates, unless these are requested too.
        """
        counts: Counter[str] = Counter()
        for kind, amount in requested.by_name():
            if not amount.is_placed:
                for record in amount.to_records(kind):
                    counts[record.resource_class] += record.amount
        stated = frozenset(counts)
        for kind, amount in requested.by_name():
            for name, count in self._located(kind, amount, at).items():
                if name not in stated:
                    counts[name] += count
        return counts

    def _by_provider(self, demand: Demand) -> dict[tuple[str, str], int]:
        """Return the counts of a demand by provider (uuid) and class."""
        counts: Counter[tuple[str, str]] = Counter()
        for use in demand.uses:
            counts[use.key] += use.amount
        for placed in demand.located:
            amounts = self._located(placed.resource_class, placed.amount, placed.provider)
            for name, count in amounts.items():
                counts[placed.provider, name] += count
        return counts

    def _located(self, kind: str, amount: Amount, at: str | None) -> Mapping[str, int]:
        """Return the counts by class that a placed amount locates; none for other amounts.

        A device that is requested by its address, without a class, may be of any class of the
        inventory. Cost: a read of the tree in that case.
        """
        if amount.placed_counts or not amount.is_placed:
            return amount.placed_counts
        columns = self._context.backend.read(*([] if at is None else [at]), allocations=False)
        rows = zip(*columns.kinds, strict=True)
        located = (classes for _, stored, classes, _ in rows if stored == kind)
        counts = {name: amount.item_count for classes in located for name in classes}
        return counts or {kind: amount.item_count}


class _Satisfiability:
    """A check whether a search would find candidates if no consumer had allocations.

    Claims do not change the answer. So after a refusal it is computed again only if a definition
    changed or a provider was disabled meanwhile. Cost: if only claims were written, a read of the
    feed; else that of :meth:`Queue.is_satisfiable`, once in some seconds.
    """

    def __init__(
        self, queue: Queue, context: LedgerContext, candidates: Candidates, options: Options
    ) -> None:
        self._queue = queue
        self._context = context
        self._candidates = candidates
        self._options = options
        self._cursor: Cursor | None = None
        self._computed = 0.0

    def is_final(self, refusal: exceptions.CapacityException) -> bool:
        """Return True if a search that was just refused stays refused."""
        now = self._context.retries.clock()
        if self._cursor is not None and (
            now - self._computed < _RETRY_AFTER or not self._may_differ(self._cursor)
        ):
            return False
        self._cursor, self._computed = self._context.backend.cursor(), now
        return not self._queue.is_satisfiable(self._candidates, self._options)

    def _may_differ(self, cursor: Cursor) -> bool:
        """Return True if more than claims was written since a cursor."""
        try:
            entries = self._context.backend.changes(cursor, _MOST_CHANGES)
        except exceptions.Expired as error:
            if not error.is_about("cursor"):
                raise
            return True
        if len(entries) == _MOST_CHANGES or any(map(_defines, entries)):
            return True
        self._cursor = cursor.moved(entries)
        return False


def _defines(entry: FeedEntry) -> bool:
    """Return True if a write may change the result of a search on an unused ledger."""
    is_rename = not (entry.uses or entry.claims or entry.reports)  # or another change of names
    return bool(entry.definitions or entry.disabled or is_rename)


def _one_of_several(attempt: Attempt, candidates: Sequence[Candidate]) -> Claim:
    """Claim one of several candidates; raise a final refusal only if each candidate has one."""
    try:
        return attempt(candidates)
    except exceptions.CapacityException as error:
        if not _is_final(error):
            raise
        refusal = error
    for candidate in candidates:  # the refusal of all together is that of one of them
        try:
            return attempt([candidate])
        except exceptions.CapacityException as error:
            if not _is_final(error):
                raise
            refusal = error
    raise refusal


def _is_final(refusal: exceptions.CapacityException) -> bool:
    """Return True if no release of allocations at the named providers changes a refusal."""
    if isinstance(refusal, exceptions.NoCandidates):
        return False
    return refusal.matches(*_FINAL) or any(
        reason.rule in _BOUNDS and reason.requested > reason.bound for reason in refusal.reasons
    )


# --- expired claims -------------------------------------------------------------------------------


class ExpiredClaims:
    """The expired claims of a ledger; :class:`~resource_objects.ledger.Ledger` documents them."""

    def __init__(self, context: LedgerContext) -> None:
        self._context = context

    def expired(
        self,
        now: datetime.datetime | None,
        limit: int | None,
        after: str | None,
        reasons: Iterable[Reason] | None = None,
    ) -> Iterator[Claim]:
        last = None if after is None else names.consumer_name(after)
        expired, most = self._filter(now), any_limit(limit)
        if reasons is None:
            pages = self._context.consumer_pages(expired, most, last)
            return (claim_of(record) for records in pages for record in records)
        checked = list(reasons) if isinstance(reasons, Iterable) else [reasons]
        if not all(isinstance(reason, Reason) for reason in checked):
            raise exceptions.InvalidInput("field", "reasons", reasons, "the reasons of a refusal")
        can_expire = Capability.EXPIRY not in self._context.backend.unsupported
        consumers = self._consumers_of(checked, expired) if can_expire else set()
        pages = self._context.consumer_pages(expired, None, last) if consumers else iter(())
        records = (record for page in pages for record in page if record.consumer in consumers)
        return map(claim_of, itertools.islice(records, most))

    def release(
        self,
        now: datetime.datetime | None,
        limit: int | None,
        tree: str | None = None,
        excluding: str | None = None,
    ) -> tuple[Claim, ...]:
        excluded = None if excluding is None else names.consumer_name(excluding)
        released: list[Claim] = []
        pages = self._context.consumer_pages(self._filter(now, tree), any_limit(limit))
        try:
            for records in pages:
                released += map(written_claim_of, self._release(records, excluded))
        except exceptions.ResourceObjectsError:
            if not released:
                raise
        return tuple(released)

    def _filter(self, now: datetime.datetime | None, tree: str | None = None) -> ConsumerFilter:
        key = None if tree is None else names.provider_key(tree)
        return ConsumerFilter(expires_before=self._context.now_or(now), tree=key)

    def _release(
        self, records: tuple[ConsumerRecord, ...], excluding: str | None
    ) -> tuple[ConsumerRecord, ...]:
        """Release the consumers that are unchanged since they were read."""
        orders = {
            record.consumer: ConsumerOrder.release(record.consumer, record.generation)
            for record in records
            if record.consumer != excluding
        }
        while orders:
            released = tuple(orders.values())
            write = Write(
                self._context.operation(None), "release", subject_of(orders), orders=released
            )
            try:
                return self._context.backend.commit(write)
            except (exceptions.Stale, exceptions.NotFound) as changed:
                if not changed.is_about("consumer") or orders.pop(changed.name, None) is None:
                    raise
        return ()

    def _consumers_of(self, reasons: Iterable[Reason], expired: ConsumerFilter) -> set[str]:
        """Return the consumers of a refusal.

        A reason names at most ``MOST_HOLDERS`` consumers. If it names that many, all consumers of
        its tree with an expired claim are included.
        """
        consumers: set[str] = set()
        for reason in reasons:
            consumers.update(name for name, _ in reason.holders)
            if len(reason.holders) >= MOST_HOLDERS:
                in_tree = dataclasses.replace(expired, tree=reason.where)
                for records in self._context.consumer_pages(in_tree):
                    consumers.update(record.consumer for record in records)
        return consumers
