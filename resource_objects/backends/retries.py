"""The policy by which a ledger and its backend repeat work after another process wrote first.

A deadlock, a serialization failure or a lock of another transaction does not depend on the change
itself: the transaction was rolled back completely, so it is run again. The same applies to a remote
service that gave up because of concurrent writes, or did not answer and has changed nothing. Pauses
grow and are random, because writers that collided once would collide again.

oslo.db's ``wrap_db_retry`` is as fast (0.1 microseconds a call, this 0.3) and is not used: it
limits the number of tries, not their time, and of a database's errors it recognizes deadlocks and
lost connections. The others would go through its ``exception_checker``, which would be the sets of
codes of :mod:`resource_objects.backends.sql.errors`, and :class:`Transient` for changes that this
library itself detects between a read and a write.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from resource_objects import clock
from resource_objects.exceptions import (
    DatabaseError,
    InvalidInput,
    LedgerError,
    ResourceObjectsError,
)
from resource_objects.providers.waiting import LEASE

_A = TypeVar("_A")
T = TypeVar("T")

#: Upgrades (INFO), and transactions that were rolled back and tried again (DEBUG). An error's text
#: is the library's own: it names hosts and files, and no password.
LOG = logging.getLogger("resource_objects.backends")

#: Seconds: a killed waiter blocks the queue for a day at most.
_LONGEST_LEASE = 86_400


class Transient(Exception):
    """An error after which nothing is written and the work can be repeated.

    :param final: the error that is raised if it is not repeated
    :param not_yet: whether nothing began, because the server accepts no connections at the moment
    """

    def __init__(self, final: LedgerError, *, not_yet: bool = False) -> None:
        super().__init__(str(final))
        self.final = final
        self.not_yet = not_yet


def busy(subject: str, reason: str) -> Transient:
    """Return the transient error after another transaction changed or locked a subject."""
    return Transient(DatabaseError("busy", subject, reason))


@dataclasses.dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits of repetitions after another process was faster.

    ===============  ===============================================================================
    ``searches``     the maximum number of further searches of a claim whose candidates are all
                     allocated to other consumers by now
    ``definitions``  the maximum number of repetitions of a method that reads and then writes:
                     changes of definitions (``reshape``: the larger of ``definitions`` and
                     ``assignments``), ``adjust``, ``move``, ``swap``, ``renew``
    ``assignments``  the maximum number of times that the ledger assigns a placed amount (a
                     topology, devices, units by name) again after a concurrent claim on its host
    ``seconds``      for how long a claim searches again, or a transaction is tried again; with the
                     default values this ends a claim's searches first. It does not limit
                     ``definitions`` and ``assignments``
    ``lease``        the seconds for which a waiting claim stays in the queue without a renewal, by
                     the clock of the ledger; it renews after each third
    ``tries``        of a backend: the maximum number of tries of a transaction or a request; not
                     counted while a server accepts no connection, because it is starting up,
                     shutting down or has too many clients
    ``first_sleep``  the pause after n tries is a random time of up to ``first_sleep * 2**n``
                     seconds, at most ``longest_sleep``
    ===============  ===============================================================================

    The first further search follows at once; a pause precedes each later one, each new assignment
    and each new try. From the second search on, the best candidates are shuffled. A claim stops
    searching when no other process has written since its last search. ``apply`` never retries: a
    plan is valid only for the state it was made from. A backend has a policy of its own, which
    ``connect(retries=)`` does not set.

    ``clock`` measures the time of searches, tries and waits; ``sleep`` and ``uniform`` pause and
    choose random numbers.

    :raises InvalidInput: for a count that is no integer from 0 (``tries``: from 1), for seconds
        that are not from 0, or for a lease that is not above 0 and at most a day

    >>> RetryPolicy(tries=3).run(lambda: "done")
    'done'
    """

    searches: int = 1000
    definitions: int = 5
    assignments: int = 20
    seconds: float = 30.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    uniform: Callable[[float, float], float] = random.uniform
    lease: float = LEASE
    tries: int = 20
    first_sleep: float = 0.002
    longest_sleep: float = 0.25

    def __post_init__(self) -> None:
        for name, least in (("searches", 0), ("definitions", 0), ("assignments", 0), ("tries", 1)):
            value = getattr(self, name)
            self._require(name, type(value) is int and value >= least, f"an integer from {least}")
        for name in ("seconds", "first_sleep", "longest_sleep"):  # NaN is refused too
            value = getattr(self, name)
            self._require(name, isinstance(value, int | float) and value >= 0, "seconds from 0")
        is_valid = isinstance(self.lease, int | float) and 0 < self.lease <= _LONGEST_LEASE
        self._require("lease", is_valid, "seconds above 0, at most a day")

    def _require(self, name: str, is_valid: bool, expected: str) -> None:
        if not is_valid:
            raise InvalidInput("field", f"RetryPolicy.{name}", getattr(self, name), expected)

    def run(self, attempt: Callable[[], T]) -> T:
        """Return the result of ``attempt``, called again after each :class:`Transient`.

        :raises LedgerError: ``final`` of the last transient error, when no try is left
        """
        began, counted = self.clock(), 0
        for number in itertools.count(1):
            try:
                return attempt()
            except Transient as error:
                counted += not error.not_yet
                LOG.debug("try %d: %s", number, error.final)
                if counted == self.tries or self.clock() - began >= self.seconds:
                    raise error.final from error.__cause__
            self.pause(number)
        raise AssertionError("it counts for ever")

    def retry(
        self,
        attempt: Callable[[], T],
        *faster: type[ResourceObjectsError] | str,
        tries: int | None = None,
    ) -> T:
        """Call a function that reads and then writes; the rest is as in :meth:`write`."""
        return self.write(lambda: None, lambda _: attempt(), *faster, tries=tries)

    def write(
        self,
        read: Callable[[], _A],
        write: Callable[[_A], T],
        *faster: type[ResourceObjectsError] | str,
        tries: int | None = None,
    ) -> T:
        """Read, then write; read and write again if another process wrote in between.

        :param write: called with what ``read`` returned. An error of ``read`` is not tried again
        :param faster: the types or codes of errors of ``write`` that report that another process
            wrote
        :param tries: the number of repetitions; None: ``definitions``
        """
        tries = self.definitions if tries is None else tries
        while True:
            state = read()
            try:
                return write(state)
            except ResourceObjectsError as error:
                if tries <= 0 or not error.matches(*faster):
                    raise
                LOG.debug("read and written again after: %s", error)
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
            for count in range(self.searches):
                if count:
                    self.pause(count)
                if self.clock() >= until:
                    return
                yield count + 1

        return turns()

    def pause(self, count: int) -> None:
        """Pause for a random time after some tries, so that the same processes do not meet again.

        >>> RetryPolicy(sleep=print, uniform=lambda least, most: most).pause(2)
        0.008
        """
        longest = clock.longest_pause(self.first_sleep, self.longest_sleep, count)
        self.sleep(self.uniform(0, longest))
