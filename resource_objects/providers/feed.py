"""The change feed: every write, in an order without gaps.

Changes are numbered by *shard*: a tree belongs to one shard (by the number of its root), and the
writing transaction itself counts the shard's head up, so what a reader sees of a shard has no gap
that might still be filled. A :class:`Cursor` is the heads of all shards at one moment, read in one
statement; a reader continues from it. The order is total per shard.

The shard of a write is determined at the start of the write. A claim that is concurrent with a move
of its provider to another tree may be recorded in the shard of the previous tree. A cursor covers
all shards, so its reader misses no entry; a reader of the one shard of a tree may miss this claim.

Auto-increment columns and sequences of a database cannot replace the heads, because their numbers
are not committed in order. A single head would serialize all writers.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterable, Mapping
from typing import Any, Self

from resource_objects import exceptions
from resource_objects._dataclass import fast_init
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.disabled import DisabledChange
from resource_objects.providers.orders import Change

#: The number of shards. The shard of a tree is the number of its root modulo this. It is fixed:
#: stored cursors have as many numbers.
SHARDS = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Cursor:
    """A position in the feed: the entries up to it are known to the reader.

    It identifies a history: ``last`` are the numbers of the last operations in each shard. A
    database that was promoted or restored without its last writes, and has written since, has
    other operations at these positions. ``epoch`` is the epoch of the ledger, 0 if unknown;
    in ``last``, 0 is an unknown operation, which is not checked.

    >>> Cursor.parse(str(Cursor((0,) * SHARDS))) == Cursor((0,) * SHARDS)
    True
    """

    heads: tuple[int, ...]
    last: tuple[int, ...] = ()
    epoch: int = dataclasses.field(default=0, compare=False)

    def __post_init__(self) -> None:
        if not self.last:
            object.__setattr__(self, "last", (0,) * len(self.heads))

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """Return the cursor of its :func:`str`, for programs that store it in a file.

        :raises InvalidInput: if the text is not a cursor
        """
        match = _CURSOR.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise exceptions.InvalidInput("text", "cursor", text, _EXPECTED)
        heads, last = [0] * SHARDS, [0] * SHARDS
        seen: set[int] = set()
        for part in filter(None, match["places"].split(",")):
            shard, head, operation = map(int, re.split("[=@]", part))
            if shard >= SHARDS or shard in seen or max(head, operation) > MAX_AMOUNT:
                raise exceptions.InvalidInput("text", "cursor", text, _EXPECTED)
            seen.add(shard)
            heads[shard], last[shard] = head, operation
        return cls(tuple(heads), tuple(last), int(match["epoch"]))

    @property
    def ledger(self) -> int:
        """The epoch of the ledger of this position; 0 if the ledger has no writes yet.

        It is also 0 for a remote Placement, whose feed exists only within one process.
        """
        return self.epoch if any(self.last) else 0

    def moved(self, entries: Iterable[FeedEntry]) -> Cursor:
        """Return the cursor after some entries that follow it."""
        heads, last = list(self.heads), list(self.last)
        for entry in entries:
            if entry.number > heads[entry.shard]:
                heads[entry.shard], last[entry.shard] = entry.number, entry.generation
        return Cursor(tuple(heads), tuple(last), self.epoch)

    def waiting(self, now: Cursor) -> dict[int, int]:
        """Return the number of entries of each shard after this position, without zeros.

        :param now: the head of the feed
        :raises Expired: if the feed has another history, or is behind this position
        """
        if len(self.heads) != len(now.heads) or (self.epoch and self.epoch != now.epoch):
            raise exceptions.Expired("cursor", str(self), "it is of another ledger")
        counts: dict[int, int] = {}
        for shard, (head, at) in enumerate(zip(self.heads, now.heads, strict=True)):
            if head > at:
                raise exceptions.Expired("cursor", str(self), f"it is ahead of shard {shard}")
            if head < at:
                counts[shard] = at - head
            elif self.last[shard] and self.last[shard] != now.last[shard]:
                raise exceptions.Expired("cursor", str(self), _OTHER.format(shard))
        return counts

    def check(self, shard: int, numbers: Mapping[int, int], upto: int) -> None:
        """Raise unless the entries of a shard follow this position without a gap.

        :param numbers: ``{number: number of the operation}`` of the entries of the shard from this
            position on, inclusive
        :param upto: the last requested number
        :raises Expired: if the shard has another history, or entries were pruned
        """
        head, last = self.heads[shard], self.last[shard]
        if any(number not in numbers for number in range(head + 1, upto + 1)):
            raise exceptions.Expired("cursor", str(self), f"changes of shard {shard} are forgotten")
        if last and head and numbers.get(head) != last:
            detail = "is forgotten" if head not in numbers else "has another history"
            raise exceptions.Expired("cursor", str(self), f"its place in shard {shard} {detail}")

    def __str__(self) -> str:
        places = (
            f"{shard}={head}@{self.last[shard]}" for shard, head in enumerate(self.heads) if head
        )
        return f"{self.epoch}:{','.join(places)}"


_CURSOR = re.compile(r"(?P<epoch>\d{1,19}):(?P<places>(?:\d{1,9}=\d{1,19}@\d{1,19},?)*)", re.ASCII)
_EXPECTED = "a cursor, such as 7:0=1@5,63=2@8"
_OTHER = "shard {} has another history: the database lost writes that were seen"


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class FeedEntry:
    """One write, as recorded in one shard.

    ``kind`` and ``subject`` are those of the operation, ``generation`` is its number. ``uses`` are
    the changes of allocations in this shard; use of other inventories by shares follows from them.
    ``definitions`` are the uuids of providers whose definition changed. ``reports`` are those of
    providers whose owner reported, or that were adopted. ``claims`` are the consumers whose claim
    changed without a change of allocations. ``disabled`` are the providers that were disabled or
    enabled, ``overrides`` the uuids of disabled providers that were allocated all the same.

    A write that concerns no tree, such as a new resource class, is recorded in shard 0.
    ``renamed_classes`` are pairs of the old and new name of a resource class, recorded in one shard
    of the write. A rename concerns each provider whose definition has the name. A write that only
    renames is recorded in shard 0, without providers; other writes name them.
    """

    shard: int
    number: int
    at: datetime.datetime
    operation: str
    kind: str
    subject: str
    actor: str | None
    generation: int
    uses: tuple[Change, ...] = ()
    definitions: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    disabled: tuple[DisabledChange, ...] = ()
    overrides: tuple[str, ...] = ()
    renamed_classes: tuple[tuple[str, str], ...] = ()

    @property
    def providers(self) -> tuple[str, ...]:
        """The uuids of providers whose use, definition or report changed, sorted."""
        used = (use.key[0] for use in self.uses)
        disabled = (change.provider_uuid for change in self.disabled)
        return tuple(sorted({*used, *self.definitions, *self.reports, *disabled}))

    @property
    def consumers(self) -> tuple[str, ...]:
        """The names of the consumers whose allocations or claims changed, sorted."""
        return tuple(sorted({*(use.consumer for use in self.uses), *self.claims}))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        data = dataclasses.asdict(dataclasses.replace(self, disabled=()))
        del data["renamed_classes"]
        for use in data["uses"]:  # the names in JSON
            use["taken"], use["given"] = use.pop("allocated_units"), use.pop("released_units")
        data["at"] = self.at.isoformat()
        data["disabled"] = [change.to_dict() for change in self.disabled]
        return {**data, "providers": self.providers, "consumers": self.consumers}

    def __str__(self) -> str:
        by = f" by {self.actor}" if self.actor else ""
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.kind} {self.subject}{by}"
