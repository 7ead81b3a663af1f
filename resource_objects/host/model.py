"""From the facts of a machine to a tree of providers: what it offers, ready to be synced.

* The root is the host, with ``VCPU`` (the CPUs that are online), ``MEMORY_MB`` (whole MiB) and,
  where the disk is known, ``DISK_GB`` (whole GiB). A resource of which there is less than one unit
  is left out.
* Memory set aside in huge pages is part of the total and counted as reserved: it is there, and it
  cannot serve whoever asks for ordinary memory.
* A PCI device is offered only where a rule makes it takeable: one child per device, named
  ``<host>/<address>``, with one unit of the rule's resource class and the rule's traits. A virtual
  function is a device like any other; see :mod:`resource_objects.host.rules` for a physical
  function beside its own virtual ones.
* NUMA cells, and devices that no rule takes, stay facts.

The same facts and arguments give the same tree, so syncing twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from resource_objects.exceptions import InvalidInput, InvalidInventory, InvalidName
from resource_objects.host.facts import MIB, Machine
from resource_objects.host.rules import DeviceRule, match_rules, read_rules
from resource_objects.providers import Provider
from resource_objects.resources import Amounts, resource, text
from resource_objects.resources._by_resource import by_name
from resource_objects.resources.traits import standard_traits

__all__ = ["provider_tree"]

_SMT = "HW_CPU_HYPERTHREADING"
_ARCHITECTURE = "HW_ARCH_"


def provider_tree(
    machine: Machine,
    *,
    rules: Iterable[DeviceRule | str] = (),
    reserved: Any = "",
    ratios: Any = "",
    name: str | None = None,
) -> Provider:
    """Return what a machine offers, as a tree of providers. Pure; O(devices x rules).

    :param rules: which devices can be taken and as what, as rules or their text
    :param reserved: what is kept for the machine itself, such as ``"MEMORY_MB=512"``; memory in
        huge pages is reserved besides
    :param ratios: how often a unit is given out, such as ``"VCPU=16"`` or ``{"VCPU": "1.5"}``; one
        consumer then takes at most what exists once
    :param name: of the host, by default its host name
    :raises InvalidName: if there is no host name and no ``name`` either
    :raises InvalidInventory: if more is reserved than there is, or an argument is about a resource
        that the host itself does not offer
    :raises InvalidInput: if the machine is none
    :raises InvalidRatio: if a ratio is none
    :raises DuplicateKey: if a resource is named twice
    :raises InvalidRule: if a rule does not parse

    >>> from resource_objects.host.facts import Core, PCIDevice
    >>> gpu = PCIDevice("0000:3b:00.0", "10de", "2330", "030200")
    >>> machine = Machine(hostname="box", cpus=(0, 1), cores=(Core(0, 0, (0, 1)),),
    ...                   memory_bytes=4096 * MIB, devices=(gpu,))
    >>> tree = provider_tree(machine, rules=["10de:*=PGPU+CUSTOM_H100"], reserved="MEMORY_MB=512",
    ...                      ratios="VCPU=16")
    >>> print(*tree.walk(), sep="\\n")
    box: VCPU=2:max_unit=2:allocation_ratio=16,MEMORY_MB=4096:reserved=512
    box/0000:3b:00.0: PGPU=1
    >>> sorted(tree.traits)
    ['HW_CPU_HYPERTHREADING']
    """
    if not isinstance(machine, Machine):
        raise InvalidInput("machine", machine, "a Machine, as discover() returns")
    host = name if name is not None else machine.hostname
    if host is None:
        raise InvalidName("host name", host, "a name, for the machine does not tell its own")
    children = [  # all at once: a tree is checked whole whenever a child is added
        Provider(f"{host}/{taken.device.address}", {taken.resource_class: 1}, traits=taken.traits)
        for taken in match_rules(read_rules(rules), machine.devices)
    ]
    inventories = _inventories(machine, reserved, ratios)
    return Provider(host, inventories, traits=_traits(machine), children=children)


def _inventories(machine: Machine, reserved: Any, ratios: Any) -> dict[str, Any]:
    """Return the inventories of the host itself, by class."""
    totals = _totals(machine)
    figures: dict[str, dict[str, Any]] = {kind: {} for kind in totals}
    if "MEMORY_MB" in totals:
        figures["MEMORY_MB"]["reserved"] = min(_huge_pages_mb(machine), totals["MEMORY_MB"])
    for kind, amount in Amounts.of(reserved).items():
        _require_offered("reserved", kind.name, totals)
        asked = sum(record.amount for record in amount.to_records(kind.name))
        figures[kind.name]["reserved"] = figures[kind.name].get("reserved", 0) + asked
    for name, ratio in _ratios(ratios).items():
        _require_offered("ratios", name, totals)
        figures[name]["allocation_ratio"] = ratio
        # given out more often than it exists: one consumer still cannot use more than exists
        figures[name]["max_unit"] = totals[name]
    return {
        name: resource(name).make_inventory(total, **figures[name])
        for name, total in totals.items()
    }


def _totals(machine: Machine) -> dict[str, int]:
    """Return how much there is of each class, where there is a whole unit of it."""
    totals = {
        "VCPU": len(machine.cpus),
        "MEMORY_MB": machine.memory_mb,
        "DISK_GB": 0 if machine.disk is None else machine.disk.total_gb,
    }
    return {name: total for name, total in totals.items() if total > 0}


def _huge_pages_mb(machine: Machine) -> int:
    """Return the memory in huge pages, in MiB that are touched by any."""
    taken = sum(pages.memory_bytes for pages in machine.huge_pages)
    return -(-taken // MIB)


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
