"""Disabling, enabling and draining providers."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator
from typing import Any

from resource_objects import exceptions, names
from resource_objects.ledger.context import LedgerContext, consumer_of
from resource_objects.providers import Consumer, Disabled
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


def write_disabling(
    context: LedgerContext,
    kind: str,
    provider: str,
    operation: str | None,
    reason: str | None = None,
    until: datetime.datetime | None = None,
) -> ListedProvider:
    """Disable a provider, or without a reason enable it; return it as it is then."""
    key = names.provider_key(provider)
    order = DisableOrder(context.uuids([key])[key], reason, until)
    context.backend.commit(Write(context.operation(operation), kind, key, disabling=(order,)))
    return context.listed(key)


def drain_status(context: LedgerContext, provider: ListedProvider) -> DrainStatus:
    """Return the consumers with allocations at a provider or below it.

    Cost: a read of the tree, and a few statements per page of its consumers.
    """
    index = context.backend.read(provider.uuid, allocations=False).index
    if provider.uuid not in index.numbers:
        raise exceptions.NotFound("provider", provider.name)
    inside = {index.uuids[n] for n in index.subtree(index.numbers[provider.uuid])}
    consumers = tuple(
        consumer_of(record)
        for page in context.consumer_pages(ConsumerFilter(tree=provider.uuid))
        for record in page
        if any(use.provider_uuid in inside for use in record.held)
    )
    return DrainStatus(provider.name, provider.disabled, consumers)
