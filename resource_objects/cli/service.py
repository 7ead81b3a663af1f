"""The commands that take providers and devices out of service, and put them into it again."""

from __future__ import annotations

import argparse
import datetime
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from resource_objects import exceptions
from resource_objects.cli.base import (
    Age,
    Command,
    Drawing,
    Lister,
    Misused,
    Refused,
    SearchCutShort,
    Table,
    add_actor,
    add_name,
)
from resource_objects.cli.what_if import (
    REHEARSED,
    add_changes,
    rehearsed,
    rehearsed_rows,
    rehearsed_trees,
)

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger


_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_WHEN = (
    "a time from now, such as 30m, 8h or 3d, or a moment with its zone, such as 2030-01-01T08:00Z"
)


def _until(ledger: Ledger, text: str | None) -> datetime.datetime | None:
    """Return the end of a disabled state. A duration is counted from the present time of the
    ledger.
    """
    if text is None:
        return None
    match = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", text)
    if match is not None:
        return ledger.backend.now() + datetime.timedelta(**{_UNITS[match[2]]: int(match[1])})
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise Misused(f"--until: got {text!r}, expected {_WHEN}") from error
    if when.tzinfo is None:
        raise Misused(f"--until: got {text!r}, expected {_WHEN}")
    return when


def _add_why(parser: argparse.ArgumentParser, *, required: bool) -> argparse.ArgumentParser:
    parser.add_argument("--reason", metavar="TEXT", required=required, help="why, in one line")
    parser.add_argument("--until", metavar="WHEN", help=_WHEN)
    return add_actor(parser)


_DEVICE = "such as host0/0000:3b:00.0; or the name of its provider, such as lab-0/gpu3"


def _device_of(ledger: Ledger, device: str) -> str:
    """Return the provider of a PCI device that is named HOST/ADDRESS.

    A GPU of a site's file is a provider too, by a name that is no address.

    :raises InvalidInput: for a virtual function, which is disabled with its card
    """
    from resource_objects.host.holdings import read_devices

    host, slash, address = device.rpartition("/")
    if not slash or not host:
        raise exceptions.InvalidInput(
            "value", "device", device, "HOST/ADDRESS, or the name of its provider"
        )
    if ledger.backend.uuids([device]):
        return device
    (host_devices,) = read_devices(ledger, host)
    status = host_devices.find(address)
    if status.device.parent is not None:
        expected = f"a whole device: a virtual function is disabled with its card {status.provider}"
        raise exceptions.InvalidInput("value", "device", device, expected)
    return status.provider


class _Maintained:
    """The common part of the commands about providers and the commands about devices."""

    #: whether a PCI device is named, by host and address
    of_device = False

    def add_name(self, parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        """Add the argument that names the provider."""
        if not self.of_device:
            return add_name(parser)
        parser.add_argument("name", metavar="HOST/ADDRESS", help=_DEVICE)
        return parser

    def provider_of(self, ledger: Ledger, name: str) -> str:
        """Return the name of the provider."""
        return _device_of(ledger, name) if self.of_device else name


class DisableProvider(_Maintained, Command):
    """Disable a host or any other provider, with all its descendants.

    Searches and claims do not use them any more. Existing allocations stay. A repeated command
    changes the reason and the end.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_why(self.add_name(parser), required=True)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Disable it."""
        with self.open_ledger(parsed_args.actor) as ledger:
            done = ledger.disable(
                self.provider_of(ledger, parsed_args.name),
                reason=parsed_args.reason,
                until=_until(ledger, parsed_args.until),
            )
        self.say(f"{done.name}: {done.disabled}")


class EnableProvider(_Maintained, Command):
    """Put a host, or any other provider, into service again."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_actor(self.add_name(parser))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Enable it."""
        with self.open_ledger(parsed_args.actor) as ledger:
            done = ledger.enable(self.provider_of(ledger, parsed_args.name))
        self.say(f"{done.name}: enabled")


class DrainProvider(_Maintained, Lister):
    """Disable a host or any other provider, and list the consumers of its allocations.

    No consumer is moved. A provider that is disabled already needs no reason. When the list is
    empty, the provider is drained. With --dry-run nothing is written: the list shows a new host for
    each consumer, by the request of its claim, or the reasons of those without one (exit status 1;
    3 if the answer is unknown). --tree draws the failing providers.
    """

    columns = ("consumer", "since", "holds")
    nothing = "no consumer has allocations there"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_why(self.add_name(parser), required=False)
        add = parser.add_argument
        add(
            "--dry-run",
            action="store_true",
            help="only list the possible new host of each consumer",
        )
        add(
            "--also",
            metavar="NAME",
            action="append",
            default=[],
            help="with --dry-run: another provider that is drained too; may be repeated",
        )
        add(
            "--tree",
            action="store_true",
            help="with --dry-run: draw the nearest hosts of consumers without a new host, with the "
            "failing providers marked",
        )
        add("--plan", metavar="FILE", help="with --dry-run: write it there, for plan apply")
        add_changes(parser)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """List the consumers. The status of a dry run is 0 if each of them has a new host."""
        self._status = 0
        super().run(parsed_args)
        return self._status

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Disable it, and read who is there."""
        if not parsed_args.dry_run:
            for word in ("also", "tree", "plan", "change", "script"):
                if getattr(parsed_args, word):
                    raise Misused(f"--{word}: only with --dry-run")
            return _drained(self, self.provider_of, parsed_args)
        if parsed_args.reason or parsed_args.until:
            raise Misused("--dry-run disables nothing: say no --reason and no --until")
        with self.open_ledger(parsed_args.actor) as ledger:
            done = rehearsed(self, ledger, parsed_args)
        if done.stuck:
            self._status = Refused.status if done.is_certain else SearchCutShort.status
        if parsed_args.tree:
            return (), Drawing.of("\n".join(rehearsed_trees(done, self.glyphs)))
        return REHEARSED, rehearsed_rows(done)


def _drained(
    command: Command,
    provider_of: Callable[[Ledger, str], str],
    parsed_args: argparse.Namespace,
) -> Table:
    """Disable a provider, and return who is there."""
    with command.open_ledger(parsed_args.actor) as ledger:
        name = provider_of(ledger, parsed_args.name)
        reason, until = parsed_args.reason, _until(ledger, parsed_args.until)
        try:
            status = ledger.drain(name, reason=reason, until=until)
        except exceptions.InvalidInput as error:
            if not error.is_about("field"):
                raise
            if reason is not None:
                raise
            raise Misused(f"{parsed_args.name} is in service: say why with --reason") from error
        now = ledger.now()
    command.app.stderr.write(f"{status.provider}: {status.disabled or 'enabled'}\n")
    return command.columns, [
        (
            consumer.name,
            Age((consumer.claim.created_at, now)),
            ", ".join(
                f"{amounts} of {name}" for name, amounts in consumer.claim.by_provider().items()
            ),
        )
        for consumer in status
    ]


class DisableDevice(DisableProvider):
    """Take a PCI device out of service, with the functions split off it.

    A device is named HOST/ADDRESS. A virtual function is disabled with its card.
    """

    of_device = True


class EnableDevice(EnableProvider):
    """Put a PCI device, named HOST/ADDRESS, into service again."""

    of_device = True


class DrainDevice(_Maintained, Lister):
    """Take a PCI device, named HOST/ADDRESS, out of service, and list who still holds it."""

    of_device = True
    columns = DrainProvider.columns
    nothing = "nobody holds it"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_why(self.add_name(parser), required=False)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Disable it, and read who holds it."""
        return _drained(self, self.provider_of, parsed_args)
