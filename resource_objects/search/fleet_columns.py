"""Columns of the arrays of a fleet: what :func:`.fleet_build.read` read, of all or of some trees.

What a definition is changed to, what differs between two pictures and what is kept of one in a file
is worked out of columns, by what works on those of a backend; this is the way back to them.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Any

from resource_objects import clock
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.columns import (
    TIMES,
    AggregateColumns,
    AllocationColumns,
    Columns,
    InventoryColumns,
    KindColumns,
    ProviderColumns,
    ShareColumns,
    TraitColumns,
    UnitColumns,
)
from resource_objects.providers.disabled import TRAIT
from resource_objects.search.fleet import Fleet, Members
from resource_objects.search.holders import Rows


def columns_of(fleet: Fleet, trees: Collection[int] | None = None) -> Columns:
    """Return what a fleet was read of, as far as a search sees it; numbers are places in it.

    When providers reported or were adopted is not known. A fleet that is confined to a part of its
    tree gives the whole tree.

    :param trees: only these; None: all

    Cost: linear in the rows of these trees, and some microseconds for each trait and class.
    """
    spans = _spans(fleet, trees)
    places = [place for first, end in spans for place in range(first, end)]
    rows = partial(_rows, places=None if trees is None else places)
    return Columns(
        providers=_providers(fleet, places),
        inventories=InventoryColumns(*_turned(_inventories(fleet, spans), 10)),
        traits=TraitColumns(*_turned(_members(fleet.traits, spans), 2)),
        allocations=AllocationColumns(*_turned(rows(fleet.allocations), 4)),
        aggregates=AggregateColumns(*_turned(_members(fleet.aggregates, spans), 2)),
        shares=ShareColumns(*_turned(_shares(fleet, spans), 5)),
        kinds=KindColumns(*_turned(_kinds(fleet, spans), 4)),
        units=UnitColumns(*_turned(rows(fleet.units), 4)),
        now=_now(fleet),
    )


def _spans(fleet: Fleet, trees: Collection[int] | None) -> list[tuple[int, int]]:
    """Return (first, end) of the providers of some trees, which stand together."""
    if trees is None:
        return [(0, len(fleet.names))]
    found: list[tuple[int, int]] = []
    for tree in sorted(trees):
        here = fleet.of_tree(tree)
        if found and found[-1][1] == here.start:
            found[-1] = found[-1][0], here.stop
        else:
            found.append((here.start, here.stop))
    return found


def _rows(table: Rows, places: Iterable[int] | None) -> Iterator[tuple[Any, ...]]:
    """Yield who holds what of some providers, or of all."""
    if places is None:
        yield from ((place, *row) for place, row in table.all())
        return
    for place in places:
        yield from ((place, *row) for row in table.of_provider(place))


def _turned(rows: Iterable[tuple[Any, ...]], count: int) -> list[tuple[Any, ...]]:
    """Return the columns of rows."""
    return list(zip(*rows, strict=True)) or [()] * count


def _providers(fleet: Fleet, places: list[int]) -> ProviderColumns:
    parent, tree = fleet.parent[places].tolist(), fleet.tree[places].tolist()
    above = fleet.above
    if above and fleet.within is not None:  # a part of a tree that was cut out of it
        top = int(fleet.roots[fleet.within])
        parent = [above[0] if at == top else up for at, up in zip(places, parent, strict=True)]
    tops = fleet.tops.tolist()
    return ProviderColumns(
        provider_id=places,
        uuid=[fleet.uuids[place] for place in places],
        name=[fleet.names[place] for place in places],
        parent_id=[None if up == at else up for at, up in zip(places, parent, strict=True)],
        root_id=[tops[one] for one in tree],
        generation=fleet.generation[places].tolist(),
        disabled=[fleet.disabled[p].facts if p in fleet.disabled else None for p in places],
        **dict.fromkeys(TIMES, [None] * len(places)),
    )


def _inventories(fleet: Fleet, spans: list[tuple[int, int]]) -> Iterator[tuple[Any, ...]]:
    rows = fleet.inventories
    columns = (
        *(rows.provider, rows.total, rows.reserved, rows.min_unit, rows.max_unit),
        *(rows.step_size, rows.ratio, fleet.stored_capacity, rows.used),
    )
    for first, end in spans:
        for name, here in fleet.by_class.within(first, end):
            figures = (column[here].tolist() for column in columns)
            for place, total, reserved, least, most, *others in zip(*figures, strict=True):
                bound = None if most == MAX_AMOUNT else most
                yield place, name, total, reserved, least, bound, *others


def _members(table: Members, spans: list[tuple[int, int]]) -> Iterator[tuple[int, str]]:
    for first, end in spans:
        for name, here in table.within(first, end):
            if name != TRAIT:  # it is derived of what is disabled
                for place in table.places[here].tolist():
                    yield place, name


def _kinds(fleet: Fleet, spans: list[tuple[int, int]]) -> Iterator[tuple[Any, ...]]:
    for name, parts in fleet.stored_parts.items():
        for first, end in spans:
            start, stop = parts.provider.searchsorted((first, end)).tolist()
            shapes = parts.shape[start:stop].tolist()
            places, texts = parts.provider[start:stop].tolist(), parts.descriptions[start:stop]
            for place, shape, text in zip(places, shapes, texts, strict=True):
                yield place, name, parts.shapes[shape], text


def _shares(fleet: Fleet, spans: list[tuple[int, int]]) -> Iterator[tuple[Any, ...]]:
    provider = fleet.inventories.provider
    for name, rows in fleet.classes.items() if fleet.shares else ():
        for first, end in spans:
            start, stop = (rows.provider.searchsorted((first, end)) + rows.first).tolist()
            for source, target, factor in fleet.shares.between(start, stop):
                yield (
                    *(int(provider[source]), name),
                    *(int(provider[target]), fleet.class_of(target), factor),
                )


def _now(fleet: Fleet) -> datetime.datetime | None:
    """Return what the clock of the ledger says by now, where something depends on it."""
    for one in fleet.disabled.values():
        if one.ends is not None and one.facts.until is not None:
            return one.facts.until - datetime.timedelta(seconds=one.ends - clock.monotonic())
    return None
