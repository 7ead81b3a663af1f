"""The commands for capacity planning: how many requests fit, what is stranded, when a request fits.

Each of them applies to the present ledger, or to a copy of it after some changes.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    misused,
)
from resource_objects.cli.schedule import read_gangs
from resource_objects.cli.what_if import add_changes, read_changes, tried

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

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        arguments.add_request(parser)
        _add_mix(parser, "how many times all members fit")
        add = parser.add_argument
        add("--hosts", action="store_true", help="a row for each host, too")
        add("--placements", action="store_true", help="list who would take what instead")
        arguments.add_bounds(parser)
        add_changes(parser)
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Count."""
        with misused():
            asked = _asked(parsed_args)
            options = arguments.parse_bounds(parsed_args)
            changes = read_changes(parsed_args)
            if parsed_args.hosts and parsed_args.placements:
                raise Misused("--placements: not together with --hosts")
        with self.open_ledger() as ledger:
            scenario = tried(self, ledger, changes)
        with misused():
            found = scenario.snapshot.how_many(asked, **options)
        if found.cut_short:
            self.app.stderr.write("cut short: more than the minimum may fit\n")
            if not found.at_least:
                raise SearchCutShort("the budget ran out before one was placed", ())
        if parsed_args.placements:
            return self.columns_with["--placements"], list(_placements(found))
        rows = [(EVERYWHERE, found.at_least, found.at_most)]
        if parsed_args.hosts:
            rows += [(host, one.at_least, one.at_most) for host, one in found.by_host.items()]
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

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        arguments.add_request(parser)
        _add_mix(parser, "usual requests; counts are their weights")
        parser.add_argument(
            "--by", metavar="WHAT", default="class", help="class (default), host, or a level"
        )
        parser.add_argument(
            "--budget", metavar="STEPS", type=int, help="the maximum number of steps of each search"
        )
        add_changes(parser)
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Report."""
        said = parsed_args
        with misused():
            asked = _asked(said, may_be_none=True)
            changes = read_changes(said)
        with self.open_ledger() as ledger:
            levels: Mapping[str, Sequence[str]] = {}
            if said.by not in ("class", "host"):
                from resource_objects.scheduler.gangs import levels_of

                levels = levels_of(ledger)
                if said.by not in levels:
                    told = ", ".join(["class", "host", *levels])
                    raise Misused(f"--by: got {said.by!r}, expected one of {told}")
                levels = {said.by: levels[said.by]}
            options = {} if said.budget is None else {"budget": said.budget}
            scenario = tried(self, ledger, changes)
        with misused():
            report = scenario.snapshot.report(asked, levels=levels, **options)
        for name, count in report.whole.fits.items():
            self.app.stderr.write(f"fits: {count} of {name}\n")
        every: Mapping[str, Capacity] = {EVERYWHERE: report.whole}
        if said.by != "class":
            every = report.hosts if said.by == "host" else report.levels[said.by]
        for name, one in every.items():
            for figures in one.classes.values():
                if figures.largest < figures.largest_at_most:
                    largest = f"{figures.largest} to {figures.largest_at_most}"
                    told = f"cut short: {name}: largest {figures.resource_class} {largest}"
                    self.app.stderr.write(f"{told}\n")
        return self.columns, [row for name, one in every.items() for row in _rows(name, one)]


class When(ShowOne):
    """Print the time at which a request would fit, if claims end when they expire and no others
    begin.

    The time is an estimate: nothing is reserved. If the request would never fit, prints the reasons
    of each host (exit status 1); if the budget was exhausted before that was known, exits with
    status 3.
    """

    columns = ("at", "host", "allocation", "because")

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        arguments.add_request(parser)
        arguments.add_bounds(parser)
        add_changes(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Look for it."""
        with misused():
            request = arguments.parse_request(parsed_args).request
            options = arguments.parse_bounds(parsed_args)
            changes = read_changes(parsed_args)
        with self.open_ledger() as ledger:
            snapshot = tried(self, ledger, changes).snapshot
            with misused():
                found = ledger.earliest_start(request, snapshot=snapshot, **options)
        if found.cut_short:
            raise SearchCutShort(str(found), ())
        if not found or found.candidate is None:
            raise Refused(f"{request} does not fit by the end of claims", found.why)
        at = "now" if found.at is None else _moment(found.at)
        because = [{"consumer": one.consumer, "ends": _moment(one.at)} for one in found.because]
        return self.columns, (at, found.candidate.host, str(found.candidate), Dicts(because))


def _moment(at: datetime.datetime) -> str:
    return at.isoformat(timespec="seconds")


def _placements(found: Fits) -> Iterator[Sequence[Any]]:
    """Yield a row for each provider of each placement."""
    every = ((name, one) for name, some in found.of_member.items() for one in some)
    for number, (member, one) in enumerate(every, 1):
        for provider, amounts in one.by_provider().items():
            yield number, member, str(amounts), provider


def _add_mix(parser: argparse.ArgumentParser, told: str) -> None:
    parser.add_argument(
        "--mix",
        metavar="FILE",
        help=f"members with counts, in YAML, instead of a request: {told}; - is standard input",
    )


def _asked(said: argparse.Namespace, *, may_be_none: bool = False) -> Any:
    """Return the mix of a file, or the request.

    :raises Misused: for both, or neither where there has to be one
    """
    if said.mix is not None:
        arguments.refuse_words(said, "--mix")
        mixes: list[Gang] = read_gangs(said.mix)
        if len(mixes) != 1:
            raise Misused("--mix: one mix, without alternatives")
        return mixes[0]
    if may_be_none and said.amounts is None and not said.groups and said.query is None:
        return None
    return arguments.parse_request(said).request


def _rows(where: str, one: Capacity) -> Iterator[tuple[Any, ...]]:
    for figures in one.classes.values():
        lost = figures.fragmentation
        yield (
            where,
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
