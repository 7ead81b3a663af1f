"""Definitions in: what is created and changed comes before the orders, what goes after them."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator

from resource_objects import exceptions
from resource_objects import names as shapes
from resource_objects.backends.memory import use_over_time
from resource_objects.backends.memory.state import (
    Draft,
    InventoryRow,
    ProviderRow,
    State,
    UnitHolder,
)
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderUpdate,
)
from resource_objects.providers.listing import ListedName
from resource_objects.providers.name_rules import NAME_RULES
from resource_objects.providers.orders import ConsumerRecord, Key, NameAction, NameChange, NameKind
from resource_objects.providers.provider import check_shares
from resource_objects.resources.records import InventoryRecord, KindRecord


def begin_definitions(draft: Draft, changes: DefinitionChanges) -> None:
    """Create and update providers and inventories."""
    _check_names(draft, changes)
    known = _kept_uuids(changes)
    moving = find_moving(draft, changes)
    for created in changes.creates:
        _create(draft, created)
    for update in changes.updates:
        _update(draft, update)
    for removal in changes.removals:
        _at_generation(draft, removal.uuid, removal.name, removal.generation)
    _check_above(draft, changes)
    _give_back_disabled(draft, changes)
    replace_shares(draft, _sharing(changes))
    tell_moved(draft, moving)
    for uuid in (*known, *(created.uuid for created in changes.creates)):
        draft.touch(uuid)


def end_definitions(draft: Draft, changes: DefinitionChanges) -> None:
    """Remove inventories and providers, which only unused ones may be; then set the names."""
    gone: dict[Key, exceptions.LedgerError] = {}
    for removal in changes.removals:  # first, as the contract tells them
        kept = draft.providers[removal.uuid]
        for name in kept.classes:
            gone[kept.uuid, name] = exceptions.ProviderInUse(kept.name)
    for update in changes.updates:
        kept = draft.providers[update.definition.uuid]
        for name in update.removed:
            gone[kept.uuid, name] = exceptions.InventoryInUse(kept.name, name)
    _drop_rows(draft, gone)
    leaving = {removal.uuid for removal in changes.removals}
    for removal in changes.removals:
        kept = draft.providers[removal.uuid]
        _keep_disabled(draft, kept, removal.name, leaving)
        _remove(draft, kept)
    _give_back_disabled(draft, changes)
    check_trees(draft, _reshared(draft, changes))
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
    kept = ProviderRow(
        next(draft.state.provider_numbers),
        wanted.uuid,
        wanted.name,
        wanted.parent_uuid,
        wanted.traits,
        wanted.aggregates or frozenset(),
        tuple(dict.fromkeys(record.resource_class for record in wanted.inventories)),
        wanted.kinds,
        draft.number,
    )
    _put_provider(draft, kept, wanted.inventories)
    _adopt(draft, kept, None, wanted.parent_uuid)


def _update(draft: Draft, update: ProviderUpdate) -> None:
    wanted = update.definition
    kept = _at_generation(draft, wanted.uuid, wanted.name, update.generation)
    _check_there(draft, kept, update)
    for one in update.expected_use:
        row = draft.rows.get((kept.uuid, one.resource_class))
        update.check_expected_use(one.resource_class, 0 if row is None else row.record.used)
    _ensure_traits_and_aggregates(draft, update.traits_added, update.aggregates_added)
    now = dataclasses.replace(
        kept,
        name=wanted.name,
        parent_uuid=wanted.parent_uuid,
        traits=(kept.traits | update.traits_added) - update.traits_removed,
        aggregates=(kept.aggregates | update.aggregates_added) - update.aggregates_removed,
        kinds=wanted.kinds if update.kinds_changed else kept.kinds,
        generation=draft.number,
        definition_writes=kept.definition_writes + update.writes,
    )
    _put_provider(draft, now, update.changed)
    _adopt(draft, now, kept.parent_uuid, wanted.parent_uuid)


def _check_there(draft: Draft, kept: ProviderRow, update: ProviderUpdate) -> None:
    """Refuse to take away what another name was given to since."""
    gone = [
        *sorted(update.traits_removed - kept.traits),
        *sorted(update.aggregates_removed - kept.aggregates),
        *(name for name in update.removed if draft.names.get((CLASS, name)) is None),
    ]
    if gone:
        raise exceptions.StaleDefinition(kept.name, f"{gone[0]} is gone")


def _put_provider(draft: Draft, kept: ProviderRow, records: Iterable[InventoryRecord]) -> None:
    """Keep a provider with some inventories new or changed; what is used of them stays."""
    classes = dict.fromkeys(kept.classes)
    for record in records:
        name = record.resource_class
        ensure_name(draft, CLASS, name)
        row = draft.rows.get((kept.uuid, name))
        used = 0 if row is None else row.record.used
        now = record if record.used == used else record.using(used)
        new = InventoryRow(now) if row is None else dataclasses.replace(row, record=now)
        draft.rows.put((kept.uuid, name), new)
        classes[name] = None
    if len(classes) > len(kept.classes):
        kept = dataclasses.replace(kept, classes=tuple(classes))
    draft.providers.put(kept.uuid, kept)


def _ensure_traits_and_aggregates(
    draft: Draft, traits: Iterable[str], aggregates: Iterable[str]
) -> None:
    for name in sorted(traits):
        ensure_name(draft, TRAIT, name)
    for name in sorted(aggregates):
        ensure_name(draft, AGGREGATE, name)


def _adopt(draft: Draft, kept: ProviderRow, old: str | None, new: str | None) -> None:
    """Move a provider from the children of one parent to another's."""
    if old == new:
        return
    if old is not None:
        draft.children.put(old, kept.uuid, None)
    if new is not None:
        draft.children.put(new, kept.uuid, kept.number)


def _at_generation(draft: Draft, uuid: str, name: str, generation: int) -> ProviderRow:
    before, kept = draft.providers.kept.get(uuid), draft.providers.get(uuid)
    if before is None or kept is None:
        raise exceptions.StaleDefinition(name, "it is gone")
    check_generation(before, name, generation)  # before the names that the same write changes
    return kept


def check_generation(kept: ProviderRow, name: str, generation: int) -> None:
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


def _remove(draft: Draft, kept: ProviderRow) -> None:
    if draft.children.get(kept.uuid):
        raise exceptions.StaleDefinition(kept.name, "it has a child that was not known")
    _adopt(draft, kept, kept.parent_uuid, None)
    draft.providers.put(kept.uuid, None)
    if draft.disabled.get(kept.uuid) is not None:
        draft.disabled.put(kept.uuid, None)
    for name in draft.removed_disabled.get(kept.uuid):
        draft.removed_disabled.put(kept.uuid, name, None)
    if draft.statistics.get(kept.uuid) is not None:
        draft.statistics.put(kept.uuid, None)


def _keep_disabled(draft: Draft, kept: ProviderRow, name: str, leaving: Collection[str]) -> None:
    """Record at its host that a provider to remove is disabled."""
    host, facts = draft.top(kept.uuid).uuid, draft.disabled.get(kept.uuid)
    if host not in leaving and facts is not None:
        draft.removed_disabled.put(host, name, facts)


def _give_back_disabled(draft: Draft, changes: DefinitionChanges) -> None:
    """Disable created providers that were disabled when they were removed from their host."""
    if not (draft.removed_disabled.kept or draft.removed_disabled.changed):
        return
    for one in changes.creates:
        host = draft.top(one.uuid).uuid
        facts = draft.removed_disabled.one(host, one.name)
        if facts is not None and host != one.uuid:
            draft.disabled.put(one.uuid, facts)
            draft.removed_disabled.put(host, one.name, None)


# --- names ----------------------------------------------------------------------------------------
#
# Resource classes, traits and aggregates: made, renamed, given a level, removed.


CLASS, TRAIT, AGGREGATE = NameKind.RESOURCE_CLASS, NameKind.TRAIT, NameKind.AGGREGATE


def add_standard(state: State) -> None:
    """Put the names there that every ledger has from the start."""
    found = [(kind, name) for kind, rule in NAME_RULES.items() for name in sorted(rule.standard())]
    state.names.update((key, ListedName(next(state.name_numbers), key[1])) for key in found)


def ensure_name(draft: Draft, kind: NameKind, name: str) -> None:
    """Make a name, if it is not there."""
    if draft.names.get((kind, name)) is None:
        draft.names.put((kind, name), ListedName(next(draft.state.name_numbers), name))


def change_name(draft: Draft, wanted: NameChange) -> None:
    """Carry out one change of a name."""
    _ACTIONS[wanted.action](draft, wanted)


def _ensure(draft: Draft, wanted: NameChange) -> None:
    NAME_RULES[wanted.kind].check(wanted.name)
    ensure_name(draft, wanted.kind, wanted.name)


def _find(draft: Draft, wanted: NameChange) -> ListedName:
    found = draft.names.get((wanted.kind, wanted.name))
    if found is None:
        raise NAME_RULES[wanted.kind].not_found(wanted.name)
    return found


def _rename(draft: Draft, wanted: NameChange) -> None:
    NAME_RULES[wanted.kind].refuse_standard(wanted)
    found = _find(draft, wanted)
    to = wanted.to or ""
    if to == found.name:
        return
    NAME_RULES[wanted.kind].check(to)
    if draft.names.get((wanted.kind, to)) is not None:
        raise exceptions.NameExists(to)
    draft.names.put((wanted.kind, found.name), None)
    draft.names.put((wanted.kind, to), dataclasses.replace(found, name=to))
    if wanted.kind is CLASS:
        rename_class(draft, found.name, to)
        return
    for uuid in list(_users(draft, wanted)):
        kept = draft.providers[uuid]
        traits, aggregates = kept.traits, kept.aggregates
        if wanted.kind is TRAIT:
            traits = traits - {found.name} | {to}
        else:
            aggregates = aggregates - {found.name} | {to}
        draft.rename(dataclasses.replace(kept, traits=traits, aggregates=aggregates))


def _users(draft: Draft, wanted: NameChange) -> Iterator[str]:
    """Yield the providers that have a name."""
    for uuid, kept in draft.providers.items():
        has = {CLASS: kept.classes, TRAIT: kept.traits, AGGREGATE: kept.aggregates}
        if wanted.name in has[wanted.kind]:
            yield uuid


def _delete(draft: Draft, wanted: NameChange) -> None:
    NAME_RULES[wanted.kind].refuse_standard(wanted)
    _find(draft, wanted)
    if next(_users(draft, wanted), None) is not None:
        raise NAME_RULES[wanted.kind].in_use(wanted.name)
    draft.names.put((wanted.kind, wanted.name), None)
    if wanted.kind is CLASS:
        use_over_time.remove_class(draft, wanted.name)


def _set_level(draft: Draft, wanted: NameChange) -> None:
    if wanted.kind is not AGGREGATE:
        raise exceptions.InvalidField("kind", wanted.kind, "an aggregate: only those have levels")
    if wanted.to is not None:
        shapes.label(wanted.to, "level")
    found = dataclasses.replace(_find(draft, wanted), level=wanted.to)
    draft.names.put((wanted.kind, wanted.name), found)


_ACTIONS: dict[NameAction, Callable[[Draft, NameChange], None]] = {
    NameAction.ENSURE: _ensure,
    NameAction.RENAME: _rename,
    NameAction.DELETE: _delete,
    NameAction.SET_LEVEL: _set_level,
}


# --- rename ---------------------------------------------------------------------------------------
#
# Another name for a resource class: everything counted in it is kept by the new name.


def rename_class(draft: Draft, old: str, new: str) -> None:
    """Keep everything that is counted in ``old`` as ``new``. Cost: linear in the ledger."""
    moved = [uuid for uuid, kept in draft.providers.items() if old in _classes_said(draft, kept)]
    for uuid in moved:
        kept = draft.providers[uuid]
        classes = tuple(new if name == old else name for name in kept.classes)
        kinds = tuple(_renamed_kind(kind, old, new) for kind in kept.kinds)
        draft.rename(dataclasses.replace(kept, classes=classes, kinds=kinds))
        if old in kept.classes:
            _move_row(draft, (uuid, old), (uuid, new))
    _rename_shares(draft, old, new)
    use_over_time.rename_class(draft, old, new)


def _classes_said(draft: Draft, kept: ProviderRow) -> Iterator[str]:
    """Yield every class that the definition of a provider names."""
    yield from kept.classes
    for kind in kept.kinds:
        yield kind.resource_class
        yield from kind.classes
    for name in kept.classes:
        for of, _ in draft.rows[kept.uuid, name].shares:
            yield of[1]


def _renamed_kind(kind: KindRecord, old: str, new: str) -> KindRecord:
    name = new if kind.resource_class == old else kind.resource_class
    classes = tuple(new if found == old else found for found in kind.classes)
    return dataclasses.replace(kind, resource_class=name, classes=classes)


def _move_row(draft: Draft, old: Key, new: Key) -> None:
    row = draft.rows[old]
    record = dataclasses.replace(row.record, resource_class=new[1])
    draft.rows.put(old, None)
    draft.rows.put(new, dataclasses.replace(row, record=record))
    for consumer, amount in draft.holders.get(old).items():
        draft.holders.put(old, consumer, None)
        draft.holders.put(new, consumer, amount)
        draft.claims.put(consumer, _renamed_claim(draft.claims[consumer], old, new))
    for unit, taken in draft.units.get(old[0]).items():
        if taken.resource_class == old[1]:
            draft.units.put(old[0], unit, UnitHolder(taken.consumer, new[1]))


def _renamed_claim(claim: ConsumerRecord, old: Key, new: Key) -> ConsumerRecord:
    held = tuple(
        dataclasses.replace(one, resource_class=new[1]) if one.key == old else one
        for one in claim.held
    )
    return dataclasses.replace(claim, held=held)


def _rename_shares(draft: Draft, old: str, new: str) -> None:
    def key(found: Key) -> Key:
        return (found[0], new) if found[1] == old else found

    for source, row in list(draft.rows.items()):
        if row.shares and (source[1] == new or any(of[1] == old for of, _ in row.shares)):
            before = (source[0], old) if source[1] == new else source
            for of, factor in row.shares:
                draft.sharers.put(of, before, None)
                draft.sharers.put(key(of), source, factor)
            shares = tuple((key(of), factor) for of, factor in row.shares)
            draft.rows.put(source, dataclasses.replace(row, shares=shares))


# --- shares ---------------------------------------------------------------------------------------
#
# Shares: what an allocation also uses elsewhere, and what it comes to when they change (D2).


def replace_shares(draft: Draft, definitions: Iterable[ProviderDefinition]) -> None:
    """Give providers the shares of their definitions, with what allocations use through them."""
    found = list(definitions)
    for definition in found:
        for name in draft.providers[definition.uuid].classes:
            _set_shares(draft, (definition.uuid, name), ())
    for definition in found:
        for source, wanted in _by_source(definition).items():
            if draft.rows.get(source) is None:
                raise exceptions.StaleDefinition(definition.name, f"{source[1]} is gone")
            _set_shares(draft, source, tuple(wanted))


def check_trees(draft: Draft, roots: Iterable[str]) -> None:
    """Check all shares of some trees (see ``check_shares``). Cost: linear in these trees."""
    root_of = {root: root for root in roots}
    pairs: list[tuple[Key, Key]] = []
    waiting = list(root_of)
    for uuid in waiting:  # grows while it is read
        for child in draft.children.get(uuid):
            root_of[child] = root_of[uuid]
            waiting.append(child)
        for name in draft.providers[uuid].classes:
            pairs += [((uuid, name), of) for of, _ in draft.rows[uuid, name].shares]
    check_shares(pairs, root_of, {uuid: draft.providers[uuid].name for uuid in waiting})


def _by_source(definition: ProviderDefinition) -> dict[Key, list[tuple[Key, int]]]:
    found: dict[Key, list[tuple[Key, int]]] = defaultdict(list)
    for share in definition.shares:
        source = definition.uuid, share.resource_class
        found[source].append(((share.of_uuid, share.of_class), share.factor))
    return found


def _set_shares(draft: Draft, source: Key, wanted: tuple[tuple[Key, int], ...]) -> None:
    row = draft.rows[source]
    if row.shares == wanted:
        return
    for of, factor in row.shares:
        draft.sharers.put(of, source, None)
        _use_shared(draft, source, of, -row.direct * factor)
    for of, factor in wanted:
        draft.sharers.put(of, source, factor)
        _use_shared(draft, source, of, row.direct * factor)
    draft.rows.put(source, dataclasses.replace(draft.rows[source], shares=wanted))


def _use_shared(draft: Draft, source: Key, of: Key, amount: int) -> None:
    row = draft.rows.get(of)
    if row is None:
        raise exceptions.StaleDefinition(draft.providers[source[0]].name, f"{of[1]} is gone")
    if amount:
        used = row.record.used + amount
        if used > MAX_AMOUNT:
            raise exceptions.InvalidAmount("used", used, f"at most {MAX_AMOUNT}")
        record = dataclasses.replace(row.record, used=used)
        draft.rows.put(of, dataclasses.replace(row, record=record))
        draft.touch(of[0])


# --- moves ----------------------------------------------------------------------------------------
#
# Providers that are moved to another tree, with everybody below them.


def find_moving(draft: Draft, changes: DefinitionChanges) -> dict[str, str]:
    """Return who will be moved, or is below one who will, with the root each has before."""
    found: dict[str, str] = {}
    for update in changes.updates:
        kept = draft.providers.get(update.definition.uuid)
        if kept is not None and kept.parent_uuid != update.definition.parent_uuid:
            root = draft.top(kept.uuid).uuid
            waiting = [kept.uuid]
            for uuid in waiting:  # grows while it is read
                found[uuid] = root
                waiting += draft.children.get(uuid)
    return found


def tell_moved(draft: Draft, moving: dict[str, str]) -> None:
    """Tell both trees of who was moved."""
    for uuid, root in moving.items():
        if draft.top(uuid).uuid != root:
            draft.touch(uuid)
            draft.touch(uuid, draft.providers[root].number)
