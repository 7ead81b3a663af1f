"""Limits: totals that a scheduler computes for one claim, whatever the capacity."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.partitions import thousandths
from resource_objects.ledger import RetryPolicy, new_operation
from resource_objects.providers import Provider
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.pci import DeviceUse
from resource_objects.testing.conformance.suite import host_of
from resource_objects.testing.refusals import raises_code
from tests.ledger.device_hosts import CARD, FUNCTION, card, chosen, functions, raw
from tests.ledger.device_hosts import host_of as device_host
from tests.ledger.numa_hosts import cells

#: A way to take: given a ledger, a consumer that holds a CPU of host1, what to take and limits.
Take = Callable[[ro.Ledger, str, Any, Any], object]

WAYS: dict[str, Take] = {
    "claim": lambda ledger, name, found, limits: ledger.claim("new", found, limits=limits),
    "claim_all": lambda ledger, name, found, limits: ledger.claim_all(
        {"new": found}, limits=limits
    ),
    "replace": lambda ledger, name, found, limits: ledger.replace(name, found, limits=limits),
    "move": lambda ledger, name, found, limits: ledger.move(name, found, limits=limits),
    "leaving": lambda ledger, name, found, limits: ledger.move(
        name, found, source_consumer="migration", limits=limits
    ),
    "adjust": lambda ledger, name, found, limits: ledger.adjust(name, found, limits=limits),
}


def three_hosts(ledger: ro.Ledger) -> None:
    ledger.sync(*(Provider(f"host{n}", "VCPU=8,MEMORY_MB=4096") for n in range(3)))
    ledger.claim("other", {"host0": "VCPU=2"})
    ledger.claim("job", {"host1": "VCPU=1"})


@pytest.fixture
def kept(ledger_with: Callable[[Callable[[ro.Ledger], object]], ro.Ledger]) -> ro.Ledger:
    """Three hosts; somebody has two CPUs of host0, "job" one of host1."""
    return ledger_with(three_hosts)


def used(ledger: ro.Ledger, host: str) -> int:
    return ledger.inventories(host)["VCPU"].used


@pytest.mark.law(4, 6)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_take_keeps_the_limit(kept: ro.Ledger, way: str) -> None:
    before = kept.get_claim("job")
    with pytest.raises(exceptions.CapacityException) as refused:
        WAYS[way](kept, "job", {"host0": "VCPU=3"}, {"host0": "VCPU=4"})
    assert refused.value.reasons == (
        Reason(Rule.LIMIT, 3, 4, 2, "VCPU", "host0", holders=(("other", 2),)),
    )
    assert (
        str(refused.value) == "host0: VCPU requested 3, free 2 under the limit of 4 (other holds 2)"
    )
    assert kept.get_claim("job") == before and used(kept, "host0") == 2
    WAYS[way](kept, "job", {"host0": "VCPU=3"}, {"host0": {"VCPU": 5, "MEMORY_MB": 0}})
    assert used(kept, "host0") == 5


@pytest.mark.parametrize(
    ("limits", "error", "said"),
    [
        ({"host0": {"VCPU": -1}}, "NegativeAmount", "limit of VCPU.*0 or more"),
        ({"host0": "VCPU=-1"}, "NegativeAmount", "limit of VCPU"),
        ({"host0": {"VCPU": 1.5}}, "InvalidAmount", "1.5"),
        ({"host0": {"VCPU": True}}, "InvalidAmount", "True"),
        ({"host0": {"VCPU": 2**63}}, "InvalidAmount", str(2**63)),
        ({"host0": "VCPU=1.5"}, "InvalidText", "1.5"),
        ({"host0": "VPCU=1"}, "UnknownResourceClass", "VPCU"),
        ({"host0": "NUMA_TOPOLOGY=vcpus=0>1"}, "InvalidAmount", "NUMA_TOPOLOGY.*count"),
        ({"host0": None}, "InvalidField", "limits of host0"),
        ({"host0": 3}, "InvalidField", "limits of host0"),
        ({"VCPU": 3}, "InvalidField", "limits of VCPU"),
        ({7: "VCPU=1"}, "InvalidName", "provider name"),
        ({"nobody": "VCPU=1"}, "ProviderNotFound", "nobody"),
        (ro.Limits(VCPU=3), "InvalidField", "{provider: limits}"),
        ("host0:VCPU=3", "InvalidField", "{provider: limits}"),
        ([("host0", "VCPU=3")], "InvalidField", "{provider: limits}"),
    ],
)
@pytest.mark.law(2, 8)
def test_what_is_no_limit_is_refused_and_changes_nothing(
    kept: ro.Ledger, limits: Any, error: type[Exception] | str, said: str
) -> None:
    for way, take in WAYS.items():
        with raises_code(error, match=said):
            take(kept, "job", {"host0": "VCPU=1"}, limits)
        assert used(kept, "host0") == 2, way


def test_a_provider_has_one_limit(kept: ro.Ledger) -> None:
    uuid = kept.provider("host0").uuid
    assert uuid is not None
    with raises_code("DuplicateKey", match="each provider once"):
        kept.claim("new", {"host0": "VCPU=1"}, limits={"host0": "VCPU=3", uuid: "VCPU=4"})
    kept.claim("new", {"host0": "VCPU=1"}, limits={"host0": "VCPU=3", uuid: "MEMORY_MB=4"})


def test_none_and_nothing_bound_nothing(kept: ro.Ledger) -> None:
    for number, limits in enumerate([None, {}, {"host0": {}}, {"host0": ro.Limits()}]):
        kept.claim(f"new-{number}", {"host0": "VCPU=1"}, limits=limits)
    assert used(kept, "host0") == 6


def test_a_limit_of_what_is_not_claimed_refuses_nothing(kept: ro.Ledger) -> None:
    limits = {"host0": "VCPU=0", "host1": "MEMORY_MB=0,DISK_GB=0"}
    kept.claim("new", {"host1": "VCPU=7"}, limits=limits)
    assert used(kept, "host1") == 8


def test_what_is_given_back_is_under_no_limit(kept: ro.Ledger) -> None:
    limits = {"host0": "VCPU=0"}
    kept.adjust("other", {"host0": "VCPU=-1"}, limits=limits)
    kept.adjust("other", {"host0": "MEMORY_MB=1"}, limits=limits)
    kept.replace("other", {"host0": "VCPU=1"}, limits=limits)
    with pytest.raises(exceptions.CapacityException, match="free -1 under the limit of 0"):
        kept.adjust("other", {"host0": "VCPU=1"}, limits=limits)


# --- several candidates ---


def test_a_host_over_its_limit_is_passed_over(kept: ro.Ledger) -> None:
    found = kept.snapshot().candidates("VCPU=3")
    assert [one.host for one in found] == ["host0", "host1", "host2"]
    claim = kept.claim("new", found, limits={"host0": "VCPU=4", "host1": "VCPU=3"})
    assert list(claim.by_provider()) == ["host2"]


def test_limits_bind_what_is_searched_again(kept: ro.Ledger) -> None:
    found = kept.snapshot().candidates("VCPU=6", limit=1)
    limits = {f"host{number}": "VCPU=7" for number in range(3)}
    # host0 is all that was found, and has two in use; host1 has one, so it is host1 or host2
    [host] = kept.claim("new", found, limits=limits).by_provider()
    assert host != "host0"
    with pytest.raises(exceptions.NoCandidates) as refused:
        kept.claim("more", found, limits={**limits, "host1": "VCPU=5", "host2": "VCPU=5"})
    assert {reason.rule for reason in refused.value.reasons} == {Rule.LIMIT}
    assert used(kept, "host0") == 2


def test_a_gang_goes_around_hosts_that_are_over_a_limit(kept: ro.Ledger) -> None:
    found = kept.snapshot().candidates("VCPU=2")
    limits = {"host0": "VCPU=4", "host1": "VCPU=3", "host2": "VCPU=2"}
    claims = kept.claim_all({f"new-{n}": found for n in range(3)}, limits=limits)
    assert [list(one.by_provider()) for one in claims] == [["host0"], ["host1"], ["host2"]]
    with pytest.raises(exceptions.CapacityException) as refused:
        kept.claim_all({"more-1": found, "more-2": found}, limits={**limits, "host2": "VCPU=5"})
    assert {reason.rule for reason in refused.value.reasons} == {Rule.LIMIT}
    assert [used(kept, f"host{n}") for n in range(3)] == [4, 3, 2]


def test_an_expired_claim_makes_room_under_a_limit(kept: ro.Ledger) -> None:
    kept.claim("old", {"host0": "VCPU=2"}, expires_in=datetime.timedelta(microseconds=1))
    limits = {"host0": "VCPU=4"}
    with pytest.raises(exceptions.CapacityException, match="limit of 4"):
        kept.claim("new", {"host0": "VCPU=2"}, limits=limits)
    kept.release_expired()
    kept.claim("new", {"host0": "VCPU=2"}, limits=limits)
    assert used(kept, "host0") == 4


def test_a_repeated_claim_needs_no_limit(kept: ro.Ledger) -> None:
    doing = new_operation()
    ask = {"host0": "VCPU=3"}
    first = kept.claim("new", ask, limits={"host0": "VCPU=5"}, operation=doing)
    assert kept.claim("new", ask, limits={"host0": "VCPU=1"}, operation=doing) == first


def test_who_waits_waits_for_room_under_its_limit(kept: ro.Ledger, url: str) -> None:
    hour = datetime.timedelta(hours=1)
    with pytest.raises(exceptions.CapacityException) as refused:  # nobody could give it
        kept.claim("new", {"host0": "VCPU=3"}, limits={"host0": "VCPU=2"}, wait=hour)
    assert not isinstance(refused.value, exceptions.WaitTimedOut)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1:
            kept.release("other")

    waiting = ro.Ledger(kept.backend, retries=RetryPolicy(sleep=sleep))
    waiting.claim("new", {"host0": "VCPU=3"}, limits={"host0": "VCPU=3"}, wait=hour)
    assert slept and used(kept, "host0") == 3


# --- shares, pools, cells, devices ---


def test_a_limit_of_the_host_binds_its_cells(ledger: ro.Ledger) -> None:
    ledger.sync(host_of("host0", cells()), host_of("host1", cells()))
    asked = {"host0": "NUMA_TOPOLOGY=1:shared=2:memory=512"}
    first = ledger.claim("first", asked, limits={"host0": "VCPU=3"})
    assert first.amounts.get("VCPU") == ro.IntegerAmount(2)
    with pytest.raises(exceptions.CapacityException) as refused:
        ledger.claim("second", asked, limits={"host0": "VCPU=3"})
    [reason] = refused.value.reasons
    assert (reason.rule, reason.where, reason.bound, reason.used) == (Rule.LIMIT, "host0", 3, 2)
    assert reason.holders == (("first", 2),)
    found = ledger.snapshot().candidates("NUMA_TOPOLOGY=1:shared=2:memory=512")
    claim = ledger.claim("second", found, limits={"host0": "VCPU=3"})
    assert claim.allocations[0].provider.startswith("host1")


def test_a_limit_of_a_pool_is_one_of_all_who_use_it(ledger: ro.Ledger) -> None:
    ledger.sync(*(Provider(f"host{n}", "VCPU=8") for n in range(2)), Provider("nfs", "DISK_GB=100"))
    ledger.pools.share("nfs", hosts=["host0", "host1"])
    found = ledger.snapshot().candidates("VCPU=1,DISK_GB=30")
    limits = {"nfs": "DISK_GB=50", "host0": "DISK_GB=0"}  # host0 itself has none, so gives none
    ledger.claim("first", found, limits=limits)
    with pytest.raises(exceptions.CapacityException) as refused:
        ledger.claim("second", found, limits=limits)
    assert {(one.rule, one.where) for one in refused.value.reasons} == {(Rule.LIMIT, "nfs")}


def test_a_limit_of_a_device_binds_its_parts(ledger: ro.Ledger) -> None:
    host = Provider("host0", "VCPU=8")
    for number in range(2):
        thousandths(host.add(f"host0/gpu{number}", "PGPU=1"))
    ledger.sync(host)
    half = ledger.snapshot().candidates("CUSTOM_PGPU_THOUSANDTHS=500")
    claim = ledger.claim("job", half, limits={"host0/gpu0": "CUSTOM_PGPU_THOUSANDTHS=499"})
    assert list(claim.by_provider()) == ["host0/gpu1"]


# --- devices ---


def card_of(functions: int) -> ro.Provider:
    """Return a host with a card that can be had whole, and functions split off it."""
    return device_host(card(0x3B, functions))


@pytest.mark.law(5, 6)
@pytest.mark.parametrize("held", [(), (1,), (0, 2)])
@pytest.mark.parametrize("total", [0, 1, 2, 3])
def test_a_limit_says_how_many_devices_and_not_which(
    ledger: ro.Ledger, held: tuple[int, ...], total: int
) -> None:
    host, every = card_of(3), functions(0x3B)
    ledger.sync(host)
    where = f"host0/{next(card(0x3B)).address}"
    for number in held:
        ledger.claim(f"before-{number}", [raw(where, FUNCTION, every[number])])
    limits = {where: f"{FUNCTION}={total}"}
    for count in (1, 2, 3):
        for named in itertools.combinations(range(3), count):
            text = "/".join(f"address={every[number]}" for number in named)
            asked = f"DEVICES={text}"
            fits = len(held) + count <= total and not set(named).intersection(held)
            found = ledger.snapshot().candidates(asked, limits=limits)
            assert bool(found) == fits, asked
            if fits:
                assert chosen(found[0]).addresses == tuple(every[number] for number in named)
                ledger.claim("job", {"host0": asked}, limits=limits)
                ledger.release("job")
            else:
                with pytest.raises(exceptions.CapacityException):
                    ledger.claim("job", {"host0": asked}, limits=limits)
    more = ledger.snapshot().candidates(f"DEVICES=3*{FUNCTION}", limits=limits)
    if total < 3:
        [reason] = more.explain().reasons
        figures = reason.rule, reason.requested, reason.bound, reason.used
        assert figures == (Rule.LIMIT, 3, total, len(held))
        assert reason.holders == tuple((f"before-{number}", 1) for number in held)


@pytest.mark.law(5)
def test_a_limit_on_a_card_leaves_its_functions(ledger: ro.Ledger) -> None:
    ledger.sync(card_of(2))
    where = f"host0/{next(card(0x3B)).address}"
    limits = {where: f"{CARD}=0"}
    assert not ledger.snapshot().candidates(f"DEVICES={CARD}", limits=limits)
    for asked in (f"DEVICES=2*{FUNCTION}", f"{FUNCTION}=2"):
        found = ledger.snapshot().candidates(asked, limits=limits)
        ledger.claim("job", found, limits=limits)
        ledger.release("job")


@pytest.mark.law(5)
def test_a_limit_and_a_removed_unit_count_once(url: str) -> None:
    with ro.connect(url, actor="admin") as ledger:
        ledger.sync(card_of(3))
        where, every = f"host0/{next(card(0x3B)).address}", functions(0x3B)
        ledger.claim("first", {"host0": f"DEVICES=address={every[0]}"})
        usage = [DeviceUse(every[0], "allocated", gone=True)]
        removed = ro.Provider("host0", "VCPU=8,DISK_GB=100")
        removed.add_parts("DEVICES", ro.PCIInventory([*card(0x3B)], usage=usage))
        ledger.sync(removed)
        ledger.release("first")
        limits = {where: f"{FUNCTION}=2"}
        asked = f"DEVICES=2*{FUNCTION}"
        for found in ({"host0": asked}, ledger.snapshot().candidates(asked, limits=limits)):
            claim = ledger.claim("job", found, limits=limits)
            assert claim.allocations[0].units == every[1:]
            ledger.release("job")
