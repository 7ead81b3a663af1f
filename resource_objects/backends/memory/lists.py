"""Pages of what is kept: providers, consumers and names; and totals."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping

from resource_objects.backends.memory.orders import named_today
from resource_objects.backends.memory.state import Kept, State
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    ListedName,
    ListedProvider,
    ProviderFilter,
    Total,
)
from resource_objects.providers.orders import ClaimRecord, Key, NameKind
from resource_objects.providers.selection import select_consumers, select_providers, totals_of
from resource_objects.providers.settle import Place

#: Providers are looked at so many at a time, so that a page costs what it takes to fill it.
_AT_A_TIME = 256


class Order:
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

    def providers(self, state: State, after: int) -> Iterator[Kept]:
        """Yield the providers made after the one of a number."""
        if self._providers is None:
            self._providers = sorted((one.number, one.uuid) for one in state.providers.values())
        first = bisect.bisect_left(self._providers, (after + 1, ""))
        for place in range(first, len(self._providers)):
            yield state.providers[self._providers[place][1]]

    def consumers(self, state: State, after: str | None) -> Iterator[ClaimRecord]:
        """Yield the claims of consumers after a name."""
        if self._consumers is None:
            self._consumers = sorted(state.claims)
        first = 0 if after is None else bisect.bisect_right(self._consumers, after)
        for place in range(first, len(self._consumers)):
            yield state.claims[self._consumers[place]]


class _Roots(Mapping[str, str]):
    """The uuid of the root of each provider, by its name and uuid, looked up when asked for."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, key: str) -> str:
        kept = self._state.find(key)
        if kept is None:
            raise KeyError(key)
        return self._state.top(kept.uuid).uuid

    def __iter__(self) -> Iterator[str]:
        return itertools.chain(self._state.uuid_of, self._state.providers)

    def __len__(self) -> int:
        return 2 * len(self._state.providers)


class _Places(Mapping[Key, Place]):
    """Every inventory, with its shares, looked up when asked for."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, key: Key) -> Place:
        row = self._state.rows[key]
        return Place(self._state.providers[key[0]].name, row.record, row.shares)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._state.rows)

    def __len__(self) -> int:
        return len(self._state.rows)


def list_providers(
    state: State, order: Order, wanted: ProviderFilter, limit: int, after: int
) -> tuple[ListedProvider, ...]:
    """Return a page of providers. Cost: linear in those looked at."""
    found = _providers(state, order, wanted, after)
    rest = dataclasses.replace(wanted, trees=None)
    page: list[ListedProvider] = []
    while len(page) < limit:
        rows = [_listed(state, kept) for kept in itertools.islice(found, _AT_A_TIME)]
        if not rows:
            break
        page += select_providers(rows, rest, _Places(state))
    return tuple(page[:limit])


def _providers(state: State, order: Order, wanted: ProviderFilter, after: int) -> Iterator[Kept]:
    """Yield the providers to look at: of those named, of some trees, or all."""
    if wanted.uuids is not None:
        found = [state.providers.get(uuid) for uuid in wanted.uuids]
    elif wanted.names is not None:
        found = [state.providers.get(state.uuid_of.get(name, "")) for name in wanted.names]
    elif wanted.trees is not None:
        found = list(_of_trees(state, wanted.trees))
    else:
        return order.providers(state, after)
    there = [kept for kept in found if kept is not None and kept.number > after]
    if wanted.trees is not None:
        roots = {_Roots(state).get(tree) for tree in wanted.trees}
        there = [kept for kept in there if state.top(kept.uuid).uuid in roots]
    return iter(sorted(there, key=lambda kept: kept.number))


def _of_trees(state: State, trees: Iterable[str]) -> Iterator[Kept]:
    for root in state.roots(trees):
        yield from state.below(root)


def _listed(state: State, kept: Kept) -> ListedProvider:
    parent = None if kept.parent_uuid is None else state.providers[kept.parent_uuid]
    root = state.top(kept.uuid)
    rows = [state.rows[kept.uuid, name] for name in kept.classes]
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
        kept.writes + sum(row.writes for row in rows),
    )


def list_consumers(
    state: State, order: Order, wanted: ConsumerFilter, limit: int, after: str | None
) -> tuple[ClaimRecord, ...]:
    """Return a page of consumers. Cost: linear in those looked at."""
    found = _claims(state, order, wanted, after)
    return tuple(itertools.islice(select_consumers(found, wanted, _Roots(state)), limit))


def _claims(
    state: State, order: Order, wanted: ConsumerFilter, after: str | None
) -> Iterator[ClaimRecord]:
    """Yield the claims to look at: of those named, of those at a provider or in a tree, or all."""
    if wanted.names is not None:
        names = {name for name in wanted.names if name in state.claims}
    elif wanted.provider is not None:
        kept = state.find(wanted.provider)
        names = set(_holders(state, [] if kept is None else [kept]))
    elif wanted.tree is not None:
        names = set(_holders(state, _of_trees(state, [wanted.tree])))
    else:
        return (named_today(state, claim) for claim in order.consumers(state, after))
    left = sorted(name for name in names if after is None or name > after)
    return (named_today(state, state.claims[name]) for name in left)


def _holders(state: State, providers: Iterable[Kept]) -> Iterator[str]:
    for kept in providers:
        for name in kept.classes:
            yield from state.holders.get((kept.uuid, name), ())


def list_names(
    state: State, kind: NameKind, limit: int, after: str | None
) -> tuple[ListedName, ...]:
    """Return a page of names. Cost: linear in those of all kinds."""
    found = [listed for (of, _), listed in state.names.items() if of is kind]
    found = [listed for listed in found if after is None or listed.name > after]
    return tuple(sorted(found, key=lambda listed: listed.name)[:limit])


def totals(state: State, order: Order, wanted: ConsumerFilter, by: By) -> tuple[Total, ...]:
    """Return what the consumers of a filter use. Cost: linear in the consumers looked at."""
    return totals_of(_claims(state, order, wanted, None), wanted, by, _Roots(state))
