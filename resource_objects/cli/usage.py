"""The command that shows who uses how much of what."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from resource_objects.cli.base import ListerOrText, Pairs, Text

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
