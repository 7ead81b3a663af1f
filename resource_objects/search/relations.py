"""The relations of the providers of a fleet: names, shares, pools, parts, allocations and units.

Arrays cannot be written, and rows do not change: a fleet after changes has other ones.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import os_traits

from resource_objects import exceptions
from resource_objects.providers.columns import (
    AllocationColumns,
    KindColumns,
    ShareColumns,
    UnitColumns,
)
from resource_objects.providers.holders import by_amount
from resource_objects.providers.orders import Change
from resource_objects.search.arrays import (
    Booleans,
    Integers,
    Keys,
    Overlay,
    PlaceIndex,
    coded,
    frozen,
    integers,
)

#: Places are fewer than 2 to the power of this.
PLACE_BITS = 40
_PLACES = (1 << PLACE_BITS) - 1


class Members(Mapping[str, Integers]):
    """The places of the providers of each name: of a trait, an aggregate or a resource class.

    An *entry* is a pair of a name and a place. Entries are sorted by name, then by place.

    >>> members = Members.of(["B", "A", "B"], integers([2, 0, 1]))
    >>> {name: places.tolist() for name, places in members.items()}
    {'A': [0], 'B': [1, 2]}
    >>> members.span("B"), members.name_of(2)
    (slice(1, 3, None), 'B')
    >>> members.find(["B", "A", "C"], integers([2, 1, 0])).tolist()
    [2, -1, -1]
    """

    __slots__ = ("_codes", "_starts", "names", "packed", "places")

    def __init__(self, names: Iterable[str], packed: Integers) -> None:
        """:param names: in order

        :param packed: the entries, in order: the position of the name, shifted to the left by
            :data:`PLACE_BITS`, plus the place. Each name has at least one
        """
        self.names = tuple(names)
        self.packed: Integers = frozen(packed)
        self.places: Integers = frozen(packed & _PLACES)
        self._codes = {name: code for code, name in enumerate(self.names)}
        self._starts = packed.searchsorted(np.arange(len(self.names) + 1) << PLACE_BITS)

    @classmethod
    def of(cls, names: Sequence[str], places: Integers) -> Members:
        """Return the members of names and places, both parallel in any order."""
        codes, code = coded(names)
        return cls(codes, np.sort((code << PLACE_BITS) + places))

    def __getitem__(self, name: str) -> Integers:
        return self.places[self.span(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._codes

    @property
    def codes(self) -> Integers:
        """The position of the name of each entry. Cost: a pass over the entries."""
        return self.packed >> PLACE_BITS

    def span(self, name: str) -> slice:
        """Return the entries of a name."""
        code = self._codes[name]
        return slice(int(self._starts[code]), int(self._starts[code + 1]))

    def name_of(self, entry: int) -> str:
        """Return the name of an entry."""
        return self.names[int(self.packed[entry]) >> PLACE_BITS]

    def names_of(self, entries: Integers) -> list[str]:
        """Return the names of entries."""
        return [self.names[code] for code in (self.packed[entries] >> PLACE_BITS).tolist()]

    def entry(self, name: str, place: int) -> int | None:
        """Return the entry of a name and place, None if there is none. Cost: a binary search."""
        code = self._codes.get(name)
        if code is None:
            return None
        key = (code << PLACE_BITS) + place
        at = int(self.packed.searchsorted(key))
        return at if at < len(self.packed) and self.packed[at] == key else None

    def find(self, names: Iterable[str], places: Integers) -> Integers:
        """Return the entries of names and places, -1 where there is none."""
        if not len(self.packed):
            return np.full(len(places), -1)
        codes = integers([self._codes.get(name, -1) for name in names])
        keys = (codes << PLACE_BITS) + places
        entries = np.minimum(self.packed.searchsorted(keys), len(self.packed) - 1)
        return np.where(self.packed[entries] == keys, entries, -1)

    def within(self, first: int, end: int) -> Iterator[tuple[str, slice]]:
        """Yield the names of the providers from ``first`` to before ``end``, each with its entries.

        Cost: two binary searches for each name, vectorised.
        """
        codes = np.arange(len(self.names)) << PLACE_BITS
        starts, stops = (self.packed.searchsorted(codes + place) for place in (first, end))
        for code in np.flatnonzero(stops > starts).tolist():
            yield self.names[code], slice(int(starts[code]), int(stops[code]))

    def spliced(self, new: Members, old_places: Integers, new_places: Integers) -> Members:
        """Return these members and new ones, at the places that they have after a splice.

        :param old_places: by the present place, -1 for removed providers
        :param new_places: by the place in ``new``
        """
        names, code_of = self.names, self._codes
        if not all(name in self for name in new):
            names = tuple(sorted({*self, *new}))
            code_of = {name: code for code, name in enumerate(names)}
        packed = _moved(self, code_of, old_places)
        added = _moved(new, code_of, new_places)
        packed = np.insert(packed, packed.searchsorted(added), added)
        members = Members(names, packed)
        counts = np.diff(members._starts)
        if counts.all():
            return members
        rank = np.cumsum(counts > 0) - 1  # no provider has some of the names any more
        names = tuple(itertools.compress(names, counts.tolist()))
        return Members(names, (rank[members.codes] << PLACE_BITS) + members.places)


def _moved(members: Members, code_of: Mapping[str, int], places: Integers) -> Integers:
    """Return the packed entries of members under other codes and places, -1 for no place."""
    moved = places[members.places]
    packed = members.packed - members.places + moved
    if members._codes is not code_of:
        codes = integers([code_of[name] for name in members.names])
        packed = (codes[members.codes] << PLACE_BITS) + moved
    is_removed = moved < 0
    return packed[~is_removed] if is_removed.any() else packed


# --- shares ---------------------------------------------------------------------------------------


#: (number of an inventory, factor): each unit that is allocated uses ``factor`` of that inventory.
Link: TypeAlias = tuple[int, int]


class Shares:
    """The shares between the inventories of a fleet, by source: parallel arrays. False if empty.

    Each unit that is allocated of an inventory ``source`` also uses ``factor`` of ``target``. A
    target has no shares of its own.
    """

    def __init__(self, source: Integers, target: Integers, factor: Integers) -> None:
        order = np.lexsort((target, source))
        self.source: Integers = frozen(source[order])
        self.target: Integers = frozen(target[order])
        self.factor: Integers = frozen(factor[order])

    def __bool__(self) -> bool:
        return bool(len(self.source))

    @classmethod
    def read(cls, columns: ShareColumns, place: PlaceIndex, by_class: Members) -> Shares:
        """Return the shares of columns.

        :param by_class: the providers of the inventories
        :raises InvalidInput: if one is not between inventories of the columns
        """
        source = by_class.find(columns.resource_class, place.of(columns.provider_id))
        target = by_class.find(columns.of_class, place.of(columns.of_id))
        if bool((source < 0).any()) or bool((target < 0).any()):
            raise exceptions.InvalidInput(
                "row", "ShareColumns", "a share", "one between inventories"
            )
        return cls(source, target, integers(columns.factor))

    @functools.cached_property
    def targets(self) -> Integers:
        """The targets in order, each once."""
        targets: Integers = frozen(np.unique(self.target))
        return targets

    def entries(self, first: int, end: int) -> slice:
        """Return the entries of the sources from ``first`` to before ``end``."""
        start, stop = self.source.searchsorted((first, end)).tolist()
        return slice(start, stop)

    def between(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """Return ``(source, target, factor)`` of the sources from ``first`` to before ``end``."""
        here = self.entries(first, end)
        columns = (self.source[here], self.target[here], self.factor[here])
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def of(self, inventory: int) -> list[Link]:
        """Return the inventories that a source uses."""
        return [(target, factor) for _, target, factor in self.between(inventory, inventory + 1)]

    def into(self, inventory: int) -> list[Link]:
        """Return the sources that use a target. Cost: the first time a sort, then two searches."""
        order, target = self._by_target
        start, stop = target.searchsorted((inventory, inventory + 1)).tolist()
        rows = order[start:stop]
        return list(zip(self.source[rows].tolist(), self.factor[rows].tolist(), strict=True))

    @functools.cached_property
    def _by_target(self) -> tuple[Integers, Integers]:
        order = np.argsort(self.target, kind="stable")
        return order, self.target[order]

    def free(self, capacity: Integers, used: Integers, numbers: Integers | None = None) -> Integers:
        """Return the amounts that can be allocated of inventories, with regard to their targets.

        :param numbers: of these inventories only
        """
        if numbers is None:
            remaining = capacity - used
            if not self:
                return remaining
            free = remaining.copy()
            np.minimum.at(free, self.source, remaining[self.target] // self.factor)
            return free
        free = capacity[numbers] - used[numbers]
        for position, number in enumerate(numbers.tolist()) if self else ():
            for target, factor in self.of(number):
                most = int(capacity[target] - used[target]) // factor
                free[position] = min(int(free[position]), most)
        return free


# --- pools ----------------------------------------------------------------------------------------


#: The trait of a pool.
SHARING: str = os_traits.MISC_SHARES_VIA_AGGREGATE


class Pools:
    """The pools of a fleet, and the trees that are linked to them. False if there is no pool.

    A provider with the trait ``MISC_SHARES_VIA_AGGREGATE`` is a pool for every tree that has a
    provider in one of the aggregates of the pool. Only these aggregates are recorded, as pairs, so
    that many hosts and few pools cost one entry per host.
    """

    __slots__ = ("_aggregates", "_linked", "_members", "places", "providers", "trees")

    def __init__(
        self, aggregates: Members, pools: Integers, tree: Integers, is_root: Booleans
    ) -> None:
        """:param pools: the providers that have the trait themselves

        :param tree: of each provider

        Cost: linear in the members of aggregates if there are pools.
        """
        self.providers: Integers = frozen(np.sort(pools))
        #: the trees whose root is a pool
        self.trees = frozenset(tree[self.providers[is_root[self.providers]]].tolist())
        self.places = frozenset(self.providers.tolist())
        self._aggregates = len(aggregates)
        empty = integers(())
        self._members = self._linked = (empty, empty)
        if len(pools):
            aggregate = aggregates.codes
            of_pool = np.isin(aggregates.places, self.providers)
            has_pool = np.zeros(len(aggregates), dtype=np.bool_)
            has_pool[aggregate[of_pool]] = True
            linked = has_pool[aggregate]
            #: aggregates and their pools, sorted
            self._members = _pairs(aggregate[of_pool], aggregates.places[of_pool])
            #: trees and their aggregates, sorted
            self._linked = _pairs(tree[aggregates.places[linked]], aggregate[linked])

    def __bool__(self) -> bool:
        return bool(len(self.providers))

    def of_tree(self, tree: int) -> list[int]:
        """Return the pools that a tree is linked to, in order; they may be in the tree itself."""
        trees, aggregates = self._linked
        start, end = trees.searchsorted((tree, tree + 1)).tolist()
        of_aggregate, pools = self._members
        linked: set[int] = set()
        for aggregate in aggregates[start:end].tolist():
            first, last = of_aggregate.searchsorted((aggregate, aggregate + 1)).tolist()
            linked.update(pools[first:last].tolist())
        return sorted(linked)

    def linked_to(self, pools: Integers, trees: int) -> Booleans:
        """Return the trees that are linked to some of these pools. Cost: linear in the links.

        :param trees: the number of all trees
        """
        aggregates, members = self._members
        has_pool = np.zeros(self._aggregates, dtype=np.bool_)
        has_pool[aggregates[np.isin(members, pools)]] = True
        is_linked = np.zeros(trees, dtype=np.bool_)
        is_linked[self._linked[0][has_pool[self._linked[1]]]] = True
        return is_linked

    def giving_to(self, trees: Booleans) -> Integers:
        """Return the pools that some of these trees are linked to. Cost: linear in the links."""
        aggregates, members = self._members
        has_tree = np.zeros(self._aggregates, dtype=np.bool_)
        has_tree[self._linked[1][trees[self._linked[0]]]] = True
        pools: Integers = np.unique(members[has_tree[aggregates]])
        return pools


def _pairs(first: Integers, second: Integers) -> tuple[Integers, Integers]:
    """Return the different pairs in order."""
    keys = np.unique((first << PLACE_BITS) + second)
    return frozen(keys >> PLACE_BITS), frozen(keys & _PLACES)


# --- parts of structured resources ----------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The parts of one structured resource, by provider: parallel arrays, one entry each."""

    provider: Integers
    tree: Integers
    shape: Integers  #: index into :attr:`shapes`
    shapes: tuple[tuple[str, ...], ...]  #: different sets of resource classes, sorted
    descriptions: tuple[str, ...]

    def of_tree(self, tree: int) -> slice:
        """Return the entries of a tree. Cost: two binary searches."""
        start, end = self.tree.searchsorted((tree, tree + 1))
        return slice(int(start), int(end))

    def described(self) -> Iterator[tuple[int, str]]:
        """Return the places of the providers, each with the description of its part."""
        return zip(self.provider.tolist(), self.descriptions, strict=True)

    def classes_at(self, provider: int) -> tuple[str, ...]:
        """Return the resource classes of the part that a provider stores, () if it stores none."""
        entry = int(self.provider.searchsorted(provider))
        is_stored = entry < len(self.provider) and self.provider[entry] == provider
        return self.shapes[self.shape[entry]] if is_stored else ()


_NOTHING: Integers = frozen(integers(()))
NO_PARTS = Parts(_NOTHING, _NOTHING, _NOTHING, (), ())


def read_parts(kinds: KindColumns, place: PlaceIndex, tree: Integers) -> dict[str, Parts]:
    """Return the parts by the name of their structured resource, which may have no placement.

    :param tree: of each provider
    """
    rows: dict[str, list[int]] = {name: [] for name in sorted(set(kinds.resource_class))}
    for row, name in enumerate(kinds.resource_class):
        rows[name].append(row)
    parts: dict[str, Parts] = {}
    for name, numbers in rows.items():
        provider = place.of([kinds.provider_id[row] for row in numbers])
        order = np.argsort(provider, kind="stable")
        numbers = [numbers[entry] for entry in order.tolist()]
        shapes, shape = coded(["\n".join(kinds.classes[row]) for row in numbers])
        parts[name] = Parts(
            frozen(provider[order]),
            frozen(tree[provider[order]]),
            frozen(shape),
            tuple(tuple(classes.split("\n")) for classes in shapes),
            tuple([kinds.body[row] for row in numbers]),
        )
    return parts


# --- allocations and allocated units --------------------------------------------------------------


#: One row, without its provider.
Row: TypeAlias = "tuple[Any, ...]"


class Rows:
    """The rows of providers, by their places: allocations, or allocated units.

    The rows that were read are in columns, in the order of their providers. The rows of a provider
    that changed since are in a mapping of its own. Providers are identified by their keys, so
    nothing moves if other providers are added or removed.
    """

    __slots__ = ("_changed", "_columns", "_key", "_keys")

    def __init__(
        self, columns: AllocationColumns | UnitColumns, place: PlaceIndex, keys: Keys
    ) -> None:
        key = keys.at[place.of(columns.provider_id)]
        order = np.argsort(key, kind="stable")
        self._keys = keys
        self._key: Integers = frozen(key[order])
        self._columns = _shared(columns[1:], order.tolist())
        self._changed: Overlay[int, Overlay[Any, Row]] = Overlay({})

    #: Returns the values that identify a row of a provider.
    _identity: ClassVar[operator.itemgetter[Any]]

    @staticmethod
    def _updates(changes: Iterable[Change]) -> Mapping[Any, Row | None]:
        """Return the rows after changes by their identity, None for removed rows."""
        raise NotImplementedError

    def of_provider(self, provider: int) -> tuple[Row, ...]:
        """Return the rows of a provider. Cost: two binary searches, and linear in the rows."""
        key = int(self._keys.at[provider])
        changed = self._changed.get(key)
        return self._stored(key) if changed is None else self._listed(changed)

    @staticmethod
    def _listed(rows: Overlay[Any, Row]) -> tuple[Row, ...]:
        return tuple([row for _, row in rows.items()])

    def _stored(self, key: int) -> tuple[Row, ...]:
        start, end = self._key.searchsorted((key, key + 1)).tolist()
        return self._slice(start, end)

    def _slice(self, start: int, end: int) -> tuple[Row, ...]:
        return tuple(zip(*[column[start:end] for column in self._columns], strict=True))

    def of_each(self, providers: Integers) -> Iterator[tuple[Row, ...]]:
        """Yield the rows of each of many providers. Cost: a microsecond for each row."""
        keys = self._keys.at[providers]
        starts = self._key.searchsorted(keys).tolist()
        ends = self._key.searchsorted(keys, side="right").tolist()
        for key, start, end in zip(keys.tolist(), starts, ends, strict=True):
            changed = self._changed.get(key)
            yield self._slice(start, end) if changed is None else self._listed(changed)

    def of(self, providers: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of some providers, with the place of the provider in front."""
        return ((provider, *row) for provider in providers for row in self.of_provider(provider))

    def all(self, first: Container[Any] | None = None) -> Iterator[tuple[int, Row]]:
        """Yield all rows, each with the place of its provider. Cost: linear in all rows.

        :param first: only rows whose first value is one of these
        """
        changed = dict(self._changed.items())
        places = self._keys.places(self._key).tolist()
        rows = zip(*self._columns, strict=True)
        for place, key, row in zip(places, self._key.tolist(), rows, strict=True):
            if (first is None or row[0] in first) and place >= 0 and key not in changed:
                yield place, row
        places = self._keys.places(integers(list(changed))).tolist()
        for place, of_provider in zip(places, changed.values(), strict=True):
            for row in self._listed(of_provider):
                if first is None or row[0] in first:
                    yield place, row

    # --- rows of other fleets ---

    def none(self) -> Self:
        """Return no rows of the same providers."""
        return self._evolved(
            _key=self._key[:0], _columns=tuple([()] * len(self._columns)), _changed=Overlay({})
        )

    def after(self, changes: Mapping[int, Sequence[Change]]) -> Self:
        """Return the rows after changes at some places.

        Cost: linear in the changes, and once in the rows of the provider.
        """
        changed: dict[int, Overlay[Any, Row] | None] = {}
        for place, of_provider in changes.items():
            key = int(self._keys.at[place])
            rows = self._changed.get(key)
            if rows is None:
                rows = Overlay({self._identity(row): row for row in self._stored(key)})
            changed[key] = rows.with_(self._updates(of_provider))
        return self._evolved(_changed=self._changed.with_(changed))

    def spliced(self, new: Self, keys: Keys, old_places: Integers, new_places: Integers) -> Self:
        """Return the rows after some providers were removed and others added.

        :param new: the rows of the added providers
        :param keys: of all providers after that
        :param old_places: by the present place, -1 for removed providers
        :param new_places: by the place in ``new``
        """
        removed = self._keys.at[np.flatnonzero(old_places < 0)].tolist()
        changed: dict[int, Overlay[Any, Row] | None] = dict.fromkeys(removed)
        added: dict[int, dict[Any, Row]] = {}
        for place, row in new.all():
            added.setdefault(place, {})[self._identity(row)] = row
        for place, rows in added.items():
            changed[int(keys.at[new_places[place]])] = Overlay(rows)
        return self._evolved(_keys=keys, _changed=self._changed.with_(changed))

    def _evolved(self, **changed: Any) -> Self:
        rows = object.__new__(type(self))
        for name in Rows.__slots__:
            setattr(rows, name, changed[name] if name in changed else getattr(self, name))
        return rows


def _shared(columns: Iterable[Sequence[Any]], order: list[int]) -> tuple[tuple[Any, ...], ...]:
    """Return columns in another order, with one object for all equal values: a name is in many."""
    shared: dict[Any, Any] = {}
    return tuple(
        [
            tuple([shared.setdefault(value, value) for value in map(column.__getitem__, order)])
            for column in columns
        ]
    )


class Allocations(Rows):
    """The allocations at providers: ``(resource class, consumer, amount)``."""

    __slots__ = ()

    _identity = operator.itemgetter(0, 1)

    @staticmethod
    def _updates(changes: Iterable[Change]) -> Mapping[Any, Row | None]:
        rows: dict[Any, Row | None] = {}
        for change in changes:
            key = change.key[1], change.consumer
            rows[key] = (*key, change.after) if change.after else None
        return rows

    def holders(self, of: Iterable[tuple[int, str, int]]) -> tuple[tuple[str, int], ...]:
        """Return ``(consumer, amount)`` of all allocations, the largest first.

        :param of: ``(provider, resource class, factor)``, each different: allocations there count
            ``factor`` times
        """
        amounts: dict[str, int] = {}
        for provider, resource_class, factor in of:
            for name, consumer, amount in self.of_provider(provider):
                if name == resource_class:
                    amounts[consumer] = amounts.get(consumer, 0) + factor * amount
        return by_consumer(amounts)


def by_consumer(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the consumers with their amounts, in the order of :func:`by_amount`."""
    pairs = amounts.items()
    return tuple(sorted(pairs, key=by_amount) if len(pairs) > 1 else pairs)


class Units(Rows):
    """The allocated units of providers: ``(unit, resource class, consumer)``."""

    __slots__ = ()

    _identity = operator.itemgetter(0)

    @staticmethod
    def _updates(changes: Iterable[Change]) -> Mapping[Any, Row | None]:
        rows: dict[Any, Row | None] = {}
        for change in changes:
            rows |= dict.fromkeys(change.released_units)
            for unit in change.allocated_units:
                rows[unit] = unit, change.key[1], change.consumer
        return rows

    @staticmethod
    def _listed(rows: Overlay[Any, Row]) -> tuple[Row, ...]:
        return tuple(sorted([row for _, row in rows.items()]))

    def allocated(self, units: Iterable[str]) -> dict[int, tuple[str, str]]:
        """Return the first of some units that is allocated at each provider, and its consumer.

        Cost: linear in all allocated units.
        """
        rows = sorted((row[0], row[2], place) for place, row in self.all(frozenset(units)))
        first: dict[int, tuple[str, str]] = {}
        for unit, consumer, place in rows:
            first.setdefault(place, (unit, consumer))
        return first
