"""What a claim and a read cost while the ledger grows: on SQLite files, through the front door.

Two ways to grow: from 1,000 to 100,000 providers that are empty, and from none to 100,000
consumers of 1,000 providers. A ledger of each size is made, and they are asked in turn. A claim is
of three classes at one provider, each time at another one; nobody else is at work. Takes minutes:
it is not run unless it is named.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import resource_objects as ro
from benchmarks.measure import Row

PROVIDERS = (1_000, 10_000, 100_000)
CONSUMERS = (0, 10_000, 100_000)
HAS = {"VCPU": 1_000_000, "MEMORY_MB": 2_000_000_000, "DISK_GB": 2_000_000_000}
ASKED = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}
CHUNK = 1_000
MOST = 1.5  #: how many times what it costs in the smallest ledger
CALLS, ROUNDS = 60, 9

#: What a ledger is asked, by what it is called.
Questions = Mapping[str, Callable[[], Any]]


def rows() -> Iterator[Row]:
    """Yield a row per size and question; the peer is the smallest size."""
    yield from _growing("providers", PROVIDERS, _fill_providers)
    yield from _growing("consumers", CONSUMERS, _fill_consumers)


def _growing(
    word: str, sizes: tuple[int, ...], fill: Callable[[ro.Ledger, int], None]
) -> Iterator[Row]:
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        asked: dict[int, Questions] = {}
        for size in sizes:
            ledger = stack.enter_context(ro.connect(f"sqlite:///{folder}/{size}.db"))
            if word == "consumers":
                _fill_providers(ledger, PROVIDERS[0])
            start = time.perf_counter()
            fill(ledger, size)
            if size:
                rate = size / (time.perf_counter() - start)
                yield Row(f"{size:,} {word} made, {CHUNK:,} a call", "per second", rate)
            asked[size] = _questions(ledger)
        for name in asked[sizes[0]]:
            yield from _rows(name, word, {size: asked[size][name] for size in sizes})


def _rows(name: str, word: str, asked: Mapping[int, Callable[[], Any]]) -> Iterator[Row]:
    rounds = [{size: _seconds(once) for size, once in asked.items()} for _ in range(ROUNDS)]
    least = min(asked)
    for size in asked:
        cost = statistics.median(found[size] for found in rounds) * 1000
        if size == least:
            yield Row(f"{name}, {size:,} {word}", "ms", cost)
            continue
        ratio = statistics.median(found[size] / found[least] for found in rounds)
        yield Row(
            f"{name}, {size:,} {word}",
            "ms",
            cost,
            statistics.median(found[least] for found in rounds) * 1000,
            f"{least:,} {word}",
            ratio,
            f"at most {MOST:g} times",
            ratio <= MOST,
        )


def _seconds(once: Callable[[], Any]) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    for _ in range(CALLS):
        once()
    return (time.perf_counter() - start) / CALLS


def _fill_providers(ledger: ro.Ledger, size: int) -> None:
    for start in range(0, size, CHUNK):
        ledger.sync(
            *(
                ro.Provider(f"host-{number}", HAS, aggregates=[f"rack-{number // 40}"])
                for number in range(start, min(start + CHUNK, size))
            )
        )


def _fill_consumers(ledger: ro.Ledger, size: int) -> None:
    for start in range(0, size, CHUNK):
        ledger.claim_all(
            {
                f"kept-{number}": {f"host-{number % PROVIDERS[0]}": ASKED}
                for number in range(start, min(start + CHUNK, size))
            }
        )


def _questions(ledger: ro.Ledger) -> Questions:
    """Return what is asked, each time about one of some fifty providers of all ages."""
    every = max(1, _count(ledger) // 50)
    uuids = [one.uuid for one in itertools.islice(ledger.providers(), 0, None, every)]
    pick, numbers = random.Random(1), itertools.count()
    last = [""]

    def claim() -> None:
        last[0] = f"job-{next(numbers)}"
        ledger.claim(last[0], {pick.choice(uuids): ASKED})

    claim()
    return {
        "a claim": claim,
        "a consumer read": lambda: ledger.get_claim(last[0]),
        "a provider read": lambda: ledger.provider(pick.choice(uuids)),
    }


def _count(ledger: ro.Ledger) -> int:
    return sum(1 for _ in ledger.providers())
