"""Reading damaged machines: refused and named, or read as a valid machine."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import pathlib
import shutil
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resource_objects.exceptions import DiscoveryError
from resource_objects.host.linux import read_machine
from resource_objects.host.machine import DeviceKind, Machine, Pages
from resource_objects.host.tree import provider_tree
from tests.support.lengths import examples

MIB = 1024 * 1024

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
        read_machine(tmp_path, strict=True)
    named = caught.value.name.replace("bus/pci/devices", "devices/pci0000:00")
    assert named.startswith(str(tmp_path / path))
    assert "expected" in caught.value.detail


def test_a_node_without_cpus_listed_is_refused(tree, tmp_path):
    (tmp_path / NODE / "node1/cpulist").unlink()
    read_machine(tmp_path)  # by the mask
    (tmp_path / NODE / "node1/cpumap").unlink()
    with pytest.raises(DiscoveryError, match="node1/cpulist"):
        read_machine(tmp_path, strict=True)
    assert read_machine(tmp_path).cell(1).cpus == ()


def cell(machine: Machine, cell_id: int, **changes: object) -> Machine:
    cells = [
        dataclasses.replace(item, **changes) if item.id == cell_id else item
        for item in machine.cells
    ]
    return dataclasses.replace(machine, cells=tuple(cells))


def device(machine: Machine, address: str, **changes: object) -> Machine:
    devices = [
        dataclasses.replace(item, **changes) if item.address == address else item
        for item in machine.devices
    ]
    return dataclasses.replace(machine, devices=tuple(devices))


def core(machine: Machine, cpu: int, **changes: object) -> Machine:
    cores = [
        dataclasses.replace(item, **changes) if cpu in item.cpus else item for item in machine.cores
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
        read_machine(tmp_path, strict=True)
    assert detail in str(caught.value)
    assert caught.value.name.startswith(str(tmp_path))


@pytest.mark.parametrize(("path", "text", "detail"), GARBLED)
def test_nonsense_costs_that_fact_only_and_is_named(path, text, detail, tree, trees, tmp_path):
    (tmp_path / path).write_text(text, encoding="utf-8")
    if detail == "one CPU online":
        with pytest.raises(DiscoveryError, match=detail):
            read_machine(tmp_path)
        return
    machine = read_machine(tmp_path)
    assert any(detail in str(finding) for finding in machine.findings)
    full = trees.expected(tree)
    if not path.startswith("sys/devices/pci"):
        assert machine.devices == full.devices
    if not path.startswith(CPU):
        assert (machine.cpus, machine.cores) == (full.cpus, full.cores)
    if path.startswith(NODE) and "online" not in path:
        assert machine.cell(0) == dataclasses.replace(full.cell(0), cpus=machine.cell(0).cpus)
    tree = provider_tree(machine, name="box", numa=True)
    assert {"VCPU", "MEMORY_MB"} <= {str(kind) for kind in tree.inventories}


def test_a_device_without_a_vendor_is_left_out_alone(tree, trees, tmp_path):
    (tmp_path / GPU / "vendor").unlink()
    machine, full = read_machine(tmp_path), trees.expected(tree)
    assert machine.devices == tuple(d for d in full.devices if d.address != GPU_ADDRESS)
    assert dataclasses.replace(machine, devices=full.devices, findings=()) == full
    (finding,) = machine.findings
    assert finding.subject.endswith("0000:3b:00.0/vendor") and "expected 0x and 4" in str(finding)
    assert machine.to_dict()["findings"][0]["subject"] == finding.subject


def test_distances_to_a_node_that_is_offline_are_unknown(tree, trees, tmp_path):
    (tmp_path / NODE / "node1/distance").write_text("10 20 20 20\n")
    machine = read_machine(tmp_path)
    assert machine.cell(1).distances == () and machine.cell(0).distances
    assert "3 distances, one per online node" in str(machine.findings[0])


def test_a_cpu_of_two_nodes_is_in_the_first(tree, tmp_path):
    (tmp_path / NODE / "node1/cpulist").write_text("0-5\n")
    machine = read_machine(tmp_path)
    assert (machine.cell(0).cpus, machine.cell(1).cpus) == ((4, 5, 6, 7), (0, 1, 2, 3))
    assert [str(finding).split(": ")[1] for finding in machine.findings] == [
        "CPU 4 is in node0 too; expected one (numa=fake?)",
        "CPU 5 is in node0 too; expected one (numa=fake?)",
    ]


def test_a_virtual_function_of_itself_is_refused(tree, tmp_path):
    (tmp_path / VF / "physfn").unlink()
    (tmp_path / VF / "physfn").symlink_to("../0000:60:02.0")
    with pytest.raises(DiscoveryError, match="physfn"):
        read_machine(tmp_path, strict=True)
    assert VF_ADDRESS not in {item.address for item in read_machine(tmp_path).devices}


def test_memory_that_nothing_says_is_none(trees, tmp_path):
    trees.write(tmp_path, trees.Shape(numa=False))
    (tmp_path / "proc/meminfo").unlink()
    with pytest.raises(DiscoveryError, match="proc/meminfo"):
        read_machine(tmp_path, strict=True)
    machine = read_machine(tmp_path)
    assert machine.memory_bytes == 0 and "proc/meminfo" in machine.findings[0].subject
    assert str(provider_tree(machine, name="box")) == f"box: VCPU={len(machine.cpus)}"


def test_a_node_without_memory_said_has_none(tree, trees, tmp_path):
    (tmp_path / NODE / "node1/meminfo").unlink()
    machine, full = read_machine(tmp_path), trees.expected(tree)
    assert machine.cell(1).memory_bytes == 0 and machine.cell(0) == full.cell(0)
    assert machine.memory_bytes == full.memory_bytes  # by /proc/meminfo
    assert "node1/meminfo" in machine.findings[0].subject


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
    shutil.move(path, aside)  # may be another file system
    try:
        if kind in ("text", "bytes"):
            path.write_bytes(value)
        elif kind in ("cut", "flip") and aside.is_file() and not aside.is_symlink():
            full = aside.read_bytes()
            place = value % (len(full) + 1)
            changed = bytes([full[place] ^ 1 << value % 8]) if place < len(full) else b"0"
            path.write_bytes(full[:place] + (b"" if kind == "cut" else changed + full[place + 1 :]))
        elif kind == "directory":
            path.mkdir()
        elif kind == "loop":
            path.symlink_to(path.name)
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            remove(path)
        shutil.move(aside, path)
        aside.parent.rmdir()


def assert_reads_or_refuses(root: pathlib.Path) -> None:
    for within_cgroup, strict in itertools.product((False, True), repeat=2):
        try:
            machine = read_machine(root, within_cgroup=within_cgroup, strict=strict)
        except DiscoveryError as error:
            assert error.name.startswith(str(root)), error
            assert "expected" in error.detail
        else:
            assert machine == dataclasses.replace(machine)  # every rule of facts is checked again
            assert all("expected" in finding.detail for finding in machine.findings)
            assert not (strict and machine.findings)
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
    trees.write_cgroup(root, cpus="0-3", cells="0,5")
    return root, sorted(path for path in root.rglob("*"))


@settings(max_examples=examples(400), deadline=None)
@given(data=st.data())
def test_a_damaged_tree_is_refused_or_read_as_a_valid_machine(data, fuzzed):
    root, paths = fuzzed
    path = data.draw(st.sampled_from(paths))
    with damaged(path, *data.draw(damages())):
        assert_reads_or_refuses(root)


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_a_damaged_capture_is_refused_or_read_as_a_valid_machine(data, captured):
    root = captured("32intel64-2p8co2t+8ve")
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
