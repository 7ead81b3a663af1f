"""Disabled providers: why, by whom, since when and until when; and removed units.

Nothing is allocated of a disabled provider or of the providers below it: no search finds them and
every claim of them is refused. Existing allocations stay; they can be confirmed, renewed, released
and moved away. The state is not a part of the definition: a sync does not change it.

A disabled provider that is removed stays disabled: when a provider of the same name is created
again below the same host, it is disabled with the same reason. The record is deleted with the host.

A *removed unit* is a device that the host no longer has while it is still allocated. It is derived
from the description of the inventory. After its release it is not allocated again.

Placement's users know a disabled compute node by the trait ``COMPUTE_STATUS_DISABLED``, which
:func:`~resource_objects.search.fleet_io.read` and the lists derive. The trait is never stored.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable
from typing import Any, Self

from resource_objects import base, exceptions, fields, names

#: The trait that Placement's users know for a disabled provider.
TRAIT = "COMPUTE_STATUS_DISABLED"
#: The end of a state that lasts until the provider is enabled.
FOREVER = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)


@base.register
class Disabled(base.ResourceObject, frozen=True):
    """The reason why a provider is disabled, with the actor and the times.

    ``by`` is the actor of the operation; None if the operation had none. The state ends at
    ``until`` by the clock of the ledger; None: when the provider is enabled.

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
        """The end of the state; :data:`FOREVER` if it has none."""
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
        if self == REMOVED:
            return self.reason
        by = "" if self.by is None else f" by {self.by}"
        return f"disabled since {self.since:%Y-%m-%d}{_until(self.until)}{by}: {self.reason}"


def _until(moment: datetime.datetime | None) -> str:
    return "" if moment is None else f" until {moment:%Y-%m-%d %H:%M}"


#: The reason for a removed unit. It is derived and never stored, so it cannot be enabled or
#: overridden.
REMOVED = Disabled(
    reason="was removed from the host", since=datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)
)


@dataclasses.dataclass(frozen=True, slots=True)
class RemovedUnit:
    """A unit that was removed from its host while it was allocated.

    ``is_free`` is True once the unit was released.
    """

    unit: str
    resource_class: str
    is_free: bool


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceState:
    """The state in which an operator wants a provider: enabled, or disabled for a reason."""

    reason: str | None = None  #: None: the provider is enabled
    until: datetime.datetime | None = None

    @classmethod
    def of(cls, stored: Disabled | None) -> Self:
        """Return the state that is stored for a provider."""
        return cls() if stored is None else cls(stored.reason, stored.until)

    def at(self, now: datetime.datetime) -> ServiceState:
        """Return the state at a moment: enabled once ``until`` has passed."""
        return ServiceState() if self.until is not None and self.until <= now else self

    def __str__(self) -> str:
        if self.reason is None:
            return "in service"
        return f"disabled{_until(self.until)}: {self.reason}"


@dataclasses.dataclass(frozen=True, slots=True)
class DisableOrder:
    """A part of a write that disables or enables one provider.

    With a ``reason`` the provider is disabled; a provider that is disabled already gets the new
    reason and end, and keeps ``since``. Without a reason it is enabled. ``until`` is in the future
    by the ledger's clock. ``was`` is the expected state before; None accepts every state.

    :raises InvalidInput: for a reason that is no text of one line; for an end without a reason, or
        one that is not a moment in UTC
    """

    provider_uuid: str
    reason: str | None = None
    until: datetime.datetime | None = None
    was: ServiceState | None = None

    def __post_init__(self) -> None:
        if self.reason is not None:
            names.label(self.reason, "reason")
        elif self.until is not None:
            expected = "none where nothing is disabled"
            raise exceptions.InvalidInput("field", "until", self.until, expected)
        check_utc("until", self.until)

    def __str__(self) -> str:
        if self.reason is None:
            return "enabled"
        return str(ServiceState(self.reason, self.until))

    def carried_out(
        self, stored: Disabled | None, by: str | None, now: datetime.datetime, name: str
    ) -> Disabled | None:
        """Return the state to store for the provider.

        :param stored: the state that is stored, also if it has ended
        :param name: the provider's name
        :raises Stale: if the provider is not in the expected state
        :raises InvalidInput: if the state would end before it begins
        """
        state = ServiceState.of(stored).at(now)
        if self.was is not None and self.was.at(now) != state:
            raise exceptions.Stale("provider", name, f"it was {self.was}, now {state}")
        if self.reason is None:
            return None
        if self.until is not None and self.until <= now:
            raise exceptions.InvalidInput("field", "until", self.until.isoformat(), f"after {now}")
        since = now if stored is None or stored.ends_at <= now else stored.since
        return Disabled(reason=self.reason, by=by, since=since, until=self.until)


@dataclasses.dataclass(frozen=True, slots=True)
class DisabledChange:
    """A provider that was disabled or enabled, as an entry of the change feed reports it.

    ``disabled`` is None if the provider was enabled.
    """

    provider_uuid: str
    disabled: Disabled | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        disabled = None if self.disabled is None else self.disabled.to_dict()
        return {"provider_uuid": self.provider_uuid, "disabled": disabled}


def check_utc(field: str, value: object) -> None:
    """Raise ``InvalidInput`` unless a value is None or a moment in UTC."""
    if value is not None and (
        not isinstance(value, datetime.datetime) or value.tzinfo is not datetime.UTC
    ):
        raise exceptions.InvalidInput("field", field, value, "a datetime in datetime.UTC")


def refuse_trait(traits: Iterable[str], subject: str) -> None:
    """Raise ``InvalidInput`` if traits to store include the derived trait :data:`TRAIT`."""
    if TRAIT in traits:
        raise exceptions.InvalidInput(
            "trait", subject, TRAIT, "other traits; disable() sets this one"
        )
