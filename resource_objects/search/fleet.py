"""Everything kept at one moment, as NumPy arrays: what a snapshot holds.

Providers are put in one order, whatever order a backend returned them in: by the name of their
host, then by depth, then by name. Everything else refers to a provider by its place in this
order, so the providers of a tree, and the inventories of a tree in one class, stand together. A
*tree* is the number of a host in the order of names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.columns import (
    AllocationColumns,
    Columns,
    InventoryColumns,
    ProviderColumns,
    TraitColumns,
)

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ClassRows:
    """The inventories of one resource class over the fleet: parallel arrays, one entry each.

    ``low`` and ``high`` are the least and most that one part may take now: multiples of the step
    within the unit rules and what is free. Nothing fits where ``high < low``.
    """

    provider: Integers
    tree: Integers
    capacity: Integers
    used: Integers
    free: Integers
    min_unit: Integers
    max_unit: Integers  # fields.MAX_AMOUNT where there is no bound
    step_size: Integers
    low: Integers
    high: Integers
    is_below: Booleans  #: of a provider below the root
    is_single: Booleans  #: of a provider below the root that has one unit

    def of_tree(self, tree: int) -> slice:
        """Return which entries are of a tree. Cost: two binary searches."""
        start, end = self.tree.searchsorted((tree, tree + 1))
        return slice(int(start), int(end))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Fleet:
    """Providers, inventories and traits as arrays that cannot be written."""

    names: tuple[str, ...]  #: of providers
    uuids: tuple[str, ...]  #: of providers
    parent: Integers  #: of providers; of a root itself
    tree: Integers  #: of providers
    height: int  #: providers on the longest way from a root down, 0 for no provider at all
    hosts: tuple[str, ...]  #: of trees: the names of their roots
    classes: Mapping[str, ClassRows]
    traits: Mapping[str, Integers]  #: the providers that have it themselves
    allocations: Allocations

    def rows(self, resource_class: str) -> ClassRows:
        """Return the inventories of a class, which may be none."""
        return self.classes.get(resource_class, _NO_ROWS)

    def has_trait(self, trait: str) -> Booleans:
        """Return which providers have a trait, themselves or through a provider above them."""
        found = np.zeros(len(self.names), dtype=np.bool_)
        if trait in self.traits:
            found[self.traits[trait]] = True
        for _ in range(1, self.height):
            found |= found[self.parent]
        return found


class Allocations:
    """Who holds what at which provider; sorted when it is first asked, which few searches do."""

    __slots__ = ("_columns", "_place", "_sorted")

    def __init__(self, columns: AllocationColumns, place: _Places) -> None:
        self._columns = AllocationColumns(*(tuple(column) for column in columns))  # type: ignore[arg-type]
        self._place = place
        self._sorted: tuple[Integers, Integers] | None = None

    def holders(self, providers: Iterable[int], resource_class: str) -> tuple[tuple[str, int], ...]:
        """Return ``(consumer, amount)`` over some providers, the largest first, then by name."""
        ordered, keys = self._index()
        held: dict[str, int] = {}
        for provider in providers:
            start, end = keys.searchsorted((provider, provider + 1))
            for row in ordered[start:end].tolist():
                if self._columns.resource_class[row] == resource_class:
                    name = self._columns.consumer[row]
                    held[name] = held.get(name, 0) + self._columns.amount[row]
        return tuple(sorted(held.items(), key=lambda item: (-item[1], item[0])))

    def _index(self) -> tuple[Integers, Integers]:
        """Return the rows in order of providers, and their providers."""
        if self._sorted is None:  # two threads may both sort: the outcome is the same
            provider = self._place.of(self._columns.provider_id)
            ordered = np.argsort(provider, kind="stable")
            self._sorted = ordered, provider[ordered]
        return self._sorted


# --- made from columns ----------------------------------------------------------------------------


def read(columns: Columns) -> Fleet:
    """Return the arrays of what a backend returned.

    Cost: linear but for sorting the names, about 2 microseconds per provider and per inventory.

    :raises InvalidRow: if the columns do not belong together
    :raises InvalidTree: if the parents of some provider never end
    """
    for table in (columns.providers, columns.inventories, columns.traits, columns.allocations):
        if len({len(column) for column in table}) > 1:
            raise exceptions.InvalidRow(type(table).__name__, "columns", "all of one length")
    given = columns.providers
    place = _Places(given.provider_id)
    parent = place.of(_parents(given))
    root, depth = _roots(parent)
    order = _order(given.name, root, depth)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    place.renumber(rank)
    is_root = depth[order] == 0
    names = tuple(given.name[row] for row in order.tolist())
    tree = np.cumsum(is_root) - 1
    height = int(depth.max()) + 1 if len(order) else 0
    return Fleet(
        names=names,
        uuids=tuple(given.uuid[row] for row in order.tolist()),
        parent=_frozen(rank[parent[order]]),
        tree=_frozen(tree),
        height=height,
        hosts=tuple(names[row] for row in np.flatnonzero(is_root).tolist()),
        classes=_classes(columns.inventories, place, tree, is_root),
        traits=_traits(columns.traits, place),
        allocations=Allocations(columns.allocations, place),
    )


class _Places:
    """From a backend's number of a provider to its place in the order."""

    def __init__(self, ids: Sequence[int]) -> None:
        given = _integers(ids)
        self._place = np.argsort(given, kind="stable")
        self._ids = given[self._place]

    def renumber(self, rank: Integers) -> None:
        self._place = rank[self._place]

    def of(self, ids: Sequence[int]) -> Integers:
        wanted = _integers(ids)
        at = np.searchsorted(self._ids, wanted)
        if len(wanted) and (
            not len(self._ids)
            or bool(np.any(self._ids[np.minimum(at, len(self._ids) - 1)] != wanted))
        ):
            raise exceptions.InvalidRow(
                "provider_id", "a number", "one of a provider in the columns"
            )
        return self._place[at]


def _parents(given: ProviderColumns) -> list[int]:
    pairs = zip(given.provider_id, given.parent_id, strict=True)
    return [own if parent is None else parent for own, parent in pairs]


def _roots(parent: Integers) -> tuple[Integers, Integers]:
    """Return the root and the depth of every provider. Cost: one pass per level."""
    root = np.arange(len(parent))
    depth = np.zeros(len(parent), dtype=np.int64)
    for _ in range(len(parent)):
        above = parent[root]
        moved = above != root
        if not moved.any():
            return root, depth
        depth += moved
        root = above
    if len(parent):
        raise exceptions.InvalidTree("parent_id", "a circle", "a root above every provider")
    return root, depth


def _order(names: Sequence[str], root: Integers, depth: Integers) -> Integers:
    """Return the rows by the name of the root, then by depth, then by name."""
    by_name = np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)
    rank = np.empty_like(by_name)
    rank[by_name] = np.arange(len(by_name))
    return np.lexsort((rank, depth, rank[root]))


def _classes(
    given: InventoryColumns, place: _Places, tree: Integers, is_root: Booleans
) -> dict[str, ClassRows]:
    provider = place.of(given.provider_id)
    codes, code = _coded(given.resource_class)
    order = np.lexsort((provider, code))
    ends = np.searchsorted(code[order], np.arange(len(codes) + 1))
    bound = [MAX_AMOUNT if most is None else most for most in given.max_unit]
    figures = [given.total, given.capacity, given.used, given.min_unit, bound, given.step_size]
    columns = [provider[order], *(_integers(column)[order] for column in figures)]
    return {
        name: _class_rows(tree, is_root, *(column[start:end] for column in columns))
        for name, start, end in zip(codes, ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    }


def _class_rows(
    tree: Integers,
    is_root: Booleans,
    provider: Integers,
    total: Integers,
    capacity: Integers,
    used: Integers,
    min_unit: Integers,
    max_unit: Integers,
    step_size: Integers,
) -> ClassRows:
    free = capacity - used
    is_below = ~is_root[provider]
    arrays: list[Any] = [
        provider,
        tree[provider],
        capacity,
        used,
        free,
        min_unit,
        max_unit,
        step_size,
        (min_unit + step_size - 1) // step_size * step_size,
        np.minimum(free, max_unit) // step_size * step_size,
        is_below,
        is_below & (total == 1),
    ]
    return ClassRows(*map(_frozen, arrays))


def _traits(given: TraitColumns, place: _Places) -> dict[str, Integers]:
    codes, code = _coded(given.trait)
    provider = place.of(given.provider_id)
    order = np.argsort(code, kind="stable")
    ends = np.searchsorted(code[order], np.arange(len(codes) + 1)).tolist()
    return {
        name: _frozen(provider[order[start:end]])
        for name, start, end in zip(codes, ends[:-1], ends[1:], strict=True)
    }


def _coded(values: Sequence[str]) -> tuple[dict[str, int], Integers]:
    """Return the different values, numbered as they come, and the numbers of all."""
    codes = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return codes, _integers([codes[value] for value in values])


def _integers(values: Iterable[int]) -> Integers:
    return np.array(values, dtype=np.int64)


def _frozen(array: Any) -> Any:
    if array.base is not None:
        array = array.copy()
    array.flags.writeable = False
    return array


_NO_ROWS = ClassRows(*[_frozen(_integers(()))] * 10, *[_frozen(np.zeros(0, dtype=np.bool_))] * 2)
