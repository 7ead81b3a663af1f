"""One write while it is carried out on rows."""

from __future__ import annotations

import datetime

from resource_objects import exceptions
from resource_objects.providers.disabled import DisabledChange
from resource_objects.providers.orders import Change
from resource_objects.store.rows import ProviderRow, Rows


class Transaction:
    """The rows that a write changes, its time and number, and its changes for the change feed.

    Each change is recorded with the number of the root of its tree: of the present root of the
    provider, or of the root before it moved.

    :param now: the time of the ledger
    :param number: of the operation: the generation of what it changes
    """

    __slots__ = (
        *("claims", "definitions", "disabled", "now", "number", "overrides"),
        *("renamed", "reports", "rows", "uses"),
    )

    def __init__(self, rows: Rows, now: datetime.datetime, number: int) -> None:
        self.rows = rows
        self.now = now
        self.number = number
        #: changed allocations
        self.uses: list[tuple[int, Change]] = []
        #: uuids of providers with a changed definition, of providers that reported
        self.definitions: set[tuple[int, str]] = set()
        self.reports: set[tuple[int, str]] = set()
        #: names of consumers of which the claim changed and the allocations did not
        self.claims: set[tuple[int, str]] = set()
        self.disabled: list[tuple[int, DisabledChange]] = []
        #: uuids of disabled providers that an order allocates from nevertheless
        self.overrides: list[tuple[int, str]] = []
        #: uuids of providers of whose definition only a name changed
        self.renamed: set[str] = set()

    @property
    def has_changes(self) -> bool:
        """Whether the feed reports a change of a tree."""
        return any(
            (self.uses, self.definitions, self.reports, self.claims, self.disabled, self.overrides)
        )

    def mark_changed(self, uuid: str) -> None:
        """Record that the definition of a provider, which exists, changed."""
        self.definitions.add((self.rows.root(uuid).number, uuid))

    def provider(self, uuid: str) -> ProviderRow:
        """Return a provider.

        :raises NotFound: if it does not exist
        """
        provider = self.rows.providers.get(uuid)
        if provider is None:
            raise exceptions.NotFound("provider", uuid)
        return provider
