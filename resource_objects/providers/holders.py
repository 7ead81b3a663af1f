"""Reasons with the consumers that they name, and the consumer of unattributed usage.

Usage of a host without a known consumer is allocated to the host's *unattributed* consumer.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from resource_objects import fields
from resource_objects.exceptions import CapacityException
from resource_objects.names import natural_order
from resource_objects.providers.columns import Columns
from resource_objects.providers.composite import LocatedView
from resource_objects.providers.disabled import REMOVED
from resource_objects.providers.tree_shape import Part, free_removed_units
from resource_objects.reasons import USAGE_RULES, Reason, Rule
from resource_objects.resources import Amount

#: Unavailable units, each with the units that block it, by the number of their provider.
Blocked: TypeAlias = Mapping[int, Mapping[str, Collection[str]]]

_SUFFIX = "/unattributed"
#: The maximum number of consumers that a reason names: the largest.
MOST_HOLDERS = 100


def unattributed(host: str) -> str:
    """Return the name of the consumer to which a host's unattributed usage is allocated.

    >>> unattributed("host0")
    'host0/unattributed'
    """
    return f"{host}{_SUFFIX}"


def is_unattributed(consumer: str) -> bool:
    """Return True for the name of such a consumer, even if its host was renamed.

    >>> is_unattributed(unattributed("host0")), is_unattributed("job-1")
    (True, False)
    """
    return consumer.endswith(_SUFFIX)


def holders_of(columns: Columns, number: int, name: str) -> Counter[str]:
    """Return the amount of an inventory that each consumer uses, through shares too."""
    factors = {(number, name): 1}
    for at, kind, of, of_class, factor in zip(*columns.shares, strict=True):
        if (of, of_class) == (number, name):
            factors[at, kind] = factor
    holders: Counter[str] = Counter()
    for at, kind, consumer, amount in zip(*columns.allocations, strict=True):
        if (at, kind) in factors:
            holders[consumer] += amount * factors[at, kind]
    return holders


def describe_holders(columns: Columns, name: str) -> Iterator[str]:
    """Yield a sentence about each consumer of a provider, with its units or its amount."""
    number = columns.index.numbers_by_name.get(name)
    units: dict[tuple[str, str], list[str]] = defaultdict(list)
    for at, unit, kind, consumer in zip(*columns.units, strict=True):
        if at == number:
            units[consumer, kind].append(unit)
    for at, kind, consumer, amount in zip(*columns.allocations, strict=True):
        if at == number:
            units_or_amount = ", ".join(sorted(units[consumer, kind])) or f"{amount} {kind}"
            yield f"{consumer} holds {units_or_amount}"


# --- refusals of placed amounts -------------------------------------------------------------------


def with_holders(
    refusal: CapacityException,
    views: Sequence[LocatedView],
    columns: Columns,
    refused: Mapping[str, Amount],
    within: Mapping[str, Collection[int]] = fields.FrozenDict(),
) -> CapacityException:
    """Return a refusal with reasons that name the host, the consumers and the removed units.

    Cost: one pass over the rows; it explains a decision that was made.

    :param views: those that were requested, all of one tree
    :param columns: those that the views were assembled from
    :param refused: the refused amounts by resource, if their blocking units are to be named
    :param within: by resource, positions of the parts that may be used; absent for all
    """
    removed = free_removed_units(columns).units
    reasons: dict[Reason, None] = {}
    for_units: dict[Reason, None] = {}
    for reason in refusal.reasons:
        view = next((view for view in views if view.is_about(reason)), views[0])
        kind = view.shape.resource.name
        amount = refused.get(kind)
        units = {} if amount is None else view.blocking_units(amount, reason, within.get(kind))
        blocked: dict[int, Mapping[str, Collection[str]]] = {}
        for part, blocking in sorted(units.items()):
            free = removed.get(part.number, ())
            blocked[part.number] = without_removed_units(blocking, free)
            for unit in sorted(frozenset[str]().union(*blocking.values()).intersection(free)):
                for_units[unit_removed(unit, part.name)] = None
        reasons[_with_consumers(reason, view, columns, blocked)] = None
    return CapacityException([*reasons, *for_units])


def without_removed_units(
    blocking: Mapping[str, frozenset[str]], removed: Collection[str]
) -> dict[str, frozenset[str]]:
    """Return the unavailable units that no removed unit blocks.

    :param removed: free units that were removed from the host
    """
    return {unit: units for unit, units in blocking.items() if units.isdisjoint(removed)}


def _with_consumers(reason: Reason, view: LocatedView, columns: Columns, units: Blocked) -> Reason:
    """Return a reason with the host and the consumers of the requested inventory."""
    reason = dataclasses.replace(reason, where=reason.where or view.host)
    name = reason.resource
    if name is None or reason.holders:
        return reason
    if units:
        factors = {
            (number, kind): factor
            for number, kind, of, of_class, factor in zip(*columns.shares, strict=True)
            if (of, of_class) == (number, name)
        }
        rows = zip(*columns.units, strict=True), zip(*columns.allocations, strict=True)
        counts = count_units_by_consumer(
            units, *rows, lambda number, kind: factors.get((number, kind), 1)
        )
        return dataclasses.replace(reason, holders=largest(counts.items()))
    if reason.rule not in USAGE_RULES:
        return reason
    part = view.part_of(reason)
    number = view.shape.root if part is None else part.number
    if part is None:
        reason = _with_host_figures(reason, number, columns)
    if reason.rule is Rule.UNIT_TAKEN:
        units_here = columns.index.units.get(number, ())
        holders = Counter(consumer for unit, _, consumer in units_here if unit == reason.unit)
    else:
        holders = holders_of(columns, number, name)
        if part is not None:
            holders.update(_holders_elsewhere(view, part, name, columns))
    return dataclasses.replace(reason, holders=largest(holders.items()))


def count_units_by_consumer(
    blocked: Blocked,
    units: Iterable[tuple[int, str, str, str]],
    allocations: Iterable[tuple[int, str, str, int]],
    factor: Callable[[int, str], int],
) -> dict[str, int]:
    """Return the number of unavailable units of each consumer.

    For a consumer of none of these units, units that it blocks count instead: a consumer of two
    functions of a card has the one card. A consumer whose units were not specified has as many as
    its amount, if there are that many units without a known consumer.

    :param blocked: the unavailable units
    :param units: ``(number, unit, class, consumer)`` of allocated units
    :param allocations: ``(number, class, consumer, amount)``
    :param factor: the number of unavailable units that one unit of a class at a provider uses
    """
    consumers: dict[tuple[int, str], str] = {}
    named: set[tuple[int, str, str]] = set()
    for number, unit, name, consumer in units:
        consumers[number, unit] = consumer
        named.add((number, name, consumer))
    direct: Counter[tuple[int, str]] = Counter()
    blocking: Counter[tuple[int, str]] = Counter()
    anonymous: Counter[int] = Counter()
    for number, unavailable in blocked.items():
        for unit, blockers in unavailable.items():
            names = {consumers.get((number, blocker)) for blocker in blockers}
            anonymous[number] += None in names
            blocking.update((number, name) for name in names if name is not None)
            if unit in blockers and (number, unit) in consumers:
                direct[number, consumers[number, unit]] += 1
    counts: Counter[str] = Counter()
    for (number, consumer), count in blocking.items():
        counts[consumer] += direct[number, consumer] or count
    for number, name, consumer, amount in allocations:
        if anonymous[number] and (number, name, consumer) not in named:
            counts[consumer] += min(amount * factor(number, name), anonymous[number])
    return dict(+counts)


def _with_host_figures(reason: Reason, number: int, columns: Columns) -> Reason:
    """Return a reason about the remaining capacity of a host with the figures of the host."""
    for record in columns.index.inventories.get(number, ()):
        free = record.capacity - record.used
        if record.resource_class == reason.resource and free == reason.free:
            return dataclasses.replace(reason, bound=record.capacity, used=record.used)
    return reason


def _holders_elsewhere(view: LocatedView, part: Part, name: str, columns: Columns) -> Iterator[str]:
    """Yield the consumer of each unit of a part that was allocated as a unit of another part."""
    units = view.inventory.parts()[view.parts.index(part)].inventory.units(name) or ()
    other_parts = {other.number for other in view.parts} - {part.number}
    for number, unit, _, consumer in zip(*columns.units, strict=True):
        if number in other_parts and unit in units:
            yield consumer


# --- refusals within limits -----------------------------------------------------------------------


def reasons_without_limits(reasons: Iterable[Reason], columns: Columns) -> Iterator[Reason]:
    """Yield the reasons of a refusal within limits that hold without the limits.

    The figures of an inventory that a limit reserved are not the stored ones. Such a reason is
    replaced by one for each provider of the host whose free capacity is too small.
    """
    for reason in reasons:
        is_stored = sum(amount for _, amount in reason.holders) == reason.used
        if reason.rule is Rule.DISABLED or (reason.holders and is_stored):
            yield reason
        elif reason.holders:
            yield from _of_each_provider(reason, columns)


def _of_each_provider(reason: Reason, columns: Columns) -> Iterator[Reason]:
    """Yield the reason for each provider of the host whose free capacity is too small."""
    index = columns.index
    hosts = [root for number, root in index.roots.items() if index.names[number] == reason.where]
    for number, root in index.roots.items():
        for record in index.inventories.get(number, ()) if root in hosts else ():
            name, free = record.resource_class, record.capacity - record.used
            if name == reason.resource and record.used and free < reason.requested:
                yield Reason(
                    Rule.CAPACITY,
                    reason.requested,
                    record.capacity,
                    record.used,
                    name,
                    index.names[number],
                    holders=largest(holders_of(columns, number, name).items()),
                )


# --- reasons --------------------------------------------------------------------------------------


def absent(resource_class: str, amount: int, provider: str) -> Reason:
    """Return the reason that a provider has no inventory of a class."""
    return Reason(Rule.NO_INVENTORY, amount, 0, 0, resource_class, provider)


def unit_removed(unit: str, provider: str) -> Reason:
    """Return the reason why a unit that was removed from its host is not allocated."""
    return Reason(Rule.DISABLED, 1, 0, 0, where=provider, unit=unit, disabled=REMOVED)


def held_by(reason: Reason, holders: Iterable[tuple[str, int]]) -> Reason:
    """Return a reason with the largest consumers of the used amount."""
    return dataclasses.replace(reason, holders=largest(holders))


def largest(holders: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Return the :data:`MOST_HOLDERS` largest consumers, in the order of :func:`by_amount`.

    Among equal ones the first by name are returned, as a database can select these.

    >>> largest([("job-10", 1), ("b", 5), ("job-2", 1)])
    (('b', 5), ('job-2', 1), ('job-10', 1))
    """
    ordered: Sequence[tuple[str, int]] = sorted(holders, key=lambda holder: (-holder[1], holder[0]))
    return tuple(sorted(ordered[:MOST_HOLDERS], key=by_amount))


def by_amount(holder: tuple[str, Any]) -> tuple[Any, ...]:
    """Return a sort key of consumers: the largest first, then by name in natural order."""
    return -holder[1], natural_order(holder[0])
