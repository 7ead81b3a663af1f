"""Cells that contradict each other: refused where they are declared, found where they are kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.providers import Provider
from resource_objects.providers.definition import diff
from resource_objects.providers.orders import Operation
from resource_objects.providers.plan import Plan
from resource_objects.resources import Inventories
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, PagePool
from resource_objects.testing.conformance.suite import host_of
from resource_objects.testing.refusals import raises_code
from tests.ledger.numa_hosts import TOPOLOGY, cells, held

_PAGES = [PagePool(size_kib=4, total=2048 * 256), PagePool(size_kib=2048, total=1024)]


def _cell(number: int = 0, first: int = 0, **figures: Any) -> HostCell:
    shown = {"shared": range(first, first + 4), "dedicated": range(first + 4, first + 8)}
    return HostCell(number, **{**shown, "memory_mb": 4096, "pages": _PAGES, **figures})


def _alone(*made: HostCell, ratios: tuple[int, ...] = ()) -> Provider:
    """Return a host of cells that each were made without the others."""
    host = host_of("host0", cells(), DISK_GB=100)
    for child, cell, ratio in zip(host.children, made, ratios or (1,) * len(made), strict=True):
        made_alone = NUMATopologyInventory([cell], cpu_ratio=ratio)
        child.inventories = Inventories({TOPOLOGY: made_alone})
    return host


_CONTRADICTIONS = [
    pytest.param(_alone(_cell(), _cell(0, 8)), "host cells: got [0]", id="one-id"),
    pytest.param(_alone(_cell(), _cell(1, 6)), "CPUs of the host cells: got [6, 7]", id="one-cpu"),
    pytest.param(
        _alone(_cell(), _cell(1, 8), ratios=(1, 2)), "VCPU ratio of cell 1", id="two-ratios"
    ),
]


# --- declared ---


@pytest.mark.law(8)
@pytest.mark.parametrize(("host", "said"), _CONTRADICTIONS)
def test_cells_that_contradict_each_other_are_refused(
    ledger: ro.Ledger, host: Provider, said: str
) -> None:
    for declare in (ledger.sync, ledger.diff):
        with pytest.raises(exceptions.InvalidTree, match="NUMA_TOPOLOGY of host0") as refused:
            declare(host.obj_clone())
        assert said in str(refused.value)
    assert list(ledger.trees()) == []
    plan = Plan(diff(None, host.obj_clone()))
    for dry_run in (True, False):
        with pytest.raises(exceptions.InvalidTree):
            ledger.apply(plan, dry_run=dry_run)


@pytest.mark.law(8)
def test_a_cell_that_is_changed_alone_is_compared_with_the_others(numa_ledger: ro.Ledger) -> None:
    wrong = NUMATopologyInventory([_cell(1, 6)])
    with pytest.raises(exceptions.InvalidTree, match="got \\[6, 7\\]"):
        numa_ledger.change("host0/numa1", inventories={TOPOLOGY: wrong})
    numa_ledger.change("host0/numa1", inventories={TOPOLOGY: NUMATopologyInventory([_cell(1, 16)])})
    assert [cell.id for cell in numa_ledger.inventories("host0")[TOPOLOGY].cells] == [0, 1]  # type: ignore[attr-defined]


@pytest.mark.law(8)
def test_the_cells_of_two_hosts_do_not_come_into_one_tree(numa_ledger: ro.Ledger) -> None:
    numa_ledger.sync(Provider("rack", "DISK_GB=1"))
    numa_ledger.change("host0", parent="rack")
    with pytest.raises(exceptions.InvalidTree, match="of rack"):
        numa_ledger.change("host1", parent="rack")


def _with(dedicated: Any, shared: Any) -> Provider:
    """Return the host with other CPUs in cell 0."""
    made = NUMATopologyInventory([_cell(0, shared=shared, dedicated=dedicated), _cell(1, 8)])
    return host_of("host0", made, DISK_GB=100)


@pytest.mark.law(4)
def test_a_cpu_that_is_held_by_name_does_not_become_a_shared_one(numa_ledger: ro.Ledger) -> None:
    numa_ledger.claim("a", {"host0": "NUMA_TOPOLOGY=1:dedicated=2"})
    assert held(numa_ledger, "a")["host0/numa0", "PCPU"] == (2, ("cpu4", "cpu5"))
    wanted = _with([5, 6, 7], [0, 1, 2, 3, 4])
    before = numa_ledger.inventories("host0")
    for declare in (numa_ledger.sync, lambda host: numa_ledger.apply(numa_ledger.diff(host))):
        with raises_code("InventoryInUse", match="cpu4 of PCPU, allocated to a") as refused:
            declare(wanted.obj_clone())
        assert refused.value.name == "host0/numa0"
    assert numa_ledger.inventories("host0") == before
    numa_ledger.sync(_with([4, 5, 7], [0, 1, 2, 3, 6]))  # nobody has that
    numa_ledger.sync(_with([5, 7], [0, 1, 2, 3, 6]))  # offline
    numa_ledger.sync(_with([4, 5, 7], [0, 1, 2, 3, 6]))
    numa_ledger.release("a")
    numa_ledger.sync(wanted)


# --- kept ---


def _raced(ledger: ro.Ledger) -> None:
    """Make a CPU a shared one as if its holder had come in between."""
    ledger.claim("a", {"host0": "NUMA_TOPOLOGY=1:dedicated=2"})
    changes = diff(ledger.provider("host0"), _with([5, 6, 7], [0, 1, 2, 3, 4]))
    ledger.backend.define(Operation(), changes)


@pytest.mark.law(4)
def test_a_cpu_that_is_held_and_shared_all_the_same_is_found(numa_ledger: ro.Ledger) -> None:
    _raced(numa_ledger)
    (finding,) = numa_ledger.audit()
    assert finding.kind == "unit_elsewhere"
    assert str(finding) == (
        "host0/numa0: cpu4 of PCPU is allocated to a, but is now provided in another way"
    )
    numa_ledger.change("host0", traits=["CUSTOM_A"])  # others are not kept from their work
    numa_ledger.sync(_with([4, 5, 6, 7], [0, 1, 2, 3]))
    assert not numa_ledger.audit()


def _body(old: str, new: str, cell: int) -> str:
    said = f"replace(body, '{old}', '{new}')"
    return f"UPDATE structures SET body = {said} WHERE provider_id = {cell}"


_ONE, _TWO = "host0/numa0", "host0/numa1"
_DAMAGE = [
    pytest.param(
        "UPDATE structures SET body = '{' WHERE provider_id = 2",
        [("contradiction", _ONE, None)],
        id="bad-description",
    ),
    pytest.param(
        _body("[12, 13, 14, 15]", "[4, 5, 6, 7]", 3),
        [
            ("unit_gone", _TWO, "cpu12"),
            ("unit_gone", _TWO, "cpu13"),
            ("contradiction", "host0", None),
        ],
        id="cpus-overlap",
    ),
    pytest.param(
        _body("[4, 5, 6, 7]", "[4, 5, 6]", 2),
        [("contradiction", _ONE, None)],
        id="fewer-than-counted",
    ),
    pytest.param(
        "DELETE FROM structures WHERE provider_id = 2",
        [("undescribed", _ONE, None)],
        id="no-description",
    ),
    pytest.param(
        "DELETE FROM allocation_units WHERE unit = 'cpu4'",
        [("unit_missing", _ONE, None)],
        id="unit-lost",
    ),
    pytest.param(
        "UPDATE allocation_units SET unit = 'cpu99' WHERE unit = 'cpu4'",
        [("unit_gone", _ONE, "cpu99")],
        id="unit-renamed",
    ),
    pytest.param(
        "INSERT INTO allocation_units SELECT 3, 'cpu4', consumer_id, class_id"
        " FROM allocation_units WHERE unit = 'cpu12'",
        [("unit_twice", _TWO, "cpu4"), ("unit_missing", _TWO, None)],
        id="unit-at-two-cells",
    ),
    pytest.param(
        "DELETE FROM inventories WHERE provider_id = 2 AND used = 0",
        [("contradiction", _ONE, None)],
        id="figures-lost",
    ),
]


@pytest.fixture
def damaged(tmp_path: Path) -> Callable[[str], ro.Ledger]:
    """Return a ledger in which rows were changed by hand while somebody holds cells."""

    def make(damage: str) -> ro.Ledger:
        url = f"sqlite:///{tmp_path}/damaged.db"
        with ro.connect(url) as ledger:
            for name in ("host0", "host1"):
                ledger.sync(host_of(name, cells(), DISK_GB=100))
            ledger.claim("a", {"host0": "NUMA_TOPOLOGY=2:shared=2:dedicated=4:memory=512"})
            assert not ledger.audit()
        rows = sqlite3.connect(tmp_path / "damaged.db")
        rows.execute(damage)
        rows.commit()
        rows.close()
        return ro.connect(url)

    return make


@pytest.mark.law(4, 8)
@pytest.mark.parametrize(("damage", "expected"), _DAMAGE)
def test_rows_that_contradict_each_other_are_found(
    damaged: Callable[[str], ro.Ledger], damage: str, expected: list[tuple[str, str, str | None]]
) -> None:
    with damaged(damage) as ledger:
        found = ledger.audit()
        assert [(one.kind.value, one.provider, one.unit) for one in found] == expected
        assert all(str(found).splitlines())


@pytest.mark.law(8)
@pytest.mark.parametrize("body", ["{", "", "[]", '{"id": 9}'])
def test_one_bad_description_does_not_hide_the_figures(
    damaged: Callable[[str], ro.Ledger], body: str
) -> None:
    with damaged(f"UPDATE structures SET body = '{body}' WHERE provider_id = 2") as ledger:
        usage = ledger.usage()
        assert usage[_ONE, "PCPU"].holders == (("a", 2),)
        assert {use.resource_class: use.used for use in usage if use.provider == _ONE} == {
            "CUSTOM_HUGEPAGES_2048KB": 0,
            "MEMORY_MB": 256,
            "PCPU": 2,
            "VCPU": 1,
        }
        other = [use for use in usage if use.provider.startswith("host1")]
        assert list(ledger.usage("host1")) == other
        assert list(ledger.usage(over_capacity=True)) == []
        assert [root.name for root in usage.providers] == ["host0", "host1"]
        assert "DISK_GB" in str(usage)
