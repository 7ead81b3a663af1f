"""The change feed: what was written, in an order that misses nothing (D9).

Changes are numbered by *shard*: a tree belongs to one shard (by the number of its root), and the
writing transaction itself counts the shard's head up, so what a reader sees of a shard has no gap
that might still be filled. A :class:`Cursor` is the heads of all shards at one moment, read in one
statement; whoever keeps one reads on from there. The order is total per shard.

Which shard a write is told in is seen when it begins to be written. A claim made at the very moment
in which its provider moves to another tree may so be told in the shard of the tree that it leaves.
Nothing is missed by who reads the feed (all shards, as a cursor does); only who looks at one shard
for one tree would look in the wrong one.

Numbers of a database (auto-increment, sequences) would not do: they are not committed in order.
One head for all would make every writer wait for every other.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterable, Mapping
from typing import Any, Self

from resource_objects import exceptions
from resource_objects._fast import set_directly
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.disabled import DisabledChange
from resource_objects.providers.orders import Change

#: How many shards a ledger has. Fixed: stored cursors have as many numbers.
SHARDS = 64


def shard_of(root_number: int) -> int:
    """Return the shard of the tree whose root has this number.

    >>> shard_of(65)
    1
    """
    return root_number % SHARDS


@dataclasses.dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the feed: what was changed after it is not known yet.

    It names a history, not only numbers: ``last`` are the numbers of the operations that were
    written last in each shard. A database that was promoted or restored without its last writes,
    and has written others since, has other operations at these places. ``epoch`` is the ledger's,
    0 where it is not known; ``last`` is empty where it is not known, which is not checked then.

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
        """Return the cursor that :func:`str` said, for programs that keep it in a file.

        :raises InvalidInput: if it is none
        """
        found = _CURSOR.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise exceptions.InvalidInput("text", "cursor", text, _EXPECTED)
        heads, last = [0] * SHARDS, [0] * SHARDS
        seen: set[int] = set()
        for part in filter(None, found["places"].split(",")):
            shard, head, operation = map(int, re.split("[=@]", part))
            if shard >= SHARDS or shard in seen or max(head, operation) > MAX_AMOUNT:
                raise exceptions.InvalidInput("text", "cursor", text, _EXPECTED)
            seen.add(shard)
            heads[shard], last[shard] = head, operation
        return cls(tuple(heads), tuple(last), int(found["epoch"]))

    @property
    def ledger(self) -> int:
        """Which ledger this is a place of; 0 where that is not known, for nobody wrote to it yet.

        The feed of a picture that one process keeps (of a remote Placement) is no ledger's.
        """
        return self.epoch if any(self.last) else 0

    def moved(self, entries: Iterable[FeedEntry]) -> Cursor:
        """Return the cursor after some entries that were read from it on."""
        heads, last = list(self.heads), list(self.last)
        for entry in entries:
            if entry.number > heads[entry.shard]:
                heads[entry.shard], last[entry.shard] = entry.number, entry.generation
        return Cursor(tuple(heads), tuple(last), self.epoch)

    def waiting(self, now: Cursor) -> dict[int, int]:
        """Return how many entries each shard has after this place, of those that have some.

        :param now: where the feed is
        :raises Expired: if the feed is of another history, or not that far
        """
        if len(self.heads) != len(now.heads) or (self.epoch and self.epoch != now.epoch):
            raise exceptions.Expired("cursor", str(self), "it is of another ledger")
        found: dict[int, int] = {}
        for shard, (head, at) in enumerate(zip(self.heads, now.heads, strict=True)):
            if head > at:
                raise exceptions.Expired("cursor", str(self), f"it is ahead of shard {shard}")
            if head < at:
                found[shard] = at - head
            elif self.last[shard] and self.last[shard] != now.last[shard]:
                raise exceptions.Expired("cursor", str(self), _OTHER.format(shard))
        return found

    def check(self, shard: int, numbers: Mapping[int, int], upto: int) -> None:
        """Raise unless what was read of a shard follows on this place without a gap.

        :param numbers: ``{number: operation's number}`` of the entries there are from this place
            on, itself included
        :param upto: the last number that was asked for
        :raises Expired: if it is another history, or some of it is forgotten
        """
        head, last = self.heads[shard], self.last[shard]
        if any(number not in numbers for number in range(head + 1, upto + 1)):
            raise exceptions.Expired("cursor", str(self), f"changes of shard {shard} are forgotten")
        if last and head and numbers.get(head) != last:
            said = "is forgotten" if head not in numbers else "has another history"
            raise exceptions.Expired("cursor", str(self), f"its place in shard {shard} {said}")

    def __str__(self) -> str:
        places = (
            f"{shard}={head}@{self.last[shard]}" for shard, head in enumerate(self.heads) if head
        )
        return f"{self.epoch}:{','.join(places)}"


_CURSOR = re.compile(r"(?P<epoch>\d{1,19}):(?P<places>(?:\d{1,9}=\d{1,19}@\d{1,19},?)*)", re.ASCII)
_EXPECTED = "what a cursor says, such as 7:0=1@5,63=2@8"
_OTHER = "shard {} has another history: the database lost writes that were seen"


@set_directly
@dataclasses.dataclass(frozen=True, slots=True)
class FeedEntry:
    """One write, as one shard saw it: who did what, when, and what it changed there.

    ``kind`` and ``subject`` are those of the operation, ``generation`` is its number. ``uses`` are
    the changes of what consumers hold here; what an amount also uses elsewhere (its shares) follows
    from them. ``definitions`` are the uuids of providers whose definition changed, ``reports`` of
    those whose owner reported or that were adopted, ``claims`` the consumers whose claim changed
    while what they hold did not. ``disabled`` are the providers that were put out of service or
    into it again, and ``overrides`` the uuids of those that were taken of though they were out of
    it. A write that touches no tree (of a resource class, say) is told in shard 0.

    ``renamed_classes`` are pairs of the old and the new name of a resource class, recorded in one
    shard of the write.

    A rename touches everybody whose definition says the name. On its own it is told in shard 0,
    naming nobody, however many these are; where the same write does more, they are named.
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
        """The uuids of those whose use, definition or report it is about, sorted."""
        used = (use.key[0] for use in self.uses)
        disabled = (one.provider_uuid for one in self.disabled)
        return tuple(sorted({*used, *self.definitions, *self.reports, *disabled}))

    @property
    def consumers(self) -> tuple[str, ...]:
        """The names of those whose holdings or claims changed, sorted."""
        return tuple(sorted({*(use.consumer for use in self.uses), *self.claims}))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        found = dataclasses.asdict(dataclasses.replace(self, disabled=()))
        del found["renamed_classes"]
        found["at"] = self.at.isoformat()
        found["disabled"] = [one.to_dict() for one in self.disabled]
        return {**found, "providers": self.providers, "consumers": self.consumers}

    def __str__(self) -> str:
        by = f" by {self.actor}" if self.actor else ""
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.kind} {self.subject}{by}"
