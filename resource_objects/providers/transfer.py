"""The inventory transfer of a reshape: what one loses, others get, and allocations follow. Pure."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from resource_objects import exceptions
from resource_objects.providers import decision
from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    to_records,
)
from resource_objects.providers.orders import ConsumerRecord, Key, Use
from resource_objects.providers.reshape import Move, NewProvider, Part, Reshape
from resource_objects.reasons import Rule
from resource_objects.resources import Inventory, resource
from resource_objects.resources.located import Identified, Located, dependent_units, unit_count
from resource_objects.resources.records import InventoryRecord, KindRecord

_FIGURES = ("min_unit", "max_unit", "step_size", "ratio_millionths")


class Problems:
    """What stands against a plan: texts, and the consumers they are about."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._consumers: dict[str, None] = {}

    def add(self, text: str, consumer: str | None = None) -> None:
        """Note one."""
        self._texts.append(text)
        if consumer is not None:
            self._consumers[consumer] = None

    def refuse(self) -> None:
        """Raise if there are any.

        :raises InvalidPlan: with all of them
        """
        if self._texts:
            raise exceptions.InvalidPlan(
                "reshape", "; ".join(self._texts), self._texts, self._consumers
            )


class ReshapeState:
    """What is kept and what shall be created, to be looked up by name, uuid and place.

    :param changes: what becomes of definitions where a caller states it; else the reshape says it
    """

    def __init__(
        self, reshape: Reshape, columns: Columns, changes: DefinitionChanges | None = None
    ) -> None:
        self.is_stated = changes is not None
        self._columns = columns
        given = columns.providers
        uuid = columns.index.uuids
        #: names by uuid, also of what is created
        self.names = dict(columns.index.names_by_uuid)
        self._uuids = {name: own for own, name in self.names.items()}
        self._above = {
            uuid[number]: None if above is None else uuid[above]
            for number, above in zip(given.provider_id, given.parent_id, strict=True)
        }
        self._disabled = {uuid[number] for number in columns.disabled}
        #: inventories as kept, with what is used
        self.records = {
            (uuid[number], figures[0]): InventoryRecord(*figures)
            for number, *figures in zip(*columns.inventories, strict=True)
        }
        #: structured inventories by each of their classes: the kind, all classes, the description
        self._structured: dict[Key, tuple[str, tuple[str, ...], str]] = {
            (uuid[number], name): (kind, classes, body)
            for number, kind, classes, body in zip(*columns.kinds, strict=True)
            for name in classes
        }
        #: what an allocation also uses elsewhere, and how much of it
        self.shares: dict[Key, list[tuple[Key, int]]] = defaultdict(list)
        for number, kind, of_id, of_class, factor in zip(*columns.shares, strict=True):
            self.shares[uuid[number], kind].append(((uuid[of_id], of_class), factor))
        #: inventories that stated changes concern as they will be, None for one that goes
        self.changed: dict[Key, InventoryRecord | None] = {}
        self._structured_then = dict(self._structured)
        if changes is not None:
            self._change(changes)
        #: inventories of what is created, as they are stated
        self.stated: dict[Key, InventoryRecord] = {}
        for new in reshape.create:
            self._create(new)
        for new in reshape.create:
            for share in new.shares:
                target = self.uuid(share.of), share.of_class
                self.shares[new.uuid, share.resource_class].append((target, share.factor))

    def _create(self, new: NewProvider) -> None:
        if new.name in self._uuids or new.uuid in self.names:
            raise exceptions.AlreadyExists("provider", new.name)
        if new.parent is not None:
            self._above[new.uuid] = self.uuid(new.parent)  # kept, or created before it
        self.names[new.uuid] = new.name
        self._uuids[new.name] = new.uuid
        records, kinds = to_records(new.provider().inventories)
        self.stated.update(((new.uuid, record.resource_class), record) for record in records)
        self._add_kinds(new.uuid, kinds)

    def _change(self, changes: DefinitionChanges) -> None:
        """Note what stated changes make of providers, their inventories and shares."""
        self.changed = {
            key: None
            for removal in changes.removals
            for key in self.records
            if key[0] == removal.uuid
        }
        for created in changes.creates:
            self._define(created)
            self.changed.update(
                ((created.uuid, record.resource_class), record) for record in created.inventories
            )
        for update in changes.updates:
            uuid = update.definition.uuid
            self._define(update.definition)
            self.changed.update(((uuid, one.resource_class), one) for one in update.changed)
            self.changed.update(((uuid, name), None) for name in update.removed)

    def _define(self, definition: ProviderDefinition) -> None:
        uuid = definition.uuid
        self.names[uuid] = definition.name
        self._above[uuid] = definition.parent_uuid
        self._uuids[definition.name] = uuid
        for place in (self.shares, self._structured_then):
            for key in [key for key in place if key[0] == uuid]:
                del place[key]
        for share in definition.shares:
            target = share.of_uuid, share.of_class
            self.shares[uuid, share.resource_class].append((target, share.factor))
        self._add_kinds(uuid, definition.kinds)

    def _add_kinds(self, uuid: str, kinds: Iterable[KindRecord]) -> None:
        for kind in kinds:
            said = kind.resource_class, kind.classes, kind.body
            self._structured_then.update(((uuid, name), said) for name in kind.classes)

    def uuid_or_none(self, key: str) -> str | None:
        """Return the uuid of a provider by name or uuid, None if it is neither kept nor created."""
        found = self._uuids.get(key, key)
        return found if found in self.names else None

    def uuid(self, key: str) -> str:
        """Return the uuid of a provider by name or uuid.

        :raises NotFound: if it is neither kept nor created
        """
        found = self.uuid_or_none(key)
        if found is None:
            raise exceptions.NotFound("provider", key)
        return found

    def after(self, key: Key) -> InventoryRecord | None:
        """Return an inventory as stated changes leave it, None if it is not there then."""
        if key in self.changed:
            return self.changed[key]
        return self.stated.get(key) or self.records.get(key)

    def inventory_after(self, key: Key) -> Inventory | None:
        """Return the structured inventory that a place is part of then, None if it is of none."""
        said = self._structured_then.get(key)
        if said is None:
            return None
        kind, classes, body = said
        records = [one for name in classes if (one := self.after((key[0], name))) is not None]
        return resource(kind).inventory_from_kept(records, body or None)

    def holders(self, places: Collection[Key]) -> set[str]:
        """Return who holds something at some places now. Cost: linear in the allocations."""
        numbers = dict(
            zip(self._columns.providers.provider_id, self._columns.providers.uuid, strict=True)
        )
        return {
            consumer
            for number, kind, consumer, _ in zip(*self._columns.allocations, strict=True)
            if (numbers[number], kind) in places
        }

    def is_out_of_service(self, uuid: str) -> bool:
        """Return whether a provider is disabled, or one above it, if only until some time."""
        at: str | None = uuid
        while at is not None:
            if at in self._disabled:
                return True
            at = self._above.get(at)
        return False

    def is_structured(self, key: Key) -> bool:
        """Return whether a kept inventory is a part of a structured one."""
        return key in self._structured

    def said(self, key: Key) -> str:
        """Return a place in words."""
        return f"{key[1]} of {self.names[key[0]]}"


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Where a part of a move goes, with how much of the figures."""

    key: Key
    part: Part
    total: int
    reserved: int


@dataclasses.dataclass(frozen=True, slots=True)
class InventoryFlow:
    """A move of what is kept: from where, how much, to where."""

    source: Key
    move: Move
    targets: tuple[Target, ...]
    out: int  #: what the total of the source loses

    @property
    def reserved(self) -> int:
        """What is reserved at the targets."""
        return sum(target.reserved for target in self.targets)


def flows_of(reshape: Reshape, kept: ReshapeState, problems: Problems) -> list[InventoryFlow]:
    """Return the moves that happen, as far as they can be known, with the parts they go to.

    Inventory of class A on provider B has moved to provider C
    (E. Fried, "Upgrade concerns with nested Resource Providers", openstack-dev, 31 May 2018). Where
    changes are stated, who says so may go on saying it, so a move that the changes do not make is
    none:

    =====================================  ========================================================
    of the source                          what moves
    =====================================  ========================================================
    there is nothing, or no provider       nothing: it has moved already
    nothing is left                        all of it, to every part
    less is left                           to the parts that are new or grow; if none does, nothing
    as much is left                        nothing, and no part may be new. Unless the total of the
                                           move is 0: the parts share the inventory, which stays
    =====================================  ========================================================

    Totals are those of the changes; what the move and its parts say of them must be the same. From
    one place there is one move, however its provider is named.
    """
    flow_of = _flow_between if kept.is_stated else _flow
    found = [flow_of(move, kept, problems) for move in reshape.moves]
    flows = [flow for flow in found if flow is not None]
    seen: set[Key] = set()
    for flow in flows:
        _check_places(flow, kept, problems)
        if not kept.is_stated:
            _check_unstructured(flow, kept, problems)
        if flow.source in seen:  # once by its name and once by its uuid
            problems.add(f"{kept.said(flow.source)} is moved twice")
        seen.add(flow.source)
    if kept.is_stated:
        _check_growth(flows, kept, problems)
    return flows


def _check_places(flow: InventoryFlow, kept: ReshapeState, problems: Problems) -> None:
    keys = [target.key for target in flow.targets]
    if flow.source in keys or len(set(keys)) != len(keys):
        problems.add(f"{kept.said(flow.source)} is moved to itself, or to one place twice")


def _check_unstructured(flow: InventoryFlow, kept: ReshapeState, problems: Problems) -> None:
    for key in (flow.source, *(target.key for target in flow.targets)):
        if kept.is_structured(key):
            problems.add(f"{kept.said(key)} is part of a structured inventory")


def _flow(move: Move, kept: ReshapeState, problems: Problems) -> InventoryFlow | None:
    source = kept.uuid(move.from_), move.resource_class
    targets = [(kept.uuid(part.provider), part) for part in move.to]
    record = kept.records.get(source)
    if record is None:
        problems.add(f"there is no {kept.said(source)}")
        return None
    found = [_target(uuid, part, move, record, kept, problems) for uuid, part in targets]
    total = sum(target.total for target in found)
    out = total if move.total is None else move.total
    if out > record.total:
        problems.add(f"{kept.said(source)} would lose {out} of {record.total}")
    return InventoryFlow(source, move, tuple(found), out)


def _target(
    uuid: str,
    part: Part,
    move: Move,
    record: InventoryRecord,
    kept: ReshapeState,
    problems: Problems,
) -> Target:
    key = uuid, part.resource_class or move.resource_class
    stated = kept.stated.get(key)
    total, reserved = part.total, part.reserved
    if stated is not None:
        total, reserved = stated.total if total is None else total, stated.reserved
    elif total is None and len(move.to) == 1:
        total, reserved = record.total, reserved or record.reserved
    if total is None:
        problems.add(
            f"how much of {kept.said((kept.uuid(move.from_), move.resource_class))} goes "
            f"to {kept.names[uuid]} is not said"
        )
    return Target(key, part, total or 0, reserved)


def _flow_between(move: Move, kept: ReshapeState, problems: Problems) -> InventoryFlow | None:
    source = kept.uuid_or_none(move.from_) or "", move.resource_class
    before = kept.records.get(source)
    if before is None:
        return None
    after = kept.after(source)
    out = before.total - (0 if after is None else after.total)
    targets = [
        Target((kept.uuid(part.provider), part.resource_class or move.resource_class), part, 0, 0)
        for part in move.to
    ]
    grown = [_grown(target, kept) for target in targets]
    if after is not None and (out > 0 or move.total == 0):
        targets = [one for one in grown if one.total > 0]
    elif after is not None:
        new = [target for target in targets if target.key not in kept.records]
        for target in new:
            if kept.after(target.key) is not None:
                problems.add(
                    f"{kept.said(source)} is said to have moved to {kept.said(target.key)}, "
                    f"and there are {before.total} as before"
                )
        return None
    else:
        targets = grown
    if not targets:
        return None
    for target in targets:
        if kept.after(target.key) is None:
            problems.add(
                f"{kept.said(source)} is said to have moved to {kept.said(target.key)}, "
                "and there is none"
            )
    if move.total not in (None, out):
        problems.add(f"{kept.said(source)} would lose {out}, not {move.total}")
    return InventoryFlow(source, move, tuple(targets), out)


def _grown(target: Target, kept: ReshapeState) -> Target:
    """Return a target with how much more of everything there is then."""
    before, after = kept.records.get(target.key), kept.after(target.key)
    total = (0 if after is None else after.total) - (0 if before is None else before.total)
    return dataclasses.replace(target, total=total)


def _check_growth(flows: Iterable[InventoryFlow], kept: ReshapeState, problems: Problems) -> None:
    """Note places that do not get what the parts say, where each part says how much."""
    said: dict[Key, list[int | None]] = defaultdict(list)
    grown: dict[Key, int] = {}
    for flow in flows:
        for target in flow.targets:
            said[target.key].append(target.part.total)
            grown[target.key] = target.total
    for key, totals in said.items():
        told = [total for total in totals if total is not None]
        if len(told) == len(totals) and sum(told) != grown[key]:
            problems.add(f"{kept.said(key)} would get {grown[key]}, not {sum(told)}")


def final_records(
    flows: Iterable[InventoryFlow], kept: ReshapeState, problems: Problems
) -> dict[Key, InventoryRecord | None]:
    """Return the inventories that a reshape changes as they will be, None for one that goes."""
    totals: dict[Key, int] = defaultdict(int)
    reserved: dict[Key, int] = defaultdict(int)
    models: dict[Key, list[InventoryRecord]] = defaultdict(list)
    for flow in flows:
        totals[flow.source] -= flow.out
        if flow.out:
            reserved[flow.source] -= flow.reserved
        for target in flow.targets:
            totals[target.key] += target.total
            reserved[target.key] += target.reserved
            models[target.key].append(kept.records[flow.source])
    _check_reserved(flows, totals, kept, problems)
    return {
        key: _final(key, change, reserved[key], models[key], kept, problems)
        for key, change in totals.items()
    }


def _check_reserved(
    flows: Iterable[InventoryFlow],
    totals: Mapping[Key, int],
    kept: ReshapeState,
    problems: Problems,
) -> None:
    """Note what is reserved of an inventory that goes and nowhere afterwards."""
    for flow in flows:
        record = kept.records[flow.source]
        goes = record.total + totals[flow.source] == 0
        if goes and flow.move.total is None and flow.reserved != record.reserved:
            problems.add(
                f"{record.reserved} of {kept.said(flow.source)} are reserved, "
                f"{flow.reserved} of what becomes of it"
            )


def _final(
    key: Key,
    change: int,
    reserved: int,
    models: list[InventoryRecord],
    kept: ReshapeState,
    problems: Problems,
) -> InventoryRecord | None:
    if key in kept.stated:
        stated = kept.stated[key]
        if stated.total != change:
            problems.add(f"{kept.said(key)} is stated as {stated.total} and gets {change}")
        return stated
    before = kept.records.get(key)
    if before is None:
        before = _like(key, models, kept, problems)
    total = before.total + change
    if total <= 0:
        return None
    try:
        return _with_figures(before, total, before.reserved + reserved)
    except exceptions.InvalidInput as error:
        problems.add(f"{kept.said(key)} cannot be: {error}")
        return before


def _like(
    key: Key, models: list[InventoryRecord], kept: ReshapeState, problems: Problems
) -> InventoryRecord:
    """Return an inventory of nothing with the rules of those it is made of."""
    model = models[0]
    if any(getattr(one, name) != getattr(model, name) for one in models for name in _FIGURES):
        problems.add(f"{kept.said(key)} is made of inventories with different rules: state it")
    return dataclasses.replace(model, resource_class=key[1], total=0, reserved=0, used=0)


def _with_figures(record: InventoryRecord, total: int, reserved: int) -> InventoryRecord:
    """Return an inventory with another total, as its kind keeps it."""
    most = record.max_unit
    wanted = dataclasses.replace(
        record,
        total=total,
        reserved=reserved,
        max_unit=None if most is None else min(most, total),
        used=0,
    )
    (made,) = resource(record.resource_class).inventory_from_records((wanted,)).to_records()
    return made


# --- books: what is used where meanwhile ----------------------------------------------------------
#
# What is used where while a reshape moves allocations about. Pure.


@dataclasses.dataclass(frozen=True, slots=True)
class Transfer:
    """Some of what a consumer holds in one place goes to another."""

    consumer: str
    source: Key
    target: Key
    amount: int
    units: tuple[str, ...]


class Balances:
    """What is used of each inventory while allocations are moved about."""

    def __init__(self, kept: ReshapeState, final: Mapping[Key, InventoryRecord | None]) -> None:
        self._kept = kept
        stays = {key: record for key, record in kept.records.items() if key not in final}
        self.final: dict[Key, InventoryRecord] = {**stays, **kept.stated}
        self.final.update((key, record) for key, record in final.items() if record is not None)
        self._used: dict[Key, int] = defaultdict(int)
        self._used.update((key, record.used) for key, record in kept.records.items())
        self._held: dict[tuple[str, Key], int] = defaultdict(int)

    def holds(self, consumer: str, held: Use) -> None:
        """Note what a consumer holds already, for the unit rules."""
        self._held[consumer, held.key] = held.amount

    def give_back(self, consumer: str, key: Key, amount: int) -> None:
        """Take an allocation, or some of it, out of the books."""
        self._shift(consumer, key, -amount)

    def take(self, consumer: str, key: Key, amount: int) -> None:
        """Put an allocation into the books, whether there is room or not."""
        self._shift(consumer, key, amount)

    def carry_out(self, transfers: Iterable[Transfer]) -> None:
        """Move what some transfers say, whether there is room or not."""
        for one in transfers:
            self._shift(one.consumer, one.source, -one.amount)
            self._shift(one.consumer, one.target, one.amount)

    def _shift(self, consumer: str, key: Key, amount: int) -> None:
        self._held[consumer, key] += amount
        self._used[key] += amount
        for target, factor in self._kept.shares.get(key, ()):
            self._used[target] += amount * factor

    def fits(self, consumer: str, key: Key, amount: int) -> bool:
        """Return whether a consumer may take so much more in a place, and where that shares."""
        return amount <= self.room(consumer, key, amount)

    def room(self, consumer: str, key: Key, most: int) -> int:
        """Return how much up to ``most`` a consumer may take in a place, 0 for nothing."""
        record = self.final.get(key)
        if record is None:
            return 0
        most = min(most, record.capacity - self._used[key])
        for target, factor in self._kept.shares.get(key, ()):
            if target in self.final:
                most = min(most, (self.final[target].capacity - self._used[target]) // factor)
        held = self._held[consumer, key]
        if record.max_unit is not None:
            most = min(most, record.max_unit - held)
        most = (held + most) // record.step_size * record.step_size - held
        return most if most > 0 and keeps_rules(record, held + most) else 0

    def note_overfull(self, concerned: Collection[Key], problems: Problems) -> None:
        """Note every inventory that moves concern and would be more over its capacity than it is.

        This is about what was read. Of a source that shrinks, a consumer may take more before the
        reshape is committed; then it is over-full like any inventory that somebody shrinks below
        its use: nothing is lost, and ``ledger.usage(over_capacity=True)`` lists it.
        """
        for key, before in self._kept.records.items():
            after = self.final.get(key)
            if key not in concerned or after is None or after.capacity >= before.capacity:
                continue  # of one that grows, the write itself decides
            over = self._used[key] - after.capacity
            if over > max(0, before.used - before.capacity):
                problems.add(
                    f"{self._kept.said(key)} would have {self._used[key]} used of {after.capacity}"
                )


def keeps_rules(record: InventoryRecord, amount: int) -> bool:
    """Return whether one consumer may hold so much of an inventory by its unit rules."""
    empty = dataclasses.replace(record, used=0)
    found = decision.refusals(empty, amount, "")
    return all(reason.rule is Rule.CAPACITY for reason in found)


# --- whose allocations go where -------------------------------------------------------------------
#
# Whose allocations go where in a reshape. Pure.
#
# An allocation follows its units; else it goes where the reshape says; else, if it may be filled
# in, where there is room, the largest first. What is not stated stays, as long as there
# is something left for it to be at.


def assign(
    flows: Sequence[InventoryFlow],
    claims: Mapping[str, ConsumerRecord],
    kept: ReshapeState,
    books: Balances,
    problems: Problems,
) -> list[Transfer]:
    """Return what goes where, noting what cannot.

    First all that units and names state, of all flows; then what is filled in.
    """
    for claim in claims.values():
        for held in claim.held:
            books.holds(claim.consumer, held)
    holders = _holders({flow.source for flow in flows}, claims)
    found: list[Transfer] = []
    left: list[_Unstated] = []
    for flow in flows:
        told = _Stated(flow, kept, problems)
        told.check_named(consumer for consumer, _ in holders[flow.source])
        for consumer, held in holders[flow.source]:
            transfers = told.transfers(consumer, held)
            books.carry_out(transfers)
            found += transfers
            left += _rest(flow, consumer, held, transfers)
    left.sort(key=lambda one: (-one.held.amount, one.consumer))
    found += _fill(left, kept, books, problems)
    keys = {flow.source for flow in flows}
    keys.update(target.key for flow in flows for target in flow.targets)
    books.note_overfull(keys, problems)
    return [_with_units(one, kept, problems) for one in found]


def _with_units(transfer: Transfer, kept: ReshapeState, problems: Problems) -> Transfer:
    """Return a transfer with the devices it goes to by name: who has all of them has each.

    Devices that nobody names are given to the next who asks, whoever runs on them.
    """
    inventory = kept.inventory_after(transfer.target)
    units = _units_of(inventory, transfer.target[1])
    if units is None or transfer.units or not isinstance(inventory, Identified):
        return transfer
    completed = _completed(inventory, transfer.target[1], units)
    if unit_count(inventory, transfer.target[1], completed) == transfer.amount:
        return dataclasses.replace(transfer, units=completed)
    where = kept.said(transfer.target)
    problems.add(
        f"{transfer.consumer} is to hold {transfer.amount} {where}, which has "
        f"{', '.join(sorted(units))}: say which it owns",
        transfer.consumer,
    )
    return transfer


def _units_of(inventory: Inventory | None, name: str) -> frozenset[str] | None:
    """Return the units that there are of a class by name, None if any will do."""
    return inventory.units(name) if isinstance(inventory, Located) else None


def _completed(inventory: Inventory | None, name: str, units: Iterable[str]) -> tuple[str, ...]:
    """Return units with those that go with them, each once."""
    together = {} if inventory is None else dependent_units(inventory, name)
    found = dict.fromkeys(units)
    for unit in tuple(found):
        found.update(dict.fromkeys(sorted(together.get(unit, ()))))
    return tuple(found)


@dataclasses.dataclass(frozen=True, slots=True)
class _Unstated:
    """The rest of an allocation, for which the reshape states no target."""

    flow: InventoryFlow
    consumer: str
    held: Use


def _holders(
    sources: Collection[Key], claims: Mapping[str, ConsumerRecord]
) -> dict[Key, list[tuple[str, Use]]]:
    """Return who holds what at each source, by consumer."""
    found: dict[Key, list[tuple[str, Use]]] = {source: [] for source in sources}
    for name in sorted(claims):
        for held in claims[name].held:
            if held.key in found:
                found[held.key].append((name, held))
    return found


def _rest(
    flow: InventoryFlow, consumer: str, held: Use, transfers: Sequence[Transfer]
) -> Iterator[_Unstated]:
    if not transfers:
        yield _Unstated(flow, consumer, held)
        return
    amount = held.amount - sum(transfer.amount for transfer in transfers)
    gone = {unit for transfer in transfers for unit in transfer.units}
    units = tuple(unit for unit in held.units if unit not in gone)
    if amount > 0:
        yield _Unstated(flow, consumer, dataclasses.replace(held, amount=amount, units=units))


class _Stated:
    """What a move says of allocations, by their units and by the names of consumers."""

    def __init__(self, flow: InventoryFlow, kept: ReshapeState, problems: Problems) -> None:
        self._flow = flow
        self._kept = kept
        self._problems = problems
        self._owner: dict[str, int] = {}  # which target has a unit, by its place among them
        self._named: dict[str, dict[int, int]] = {}  # {consumer: {place: amount}}
        self._told: dict[str, dict[int, tuple[str, ...]]] = {}  # the same of units
        for place, target in enumerate(flow.targets):
            self._owner.update(dict.fromkeys(target.part.units, place))
            for consumer, amount in target.part.consumers.items():
                self._named.setdefault(consumer, {})[place] = amount
            for consumer, units in target.part.owned.items():
                self._tell(consumer, place, target, units)

    def _tell(self, consumer: str, place: int, target: Target, units: tuple[str, ...]) -> None:
        """Note that a consumer owns units of a target, with those that go with them."""
        name = target.key[1]
        inventory = self._kept.inventory_after(target.key)
        there = _units_of(inventory, name)
        if there is not None:
            unknown = sorted(set(units) - there)
            if unknown:
                self._note(consumer, f"{self._said(place)} has no {', '.join(unknown)}")
            units = _completed(inventory, name, units)
        count = len(units) if inventory is None else unit_count(inventory, name, units)
        amount = self._named.setdefault(consumer, {}).setdefault(place, count)
        if there is not None and amount != count:
            self._note(consumer, f"gives {amount} to {self._said(place)} with {count} units")
        self._told.setdefault(consumer, {})[place] = units

    def check_named(self, holding: Iterable[str]) -> None:
        """Note consumers that are named and hold nothing there.

        Where trees are stated, one that holds it at the targets already was moved before.
        """
        gone = self._named.keys() - set(holding) if self._named else set()
        if gone and self._kept.is_stated:
            gone -= self._kept.holders({target.key for target in self._flow.targets})
        for consumer in sorted(gone):
            where = self._kept.said(self._flow.source)
            self._problems.add(f"{consumer} holds no {where}", consumer)

    def transfers(self, consumer: str, held: Use) -> list[Transfer]:
        """Return what goes where, as far as it is stated."""
        named, told = self._named.get(consumer, {}), self._told.get(consumer, {})
        owned = self._owned(held)
        amounts = {
            place: named[place]
            if place in told
            else self._amount(consumer, held, place, named.get(place, 0), owned.get(place, ()))
            for place in sorted({*named, *owned})
        }
        others = {unit for units in told.values() for unit in units}.difference(held.units)
        if held.units and others:
            self._note(consumer, f"holds {' '.join(held.units)}, not {' '.join(sorted(others))}")
            return []
        if sum(amounts.values()) > held.amount:
            self._note(consumer, f"holds {held.amount}, not {sum(amounts.values())}")
            return []
        return [
            Transfer(
                consumer,
                self._flow.source,
                self._flow.targets[place].key,
                amount,
                told.get(place) or owned.get(place) or self._units(consumer, held, place, amount),
            )
            for place, amount in amounts.items()
        ]

    def _owned(self, held: Use) -> dict[int, tuple[str, ...]]:
        """Return the units of an allocation that targets have."""
        found: dict[int, tuple[str, ...]] = {}
        for unit in held.units:
            if unit in self._owner:
                place = self._owner[unit]
                found[place] = (*found.get(place, ()), unit)
        return found

    def _amount(
        self, consumer: str, held: Use, place: int, named: int, units: tuple[str, ...]
    ) -> int:
        """Return how much of an allocation goes to a target, as far as it is said."""
        if not units:
            return named
        if len(held.units) == held.amount:  # each unit is one of the amount
            if named not in (0, len(units)):
                where = self._said(place)
                self._note(consumer, f"gives {named} to {where}, which has {len(units)} units")
            return len(units)
        if not named and len(units) < len(held.units):
            where = self._said(place)
            self._note(consumer, f"with units in several places: how much is at {where}?")
        return named or held.amount

    def _units(self, consumer: str, held: Use, place: int, amount: int) -> tuple[str, ...]:
        """Return the units that go along where a target has none of them: all with the whole."""
        if held.units and amount != held.amount:
            where = self._said(place)
            self._note(consumer, f"with units in several places: which are at {where}?")
        return held.units

    def _said(self, place: int) -> str:
        return self._kept.said(self._flow.targets[place].key)

    def _note(self, consumer: str, text: str) -> None:
        where = self._kept.said(self._flow.source)
        self._problems.add(f"{consumer}, {where}: {text}", consumer)


# --- what is not stated ---


def _fill(
    left: Iterable[_Unstated], kept: ReshapeState, books: Balances, problems: Problems
) -> Iterator[Transfer]:
    """Yield where allocations go for which no target is stated."""
    going: list[_Unstated] = []
    for one in left:
        if _goes(one.flow, books):
            books.give_back(one.consumer, one.flow.source, one.held.amount)
            going.append(one)
        elif one.flow.source not in books.final:
            where = kept.said(one.flow.source)
            problems.add(
                f"where {one.held.amount} {where} that {one.consumer} holds go is not said",
                one.consumer,
            )
    for one in going:  # one may have room where another was
        yield from _placed(one, kept, books, problems)


def _goes(flow: InventoryFlow, books: Balances) -> bool:
    """Return whether allocations go for which no target is stated."""
    return flow.move.fill or _is_all(flow, books)


def _is_all(flow: InventoryFlow, books: Balances) -> bool:
    """Return whether nothing is left of the inventory, and there is but one place for it."""
    return flow.source not in books.final and len(flow.targets) == 1


def _placed(
    one: _Unstated, kept: ReshapeState, books: Balances, problems: Problems
) -> list[Transfer]:
    """Return where it goes; nothing if it stays."""
    found = _whole(one, books)
    if not found and one.flow.move.split:
        found = _pieces(one, books)
    left = one.held.amount - sum(transfer.amount for transfer in found)
    if left and one.flow.source in books.final:
        books.take(one.consumer, one.flow.source, left)
    elif left:
        where = kept.said(one.flow.source)
        problems.add(f"{left} {where} that {one.consumer} holds fit nowhere", one.consumer)
    return found


def _whole(one: _Unstated, books: Balances) -> list[Transfer]:
    """Return it in the first place that has room; in the only one the write itself decides."""
    held, source = one.held, one.flow.source
    for target in one.flow.targets:
        if _is_all(one.flow, books) or books.fits(one.consumer, target.key, held.amount):
            books.take(one.consumer, target.key, held.amount)
            return [Transfer(one.consumer, source, target.key, held.amount, held.units)]
    return []


def _pieces(one: _Unstated, books: Balances) -> list[Transfer]:
    """Return as much as fits into each target, in their order."""
    left, units = one.held.amount, one.held.units
    if units and len(units) != left:
        return []  # nobody knows how much goes with which
    found: list[Transfer] = []
    for target in one.flow.targets:
        amount = books.room(one.consumer, target.key, left)
        if amount:
            books.take(one.consumer, target.key, amount)
            transfer = Transfer(one.consumer, one.flow.source, target.key, amount, units[:amount])
            found.append(transfer)
            left, units = left - amount, units[amount:]
    return found
