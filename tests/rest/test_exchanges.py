"""Candidates that only exchange what is equal: all of them, each once, behind those that differ."""

from __future__ import annotations

import pytest

import resource_objects as ro
from resource_objects.requests import Request
from resource_objects.rest.exchanges import assignment_of, permutations, with_exchanges


def ways(request: Request, devices: int, limit: int = 100_000) -> list[tuple[str, ...]]:
    """Return who gives each group, of a host with so many equal devices."""
    with ro.connect("memory://") as ledger:
        host = ro.Provider("host0", "VCPU=8")
        for number in range(devices):
            host.add(f"gpu{number}", "PGPU=1")
        ledger.sync(host)
        snapshot = ledger.snapshot()
        found = [
            assignment_of(snapshot.fleet, one) for one in snapshot.candidates(request, limit=limit)
        ]
        told = with_exchanges(snapshot.fleet, request, found, limit)
        names = snapshot.fleet.names
        return [
            tuple(names[place] for group in request.groups for place in way.groups[group.suffix])
            for way in told
        ]


def asked(groups: int, **said: str) -> Request:
    request = Request("VCPU=1", compatibility="placement", group_policy="isolate")
    for number in range(groups):
        request = request.with_group(f"_{number}", "PGPU=1", **said)
    return request


def test_each_way_is_told_once() -> None:
    found = ways(asked(2), 3)
    assert len(found) == len(set(found)) == 6
    assert set(found) == {
        ("host0", f"gpu{a}", f"gpu{b}") for a in range(3) for b in range(3) if a != b
    }


@pytest.mark.parametrize("limit", [1, 4, 100])
def test_no_more_than_the_limit_are_told(limit: int) -> None:
    found = ways(asked(6), 8, limit)
    assert len(found) == len(set(found)) == limit


def test_what_exchanges_nothing_stays_alone() -> None:
    assert ways(Request("VCPU=1", compatibility="placement"), 3) == [("host0",)]


def test_the_orders_of_equal_things_are_told_once() -> None:
    assert len(list(permutations("aabbc"))) == len(set(permutations("aabbc"))) == 30
    assert list(permutations("")) == [()]
