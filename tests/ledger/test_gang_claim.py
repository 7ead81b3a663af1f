"""Many consumers at once: whoever could go elsewhere makes room, and a no is sure."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import gang_claim
from resource_objects.resources import IntegerAmount
from tests.ledger.conftest import by_consumer
from tests.ledger.test_removed_units import VF, host_of, units_of, without

#: A way to take something: ``(host, class, amount)`` each.
Way = tuple[tuple[str, str, int], ...]


def candidate(way: Way) -> ro.Candidate:
    allocations = tuple(
        ro.Allocation(provider=host, resource_class=name, amount=IntegerAmount(amount))
        for host, name, amount in way
    )
    return ro.Candidate(host=way[0][0], allocations=allocations)


def places(claim: ro.Claim) -> list[str]:
    return [one.provider for one in claim.allocations]


@pytest.mark.parametrize("first", ["any", "both"])
def test_who_can_go_elsewhere_makes_room(ledger: ro.Ledger, first: str) -> None:
    """One of two hosts has a GPU: who only wants CPUs must not take its last ones."""
    ledger.sync(ro.Provider("h1", "VCPU=2,PGPU=1"), ro.Provider("h2", "VCPU=2"))
    snapshot = ledger.snapshot()
    wanted = {"any": "VCPU=2", "both": "VCPU=2,PGPU=1"}
    found = {
        name: snapshot.candidates(wanted[name]) for name in sorted(wanted, reverse=first == "both")
    }
    claims = by_consumer(ledger.claim_all(found))
    assert list(claims) == list(found)
    assert places(claims["any"]) == ["h2"]
    assert set(places(claims["both"])) == {"h1"}


def test_units_make_room_too(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("h1", "VCPU=2"))

    def cpu(number: int) -> ro.Candidate:
        one = ro.Allocation(
            provider="h1", resource_class="VCPU", amount=IntegerAmount(1), units=(f"cpu{number}",)
        )
        return ro.Candidate(host="h1", allocations=(one,))

    claims = by_consumer(ledger.claim_all({"any": [cpu(0), cpu(1)], "one": [cpu(0)]}))
    assert claims["any"].allocations[0].units == ("cpu1",)


def test_a_gang_that_is_one_too_many_is_refused_at_once(ledger: ro.Ledger) -> None:
    """Members alike are counted: 25 of 24 places is a no, however many choices there are."""
    for number in range(12):
        ledger.sync(ro.Provider(f"host{number}", "VCPU=2"))
    found = ledger.snapshot().candidates("VCPU=1", limit=None)
    with pytest.raises(exceptions.CapacityException):
        ledger.claim_all({f"job-{n}": found for n in range(25)})
    assert len(ledger.claim_all({f"job-{n}": found for n in range(24)})) == 24


def test_what_all_need_of_one_pool_is_counted(ledger: ro.Ledger) -> None:
    for number in range(8):
        ledger.sync(ro.Provider(f"host{number}", "VCPU=4"))
    ledger.sync(ro.Provider("disks", "DISK_GB=70"))
    ways = [candidate(((f"host{n}", "VCPU", 1), ("disks", "DISK_GB", 10))) for n in range(8)]
    with pytest.raises(exceptions.CapacityException, match="disks: DISK_GB"):
        ledger.claim_all({f"job-{n}": ways for n in range(8)})
    ledger.claim_all({f"job-{n}": ways for n in range(7)})


def test_what_takes_too_long_to_find_out_is_no_refusal(
    ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.sync(ro.Provider("h1", "VCPU=2,PGPU=1"), ro.Provider("h2", "VCPU=2"))
    snapshot = ledger.snapshot()
    monkeypatch.setattr(gang_claim, "STEPS", 1)
    with pytest.raises(exceptions.SearchLimitReached):
        ledger.claim_all(
            {"any": snapshot.candidates("VCPU=2"), "both": snapshot.candidates("VCPU=2,PGPU=1")}
        )
    assert not list(ledger.consumers())


# --- against trying everything ------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class World:
    """What there is, and the ways that each kind of member has; so many of each."""

    free: dict[tuple[str, str], int]
    ways: tuple[tuple[Way, ...], ...]
    counts: tuple[int, ...]

    def members(self) -> list[tuple[str, tuple[Way, ...]]]:
        return [
            (f"m{kind}-{number}", ways)
            for kind, (ways, count) in enumerate(zip(self.ways, self.counts, strict=True))
            for number in range(count)
        ]

    def is_possible(self) -> bool:
        """Return whether some choice of everybody fits."""
        for choice in itertools.product(*(ways for _, ways in self.members())):
            used: Counter[tuple[str, str]] = Counter()
            for way in choice:
                for host, name, amount in way:
                    used[host, name] += amount
            if all(amount <= self.free[key] for key, amount in used.items()):
                return True
        return False


@st.composite
def worlds(draw: st.DrawFn) -> World:
    hosts = [f"h{n}" for n in range(draw(st.integers(1, 3)))]
    free = {(host, name): draw(st.integers(1, 4)) for host in hosts for name in ("VCPU", "PGPU")}
    free["pool", "DISK_GB"] = draw(st.integers(1, 6))
    uses_pool = draw(st.booleans())

    def way() -> Way:
        host = draw(st.sampled_from(hosts))
        parts = [(host, "VCPU", draw(st.integers(1, 2)))]
        if draw(st.booleans()):
            parts.append((host, "PGPU", draw(st.integers(1, 2))))
        if uses_pool and draw(st.booleans()):
            parts.append(("pool", "DISK_GB", draw(st.integers(1, 3))))
        return tuple(parts)

    kinds = draw(st.integers(1, 3))
    ways = tuple(
        tuple(dict.fromkeys(way() for _ in range(draw(st.integers(1, 3))))) for _ in range(kinds)
    )
    return World(free, ways, tuple(draw(st.integers(1, 2)) for _ in range(kinds)))


@given(worlds())
def test_a_gang_is_taken_if_and_only_if_some_choice_fits(world: World) -> None:
    with ro.connect("memory://") as ledger:
        for host in dict.fromkeys(host for host, _ in world.free):
            kept = {name: n for (of, name), n in world.free.items() if of == host}
            ledger.sync(ro.Provider(host, kept))
        found = {name: [candidate(way) for way in ways] for name, ways in world.members()}
        is_possible = world.is_possible()
        event(f"possible: {is_possible}")
        if is_possible:
            ledger.claim_all(found)
            return
        with pytest.raises(exceptions.CapacityException) as refused:
            ledger.claim_all(found)
        assert refused.value.reasons
        assert not list(ledger.consumers())


# --- beside what is still to be placed, and what is learned -------------------------------------


@pytest.fixture
def cells_beside(numa_ledger: ro.Ledger) -> ro.Ledger:
    numa_ledger.sync(ro.Provider("p1", "VCPU=1,PGPU=1"), ro.Provider("p2", "VCPU=1"))
    return numa_ledger


LOCATED = {"host0": {"NUMA_TOPOLOGY": ro.numa(1, dedicated=2)}}


def test_who_is_still_to_be_placed_is_beside_a_search_of_all_choices(
    cells_beside: ro.Ledger,
) -> None:
    snapshot = cells_beside.snapshot()
    wanted = {
        "cells": LOCATED,
        "any": [candidate((("p1", "VCPU", 1),)), candidate((("p2", "VCPU", 1),))],
        "both": snapshot.candidates("VCPU=1,PGPU=1"),
    }
    claims = by_consumer(cells_beside.claim_all(wanted))
    assert places(claims["any"]) == ["p2"]
    assert set(places(claims["both"])) == {"p1"}


def test_who_is_still_to_be_placed_does_not_hide_a_refusal(cells_beside: ro.Ledger) -> None:
    ways = [candidate((("p1", "VCPU", 1),)), candidate((("p2", "VCPU", 1),))]
    cells_beside.claim("full", {"p1": "VCPU=1", "p2": "VCPU=1"})
    with pytest.raises(exceptions.CapacityException):
        cells_beside.claim_all({"cells": LOCATED, "any": ways})


def test_two_that_want_one_unit_are_refused_and_not_tried_for_ever(
    cells_beside: ro.Ledger,
) -> None:
    cells_beside.claim("z", LOCATED)
    got = cells_beside.assigned_amounts("z")["host0"]
    cells_beside.release("z")
    ways = [candidate((("p1", "VCPU", 1),)), candidate((("p2", "VCPU", 1),))]
    with pytest.raises(exceptions.CapacityException):
        cells_beside.claim_all({"a": {"host0": got}, "b": {"host0": got}, "c": ways})


def test_what_a_refusal_teaches_is_not_forgotten(
    cells_beside: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removed units are free by the figures that are read."""
    ways = []
    for name in ("h1", "h2"):
        cells_beside.sync(host_of(name, [1]))
        card, function = units_of(0, 1)
        without(cells_beside, name, [1], 0, function)
        ways.append(candidate(((f"{name}/{card}", VF, 1),)))
    seen: list[object] = []
    commit = cells_beside.backend.commit

    def counted(write: Any) -> Any:
        seen.append(write)
        assert len(seen) < 20, "it is tried for ever"
        return commit(write)

    monkeypatch.setattr(cells_beside.backend, "commit", counted)
    with pytest.raises(exceptions.CapacityException):
        cells_beside.claim_all({"cells": LOCATED, "vf": ways})
