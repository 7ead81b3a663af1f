"""Queries of a ledger: providers, consumers and totals by filters, a page at a time."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from resource_objects import exceptions, names
from resource_objects.ledger.context import LedgerContext, any_limit, consumer_of
from resource_objects.providers import Consumer, Provider
from resource_objects.providers.allocation import CONFIRMED, HELD
from resource_objects.providers.columns import Columns, KindColumns, find, trees
from resource_objects.providers.composite import LocatedViews
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    ProviderFilter,
    Total,
)
from resource_objects.providers.usage import Usage, usage_of
from resource_objects.resources import Amounts, Inventories, Inventory

#: One name or several; None matches consumers without one.
NamesGiven: TypeAlias = str | Iterable[str | None] | None


class Reader:
    """The reading methods of a ledger, documented in :class:`~resource_objects.ledger.Ledger`."""

    def __init__(self, context: LedgerContext) -> None:
        self._context = context

    # --- providers ---

    def provider(self, name: str) -> Provider:
        _, _, provider = self._find(name, allocations=False)
        return provider

    def _find(self, name: str, *, allocations: bool) -> tuple[Columns, Provider, Provider]:
        """Return the columns of a provider's tree, its root and the provider."""
        key = names.provider_key(name)
        columns = self._context.backend.read(key, allocations=allocations)
        match = find(columns, key)
        if match is None:
            raise exceptions.NotFound("provider", name)
        return columns, *match

    def trees(
        self, keys: Iterable[str], limit: int | None, after: str | None
    ) -> Iterator[Provider]:
        checked = [names.provider_key(key) for key in keys]
        if not checked:
            return self._all_trees(any_limit(limit), after)
        if limit is not None or after is not None:
            raise exceptions.InvalidInput(
                "field", "trees", keys, "names of trees, or limit and after"
            )
        return self._trees_of(checked)

    def _all_trees(self, limit: int | None, after: str | None) -> Iterator[Provider]:
        page_of_roots = ProviderFilter(roots_only=True)
        for page in self._context.provider_pages(
            page_of_roots, limit, after, self._context.tree_page
        ):
            uuids = [listed.uuid for listed in page]
            columns = self._context.backend.read(*uuids, allocations=False)
            roots = {root.uuid: root for root in trees(columns)}
            # a root that meanwhile moved below another one is part of that tree
            yield from (roots[uuid] for uuid in uuids if uuid in roots)

    def _trees_of(self, keys: Sequence[str]) -> Iterator[Provider]:
        seen: set[str | None] = set()
        for start in range(0, len(keys), self._context.tree_page):
            page = keys[start : start + self._context.tree_page]
            roots = {
                key: root
                for root in trees(self._context.backend.read(*page, allocations=False))
                for provider in root.walk()
                for key in (provider.name, provider.uuid)
            }
            for key in page:
                if key not in roots:
                    raise exceptions.NotFound("provider", key)
                if roots[key].uuid not in seen:
                    seen.add(roots[key].uuid)
                    yield roots[key]

    def inventories(self, name: str) -> Inventories:
        columns, root, provider = self._find(name, allocations=True)
        inventories = dict(provider.inventories.by_name())
        inventories.update(_of_tree(columns, root.uuid or "", provider.uuid or ""))
        return Inventories(inventories)

    # --- consumers and figures ---

    def consumers(
        self, criteria: ConsumerFilter, limit: int | None = None, after: str | None = None
    ) -> Iterator[Consumer]:
        last = None if after is None else names.consumer_name(after)
        pages = self._context.consumer_pages(criteria, any_limit(limit), last)
        return (consumer_of(record) for page in pages for record in page)

    def usage(self, tree: str | None, over_capacity: bool) -> Usage:
        backend = self._context.backend
        if tree is not None:
            columns = backend.read(names.provider_key(tree))
            if not columns.providers.uuid:
                raise exceptions.NotFound("provider", tree)
            usage = usage_of(columns)
            return usage.only(usage.over_capacity) if over_capacity else usage
        if not over_capacity:
            return usage_of(backend.read())
        parts: list[Usage] = []
        for page in self._context.provider_pages(
            ProviderFilter(over_capacity=True), page=self._context.tree_page
        ):
            listed = {provider.name for provider in page}
            usage = usage_of(backend.read(*(provider.uuid for provider in page)))
            parts.append(usage.only(use for use in usage.over_capacity if use.provider in listed))
        return Usage.joined(parts)

    def totals(
        self, by: str, criteria: ConsumerFilter, limit: int | None, after: str | None
    ) -> Iterator[Total]:
        if by not in list(By):
            raise exceptions.InvalidInput("field", "totals by", by, f"one of {', '.join(By)}")
        most, only_class = any_limit(limit), by == By.RESOURCE_CLASS
        last = None if after is None else names.label(after, "after")

        def group(total: Total) -> str | None:
            return total.resource_class if only_class else total.group

        def is_before(total: Total) -> bool:
            name = group(total)
            if last is None or name is None:  # totals without a group come last
                return False
            if only_class:
                return names.resource_class_order(name) <= names.resource_class_order(last)
            return name <= last

        later = itertools.dropwhile(is_before, self._context.backend.totals(criteria, By(by)))
        groups = itertools.islice(itertools.groupby(later, group), most)
        return (total for _, totals in groups for total in totals)


def _of_tree(columns: Columns, root: str, uuid: str) -> Iterator[tuple[str, Inventory]]:
    """Yield the inventories that span a tree; for a provider below the root only its own."""
    numbers = columns.index.numbers
    if uuid != root:
        rows = [row for row in zip(*columns.kinds, strict=True) if row[0] == numbers[uuid]]
        columns = dataclasses.replace(columns, kinds=KindColumns(*zip(*rows, strict=True)))
    views = LocatedViews(columns)
    for kind in sorted(views.kinds()):
        view = views.of_tree(numbers[root], kind)
        if view is not None:
            yield kind, view.inventory


# --- arguments of filters -------------------------------------------------------------------------


def any_name(values: NamesGiven, check: Callable[[object], str]) -> frozenset[str] | None:
    """Return one or several names, each checked; None: all names match."""
    if values is None:
        return None
    return each_checked([values] if isinstance(values, str) else values, check)


def consumers_with(
    project: NamesGiven,
    user: NamesGiven,
    consumer_type: NamesGiven,
    group: NamesGiven,
    tree: str | None,
    provider: str | None,
) -> ConsumerFilter:
    """Return the filter of consumers by their labels and by where they have allocations."""
    return ConsumerFilter(
        projects=any_label("project", project),
        users=any_label("user", user),
        types=any_label("consumer type", consumer_type),
        groups=any_label("server group", group),
        tree=None if tree is None else names.provider_key(tree),
        provider=None if provider is None else names.provider_key(provider),
    )


def any_label(field: str, values: NamesGiven) -> frozenset[str | None] | None:
    """Return one or several labels of consumers, each checked; None: all consumers match."""
    if values is None:
        return None
    labels = [values] if isinstance(values, str) else list_of(field, values)
    return frozenset(None if label is None else names.label(label, field) for label in labels)


def each_checked(values: Any, check: Callable[[object], str]) -> frozenset[str]:
    """Return the names of a list, each checked."""
    return frozenset(map(check, list_of("names", values)))


def list_of(field: str, values: Any) -> Iterable[Any]:
    """Return the values of a list, or raise ``InvalidInput`` for text."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise exceptions.InvalidInput("field", field, values, "a list")
    return values


def stored_state(value: object) -> str:
    """Return the state of a claim; a released claim is not stored."""
    if value not in (HELD, CONFIRMED):
        raise exceptions.InvalidInput("field", "state", value, f"{HELD} or {CONFIRMED}")
    return str(value)


def counts_by_class(value: Any) -> tuple[tuple[str, int], ...]:
    """Return amounts, none of them negative, as counts by class; None: no counts."""
    amounts = Amounts() if value is None else Amounts.from_value(value)
    for kind, amount in amounts.by_name():
        if amount.is_negative:
            raise exceptions.InvalidInput("negative amount", kind, amount, "0 or more")
    return tuple(
        (record.resource_class, record.amount)
        for kind, amount in amounts.by_name()
        for record in amount.to_records(kind)
    )
