"""Reading a Linux machine: captured ones, generated ones, damaged ones, and this one.

The captures are real machines which others describe (hwloc's counts, ghw's snapshots); their tests
skip where the data is absent. Every rule they hold is also held on generated trees, which are
always there.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import sys
import tempfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resource_objects.exceptions import DiscoveryError, InvalidInput
from resource_objects.host.facts import Core, DeviceKind, Disk, Machine, NUMACell, Pages, PCIDevice
from resource_objects.host.linux import read_machine

MIB = 1024 * 1024
GENERATED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

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
    return tuple(each for low, _, high in ends for each in range(int(low), int(high or low) + 1))


@pytest.fixture
def machine(request: pytest.FixtureRequest, captured) -> Machine:
    return read_machine(captured(request.param), within_cgroup=request.param == RESTRICTED)


def test_every_machine_of_the_shared_data_is_tested(hwloc_counts):
    assert sorted(hwloc_counts) == sorted(HWLOC)


@pytest.mark.parametrize(
    ("machine", "name"), [(each, each) for each in HWLOC], indirect=["machine"]
)
def test_packages_nodes_cores_and_cpus_are_what_hwloc_counts(machine, name, hwloc_counts):
    counts = hwloc_counts[name]["counts"]
    found = {
        "Package": machine.packages,
        "NUMANode": len(machine.cells),
        "Core": machine.physical_cores,
        "PU": len(machine.cpus),
    }
    assert found == {key: counts[key] for key in found}


@pytest.mark.parametrize(
    ("machine", "name"), [(each, each) for each in HWLOC], indirect=["machine"]
)
def test_each_node_has_the_bytes_and_pages_that_hwloc_counts(machine, name, hwloc_counts):
    found = {
        cell.id: (
            cell.memory_bytes,
            {str(p.size_bytes): str(p.total) for p in cell.pages if p.total},
        )
        for cell in machine.cells
    }
    nodes = hwloc_counts[name]["numa"]
    assert found == {node["os_index"]: (node["bytes"], node["pages"]) for node in nodes}


@pytest.mark.parametrize(
    ("machine", "name"),
    [(each, each) for each in HWLOC if each != HETEROGENEOUS],
    indirect=["machine"],
)
def test_each_node_has_the_cpus_that_hwloc_gives_it(machine, name, hwloc_counts):
    found = {cell.id: cell.cpus for cell in machine.cells}
    assert found == {node["os_index"]: ids(node["cpus"]) for node in hwloc_counts[name]["numa"]}


@pytest.mark.parametrize("machine", [HETEROGENEOUS], indirect=True)
def test_memory_only_nodes_have_no_cpus_and_hwloc_gives_them_those_of_their_initiators(
    machine, hwloc_counts
):
    nodes = {node["os_index"]: node for node in hwloc_counts[HETEROGENEOUS]["numa"]}
    with_cpus = {cell.id for cell in machine.cells if cell.cpus}
    assert with_cpus == {0, 1, 2}  # what has_cpu says; hwloc gives all seven CPUs
    for cell in machine.cells:
        nearest = [cpu for each in cell.initiators for cpu in machine.cell(each).cpus]
        assert tuple(nearest) == ids(nodes[cell.id]["cpus"])


@pytest.mark.parametrize(
    ("machine", "name"), [(each, each) for each in HWLOC], indirect=["machine"]
)
def test_pci_functions_are_what_hwloc_counts_without_bridges(machine, name, hwloc_counts):
    # hwloc leaves out bridges (class 06), which carry nothing that could be handed out.
    functions = [each for each in machine.devices if not each.class_id.startswith("06")]
    assert len(functions) == hwloc_counts[name]["counts"]["PCI"]


@pytest.mark.parametrize("machine", [WITH_PCI], indirect=True)
def test_a_captured_machine_with_accelerators_and_sriov(machine):
    assert len(machine.devices) == 28  # 12 functions and 16 bridges
    physical = [each for each in machine.devices if each.kind is DeviceKind.PF]
    assert [each.address for each in physical] == ["0000:60:00.0", "0000:60:00.1"]
    assert {(each.sriov_totalvfs, each.sriov_numvfs) for each in physical} == {(64, 0)}
    assert {each.driver for each in physical} == {"i40e"}
    engines = [each for each in machine.devices if each.class_id == "0b4000"]
    assert len(engines) == 8
    assert {(each.vendor_id, each.product_id, each.driver) for each in engines} == {
        ("1bcf", "001c", "ve_drv")
    }
    assert {each.numa_node for each in machine.devices} == {0}
    assert machine.huge_pages == (Pages(2 * MIB, 4096, 4096), Pages(1024 * MIB, 0, 0))


def test_a_cgroup_restricts_only_when_asked(captured):
    whole = read_machine(captured(RESTRICTED))
    assert (whole.packages, len(whole.cells), len(whole.cpus)) == (4, 8, 32)
    assert whole.huge_pages == (Pages(2 * MIB, 513, 513),)  # on which nodes is not said
    allowed = read_machine(captured(RESTRICTED), within_cgroup=True)
    assert [cell.id for cell in allowed.cells] == [0, 1, 2, 3, 4, 5]
    assert allowed.cpus == (0, 1, 2, 3, 4, 5)
    assert allowed == whole.restrict(cpus=range(6), cells=range(6))
    assert allowed.distance(1, 4) == whole.distance(1, 4)


@pytest.mark.parametrize("name", [each for each in HWLOC if each != RESTRICTED])
def test_without_a_cpuset_a_cgroup_restricts_nothing(name, captured):
    root = captured(name)
    assert read_machine(root, within_cgroup=True) == read_machine(root)


def test_the_offline_cpus_of_a_captured_machine(captured):
    machine = read_machine(captured("16em64t-4s2c2t-offlines"))
    assert machine.offline_cpus == (2, 5, 13, 14)
    assert (1, 9) in machine.thread_siblings
    assert (6,) in machine.thread_siblings  # its sibling 14 is offline


def test_a_hybrid_machine_has_cores_of_one_and_two_threads(captured):
    machine = read_machine(captured("20em64t-hybrid-1p6c2t+2ca4co1t"))
    threads = collections.Counter(len(core.cpus) for core in machine.cores)
    assert threads == {2: 6, 1: 8}
    assert machine.threads_per_core == 2


def test_node_ids_of_captured_machines_may_be_sparse(captured):
    machine = read_machine(captured("48amd64-4pa2n6c-sparse"))
    assert [cell.id for cell in machine.cells] == [0, 1, 2, 33, 34, 45, 72, 73]
    assert machine.distance(0, 73) == machine.cell(0).distances[-1] == 22
    power = read_machine(captured("256ppc-8n8s4t"))
    assert [cell.id for cell in power.cells] == [0, 1, 4, 5, 8, 9, 12, 13]
    assert power.threads_per_core == 4


def test_no_huge_page_support_is_no_huge_pages(captured):
    machine = read_machine(captured("2i386-2c-nohugepage"))
    assert machine.huge_pages == ()
    assert [pages.size_bytes for pages in machine.cells[0].pages] == [4096]


# --- machines that ghw captured -----------------------------------------------------------------


def test_ghw_dual_xeon(captured):
    machine = read_machine(captured("linux-amd64-8581cf3a529e5d8b97ea876eade2f60d"))
    assert (machine.packages, len(machine.cells), len(machine.cpus)) == (2, 2, 24)
    assert (machine.physical_cores, machine.threads_per_core) == (12, 2)
    nodes = collections.Counter(each.numa_node for each in machine.devices)
    assert nodes == {0: 5, 1: 5, None: 72}
    of = {each.address: each.numa_node for each in machine.devices}
    assert (of["0000:05:11.0"], of["0000:05:00.1"], of["0000:07:03.0"]) == (0, 1, None)
    # The first node's CPUs are of the second package: ids of the two need not agree.
    assert [cell.package_id for cell in machine.cells] == [1, 0]


def test_ghw_nvidia(captured):
    machine = read_machine(captured("linux-amd64-accel-nvidia"))
    assert (machine.packages, len(machine.cells), len(machine.cpus)) == (1, 1, 8)
    (gpu,) = [each for each in machine.devices if each.vendor_id == "10de"]
    assert (gpu.address, gpu.product_id, gpu.class_id) == ("0000:06:00.0", "15f8", "030200")
    assert gpu.numa_node is None


def test_ghw_offline_cpus(captured):
    machine = read_machine(captured("linux-amd64-offlineCPUs"))
    assert (machine.cpus, machine.offline_cpus) == ((0, 1), (2, 3))
    assert machine.cells[0].cpus == (0, 1)
    assert machine.cells[0].package_id is None  # its two CPUs are of two packages


# --- generated machines -------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path, trees):
    """A small machine with everything, to be damaged."""
    shape = trees.Shape(
        packages=2,
        cores_per_node=2,
        threads=2,
        node_ids=(1, 0, 7),
        memory_kib=(1 << 20, 1 << 20, 1 << 19),
        huge=({2048: 512, 1048576: 2}, {2048: 0, 1048576: 0}, {}),
        initiators=((1,),),
        functions=(
            trees.Function(bus=0x3B, node=1, vendor="10de", product="2330", class_id="030200"),
            trees.Function(bus=0x60, node=0, totalvfs=64, vfs=2),
        ),
    )
    trees.write(tmp_path, shape)
    return shape


@GENERATED
@given(data=st.data())
def test_what_was_generated_is_what_is_read(data, trees):
    shape = data.draw(trees.shapes())
    with tempfile.TemporaryDirectory() as root:
        trees.write(pathlib.Path(root), shape)
        assert read_machine(root) == trees.expected(shape)


def test_a_tree_with_everything(tree, trees, tmp_path):
    machine = read_machine(tmp_path)
    assert machine == trees.expected(tree)
    assert [cell.id for cell in machine.cells] == [0, 1, 7]
    assert machine.cell(7).cpus == () and machine.cell(7).initiators == (0,)
    assert [each.address for each in machine.virtual_functions("0000:60:00.0")] == [
        "0000:60:02.0",
        "0000:60:02.1",
    ]
    assert json.loads(json.dumps(machine.to_dict())) == machine.to_dict()


def test_a_kernel_without_numa_is_one_cell_with_everything(trees, tmp_path):
    shape = trees.Shape(
        packages=2, node_ids=(0, 1), memory_kib=(1024, 2048), huge=({}, {}), numa=False
    )
    trees.write(tmp_path, shape)
    (cell,) = read_machine(tmp_path).cells
    assert (cell.id, cell.cpus, cell.memory_bytes) == (0, (0, 1, 2, 3), 3072 * 1024)
    assert cell.package_id is None and cell.distances == ()


def test_base_pages_are_what_huge_pages_leave_over(tree, tmp_path):
    cell = read_machine(tmp_path, page_size_bytes=65536).cell(1)
    assert [pages.size_bytes for pages in cell.pages] == [65536, 2 * MIB, 1024 * MIB]
    assert sum(pages.memory_bytes for pages in cell.pages) == cell.memory_bytes
    assert cell.huge_pages == (Pages(2 * MIB, 512, 256), Pages(1024 * MIB, 2, 1))


def test_nothing_is_read_twice(trees, tmp_path, monkeypatch):
    shape = trees.Shape(
        packages=4,
        cores_per_node=64,
        threads=2,
        node_ids=tuple(range(4)),
        memory_kib=(1 << 20,) * 4,
        huge=({2048: 8},) * 4,
        functions=(trees.Function(bus=1, totalvfs=64, vfs=64),),
    )
    trees.write(tmp_path, shape)
    opened: collections.Counter[str] = collections.Counter()
    real = os.open

    def counting(path, *args, **kwargs):
        opened[os.fspath(path)] += 1
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", counting)
    machine = read_machine(tmp_path)
    monkeypatch.undo()
    assert len(machine.cpus) == 512 and len(machine.devices) == 65
    assert max(opened.values()) == 1
    # Three files per core (not per CPU), nine per function and a few for the rest.
    assert sum(opened.values()) <= 3 * 256 + 9 * 65 + 8 * 4 + 16


# --- links --------------------------------------------------------------------------------------


def test_a_link_out_of_the_root_ends_in_the_root(tree, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "meminfo").write_text("MemTotal: 4 kB\n")
    meminfo = tmp_path / "proc/meminfo"
    for target in (str(outside / "meminfo"), f"../../{outside.name}/meminfo"):
        meminfo.unlink()
        meminfo.symlink_to(target)
        machine = read_machine(tmp_path)  # the link dangles: the sum over the cells it is
        assert machine.memory_bytes == sum(cell.memory_bytes for cell in machine.cells)


def test_links_to_directories_are_resolved_in_the_root(tree, trees, tmp_path):
    (tmp_path / "sys").rename(tmp_path / "captured")
    (tmp_path / "sys").symlink_to("/captured")  # absolute: the root of the capture, not ours
    assert read_machine(tmp_path) == trees.expected(tree)


def test_a_circle_of_links_is_refused(tree, tmp_path):
    nodes = tmp_path / "sys/devices/system/node/node1"
    shutil.rmtree(nodes)
    nodes.symlink_to("node1")
    with pytest.raises(DiscoveryError, match="node1/meminfo"):
        read_machine(tmp_path)


def test_a_device_that_went_away_is_left_out(tree, trees, tmp_path):
    (tmp_path / "sys/bus/pci/devices/0000:99:00.0").symlink_to("../../../devices/gone")
    assert read_machine(tmp_path) == trees.expected(tree)


# --- damage -------------------------------------------------------------------------------------

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
GPU = "sys/devices/pci0000:00/0000:3b:00.0"
VF = "sys/devices/pci0000:00/0000:60:02.0"

REQUIRED = [
    "sys/devices/system/cpu",
    f"{NODE}/node1",
    f"{NODE}/node1/meminfo",
    f"{NODE}/node1/hugepages/hugepages-2048kB/nr_hugepages",
    f"{GPU}/vendor",
    f"{GPU}/device",
    f"{GPU}/class",
]


@pytest.mark.parametrize("path", REQUIRED)
def test_what_must_be_there_is_named_when_missing(path, tree, tmp_path):
    remove(tmp_path / path)
    with pytest.raises(DiscoveryError) as caught:
        read_machine(tmp_path)
    named = caught.value.subject.replace("bus/pci/devices", "devices/pci0000:00")
    assert named.startswith(str(tmp_path / path))
    assert "expected" in caught.value.detail


def test_a_node_without_cpus_listed_is_refused(tree, tmp_path):
    (tmp_path / NODE / "node1/cpulist").unlink()
    read_machine(tmp_path)  # the mask says the same
    (tmp_path / NODE / "node1/cpumap").unlink()
    with pytest.raises(DiscoveryError, match="node1/cpulist"):
        read_machine(tmp_path)


def cell(machine: Machine, cell_id: int, **changes: object) -> Machine:
    cells = [
        dataclasses.replace(each, **changes) if each.id == cell_id else each
        for each in machine.cells
    ]
    return dataclasses.replace(machine, cells=tuple(cells))


def device(machine: Machine, address: str, **changes: object) -> Machine:
    devices = [
        dataclasses.replace(each, **changes) if each.address == address else each
        for each in machine.devices
    ]
    return dataclasses.replace(machine, devices=tuple(devices))


def core(machine: Machine, cpu: int, **changes: object) -> Machine:
    cores = [
        dataclasses.replace(each, **changes) if cpu in each.cpus else each for each in machine.cores
    ]
    return dataclasses.replace(machine, cores=tuple(cores))


GPU_ADDRESS, VF_ADDRESS = "0000:3b:00.0", "0000:60:02.0"
OPTIONAL = {
    "proc/sys/kernel/hostname": lambda m: dataclasses.replace(m, hostname=None),
    "proc/meminfo": lambda m: m,  # the sum over the cells
    f"{CPU}/online": lambda m: m,  # each CPU says for itself
    f"{CPU}/present": lambda m: m,  # the directories are counted
    f"{CPU}/cpu0/topology/core_cpus_list": lambda m: m,  # the mask says the same
    f"{CPU}/cpu0/topology/core_id": lambda m: core(m, 0, core_id=None),
    f"{CPU}/cpu0/topology/physical_package_id": lambda m: cell(
        core(m, 0, package_id=None), 1, package_id=None
    ),
    f"{NODE}/online": lambda m: m,
    f"{NODE}/node7/cpulist": lambda m: m,
    f"{NODE}/node1/distance": lambda m: cell(m, 1, distances=()),
    f"{NODE}/node7/access1": lambda m: cell(m, 7, initiators=()),
    f"{NODE}/node1/hugepages": lambda m: cell(
        m, 1, pages=(Pages(4096, m.cell(1).memory_bytes // 4096),)
    ),
    "sys/kernel/mm/hugepages": lambda m: dataclasses.replace(m, huge_pages=()),
    f"{NODE}/node1/hugepages/hugepages-2048kB/free_hugepages": lambda m: cell(
        m, 1, pages=(m.cell(1).pages[0], Pages(2 * MIB, 512), m.cell(1).pages[2])
    ),
    "sys/bus": lambda m: dataclasses.replace(m, devices=()),
    f"{GPU}/numa_node": lambda m: device(m, GPU_ADDRESS, numa_node=None),
    f"{GPU}/driver": lambda m: device(m, GPU_ADDRESS, driver=None),
    f"{GPU}/revision": lambda m: device(m, GPU_ADDRESS, revision=None),
    f"{GPU}/subsystem_vendor": lambda m: device(m, GPU_ADDRESS, subsystem_vendor_id=None),
    f"{GPU}/subsystem_device": lambda m: device(m, GPU_ADDRESS, subsystem_product_id=None),
    f"{VF}/physfn": lambda m: device(m, VF_ADDRESS, kind=DeviceKind.PCI, parent_address=None),
}


@pytest.mark.parametrize("path", OPTIONAL)
def test_a_missing_optional_fact_costs_that_fact_only(path, tree, trees, tmp_path):
    remove(tmp_path / path)
    assert read_machine(tmp_path) == OPTIONAL[path](trees.expected(tree))


@pytest.mark.parametrize(
    "path",
    [
        each
        for each in OPTIONAL
        if each
        not in (
            "sys/bus",
            "sys/kernel/mm/hugepages",
            f"{NODE}/node7/access1",
            f"{NODE}/node1/hugepages",
            f"{GPU}/driver",
            f"{VF}/physfn",
        )
    ],
)
def test_an_empty_file_is_a_fact_that_could_not_be_captured(path, tree, trees, tmp_path):
    (tmp_path / path).write_text("")
    assert read_machine(tmp_path) == OPTIONAL[path](trees.expected(tree))


GARBLED = [
    (f"{CPU}/online", "0-\n", "0-3,8"),
    (f"{CPU}/online", "7-0\n", "0-3,8"),
    (f"{CPU}/online", "3,1\n", "0-3,8"),
    (f"{CPU}/online", "0-99999999999\n", "0-3,8"),
    (f"{CPU}/online", "٣\n", "0-3,8"),
    (f"{CPU}/online", "\n", "one CPU online"),
    (f"{CPU}/online", "0-8\n", "cpu8"),
    (f"{CPU}/cpu0/topology/core_cpus_list", "1-2\n", "CPU 0 itself"),
    (f"{CPU}/cpu0/topology/core_id", "zero\n", "an integer"),
    (f"{CPU}/cpu2/topology/core_cpus_list", "1-3\n", "another"),
    (f"{NODE}/online", "0-1,8\n", "node8"),
    (f"{NODE}/node1/cpulist", "0-5\n", "CPU 4 is in node0 too"),
    (f"{NODE}/node1/cpulist", "0-1\n", "CPU 2 is online and in no node"),
    (f"{NODE}/node1/cpulist", "0-\n", "0-3,8"),
    (f"{NODE}/node1/meminfo", "Node 1 MemTotal:  10", "MemTotal: 16384 kB"),
    (f"{NODE}/node1/distance", "10 20\n", "3 distances"),
    (f"{NODE}/node1/distance", "10 20 -1\n", "3 distances"),
    (f"{NODE}/node1/hugepages/hugepages-2048kB/nr_hugepages", "-3\n", "zero or more"),
    (f"{NODE}/node1/hugepages/hugepages-2048kB/nr_hugepages", "99999\n", "to hold the huge pages"),
    ("proc/meminfo", "Mem", "MemTotal: 16384 kB"),
    (f"{GPU}/vendor", "10de\n", "0x and 4"),
    (f"{GPU}/class", "0x0302\n", "0x and 6"),
    (f"{GPU}/numa_node", "none\n", "an integer"),
    ("sys/devices/pci0000:00/0000:60:00.0/sriov_totalvfs", "-1\n", "virtual functions"),
    ("proc/sys/kernel/hostname", "a\x00b\n", "printable"),
]


@pytest.mark.parametrize(("path", "text", "detail"), GARBLED)
def test_nonsense_is_refused_and_named(path, text, detail, tree, tmp_path):
    (tmp_path / path).write_text(text, encoding="utf-8")
    with pytest.raises(DiscoveryError) as caught:
        read_machine(tmp_path)
    assert detail in str(caught.value)
    assert caught.value.subject.startswith(str(tmp_path))


def test_a_virtual_function_of_itself_is_refused(tree, tmp_path):
    (tmp_path / VF / "physfn").unlink()
    (tmp_path / VF / "physfn").symlink_to("../0000:60:02.0")
    with pytest.raises(DiscoveryError, match="physfn"):
        read_machine(tmp_path)


def test_memory_that_nothing_says_is_refused(trees, tmp_path):
    trees.write(tmp_path, trees.Shape(numa=False))
    (tmp_path / "proc/meminfo").unlink()
    with pytest.raises(DiscoveryError, match="proc/meminfo"):
        read_machine(tmp_path)


@pytest.mark.parametrize("root", ["/nowhere", "", __file__, "a\0b"])
def test_a_root_that_is_no_directory_is_refused(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DiscoveryError, match="cannot be read"):
        read_machine(root)


def test_an_empty_root_is_refused_by_the_directory_it_lacks(tmp_path):
    with pytest.raises(DiscoveryError, match="sys/devices/system/cpu"):
        read_machine(tmp_path)


def remove(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


NASTY = [
    b"",
    b"\n",
    b"\0",
    b"-1\n",
    b"0\n",
    b"1\n",
    b"0-\n",
    b"0-99999999999\n",
    b"65535\n",
    b"0-65535\n",
    b"65536\n",
    b"1_0\n",
    b"0x\n",
    b"0xffff\n",
    b"ffffffff,ffffffff\n",
    b"f" * 40000,
    b"9" * 5000,
    b"MemTotal: 0 kB\n",
    b"MemTotal: 999999999999999 kB\n",
    b"\xff\xfe\x00garbage",
    b"10 10 10\n",
]


@st.composite
def damages(draw: st.DrawFn) -> tuple[str, bytes | int]:
    kind = draw(st.sampled_from(["delete", "text", "bytes", "cut", "flip", "directory", "loop"]))
    if kind == "text":
        return kind, draw(st.sampled_from(NASTY))
    return kind, draw(st.binary(max_size=20)) if kind == "bytes" else draw(st.integers(0, 200))


@contextlib.contextmanager
def damaged(path: pathlib.Path, kind: str, value: bytes | int):
    """Damage one file or directory, and put it right again."""
    backup = path.with_name(path.name + ".backup")
    aside = pathlib.Path(tempfile.mkdtemp()) / backup.name
    path.rename(aside)
    try:
        if kind in ("text", "bytes"):
            path.write_bytes(value)
        elif kind in ("cut", "flip") and aside.is_file() and not aside.is_symlink():
            whole = aside.read_bytes()
            place = value % (len(whole) + 1)
            changed = bytes([whole[place] ^ 1 << value % 8]) if place < len(whole) else b"0"
            path.write_bytes(
                whole[:place] + (b"" if kind == "cut" else changed + whole[place + 1 :])
            )
        elif kind == "directory":
            path.mkdir()
        elif kind == "loop":
            path.symlink_to(path.name)
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            remove(path)
        aside.rename(path)
        aside.parent.rmdir()


def assert_reads_or_refuses(root: pathlib.Path) -> None:
    for within_cgroup in (False, True):
        try:
            machine = read_machine(root, within_cgroup=within_cgroup)
        except DiscoveryError as error:
            assert error.subject.startswith(str(root)), error
            assert "expected" in error.detail
        else:
            assert machine == dataclasses.replace(machine)  # every rule of facts is checked again
            json.dumps(machine.to_dict())


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory, trees):
    """A generated tree and all that is in it, in a cgroup."""
    root = tmp_path_factory.mktemp("fuzzed")
    shape = trees.Shape(
        packages=2,
        threads=2,
        node_ids=(0, 3, 5),
        memory_kib=(4096, 4096, 4096),
        huge=({2048: 1}, {2048: 2}, {}),
        offline=frozenset([5]),
        initiators=((0, 1),),
        functions=(trees.Function(bus=0x60, node=3, totalvfs=4, vfs=2),),
    )
    trees.write(root, shape)
    write_cgroup(root, trees, cpus="0-3", cells="0,5")
    return root, sorted(path for path in root.rglob("*"))


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_a_damaged_tree_is_refused_or_read_as_a_valid_machine(data, fuzzed):
    root, paths = fuzzed
    path = data.draw(st.sampled_from(paths))
    with damaged(path, *data.draw(damages())):
        assert_reads_or_refuses(root)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_damaged_capture_is_refused_or_read_as_a_valid_machine(data, captured):
    root = captured(WITH_PCI)
    path = root / data.draw(st.sampled_from(INTERESTING))
    with damaged(path, *data.draw(damages())):
        assert_reads_or_refuses(root)


INTERESTING = [
    "proc/meminfo",
    "proc/mounts",
    "proc/self/cgroup",
    f"{CPU}/online",
    f"{CPU}/present",
    f"{CPU}/cpu5/topology/core_cpus_list",
    f"{CPU}/cpu5/topology",
    f"{NODE}/online",
    f"{NODE}/node1/cpulist",
    f"{NODE}/node1/distance",
    f"{NODE}/node1/hugepages",
    "sys/bus/pci/devices/0000:60:00.0",
    "sys/devices/pci0000:17/0000:17:00.0/class",
]


# --- cgroups ------------------------------------------------------------------------------------


def write_cgroup(root, trees, *, cpus, cells, v1=False, deep=True):
    """Put the process into a cgroup that may use these CPUs and cells."""
    mount = "/sys/fs/cgroup/cpuset" if v1 else "/sys/fs/cgroup/with space"
    kind, options = ("cgroup", "rw,cpuset") if v1 else ("cgroup2", "rw")
    written = mount.replace(" ", "\\040")
    trees.put(
        root, "proc/self/mounts", f"proc /proc proc rw 0 0\nnone {written} {kind} {options} 0 0\n"
    )
    line = "4:cpuset,cpu:/jobs/17" if v1 else "0::/jobs/17"
    trees.put(root, "proc/self/cgroup", f"9:name=systemd:/x\n{line}\n")
    ends = ("cpus", "mems") if v1 else ("cpus.effective", "mems.effective")
    group = f"{mount[1:]}/jobs/17" if deep else mount[1:]
    for end, text in zip(ends, (cpus, cells), strict=True):
        trees.put(root, f"{group}/cpuset.{end}", f"{text}\n")


@pytest.mark.parametrize("v1", [False, True])
@pytest.mark.parametrize("deep", [True, False], ids=["own", "inherited"])
def test_a_cpuset_leaves_what_it_allows(v1, deep, tree, trees, tmp_path):
    write_cgroup(tmp_path, trees, cpus="0-1,4", cells="7", v1=v1, deep=deep)
    whole = trees.expected(tree)
    assert read_machine(tmp_path) == whole
    machine = read_machine(tmp_path, within_cgroup=True)
    assert machine == whole.restrict(cpus=[0, 1, 4], cells=[7])
    assert machine.cpus == (0, 1, 4)
    assert [(each.id, each.cpus, each.memory_mb) for each in machine.cells] == [
        (0, (4,), 0),
        (1, (0, 1), 0),
        (7, (), 512),
    ]
    assert machine.memory_mb == 512


def test_a_cpuset_without_online_cpus_is_refused(tree, trees, tmp_path):
    write_cgroup(tmp_path, trees, cpus="40", cells="0")
    with pytest.raises(DiscoveryError, match="at least one CPU"):
        read_machine(tmp_path, within_cgroup=True)


@GENERATED
@given(data=st.data())
def test_restricting_twice_is_restricting_to_both(data, trees):
    machine = trees.expected(data.draw(trees.shapes()))
    some = st.sets(st.sampled_from(machine.cpus), min_size=1)
    one, other = data.draw(some), data.draw(some)
    cells = st.none() | st.sets(st.sampled_from([each.id for each in machine.cells]))
    nodes = data.draw(cells)
    first = machine.restrict(one, nodes)
    assert first == first.restrict(one, nodes)
    assert first.cpus == tuple(sorted(one))
    if one & other:
        assert first.restrict(other).cpus == machine.restrict(one & other, nodes).cpus
    assert machine.restrict() == machine


# --- this machine -------------------------------------------------------------------------------

linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="this machine has no /proc and /sys"
)


@linux_only
def test_this_machine():
    machine = read_machine()
    assert len(machine.cpus) == os.sysconf("SC_NPROCESSORS_ONLN")
    assert machine.hostname and machine.architecture == os.uname().machine
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    total = next(line.split()[1] for line in lines if line.startswith("MemTotal"))
    assert machine.memory_bytes == int(total) * 1024
    assert machine.cells[0].pages[0].size_bytes == os.sysconf("SC_PAGE_SIZE")
    assert machine.disk is not None and machine.disk.path == "/"
    json.dumps(machine.to_dict())


@linux_only
def test_this_machine_within_its_cgroup_has_the_cpus_this_process_runs_on():
    machine = read_machine(within_cgroup=True)
    assert os.sched_getaffinity(0) <= set(machine.cpus) <= set(read_machine().cpus)


def test_a_capture_has_no_disk_unless_told_where(tree, tmp_path):
    assert read_machine(tmp_path).disk is None
    found = read_machine(tmp_path, disk_path=tmp_path).disk
    assert found.path == str(tmp_path) and 0 <= found.free_bytes <= found.total_bytes


@pytest.mark.parametrize("path", ["missing", "a\0b"])
def test_a_disk_path_that_is_not_there_is_refused(path, tree, tmp_path):
    with pytest.raises(DiscoveryError, match="on the disk to offer"):
        read_machine(tmp_path, disk_path=str(tmp_path / path))


def test_a_page_size_is_positive(tree, tmp_path):
    with pytest.raises(InvalidInput, match="page_size_bytes"):
        read_machine(tmp_path, page_size_bytes=0)


# --- facts that cannot be -----------------------------------------------------------------------

TWO = (Core(0, 0, (0,)), Core(0, 1, (1,)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Core(0, 0, ()),
        lambda: Core(0, 0, (1, 0)),
        lambda: Core(0, 0, (-1,)),
        lambda: Pages(0, 1),
        lambda: Pages(4096, -1),
        lambda: Pages(4096, 1, 2),
        lambda: NUMACell(-1, (), 0),
        lambda: NUMACell(0, (), -1),
        lambda: NUMACell(0, (), 4095, pages=(Pages(4096, 1),)),
        lambda: NUMACell(0, (), 1, pages=(Pages(8192, 0), Pages(4096, 0))),
        lambda: Disk("/", 1, 2),
        lambda: Disk("/", -1, -1),
        lambda: PCIDevice("a", "8086", "1", "02", kind=DeviceKind.VF),
        lambda: PCIDevice("a", "8086", "1", "02", kind=DeviceKind.VF, parent_address="a"),
        lambda: PCIDevice("a", "8086", "1", "02", parent_address="b"),
        lambda: Machine(cpus=(), cores=(), memory_bytes=0),
        lambda: Machine(cpus=(0, 1), cores=TWO[:1], memory_bytes=0),
        lambda: Machine(cpus=(0,), cores=TWO, memory_bytes=0),
        lambda: Machine(cpus=(0, 1), cores=(*TWO, TWO[0]), memory_bytes=0),
        lambda: Machine(cpus=(0, 1), cores=TWO, memory_bytes=-1),
        lambda: Machine(cpus=(0, 1), cores=TWO, memory_bytes=0, offline_cpus=(1,)),
        lambda: machine_of(NUMACell(0, (0,), 1), NUMACell(0, (1,), 1)),
        lambda: machine_of(NUMACell(0, (0,), 1), NUMACell(1, (0,), 1)),
        lambda: machine_of(NUMACell(0, (2,), 1)),
        lambda: machine_of(NUMACell(0, (0,), 1, distances=(10, 20))),
        lambda: machine_of().cell(0),
        lambda: machine_of().restrict(cpus=[]),
        lambda: dataclasses.replace(machine_of(), devices=(PCIDevice("a", "1", "1", "1"),) * 2),
    ],
)
def test_facts_that_contradict_each_other_are_refused(make):
    with pytest.raises(InvalidInput):
        make()


def machine_of(*cells: NUMACell) -> Machine:
    return Machine(cpus=(0, 1), cores=TWO, memory_bytes=2, cells=cells)


def test_facts_are_values():
    one, other = machine_of(NUMACell(0, (0, 1), 2)), machine_of(NUMACell(0, (0, 1), 2))
    assert one == other and hash(one) == hash(other)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.cpus = (0,)


def test_distances_that_are_not_known_are_none():
    machine = machine_of(NUMACell(0, (0,), 1), NUMACell(4, (1,), 1))
    assert machine.distance(0, 4) is None
