"""NUMA topologies in a ledger: taken of cells and through them of the host."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import new_operation
from resource_objects.reasons import Rule
from resource_objects.resources.numa import numa
from resource_objects.testing.conformance.suite import host_of
from resource_objects.testing.refusals import raises_code
from tests.ledger.conftest import by_consumer
from tests.ledger.numa_hosts import TOPOLOGY, cells, held, small, topology, used
from tests.resources.numa.hosts import located
from tests.support.lengths import examples

# --- taken ---


@pytest.mark.law(1)
def test_a_topology_is_taken_of_the_cells_and_through_them_of_the_host(
    numa_ledger: ro.Ledger,
) -> None:
    numa_ledger.claim("job", {"host0": "NUMA_TOPOLOGY=2:shared=2:dedicated=4:memory=512"})
    assert held(numa_ledger, "job") == {
        ("host0/numa0", "VCPU"): (1, ()),
        ("host0/numa0", "PCPU"): (2, ("cpu4", "cpu5")),
        ("host0/numa0", "MEMORY_MB"): (256, ()),
        ("host0/numa1", "VCPU"): (1, ()),
        ("host0/numa1", "PCPU"): (2, ("cpu12", "cpu13")),
        ("host0/numa1", "MEMORY_MB"): (256, ()),
    }
    root = {key: count for key, count in used(numa_ledger).items() if "/" not in key}
    assert root == {"host0 VCPU": 2, "host0 PCPU": 4, "host0 MEMORY_MB": 512}


@pytest.mark.law(1)
@pytest.mark.parametrize(
    "amounts",
    [
        "NUMA_TOPOLOGY=2:shared=4:memory=512",
        "VCPU=4,NUMA_TOPOLOGY=2:shared=4:memory=512",
        "VCPU=4,MEMORY_MB=512,NUMA_TOPOLOGY=2:shared=4:memory=512",
    ],
)
def test_counts_beside_a_topology_add_nothing(numa_ledger: ro.Ledger, amounts: str) -> None:
    numa_ledger.claim("job", {"host0": amounts})
    assert used(numa_ledger) == {
        "host0 VCPU": 4,
        "host0 MEMORY_MB": 512,
        "host0/numa0 VCPU": 2,
        "host0/numa0 MEMORY_MB": 256,
        "host0/numa1 VCPU": 2,
        "host0/numa1 MEMORY_MB": 256,
    }
    assert set(held(numa_ledger, "job")) == {
        (f"host0/numa{n}", name) for n in (0, 1) for name in ("VCPU", "MEMORY_MB")
    }


@pytest.mark.parametrize(
    "amounts",
    [
        "VCPU=3,NUMA_TOPOLOGY=2:shared=4",
        "VCPU=8,NUMA_TOPOLOGY=2:shared=4",
        "PCPU=4,NUMA_TOPOLOGY=1:dedicated=4:emulator_policy=isolate",
        "MEMORY_MB=1,NUMA_TOPOLOGY=1:dedicated=2:memory=64:page_size=2MB",
    ],
)
def test_counts_that_disagree_are_refused_and_change_nothing(
    numa_ledger: ro.Ledger, amounts: str
) -> None:
    name, count = amounts.partition(",")[0].split("=")
    for write in (numa_ledger.claim, numa_ledger.adjust, numa_ledger.replace):
        with raises_code("InvalidAmount", match=rf"{name}: got .*{count}.*expected"):
            write("job", {"host0": amounts})
    with raises_code("InvalidAmount"):
        numa_ledger.claim_all({"job": {"host0": amounts}})
    assert used(numa_ledger) == {}


def test_what_a_topology_does_not_locate_is_taken_of_the_host(numa_ledger: ro.Ledger) -> None:
    numa_ledger.claim("job", {"host0": "DISK_GB=7,VCPU=3,NUMA_TOPOLOGY=1:dedicated=1"})
    assert held(numa_ledger, "job") == {
        ("host0", "DISK_GB"): (7, ()),
        ("host0", "VCPU"): (3, ()),
        ("host0/numa0", "PCPU"): (1, ("cpu4",)),
    }
    assert ro.Request("DISK_GB=7,VCPU=3,NUMA_TOPOLOGY=1:dedicated=1") == (
        numa_ledger.get_claim("job").request
    )


@pytest.mark.law(3)
def test_claim_then_release_restores_the_ledger(numa_ledger: ro.Ledger) -> None:
    before = numa_ledger.usage(), numa_ledger.inventories("host0")
    amounts = "NUMA_TOPOLOGY=2:shared=2:dedicated=4:memory=128:page_size=2MB:thread_policy=isolate"
    numa_ledger.claim("job", {"host0": amounts})
    assert numa_ledger.inventories("host0") != before[1]
    numa_ledger.release("job")
    assert (numa_ledger.usage(), numa_ledger.inventories("host0")) == before


def test_what_is_assigned_is_taken_as_it_is(numa_ledger: ro.Ledger) -> None:
    said = located("NUMA_TOPOLOGY=2:dedicated=4:on=1;0>15+1>13/0;2>7+3>4")
    numa_ledger.claim("job", {"host0": said})
    assert held(numa_ledger, "job") == {
        ("host0/numa1", "PCPU"): (2, ("cpu13", "cpu15")),
        ("host0/numa0", "PCPU"): (2, ("cpu4", "cpu7")),
    }
    assert numa_ledger.assigned_amounts("job")["host0"] == said  # down to the order of the CPUs


@pytest.mark.law(4, 6)
def test_a_cpu_that_somebody_has_is_refused_with_who_has_it(numa_ledger: ro.Ledger) -> None:
    numa_ledger.claim("first", {"host0": located("NUMA_TOPOLOGY=1:dedicated=2:on=0;0>4+1>6")})
    before = used(numa_ledger)
    with raises_code("UnitTaken") as refused:
        numa_ledger.claim("second", {"host0": located("NUMA_TOPOLOGY=1:dedicated=2:on=0;0>5+1>6")})
    [reason] = refused.value.reasons
    assert (reason.unit, reason.holders) == ("cpu6", (("first", 1),))
    assert used(numa_ledger) == before


@pytest.mark.parametrize(
    "elsewhere",
    [
        "1:dedicated=1:on=2;0>4",  # there is no such cell
        "1:dedicated=1:on=0;0>12",  # a CPU of the other cell
        "1:dedicated=1:on=0;0>0",  # a shared one
        "1:shared=1:on=0;shared>8",
        "1:dedicated=1:memory=1024:page_size=1GB:on=0;0>4;pages>1048576",
    ],
)
def test_what_is_assigned_to_another_host_is_refused(
    numa_ledger: ro.Ledger, elsewhere: str
) -> None:
    with pytest.raises(exceptions.ForeignAmount):
        numa_ledger.claim("job", {"host0": located(f"NUMA_TOPOLOGY={elsewhere}")})
    assert used(numa_ledger) == {}


def test_a_topology_is_asked_of_a_host(numa_ledger: ro.Ledger) -> None:
    numa_ledger.sync(ro.Provider("plain", "VCPU=8"))
    with raises_code("InvalidAmount", match=r"host0/numa1.*request to the host, host0"):
        numa_ledger.claim("job", {"host0/numa1": "NUMA_TOPOLOGY=1:dedicated=1"})
    with pytest.raises(exceptions.CapacityException) as refused:
        numa_ledger.claim("job", {"plain": "NUMA_TOPOLOGY=1:dedicated=1"})
    assert [(r.rule, r.resource, r.where) for r in refused.value.reasons] == [
        (Rule.NO_INVENTORY, TOPOLOGY, "plain")
    ]
    with raises_code("ProviderNotFound"):
        numa_ledger.claim("job", {"nobody": "NUMA_TOPOLOGY=1:dedicated=1"})
    uuid = numa_ledger.provider("host0").uuid or ""
    assert numa_ledger.claim("job", {uuid: "NUMA_TOPOLOGY=1:dedicated=1"})


def test_a_topology_is_of_one_host(numa_ledger: ro.Ledger) -> None:
    asked = {"host0": "NUMA_TOPOLOGY=1:dedicated=1", "host1": "NUMA_TOPOLOGY=1:dedicated=2"}
    with raises_code("InvalidAmount", match=r"host0.*host1.*claim_all"):
        numa_ledger.claim("job", asked)
    done = by_consumer(
        numa_ledger.claim_all({f"job-{host}": {host: amounts} for host, amounts in asked.items()})
    )
    assert {name: str(claim) for name, claim in done.items()} == {
        "job-host0": "job-host0 holds PCPU=1 of host0/numa0",
        "job-host1": "job-host1 holds PCPU=2 of host1/numa0",
    }


def test_parts_are_not_said_beside_what_locates_them(numa_ledger: ro.Ledger) -> None:
    amounts = {"host0": "NUMA_TOPOLOGY=1:dedicated=1", "host0/numa1": "MEMORY_MB=5"}
    with raises_code("InvalidAmount", match=r"MEMORY_MB of host0/numa1.*NUMA_TOPOLOGY"):
        numa_ledger.claim("job", amounts)
    assert used(numa_ledger) == {}


@pytest.mark.law(6)
def test_a_refusal_says_for_each_cell_which_rule_and_who_holds_what(
    numa_ledger: ro.Ledger,
) -> None:
    numa_ledger.claim("first", {"host0": "NUMA_TOPOLOGY=2:dedicated=6:memory=3072"})
    with pytest.raises(exceptions.CapacityException) as refused:
        numa_ledger.claim("second", {"host0": "NUMA_TOPOLOGY=1:dedicated=2"})
    assert str(refused.value) == (
        "host0: each of cells 0, 1: PCPU requested 2, free 1 of 4 (first holds 3)"
    )
    assert [reason.cell for reason in refused.value.reasons] == [0, 1]
    with pytest.raises(exceptions.CapacityException) as refused:
        numa_ledger.claim("second", {"host0": "NUMA_TOPOLOGY=1:dedicated=1:memory=1024"})
    assert {r.holders for r in refused.value.reasons} == {(("first", 1536),)}


def test_a_refusal_by_the_host_as_a_whole_names_all_who_draw_on_it(
    numa_ledger: ro.Ledger,
) -> None:
    numa_ledger.claim("pinned", {"host0": "NUMA_TOPOLOGY=1:dedicated=3"})
    numa_ledger.claim("floating", {"host0": "PCPU=4"})
    with pytest.raises(exceptions.CapacityException) as refused:
        numa_ledger.claim("second", {"host0": "NUMA_TOPOLOGY=1:dedicated=2"})
    [reason] = refused.value.reasons
    assert (reason.resource, reason.where, reason.cell) == ("PCPU", "host0", None)
    assert (reason.free, reason.bound, reason.used) == (1, 8, 7)
    assert reason.holders == (("floating", 4), ("pinned", 3))


def test_who_holds_something_already_is_told_so_whatever_is_free(numa_ledger: ro.Ledger) -> None:
    for amounts in ("NUMA_TOPOLOGY=1:dedicated=1", "NUMA_TOPOLOGY=2:dedicated=8"):
        numa_ledger.claim("job", {"host0": amounts})
        with raises_code("ConsumerExists"):
            numa_ledger.claim("job", {"host0": amounts})
        with raises_code("ConsumerExists"):
            numa_ledger.claim_all({"new": {"host1": amounts}, "job": {"host0": amounts}})
        numa_ledger.release("job")


def test_a_repeated_operation_returns_what_it_did(numa_ledger: ro.Ledger) -> None:
    operation, wanted = new_operation(), {"host0": "NUMA_TOPOLOGY=2:dedicated=8"}
    done = numa_ledger.claim("job", wanted, operation=operation)
    assert numa_ledger.claim("job", wanted, operation=operation) == done  # though it is full now


def test_an_operation_that_is_done_meanwhile_is_not_refused_for_its_own_claim(
    numa_ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first acknowledgement was lost, and it was not yet done when that was looked for."""
    operation, wanted = new_operation(), {"host0": "NUMA_TOPOLOGY=2:dedicated=8"}
    done = numa_ledger.claim("job", wanted, operation=operation)
    gang, both = new_operation(), {"a": {"host1": "NUMA_TOPOLOGY=2:dedicated=8"}}
    together = by_consumer(numa_ledger.claim_all(both, operation=gang))
    outcome, asked = numa_ledger.backend.outcome, iter([True, False, True, False])
    monkeypatch.setattr(
        numa_ledger.backend, "outcome", lambda one: None if next(asked) else outcome(one)
    )
    assert numa_ledger.claim("job", wanted, operation=operation) == done
    assert by_consumer(numa_ledger.claim_all(both, operation=gang)) == together


def test_a_topology_may_be_said_as_an_allocation_of_its_host(numa_ledger: ro.Ledger) -> None:
    def of_host(name: str, amount: ro.Amount) -> ro.Allocation:
        return ro.Allocation(provider="host0", resource_class=name, amount=amount)

    asked = of_host(TOPOLOGY, numa(shared=2))
    numa_ledger.claim("job", [of_host("VCPU", ro.IntegerAmount(2)), asked])
    assert held(numa_ledger, "job") == {("host0/numa0", "VCPU"): (2, ())}
    with raises_code("InvalidAmount"):
        numa_ledger.claim("other", [of_host("VCPU", ro.IntegerAmount(3)), asked])


# --- huge pages ---


def test_memory_in_huge_pages_never_serves_who_asked_for_none(numa_ledger: ro.Ledger) -> None:
    for amounts in (
        "MEMORY_MB=4097",
        "NUMA_TOPOLOGY=1:shared=1:memory=2049",
        "NUMA_TOPOLOGY=2:shared=2:memory=4098",
    ):
        with pytest.raises(exceptions.CapacityException):
            numa_ledger.claim("job", {"host0": amounts})
    numa_ledger.claim("plain", {"host0": "MEMORY_MB=4096"})
    assert used(numa_ledger) == {"host0 MEMORY_MB": 4096}


def test_huge_pages_are_counted_by_themselves(numa_ledger: ro.Ledger) -> None:
    amounts = "MEMORY_MB=4096,NUMA_TOPOLOGY=2:dedicated=2:memory=4096:page_size=large"
    numa_ledger.claim("job", {"host0": amounts})
    assert used(numa_ledger) == {
        "host0 PCPU": 2,
        "host0/numa0 PCPU": 1,
        "host0/numa0 CUSTOM_HUGEPAGES_2048KB": 1024,
        "host0/numa1 PCPU": 1,
        "host0/numa1 CUSTOM_HUGEPAGES_2048KB": 1024,
    }
    numa_ledger.claim("plain", {"host0": "MEMORY_MB=4096"})  # all the ordinary memory is left
    with pytest.raises(exceptions.CapacityException):
        numa_ledger.claim("more", {"host0": "NUMA_TOPOLOGY=1:dedicated=1:memory=2:page_size=2MB"})


# --- with and without a topology ---


@pytest.mark.law(1, 4)
@pytest.mark.parametrize("pinned_first", [True, False], ids=["pinned-first", "floating-first"])
def test_pinned_and_floating_cpus_share_one_host(
    numa_ledger: ro.Ledger, pinned_first: bool
) -> None:
    claims = [("pinned", "NUMA_TOPOLOGY=2:dedicated=6"), ("floating", "PCPU=2")]
    for name, amounts in claims if pinned_first else reversed(claims):
        numa_ledger.claim(name, {"host0": amounts})
    assert used(numa_ledger)["host0 PCPU"] == 8
    assert held(numa_ledger, "floating") == {("host0", "PCPU"): (2, ())}
    for amounts in ("PCPU=1", "NUMA_TOPOLOGY=1:dedicated=1"):
        with pytest.raises(exceptions.CapacityException) as refused:
            numa_ledger.claim("more", {"host0": amounts})
        assert dict(refused.value.reasons[0].holders) == {"pinned": 6, "floating": 2}


_OFTEN = settings(max_examples=examples(40))
_mixed = st.lists(
    st.sampled_from(["VCPU", "PCPU", "MEMORY_MB", "shared", "dedicated", "memory"]), max_size=24
)


@pytest.mark.law(4)
@_OFTEN
@given(_mixed, st.integers(1, 3))
def test_floating_and_located_together_never_take_more_than_the_host_has(
    kinds: list[str], size: int
) -> None:
    with ro.connect("memory://") as ledger:
        ledger.sync(host_of("host0", cells()))
        for number, kind in enumerate(kinds):
            count = size * (512 if "memory" in kind.lower() else 1)
            amounts = f"{kind}={count}" if kind.isupper() else f"NUMA_TOPOLOGY=1:{kind}={count}"
            try:
                ledger.claim(f"job-{number}", {"host0": amounts})
            except exceptions.CapacityException:
                ledger.release_all([one.name for one in ledger.consumers()][:1])
            assert not list(ledger.usage(over_capacity=True))
            assert ledger.inventories("host0")[TOPOLOGY].room == {  # type: ignore[attr-defined]
                use.resource_class: use.free
                for use in ledger.usage("host0")
                if use.provider == "host0"
            }


@_OFTEN
@given(st.data())
def test_a_request_without_a_topology_fits_exactly_when_the_host_as_a_whole_can_hold_it(
    data: st.DataObject,
) -> None:
    with ro.connect("memory://") as ledger:
        ledger.sync(host_of("host0", cells()))
        for number in range(data.draw(st.integers(0, 3))):
            cpus = data.draw(st.integers(1, 4))
            amounts = data.draw(
                st.sampled_from(
                    [
                        f"NUMA_TOPOLOGY=1:shared={cpus}:memory={cpus * 500}",
                        f"NUMA_TOPOLOGY=2:dedicated={2 * cpus}",
                        f"VCPU={cpus},MEMORY_MB={cpus}",
                    ]
                )
            )
            try:
                ledger.claim(f"job-{number}", {"host0": amounts})
            except exceptions.CapacityException:
                continue
        free = {use.resource_class: use.free for use in ledger.usage("host0") if use.depth == 0}
        asked = {
            name: data.draw(st.integers(max(1, free[name] - 1), free[name] + 1))
            for name in data.draw(st.sets(st.sampled_from(sorted(free)), min_size=1))
        }
        fits = all(count <= free[name] for name, count in asked.items())
        found = ledger.snapshot().candidates(asked)
        assert bool(found) == fits
        if fits:  # and it is the host that gives it, whatever its cells have
            assert {one.provider for one in ledger.claim("new", found).allocations} == {"host0"}
        else:
            with pytest.raises(exceptions.CapacityException):
                ledger.claim("new", {"host0": asked})


def test_traits_of_the_host_apply_to_a_topology(numa_ledger: ro.Ledger) -> None:
    numa_ledger.change("host1", traits=["CUSTOM_FAST"])
    asked = "NUMA_TOPOLOGY=2:dedicated=4"
    find = numa_ledger.snapshot().candidates
    assert [one.host for one in find(ro.Request(asked))] == ["host0", "host1"]
    assert [one.host for one in find(ro.Request(asked, required=["CUSTOM_FAST"]))] == ["host1"]
    assert [one.host for one in find(ro.Request(asked, forbidden=["CUSTOM_FAST"]))] == ["host0"]
    assert not find(ro.Request(asked, required=["CUSTOM_SLOW"]))


@pytest.mark.law(5, 6)
def test_what_a_search_finds_is_taken_as_it_was_found(numa_ledger: ro.Ledger) -> None:
    request = ro.Request("DISK_GB=5,NUMA_TOPOLOGY=2:shared=2:dedicated=4:memory=64")
    found = numa_ledger.snapshot().candidates(request)
    claim = numa_ledger.claim("job", found)
    assert set(claim.allocations) == set(found[0].allocations)
    assert claim.request == request
    told = numa_ledger.assigned_amounts("job")
    assert told == {
        "host0": located(
            "DISK_GB=5,NUMA_TOPOLOGY=2:shared=2:dedicated=4:memory=64:"
            "on=0;1>4+2>5;shared>0-3/1;4>12+5>13;shared>8-11"
        )
    }
    assert numa_ledger.claim("other", found).consumer == "other"  # the next candidate
    assert topology(numa_ledger, "other", "host1").cells == topology(numa_ledger, "job").cells


# --- bad input ---


@pytest.mark.law(2, 8)
@pytest.mark.parametrize(
    "wrong",
    [
        {"host0": {TOPOLOGY: 4}},
        {"host0": {TOPOLOGY: ro.IntegerAmount(4)}},
        {"host0": {TOPOLOGY: None}},
        {"host0": {"PCPU": numa(dedicated=1)}},
        {"host0": "NUMA_TOPOLOGY=0"},
        {"host0": "NUMA_TOPOLOGY=2:dedicated=3"},
        {"host0": "NUMA_TOPOLOGY=1:dedicated=1:on=0"},
        {"host0": "NUMA_TOPOLOGY=-1:dedicated=1"},
        {"host0": "NUMA_TOPOLOGY=1:dedicated=1,NUMA_TOPOLOGY=1:dedicated=1"},
        {"": "NUMA_TOPOLOGY=1:dedicated=1"},
    ],
    ids=str,
)
@pytest.mark.parametrize("write", ["claim", "adjust", "replace"])
def test_what_cannot_be_is_refused_and_changes_nothing(
    numa_ledger: ro.Ledger, write: str, wrong: Any
) -> None:
    before = numa_ledger.feed.cursor()
    with pytest.raises(exceptions.InvalidInput):
        getattr(numa_ledger, write)("job", wrong)
    assert numa_ledger.feed.cursor() == before


def test_a_host_is_named_once(numa_ledger: ro.Ledger) -> None:
    uuid = numa_ledger.provider("host0").uuid or ""
    with raises_code("DuplicateKey"):
        numa_ledger.adjust(
            "job",
            {"host0": "NUMA_TOPOLOGY=1:dedicated=1", uuid: "NUMA_TOPOLOGY=1:dedicated=1"},
            aggregate=True,
        )


def test_add_parts_shares_only_what_the_host_has() -> None:
    host = ro.Provider("host0", "PCPU=8")
    parts = host.add_parts(TOPOLOGY, small())
    assert [str(share) for part in parts for share in part.shares] == [
        "PCPU uses 1 PCPU of host0"
    ] * 2


def test_a_host_that_is_made_again_by_its_uuid_is_looked_at_anew(ledger: ro.Ledger) -> None:
    """What is kept of a definition is of that host, not of its name, uuid and generation."""

    def machine(cpus: range) -> ro.Provider:
        inventory = ro.NUMATopologyInventory([ro.HostCell(0, dedicated=cpus, memory_mb=4096)])
        made = host_of("machine", inventory)
        made.uuid = "5d2c7d2e-6a39-4c8b-9a83-6a1f9c3f3b10"
        made.children[0].uuid = "0f6d0b5c-87f5-4b6e-8d52-7b6c0a9f3a11"
        return made

    asked = {"machine": {"NUMA_TOPOLOGY": ro.numa(1, dedicated=2)}}
    ledger.sync(machine(range(4)))
    for name in ("a", "b"):  # the second one decides on what was kept
        ledger.claim(name, asked)
    ledger.release_all(["a", "b"])
    ledger.remove("machine")
    ledger.sync(machine(range(8, 12)))
    claim = ledger.claim("c", asked)
    units = {unit for one in claim.allocations for unit in one.units}
    assert units == {"cpu8", "cpu9"}
    assert not ledger.audit()
