"""The settlement of orders: the one decision of every write, on what is kept, pure.

A backend reads what the orders are about (and locks it), asks :func:`settle`, and writes down what
that says: the net change of each inventory, and what each consumer holds before and after. So
memory and databases cannot differ in what they allow, and a simulation asks the same function.

Rules, in the order they are looked at for each consumer and place:

1. nobody gives back more than it holds;
2. the inventory exists;
3. unit rules bind all that one consumer will hold at a place, when that grows. They do not bind an
   amount that another consumer of the same write had allocated there before: a move leaves it to
   the migration, and a revert restores it, also where the rules of the host are tighter by now;
4. ``used`` of an inventory is the sum of the allocations there and of those that share it, times
   their shares. It may not grow beyond the capacity; what is judged is the net change of all orders
   together, so two consumers may swap full places. Nor may it grow beyond a limit that came with
   the write, whatever the capacity;
5. a unit belongs to one consumer;
6. of what is disabled no more is used than before, and no unit is taken that is free, be it by
   shares, unless the order overrides it: consumers may exchange what they hold of it. A unit that
   was removed from the host is not taken while it is free, and removed units that are free are no
   part of the capacity that rule 4 asks for: a refusal names them next to the consumers.

7. who joins a server group whose policy is strict, or is in one, and takes something of another
   host, leaves the members as the policy wants them. What is judged is where all of them are after
   all orders, so members may change places; that others are already as they should not be refuses
   nobody elsewhere.

Rules 3, 4, 6 and 7 do not bind an order that adopts: it says what is in use already.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from resource_objects import exceptions
from resource_objects._fast import set_directly
from resource_objects.exceptions import CapacityException
from resource_objects.names import natural_order
from resource_objects.providers import decision
from resource_objects.providers.allocation import HELD, RELEASED
from resource_objects.providers.disabled import Disabled, RemovedUnit
from resource_objects.providers.given import later
from resource_objects.providers.orders import (
    UNLIMITED,
    Change,
    ConsumerOrder,
    ConsumerRecord,
    Expect,
    Key,
    Mode,
    Totals,
    Use,
    new_id,
)
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.records import InventoryRecord

#: (provider's uuid, unit): a CPU or device by name.
Unit: TypeAlias = tuple[str, str]
#: Who draws on each of some inventories, and how much: asked for only to explain a refusal.
Holders: TypeAlias = Callable[[Collection[Key]], Mapping[Key, Iterable[tuple[str, int]]]]
#: What is disabled at some providers or above them, by name: asked for only to explain a refusal.
OutOfService: TypeAlias = Callable[[Collection[str]], Mapping[str, Disabled]]
#: The removed units of some providers: requested only where a place counts some.
RemovedUnits: TypeAlias = Callable[[Collection[str]], Mapping[str, Sequence[RemovedUnit]]]
#: Which of some units are taken, and by which consumer.
Takers: TypeAlias = Callable[[Collection[Unit]], Mapping[Unit, str]]


@dataclasses.dataclass(frozen=True, slots=True)
class GroupPlaces:
    """Some server groups, and on which hosts their members are.

    A host is the root of a tree. What a pool gives is of no host: pools are left out.
    """

    groups: Mapping[str, ServerGroup]  #: those that are there, by name
    #: by group, the names of the hosts of which each member holds something; of soft ones none
    members: Mapping[str, Mapping[str, Collection[str]]]
    host_of: Mapping[str, str]  #: by uuid, the name of the host of each provider


#: Server groups by their names, and the hosts of some providers: asked for only where somebody in a
#: group takes something of another provider. Nobody may change them meanwhile.
Groups: TypeAlias = Callable[[Collection[str], Collection[str]], GroupPlaces]


@dataclasses.dataclass(slots=True)
class Place:
    """One inventory as kept: its figures, and what an allocation there also uses.

    ``shares`` are ``(key, factor)``: each unit taken here takes ``factor`` there as well (D2).
    ``disabled_until`` is when its provider, or one above it, is in service again; None: it is.
    ``removed_units`` is the number of units of its provider that were removed while allocated.
    """

    provider: str  #: its name
    record: InventoryRecord
    shares: tuple[tuple[Key, int], ...] = ()
    disabled_until: datetime.datetime | None = None
    removed_units: int = 0


@set_directly
@dataclasses.dataclass(frozen=True, slots=True)
class Settled:
    """What becomes of one consumer.

    ``kept`` is what it held (None: it is new), ``claim`` what it holds now (empty and released:
    it goes). ``claim.generation`` is the one given to :func:`settle`, else still the old one.
    ``stated`` is where an order says that it shall hold what it held, or asks to be counted: a
    write there, whatever changes.
    """

    kept: ConsumerRecord | None
    claim: ConsumerRecord
    changes: tuple[Change, ...]
    stated: tuple[Key, ...] = ()

    @property
    def is_gone(self) -> bool:
        """Whether the consumer is to be forgotten."""
        return self.claim.state == RELEASED


@set_directly
@dataclasses.dataclass(frozen=True, slots=True)
class Settlement:
    """What orders come to: one entry per order, and the net change of ``used`` by inventory."""

    consumers: tuple[Settled, ...]
    nets: Mapping[Key, int]
    overridden: tuple[str, ...] = ()  #: uuids of providers that were taken of though disabled

    def counted(self, places: Mapping[Key, Place]) -> frozenset[Key]:
        """Return where the write is counted: at one inventory of each provider that gives some.

        What a consumer is said to hold as it held it is given, too, as Placement counts it.

        So the sum over the inventories of a provider counts each write once, and nobody has to lock
        the provider to count it.
        """
        first: dict[str, Key] = {}
        for settled in self.consumers:
            for change in settled.changes:
                if change.after:
                    first.setdefault(change.key[0], change.key)
                    for key, _ in places[change.key].shares:
                        first.setdefault(key[0], key)
            for stated in settled.stated:
                first.setdefault(stated[0], stated)
                for key, _ in places[stated].shares:
                    first.setdefault(key[0], key)
        return frozenset(first.values())


def keys_of(orders: Iterable[ConsumerOrder], kept: Mapping[str, ConsumerRecord]) -> dict[Key, None]:
    """Return every place that orders touch, given what their consumers hold."""
    found: dict[Key, None] = {}
    for order in orders:
        for use in order.uses:
            found[use.key] = None
        if order.mode is Mode.SET and order.consumer in kept:
            for held in kept[order.consumer].held:
                found[held.key] = None
    return found


def settle(
    orders: Sequence[ConsumerOrder],
    kept: Mapping[str, ConsumerRecord],
    places: Mapping[Key, Place],
    names: Mapping[str, str],
    now: datetime.datetime,
    *,
    holders: Holders,
    takers: Takers,
    out_of_service: OutOfService,
    removed_units: RemovedUnits,
    groups: Groups | None = None,
    generation: int | None = None,
    limits: Totals = UNLIMITED,
) -> Settlement:
    """Return what orders come to, or raise; nothing is changed.

    :param kept: what the consumers of the orders hold now, by name; those that hold nothing are
        not in it
    :param places: every inventory that is there, of :func:`keys_of` and of their shares
    :param names: ``{uuid: name}`` of the providers that are there
    :param groups: None: what server groups ask is not judged, for a picture does not keep them
    :param generation: of what is written, where that is known before
    :param now: by the clock of the ledger
    :param limits: the most that may be used of some inventories in all, besides their capacity
    :raises AlreadyExists: if a claim is ordered for a consumer that holds something
    :raises NotFound: if a release or renewal is ordered for one that holds nothing
    :raises Stale: if one is not at the generation demanded
    :raises NotFound: if a provider is gone
    :raises Conflict: if a unit is given back that is not held
    :raises InvalidInput: if a part of what has units is given back without naming any
    :raises CapacityException: if something is taken of what is out of service, whatever others
        hold: of a provider, or a unit by name
    :raises NotFound: if a consumer is to be in a server group that is not there
    :raises CapacityException: with every reason found, and who holds what
    """
    drafts = [_draft(order, kept.get(order.consumer)) for order in orders]
    nets = _nets(drafts, places)
    out = _ALL_IN_SERVICE
    for place in places.values():  # as every write comes through here, nothing is called for none
        if place.disabled_until is not None or place.removed_units:
            out = _out(drafts, nets, places, now, removed_units)
            break
    # every reason before any is raised: who is refused need not ask again to learn the next one
    reasons = _totals(drafts, nets, places, names, holders, limits, out.left)
    reasons += _units_taken(drafts, names, takers)
    if groups is not None:
        reasons += _groups_violated(drafts, groups)
    if reasons or out.providers or out.units:
        reasons += _disabled(out, reasons, names, out_of_service)
        if out.providers or out.units:
            raise exceptions.CapacityException(reasons)
        raise CapacityException(reasons)
    settled = tuple([_settled(draft, names, now, generation) for draft in drafts])
    return Settlement(settled, {key: net for key, net in nets.items() if net}, out.overridden)


@dataclasses.dataclass(slots=True)  # one per order, and a frozen one takes three times as long
class _Draft:
    order: ConsumerOrder
    kept: ConsumerRecord | None
    changes: tuple[Change, ...]
    stated: tuple[Key, ...] = ()


# --- what each consumer asks ---


def _draft(order: ConsumerOrder, kept: ConsumerRecord | None) -> _Draft:
    _check_expected(order, kept)
    if order.mode is Mode.KEEP:
        return _Draft(order, kept, ())
    name = order.consumer
    if kept is None:  # which is most of them: a claim
        changes = [Change(name, use.key, 0, use.amount, use.units) for use in order.uses]
        if order.mode is Mode.SET:
            return _Draft(order, kept, tuple(changes))
    elif order.is_release:
        changes = [Change(name, one.key, one.amount, 0, (), one.units) for one in kept.held]
        stated = tuple(one.key for one in kept.held) if order.counted else ()
        return _Draft(order, kept, tuple(changes), stated)
    before = {held.key: held for held in kept.held} if kept is not None else {}
    if order.mode is Mode.ADD:
        added = (_added(name, use, before.get(use.key)) for use in order.uses)
        return _Draft(order, kept, tuple(added))
    wanted = {use.key: use for use in order.uses}
    found = {k: _set(name, k, before.get(k), wanted.get(k)) for k in {**before, **wanted}}
    made = tuple(change for change in found.values() if change is not None)
    return _Draft(order, kept, made, tuple(key for key in found if found[key] is None))


def _check_expected(order: ConsumerOrder, kept: ConsumerRecord | None) -> None:
    name = order.consumer
    if order.expect is Expect.ABSENT:
        if kept is not None:
            raise exceptions.AlreadyExists("consumer", name)
        return
    if kept is None and (order.expect is Expect.PRESENT or not order.uses):
        raise exceptions.NotFound("consumer", name)
    is_at = None if kept is None else kept.generation
    if order.generation is not None and order.generation != is_at:
        now = "it holds nothing" if kept is None else f"now {is_at}"
        raise exceptions.Stale("consumer", name, f"read at generation {order.generation}, {now}")
    # who renews means one claim: its consumer may have given it back and made another since
    meant = order.uuid if order.mode is Mode.KEEP else None
    if meant is not None and kept is not None and meant != kept.uuid:
        raise exceptions.Stale("consumer", name, f"its claim is {kept.uuid}, not {meant}")


def _added(consumer: str, use: Use, held: Use | None) -> Change:
    before, units = (0, ()) if held is None else (held.amount, held.units)
    after = before + use.amount
    if use.released:
        _check_held(use.released, units)
        return Change(consumer, use.key, before, after, taken=use.units, given=use.released)
    if use.amount > 0:
        return Change(consumer, use.key, before, after, taken=use.units)
    _check_held(use.units, units)
    if units and after > 0 and not use.units:
        expected = "the units that are given back, by name"
        raise exceptions.InvalidInput(
            "amount", f"use of {use.resource_class}", use.amount, expected
        )
    given = units if after == 0 else use.units  # who gives back all need not name its units
    return Change(consumer, use.key, before, after, given=given)


def _check_held(given: Iterable[str], held: Iterable[str]) -> None:
    for unit in given:
        if unit not in held:
            raise exceptions.Conflict("unit", unit)


def _set(consumer: str, key: Key, held: Use | None, wanted: Use | None) -> Change | None:
    before, had = (0, ()) if held is None else (held.amount, held.units)
    after, has = (0, ()) if wanted is None else (wanted.amount, wanted.units)
    taken = tuple(unit for unit in has if unit not in had)
    given = tuple(unit for unit in had if unit not in has)
    if before == after and not taken and not given:
        return None
    return Change(consumer, key, before, after, taken, given)


# --- whether it fits ---


def _nets(drafts: Iterable[_Draft], places: Mapping[Key, Place]) -> dict[Key, int]:
    """Return the net change of ``used`` of each inventory, shares included."""
    nets: dict[Key, int] = defaultdict(int)
    for draft in drafts:
        for change in draft.changes:
            net = change.after - change.before
            nets[change.key] += net
            place = places.get(change.key)
            for key, factor in place.shares if place is not None else ():
                nets[key] += net * factor
    return nets


@dataclasses.dataclass(frozen=True, slots=True)
class _Out:
    """What is disabled or removed among all that orders touch.

    ``providers`` and ``units`` are those of which something is taken, whatever others hold;
    ``left`` are removed units that are free after all orders, by what they are counted as, where
    more is taken of that; ``overridden`` are disabled providers that are taken of nevertheless.
    """

    providers: Collection[str] = ()
    units: Collection[Unit] = ()
    left: Mapping[Key, Collection[Unit]] = dataclasses.field(default_factory=dict)
    overridden: tuple[str, ...] = ()


_ALL_IN_SERVICE = _Out()


def _out(
    drafts: Sequence[_Draft],
    nets: Mapping[Key, int],
    places: Mapping[Key, Place],
    now: datetime.datetime,
    removed_units: RemovedUnits,
) -> _Out:
    """Return what is disabled or removed among all that orders touch."""
    out = {
        key
        for key, place in places.items()
        if place.disabled_until is not None and place.disabled_until > now
    }
    marked = {key[0] for key, place in places.items() if place.removed_units}
    removed = {
        (uuid, one.unit): one
        for uuid, some in (removed_units(marked) if marked else {}).items()
        for one in some
    }
    if not out and not removed:
        return _ALL_IN_SERVICE
    given = {(c.key[0], unit) for draft in drafts for c in draft.changes for unit in c.given}
    free = _left_free(drafts, removed, given)
    refused: dict[str, None] = {}
    refused_units: dict[Unit, None] = {}
    overridden: dict[str, None] = {}
    left: dict[Key, list[Unit]] = {}
    for draft in drafts:
        found = overridden if draft.order.overrides_disabled else refused
        for change in draft.changes if not draft.order.adopts else ():
            uuid = change.key[0]
            for key in _grown(change, nets, places):
                if key in out:
                    found[key[0]] = None
                if key in free:
                    left[key] = free[key]
            taken = [(uuid, unit) for unit in change.taken if (uuid, unit) not in given]
            if taken and change.key in out:
                found[uuid] = None
            refused_units.update((unit, None) for unit in taken if unit in removed)
    return _Out(refused, sorted(refused_units), left, tuple(overridden))


def _grown(change: Change, nets: Mapping[Key, int], places: Mapping[Key, Place]) -> Iterator[Key]:
    """Yield the inventories of which more is used in the end, and this change is a part of that."""
    if change.after <= change.before:
        return
    shares = places[change.key].shares if change.key in places else ()
    for key in (change.key, *(target for target, _ in shares)):
        if nets[key] > 0:
            yield key


def _left_free(
    drafts: Iterable[_Draft], removed: Mapping[Unit, RemovedUnit], given: Collection[Unit]
) -> dict[Key, list[Unit]]:
    """Return the removed units that are free after all orders, by what they are counted as."""
    if not removed:
        return {}
    taken = {(c.key[0], unit) for draft in drafts for c in draft.changes for unit in c.taken}
    found: dict[Key, list[Unit]] = defaultdict(list)
    for unit, one in removed.items():
        if (one.is_free or unit in given) and unit not in taken:
            found[unit[0], one.resource_class].append(unit)
    return found


def _disabled(
    out: _Out, reasons: Iterable[Reason], names: Mapping[str, str], out_of_service: OutOfService
) -> Iterator[Reason]:
    """Yield what is out of service of what orders take, or of what they are refused for.

    :param reasons: those
    """
    refused = {(one.where, one.resource) for one in reasons if one.rule is Rule.CAPACITY}
    lacking = (
        unit
        for (uuid, kind), some in out.left.items()
        if (names[uuid], kind) in refused
        for unit in some
    )
    for name, facts in (out_of_service(out.providers) if out.providers else {}).items():
        yield Reason(Rule.DISABLED, 1, 0, 0, where=name, disabled=facts)
    for unit in sorted({*out.units, *lacking}):
        yield decision.unit_removed(unit[1], names[unit[0]])


def _totals(
    drafts: Sequence[_Draft],
    nets: Mapping[Key, int],
    places: Mapping[Key, Place],
    names: Mapping[str, str],
    holders: Holders,
    limits: Totals,
    left: Mapping[Key, Collection[Unit]],
) -> list[Reason]:
    """Return why anything of all drafts does not fit: every reason.

    :param left: the removed units that are free, by what they are counted as
    """
    reasons: dict[tuple[Key, Reason], None] = {}
    decided: set[Key] = set()
    in_use = _in_use(drafts)
    for draft in drafts:
        for change in draft.changes:
            if change.key[0] not in names:
                raise exceptions.NotFound("provider", change.key[0])
            has_rules = not draft.order.aggregate
            if in_use[change.key, change.after] and change.after > change.before:
                in_use[change.key, change.after] -= 1
                has_rules = False
            # what nobody else changes is decided once, unit rules and totals together; the rest
            # is judged by its net below, so that consumers may swap full places
            alone = nets[change.key] == change.after - change.before
            limit = limits.get(change.key) if limits else None
            out = len(left[change.key]) if change.key in left else 0
            place = places.get(change.key)
            for reason in _refusals(
                draft.order, change, place, names, alone, limit, out, has_rules=has_rules
            ):
                reasons[change.key, reason] = None
            if alone:
                decided.add(change.key)
    judged = nets
    # what is adopted is in use already, so it is no part of what the others add
    if len(decided) < len(nets) and any(draft.order.adopts for draft in drafts):
        judged = _nets((draft for draft in drafts if not draft.order.adopts), places)
    for key, net in judged.items():
        if key not in decided and key in places:
            over = _over(places[key], net, limits.get(key), len(left.get(key, ())))
            reasons.update(((key, reason), None) for reason in over)
    return list(_with_holders(reasons, holders)) if reasons else []


def _in_use(drafts: Sequence[_Draft]) -> Counter[tuple[Key, int]]:
    """Return the amounts that the consumers of a write had before it, where there are several."""
    if len(drafts) == 1:
        return Counter()
    kept = (draft.kept for draft in drafts if draft.kept is not None)
    return Counter((use.key, use.amount) for record in kept for use in record.held)


def _refusals(
    order: ConsumerOrder,
    change: Change,
    place: Place | None,
    names: Mapping[str, str],
    alone: bool,
    limit: int | None,
    out: int,
    *,
    has_rules: bool,
) -> Iterable[Reason]:
    """Return why one change does not fit, totals included where it is the whole net change.

    :param has_rules: whether the unit rules of the inventory bind the consumer
    """
    (uuid, kind), net = change.key, change.after - change.before
    if change.after < 0:
        return [decision.not_held(kind, net, change.before, names[uuid])]
    if place is None:
        return [decision.absent(kind, net, names[uuid])]
    if net <= 0 or order.adopts:
        return []
    if alone:
        return decision.refusals(
            place.record,
            net,
            place.provider,
            change.before,
            aggregate=not has_rules,
            limit=limit,
            out=out,
        )
    if not has_rules:
        return []
    # totals are judged by the net of all: of an empty inventory the unit rules alone are left
    emptied = dataclasses.replace(place.record, used=0)
    found = decision.refusals(emptied, change.after, place.provider)
    return [reason for reason in found if reason.rule is not Rule.CAPACITY]


def _over(place: Place, net: int, limit: int | None, out: int) -> Iterable[Reason]:
    """Return why the net change of several does not fit."""
    if net <= 0:
        return ()
    return decision.refusals(
        place.record, net, place.provider, aggregate=True, limit=limit, out=out
    )


def _with_holders(reasons: Iterable[tuple[Key, Reason]], holders: Holders) -> Iterator[Reason]:
    found = list(reasons)
    full = [key for key, reason in found if reason.rule in _TOTALS]
    held = holders(full) if full else {}
    for key, reason in found:
        if reason.rule in _TOTALS:
            reason = decision.held_by(reason, held.get(key, ()))
        yield reason


#: The rules that are about what all consumers use together.
_TOTALS = frozenset({Rule.CAPACITY, Rule.LIMIT})


def _units_taken(
    drafts: Iterable[_Draft], names: Mapping[str, str], takers: Takers
) -> list[Reason]:
    """Return which units that are taken are somebody's who does not give them back."""
    wanted: dict[Unit, Change] = {}
    given: set[Unit] = set()
    reasons: list[Reason] = []
    for draft in drafts:
        for change in draft.changes:
            if change.given:
                given.update((change.key[0], unit) for unit in change.given)
            for unit in change.taken:
                if (change.key[0], unit) in wanted:
                    reasons.append(_taken(change, unit, names, draft.order.consumer))
                wanted[change.key[0], unit] = change
    if wanted:
        takes = takers(wanted.keys() - given)  # what the same write gives back is free for it
        reasons += [
            _taken(change, place[1], names, takes[place])
            for place, change in wanted.items()  # in the order they were asked for
            if place in takes
        ]
    return reasons


def _taken(change: Change, unit: str, names: Mapping[str, str], consumer: str) -> Reason:
    uuid, kind = change.key
    return Reason(
        Rule.UNIT_TAKEN,
        change.after - change.before,
        bound=0,
        used=1,
        resource=kind,
        where=names[uuid],
        holders=((consumer, 1),),
        unit=unit,
    )


# --- server groups ---


def _groups_violated(drafts: Sequence[_Draft], groups: Groups) -> list[Reason]:
    """Return which members of strict server groups would not be as their policy wants them."""
    names = {_group_of(one) for one in drafts if _joins(one) or _goes_elsewhere(one)}
    if not names:  # which is nearly every write
        return []
    mine = [one for one in drafts if not names.isdisjoint({_group_of(one), _group_before(one)})]
    uuids = {change.key[0] for one in mine for change in one.changes}
    uuids.update(use.provider_uuid for one in mine if one.kept for use in one.kept.held)
    found = groups(sorted(filter(None, names)), uuids)
    reasons: list[Reason] = []
    for name in sorted(filter(None, names)):
        if name not in found.groups:
            raise exceptions.NotFound("server group", name)
        if not found.groups[name].is_soft:
            reasons += _violations(found.groups[name], mine, found)
    return reasons


def _group_of(draft: _Draft) -> str | None:
    """Return the server group that a consumer is in when the write is done."""
    return draft.order.group or _group_before(draft)


def _group_before(draft: _Draft) -> str | None:
    return None if draft.kept is None else draft.kept.group


def _joins(draft: _Draft) -> bool:
    """Return whether a consumer joins a server group, which has to be kept, and is locked."""
    return _group_of(draft) not in (None, _group_before(draft))


def _goes_elsewhere(draft: _Draft) -> bool:
    """Return whether a consumer joins a server group, or takes of a provider it held nothing of.

    The policy does not bind who says what is in use already.
    """
    if _group_of(draft) is None or draft.order.adopts:
        return False
    if _joins(draft):
        return True
    had = {use.provider_uuid for use in draft.kept.held} if draft.kept is not None else ()
    return any(one.after > one.before and one.key[0] not in had for one in draft.changes)


def _violations(group: ServerGroup, mine: Sequence[_Draft], found: GroupPlaces) -> Iterator[Reason]:
    """Yield where members are against the policy of a group that were not there before."""
    then = {name: frozenset(hosts) for name, hosts in found.members.get(group.name, {}).items()}
    came: dict[str, list[str]] = {}  # the hosts that are new to those who take
    for draft in mine:
        before, after = _hosts(draft, found.host_of)
        then.pop(draft.order.consumer, None)
        if _group_of(draft) != group.name:
            continue
        then[draft.order.consumer] = after
        if _goes_elsewhere(draft):
            stays = before if _group_before(draft) == group.name else frozenset()
            came[draft.order.consumer] = sorted(after - stays)
    if group.is_apart:
        yield from _not_apart(group, then, came)
    else:
        yield from _not_together(group, then, came)


def _hosts(draft: _Draft, host_of: Mapping[str, str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the hosts of which a consumer holds something before and after a write."""
    amounts = {} if draft.kept is None else {use.key: use.amount for use in draft.kept.held}
    then = {**amounts, **{change.key: change.after for change in draft.changes}}
    before, after = (
        frozenset(host_of[uuid] for (uuid, _), n in some.items() if n > 0 and uuid in host_of)
        for some in (amounts, then)
    )
    return before, after


def _not_apart(
    group: ServerGroup, then: Mapping[str, Collection[str]], came: Mapping[str, Sequence[str]]
) -> Iterator[Reason]:
    for consumer, hosts in came.items():
        for host in hosts:
            others = [one for one, its in then.items() if one != consumer and host in its]
            if len(others) >= group.max_per_host:
                verb = "are" if len(others) > 1 else "is"
                told = (
                    f"at most {group.max_per_host} of it on a host, {_named(others)} {verb} there"
                )
                yield _violation(group, host, others, told, group.max_per_host)


def _not_together(
    group: ServerGroup, then: Mapping[str, Collection[str]], came: Mapping[str, Sequence[str]]
) -> Iterator[Reason]:
    there = frozenset[str]().union(*(its for one, its in then.items() if one not in came))
    for consumer, hosts in came.items():
        if not there:  # nobody is anywhere: where the first one goes
            there = frozenset(hosts)
        for host in hosts:
            if host not in there:
                others = [
                    one for one in then if one != consumer and not there.isdisjoint(then[one])
                ]
                verb = "are" if len(others) > 1 else "is"
                told = (
                    f"all of it on one host, {_named(others)} {verb} on {', '.join(sorted(there))}"
                )
                yield _violation(group, host, others, told, 0)


def _named(consumers: Iterable[str]) -> str:
    some = sorted(consumers, key=natural_order)
    more = f" and {len(some) - _NAMED} more" if len(some) > _NAMED else ""
    return ", ".join(some[:_NAMED]) + more


#: So many members are named in words.
_NAMED = 3


def _violation(
    group: ServerGroup, host: str, others: Iterable[str], told: str, bound: int
) -> Reason:
    some = tuple((one, 1) for one in sorted(others, key=natural_order))
    return Reason(
        Rule.SERVER_GROUP,
        1,
        bound,
        len(some),
        where=host,
        holders=some,
        unit=told,
        group=group.name,
    )


# --- what each consumer then holds ---


def _settled(
    draft: _Draft, names: Mapping[str, str], now: datetime.datetime, generation: int | None
) -> Settled:
    order, kept = draft.order, draft.kept
    if generation is None:
        generation = 0 if kept is None else kept.generation
    if order.mode is Mode.KEEP:
        assert kept is not None
        state = order.state or kept.state
        expires_at = _expiry(order, now)
        renewed = dataclasses.replace(
            kept,
            generation=generation,
            expires_at=expires_at,
            state=state,
            writes=kept.writes + 1,
        )
        return Settled(kept, renewed, ())
    if order.is_release:
        assert kept is not None
        return Settled(kept, kept.written(generation, RELEASED), draft.changes, draft.stated)
    held = _held(() if kept is None else kept.held, draft.changes, names)
    if kept is not None:
        said = {"generation": generation, "writes": kept.writes + 1, **_described(order, now)}
        if not held:
            said["state"] = RELEASED
        claim = dataclasses.replace(kept, held=held, **said)
        return Settled(kept, claim, draft.changes, draft.stated)
    made = ConsumerRecord(
        order.uuid or new_id(),
        order.consumer,
        now,
        held,
        HELD if held else RELEASED,
        order.request,
        generation,
        order.project,
        order.user,
        order.consumer_type,
        _expiry(order, now),
        1,
        order.group,
    )
    return Settled(kept, made, draft.changes)


def _expiry(order: ConsumerOrder, now: datetime.datetime) -> datetime.datetime | None:
    """Return when the claim of an order expires, by the clock that says ``now``."""
    if order.expires_in is None:
        return order.expires_at
    return later("expires_in", order.expires_in, now)


def _described(order: ConsumerOrder, now: datetime.datetime) -> dict[str, Any]:
    """Return what an order says of a consumer that is there; None leaves it.

    An order that sets says the request too, also that there is none: it was for what is given back.
    """
    said: dict[str, Any] = {
        name: value
        for name in ("request", "project", "user", "consumer_type", "group")
        if (value := getattr(order, name)) is not None
    }
    expires_at = _expiry(order, now)
    if expires_at is not None:
        said["expires_at"] = expires_at
    if order.mode is Mode.SET:
        said["request"] = order.request
    return said


def _held(
    before: Iterable[Use], changes: Iterable[Change], names: Mapping[str, str]
) -> tuple[Use, ...]:
    held = {one.key: one for one in before}
    for change in changes:
        uuid, kind = change.key
        units = held[change.key].units if held and change.key in held else ()
        if change.given or change.taken:  # sorted, as rows have no order
            units = tuple(sorted((set(units) - set(change.given)).union(change.taken)))
        held[change.key] = Use(uuid, kind, change.after, units, names[uuid])
    return tuple([one for one in held.values() if one.amount])
