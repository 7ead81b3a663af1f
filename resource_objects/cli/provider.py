"""The commands about providers: their definitions, inventories and traits, and shared pools."""

from __future__ import annotations

import datetime
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.cli import base
from resource_objects.cli.use_over_time import WHEN, moment_of
from resource_objects.names import natural_order
from resource_objects.ratio import MILLION

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger
    from resource_objects.providers import Provider
    from resource_objects.providers.listing import ListedProvider
    from resource_objects.resources import Inventories, Inventory, Resource


@base.table(
    base.repeated("--name", "PROVIDER", "of this name", default=None),
    base.repeated("--uuid", "UUID", "of this uuid", default=None),
    base.repeated("--in-tree", "PROVIDER", "in the tree of this provider", default=None),
    base.repeated(
        ("--member-of", "--aggregate"),
        "AGGREGATES",
        "in this aggregate, or in one of several with commas between; !NAME: not in it",
    ),
    base.repeated("--required", "TRAITS", "with this trait, or one of several with commas between"),
    base.repeated("--forbidden", "TRAIT", "without it"),
    base.argument("--room", "AMOUNTS", "with room for this, such as VCPU=2,MEMORY_MB=4096"),
    base.flag("--over-capacity", "uses more than its capacity"),
    base.argument(
        "--reported-before",
        "WHEN",
        f"its agent or owner reported last before: {WHEN}. One that never did is left out",
    ),
    columns=(
        *("provider", "parent", "inventories", "traits", "aggregates", "generation"),
        *("disabled", "reported"),
    ),
    empty="no provider matches",
    reads=True,
    slow=True,
)
def list_providers(ledger: Ledger, args: Namespace) -> base.Rows:
    """List providers, all of them or those that match every option.

    Traits and aggregates are a provider's own. An option may be repeated.
    """
    from resource_objects.cli import render

    now, before = ledger.now(), args.reported_before
    if before is not None:
        with base.misused():
            before = moment_of("--reported-before", before, now)
    providers = ledger.providers(
        name=args.name,
        uuid=args.uuid,
        tree=args.in_tree,
        aggregates=[text.split(",") for text in args.member_of if not text.startswith("!")],
        forbidden_aggregates=[text[1:] for text in args.member_of if text.startswith("!")],
        any_of=[text.split(",") for text in args.required],
        forbidden=args.forbidden,
        room=args.room,
        over_capacity=args.over_capacity,
        reported_before=before,
    )
    return [
        (
            provider.name,
            provider.parent or "",
            render.definition(provider),
            base.listed(sorted(provider.traits)),
            base.listed(sorted(provider.aggregates)),
            provider.generation,
            base.optional(provider.disabled and str(provider.disabled)),
            base.ago(provider.reported_at, now),
        )
        for provider in sorted(providers, key=_in_order)
    ]


def _in_order(provider: ListedProvider) -> tuple[Any, ...]:
    """Sort providers as people list machines: in natural order, a root before what is below it."""
    return natural_order(provider.root), provider.parent is not None, natural_order(provider.name)


@base.record(
    base.PROVIDER,
    columns=(
        *("provider", "uuid", "generation", "inventories", "traits", "aggregates", "shares"),
        *("children", "disabled", "reported"),
    ),
    reads=True,
)
def show_provider(ledger: Ledger, args: Namespace) -> dict[str, Any]:
    """Show one provider."""
    from resource_objects.cli import render

    provider = ledger.provider(args.name)
    return {
        "provider": provider.name,
        "uuid": provider.uuid,
        "generation": provider.generation,
        "inventories": render.definition(provider),
        "traits": base.listed(sorted(provider.traits)),
        "aggregates": base.listed(sorted(provider.aggregates or ())),
        "shares": base.listed(map(str, provider.shares)),
        "children": base.listed(child.name for child in provider.children),
        "disabled": base.optional(provider.disabled and str(provider.disabled)),
        "reported": base.ago(provider.reported_at, ledger.now()),
    }


@base.command(base.argument("name", "PROVIDER", "name or uuid", nargs="?"), reads=True, slow=True)
def draw_providers(ledger: Ledger, args: Namespace) -> str:
    """Draw what providers have, all of them or one and what is below it."""
    from resource_objects.cli import render
    from resource_objects.cli.fitting import cut

    roots = [ledger.provider(args.name)] if args.name else ledger.trees()
    lines = render.provider_tree(roots, base.glyphs()).splitlines()
    return "\n".join(cut(line, base.line_width()) for line in lines) or "nothing is kept"


@base.command(
    base.argument("name", "NAME", "any name that is not taken"),
    base.argument("inventories", "INVENTORIES", "such as VCPU=8,MEMORY_MB=16384", nargs="?"),
    base.argument("--uuid", "UUID", "its uuid; else one is made up"),
    base.argument("--parent-provider", "PROVIDER", "the provider it is below: name or uuid"),
    base.repeated("--trait", "TRAIT", "may be repeated"),
    base.repeated("--aggregate", "AGGREGATE", "may be repeated"),
    opens=False,
)
def create_provider(command: base.Command, args: Namespace) -> str:
    """Create a provider: a root, or a child of another provider."""
    from resource_objects.providers import Provider

    provider = Provider(
        args.name,
        args.inventories,
        traits=args.trait,
        uuid=args.uuid,
        aggregates=args.aggregate,
    )
    with command.open_ledger() as ledger:
        for existing in ledger.providers(name=provider.name):
            raise exceptions.AlreadyExists("provider", existing.name)
        if args.parent_provider is None:
            return str(ledger.sync(provider))
        above = ledger.provider(args.parent_provider)
        [root] = ledger.trees(args.parent_provider)
        parent = root.find(above.name)
        parent.update(children=(*parent.children, provider))
        return str(ledger.sync(root))


@base.command(
    base.PROVIDER,
    base.GENERATION,
    base.argument("--name", "NEW", "its new name", dest="new"),
    base.exclusive(
        base.argument("--parent-provider", "PROVIDER", "its new parent"),
        base.flag("--no-parent", "make it a root"),
    ),
)
def set_provider(ledger: Ledger, args: Namespace) -> str:
    """Give a provider another name or parent."""
    parent = args.parent_provider
    done = ledger.change(
        args.name,
        name=args.new,
        parent=... if parent is None and not args.no_parent else parent,
        generation=args.generation,
    )
    return str(done)


@base.command(base.PROVIDER)
def delete_provider(ledger: Ledger, args: Namespace) -> str:
    """Remove a provider and all below it, if nothing of it is used."""
    return str(ledger.remove(args.name))


_FIGURES = ("total", "reserved", "min_unit", "max_unit", "step_size")


@base.table(
    base.PROVIDER,
    columns=("resource_class", *_FIGURES, "allocation_ratio", "capacity", "used"),
    empty="it has no inventories",
    reads=True,
)
def list_inventories(ledger: Ledger, args: Namespace) -> base.Rows:
    """List what a provider has."""
    return [
        (
            record.resource_class,
            *(base.optional(getattr(record, figure)) for figure in _FIGURES),
            record.ratio_millionths / MILLION,
            record.capacity,
            record.used,
        )
        for record in base.records_of(ledger.provider(args.name).inventories)
    ]


@base.table(
    base.PROVIDER,
    columns=("resource_class", "used", "capacity", "free"),
    empty="it has no inventories",
    reads=True,
)
def show_provider_usage(ledger: Ledger, args: Namespace) -> base.Rows:
    """Show the usage of one provider, a line for each class."""
    return [
        (record.resource_class, record.used, record.capacity, record.capacity - record.used)
        for record in base.records_of(ledger.provider(args.name).inventories)
    ]


@base.command(
    base.PROVIDER,
    base.GENERATION,
    base.argument("inventories", "INVENTORIES", "such as VCPU=8:reserved=1,MEMORY_MB=16384"),
    base.flag("--amend", "leave other classes as they are"),
    opens=False,
)
def set_inventories(command: base.Command, args: Namespace) -> str:
    """Set the inventories of a provider; other classes are removed, unless --amend is specified.

    A part of a host, such as a NUMA cell, is not changed: its definition follows from a sync of the
    host.
    """
    from resource_objects.resources import Inventories

    inventories, generation = Inventories(args.inventories), args.generation
    with command.open_ledger() as ledger:
        provider = ledger.provider(args.name)
        stays = dict(provider.inventories) if args.amend else _parts(provider)
        _check_counts(provider, inventories)
        if stays:
            inventories = Inventories(stays).amended(args.inventories)
            generation = provider.generation if generation is None else generation
        return str(ledger.change(args.name, inventories=inventories, generation=generation))


@base.command(base.PROVIDER, base.repeated("--resource-class", "CLASS", "this one", default=None))
def delete_inventories(ledger: Ledger, args: Namespace) -> str:
    """Remove unused classes of a provider; without classes, all of them."""
    removed = args.resource_class
    provider = ledger.provider(args.name)
    by_class = dict(provider.inventories.by_name())
    for name in removed or ():
        if name not in by_class:
            expected = f"one of {sorted(by_class)}"
            raise exceptions.InvalidInput("name", "resource class", name, expected)
    remaining = {
        name: inventory for name, inventory in by_class.items() if removed and name not in removed
    }
    for part in _parts(provider):
        if part.name not in remaining:
            raise exceptions.InvalidInventory(
                f"{part.name} of {provider.name}", None, f"one, for it is a part: {_HOW}"
            )
    return str(ledger.change(args.name, inventories=remaining, generation=provider.generation))


@base.table(base.PROVIDER, columns=("name",), empty="it has no traits", reads=True)
def list_provider_traits(ledger: Ledger, args: Namespace) -> base.Rows:
    """List the traits of a provider."""
    return [(name,) for name in sorted(ledger.provider(args.name).traits)]


@base.table(base.PROVIDER, columns=("name",), empty="it is in no aggregate", reads=True)
def list_provider_aggregates(ledger: Ledger, args: Namespace) -> base.Rows:
    """List the aggregates a provider is a member of."""
    return [(name,) for name in sorted(ledger.provider(args.name).aggregates or ())]


@base.command(
    base.PROVIDER, base.GENERATION, base.repeated("--trait", "TRAIT", "this one; may be repeated")
)
def set_provider_traits(ledger: Ledger, args: Namespace) -> str:
    """Say which traits a provider has: these and no others."""
    return str(ledger.change(args.name, traits=args.trait, generation=args.generation))


@base.command(
    base.PROVIDER,
    base.GENERATION,
    base.repeated("--aggregate", "AGGREGATE", "this one; may be repeated"),
)
def set_provider_aggregates(ledger: Ledger, args: Namespace) -> str:
    """Say which aggregates a provider is a member of: these and no others."""
    return str(ledger.change(args.name, aggregates=args.aggregate, generation=args.generation))


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


# --- pools ----------------------------------------------------------------------------------------

_POOL = base.argument("pool", "POOL", "name or uuid")


@base.table(
    base.argument("--older-than", "SECONDS", "not reported for longer than this", type=float),
    columns=("pool", "inventories", "members", "reported"),
    empty="no pool matches",
    reads=True,
)
def list_pools(ledger: Ledger, args: Namespace) -> base.Rows:
    """List pools with their members, and when their owner reported last."""
    older_than = args.older_than
    age = None if older_than is None else datetime.timedelta(seconds=older_than)
    pools, now = list(ledger.pools.list(older_than=age)), ledger.now()
    return [
        (
            pool.name,
            str(pool.inventories),
            base.listed(sorted(pool.members)),
            base.ago(pool.reported_at, now),
        )
        for pool in pools
    ]


@base.command(
    _POOL,
    base.argument("--with", "HOST", "with it", dest="hosts", action="append", required=True),
    base.argument("--aggregate", "AGGREGATE", "the aggregate to share through; else of its name"),
)
def share_pool(ledger: Ledger, args: Namespace) -> str:
    """Let hosts use what a pool has."""
    return str(ledger.pools.share(args.pool, hosts=args.hosts, aggregate=args.aggregate))


@base.command(_POOL, base.repeated("--with", "HOST", "from it", dest="hosts", default=None))
def unshare_pool(ledger: Ledger, args: Namespace) -> str:
    """Disconnect a pool from hosts, or from all hosts; allocations from it stay."""
    return str(ledger.pools.unshare(args.pool, hosts=args.hosts))


@base.command(_POOL, base.argument("inventories", "INVENTORIES", "such as DISK_GB=100000"))
def report_pool(ledger: Ledger, args: Namespace) -> str:
    """Report the present inventories of a pool; its owner repeats this regularly."""
    return str(ledger.pools.report(args.pool, args.inventories))
