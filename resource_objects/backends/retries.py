"""The one policy by which a write is carried out again that says nothing against itself.

A deadlock, a serialization failure or a lock that somebody else holds says nothing about the
change itself: the transaction was rolled back whole, so it is simply run again. So it is with a
remote service that gave up because others wrote the same, or did not answer and has done nothing.
Sleeps grow and are drawn at random, or writers that met once meet again.

oslo.db's ``wrap_db_retry`` is as fast (0.1 microseconds a call, this 0.3) and is not used: it
bounds how often, not how long, it tries, and of a database's errors it knows deadlocks and lost
connections. The others would go through its ``exception_checker``, which would be the tables of
:mod:`resource_objects.backends.sql.errors`, and :class:`Transient` for what this library itself
sees changed between a look and a write.
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
    """Nothing was written, and it may be tried again; ``final`` is raised at the end.

    ``not_yet`` says that it did not begin, because the server takes nobody at the moment.
    """

    def __init__(self, final: LedgerError, *, not_yet: bool = False) -> None:
        super().__init__(str(final))
        self.final = final
        self.not_yet = not_yet


@dataclasses.dataclass(frozen=True, slots=True)
class Retries:
    """How often and how long a write is tried: ``tries`` times, within ``seconds``.

    Before try n + 1 it sleeps a random time of up to ``first_sleep * 2**n``, at most
    ``longest_sleep``. ``seconds`` bounds when a try may begin, not how long it takes. While a
    server takes nobody, because it is starting up, shutting down or has too many clients,
    ``seconds`` alone bounds how often it is asked again.

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
        """Return what ``attempt`` returns, calling it again after each :class:`Transient`.

        :raises LedgerError: the last transient error's ``final``, when the tries are used up
        """
        began, tried = self.clock(), 0
        for asked in itertools.count(1):
            try:
                return attempt()
            except Transient as error:
                tried += not error.not_yet
                LOG.debug("try %d: %s", asked, error.final)
                if tried == self.tries or self.clock() - began >= self.seconds:
                    raise error.final from error.__cause__
            longest = clock.longest_pause(self.first_sleep, self.longest_sleep, asked)
            self.sleep(self.uniform(0, longest))
        raise AssertionError("it counts for ever")
