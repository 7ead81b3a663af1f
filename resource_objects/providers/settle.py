"""The settlement of orders: the one decision of every write, on what is kept, pure.

A backend reads what the orders are about (and locks it), asks :func:`settle`, and writes down what
that says: the net change of each inventory, and what each consumer holds before and after. So
memory and databases cannot differ in what they allow, and a simulation asks the same function.

Rules, in the order they are looked at for each consumer and place:

1. nobody gives back more than it holds;
2. the inventory exists;
3. unit rules bind all that one consumer will hold at a place, when that grows;
4. ``used`` of an inventory is the sum of the allocations there and of those that share it, times
   their shares. It may not grow beyond the capacity; what is judged is the net change of all orders
   together, so two consumers may swap full places;
5. a unit belongs to one consumer.
"""

from __future__ import annotations

import dataclasses
import datetime
import uuid as uuids
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from resource_objects import exceptions
from resource_objects.exceptions import CapacityException, Reason, Rule
from resource_objects.providers import decision
from resource_objects.providers.allocation import RELEASED
from resource_objects.providers.orders import (
    Adjustment,
    ClaimOrder,
    ClaimRecord,
    Delta,
    Held,
    Key,
    Order,
    Release,
    Renewal,
    Replacement,
)
from resource_objects.resources.records import InventoryRecord

#: (provider's uuid, unit): a CPU or device by name.
Unit: TypeAlias = tuple[str, str]
#: Who draws on each of some inventories, and how much: asked for only to explain a refusal.
Holders: TypeAlias = Callable[[Collection[Key]], Mapping[Key, Iterable[tuple[str, int]]]]
#: Which of some units are taken, and by which consumer.
Takers: TypeAlias = Callable[[Collection[Unit]], Mapping[Unit, str]]


@dataclasses.dataclass(slots=True)
class Place:
    """One inventory as kept: its figures, and what an allocation there also uses.

    ``shares`` are ``(key, factor)``: each unit taken here takes ``factor`` there as well (D2).
    """

    provider: str  #: its name
    record: InventoryRecord
    shares: tuple[tuple[Key, int], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Shift:
    """What changes for one consumer at one place."""

    key: Key
    before: int
    after: int
    taken: tuple[str, ...] = ()  #: units, by name
    given: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Settled:
    """What becomes of one consumer.

    ``kept`` is what it held (None: it is new), ``claim`` what it holds now (empty and released:
    it goes). ``claim.generation`` is still the old one.
    """

    kept: ClaimRecord | None
    claim: ClaimRecord
    shifts: tuple[Shift, ...]

    @property
    def is_gone(self) -> bool:
        """Whether the consumer is to be forgotten."""
        return self.claim.state == RELEASED


@dataclasses.dataclass(frozen=True, slots=True)
class Settlement:
    """What orders come to: one entry per order, and the net change of ``used`` by inventory."""

    consumers: tuple[Settled, ...]
    nets: Mapping[Key, int]


def keys_of(orders: Iterable[Order], kept: Mapping[str, ClaimRecord]) -> dict[Key, None]:
    """Return every place that orders touch, given what their consumers hold."""
    found: dict[Key, None] = {}
    for order in orders:
        if not isinstance(order, Release | Renewal):
            found.update((delta.key, None) for delta in order.deltas)
        if isinstance(order, Release | Replacement) and order.consumer in kept:
            found.update((held.key, None) for held in kept[order.consumer].held)
    return found


def settle(
    orders: Sequence[Order],
    kept: Mapping[str, ClaimRecord],
    places: Mapping[Key, Place],
    names: Mapping[str, str],
    now: datetime.datetime,
    *,
    holders: Holders,
    takers: Takers,
) -> Settlement:
    """Return what orders come to, or raise; nothing is changed.

    :param kept: what the consumers of the orders hold now, by name; those that hold nothing are
        not in it
    :param places: every inventory that is there, of :func:`keys_of` and of their shares
    :param names: ``{uuid: name}`` of the providers that are there
    :raises ConsumerExists: if a claim is ordered for a consumer that holds something
    :raises ConsumerNotFound: if a release or renewal is ordered for one that holds nothing
    :raises StaleConsumer: if one is not at the generation demanded
    :raises ProviderNotFound: if a provider is gone
    :raises UnitNotHeld: if a unit is given back that is not held
    :raises InvalidAmount: if a part of what has units is given back without naming any
    :raises CapacityException: with every reason found, and who holds what
    """
    drafts = [_draft(order, kept.get(order.consumer)) for order in orders]
    nets = _nets(drafts, places)
    _refuse(drafts, nets, places, names, holders)
    _refuse_units(drafts, names, takers)
    settled = tuple(_settled(draft, names, now) for draft in drafts)
    return Settlement(settled, {key: net for key, net in nets.items() if net})


@dataclasses.dataclass(frozen=True, slots=True)
class _Draft:
    order: Order
    kept: ClaimRecord | None
    shifts: tuple[Shift, ...]


# --- what each consumer asks ---


def _draft(order: Order, kept: ClaimRecord | None) -> _Draft:
    _check_standing(order, kept)
    if isinstance(order, ClaimOrder):
        return _Draft(order, kept, tuple(Shift(d.key, 0, d.amount, d.units) for d in order.deltas))
    if isinstance(order, Renewal):
        return _Draft(order, kept, ())
    before = {held.key: held for held in kept.held} if kept is not None else {}
    if isinstance(order, Adjustment):
        return _Draft(order, kept, tuple(_adjusted(d, before.get(d.key)) for d in order.deltas))
    wanted = {d.key: d for d in order.deltas} if isinstance(order, Replacement) else {}
    shifts = (_replaced(key, before.get(key), wanted.get(key)) for key in {**before, **wanted})
    return _Draft(order, kept, tuple(shift for shift in shifts if shift is not None))


def _check_standing(order: Order, kept: ClaimRecord | None) -> None:
    name = order.consumer
    if isinstance(order, ClaimOrder):
        if kept is not None:
            raise exceptions.ConsumerExists(name)
        return
    if kept is None and isinstance(order, Release | Renewal):
        raise exceptions.ConsumerNotFound(name)
    is_at = None if kept is None else kept.generation
    if order.generation is not None and order.generation != is_at:
        now = "it holds nothing" if kept is None else f"now {is_at}"
        raise exceptions.StaleConsumer(name, f"read at generation {order.generation}, {now}")
    meant = order.claim_id if isinstance(order, Renewal) else None
    if meant is not None and kept is not None and meant != kept.id:
        raise exceptions.StaleConsumer(name, f"its claim is {kept.id}, not {meant}")


def _adjusted(delta: Delta, held: Held | None) -> Shift:
    before, units = (0, ()) if held is None else (held.amount, held.units)
    after = before + delta.amount
    if delta.amount > 0:
        return Shift(delta.key, before, after, taken=delta.units)
    _check_held(delta.units, units)
    if units and after > 0 and not delta.units:
        asked = "the units that are given back, by name"
        raise exceptions.InvalidAmount(f"delta of {delta.resource_class}", delta.amount, asked)
    return Shift(delta.key, before, after, given=units if after == 0 else delta.units)


def _check_held(given: Iterable[str], held: Iterable[str]) -> None:
    for unit in given:
        if unit not in held:
            raise exceptions.UnitNotHeld(unit)


def _replaced(key: Key, held: Held | None, wanted: Delta | None) -> Shift | None:
    before, had = (0, ()) if held is None else (held.amount, held.units)
    after, has = (0, ()) if wanted is None else (wanted.amount, wanted.units)
    taken = tuple(unit for unit in has if unit not in had)
    given = tuple(unit for unit in had if unit not in has)
    if before == after and not taken and not given:
        return None
    return Shift(key, before, after, taken, given)


# --- whether it fits ---


def _nets(drafts: Iterable[_Draft], places: Mapping[Key, Place]) -> dict[Key, int]:
    """Return the net change of ``used`` of each inventory, shares included."""
    nets: dict[Key, int] = defaultdict(int)
    for draft in drafts:
        for shift in draft.shifts:
            change = shift.after - shift.before
            nets[shift.key] += change
            place = places.get(shift.key)
            for key, factor in place.shares if place is not None else ():
                nets[key] += change * factor
    return nets


def _refuse(
    drafts: Sequence[_Draft],
    nets: Mapping[Key, int],
    places: Mapping[Key, Place],
    names: Mapping[str, str],
    holders: Holders,
) -> None:
    """Raise if anything of all drafts does not fit, with every reason."""
    reasons: dict[tuple[Key, Reason], None] = {}
    asked: set[Key] = set()
    for draft in drafts:
        for shift in draft.shifts:
            if shift.key[0] not in names:
                raise exceptions.ProviderNotFound(shift.key[0])
            alone = nets[shift.key] == shift.after - shift.before
            for reason in _refusals(draft.order, shift, places.get(shift.key), names, alone):
                reasons[shift.key, reason] = None
            if alone:
                asked.add(shift.key)
    for key, net in nets.items():
        if key not in asked and key in places:
            reasons.update(((key, reason), None) for reason in _over(places[key], net))
    if reasons:
        raise CapacityException.of(_with_holders(reasons, holders))


def _refusals(
    order: Order, shift: Shift, place: Place | None, names: Mapping[str, str], alone: bool
) -> Iterable[Reason]:
    """Return why one shift does not fit, capacity included where it is the whole net change."""
    (uuid, kind), change = shift.key, shift.after - shift.before
    if shift.after < 0:
        return [decision.not_held(kind, change, shift.before, names[uuid])]
    if place is None:
        return [decision.absent(kind, change, names[uuid])]
    if change <= 0:
        return []
    aggregate = isinstance(order, Adjustment) and order.aggregate
    if alone:
        return decision.refusals(
            place.record, change, place.provider, shift.before, aggregate=aggregate
        )
    if aggregate:
        return []
    emptied = dataclasses.replace(place.record, used=0)
    found = decision.refusals(emptied, shift.after, place.provider)
    return [reason for reason in found if reason.rule is not Rule.CAPACITY]


def _over(place: Place, net: int) -> Iterable[Reason]:
    """Return why the net change of several does not fit."""
    return decision.refusals(place.record, net, place.provider, aggregate=True) if net > 0 else ()


def _with_holders(reasons: Iterable[tuple[Key, Reason]], holders: Holders) -> Iterator[Reason]:
    found = list(reasons)
    full = [key for key, reason in found if reason.rule is Rule.CAPACITY]
    held = holders(full) if full else {}
    for key, reason in found:
        if reason.rule is Rule.CAPACITY:
            reason = decision.held_by(reason, held.get(key, ()))
        yield reason


def _refuse_units(drafts: Iterable[_Draft], names: Mapping[str, str], takers: Takers) -> None:
    """Raise if a unit that is taken is somebody's who does not give it back."""
    wanted: dict[Unit, Shift] = {}
    given: set[Unit] = set()
    reasons: list[Reason] = []
    for draft in drafts:
        for shift in draft.shifts:
            given.update((shift.key[0], unit) for unit in shift.given)
            for unit in shift.taken:
                if (shift.key[0], unit) in wanted:
                    reasons.append(_taken(shift, unit, names, draft.order.consumer))
                wanted[shift.key[0], unit] = shift
    if wanted:
        takes = takers(wanted.keys() - given)
        reasons += [
            _taken(shift, place[1], names, takes[place])
            for place, shift in wanted.items()  # in the order they were asked for
            if place in takes
        ]
    if reasons:
        raise CapacityException.of(reasons)


def _taken(shift: Shift, unit: str, names: Mapping[str, str], consumer: str) -> Reason:
    uuid, kind = shift.key
    return Reason(
        Rule.UNIT_TAKEN,
        shift.after - shift.before,
        bound=0,
        used=1,
        resource=kind,
        where=names[uuid],
        holders=((consumer, 1),),
        unit=unit,
    )


# --- what each consumer then holds ---


def _settled(draft: _Draft, names: Mapping[str, str], now: datetime.datetime) -> Settled:
    order, kept = draft.order, draft.kept
    if isinstance(order, Renewal):
        assert kept is not None
        renewed = dataclasses.replace(kept, expires_at=order.expires_at, state=order.state)
        return Settled(kept, renewed, ())
    if isinstance(order, Release):
        assert kept is not None
        return Settled(kept, dataclasses.replace(kept, state=RELEASED), draft.shifts)
    record = kept or ClaimRecord(order.claim_id, order.consumer, str(uuids.uuid4()), now, ())
    record = _described(record, order)
    held = _held(record, draft.shifts, names)
    state = record.state if held else RELEASED
    return Settled(kept, dataclasses.replace(record, held=held, state=state), draft.shifts)


def _described(record: ClaimRecord, order: ClaimOrder | Adjustment | Replacement) -> ClaimRecord:
    """Return a record with what an order says of the consumer; None leaves it.

    A replacement says the request too, also that there is none: it was for what is given back.
    """
    said: dict[str, Any] = {
        name: value
        for name in ("request", "project", "user", "consumer_type", "expires_at")
        if (value := getattr(order, name, None)) is not None
    }
    if isinstance(order, Replacement):
        said["request"] = order.request
    return dataclasses.replace(record, **said) if said else record


def _held(
    record: ClaimRecord, shifts: Iterable[Shift], names: Mapping[str, str]
) -> tuple[Held, ...]:
    held = {one.key: one for one in record.held}
    for shift in shifts:
        uuid, kind = shift.key
        units = held[shift.key].units if shift.key in held else ()
        # sorted, as rows have no order
        units = tuple(sorted((set(units) - set(shift.given)).union(shift.taken)))
        held[shift.key] = Held(uuid, names[uuid], kind, shift.after, units)
    return tuple(one for one in held.values() if one.amount)
