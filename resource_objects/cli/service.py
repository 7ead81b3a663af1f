"""The commands that take providers and devices out of service, and put them into it again."""

from __future__ import annotations

import datetime
import re
from argparse import Namespace
from typing import TYPE_CHECKING

from resource_objects import exceptions
from resource_objects.cli import base
from resource_objects.cli.what_if import (
    CHANGES,
    REHEARSED,
    rehearse,
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
        raise base.Misused(f"--until: got {text!r}, expected {_WHEN}") from error
    if when.tzinfo is None:
        raise base.Misused(f"--until: got {text!r}, expected {_WHEN}")
    return when


def _reason(*, required: bool) -> tuple[base.Argument, ...]:
    """Return the options of the reason, the end and the actor."""
    reason = base.argument("--reason", "TEXT", "why, in one line", required=required)
    return reason, base.argument("--until", "WHEN", _WHEN), base.actor


_DEVICE = base.argument(
    "name",
    "HOST/ADDRESS",
    "such as host0/0000:3b:00.0; or the name of its provider, such as lab-0/gpu3",
)


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


def _disable(ledger: Ledger, args: Namespace, name: str) -> str:
    until = _until(ledger, args.until)
    provider = ledger.disable(name, reason=args.reason, until=until)
    return f"{provider.name}: {provider.disabled}"


@base.command(base.PROVIDER, *_reason(required=True))
def disable_provider(ledger: Ledger, args: Namespace) -> str:
    """Disable a host or any other provider, with all its descendants.

    Searches and claims do not use them any more. Existing allocations stay. A repeated command
    changes the reason and the end.
    """
    return _disable(ledger, args, args.name)


@base.command(_DEVICE, *_reason(required=True))
def disable_device(ledger: Ledger, args: Namespace) -> str:
    """Take a PCI device out of service, with the functions split off it.

    A device is named HOST/ADDRESS. A virtual function is disabled with its card.
    """
    return _disable(ledger, args, _device_of(ledger, args.name))


@base.command(base.PROVIDER, base.actor)
def enable_provider(ledger: Ledger, args: Namespace) -> str:
    """Put a host, or any other provider, into service again."""
    return f"{ledger.enable(args.name).name}: enabled"


@base.command(_DEVICE, base.actor)
def enable_device(ledger: Ledger, args: Namespace) -> str:
    """Put a PCI device, named HOST/ADDRESS, into service again."""
    return f"{ledger.enable(_device_of(ledger, args.name)).name}: enabled"


_CONSUMERS = ("consumer", "since", "holds")


@base.table(
    base.PROVIDER,
    *_reason(required=False),
    base.flag("--dry-run", "only list the possible new host of each consumer"),
    base.repeated(
        "--also", "NAME", "with --dry-run: another provider that is drained too; may be repeated"
    ),
    base.flag(
        "--tree",
        "with --dry-run: draw the nearest hosts of consumers without a new host, with the failing "
        "providers marked",
    ),
    base.argument("--plan", "FILE", "with --dry-run: write it there, for plan apply"),
    CHANGES,
    columns=_CONSUMERS,
    empty="no consumer has allocations there",
    opens=False,
)
def drain_provider(command: base.Command, args: Namespace) -> base.Answer:
    """Disable a host or any other provider, and list the consumers of its allocations.

    No consumer is moved. A provider that is disabled already needs no reason. When the list is
    empty, the provider is drained. With --dry-run nothing is written: the list shows a new host for
    each consumer, by the request of its claim, or the reasons of those without one (exit status 1;
    3 if the answer is unknown). --tree draws the failing providers.
    """
    if not args.dry_run:
        for option in ("also", "tree", "plan", "change", "script"):
            if getattr(args, option):
                raise base.Misused(f"--{option}: only with --dry-run")
        with command.open_ledger(args.actor) as ledger:
            return base.Answer(_drain(ledger, args, args.name))
    if args.reason or args.until:
        raise base.Misused("--dry-run disables nothing: say no --reason and no --until")
    with command.open_ledger(args.actor) as ledger:
        rehearsal = rehearse(ledger, args)
    status = 0
    if rehearsal.stuck:
        status = base.Refused.status if rehearsal.is_certain else base.SearchCutShort.status
    if args.tree:
        return base.drawing(rehearsed_trees(rehearsal), status=status)
    return base.Answer(rehearsed_rows(rehearsal), REHEARSED, status=status)


@base.table(_DEVICE, *_reason(required=False), columns=_CONSUMERS, empty="nobody holds it")
def drain_device(ledger: Ledger, args: Namespace) -> base.Rows:
    """Take a PCI device, named HOST/ADDRESS, out of service, and list who still holds it."""
    return _drain(ledger, args, _device_of(ledger, args.name))


def _drain(ledger: Ledger, args: Namespace, name: str) -> base.Rows:
    """Disable a provider, and return its consumers."""
    until = _until(ledger, args.until)
    try:
        status = ledger.drain(name, reason=args.reason, until=until)
    except exceptions.InvalidInput as error:
        if not error.is_about("field") or args.reason is not None:
            raise
        raise base.Misused(f"{args.name} is in service: say why with --reason") from error
    now = ledger.now()
    base.note(f"{status.provider}: {status.disabled or 'enabled'}")
    return [
        (
            consumer.name,
            base.age(consumer.claim.created_at, now),
            ", ".join(
                f"{amounts} of {name}" for name, amounts in consumer.claim.by_provider().items()
            ),
        )
        for consumer in status
    ]
