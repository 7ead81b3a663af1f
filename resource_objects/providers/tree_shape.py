"""The parts of placed resources in provider trees, and their usage.

A placed resource, such as a NUMA topology, stores each of its parts (a cell) at a provider of its
own. The definition of a tree changes seldom, its usage with every claim. Values that follow from
the definition alone are computed once, in a :class:`TreeShape`, which is valid for all columns with
the same definition. A :class:`TreeUsage` has the usage at one moment.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from resource_objects import exceptions, fields
from resource_objects.providers.columns import Columns
from resource_objects.providers.orders import Key
from resource_objects.resources import Amount, Resource, resource
from resource_objects.resources.located import Located
from resource_objects.resources.records import InventoryRecord, KeptPart


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


class PartProvider(NamedTuple):
    """A provider that stores a part."""

    uuid: str
    name: str
    number: int  #: the backend's, valid only within the columns that it came in


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


class SharedWith(NamedTuple):
    """An inventory of which each allocated unit of a part uses some."""

    resource_class: str  #: of the part
    factor: int
    row: int | None  #: of the other inventory, None if that does not exist
    capacity: int  #: of the other inventory
    key: tuple[int, str]  #: number of its provider, resource class

    def remaining(self, usage: TreeUsage, more: Mapping[tuple[int, str], int]) -> int:
        """Return the amount of the part that the other inventory has capacity for."""
        used = 0 if self.row is None else usage.used[self.row]
        return (self.capacity - used - more.get(self.key, 0)) // self.factor


class PartDefinition(NamedTuple):
    """The definition of a part."""

    description: str
    records: Sequence[tuple[int, InventoryRecord]]  #: each with its row in the inventories
    shared: Sequence[SharedWith]
    traits: frozenset[str]


class CachedInventory(NamedTuple):
    """An assembled inventory with its parts and their usage. The inventory is never changed."""

    usage: TreeUsage
    parts: Sequence[KeptPart]
    inventory: Located[Amount]


@dataclasses.dataclass(slots=True, eq=False)
class ResourceParts:
    """The parts of one placed resource in one tree, sorted by the names of their providers."""

    resource: Resource
    root: int  #: the number of the root
    host: str  #: name of the root
    parts: tuple[PartProvider, ...]
    classes: frozenset[str]  #: the resource classes in which the parts are counted
    positions: Mapping[str, int]  #: of the parts, by the uuid of the provider
    generations: Mapping[str, int]  #: of the providers, by uuid
    definitions: Sequence[PartDefinition]
    cached: CachedInventory | None = None  #: the inventory that was assembled last
    #: the rows of the inventories, each with the position of its part
    _rows: Sequence[tuple[int, int]] = dataclasses.field(init=False)
    _shared: Sequence[SharedWith] = dataclasses.field(init=False)  #: of all parts, each once

    def __post_init__(self) -> None:
        definitions = self.definitions
        self._rows = [(row, n) for n, part in enumerate(definitions) for row, _ in part.records]
        self._shared = list(dict.fromkeys(other for part in definitions for other in part.shared))

    def part(
        self, position: int, usage: TreeUsage, exclusions: Exclusions = NO_EXCLUSIONS
    ) -> KeptPart:
        """Return the stored form of a part; excluded amounts count as used."""
        number, definition = self.parts[position].number, self.definitions[position]
        more = exclusions.amounts
        return KeptPart(
            tuple(
                record.using(usage.used[row] + more.get((number, record.resource_class), 0))
                for row, record in definition.records
            ),
            definition.description,
            usage.units.get(number, {}),
            definition.traits,
            _least(definition.shared, usage, more),
            frozenset(exclusions.units.get(number, ())),
        )

    def all_parts(self, usage: TreeUsage, exclusions: Exclusions = NO_EXCLUSIONS) -> list[KeptPart]:
        """Return the stored forms of all parts; excluded amounts count as used."""
        positions = range(len(self.parts))
        if not exclusions.by_limits:
            return [self.part(position, usage, exclusions) for position in positions]
        limited = exclusions._replace(amounts=exclusions.total)
        return [
            dataclasses.replace(
                self.part(position, usage, limited),
                unlimited=self.part(position, usage, exclusions),
            )
            for position in positions
        ]

    def parts_after(self, cached: CachedInventory, usage: TreeUsage) -> list[KeptPart]:
        """Return the stored forms of all parts: the cached object of each part without a change."""
        before, parts = cached.usage, list(cached.parts)
        used_before, used = before.used, usage.used  # one pass: most hosts have many parts
        changed = {position for row, position in self._rows if used_before[row] != used[row]}
        if before.units != usage.units:
            changed.update(
                position
                for position, part in enumerate(self.parts)
                if before.units.get(part.number) != usage.units.get(part.number)
            )
        for position, definition in enumerate(self.definitions):
            if position in changed:
                parts[position] = self.part(position, usage)
            elif definition.shared:
                remaining = _least(definition.shared, usage)
                if remaining != parts[position].left:
                    parts[position] = dataclasses.replace(parts[position], left=remaining)
        return parts

    def remaining(self, usage: TreeUsage, exclusions: Exclusions = NO_EXCLUSIONS) -> dict[str, int]:
        """Return the capacity that the inventories shared by the parts have, by class of a part."""
        return _least(self._shared, usage, exclusions.total)

    def assemble(self, parts: Sequence[KeptPart], remaining: Mapping[str, int]) -> Located[Amount]:
        """Return the inventory that consists of parts.

        :raises InvalidInventory: if the parts contradict each other
        """
        inventory = self.resource.from_parts(parts, remaining)
        if not isinstance(inventory, Located):
            name = self.resource.name
            raise exceptions.InvalidInventory(name, inventory, "one that has parts (Located)")
        return inventory


def _least(
    shared: Iterable[SharedWith],
    usage: TreeUsage,
    more: Mapping[tuple[int, str], int] = fields.FrozenDict(),
) -> dict[str, int]:
    """Return the least that shared inventories have capacity for, by class of the part."""
    least: dict[str, int] = {}
    for other in shared:
        name, remaining = other.resource_class, other.remaining(usage, more)
        least[name] = min(remaining, least.get(name, remaining))
    return least


class TreeShape:
    """The placed resources of some trees; valid for all columns with the same definition.

    Each value is computed when it is first needed, and is the same for every caller. So threads may
    share an instance.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.index = columns.index
        #: by root and resource: the number of the provider of each part, and its description
        self.parts: dict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
        self._classes: dict[tuple[int, str], set[str]] = defaultdict(set)
        kinds = {kind for kind in set(columns.kinds.resource_class) if resource(kind).is_located}
        for number, kind, classes, description in zip(*columns.kinds, strict=True):
            if kind in kinds:
                self.parts[self.index.roots[number], kind].append((number, description))
                self._classes[self.index.roots[number], kind].update(classes)
        self._resource_parts: dict[tuple[int, str], ResourceParts] = {}

    @classmethod
    def of_definition(cls, columns: Columns) -> TreeShape:
        """Return the shape that refers to the definition in some columns alone, not to usage."""
        return cls(
            Columns(
                columns.providers,
                columns.inventories,
                columns.traits,
                aggregates=columns.aggregates,
                shares=columns.shares,
                kinds=columns.kinds,
            )
        )

    def defines(self, columns: Columns) -> bool:
        """Return True if columns have the same definition of the same trees.

        Values are compared, not generations alone: a database that was restored from a backup may
        use a generation again.
        """
        before = self.columns
        return (
            _are_equal(before.providers[:6], columns.providers[:6])
            and _are_equal(before.inventories[:-1], columns.inventories[:-1])
            and _are_equal(before.kinds, columns.kinds)
            and _are_equal(before.shares, columns.shares)
            and _are_equal(before.traits, columns.traits)
        )

    def resource_parts(self, root: int, kind: str) -> ResourceParts:
        """Return the parts of a resource in the tree of a root; the tree has some."""
        key = root, kind
        if key not in self._resource_parts:
            providers, rows = self.columns.providers, self._row_of
            # names that end in numbers are sorted by these: ``numa2`` before ``numa10``
            parts = sorted(
                (
                    (PartProvider(providers.uuid[row], providers.name[row], number), description)
                    for number, description in self.parts[key]
                    for row in (rows[number],)
                ),
                key=lambda part: (len(part[0].name), part[0].name),
            )
            self._resource_parts[key] = ResourceParts(
                resource(kind),
                root,
                self.index.names[root],
                tuple(part for part, _ in parts),
                frozenset(self._classes[key]),
                {part.uuid: position for position, (part, _) in enumerate(parts)},
                {part.uuid: providers.generation[rows[part.number]] for part, _ in parts},
                [self._definition(part.number, description) for part, description in parts],
            )
        return self._resource_parts[key]

    def _definition(self, number: int, description: str) -> PartDefinition:
        inventories, shares = self.columns.inventories, self.columns.shares
        figures: Sequence[Sequence[Any]] = inventories[1:-1]
        records = [
            (row, InventoryRecord(*[column[row] for column in figures]))
            for row in self._inventories.get(number, ())
        ]
        shared: list[SharedWith] = []
        for share in self._shares.get(number, ()):
            key = shares.of_id[share], shares.of_class[share]
            rows = self._inventories.get(key[0], ())
            other = next((row for row in rows if inventories.resource_class[row] == key[1]), None)
            capacity = 0 if other is None else inventories.capacity[other]
            name, factor = shares.resource_class[share], shares.factor[share]
            shared.append(SharedWith(name, factor, other, capacity, key))
        return PartDefinition(description, records, shared, frozenset(self._traits.get(number, ())))

    @functools.cached_property
    def keys(self) -> Mapping[str, Collection[Key]]:
        """The inventories in which the parts of each structured resource are counted."""
        keys: dict[str, set[Key]] = defaultdict(set)
        for number, kind, classes, _ in zip(*self.columns.kinds, strict=True):
            keys[kind].update((self.index.uuids[number], name) for name in classes)
        return keys

    @functools.cached_property
    def _row_of(self) -> dict[int, int]:
        return {number: row for row, number in enumerate(self.columns.providers.provider_id)}

    @functools.cached_property
    def _part_numbers(self) -> set[int]:
        return {number for parts in self.parts.values() for number, _ in parts}

    @functools.cached_property
    def _shares(self) -> dict[int, list[int]]:
        return _rows_by_provider(self.columns.shares.provider_id, self._part_numbers)

    @functools.cached_property
    def _inventories(self) -> dict[int, list[int]]:
        of = self.columns.shares.of_id
        shared = {of[row] for rows in self._shares.values() for row in rows}
        return _rows_by_provider(
            self.columns.inventories.provider_id, shared.union(self._part_numbers)
        )

    @functools.cached_property
    def _traits(self) -> dict[int, list[str]]:
        table = self.columns.traits
        rows = _rows_by_provider(table.provider_id, self._part_numbers)
        return {number: [table.trait[row] for row in own_rows] for number, own_rows in rows.items()}


def _rows_by_provider(numbers: Iterable[int], selected: Collection[int]) -> dict[int, list[int]]:
    """Return the rows of each selected provider."""
    rows: dict[int, list[int]] = defaultdict(list)
    for row, number in enumerate(numbers):
        if number in selected:
            rows[number].append(row)
    return rows


def _are_equal(tables: Sequence[Sequence[Any]], other_tables: Sequence[Sequence[Any]]) -> bool:
    """Return True if columns are equal; comparing an object with itself costs nothing."""
    for column, other in zip(tables, other_tables, strict=True):
        if column is not other and (len(column) != len(other) or list(column) != list(other)):
            return False
    return True
