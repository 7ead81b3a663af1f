"""The commands for daily use: the usage of each host on a line, and your own consumers."""

from __future__ import annotations

import datetime
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from resource_objects.cli import base

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger
    from resource_objects.search.host_usage import HostHolder, HostUsage


#: The options that select the consumers of a user.
USER = base.exclusive(
    base.argument("--user", "NAME", "only what consumers of this user hold"),
    base.flag("--mine", "only what your own consumers hold"),
)


def user_of(args: Namespace) -> str | None:
    """Return the user that the options name, None for none.

    :raises Misused: for the logged-in user if it has no name
    """
    return _own_name() if args.mine else args.user


def _own_name() -> str:
    name = base.login()
    if name is None:
        raise base.Misused("your user has no name; say --user NAME")
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


@base.table(
    base.argument("hosts", "HOST", "only these, by name (default: all hosts)", nargs="*"),
    USER,
    columns=("host", "is_disabled", "reported", "classes", "holders"),
    brief=True,
    reads=True,
)
def show_host_usage(ledger: Ledger, args: Namespace) -> base.Answer:
    """Show the usage and consumers of each machine on a line.

    Each line has the used amount and the total of every class, the free whole and partial devices
    of partitioned classes, and the amount of each consumer. Machines are in natural order: lab-2
    before lab-10. A machine whose agent's last report is more than two minutes old has the time
    since then. On a terminal, or with --max-width, a line that is too wide is cut; in a pipe it is
    complete. With -f or -c the output is data, with exact names.
    """
    user = user_of(args)
    usages = ledger.snapshot().host_usage(*args.hosts, consumers=consumers_of(ledger, user))
    reported, now = _reported(ledger, [usage.host for usage in usages]), ledger.now()
    empty = "the ledger has no hosts" if user is None else f"user {user} holds nothing"
    if args.is_brief:
        from resource_objects.cli.host_lines import host_lines

        late = {
            host: f"reported {base.age_text(now - at)} ago"
            for host, at in reported.items()
            if now - at >= _LATE
        }
        lines = host_lines(usages, base.line_width(args.max_width), late)
        return base.Answer(text="\n".join(lines or [empty]))
    rows = [
        (
            usage.host,
            usage.is_disabled,
            base.ago(reported.get(usage.host), now),
            base.records(item.to_dict() for item in usage.classes),
            base.records(item.to_dict() for item in usage.holders),
        )
        for usage in usages
    ]
    return base.Answer(rows, empty=empty)


@base.table(
    base.argument("--user", "NAME", "the user (default: the login name)"),
    columns=("consumer", "host", "holds", "since", "expires"),
    reads=True,
)
def list_own_consumers(ledger: Ledger, args: Namespace) -> base.Answer:
    """Show your own consumers, or those of a user: their machines, amounts and ages.

    These are the consumers with that name as --user. A consumer with allocations of pools only has
    a line without a machine.
    """
    from resource_objects.names import natural_order

    user = _own_name() if args.user is None else args.user
    consumers = sorted(ledger.consumers(user=user), key=lambda item: natural_order(item.name))
    hosts = ledger.snapshot().host_usage(consumers=[consumer.name for consumer in consumers])
    now = ledger.now()
    by_consumer: dict[str, list[Any]] = {consumer.name: [] for consumer in consumers}
    for host in hosts:
        for holder in host.holders:
            by_consumer[holder.consumer].append((host.host, _holding(host, holder)))
    rows = [
        (
            consumer.name,
            host_name,
            amounts,
            base.age(consumer.created_at, now),
            base.expiry(consumer.expires_at, now),
        )
        for consumer in consumers
        for host_name, amounts in by_consumer[consumer.name] or [("", str(consumer.claim.amounts))]
    ]
    return base.Answer(rows, empty=f"user {user} holds nothing")


def _holding(host: HostUsage, holder: HostHolder) -> base.Cell:
    """Return the amounts of a consumer on a host: abbreviated for people, devices first; by exact
    class for programs.
    """
    from resource_objects.cli import host_lines

    text = host_lines.amounts_text(holder.shown, host_lines.words_of_host(host))
    return base.Cell(dict(holder.amounts), lambda _: text)
