"""The commands about providers: their definitions, inventories and traits, and shared pools."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.cli.base import (
    Ago,
    Command,
    Lister,
    Many,
    Maybe,
    ShowOne,
    Table,
    add_name,
    misused,
    records_of,
)
from resource_objects.cli.site import Bar
from resource_objects.cli.use_over_time import WHEN, moment_of
from resource_objects.names import natural_order
from resource_objects.ratio import MILLION

if TYPE_CHECKING:
    from resource_objects.providers import Provider
    from resource_objects.providers.listing import ListedProvider
    from resource_objects.resources import Inventories, Inventory, Resource


class ListProviders(Lister):
    """List providers, all of them or those that match every option.

    Traits and aggregates are a provider's own. An option may be repeated.
    """

    columns = (
        "provider",
        "parent",
        "inventories",
        "traits",
        "aggregates",
        "generation",
        "disabled",
        "reported",
    )
    nothing = "no provider matches"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--name", metavar="PROVIDER", action="append", help="of this name")
        add("--uuid", metavar="UUID", action="append", help="of this uuid")
        add("--in-tree", metavar="PROVIDER", action="append", help="in the tree of this provider")
        add(
            *("--member-of", "--aggregate"),
            metavar="AGGREGATES",
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
        add(
            "--reported-before",
            metavar="WHEN",
            help=f"its agent or owner reported last before: {WHEN}. One that never did is left out",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read them, page by page."""
        from resource_objects.cli import render

        members = [text for text in parsed_args.member_of if not text.startswith("!")]
        excluded = [text[1:] for text in parsed_args.member_of if text.startswith("!")]
        with self.open_ledger() as ledger, Bar("provider list", is_told=False):
            now, before = ledger.now(), parsed_args.reported_before
            if before is not None:
                with misused():
                    before = moment_of("--reported-before", before, now)
            providers = list(
                ledger.providers(
                    name=parsed_args.name,
                    uuid=parsed_args.uuid,
                    tree=parsed_args.in_tree,
                    aggregates=[text.split(",") for text in members],
                    forbidden_aggregates=excluded,
                    any_of=[text.split(",") for text in parsed_args.required],
                    forbidden=parsed_args.forbidden,
                    room=parsed_args.room,
                    over_capacity=parsed_args.over_capacity,
                    reported_before=before,
                )
            )
        return self.columns, [
            (
                provider.name,
                provider.parent or "",
                render.definition(provider),
                Many(sorted(provider.traits)),
                Many(sorted(provider.aggregates)),
                provider.generation,
                Maybe(provider.disabled and str(provider.disabled)),
                Ago((provider.reported_at, now)),
            )
            for provider in sorted(providers, key=_in_order)
        ]


def _in_order(provider: ListedProvider) -> tuple[Any, ...]:
    """Sort providers as people list machines: in natural order, a root before what is below it."""
    return natural_order(provider.root), provider.parent is not None, natural_order(provider.name)


class ShowProvider(ShowOne):
    """Show one provider."""

    columns = (
        "provider",
        "uuid",
        "generation",
        "inventories",
        "traits",
        "aggregates",
        "shares",
        "children",
        "disabled",
        "reported",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_name(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Read one provider."""
        from resource_objects.cli import render

        with self.open_ledger() as ledger:
            provider = ledger.provider(parsed_args.name)
            now = ledger.now()
        shown = {
            "provider": provider.name,
            "uuid": provider.uuid,
            "generation": provider.generation,
            "inventories": render.definition(provider),
            "traits": Many(sorted(provider.traits)),
            "aggregates": Many(sorted(provider.aggregates or ())),
            "shares": Many(list(map(str, provider.shares))),
            "children": Many([child.name for child in provider.children]),
            "disabled": Maybe(provider.disabled and str(provider.disabled)),
            "reported": Ago((provider.reported_at, now)),
        }
        return tuple(shown), tuple(shown.values())


class TreeProvider(Command):
    """Draw what providers have, all of them or one and what is below it."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", metavar="PROVIDER", nargs="?", help="name or uuid")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Read and draw."""
        from resource_objects.cli import render
        from resource_objects.cli.fitting import cut

        with self.open_ledger() as ledger, Bar("provider tree", is_told=False):
            roots = [ledger.provider(parsed_args.name)] if parsed_args.name else ledger.trees()
            drawn = render.provider_tree(roots, self.glyphs)
        width = self.width()
        self.say("\n".join(cut(line, width) for line in drawn.splitlines()) or "nothing is kept")


class CreateProvider(Command):
    """Create a provider: a root, or a child of another provider."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("name", metavar="NAME", help="any name that is not taken")
        add("inventories", metavar="INVENTORIES", nargs="?", help="such as VCPU=8,MEMORY_MB=16384")
        add("--uuid", metavar="UUID", help="its uuid; else one is made up")
        add("--parent-provider", metavar="PROVIDER", help="the provider it is below: name or uuid")
        add("--trait", metavar="TRAIT", action="append", default=[], help="may be repeated")
        add("--aggregate", metavar="AGGREGATE", action="append", default=[], help="may be repeated")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Create it."""
        from resource_objects.providers import Provider

        provider = Provider(
            parsed_args.name,
            parsed_args.inventories,
            traits=parsed_args.trait,
            uuid=parsed_args.uuid,
            aggregates=parsed_args.aggregate,
        )
        with self.open_ledger() as ledger:
            for existing in ledger.providers(name=provider.name):
                raise exceptions.AlreadyExists("provider", existing.name)
            if parsed_args.parent_provider is None:
                done = ledger.sync(provider)
            else:
                above = ledger.provider(parsed_args.parent_provider)
                [root] = ledger.trees(parsed_args.parent_provider)
                parent = root.find(above.name)
                parent.update(children=(*parent.children, provider))
                done = ledger.sync(root)
        self.say(str(done))


class SetProvider(Command):
    """Give a provider another name or parent."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_name(parser, generation=True)
        parser.add_argument("--name", dest="new", metavar="NEW", help="its new name")
        parent = parser.add_mutually_exclusive_group()
        parent.add_argument("--parent-provider", metavar="PROVIDER", help="its new parent")
        parent.add_argument("--no-parent", action="store_true", help="make it a root")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Move and rename it, in one write."""
        parent = parsed_args.parent_provider
        with self.open_ledger() as ledger:
            done = ledger.change(
                parsed_args.name,
                name=parsed_args.new,
                parent=... if parent is None and not parsed_args.no_parent else parent,
                generation=parsed_args.generation,
            )
        self.say(str(done))


class DeleteProvider(Command):
    """Remove a provider and all below it, if nothing of it is used."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_name(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Remove it."""
        with self.open_ledger() as ledger:
            self.say(str(ledger.remove(parsed_args.name)))


_FIGURES = ("total", "reserved", "min_unit", "max_unit", "step_size")


class ListInventories(Lister):
    """List what a provider has."""

    columns = ("resource_class", *_FIGURES, "allocation_ratio", "capacity", "used")
    nothing = "it has no inventories"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_name(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read its inventories."""
        with self.open_ledger() as ledger:
            records = records_of(ledger.provider(parsed_args.name).inventories)
        return self.columns, [
            (
                record.resource_class,
                *(Maybe(getattr(record, figure)) for figure in _FIGURES),
                record.ratio_millionths / MILLION,
                record.capacity,
                record.used,
            )
            for record in records
        ]


class SetInventories(Command):
    """Set the inventories of a provider; other classes are removed, unless --amend is specified.

    A part of a host, such as a NUMA cell, is not changed: its definition follows from a sync of the
    host.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_name(parser, generation=True)
        parser.add_argument(
            "inventories", metavar="INVENTORIES", help="such as VCPU=8:reserved=1,MEMORY_MB=16384"
        )
        parser.add_argument("--amend", action="store_true", help="leave other classes as they are")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Set them."""
        from resource_objects.resources import Inventories

        inventories = Inventories(parsed_args.inventories)
        generation = parsed_args.generation
        with self.open_ledger() as ledger:
            provider = ledger.provider(parsed_args.name)
            stays = dict(provider.inventories) if parsed_args.amend else _parts(provider)
            _check_counts(provider, inventories)
            if stays:
                inventories = Inventories(stays).amended(parsed_args.inventories)
                generation = provider.generation if generation is None else generation
            self.say(
                str(ledger.change(parsed_args.name, inventories=inventories, generation=generation))
            )


class DeleteInventories(Command):
    """Remove unused classes of a provider; without classes, all of them."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_name(parser)
        parser.add_argument("--resource-class", metavar="CLASS", action="append", help="this one")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Keep the others."""

        removed = parsed_args.resource_class
        with self.open_ledger() as ledger:
            provider = ledger.provider(parsed_args.name)
            by_class = dict(provider.inventories.by_name())
            for name in removed or ():
                if name not in by_class:
                    raise exceptions.InvalidInput(
                        "name", "resource class", name, f"one of {sorted(by_class)}"
                    )
            remaining = {
                name: inventory
                for name, inventory in by_class.items()
                if removed and name not in removed
            }
            for part in _parts(provider):
                if part.name not in remaining:
                    raise exceptions.InvalidInventory(
                        f"{part.name} of {provider.name}", None, f"one, for it is a part: {_HOW}"
                    )
            done = ledger.change(
                parsed_args.name, inventories=remaining, generation=provider.generation
            )
        self.say(str(done))


class ListProviderTraits(Lister):
    """List the traits of a provider."""

    columns = ("name",)
    nothing = "it has no traits"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_name(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read them."""
        with self.open_ledger() as ledger:
            traits = ledger.provider(parsed_args.name).traits
        return self.columns, [(name,) for name in sorted(traits)]


class ListProviderAggregates(Lister):
    """List the aggregates a provider is a member of."""

    columns = ("name",)
    nothing = "it is in no aggregate"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_name(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read them."""
        with self.open_ledger() as ledger:
            aggregates = ledger.provider(parsed_args.name).aggregates
        return self.columns, [(name,) for name in sorted(aggregates or ())]


class _SetWords(Command):
    """Base of the commands that say which traits or aggregates a provider has."""

    word = ""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_name(parser, generation=True)
        parser.add_argument(
            f"--{self.word}",
            dest="words",
            metavar=self.word.upper(),
            action="append",
            default=[],
            help="this one; may be repeated",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Set them."""
        with self.open_ledger() as ledger:
            fields: dict[str, Any] = {f"{self.word}s": parsed_args.words}
            done = ledger.change(parsed_args.name, generation=parsed_args.generation, **fields)
        self.say(str(done))


class SetProviderTraits(_SetWords):
    """Say which traits a provider has: these and no others."""

    word = "trait"


class SetProviderAggregates(_SetWords):
    """Say which aggregates a provider is a member of: these and no others."""

    word = "aggregate"


_HOW = (
    "cells are changed by host sync --numa, devices by host sync, "
    "others by Ledger.sync of their tree"
)


def _parts(provider: Provider) -> dict[Resource, Inventory]:
    """Return the inventories of a provider that are parts of a placed resource."""
    return {kind: inventory for kind, inventory in provider.inventories.items() if kind.is_placed}


def _check_counts(provider: Provider, inventories: Inventories) -> None:
    """Raise for a class of its own that is counted within a part."""
    for kind, part in _parts(provider).items():
        within = {record.resource_class for record in part.to_records()}
        for other, inventory in inventories.items():
            if other.name in within:
                raise exceptions.InvalidInventory(
                    f"{other.name} of {provider.name}",
                    other.format_inventory(inventory),
                    f"nothing: it is within {kind.name} of {provider.name}; {_HOW}",
                )


class ListPools(Lister):
    """List pools with their members, and when their owner reported last."""

    columns = ("pool", "inventories", "members", "reported")
    nothing = "no pool matches"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--older-than", metavar="SECONDS", type=float, help="not reported for longer than this"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read them."""
        older_than = parsed_args.older_than
        age = None if older_than is None else datetime.timedelta(seconds=older_than)
        with self.open_ledger() as ledger:
            pools = list(ledger.pools.list(older_than=age))
            now = ledger.now()
        return self.columns, [
            (
                pool.name,
                str(pool.inventories),
                Many(sorted(pool.members)),
                Ago((pool.reported_at, now)),
            )
            for pool in pools
        ]


class SharePool(Command):
    """Let hosts use what a pool has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("pool", metavar="POOL", help="name or uuid")
        add("--with", dest="hosts", metavar="HOST", action="append", required=True, help="with it")
        add(
            "--aggregate",
            metavar="AGGREGATE",
            help="the aggregate to share through; else of its name",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Share it."""
        with self.open_ledger() as ledger:
            done = ledger.pools.share(
                parsed_args.pool, hosts=parsed_args.hosts, aggregate=parsed_args.aggregate
            )
        self.say(str(done))


class UnsharePool(Command):
    """Disconnect a pool from hosts, or from all hosts; allocations from it stay."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("pool", metavar="POOL", help="name or uuid")
        parser.add_argument("--with", dest="hosts", metavar="HOST", action="append", help="from it")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Take it away."""
        with self.open_ledger() as ledger:
            self.say(str(ledger.pools.unshare(parsed_args.pool, hosts=parsed_args.hosts)))


class ReportPool(Command):
    """Report the present inventories of a pool; its owner repeats this regularly."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("pool", metavar="POOL", help="name or uuid")
        parser.add_argument("inventories", metavar="INVENTORIES", help="such as DISK_GB=100000")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Report it."""
        with self.open_ledger() as ledger:
            self.say(str(ledger.pools.report(parsed_args.pool, parsed_args.inventories)))
