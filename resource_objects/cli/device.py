"""The commands about devices that are kept: list, show."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects.cli.base import Dicts, Lister, Many, Maybe, Pairs, ShowOne

if TYPE_CHECKING:
    from resource_objects.host.kept_devices import HostDevices, KeptDevice

#: What is told of a device that is shown.
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
    "holders",
    "relatives",
)
_RELATIVE = ("address", "resource_class", "type", "state", "holders")


class ListDevices(Lister):
    """List PCI devices that are kept, and who holds them.

    A device is named HOST/ADDRESS. Its state is `available`; `claimed` or `allocated` if somebody
    has it; `unclaimable` or `unavailable` if somebody has what excludes it, or took it by count and
    did not say which; `spent` if it was for one use; `removed` if it goes at the next sync.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.set_defaults(formatter=None)  # so that run() knows whether one was asked for
        parser.add_argument(
            "hosts", metavar="HOST", nargs="*", help="name or uuid (default: all hosts)"
        )
        parser.add_argument(
            "--class", dest="resource_class", metavar="CLASS", help="those taken as this, as PGPU"
        )
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--free", action="store_true", help="those that can be had now")
        which.add_argument("--held", action="store_true", help="those that somebody holds")
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """List them; only what people look for, unless a format or columns are asked for."""
        self._is_brief = not parsed_args.formatter and not parsed_args.columns
        parsed_args.formatter = parsed_args.formatter or "table"
        return super().run(parsed_args)

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read them."""
        from resource_objects.cli.pci_host import kept_table
        from resource_objects.host.kept_devices import read_devices
        from resource_objects.resources import resource

        wanted = parsed_args.resource_class
        if wanted is not None:
            wanted = resource(wanted).name
        with self.open_ledger() as ledger:
            found = read_devices(ledger, *parsed_args.hosts)
        return kept_table(
            self,
            [
                one
                for host in found
                for one in host.devices
                if wanted in (None, one.device.resource_class)
                and (not parsed_args.free or one.is_free)
                and (not parsed_args.held or one.is_taken)
            ],
            "device",
            is_brief=self._is_brief,
        )


class Show(ShowOne):
    """Show a PCI device that is kept: what it is, who holds it, and what it excludes."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("device", metavar="HOST/ADDRESS", help="such as host0/0000:3b:00.0")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Read it."""
        from resource_objects.cli.pci_columns import Names
        from resource_objects.exceptions import InvalidInput
        from resource_objects.host.kept_devices import read_devices
        from resource_objects.resources.pci import words

        host, slash, address = parsed_args.device.rpartition("/")
        if not slash or not host:
            raise InvalidInput("device", parsed_args.device, "HOST/ADDRESS")
        words.address(address)
        with self.open_ledger() as ledger:
            (found,) = read_devices(ledger, host)
        return _SHOWN, tuple(_shown(found, found.find(address), Names(self)))


def _shown(host: HostDevices, one: KeptDevice, names: Any) -> Iterator[Any]:
    device = one.device
    yield one.name
    yield one.host
    yield one.provider
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
    yield one.state
    yield one.gone
    yield Many(list(one.holders))
    yield Dicts(
        [dict(zip(_RELATIVE, _relative(each), strict=True)) for each in host.relatives(device)]
    )


def _relative(one: KeptDevice) -> tuple[Any, ...]:
    device = one.device
    return device.address, device.resource_class, device.type, one.state, list(one.holders)
