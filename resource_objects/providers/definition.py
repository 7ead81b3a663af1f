"""What changes when a tree is synced: a pure comparison of what is kept with what is wanted.

The result is typed and printable; a backend applies it in one transaction, each change only if the
provider's generation is still the one that was compared with.
"""

from __future__ import annotations

import dataclasses
import uuid as uuids
from collections.abc import Iterable, Iterator, Mapping

from resource_objects import exceptions
from resource_objects.providers.provider import Provider
from resource_objects.resources import Inventory, resource
from resource_objects.resources.records import InventoryRecord


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderDefinition:
    """Everything a provider's generation stands for, as records."""

    uuid: str
    name: str
    parent_uuid: str | None
    inventories: tuple[InventoryRecord, ...]
    traits: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderUpdate:
    """A provider that is kept and shall look like ``definition``.

    ``changed`` are inventories to insert or overwrite (never their ``used``), ``removed`` the
    classes that go, which only unused ones may. ``only_children`` says that nothing of the
    provider itself changes: children come or go, and its generation tells it to whoever read the
    tree before.
    """

    definition: ProviderDefinition
    generation: int
    changed: tuple[InventoryRecord, ...]
    removed: tuple[str, ...]
    traits_added: frozenset[str]
    traits_removed: frozenset[str]
    only_children: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderRemoval:
    """A provider that is kept and shall go, which only an unused one may."""

    uuid: str
    name: str
    generation: int


@dataclasses.dataclass(frozen=True, slots=True)
class DefinitionChanges:
    """What to do to a tree: create top down, update, remove bottom up. False when nothing.

    ``root`` is the name of the tree, by which a repeated operation is recognised.
    """

    root: str
    creates: tuple[ProviderDefinition, ...] = ()
    updates: tuple[ProviderUpdate, ...] = ()
    removals: tuple[ProviderRemoval, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.creates or self.updates or self.removals)

    def __str__(self) -> str:
        lines = [f"+ {created.name}" for created in self.creates]
        lines += [f"~ {_said(update)}" for update in self.updates if not update.only_children]
        lines += [f"- {removal.name}" for removal in self.removals]
        return "\n".join(lines) or "nothing changed"


def diff(kept: Provider | None, wanted: Provider) -> DefinitionChanges:
    """Return what turns the kept tree into the wanted one.

    Providers are matched by uuid where the wanted one has one, else by name. Pure: neither tree
    changes. Cost: linear in the providers.

    :param kept: the tree as read from the ledger, with uuids and generations; None if there is none
    :raises InvalidTree: if a name or uuid is in the wanted tree twice
    :raises StaleDefinition: if a wanted provider was read at another generation, or was read and
        is gone

    >>> host = Provider("host0", "VCPU=8")
    >>> print(diff(None, host))
    + host0
    """
    wanted.check()
    before = {} if kept is None else {p.uuid or "": (p, up) for p, up in kept.parents()}
    uuid_of = _match(before, wanted)
    creates: list[ProviderDefinition] = []
    updates: list[ProviderUpdate] = []
    for provider, parent in wanted.parents():
        uuid = uuid_of[id(provider)]
        wants = _definition(provider, uuid, None if parent is None else uuid_of[id(parent)])
        if uuid in before:
            updates += _update(*before[uuid], provider, wants)
        else:
            creates.append(wants)
    stays = set(uuid_of.values())
    gone = [provider for uuid, (provider, _) in before.items() if uuid not in stays]
    updates += _parents_of_changed_children(before, creates, updates, gone)
    return DefinitionChanges(
        wanted.name,
        tuple(creates),
        tuple(updates),
        tuple(ProviderRemoval(p.uuid or "", p.name, p.generation or 0) for p in reversed(gone)),
    )


_Kept = Mapping[str, tuple[Provider, Provider | None]]  # by uuid, with the parent


def _match(before: _Kept, wanted: Provider) -> dict[int, str]:
    """Return the uuid of each wanted provider: its own, that of its name, or a new one.

    A name stands for a kept provider only if no wanted one claims that by its uuid.
    """
    claimed = {provider.uuid for provider in wanted.walk()}
    by_name = {p.name: uuid for uuid, (p, _) in before.items() if uuid not in claimed}
    found: dict[int, str] = {}
    for provider in wanted.walk():
        known = provider.uuid if provider.uuid is not None else by_name.get(provider.name)
        found[id(provider)] = known or str(uuids.uuid4())
        if provider.generation is not None and known not in before:
            raise exceptions.StaleDefinition(provider.name, "it was read, and is gone")
    return found


def _parents_of_changed_children(
    before: _Kept,
    creates: Iterable[ProviderDefinition],
    updates: Iterable[ProviderUpdate],
    gone: Iterable[Provider],
) -> Iterator[ProviderUpdate]:
    """Yield an update for each parent whose children come or go and that stays as it is.

    It raises the parent's generation, so that a tree read before is noticed to be old.
    """
    moved = {definition.parent_uuid for definition in creates}
    for update in updates:
        above = before[update.definition.uuid][1]
        if (None if above is None else above.uuid) != update.definition.parent_uuid:
            moved |= {update.definition.parent_uuid, None if above is None else above.uuid}
    leaving = {provider.uuid for provider in gone}
    for provider in gone:
        above = before[provider.uuid or ""][1]
        moved.add(None if above is None else above.uuid)
    updated = {update.definition.uuid for update in updates}
    for uuid in before:
        if uuid not in moved or uuid in leaving or uuid in updated:
            continue
        kept, parent = before[uuid]
        same = _definition(kept, uuid, None if parent is None else parent.uuid)
        nothing = frozenset[str]()
        yield ProviderUpdate(same, kept.generation or 0, (), (), nothing, nothing, True)


def _definition(provider: Provider, uuid: str, parent_uuid: str | None) -> ProviderDefinition:
    records = tuple(
        _record(name, inventory).definition() for name, inventory in provider.inventories.by_name()
    )
    return ProviderDefinition(uuid, provider.name, parent_uuid, records, provider.traits)


def _record(name: str, inventory: Inventory) -> InventoryRecord:
    """Return the record an inventory is kept as; of more than one nobody knows what to do yet."""
    records = inventory.to_records()
    if [record.resource_class for record in records] != [name]:
        raise exceptions.InvalidInventory(
            f"inventory of {name}", inventory, "a kind that is kept as one record of its own class"
        )
    return records[0]


def _update(
    kept: Provider, parent: Provider | None, wanted: Provider, wants: ProviderDefinition
) -> list[ProviderUpdate]:
    """Return what turns one kept provider into the wanted one, nothing if it is that."""
    if wanted.generation not in (None, kept.generation):
        raise exceptions.StaleDefinition(
            kept.name, f"read at generation {wanted.generation}, now {kept.generation}"
        )
    has = _definition(kept, wants.uuid, None if parent is None else parent.uuid)
    if has == wants:
        return []
    before = {record.resource_class: record for record in has.inventories}
    after = {record.resource_class: record for record in wants.inventories}
    update = ProviderUpdate(
        wants,
        kept.generation or 0,
        changed=tuple(record for name, record in after.items() if before.get(name) != record),
        removed=tuple(name for name in before if name not in after),
        traits_added=wants.traits - has.traits,
        traits_removed=has.traits - wants.traits,
    )
    return [update]


def _said(update: ProviderUpdate) -> str:
    parts = [
        f"{record.resource_class}={kind.format_inventory(kind.inventory_from_records([record]))}"
        for record in update.changed
        for kind in [resource(record.resource_class)]
    ]
    parts += [f"-{name}" for name in update.removed]
    parts += [f"+{trait}" for trait in sorted(update.traits_added)]
    parts += [f"-{trait}" for trait in sorted(update.traits_removed)]
    return f"{update.definition.name}: {' '.join(parts) or 'name or parent'}"
