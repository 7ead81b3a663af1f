"""The commands about this machine: show it, keep it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects.cli.base import Command, Ids, ListerOrText, Many, Maybe, runs_text

if TYPE_CHECKING:
    from resource_objects.host.facts import Machine, NUMACell, Pages
    from resource_objects.providers import Provider

_RESOURCE = ("kind", "what", "total", "reserved", "units", "details")
_CELL = ("cell", "cpus", "memory_mb", "huge_pages", "package", "distances")
_DEVICE = ("address", "id", "class", "kind", "numa_cell", "driver", "taken_as")
#: So many devices of a class are named, the others counted.
_NAMED = 3


def _add_rule(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rule",
        metavar="RULE",
        action="append",
        default=[],
        help="PCI devices that can be taken, and as what, such as 10de:2330=PGPU; may be repeated",
    )


class Show(ListerOrText):
    """Show this machine: what can be had of it, and facts.

    Resources are what `host sync` would keep. NUMA cells and PCI devices are facts; a --rule makes
    a resource of a device.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--root", metavar="DIR", default="/", help="where /proc and /sys of a captured one are"
        )
        _add_rule(parser)
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--numa", action="store_true", help="list the NUMA cells")
        which.add_argument("--pci", action="store_true", help="list the PCI devices")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read the machine."""
        from resource_objects.host.discovery import discover
        from resource_objects.host.model import provider_tree

        machine = discover(root=parsed_args.root)
        tree = provider_tree(machine, rules=parsed_args.rule, name=machine.hostname or "host")
        if parsed_args.numa:
            return _CELL, list(map(_cell, machine.cells))
        if parsed_args.pci:
            return _DEVICE, list(_devices(machine, tree))
        return _RESOURCE, [*_host(machine, tree), *_takeable(tree), *_facts(machine)]


class Sync(Command):
    """Keep this machine in the ledger, as it is now.

    What anybody holds stays. What the machine does not have any more goes, unless it is held.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--name", metavar="NAME", help="of the host (default: its host name)")
        _add_rule(parser)
        parser.add_argument(
            "--reserved",
            metavar="AMOUNTS",
            default="",
            help="what nobody gets, such as MEMORY_MB=512",
        )
        parser.add_argument(
            "--ratio",
            metavar="AMOUNTS",
            default="",
            help="how often each unit is given out, such as VCPU=16",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Read the machine, write what changed, and say it."""
        from resource_objects.host.discovery import discover
        from resource_objects.host.model import provider_tree

        tree = provider_tree(
            discover(),
            rules=parsed_args.rule,
            reserved=parsed_args.reserved,
            ratios=parsed_args.ratio,
            name=parsed_args.name,
        )
        with self.open_ledger() as ledger:
            self.say(str(ledger.sync(tree)))


# --- the lists ----------------------------------------------------------------------------------


def _host(machine: Machine, tree: Provider) -> Iterator[Sequence[Any]]:
    """Yield what can be had of the host itself, by resource class."""
    pages = ", ".join(map(_pages, machine.huge_pages))
    details = {
        "VCPU": f"{_many(machine.physical_cores, 'core')}, {_many(machine.packages, 'package')}",
        "MEMORY_MB": f"reserved: {pages}" if any(each.total for each in machine.huge_pages) else "",
        "DISK_GB": f"file system of {machine.disk.path}" if machine.disk else "",
    }
    for kind, inventory in tree.inventories.items():
        (record,) = inventory.to_records()
        figures = record.total, record.reserved
        yield "resource", kind.name, *figures, kind.units, details.get(kind.name, "")


def _takeable(tree: Provider) -> Iterator[Sequence[Any]]:
    """Yield the devices that can be taken, by resource class."""
    found: dict[Any, list[str]] = {}
    for child in tree.children:
        for kind in child.inventories:
            found.setdefault(kind, []).append(child.name.removeprefix(f"{tree.name}/"))
    for kind, addresses in found.items():
        more = len(addresses) - _NAMED
        named = [*addresses[:_NAMED], *([f"{more} more"] if more > 0 else [])]
        yield "resource", kind.name, len(addresses), 0, kind.units, ", ".join(named)


def _facts(machine: Machine) -> Iterator[Sequence[Any]]:
    for cell in machine.cells:
        cpus = f"CPUs {runs_text(cell.cpus)}" if cell.cpus else "no CPUs"
        yield "fact", f"NUMA cell {cell.id}", cell.memory_mb, Maybe(None), "MiB", cpus
    yield "fact", "PCI devices", len(machine.devices), Maybe(None), "devices", "see --pci"


def _cell(cell: NUMACell) -> Sequence[Any]:
    pages = [_pages(each) for each in cell.huge_pages if each.total]
    package, distances = Maybe(cell.package_id), Many(list(cell.distances))
    return cell.id, Ids(list(cell.cpus)), cell.memory_mb, Many(pages), package, distances


def _devices(machine: Machine, tree: Provider) -> Iterator[Sequence[Any]]:
    taken = {child.name: str(next(iter(child.inventories))) for child in tree.children}
    for each in machine.devices:
        yield (
            each.address,
            f"{each.vendor_id}:{each.product_id}",
            each.class_id,
            each.kind.value,
            Maybe(each.numa_node),
            Maybe(each.driver),
            Maybe(taken.get(f"{tree.name}/{each.address}")),
        )


def _pages(pages: Pages) -> str:
    """Return huge pages as text.

    >>> from resource_objects.host.facts import MIB, Pages
    >>> _pages(Pages(2 * MIB, 512, 500)), _pages(Pages(1024 * MIB, 1, 0))
    ('512 pages of 2 MiB', '1 page of 1 GiB')
    """
    kib = pages.size_bytes // 1024
    size, unit = next(
        (kib // factor, unit)
        for factor, unit in ((1024**2, "GiB"), (1024, "MiB"), (1, "KiB"))
        if kib % factor == 0
    )
    return f"{_many(pages.total, 'page')} of {size} {unit}"


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
