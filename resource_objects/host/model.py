"""From the facts of a machine to a tree of providers: what it offers, ready to be synced.

* The root is the host, with ``VCPU`` (the shared CPUs: all that are online, unless CPUs are set
  apart), ``PCPU`` (the dedicated CPUs), ``MEMORY_MB`` (whole MiB) and, where the disk is known,
  ``DISK_GB`` (whole GiB). A resource of which there is less than one unit is left out.
* Memory set aside in huge pages is part of the total and counted as reserved: it is there, and it
  cannot serve whoever asks for ordinary memory.
* Where it is asked for, each NUMA cell is a child, ``<host>/numa<id>``, with ``NUMA_TOPOLOGY``
  (:mod:`resource_objects.host.numa`). What is taken of a cell is taken of the host too, so the host
  as a whole bounds everyone: its figures are the kernel's for the machine, and where the cells
  together have more, what they have more is never given out; where they have less, the rest
  serves who asks for no topology.
* A PCI device is offered only where a rule makes it takeable (:mod:`resource_objects.host.rules`):
  a child ``<host>/<address>`` with ``DEVICES``, one unit of the rule's resource class for each
  device, and the rules' traits; in parts too, where the rule splits it. A physical function and the
  functions split off it are one child, with the address of the physical function; whoever has the
  one cannot have the others.
* Devices that no rule takes stay facts, and so do those that cannot be taken
  (:mod:`resource_objects.host.devices`) and cells that nobody asked for.

The same facts and arguments give the same tree, so syncing twice changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict

from resource_objects.exceptions import InvalidInput, InvalidInventory
from resource_objects.host.devices import machine_devices
from resource_objects.host.facts import MIB, Machine
from resource_objects.host.numa import CPUSet, CPUSplit, ReservedPages, cpu_sets, numa_inventory
from resource_objects.host.rules import DeviceRule
from resource_objects.providers import Provider
from resource_objects.resources import Amounts, Inventory, resource, text
from resource_objects.resources.catalog import by_name
from resource_objects.resources.numa import NUMA_TOPOLOGY, NUMATopologyInventory
from resource_objects.resources.numa.cells import KIB
from resource_objects.resources.pci import DEVICES, PCIInventory
from resource_objects.resources.traits import standard_traits

__all__ = ["TreeSettings", "is_discovered", "provider_tree"]

_SMT = "HW_CPU_HYPERTHREADING"
_ARCHITECTURE = "HW_ARCH_"

#: What is used in place of an invalid inventory of a class.
OnInvalid = Callable[[str, InvalidInput], Inventory | None]


class TreeSettings(TypedDict, total=False):
    """The parameters of :func:`provider_tree` that are not facts, for who keeps them together."""

    rules: Iterable[DeviceRule | str]
    reserved: Any
    ratios: Any
    name: str | None
    shared: CPUSet
    dedicated: CPUSet
    numa: bool
    reserved_pages: ReservedPages
    physnets: Mapping[int, Iterable[str]] | None
    tunneled: Iterable[int]


def provider_tree(
    machine: Machine,
    *,
    rules: Iterable[DeviceRule | str] = (),
    reserved: Any = "",
    ratios: Any = "",
    name: str | None = None,
    shared: CPUSet = None,
    dedicated: CPUSet = None,
    numa: bool = False,
    reserved_pages: ReservedPages = None,
    physnets: Mapping[int, Iterable[str]] | None = None,
    tunneled: Iterable[int] = (),
    on_invalid: OnInvalid | None = None,
) -> Provider:
    """Return what a machine offers, as a tree of providers. Pure; O(devices x rules + CPUs).

    :param rules: which devices can be taken and as what, as rules or their text
    :param reserved: what is kept for the machine itself, such as ``"MEMORY_MB=512"``; memory in
        huge pages is reserved besides
    :param ratios: how often a unit is given out, such as ``"VCPU=16"`` or ``{"VCPU": "1.5"}``; one
        consumer then takes at most what exists once. Dedicated CPUs are given out once
    :param name: of the host, by default its host name
    :param shared: CPUs for shared vCPUs, as ``"0-3"`` or numbers; if neither set is given, all
    :param dedicated: CPUs that are given to one vCPU each; those in neither set are the host's own
    :param numa: whether its NUMA cells can be asked for; a machine without cells has none
    :param reserved_pages: with ``numa``, as :func:`~resource_objects.host.numa.numa_inventory`
        has it; so are ``physnets`` and ``tunneled``
    :param on_invalid: called with the class and the error of an inventory of the host that is
        invalid; returns the one to use instead, None for none. By default the error is raised
    :raises InvalidInput: if there is no host name and no ``name`` either; if the machine is none,
        or what only cells have is given without ``numa``; if a ratio is none; for a list of CPUs
        that does not parse; if a resource is named twice; if a rule does not parse
    :raises InvalidInventory: if more is reserved than there is, an argument is about a resource
        that the host itself does not offer, CPUs are not online or in both sets, or pages or cells
        are not there

    >>> from resource_objects.host.facts import Core, NUMACell, PCIDevice
    >>> gpu = PCIDevice("0000:3b:00.0", "10de", "2330", "030200")
    >>> machine = Machine(hostname="box", cpus=(0, 1), cores=(Core(0, 0, (0, 1)),),
    ...                   memory_bytes=4096 * MIB, devices=(gpu,),
    ...                   cells=(NUMACell(0, (0, 1), 4096 * MIB),))
    >>> tree = provider_tree(machine, rules=["10de:*=PGPU+CUSTOM_H100"], reserved="MEMORY_MB=512",
    ...                      ratios="VCPU=16")
    >>> print(*tree.walk(), sep="\\n")
    box: VCPU=2:max_unit=2:allocation_ratio=16,MEMORY_MB=4096:reserved=512
    box/0000:3b:00.0: DEVICES=1*PGPU
    >>> sorted(tree.traits)
    ['HW_CPU_HYPERTHREADING']
    >>> print(*provider_tree(machine, dedicated="1", numa=True).walk(), sep="\\n")
    box: MEMORY_MB=4096,PCPU=1
    box/numa0: NUMA_TOPOLOGY=cell 0: 1 dedicated CPUs 4096 MiB
    """
    if not isinstance(machine, Machine):
        raise InvalidInput("value", "machine", machine, "a Machine, as discover() returns")
    host = name if name is not None else machine.hostname
    if host is None:
        raise InvalidInput(
            "name", "host name", host, "a name, for the machine does not tell its own"
        )
    sets = cpu_sets(machine, shared, dedicated)
    rates = _ratios(ratios)
    cells = {"reserved_pages": reserved_pages, "physnets": physnets, "tunneled": tunneled}
    inventory = _cells(machine, numa, sets, rates, cells)
    takeable = machine_devices(machine, rules)
    kept_mb = _huge_pages_mb(machine) + _kept_ordinary_mb(inventory)
    inventories = _inventories(_totals(machine, sets), kept_mb, reserved, rates, on_invalid)
    root = Provider(host, inventories, traits=_traits(machine))
    if takeable.devices:
        for part in root.add_parts(DEVICES, PCIInventory(takeable.devices)):
            address = part.name.removeprefix(f"{host}/")
            if address in takeable.splits:
                takeable.splits[address].apply(part, takeable.class_of(address))
    if inventory is not None:
        root.add_parts(NUMA_TOPOLOGY, inventory)
    return root


def _cells(
    machine: Machine,
    numa: bool,
    sets: CPUSplit,
    ratios: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> NUMATopologyInventory | None:
    """Return the inventory of the cells, None if they are not asked for or there are none."""
    if not numa:
        for name, given in settings.items():
            if given:
                raise InvalidInput("value", name, given, "nothing: cells are not asked for")
        return None
    return numa_inventory(
        machine,
        shared=sets.shared or None,
        dedicated=sets.dedicated or None,
        cpu_ratio=ratios.get("VCPU", 1),
        memory_ratio=ratios.get("MEMORY_MB", 1),
        **settings,
    )


def _inventories(
    totals: Mapping[str, int],
    kept_mb: int,
    reserved: Any,
    ratios: Mapping[str, Any],
    on_invalid: OnInvalid | None,
) -> dict[str, Any]:
    """Return the inventories of the host itself, by class."""
    figures: dict[str, dict[str, Any]] = {kind: {} for kind in totals}
    if "MEMORY_MB" in totals:
        figures["MEMORY_MB"]["reserved"] = min(kept_mb, totals["MEMORY_MB"])
    for kind, amount in Amounts.of(reserved).items():
        _require_offered("reserved", kind.name, totals)
        more = sum(record.amount for record in amount.to_records(kind.name))
        figures[kind.name]["reserved"] = figures[kind.name].get("reserved", 0) + more
    for name, ratio in ratios.items():
        _require_offered("ratios", name, totals)
        if name == "PCPU":
            raise InvalidInventory("ratios", name, "none for it: a dedicated CPU is given out once")
        figures[name]["allocation_ratio"] = ratio
        # given out more often than it exists: one consumer still cannot use more than exists
        figures[name]["max_unit"] = totals[name]
    found: dict[str, Any] = {}
    for name, total in totals.items():
        try:
            found[name] = resource(name).make_inventory(total, **figures[name])
        except InvalidInput as error:
            if on_invalid is None:
                raise
            found[name] = on_invalid(name, error)
    return {name: inventory for name, inventory in found.items() if inventory is not None}


def _totals(machine: Machine, sets: CPUSplit) -> dict[str, int]:
    """Return how much there is of each class, where there is a whole unit of it."""
    totals = {
        "VCPU": len(sets.shared),
        "PCPU": len(sets.dedicated),
        "MEMORY_MB": machine.memory_mb,
        "DISK_GB": 0 if machine.disk is None else machine.disk.total_gb,
    }
    return {name: total for name, total in totals.items() if total > 0}


def _huge_pages_mb(machine: Machine) -> int:
    """Return the memory in huge pages, in MiB that are touched by any.

    Of each size as many as the machine says, or as its cells say together if that is more.
    """
    in_cells: Counter[int] = Counter()
    for cell in machine.cells:
        in_cells.update({pages.size_bytes: pages.memory_bytes for pages in cell.huge_pages})
    of_machine = Counter({pages.size_bytes: pages.memory_bytes for pages in machine.huge_pages})
    return -(-(in_cells | of_machine).total() // MIB)


def _kept_ordinary_mb(inventory: NUMATopologyInventory | None) -> int:
    """Return the ordinary memory that is kept for the host by pages, in MiB."""
    bases = [cell.pages[0] for cell in inventory.cells if cell.pages] if inventory else []
    return -(-sum(base.reserved * base.size_kib for base in bases) // KIB)


def _ratios(given: Any) -> dict[str, Any]:
    """Return ``{class: ratio}`` of a mapping or text; an inventory checks the ratios."""
    pairs = given if isinstance(given, Mapping) else text.pairs(given, "ratios")
    return by_name(pairs, lambda _, ratio: ratio, "ratios")


def _require_offered(what: str, name: str, totals: Mapping[str, int]) -> None:
    if name not in totals:
        raise InvalidInventory(what, name, f"one of what the host offers: {', '.join(totals)}")


def _traits(machine: Machine) -> set[str]:
    """Return the standard traits that the facts say exactly."""
    found = {_SMT} if machine.threads_per_core > 1 else set()
    architecture = f"{_ARCHITECTURE}{(machine.architecture or '').upper()}"
    return found | ({architecture} & standard_traits())


def is_discovered(trait: str) -> bool:
    """Tell whether a trait of a host is one that discovery says, or would say.

    >>> [is_discovered(name) for name in ("HW_ARCH_X86_64", "HW_CPU_X86_AVX", "CUSTOM_RACK_1")]
    [True, False, False]
    """
    return trait == _SMT or trait.startswith(_ARCHITECTURE)
