"""Whether what a tree keeps in parts goes together: asked before definitions are written. Pure.

A kind such as NUMA keeps an inventory in parts, each at a provider of its own. Parts that
contradict each other make no inventory, and the host would be lost to everybody. And a unit that
somebody holds by name must not be given out in another way: a dedicated CPU not as a shared one,
a device not as one of another class, nor of another provider.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from resource_objects import exceptions
from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import DefinitionChanges, ProviderDefinition
from resource_objects.providers.orders import Adjustment, Order, Release, Renewal
from resource_objects.providers.provider import Provider
from resource_objects.resources import Inventory, resource
from resource_objects.resources.records import KeptPart

#: What one provider keeps of inventories that lie over its tree, by resource.
_Parts = Mapping[str, Inventory]


@dataclasses.dataclass(frozen=True, slots=True)
class ChangedUnits:
    """Units of one tree that changes would give out in another way than by name.

    ``root`` is a uuid, and so are ``parts``: the providers that keep parts.
    """

    root: str
    units: Mapping[str, frozenset[str]]  #: by class
    parts: frozenset[str]


def check_parts(kept: Iterable[Provider], changes: DefinitionChanges) -> tuple[ChangedUnits, ...]:
    """Raise unless the parts of each tree that changes go together; return units that change.

    Cost: nothing where no part changes; else linear in the providers, and gathering those trees.

    :param kept: the trees as they are
    :raises InvalidTree: naming the tree and what contradicts
    """
    stated = (*changes.creates, *(update.definition for update in changes.updates))
    if not any(map(_has_parts, stated)):
        return ()
    before = {one.uuid or "": (one, up) for root in kept for one, up in root.parents()}
    above = {uuid: None if up is None else up.uuid for uuid, (_, up) in before.items()}
    names = {uuid: one.name for uuid, (one, _) in before.items()}
    had = {uuid: own for uuid, (one, _) in before.items() if (own := dict(_kept_parts(one)))}
    was_in = {uuid: _root(uuid, above) for uuid in had}
    has = dict(had)
    for one in stated:
        above[one.uuid], names[one.uuid] = one.parent_uuid, one.name
        has[one.uuid] = dict(_stated_parts(one))
    for removal in changes.removals:
        has.pop(removal.uuid, None)
    is_in = {uuid: _root(uuid, above) for uuid, own in has.items() if own}
    after, before_by_tree = _by_tree(is_in, has), _by_tree(was_in, had)
    was_at = {uuid: own for uuid, own in had.items() if is_in.get(uuid) != was_in[uuid]}
    found: list[ChangedUnits] = []
    for top in dict.fromkeys(is_in[one.uuid] for one in stated if one.uuid in is_in):
        here = after[top]
        _gather(names[top], here)
        came = {uuid: own for uuid, own in was_at.items() if uuid in here}
        was = {**before_by_tree.get(top, {}), **came}
        found += _changed(top, was, here)
        found += _moved(top, was, here)
    return tuple(found)


def held_otherwise(
    changed: ChangedUnits, columns: Columns, orders: Iterable[Order]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield (provider, class, unit, consumer) of units that somebody holds, and would go on to.

    :param columns: the tree, with allocations
    :param orders: what is written with the changes
    """
    given = columns.providers
    names = dict(zip(given.provider_id, zip(given.uuid, given.name, strict=True), strict=True))
    by_consumer = {order.consumer: order for order in orders}
    for number, unit, name, consumer in zip(*columns.units, strict=True):
        uuid, where = names[number]
        is_changed = uuid in changed.parts and unit in changed.units.get(name, ())
        if is_changed and _keeps(by_consumer.get(consumer), (uuid, name), unit):
            yield where, name, unit, consumer


def keeps_devices(provider: Provider) -> bool:
    """Return whether a provider keeps a part whose units are devices."""
    return any(inventory.of_devices for _, inventory in provider.inventories.by_name())


def holders_of(columns: Columns, name: str) -> Iterator[str]:
    """Yield who holds what of one provider, for people: the units, or how many of what."""
    number = dict(zip(columns.providers.name, columns.providers.provider_id, strict=True)).get(name)
    units: dict[tuple[str, str], list[str]] = defaultdict(list)
    for at, unit, kind, consumer in zip(*columns.units, strict=True):
        if at == number:
            units[consumer, kind].append(unit)
    for at, kind, consumer, amount in zip(*columns.allocations, strict=True):
        if at == number:
            what = ", ".join(sorted(units[consumer, kind])) or f"{amount} {kind}"
            yield f"{consumer} holds {what}"


def _keeps(order: Order | None, key: tuple[str, str], unit: str) -> bool:
    """Return whether somebody who has a unit has it after an order."""
    if order is None or isinstance(order, Renewal):
        return True
    if isinstance(order, Release):
        return False
    said = [delta for delta in order.deltas if delta.key == key and unit in delta.units]
    if isinstance(order, Adjustment):
        return not any(delta.amount < 0 for delta in said)
    return bool(said)


def _by_tree(roots: Mapping[str, str], parts: Mapping[str, _Parts]) -> dict[str, dict[str, _Parts]]:
    """Return what is kept by tree, then by provider."""
    found: dict[str, dict[str, _Parts]] = defaultdict(dict)
    for uuid, root in roots.items():
        found[root][uuid] = parts[uuid]
    return found


def _has_parts(definition: ProviderDefinition) -> bool:
    return any(resource(kind.resource_class).is_located for kind in definition.kinds)


def _kept_parts(provider: Provider) -> Iterator[tuple[str, Inventory]]:
    for name, inventory in provider.inventories.by_name():
        if resource(name).is_located:
            yield name, inventory


def _stated_parts(definition: ProviderDefinition) -> Iterator[tuple[str, Inventory]]:
    records = {record.resource_class: record for record in definition.inventories}
    for kind in definition.kinds:
        if resource(kind.resource_class).is_located:
            own = [records[name] for name in kind.classes if name in records]
            made = resource(kind.resource_class).inventory_from_kept(own, kind.body or None)
            yield kind.resource_class, made


def _root(uuid: str, above: Mapping[str, str | None]) -> str:
    top, seen = uuid, {uuid}
    while (up := above.get(top)) is not None and up in above and up not in seen:
        top = up
        seen.add(up)
    return top


def _gather(root: str, parts: Mapping[str, _Parts]) -> None:
    """Raise unless the parts of a tree make an inventory."""
    by_kind: dict[str, list[KeptPart]] = defaultdict(list)
    for own in parts.values():
        for name, inventory in own.items():
            by_kind[name].append(KeptPart(inventory.to_records(), inventory.describe()))
    for name, kept in by_kind.items():
        try:
            resource(name).gather(kept)
        except exceptions.InvalidInput as error:
            raise exceptions.InvalidTree(
                f"{name} of {root}, {error.what}", error.value, error.expected
            ) from error


def _changed(
    root: str, before: Mapping[str, _Parts], after: Mapping[str, _Parts]
) -> Iterator[ChangedUnits]:
    """Yield the units of a tree that nobody could take in another way before."""
    new = _owners(after).keys() - _owners(before).keys()  # devices that nobody has
    classes = _classes((*before.values(), *after.values()))
    units = {
        name: gone
        for name in classes
        if (gone := _elsewhere(after.values(), name) - _elsewhere(before.values(), name) - new)
    }
    if units:
        yield ChangedUnits(root, units, frozenset(after))


def _moved(
    root: str, before: Mapping[str, _Parts], after: Mapping[str, _Parts]
) -> Iterator[ChangedUnits]:
    """Yield the devices of a tree that another part would have: who has one has it where it was."""
    was, now = _owners(before), _owners(after)
    moved: dict[str, set[str]] = defaultdict(set)
    for unit, uuid in was.items():
        if now.get(unit, uuid) != uuid:
            moved[uuid].add(unit)
    for uuid, units in moved.items():  # as whatever it was taken, also with another
        given = dict.fromkeys(_classes([before[uuid]]), frozenset(units))
        yield ChangedUnits(root, given, frozenset([uuid]))


def _owners(parts: Mapping[str, _Parts]) -> dict[str, str]:
    """Return which part has which device, by the device's name."""
    return {
        unit: uuid
        for uuid, own in parts.items()
        for inventory in own.values()
        if inventory.of_devices
        for name in _classes([{"": inventory}])
        for unit in inventory.units(name) or ()
    }


def _classes(parts: Iterable[_Parts]) -> set[str]:
    inventories = (inventory for own in parts for inventory in own.values())
    return {one.resource_class for inventory in inventories for one in inventory.to_records()}


def _elsewhere(parts: Iterable[_Parts], name: str) -> frozenset[str]:
    inventories = (inventory for own in parts for inventory in own.values())
    return frozenset().union(*(inventory.units_elsewhere(name) for inventory in inventories))
