"""What changes when a tree is synced: a pure comparison of what is kept with what is wanted.

The result is typed and printable; a backend applies it in one transaction, each change only if the
provider's generation is still the one that was compared with.
"""

from __future__ import annotations

import dataclasses
import uuid as uuids

from resource_objects import exceptions
from resource_objects.providers.provider import Provider
from resource_objects.resources import resource
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
    classes that go, which only unused ones may.
    """

    definition: ProviderDefinition
    generation: int
    changed: tuple[InventoryRecord, ...]
    removed: tuple[str, ...]
    traits_added: frozenset[str]
    traits_removed: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderRemoval:
    """A provider that is kept and shall go, which only an unused one may."""

    uuid: str
    name: str
    generation: int


@dataclasses.dataclass(frozen=True, slots=True)
class DefinitionChanges:
    """What to do to a tree: create top down, update, remove bottom up. False when nothing."""

    root_uuid: str
    creates: tuple[ProviderDefinition, ...] = ()
    updates: tuple[ProviderUpdate, ...] = ()
    removals: tuple[ProviderRemoval, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.creates or self.updates or self.removals)

    def __str__(self) -> str:
        lines = [f"+ {created.name}" for created in self.creates]
        lines += [f"~ {_said(update)}" for update in self.updates]
        lines += [f"- {removal.name}" for removal in self.removals]
        return "\n".join(lines) or "nothing changed"


def diff(kept: Provider | None, wanted: Provider) -> DefinitionChanges:
    """Return what turns the kept tree into the wanted one.

    Providers are matched by uuid where the wanted one has one, else by name. Pure: neither tree
    changes. Cost: linear in the providers.

    :param kept: the tree as read from the ledger, with uuids and generations; None if there is none
    :raises StaleDefinition: if a wanted provider was read at another generation

    >>> host = Provider("host0", "VCPU=8")
    >>> print(diff(None, host))
    + host0
    """
    before = {} if kept is None else {p.uuid or "": (p, up) for p, up in kept.parents()}
    by_name = {provider.name: uuid for uuid, (provider, _) in before.items()}
    uuid_of: dict[int, str] = {}
    creates: list[ProviderDefinition] = []
    updates: list[ProviderUpdate] = []
    for provider, parent in wanted.parents():
        known = provider.uuid if provider.uuid is not None else by_name.get(provider.name)
        uuid = uuid_of[id(provider)] = known or str(uuids.uuid4())
        wants = _definition(provider, uuid, None if parent is None else uuid_of[id(parent)])
        if uuid not in before:
            creates.append(wants)
            continue
        update = _update(*before[uuid], provider, wants)
        if update is not None:
            updates.append(update)
    stays = set(uuid_of.values())
    gone = [provider for uuid, (provider, _) in before.items() if uuid not in stays]
    return DefinitionChanges(
        uuid_of[id(wanted)],
        tuple(creates),
        tuple(updates),
        tuple(ProviderRemoval(p.uuid or "", p.name, p.generation or 0) for p in reversed(gone)),
    )


def _definition(provider: Provider, uuid: str, parent_uuid: str | None) -> ProviderDefinition:
    records = tuple(
        record.definition()
        for inventory in provider.inventories.values()
        for record in inventory.to_records()
    )
    return ProviderDefinition(uuid, provider.name, parent_uuid, records, provider.traits)


def _update(
    kept: Provider, parent: Provider | None, wanted: Provider, wants: ProviderDefinition
) -> ProviderUpdate | None:
    """Return what turns one kept provider into the wanted one, None if nothing does."""
    if wanted.generation not in (None, kept.generation):
        raise exceptions.StaleDefinition(
            kept.name, f"read at generation {wanted.generation}, now {kept.generation}"
        )
    has = _definition(kept, wants.uuid, None if parent is None else parent.uuid)
    if has == wants:
        return None
    before = {record.resource_class: record for record in has.inventories}
    after = {record.resource_class: record for record in wants.inventories}
    return ProviderUpdate(
        wants,
        kept.generation or 0,
        changed=tuple(record for name, record in after.items() if before.get(name) != record),
        removed=tuple(name for name in before if name not in after),
        traits_added=wants.traits - has.traits,
        traits_removed=has.traits - wants.traits,
    )


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
