"""The commands about use over time: the use between two days, and its retention."""

from __future__ import annotations

import argparse
import datetime
import re
from argparse import Namespace
from typing import TYPE_CHECKING

from resource_objects import exceptions
from resource_objects.cli import base

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

WHEN = (
    "a day such as 2026-11-01 (its beginning here) or a month, such as 2026-11, a moment such as "
    "2026-11-01T08:00 or 2026-11-01T08:00Z, a time ago, such as 8h or 30d, or today, yesterday, now"
)
_MONTH = re.compile(r"(\d{4})-(\d{2})\Z", re.ASCII)
_OWNERS = ("consumer", "user", "project")
_AGO = re.compile(r"\d+[dhm]", re.ASCII)


def moment_of(label: str, text: str, now: datetime.datetime) -> datetime.datetime:
    """Return the time of a text. Days begin by the time zone of this machine.

    >>> now = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)
    >>> print(moment_of("since", "2d", now), moment_of("since", "2026-11-01T08:00Z", now))
    2026-11-20 12:00:00+00:00 2026-11-01 08:00:00+00:00

    :param now: the time of the ledger
    :raises InvalidInput: for another text
    """
    if text == "now":
        return now
    today = now.astimezone().date()
    days = {"today": today, "yesterday": today - datetime.timedelta(days=1)}
    if text in days:
        return _begin_of(days[text])
    month = _MONTH.match(text)
    try:
        if _AGO.match(text):
            return now - base.duration(text)
        if month is not None:
            return _begin_of(datetime.date(int(month[1]), int(month[2]), 1))
        return datetime.datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, argparse.ArgumentTypeError) as error:
        raise exceptions.InvalidInput("field", label, text, WHEN) from error


def _begin_of(day: datetime.date) -> datetime.datetime:
    return datetime.datetime(day.year, day.month, day.day).astimezone()


@base.table(
    base.argument("since", "SINCE", WHEN),
    base.argument("until", "UNTIL", "the same; not included (default: now)", nargs="?"),
    base.argument(
        "--by",
        "WORDS",
        "the properties of the sums, with commas: consumer, user, project, class (user)",
        default="user",
    ),
    base.flag("--hours", "in hours, such as GPU hours"),
    *(base.argument(f"--{name}", "NAME", f"only of this {name}") for name in _OWNERS),
    base.argument("--class", "CLASS", "only of this resource class", dest="resource_class"),
    columns=("consumer", "user", "project", "resource_class", "seconds", "hours"),
    empty="nothing was used",
    reads=True,
    opens=False,
)
def show_usage_between(command: base.Command, args: Namespace) -> base.Answer:
    """Show the use of resources between two days, including released allocations.

    The figures are amounts times seconds: four GPUs for an hour are 14400. Present allocations
    count until now. The use is known for the retention time of the change feed: usage record --keep
    400d.
    """
    from resource_objects.ledger.queries import summed_by

    with base.misused():
        by = summed_by([word for word in args.by.split(",") if word])
    with command.open_ledger() as ledger:
        now = ledger.now()
        report = ledger.use_over_time.between(
            moment_of("since", args.since, now),
            None if args.until is None else moment_of("until", args.until, now),
            [item.value for item in by],
            resource_class=args.resource_class,
            **{name: getattr(args, name) for name in _OWNERS},
        )
    if not report.is_complete:
        since = f"{report.complete_since.astimezone():%Y-%m-%d %H:%M}"
        base.note(f"resource-objects: only use since {since} is known")
    unit, shown = ("hours", _hours) if args.hours else ("seconds", _seconds)
    return base.Answer(
        [
            (*map(base.optional, item.group(by)), item.resource_class, shown(item.microseconds))
            for item in report
        ],
        (*(item.value for item in by), "resource_class", unit),
    )


def _seconds(microseconds: int) -> base.Cell:
    """Return microseconds as seconds: whole ones for people, for programs the exact number."""
    seconds, remainder = divmod(microseconds, 1_000_000)
    exact = microseconds / 1_000_000 if remainder else seconds
    return base.Cell(exact, lambda _: f"{microseconds / 1_000_000:.0f}", is_figure=True)


def _hours(microseconds: int) -> base.Cell:
    """Return microseconds as hours, for people with two places."""
    return base.Cell(microseconds / 3_600_000_000, lambda hours: f"{hours:.2f}", is_figure=True)


@base.record(
    base.argument("--keep", "TIME", "a time such as 400d", type=base.duration, required=True),
    columns=("kept_for",),
)
def retain_usage(ledger: Ledger, args: Namespace) -> dict[str, str]:
    """Set for how long use over time is known: the retention time of the change feed."""
    ledger.feed.set_retention(args.keep)
    return {"kept_for": base.age_text(args.keep)}
