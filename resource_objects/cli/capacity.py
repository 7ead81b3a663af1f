"""The commands for capacity planning: how many requests fit, what is stranded, when a request fits.

Each of them applies to the present ledger, or to a copy of it after some changes.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cliff.columns import FormattableColumn

from resource_objects.cli import request_arguments as arguments
from resource_objects.cli.base import (
    Dicts,
    Figure,
    Lister,
    Misused,
    Refused,
    SearchCutShort,
    ShowOne,
    Table,
    misused,
)
from resource_objects.cli.schedule import read_gangs
from resource_objects.cli.what_if import add_changes, read_changes, scenario_of

if TYPE_CHECKING:
    from resource_objects.requests import Gang
    from resource_objects.search.capacity import Capacity
    from resource_objects.search.how_many import HowMany as Fits

#: The name in the row of the totals.
EVERYWHERE = "(all)"


class HowMany(Lister):
    """Print how many times a request, or a mix of requests, fits at the same time.

    Prints a certain minimum and maximum; if both are equal, the number is exact. In the total, the
    inventories of pools are counted once; the number of a host includes all of them. Nothing is
    allocated. --placements lists each part of each placement; all of them can be claimed. If the
    budget was exhausted before anything was known, exits with status 3.
    """

    columns = ("where", "at least", "at most")
    columns_with = {"--placements": ("#", "member", "allocation", "resource provider")}
    nothing = "none fits"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        arguments.add_request(parser)
        _add_mix(parser, "how many times all members fit")
        add = parser.add_argument
        add("--hosts", action="store_true", help="a row for each host, too")
        add("--placements", action="store_true", help="list who would take what instead")
        arguments.add_bounds(parser)
        add_changes(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Count."""
        with misused():
            requests = _requests(parsed_args)
            options = arguments.parse_bounds(parsed_args)
            changes = read_changes(parsed_args)
            if parsed_args.hosts and parsed_args.placements:
                raise Misused("--placements: not together with --hosts")
        with self.open_ledger() as ledger:
            scenario = scenario_of(self, ledger, changes)
        with misused():
            fits = scenario.snapshot.how_many(requests, **options)
        if fits.cut_short:
            self.app.stderr.write("cut short: more than the minimum may fit\n")
            if not fits.at_least:
                raise SearchCutShort("the budget ran out before one was placed", ())
        if parsed_args.placements:
            return self.columns_with["--placements"], list(_placements(fits))
        rows = [(EVERYWHERE, fits.at_least, fits.at_most)]
        if parsed_args.hosts:
            rows += [
                (host, bounds.at_least, bounds.at_most) for host, bounds in fits.by_host.items()
            ]
        return self.columns, rows


class Report(Lister):
    """Print capacity, usage and free amounts, and the free amounts that a mix of requests cannot
    use.

    With a request or --mix, also the stranded amounts (free on hosts that have no capacity for any
    request of the class) and the fragments (FGD). With --by host or the name of a level (rack), a
    row for each.
    """

    columns = (
        *("where", "class", "capacity", "used", "free", "disabled", "overcommit", "largest"),
        *("stranded", "fragmented"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        arguments.add_request(parser)
        _add_mix(parser, "usual requests; counts are their weights")
        parser.add_argument(
            "--by", metavar="WHAT", default="class", help="class (default), host, or a level"
        )
        parser.add_argument(
            "--budget", metavar="STEPS", type=int, help="the maximum number of steps of each search"
        )
        add_changes(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Report."""
        with misused():
            requests = _requests(parsed_args, may_be_none=True)
            changes = read_changes(parsed_args)
        with self.open_ledger() as ledger:
            levels: Mapping[str, Sequence[str]] = {}
            if parsed_args.by not in ("class", "host"):
                from resource_objects.scheduler.gangs import levels_of

                levels = levels_of(ledger)
                if parsed_args.by not in levels:
                    expected = ", ".join(["class", "host", *levels])
                    raise Misused(f"--by: got {parsed_args.by!r}, expected one of {expected}")
                levels = {parsed_args.by: levels[parsed_args.by]}
            options = {} if parsed_args.budget is None else {"budget": parsed_args.budget}
            scenario = scenario_of(self, ledger, changes)
        with misused():
            report = scenario.snapshot.report(requests, levels=levels, **options)
        for name, count in report.whole.fits.items():
            self.app.stderr.write(f"fits: {count} of {name}\n")
        capacities: Mapping[str, Capacity] = {EVERYWHERE: report.whole}
        if parsed_args.by != "class":
            capacities = report.hosts if parsed_args.by == "host" else report.levels[parsed_args.by]
        for name, capacity in capacities.items():
            for figures in capacity.classes.values():
                if figures.largest < figures.largest_at_most:
                    largest = f"{figures.largest} to {figures.largest_at_most}"
                    expected = f"cut short: {name}: largest {figures.resource_class} {largest}"
                    self.app.stderr.write(f"{expected}\n")
        return self.columns, [
            row for name, capacity in capacities.items() for row in _rows(name, capacity)
        ]


class When(ShowOne):
    """Print the time at which a request would fit, if claims end when they expire and no others
    begin.

    The time is an estimate: nothing is reserved. If the request would never fit, prints the reasons
    of each host (exit status 1); if the budget was exhausted before that was known, exits with
    status 3.
    """

    columns = ("at", "host", "allocation", "because")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        arguments.add_request(parser)
        arguments.add_bounds(parser)
        add_changes(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Look for it."""
        with misused():
            request = arguments.parse_request(parsed_args).request
            options = arguments.parse_bounds(parsed_args)
            changes = read_changes(parsed_args)
        with self.open_ledger() as ledger:
            snapshot = scenario_of(self, ledger, changes).snapshot
            with misused():
                start = ledger.earliest_start(request, snapshot=snapshot, **options)
        if start.cut_short:
            raise SearchCutShort(str(start), ())
        if not start or start.candidate is None:
            raise Refused(f"{request} does not fit by the end of claims", start.why)
        at = "now" if start.at is None else _moment(start.at)
        because = [{"consumer": end.consumer, "ends": _moment(end.at)} for end in start.because]
        return self.columns, (at, start.candidate.host, str(start.candidate), Dicts(because))


def _moment(at: datetime.datetime) -> str:
    return at.isoformat(timespec="seconds")


def _placements(fits: Fits) -> Iterator[Sequence[Any]]:
    """Yield a row for each provider of each placement."""
    placements = (
        (name, candidate) for name, candidates in fits.of_member.items() for candidate in candidates
    )
    for number, (member, candidate) in enumerate(placements, 1):
        for provider, amounts in candidate.by_provider().items():
            yield number, member, str(amounts), provider


def _add_mix(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument(
        "--mix",
        metavar="FILE",
        help=f"members with counts, in YAML, instead of a request: {text}; - is standard input",
    )


def _requests(parsed_args: argparse.Namespace, *, may_be_none: bool = False) -> Any:
    """Return the mix of a file, or the request.

    :raises Misused: for both, or neither where there has to be one
    """
    if parsed_args.mix is not None:
        arguments.refuse_words(parsed_args, "--mix")
        mixes: list[Gang] = read_gangs(parsed_args.mix)
        if len(mixes) != 1:
            raise Misused("--mix: one mix, without alternatives")
        return mixes[0]
    if (
        may_be_none
        and parsed_args.amounts is None
        and not parsed_args.groups
        and parsed_args.query is None
    ):
        return None
    return arguments.parse_request(parsed_args).request


def _rows(name: str, capacity: Capacity) -> Iterator[tuple[Any, ...]]:
    for figures in capacity.classes.values():
        lost = figures.fragmentation
        yield (
            name,
            figures.resource_class,
            *(figures.capacity, figures.used, figures.free, figures.disabled),
            *(figures.overcommit, figures.largest),
            *(Figure(figures.stranded), Hundredths(lost)),
        )


class Hundredths(FormattableColumn[Any]):
    """A part of a whole: a number from 0 to 1 for programs, in hundredths for people."""

    is_figure = True  #: as a :class:`~resource_objects.cli.base.Figure` is

    def human_readable(self) -> str:
        """Return it in hundredths; what is not all, or not nothing, is not told as that."""
        if self._value is None:
            return ""
        hundredths = round(100 * self._value)
        if hundredths in (0, 100) and self._value not in (0, 1):
            hundredths = 1 if hundredths == 0 else 99
        return f"{hundredths} %"

    def machine_readable(self) -> float | None:
        """Return the number."""
        return None if self._value is None else float(self._value)
