"""The compute node as an adapter: the specification's words, writing back what changed, copies."""

from __future__ import annotations

import copy
import datetime
import json
import pickle

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.compute_node import ComputeNode
from resource_objects.testing.refusals import raises_code

ROW = {
    "id": 7,
    "uuid": "7f5c3b7e-3a4b-4c59-9d0e-0d6f1a2b3c4d",
    "service_id": None,
    "host": "host0",
    "hypervisor_hostname": "node0.example",
    "hypervisor_type": "QEMU",
    "hypervisor_version": 8002000,
    "host_ip": "192.0.2.7",
    "vcpus": 8,
    "vcpus_used": 3,
    "cpu_allocation_ratio": 2.0,
    "memory_mb": 16384,
    "memory_mb_used": 1536,
    "ram_allocation_ratio": 1.0,
    "local_gb": 100,
    "local_gb_used": 10,
    "disk_allocation_ratio": 1.0,
    "disk_available_least": None,
    "free_ram_mb": 14848,
    "free_disk_gb": 90,
    "cpu_info": '{"topology": {"cores": 4}}',
    "numa_topology": '{"cells": []}',
    "pci_stats": None,
    "supported_instances": '[["x86_64", "kvm", "hvm"]]',
    "current_workload": 0,
    "running_vms": 2,
    "stats": '{"num_instances": "2"}',
    "metrics": "[]",
    "mapped": 1,
    "extra_resources": None,
    "created_at": datetime.datetime(2024, 2, 29, 12, 30, 15, 7),
    "updated_at": None,
    "deleted_at": None,
    "deleted": 0,
}


def node(**changes: object) -> ComputeNode:
    return ComputeNode.from_row({**ROW, **changes})


def same(item: dict, other: dict) -> bool:
    return item == other and {k: type(v) for k, v in item.items()} == {
        k: type(v) for k, v in other.items()
    }


# --- the specification's words ------------------------------------------------------------------


def test_the_loop_of_the_specification_works_verbatim():
    compute_node = node()
    request_spec = ro.Request("VCPU=2,MEMORY_MB=1024,DISK_GB=5")
    for resource, amount in request_spec.resources.items():
        if compute_node.inventories[resource].can_provide(amount):
            compute_node.inventories[resource].consume(amount)
    assert (compute_node.vcpus_used, compute_node.memory_mb_used, compute_node.local_gb_used) == (
        5,
        2560,
        15,
    )
    assert (compute_node.free_ram_mb, compute_node.free_disk_gb) == (13824, 85)


def test_the_tracker_s_loop_of_the_specification_works_verbatim():
    compute_node = node()
    amounts = ro.Amounts("VCPU=2,MEMORY_MB=1024")
    for resource, amount in amounts.items():
        compute_node.inventories[resource].consume(amount)
    for resource, amount in amounts.items():
        compute_node.inventories[resource].consume(-amount)
    assert compute_node.changes() == {}


def test_get_inventories_is_a_dict_by_resource():
    inventories = node().get_inventories()
    assert type(inventories) is dict
    assert inventories == {
        ro.resource("VCPU"): ro.IntegerInventory(8, max_unit=8, allocation_ratio=2, used=3),
        ro.resource("MEMORY_MB"): ro.IntegerInventory(16384, max_unit=16384, used=1536),
        ro.resource("DISK_GB"): ro.IntegerInventory(100, max_unit=100, used=10),
    }
    assert [kind.units for kind in inventories] == ["CPUs", "MiB", "GiB"]


def test_get_inventories_gives_copies():
    compute_node = node()
    for inventory in compute_node.get_inventories().values():
        assert type(inventory) is ro.IntegerInventory
        inventory.consume(ro.IntegerAmount(1))
    assert compute_node.changes() == {}


def test_inventories_are_live_and_the_same_ones():
    compute_node = node()
    cpus = compute_node.inventories["VCPU"]
    cpus.consume(ro.IntegerAmount(1))
    assert compute_node.vcpus_used == 4
    assert compute_node.inventories["VCPU"] is cpus


def test_several_resources_go_all_or_nothing():
    compute_node = node()
    with pytest.raises(ro.CapacityException, match="DISK_GB requested 91, free 90 of 100"):
        compute_node.inventories.consume("VCPU=1,DISK_GB=91")
    assert compute_node.changes() == {}


def test_live_inventories_equal_plain_ones_and_become_plain_when_copied():
    live = node().inventories
    plain = ro.Inventories(live)
    assert plain == live and live == plain
    for twin in (copy.deepcopy(live), pickle.loads(pickle.dumps(live))):
        assert type(twin) is ro.Inventories and twin == live
    assert live["VCPU"] == plain["VCPU"] and plain["VCPU"] == live["VCPU"]
    assert live["VCPU"] != plain["DISK_GB"] and live["VCPU"] != 8
    assert type(pickle.loads(pickle.dumps(live["VCPU"]))) is ro.IntegerInventory
    assert repr(live["VCPU"]) == repr(plain["VCPU"])
    back = ro.Inventories.obj_from_primitive(json.loads(json.dumps(live.obj_to_primitive())))
    assert type(back) is ro.Inventories and back == live
    item = ro.IntegerInventory.obj_from_primitive(live["VCPU"].obj_to_primitive())
    assert type(item) is ro.IntegerInventory and item == live["VCPU"]


def test_a_copied_inventory_counts_for_no_consumer():
    compute_node = node()
    copy.deepcopy(compute_node.inventories).consume("VCPU=1")
    copy.copy(compute_node.inventories["VCPU"]).consume(ro.IntegerAmount(1))
    assert compute_node.changes() == {}


def test_figures_set_on_a_live_inventory_reach_the_columns():
    compute_node = node()
    cpus = compute_node.inventories["VCPU"]
    cpus.total = 16
    assert (compute_node.vcpus, cpus.max_unit) == (16, 16)
    cpus.reserved = 2
    assert (compute_node.vcpus_used, cpus.used, compute_node.reserved) == (5, 3, ro.Amounts(VCPU=2))
    cpus.allocation_ratio = "1.5"
    assert compute_node.cpu_allocation_ratio == 1.5
    assert not compute_node.pending


def test_a_refused_figure_changes_neither_inventory_nor_column():
    compute_node = node()
    cpus = compute_node.inventories["VCPU"]
    for wrong in ({"total": 0}, {"total": "9"}, {"reserved": 9}, {"total": 9, "used": -1}):
        with pytest.raises(exceptions.InvalidInput):
            cpus.update(**wrong)
    assert cpus == node().inventories["VCPU"] and compute_node.changes() == {}
    cpus.update(used=2**63 - 1, reserved=1)  # one column is the sum of both
    with pytest.raises(exceptions.InvalidInventory, match="with the reserved at most"):
        compute_node.changes()


def test_what_no_column_says_is_not_written_back():
    compute_node = node()
    compute_node.inventories["CUSTOM_SEATS"] = 5
    for write in (compute_node.changes, compute_node.to_row):
        with pytest.raises(exceptions.InvalidInventory, match="CUSTOM_SEATS"):
            write()
    del compute_node.inventories["CUSTOM_SEATS"]
    assert compute_node.changes() == {} and compute_node == node()
    with pytest.raises(exceptions.FrozenValue, match="update_inventories"):
        compute_node.inventories = compute_node.inventories


# --- update_inventories -------------------------------------------------------------------------


def test_there_and_back_through_the_adapter_changes_nothing():
    compute_node = node(cpu_allocation_ratio=None, ram_allocation_ratio=1.149999976158142)
    assert compute_node.update_inventories(compute_node.get_inventories()) is False
    assert compute_node.changes() == {} and not compute_node.pending


def test_update_inventories_writes_columns():
    compute_node = node()
    expected = ro.IntegerInventory(20, reserved=1, allocation_ratio="1.15", used=4)
    assert compute_node.update_inventories({ro.resource("VCPU"): expected}) is True
    assert compute_node.changes() == {
        "vcpus": 20,
        "vcpus_used": 5,
        "cpu_allocation_ratio": 1.15,
    }
    assert compute_node.pending == ro.Amounts(VCPU=1)
    assert compute_node.get_inventories()[ro.resource("VCPU")] == ro.IntegerInventory(
        20, reserved=1, max_unit=20, allocation_ratio="1.15", used=4
    )


def test_an_inventory_in_hand_shows_an_update():
    compute_node = node()
    cpus = compute_node.inventories["VCPU"]
    compute_node.update_inventories({"VCPU": ro.IntegerInventory(20, used=4)})
    assert (cpus.total, cpus.used) == (20, 4)
    assert cpus.consume(ro.IntegerAmount(1)) and compute_node.vcpus_used == 5


def test_resources_that_are_not_named_remain():
    compute_node = node()
    compute_node.update_inventories({"DISK_GB": ro.IntegerInventory(50)})
    assert (compute_node.vcpus, compute_node.local_gb, compute_node.free_disk_gb) == (8, 50, 50)


def test_none_says_that_there_is_none_any_more():
    compute_node = node()
    disk = compute_node.inventories["DISK_GB"]
    assert compute_node.update_inventories({"DISK_GB": None}) is True
    assert compute_node.local_gb == 0 and "DISK_GB" not in compute_node.inventories
    assert not disk.can_provide(ro.IntegerAmount(1))
    with pytest.raises(ro.CapacityException):
        disk.consume(ro.IntegerAmount(1))
    disk.consume(-ro.IntegerAmount(1))  # releases an amount without a consumer
    assert compute_node.local_gb_used == 10
    assert compute_node.update_inventories({"DISK_GB": None}) is False


def test_a_total_of_0_is_equal_as_none():
    compute_node = node()
    assert compute_node.update_inventories({"DISK_GB": ro.IntegerInventory(0)}) is True
    assert compute_node.local_gb == 0 and "DISK_GB" not in compute_node.inventories
    assert compute_node.update_inventories({"DISK_GB": ro.IntegerInventory(0)}) is False


def test_what_was_none_can_return():
    compute_node = node(local_gb=0, local_gb_used=0)
    assert "DISK_GB" not in compute_node.inventories
    compute_node.update_inventories({"DISK_GB": ro.IntegerInventory(50, reserved=5)})
    assert (compute_node.local_gb, compute_node.local_gb_used) == (50, 5)
    assert not compute_node.pending
    compute_node.inventories.consume("DISK_GB=10")
    assert compute_node.local_gb_used == 15


@pytest.mark.parametrize(
    ("wrong", "error", "named"),
    [
        ({"PGPU": ro.IntegerInventory(1)}, exceptions.InvalidInventory, "PGPU.*VCPU, MEMORY_MB"),
        ({"CUSTOM_FPGA": ro.IntegerInventory(1)}, exceptions.InvalidInventory, "CUSTOM_FPGA"),
        ({"CPU": ro.IntegerInventory(1)}, "UnknownResourceClass", "'CPU'.*VCPU"),
        ({"vcpu": ro.IntegerInventory(1)}, "InvalidResourceClass", "vcpu"),
        ({"VCPU": 8}, exceptions.InvalidInventory, "VCPU: got 8, expected IntegerInventory"),
        ({"VCPU": ro.IntegerInventory(8, step_size=2)}, exceptions.InvalidInventory, "step_size"),
        ({"VCPU": ro.IntegerInventory(8, max_unit=4)}, exceptions.InvalidInventory, "max_unit"),
        ({"VCPU": ro.IntegerInventory(8, min_unit=2)}, exceptions.InvalidInventory, "min_unit"),
        (
            {"VCPU": ro.IntegerInventory(8, resource_class="DISK_GB")},
            exceptions.InvalidInventory,
            "one of VCPU",
        ),
        (
            {"VCPU": ro.IntegerInventory(8, reserved=8, used=2**63 - 1)},
            "InvalidField",
            "vcpus_used",
        ),
        (
            {"VCPU": ro.IntegerInventory(8), ro.resource("VCPU"): ro.IntegerInventory(9)},
            "DuplicateKey",
            "VCPU",
        ),
    ],
)
def test_what_no_column_can_say_is_refused_and_nothing_changed(wrong, error, named):
    compute_node = node()
    with raises_code(error, match=named):
        compute_node.update_inventories({"MEMORY_MB": ro.IntegerInventory(1), **wrong})
    assert compute_node.changes() == {} and compute_node == node()


def test_what_a_column_follows_is_not_assigned():
    compute_node = node()
    for name in ("vcpus", "vcpus_used", "cpu_allocation_ratio", "reserved", "ratios", "pending"):
        with pytest.raises(exceptions.FrozenValue, match=f"{name} follows the inventories"):
            setattr(compute_node, name, 1)
        with pytest.raises(exceptions.FrozenValue, match="follows the inventories"):
            delattr(compute_node, name)
    for name in ("row", "of_ledger", "inventories"):
        with pytest.raises(exceptions.FrozenValue, match=f"{name} is set by reading only"):
            setattr(compute_node, name, getattr(compute_node, name))
    with pytest.raises(exceptions.FrozenValue):
        compute_node.update(running_vms=9, vcpus=9)
    assert compute_node == node()


# --- derived columns ----------------------------------------------------------------------------


def test_free_is_nova_s_total_less_used_and_may_be_negative():
    compute_node = node(memory_mb_used=20000, local_gb_used=130)
    assert (compute_node.free_ram_mb, compute_node.free_disk_gb) == (-3616, -30)


def test_free_in_a_row_is_not_believed():
    compute_node = node(free_ram_mb=5, free_disk_gb=None)
    assert (compute_node.free_ram_mb, compute_node.free_disk_gb) == (14848, 90)
    assert compute_node.changes() == {}


def test_free_follows_every_change_of_its_sources():
    compute_node = node()
    compute_node.inventories.consume("DISK_GB=5")
    assert compute_node.changes() == {"local_gb_used": 15, "free_disk_gb": 85}
    compute_node.inventories["DISK_GB"].total = 200
    assert compute_node.changes() == {"local_gb": 200, "local_gb_used": 15, "free_disk_gb": 185}


def test_free_of_what_is_not_set_is_not_set():
    partial = ComputeNode(memory_mb=5)
    with pytest.raises(exceptions.FieldNotSet, match="memory_mb_used is not set"):
        partial.free_ram_mb  # noqa: B018
    assert not hasattr(partial, "free_disk_gb")
    assert partial.changes() == {"memory_mb": 5} and partial.to_row() == {"memory_mb": 5}


# --- writing back -------------------------------------------------------------------------------


def test_only_what_changed_is_written():
    compute_node = node()
    compute_node.inventories.consume("VCPU=1")
    compute_node.running_vms = 3
    target: dict = {}
    compute_node.write_to(target)
    assert target == compute_node.changes() == {"vcpus_used": 4, "running_vms": 3}
    row = {**ROW, "vcpus": 99}
    compute_node.write_to(row)
    assert same(row, {**ROW, "vcpus": 99, "vcpus_used": 4, "running_vms": 3})


def test_what_was_changed_back_is_not_written():
    compute_node = node()
    compute_node.inventories.consume("VCPU=1,DISK_GB=3")
    compute_node.running_vms = 3
    compute_node.inventories.consume("VCPU=-1,DISK_GB=-3")
    compute_node.running_vms = 2
    assert compute_node.changes() == {} and compute_node.obj_what_changed() == set()
    assert compute_node == node()


def test_true_is_not_one():
    compute_node = node(deleted=False)
    compute_node.deleted = 0
    assert compute_node.changes() == {"deleted": 0} and compute_node.deleted is not False


def test_what_was_changed_back_is_in_its_old_type_too():
    compute_node = node(cpu_allocation_ratio=16)
    for ratio in (8, 16):
        compute_node.inventories["VCPU"].allocation_ratio = ratio
    assert same(compute_node.to_row(), {**ROW, "cpu_allocation_ratio": 16})


def test_after_a_reset_what_is_there_counts_as_read():
    compute_node = node()
    compute_node.inventories.consume("VCPU=1")
    compute_node.obj_reset_changes()
    assert compute_node.changes() == {}
    compute_node.inventories.consume("VCPU=-1")
    assert compute_node.changes() == {"vcpus_used": 3}


def test_a_node_that_was_made_writes_all_it_has():
    created = ComputeNode(host="host0", memory_mb=1024, memory_mb_used=512, other_columns={"x": 1})
    assert created.changes() == created.to_row()
    assert created.to_row() == {
        "host": "host0",
        "memory_mb": 1024,
        "memory_mb_used": 512,
        "free_ram_mb": 512,
        "x": 1,
    }


def test_write_to_takes_whatever_takes_items():
    class Model:
        """An object like a model of oslo.db."""

        def __setitem__(self, name, value):
            setattr(self, name, value)

    target = Model()
    compute_node = node()
    compute_node.inventories.consume("VCPU=1")
    compute_node.write_to(target)
    assert vars(target) == {"vcpus_used": 4}
    for wrong in (None, "row", frozenset()):
        with raises_code("InvalidRow", match="target"):
            compute_node.write_to(wrong)


def test_identity_is_read_only():
    compute_node = node()
    for name, value in (("id", 8), ("uuid", None), ("other_columns", {"a": 1})):
        with pytest.raises(exceptions.FrozenValue, match="read-only"):
            setattr(compute_node, name, value)


def test_a_column_can_be_forgotten():
    compute_node = node()
    compute_node.running_vms = 3
    del compute_node.running_vms
    assert "running_vms" not in compute_node.to_row() and compute_node.changes() == {}
    compute_node.running_vms = 4
    assert compute_node.changes() == {"running_vms": 4}


# --- disk usage never drifts (Nova adds fractions to an integer column) ---------------------------


def test_disk_usage_does_not_drift():
    compute_node = node()
    half = 512 / 1024  # GiB of swap
    for wrong in (half, -half):
        with raises_code("InvalidAmount"):
            compute_node.inventories.consume({"DISK_GB": wrong})
    for _ in range(10):
        compute_node.inventories.consume("DISK_GB=1")
        compute_node.inventories.consume("DISK_GB=-1")
    assert compute_node.local_gb_used == 10 and compute_node.changes() == {}
    with pytest.raises(exceptions.InvalidInput):
        compute_node.inventories["DISK_GB"].used = 10.5


# --- copies and the wire ------------------------------------------------------------------------


def changed_node() -> ComputeNode:
    compute_node = ComputeNode.from_row(ROW, reserved="MEMORY_MB=512", ratios="VCPU=3")
    compute_node.inventories.consume("VCPU=1,MEMORY_MB=-512")
    compute_node.running_vms = None
    return compute_node


@pytest.mark.parametrize(
    "there_and_back",
    [
        copy.copy,
        copy.deepcopy,
        lambda made: pickle.loads(pickle.dumps(made)),
        lambda made: ComputeNode.obj_from_primitive(
            json.loads(json.dumps(made.obj_to_primitive()))
        ),
        lambda made: ComputeNode.obj_from_primitive(made.obj_to_primitive("1.0")),
    ],
)
def test_a_copy_is_equal_and_is_its_own(there_and_back):
    compute_node = changed_node()
    twin = there_and_back(compute_node)
    assert twin == compute_node and twin.changes() == compute_node.changes()
    assert twin.pending == ro.Amounts("VCPU=1,MEMORY_MB=-512")
    assert twin.inventories == compute_node.inventories
    twin.inventories.consume("VCPU=1")
    assert (compute_node.vcpus_used, twin.vcpus_used) == (4, 5)


@pytest.mark.parametrize("there_and_back", [copy.deepcopy, lambda n: pickle.loads(pickle.dumps(n))])
def test_a_copy_still_knows_what_was_read(there_and_back):
    twin = there_and_back(changed_node())
    twin.inventories.consume("VCPU=-1,MEMORY_MB=512")
    twin.running_vms = 2
    assert twin.changes() == {}


def test_a_wire_form_that_contradicts_itself_is_refused():
    primitive = changed_node().obj_to_primitive()
    data = primitive["versioned_object.data"]
    for wrong in (
        {"row": {**data["row"], "memory_mb_used": 5}},
        {"row": {**data["row"], "vcpus": "8"}},
        {"given_ratios": {"VCPU": "0"}},
        {"given_ratios": {"PGPU": "1"}},
        {"known": {"a": []}},
        {"saved": 5},
        {"created_at": {"datetime": "yesterday"}},
        {"created_at": {"thing": "x"}},
        {"row": {"a": []}},
        {"cpu_info": []},
    ):
        broken = {**primitive, "versioned_object.data": {**data, **wrong}}
        with pytest.raises(ro.ResourceObjectsError):
            ComputeNode.obj_from_primitive(broken)


def test_nodes_compare_by_what_they_say():
    assert node() == node() and node() != node(vcpus=9) and node() != ROW
    with pytest.raises(TypeError):
        hash(node())
    assert str(node()).startswith("node0.example: VCPU=8")
