"""What every part of a ledger is given: the backend, operations, and how what is kept is read.

A part of a ledger never keeps a reference to the backend by itself: it asks the :class:`Store`, so
that a closed ledger is refused in one place.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

from resource_objects import clock, exceptions, names
from resource_objects.providers import Allocation, Backend, Claim, Consumer
from resource_objects.providers.given import moment
from resource_objects.providers.listing import ConsumerFilter
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    Operation,
    Outcome,
    Use,
    Write,
)
from resource_objects.providers.waiting import LEASE
from resource_objects.resources import resource

_A = TypeVar("_A")
_T = TypeVar("_T")

#: Seconds: the longest of the pauses before an amount is placed again, and that before the first.
_LONGEST_PAUSE, _FIRST_PAUSE = 0.25, 0.002

#: Seconds: a waiter that was killed stands in the way for no longer than a day.
_LONGEST_LEASE = 86_400

#: How many rows of a list are read at once, and how many trees.
PAGE, TREE_PAGE = 500, 100


@dataclasses.dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and for how long, the methods of a ledger retry after a lost race.

    ==============  ================================================================================
    ``searches``    the maximum number of further searches of a claim whose candidates are all
                    allocated to other consumers by now
    ``seconds``     for how long a claim searches again; with the default values this ends first
    ``assignments`` the maximum number of times that the ledger assigns a placed amount (a
                    topology, devices, units by name) again after a concurrent claim on its host
    ``definitions`` the maximum number of repetitions of a method that reads and then writes:
                    ``sync`` and the other changes of definitions, ``reshape`` (the larger of
                    ``definitions`` and ``assignments``), ``adjust``, ``move``, ``swap``, ``renew``
    ``lease``       the seconds for which a waiting claim stays in the queue without a renewal, by
                    the clock of the ledger; it renews after each third
    ==============  ================================================================================

    The first further search follows at once. Before each later one, and before each new
    assignment, the ledger pauses for a short random time that grows to a quarter of a second, so
    that the same processes do not collide again. From the second search on, the best candidates
    are shuffled. A claim stops searching when no other process has written since its last search.
    ``apply`` never retries: a plan is valid only for the state it was made from.

    ``clock`` measures the time that a claim searches or waits; ``sleep`` and ``uniform`` pause and
    choose random numbers.

    :raises InvalidInput: for a count that is no integer from 0, for seconds that are not from 0,
        or for a lease that is not above 0 and at most a day
    """

    searches: int = 1000
    definitions: int = 5
    assignments: int = 20
    seconds: float = 30.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    uniform: Callable[[float, float], float] = random.uniform
    lease: float = LEASE

    def __post_init__(self) -> None:
        for name in ("searches", "definitions", "assignments"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise exceptions.InvalidInput(
                    "field", f"RetryPolicy.{name}", value, "an integer from 0"
                )
        if not isinstance(self.seconds, int | float) or not self.seconds >= 0:  # nor NaN
            raise exceptions.InvalidInput(
                "field", "RetryPolicy.seconds", self.seconds, "seconds from 0"
            )
        if not isinstance(self.lease, int | float) or not 0 < self.lease <= _LONGEST_LEASE:
            expected = "seconds above 0, at most a day"
            raise exceptions.InvalidInput("field", "RetryPolicy.lease", self.lease, expected)

    def retry(
        self,
        attempt: Callable[[], _T],
        *faster: type[exceptions.ResourceObjectsError] | str,
        tries: int | None = None,
    ) -> _T:
        """Call a function that reads and then writes, again if another process wrote in between.

        :param attempt: the function
        :param faster: the types or codes of errors that report that another process wrote
        :param tries: the number of repetitions; None: ``definitions``
        """
        return self.write(lambda: None, lambda _: attempt(), *faster, tries=tries)

    def write(
        self,
        read: Callable[[], _A],
        write: Callable[[_A], _T],
        *faster: type[exceptions.ResourceObjectsError] | str,
        tries: int | None = None,
    ) -> _T:
        """Read, then write; read and write again if another process wrote in between.

        :param write: called with what ``read`` returned. An error of ``read`` is not tried again
        :param faster: the types or codes of errors of ``write`` that report that another process
            wrote
        :param tries: the number of repetitions; None: ``definitions``
        """
        tries = self.definitions if tries is None else tries
        while True:
            found = read()
            try:
                return write(found)
            except exceptions.ResourceObjectsError as error:
                if tries <= 0 or not error.matches(*faster):
                    raise
                tries -= 1

    def search_attempts(self) -> Iterator[int]:
        """Return an iterator over the further searches of a claim, with a pause before the second.

        It ends after ``searches`` searches, or ``seconds`` after this call.

        >>> policy = RetryPolicy(searches=2, sleep=print, uniform=lambda least, most: most)
        >>> list(policy.search_attempts())
        0.004
        [1, 2]
        """
        until = self.clock() + self.seconds

        def turns() -> Iterator[int]:
            for tried in range(self.searches):
                if tried:
                    self.pause(tried)
                if self.clock() >= until:
                    return
                yield tried + 1

        return turns()

    def pause(self, tried: int) -> None:
        """Pause for a random time before the next attempt.

        :param tried: the number of attempts so far

        >>> RetryPolicy(sleep=print, uniform=lambda least, most: most).pause(2)
        0.008
        """
        self.sleep(self.uniform(0, clock.longest_pause(_FIRST_PAUSE, _LONGEST_PAUSE, tried)))


def new_operation() -> str:
    """Return an operation id for a write that may have to be repeated."""
    return Operation().id


class Store:
    """The backend of a ledger, with what all its parts do with one."""

    def __init__(
        self, backend: Backend, retries: RetryPolicy | None = None, actor: str | None = None
    ) -> None:
        if retries is not None and not isinstance(retries, RetryPolicy):
            raise exceptions.InvalidInput("field", "retries", retries, "a RetryPolicy")
        self._backend = backend
        self.retries = retries or RetryPolicy()
        #: how many rows of a list, and how many trees, are read at once
        self.page, self.tree_page = PAGE, TREE_PAGE
        self.actor = None if actor is None else names.label(actor, "actor")
        self._closed = False

    @property
    def backend(self) -> Backend:
        """Where the ledger is kept.

        :raises DatabaseError: after :meth:`close`
        """
        if self._closed:
            raise exceptions.DatabaseError("closed", "ledger")
        return self._backend

    def close(self) -> None:
        """Give back every connection; closing twice is allowed."""
        self._closed = True
        self._backend.close()

    # --- reading ---

    def now_or(self, given: datetime.datetime | None) -> datetime.datetime:
        """Return the moment given, checked, or this one by the ledger's clock if None is.

        :raises InvalidInput: if it is no moment with its time zone
        """
        return self.backend.now() if given is None else moment("now", given)

    def uuids(self, keys: Collection[str]) -> dict[str, str]:
        """Return the uuid of each name or uuid, in one look.

        :raises NotFound: if there is no provider of a name
        """
        found = {key: key for key in keys if names.is_uuid(key)}
        named = [key for key in keys if key not in found]
        if not named:
            return found
        found |= self.backend.uuids(named)
        for key in named:
            if key not in found:
                raise exceptions.NotFound("provider", key)
        return found

    def held(self, consumer: str) -> ConsumerRecord:
        """Return what a consumer holds.

        :raises NotFound: if it holds nothing
        """
        record = self.backend.held(consumer)
        if record is None:
            raise exceptions.NotFound("consumer", consumer)
        return record

    def held_by(self, *consumers: str) -> tuple[ConsumerRecord, ...]:
        """Return what several consumers hold, in their order, at one moment.

        :raises NotFound: if one holds nothing
        """
        kept = self.backend.held_by(consumers)
        for name in consumers:
            if name not in kept:
                raise exceptions.NotFound("consumer", name)
        return tuple(kept[name] for name in consumers)

    def consumers(
        self,
        wanted: ConsumerFilter,
        limit: int | None = None,
        after: str | None = None,
        page: int | None = None,
    ) -> Iterator[tuple[ConsumerRecord, ...]]:
        """Yield the consumers of a filter by name, a page at a time."""
        return pages_of(
            lambda count, last: self.backend.list_consumers(wanted, count, last),
            lambda record: record.consumer,
            page or self.page,
            limit,
            after,
        )

    # --- writing ---

    def operation(self, given: str | None) -> Operation:
        """Return the operation of a write: of the id given, or of one made up."""
        if given is None:
            return Operation(actor=self.actor)
        return Operation(names.uuid_text(given), self.actor)

    def begin(self, given: str | None, kind: str, subject: str) -> tuple[Operation, Outcome | None]:
        """Return the operation of a write, and what it did if it is a repetition.

        An id that was made up just now is not looked for.

        :raises Conflict: if the id was used for something else
        """
        doing = self.operation(given)
        known = None if given is None else self.backend.outcome(doing)
        if known is not None:
            known.require(doing.id, kind, subject)
        return doing, known

    def commit(
        self, doing: Operation, kind: str, subject: str, orders: Iterable[ConsumerOrder]
    ) -> tuple[ConsumerRecord, ...]:
        """Write orders alone, that rely on no definition."""
        return self.backend.commit(Write(doing, kind, subject, orders=tuple(orders)))


def pages_of(
    read: Callable[[int, _A | None], tuple[_T, ...]],
    last: Callable[[_T], _A],
    page: int,
    limit: int | None = None,
    after: _A | None = None,
) -> Iterator[tuple[_T, ...]]:
    """Yield the pages of a list.

    :param read: ``read(how many, after which one)`` gives a page
    :param last: what :func:`read` knows an entry by
    :param page: how many are read at once
    :param limit: at most so many in all
    """
    left = limit
    while left is None or left > 0:
        wanted = page if left is None else min(page, left)
        found = read(wanted, after)
        if found:
            yield found
            after = last(found[-1])
        if len(found) < wanted:
            return
        left = None if left is None else left - len(found)


def any_limit(limit: object) -> int | None:
    """Return how many entries of a list are wanted at most, None for all of them.

    :raises InvalidInput: if it is neither None nor an integer from 1
    """
    if limit is not None and (type(limit) is not int or limit < 1):
        raise exceptions.InvalidInput("field", "limit", limit, "an integer from 1, or None")
    return limit


# --- what is kept, as objects ---


def claim_of(record: ConsumerRecord) -> Claim:
    """Return a kept claim as an object.

    :raises InvalidInput: if it is none: another program, or another version, wrote the rows
    """
    return Claim(**_fields_of(record))


def written_claim_of(record: ConsumerRecord) -> Claim:
    """Return a claim that was just written, or released, as an object; nothing is checked again.

    A claim was checked when it was ordered. A release is done by now, whatever the rows said that
    it gave back: it must not look refused.
    """
    return Claim._as_kept(**_fields_of(record))


def _fields_of(record: ConsumerRecord) -> dict[str, Any]:
    return {
        "request": None if record.request is None else record.request.request,
        "id": record.uuid,
        "consumer": record.consumer,
        "consumer_uuid": record.uuid,
        "state": record.state,
        "created_at": record.created_at,
        "generation": record.generation,
        "project": record.project,
        "user": record.user,
        "consumer_type": record.consumer_type,
        "expires_at": record.expires_at,
        "group": record.group,
        "allocations": tuple([_allocation(held) for held in record.held]),
    }


@functools.lru_cache(maxsize=4096)
def _allocation(held: Use) -> Allocation:
    """Return a kept allocation as an object; many consumers hold the same of the same provider."""
    return Allocation(
        provider=held.provider,
        provider_uuid=held.provider_uuid,
        resource_class=held.resource_class,
        amount=resource(held.resource_class).make_amount(held.amount),
        units=held.units,
    )


def consumer_of(record: ConsumerRecord) -> Consumer:
    """Return a kept consumer, with what it holds, as an object."""
    return Consumer(
        name=record.consumer,
        uuid=record.uuid,
        generation=record.generation,
        project=record.project,
        user=record.user,
        consumer_type=record.consumer_type,
        group=record.group,
        claim=claim_of(record),
    )
