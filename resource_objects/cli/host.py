"""The commands about this machine and about devices of the ledger."""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from resource_objects import exceptions
from resource_objects.cli import base
from resource_objects.host.machine import Machine

if TYPE_CHECKING:
    from resource_objects.host.holdings import DeviceStatus, HostCells
    from resource_objects.host.machine import Pages
    from resource_objects.ledger import Ledger
    from resource_objects.providers import Provider
    from resource_objects.resources.numa import CPUSet
    from resource_objects.resources.pci import Device

_RESOURCE = ("kind", "what", "total", "reserved", "units", "details")
_CELL = (
    *("cell", "socket", "cpus", "cores", "shared", "shared_used", "shared_capacity"),
    *("dedicated", "dedicated_used", "memory_mb", "memory_used_mb", "memory_capacity_mb"),
    *("huge_pages", "distances", "physnets", "tunneled", "holders"),
)
#: The columns of the functions of a machine, and those in a table.
FACTS = (
    *("address", "id", "name", "class", "type", "parent", "vfs", "most_vfs", "numa_cell", "driver"),
    *("interfaces", "vdpa", "mediated_types", "uuid", "taken_as", "rule", "skipped"),
)
BRIEF_FACTS = ("address", "name", "type", "numa_cell", "driver", "taken_as")
#: The columns of stored devices after their name, and those in a table.
STORED = (
    *("id", "name", "resource_class", "traits", "tags", "type", "parent", "numa_cell"),
    *("provider", "state", "gone", "disabled", "holders"),
)
BRIEF_STORED = ("resource_class", "traits", "type", "numa_cell", "state", "holders")
#: The number of named devices of a class; the others are counted.
_NAMED = 3
#: The value of ``--numa`` and ``--pci`` without a host.
_THIS = ""


#: The options that select the resources of a machine.
_SETTINGS = (
    base.repeated(
        "--rule",
        "RULE",
        "PCI devices to offer, with their class, such as 10de:2330=PGPU; may be repeated",
    ),
    base.argument("--shared", "CPUS", "CPUs for shared vCPUs, such as 0-3,8 (default: all)"),
    base.argument("--dedicated", "CPUS", "CPUs that are allocated to one vCPU each, such as 4-15"),
    base.argument(
        "--reserved-pages",
        "PAGES",
        "pages of NUMA cells that are not offered, such as 0:2MB=64,1:2MB=64",
        default="",
    ),
    base.flag(
        "--strict",
        "refuse a machine of which a fact cannot be read, instead of leaving that fact out",
    ),
)


def discovered(args: Namespace) -> Machine:
    """Return this machine or a captured one, and print the findings of the discovery.

    :raises DiscoveryError: for a finding, if the option --strict is set
    """
    from resource_objects.host.discovery import discover

    machine = discover(root=getattr(args, "root", "/"), strict=args.strict)
    _print_findings(machine)
    return machine


def _print_findings(machine: Machine) -> None:
    for finding in machine.findings:
        base.note(f"resource-objects: not read: {finding}")


@base.table(
    base.argument("--root", "DIR", "where /proc and /sys of a captured one are", default="/"),
    *_SETTINGS,
    base.exclusive(
        base.argument(
            "--numa",
            "HOST",
            "draw the NUMA cells, of this machine or of a host of the ledger (name or uuid)",
            nargs="?",
            const=_THIS,
        ),
        base.argument(
            "--pci",
            "HOST",
            "list the PCI devices, of this machine or of a host of the ledger (name or uuid)",
            nargs="?",
            const=_THIS,
        ),
    ),
    columns=_RESOURCE,
    columns_with={"--numa": _CELL, "--pci": FACTS, "--pci HOST": ("address", *STORED)},
    brief=True,
    reads=True,
    opens=False,
)
def show_host(command: base.Command, args: Namespace) -> base.Answer:
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
    if args.numa is not None:
        return _show_cells(command, args)
    if args.pci is not None:
        return _show_devices(command, args)
    from resource_objects.host.device_rules import machine_devices
    from resource_objects.host.settings import HostSettings
    from resource_objects.host.tree import provider_tree

    machine = discovered(args)
    settings = HostSettings(
        shared=args.shared,
        dedicated=args.dedicated,
        reserved_pages=args.reserved_pages,
        device_rules=args.rule,
    )
    tree = provider_tree(machine, settings, name=machine.hostname or "host")
    sets = settings.cpu_sets(machine)
    devices = machine_devices(machine, args.rule)
    facts = [*_facts(machine, len(devices.skipped))]
    if args.formatter == "json":
        facts.append(_all_of(shown_machine(machine, args)))
    return base.Answer([*_host(machine, tree, sets), *_offered(devices.devices), *facts])


def _show_cells(command: base.Command, args: Namespace) -> base.Answer:
    from resource_objects.cli import drawing

    cells: HostCells | None
    if args.numa == _THIS:
        cells, remark = drawing.cells_here(command, discovered(args), args)
    else:
        refuse_settings(args, args.numa, ("shared", "dedicated", "reserved_pages"))
        cells, remark = drawing.stored_cells(command, args.numa), ""
    if not args.is_brief:
        return base.Answer(drawing.cell_rows(cells), _CELL)
    return base.Answer(text=drawing.terminal_drawing(cells, remark, base.glyphs()))


def _show_devices(command: base.Command, args: Namespace) -> base.Answer:
    from resource_objects.cli import device_table

    if args.pci == _THIS:
        rows = device_table.functions(discovered(args), args.rule, is_brief=args.is_brief)
        return _selected(rows, FACTS, BRIEF_FACTS if args.is_brief else FACTS)
    refuse_settings(args, args.pci, ("rule", "shared", "dedicated", "reserved_pages"))
    devices = device_table.stored_devices(command, args.pci)
    return _stored(devices, "address", args)


def _stored(devices: Iterable[DeviceStatus], first: str, args: Namespace) -> base.Answer:
    """Return devices of the ledger; ``first`` is the name of the first column."""
    from resource_objects.cli.device_table import stored_rows

    selected = (first, *(BRIEF_STORED if args.is_brief else STORED))
    return _selected(stored_rows(devices, first), (first, *STORED), selected)


def _selected(
    rows: Iterable[Sequence[Any]], columns: Sequence[str], selected: Sequence[str]
) -> base.Answer:
    """Return the answer with the selected columns of the rows."""
    places = [columns.index(name) for name in selected]
    return base.Answer([tuple(row[place] for place in places) for row in rows], selected)


def refuse_settings(args: Namespace, host: str, names: Iterable[str]) -> None:
    """Raise an error for settings, which only this machine has.

    :raises InvalidInput: for the first specified one
    """
    for name in names:
        if value := getattr(args, name):
            option = f"--{name.replace('_', '-')}"
            expected = f"nothing, for {host} is shown as the ledger has it"
            raise exceptions.InvalidInput("value", option, value, expected)


@base.command(
    base.argument("--name", "NAME", "of the host (default: its host name)"),
    base.argument(
        "--from",
        "FILE",
        "the output of `host show -f json` on the machine; - reads the standard input",
        dest="shown",
    ),
    *_SETTINGS,
    base.flag("--numa", "offer its NUMA cells, for requests of topologies"),
    base.argument(
        "--reserved", "AMOUNTS", "the amounts to reserve, such as MEMORY_MB=512", default=""
    ),
    base.argument("--ratio", "AMOUNTS", "the allocation ratio, such as VCPU=16", default=""),
    base.repeated("--reset", "ADDRESS", "a device for one use to offer again; may be repeated"),
    opens=False,
)
def sync_host(command: base.Command, args: Namespace) -> str:
    """Store this machine in the ledger, as it is now.

    Existing allocations stay. Everything that the machine or the options do not have any more is
    removed. An allocated PCI device that was removed or changed keeps its definition until it is
    released, is not allocated to another consumer, and is listed. If any other allocated resource
    would be removed, nothing is changed and the consumers are listed.

    --from stores a machine that cannot reach the ledger, from the output of `host show -f json` on
    that machine: `ssh lab-0 resource-objects host show -f json | resource-objects host sync --from
    -`. Rules and CPUs are those of that command, unless they are specified here.
    """
    from resource_objects.host import sync
    from resource_objects.host.device_rules import machine_devices
    from resource_objects.host.settings import HostSettings
    from resource_objects.host.tree import provider_tree

    shown = _read_machine(args)
    settings = HostSettings(
        shared=shown.shared,
        dedicated=shown.dedicated,
        reserved=args.reserved,
        ratios=args.ratio,
        reserved_pages=args.reserved_pages,
        device_rules=shown.rules,
    )
    tree = provider_tree(shown.machine, settings, name=args.name, numa=args.numa)
    with command.open_ledger() as ledger:
        try:
            done = sync.sync_host(ledger, tree, reset=args.reset)
        except exceptions.InUse as error:  # the lines name the consumers
            refusal = exceptions.InUse(error.subject, error.name, error.detail)
            raise base.Refused(str(refusal), _blocking(ledger, error)) from error
    skipped = machine_devices(shown.machine, shown.rules).skipped
    return "\n".join(map(str, (done, *skipped)))


def _read_machine(args: Namespace) -> ShownMachine:
    """Return the machine, this one or one that was shown, with its rules and CPU sets."""
    if args.shown is None:
        return shown_machine(discovered(args), args)
    with base.misused():
        shown = ShownMachine.parse(base.read_input(args.shown))
    _print_findings(shown.machine)
    if args.strict and shown.machine.findings:
        first = shown.machine.findings[0]
        raise exceptions.DiscoveryError(first.subject, first.detail)
    return shown_machine(shown.machine, args, shown)


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
    machine: Machine, args: Namespace, before: ShownMachine | None = None
) -> ShownMachine:
    """Return a machine with the rules and CPUs of the options, or else those of its document."""
    was = before or ShownMachine(machine)
    return ShownMachine(
        machine,
        tuple(args.rule) or was.rules,
        was.shared if args.shared is None else args.shared,
        was.dedicated if args.dedicated is None else args.dedicated,
    )


def _blocking(ledger: Ledger, error: exceptions.LedgerError) -> Iterator[str]:
    """Yield the consumers and amounts of a class, or of all classes, that block a removal."""
    for use in ledger.usage(error.name):
        if use.provider == error.name and error.detail in ("", use.resource_class):
            for consumer, amount in use.holders:
                yield f"{consumer} holds {use.resource_class}={amount} of {use.provider}"


# --- the lists ----------------------------------------------------------------------------------


def _host(machine: Machine, tree: Provider, sets: tuple[CPUSet, CPUSet]) -> Iterator[Sequence[Any]]:
    """Yield the resources of the host itself, by class."""
    pages = ", ".join(map(_pages, machine.huge_pages))
    processors = (
        f"{base.many(machine.physical_cores, 'core')}, {base.many(machine.packages, 'socket')}"
    )
    details = {
        "VCPU": processors if sets[0] == machine.cpus else f"CPUs {base.runs_text(sets[0])}",
        "PCPU": f"CPUs {base.runs_text(sets[1])}",
        "MEMORY_MB": f"reserved: {pages}" if any(pool.total for pool in machine.huge_pages) else "",
        "DISK_GB": f"file system of {machine.disk.path}" if machine.disk else "",
    }
    for kind, inventory in tree.inventories.items():
        (record,) = inventory.to_records()
        figures = record.total, record.reserved
        yield "resource", kind.name, *figures, kind.units, details.get(kind.name, "")


def _offered(devices: Iterable[Device]) -> Iterator[Sequence[Any]]:
    """Yield the offered devices, by resource class."""
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
        cpus = f"CPUs {base.runs_text(cell.cpus)}" if cell.cpus else "no CPUs"
        yield "fact", f"NUMA cell {cell.id}", cell.memory_mb, base.optional(None), "MiB", cpus
    see = f"{skipped} skipped, see --pci" if skipped else "see --pci"
    yield "fact", "PCI devices", len(machine.devices), base.optional(None), "devices", see


def _all_of(shown: ShownMachine) -> Sequence[Any]:
    """Return the row with the whole machine."""
    none = base.optional(None)
    return (
        ShownMachine.KIND,
        base.optional(shown.machine.hostname),
        none,
        none,
        none,
        base.pairs(shown.to_dict()),
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
    return f"{base.many(pages.total, 'page')} of {size} {unit}"


@base.table(
    base.argument("hosts", "HOST", "name or uuid (default: all hosts)", nargs="*"),
    base.argument("--class", "CLASS", "those taken as this, as PGPU", dest="resource_class"),
    base.exclusive(
        base.flag("--free", "available devices"), base.flag("--held", "allocated devices")
    ),
    columns=("device", *STORED),
    brief=True,
    empty="no device matches",
    reads=True,
    opens=False,
)
def list_devices(command: base.Command, args: Namespace) -> base.Answer:
    """List the PCI devices of the ledger, with their consumers.

    A device is named HOST/ADDRESS. Its state is `available`; `claimed` or `allocated` if it is
    allocated; `unclaimable` or `unavailable` if an allocation of a device that excludes it, or of
    an unnamed device of its kind, blocks it; `spent` if its one use is over; `removed` if the next
    sync removes it.
    """
    from resource_objects.host.holdings import read_devices
    from resource_objects.resources import resource

    resource_class = args.resource_class and resource(args.resource_class).name
    with command.open_ledger() as ledger:
        hosts = read_devices(ledger, *args.hosts)
    devices = [
        device
        for host in hosts
        for device in host.devices
        if resource_class in (None, device.device.resource_class)
        and (not args.free or device.is_free)
        and (not args.held or device.is_allocated)
    ]
    return _stored(devices, "device", args)


@base.record(
    base.argument("device", "HOST/ADDRESS", "such as host0/0000:3b:00.0"),
    columns=(
        *("device", "host", "provider", "id", "name", "resource_class", "class", "type", "parent"),
        *("numa_cell", "traits", "tags", "remote_managed", "live_migratable", "one_time_use"),
        *("facts", "state", "gone", "disabled", "holders", "relatives"),
    ),
    reads=True,
    opens=False,
)
def show_device(command: base.Command, args: Namespace) -> dict[str, Any]:
    """Show a PCI device of the ledger: its properties, its consumers and the devices that it
    excludes.
    """
    from resource_objects.cli.device_table import DeviceNames
    from resource_objects.host.holdings import read_devices
    from resource_objects.resources.pci.device import parse_address

    host, slash, address = args.device.rpartition("/")
    if not slash or not host:
        raise exceptions.InvalidInput("value", "device", args.device, "HOST/ADDRESS")
    parse_address(address)
    with command.open_ledger() as ledger:
        (host_devices,) = read_devices(ledger, host)
    status = host_devices.find(address)
    device = status.device
    return {
        "device": status.name,
        "host": status.host,
        "provider": status.provider,
        "id": f"{device.vendor_id}:{device.product_id}",
        "name": base.optional(DeviceNames().of(device.vendor_id, device.product_id)),
        "resource_class": device.resource_class,
        "class": device.class_code,
        "type": device.type,
        "parent": base.optional(device.parent),
        "numa_cell": base.optional(device.numa_node),
        "traits": base.listed(sorted(device.traits)),
        "tags": base.pairs(dict(device.tags)),
        "remote_managed": device.remote_managed,
        "live_migratable": base.optional(device.live_migratable),
        "one_time_use": device.one_time_use,
        "facts": base.pairs(dict(device.facts)),
        "state": status.state,
        "gone": status.is_withdrawn,
        "disabled": base.optional(status.disabled and str(status.disabled)),
        "holders": base.listed(status.holders),
        "relatives": base.records(map(_relative, host_devices.relatives(device))),
    }


def _relative(status: DeviceStatus) -> dict[str, Any]:
    return {
        "address": status.device.address,
        "resource_class": status.device.resource_class,
        "type": status.device.type,
        "state": status.state,
        "holders": list(status.holders),
    }
