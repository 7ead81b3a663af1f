"""Our ComputeNode beside the real ``nova.objects.ComputeNode``, and Nova's own arithmetic as judge.

Nova runs as it is: its object, its tracker's bookkeeping, its driver's inventory and its
scheduler's host state. Only the database and configuration files are missing.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import struct
import types
import warnings
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import resource_objects as ro
from resource_objects.host.columns import COUNTS
from resource_objects.host.compute_node import ComputeNode
from resource_objects.testing.refusals import raises_code

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # other libraries' own, at import
    import nova.conf
    from nova import objects
    from nova.compute import provider_tree, resource_tracker
    from nova.db.main import models
    from nova.objects import compute_node as nova_compute_node
    from nova.scheduler import host_manager
    from nova.virt import fake

    objects.register_all()

pytestmark = pytest.mark.filterwarnings("ignore")

CONF = nova.conf.CONF
UUID = "7f5c3b7e-3a4b-4c59-9d0e-0d6f1a2b3c4d"
#: Totals that fit nova's columns and ours.
FIGURE = st.integers(0, 2**31 - 1)

CPU_INFO = '{"arch": "x86_64", "topology": {"cores": 4, "threads": 2, "sockets": 1}}'


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    """Let nova read no configuration file."""
    CONF([], project="nova", default_config_files=[])


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    """Leave nova's configuration as it was."""
    yield
    for name in (
        *(f"reserved_host_{kind}" for kind in ("cpus", "memory_mb", "disk_mb")),
        *(f"{kind}_allocation_ratio" for kind in ("cpu", "ram", "disk")),
    ):
        CONF.clear_override(name)


def row(**changes: Any) -> dict[str, Any]:
    """Return a row as nova's database gives it."""
    pools = objects.PciDevicePoolList(
        objects=[
            objects.PciDevicePool(
                product_id="10c9",
                vendor_id="8086",
                numa_node=0,
                tags={"dev_type": "type-PCI"},
                count=2,
            )
        ]
    )
    pools.obj_reset_changes(recursive=True)  # else nova reads them back as changed
    numa = objects.NUMATopology(
        cells=[
            objects.NUMACell(
                id=0,
                cpuset={0, 1},
                pcpuset={2, 3},
                memory=4096,
                pinned_cpus=set(),
                siblings=[{0, 1}, {2, 3}],
                mempages=[],
                socket=0,
            )
        ]
    )
    return {
        "id": 7,
        "uuid": UUID,
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
        "cpu_info": CPU_INFO,
        "numa_topology": numa._to_json(),
        "pci_stats": nova_compute_node.jsonutils.dumps(pools.obj_to_primitive()),
        "supported_instances": '[["x86_64", "kvm", "hvm"], ["i686", "kvm", "hvm"]]',
        "current_workload": 0,
        "running_vms": 2,
        "stats": '{"num_instances": "2", "io_workload": "0"}',
        "metrics": "[]",
        "mapped": 1,
        "extra_resources": None,
        "created_at": datetime.datetime(2024, 2, 29, 12, 30, 15),
        "updated_at": datetime.datetime(2024, 3, 1),
        "deleted_at": None,
        "deleted": 0,
        **changes,
    }


def nova_node(**changes: Any) -> Any:
    """Return nova's object, read from a row by nova."""
    return objects.ComputeNode._from_db_object(None, objects.ComputeNode(), row(**changes))


def saved_columns(node: Any) -> dict[str, Any]:
    """Return what nova's own ``save`` would write for the fields that changed."""
    updates = node.obj_get_changes()
    for convert in (
        node._convert_stats_to_db_format,
        node._convert_host_ip_to_db_format,
        node._convert_supported_instances_to_db_format,
        node._convert_pci_stats_to_db_format,
    ):
        convert(updates)
    return updates


# --- reading ------------------------------------------------------------------------------------


def test_nova_s_object_and_its_row_read_the_same() -> None:
    ours, from_row = ComputeNode.from_nova(nova_node()), ComputeNode.from_row(row())
    assert ours.changes() == {} and ours.inventories == from_row.inventories
    theirs, plain = ours.to_row(), from_row.to_row()
    for column in ("created_at", "updated_at"):  # nova's object adds the time zone
        assert theirs.pop(column).replace(tzinfo=None) == plain.pop(column)
    assert theirs.pop("deleted") is False and plain.pop("deleted") == 0
    assert plain.pop("extra_resources") is None and "extra_resources" not in theirs
    assert theirs == plain


def test_columns_are_what_nova_itself_would_write() -> None:
    node = nova_node()
    node._changed_fields = set(node.fields) - {"created_at", "updated_at", "deleted_at", "deleted"}
    ours = ComputeNode.from_nova(node).to_row()
    assert {column: ours[column] for column in saved_columns(node)} == saved_columns(node)


def test_read_knows_nova_s_object() -> None:
    node = nova_node()
    assert ComputeNode.read(node, reserved="VCPU=1", ratios="VCPU=16") == ComputeNode.from_nova(
        node, reserved="VCPU=1", ratios="VCPU=16"
    )


def test_read_knows_nova_s_model() -> None:
    model = models.ComputeNode(**row())
    assert ComputeNode.read(model).to_row() == row()
    ours = ComputeNode.read(model)
    ours.inventories.consume("VCPU=2")
    ours.write_to(model)
    assert model.vcpus_used == 5 and ComputeNode.read(model).to_row() == row(vcpus_used=5)


def test_other_objects_of_nova_are_refused() -> None:
    for other in (objects.NUMACell(id=0), objects.ComputeNodeList(objects=[nova_node()])):
        with raises_code("InvalidRow"):
            ComputeNode.read(other)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.sampled_from(sorted(objects.ComputeNode.fields))))
def test_fields_that_are_not_set_stay_so(chosen: set[str]) -> None:
    whole, part = nova_node(), objects.ComputeNode()
    for name in chosen & {name for name in whole.fields if whole.obj_attr_is_set(name)}:
        setattr(part, name, getattr(whole, name))
    ours = ComputeNode.from_nova(part)
    for name in ("vcpus", "memory_mb_used", "disk_allocation_ratio", "cpu_info", "host"):
        assert ours.obj_attr_is_set(name) == part.obj_attr_is_set(name)
    assert {"VCPU"} <= set(ours.inventories.names()) or not {"vcpus", "vcpus_used"} <= chosen
    written = objects.ComputeNode()
    ours.write_to(written)
    assert written.obj_what_changed() == set()


def test_what_nova_cannot_read_is_named() -> None:
    node = nova_node()
    node._obj_pci_device_pools = object()
    with raises_code("InvalidRow", match=r"pci_stats: .* a readable field pci_device_pools"):
        ComputeNode.from_nova(node)
    node = nova_node()
    node._obj_vcpus = "8"
    with raises_code("InvalidRow", match="vcpus: got '8', expected an integer"):
        ComputeNode.from_nova(node)


# --- writing back -------------------------------------------------------------------------------


def test_reading_and_writing_back_changes_nothing() -> None:
    node = nova_node()
    before = node.obj_to_primitive()
    ComputeNode.from_nova(node, reserved="VCPU=1", ratios="VCPU=16").write_to(node)
    assert node.obj_what_changed() == set() and node.obj_to_primitive() == before


def test_only_what_changed_appears_in_nova_s_change_tracking() -> None:
    node = nova_node()
    ours = ComputeNode.from_nova(node)
    ours.inventories.consume("VCPU=2,MEMORY_MB=1024")
    ours.write_to(node)
    assert node.obj_what_changed() == {"vcpus_used", "memory_mb_used", "free_ram_mb"}
    assert (node.vcpus_used, node.memory_mb_used, node.free_ram_mb) == (5, 2560, 13824)
    assert saved_columns(node) == ours.changes()


def test_what_was_given_back_does_not_appear() -> None:
    node = nova_node()
    ours = ComputeNode.from_nova(node)
    ours.inventories.consume("VCPU=2,DISK_GB=7")
    ours.inventories.consume("VCPU=-2,DISK_GB=-7")
    ours.write_to(node)
    assert node.obj_what_changed() == set()


def test_carried_columns_reach_nova_s_fields() -> None:
    node = nova_node()
    ours = ComputeNode.from_nova(node)
    ours.update(running_vms=5, stats='{"num_instances": "5"}', host_ip="2001:db8::1")
    ours.inventories["VCPU"].allocation_ratio = "1.15"
    ours.write_to(node)
    assert node.obj_what_changed() == {"running_vms", "stats", "host_ip", "cpu_allocation_ratio"}
    assert node.stats == {"num_instances": "5"} and str(node.host_ip) == "2001:db8::1"
    assert node.cpu_allocation_ratio == 1.15 and type(node.cpu_allocation_ratio) is float
    again = ComputeNode.from_nova(node)
    cells = again.inventories["NUMA_TOPOLOGY"]
    assert cells.cpu_ratio == Decimal("1.15")  # what is read has the ratio of its record
    ours.update_inventories({"NUMA_TOPOLOGY": cells})
    assert again.inventories == ours.inventories and again.to_row() == ours.to_row()


@pytest.mark.parametrize("column", ["supported_instances", "extra_resources"])
def test_what_only_nova_can_make_is_refused_and_nothing_set(column: str) -> None:
    node = nova_node()
    ours = ComputeNode.from_nova(node)
    ours.inventories.consume("VCPU=1")
    ours.update(**{column: "[]"})
    with raises_code("InvalidField", match=column):
        ours.write_to(node)
    assert node.obj_what_changed() == set()


def test_what_nova_refuses_is_named() -> None:
    node = nova_node()
    ours = ComputeNode.from_nova(node)
    ours.running_vms = "many"
    with raises_code("InvalidField", match="running_vms: got 'many', expected .*Nova's object"):
        ours.write_to(node)


def test_a_node_made_here_becomes_nova_s() -> None:
    made = {name: row()[name] for name in ("uuid", "host", "hypervisor_hostname", "vcpus")}
    ours = ComputeNode(**made, vcpus_used=1, memory_mb=1024, memory_mb_used=512)
    theirs = objects.ComputeNode()
    ours.write_to(theirs)
    assert theirs.obj_what_changed() == {*made, "vcpus_used", "memory_mb", "memory_mb_used"} | {
        "free_ram_mb"
    }
    assert theirs.free_ram_mb == 512
    back = ComputeNode.from_nova(theirs)
    assert back.to_row() == ours.to_row()


# --- ratios -------------------------------------------------------------------------------------


@pytest.mark.parametrize("unset", [None, 0.0])
def test_nova_fills_and_writes_back_what_we_only_assume(
    unset: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: dict[str, Any] = {}

    def update(_context: Any, _id: int, values: dict[str, Any]) -> None:
        written.update(values)

    monkeypatch.setattr(nova_compute_node.db, "compute_node_update", update)
    columns = ("cpu_allocation_ratio", "ram_allocation_ratio", "disk_allocation_ratio")
    filled = nova_node(**dict.fromkeys(columns, unset))
    ours = ComputeNode.from_row(row(**dict.fromkeys(columns, unset)))
    assert written == {"cpu_allocation_ratio": 4.0} | dict.fromkeys(columns[1:], 1.0)
    assert ComputeNode.from_nova(filled).inventories == ours.inventories
    assert ours.changes() == {}


def test_our_initial_ratios_are_nova_s() -> None:
    names = {"VCPU": "cpu", "MEMORY_MB": "ram", "DISK_GB": "disk"}
    for kind, ratio in ((n, column.initial_ratio) for n, column in COUNTS.items()):
        assert ratio == getattr(CONF, f"initial_{names[kind]}_allocation_ratio")


@given(st.integers(1, 4_000_000))
def test_every_ratio_goes_through_nova_s_float_exactly(thousandths: int) -> None:
    theirs = objects.ComputeNode(vcpus=1000, vcpus_used=0, cpu_allocation_ratio=thousandths / 1000)
    ours = ComputeNode.from_nova(theirs)
    assert ours.inventories["VCPU"].capacity == thousandths
    ours.inventories["VCPU"].allocation_ratio = 3
    ours.inventories["VCPU"].allocation_ratio = f"{thousandths}e-3"
    ours.write_to(theirs)
    assert ComputeNode.from_nova(theirs).inventories == ours.inventories


@given(st.integers(1, 99_999))
def test_a_ratio_that_was_in_32_bits_is_found_again(hundredths: int) -> None:
    widened = struct.unpack("f", struct.pack("f", hundredths / 100))[0]
    theirs = objects.ComputeNode(vcpus=100, vcpus_used=0, cpu_allocation_ratio=widened)
    assert ComputeNode.from_nova(theirs).inventories["VCPU"].capacity == hundredths


# --- nova's inventory report --------------------------------------------------------------------


def reported(node: Any) -> dict[str, dict[str, Any]]:
    """Return the inventory that nova's driver would report for a node of such totals."""
    driver = fake.FakeDriver.__new__(fake.FakeDriver)
    driver.vcpus, driver.memory_mb, driver.local_gb = node.vcpus, node.memory_mb, node.local_gb
    tree = provider_tree.ProviderTree()
    tree.new_root("node0", UUID, generation=0)
    driver.update_provider_tree(tree, "node0")
    found: dict[str, dict[str, Any]] = tree.data("node0").inventory
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    totals=st.tuples(*[st.integers(1, 2**31 - 1)] * 3),
    reserved=st.tuples(st.integers(0, 8), st.integers(0, 4096), st.integers(0, 50)),
    ratios=st.none() | st.tuples(*[st.integers(1, 6400).map(lambda n: n / 100)] * 3),
)
def test_our_inventories_are_what_nova_s_driver_reports(
    totals: tuple[int, int, int],
    reserved: tuple[int, int, int],
    ratios: tuple[float, float, float] | None,
) -> None:
    totals = tuple(max(pair) for pair in zip(totals, reserved, strict=True))  # type: ignore
    CONF.set_override("reserved_host_cpus", reserved[0])
    CONF.set_override("reserved_host_memory_mb", reserved[1])
    CONF.set_override("reserved_host_disk_mb", reserved[2] * 1024)
    for name, ratio in zip(("cpu", "ram", "disk"), ratios or (None,) * 3, strict=True):
        CONF.set_override(f"{name}_allocation_ratio", ratio)
    kinds = ("VCPU", "MEMORY_MB", "DISK_GB")
    theirs = objects.ComputeNode(
        **dict(zip(("vcpus", "memory_mb", "local_gb"), totals, strict=True)),
        **dict(zip(("vcpus_used", "memory_mb_used", "local_gb_used"), reserved, strict=True)),
    )
    ours = ComputeNode.from_nova(
        theirs,
        reserved=dict(zip(kinds, reserved, strict=True)),
        ratios=dict(zip(kinds, ratios or (None,) * 3, strict=True)),
    ).get_inventories()
    assert {
        str(kind): {
            "total": inventory.total,
            "min_unit": inventory.min_unit,
            "max_unit": inventory.max_unit,
            "step_size": inventory.step_size,
            "allocation_ratio": float(inventory.allocation_ratio),
            "reserved": inventory.reserved,
        }
        for kind, inventory in ours.items()
    } == reported(theirs)
    assert {inventory.used for inventory in ours.values()} == {0}


# --- nova's tracker -----------------------------------------------------------------------------


def track(node: Any, usage: dict[str, int], sign: int = 1) -> None:
    """Let nova's tracker count an instance."""
    tracker = types.SimpleNamespace(
        compute_nodes={"node0": node},
        stats={"node0": types.SimpleNamespace(num_instances=0)},
    )
    resource_tracker.ResourceTracker._update_usage(tracker, usage, "node0", sign)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 512), st.integers(0, 9), st.booleans()))
)
def test_used_and_free_are_what_nova_s_tracker_computes(
    events: list[tuple[int, int, int, bool]],
) -> None:
    generous = dict.fromkeys(
        ("cpu_allocation_ratio", "ram_allocation_ratio", "disk_allocation_ratio"), 1000.0
    )
    theirs = nova_node(**generous)
    ours = ComputeNode.from_nova(theirs)
    for cpus, memory, disk, back in events:
        amounts = ro.Amounts(VCPU=cpus, MEMORY_MB=memory, DISK_GB=disk)
        with contextlib.suppress(ro.CapacityException):
            ours.inventories.consume(-amounts if back else amounts)
            usage = {"vcpus": cpus, "memory_mb": memory, "root_gb": disk, "swap": 0}
            track(theirs, usage, -1 if back else 1)
    for column in (
        "vcpus_used",
        "memory_mb_used",
        "local_gb_used",
        "free_ram_mb",
        "free_disk_gb",
    ):
        assert getattr(ours, column) == getattr(theirs, column)


def test_disk_drifts_in_nova_and_not_here() -> None:
    theirs = nova_node()
    ours = ComputeNode.from_nova(theirs)
    half_a_gib_of_swap = {"memory_mb": 0, "swap": 512}
    track(theirs, half_a_gib_of_swap)
    track(theirs, half_a_gib_of_swap, sign=-1)
    assert theirs.local_gb_used == 9  # it was 10, and the instance is gone
    with pytest.raises(ro.ResourceObjectsError, match=r"0\.5, expected an integer"):
        ours.inventories.consume({"DISK_GB": 512 / 1024})
    ours.inventories.consume("DISK_GB=1")  # whole units, rounded up by whoever asks
    ours.inventories.consume("DISK_GB=-1")
    assert ours.local_gb_used == 10


# --- nova's scheduler ---------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(total=st.integers(1, 500), used=st.integers(0, 600), least=st.none() | st.integers(-50, 600))
def test_free_disk_is_what_nova_s_scheduler_believes(
    total: int, used: int, least: int | None
) -> None:
    changes = {
        "local_gb": total,
        "local_gb_used": used,
        "free_disk_gb": total - used,
        "disk_available_least": least,
    }
    state = host_manager.HostState("host0", "node0", UUID)
    state._update_from_compute_node(nova_node(**changes))
    ours = ComputeNode.from_row(row(**changes)).inventories
    free = state.free_disk_mb // 1024
    assert ours.can_provide({"DISK_GB": max(free, 0)})
    assert not ours.can_provide({"DISK_GB": max(free, 0) + 1})


def test_the_wire_forms_do_not_mix() -> None:
    node = nova_node()
    ours = ComputeNode.from_nova(node)
    with pytest.raises(ro.ResourceObjectsError):
        ComputeNode.obj_from_primitive(node.obj_to_primitive())
    assert ours.obj_name() == "resource_objects.ComputeNode" != node.obj_name()
