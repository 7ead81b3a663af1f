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


def add_whose(parser: argparse.ArgumentParser, said: str) -> None:
    """Add the options about a consumer's project, user, type and server group."""
    for name in ("project", "user", "consumer-type", "server-group"):
        told = said.format(name.replace("-", " "))
        parser.add_argument(f"--{name}", metavar="NAME", help=told)


def whose(parsed_args: argparse.Namespace) -> dict[str, Any]:
    """Return the values of those options."""
    found = {name: getattr(parsed_args, name) for name in ("project", "user", "consumer_type")}
    return {**found, "group": parsed_args.server_group}


class ListConsumers(Lister):
    """List consumers, all of them or those that match every option."""

    columns = ("consumer", "project", "user", "type", "state", "since", "expires", "holds")
    nothing = "no consumer matches"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        add_whose(parser, "of this {}")
        add = parser.add_argument
        add("--provider", metavar="PROVIDER", help="that hold something there")
        add("--tree", metavar="PROVIDER", help="that hold something in its tree")
        add("--older-than", metavar="SECONDS", type=float, help="since longer than this")
        add("--state", choices=("held", "confirmed"), help="consumers with a claim in this state")
        add("--expired", action="store_true", help="consumers with an expired claim")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read them, page by page."""
        age = parsed_args.older_than
        with self.open_ledger() as ledger:
            found = list(
                ledger.consumers(
                    **whose(parsed_args),
                    provider=parsed_args.provider,
                    tree=parsed_args.tree,
                    older_than=None if age is None else datetime.timedelta(seconds=age),
                    state=parsed_args.state,
                )
            )
            now = ledger.now()
            if parsed_args.expired:
                over = {claim.consumer for claim in ledger.expired()}
                found = [one for one in found if one.name in over]
        return self.columns, [
            (
                one.name,
                Maybe(one.project),
                Maybe(one.user),
                Maybe(one.consumer_type),
                one.state,
                Age((one.created_at, now)),
                Expiry((one.expires_at, now)),
                str(one.claim.amounts),
            )
            for one in found
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

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="CONSUMER", help="of the consumer")
        add_environment(parser)
        return parser

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
                found = read_environment(ledger, parsed_args.name, host=parsed_args.host)
            return (), Text([export_lines(found)])
        with self.open_ledger() as ledger:
            held = ledger.get_claim(parsed_args.name)
            assigned = ledger.assigned_amounts(parsed_args.name)
        shown = {
            "consumer": held.consumer,
            "uuid": held.consumer_uuid,
            "claim": held.id,
            "state": held.state,
            "generation": held.generation,
            "project": Maybe(held.project),
            "user": Maybe(held.user),
            "type": Maybe(held.consumer_type),
            "group": Maybe(held.group),
            "since": held.created_at.isoformat(timespec="seconds"),
            "expires": Maybe(held.expires_at and held.expires_at.isoformat(timespec="seconds")),
            "total": str(held.amounts),
            "allocations": Dicts([row for each in held.allocations for row in _records(each)]),
            "assigned": Dicts(
                [
                    {"host": host, "resource_class": name, "amount": str(amount)}
                    for host, amounts in assigned.items()
                    for name, amount in located_amounts(amounts).items()
                ]
            ),
        }
        return tuple(shown), tuple(shown.values())


def _records(held: Allocation) -> Iterator[dict[str, Any]]:
    """Yield the allocations from a provider as plain data, with units if there are any."""
    for record in held.amount.to_records(held.resource_class):
        row = {
            "provider": held.provider,
            "resource_class": record.resource_class,
            "amount": record.amount,
        }
        yield row | ({"units": list(held.units)} if held.units else {})


COLUMNS = ("consumer", "provider", "resource_class", "amount", "units")


def allocation_rows(consumer: str, allocations: Iterable[Allocation]) -> list[tuple[Any, ...]]:
    """Return a row for each allocation of a consumer."""
    return [
        (consumer, each.provider, record.resource_class, record.amount, Many(list(each.units)))
        for each in allocations
        for record in each.amount.to_records(each.resource_class)
    ]


class SetAllocations(Lister):
    """Replace all allocations of a consumer, which is created if necessary."""

    columns = COLUMNS
    nothing = "it holds nothing"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
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
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Replace what it holds."""
        from resource_objects.resources import Amounts

        wanted: dict[str, Amounts] = {}
        for given in parsed_args.allocation:
            name, _, amounts = given.removeprefix("rp=").partition(",")
            if not amounts:
                raise exceptions.InvalidInput(
                    "text", "allocation", given, "rp=PROVIDER,CLASS=AMOUNT,..."
                )
            more = Amounts.from_value(amounts)
            wanted[name] = wanted[name] + more if name in wanted else more
        overrides = parsed_args.override_disabled
        with self.open_ledger(parsed_args.actor) as ledger:
            if parsed_args.release_expired:
                for name in wanted:
                    ledger.release_expired(tree=name, excluding=parsed_args.consumer)
            try:
                claim = ledger.replace(
                    parsed_args.consumer,
                    wanted,
                    generation=parsed_args.generation,
                    ignore_maintenance=overrides,
                    **whose(parsed_args),
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

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("consumer", metavar="CONSUMER", help="of the consumer")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read its claim."""
        with self.open_ledger() as ledger:
            held = ledger.get_claim(parsed_args.consumer)
        rows = allocation_rows(held.consumer, held.allocations)
        is_drawn = parsed_args.formatter == "table" and "group" not in parsed_args.columns
        if held.group is None and is_drawn:  # lines are short; programs get all columns always
            return COLUMNS, rows
        return self.columns, [(*row, Maybe(held.group)) for row in rows]


class ListAllocations(Lister):
    """List who holds what at a provider, or in its whole tree."""

    columns = COLUMNS
    nothing = "no consumer has allocations there"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="PROVIDER", help="name or uuid")
        parser.add_argument("--tree", action="store_true", help="in its whole tree")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read the consumers, page by page."""
        name = parsed_args.name
        with self.open_ledger() as ledger:
            here = {one.uuid for one in ledger.providers(tree=name)}
            if not parsed_args.tree:
                here &= {ledger.provider(name).uuid or ""}
            where = {"tree" if parsed_args.tree else "provider": name}
            found = [
                (one.name, [each for each in one.allocations if each.provider_uuid in here])
                for one in ledger.consumers(**where)
            ]
        return COLUMNS, [row for consumer, held in found for row in allocation_rows(consumer, held)]


class MoveConsumer(Lister):
    """Move a consumer: release its allocations and allocate the same elsewhere, in one write."""

    columns = COLUMNS
    nothing = "it holds nothing"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
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
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
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
            found = ledger.snapshot(parsed_args.to).candidates(request)
            if not found:
                why = found.explain()
                option = "" if release_expired else "--release-expired"
                expired = expired_lines(ledger, why.reasons, option)
                raise Refused(refused, [*str(why).splitlines(), *expired])
            try:
                claim = ledger.move(
                    consumer,
                    found,
                    source_consumer=parsed_args.leaving,
                    ignore_maintenance=overrides,
                )
            except exceptions.NoCandidates as refusal:
                raise Refused(refused, str(refusal.explanation).splitlines()) from refusal
        return COLUMNS, allocation_rows(claim.consumer, claim.allocations)


class SwapConsumers(Command):
    """Let two consumers exchange all that they hold."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("first", metavar="CONSUMER")
        parser.add_argument("second", metavar="CONSUMER")
        return parser

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

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "tree", metavar="TREE", nargs="?", help="a provider; its whole tree is shown"
        )
        parser.add_argument("--tree", dest="draw", action="store_true", help="draw it, with bars")
        add_user(parser)
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
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
        told = [f"{name} {amount}" for name, amount in use.holders]
        if use.disabled is not None:
            told.append(f"disabled: {use.disabled.reason}" if use.disabled.reason else "disabled")
        return ", ".join(told)


def in_natural_order(usage: Usage) -> Usage:
    """Return the same usage with the trees in natural order."""
    roots = sorted(usage.providers, key=lambda root: natural_order(root.name))
    place = {one.name: number for number, root in enumerate(roots) for one in root.walk()}
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
    kept = [use for use in mine if use.holders]
    places = {use.provider for use in kept}
    roots = [r for r in usage.providers if any(one.name in places for one in r.walk())]
    return dataclasses.replace(usage, providers=tuple(roots), uses=tuple(kept))


class ShowProviderUsage(Lister):
    """Show the usage of one provider, a line for each class."""

    columns = ("resource_class", "used", "capacity", "free")
    nothing = "it has no inventories"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        return add_name(super().get_parser(prog_name))

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
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

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
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
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Ask for the sums."""
        with self.open_ledger() as ledger, Bar("usage total", is_told=False):
            found = ledger.totals(
                parsed_args.by,
                **whose(parsed_args),
                provider=parsed_args.provider,
                tree=parsed_args.tree,
            )
            rows = [(one.group, one.resource_class, one.used, one.consumers) for one in found]
            bounds = _bounds(ledger, parsed_args)
        columns = self.columns[:4]
        if bounds is None:
            return columns, [(Maybe(group), *figures) for group, *figures in rows]
        if not any(whose(parsed_args).values()):  # unused inventories are listed too
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
    kept = ledger.snapshot(root)
    if here is None and by == "resource_class":
        return {(None, name): (kept.free(name), kept.capacity(name)) for name in kept.classes}
    provider, fleet = None if here is None else ledger.provider(here).name, kept.fleet
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
    what: str = "allocate from disabled providers only",
) -> None:
    """Add the options to allocate from disabled providers, with the actor."""
    parser.add_argument("--override-disabled", action="store_true", help=what)
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
    **whose: Any,
) -> Claim | Candidates:
    """Place a request for a consumer; return its claim, or the search that found nobody.

    :param whose: the consumer's project, user, consumer_type and group

    :raises CapacityException: if others were faster every time, or nobody can give it although
        expired claims may be released
    """
    found = search_at(ledger, request, at)
    if not found:
        return found
    return ledger.claim(
        consumer,
        found,
        **whose,
    )


def request_again(ledger: Ledger, consumer: str) -> Request:
    """Return a request for what a consumer holds: the one its claim was made for, if that is it.

    :raises NotFound: if it holds nothing
    :raises Refused: if it holds units that a request cannot say
    """
    from resource_objects.requests import Request
    from resource_objects.resources import Amounts

    claim, assigned = ledger.get_claim(consumer), ledger.assigned_amounts(consumer)
    told = _units_taken(ledger, assigned)
    lost = [
        f"{one.provider}: {one.resource_class} {unit}"
        for one in claim.allocations
        for unit in one.units
        if unit not in told
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
