"""The command that shows what the library does, on this machine."""

from __future__ import annotations

import argparse
import contextlib
import os

from resource_objects.cli import database, stop
from resource_objects.cli.base import Command


class Tour(Command):
    """See in a minute what it is about, on this machine.

    Keeps this machine in the ledger, places two jobs on it, refuses a third, and gives everything
    back, with the Python calls that do it (discover and provider_tree are of
    resource_objects.host.discovery and .model, the others of resource_objects). For the moment it
    lasts it takes most of what is free on this machine; it touches nothing else. A ledger named by
    --database or the environment is left as it was; in the default one the machine stays, as if by
    `host sync`.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Give the tour, and clean up after it whatever happens."""
        from resource_objects.cli.guide import Guide

        named = self.app.options.database or os.environ.get(database.VARIABLE)
        url = database.database_url(named, os.environ)
        with stop.stopped_once(), contextlib.ExitStack() as opened:
            guide = Guide(self.say, self.glyphs, opened, url, machine_stays=not named)
            try:
                try:
                    guide.tell()
                finally:
                    guide.tidy()
            finally:
                guide.tidy()  # again, if a signal ended the first time
