"""The provider tree of a machine, ready to be synced to a ledger. Pure.

* The root is the host, with ``VCPU`` (the shared CPUs), ``PCPU`` (the dedicated CPUs),
  ``MEMORY_MB`` (whole MiB) and, where the disk is known, ``DISK_GB`` (whole GiB). A class with a
  total below one unit is left out.
* Memory in huge pages is part of the total and reserved: it cannot serve a request for ordinary
  memory.
* With ``numa=True`` each NUMA cell is a child ``<host>/numa<id>`` with ``NUMA_TOPOLOGY``. An
  allocation of a cell counts at the host too. The totals of the host are the kernel's for the whole
  machine: a surplus of the cells is never allocated, and a surplus of the host serves requests
  without a topology.
* A PCI device that a rule offers (:mod:`resource_objects.host.device_rules`) is a child
  ``<host>/<address>`` with ``DEVICES``: one unit of the rule's resource class, the rule's traits,
  and its parts if the rule partitions it. A physical function and its virtual functions are one
  child with the address of the physical function; they exclude each other.
* Other devices, and cells without ``numa=True``, are not in the tree.

The same machine and settings make the same tree, so that a second sync changes nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from oslo_utils import units

from resource_objects.exceptions import InvalidInput, InvalidInventory
from resource_objects.host.device_rules import machine_devices, partition_device
from resource_objects.host.machine import Machine, Pages
from resource_objects.host.settings import HostSettings
from resource_objects.providers import Provider
from resource_objects.resources import Inventory, resource
from resource_objects.resources.numa import NUMA_TOPOLOGY, HostCell, NUMATopologyInventory, PagePool
from resource_objects.resources.numa.cells import show_kib
from resource_objects.resources.numa.cpuset import CPUSet
from resource_objects.resources.pci import DEVICES, PCIInventory
from resource_objects.resources.traits import standard_traits

__all__ = ["is_discovered", "numa_inventory", "provider_tree"]

_SMT = "HW_CPU_HYPERTHREADING"
_ARCHITECTURE = "HW_ARCH_"
_DEFAULT = HostSettings()

#: A function from a class and the error of its inventory to the inventory to use instead.
OnInvalid: TypeAlias = Callable[[str, InvalidInput], Inventory | None]


def provider_tree(
    machine: Machine,
    settings: HostSettings = _DEFAULT,
    *,
    name: str | None = None,
    numa: bool = False,
    physnets: Mapping[int, str | Iterable[str]] | None = None,
    tunneled: Iterable[int] = (),
    on_invalid: OnInvalid | None = None,
) -> Provider:
    """Return the provider tree of a machine. Pure; O(devices x rules + CPUs).

    :param settings: CPU sets, reserved amounts and pages, ratios, device rules; where a ratio is
        above 1, one consumer can allocate at most the total
    :param name: the name of the host, by default its host name
    :param numa: whether to add the NUMA cells; a machine without cells has none
    :param physnets: with ``numa``, as in :func:`numa_inventory`; so is ``tunneled``
    :param on_invalid: called with the class and the error of an inventory of the host that is
        invalid; returns the inventory to use instead, or None to leave the class out. By default
        the error is raised
    :raises InvalidInput: for a machine without a host name if ``name`` is None; for an argument of
        another type; for settings of cells without ``numa``
    :raises InvalidInventory: if more is reserved than the total; for a reserved amount or ratio of
        a class that the host does not offer; for CPUs that are not online or in both sets; for
        cells or pages that the machine does not have

    >>> from resource_objects.host.machine import Core, NUMACell, PCIDevice
    >>> gpu = PCIDevice("0000:3b:00.0", "10de", "2330", "030200")
    >>> machine = Machine(hostname="box", cpus=(0, 1), cores=(Core(0, 0, (0, 1)),),
    ...                   memory_bytes=4096 * units.Mi, devices=(gpu,),
    ...                   cells=(NUMACell(0, (0, 1), 4096 * units.Mi),))
    >>> settings = HostSettings(device_rules=["10de:*=PGPU+CUSTOM_H100"], ratios="VCPU=16",
    ...                         reserved="MEMORY_MB=512")
    >>> tree = provider_tree(machine, settings)
    >>> print(*tree.walk(), sep="\\n")
    box: VCPU=2:max_unit=2:allocation_ratio=16,MEMORY_MB=4096:reserved=512
    box/0000:3b:00.0: DEVICES=1*PGPU
    >>> sorted(tree.traits)
    ['HW_CPU_HYPERTHREADING']
    >>> print(*provider_tree(machine, HostSettings(dedicated="1"), numa=True).walk(), sep="\\n")
    box: MEMORY_MB=4096,PCPU=1
    box/numa0: NUMA_TOPOLOGY=cell 0: 1 dedicated CPUs 4096 MiB
    """
    _check(machine, settings)
    host = machine.hostname if name is None else name
    if host is None:
        raise InvalidInput("name", "host name", host, "a name: the machine does not report one")
    cells: NUMATopologyInventory | None = None
    if numa:
        cells = numa_inventory(machine, settings, physnets=physnets, tunneled=tunneled)
    else:
        of_cells = {
            "reserved_pages": settings.reserved_pages,
            "physnets": physnets,
            "tunneled": tunneled,
        }
        for argument, value in of_cells.items():
            if value:
                raise InvalidInput("value", argument, value, "nothing without numa=True")
    architecture = f"{_ARCHITECTURE}{(machine.architecture or '').upper()}"
    traits = {architecture} & standard_traits()
    if machine.threads_per_core > 1:
        traits.add(_SMT)
    inventories = _host_inventories(machine, settings, cells, on_invalid)
    root = Provider(host, inventories, traits=traits)
    offered = machine_devices(machine, settings.device_rules)
    if offered.devices:
        root.add_parts(DEVICES, PCIInventory(offered.devices))
        for device in offered.devices:
            if word := offered.partitionings.get(device.address):
                partition_device(root.find(f"{host}/{device.address}"), word, device.resource_class)
    if cells is not None:
        root.add_parts(NUMA_TOPOLOGY, cells)
    return root


def is_discovered(trait: str) -> bool:
    """Return True if :func:`provider_tree` may set a trait of a host.

    >>> [is_discovered(name) for name in ("HW_ARCH_X86_64", "HW_CPU_X86_AVX", "CUSTOM_RACK_1")]
    [True, False, False]
    """
    return trait == _SMT or trait.startswith(_ARCHITECTURE)


def _host_inventories(
    machine: Machine,
    settings: HostSettings,
    cells: NUMATopologyInventory | None,
    on_invalid: OnInvalid | None,
) -> dict[str, Inventory]:
    shared, dedicated = settings.cpu_sets(machine)
    totals = {
        "VCPU": len(shared),
        "PCPU": len(dedicated),
        "MEMORY_MB": machine.memory_mb,
        "DISK_GB": 0 if machine.disk is None else machine.disk.total_gb,
    }
    totals = {name: total for name, total in totals.items() if total > 0}
    figures = _configured_figures(totals, settings)
    if "MEMORY_MB" in totals:
        pages_mb = min(_reserved_pages_mb(machine, cells), totals["MEMORY_MB"])
        figures["MEMORY_MB"]["reserved"] = pages_mb + figures["MEMORY_MB"].get("reserved", 0)
    inventories: dict[str, Inventory | None] = {}
    for name, total in totals.items():
        try:
            inventories[name] = resource(name).make_inventory(total, **figures[name])
        except InvalidInput as error:
            if on_invalid is None:
                raise
            inventories[name] = on_invalid(name, error)
    return {name: inventory for name, inventory in inventories.items() if inventory is not None}


def _configured_figures(
    totals: Mapping[str, int], settings: HostSettings
) -> dict[str, dict[str, Any]]:
    figures: dict[str, dict[str, Any]] = {name: {} for name in totals}
    reserved = settings.reserved_counts
    ratios = {name: ratio for name, ratio in settings.ratios.items() if ratio is not None}
    for setting, names in (("reserved", reserved), ("ratios", ratios)):
        for name in names:
            if name not in totals:
                expected = f"a class that the host offers: {', '.join(totals)}"
                raise InvalidInventory(setting, name, expected)
    for name, count in reserved.items():
        figures[name]["reserved"] = count
    for name, ratio in ratios.items():
        if name != "PCPU":  # its ratio is 1, which the settings check
            # even with overcommit one consumer cannot use more than exists
            figures[name].update(allocation_ratio=ratio, max_unit=totals[name])
    return figures


def _reserved_pages_mb(machine: Machine, cells: NUMATopologyInventory | None) -> int:
    """Return the memory in huge pages and in reserved base pages, in MiB that any page touches.

    Of each size of huge pages the larger of two counts: the machine's, and the sum over its cells.
    """
    of_cells: Counter[int] = Counter()
    for cell in machine.cells:
        of_cells.update({pages.size_bytes: pages.memory_bytes for pages in cell.huge_pages})
    of_machine = Counter({pages.size_bytes: pages.memory_bytes for pages in machine.huge_pages})
    bases = [cell.pages[0] for cell in cells.cells if cell.pages] if cells else []
    base_kib = sum(base.reserved * base.size_kib for base in bases)
    return -(-(of_cells | of_machine).total() // units.Mi) - (-base_kib // units.Ki)


# --- cells ----------------------------------------------------------------------------------------


def numa_inventory(
    machine: Machine,
    settings: HostSettings = _DEFAULT,
    *,
    physnets: Mapping[int, str | Iterable[str]] | None = None,
    tunneled: Iterable[int] = (),
) -> NUMATopologyInventory | None:
    """Return the NUMA cells of a machine, unused; None if it has no cells.

    * Each NUMA node is a host cell with the kernel's id, also a node without CPUs (high-bandwidth
      memory, CXL) or without memory.
    * The threads of a core are the online ones, so cores may have different numbers of threads.
    * Memory is in whole MiB; a rest below one MiB is left out. Base pages are ordinary memory.
    * The socket of a cell is that of its CPUs. A cell without CPUs is in the socket of the CPUs
      that reach its memory best (its initiators), if the firmware reports them and they have one.
    * If the kernel does not report the cell of huge pages (before Linux 2.6.32), no cell offers
      any; they are reserved at the host.

    Cost: linear in CPUs and cells, about 0.1 ms per cell.

    :param settings: CPU sets, reserved pages, and the ratios of ``VCPU`` and ``MEMORY_MB``
    :param physnets: networks that have devices next to a cell, ``{cell: names}``
    :param tunneled: cells that have devices for tunnelled networks next to them
    :raises InvalidInput: for an argument of another type
    :raises InvalidInventory: for CPUs that are not online or in both sets; for cells or pages that
        the machine does not have; for a page size that is no power of two

    >>> from resource_objects.host.machine import Core, NUMACell
    >>> pages = (Pages(4096, 131072), Pages(2 * units.Mi, 256, free=256))
    >>> machine = Machine(
    ...     cpus=(0, 1, 2, 3), cores=(Core(0, 0, (0, 2)), Core(0, 1, (1, 3))),
    ...     memory_bytes=2048 * units.Mi,
    ...     cells=(NUMACell(0, (0, 1, 2, 3), 1024 * units.Mi, pages, 0, distances=(10, 17)),
    ...            NUMACell(2, (), 1024 * units.Mi, distances=(17, 10), initiators=(0,))))
    >>> inventory = numa_inventory(
    ...     machine, HostSettings(shared="0,2", dedicated="1,3", reserved_pages={0: {"2MB": 16}}))
    >>> for cell in inventory.cells:
    ...     print(cell.id, cell.shared, cell.dedicated, cell.ordinary_mb, cell.socket)
    0 (0, 2) (1, 3) 512 0
    2 () () 1024 0
    >>> [pool.free_mb for pool in inventory.cell(0).huge_pages]
    [480]
    """
    _check(machine, settings)
    shared, dedicated = settings.cpu_sets(machine)
    _check_reserved_pages(machine, settings)
    networks = {} if physnets is None else physnets
    if not isinstance(networks, Mapping):
        raise InvalidInput("value", "physnets", physnets, "a mapping by cell")
    _check_cells(machine, "physnets", networks)
    tunneled = _check_cells(machine, "tunneled", tunneled)
    if not machine.cells:
        return None
    cores, configured = _cores_by_cell(machine), frozenset(shared | dedicated)
    packages = {cell.id: cell.package_id for cell in machine.cells}
    host_cells = []
    for cell in machine.cells:
        cpus = CPUSet(cell.cpus)
        reserved = settings.reserved_pages.get(cell.id, {})
        sizes = [_size_kib(cell.id, pages) for pages in cell.pages]
        pools = [
            PagePool(size_kib=size, total=pages.total, reserved=reserved.get(size, 0))
            for size, pages in zip(sizes, cell.pages, strict=True)
        ]
        # a MiB that contains huge pages counts whole
        huge_kib = sum(pool.total * pool.size_kib for pool in pools[1:])
        socket = cell.package_id
        if socket is None and not cell.cpus:
            sockets = {packages.get(initiator) for initiator in cell.initiators}
            socket = sockets.pop() if len(sockets) == 1 else None
        names = networks.get(cell.id, ())
        host_cells.append(
            HostCell(
                cell.id,
                shared=cpus & shared,
                dedicated=cpus & dedicated,
                # a core of one thread is listed only if no CPU set contains its CPU
                siblings=[
                    core for core in cores[cell.id] if len(core) > 1 or core[0] not in configured
                ],
                memory_mb=max(cell.memory_mb, -(-huge_kib // units.Ki)),
                pages=pools,
                socket=socket,
                distances=dict(zip(packages, cell.distances, strict=True))
                if cell.distances
                else {},
                physnets=(names,) if isinstance(names, str) else names,
                tunneled=cell.id in tunneled,
            )
        )
    return NUMA_TOPOLOGY.make_inventory(
        host_cells,
        cpu_ratio=settings.ratios.get("VCPU") or 1,
        memory_ratio=settings.ratios.get("MEMORY_MB") or 1,
    )


def _cores_by_cell(machine: Machine) -> Mapping[int, list[tuple[int, ...]]]:
    """Return the cores of each cell. A core that spans cells is one core in each of them."""
    cell_of = {cpu: cell.id for cell in machine.cells for cpu in cell.cpus}
    cores: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for core in machine.cores:
        parts: dict[int, list[int]] = defaultdict(list)
        for cpu in core.cpus:
            if cpu in cell_of:
                parts[cell_of[cpu]].append(cpu)
        for cell_id, cpus in parts.items():
            cores[cell_id].append(tuple(cpus))
    return cores


def _check(machine: object, settings: object) -> None:
    if not isinstance(machine, Machine):
        raise InvalidInput("value", "machine", machine, "a Machine, as discover() returns")
    if not isinstance(settings, HostSettings):
        raise InvalidInput("value", "settings", settings, "HostSettings")


def _check_cells(machine: Machine, argument: str, cells: Any) -> frozenset[int]:
    if isinstance(cells, str | bytes) or not isinstance(cells, Iterable):
        raise InvalidInput("value", argument, cells, "ids of cells")
    result, ids = list(cells), [cell.id for cell in machine.cells]
    for cell in result:
        if type(cell) is not int or cell not in ids:
            expected = f"a cell of the machine: {', '.join(map(str, ids)) or 'none'}"
            raise InvalidInventory(f"{argument}: cell", cell, expected)
    return frozenset(result)


def _check_reserved_pages(machine: Machine, settings: HostSettings) -> None:
    _check_cells(machine, "reserved pages", settings.reserved_pages)
    for cell, counts in settings.reserved_pages.items():
        totals = {_size_kib(cell, pages): pages.total for pages in machine.cell(cell).pages}
        for kib, count in counts.items():
            size = show_kib(kib)
            if kib not in totals:
                expected = f"one that cell {cell} has: {', '.join(map(show_kib, totals)) or 'none'}"
                raise InvalidInventory("reserved pages: size", size, expected)
            if count > totals[kib]:
                subject = f"reserved pages of {size} of cell {cell}"
                raise InvalidInventory(subject, count, f"0 to {totals[kib]}")


def _size_kib(cell: int, pages: Pages) -> int:
    size, remainder = divmod(pages.size_bytes, units.Ki)
    if remainder or size & (size - 1):
        raise InvalidInventory(
            f"page size of cell {cell}", pages.size_bytes, "a power of two of 1024 bytes or more"
        )
    return size
