"""The commands about server groups: consumers that are to be on one host, or on different ones."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects.cli.base import Command, Lister, Many, Maybe, ShowOne, misused
from resource_objects.names import natural_order

if TYPE_CHECKING:
    from resource_objects.providers import ServerGroup


class CreateServerGroup(Command):
    """Create a server group, unless it exists. Its policy never changes."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = _add_group(super().get_parser(prog_name))
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
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Create it."""
        said = parsed_args
        with self.open_ledger() as ledger, misused():
            ledger.groups.ensure(said.name, said.policy, said.max_per_host)


class ListServerGroups(Lister):
    """List the server groups, with their members."""

    columns = ("name", "policy", "max_per_host", "members")
    nothing = "there are no server groups"

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read them, page by page."""
        with self.open_ledger() as ledger:
            found = list(ledger.groups.list())
        return self.columns, [
            (one.name, one.policy, _most(one), Many(sorted(one.members, key=natural_order)))
            for one in found
        ]


class ShowServerGroup(ShowOne):
    """Show a server group, and on which hosts its members are."""

    columns = ("name", "uuid", "policy", "max_per_host", "generation", "members", "hosts")

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        return _add_group(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Read it, and where its members are."""
        with self.open_ledger() as ledger:
            found = ledger.groups.get(parsed_args.name)
            members = list(ledger.consumers(group=found.name)) if found.members else []
            held = {each.provider for one in members for each in one.allocations}
            roots = {one.root for one in ledger.providers(name=held)} if held else set()
            hosts = roots.difference(one.name for one in ledger.pools.list())
        names = Many(sorted(found.members, key=natural_order))
        shown = (found.name, found.uuid, found.policy, _most(found), found.generation, names)
        return self.columns, (*shown, Many(sorted(hosts, key=natural_order)))


class DeleteServerGroup(Command):
    """Remove a server group that has no members."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        return _add_group(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Remove it."""
        with self.open_ledger() as ledger:
            ledger.groups.remove(parsed_args.name)


def _add_group(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("name", metavar="GROUP", help="its name")
    return parser


def _most(group: ServerGroup) -> Maybe:
    return Maybe(group.max_per_host if group.policy == "anti-affinity" else None)
