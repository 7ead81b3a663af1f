"""Checks of placed resources before changes of definitions are written. Pure.

A placed resource, such as a NUMA topology, stores each of its parts at a provider of its own. Parts
that contradict each other make no inventory, so the host could not be used. And a unit that is
allocated by name must not become available in another way: a dedicated CPU as a shared one, a
device as one of another class or of another provider.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from resource_objects import exceptions
from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    StoredDefinitions,
    inventories_of,
    roots_of,
)
from resource_objects.providers.orders import ConsumerOrder, Key, Mode, Use
from resource_objects.resources import resource
from resource_objects.resources.placed import HasNamedUnits, PlacedInventory
from resource_objects.resources.records import StoredPart

#: The parts of placed resources, by the uuid of the provider and the resource.
_Parts: TypeAlias = dict[tuple[str, str], PlacedInventory[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class ReassignedUnits:
    """Units of one tree that changes of definitions make available in another way than by name."""

    root: str  #: uuid
    units: Mapping[str, frozenset[str]]  #: by resource class
    parts: frozenset[str]  #: uuids of the providers of parts


def check_consistent(
    stored: StoredDefinitions, changes: DefinitionChanges
) -> tuple[ReassignedUnits, ...]:
    """Raise unless the parts of each changed tree are consistent; return the reassigned units.

    Cost: nothing if no part changes; else linear in the providers, and assembling those trees.

    :param stored: the trees before the changes
    :raises InvalidTree: with the tree and the contradiction
    """
    reassigned: list[ReassignedUnits] = []
    for tree in _changed_trees(stored, changes):
        _assemble(tree)
        reassigned += _reassigned_in_place(tree)
        reassigned += _moved_devices(tree)
    return tuple(reassigned)


def check_units_free(
    reassigned: ReassignedUnits, columns: Columns, orders: Iterable[ConsumerOrder] = ()
) -> None:
    """Raise if a reassigned unit remains allocated.

    :param columns: the tree, with allocations
    :param orders: those of the same write as the changes
    :raises InUse: with the unit and the consumer
    """
    uuids, names = columns.index.uuids, columns.index.names
    by_consumer = {order.consumer: order for order in orders}
    for number, unit, name, consumer in zip(*columns.units, strict=True):
        key = uuids[number], name
        is_reassigned = key[0] in reassigned.parts and unit in reassigned.units.get(name, ())
        if is_reassigned and _retains(by_consumer.get(consumer), key, unit):
            detail = f"{unit} of {name}, allocated to {consumer}, would be provided in another way"
            raise exceptions.InUse("inventory", names[number], detail)


def _retains(order: ConsumerOrder | None, key: Key, unit: str) -> bool:
    """Return True if a consumer that has a unit still has it after an order."""
    if order is None or order.mode is Mode.KEEP:
        return True
    uses = [use for use in order.uses if use.key == key and unit in use.units]
    if order.mode is Mode.ADD:
        return not any(use.amount < 0 for use in uses)
    return bool(uses)


def has_devices(definition: ProviderDefinition) -> bool:
    """Return True if a provider has a part whose units are devices."""
    return any(isinstance(part, HasNamedUnits) for part in _parts_of([definition]).values())


# --- parts before and after -----------------------------------------------------------------------


class _ChangedTree(NamedTuple):
    """The parts of a tree before and after changes."""

    root: str  #: uuid
    name: str
    before: _Parts  #: including parts moved here from other trees
    after: _Parts


def _changed_trees(stored: StoredDefinitions, changes: DefinitionChanges) -> Iterator[_ChangedTree]:
    """Yield the trees whose parts change."""
    changed = tuple(changes.definitions)
    if not any(map(_has_parts, changed)):
        return
    definitions = {uuid: provider.definition for uuid, provider in stored.items()}
    before = _parts_of(definitions.values())
    definitions |= {definition.uuid: definition for definition in changed}
    replaced = {definition.uuid for definition in changed} | {r.uuid for r in changes.removals}
    after = {key: part for key, part in before.items() if key[0] not in replaced}
    after |= _parts_of(changed)
    roots = roots_of({uuid: definition.parent_uuid for uuid, definition in definitions.items()})
    with_parts = {uuid for uuid, _ in after}
    before_by_tree: dict[str, _Parts] = defaultdict(dict)
    after_by_tree: dict[str, _Parts] = defaultdict(dict)
    for key, part in before.items():
        before_by_tree[stored[key[0]].root_uuid][key] = part
        if key[0] in with_parts:
            before_by_tree[roots[key[0]]][key] = part
    for key, part in after.items():
        after_by_tree[roots[key[0]]][key] = part
    for root in dict.fromkeys(roots[new.uuid] for new in changed if new.uuid in with_parts):
        yield _ChangedTree(root, definitions[root].name, before_by_tree[root], after_by_tree[root])


def _has_parts(definition: ProviderDefinition) -> bool:
    return any(resource(kind.resource_class).is_placed for kind in definition.kinds)


def _parts_of(definitions: Iterable[ProviderDefinition]) -> _Parts:
    return {
        (definition.uuid, kind.name): inventory
        for definition in definitions
        if _has_parts(definition)
        for kind, inventory in inventories_of(definition.inventories, definition.kinds).items()
        if kind.is_placed and isinstance(inventory, PlacedInventory)
    }


def _classes(parts: _Parts) -> dict[str, set[str]]:
    """Return the resource classes in which parts are counted, by uuid of the provider."""
    classes: dict[str, set[str]] = defaultdict(set)
    for (uuid, _), part in parts.items():
        classes[uuid].update(record.resource_class for record in part.to_records())
    return classes


# --- checks ---------------------------------------------------------------------------------------


def _assemble(tree: _ChangedTree) -> None:
    """Raise InvalidTree unless the parts of a tree make an inventory."""
    by_kind: dict[str, list[StoredPart]] = defaultdict(list)
    for (_, name), part in tree.after.items():
        by_kind[name].append(StoredPart(part.to_records(), part.describe()))
    for name, stored in by_kind.items():
        try:
            resource(name).inventory_from_parts(stored)
        except exceptions.InvalidInput as error:
            raise exceptions.InvalidTree(
                f"{name} of {tree.name}, {error.what}", error.value, error.expected
            ) from error


def _reassigned_in_place(tree: _ChangedTree) -> Iterator[ReassignedUnits]:
    """Yield the units of a tree that were available by name only."""
    new_devices = _devices(tree.after).keys() - _devices(tree.before).keys()
    classes = (*_classes(tree.before).values(), *_classes(tree.after).values())
    units: dict[str, frozenset[str]] = {}
    for name in set[str]().union(*classes):
        after, before = (
            {unit for part in parts.values() for unit in part.units_elsewhere(name)}
            for parts in (tree.after, tree.before)
        )
        if reassigned := after - before - new_devices:
            units[name] = frozenset(reassigned)
    if units:
        yield ReassignedUnits(tree.root, units, frozenset(uuid for uuid, _ in tree.after))


def _moved_devices(tree: _ChangedTree) -> Iterator[ReassignedUnits]:
    """Yield the devices that become devices of another part; allocations are at the former one."""
    now = _devices(tree.after)
    moved: dict[str, set[str]] = defaultdict(set)
    for unit, uuid in _devices(tree.before).items():
        if now.get(unit, uuid) != uuid:
            moved[uuid].add(unit)
    for uuid, units in moved.items():  # in every class: a device may be allocated with another one
        by_class = dict.fromkeys(_classes(tree.before)[uuid], frozenset(units))
        yield ReassignedUnits(tree.root, by_class, frozenset([uuid]))


def _devices(parts: _Parts) -> dict[str, str]:
    """Return the provider of each device, by the name of the device."""
    return {
        unit: uuid
        for (uuid, _), part in parts.items()
        if isinstance(part, HasNamedUnits)
        for record in part.to_records()
        for unit in part.units(record.resource_class) or ()
    }


# --- allocations of renumbered parts --------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class RenumberedParts:
    """The parts of a tree between which changes of definitions move units: CPUs of NUMA cells.

    Firmware may number cells anew, or report one cell as several. A consumer retains its CPUs, so
    its allocations follow them to the providers that have them now. Providers are known by uuid.
    """

    root: str
    part_of: Mapping[str, str]  #: by unit that can be allocated, the part that has it now
    #: by former part, the parts that have its units now, those with most of them first
    successors: Mapping[str, Sequence[str]]
    classes: Mapping[str, Collection[str]]  #: of each part now

    def held_after(self, uses: Iterable[Use], free: Counter[Key]) -> tuple[Use, ...]:
        """Return the allocations of a consumer after the change.

        Units are allocated at the part that has them. All else of a part, such as memory, follows
        the units that the consumer has of it; without units it moves to a part with capacity.

        :param uses: the allocations of the consumer before
        :param free: the free amounts of each part; allocated amounts are subtracted
        """
        amounts: Counter[Key] = Counter()
        units: dict[Key, tuple[str, ...]] = defaultdict(tuple)
        uses = list(uses)
        for use in uses:
            uuid, uncounted = use.provider_uuid, use.amount
            for unit in use.units if uuid in self.successors else ():
                key = self._target(self.part_of.get(unit, uuid), use)
                units[key] += (unit,)
                amounts[key] += 1
                uncounted -= 1
            if uuid not in self.successors:
                units[use.key] += use.units
            if uncounted:
                amounts[self._target(self._main_part(uuid, uses, free), use)] += uncounted
        free.subtract(amounts)
        return tuple(Use(*key, amount, units[key]) for key, amount in amounts.items())

    def _target(self, part: str, use: Use) -> Key:
        """Return the inventory of a part if it has the class of a use, else the former one."""
        has_class = use.resource_class in self.classes.get(part, ())
        return (part, use.resource_class) if has_class else use.key

    def _main_part(self, uuid: str, uses: Sequence[Use], free: Mapping[Key, int]) -> str:
        """Return the part to which the rest of a consumer's use of a former part moves."""
        if uuid not in self.successors:
            return uuid
        here = [use for use in uses if use.provider_uuid == uuid]
        counts = Counter(self.part_of.get(unit, uuid) for use in here for unit in use.units)
        if counts:
            return max(counts, key=lambda part: (counts[part], part == uuid))
        parts = self.successors[uuid]
        with_capacity = (
            part
            for part in parts
            if all(free.get((part, use.resource_class), 0) >= use.amount for use in here)
        )
        return next(with_capacity, parts[0])


def renumbered(stored: StoredDefinitions, changes: DefinitionChanges) -> Iterator[RenumberedParts]:
    """Yield the trees in which changes move the units that identify parts."""
    for tree in _changed_trees(stored, changes):
        before, after = _identifying_units(tree.before), _identifying_units(tree.after)
        successors: dict[str, list[str]] = {}
        for uuid, units in before.items():
            counts = {part: len(units & now) for part, now in after.items() if units & now}
            parts = sorted(counts, key=lambda part: (-counts[part], part != uuid))
            if parts not in ([], [uuid]):
                successors[uuid] = parts
        if successors:
            classes = _classes(tree.after)
            part_of = {
                unit: uuid
                for (uuid, _), part in tree.after.items()
                for name in (classes[uuid] if uuid in after else ())
                for unit in part.units(name) or ()
            }
            yield RenumberedParts(tree.root, part_of, successors, classes)


def _identifying_units(parts: _Parts) -> dict[str, frozenset[str]]:
    """Return the units that identify each part when the parts are numbered anew."""
    units: dict[str, frozenset[str]] = {}
    for (uuid, _), part in parts.items():
        if names := part.identifying_units():
            units[uuid] = units.get(uuid, frozenset()) | names
    return units
