"""The queue: claims that wait until it is their turn, first come, first served.

Whoever waits has a row (:mod:`resource_objects.providers.waiting`) and tries to claim only while
nobody stands before it. Who that is, it asks each time before it sleeps, for some seconds at most,
and less the nearer it is to the front; whether anything was written since its last try, the heads
of the change feed tell, so a search is only made where it may find something else. The naive way,
to try again and again, keeps no order: a large request would see small ones pass for ever.

The row goes when the claim is written, when the time is over and on any error, in a transaction of
its own; a process that is killed in between leaves it until the lease is over, and those behind it
wait so much longer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from resource_objects import clock, exceptions, names
from resource_objects.ledger.demand import Claimable, Demand, demands_of
from resource_objects.ledger.expired import ExpiredClaims
from resource_objects.ledger.feed import Snapshots, snapshot_in_place, snapshot_without
from resource_objects.ledger.store import Store, any_limit, pages_of
from resource_objects.providers import Claim
from resource_objects.providers.abilities import Ability
from resource_objects.providers.feed import Cursor, FeedEntry
from resource_objects.providers.given import generation
from resource_objects.providers.listing import ProviderFilter
from resource_objects.providers.orders import UNLIMITED, Totals
from resource_objects.providers.waiting import Awaited, Waiter, WaiterFilter, WaitOrder
from resource_objects.reasons import Rule
from resource_objects.resources import Amount, Amounts
from resource_objects.search.candidates import Candidate, Candidates

if TYPE_CHECKING:
    from resource_objects.search.order import Options

#: Seconds: the first pause between two looks, and the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
#: Seconds: the longest pause of the first in the queue, and how much longer for each before.
_AT_THE_FRONT, _BEHIND_EACH = 1.0, 0.5
#: The first tries after so many seconds also where nothing was written: claims may have expired.
_RETRY_AFTER = 5.0
#: Of so many changes it is read whether one is of a definition; after more, one may be.
_MOST_CHANGES = 1000
#: of a lease it is renewed after this part
_PART = 3
#: who stands before one is told so far
MOST_TOLD = 8
#: The answer is the same whatever others give back.
_FINAL = ("UnitRuleViolated", "InventoryNotFound", "ProviderDisabled")

#: The bound of these is the most that there could ever be.
_BOUNDS = (Rule.CAPACITY, Rule.LIMIT)

#: Takes what was found, once.
Attempt = Callable[[Claimable], Claim]
#: Whether a refusal stays one, whatever others give back.
Final = Callable[[exceptions.CapacityException], bool]


class Queue:
    """Those who wait; :class:`~resource_objects.ledger.Ledger` says what each method does."""

    def __init__(self, store: Store, snapshots: Snapshots, expired: ExpiredClaims) -> None:
        self._store = store
        self._snapshots = snapshots
        self._expired = expired

    def waiting(self, limit: int | None, after: int | None) -> Iterator[Waiter]:
        backend = self._store.backend
        pages = pages_of(
            lambda count, last: backend.list_waiters(WaiterFilter(), count, last or 0),
            lambda waiter: waiter.number,
            self._store.page,
            any_limit(limit),
            None if after is None else generation(after, "after"),
        )
        return (waiter for page in pages for waiter in page)

    def is_satisfiable(self, found: Candidates, options: Options | None = None) -> bool:
        if not isinstance(found, Candidates):
            raise exceptions.InvalidInput(
                "field", "is_satisfiable", found, "Candidates of a search"
            )
        picture = snapshot_without(self._store.backend, found.at)
        try:
            return bool(picture.searched(found.request, options or found.options))
        except exceptions.SearchLimitReached:  # nobody knows, so perhaps
            return True

    def claim(
        self,
        consumer: str,
        candidates: Claimable,
        wait: datetime.timedelta,
        attempt: Attempt,
        is_replacement: bool = False,
        limits: Totals = UNLIMITED,
    ) -> Claim:
        """Claim candidates as soon as they are free and no waiter is ahead of the consumer.

        Each attempt first releases the expired claims of the trees that the consumer waits for.

        :param attempt: claims candidates once; these are searched again for each attempt
        :param is_replacement: the consumer releases its allocations in the same write, so a search
            ignores these; else it must have none
        :param limits: of further searches
        """
        if not isinstance(wait, datetime.timedelta) or wait <= datetime.timedelta(0):
            raise exceptions.InvalidInput("field", "wait", wait, "a timedelta above 0, or None")
        retries, backend = self._store.retries, self._store.backend
        until = retries.clock() + wait.total_seconds()
        refusal: exceptions.CapacityException | None = None
        demands = () if isinstance(candidates, Candidates) else self._demands(candidates)
        awaits = self._awaits(candidates, demands)
        order = WaitOrder(
            consumer, awaits, datetime.timedelta(seconds=retries.lease), self._store.actor
        )
        if len(demands) > 1:
            attempt = functools.partial(_one_of_several, attempt)
        options = candidates.options.within(limits) if isinstance(candidates, Candidates) else None
        in_place = consumer if is_replacement else None

        def attempt_again() -> Claim:
            self._release_expired(awaits, in_place)
            return attempt(self._search_again(candidates, options, in_place))

        if not backend.list_waiters(WaiterFilter(awaits), 1):
            try:
                if self._release_expired(awaits, in_place):
                    return attempt(self._search_again(candidates, options, in_place))
                return attempt(candidates)
            except exceptions.CapacityException as error:
                refusal = error
        if in_place is None and backend.held(consumer) is not None:
            raise exceptions.AlreadyExists("consumer", consumer) from refusal
        final: Final = _is_final
        if options is not None and isinstance(candidates, Candidates):
            final = _Satisfiability(self, self._store, candidates, options).is_final
        refusal = _refuse_if_final(consumer, candidates, final, refusal)
        try:
            return self._wait(order, until, final, refusal, attempt_again)
        finally:
            with contextlib.suppress(exceptions.LedgerError):  # else its lease ends it
                backend.leave(order.entry)

    def _search_again(
        self, candidates: Claimable, options: Options | None, in_place: str | None
    ) -> Claimable:
        """Return what the same search finds now; candidates of no search as they are."""
        if options is None or not isinstance(candidates, Candidates):
            return candidates
        if in_place is None:
            snapshot = self._snapshots.snapshot(candidates.at)
        else:
            snapshot = snapshot_in_place(self._store.backend, in_place, candidates.at)
        return snapshot.searched(candidates.request, options)

    def _release_expired(self, awaits: Iterable[Awaited], excluding: str | None) -> bool:
        """Release the expired claims of the trees that are waited for; return if there were any."""
        if Ability.EXPIRY in self._store.backend.lacks:
            return False
        trees = {awaited.root_uuid for awaited in awaits}
        found = False
        for tree in [None] if None in trees else trees:
            found |= bool(self._expired.release(None, None, tree, excluding))
        return found

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
        retries, backend = self._store.retries, self._store.backend
        renewing = retries.lease / _PART
        waiter, renewed = backend.wait(order), retries.clock()
        order = dataclasses.replace(order, renews=True)
        cursor: Cursor | None = None
        tried = renewed
        for turn in itertools.count():
            if retries.clock() - renewed >= renewing:
                waiter, renewed = backend.wait(order), retries.clock()
            upto = WaiterFilter(order.awaits, waiter.number)
            waiters = backend.list_waiters(upto, MOST_TOLD + 1)
            # by name: the number of a removed waiter may be used again
            ahead = [other.consumer for other in waiters if other.consumer != waiter.consumer]
            is_queued = len(waiters) > len(ahead) or len(waiters) > MOST_TOLD
            if not is_queued:  # it was stopped for longer than its lease, and is last now
                waiter, renewed = backend.wait(order), retries.clock()
            elif not ahead:
                latest = backend.cursor()
                if latest != cursor or retries.clock() - tried >= _RETRY_AFTER:
                    cursor, tried = latest, retries.clock()
                    try:
                        return attempt()
                    except exceptions.CapacityException as error:
                        if final(error):  # its first attempt, or the definitions changed
                            raise
                        refusal = error
            remaining = until - retries.clock()
            if remaining <= 0:
                raise exceptions.WaitTimedOut(
                    order.consumer, ahead[:MOST_TOLD], refusal
                ) from refusal
            most = min(_LONGEST_PAUSE, _AT_THE_FRONT + _BEHIND_EACH * len(ahead), renewing)
            longest = clock.longest_pause(_FIRST_PAUSE, most, turn)
            retries.sleep(min(remaining, retries.uniform(longest / 2, longest)))
        raise AssertionError("the loop has no other end")

    # --- what is waited for ---

    def _demands(self, found: Claimable) -> tuple[Demand, ...]:
        return tuple(demands_of(found, self._store.uuids, "claim"))

    def _awaits(self, found: Claimable, demands: Iterable[Demand]) -> tuple[Awaited, ...]:
        """Return what is waited for: of any tree, of that of a search, or of those named."""
        if isinstance(found, Candidates):
            root = None if found.at is None else self._root(found.at)
            asked = self._counts(found.request.resources, found.at)
            return tuple(Awaited(name, amount, root) for name, amount in asked.items())
        each = [self._by_provider(demand) for demand in demands]
        roots = self._roots({uuid for one in each for uuid, _ in one})
        most: dict[tuple[str, str | None], int] = {}
        for one in each:
            total: dict[tuple[str, str | None], int] = {}
            for (uuid, name), amount in one.items():
                key = name, roots.get(uuid)
                total[key] = total.get(key, 0) + amount
            for key, amount in total.items():
                most[key] = max(amount, most.get(key, 0))
        return tuple(Awaited(name, amount, root) for (name, root), amount in most.items())

    def _counts(self, asked: Amounts, at: str | None) -> dict[str, int]:
        """Return amounts as counts by class.

        What says where is counted in the classes beside it, as far as these are asked for.
        """
        found: dict[str, int] = {}
        for kind, amount in asked.by_name():
            if not amount.locates:
                for record in amount.to_records(kind):
                    known = found.get(record.resource_class, 0)
                    found[record.resource_class] = known + record.amount
        beside = frozenset(found)
        for kind, amount in asked.by_name():
            for name, count in self._located(kind, amount, at).items():
                if name not in beside:
                    found[name] = found.get(name, 0) + count
        return found

    def _by_provider(self, demand: Demand) -> dict[tuple[str, str], int]:
        """Return what a demand takes as counts, by provider (uuid) and class."""
        found: dict[tuple[str, str], int] = {}
        located = (
            (one.host, name, count)
            for one in demand.located
            for name, count in self._located(one.resource_class, one.amount, one.host).items()
        )
        counted = ((use.provider_uuid, use.resource_class, use.amount) for use in demand.uses)
        for uuid, name, amount in (*counted, *located):
            found[uuid, name] = found.get((uuid, name), 0) + amount
        return found

    def _located(self, kind: str, amount: Amount, at: str | None) -> Mapping[str, int]:
        """Return what an amount that says where stands for, by class; of others nothing.

        Where it says no class, such as a device by its address, it may be any that there is. Cost:
        then a read of what is there.
        """
        if amount.located or not amount.locates:
            return amount.located
        columns = self._store.backend.read(*([] if at is None else [at]), allocations=False)
        classes = (some for _, name, some, _ in zip(*columns.kinds, strict=True) if name == kind)
        return {name: amount.pieces for some in classes for name in some} or {kind: amount.pieces}

    def _root(self, at: str) -> str:
        """Return the uuid of the root of a provider's tree.

        :raises NotFound: if it is not there
        """
        key = names.provider_key(at)
        wanted = ProviderFilter(trees=frozenset([key]), roots_only=True)
        for one in self._store.backend.list_providers(wanted, 1):
            return one.uuid
        raise exceptions.NotFound("provider", at)

    def _roots(self, uuids: set[str]) -> dict[str, str]:
        wanted = ProviderFilter(uuids=frozenset(uuids))
        listed = self._store.backend.list_providers
        pages = pages_of(
            lambda count, last: listed(wanted, count, last or 0),
            lambda one: one.number,
            self._store.page,
        )
        return {one.uuid: one.root_uuid for page in pages for one in page}


class _Satisfiability:
    """Whether nobody could give what a search asks for, though all was given back.

    Claims have no part in that, so of a search that was refused it is asked again only after a
    definition changed, or something was put out of service: a machine may have gone. Cost: where
    nothing else was written than claims, a read of what the feed says of them; else that of
    :meth:`Queue.is_satisfiable`, once in some seconds.
    """

    def __init__(self, queue: Queue, store: Store, found: Candidates, options: Options) -> None:
        self._queue = queue
        self._store = store
        self._found = found
        self._options = options
        self._seen: Cursor | None = None
        self._asked = 0.0

    def is_final(self, refusal: exceptions.CapacityException) -> bool:
        """Return whether a search that was refused just now is refused for ever."""
        now = self._store.retries.clock()
        if self._seen is not None and (now - self._asked < _RETRY_AFTER or not self._may_differ()):
            return False
        self._seen, self._asked = self._store.backend.cursor(), now
        return not self._queue.is_satisfiable(self._found, self._options)

    def _may_differ(self) -> bool:
        """Return whether more than claims was written since it was asked."""
        assert self._seen is not None, "it was asked before"
        try:
            told = self._store.backend.changes(self._seen, _MOST_CHANGES)
        except exceptions.Expired as error:
            if not error.is_about("cursor"):
                raise
            return True
        if len(told) == _MOST_CHANGES or any(map(_defines, told)):
            return True
        self._seen = self._seen.moved(told)
        return False


def _refuse_if_final(
    consumer: str,
    candidates: Claimable,
    final: Final,
    refusal: exceptions.CapacityException | None,
) -> exceptions.CapacityException | None:
    """Raise the refusal if no release would help; else return it.

    :param refusal: of the first attempt, None if another waiter was ahead
    """
    if refusal is None and isinstance(candidates, Candidates) and not candidates:
        refusal = exceptions.NoCandidates(f"no candidate for {consumer}", candidates.explain())
    if refusal is not None and final(refusal):
        raise refusal
    return refusal


def _defines(entry: FeedEntry) -> bool:
    """Return whether a write may have changed what there is; a rename names nobody."""
    is_of_nobody = not (entry.uses or entry.claims or entry.reports)
    return bool(entry.definitions or entry.disabled or is_of_nobody)


def _one_of_several(attempt: Attempt, found: Sequence[Candidate]) -> Claim:
    """Take one of several candidates; what ends the wait is raised only if it does of each.

    What is raised of several together is the refusal of one of them.
    """
    try:
        return attempt(found)
    except exceptions.CapacityException as no:
        if not _is_final(no):
            raise
        refusal = no
    for one in found:
        try:
            return attempt([one])
        except exceptions.CapacityException as no:
            if not _is_final(no):
                raise
            refusal = no
    raise refusal


def _is_final(refusal: exceptions.CapacityException) -> bool:
    """Return whether those named could not give it either if all was given back."""
    if isinstance(refusal, exceptions.NoCandidates):
        return False
    return refusal.matches(*_FINAL) or any(
        reason.rule in _BOUNDS and reason.requested > reason.bound for reason in refusal.reasons
    )
