"""The commands about site files: write one, and apply one to the ledger."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from typing import Any

from resource_objects.cli.base import Command, Refused, add_actor, misused, read_input

#: An action that takes longer, in seconds, shows its progress on a terminal.
_PATIENCE = 2.0
#: A prune that removes more than this share of all providers needs --yes.
PRUNE_SHARE = 0.5
_LARGE = f"more than {PRUNE_SHARE:.0%}"


class ExportSite(Command):
    """Write the definitions in the ledger as a file for `apply`: machines, partitions, traits,
    pools.

    The file does not contain allocations.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "hosts", metavar="HOST", nargs="*", help="only these (name or uuid); else all"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Read and write."""
        from resource_objects.site import export_site

        with self.open_ledger() as ledger, Bar("export") as bar:
            site = export_site(ledger, parsed_args.hosts, progress=bar.tell)
        self.say(str(site))


class ApplySite(Command):
    """Write the definitions of a file into the ledger. Providers that it does not name are not
    changed.

    Machines are written in batches of some hundred, each completely or not at all. After an error
    the previous batches stay; apply the file again for the rest.

    --prune with a file that names no machine is refused. --yes is required to remove a large share
    of all providers.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = add_actor(parser).add_argument
        add("file", metavar="FILE", help="the site, in YAML; - reads it from standard input")
        add("--dry-run", action="store_true", help="only print the plan")
        add("--prune", action="store_true", help="remove what the file does not name")
        add("--yes", action="store_true", help=f"prune {_LARGE}% of all providers")
        add("--at-once", action="store_true", help="write all machines in one transaction")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Read the file, write, and say what was done."""
        from resource_objects.site import BATCH, Site, apply_site, count_pruned, plan_site

        name = parsed_args.file
        with misused():
            site = Site.parse(read_input(name), file="standard input" if name == "-" else name)
        with self.open_ledger(parsed_args.actor) as ledger, Bar("apply") as bar:
            if parsed_args.dry_run:
                self.say(str(plan_site(ledger, site, prune=parsed_args.prune)))
                return
            if parsed_args.prune and site.machines and not parsed_args.yes:
                removed, stored = count_pruned(ledger, site)
                if removed > PRUNE_SHARE * stored:
                    reasons = ["--dry-run shows them", "--yes removes them"]
                    message = f"--prune would remove {removed} of {stored} providers, {_LARGE}"
                    raise Refused(message, reasons)
            try:
                done = apply_site(
                    ledger,
                    site,
                    prune=parsed_args.prune,
                    batch=None if parsed_args.at_once else BATCH,
                    progress=bar.tell,
                )
            except BaseException:
                bar.close()
                if bar.done:
                    message = f"{bar.done} of {bar.total} machines are written; then:"
                    self.app.stderr.write(f"resource-objects: {message}\n")
                raise
        self.say(str(done))


class Bar:
    """A progress bar on a terminal, for work that takes longer than two seconds.

    rich draws it, and is imported when it is drawn.

    :param is_told: whether :meth:`tell` reports the progress; otherwise the bar only moves
    """

    def __init__(self, word: str, *, is_told: bool = True) -> None:
        self.done = 0
        self.total = 0
        self._word = word
        self._lock = threading.Lock()
        self._since = time.monotonic()
        self._is_seen = sys.__stderr__ is not None and sys.__stderr__.isatty()
        self._drawn: tuple[Any, Any] | None = None
        self._timer: threading.Timer | None = None
        if self._is_seen and not is_told:
            self._timer = threading.Timer(_PATIENCE, self._begin)
            self._timer.daemon = True  # it does not delay the end of the process

    def __enter__(self) -> Bar:
        if self._timer is not None:
            self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def tell(self, done: int, total: int) -> None:
        """Show the number of finished machines and the number of all machines."""
        self.done, self.total = done, total
        if self._is_seen and self._drawn is None:
            if time.monotonic() - self._since < _PATIENCE:
                return
            self._begin()
        if self._drawn is not None:
            shown, task = self._drawn
            shown.update(task, completed=done, total=total)

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import Progress

        shown = Progress(console=Console(file=sys.__stderr__), transient=True)
        task = shown.add_task(self._word, total=self.total or None)
        with self._lock:  # the end of the work does not wait for the drawing
            if self._is_seen:
                shown.start()
                self._drawn = shown, task

    def close(self) -> None:
        """Take it away."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            if self._drawn is not None:
                self._drawn[0].stop()
                self._drawn = None
            self._is_seen = False
