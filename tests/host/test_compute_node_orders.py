"""No resource guesses about another: the specification's loop has one result in any order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import resource_objects as ro
from resource_objects import exceptions, plugins
from resource_objects.host import columns as registry
from resource_objects.host.columns import (
    Column,
    CountColumn,
    NodeState,
    Settings,
    carried_field,
    coerced,
)
from resource_objects.host.compute_node import ComputeNode
from resource_objects.resources import Inventory
from resource_objects.resources.numa import HostCell, NUMATopologyInventory, PagePool
from resource_objects.resources.pci import Device, PCIInventory
from tests.support.lengths import examples

NUMA = "NUMA_TOPOLOGY"
REQUESTS = {
    "shared": "VCPU=4,MEMORY_MB=4096,NUMA_TOPOLOGY=2:shared=4:memory=4096",
    "dedicated": "NUMA_TOPOLOGY=1:dedicated=2:memory=512",
    "isolate": "NUMA_TOPOLOGY=1:dedicated=2:memory=512:thread_policy=isolate",
    "emulator": "NUMA_TOPOLOGY=1:dedicated=2:memory=64:emulator_policy=isolate",
    "pages": "NUMA_TOPOLOGY=2:shared=2:memory=2048:page_size=2MB",
    "any page": "NUMA_TOPOLOGY=1:shared=2:memory=1024:page_size=any",
    "devices": "DISK_GB=2,NUMA_TOPOLOGY=1:shared=2:memory=64,DEVICES=PGPU",
}


def cells() -> NUMATopologyInventory:
    return NUMATopologyInventory(
        HostCell(
            k,
            shared=range(8 * k, 8 * k + 4),
            dedicated=range(8 * k + 4, 8 * k + 8),
            siblings=[(8 * k + 4, 8 * k + 5), (8 * k + 6, 8 * k + 7)],
            memory_mb=8192,
            pages=[PagePool(size_kib=2048, total=1024)],
        )
        for k in (0, 1)
    )


def record() -> ComputeNode:
    node = ComputeNode(
        hypervisor_hostname="host0",
        vcpus=8,
        vcpus_used=0,
        cpu_allocation_ratio=1.0,
        memory_mb=16384,
        memory_mb_used=0,
        local_gb=100,
        local_gb_used=0,
        numa_topology=cells(),
    )
    gpus = [Device(f"0000:{n}:00.0", "10de", "2330", resource_class="PGPU") for n in ("3b", "5e")]
    node.update_inventories({"DEVICES": PCIInventory(gpus)})
    node.obj_reset_changes()
    return node


def view(consumer: str | None = None) -> ComputeNode:
    node = record().bind(ro.connect("memory://"), consumer)
    node.save()
    return node


def figures(node: ComputeNode) -> dict[str, Any]:
    used = {k.name: i.used for k, i in node.inventories.items() if hasattr(i, "used")}
    return {"row": node.to_row(), "used": used, "usage": node.inventories[NUMA].usage}


@pytest.mark.drawn
@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("consumer", ["", None, "job-1"], ids=["record", "many", "one"])
def test_every_order_of_a_request_s_resources_has_one_result(
    name: str, consumer: str | None
) -> None:
    def make() -> ComputeNode:
        return record() if consumer == "" else view(consumer)

    amounts = ro.Request(REQUESTS[name]).resources
    together = make()
    empty = figures(together)
    taken = together.inventories.consume(amounts)
    expected = figures(together)
    assert expected != empty
    orders = list(itertools.permutations(amounts.items()))
    most = 6 if consumer != "" else len(orders)  # a ledger for each costs more
    orders = orders[:: max(1, len(orders) // min(most, examples(24)))]
    for order in orders:
        node = make()
        result = {}
        for resource, amount in order:
            assert node.inventories[resource].can_provide(amount)
            result[resource] = node.inventories[resource].consume(amount)
        assert figures(node) == expected and ro.Amounts(result) == taken
        if node.of_ledger:
            node.save()
            assert figures(node) == expected
            ledger = node._context
            again = ComputeNode.load(ledger, "host0")
            assert again.inventories == node.inventories
            ledger.close()
        back = make()
        for resource, amount in order:
            back.inventories[resource].consume(amount)
        for resource, amount in taken.items():
            back.inventories[resource].consume(-amount)
        assert figures(back) == empty and not back.pending and not back.pending_placed


def test_the_loop_says_no_to_what_a_host_lacks() -> None:
    node = ComputeNode(vcpus=8, vcpus_used=0)
    for resource, amount in ro.Request("CUSTOM_FPGA=1,NUMA_TOPOLOGY=1:shared=1").resources.items():
        expected = resource.name == "VCPU"
        assert node.inventories[resource].can_provide(amount) is expected
    assert list(node.inventories.names()) == ["VCPU"] and node.changes()["vcpus_used"] == 0


# --- a kind of a plug-in has a column -------------------------------------------------------------


class SeatsColumn(Column):
    """``seats``, as ``used/total``."""

    resource = "CUSTOM_SEATS"
    names = ("seats",)

    def check(self, row: Mapping[str, Any], settings: Settings) -> None:
        coerced("seats", carried_field(), row)

    def read(
        self, row: Mapping[str, Any], settings: Settings, other_items: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        if row.get("seats") is None:
            return {}
        used, total = map(int, row["seats"].split("/"))
        return {self.resource: ro.IntegerInventory(total, used=used)}

    def write(self, row: Mapping[str, Any], state: NodeState) -> Mapping[str, Any]:
        seats = state.inventories[self.resource]
        assert isinstance(seats, ro.IntegerInventory)
        return (
            {"seats": f"{seats.used}/{seats.total}"} if self.resource in state.inventories else {}
        )

    def accept(
        self, inventory: Inventory, other_items: Mapping[str, Inventory]
    ) -> Mapping[str, Inventory]:
        return {self.resource: inventory}


class MbitColumn(CountColumn):
    """A count of a site in addition to those of Nova."""

    resource = "CUSTOM_MBIT"
    total, used, ratio = names = ("mbit", "mbit_used", "mbit_ratio")


@pytest.fixture
def mbit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    available = dict(plugins.BUILT_IN["resource_objects.columns"])
    available["CUSTOM_MBIT"] = f"{__name__}:MbitColumn"
    monkeypatch.setitem(plugins.BUILT_IN, "resource_objects.columns", available)
    registry.columns.cache_clear()
    yield
    registry.columns.cache_clear()


@pytest.mark.usefixtures("mbit")
def test_a_count_of_a_plug_in_is_stored_in_a_ledger_as_others_are(ledger: ro.Ledger) -> None:
    assert list(registry.COUNTS) == ["VCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_MBIT"]
    row = {"vcpus": 8, "vcpus_used": 0, "mbit": 1000, "mbit_used": 100, "mbit_ratio": 1.5}
    node = ComputeNode.read(row, reserved="CUSTOM_MBIT=50").bind(ledger, provider="edge")
    node.save()
    assert str(ledger.provider("edge").inventories["CUSTOM_MBIT"].reserved) == "50"
    ledger.claim("vm", {"edge": "CUSTOM_MBIT=300"})
    loaded = ComputeNode.load(ledger, "edge")
    assert (loaded.mbit, loaded.mbit_used, loaded.mbit_ratio) == (1000, 400, 1.5)
    loaded.inventories.consume("CUSTOM_MBIT=200,VCPU=1")
    loaded.save()
    assert ledger.inventories("edge")["CUSTOM_MBIT"].used == 550
    node.reload()
    result = node.changes()
    assert (result["mbit_used"], result["vcpus_used"], "mbit" in result) == (600, 1, False)
    with pytest.raises(ro.CapacityException, match="CUSTOM_MBIT requested 900"):
        node.inventories.consume("CUSTOM_MBIT=900")
    node.update_inventories({"CUSTOM_MBIT": ro.IntegerInventory(2000, used=550)})
    node.save()
    assert ledger.inventories("edge")["CUSTOM_MBIT"].total == 2000
    assert ComputeNode.read({"vcpus": 8, "vcpus_used": 0}).changes() == {}


@pytest.mark.parametrize(
    ("plugin", "cause"),
    [
        ("Column", "TypeError"),
        ("MbitColumn.check", "TypeError"),
        ("Inventory.__subclasses__", "it made a list, no Column"),
        ("CountColumn", "it does not define resource, names, total, used, ratio"),
    ],
)
@pytest.mark.usefixtures("mbit")
def test_a_faulty_column_is_named(monkeypatch: pytest.MonkeyPatch, plugin: str, cause: str) -> None:
    available = plugins.BUILT_IN["resource_objects.columns"]
    monkeypatch.setitem(available, "CUSTOM_MBIT", f"{__name__}:{plugin}")
    with pytest.raises(exceptions.PluginError, match=f"'CUSTOM_MBIT' of .*{cause}"):
        registry.columns()


@pytest.fixture
def seats(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    available = dict(plugins.BUILT_IN["resource_objects.columns"])
    available["CUSTOM_SEATS"] = f"{__name__}:SeatsColumn"
    monkeypatch.setitem(plugins.BUILT_IN, "resource_objects.columns", available)
    registry.columns.cache_clear()
    yield
    registry.columns.cache_clear()


@pytest.mark.usefixtures("seats")
def test_a_kind_of_a_plug_in_can_have_a_column() -> None:
    node = ComputeNode.from_row({"vcpus": 8, "vcpus_used": 0, "seats": "1/4"})
    assert node.seats == "1/4" and node.changes() == {}
    node.inventories.consume("CUSTOM_SEATS=2,VCPU=1")
    assert node.changes() == {"seats": "3/4", "vcpus_used": 1}
    assert not node.inventories["CUSTOM_SEATS"].can_provide(ro.IntegerAmount(2))
    node.update_inventories({"CUSTOM_SEATS": ro.IntegerInventory(9, used=3)})
    assert ComputeNode.from_row(node.to_row()).inventories["CUSTOM_SEATS"].total == 9
    twin = ComputeNode.obj_from_primitive(node.obj_to_primitive())
    assert twin == node and twin.seats == "3/9"
