"""The parts of placed resources in provider trees, and their usage.

A placed resource, such as a NUMA topology, stores each of its parts (a cell) at a provider of its
own. The definition of a tree changes seldom, its usage with every claim. Values that follow from
the definition alone are computed once, in a :class:`TreeShape`, which is valid for all columns with
the same definition. A :class:`TreeUsage` has the usage at one moment.

Units that were removed from their host while they were allocated are described by such a resource
too: :func:`removed_of`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from resource_objects import exceptions, fields
from resource_objects.names import resource_class_order
from resource_objects.providers.columns import Columns
from resource_objects.providers.disabled import RemovedUnit
from resource_objects.providers.orders import Key
from resource_objects.resources import Amount, Resource, resource
from resource_objects.resources.placed import HasNamedUnits, PlacedInventory, has_named_units
from resource_objects.resources.records import InventoryRecord, StoredPart


class Exclusions(NamedTuple):
    """Free amounts and units of some trees that are not to be allocated.

    Amounts are by the number of the provider and the resource class.
    """

    amounts: Mapping[tuple[int, str], int] = fields.FrozenDict()
    units: Mapping[int, Collection[str]] = fields.FrozenDict()  #: counted in ``amounts`` too
    #: amounts that limits exclude: a limit bounds how many units are used, not which
    by_limits: Mapping[tuple[int, str], int] = fields.FrozenDict()

    @property
    def total(self) -> Mapping[tuple[int, str], int]:
        """The sum of ``amounts`` and ``by_limits``."""
        return Counter(self.amounts) + Counter(self.by_limits) if self.by_limits else self.amounts


NO_EXCLUSIONS = Exclusions()


class SharedWith(NamedTuple):
    """An inventory of which each allocated unit of a part uses some."""

    resource_class: str  #: of the part
    factor: int
    row: int | None  #: of the other inventory, None if that does not exist
    capacity: int  #: of the other inventory
    key: tuple[int, str]  #: number of its provider, resource class


class Part(NamedTuple):
    """A provider that stores a part of a placed resource, with the definition of the part."""

    uuid: str
    name: str
    number: int  #: the backend's, valid only within the columns that it came in
    description: str
    records: tuple[tuple[int, InventoryRecord], ...]  #: each with its row in the inventories
    shared: tuple[SharedWith, ...]
    traits: frozenset[str]


class TreeUsage:
    """The usage of some trees at one moment."""

    def __init__(self, columns: Columns) -> None:
        self.used = columns.inventories.used  #: by row of the inventories
        self._units = columns.units

    @functools.cached_property
    def units(self) -> Mapping[int, Mapping[str, tuple[str, ...]]]:
        """The allocated units by the number of the provider and the resource class."""
        units: dict[int, dict[str, tuple[str, ...]]] = {}
        for number, unit, name, _ in zip(*self._units, strict=True):
            by_class = units.setdefault(number, {})
            by_class[name] = (*by_class.get(name, ()), unit)
        return units


class ResourceParts:
    """The parts of one placed resource in one tree, sorted by the names of their providers.

    ``host`` is the name of the root, ``classes`` are the resource classes that the parts are
    counted in, ``positions`` and ``generations`` those of the providers, by uuid. ``cached`` is the
    inventory that was assembled last, with its parts and their usage; it is never changed.
    """

    def __init__(self, shape: TreeShape, root: int, kind: str) -> None:
        index = shape.index
        parts = (shape.part(number, description) for number, description in shape.parts[root, kind])
        # names that end in numbers are sorted by these: ``numa2`` before ``numa10``
        self.parts = tuple(sorted(parts, key=lambda part: (len(part.name), part.name)))
        self.resource: Resource = resource(kind)
        self.root = root
        self.host = index.names[root]
        self.classes = frozenset(shape.classes[root, kind])
        self.positions = {part.uuid: position for position, part in enumerate(self.parts)}
        self.generations = {part.uuid: index.generations[part.number] for part in self.parts}
        self.cached: tuple[TreeUsage, Sequence[StoredPart], PlacedInventory[Amount]] | None = None
        #: the rows of the inventories, each with the position of its part
        self._rows = [(row, n) for n, part in enumerate(self.parts) for row, _ in part.records]
        shared = dict.fromkeys(other for part in self.parts for other in part.shared)
        self._shared = sorted(shared, key=lambda other: resource_class_order(other[0]))

    def inventory(
        self, usage: TreeUsage, exclusions: Exclusions = NO_EXCLUSIONS
    ) -> PlacedInventory[Amount]:
        """Return a new inventory of the parts; excluded amounts count as used.

        :raises InvalidInventory: if the parts contradict each other
        """
        remaining = _least(self._shared, usage, exclusions.total)
        return assembled(self.resource, self.all_parts(usage, exclusions), remaining)

    def copy(self, usage: TreeUsage) -> PlacedInventory[Amount] | None:
        """Return a copy of the cached inventory with the present usage; None if it has no copies.

        :raises InvalidInventory: if the parts contradict each other
        """
        remaining = _least(self._shared, usage)
        inventory: PlacedInventory[Amount] | None = None
        if self.cached is None:
            parts = self.all_parts(usage, NO_EXCLUSIONS)
        else:
            before, cached_parts, cached = self.cached
            parts = self._parts_after(before, cached_parts, usage)
            inventory = cached.with_use(cached_parts, parts, remaining)
        if inventory is None:
            inventory = assembled(self.resource, parts, remaining)
        copy = inventory.with_use(parts, parts, remaining)
        if copy is not None:
            self.cached = usage, parts, inventory
        return copy

    def all_parts(self, usage: TreeUsage, exclusions: Exclusions) -> list[StoredPart]:
        """Return the stored forms of all parts; excluded amounts count as used."""
        if not exclusions.by_limits:
            return [_stored(part, usage, exclusions) for part in self.parts]
        limited = exclusions._replace(amounts=exclusions.total)
        return [
            dataclasses.replace(
                _stored(part, usage, limited), without_limit=_stored(part, usage, exclusions)
            )
            for part in self.parts
        ]

    def _parts_after(
        self, before: TreeUsage, stored: Sequence[StoredPart], usage: TreeUsage
    ) -> list[StoredPart]:
        """Return the stored forms of all parts: the same object of each part without a change."""
        used_before, used = before.used, usage.used  # one pass: most hosts have many parts
        changed = {position for row, position in self._rows if used_before[row] != used[row]}
        units_before, units = before.units, usage.units
        if units_before != units:
            changed.update(
                position
                for position, part in enumerate(self.parts)
                if units_before.get(part.number) != units.get(part.number)
            )
        parts = list(stored)
        for position, part in enumerate(self.parts):
            if position in changed:
                parts[position] = _stored(part, usage, NO_EXCLUSIONS)
            elif part.shared:
                remaining = _least(part.shared, usage)
                if remaining != parts[position].left_by_shares:
                    parts[position] = dataclasses.replace(parts[position], left_by_shares=remaining)
        return parts


def _stored(part: Part, usage: TreeUsage, exclusions: Exclusions) -> StoredPart:
    number, excluded = part.number, exclusions.amounts
    return StoredPart(
        tuple(
            record.using(usage.used[row] + excluded.get((number, record.resource_class), 0))
            for row, record in part.records
        ),
        part.description,
        usage.units.get(number, {}),
        part.traits,
        _least(part.shared, usage, excluded),
        frozenset(exclusions.units.get(number, ())),
    )


def assembled(
    kind: Resource, parts: Sequence[StoredPart], remaining: Mapping[str, int] = fields.FrozenDict()
) -> PlacedInventory[Amount]:
    """Return the inventory of a resource that consists of parts.

    :param remaining: the capacity that the inventories shared by the parts have, by class of a part
    :raises InvalidInventory: if the parts contradict each other
    """
    inventory = kind.inventory_from_parts(parts, remaining)
    if not isinstance(inventory, PlacedInventory):
        expected = "one that has parts (PlacedInventory)"
        raise exceptions.InvalidInventory(kind.name, inventory, expected)
    return inventory


def _least(
    shared: Iterable[SharedWith],
    usage: TreeUsage,
    excluded: Mapping[tuple[int, str], int] = fields.FrozenDict(),
) -> dict[str, int]:
    """Return the least that shared inventories have capacity for, by class of the part."""
    least: dict[str, int] = {}
    for name, factor, row, capacity, key in shared:
        used = (0 if row is None else usage.used[row]) + excluded.get(key, 0)
        remaining = (capacity - used) // factor
        least[name] = min(remaining, least.get(name, remaining))
    return least


class TreeShape:
    """The placed resources of some trees; valid for all columns with the same definition.

    ``parts`` are by root and resource: the number of the provider of each part, and its
    description. ``classes`` are the resource classes that the parts are counted in. Each value is
    computed when it is first needed, and is the same for every caller. So threads may share an
    instance.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.index = columns.index
        self.parts: dict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
        self.classes: dict[tuple[int, str], set[str]] = defaultdict(set)
        kinds = {kind for kind in set(columns.kinds.resource_class) if resource(kind).is_placed}
        for number, kind, classes, description in zip(*columns.kinds, strict=True):
            if kind in kinds:
                key = self.index.roots[number], kind
                self.parts[key].append((number, description))
                self.classes[key].update(classes)
        self._resource_parts: dict[tuple[int, str], ResourceParts] = {}

    def defines(self, columns: Columns) -> bool:
        """Return True if columns have the same definition of the same trees.

        Values are compared, not generations alone: a database that was restored from a backup may
        use a generation again.
        """
        before = self.columns
        return all(
            column is other or (len(column) == len(other) and list(column) == list(other))
            for tables in (
                (before.providers[:6], columns.providers[:6]),
                (before.inventories[:-1], columns.inventories[:-1]),
                (before.kinds, columns.kinds),
                (before.shares, columns.shares),
                (before.traits, columns.traits),
            )
            for column, other in zip(*tables, strict=True)  # the same object costs nothing
        )

    def resource_parts(self, root: int, kind: str) -> ResourceParts:
        """Return the parts of a resource in the tree of a root; the tree has some."""
        key = root, kind
        if key not in self._resource_parts:
            self._resource_parts[key] = ResourceParts(self, root, kind)
        return self._resource_parts[key]

    def part(self, number: int, description: str) -> Part:
        """Return the part that a provider stores."""
        inventories, shares = self.columns.inventories, self.columns.shares
        inventory_rows, share_rows, trait_rows = self._rows
        figures: Sequence[Sequence[Any]] = inventories[1:-1]
        records = tuple(
            (row, InventoryRecord(*[column[row] for column in figures]))
            for row in inventory_rows.get(number, ())
        )
        shared: list[SharedWith] = []
        for share in share_rows.get(number, ()):
            key = shares.of_id[share], shares.of_class[share]
            rows = inventory_rows.get(key[0], ())
            other = next((row for row in rows if inventories.resource_class[row] == key[1]), None)
            capacity = 0 if other is None else inventories.capacity[other]
            name, factor = shares.resource_class[share], shares.factor[share]
            shared.append(SharedWith(name, factor, other, capacity, key))
        traits = frozenset(self.columns.traits.trait[row] for row in trait_rows.get(number, ()))
        uuid, name = self.index.uuids[number], self.index.names[number]
        return Part(uuid, name, number, description, records, tuple(shared), traits)

    @functools.cached_property
    def keys(self) -> Mapping[str, Collection[Key]]:
        """The inventories in which the parts of each structured resource are counted."""
        keys: dict[str, set[Key]] = defaultdict(set)
        for number, kind, classes, _ in zip(*self.columns.kinds, strict=True):
            keys[kind].update((self.index.uuids[number], name) for name in classes)
        return keys

    @functools.cached_property
    def _rows(self) -> tuple[dict[int, list[int]], ...]:
        """The rows of inventories, shares and traits, by provider: a part, or shared by parts."""
        columns, numbers = self.columns, {n for parts in self.parts.values() for n, _ in parts}
        shares = _rows_by_provider(columns.shares.provider_id, numbers)
        shared = {columns.shares.of_id[row] for rows in shares.values() for row in rows}
        inventories = _rows_by_provider(columns.inventories.provider_id, numbers | shared)
        return inventories, shares, _rows_by_provider(columns.traits.provider_id, numbers)


def _rows_by_provider(numbers: Iterable[int], selected: Collection[int]) -> dict[int, list[int]]:
    """Return the rows of each selected provider."""
    rows: dict[int, list[int]] = defaultdict(list)
    for row, number in enumerate(numbers):
        if number in selected:
            rows[number].append(row)
    return rows


# --- removed units --------------------------------------------------------------------------------


def removed_of(
    kinds: Iterable[tuple[str, str]], allocated: Collection[str]
) -> tuple[RemovedUnit, ...]:
    """Return the units of one provider that were removed while they were allocated, by name.

    Such a unit counts as used while it is allocated. After its release it is not allocatable, and
    no part of the capacity.

    :param kinds: the structured resources of the provider, each with its description
    :param allocated: the units of the provider that are allocated
    """
    removed: dict[str, str] = {}
    for kind, body in kinds:
        inventory_kind = resource(kind).inventory_kind
        if body and issubclass(inventory_kind, HasNamedUnits):
            removed.update(inventory_kind.removed_of_description(body))
    return tuple(
        RemovedUnit(unit, resource_class, unit not in allocated)
        for unit, resource_class in sorted(removed.items())
    )


def removed_by_provider(columns: Columns) -> dict[int, tuple[RemovedUnit, ...]]:
    """Return the units that were removed while they were allocated, by provider.

    Cost: a look at each description; where there are such units, linear in the rows.
    """
    with_units = set(filter(has_named_units, set(columns.kinds.resource_class)))
    described: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for number, kind, _, body in zip(*columns.kinds, strict=True):
        if kind in with_units and removed_of([(kind, body)], ()):
            described[number].append((kind, body))
    units = columns.index.units if described else {}
    return {
        number: removed_of(descriptions, {unit for unit, *_ in units.get(number, ())})
        for number, descriptions in described.items()
    }


def free_removed_units(columns: Columns) -> Exclusions:
    """Return the free units that were removed while they were allocated, and their amounts."""
    amounts: Counter[tuple[int, str]] = Counter()
    units: dict[int, set[str]] = defaultdict(set)
    for number, removed in removed_by_provider(columns).items():
        for unit in removed:
            if unit.is_free:
                amounts[number, unit.resource_class] += 1
                units[number].add(unit.unit)
    return Exclusions(amounts, units)
