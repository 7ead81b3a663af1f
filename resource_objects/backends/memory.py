"""A ledger in the memory of one process: dicts under one lock.

For tests, simulations and programs that keep their own persistence. Same behaviour as the
databases; gone when it is closed.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import threading
import uuid as uuids
from collections.abc import Collection, Iterable, Iterator
from typing import Self

from resource_objects import exceptions
from resource_objects.exceptions import CapacityException, Reason, Rule
from resource_objects.providers import decision
from resource_objects.providers.allocation import HELD, RELEASED
from resource_objects.providers.backend import (
    Adjustment,
    Backend,
    ClaimOrder,
    ClaimRecord,
    Delta,
    Held,
    Operation,
)
from resource_objects.providers.columns import (
    AllocationColumns,
    Columns,
    InventoryColumns,
    ProviderColumns,
    TraitColumns,
)
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    ProviderRemoval,
    ProviderUpdate,
)
from resource_objects.resources.records import InventoryRecord, inventory_row

URL = "memory://"


@dataclasses.dataclass(slots=True)
class _Kept:
    """A provider as kept; ``inventories`` carry what is used."""

    number: int
    uuid: str
    name: str
    parent_uuid: str | None
    inventories: dict[str, InventoryRecord]
    traits: frozenset[str]
    generation: int = 0
    children: frozenset[str] = frozenset()


class MemoryBackend(Backend):
    """Keeps a ledger in dicts. Every method holds one lock; reads copy out."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._providers: dict[str, _Kept] = {}
        self._uuid_of: dict[str, str] = {}  # by name
        self._claims: dict[str, ClaimRecord] = {}
        self._operations: dict[str, tuple[str, str, ClaimRecord | None]] = {}
        self._closed = False

    @classmethod
    def open(cls, url: str) -> Self:
        """Return a new, empty ledger: two of them never mix."""
        if url != URL:
            raise exceptions.InvalidURL("ledger URL", url, f"{URL} with nothing behind it")
        return cls()

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._closed = True
            self._providers.clear()
            self._uuid_of.clear()
            self._claims.clear()
            self._operations.clear()

    # --- reading ---

    def read(self, tree: str | None = None) -> Columns:
        """Return everything kept, or one tree (see the contract)."""
        with self._lock:
            self._check_open()
            if tree is None:
                roots = [one for one in self._providers.values() if one.parent_uuid is None]
                return self._columns([one for root in roots for one in self._below(root)])
            kept = self._providers.get(self._uuid_of.get(tree, tree))
            return self._columns([] if kept is None else list(self._below(self._top(kept))))

    def uuids(self, names: Collection[str]) -> dict[str, str]:
        """Return ``{name: uuid}`` of the providers of these names that are kept."""
        with self._lock:
            self._check_open()
            return {name: self._uuid_of[name] for name in names if name in self._uuid_of}

    def held(self, consumer: str) -> ClaimRecord | None:
        """Return what a consumer holds, None if nothing."""
        with self._lock:
            self._check_open()
            claim = self._claims.get(consumer)
            return claim and self._with_names_of_today(claim)

    def _with_names_of_today(self, claim: ClaimRecord) -> ClaimRecord:
        """Return the claim with the names its providers have now."""
        held = tuple(
            dataclasses.replace(one, provider=self._providers[one.provider_uuid].name)
            for one in claim.held
        )
        return dataclasses.replace(claim, held=held)

    def _columns(self, kept: list[_Kept]) -> Columns:
        numbers = {one.uuid: one.number for one in kept}
        providers = [
            (
                one.number,
                one.uuid,
                one.name,
                numbers.get(one.parent_uuid or ""),
                self._top(one).number,
                one.generation,
            )
            for one in kept
        ]
        inventories = [
            (one.number, *inventory_row(record))
            for one in kept
            for record in one.inventories.values()
        ]
        traits = [(one.number, trait) for one in kept for trait in sorted(one.traits)]
        allocations = [
            (numbers[held.provider_uuid], held.resource_class, claim.consumer, held.amount)
            for claim in self._claims.values()
            for held in claim.held
            if held.provider_uuid in numbers
        ]
        return Columns(
            ProviderColumns(*zip(*providers, strict=True)),
            InventoryColumns(*zip(*inventories, strict=True)),
            TraitColumns(*zip(*traits, strict=True)),
            AllocationColumns(*zip(*allocations, strict=True)),
        )

    def _below(self, kept: _Kept) -> Iterator[_Kept]:
        yield kept
        for uuid in sorted(kept.children):
            yield from self._below(self._providers[uuid])

    def _top(self, kept: _Kept) -> _Kept:
        while kept.parent_uuid is not None:
            kept = self._providers[kept.parent_uuid]
        return kept

    # --- definitions ---

    def define(self, operation: Operation, changes: DefinitionChanges) -> None:
        """Apply changes of definitions, all or none (see the contract)."""
        with self._lock:
            self._check_open()
            if self._done(operation, "define", changes.root_uuid):
                return
            before = self._touched(changes)
            try:
                self._apply(changes)
            except BaseException:
                self._restore(before)
                raise
            self._index(before)
            self._record(operation, "define", changes.root_uuid, None)

    def _touched(self, changes: DefinitionChanges) -> dict[str, _Kept | None]:
        """Return copies of all that the changes may touch; None for what is not there yet."""
        definitions = (*changes.creates, *(update.definition for update in changes.updates))
        uuids = {removal.uuid for removal in changes.removals}
        for definition in definitions:
            uuids |= {definition.uuid, definition.parent_uuid or definition.uuid}
        uuids |= {
            self._providers[uuid].parent_uuid or uuid for uuid in uuids if uuid in self._providers
        }
        return {
            uuid: dataclasses.replace(self._providers[uuid]) if uuid in self._providers else None
            for uuid in uuids
        }

    def _restore(self, before: dict[str, _Kept | None]) -> None:
        for uuid, kept in before.items():
            if kept is None:
                self._providers.pop(uuid, None)
            else:
                self._providers[uuid] = kept

    def _index(self, before: dict[str, _Kept | None]) -> None:
        for kept in before.values():
            if kept is not None:
                self._uuid_of.pop(kept.name, None)
        for uuid in before:
            if uuid in self._providers:
                self._uuid_of[self._providers[uuid].name] = uuid

    def _apply(self, changes: DefinitionChanges) -> None:
        # two providers may swap their names, so names are judged over all changes together
        renamed = {update.definition.uuid for update in changes.updates}
        renamed |= {removal.uuid for removal in changes.removals}
        taken: set[str] = set()
        for definition in (*(u.definition for u in changes.updates), *changes.creates):
            owner = self._uuid_of.get(definition.name)
            if definition.name in taken or (owner is not None and owner not in renamed):
                raise exceptions.ProviderExists(definition.name)
            taken.add(definition.name)
        for created in changes.creates:
            self._create(created)
        for update in changes.updates:
            self._update(update)
        for removal in changes.removals:
            self._remove(removal)

    def _create(self, wanted: ProviderDefinition) -> None:
        if wanted.uuid in self._providers:
            raise exceptions.ProviderExists(wanted.uuid)
        if wanted.parent_uuid is not None and wanted.parent_uuid not in self._providers:
            raise exceptions.StaleDefinition(wanted.name, "its parent is gone")
        inventories = {record.resource_class: record for record in wanted.inventories}
        self._providers[wanted.uuid] = _Kept(
            next(self._numbers),
            wanted.uuid,
            wanted.name,
            wanted.parent_uuid,
            inventories,
            wanted.traits,
        )
        self._adopt(wanted.uuid, None, wanted.parent_uuid)

    def _adopt(self, uuid: str, old: str | None, new: str | None) -> None:
        """Move a provider from the children of one parent to another's."""
        if old in self._providers:
            self._providers[old].children -= {uuid}
        if new in self._providers:
            self._providers[new].children |= {uuid}

    def _update(self, update: ProviderUpdate) -> None:
        wanted = update.definition
        kept = self._at_generation(wanted.uuid, wanted.name, update.generation)
        inventories = dict(kept.inventories)
        for name in update.removed:
            if inventories[name].used:
                raise exceptions.InventoryInUse(kept.name, name)
            del inventories[name]
        for record in update.changed:
            before = inventories.get(record.resource_class)
            used = before.used if before else 0
            inventories[record.resource_class] = dataclasses.replace(record, used=used)
        self._adopt(kept.uuid, kept.parent_uuid, wanted.parent_uuid)
        kept.name = wanted.name
        kept.parent_uuid = wanted.parent_uuid
        kept.inventories = inventories
        kept.traits = wanted.traits
        kept.generation += 1

    def _remove(self, removal: ProviderRemoval) -> None:
        kept = self._at_generation(removal.uuid, removal.name, removal.generation)
        if any(record.used for record in kept.inventories.values()):
            raise exceptions.ProviderInUse(kept.name)
        if kept.children:
            raise exceptions.StaleDefinition(kept.name, "it has a child that was not known")
        self._adopt(kept.uuid, kept.parent_uuid, None)
        del self._providers[kept.uuid]

    def _at_generation(self, uuid: str, name: str, generation: int) -> _Kept:
        kept = self._providers.get(uuid)
        if kept is None:
            raise exceptions.StaleDefinition(name, "it is gone")
        if kept.generation != generation:
            raise exceptions.StaleDefinition(
                name, f"read at generation {generation}, now {kept.generation}"
            )
        return kept

    # --- claims ---

    def claim(self, operation: Operation, order: ClaimOrder) -> ClaimRecord:
        """Take all deltas of an order for a new consumer, or none (see the contract)."""
        with self._lock:
            self._check_open()
            done = self._outcome(operation, "claim", order.consumer)
            if done is not None:
                return done
            if order.consumer in self._claims:
                raise exceptions.ConsumerExists(order.consumer)
            made = self._new_claim(order.consumer, order.claim_id, order.request)
            return self._change(operation, "claim", made, order.deltas)

    def adjust(self, operation: Operation, order: Adjustment) -> ClaimRecord:
        """Change what one consumer holds by all deltas, or by none (see the contract)."""
        with self._lock:
            self._check_open()
            done = self._outcome(operation, "adjust", order.consumer)
            if done is not None:
                return done
            made = self._claims.get(order.consumer) or self._new_claim(
                order.consumer, order.claim_id, None
            )
            return self._change(operation, "adjust", made, order.deltas)

    def release(self, operation: Operation, consumer: str) -> ClaimRecord:
        """Give back all that a consumer holds and forget the consumer (see the contract)."""
        with self._lock:
            self._check_open()
            done = self._outcome(operation, "release", consumer)
            if done is not None:
                return done
            claim = self._claims.get(consumer)
            if claim is None:
                raise exceptions.ConsumerNotFound(consumer)
            for held in claim.held:
                self._add(held.provider_uuid, held.resource_class, -held.amount)
            del self._claims[consumer]
            released = dataclasses.replace(self._with_names_of_today(claim), state=RELEASED)
            self._record(operation, "release", consumer, released)
            return released

    def _new_claim(self, consumer: str, claim_id: str, request: str | None) -> ClaimRecord:
        now = datetime.datetime.now(datetime.UTC)
        return ClaimRecord(claim_id, consumer, str(uuids.uuid4()), now, (), HELD, request)

    def _change(
        self, operation: Operation, kind: str, claim: ClaimRecord, deltas: Iterable[Delta]
    ) -> ClaimRecord:
        holds = {(held.provider_uuid, held.resource_class): held.amount for held in claim.held}
        changes = list(deltas)
        reasons = [reason for delta in changes for reason in self._refusals(delta, holds)]
        if reasons:
            raise CapacityException.of(reasons)
        for delta in changes:
            key = (delta.provider_uuid, delta.resource_class)
            self._add(*key, delta.amount)
            holds[key] = holds.get(key, 0) + delta.amount
        changed = dataclasses.replace(claim, held=tuple(self._held(holds)))
        if changed.held:
            self._claims[claim.consumer] = changed
        else:
            self._claims.pop(claim.consumer, None)
        self._record(operation, kind, claim.consumer, changed)
        return changed

    def _held(self, holds: dict[tuple[str, str], int]) -> Iterator[Held]:
        for (uuid, resource_class), amount in holds.items():
            if amount:
                yield Held(uuid, self._providers[uuid].name, resource_class, amount)

    def _refusals(self, delta: Delta, holds: dict[tuple[str, str], int]) -> Iterator[Reason]:
        kept = self._providers.get(delta.provider_uuid)
        if kept is None:
            raise exceptions.ProviderNotFound(delta.provider_uuid)
        held = holds.get((delta.provider_uuid, delta.resource_class), 0)
        record = kept.inventories.get(delta.resource_class)
        if held + delta.amount < 0:
            yield decision.not_held(delta.resource_class, delta.amount, held, kept.name)
        elif record is None:
            yield decision.absent(delta.resource_class, delta.amount, kept.name)
        else:
            for reason in decision.refusals(record, delta.amount, kept.name):
                yield self._with_holders(reason, kept)

    def _with_holders(self, reason: Reason, kept: _Kept) -> Reason:
        if reason.rule is not Rule.CAPACITY:
            return reason
        holders = (
            (claim.consumer, held.amount)
            for claim in self._claims.values()
            for held in claim.held
            if (held.provider_uuid, held.resource_class) == (kept.uuid, reason.resource)
        )
        return decision.held_by(reason, holders)

    def _add(self, provider_uuid: str, resource_class: str, amount: int) -> None:
        inventories = self._providers[provider_uuid].inventories
        record = inventories[resource_class]
        inventories[resource_class] = dataclasses.replace(record, used=record.used + amount)

    # --- operations ---

    def _done(self, operation: Operation, kind: str, subject: str) -> bool:
        """Return whether the operation was done before, or raise if the id was another's."""
        known = self._operations.get(operation.id)
        if known is not None and known[:2] != (kind, subject):
            raise exceptions.OperationConflict(operation.id, f"{known[0]} of {known[1]}")
        return known is not None

    def _outcome(self, operation: Operation, kind: str, subject: str) -> ClaimRecord | None:
        """Return the recorded outcome of a write about a consumer, None if it is new."""
        return self._operations[operation.id][2] if self._done(operation, kind, subject) else None

    def _record(
        self, operation: Operation, kind: str, subject: str, outcome: ClaimRecord | None
    ) -> None:
        self._operations[operation.id] = (kind, subject, outcome)

    def _check_open(self) -> None:
        if self._closed:
            raise exceptions.LedgerClosed(URL)
