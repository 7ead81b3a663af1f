"""The changes after a cursor with the trees concerned: the refresh of a snapshot.

A refresh does not read everything again. The change feed lists the providers that changed, and only
their trees are read, at the same moment
(:meth:`~resource_objects.providers.backend.Backend.read_changed`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from typing import Self, TypeAlias

from resource_objects.providers.columns import Columns
from resource_objects.providers.feed import Cursor, FeedEntry
from resource_objects.providers.orders import Change


@dataclasses.dataclass(frozen=True, slots=True)
class Touched:
    """The providers and uses that some entries of the feed changed.

    ``is_wide`` is True if an entry names neither providers nor consumers. It renamed a class, trait
    or aggregate, so any provider may have changed.

    >>> Touched.of([]).is_wide
    False
    """

    definitions: frozenset[str] = frozenset()  #: uuids of providers whose definition changed
    uses: tuple[Change, ...] = ()  #: allocated and released amounts, in the order of each shard
    reports: frozenset[str] = frozenset()  #: uuids of providers that reported or were adopted
    is_wide: bool = False
    disabled: frozenset[str] = frozenset()  #: uuids of providers that were disabled or enabled

    @classmethod
    def of(cls, entries: Iterable[FeedEntry]) -> Self:
        """Return the providers and uses that entries changed."""
        entries = tuple(entries)
        return cls(
            frozenset(uuid for entry in entries for uuid in entry.definitions),
            tuple(use for entry in entries for use in entry.uses),
            frozenset(uuid for entry in entries for uuid in entry.reports),
            any(not (entry.providers or entry.consumers) for entry in entries),
            frozenset(change.provider_uuid for entry in entries for change in entry.disabled),
        )

    @property
    def changed(self) -> frozenset[str]:
        """The uuids of changed providers; a report alone is no change."""
        used = {use.key[0] for use in self.uses}
        return self.definitions | self.disabled | used

    @property
    def providers(self) -> frozenset[str]:
        """The uuids of all providers concerned, without the targets of shares."""
        return self.changed | self.reports


#: Returns uuids of providers of all trees to read, or None to read nothing, from the changes. It is
#: called within a transaction, so it must not block.
Choose: TypeAlias = Callable[[Touched], "Collection[str] | None"]


@dataclasses.dataclass(frozen=True, slots=True)
class Changed:
    """The changes after a cursor.

    ``columns`` are the requested trees, complete and with their allocations. They are None if they
    were not read: there were too many changes, ``choose`` returned None, or concurrent writes did
    not stop. Then the caller must read everything.
    """

    cursor: Cursor  #: the head of the feed
    changes: (
        int  #: the number of changes after the first cursor; a minimum if the trees were not read
    )
    columns: Columns | None
