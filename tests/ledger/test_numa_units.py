"""Which CPUs are taken by name: those of a cell as it is now, whoever says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import resource_objects as ro
from resource_objects.resources.numa import HostCell, NUMATopologyInventory
from resource_objects.testing.conformance.suite import host_of
from resource_objects.testing.refusals import raises_code
from tests.ledger.conftest import around_reads
from tests.ledger.numa_hosts import TOPOLOGY, cells, held, topology, used
from tests.resources.numa.hosts import located

ASKED = ro.Request("NUMA_TOPOLOGY=1:dedicated=2")


def raw(provider: str, *units: str, kind: str = "PCPU", amount: int | None = None) -> ro.Allocation:
    count = len(units) if amount is None else amount
    return ro.Allocation(
        provider=provider, resource_class=kind, amount=ro.IntegerAmount(count), units=units
    )


def renumber(ledger: ro.Ledger, host: str = "host0") -> None:
    """Let the cells of a host change numbers: CPU 4 is of cell 1 then."""
    first, second = cells().cells
    swapped = [first.replace(id=1), second.replace(id=0)]
    ledger.sync(host_of(host, NUMATopologyInventory(swapped), DISK_GB=100))


def without_cpu_4(ledger: ro.Ledger, host: str = "host0") -> None:
    first, second = cells().cells
    fewer = first.replace(dedicated=range(5, 8))
    ledger.sync(host_of(host, NUMATopologyInventory([fewer, second]), DISK_GB=100))


def share_cpu_4(ledger: ro.Ledger, host: str = "host0") -> None:
    first, second = cells().cells
    shared = first.replace(shared=range(5), dedicated=range(5, 8))
    ledger.sync(host_of(host, NUMATopologyInventory([shared, second]), DISK_GB=100))


# --- what was found before the cells changed ---


CHANGES: list[Callable[[ro.Ledger], None]] = [renumber, share_cpu_4, without_cpu_4]


@pytest.mark.law(4)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("form", ["candidate", "list", "allocations"])
def test_a_place_found_on_cells_that_changed_since_is_not_taken(
    numa_ledger: ro.Ledger, change: Callable[[ro.Ledger], None], form: str
) -> None:
    found = numa_ledger.snapshot("host0").candidates(ASKED)
    one: Any = {"candidate": found[0], "list": [found[0]], "allocations": found[0].allocations}[
        form
    ]
    change(numa_ledger)
    lost = "UnitNotFound" if form == "allocations" else "StaleDefinition"
    with raises_code(lost):
        numa_ledger.claim("mine", one)
    with raises_code(lost):
        numa_ledger.claim_all({"mine": one})
    assert used(numa_ledger) == {}


@pytest.mark.law(4)
@pytest.mark.parametrize("write", ["claim", "replace", "move", "claim_all"])
def test_the_next_one_is_tried_where_cells_changed(numa_ledger: ro.Ledger, write: str) -> None:
    if write == "move":
        numa_ledger.claim("job", {"host1": "DISK_GB=1"})
    found = numa_ledger.snapshot().candidates(ASKED)
    assert [one.host for one in found[:2]] == ["host0", "host1"]
    renumber(numa_ledger)
    if write == "claim_all":
        numa_ledger.claim_all({"job": found})
    else:
        getattr(numa_ledger, write)("job", found)
    assert topology(numa_ledger, "job", "host1").cpuset == "4-5"


@pytest.mark.parametrize("is_mapping", [False, True])
def test_it_is_searched_afresh_where_cells_changed(
    numa_ledger: ro.Ledger, is_mapping: bool
) -> None:
    found = numa_ledger.snapshot("host0").candidates(ASKED)
    unchanged: Any = {"host1": numa_ledger.provider("host1").generation} if is_mapping else False
    renumber(numa_ledger)
    numa_ledger.claim("other", {"host0": located("NUMA_TOPOLOGY=1:dedicated=2:on=1;0>4+1>5")})
    numa_ledger.claim("mine", found, if_generation=unchanged)
    assert topology(numa_ledger, "mine").cpuset == "12-13"
    assert list(numa_ledger.audit()) == []


def test_definitions_that_are_demanded_are_the_same_for_every_place(
    numa_ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = numa_ledger.snapshot().candidates(ASKED)
    monkeypatch.setattr(numa_ledger, "snapshot", None)  # nothing is searched
    with raises_code("StaleDefinition", match="host1 was changed"):
        numa_ledger.claim("mine", found, if_generation={"host1": 99})


def test_a_host_that_has_more_of_something_else_is_no_other_place(numa_ledger: ro.Ledger) -> None:
    found = numa_ledger.snapshot("host0").candidates(ASKED)
    numa_ledger.sync(host_of("host0", cells(), DISK_GB=200))
    claim = numa_ledger.claim("mine", found[0])
    assert claim.allocations == found[0].allocations


def test_what_is_only_pages_relies_on_its_cell_too(numa_ledger: ro.Ledger) -> None:
    found = numa_ledger.snapshot("host0").candidates("NUMA_TOPOLOGY=1:memory=4:page_size=2MB")
    renumber(numa_ledger)
    with raises_code("StaleDefinition"):
        numa_ledger.claim("mine", found[0])


# --- units by name ---


WRONG = {
    "another spelling": raw("host0/numa0", "cpu04"),
    "no CPU of anybody": raw("host0/numa0", "cpu999"),
    "of another cell": raw("host0/numa0", "cpu12"),
    "a shared CPU": raw("host0/numa0", "cpu0"),
    "no CPU": raw("host0/numa1", "gpu1"),
    "one of two": raw("host0/numa1", "cpu12", "cpu4"),
    "of what has no units": raw("host0/numa0", "cpu4", kind="VCPU"),
    "of memory": raw("host0/numa0", "cpu4", kind="MEMORY_MB"),
    "of the host": raw("host0", "cpu4"),
}
WRITES = ["claim", "replace", "adjust", "claim_all", "move"]


def write(ledger: ro.Ledger, how: str, given: Any) -> None:
    if how == "move":
        ledger.claim("job", {"host1": "DISK_GB=1"})
    if how == "claim_all":
        ledger.claim_all({"job": given})
    else:
        getattr(ledger, how)("job", given)


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
@pytest.mark.parametrize("how", WRITES)
def test_what_is_no_unit_of_a_cell_is_refused(
    numa_ledger: ro.Ledger, how: str, wrong: ro.Allocation
) -> None:
    with raises_code("UnitNotFound", match=rf"{wrong.units[-1]} is not a unit .*host0"):
        write(numa_ledger, how, [wrong])
    assert used(numa_ledger) == {}


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize(
    "wrong",
    [
        raw("host0/numa0", "cpu4", amount=3),
        raw("host0/numa0", "cpu4", "cpu5", amount=1),
    ],
    ids=["too few", "too many"],
)
def test_units_are_as_many_as_the_amount(
    numa_ledger: ro.Ledger, how: str, wrong: ro.Allocation
) -> None:
    with raises_code("InvalidAmount", match=r"units of PCPU at host0/numa0"):
        write(numa_ledger, how, [wrong])
    assert used(numa_ledger) == {}


@pytest.mark.parametrize("how", WRITES)
def test_units_of_a_cell_are_taken_by_name(numa_ledger: ro.Ledger, how: str) -> None:
    write(numa_ledger, how, [raw("host0/numa1", "cpu13", "cpu15")])
    assert held(numa_ledger, "job") == {("host0/numa1", "PCPU"): (2, ("cpu13", "cpu15"))}
    with raises_code("UnitTaken"):
        numa_ledger.claim("other", [raw("host0/numa1", "cpu15")])
    numa_ledger.adjust("job", [raw("host0/numa1", "cpu13", amount=-1)])
    assert held(numa_ledger, "job") == {("host0/numa1", "PCPU"): (1, ("cpu15",))}


def test_units_beside_a_topology_elsewhere_are_looked_at_too(numa_ledger: ro.Ledger) -> None:
    asked = ro.Allocation(provider="host0", resource_class=TOPOLOGY, amount=ro.numa(dedicated=1))
    with raises_code("UnitNotFound"):
        numa_ledger.claim("job", [asked, raw("host1/numa0", "cpu0")])
    numa_ledger.claim("job", [asked, raw("host1/numa0", "cpu4")])


@pytest.mark.law(4)
def test_a_unit_that_was_of_another_cell_when_it_was_taken_is_taken(
    numa_ledger: ro.Ledger,
) -> None:
    numa_ledger.claim("first", [raw("host0/numa0", "cpu4")])
    renumber(numa_ledger)
    with raises_code("UnitTaken", match="first holds 1"):
        numa_ledger.claim("second", [raw("host0/numa1", "cpu4")])
    numa_ledger.replace("first", [raw("host0/numa1", "cpu4")])  # of it itself
    assert held(numa_ledger, "first") == {("host0/numa1", "PCPU"): (1, ("cpu4",))}


def test_who_holds_a_unit_keeps_it_though_it_is_none_any_more(numa_ledger: ro.Ledger) -> None:
    claim = numa_ledger.claim("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=2"})
    without_cpu_4(numa_ledger)
    numa_ledger.replace("job", [*claim.allocations, raw("host0", kind="DISK_GB", amount=1)])
    assert used(numa_ledger)["host0 DISK_GB"] == 1
    numa_ledger.release("job")
    with raises_code("UnitNotFound", match="cpu4"):
        numa_ledger.claim("job", claim)


def test_other_hosts_name_their_units_as_they_like(ledger: ro.Ledger) -> None:
    ledger.sync(ro.Provider("box", "PCPU=8,PGPU=4"))
    given = [raw("box", "gpu1", kind="PGPU", amount=2), raw("box", "cpu04")]
    ledger.claim("job", given)
    assert held(ledger, "job") == {
        ("box", "PGPU"): (2, ("gpu1",)),
        ("box", "PCPU"): (1, ("cpu04",)),
    }


@pytest.fixture
def reads(numa_ledger: ro.Ledger, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What is read of trees; after each read what is put in the list first happens."""
    log, in_step = list[Any](), [False]

    def wrap(read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(*trees: Any, **how: Any) -> Any:
            columns = read(*trees, **how)
            if in_step[0]:
                return columns
            if log and callable(log[0]):
                in_step[0] = True
                log.pop(0)()
                in_step[0] = False
            log.append(trees)
            return columns

        return reading

    around_reads(monkeypatch, numa_ledger, wrap)
    yield log


def test_what_a_search_found_is_not_read_again(numa_ledger: ro.Ledger, reads: list[Any]) -> None:
    found = numa_ledger.snapshot().candidates(ASKED)
    reads.clear()
    numa_ledger.claim("job", found)
    numa_ledger.replace("job", found[1])
    numa_ledger.claim_all({"other": found[0]})
    numa_ledger.claim("counted", {"host0/numa0": "PCPU=1"})
    assert reads == []
    numa_ledger.claim("named", [raw("host0/numa1", "cpu12")])
    assert len(reads) == 1


@pytest.mark.law(4)
@pytest.mark.parametrize("how", WRITES)
def test_units_are_looked_at_again_if_the_cells_change_meanwhile(
    numa_ledger: ro.Ledger, reads: list[Any], how: str
) -> None:
    reads.append(lambda: share_cpu_4(numa_ledger))
    with raises_code("UnitNotFound", "StaleDefinition") as refused:
        write(numa_ledger, how, [raw("host0/numa0", "cpu4")])
    assert refused.value.code == "UnitNotFound" or how == "claim_all"
    assert used(numa_ledger) == {}


def test_units_are_taken_though_the_cells_change_meanwhile(
    numa_ledger: ro.Ledger, reads: list[Any]
) -> None:
    reads.append(lambda: share_cpu_4(numa_ledger))
    numa_ledger.claim("job", [raw("host0/numa0", "cpu5")])
    assert held(numa_ledger, "job") == {("host0/numa0", "PCPU"): (1, ("cpu5",))}


# --- which units there are ---


def test_a_cell_says_which_units_it_has() -> None:
    cell = NUMATopologyInventory([HostCell(0, shared=[0], dedicated=[1, 2], memory_mb=64)])
    assert cell.units("PCPU") == {"cpu1", "cpu2"}
    assert (cell.units("VCPU"), cell.units("MEMORY_MB")) == (frozenset(), frozenset())


# --- definitions that are demanded ---


@pytest.mark.parametrize(
    "given", [{"host0": "NUMA_TOPOLOGY=1:dedicated=1"}, {"host0": "DISK_GB=1"}]
)
@pytest.mark.parametrize("how", ["claim", "replace", "move", "claim_all"])
def test_nothing_was_found_at_definitions_by_who_decides_elsewhere(
    numa_ledger: ro.Ledger, how: str, given: Any
) -> None:
    if how == "move":
        numa_ledger.claim("job", {"host1": "DISK_GB=1"})
    with raises_code("InvalidField", match="if_generation"):
        if how == "claim_all":
            numa_ledger.claim_all({"job": given}, if_generation=True)
        else:
            getattr(numa_ledger, how)("job", given, if_generation=True)


def test_that_is_said_before_it_is_put_anywhere(numa_ledger: ro.Ledger) -> None:
    with raises_code("InvalidField", match="if_generation"):
        numa_ledger.claim("job", {"host0": "NUMA_TOPOLOGY=1:dedicated=9"}, if_generation=True)
    with raises_code("InvalidField", match="if_generation"):
        numa_ledger.claim_all({"job": {"host0": "NUMA_TOPOLOGY=1:dedicated=9"}}, if_generation=True)


def test_a_candidate_of_ones_own_choice_is_told_again_as_it_was_put() -> None:
    ledger = ro.connect("memory://")
    four = [HostCell(n, dedicated=range(4 * n, 4 * n + 4)) for n in range(2)]
    ledger.sync(host_of("host0", NUMATopologyInventory(four)))
    (found,) = ledger.snapshot().candidates("NUMA_TOPOLOGY=2:dedicated=4")
    ledger.claim("job", found)
    assert (
        ledger.assigned_amounts("job")["host0"]["NUMA_TOPOLOGY"] == found.located["NUMA_TOPOLOGY"]
    )
