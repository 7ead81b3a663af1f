"""Devices in a ledger: found, claimed, told, given back; a card takes its functions along."""

from __future__ import annotations

from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.testing.refusals import raises_code
from tests.ledger.conftest import by_consumer
from tests.ledger.device_hosts import (
    CARD,
    DEVICES,
    FUNCTION,
    card,
    chosen,
    functions,
    gpu,
    host_of,
    states,
    taken,
    told,
)

ONE = "0000:01:00.0"


@pytest.fixture
def lab(ledger: ro.Ledger) -> ro.Ledger:
    """A ledger with a host of two cards of three functions each, and two GPUs."""
    ledger.sync(host_of([*card(1), *card(2), gpu(0x3B), gpu(0x5E)]))
    return ledger


def _picture(ledger: ro.Ledger) -> Any:
    columns = ledger.backend.read()
    return columns.inventories, columns.units, columns.allocations


# --- a card and its functions ---


@pytest.mark.law(1, 4)
def test_a_card_is_one_device_and_names_its_functions(lab: ro.Ledger) -> None:
    """D3: a physical function's allocation names its own address and those it takes along."""
    lab.claim("job", lab.snapshot().candidates({DEVICES: ro.devices(CARD)}))
    assert taken(lab, "job") == {(f"host0/{ONE}", CARD): (1, (ONE, *functions(1)))}
    assert states(lab) == {ONE: "allocated", **dict.fromkeys(functions(1), "unavailable")}
    assert list(lab.audit()) == []


@pytest.mark.law(4)
@pytest.mark.parametrize("first, second", [(CARD, FUNCTION), (FUNCTION, CARD)])
def test_a_card_and_its_functions_exclude_each_other(
    ledger: ro.Ledger, first: str, second: str
) -> None:
    """Nova, c.1: the states of relatives."""
    ledger.sync(host_of(card(1)))
    ledger.claim("a", {"host0": {DEVICES: ro.devices(first)}})
    assert not ledger.snapshot().candidates({DEVICES: ro.devices(second)})
    assert not ledger.snapshot().candidates({second: 1})
    for asked in ({DEVICES: ro.devices(second)}, {second: 1}):
        where = "host0" if DEVICES in asked else f"host0/{ONE}"
        with pytest.raises(exceptions.CapacityException, match="a holds"):
            ledger.claim("b", {where: asked})
    ledger.release("a")
    ledger.claim("b", {"host0": {DEVICES: ro.devices(second)}})


@pytest.mark.law(3)
@pytest.mark.parametrize(
    "asked",
    [
        {DEVICES: ro.devices(CARD)},
        {DEVICES: ro.devices(FUNCTION, 4) + ro.devices("PGPU")},
        {DEVICES: ro.devices("8086:154c", 2) + ro.devices(CARD), "VCPU": 2},
        {CARD: 1, FUNCTION: 2, "PGPU": 2},
    ],
    ids=str,
)
def test_what_is_claimed_comes_back_whole(lab: ro.Ledger, asked: Any) -> None:
    before = _picture(lab)
    found = lab.snapshot().candidates(asked)
    claim = lab.claim("job", found)
    assert list(lab.audit()) == []
    lab.release("job")
    assert _picture(lab) == before
    assert lab.claim("job", claim).allocations == claim.allocations  # also as allocations
    lab.release("job")
    assert _picture(lab) == before


@pytest.mark.law(6)
def test_what_was_found_is_told(lab: ro.Ledger) -> None:
    asked = ro.devices(FUNCTION, 4, requester="port") + ro.devices("PGPU", alias="gpu")
    found = lab.snapshot().candidates({DEVICES: asked, "VCPU": 1})
    lab.claim("job", found)
    assert told(lab, "job") == found[0].located[DEVICES]
    assert told(lab, "job").of("gpu") == ("0000:3b:00.0",)
    assert lab.assigned_amounts("job")["host0"]["VCPU"] == ro.IntegerAmount(1)


def test_what_is_told_can_be_given_back_and_claimed_again(lab: ro.Ledger) -> None:
    lab.claim("job", {"host0": {DEVICES: ro.devices(CARD) + ro.devices("PGPU", 2)}})
    before, amount = taken(lab, "job"), told(lab, "job")
    lab.adjust("job", {"host0": {"VCPU": 1, DEVICES: -amount}})
    assert taken(lab, "job") == {("host0", "VCPU"): (1, ())}
    assert states(lab) == {}
    lab.adjust("job", {"host0": {"VCPU": -1, DEVICES: amount}})
    assert taken(lab, "job") == before


@pytest.mark.law(5)
def test_search_claim_and_inventories_choose_the_same(lab: ro.Ledger) -> None:
    asked = ro.Amounts({DEVICES: ro.devices(FUNCTION, 2) + ro.devices(["PGPU", CARD])})
    here = lab.inventories("host0").fit(asked)[DEVICES]
    assert lab.snapshot().candidates(asked)[0].located[DEVICES] == here
    lab.claim("job", {"host0": asked})
    assert told(lab, "job") == here


def test_the_count_of_a_class_that_is_located_says_the_same_once_more(lab: ro.Ledger) -> None:
    """D1: a structured amount locates; it adds nothing."""
    asked = {DEVICES: ro.devices("PGPU", 2), "PGPU": 2}
    for given in (lab.snapshot().candidates(asked), {"host0": asked}):
        lab.claim("job", given)
        assert sum(amount for amount, _ in taken(lab, "job").values()) == 2
        lab.release("job")
    with raises_code("InvalidRequest", match="PGPU"):
        lab.snapshot().candidates({DEVICES: ro.devices("PGPU", 2), "PGPU": 3})


def test_an_assigned_amount_is_found_where_it_can_be_just_so(lab: ro.Ledger) -> None:
    lab.sync(host_of([gpu(0x10)], "host1"))
    wanted = lab.inventories("host1")[DEVICES].fit(ro.devices("PGPU"))
    (found,) = lab.snapshot().candidates({DEVICES: wanted})
    assert (found.host, found.located[DEVICES]) == ("host1", wanted)
    lab.claim("job", found)
    assert not lab.snapshot().candidates({DEVICES: wanted})
    with pytest.raises(exceptions.CapacityException, match="job holds 1"):
        lab.claim("other", {"host1": {DEVICES: wanted}})


# --- moves ---


def test_devices_move_with_a_trail_that_is_confirmed_or_taken_back(lab: ro.Ledger) -> None:
    lab.claim("job", {"host0": {DEVICES: ro.devices(CARD)}})
    before = taken(lab, "job")
    found = lab.snapshot().candidates({DEVICES: ro.devices(CARD)})
    lab.move("job", found, source_consumer="job-before")
    assert taken(lab, "job-before") == before
    assert set(taken(lab, "job")) == {("host0/0000:02:00.0", CARD)}
    lab.swap("job", "job-before")
    lab.release("job-before")
    assert taken(lab, "job") == before
    assert told(lab, "job").addresses == (ONE,)
    assert list(lab.audit()) == []


def test_two_that_hold_all_devices_may_swap_them(ledger: ro.Ledger) -> None:
    ledger.sync(host_of([*card(1), gpu(0x3B)]))
    ledger.claim("a", {"host0": {DEVICES: ro.devices(CARD)}})
    ledger.claim("b", {"host0": {DEVICES: ro.devices("PGPU")}})
    ledger.swap("a", "b")
    assert told(ledger, "a").addresses == ("0000:3b:00.0",)
    assert told(ledger, "b").addresses == (ONE,)


def test_who_asks_for_less_keeps_some_of_what_it_has(lab: ro.Ledger) -> None:
    lab.claim("job", {"host0": {DEVICES: ro.devices(FUNCTION, 3)}})
    lab.claim("other", {"host0": {DEVICES: ro.devices(FUNCTION)}})
    lab.replace("job", {"host0": {DEVICES: ro.devices(FUNCTION, 2)}})
    assert told(lab, "job").addresses == functions(1, 0, 1)


@pytest.mark.law(2)
def test_a_gang_gets_its_devices_beside_each_other_or_nobody_does(lab: ro.Ledger) -> None:
    asked = {"host0": {DEVICES: ro.devices("PGPU")}}
    claims = by_consumer(lab.claim_all({"a": asked, "b": asked}))
    assert {unit for one in claims.values() for a in one.allocations for unit in a.units} == {
        "0000:3b:00.0",
        "0000:5e:00.0",
    }
    cards = {"host0": {DEVICES: ro.devices(CARD)}}
    before = _picture(lab)
    with pytest.raises(exceptions.CapacityException):
        lab.claim_all({"c": cards, "d": cards, "e": cards})
    assert _picture(lab) == before


# --- what else is held there ---


def test_devices_held_by_number_beside_those_that_are_told(lab: ro.Ledger) -> None:
    found = lab.snapshot().candidates({DEVICES: ro.devices("10de:2330"), "PGPU": 1})
    lab.claim("job", found)
    amounts = lab.assigned_amounts("job")
    assert told(lab, "job").addresses == ("0000:3b:00.0",)
    assert amounts["host0/0000:5e:00.0"] == ro.Amounts("PGPU=1")
    lab.adjust("job", {"host0": {DEVICES: -told(lab, "job")}})
    assert taken(lab, "job") == {("host0/0000:5e:00.0", "PGPU"): (1, ("0000:5e:00.0",))}


def test_what_was_changed_by_number_since_is_told_as_counts(lab: ro.Ledger) -> None:
    lab.claim("job", {"host0": {DEVICES: ro.devices("PGPU", 2)}})
    lab.adjust("job", {"host0/0000:3b:00.0": {"PGPU": -1}})
    assert lab.assigned_amounts("job") == {"host0/0000:5e:00.0": ro.Amounts("PGPU=1")}


def test_nothing_is_taken_of_a_device_beside_the_amount_that_says_which(lab: ro.Ledger) -> None:
    with raises_code("InvalidAmount", match="none next to DEVICES"):
        lab.claim(
            "job", {"host0": {DEVICES: ro.devices("PGPU")}, "host0/0000:5e:00.0": {"PGPU": 1}}
        )


def test_devices_are_asked_of_a_host(lab: ro.Ledger) -> None:
    with raises_code("InvalidAmount", match="a request to the host, host0"):
        lab.claim("job", {"host0/0000:3b:00.0": {DEVICES: ro.devices("PGPU")}})
    lab.sync(ro.Provider("box", "VCPU=1"))
    with raises_code("InventoryNotFound"):
        lab.claim("job", {"box": {DEVICES: ro.devices("PGPU")}})


# --- traits: of every device, or of some of them ---


@pytest.fixture
def mixed(ledger: ro.Ledger) -> ro.Ledger:
    """A ledger with an A100 and two H100, which a trait tells apart, and a card."""
    h100 = [gpu(bus, traits=["CUSTOM_H100"]) for bus in (0x20, 0x30)]
    ledger.sync(host_of([gpu(0x10), *h100, *card(1)]))
    return ledger


@pytest.mark.parametrize(
    "asked", [{DEVICES: ro.devices("PGPU", 2)}, {"PGPU": 2}], ids=["located", "counted"]
)
def test_a_required_trait_is_had_by_every_device(mixed: ro.Ledger, asked: Any) -> None:
    request = ro.Request({"VCPU": 1, **asked}, required=["CUSTOM_H100"])
    (found,) = mixed.snapshot().candidates(request)
    units = {unit for one in found.allocations for unit in one.units}
    assert units == {"0000:20:00.0", "0000:30:00.0"}
    mixed.claim("other", {"host0": {DEVICES: ro.devices("PGPU", address="0000:20:00.0")}})
    refused = mixed.snapshot().candidates(request)
    assert not refused and "PGPU requested 2" in str(refused.explain())


def test_a_forbidden_trait_is_had_by_no_device(mixed: ro.Ledger) -> None:
    request = ro.Request({DEVICES: ro.devices("PGPU")}, forbidden=["CUSTOM_H100"])
    assert chosen(mixed.snapshot().candidates(request)[0]).addresses == ("0000:10:00.0",)
    more = ro.Request({DEVICES: ro.devices("PGPU", 2)}, forbidden=["CUSTOM_H100"])
    assert not mixed.snapshot().candidates(more)


def test_a_trait_of_some_devices_is_said_of_these(mixed: ro.Ledger) -> None:
    """One resource of a request is given by all its providers: a card has no trait of a GPU."""
    wanted = ro.devices("PGPU", 2, traits=["CUSTOM_H100"]) + ro.devices(FUNCTION)
    (found,) = mixed.snapshot().candidates({DEVICES: wanted})
    assert chosen(found).of(0) == ("0000:20:00.0", "0000:30:00.0")
    every = ro.devices("PGPU", 2) + ro.devices(FUNCTION)
    assert not mixed.snapshot().candidates(ro.Request({DEVICES: every}, required=["CUSTOM_H100"]))


def test_a_trait_of_the_host_is_had_by_its_devices_but_none_of_their_own(
    ledger: ro.Ledger,
) -> None:
    host = host_of([gpu(0x10)])
    host.update(traits=["CUSTOM_LIQUID_COOLED"])
    ledger.sync(host)
    request = ro.Request({DEVICES: ro.devices("PGPU")}, required=["CUSTOM_LIQUID_COOLED"])
    assert ledger.snapshot().candidates(request)
    own = ro.devices("PGPU", traits=["CUSTOM_LIQUID_COOLED"])
    assert not ledger.snapshot().candidates({DEVICES: own})


def test_a_trait_that_is_added_to_a_provider_is_one_of_its_devices(mixed: ro.Ledger) -> None:
    mixed.change("host0/0000:10:00.0", traits=["CUSTOM_TESTED"])
    found = mixed.snapshot().candidates({DEVICES: ro.devices("PGPU", traits=["CUSTOM_TESTED"])})
    assert chosen(found[0]).addresses == ("0000:10:00.0",)
