"""Which devices are taken by name, whoever says so: those of a provider, a card with its functions;
and those that who asks for a count gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers.columns import Columns
from resource_objects.testing.refusals import raises_code
from tests.ledger.conftest import around_reads
from tests.ledger.device_hosts import (
    CARD,
    DEVICES,
    FUNCTION,
    card,
    functions,
    gpu,
    host_of,
    raw,
    states,
    taken,
    told,
)

ONE = "0000:01:00.0"
WHERE = f"host0/{ONE}"
WRITES = ["claim", "replace", "adjust", "claim_all", "move"]


@pytest.fixture
def lab(ledger: ro.Ledger) -> ro.Ledger:
    """A ledger with a host of a card of three functions, and two GPUs; and another host."""
    ledger.sync(host_of([*card(1), gpu(0x3B), gpu(0x5E)]), host_of([gpu(0x3B)], "host1"))
    return ledger


def write(ledger: ro.Ledger, how: str, given: Any) -> None:
    if how == "move":
        ledger.claim("job", {"host1": "DISK_GB=1"})
    if how == "claim_all":
        ledger.claim_all({"job": given})
    else:
        getattr(ledger, how)("job", given)


# --- by name ---


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("units", [(ONE,), (ONE, *functions(1))], ids=["itself", "with all"])
def test_who_names_a_card_gets_its_functions(
    lab: ro.Ledger, how: str, units: tuple[str, ...]
) -> None:
    write(lab, how, [raw(WHERE, CARD, *units, amount=1)])
    assert taken(lab, "job") == {(WHERE, CARD): (1, (ONE, *functions(1)))}
    assert list(lab.audit()) == []
    with pytest.raises(exceptions.CapacityException, match="job holds"):
        lab.claim("other", [raw(WHERE, FUNCTION, functions(1)[0])])
    lab.adjust("job", [raw(WHERE, CARD, ONE, amount=-1)])
    assert states(lab) == {}


WRONG = {
    "some of its functions": raw(WHERE, CARD, ONE, functions(1)[0], amount=1),
    "a function as the card": raw(WHERE, CARD, functions(1)[0], amount=1),
    "all functions as the card": raw(WHERE, CARD, *functions(1), amount=1),
    "two of one": raw(WHERE, FUNCTION, functions(1)[0], amount=2),
    "one of two": raw(WHERE, FUNCTION, *functions(1, 0, 1), amount=1),
}
UNKNOWN = {
    "another card": raw(WHERE, CARD, ONE, "0000:02:00.0", amount=1),
    "the card as a function": raw(WHERE, FUNCTION, ONE, amount=1),
    "a GPU of another": raw("host0/0000:3b:00.0", "PGPU", "0000:5e:00.0"),
    "no address": raw("host0/0000:3b:00.0", "PGPU", "gpu0"),
    "another spelling": raw("host0/0000:3b:00.0", "PGPU", "3b:00.0"),
}


@pytest.mark.law(8)
@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_a_wrong_set_is_refused(lab: ro.Ledger, how: str, wrong: ro.Allocation) -> None:
    with raises_code("InvalidAmount", match=f"units of {wrong.resource_class}"):
        write(lab, how, [wrong])
    assert states(lab) == {}


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("wrong", UNKNOWN.values(), ids=list(UNKNOWN))
def test_what_is_no_device_of_a_provider_is_refused(
    lab: ro.Ledger, how: str, wrong: ro.Allocation
) -> None:
    with raises_code("UnitNotFound", match="is not a unit"):
        write(lab, how, [wrong])
    assert states(lab) == {}


@pytest.mark.law(4)
def test_a_card_is_not_had_by_name_while_somebody_has_a_function(lab: ro.Ledger) -> None:
    lab.claim("first", [raw(WHERE, FUNCTION, functions(1)[2])])
    with pytest.raises(exceptions.CapacityException, match="first holds 1"):
        lab.claim("second", [raw(WHERE, CARD, ONE)])
    lab.claim("third", [raw(WHERE, FUNCTION, *functions(1, 0, 1))])
    with pytest.raises(exceptions.CapacityException):
        lab.claim("second", [raw(WHERE, FUNCTION, functions(1)[0])])


# --- by count ---


@pytest.mark.parametrize(
    "asked, units",
    [
        ("PGPU=1", {"0000:3b:00.0"}),
        ("PGPU=2", {"0000:3b:00.0", "0000:5e:00.0"}),
        ("SRIOV_NET_VF=2", set(functions(1, 0, 1))),
        ("CUSTOM_CARD=1", {ONE, *functions(1)}),
        ("CUSTOM_CARD=1,PGPU=1,VCPU=2", {ONE, *functions(1), "0000:3b:00.0"}),
    ],
)
def test_a_search_says_which_devices_a_count_gets(
    lab: ro.Ledger, asked: str, units: set[str]
) -> None:
    """D4: snapshots carry units, so a search returns assigned amounts."""
    found = lab.snapshot("host0").candidates(asked)
    assert {unit for one in found[0].allocations for unit in one.units} == units
    claim = lab.claim("job", found)
    assert claim.allocations == found[0].allocations
    assert set(states(lab)) == units | ({ONE} if units & set(functions(1)) else set())
    assert list(lab.audit()) == []


def test_a_count_gets_devices_that_are_free_plain_ones_first(ledger: ro.Ledger) -> None:
    tagged = gpu(0x10, tags={"slot": "left"})
    ledger.sync(host_of([tagged, *card(1, 4)]))
    ledger.claim("other", [raw(WHERE, FUNCTION, functions(1)[1])])
    (found,) = ledger.snapshot().candidates("SRIOV_NET_VF=2")
    assert found.allocations[0].units == functions(1, 0, 2)
    assert ledger.snapshot().candidates("SRIOV_NET_VF=2")[0] == found  # law 9


def test_a_count_of_any_class_of_devices_may_be_of_several(ledger: ro.Ledger) -> None:
    devices = [gpu(bus, resource_class="CUSTOM_GPU") for bus in (1, 2, 3)]
    ledger.sync(host_of(devices))
    (found,) = ledger.snapshot().candidates("CUSTOM_GPU=2")
    assert [one.units for one in found.allocations] == [("0000:01:00.0",), ("0000:02:00.0",)]


@pytest.mark.law(4)
def test_a_count_beside_devices_gets_others(lab: ro.Ledger) -> None:
    asked = {DEVICES: ro.devices("8086:154c", 2), FUNCTION: 1, "PGPU": 1}
    (found,) = lab.snapshot("host0").candidates(asked)
    claim = lab.claim("job", found)
    assert taken(lab, "job")[WHERE, FUNCTION] == (3, functions(1))
    assert claim.allocations == found.allocations
    assert not lab.snapshot("host0").candidates({DEVICES: ro.devices("8086:154c", 3), CARD: 1})


@pytest.mark.law(4)
def test_a_card_by_count_beside_functions_is_another_card(ledger: ro.Ledger) -> None:
    ledger.sync(host_of([*card(1), *card(2)]))
    (found,) = ledger.snapshot().candidates({DEVICES: ro.devices(FUNCTION, 2), CARD: 1})
    assert {one.provider for one in found.allocations} == {WHERE, "host0/0000:02:00.0"}
    ledger.claim("job", found)
    assert not ledger.snapshot().candidates({CARD: 1})
    assert ledger.snapshot().candidates({FUNCTION: 1})


def test_of_a_provider_that_it_is_confined_to(lab: ro.Ledger) -> None:
    (found,) = lab.snapshot("host0/0000:5e:00.0").candidates("PGPU=1")
    assert [one.units for one in found.allocations] == [("0000:5e:00.0",)]
    lab.claim("job", found)


@pytest.mark.law(4)
def test_who_takes_by_number_has_the_last_ones_as_far_as_anybody_can_tell(
    lab: ro.Ledger,
) -> None:
    """A count that somebody takes of a provider directly costs no read and names no device."""
    lab.claim("job", {WHERE: "SRIOV_NET_VF=1", "host0/0000:3b:00.0": "PGPU=1"})
    assert all(units == () for _, units in taken(lab, "job").values())
    assert states(lab) == {
        ONE: "unavailable",
        functions(1)[2]: "unavailable",
        "0000:3b:00.0": "unavailable",
    }
    assert list(lab.audit()) == []
    (found,) = lab.snapshot("host0").candidates("SRIOV_NET_VF=2,PGPU=1")
    assert {unit for one in found.allocations for unit in one.units} == {
        *functions(1, 0, 1),
        "0000:5e:00.0",
    }
    lab.claim("more", found)
    with pytest.raises(exceptions.CapacityException, match="PGPU requested 1"):
        lab.claim("others", {"host0": {DEVICES: ro.devices("PGPU")}})


@pytest.mark.law(4)
def test_a_card_that_is_taken_by_number_is_taken_whole(lab: ro.Ledger) -> None:
    lab.claim("job", {WHERE: "CUSTOM_CARD=1"})
    assert states(lab) == {ONE: "allocated", **dict.fromkeys(functions(1), "unavailable")}
    refused = lab.snapshot().candidates({DEVICES: ro.devices(FUNCTION)})
    assert "job holds 3" in str(refused.explain())  # counted in functions


@pytest.mark.law(11)
def test_a_claim_that_touches_no_device_reads_no_tree(
    lab: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = lab.snapshot().candidates("PGPU=1")
    log: list[tuple[str, ...]] = []

    def wrap(read: Callable[..., Columns]) -> Callable[..., Columns]:
        def reading(*trees: Any, **how: Any) -> Columns:
            log.append(trees)
            return read(*trees, **how)

        return reading

    around_reads(monkeypatch, lab, wrap)
    lab.claim("one", found)
    lab.claim("two", {"host0": "VCPU=1"})
    lab.claim("three", {"host0/0000:5e:00.0": "PGPU=1"})
    assert log == []
    lab.claim("four", [raw(WHERE, FUNCTION, functions(1)[0])])
    assert len(log) == 1


# --- what was found, and is another's now ---


@pytest.mark.law(4, 6)
def test_the_next_one_is_taken_where_a_device_is_gone(lab: ro.Ledger) -> None:
    found = lab.snapshot().candidates("PGPU=1")
    assert [one.host for one in found] == ["host0", "host1"]
    lab.claim("other", [raw("host0/0000:3b:00.0", "PGPU", "0000:3b:00.0")])
    lab.claim("job", found)
    assert set(taken(lab, "job")) == {("host1/0000:3b:00.0", "PGPU")}


@pytest.mark.law(4, 6)
@pytest.mark.parametrize("asked", ["SRIOV_NET_VF=1", {DEVICES: ro.devices(FUNCTION)}], ids=str)
def test_it_is_searched_afresh_where_devices_are_gone(lab: ro.Ledger, asked: Any) -> None:
    found = lab.snapshot().candidates(asked)
    lab.claim("other", [raw(WHERE, FUNCTION, functions(1)[0])])
    lab.claim("job", found)
    assert taken(lab, "job") == {(WHERE, FUNCTION): (1, (functions(1)[1],))}


@pytest.mark.parametrize("asked", ["PGPU=1", {DEVICES: ro.devices("PGPU")}], ids=str)
def test_a_device_found_at_a_definition_that_changed_is_not_taken(
    lab: ro.Ledger, asked: Any
) -> None:
    (found,) = lab.snapshot("host1").candidates(asked)
    lab.sync(host_of([gpu(0x3B, tags={"slot": "left"})], "host1"))
    with raises_code("StaleDefinition"):
        lab.claim("job", found)
    assert states(lab, "host1") == {}
    lab.claim("job", lab.snapshot("host1").candidates(asked))


def test_a_request_names_devices_that_it_must_have(lab: ro.Ledger) -> None:
    second = ro.devices(FUNCTION, address=functions(1)[1])
    lab.claim("job", lab.snapshot().candidates({DEVICES: second}))
    assert told(lab, "job").addresses == (functions(1)[1],)
    refused = lab.snapshot().candidates({DEVICES: second})
    assert "job holds 1" in str(refused.explain())
