"""The commands about use over time: the use between two days, and its retention."""

from __future__ import annotations

import argparse
import datetime
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions
from resource_objects.cli.base import (
    Figure,
    Lister,
    Maybe,
    ShowOne,
    Table,
    age_text,
    duration,
    misused,
)

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger
    from resource_objects.providers.use_over_time import UseReport

WHEN = (
    "a day such as 2026-11-01 (its beginning here) or a month, such as 2026-11, a moment such as "
    "2026-11-01T08:00 or 2026-11-01T08:00Z, a time ago, such as 8h or 30d, or today, yesterday, now"
)
_MONTH = re.compile(r"(\d{4})-(\d{2})\Z", re.ASCII)
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
            return now - duration(text)
        if month is not None:
            return _begin_of(datetime.date(int(month[1]), int(month[2]), 1))
        return datetime.datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, argparse.ArgumentTypeError) as error:
        raise exceptions.InvalidInput("field", label, text, WHEN) from error


def _begin_of(day: datetime.date) -> datetime.datetime:
    return datetime.datetime(day.year, day.month, day.day).astimezone()


class ShowUsageBetween(Lister):
    """Show the use of resources between two days, including released allocations.

    The figures are amounts times seconds: four GPUs for an hour are 14400. Present allocations
    count until now. The use is known for the retention time of the change feed: usage record --keep
    400d.
    """

    columns = ("consumer", "user", "project", "resource_class", "seconds", "hours")
    nothing = "nothing was used"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("since", metavar="SINCE", help=WHEN)
        add("until", metavar="UNTIL", nargs="?", help="the same; not included (default: now)")
        add(
            "--by",
            metavar="WORDS",
            default="user",
            help="the properties of the sums, with commas: consumer, user, project, class (user)",
        )
        add("--hours", action="store_true", help="in hours, such as GPU hours")
        for name in ("consumer", "user", "project"):
            add(f"--{name}", metavar="NAME", help=f"only of this {name}")
        add("--class", metavar="CLASS", dest="resource_class", help="only of this resource class")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask for the sums."""
        from resource_objects.ledger.queries import summed_by

        with misused():
            by = summed_by([word for word in parsed_args.by.split(",") if word])
        with self.open_ledger() as ledger:
            report = _report(ledger, parsed_args, [item.value for item in by])
        self._tell_what_is_missing(report)
        unit = "hours" if parsed_args.hours else "seconds"
        shown = Hours if parsed_args.hours else Seconds
        return (*(item.value for item in by), "resource_class", unit), [
            (*map(Maybe, item.group(by)), item.resource_class, shown(item.microseconds))
            for item in report
        ]

    def _tell_what_is_missing(self, report: UseReport) -> None:
        """Print on the standard error output which part of the requested time is not known."""
        if not report.is_complete:
            since = _local(report.complete_since)
            self.app.stderr.write(f"resource-objects: only use since {since} is known\n")


def _report(ledger: Ledger, parsed_args: argparse.Namespace, by: Sequence[str]) -> UseReport:
    now = ledger.now()
    until = parsed_args.until
    return ledger.use_over_time.between(
        moment_of("since", parsed_args.since, now),
        None if until is None else moment_of("until", until, now),
        by,
        consumer=parsed_args.consumer,
        user=parsed_args.user,
        project=parsed_args.project,
        resource_class=parsed_args.resource_class,
    )


def _local(when: datetime.datetime) -> str:
    return f"{when.astimezone():%Y-%m-%d %H:%M}"


class Seconds(Figure):
    """Microseconds, as seconds."""

    def human_readable(self) -> str:
        """Return whole seconds."""
        return f"{self._value / 1_000_000:.0f}"

    def machine_readable(self) -> int | float:
        """Return the seconds, exact where they are whole."""
        seconds, microseconds = divmod(self._value, 1_000_000)
        return float(self._value / 1_000_000) if microseconds else int(seconds)


class Hours(Figure):
    """Microseconds, as hours."""

    def human_readable(self) -> str:
        """Return the hours with two places."""
        return f"{self._value / 3_600_000_000:.2f}"

    def machine_readable(self) -> float:
        """Return the hours."""
        return float(self._value / 3_600_000_000)


class RetainUsage(ShowOne):
    """Set for how long use over time is known: the retention time of the change feed."""

    columns = ("kept_for",)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--keep", metavar="TIME", type=duration, required=True, help="a time such as 400d"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        """Set the retention time, and print it."""
        with self.open_ledger() as ledger:
            ledger.feed.set_retention(parsed_args.keep)
        return self.columns, (age_text(parsed_args.keep),)
