"""What is kept in memory: immutable things in dicts."""

from __future__ import annotations

import dataclasses
import datetime
import heapq
import itertools
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from resource_objects import clock
from resource_objects._fast import set_directly
from resource_objects.providers.backend import RETENTION
from resource_objects.providers.changed import Touched
from resource_objects.providers.disabled import Disabled, DisabledChange
from resource_objects.providers.feed import SHARDS, Cursor, FeedEntry, shard_of
from resource_objects.providers.listing import ListedName, Pruned
from resource_objects.providers.orders import Change, ConsumerRecord, Key, NameKind, Outcome, Write
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.providers.statistics import KeptStatistic, StatisticType
from resource_objects.providers.use_over_time import UseInterval, UseRecording
from resource_objects.providers.waiting import Waiter
from resource_objects.resources.records import InventoryRecord, KindRecord


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderRow:
    """A provider as kept. ``classes`` are those of its inventories, in the order they came.

    ``generation`` is the number of the write that defined it last: none is given again, also not to
    a provider that is made again with its uuid.
    """

    number: int
    uuid: str
    name: str
    parent_uuid: str | None
    traits: frozenset[str]
    aggregates: frozenset[str]
    classes: tuple[str, ...] = ()
    kinds: tuple[KindRecord, ...] = ()
    generation: int = 0
    reported_at: datetime.datetime | None = None
    adopted_at: datetime.datetime | None = None
    writes: int = 0  #: of allocations, counted at inventories that are gone
    definition_writes: int = 0  #: as Placement counts them


@set_directly
@dataclasses.dataclass(frozen=True, slots=True)
class InventoryRow:
    """An inventory as kept: its figures with all that is used, and what is used of it directly.

    ``writes`` counts the writes of allocations that are counted here, each at one inventory of its
    provider; ``shares`` are ``(key, factor)``.
    """

    record: InventoryRecord
    direct: int = 0
    writes: int = 0
    shares: tuple[tuple[Key, int], ...] = ()


class Recorded(NamedTuple):
    """An operation that was done; ``at`` is from when on it is kept."""

    number: int
    at: datetime.datetime
    outcome: Outcome


class UnitHolder(NamedTuple):
    """Who has a unit, and of which class it is."""

    consumer: str
    resource_class: str


NameKey: TypeAlias = tuple[NameKind, str]

_NO_TRAITS = frozenset[str]()


def _from_one() -> itertools.count[int]:
    return itertools.count(1)


def _top(providers: Mapping[str, ProviderRow] | Table[str, ProviderRow], uuid: str) -> ProviderRow:
    kept = providers[uuid]
    while kept.parent_uuid is not None:
        kept = providers[kept.parent_uuid]
    return kept


@dataclasses.dataclass(slots=True)
class State:
    """Everything a ledger keeps."""

    names: dict[NameKey, ListedName] = dataclasses.field(default_factory=dict)
    providers: dict[str, ProviderRow] = dataclasses.field(
        default_factory=dict
    )  # in order of creation
    uuid_of: dict[str, str] = dataclasses.field(default_factory=dict)  # by name
    children: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    bearers: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)  # of each trait
    rows: dict[Key, InventoryRow] = dataclasses.field(default_factory=dict)
    sharers: dict[Key, dict[Key, int]] = dataclasses.field(default_factory=dict)  # {of: {by: k}}
    claims: dict[str, ConsumerRecord] = dataclasses.field(default_factory=dict)  # by consumer
    claim_ids: dict[str, str] = dataclasses.field(default_factory=dict)  # whose each claim is
    holders: dict[Key, dict[str, int]] = dataclasses.field(default_factory=dict)
    units: dict[str, dict[str, UnitHolder]] = dataclasses.field(default_factory=dict)  # by provider
    operations: dict[str, Recorded] = dataclasses.field(default_factory=dict)
    changes: dict[int, dict[int, FeedEntry]] = dataclasses.field(default_factory=dict)  # by shard
    heads: dict[int, int] = dataclasses.field(default_factory=dict)
    last: dict[int, int] = dataclasses.field(default_factory=dict)  # operation at each head
    cursor: Cursor | None = None  # where the feed is; None: nobody has looked since the last write
    disabled: dict[str, Disabled] = dataclasses.field(default_factory=dict)  # by provider
    removed_disabled: dict[str, dict[str, Disabled]] = dataclasses.field(
        default_factory=dict
    )  # removed providers that were disabled, by host and name
    waiters: dict[str, tuple[str, Waiter]] = dataclasses.field(
        default_factory=dict
    )  # (entry, waiter) by consumer, by number
    statistics: dict[str, dict[str, KeptStatistic]] = dataclasses.field(
        default_factory=dict
    )  # by provider and name
    statistic_types: dict[str, StatisticType] = dataclasses.field(default_factory=dict)  # by name
    server_groups: dict[str, ServerGroup] = dataclasses.field(default_factory=dict)  # by name
    members: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)  # of each of these
    use_recording: dict[str, UseRecording] = dataclasses.field(default_factory=dict)  # one, or none
    open_use: dict[str, dict[str, UseInterval]] = dataclasses.field(
        default_factory=dict
    )  # by consumer and class
    ended_use: dict[int, UseInterval] = dataclasses.field(default_factory=dict)  # as they ended
    retention: datetime.timedelta = RETENTION
    epoch: int = dataclasses.field(default_factory=lambda: secrets.randbits(62) + 1)
    # numbers are given out once, whatever becomes of the write
    provider_numbers: itertools.count[int] = dataclasses.field(default_factory=_from_one)
    name_numbers: itertools.count[int] = dataclasses.field(default_factory=_from_one)
    operation_numbers: itertools.count[int] = dataclasses.field(default_factory=_from_one)
    waiter_numbers: itertools.count[int] = dataclasses.field(default_factory=_from_one)
    interval_numbers: itertools.count[int] = dataclasses.field(default_factory=_from_one)

    def top(self, uuid: str) -> ProviderRow:
        """Return the root of the tree of a provider, which is there."""
        return _top(self.providers, uuid)

    def find(self, key: str) -> ProviderRow | None:
        """Return the provider of a name, or else of a uuid."""
        return self.providers.get(self.uuid_of.get(key, key))

    def roots(self, keys: Iterable[str]) -> list[ProviderRow]:
        """Return the roots of the trees of some providers, by name or uuid; each once."""
        found = (self.find(key) for key in keys)
        return list(
            {top.uuid: top for k in found if k is not None for top in [self.top(k.uuid)]}.values()
        )

    def disabled_now(self) -> dict[str, Disabled]:
        """Return why providers are out of service themselves, by uuid."""
        if not self.disabled:
            return self.disabled
        now = clock.now()
        return {uuid: one for uuid, one in self.disabled.items() if one.ends_at > now}

    def below(self, root: ProviderRow) -> Iterator[ProviderRow]:
        """Yield a provider and all below it, parents before children."""
        waiting = [root]
        for kept in waiting:  # grows while it is read: breadth first
            yield kept
            waiting += [self.providers[uuid] for uuid in self.children.get(kept.uuid, ())]


def named_today(state: State, claim: ConsumerRecord) -> ConsumerRecord:
    """Return a claim with the names its providers have now."""
    names = {held.provider_uuid: state.providers[held.provider_uuid].name for held in claim.held}
    return with_provider_names(claim, names)


def with_provider_names(claim: ConsumerRecord, names: Mapping[str, str]) -> ConsumerRecord:
    """Return a claim that calls its providers by these names."""
    if all(held.provider == names[held.provider_uuid] for held in claim.held):
        return claim
    held = tuple(dataclasses.replace(h, provider=names[h.provider_uuid]) for h in claim.held)
    return dataclasses.replace(claim, held=held)


# --- tables ---------------------------------------------------------------------------------------
#
# Changes laid over what is kept, as one write will leave it.
#
# Nothing kept changes before ``apply``, which can be done twice: so an interrupt in the middle of
# it only means to do it again.


_K = TypeVar("_K")
_I = TypeVar("_I")
_V = TypeVar("_V")


class Table(Generic[_K, _V]):
    """A dict as a write will leave it; None is gone."""

    __slots__ = ("changed", "kept")

    def __init__(self, kept: dict[_K, _V]) -> None:
        self.kept = kept
        self.changed: dict[_K, _V | None] = {}

    def get(self, key: _K) -> _V | None:
        """Return what will be there."""
        return self.changed[key] if key in self.changed else self.kept.get(key)

    def __getitem__(self, key: _K) -> _V:
        found = self.changed[key] if key in self.changed else self.kept.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def put(self, key: _K, value: _V | None) -> None:
        """Set a value, or drop it if it is None."""
        self.changed[key] = value

    def items(self) -> Iterator[tuple[_K, _V]]:
        """Yield everything that will be there. Cost: linear in what is kept."""
        for key in {**self.kept, **self.changed}:
            value = self.get(key)
            if value is not None:
                yield key, value

    def changes_keys(self) -> bool:
        """Whether something comes or goes."""
        kept = self.kept
        for key, value in self.changed.items():  # noqa: SIM110  # asked twice by every claim
            if value is None or key not in kept:
                return True
        return False

    def apply(self) -> None:
        """Make it so; twice is as good as once."""
        _lay(self.kept, self.changed)


class NestedTable(Generic[_K, _I, _V]):
    """A dict of dicts as a write will leave it; None is gone, empty dicts are too."""

    __slots__ = ("changed", "kept")

    def __init__(self, kept: dict[_K, dict[_I, _V]]) -> None:
        self.kept = kept
        self.changed: dict[_K, dict[_I, _V | None]] = {}

    def get(self, key: _K) -> dict[_I, _V]:
        """Return a copy of what will be there. Cost: linear in it."""
        found = dict(self.kept.get(key, {}))
        _lay(found, self.changed.get(key, {}))
        return found

    def one(self, key: _K, inner: _I) -> _V | None:
        """Return one value that will be there."""
        changed = self.changed.get(key, {})
        return changed[inner] if inner in changed else self.kept.get(key, {}).get(inner)

    def put(self, key: _K, inner: _I, value: _V | None) -> None:
        """Set a value, or drop it if it is None."""
        self.changed.setdefault(key, {})[inner] = value

    def apply(self) -> None:
        """Make it so; twice is as good as once."""
        for key, changed in self.changed.items():
            kept = self.kept.get(key)
            if kept is None:
                kept = self.kept[key] = {}
            _lay(kept, changed)
            if not kept:
                del self.kept[key]


def _lay(table: dict[_K, _V], changed: Mapping[_K, _V | None]) -> None:
    for key, value in changed.items():
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value


# --- draft ----------------------------------------------------------------------------------------
#
# The draft that a write works on: all of it, before any of it happens.


class Draft:
    """What is kept as one write will leave it, and which keys the feed will name."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.now = clock.now()
        self.number = next(state.operation_numbers)
        self.names = Table(state.names)
        self.providers = Table(state.providers)
        self.uuid_of = Table(state.uuid_of)
        self.children = NestedTable(state.children)
        self.bearers = NestedTable(state.bearers)
        self.rows = Table(state.rows)
        self.sharers = NestedTable(state.sharers)
        self.claims = Table(state.claims)
        self.claim_ids = Table(state.claim_ids)
        self.holders = NestedTable(state.holders)
        self.units = NestedTable(state.units)
        self.operations = Table(state.operations)
        self.changes = NestedTable(state.changes)
        self.heads = Table(state.heads)
        self.last = Table(state.last)
        self.disabled = Table(state.disabled)
        self.removed_disabled = NestedTable(state.removed_disabled)
        self.statistics = Table(state.statistics)  # of one provider all or nothing
        self.statistic_types = Table(state.statistic_types)
        self.use_recording = Table(state.use_recording)
        self.open_use = Table(state.open_use)
        self.server_groups = Table(state.server_groups)
        self.members = NestedTable(state.members)
        self.ended_use = Table(state.ended_use)
        self._tables: tuple[Table[Any, Any] | NestedTable[Any, Any, Any], ...] = (
            *(self.names, self.providers, self.uuid_of, self.children, self.bearers),
            *(self.rows, self.sharers),
            *(self.claims, self.claim_ids, self.holders, self.units, self.operations),
            *(self.changes, self.heads, self.last, self.disabled, self.removed_disabled),
            *(self.use_recording, self.open_use, self.ended_use),
            *(self.statistics, self.statistic_types, self.server_groups, self.members),
        )
        self.told: dict[int, ShardEntry] = {}  #: by shard
        #: uuids of providers whose definition says a name that is another now
        self.renamed: set[str] = set()

    def apply(self) -> None:
        """Make it so; twice is as good as once."""
        self.state.cursor = None
        for table in self._tables:
            if table.changed:
                table.apply()

    def top(self, uuid: str) -> ProviderRow:
        """Return the root of the tree of a provider, which is there."""
        return _top(self.providers, uuid)

    def disabled_above(self, uuid: str) -> dict[str, Disabled]:
        """Return what is disabled of a provider, which is there, and of all above it, by name."""
        found: dict[str, Disabled] = {}
        at: str | None = uuid
        while at is not None:
            kept, one = self.providers[at], self.disabled.get(at)
            if one is not None and one.ends_at > self.now:
                found[kept.name] = one
            at = kept.parent_uuid
        return found

    def bumped(self, kept: ProviderRow) -> ProviderRow:
        """Return a provider at the generation of this write."""
        return dataclasses.replace(kept, generation=self.number)

    def rename(self, kept: ProviderRow) -> None:
        """Put a provider whose definition says another name now at its next generation."""
        self.providers.put(kept.uuid, self.bumped(kept))
        self.renamed.add(kept.uuid)

    def note_bearers(self) -> None:
        """Note which providers have a trait, or have it no more, as the write leaves them."""
        for uuid, now in self.providers.changed.items():
            before = self.providers.kept.get(uuid)
            had = _NO_TRAITS if before is None else before.traits
            has = _NO_TRAITS if now is None else now.traits
            for trait in had - has:
                self.bearers.put(trait, uuid, None)
            if now is not None:
                for trait in has - had:
                    self.bearers.put(trait, uuid, now.number)

    def touch_renamed(self) -> None:
        """Note whom a rename touched, if the same write does more; alone it names nobody."""
        if self.told:
            for uuid in self.renamed:
                if self.providers.get(uuid) is not None:
                    self.touch(uuid)

    def touch(self, uuid: str, root: int | None = None) -> None:
        """Note that the definition of a provider, which is there, is changed.

        :param root: number of the root it has or had, where that is not the one it has now
        """
        self.of_tree(uuid, root).definitions.add(uuid)

    def of_tree(self, uuid: str, root: int | None = None) -> ShardEntry:
        """Return what is told to the tree of a provider."""
        number = self.top(uuid).number if root is None else root
        shard = shard_of(number)
        told = self.told.get(shard)
        if told is None:
            told = self.told[shard] = ShardEntry()
        return told


@dataclasses.dataclass(slots=True)
class ShardEntry:
    """What one shard of the feed is told of a write."""

    uses: list[Change] = dataclasses.field(default_factory=list)
    definitions: set[str] = dataclasses.field(default_factory=set)
    reports: set[str] = dataclasses.field(default_factory=set)
    claims: set[str] = dataclasses.field(default_factory=set)
    # nothing is made for these, for nearly no write has any
    disabled: tuple[DisabledChange, ...] = ()
    overrides: tuple[str, ...] = ()


# --- feed -----------------------------------------------------------------------------------------
#
# The change feed in memory: told with every write, read on from a cursor, forgotten when old.


def tell(draft: Draft, write: Write) -> None:
    """Add what a write changed to the feed, one entry for each shard."""
    operation = write.operation
    for shard, told in (draft.told or {0: ShardEntry()}).items():
        number = (draft.heads.get(shard) or 0) + 1
        draft.heads.put(shard, number)
        draft.last.put(shard, draft.number)
        entry = FeedEntry(
            shard,
            number,
            draft.now,
            operation.id,
            write.kind,
            write.subject,
            operation.actor,
            draft.number,
            tuple(told.uses),
            tuple(sorted(told.definitions)),
            tuple(sorted(told.reports)),
            tuple(sorted(told.claims)),
            told.disabled,
            told.overrides,
        )
        draft.changes.put(shard, number, entry)


def cursor_of(state: State) -> Cursor:
    """Return where the feed is. Cost: linear in the shards, once after each write."""
    if state.cursor is None:
        each, nothing = range(SHARDS), itertools.repeat(0)
        heads, last = map(state.heads.get, each, nothing), map(state.last.get, each, nothing)
        state.cursor = Cursor(tuple(heads), tuple(last), state.epoch)
    return state.cursor


def changes_after(state: State, after: Cursor, limit: int) -> tuple[FeedEntry, ...]:
    """Return entries after a cursor, the oldest first, each shard in its order.

    Cost: linear in those returned.
    """
    parts = [_of_shard(state, after, shard) for shard in after.waiting(cursor_of(state))]
    merged = heapq.merge(*parts, key=lambda entry: entry.at)
    return tuple(itertools.islice(merged, limit))


def touched_in(state: State, after: Cursor, shards: Iterable[int]) -> Touched:
    """Return whom the entries of shards after a cursor touched. Cost: linear in these entries."""
    return Touched.of(entry for shard in shards for entry in _of_shard(state, after, shard))


def _of_shard(state: State, after: Cursor, shard: int) -> list[FeedEntry]:
    told = state.changes.get(shard, {})
    first, upto = after.heads[shard], state.heads[shard]
    here = {n: told[n].generation for n in range(max(1, first), upto + 1) if n in told}
    after.check(shard, here, upto)
    return [told[number] for number in range(first + 1, upto + 1)]


def forget(
    state: State, draft: Draft, before: datetime.datetime, most: int | None = None
) -> Pruned:
    """Forget operations and entries older than a moment, at most so many operations.

    The last entry of each shard stays: it tells which history it is. Cost: linear in what is
    forgotten.
    """
    stay = set(state.last.values())
    old = itertools.takewhile(lambda one: one[1].at < before, state.operations.items())
    operations = [id for id, done in itertools.islice(old, most) if done.number not in stay]
    for id in operations:
        draft.operations.put(id, None)
    count = 0
    for shard, told in state.changes.items():
        # from the oldest on, so that what is left has no gap
        old_entries = itertools.takewhile(lambda one: one[1].at < before, told.items())
        for number, _ in itertools.islice(old_entries, most):
            if number < state.heads[shard]:
                draft.changes.put(shard, number, None)
                count += 1
    return Pruned(len(operations), count)
