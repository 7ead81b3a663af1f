"""Generated machines: a shape, the /proc and /sys a kernel would show of it, and its facts.

:func:`write` and :func:`expected` use the same shape independently: the first writes files, the
second builds the :class:`Machine` without any.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from resource_objects.host.machine import (
    Core,
    DeviceKind,
    Machine,
    MediatedType,
    NetworkInterface,
    NUMACell,
    Pages,
    PCIDevice,
)
from resource_objects.host.settings import HostSettings

PAGE = 4096
CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
_SETTINGS = {field.name for field in dataclasses.fields(HostSettings)}


@dataclasses.dataclass(frozen=True)
class Function:
    """A PCI function; ``vfs`` virtual functions of it are made out of ``totalvfs``.

    ``vdpa`` of these are vDPA devices too, the first ones.
    """

    bus: int
    node: int | None = None
    vendor: str = "8086"
    product: str = "37d2"
    class_id: str = "020000"
    totalvfs: int = 0
    vfs: int = 0
    driver: str | None = "i40e"
    vdpa: int = 0
    interfaces: tuple[NetworkInterface, ...] = ()
    mediated_types: tuple[MediatedType, ...] = ()
    uuid: str | None = None

    @property
    def address(self) -> str:
        return f"0000:{self.bus:02x}:00.0"

    def vf_address(self, index: int) -> str:
        return f"0000:{self.bus:02x}:{2 + index // 8:02x}.{index % 8}"


@dataclasses.dataclass(frozen=True)
class Shape:
    """A machine to generate. ``memory_kib`` and ``huge`` (size in KiB: count) are per node."""

    packages: int = 1
    nodes_per_package: int = 1
    cores_per_node: int = 2
    threads: int = 1
    node_ids: tuple[int, ...] = (0,)  # a permutation: nodes are numbered in any order
    memory_kib: tuple[int, ...] = (1 << 20,)  # one per node; more than nodes: memory only
    huge: tuple[dict[int, int], ...] = ({},)
    interleaved: bool = False  # the siblings of CPU 0 are 0 and cores, not 0 and 1
    offline: frozenset[int] = frozenset()
    numa: bool = True
    old: bool = False  # masks, per-CPU online files, no node/online, no physical package
    initiators: tuple[tuple[int, ...], ...] = ()  # positions, for the memory-only nodes
    functions: tuple[Function, ...] = ()
    absolute_links: bool = False
    hostname: str | None = "gen"

    @property
    def cpu_nodes(self) -> int:
        return self.packages * self.nodes_per_package

    @property
    def cores(self) -> int:
        return self.cpu_nodes * self.cores_per_node

    def cpus(self, core: int) -> tuple[int, ...]:
        all_items = (
            thread * self.cores + core if self.interleaved else core * self.threads + thread
            for thread in range(self.threads)
        )
        return tuple(cpu for cpu in all_items if cpu not in self.offline)

    def package_of(self, core: int) -> int:
        return core // (self.nodes_per_package * self.cores_per_node)

    def core_id(self, core: int) -> int:
        return core % (self.nodes_per_package * self.cores_per_node)

    def node_cpus(self, position: int) -> tuple[int, ...]:
        first = position * self.cores_per_node
        cores = range(first, first + self.cores_per_node) if position < self.cpu_nodes else ()
        return tuple(sorted(itertools.chain.from_iterable(map(self.cpus, cores))))

    @property
    def all_cpus(self) -> range:
        return range(self.cores * self.threads)

    @property
    def online(self) -> tuple[int, ...]:
        return tuple(cpu for cpu in self.all_cpus if cpu not in self.offline)

    @property
    def by_id(self) -> list[tuple[int, int]]:
        """(node id, position) in the order of ids."""
        return sorted((node_id, position) for position, node_id in enumerate(self.node_ids))

    def memory(self, position: int) -> int:
        """KiB of a node: base and huge pages."""
        huge = sum(size * count for size, count in self.huge[position].items())
        return self.memory_kib[position] + huge

    def machine_huge(self) -> dict[int, int]:
        sizes = sorted({size for item in self.huge for size in item})
        return {size: sum(item.get(size, 0) for item in self.huge) for size in sizes}

    def distance(self, item: int, other: int) -> int:
        return 10 if item == other else 20 + abs(item - other)


# --- the facts of a shape -----------------------------------------------------------------------


def expected(shape: Shape) -> Machine:
    """Return the machine of the shape."""
    cores = sorted(
        (core for core in range(shape.cores) if shape.cpus(core)), key=lambda core: shape.cpus(core)
    )
    names: dict[int, int] = {}  # a kernel that does not number packages: by first CPU
    for core in cores:
        package = shape.package_of(core)
        names.setdefault(package, len(names) if shape.old else package)
    return Machine(
        hostname=shape.hostname,
        cpus=shape.online,
        offline_cpus=tuple(sorted(shape.offline)),
        cores=tuple(
            Core(names[shape.package_of(core)], shape.core_id(core), shape.cpus(core))
            for core in cores
        ),
        memory_bytes=1024 * sum(map(shape.memory, range(len(shape.node_ids)))),
        huge_pages=_pages(shape.machine_huge()),
        cells=_cells(shape, names) if shape.numa else (_one_cell(shape, names),),
        devices=tuple(_devices(shape)),
    )


def _pages(counts: dict[int, int]) -> tuple[Pages, ...]:
    return tuple(Pages(size * 1024, counts[size], counts[size] // 2) for size in sorted(counts))


def _base(kib: int) -> Pages:
    return Pages(PAGE, kib * 1024 // PAGE)


def _one_cell(shape: Shape, names: dict[int, int]) -> NUMACell:
    return NUMACell(
        id=0,
        cpus=shape.online,
        memory_bytes=1024 * sum(map(shape.memory, range(len(shape.node_ids)))),
        pages=(_base(sum(shape.memory_kib)), *_pages(shape.machine_huge())),
        package_id=next(iter(names.values())) if len(names) == 1 else None,
    )


def _cells(shape: Shape, names: dict[int, int]) -> tuple[NUMACell, ...]:
    cells = []
    for node, position in shape.by_id:
        cpus = shape.node_cpus(position)
        memory_only = position - shape.cpu_nodes
        near = shape.initiators[memory_only] if shape.initiators and memory_only >= 0 else ()
        cells.append(
            NUMACell(
                id=node,
                cpus=cpus,
                memory_bytes=shape.memory(position) * 1024,
                pages=(_base(shape.memory_kib[position]), *_pages(shape.huge[position])),
                package_id=names[position // shape.nodes_per_package] if cpus else None,
                distances=tuple(shape.distance(node, other) for other, _ in shape.by_id),
                initiators=tuple(sorted(shape.node_ids[item] for item in near)),
            )
        )
    return tuple(cells)


def _devices(shape: Shape) -> list[PCIDevice]:
    devices = []
    for function in shape.functions:
        devices.append(_device(function))
        part = dataclasses.replace(
            function, totalvfs=0, interfaces=(), mediated_types=(), uuid=None
        )
        devices.extend(
            dataclasses.replace(
                _device(part),
                address=function.vf_address(index),
                product_id="154c",
                kind=DeviceKind.VDPA if index < function.vdpa else DeviceKind.VF,
                parent_address=function.address,
                vdpa=(f"vdpa{16 * function.bus + index}",) if index < function.vdpa else (),
            )
            for index in range(function.vfs)
        )
    return sorted(devices, key=lambda device: device.address)


def _device(item: Function) -> PCIDevice:
    return PCIDevice(
        address=item.address,
        vendor_id=item.vendor,
        product_id=item.product,
        class_id=item.class_id,
        numa_node=item.node,
        kind=DeviceKind.PF if item.totalvfs else DeviceKind.PCI,
        sriov_totalvfs=item.totalvfs or None,
        sriov_numvfs=item.vfs if item.totalvfs else None,
        driver=item.driver,
        revision="a1",
        subsystem_vendor_id="1043",
        subsystem_product_id="87c1",
        interfaces=item.interfaces,
        mediated_types=item.mediated_types,
        uuid=item.uuid,
    )


# --- the files of a shape -----------------------------------------------------------------------


def write(root: pathlib.Path, shape: Shape) -> None:
    """Write what a kernel would show of the shape below ``root``."""
    files: dict[str, str] = {"proc/meminfo": _meminfo(shape)}
    if shape.hostname:
        files["proc/sys/kernel/hostname"] = shape.hostname
    files |= _cpu_files(shape) | _huge_files("sys/kernel/mm/hugepages", shape.machine_huge())
    if shape.numa:
        files |= _node_files(shape)
    for path, text in files.items():
        put(root, path, text + "\n")
    for device in _devices(shape):
        _write_device(root, shape, device)


def put(root: pathlib.Path, path: str, text: str) -> None:
    """Write one file, with its directories."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="latin-1")


def write_cgroup(
    root: pathlib.Path, *, cpus: str, cells: str, v1: bool = False, deep: bool = True
) -> None:
    """Put the process into a cgroup that may use these CPUs and cells."""
    mount = "/sys/fs/cgroup/cpuset" if v1 else "/sys/fs/cgroup/with space"
    kind, options = ("cgroup", "rw,cpuset") if v1 else ("cgroup2", "rw")
    written = mount.replace(" ", "\\040")
    put(root, "proc/self/mounts", f"proc /proc proc rw 0 0\nnone {written} {kind} {options} 0 0\n")
    line = "4:cpuset,cpu:/jobs/17" if v1 else "0::/jobs/17"
    put(root, "proc/self/cgroup", f"9:name=systemd:/x\n{line}\n")
    ends = ("cpus", "mems") if v1 else ("cpus.effective", "mems.effective")
    group = f"{mount[1:]}/jobs/17" if deep else mount[1:]
    for end, text in zip(ends, (cpus, cells), strict=True):
        put(root, f"{group}/cpuset.{end}", f"{text}\n")


def as_list(ids) -> str:
    """Return ids as the kernel lists them: ``0-3,8``."""
    runs = itertools.groupby(enumerate(sorted(ids)), key=lambda pair: pair[1] - pair[0])
    ends = [[item for _, item in run] for _, run in runs]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in ends)


def as_mask(ids, bits: int) -> str:
    """Return ids as the kernel masks them: words of 32 bits, the highest first."""
    mask = sum(1 << item for item in ids)
    words = range((bits + 31) // 32 - 1, -1, -1)
    return ",".join(f"{mask >> 32 * word & 0xFFFFFFFF:08x}" for word in words)


def _ids_files(shape: Shape, path: str, names: tuple[str, str], ids) -> dict[str, str]:
    """Return the file of a set of CPUs: a mask of old, a list and a mask today."""
    masked = {f"{path}/{names[0]}": as_mask(ids, len(shape.all_cpus))}
    return masked if shape.old else masked | {f"{path}/{names[1]}": as_list(ids)}


def _cpu_files(shape: Shape) -> dict[str, str]:
    files = {}
    if not shape.old:
        files[f"{CPU}/online"] = as_list(shape.online)
        files[f"{CPU}/present"] = as_list(shape.all_cpus)
        files[f"{CPU}/possible"] = as_list(range(len(shape.all_cpus) + 64))
    for cpu in shape.all_cpus:
        if cpu:  # CPU 0 has no such file where it cannot be taken offline
            files[f"{CPU}/cpu{cpu}/online"] = str(int(cpu not in shape.offline))
        elif 0 in shape.offline:
            files[f"{CPU}/cpu0/online"] = "0"
    for core in range(shape.cores):
        package = shape.package_of(core)
        mates = [number for number in range(shape.cores) if shape.package_of(number) == package]
        in_package = [cpu for number in mates for cpu in shape.cpus(number)]
        for cpu in shape.cpus(core):
            path = f"{CPU}/cpu{cpu}/topology"
            files[f"{path}/core_id"] = str(shape.core_id(core))
            files[f"{path}/physical_package_id"] = "-1" if shape.old else str(package)
            siblings = ("thread_siblings", "core_cpus_list")
            files |= _ids_files(shape, path, siblings, shape.cpus(core))
            files |= _ids_files(shape, path, ("core_siblings", "package_cpus_list"), in_package)
    return files


def _meminfo(shape: Shape) -> str:
    total = sum(map(shape.memory, range(len(shape.node_ids))))
    return f"MemTotal:       {total} kB\nMemFree:        {total // 2} kB\nHugePages_Total:   0"


def _huge_files(path: str, counts: dict[int, int]) -> dict[str, str]:
    files = {}
    for size, count in counts.items():
        files[f"{path}/hugepages-{size}kB/nr_hugepages"] = str(count)
        files[f"{path}/hugepages-{size}kB/free_hugepages"] = str(count // 2)
        files[f"{path}/hugepages-{size}kB/surplus_hugepages"] = "0"
    return files


def _node_files(shape: Shape) -> dict[str, str]:
    ids = [node for node, _ in shape.by_id]
    files = {f"{NODE}/has_cpu": as_list(ids[:1])}
    if not shape.old:
        files[f"{NODE}/online"] = as_list(ids)
    for node, position in shape.by_id:
        path = f"{NODE}/node{node}"
        total = shape.memory(position)
        files[f"{path}/meminfo"] = (
            f"{'' if not shape.old else chr(10)}Node {node} MemTotal: {total} kB\n"
            f"Node {node} MemFree: {total // 2} kB"
        )
        files[f"{path}/distance"] = " ".join(str(shape.distance(node, other)) for other in ids)
        # Old kernels left CPUs that went offline in the mask of their node.
        full = dataclasses.replace(shape, offline=frozenset()) if shape.old else shape
        files |= _ids_files(shape, path, ("cpumap", "cpulist"), full.node_cpus(position))
        files |= _huge_files(f"{path}/hugepages", shape.huge[position])
        memory_only = position - shape.cpu_nodes
        for near in shape.initiators[memory_only] if shape.initiators and memory_only >= 0 else ():
            files[f"{path}/access1/initiators/node{shape.node_ids[near]}/x"] = ""
    return files


def _write_device(root: pathlib.Path, shape: Shape, device: PCIDevice) -> None:
    home = f"sys/devices/pci0000:00/{device.address}"
    texts = {
        "vendor": f"0x{device.vendor_id}",
        "device": f"0x{device.product_id}",
        "class": f"0x{device.class_id}",
        "numa_node": str(-1 if device.numa_node is None else device.numa_node),
        "revision": f"0x{device.revision}",
        "subsystem_vendor": f"0x{device.subsystem_vendor_id}",
        "subsystem_device": f"0x{device.subsystem_product_id}",
    }
    texts |= _made_files(device)
    if device.kind is DeviceKind.PF:
        texts["sriov_totalvfs"] = str(device.sriov_totalvfs)
        texts["sriov_numvfs"] = str(device.sriov_numvfs)
    for name, text in texts.items():
        put(root, f"{home}/{name}", f"{text}\n")
    if device.uuid:
        text = f"Model: \t\t NVIDIA H100\nGPU UUID: \t {device.uuid}\nVideo BIOS: \t 96.00\n"
        put(root, f"proc/driver/nvidia/gpus/{device.address}/information", text)
    absolute = shape.absolute_links
    links = {f"sys/bus/pci/devices/{device.address}": ("/" if absolute else "../../../../") + home}
    if device.parent_address:
        links[f"{home}/physfn"] = f"../{device.parent_address}"
    if device.driver:  # dangling, as in captures
        links[f"{home}/driver"] = f"../../../bus/pci/drivers/{device.driver}"
    for name in device.vdpa:  # below an auxiliary device, as mlx5 makes them
        links[f"sys/bus/vdpa/devices/{name}"] = f"../../../../{home}/mlx5_core.vnet.1/{name}"
    for path, target in links.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(target, root / path)


def _made_files(device: PCIDevice) -> dict[str, str]:
    """Return the files that the kernel makes of a function."""
    files = {
        f"net/{interface.name}/address": interface.mac or "" for interface in device.interfaces
    }
    for interface in device.mediated_types:
        place = f"mdev_supported_types/{interface.id}"
        values = {
            "name": interface.name,
            "available_instances": interface.available,
            "device_api": interface.device_api,
            "description": interface.description,
        }
        files |= {f"{place}/{name}": str(text) for name, text in values.items() if text is not None}
        files[f"{place}/create"] = ""
    return files


# --- shapes to try ------------------------------------------------------------------------------


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Draw a machine of up to 48 CPUs and 11 nodes, of any layout."""
    packages, per_package = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    cores, threads = draw(st.integers(1, 2)), draw(st.sampled_from([1, 2, 4]))
    only = draw(st.integers(0, 2))
    nodes = packages * per_package + only
    all_items = packages * per_package * cores * threads
    offline = draw(st.frozensets(st.integers(0, all_items - 1), max_size=all_items - 1))
    near = st.lists(st.integers(0, packages * per_package - 1), min_size=1, max_size=2, unique=True)
    sizes = draw(st.sampled_from([(), (2048,), (2048, 1048576), (64, 16384)]))
    huge = st.fixed_dictionaries({size: st.integers(0, 600) for size in sizes})
    return Shape(
        packages=packages,
        nodes_per_package=per_package,
        cores_per_node=cores,
        threads=threads,
        node_ids=tuple(
            draw(st.lists(st.integers(0, 99), min_size=nodes, max_size=nodes, unique=True))
        ),
        memory_kib=tuple(draw(st.lists(st.integers(1, 1 << 24), min_size=nodes, max_size=nodes))),
        huge=tuple(draw(st.lists(huge, min_size=nodes, max_size=nodes))),
        interleaved=draw(st.booleans()),
        offline=offline,
        numa=draw(st.sampled_from([True, True, True, False])),
        old=draw(st.booleans()),
        initiators=tuple(map(tuple, draw(st.lists(near, min_size=only, max_size=only)))),
        functions=tuple(draw(st.lists(functions(), max_size=3, unique_by=lambda item: item.bus))),
        absolute_links=draw(st.booleans()),
        hostname=draw(st.sampled_from([None, "gen", "node-17.example.org"])),
    )


@st.composite
def functions(draw: st.DrawFn) -> Function:
    """Draw a PCI function, of which some are SR-IOV."""
    total = draw(st.sampled_from([0, 0, 8, 64]))
    names = draw(st.lists(st.sampled_from(["eth0", "enp96s0f0", "ib1"]), max_size=2, unique=True))
    types = draw(st.lists(st.sampled_from(["nvidia-35", "nvidia-256"]), max_size=2, unique=True))
    vendor = draw(st.sampled_from(["8086", "10de"]))
    uuids = st.none() | st.uuids().map(lambda entry: f"GPU-{entry}")
    return Function(
        bus=draw(st.integers(0, 255)),
        node=draw(st.none() | st.integers(0, 99)),
        vendor=vendor,
        uuid=draw(uuids) if vendor == "10de" else None,
        class_id=draw(st.sampled_from(["020000", "030200", "0b4000"])),
        totalvfs=total,
        vfs=draw(st.integers(0, min(total, 9))),
        driver=draw(st.sampled_from([None, "i40e"])),
        vdpa=draw(st.integers(0, 2)),
        interfaces=tuple(
            NetworkInterface(name, draw(st.sampled_from([None, "3c:ec:ef:01:02:03"])))
            for name in sorted(names)
        ),
        mediated_types=tuple(
            MediatedType(
                id=item,
                name=draw(st.sampled_from([None, "GRID RTX6000-1Q"])),
                available=draw(st.none() | st.integers(0, 64)),
                device_api="vfio-pci",
                description=draw(st.sampled_from([None, "num_heads=4, frl_config=60"])),
            )
            for item in sorted(types)
        ),
    )


def configured(make: Callable[..., Any], machine: Machine, **arguments: Any) -> Any:
    """Return ``make(machine, HostSettings(...), ...)``, for cases that are one mapping of both."""
    settings = {name: value for name, value in arguments.items() if name in _SETTINGS}
    other_items = {name: value for name, value in arguments.items() if name not in _SETTINGS}
    return make(machine, HostSettings(**settings), **other_items)


def virtual_functions(card: PCIDevice, count: int) -> tuple[PCIDevice, ...]:
    """Return virtual functions of a card, at 0000:60:02.0 and the next addresses."""
    address, ids = "0000:60:02.{}", ("8086", "154c", "020000")
    return tuple(
        PCIDevice(address.format(n), *ids, kind=DeviceKind.VF, parent_address=card.address)
        for n in range(count)
    )
