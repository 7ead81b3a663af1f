"""The comparison of two snapshots of a ledger: the plan that leads from one to the other.

A mirror, an import and an undo need such a plan. Providers correspond by uuid, consumers by name.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import (
    ProviderDefinition,
    ShareRecord,
    StoredDefinition,
    StoredDefinitions,
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
    """Return the definition of each provider by uuid, parents before children. Cost: linear.

    Equal inventories, traits, aggregates and kinds are built once: most providers of a fleet are
    alike.
    """
    providers = columns.providers
    uuids = columns.index.uuids
    records = _by_provider(
        columns.inventories[:-1],  # without the usage
        lambda rows: tuple([InventoryRecord(*row) for row in sorted(rows, key=_first)]),
    )
    traits = _by_provider(columns.traits, lambda rows: frozenset([name for (name,) in rows]))
    aggregates = _by_provider(
        columns.aggregates, lambda rows: frozenset([name for (name,) in rows])
    )
    kinds = _by_provider(
        columns.kinds, lambda rows: tuple([KindRecord(*row) for row in sorted(rows, key=_first)])
    )
    share_rows = _by_provider(columns.shares, tuple)
    empty = frozenset[str]()
    stored: dict[str, StoredDefinition] = {}
    for number, uuid, name, parent, root, generation in zip(*providers[:6], strict=True):
        shares = [
            ShareRecord(resource_class, uuids[of_id], of_class, factor)
            for resource_class, of_id, of_class, factor in share_rows.get(number, ())
        ]
        definition = ProviderDefinition(
            uuid,
            name,
            None if parent is None else uuids[parent],
            records.get(number, ()),
            traits.get(number, empty),
            aggregates.get(number, empty),
            tuple(sorted(shares) if len(shares) > 1 else shares),
            kinds.get(number, ()),
        )
        stored[uuid] = StoredDefinition(definition, generation, uuids[root])
    return stored


_first = operator.itemgetter(0)


def _by_provider(
    table: Sequence[Sequence[Any]], build: Callable[[tuple[Any, ...]], _T]
) -> dict[int, _T]:
    """Return the value built of the rows of each provider, by number; once for equal rows."""
    table_rows = sorted(zip(table[0], zip(*table[1:], strict=True), strict=True), key=_first)
    values: dict[tuple[Any, ...], _T] = {}
    by_provider: dict[int, _T] = {}
    for number, group in itertools.groupby(table_rows, _first):
        rows = tuple([row for _, row in group])
        value = values.get(rows)
        if value is None:
            value = values[rows] = build(rows)
        by_provider[number] = value
    return by_provider


def holdings(columns: Columns) -> dict[str, dict[Key, Use]]:
    """Return the allocations of each consumer, as ``{consumer: {(uuid, class): use}}``."""
    uuids = columns.index.uuids
    units: dict[tuple[int, str, str], list[str]] = defaultdict(list)
    for number, unit, resource_class, consumer in zip(*columns.units, strict=True):
        units[number, resource_class, consumer].append(unit)
    allocated: dict[str, dict[Key, Use]] = defaultdict(dict)
    for number, resource_class, consumer, amount in zip(*columns.allocations, strict=True):
        use = Use(
            uuids[number],
            resource_class,
            amount,
            tuple(sorted(units[number, resource_class, consumer])),
        )
        allocated[consumer][use.key] = use
    return dict(allocated)


def diff_rows(
    before: Columns, after: Columns, claims: Mapping[str, ConsumerRecord] | None = None
) -> Plan:
    """Return the plan that turns the state ``before`` into the state ``after``.

    Providers, inventories, traits, aggregates, shares, kinds, allocations and units are compared.
    The times of reports and the other fields of consumers (project, user, ...) are not. Applied to
    a ledger in state ``before``, the plan leads to a ledger that reads like ``after``. A state
    ``after`` that uses more than a capacity cannot be reached: the plan is then refused.

    :param claims: the consumers as read with ``before``: the plan then requires their generations
    :returns: the plan, empty if nothing changed. Cost: linear in the rows

    >>> diff_rows(Columns(), Columns())
    Plan(definitions=None, orders=(), names={}, disabling=(), adopted=())
    """
    stored, target = stored_definitions(before), stored_definitions(after)
    changes = changes_between("", stored, (entry.definition for entry in target.values()))
    trees = {_root_name(target, definition.uuid) for definition in changes.definitions}
    trees |= {_root_name(stored, removal.uuid) for removal in changes.removals}
    root = trees.pop() if len(trees) == 1 else subject_of(trees).replace("consumers", "trees")
    plan = Plan(
        dataclasses.replace(changes, root=root) if changes else None,
        tuple(_orders(holdings(before), holdings(after), claims or {})),
    )
    names = {uuid: entry.definition.name for uuid, entry in {**stored, **target}.items()}
    return dataclasses.replace(
        plan, names={uuid: names[uuid] for uuid in plan.places if uuid in names}
    )


def _root_name(stored: StoredDefinitions, uuid: str) -> str:
    return stored[stored[uuid].root_uuid].definition.name


def _orders(
    before: _Holdings, after: _Holdings, claims: Mapping[str, ConsumerRecord]
) -> Iterator[ConsumerOrder]:
    for consumer in sorted({*before, *after}):
        allocated, target = before.get(consumer), after.get(consumer)
        if allocated == target:
            continue
        claim = claims.get(consumer)
        generation = None if claim is None else claim.generation
        if not target:
            yield ConsumerOrder.release(consumer, generation)
        elif not allocated:
            yield ConsumerOrder.claim(consumer, tuple(target.values()))
        else:
            request = None if claim is None else claim.request
            uses = tuple(target.values())
            yield ConsumerOrder.replace(consumer, uses, request=request, generation=generation)
