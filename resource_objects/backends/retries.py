"""The policy by which transactions and requests are repeated after a transient error.

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
from collections.abc import Callable
from typing import TypeVar

from resource_objects import clock
from resource_objects.exceptions import InvalidInput, LedgerError

T = TypeVar("T")

#: Upgrades (INFO), and transactions that were rolled back and tried again (DEBUG). An error's text
#: is the library's own: it names hosts and files, and no password.
LOG = logging.getLogger("resource_objects.backends")


class Transient(Exception):
    """An error after which nothing is written and the work can be repeated.

    :param final: the error that is raised if it is not repeated
    :param not_yet: whether nothing began, because the server accepts no connections at the moment
    """

    def __init__(self, final: LedgerError, *, not_yet: bool = False) -> None:
        super().__init__(str(final))
        self.final = final
        self.not_yet = not_yet


@dataclasses.dataclass(frozen=True, slots=True)
class Retries:
    """The limits of repetitions: at most ``tries`` tries, the last begun within ``seconds``.

    Before try n + 1 it sleeps a random time of up to ``first_sleep * 2**n`` seconds, at most
    ``longest_sleep``. While a server accepts no connection, because it is starting up, shutting
    down or has too many clients, only ``seconds`` limits the tries.

    :raises InvalidInput: for less than one try, or a time below 0

    >>> Retries(tries=3).run(lambda: "done")
    'done'
    """

    tries: int = 20
    seconds: float = 30.0
    first_sleep: float = 0.002
    longest_sleep: float = 0.25
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    uniform: Callable[[float, float], float] = random.uniform

    def __post_init__(self) -> None:
        if type(self.tries) is not int or self.tries < 1:
            raise InvalidInput("field", "Retries.tries", self.tries, "an integer from 1")
        for name in ("seconds", "first_sleep", "longest_sleep"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not value >= 0:  # nor NaN
                raise InvalidInput("field", f"Retries.{name}", value, "seconds, at least 0")

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
            longest = clock.longest_pause(self.first_sleep, self.longest_sleep, number)
            self.sleep(self.uniform(0, longest))
        raise AssertionError("it counts for ever")
