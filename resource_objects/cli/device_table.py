"""PCI devices as a table: the functions of this machine, or those that hosts keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects.cli import base
from resource_objects.exceptions import DiscoveryError
from resource_objects.host.device_rules import machine_devices, match_rules, read_rules
from resource_objects.host.holdings import DeviceStatus, read_devices
from resource_objects.host.pci_ids import PCINames, system_names
from resource_objects.names import natural_order

if TYPE_CHECKING:
    from resource_objects.host.machine import Machine, PCIDevice


# --- this machine -------------------------------------------------------------------------------


def functions(machine: Machine, rules: Iterable[str], *, is_brief: bool) -> list[Sequence[Any]]:
    """Return the PCI functions of a machine, and the effect of rules on them.

    :param is_brief: whether only the most important columns are listed
    """
    read = read_rules(rules)
    devices = machine_devices(machine, read)
    taken = {device.address: device.resource_class for device in devices.devices}
    rule_of = {device.address: rule for device, rule in match_rules(read, machine.devices)}
    skipped = {function.subject: function.detail for function in devices.skipped}
    names = DeviceNames()
    rows: list[Sequence[Any]] = []
    for function in sorted(
        machine.devices, key=lambda device: family_order(device.address, device.parent_address)
    ):
        address, why = function.address, skipped.get(function.address)
        id_ = f"{function.vendor_id}:{function.product_id}"
        name = names.of(function.vendor_id, function.product_id)
        use = f"skipped: {why}" if why and is_brief else taken.get(address)
        rows.append(
            (
                _nested(address, function.kind.is_part),
                id_,
                name or id_ if is_brief else base.optional(name),
                function.class_id,
                function.kind.value,
                base.optional(function.parent_address),
                base.optional(function.sriov_numvfs),
                base.optional(function.sriov_totalvfs),
                base.optional(function.numa_node),
                base.optional(function.driver),
                *_cells_of(function),
                base.optional(use),
                base.optional(None if address not in rule_of else str(rule_of[address])),
                base.optional(why),
            )
        )
    return rows


def _cells_of(device: PCIDevice) -> Iterator[Any]:
    """Yield the facts that the kernel shows of a function."""
    yield base.records([dataclasses.asdict(item) for item in device.interfaces])
    yield base.listed(list(device.vdpa))
    yield base.records([dataclasses.asdict(item) for item in device.mediated_types])
    yield base.optional(device.uuid)


# --- a host of the ledger -------------------------------------------------------------------------


def stored_devices(command: base.Command, host: str) -> Sequence[DeviceStatus]:
    """Return the devices of a host of the ledger.

    :raises NotFound: if the ledger does not have the host
    :raises Refused: if the host has no devices
    """
    with command.open_ledger() as ledger:
        (host_devices,) = read_devices(ledger, host)
    if not host_devices.devices:
        raise base.Refused(
            f"{host} has no devices in the ledger", ["host sync --rule makes them takeable"]
        )
    return host_devices.devices


def stored_rows(devices: Iterable[DeviceStatus], first: str) -> list[Sequence[Any]]:
    """Return devices of the ledger by host and address, virtual functions below their card.

    :param first: the first column: ``address``, or ``device``, which includes the host. A function
        whose card is not listed is not indented, or it would seem to be of the device before it
    """
    names = DeviceNames()
    in_order = sorted(
        devices,
        key=lambda device: (
            natural_order(device.host),
            family_order(device.device.address, device.device.parent),
        ),
    )
    names_listed = {device.name for device in in_order}
    return [
        (
            _nested(
                device.name if first == "device" else device.device.address,
                f"{device.host}/{device.device.parent}" in names_listed,
            ),
            *_stored_row(device, names),
        )
        for device in in_order
    ]


def _stored_row(status: DeviceStatus, names: DeviceNames) -> Iterator[Any]:
    device = status.device
    yield f"{device.vendor_id}:{device.product_id}"
    yield base.optional(names.of(device.vendor_id, device.product_id))
    yield device.resource_class
    yield base.listed(sorted(device.traits))
    yield base.pairs(dict(device.tags))
    yield device.type
    yield base.optional(device.parent)
    yield base.optional(device.numa_node)
    yield status.provider
    yield _state(status)
    yield status.is_withdrawn
    yield base.optional(status.disabled and str(status.disabled))
    yield base.listed(list(status.holders))


def _nested(name: str, is_part: bool) -> base.Cell:
    """Return the name of a device; people read the name of a part below its whole."""
    return base.Cell(name, lambda name: f"  {name}" if is_part else name)


def _state(status: DeviceStatus) -> base.Cell:
    """Return a state; for people, with the words that the device is gone or disabled."""
    words = [status.state, *(["gone"] if status.is_withdrawn else [])]
    words += ["disabled"] if status.disabled is not None else []
    return base.Cell(status.state, lambda _: ", ".join(words))


def family_order(address: str, parent: str | None) -> tuple[Any, ...]:
    """Return a sort key: by address, what is split off a device after it.

    A longer domain is a larger one.

    >>> sorted([("0000:60:02.1", "0000:60:00.0"), ("0000:60:01.0", None), ("0000:60:00.0", None)],
    ...        key=lambda device: family_order(*device))[1]
    ('0000:60:02.1', '0000:60:00.0')
    """
    first = parent or address
    return len(first), first, parent is not None, len(address), address


class DeviceNames:
    """The names of devices in the system's pci.ids; empty without such a file.

    A damaged file is reported once, and then no device has a name.
    """

    def __init__(self) -> None:
        self._names: PCINames | None = system_names()

    def of(self, vendor_id: str, product_id: str) -> str | None:
        """Return vendor and product by name, None if they have none."""
        try:
            return None if self._names is None else self._names.describe(vendor_id, product_id)
        except DiscoveryError as error:
            self._names = None
            base.note(f"resource-objects: names of devices: {error}")
            return None
