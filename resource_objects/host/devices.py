"""From the facts of a machine and device rules to the devices that can be taken. Pure.

Each device that a rule is about becomes a :class:`~resource_objects.resources.pci.Device`, with the
class, traits, tags and facts that the rule says. What cannot be one is skipped alone, and it is
said why:

* an address whose domain has more than 16 bits (Intel VMD makes such): nothing of the field names
  it (Nova skips that device too);
* a virtual function whose physical function the machine does not show;
* a virtual function for one use: what is used is the card behind it;
* a physical function that another machine manages (as in Nova);
* a function of a card, physical or virtual, that would be split;
* a physical function of the class that its own virtual functions are of: counts of one class could
  not tell the card from a piece of it. The virtual functions stay, as somebody made them to be
  given out.

What is kept of a device beside this are facts about the thing itself: its subsystem, revision, how
far it can be split, its network interfaces with their MAC addresses, vDPA devices, types of
mediated devices, and the UUID of a GPU. The driver is none: it changes with who holds the device.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from resource_objects.exceptions import InvalidInput
from resource_objects.host.facts import DeviceKind, Machine, PCIDevice
from resource_objects.host.rules import (
    DeviceRule,
    MatchedDevice,
    Split,
    match_rules,
    read_rules,
    split_of,
)
from resource_objects.resources.pci import Device
from resource_objects.resources.pci.device import parse_address

__all__ = ["MachineDevices", "SkippedDevice", "machine_devices"]

_LONG_DOMAIN = re.compile(r"[0-9a-f]{5,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclasses.dataclass(frozen=True, slots=True)
class SkippedDevice:
    """A device that a rule is about, and why it cannot be taken."""

    device: PCIDevice
    rule: DeviceRule
    reason: str

    def __str__(self) -> str:
        return f"{self.device.address} is skipped: {self.reason}"


@dataclasses.dataclass(frozen=True, slots=True)
class MachineDevices:
    """What can be taken of a machine, by address, and what rules are about in vain."""

    devices: tuple[Device, ...] = ()
    skipped: tuple[SkippedDevice, ...] = ()
    #: how some of them are split, by address
    splits: Mapping[str, Split] = dataclasses.field(default_factory=dict)

    def class_of(self, address: str) -> str:
        """Return the class of the device at an address that can be taken."""
        return next(one.resource_class for one in self.devices if one.address == address)


def machine_devices(machine: Machine, rules: Iterable[DeviceRule | str] = ()) -> MachineDevices:
    """Return the devices of a machine that can be taken, and those that are skipped.

    O(devices x rules). The same facts and rules give the same devices.

    :param rules: as rules or their text, the first that is about a device decides
    :raises InvalidInput: if the machine is none, or the rules are no list; if a rule does not parse

    >>> from resource_objects.host.facts import Core
    >>> vmd = PCIDevice("10000:01:00.0", "144d", "a808", "010802")
    >>> disk = PCIDevice("0000:02:00.0", "144d", "a808", "010802", numa_node=1)
    >>> machine = Machine(cpus=(0,), cores=(Core(0, 0, (0,)),), memory_bytes=0, devices=(disk, vmd))
    >>> found = machine_devices(machine, ["144d:*/0108=CUSTOM_NVME;one_time_use"])
    >>> for device in found.devices:
    ...     print(device, device.resource_class, device.numa_node, device.one_time_use)
    0000:02:00.0 144d:a808 type-PCI CUSTOM_NVME 1 True
    >>> print(*found.skipped)
    10000:01:00.0 is skipped: its domain has more than 16 bits, which nothing can name
    """
    if not isinstance(machine, Machine):
        raise InvalidInput("value", "machine", machine, "a Machine, as discover() returns")
    matched = match_rules(read_rules(rules), machine.devices)
    there = {device.address: device for device in machine.devices}
    why_not = {one.device.address: _why_not(one, there) for one in matched}
    below = _classes_below(one for one in matched if not why_not[one.device.address])
    for one in matched:
        if one.resource_class in below[one.device.address]:
            why_not[one.device.address] = (
                f"its own virtual functions are taken as {one.resource_class} too"
            )
    return MachineDevices(
        tuple(_device(one) for one in matched if not why_not[one.device.address]),
        tuple(
            SkippedDevice(one.device, one.rule, why)
            for one in matched
            if (why := why_not[one.device.address])
        ),
        {
            one.device.address: split_of(one.rule.split, one.resource_class)
            for one in matched
            if one.rule.split is not None and not why_not[one.device.address]
        },
    )


# --- what is skipped ----------------------------------------------------------------------------


def _why_not(one: MatchedDevice, there: Mapping[str, PCIDevice]) -> str | None:
    """Return why a device cannot be taken, as far as its own facts say; None if it can."""
    device, rule = one.device, one.rule
    try:
        parse_address(device.address)
    except InvalidInput as error:
        if not error.is_about("PCI address"):
            raise
        return _why_no_address(device.address)
    if device.kind.is_part:
        above = there.get(device.parent_address or "")
        if above is None or above.kind is not DeviceKind.PF:
            return f"its physical function, {device.parent_address}, is not there"
        if rule.one_time_use:
            return "only a whole device can be for one use"
    if rule.split is not None and device.kind is not DeviceKind.PCI:
        return "functions of one card are not split"
    if device.kind is DeviceKind.PF and rule.remote_managed:
        return "no other machine manages a physical function"
    return None


def _why_no_address(address: str) -> str:
    if _LONG_DOMAIN.fullmatch(address.lower()):
        return "its domain has more than 16 bits, which nothing can name"
    return "its address is none: DOMAIN:BUS:SLOT.FUNCTION"


def _classes_below(matched: Iterable[MatchedDevice]) -> Mapping[str, set[str]]:
    """Return the classes that functions split off a device can be taken as, by its address."""
    found: dict[str, set[str]] = defaultdict(set)
    for one in matched:
        if one.device.parent_address is not None:
            found[one.device.parent_address].add(one.resource_class)
    return found


# --- what is taken ------------------------------------------------------------------------------


def _device(one: MatchedDevice) -> Device:
    device, rule = one.device, one.rule
    return Device(
        device.address,
        device.vendor_id,
        device.product_id,
        device.kind.value,
        resource_class=one.resource_class,
        class_code=device.class_id,
        parent=device.parent_address,
        numa_node=device.numa_node,
        tags=rule.tags,
        traits=one.traits,
        remote_managed=rule.remote_managed,
        live_migratable=rule.live_migratable,
        one_time_use=rule.one_time_use,
        facts=dict(_facts(device)),
    )


def _facts(device: PCIDevice) -> Iterator[tuple[str, str]]:
    """Yield what stays true of a device whoever holds it, by name; lists are joined by commas."""
    subsystem = device.subsystem_vendor_id, device.subsystem_product_id
    said = {
        "interface": ",".join(each.name for each in device.interfaces),
        "mac": ",".join(each.mac for each in device.interfaces if each.mac),
        "mediated_types": ",".join(each.id for each in device.mediated_types),
        "revision": device.revision,
        "sriov_totalvfs": device.sriov_totalvfs,
        "subsystem": None if None in subsystem else ":".join(map(str, subsystem)),
        "uuid": device.uuid,
        "vdpa": ",".join(device.vdpa),
    }
    yield from ((name, str(value)) for name, value in said.items() if value)
