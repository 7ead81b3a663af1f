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
from collections.abc import Iterable
from typing import Any, Self

from resource_objects import exceptions

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

    >>> Cursor.parse(str(Cursor((0,) * SHARDS))) == Cursor((0,) * SHARDS)
    True
    """

    heads: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the cursor that :func:`str` said, for programs that keep it in a file.

        :raises InvalidText: if it is none
        """
        parts = text.split(".") if isinstance(text, str) else []
        # most shards of a small ledger are empty: "0x62" says 62 zeros
        heads: list[int] = []
        for part in parts:
            value, _, times = part.partition("x")
            plain = all(number.isascii() and number.isdigit() for number in (value, times or "1"))
            if not plain or len(times) > 3 or len(value) > 19:
                raise exceptions.InvalidText("cursor", text, f"{SHARDS} numbers with dots between")
            heads += [int(value)] * int(times or 1)
        if len(heads) != SHARDS:
            raise exceptions.InvalidText("cursor", text, f"{SHARDS} numbers with dots between")
        return cls(tuple(heads))

    def moved(self, changes: Iterable[Change]) -> Cursor:
        """Return the cursor after some changes that were read from it on."""
        heads = list(self.heads)
        for change in changes:
            heads[change.shard] = max(heads[change.shard], change.number)
        return Cursor(tuple(heads))

    def __str__(self) -> str:
        parts: list[str] = []
        run = 0
        for place, head in enumerate(self.heads):
            run += 1
            if place + 1 == len(self.heads) or self.heads[place + 1] != head:
                parts.append(f"{head}x{run}" if run > 1 else str(head))
                run = 0
        return ".".join(parts)


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One write, as one shard saw it: who did what, when, and to which keys.

    ``kind`` and ``subject`` are those of the operation; ``providers`` are the uuids of those whose
    definition or use changed in this shard, ``consumers`` the names of those whose holdings did.
    A write that touches no tree (of a resource class, say) is told in shard 0.

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
    providers: tuple[str, ...]
    consumers: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**dataclasses.asdict(self), "at": self.at.isoformat()}

    def __str__(self) -> str:
        by = f" by {self.actor}" if self.actor else ""
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.kind} {self.subject}{by}"
