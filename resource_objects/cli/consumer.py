"""The commands about consumers: their allocations and usage."""

from __future__ import annotations

import dataclasses
import datetime
from argparse import Namespace
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.cli import base
from resource_objects.cli.hosts import USER, consumers_of, user_of
from resource_objects.names import natural_order, resource_class_order

if TYPE_CHECKING:
    from collections.abc import Mapping

    from resource_objects.ledger import Ledger
    from resource_objects.providers import Allocation, Claim
    from resource_objects.providers.usage import InventoryUsage, Usage
    from resource_objects.requests import Request
    from resource_objects.resources import Amounts


COLUMNS = ("consumer", "provider", "resource_class", "amount", "units")
#: The options that print the environment of a job in place of a list.
ENVIRONMENT = (
    base.flag("--env", "print its environment, as lines for a shell to eval"),
    base.argument("--host", "HOST", "on this one, if it holds something of several"),
)
#: The option to release expired claims of others.
RELEASE_EXPIRED = base.flag(
    "--release-expired", "first release the expired claims of the hosts in question"
)
_CONSUMER = base.argument("consumer", "CONSUMER", "of the consumer")


def override(text: str = "allocate from disabled providers only") -> tuple[base.Argument, ...]:
    """Return the options to allocate from disabled providers, with the actor."""
    return base.flag("--override-disabled", text), base.actor


def owner(template: str) -> tuple[base.Argument, ...]:
    """Return the options about a consumer's project, user, type and server group."""
    names = ("project", "user", "consumer-type", "server-group")
    return tuple(
        base.argument(f"--{name}", "NAME", template.format(name.replace("-", " ")))
        for name in names
    )


def owner_of(args: Namespace) -> dict[str, Any]:
    """Return the values of those options."""
    values = {name: getattr(args, name) for name in ("project", "user", "consumer_type")}
    return {**values, "group": args.server_group}


def environment_text(ledger: Ledger, consumer: str | Claim, host: str | None) -> base.Answer:
    """Return the environment of a job as lines for a shell."""
    from resource_objects.cli.environment import export_lines, read_environment

    return base.Answer(text=export_lines(read_environment(ledger, consumer, host=host)))


@base.table(
    *owner("of this {}"),
    base.argument("--provider", "PROVIDER", "that hold something there"),
    base.argument("--tree", "PROVIDER", "that hold something in its tree"),
    base.argument("--older-than", "SECONDS", "since longer than this", type=float),
    base.argument(
        "--state", None, "consumers with a claim in this state", choices=("held", "confirmed")
    ),
    base.flag("--expired", "consumers with an expired claim"),
    columns=("consumer", "project", "user", "type", "state", "since", "expires", "holds"),
    empty="no consumer matches",
    reads=True,
)
def list_consumers(ledger: Ledger, args: Namespace) -> base.Rows:
    """List consumers, all of them or those that match every option."""
    age_limit = args.older_than
    consumers = list(
        ledger.consumers(
            **owner_of(args),
            provider=args.provider,
            tree=args.tree,
            older_than=None if age_limit is None else datetime.timedelta(seconds=age_limit),
            state=args.state,
        )
    )
    now = ledger.now()
    expired = {claim.consumer for claim in ledger.expired()} if args.expired else None
    return [
        (
            consumer.name,
            base.optional(consumer.project),
            base.optional(consumer.user),
            base.optional(consumer.consumer_type),
            consumer.state,
            base.age(consumer.created_at, now),
            base.expiry(consumer.expires_at, now),
            str(consumer.claim.amounts),
        )
        for consumer in consumers
        if expired is None or consumer.name in expired
    ]


@base.record(
    base.argument("name", "CONSUMER", "of the consumer"),
    *ENVIRONMENT,
    columns=(
        *("consumer", "uuid", "claim", "state", "generation", "project", "user", "type"),
        *("group", "since", "expires", "total", "allocations", "assigned"),
    ),
    reads=True,
)
def show_consumer(ledger: Ledger, args: Namespace) -> dict[str, Any] | base.Answer:
    """Show a consumer and its allocations."""
    from resource_objects.providers.composite import located_amounts

    if args.env:
        return environment_text(ledger, args.name, args.host)
    claim = ledger.get_claim(args.name)
    assigned = ledger.assigned_amounts(args.name)
    return {
        "consumer": claim.consumer,
        "uuid": claim.consumer_uuid,
        "claim": claim.id,
        "state": claim.state,
        "generation": claim.generation,
        "project": base.optional(claim.project),
        "user": base.optional(claim.user),
        "type": base.optional(claim.consumer_type),
        "group": base.optional(claim.group),
        "since": claim.created_at.isoformat(timespec="seconds"),
        "expires": base.optional(
            claim.expires_at and claim.expires_at.isoformat(timespec="seconds")
        ),
        "total": str(claim.amounts),
        "allocations": base.records(
            row for allocation in claim.allocations for row in _records(allocation)
        ),
        "assigned": base.records(
            {"host": host, "resource_class": name, "amount": str(amount)}
            for host, amounts in assigned.items()
            for name, amount in located_amounts(amounts).items()
        ),
    }


def _records(allocation: Allocation) -> Iterator[dict[str, Any]]:
    """Yield the allocations from a provider as plain data, with units if there are any."""
    for item in allocation.amount.to_records(allocation.resource_class):
        row = {
            "provider": allocation.provider,
            "resource_class": item.resource_class,
            "amount": item.amount,
        }
        yield row | ({"units": list(allocation.units)} if allocation.units else {})


def allocation_rows(claim: Claim, allocations: Iterable[Allocation] | None = None) -> list[Any]:
    """Return a row for each allocation of a claim, or for some of them."""
    return [
        (
            claim.consumer,
            allocation.provider,
            item.resource_class,
            item.amount,
            base.listed(allocation.units),
        )
        for allocation in (claim.allocations if allocations is None else allocations)
        for item in allocation.amount.to_records(allocation.resource_class)
    ]


@base.table(
    base.argument("consumer", "CONSUMER", "any name"),
    base.argument(
        "--allocation",
        "PROVIDER,AMOUNTS",
        "such as rp=host0,VCPU=2,MEMORY_MB=4096 (rp= may be left out); may be repeated",
        action="append",
        required=True,
    ),
    base.GENERATION,
    RELEASE_EXPIRED,
    *override("allocate from disabled providers too"),
    *owner("its {}"),
    columns=COLUMNS,
    empty="it holds nothing",
    opens=False,
)
def set_allocations(command: base.Command, args: Namespace) -> base.Rows:
    """Replace all allocations of a consumer, which is created if necessary."""
    from resource_objects.resources import Amounts

    by_provider: dict[str, Amounts] = {}
    for text in args.allocation:
        name, _, amounts = text.removeprefix("rp=").partition(",")
        if not amounts:
            expected = "rp=PROVIDER,CLASS=AMOUNT,..."
            raise exceptions.InvalidInput("text", "allocation", text, expected)
        by_provider[name] = by_provider.get(name, Amounts()) + Amounts.from_value(amounts)
    with command.open_ledger(args.actor) as ledger:
        if args.release_expired:
            for name in by_provider:
                ledger.release_expired(tree=name, excluding=args.consumer)
        try:
            claim = ledger.replace(
                args.consumer,
                by_provider,
                generation=args.generation,
                ignore_maintenance=args.override_disabled,
                **owner_of(args),
            )
        except exceptions.CapacityException as refusal:
            option = "" if args.release_expired else "--release-expired"
            lines = base.expired_lines(ledger, refusal.reasons, option)
            raise base.Refused(str(refusal), lines) from refusal
    return allocation_rows(claim)


@base.table(_CONSUMER, columns=(*COLUMNS, "group"), empty="it holds nothing", reads=True)
def show_allocations(ledger: Ledger, args: Namespace) -> base.Answer:
    """Show the allocations of a consumer, a line for each."""
    claim = ledger.get_claim(args.consumer)
    rows = allocation_rows(claim)
    is_drawn = args.formatter == "table" and "group" not in args.columns
    if claim.group is None and is_drawn:  # lines are short; programs get all columns always
        return base.Answer(rows, COLUMNS)
    return base.Answer([(*row, base.optional(claim.group)) for row in rows])


@base.table(
    base.PROVIDER,
    base.flag("--tree", "in its whole tree"),
    columns=COLUMNS,
    empty="no consumer has allocations there",
    reads=True,
)
def list_allocations(ledger: Ledger, args: Namespace) -> base.Rows:
    """List who holds what at a provider, or in its whole tree."""
    uuids = {provider.uuid for provider in ledger.providers(tree=args.name)}
    if not args.tree:
        uuids &= {ledger.provider(args.name).uuid or ""}
    condition = {"tree" if args.tree else "provider": args.name}
    return [
        row
        for consumer in ledger.consumers(**condition)
        for row in allocation_rows(
            consumer.claim,
            [item for item in consumer.allocations if item.provider_uuid in uuids],
        )
    ]


@base.table(
    base.argument("consumer", "CONSUMER", None),
    base.argument("--to", "PROVIDER", "at this one or what is below it", required=True),
    base.argument(
        "--leaving", "CONSUMER", "the consumer of the old allocations until it is released"
    ),
    RELEASE_EXPIRED,
    *override(),
    columns=COLUMNS,
    empty="it holds nothing",
)
def move_consumer(ledger: Ledger, args: Namespace) -> base.Rows:
    """Move a consumer: release its allocations and allocate the same elsewhere, in one write."""
    request = request_again(ledger, args.consumer)
    if args.override_disabled:
        request = on_disabled_only(request)
    answer = f"{args.to} cannot give {args.consumer} {request}"
    if args.release_expired:
        ledger.release_expired(tree=args.to, excluding=args.consumer)
    candidates = ledger.snapshot(args.to).candidates(request)
    if not candidates:
        why = candidates.explain()
        option = "" if args.release_expired else "--release-expired"
        expired = base.expired_lines(ledger, why.reasons, option)
        raise base.Refused(answer, [*str(why).splitlines(), *expired])
    try:
        claim = ledger.move(
            args.consumer,
            candidates,
            source_consumer=args.leaving,
            ignore_maintenance=args.override_disabled,
        )
    except exceptions.NoCandidates as refusal:
        raise base.Refused(answer, str(refusal.explanation).splitlines()) from refusal
    return allocation_rows(claim)


def on_disabled_only(request: Request) -> Request:
    """Return a request whose unnamed group is satisfied by disabled providers only."""
    from resource_objects.providers.disabled import TRAIT

    group = request.unnamed
    return request.with_unnamed(group.replace(required=group.required | {TRAIT}))


@base.command(base.argument("first", "CONSUMER", None), base.argument("second", "CONSUMER", None))
def swap_consumers(ledger: Ledger, args: Namespace) -> str:
    """Let two consumers exchange all that they hold."""
    return "\n".join(map(str, ledger.swap(args.first, args.second)))


# --- usage ----------------------------------------------------------------------------------------

_USAGE = ("provider", "resource_class", "used", "capacity", "free", "holders", "disabled")


@base.table(
    base.argument("tree", "TREE", "a provider; its whole tree is shown", nargs="?"),
    base.flag("--tree", "draw it, with bars", dest="draw"),
    USER,
    columns=_USAGE,
    reads=True,
    slow=True,
)
def show_usage(ledger: Ledger, args: Namespace) -> base.Answer:
    """Show the usage of each inventory and its consumers; --tree draws it.

    `free` includes the free amount of disabled providers, which are marked.
    """
    usage = in_natural_order(ledger.usage(args.tree))
    user = user_of(args)
    consumers = consumers_of(ledger, user)
    empty = "nothing is kept" if user is None else f"user {user} holds nothing"
    if consumers is not None:
        usage = usage_of(usage, frozenset(consumers))
    if args.draw:
        from resource_objects.cli import render

        return base.drawing([render.usage_tree(usage, base.glyphs()) or empty])
    # terminals are narrow, so the reason follows the consumers
    is_complete = args.formatter != "table" or "disabled" in args.columns
    return base.Answer(
        [
            (
                use.provider,
                use.resource_class,
                use.used,
                use.capacity,
                use.free,
                base.pairs(dict(use.holders)) if is_complete else _holders(use),
                *([base.optional(use.disabled and str(use.disabled))] if is_complete else []),
            )
            for use in usage
        ],
        _USAGE if is_complete else _USAGE[:-1],
        empty=empty,
    )


def _holders(use: InventoryUsage) -> str:
    """Return the consumers, and a short mark if the provider is disabled."""
    consumers = [f"{name} {amount}" for name, amount in use.holders]
    if use.disabled is not None:
        reason = use.disabled.reason
        consumers.append(f"disabled: {reason}" if reason else "disabled")
    return ", ".join(consumers)


def in_natural_order(usage: Usage) -> Usage:
    """Return a usage with its trees in natural order."""
    roots = sorted(usage.providers, key=lambda root: natural_order(root.name))
    place = {provider.name: number for number, root in enumerate(roots) for provider in root.walk()}
    uses = sorted(usage.uses, key=lambda use: place[use.provider])
    return dataclasses.replace(usage, providers=tuple(roots), uses=tuple(uses))


def usage_of(usage: Usage, consumers: frozenset[str]) -> Usage:
    """Return the usage of some consumers; the figures of inventories are of all consumers."""
    mine = [
        dataclasses.replace(
            use, holders=tuple(item for item in use.holders if item[0] in consumers)
        )
        for use in usage.uses
    ]
    uses = [use for use in mine if use.holders]
    places = {use.provider for use in uses}
    roots = [r for r in usage.providers if any(item.name in places for item in r.walk())]
    return dataclasses.replace(usage, providers=tuple(roots), uses=tuple(uses))


@base.table(
    base.argument(
        "--by",
        "WHAT",
        "the property of the sums, next to the class: provider, project, user, consumer_type, "
        "group (the server group)",
        default="resource_class",
        choices=("resource_class", "provider", "project", "user", "consumer_type", "group"),
    ),
    *owner("only of this {}"),
    base.argument("--provider", "PROVIDER", "only there"),
    base.argument("--tree", "PROVIDER", "only in its tree"),
    columns=("group", "resource_class", "used", "consumers", "free", "total"),
    empty="nothing is used",
    reads=True,
    slow=True,
)
def show_totals(ledger: Ledger, args: Namespace) -> base.Answer:
    """Show the total usage of each class, by consumer property or by provider.

    By class or provider it also shows the total and the free amount; disabled providers have no
    free amount.
    """
    totals = ledger.totals(args.by, **owner_of(args), provider=args.provider, tree=args.tree)
    rows = [(total.group, total.resource_class, total.used, total.consumers) for total in totals]
    bounds = _bounds(ledger, args)
    if bounds is None:
        columns = ("group", "resource_class", "used", "consumers")
        return base.Answer([(base.optional(group), *figures) for group, *figures in rows], columns)
    if not any(owner_of(args).values()):  # unused inventories are listed too
        used = {row[:2] for row in rows}
        rows += [(*key, 0, 0) for key in bounds if key not in used]
    rows.sort(key=lambda row: (natural_order(row[0] or ""), resource_class_order(row[1])))
    return base.Answer(
        [
            (base.optional(row[0]), *row[1:], *map(base.figure, bounds.get(row[:2], (None, None))))
            for row in rows
        ]
    )


def _bounds(
    ledger: Ledger, args: Namespace
) -> dict[tuple[str | None, str], tuple[int, int]] | None:
    """Return the free and total amounts by group and class; None for groups of consumers."""
    here, tree, by = args.provider, args.tree, args.by
    if by not in ("resource_class", "provider"):
        return None
    at = here if tree is None else tree
    root = None if at is None else ledger.usage(at).providers[0].name
    snapshot = ledger.snapshot(root)
    if here is None and by == "resource_class":
        return {
            (None, name): (snapshot.free(name), snapshot.capacity(name))
            for name in snapshot.classes
        }
    provider, fleet = None if here is None else ledger.provider(here).name, snapshot.fleet
    free = {
        (fleet.names[place], name): amount
        for name, rows in fleet.classes.items()
        for place, amount in zip(
            rows.provider.tolist(), fleet.free_of_each(rows).tolist(), strict=True
        )
    }
    return {
        (use.provider if by == "provider" else None, use.resource_class): (
            free.get((use.provider, use.resource_class), 0),
            use.capacity,
        )
        for use in (ledger.usage() if root is None else ledger.usage(root))
        if provider in (None, use.provider)
    }


def request_again(ledger: Ledger, consumer: str) -> Request:
    """Return a request for the allocations of a consumer: that of its claim, if it fits them.

    :raises NotFound: if the consumer has no allocations
    :raises Refused: if it has units that a request cannot specify
    """
    from resource_objects.requests import Request
    from resource_objects.resources import Amounts

    claim, assigned = ledger.get_claim(consumer), ledger.assigned_amounts(consumer)
    units = _units_taken(ledger, assigned)
    lost = [
        f"{allocation.provider}: {allocation.resource_class} {unit}"
        for allocation in claim.allocations
        for unit in allocation.units
        if unit not in units
    ]
    if lost:
        raise base.Refused(f"{consumer} holds units that a search cannot ask for again", lost)
    total = Amounts()
    for amounts in assigned.values():
        total += Amounts({name: amount.unassigned() for name, amount in amounts.by_name()})
    if claim.request is not None and claim.request.resources == total.with_implied_counts():
        return claim.request
    return Request(total)  # it was changed since, or never searched


def _units_taken(ledger: Ledger, assigned: Mapping[str, Amounts]) -> set[str]:
    """Return the units that assigned amounts of hosts take."""
    from resource_objects.providers.composite import located_amounts
    from resource_objects.resources.placed import PlacedInventory

    return {
        unit
        for host, amounts in assigned.items()
        for name, amount in located_amounts(amounts).items()
        if isinstance(inventory := ledger.inventories(host)[name], PlacedInventory)
        for _, records in inventory.to_allocations(-amount)
        for record in records
        for unit in record.units
    }
