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
from typing import Self, TypeVar

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
    Outcome,
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

_K = TypeVar("_K")
_V = TypeVar("_V")
#: (provider's uuid, resource class)
_Key = tuple[str, str]


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


class _Draft:
    """Providers as a write will leave them: copies laid over what is kept."""

    def __init__(self, kept: dict[str, _Kept]) -> None:
        self._kept = kept
        self.changed: dict[str, _Kept | None] = {}  # by uuid; None is gone

    def get(self, uuid: str | None) -> _Kept | None:
        """Return a provider to look at, None if there is none."""
        if uuid is None:
            return None
        return self.changed[uuid] if uuid in self.changed else self._kept.get(uuid)

    def edit(self, uuid: str) -> _Kept:
        """Return a provider, which is there, to change."""
        found = self.changed.get(uuid)
        if found is None:
            kept = self._kept[uuid]
            found = dataclasses.replace(kept, inventories=dict(kept.inventories))
            self.changed[uuid] = found
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class _Change:
    """What one write leaves behind, worked out in full, so that it can be put there twice."""

    operation: str
    outcome: Outcome
    providers: dict[str, _Kept | None]  # by uuid; None is gone
    names: dict[str, str | None] = dataclasses.field(default_factory=dict)
    holds: dict[_Key, int] = dataclasses.field(default_factory=dict)  # of the claim's consumer


class MemoryBackend(Backend):
    """Keeps a ledger in dicts. Every method holds one lock; reads copy out.

    A write works out all that it changes, which one assignment makes happen: an interrupt at any
    instruction finds it done or not begun, and what was left to put away, the next method does.
    The outcome of every operation is remembered until the ledger is closed, so memory grows with
    the number of writes, not only with what is kept.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._providers: dict[str, _Kept] = {}
        self._uuid_of: dict[str, str] = {}  # by name
        self._claims: dict[str, ClaimRecord] = {}
        self._holders: dict[_Key, dict[str, int]] = {}  # what each consumer holds there
        self._operations: dict[str, Outcome] = {}
        self._pending: _Change | None = None
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
            self._holders.clear()
            self._operations.clear()
            self._pending = None

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
            (one.number, resource_class, consumer, amount)
            for one in kept
            for resource_class in one.inventories
            for consumer, amount in self._holders.get((one.uuid, resource_class), {}).items()
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
            if self._done(operation, "define", changes.root):
                return
            draft = self._draft(changes)
            names: dict[str, str | None] = {
                self._providers[uuid].name: None
                for uuid in draft.changed
                if uuid in self._providers
            }
            names |= {kept.name: uuid for uuid, kept in draft.changed.items() if kept is not None}
            outcome = Outcome("define", changes.root)
            self._commit(_Change(operation.id, outcome, draft.changed, names))

    def _draft(self, changes: DefinitionChanges) -> _Draft:
        # two providers may swap their names, so names are judged over all changes together
        renamed = {update.definition.uuid for update in changes.updates}
        renamed |= {removal.uuid for removal in changes.removals}
        taken: set[str] = set()
        for definition in (*(u.definition for u in changes.updates), *changes.creates):
            owner = self._uuid_of.get(definition.name)
            if definition.name in taken or (owner is not None and owner not in renamed):
                raise exceptions.ProviderExists(definition.name)
            taken.add(definition.name)
        draft = _Draft(self._providers)
        for created in changes.creates:
            self._create(draft, created)
        for update in changes.updates:
            self._update(draft, update)
        for removal in changes.removals:
            self._remove(draft, removal)
        self._check_above(draft, changes)
        return draft

    def _check_above(self, draft: _Draft, changes: DefinitionChanges) -> None:
        """Refuse what ends up below itself or below a provider that is gone."""
        sound: set[str | None] = {None}
        for definition in (*changes.creates, *(update.definition for update in changes.updates)):
            seen: set[str] = set()
            uuid: str | None = definition.uuid
            while uuid is not None and uuid not in sound:
                if uuid in seen:
                    raise exceptions.StaleDefinition(definition.name, "it was moved below itself")
                kept = draft.get(uuid)
                if kept is None:
                    raise exceptions.StaleDefinition(definition.name, "its parent is gone")
                seen.add(uuid)
                uuid = kept.parent_uuid
            sound |= seen

    def _create(self, draft: _Draft, wanted: ProviderDefinition) -> None:
        if draft.get(wanted.uuid) is not None:
            raise exceptions.ProviderExists(wanted.uuid)
        if wanted.parent_uuid is not None and draft.get(wanted.parent_uuid) is None:
            raise exceptions.StaleDefinition(wanted.name, "its parent is gone")
        inventories = {record.resource_class: record for record in wanted.inventories}
        draft.changed[wanted.uuid] = _Kept(
            next(self._numbers),
            wanted.uuid,
            wanted.name,
            wanted.parent_uuid,
            inventories,
            wanted.traits,
        )
        self._adopt(draft, wanted.uuid, None, wanted.parent_uuid)

    def _adopt(self, draft: _Draft, uuid: str, old: str | None, new: str | None) -> None:
        """Move a provider from the children of one parent to another's."""
        if old == new:
            return
        if old is not None and draft.get(old) is not None:
            draft.edit(old).children -= {uuid}
        if new is not None and draft.get(new) is not None:
            draft.edit(new).children |= {uuid}

    def _update(self, draft: _Draft, update: ProviderUpdate) -> None:
        wanted = update.definition
        kept = self._at_generation(draft, wanted.uuid, wanted.name, update.generation)
        inventories = kept.inventories
        for name in update.removed:
            if inventories[name].used:
                raise exceptions.InventoryInUse(kept.name, name)
            del inventories[name]
        for record in update.changed:
            before = inventories.get(record.resource_class)
            used = before.used if before else 0
            inventories[record.resource_class] = dataclasses.replace(record, used=used)
        self._adopt(draft, kept.uuid, kept.parent_uuid, wanted.parent_uuid)
        kept.name = wanted.name
        kept.parent_uuid = wanted.parent_uuid
        kept.traits = wanted.traits
        kept.generation += 1

    def _remove(self, draft: _Draft, removal: ProviderRemoval) -> None:
        kept = self._at_generation(draft, removal.uuid, removal.name, removal.generation)
        if any(record.used for record in kept.inventories.values()):
            raise exceptions.ProviderInUse(kept.name)
        if kept.children:
            raise exceptions.StaleDefinition(kept.name, "it has a child that was not known")
        self._adopt(draft, kept.uuid, kept.parent_uuid, None)
        draft.changed[kept.uuid] = None

    def _at_generation(self, draft: _Draft, uuid: str, name: str, generation: int) -> _Kept:
        if draft.get(uuid) is None:
            raise exceptions.StaleDefinition(name, "it is gone")
        kept = draft.edit(uuid)
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
            return self._change(operation, "claim", made, order.deltas, aggregate=False)

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
            return self._change(operation, "adjust", made, order.deltas, aggregate=order.aggregate)

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
            released = dataclasses.replace(self._with_names_of_today(claim), state=RELEASED)
            deltas = [Delta(h.provider_uuid, h.resource_class, -h.amount) for h in claim.held]
            return self._write(
                operation, "release", released, deltas, dict.fromkeys(_by_key(claim), 0)
            )

    def _new_claim(self, consumer: str, claim_id: str, request: str | None) -> ClaimRecord:
        now = datetime.datetime.now(datetime.UTC)
        return ClaimRecord(claim_id, consumer, str(uuids.uuid4()), now, (), HELD, request)

    def _change(
        self,
        operation: Operation,
        kind: str,
        claim: ClaimRecord,
        deltas: Iterable[Delta],
        *,
        aggregate: bool,
    ) -> ClaimRecord:
        holds = _by_key(claim)
        changes = list(deltas)
        reasons = [
            reason for delta in changes for reason in self._refusals(delta, holds, aggregate)
        ]
        if reasons:
            raise CapacityException.of(reasons)
        for delta in changes:
            key = (delta.provider_uuid, delta.resource_class)
            holds[key] = holds.get(key, 0) + delta.amount
        held = tuple(self._held(holds))
        changed = dataclasses.replace(claim, held=held, state=HELD if held else RELEASED)
        return self._write(operation, kind, changed, changes, holds)

    def _write(
        self,
        operation: Operation,
        kind: str,
        claim: ClaimRecord,
        deltas: Iterable[Delta],
        holds: dict[_Key, int],
    ) -> ClaimRecord:
        """Commit a claim as it is now, what is used by ``deltas``, and what the consumer holds."""
        draft = _Draft(self._providers)
        for delta in deltas:
            inventories = draft.edit(delta.provider_uuid).inventories
            record = inventories[delta.resource_class]
            used = record.used + delta.amount
            inventories[delta.resource_class] = dataclasses.replace(record, used=used)
        outcome = Outcome(kind, claim.consumer, claim)
        self._commit(_Change(operation.id, outcome, draft.changed, holds=holds))
        return claim

    def _held(self, holds: dict[_Key, int]) -> Iterator[Held]:
        for (uuid, resource_class), amount in holds.items():
            if amount:
                yield Held(uuid, self._providers[uuid].name, resource_class, amount)

    def _refusals(self, delta: Delta, holds: dict[_Key, int], aggregate: bool) -> Iterator[Reason]:
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
            for reason in decision.refusals(
                record, delta.amount, kept.name, held, aggregate=aggregate
            ):
                yield self._with_holders(reason, kept)

    def _with_holders(self, reason: Reason, kept: _Kept) -> Reason:
        if reason.rule is not Rule.CAPACITY:
            return reason
        holders = self._holders.get((kept.uuid, reason.resource or ""), {})
        return decision.held_by(reason, holders.items())

    # --- operations ---

    def outcome(self, operation: Operation) -> Outcome | None:
        """Return what an operation did, None if none of that id is recorded."""
        with self._lock:
            self._check_open()
            return self._operations.get(operation.id)

    def _done(self, operation: Operation, kind: str, subject: str) -> bool:
        """Return whether the operation was done before, or raise if the id was another's."""
        known = self._operations.get(operation.id)
        if known is not None:
            known.require(operation.id, kind, subject)
        return known is not None

    def _outcome(self, operation: Operation, kind: str, subject: str) -> ClaimRecord | None:
        """Return the recorded outcome of a write about a consumer, None if it is new."""
        done = self._done(operation, kind, subject)
        return self._operations[operation.id].claim if done else None

    def _commit(self, change: _Change) -> None:
        self._pending = change  # it happened: whatever comes now, the next to come finishes it
        self._finish()

    def _finish(self) -> None:
        change = self._pending
        if change is None:
            return
        for uuid, kept in change.providers.items():
            _put(self._providers, uuid, kept)
        for name, owner in change.names.items():
            _put(self._uuid_of, name, owner)
        claim = change.outcome.claim
        if claim is not None:
            _put(self._claims, claim.consumer, claim if claim.state == HELD else None)
            for key, amount in change.holds.items():
                holders = self._holders.setdefault(key, {})
                _put(holders, claim.consumer, amount or None)
                _put(self._holders, key, holders or None)
        self._operations[change.operation] = change.outcome
        self._pending = None

    def _check_open(self) -> None:
        """Refuse if it is closed, else finish the write that an interrupt cut short, if any."""
        if self._closed:
            raise exceptions.LedgerClosed(URL)
        self._finish()


def _by_key(claim: ClaimRecord) -> dict[_Key, int]:
    return {(held.provider_uuid, held.resource_class): held.amount for held in claim.held}


def _put(table: dict[_K, _V], key: _K, value: _V | None) -> None:
    """Set a value, or drop it if it is None; twice is as good as once."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
