"""The stages of a search: what each part of a request left of the hosts, as data."""

from __future__ import annotations

import itertools
import json
import random

import pytest

import resource_objects as ro
from resource_objects.providers import Provider
from resource_objects.requests import Request
from resource_objects.search import Snapshot
from resource_objects.search.answer import Stage
from tests.support import fleets
from tests.support.columns import columns_of
from tests.support.lengths import some


def lab(*gpus: int) -> Snapshot:
    roots = []
    for number, count in enumerate(gpus):
        host = Provider(f"host{number}", "VCPU=8", traits=["CUSTOM_A"] * (number == 0))
        for gpu in range(count):
            host.add(f"host{number}/gpu{gpu}", "PGPU=1", traits=["CUSTOM_H100"])
        roots.append(host)
    return Snapshot(columns_of(roots))


def told(snapshot: Snapshot, request: Request) -> list[str]:
    return [str(stage) for stage in snapshot.candidates(request, limit=None).explain().stages]


def test_every_part_of_a_request_is_a_stage():
    """
    host0            VCPU=8  CUSTOM_A
    host1            VCPU=8
    └── host1/gpu0   PGPU=1  CUSTOM_H100
    host2            VCPU=8
    ├── host2/gpu0   PGPU=1  CUSTOM_H100
    └── host2/gpu1   PGPU=1  CUSTOM_H100
    """
    request = Request("VCPU=4", root_forbidden=["CUSTOM_A"], group_policy="isolate")
    for suffix in "12":
        request = request.with_group(suffix, "PGPU=1", required=["CUSTOM_H100"])
    assert told(lab(0, 1, 2), request) == [
        "root trait forbidden CUSTOM_A: 3 -> 2 hosts",
        "no inventory VCPU (requested 4, most free 8): 2 -> 2 hosts",
        "capacity VCPU (requested 4, most free 8): 2 -> 2 hosts",
        "group 1, 2: no inventory PGPU (requested 1, most free 1): 2 -> 2 hosts",
        "group 1, 2: trait missing PGPU CUSTOM_H100: 2 -> 2 hosts",
        "group 1, 2: capacity PGPU (requested 1, most free 1): 2 -> 2 hosts",
        "groups: 2 -> 1 hosts",
        "together: 1 -> 1 hosts",
    ]


@pytest.mark.parametrize(
    ("request_", "emptied"),
    [
        (Request("VCPU=9"), ("", "capacity", "VCPU", None, 9, 8)),
        (Request("DISK_GB=1"), ("", "no_inventory", "DISK_GB", None, 1, 0)),
        (Request("VCPU=1", required=["CUSTOM_B"]), ("", "trait_missing", "VCPU", "CUSTOM_B")),
        (Request("VCPU=1", forbidden=["CUSTOM_A"]), None),
        (Request("VCPU=1", member_of=["r"]), ("", "aggregate_missing", "VCPU", "r")),
        (
            Request("VCPU=1").with_group("1", "PGPU=2"),
            ("1", "capacity", "PGPU", None, 2, 1),
        ),
        (
            Request("VCPU=1").with_group("1", "PGPU=1", forbidden=["CUSTOM_H100"]),
            ("1", "trait_forbidden", "PGPU", "CUSTOM_H100"),
        ),
        (
            Request("VCPU=1", group_policy="none", groups=[])
            .with_group("1", "PGPU=1")
            .with_group("2", "PGPU=1")
            .with_group("3", "PGPU=1"),
            (None, "groups", None, None),
        ),
    ],
    ids=str,
)
def test_the_stage_that_left_nobody_is_named(request_, emptied):
    found = lab(0, 1, 2).candidates(request_).explain().emptied
    if emptied is None:
        assert found is None
        return
    assert isinstance(found, Stage)
    shown = (
        found.group,
        found.rule.value,
        found.resource,
        found.label,
        found.requested,
        found.most,
    )
    assert shown == (*emptied, *[None] * (6 - len(emptied)))
    assert found.before > 0 and found.after == 0


def test_who_has_a_trait_and_no_room_is_a_stage_of_its_own():
    """
    host0
    ├── host0/gpu0   PGPU=1 used 1  CUSTOM_H100
    └── host0/gpu1   PGPU=1
    """
    host = Provider("host0")
    host.add("host0/gpu0", "PGPU=1:used=1", traits=["CUSTOM_H100"])
    host.add("host0/gpu1", "PGPU=1")
    asked = Request("PGPU=1", required=["CUSTOM_H100"])
    assert told(Snapshot(columns_of([host])), asked)[2:4] == [
        "trait missing PGPU CUSTOM_H100: 1 -> 1 hosts",
        "capacity PGPU CUSTOM_H100 (requested 1, most free 0): 1 -> 0 hosts",
    ]


def test_devices_that_may_share_an_amount_are_summed_as_in_the_answer():
    """
    host0                                   host1
    ├── host0/gpu0 to gpu2   PGPU=1         └── host1/gpu0   PGPU=2
    └── host0/gpu3           PGPU=1 disabled
    """
    hosts = [Provider("host0"), Provider("host1")]
    for number in range(4):
        hosts[0].add(f"host0/gpu{number}", "PGPU=1")
    hosts[1].add("host1/gpu0", "PGPU=2")
    with ro.connect("memory://") as ledger:
        ledger.sync(*hosts)
        ledger.disable("host0/gpu3", reason="broken")
        explanation = ledger.snapshot().candidates("PGPU=4").explain()
    assert explanation.answer.startswith("no host has PGPU=4 in service free, the most is 3 of ")
    figures = {str(one.rule): (one.requested, one.most) for one in explanation.stages if one.most}
    assert figures == {"no_inventory": (4, 3), "capacity": (4, 3)}


@pytest.mark.parametrize("start", some(range(0, 400, 100), 2))
def test_no_stage_leaves_more_and_the_last_leaves_those_that_are_found(start):
    for seed in range(start, start + 100):
        chance = random.Random(seed)
        roots = fleets.fleet(chance, shares=seed % 2 == 0)
        request = fleets.request(chance, roots, compatibility=None)
        found = Snapshot(columns_of(roots)).candidates(request, limit=None)
        stages = found.explain().stages
        for before, after in itertools.pairwise(stages):
            assert before.before >= before.after == after.before, seed
        assert stages[-1].after == len(found), seed
        assert (found.explain().emptied is None) == (len(found) > 0 or not stages[0].before), seed


def test_they_are_plain_data():
    data = lab(1).candidates("VCPU=9").explain().to_dict()["stages"]
    assert json.loads(json.dumps(data))[1] == {
        "group": "",
        "rule": "capacity",
        "before": 1,
        "after": 0,
        "resource": "VCPU",
        "label": None,
        "requested": 9,
        "most": 8,
    }
