"""The commands about statistics, which agents report for their hosts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cliff.columns import FormattableColumn

from resource_objects.cli.base import Ago, Command, Lister, Misused, Table, many

if TYPE_CHECKING:
    from resource_objects.providers.statistics import Statistic


def _add_which(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("hosts", metavar="HOST", nargs="*", help=f"name or uuid ({text})")
    parser.add_argument("--name", metavar="STATISTIC", action="append", help="only this one")


class ListStatistics(Lister):
    """List the values that agents report of hosts, with since when they are so.

    Values and times are exact for programs.
    """

    columns = ("host", "statistic", "value", "since", "source")
    nothing = "no host reports statistics"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_which(parser, "default: all hosts")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read them."""
        from resource_objects.names import natural_order

        with self.open_ledger() as ledger:
            by_host = ledger.statistics.read(*parsed_args.hosts, names=parsed_args.name)
            now = ledger.now()
        return self.columns, [
            (host, statistic.name, Exact(statistic), Ago((statistic.since, now)), statistic.source)
            for host, statistics in sorted(by_host.items(), key=lambda item: natural_order(item[0]))
            for statistic in statistics.values()
        ]


class Exact(FormattableColumn[Any]):
    """The value of a statistic: text for people, for programs what JSON has without a float."""

    def human_readable(self) -> str:
        """Return the value as text."""
        return self._statistic.text

    def machine_readable(self) -> Any:
        """Return the value; a decimal is text."""
        return self._statistic.to_dict()["value"]

    @property
    def _statistic(self) -> Statistic:
        statistic: Statistic = self._value
        return statistic


class ForgetStatistics(Command):
    """Remove statistics of hosts, or of all hosts.

    An agent that still reports a statistic writes it again.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_which(parser, "default: all hosts, of the statistics that are named")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Forget them."""
        if not parsed_args.hosts and not parsed_args.name:
            raise Misused("say of which HOST, or which --name")
        with self.open_ledger() as ledger:
            count = ledger.statistics.forget(*parsed_args.hosts, names=parsed_args.name)
        self.say(f"{many(count, 'value')} forgotten")
