"""Columns out: everything kept, or some trees."""

from __future__ import annotations

import bisect
import dataclasses
import datetime
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from resource_objects import clock
from resource_objects.backends.memory.state import ProviderRow, State, cursor_of, named_today
from resource_objects.providers.columns import (
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
from resource_objects.providers.disabled import TRAIT as OUT_OF_SERVICE
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    Description,
    ListedName,
    ListedProvider,
    ProviderFilter,
    Total,
)
from resource_objects.providers.orders import ConsumerRecord, Key, NameKind
from resource_objects.providers.selection import (
    count_by,
    select_consumers,
    select_providers,
    totals_of,
)
from resource_objects.providers.settle import Place
from resource_objects.resources.records import inventory_row


def read_trees(state: State, keys: Iterable[str], allocations: bool) -> Columns:
    """Return the trees of some providers, or everything. Cost: linear in what is returned."""
    wanted = list(keys)
    if wanted:
        roots = state.roots(wanted)
    else:
        roots = [kept for kept in state.providers.values() if kept.parent_uuid is None]
    return _of_roots(state, roots, allocations)


def read_use(state: State, before: Columns) -> Columns | None:
    """Return trees with what is used of them now; None if one of them is defined anew."""
    given = before.providers
    kept: list[ProviderRow] = []
    for uuid, generation in zip(given.uuid, given.generation, strict=True):
        one = state.providers.get(uuid)
        if one is None or one.generation != generation:
            return None
        kept.append(one)
    rows, disabled = state.rows, state.disabled_now()
    used = tuple([rows[one.uuid, name].record.used for one in kept for name in one.classes])
    return Columns(
        given._replace(disabled=tuple(map(disabled.get, given.uuid))),
        before.inventories._replace(used=used),
        before.traits,
        aggregates=before.aggregates,
        shares=before.shares,
        kinds=before.kinds,
        units=UnitColumns(*zip(*_unit_rows(state, kept), strict=True)),
        now=_now(state),
    )


def _now(state: State) -> datetime.datetime | None:
    """Return this moment, where something is out of service that may be until some time."""
    return clock.now() if state.disabled else None


def read_trees_of(state: State, uuids: Iterable[str]) -> Columns:
    """Return the trees of some providers, none if none of them is there."""
    tops = (state.top(uuid) for uuid in uuids if uuid in state.providers)
    return _of_roots(state, {top.uuid: top for top in tops}.values(), allocations=True)


def _of_roots(state: State, roots: Iterable[ProviderRow], allocations: bool) -> Columns:
    below = [(kept, root.number) for root in roots for kept in state.below(root)]
    return _columns(state, below, allocations)


def _columns(state: State, below: list[tuple[ProviderRow, int]], allocations: bool) -> Columns:
    kept = [one for one, _ in below]
    holding = kept if allocations else []
    return Columns(
        ProviderColumns(*zip(*_provider_rows(state, below), strict=True)),
        InventoryColumns(*zip(*_inventory_rows(state, kept), strict=True)),
        TraitColumns(*zip(*_name_rows((k.number, k.traits) for k in kept), strict=True)),
        AllocationColumns(*zip(*_allocation_rows(state, holding), strict=True)),
        AggregateColumns(*zip(*_name_rows((k.number, k.aggregates) for k in kept), strict=True)),
        ShareColumns(*zip(*_share_rows(state, kept), strict=True)),
        KindColumns(*zip(*_kind_rows(kept), strict=True)),
        UnitColumns(*zip(*_unit_rows(state, holding), strict=True)),
        cursor_of(state),
        _now(state),
    )


def _provider_rows(
    state: State, below: Iterable[tuple[ProviderRow, int]]
) -> Iterator[tuple[object, ...]]:
    disabled = state.disabled_now()
    for kept, root in below:
        parent = None if kept.parent_uuid is None else state.providers[kept.parent_uuid].number
        yield (
            kept.number,
            kept.uuid,
            kept.name,
            parent,
            root,
            kept.generation,
            kept.reported_at,
            kept.adopted_at,
            disabled.get(kept.uuid),
        )


def _inventory_rows(state: State, below: Iterable[ProviderRow]) -> Iterator[tuple[object, ...]]:
    for kept in below:
        for name in kept.classes:
            yield kept.number, *inventory_row(state.rows[kept.uuid, name].record)


def _name_rows(
    found: Iterable[tuple[int, frozenset[str]]],
) -> Iterator[tuple[int, str]]:
    return ((number, name) for number, names in found for name in sorted(names))


def _kind_rows(below: Iterable[ProviderRow]) -> Iterator[tuple[object, ...]]:
    for kept in below:
        for kind in kept.kinds:
            yield kept.number, kind.resource_class, kind.classes, kind.body


def _allocation_rows(state: State, below: Iterable[ProviderRow]) -> Iterator[tuple[object, ...]]:
    for kept in below:
        for name in kept.classes:
            for consumer, amount in state.holders.get((kept.uuid, name), {}).items():
                yield kept.number, name, consumer, amount


def _share_rows(state: State, below: Iterable[ProviderRow]) -> Iterator[tuple[object, ...]]:
    for kept in below:
        for name in kept.classes:
            for (of_uuid, of_class), factor in state.rows[kept.uuid, name].shares:
                yield kept.number, name, state.providers[of_uuid].number, of_class, factor


def _unit_rows(state: State, below: Iterable[ProviderRow]) -> Iterator[tuple[object, ...]]:
    for kept in below:
        for unit, taken in state.units.get(kept.uuid, {}).items():
            yield kept.number, unit, taken.resource_class, taken.consumer


# --- lists ----------------------------------------------------------------------------------------
#
# Pages of what is kept: providers, consumers and names; and totals.


#: Providers are looked at so many at a time, so that a page costs what it takes to fill it.
_AT_A_TIME = 256


class PageOrder:
    """The order of pages, sorted when it is asked for and kept until something comes or goes."""

    def __init__(self) -> None:
        self._providers: list[tuple[int, str]] | None = None
        self._consumers: list[str] | None = None

    def forget(self, *, providers: bool, consumers: bool) -> None:
        """Forget what does not hold any more."""
        if providers:
            self._providers = None
        if consumers:
            self._consumers = None

    def providers(self, state: State, after: int) -> Iterator[ProviderRow]:
        """Yield the providers made after the one of a number."""
        if self._providers is None:
            self._providers = sorted((one.number, one.uuid) for one in state.providers.values())
        first = bisect.bisect_left(self._providers, (after + 1, ""))
        for place in range(first, len(self._providers)):
            yield state.providers[self._providers[place][1]]

    def consumers(self, state: State, after: str | None) -> Iterator[ConsumerRecord]:
        """Yield the claims of consumers after a name."""
        if self._consumers is None:
            self._consumers = sorted(state.claims)
        first = 0 if after is None else bisect.bisect_right(self._consumers, after)
        for place in range(first, len(self._consumers)):
            yield state.claims[self._consumers[place]]


def _root_of(state: State) -> Callable[[str], str | None]:
    """Return what finds the uuid of the root of a provider, by its name or uuid."""

    def root_of(key: str) -> str | None:
        kept = state.find(key)
        return None if kept is None else state.top(kept.uuid).uuid

    return root_of


def _place_of(state: State) -> Callable[[Key], Place | None]:
    """Return what finds an inventory with its shares."""

    def place_of(key: Key) -> Place | None:
        row = state.rows.get(key)
        if row is None:
            return None
        return Place(state.providers[key[0]].name, row.record, row.shares)

    return place_of


def page_of_providers(
    state: State, order: PageOrder, wanted: ProviderFilter, limit: int, after: int
) -> tuple[ListedProvider, ...]:
    """Return a page of providers. Cost: linear in those looked at."""
    found = _walk_providers(state, order, wanted, after)
    rest = dataclasses.replace(wanted, trees=None)
    page: list[ListedProvider] = []
    while len(page) < limit:
        rows = [_listed(state, kept) for kept in itertools.islice(found, _AT_A_TIME)]
        if not rows:
            break
        page += select_providers(rows, rest, _place_of(state))
    return tuple(page[:limit])


def _walk_providers(
    state: State, order: PageOrder, wanted: ProviderFilter, after: int
) -> Iterator[ProviderRow]:
    """Yield the providers to look at: of those named, of some trees, with a trait, or all."""
    bearers = [state.bearers.get(trait, {}) for trait in wanted.required - {OUT_OF_SERVICE}]
    few = min(bearers, key=len, default=None)
    if wanted.uuids is not None:
        found = [state.providers.get(uuid) for uuid in wanted.uuids]
    elif wanted.names is not None:
        found = [state.providers.get(state.uuid_of.get(name, "")) for name in wanted.names]
    elif wanted.trees is not None:
        found = list(_of_trees(state, wanted.trees))
    elif few is not None and len(few) <= _AT_A_TIME:  # many are quicker a page at a time
        found = [state.providers[uuid] for uuid in few]
    else:
        return order.providers(state, after)
    there = [kept for kept in found if kept is not None and kept.number > after]
    if wanted.trees is not None:
        roots = set(map(_root_of(state), wanted.trees))
        there = [kept for kept in there if state.top(kept.uuid).uuid in roots]
    return iter(sorted(there, key=lambda kept: kept.number))


def _of_trees(state: State, trees: Iterable[str]) -> Iterator[ProviderRow]:
    for root in state.roots(trees):
        yield from state.below(root)


def _listed(state: State, kept: ProviderRow) -> ListedProvider:
    parent = None if kept.parent_uuid is None else state.providers[kept.parent_uuid]
    root = state.top(kept.uuid)
    rows = [state.rows[kept.uuid, name] for name in kept.classes]
    disabled = state.disabled.get(kept.uuid)
    if disabled is not None and disabled.ends_at <= clock.now():
        disabled = None
    return ListedProvider(
        kept.number,
        kept.uuid,
        kept.name,
        kept.generation,
        None if parent is None else parent.name,
        kept.parent_uuid,
        root.name,
        root.uuid,
        tuple(row.record for row in rows),
        kept.traits,
        kept.aggregates,
        kept.kinds,
        kept.reported_at,
        kept.adopted_at,
        kept.writes + sum(row.writes for row in rows),
        kept.definition_writes,
        disabled,
    )


def page_of_consumers(
    state: State, order: PageOrder, wanted: ConsumerFilter, limit: int, after: str | None
) -> tuple[ConsumerRecord, ...]:
    """Return a page of consumers. Cost: linear in those looked at."""
    found = _claims(state, order, wanted, after)
    return tuple(itertools.islice(select_consumers(found, wanted, _root_of(state)), limit))


def _claims(
    state: State, order: PageOrder, wanted: ConsumerFilter, after: str | None
) -> Iterator[ConsumerRecord]:
    """Yield the claims to look at: of those named, of those at a provider or in a tree, or all."""
    if wanted.names is not None:
        names = {name for name in wanted.names if name in state.claims}
    elif wanted.provider is not None:
        kept = state.find(wanted.provider)
        names = set(_listed_holders(state, [] if kept is None else [kept]))
    elif wanted.tree is not None:
        names = set(_listed_holders(state, _of_trees(state, [wanted.tree])))
    else:
        return (named_today(state, claim) for claim in order.consumers(state, after))
    left = sorted(name for name in names if after is None or name > after)
    return (named_today(state, state.claims[name]) for name in left)


def _listed_holders(state: State, providers: Iterable[ProviderRow]) -> Iterator[str]:
    for kept in providers:
        for name in kept.classes:
            yield from state.holders.get((kept.uuid, name), ())


def page_of_names(
    state: State, kind: NameKind, limit: int, after: str | None
) -> tuple[ListedName, ...]:
    """Return a page of names. Cost: linear in those of all kinds."""
    found = [listed for (of, _), listed in state.names.items() if of is kind]
    found = [listed for listed in found if after is None or listed.name > after]
    return tuple(sorted(found, key=lambda listed: listed.name)[:limit])


def totals_of_consumers(
    state: State, order: PageOrder, wanted: ConsumerFilter, by: By
) -> tuple[Total, ...]:
    """Return what the consumers of a filter use. Cost: linear in the consumers looked at."""
    return totals_of(_claims(state, order, wanted, None), wanted, by, _root_of(state))


def counts_of_consumers(
    state: State, order: PageOrder, wanted: ConsumerFilter, by: Description
) -> Counter[str | None]:
    """Return how many consumers of a filter there are. Cost: linear in those looked at."""
    found = _claims(state, order, wanted, None)
    return count_by(select_consumers(found, wanted, _root_of(state)), by)
