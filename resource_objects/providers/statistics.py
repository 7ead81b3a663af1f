"""Statistics: values that agents report of their hosts in addition to inventories.

The uptime of a host, the load of its processors or the number of failed builds is not consumed, so
it is no inventory. A scheduler in another process still needs it, for all hosts at once. A
:class:`Statistic` has a name, a value, a source and the time since when it has this value.

Values are exact: a number is an integer or a decimal of at most six places, and never a float. In
Nova a metric of 29 percent is sent as the float 0.29 and is read as 28.

A scheduler reads hundreds of thousands of values at once, so they are plain values and no versioned
objects: they cross to other processes only as rows, whose version is that of the schema.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, Self, TypeAlias

from resource_objects import exceptions, names
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.arguments import moment
from resource_objects.providers.orders import check_unique
from resource_objects.ratio import decimal_of, millionths_of

#: A value of a statistic. A decimal without places is an integer.
Value: TypeAlias = int | Decimal | bool | str

#: Bound of decimals: their millionths fit 64 bits.
MAX_DECIMAL = 9 * 10**12
#: Bound of the stored text of a value.
MAX_STORED = 512
#: The default source of a statistic.
SOURCE = "agent"

# the rule of OpenTelemetry for names of instruments, with the colon that Prometheus' recorded
# metrics have
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_./:-]{0,254}\Z")
_EXPECTED = (
    f"an integer of at most {MAX_AMOUNT}, a decimal of at most six places and {MAX_DECIMAL}, "
    "True, False, or a text of 1 to 255 printable characters"
)


def statistic_name(value: object) -> str:
    """Return the name of a statistic, or raise ``InvalidInput``.

    Source: the syntax of instrument names in OpenTelemetry's specification of metrics.

    >>> statistic_name("cpu.user.percent")
    'cpu.user.percent'
    """
    if not isinstance(value, str) or not _NAME.match(value):
        expected = "a letter, then at most 254 letters, digits and _ . - / :"
        raise exceptions.InvalidInput("name", "name of a statistic", value, expected)
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class Statistic:
    """A value that a source reports of a host.

    :param name: a letter, then letters, digits and ``_ . - / :``; the unit is a part of the name,
        such as ``uptime_seconds``
    :param value: an integer, a decimal (a ``Decimal``, or a float by its shortest form), a boolean
        or a text of one line
    :param since: the time since when it has this value, with its time zone. None in a value to
        put: the time of the ledger's clock
    :param source: the program that reports it
    :raises InvalidInput: for a name or source that is none; for a value of another type, or one
        that is too large or too precise

    >>> print(Statistic("cpu.percent", 12.50))
    cpu.percent 12.5
    >>> Statistic("cpu.percent", 29.0).value
    29
    >>> Statistic("cpu.percent", 1 / 3)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: cpu.percent: got 0.3333333333333333, expected ...
    """

    name: str
    value: Any  #: an integer, a Decimal, a boolean or a text
    since: datetime.datetime | None = None
    source: str = SOURCE

    def __post_init__(self) -> None:
        statistic_name(self.name)
        value = _checked(self.value)
        if value is None:
            raise exceptions.InvalidInput("field", self.name, self.value, _EXPECTED)
        object.__setattr__(self, "value", value)
        if self.since is not None:
            object.__setattr__(self, "since", moment(f"since of {self.name}", self.since))
        names.label(self.source, "source of a statistic")

    @property
    def text(self) -> str:
        """The value as text; ``true`` and ``false`` for a boolean."""
        return str(self.value).lower() if isinstance(self.value, bool) else str(self.value)

    def __str__(self) -> str:
        return f"{self.name} {self.text}"

    def to_stored(self) -> str:
        """Return the value as JSON text in which a number is exact.

        >>> Statistic("cpu.percent", Decimal("12.5")).to_stored()
        '12.5'
        """
        if isinstance(self.value, Decimal):
            return str(self.value)
        return json.dumps(self.value, ensure_ascii=False)

    @classmethod
    def from_stored(
        cls, name: str, stored: str, since: datetime.datetime, source: str = SOURCE
    ) -> Self:
        """Return the statistic of a stored value, which was checked when it was put.

        >>> since = datetime.datetime(2026, 11, 16, tzinfo=datetime.UTC)
        >>> print(Statistic.from_stored("up", "true", since))
        up true
        """
        statistic = object.__new__(cls)
        value = json.loads(stored, parse_float=Decimal)
        for field, part in (("name", name), ("value", value), ("since", since), ("source", source)):
            object.__setattr__(statistic, field, part)
        return statistic

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON. A decimal is text there: a float would not be exact."""
        return {
            "name": self.name,
            "value": self.text if isinstance(self.value, Decimal) else self.value,
            "since": None if self.since is None else self.since.isoformat(),
            "source": self.source,
        }


def _checked(value: Any) -> Value | None:
    """Return a value of one of the types of values, None if it is none."""
    if type(value) is bool:
        return value
    if type(value) is int:
        return value if abs(value) <= MAX_AMOUNT else None
    if isinstance(value, str):
        try:
            return names.label(value)
        except exceptions.InvalidInput:  # the caller raises, with the name of the statistic
            return None
    millionths = millionths_of(value, MAX_DECIMAL)
    if millionths is None:
        return None
    return millionths // 10**6 if millionths % 10**6 == 0 else decimal_of(millionths)


# --- orders ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class StatisticsOrder:
    """The statistics that one source reports, to write in one transaction.

    ``values``
        by the uuid of each provider, all statistics that the source reports: those that it reported
        before and does not report now are deleted, those of other sources stay
    ``source``
        the source; it replaces that of each statistic
    ``reported``
        uuids of providers whose owner has just reported

    :raises InvalidInput: if a provider has two values of one statistic
    """

    values: Mapping[str, tuple[Statistic, ...]] = dataclasses.field(default_factory=dict)
    source: str = SOURCE
    reported: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        names.label(self.source, "source of statistics")
        for uuid, statistics in self.values.items():
            check_unique(f"statistics of {uuid}", [statistic.name for statistic in statistics])

    @property
    def providers(self) -> set[str]:
        """The uuids of all providers in the order."""
        return {*self.values, *self.reported}


@dataclasses.dataclass(frozen=True, slots=True)
class StatisticFilter:
    """A filter of statistics to read or to delete.

    ``providers``
        of one of these (uuids); None matches all, an empty set matches none
    ``names``
        one of these statistics; None matches all
    """

    providers: frozenset[str] | None = None
    names: frozenset[str] | None = None


#: Statistics by the name of the provider and of the statistic.
StatisticsByProvider: TypeAlias = dict[str, dict[str, Statistic]]


class StoredStatistic(NamedTuple):
    """A stored statistic of a provider."""

    value: str  #: as JSON text
    source: str
    since: datetime.datetime


def changed(
    stored: Mapping[str, StoredStatistic],
    reported: Iterable[Statistic],
    source: str,
    now: datetime.datetime,
) -> tuple[dict[str, StoredStatistic], list[str]]:
    """Return the rows of one provider to write, by name, and the names to delete.

    A row is written only if its value or its source changes; a changed source keeps ``since``. So a
    source that reports the same values again writes nothing.

    :param stored: the rows that are stored, by name
    :param now: ``since`` of values that have none
    """
    written: dict[str, StoredStatistic] = {}
    names_now: set[str] = set()
    for statistic in reported:
        name, value = statistic.name, statistic.to_stored()
        names_now.add(name)
        row = stored.get(name)
        if row is None or row.value != value:
            written[name] = StoredStatistic(value, source, statistic.since or now)
        elif row.source != source:
            written[name] = row._replace(source=source)
    deleted = [
        name for name, row in stored.items() if row.source == source and name not in names_now
    ]
    return written, deleted
