"""Providers and single units that are out of service: why, by whom, since when and until when.

A provider that is disabled gives nothing, and nobody below it does: no search finds it and no claim
takes of it. What is held there stays held; it can be confirmed, renewed, released and moved away.
It is no part of a definition: a sync neither says nor changes it.

A device is a unit of the provider that keeps it, and can be disabled alone: a virtual function
while its card goes on. Nobody is given such a unit while it is free; who asks for a count finds one
less of its class, and who asks for the physical function that it is split off finds that one used
up. It is known by its provider and address, so it stays where the device goes away and comes back.

What goes while it is out of service is so again when it comes back below the same host: a provider
under its name, a device at its address. Until then its host keeps it, as a unit of that name or
address, of which nobody is given any: lists show it there, and to enable that unit of the host
forgets it for good. What goes with its host is forgotten.

Placement's users know it as the trait ``COMPUTE_STATUS_DISABLED`` of the compute node, which
:func:`~resource_objects.search.fleet_build.read` and the lists derive; it is never kept.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

from resource_objects import base, exceptions, fields, names

#: So many units are named at most where one is not found.
_SHOWN = 16
#: The trait by which others know a provider that is disabled.
TRAIT = "COMPUTE_STATUS_DISABLED"
#: Until when something is disabled that is disabled until somebody enables it.
FOREVER = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)
#: The moment before all others.
_EVER = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


@base.register
class Disabled(base.ResourceObject, frozen=True):
    """Why a provider is out of service, by whom, since when and until when.

    ``by`` is the actor of the operation, None where it named none. It ends by itself at ``until``,
    by the clock of the ledger; None: when somebody enables the provider.

    >>> since = datetime.datetime(2026, 11, 16, 8, 30, tzinfo=datetime.UTC)
    >>> print(Disabled(reason="fan", by="admin", since=since))
    disabled since 2026-11-16 by admin: fan
    >>> print(Disabled(reason="fan", since=since, until=since + datetime.timedelta(days=1)))
    disabled since 2026-11-16 until 2026-11-17 08:30: fan
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    reason: str = fields.label()
    by: str | None = fields.label(default=None)
    since: datetime.datetime = fields.timestamp()
    until: datetime.datetime | None = fields.timestamp(default=None)

    @property
    def ends_at(self) -> datetime.datetime:
        """When it ends by itself, :data:`FOREVER` if it does not."""
        return FOREVER if self.until is None else self.until

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "reason": self.reason,
            "by": self.by,
            "since": self.since.isoformat(),
            "until": None if self.until is None else self.until.isoformat(),
        }

    def __str__(self) -> str:
        until = "" if self.until is None else f" until {self.until:%Y-%m-%d %H:%M}"
        by = "" if self.by is None else f" by {self.by}"
        if self == REMOVED:
            return self.reason
        return f"disabled since {self.since:%Y-%m-%d}{until}{by}: {self.reason}"


#: Why a unit is not allocated again that was removed while it was allocated. It is derived from
#: the description of its inventory and never stored, so it cannot be enabled or overridden.
REMOVED = Disabled(reason="was removed from the host", since=_EVER)


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceState:
    """Whether something is in service, as far as somebody says it: out for a reason, until when."""

    reason: str | None = None  #: None: it is in service
    until: datetime.datetime | None = None

    @classmethod
    def of(cls, kept: Disabled | None) -> Self:
        """Return what is kept, in these words."""
        return cls() if kept is None else cls(kept.reason, kept.until)

    def at(self, now: datetime.datetime) -> ServiceState:
        """Return what that is at a moment: it may have ended."""
        return ServiceState() if self.until is not None and self.until <= now else self

    def __str__(self) -> str:
        if self.reason is None:
            return "in service"
        until = "" if self.until is None else f" until {self.until:%Y-%m-%d %H:%M}"
        return f"disabled{until}: {self.reason}"


@dataclasses.dataclass(frozen=True, slots=True)
class DisableOrder:
    """What a write says of whether a provider is in service, or one unit of it alone.

    ``reason`` disables it, also with another reason or end than before; it then stays disabled
    since when it was. None enables it. ``until`` is to come by the ledger's clock. ``unit`` is the
    address of a device that the provider keeps; None: the provider with all below it. ``was`` is
    how it is expected to be before; None: in any way.

    :raises InvalidName: for a reason or a unit that is no text of one line
    :raises InvalidField: for an end without a reason, or one that is no moment in UTC
    """

    provider_uuid: str
    reason: str | None = None
    until: datetime.datetime | None = None
    unit: str | None = None
    was: ServiceState | None = None

    def __post_init__(self) -> None:
        if self.unit is not None:
            names.label(self.unit, "unit")
        if self.reason is not None:
            names.label(self.reason, "reason")
        elif self.until is not None:
            raise exceptions.InvalidField("until", self.until, "none where nothing is disabled")
        if self.until is not None and (
            not isinstance(self.until, datetime.datetime) or self.until.tzinfo is not datetime.UTC
        ):
            raise exceptions.InvalidField("until", self.until, "a datetime in datetime.UTC")

    @property
    def key(self) -> tuple[str, str | None]:
        """What it is about: the provider's uuid, and the unit."""
        return self.provider_uuid, self.unit

    def require_unit(self, units: Collection[str], where: str) -> None:
        """Raise unless a unit is one that can be disabled alone.

        :param units: those of the provider that can
        :param where: what the provider is called
        :raises UnitNotFound: if it is none of them
        """
        if self.unit is not None and self.unit not in units:
            few = ", ".join(sorted(units)[:_SHOWN])
            has = f"has the devices {few}" if few else "has no devices: these alone can be"
            raise exceptions.UnitNotFound(self.unit, f"{where} {has}")

    def __str__(self) -> str:
        what = "" if self.unit is None else f"{self.unit} "
        said = "enabled" if self.reason is None else ServiceState(self.reason, self.until)
        return f"{what}{said}"

    def carried_out(
        self, kept: Disabled | None, by: str | None, now: datetime.datetime, where: str
    ) -> Disabled | None:
        """Return what is kept of a provider afterwards.

        :param kept: what was kept, also if it is over
        :param where: what the provider is called
        :raises StaleDefinition: if it is not as it was expected to be
        :raises InvalidField: if it would end before it begins
        """
        is_now = ServiceState.of(kept).at(now)
        if self.was is not None and self.was.at(now) != is_now:
            what = "it" if self.unit is None else self.unit
            raise exceptions.StaleDefinition(where, f"{what} was {self.was}, now {is_now}")
        if self.reason is None:
            return None
        if self.until is not None and self.until <= now:
            raise exceptions.InvalidField("until", self.until.isoformat(), f"after {now}")
        since = now if kept is None or kept.ends_at <= now else kept.since
        return Disabled(reason=self.reason, by=by, since=since, until=self.until)


@dataclasses.dataclass(frozen=True, slots=True)
class DisabledChange:
    """What became of a provider, or of a unit of it, as the change feed tells it.

    ``disabled`` is None where it was enabled.
    """

    provider_uuid: str
    disabled: Disabled | None = None
    unit: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        said = None if self.disabled is None else self.disabled.to_dict()
        found: dict[str, Any] = {"provider_uuid": self.provider_uuid, "disabled": said}
        return found if self.unit is None else {**found, "unit": self.unit}


@dataclasses.dataclass(frozen=True, slots=True)
class DisabledUnit:
    """A unit that is out of service alone: of which class it is, why, and whether it is free.

    One that ``is_withheld`` (it is spent, or gone) is given to nobody anyway: it is no part of the
    capacity, and so it is not free either.
    """

    unit: str
    resource_class: str
    disabled: Disabled
    is_free: bool
    is_withheld: bool = False


def ends_of(
    parents: Mapping[int, int | None], disabled: Mapping[int, Disabled]
) -> dict[int, datetime.datetime]:
    """Return until when each provider is out of service that is, itself or by one above it.

    :param parents: the number of each one's parent, parents before children
    :param disabled: what is kept of those that are disabled themselves

    >>> since = datetime.datetime(2026, 11, 16, tzinfo=datetime.UTC)
    >>> fan = Disabled(reason="fan", since=since)
    >>> ends_of({1: None, 2: 1, 3: None}, {1: fan}) == {1: FOREVER, 2: FOREVER}
    True
    """
    found: dict[int, datetime.datetime] = {}
    for number, parent in parents.items():
        own = disabled.get(number)
        above = None if parent is None else found.get(parent)
        ends = [end for end in (above, None if own is None else own.ends_at) if end is not None]
        if ends:
            found[number] = max(ends)
    return found


def refuse_trait(traits: Iterable[str], what: str) -> None:
    """Raise if traits that are to be kept name the one that is derived.

    :raises InvalidTrait: if they do
    """
    if TRAIT in traits:
        raise exceptions.InvalidTrait(what, TRAIT, "no trait that says it: disable() does")
