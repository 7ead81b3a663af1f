"""Queries of a ledger: trees, usage and totals; use over time; and the arguments of filters."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from resource_objects import exceptions, names
from resource_objects.ledger.context import LedgerContext, any_limit
from resource_objects.providers import Provider
from resource_objects.providers.allocation import CONFIRMED, HELD
from resource_objects.providers.arguments import moment
from resource_objects.providers.columns import Columns, KindColumns, find, trees
from resource_objects.providers.composite import LocatedViews
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    ProviderFilter,
    Total,
)
from resource_objects.providers.usage import Usage, usage_of
from resource_objects.providers.use_over_time import UseBy, UseFilter, UseReport
from resource_objects.resources import Amounts, Inventory

#: One name or several; None matches consumers without one.
NamesGiven: TypeAlias = str | Iterable[str | None] | None


def trees_of(
    context: LedgerContext, keys: Iterable[str], limit: int | None, after: str | None
) -> Iterator[Provider]:
    """Yield the roots of all trees, or of those of some providers, each with its tree."""
    checked = [names.provider_key(key) for key in keys]
    if not checked:
        return _all_trees(context, any_limit(limit), after)
    if limit is not None or after is not None:
        raise exceptions.InvalidInput("field", "trees", keys, "names of trees, or limit and after")
    return _trees_of(context, checked)


def _all_trees(context: LedgerContext, limit: int | None, after: str | None) -> Iterator[Provider]:
    for page in context.provider_pages(
        ProviderFilter(roots_only=True), limit, after, context.tree_page
    ):
        uuids = [listed.uuid for listed in page]
        roots = {root.uuid: root for root in trees(context.backend.read(*uuids, allocations=False))}
        # a root that meanwhile moved below another one is part of that tree
        yield from (roots[uuid] for uuid in uuids if uuid in roots)


def _trees_of(context: LedgerContext, keys: Sequence[str]) -> Iterator[Provider]:
    seen: set[str | None] = set()
    for start in range(0, len(keys), context.tree_page):
        page = keys[start : start + context.tree_page]
        roots = {
            key: root
            for root in trees(context.backend.read(*page, allocations=False))
            for provider in root.walk()
            for key in (provider.name, provider.uuid)
        }
        for key in page:
            if key not in roots:
                raise exceptions.NotFound("provider", key)
            if roots[key].uuid not in seen:
                seen.add(roots[key].uuid)
                yield roots[key]


def find_provider(
    context: LedgerContext, name: str, *, allocations: bool = False
) -> tuple[Columns, Provider, Provider]:
    """Return the columns of a provider's tree, its root and the provider. Cost: one read.

    :raises NotFound: if it does not exist
    """
    key = names.provider_key(name)
    columns = context.backend.read(key, allocations=allocations)
    match = find(columns, key)
    if match is None:
        raise exceptions.NotFound("provider", name)
    return columns, *match


def usage(context: LedgerContext, tree: str | None, over_capacity: bool) -> Usage:
    """Return the used amounts of a tree or of all, perhaps only those over a capacity."""
    backend = context.backend
    if tree is not None:
        columns = backend.read(names.provider_key(tree))
        if not columns.providers.uuid:
            raise exceptions.NotFound("provider", tree)
        used = usage_of(columns)
        return used.only(used.over_capacity) if over_capacity else used
    if not over_capacity:
        return usage_of(backend.read())
    parts: list[Usage] = []
    for page in context.provider_pages(ProviderFilter(over_capacity=True), page=context.tree_page):
        listed = {provider.name for provider in page}
        used = usage_of(backend.read(*(provider.uuid for provider in page)))
        parts.append(used.only(use for use in used.over_capacity if use.provider in listed))
    return Usage.joined(parts)


def totals(
    context: LedgerContext, by: str, criteria: ConsumerFilter, limit: int | None, after: str | None
) -> Iterator[Total]:
    """Yield the sums of groups after one, at most ``limit`` groups."""
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

    later = itertools.dropwhile(is_before, context.backend.totals(criteria, By(by)))
    groups = itertools.islice(itertools.groupby(later, group), most)
    return (total for _, totals in groups for total in totals)


def inventories_of_tree(columns: Columns, root: str, uuid: str) -> Iterator[tuple[str, Inventory]]:
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


# --- use over time --------------------------------------------------------------------------------

#: Words for the class, by which use is summed in any case.
_CLASS = ("class", "resource_class")


class UseOverTime:
    """Reports of the use between two moments: ``ledger.use_over_time``.

    They are computed from the change feed, so they reach back as far as its retention
    (``feed.set_retention``).
    """

    def __init__(self, context: LedgerContext) -> None:
        self._context = context

    def between(
        self,
        since: datetime.datetime,
        until: datetime.datetime | None = None,
        by: str | Iterable[str] = "user",
        *,
        consumer: NamesGiven = None,
        user: NamesGiven = None,
        project: NamesGiven = None,
        resource_class: NamesGiven = None,
    ) -> UseReport:
        """Return the use of consumers between two moments, released allocations included.

        The report has a row for each group and class, in the order of the groups' names; the group
        of consumers without a user or project comes last. The figures are exact integers, amounts
        times microseconds; ``row.hours`` is rounded. Present allocations count until now. A move
        counts once; while a move with a ``source_consumer`` is in progress, both consumers count. A
        consumer counts for the user and project that it had last. A class counts under the name
        that it had at the time. Use from before ``report.complete_since`` is not in the change feed
        any more, and not counted. Cost: some six queries; linear in the allocations and in the
        changes that the feed retains; a database computes the sums.

        :param since: the first moment
        :param until: the first moment that does not count any more; None: now
        :param by: ``consumer``, ``user``, ``project``, several of these, or none
        :param consumer: only this consumer, or these
        :param user, project: the same; None among several matches consumers without one
        :param resource_class: only this class, or these
        :raises InvalidInput: if ``until`` is not after ``since``, ``since`` is in the future, or
            ``by`` is unknown; in a database also for a filter of more than 30,000 names
        :raises NotFound: if a class does not exist and was not used

        >>> import resource_objects as ro
        >>> with ro.connect("memory://") as ledger:
        ...     begun = ledger.now()
        ...     done = ledger.sync(ro.Provider("host0", "PGPU=4"))
        ...     done = ledger.claim("job", {"host0": "PGPU=2"}, user="ann")
        ...     [row] = ledger.use_over_time.between(begun, by="user")
        ...     print(row.user, row.resource_class, row.microseconds > 0)
        ann PGPU True
        """
        begin = moment("since", since)
        end = None if until is None else moment("until", until)
        if end is not None and end <= begin:
            after = f"a moment after {begin.isoformat()}"
            raise exceptions.InvalidInput("field", "until", end.isoformat(), after)
        criteria = UseFilter(
            consumers=any_name(consumer, names.consumer_name),
            users=any_label("user", user),
            projects=any_label("project", project),
            classes=any_name(resource_class, names.resource_class_name),
        )
        return self._context.backend.use_between(begin, end, criteria, summed_by(by))


def summed_by(by: Any) -> tuple[UseBy, ...]:
    """Return the keys that use is summed by, in addition to the resource class, each once.

    :raises InvalidInput: for an unknown key

    >>> summed_by(("user", "class"))
    (<UseBy.USER: 'user'>,)
    """
    allowed = [*UseBy, *_CLASS]
    expected = f"some of {', '.join(allowed)}"
    keys = [by] if isinstance(by, str) else by
    if isinstance(keys, bytes) or not isinstance(keys, Iterable):
        raise exceptions.InvalidInput("field", "by", by, expected)
    dimensions: dict[UseBy, None] = {}
    for key in keys:
        if not isinstance(key, str) or key not in allowed:
            raise exceptions.InvalidInput("field", "by", key, expected)
        if key not in _CLASS:
            dimensions[UseBy(key)] = None
    return tuple(dimensions)


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
