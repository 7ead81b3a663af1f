"""What agents tell of providers beside what they have, as rows; and when they reported last.

Locks: the providers, by number as everybody locks them (shared, unless they report), then their
rows of statistics, by key, before they are compared: of two sources that tell of one provider, the
second sees what the first has written. A row that somebody else makes at the same moment is a
duplicate: all of it is done again. Nothing that a claim changes is locked.

Many providers take as many statements as one: their rows are read, compared, and written in bulk.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from resource_objects import exceptions
from resource_objects.backends.sql import statements, tables
from resource_objects.backends.sql.statements import Sized, chunks, from_moment, listed, moment
from resource_objects.providers.statistics import (
    KeptStatistic,
    Statistic,
    StatisticFilter,
    StatisticsByProvider,
    StatisticsOrder,
    StatisticType,
    changed,
)

_providers = tables.resource_providers.c
_types = tables.statistic_types.c
_statistics = tables.statistics.c

_VALUES = (_statistics.number, _statistics.text, _statistics.since, _statistics.source)
_KEYS = ("provider_id", "type_id")


def _kept_query(ids: int) -> sa.Select[*tuple[Any, ...]]:
    return sa.select(_statistics.provider_id, _statistics.type_id, *_VALUES).where(
        listed(_statistics.provider_id, "ids", ids)
    )


_FIND = Sized(
    lambda uuids: sa.select(_providers.id, _providers.uuid).where(
        listed(_providers.uuid, "uuids", uuids)
    )
)
_KEPT = Sized(_kept_query)
_LOCK_KEPT = Sized(
    lambda ids: (
        _kept_query(ids).order_by(_statistics.provider_id, _statistics.type_id).with_for_update()
    )
)


class _Types:
    """The statistics that are declared, by name and by number."""

    def __init__(self, rows: Iterable[Sequence[Any]]) -> None:
        self.by_number: dict[int, StatisticType] = {}
        self.numbers: dict[str, int] = {}
        for number, *said in rows:
            declared = StatisticType(*said)
            self.by_number[number] = declared
            self.numbers[declared.name] = number

    def named(self, name: str) -> StatisticType | None:
        """Return the one of a name."""
        number = self.numbers.get(name)
        return None if number is None else self.by_number[number]

    @classmethod
    def read(cls, connection: Connection) -> _Types:
        """Read all of them: they are as many as agents have words."""
        columns = (_types.id, _types.name, _types.value_type, _types.unit, _types.description)
        return cls(connection.execute(sa.select(*columns)).all())


class _Rows:
    """The rows that an order makes, changes and removes."""

    def __init__(self) -> None:
        self.new: list[dict[str, Any]] = []
        self.other: list[dict[str, Any]] = []
        self.gone: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self.new) + len(self.other) + len(self.gone)


def is_news(connection: Connection, order: StatisticsOrder) -> bool:
    """Return whether an order changes anything, without a lock.

    Cost: three queries, for thousands of providers.

    :raises ProviderNotFound, StatisticConflict: as :func:`put`
    """
    if order.reported:
        return True
    numbers = {
        uuid: number
        for part in chunks(sorted(order.providers))
        for number, uuid in _FIND.rows(connection, uuids=part)
    }
    types = _Types.read(connection)
    _check_providers(order, numbers)
    undeclared, described = _declared(order, types)
    return bool(undeclared or described or _changes(connection, order, numbers, types))


def put(
    connection: Connection,
    order: StatisticsOrder,
    numbers: Mapping[str, int],
    now: datetime.datetime,
) -> int:
    """Write what is another; return how many values these are (see the contract).

    Cost: two queries, and up to six statements.

    :param numbers: those of the providers, by uuid, which are locked
    """
    _check_providers(order, numbers)
    types = _Types.read(connection)
    undeclared, described = _declared(order, types)
    if undeclared:
        statements.insert(connection, tables.statistic_types, [_type_row(o) for o in undeclared])
        types = _Types.read(connection)
    rows = [{"name": one.name, "description": one.description} for one in described]
    statements.update(connection, tables.statistic_types, ["name"], rows)
    found = _changes(connection, order, numbers, types, now)
    statements.insert(connection, tables.statistics, found.new)
    statements.update(connection, tables.statistics, _KEYS, found.other)
    statements.delete(connection, tables.statistics, found.gone)
    return len(found)


def _type_row(declared: StatisticType) -> dict[str, Any]:
    said = declared.to_dict()
    return {"value_type": said.pop("type"), **said}


def _check_providers(order: StatisticsOrder, numbers: Mapping[str, int]) -> None:
    for uuid in sorted(order.providers):
        if uuid not in numbers:
            raise exceptions.ProviderNotFound(uuid)


def _declared(
    order: StatisticsOrder, types: _Types
) -> tuple[list[StatisticType], list[StatisticType]]:
    """Return the statistics that are not declared, and those that are described anew, by name.

    :raises StatisticConflict: if one is declared otherwise
    """
    undeclared = []
    for name, declared in sorted(order.declared().items()):
        known = types.named(name)
        if known is None:
            undeclared.append(declared)
        else:
            known.require(declared)
    described = [
        one
        for one in sorted(order.types, key=lambda one: one.name)
        for known in [types.named(one.name)]
        if known is not None and known.description != one.description
    ]
    return undeclared, described


def _changes(
    connection: Connection,
    order: StatisticsOrder,
    numbers: Mapping[str, int],
    types: _Types,
    now: datetime.datetime | None = None,
) -> _Rows:
    """Return what an order changes of the values that are kept.

    :param now: None: only how many they are is wanted, and nothing is locked
    :returns: the rows to make and to change by key, as everybody writes them
    """
    found = _Rows()
    query = _KEPT if now is None else _LOCK_KEPT
    kept = _kept(connection, query, [numbers[uuid] for uuid in order.values], types)
    for number, said in sorted((numbers[uuid], said) for uuid, said in order.values.items()):
        here = kept.get(number, {})
        written, gone = changed(here, said, order.source, now)
        for name, one in sorted(written.items(), key=lambda item: types.numbers[item[0]]):
            row = {
                "provider_id": number,
                "type_id": types.numbers[name],
                "number": one.stored[0],
                "text": one.stored[1],
                "since": moment(connection, one.since),
                "source": one.source,
            }
            (found.other if name in here else found.new).append(row)
        found.gone += ({"provider_id": number, "type_id": types.numbers[name]} for name in gone)
    return found


def _kept(
    connection: Connection, query: Sized, providers: Collection[int], types: _Types
) -> dict[int, dict[str, KeptStatistic]]:
    """Return what is kept of some providers, by number and name."""
    found: defaultdict[int, dict[str, KeptStatistic]] = defaultdict(dict)
    for part in chunks(sorted(providers)):
        for provider, type_, number, text, since, source in query.rows(connection, ids=part):
            declared = types.by_number.get(type_)
            if declared is not None:  # else somebody has declared and told it since
                kept = KeptStatistic((number, text), source, from_moment(since))
                found[provider][declared.name] = kept
    return found


# --- reading --------------------------------------------------------------------------------------


def read(connection: Connection, wanted: StatisticFilter) -> StatisticsByProvider:
    """Return the statistics of a filter (see the contract).

    Cost: a query of what is declared, and one of all values.

    :raises InvalidField: if it names more than a statement takes
    """
    types = _Types.read(connection)
    query = (
        sa.select(_providers.name, _statistics.type_id, *_VALUES)
        .join_from(tables.statistics, tables.resource_providers)
        .where(*_of(wanted, types))
        .order_by(_providers.id)
    )
    found: dict[str, list[Statistic]] = {}
    for provider, type_, number, text, since, source in connection.execute(query):
        one = Statistic.from_stored(
            types.by_number[type_], (number, text), from_moment(since), source
        )
        found.setdefault(provider, []).append(one)
    return {
        provider: {one.name: one for one in sorted(some, key=lambda one: one.name)}
        for provider, some in found.items()
    }


def declared(connection: Connection) -> tuple[StatisticType, ...]:
    """Return the statistics that are declared, by name. Cost: a query."""
    types = _Types.read(connection).by_number.values()
    return tuple(sorted(types, key=lambda one: one.name))


def forget(connection: Connection, wanted: StatisticFilter) -> int:
    """Forget the statistics of a filter (see the contract). Cost: two or three statements."""
    types = _Types.read(connection)
    gone = sa.delete(tables.statistics).where(*_of(wanted, types))
    count = connection.execute(gone).rowcount
    if wanted.providers is None:
        names = types.numbers if wanted.names is None else wanted.names
        numbers = [types.numbers[name] for name in names if name in types.numbers]
        # one that somebody tells at this moment is refused, and all of it is done again
        for part in chunks(sorted(numbers)):
            connection.execute(sa.delete(tables.statistic_types).where(_types.id.in_(part)))
    return count


def _of(wanted: StatisticFilter, types: _Types) -> list[sa.ColumnElement[bool]]:
    """Return what a filter asks of a statistic."""
    given = (wanted.providers, wanted.names)
    statements.refuse_too_many([some for some in given if some is not None])
    found: list[sa.ColumnElement[bool]] = []
    if wanted.providers is not None:
        of = sa.select(_providers.id).where(_providers.uuid.in_(sorted(wanted.providers)))
        found.append(_statistics.provider_id.in_(of))
    if wanted.names is not None:
        numbers = [types.numbers[name] for name in sorted(wanted.names) if name in types.numbers]
        found.append(_statistics.type_id.in_(numbers))
    return found
