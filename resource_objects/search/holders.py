"""The allocations and allocated units of the providers of a fleet.

Rows stay as they were read, and are sorted when the first of them is needed. A fleet after changes
has the same rows, and the changes of each provider, which are applied when the rows of that
provider are needed. Providers are identified by their keys, so nothing moves when others are added
or removed.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from resource_objects.providers.columns import AllocationColumns, UnitColumns
from resource_objects.providers.decision import by_amount
from resource_objects.providers.orders import Change
from resource_objects.search.arrays import Integers, Keys, Overlay, PlaceIndex, frozen, integers

#: One row, without its provider.
Row: TypeAlias = "tuple[Any, ...]"
#: Changes that were not applied yet are applied when they are more than the rows and this number.
MAX_PENDING = 64


class _Table:
    """Rows as they were read: the keys of their providers, and columns."""

    __slots__ = ("_sorted", "columns", "key")

    def __init__(self, key: Integers, columns: Iterable[Sequence[Any]]) -> None:
        self.key: Integers = frozen(key)
        self.columns = tuple(columns)
        self._sorted: tuple[Integers, Integers] | None = None

    @property
    def sorted(self) -> tuple[Integers, Integers]:
        """The numbers of the rows in the order of their keys, and these keys."""
        if self._sorted is None:  # two threads may both sort: the outcome is the same
            order = np.argsort(self.key, kind="stable")
            self._sorted = order, self.key[order]
        return self._sorted

    def of(self, key: int) -> tuple[Row, ...]:
        """Return the rows of a provider. Cost: the first time a sort, then two searches."""
        order, keys = self.sorted
        start, end = keys.searchsorted((key, key + 1)).tolist()
        return self._rows(order[start:end].tolist())

    def of_each(self, keys: Integers) -> Iterator[tuple[Row, ...]]:
        """Yield the rows of each of some providers. Cost: linear in all rows."""
        order, known = self.sorted
        numbers = order.tolist()
        starts = known.searchsorted(keys).tolist()
        ends = known.searchsorted(keys, side="right").tolist()
        for start, end in zip(starts, ends, strict=True):
            yield self._rows(numbers[start:end])

    def _rows(self, numbers: list[int]) -> tuple[Row, ...]:
        return tuple([tuple([column[row] for column in self.columns]) for row in numbers])


class _Pending(NamedTuple):
    """Changes of a provider that are not applied yet."""

    before: _Changed | None  #: the rows that they apply to; None for the rows as they were read
    changes: tuple[Change, ...]
    total: int  #: of these changes, and of those of ``before`` that are pending
    known: int  #: the number of rows when the changes before were applied


class _Changed:
    """The rows of one provider after changes."""

    __slots__ = ("state",)

    def __init__(self, state: tuple[Row, ...] | _Pending) -> None:
        # one attribute, which is replaced when the rows are known: a thread reads either state
        self.state = state


class Rows:
    """The rows of providers, by their places."""

    __slots__ = ("_changed", "_keys", "_table")

    def __init__(
        self, columns: AllocationColumns | UnitColumns, place: PlaceIndex, keys: Keys
    ) -> None:
        self._keys = keys
        self._table = _Table(keys.at[place.of(columns.provider_id)], _shared(columns[1:]))
        self._changed: Overlay[int, _Changed] = Overlay({})

    def _after(self, rows: Iterable[Row], changes: Iterable[Change]) -> tuple[Row, ...]:
        """Return the rows of a provider after changes."""
        raise NotImplementedError

    def of_provider(self, provider: int) -> tuple[Row, ...]:
        """Return the rows of a provider. Cost: linear in them, and once in its changes."""
        key = int(self._keys.at[provider])
        changed = self._changed.get(key)
        return self._table.of(key) if changed is None else self._applied(key, changed)

    def of_each(self, providers: Integers) -> Iterator[tuple[Row, ...]]:
        """Yield the rows of each of many providers. Cost: a microsecond for each row."""
        keys = self._keys.at[providers]
        for key, rows in zip(keys.tolist(), self._table.of_each(keys), strict=True):
            changed = self._changed.get(key)
            yield rows if changed is None else self._applied(key, changed)

    def _applied(self, key: int, changed: _Changed) -> tuple[Row, ...]:
        """Return the rows of a provider after its changes, and store them."""
        pending: list[tuple[Change, ...]] = []
        state = changed.state
        while isinstance(state, _Pending):
            pending.append(state.changes)
            state = self._table.of(key) if state.before is None else state.before.state
        for changes in reversed(pending):
            state = self._after(state, changes)
        changed.state = state
        return state

    def all(self, first: Container[Any] | None = None) -> Iterator[tuple[int, Row]]:
        """Yield every row with the place of its provider. Cost: linear in all rows.

        :param first: only rows whose first value is one of these
        """
        changed = dict(self._changed.items())
        places = self._keys.places(self._table.key).tolist()
        rows = zip(places, self._table.key.tolist(), *self._table.columns, strict=True)
        for place, key, *row in rows:
            if (first is None or row[0] in first) and place >= 0 and key not in changed:
                yield place, tuple(row)
        places = self._keys.places(integers(list(changed))).tolist()
        for place, (key, one) in zip(places, changed.items(), strict=True):
            for values in self._applied(key, one):
                if first is None or values[0] in first:
                    yield place, values

    # --- rows of other fleets ---

    def none(self) -> Self:
        """Return no rows of the same providers."""
        table = _Table(integers(()), [()] * len(self._table.columns))
        return self._evolved(self._keys, table, Overlay({}))

    def after(self, changes: Mapping[int, tuple[Change, ...]]) -> Self:
        """Return the rows after changes at some places. Cost: linear in the changes."""
        if not changes:
            return self
        changed: dict[int, _Changed | None] = {}
        for place, some in changes.items():
            key = int(self._keys.at[place])
            changed[key] = self._pending(key, self._changed.get(key), some)
        return self._evolved(self._keys, self._table, self._changed.with_(changed))

    def _pending(self, key: int, before: _Changed | None, changes: tuple[Change, ...]) -> _Changed:
        count, known = len(changes), 0
        if before is not None:
            state = before.state
            if isinstance(state, _Pending):
                count, known = count + state.total, state.known
            else:
                known = len(state)
        changed = _Changed(_Pending(before, changes, count, known))
        if count > known + MAX_PENDING:  # rows that are never read do not grow for ever
            self._applied(key, changed)
        return changed

    def spliced(self, keys: Keys, gone: Integers, rows: Mapping[int, tuple[Row, ...]]) -> Self:
        """Return the rows after some providers were removed and others added.

        :param keys: of the providers after that
        :param gone: the places that removed providers had
        :param rows: of the added providers, by their places
        """
        changed: dict[int, _Changed | None] = dict.fromkeys(self._keys.at[gone].tolist())
        changed.update(
            {int(keys.at[place]): _Changed(some) for place, some in rows.items() if some}
        )
        return self._evolved(keys, self._table, self._changed.with_(changed))

    def _evolved(self, keys: Keys, table: _Table, changed: Overlay[int, _Changed]) -> Self:
        rows = object.__new__(type(self))
        rows._keys, rows._table, rows._changed = keys, table, changed
        return rows


def by_provider(rows: Iterable[tuple[int, Row]]) -> dict[int, tuple[Row, ...]]:
    """Return rows by the places of their providers."""
    grouped: dict[int, list[Row]] = {}
    for place, row in rows:
        grouped.setdefault(place, []).append(row)
    return {place: tuple(some) for place, some in grouped.items()}


class Allocations(Rows):
    """The allocations at providers: ``(resource class, consumer, amount)``."""

    __slots__ = ()

    def _after(self, rows: Iterable[Row], changes: Iterable[Change]) -> tuple[Row, ...]:
        amounts = {(name, consumer): amount for name, consumer, amount in rows}
        for change in changes:
            amounts[change.key[1], change.consumer] = change.after
        return tuple([(*key, amount) for key, amount in amounts.items() if amount])

    def holders(self, of: Iterable[tuple[int, str, int]]) -> tuple[tuple[str, int], ...]:
        """Return ``(consumer, amount)`` of all allocations, in the order of :func:`by_amount`.

        :param of: ``(provider, resource class, factor)``, each different: allocations there count
            ``factor`` times
        """
        amounts: dict[str, int] = {}
        for provider, resource_class, factor in of:
            for name, consumer, amount in self.of_provider(provider):
                if name == resource_class:
                    amounts[consumer] = amounts.get(consumer, 0) + factor * amount
        return _sorted(amounts)

    def holders_of_each(
        self, resource_class: str, providers: Integers, starts: Integers
    ) -> Iterator[tuple[tuple[str, int], ...]]:
        """Yield :meth:`holders` of a class for each of some sets of providers.

        :param providers: the sets, one after the other
        :param starts: the first entry of each set
        """
        rows = list(self.of_each(providers))
        for start, end in itertools.pairwise([*starts.tolist(), len(rows)]):
            amounts: dict[str, int] = {}
            for some in rows[start:end]:
                for name, consumer, amount in some:
                    if name == resource_class:
                        amounts[consumer] = amounts.get(consumer, 0) + amount
            yield _sorted(amounts)

    def of(self, providers: Iterable[int]) -> Iterator[tuple[int, str, str, int]]:
        """Yield ``(provider, resource class, consumer, amount)`` of some providers."""
        return ((provider, *row) for provider in providers for row in self.of_provider(provider))


def _sorted(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    pairs = amounts.items()
    return tuple(sorted(pairs, key=by_amount) if len(pairs) > 1 else pairs)


class Units(Rows):
    """The allocated units of providers: ``(unit, resource class, consumer)``."""

    __slots__ = ()

    def _after(self, rows: Iterable[Row], changes: Iterable[Change]) -> tuple[Row, ...]:
        units = {row[0]: row for row in rows}
        for change in changes:
            for unit in change.released_units:
                units.pop(unit, None)
            for unit in change.allocated_units:
                units[unit] = unit, change.key[1], change.consumer
        return tuple(sorted(units.values()))

    def taken(self, units: Iterable[str]) -> dict[int, tuple[str, str]]:
        """Return the first of some units that is allocated at each provider, and its consumer.

        Cost: linear in all allocated units.
        """
        rows = sorted((row[0], row[2], place) for place, row in self.all(frozenset(units)))
        first: dict[int, tuple[str, str]] = {}
        for unit, consumer, place in rows:
            first.setdefault(place, (unit, consumer))
        return first

    def of(self, providers: Iterable[int]) -> Iterator[tuple[int, str, str, str]]:
        """Yield ``(provider, unit, resource class, consumer)`` of some providers."""
        return ((provider, *row) for provider in providers for row in self.of_provider(provider))


def _shared(columns: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return columns with one object for all equal values: a name is in many rows."""
    known: dict[Any, Any] = {}
    return [tuple([known.setdefault(value, value) for value in column]) for column in columns]
