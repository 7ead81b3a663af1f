"""Hosts and ledger in step: what an agent's driver says is what the ledger keeps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import resource_objects as ro
from resource_objects.host.tracker import (
    ClaimState,
    Driver,
    FindingKind,
    HostReport,
    MigrationKind,
    ResourceTracker,
)
from tests.tracker import labs


class Lab(Driver):
    """Hosts by name; what of them is an exception is raised."""

    def __init__(self, **hosts: str | Exception) -> None:
        self.has = hosts

    def hosts(self) -> list[str]:
        return list(self.has)

    def get_available_resource(self, host: str) -> str:
        found = self.has[host]
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def ledger() -> Iterator[ro.Ledger]:
    with ro.connect("memory://") as ledger:
        yield ledger


def test_what_a_driver_says_is_kept_and_told_once(ledger: ro.Ledger) -> None:
    told: list[HostReport] = []
    tracker = ResourceTracker(ledger, Lab(box="VCPU=8"), on_change=told.append)
    assert str(tracker.update_available_resource()) == "+ box"
    assert str(tracker.update_available_resource()) == "nothing changed"
    assert [report.host for report in told] == ["box"]
    assert str(ledger.provider("box")) == "box: VCPU=8"


def test_one_wrong_host_stops_no_other(ledger: ro.Ledger) -> None:
    driver = Lab(a=ValueError("broken"), b="VCPU=-1", c="VCPU=4")
    report = ResourceTracker(ledger, driver).update_available_resource()
    assert [(one.subject, one.kind) for one in report.findings] == [
        ("a", FindingKind.DRIVER_FAILED),
        ("b", FindingKind.INVALID),
    ]
    assert [one.name for one in ledger.providers()] == ["c"]


@pytest.mark.law(2)
def test_a_claim_is_given_back_if_its_block_raises(ledger: ro.Ledger) -> None:
    tracker = ResourceTracker(ledger, Lab(box="VCPU=8"))
    tracker.update_available_resource()
    with pytest.raises(KeyError), tracker.claim("vm", "box", "VCPU=2") as claim:
        assert claim.state is ClaimState.HELD
        raise KeyError("boot failed")
    assert claim.state is ClaimState.REVERTED
    assert not list(ledger.consumers())


@pytest.mark.law(6)
def test_a_claim_on_a_host_takes_of_the_pools_that_give_to_it(lab: ro.Ledger) -> None:
    """Power of a rack: box-0 has it from there, box-1 from another one, which is empty."""
    lab.sync(ro.Provider("rack-a", "CUSTOM_WATT=1000"), ro.Provider("rack-b", "CUSTOM_WATT=100"))
    lab.pools.share("rack-a", hosts=["box-0"])
    lab.pools.share("rack-b", hosts=["box-1"])
    mine = labs.tracker(lab)
    planned = mine.plan("vm-1", "box-0", "VCPU=1,CUSTOM_WATT=700")
    planned.allocate()
    assert labs.used(lab) == {("box-0", "VCPU"): 1, ("rack-a", "CUSTOM_WATT"): 700}
    asked = ro.Request("VCPU=1,CUSTOM_WATT=300")
    claim = mine.claim("vm-2", "box-0", asked)
    assert mine.claim("vm-2", "box-0", asked).claim == claim.claim
    assert mine.get_claim("vm-2").host == "box-0"
    with pytest.raises(ro.CapacityException, match="vm-1 holds 700"):
        mine.claim("vm-3", "box-0", "VCPU=1,CUSTOM_WATT=1")
    with pytest.raises(ro.CapacityException, match="rack-b: CUSTOM_WATT requested 700, free 100"):
        mine.move("vm-1", "box-1", kind=MigrationKind.COLD_MIGRATION, migration="m")
    lab.pools.report("rack-b", "CUSTOM_WATT=800")
    mine.move("vm-1", "box-1", kind=MigrationKind.COLD_MIGRATION, migration="m").confirm()
    assert labs.used(lab)["rack-b", "CUSTOM_WATT"] == 700
    assert "rack-b" not in str(lab.snapshot(at="box-0").candidates("CUSTOM_WATT=2000").explain())
    assert lab.snapshot(at="box-0").hosts == ("box-0",)
