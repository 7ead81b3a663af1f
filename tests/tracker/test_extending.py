"""Resources that a site adds to the hosts of an agent, without touching its driver."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.tracker import Driver, FindingKind, ResourceTracker
from resource_objects.host.tracker.extending import ExtendedDriver, HostResource
from resource_objects.providers import Provider
from tests.plugin_site import Run
from tests.tracker.agents import Agent


class Watts(HostResource):
    """A total that the test sets, or an exception."""

    resource_classes = ("CUSTOM_WATT",)

    def __init__(self) -> None:
        self.total: Any = "CUSTOM_WATT=1000"

    def inventories(self, host: str) -> Any:
        if isinstance(self.total, Exception):
            raise self.total
        return self.total


class Both(Watts):
    resource_classes = ("CUSTOM_WATT", "CUSTOM_MBIT")


def test_what_a_site_adds_is_kept_and_claimed_like_anything_else(ledger: ro.Ledger) -> None:
    watts, agent = Watts(), Agent(box="VCPU=8")
    tracker = ResourceTracker(ledger, ExtendedDriver(agent, [watts]))
    assert not tracker.update_available_resource().findings
    assert str(ledger.provider("box")) == "box: VCPU=8,CUSTOM_WATT=1000"
    tracker.claim("vm", "box", "VCPU=1,CUSTOM_WATT=700")
    with pytest.raises(ro.CapacityException, match="CUSTOM_WATT asked 400, free 300 of 1000"):
        tracker.claim("other", "box", "CUSTOM_WATT=400")
    with pytest.raises(ro.CapacityException, match="under the limit of 800"):
        tracker.claim("other", "box", "CUSTOM_WATT=200", limits="CUSTOM_WATT=800")
    explained = ledger.snapshot().candidates("CUSTOM_WATT=400").explain()
    assert "vm holds 700" in str(explained)
    watts.total = "CUSTOM_WATT=1200"
    assert str(tracker.update_available_resource()).startswith("~ box: CUSTOM_WATT")
    assert not tracker.update_available_resource()


@pytest.mark.parametrize(
    "wrong",
    [
        OSError("no meter"),
        "CUSTOM_WATT=-1",
        "CUSTOM_MBIT=1",
        {"CUSTOM_WATT": 0.5},
        KeyError("box"),
    ],
)
def test_a_plug_in_that_fails_is_named_and_what_it_said_last_stays(
    ledger: ro.Ledger, wrong: Any
) -> None:
    watts, agent = Watts(), Agent(box="VCPU=8")
    tracker = ResourceTracker(ledger, ExtendedDriver(agent, [watts]))
    tracker.update_available_resource()
    tracker.claim("vm", "box", "CUSTOM_WATT=700")
    watts.total, agent.has["box"] = wrong, "VCPU=16"
    [finding] = tracker.update_available_resource().findings
    assert (finding.host, finding.kind) == ("box", FindingKind.REMARK)
    assert "'Watts'" in str(finding) and type(finding.error) is exceptions.PluginError
    assert str(ledger.provider("box")) == "box: VCPU=16,CUSTOM_WATT=1000:used=700"
    watts.total = "CUSTOM_WATT=900"
    assert not tracker.update_available_resource().findings
    assert ledger.inventories("box")["CUSTOM_WATT"].total == 900


@pytest.mark.parametrize("is_first", [False, True])
def test_a_plug_in_does_not_replace_what_the_driver_says(ledger: ro.Ledger, is_first: bool) -> None:
    """Also where it was first, and the ledger has the class by it."""
    watts, agent = Watts(), Agent(box="VCPU=8" if is_first else "VCPU=8,CUSTOM_WATT=500")
    tracker = ResourceTracker(ledger, ExtendedDriver(agent, [watts]))
    if is_first:
        assert not tracker.update_available_resource().findings
        agent.has["box"] = "VCPU=8,CUSTOM_WATT=500"
    for _ in range(2):
        [finding] = tracker.update_available_resource().findings
        assert (finding.host, finding.kind) == ("box", FindingKind.REMARK)
        assert type(finding.error) is exceptions.PluginError
        assert "'Watts'" in str(finding) and "CUSTOM_WATT" in str(finding)
        assert str(ledger.provider("box")) == "box: VCPU=8,CUSTOM_WATT=500"
    agent.has["box"] = "VCPU=8"
    assert not tracker.update_available_resource().findings
    assert str(ledger.provider("box")) == "box: VCPU=8,CUSTOM_WATT=1000"


def test_a_driver_that_leaves_what_others_added_is_not_taken_for_its_author(
    ledger: ro.Ledger,
) -> None:
    def edit(tree: Provider) -> None:
        own: dict[str, Any] = dict(tree.inventories.by_name())
        tree.update(inventories=ro.Inventories({**own, "VCPU": 4}))

    tracker = ResourceTracker(ledger, ExtendedDriver(Agent(box=edit), [Watts()]))
    for _ in range(2):
        assert not tracker.update_available_resource().findings
        assert str(ledger.provider("box")) == "box: VCPU=4,CUSTOM_WATT=1000"


def test_a_driver_that_edits_the_tree_each_time_is_extended_too(ledger: ro.Ledger) -> None:
    def edit(tree: Provider) -> None:
        tree.update(inventories=ro.Inventories("VCPU=4"), traits=["CUSTOM_QUIET"])

    watts = Watts()
    tracker = ResourceTracker(ledger, ExtendedDriver(Agent(box=edit), [watts]))
    tracker.update_available_resource()
    watts.total = OSError("no meter")
    assert "no meter" in str(tracker.update_available_resource())
    assert str(ledger.provider("box")) == "box: VCPU=4,CUSTOM_WATT=1000"


def test_what_a_driver_can_say_its_extension_says_too() -> None:
    methods = [name for name, one in vars(Driver).items() if inspect.isfunction(one)]
    assert {*methods} <= {*vars(ExtendedDriver)}
    agent = Agent(box="VCPU=8")
    agent.uuids["box"] = "6f1c9e0e-7f5e-4f0e-9e2c-0f3b1f3a0001"
    agent.running["box"] = {"vm": None}
    driver = ExtendedDriver(agent, [])
    for name in ("identity", "consumers", "statistics", "remarks"):
        assert getattr(driver, name)("box") is not NotImplemented
    assert driver.identity("box") == agent.uuids["box"] and driver.consumers("box") == {"vm": None}


@pytest.mark.parametrize(
    ("resources", "error", "said"),
    [
        ([Watts(), Both()], exceptions.DuplicateKey, "CUSTOM_WATT.*Watts and Both"),
        ([Watts(), Watts()], exceptions.DuplicateKey, "Watts.*name of its own"),
        (["nowhere"], exceptions.PluginError, "nowhere"),
        ([object()], exceptions.PluginError, "no HostResource"),
    ],
)
def test_bad_input_is_refused_at_the_door(
    resources: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        ExtendedDriver(Agent(box="VCPU=8"), resources)


PROGRAM = """
import json
import resource_objects as ro
from resource_objects.host.tracker import Driver, ResourceTracker
from resource_objects.host.tracker.extending import ExtendedDriver

class Lab(Driver):
    def hosts(self):
        return ["h1", "h2"]
    def get_available_resource(self, host):
        return "VCPU=8"

def refusal(action, *arguments):
    try:
        return str(action(*arguments))
    except ro.ResourceObjectsError as error:
        return str(error)
"""


def test_a_distribution_adds_resources_that_are_claimed_filtered_and_explained(
    run_with_plugins: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = tmp_path / "bandwidth.json"
    figures.write_text('{"h1": 10000}')
    monkeypatch.setenv("SITE_BANDWIDTH", str(figures))
    told = run_with_plugins(
        PROGRAM
        + textwrap.dedent("""
        ledger = ro.connect("memory://")
        driver = ExtendedDriver(Lab(), ["one_database", "entitlement", "bandwidth"])
        tracker = ResourceTracker(ledger, driver)
        report = tracker.update_available_resource()
        ledger.sync(ro.Provider("rack", "CUSTOM_WATT=3000"))
        ledger.pools.share("rack", hosts=["h1", "h2"])
        tracker.claim("db-1", "h1", "VCPU=1,CUSTOM_ONE_DATABASE=1,CUSTOM_NET_MBIT=4000")
        request = ro.Request("VCPU=1,CUSTOM_ONE_DATABASE=1,CUSTOM_CPU_ENTITLEMENT=150")
        found = ledger.snapshot().candidates(request)
        power = ledger.snapshot().candidates(ro.Request("VCPU=1,CUSTOM_WATT=2000"))
        ledger.claim("hot", power)
        print(json.dumps({
            "findings": [str(one) for one in report.findings],
            "hosts": [str(ledger.provider(host)) for host in ("h1", "h2")],
            "second": refusal(tracker.claim, "db-2", "h1", "CUSTOM_ONE_DATABASE=1"),
            "hosts found": sorted({one.allocations[0].provider for one in found}),
            "odd": refusal(tracker.claim, "vm", "h2", "CUSTOM_CPU_ENTITLEMENT=155"),
            "power": refusal(ledger.claim, "hotter", ledger.snapshot().candidates(
                ro.Request("VCPU=1,CUSTOM_WATT=2000"))),
            "broken": refusal(ExtendedDriver, Lab(), ["broken"]),
            "none": refusal(ExtendedDriver, Lab(), ["none"]),
        }))
        """)
    )
    assert len(told["findings"]) == 1 and "'bandwidth'" in told["findings"][0]
    assert told["findings"][0].startswith("h2: ") and "KeyError" in told["findings"][0]
    assert "CUSTOM_NET_MBIT=10000" in told["hosts"][0] and "MBIT" not in told["hosts"][1]
    assert "CUSTOM_ONE_DATABASE asked 1, free 0 of 1" in told["second"]
    assert "db-1 holds 1" in told["second"]
    assert told["hosts found"] == ["h2"]
    assert "step_size" in told["odd"] or "multiple of 10" in told["odd"]
    assert "CUSTOM_WATT" in told["power"] and "hot holds 2000" in told["power"]
    assert "no licence server" in told["broken"] and "no HostResource" in told["none"]
