"""What a backend returns when it is read: columns, not objects.

Tables as parallel sequences, all of one moment. ``provider_id`` is the backend's own number,
good only within one :class:`Columns`. The search turns them into arrays; a single tree of them is
turned into :class:`~resource_objects.providers.provider.Provider` objects by :func:`trees`.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from resource_objects.providers.definition import inventories_of
from resource_objects.providers.disabled import Disabled
from resource_objects.providers.feed import Cursor
from resource_objects.providers.provider import Provider, Share
from resource_objects.resources import Inventories
from resource_objects.resources.records import InventoryRecord, KindRecord

_T = TypeVar("_T")


class ProviderColumns(NamedTuple):
    """One entry per provider; parents before children, ``parent_id`` None for a root.

    ``disabled`` is why it is out of service itself; None: it is not, or not any more.
    """

    provider_id: Sequence[int] = ()
    uuid: Sequence[str] = ()
    name: Sequence[str] = ()
    parent_id: Sequence[int | None] = ()
    root_id: Sequence[int] = ()
    generation: Sequence[int] = ()
    reported_at: Sequence[datetime.datetime | None] = ()
    adopted_at: Sequence[datetime.datetime | None] = ()
    disabled: Sequence[Disabled | None] = ()


class InventoryColumns(NamedTuple):
    """One entry per (provider, resource class), with what is used."""

    provider_id: Sequence[int] = ()
    resource_class: Sequence[str] = ()
    total: Sequence[int] = ()
    reserved: Sequence[int] = ()
    min_unit: Sequence[int] = ()
    max_unit: Sequence[int | None] = ()
    step_size: Sequence[int] = ()
    ratio_millionths: Sequence[int] = ()
    capacity: Sequence[int] = ()
    used: Sequence[int] = ()


class TraitColumns(NamedTuple):
    """One entry per (provider, trait)."""

    provider_id: Sequence[int] = ()
    trait: Sequence[str] = ()


class AggregateColumns(NamedTuple):
    """One entry per (provider, aggregate)."""

    provider_id: Sequence[int] = ()
    aggregate: Sequence[str] = ()


class ShareColumns(NamedTuple):
    """One entry per share: what is taken here takes ``factor`` of ``of_class`` there."""

    provider_id: Sequence[int] = ()
    resource_class: Sequence[str] = ()
    of_id: Sequence[int] = ()
    of_class: Sequence[str] = ()
    factor: Sequence[int] = ()


class KindColumns(NamedTuple):
    """One entry per structured inventory; ``classes`` are those of its records."""

    provider_id: Sequence[int] = ()
    resource_class: Sequence[str] = ()
    classes: Sequence[tuple[str, ...]] = ()
    body: Sequence[str] = ()


class UnitColumns(NamedTuple):
    """One entry per unit that is taken."""

    provider_id: Sequence[int] = ()
    unit: Sequence[str] = ()
    resource_class: Sequence[str] = ()
    consumer: Sequence[str] = ()


class AllocationColumns(NamedTuple):
    """One entry per (consumer, provider, resource class)."""

    provider_id: Sequence[int] = ()
    resource_class: Sequence[str] = ()
    consumer: Sequence[str] = ()
    amount: Sequence[int] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Columns:
    """Everything kept about some trees at one moment.

    ``cursor`` is where the change feed was at that moment, None if nobody asked; ``now`` what the
    ledger's clock said, where something is disabled until a time to come.
    """

    providers: ProviderColumns = dataclasses.field(default_factory=ProviderColumns)
    inventories: InventoryColumns = dataclasses.field(default_factory=InventoryColumns)
    traits: TraitColumns = dataclasses.field(default_factory=TraitColumns)
    allocations: AllocationColumns = dataclasses.field(default_factory=AllocationColumns)
    aggregates: AggregateColumns = dataclasses.field(default_factory=AggregateColumns)
    shares: ShareColumns = dataclasses.field(default_factory=ShareColumns)
    kinds: KindColumns = dataclasses.field(default_factory=KindColumns)
    units: UnitColumns = dataclasses.field(default_factory=UnitColumns)
    cursor: Cursor | None = dataclasses.field(default=None, compare=False)
    now: datetime.datetime | None = dataclasses.field(default=None, compare=False)

    @property
    def disabled(self) -> dict[int, Disabled]:
        """Why providers are out of service themselves, by number."""
        given = self.providers
        found = zip(given.provider_id, given.disabled, strict=False)
        return {number: one for number, one in found if one is not None}


def trees(columns: Columns) -> list[Provider]:
    """Return the providers as objects: the roots, with everything below them, by name.

    Cost: linear in the rows, some 20 microseconds per provider.
    """
    records = records_by_provider(columns.inventories)
    kinds = _grouped(columns.kinds, KindRecord)
    traits = _grouped(columns.traits, str)
    aggregates = _grouped(columns.aggregates, str)
    names = dict(zip(columns.providers.provider_id, columns.providers.name, strict=True))
    shares = _grouped(
        columns.shares,
        lambda name, of_id, of_class, factor: Share(
            resource_class=name, of=names[of_id], of_class=of_class, factor=factor
        ),
    )
    children: dict[int | None, list[Provider]] = defaultdict(list)
    # children before parents, so that each provider is made once, with its children
    disabled = columns.disabled
    rows = sorted(zip(*columns.providers[:8], strict=True), key=lambda row: row[2], reverse=True)
    for provider_id, uuid, name, parent_id, _root_id, generation, *at in _bottom_up(rows):
        own = inventories_of(records.get(provider_id, ()), kinds.get(provider_id, ()))
        provider = Provider.owning(
            name,
            own,
            traits=traits.get(provider_id, ()),
            uuid=uuid,
            generation=generation,
            children=sorted(children.pop(provider_id, ()), key=lambda child: child.name),
            aggregates=aggregates.get(provider_id, ()),
            shares=sorted(shares.get(provider_id, ()), key=str),
            reported_at=at[0],
            adopted_at=at[1],
            disabled=disabled.get(provider_id),
        )
        own.obj_reset_changes(recursive=True)
        provider.obj_reset_changes()  # what is below it was made so, and the rest cannot change
        children[parent_id].append(provider)
    return sorted(children[None], key=lambda root: root.name)


_ProviderRow = tuple[int, str, str, int | None, int, int, datetime.datetime | None]


def _grouped(table: Any, make: Callable[..., _T]) -> dict[int, list[_T]]:
    """Return what is made of the rows of a table, by provider."""
    found: dict[int, list[_T]] = defaultdict(list)
    for provider_id, *values in zip(*table, strict=True):
        found[provider_id].append(make(*values))
    return found


def _bottom_up(rows: Iterable[_ProviderRow]) -> list[_ProviderRow]:
    below: dict[int | None, list[_ProviderRow]] = defaultdict(list)
    for row in rows:
        below[row[3]].append(row)
    ordered = list(below[None])
    for row in ordered:  # grows while it is read: breadth first, parents before children
        ordered.extend(below[row[0]])
    return ordered[::-1]


def records_by_provider(table: InventoryColumns) -> dict[int, list[InventoryRecord]]:
    """Return the inventories of each provider, by its number. Cost: linear."""
    found: dict[int, list[InventoryRecord]] = defaultdict(list)
    for provider_id, *figures in zip(*table, strict=True):
        found[provider_id].append(InventoryRecord(*figures))
    return found


def own_inventories(columns: Columns, number: int) -> Inventories:
    """Return what one provider has, by its number. Cost: linear in the rows."""
    records = [
        InventoryRecord(*figures)
        for at, *figures in zip(*columns.inventories, strict=True)
        if at == number
    ]
    kinds = [
        KindRecord(kind, classes, body)
        for at, kind, classes, body in zip(*columns.kinds, strict=True)
        if at == number
    ]
    return inventories_of(records, kinds)


def find(columns: Columns, key: str) -> tuple[Provider, Provider] | None:
    """Return the provider of a name or uuid with the root of its tree, None if it is not there."""
    for root in trees(columns):
        for provider in root.walk():
            if key in (provider.name, provider.uuid):
                return root, provider
    return None
