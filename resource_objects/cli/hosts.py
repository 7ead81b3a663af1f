"""The commands that people look at: who has what, a line for each host, and what is one's own."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from cliff.columns import FormattableColumn

from resource_objects.cli.base import (
    Age,
    Ago,
    Dicts,
    Expiry,
    Lister,
    Misused,
    Text,
    age_text,
    login,
)

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger


def add_user(parser: argparse.ArgumentParser) -> None:
    """Add the options that say whose consumers are meant."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--user", metavar="NAME", help="only what consumers of this user hold")
    which.add_argument("--mine", action="store_true", help="only what your own consumers hold")


def user_of(parsed_args: argparse.Namespace) -> str | None:
    """Return the user that these options name, None for none.

    :raises Misused: if it is who is logged in, and has no name
    """
    return _own_name() if parsed_args.mine else parsed_args.user


def _own_name() -> str:
    name = login()
    if name is None:
        raise Misused("your user has no name; say --user NAME")
    return name


def consumers_of(ledger: Ledger, user: str | None) -> list[str] | None:
    """Return the consumers of a user, by name; None for no user."""
    return None if user is None else [one.name for one in ledger.consumers(user=user)]


#: Agents report once a minute, where they do; a host that was not heard of for longer is told.
_LATE = datetime.timedelta(minutes=2)


def _reported(ledger: Ledger, hosts: Sequence[str]) -> dict[str, datetime.datetime]:
    """Return when the agents of hosts reported last, of those that ever did. Cost: a list."""
    found = ledger.providers(name=hosts, reported_before=_EVER) if hosts else ()
    return {one.name: one.reported_at for one in found if one.reported_at is not None}


_EVER = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)


class ShowHostUsage(Lister):
    """Show who has what, a line for each machine.

    Each line tells of every class how much is used of how much, of devices that can be had in parts
    also how many are whole and what is left of the others, and who holds how much. Machines are in
    natural order: lab-2 stands before lab-10. One whose agent reported, but not for two minutes, is
    told with how long ago that was. On a terminal, or with --max-width, a line that is
    too wide is cut; in a pipe it never is. With -f or -c it is data, with the exact names.
    """

    in_brief = True
    columns = ("host", "is_disabled", "reported", "classes", "holders")

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "hosts", metavar="HOST", nargs="*", help="only these, by name (default: all hosts)"
        )
        add_user(parser)
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Take a picture of the ledger, and tell it."""
        with self.open_ledger() as ledger:
            user = user_of(parsed_args)
            found = ledger.snapshot().host_usage(
                *parsed_args.hosts, consumers=consumers_of(ledger, user)
            )
            reported, now = _reported(ledger, [one.host for one in found]), ledger.now()
        self.nothing = "no hosts are kept" if user is None else f"user {user} holds nothing"
        if self.is_brief:
            from resource_objects.cli.host_lines import host_lines

            late = {
                host: f"reported {age_text(now - at)} ago"
                for host, at in reported.items()
                if now - at >= _LATE
            }
            lines = host_lines(found, self.width(parsed_args.max_width), late)
            return (), Text(lines or [self.nothing])
        return self.columns, [
            (
                one.host,
                one.is_disabled,
                Ago((reported.get(one.host), now)),
                Dicts([each.to_dict() for each in one.classes]),
                Dicts([each.to_dict() for each in one.holders]),
            )
            for one in found
        ]


class Mine(Lister):
    """Show what you hold, or a user does: which consumer, on which machine, since when.

    These are the consumers that were claimed with that name as --user. A consumer that holds
    nothing of machines, but of pools, has a line without a machine.
    """

    columns = ("consumer", "host", "holds", "since", "expires")

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--user", metavar="NAME", help="whose (default: the login name)")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read the consumers of the user, and where they hold what."""
        from resource_objects.names import natural_order

        user = _own_name() if parsed_args.user is None else parsed_args.user
        with self.open_ledger() as ledger:
            mine = sorted(ledger.consumers(user=user), key=lambda one: natural_order(one.name))
            hosts = ledger.snapshot().host_usage(consumers=[one.name for one in mine])
            now = ledger.now()
        self.nothing = f"user {user} holds nothing"
        on_hosts: dict[str, list[Any]] = {one.name: [] for one in mine}
        for host in hosts:
            for holder in host.holders:
                on_hosts[holder.consumer].append((host.host, Holding((host, holder))))
        return self.columns, [
            (one.name, host, held, Age((one.created_at, now)), Expiry((one.expires_at, now)))
            for one in mine
            for host, held in on_hosts[one.name] or [("", str(one.claim.amounts))]
        ]


class Holding(FormattableColumn[Any]):
    """What a consumer holds of a host: in words for people, by exact class for programs."""

    def human_readable(self) -> str:
        """Return the amounts, devices first."""
        from resource_objects.cli import host_lines

        host, holder = self._value
        return host_lines.amounts_text(holder.shown, host_lines.words_of_host(host))

    def machine_readable(self) -> dict[str, int]:
        """Return the amounts by class."""
        return dict(self._value[1].amounts)
