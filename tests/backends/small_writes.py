"""What a write does to a small ledger: names, definitions, orders, removals.

The state is changed in place, and a write may fail half way: whoever keeps the state throws that
copy of it away then.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Iterable

from resource_objects import exceptions
from resource_objects.providers.backend import ClaimRecord, Outcome
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderUpdate,
)
from resource_objects.providers.orders import NameAction, NameChange, NameKind, Write
from resource_objects.providers.settle import Settlement, settle
from tests.backends.small_feed import Told
from tests.backends.small_state import STANDARD, Row, State

NOT_FOUND: dict[NameKind, type[exceptions.LedgerError]] = {
    NameKind.RESOURCE_CLASS: exceptions.ClassNotFound,
    NameKind.TRAIT: exceptions.TraitNotFound,
    NameKind.AGGREGATE: exceptions.AggregateNotFound,
}
IN_USE: dict[NameKind, type[exceptions.LedgerError]] = {
    NameKind.RESOURCE_CLASS: exceptions.ClassInUse,
    NameKind.TRAIT: exceptions.TraitInUse,
    NameKind.AGGREGATE: exceptions.AggregateInUse,
}


def commit(state: State, write: Write) -> tuple[ClaimRecord, ...]:
    """Carry out a write that was not carried out before."""
    number, now = state.next_number(), datetime.datetime.now(datetime.UTC)
    before = {uuid: row.definition for uuid, row in state.rows.items()}
    for change in write.names:
        _change_name(state, change)
    renamed = [uuid for uuid, row in state.rows.items() if row.definition != before[uuid]]
    for uuid, generation in write.unchanged:
        _at_generation(state, uuid, uuid, generation)
    changes = write.definitions or DefinitionChanges("")
    told = Told(state, changes)
    _define(state, changes)
    for uuid in write.reported:
        if uuid not in state.rows:
            raise exceptions.ProviderNotFound(uuid)
        state.rows[uuid].reported_at = now
    settlement = _settle(state, write, now)
    claims = tuple(dataclasses.replace(s.claim, generation=number) for s in settlement.consumers)
    told.add(write.reported, settlement, renamed)
    _hold(state, settlement, claims)
    _remove(state, changes)
    state.done[write.operation.id] = number, now, Outcome(write.kind, write.subject, claims)
    state.changes += told.changes(write, now)
    return claims


# --- names ---


def _change_name(state: State, change: NameChange) -> None:
    kept = state.names[change.kind]
    if change.action is NameAction.ENSURE:
        state.ensure(change.kind, [change.name])
        return
    if change.name in STANDARD[change.kind]:
        raise exceptions.StandardName(change.name)
    if change.name not in kept:
        raise NOT_FOUND[change.kind](change.name)
    if change.action is NameAction.SET_LEVEL:
        kept[change.name] = dataclasses.replace(kept[change.name], level=change.to)
    elif change.action is NameAction.DELETE:
        if any(change.name in _names(row, change.kind) for row in state.rows.values()):
            raise IN_USE[change.kind](change.name)
        del kept[change.name]
    else:
        _rename(state, change.kind, change.name, change.to or "")


def _names(row: Row, kind: NameKind) -> Iterable[str]:
    """Return the names of a kind that a provider uses."""
    if kind is NameKind.TRAIT:
        return row.definition.traits
    if kind is NameKind.AGGREGATE:
        return row.definition.aggregates or ()
    return [record.resource_class for record in row.definition.inventories]


def _rename(state: State, kind: NameKind, old: str, new: str) -> None:
    if new in state.names[kind]:
        raise exceptions.NameExists(new)
    state.names[kind][new] = dataclasses.replace(state.names[kind].pop(old), name=new)

    def to(name: str) -> str:
        return new if name == old else name

    for row in state.rows.values():
        row.definition = _renamed(row.definition, kind, to)
    if kind is NameKind.RESOURCE_CLASS:
        for consumer, claim in state.claims.items():
            held = (
                dataclasses.replace(one, resource_class=to(one.resource_class))
                for one in claim.held
            )
            state.claims[consumer] = dataclasses.replace(claim, held=tuple(held))


def _renamed(
    wanted: ProviderDefinition, kind: NameKind, to: Callable[[str], str]
) -> ProviderDefinition:
    """Return a definition with a name replaced wherever it is used."""
    change = dataclasses.replace
    if kind is NameKind.TRAIT:
        return change(wanted, traits=frozenset(map(to, wanted.traits)))
    if kind is NameKind.AGGREGATE:
        return change(wanted, aggregates=frozenset(map(to, wanted.aggregates or ())))
    return change(
        wanted,
        inventories=tuple(
            change(one, resource_class=to(one.resource_class)) for one in wanted.inventories
        ),
        shares=tuple(
            change(s, resource_class=to(s.resource_class), of_class=to(s.of_class))
            for s in wanted.shares
        ),
        kinds=tuple(
            change(k, resource_class=to(k.resource_class), classes=tuple(map(to, k.classes)))
            for k in wanted.kinds
        ),
    )


# --- definitions ---


def _at_generation(state: State, uuid: str, name: str, generation: int) -> Row:
    row = state.rows.get(uuid)
    if row is None:
        raise exceptions.StaleDefinition(name, "it is gone")
    if row.generation != generation:
        now = f"read at generation {generation}, now {row.generation}"
        raise exceptions.StaleDefinition(row.definition.name, now)
    return row


def _define(state: State, changes: DefinitionChanges) -> None:
    """Create and update providers; what goes, goes later."""
    for created in changes.creates:
        if created.uuid in state.rows:
            raise exceptions.ProviderExists(created.uuid)
        state.rows[created.uuid] = Row(state.next_number(), created)
    for removal in changes.removals:
        _at_generation(state, removal.uuid, removal.name, removal.generation)
    for update in changes.updates:
        wanted = update.definition
        row = _at_generation(state, wanted.uuid, wanted.name, update.generation)
        row.definition = _updated(row.definition, update)
        row.generation += 1
    leaving = {removal.uuid for removal in changes.removals}
    names = [row.definition.name for uuid, row in state.rows.items() if uuid not in leaving]
    for uuid, row in state.rows.items():
        if uuid not in leaving and names.count(row.definition.name) > 1:
            raise exceptions.ProviderExists(row.definition.name)
        _check_above(state, row.definition)
        for kind in NameKind:
            state.ensure(kind, _names(row, kind))


def _updated(has: ProviderDefinition, update: ProviderUpdate) -> ProviderDefinition:
    wanted, changed = update.definition, {one.resource_class: one for one in update.changed}
    stays = [changed.pop(one.resource_class, one) for one in has.inventories]
    aggregates = (has.aggregates or frozenset()) - update.aggregates_removed
    return dataclasses.replace(
        wanted,
        inventories=(*stays, *changed.values()),
        aggregates=aggregates | update.aggregates_added,
        shares=wanted.shares if update.shares_changed else has.shares,
        kinds=wanted.kinds if update.kinds_changed else has.kinds,
    )


def _check_above(state: State, wanted: ProviderDefinition) -> None:
    above, seen = wanted.parent_uuid, {wanted.uuid}
    while above is not None:
        if above in seen:
            raise exceptions.StaleDefinition(wanted.name, "it was moved below itself")
        if above not in state.rows:
            raise exceptions.StaleDefinition(wanted.name, "its parent is gone")
        seen.add(above)
        above = state.rows[above].definition.parent_uuid


def _remove(state: State, changes: DefinitionChanges) -> None:
    """Remove inventories and providers that nothing uses any more."""
    used = {key for key, place in state.places().items() if place.record.used}
    for update in changes.updates:
        row = state.rows[update.definition.uuid]
        for name in update.removed:
            if (row.definition.uuid, name) in used:
                raise exceptions.InventoryInUse(row.definition.name, name)
        left = [r for r in row.definition.inventories if r.resource_class not in update.removed]
        row.definition = dataclasses.replace(row.definition, inventories=tuple(left))
    for removal in changes.removals:
        if any(uuid == removal.uuid for uuid, _ in used):
            raise exceptions.ProviderInUse(removal.name)
        del state.rows[removal.uuid]
        if any(row.definition.parent_uuid == removal.uuid for row in state.rows.values()):
            raise exceptions.StaleDefinition(removal.name, "it has a child that was not known")
    state.places()  # raises if somebody shares what is gone


# --- orders ---


def _settle(state: State, write: Write, now: datetime.datetime) -> Settlement:
    consumers = [one.consumer for one in write.orders if one.consumer in state.claims]
    return settle(
        write.orders,
        {name: state.claim(name) for name in consumers},
        state.places(),
        {uuid: row.definition.name for uuid, row in state.rows.items()},
        now,
        holders=state.holders,
        takers=state.takers,
    )


def _hold(state: State, settlement: Settlement, claims: Iterable[ClaimRecord]) -> None:
    places = state.places()
    for settled, claim in zip(settlement.consumers, claims, strict=True):
        state.claims.pop(claim.consumer, None)
        if any(claim.id == other.id for other in state.claims.values()):
            raise exceptions.OperationConflict(claim.id, "a claim of this id exists")
        if not settled.is_gone:
            state.claims[claim.consumer] = claim
    shifts = [shift for settled in settlement.consumers for shift in settled.shifts]
    shared = [of for shift in shifts for of, _ in places[shift.key].shares]
    for uuid, _ in {shift.key for shift in shifts} | set(shared):
        state.rows[uuid].allocation_writes += 1
