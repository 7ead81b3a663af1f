"""The commands about statistics, which agents report for their hosts."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from resource_objects.cli import base

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

_NAMES = base.repeated("--name", "STATISTIC", "only this one", default=None)


def _hosts(text: str) -> base.Argument:
    return base.argument("hosts", "HOST", f"name or uuid (default: all hosts{text})", nargs="*")


@base.table(
    _hosts(""),
    _NAMES,
    columns=("host", "statistic", "value", "since", "source"),
    empty="no host reports statistics",
    reads=True,
)
def list_statistics(ledger: Ledger, args: Namespace) -> base.Rows:
    """List the values that agents report of hosts, with since when they are so.

    Values and times are exact for programs.
    """
    from resource_objects.names import natural_order

    by_host = ledger.statistics.read(*args.hosts, names=args.name)
    now = ledger.now()
    for host in sorted(by_host, key=natural_order):
        for statistic in by_host[host].values():
            # JSON has no decimals: programs read one as text
            value = base.Cell(
                statistic, lambda item: item.text, lambda item: item.to_dict()["value"]
            )
            yield host, statistic.name, value, base.ago(statistic.since, now), statistic.source


@base.command(_hosts(", of the statistics that are named"), _NAMES, opens=False)
def forget_statistics(command: base.Command, args: Namespace) -> str:
    """Remove statistics of hosts, or of all hosts.

    An agent that still reports a statistic writes it again.
    """
    if not args.hosts and not args.name:
        raise base.Misused("say of which HOST, or which --name")
    with command.open_ledger() as ledger:
        count = ledger.statistics.forget(*args.hosts, names=args.name)
    return f"{base.many(count, 'value')} forgotten"
