"""The commands about what a provider is: its inventories, traits and aggregates."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from resource_objects.cli.base import Command, Lister, Maybe, add_name, records_of

_FIGURES = ("total", "reserved", "min_unit", "max_unit", "step_size")


class ListInventories(Lister):
    """List what a provider has."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        return add_name(super().get_parser(prog_name))

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read its inventories."""
        from resource_objects.ratio import MILLION

        with self.open_ledger() as ledger:
            records = records_of(ledger.provider(parsed_args.name).inventories)
        return ("resource_class", *_FIGURES, "allocation_ratio", "capacity", "used"), [
            (
                record.resource_class,
                *(Maybe(getattr(record, figure)) for figure in _FIGURES),
                record.ratio_millionths / MILLION,
                record.capacity,
                record.used,
            )
            for record in records
        ]


class SetInventories(Command):
    """Say what a provider has; classes that are not said go, unless --amend is given.

    What is kept in parts, such as a NUMA cell, is said as a whole, and keeps its classes.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = add_name(super().get_parser(prog_name), generation=True)
        parser.add_argument(
            "inventories", metavar="INVENTORIES", help="such as VCPU=8:reserved=1,MEMORY_MB=16384"
        )
        parser.add_argument("--amend", action="store_true", help="leave other classes as they are")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Set them."""
        from resource_objects.cli.parts import check_parts
        from resource_objects.resources import Inventories

        given = Inventories(parsed_args.inventories)
        generation = parsed_args.generation
        with self.open_ledger() as ledger:
            provider = ledger.provider(parsed_args.name)
            check_parts(ledger, provider, given, amend=parsed_args.amend)
            if parsed_args.amend:
                given = Inventories({**dict(provider.inventories), **dict(given)})
                generation = provider.generation if generation is None else generation
            self.say(str(ledger.set_inventories(parsed_args.name, given, generation=generation)))


class DeleteInventories(Command):
    """Take classes away from a provider, if they are not used; all of them if none is said."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = add_name(super().get_parser(prog_name))
        parser.add_argument("--resource-class", metavar="CLASS", action="append", help="this one")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Keep the others."""
        from resource_objects import exceptions
        from resource_objects.cli.parts import check_parts
        from resource_objects.resources import Inventories

        gone = parsed_args.resource_class
        with self.open_ledger() as ledger:
            provider = ledger.provider(parsed_args.name)
            kept = dict(provider.inventories.by_name())
            for name in gone or ():
                if name not in kept:
                    raise exceptions.InvalidName("resource class", name, f"one of {sorted(kept)}")
            left = {name: one for name, one in kept.items() if gone and name not in gone}
            check_parts(ledger, provider, Inventories(left))
            done = ledger.set_inventories(parsed_args.name, left, generation=provider.generation)
        self.say(str(done))


class _Words(Lister):
    """Base of the lists of a provider's traits and aggregates."""

    attribute = ""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        return add_name(super().get_parser(prog_name))

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read them."""
        with self.open_ledger() as ledger:
            found = getattr(ledger.provider(parsed_args.name), self.attribute)
        return ("name",), [(name,) for name in sorted(found or ())]


class ListTraits(_Words):
    """List the traits of a provider."""

    attribute = "traits"


class ListAggregates(_Words):
    """List the aggregates a provider is a member of."""

    attribute = "aggregates"


class _SetWords(Command):
    """Base of the commands that say which traits or aggregates a provider has."""

    word = ""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = add_name(super().get_parser(prog_name), generation=True)
        parser.add_argument(
            f"--{self.word}",
            dest="words",
            metavar="NAME",
            action="append",
            default=[],
            help="this one; may be repeated",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Set them."""
        with self.open_ledger() as ledger:
            change = getattr(ledger, f"set_{self.word}s")
            done = change(parsed_args.name, parsed_args.words, generation=parsed_args.generation)
        self.say(str(done))


class SetTraits(_SetWords):
    """Say which traits a provider has: these and no others."""

    word = "trait"


class SetAggregates(_SetWords):
    """Say which aggregates a provider is a member of: these and no others."""

    word = "aggregate"
