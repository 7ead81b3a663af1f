"""The commands about the ledger as a whole: changes, audit, reshape, the tables of a database."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects.cli.base import (
    Command,
    Lister,
    Many,
    Maybe,
    ShowOne,
    Table,
    database_url,
    read_input,
)
from resource_objects.cli.site import Bar

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger
    from resource_objects.providers import DefinitionChanges
    from resource_objects.providers.feed import FeedEntry


class ListChanges(Lister):
    """List the changes after a cursor; the new cursor is printed on the standard error output."""

    columns = ("at", "kind", "subject", "actor", "consumers", "disabled", "operation")
    nothing = "nothing was written since"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--after", metavar="CURSOR", help="where an earlier list ended; else from the beginning"
        )
        add("--limit", metavar="N", type=int, default=1000, help="the maximum number (1000)")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read a page."""
        from resource_objects.providers.feed import SHARDS, Cursor

        after = parsed_args.after or Cursor((0,) * SHARDS)
        with self.open_ledger() as ledger:
            changes = ledger.feed.changes(after, parsed_args.limit)
        self.app.stderr.write(f"cursor: {changes.cursor}\n")
        return self.columns, [
            (
                change.at.isoformat(timespec="seconds"),
                change.kind,
                change.subject,
                Maybe(change.actor),
                Many(list(change.consumers)),
                Maybe(_disabled(change)),
                change.operation,
            )
            for change in changes
        ]


def _disabled(change: FeedEntry) -> str | None:
    """Return the providers that were disabled or enabled, or used although they were disabled."""
    if change.overrides:
        return "overridden"
    return "; ".join(str(entry.disabled or "enabled") for entry in change.disabled) or None


class ListFindings(Lister):
    """List what is wrong or deserves a look: over-full, expired, stale, counted twice."""

    columns = ("kind", "finding")
    nothing = "nothing is wrong"

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read everything and look through it."""
        with self.open_ledger() as ledger, Bar("audit", is_told=False):
            findings = list(ledger.audit())
        return self.columns, [(str(finding.kind), str(finding)) for finding in findings]


class ApplyReshape(Command):
    """Move inventories and allocations between providers, by a plan file, in one write.

    Each consumer has the same amounts afterwards, or nothing is changed. For hosts whose agent is
    stopped: a running agent reshapes its hosts itself.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("plan", metavar="FILE", help="the plan, in YAML or JSON; - reads it")
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="only say what it would do, and draw the trees before and after",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Read the file, carry it out, and say what was done."""
        from resource_objects.providers.reshape import Reshape as Plan

        name = parsed_args.plan
        text = read_input(name)
        if text.lstrip()[:1] in (b"{", b"["):
            plan = Plan.from_json(text)
        else:
            from resource_objects.yaml_nodes import read_data

            plan = Plan.from_dict(read_data(text, "standard input" if name == "-" else name))
        with self.open_ledger() as ledger:
            with Bar("reshape", is_told=False):
                done = ledger.reshape(plan, dry_run=parsed_args.dry_run)
            self.say(str(done))
            if parsed_args.dry_run and done.definitions is not None:
                self._draw(ledger, done.definitions)

    def _draw(self, ledger: Ledger, changes: DefinitionChanges) -> None:
        """Draw the trees that change as they are, and as they would be."""
        from resource_objects.cli import render
        from resource_objects.providers.dry_run import trees_after

        uuids = [update.definition.uuid for update in changes.updates]
        uuids += [update.uuid for update in changes.removals]
        before = list(ledger.trees(*uuids)) if uuids else []
        for word, roots in (("before", before), ("after", trees_after(before, changes))):
            self.say(f"\n{word}:\n{render.provider_tree(roots, self.glyphs)}".rstrip("\n"))


class StatusDatabase(ShowOne):
    """Show whether this library can use a database; nothing is changed."""

    columns = ("database", "status", "schema", "newest schema this library knows")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Ask for it."""
        from resource_objects.ledger import backend_for

        url = database_url(self.app.options.database, os.environ)
        shown = backend_for(url).database_status(url)
        return tuple(shown), tuple(shown.values())


class UpgradeDatabase(Command):
    """Make the tables of a database, or bring them up to date.

    A file needs it never: it is made and brought up to date when it is opened.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Run the steps that are missing, and say which."""
        from resource_objects.ledger import backend_for

        url = database_url(self.app.options.database, os.environ)
        with Bar("db upgrade", is_told=False):
            steps = backend_for(url).upgrade_database(url)
        self.say("\n".join(steps) or "nothing to do")
