"""The commands about consumers: their allocations and usage."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cliff.columns import FormattableColumn

from resource_objects import exceptions
from resource_objects.cli.base import (
    Age,
    Command,
    Dicts,
    Drawing,
    Expiry,
    Figure,
    Lister,
    Many,
    Maybe,
    Pairs,
    Refused,
    ShowOne,
    Table,
    Text,
    add_actor,
    add_name,
    expired_lines,
    records_of,
)
from resource_objects.cli.hosts import add_user, consumers_of, user_of
from resource_objects.cli.site import Bar
from resource_objects.names import natural_order, resource_class_order

if TYPE_CHECKING:
    from collections.abc import Mapping

    from resource_objects.ledger import Ledger
    from resource_objects.providers import Allocation, Claim
    from resource_objects.providers.usage import Usage
    from resource_objects.requests import Request
    from resource_objects.resources import Amounts
    from resource_objects.search import Candidates


def add_whose(parser: argparse.ArgumentParser, template: str) -> None:
    """Add the options about a consumer's project, user, type and server group."""
    for name in ("project", "user", "consumer-type", "server-group"):
        text = template.format(name.replace("-", " "))
        parser.add_argument(f"--{name}", metavar="NAME", help=text)


def owner_of(parsed_args: argparse.Namespace) -> dict[str, Any]:
    """Return the values of those options."""
    owner = {name: getattr(parsed_args, name) for name in ("project", "user", "consumer_type")}
    return {**owner, "group": parsed_args.server_group}


class ListConsumers(Lister):
    """List consumers, all of them or those that match every option."""

    columns = ("consumer", "project", "user", "type", "state", "since", "expires", "holds")
    nothing = "no consumer matches"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_whose(parser, "of this {}")
        add = parser.add_argument
        add("--provider", metavar="PROVIDER", help="that hold something there")
        add("--tree", metavar="PROVIDER", help="that hold something in its tree")
        add("--older-than", metavar="SECONDS", type=float, help="since longer than this")
        add("--state", choices=("held", "confirmed"), help="consumers with a claim in this state")
        add("--expired", action="store_true", help="consumers with an expired claim")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read them, page by page."""
        age = parsed_args.older_than
        with self.open_ledger() as ledger:
            consumers = list(
                ledger.consumers(
                    **owner_of(parsed_args),
                    provider=parsed_args.provider,
                    tree=parsed_args.tree,
                    older_than=None if age is None else datetime.timedelta(seconds=age),
                    state=parsed_args.state,
                )
            )
            now = ledger.now()
            if parsed_args.expired:
                over = {claim.consumer for claim in ledger.expired()}
                consumers = [consumer for consumer in consumers if consumer.name in over]
        return self.columns, [
            (
                consumer.name,
                Maybe(consumer.project),
                Maybe(consumer.user),
                Maybe(consumer.consumer_type),
                consumer.state,
                Age((consumer.created_at, now)),
                Expiry((consumer.expires_at, now)),
                str(consumer.claim.amounts),
            )
            for consumer in consumers
        ]


class ShowConsumer(ShowOne):
    """Show a consumer and its allocations."""

    columns = (
        "consumer",
        "uuid",
        "claim",
        "state",
        "generation",
        "project",
        "user",
        "type",
        "group",
        "since",
        "expires",
        "total",
        "allocations",
        "assigned",
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", metavar="CONSUMER", help="of the consumer")
        add_environment(parser)

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]
    ) -> int:
        """Print it, or the lines that a shell reads."""
        if isinstance(data, Text):
            self.say("\n".join(data))
            return 0
        return super().produce_output(parsed_args, column_names, data)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Read its claim, and where that is."""
        from resource_objects.providers.composite import located_amounts

        if parsed_args.env:
            from resource_objects.cli.environment import export_lines, read_environment

            with self.open_ledger() as ledger:
                variables = read_environment(ledger, parsed_args.name, host=parsed_args.host)
            return (), Text([export_lines(variables)])
        with self.open_ledger() as ledger:
            claim = ledger.get_claim(parsed_args.name)
            assigned = ledger.assigned_amounts(parsed_args.name)
        shown = {
            "consumer": claim.consumer,
            "uuid": claim.consumer_uuid,
            "claim": claim.id,
            "state": claim.state,
            "generation": claim.generation,
            "project": Maybe(claim.project),
            "user": Maybe(claim.user),
            "type": Maybe(claim.consumer_type),
            "group": Maybe(claim.group),
            "since": claim.created_at.isoformat(timespec="seconds"),
            "expires": Maybe(claim.expires_at and claim.expires_at.isoformat(timespec="seconds")),
            "total": str(claim.amounts),
            "allocations": Dicts(
                [row for allocation in claim.allocations for row in _records(allocation)]
            ),
            "assigned": Dicts(
                [
                    {"host": host, "resource_class": name, "amount": str(amount)}
                    for host, amounts in assigned.items()
                    for name, amount in located_amounts(amounts).items()
                ]
            ),
        }
        return tuple(shown), tuple(shown.values())


def _records(allocation: Allocation) -> Iterator[dict[str, Any]]:
    """Yield the allocations from a provider as plain data, with units if there are any."""
    for record in allocation.amount.to_records(allocation.resource_class):
        row = {
            "provider": allocation.provider,
            "resource_class": record.resource_class,
            "amount": record.amount,
        }
        yield row | ({"units": list(allocation.units)} if allocation.units else {})


COLUMNS = ("consumer", "provider", "resource_class", "amount", "units")


def allocation_rows(consumer: str, allocations: Iterable[Allocation]) -> list[tuple[Any, ...]]:
    """Return a row for each allocation of a consumer."""
    return [
        (
            consumer,
            allocation.provider,
            record.resource_class,
            record.amount,
            Many(list(allocation.units)),
        )
        for allocation in allocations
        for record in allocation.amount.to_records(allocation.resource_class)
    ]


class SetAllocations(Lister):
    """Replace all allocations of a consumer, which is created if necessary."""

    columns = COLUMNS
    nothing = "it holds nothing"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("consumer", metavar="CONSUMER", help="any name")
        add(
            "--allocation",
            metavar="PROVIDER,AMOUNTS",
            action="append",
            required=True,
            help="such as rp=host0,VCPU=2,MEMORY_MB=4096 (rp= may be left out); may be repeated",
        )
        add("--generation", metavar="N", type=int, help="refuse if it was changed since this one")
        add_release_expired(parser)
        add_override(parser, "allocate from disabled providers too")
        add_whose(parser, "its {}")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Replace what it holds."""
        from resource_objects.resources import Amounts

        amounts_by_provider: dict[str, Amounts] = {}
        for text in parsed_args.allocation:
            name, _, amounts = text.removeprefix("rp=").partition(",")
            if not amounts:
                raise exceptions.InvalidInput(
                    "text", "allocation", text, "rp=PROVIDER,CLASS=AMOUNT,..."
                )
            more = Amounts.from_value(amounts)
            amounts_by_provider[name] = (
                amounts_by_provider[name] + more if name in amounts_by_provider else more
            )
        overrides = parsed_args.override_disabled
        with self.open_ledger(parsed_args.actor) as ledger:
            if parsed_args.release_expired:
                for name in amounts_by_provider:
                    ledger.release_expired(tree=name, excluding=parsed_args.consumer)
            try:
                claim = ledger.replace(
                    parsed_args.consumer,
                    amounts_by_provider,
                    generation=parsed_args.generation,
                    ignore_maintenance=overrides,
                    **owner_of(parsed_args),
                )
            except exceptions.CapacityException as refusal:
                option = "" if parsed_args.release_expired else "--release-expired"
                raise Refused(
                    str(refusal), expired_lines(ledger, refusal.reasons, option)
                ) from refusal
        return COLUMNS, allocation_rows(claim.consumer, claim.allocations)


class ShowAllocations(Lister):
    """Show the allocations of a consumer, a line for each."""

    columns = (*COLUMNS, "group")
    nothing = "it holds nothing"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("consumer", metavar="CONSUMER", help="of the consumer")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read its claim."""
        with self.open_ledger() as ledger:
            claim = ledger.get_claim(parsed_args.consumer)
        rows = allocation_rows(claim.consumer, claim.allocations)
        is_drawn = parsed_args.formatter == "table" and "group" not in parsed_args.columns
        if claim.group is None and is_drawn:  # lines are short; programs get all columns always
            return COLUMNS, rows
        return self.columns, [(*row, Maybe(claim.group)) for row in rows]


class ListAllocations(Lister):
    """List who holds what at a provider, or in its whole tree."""

    columns = COLUMNS
    nothing = "no consumer has allocations there"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", metavar="PROVIDER", help="name or uuid")
        parser.add_argument("--tree", action="store_true", help="in its whole tree")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read the consumers, page by page."""
        name = parsed_args.name
        with self.open_ledger() as ledger:
            here = {one.uuid for one in ledger.providers(tree=name)}
            if not parsed_args.tree:
                here &= {ledger.provider(name).uuid or ""}
            condition = {"tree" if parsed_args.tree else "provider": name}
            allocations_by_consumer = [
                (
                    one.name,
                    [
                        allocation
                        for allocation in one.allocations
                        if allocation.provider_uuid in here
                    ],
                )
                for one in ledger.consumers(**condition)
            ]
        return COLUMNS, [
            row
            for consumer, allocations in allocations_by_consumer
            for row in allocation_rows(consumer, allocations)
        ]


class MoveConsumer(Lister):
    """Move a consumer: release its allocations and allocate the same elsewhere, in one write."""

    columns = COLUMNS
    nothing = "it holds nothing"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("consumer", metavar="CONSUMER")
        add("--to", metavar="PROVIDER", required=True, help="at this one or what is below it")
        add(
            "--leaving",
            metavar="CONSUMER",
            help="the consumer of the old allocations until it is released",
        )
        add_release_expired(parser)
        add_override(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Search a new host and move the consumer."""
        from resource_objects.providers.disabled import TRAIT

        consumer, release_expired = parsed_args.consumer, parsed_args.release_expired
        overrides = parsed_args.override_disabled
        with self.open_ledger(parsed_args.actor) as ledger:
            request = request_again(ledger, consumer)
            if overrides:
                group = request.unnamed
                group = group.replace(required=group.required | {TRAIT})
                request = request.with_unnamed(group)
            refused = f"{parsed_args.to} cannot give {consumer} {request}"
            if release_expired:
                ledger.release_expired(tree=parsed_args.to, excluding=consumer)
            candidates = ledger.snapshot(parsed_args.to).candidates(request)
            if not candidates:
                why = candidates.explain()
                option = "" if release_expired else "--release-expired"
                expired = expired_lines(ledger, why.reasons, option)
                raise Refused(refused, [*str(why).splitlines(), *expired])
            try:
                claim = ledger.move(
                    consumer,
                    candidates,
                    source_consumer=parsed_args.leaving,
                    ignore_maintenance=overrides,
                )
            except exceptions.NoCandidates as refusal:
                raise Refused(refused, str(refusal.explanation).splitlines()) from refusal
        return COLUMNS, allocation_rows(claim.consumer, claim.allocations)


class SwapConsumers(Command):
    """Let two consumers exchange all that they hold."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("first", metavar="CONSUMER")
        parser.add_argument("second", metavar="CONSUMER")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Swap them."""
        with self.open_ledger() as ledger:
            for claim in ledger.swap(parsed_args.first, parsed_args.second):
                self.say(str(claim))


_USAGE = ("provider", "resource_class", "used", "capacity", "free", "holders", "disabled")


class ShowUsage(Lister):
    """Show the usage of each inventory and its consumers; --tree draws it.

    `free` includes the free amount of disabled providers, which are marked.
    """

    columns = _USAGE

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "tree", metavar="TREE", nargs="?", help="a provider; its whole tree is shown"
        )
        parser.add_argument("--tree", dest="draw", action="store_true", help="draw it, with bars")
        add_user(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read the usage."""
        with self.open_ledger() as ledger, Bar("usage", is_told=False):
            usage = in_natural_order(ledger.usage(parsed_args.tree))
            user = user_of(parsed_args)
            consumers = consumers_of(ledger, user)
        self.nothing = "nothing is kept" if user is None else f"user {user} holds nothing"
        if consumers is not None:
            usage = held_by(usage, frozenset(consumers))
        if parsed_args.draw:
            from resource_objects.cli import render

            return (), Drawing.of(render.usage_tree(usage, self.glyphs) or self.nothing)
        # terminals are narrow, so the reason follows the consumers
        is_told = parsed_args.formatter != "table" or "disabled" in parsed_args.columns
        return _USAGE[: None if is_told else -1], [
            (
                use.provider,
                use.resource_class,
                use.used,
                use.capacity,
                use.free,
                Pairs(dict(use.holders)) if is_told else _HoldersOf(use),
                *([Maybe(use.disabled and str(use.disabled))] if is_told else []),
            )
            for use in usage
        ]


class _HoldersOf(FormattableColumn[Any]):
    """The consumers of an inventory, and the reason if its provider is disabled."""

    def human_readable(self) -> str:
        """Return the consumers, and a short mark if it is disabled; `usage -c disabled` shows the
        reason.
        """
        use = self._value
        consumers = [f"{name} {amount}" for name, amount in use.holders]
        if use.disabled is not None:
            consumers.append(
                f"disabled: {use.disabled.reason}" if use.disabled.reason else "disabled"
            )
        return ", ".join(consumers)


def in_natural_order(usage: Usage) -> Usage:
    """Return the same usage with the trees in natural order."""
    roots = sorted(usage.providers, key=lambda root: natural_order(root.name))
    place = {provider.name: number for number, root in enumerate(roots) for provider in root.walk()}
    uses = sorted(usage.uses, key=lambda use: place[use.provider])
    return dataclasses.replace(usage, providers=tuple(roots), uses=tuple(uses))


def held_by(usage: Usage, consumers: frozenset[str]) -> Usage:
    """Return the usage of some consumers only; the figures of inventories stay those of all
    consumers.
    """
    mine = [
        dataclasses.replace(use, holders=tuple(one for one in use.holders if one[0] in consumers))
        for use in usage.uses
    ]
    uses = [use for use in mine if use.holders]
    places = {use.provider for use in uses}
    roots = [r for r in usage.providers if any(one.name in places for one in r.walk())]
    return dataclasses.replace(usage, providers=tuple(roots), uses=tuple(uses))


class ShowProviderUsage(Lister):
    """Show the usage of one provider, a line for each class."""

    columns = ("resource_class", "used", "capacity", "free")
    nothing = "it has no inventories"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_name(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read its inventories."""
        with self.open_ledger() as ledger:
            records = records_of(ledger.provider(parsed_args.name).inventories)
        return self.columns, [
            (record.resource_class, record.used, record.capacity, record.capacity - record.used)
            for record in records
        ]


class ShowTotals(Lister):
    """Show the total usage of each class, by consumer property or by provider.

    By class or provider it also shows the total and the free amount; disabled providers have no
    free amount.
    """

    columns = ("group", "resource_class", "used", "consumers", "free", "total")
    nothing = "nothing is used"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--by",
            metavar="WHAT",
            default="resource_class",
            choices=("resource_class", "provider", "project", "user", "consumer_type", "group"),
            help="the property of the sums, next to the class: provider, project, user, "
            "consumer_type, group (the server group)",
        )
        add_whose(parser, "only of this {}")
        add("--provider", metavar="PROVIDER", help="only there")
        add("--tree", metavar="PROVIDER", help="only in its tree")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask for the sums."""
        with self.open_ledger() as ledger, Bar("usage total", is_told=False):
            totals = ledger.totals(
                parsed_args.by,
                **owner_of(parsed_args),
                provider=parsed_args.provider,
                tree=parsed_args.tree,
            )
            rows = [
                (total.group, total.resource_class, total.used, total.consumers) for total in totals
            ]
            bounds = _bounds(ledger, parsed_args)
        columns = self.columns[:4]
        if bounds is None:
            return columns, [(Maybe(group), *figures) for group, *figures in rows]
        if not any(owner_of(parsed_args).values()):  # unused inventories are listed too
            used = {row[:2] for row in rows}
            rows += [(*key, 0, 0) for key in bounds if key not in used]
        rows.sort(key=lambda row: (natural_order(row[0] or ""), resource_class_order(row[1])))
        return self.columns, [
            (Maybe(row[0]), *row[1:], *map(Figure, bounds.get(row[:2], (None, None))))
            for row in rows
        ]


def _bounds(
    ledger: Ledger, parsed_args: argparse.Namespace
) -> dict[tuple[str | None, str], tuple[int, int]] | None:
    """Return the free and total amounts by group and class; None for groups of consumers."""
    here, tree, by = parsed_args.provider, parsed_args.tree, parsed_args.by
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


def add_environment(parser: argparse.ArgumentParser) -> None:
    """Add the options that print the environment of a job in place of a list."""
    add = parser.add_argument
    add("--env", action="store_true", help="print its environment, as lines for a shell to eval")
    add("--host", metavar="HOST", help="on this one, if it holds something of several")


def add_release_expired(parser: argparse.ArgumentParser) -> None:
    """Add the option to release expired claims of others."""
    parser.add_argument(
        "--release-expired",
        action="store_true",
        help="first release the expired claims of the hosts in question",
    )


def add_override(
    parser: argparse.ArgumentParser,
    text: str = "allocate from disabled providers only",
) -> None:
    """Add the options to allocate from disabled providers, with the actor."""
    parser.add_argument("--override-disabled", action="store_true", help=text)
    add_actor(parser)


def search_at(ledger: Ledger, request: Request, at: str | None = None) -> Candidates:
    """Return the candidates of a request; with ``at`` only at that provider and its descendants.

    :raises NotFound: if the ledger does not have the provider
    """
    return ledger.snapshot(at).candidates(request)


def claim_at(
    ledger: Ledger,
    consumer: str,
    request: Request,
    at: str | None = None,
    **owner_of: Any,
) -> Claim | Candidates:
    """Claim a request for a consumer; return the claim, or the search without candidates.

    :param owner: the consumer's project, user, consumer_type and group
    :raises CapacityException: if concurrent claims were faster each time, or there is no capacity
        even after the release of expired claims
    """
    candidates = search_at(ledger, request, at)
    if not candidates:
        return candidates
    return ledger.claim(
        consumer,
        candidates,
        **owner_of,
    )


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
        raise Refused(f"{consumer} holds units that a search cannot ask for again", lost)
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
