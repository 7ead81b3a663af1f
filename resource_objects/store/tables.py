"""Tables of rows in memory, with indexes and a journal.

A row is immutable: a change stores another row under the same key. Every change is appended to the
journal of its tables before it is made. So the journal is the write set of a transaction, and it
can undo the transaction: at any moment, and again if the undoing is interrupted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Row = TypeVar("_Row")
_Value = TypeVar("_Value", bound=Hashable)

#: Changes in their order: (table, key, row before, row after); None for no row.
Journal: TypeAlias = "list[tuple[Table[Any, Any], Any, Any, Any]]"


class Index(Generic[_Value, _Key]):
    """The keys of the rows of a table that have a value, in the order of insertion."""

    __slots__ = ("_values", "keys")

    def __init__(self, values: Callable[[Any, Any], Collection[_Value]]) -> None:
        self._values = values
        self.keys: dict[_Value, dict[_Key, None]] = {}

    def of(self, value: _Value) -> Collection[_Key]:
        """Return the keys of the rows with a value."""
        return self.keys.get(value, ())

    def move(self, key: _Key, before: object | None, after: object | None) -> None:
        """Replace the values of one row. Doing it twice has no further effect."""
        old = () if before is None else self._values(key, before)
        new = () if after is None else self._values(key, after)
        if old == new:
            return
        for value in old:
            if value not in new and value in self.keys:
                keys = self.keys[value]
                keys.pop(key, None)
                if not keys:
                    del self.keys[value]
        for value in new:
            if value not in old:
                self.keys.setdefault(value, {})[key] = None


class UniqueIndex(Generic[_Value, _Key]):
    """The key of the row of a table that has a value. Of two such rows, the later one counts.

    So two rows can exchange their values in one transaction. That a value is used once when the
    transaction ends is a rule of the transaction.
    """

    __slots__ = ("_value", "key")

    def __init__(self, value: Callable[[Any], _Value]) -> None:
        self._value = value
        self.key: dict[_Value, _Key] = {}

    def move(self, key: _Key, before: object | None, after: object | None) -> None:
        """Replace the value of one row. Doing it twice has no further effect."""
        old = None if before is None else self._value(before)
        new = None if after is None else self._value(after)
        if old == new:
            return
        if old is not None and self.key.get(old) == key:
            del self.key[old]
        if new is not None:
            self.key[new] = key


class Table(Generic[_Key, _Row]):
    """Rows by key.

    :param journal: the journal of all tables that change together
    :param order: for :meth:`in_order`: returns the sort key of a row from its key and the row;
        None: the rows are sorted by their keys
    """

    __slots__ = ("_indexes", "_journal", "_order", "_sorted", "get", "rows")

    def __init__(self, journal: Journal, order: Callable[[Any, Any], Any] | None = None) -> None:
        self.rows: dict[_Key, _Row] = {}
        #: ``get(key)`` returns a row, or None
        self.get = self.rows.get
        self._journal = journal
        self._indexes: list[Index[Any, _Key] | UniqueIndex[Any, _Key]] = []
        self._order = order
        self._sorted: list[Any] | None = None

    def index(self, values: Callable[[_Key, _Row], Collection[_Value]]) -> Index[_Value, _Key]:
        """Add an index by the values that are computed from each row, and return it."""
        index: Index[_Value, _Key] = Index(values)
        self._indexes.append(index)
        return index

    def unique_index(self, value: Callable[[_Row], _Value]) -> UniqueIndex[_Value, _Key]:
        """Add an index by a value that only one row has, and return it."""
        index: UniqueIndex[_Value, _Key] = UniqueIndex(value)
        self._indexes.append(index)
        return index

    def __getitem__(self, key: _Key) -> _Row:
        return self.rows[key]

    def __contains__(self, key: _Key) -> bool:
        return key in self.rows

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[_Key]:
        return iter(self.rows)

    def write(self, key: _Key, row: _Row | None) -> None:
        """Insert or replace a row, and record the change in the journal; None deletes the row."""
        before = self.rows.get(key)
        self._journal.append((self, key, before, row))
        self.put_unjournaled(key, before, row)

    def put_unjournaled(self, key: _Key, before: _Row | None, after: _Row | None) -> None:
        """Replace a row without recording it in the journal: to load stored rows, or to undo.

        Doing it twice has no further effect.

        :param before: the row that the indexes contain; None for none
        """
        if after is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = after
        if before is None or after is None:
            self._sorted = None
        for index in self._indexes:
            index.move(key, before, after)

    def in_order(self) -> list[Any]:
        """Return the sort keys of all rows, sorted again if a row was inserted or deleted."""
        if self._sorted is None:
            order = self._order
            self._sorted = sorted(
                self.rows if order is None else itertools.starmap(order, self.rows.items())
            )
        return self._sorted


def changes(journal: Journal) -> Iterator[tuple[Table[Any, Any], Any, Any, Any]]:
    """Yield each changed row once: (table, key, row before the first change, row now)."""
    before: dict[tuple[int, Any], tuple[Table[Any, Any], Any]] = {}
    for table, key, row, _ in journal:
        before.setdefault((id(table), key), (table, row))
    for (_, key), (table, row) in before.items():
        now = table.get(key)
        if now != row:
            yield table, key, row, now


def undo(journal: Journal) -> None:
    """Undo the changes of a journal, the last one first, and empty it.

    If this is interrupted, it can be called again.
    """
    while journal:
        table, key, before, after = journal[-1]
        table.put_unjournaled(key, after, before)
        journal.pop()
