"""The commands about what happened and what is wrong: changes, audit."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from resource_objects.cli.base import Lister, Many, Maybe


class ListChanges(Lister):
    """List what was written after a cursor; the new cursor goes to the standard error output."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        add = parser.add_argument
        add(
            "--after", metavar="CURSOR", help="where an earlier list ended; else from the beginning"
        )
        add("--limit", metavar="N", type=int, default=1000, help="at most so many (1000)")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read a page."""
        from resource_objects.providers.feed import SHARDS, Cursor

        after = parsed_args.after or Cursor((0,) * SHARDS)
        with self.open_ledger() as ledger:
            found, cursor = ledger.changes(after, parsed_args.limit)
        self.app.stderr.write(f"cursor: {cursor}\n")
        return ("at", "kind", "subject", "actor", "consumers", "operation"), [
            (
                change.at.isoformat(timespec="seconds"),
                change.kind,
                change.subject,
                Maybe(change.actor),
                Many(list(change.consumers)),
                change.operation,
            )
            for change in found
        ]


class Audit(Lister):
    """List what is wrong or deserves a look: over-full, expired, stale, counted twice."""

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read everything and look through it."""
        with self.open_ledger() as ledger:
            found = list(ledger.audit())
        return ("kind", "finding"), [(str(one.kind), str(one)) for one in found]
