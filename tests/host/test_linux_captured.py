"""Captured machines.

They are real machines that other programs describe (hwloc's counts, ghw's snapshots); these tests
skip where the data is absent. ``test_linux.py`` tests every rule on generated trees too.
"""

from __future__ import annotations

import collections

import pytest

from resource_objects.host.linux import read_machine
from resource_objects.host.machine import DeviceKind, Machine, Pages

MIB = 1024 * 1024

# --- machines that hwloc captured ---------------------------------------------------------------

RESTRICTED = "32amd64-4s2n4c-cgroup2"  # hwloc counts what the cgroup of the capture allows
HETEROGENEOUS = "fakeheteromemtiers"  # hwloc gives memory-only nodes the CPUs nearest to them
WITH_PCI = "32intel64-2p8co2t+8ve"
HWLOC = [
    "128ia64-17n4s2c",
    "16amd64-8n2c",
    "16em64t-4s2c2t",
    "16em64t-4s2c2t-offlines",
    "20em64t-hybrid-1p6c2t+2ca4co1t",
    "256ppc-8n8s4t",
    "2arm-2c",
    "2i386-2c-nohugepage",
    RESTRICTED,
    WITH_PCI,
    "48amd64-4pa2n6c-sparse",
    HETEROGENEOUS,
]


def ids(text: str) -> tuple[int, ...]:
    """The ids of ``0-1,3``."""
    ends = [part.partition("-") for part in text.split(",") if part]
    return tuple(
        number for low, _, high in ends for number in range(int(low), int(high or low) + 1)
    )


@pytest.fixture
def machine(request: pytest.FixtureRequest, captured_machine) -> Machine:
    return captured_machine(request.param, within_cgroup=request.param == RESTRICTED)


def test_every_machine_of_the_shared_data_is_tested(hwloc_counts):
    assert sorted(hwloc_counts) == sorted(HWLOC)


@pytest.mark.parametrize(
    ("machine", "name"), [(each, each) for each in HWLOC], indirect=["machine"]
)
def test_packages_nodes_cores_and_cpus_are_what_hwloc_counts(machine, name, hwloc_counts):
    counts = hwloc_counts[name]["counts"]
    result = {
        "Package": machine.packages,
        "NUMANode": len(machine.cells),
        "Core": machine.physical_cores,
        "PU": len(machine.cpus),
    }
    assert result == {key: counts[key] for key in result}


@pytest.mark.parametrize(
    ("machine", "name"), [(each, each) for each in HWLOC], indirect=["machine"]
)
def test_each_node_has_the_bytes_and_pages_that_hwloc_counts(machine, name, hwloc_counts):
    result = {
        cell.id: (
            cell.memory_bytes,
            {str(p.size_bytes): str(p.total) for p in cell.pages if p.total},
        )
        for cell in machine.cells
    }
    nodes = hwloc_counts[name]["numa"]
    assert result == {node["os_index"]: (node["bytes"], node["pages"]) for node in nodes}


@pytest.mark.parametrize(
    ("machine", "name"),
    [(each, each) for each in HWLOC if each != HETEROGENEOUS],
    indirect=["machine"],
)
def test_each_node_has_the_cpus_that_hwloc_gives_it(machine, name, hwloc_counts):
    result = {cell.id: cell.cpus for cell in machine.cells}
    assert result == {node["os_index"]: ids(node["cpus"]) for node in hwloc_counts[name]["numa"]}


@pytest.mark.parametrize("machine", [HETEROGENEOUS], indirect=True)
def test_memory_only_nodes_have_no_cpus_and_hwloc_gives_them_those_of_their_initiators(
    machine, hwloc_counts
):
    nodes = {node["os_index"]: node for node in hwloc_counts[HETEROGENEOUS]["numa"]}
    with_cpus = {cell.id for cell in machine.cells if cell.cpus}
    assert with_cpus == {0, 1, 2}  # the value of has_cpu; hwloc reports all seven CPUs
    for cell in machine.cells:
        nearest = [cpu for initiator in cell.initiators for cpu in machine.cell(initiator).cpus]
        assert tuple(nearest) == ids(nodes[cell.id]["cpus"])


@pytest.mark.parametrize(
    ("machine", "name"), [(each, each) for each in HWLOC], indirect=["machine"]
)
def test_pci_functions_are_what_hwloc_counts_without_bridges(machine, name, hwloc_counts):
    # hwloc leaves out bridges (class 06), which carry nothing that could be handed out.
    functions = [device for device in machine.devices if not device.class_id.startswith("06")]
    assert len(functions) == hwloc_counts[name]["counts"]["PCI"]


@pytest.mark.parametrize("machine", [WITH_PCI], indirect=True)
def test_a_captured_machine_with_accelerators_and_sriov(machine):
    assert len(machine.devices) == 28  # 12 functions and 16 bridges
    physical = [device for device in machine.devices if device.kind is DeviceKind.PF]
    assert [device.address for device in physical] == ["0000:60:00.0", "0000:60:00.1"]
    assert {(device.sriov_totalvfs, device.sriov_numvfs) for device in physical} == {(64, 0)}
    assert {device.driver for device in physical} == {"i40e"}
    engines = [device for device in machine.devices if device.class_id == "0b4000"]
    assert len(engines) == 8
    assert {(device.vendor_id, device.product_id, device.driver) for device in engines} == {
        ("1bcf", "001c", "ve_drv")
    }
    assert {device.numa_node for device in machine.devices} == {0}
    assert machine.huge_pages == (Pages(2 * MIB, 4096, 4096), Pages(1024 * MIB, 0, 0))


def test_a_cgroup_restricts_only_when_requested(captured_machine):
    full = captured_machine(RESTRICTED)
    assert (full.packages, len(full.cells), len(full.cpus)) == (4, 8, 32)
    assert full.huge_pages == (Pages(2 * MIB, 513, 513),)  # the nodes are not reported
    allowed = captured_machine(RESTRICTED, within_cgroup=True)
    assert [cell.id for cell in allowed.cells] == [0, 1, 2, 3, 4, 5]
    assert allowed.cpus == (0, 1, 2, 3, 4, 5)
    assert allowed == full.restrict(cpus=range(6), cells=range(6))
    assert allowed.cells[1].distances == full.cells[1].distances[:6]


@pytest.mark.parametrize("name", [each for each in HWLOC if each != RESTRICTED])
def test_without_a_cpuset_a_cgroup_restricts_nothing(name, captured):
    root = captured(name)
    assert read_machine(root, within_cgroup=True) == read_machine(root)


def test_the_offline_cpus_of_a_captured_machine(captured_machine):
    machine = captured_machine("16em64t-4s2c2t-offlines")
    assert machine.offline_cpus == (2, 5, 13, 14)
    siblings = [core.cpus for core in machine.cores]
    assert (1, 9) in siblings
    assert (6,) in siblings  # its sibling 14 is offline


def test_a_hybrid_machine_has_cores_of_one_and_two_threads(captured_machine):
    machine = captured_machine("20em64t-hybrid-1p6c2t+2ca4co1t")
    threads = collections.Counter(len(core.cpus) for core in machine.cores)
    assert threads == {2: 6, 1: 8}
    assert machine.threads_per_core == 2


def test_node_ids_of_captured_machines_may_be_sparse(captured_machine):
    machine = captured_machine("48amd64-4pa2n6c-sparse")
    assert [cell.id for cell in machine.cells] == [0, 1, 2, 33, 34, 45, 72, 73]
    assert machine.cell(0).distances[-1] == 22
    power = captured_machine("256ppc-8n8s4t")
    assert [cell.id for cell in power.cells] == [0, 1, 4, 5, 8, 9, 12, 13]
    assert power.threads_per_core == 4


def test_no_huge_page_support_is_no_huge_pages(captured_machine):
    machine = captured_machine("2i386-2c-nohugepage")
    assert machine.huge_pages == ()
    assert [pages.size_bytes for pages in machine.cells[0].pages] == [4096]


# --- machines that ghw captured -----------------------------------------------------------------


def test_ghw_dual_xeon(captured_machine):
    machine = captured_machine("linux-amd64-8581cf3a529e5d8b97ea876eade2f60d")
    assert (machine.packages, len(machine.cells), len(machine.cpus)) == (2, 2, 24)
    assert (machine.physical_cores, machine.threads_per_core) == (12, 2)
    nodes = collections.Counter(device.numa_node for device in machine.devices)
    assert nodes == {0: 5, 1: 5, None: 72}
    of = {device.address: device.numa_node for device in machine.devices}
    assert (of["0000:05:11.0"], of["0000:05:00.1"], of["0000:07:03.0"]) == (0, 1, None)
    # The first node's CPUs are of the second package: ids of the two need not agree.
    assert [cell.package_id for cell in machine.cells] == [1, 0]


def test_ghw_nvidia(captured_machine):
    machine = captured_machine("linux-amd64-accel-nvidia")
    assert (machine.packages, len(machine.cells), len(machine.cpus)) == (1, 1, 8)
    (gpu,) = [device for device in machine.devices if device.vendor_id == "10de"]
    assert (gpu.address, gpu.product_id, gpu.class_id) == ("0000:06:00.0", "15f8", "030200")
    assert gpu.numa_node is None


def test_ghw_offline_cpus(captured_machine):
    machine = captured_machine("linux-amd64-offlineCPUs")
    assert (machine.cpus, machine.offline_cpus) == ((0, 1), (2, 3))
    assert machine.cells[0].cpus == (0, 1)
    assert machine.cells[0].package_id is None  # its two CPUs are of two packages
