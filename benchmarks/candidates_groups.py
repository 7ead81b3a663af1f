"""How the search grows with the devices of a host and with groups: part of the candidates part."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator

import resource_objects as ro
from benchmarks import candidates_asked as asked
from benchmarks.measure import Row, per_call
from benchmarks.numa_asked import row
from benchmarks.numa_growth import exponents
from resource_objects.requests import query

DEVICES = (8, 16, 32, 64, 128)
GROUPS = (1, 2, 4, 8, 16)
#: How long a point is measured in one round.
POINT_NS = 2e7

_EQUAL, _STAIRS, _CLASH = (
    "growth: groups on equal devices",
    "growth: no two devices alike, the groups fit in one way only",
    "growth: no two devices alike, two groups want the largest",
)


def rows() -> Iterator[Row]:
    """Yield a point for each number of devices and of groups, and the exponents that fit them."""
    for name in (_EQUAL, _STAIRS, _CLASH):
        points = [
            _point(name, devices, groups)
            for devices, groups in itertools.product(DEVICES, GROUPS)
            if groups <= devices and (name != _CLASH or groups > 1)
        ]
        yield from points
        yield from exponents(name, points, ("devices", "groups"))


def _point(name: str, devices: int, groups: int) -> Row:
    make = asked.devices if name == _EQUAL else asked.stairs
    if name == _EQUAL:
        words = asked.equal(groups)
    else:
        words = asked.rising(devices, groups, clash=name == _CLASH)
    with ro.connect("memory://") as ledger:
        ledger.sync(*make(devices))
        once = _searching(ledger, words, holds=name != _CLASH)
        found = row(name, "ms", once, calls=(_calls(once), 1), rounds=3)
    return dataclasses.replace(found, point=(devices, groups), axes=("devices", "group"))


def _searching(ledger: ro.Ledger, words: str, *, holds: bool) -> Callable[[], None]:
    request = query.parse(words).request

    def once() -> None:
        if bool(ledger.snapshot().candidates(request, limit=asked.LIMIT)) is not holds:
            raise AssertionError(words)

    return once


def _calls(once: Callable[[], None]) -> int:
    once()
    return max(1, int(POINT_NS / per_call(once, 1)))
