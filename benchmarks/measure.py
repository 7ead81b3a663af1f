"""Timers, and the rows of the table that they fill."""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

RATE = "per second"


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    A figure is better if it is smaller, unless its unit is :data:`RATE`.
    """

    name: str
    unit: str
    ours: float
    peer: float | None = None  #: the figure of another program in the same run
    peer_name: str = ""
    limit: float | None = None  #: the worst figure that meets the target
    least_ratio: float | None = None  #: how many times better than the peer meets the target

    @property
    def ratio(self) -> float | None:
        """How many times better our figure is than the peer's."""
        if not self.ours or not self.peer:
            return None
        return self.ours / self.peer if self.unit == RATE else self.peer / self.ours

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None without a target."""
        if self.limit is not None:
            return self.ours >= self.limit if self.unit == RATE else self.ours <= self.limit
        if self.least_ratio is not None and self.ratio is not None:
            return self.ratio >= self.least_ratio
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for the result file."""
        row = {key: value for key, value in vars(self).items() if value is not None}
        if self.ratio is None:
            row.pop("peer_name")
            return row
        return {**row, "ratio": self.ratio}


def seconds(step: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Return the seconds of one call: CPU time of this process, unless another clock is passed."""
    start = clock()
    step()
    return clock() - start


def least_seconds(
    step: Callable[[], object],
    *,
    rounds: int = 7,
    calls: int = 1,
    before: Callable[[], object] | None = None,
    after: Callable[[], object] | None = None,
) -> float:
    """Return the CPU seconds of one call in the best of several rounds.

    Other work on the machine only makes a round slower, so the best round is the most exact one.

    :param before: is called before each round, and not measured; so is ``after``
    """
    times = []
    for _ in range(rounds):
        if before is not None:
            before()
        gc.collect()
        start = time.process_time()
        for _ in range(calls):
            step()
        times.append((time.process_time() - start) / calls)
        if after is not None:
            after()
    return min(times)


def milliseconds(
    name: str, step: Callable[[], object], *, limit: float | None = None, **options: Any
) -> Row:
    """Return a row of :func:`least_seconds` in milliseconds.

    :param options: of :func:`least_seconds`
    """
    return Row(name, "ms", least_seconds(step, **options) * 1e3, limit=limit)


def rate(
    name: str,
    step: Callable[[int], object],
    calls: int,
    *,
    limit: float | None = None,
    rounds: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> Row:
    """Return a row of calls per second: the median of the rounds.

    :param step: is called with 0, 1, 2, ...
    """
    rates = []
    for first in range(0, rounds * calls, calls):
        start = clock()
        for number in range(first, first + calls):
            step(number)
        rates.append(calls / (clock() - start))
    return Row(name, RATE, statistics.median(rates), limit=limit)


_PER_SECOND: Mapping[str, float] = {"ns": 1e9, "us": 1e6, "ms": 1e3}


def alternating(
    name: str,
    unit: str,
    ours: Callable[[], object],
    peer: Callable[[], object] | None,
    peer_name: str,
    *,
    calls: tuple[int, int] = (200, 200),
    rounds: int = 7,
    **target: float | None,
) -> Row:
    """Return a row of two functions that are called in turn: medians of the CPU time of one call.

    :param peer: None if the other program is not installed
    :param calls: of ours and of the peer's in a round
    :param target: ``limit`` or ``least_ratio`` of the :class:`Row`
    """
    functions = [ours] if peer is None else [ours, peer]
    times: list[list[float]] = [[] for _ in functions]
    for function in functions:
        function()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for function, count, durations in zip(functions, calls, times, strict=False):
                start = time.process_time()
                for _ in range(count):
                    function()
                durations.append((time.process_time() - start) / count)
    finally:
        gc.enable()
    medians = [statistics.median(durations) * _PER_SECOND[unit] for durations in times]
    if peer is None:
        return Row(name, unit, medians[0], **target)
    return Row(name, unit, medians[0], medians[1], peer_name, **target)
