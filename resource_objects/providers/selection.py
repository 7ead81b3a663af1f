"""Filters and totals: what each condition means, and their evaluation by loops in Python.

:data:`PROVIDER_CONDITIONS` and :data:`CONSUMER_CONDITIONS` state each condition once, as data. A
database evaluates them as SQL (:mod:`resource_objects.backends.sql.listing`), a backend whose
records are in memory by the functions below. The same tests check both. ``trees``, ``room``,
``tree`` and ``provider`` depend on several rows, so each interpreter has a function for them.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from resource_objects.providers import decision
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    Description,
    ListedProvider,
    ProviderFilter,
    Total,
    sorted_totals,
)
from resource_objects.providers.orders import ConsumerRecord, Key, Use
from resource_objects.resources.records import InventoryRecord

#: Returns the record and the shares ``(key, factor)`` of a stored inventory.
InventoryOf: TypeAlias = Callable[[Key], tuple[InventoryRecord, Iterable[tuple[Key, int]]] | None]
#: Returns the uuid of the root of a provider's tree, by its name or uuid.
RootOf: TypeAlias = Callable[[str], str | None]


class Operator(enum.Enum):
    """A comparison of a value of a row with the value of a filter."""

    IN = enum.auto()  #: is in a set; None in the set matches a missing value
    BEFORE = enum.auto()  #: an earlier moment; a missing one does not match
    AFTER = enum.auto()
    MISSING = enum.auto()  #: is None
    ALL_OF = enum.auto()  #: a set of names includes all of a set
    NONE_OF = enum.auto()
    ANY_OF_EACH = enum.auto()  #: includes at least one of each of several sets
    OVER_CAPACITY = enum.auto()  #: the use of an inventory exceeds its capacity


class Condition(NamedTuple):
    """A condition on an attribute of a listed row, which is a column or a table of a database."""

    operator: Operator
    attribute: str
    column: str


PROVIDER_CONDITIONS: Mapping[str, Condition] = {
    "names": Condition(Operator.IN, "name", "name"),
    "uuids": Condition(Operator.IN, "uuid", "uuid"),
    "roots_only": Condition(Operator.MISSING, "parent_uuid", "parent_id"),
    "reported_before": Condition(Operator.BEFORE, "reported_at", "reported_at"),
    "required": Condition(Operator.ALL_OF, "all_traits", "traits"),
    "forbidden": Condition(Operator.NONE_OF, "all_traits", "traits"),
    "any_of": Condition(Operator.ANY_OF_EACH, "all_traits", "traits"),
    "aggregates": Condition(Operator.ANY_OF_EACH, "aggregates", "aggregates"),
    "forbidden_aggregates": Condition(Operator.NONE_OF, "aggregates", "aggregates"),
    "over_capacity": Condition(Operator.OVER_CAPACITY, "records", "inventories"),
}

CONSUMER_CONDITIONS: Mapping[str, Condition] = {
    "names": Condition(Operator.IN, "consumer", "name"),
    "projects": Condition(Operator.IN, "project", "project_id"),
    "users": Condition(Operator.IN, "user", "user_id"),
    "types": Condition(Operator.IN, "consumer_type", "consumer_type"),
    "groups": Condition(Operator.IN, "group", "server_group"),
    "states": Condition(Operator.IN, "state", "state"),
    "created_before": Condition(Operator.BEFORE, "created_at", "created_at"),
    "created_after": Condition(Operator.AFTER, "created_at", "created_at"),
    "expires_before": Condition(Operator.BEFORE, "expires_at", "expires_at"),
}

#: The values of a consumer that totals and counts can be grouped by.
DESCRIPTIONS: Mapping[By, Condition] = {
    By.PROJECT: CONSUMER_CONDITIONS["projects"],
    By.USER: CONSUMER_CONDITIONS["users"],
    By.CONSUMER_TYPE: CONSUMER_CONDITIONS["types"],
    By.GROUP: CONSUMER_CONDITIONS["groups"],
}


def conditions_of(criteria: ProviderFilter | ConsumerFilter) -> Iterator[tuple[Condition, Any]]:
    """Yield the conditions of a filter on one row each, with their values."""
    is_about_providers = isinstance(criteria, ProviderFilter)
    conditions = PROVIDER_CONDITIONS if is_about_providers else CONSUMER_CONDITIONS
    for field in dataclasses.fields(criteria):
        value = getattr(criteria, field.name)
        if value != field.default and field.name in conditions:
            yield conditions[field.name], value


_COMPARE: Mapping[Operator, Callable[[Any, Any], bool]] = {
    Operator.IN: lambda value, members: value in members,
    Operator.BEFORE: lambda value, moment: value is not None and value < moment,
    Operator.AFTER: lambda value, moment: value is not None and value > moment,
    Operator.MISSING: lambda value, _: value is None,
    Operator.ALL_OF: lambda names, required: required <= names,
    Operator.NONE_OF: lambda names, forbidden: forbidden.isdisjoint(names),
    Operator.ANY_OF_EACH: lambda names, sets: all(names & members for members in sets),
    Operator.OVER_CAPACITY: lambda records, _: any(r.used > r.capacity for r in records),
}


def _matching(rows: Iterable[Any], criteria: ProviderFilter | ConsumerFilter) -> Iterator[Any]:
    tests = [
        (attrgetter(condition.attribute), _COMPARE[condition.operator], value)
        for condition, value in conditions_of(criteria)
    ]
    return (row for row in rows if all(test(of(row), value) for of, test, value in tests))


def select_providers(
    rows: Iterable[ListedProvider],
    criteria: ProviderFilter,
    inventory_of: InventoryOf,
    root_of: RootOf,
) -> Iterator[ListedProvider]:
    """Yield the rows that match a filter."""
    roots = {root_of(tree) for tree in criteria.trees or ()}
    for row in _matching(rows, criteria):
        if (criteria.trees is None or row.root_uuid in roots) and all(
            _has_room(row, *amount, inventory_of) for amount in criteria.room
        ):
            yield row


def _has_room(
    row: ListedProvider, resource_class: str, amount: int, inventory_of: InventoryOf
) -> bool:
    stored = inventory_of((row.uuid, resource_class))
    if stored is None or decision.refusals(stored[0], amount, row.name):
        return False
    for key, factor in stored[1]:
        target = inventory_of(key)
        assert target is not None, "the target of a share is stored"
        if amount and target[0].used + amount * factor > target[0].capacity:
            return False
    return True


def select_consumers(
    records: Iterable[ConsumerRecord], criteria: ConsumerFilter, root_of: RootOf
) -> Iterator[ConsumerRecord]:
    """Yield the records that match a filter."""
    is_at, is_in_tree = _places(criteria, root_of)
    for record in _matching(records, criteria):
        if any(map(is_at, record.held)) and any(map(is_in_tree, record.held)):
            yield record


def _places(
    criteria: ConsumerFilter, root_of: RootOf
) -> tuple[Callable[[Use], bool], Callable[[Use], bool]]:
    """Return whether a use is at the provider of a filter, and whether it is in its tree."""
    provider, tree = criteria.provider, criteria.tree
    root = None if tree is None else root_of(tree)
    return (
        lambda use: provider in (None, use.provider, use.provider_uuid),
        lambda use: tree is None or (root is not None and root_of(use.provider_uuid) == root),
    )


def count_by(records: Iterable[ConsumerRecord], by: Description) -> Counter[str | None]:
    """Return the number of consumers of each description."""
    return Counter(map(attrgetter(DESCRIPTIONS[by].attribute), records))


def totals_of(
    records: Iterable[ConsumerRecord], criteria: ConsumerFilter, by: By, root_of: RootOf
) -> tuple[Total, ...]:
    """Return the use of the consumers that match a filter, by group and class."""
    is_at, is_in_tree = _places(criteria, root_of)
    used: dict[tuple[str | None, str], int] = defaultdict(int)
    users: dict[tuple[str | None, str], set[str]] = defaultdict(set)
    for record in select_consumers(records, criteria, root_of):
        described = getattr(record, DESCRIPTIONS[by].attribute) if by in DESCRIPTIONS else None
        for use in record.held:
            if is_at(use) and is_in_tree(use):
                group = use.provider if by is By.PROVIDER else described
                used[group, use.resource_class] += use.amount
                users[group, use.resource_class].add(record.consumer)
    return sorted_totals([Total(*key, amount, len(users[key])) for key, amount in used.items()])
