"""The commands about server groups: consumers that are to be on one host, or on different ones."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from resource_objects.cli.base import Command, Lister, Many, Maybe, ShowOne, Table, misused
from resource_objects.names import natural_order

if TYPE_CHECKING:
    from resource_objects.providers import ServerGroup


class CreateServerGroup(Command):
    """Create a server group, unless it exists. Its policy never changes."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_group(parser)
        parser.add_argument(
            "policy",
            metavar="POLICY",
            help="affinity or anti-affinity (strict), soft-affinity or soft-anti-affinity (if "
            "possible)",
        )
        parser.add_argument(
            "--max-per-host",
            metavar="N",
            type=int,
            default=1,
            help="with anti-affinity: the maximum number of members on a host (default: 1)",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Create it."""
        with self.open_ledger() as ledger, misused():
            ledger.groups.ensure(parsed_args.name, parsed_args.policy, parsed_args.max_per_host)


class ListServerGroups(Lister):
    """List the server groups, with their members."""

    columns = ("name", "policy", "max_per_host", "members")
    nothing = "there are no server groups"

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read them, page by page."""
        with self.open_ledger() as ledger:
            groups = list(ledger.groups.list())
        return self.columns, [
            (group.name, group.policy, _most(group), Many(sorted(group.members, key=natural_order)))
            for group in groups
        ]


class ShowServerGroup(ShowOne):
    """Show a server group, and on which hosts its members are."""

    columns = ("name", "uuid", "policy", "max_per_host", "generation", "members", "hosts")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_group(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Read it, and where its members are."""
        with self.open_ledger() as ledger:
            group = ledger.groups.get(parsed_args.name)
            members = list(ledger.consumers(group=group.name)) if group.members else []
            providers = {allocation.provider for item in members for allocation in item.allocations}
            roots = {item.root for item in ledger.providers(name=providers)} if providers else set()
            hosts = roots.difference(item.name for item in ledger.pools.list())
        names = Many(sorted(group.members, key=natural_order))
        shown = (group.name, group.uuid, group.policy, _most(group), group.generation, names)
        return self.columns, (*shown, Many(sorted(hosts, key=natural_order)))


class DeleteServerGroup(Command):
    """Remove a server group that has no members."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_group(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Remove it."""
        with self.open_ledger() as ledger:
            ledger.groups.remove(parsed_args.name)


def _add_group(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("name", metavar="GROUP", help="its name")
    return parser


def _most(group: ServerGroup) -> Maybe:
    return Maybe(group.max_per_host if group.policy == "anti-affinity" else None)
