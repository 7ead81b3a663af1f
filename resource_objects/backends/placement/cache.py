"""The cached states of the providers of a Placement.

Placement has no change feed. It has a list of all providers with their generations, which its
writes raise. So a *refresh* is one request for that list, and four more for each provider that is
new, is at another generation, has another name or parent, or was invalidated by a write of this
process. Changes that raise no generation and are not in the list are missed: aggregates that were
set below microversion 1.19, and allocations that were released by ``DELETE /allocations`` or by a
write that moved a consumer to other providers. Until the provider is written again, or
:meth:`ProviderCache.invalidate` lets the next refresh read everything, the cached use of such a
provider is too high, and never too low.

Each provider is consistent in itself (:meth:`ProviderCache.read_states`); all providers together
are not.

The cache has versions, which are counted in this process. Snapshots of a ledger are refreshed by
them. They do not show the writes of others, so no snapshot is called fresh by them.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
import secrets
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from resource_objects import exceptions, names
from resource_objects.backends.placement import codec
from resource_objects.backends.placement.client import Client
from resource_objects.providers.backend import Changed, Choose, Touched
from resource_objects.providers.columns import Columns
from resource_objects.providers.disabled import TRAIT, Disabled
from resource_objects.providers.feed import SHARDS, Cursor
from resource_objects.providers.orders import ConsumerRecord, Use
from resource_objects.resources.records import InventoryRecord
from resource_objects.store.columns import columns_of, roots_of_all
from resource_objects.store.rows import InventoryRow, ProviderRow, Rows

#: How often a provider is read until its definition is the same twice.
TRIES = 10
#: The number of trees above which the list of all providers is requested instead.
FEW_TREES = 8
#: The number of removed providers to remember; beyond it snapshots are built anew.
_MAX_REMOVED = 100_000

_DISABLED = Disabled(reason=f"it has {TRAIT}", since=codec.EPOCH)


class ListedEntry(NamedTuple):
    """A provider as a list of Placement reports it."""

    uuid: str
    name: str
    generation: int
    parent_uuid: str | None
    root_uuid: str


@dataclasses.dataclass(frozen=True, slots=True)
class ProviderState:
    """A provider at one moment: its list entry, its definition and its allocations.

    ``allocations`` are amounts by resource class, by the uuid of the consumer.
    """

    entry: ListedEntry
    records: tuple[InventoryRecord, ...]
    traits: frozenset[str]
    aggregates: frozenset[str]
    allocations: Mapping[str, Mapping[str, int]]


class ProviderCache:
    """The states of providers as they were read last. Safe for use by several threads.

    Rows and columns are computed from the states that a method returned, independently
    of what other threads store meanwhile.
    """

    def __init__(
        self, client: Client, consumers: codec.UuidNames, aggregates: codec.UuidNames
    ) -> None:
        self._client = client
        self._consumers = consumers
        self._aggregates = aggregates
        self._refreshing = threading.Lock()
        self._begun = self._ended = 0  #: numbers of refreshes
        self._lock = threading.Lock()  #: of the following attributes
        self._states: dict[str, ProviderState] = {}
        self._invalid: set[str] | None = None  #: uuids of providers to read again; None: all
        self._numbers: dict[str, int] = {}
        self._next_number = itertools.count(1)
        self._epoch, self._version = secrets.randbits(62) | 1, 0
        self._changed_at: dict[str, int] = {}

    # --- reading from Placement ---

    def refresh(self) -> None:
        """Read all changes that were written before this call, as far as the list shows them.

        Cost: one request, and four for each provider to read. Threads that wait for the refresh of
        another thread use the first one that began after their call.
        """
        begun_before = self._begun
        with self._refreshing:
            if self._ended > begun_before:
                return
            self._begun += 1
            with self._lock:
                invalid, self._invalid = self._invalid, set()
                cached = {} if invalid is None else self._states
            try:
                entries = self.entries()
                states = self.read_states(
                    entry
                    for entry in entries
                    if entry.uuid not in cached
                    or cached[entry.uuid].entry != entry
                    or entry.uuid in (invalid or ())
                )
            except BaseException:
                self.invalidate(invalid)
                raise
            self._store(states, {entry.uuid for entry in entries}, None)
            self._ended = self._begun

    def invalidate(self, uuids: Iterable[str] | None = None) -> None:
        """Let the next refresh read some providers; None: everything."""
        with self._lock:
            if uuids is None:
                self._invalid = None
            elif self._invalid is not None:
                self._invalid.update(uuids)

    def entries(self, **query: str) -> list[ListedEntry]:
        """Return the list of the providers that match a query. One request."""
        return self._client.get(
            "/resource_providers",
            lambda body: [ListedEntry(*_ENTRY(entry)) for entry in body["resource_providers"]],
            query,
        )

    def uuid_of(self, name: str) -> str | None:
        """Return the uuid of the provider of a name, None if there is none. One request."""
        entries = self.entries(name=name)
        return entries[0].uuid if entries else None

    def entries_of_trees(self, keys: Collection[str]) -> list[ListedEntry]:
        """Return the entries of the trees of some providers, by name or uuid; each tree once.

        Cost: one or two requests for each, or one for all providers if there are many.
        """
        if len(keys) > FEW_TREES:
            entries = self.entries()
            roots = {
                entry.root_uuid for entry in entries if entry.uuid in keys or entry.name in keys
            }
            return [entry for entry in entries if entry.root_uuid in roots]
        by_uuid: dict[str, ListedEntry] = {}
        for key in keys:
            uuid = names.uuid_text(key) if names.is_uuid(key) else self.uuid_of(key)
            if uuid is not None and uuid not in by_uuid:
                by_uuid.update((entry.uuid, entry) for entry in self.entries(in_tree=uuid))
        return list(by_uuid.values())

    def read_states(self, entries: Iterable[ListedEntry]) -> list[ProviderState]:
        """Read the states of some providers, without those that were removed meanwhile."""
        return list(filter(None, self._client.read_each(self._read_state, list(entries))))

    def read(self, keys: Collection[str] | None) -> tuple[list[ProviderState], Cursor]:
        """Return the present states of the trees of some providers, and their version.

        :param keys: names or uuids; None: everything, by a refresh
        """
        if keys is None:
            self.refresh()
            with self._lock:
                return list(self._states.values()), self.cursor()
        began = self._version
        states = self.read_states(self.entries_of_trees(keys))
        return states, self._store(states, {state.entry.uuid for state in states}, began)

    def _read_state(self, entry: ListedEntry) -> ProviderState | None:
        """Read one provider as it was at one moment, None if it was removed. Four requests.

        While others write it, the four parts are of several generations. Then the definition is
        read again. If it is unchanged, it was the same when the allocations were read, even if
        those are written all the time.
        """
        definition, generations = self._definition(entry)
        for _ in range(TRIES):
            allocations, generation = self._part(entry, "allocations")
            is_consistent = generations == {generation}
            if not is_consistent:
                before, (definition, generations) = definition, self._definition(entry)
                is_consistent = generations == {generation} or definition == before
            if definition is None or allocations is None:
                return None
            if is_consistent:
                inventories, traits, aggregates = definition
                used: Counter[str] = Counter()
                for amounts in allocations.values():
                    used.update(amounts)
                records = tuple(
                    codec.inventory_from_placement(name, figures, used[name], entry.name)
                    for name, figures in inventories.items()
                )
                entry = entry._replace(generation=generation)
                return ProviderState(entry, records, traits, aggregates, allocations)
        detail = f"the definition of {entry.name} changes all the time"
        raise exceptions.DatabaseError("busy", self._client.service, detail)

    def _definition(self, entry: ListedEntry) -> tuple[list[Any] | None, set[int]]:
        """Return the inventories, traits and aggregates of a provider, and their generations."""
        parts = [self._part(entry, name) for name in ("inventories", "traits", "aggregates")]
        values = [value for value, _ in parts]
        return None if None in values else values, {generation for _, generation in parts}

    def _part(self, entry: ListedEntry, name: str) -> tuple[Any, int]:
        """Return one part of a provider (None: it was removed), and the generation before it."""
        path = f"/resource_providers/{entry.uuid}/{name}"
        answer = self._client.read(path)
        if answer.is_missing:
            return None, -1
        return self._client.parsed(
            path,
            answer,
            lambda body: (_PARSE[name](body[name]), int(body["resource_provider_generation"])),
        )

    def name_of(self, uuid: str) -> str | None:
        """Return the name of a provider, None if it does not exist. No request if it is cached."""
        state = self._states.get(uuid)
        if state is not None:
            return state.entry.name
        path = f"/resource_providers/{uuid}"
        answer = self._client.read(path)
        if answer.is_missing:
            return None
        return self._client.parsed(path, answer, lambda body: str(body["name"]))

    # --- the cached states ---

    def cursor(self, version: int | None = None) -> Cursor:
        """Return a version as a cursor, by which snapshots are refreshed; None: the present one."""
        version = self._version if version is None else version
        return Cursor((version, *[0] * (SHARDS - 1)), epoch=self._epoch)

    def changed(self, after: Cursor, most: int, choose: Choose) -> Changed:
        """Return the trees that changed after a version. No request.

        :raises Expired: if the version is of another cache
        """
        with self._lock:
            now, states = self.cursor(), self._states  # which is replaced, never changed
            if after.epoch != now.epoch or after.heads[0] > now.heads[0]:
                raise exceptions.Expired("cursor", str(after), "it is of another cache")
            uuids = {uuid for uuid, at in self._changed_at.items() if at > after.heads[0]}
        keys = choose(Touched(definitions=frozenset(uuids))) if len(uuids) <= most else None
        if keys is None:
            return Changed(now, len(uuids), None)
        roots = {states[key].entry.root_uuid for key in keys if key in states}
        trees = [state for state in states.values() if state.entry.root_uuid in roots]
        return Changed(now, len(uuids), self.columns(trees, now))

    def _store(
        self, states: Sequence[ProviderState], existing: Collection[str], began: int | None
    ) -> Cursor:
        """Cache states; return the version of which they show all changes.

        :param existing: the uuids of the providers that exist, of those in question
        :param began: the version at which the reading of some trees began. States that other
            threads stored since then stay, because they may be newer. None: all providers were read
        """
        with self._lock:
            cached, version = self._states, self._version
            seen = version if began is None else began
            newer = {uuid for uuid, at in self._changed_at.items() if at > seen}
            roots = {state.entry.root_uuid for state in states}
            changed = {
                state.entry.uuid: state
                for state in states
                if cached.get(state.entry.uuid) != state and state.entry.uuid not in newer
            }
            removed = [
                uuid
                for uuid, state in cached.items()
                if not (uuid in existing or uuid in newer)
                and (began is None or state.entry.root_uuid in roots)
            ]
            if changed or removed:
                stored = {**cached, **changed}
                for uuid in removed:
                    del stored[uuid]
                    self._numbers.pop(uuid, None)
                self._changed_at.update(dict.fromkeys((*changed, *removed), version + 1))
                self._states, self._version = stored, version + 1
                if len(self._changed_at) > len(stored) + _MAX_REMOVED:
                    self._changed_at.clear()
                    self._epoch = secrets.randbits(62) | 1
            return self.cursor(None if seen == version else seen)

    # --- states as rows of a ledger ---

    def columns(self, states: Iterable[ProviderState], cursor: Cursor) -> Columns:
        """Return the providers of whole trees as columns, with their allocations."""
        rows = self.rows(states)
        return columns_of(rows, roots_of_all(rows), cursor)

    def rows(self, states: Iterable[ProviderState]) -> Rows:
        """Return the providers of whole trees as rows, with their allocations.

        The rows of consumers have these allocations only, and no owners. Providers are numbered in
        the order in which this process first read them.
        """
        rows = Rows()
        uses: dict[str, list[Use]] = defaultdict(list)
        by_uuid = {state.entry.uuid: state for state in states}
        for uuid, state in by_uuid.items():
            entry, records = state.entry, state.records
            number = self._numbers.get(uuid) or next(self._next_number)
            provider = ProviderRow(
                self._numbers.setdefault(uuid, number),
                uuid,
                entry.name,
                entry.parent_uuid if entry.parent_uuid in by_uuid else None,
                state.traits - {TRAIT},
                frozenset(map(self._aggregates.name, state.aggregates)),
                tuple([record.resource_class for record in records]),
                generation=entry.generation,
                definition_writes=entry.generation,  # it counts the writes of both
                disabled=_DISABLED if TRAIT in state.traits else None,
            )
            rows.providers.put_unjournaled(uuid, None, provider)
            for record in records:
                key = uuid, record.resource_class
                rows.inventories.put_unjournaled(key, None, InventoryRow(record, record.used))
            for consumer, amounts in state.allocations.items():
                for name, amount in amounts.items():
                    allocation = uuid, name, self._consumers.name(consumer)
                    rows.allocations.put_unjournaled(allocation, None, amount)
                    uses[consumer].append(Use(uuid, name, amount, (), entry.name))
        for consumer, allocated in uses.items():
            name = self._consumers.name(consumer)
            claim = ConsumerRecord(consumer, name, codec.EPOCH, tuple(allocated))
            rows.consumers.put_unjournaled(name, None, claim)
        return rows


#: The keys of a provider, in the order of :class:`ListedEntry`.
_ENTRY = operator.itemgetter(
    "uuid", "name", "generation", "parent_provider_uuid", "root_provider_uuid"
)
#: The functions that parse the parts of a provider.
_PARSE: Mapping[str, Callable[[Any], Any]] = {
    "inventories": lambda body: {
        name: {key: figures[key] for key in codec.FIGURES} for name, figures in body.items()
    },
    "traits": frozenset,
    "aggregates": frozenset,
    "allocations": lambda body: {
        uuid: dict(consumer["resources"]) for uuid, consumer in body.items()
    },
}
