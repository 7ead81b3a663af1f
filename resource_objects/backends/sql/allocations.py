"""What consumers hold as rows: allocations, and the units taken with them.

What is given back is written before what is taken, so that consumers may change places and units
with each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects.backends.sql import rows, schema, units
from resource_objects.backends.sql.chunks import chunks
from resource_objects.backends.sql.consumers import Consumer
from resource_objects.backends.sql.places import MOST_CHANGES, Places
from resource_objects.backends.sql.statements import Insert, Sized, chosen, listed
from resource_objects.providers.settle import Settled

_allocations = schema.allocations.c


def _change_query(ids: int, amounts: int) -> sa.Update:
    return (
        sa.update(schema.allocations)
        .where(listed(_allocations.id, "ids", ids))
        .values(used=chosen(_allocations.id, "ids", "amounts", ids))
    )


def _drop_query(ids: int) -> sa.Delete:
    return sa.delete(schema.allocations).where(listed(_allocations.id, "ids", ids))


def _numbers_query(ids: int) -> sa.Select[*tuple[Any, ...]]:
    return sa.select(
        _allocations.consumer_id, _allocations.provider_id, _allocations.class_id, _allocations.id
    ).where(listed(_allocations.consumer_id, "ids", ids))


_CHANGE = Sized(_change_query)
_DROP = Sized(_drop_query)
_NUMBERS = Sized(_numbers_query)
_MAKE = Insert(schema.allocations, "consumer_id", "provider_id", "class_id", "used")

#: (consumer's number, provider's number, class's number): what an allocation is known by
_Row = tuple[int, int, int]


class Work:
    """What shall happen to allocations and units, collected, then done with a few statements."""

    def __init__(self, at: Places) -> None:
        self._at = at
        self._made: list[tuple[int, int, int, int]] = []
        self._changed: dict[int, int] = {}
        self._dropped: list[int] = []
        self._emptied: list[int] = []  # of units
        self._taken: dict[_Row, Sequence[str]] = {}
        self._numbers: dict[_Row, int] = {}

    def give_back(self, settled: Settled, kept: Consumer) -> None:
        """Take note of what a consumer that goes has units of; it goes with its allocations."""
        for shift in settled.shifts:
            if shift.given:
                self._emptied.append(kept.holdings[shift.key].number)

    def add(self, settled: Settled, kept: Consumer | None, consumer: int) -> None:
        """Take note of what changes for a consumer that stays or is new."""
        units_now = {held.key: held.units for held in settled.claim.held}
        for shift in settled.shifts:
            place = self._at.by_key[shift.key]
            row = (consumer, place.provider_id, place.class_id)
            holding = None if kept is None else kept.holdings.get(shift.key)
            if holding is None:
                self._made.append((*row, shift.after))
            else:
                self._numbers[row] = holding.number
                if not shift.after:
                    self._dropped.append(holding.number)
                elif shift.after != shift.before:
                    self._changed[holding.number] = shift.after
                if shift.given:
                    self._emptied.append(holding.number)
            if shift.given or shift.taken:
                # of one that gives some back, all that are left are written anew
                self._taken[row] = units_now.get(shift.key, ()) if shift.given else shift.taken

    def free(self, connection: Connection) -> None:
        """Write what is given back."""
        units.give_back(connection, self._emptied)
        for part in chunks(self._dropped):
            _DROP.run(connection, ids=part)
        if len(self._changed) > MOST_CHANGES:
            changed = [{"id": number, "used": used} for number, used in self._changed.items()]
            rows.update(connection, schema.allocations, ["id"], changed)
        elif self._changed:
            ids, amounts = list(self._changed), list(self._changed.values())
            _CHANGE.run(connection, ids=ids, amounts=amounts)

    def take(self, connection: Connection) -> None:
        """Write what is taken."""
        if self._made:
            _MAKE.many(connection, self._made)
        taken = {row: names for row, names in self._taken.items() if names}
        if not taken:
            return
        numbers = self._numbered(connection, taken)
        found = [(row[1], unit, numbers[row]) for row, names in taken.items() for unit in names]
        units.take(connection, sorted(found))

    def _numbered(
        self, connection: Connection, wanted: Mapping[_Row, Sequence[str]]
    ) -> dict[_Row, int]:
        """Return the numbers of allocations, of those just made too."""
        found = dict(self._numbers)
        new = sorted({row[0] for row in wanted if row not in found})
        for part in chunks(new):
            for consumer, provider, class_, number in _NUMBERS.rows(connection, ids=part):
                found[consumer, provider, class_] = number
        return found
