"""Who could hold it: scenarios, each with its tree drawn in words."""

from __future__ import annotations

import pytest

from resource_objects.providers import Provider
from resource_objects.requests import Request
from resource_objects.search import Snapshot
from resource_objects.testing.refusals import raises_code
from tests.support.columns import columns_of
from tests.support.naive_search import candidate_faults, hosts_that_fit

A, B, C = "CUSTOM_A", "CUSTOM_B", "CUSTOM_C"


def ask(roots, request, **options):
    """Return the candidates as text, after the reference has agreed with them."""
    columns = columns_of([roots] if isinstance(roots, Provider) else roots)
    request = Request.of(request)
    found = Snapshot(columns).candidates(request, **options)
    assert [candidate.host for candidate in found] == hosts_that_fit(columns, request)
    assert [candidate_faults(columns, request, candidate) for candidate in found] == [[]] * len(
        found
    )
    return [str(candidate) for candidate in found]


def lab(hosts=2, gpus=4, used=0):
    """Hosts with single-GPU children, which have the trait: host0/gpu0, ..."""
    for n in range(hosts):
        host = Provider(f"host{n}", "VCPU=64,MEMORY_MB=515000")
        for g in range(gpus):
            taken = int(g < used)
            host.add(f"host{n}/gpu{g}", f"PGPU=1:used={taken}", traits=["CUSTOM_H100"])
        yield host


JOB = Request("VCPU=16,MEMORY_MB=65536,PGPU=3", required=["CUSTOM_H100"])


def test_three_gpus_of_four_children_need_no_options():
    assert ask(lab(), JOB) == [
        f"VCPU=16,MEMORY_MB=65536 of host{n}, PGPU=1 of host{n}/gpu0, PGPU=1 of host{n}/gpu1, "
        f"PGPU=1 of host{n}/gpu2"
        for n in range(2)
    ]


def test_devices_that_are_taken_are_left_out():
    assert ask(lab(hosts=1, used=1), "PGPU=2") == ["PGPU=1 of host0/gpu1, PGPU=1 of host0/gpu2"]
    assert ask(lab(used=2), JOB) == []


def test_a_candidate_says_what_is_taken_of_whom():
    snapshot = Snapshot(columns_of(lab()))
    candidate = snapshot.candidates(JOB)[1]
    assert candidate.host == "host1"
    assert candidate.amounts == JOB.resources
    assert {name: str(amounts) for name, amounts in candidate.by_provider().items()} == {
        "host1": "VCPU=16,MEMORY_MB=65536",
        "host1/gpu0": "PGPU=1",
        "host1/gpu1": "PGPU=1",
        "host1/gpu2": "PGPU=1",
    }
    assert all(taken.provider_uuid for taken in candidate.allocations)


def test_hosts_come_in_the_order_of_their_names_up_to_the_limit():
    hosts = [Provider(name, "VCPU=1") for name in ("c", "a", "d", "b")]
    assert ask(hosts, "VCPU=1") == [f"VCPU=1 of {name}" for name in "abcd"]
    found = Snapshot(columns_of(hosts)).candidates("VCPU=1", limit=2)
    assert [candidate.host for candidate in found] == ["a", "b"]
    assert not found.cut_short


def test_no_host_holds_a_request_in_parts():
    assert ask([Provider("a", "VCPU=4"), Provider("b", "PGPU=1")], "VCPU=4,PGPU=1") == []


# --- one class, one provider, unless devices share it ---------------------------------------------


def test_cpus_of_two_children_are_not_added():
    host = Provider("host0")
    host.add("host0/numa0", "VCPU=4")
    host.add("host0/numa1", "VCPU=4")
    assert ask(host, "VCPU=6") == []
    assert ask(host, "VCPU=4") == ["VCPU=4 of host0/numa0"]


def test_what_the_root_has_is_not_added_to_what_a_device_has():
    host = Provider("host0", "PGPU=2")
    host.add("host0/gpu0", "PGPU=1")
    assert ask(host, "PGPU=3") == []
    assert ask(host, "PGPU=2") == ["PGPU=2 of host0"]


def test_a_class_of_devices_is_shared_whatever_each_one_has():
    host = Provider("host0")
    host.add("host0/card0", "VGPU=4:used=1")
    host.add("host0/card1", "VGPU=8:used=6")
    assert ask(host, "VGPU=5") == ["VGPU=3 of host0/card0, VGPU=2 of host0/card1"]


def test_a_custom_class_is_shared_where_each_provider_has_one():
    host = Provider("host0")
    for n in range(3):
        host.add(f"host0/f{n}", "CUSTOM_FPGA=1,CUSTOM_LANE=2")
    assert len(ask(host, "CUSTOM_FPGA=3")) == 1
    assert ask(host, "CUSTOM_LANE=3") == []


def test_one_unit_of_the_root_is_not_a_device():
    host = Provider("host0", "CUSTOM_FPGA=1")
    host.add("host0/f0", "CUSTOM_FPGA=1")
    assert ask(host, "CUSTOM_FPGA=2") == []


def test_the_root_comes_first_then_who_is_higher_then_the_name():
    host = Provider("m", "VCPU=1:used=1")
    host.add("z", "VCPU=1").add("a", "VCPU=1")
    host.add("y", "VCPU=1")
    assert ask([host, Provider("l", "VCPU=1")], "VCPU=1") == ["VCPU=1 of l", "VCPU=1 of y"]
    host.inventories["VCPU"].used = 0
    assert ask(host, "VCPU=1") == ["VCPU=1 of m"]


def test_one_that_gives_all_is_preferred_to_several():
    host = Provider("host0")
    host.add("host0/a", "VGPU=2")
    host.add("host0/b", "VGPU=4")
    assert ask(host, "VGPU=4") == ["VGPU=4 of host0/b"]


def test_devices_at_any_depth_share():
    host = Provider("host0")
    host.add("host0/pf0").add("host0/pf0/vf0", "SRIOV_NET_VF=1")
    host.add("host0/pf1").add("host0/pf1/vf0", "SRIOV_NET_VF=1")
    assert ask(host, "SRIOV_NET_VF=2") == [
        "SRIOV_NET_VF=1 of host0/pf0/vf0, SRIOV_NET_VF=1 of host0/pf1/vf0"
    ]


# --- unit rules hold for each part ----------------------------------------------------------------


def cards(*texts):
    host = Provider("host0")
    for number, text in enumerate(texts):
        host.add(f"host0/{number}", f"VGPU={text}")
    return host


@pytest.mark.parametrize(
    ("inventories", "amount", "parts"),
    [
        (["4:max_unit=1", "4:max_unit=1"], 2, [1, 1]),
        (["4:max_unit=1", "4:max_unit=1"], 3, None),
        (["4:min_unit=2", "4:min_unit=2"], 6, [4, 2]),
        (["4:min_unit=2", "4:min_unit=2"], 5, [3, 2]),
        (["4:min_unit=3", "4:min_unit=3"], 5, None),
        (["4:min_unit=4", "4:min_unit=4"], 5, None),
        (["4:min_unit=3", "4"], 5, [4, 1]),
        (["4:min_unit=3", "4"], 2, [0, 2]),
        (["8:step_size=4", "8:step_size=4"], 12, [8, 4]),
        (["8:step_size=4", "8:step_size=4"], 10, None),
        (["8:step_size=4", "9:step_size=3"], 13, [4, 9]),
        (["8:step_size=4:used=1", "8:step_size=4:used=1"], 8, [4, 4]),
        (["8:step_size=4:used=5", "8:step_size=4"], 8, [0, 8]),
        (["6:step_size=2:min_unit=3", "6:step_size=2:min_unit=3"], 10, [6, 4]),
        (["6:step_size=2:min_unit=3", "6:step_size=2:min_unit=3"], 2, None),
        (["4:used=9", "4"], 5, None),
    ],
)
def test_each_part_keeps_the_unit_rules_of_its_device(inventories, amount, parts):
    named = [f"VGPU={part} of host0/{n}" for n, part in enumerate(parts or []) if part]
    assert ask(cards(*inventories), f"VGPU={amount}") == ([", ".join(named)] if parts else [])


def test_reserved_and_ratio_count():
    assert ask(Provider("host0", "VCPU=4:reserved=1:allocation_ratio=1.5"), "VCPU=4") == [
        "VCPU=4 of host0"
    ]
    assert ask(Provider("host0", "VCPU=4:reserved=1:allocation_ratio=1.5"), "VCPU=5") == []


# --- traits ---------------------------------------------------------------------------------------


def test_a_trait_of_the_host_holds_for_everything_below_it():
    host = Provider("host0", traits=[A])
    host.add("host0/numa0", traits=[B]).add("host0/numa0/gpu0", "PGPU=1", traits=[C])
    assert len(ask(host, Request("PGPU=1", required=[A, B, C]))) == 1


def test_a_trait_below_or_beside_the_giver_does_not_count():
    host = Provider("host0", "VCPU=4")
    host.add("host0/gpu0", "PGPU=1", traits=[A])
    assert ask(host, Request("VCPU=1", required=[A])) == []
    assert len(ask(host, Request("VCPU=1,PGPU=1", required=[A]))) == 1


def test_devices_with_and_without_a_trait_do_not_mix():
    host = Provider("host0", "VCPU=4")
    host.add("host0/gpu0", "PGPU=1")
    host.add("host0/gpu1", "PGPU=1", traits=[A])
    host.add("host0/gpu2", "PGPU=1", traits=[A])
    assert ask(host, Request("PGPU=2", required=[A])) == [
        "PGPU=1 of host0/gpu1, PGPU=1 of host0/gpu2"
    ]
    assert ask(host, Request("PGPU=3", required=[A])) == []
    assert len(ask(host, "PGPU=3")) == 1


def test_two_traits_may_be_answered_for_by_two_classes():
    host = Provider("host0")
    host.add("host0/fast", "DISK_GB=10", traits=[A])
    host.add("host0/slow", "DISK_GB=10", traits=[C])
    host.add("host0/gpu", "PGPU=1", traits=[B])
    assert ask(host, Request("DISK_GB=1,PGPU=1", required=[A, B])) == [
        "DISK_GB=1 of host0/fast, PGPU=1 of host0/gpu"
    ]
    assert ask(host, Request("DISK_GB=1,PGPU=1", required=[A, C])) == []


def test_the_class_that_must_answer_for_one_trait_leaves_the_other_to_its_neighbour():
    host = Provider("host0")
    host.add("host0/d0", "DISK_GB=10", traits=[A, B])
    host.add("host0/d1", "DISK_GB=10", traits=[C])
    host.add("host0/g0", "PGPU=1", traits=[A])
    host.add("host0/g1", "PGPU=1", traits=[B])
    found = ask(host, Request("DISK_GB=1,PGPU=1", required=[A, B, C]))
    assert found == []
    assert ask(host, Request("DISK_GB=1,PGPU=1", required=[A, C])) == [
        "DISK_GB=1 of host0/d1, PGPU=1 of host0/g0"
    ]


def test_a_class_that_could_answer_for_a_trait_may_have_to_leave_it_to_another():
    host = Provider("host0")
    for name, traits in {"x0": [A], "x1": [B, C]}.items():
        host.add(name, "CUSTOM_X=2", traits=traits)
    for name, traits in {"y0": [A], "y1": [B], "y2": [C]}.items():
        host.add(name, "CUSTOM_Y=2", traits=traits)
    assert ask(host, Request("CUSTOM_X=1,CUSTOM_Y=1", required=[A, B, C])) == [
        "CUSTOM_X=1 of x1, CUSTOM_Y=1 of y0"
    ]


def test_a_forbidden_trait_rules_out_its_provider_and_all_below():
    host = Provider("host0", "VCPU=4")
    host.add("host0/old", "PGPU=1", traits=[A]).add("host0/old/0", "PGPU=1")
    host.add("host0/new", "PGPU=1")
    assert ask(host, Request("PGPU=1,VCPU=1", forbidden=[A])) == [
        "VCPU=1 of host0, PGPU=1 of host0/new"
    ]
    assert ask(host, Request("PGPU=2", forbidden=[A])) == []
    host.update(traits={A})
    assert ask(host, Request("VCPU=1", forbidden=[A])) == []


def test_a_forbidden_trait_of_somebody_who_gives_nothing_does_not_matter():
    host = Provider("host0", "VCPU=4")
    host.add("host0/old", "PGPU=1", traits=[A])
    assert len(ask(host, Request("VCPU=1", forbidden=[A]))) == 1


def test_many_traits_of_one_provider_are_one_decision():
    traits = [f"CUSTOM_T{n}" for n in range(300)]
    host = Provider("host0", "VCPU=4")
    host.add("host0/gpu0", "PGPU=1", traits=traits)
    found = Snapshot(columns_of([host])).candidates(Request("VCPU=1,PGPU=1", required=traits))
    assert len(found) == 1
    assert found.steps < 10


def test_hundreds_of_different_traits_are_decided():
    traits = [f"CUSTOM_T{n}" for n in range(200)]
    host = Provider("host0")
    host.update(
        children=[
            Provider(f"host0/{n}", "PGPU=1,CUSTOM_X=1", traits={*traits} - {trait})
            for n, trait in enumerate(traits)
        ]
    )
    request = Request("PGPU=1,CUSTOM_X=1", required=traits)
    assert len(Snapshot(columns_of([host])).candidates(request)) == 1


# --- nothing to search in -------------------------------------------------------------------------


def test_an_empty_ledger_has_no_candidates():
    assert ask([], "VCPU=1") == []


def test_a_class_that_nobody_has_has_no_candidates():
    assert ask(lab(), "CUSTOM_NOBODY=1") == []


@pytest.mark.parametrize("options", [{"limit": 0}, {"limit": True}, {"limit": "3"}, {"limit": -1},
                                     {"budget": 0}, {"budget": None}, {"budget": 1.5}])  # fmt: skip
def test_limit_and_budget_are_at_least_one(options):
    with raises_code("InvalidRequest", match=f"{next(iter(options))}: got"):
        Snapshot(columns_of([])).candidates("VCPU=1", **options)


def test_a_request_that_cannot_be_is_refused_here_too():
    with raises_code("InvalidRequest"):
        Snapshot(columns_of([])).candidates("")
    with raises_code("UnknownResourceClass"):
        Snapshot(columns_of([])).candidates("CPU=1")
