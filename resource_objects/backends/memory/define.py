"""Definitions in: what is created and changed comes before the orders, what goes after them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from resource_objects import exceptions
from resource_objects.backends.memory import moves, names, shares
from resource_objects.backends.memory.draft import Draft
from resource_objects.backends.memory.state import Kept, Row
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderUpdate,
)
from resource_objects.providers.orders import Key
from resource_objects.resources.records import InventoryRecord


def begin(draft: Draft, changes: DefinitionChanges) -> None:
    """Create and update providers and inventories."""
    _check_names(draft, changes)
    known = _kept_uuids(changes)
    moving = moves.find(draft, changes)
    for created in changes.creates:
        _create(draft, created)
    for update in changes.updates:
        _update(draft, update)
    for removal in changes.removals:
        _at_generation(draft, removal.uuid, removal.name, removal.generation)
    _check_above(draft, changes)
    shares.replace(draft, _sharing(changes))
    moves.end(draft, moving)
    for uuid in (*known, *(created.uuid for created in changes.creates)):
        draft.touch(uuid)


def end(draft: Draft, changes: DefinitionChanges) -> None:
    """Remove inventories and providers, which only unused ones may be; then set the names."""
    gone: dict[Key, exceptions.LedgerError] = {}
    for update in changes.updates:
        kept = draft.providers[update.definition.uuid]
        for name in update.removed:
            gone[kept.uuid, name] = exceptions.InventoryInUse(kept.name, name)
    for removal in changes.removals:
        kept = draft.providers[removal.uuid]
        for name in kept.classes:
            gone[kept.uuid, name] = exceptions.ProviderInUse(kept.name)
    _drop_rows(draft, gone)
    for removal in changes.removals:
        _remove(draft, draft.providers[removal.uuid])
    shares.check_trees(draft, _reshared(draft, changes))
    _set_names(draft)


def _kept_uuids(changes: DefinitionChanges) -> list[str]:
    found = [update.definition.uuid for update in changes.updates]
    return found + [removal.uuid for removal in changes.removals]


def _check_names(draft: Draft, changes: DefinitionChanges) -> None:
    """Refuse names that others have; two providers may swap theirs, so all are judged together."""
    renamed = set(_kept_uuids(changes))
    taken: set[str] = set()
    for definition in (*(u.definition for u in changes.updates), *changes.creates):
        owner = draft.uuid_of.get(definition.name)
        if definition.name in taken or (owner is not None and owner not in renamed):
            raise exceptions.ProviderExists(definition.name)
        taken.add(definition.name)


def _set_names(draft: Draft) -> None:
    for uuid in draft.providers.changed:
        kept = draft.providers.kept.get(uuid)
        if kept is not None:
            draft.uuid_of.put(kept.name, None)
    for uuid, now in draft.providers.changed.items():
        if now is not None:
            draft.uuid_of.put(now.name, uuid)


# --- what comes ---


def _create(draft: Draft, wanted: ProviderDefinition) -> None:
    if draft.providers.get(wanted.uuid) is not None:
        raise exceptions.ProviderExists(wanted.uuid)
    if wanted.parent_uuid is not None and draft.providers.get(wanted.parent_uuid) is None:
        raise exceptions.StaleDefinition(wanted.name, "its parent is gone")
    _ensure_traits_and_aggregates(draft, wanted.traits, wanted.aggregates or ())
    kept = Kept(
        next(draft.state.provider_numbers),
        wanted.uuid,
        wanted.name,
        wanted.parent_uuid,
        wanted.traits,
        wanted.aggregates or frozenset(),
        kinds=wanted.kinds,
    )
    _put(draft, kept, wanted.inventories)
    _adopt(draft, kept, None, wanted.parent_uuid)


def _update(draft: Draft, update: ProviderUpdate) -> None:
    wanted = update.definition
    kept = _at_generation(draft, wanted.uuid, wanted.name, update.generation)
    _check_there(draft, kept, update)
    _ensure_traits_and_aggregates(draft, update.traits_added, update.aggregates_added)
    now = dataclasses.replace(
        kept,
        name=wanted.name,
        parent_uuid=wanted.parent_uuid,
        traits=(kept.traits | update.traits_added) - update.traits_removed,
        aggregates=(kept.aggregates | update.aggregates_added) - update.aggregates_removed,
        kinds=wanted.kinds if update.kinds_changed else kept.kinds,
        generation=update.generation + 1,
    )
    _put(draft, now, update.changed)
    _adopt(draft, now, kept.parent_uuid, wanted.parent_uuid)


def _check_there(draft: Draft, kept: Kept, update: ProviderUpdate) -> None:
    """Refuse to take away what another name was given to since."""
    gone = [
        *sorted(update.traits_removed - kept.traits),
        *sorted(update.aggregates_removed - kept.aggregates),
        *(name for name in update.removed if draft.names.get((names.CLASS, name)) is None),
    ]
    if gone:
        raise exceptions.StaleDefinition(kept.name, f"{gone[0]} is gone")


def _put(draft: Draft, kept: Kept, records: Iterable[InventoryRecord]) -> None:
    """Keep a provider with some inventories new or changed; what is used of them stays."""
    classes = dict.fromkeys(kept.classes)
    for record in records:
        name = record.resource_class
        names.ensure(draft, names.CLASS, name)
        row = draft.rows.get((kept.uuid, name)) or Row(record.definition())
        now = dataclasses.replace(record, used=row.record.used)
        draft.rows.put((kept.uuid, name), dataclasses.replace(row, record=now))
        classes[name] = None
    draft.providers.put(kept.uuid, dataclasses.replace(kept, classes=tuple(classes)))


def _ensure_traits_and_aggregates(
    draft: Draft, traits: Iterable[str], aggregates: Iterable[str]
) -> None:
    for name in sorted(traits):
        names.ensure(draft, names.TRAIT, name)
    for name in sorted(aggregates):
        names.ensure(draft, names.AGGREGATE, name)


def _adopt(draft: Draft, kept: Kept, old: str | None, new: str | None) -> None:
    """Move a provider from the children of one parent to another's."""
    if old == new:
        return
    if old is not None:
        draft.children.put(old, kept.uuid, None)
    if new is not None:
        draft.children.put(new, kept.uuid, kept.number)


def _at_generation(draft: Draft, uuid: str, name: str, generation: int) -> Kept:
    before, kept = draft.providers.kept.get(uuid), draft.providers.get(uuid)
    if before is None or kept is None:
        raise exceptions.StaleDefinition(name, "it is gone")
    check_generation(before, name, generation)  # before the names that the same write changes
    return kept


def check_generation(kept: Kept, name: str, generation: int) -> None:
    """Raise if a provider is not at a generation any more."""
    if kept.generation != generation:
        raise exceptions.StaleDefinition(
            name, f"read at generation {generation}, now {kept.generation}"
        )


def _check_above(draft: Draft, changes: DefinitionChanges) -> None:
    """Refuse what ends up below itself or below a provider that is gone."""
    sound: set[str | None] = {None}
    for definition in (*changes.creates, *(update.definition for update in changes.updates)):
        seen: set[str] = set()
        uuid: str | None = definition.uuid
        while uuid is not None and uuid not in sound:
            if uuid in seen:
                raise exceptions.StaleDefinition(definition.name, "it was moved below itself")
            kept = draft.providers.get(uuid)
            if kept is None:
                raise exceptions.StaleDefinition(definition.name, "its parent is gone")
            seen.add(uuid)
            uuid = kept.parent_uuid
        sound |= seen


def _sharing(changes: DefinitionChanges) -> Iterator[ProviderDefinition]:
    yield from (created for created in changes.creates if created.shares)
    yield from (update.definition for update in changes.updates if update.shares_changed)


def _reshared(draft: Draft, changes: DefinitionChanges) -> set[str]:
    """Return the roots of the trees whose shares change, or may be torn from others."""
    before = draft.state.providers
    found = {definition.uuid for definition in _sharing(changes)}
    for update in changes.updates:
        uuid = update.definition.uuid
        if before[uuid].parent_uuid != update.definition.parent_uuid:
            found |= {uuid, draft.state.top(uuid).uuid}
    return {draft.top(uuid).uuid for uuid in found if draft.providers.get(uuid) is not None}


# --- what goes ---


def _drop_rows(draft: Draft, gone: dict[Key, exceptions.LedgerError]) -> None:
    for key, in_use in gone.items():
        row = draft.rows.get(key)
        if row is not None and row.record.used:
            raise in_use
    for key, in_use in gone.items():
        if not draft.sharers.get(key).keys() <= gone.keys():
            raise in_use
        _drop_row(draft, key)


def _drop_row(draft: Draft, key: Key) -> None:
    row, kept = draft.rows.get(key), draft.providers[key[0]]
    if row is None:
        return
    for of, _ in row.shares:
        draft.sharers.put(of, key, None)
    draft.rows.put(key, None)
    classes = tuple(name for name in kept.classes if name != key[1])
    now = dataclasses.replace(kept, classes=classes, writes=kept.writes + row.writes)
    draft.providers.put(kept.uuid, now)


def _remove(draft: Draft, kept: Kept) -> None:
    if draft.children.get(kept.uuid):
        raise exceptions.StaleDefinition(kept.name, "it has a child that was not known")
    _adopt(draft, kept, kept.parent_uuid, None)
    draft.providers.put(kept.uuid, None)
