"""The figures of inventories: put, changed and dropped, never what is used of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import rows, schema
from resource_objects.backends.sql.chunks import chunks
from resource_objects.backends.sql.retry import Transient
from resource_objects.resources.records import InventoryRecord

#: (provider's number, class's number)
Key: TypeAlias = tuple[int, int]

_inventories = schema.inventories.c
_NAMES = (
    *("total", "reserved", "min_unit", "max_unit", "step_size"),
    *("ratio_millionths", "capacity"),
)
_FIND = sa.select(
    _inventories.provider_id,
    _inventories.class_id,
    _inventories.id,
    _inventories.used,
    _inventories.shares,
    _inventories.writes,
).where(_inventories.provider_id.in_(sa.bindparam("providers", expanding=True)))
# by primary key, so that InnoDB, which locks rows as it meets them, meets them in this order
_LOCK = (
    sa.select(_inventories.id, _inventories.used, _inventories.shares)
    .where(_inventories.id.in_(sa.bindparam("numbers", expanding=True)))
    .order_by(_inventories.id)
    .with_for_update()
)
_DROP = sa.delete(schema.inventories).where(
    _inventories.id.in_(sa.bindparam("numbers", expanding=True))
)


class Figures:
    """What happens to the inventories of a definition, collected, then done by few statements."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._put: dict[Key, InventoryRecord] = {}
        self._drop: dict[Key, exceptions.LedgerError] = {}
        self._drop_all: dict[int, exceptions.LedgerError] = {}
        self._numbers: dict[Key, int] = {}
        self._used: dict[int, int] = {}
        self._shares: dict[int, int] = {}

    # --- what shall happen ---

    def put(self, provider: int, class_: int, record: InventoryRecord) -> None:
        """Make an inventory, or give the one that is there these figures."""
        self._put[provider, class_] = record

    def drop(self, provider: int, class_: int, in_use: exceptions.LedgerError) -> None:
        """Drop an inventory at the end, or raise ``in_use``."""
        self._drop[provider, class_] = in_use

    def drop_all(self, provider: int, in_use: exceptions.LedgerError) -> None:
        """Drop all inventories of a provider at the end, or raise ``in_use``."""
        self._drop_all[provider] = in_use

    # --- looking ---

    def lock(
        self, others: Iterable[Key], made: Iterable[int], numbers: Collection[int] = ()
    ) -> None:
        """Find and lock the inventories concerned, and others, in the order that claims do.

        :param made: numbers of providers that were just made, which have none
        :param numbers: of further inventories, which the orders of the same write are about
        """
        wanted = {*self._put, *self._drop, *others}
        providers = {*self._drop_all, *(key[0] for key in wanted)} - set(made)
        self._numbers = {
            key: number
            for key, number, *_ in self._find(providers)
            if key in wanted or key[0] in self._drop_all
        }
        locked = {*self._numbers.values(), *numbers}
        for part in chunks(sorted(locked)):
            for number, used, shares in self._connection.execute(_LOCK, {"numbers": part}):
                self._used[number] = used
                self._shares[number] = shares
        if len(self._used) != len(locked):
            raise Transient(exceptions.DatabaseBusy("inventory", "it was removed in between"))

    def _find(self, providers: Iterable[int]) -> Iterable[tuple[Key, int, int, int, int]]:
        """Yield ``(key, number, used, shares, writes)`` of every inventory of some providers."""
        for part in chunks(sorted(providers)):
            for provider, class_, *rest in self._connection.execute(_FIND, {"providers": part}):
                yield (provider, class_), *rest

    def is_there(self, key: Key) -> bool:
        """Return whether an inventory is there, or will be."""
        return key in self._numbers or key in self._put

    def is_used(self, key: Key) -> bool:
        """Return whether anything is used of a locked inventory."""
        return bool(self._used.get(self._numbers.get(key, 0)))

    # --- writing ---

    def write(self, shares: Mapping[Key, int]) -> None:
        """Make and change inventories; ``shares`` are how many each of some has now."""
        found = [
            {
                "provider_id": key[0],
                "class_id": key[1],
                **_figures(record),
                "used": 0,
                "shares": shares.get(key, 0),
            }
            for key, record in self._put.items()
            if key not in self._numbers
        ]
        rows.insert(self._connection, schema.inventories, found)
        changed = {
            self._numbers[key]: _figures(record)
            for key, record in self._put.items()
            if key in self._numbers
        }
        self._update(changed)
        self._update(
            {
                self._numbers[key]: {"shares": count}
                for key, count in shares.items()
                if key in self._numbers and self._shares[self._numbers[key]] != count
            }
        )

    def set_used(self, used: Mapping[Key, int]) -> None:
        """Write what is used of inventories that are locked or were just made."""
        found = [
            {"used": amount, "provider_id": key[0], "class_id": key[1]}
            for key, amount in sorted(used.items())
        ]
        rows.update(self._connection, schema.inventories, ["provider_id", "class_id"], found)

    def _update(self, values: Mapping[int, Mapping[str, Any]]) -> None:
        found = [{**given, "id": number} for number, given in sorted(values.items())]
        rows.update(self._connection, schema.inventories, ["id"], found)

    # --- what goes ---

    def going(self) -> dict[Key, exceptions.LedgerError]:
        """Return what goes, with what is raised if it is used."""
        every = {key: self._drop_all[key[0]] for key in self._numbers if key[0] in self._drop_all}
        return {key: error for key, error in self._drop.items() if key in self._numbers} | every

    def remove(self) -> dict[int, int]:
        """Drop what goes, if nobody uses it; return ``{provider: writes of allocations there}``."""
        going = self.going()
        numbers: list[int] = []
        writes: dict[int, int] = {}
        for key, number, used, _, written in self._find({key[0] for key in going}):
            if key not in going:
                continue
            if used:
                raise going[key]
            numbers.append(number)
            if written:
                writes[key[0]] = writes.get(key[0], 0) + written
        for part in chunks(sorted(numbers)):
            self._connection.execute(_DROP, {"numbers": part})
        return writes


def _figures(record: InventoryRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _NAMES}
