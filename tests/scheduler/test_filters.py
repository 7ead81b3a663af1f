"""Each filter by its table: whom it passes, and what it says of the others."""

from __future__ import annotations

import datetime
import functools
from decimal import Decimal

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers import ServerGroup
from resource_objects.providers.statistics import Statistic
from resource_objects.scheduler import RequestSpec, Scheduler
from resource_objects.scheduler.filters.operators import ValueCondition
from resource_objects.scheduler.pipeline import Pipeline
from resource_objects.scheduler.states import HostStates, Reports
from resource_objects.testing.refusals import raises_code
from tests.scheduler import fleets


@pytest.fixture
def lab():
    with ro.connect("memory://") as ledger:
        ledger.sync(
            ro.Provider("a", "VCPU=8,MEMORY_MB=64", aggregates=["r0", "fast"]),
            ro.Provider("b", "VCPU=4", aggregates=["r0"], traits=["CUSTOM_LICENCE"]),
            ro.Provider("c", "VCPU=2", aggregates=["r1"]),
            ro.Provider("d", "VCPU=2"),
        )
        ledger.claim("db-1", {"a": "VCPU=1"})
        ledger.claim("db-2", {"b": "VCPU=1"})
        yield ledger


def said(ledger, name, settings, **asked):
    """Return what a filter says of each host."""
    hosts = HostStates(ledger.snapshot().fleet, Reports(ledger))
    (one,) = (one for one in Pipeline.of({name: settings}).filters if one.name == name)
    spec = RequestSpec("VCPU=1", **asked)
    return [one.filter.refuses(host, spec) for host in hosts.values()]


ZONES = {"zones": {"north": ["r0"], "south": ["r1"]}}


@pytest.mark.parametrize(
    ("name", "settings", "asked", "expected"),
    [
        ("hosts", {}, {}, [None] * 4),
        ("hosts", {}, {"only": ["a", "c"]}, [None, "is not one of the", None, "is not one of the"]),
        ("hosts", {}, {"forced": ["b"]}, ["is not the", None, "is not the", "is not the"]),
        ("hosts", {}, {"ignored": ["a"]}, ["is to be ignored", None, None, None]),
        ("hosts", {}, {"forced": ["b", "nobody"], "ignored": ["b"]}, ["is not"] + ["is"] * 3),
        (
            "hosts",
            {},
            {"tried": {"b": "no firmware"}, "only": ["b", "c"]},
            ["is not one of", "refused it already: no firmware", None, "is not one of"],
        ),
        ("zones", ZONES, {}, [None] * 4),
        ("zones", ZONES, {"zone": "north"}, [None, None, "is not in zone north"] * 1 + ["is not"]),
        ("zones", ZONES, {"zone": "fast"}, [None, "is not", "is not", "is not"]),
        ("zones", {**ZONES, "default": "rest"}, {"zone": "rest"}, ["is not"] * 3 + [None]),
        (
            "tenants",
            {"tenants": {"r0": ["p"]}},
            {},
            ["is reserved for the projects of r0"] * 2 + [None] * 2,
        ),
        ("tenants", {"tenants": {"r0": ["p"]}}, {"project": "p"}, [None] * 4),
        (
            "tenants",
            {"tenants": {"r0": ["p"], "fast": ["q"]}},
            {"project": "q"},
            [None, "is reserved for the projects of r0", None, None],
        ),
        (
            "tenants",
            {"tenants": {"r0": ["p"]}, "confined": True},
            {"project": "p"},
            [None, None, "is not of r0, where p has to be", "is not of r0, where p has to be"],
        ),
        (
            "isolated",
            {"traits": {"r0": ["CUSTOM_LICENCE"]}},
            {},
            ["is reserved for requests with the traits of r0"] * 2 + [None] * 2,
        ),
        (
            "isolated",
            {"traits": {"r0": ["CUSTOM_LICENCE"]}},
            {"image_traits": ["CUSTOM_LICENCE"]},
            [None] * 4,
        ),
        (
            "isolated",
            {"traits": {"r0": ["CUSTOM_LICENCE"], "fast": ["HW_CPU_X86_AVX2"]}},
            {"image_traits": ["CUSTOM_LICENCE"]},
            ["is reserved for requests with the traits of fast"] + [None] * 3,
        ),
        ("isolated", {"traits": {"r0": []}}, {}, [None] * 4),
        ("aggregate_ratios", {"ratios": {"r0": {"VCPU": "0.5"}}}, {}, [None] * 4),
        (
            "aggregate_metadata",
            {"metadata": {"r0": {"ssd": "no"}, "fast": {"ssd": "true"}}},
            {"extra_specs": {"ssd": "true"}},
            [None, "requested ssd true, its aggregates have no"]
            + ["requested ssd true, its aggregates do not have it"] * 2,
        ),
        (
            "capabilities",
            {},
            {"extra_specs": {"capabilities:vcpus_total": ">= 4", "other:thing": "x"}},
            [
                None,
                None,
                "requested vcpus_total >= 4, it is 2",
                "requested vcpus_total >= 4, it is 2",
            ],
        ),
        (
            "capabilities",
            {},
            {"extra_specs": {"free_ram_mb": "<= 8"}},
            ["requested free_ram_mb <= 8, it is 64", None, None, None],
        ),
        (
            "capabilities",
            {},
            {"extra_specs": {"capabilities:model": "big"}},
            ["requested model big, it does not report it"] * 4,
        ),
        (
            "affinity",
            {},
            {"group": ServerGroup("db", "anti-affinity", ["db-1", "db-2"])},
            [
                "db-1 of group db is there already",
                "db-2 of group db is there already",
                None,
                None,
            ],
        ),
        (
            "affinity",
            {},
            {"group": ServerGroup("db", "anti-affinity", ["db-1", "db-2"], max_per_host=2)},
            [None] * 4,
        ),
        (
            "affinity",
            {},
            {"group": ServerGroup("db", "affinity", ["db-1"])},
            [None] + ["the others of group db are elsewhere"] * 3,
        ),
        ("affinity", {}, {"group": ServerGroup("db", "affinity", ["db-9"])}, [None] * 4),
        ("affinity", {}, {"group": ServerGroup("db", "soft-affinity", ["db-1"])}, [None] * 4),
    ],
)
def test_a_filter_by_its_table(lab, name, settings, asked, expected):
    found = said(lab, name, settings, **asked)
    assert len(found) == len(expected)
    for one, wanted in zip(found, expected, strict=True):
        assert (one is None) is (wanted is None)
        assert one is None or one.startswith(wanted)


LOAD = functools.partial(Statistic, "load")


def test_statistics_and_when_a_host_was_heard_of(lab):
    lab.statistics.put({"a": [LOAD(12.5)], "b": [LOAD(99)]}, reported=["a", "b"])
    settings = {"conditions": {"load": "<= 80"}}
    assert said(lab, "statistics", settings) == [
        None,
        "load 99, has to be <= 80",
        "does not report load, which has to be <= 80",
        "does not report load, which has to be <= 80",
    ]
    assert said(lab, "statistics", {**settings, "unknown": "pass"})[2:] == [None, None]
    assert said(lab, "reported", {}) == [None, None, "never reported", "never reported"]
    assert said(lab, "reported", {"unknown": "pass"}) == [None] * 4


def test_a_host_that_was_silent_is_refused_by_the_clock_of_the_ledger(lab, monkeypatch):
    lab.statistics.put({}, reported=["a"])
    now = lab.now()
    monkeypatch.setattr(lab, "now", lambda: now + datetime.timedelta(seconds=500))
    assert said(lab, "reported", {"within": 600, "unknown": "pass"}) == [None] * 4
    (told, *_) = said(lab, "reported", {})
    assert told == "reported 500 s ago, has to within 180 s"


def test_a_statistic_that_no_host_reports_is_an_error_that_names_those_that_are(lab):
    lab.statistics.put({"a": [LOAD(1)]})
    for kind in (
        {"filters": {"statistics": {"conditions": {"lod": "<= 3"}}}},
        {"weighers": {"statistics": {"weights": {"lod": 1}}}},
    ):
        with pytest.raises(
            exceptions.FilterFailed, match="'lod', expected one that a host reports: load"
        ):
            Scheduler(lab, **kind).select_destinations("VCPU=1")


def test_a_weigher_that_misses_a_statistic_says_of_which_host(lab):
    lab.statistics.put({"a": [LOAD(1)], "b": [LOAD(5)]})
    with pytest.raises(exceptions.FilterFailed, match="statistics failed on c"):
        Scheduler(lab, weighers={"statistics": {"weights": {"load": 1}}}).select_destinations(
            "VCPU=1"
        )
    weighers = {"statistics": {"weights": {"load": 1}, "missing": 0}}
    (found,) = Scheduler(lab, weighers=weighers).select_destinations("VCPU=1")
    assert found.host == "b"


@pytest.mark.parametrize(
    ("text", "met", "not_met"),
    [
        ("= 5", ["5", "6.5", 7], ["4.9", "five", ""]),
        (">= 5", ["5", "1e3"], ["4", "NaN"]),
        ("== 0.1", ["0.10"], ["0.1000001"]),
        ("!= 5", ["4"], ["5.0", "five"]),
        ("<= 5", ["5", "-1"], ["5.01"]),
        ("s== a", ["a"], ["b", "a "]),
        ("s!= a", ["b"], ["a"]),
        ("s< b", ["a"], ["b", "c"]),
        ("s<= b", ["b"], ["c"]),
        ("s> b", ["c"], ["b"]),
        ("s>= 5", ["5", "6"], ["10"]),
        ("<in> avx", ["sse avx2"], ["sse"]),
        ("<all-in> aes avx", ["avx aes"], ["avx"]),
        ("<or> kvm <or> xen", ["kvm", "xen"], ["qemu", "<or>"]),
        ("true", ["true"], ["True", True]),
        ("a b", ["a b"], ["a"]),
    ],
)
def test_every_operator(text, met, not_met):
    condition = ValueCondition.parse(text)
    assert [one for one in [*met, *not_met] if condition.is_met(one)] == met


@pytest.mark.parametrize("text", [">= five", ">=", "<or>", "<in>", "< 5", "=> 5", "== NaN"])
def test_a_condition_that_cannot_be(text):
    with raises_code("InvalidText", match="condition"):
        ValueCondition.parse(text)


@pytest.mark.law(4)
def test_ratios_of_aggregates_bound_the_claim_as_a_limit(lab):
    scheduler = Scheduler(
        lab,
        filters={"aggregate_ratios": {"ratios": {"r0": {"VCPU": "0.5"}, "fast": {"VCPU": "0.4"}}}},
    )
    (found,) = scheduler.select_destinations(RequestSpec("VCPU=2", only=["a"]), consumers=["x"])
    assert (found.limits, found.host) == ({"VCPU": 3}, "a")
    with pytest.raises(exceptions.NoCandidates) as refused:
        scheduler.select_destinations(RequestSpec("VCPU=1", only=["a"]), consumers=["y"])
    assert "VCPU requested 1, free 0 under the limit of 3 (x holds 2, db-1 holds 1)" in str(
        refused.value
    )
    (found,) = scheduler.select_destinations(RequestSpec("VCPU=1", only=["b"]), consumers=["y"])
    assert found.limits == {"VCPU": 2}


@pytest.mark.law(7)
def test_ratios_of_aggregates_are_floors_of_what_is_there_for_every_host_of_any_fleet():
    """The smallest ratio of a host's aggregates, of its total less what is reserved."""
    ratios = {"rack0": {"VCPU": "1.25"}, "rack1": {"VCPU": "0.5", "MEMORY_MB": "0.333333"}}
    bounded = 0
    for seed in range(30):
        hosts = HostStates(fleets.ledger(seed).snapshot().fleet)
        (one,) = (o for o in Pipeline.of({"aggregate_ratios": {"ratios": ratios}}).filters[-1:])
        limits = one.filter.limits(hosts, RequestSpec("VCPU=1"))
        for host in hosts.values():
            for kind in ("VCPU", "MEMORY_MB"):
                own = host.inventories[kind]
                said = [
                    int((own.total - own.reserved) * Decimal(by[kind]))
                    for name, by in ratios.items()
                    if name in host.aggregates and kind in by
                ]
                assert limits[kind][host.tree] == min(said, default=MAX_AMOUNT)
                bounded += bool(said)
    assert bounded > 30


def test_who_asks_for_the_trait_itself_is_let_in_where_hosts_are_kept_for_it(lab):
    filters = {"isolated": {"traits": {"r0": ["CUSTOM_LICENCE"]}}}
    scheduler = Scheduler(lab, filters=filters)
    (found,) = scheduler.select_destinations("VCPU=1")
    assert found.host == "c"
    (found,) = scheduler.select_destinations(ro.Request("VCPU=1", required=["CUSTOM_LICENCE"]))
    assert found.host == "b"
    spec = RequestSpec("VCPU=1", image_traits=["CUSTOM_LICENCE"])
    (found,) = scheduler.select_destinations(spec)  # of a the image wants what it has not
    assert found.host == "b"
    with pytest.raises(exceptions.NoCandidates) as refused:
        scheduler.select_destinations(RequestSpec("VCPU=1", forced=["a"]))
    assert "a: is reserved for requests with the traits of r0 (isolated)" in str(refused.value)


def test_hosts_that_are_out_of_service_are_never_selected_also_if_they_are_forced(lab):
    lab.disable("a", reason="fan")
    assert Scheduler(lab).select_destinations("VCPU=1")[0].host == "b"
    with pytest.raises(exceptions.NoCandidates) as refused:
        Scheduler(lab).select_destinations(RequestSpec("VCPU=1", forced=["a"]), consumers=["x"])
    assert "a: disabled" in str(refused.value) and "fan" in str(refused.value)
    assert "x" not in {one.name for one in lab.consumers()}


def test_members_of_a_group_that_are_placed_together_are_apart_and_together(lab):
    for policy, hosts in (("anti-affinity", ["a", "b", "c"]), ("affinity", ["a", "a", "a"])):
        spec = RequestSpec("VCPU=1", group=ServerGroup("web", policy))
        found = Scheduler(lab).select_destinations(spec, consumers=["w1", "w2", "w3"])
        assert [one.host for one in found] == hosts
        lab.release_all(["w1", "w2", "w3"])


def test_soft_policies_prefer_and_refuse_nobody(lab):
    for policy, hosts in (
        ("soft-anti-affinity", ["a", "b", "c", "d", "a"]),
        ("soft-affinity", ["a", "a", "a", "a", "a"]),
    ):
        spec = RequestSpec("VCPU=1", group=ServerGroup("web", policy))
        found = Scheduler(lab).select_destinations(spec, 5)
        assert [one.host for one in found] == hosts


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("zones", {"zones": {"north": "r0"}}),
        ("tenants", {"tenants": ["r0"]}),
        ("isolated", {"traits": {"r0": ["NO_TRAIT"]}}),
        ("aggregate_metadata", {"metadata": {"r0": "ssd"}}),
        ("aggregate_ratios", {"ratios": {"r0": {"VCPU": "-1"}}}),
        ("statistics", {"conditions": {"load": "< 3"}}),
        ("statistics", {"conditions": {"load": "<= 3"}, "unknown": "maybe"}),
        ("reported", {"within": 0}),
    ],
)
def test_settings_that_cannot_be(name, settings):
    with pytest.raises(exceptions.InvalidInput):
        Pipeline.of({name: settings})


def test_a_host_is_named_by_its_name_only():
    host = ro.Provider("h0", "VCPU=8")
    host.add("h0/gpu", "PGPU=1")
    with ro.connect("memory://") as ledger:
        ledger.sync(host, ro.Provider("h1", "VCPU=8"))
        hosts = HostStates(ledger.snapshot().fleet)
    (uuid,) = (hosts.fleet.uuids[place] for place in hosts.fleet.roots[1:])
    assert hosts.named(["h1", "h0/gpu", "unknown"]).tolist() == [False, True]
    assert hosts.named([uuid]).tolist() == hosts.named([]).tolist() == [False, False]
