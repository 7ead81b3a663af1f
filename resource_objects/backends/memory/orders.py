"""Orders carried out: what they come to is settled, then put into the draft."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from resource_objects import exceptions
from resource_objects.backends.memory.draft import Draft
from resource_objects.backends.memory.state import State, Taken
from resource_objects.providers.orders import ClaimRecord, Key, Order
from resource_objects.providers.settle import Place, Settled, Settlement, Unit, keys_of, settle


def carry_out(draft: Draft, orders: tuple[Order, ...]) -> tuple[ClaimRecord, ...]:
    """Carry out orders together; return a record for each. Cost: linear in what they are about."""
    if not orders:
        return ()
    kept = {
        order.consumer: _with_names(draft, claim)
        for order in orders
        if (claim := draft.claims.get(order.consumer)) is not None
    }
    places, names = _places(draft, keys_of(orders, kept))
    settlement = settle(
        orders,
        kept,
        places,
        names,
        draft.now,
        holders=lambda keys: _holders(draft, keys),
        takers=lambda units: _takers(draft, units),
    )
    _use(draft, settlement, places)
    for settled in settlement.consumers:
        _give_back(draft, settled)
    return tuple([_hold(draft, settled) for settled in settlement.consumers])


def named_today(state: State, claim: ClaimRecord) -> ClaimRecord:
    """Return a claim with the names its providers have now."""
    names = {held.provider_uuid: state.providers[held.provider_uuid].name for held in claim.held}
    return _renamed(claim, names)


def _with_names(draft: Draft, claim: ClaimRecord) -> ClaimRecord:
    names = {held.provider_uuid: draft.providers[held.provider_uuid].name for held in claim.held}
    return _renamed(claim, names)


def _renamed(claim: ClaimRecord, names: Mapping[str, str]) -> ClaimRecord:
    if all(held.provider == names[held.provider_uuid] for held in claim.held):
        return claim
    held = tuple(dataclasses.replace(h, provider=names[h.provider_uuid]) for h in claim.held)
    return dataclasses.replace(claim, held=held)


def _places(draft: Draft, keys: Iterable[Key]) -> tuple[dict[Key, Place], dict[str, str]]:
    """Return the inventories of some places and of their shares, and the providers' names."""
    places: dict[Key, Place] = {}
    names: dict[str, str] = {}
    waiting = list(keys)
    for key in waiting:  # grows while it is read: what they share
        kept, row = draft.providers.get(key[0]), draft.rows.get(key)
        if kept is not None:
            names[key[0]] = kept.name
        if kept is not None and row is not None and key not in places:
            places[key] = Place(kept.name, row.record, row.shares)
            waiting += [of for of, _ in row.shares]
    return places, names


def _holders(draft: Draft, keys: Collection[Key]) -> dict[Key, Iterable[tuple[str, int]]]:
    found: dict[Key, Iterable[tuple[str, int]]] = {}
    for key in keys:
        amounts: dict[str, int] = defaultdict(int, draft.holders.get(key))
        for source, factor in draft.sharers.get(key).items():
            for consumer, amount in draft.holders.get(source).items():
                amounts[consumer] += amount * factor
        found[key] = amounts.items()
    return found


def _takers(draft: Draft, units: Collection[Unit]) -> dict[Unit, str]:
    found = {unit: draft.units.one(*unit) for unit in units}
    return {unit: taken.consumer for unit, taken in found.items() if taken is not None}


def _use(draft: Draft, settlement: Settlement, places: Mapping[Key, Place]) -> None:
    """Write what is used of each inventory, directly and in all."""
    direct: dict[Key, int] = defaultdict(int)  # also of places where only units or holders change
    for settled in settlement.consumers:
        for shift in settled.shifts:
            direct[shift.key] += shift.after - shift.before
            for of, _ in places[shift.key].shares:
                direct[of] += 0
    for key, change in direct.items():
        row, net = draft.rows[key], settlement.nets.get(key, 0)
        record = dataclasses.replace(row.record, used=row.record.used + net) if net else row.record
        now = dataclasses.replace(
            row, record=record, direct=row.direct + change, writes=row.writes + 1
        )
        draft.rows.put(key, now)
        draft.touch(key[0])


def _give_back(draft: Draft, settled: Settled) -> None:
    if settled.is_gone:
        draft.claim_ids.put(settled.claim.id, None)
    for shift in settled.shifts:
        for unit in shift.given:
            draft.units.put(shift.key[0], unit, None)


def _hold(draft: Draft, settled: Settled) -> ClaimRecord:
    """Write what a consumer holds; return its claim."""
    claim = dataclasses.replace(settled.claim, generation=draft.number)
    draft.claims.put(claim.consumer, None if settled.is_gone else claim)
    if not settled.is_gone:
        if draft.claim_ids.get(claim.id) not in (None, claim.consumer):
            raise exceptions.OperationConflict(claim.id, "a claim of this id exists")
        draft.claim_ids.put(claim.id, claim.consumer)
    for uuid, _ in [s.key for s in settled.shifts] or [held.key for held in claim.held]:
        draft.touch_consumer(uuid, claim.consumer)
    for shift in settled.shifts:
        draft.holders.put(shift.key, claim.consumer, shift.after or None)
        for unit in shift.taken:
            draft.units.put(shift.key[0], unit, Taken(claim.consumer, shift.key[1]))
    return claim
