"""Resources that a site adds to the hosts of an agent, without touching its driver."""

from __future__ import annotations

import inspect
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.tracker import Driver, FindingKind, ResourceTracker
from resource_objects.host.tracker.extending import ExtendedDriver, HostResource, PooledResource
from resource_objects.providers import Provider
from resource_objects.testing.refusals import raises_code
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
    with pytest.raises(ro.CapacityException, match="CUSTOM_WATT requested 400, free 300 of 1000"):
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
    assert (finding.subject, finding.kind) == ("box", FindingKind.WARNING)
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
        assert (finding.subject, finding.kind) == ("box", FindingKind.WARNING)
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
    for name in ("identity", "consumers", "statistics", "warnings"):
        assert getattr(driver, name)("box") is not NotImplemented
    assert driver.identity("box") == agent.uuids["box"] and driver.consumers("box") == {"vm": None}


# --- pools ---


class Power(PooledResource):
    """Racks and their watts, and in which rack each host is; or exceptions."""

    resource_classes = ("CUSTOM_WATT",)

    def __init__(self) -> None:
        self.racks: Any = {"rack-1": "CUSTOM_WATT=3000", "rack-2": "CUSTOM_WATT=2000"}
        self.rack_of: dict[str, Any] = {"h1": "rack-1", "h2": "rack-1"}

    def pools(self) -> Any:
        if isinstance(self.racks, Exception):
            raise self.racks
        return self.racks

    def pool_of(self, host: str) -> Any:
        rack = self.rack_of.get(host)
        if isinstance(rack, Exception):
            raise rack
        return rack


@pytest.fixture
def power() -> Power:
    return Power()


@pytest.fixture
def racks(ledger: ro.Ledger, power: Power) -> ResourceTracker:
    """A tracker of three hosts, of which two are in a rack."""
    hosts = Agent(h1="VCPU=8", h2="VCPU=8", h3="VCPU=8")
    tracker = ResourceTracker(ledger, ExtendedDriver(hosts, [power]))
    assert not tracker.update_available_resource().findings
    return tracker


def test_a_pool_is_tracked_with_the_hosts_that_it_gives_to(
    ledger: ro.Ledger, racks: ResourceTracker, power: Power
) -> None:
    [pool] = ledger.pools.list()
    assert pool.name == "rack-1" and {*pool.members} == {"h1", "h2"}
    assert str(ledger.provider("rack-1")) == "rack-1: CUSTOM_WATT=3000"
    claim = racks.claim("train", "h1", "VCPU=2,CUSTOM_WATT=2000")
    assert claim.claim is not None and claim.claim.by_provider() == {
        "h1": ro.Amounts("VCPU=2"),
        "rack-1": ro.Amounts("CUSTOM_WATT=2000"),
    }
    with pytest.raises(ro.NoCandidates, match=r"free 1000 of 3000 \(train holds 2000\)"):
        racks.claim("hot", "h2", "VCPU=2,CUSTOM_WATT=2000")
    with pytest.raises(ro.NoCandidates, match="CUSTOM_WATT requested 1"):
        racks.claim("hot", "h3", "CUSTOM_WATT=1")
    assert not racks.update_available_resource() and not racks.drift()
    power.racks["rack-1"] = "CUSTOM_WATT=1500"
    report = racks.update_available_resource()
    assert report.changed == ("rack-1",)
    [finding] = report.findings
    assert finding.kind is FindingKind.OVER_CAPACITY and "train holds 2000" in str(finding)


def test_a_host_that_is_put_elsewhere_is_given_from_there(
    ledger: ro.Ledger, racks: ResourceTracker, power: Power
) -> None:
    ledger.change("h2", aggregates={"rack-1", "zone-a"})
    power.rack_of = {"h1": "rack-1", "h2": "rack-2", "h3": "rack-2"}
    assert set(racks.update_available_resource().changed) == {"h2", "h3", "rack-2"}
    assert ledger.provider("h2").aggregates == {"rack-2", "zone-a"}
    assert racks.claim("a", "h2", "VCPU=1,CUSTOM_WATT=2000").claim is not None
    power.racks = {"cage": "CUSTOM_WATT=5000"}
    power.rack_of = dict.fromkeys(("h1", "h2", "h3"), "cage")
    report = racks.update_available_resource()
    assert {*report.changed} == {"cage", "h1", "h2", "h3"} and not report.findings
    assert {one.name: len(one.members) for one in ledger.pools.list()} == {
        "rack-1": 0,
        "rack-2": 0,
        "cage": 3,
    }
    power.rack_of = {}
    assert {*racks.update_available_resource().changed} == {"h1", "h2", "h3"}
    assert ledger.provider("h1").aggregates == set()


def test_what_others_say_of_a_pool_stays(
    ledger: ro.Ledger, racks: ResourceTracker, power: Power
) -> None:
    ledger.change(
        "rack-1",
        inventories={"CUSTOM_WATT": 3000, "CUSTOM_SEAT": 5},
        traits={"MISC_SHARES_VIA_AGGREGATE", "CUSTOM_COOLED"},
        aggregates={"rack-1", "row"},
    )
    power.racks["rack-1"] = "CUSTOM_WATT=2500"
    assert racks.update_available_resource().changed == ("rack-1",)
    found = ledger.provider("rack-1")
    assert str(found.inventories) == "CUSTOM_SEAT=5,CUSTOM_WATT=2500"
    assert found.traits == {"MISC_SHARES_VIA_AGGREGATE", "CUSTOM_COOLED"}
    assert found.aggregates == {"rack-1", "row"}
    ledger.change("rack-1", traits=set())
    assert racks.update_available_resource().changed == ("rack-1",)
    assert "MISC_SHARES_VIA_AGGREGATE" in ledger.provider("rack-1").traits


@pytest.mark.parametrize(
    "wrong",
    [
        OSError("no meter"),
        {"rack-1": "CUSTOM_WATT=-1"},
        {"rack-1": "CUSTOM_MBIT=1"},
        {"h3": "CUSTOM_WATT=1"},
        {"": "CUSTOM_WATT=1"},
        ["rack-1"],
    ],
)
def test_a_plug_in_of_pools_that_fails_is_named_at_each_host_and_all_stays(
    ledger: ro.Ledger, racks: ResourceTracker, power: Power, wrong: Any
) -> None:
    racks.claim("train", "h1", "VCPU=1,CUSTOM_WATT=2000")
    before = [str(ledger.provider(name)) for name in ("h1", "h2", "h3", "rack-1")]
    right, power.racks = power.racks, wrong
    for _ in range(2):
        report = racks.update_available_resource()
        assert not report.changed
        assert {(one.subject, one.kind) for one in report.findings} == {
            (name, FindingKind.WARNING) for name in ("h1", "h2", "h3", "rack-1")
        }
        assert all("'Power'" in str(one) for one in report.findings)
    assert [str(ledger.provider(name)) for name in ("h1", "h2", "h3", "rack-1")] == before
    power.racks = right
    assert not racks.update_available_resource().findings


@pytest.mark.parametrize("wrong", [KeyError("h2"), "rack-9", 5])
def test_a_host_of_which_nobody_can_say_the_pool_keeps_it(
    ledger: ro.Ledger, racks: ResourceTracker, power: Power, wrong: Any
) -> None:
    power.rack_of["h2"] = wrong
    report = racks.update_available_resource()
    assert not report.changed and [one.subject for one in report.findings] == ["h2"]
    assert ledger.provider("h2").aggregates == {"rack-1"}


def test_the_driver_hears_nothing_of_pools(ledger: ro.Ledger, power: Power) -> None:
    class Strict(Agent):
        def get_available_resource(self, host: str) -> Any:
            self.asked.append(host)
            return super().get_available_resource(host)

        def statistics(self, host: str) -> Any:
            self.asked.append(host)
            return super().statistics(host)

        consumers = identity = statistics  # type: ignore[assignment]
        asked: list[str] = []

    agent = Strict(h1="VCPU=8")
    driver = ExtendedDriver(agent, [power])
    tracker = ResourceTracker(ledger, driver)
    assert "rack-1" in str(tracker.dry_run("rack-1"))  # whatever is asked first
    assert not tracker.update_available_resource().findings
    tracker.claim("hot", "rack-1", "CUSTOM_WATT=5")  # no driver accepts it
    assert driver.admit("rack-1", "hot", {}) is None
    assert not driver.is_renamed("rack-1", "rack-0")
    tracker.drift()
    assert {*agent.asked} == {"h1"}


def test_who_gives_the_same_class_to_a_host_is_told(ledger: ro.Ledger, power: Power) -> None:
    """The driver says watts of the host: that and the pool cannot both count."""
    hosts = Agent(h1="VCPU=8,CUSTOM_WATT=5", h3="VCPU=8")
    tracker = ResourceTracker(ledger, ExtendedDriver(hosts, [power]))
    report = tracker.update_available_resource()
    assert {one.kind for one in report.findings} == {FindingKind.INVALID_TREE}
    assert all("CUSTOM_WATT" in str(one) for one in report.findings)
    assert "h3" in report.changed


# --- what cannot be ---


@pytest.mark.parametrize(
    ("resources", "error", "said"),
    [
        ([Watts(), Power()], "DuplicateKey", "CUSTOM_WATT.*Watts and Power"),
        ([Watts(), Both()], "DuplicateKey", "CUSTOM_WATT.*Watts and Both"),
        ([Watts(), Watts()], "DuplicateKey", "Watts.*name of its own"),
        (["nowhere"], exceptions.PluginError, "nowhere"),
        ([object()], exceptions.PluginError, "no HostResource"),
    ],
)
def test_bad_input_is_refused_at_the_door(
    resources: Any, error: type[Exception] | str, said: str
) -> None:
    with raises_code(error, match=said):
        ExtendedDriver(Agent(box="VCPU=8"), resources)


# --- a distribution of its own ---


PROGRAM = """
import contextlib, io, json, os
import resource_objects as ro
from resource_objects.cli.main import main
from resource_objects.host.tracker import Driver, ResourceTracker
from resource_objects.host.tracker.extending import ExtendedDriver
from resource_objects.scheduler import RequestSpec, Scheduler

RESOURCES = ["one_database", "entitlement", "bandwidth", "power"]

class Lab(Driver):
    def hosts(self):
        return ["h1", "h2", "h3"]
    def get_available_resource(self, host):
        return "VCPU=8"

class Records:
    def __init__(self):
        self.rows = {"h1": {"hypervisor_hostname": "h1", "vcpus": 8, "vcpus_used": 1,
            "cpu_allocation_ratio": 1.0, "net_mbit": 11000, "net_mbit_used": 500,
            "net_mbit_allocation_ratio": 1.0}}
    def read(self, host):
        return self.rows.get(host)
    def consumers(self, host):
        return []
    def write(self, host, columns):
        self.rows[host].update(columns)

def refusal(action, *arguments, **said):
    try:
        return str(action(*arguments, **said))
    except ro.ResourceObjectsError as error:
        return str(error)

def shown(*words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["--database", URL, *words]) == 0
    return out.getvalue()

URL = f"sqlite:///{os.environ['SITE_HOSTS']}.db"
ledger, records = ro.connect(URL), Records()
tracker = ResourceTracker(ledger, ExtendedDriver(Lab(), RESOURCES), records=records)
"""

SITE = {
    "entitlement": {"total": 800, "ratio": 1.5},
    "racks": {
        "rack-1": {"watts": 3000, "reserved": 200, "hosts": ["h1", "h2"]},
        "rack-2": {"watts": 5000, "reserved": 0, "hosts": ["h3"]},
    },
}


@pytest.fixture
def site(run_with_plugins: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs a program at a site of three hosts, in two racks."""
    (tmp_path / "config.json").write_text(json.dumps(SITE))
    for host, speeds in {"h1": (1000, 10000), "h2": (1000,), "h3": (40000,)}.items():
        for number, speed in enumerate(speeds):
            card = tmp_path / "hosts" / host / "class" / "net" / f"eth{number}"
            card.mkdir(parents=True)
            (card / "speed").write_text(f"{speed}\n")
    monkeypatch.setenv("SITE_CONFIG", str(tmp_path / "config.json"))
    monkeypatch.setenv("SITE_HOSTS", str(tmp_path / "hosts"))
    return lambda program: run_with_plugins(PROGRAM + textwrap.dedent(program))


def test_a_distribution_adds_resources_that_are_tracked_and_claimed(site: Run) -> None:
    told = site("""
        report = tracker.update_available_resource()
        print(json.dumps({
            "findings": [str(one) for one in report.findings],
            "tracked": [str(ledger.provider(name)) for name in ("h1", "h2", "rack-1", "rack-2")],
            "pools": {one.name: sorted(one.members) for one in ledger.pools.list()},
            "claimed": str(tracker.claim("db-1", "h1", "VCPU=1,CUSTOM_SITE_DATABASE_SLOT=1,"
                "CUSTOM_SITE_CPU_ENTITLEMENT=150,CUSTOM_SITE_NET_MBIT=4000,CUSTOM_SITE_WATT=2000"
                ).claim),
            "second": refusal(tracker.claim, "db-2", "h1", "CUSTOM_SITE_DATABASE_SLOT=1"),
            "odd": refusal(tracker.claim, "vm", "h2", "CUSTOM_SITE_CPU_ENTITLEMENT=155"),
            "limit": refusal(tracker.claim, "vm", "h1", "CUSTOM_SITE_NET_MBIT=2000",
                limits="CUSTOM_SITE_NET_MBIT=6000"),
            "rack": refusal(tracker.claim, "vm", "h2", "VCPU=1,CUSTOM_SITE_WATT=900"),
            "elsewhere": str(tracker.claim("vm", "h3", "VCPU=1,CUSTOM_SITE_WATT=900").claim),
        }))
    """)
    assert told["findings"] == []
    assert told["tracked"] == [
        "h1: VCPU=8:used=1,CUSTOM_SITE_CPU_ENTITLEMENT=800:step_size=10:allocation_ratio=1.5,"
        "CUSTOM_SITE_DATABASE_SLOT=1:max_unit=1,CUSTOM_SITE_NET_MBIT=11000:used=500",
        "h2: VCPU=8,CUSTOM_SITE_CPU_ENTITLEMENT=800:step_size=10:allocation_ratio=1.5,"
        "CUSTOM_SITE_DATABASE_SLOT=1:max_unit=1,CUSTOM_SITE_NET_MBIT=1000",
        "rack-1: CUSTOM_SITE_WATT=3000:reserved=200",
        "rack-2: CUSTOM_SITE_WATT=5000",
    ]
    assert told["pools"] == {"rack-1": ["h1", "h2"], "rack-2": ["h3"]}
    assert "CUSTOM_SITE_WATT=2000 of rack-1" in told["claimed"]
    assert "CUSTOM_SITE_DATABASE_SLOT requested 1, free 0 of 1 (db-1 holds 1)" in told["second"]
    assert "requested 155" in told["odd"] and "10" in told["odd"]
    assert "requested 2000, free 1500 under the limit of 6000" in told["limit"]
    assert "rack-1: CUSTOM_SITE_WATT requested 900, free 800 of 2800" in told["rack"]
    assert "CUSTOM_SITE_WATT=900 of rack-2" in told["elsewhere"]


def test_a_distribution_adds_resources_that_are_filtered_and_weighed(site: Run) -> None:
    told = site("""
        tracker.update_available_resource()
        def selected(request, *, filters=(), weighers=(), **said):
            scheduler = Scheduler(ledger, filters=filters, weighers=weighers)
            try:
                [found] = scheduler.select_destinations(RequestSpec(request, **said), alternates=5)
            except ro.NoCandidates as refused:
                return str(refused).splitlines()
            return [found.host, *(one.host for one in found.alternates)]
        cpus, share = "VCPU=1", "VCPU=1,CUSTOM_SITE_CPU_ENTITLEMENT=600"
        batch = {"site_batch": {"projects": ["batch"], "percent": 50}}
        tracker.claim("hot", "h3", "VCPU=1,CUSTOM_SITE_WATT=3000")
        tracker.claim("db", "h2", "VCPU=1,CUSTOM_SITE_DATABASE_SLOT=1")
        tracker.claim("cpu", "h3", "CUSTOM_SITE_CPU_ENTITLEMENT=50")
        print(json.dumps({
            "headroom": selected(cpus, filters={"site_headroom": {"mbit": 20000}}),
            "headroom told": selected(cpus, filters={"site_headroom": {"mbit": 50000}}),
            "batch": selected(share, filters=batch, project="batch"),
            "batch told": selected(share.replace("600", "610"), filters=batch, project="batch"),
            "others": selected(share.replace("600", "1200"), filters=batch, project="web"),
            "database": selected(cpus + ",CUSTOM_SITE_DATABASE_SLOT=1"),
            "power": selected(cpus, weighers={"site_power_left": 1}),
            "cold": selected(cpus, weighers={"site_power_left": -1}),
            "bandwidth": selected(cpus, weighers={"free": {"CUSTOM_SITE_NET_MBIT": 1}}),
            "entitlement": selected(cpus, weighers={"free": {"CUSTOM_SITE_CPU_ENTITLEMENT": -1}}),
            "slots": selected(cpus, weighers={"free": {"CUSTOM_SITE_DATABASE_SLOT": -1}})[0],
        }))
    """)
    assert told["headroom"] == ["h3"]
    assert told["headroom told"][1] == "h2: has 1000 Mbit/s left, less than 50000 (site_headroom)"
    assert told["batch"] == ["h1", "h2"]
    said = "CUSTOM_SITE_CPU_ENTITLEMENT requested 610, free 600 under the limit of 600"
    assert f"h1: {said}" in told["batch told"][0]
    assert told["others"] == ["h1", "h2"]
    assert told["database"] == ["h1", "h3"]
    assert told["power"] == ["h1", "h2", "h3"] and told["cold"][0] == "h3"
    assert told["bandwidth"] == ["h3", "h1", "h2"]
    assert told["entitlement"][0] == "h3" and told["slots"] == "h2"


def test_a_distribution_adds_resources_that_are_shown_and_explained(site: Run) -> None:
    told = site("""
        tracker.update_available_resource()
        node = tracker.compute_node("h1")
        before = node.net_mbit, node.net_mbit_used
        tracker.claim("vm-1", "h1", "VCPU=1,CUSTOM_SITE_NET_MBIT=1500")
        used = tracker.update_usage("h1", "CUSTOM_SITE_NET_MBIT=250,VCPU=1")
        tracker.claim("db-1", "h1", "VCPU=1,CUSTOM_SITE_DATABASE_SLOT=1,"
            "CUSTOM_SITE_CPU_ENTITLEMENT=1200,CUSTOM_SITE_WATT=2500")
        def why(request):
            return str(ledger.snapshot().candidates(request).explain()).splitlines()[0]
        print(json.dumps({
            "node": [before, used.net_mbit_used, used.vcpus_used],
            "record": records.rows["h1"],
            "described": [(one.type, one.units) for one in map(ro.resource, [
                "CUSTOM_SITE_CPU_ENTITLEMENT", "CUSTOM_SITE_NET_MBIT", "CUSTOM_SITE_WATT"])],
            "usage": shown("usage", "h1"),
            "rack": shown("usage", "rack-1"),
            "why": [why(f"VCPU=1,{one}") for one in (
                "CUSTOM_SITE_DATABASE_SLOT=1", "CUSTOM_SITE_CPU_ENTITLEMENT=10",
                "CUSTOM_SITE_NET_MBIT=10000", "CUSTOM_SITE_WATT=2000")],
        }))
    """)
    assert told["node"] == [[11000, 500], 2250, 3]
    record = told["record"]
    assert (record["net_mbit_used"], record["vcpus_used"], record["net_mbit"]) == (2250, 4, 11000)
    assert told["described"] == [
        ["compute", "hundredths of a core"],
        ["network", "Mbit/s"],
        ["power", "W"],
    ]
    for line in (
        "CUSTOM_SITE_DATABASE_SLOT",
        "CUSTOM_SITE_CPU_ENTITLEMENT",
        "CUSTOM_SITE_NET_MBIT",
    ):
        assert line in told["usage"]
    assert "CUSTOM_SITE_WATT" in told["rack"] and "2500" in told["rack"]
    assert told["why"] == [
        "h1: CUSTOM_SITE_DATABASE_SLOT requested 1, free 0 of 1 (db-1 holds 1)",
        "h1: CUSTOM_SITE_CPU_ENTITLEMENT requested 10, free 0 of 1200 (db-1 holds 1200)",
        "h1: CUSTOM_SITE_NET_MBIT requested 10000, free 8750 of 11000 (vm-1 holds 1500, "
        "h1/unattributed holds 750)",
        "h1: rack-1: CUSTOM_SITE_WATT requested 2000, free 300 of 2800 (db-1 holds 2500)",
    ]


def test_a_plug_in_of_a_distribution_that_fails_is_named_and_holds_nothing_up(
    site: Run, tmp_path: Path
) -> None:
    told = site(f"""
        import pathlib, shutil
        site = pathlib.Path({str(tmp_path)!r})
        tracker.update_available_resource()
        tracker.claim("vm", "h2", "VCPU=1,CUSTOM_SITE_NET_MBIT=300,CUSTOM_SITE_WATT=100")
        shutil.rmtree(site / "hosts" / "h2")
        (site / "config.json").write_text('{{"entitlement": {{"total": 900, "ratio": 2}}}}')
        report = tracker.update_available_resource()
        print(json.dumps({{
            "findings": sorted([one.subject, one.kind, str(one.error)] for one in report.findings),
            "h2": str(ledger.provider("h2")),
            "rack": str(ledger.provider("rack-1")),
            "broken": refusal(ExtendedDriver, Lab(), ["broken"]),
            "none": refusal(ExtendedDriver, Lab(), ["none"]),
            "absent": refusal(ExtendedDriver, Lab(), ["gravity"]),
        }}))
    """)
    named = {(host, kind, error.split("'")[1]) for host, kind, error in told["findings"]}
    hosts = ("h1", "h2", "h3", "rack-1", "rack-2")
    assert named == {("h2", "warning", "bandwidth"), *((one, "warning", "power") for one in hosts)}
    assert all("KeyError" in text or "FileNotFound" in text for _, _, text in told["findings"])
    assert told["h2"] == (
        "h2: VCPU=8:used=1,CUSTOM_SITE_CPU_ENTITLEMENT=900:step_size=10:allocation_ratio=2,"
        "CUSTOM_SITE_DATABASE_SLOT=1:max_unit=1,CUSTOM_SITE_NET_MBIT=1000:used=300"
    )
    assert told["rack"] == "rack-1: CUSTOM_SITE_WATT=3000:reserved=200:used=100"
    assert "no licence server" in told["broken"] and "no HostResource" in told["none"]
    assert "no such plug-in" in told["absent"] and "bandwidth" in told["absent"]
