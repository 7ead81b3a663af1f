"""Fleets made from a seed, with everything that filters and weighers look at; and requests."""

from __future__ import annotations

import functools
import random

import resource_objects as ro
from resource_objects.host import partitions
from resource_objects.providers import ServerGroup
from resource_objects.providers.statistics import Statistic
from resource_objects.scheduler import RequestSpec

TRAITS = ["CUSTOM_A", "CUSTOM_B", "HW_CPU_X86_AVX2"]
AGGREGATES = ["rack0", "rack1", "rack2"]
LOAD = functools.partial(Statistic, "load")
BUILDS = functools.partial(Statistic, "failed_builds")
MODEL = functools.partial(Statistic, "cpu_info:vendor")


def ledger(seed):
    """Return a ledger of hosts of which little is alike, some used and some reported."""
    chance = random.Random(seed)
    found = ro.connect("memory://")
    names = [f"host{number}" for number in range(chance.randint(1, 9))]
    for name in names:
        found.sync(_host(chance, name))
    for number in range(chance.randint(0, 9)):
        for asked in chance.sample(["VCPU=1", "VCPU=2,MEMORY_MB=8", "PGPU=1", PART], 4):
            candidates = found.snapshot().candidates(asked, order="random", seed=number)
            if candidates:
                found.claim(f"job-{number}", candidates)
                break
    told = {}
    for name in names:
        values = [LOAD(chance.randint(0, 9)), BUILDS(chance.randint(0, 4))]
        values += [MODEL(chance.choice(["Intel", "AMD"]))]
        told[name] = chance.sample(values, chance.randint(0, 3))
        if name == names[0]:  # filters refuse a statistic that no host reports
            told[name] = values
    found.statistics.put(told, reported=chance.sample(names, chance.randint(0, len(names))))
    return found


PART = "CUSTOM_PGPU_THOUSANDTHS=300"


def _host(chance, name):
    own = {"VCPU": chance.randint(1, 9)}
    if chance.random() < 0.8:
        own["MEMORY_MB"] = chance.randint(8, 64)
    aggregates = chance.sample(AGGREGATES, chance.randint(0, 2))
    host = ro.Provider(name, own, traits=_some(chance, TRAITS), aggregates=aggregates)
    for number in range(chance.choice([0, 0, 1, 2, 3])):
        traits = _some(chance, TRAITS)
        partitions.thousandths(host.add(f"{name}/gpu{number}", "PGPU=1", traits=traits))
    return host


def _some(chance, every):
    return chance.sample(every, chance.choice([0, 0, 1, 2]))


def spec(seed):
    """Return what somebody asks."""
    chance = random.Random(seed)
    extra = {
        "capabilities:cpu_info:vendor": chance.choice(["Intel", "<or> Intel <or> AMD", "s!= AMD"]),
        "capabilities:vcpus_total": chance.choice([">= 4", "<= 3", "== 5"]),
        "capabilities:load": chance.choice(["<= 4", ">= 2", "!= 3"]),
        "load": chance.choice(["<= 4", ">= 2", "!= 3"]),
        "free_ram_mb": ">= 16",
        "hw:cpu_policy": "dedicated",
        "capabilities:nothing": "1",
        "ssd": "true",
        "aggregate_instance_extra_specs:size": chance.choice([">= 3", "<or> 2 <or> 5"]),
    }
    policy = chance.choice(["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"])
    most = chance.choice([1, 1, 2]) if policy == "anti-affinity" else 1
    members = [f"job-{number}" for number in range(9) if chance.random() < 0.4]
    group = ServerGroup("db", policy, members, most)
    return RequestSpec(
        chance.choice(["VCPU=1", "VCPU=2,MEMORY_MB=8", "PGPU=1,VCPU=1", "PGPU=2", PART]),
        project=chance.choice([None, "p1", "p2", "p3"]),
        zone=chance.choice([None, None, "north", "rack2", "other"]),
        only=chance.choice([None, None, ["host0", "host3"]]),
        forced=chance.choice([[], [], [], ["host1"]]),
        ignored=chance.choice([[], ["host2", "nobody"]]),
        tried=chance.choice([{}, {"host3": "no firmware"}]),
        image_traits=_some(chance, TRAITS),
        extra_specs=dict(chance.sample(list(extra.items()), chance.choice([0, 1, 1, 2, 3]))),
        group=chance.choice([None, group, group]),
    )


#: By name: settings with which a filter is worth comparing.
FILTERS = {
    "hosts": {},
    "zones": {"zones": {"north": ["rack0", "rack1"]}, "default": "other"},
    "tenants": {"tenants": {"rack0": ["p1"], "rack1": ["p1", "p2"]}, "confined": True},
    "isolated": {"traits": {"rack1": ["CUSTOM_A"], "rack2": ["HW_CPU_X86_AVX2"]}},
    "aggregate_metadata": {
        "metadata": {"rack0": {"ssd": "true", "size": "3"}, "rack1": {"ssd": "no", "size": "5"}}
    },
    "aggregate_ratios": {"ratios": {"rack0": {"VCPU": "0.5"}}},
    "capabilities": {},
    "affinity": {},
    "statistics": {"conditions": {"load": "<= 5", "failed_builds": "<= 3"}},
    "reported": {"within": 100},
}
WORKLOAD = {"VCPU=2,PGPU=1": 3, PART: 2, "CUSTOM_PGPU_THOUSANDTHS=500,VCPU=1": 1, "VCPU=4": 1}
WEIGHERS = {
    "free": {"VCPU": 1, "MEMORY_MB": -0.5},
    "devices": {},
    "statistics": {"weights": {"load": -1, "failed_builds": 2}, "missing": 7},
    "traits": {"CUSTOM_A": 2, "CUSTOM_B": -1},
    "soft_affinity": {},
    "fragmentation": {
        "workload": {**WORKLOAD, "PGPU=2": 1},
        "part": "CUSTOM_PGPU_THOUSANDTHS",
    },
}
