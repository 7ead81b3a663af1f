"""NUMA cells that change under those who use them, and hosts that get cells."""

from __future__ import annotations

from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.sync import sync_host
from resource_objects.providers.plan import Plan
from resource_objects.providers.reshape import Move, NewProvider, NewShare, Part, Reshape
from resource_objects.resources.numa import HostCell, NUMATopologyInventory
from resource_objects.testing.conformance.suite import host_of
from resource_objects.testing.refusals import raises_code
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
    assert ledger.assigned_amounts("job") == {"host0/numa0": ro.Amounts("PCPU=3")}
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
    with raises_code("UnitTaken", match=r"cpu3.*job holds 1"):
        ledger.claim("other", {"host0": located("NUMA_TOPOLOGY=1:dedicated=1:on=1;0>3")})
    for name, cpus in (("other", "4-5"), ("more", "6-7")):
        ledger.claim(name, {"host0": "NUMA_TOPOLOGY=1:dedicated=2"})
        assert topology(ledger, name).cpuset == cpus
    with pytest.raises(exceptions.CapacityException):
        ledger.claim("last", {"host0": "NUMA_TOPOLOGY=1:dedicated=1"})
    assert held(ledger, "job") == {
        ("host0/numa0", "PCPU"): (2, ("cpu0", "cpu1")),
        ("host0/numa1", "PCPU"): (2, ("cpu2", "cpu3")),
    }


# --- cells that are numbered anew -----------------------------------------------------------------


def divided(count: int, **facts: Any) -> ro.Provider:
    """Return a host of 16 dedicated CPUs and 4 GiB in so many cells."""
    size = 16 // count
    found = [
        HostCell(n, dedicated=range(size * n, size * n + size), memory_mb=4096 // count)
        for n in range(count)
    ]
    return host_of("host0", NUMATopologyInventory(found), **facts)


def pinned(ledger: ro.Ledger) -> dict[int, tuple[int, ...]]:
    """Return the CPUs of each cell that are used; all of them are known by name."""
    usage = ledger.inventories("host0")[TOPOLOGY].usage  # type: ignore[attr-defined]
    assert not any(cell.loose for cell in usage)
    return {cell.cell: cell.pinned for cell in usage if cell.pinned}


@pytest.mark.parametrize("way", ["sync", "apply", "apply definitions", "dry run"])
def test_a_cell_that_is_reported_as_several_keeps_its_consumers(
    ledger: ro.Ledger, way: str
) -> None:
    ledger.sync(divided(2))
    for name in ("a", "b"):
        ledger.claim(name, {"host0": "NUMA_TOPOLOGY=1:dedicated=4:memory=512"})
    assert [topology(ledger, name).cpuset for name in ("a", "b")] == ["0-3", "8-11"]
    plan = ledger.diff(divided(4))
    if way == "sync":
        assert ledger.sync(divided(4)).moved_consumers == ("b",)
    elif way == "apply":
        ledger.apply(Plan.from_json(plan.to_json()))
    elif way == "apply definitions":
        assert ledger.apply(Plan(plan.definitions)) == ()
    else:
        assert ledger.apply(plan, dry_run=True) == ()
        assert ledger.apply(Plan(plan.definitions), dry_run=True) == ()
        assert pinned(ledger) == {0: (0, 1, 2, 3), 1: (8, 9, 10, 11)}
        return
    assert [shown(topology(ledger, name)) for name in ("a", "b")] == [
        "1:dedicated=4:memory=512:on=0;0>0+1>1+2>2+3>3",
        "1:dedicated=4:memory=512:on=2;0>8+1>9+2>10+3>11",
    ]
    assert pinned(ledger) == {0: (0, 1, 2, 3), 2: (8, 9, 10, 11)}
    assert held(ledger, "b")["host0/numa2", "MEMORY_MB"] == (512, ())
    assert not list(ledger.audit())
    request = ro.Request("NUMA_TOPOLOGY=1:dedicated=4")
    with pytest.raises(exceptions.CapacityException) as refused:
        ledger.claim("c", {"host0": "NUMA_TOPOLOGY=3:dedicated=12"})
    for consumer in ("a", "b"):
        named = [one.cell for one in refused.value.reasons if consumer in dict(one.holders)]
        assert len(named) < 2
    for name, cpus in (("c", "4-7"), ("d", "12-15")):
        ledger.claim(name, ledger.snapshot().candidates(request))
        assert topology(ledger, name).cpuset == cpus
    for name in "abcd":
        ledger.release(name)
    assert used(ledger) == {}


def test_cells_that_become_one_keep_their_consumers(ledger: ro.Ledger) -> None:
    ledger.sync(divided(4))
    for name in "abcd":
        ledger.claim(name, {"host0": "NUMA_TOPOLOGY=1:dedicated=2:memory=64"})
    ledger.claim("two", {"host0": "NUMA_TOPOLOGY=2:dedicated=2"})
    changed = ledger.sync(divided(2))
    assert (changed.removed, changed.moved_consumers) == (2, ("b", "c", "d", "two"))
    assert [topology(ledger, name).cpuset for name in "abcd"] == ["0-1", "4-5", "8-9", "12-13"]
    assert [topology(ledger, name).memory_nodes for name in "abcd"] == ["0", "0", "1", "1"]
    # two guest cells need a host cell each, so their CPUs are all that is known
    assert ledger.assigned_amounts("two") == {"host0/numa0": ro.Amounts("PCPU=2")}
    assert pinned(ledger) == {0: (0, 1, 2, 4, 5, 6), 1: (8, 9, 12, 13)}
    assert ledger.sync(divided(4)).moved_consumers == ("b", "c", "d", "two")
    assert topology(ledger, "two").cpuset == "2,6"
    assert not list(ledger.audit())


def test_a_guest_cell_on_two_cells_keeps_its_cpus(ledger: ro.Ledger) -> None:
    """Its memory stays in one amount: nothing says how much of it is in which cell."""
    ledger.sync(divided(2))
    ledger.claim("a", {"host0": "NUMA_TOPOLOGY=1:dedicated=8:memory=512"})
    ledger.sync(divided(4))
    assert pinned(ledger) == {0: (0, 1, 2, 3), 1: (4, 5, 6, 7)}
    assert ledger.assigned_amounts("a") == {
        "host0/numa0": ro.Amounts("MEMORY_MB=512,PCPU=4"),
        "host0/numa1": ro.Amounts("PCPU=4"),
    }
    ledger.sync(divided(2))
    assert topology(ledger, "a").cpuset == "0-7"


@pytest.mark.parametrize(
    "amounts",
    [
        "NUMA_TOPOLOGY=1:dedicated=2",
        "NUMA_TOPOLOGY=1:shared=2:memory=64",
        "NUMA_TOPOLOGY=1:shared=1:dedicated=2:memory=64",
        "NUMA_TOPOLOGY=1:shared=1:memory=64:page_size=2MB",
        "NUMA_TOPOLOGY=2:shared=2:dedicated=2:memory=64,DISK_GB=1",
    ],
)
def test_cells_that_exchange_their_numbers_keep_their_consumers(
    ledger: ro.Ledger, amounts: str
) -> None:
    first, second = cells().cells
    before = host_of("host0", cells(), DISK_GB=9)
    swapped = [first.replace(id=1), second.replace(id=0)]
    ledger.sync(before)
    ledger.claim("job", {"host0": amounts})
    was = topology(ledger, "job")
    count = len(was.placed)
    ledger.sync(host_of("host0", NUMATopologyInventory(swapped), DISK_GB=9))
    now = topology(ledger, "job")
    assert now.unassigned() == was.unassigned()
    assert now.host_cells == ({1} if count == 1 else {0, 1})
    if "dedicated" in amounts:
        assert sorted(pinned(ledger)) == sorted(now.host_cells)
    assert not list(ledger.audit())
    ledger.sync(before)
    assert topology(ledger, "job") == was
    assert ledger.sync(before).moved_consumers == ()


def test_consumers_of_shared_cpus_are_divided_by_what_is_free(ledger: ro.Ledger) -> None:
    def shared(count: int) -> ro.Provider:
        size = 16 // count
        found = [
            HostCell(n, shared=range(size * n, size * n + size), memory_mb=4096 // count)
            for n in range(count)
        ]
        return host_of("host0", NUMATopologyInventory(found))

    ledger.sync(shared(2))
    for name in ("a", "b"):
        ledger.claim(name, {"host0": "NUMA_TOPOLOGY=1:shared=3:memory=600"})
        ledger.claim(f"{name}2", {"host0": "NUMA_TOPOLOGY=1:shared=3:memory=600"})
    ledger.sync(shared(4))
    homes = {name: topology(ledger, name).memory_nodes for name in ("a", "a2", "b", "b2")}
    assert sorted(homes.values()) == ["0", "1", "2", "3"]
    assert not list(ledger.usage(over_capacity=True))


def test_a_cpu_that_becomes_shared_in_another_cell_is_refused_as_in_its_own(
    ledger: ro.Ledger,
) -> None:
    ledger.sync(host_of("host0", small()))
    ledger.claim("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=4"})
    found = [
        HostCell(0, dedicated=[0, 1], memory_mb=1024),
        HostCell(1, shared=[2, 3], dedicated=[4, 5, 6, 7], memory_mb=1024),
    ]
    with raises_code("InventoryInUse", match="cpu2 of PCPU, allocated to job"):
        ledger.sync(host_of("host0", NUMATopologyInventory(found)))


def test_a_device_stays_its_consumers_where_its_cell_is_numbered_anew(ledger: ro.Ledger) -> None:
    def with_card(count: int, node: int) -> ro.Provider:
        host = divided(count)
        card = ro.Device("0000:3b:00.0", "10de", "2330", resource_class="PGPU", numa_node=node)
        host.add_parts("DEVICES", ro.PCIInventory([card]))
        return host

    ledger.sync(with_card(2, 1))
    ledger.claim("job", ledger.snapshot().candidates("NUMA_TOPOLOGY=1:dedicated=2,DEVICES=1*PGPU"))
    assert topology(ledger, "job").cpuset == "8-9"
    sync_host(ledger, with_card(4, 2))
    assert set(ledger.assigned_amounts("job")["host0"].names()) == {TOPOLOGY, "DEVICES"}
    assert (topology(ledger, "job").cpuset, topology(ledger, "job").memory_nodes) == ("8-9", "2")
    ledger.release("job")
    sync_host(ledger, with_card(4, 2))
    ledger.claim("job", ledger.snapshot().candidates("NUMA_TOPOLOGY=1:dedicated=2,DEVICES=1*PGPU"))
    assert topology(ledger, "job").memory_nodes == "2"


# --- cells that come and go -----------------------------------------------------------------------


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
    with raises_code("ProviderInUse"):
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
    assert ledger.assigned_amounts("job")["host0"] == located(
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
    with pytest.raises(ro.CapacityException, match="MEMORY_MB requested 1, free 0 of 150"):
        ledger.claim("job-3", {"big": {"NUMA_TOPOLOGY": ro.numa(shared=1, memory_mb=1)}})
