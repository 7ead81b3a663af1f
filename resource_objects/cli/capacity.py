"""The commands for capacity planning: how many requests fit, what is stranded, when a request fits.

Each of them applies to the present ledger, or to a copy of it after some changes.
"""

from __future__ import annotations

import datetime
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from resource_objects.cli import base
from resource_objects.cli.request_arguments import (
    BOUNDS,
    REQUEST,
    parse_bounds,
    parse_request,
    refuse_words,
)
from resource_objects.cli.schedule import read_gangs
from resource_objects.cli.what_if import CHANGES, read_changes, scenario_of

if TYPE_CHECKING:
    from resource_objects.requests import Gang
    from resource_objects.search.capacity import Capacity
    from resource_objects.search.how_many import HowMany as Fits

#: The name in the row of the totals.
EVERYWHERE = "(all)"


def _mix(text: str) -> base.Argument:
    help = f"members with counts, in YAML, instead of a request: {text}; - is standard input"
    return base.argument("--mix", "FILE", help)


_PLACEMENTS = ("#", "member", "allocation", "resource provider")


@base.table(
    *REQUEST,
    _mix("how many times all members fit"),
    base.flag("--hosts", "a row for each host, too"),
    base.flag("--placements", "list who would take what instead"),
    BOUNDS,
    CHANGES,
    columns=("where", "at least", "at most"),
    columns_with={"--placements": _PLACEMENTS},
    empty="none fits",
    reads=True,
    opens=False,
)
def how_many(command: base.Command, args: Namespace) -> base.Answer:
    """Print how many times a request, or a mix of requests, fits at the same time.

    Prints a certain minimum and maximum; if both are equal, the number is exact. In the total, the
    inventories of pools are counted once; the number of a host includes all of them. Nothing is
    allocated. --placements lists each part of each placement; all of them can be claimed. If the
    budget was exhausted before anything was known, exits with status 3.
    """
    with base.misused():
        requests = _requests(args)
        options = parse_bounds(args)
        changes = read_changes(args)
        if args.hosts and args.placements:
            raise base.Misused("--placements: not together with --hosts")
    with command.open_ledger() as ledger:
        scenario = scenario_of(ledger, changes)
    with base.misused():
        fits = scenario.snapshot.how_many(requests, **options)
    if fits.cut_short:
        base.note("cut short: more than the minimum may fit")
        if not fits.at_least:
            raise base.SearchCutShort("the budget ran out before one was placed", ())
    if args.placements:
        return base.Answer(_placements(fits), _PLACEMENTS)
    by_host = fits.by_host.items() if args.hosts else ()
    return base.Answer(
        [(where, count.at_least, count.at_most) for where, count in [(EVERYWHERE, fits), *by_host]]
    )


@base.table(
    *REQUEST,
    _mix("usual requests; counts are their weights"),
    base.argument("--by", "WHAT", "class (default), host, or a level", default="class"),
    base.argument("--budget", "STEPS", "the maximum number of steps of each search", type=int),
    CHANGES,
    columns=(
        *("where", "class", "capacity", "used", "free", "disabled", "overcommit", "largest"),
        *("stranded", "fragmented"),
    ),
    reads=True,
    opens=False,
)
def report(command: base.Command, args: Namespace) -> base.Rows:
    """Print capacity, usage and free amounts, and the free amounts that a mix of requests cannot
    use.

    With a request or --mix, also the stranded amounts (free on hosts that have no capacity for any
    request of the class) and the fragments (FGD). With --by host or the name of a level (rack), a
    row for each.
    """
    with base.misused():
        requests = _requests(args, may_be_none=True)
        changes = read_changes(args)
    with command.open_ledger() as ledger:
        levels: Mapping[str, Sequence[str]] = {}
        if args.by not in ("class", "host"):
            from resource_objects.scheduler.gangs import levels_of

            levels = levels_of(ledger)
            if args.by not in levels:
                expected = ", ".join(["class", "host", *levels])
                raise base.Misused(f"--by: got {args.by!r}, expected one of {expected}")
            levels = {args.by: levels[args.by]}
        options = {} if args.budget is None else {"budget": args.budget}
        scenario = scenario_of(ledger, changes)
    with base.misused():
        report = scenario.snapshot.report(requests, levels=levels, **options)
    for name, count in report.whole.fits.items():
        base.note(f"fits: {count} of {name}")
    capacities: Mapping[str, Capacity] = {EVERYWHERE: report.whole}
    if args.by != "class":
        capacities = report.hosts if args.by == "host" else report.levels[args.by]
    for name, capacity in capacities.items():
        for figures in capacity.classes.values():
            if figures.largest < figures.largest_at_most:
                largest = f"{figures.largest} to {figures.largest_at_most}"
                base.note(f"cut short: {name}: largest {figures.resource_class} {largest}")
    return [row for name, capacity in capacities.items() for row in _rows(name, capacity)]


@base.record(
    *REQUEST,
    BOUNDS,
    CHANGES,
    columns=("at", "host", "allocation", "because"),
    reads=True,
    opens=False,
)
def when(command: base.Command, args: Namespace) -> dict[str, Any]:
    """Print the time at which a request would fit, if claims end when they expire and no others
    begin.

    The time is an estimate: nothing is reserved. If the request would never fit, prints the reasons
    of each host (exit status 1); if the budget was exhausted before that was known, exits with
    status 3.
    """
    with base.misused():
        request = parse_request(args).request
        options = parse_bounds(args)
        changes = read_changes(args)
    with command.open_ledger() as ledger:
        snapshot = scenario_of(ledger, changes).snapshot
        with base.misused():
            start = ledger.earliest_start(request, snapshot=snapshot, **options)
    if start.cut_short:
        raise base.SearchCutShort(str(start), ())
    if not start or start.candidate is None:
        raise base.Refused(f"{request} does not fit by the end of claims", start.why)
    return {
        "at": "now" if start.at is None else _moment(start.at),
        "host": start.candidate.host,
        "allocation": str(start.candidate),
        "because": base.records(
            {"consumer": end.consumer, "ends": _moment(end.at)} for end in start.because
        ),
    }


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


def _requests(args: Namespace, *, may_be_none: bool = False) -> Any:
    """Return the mix of a file, or the request.

    :raises Misused: for both, or neither where there has to be one
    """
    if args.mix is not None:
        refuse_words(args, "--mix")
        mixes: list[Gang] = read_gangs(args.mix)
        if len(mixes) != 1:
            raise base.Misused("--mix: one mix, without alternatives")
        return mixes[0]
    if may_be_none and args.amounts is None and not args.groups and args.query is None:
        return None
    return parse_request(args).request


def _rows(name: str, capacity: Capacity) -> Iterator[tuple[Any, ...]]:
    for figures in capacity.classes.values():
        yield (
            name,
            figures.resource_class,
            *(figures.capacity, figures.used, figures.free, figures.disabled),
            *(figures.overcommit, figures.largest),
            *(base.figure(figures.stranded), _hundredths(figures.fragmentation)),
        )


def _hundredths(share: Fraction | None) -> base.Cell:
    """Return a share: a number from 0 to 1 for programs, in hundredths for people.

    Only zero is printed as 0 %, and only one as 100 %.
    """

    def text(share: Fraction | None) -> str:
        if share is None:
            return ""
        hundredths = round(100 * share)
        if hundredths in (0, 100) and share not in (0, 1):
            hundredths = 1 if hundredths == 0 else 99
        return f"{hundredths} %"

    return base.Cell(
        share, text, lambda share: None if share is None else float(share), is_figure=True
    )
