"""The commands about the ledger as a whole: changes, audit, reshape, the tables of a database."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from resource_objects.cli import base
from resource_objects.cli.progress import Bar

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger
    from resource_objects.providers import DefinitionChanges
    from resource_objects.providers.feed import FeedEntry


@base.table(
    base.argument("--after", "CURSOR", "where an earlier list ended; else from the beginning"),
    base.argument("--limit", "N", "the maximum number (1000)", type=int, default=1000),
    columns=("at", "kind", "subject", "actor", "consumers", "disabled", "operation"),
    empty="nothing was written since",
    reads=True,
)
def list_changes(ledger: Ledger, args: Namespace) -> base.Rows:
    """List the changes after a cursor; the new cursor is printed on the standard error output."""
    from resource_objects.providers.feed import SHARDS, Cursor

    changes = ledger.feed.changes(args.after or Cursor((0,) * SHARDS), args.limit)
    base.note(f"cursor: {changes.cursor}")
    for change in changes:
        yield (
            change.at.isoformat(timespec="seconds"),
            change.kind,
            change.subject,
            base.optional(change.actor),
            base.listed(change.consumers),
            base.optional(_disabled(change)),
            change.operation,
        )


def _disabled(change: FeedEntry) -> str | None:
    """Return the providers that were disabled or enabled, or used although they were disabled."""
    if change.overrides:
        return "overridden"
    return "; ".join(str(entry.disabled or "enabled") for entry in change.disabled) or None


@base.table(columns=("kind", "finding"), empty="nothing is wrong", reads=True, slow=True)
def list_findings(ledger: Ledger, args: Namespace) -> base.Rows:
    """List what is wrong or deserves a look: over-full, expired, stale, counted twice."""
    return [(str(finding.kind), str(finding)) for finding in ledger.audit()]


@base.command(
    base.argument("plan", "FILE", "the plan, in YAML or JSON; - reads it"),
    base.flag("--dry-run", "only say what it would do, and draw the trees before and after"),
    opens=False,
)
def apply_reshape(command: base.Command, args: Namespace) -> str:
    """Move inventories and allocations between providers, by a plan file, in one write.

    Each consumer has the same amounts afterwards, or nothing is changed. For hosts whose agent is
    stopped: a running agent reshapes its hosts itself.
    """
    from resource_objects.providers.reshape import Reshape

    text = base.read_input(args.plan)
    if text.lstrip()[:1] in (b"{", b"["):
        plan = Reshape.from_json(text)
    else:
        from resource_objects.yaml_nodes import read_data

        file = "standard input" if args.plan == "-" else args.plan
        plan = Reshape.from_dict(read_data(text, file))
    with command.open_ledger() as ledger:
        with Bar("reshape", is_told=False):
            done = ledger.reshape(plan, dry_run=args.dry_run)
        if not args.dry_run or done.definitions is None:
            return str(done)
        return "\n".join([str(done), *_trees(ledger, done.definitions)])


def _trees(ledger: Ledger, changes: DefinitionChanges) -> Iterator[str]:
    """Yield drawings of the trees that change as they are, and as they would be."""
    from resource_objects.cli import render
    from resource_objects.providers.dry_run import trees_after

    uuids = [update.definition.uuid for update in changes.updates]
    uuids += [update.uuid for update in changes.removals]
    before = list(ledger.trees(*uuids)) if uuids else []
    for word, roots in (("before", before), ("after", trees_after(before, changes))):
        yield f"\n{word}:\n{render.provider_tree(roots, base.glyphs())}".rstrip("\n")


@base.record(
    columns=("database", "status", "schema", "newest schema this library knows"), opens=False
)
def show_database_status(command: base.Command, args: Namespace) -> dict[str, Any]:
    """Show whether this library can use a database; nothing is changed."""
    from resource_objects.ledger import backend_for

    url = base.database_url(command.app.options.database, os.environ)
    return backend_for(url).database_status(url)


@base.command(opens=False, slow=True)
def upgrade_database(command: base.Command, args: Namespace) -> str:
    """Make the tables of a database, or bring them up to date.

    A file needs it never: it is made and brought up to date when it is opened.
    """
    from resource_objects.ledger import backend_for

    url = base.database_url(command.app.options.database, os.environ)
    return "\n".join(backend_for(url).upgrade_database(url)) or "nothing to do"
