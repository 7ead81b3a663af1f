"""NUMA cells that change under those who use them, and hosts that get cells."""

from __future__ import annotations

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers.plan import Plan
from resource_objects.providers.reshape import Move, NewProvider, NewShare, Part, Reshape
from resource_objects.resources.numa import (
    HostCell,
    NUMATopologyInventory,
)
from resource_objects.testing.conformance.suite import host_of
from tests.ledger.numa_hosts import TOPOLOGY, cells, held, small, topology, used
from tests.resources.numa.hosts import located, shown

# --- cells that change ---


def test_a_cpu_that_goes_offline_while_it_is_taken_stays_its_owners(ledger: ro.Ledger) -> None:
    ledger.sync(host_of("host0", small()))
    ledger.claim("job", {"host0": "NUMA_TOPOLOGY=2:dedicated=4:memory=64"})
    where = topology(ledger, "job")
    inventory = small()
    inventory.update(cells=[inventory.cells[0].replace(dedicated=range(1, 4)), inventory.cells[1]])
    ledger.sync(host_of("host0", inventory))
    assert topology(ledger, "job") == where  # it had CPU 0
    view = ledger.inventories("host0")[TOPOLOGY]
    assert view.usage[0].pinned == (1,)  # type: ignore[attr-defined]
    assert view.usage[0].loose == 1  # type: ignore[attr-defined]  # counted, wherever it is
    ledger.claim("more", {"host0": located("NUMA_TOPOLOGY=1:dedicated=1:on=0;0>2")})
    with pytest.raises(exceptions.CapacityException):  # two of three are taken, and it is offline
        ledger.claim("most", {"host0": located("NUMA_TOPOLOGY=1:dedicated=1:on=0;0>3")})
    with pytest.raises(exceptions.ForeignAmount):
        ledger.claim("most", {"host0": located("NUMA_TOPOLOGY=1:dedicated=1:on=0;0>0")})
    ledger.adjust("job", {"host0": {TOPOLOGY: -where}})
    ledger.claim("most", {"host0": located("NUMA_TOPOLOGY=1:dedicated=2:on=0;0>1+1>3")})
    assert not list(ledger.usage(over_capacity=True))


def test_more_cpus_taken_than_are_left_is_over_full_and_heals(ledger: ro.Ledger) -> None:
    ledger.sync(host_of("host0", small()))
    ledger.claim("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=4:memory=64"})
    inventory = small()
    inventory.update(cells=[inventory.cells[0].replace(dedicated=[3]), inventory.cells[1]])
    ledger.sync(host_of("host0", inventory))
    assert [(u.provider, u.resource_class) for u in ledger.usage(over_capacity=True)] == [
        ("host0/numa0", "PCPU")
    ]
    assert shown(topology(ledger, "job")).endswith("on=0;0>0+1>1+2>2+3>3")
    with pytest.raises(exceptions.CapacityException):
        ledger.claim("more", {"host0": "NUMA_TOPOLOGY=2:dedicated=2"})
    assert ledger.claim("more", {"host0": "NUMA_TOPOLOGY=1:dedicated=1"})
    ledger.release("job")
    assert not list(ledger.usage(over_capacity=True))


def test_whose_core_is_not_known_any_more_is_told_as_counts(ledger: ro.Ledger) -> None:
    """Which vCPU is where depends on the cores: no guess is told for the truth."""
    ledger.sync(host_of("host0", small(siblings=())))
    inventory = small()
    cores = [inventory.cells[0].replace(siblings=[(0, 2), (1, 3)]), inventory.cells[1]]
    inventory.update(cells=cores)
    ledger.sync(host_of("host0", inventory))
    ledger.claim("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=3"})
    assert shown(topology(ledger, "job")).endswith("on=0;0>0+1>2+2>1")
    inventory.update(
        cells=[cores[0].replace(siblings=[(1, 3)], dedicated=[1, 3]), inventory.cells[1]]
    )
    ledger.sync(host_of("host0", inventory))
    assert ledger.assigned("job") == {"host0/numa0": ro.Amounts("PCPU=3")}
    inventory.update(cells=[cores[0].replace(dedicated=[1, 3]), inventory.cells[1]])
    ledger.sync(host_of("host0", inventory))  # the cores are known: it only serves nobody anew
    assert shown(topology(ledger, "job")).endswith("on=0;0>0+1>2+2>1")


@pytest.mark.law(4)
def test_a_cpu_that_is_numbered_to_another_cell_is_not_given_twice(ledger: ro.Ledger) -> None:
    """As by other firmware settings: CPUs 2 and 3 change places with 4 and 5."""
    ledger.sync(host_of("host0", small()))
    ledger.claim("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=4"})  # CPUs 0 to 3
    inventory = small()
    first, second = inventory.cells
    inventory.update(
        cells=[first.replace(dedicated=[0, 1, 4, 5]), second.replace(dedicated=[2, 3, 6, 7])]
    )
    ledger.sync(host_of("host0", inventory))
    with pytest.raises(exceptions.UnitTaken, match=r"cpu3.*job holds 1"):
        ledger.claim("other", {"host0": located("NUMA_TOPOLOGY=1:dedicated=1:on=1;0>3")})
    ledger.claim("other", {"host0": "NUMA_TOPOLOGY=1:dedicated=2"})
    assert topology(ledger, "other").cpuset == "6-7"
    with pytest.raises(exceptions.CapacityException):
        ledger.claim("more", {"host0": "NUMA_TOPOLOGY=1:dedicated=1"})


def test_cells_come_and_go(ledger: ro.Ledger) -> None:
    two = small()
    one = NUMATopologyInventory(two.cells[:1])
    ledger.sync(host_of("host0", one))
    ledger.claim("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=4"})
    with pytest.raises(exceptions.CapacityException):
        ledger.claim("more", {"host0": "NUMA_TOPOLOGY=1:dedicated=1"})
    assert ledger.sync(host_of("host0", two)).created == 1
    ledger.claim("more", {"host0": "NUMA_TOPOLOGY=1:dedicated=1"})
    assert topology(ledger, "more").placed[0].cell == 1
    with pytest.raises(exceptions.ProviderInUse):
        ledger.sync(host_of("host0", one))
    ledger.release("more")
    assert ledger.sync(host_of("host0", one)).removed == 1
    assert shown(topology(ledger, "job")).endswith("on=0;0>0+1>1+2>2+3>3")


def test_a_host_gets_cells_under_those_who_use_it(ledger: ro.Ledger) -> None:
    """They float until each is put somewhere, which is one write for each."""
    flat = ro.Provider("host0", "PCPU=8,MEMORY_MB=2048,DISK_GB=9")
    ledger.sync(flat)
    for name in ("a", "b"):
        ledger.claim(name, {"host0": "PCPU=4,MEMORY_MB=64"})
    ledger.sync(host_of("host0", small(), DISK_GB=9))
    for name in ("a", "b"):
        with pytest.raises(exceptions.CapacityException):
            ledger.claim("c", {"host0": "NUMA_TOPOLOGY=1:dedicated=1"})
        ledger.replace(name, {"host0": "NUMA_TOPOLOGY=2:dedicated=4:memory=64"})
    assert [topology(ledger, name).cpuset for name in ("a", "b")] == ["0-1,4-5", "2-3,6-7"]
    assert used(ledger)["host0 PCPU"] == 8


def test_a_reshape_takes_counts_and_cpus_by_name_into_new_cells(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("host0", "PCPU=8,MEMORY_MB=2048"))
    here = {"provider": "host0", "resource_class": "PCPU"}
    named = ro.Allocation(**here, amount=ro.IntegerAmount(2), units=("cpu0", "cpu5"))
    ledger.claim("named", [named])
    ledger.claim("counted", {"host0": "MEMORY_MB=64"})
    create = tuple(
        NewProvider(
            cell.name,
            "host0",
            cell.inventories,
            shares=tuple(
                NewShare(one.resource_class, one.of, one.of_class, one.factor)
                for one in cell.shares
            ),
        )
        for cell in host_of("host0", small()).children
    )
    cpus = tuple(
        Part(f"host0/numa{n}", units=tuple(f"cpu{4 * n + k}" for k in range(4))) for n in (0, 1)
    )
    memory = (Part("host0/numa0"), Part("host0/numa1", consumers={"counted": 64}))
    moves = (Move("host0", "PCPU", cpus, total=0), Move("host0", "MEMORY_MB", memory, total=0))
    ledger.reshape(Reshape(moves, create))
    assert held(ledger, "named") == {
        ("host0/numa0", "PCPU"): (1, ("cpu0",)),
        ("host0/numa1", "PCPU"): (1, ("cpu5",)),
    }
    assert held(ledger, "counted") == {("host0/numa1", "MEMORY_MB"): (64, ())}
    ledger.replace("named", {"host0": "NUMA_TOPOLOGY=2:dedicated=2"})  # it says what it has
    assert topology(ledger, "named").cpuset == "0,5"
    assert used(ledger)["host0 PCPU"] == 2


def test_cells_of_a_plan_come_back_from_its_file(ledger: ro.Ledger) -> None:
    plan = ledger.diff(host_of("host0", cells()))
    ledger.apply(Plan.from_json(plan.to_json()))
    assert ledger.inventories("host0")[TOPOLOGY].cells == cells().cells  # type: ignore[attr-defined]


def test_a_host_of_one_cell_may_keep_it_itself(ledger: ro.Ledger) -> None:
    [cell] = NUMATopologyInventory([HostCell(0, dedicated=range(4), memory_mb=512)]).cells
    ledger.sync(ro.Provider("host0", {TOPOLOGY: NUMATopologyInventory([cell]), "DISK_GB": 5}))
    ledger.claim("job", {"host0": "PCPU=2,DISK_GB=1,NUMA_TOPOLOGY=1:dedicated=2"})
    ledger.claim("floating", {"host0": "PCPU=1"})
    assert ledger.assigned("job")["host0"] == located(
        "DISK_GB=1,NUMA_TOPOLOGY=1:dedicated=2:on=0;0>0+1>1"
    )
    with pytest.raises(exceptions.CapacityException):
        ledger.claim("more", {"host0": "NUMA_TOPOLOGY=1:dedicated=2"})


# --- ratios --------------------------------------------------------------------------------------


def test_the_ratios_of_cells_are_kept_with_them(ledger: ro.Ledger) -> None:
    """Ordinary memory and shared CPUs are given out as often as the cell says, no more."""
    host = ro.Provider("big", "VCPU=2:allocation_ratio=2,MEMORY_MB=100:allocation_ratio=1.5")
    cell = ro.HostCell(0, shared=[0, 1], memory_mb=100)
    host.add_parts(
        "NUMA_TOPOLOGY", ro.NUMATopologyInventory([cell], cpu_ratio=2, memory_ratio="1.5")
    )
    ledger.sync(host)
    kept = ledger.inventories("big")["NUMA_TOPOLOGY"]
    assert isinstance(kept, ro.NUMATopologyInventory)
    assert (str(kept.cpu_ratio), str(kept.memory_ratio)) == ("2", "1.5")
    asked = {"big": {"NUMA_TOPOLOGY": ro.numa(shared=1, memory_mb=75)}}
    for job in ("job-1", "job-2"):
        ledger.claim(job, asked)
    with pytest.raises(ro.CapacityException, match="MEMORY_MB asked 1, free 0 of 150"):
        ledger.claim("job-3", {"big": {"NUMA_TOPOLOGY": ro.numa(shared=1, memory_mb=1)}})
