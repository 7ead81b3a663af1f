"""Measuring: interleaved rounds, medians, and rows that say what they mean."""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: a figure, its peer in the same run, their ratio, and the target."""

    name: str
    unit: str
    ours: float
    peer: float | None = None
    peer_name: str = ""
    ratio: float | None = None
    target: str = ""
    met: bool | None = None
    #: Of a figure in a grid: its line and column.
    point: tuple[int, int | str] | None = None
    #: What these are, many lines of the one and one column of the other; None for cells.
    axes: tuple[str, str] | None = None
    #: Whether the peer was stopped before it had an answer: it takes more than its figure.
    stopped: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for the result file."""
        found = dataclasses.asdict(self)
        for name in ("point", "axes", "stopped"):
            if not found[name]:
                del found[name]
        return found


def per_call(function: Callable[[], Any], calls: int) -> float:
    """Return the CPU nanoseconds of one call."""
    start = time.process_time_ns()
    for _ in range(calls):
        function()
    return (time.process_time_ns() - start) / calls


def side_by_side(
    name: str,
    ours: Callable[[], Any],
    peer: Callable[[], Any],
    *,
    peer_name: str,
    most: float | None = None,
    calls: int = 20_000,
    rounds: int = 7,
) -> Row:
    """Time two functions in turn; the ratio is the median of the rounds' ratios."""
    gc.disable()
    try:
        per_call(ours, calls // 10), per_call(peer, calls // 10)
        pairs = [(per_call(ours, calls), per_call(peer, calls)) for _ in range(rounds)]
    finally:
        gc.enable()
    ratio = statistics.median(mine / theirs for mine, theirs in pairs)
    return Row(
        name,
        "ns",
        statistics.median(mine for mine, _ in pairs),
        statistics.median(theirs for _, theirs in pairs),
        peer_name,
        ratio,
        "" if most is None else f"at most {most:g} times",
        None if most is None else ratio <= most,
    )


def rate(
    name: str,
    once: Callable[[int], Any],
    count: int,
    *,
    least: float | None = None,
    rounds: int = 3,
) -> Row:
    """Return how often per second ``once(number)`` runs: wall clock, median of the rounds."""
    rates = []
    number = 0
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(count):
            once(number)
            number += 1
        rates.append(count / (time.perf_counter() - start))
    figure = statistics.median(rates)
    return Row(
        name,
        "per second",
        figure,
        target="" if least is None else f"at least {least:,.0f}",
        met=None if least is None else figure >= least,
    )


@dataclasses.dataclass(frozen=True)
class Side:
    """What one side does for a row: ``once()`` does ``items`` things, and is called ``calls`` times
    in a round."""

    once: Callable[[], Any]
    calls: int
    items: int = 1

    def rate(self) -> float:
        """Return the things done per second of wall clock in one round."""
        start = time.perf_counter()
        for _ in range(self.calls):
            self.once()
        return self.calls * self.items / (time.perf_counter() - start)


def beside(
    name: str,
    ours: Side,
    peers: Mapping[str, Side],
    *,
    least: float | None = None,
    rounds: int = 5,
    unit: str = "per second",
) -> Iterator[Row]:
    """Yield a row per peer: how often each side does it, in turn; the ratio is ours to the peer's.

    A target is of the first peer. Medians of the rounds, of ratios too.
    """
    for side in (ours, *peers.values()):
        side.once()
    found: list[tuple[float, dict[str, float]]] = []
    for _ in range(rounds):
        found.append((ours.rate(), {name: side.rate() for name, side in peers.items()}))
    for place, peer in enumerate(peers):
        ratio = statistics.median(mine / theirs[peer] for mine, theirs in found)
        target = least if place == 0 else None
        yield Row(
            name,
            unit,
            statistics.median(mine for mine, _ in found),
            statistics.median(theirs[peer] for _, theirs in found),
            peer,
            ratio,
            "" if target is None else f"at least {target:g} times",
            None if target is None else ratio >= target,
        )
