"""What turns one state of rows into another: a comparison of columns, pure.

A mirror, an import, an undo: whoever has two pictures of a ledger gets the plan that leads from one
to the other. Providers are the same where their uuids are, consumers where their names are.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderRemoval,
    ProviderUpdate,
    ShareRecord,
    StoredDefinition,
    changes_between,
)
from resource_objects.providers.orders import (
    ConsumerOrder,
    ConsumerRecord,
    Key,
    Use,
    subject_of,
)
from resource_objects.providers.plan import Plan
from resource_objects.resources.records import InventoryRecord, KindRecord

_T = TypeVar("_T")
_Holdings: TypeAlias = Mapping[str, Mapping[Key, Use]]


def stored_definitions(columns: Columns) -> dict[str, StoredDefinition]:
    """Return what each provider is, by uuid, parents before children. Cost: linear.

    What is equal is made once: most providers of a fleet have what others have.
    """
    given = columns.providers
    uuid = columns.index.uuids
    records = _of_each(
        columns.inventories[:-1],  # without what is used
        lambda some: tuple([InventoryRecord(*figures) for figures in sorted(some, key=_first)]),
    )
    traits = _of_each(columns.traits, lambda some: frozenset([name for (name,) in some]))
    aggregates = _of_each(columns.aggregates, lambda some: frozenset([name for (name,) in some]))
    kinds = _of_each(
        columns.kinds, lambda some: tuple([KindRecord(*kind) for kind in sorted(some, key=_first)])
    )
    shared = _of_each(columns.shares, tuple)
    nothing = frozenset[str]()
    found: dict[str, StoredDefinition] = {}
    for number, own, name, parent, root, generation in zip(*given[:6], strict=True):
        shares = [
            ShareRecord(kind, uuid[of_id], of_class, factor)
            for kind, of_id, of_class, factor in shared.get(number, ())
        ]
        definition = ProviderDefinition(
            own,
            name,
            None if parent is None else uuid[parent],
            records.get(number, ()),
            traits.get(number, nothing),
            aggregates.get(number, nothing),
            tuple(sorted(shares) if len(shares) > 1 else shares),
            kinds.get(number, ()),
        )
        found[own] = StoredDefinition(definition, generation, uuid[root])
    return found


_first = operator.itemgetter(0)


def _of_each(
    table: Sequence[Sequence[Any]], make: Callable[[tuple[Any, ...]], _T]
) -> dict[int, _T]:
    """Return what is made of the rows of each provider, by its number; once of equal rows."""
    rows = sorted(zip(table[0], zip(*table[1:], strict=True), strict=True), key=_first)
    made: dict[tuple[Any, ...], _T] = {}
    found: dict[int, _T] = {}
    for number, some in itertools.groupby(rows, _first):
        own = tuple([row for _, row in some])
        one = made.get(own)
        if one is None:
            one = made[own] = make(own)
        found[number] = one
    return found


def holdings(columns: Columns) -> dict[str, dict[Key, Use]]:
    """Return what each consumer holds, as ``{consumer: {place: amount and units}}``."""
    uuid = columns.index.uuids
    units: dict[tuple[int, str, str], list[str]] = defaultdict(list)
    for number, unit, kind, consumer in zip(*columns.units, strict=True):
        units[number, kind, consumer].append(unit)
    found: dict[str, dict[Key, Use]] = defaultdict(dict)
    for number, kind, consumer, amount in zip(*columns.allocations, strict=True):
        own = tuple(sorted(units[number, kind, consumer]))
        found[consumer][uuid[number], kind] = Use(uuid[number], kind, amount, own)
    return dict(found)


def diff_rows(
    before: Columns, after: Columns, claims: Mapping[str, ConsumerRecord] | None = None
) -> Plan:
    """Return the plan that turns the state ``before`` into the state ``after``.

    Providers, inventories, traits, aggregates, shares, kinds, allocations and units are compared;
    the time of reports, and what a consumer is beside what it holds (project, user, ...), are not.
    Carried out on a ledger in state ``before`` it gives one that reads like ``after``, unless
    ``after`` uses more of something than its capacity: that, no plan can bring about (law 4).

    :param claims: consumers as they were read with ``before``: the plan then demands their
        generations
    :returns: the plan; nothing changed gives an empty one. Cost: linear in the rows

    >>> diff_rows(Columns(), Columns())
    Plan(definitions=None, orders=(), names={}, disabling=(), adopted=())
    """
    had, has = stored_definitions(before), stored_definitions(after)
    orders = tuple(_orders(holdings(before), holdings(after), claims or {}))
    changes = _changes(had, has)
    plan = Plan(changes or None, orders)
    names = {uuid: kept.definition.name for uuid, kept in {**had, **has}.items()}
    used = {uuid: names[uuid] for uuid in plan.places if uuid in names}
    return dataclasses.replace(plan, names=used)


def _changes(
    had: Mapping[str, StoredDefinition], has: Mapping[str, StoredDefinition]
) -> DefinitionChanges:
    found = changes_between("", had, (kept.definition for kept in has.values()))
    root = _root(had, has, found.creates, found.updates, found.removals)
    return dataclasses.replace(found, root=root)


def _root(
    had: Mapping[str, StoredDefinition],
    has: Mapping[str, StoredDefinition],
    creates: Iterable[ProviderDefinition],
    updates: Iterable[ProviderUpdate],
    removals: Iterable[ProviderRemoval],
) -> str:
    """Return what the changes are about: the name of the tree, or how many trees there are."""
    changed = [one.uuid for one in creates] + [one.definition.uuid for one in updates]
    roots = {has[uuid].root_uuid for uuid in changed}
    names = {has[root].definition.name for root in roots}
    names |= {had[had[one.uuid].root_uuid].definition.name for one in removals}
    if len(names) == 1:
        return names.pop()
    return subject_of(names).replace("consumers", "trees")


def _orders(
    had: _Holdings, has: _Holdings, claims: Mapping[str, ConsumerRecord]
) -> Iterator[ConsumerOrder]:
    for consumer in sorted({*had, *has}):
        before, after = had.get(consumer), has.get(consumer)
        if before == after:
            continue
        claim = claims.get(consumer)
        generation = None if claim is None else claim.generation
        if not after:
            yield ConsumerOrder.release(consumer, generation)
        elif not before:
            yield ConsumerOrder.claim(consumer, tuple(after.values()))
        else:
            request = None if claim is None else claim.request
            deltas = tuple(after.values())
            yield ConsumerOrder.replace(consumer, deltas, request=request, generation=generation)
