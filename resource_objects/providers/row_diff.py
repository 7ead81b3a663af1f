"""What turns one state of rows into another: a comparison of columns, pure.

A mirror, an import, an undo: whoever has two pictures of a ledger gets the plan that leads from one
to the other. Providers are the same where their uuids are, consumers where their names are.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderRemoval,
    ProviderUpdate,
    ShareRecord,
    update_of,
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

_Holdings: TypeAlias = Mapping[str, Mapping[Key, Use]]


@dataclasses.dataclass(frozen=True, slots=True)
class KeptDefinition:
    """A provider as kept: its definition, at a generation."""

    definition: ProviderDefinition
    generation: int
    root_uuid: str


def kept_definitions(columns: Columns) -> dict[str, KeptDefinition]:
    """Return what each provider is, by uuid, parents before children. Cost: linear."""
    given = columns.providers
    uuid = dict(zip(given.provider_id, given.uuid, strict=True))
    records: dict[int, list[InventoryRecord]] = defaultdict(list)
    for number, *figures in zip(*columns.inventories, strict=True):
        records[number].append(InventoryRecord(*figures).definition())
    traits: dict[int, set[str]] = defaultdict(set)
    for number, trait in zip(*columns.traits, strict=True):
        traits[number].add(trait)
    aggregates: dict[int, set[str]] = defaultdict(set)
    for number, aggregate in zip(*columns.aggregates, strict=True):
        aggregates[number].add(aggregate)
    shares: dict[int, list[ShareRecord]] = defaultdict(list)
    for number, kind, of_id, of_class, factor in zip(*columns.shares, strict=True):
        shares[number].append(ShareRecord(kind, uuid[of_id], of_class, factor))
    kinds: dict[int, list[KindRecord]] = defaultdict(list)
    for number, kind, classes, body in zip(*columns.kinds, strict=True):
        kinds[number].append(KindRecord(kind, tuple(classes), body))
    found: dict[str, KeptDefinition] = {}
    for number, own, name, parent, root, generation in zip(*given[:6], strict=True):
        definition = ProviderDefinition(
            own,
            name,
            None if parent is None else uuid[parent],
            tuple(sorted(records[number], key=lambda record: record.resource_class)),
            frozenset(traits[number]),
            frozenset(aggregates[number]),
            tuple(sorted(shares[number])),
            tuple(sorted(kinds[number], key=lambda kind: kind.resource_class)),
        )
        found[own] = KeptDefinition(definition, generation, uuid[root])
    return found


def holdings(columns: Columns) -> dict[str, dict[Key, Use]]:
    """Return what each consumer holds, as ``{consumer: {place: amount and units}}``."""
    uuid = dict(zip(columns.providers.provider_id, columns.providers.uuid, strict=True))
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
    Plan(definitions=None, orders=(), names={}, disabling=())
    """
    had, has = kept_definitions(before), kept_definitions(after)
    orders = tuple(_orders(holdings(before), holdings(after), claims or {}))
    changes = _changes(had, has)
    plan = Plan(changes or None, orders)
    names = {uuid: kept.definition.name for uuid, kept in {**had, **has}.items()}
    used = {uuid: names[uuid] for uuid in plan.places if uuid in names}
    return dataclasses.replace(plan, names=used)


def _changes(
    had: Mapping[str, KeptDefinition], has: Mapping[str, KeptDefinition]
) -> DefinitionChanges:
    creates = tuple(kept.definition for uuid, kept in has.items() if uuid not in had)
    updates = tuple(_updates(had, has))
    removals = tuple(
        ProviderRemoval(uuid, kept.definition.name, kept.generation)
        for uuid, kept in reversed(list(had.items()))
        if uuid not in has
    )
    return DefinitionChanges(
        _root(had, has, creates, updates, removals), creates, updates, removals
    )


def _root(
    had: Mapping[str, KeptDefinition],
    has: Mapping[str, KeptDefinition],
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


def _updates(
    had: Mapping[str, KeptDefinition], has: Mapping[str, KeptDefinition]
) -> Iterator[ProviderUpdate]:
    regrouped = set(_regrouped(had, has))
    for uuid, kept in had.items():
        if uuid not in has:
            continue
        before, after = kept.definition, has[uuid].definition
        if before != after:
            yield update_of(before, after, kept.generation)
        elif uuid in regrouped:
            nothing = frozenset[str]()
            yield ProviderUpdate(after, kept.generation, (), (), nothing, nothing, True)


def _regrouped(
    had: Mapping[str, KeptDefinition], has: Mapping[str, KeptDefinition]
) -> Iterator[str | None]:
    """Yield the parents whose children come or go: their generation tells it."""
    for uuid in {**had, **has}:
        old = had[uuid].definition.parent_uuid if uuid in had else None
        new = has[uuid].definition.parent_uuid if uuid in has else None
        if (uuid in had) != (uuid in has) or old != new:
            yield from (old, new)


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
