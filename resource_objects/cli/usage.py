"""The commands that show who uses how much of what."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from resource_objects.cli.base import Lister, ListerOrText, Maybe, Pairs, Text, add_name, records_of
from resource_objects.cli.consumer import add_whose, whose

_COLUMNS = ("provider", "resource_class", "used", "capacity", "free", "holders")


class ShowUsage(ListerOrText):
    """Show who uses how much of what; --tree draws it."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "tree", metavar="TREE", nargs="?", help="a provider; its whole tree is shown"
        )
        parser.add_argument("--tree", dest="draw", action="store_true", help="draw it, with bars")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read the usage."""
        with self.open_ledger() as ledger:
            usage = ledger.usage(parsed_args.tree)
        if parsed_args.draw:
            from resource_objects.cli import render

            return (), Text.of(render.usage_tree(usage, self.glyphs) or "nothing is kept")
        return _COLUMNS, [
            (
                use.provider,
                use.resource_class,
                use.used,
                use.capacity,
                use.free,
                Pairs(dict(use.holders)),
            )
            for use in usage
        ]


class ShowProviderUsage(Lister):
    """Show what is used of one provider, a line for each class."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        return add_name(super().get_parser(prog_name))

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read its inventories."""
        with self.open_ledger() as ledger:
            records = records_of(ledger.provider(parsed_args.name).inventories)
        return ("resource_class", "used", "capacity", "free"), [
            (record.resource_class, record.used, record.capacity, record.capacity - record.used)
            for record in records
        ]


class ShowTotals(Lister):
    """Show what is used in all, of each class, by provider, project, user or consumer type."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        add = parser.add_argument
        add(
            "--by",
            default="resource_class",
            choices=("resource_class", "provider", "project", "user", "consumer_type"),
            help="what it is summed by, beside the class",
        )
        add_whose(parser, "only of this {}")
        add("--provider", metavar="PROVIDER", help="only there")
        add("--tree", metavar="PROVIDER", help="only in its tree")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Ask for the sums."""
        with self.open_ledger() as ledger:
            found = ledger.totals(
                parsed_args.by,
                **whose(parsed_args),
                provider=parsed_args.provider,
                tree=parsed_args.tree,
            )
        return ("group", "resource_class", "used", "consumers"), [
            (Maybe(one.group), one.resource_class, one.used, one.consumers) for one in found
        ]
