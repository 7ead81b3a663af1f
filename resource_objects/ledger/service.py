"""Which providers, and units of theirs, are out of service: disable, enable, drain."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator
from typing import Any

from resource_objects import exceptions, names
from resource_objects.ledger.reading import Reader
from resource_objects.ledger.store import Store
from resource_objects.providers import Consumer, Disabled
from resource_objects.providers.disabled import DisableOrder
from resource_objects.providers.given import moment
from resource_objects.providers.listing import ConsumerFilter, ListedProvider, ProviderFilter
from resource_objects.providers.orders import Write


@dataclasses.dataclass(frozen=True, slots=True)
class Drained:
    """A provider or unit that is out of service, and who still holds something there or below it.

    False once nobody does. ``str()`` tells them, a line each.
    """

    provider: str
    disabled: Disabled | None  #: None: somebody enabled it meanwhile, or its time is over
    consumers: tuple[Consumer, ...]
    unit: str | None = None  #: the unit of it that is meant alone

    def __bool__(self) -> bool:
        return bool(self.consumers)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self.consumers)

    def __len__(self) -> int:
        return len(self.consumers)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "provider": self.provider,
            **({} if self.unit is None else {"unit": self.unit}),
            "disabled": None if self.disabled is None else self.disabled.to_dict(),
            "consumers": [one.name for one in self.consumers],
        }

    def __str__(self) -> str:
        said = "enabled" if self.disabled is None else str(self.disabled)
        left = [f"  {one}" for one in self.consumers] or ["  nobody is there"]
        what = "" if self.unit is None else f"{self.unit} "
        return "\n".join([f"{self.provider}: {what}{said}", *left])


class Service:
    """What is out of service; :class:`~resource_objects.ledger.Ledger` says what each does."""

    def __init__(self, store: Store, reader: Reader) -> None:
        self._store = store
        self._reader = reader

    def disable(
        self,
        provider: str,
        reason: str,
        until: datetime.datetime | None,
        operation: str | None,
        unit: str | None = None,
    ) -> ListedProvider:
        said = names.label(reason, "reason")
        end = None if until is None else moment("until", until)
        return self._write("disable", provider, said, end, operation, unit)

    def enable(
        self, provider: str, operation: str | None, unit: str | None = None
    ) -> ListedProvider:
        return self._write("enable", provider, None, None, operation, unit)

    def drain(
        self,
        provider: str,
        reason: str | None,
        until: datetime.datetime | None,
        operation: str | None,
        unit: str | None = None,
    ) -> Drained:
        if reason is None:
            listed = self._listed(names.provider_key(provider))
            if _facts(listed, unit) is None:
                what = listed.name if unit is None else f"{unit} of {listed.name}"
                raise exceptions.InvalidField("reason", None, f"why, as {what} is enabled")
            if until is not None:
                raise exceptions.InvalidField("until", until, "a reason beside it")
        else:
            listed = self.disable(provider, reason, until, operation, unit)
        return Drained(listed.name, _facts(listed, unit), tuple(self._there(listed, unit)), unit)

    def _write(
        self,
        kind: str,
        provider: str,
        reason: str | None,
        until: datetime.datetime | None,
        operation: str | None,
        unit: str | None,
    ) -> ListedProvider:
        key = names.provider_key(provider)
        if unit is not None:
            names.label(unit, "unit")
        subject = key if unit is None else f"{key} {unit}"[: names.MAX_CONSUMER_NAME]
        doing, done = self._store.begin(operation, kind, subject)
        if done is None:
            uuid = self._store.uuids([key])[key]
            order = DisableOrder(uuid, reason, until, unit)
            self._store.backend.commit(Write(doing, kind, subject, disabling=(order,)))
        return self._listed(key)

    def _listed(self, key: str) -> ListedProvider:
        uuid = self._store.uuids([key])[key]
        for listed in self._reader.providers(ProviderFilter(uuids=frozenset([uuid])), None, None):
            return listed
        raise exceptions.ProviderNotFound(key)

    def _there(self, listed: ListedProvider, unit: str | None) -> Iterator[Consumer]:
        """Yield who holds something at a provider or below it, or who has a unit of it."""
        inside = {one.uuid for one in self._reader.provider(listed.uuid).walk()}
        wanted = ConsumerFilter(tree=listed.uuid)
        for one in self._reader.consumers(wanted, None, None):
            here = (held for held in one.allocations if held.provider_uuid in inside)
            if any(unit is None or unit in held.units for held in here):
                yield one


def _facts(listed: ListedProvider, unit: str | None) -> Disabled | None:
    """Return why a provider, or a unit of it, is out of service."""
    return listed.disabled if unit is None else listed.disabled_units.get(unit)
