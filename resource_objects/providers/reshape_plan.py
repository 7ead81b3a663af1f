"""The plan of a reshape: changes of definitions, and orders that move allocations along. Pure.

1. The moves are compared with the inventories before the reshape and after it
   (:func:`inventory_moves`). A reshape describes the inventories afterwards itself, or a caller
   passes changes of definitions that do, and the moves only describe where allocations go.
2. Each allocation at a source is assigned to a destination: by its units, by the consumers that a
   part names, else first-fit. Without a destination it is not moved, if the inventory remains.
3. All allocations that a consumer has afterwards become its order.
4. The orders are compared with the claims: every consumer has the same amounts and units as before.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from resource_objects import exceptions
from resource_objects.providers.columns import Columns, stored_definitions
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderUpdate,
    changes_between,
    check_trees,
    roots_of,
    to_definition,
)
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Key, Use
from resource_objects.providers.plan import Plan, holdings
from resource_objects.providers.reshape import Move, Part, Reshape
from resource_objects.reasons import Rule
from resource_objects.resources import Inventory, placed, resource
from resource_objects.resources.placed import HasNamedUnits, PlacedInventory
from resource_objects.resources.records import AmountRecord, InventoryRecord

_RULES = ("min_unit", "max_unit", "step_size", "ratio_millionths")


class ReshapePlanner:
    """The planner of one reshape, on trees as they were read.

    The caller reads the claims of :attr:`consumers` and passes them to :meth:`plan`.

    :param columns: the trees of all :attr:`Reshape.providers`, with allocations
    :param changes: the changes of definitions of a caller, compared with the same columns. The
        reshape then creates and removes nothing itself, and the totals in its moves are compared
        with the changes
    :raises NotFound: if a provider of the reshape is neither stored nor created
    :raises AlreadyExists: if a provider to create exists
    """

    def __init__(
        self, reshape: Reshape, columns: Columns, changes: DefinitionChanges | None = None
    ) -> None:
        self._reshape = reshape
        self._changes = changes
        self._state = _State(reshape, columns, changes)
        self._moves = inventory_moves(reshape, self._state)
        self._sources = {move.source for move in self._moves}
        if changes is None and not self._state.errors.texts:
            self._state.changed = _final_inventories(self._moves, self._state)
            after = {**self._state.after, **self._state.changed}
            self._state.after = {key: record for key, record in after.items() if record is not None}

    @property
    def consumers(self) -> tuple[str, ...]:
        """The consumers with allocations at a source, sorted."""
        allocated = self._state.allocated.items()
        return tuple(sorted(name for name, uses in allocated if not self._sources.isdisjoint(uses)))

    def plan(self, claims: Mapping[str, ConsumerRecord]) -> Plan:
        """Return the plan. Cost: linear in the trees and in the allocations of the consumers.

        :param claims: the claims of :attr:`consumers`, by name
        :raises InvalidPlan: if the plan would lose or invent an allocation or a part of an
            inventory, or an allocation has no destination or does not fit there
        :raises InvalidTree: if the providers would not be a tree, or a share would break a rule
        :raises Stale: if a claim and the columns differ: the caller reads both again
        """
        state = self._state
        for name in self.consumers:
            uses = claims[name].held if name in claims else ()
            amounts = {use.key: use.amount for use in uses}
            if any(amounts.get(key) != use.amount for key, use in state.allocated[name].items()):
                raise exceptions.Stale("consumer", name, "while it was read")
        state.errors.raise_if_any()
        transfers = _Assignment(state, claims).transfers(self._moves)
        changes = self._definition_changes() if self._changes is None else self._changes
        orders = tuple(_orders(transfers, claims, state))
        self._check_conserved(orders, claims)
        plan = Plan(self._with_expected_use(changes) or None, orders)
        # consumers can have allocations from trees that were not read, such as a shared pool
        names = {use.provider_uuid: use.provider for claim in claims.values() for use in claim.held}
        return plan.naming({}, names | state.names)

    def _definition_changes(self) -> DefinitionChanges:
        """Return the changes of definitions that the reshape itself makes."""
        state = self._state
        removed = {state.uuid(key) for key in self._reshape.remove}
        target = {uuid: entry for uuid, entry in state.definitions.items() if uuid not in removed}
        records: dict[str, list[InventoryRecord]] = {uuid: [] for uuid, _ in state.changed}
        for uuid, name in sorted(state.after):
            if uuid in records:
                records[uuid].append(state.after[uuid, name].definition())
        for uuid in records.keys() & target.keys():
            target[uuid] = dataclasses.replace(target[uuid], inventories=tuple(records[uuid]))
        for definition in target.values():
            if definition.parent_uuid in removed:
                name = state.names[definition.parent_uuid]
                raise exceptions.InvalidPlan(
                    "reshape", f"{name} is to be removed, but it has children"
                )
        check_trees(target.values())
        changes = changes_between("", state.stored, target.values())
        roots = roots_of({uuid: entry.parent_uuid for uuid, entry in state.definitions.items()})
        trees = sorted({state.names[roots[uuid]] for uuid in _changed(changes)})
        return dataclasses.replace(
            changes, root=trees[0] if len(trees) == 1 else f"{len(trees)} trees"
        )

    def _with_expected_use(self, changes: DefinitionChanges) -> DefinitionChanges:
        """Return changes that are refused if the use of a source has changed since.

        A source that is removed is refused anyway. From one that remains, a consumer could allocate
        units that are counted at the destination afterwards.
        """

        updates: list[ProviderUpdate] = []
        for update in changes.updates:
            keys = ((update.definition.uuid, record.resource_class) for record in update.changed)
            used = tuple(
                AmountRecord(key[1], self._state.before[key].used)
                for key in keys
                if key in self._sources
            )
            updates.append(dataclasses.replace(update, expected_use=used) if used else update)
        return dataclasses.replace(changes, updates=tuple(updates))

    def _check_conserved(
        self, orders: Iterable[ConsumerOrder], claims: Mapping[str, ConsumerRecord]
    ) -> None:
        """Raise unless every consumer has the same amounts and units as before."""
        errors = self._state.errors
        moved = {name for move in self._moves for _, name in (move.source, *move.keys)}
        removed = {*self._state.before, *self._state.changed} - self._state.after.keys()
        uses_of = {order.consumer: order.uses for order in orders}
        for consumer, claim in claims.items():
            after = uses_of.get(consumer, claim.held)
            if _sums(claim.held, moved) != _sums(after, moved):
                errors.add(f"{consumer} would not have the same amounts as before", consumer)
            if not _units(claim.held) <= _units(after):  # units that had no name may get one
                errors.add(f"{consumer} would not have all of its units", consumer)
            if any(use.key in removed for use in after):
                errors.add(
                    f"{consumer} would have an allocation from a removed inventory", consumer
                )
        errors.raise_if_any()


def _units(uses: Iterable[Use]) -> Counter[str]:
    return Counter(unit for use in uses for unit in use.units)


def _sums(uses: Iterable[Use], moved: Collection[str]) -> Counter[str]:
    """Return the amount of each class; the classes that are moved count as one."""
    sums: Counter[str] = Counter()
    for use in uses:
        sums["" if use.resource_class in moved else use.resource_class] += use.amount
    return sums


class _Errors:
    """The faults of a plan: sentences, and the consumers that they are about."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._consumers: dict[str, None] = {}

    def add(self, text: str, *consumers: str) -> None:
        self.texts.append(text)
        self._consumers |= dict.fromkeys(consumers)

    def raise_if_any(self) -> None:
        if self.texts:
            text = "; ".join(self.texts)
            raise exceptions.InvalidPlan("reshape", text, tuple(self._consumers), tuple(self.texts))


class _State:
    """The providers and inventories before a reshape and after it.

    ``before`` and ``after`` are inventories by provider and class; ``definitions`` are the
    definitions afterwards, also of providers that are removed. An explicit reshape first creates
    its providers, and later changes inventories: ``changed``, with None for a removed one.
    """

    def __init__(
        self, reshape: Reshape, columns: Columns, changes: DefinitionChanges | None
    ) -> None:
        index = columns.index
        self.allocated = holdings(columns)
        self.errors = _Errors()
        #: whether the caller passes the inventories afterwards
        self.has_changes = changes is not None
        self.before = {
            (index.uuids[number], record.resource_class): record
            for number, records in index.inventories.items()
            for record in records
        }
        self.names = dict(zip(columns.providers.uuid, columns.providers.name, strict=True))
        self._uuids = {name: uuid for uuid, name in self.names.items()}
        self._disabled = {index.uuids[number] for number in columns.disabled}
        self.stored = stored_definitions(columns)
        self.definitions = {uuid: row.definition for uuid, row in self.stored.items()}
        self.changed: Mapping[Key, InventoryRecord | None] = {}
        self._define(changes or DefinitionChanges("", self._created(reshape)))
        self.shares: dict[Key, list[tuple[Key, int]]] = defaultdict(list)
        for uuid, definition in self.definitions.items():
            for share in definition.shares:
                target = share.of_uuid, share.of_class
                self.shares[uuid, share.resource_class].append((target, share.factor))

    def _created(self, reshape: Reshape) -> tuple[ProviderDefinition, ...]:
        parents: list[str | None] = []
        for new in reshape.create:
            if new.name in self._uuids or new.uuid in self.names:
                raise exceptions.AlreadyExists("provider", new.name)
            parents.append(None if new.parent is None else self.uuid(new.parent))
            self.names[new.uuid] = new.name
            self._uuids[new.name] = new.uuid
        for share in (share for new in reshape.create for share in new.shares):
            self.uuid(share.of)
        return tuple(
            to_definition(new.provider(), new.uuid, parent, self._uuids)
            for new, parent in zip(reshape.create, parents, strict=True)
        )

    def _define(self, changes: DefinitionChanges) -> None:
        changed = _changed(changes)
        self.after = {key: record for key, record in self.before.items() if key[0] not in changed}
        for definition in changes.definitions:
            self.definitions[definition.uuid] = definition
            self.names[definition.uuid] = definition.name
            self._uuids[definition.name] = definition.uuid
            for record in definition.inventories:
                self.after[definition.uuid, record.resource_class] = record

    def declared(self, key: Key) -> InventoryRecord | None:
        """Return an inventory that the reshape itself creates, None if it is another one."""
        return None if key in self.before else self.after.get(key)

    def uuid(self, key: str) -> str:
        """Return the uuid of a provider by name or uuid.

        :raises NotFound: if it is neither stored nor created
        """
        uuid = self.find(key)
        if uuid is None:
            raise exceptions.NotFound("provider", key)
        return uuid

    def find(self, key: str) -> str | None:
        """Return the uuid of a provider by name or uuid, None if it does not exist."""
        uuid = self._uuids.get(key, key)
        return uuid if uuid in self.names else None

    def label(self, key: Key) -> str:
        """Return an inventory in words."""
        return f"{key[1]} of {self.names[key[0]]}"

    def structured_inventory(self, key: Key) -> Inventory | None:
        """Return the structured inventory afterwards that a class is a record of, None if none."""
        uuid, name = key
        for kind in self.definitions[uuid].kinds:
            if name in kind.classes:
                keys = [(uuid, part) for part in kind.classes if (uuid, part) in self.after]
                records = [self.after[key] for key in keys]
                of_kind = resource(kind.resource_class)
                return of_kind.inventory_from_storage(records, kind.body or None)
        return None

    def is_disabled(self, uuid: str) -> bool:
        """Return True if a provider or an ancestor is disabled, also if only for a time."""
        ancestor: str | None = uuid
        while ancestor is not None and ancestor not in self._disabled:
            ancestor = self.definitions[ancestor].parent_uuid
        return ancestor is not None


def _changed(changes: DefinitionChanges) -> set[str]:
    """Return the uuids of the providers that changes create, update or remove."""
    uuids = {definition.uuid for definition in changes.definitions}
    return uuids.union(removal.uuid for removal in changes.removals)


# --- moves of inventories -------------------------------------------------------------------------


class _Destination(NamedTuple):
    """A part of a move with the total and the reserved amount that it gets."""

    key: Key
    part: Part
    total: int
    reserved: int = 0


class _InventoryMove(NamedTuple):
    """A move of a stored inventory; ``loss`` is the part of its total that the source loses."""

    source: Key
    move: Move
    destinations: tuple[_Destination, ...]
    loss: int

    @property
    def keys(self) -> list[Key]:
        return [destination.key for destination in self.destinations]

    @property
    def reserved(self) -> int:
        return sum(destination.reserved for destination in self.destinations)


def inventory_moves(reshape: Reshape, state: _State) -> list[_InventoryMove]:
    """Return the moves that take place, with their destinations; add faults to the errors.

    Inventory of class A on provider B has moved to provider C
    (E. Fried, "Upgrade concerns with nested Resource Providers", openstack-dev, 31 May 2018). A
    caller that passes changes may repeat its moves, so a move that the changes do not make is
    ignored:

    ============================== ==========================================================
    the source                     moves
    ============================== ==========================================================
    does not exist                 nothing: it has moved before
    is removed                     as a whole, to every part
    has a smaller total            to the parts that are new or grow; nothing if there is none
    has the same total             nothing, and no part may be new. If the total of the move
                                   is 0, the parts share the source, which stays
    ============================== ==========================================================

    Totals in the move and its parts must be equal to the totals of the changes.
    A source is moved once, whether by the name or by the uuid of its provider.
    """
    move_of = _implied_move if state.has_changes else _explicit_move
    possible = (move_of(move, state) for move in reshape.moves)
    moves = [move for move in possible if move is not None]
    sources: set[Key] = set()
    for move in moves:
        source = state.label(move.source)
        keys = [move.source, *move.keys]
        if len(set(keys)) != len(keys):
            state.errors.add(f"{source} is moved to itself, or twice to one inventory")
        stored = () if state.has_changes else [key for key in keys if not state.declared(key)]
        for key in stored:
            if any(key[1] in kind.classes for kind in state.definitions[key[0]].kinds):
                state.errors.add(f"{state.label(key)} is part of a structured inventory")
        if move.source in sources:  # once by the name of its provider and once by the uuid
            state.errors.add(f"{source} is moved twice")
        sources.add(move.source)
    if state.has_changes:
        _check_growth(moves, state)
    return moves


def _explicit_move(move: Move, state: _State) -> _InventoryMove | None:
    source = state.uuid(move.from_), move.resource_class
    keys = [(state.uuid(part.provider), part.resource_class or source[1]) for part in move.to]
    record = state.before.get(source)
    if record is None:
        state.errors.add(f"there is no {state.label(source)}")
        return None
    destinations: list[_Destination] = []
    for key, part in zip(keys, move.to, strict=True):
        declared = state.declared(key)
        total, reserved = part.total, part.reserved
        if declared is not None:
            total, reserved = declared.total if total is None else total, declared.reserved
        elif total is None and len(move.to) == 1:
            total, reserved = record.total, reserved or record.reserved
        if total is None:
            state.errors.add(
                f"the total of {state.label(source)} that is moved to {state.names[key[0]]} "
                "is not specified"
            )
        destinations.append(_Destination(key, part, total or 0, reserved))
    loss = move.total
    if loss is None:
        loss = sum(destination.total for destination in destinations)
    if loss > record.total:
        state.errors.add(f"{state.label(source)} would lose {loss} of {record.total}")
    return _InventoryMove(source, move, tuple(destinations), loss)


def _implied_move(move: Move, state: _State) -> _InventoryMove | None:
    source = state.find(move.from_) or "", move.resource_class
    before, after = state.before.get(source), state.after.get(source)
    if before is None:
        return None
    label = state.label(source)
    loss = before.total - (0 if after is None else after.total)
    is_unchanged = after is not None and loss <= 0 and move.total != 0
    keys = [(state.uuid(part.provider), part.resource_class or source[1]) for part in move.to]
    destinations = [
        _Destination(key, part, _growth(key, state))
        for key, part in zip(keys, move.to, strict=True)
    ]
    if is_unchanged:
        wrong = [key for key in keys if key in state.after and key not in state.before]
        text = f"but its total is still {before.total}"
    else:
        if after is not None:
            destinations = [target for target in destinations if target.total > 0]
        wrong = [target.key for target in destinations if target.key not in state.after]
        text = "which does not exist"
    for key in wrong:
        state.errors.add(f"{label} is declared as moved to {state.label(key)}, {text}")
    if is_unchanged or not destinations:
        return None
    if move.total not in (None, loss):
        state.errors.add(f"{label} would lose {loss}, not {move.total}")
    return _InventoryMove(source, move, tuple(destinations), loss)


def _growth(key: Key, state: _State) -> int:
    """Return the difference of the total of an inventory after the changes and before them."""
    before, after = state.before.get(key), state.after.get(key)
    return (0 if after is None else after.total) - (0 if before is None else before.total)


def _check_growth(moves: Iterable[_InventoryMove], state: _State) -> None:
    """Add destinations that do not grow by the sum of their parts, if each specifies a total."""
    totals_of: dict[Key, list[int | None]] = defaultdict(list)
    for move in moves:
        for destination in move.destinations:
            totals_of[destination.key].append(destination.part.total)
    for key, specified in totals_of.items():
        totals, growth = [total for total in specified if total is not None], _growth(key, state)
        if len(totals) == len(specified) and sum(totals) != growth:
            state.errors.add(f"{state.label(key)} would get {growth}, not {sum(totals)}")


# --- inventories after an explicit reshape --------------------------------------------------------


def _final_inventories(
    moves: Iterable[_InventoryMove], state: _State
) -> dict[Key, InventoryRecord | None]:
    """Return the inventories that moves change as they are afterwards, None for a removed one."""
    totals: Counter[Key] = Counter()
    reserved: Counter[Key] = Counter()
    sources_of: dict[Key, list[InventoryRecord]] = defaultdict(list)
    for move in moves:
        totals[move.source] -= move.loss
        if move.loss:
            reserved[move.source] -= move.reserved
        for destination in move.destinations:
            totals[destination.key] += destination.total
            reserved[destination.key] += destination.reserved
            sources_of[destination.key].append(state.before[move.source])
    for move in moves:
        record = state.before[move.source]
        is_removed = record.total + totals[move.source] == 0
        if is_removed and move.move.total is None and move.reserved != record.reserved:
            state.errors.add(
                f"{record.reserved} of {state.label(move.source)} are reserved, "
                f"but {move.reserved} at its destinations"
            )
    final: dict[Key, InventoryRecord | None] = {}
    for key, change in totals.items():
        declared = state.declared(key)
        if declared is None:
            before = state.before.get(key) or _combined(key, sources_of[key], state)
            final[key] = _increased(key, before, change, reserved[key], state)
            continue
        final[key] = declared
        if declared.total != change:
            state.errors.add(
                f"{state.label(key)} is declared with a total of {declared.total}, "
                f"but {change} are moved to it"
            )
    return final


def _combined(key: Key, sources: Sequence[InventoryRecord], state: _State) -> InventoryRecord:
    """Return an empty inventory with the unit rules and the ratio of its sources."""
    first = sources[0]
    if any(getattr(other, name) != getattr(first, name) for other in sources for name in _RULES):
        state.errors.add(
            f"{state.label(key)} combines inventories with different unit rules or ratios: "
            "declare its inventory"
        )
    return dataclasses.replace(first, resource_class=key[1], total=0, reserved=0)


def _increased(
    key: Key, record: InventoryRecord, total: int, reserved: int, state: _State
) -> InventoryRecord | None:
    """Return an inventory with greater or smaller figures, None if nothing is left of it."""
    total += record.total
    if total <= 0:
        return None
    max_unit = None if record.max_unit is None else min(record.max_unit, total)
    changed = dataclasses.replace(
        record, total=total, reserved=record.reserved + reserved, max_unit=max_unit, used=0
    )
    try:
        inventory = resource(record.resource_class).inventory_from_records((changed,))
        (final,) = inventory.to_records()
    except exceptions.InvalidInput as error:
        state.errors.add(f"{state.label(key)} would be invalid: {error}")
        return record
    return final


# --- assignment of allocations --------------------------------------------------------------------


class _Transfer(NamedTuple):
    """An amount of a consumer that moves from one inventory to another."""

    consumer: str
    source: Key
    target: Key
    amount: int
    units: tuple[str, ...]


class _Assignment:
    """The assignment of allocations to destinations, with the usage of inventories meanwhile."""

    def __init__(self, state: _State, claims: Mapping[str, ConsumerRecord]) -> None:
        self._state = state
        self._errors = state.errors
        self._used = Counter({key: record.used for key, record in state.before.items()})
        self._amounts: Counter[tuple[str, Key]] = Counter()
        self._uses_of: dict[Key, list[tuple[str, Use]]] = defaultdict(list)
        for consumer in sorted(claims):
            for use in claims[consumer].held:
                self._amounts[consumer, use.key] = use.amount
                self._uses_of[use.key].append((consumer, use))

    def transfers(self, moves: Sequence[_InventoryMove]) -> list[_Transfer]:
        """Return the transfers of allocations: of all moves the explicit ones, then the others.

        :raises InvalidPlan: with all impossible ones
        """
        transfers: list[_Transfer] = []
        unassigned: list[tuple[_InventoryMove, str, Use]] = []
        for move in moves:
            uses = self._uses_of[move.source]
            self._check_consumers(move, {consumer for consumer, _ in uses})
            numbers_of: dict[str, list[int]] = defaultdict(list)  # of destinations, by their names
            for number, (_, part, *_) in enumerate(move.destinations):
                for name in (*part.units, *part.consumers, *part.owned):
                    numbers_of[name].append(number)
            has_one_destination = move.source not in self._state.after and len(move.keys) == 1
            for consumer, use in uses:
                numbers = {n for name in (consumer, *use.units) for n in numbers_of.get(name, ())}
                assigned = self._explicit(move, consumer, use, sorted(numbers))
                remainder = _remainder(use, assigned)
                if remainder is not None and has_one_destination:  # the write checks its capacity
                    key, units = move.keys[0], remainder.units
                    assigned.append(_Transfer(consumer, move.source, key, remainder.amount, units))
                elif remainder is not None:
                    unassigned.append((move, consumer, remainder))
                for transfer in assigned:
                    self._allocate(consumer, transfer.source, -transfer.amount)
                    self._allocate(consumer, transfer.target, transfer.amount)
                transfers += assigned
        unassigned.sort(key=lambda entry: (-entry[2].amount, entry[1]))
        transfers += self._first_fit(unassigned)
        self._check_capacity(moves)
        named = [self._with_device_names(transfer) for transfer in transfers]
        self._errors.raise_if_any()
        return named

    def _allocate(self, consumer: str, key: Key, amount: int) -> None:
        """Add to an allocation, whether there is capacity or not; a negative amount releases."""
        self._amounts[consumer, key] += amount
        self._used[key] += amount
        for target, factor in self._state.shares.get(key, ()):
            self._used[target] += amount * factor

    def _check_consumers(self, move: _InventoryMove, consumers: set[str]) -> None:
        """Add named consumers without an allocation at the source.

        If the caller passes changes, a consumer with an allocation at a destination was moved
        before.
        """
        parts = [destination.part for destination in move.destinations]
        absent = {name for part in parts for name in (*part.consumers, *part.owned)} - consumers
        if absent and self._state.has_changes:
            uses_of, targets = self._state.allocated, set(move.keys)
            absent = {name for name in absent if targets.isdisjoint(uses_of.get(name, ()))}
        for consumer in sorted(absent):
            source = self._state.label(move.source)
            self._errors.add(f"{consumer} has no {source} allocated", consumer)

    def _explicit(
        self, move: _InventoryMove, consumer: str, use: Use, numbers: Iterable[int]
    ) -> list[_Transfer]:
        """Return the transfers of an allocation to the destinations that name it or its units."""
        faults: list[str] = []
        foreign: set[str] = set()
        transfers: list[_Transfer] = []
        for number in numbers:
            destination = move.destinations[number]
            label, part = self._state.label(destination.key), destination.part
            amount = part.consumers.get(consumer, 0)
            units = tuple(unit for unit in use.units if unit in part.units)
            if consumer in part.owned:
                amount, owned = self._owned(destination, consumer, faults)
                foreign.update(set(owned).difference(use.units))
                units = owned or units
            elif units:
                amount = _amount_of_units(use, units, amount, label, faults)
            elif not amount:
                continue  # it names a unit like the consumer
            if not units:  # none of its units is at the destination: all move with the whole
                units = use.units
                if units and amount != use.amount:
                    faults.append(f"its amount is split: specify the units at {label}")
            transfers.append(_Transfer(consumer, move.source, destination.key, amount, units))
        total = sum(transfer.amount for transfer in transfers)
        if use.units and foreign:
            transfers = []
            faults = [f"{' '.join(use.units)} are allocated, not {' '.join(sorted(foreign))}"]
        elif total > use.amount:
            transfers = []
            faults.append(f"{use.amount} are allocated, not {total}")
        for text in faults:
            source = self._state.label(move.source)
            self._errors.add(f"{consumer}, {source}: {text}", consumer)
        return transfers

    def _owned(
        self, destination: _Destination, consumer: str, faults: list[str]
    ) -> tuple[int, tuple[str, ...]]:
        """Return the amount and units of a destination that are assigned to a consumer by name.

        The units that depend on the named ones are assigned too.
        """
        key, part = destination.key, destination.part
        inventory, units = self._state.structured_inventory(key), part.owned[consumer]
        existing = _units_of(inventory, key[1])
        if existing is not None:
            unknown = sorted(set(units) - existing)
            if unknown:
                faults.append(f"{self._state.label(key)} has no {', '.join(unknown)}")
            units = _with_dependent_units(inventory, key[1], units)
        count = len(units) if inventory is None else placed.unit_count(inventory, key[1], units)
        amount = part.consumers.get(consumer, count)
        if existing is not None and amount != count:
            label = self._state.label(key)
            faults.append(f"{amount} are assigned to {label}, but {count} of its units")
        return amount, units

    def _first_fit(
        self, unassigned: Iterable[tuple[_InventoryMove, str, Use]]
    ) -> Iterator[_Transfer]:
        """Yield transfers of allocations without an explicit destination, in their order."""
        after, label = self._state.after, self._state.label
        moving: list[tuple[_InventoryMove, str, Use]] = []
        for move, consumer, use in unassigned:
            if move.move.fill:
                self._allocate(consumer, move.source, -use.amount)
                moving.append((move, consumer, use))
            elif move.source not in after:
                self._errors.add(
                    f"the destination of {use.amount} {label(move.source)} allocated to "
                    f"{consumer} is not specified",
                    consumer,
                )
        for move, consumer, use in moving:  # all are released: one may fit where another was
            remaining = use.amount
            for key, amount in self._destinations(move, consumer, use):
                start = use.amount - remaining
                units = use.units if amount == use.amount else use.units[start : start + amount]
                yield _Transfer(consumer, move.source, key, amount, units)
                remaining -= amount
            if remaining and move.source in after:
                self._allocate(consumer, move.source, remaining)
            elif remaining:
                self._errors.add(
                    f"{remaining} {label(move.source)} allocated to {consumer} "
                    "fit at no destination",
                    consumer,
                )

    def _destinations(
        self, move: _InventoryMove, consumer: str, use: Use
    ) -> Iterator[tuple[Key, int]]:
        """Allocate at the first destinations with capacity, and yield the amounts."""
        for key in move.keys:
            if self._largest_fit(consumer, key, use.amount) == use.amount:
                self._allocate(consumer, key, use.amount)
                yield key, use.amount
                return
        remaining = use.amount
        # the amount of a unit is known only if each unit counts as one
        may_split = move.move.split and len(use.units) in (0, remaining)
        for key in move.keys if may_split else ():
            amount = self._largest_fit(consumer, key, remaining)
            if amount:
                self._allocate(consumer, key, amount)
                yield key, amount
                remaining -= amount

    def _largest_fit(self, consumer: str, key: Key, amount: int) -> int:
        """Return the largest amount up to ``amount`` that fits, 0 if none does."""
        after = self._state.after
        if key not in after:
            return 0
        record, allocated = after[key], self._amounts[consumer, key]
        limits = [amount, record.capacity - self._used[key]]
        for target, factor in self._state.shares.get(key, ()):
            if target in after:
                limits.append((after[target].capacity - self._used[target]) // factor)
        if record.max_unit is not None:
            limits.append(record.max_unit - allocated)
        largest = (allocated + min(limits)) // record.step_size * record.step_size - allocated
        return largest if largest > 0 and _meets_unit_rules(record, allocated + largest) else 0

    def _check_capacity(self, moves: Iterable[_InventoryMove]) -> None:
        """Add moved inventories that shrink below their usage; the write checks those that grow.

        If more is allocated from a shrinking source before the reshape is committed, the source is
        over its capacity, as after any other shrink: nothing is lost, and
        ``ledger.usage(over_capacity=True)`` lists it.
        """
        for key in dict.fromkeys(key for move in moves for key in (move.source, *move.keys)):
            before, after = self._state.before.get(key), self._state.after.get(key)
            if before is None or after is None or after.capacity >= before.capacity:
                continue
            used = self._used[key]
            if used - after.capacity > max(0, before.used - before.capacity):
                label = self._state.label(key)
                self._errors.add(f"{label} would have {used} used of {after.capacity}")

    def _with_device_names(self, transfer: _Transfer) -> _Transfer:
        """Return a transfer to devices with their names, if the consumer gets all of them.

        A device that an allocation does not name would be allocated again to the next consumer.
        """
        inventory = self._state.structured_inventory(transfer.target)
        name = transfer.target[1]
        units = None if transfer.units else _units_of(inventory, name)
        if units is None or not isinstance(inventory, HasNamedUnits):
            return transfer
        names = _with_dependent_units(inventory, name, units)
        if placed.unit_count(inventory, name, names) == transfer.amount:
            return transfer._replace(units=names)
        label = self._state.label(transfer.target)
        self._errors.add(
            f"{transfer.consumer} would have {transfer.amount} {label}, with the units "
            f"{', '.join(sorted(units))}: specify in 'owned' which are allocated to it",
            transfer.consumer,
        )
        return transfer


def _meets_unit_rules(record: InventoryRecord, amount: int) -> bool:
    """Return True if one consumer may have an amount of an inventory, whatever is used of it."""
    refusals = resource(record.resource_class).refusals(record.using(0), amount, "")
    return all(reason.rule is Rule.CAPACITY for reason in refusals)


def _amount_of_units(
    use: Use, units: tuple[str, ...], amount: int, label: str, faults: list[str]
) -> int:
    """Return the amount of an allocation that moves with some of its units.

    :param amount: the specified one, 0 if none is
    """
    if len(use.units) == use.amount:  # each unit counts as one
        if amount not in (0, len(units)):
            faults.append(f"{amount} are assigned to {label}, but {len(units)} units")
        return len(units)
    if not amount and len(units) < len(use.units):
        faults.append(f"its units are split: specify the amount at {label}")
    return amount or use.amount


def _remainder(use: Use, transfers: Sequence[_Transfer]) -> Use | None:
    """Return a use without what is transferred, None if nothing is left."""
    amount = use.amount - sum(transfer.amount for transfer in transfers)
    moved = {unit for transfer in transfers for unit in transfer.units}
    units = tuple(unit for unit in use.units if unit not in moved)
    return dataclasses.replace(use, amount=amount, units=units) if amount > 0 else None


def _units_of(inventory: Inventory | None, name: str) -> frozenset[str] | None:
    """Return the names of the units of a class, None if units are not named."""
    return inventory.units(name) if isinstance(inventory, PlacedInventory) else None


def _with_dependent_units(
    inventory: Inventory | None, name: str, units: Iterable[str]
) -> tuple[str, ...]:
    """Return units with their dependent units, each once."""
    dependent = {} if inventory is None else placed.dependent_units(inventory, name)
    complete = dict.fromkeys(units)
    for unit in tuple(complete):
        complete.update(dict.fromkeys(sorted(dependent.get(unit, ()))))
    return tuple(complete)


# --- orders ---------------------------------------------------------------------------------------


def _orders(
    transfers: Iterable[_Transfer], claims: Mapping[str, ConsumerRecord], state: _State
) -> Iterator[ConsumerOrder]:
    is_disabled = functools.cache(state.is_disabled)

    @functools.cache  # most consumers have the same amounts as others
    def meets_unit_rules(key: Key, amount: int) -> bool:
        return _meets_unit_rules(state.before[key], amount)

    transfers_of: dict[str, list[_Transfer]] = defaultdict(list)
    for transfer in transfers:
        transfers_of[transfer.consumer].append(transfer)
    for consumer, transfers in sorted(transfers_of.items()):
        claim = claims[consumer]
        sources = {transfer.source for transfer in transfers}
        # a consumer of many, or an adopted one, may already break the unit rules
        stands_for_many = not all(
            meets_unit_rules(use.key, use.amount) for use in claim.held if use.key in sources
        )
        # a move from a disabled host to a disabled host allocates nothing new
        was_disabled = any(is_disabled(transfer.source[0]) for transfer in transfers) and all(
            is_disabled(transfer.source[0])
            for transfer in transfers
            if is_disabled(transfer.target[0])
        )
        yield ConsumerOrder.replace(
            consumer,
            tuple(_uses_after(claim.held, transfers)),
            request=claim.request,
            generation=claim.generation,
            aggregate=stands_for_many,
            overrides_disabled=was_disabled,
        )


def _uses_after(uses: Iterable[Use], transfers: Iterable[_Transfer]) -> Iterator[Use]:
    amounts = Counter({use.key: use.amount for use in uses})
    units = defaultdict(list, {use.key: list(use.units) for use in uses})
    for transfer in transfers:
        source, target = transfer.source, transfer.target
        amounts[source] -= transfer.amount
        amounts[target] += transfer.amount
        units[source] = [unit for unit in units[source] if unit not in transfer.units]
        units[target] += transfer.units
    for key, amount in amounts.items():
        if amount:
            yield Use(*key, amount, tuple(units[key]))
