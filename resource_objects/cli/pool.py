"""The commands about pools: providers whose resources other trees may use."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Iterable, Sequence
from typing import Any

from resource_objects.cli.base import Command, Lister, Many, Maybe


class ListPools(Lister):
    """List pools with their members, and when their owner reported last."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--stale-after", metavar="SECONDS", type=float, help="only those not reported since"
        )
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read them."""
        given = parsed_args.stale_after
        age = None if given is None else datetime.timedelta(seconds=given)
        with self.open_ledger() as ledger:
            found = list(ledger.pools(stale_after=age))
        return ("pool", "inventories", "members", "reported"), [
            (
                pool.name,
                str(pool.inventories),
                Many(sorted(pool.members)),
                Maybe(pool.reported_at and pool.reported_at.isoformat(timespec="seconds")),
            )
            for pool in found
        ]


class Share(Command):
    """Let hosts use what a pool has."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        add = parser.add_argument
        add("pool", metavar="POOL", help="name or uuid")
        add("--with", dest="hosts", metavar="HOST", action="append", required=True, help="with it")
        add("--aggregate", metavar="NAME", help="the aggregate to share through; else of its name")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Share it."""
        with self.open_ledger() as ledger:
            done = ledger.share(
                parsed_args.pool, with_=parsed_args.hosts, aggregate=parsed_args.aggregate
            )
        self.say(str(done))


class Unshare(Command):
    """Take a pool away from hosts, or from all; what is held there stays held."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("pool", metavar="POOL", help="name or uuid")
        parser.add_argument("--with", dest="hosts", metavar="HOST", action="append", help="from it")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Take it away."""
        with self.open_ledger() as ledger:
            self.say(str(ledger.unshare(parsed_args.pool, with_=parsed_args.hosts)))


class Report(Command):
    """Say what a pool has now; done by its owner, again and again."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("pool", metavar="POOL", help="name or uuid")
        parser.add_argument("inventories", metavar="INVENTORIES", help="such as DISK_GB=100000")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Report it."""
        with self.open_ledger() as ledger:
            self.say(str(ledger.report(parsed_args.pool, parsed_args.inventories)))
