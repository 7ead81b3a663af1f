"""The commands about site files: write one, and apply one to the ledger."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from resource_objects.cli import base
from resource_objects.cli.progress import Bar

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

#: A prune that removes more than this share of all providers needs --yes.
PRUNE_SHARE = 0.5
_LARGE = f"more than {PRUNE_SHARE:.0%}"


@base.command(
    base.argument("hosts", "HOST", "only these (name or uuid); else all", nargs="*"), reads=True
)
def export_site(ledger: Ledger, args: Namespace) -> str:
    """Write the definitions in the ledger as a file for `apply`: machines, partitions, traits,
    pools.

    The file does not contain allocations.
    """
    from resource_objects import site

    with Bar("export") as bar:
        return str(site.export_site(ledger, args.hosts, progress=bar.tell))


@base.command(
    base.actor,
    base.argument("file", "FILE", "the site, in YAML; - reads it from standard input"),
    base.flag("--dry-run", "only print the plan"),
    base.flag("--prune", "remove what the file does not name"),
    base.flag("--yes", f"prune {_LARGE}% of all providers"),
    base.flag("--at-once", "write all machines in one transaction"),
    opens=False,
)
def apply_site(command: base.Command, args: Namespace) -> str:
    """Write the definitions of a file into the ledger. Providers that it does not name are not
    changed.

    Machines are written in batches of some hundred, each completely or not at all. After an error
    the previous batches stay; apply the file again for the rest.

    --prune with a file that names no machine is refused. --yes is required to remove a large share
    of all providers.
    """
    from resource_objects import site as sites

    with base.misused():
        file = "standard input" if args.file == "-" else args.file
        site = sites.Site.parse(base.read_input(args.file), file=file)
    with command.open_ledger(args.actor) as ledger, Bar("apply") as bar:
        if args.dry_run:
            return str(sites.plan_site(ledger, site, prune=args.prune))
        if args.prune and site.machines and not args.yes:
            removed, stored = sites.count_pruned(ledger, site)
            if removed > PRUNE_SHARE * stored:
                message = f"--prune would remove {removed} of {stored} providers, {_LARGE}"
                raise base.Refused(message, ["--dry-run shows them", "--yes removes them"])
        batch = None if args.at_once else sites.BATCH
        try:
            done = sites.apply_site(ledger, site, prune=args.prune, batch=batch, progress=bar.tell)
        except BaseException:
            bar.close()
            if bar.done:
                written = f"{bar.done} of {bar.total} machines are written"
                base.note(f"resource-objects: {written}; then:")
            raise
    return str(done)
