"""The command that moves inventories and allocations between providers, by a plan in a file."""

from __future__ import annotations

import argparse
import pathlib
import sys

from resource_objects.cli.base import Command


class Reshape(Command):
    """Move inventories and allocations between providers, as a plan file says, all at once."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("plan", metavar="FILE", help="the plan, in JSON; - reads it")
        parser.add_argument("--dry-run", action="store_true", help="only say what it would do")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Read the file, carry it out, and say what was done."""
        from resource_objects.providers.reshape import Reshape as Plan

        name = parsed_args.plan
        text = sys.stdin.read() if name == "-" else pathlib.Path(name).read_text("utf-8")
        with self.open_ledger() as ledger:
            done = ledger.reshape(Plan.from_json(text), dry_run=parsed_args.dry_run)
        self.say(str(done))
