"""The commands that take providers and devices out of service, and put them into it again."""

from __future__ import annotations

import argparse
import datetime
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from resource_objects import exceptions
from resource_objects.cli.base import (
    Age,
    Command,
    Drawing,
    Lister,
    Misused,
    Refused,
    SearchCutShort,
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

_Rows: TypeAlias = tuple[Sequence[str], Iterable[Sequence[Any]]]

_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_WHEN = (
    "a time from now, such as 30m, 8h or 3d, or a moment with its zone, such as 2030-01-01T08:00Z"
)


def _until(ledger: Ledger, said: str | None) -> datetime.datetime | None:
    """Return the moment that somebody wrote; a time from now is by the clock of the ledger."""
    if said is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", said)
    if found is not None:
        return ledger.backend.now() + datetime.timedelta(**{_UNITS[found[2]]: int(found[1])})
    try:
        when = datetime.datetime.fromisoformat(said)
    except ValueError as error:
        raise Misused(f"--until: got {said!r}, expected {_WHEN}") from error
    if when.tzinfo is None:
        raise Misused(f"--until: got {said!r}, expected {_WHEN}")
    return when


def _add_why(parser: argparse.ArgumentParser, *, required: bool) -> argparse.ArgumentParser:
    parser.add_argument("--reason", metavar="TEXT", required=required, help="why, in one line")
    parser.add_argument("--until", metavar="WHEN", help=_WHEN)
    return add_actor(parser)


_DEVICE = "such as host0/0000:3b:00.0; or the name of its provider, such as lab-0/gpu3"


def _device_of(ledger: Ledger, device: str) -> tuple[str, str | None]:
    """Return the provider of a device that is named HOST/ADDRESS, and the unit that is meant alone.

    That is a function that is split off another one; any other device has a provider of its own. A
    GPU that a site's file names is one too, by a name that is no address.
    """
    from resource_objects.host.status import read_devices

    host, slash, address = device.rpartition("/")
    if not slash or not host:
        raise exceptions.InvalidInput("device", device, "HOST/ADDRESS, or the name of its provider")
    if ledger.backend.uuids([device]):
        return device, None
    (found,) = read_devices(ledger, host)
    one = found.find(address)
    return one.provider, None if one.device.parent is None else one.device.address


class _OutOfService:
    """What the commands about providers, and those about devices, have in common."""

    #: whether a PCI device is named, by host and address
    of_device = False

    def add_name(self, parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        """Add the argument that says which one."""
        if not self.of_device:
            return add_name(parser)
        parser.add_argument("name", metavar="HOST/ADDRESS", help=_DEVICE)
        return parser

    def meant(self, ledger: Ledger, said: str) -> tuple[str, str | None]:
        """Return the provider that is meant, and the unit of it if that is meant alone."""
        return _device_of(ledger, said) if self.of_device else (said, None)


class DisableProvider(_OutOfService, Command):
    """Take a host, or any other provider, out of service, with all that is below it.

    No search finds it and no claim takes of it any more. What is held there stays held. Said again,
    it gets another reason and end.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        return _add_why(self.add_name(super().get_parser(prog_name)), required=True)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Disable it."""
        with self.open_ledger(parsed_args.actor) as ledger:
            name, unit = self.meant(ledger, parsed_args.name)
            done = ledger.disable(
                name,
                unit=unit,
                reason=parsed_args.reason,
                until=_until(ledger, parsed_args.until),
            )
        if unit is None:
            self.say(f"{done.name}: {done.disabled}")
        else:
            self.say(f"{done.name}: {unit} {done.disabled_units.get(unit)}")


class EnableProvider(_OutOfService, Command):
    """Put a host, or any other provider, into service again."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        return add_actor(self.add_name(super().get_parser(prog_name)))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Enable it."""
        with self.open_ledger(parsed_args.actor) as ledger:
            name, unit = self.meant(ledger, parsed_args.name)
            done = ledger.enable(name, unit=unit)
        self.say(f"{done.name}: enabled" if unit is None else f"{done.name}: {unit} enabled")


class DrainProvider(_OutOfService, Lister):
    """Take a host, or any other provider, out of service, and list who still holds something there.

    Nobody is moved. Of one that is disabled already no reason is given; once the list is empty,
    nobody is there any more. With --dry-run nothing is written: listed is where each would find
    another place, by the request it was made for, or why it would find none (exit status 1 if
    somebody would not, 3 if that is not known). --tree draws where it fails.
    """

    columns = ("consumer", "since", "holds")
    nothing = "nobody holds anything there"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = _add_why(self.add_name(super().get_parser(prog_name)), required=False)
        add = parser.add_argument
        add("--dry-run", action="store_true", help="only tell who would find which other place")
        add(
            "--also",
            metavar="NAME",
            action="append",
            default=[],
            help="with --dry-run: another one that goes with it; may be repeated",
        )
        add(
            "--tree",
            action="store_true",
            help="with --dry-run: draw the nearest hosts of who finds no place, the failing places "
            "marked",
        )
        add("--plan", metavar="FILE", help="with --dry-run: write it there, for plan apply")
        add_changes(parser)
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """List them; the status of a dry run says whether all find a place."""
        self._status = 0
        super().run(parsed_args)
        return self._status

    def take_action(self, parsed_args: argparse.Namespace) -> _Rows:
        """Disable it, and read who is there."""
        if not parsed_args.dry_run:
            for word in ("also", "tree", "plan", "change", "script"):
                if getattr(parsed_args, word):
                    raise Misused(f"--{word}: only with --dry-run")
            return _drained(self, self.meant, parsed_args)
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
    meant: Callable[[Ledger, str], tuple[str, str | None]],
    parsed_args: argparse.Namespace,
) -> _Rows:
    """Disable a provider, and return who is there."""
    with command.open_ledger(parsed_args.actor) as ledger:
        name, unit = meant(ledger, parsed_args.name)
        reason, until = parsed_args.reason, _until(ledger, parsed_args.until)
        try:
            found = ledger.drain(name, unit=unit, reason=reason, until=until)
        except exceptions.InvalidField as error:
            if reason is not None:
                raise
            raise Misused(f"{parsed_args.name} is in service: say why with --reason") from error
        now = ledger.now()
    what = "" if found.unit is None else f"{found.unit} "
    command.app.stderr.write(f"{found.provider}: {what}{found.disabled or 'enabled'}\n")
    return command.columns, [
        (
            one.name,
            Age((one.claim.created_at, now)),
            ", ".join(f"{amounts} of {name}" for name, amounts in one.claim.by_provider().items()),
        )
        for one in found
    ]


class DisableDevice(DisableProvider):
    """Take a PCI device out of service, with the functions split off it.

    A device is named HOST/ADDRESS. A virtual function is out of service alone, and its card goes
    on: nobody is given the function, nor the whole card.
    """

    of_device = True


class EnableDevice(EnableProvider):
    """Put a PCI device, named HOST/ADDRESS, into service again."""

    of_device = True


class DrainDevice(_OutOfService, Lister):
    """Take a PCI device, named HOST/ADDRESS, out of service, and list who still holds it."""

    of_device = True
    columns = DrainProvider.columns
    nothing = "nobody holds it"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        return _add_why(self.add_name(super().get_parser(prog_name)), required=False)

    def take_action(self, parsed_args: argparse.Namespace) -> _Rows:
        """Disable it, and read who holds it."""
        return _drained(self, self.meant, parsed_args)
