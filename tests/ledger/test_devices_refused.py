"""Why devices cannot be had: the rule, the figures, and who holds the ones that are missing."""

from __future__ import annotations

from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.reasons import Reason, Rule
from resource_objects.requests import Request
from tests.ledger.device_hosts import CARD, DEVICES, FUNCTION, card, functions, gpu, host_of, raw


@pytest.fixture
def lab(ledger: ro.Ledger) -> ro.Ledger:
    """A ledger with a host of two cards of three functions each, and two GPUs."""
    ledger.sync(host_of([*card(1), *card(2), gpu(0x3B), gpu(0x5E)]))
    return ledger


def refused(ledger: ro.Ledger, asked: Any) -> list[Reason]:
    """Return why a search and a claim refuse, which is the same."""
    found = ledger.snapshot().candidates(asked)
    assert not found
    told = list(found.explain().reasons)
    with pytest.raises(exceptions.CapacityException) as lost:
        ledger.claim("new", {"host0": Request.of(asked).groups[0].resources})
    assert list(lost.value.reasons) == told
    return told


@pytest.mark.law(6)
def test_who_holds_devices_of_a_class(lab: ro.Ledger) -> None:
    lab.claim("a", {"host0": {DEVICES: ro.devices("PGPU")}})
    assert list(map(str, refused(lab, {DEVICES: ro.devices("PGPU", 2)}))) == [
        "host0: PGPU requested 2, free 1 of 2 (a holds 1)"
    ]
    lab.claim("b", {"host0/0000:5e:00.0": "PGPU=1"})  # by number
    assert list(map(str, refused(lab, {DEVICES: ro.devices("PGPU")}))) == [
        "host0: PGPU requested 1, free 0 of 2 (a holds 1, b holds 1)"
    ]


@pytest.mark.law(6)
def test_who_holds_devices_that_are_asked_for_by_vendor(lab: ro.Ledger) -> None:
    lab.claim("a", {"host0": {DEVICES: ro.devices("PGPU", 2)}})
    lab.claim("c", {"host0": {DEVICES: ro.devices(FUNCTION)}})
    assert list(map(str, refused(lab, {DEVICES: ro.devices("10de:2330")}))) == [
        "host0: DEVICES 10de.2330 requested 1, free 0 of 2 (a holds 2)"
    ]


@pytest.mark.law(6)
def test_who_holds_the_functions_of_cards(lab: ro.Ledger) -> None:
    lab.claim("a", [raw("host0/0000:01:00.0", FUNCTION, *functions(1, 0, 1))])
    lab.claim("b", [raw("host0/0000:02:00.0", FUNCTION, functions(2)[1])])
    assert list(map(str, refused(lab, {DEVICES: ro.devices(CARD)}))) == [
        "host0: CUSTOM_CARD requested 1, free 0 of 2 (a holds 1, b holds 1)"
    ]  # counted in cards: a has two functions of the one


@pytest.mark.law(6)
def test_who_holds_the_cards_of_functions(lab: ro.Ledger) -> None:
    lab.claim("a", {"host0": {DEVICES: ro.devices(CARD)}})
    assert list(map(str, refused(lab, {DEVICES: ro.devices(FUNCTION, 4)}))) == [
        "host0: SRIOV_NET_VF requested 4, free 3 of 6 (a holds 3)"
    ]


@pytest.mark.law(6)
def test_what_cannot_be_had_at_once(lab: ro.Ledger) -> None:
    both = ro.devices(CARD, 2) + ro.devices(FUNCTION)
    [reason] = refused(lab, {DEVICES: both})
    assert (reason.rule, reason.requested, reason.holders) == (Rule.AT_ONCE, 3, ())
    lab.claim("a", {"host0": {DEVICES: ro.devices(FUNCTION)}})
    [reason] = refused(lab, {DEVICES: ro.devices(CARD) + ro.devices(FUNCTION, 3)})
    assert (reason.rule, reason.holders) == (Rule.AT_ONCE, (("a", 1),))


@pytest.mark.law(6)
def test_what_there_is_none_of(lab: ro.Ledger) -> None:
    [reason] = refused(lab, {DEVICES: ro.devices("FPGA")})
    assert (reason.rule, reason.resource, reason.where) == (Rule.NO_INVENTORY, "FPGA", "host0")
    lab.sync(ro.Provider("box", "VCPU=1"))
    told = lab.snapshot("box").candidates({DEVICES: ro.devices("FPGA", 2)}).explain().reasons
    assert [(one.rule, one.requested) for one in told] == [(Rule.NO_INVENTORY, 2)]


def test_traits_that_are_missing_are_told_with_how_many_devices_are_asked_for(
    lab: ro.Ledger,
) -> None:
    """Nova, c.4: traits of an alias."""
    request = Request({DEVICES: ro.devices("PGPU", 2)}, required=["CUSTOM_H100"])
    assert str(lab.snapshot().candidates(request).explain()) == (
        "host0: DEVICES requested 2 with CUSTOM_H100, no provider has it"
    )
    own = {DEVICES: ro.devices("PGPU", 2, traits=["CUSTOM_H100"])}
    [reason] = refused(lab, own)
    assert (reason.rule, reason.resource) == (Rule.NO_INVENTORY, "PGPU")


@pytest.mark.law(6)
def test_too_few_devices_with_a_trait_name_those_who_hold_some(lab: ro.Ledger) -> None:
    lab.change("host0/0000:3b:00.0", traits=["CUSTOM_H100"])
    lab.claim("a", {"host0": {DEVICES: ro.devices("PGPU", traits=["CUSTOM_H100"])}})
    request = Request({DEVICES: ro.devices("PGPU")}, required=["CUSTOM_H100"])
    told = str(lab.snapshot().candidates(request).explain())
    assert "PGPU requested 1, free 0 of" in told and "(a holds 1)" in told


@pytest.mark.law(2, 6)
def test_a_unit_that_is_taken_names_who_has_it(lab: ro.Ledger) -> None:
    wanted = lab.inventories("host0")[DEVICES].fit(ro.devices("PGPU"))
    lab.claim("a", {"host0": {DEVICES: wanted}})
    told = lab.snapshot().candidates({DEVICES: wanted}).explain().reasons
    assert [(one.rule, one.unit, one.holders) for one in told] == [
        (Rule.UNIT_TAKEN, "0000:3b:00.0", (("a", 1),))
    ]


def test_hosts_that_are_refused_are_told_each_by_itself(lab: ro.Ledger) -> None:
    lab.sync(host_of([gpu(0x10)], "host1"))
    lab.claim("a", {"host1": {DEVICES: ro.devices("PGPU")}})
    told = str(lab.snapshot().candidates({DEVICES: ro.devices("PGPU", 3), "VCPU": 9}).explain())
    assert told.splitlines() == [
        "host0: VCPU requested 9, free 8 of 8; PGPU requested 3, free 2 of 2",
        "host1: VCPU requested 9, free 8 of 8; PGPU requested 3, free 0 of 1 (a holds 1)",
    ]
