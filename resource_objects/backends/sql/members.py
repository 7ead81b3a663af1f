"""Traits and aggregates of providers: which names each has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import rows, schema
from resource_objects.backends.sql.chunks import chunks
from resource_objects.backends.sql.classes import Names
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderUpdate,
)

#: Who has which names.
_Has: TypeAlias = list[tuple[ProviderDefinition, Iterable[str]]]

#: the tables of what providers have, and the column that refers to the name
_TABLES = (
    (schema.resource_provider_traits, "trait_id"),
    (schema.resource_provider_aggregates, "aggregate_id"),
)


def set_traits(
    connection: Connection, names: Names, changes: DefinitionChanges, numbers: Mapping[str, int]
) -> None:
    """Give providers the traits that changes say. ``numbers`` are the providers', by uuid."""
    _Members(connection, names, *_TABLES[0], numbers).set(
        changes,
        lambda created: created.traits,
        lambda update: update.traits_added,
        lambda update: update.traits_removed,
    )


def set_aggregates(
    connection: Connection, names: Names, changes: DefinitionChanges, numbers: Mapping[str, int]
) -> None:
    """Make providers members of the aggregates that changes say, which are made if need be."""
    _Members(connection, names, *_TABLES[1], numbers).set(
        changes,
        lambda created: created.aggregates or (),
        lambda update: update.aggregates_added,
        lambda update: update.aggregates_removed,
    )


def forget(connection: Connection, providers: Sequence[int]) -> None:
    """Delete what providers have, by number."""
    for table, _ in _TABLES:
        for part in chunks(providers):
            connection.execute(sa.delete(table).where(table.c.provider_id.in_(part)))


class _Members:
    """The rows of one table: (provider, name)."""

    def __init__(
        self,
        connection: Connection,
        names: Names,
        table: sa.Table,
        column: str,
        numbers: Mapping[str, int],
    ) -> None:
        self._connection = connection
        self._names = names
        self._table = table
        self._column = column
        self._providers = numbers

    def set(
        self,
        changes: DefinitionChanges,
        has: Callable[[ProviderDefinition], Iterable[str]],
        gets: Callable[[ProviderUpdate], Iterable[str]],
        loses: Callable[[ProviderUpdate], Iterable[str]],
    ) -> None:
        added: _Has = [(created, has(created)) for created in changes.creates]
        added += [(update.definition, gets(update)) for update in changes.updates]
        removed: _Has = [(update.definition, loses(update)) for update in changes.updates]
        gone = self._names.find(self._connection, _all(removed))
        dropped = self._rows(removed, gone)
        if rows.delete(self._connection, self._table, dropped) != len(dropped):
            raise exceptions.StaleDefinition(changes.root, "something it had is gone")
        numbers = self._names.ensure(self._connection, _all(added))
        rows.insert(self._connection, self._table, self._rows(added, numbers))

    def _rows(self, found: _Has, numbers: Mapping[str, int]) -> list[dict[str, int]]:
        """Return the rows of who has which names, in one order for everybody."""
        made: list[dict[str, int]] = []
        for definition, names in found:
            provider = self._providers[definition.uuid]
            for name in names:
                if name not in numbers:
                    raise exceptions.StaleDefinition(definition.name, f"{name} is gone")
                made.append({"provider_id": provider, self._column: numbers[name]})
        return sorted(made, key=lambda row: (row["provider_id"], row[self._column]))


def _all(found: _Has) -> set[str]:
    return {name for _, names in found for name in names}
