"""What is kept in memory: immutable things in dicts."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from resource_objects.providers.feed import Change
from resource_objects.providers.listing import ListedName
from resource_objects.providers.orders import ClaimRecord, Key, NameKind, Outcome
from resource_objects.resources.records import InventoryRecord, KindRecord


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """A provider as kept. ``classes`` are those of its inventories, in the order they came."""

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
    writes: int = 0  #: of allocations, counted at inventories that are gone


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """An inventory as kept: its figures with all that is used, and what is used of it directly.

    ``writes`` counts the writes of allocations that changed it; ``shares`` are ``(key, factor)``.
    """

    record: InventoryRecord
    direct: int = 0
    writes: int = 0
    shares: tuple[tuple[Key, int], ...] = ()


class Recorded(NamedTuple):
    """An operation that was done."""

    number: int
    at: datetime.datetime
    outcome: Outcome


class Taken(NamedTuple):
    """Who has a unit, and of which class it is."""

    consumer: str
    resource_class: str


NameKey: TypeAlias = tuple[NameKind, str]


def _from_one() -> itertools.count[int]:
    return itertools.count(1)


@dataclasses.dataclass(slots=True)
class State:
    """Everything a ledger keeps."""

    names: dict[NameKey, ListedName] = dataclasses.field(default_factory=dict)
    providers: dict[str, Kept] = dataclasses.field(default_factory=dict)  # in order of creation
    uuid_of: dict[str, str] = dataclasses.field(default_factory=dict)  # by name
    children: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    rows: dict[Key, Row] = dataclasses.field(default_factory=dict)
    sharers: dict[Key, dict[Key, int]] = dataclasses.field(default_factory=dict)  # {of: {by: k}}
    claims: dict[str, ClaimRecord] = dataclasses.field(default_factory=dict)  # by consumer
    claim_ids: dict[str, str] = dataclasses.field(default_factory=dict)  # whose each claim is
    holders: dict[Key, dict[str, int]] = dataclasses.field(default_factory=dict)
    units: dict[str, dict[str, Taken]] = dataclasses.field(default_factory=dict)  # by provider
    operations: dict[str, Recorded] = dataclasses.field(default_factory=dict)
    changes: dict[int, dict[int, Change]] = dataclasses.field(default_factory=dict)  # by shard
    heads: dict[int, int] = dataclasses.field(default_factory=dict)
    oldest: dict[int, int] = dataclasses.field(default_factory=dict)  # last change forgotten
    # numbers are given out once, whatever becomes of the write
    provider_numbers: itertools.count[int] = dataclasses.field(default_factory=_from_one)
    name_numbers: itertools.count[int] = dataclasses.field(default_factory=_from_one)
    operation_numbers: itertools.count[int] = dataclasses.field(default_factory=_from_one)

    def top(self, uuid: str) -> Kept:
        """Return the root of the tree of a provider, which is there."""
        kept = self.providers[uuid]
        while kept.parent_uuid is not None:
            kept = self.providers[kept.parent_uuid]
        return kept

    def find(self, key: str) -> Kept | None:
        """Return the provider of a name, or else of a uuid."""
        return self.providers.get(self.uuid_of.get(key, key))

    def roots(self, keys: Iterable[str]) -> list[Kept]:
        """Return the roots of the trees of some providers, by name or uuid; each once."""
        found = (self.find(key) for key in keys)
        return list(
            {top.uuid: top for k in found if k is not None for top in [self.top(k.uuid)]}.values()
        )

    def below(self, root: Kept) -> Iterator[Kept]:
        """Yield a provider and all below it, parents before children."""
        waiting = [root]
        for kept in waiting:  # grows while it is read: breadth first
            yield kept
            waiting += [self.providers[uuid] for uuid in self.children.get(kept.uuid, ())]
