"""The commands for daily use: the usage of each host on a line, and your own consumers."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cliff.columns import FormattableColumn

from resource_objects.cli.base import (
    Age,
    Ago,
    Dicts,
    Expiry,
    Lister,
    Misused,
    Table,
    Text,
    age_text,
    login,
)

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger


def add_user(parser: argparse.ArgumentParser) -> None:
    """Add the options that say whose consumers are meant."""
    selection = parser.add_mutually_exclusive_group()
    selection.add_argument("--user", metavar="NAME", help="only what consumers of this user hold")
    selection.add_argument("--mine", action="store_true", help="only what your own consumers hold")


def user_of(parsed_args: argparse.Namespace) -> str | None:
    """Return the user that the options name, None for none.

    :raises Misused: for the logged-in user if it has no name
    """
    return _own_name() if parsed_args.mine else parsed_args.user


def _own_name() -> str:
    name = login()
    if name is None:
        raise Misused("your user has no name; say --user NAME")
    return name


def consumers_of(ledger: Ledger, user: str | None) -> list[str] | None:
    """Return the consumers of a user, by name; None for no user."""
    return None if user is None else [consumer.name for consumer in ledger.consumers(user=user)]


#: Agents report once a minute; the time of an older report is printed.
_LATE = datetime.timedelta(minutes=2)


def _reported(ledger: Ledger, hosts: Sequence[str]) -> dict[str, datetime.datetime]:
    """Return the time of the last report by host, of hosts with reports. Cost: a list."""
    providers = ledger.providers(name=hosts, reported_before=_EVER) if hosts else ()
    return {
        provider.name: provider.reported_at
        for provider in providers
        if provider.reported_at is not None
    }


_EVER = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)


class ShowHostUsage(Lister):
    """Show the usage and consumers of each machine on a line.

    Each line has the used amount and the total of every class, the free whole and partial devices
    of partitioned classes, and the amount of each consumer. Machines are in natural order: lab-2
    before lab-10. A machine whose agent's last report is more than two minutes old has the time
    since then. On a terminal, or with --max-width, a line that is too wide is cut; in a pipe it is
    complete. With -f or -c the output is data, with exact names.
    """

    in_brief = True
    columns = ("host", "is_disabled", "reported", "classes", "holders")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "hosts", metavar="HOST", nargs="*", help="only these, by name (default: all hosts)"
        )
        add_user(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read a snapshot of the ledger and print it."""
        with self.open_ledger() as ledger:
            user = user_of(parsed_args)
            usages = ledger.snapshot().host_usage(
                *parsed_args.hosts, consumers=consumers_of(ledger, user)
            )
            reported, now = _reported(ledger, [usage.host for usage in usages]), ledger.now()
        self.nothing = "the ledger has no hosts" if user is None else f"user {user} holds nothing"
        if self.is_brief:
            from resource_objects.cli.host_lines import host_lines

            late = {
                host: f"reported {age_text(now - at)} ago"
                for host, at in reported.items()
                if now - at >= _LATE
            }
            lines = host_lines(usages, self.width(parsed_args.max_width), late)
            return (), Text(lines or [self.nothing])
        return self.columns, [
            (
                usage.host,
                usage.is_disabled,
                Ago((reported.get(usage.host), now)),
                Dicts([item.to_dict() for item in usage.classes]),
                Dicts([item.to_dict() for item in usage.holders]),
            )
            for usage in usages
        ]


class Mine(Lister):
    """Show your own consumers, or those of a user: their machines, amounts and ages.

    These are the consumers with that name as --user. A consumer with allocations of pools only has
    a line without a machine.
    """

    columns = ("consumer", "host", "holds", "since", "expires")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--user", metavar="NAME", help="the user (default: the login name)")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read the consumers of the user, and where they hold what."""
        from resource_objects.names import natural_order

        user = _own_name() if parsed_args.user is None else parsed_args.user
        with self.open_ledger() as ledger:
            mine = sorted(
                ledger.consumers(user=user), key=lambda consumer: natural_order(consumer.name)
            )
            hosts = ledger.snapshot().host_usage(consumers=[consumer.name for consumer in mine])
            now = ledger.now()
        self.nothing = f"user {user} holds nothing"
        on_hosts: dict[str, list[Any]] = {consumer.name: [] for consumer in mine}
        for host in hosts:
            for holder in host.holders:
                on_hosts[holder.consumer].append((host.host, Holding((host, holder))))
        return self.columns, [
            (
                consumer.name,
                host,
                amounts,
                Age((consumer.created_at, now)),
                Expiry((consumer.expires_at, now)),
            )
            for consumer in mine
            for host, amounts in on_hosts[consumer.name] or [("", str(consumer.claim.amounts))]
        ]


class Holding(FormattableColumn[Any]):
    """The amounts of a consumer on a host: abbreviated for people, by exact class for programs."""

    def human_readable(self) -> str:
        """Return the amounts, devices first."""
        from resource_objects.cli import host_lines

        host, holder = self._value
        return host_lines.amounts_text(holder.shown, host_lines.words_of_host(host))

    def machine_readable(self) -> dict[str, int]:
        """Return the amounts by class."""
        return dict(self._value[1].amounts)
