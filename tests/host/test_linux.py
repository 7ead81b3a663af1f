"""Reading a Linux machine: generated ones, links, cgroups, and this one."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resource_objects.exceptions import DiscoveryError, InvalidInput
from resource_objects.host.linux import read_machine
from resource_objects.host.machine import Pages
from tests.support.lengths import examples

MIB = 1024 * 1024
GENERATED = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

# --- generated machines -------------------------------------------------------------------------


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
    assert [
        device.address for device in machine.devices if device.parent_address == "0000:60:00.0"
    ] == [
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
        read_machine(tmp_path, strict=True)


def test_a_device_that_went_away_is_left_out(tree, trees, tmp_path):
    (tmp_path / "sys/bus/pci/devices/0000:99:00.0").symlink_to("../../../devices/gone")
    assert read_machine(tmp_path) == trees.expected(tree)


# --- cgroups ------------------------------------------------------------------------------------


@pytest.mark.parametrize("v1", [False, True])
@pytest.mark.parametrize("deep", [True, False], ids=["own", "inherited"])
def test_a_cpuset_leaves_what_it_allows(v1, deep, tree, trees, tmp_path):
    trees.write_cgroup(tmp_path, cpus="0-1,4", cells="7", v1=v1, deep=deep)
    full = trees.expected(tree)
    assert read_machine(tmp_path) == full
    machine = read_machine(tmp_path, within_cgroup=True)
    assert machine == full.restrict(cpus=[0, 1, 4], cells=[7])
    assert machine.cpus == (0, 1, 4)
    # cells whose memory may not be used are none; their CPUs are in no cell
    assert [(cell.id, cell.cpus, cell.memory_mb) for cell in machine.cells] == [(7, (), 512)]
    assert machine.memory_mb == 512
    assert machine.cell(7).distances == (10,)


def test_a_cpuset_mounted_without_prefix_leaves_what_it_allows(tree, trees, tmp_path):
    trees.write_cgroup(tmp_path, cpus="0-1,4", cells="0-1", v1=True)
    for name in ("cpus", "mems"):
        for file in list(tmp_path.rglob(f"cpuset.*{name}")):
            file.rename(file.with_name(file.name.removeprefix("cpuset.")))
    machine = read_machine(tmp_path, within_cgroup=True)
    assert machine == trees.expected(tree).restrict(cpus=[0, 1, 4], cells=[0, 1])


def test_a_cpuset_without_online_cpus_is_refused(tree, trees, tmp_path):
    trees.write_cgroup(tmp_path, cpus="40", cells="0")
    with pytest.raises(DiscoveryError, match="at least one CPU"):
        read_machine(tmp_path, within_cgroup=True)


@GENERATED
@given(data=st.data())
def test_restricting_twice_is_restricting_to_both(data, trees):
    machine = trees.expected(data.draw(trees.shapes()))
    several = st.sets(st.sampled_from(machine.cpus), min_size=1)
    item, other = data.draw(several), data.draw(several)
    cells = st.none() | st.sets(st.sampled_from([cell.id for cell in machine.cells]))
    nodes = data.draw(cells)
    first = machine.restrict(item, nodes)
    assert first == first.restrict(item, nodes)
    assert first.cpus == tuple(sorted(item))
    if item & other:
        assert first.restrict(other).cpus == machine.restrict(item & other, nodes).cpus
    assert machine.restrict() == machine


# --- this machine -------------------------------------------------------------------------------

# generated trees, above, have these properties too and are always present
live = pytest.mark.skipif(
    not pathlib.Path("/sys/devices/system/cpu").is_dir(),
    reason="this machine does not show its CPUs in /sys",
)


@live
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


@live
def test_this_machine_within_its_cgroup_has_the_cpus_this_process_runs_on():
    machine = read_machine(within_cgroup=True)
    assert os.sched_getaffinity(0) <= set(machine.cpus) <= set(read_machine().cpus)


def test_a_capture_has_no_disk_unless_reported_where(tree, tmp_path):
    assert read_machine(tmp_path).disk is None
    result = read_machine(tmp_path, disk_path=tmp_path).disk
    assert result.path == str(tmp_path) and 0 <= result.free_bytes <= result.total_bytes


@pytest.mark.parametrize("path", ["missing", "a\0b"])
def test_a_disk_path_that_is_not_there_is_refused(path, tree, tmp_path):
    with pytest.raises(DiscoveryError, match="on the disk to offer"):
        read_machine(tmp_path, disk_path=str(tmp_path / path))


def test_a_page_size_is_positive(tree, tmp_path):
    with pytest.raises(InvalidInput, match="page_size_bytes"):
        read_machine(tmp_path, page_size_bytes=0)
