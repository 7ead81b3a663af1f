"""What was read of the providers, and what of it has to be read again.

Placement tells nobody what changed. What it has is the list of all providers with their
generations, which its writes raise. So a *look* is one request for that list, and four more for
each provider that is new, at another generation, under another name or in another place; or that
this process wrote to, or was refused at. What raises no generation and does not stand in the list
is missed: aggregates that were put below microversion 1.19, and what was given back by
``DELETE /allocations`` or by a write that moved a consumer elsewhere. Until the provider is written
again, or :meth:`Picture.forget` makes the next look read everything, more seems to be used than is;
never less.

Each provider is of one moment (:meth:`Picture.read_each`); all of them together are not.

Between looks the picture has versions, counted in this process. They are what the snapshots of a
ledger go by; as they say nothing of what others wrote, nothing calls a snapshot fresh by them.
"""

from __future__ import annotations

import dataclasses
import itertools
import secrets
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from resource_objects import exceptions, names
from resource_objects.backends.placement import words
from resource_objects.backends.placement.client import Client
from resource_objects.providers.changed import Changed, Choose, Touched
from resource_objects.providers.columns import Columns
from resource_objects.providers.disabled import TRAIT
from resource_objects.providers.feed import SHARDS, Cursor
from resource_objects.providers.listing import ListedProvider
from resource_objects.providers.orders import ConsumerRecord, Use
from resource_objects.providers.selection import columns_of
from resource_objects.resources.records import InventoryRecord

#: How often a provider is read until its definition is as it was the time before.
TRIES = 10
#: Of more trees than so many, the list of all providers is asked for.
FEW_TREES = 8
#: So many providers that went are remembered; after that snapshots are made anew.
_MOST_GONE = 100_000


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """A provider as a list of Placement tells it."""

    uuid: str
    name: str
    generation: int
    parent_uuid: str | None
    root_uuid: str

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Told:
        """Return one entry of a list."""
        return cls(
            told["uuid"],
            told["name"],
            told["generation"],
            told["parent_provider_uuid"],
            told["root_provider_uuid"],
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """A provider with all that it has, and what consumers hold of it, by their uuids."""

    told: Told
    records: tuple[InventoryRecord, ...]
    traits: frozenset[str]
    aggregates: frozenset[str]
    held: Mapping[str, Mapping[str, int]]


class Picture:
    """The providers of a Placement as they were read last. Safe for use by several threads.

    What it reads it gives as :class:`Read`, each provider of one moment; rows, claims and columns
    are made of these, whatever others put into the picture meanwhile.
    """

    def __init__(self, client: Client, consumers: words.Names, aggregates: words.Names) -> None:
        self._client = client
        self._consumers = consumers
        self._aggregates = aggregates
        self._looking = threading.Lock()
        self._begun = self._ended = 0  #: looks
        self._lock = threading.Lock()  #: of what follows
        self._read: dict[str, Read] = {}
        self._is_whole = False
        self._doubtful: set[str] = set()  #: uuids of providers that have to be read again
        self._numbers: dict[str, int] = {}
        self._next_number = itertools.count(1)
        self._epoch, self._version = _new_epoch(), 0
        self._changed_at: dict[str, int] = {}

    # --- what is looked at ---

    def look(self) -> None:
        """Make the picture show all that was written before this call, as far as it can be seen.

        Cost: one request, and four for each provider that has to be read. Of several threads that
        come at once, those that wait take what was begun after they came.
        """
        came = self._begun
        with self._looking:
            if self._ended > came:  # it was begun after this call
                return
            self._begun += 1
            with self._lock:
                doubtful, self._doubtful = self._doubtful, set()
                before = self._read if self._is_whole else {}
            try:
                told = self.told()
                known = {uuid for uuid in before if uuid not in doubtful}
                stale = [
                    one for one in told if one.uuid not in known or before[one.uuid].told != one
                ]
                found = self.read_each(stale)
            except BaseException:
                with self._lock:
                    self._doubtful |= doubtful
                raise
            self._absorb(found, {one.uuid for one in told}, None)
            self._ended = self._begun

    def forget(self) -> None:
        """Let the next look read everything."""
        with self._lock:
            self._is_whole = False

    def doubt(self, uuids: Iterable[str]) -> None:
        """Let the next look read some providers."""
        with self._lock:
            self._doubtful.update(uuids)

    def told(self, tree: str | None = None) -> list[Told]:
        """Return the list of all providers, or of the tree of one. One request."""
        return self._list(None if tree is None else {"in_tree": tree})

    def named(self, name: str) -> str | None:
        """Return the uuid of the provider of a name, None if there is none. One request."""
        found = self._list({"name": name})
        return found[0].uuid if found else None

    def _list(self, query: Mapping[str, str] | None) -> list[Told]:
        return self._client.get("/resource_providers", _told_in, query)

    def told_of(self, keys: Collection[str]) -> list[Told]:
        """Return the trees of some providers, as lists tell them, each tree once.

        Cost: one or two requests for each, or one for all providers if they are many.
        """
        if len(keys) > FEW_TREES:
            every = self.told()
            roots = {one.root_uuid for one in every if one.uuid in keys or one.name in keys}
            return [one for one in every if one.root_uuid in roots]
        found: dict[str, Told] = {}
        for key in keys:
            uuid = names.uuid_text(key) if names.is_uuid(key) else self.named(key)
            if uuid is not None and uuid not in found:
                found.update((one.uuid, one) for one in self.told(uuid))
        return list(found.values())

    def read_each(self, told: Sequence[Told]) -> list[Read]:
        """Read all that some providers have; those that are gone meanwhile are left out."""
        return [one for one in self._client.each(self._read_one, told) if one is not None]

    def read_trees(self, keys: Collection[str]) -> tuple[list[Read], Cursor]:
        """Read the trees of some providers as they are now; the picture shows them then too."""
        began = self._version
        found = self.read_each(self.told_of(keys))
        return found, self._absorb(found, {one.told.uuid for one in found}, began)

    def _read_one(self, told: Told) -> Read | None:
        """Read one provider as it was at one moment, None if it is gone. Four requests.

        While somebody writes it they are of several generations. Then its definition is read again:
        if that is as before, it was so when what is held was read, however often that is written.
        """
        defined, seen = self._definition(told)
        for _ in range(TRIES):
            held, at = self._part(told, "allocations")
            is_one = seen == {at}
            if not is_one:
                before, (defined, seen) = defined, self._definition(told)
                is_one = seen == {at} or defined == before
            if defined is None or held is None:
                return None
            if is_one:
                return _read_of(dataclasses.replace(told, generation=at), defined, held)
        said = f"{told.name} is defined anew all the time"
        raise exceptions.DatabaseError("busy", self._client.where, said)

    def _definition(self, told: Told) -> tuple[list[Any] | None, set[int]]:
        """Return what defines a provider, None if it is gone, and at which generations."""
        parts = [self._part(told, what) for what in ("inventories", "traits", "aggregates")]
        found = [part for part, _ in parts]
        return None if None in found else found, {generation for _, generation in parts}

    def _part(self, told: Told, what: str) -> tuple[Any, int]:
        """Return some of what a provider has (None: it is gone), and its generation before that."""
        path = f"/resource_providers/{told.uuid}/{what}"
        answer = self._client.read(path)
        if answer.is_missing:
            return None, -1
        return self._client.parsed(
            path,
            answer,
            lambda body: (_PARTS[what](body[what]), int(body["resource_provider_generation"])),
        )

    # --- what it shows ---

    @property
    def cursor(self) -> Cursor:
        """The version of the picture, in the form in which snapshots are kept fresh."""
        return self._cursor(self._version)

    def _cursor(self, version: int) -> Cursor:
        return Cursor((version, *[0] * (SHARDS - 1)), epoch=self._epoch)

    def all(self) -> tuple[list[Read], Cursor]:
        """Return every provider that was read, and the version of the picture."""
        with self._lock:
            return list(self._read.values()), self.cursor

    def columns(self, found: Collection[Read], cursor: Cursor) -> Columns:
        """Return providers of whole trees as columns, with what is held of them."""
        return columns_of(self.rows(found), {}, self.claims(found), cursor)

    def claims(self, found: Iterable[Read]) -> list[ConsumerRecord]:
        """Return who holds what of some providers, as far as these tell: no project, no user."""
        held: dict[str, list[Use]] = defaultdict(list)
        for one in found:
            place = one.told
            for consumer, amounts in one.held.items():
                held[consumer] += [
                    Use(place.uuid, name, amount, (), place.name)
                    for name, amount in amounts.items()
                ]
        return [
            ConsumerRecord(uuid, self._consumers.name(uuid), words.LONG_AGO, tuple(uses))
            for uuid, uses in held.items()
        ]

    def changed(self, after: Cursor, most: int, choose: Choose) -> Changed:
        """Return the trees that are others than at a version. No request."""
        with self._lock:
            now = self.cursor
            if after.epoch != now.epoch or after.heads[0] > now.heads[0]:
                raise exceptions.Expired("cursor", str(after), "it is of another picture")
            touched = {u for u, at in self._changed_at.items() if at > after.heads[0]}
            there = dict(self._read)
        if len(touched) > most:
            return Changed(now, len(touched), None)
        keys = choose(Touched(definitions=frozenset(touched)))
        if keys is None:
            return Changed(now, len(touched), None)
        roots = {there[key].told.root_uuid for key in keys if key in there}
        found = [one for one in there.values() if one.told.root_uuid in roots]
        return Changed(now, len(touched), self.columns(found, now))

    def name(self, uuid: str) -> str | None:
        """Return the name of a provider, None if it is not there. A request if it is not known."""
        known = self._read.get(uuid)
        if known is not None:
            return known.told.name
        path = f"/resource_providers/{uuid}"
        answer = self._client.read(path)
        if answer.is_missing:
            return None
        return self._client.parsed(path, answer, lambda body: str(body["name"]))

    def rows(self, found: Iterable[Read]) -> list[ListedProvider]:
        """Return providers of whole trees as rows, parents before children."""
        by_uuid = {one.told.uuid: one for one in found}
        below: dict[str | None, list[Read]] = defaultdict(list)
        for one in by_uuid.values():
            parent = one.told.parent_uuid
            below[parent if parent in by_uuid else None].append(one)
        ordered = sorted(below.pop(None, []), key=self._number)
        for one in ordered:  # grows while it is read
            ordered += sorted(below.pop(one.told.uuid, []), key=self._number)
        rows: dict[str, ListedProvider] = {}
        for one in ordered:
            above = rows.get(one.told.parent_uuid or "")
            rows[one.told.uuid] = self._row(one, above)
        return list(rows.values())

    def _row(self, one: Read, above: ListedProvider | None) -> ListedProvider:
        told = one.told
        return ListedProvider(
            self._number(one),
            told.uuid,
            told.name,
            told.generation,
            None if above is None else above.name,
            None if above is None else above.uuid,
            told.name if above is None else above.root,
            told.uuid if above is None else above.root_uuid,
            one.records,
            one.traits - {TRAIT},
            frozenset(map(self._aggregates.name, one.aggregates)),
            definition_writes=told.generation,  # it counts both in one
            disabled=words.disabled_of(one.traits),
        )

    def _number(self, one: Read) -> int:
        """Return the number of a provider, in the order in which this process saw them."""
        known = self._numbers.get(one.told.uuid)
        return known or self._numbers.setdefault(one.told.uuid, next(self._next_number))

    def _absorb(self, found: Sequence[Read], there: Collection[str], began: int | None) -> Cursor:
        """Put what was read into the picture; return the version that it shows all of.

        :param there: the uuids of all that are there, of those that were looked at
        :param began: the version at which some trees began to be read: what others put in since
            then stays, for they may have read it later; None: everything was looked at
        """
        with self._lock:
            before, at = self._read, self._version + 1
            is_overtaken = began is not None and began != self._version

            def is_newer(uuid: str) -> bool:
                return is_overtaken and self._changed_at.get(uuid, 0) > (began or 0)

            others = [
                one
                for one in found
                if before.get(one.told.uuid) != one and not is_newer(one.told.uuid)
            ]
            roots = {one.told.root_uuid for one in found}
            gone = [
                uuid
                for uuid, one in before.items()
                if uuid not in there
                and (began is None or one.told.root_uuid in roots)
                and not is_newer(uuid)
            ]
            self._is_whole = self._is_whole or began is None
            if others or gone:
                new = {**before, **{one.told.uuid: one for one in others}}
                for uuid in gone:
                    del new[uuid]
                    self._numbers.pop(uuid, None)
                self._changed_at.update(dict.fromkeys((one.told.uuid for one in others), at))
                self._changed_at.update(dict.fromkeys(gone, at))
                self._read, self._version = new, at
                if len(self._changed_at) > len(new) + _MOST_GONE:
                    self._changed_at.clear()
                    self._epoch = _new_epoch()
            return self._cursor(began or 0) if is_overtaken else self.cursor


def _new_epoch() -> int:
    return secrets.randbits(62) | 1


def _told_in(body: Any) -> list[Told]:
    return [Told.of(one) for one in body["resource_providers"]]


def _figures(told: Any) -> dict[str, dict[str, Any]]:
    return {name: {key: one[key] for key in words.FIGURES} for name, one in told.items()}


def _held(told: Any) -> dict[str, dict[str, int]]:
    return {uuid: dict(one["resources"]) for uuid, one in told.items()}


#: What is asked about a provider, and what is read in the answer.
_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "inventories": _figures,
    "traits": frozenset,
    "aggregates": frozenset,
    "allocations": _held,
}


def _read_of(told: Told, defined: Sequence[Any], held: Any) -> Read:
    inventories, traits, aggregates = defined
    used: dict[str, int] = defaultdict(int)
    for amounts in held.values():
        for name, amount in amounts.items():
            used[name] += amount
    records = (
        words.record_of(name, figures, used.get(name, 0), told.name)
        for name, figures in inventories.items()
    )
    return Read(told, tuple(records), traits, aggregates, held)
