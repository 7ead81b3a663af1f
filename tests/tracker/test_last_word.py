"""A scheduler chooses and claims, the tracker of the chosen host has the last word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.tracker import HostClaim
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.numa import NUMATopologyAmount
from resource_objects.scheduler import Destination, Scheduler
from tests.tracker.labs import WHOLE, holdings, tracker

ASKED = "VCPU=2,DISK_GB=10"


class Agents:
    """The tracker of each host, in the place of the program that runs there."""

    def __init__(self, ledger: ro.Ledger, **how: Mapping[str, Any]) -> None:
        self.asked: list[str] = []
        self.started: dict[str, HostClaim] = {}
        self._trackers = {
            host: tracker(ledger, **{name: one[host] for name, one in how.items() if host in one})
            for host in ("box-0", "box-1")
        }

    def confirm(self, chosen: Destination) -> None:
        self.asked.append(chosen.host)
        mine = self._trackers[chosen.host]
        self.started[chosen.consumer] = mine.claim(
            chosen.consumer, chosen.host, chosen.claim, limits=chosen.limits
        )


def _refuses(host: str, consumer: str, held: Mapping[str, ro.Amounts]) -> Any:
    reason = Reason(Rule.CAPACITY, 2, 1, 0, "CUSTOM_FIRMWARE", host)
    raise exceptions.HostRefused(host, consumer, "no firmware", [reason])


def _selected(ledger: ro.Ledger, agents: Agents, asked: Any, *consumers: str, **said: Any) -> Any:
    scheduler = Scheduler(ledger, **said)
    return scheduler.select_destinations(asked, consumers=consumers, confirm=agents.confirm)


@pytest.mark.law(6)
def test_what_a_tracker_refuses_goes_to_the_next_host_with_the_reason(lab: ro.Ledger) -> None:
    agents = Agents(lab, accept={"box-0": _refuses})
    found = _selected(lab, agents, ASKED, "vm-1", "vm-2")
    assert [(one.consumer, one.host) for one in found] == [("vm-1", "box-1"), ("vm-2", "box-1")]
    assert agents.asked == ["box-0", "box-1", "box-0", "box-1"]  # both were claimed at once
    told = "box-0 refuses vm-2: no firmware; box-0: CUSTOM_FIRMWARE requested 2, free 1 of 1"
    assert found.refused == {"box-0": told}
    for one in found:
        agents.started[one.consumer].confirm()
        assert lab.get_claim(one.consumer).by_provider() == {"box-1": ro.Amounts(ASKED)}
    assert set(holdings(lab)) == {"vm-1", "vm-2"}


@pytest.mark.law(2, 6)
def test_where_every_tracker_refuses_nothing_is_held_and_each_reason_is_told(
    lab: ro.Ledger,
) -> None:
    agents = Agents(lab, accept=dict.fromkeys(("box-0", "box-1"), _refuses))
    with pytest.raises(exceptions.NoCandidates) as refused:
        _selected(lab, agents, ASKED, "vm")
    for host in ("box-0", "box-1"):
        assert f"{host}: refused it already: {host} refuses vm: no firmware" in str(refused.value)
    assert agents.asked == ["box-0", "box-1"] and not holdings(lab)


def test_what_the_host_takes_besides_may_not_fit_and_the_next_is_tried(lab: ro.Ledger) -> None:
    lab.claim("other", {"box-0": "MEMORY_MB=4000"})
    agents = Agents(lab, overhead={"box-0": "MEMORY_MB=128", "box-1": "MEMORY_MB=64"})
    found = _selected(lab, agents, ASKED, "vm")
    assert [one.host for one in found] == ["box-1"]
    assert "MEMORY_MB requested 128, free 96 of 4096 (other holds 4000)" in found.refused["box-0"]
    assert lab.get_claim("vm").by_provider() == {"box-1": ro.Amounts(f"{ASKED},MEMORY_MB=64")}


def test_what_the_host_takes_besides_is_held_to_the_limits_of_the_scheduler(
    lab: ro.Ledger,
) -> None:
    lab.change("box-0", aggregates=["tight"])
    agents = Agents(lab, overhead=dict.fromkeys(("box-0", "box-1"), "VCPU=1"))
    filters = {"aggregate_ratios": {"ratios": {"tight": {"VCPU": "0.5"}}}}
    found = _selected(lab, agents, ASKED, "vm", filters=filters)
    assert [one.host for one in found] == ["box-1"]
    assert "under the limit of 2" in found.refused["box-0"]


def test_a_host_may_have_other_units_of_what_the_scheduler_chose(lab: ro.Ledger) -> None:
    def accept(host: str, consumer: str, held: Mapping[str, ro.Amounts]) -> Any:
        found: dict[str, Any] = {name: dict(some.by_name()) for name, some in held.items()}
        amount = found[host]["NUMA_TOPOLOGY"]
        assert isinstance(amount, NUMATopologyAmount)
        placed = [one.replace(pins={0: 2, 1: 3}) for one in amount.placed]
        found[host]["NUMA_TOPOLOGY"] = amount.replace(placed=placed)
        return found

    agents = Agents(lab, accept={"box-0": accept})
    [found] = _selected(lab, agents, WHOLE, "vm")
    assert found.host == "box-0" and lab.get_claim("vm") == agents.started["vm"].claim
    amount = lab.assigned_amounts("vm")["box-0"]["NUMA_TOPOLOGY"]
    assert isinstance(amount, NUMATopologyAmount) and amount.cpuset == "2-3"
