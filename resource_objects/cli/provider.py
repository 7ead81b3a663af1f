"""The commands about providers: list, show, tree."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from resource_objects.cli.base import Command, Lister, Many, ShowOne


class ListProviders(Lister):
    """List all providers."""

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read all trees."""
        from resource_objects.cli import render

        with self.open_ledger() as ledger:
            found = [pair for root in ledger.providers() for pair in root.parents()]
        return ("provider", "parent", "inventories", "traits", "generation"), [
            (
                provider.name,
                "" if parent is None else parent.name,
                render.definition(provider),
                Many(sorted(provider.traits)),
                provider.generation,
            )
            for provider, parent in found
        ]


class Show(ShowOne):
    """Show one provider."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="NAME", help="name or uuid")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Read one provider."""
        from resource_objects.cli import render

        with self.open_ledger() as ledger:
            provider = ledger.provider(parsed_args.name)
        shown = {
            "provider": provider.name,
            "uuid": provider.uuid,
            "generation": provider.generation,
            "inventories": render.definition(provider),
            "traits": Many(sorted(provider.traits)),
            "children": Many([child.name for child in provider.children]),
        }
        return tuple(shown), tuple(shown.values())


class Tree(Command):
    """Draw what providers have, all of them or one and what is below it."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="NAME", nargs="?", help="name or uuid")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Read and draw."""
        from resource_objects.cli import render

        with self.open_ledger() as ledger:
            roots = [ledger.provider(parsed_args.name)] if parsed_args.name else ledger.providers()
            drawn = render.provider_tree(roots, self.glyphs)
        self.say(drawn or "nothing is kept")
