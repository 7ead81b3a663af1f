"""Consumers as they are kept, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator

from resource_objects.providers import Backend
from resource_objects.providers.listing import ConsumerFilter
from resource_objects.providers.orders import ClaimRecord


def pages_of(
    backend: Backend, wanted: ConsumerFilter, page: int
) -> Iterator[tuple[ClaimRecord, ...]]:
    """Yield the consumers of a filter, by name, ``page`` at a time."""
    after: str | None = None
    while True:
        found = backend.list_consumers(wanted, page, after)
        if found:
            yield found
        if len(found) < page:
            return
        after = found[-1].consumer
