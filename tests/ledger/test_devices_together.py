"""Cells and devices decided together: in a search, a claim, beside what is held, when told again.

Source of the rules: Nova, b.8 (``hw:pci_numa_affinity_policy``).
"""

from __future__ import annotations

from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.reasons import Rule
from resource_objects.requests import Request
from resource_objects.resources.context import Context
from resource_objects.resources.numa import HostCell, NUMATopologyAmount, NUMATopologyInventory
from resource_objects.testing.refusals import raises_code
from tests.ledger.device_hosts import (
    CARD,
    DEVICES,
    FUNCTION,
    TOPOLOGY,
    card,
    chosen,
    gpu,
    host_of,
    taken,
    told,
)


def near(count: int = 1, affinity: str = "required", cpus: int = 2, cells: int = 1) -> ro.Amounts:
    """Return cells with CPUs, and GPUs near them."""
    return ro.Amounts(
        {
            TOPOLOGY: ro.numa(cells, dedicated=cells * cpus),
            DEVICES: ro.devices("PGPU", count, affinity=affinity),
        }
    )


def fill(ledger: ro.Ledger, consumer: str, *cells: int) -> None:
    """Let a consumer take all CPUs of some cells."""
    inventory = ledger.inventories("host0")[TOPOLOGY]
    asked = ro.numa(len(cells), dedicated=4 * len(cells))
    ledger.claim(
        consumer, {"host0": {TOPOLOGY: inventory.fit(asked, None, Context(allowed=cells))}}
    )


def where(ledger: ro.Ledger, consumer: str, host: str = "host0") -> frozenset[int]:
    """Return the host cells that a consumer is told to be on."""
    found = ledger.assigned_amounts(consumer)[host][TOPOLOGY]
    assert isinstance(found, NUMATopologyAmount)
    return found.host_cells


@pytest.fixture
def lab(ledger: ro.Ledger) -> ro.Ledger:
    """A ledger with a host of two cells: one GPU is near the first, two near the second."""
    ledger.sync(host_of([gpu(0x10, 0), gpu(0x20, 1), gpu(0x21, 1)], cells=2))
    return ledger


# --- one decision ---


@pytest.mark.law(5, 6)
def test_devices_choose_the_cells(lab: ro.Ledger) -> None:
    """b.8: a policy of devices restricts the cells; the first ones that would do do not do here."""
    found = lab.snapshot().candidates(near(2))
    assert found[0].located[TOPOLOGY].host_cells == {1}
    assert chosen(found[0]).addresses == ("0000:20:00.0", "0000:21:00.0")
    assert (
        lab.inventories("host0").fit(near(2)).as_requested()[TOPOLOGY] == found[0].located[TOPOLOGY]
    )
    lab.claim("searched", found)
    assert told(lab, "searched") == found[0].located[DEVICES]
    before = lab.assigned_amounts("searched")
    lab.release("searched")
    lab.claim("direct", {"host0": near(2)})
    assert lab.assigned_amounts("direct") == before
    assert list(lab.audit()) == []


@pytest.mark.law(5, 6)
def test_cells_choose_the_devices(lab: ro.Ledger) -> None:
    """b.8: each choice of cells restricts the devices."""
    fill(lab, "other", 1)
    for affinity in ("required", "legacy"):
        (found,) = lab.snapshot().candidates(near(1, affinity))
        assert chosen(found).addresses == ("0000:10:00.0",)
    (found,) = lab.snapshot().candidates(near(2, "preferred"))
    assert chosen(found).addresses == ("0000:10:00.0", "0000:20:00.0")
    assert not lab.snapshot().candidates(near(2))


@pytest.mark.parametrize("affinity", ["required", "legacy", "preferred", "socket"])
def test_each_policy_in_a_ledger(ledger: ro.Ledger, affinity: str) -> None:
    """b.8: required, legacy (or not known), preferred (anywhere), socket (next to it)."""
    ledger.sync(host_of([gpu(0x30, 3), gpu(0x31), gpu(0x32, 1)], cells=4))
    fill(ledger, "full", 1, 2, 3)
    found = ledger.snapshot().candidates(near(1, affinity))
    expected = {
        "required": None,
        "legacy": ("0000:31:00.0",),
        "preferred": ("0000:31:00.0",),
        "socket": ("0000:32:00.0",),
    }[affinity]
    assert (chosen(found[0]).addresses if found else None) == expected
    if found:
        ledger.claim("job", found)
        assert told(ledger, "job").addresses == expected


def test_who_asks_for_no_cells_is_near_to_nothing(lab: ro.Ledger) -> None:
    """b.8: the policies are of instances with a topology."""
    asked = ro.Request(
        {DEVICES: ro.devices("PGPU", 3, affinity="required")}, compatibility="placement"
    )
    found = lab.snapshot().candidates(asked)
    assert found
    lab.claim("job", found)
    assert len(told(lab, "job").addresses) == 3


@pytest.mark.parametrize("affinity", ["required", "preferred", "socket"])
def test_an_affinity_without_a_topology_means_nothing_and_is_refused(
    lab: ro.Ledger, affinity: str
) -> None:
    asked = {"VCPU": 1, DEVICES: ro.devices("PGPU", affinity=affinity)}
    with raises_code("InvalidRequest", match="a topology beside it"):
        lab.snapshot().candidates(asked)
    assert lab.snapshot().candidates({DEVICES: ro.devices("PGPU", affinity="legacy")})
    assert lab.snapshot().candidates(near(1, affinity))


def test_who_asks_for_no_devices_leaves_cells_that_have_many(lab: ro.Ledger) -> None:
    """b.3: cells without devices come first, if the instance asks for none."""
    lab.claim("job", lab.snapshot().candidates("NUMA_TOPOLOGY=1:dedicated=2"))
    assert where(lab, "job") == {0}
    lab.claim("devices", {"host0": {DEVICES: ro.devices("PGPU", 2, affinity="required")}})
    lab.claim("more", {"host0": "NUMA_TOPOLOGY=1:dedicated=2"})
    assert where(lab, "more") == {0}


def test_a_card_near_one_cell_and_functions_near_another(ledger: ro.Ledger) -> None:
    ledger.sync(host_of([*card(1, node=0), *card(2, node=1)], cells=2))
    wanted = ro.devices(CARD, affinity="required") + ro.devices(FUNCTION, 3, affinity="required")
    both = {TOPOLOGY: ro.numa(2, dedicated=2), DEVICES: wanted}
    assert not ledger.snapshot().candidates({**both, TOPOLOGY: ro.numa(dedicated=2)})
    found = ledger.snapshot().candidates(both)
    ledger.claim("job", found)
    assert where(ledger, "job") == {0, 1}
    assert told(ledger, "job") == found[0].located[DEVICES]


@pytest.mark.law(6)
def test_the_first_host_where_both_fit_together_is_found(lab: ro.Ledger) -> None:
    lab.sync(host_of([gpu(0x20, 0), gpu(0x21, 0)], "host1", cells=1))
    fill(lab, "other", 1)
    found = lab.snapshot().candidates(near(2))
    assert [one.host for one in found] == ["host1"]
    lab.claim("job", found)
    assert where(lab, "job", "host1") == {0}


# --- traits narrow the parts of either ---


def test_a_required_trait_of_devices_chooses_the_cells_too(ledger: ro.Ledger) -> None:
    ledger.sync(host_of([gpu(0x10, 0), gpu(0x20, 1, traits=["CUSTOM_H100"])], cells=2))
    (found,) = ledger.snapshot().candidates(Request(near(), required=["CUSTOM_H100"]))
    assert found.located[TOPOLOGY].host_cells == {1}
    forbidden = ledger.snapshot().candidates(Request(near(), forbidden=["CUSTOM_H100"]))
    assert forbidden[0].located[TOPOLOGY].host_cells == {0}


def test_a_required_trait_of_a_cell_chooses_the_devices_too(lab: ro.Ledger) -> None:
    lab.change("host0/numa0", traits=["CUSTOM_FAST"])
    (found,) = lab.snapshot().candidates(Request(near(), required=["CUSTOM_FAST"]))
    assert chosen(found).addresses == ("0000:10:00.0",)
    refused = lab.snapshot().candidates(Request(near(2), required=["CUSTOM_FAST"]))
    assert not refused
    assert "PGPU requested 2, at most 1 near its host cells" in str(refused.explain())


# --- assigned already ---


def test_assigned_devices_choose_the_cells(lab: ro.Ledger) -> None:
    first = lab.inventories("host0")[DEVICES].fit(
        ro.devices("PGPU", affinity="required", address="0000:21:00.0")
    )
    for given in (
        lab.snapshot().candidates({TOPOLOGY: ro.numa(dedicated=1), DEVICES: first}),
        {"host0": {TOPOLOGY: ro.numa(dedicated=1), DEVICES: first}},
    ):
        lab.claim("job", given)
        assert where(lab, "job") == {1}
        lab.release("job")


@pytest.mark.law(2)
def test_assigned_cells_and_devices_that_are_far_apart_are_refused(lab: ro.Ledger) -> None:
    here = lab.inventories("host0")
    far = here[DEVICES].fit(ro.devices("PGPU", affinity="required", address="0000:21:00.0"))
    cells = here[TOPOLOGY].fit(ro.numa(dedicated=4))
    assert cells.host_cells == {0}
    with pytest.raises(exceptions.CapacityException) as refused:
        lab.claim("job", {"host0": {TOPOLOGY: cells, DEVICES: far}})
    assert {reason.rule for reason in refused.value.reasons} == {Rule.AFFINITY}
    assert not lab.snapshot().candidates({TOPOLOGY: cells, DEVICES: far})
    with raises_code("ConsumerNotFound"):
        lab.get_claim("job")


# --- beside what is held ---


def test_devices_that_are_added_are_near_the_cells_that_are_held(lab: ro.Ledger) -> None:
    fill(lab, "job", 1)
    lab.adjust("job", {"host0": {DEVICES: ro.devices("PGPU", affinity="required")}})
    assert told(lab, "job").addresses == ("0000:20:00.0",)
    assert where(lab, "job") == {1}
    lab.adjust("job", {"host0": {DEVICES: -told(lab, "job")}})
    with pytest.raises(exceptions.CapacityException, match="at most 2 near its host cells"):
        lab.adjust("job", {"host0": {DEVICES: ro.devices("PGPU", 3, affinity="required")}})
    lab.adjust("job", {"host0": {DEVICES: ro.devices("PGPU", 3, affinity="preferred")}})
    assert list(lab.audit()) == []


def test_cells_that_are_added_are_near_the_devices_that_are_held(lab: ro.Ledger) -> None:
    wanted = ro.devices("PGPU", affinity="required", address="0000:20:00.0")
    lab.claim("job", {"host0": {DEVICES: wanted}})
    lab.adjust("job", {"host0": {TOPOLOGY: ro.numa(dedicated=2)}})
    assert where(lab, "job") == {1}
    assert told(lab, "job").addresses == ("0000:20:00.0",)
    lab.adjust("job", {"host0": {TOPOLOGY: -lab.assigned_amounts("job")["host0"][TOPOLOGY]}})
    fill(lab, "other", 1)
    with pytest.raises(exceptions.CapacityException, match="other holds 4"):
        lab.adjust("job", {"host0": {TOPOLOGY: ro.numa(dedicated=2)}})


def test_what_is_held_already_stays_and_the_rest_is_near_it(lab: ro.Ledger) -> None:
    lab.claim("job", {"host0": near(1)})
    assert where(lab, "job") == {1}
    lab.replace("job", {"host0": near(2)})
    assert where(lab, "job") == {1}
    assert told(lab, "job").addresses == ("0000:20:00.0", "0000:21:00.0")
    lab.replace("job", {"host0": near(1)})
    assert told(lab, "job").addresses == ("0000:20:00.0",)


def test_what_is_held_goes_where_it_would_be_too_far(lab: ro.Ledger) -> None:
    lab.claim("job", {"host0": {TOPOLOGY: ro.numa(dedicated=2)}})
    assert where(lab, "job") == {0}
    lab.replace("job", {"host0": near(2)})
    assert where(lab, "job") == {1}


@pytest.mark.law(2, 4)
def test_several_are_put_beside_each_other(lab: ro.Ledger) -> None:
    lab.claim_all({"a": {"host0": near(1)}, "b": {"host0": near(1)}, "c": {"host0": near(1)}})
    cells = sorted(min(where(lab, name)) for name in "abc")
    assert cells == [0, 1, 1]
    lab.release_all(["a", "b", "c"])
    with pytest.raises(exceptions.CapacityException):
        lab.claim_all({"a": {"host0": near(2)}, "b": {"host0": near(2)}})
    assert lab.usage("host0").consumers == {}


# --- told again ---


@pytest.mark.law(3)
def test_which_device_is_for_which_request_is_told_by_the_cells(lab: ro.Ledger) -> None:
    """Who asks twice gets the near one for the request that needs it near."""
    wanted = ro.devices("PGPU", affinity="preferred") + ro.devices("PGPU", affinity="required")
    asked = {TOPOLOGY: ro.numa(dedicated=4), DEVICES: wanted}
    fill(lab, "other", 1)
    found = lab.snapshot().candidates(asked)
    lab.claim("job", found)
    assert told(lab, "job") == found[0].located[DEVICES]
    assert told(lab, "job").of(1) == ("0000:10:00.0",)
    amounts = lab.assigned_amounts("job")
    lab.release("job")
    lab.claim("job", amounts)
    assert lab.assigned_amounts("job") == amounts


def test_devices_are_told_though_the_cells_cannot_be(lab: ro.Ledger) -> None:
    lab.claim("job", {"host0": near(2)})
    lab.adjust("job", {"host0/numa1": {"PCPU": -2}})
    assert TOPOLOGY not in lab.assigned_amounts("job")["host0"]
    assert told(lab, "job").addresses == ("0000:20:00.0", "0000:21:00.0")


# --- why not ---


def reasons_of(refused: Any) -> list[str]:
    return [str(reason) for reason in refused.explain().reasons]


@pytest.mark.law(6)
def test_who_holds_the_near_devices_is_said(lab: ro.Ledger) -> None:
    lab.claim("other", {"host0": {DEVICES: ro.devices("PGPU", address="0000:20:00.0")}})
    refused = lab.snapshot().candidates(near(2))
    expected = "host0: PGPU requested 2, at most 1 near its host cells (other holds 1)"
    assert reasons_of(refused) == [expected]
    with pytest.raises(exceptions.CapacityException) as lost:
        lab.claim("job", {"host0": near(2)})
    assert str(lost.value) == expected


@pytest.mark.law(6)
def test_who_holds_the_cells_that_are_near_is_said(lab: ro.Ledger) -> None:
    fill(lab, "other", 1)
    refused = lab.snapshot().candidates(near(2))
    expected = [
        "host0: PGPU requested 2, at most 1 near its host cells",
        "host0: cell 1: PCPU requested 2, free 0 of 4 (other holds 4)",
    ]
    assert reasons_of(refused) == expected
    with pytest.raises(exceptions.CapacityException) as lost:
        lab.claim("job", {"host0": near(2)})
    assert str(lost.value) == "; ".join(expected)


@pytest.mark.law(6)
def test_what_fails_by_itself_is_said_alone(lab: ro.Ledger) -> None:
    lab.claim("other", {"host0": {DEVICES: ro.devices("PGPU", 2)}})
    refused = lab.snapshot().candidates(near(2, cpus=5))
    assert reasons_of(refused) == [
        "host0: cell 0: PCPU requested 5, free 4 of 4",
        "host0: cell 1: PCPU requested 5, free 4 of 4",
        "host0: PGPU requested 2, free 1 of 3 (other holds 2)",
    ]


def test_a_device_is_taken_that_was_free_when_it_was_searched(lab: ro.Ledger) -> None:
    found = lab.snapshot().candidates(near(2))
    other = ro.devices("PGPU", address="0000:20:00.0")
    lab.claim("other", {"host0": {DEVICES: other}})
    with pytest.raises(exceptions.NoCandidates, match="other holds 1"):
        lab.claim("job", found)
    assert set(taken(lab, "other")) == {("host0/0000:20:00.0", "PGPU")}


@pytest.mark.parametrize("cells", [1, 2])
def test_what_keeps_guest_cells_from_the_host_cells_near_a_device_is_a_reason(
    ledger: ro.Ledger, cells: int
) -> None:
    """One guest cell near the GPU would do, so the number of host cells there is no reason.

    host0   cell 0: 1 CPU and the GPU   cell 1: 2 CPUs   cell 2: 2 CPUs
    """
    host = ro.Provider("host0", "PCPU=5")
    cpus = [range(1), range(1, 3), range(3, 5)]
    made = [HostCell(n, dedicated=some, memory_mb=64) for n, some in enumerate(cpus)]
    host.add_parts(TOPOLOGY, NUMATopologyInventory(made))
    host.add_parts(DEVICES, ro.PCIInventory([gpu(0x10, 0)]))
    ledger.sync(host)
    found = ledger.snapshot().candidates(near(1, cells=cells))
    expected = [
        "host0: PGPU requested 1, at most 0 near its host cells",
        "host0: cell 0: PCPU requested 2, free 1 of 1",
    ]
    assert [str(reason) for reason in found.explain().reasons] == expected
    with pytest.raises(exceptions.CapacityException) as refused:
        ledger.claim("job", {"host0": near(1, cells=cells)})
    assert [str(reason) for reason in refused.value.reasons] == expected
