"""Single devices out of service: as if somebody had them, and told as what they are."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.exceptions import ProviderDisabled, Rule
from resource_objects.providers.disabled import DisableOrder
from resource_objects.providers.listing import ListedProvider
from resource_objects.providers.plan import Plan
from resource_objects.providers.waiting import Awaited, WaitOrder
from resource_objects.resources.pci import DeviceUse
from tests.ledger.device_hosts import gpu, raw
from tests.support.lengths import examples

VF, NIC, GPU = "SRIOV_NET_VF", "CUSTOM_NIC", "PGPU"


def units_of(card: int, functions: int) -> list[str]:
    """Return the addresses of a card and of its functions."""
    return [f"0000:{card:02x}:00.0", *(f"0000:{card:02x}:02.{n}" for n in range(functions))]


def host_of(name: str, cards: Sequence[int], gpus: int = 0) -> ro.Provider:
    """Return a host with cards of so many functions each, and GPUs."""
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
    made = ro.Provider(name, "VCPU=8")
    made.add_parts("DEVICES", ro.PCIInventory(devices))
    return made


CARD, ONE, TWO, THREE = units_of(0, 3)
AT = f"host/{CARD}"


@pytest.fixture
def ledger(url: str) -> Iterator[ro.Ledger]:
    """A host with a card of three functions."""
    with ro.connect(url, actor="admin") as made:
        made.sync(host_of("host", [3]))
        yield made


def listed(ledger: ro.Ledger) -> ListedProvider:
    """Return the card, as lists show it."""
    [found] = ledger.providers(name=AT)
    return found


def test_no_search_finds_it_and_says_why(ledger: ro.Ledger) -> None:
    kept = ledger.snapshot()
    done = ledger.disable(AT, unit=TWO, reason="link")
    assert done.disabled is None and done.disabled_units[TWO].reason == "link"
    for asked in (f"DEVICES=address={TWO}", f"{VF}=3", f"DEVICES=3*{VF}", f"{NIC}=1"):
        found = ledger.snapshot().candidates(asked)
        assert not found, asked
        [reason] = [one for one in found.explain().reasons if one.rule is Rule.DISABLED]
        assert (reason.where, reason.unit) == (AT, TWO)
        assert f"{TWO} disabled since" in str(found.explain()) and "link" in str(reason)
        with pytest.raises(ProviderDisabled):
            ledger.claim("job", kept.candidates(asked)[0])
        with pytest.raises(exceptions.NoCandidates, match=f"{TWO} disabled"):
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
        for at, unit in ((AT, ONE), (AT, THREE), ("host/0000:80:00.0", "0000:80:00.0")):
            made.disable(at, unit=unit, reason="link")
        found = made.snapshot().candidates(asked)
        assert not found
        reasons = found.explain().reasons
        assert [one.unit for one in reasons if one.rule is Rule.DISABLED] == list(told)


def test_what_is_placed_by_the_ledger_avoids_it(ledger: ro.Ledger) -> None:
    ledger.disable(AT, unit=ONE, reason="link")
    [held] = ledger.claim("job", {"host": f"DEVICES=2*{VF}"}).allocations
    assert set(held.units) == {TWO, THREE}
    with pytest.raises(ProviderDisabled, match=f"{ONE} disabled"):
        ledger.claim("other", {"host": f"DEVICES=address={ONE}"})
    with pytest.raises(ProviderDisabled, match=f"{ONE} disabled"):
        ledger.claim("other", [raw(AT, VF, ONE)])
    taken = ledger.claim("other", {"host": f"DEVICES=address={ONE}"}, ignore_maintenance=True)
    assert taken.allocations[0].units == (ONE,)


#: Ways to ask for a function: by the ledger's choice, and by count.
ONE_FUNCTION = ({"host": f"DEVICES={VF}"}, {AT: f"{VF}=1"})


@pytest.mark.law(6)
def test_who_lacks_it_is_told_who_holds_the_others(ledger: ro.Ledger) -> None:
    ledger.disable(AT, unit=ONE, reason="link")
    for name, unit in (("ann", TWO), ("bob", THREE)):
        ledger.claim(name, {"host": f"DEVICES=address={unit}"})
    why = ledger.snapshot().candidates(f"{VF}=1").explain().reasons
    for asked in ONE_FUNCTION:
        with pytest.raises(exceptions.CapacityException) as refused:
            ledger.claim("job", asked)
        assert not isinstance(refused.value, ProviderDisabled)
        for reasons in (refused.value.reasons, why):
            short, out = reasons
            assert (short.rule, short.requested, short.free) == (Rule.CAPACITY, 1, 0)
            assert (short.bound, short.used) == (2, 2)
            assert short.holders == (("ann", 1), ("bob", 1))
            assert (out.rule, out.where, out.unit) == (Rule.DISABLED, AT, ONE)


def test_who_lacks_it_waits_for_the_others(ledger: ro.Ledger) -> None:
    ledger.disable(AT, unit=ONE, reason="link")
    ledger.claim("ann", {"host": f"DEVICES=2*{VF}"})
    for asked in ONE_FUNCTION:
        with pytest.raises(exceptions.WaitTimedOut):
            ledger.claim("job", asked, wait=datetime.timedelta(milliseconds=1))
    with pytest.raises(exceptions.CapacityException, match=f"{ONE} disabled"):
        ledger.claim("job", {"host": f"DEVICES=3*{VF}"}, wait=datetime.timedelta(days=1))
    with pytest.raises(ProviderDisabled, match=f"{ONE} disabled"):
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


def test_expired_claims_give_way_to_who_lacks_it(ledger: ro.Ledger) -> None:
    ledger.disable(AT, unit=ONE, reason="link")
    for number, asked in enumerate(ONE_FUNCTION):
        past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        ledger.claim("over", {"host": f"DEVICES=2*{VF}"}, expires_at=past)
        ledger.claim(f"job-{number}", asked, release_expired=True)
        with pytest.raises(exceptions.ConsumerNotFound):
            ledger.held("over")
        ledger.release(f"job-{number}")


def test_who_has_it_is_told_until_nobody_has(ledger: ro.Ledger) -> None:
    for name, unit in (("ann", ONE), ("bob", TWO)):
        ledger.claim(name, {"host": f"DEVICES=address={unit}"})
    left = ledger.drain(AT, unit=ONE, reason="link")
    assert [one.name for one in left] == ["ann"] and left.unit == ONE
    assert left.to_dict()["unit"] == ONE
    ledger.confirm("ann")
    ledger.renew("ann", expires_in=datetime.timedelta(hours=1))
    assert ledger.snapshot().free(VF) == 1  # one that is held is not lost twice
    [moved] = ledger.move(
        "ann", ledger.snapshot().candidates(f"DEVICES=address={THREE}")
    ).allocations
    assert moved.units == (THREE,)
    assert not ledger.drain(AT, unit=ONE)
    assert ledger.snapshot().free(VF) == 0
    assert not ledger.enable(AT, unit=ONE).disabled_units
    assert ledger.snapshot().free(VF) == 1
    with pytest.raises(exceptions.InvalidField, match="enabled"):
        ledger.drain(AT, unit=ONE)


def test_it_stays_across_syncs(ledger: ro.Ledger) -> None:
    ledger.disable(AT, unit=TWO, reason="link")
    assert not ledger.sync(host_of("host", [3]))
    assert not ledger.snapshot().candidates(f"{VF}=3")


def test_it_ends_in_a_snapshot_that_was_taken_before() -> None:
    with ro.connect("memory://", actor="admin") as ledger:
        ledger.sync(host_of("host", [3]))
        until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=2)
        ledger.disable(AT, unit=TWO, reason="link", until=until)
        ledger.disable(AT, unit=ONE, reason="link")
        snapshot = ledger.snapshot()
        assert not snapshot.candidates(f"{VF}=2") and snapshot.free(VF) == 1
        time.sleep(2)
        found = snapshot.candidates(f"{VF}=2")
        assert found and snapshot.free(VF) == 2
        [held] = ledger.claim("job", found).allocations
        assert set(held.units) == {TWO, THREE}
        assert set(listed(ledger).disabled_units) == {ONE}


def test_it_counts_beside_a_limit(ledger: ro.Ledger) -> None:
    ledger.disable(AT, unit=TWO, reason="link")
    asked = ledger.snapshot().candidates
    for total, most in ((1, 1), (2, 2), (3, 2)):
        limits = {AT: f"{VF}={total}"}
        assert asked(f"{VF}={most}", limits=limits)
        assert not asked(f"{VF}={most + 1}", limits=limits)


def test_a_line_per_host_does_not_count_it_free() -> None:
    with ro.connect("memory://", actor="admin") as ledger:
        ledger.sync(host_of("host", [3], gpus=2))
        ledger.disable("host/0000:80:00.0", unit="0000:80:00.0", reason="xid 79")
        ledger.disable(AT, unit=TWO, reason="link")
        [line] = ledger.snapshot().host_usage()
        assert (line[GPU].capacity, line[GPU].used, line[GPU].free) == (2, 0, 1)
        assert line[NIC].free == 0 and line[NIC].used == 0


def test_it_is_no_trait_of_the_card(ledger: ro.Ledger) -> None:
    ledger.disable(AT, unit=TWO, reason="link")
    disabled = ro.Request(f"{VF}=1", required=["COMPUTE_STATUS_DISABLED"])
    assert not ledger.snapshot().candidates(disabled)
    assert ledger.snapshot().candidates(f"{VF}=1")


def test_a_plan_says_it_and_is_rehearsed(ledger: ro.Ledger) -> None:
    uuid = listed(ledger).uuid
    said = Plan(disabling=[DisableOrder(uuid, "link", unit=TWO)])
    assert Plan.from_json(said.to_json()) == said
    assert f"{TWO} disabled: link" in str(said)
    ledger.apply(said, dry_run=True)
    assert not listed(ledger).disabled_units
    ledger.apply(said)
    assert set(listed(ledger).disabled_units) == {TWO}
    unknown = Plan(disabling=[DisableOrder(uuid, "link", unit="0000:00:02.7")])
    for dry_run in (True, False):
        with pytest.raises(exceptions.UnitNotFound):
            ledger.apply(unknown, dry_run=dry_run)


def test_bad_input_is_refused(ledger: ro.Ledger) -> None:
    for unit in ("", "a\nb", 3):
        with pytest.raises(exceptions.InvalidInput):
            ledger.disable(AT, unit=unit, reason="link")  # type: ignore[arg-type]
    with pytest.raises(exceptions.UnitNotFound, match="has the devices"):
        ledger.disable(AT, unit="0000:00:02.9", reason="link")
    with pytest.raises(exceptions.UnitNotFound, match="has no devices"):
        ledger.disable("host", unit=ONE, reason="link")
    with pytest.raises(exceptions.ProviderNotFound):
        ledger.disable("nobody", unit=ONE, reason="link")


# --- as if somebody had them ---


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[int]], list[tuple[str, str]], list[str], str]:
    """Return hosts with cards, devices that are out, what is held before, and what is asked."""
    hosts = draw(st.lists(st.lists(st.integers(0, 3), max_size=2), min_size=1, max_size=3))
    places = [
        (f"host{number}/{units_of(card, 0)[0]}", unit)
        for number, cards in enumerate(hosts)
        for card, functions in enumerate(cards)
        for unit in units_of(card, functions)
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
        for where, unit in out:
            one.disable(where, unit=unit, reason="link")
            host, name = where.split("/")[0], unit.replace(":", "-")
            asked_of = {host: f"DEVICES=address={unit}"}
            if unit.endswith("00.0"):  # an address alone does not ask for a whole card
                asked_of = {where: f"{NIC}=1"}
            with contextlib.suppress(
                exceptions.CapacityException
            ):  # somebody has it, or part of it
                other.claim(f"out-{host}-{name}", asked_of)
        others = any(unit.endswith("00.0") for _, unit in out)
        found = one.snapshot().candidates(asked, limit=None)
        wanted = other.snapshot().candidates(asked, limit=None)
        names = {str(candidate) for candidate in found}
        if others:  # a card that is held takes its functions, one that is disabled alone does not
            assert {each.host for each in found} >= {each.host for each in wanted}
        else:
            assert names == {str(candidate) for candidate in wanted}
        for candidate in found:
            one.claim("job", candidate)
            one.release("job")
            taken = {(part.provider, u) for part in candidate.allocations for u in part.units}
            assert taken.isdisjoint(out)
        assert not one.audit().findings


def test_a_device_that_is_all_of_its_provider_is_out_too(ledger: ro.Ledger) -> None:
    ledger.sync(host_of("other", [], gpus=2))
    ledger.disable("other/0000:80:00.0", unit="0000:80:00.0", reason="fan")
    claim = ledger.claim("job", {"other": "DEVICES=PGPU"})
    assert [one.units for one in claim.allocations] == [("0000:81:00.0",)]
    assert not ledger.snapshot(at="other").candidates("DEVICES=PGPU")
    with pytest.raises(exceptions.CapacityException):
        ledger.claim("more", {"other": "DEVICES=PGPU"})


def test_a_device_that_is_spent_and_disabled_is_missed_once(url: str) -> None:
    devices = [gpu(1, one_time_use=True), gpu(2)]
    address = devices[0].address
    host = ro.Provider("host", "VCPU=8")
    spent = [DeviceUse(address, "spent")]
    host.add_parts("DEVICES", ro.PCIInventory(devices, usage=spent))
    with ro.connect(url, actor="admin") as made:
        made.sync(host)
        made.disable(f"host/{address}", unit=address, reason="link")
        made.claim("job", made.snapshot().candidates("PGPU=1"))
        for asked in ("PGPU=1", "DEVICES=PGPU"):
            short, out = made.snapshot().candidates(asked).explain().reasons
            assert (short.bound, short.used, short.holders) == (1, 1, (("job", 1),))
            assert out.unit == address
