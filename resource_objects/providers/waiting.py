"""Who waits for something to be given back: the queue of a ledger.

A waiter is a consumer that stands in the queue: it has a number, drawn in the order of arrival, and
says what it waits for. Whoever has a smaller number and waits for one of the same classes stands
before it, where both could be given it in the same tree: first come, first served. A waiter is
there for as long as its lease, which it renews; one that was killed is gone when that is over. The
queue is an agreement of those who wait: a claim that does not wait may overtake them all.

It is no part of what is held: no write looks at it, and the change feed does not tell it.
"""

from __future__ import annotations

import dataclasses
import datetime
import uuid
from typing import Any

from resource_objects import exceptions, names
from resource_objects.resources import Amounts

#: For how long a waiter is there that does not renew, in seconds, unless another time is said.
LEASE = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Awaited:
    """An amount of a class that somebody waits for.

    ``root_uuid`` is the root of the tree that shall give it; None: any.

    >>> gpu = Awaited("PGPU", 1)
    >>> gpu.meets(Awaited("PGPU", 8, "3b0ec1b6-6b1c-4a5f-a2d4-3b1f0e5d1c11"))
    True
    """

    resource_class: str
    amount: int
    root_uuid: str | None = None

    def meets(self, other: Awaited) -> bool:
        """Return whether one could be given what the other waits for."""
        return self.resource_class == other.resource_class and (
            self.root_uuid is None or other.root_uuid is None or self.root_uuid == other.root_uuid
        )


def _new_entry() -> str:
    return str(uuid.uuid4())


@dataclasses.dataclass(frozen=True, slots=True)
class WaitOrder:
    """What a backend is told of who waits.

    ``entry`` names the call that waits: the last one that entered for a consumer is the one that
    takes it out again. ``renews`` says that it entered before. ``lease`` is for how long it is
    there from now on.

    :raises InvalidInput: for what is no name of a consumer
    :raises InvalidInput: if it waits for nothing, or the lease is not above 0
    """

    consumer: str
    awaits: tuple[Awaited, ...]
    lease: datetime.timedelta = datetime.timedelta(seconds=LEASE)
    actor: str | None = None
    entry: str = dataclasses.field(default_factory=_new_entry)
    renews: bool = False

    def __post_init__(self) -> None:
        names.consumer_name(self.consumer)
        if not self.awaits:
            raise exceptions.InvalidInput("field", "awaits", self.awaits, "something to wait for")
        if self.lease <= datetime.timedelta(0):
            raise exceptions.InvalidInput("field", "lease", self.lease, "a timedelta above 0")


@dataclasses.dataclass(frozen=True, slots=True)
class Waiter:
    """A consumer that stands in the queue. A smaller ``number`` came earlier.

    ``since`` is when it came, ``lease_until`` when it is gone if it does not renew, both by the
    ledger's clock; ``actor`` is who wrote it.
    """

    number: int
    consumer: str
    awaits: tuple[Awaited, ...]
    since: datetime.datetime
    lease_until: datetime.datetime
    actor: str | None = None

    @property
    def amounts(self) -> Amounts:
        """What it waits for, summed over all trees."""
        found = Amounts()
        for one in self.awaits:
            found += Amounts({one.resource_class: one.amount})
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "number": self.number,
            "consumer": self.consumer,
            "awaits": [dataclasses.asdict(one) for one in self.awaits],
            "since": self.since.isoformat(),
            "lease_until": self.lease_until.isoformat(),
            "actor": self.actor,
        }

    def __str__(self) -> str:
        return f"{self.consumer} waits for {self.amounts} since {self.since:%Y-%m-%d %H:%M:%S}"


@dataclasses.dataclass(frozen=True, slots=True)
class WaiterFilter:
    """Which waiters to list, of those whose lease is not over.

    ``awaits``
        waits for what meets one of these (:meth:`Awaited.meets`); None asks nothing
    ``upto``
        has this number or a smaller one
    """

    awaits: tuple[Awaited, ...] | None = None
    upto: int | None = None
