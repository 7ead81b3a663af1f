"""The figures of inventories: put, changed and dropped, never what is used of them."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import schema
from resource_objects.backends.sql.chunks import chunks
from resource_objects.backends.sql.places import lock
from resource_objects.resources.records import InventoryRecord

_inventories = schema.inventories.c
_NAMES = (
    *("total", "reserved", "min_unit", "max_unit", "step_size"),
    *("ratio_millionths", "capacity"),
)
_FIND = sa.select(
    _inventories.provider_id, _inventories.class_id, _inventories.id, _inventories.used
).where(_inventories.provider_id.in_(sa.bindparam("providers", expanding=True)))
_PUT = sa.insert(schema.inventories)
_CHANGE = (
    sa.update(schema.inventories)
    .where(_inventories.id == sa.bindparam("number"))
    .values({name: sa.bindparam(f"to_{name}") for name in _NAMES})
)
_DROP = sa.delete(schema.inventories).where(
    _inventories.id.in_(sa.bindparam("numbers", expanding=True))
)

#: (provider's number, class's number)
Key = tuple[int, int]


class Work:
    """What shall happen to inventories, collected, then done with a few statements."""

    def __init__(self) -> None:
        self._put: dict[Key, InventoryRecord] = {}
        self._drop: dict[Key, exceptions.LedgerError] = {}
        self._drop_all: dict[int, exceptions.LedgerError] = {}

    def put(self, provider: int, class_: int, record: InventoryRecord) -> None:
        """Make an inventory, or give the one that is there these figures."""
        self._put[provider, class_] = record

    def drop(self, provider: int, class_: int, in_use: exceptions.LedgerError) -> None:
        """Drop an inventory, or raise ``in_use``."""
        self._drop[provider, class_] = in_use

    def drop_all(self, provider: int, in_use: exceptions.LedgerError) -> None:
        """Drop all inventories of a provider, or raise ``in_use``."""
        self._drop_all[provider] = in_use

    def run(self, connection: Connection) -> None:
        """Do it, on inventories locked in the order that claims lock them in."""
        there, used = self._find(connection)
        drop = self._droppable(there, used)
        changes = [
            {"number": there[key], **_figures(record, "to_")}
            for key, record in self._put.items()
            if key in there
        ]
        puts = [
            {"provider_id": key[0], "class_id": key[1], "used": 0, **_figures(record)}
            for key, record in self._put.items()
            if key not in there
        ]
        for part in chunks(drop):
            connection.execute(_DROP, {"numbers": part})
        if changes:
            connection.execute(_CHANGE, sorted(changes, key=lambda values: values["number"]))
        if puts:
            connection.execute(_PUT, puts)

    def _find(self, connection: Connection) -> tuple[dict[Key, int], dict[int, int]]:
        """Return the numbers of the inventories concerned, and what is used of each, locked."""
        there: dict[Key, int] = {}
        used: dict[int, int] = {}
        providers = {*self._drop_all, *(key[0] for key in (*self._put, *self._drop))}
        for part in chunks(sorted(providers)):
            for provider, class_, number, used_now in connection.execute(
                _FIND, {"providers": part}
            ):
                key = provider, class_
                if key in self._put or key in self._drop or provider in self._drop_all:
                    there[key] = number
                    used[number] = used_now
        for row in lock(connection, there.values()):
            used[row[0]] = row[-1]
        return there, used

    def _droppable(self, there: dict[Key, int], used: dict[int, int]) -> list[int]:
        drop = []
        for key, number in there.items():
            in_use = self._drop.get(key) or self._drop_all.get(key[0])
            if in_use is None:
                continue
            if used[number]:
                raise in_use
            drop.append(number)
        return drop


def _figures(record: InventoryRecord, prefix: str = "") -> dict[str, Any]:
    return {f"{prefix}{name}": getattr(record, name) for name in _NAMES}
