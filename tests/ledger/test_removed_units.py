"""Devices that were removed while they were allocated: as if somebody had them, and named."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Collection, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers.waiting import Awaited, WaitOrder
from resource_objects.reasons import Rule
from resource_objects.resources.pci import DeviceUse
from resource_objects.testing.refusals import is_one_of, raises_code
from tests.ledger.device_hosts import raw
from tests.support.lengths import examples

VF, NIC, GPU = "SRIOV_NET_VF", "CUSTOM_NIC", "PGPU"


def units_of(card: int, functions: int) -> list[str]:
    """Return the addresses of a card and of its functions."""
    return [f"0000:{card:02x}:00.0", *(f"0000:{card:02x}:02.{n}" for n in range(functions))]


def host_of(
    name: str, cards: Sequence[int], gpus: int = 0, removed: Collection[str] = ()
) -> ro.Provider:
    """Return a host with cards of so many functions each, and GPUs.

    :param removed: devices that were removed from it while they were allocated
    """
    devices = []
    for number, functions in enumerate(cards):
        whole, *parts = units_of(number, functions)
        devices.append(ro.Device(whole, "8086", "1563", "type-PF", resource_class=NIC))
        devices += [
            ro.Device(one, "8086", "154c", "type-VF", parent=whole, resource_class=VF)
            for one in parts
        ]
    for number in range(gpus):
        devices.append(ro.Device(f"0000:8{number}:00.0", "10de", "2330", resource_class=GPU))
    usage = [DeviceUse(unit, "allocated", gone=True) for unit in removed]
    made = ro.Provider(name, "VCPU=8")
    made.add_parts("DEVICES", ro.PCIInventory(devices, usage=usage))
    return made


def without(ledger: ro.Ledger, host: str, cards: Sequence[int], gpus: int, *units: str) -> None:
    """Remove devices of a host while they are allocated, then release them."""
    for number, unit in enumerate(units):
        ledger.claim(f"{host}-{number}", {host: f"DEVICES=address={unit}"})
    ledger.sync(host_of(host, cards, gpus, removed=units))
    for number in range(len(units)):
        ledger.release(f"{host}-{number}")


CARD, ONE, TWO, THREE = units_of(0, 3)
AT = f"host/{CARD}"


@pytest.fixture
def ledger(url: str) -> Iterator[ro.Ledger]:
    """A host with a card of three functions."""
    with ro.connect(url, actor="admin") as made:
        made.sync(host_of("host", [3]))
        yield made


def test_no_search_finds_it_and_says_why(ledger: ro.Ledger) -> None:
    kept = ledger.snapshot()
    without(ledger, "host", [3], 0, TWO)
    for asked in (f"DEVICES=address={TWO}", f"{VF}=3", f"DEVICES=3*{VF}", f"{NIC}=1"):
        found = ledger.snapshot().candidates(asked)
        assert not found, asked
        [reason] = [one for one in found.explain().reasons if one.rule is Rule.DISABLED]
        assert (reason.where, reason.unit) == (AT, TWO)
        assert f"{TWO} was removed from the host" in str(found.explain())
        with pytest.raises(exceptions.CapacityException):
            ledger.claim("job", kept.candidates(asked))
    assert ledger.snapshot().free(VF) == 2 and ledger.snapshot().capacity(VF) == 3
    [two] = ledger.claim("job", ledger.snapshot().candidates(f"{VF}=2")).allocations
    assert set(two.units) == {ONE, THREE}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (f"DEVICES=9*{VF}", [ONE, THREE]),
        (f"DEVICES=9*{GPU}", ["0000:80:00.0"]),
        (f"DEVICES=2*{NIC}", [ONE, THREE]),
        (f"DEVICES=address={ONE}", [ONE]),
        (f"{VF}=9", [ONE, THREE]),
        (f"{GPU}=2", ["0000:80:00.0"]),
        ("VCPU=9", []),
    ],
)
def test_only_those_that_would_count_are_told(asked: str, told: Sequence[str]) -> None:
    with ro.connect("memory://", actor="admin") as made:
        made.sync(host_of("host", [3], 1))
        without(made, "host", [3], 1, ONE, THREE, "0000:80:00.0")
        found = made.snapshot().candidates(asked)
        assert not found
        reasons = found.explain().reasons
        assert [one.unit for one in reasons if one.rule is Rule.DISABLED] == list(told)


def test_what_is_placed_by_the_ledger_avoids_it(ledger: ro.Ledger) -> None:
    without(ledger, "host", [3], 0, ONE)
    [held] = ledger.claim("job", {"host": f"DEVICES=2*{VF}"}).allocations
    assert set(held.units) == {TWO, THREE}
    for overrides in (False, True):
        for asked in ({"host": f"DEVICES=address={ONE}"}, [raw(AT, VF, ONE)]):
            with raises_code("ProviderDisabled", match=f"{ONE} was removed"):
                ledger.claim("other", asked, ignore_maintenance=overrides)


#: Ways to ask for a function: by the ledger's choice, and by count.
ONE_FUNCTION = ({"host": f"DEVICES={VF}"}, {AT: f"{VF}=1"})


@pytest.mark.law(6)
def test_who_lacks_it_is_told_who_holds_the_others(ledger: ro.Ledger) -> None:
    without(ledger, "host", [3], 0, ONE)
    for name, unit in (("ann", TWO), ("bob", THREE)):
        ledger.claim(name, {"host": f"DEVICES=address={unit}"})
    why = ledger.snapshot().candidates(f"{VF}=1").explain().reasons
    for asked in ONE_FUNCTION:
        with pytest.raises(exceptions.CapacityException) as refused:
            ledger.claim("job", asked)
        assert not is_one_of(refused.value, "ProviderDisabled")
        for reasons in (refused.value.reasons, why):
            short, out = reasons
            assert (short.rule, short.requested, short.free) == (Rule.CAPACITY, 1, 0)
            assert (short.bound, short.used) == (2, 2)
            assert short.holders == (("ann", 1), ("bob", 1))
            assert (out.rule, out.where, out.unit) == (Rule.DISABLED, AT, ONE)


def test_who_lacks_it_waits_for_the_others(ledger: ro.Ledger) -> None:
    without(ledger, "host", [3], 0, ONE)
    ledger.claim("ann", {"host": f"DEVICES=2*{VF}"})
    for asked in ONE_FUNCTION:
        with pytest.raises(exceptions.WaitTimedOut):
            ledger.claim("job", asked, wait=datetime.timedelta(milliseconds=1))
    with pytest.raises(exceptions.CapacityException, match=f"{ONE} was removed"):
        ledger.claim("job", {"host": f"DEVICES=3*{VF}"}, wait=datetime.timedelta(days=1))
    with raises_code("ProviderDisabled", match=f"{ONE} was removed"):
        ledger.claim("job", [raw(AT, VF, ONE)], wait=datetime.timedelta(days=1))


@pytest.mark.parametrize("asked", [f"DEVICES={VF}", f"DEVICES=address={TWO}", f"{VF}=1"])
def test_who_asks_for_a_device_waits_in_line(ledger: ro.Ledger, asked: str) -> None:
    ledger.claim("ann", {"host": f"DEVICES=3*{VF}"})
    order = WaitOrder("first", (Awaited(VF, 1),))
    ledger.backend.wait(order)
    ways = [ledger.snapshot().candidates(asked), {"host": asked}]
    for found in ways if asked.startswith("DEVICES") else ways[:1]:
        with pytest.raises(exceptions.WaitTimedOut) as over:
            ledger.claim("job", found, wait=datetime.timedelta(milliseconds=1))
        assert over.value.ahead == ("first",)
    ledger.backend.leave(order.entry)
    ledger.release("ann")
    ledger.claim("job", ways[0], wait=datetime.timedelta(days=1))


def test_it_counts_beside_a_limit(ledger: ro.Ledger) -> None:
    without(ledger, "host", [3], 0, TWO)
    asked = ledger.snapshot().candidates
    for total, most in ((1, 1), (2, 2), (3, 2)):
        limits = {AT: f"{VF}={total}"}
        assert asked(f"{VF}={most}", limits=limits)
        assert not asked(f"{VF}={most + 1}", limits=limits)


def test_totals_and_a_line_per_host_do_not_count_it_free() -> None:
    with ro.connect("memory://", actor="admin") as ledger:
        ledger.sync(host_of("host", [3], gpus=2))
        without(ledger, "host", [3], 2, "0000:80:00.0", TWO)
        [line] = ledger.snapshot().host_usage()
        assert (line[GPU].capacity, line[GPU].used, line[GPU].free) == (2, 0, 1)
        assert line[NIC].free == 0 and line[NIC].used == 0
        assert not ledger.snapshot(at="host").candidates(f"DEVICES=2*{GPU}")


# --- as if somebody had them ---


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[int]], list[tuple[str, str]], list[str], str]:
    """Return hosts with cards, functions to remove, what is held before, and what is asked."""
    hosts = draw(st.lists(st.lists(st.integers(0, 3), max_size=2), min_size=1, max_size=3))
    places = [
        (f"host{number}", unit)
        for number, cards in enumerate(hosts)
        for card, functions in enumerate(cards)
        for unit in units_of(card, functions)[1:]
    ]
    out = draw(st.lists(st.sampled_from(places), unique=True, max_size=4)) if places else []
    asks = st.sampled_from([f"{VF}=1", f"{VF}=2", f"{NIC}=1", f"DEVICES=2*{VF}", f"{GPU}=1"])
    return hosts, out, draw(st.lists(asks, max_size=3)), draw(asks)


def opened(hosts: list[list[int]], held: list[str]) -> ro.Ledger:
    """Return a ledger with some hosts, of which something is held."""
    made = ro.connect("memory://", actor="admin")
    for number, cards in enumerate(hosts):
        made.sync(host_of(f"host{number}", cards, gpus=1))
    for number, asked in enumerate(held):
        found = made.snapshot().candidates(asked)
        if found:
            made.claim(f"before-{number}", found)
    return made


@pytest.mark.law(5, 6)
@settings(max_examples=examples(200))
@given(case=cases())
def test_a_search_finds_what_it_would_if_somebody_had_them(
    case: tuple[list[list[int]], list[tuple[str, str]], list[str], str],
) -> None:
    hosts, out, held, asked = case
    with opened(hosts, held) as one, opened(hosts, held) as other:
        removed: dict[str, list[str]] = {}
        for host, unit in out:
            with contextlib.suppress(exceptions.CapacityException):  # somebody has it
                for ledger in (one, other):
                    ledger.claim(f"out-{host}-{unit[5:]}", {host: f"DEVICES=address={unit}"})
                removed.setdefault(host, []).append(unit)
        for host, units in removed.items():
            one.sync(host_of(host, hosts[int(host[4:])], gpus=1, removed=units))
            for unit in units:
                one.release(f"out-{host}-{unit[5:]}")
        found = one.snapshot().candidates(asked, limit=None)
        wanted = other.snapshot().candidates(asked, limit=None)
        assert {str(each) for each in found} == {str(each) for each in wanted}
        for candidate in found:
            one.claim("job", candidate)
            one.release("job")
            taken = {(part.provider, u) for part in candidate.allocations for u in part.units}
            cards = {(f"{host}/{unit[:7]}:00.0", unit) for host, unit in out}
            assert taken.isdisjoint(cards)
        assert not one.audit().findings
