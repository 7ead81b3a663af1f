"""What the ledger tells of who holds a topology, when something else is held or changed since."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers import Allocation
from resource_objects.resources.numa import HostCell, NUMATopologyInventory
from resource_objects.testing.conformance.suite import host_of
from resource_objects.testing.refusals import raises_code
from tests.ledger.numa_hosts import TOPOLOGY, cells, held, topology, used
from tests.resources.numa.hosts import located, shown

BOTH = {
    "as counts": "NUMA_TOPOLOGY=1:dedicated=2",
    "assigned": located("NUMA_TOPOLOGY=1:dedicated=2:on=0;0>5+1>4"),
}


def _define(ledger: ro.Ledger, *changed: HostCell) -> None:
    """Define host0 again, its cells in place of those that it has."""
    ledger.sync(host_of("host0", NUMATopologyInventory(changed), DISK_GB=100))


def _with(number: int, **changes: Any) -> HostCell:
    return cells().cells[number].replace(**changes)


def _renumbered() -> list[HostCell]:
    """The cells as they are once firmware calls the first one the second."""
    return [cell.replace(id=1 - cell.id) for cell in reversed(cells().cells)]


# --- something else is held beside it ---


@pytest.mark.law(3)
@pytest.mark.parametrize(
    "asked",
    [
        "NUMA_TOPOLOGY=1:dedicated=2,CUSTOM_HUGEPAGES_2048KB=5",
        "NUMA_TOPOLOGY=1:dedicated=2:memory=64,CUSTOM_HUGEPAGES_2048KB=5",
        "NUMA_TOPOLOGY=2:dedicated=4:memory=64:page_size=2MB,CUSTOM_HUGEPAGES_2048KB=5",
    ],
)
def test_huge_pages_beside_a_topology_leave_it_told(numa_ledger: ro.Ledger, asked: str) -> None:
    found = numa_ledger.snapshot("host0").candidates(asked)
    numa_ledger.claim("job", found)
    assert topology(numa_ledger, "job") == found[0].located[TOPOLOGY]
    told = dict(numa_ledger.assigned_amounts("job"))
    [cell] = [name for name in told if name != "host0"]
    assert told[cell] == ro.Amounts("CUSTOM_HUGEPAGES_2048KB=5")
    numa_ledger.replace("job", numa_ledger.snapshot("host1").candidates(asked))
    assert used(numa_ledger) == {}


@pytest.mark.parametrize("asked", BOTH.values(), ids=BOTH)
def test_counts_taken_of_another_cell_leave_it_told(numa_ledger: ro.Ledger, asked: str) -> None:
    numa_ledger.claim("job", {"host0": asked})
    before = topology(numa_ledger, "job")
    numa_ledger.adjust("job", {"host0/numa1": "VCPU=1", "host0/numa0": "MEMORY_MB=8"})
    assert numa_ledger.assigned_amounts("job") == {
        "host0": ro.Amounts({TOPOLOGY: before}),
        "host0/numa1": ro.Amounts("VCPU=1"),
        "host0/numa0": ro.Amounts("MEMORY_MB=8"),
    }
    told = dict(numa_ledger.assigned_amounts("job"))
    numa_ledger.release("job")
    numa_ledger.claim("job", {"host0": told.pop("host0")})
    numa_ledger.adjust("job", told)
    assert topology(numa_ledger, "job") == before


def test_what_may_be_in_two_cells_is_told_as_counts(numa_ledger: ro.Ledger) -> None:
    numa_ledger.claim("job", {"host0": "NUMA_TOPOLOGY=1:shared=1"})
    numa_ledger.adjust("job", {"host0/numa1": "VCPU=1"})
    assert numa_ledger.assigned_amounts("job") == {
        f"host0/numa{n}": ro.Amounts("VCPU=1") for n in (0, 1)
    }
    numa_ledger.adjust("job", {"host0/numa1": "VCPU=-1", "host1/numa0": "VCPU=2"})
    assert shown(topology(numa_ledger, "job")).startswith("1:shared=1:on=0")


def test_who_stays_where_it_is_may_hold_more_there(numa_ledger: ro.Ledger) -> None:
    for name in ("first", "job"):
        numa_ledger.claim(name, {"host0": "NUMA_TOPOLOGY=1:dedicated=2"})
    numa_ledger.adjust("job", {"host0/numa1": "VCPU=1"})
    numa_ledger.release("first")
    numa_ledger.replace("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=2"})
    assert held(numa_ledger, "job") == {("host0/numa1", "PCPU"): (2, ("cpu12", "cpu13"))}


# --- the cells are others now ---


@pytest.mark.parametrize("asked", BOTH.values(), ids=BOTH)
@pytest.mark.parametrize(
    ("online", "cpus"),
    [
        pytest.param([5, 6, 7], "on=0;0>5+1>6", id="others of its cell are free"),
        pytest.param([5], "on=1;0>12+1>13", id="its cell has too few"),
    ],
)
def test_a_consumer_of_a_cpu_that_went_offline_keeps_its_other_cpu_if_it_can(
    numa_ledger: ro.Ledger, asked: str, online: list[int], cpus: str
) -> None:
    numa_ledger.claim("job", {"host0": asked})
    _define(numa_ledger, _with(0, dedicated=online), cells().cells[1])
    more = "NUMA_TOPOLOGY=1:dedicated=2,DISK_GB=1"
    numa_ledger.replace("job", {"host0": more})
    assert shown(topology(numa_ledger, "job")).endswith(cpus)
    assert numa_ledger.assigned_amounts("job")["host0"]["DISK_GB"] == ro.IntegerAmount(1)


@pytest.mark.parametrize("asked", BOTH.values(), ids=BOTH)
def test_a_topology_follows_the_cpus_of_its_cell(numa_ledger: ro.Ledger, asked: str) -> None:
    numa_ledger.claim("job", {"host0": asked})
    before = topology(numa_ledger, "job")
    _define(numa_ledger, *_renumbered())
    assert topology(numa_ledger, "job").cpuset == before.cpuset
    assert topology(numa_ledger, "job").memory_nodes == "1"
    _define(numa_ledger, *cells().cells)
    assert topology(numa_ledger, "job") == before


@pytest.mark.law(6)
def test_a_refusal_names_a_consumer_at_the_cell_that_has_its_cpus_now(
    numa_ledger: ro.Ledger,
) -> None:
    numa_ledger.claim("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=4"})
    numa_ledger.claim("bystander", {"host0": "NUMA_TOPOLOGY=1:dedicated=1"})
    _define(numa_ledger, *_renumbered())
    with pytest.raises(exceptions.CapacityException) as refused:
        numa_ledger.claim("late", {"host0": "NUMA_TOPOLOGY=1:dedicated=4"})
    found = {reason.cell: dict(reason.holders) for reason in refused.value.reasons}
    assert found == {0: {"bystander": 1}, 1: {"job": 4}}


# --- the request that is kept ---


def test_a_replacement_by_counts_forgets_the_request(numa_ledger: ro.Ledger) -> None:
    numa_ledger.claim("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=2"})
    assert numa_ledger.get_claim("job").request == ro.Request("NUMA_TOPOLOGY=1:dedicated=2")
    assert numa_ledger.replace("job", {"host0": "VCPU=1"}).request is None
    assert numa_ledger.get_claim("job").request is None
    [one] = numa_ledger.consumers()
    assert one.request is None
    numa_ledger.replace("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=1"})
    assert numa_ledger.get_claim("job").request == ro.Request("NUMA_TOPOLOGY=1:dedicated=1")
    numa_ledger.adjust("job", {"host0": "DISK_GB=1"})  # which leaves it
    assert numa_ledger.get_claim("job").request == ro.Request("NUMA_TOPOLOGY=1:dedicated=1")
    numa_ledger.move("job", {"host1": "VCPU=1"})
    assert numa_ledger.get_claim("job").request is None


# --- several at once ---


def test_of_several_that_hold_something_the_first_is_named(numa_ledger: ro.Ledger) -> None:
    names = ["zeta", "alpha", "mid"]
    for name in reversed(names[:2]):
        numa_ledger.claim(name, {"host0": "DISK_GB=1"})
    for asked in ("DISK_GB=1", "NUMA_TOPOLOGY=1:dedicated=1", "NUMA_TOPOLOGY=2:dedicated=8"):
        for order in (names, names[::-1]):
            first = next(name for name in order if name != "mid")
            with raises_code("ConsumerExists", match=first):
                numa_ledger.claim_all({name: {"host0": asked} for name in order})


@pytest.mark.parametrize("asked", ["DISK_GB=1", "NUMA_TOPOLOGY=1:shared=1"])
def test_the_names_of_all_are_looked_up_at_once(
    numa_ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    looks: list[list[str]] = []
    uuids = numa_ledger.backend.uuids

    def looking(names: Collection[str]) -> dict[str, str]:
        looks.append(sorted(names))
        return uuids(names)

    monkeypatch.setattr(numa_ledger.backend, "uuids", looking)
    plain = Allocation(
        provider="host1", resource_class="DISK_GB", amount=ro.IntegerAmount(1), units=("a",)
    )
    wanted: dict[str, Any] = {f"job-{n}": {f"host{n % 2}": asked} for n in range(6)}
    wanted["plain"] = [plain]
    wanted["by uuid"] = {uuids(["host0"])["host0"]: "DISK_GB=1"}
    numa_ledger.claim_all(wanted)
    assert looks == [["host0", "host1"]]
    with raises_code("ProviderNotFound", match="nowhere"):
        numa_ledger.claim_all({"a": {"host0": asked}, "b": {"nowhere": asked}})
