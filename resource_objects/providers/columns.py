"""Columns: the form in which a backend returns stored trees.

Each table is a set of parallel sequences, all of one moment. ``provider_id`` is a number of the
backend that is valid within one :class:`Columns` only. The search turns columns into arrays,
:func:`trees` into :class:`~resource_objects.providers.provider.Provider` objects, and
:class:`TreeIndex` finds rows by provider.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from resource_objects.providers.definition import (
    ProviderDefinition,
    ShareRecord,
    StoredDefinition,
    inventories_of,
)
from resource_objects.providers.disabled import Disabled
from resource_objects.providers.feed import Cursor
from resource_objects.providers.provider import Provider, Share
from resource_objects.resources import Inventories
from resource_objects.resources.records import InventoryRecord, KindRecord

_T = TypeVar("_T")

#: The times of a provider that may be missing: attributes of every form of a provider.
#: :class:`ProviderColumns`, the lists and the stored rows have them in this order.
TIMES = ("reported_at", "adopted_at")


class ProviderColumns(NamedTuple):
    """One entry per provider; parents before children, ``parent_id`` None for a root.

    ``disabled`` is the reason why the provider itself is disabled, None if it is not, or not any
    more.
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
    """One entry per (provider, resource class), with the amount that is used."""

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
    """One entry per share: a unit allocated here also uses ``factor`` of ``of_class`` there."""

    provider_id: Sequence[int] = ()
    resource_class: Sequence[str] = ()
    of_id: Sequence[int] = ()
    of_class: Sequence[str] = ()
    factor: Sequence[int] = ()


class KindColumns(NamedTuple):
    """One entry per structured inventory, with the classes of its records."""

    provider_id: Sequence[int] = ()
    resource_class: Sequence[str] = ()
    classes: Sequence[tuple[str, ...]] = ()
    body: Sequence[str] = ()


class UnitColumns(NamedTuple):
    """One entry per allocated unit."""

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


@dataclasses.dataclass(frozen=True)
class Columns:
    """All rows of some trees at one moment.

    ``cursor`` is the position of the change feed at that moment, None if it was not requested;
    ``now`` is the time of the ledger, if a provider is disabled until a later time.
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

    @cached_property
    def index(self) -> TreeIndex:
        """The lookups over these columns."""
        return TreeIndex(self)

    @property
    def disabled(self) -> dict[int, Disabled]:
        """The reasons why providers are disabled themselves, by number."""
        rows = zip(self.providers.provider_id, self.providers.disabled, strict=False)
        return {number: disabled for number, disabled in rows if disabled is not None}


def _of_providers(name: str) -> cached_property[Any]:
    """Return a lookup of one column of the providers, by number."""

    def lookup(index: TreeIndex) -> dict[int, Any]:
        providers = index.columns.providers
        return dict(zip(providers.provider_id, getattr(providers, name), strict=True))

    return cached_property(lookup)


def _rows_of(table: str, make: Callable[..., Any]) -> cached_property[Any]:
    """Return a lookup of the rows of a table by the number of their provider."""

    def lookup(index: TreeIndex) -> dict[int, list[Any]]:
        rows: dict[int, list[Any]] = {}
        for number, *values in zip(*getattr(index.columns, table), strict=True):
            rows.setdefault(number, []).append(make(*values))
        return rows

    return cached_property(lookup)


def _row(*values: Any) -> tuple[Any, ...]:
    return values


class TreeIndex:
    """Lookups over columns: providers by number, uuid and name, and their rows.

    Each lookup is built when it is first used. Cost: linear in one table, once.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    # --- providers, by number ---

    uuids: cached_property[Mapping[int, str]] = _of_providers("uuid")
    names: cached_property[Mapping[int, str]] = _of_providers("name")
    #: the numbers of the parents, None for a root
    parents: cached_property[Mapping[int, int | None]] = _of_providers("parent_id")
    #: the numbers of the roots
    roots: cached_property[Mapping[int, int]] = _of_providers("root_id")
    generations: cached_property[Mapping[int, int]] = _of_providers("generation")
    #: the times of the last reports
    reported_at: cached_property[Mapping[int, datetime.datetime | None]] = _of_providers(
        "reported_at"
    )

    # --- rows of each provider, by its number ---

    #: with their usage
    inventories: cached_property[Mapping[int, Sequence[InventoryRecord]]] = _rows_of(
        "inventories", InventoryRecord
    )
    #: the structured inventories
    kinds: cached_property[Mapping[int, Sequence[KindRecord]]] = _rows_of("kinds", KindRecord)
    traits: cached_property[Mapping[int, Sequence[str]]] = _rows_of("traits", str)
    aggregates: cached_property[Mapping[int, Sequence[str]]] = _rows_of("aggregates", str)
    #: as ``(class, number of the target, its class, factor)``
    shares: cached_property[Mapping[int, Sequence[tuple[str, int, str, int]]]] = _rows_of(
        "shares", _row
    )
    #: as ``(class, consumer, amount)``
    allocations: cached_property[Mapping[int, Sequence[tuple[str, str, int]]]] = _rows_of(
        "allocations", _row
    )
    #: the allocated units, as ``(unit, class, consumer)``
    units: cached_property[Mapping[int, Sequence[tuple[str, str, str]]]] = _rows_of("units", _row)

    # --- others ---

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of each provider, by uuid."""
        return {uuid: number for number, uuid in self.uuids.items()}

    @cached_property
    def numbers_by_name(self) -> Mapping[str, int]:
        """The number of each provider, by name."""
        return {name: number for number, name in self.names.items()}

    @cached_property
    def children(self) -> Mapping[int | None, Sequence[int]]:
        """The numbers of the children of each provider; of None: of the roots."""
        children: dict[int | None, list[int]] = defaultdict(list)
        for number, parent in self.parents.items():
            children[parent].append(number)
        return children

    def ancestors(self, number: int) -> Iterator[int]:
        """Yield the numbers of a provider and of all providers above it, up to the root."""
        ancestor: int | None = number
        while ancestor is not None:
            yield ancestor
            ancestor = self.parents[ancestor]

    def subtree(self, number: int) -> list[int]:
        """Return the numbers of a provider and of all providers below it, parents first."""
        below = [number]
        for parent in below:  # grows while it is read
            below.extend(self.children.get(parent, ()))
        return below

    def inventories_of(self, number: int) -> Inventories:
        """Return the inventories of one provider as objects."""
        return inventories_of(self.inventories.get(number, ()), self.kinds.get(number, ()))


def trees(columns: Columns) -> list[Provider]:
    """Return the providers as objects: the roots, with everything below them, by name.

    Cost: linear in the rows, some 20 microseconds per provider.
    """
    index, disabled = columns.index, columns.disabled
    children: dict[int | None, list[Provider]] = defaultdict(list)
    facts = columns.providers[: 6 + len(TIMES)]
    rows = {row[0]: row for row in zip(*facts, strict=True)}
    ordered = [number for root in index.children.get(None, ()) for number in index.subtree(root)]
    for number in reversed(ordered):  # children first: a provider is made once, with its children
        _, uuid, name, parent, _, generation, *times = rows[number]
        inventories = index.inventories_of(number)
        shares = [
            Share(resource_class=name, of=index.names[of], of_class=of_class, factor=factor)
            for name, of, of_class, factor in index.shares.get(number, ())
        ]
        provider = Provider.owning(
            name,
            inventories,
            traits=index.traits.get(number, ()),
            uuid=uuid,
            generation=generation,
            children=sorted(children.pop(number, ()), key=lambda child: child.name),
            aggregates=index.aggregates.get(number, ()),
            shares=sorted(shares, key=str),
            disabled=disabled.get(number),
            **dict(zip(TIMES, times, strict=True)),
        )
        children[parent].append(provider)
    return sorted(children[None], key=lambda root: root.name)


def find(columns: Columns, key: str) -> tuple[Provider, Provider] | None:
    """Return the root and the provider of a name or uuid, None if it is not there."""
    pairs = ((root, provider) for root in trees(columns) for provider in root.walk())
    return next((pair for pair in pairs if key in (pair[1].name, pair[1].uuid)), None)


def stored_definitions(columns: Columns) -> dict[str, StoredDefinition]:
    """Return the definition of each provider by uuid, parents before children. Cost: linear.

    Equal inventories, traits, aggregates and kinds are built once: most providers of a fleet are
    alike.
    """
    providers = columns.providers
    uuids = columns.index.uuids
    records = _by_provider(
        columns.inventories[:-1],  # without the usage
        lambda rows: tuple([InventoryRecord(*row) for row in sorted(rows)]),
    )
    traits = _by_provider(columns.traits, lambda rows: frozenset([name for (name,) in rows]))
    aggregates = _by_provider(
        columns.aggregates, lambda rows: frozenset([name for (name,) in rows])
    )
    kinds = _by_provider(
        columns.kinds, lambda rows: tuple([KindRecord(*row) for row in sorted(rows)])
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


def _by_provider(
    table: Sequence[Sequence[Any]], build: Callable[[tuple[Any, ...]], _T]
) -> dict[int, _T]:
    """Return the value built of the rows of each provider, by number; once for equal rows."""
    rows: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for number, row in zip(table[0], zip(*table[1:], strict=True), strict=True):
        rows[number].append(row)
    build_once = functools.cache(build)
    return {number: build_once(tuple(group)) for number, group in rows.items()}
