"""Each weigher by its table: in which order hosts come."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host import partitions
from resource_objects.providers import ServerGroup
from resource_objects.providers.statistics import Statistic
from resource_objects.scheduler import RequestSpec, Scheduler
from resource_objects.scheduler.pipeline import Pipeline
from resource_objects.scheduler.states import HostStates
from resource_objects.scheduler.weighers.fragmentation import Task, Workload, fragmentation, growth
from resource_objects.testing.refusals import raises_code


@pytest.fixture
def lab():
    """Three hosts: one with two GPUs and much memory, one with one GPU, one with none."""
    with ro.connect("memory://") as ledger:
        a = ro.Provider("a", "VCPU=4,MEMORY_MB=64", traits=["CUSTOM_A"])
        a.add("a/0", "PGPU=1")
        a.add("a/1", "PGPU=1")
        b = ro.Provider("b", "VCPU=8,MEMORY_MB=16")
        b.add("b/0", "PGPU=1", traits=["CUSTOM_B"])
        ledger.sync(a, b, ro.Provider("c", "VCPU=6,MEMORY_MB=32"))
        ledger.claim("db-1", {"c": "VCPU=1"})
        yield ledger


def order(ledger, weighers, asked="VCPU=1", **said):
    """Return the hosts, the best first."""
    spec = RequestSpec(asked, **said)
    (found,) = Scheduler(ledger, weighers=weighers).select_destinations(spec, alternates=5)
    return found.host + "".join(one.host for one in found.alternates)


@pytest.mark.parametrize(
    ("weighers", "said", "expected"),
    [
        ((), {}, "abc"),
        ({"free": {"VCPU": 1}}, {}, "bca"),
        ({"free": {"VCPU": -1}}, {}, "acb"),
        ({"free": {"VCPU": 1, "multiplier": -1}}, {}, "acb"),
        ({"free": {"MEMORY_MB": 1}}, {}, "acb"),
        ({"free": {"VCPU": 1, "MEMORY_MB": 2}}, {}, "acb"),
        ({"devices": {}}, {}, "cba"),
        ({"devices": {}}, {"asked": "PGPU=1"}, "ba"),
        ({"traits": {"CUSTOM_B": 1}}, {}, "bac"),
        ({"traits": {"CUSTOM_A": -1, "CUSTOM_B": 1}}, {}, "bca"),
        ({"soft_affinity": 1}, {"group": ServerGroup("db", "soft-affinity", ["db-1"])}, "cab"),
        ({"soft_affinity": 1}, {"group": ServerGroup("db", "soft-anti-affinity", ["db-1"])}, "abc"),
        ({"free": {"VCPU": 1, "multiplier": 0}}, {}, "abc"),
        ({"devices": 2, "traits": {"CUSTOM_A": 1, "multiplier": 1}}, {}, "cab"),
        ({"devices": 1, "traits": {"CUSTOM_A": 1, "multiplier": 2}}, {}, "acb"),
    ],
)
def test_a_weigher_by_its_table(lab, weighers, said, expected):
    assert order(lab, weighers, **said) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"weights": {"load": 1}}, "bac"),
        ({"weights": {"load": -1}}, "cab"),
        ({"weights": {"load": 0}}, "abc"),
        ({"weights": {"load": 1, "builds": 3}}, "abc"),
        ({"weights": {"builds": -1}, "missing": 1}, "bca"),
        ({"weights": {"builds": -1}, "missing": 1, "multiplier": -1}, "acb"),
    ],
)
def test_statistics_by_their_table(lab, settings, expected):
    load = functools.partial(Statistic, "load")
    builds = functools.partial(Statistic, "builds")
    told = {"a": [load(2.5), builds(2)], "b": [load(7), builds(0)], "c": [load(1)]}
    if "missing" not in settings:
        told["c"].append(builds(0))
    lab.statistics.put(told)
    assert order(lab, {"statistics": settings}) == expected


def test_an_order_stands_behind_weights_and_preferred_traits_before_them(lab):
    scheduler = Scheduler(lab, weighers={"devices": {}}, order=ro.Order(preferred={"CUSTOM_B": 1}))
    (found,) = scheduler.select_destinations("VCPU=1", alternates=2)
    assert [found.host, *(one.host for one in found.alternates)] == ["b", "c", "a"]
    scheduler = Scheduler(lab, weighers={"soft_affinity": 1}, order="spread")
    (found,) = scheduler.select_destinations("VCPU=1", alternates=2)
    assert [found.host, *(one.host for one in found.alternates)] == ["b", "a", "c"]


@pytest.mark.parametrize("name", ["devices", "soft_affinity", "fragmentation"])
def test_a_multiplier_below_zero_is_refused_where_it_makes_no_sense(name):
    settings = {"multiplier": -1}
    if name == "fragmentation":
        settings["workload"] = {"PGPU=1": 1}
    with raises_code("InvalidField", match=f"multiplier of {name}: got -1"):
        Pipeline.of((), {name: settings})


# --- fragmentation --------------------------------------------------------------------------------

PART = "CUSTOM_PGPU_THOUSANDTHS"


def gpus(name, used, cpus=8):
    """Return a host with a GPU for each figure, so many thousandths of which are used."""
    host = ro.Provider(name, {"VCPU": cpus})
    for number in range(len(used)):
        partitions.thousandths(host.add(f"{name}/{number}", "PGPU=1"))
    return host


def weights(ledger, asked, workload):
    pipeline = Pipeline.of((), {"fragmentation": {"workload": workload, "part": PART}})
    hosts = HostStates(ledger.snapshot().fleet)
    return pipeline.weighers[0].weigher.weights(hosts, RequestSpec(asked)).tolist()


@pytest.mark.parametrize(
    ("asked", "workload", "expected"),
    [
        # 0.5 of GPU 0: what is left of it (0.2) is lost to halves; of GPU 1: 0.5 serves a half
        (f"{PART}=500", {f"{PART}=500": 1}, [0.0]),
        # to who wants whole ones, 0.7 of GPU 0 is lost already; taking 0.5 of that loses less
        (f"{PART}=500", {"PGPU=1": 1}, [500.0]),
        # a whole one leaves 0.7, of which nothing is lost to halves
        ("PGPU=1", {f"{PART}=500": 1}, [0.0]),
        # and all of which is lost to who wants a whole one
        ("PGPU=1", {"PGPU=1": 1}, [0.0]),
        # who asks for no device loses all that is free of them, and that becomes less
        (f"{PART}=500", {"VCPU=1": 1}, [500.0]),
        # eight CPUs: nobody who needs one can have what is left
        ("VCPU=8", {f"VCPU=1,{PART}=500": 1}, [-1700.0]),
        # half of the tasks lose nothing, half of them as above
        ("VCPU=8", {f"VCPU=1,{PART}=500": 1, f"{PART}=500": 1}, [-850.0]),
        # two whole ones are not there
        ("PGPU=2", {"PGPU=1": 1}, [-1700.0]),
    ],
)
def test_fragmentation_by_the_definition_of_the_paper(asked, workload, expected):
    with ro.connect("memory://") as ledger:
        ledger.sync(gpus("host0", [300, 0]))
        ledger.claim("first", {"host0/0": f"{PART}=300"})
        assert weights(ledger, asked, workload) == pytest.approx(expected)


def slow_fragmentation(counts: list[int], devices: list[int], tasks: list[Task]) -> float:
    """Return the fragmentation of one host, by the definition."""
    total = sum(tasks[n].weight for n in range(len(tasks)))
    found = 0.0
    for one in tasks:
        free = [left for left in devices if left > 0]
        enough = sum(left >= one.size for left in free)
        has_cpus = counts[0] >= one.counts["cpu"] or not one.counts["cpu"]
        holds = one.devices and enough >= one.devices and has_cpus
        lost = sum(left for left in free if left < one.size) if holds else sum(free)
        found += one.weight / total * lost
    return found


tasks_of = st.builds(
    lambda cpu, kind, weight: Task({"cpu": cpu}, *kind, float(weight)),
    st.integers(0, 4),
    st.sampled_from([(0, 0), (3, 1), (5, 1), (10, 1), (10, 2)]),
    st.integers(1, 5),
)
hosts_of = st.tuples(
    st.integers(-1, 6), st.lists(st.sampled_from([-1, 0, 2, 4, 5, 9, 10]), min_size=3, max_size=3)
)


@given(st.lists(hosts_of, min_size=1, max_size=4), st.lists(tasks_of, min_size=1), tasks_of)
def test_fragmentation_of_all_hosts_at_once_is_that_of_each(
    hosts: list[tuple[int, list[int]]], usual: list[Task], task: Task
) -> None:
    counts = np.array([[cpu] for cpu, _ in hosts])
    devices = np.array([sorted(some, reverse=True) for _, some in hosts])
    arrays = Workload.of(usual, ("cpu",))
    found = fragmentation(counts, devices, arrays)
    grown, device = growth(task, counts, devices, arrays, 10)
    for number in range(len(hosts)):
        here, cpus = devices[number].tolist(), counts[number].tolist()
        before = slow_fragmentation(cpus, here, usual)
        assert found[number] == pytest.approx(before)
        if task.devices == 1 and task.size < 10:
            ways = {
                place: [left - task.size * (n == place) for n, left in enumerate(here)]
                for place, left in enumerate(here)
                if left >= task.size
            }
        else:
            whole = [place for place, left in enumerate(here) if left == 10][: task.devices]
            after = [0 if n in whole else left for n, left in enumerate(here)]
            ways = {-1: after} if len(whole) == task.devices else {}
        then = [cpus[0] - task.counts["cpu"]]
        least = {
            place: slow_fragmentation(then, way, usual) - before for place, way in ways.items()
        }
        assert grown[number] == pytest.approx(min(least.values(), default=float("inf")))
        if least:
            assert least[int(device[number])] == pytest.approx(grown[number])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"workload": {}},
        {"workload": {"PGPU=1": -1}},
        {"workload": {"PGPU=1": 0}},
        {"workload": {f"{PART}=1500": 1}, "part": PART},
        {"workload": {f"{PART}=500,PGPU=1": 1}, "part": PART},
        {"workload": {"PGPU=1": 1}, "parts": 0},
    ],
)
def test_a_workload_that_cannot_be(settings):
    with pytest.raises(exceptions.InvalidInput):
        Pipeline.of((), {"fragmentation": settings})
