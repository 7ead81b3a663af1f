"""The commands about providers: list, show, tree, create, set, delete."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from resource_objects.cli.base import Command, Lister, Many, Maybe, ShowOne, add_name


class ListProviders(Lister):
    """List providers, all of them or those that match every option.

    Traits and aggregates are a provider's own. An option may be repeated.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        add = parser.add_argument
        add("--name", metavar="NAME", action="append", help="of this name")
        add("--uuid", metavar="UUID", action="append", help="of this uuid")
        add("--in-tree", metavar="NAME", action="append", help="in the tree of this provider")
        add(
            *("--member-of", "--aggregate"),
            metavar="NAMES",
            action="append",
            default=[],
            help="in this aggregate, or in one of several with commas between; !NAME: not in it",
        )
        add(
            "--required",
            metavar="TRAITS",
            action="append",
            default=[],
            help="with this trait, or one of several with commas between",
        )
        add("--forbidden", metavar="TRAIT", action="append", default=[], help="without it")
        add("--room", metavar="AMOUNTS", help="with room for this, such as VCPU=2,MEMORY_MB=4096")
        add("--over-capacity", action="store_true", help="uses more than its capacity")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read them, page by page."""
        from resource_objects.cli import render

        members = [given for given in parsed_args.member_of if not given.startswith("!")]
        others = [given[1:] for given in parsed_args.member_of if given.startswith("!")]
        with self.open_ledger() as ledger:
            found = list(
                ledger.providers(
                    name=parsed_args.name,
                    uuid=parsed_args.uuid,
                    tree=parsed_args.in_tree,
                    aggregates=[given.split(",") for given in members],
                    forbidden_aggregates=others,
                    any_of=[given.split(",") for given in parsed_args.required],
                    forbidden=parsed_args.forbidden,
                    room=parsed_args.room,
                    over_capacity=parsed_args.over_capacity,
                )
            )
        return ("provider", "parent", "inventories", "traits", "aggregates", "generation"), [
            (
                one.name,
                one.parent or "",
                render.definition(one),
                Many(sorted(one.traits)),
                Many(sorted(one.aggregates)),
                one.generation,
            )
            for one in sorted(found, key=lambda one: (one.root, one.parent is not None, one.name))
        ]


class Show(ShowOne):
    """Show one provider."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        return add_name(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Read one provider."""
        from resource_objects.cli import render

        with self.open_ledger() as ledger:
            provider = ledger.provider(parsed_args.name)
        reported = provider.reported_at
        shown = {
            "provider": provider.name,
            "uuid": provider.uuid,
            "generation": provider.generation,
            "inventories": render.definition(provider),
            "traits": Many(sorted(provider.traits)),
            "aggregates": Many(sorted(provider.aggregates or ())),
            "shares": Many(list(map(str, provider.shares))),
            "children": Many([child.name for child in provider.children]),
            "reported": Maybe(reported and reported.isoformat(timespec="seconds")),
        }
        return tuple(shown), tuple(shown.values())


class Tree(Command):
    """Draw what providers have, all of them or one and what is below it."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="NAME", nargs="?", help="name or uuid")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Read and draw."""
        from resource_objects.cli import render

        with self.open_ledger() as ledger:
            roots = [ledger.provider(parsed_args.name)] if parsed_args.name else ledger.trees()
            drawn = render.provider_tree(roots, self.glyphs)
        self.say(drawn or "nothing is kept")


class Create(Command):
    """Create a provider, by itself or below another."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        add = parser.add_argument
        add("name", metavar="NAME", help="any name that is not taken")
        add("inventories", metavar="INVENTORIES", nargs="?", help="such as VCPU=8,MEMORY_MB=16384")
        add("--uuid", metavar="UUID", help="its uuid; else one is made up")
        add("--parent-provider", metavar="NAME", help="the provider it is below: name or uuid")
        add("--trait", metavar="TRAIT", action="append", default=[], help="may be repeated")
        add("--aggregate", metavar="NAME", action="append", default=[], help="may be repeated")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Create it."""
        from resource_objects import exceptions
        from resource_objects.providers import Provider

        made = Provider(
            parsed_args.name,
            parsed_args.inventories,
            traits=parsed_args.trait,
            uuid=parsed_args.uuid,
            aggregates=parsed_args.aggregate,
        )
        with self.open_ledger() as ledger:
            for found in ledger.providers(name=made.name):
                raise exceptions.ProviderExists(found.name)
            if parsed_args.parent_provider is None:
                done = ledger.sync(made)
            else:
                above = ledger.provider(parsed_args.parent_provider)
                [root] = ledger.trees(parsed_args.parent_provider)
                parent = root.find(above.name)
                parent.update(children=(*parent.children, made))
                done = ledger.sync(root)
        self.say(str(done))


class Set(Command):
    """Give a provider another name or parent."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = add_name(super().get_parser(prog_name), generation=True)
        parser.add_argument("--name", dest="new", metavar="NEW", help="its new name")
        where = parser.add_mutually_exclusive_group()
        where.add_argument("--parent-provider", metavar="NAME", help="its new parent")
        where.add_argument("--no-parent", action="store_true", help="make it a root")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Move it, then rename it."""
        given, name = parsed_args.generation, parsed_args.name
        moves = parsed_args.no_parent or parsed_args.parent_provider is not None
        with self.open_ledger() as ledger:
            uuid = ledger.provider(name).uuid or name
            if moves:
                self.say(str(ledger.reparent(uuid, parsed_args.parent_provider, generation=given)))
                given = None if given is None else given + 1
            if parsed_args.new is not None:
                self.say(str(ledger.rename(uuid, parsed_args.new, generation=given)))


class Delete(Command):
    """Remove a provider and all below it, if nothing of it is used."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        return add_name(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Remove it."""
        with self.open_ledger() as ledger:
            self.say(str(ledger.remove(parsed_args.name)))
