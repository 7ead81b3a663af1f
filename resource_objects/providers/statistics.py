"""Statistics: figures that a host's agent tells beside what the host has, declared and typed.

How long a host is up, how busy its processors are, how many builds failed there: nothing of it is
consumed, so none of it is an inventory. A scheduler in another process wants to read it all the
same, of all hosts at once, and to know what it reads. So a statistic is declared
(:class:`StatisticType`: name, type, unit, description), and a name means the same on all hosts of a
ledger; and a value (:class:`Statistic`) tells since when it is what it is, and who said so.

What is exact stays exact (law 7): a decimal has at most six places and is kept in millionths. In
Nova a metric of 29 percent is sent as the float 0.29 and comes back as 28, and a statistic is text
under a key that somebody makes up of a state or a project.

A scheduler reads hundreds of thousands of values at once, so they are plain values, no versioned
objects: they cross to other processes as rows alone, whose version is the schema's.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, Self, TypeAlias

from resource_objects import exceptions, names
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.given import moment
from resource_objects.ratio import decimal_of, millionths_of

#: What a statistic may be.
Value: TypeAlias = int | Decimal | str | bool | datetime.datetime
#: What is kept of a value: a number, or a text where it is one.
Stored: TypeAlias = tuple[int | None, str | None]

#: Bound of decimals: their millionths fit 64 bits.
MAX_DECIMAL = 9 * 10**12
MAX_UNIT = 63
#: Who says a statistic, unless somebody else is named.
SOURCE = "agent"

# the rule of OpenTelemetry for names of instruments, with the colon that Prometheus' recorded
# metrics have
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_./:-]{0,254}\Z")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


class ValueType(enum.StrEnum):
    """What kind of value a statistic has."""

    INTEGER = "integer"  #: a signed 64-bit integer
    DECIMAL = "decimal"  #: a decimal of at most six places, at most 9,000,000,000,000
    TEXT = "text"  #: 1 to 255 printable characters
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"  #: a moment, to the microsecond


def statistic_name(value: object) -> str:
    """Return the name of a statistic, or raise ``InvalidName``.

    Source: the syntax of instrument names in OpenTelemetry's specification of metrics.

    >>> statistic_name("cpu.user.percent")
    'cpu.user.percent'
    """
    if not isinstance(value, str) or not _NAME.match(value):
        expected = "a letter, then at most 254 letters, digits and _ . - / :"
        raise exceptions.InvalidName("name of a statistic", value, expected)
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class StatisticType:
    """A statistic that is declared: its name, what its values are, and in which unit.

    Called with a value it gives a :class:`Statistic`. A name means one thing in a ledger: declared
    with another type or unit it is refused (``StatisticConflict``). ``unit`` is free; UCUM's are
    usual (``%``, ``By``, ``s``, ``MHz``).

    :raises InvalidName: for a name, unit or description that is none
    :raises InvalidField: for a type that there is not

    >>> load = StatisticType("cpu.percent", "decimal", "%", "how busy the processors are")
    >>> print(load("12.5"))
    cpu.percent 12.5 %
    >>> load(1 / 3)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidField: cpu.percent: got 0.3333333333333333, expected ...
    """

    name: str
    type: ValueType
    unit: str | None = None
    description: str | None = None

    def __init__(
        self,
        name: str,
        type: ValueType | str,
        unit: str | None = None,
        description: str | None = None,
    ) -> None:
        found = None if not isinstance(type, str) else _TYPES.get(type)
        if found is None:
            expected = f"one of {', '.join(_TYPES)}"
            raise exceptions.InvalidField(f"type of statistic {name}", type, expected)
        if unit is not None and len(names.label(unit, "unit of a statistic")) > MAX_UNIT:
            expected = f"at most {MAX_UNIT} characters"
            raise exceptions.InvalidName("unit of a statistic", unit, expected)
        if description is not None:
            names.label(description, "description of a statistic")
        for field, value in (
            ("name", statistic_name(name)),
            ("type", found),
            ("unit", unit),
            ("description", description),
        ):
            object.__setattr__(self, field, value)

    def __call__(self, value: Any, since: datetime.datetime | None = None) -> Statistic:
        """Return a value of it; ``since`` is when it became that, if the source knows."""
        return Statistic(self, value, since)

    def is_same(self, other: StatisticType) -> bool:
        """Return whether it means the same; descriptions may differ."""
        return (self.name, self.type, self.unit) == (other.name, other.type, other.unit)

    def require(self, given: StatisticType) -> None:
        """Raise unless somebody else means the same by the name.

        :raises StatisticConflict: naming what is declared and what was given
        """
        if not self.is_same(given):
            said = f"it is {_told(self)}, not {_told(given)}"
            raise exceptions.StatisticConflict(self.name, said)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "name": self.name,
            "type": str(self.type),
            "unit": self.unit,
            "description": self.description,
        }


def _told(declared: StatisticType) -> str:
    return f"{declared.type} in {declared.unit}" if declared.unit else str(declared.type)


@dataclasses.dataclass(frozen=True, slots=True)
class Statistic:
    """A value of a statistic, at one host.

    :param type: the statistic that is declared
    :param value: an integer, a ``Decimal`` (or anything that says one exactly: an integer, decimal
        text, a float by its shortest form), a text, a boolean, or a moment with its time zone
    :param since: when the value became what it is. None in what is put: the ledger's clock says it
    :param source: who says it
    :raises InvalidField: for a value that is none of the type, or too precise: it is not rounded

    >>> up = StatisticType("uptime", "integer", "s")
    >>> Statistic(up, 86400).value, Statistic(up, 86400).unit
    (86400, 's')
    """

    type: StatisticType
    value: Any  #: of the kind that the type has: an integer, a Decimal, text, a boolean, a time
    since: datetime.datetime | None = None
    source: str = SOURCE

    def __post_init__(self) -> None:
        if not isinstance(self.type, StatisticType):
            raise exceptions.InvalidField("type", self.type, "a StatisticType")
        kind = _KINDS[self.type.type]
        value = kind.read(self.value)
        if value is None:
            raise exceptions.InvalidField(self.type.name, self.value, kind.expected)
        object.__setattr__(self, "value", value)
        if self.since is not None:
            object.__setattr__(self, "since", moment(f"since of {self.type.name}", self.since))
        names.label(self.source, "source of a statistic")

    @property
    def name(self) -> str:
        """The name of the statistic."""
        return self.type.name

    @property
    def unit(self) -> str | None:
        """The unit of the value."""
        return self.type.unit

    @property
    def text(self) -> str:
        """The value for people, without its unit."""
        value = self.value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, datetime.datetime):
            return value.isoformat()
        return str(value)

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.name} {self.text}{unit}"

    # --- as it is kept ---

    def to_stored(self) -> Stored:
        """Return what is kept of the value: ``(number, None)``, or ``(None, text)`` of a text.

        >>> StatisticType("cpu.percent", "decimal")("12.5").to_stored()
        (12500000, None)
        """
        return _KINDS[self.type.type].stored(self.value)

    @classmethod
    def from_stored(
        cls,
        type: StatisticType,
        stored: Stored,
        since: datetime.datetime | None = None,
        source: str = SOURCE,
    ) -> Self:
        """Return the statistic of what is kept of its value; it was checked when it was put.

        >>> print(Statistic.from_stored(StatisticType("up", "boolean"), (1, None)))
        up true
        """
        made = object.__new__(cls)
        value = _KINDS[type.type].kept(stored)
        for field, given in (("type", type), ("value", value), ("since", since)):
            object.__setattr__(made, field, given)
        object.__setattr__(made, "source", source)
        return made

    # --- as plain data ---

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON. A decimal is text there, for a float would not be it."""
        is_plain = isinstance(self.value, int | str)
        return {
            **self.type.to_dict(),
            "value": self.value if is_plain else self.text,
            "since": None if self.since is None else self.since.isoformat(),
            "source": self.source,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the statistic of plain data.

        :raises InvalidField: if it is none
        """
        try:
            declared = StatisticType(*(data[name] for name in ("name", "type", "unit")))
            described = dataclasses.asdict(declared) | {"description": data.get("description")}
            value, since = data["value"], data.get("since")
            if declared.type is ValueType.TIMESTAMP:
                value = datetime.datetime.fromisoformat(value)
            since = None if since is None else datetime.datetime.fromisoformat(since)
            return cls(StatisticType(**described), value, since, data.get("source", SOURCE))
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, exceptions.ResourceObjectsError):
                raise
            raise exceptions.InvalidField("statistic", data, "what to_dict() gives") from error


# --- types of values ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind:
    """What belongs to a type of values: what was expected, what is read, and how it is kept."""

    expected: str
    read: Callable[[Any], Value | None]
    stored: Callable[[Any], Stored]
    kept: Callable[[Stored], Any]


def _integer(given: Any) -> int | None:
    return given if type(given) is int and abs(given) <= MAX_AMOUNT else None


def _decimal(given: Any) -> Decimal | None:
    millionths = millionths_of(given, MAX_DECIMAL)
    return None if millionths is None else decimal_of(millionths)


def _text(given: Any) -> str | None:
    try:
        return names.label(given)
    except exceptions.InvalidName:  # told by the caller, with the name of the statistic
        return None


def _boolean(given: Any) -> bool | None:
    return given if type(given) is bool else None


def _timestamp(given: Any) -> datetime.datetime | None:
    try:
        return moment("value", given)
    except exceptions.InvalidField:  # told by the caller, with the name of the statistic
        return None


def _millionths(value: Decimal) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator * 1_000_000 // denominator


_TYPES: dict[str, ValueType] = {one.value: one for one in ValueType}
_KINDS = {
    ValueType.INTEGER: _Kind(
        f"an integer of at most {MAX_AMOUNT}, or minus that",
        _integer,
        lambda value: (value, None),
        lambda stored: stored[0],
    ),
    ValueType.DECIMAL: _Kind(
        f"a decimal of at most six places and {MAX_DECIMAL}, or minus that",
        _decimal,
        lambda value: (_millionths(value), None),
        lambda stored: decimal_of(stored[0] or 0),
    ),
    ValueType.TEXT: _Kind(
        "1 to 255 printable characters without spaces at either end",
        _text,
        lambda value: (None, value),
        lambda stored: stored[1],
    ),
    ValueType.BOOLEAN: _Kind(
        "True or False", _boolean, lambda value: (int(value), None), lambda stored: bool(stored[0])
    ),
    ValueType.TIMESTAMP: _Kind(
        "a datetime with its time zone",
        _timestamp,
        lambda value: ((value - _EPOCH) // _MICROSECOND, None),
        lambda stored: _EPOCH + (stored[0] or 0) * _MICROSECOND,
    ),
}


# --- orders ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class StatisticsOrder:
    """What a backend is told of the statistics of some providers, in one transaction.

    ``values``
        by the uuid of each provider, all that the source says of it: what the source said before
        and does not say now is gone, what others said stays
    ``source``
        who says it, whatever stands in the statistics
    ``types``
        declared too; their descriptions become those of the ledger
    ``reported``
        uuids of providers whose owner has just said how they are

    :raises DuplicateKey: if a provider is given two values of one statistic
    :raises StatisticConflict: if one statistic is declared in two ways
    """

    values: Mapping[str, tuple[Statistic, ...]] = dataclasses.field(default_factory=dict)
    source: str = SOURCE
    types: tuple[StatisticType, ...] = ()
    reported: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        names.label(self.source, "source of statistics")
        for uuid, found in self.values.items():
            if len({one.name for one in found}) != len(found):
                said = [one.name for one in found]
                raise exceptions.DuplicateKey(f"statistics of {uuid}", said, "each once")
        self.declared()

    def declared(self) -> dict[str, StatisticType]:
        """Return every statistic that it names, by name."""
        given = (one.type for found in self.values.values() for one in found)
        known: dict[str, StatisticType] = {}
        for declared in (*self.types, *given):
            found = known.setdefault(declared.name, declared)
            if found is not declared:
                found.require(declared)
        return known

    @property
    def providers(self) -> set[str]:
        """The uuids of all providers that it names."""
        return {*self.values, *self.reported}


@dataclasses.dataclass(frozen=True, slots=True)
class StatisticFilter:
    """Which statistics to read, or to forget.

    ``providers``
        of one of these (uuids); None asks nothing, an empty set matches nobody
    ``names``
        one of these statistics; None asks nothing
    """

    providers: frozenset[str] | None = None
    names: frozenset[str] | None = None


#: What is kept: by the name of the provider and of the statistic.
StatisticsByProvider: TypeAlias = dict[str, dict[str, Statistic]]


class KeptStatistic(NamedTuple):
    """A statistic of a provider as it is kept."""

    stored: Stored
    source: str
    since: datetime.datetime


def changed(
    kept: Mapping[str, KeptStatistic],
    said: Iterable[Statistic],
    source: str,
    now: datetime.datetime | None = None,
) -> tuple[dict[str, KeptStatistic], list[str]]:
    """Return what is to be written of one provider, by name, and the names that go.

    Only a value that is another is written, or one that somebody else says now, which is since when
    it was. So a source that says the same again, at another moment, writes nothing.

    :param kept: what is kept of the provider, by name
    :param now: since when values are that do not say it; None where only the names are wanted
    """
    written: dict[str, KeptStatistic] = {}
    said_now: set[str] = set()
    for one in said:
        name, stored = one.name, one.to_stored()
        said_now.add(name)
        known = kept.get(name)
        if known is None or known.stored != stored:
            written[name] = KeptStatistic(stored, source, one.since or now or _EPOCH)
        elif known.source != source:
            written[name] = known._replace(source=source)
    gone = [name for name, one in kept.items() if one.source == source and name not in said_now]
    return written, gone
