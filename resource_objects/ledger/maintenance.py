"""Disabling, enabling and draining providers."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator
from typing import Any

from resource_objects import exceptions, names
from resource_objects.ledger.context import LedgerContext, consumer_of
from resource_objects.providers import Consumer, Disabled
from resource_objects.providers.arguments import moment
from resource_objects.providers.disabled import DisableOrder
from resource_objects.providers.listing import ConsumerFilter, ListedProvider
from resource_objects.providers.orders import Write


@dataclasses.dataclass(frozen=True, slots=True)
class DrainStatus:
    """A disabled provider and the consumers that still have allocations there or below it.

    False when no consumer is left. ``str()`` lists the consumers, one in a line.
    """

    provider: str
    disabled: Disabled | None  #: None: it was enabled meanwhile, or the state has ended
    consumers: tuple[Consumer, ...]

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
            "disabled": None if self.disabled is None else self.disabled.to_dict(),
            "consumers": [consumer.name for consumer in self.consumers],
        }

    def __str__(self) -> str:
        state = "enabled" if self.disabled is None else str(self.disabled)
        lines = [f"  {consumer}" for consumer in self.consumers] or ["  no consumers"]
        return "\n".join([f"{self.provider}: {state}", *lines])


class Maintenance:
    """Disables providers; :class:`~resource_objects.ledger.Ledger` documents each method."""

    def __init__(self, context: LedgerContext) -> None:
        self._context = context

    def disable(
        self, provider: str, reason: str, until: datetime.datetime | None, operation: str | None
    ) -> ListedProvider:
        end = None if until is None else moment("until", until)
        return self.write("disable", provider, operation, names.label(reason, "reason"), end)

    def write(
        self,
        kind: str,
        provider: str,
        operation: str | None,
        reason: str | None = None,
        until: datetime.datetime | None = None,
    ) -> ListedProvider:
        """Disable a provider, or without a reason enable it; return it as it is then."""
        key = names.provider_key(provider)
        order = DisableOrder(self._context.uuids([key])[key], reason, until)
        write = Write(self._context.operation(operation), kind, key, disabling=(order,))
        self._context.backend.commit(write)
        return self._context.listed(key)

    def drain(
        self,
        provider: str,
        reason: str | None,
        until: datetime.datetime | None,
        operation: str | None,
    ) -> DrainStatus:
        if reason is None:
            listed = self._context.listed(names.provider_key(provider))
            if listed.disabled is None:
                expected = f"a reason: {listed.name} is enabled"
                raise exceptions.InvalidInput("field", "reason", None, expected)
            if until is not None:
                raise exceptions.InvalidInput("field", "until", until, "a reason too")
        else:
            listed = self.disable(provider, reason, until, operation)
        index = self._context.backend.read(listed.uuid, allocations=False).index
        if listed.uuid not in index.numbers:
            raise exceptions.NotFound("provider", provider)
        inside = {index.uuids[n] for n in index.subtree(index.numbers[listed.uuid])}
        consumers = tuple(
            consumer_of(record)
            for page in self._context.consumer_pages(ConsumerFilter(tree=listed.uuid))
            for record in page
            if any(use.provider_uuid in inside for use in record.held)
        )
        return DrainStatus(listed.name, listed.disabled, consumers)
