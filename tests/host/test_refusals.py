"""Wrong input is refused with its subject, the value and what is allowed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

import resource_objects as ro
from resource_objects.exceptions import InvalidInput
from resource_objects.host.compute_node import ComputeNode
from resource_objects.host.device_rules import DeviceRule, match_rules
from resource_objects.host.discovery import discover
from resource_objects.host.linux import read_machine
from resource_objects.host.machine import Core, Disk, Machine, NUMACell, Pages, PCIDevice
from resource_objects.host.settings import HostSettings
from resource_objects.host.tree import provider_tree

CORE = Core(0, 0, (0,))
GPU = PCIDevice("0000:3b:00.0", "10de", "2330", "030200")
RULE = DeviceRule.parse("10de:*=PGPU")


def machine(**facts) -> Machine:
    return Machine(**({"cpus": (0,), "cores": (CORE,), "memory_bytes": 0} | facts))


def device(**facts) -> PCIDevice:
    return dataclasses.replace(GPU, **facts)


def node() -> ComputeNode:
    return ComputeNode(hypervisor_hostname="h", vcpus=1, vcpus_used=0)


def loaded(name: object) -> ComputeNode:
    with ro.connect("memory://") as ledger:
        return ComputeNode.load(ledger, name)


#: ``what the message names: calls``
REFUSED: dict[str, list[Callable[[], object]]] = {
    "Core.package_id": [lambda: Core("0", 0, (0,)), lambda: Core(True, 0, (0,))],
    "Core.core_id": [lambda: Core(0, 1.0, (0,))],
    "Core.cpus": [
        lambda: Core(0, 0, 5),
        lambda: Core(0, 0, None),
        lambda: Core(0, 0, (0.5,)),
        lambda: Core(0, 0, (False,)),
        lambda: Core(0, 0, [0]),
        lambda: Core(0, 0, "0"),
    ],
    "Pages.size_bytes": [lambda: Pages("x", 1), lambda: Pages(1.5, 1)],
    "Pages.total": [lambda: Pages(1, None), lambda: Pages(1, True)],
    "Pages.free": [lambda: Pages(1, 1, "0"), lambda: Pages(1, 1, 0.5)],
    "NUMACell.id": [lambda: NUMACell("0", (), 0), lambda: NUMACell(None, (), 0)],
    "NUMACell.cpus": [lambda: NUMACell(0, None, 0)],
    "NUMACell.memory_bytes": [lambda: NUMACell(0, (), "1"), lambda: NUMACell(0, (), 1.5)],
    "NUMACell.pages": [
        lambda: NUMACell(0, (), 0, pages=5),
        lambda: NUMACell(0, (), 0, pages=(4096,)),
    ],
    "NUMACell.package_id": [lambda: NUMACell(0, (), 0, package_id="0")],
    "NUMACell.distances": [
        lambda: NUMACell(0, (), 0, distances=10),
        lambda: NUMACell(0, (), 0, distances=("10",)),
        lambda: NUMACell(0, (), 0, distances=(-1,)),
    ],
    "NUMACell.initiators": [lambda: NUMACell(0, (), 0, initiators=0)],
    "Disk.path": [lambda: Disk(5, 1, 1), lambda: Disk(5, "a", "b")],
    "Disk.total_bytes": [lambda: Disk("/", "a", 1), lambda: Disk("/", 1.0, 1)],
    "Disk.free_bytes": [lambda: Disk("/", 1, "b"), lambda: Disk("/", 1, None)],
    "PCIDevice.address": [lambda: PCIDevice(5, 6, 7, 8), lambda: device(address="")],
    "PCIDevice.vendor_id": [lambda: device(vendor_id=0x10DE)],
    "PCIDevice.product_id": [lambda: device(product_id=None)],
    "PCIDevice.class_id": [lambda: device(class_id=8)],
    "PCIDevice.kind": [lambda: device(kind="type-PCI"), lambda: device(kind=None)],
    "PCIDevice.numa_node": [lambda: device(numa_node="0"), lambda: device(numa_node=-1)],
    "PCIDevice.parent_address": [lambda: device(parent_address=5)],
    "PCIDevice.sriov_totalvfs": [lambda: device(sriov_totalvfs="8")],
    "PCIDevice.sriov_numvfs": [lambda: device(sriov_numvfs=-1)],
    "PCIDevice.driver": [lambda: device(driver=5)],
    "PCIDevice.revision": [lambda: device(revision=161)],
    "PCIDevice.subsystem_vendor_id": [lambda: device(subsystem_vendor_id=1)],
    "PCIDevice.subsystem_product_id": [lambda: device(subsystem_product_id=1)],
    "Machine.cpus": [lambda: machine(cpus=None), lambda: machine(cpus=("0",))],
    "Machine.cores": [lambda: machine(cores=None), lambda: machine(cores=((0,),))],
    "Machine.memory_bytes": [
        lambda: machine(memory_bytes="1"),
        lambda: machine(memory_bytes=float("inf")),
        lambda: machine(memory_bytes=True),
    ],
    "Machine.cells": [lambda: machine(cells=None), lambda: machine(cells=(5,))],
    "Machine.hostname": [lambda: machine(hostname=5)],
    "Machine.architecture": [lambda: machine(architecture=b"x86_64")],
    "Machine.offline_cpus": [lambda: machine(offline_cpus=5)],
    "Machine.huge_pages": [lambda: machine(huge_pages=(5,))],
    "Machine.disk": [lambda: machine(disk="/")],
    "Machine.devices": [lambda: machine(devices=GPU), lambda: machine(devices=("gpu",))],
    "restrict: cpus": [
        lambda: machine().restrict(cpus=5),
        lambda: machine().restrict(cpus="0"),
        lambda: machine().restrict(cpus=[[]]),
    ],
    "restrict: cells": [lambda: machine().restrict(cells=5)],
    "cell": [lambda: machine().cell([])],
    "vendor of a device rule": [lambda: DeviceRule(5, "*", "PGPU")],
    "resource class of a device rule": [
        lambda: DeviceRule("*", "*", 5),
        lambda: DeviceRule("*", "*", ro.PGPU),
    ],
    "trait of a device rule": [
        lambda: DeviceRule("*", "*", "PGPU", traits=5),
        lambda: DeviceRule("*", "*", "PGPU", traits="CUSTOM_A"),
        lambda: DeviceRule("*", "*", "PGPU", traits=["CUSTOM_A"]),
        lambda: DeviceRule("*", "*", "PGPU", traits=(5,)),
    ],
    "device rule": [
        lambda: DeviceRule.parse(5),
        lambda: match_rules(["10de:*=PGPU"], [GPU]),
        lambda: provider_tree(machine(hostname="h"), HostSettings(device_rules=[5])),
    ],
    "device rules": [
        lambda: match_rules(5, [GPU]),
        lambda: match_rules("10de:*=PGPU", [GPU]),
        lambda: provider_tree(machine(hostname="h"), HostSettings(device_rules=5)),
        lambda: provider_tree(machine(hostname="h"), HostSettings(device_rules="10de:*=PGPU")),
    ],
    "device": [lambda: match_rules([RULE], ["0000:3b:00.0"])],
    "devices": [lambda: match_rules([RULE], None)],
    "root": [lambda: read_machine(5), lambda: read_machine(None)],
    "disk_path": [lambda: read_machine("/nowhere", disk_path=5)],
    "page_size_bytes": [
        lambda: read_machine("/", page_size_bytes="x"),
        lambda: read_machine("/", page_size_bytes=1.5),
        lambda: read_machine("/", page_size_bytes=True),
        lambda: read_machine("/", page_size_bytes=0),
    ],
    "options of discovery driver linux": [lambda: discover("linux", bogus=1)],
    "discovery driver": [lambda: discover([]), lambda: discover(None)],
    "machine": [lambda: provider_tree(None), lambda: provider_tree({})],
    "ledger": [
        lambda: node().bind("x"),
        lambda: node().bind(None),
        lambda: ComputeNode.load("memory://", "h"),
    ],
    "provider name": [lambda: loaded([]), lambda: loaded(None), lambda: loaded("")],
    "inventories": [
        lambda: node().update_inventories(5),
        lambda: node().update_inventories("VCPU=5"),
        lambda: node().update_inventories(None),
    ],
}


@pytest.mark.parametrize(
    ("subject", "call"), [(what, call) for what, calls in REFUSED.items() for call in calls]
)
def test_what_cannot_be_is_refused_by_name(subject, call):
    with pytest.raises(InvalidInput) as refused:
        call()
    assert refused.value.what == subject
    assert refused.value.expected
    assert str(refused.value).startswith(f"{subject}: got ")


def test_an_option_that_a_driver_does_not_take_names_those_it_does():
    with pytest.raises(InvalidInput, match="root, disk_path, within_cgroup, page_size_bytes"):
        discover("linux", bogus=1)
