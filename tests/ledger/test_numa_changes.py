"""NUMA topologies in a ledger: told, changed, moved, and taken while others take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.ledger import RetryPolicy
from resource_objects.providers.orders import ConsumerOrder, Operation, Use, Write
from resource_objects.resources.numa import HostCell, NUMATopologyAmount, PlacedCell, numa
from resource_objects.testing.conformance.suite import host_of
from resource_objects.testing.refusals import raises_code
from tests.ledger.conftest import around_reads, by_consumer
from tests.ledger.numa_hosts import TOPOLOGY, cells, topology, used
from tests.resources.numa.hosts import located, shown
from tests.support.lengths import examples

_OFTEN = settings(max_examples=examples(40))


# --- told ---


@_OFTEN
@given(
    st.lists(
        st.tuples(
            st.integers(1, 2),
            st.integers(0, 2),
            st.integers(0, 3),
            st.sampled_from([0, 64]),
            st.sampled_from(["", "any", "small"]),
            st.sampled_from([None, "prefer", "require", "isolate"]),
            st.booleans(),
        ),
        max_size=6,
    ),
    st.lists(st.integers(0, 5), max_size=3),
    st.sampled_from([(), [(4, 6), (5, 7), (12, 14), (13, 15)]]),
)
def test_what_fit_said_is_what_the_ledger_tells_afterwards(
    asked: list[Any], gone: list[int], siblings: Any
) -> None:
    inventory = cells()
    inventory.update(cells=[_with_siblings(cell, siblings) for cell in inventory.cells])
    with ro.connect("memory://") as ledger:
        ledger.sync(host_of("host0", inventory))
        said: dict[str, ro.NUMATopologyAmount] = {}
        for number, one in enumerate(asked):
            amount = _amount(*one)
            here = ledger.inventories("host0")[TOPOLOGY]
            if amount is not None and here.can_provide(amount):
                said[f"job-{number}"] = here.fit(amount)  # type: ignore[assignment]
                ledger.claim(f"job-{number}", {"host0": {TOPOLOGY: amount}})
        for number in gone:  # others come and go
            if f"job-{number}" in said:
                del said[f"job-{number}"]
                ledger.release(f"job-{number}")
        assert {name: topology(ledger, name) for name in said} == said
        for name, amount in said.items():
            request = ledger.get_claim(name).request
            assert request is not None
            assert request.resources.as_requested()[TOPOLOGY] == amount.unassigned()


def _with_siblings(cell: HostCell, siblings: Any) -> HostCell:
    here = [core for core in siblings if set(core) <= set(cell.dedicated)]
    return cell.replace(siblings=here)


def _amount(
    guests: int, shared: int, dedicated: int, memory: int, size: str, policy: str | None, own: bool
) -> NUMATopologyAmount | None:
    if not (shared or dedicated):
        return None
    return numa(
        guests,
        shared=guests * shared,
        dedicated=guests * dedicated,
        memory_mb=guests * memory,
        page_size=size,
        thread_policy=policy if dedicated else None,
        emulator_policy="isolate" if own and dedicated else None,
    )


@pytest.mark.law(3)
def test_what_is_told_can_be_claimed_again(numa_ledger: ro.Ledger) -> None:
    amounts = "DISK_GB=5,VCPU=1,NUMA_TOPOLOGY=2:dedicated=4:memory=64:page_size=2MB"
    before = numa_ledger.claim("job", {"host0": amounts})
    told = numa_ledger.assigned_amounts("job")
    numa_ledger.release("job")
    numa_ledger.claim("filler", {"host0": "NUMA_TOPOLOGY=1:dedicated=2"})  # another place is free
    with raises_code("UnitTaken"):
        numa_ledger.claim("again", told)
    numa_ledger.release("filler")
    after = numa_ledger.claim("again", told)
    assert set(after.allocations) == set(before.allocations)
    assert numa_ledger.assigned_amounts("again") == told


def test_what_was_changed_by_counts_is_told_as_counts(numa_ledger: ro.Ledger) -> None:
    numa_ledger.claim("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=2"})
    numa_ledger.adjust("job", {"host0/numa0": "PCPU=1"})  # one more, whichever it is
    assert numa_ledger.assigned_amounts("job") == {"host0/numa0": ro.Amounts("PCPU=3")}
    numa_ledger.claim("counted", {"host0/numa1": "PCPU=1", "host0": "DISK_GB=1"})
    assert numa_ledger.assigned_amounts("counted") == {
        "host0/numa1": ro.Amounts("PCPU=1"),
        "host0": ro.Amounts("DISK_GB=1"),
    }
    with raises_code("ConsumerNotFound"):
        numa_ledger.assigned_amounts("nobody")


def test_a_part_tells_which_of_its_cpus_are_taken(numa_ledger: ro.Ledger) -> None:
    numa_ledger.claim("job", {"host0": "NUMA_TOPOLOGY=2:dedicated=4"})
    [cell] = numa_ledger.inventories("host0/numa1")[TOPOLOGY].usage  # type: ignore[attr-defined]
    assert (cell.cell, cell.pinned, cell.loose) == (1, (12, 13), 0)
    assert set(numa_ledger.inventories("host0").names()) == {
        "VCPU",
        "PCPU",
        "MEMORY_MB",
        "DISK_GB",
        TOPOLOGY,
    }
    with raises_code("ProviderNotFound"):
        numa_ledger.inventories("nobody")


def test_the_view_is_a_copy(numa_ledger: ro.Ledger) -> None:
    numa_ledger.inventories("host0").consume("NUMA_TOPOLOGY=2:dedicated=8")
    assert used(numa_ledger) == {}


# --- changed ---


@pytest.mark.law(3)
def test_an_assigned_topology_is_given_back_by_its_negative(numa_ledger: ro.Ledger) -> None:
    before = numa_ledger.inventories("host0")
    numa_ledger.claim("job", {"host0": "DISK_GB=1,NUMA_TOPOLOGY=2:dedicated=4:memory=64"})
    given_back = {TOPOLOGY: -topology(numa_ledger, "job"), "PCPU": -4, "MEMORY_MB": -64}
    numa_ledger.adjust("job", {"host0": given_back})  # the counts add nothing here either
    assert numa_ledger.assigned_amounts("job") == {"host0": ro.Amounts("DISK_GB=1")}
    after = numa_ledger.inventories("host0")
    assert after[TOPOLOGY] == before[TOPOLOGY]


@pytest.mark.law(2)
def test_what_is_not_held_is_not_given_back(numa_ledger: ro.Ledger) -> None:
    numa_ledger.claim("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=2"})
    numa_ledger.claim("other", {"host0": "NUMA_TOPOLOGY=1:dedicated=2"})
    before = used(numa_ledger)
    theirs = topology(numa_ledger, "other")
    for wrong in (-theirs, -numa(dedicated=3).replace(placed=_on(4, 5, 6))):
        with raises_code("UnitNotHeld", exceptions.CapacityException):
            numa_ledger.adjust("job", {"host0": {TOPOLOGY: wrong}})
    with pytest.raises(exceptions.CapacityException):  # of a host where it holds nothing
        numa_ledger.adjust("job", {"host1": {TOPOLOGY: -numa(shared=1).replace(placed=_on())}})
    for write in (numa_ledger.claim, numa_ledger.replace):
        with raises_code("NegativeAmount"):
            write("new", {"host0": {TOPOLOGY: -theirs}})
    assert used(numa_ledger) == before


def _on(*cpus: int) -> list[PlacedCell]:
    return [PlacedCell(0, pins=dict(enumerate(cpus)), shared=() if cpus else range(4))]


def test_a_topology_is_added_to_what_a_consumer_holds(numa_ledger: ro.Ledger) -> None:
    numa_ledger.claim("job", numa_ledger.snapshot("host0").candidates("DISK_GB=5,VCPU=1"))
    numa_ledger.adjust("job", {"host0": "DISK_GB=1,NUMA_TOPOLOGY=2:dedicated=4"})
    assert numa_ledger.assigned_amounts("job")["host0"] == located(
        "VCPU=1,DISK_GB=6,NUMA_TOPOLOGY=2:dedicated=4:on=0;0>4+1>5/1;2>12+3>13"
    )
    assert numa_ledger.get_claim("job").request == ro.Request(
        "VCPU=1,DISK_GB=6,NUMA_TOPOLOGY=2:dedicated=4"
    )
    before = used(numa_ledger)
    with raises_code("InvalidAmount", match=r"job holds one already"):
        numa_ledger.adjust("job", {"host1": "NUMA_TOPOLOGY=1:dedicated=1"})
    assert used(numa_ledger) == before
    gone = -topology(numa_ledger, "job")
    numa_ledger.adjust("job", {"host0": {TOPOLOGY: gone}, "host1": "NUMA_TOPOLOGY=1:dedicated=1"})
    assert shown(topology(numa_ledger, "job", "host1")) == "1:dedicated=1:on=0;0>4"
    assert numa_ledger.adjust("new", {"host1": "NUMA_TOPOLOGY=1:dedicated=1"}).consumer == "new"
    assert shown(topology(numa_ledger, "new", "host1")) == "1:dedicated=1:on=1;0>12"


def test_one_that_stands_for_many_may_have_several(numa_ledger: ro.Ledger) -> None:
    for _ in range(2):
        numa_ledger.adjust("many", {"host0": "NUMA_TOPOLOGY=2:dedicated=4"}, aggregate=True)
    assert used(numa_ledger)["host0 PCPU"] == 8
    assert numa_ledger.assigned_amounts("many") == {
        f"host0/numa{n}": ro.Amounts("PCPU=4") for n in (0, 1)
    }
    both = dict.fromkeys(["host0", "host1"], "NUMA_TOPOLOGY=1:shared=1")
    numa_ledger.adjust("many", both, aggregate=True)
    assert used(numa_ledger, "host1")["host1 VCPU"] == 1


def test_a_topology_is_replaced_within_a_full_host(numa_ledger: ro.Ledger) -> None:
    numa_ledger.claim("job", {"host0": "NUMA_TOPOLOGY=2:dedicated=8"})
    numa_ledger.replace("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=4"})
    assert shown(topology(numa_ledger, "job")) == "1:dedicated=4:on=0;0>4+1>5+2>6+3>7"
    numa_ledger.replace("job", {"host0": "NUMA_TOPOLOGY=2:dedicated=6"})
    assert used(numa_ledger)["host0 PCPU"] == 6
    with pytest.raises(exceptions.CapacityException):
        numa_ledger.replace("job", {"host0": "NUMA_TOPOLOGY=2:dedicated=10"})
    assert used(numa_ledger)["host0 PCPU"] == 6


@pytest.mark.law(3)
@pytest.mark.parametrize("figures", ["PCPU=2", "MEMORY_MB=512"])
def test_a_topology_is_replaced_within_a_host_that_shrank_below_its_use(
    numa_ledger: ro.Ledger, figures: str
) -> None:
    numa_ledger.claim("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=3:memory=1024"})
    where = topology(numa_ledger, "job")
    now = dict(numa_ledger.provider("host0").inventories.by_name())
    shrunk = {**now, **dict(ro.Inventories(figures).by_name())}
    numa_ledger.change("host0", inventories=ro.Inventories(shrunk))
    numa_ledger.replace("job", {"host0": "DISK_GB=3,NUMA_TOPOLOGY=1:dedicated=3:memory=1024"})
    assert topology(numa_ledger, "job") == where
    with pytest.raises(exceptions.CapacityException):
        numa_ledger.replace("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=4:memory=1536"})


def test_who_has_a_topology_already_stays_where_it_is(numa_ledger: ro.Ledger) -> None:
    for name in ("first", "job"):
        numa_ledger.claim(name, {"host0": "NUMA_TOPOLOGY=1:dedicated=2"})
    numa_ledger.release("first")  # now a fresh one would go to cell 0
    where = topology(numa_ledger, "job")
    assert where.placed[0].cell == 1
    numa_ledger.replace("job", {"host0": "DISK_GB=3,NUMA_TOPOLOGY=1:dedicated=2"})
    assert topology(numa_ledger, "job") == where


def test_a_topology_moves_between_hosts(numa_ledger: ro.Ledger) -> None:
    amounts = "NUMA_TOPOLOGY=2:dedicated=4"
    numa_ledger.claim("job", {"host0": amounts})
    before = topology(numa_ledger, "job")
    numa_ledger.move("job", {"host1": amounts}, source_consumer="old")
    assert topology(numa_ledger, "old") == before
    assert topology(numa_ledger, "job", "host1") == before  # the same, elsewhere
    numa_ledger.swap("job", "old")
    assert (topology(numa_ledger, "job"), topology(numa_ledger, "old", "host1")) == (before, before)
    numa_ledger.release("old")
    assert used(numa_ledger, "host1") == {}
    numa_ledger.move("job", {"host0": "NUMA_TOPOLOGY=2:dedicated=8"})  # where it is, for it goes
    assert used(numa_ledger)["host0 PCPU"] == 8
    with pytest.raises(exceptions.CapacityException):  # what it leaves stays taken
        numa_ledger.move("job", {"host0": "NUMA_TOPOLOGY=2:dedicated=8"}, source_consumer="old")


def test_a_topology_and_counts_change_places(numa_ledger: ro.Ledger) -> None:
    numa_ledger.claim("located", {"host0": "NUMA_TOPOLOGY=2:dedicated=8"})
    numa_ledger.claim("counted", {"host1": "PCPU=8"})
    where = topology(numa_ledger, "located")
    numa_ledger.swap("located", "counted")
    assert topology(numa_ledger, "counted") == where
    assert numa_ledger.assigned_amounts("located") == {"host1": ro.Amounts("PCPU=8")}
    numa_ledger.swap("located", "counted")
    assert topology(numa_ledger, "located") == where
    numa_ledger.replace("located", {"host0": "PCPU=8"})
    assert numa_ledger.assigned_amounts("located") == {"host0": ro.Amounts("PCPU=8")}


@pytest.mark.law(2)
def test_several_are_placed_beside_each_other(numa_ledger: ro.Ledger) -> None:
    wanted = {f"job-{n}": {"host0": "NUMA_TOPOLOGY=2:dedicated=4"} for n in (0, 1)}
    numa_ledger.claim_all(wanted)
    assert [shown(topology(numa_ledger, name)) for name in wanted] == [
        "2:dedicated=4:on=0;0>4+1>5/1;2>12+3>13",
        "2:dedicated=4:on=0;0>6+1>7/1;2>14+3>15",
    ]
    before = used(numa_ledger)
    more = {"job-2": {"host1": "NUMA_TOPOLOGY=1:dedicated=1"}}
    with pytest.raises(exceptions.CapacityException, match="job-0 holds 2"):
        numa_ledger.claim_all({**more, "job-3": {"host0": "NUMA_TOPOLOGY=1:dedicated=1"}})
    assert (used(numa_ledger), used(numa_ledger, "host1")) == (before, {})


def test_several_are_placed_beside_what_was_found_for_others(numa_ledger: ro.Ledger) -> None:
    """They want the same CPUs: who was found a place keeps it."""
    found = numa_ledger.snapshot("host0").candidates("NUMA_TOPOLOGY=1:dedicated=2")
    asked = {"host0": "NUMA_TOPOLOGY=1:dedicated=2"}
    fixed = {"host0": located("NUMA_TOPOLOGY=1:dedicated=1:on=0;0>6")}
    done = by_consumer(numa_ledger.claim_all({"open": asked, "found": found, "fixed": fixed}))
    assert list(done) == ["open", "found", "fixed"]
    assert shown(topology(numa_ledger, "found")).endswith("on=0;0>4+1>5")
    assert shown(topology(numa_ledger, "open")).endswith("on=1;0>12+1>13")


def test_another_candidate_is_tried_where_one_is_in_the_way(numa_ledger: ro.Ledger) -> None:
    found = numa_ledger.snapshot().candidates("NUMA_TOPOLOGY=2:dedicated=4")
    asked = {"host0": "NUMA_TOPOLOGY=2:dedicated=6"}
    numa_ledger.claim_all({"found": found, "open": asked})
    assert (topology(numa_ledger, "found", "host1"), used(numa_ledger)["host0 PCPU"]) == (
        found[1].located[TOPOLOGY],
        6,
    )


# --- somebody else is faster ---


@pytest.fixture
def between(
    numa_ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Iterator[Callable[[], object]]], list[int]]:
    """A function that lets something happen after each read, before what it was read for."""

    def let(steps: Iterator[Callable[[], object]]) -> list[int]:
        reads, in_step = [0], [False]

        def wrap(read: Callable[..., Any]) -> Callable[..., Any]:
            def reading(*trees: Any, **how: Any) -> Any:
                columns = read(*trees, **how)
                if not in_step[0]:
                    reads[0] += 1
                    in_step[0] = True
                    next(steps, lambda: None)()
                    in_step[0] = False
                return columns

            return reading

        around_reads(monkeypatch, numa_ledger, wrap)
        return reads

    return let


@pytest.mark.law(4)
@pytest.mark.parametrize("write", ["claim", "adjust", "replace", "move", "claim_all"])
def test_it_is_put_elsewhere_if_somebody_was_faster(
    numa_ledger: ro.Ledger, between: Any, write: str
) -> None:
    if write == "move":
        numa_ledger.claim("job", {"host1": "DISK_GB=1"})
    thieves = (lambda n=n: numa_ledger.backend.commit(_theft(numa_ledger, n)) for n in range(3))
    between(iter(list(thieves)))
    wanted: Any = {"host0": "NUMA_TOPOLOGY=1:dedicated=2"}
    if write == "claim_all":
        numa_ledger.claim_all({"job": wanted})
    else:
        getattr(numa_ledger, write)("job", wanted)
    assert shown(topology(numa_ledger, "job")) == "1:dedicated=2:on=1;0>13+1>14"


def _theft(ledger: ro.Ledger, number: int) -> Any:
    cell, cpu = [(0, 4), (1, 12), (0, 5)][number]
    uuid = ledger.backend.uuids([f"host0/numa{cell}"])[f"host0/numa{cell}"]
    order = ConsumerOrder.claim(f"thief-{number}", (Use(uuid, "PCPU", 1, (f"cpu{cpu}",)),))
    return Write(Operation(), "claim", order.consumer, orders=(order,))


def test_how_often_is_the_retry_policys(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    policy = RetryPolicy(assignments=2, sleep=slept.append)
    with ro.connect(url, retries=policy) as ledger:
        ledger.sync(host_of("host0", cells()))
        count = iter(range(100))

        def wrap(read: Callable[..., Any]) -> Callable[..., Any]:
            def reading(*trees: Any, **how: Any) -> Any:
                columns = read(*trees, **how)
                number = next(count)
                if number < 3:
                    ledger.backend.commit(_theft(ledger, number))
                return columns

            return reading

        around_reads(monkeypatch, ledger, wrap)
        with raises_code("UnitTaken", match="thief-2 holds 1"):
            ledger.claim("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=1"})
    assert len(slept) == 2


@pytest.mark.parametrize("fits", [-1, True, "1", None])
def test_how_often_is_a_count(fits: Any) -> None:
    with raises_code("InvalidField", match=r"RetryPolicy\.assignments"):
        RetryPolicy(assignments=fits)


def test_what_is_short_for_another_reason_is_not_tried_again(
    numa_ledger: ro.Ledger, between: Any
) -> None:
    reads = between(iter([]))
    with pytest.raises(exceptions.CapacityException, match="DISK_GB requested 101"):
        numa_ledger.claim("job", {"host0": "DISK_GB=101,NUMA_TOPOLOGY=1:dedicated=1"})
    assert reads == [2]  # the second to see that nothing had changed
    with raises_code("UnitTaken"):
        numa_ledger.claim("first", {"host0": located("NUMA_TOPOLOGY=1:dedicated=1:on=0;0>4")})
        numa_ledger.claim("second", {"host0": located("NUMA_TOPOLOGY=1:dedicated=1:on=0;0>4")})
    assert reads == [4]  # what is assigned has one place


def test_a_decision_on_cells_that_changed_since_is_made_again(
    numa_ledger: ro.Ledger, between: Any
) -> None:
    """CPU 4 goes offline after the cells were read."""
    without = cells()
    first = without.cells[0].replace(dedicated=range(5, 8))
    without.update(cells=[first, without.cells[1]])
    tree = host_of("host0", without, DISK_GB=100)
    between(iter([lambda: numa_ledger.sync(tree)]))
    numa_ledger.claim("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=4"})
    assert topology(numa_ledger, "job").placed[0].cell == 1
