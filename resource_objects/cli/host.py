"""The commands about this machine and about devices of the ledger."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from resource_objects import exceptions
from resource_objects.cli.base import (
    Command,
    Dicts,
    Lister,
    Many,
    Maybe,
    Pairs,
    Refused,
    ShowOne,
    Table,
    Text,
    many,
    misused,
    read_input,
    runs_text,
)
from resource_objects.cli.device_columns import FACTS, KEPT
from resource_objects.host.machine import Machine

if TYPE_CHECKING:
    from resource_objects.host.holdings import DeviceStatus, HostCells, HostDevices
    from resource_objects.host.machine import Pages
    from resource_objects.ledger import Ledger
    from resource_objects.providers import Provider
    from resource_objects.resources.numa import CPUSet
    from resource_objects.resources.pci import Device

_RESOURCE = ("kind", "what", "total", "reserved", "units", "details")
_CELL = (
    "cell",
    "socket",
    "cpus",
    "cores",
    "shared",
    "shared_used",
    "shared_capacity",
    "dedicated",
    "dedicated_used",
    "memory_mb",
    "memory_used_mb",
    "memory_capacity_mb",
    "huge_pages",
    "distances",
    "physnets",
    "tunneled",
    "holders",
)
#: The number of named devices of a class; the others are counted.
_NAMED = 3
#: The value of ``--numa`` and ``--pci`` without a host.
_THIS = ""


def _add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the resources of a machine."""
    add = parser.add_argument
    add(
        "--rule",
        metavar="RULE",
        action="append",
        default=[],
        help="PCI devices to offer, with their class, such as 10de:2330=PGPU; may be repeated",
    )
    add("--shared", metavar="CPUS", help="CPUs for shared vCPUs, such as 0-3,8 (default: all)")
    add(
        "--dedicated", metavar="CPUS", help="CPUs that are allocated to one vCPU each, such as 4-15"
    )
    add(
        "--reserved-pages",
        metavar="PAGES",
        default="",
        help="pages of NUMA cells that are not offered, such as 0:2MB=64,1:2MB=64",
    )
    add(
        "--strict",
        action="store_true",
        help="refuse a machine of which a fact cannot be read, instead of leaving that fact out",
    )


class ShowHost(Lister):
    """Show this machine: its resources and facts.

    The resources are those that `host sync` would store. NUMA cells and PCI devices are facts; a
    --rule offers devices as a resource. --numa draws the cells, with their consumers if the ledger
    has this machine; with a HOST those of any host of the ledger. With -f or -c it lists a row for
    each cell, with its usage and consumers. If consumers have CPUs or memory outside of all cells,
    a last row lists them.

    --pci lists the PCI functions of this machine, the effect of each --rule, and why a matching
    function is not offered; with a HOST the devices of a host of the ledger with their consumers.
    With -f or -c it lists all columns.

    With -f json a last row contains the whole machine, with the rules and CPUs of the options, for
    `host sync --from` on a machine that can reach the ledger.
    """

    in_brief = True
    columns = _RESOURCE
    columns_with = {"--numa": _CELL, "--pci": FACTS, "--pci HOST": ("address", *KEPT)}

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--root", metavar="DIR", default="/", help="where /proc and /sys of a captured one are"
        )
        _add_settings(parser)
        selection = parser.add_mutually_exclusive_group()
        selection.add_argument(
            "--numa",
            metavar="HOST",
            nargs="?",
            const=_THIS,
            help="draw the NUMA cells, of this machine or of a host of the ledger (name or uuid)",
        )
        selection.add_argument(
            "--pci",
            metavar="HOST",
            nargs="?",
            const=_THIS,
            help="list the PCI devices, of this machine or of a host of the ledger (name or uuid)",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read the machine, or the host of the ledger."""
        if parsed_args.numa is not None:
            return self._numa(parsed_args)
        if parsed_args.pci is not None:
            return self._pci(parsed_args)
        from resource_objects.host.device_rules import machine_devices
        from resource_objects.host.settings import HostSettings
        from resource_objects.host.tree import provider_tree

        machine = self.machine(parsed_args)
        settings = HostSettings(
            shared=parsed_args.shared,
            dedicated=parsed_args.dedicated,
            reserved_pages=parsed_args.reserved_pages,
            device_rules=parsed_args.rule,
        )
        tree = provider_tree(machine, settings, name=machine.hostname or "host")
        sets = settings.cpu_sets(machine)
        devices = machine_devices(machine, parsed_args.rule)
        facts = [*_facts(machine, len(devices.skipped))]
        if parsed_args.formatter == "json":
            facts.append(_all_of(shown_machine(machine, parsed_args)))
        return _RESOURCE, [*_host(machine, tree, sets), *_takeable(devices.devices), *facts]

    def _numa(self, parsed_args: argparse.Namespace) -> Table:
        from resource_objects.cli import drawing

        cells: HostCells | None
        if parsed_args.numa == _THIS:
            cells, note = drawing.cells_here(self, parsed_args)
        else:
            cells, note = drawing.kept_cells(self, parsed_args), ""
        if not self.is_brief:
            return _CELL, list(drawing.cell_rows(cells))
        return (), Text.of(drawing.terminal_drawing(cells, note, self.glyphs))

    def _pci(self, parsed_args: argparse.Namespace) -> Table:
        from resource_objects.cli import device_table

        if parsed_args.pci != _THIS:
            return device_table.stored_devices(self, parsed_args, is_brief=self.is_brief)
        machine = self.machine(parsed_args)
        return device_table.functions(self, machine, parsed_args.rule, is_brief=self.is_brief)


class SyncHost(Command):
    """Store this machine in the ledger, as it is now.

    Existing allocations stay. Everything that the machine or the options do not have any more is
    removed. An allocated PCI device that was removed or changed keeps its definition until it is
    released, is not allocated to another consumer, and is listed. If any other allocated resource
    would be removed, nothing is changed and the consumers are listed.

    --from stores a machine that cannot reach the ledger, from the output of `host show -f json` on
    that machine: `ssh lab-0 resource-objects host show -f json | resource-objects host sync --from
    -`. Rules and CPUs are those of that command, unless they are specified here.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--name", metavar="NAME", help="of the host (default: its host name)")
        add(
            "--from",
            dest="shown",
            metavar="FILE",
            help="the output of `host show -f json` on the machine; - reads the standard input",
        )
        _add_settings(parser)
        parser.add_argument(
            "--numa", action="store_true", help="offer its NUMA cells, for requests of topologies"
        )
        parser.add_argument(
            "--reserved",
            metavar="AMOUNTS",
            default="",
            help="the amounts to reserve, such as MEMORY_MB=512",
        )
        parser.add_argument(
            "--ratio",
            metavar="AMOUNTS",
            default="",
            help="the allocation ratio, such as VCPU=16",
        )
        parser.add_argument(
            "--reset",
            metavar="ADDRESS",
            action="append",
            default=[],
            help="a device for one use to offer again; may be repeated",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Read the machine, write what changed, and say it."""
        from resource_objects.host.device_rules import machine_devices
        from resource_objects.host.settings import HostSettings
        from resource_objects.host.sync import sync_host
        from resource_objects.host.tree import provider_tree

        shown = self._read_machine(parsed_args)
        settings = HostSettings(
            shared=shown.shared,
            dedicated=shown.dedicated,
            reserved=parsed_args.reserved,
            ratios=parsed_args.ratio,
            reserved_pages=parsed_args.reserved_pages,
            device_rules=shown.rules,
        )
        tree = provider_tree(shown.machine, settings, name=parsed_args.name, numa=parsed_args.numa)
        with self.open_ledger() as ledger:
            try:
                done = sync_host(ledger, tree, reset=parsed_args.reset)
            except exceptions.InUse as error:  # the lines name the consumers
                refused = exceptions.InUse(error.subject, error.name, error.detail)
                raise Refused(str(refused), _in_the_way(ledger, error)) from error
        skipped = machine_devices(shown.machine, shown.rules).skipped
        self.say("\n".join(map(str, (done, *skipped))))

    def _read_machine(self, parsed_args: argparse.Namespace) -> ShownMachine:
        """Return the machine, this one or one that was shown, with how it is to be shared out."""
        if parsed_args.shown is None:
            return shown_machine(self.machine(parsed_args), parsed_args)
        with misused():
            shown = ShownMachine.parse(read_input(parsed_args.shown))
        self.tell_findings(shown.machine)
        if parsed_args.strict and shown.machine.findings:
            first = shown.machine.findings[0]
            raise exceptions.DiscoveryError(first.subject, first.detail)
        return shown_machine(shown.machine, parsed_args, shown)


@dataclasses.dataclass(frozen=True, slots=True)
class ShownMachine:
    """The last row of ``host show -f json``: a machine with its device rules and CPU sets.

    ``host sync --from`` reads it. The rules and sets are text, as the commands take them.
    """

    #: The version of the document, and the kind of its row.
    VERSION = 1
    KIND = "machine"

    machine: Machine
    rules: tuple[str, ...] = ()
    shared: str | None = None
    dedicated: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, without fields at their default."""
        from resource_objects.providers import serialization

        return {"version": self.VERSION, **serialization.to_plain(self)}

    @classmethod
    def parse(cls, text: str | bytes) -> Self:
        """Return the machine of a document of ``host show -f json``.

        :raises InvalidInput: naming the invalid value
        :raises UnsupportedVersion: if another version of the library wrote it
        """
        from resource_objects.providers import serialization

        rows = serialization.from_json(text, "shown machine")
        shown = [
            row
            for row in (rows if isinstance(rows, list) else ())
            if isinstance(row, Mapping) and row.get("kind") == cls.KIND
        ]
        if len(shown) != 1 or "details" not in shown[0]:
            expected = "the complete output of `host show -f json`"
            raise exceptions.InvalidInput("value", "shown machine", rows, expected)
        data = serialization.versioned(shown[0]["details"], "a shown machine", cls.VERSION)
        return serialization.from_plain(cls, data, cls.KIND, {}, {Exception: _no_exception})


def _no_exception(data: Any, path: str) -> None:
    raise exceptions.InvalidInput("field", path, data, "nothing")


def shown_machine(
    machine: Machine, parsed_args: argparse.Namespace, before: ShownMachine | None = None
) -> ShownMachine:
    """Return a machine with the rules and CPUs of the options, or else those of its document."""
    was = before or ShownMachine(machine)
    return ShownMachine(
        machine,
        tuple(parsed_args.rule) or was.rules,
        was.shared if parsed_args.shared is None else parsed_args.shared,
        was.dedicated if parsed_args.dedicated is None else parsed_args.dedicated,
    )


def _in_the_way(ledger: Ledger, error: exceptions.LedgerError) -> Iterator[str]:
    """Yield the consumers and amounts of a class, or of all classes, that block a removal."""
    for use in ledger.usage(error.name):
        if use.provider == error.name and error.detail in ("", use.resource_class):
            for consumer, amount in use.holders:
                yield f"{consumer} holds {use.resource_class}={amount} of {use.provider}"


# --- the lists ----------------------------------------------------------------------------------


def _host(machine: Machine, tree: Provider, sets: tuple[CPUSet, CPUSet]) -> Iterator[Sequence[Any]]:
    """Yield the resources of the host itself, by class."""
    pages = ", ".join(map(_pages, machine.huge_pages))
    processors = f"{many(machine.physical_cores, 'core')}, {many(machine.packages, 'socket')}"
    details = {
        "VCPU": processors if sets[0] == machine.cpus else f"CPUs {runs_text(sets[0])}",
        "PCPU": f"CPUs {runs_text(sets[1])}",
        "MEMORY_MB": f"reserved: {pages}" if any(pool.total for pool in machine.huge_pages) else "",
        "DISK_GB": f"file system of {machine.disk.path}" if machine.disk else "",
    }
    for kind, inventory in tree.inventories.items():
        (record,) = inventory.to_records()
        figures = record.total, record.reserved
        yield "resource", kind.name, *figures, kind.units, details.get(kind.name, "")


def _takeable(devices: Iterable[Device]) -> Iterator[Sequence[Any]]:
    """Yield the devices that can be taken, by resource class."""
    from resource_objects.resources import resource

    by_class: dict[str, list[str]] = {}
    for device in devices:
        by_class.setdefault(device.resource_class, []).append(device.address)
    for name, addresses in by_class.items():
        more = len(addresses) - _NAMED
        named = [*addresses[:_NAMED], *([f"{more} more"] if more > 0 else [])]
        yield "resource", name, len(addresses), 0, resource(name).units, ", ".join(named)


def _facts(machine: Machine, skipped: int) -> Iterator[Sequence[Any]]:
    for cell in machine.cells:
        cpus = f"CPUs {runs_text(cell.cpus)}" if cell.cpus else "no CPUs"
        yield "fact", f"NUMA cell {cell.id}", cell.memory_mb, Maybe(None), "MiB", cpus
    see = f"{skipped} skipped, see --pci" if skipped else "see --pci"
    yield "fact", "PCI devices", len(machine.devices), Maybe(None), "devices", see


def _all_of(shown: ShownMachine) -> Sequence[Any]:
    """Return the row with the whole machine."""
    none = Maybe(None)
    return (
        ShownMachine.KIND,
        Maybe(shown.machine.hostname),
        none,
        none,
        none,
        Pairs(shown.to_dict()),
    )


def _pages(pages: Pages) -> str:
    """Return huge pages as text.

    >>> from resource_objects.host.machine import MIB, Pages
    >>> _pages(Pages(2 * MIB, 512, 500)), _pages(Pages(1024 * MIB, 1, 0))
    ('512 pages of 2 MiB', '1 page of 1 GiB')
    """
    kib = pages.size_bytes // 1024
    size, unit = next(
        (kib // factor, unit)
        for factor, unit in ((1024**2, "GiB"), (1024, "MiB"), (1, "KiB"))
        if kib % factor == 0
    )
    return f"{many(pages.total, 'page')} of {size} {unit}"


#: The rows of a device that is shown.
_SHOWN = (
    "device",
    "host",
    "provider",
    "id",
    "name",
    "resource_class",
    "class",
    "type",
    "parent",
    "numa_cell",
    "traits",
    "tags",
    "remote_managed",
    "live_migratable",
    "one_time_use",
    "facts",
    "state",
    "gone",
    "disabled",
    "holders",
    "relatives",
)
_RELATIVE = ("address", "resource_class", "type", "state", "holders")


class ListDevices(Lister):
    """List the PCI devices of the ledger, with their consumers.

    A device is named HOST/ADDRESS. Its state is `available`; `claimed` or `allocated` if it is
    allocated; `unclaimable` or `unavailable` if an allocation of a device that excludes it, or of
    an unnamed device of its kind, blocks it; `spent` if its one use is over; `removed` if the next
    sync removes it.
    """

    in_brief = True
    columns = ("device", *KEPT)
    nothing = "no device matches"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "hosts", metavar="HOST", nargs="*", help="name or uuid (default: all hosts)"
        )
        parser.add_argument(
            "--class", dest="resource_class", metavar="CLASS", help="those taken as this, as PGPU"
        )
        selection = parser.add_mutually_exclusive_group()
        selection.add_argument("--free", action="store_true", help="available devices")
        selection.add_argument("--held", action="store_true", help="allocated devices")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read them."""
        from resource_objects.cli.device_table import stored_table
        from resource_objects.host.holdings import read_devices
        from resource_objects.resources import resource

        resource_class = parsed_args.resource_class
        if resource_class is not None:
            resource_class = resource(resource_class).name
        with self.open_ledger() as ledger:
            hosts = read_devices(ledger, *parsed_args.hosts)
        return stored_table(
            self,
            [
                device
                for host in hosts
                for device in host.devices
                if resource_class in (None, device.device.resource_class)
                and (not parsed_args.free or device.is_free)
                and (not parsed_args.held or device.is_allocated)
            ],
            "device",
            is_brief=self.is_brief,
        )


class ShowDevice(ShowOne):
    """Show a PCI device of the ledger: its properties, its consumers and the devices that it
    excludes.
    """

    columns = _SHOWN

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("device", metavar="HOST/ADDRESS", help="such as host0/0000:3b:00.0")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Read it."""
        from resource_objects.cli.device_table import DeviceNames
        from resource_objects.host.holdings import read_devices
        from resource_objects.resources.pci.device import parse_address

        host, slash, address = parsed_args.device.rpartition("/")
        if not slash or not host:
            raise exceptions.InvalidInput("value", "device", parsed_args.device, "HOST/ADDRESS")
        parse_address(address)
        with self.open_ledger() as ledger:
            (host_devices,) = read_devices(ledger, host)
        return _SHOWN, tuple(
            _device_shown(host_devices, host_devices.find(address), DeviceNames(self))
        )


def _device_shown(host: HostDevices, device_status: DeviceStatus, names: Any) -> Iterator[Any]:
    device = device_status.device
    yield device_status.name
    yield device_status.host
    yield device_status.provider
    yield f"{device.vendor_id}:{device.product_id}"
    yield Maybe(names.of(device.vendor_id, device.product_id))
    yield device.resource_class
    yield device.class_code
    yield device.type
    yield Maybe(device.parent)
    yield Maybe(device.numa_node)
    yield Many(sorted(device.traits))
    yield Pairs(dict(device.tags))
    yield device.remote_managed
    yield Maybe(device.live_migratable)
    yield device.one_time_use
    yield Pairs(dict(device.facts))
    yield device_status.state
    yield device_status.is_withdrawn
    yield Maybe(device_status.disabled and str(device_status.disabled))
    yield Many(list(device_status.holders))
    yield Dicts(
        [
            dict(zip(_RELATIVE, _relative(relative), strict=True))
            for relative in host.relatives(device)
        ]
    )


def _relative(status: DeviceStatus) -> tuple[Any, ...]:
    device = status.device
    return device.address, device.resource_class, device.type, status.state, list(status.holders)
