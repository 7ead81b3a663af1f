"""PCI devices as a table: the functions of this machine, or those that hosts keep."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cliff.columns import FormattableColumn

from resource_objects import exceptions
from resource_objects.cli.base import Command, Dicts, Many, Maybe, Pairs, Refused, Table
from resource_objects.cli.device_columns import FACTS, KEPT, SEEN_FACTS, SEEN_KEPT
from resource_objects.exceptions import DiscoveryError
from resource_objects.host.device_rules import machine_devices, match_rules, read_rules
from resource_objects.host.holdings import DeviceStatus, read_devices
from resource_objects.host.pci_ids import PCINames, system_names
from resource_objects.names import natural_order

if TYPE_CHECKING:
    from resource_objects.cli.base import Command
    from resource_objects.host.machine import Machine, PCIDevice


# --- this machine -------------------------------------------------------------------------------


def functions(command: Command, machine: Machine, rules: Iterable[str], *, is_brief: bool) -> Table:
    """Return the PCI functions of a machine, and the effect of rules on them.

    :param is_brief: whether only the most important columns are listed
    """
    read = read_rules(rules)
    devices = machine_devices(machine, read)
    taken = {device.address: device.resource_class for device in devices.devices}
    rule_of = {device.address: rule for device, rule in match_rules(read, machine.devices)}
    skipped = {function.subject: function.detail for function in devices.skipped}
    names = DeviceNames(command)
    rows = []
    for function in sorted(
        machine.devices, key=lambda device: family_order(device.address, device.parent_address)
    ):
        address, why = function.address, skipped.get(function.address)
        id_ = f"{function.vendor_id}:{function.product_id}"
        name = names.of(function.vendor_id, function.product_id)
        use = f"skipped: {why}" if why and is_brief else taken.get(address)
        rows.append(
            (
                NestedName((address, function.kind.is_part)),
                id_,
                name or id_ if is_brief else Maybe(name),
                function.class_id,
                function.kind.value,
                Maybe(function.parent_address),
                Maybe(function.sriov_numvfs),
                Maybe(function.sriov_totalvfs),
                Maybe(function.numa_node),
                Maybe(function.driver),
                *_cells_of(function),
                Maybe(use),
                Maybe(None if address not in rule_of else str(rule_of[address])),
                Maybe(why),
            )
        )
    return (SEEN_FACTS, _chosen(rows, FACTS, SEEN_FACTS)) if is_brief else (FACTS, rows)


def _cells_of(device: PCIDevice) -> Iterator[Any]:
    """Yield the facts that the kernel shows of a function."""
    yield Dicts([dataclasses.asdict(item) for item in device.interfaces])
    yield Many(list(device.vdpa))
    yield Dicts([dataclasses.asdict(item) for item in device.mediated_types])
    yield Maybe(device.uuid)


# --- a host of the ledger -------------------------------------------------------------------------


def stored_devices(command: Command, parsed_args: argparse.Namespace, *, is_brief: bool) -> Table:
    """Return the devices of a host of the ledger.

    :raises InvalidInput: if a setting is specified, which only this machine has
    :raises NotFound: if the ledger does not have the host
    :raises Refused: if the host has no devices
    """
    host = parsed_args.pci
    for name in ("rule", "shared", "dedicated", "reserved_pages"):
        if value := getattr(parsed_args, name):
            raise exceptions.InvalidInput(
                "value",
                f"--{name.replace('_', '-')}",
                value,
                f"nothing, for {host} is shown as the ledger has it",
            )
    with command.open_ledger() as ledger:
        (host_devices,) = read_devices(ledger, host)
    if not host_devices.devices:
        raise Refused(
            f"{host} has no devices in the ledger", ["host sync --rule makes them takeable"]
        )
    return stored_table(command, host_devices.devices, "address", is_brief=is_brief)


def stored_table(
    command: Command, devices: Iterable[DeviceStatus], first: str, *, is_brief: bool
) -> Table:
    """Return devices of the ledger by host and address, virtual functions below their card.

    :param first: the first column: ``address``, or ``device``, which includes the host. A function
        whose card is not listed is not indented, or it would seem to be of the device before it
    """
    names = DeviceNames(command)
    in_order = sorted(
        devices,
        key=lambda device: (
            natural_order(device.host),
            family_order(device.device.address, device.device.parent),
        ),
    )
    listed = {device.name for device in in_order}
    rows = [
        (
            NestedName(
                (
                    device.name if first == "device" else device.device.address,
                    f"{device.host}/{device.device.parent}" in listed,
                )
            ),
            *_kept_row(device, names),
        )
        for device in in_order
    ]
    columns, seen = (first, *KEPT), (first, *SEEN_KEPT)
    return (seen, _chosen(rows, columns, seen)) if is_brief else (columns, rows)


def _kept_row(device_status: DeviceStatus, names: DeviceNames) -> Iterator[Any]:
    device = device_status.device
    yield f"{device.vendor_id}:{device.product_id}"
    yield Maybe(names.of(device.vendor_id, device.product_id))
    yield device.resource_class
    yield Many(sorted(device.traits))
    yield Pairs(dict(device.tags))
    yield device.type
    yield Maybe(device.parent)
    yield Maybe(device.numa_node)
    yield device_status.provider
    yield DeviceState(
        (device_status.state, device_status.is_withdrawn, device_status.disabled is not None)
    )
    yield device_status.is_withdrawn
    yield Maybe(device_status.disabled and str(device_status.disabled))
    yield Many(list(device_status.holders))


class NestedName(FormattableColumn[Any]):
    """The name of a device: as it is for programs; for people, parts stand below their whole."""

    def human_readable(self) -> str:
        """Return the name, indented if it is below another one."""
        name, is_below = self._value
        return f"  {name}" if is_below else name

    def machine_readable(self) -> str:
        """Return the name."""
        return str(self._value[0])


class DeviceState(FormattableColumn[Any]):
    """The state of a device, for people with the words that it is gone or disabled."""

    def human_readable(self) -> str:
        """Return the state, and whether it is gone or disabled."""
        state, is_gone, is_disabled = self._value
        return f"{state}{', gone' * is_gone}{', disabled' * is_disabled}"

    def machine_readable(self) -> str:
        """Return the state."""
        return str(self._value[0])


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

    def __init__(self, command: Command) -> None:
        self._command = command
        self._names: PCINames | None = system_names()

    def of(self, vendor_id: str, product_id: str) -> str | None:
        """Return vendor and product by name, None if they have none."""
        try:
            return None if self._names is None else self._names.describe(vendor_id, product_id)
        except DiscoveryError as error:
            self._names = None
            self._command.app.stderr.write(f"resource-objects: names of devices: {error}\n")
            return None


def _chosen(
    rows: Iterable[Sequence[Any]], columns: Sequence[str], selected: Sequence[str]
) -> list[Sequence[Any]]:
    """Return rows with only some of their columns.

    >>> _chosen([(1, 2, 3)], ("a", "b", "c"), ("c", "a"))
    [(3, 1)]
    """
    places = [columns.index(name) for name in selected]
    return [tuple(row[place] for place in places) for row in rows]
