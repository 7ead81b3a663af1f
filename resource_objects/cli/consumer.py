"""The commands about consumers: claim, release, list, and what one holds."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects.cli.allocation import COLUMNS, rows
from resource_objects.cli.base import Dicts, Lister, Maybe, Refused, ShowOne

if TYPE_CHECKING:
    from resource_objects.providers import Allocation


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
        add_whose(parser, "its {}")
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
            done = place.claim(
                ledger, parsed_args.consumer, request, parsed_args.at, **whose(parsed_args)
            )
            if not isinstance(done, Claimed):
                asked = f"nobody can give {parsed_args.consumer} {request}"
                raise Refused(asked, str(done.explain()).splitlines())
            return COLUMNS, rows(done.consumer, done.allocations)


def add_whose(parser: argparse.ArgumentParser, said: str) -> None:
    """Add the options about a consumer's project, user and type."""
    for name in ("project", "user", "consumer-type"):
        told = said.format(name.replace("-", " "))
        parser.add_argument(f"--{name}", metavar="NAME", help=told)


def whose(parsed_args: argparse.Namespace) -> dict[str, Any]:
    """Return what those options say."""
    return {name: getattr(parsed_args, name) for name in ("project", "user", "consumer_type")}


class ListConsumers(Lister):
    """List consumers, all of them or those that match every option."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        add_whose(parser, "of this {}")
        add = parser.add_argument
        add("--provider", metavar="PROVIDER", help="that hold something there")
        add("--tree", metavar="PROVIDER", help="that hold something in its tree")
        add("--older-than", metavar="SECONDS", type=float, help="since longer than this")
        add("--state", choices=("held", "confirmed"), help="whose claim is in this state")
        add("--expired", action="store_true", help="whose claim has expired")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read them, page by page."""
        age = parsed_args.older_than
        with self.open_ledger() as ledger:
            found = list(
                ledger.consumers(
                    **whose(parsed_args),
                    provider=parsed_args.provider,
                    tree=parsed_args.tree,
                    older_than=None if age is None else datetime.timedelta(seconds=age),
                    state=parsed_args.state,
                )
            )
        now = datetime.datetime.now(datetime.UTC)
        if parsed_args.expired:
            found = [one for one in found if one.expires_at and one.expires_at < now]
        columns = ("consumer", "project", "user", "type", "state", "since", "expires", "holds")
        return columns, [
            (
                one.name,
                Maybe(one.project),
                Maybe(one.user),
                Maybe(one.consumer_type),
                one.state,
                one.created_at.isoformat(timespec="seconds"),
                Maybe(one.expires_at and one.expires_at.isoformat(timespec="seconds")),
                str(one.claim.amounts),
            )
            for one in found
        ]


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
        return COLUMNS, rows(released.consumer, released.allocations)


class Show(ShowOne):
    """Show what a consumer holds."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="NAME", help="of the consumer")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Read its claim, and where that is."""
        from resource_objects.providers.located import located_amounts

        with self.open_ledger() as ledger:
            held = ledger.held(parsed_args.name)
            assigned = ledger.assigned(parsed_args.name)
        shown = {
            "consumer": held.consumer,
            "uuid": held.consumer_uuid,
            "claim": held.id,
            "state": held.state,
            "generation": held.generation,
            "project": Maybe(held.project),
            "user": Maybe(held.user),
            "type": Maybe(held.consumer_type),
            "since": held.created_at.isoformat(timespec="seconds"),
            "expires": Maybe(held.expires_at and held.expires_at.isoformat(timespec="seconds")),
            "total": str(held.amounts),
            "allocations": Dicts([row for each in held.allocations for row in _records(each)]),
            "assigned": Dicts(
                [
                    {"host": host, "resource_class": name, "amount": str(amount)}
                    for host, amounts in assigned.items()
                    for name, amount in located_amounts(amounts).items()
                ]
            ),
        }
        return tuple(shown), tuple(shown.values())


def _records(held: Allocation) -> Iterator[dict[str, Any]]:
    """Yield what is held of a provider, as plain data; units where there are some."""
    for record in held.amount.to_records(held.resource_class):
        row = {
            "provider": held.provider,
            "resource_class": record.resource_class,
            "amount": record.amount,
        }
        yield row | ({"units": list(held.units)} if held.units else {})
