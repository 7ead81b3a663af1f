"""The commands about statistics: what agents tell of their hosts beside what these have."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from cliff.columns import FormattableColumn

from resource_objects.cli.base import Ago, Command, Lister, Maybe, Misused, many

if TYPE_CHECKING:
    from resource_objects.providers.statistics import Statistic


def _add_which(parser: argparse.ArgumentParser, which: str) -> None:
    parser.add_argument("hosts", metavar="HOST", nargs="*", help=f"name or uuid ({which})")
    parser.add_argument("--name", metavar="STATISTIC", action="append", help="only this one")


class ListStatistics(Lister):
    """List what agents tell of hosts: the value, its unit, and since when it is so.

    With --declared the statistics that there are, whether a host has a value of them or not. Values
    and times are exact for programs.
    """

    columns = ("host", "statistic", "value", "unit", "since", "source")
    columns_with = {"--declared": ("statistic", "type", "unit", "description")}
    nothing = "no host tells statistics"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        _add_which(parser, "default: all hosts")
        parser.add_argument("--declared", action="store_true", help="what statistics there are")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read them."""
        from resource_objects.names import natural_order

        if parsed_args.declared:
            return self._declared(parsed_args)
        with self.open_ledger() as ledger:
            found = ledger.statistics.read(*parsed_args.hosts, names=parsed_args.name)
            now = ledger.now()
        return self.columns, [
            (host, one.name, Exact(one), Maybe(one.unit), Ago((one.since, now)), one.source)
            for host, some in sorted(found.items(), key=lambda told: natural_order(told[0]))
            for one in some.values()
        ]

    def _declared(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        if parsed_args.hosts:
            raise Misused("--declared: statistics are declared for all hosts; name none")
        self.nothing = "no statistic is declared"
        with self.open_ledger() as ledger:
            found = ledger.statistics.types()
        return self.columns_with["--declared"], [
            (one.name, str(one.type), Maybe(one.unit), Maybe(one.description))
            for one in found
            if parsed_args.name is None or one.name in parsed_args.name
        ]


class Exact(FormattableColumn[Any]):
    """The value of a statistic: text for people, for programs what JSON has without a float."""

    def human_readable(self) -> str:
        """Return the value as text."""
        return self._statistic.text

    def machine_readable(self) -> Any:
        """Return the value; a decimal and a moment are text."""
        return self._statistic.to_dict()["value"]

    @property
    def _statistic(self) -> Statistic:
        found: Statistic = self._value
        return found


class ForgetStatistics(Command):
    """Forget what agents told of hosts, or statistics of all hosts.

    A statistic that is forgotten of all hosts is declared no more. An agent that still tells one
    tells it anew.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        _add_which(parser, "default: all hosts, of the statistics that are named")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Forget them."""
        if not parsed_args.hosts and not parsed_args.name:
            raise Misused("say of which HOST, or which --name")
        with self.open_ledger() as ledger:
            count = ledger.statistics.forget(*parsed_args.hosts, names=parsed_args.name)
        self.say(f"{many(count, 'value')} forgotten")
