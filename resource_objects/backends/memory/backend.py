"""The backend in memory: the lock, and the one assignment that makes a write happen."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, Self

from resource_objects import clock, exceptions
from resource_objects.backends.memory import (
    definitions,
    reading,
    server_groups,
    statistics,
    use_over_time,
)
from resource_objects.backends.memory.state import (
    Draft,
    InventoryRow,
    Recorded,
    ShardEntry,
    State,
    UnitHolder,
    changes_after,
    cursor_of,
    forget,
    named_today,
    tell,
    touched_in,
    with_provider_names,
)
from resource_objects.providers.backend import Backend, Operation, Outcome
from resource_objects.providers.changed import Changed, Choose
from resource_objects.providers.columns import Columns
from resource_objects.providers.disabled import (
    Disabled,
    DisabledChange,
    DisableOrder,
    RemovedUnit,
)
from resource_objects.providers.feed import Cursor, FeedEntry
from resource_objects.providers.listing import (
    By,
    ConsumerFilter,
    Description,
    ListedName,
    ListedProvider,
    ProviderFilter,
    Pruned,
    Total,
)
from resource_objects.providers.orders import (
    UNLIMITED,
    ConsumerOrder,
    ConsumerRecord,
    Key,
    NameKind,
    Totals,
    Write,
)
from resource_objects.providers.removed_units import removed_of, removed_units
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.providers.settle import Place, Settled, Settlement, Unit, keys_of, settle
from resource_objects.providers.statistics import (
    StatisticFilter,
    StatisticsByProvider,
    StatisticsOrder,
    StatisticType,
)
from resource_objects.providers.use_over_time import (
    UseBy,
    UseFilter,
    UseRecording,
    UseReport,
    turns_of,
)
from resource_objects.providers.waiting import Waiter, WaiterFilter, WaitOrder

URL = "memory://"
#: how many operations are done until what is old is forgotten, and how much of it at once
EVERY, BATCH = 64, 256


class MemoryBackend(Backend):
    """Keeps a ledger in dicts. Every method holds one lock; reads copy out.

    A write works out all that it changes, which one assignment makes happen: an interrupt at any
    instruction finds it done or not begun, and what was left to put away, the next method does.
    The outcomes of operations and the change feed are kept until they are pruned, so memory grows
    with the number of writes, not only with what is kept.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._state = State()
        self._order = reading.PageOrder()
        self._pending: Draft | None = None
        self._closed = False
        definitions.add_standard(self._state)

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
            self._pending = None
            self._order = reading.PageOrder()
            self._state = State()

    # --- reading ---

    def now(self) -> datetime.datetime:
        """Return this moment, by the clock of this machine."""
        return clock.now()

    def read(self, *trees: str, allocations: bool = True) -> Columns:
        """Return everything kept, or some trees (see the contract)."""
        with self._lock:
            return reading.read_trees(self._open(), trees, allocations)

    def read_again(self, before: Columns, *trees: str) -> Columns:
        """Return trees that were read before, as they are now (see the contract)."""
        with self._lock:
            state = self._open()
            found = reading.read_use(state, before)
            return found or reading.read_trees(state, trees, allocations=True)

    def uuids(self, names: Collection[str]) -> dict[str, str]:
        """Return ``{name: uuid}`` of the providers of these names that are kept."""
        with self._lock:
            known = self._open().uuid_of
            return {name: known[name] for name in names if name in known}

    def list_providers(
        self, wanted: ProviderFilter, limit: int, after: int = 0
    ) -> tuple[ListedProvider, ...]:
        """Return a page of providers (see the contract)."""
        with self._lock:
            return reading.page_of_providers(self._open(), self._order, wanted, limit, after)

    def list_consumers(
        self, wanted: ConsumerFilter, limit: int, after: str | None = None
    ) -> tuple[ConsumerRecord, ...]:
        """Return a page of consumers (see the contract)."""
        with self._lock:
            return reading.page_of_consumers(self._open(), self._order, wanted, limit, after)

    def list_names(
        self, kind: NameKind, limit: int, after: str | None = None
    ) -> tuple[ListedName, ...]:
        """Return a page of resource classes, traits or aggregates (see the contract)."""
        with self._lock:
            return reading.page_of_names(self._open(), kind, limit, after)

    def list_server_groups(
        self, limit: int, after: str | None = None, *, names: Collection[str] | None = None
    ) -> tuple[ServerGroup, ...]:
        """Return a page of server groups with their members (see the contract)."""
        with self._lock:
            return server_groups.page(self._open(), limit, after, names)

    def totals(self, wanted: ConsumerFilter, by: By) -> tuple[Total, ...]:
        """Return what the consumers of a filter use (see the contract)."""
        with self._lock:
            return reading.totals_of_consumers(self._open(), self._order, wanted, by)

    def count_consumers(self, wanted: ConsumerFilter, by: Description) -> Mapping[str | None, int]:
        """Return how many consumers of a filter there are (see the contract)."""
        with self._lock:
            return reading.counts_of_consumers(self._open(), self._order, wanted, by)

    def held(self, consumer: str) -> ConsumerRecord | None:
        """Return what a consumer holds, None if nothing."""
        return self.held_by([consumer]).get(consumer)

    def held_by(self, consumers: Collection[str]) -> dict[str, ConsumerRecord]:
        """Return what several consumers hold, by name."""
        with self._lock:
            state = self._open()
            return {
                name: named_today(state, state.claims[name])
                for name in consumers
                if name in state.claims
            }

    def outcome(self, operation: Operation) -> Outcome | None:
        """Return what an operation did, None if none of that id is recorded."""
        with self._lock:
            done = self._open().operations.get(operation.id)
            return None if done is None else done.outcome

    def cursor(self) -> Cursor:
        """Return where the change feed is now."""
        with self._lock:
            return cursor_of(self._open())

    def changes(self, after: Cursor, limit: int) -> tuple[FeedEntry, ...]:
        """Return changes after a cursor (see the contract)."""
        with self._lock:
            return changes_after(self._open(), after, limit)

    def read_changed(self, after: Cursor, most: int, choose: Choose) -> Changed:
        """Return the trees that were touched after a cursor (see the contract)."""
        with self._lock:
            state = self._open()
            now = cursor_of(state)
            waiting = after.waiting(now)
            count = sum(waiting.values())
            keys = choose(touched_in(state, after, waiting)) if count <= most else None
            columns = None if keys is None else reading.read_trees_of(state, keys)
            return Changed(now, count, columns)

    # --- waiting ---

    def wait(self, order: WaitOrder) -> Waiter:
        """Put a consumer into the queue, or keep it there (see the contract)."""
        with self._lock:
            state = self._open()
            now = clock.now()
            there = {
                name: kept for name, kept in state.waiters.items() if kept[1].lease_until >= now
            }
            ends = now + order.lease
            entry, known = there.get(order.consumer, ("", None))
            if known is not None and known.awaits == order.awaits:
                waiter = dataclasses.replace(known, lease_until=ends)
                there[order.consumer] = entry if order.renews else order.entry, waiter
            else:
                there.pop(order.consumer, None)  # so that it comes last
                number = next(state.waiter_numbers)
                waiter = Waiter(number, order.consumer, order.awaits, now, ends, order.actor)
                there[order.consumer] = order.entry, waiter
            state.waiters = there
            return waiter

    def list_waiters(self, wanted: WaiterFilter, limit: int, after: int = 0) -> tuple[Waiter, ...]:
        """Return a page of those in the queue (see the contract)."""
        with self._lock:
            there = [one for _, one in self._open().waiters.values()]
        now = clock.now()
        found = (
            one
            for one in there
            if one.number > after
            and one.lease_until >= now
            and (wanted.upto is None or one.number <= wanted.upto)
            and (
                wanted.awaits is None
                or any(mine.meets(its) for mine in wanted.awaits for its in one.awaits)
            )
        )
        return tuple(itertools.islice(found, limit))

    def leave(self, entry: str) -> None:
        """Take whoever entered last by an entry out of the queue."""
        with self._lock:
            state = self._open()
            there = {name: kept for name, kept in state.waiters.items() if kept[0] != entry}
            state.waiters = there

    # --- statistics ---

    def put_statistics(self, order: StatisticsOrder) -> int:
        """Keep what a source says of some providers (see the contract)."""
        with self._lock:
            draft = Draft(self._open())
            count = statistics.put(draft, order)
            self._make(draft)
            return count

    def read_statistics(self, wanted: StatisticFilter) -> StatisticsByProvider:
        """Return the statistics of a filter (see the contract)."""
        with self._lock:
            return statistics.read(self._open(), wanted)

    def statistic_types(self) -> tuple[StatisticType, ...]:
        """Return the statistics that are declared, by name."""
        with self._lock:
            types = self._open().statistic_types
            return tuple(types[name] for name in sorted(types))

    def forget_statistics(self, wanted: StatisticFilter) -> int:
        """Forget the statistics of a filter (see the contract)."""
        with self._lock:
            draft = Draft(self._open())
            count = statistics.forget(draft, wanted)
            self._make(draft)
            return count

    # --- writing ---

    def commit(self, write: Write) -> tuple[ConsumerRecord, ...]:
        """Carry out a write, whole or not at all (see the contract)."""
        with self._lock:
            state = self._open()
            done = state.operations.get(write.operation.id)
            if done is not None:
                done.outcome.require(write.operation.id, write.kind, write.subject)
                return done.outcome.claims
            draft = Draft(state)
            write.operation.require_known(draft.now, state.retention)
            claims = _work_out(draft, write)
            self._make(draft)
            turns = turns_of(len(write.orders), EVERY, draft.number)
            if draft.number % EVERY == 0:
                draft = Draft(state)
                forget(state, draft, draft.now - state.retention, BATCH)
                self._make(draft)
            known = use_over_time.recording(state)
            if turns and known is not None:
                draft = Draft(state)
                most = turns * use_over_time.BATCH
                use_over_time.forget(state, draft, draft.now - known.keep, most)
                self._make(draft)
            return claims

    def retain(self, age: datetime.timedelta) -> None:
        """Keep operations and changes for so long from now on (see the contract)."""
        with self._lock:
            self._open().retention = age

    def prune(self, before: datetime.datetime) -> Pruned:
        """Forget what is older than a moment (see the contract)."""
        with self._lock:
            state = self._open()
            draft = Draft(state)
            pruned = forget(state, draft, before)
            self._make(draft)
            return pruned

    # --- use over time ---

    def record_use(self, keep: datetime.timedelta | None) -> None:
        """Record use over time from now on, or no more (see the contract)."""
        with self._lock:
            state = self._open()
            draft = Draft(state)
            use_over_time.switch(state, draft, keep)
            self._make(draft)

    def use_recording(self) -> UseRecording | None:
        """Return whether use over time is recorded."""
        with self._lock:
            return use_over_time.recording(self._open())

    def use_between(
        self,
        since: datetime.datetime,
        until: datetime.datetime | None,
        wanted: UseFilter,
        by: Sequence[UseBy],
    ) -> UseReport:
        """Return what was used between two moments (see the contract)."""
        with self._lock:
            return use_over_time.between(self._open(), since, until, wanted, by)

    def _make(self, draft: Draft) -> None:
        self._pending = draft  # it happened: whatever comes now, the next to come finishes it
        self._finish()

    def _finish(self) -> None:
        draft = self._pending
        if draft is None:
            return
        self._order.forget(
            providers=draft.providers.changes_keys(), consumers=draft.claims.changes_keys()
        )
        draft.apply()
        self._pending = None

    def _open(self) -> State:
        """Return what is kept, having finished a write that an interrupt cut short."""
        if self._closed:
            raise exceptions.LedgerClosed(URL)
        self._finish()
        return self._state


def _work_out(draft: Draft, write: Write) -> tuple[ConsumerRecord, ...]:
    """Put all that a write changes into a draft, or raise."""
    _check_unchanged(draft, write)
    for change in write.names:
        definitions.change_name(draft, change)
    for one in write.groups:
        server_groups.change(draft, one)
    if write.definitions is not None:
        definitions.begin_definitions(draft, write.definitions)
    for uuid in write.reported:
        _note(draft, uuid, "reported_at")
    for uuid in write.adopted:
        _note(draft, uuid, "adopted_at")
    for order in write.disabling:
        _disable(draft, order, write)
    claims = carry_out(draft, write.orders, write.limits)
    if write.definitions is not None:
        definitions.end_definitions(draft, write.definitions)
    if draft.providers.changed:
        draft.note_bearers()
    draft.touch_renamed()
    outcome = Outcome(write.kind, write.subject, claims)
    kept_from = write.operation.kept_from(draft.now)
    draft.operations.put(write.operation.id, Recorded(draft.number, kept_from, outcome))
    tell(draft, write)
    return claims


def _check_unchanged(draft: Draft, write: Write) -> None:
    for uuid, generation in write.unchanged:
        kept = draft.providers.get(uuid)
        if kept is None:
            raise exceptions.StaleDefinition(uuid, "it is gone")
        definitions.check_generation(kept, kept.name, generation)


def _note(draft: Draft, uuid: str, what: Literal["reported_at", "adopted_at"]) -> None:
    """Note the time at a provider; that of an adoption stays as it was noted first."""
    kept = draft.providers.get(uuid)
    if kept is None:
        raise exceptions.ProviderNotFound(uuid)
    if what == "reported_at":
        kept = dataclasses.replace(kept, reported_at=draft.now)
    else:
        kept = dataclasses.replace(kept, adopted_at=kept.adopted_at or draft.now)
    draft.providers.put(uuid, kept)
    draft.of_tree(uuid).reports.add(uuid)


def _disable(draft: Draft, order: DisableOrder, write: Write) -> None:
    uuid, by = order.provider_uuid, write.operation.actor
    provider = draft.providers.get(uuid)
    if provider is None:
        raise exceptions.ProviderNotFound(uuid)
    was = draft.disabled.get(uuid)
    now = order.carried_out(was, by, draft.now, provider.name)
    draft.disabled.put(uuid, now)
    if (was is None) != (now is None) and uuid not in write.counted:
        # others see it by a trait that comes or goes: a write by Placement's count
        provider = dataclasses.replace(provider, definition_writes=provider.definition_writes + 1)
        draft.providers.put(uuid, provider)
    draft.of_tree(uuid).disabled += (DisabledChange(uuid, now),)


# --- orders ---------------------------------------------------------------------------------------
#
# Orders carried out: what they come to is settled, then put into the draft.


def carry_out(
    draft: Draft, orders: tuple[ConsumerOrder, ...], limits: Totals = UNLIMITED
) -> tuple[ConsumerRecord, ...]:
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
        generation=draft.number,
        out_of_service=lambda uuids: _out_of_service(draft, uuids),
        removed_units=lambda uuids: _removed_units(draft, uuids),
        groups=lambda names, uuids: server_groups.places_of(draft, names, uuids),
        limits=limits,
    )
    for uuid in sorted(settlement.overridden):
        draft.of_tree(uuid).overrides += (uuid,)
    _use_inventories(draft, settlement, places)
    for settled in settlement.consumers:
        _give_back(draft, settled)
    use_over_time.record(draft, settlement.consumers)
    return tuple([_hold(draft, settled) for settled in settlement.consumers])


def _with_names(draft: Draft, claim: ConsumerRecord) -> ConsumerRecord:
    providers = draft.providers
    for held in claim.held:
        if held.provider != providers[held.provider_uuid].name:
            names = {one.provider_uuid: providers[one.provider_uuid].name for one in claim.held}
            return with_provider_names(claim, names)
    return claim


def _places(draft: Draft, keys: Iterable[Key]) -> tuple[dict[Key, Place], dict[str, str]]:
    """Return the inventories of some places and of their shares, and the providers' names."""
    places: dict[Key, Place] = {}
    names: dict[str, str] = {}
    waiting = list(keys)
    for key in waiting:  # grows while it is read: what they share
        uuid = key[0]
        if uuid not in names:
            kept = draft.providers.get(uuid)
            if kept is None:
                continue
            names[uuid] = kept.name
        row = draft.rows.get(key)
        if row is not None and key not in places:
            places[key] = Place(names[uuid], row.record, row.shares)
            waiting += [of for of, _ in row.shares]
    if draft.disabled.kept or draft.disabled.changed:
        for (uuid, _), place in places.items():
            ends = [one.ends_at for one in draft.disabled_above(uuid).values()]
            place.disabled_until = max(ends, default=None)
    for (uuid, _), place in places.items():
        kinds = draft.providers[uuid].kinds
        if kinds:
            place.removed_units = len(
                removed_units((kind.resource_class, kind.body) for kind in kinds)
            )
    return places, names


def _out_of_service(draft: Draft, uuids: Iterable[str]) -> dict[str, Disabled]:
    return {name: one for uuid in uuids for name, one in draft.disabled_above(uuid).items()}


def _removed_units(draft: Draft, uuids: Iterable[str]) -> dict[str, tuple[RemovedUnit, ...]]:
    return {
        uuid: removed_of(
            ((kind.resource_class, kind.body) for kind in draft.providers[uuid].kinds),
            draft.units.get(uuid),
        )
        for uuid in uuids
    }


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


def _use_inventories(draft: Draft, settlement: Settlement, places: Mapping[Key, Place]) -> None:
    """Write what is used of each inventory, directly and in all."""
    direct: dict[Key, int] = defaultdict(int)  # also of places where only units or holders change
    for settled in settlement.consumers:
        for change in settled.changes:
            direct[change.key] += change.after - change.before
            for of, _ in places[change.key].shares:
                direct[of] += 0
        for key in settled.stated:
            for of in (key, *(of for of, _ in places[key].shares)):
                direct[of] += 0
    nets, counted = settlement.nets, settlement.counted(places)
    for key, more in direct.items():
        row, net = draft.rows[key], nets.get(key, 0)
        record = row.record.using(row.record.used + net) if net else row.record
        writes = row.writes + (key in counted)
        draft.rows.put(key, InventoryRow(record, row.direct + more, writes, row.shares))


def _give_back(draft: Draft, settled: Settled) -> None:
    if settled.is_gone:
        draft.claim_ids.put(settled.claim.uuid, None)
    for change in settled.changes:
        for unit in change.given:
            draft.units.put(change.key[0], unit, None)


def _hold(draft: Draft, settled: Settled) -> ConsumerRecord:
    """Write what a consumer holds; return its claim."""
    claim = settled.claim
    if claim.group is not None:
        server_groups.keep_member(draft, settled)
    draft.claims.put(claim.consumer, None if settled.is_gone else claim)
    if not settled.is_gone:
        if draft.claim_ids.get(claim.uuid) not in (None, claim.consumer):
            raise exceptions.OperationConflict(claim.uuid, "a claim of this id exists")
        draft.claim_ids.put(claim.uuid, claim.consumer)
    if not settled.changes:
        for held in claim.held:
            draft.of_tree(held.provider_uuid).claims.add(claim.consumer)
    told: dict[str, ShardEntry] = {}  # by provider
    for change in settled.changes:
        uuid = change.key[0]
        if uuid not in told:
            told[uuid] = draft.of_tree(uuid)
        told[uuid].uses.append(change)
        draft.holders.put(change.key, claim.consumer, change.after or None)
        for unit in change.taken:
            draft.units.put(uuid, unit, UnitHolder(claim.consumer, change.key[1]))
    return claim
