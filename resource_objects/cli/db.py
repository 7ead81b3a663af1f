"""The commands about the database: its status, and bringing it up to date."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from typing import Any

from resource_objects.cli import database
from resource_objects.cli.base import Command, ShowOne


class Status(ShowOne):
    """Show what a database is to this library; nothing is changed."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Ask for it."""
        from resource_objects.ledger import backend_for

        url = database.database_url(self.app.options.database, os.environ)
        shown = backend_for(url).database_status(url)
        return tuple(shown), tuple(shown.values())


class Upgrade(Command):
    """Make the tables of a database, or bring them up to date.

    A file needs it never: it is made and brought up to date when it is opened.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Run the steps that are missing, and say which."""
        from resource_objects.ledger import backend_for

        url = database.database_url(self.app.options.database, os.environ)
        steps = backend_for(url).upgrade_database(url)
        self.say("\n".join(steps) or "nothing to do")
