"""Reading: providers, consumers and figures by filters, a page at a time. Nothing is written."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from resource_objects import exceptions, names
from resource_objects.ledger.context import Store, any_limit, consumer_of, pages_of
from resource_objects.providers import Consumer, Provider
from resource_objects.providers.allocation import CONFIRMED, HELD
from resource_objects.providers.arguments import ago, moment
from resource_objects.providers.columns import Columns, KindColumns, find, trees
from resource_objects.providers.composite import LocatedViews
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    ListedProvider,
    ProviderFilter,
    Total,
)
from resource_objects.providers.usage import Usage, usage_of
from resource_objects.providers.use_over_time import UseFilter
from resource_objects.resources import Amounts, Inventories, Inventory
from resource_objects.resources.traits import known_traits

#: One name or several; None matches consumers without one.
NamesGiven: TypeAlias = str | Iterable[str | None] | None

#: Providers by name and by uuid, each with the root of its tree: ``(root, provider)``.
TreesByKey: TypeAlias = dict[str, tuple[Provider, Provider]]


class Reader:
    """The reading methods of a ledger, documented in :class:`~resource_objects.ledger.Ledger`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def now(self) -> datetime.datetime:
        return self._store.backend.now()

    # --- providers ---

    def provider(self, name: str) -> Provider:
        key = names.provider_key(name)
        found = find(self._store.backend.read(key, allocations=False), key)
        if found is None:
            raise exceptions.NotFound("provider", name)
        return found[1]

    def trees(
        self, given: Iterable[str], limit: int | None, after: str | None
    ) -> Iterator[Provider]:
        keys = [names.provider_key(name) for name in given]
        if not keys:
            return self._all_trees(any_limit(limit), after)
        if limit is not None or after is not None:
            raise exceptions.InvalidInput(
                "field", "trees", given, "names of trees, or limit and after"
            )
        return self._trees_of(keys)

    def _all_trees(self, limit: int | None, after: str | None) -> Iterator[Provider]:
        roots = ProviderFilter(roots_only=True)
        for found in self.pages(roots, limit, after, self._store.tree_page):
            uuids = [one.uuid for one in found]
            columns = self._store.backend.read(*uuids, allocations=False)
            kept = {root.uuid: root for root in trees(columns)}
            # one that went below another meanwhile comes with that one
            yield from (kept[uuid] for uuid in uuids if uuid in kept)

    def _trees_of(self, keys: list[str]) -> Iterator[Provider]:
        seen: set[str | None] = set()
        for start in range(0, len(keys), self._store.tree_page):
            some = keys[start : start + self._store.tree_page]
            kept = self.kept(some)
            for key in some:
                root, _ = find_provider(kept, key)
                if root.uuid not in seen:
                    seen.add(root.uuid)
                    yield root

    def kept(self, keys: Iterable[str]) -> TreesByKey:
        """Return the trees of some providers as they are, by name and uuid."""
        return by_key(trees(self._store.backend.read(*keys, allocations=False)))

    def providers(
        self, wanted: ProviderFilter, limit: int | None, after: str | None
    ) -> Iterator[ListedProvider]:
        pages = self.pages(wanted, any_limit(limit), after)
        return (one for found in pages for one in found)

    def pages(
        self,
        wanted: ProviderFilter,
        limit: int | None = None,
        after: str | None = None,
        page: int | None = None,
    ) -> Iterator[tuple[ListedProvider, ...]]:
        """Yield the providers of a filter, in the order they were made, a page at a time.

        :param after: the name or uuid of the one after which to begin
        """
        backend = self._store.backend
        start = 0
        if after is not None:
            key = names.provider_key(after)
            uuid = self._store.uuids([key])[key]
            last = backend.list_providers(ProviderFilter(uuids=frozenset([uuid])), 1, 0)
            if not last:
                raise exceptions.NotFound("provider", after)
            start = last[0].number
        return pages_of(
            lambda count, number: backend.list_providers(wanted, count, number or 0),
            lambda one: one.number,
            page or self._store.page,
            limit,
            start,
        )

    def inventories(self, name: str) -> Inventories:
        key = names.provider_key(name)
        columns = self._store.backend.read(key)
        found = find(columns, key)
        if found is None:
            raise exceptions.NotFound("provider", name)
        root, provider = found
        own = dict(provider.inventories.by_name())
        own.update(_over(columns, root.uuid, provider.uuid))
        return Inventories(own)

    # --- consumers and figures ---

    def consumers(
        self, wanted: ConsumerFilter, limit: int | None, after: str | None
    ) -> Iterator[Consumer]:
        last = None if after is None else names.consumer_name(after)
        pages = self._store.consumers(wanted, any_limit(limit), last)
        return (consumer_of(record) for found in pages for record in found)

    def usage(self, tree: str | None, over_capacity: bool) -> Usage:
        backend = self._store.backend
        if tree is not None:
            columns = backend.read(names.provider_key(tree))
            if not columns.providers.uuid:
                raise exceptions.NotFound("provider", tree)
            found = usage_of(columns)
            return found.only(found.over_capacity) if over_capacity else found
        if not over_capacity:
            return usage_of(backend.read())
        parts: list[Usage] = []
        for page in self.pages(ProviderFilter(over_capacity=True), page=self._store.tree_page):
            names_of = {one.name for one in page}
            usage = usage_of(backend.read(*(one.uuid for one in page)))
            parts.append(usage.only(use for use in usage.over_capacity if use.provider in names_of))
        return Usage.joined(parts)

    def totals(
        self, by: str, wanted: ConsumerFilter, limit: int | None, after: str | None
    ) -> Iterator[Total]:
        if by not in list(By):
            known = ", ".join(one.value for one in By)
            raise exceptions.InvalidInput("field", "totals by", by, f"one of {known}")
        most, only_class = any_limit(limit), by == By.RESOURCE_CLASS
        last = None if after is None else names.label(after, "after")

        def group(total: Total) -> str | None:
            return total.resource_class if only_class else total.group

        def is_passed(total: Total) -> bool:
            name = group(total)
            if last is None or name is None:  # what is of no group comes after all groups
                return False
            if only_class:
                return names.resource_class_order(name) <= names.resource_class_order(last)
            return name <= last

        found = itertools.dropwhile(is_passed, self._store.backend.totals(wanted, By(by)))
        numbers = itertools.count() if most is None else range(most)
        groups = zip(numbers, itertools.groupby(found, group), strict=False)
        return (total for _, (_, totals) in groups for total in totals)


def _over(columns: Columns, root: str | None, uuid: str | None) -> Iterator[tuple[str, Inventory]]:
    """Yield the inventories that lie over a tree; of a provider below the root, what it keeps."""
    numbers = columns.index.numbers
    if uuid != root:
        own = [row for row in zip(*columns.kinds, strict=True) if row[0] == numbers[uuid or ""]]
        kinds = KindColumns(*zip(*own, strict=True)) if own else KindColumns()
        columns = dataclasses.replace(columns, kinds=kinds)
    views = LocatedViews(columns)
    for kind in sorted(views.kinds()):
        view = views.of_tree(numbers[root or ""], kind)
        if view is not None:
            yield kind, view.inventory


def by_key(roots: Iterable[Provider]) -> TreesByKey:
    """Return the providers of some trees by name and by uuid, each with its root: (root, it)."""
    return {
        key: (root, provider)
        for root in roots
        for provider in root.walk()
        for key in (provider.name, provider.uuid or "")
    }


def find_provider(kept: TreesByKey, key: str) -> tuple[Provider, Provider]:
    """Return (root, provider) of a name or uuid.

    :raises NotFound: if it is not there
    """
    if key not in kept:
        raise exceptions.NotFound("provider", key)
    return kept[key]


# --- filters, as callers give them ----------------------------------------------------------------


def provider_filter(
    *,
    name: NamesGiven,
    uuid: NamesGiven,
    tree: NamesGiven,
    aggregates: Iterable[str | Iterable[str]],
    forbidden_aggregates: Iterable[str],
    required: Iterable[str],
    forbidden: Iterable[str],
    any_of: Iterable[Iterable[str]],
    room: Any,
    over_capacity: bool,
    reported_before: datetime.datetime | None,
) -> ProviderFilter:
    """Return the filter of ``ledger.providers``, checked."""
    return ProviderFilter(
        names=_one_or_several(name, names.provider_name),
        uuids=_one_or_several(uuid, names.uuid_text),
        trees=_one_or_several(tree, names.provider_key),
        aggregates=tuple(
            _several([one] if isinstance(one, str) else one, names.aggregate_name)
            for one in _several_of("aggregates", aggregates)
        ),
        forbidden_aggregates=_several(forbidden_aggregates, names.aggregate_name),
        required=known_traits(required),
        forbidden=known_traits(forbidden),
        any_of=tuple(known_traits(some) for some in _several_of("any_of", any_of)),
        room=() if room is None else _room(room),
        over_capacity=over_capacity,
        reported_before=None
        if reported_before is None
        else moment("reported_before", reported_before),
    )


def consumer_filter(
    now: Callable[[], datetime.datetime],
    *,
    name: NamesGiven = None,
    state: NamesGiven = None,
    older_than: datetime.timedelta | None = None,
    younger_than: datetime.timedelta | None = None,
    project: NamesGiven = None,
    user: NamesGiven = None,
    consumer_type: NamesGiven = None,
    group: NamesGiven = None,
    tree: str | None = None,
    provider: str | None = None,
) -> ConsumerFilter:
    """Return the filter of ``ledger.consumers`` and ``ledger.totals``, checked.

    :param now: asks for the time of the ledger, where ages are given
    """
    return ConsumerFilter(
        names=_one_or_several(name, names.consumer_name),
        states=_one_or_several(state, _state),
        created_before=None if older_than is None else ago("older_than", older_than, now()),
        created_after=None if younger_than is None else ago("younger_than", younger_than, now()),
        projects=_labels("project", project),
        users=_labels("user", user),
        types=_labels("consumer type", consumer_type),
        groups=_labels("server group", group),
        tree=None if tree is None else names.provider_key(tree),
        provider=None if provider is None else names.provider_key(provider),
    )


def use_filter(
    consumer: NamesGiven, user: NamesGiven, project: NamesGiven, resource_class: NamesGiven
) -> UseFilter:
    """Return the filter of ``ledger.use_over_time.between``, checked."""
    return UseFilter(
        consumers=_one_or_several(consumer, names.consumer_name),
        users=_labels("user", user),
        projects=_labels("project", project),
        classes=_one_or_several(resource_class, names.resource_class_name),
    )


def _one_or_several(given: NamesGiven, check: Callable[[object], str]) -> frozenset[str] | None:
    if given is None:
        return None
    return _several([given] if isinstance(given, str) else given, check)


def _several(given: Any, check: Callable[[object], str]) -> frozenset[str]:
    return frozenset(check(one) for one in _several_of("names", given))


def _several_of(what: str, given: Any) -> Iterable[Any]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise exceptions.InvalidInput("field", what, given, "a list")
    return given


def _labels(what: str, given: NamesGiven) -> frozenset[str | None] | None:
    if given is None:
        return None
    several = [given] if isinstance(given, str) else _several_of(what, given)
    return frozenset(None if one is None else names.label(one, what) for one in several)


def _state(given: object) -> str:
    if given not in (HELD, CONFIRMED):  # who has released holds nothing, and is not kept
        raise exceptions.InvalidInput("field", "state", given, f"{HELD} or {CONFIRMED}")
    return str(given)


def _room(given: Any) -> tuple[tuple[str, int], ...]:
    amounts = Amounts.of(given)
    for kind, amount in amounts.by_name():
        if amount.is_negative:
            raise exceptions.InvalidInput(
                "negative amount", kind, amount, "0 or more: what has room for less?"
            )
    return tuple(
        (record.resource_class, record.amount)
        for kind, amount in amounts.by_name()
        for record in amount.to_records(kind)
    )
