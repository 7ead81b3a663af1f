"""Why nobody can: the lines that people read, and the data behind them."""

from __future__ import annotations

import copy
import datetime
import json
import pickle

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers import Provider
from resource_objects.reasons import Reason, Rule
from resource_objects.requests import Gang, Member, Request, RequestGroup
from resource_objects.scheduler import Scheduler
from resource_objects.search import Snapshot
from resource_objects.search.answer import Feasibility, Outlook
from resource_objects.search.explain import HostReasons
from resource_objects.search.findings import Findings
from resource_objects.testing.refusals import raises_code
from tests.support.columns import columns_of

A, B, C = "CUSTOM_A", "CUSTOM_B", "CUSTOM_C"


def explained(roots, request, held=(), **options):
    roots = [roots] if isinstance(roots, Provider) else roots
    return Snapshot(columns_of(roots, held)).candidates(request, **options).explain()


def told(*args, **options):
    return str(explained(*args, **options)).splitlines()


def host(name="host0", inventories="VCPU=64", gpus=0, trait=None, traits=()):
    root = Provider(name, inventories, traits=traits)
    for g in range(gpus):
        root.add(f"{name}/gpu{g}", "PGPU=1", traits=[trait] if trait else [])
    return root


JOB = Request("VCPU=16,MEMORY_MB=65536,PGPU=3", required=["CUSTOM_H100"])


def test_the_example_of_the_first_page():
    hosts = [host(f"host{n}", "VCPU=64,MEMORY_MB=515000", 4, "CUSTOM_H100") for n in range(2)]
    held = [(f"job-{n + 1}", f"host{n}/gpu{g}", "PGPU", 1) for n in range(2) for g in range(3)]
    held += [(f"job-{n + 1}", f"host{n}", "VCPU", 16) for n in range(2)]
    explanation = explained(hosts, JOB, held)
    assert str(explanation) == (
        "host0: PGPU requested 3, free 1 of 4 (job-1 holds 3)\n"
        "host1: PGPU requested 3, free 1 of 4 (job-2 holds 3)"
    )
    assert explanation.reasons == (
        Reason(Rule.CAPACITY, 3, 4, 3, "PGPU", "host0", (("job-1", 3),)),
        Reason(Rule.CAPACITY, 3, 4, 3, "PGPU", "host1", (("job-2", 3),)),
    )


def test_every_failing_constraint_of_a_host_is_named():
    held = [("job-1", "host0", "VCPU", 60), ("job-1", "host0/gpu0", "PGPU", 1)]
    root = host(inventories="VCPU=64,DISK_GB=5", gpus=3)
    assert told(root, Request("VCPU=8,DISK_GB=9,MEMORY_MB=1,PGPU=3", required=[A]), held) == [
        "host0: VCPU requested 8, free 4 of 64 (job-1 holds 60); "
        "MEMORY_MB requested 1, there is none; "
        "DISK_GB requested 9, free 5 of 5; "
        "PGPU requested 3, free 2 of 3 (job-1 holds 1); "
        "PGPU requested 3 with CUSTOM_A, no provider has it"
    ]


def test_the_largest_holders_are_named_first_and_the_others_counted():
    held = [(f"job-{n}", "host0", "VCPU", n) for n in range(1, 6)]
    explanation = explained(host(inventories="VCPU=16"), "VCPU=4", held)
    assert str(explanation) == (
        "host0: VCPU requested 4, free 1 of 16 "
        "(job-5 holds 5, job-4 holds 4, job-3 holds 3 and 2 more)"
    )
    (reason,) = explanation.reasons
    assert reason.holders == tuple((f"job-{n}", n) for n in (5, 4, 3, 2, 1))


def test_holders_of_as_much_are_named_in_natural_order():
    ledger = ro.connect("memory://")
    ledger.sync(ro.Provider("host0", "VCPU=6"))
    for name in ("job-10", "job-9", "job-2", "b", "job-1"):
        ledger.claim(name, {"host0": f"VCPU={2 if name == 'b' else 1}"})
    line = (
        "host0: VCPU requested 1, free 0 of 6 (b holds 2, job-1 holds 1, job-2 holds 1 and 2 more)"
    )
    assert str(ledger.snapshot().candidates("VCPU=1").explain()).splitlines()[0] == line
    with pytest.raises(exceptions.CapacityException) as refused:
        ledger.claim("job", {"host0": "VCPU=1"})
    assert str(refused.value) == line


def test_only_holders_of_that_class_at_those_providers_count():
    held = [
        ("job-1", "host0", "VCPU", 8),
        ("job-1", "host0", "DISK_GB", 1),
        ("job-2", "host1", "VCPU", 8),
    ]
    hosts = [host("host0", "VCPU=8,DISK_GB=8"), host("host1", "VCPU=8")]
    assert told(hosts, "VCPU=1", held) == [
        "host0: VCPU requested 1, free 0 of 8 (job-1 holds 8)",
        "host1: VCPU requested 1, free 0 of 8 (job-2 holds 8)",
    ]


def test_an_overfull_host_says_so():
    assert told(host(inventories="VCPU=8:used=10"), "VCPU=1") == [
        "host0: VCPU requested 1, free -2 of 8"
    ]


# --- traits ---------------------------------------------------------------------------------------


def test_a_trait_that_nobody_has_is_named_with_the_class_that_wants_it():
    hosts = [host("host0", gpus=4), host("host1", gpus=4, trait="CUSTOM_H100")]
    assert told(hosts, Request("VCPU=1,PGPU=3", required=["CUSTOM_H100"])) == [
        "host0: PGPU requested 3 with CUSTOM_H100, no provider has it"
    ]


def test_a_trait_that_is_on_no_host_at_all_is_named_with_the_devices():
    assert told(host(gpus=4), Request("VCPU=1,PGPU=3", required=["CUSTOM_H100"])) == [
        "host0: PGPU requested 3 with CUSTOM_H100, no provider has it"
    ]
    assert told(host(), Request("VCPU=1", required=["CUSTOM_H100"])) == [
        "host0: VCPU requested 1 with CUSTOM_H100, no provider has it"
    ]


def test_what_is_not_there_is_not_missed_for_its_traits_too():
    assert told(host(), Request("VCPU=1,PGPU=3", required=["CUSTOM_H100"])) == [
        "host0: PGPU requested 3, there is none"
    ]


@pytest.mark.parametrize("others", [1, 4])
def test_the_figures_are_of_those_who_have_the_trait(others):
    root = host(gpus=4, trait="CUSTOM_H100")
    for g in range(4, 4 + others):
        root.add(f"host0/gpu{g}", "PGPU=1", traits=["CUSTOM_A100"])
    held = [("job-1", f"host0/gpu{g}", "PGPU", 1) for g in range(3)]
    assert told(root, Request("PGPU=3", required=["CUSTOM_H100"]), held) == [
        "host0: PGPU requested 3, free 1 of 4 (job-1 holds 3)"
    ]


def test_a_forbidden_trait_that_everybody_has_is_named():
    assert told(host(gpus=2, trait=A), Request("VCPU=1,PGPU=1", forbidden=[A, B])) == [
        "host0: PGPU requested 1 without CUSTOM_A, every provider has it"
    ]
    assert told(host(traits=[B]), Request("VCPU=1", forbidden=[A, B])) == [
        "host0: VCPU requested 1 without CUSTOM_B, every provider has it"
    ]


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ({"forbidden": [A, B]}, f"without {A} without {B}"),
        ({"forbidden": [B], "required": [C]}, f"with {C} without {B}"),
        ({"traits_of": {"PGPU": [C, f"!{B}"]}}, f"with {C} without {B}"),
    ],
)
def test_conditions_that_exclude_each_other_are_one_reason(conditions, words):
    """Somebody has each of A, B and C, somebody lacks each: none is missing by itself."""
    root = host(gpus=1, trait=A)
    root.add("host0/other", "PGPU=1", traits=[B, C])
    assert told(root, Request("PGPU=1", **conditions)) == [
        f"host0: PGPU requested 1 {words}, no provider meets all of that"
    ]


def test_only_the_conditions_that_exclude_are_told_together():
    root = host(gpus=1, trait=A)
    root.add("host0/other", "PGPU=1", traits=[B, C])
    groups = [RequestGroup("PGPU=1", suffix="_1", forbidden=[A, B, C])]
    assert told(root, Request(groups=groups)) == [
        f"host0: group _1: PGPU requested 1 without {A} without {C}, no provider meets all of that"
    ]


def test_a_condition_that_excludes_by_itself_is_told_alone():
    root = host(gpus=2, trait=A)
    assert told(root, Request("PGPU=1", forbidden=[A, B])) == [
        f"host0: PGPU requested 1 without {A}, every provider has it"
    ]


def test_a_trait_that_several_classes_could_answer_for_names_each_that_is_short():
    root = Provider("host0", "VCPU=64")
    root.add("host0/numa0", "VCPU=4:used=2", traits=[A])
    root.add("host0/gpu0", "PGPU=1:used=1", traits=[A])
    root.add("host0/gpu1", "PGPU=1")
    assert told(root, Request("VCPU=8,PGPU=1", required=[A])) == [
        "host0: VCPU requested 8, free 2 of 4; PGPU requested 1, free 0 of 1"
    ]


def test_traits_that_fail_only_together_are_named_together():
    """Somebody has each of them, so it would not be true that nobody has one."""
    root = Provider("host0")
    for number, pair in enumerate([(A, B), (B, C), (A, C)]):
        root.add(f"host0/{number}", "CUSTOM_X=2", traits=pair)
    (reason,) = explained(root, Request("CUSTOM_X=2", required=[A, B, C])).reasons
    assert str(reason) == (
        f"host0: CUSTOM_X requested 2 with {A} with {B} with {C}, no provider meets all of that"
    )
    root = Provider("host0")
    for number, traits in enumerate([(A,), (B,), (C,)]):
        root.add(f"host0/{number}", "CUSTOM_X=2,CUSTOM_Y=2", traits=traits)
    (reason,) = explained(root, Request("CUSTOM_X=2,CUSTOM_Y=2", required=[A, B, C])).reasons
    assert (reason.rule, reason.unit) == (Rule.CONDITIONS, f"with {B} with {C}")


def test_a_trait_that_somebody_has_who_lacks_another_is_told_with_that():
    root = Provider("host0")
    for number, trait in enumerate((A, B)):
        root.add(f"host0/{number}", "CUSTOM_X=2", traits=[trait])
    assert told(root, Request("CUSTOM_X=2", required=[A, B])) == [
        f"host0: CUSTOM_X requested 2 with {A} with {B}, no provider meets all of that"
    ]


def test_what_pools_alone_could_provide_is_told_of_groups_too():
    """
    host0   VCPU=4, DISK_GB=2 in steps of 2   nfs: DISK_GB=9, for both
    """
    root = Provider("host0", "VCPU=4,DISK_GB=2:step_size=2", aggregates=["rack"])
    pool = Provider("nfs", "DISK_GB=9", traits=["MISC_SHARES_VIA_AGGREGATE"], aggregates=["rack"])
    request = Request(groups=[RequestGroup("DISK_GB=1", suffix="_A")])
    assert told([root, pool], request)[:1] == [
        "host0: group _A: DISK_GB requested 1, pools may provide it, the host itself does not"
    ]


# --- enough, and yet not --------------------------------------------------------------------------


def test_where_the_sum_is_enough_the_provider_that_comes_nearest_is_named():
    root = Provider("host0")
    root.add("host0/numa0", "VCPU=8")
    root.add("host0/numa1", "VCPU=8")
    held = [("job-1", "host0/numa0", "VCPU", 5), ("job-2", "host0/numa1", "VCPU", 4)]
    explanation = explained(root, "VCPU=6", held)
    assert str(explanation) == "host0: host0/numa1: VCPU requested 6, free 4 of 8 (job-2 holds 4)"
    assert [reason.where for reason in explanation.reasons] == ["host0/numa1"]


def test_an_overfull_neighbour_does_not_hide_who_has_room():
    root = Provider("host0")
    root.add("host0/numa0", "VCPU=8:max_unit=1")
    root.add("host0/numa1", "VCPU=8:used=16")
    assert told(root, "VCPU=2") == [
        "host0: host0/numa0: VCPU requested 2, one claim allocates at most 1"
    ]


def test_devices_that_together_come_nearest_are_named_together():
    root = Provider("host0", "PGPU=1")
    root.add("host0/gpu0", "PGPU=1")
    root.add("host0/gpu1", "PGPU=1")
    assert told(root, "PGPU=3") == ["host0: PGPU requested 3, free 2 of 2"]


@pytest.mark.parametrize(
    ("inventory", "amount", "line"),
    [
        ("VCPU=8:min_unit=4", 2, "VCPU requested 2, one claim allocates at least 4"),
        ("VCPU=8:max_unit=4", 6, "VCPU requested 6, one claim allocates at most 4"),
        ("VCPU=8:step_size=4", 6, "VCPU requested 6, not a multiple of 4"),
        ("VCPU=8:step_size=4:used=6", 6, "VCPU requested 6, free 2 of 8"),
    ],
)
def test_a_unit_rule_is_named_where_there_is_room(inventory, amount, line):
    assert told(host(inventories=inventory), f"VCPU={amount}") == [f"host0: {line}"]


@pytest.mark.parametrize(
    ("inventory", "amount", "line"),
    [
        ("4:max_unit=1", 3, "requested 3, one claim allocates at most 2"),
        ("4:step_size=2", 7, "requested 7, not a multiple of 2"),
        ("4:min_unit=3", 5, "requested 5, one claim allocates at least 3"),
        ("4:step_size=4:used=1", 6, "requested 6, not a multiple of 4"),
        ("4:used=3", 3, "requested 3, free 2 of 8"),
    ],
)
def test_a_unit_rule_of_devices_is_named_for_all_of_them(inventory, amount, line):
    root = Provider("host0")
    root.add("host0/0", f"VGPU={inventory}")
    root.add("host0/1", f"VGPU={inventory}")
    assert told(root, f"VGPU={amount}") == [f"host0: VGPU {line}"]


# --- many hosts, and none -------------------------------------------------------------------------


def test_a_long_explanation_is_counted_per_constraint():
    hosts = [host(f"host{n:03}", "VCPU=1" if n % 3 else "VCPU=8", n % 2) for n in range(100)]
    lines = told(hosts, "VCPU=4,PGPU=1", limit=None)
    assert lines[0] == "host000: PGPU requested 1, there is none"
    assert lines[1] == "host001: VCPU requested 4, free 1 of 1"
    assert len(lines) == 21
    # 83 are refused (all but the odd multiples of three); hosts with both faults count twice
    assert lines[20] == "and 63 more hosts: VCPU 50, PGPU 38"


def test_traits_are_counted_apart():
    hosts = [host(f"host{n:03}", gpus=1, trait=A) for n in range(21)]
    assert (
        told(hosts, Request("PGPU=1", required=[B]))[-1] == "and 1 more host: PGPU with CUSTOM_B 1"
    )
    assert told(hosts, Request("PGPU=1", forbidden=[A]))[-1] == (
        "and 1 more host: PGPU without CUSTOM_A 1"
    )


def test_what_is_about_the_host_or_all_groups_is_counted_by_its_rule():
    hosts = [host(f"host{n:03}", gpus=1) for n in range(25)]
    groups = [RequestGroup("PGPU=1", suffix=name) for name in ("_A", "_B")]
    apart = Request(groups=groups, group_policy="isolate")
    assert told(hosts, apart)[-1] == "and 5 more hosts: isolated 5"
    of_root = Request("VCPU=1", root_required=[A])
    assert told(hosts, of_root)[-1] == f"and 5 more hosts: root_trait_missing {A} 5"


def test_hosts_are_told_in_natural_order():
    hosts = [host(f"lab-{number}") for number in (10, 9, 2, 1)]
    assert [line.partition(":")[0] for line in told(hosts, "VCPU=65")] == [
        *("lab-1", "lab-2", "lab-9", "lab-10"),
    ]


def test_all_reasons_are_there_however_many_hosts():
    hosts = [host(f"host{n:03}") for n in range(100)]
    explanation = explained(hosts, "VCPU=65")
    assert [reason.where for reason in explanation.reasons] == [h.name for h in hosts]
    assert [name for name, _ in explanation.by_host()] == [h.name for h in hosts]


REFUSED = {
    "claim": lambda ledger, found: ledger.claim("job-2", found),
    "a claim that waits": lambda ledger, found: ledger.claim(
        "job-2", found, wait=datetime.timedelta(seconds=1)
    ),
    "move": lambda ledger, found: ledger.move("job-1", found),
    "replace": lambda ledger, found: ledger.replace("job-1", found),
    "claim_all": lambda ledger, found: ledger.claim_all({"job-2": found}),
    "scenario.claim": lambda ledger, found: ledger.snapshot().fork().claim("job-2", found),
    "scenario.move": lambda ledger, found: ledger.snapshot().fork().move("job-1", found),
    "a dry run": lambda ledger, found: Scheduler(ledger).select_destinations(found.request),
    "a selection": lambda ledger, found: Scheduler(ledger).select_destinations(
        found.request, consumers=["job-2"]
    ),
    "a selection of several": lambda ledger, found: Scheduler(ledger).select_destinations(
        found.request, consumers=["job-2", "job-3"]
    ),
    "a gang": lambda ledger, found: Scheduler(ledger).place_gang(
        Gang([Member("worker", found.request, 2)]), "job-2"
    ),
}


@pytest.mark.parametrize("refuse", REFUSED.values(), ids=REFUSED)
def test_a_refusal_computes_no_reason_before_it_is_read(monkeypatch, refuse):
    computed = []
    begin = HostReasons.__init__
    monkeypatch.setattr(
        HostReasons, "__init__", lambda *args: (computed.append(len(args[2])), begin(*args))[1]
    )
    with ro.connect("memory://") as ledger:
        ledger.sync(*[host(f"host{number}", "VCPU=8") for number in range(30)])
        ledger.claim("job-1", {"host0": "VCPU=3"})
        with pytest.raises(ro.NoCandidates) as refused:
            refuse(ledger, ledger.snapshot().candidates("VCPU=9"))
        assert not computed
    error = refused.value
    if refuse is REFUSED["claim_all"]:
        assert not error.reasons
        return
    assert len(error.reasons) == 30
    assert computed == [30]
    assert "VCPU" in str(error)


def test_a_refusal_tells_of_the_snapshot_that_was_searched():
    """Whatever becomes of the ledger before somebody reads the reasons."""
    with ro.connect("memory://") as ledger:
        ledger.sync(host("host0", "VCPU=8"))
        ledger.claim("job-1", {"host0": "VCPU=3"})
        with pytest.raises(ro.NoCandidates) as refused:
            ledger.claim("job-2", ledger.snapshot().candidates("VCPU=6"))
        ledger.release("job-1")
        ledger.sync(host("host0", "VCPU=100"))
    line = "host0: VCPU requested 6, free 5 of 8 (job-1 holds 3)"
    expected = Reason(Rule.CAPACITY, 6, 8, 3, "VCPU", "host0", (("job-1", 3),))
    assert str(refused.value) == f"no candidate for job-2: {line}"
    assert refused.value.reasons == (expected,)
    assert refused.value.explanation.answer.startswith("no host has VCPU=6 free")


@pytest.mark.parametrize("again", [copy.copy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_refusal_is_the_same_in_a_copy(again):
    error = exceptions.NoCandidates("no candidate for job-1", explained(host(), "VCPU=65"))
    error.add_note("tried twice")
    other = again(error)
    expected = ("no candidate for job-1", "host0: VCPU requested 65, free 64 of 64", error.reasons)
    assert len(error.reasons) == 1
    assert error.args == other.args == expected
    assert repr(error) == repr(other) == f"NoCandidates{expected!r}"
    assert (
        str(error)
        == str(other)
        == "no candidate for job-1: host0: VCPU requested 65, free 64 of 64"
    )
    assert other.__notes__ == ["tried twice"]


def test_the_first_reasons_are_those_of_the_first_hosts_and_the_others_are_counted():
    hosts = [host(f"host{n:03}", "VCPU=4", gpus=1) for n in range(60)]
    every = explained(hosts, "VCPU=5,PGPU=2").reasons
    for count in (0, 1, 7, 119, 120, 500):
        first, more = explained(hosts, "VCPU=5,PGPU=2").first_reasons(count)
        assert (first, more) == (every[:count], max(0, len(every) - count))


def test_the_reasons_of_one_host():
    hosts = [host(f"host{n}", f"VCPU={n + 3}") for n in range(5)]
    told = explained(hosts, "VCPU=5")
    assert [str(one) for one in told.of("host1")] == ["host1: VCPU requested 5, free 4 of 4"]
    assert told.of("host4") == told.of("nowhere") == ()


def groups_of(*amounts):
    return [
        RequestGroup(amount, suffix=f"_{name}")
        for name, amount in zip("ABC", amounts, strict=False)
    ]


@pytest.mark.parametrize(
    ("root", "request_", "line", "demands"),
    [
        (
            host(gpus=2),
            Request("PGPU=2", groups=groups_of("PGPU=1")),
            "the request and group _A together need 3 of PGPU, 2 are free",
            ("", "_A"),
        ),
        (
            host(inventories="VCPU=8:max_unit=5"),
            Request("VCPU=4", groups=groups_of("VCPU=3", "VCPU=2"), group_policy="none"),
            "the request and groups _A, _B together need 9 of VCPU, 8 are free",
            ("", "_A", "_B"),
        ),
        (
            host(gpus=1),
            Request("VCPU=4", groups=groups_of("PGPU=1", "PGPU=1"), group_policy="none"),
            "groups _A, _B together need 2 of PGPU, 1 is free",
            ("_A", "_B"),
        ),
        (
            host(inventories="VCPU=8:min_unit=4,DISK_GB=1"),
            Request("VCPU=4", groups=groups_of("VCPU=5,DISK_GB=1"), group_policy="none"),
            "the request and group _A together need 9 of VCPU, 8 are free",
            ("", "_A"),
        ),
    ],
)
def test_an_amount_that_several_parts_of_a_request_need_together_names_all_of_them(
    root, request_, line, demands
):
    """A reason that names a group has the amount of that group."""
    for count in (1, 9):  # one by one, and as arrays
        hosts = [Provider(f"{root.name}{n}", root.inventories) for n in range(count)]
        for provider in hosts:
            for number in range(len(root.children)):
                provider.add(f"{provider.name}/gpu{number}", "PGPU=1")
        explanation = explained(hosts, request_)
        (reason, *_) = explanation.reasons
        assert str(explanation).splitlines()[0] == f"{root.name}0: {line}"
        assert (reason.demands, reason.group, reason.rule) == (demands, None, Rule.CAPACITY)
        assert reason.to_dict()["demands"] == demands
    (alone,) = explained(root, Request(groups=groups_of("PGPU=3"))).reasons
    assert (alone.group, alone.requested, "demands" in alone.to_dict()) == ("_A", 3, False)


def test_a_request_that_conflicts_with_its_groups_is_named_with_them():
    root = Provider("host0", "VCPU=4", traits=[A])
    root.add("host0/gpu0", "PGPU=2", traits=[B])
    root.add("host0/gpu1", "PGPU=2")
    group = RequestGroup("PGPU=2", suffix="_A", required=[B])
    request = Request("PGPU=2", required=[B], groups=[group])
    assert told(root, request) == ["host0: the request and group _A each fit, but not all together"]


def test_no_host_at_all():
    assert told([], "VCPU=1") == ["there are no hosts"]


def test_nobody_left_out():
    assert told(host(), "VCPU=1") == ["no host was left out"]
    assert explained(host(), "VCPU=1").reasons == ()


def test_hosts_beyond_the_limit_are_neither_refused_nor_hidden():
    hosts = [host(f"host{n}") for n in range(5)] + [host("small", "VCPU=1")]
    assert told(hosts, "VCPU=2", limit=2) == [
        "small: VCPU requested 2, free 1 of 1",
        "and 3 more hosts not looked at: the limit was reached",
    ]


def test_the_data_is_plain():
    data = explained(
        host(gpus=1), Request("PGPU=2"), [("job-1", "host0/gpu0", "PGPU", 1)]
    ).to_dict()
    assert data.pop("stages")
    assert data.pop("more") == 0
    assert json.loads(json.dumps(data)) == {
        "answer": "no host has any PGPU free, requested 2; "
        "none could, even if nobody held anything",
        "nearest": ["host0"],
        "outlooks": {"host0": "never"},
        "refused": {
            "host0": [
                {
                    "rule": "capacity",
                    "requested": 2,
                    "bound": 1,
                    "used": 1,
                    "resource": "PGPU",
                    "where": "host0",
                    "holders": [["job-1", 1]],
                    "trait": None,
                    "unit": None,
                    "cell": None,
                    "guest": None,
                    "group": None,
                    "text": "host0: PGPU requested 2, free 0 of 1 (job-1 holds 1)",
                }
            ]
        },
        "undecided": [],
    }


def test_devices_whose_rest_is_no_step_have_nothing_to_give():
    """Three devices with one left each, given by twos."""
    root = Provider("host0", "VCPU=8")
    for number in range(3):
        root.add(f"host0/gpu{number}", "PGPU=1:step_size=2")
    told = str(Snapshot(columns_of([root])).candidates("PGPU=2").explain())
    assert told == "host0: PGPU requested 2, only 0 of the free amount fits the step size"


def test_what_is_free_is_told_truly_where_the_step_forbids_it():
    """4 of 5 are free, and 2 of 5: 3 go in steps of 3, and 6 are asked."""
    root = Provider("host0", "VCPU=8")
    for number, used in enumerate((1, 3)):
        root.add(f"host0/gpu{number}", f"VGPU=5:used={used}:step_size=3")
    told = str(Snapshot(columns_of([root])).candidates("VGPU=6").explain())
    assert told == "host0: VGPU requested 6, only 3 of the free amount fits the step size"


# --- the answer in a line, what could be, and who comes nearest -----------------------------------


def test_nothing_is_worked_out_before_somebody_looks(monkeypatch):
    asked = []
    monkeypatch.setattr(Feasibility, "__init__", lambda *_: asked.append("what would be"))
    find = Findings.by_tree
    monkeypatch.setattr(Findings, "by_tree", lambda self: (asked.append("reasons"), find(self))[1])
    found = Snapshot(columns_of([host("host0", "VCPU=1")])).candidates("VCPU=2")
    assert not found and not asked
    assert str(found.explain()) and asked == ["reasons"]


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        ("VCPU=9", "no host has VCPU=9 free, the most is 8 of host1; "
         "none could, even if nobody held anything"),
        ("VCPU=8,DISK_GB=1", "not even the host left has any DISK_GB (1 other fails before); "
         "none could, even if nobody held anything"),
        ("PGPU=2", "not even the host left has PGPU=2 free, the most is 1 of host0 "
         "(1 other fails before); 1 of 2 hosts could if nobody held anything"),
        ("VCPU=1", "2 of 2 hosts can hold it"),
    ],
)  # fmt: skip
def test_the_answer_is_one_line(request_, answer):
    """host0  VCPU 8 used 4 by a, gpu0 used by a, gpu1      host1  VCPU 8"""
    held = [("a", "host0", "VCPU", 4), ("a", "host0/gpu0", "PGPU", 1)]
    told = explained([host("host0", "VCPU=8", gpus=2), host("host1", "VCPU=8")], request_, held)
    assert told.answer == answer


def test_hosts_that_could_come_before_those_that_never_could():
    held = [("a", "big", "VCPU", 16)]
    told = explained([host("big", "VCPU=16"), host("small", "VCPU=7")], "VCPU=8", held)
    assert [(one.host, one.outlook) for one in told.nearest()] == [
        ("big", Outlook.NOT_NOW),
        ("small", Outlook.NEVER),
    ]
    assert told.nearest(1)[0].to_dict()["outlook"] == "not_now"


@pytest.mark.parametrize("cards", [8, 12])  # of which 9 could be given, or never
def test_a_disabled_device_is_no_further_quality_that_a_host_lacks(cards):
    """Ten hosts with 0 to 4 free devices, but host-7 with 6, and one that is disabled."""
    with ro.connect("memory://") as ledger:
        ledger.sync(*[host(f"host-{number}", gpus=cards) for number in range(10)])
        for number in range(10):
            used = cards - 7 if number == 7 else cards - number % 5
            taken = {f"host-{number}/gpu{gpu}": "PGPU=1" for gpu in range(used)}
            ledger.claim(f"job-{number}", taken)
        ledger.disable(f"host-7/gpu{cards - 1}", reason="broken")
        told = ledger.snapshot().candidates("PGPU=9").explain()
    assert [one.host for one in told.nearest(4)] == ["host-7", "host-4", "host-9", "host-3"]
    assert [one.host for one in told.nearest(10)][-2:] == ["host-0", "host-5"]


def test_hosts_that_lack_fewer_of_several_groups_are_nearer():
    groups = [RequestGroup("PGPU=1", suffix=f"_{number}") for number in range(4)]
    hosts = [host(f"host{number}", gpus=number) for number in range(4)]
    told = explained(hosts, Request(groups=groups, group_policy="isolate"))
    assert [one.host for one in told.nearest(4)] == ["host3", "host2", "host1", "host0"]


def test_of_hosts_that_lack_as_much_the_first_in_natural_order_are_nearest():
    hosts = [host(f"lab-{number}", f"VCPU={1 + number % 2}") for number in range(300)]
    told = explained(hosts, "VCPU=3")
    assert [one.host for one in told.nearest(3)] == ["lab-1", "lab-3", "lab-5"]


@pytest.mark.parametrize("count", [0, -1, True, 1.0, "3", None])
def test_how_many_come_nearest_is_a_number(count):
    with raises_code("InvalidRequest", match="nearest"):
        explained(host(), "VCPU=99").nearest(count)


def test_a_budget_that_ends_is_never_a_no():
    """Nobody knows of a host on which it ran out, be it now or if nobody held anything."""
    roots = [Provider("hard", "VCPU=1")]
    for number in range(12):
        roots[0].add(f"hard/{number}", "CUSTOM_X=7:step_size=3,CUSTOM_Y=5:step_size=2")
    request = Request("VCPU=1", groups=[RequestGroup("CUSTOM_X=3", suffix=f"_{n}") for n in "AB"])
    told = explained(roots, request, budget=1)
    assert told.undecided == ("hard",)
    assert told.answer == "not known: the budget of 1 steps ran out on 1 of 1 host"
    assert told.outlooks == {} and told.reasons == ()
