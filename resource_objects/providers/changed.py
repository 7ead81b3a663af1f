"""What was changed after a cursor, with the trees it was changed in: how a picture stays fresh.

Whoever keeps a picture of a ledger does not read everything again: the change feed says which
providers were touched, and only their trees are read, at the same moment
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
    """Whom some entries of the feed touched.

    ``is_wide`` says that one of them named nobody, neither providers nor consumers: names of
    classes, traits or aggregates are others now, so anybody may be touched.

    >>> Touched.of([]).is_wide
    False
    """

    definitions: frozenset[str] = frozenset()  #: uuids of providers whose definition changed
    uses: tuple[Change, ...] = ()  #: what consumers took and gave back, in the order of each shard
    reports: frozenset[str] = frozenset()  #: uuids of those that reported or were adopted
    is_wide: bool = False
    disabled: frozenset[str] = frozenset()  #: uuids of those put out of service, or into it again

    @classmethod
    def of(cls, entries: Iterable[FeedEntry]) -> Self:
        """Return whom entries touched."""
        definitions: set[str] = set()
        reports: set[str] = set()
        disabled: set[str] = set()
        uses: list[Change] = []
        is_wide = False
        for entry in entries:
            definitions.update(entry.definitions)
            reports.update(entry.reports)
            disabled.update(one.provider_uuid for one in entry.disabled)
            uses += entry.uses
            is_wide = is_wide or not (entry.providers or entry.consumers)
        return cls(
            frozenset(definitions), tuple(uses), frozenset(reports), is_wide, frozenset(disabled)
        )

    @property
    def changed(self) -> frozenset[str]:
        """The uuids of those that are others now; who only reported is as before."""
        used = {use.key[0] for use in self.uses}
        return self.definitions | self.disabled | used

    @property
    def providers(self) -> frozenset[str]:
        """The uuids of all that were touched, but for what shares use."""
        return self.changed | self.reports


#: Given whom changes touched, returns the uuids of providers of all trees to read, or None to read
#: nothing. It is asked within a transaction, so it only thinks.
Choose: TypeAlias = Callable[[Touched], "Collection[str] | None"]


@dataclasses.dataclass(frozen=True, slots=True)
class Changed:
    """What was changed after a cursor.

    ``columns`` are the trees that were asked for, whole, with what is allocated there; None says
    that they were not read: there were too many changes, or ``choose`` said so, or others wrote all
    the time. Then only reading everything tells what there is.
    """

    cursor: Cursor  #: where the feed is now
    changes: int  #: how many changes came after the other cursor; at least so many, if not read
    columns: Columns | None
