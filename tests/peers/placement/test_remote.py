"""A ledger in the real Placement: what it does there, also where our own service does otherwise."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import resource_objects as ro
from benchmarks.peer import Placement
from resource_objects import exceptions
from resource_objects.providers.reshape import Move, NewProvider, Part, Reshape
from tests.peers.placement.test_remote_kit import empty
from tests.support import remote_fleets
from tests.support.wsgi_transport import WSGITransport, ledger_on

pytestmark = pytest.mark.filterwarnings("ignore")  # other libraries' own


@pytest.fixture
def ledger(placement: Placement) -> Iterator[ro.Ledger]:
    """A ledger kept in an empty Placement."""
    empty(placement)
    with ledger_on(WSGITransport(placement.application)) as found:
        yield found


def host(ledger: ro.Ledger, name: str = "host0", has: str = "VCPU=8") -> str:
    ledger.sync(ro.Provider(name, has))
    return ledger.backend.uuids([name])[name]


def put(placement: Placement, consumer: str, allocations: Any, generation: int | None) -> None:
    body = {
        "allocations": allocations,
        "consumer_generation": generation,
        "project_id": "p",
        "user_id": "u",
        "consumer_type": "INSTANCE",
    }
    placement.ask("PUT", f"/allocations/{consumer}", body)


def test_a_search_on_its_data_finds_and_says_why_not(ledger: ro.Ledger) -> None:
    for n in range(2):
        tree = ro.Provider(f"host{n}", "VCPU=8,MEMORY_MB=4096:reserved=512")
        tree.add(f"host{n}/gpu", "PGPU=2", traits=["CUSTOM_H100"])
        ledger.sync(tree)
    job = ro.Request("VCPU=2,PGPU=2", required=["CUSTOM_H100"])
    for name in ("job-1", "job-2"):
        ledger.claim(name, ledger.snapshot().candidates(job), project="p", consumer_type="JOB")
    held = ledger.get_claim("job-1")
    assert (held.project, held.user, held.consumer_type) == ("p", None, "JOB")
    assert "PGPU requested 2, free 0 of 2 (job-1 holds 2)" in str(
        ledger.snapshot().candidates(job).explain()
    )
    ledger.release("job-1")
    assert ledger.snapshot().candidates(job)


@pytest.mark.parametrize("block", range(4))
def test_a_search_on_what_was_read_is_as_on_a_local_ledger(
    placement: Placement, block: int
) -> None:
    possible = 0
    for seed in range(block * 8, block * 8 + 8):
        empty(placement)
        with (
            ro.connect("memory://") as local,
            ledger_on(WSGITransport(placement.application)) as remote,
            ledger_on(WSGITransport(placement.application)) as reader,
        ):
            possible += remote_fleets.check(local, remote, reader, seed)
    assert 10 < possible < 8 * remote_fleets.REQUESTS - 10


def test_what_nova_writes_is_seen_as_far_as_generations_tell(
    ledger: ro.Ledger, placement: Placement
) -> None:
    here, there = host(ledger), host(ledger, "host1")
    job, other = str(uuid.uuid4()), str(uuid.uuid4())

    def used() -> tuple[int, ...]:
        found = ledger.snapshot()
        rows = {row.host: row["VCPU"].used for row in found.host_usage()}
        return rows["host0"], rows["host1"]

    put(placement, job, {here: {"resources": {"VCPU": 3}}}, None)
    put(placement, other, {here: {"resources": {"VCPU": 1}}}, None)
    assert used() == (4, 0)
    put(placement, job, {}, 1)  # which raises the generation
    assert used() == (1, 0)
    put(placement, other, {there: {"resources": {"VCPU": 1}}}, 1)  # that of where it goes alone
    assert used() == (1, 1)
    placement.ask("DELETE", f"/allocations/{other}")  # none
    assert used() == (1, 1)
    ledger.backend.reread()  # type: ignore[attr-defined]
    assert used() == (0, 0)


def test_aggregates_of_old_are_missed_and_names_are_not(
    ledger: ro.Ledger, placement: Placement
) -> None:
    here, aggregate = host(ledger), str(uuid.uuid4())
    assert not ledger.snapshot().candidates(ro.Request("VCPU=1", member_of=[aggregate]))
    path = f"/resource_providers/{here}/aggregates"
    assert placement.answer("PUT", path, [aggregate], "placement 1.18")[0] == 200
    placement.ask("PUT", f"/resource_providers/{here}", {"name": "host0"})
    assert not ledger.snapshot().candidates(ro.Request("VCPU=1", member_of=[aggregate]))
    placement.ask("PUT", f"/resource_providers/{here}", {"name": "other"})
    found = ledger.snapshot().candidates(ro.Request("VCPU=1", member_of=[aggregate]))
    assert found[0].host == "other"


def test_a_consumer_that_was_left_behind_can_be_claimed_for(
    ledger: ro.Ledger, placement: Placement
) -> None:
    host(ledger)
    job = str(uuid.uuid4())
    put(placement, job, {}, None)  # stays behind at generation 0, which no reading shows
    assert ledger.claim(job, {"host0": "VCPU=1"}).generation == 1
    assert ledger.get_claim(job).generation == 1


def test_an_older_placement_is_spoken_to_in_its_words(placement: Placement) -> None:
    """As Rocky had it in 2018."""
    empty(placement)
    transport = WSGITransport(placement.application)
    with ledger_on(transport, "workers=1&microversion=1.30") as ledger:
        tree = ro.Provider("host0", "VCPU=8", traits=["CUSTOM_A"])
        tree.add("host0/gpu", "PGPU=2")
        ledger.sync(tree)
        ledger.sync(ro.Provider("host1", "VCPU=8"))
        for name in ("a", "b"):
            ledger.claim(name, ledger.snapshot().candidates("VCPU=3,PGPU=1"), project="p")
        assert "PGPU requested 1, free 0 of 2" in str(
            ledger.snapshot().candidates("PGPU=1").explain()
        )
        ledger.move("a", {"host1": "VCPU=3"})
        ledger.swap("a", "b")
        ledger.release("a")
        assert str(ledger.get_claim("b")) == "b holds VCPU=3 of host1"
        move = Move("host1", "VCPU", (Part("host1/c"),))
        ledger.reshape(Reshape((move,), (NewProvider("host1/c", "host1"),)))
        assert str(ledger.get_claim("b")) == "b holds VCPU=3 of host1/c"
        with pytest.raises(exceptions.NotSupported, match="consumer types"):
            ledger.claim("c", {"host0": "VCPU=1"}, consumer_type="JOB")
        with pytest.raises(exceptions.NotSupported, match="providers that are moved"):
            ledger.change("host1/c", parent="host0")


def test_the_capacity_is_that_of_floats(ledger: ro.Ledger) -> None:
    host(ledger, has="VCPU=100:allocation_ratio=1.15")
    with pytest.raises(exceptions.CapacityException) as refused:
        ledger.claim("job", {"host0": "VCPU=115"})
    [reason] = refused.value.reasons
    assert (reason.requested, reason.bound, reason.used) == (115, 114, 0)
    ledger.claim("job", {"host0": "VCPU=114"})


def test_an_inventory_that_no_ledger_can_have_is_named(
    ledger: ro.Ledger, placement: Placement
) -> None:
    here = host(ledger)
    placement.ask(
        "PUT",
        f"/resource_providers/{here}/inventories",
        {
            "resource_provider_generation": 1,
            "inventories": {"VCPU": {"total": 8, "min_unit": 5, "max_unit": 2}},
        },
    )
    with pytest.raises(exceptions.InvalidInventory, match="VCPU at host0"):
        ledger.snapshot()


def test_a_reshape_is_one_request(ledger: ro.Ledger) -> None:
    tree = ro.Provider("host0", "VCPU=8,PGPU=2")
    ledger.sync(tree)
    ledger.claim("job", {"host0": "VCPU=1,PGPU=1"})
    move = Move("host0", "PGPU", (Part("host0/gpu"),))
    ledger.reshape(Reshape((move,), (NewProvider("host0/gpu", "host0"),)))
    assert str(ledger.get_claim("job")) == "job holds VCPU=1 of host0, PGPU=1 of host0/gpu"
    assert ledger.inventories("host0/gpu")["PGPU"].used == 1
