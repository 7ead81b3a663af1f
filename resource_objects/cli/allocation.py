"""The commands about allocations: set, show, list, move, swap."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects.cli.base import Command, Lister, Many, Refused

if TYPE_CHECKING:
    from resource_objects.providers import Allocation

COLUMNS = ("consumer", "provider", "resource_class", "amount", "units")


def rows(consumer: str, allocations: Iterable[Allocation]) -> list[tuple[Any, ...]]:
    """Return a row per record of what a consumer holds."""
    return [
        (consumer, each.provider, record.resource_class, record.amount, Many(list(each.units)))
        for each in allocations
        for record in each.amount.to_records(each.resource_class)
    ]


class Set(Lister):
    """Say what a consumer holds: this and nothing else. It is made if need be."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        add = parser.add_argument
        add("consumer", metavar="CONSUMER", help="any name")
        add(
            "--allocation",
            metavar="PROVIDER,AMOUNTS",
            action="append",
            required=True,
            help="such as rp=host0,VCPU=2,MEMORY_MB=4096 (rp= may be left out); may be repeated",
        )
        add("--generation", metavar="N", type=int, help="refuse if it was changed since this one")
        for name in ("project", "user", "consumer-type"):
            add(f"--{name}", metavar="NAME", help=f"its {name.replace('-', ' ')}")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Replace what it holds."""
        from resource_objects import exceptions
        from resource_objects.resources import Amounts

        wanted: dict[str, Amounts] = {}
        for given in parsed_args.allocation:
            name, _, amounts = given.removeprefix("rp=").partition(",")
            if not amounts:
                raise exceptions.InvalidText("allocation", given, "rp=PROVIDER,CLASS=AMOUNT,...")
            asked = Amounts.of(amounts)
            wanted[name] = wanted[name] + asked if name in wanted else asked
        with self.open_ledger() as ledger:
            claim = ledger.replace(
                parsed_args.consumer,
                wanted,
                generation=parsed_args.generation,
                project=parsed_args.project,
                user=parsed_args.user,
                consumer_type=parsed_args.consumer_type,
            )
        return COLUMNS, rows(claim.consumer, claim.allocations)


class Show(Lister):
    """Show what a consumer holds, a line for each allocation."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("consumer", metavar="CONSUMER", help="of the consumer")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read its claim."""
        with self.open_ledger() as ledger:
            held = ledger.held(parsed_args.consumer)
        return COLUMNS, rows(held.consumer, held.allocations)


class ListAllocations(Lister):
    """List who holds what at a provider, or in its whole tree."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="PROVIDER", help="name or uuid")
        parser.add_argument("--tree", action="store_true", help="in its whole tree")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read the consumers, page by page."""
        name = parsed_args.name
        with self.open_ledger() as ledger:
            here = {one.uuid for one in ledger.providers(tree=name)}
            if not parsed_args.tree:
                here &= {ledger.provider(name).uuid or ""}
            where = {"tree" if parsed_args.tree else "provider": name}
            found = [
                (one.name, [each for each in one.allocations if each.provider_uuid in here])
                for one in ledger.consumers(**where)
            ]
        return COLUMNS, [row for consumer, held in found for row in rows(consumer, held)]


class Move(Lister):
    """Move a consumer: what it holds is given back, and the same is taken elsewhere, at once."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        add = parser.add_argument
        add("consumer", metavar="CONSUMER")
        add("--to", metavar="PROVIDER", required=True, help="at this one or what is below it")
        add("--leaving", metavar="CONSUMER", help="who holds the old place until released")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Search there for what it holds, and move it."""
        from resource_objects.cli import place

        consumer = parsed_args.consumer
        with self.open_ledger() as ledger:
            request = place.request_again(ledger, consumer)
            found = ledger.snapshot(parsed_args.to).candidates(request)
            if not found:
                asked = f"{parsed_args.to} cannot give {consumer} {request}"
                raise Refused(asked, str(found.explain()).splitlines())
            claim = ledger.move(consumer, found, leaving=parsed_args.leaving)
        return COLUMNS, rows(claim.consumer, claim.allocations)


class Swap(Command):
    """Let two consumers exchange all that they hold."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("first", metavar="CONSUMER")
        parser.add_argument("second", metavar="CONSUMER")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Swap them."""
        with self.open_ledger() as ledger:
            for claim in ledger.swap(parsed_args.first, parsed_args.second):
                self.say(str(claim))
