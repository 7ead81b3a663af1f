"""Who holds what: kept as it came, and put in order when it is first asked, which is seldom.

A refreshed snapshot has the rows of the old one. What changed since is laid over them, provider by
provider, and is only put together with what was there when somebody asks for that provider. They
are known by keys that providers keep, so nothing here moves when others come and go.
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
#: Changes that nobody looked at are put together when they are more than the rows and these.
FEW_UNSEEN = 64


class _Read:
    """Rows as they were read: the keys of their providers, and columns."""

    __slots__ = ("_sorted", "columns", "key")

    def __init__(self, key: Integers, columns: Sequence[Sequence[Any]]) -> None:
        self.key: Integers = frozen(key)
        self.columns = tuple(columns)
        self._sorted: tuple[Integers, Integers] | None = None

    def of(self, key: int) -> tuple[Row, ...]:
        """Return the rows of a provider. Cost: the first time a sort, then two searches."""
        if self._sorted is None:  # two threads may both sort: the outcome is the same
            ordered = np.argsort(self.key, kind="stable")
            self._sorted = ordered, self.key[ordered]
        ordered, keys = self._sorted
        start, end = keys.searchsorted((key, key + 1)).tolist()
        rows = ordered[start:end].tolist()
        return tuple([tuple([column[row] for column in self.columns]) for row in rows])

    def of_each(self, keys: Integers) -> Iterator[tuple[Row, ...]]:
        """Yield the rows of some providers, in their order. Cost: as of one, and each two more."""
        self.of(0)  # sorts
        assert self._sorted is not None, "they are sorted"
        ordered, known = self._sorted
        starts = known.searchsorted(keys).tolist()
        ends = known.searchsorted(keys, side="right").tolist()
        at = ordered.tolist()
        columns = self.columns
        for start, end in zip(starts, ends, strict=True):
            yield tuple([tuple([column[row] for column in columns]) for row in at[start:end]])


class _Unseen(NamedTuple):
    """Changes that nobody looked at, after those before; None: after what was read first."""

    before: _Laid | None
    changes: tuple[Change, ...]
    unseen: int  #: of these, and of those before that nobody looked at
    known: int  #: how many rows there were when somebody looked


class _Laid:
    """The rows of one provider, which may have to be put together."""

    __slots__ = ("state",)

    def __init__(self, state: tuple[Row, ...] | _Unseen) -> None:
        # one attribute, set once more when the rows are known: a thread sees the one or the other
        self.state = state


class Rows:
    """Rows of providers, by their places: columns, and what is laid over them since."""

    __slots__ = ("_keys", "_laid", "_read")

    def __init__(
        self, columns: AllocationColumns | UnitColumns, place: PlaceIndex, keys: Keys
    ) -> None:
        self._keys = keys
        self._read = _Read(keys.at[place.of(columns.provider_id)], _shared(columns[1:]))
        self._laid: Overlay[int, _Laid] = Overlay({})

    def _after(self, rows: Iterable[Row], changes: Iterable[Change]) -> tuple[Row, ...]:
        """Return the rows of a provider after changes."""
        raise NotImplementedError

    def of_provider(self, provider: int) -> tuple[Row, ...]:
        """Return the rows of a provider. Cost: linear in them and in what changed since, once."""
        key = int(self._keys.at[provider])
        laid = self._laid.get(key)
        return self._read.of(key) if laid is None else self._seen(key, laid)

    def of_each(self, providers: Integers) -> Iterator[tuple[Row, ...]]:
        """Yield the rows of many providers, in their order. Cost: a microsecond for each row."""
        keys = self._keys.at[providers]
        for key, rows in zip(keys.tolist(), self._read.of_each(keys), strict=True):
            laid = self._laid.get(key)
            yield rows if laid is None else self._seen(key, laid)

    def _seen(self, key: int, laid: _Laid) -> tuple[Row, ...]:
        """Put the rows of a provider together, for good."""
        unseen: list[tuple[Change, ...]] = []
        one = laid
        while isinstance(state := one.state, _Unseen):
            unseen.append(state.changes)
            if state.before is None:
                state = self._read.of(key)
                break
            one = state.before
        for changes in reversed(unseen):
            state = self._after(state, changes)
        laid.state = state
        return state

    def all(self, first: Container[Any] | None = None) -> Iterator[tuple[int, Row]]:
        """Yield every row with the place of its provider. Cost: linear in all of them.

        :param first: only those are wanted that begin with one of these
        """
        laid = dict(self._laid.items())
        columns = self._read.columns
        places = self._keys.places(self._read.key).tolist()
        every = zip(places, self._read.key.tolist(), *columns, strict=True)
        for place, key, *row in every:
            if (first is None or row[0] in first) and place >= 0 and key not in laid:
                yield place, tuple(row)
        for key, place in zip(laid, self._places(laid), strict=True):
            for found in self._seen(key, laid[key]):
                if first is None or found[0] in first:
                    yield place, found

    def _places(self, keys: Iterable[int]) -> list[int]:
        found: list[int] = self._keys.places(integers(list(keys))).tolist()
        return found

    def none(self) -> Self:
        """Return no rows, of the same providers."""
        found = object.__new__(type(self))
        found._keys, found._laid = self._keys, Overlay({})
        found._read = _Read(integers(()), [()] * len(self._read.columns))
        return found

    # --- refreshed ---

    def after(self, changes: Mapping[int, tuple[Change, ...]]) -> Self:
        """Return them after changes at some providers, by their places. Cost: linear in these."""
        if not changes:
            return self
        at = self._keys.at
        laid: dict[int, _Laid | None] = {}
        for place, some in changes.items():
            key = int(at[place])
            laid[key] = self._unseen(key, self._laid.get(key), some)
        return self._like(self._keys, laid)

    def _unseen(self, key: int, before: _Laid | None, changes: tuple[Change, ...]) -> _Laid:
        unseen, known = len(changes), 0
        if before is not None:
            state = before.state
            if isinstance(state, _Unseen):
                unseen, known = unseen + state.unseen, state.known
            else:
                known = len(state)
        found = _Laid(_Unseen(before, changes, unseen, known))
        if unseen > known + FEW_UNSEEN:  # else what nobody asks for would grow for ever
            self._seen(key, found)
        return found

    def spliced(self, keys: Keys, gone: Integers, rows: Mapping[int, tuple[Row, ...]]) -> Self:
        """Return them where some providers went and others came.

        :param keys: of the providers that are there now
        :param gone: the places that others had
        :param rows: of those that came, by the places that they have
        """
        laid: dict[int, _Laid | None] = dict.fromkeys(self._keys.at[gone].tolist())
        laid.update({int(keys.at[place]): _Laid(some) for place, some in rows.items() if some})
        return self._like(keys, laid)

    def _like(self, keys: Keys, laid: Mapping[int, _Laid | None]) -> Self:
        found = object.__new__(type(self))
        found._keys, found._read, found._laid = keys, self._read, self._laid.with_(laid)
        return found


def by_provider(rows: Iterable[tuple[int, Row]]) -> dict[int, tuple[Row, ...]]:
    """Return rows by the places of their providers. Cost: linear, for few rows."""
    found: dict[int, list[Row]] = {}
    for place, row in rows:
        found.setdefault(place, []).append(row)
    return {place: tuple(some) for place, some in found.items()}


class Allocations(Rows):
    """Who holds how much at which provider: ``(resource class, consumer, amount)``."""

    __slots__ = ()

    def _after(self, rows: Iterable[Row], changes: Iterable[Change]) -> tuple[Row, ...]:
        held = {(name, consumer): amount for name, consumer, amount in rows}
        for one in changes:
            held[one.key[1], one.consumer] = one.after
        return tuple([(*key, amount) for key, amount in held.items() if amount])

    def holders(self, of: Iterable[tuple[int, str, int]]) -> tuple[tuple[str, int], ...]:
        """Return ``(consumer, amount)`` of all that is taken, as :func:`by_amount` orders them.

        :param of: ``(provider, resource class, factor)``, each different: what is taken there
            counts ``factor`` times
        """
        held: dict[str, int] = {}
        for provider, resource_class, factor in of:
            for name, consumer, amount in self.of_provider(provider):
                if name == resource_class:
                    held[consumer] = held.get(consumer, 0) + factor * amount
        return tuple(sorted(held.items(), key=by_amount) if len(held) > 1 else held.items())

    def holders_of_each(
        self, resource_class: str, providers: Integers, starts: Integers
    ) -> Iterator[tuple[tuple[str, int], ...]]:
        """Yield :meth:`holders` of a class for each of some sets of providers.

        :param providers: the sets, one after the other
        :param starts: where each begins
        """
        rows = list(self.of_each(providers))
        begins = starts.tolist()
        for start, end in itertools.pairwise([*begins, len(rows)]):
            held: dict[str, int] = {}
            for some in rows[start:end]:
                for name, consumer, amount in some:
                    if name == resource_class:
                        held[consumer] = held.get(consumer, 0) + amount
            yield tuple(sorted(held.items(), key=by_amount) if len(held) > 1 else held.items())

    def of(self, providers: Iterable[int]) -> Iterator[tuple[int, str, str, int]]:
        """Yield ``(provider, resource class, consumer, amount)`` of some providers."""
        for provider in providers:
            for name, consumer, amount in self.of_provider(provider):
                yield provider, name, consumer, amount


class Units(Rows):
    """Which units are taken, and by whom: ``(unit, resource class, consumer)``."""

    __slots__ = ()

    def _after(self, rows: Iterable[Row], changes: Iterable[Change]) -> tuple[Row, ...]:
        taken = {row[0]: row for row in rows}
        for one in changes:
            for unit in one.released_units:
                taken.pop(unit, None)
            taken.update({unit: (unit, one.key[1], one.consumer) for unit in one.allocated_units})
        return tuple(sorted(taken.values()))

    def taken(self, units: Iterable[str]) -> dict[int, tuple[str, str]]:
        """Return, of the providers where some of these are taken, one of them and its holder.

        Cost: linear in the units that are taken anywhere.
        """
        wanted = frozenset(units)
        found = [(row[0], row[2], provider) for provider, row in self.all(wanted)]
        taken: dict[int, tuple[str, str]] = {}
        for unit, consumer, provider in sorted(found, key=lambda one: one[0]):
            taken.setdefault(provider, (unit, consumer))
        return taken

    def of(self, providers: Iterable[int]) -> Iterator[tuple[int, str, str, str]]:
        """Yield ``(provider, unit, resource class, consumer)`` of some providers."""
        for provider in providers:
            for unit, name, consumer in self.of_provider(provider):
                yield provider, unit, name, consumer


def _shared(columns: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return columns with equal values kept once: a name stands in many rows."""
    known: dict[Any, Any] = {}
    return [tuple([known.setdefault(value, value) for value in column]) for column in columns]
