"""The commands about consumers: claim, release, and what one holds."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects.cli.base import Dicts, Lister, Refused, ShowOne

if TYPE_CHECKING:
    from resource_objects.providers import Allocation

_COLUMNS = ("consumer", "provider", "resource_class", "amount")


class Claim(Lister):
    """Take resources for a consumer, wherever they fit.

    Prints what was taken and where. If it fits nowhere, says for each host why not (exit status 1).
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("consumer", metavar="CONSUMER", help="who takes it: any name")
        parser.add_argument("amounts", metavar="AMOUNTS", help="such as VCPU=2,MEMORY_MB=4096")
        parser.add_argument(
            "--required",
            metavar="TRAIT",
            action="append",
            default=[],
            help="a quality that those who give must have; may be repeated",
        )
        parser.add_argument(
            "--forbidden",
            metavar="TRAIT",
            action="append",
            default=[],
            help="a quality that nobody who gives may have; may be repeated",
        )
        parser.add_argument(
            "--at", metavar="PROVIDER", help="only at this provider and what is below it"
        )
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Search and claim."""
        from resource_objects.cli import place
        from resource_objects.providers import Claim as Claimed
        from resource_objects.requests import Request

        request = Request(
            parsed_args.amounts,
            required=parsed_args.required,
            forbidden=parsed_args.forbidden,
        )
        with self.open_ledger() as ledger:
            done = place.claim(ledger, parsed_args.consumer, request, parsed_args.at)
            if not isinstance(done, Claimed):
                asked = f"nobody can give {parsed_args.consumer} {request}"
                raise Refused(asked, str(done.explain()).splitlines())
            return _COLUMNS, _rows(done.consumer, done.allocations)


class Release(Lister):
    """Give back all that a consumer holds."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("consumer", metavar="CONSUMER", help="who gives back")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Release, and list what was given back."""
        with self.open_ledger() as ledger:
            released = ledger.release(parsed_args.consumer)
        return _COLUMNS, _rows(released.consumer, released.allocations)


class Show(ShowOne):
    """Show what a consumer holds."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="NAME", help="of the consumer")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Read its claim."""
        with self.open_ledger() as ledger:
            held = ledger.held(parsed_args.name)
        columns = _COLUMNS[1:]
        rows = (row[1:] for row in _rows(held.consumer, held.allocations))
        shown = {
            "consumer": held.consumer,
            "uuid": held.consumer_uuid,
            "claim": held.id,
            "state": held.state,
            "since": held.created_at.isoformat(timespec="seconds"),
            "total": str(held.amounts),
            "allocations": Dicts([dict(zip(columns, row, strict=True)) for row in rows]),
        }
        return tuple(shown), tuple(shown.values())


def _rows(consumer: str, allocations: Iterable[Allocation]) -> list[tuple[str, str, str, int]]:
    return [
        (consumer, each.provider, record.resource_class, record.amount)
        for each in allocations
        for record in each.amount.to_records(each.resource_class)
    ]
