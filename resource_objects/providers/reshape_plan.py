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

from resource_objects import exceptions
from resource_objects.providers import decision
from resource_objects.providers.columns import Columns, trees
from resource_objects.providers.definition import (
    DefinitionChanges,
    ExpectedUse,
    ProviderDefinition,
    ProviderUpdate,
    StoredDefinition,
    changes_between,
    compare_tree,
    merge_changes,
    to_definition,
)
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Key, Use
from resource_objects.providers.plan import Plan
from resource_objects.providers.provider import Provider
from resource_objects.providers.reshape import Move, Part, Reshape
from resource_objects.providers.row_diff import holdings, stored_definitions
from resource_objects.reasons import Rule
from resource_objects.resources import Inventory, resource
from resource_objects.resources.located import Identified, Located, dependent_units, unit_count
from resource_objects.resources.records import InventoryRecord

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
        self._columns = columns
        self._changes = changes
        self._state = ReshapeState(reshape, columns, changes)
        self._errors = Errors()
        self._moves = inventory_moves(reshape, self._state, self._errors)
        self._sources = {move.source for move in self._moves}

    @property
    def consumers(self) -> tuple[str, ...]:
        """The consumers with allocations at a source, sorted."""
        allocated = self._state.allocated
        return tuple(
            sorted(name for name, uses in allocated.items() if not self._sources.isdisjoint(uses))
        )

    def plan(self, claims: Mapping[str, ConsumerRecord]) -> Plan:
        """Return the plan. Cost: linear in the trees and in the allocations of the consumers.

        :param claims: the claims of :attr:`consumers`, by name
        :raises InvalidPlan: if the plan would lose or invent an allocation or a part of an
            inventory, or an allocation has no destination or does not fit there
        :raises InvalidTree: if the providers would not be a tree, or a share would break a rule
        :raises Stale: if a claim and the columns differ: the caller reads both again
        """
        state = self._state
        self._check_claims(claims)
        self._errors.raise_if_any()
        changed = self._changed_inventories()
        errors = Errors()
        transfers = _assign(self._moves, claims, state, errors)
        errors.raise_if_any()
        changes = self._changes
        if changes is None:
            changes = _definition_changes(self._reshape, self._columns, state, changed)
        orders = tuple(_orders(transfers, claims, state))
        removed = {*state.before, *changed} - state.after.keys()
        _check_conserved(self._reshape, orders, claims, removed)
        plan = Plan(self._with_expected_use(changes) or None, orders)
        # consumers can have allocations from trees that were not read, such as a shared pool
        names = {use.provider_uuid: use.provider for claim in claims.values() for use in claim.held}
        names |= state.names
        return dataclasses.replace(plan, names={uuid: names[uuid] for uuid in plan.places})

    def _check_claims(self, claims: Mapping[str, ConsumerRecord]) -> None:
        for name in self.consumers:
            uses = claims[name].held if name in claims else ()
            amounts = {use.key: use.amount for use in uses}
            for key, use in self._state.allocated[name].items():
                if amounts.get(key) != use.amount:
                    raise exceptions.Stale("consumer", name, "while it was read")

    def _changed_inventories(self) -> Mapping[Key, InventoryRecord | None]:
        """Return the inventories that an explicit reshape changes, and apply them to the state."""
        if self._changes is not None:
            return {}
        errors = Errors()
        changed = _final_inventories(self._moves, self._state, errors)
        errors.raise_if_any()
        after = {**self._state.before, **self._state.declared, **changed}
        self._state.after = {key: record for key, record in after.items() if record is not None}
        return changed

    def _with_expected_use(self, changes: DefinitionChanges) -> DefinitionChanges:
        """Return changes that are refused once more is allocated from a source.

        A source that is removed is refused anyway. From one that remains, a consumer could allocate
        units that are counted at the destination afterwards.
        """

        def guarded(update: ProviderUpdate) -> ProviderUpdate:
            keys = [(update.definition.uuid, record.resource_class) for record in update.changed]
            used = tuple(
                ExpectedUse(key[1], self._state.before[key].used)
                for key in keys
                if key in self._sources
            )
            return dataclasses.replace(update, expected_use=used) if used else update

        return dataclasses.replace(changes, updates=tuple(map(guarded, changes.updates)))


class Errors:
    """The faults of a plan: sentences, and the consumers that they are about."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._consumers: dict[str, None] = {}

    def add(self, text: str, consumer: str | None = None) -> None:
        """Add a fault."""
        self._texts.append(text)
        if consumer is not None:
            self._consumers[consumer] = None

    def raise_if_any(self) -> None:
        """Raise ``InvalidPlan`` with all faults, if there are any."""
        if self._texts:
            raise exceptions.InvalidPlan(
                "reshape", "; ".join(self._texts), self._texts, self._consumers
            )


class ReshapeState:
    """The providers and inventories before a reshape and after it.

    ``before`` and ``after`` are inventories by provider and class. ``after`` of an explicit reshape
    is known once its moves are. ``declared`` are the inventories of providers that the reshape
    creates. ``definitions`` are the definitions afterwards, also of providers that are removed.
    """

    def __init__(
        self, reshape: Reshape, columns: Columns, changes: DefinitionChanges | None = None
    ) -> None:
        index = columns.index
        #: whether the caller passes the inventories afterwards
        self.has_changes = changes is not None
        self.allocated = holdings(columns)
        self.before = {
            (index.uuids[number], record.resource_class): record
            for number, records in index.inventories.items()
            for record in records
        }
        self.names = dict(index.names_by_uuid)
        self._uuids = {name: uuid for uuid, name in self.names.items()}
        self._disabled = {index.uuids[number] for number in columns.disabled}
        stored = stored_definitions(columns)
        self.definitions = {uuid: row.definition for uuid, row in stored.items()}
        self.after = dict(self.before)
        self.declared: dict[Key, InventoryRecord] = {}
        if changes is not None:
            self._change(changes)
        self._create(reshape)
        self.shares: dict[Key, list[tuple[Key, int]]] = defaultdict(list)
        for uuid, definition in self.definitions.items():
            for share in definition.shares:
                target = share.of_uuid, share.of_class
                self.shares[uuid, share.resource_class].append((target, share.factor))

    def _change(self, changes: DefinitionChanges) -> None:
        definitions = (*changes.creates, *(update.definition for update in changes.updates))
        replaced = {definition.uuid for definition in definitions}
        replaced.update(removal.uuid for removal in changes.removals)
        self.after = {key: record for key, record in self.before.items() if key[0] not in replaced}
        for definition in definitions:
            self.definitions[definition.uuid] = definition
            self.names[definition.uuid] = definition.name
            self._uuids[definition.name] = definition.uuid
            self.after.update(_inventories_of(definition))

    def _create(self, reshape: Reshape) -> None:
        parents: dict[str, str | None] = {}
        for new in reshape.create:
            if new.name in self._uuids or new.uuid in self.names:
                raise exceptions.AlreadyExists("provider", new.name)
            parents[new.uuid] = None if new.parent is None else self.uuid(new.parent)
            self.names[new.uuid] = new.name
            self._uuids[new.name] = new.uuid
        for new in reshape.create:
            for share in new.shares:
                self.uuid(share.of)
            definition = to_definition(new.provider(), new.uuid, parents[new.uuid], self._uuids)
            self.definitions[new.uuid] = definition
            self.declared.update(_inventories_of(definition))

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

    def is_structured(self, key: Key) -> bool:
        """Return True if a stored inventory is a record of a structured one."""
        kinds = self.definitions[key[0]].kinds
        return key not in self.declared and any(key[1] in kind.classes for kind in kinds)

    def structured_inventory(self, key: Key) -> Inventory | None:
        """Return the structured inventory afterwards that a class is a record of, None if none."""
        uuid, name = key
        for kind in self.definitions[uuid].kinds:
            if name in kind.classes:
                keys = [(uuid, part) for part in kind.classes if (uuid, part) in self.after]
                records = [self.after[key] for key in keys]
                return resource(kind.resource_class).inventory_from_kept(records, kind.body or None)
        return None

    def is_disabled(self, uuid: str) -> bool:
        """Return True if a provider or an ancestor is disabled, also if only for a time."""
        at: str | None = uuid
        while at is not None and at not in self._disabled:
            at = self.definitions[at].parent_uuid
        return at is not None


def _inventories_of(definition: ProviderDefinition) -> dict[Key, InventoryRecord]:
    return {(definition.uuid, record.resource_class): record for record in definition.inventories}


# --- moves of inventories -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Destination:
    """A part of a move with the total and the reserved amount that it gets."""

    key: Key
    part: Part
    total: int
    reserved: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class InventoryMove:
    """A move of a stored inventory; ``loss`` is the part of its total that the source loses."""

    source: Key
    move: Move
    destinations: tuple[_Destination, ...]
    loss: int

    @property
    def reserved(self) -> int:
        """The reserved amount of all destinations."""
        return sum(destination.reserved for destination in self.destinations)


def inventory_moves(reshape: Reshape, state: ReshapeState, errors: Errors) -> list[InventoryMove]:
    """Return the moves that take place, with their destinations.

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
    possible_moves = [move_of(move, state, errors) for move in reshape.moves]
    moves = [move for move in possible_moves if move is not None]
    sources: set[Key] = set()
    for move in moves:
        source = state.label(move.source)
        keys = [move.source, *(destination.key for destination in move.destinations)]
        if len(set(keys)) != len(keys):
            errors.add(f"{source} is moved to itself, or twice to one inventory")
        for key in () if state.has_changes else keys:
            if state.is_structured(key):
                errors.add(f"{state.label(key)} is part of a structured inventory")
        if move.source in sources:  # once by the name of its provider and once by the uuid
            errors.add(f"{source} is moved twice")
        sources.add(move.source)
    if state.has_changes:
        _check_growth(moves, state, errors)
    return moves


def _explicit_move(move: Move, state: ReshapeState, errors: Errors) -> InventoryMove | None:
    source = state.uuid(move.from_), move.resource_class
    uuids = [state.uuid(part.provider) for part in move.to]
    record = state.before.get(source)
    if record is None:
        errors.add(f"there is no {state.label(source)}")
        return None
    destinations: list[_Destination] = []
    for uuid, part in zip(uuids, move.to, strict=True):
        key = uuid, part.resource_class or move.resource_class
        declared = state.declared.get(key)
        total, reserved = part.total, part.reserved
        if declared is not None:
            total, reserved = declared.total if total is None else total, declared.reserved
        elif total is None and len(move.to) == 1:
            total, reserved = record.total, reserved or record.reserved
        if total is None:
            errors.add(
                f"the total of {state.label(source)} that is moved to {state.names[uuid]} "
                "is not specified"
            )
        destinations.append(_Destination(key, part, total or 0, reserved))
    loss = move.total
    if loss is None:
        loss = sum(destination.total for destination in destinations)
    if loss > record.total:
        errors.add(f"{state.label(source)} would lose {loss} of {record.total}")
    return InventoryMove(source, move, tuple(destinations), loss)


def _implied_move(move: Move, state: ReshapeState, errors: Errors) -> InventoryMove | None:
    source = state.find(move.from_) or "", move.resource_class
    before, after = state.before.get(source), state.after.get(source)
    if before is None:
        return None
    label = state.label(source)
    loss = before.total - (0 if after is None else after.total)
    is_unchanged = after is not None and loss <= 0 and move.total != 0
    keys = [
        (state.uuid(part.provider), part.resource_class or move.resource_class) for part in move.to
    ]
    destinations = [
        _Destination(key, part, _growth(key, state))
        for key, part in zip(keys, move.to, strict=True)
    ]
    if is_unchanged:
        new_keys = [key for key in keys if key not in state.before]
        wrong = [key for key in new_keys if key in state.after]
        text = f"but its total is still {before.total}"
    else:
        if after is not None:
            destinations = [target for target in destinations if target.total > 0]
        wrong = [target.key for target in destinations if target.key not in state.after]
        text = "which does not exist"
    for key in wrong:
        errors.add(f"{label} is declared as moved to {state.label(key)}, {text}")
    if is_unchanged or not destinations:
        return None
    if move.total not in (None, loss):
        errors.add(f"{label} would lose {loss}, not {move.total}")
    return InventoryMove(source, move, tuple(destinations), loss)


def _growth(key: Key, state: ReshapeState) -> int:
    """Return the difference of the total of an inventory after the changes and before them."""
    before, after = state.before.get(key), state.after.get(key)
    return (0 if after is None else after.total) - (0 if before is None else before.total)


def _check_growth(moves: Iterable[InventoryMove], state: ReshapeState, errors: Errors) -> None:
    """Add destinations that do not grow by the sum of their parts, if each specifies a total."""
    totals_of: dict[Key, list[int | None]] = defaultdict(list)
    for move in moves:
        for destination in move.destinations:
            totals_of[destination.key].append(destination.part.total)
    for key, specified in totals_of.items():
        totals, growth = [total for total in specified if total is not None], _growth(key, state)
        if len(totals) == len(specified) and sum(totals) != growth:
            errors.add(f"{state.label(key)} would get {growth}, not {sum(totals)}")


# --- inventories after an explicit reshape --------------------------------------------------------


def _final_inventories(
    moves: Iterable[InventoryMove], state: ReshapeState, errors: Errors
) -> dict[Key, InventoryRecord | None]:
    """Return the inventories that moves change as they are afterwards, None for a removed one."""
    totals: dict[Key, int] = defaultdict(int)
    reserved: dict[Key, int] = defaultdict(int)
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
            errors.add(
                f"{record.reserved} of {state.label(move.source)} are reserved, "
                f"but {move.reserved} at its destinations"
            )
    final: dict[Key, InventoryRecord | None] = {}
    for key, change in totals.items():
        declared, before = state.declared.get(key), state.before.get(key)
        if declared is not None:
            if declared.total != change:
                errors.add(
                    f"{state.label(key)} is declared with a total of {declared.total}, "
                    f"but {change} are moved to it"
                )
            final[key] = declared
            continue
        if before is None:
            before = _combined(key, sources_of[key], state, errors)
        final[key] = _with_total(
            key, before, before.total + change, before.reserved + reserved[key], state, errors
        )
    return final


def _combined(
    key: Key, sources: Sequence[InventoryRecord], state: ReshapeState, errors: Errors
) -> InventoryRecord:
    """Return an empty inventory with the unit rules and the ratio of its sources."""
    first = sources[0]
    if any(getattr(other, name) != getattr(first, name) for other in sources for name in _RULES):
        errors.add(
            f"{state.label(key)} combines inventories with different unit rules or ratios: "
            "declare its inventory"
        )
    return dataclasses.replace(first, resource_class=key[1], total=0, reserved=0, used=0)


def _with_total(
    key: Key,
    record: InventoryRecord,
    total: int,
    reserved: int,
    state: ReshapeState,
    errors: Errors,
) -> InventoryRecord | None:
    """Return an inventory with other figures, None if nothing is left of it."""
    if total <= 0:
        return None
    max_unit = None if record.max_unit is None else min(record.max_unit, total)
    changed = dataclasses.replace(record, total=total, reserved=reserved, max_unit=max_unit, used=0)
    try:
        inventory = resource(record.resource_class).inventory_from_records((changed,))
        (final,) = inventory.to_records()
    except exceptions.InvalidInput as error:
        errors.add(f"{state.label(key)} would be invalid: {error}")
        return record
    return final


def _definition_changes(
    reshape: Reshape,
    columns: Columns,
    state: ReshapeState,
    changed: Mapping[Key, InventoryRecord | None],
) -> DefinitionChanges:
    """Return the changes of definitions that an explicit reshape makes."""
    roots = trees(columns)
    stored_of: dict[str, dict[str, StoredDefinition]] = defaultdict(dict)
    for uuid, stored in stored_definitions(columns).items():
        stored_of[stored.root_uuid][uuid] = stored
    providers = {provider.uuid or "": provider for root in roots for provider in root.walk()}
    children: dict[str | None, list[Provider]] = defaultdict(list)
    for new in reshape.create:
        providers[new.uuid] = new.provider()
        parent = None if new.parent is None else state.uuid(new.parent)
        children[parent].append(providers[new.uuid])
    for key, record in changed.items():
        inventories = providers[key[0]].inventories
        if key in state.declared:
            continue  # perhaps a record of a structured inventory
        if record is not None:
            inventories[key[1]] = resource(key[1]).inventory_from_records([record])
        elif key[1] in inventories:
            del inventories[key[1]]
    removed = {state.uuid(key) for key in reshape.remove}
    _set_children(providers, children, removed)
    changes = [
        changes_between(root.name, stored_of[root.uuid or ""], ())
        if root.uuid in removed
        else compare_tree(stored_of[root.uuid or ""], root)
        for root in roots
    ]
    changes += [compare_tree({}, root) for root in children[None]]
    names = [tree.root for tree in changes if tree]
    return merge_changes(names[0] if len(names) == 1 else f"{len(names)} trees", changes)


def _set_children(
    providers: Mapping[str, Provider],
    added: Mapping[str | None, Sequence[Provider]],
    removed: Collection[str],
) -> None:
    """Add new children to providers and remove others."""
    for uuid, provider in reversed(list(providers.items())):  # children first
        children = [child for child in provider.children if child.uuid not in removed]
        if uuid in removed and (children or added.get(uuid)):
            raise exceptions.InvalidPlan(
                "reshape", f"{provider.name} is to be removed, but it has children"
            )
        if uuid in added or len(children) != len(provider.children):
            provider.update(children=(*children, *added.get(uuid, ())))


# --- assignment of allocations --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Transfer:
    """An amount of a consumer that moves from one inventory to another."""

    consumer: str
    source: Key
    target: Key
    amount: int
    units: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Unassigned:
    """An allocation, or the rest of one, without an explicit destination."""

    move: InventoryMove
    consumer: str
    use: Use


class UseLedger:
    """The usage of inventories while allocations are moved."""

    def __init__(self, state: ReshapeState, claims: Iterable[ConsumerRecord]) -> None:
        self._state = state
        self._used: dict[Key, int] = defaultdict(int)
        self._used.update((key, record.used) for key, record in state.before.items())
        self._amounts: dict[tuple[str, Key], int] = defaultdict(int)
        for claim in claims:
            self._amounts.update(((claim.consumer, use.key), use.amount) for use in claim.held)

    def allocate(self, consumer: str, key: Key, amount: int) -> None:
        """Add to an allocation, whether there is capacity or not; a negative amount releases."""
        self._amounts[consumer, key] += amount
        self._used[key] += amount
        for target, factor in self._state.shares.get(key, ()):
            self._used[target] += amount * factor

    def fits(self, consumer: str, key: Key, amount: int) -> bool:
        """Return True if a consumer may allocate an amount."""
        return self.largest_fit(consumer, key, amount) == amount

    def largest_fit(self, consumer: str, key: Key, amount: int) -> int:
        """Return the largest amount up to ``amount`` that fits, 0 if none does."""
        after = self._state.after
        if key not in after:
            return 0
        record, allocated = after[key], self._amounts[consumer, key]
        largest = min(amount, record.capacity - self._used[key])
        for target, factor in self._state.shares.get(key, ()):
            if target in after:
                largest = min(largest, (after[target].capacity - self._used[target]) // factor)
        if record.max_unit is not None:
            largest = min(largest, record.max_unit - allocated)
        largest = (allocated + largest) // record.step_size * record.step_size - allocated
        return largest if largest > 0 and _meets_unit_rules(record, allocated + largest) else 0

    def check_capacity(self, keys: Collection[Key], errors: Errors) -> None:
        """Add inventories that shrink below their usage.

        If more is allocated from a shrinking source before the
        reshape is committed, the source is over its capacity, as after any other shrink: nothing is
        lost, and ``ledger.usage(over_capacity=True)`` lists it.
        """
        for key, before in self._state.before.items():
            after = self._state.after.get(key)
            if key not in keys or after is None or after.capacity >= before.capacity:
                continue  # the write itself checks an inventory that grows
            used = self._used[key]
            if used - after.capacity > max(0, before.used - before.capacity):
                errors.add(f"{self._state.label(key)} would have {used} used of {after.capacity}")


def _meets_unit_rules(record: InventoryRecord, amount: int) -> bool:
    """Return True if one consumer may have an amount of an inventory, whatever is used of it."""
    refusals = decision.refusals(record.using(0), amount, "")
    return all(reason.rule is Rule.CAPACITY for reason in refusals)


def _assign(
    moves: Sequence[InventoryMove],
    claims: Mapping[str, ConsumerRecord],
    state: ReshapeState,
    errors: Errors,
) -> list[_Transfer]:
    """Return the transfers of allocations, and add impossible ones to the errors.

    Explicit assignments of all moves come first, then the others.
    """
    ledger = UseLedger(state, claims.values())
    uses_of: dict[Key, list[tuple[str, Use]]] = defaultdict(list)
    for consumer in sorted(claims):
        for use in claims[consumer].held:
            uses_of[use.key].append((consumer, use))
    transfers: list[_Transfer] = []
    unassigned: list[_Unassigned] = []
    for move in moves:
        explicit = _ExplicitMoves(move, state, errors)
        explicit.check_consumers({consumer for consumer, _ in uses_of[move.source]})
        for consumer, use in uses_of[move.source]:
            assigned = explicit.transfers(consumer, use)
            for transfer in assigned:
                ledger.allocate(consumer, transfer.source, -transfer.amount)
                ledger.allocate(consumer, transfer.target, transfer.amount)
            transfers += assigned
            remainder = _remainder(use, assigned)
            if remainder is not None:
                unassigned.append(_Unassigned(move, consumer, remainder))
    unassigned.sort(key=lambda entry: (-entry.use.amount, entry.consumer))
    transfers += _first_fit(unassigned, state, ledger, errors)
    keys = {move.source for move in moves}
    keys.update(destination.key for move in moves for destination in move.destinations)
    ledger.check_capacity(keys, errors)
    return [_with_device_names(transfer, state, errors) for transfer in transfers]


def _remainder(use: Use, transfers: Sequence[_Transfer]) -> Use | None:
    """Return a use without what is transferred, None if nothing is left."""
    if not transfers:
        return use
    amount = use.amount - sum(transfer.amount for transfer in transfers)
    moved = {unit for transfer in transfers for unit in transfer.units}
    units = tuple(unit for unit in use.units if unit not in moved)
    return dataclasses.replace(use, amount=amount, units=units) if amount > 0 else None


def _with_device_names(transfer: _Transfer, state: ReshapeState, errors: Errors) -> _Transfer:
    """Return a transfer to devices with their names, if the consumer gets all of them.

    A device that an allocation does not name would be allocated again to the next consumer.
    """
    inventory = state.structured_inventory(transfer.target)
    units = _units_of(inventory, transfer.target[1])
    if units is None or transfer.units or not isinstance(inventory, Identified):
        return transfer
    names = _with_dependent_units(inventory, transfer.target[1], units)
    if unit_count(inventory, transfer.target[1], names) == transfer.amount:
        return dataclasses.replace(transfer, units=names)
    errors.add(
        f"{transfer.consumer} would have {transfer.amount} {state.label(transfer.target)}, with "
        f"the units {', '.join(sorted(units))}: specify in 'owned' which are allocated to it",
        transfer.consumer,
    )
    return transfer


def _units_of(inventory: Inventory | None, name: str) -> frozenset[str] | None:
    """Return the names of the units of a class, None if units are not named."""
    return inventory.units(name) if isinstance(inventory, Located) else None


def _with_dependent_units(
    inventory: Inventory | None, name: str, units: Iterable[str]
) -> tuple[str, ...]:
    """Return units with their dependent units, each once."""
    dependent = {} if inventory is None else dependent_units(inventory, name)
    complete = dict.fromkeys(units)
    for unit in tuple(complete):
        complete.update(dict.fromkeys(sorted(dependent.get(unit, ()))))
    return tuple(complete)


class _ExplicitMoves:
    """The assignments of a move that name units or consumers. Destinations are numbered."""

    def __init__(self, move: InventoryMove, state: ReshapeState, errors: Errors) -> None:
        self._move = move
        self._state = state
        self._errors = errors
        self._destination_of_unit: dict[str, int] = {}
        self._amounts: dict[str, dict[int, int]] = defaultdict(dict)  # by consumer
        self._new_units: dict[str, dict[int, tuple[str, ...]]] = defaultdict(dict)  # by consumer
        for number, destination in enumerate(move.destinations):
            part = destination.part
            self._destination_of_unit.update(dict.fromkeys(part.units, number))
            for consumer, amount in part.consumers.items():
                self._amounts[consumer][number] = amount
            for consumer, units in part.owned.items():
                self._assign_units(consumer, number, destination.key, units)

    def _assign_units(self, consumer: str, number: int, key: Key, units: tuple[str, ...]) -> None:
        """Assign units of a destination, and the units that depend on them, to a consumer."""
        inventory = self._state.structured_inventory(key)
        existing = _units_of(inventory, key[1])
        if existing is not None:
            unknown = sorted(set(units) - existing)
            if unknown:
                self._add(consumer, f"{self._label(number)} has no {', '.join(unknown)}")
            units = _with_dependent_units(inventory, key[1], units)
        count = len(units) if inventory is None else unit_count(inventory, key[1], units)
        amount = self._amounts[consumer].setdefault(number, count)
        if existing is not None and amount != count:
            text = f"{amount} are assigned to {self._label(number)}, but {count} of its units"
            self._add(consumer, text)
        self._new_units[consumer][number] = units

    def check_consumers(self, consumers: Collection[str]) -> None:
        """Add named consumers without an allocation at the source.

        If the caller passes changes, a consumer with an allocation at a destination was moved
        before.
        """
        absent = self._amounts.keys() - consumers
        if absent and self._state.has_changes:
            targets = {destination.key for destination in self._move.destinations}
            uses_of = self._state.allocated
            absent = {name for name in absent if targets.isdisjoint(uses_of.get(name, ()))}
        for consumer in sorted(absent):
            source = self._state.label(self._move.source)
            self._errors.add(f"{consumer} has no {source} allocated", consumer)

    def transfers(self, consumer: str, use: Use) -> list[_Transfer]:
        """Return the transfers of an allocation that the move specifies."""
        named = self._amounts.get(consumer, {})
        new_units = self._new_units.get(consumer, {})
        units_of: dict[int, tuple[str, ...]] = defaultdict(tuple)
        for unit in use.units:
            if unit in self._destination_of_unit:
                units_of[self._destination_of_unit[unit]] += (unit,)
        amounts = {
            number: named[number]
            if number in new_units
            else self._amount(consumer, use, number, units_of.get(number, ()))
            for number in sorted({*named, *units_of})
        }
        foreign = {unit for units in new_units.values() for unit in units}.difference(use.units)
        if use.units and foreign:
            text = f"{' '.join(use.units)} are allocated, not {' '.join(sorted(foreign))}"
            self._add(consumer, text)
            return []
        total = sum(amounts.values())
        if total > use.amount:
            self._add(consumer, f"{use.amount} are allocated, not {total}")
            return []
        transfers: list[_Transfer] = []
        for number, amount in amounts.items():
            units = new_units.get(number) or units_of.get(number)
            if not units:  # none of its units is at the destination: all move with the whole
                units = use.units
                if units and amount != use.amount:
                    text = f"its amount is split: specify the units at {self._label(number)}"
                    self._add(consumer, text)
            target = self._move.destinations[number].key
            transfers.append(_Transfer(consumer, self._move.source, target, amount, units))
        return transfers

    def _amount(self, consumer: str, use: Use, number: int, units: tuple[str, ...]) -> int:
        """Return the amount of an allocation that moves to a destination, with its units there."""
        named = self._amounts.get(consumer, {}).get(number, 0)
        if not units:
            return named
        if len(use.units) == use.amount:  # each unit counts as one
            if named not in (0, len(units)):
                text = f"{named} are assigned to {self._label(number)}, but {len(units)} units"
                self._add(consumer, text)
            return len(units)
        if not named and len(units) < len(use.units):
            text = f"its units are split: specify the amount at {self._label(number)}"
            self._add(consumer, text)
        return named or use.amount

    def _label(self, number: int) -> str:
        return self._state.label(self._move.destinations[number].key)

    def _add(self, consumer: str, text: str) -> None:
        source = self._state.label(self._move.source)
        self._errors.add(f"{consumer}, {source}: {text}", consumer)


def _first_fit(
    unassigned: Iterable[_Unassigned], state: ReshapeState, ledger: UseLedger, errors: Errors
) -> Iterator[_Transfer]:
    """Yield transfers of allocations without an explicit destination, in their order."""
    moving: list[_Unassigned] = []
    for entry in unassigned:
        source, amount = entry.move.source, entry.use.amount
        if entry.move.move.fill or _has_one_destination(entry.move, state):
            ledger.allocate(entry.consumer, source, -amount)
            moving.append(entry)
        elif source not in state.after:
            errors.add(
                f"the destination of {amount} {state.label(source)} allocated to "
                f"{entry.consumer} is not specified",
                entry.consumer,
            )
    for entry in moving:  # all are released: an allocation may fit where another was
        transfers = _place_whole(entry, state, ledger)
        if not transfers and entry.move.move.split:
            transfers = _place_split(entry, ledger)
        yield from transfers
        remaining = entry.use.amount - sum(transfer.amount for transfer in transfers)
        if remaining and entry.move.source in state.after:
            ledger.allocate(entry.consumer, entry.move.source, remaining)
        elif remaining:
            errors.add(
                f"{remaining} {state.label(entry.move.source)} allocated to {entry.consumer} "
                "fit at no destination",
                entry.consumer,
            )


def _has_one_destination(move: InventoryMove, state: ReshapeState) -> bool:
    """Return True if the source is removed and all of it moves to one destination."""
    return move.source not in state.after and len(move.destinations) == 1


def _place_whole(entry: _Unassigned, state: ReshapeState, ledger: UseLedger) -> list[_Transfer]:
    """Allocate at the first destination that fits, and return the transfer.

    A single destination is not checked here: the write itself refuses with its reasons.
    """
    amount, units = entry.use.amount, entry.use.units
    for destination in entry.move.destinations:
        key = destination.key
        if _has_one_destination(entry.move, state) or ledger.fits(entry.consumer, key, amount):
            ledger.allocate(entry.consumer, key, amount)
            return [_Transfer(entry.consumer, entry.move.source, key, amount, units)]
    return []


def _place_split(entry: _Unassigned, ledger: UseLedger) -> list[_Transfer]:
    """Allocate the largest amount that fits at each destination, and return the transfers."""
    remaining, units = entry.use.amount, entry.use.units
    if units and len(units) != remaining:
        return []  # the amount of each unit is unknown
    transfers: list[_Transfer] = []
    for destination in entry.move.destinations:
        key = destination.key
        amount = ledger.largest_fit(entry.consumer, key, remaining)
        if amount:
            transfers.append(
                _Transfer(entry.consumer, entry.move.source, key, amount, units[:amount])
            )
            remaining, units = remaining - amount, units[amount:]
    return transfers


# --- orders ---------------------------------------------------------------------------------------


def _orders(
    transfers: Iterable[_Transfer], claims: Mapping[str, ConsumerRecord], state: ReshapeState
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
        # a consumer that stands for many, or was adopted, may already break the unit rules
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
    amounts = {use.key: use.amount for use in uses}
    units = {use.key: list(use.units) for use in uses}
    for transfer in transfers:
        source, target = transfer.source, transfer.target
        amounts[source] -= transfer.amount
        amounts[target] = amounts.get(target, 0) + transfer.amount
        units[source] = [unit for unit in units[source] if unit not in transfer.units]
        units.setdefault(target, []).extend(transfer.units)
    for key, amount in amounts.items():
        if amount:
            yield Use(*key, amount, tuple(units[key]))


def _check_conserved(
    reshape: Reshape,
    orders: Iterable[ConsumerOrder],
    claims: Mapping[str, ConsumerRecord],
    removed: Collection[Key],
) -> None:
    """Raise unless every consumer has the same amounts and units as before, wherever counted."""
    errors = Errors()
    group_of = _groups(reshape)
    uses_of = {order.consumer: order.uses for order in orders}
    for consumer, claim in claims.items():
        after: Iterable[Use] = uses_of.get(consumer, claim.held)
        if _sums(claim.held, group_of) != _sums(after, group_of):
            errors.add(f"{consumer} would not have the same amounts as before", consumer)
        if not _units(claim.held) <= _units(after):  # units that had no name may get one
            errors.add(f"{consumer} would not have all of its units", consumer)
        if any(use.key in removed for use in after):
            errors.add(f"{consumer} would have an allocation from a removed inventory", consumer)
    errors.raise_if_any()


def _units(uses: Iterable[Use]) -> Counter[str]:
    return Counter(unit for use in uses for unit in use.units)


def _sums(uses: Iterable[Use], group_of: Mapping[str, str]) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for use in uses:
        sums[group_of.get(use.resource_class, use.resource_class)] += use.amount
    return sums


def _groups(reshape: Reshape) -> dict[str, str]:
    """Return a common name for the classes that the reshape turns into each other, by class."""
    group_of: dict[str, str] = {}
    for move in reshape.moves:
        for part in move.to:
            old = group_of.get(move.resource_class, move.resource_class)
            new = part.resource_class or move.resource_class
            new = group_of.get(new, new)
            group_of = {name: new if group == old else group for name, group in group_of.items()}
            group_of[old] = group_of[move.resource_class] = new
    return group_of
