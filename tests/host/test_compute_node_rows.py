"""The compute node reads rows: refused values, reserved amounts, ratios and the disk report."""

from __future__ import annotations

import copy
import datetime
import json
import pickle
import types
from collections import UserDict
from decimal import Decimal

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.columns import COUNTS
from resource_objects.host.compute_node import ComputeNode
from resource_objects.testing.refusals import raises_code
from tests.host.test_compute_node import ROW, node, same

# --- reading rows -------------------------------------------------------------------------------


def test_row_to_node_to_row_is_identical():
    assert same(node().to_row(), ROW)


def test_columns_no_consumer_knew_pass_through():
    other_items = {"novel": "é\n", "blob": b"\x00\xff", "price": Decimal("1.10"), "none": None}
    compute_node = node(**other_items)
    assert compute_node.other_columns == other_items
    back = ComputeNode.obj_from_primitive(json.loads(json.dumps(compute_node.obj_to_primitive())))
    assert same(back.to_row(), {**ROW, **other_items})


def test_what_is_carried_keeps_its_type_on_a_wire():
    carried = {
        "deleted": False,
        "created_at": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
        "updated_at": datetime.date(2024, 1, 1),
        "hypervisor_version": 8.5,
        "mapped": None,
        "id": 2**70,
    }
    compute_node = node(**carried)
    back = ComputeNode.obj_from_primitive(json.loads(json.dumps(compute_node.obj_to_primitive())))
    assert back == compute_node and same(back.to_row(), {**ROW, **carried})


def test_a_row_in_part_is_a_node_in_part():
    compute_node = ComputeNode.from_row({"vcpus": 4, "vcpus_used": 1, "memory_mb": 5})
    assert not compute_node.obj_attr_is_set("local_gb")
    with pytest.raises(exceptions.FieldNotSet, match="local_gb is not set"):
        compute_node.local_gb  # noqa: B018
    assert list(compute_node.inventories.names()) == ["VCPU"]  # what memory is used is not known
    assert compute_node.to_row() == {"vcpus": 4, "vcpus_used": 1, "memory_mb": 5}


def test_a_node_of_nothing():
    assert ComputeNode.from_row({}).to_row() == {} and str(ComputeNode()) == "compute node: "


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("vcpus", "8", "an integer from 0 to 2147483647"),
        ("vcpus", None, "an integer from 0"),
        ("vcpus", True, "an integer from 0"),
        ("vcpus", -1, "an integer from 0"),
        ("vcpus", 2**31, "an integer from 0 to 2147483647"),
        ("local_gb_used", 10.5, "an integer from 0"),
        ("local_gb_used", None, "an integer from 0"),
        ("memory_mb_used", -1, "an integer from 0"),
        ("cpu_allocation_ratio", "2.0", "a number from 0"),
        ("cpu_allocation_ratio", -1.0, "a number from 0"),
        ("cpu_allocation_ratio", float("nan"), "a number from 0"),
        ("cpu_allocation_ratio", float("inf"), "a number from 0"),
        ("cpu_allocation_ratio", Decimal("sNaN"), "a number from 0"),
        ("cpu_allocation_ratio", True, "a number from 0"),
        ("cpu_allocation_ratio", 1.3333333, "a decimal above 0, at most 4000, of at most six"),
        ("cpu_allocation_ratio", 5000.0, "a decimal above 0, at most 4000"),
        ("disk_available_least", 1.5, "an integer from -2147483647"),
        ("free_ram_mb", "5", "an integer or None"),
        ("host", 5, "text or None"),
        ("uuid", b"7f5c", "text or None"),
        ("cpu_info", {"topology": {}}, "text, bytes, a number, a date or a time"),
        ("cpu_info", "\ud800", "text, bytes, a number, a date or a time"),
        ("metrics", Decimal("sNaN"), "text, bytes, a number, a date or a time"),
        ("novel", ["list"], "text, bytes, a number, a date or a time or None"),
        ("novel", object, "text, bytes, a number, a date or a time or None"),
    ],
)
def test_a_bad_row_is_refused_naming_column_value_and_expectation(column, value, expected):
    with raises_code("InvalidRow") as refusal:
        node(**{column: value})
    assert refusal.value.what == column
    assert refusal.value.value is value or refusal.value.value == value
    assert expected in str(refusal.value)


@pytest.mark.parametrize("source", [None, 5, "row", [("vcpus", 8)], object(), ro.Amounts])
def test_what_is_no_row_is_refused(source):
    with raises_code("InvalidRow", match="source"):
        ComputeNode.read(source)
    with raises_code("InvalidRow", match="source"):
        ComputeNode.from_nova(source)


def test_a_column_has_a_name():
    with raises_code("InvalidRow", match=r"column: got 5"):
        ComputeNode.from_row({5: 5})


def test_read_takes_mappings_rows_and_models():
    model = types.SimpleNamespace(items=ROW.items)  # as a model of oslo.db
    row = types.SimpleNamespace(_mapping=UserDict(ROW))  # as a row of SQLAlchemy
    for source in (ROW, UserDict(ROW), model, row):
        assert ComputeNode.read(source) == node()


def test_read_takes_a_node_and_gives_one_of_its_own():
    first = ComputeNode.from_row(ROW, reserved="VCPU=1", ratios="VCPU=3")
    first.inventories.consume("VCPU=1")
    second = ComputeNode.read(first)
    assert (second.reserved, second.ratios) == (first.reserved, first.ratios)
    assert second.inventories == first.inventories
    assert not second.pending and second.changes() == {}
    second.inventories.consume("VCPU=1")
    assert (first.vcpus_used, second.vcpus_used) == (4, 5)
    assert ComputeNode.read(first, reserved="", ratios={"VCPU": 5}).inventories["VCPU"].used == 4


def test_reading_never_changes_whatever_the_parameters():
    row = {**ROW, "cpu_allocation_ratio": 0.0, "ram_allocation_ratio": None}
    before = dict(row)
    compute_node = ComputeNode.from_row(
        row, reserved="VCPU=1,MEMORY_MB=512", ratios="DISK_GB=1.5", initial_ratios="VCPU=8"
    )
    assert compute_node.changes() == {} and compute_node.obj_what_changed() == set()
    assert same(compute_node.to_row(), before) and row == before


# --- reserved -----------------------------------------------------------------------------------


def test_used_columns_include_the_reserved():
    compute_node = ComputeNode.from_row(ROW, reserved="VCPU=1,MEMORY_MB=512,DISK_GB=0")
    cpus, memory, disk = compute_node.get_inventories().values()
    assert (cpus.reserved, cpus.used, cpus.capacity) == (1, 2, 14)
    assert (memory.reserved, memory.used, memory.capacity) == (512, 1024, 15872)
    assert (disk.reserved, disk.used, disk.capacity) == (0, 10, 100)
    assert (compute_node.vcpus_used, compute_node.free_ram_mb) == (3, 14848)


@pytest.mark.parametrize(
    ("reserved", "error"),
    [
        ("VCPU=x", "InvalidText"),
        ({"VCPU": 1.5}, "InvalidAmount"),
        ("VCPU=-1", "NegativeAmount"),
        ("PGPU=1", exceptions.InvalidInventory),
        ("CPU=1", "UnknownResourceClass"),
        (5, "InvalidAmount"),
    ],
)
def test_reserved_that_cannot_be_is_refused(reserved, error):
    with raises_code(error):
        ComputeNode.from_row(ROW, reserved=reserved)


def test_less_used_than_reserved_is_a_contradiction():
    with raises_code("InvalidRow", match=r"vcpus_used: got 3, expected at least the 4 reserved"):
        ComputeNode.from_row(ROW, reserved="VCPU=4")


def test_more_reserved_than_there_is_is_a_contradiction():
    with raises_code("InvalidRow", match=r"vcpus: got 8, expected at least the 9 reserved"):
        ComputeNode.from_row({**ROW, "vcpus_used": 9}, reserved="VCPU=9")


def test_of_nothing_nothing_is_reserved():
    compute_node = ComputeNode.from_row(
        {**ROW, "local_gb": 0, "local_gb_used": 0}, reserved="DISK_GB=5"
    )
    assert "DISK_GB" not in compute_node.inventories


# --- ratios -------------------------------------------------------------------------------------


@pytest.mark.parametrize("unset", [None, 0.0, 0, -0.0, Decimal(0)])
def test_nothing_stored_means_the_initial_ratio_and_is_not_written_back(unset):
    columns = ("cpu_allocation_ratio", "ram_allocation_ratio", "disk_allocation_ratio")
    compute_node = node(**dict.fromkeys(columns, unset))
    results = [inventory.allocation_ratio for inventory in compute_node.get_inventories().values()]
    assert results == [4, 1, 1] == [column.initial_ratio for column in COUNTS.values()]
    assert compute_node.changes() == {}
    assert [compute_node.to_row()[column] for column in columns] == [unset] * 3


def test_a_stored_ratio_counts_exactly():
    ratios = {"cpu_allocation_ratio": 1.149999976158142, "ram_allocation_ratio": 1.15}
    compute_node = node(**ratios)
    cpus, memory, _ = compute_node.get_inventories().values()
    assert cpus.allocation_ratio == memory.allocation_ratio == Decimal("1.15")
    assert memory.capacity == 18841 and cpus.capacity == 9
    assert same({k: compute_node.to_row()[k] for k in ratios}, ratios)


def test_an_explicit_ratio_counts_before_the_stored_one():
    compute_node = ComputeNode.from_row(ROW, ratios={"VCPU": 16.0, ro.resource("DISK_GB"): None})
    assert compute_node.inventories["VCPU"].capacity == 128
    assert compute_node.inventories["DISK_GB"].capacity == 100
    assert compute_node.cpu_allocation_ratio == 2.0 and compute_node.changes() == {}


def test_an_initial_ratio_of_one_s_own_counts_only_where_none_is_stored():
    row = {**ROW, "cpu_allocation_ratio": None}
    value = {"initial_ratios": "VCPU=16,MEMORY_MB=1.5"}
    compute_node = ComputeNode.from_row(row, **value)
    assert compute_node.inventories["VCPU"].allocation_ratio == 16
    assert compute_node.inventories["MEMORY_MB"].allocation_ratio == 1
    explicit = ComputeNode.from_row(row, ratios="VCPU=3", **value)
    assert explicit.inventories["VCPU"].allocation_ratio == 3


def test_an_explicit_ratio_is_the_way_around_one_that_is_too_precise():
    row = {**ROW, "cpu_allocation_ratio": 1.3333333333}
    with raises_code("InvalidRow", match="six places"):
        ComputeNode.from_row(row)
    compute_node = ComputeNode.from_row(row, ratios="VCPU=1.333333")
    assert compute_node.inventories["VCPU"].capacity == 10
    assert compute_node.to_row() == row


def test_a_ratio_changed_by_hand_is_stated_from_then_on():
    compute_node = ComputeNode.from_row({**ROW, "cpu_allocation_ratio": None}, ratios="VCPU=16")
    compute_node.inventories["VCPU"].allocation_ratio = "1.15"
    assert compute_node.changes() == {"cpu_allocation_ratio": 1.15}
    assert compute_node.ratios == {}
    assert compute_node.get_inventories()[ro.resource("VCPU")].allocation_ratio == Decimal("1.15")


@pytest.mark.parametrize(
    ("ratios", "error"),
    [
        ("VCPU=0", "InvalidRatio"),
        ({"VCPU": "many"}, "InvalidRatio"),
        ("VCPU", "InvalidText"),
        ("PGPU=2", exceptions.InvalidInventory),
        (2.0, "InvalidText"),
        ({"VCPU": 1, ro.resource("VCPU"): 2}, "DuplicateKey"),
    ],
)
def test_ratios_that_cannot_be_are_refused(ratios, error):
    with raises_code(error, match="ratios"):
        ComputeNode.from_row(ROW, ratios=ratios)
    with raises_code(error, match="initial_ratios"):
        ComputeNode.from_row(ROW, initial_ratios=ratios)


# --- totals -------------------------------------------------------------------------------------


def test_total_zero_is_no_inventory():
    compute_node = node(vcpus=0, vcpus_used=0)
    assert list(compute_node.inventories.names()) == ["MEMORY_MB", "DISK_GB"]
    assert compute_node.inventories["VCPU"].is_empty


def test_unit_rules_are_those_nova_reports():
    for inventory in node().get_inventories().values():
        assert (inventory.min_unit, inventory.max_unit, inventory.step_size) == (
            1,
            inventory.total,
            1,
        )


def test_one_claim_takes_no_more_than_there_physically_is():
    compute_node = node(vcpus_used=0)  # 16 by the ratio
    assert not compute_node.inventories.can_provide("VCPU=9")
    assert compute_node.inventories.consume("VCPU=8") and compute_node.inventories.consume("VCPU=8")


# --- the report of disk -------------------------------------------------------------------------


def test_the_report_bounds_every_decision_of_the_view():
    compute_node = node(disk_available_least=20)
    disk = compute_node.inventories["DISK_GB"]
    assert disk.can_provide(ro.IntegerAmount(20)) and not disk.can_provide(ro.IntegerAmount(21))
    assert not compute_node.inventories.can_provide("DISK_GB=21")
    with pytest.raises(ro.CapacityException, match="free 20 under the limit of 30"):
        compute_node.inventories.fit("VCPU=1,DISK_GB=21")


def test_the_report_bounds_the_sum_of_several_claims():
    compute_node = node(disk_available_least=20)
    compute_node.inventories.consume("DISK_GB=15")
    with pytest.raises(ro.CapacityException, match="free 5 under the limit of 30"):
        compute_node.inventories.consume("DISK_GB=6")
    compute_node.inventories.consume("DISK_GB=-1")
    compute_node.inventories.consume("DISK_GB=6")


def test_a_limit_that_is_passed_binds_in_addition_the_report():
    disk = node(disk_available_least=20).inventories["DISK_GB"]
    assert not disk.can_provide(ro.IntegerAmount(20), ro.IntegerAmount(29))
    assert not disk.can_provide(ro.IntegerAmount(21), ro.IntegerAmount(90))
    with raises_code("NegativeAmount"):
        disk.can_provide(ro.IntegerAmount(1), ro.IntegerAmount(-1))
    with raises_code("WrongAmountKind"):
        disk.can_provide(ro.IntegerAmount(1), 5)


def test_a_report_below_zero_leaves_nothing():
    compute_node = node(disk_available_least=-30)
    assert compute_node.limits == ro.Limits(DISK_GB=0)
    assert not compute_node.inventories.can_provide("DISK_GB=1")
    assert compute_node.inventories.can_provide("DISK_GB=0")
    compute_node.inventories.consume("DISK_GB=-1")


def test_a_report_of_more_than_the_books_say_changes_nothing():
    compute_node = node(disk_available_least=1000)
    assert compute_node.inventories.can_provide("DISK_GB=90")
    assert not compute_node.inventories.can_provide("DISK_GB=91")


def test_the_report_is_in_no_inventory_that_is_handed_out():
    with_report, without = node(disk_available_least=20), node()
    assert with_report.get_inventories() == without.get_inventories()
    assert with_report.inventories == without.inventories
    assert (with_report.limits, without.limits) == (ro.Limits(DISK_GB=30), ro.Limits())
    assert with_report.get_inventories()[ro.resource("DISK_GB")].can_provide(ro.IntegerAmount(90))


def test_a_new_report_replaces_the_old_one():
    compute_node = node(disk_available_least=20)
    compute_node.inventories.consume("DISK_GB=15")  # pending: the report cannot know it
    compute_node.disk_available_least = 30
    assert compute_node.limits == ro.Limits(DISK_GB=40)
    assert compute_node.changes()["disk_available_least"] == 30
    compute_node.disk_available_least = None
    assert compute_node.limits == ro.Limits()
    compute_node.disk_available_least = 5
    del compute_node.disk_available_least
    assert compute_node.limits == ro.Limits() and not hasattr(compute_node, "disk_available_least")


def test_a_refused_report_leaves_the_old_one():
    compute_node = node(disk_available_least=20)
    for wrong in ({"disk_available_least": 1.5}, {"disk_available_least": 5, "host": 5}):
        with raises_code("InvalidField"):
            compute_node.update(**wrong)
    assert compute_node == node(disk_available_least=20)


def test_the_limit_survives_a_wire_and_a_copy():
    compute_node = node(disk_available_least=20)
    compute_node.inventories.consume("DISK_GB=15")
    wire = json.loads(json.dumps(compute_node.obj_to_primitive()))
    for twin in (
        ComputeNode.obj_from_primitive(wire),
        copy.deepcopy(compute_node),
        pickle.loads(pickle.dumps(compute_node)),
    ):
        assert not twin.inventories.can_provide("DISK_GB=6")
        assert twin.inventories.can_provide("DISK_GB=5")
