"""What an audit finds where an inventory is kept in parts, each by a provider of a tree.

Each part is read alone, then all of a tree together; then what is taken by name is compared with
the units there are. A unit may be of another part than the one it was taken of: firmware may
number cells anew. Kinds are asked, and none is named (D11).
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from resource_objects import exceptions
from resource_objects.providers.audit_rows import Allocated, KeptKind, Rows, TakenUnit
from resource_objects.providers.findings import Finding, FindingKind
from resource_objects.providers.orders import Key
from resource_objects.resources import Inventory, resource
from resource_objects.resources.records import InventoryRecord, KeptPart


@dataclasses.dataclass(frozen=True, slots=True)
class _Tree:
    """The parts of one resource in a tree, by uuid; ``inventories`` are those that can be read."""

    root: str
    name: str
    parts: dict[str, KeptKind] = dataclasses.field(default_factory=dict)
    inventories: dict[str, Inventory] = dataclasses.field(default_factory=dict)


def in_parts(rows: Rows) -> Iterator[Finding]:
    """Yield what is wrong with inventories that are kept in parts.

    Cost: linear in the rows, and gathering each tree that has parts.
    """
    trees = _trees(rows)
    taken: dict[str, list[TakenUnit]] = defaultdict(list)
    for unit in rows.units if trees else ():
        taken[unit.key[0]].append(unit)
    held: dict[str, list[Allocated]] = defaultdict(list)
    for one in rows.allocations if trees else ():
        held[one.key[0]].append(one)
    for tree in trees:
        units = [unit for uuid in tree.parts for unit in taken[uuid]]
        yield from _contradictions(rows, tree, units)
        yield from _twice(rows, tree, units)
        if len(tree.inventories) == len(tree.parts):  # else it is not known what there is
            yield from _not_there(rows, tree, units)
        yield from _missing(rows, tree, units, [one for uuid in tree.parts for one in held[uuid]])
    yield from _undescribed(rows, trees)


def _trees(rows: Rows) -> list[_Tree]:
    found: dict[tuple[str, str], _Tree] = {}
    for kind in rows.kinds:
        if _is_located(kind.name):
            key = rows.tree(kind.uuid), kind.name
            found.setdefault(key, _Tree(*key)).parts[kind.uuid] = kind
    return list(found.values())


def _is_located(name: str) -> bool:
    try:
        return resource(name).is_located
    except exceptions.InvalidInput:  # of a plug-in that is not there
        return False


# --- what is described ---


def _contradictions(rows: Rows, tree: _Tree, units: Iterable[TakenUnit]) -> Iterator[Finding]:
    """Yield what cannot be read, alone or together; note what can."""
    kept: list[KeptPart] = []
    named: dict[Key, list[str]] = defaultdict(list)
    for unit in units:
        named[unit.key].append(unit.unit)
    for uuid, kind in tree.parts.items():
        there = [(uuid, name) for name in kind.classes if (uuid, name) in rows.inventories]
        records = tuple(rows.inventories[key] for key in there)
        taken = {key[1]: tuple(own) for key, own in named.items() if key[0] == uuid}
        part = KeptPart(records, kind.body or None, taken)
        try:
            made = resource(tree.name).gather([part])
            lost = set(kind.classes).difference(record.resource_class for record in records)
            odd = lost.union(_differing(records, made.to_records()))
            if odd:  # what is withheld may be set aside before it is given back, or then
                free = resource(tree.name).gather([KeptPart(records, part.description)])
                odd &= lost.union(_differing(records, free.to_records()))
        except exceptions.InvalidInput as error:
            yield _contradiction(rows.name(uuid), tree.name, str(error))
            continue
        if odd:
            said = f"figures of {', '.join(sorted(odd))} that are not as described"
            yield _contradiction(rows.name(uuid), tree.name, said)
        tree.inventories[uuid] = made
        kept.append(part)
    try:
        resource(tree.name).gather(kept) if kept else None
    except exceptions.InvalidInput as error:
        yield _contradiction(rows.name(tree.root), tree.name, str(error))


def _differing(kept: Iterable[InventoryRecord], said: Iterable[InventoryRecord]) -> set[str]:
    """Return the classes of which other figures are kept than those described."""
    mine = {record.definition() for record in kept}
    theirs = {record.definition() for record in said}
    return {record.resource_class for record in mine ^ theirs}


def _contradiction(where: str, name: str, said: str) -> Finding:
    return Finding(FindingKind.CONTRADICTION, where, name, other=said)


def _undescribed(rows: Rows, trees: Iterable[_Tree]) -> Iterator[Finding]:
    """Yield providers that have and share what parts of their tree do, and are none of them."""
    by_tree = {tree.root: tree for tree in trees}
    own: dict[str, set[str]] = defaultdict(set)
    for uuid, name in rows.inventories if by_tree else ():
        own[uuid].add(name)
    described = {kind.uuid for kind in rows.kinds}
    for uuid, classes in own.items():
        tree = by_tree.get(rows.tree(uuid))
        if tree is None or uuid in described or uuid == tree.root:
            continue
        counted = {name for kind in tree.parts.values() for name in kind.classes}
        targets = {key for part, kind in tree.parts.items() for key in _shared(rows, part, kind)}
        shared = {to for name in classes for to, _ in rows.shares.get((uuid, name), ())}
        if shared and shared <= targets and classes <= counted:
            other = rows.name(min(tree.parts, key=rows.name))
            yield Finding(FindingKind.UNDESCRIBED, rows.name(uuid), tree.name, other=other)


def _shared(rows: Rows, uuid: str, kind: KeptKind) -> Iterator[Key]:
    for name in kind.classes:
        yield from (to for to, _ in rows.shares.get((uuid, name), ()))


# --- what is taken by name ---


def _twice(rows: Rows, tree: _Tree, units: Iterable[TakenUnit]) -> Iterator[Finding]:
    """Yield units that are taken at two parts of one tree."""
    of_devices = resource(tree.name).inventory_kind.of_devices
    first: dict[tuple[str, str], TakenUnit] = {}
    for unit in units:
        name = "" if of_devices else unit.key[1]  # a device is one thing, whatever it is taken as
        one = first.setdefault((name, unit.unit), unit)
        if one.key[0] != unit.key[0]:
            other = f"{one.consumer} at {rows.name(one.key[0])}"
            yield _of_unit(FindingKind.UNIT_TWICE, rows, unit, other)


def _not_there(rows: Rows, tree: _Tree, units: Iterable[TakenUnit]) -> Iterator[Finding]:
    """Yield units that no part of the tree has."""
    units = list(units)
    inventories = tree.inventories.values()
    there = {
        name: [inventory.units(name) for inventory in inventories]
        for name in {unit.key[1] for unit in units}
    }
    along = set(_companions(tree, units))
    for unit in units:
        name = unit.key[1]
        if any(own is None or unit.unit in own for own in there[name]):
            continue
        if (unit.key, unit.consumer, unit.unit) in along:
            continue
        is_elsewhere = any(unit.unit in one.units_elsewhere(name) for one in inventories)
        kind = FindingKind.UNIT_ELSEWHERE if is_elsewhere else FindingKind.UNIT_GONE
        yield _of_unit(kind, rows, unit)


def _companions(tree: _Tree, units: Iterable[TakenUnit]) -> Iterator[tuple[Key, str, str]]:
    """Yield what goes with the units that consumers have: ``(place, consumer, unit)``."""
    known: dict[Key, Mapping[str, frozenset[str]]] = {}
    for unit in units:
        if unit.key not in known:
            known[unit.key] = tree.inventories[unit.key[0]].companions(unit.key[1])
        for other in known[unit.key].get(unit.unit, ()):
            yield unit.key, unit.consumer, other


def _missing(
    rows: Rows, tree: _Tree, units: Iterable[TakenUnit], held: Iterable[Allocated]
) -> Iterator[Finding]:
    """Yield who has some units of what it holds, and another number of them than it holds."""
    by_holder: dict[tuple[Key, str], list[str]] = defaultdict(list)
    for unit in units:
        by_holder[unit.key, unit.consumer].append(unit.unit)
    for one in held:
        own, made = by_holder[one.key, one.consumer], tree.inventories.get(one.key[0])
        if not own or made is None or not made.units(one.key[1]):
            continue
        named = _count(made, one.key[1], own)
        if named == one.amount:
            continue
        yield Finding(
            FindingKind.UNIT_MISSING,
            rows.name(one.key[0]),
            one.key[1],
            one.consumer,
            found=named,
            expected=one.amount,
        )


def _count(inventory: Inventory, name: str, units: Collection[str]) -> int:
    """Return how much of a class some units are; one that is not there any more was one."""
    along = frozenset[str]().union(*inventory.companions(name).values())
    gone = set(units).difference(inventory.units(name) or (), along)
    return inventory.unit_count(name, gone.symmetric_difference(units)) + len(gone)


def _of_unit(kind: FindingKind, rows: Rows, unit: TakenUnit, other: str | None = None) -> Finding:
    where, name = unit.key
    return Finding(kind, rows.name(where), name, unit.consumer, unit.unit, other=other)
