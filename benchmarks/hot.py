"""Eight processes that claim at one provider at the same time, each with a connection of its own.

All start together and claim for new consumers until the time is over; what is refused with an
error is counted and not tried again. The provider has room for all.
"""

from __future__ import annotations

import logging
import multiprocessing
import pathlib
import tempfile
import time
import traceback
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from benchmarks import peer

PROCESSES = 8
SECONDS = 4.0


class Result(NamedTuple):
    """What all processes did together."""

    claims: int
    errors: int
    seconds: float
    kinds: dict[str, int]  #: errors by their kind
    times: list[float] = []  #: seconds that calls took which ended without an error

    def within(self, part: float) -> float:
        """Return the seconds in which a part of these calls ended, such as 0.99 of them."""
        return sorted(self.times)[min(int(len(self.times) * part), len(self.times) - 1)]

    @property
    def rate(self) -> float:
        """Claims per second."""
        return self.claims / self.seconds

    @property
    def failed(self) -> float:
        """The percentage of calls that ended with an error."""
        return 100 * self.errors / max(1, self.claims + self.errors)


def ours(url: str, provider: str, resources: dict[str, int], tag: str) -> Callable[[int], Any]:
    """Return what claims through the front door."""
    import resource_objects as ro

    ledger = ro.connect(url)
    asked = {provider: resources}
    return lambda number: ledger.claim(f"{tag}-{number}", asked)


def theirs(url: str, provider: str, resources: dict[str, int], tag: str) -> Callable[[int], Any]:
    """Return what claims through Placement's WSGI application."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:  # its configuration is read once
        service = peer.Placement(url, pathlib.Path(folder), sync=False)
    return lambda number: service.claim(provider, resources)


def run(
    side: Callable[..., Any], *args: Any, seconds: float = SECONDS, processes: int = PROCESSES
) -> Iterator[Result]:
    """Yield one result. To be called in a process that has no connections: it forks."""
    warnings.simplefilter("ignore")
    _import(side)
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(processes)
    results: Any = fork.SimpleQueue()
    children = [
        fork.Process(target=_claim, args=(side, args, str(uuid.uuid4()), barrier, results, seconds))
        for _ in range(processes)
    ]
    for child in children:
        child.start()
    found = [results.get() for _ in children]
    for child in children:
        child.join()
    kinds: Counter[str] = Counter()
    for one in found:
        kinds.update(one.kinds)
    yield Result(
        sum(one.claims for one in found),
        sum(one.errors for one in found),
        max(one.seconds for one in found),
        dict(kinds),
        [each for one in found for each in one.times],
    )


def _import(side: Callable[..., Any]) -> None:
    """Import before the fork what takes long."""
    if side is theirs:
        from placement import deploy  # noqa: F401
    else:
        import resource_objects.backends.sql.backend  # noqa: F401


def _claim(
    side: Callable[..., Callable[[int], Any]],
    args: tuple[Any, ...],
    tag: str,
    barrier: Any,
    results: Any,
    seconds: float,
) -> None:
    try:
        once = side(*args, tag)
        for warm in range(3):  # the first one connects
            if _failed(once, -1 - warm) is None:
                break
        barrier.wait(60)
        start = now = time.perf_counter()
        claims = 0
        kinds: Counter[str] = Counter()
        number = 0
        times = []
        while now < start + seconds:
            number += 1
            error = _failed(once, number)
            before, now = now, time.perf_counter()
            if error is None:
                claims += 1
                times.append(now - before)
            else:
                kinds[error] += 1
        results.put(Result(claims, kinds.total(), now - start, dict(kinds), times))
    except BaseException:
        barrier.abort()
        results.put(Result(0, 1, seconds, {traceback.format_exc(): 1}))


def _failed(once: Callable[[int], Any], number: int) -> str | None:
    """Return what kind of error there was, None if none."""
    try:
        once(number)
    except peer.Refused as error:
        return str(error.status)
    except Exception as error:
        return type(error).__name__
    return None
