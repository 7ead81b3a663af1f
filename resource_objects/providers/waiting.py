"""The queue of a ledger: consumers that wait for resources to be released.

A waiter is a consumer in the queue. It has a number, in the order of arrival, and the amounts that
it waits for. A waiter with a smaller number comes first if both wait for a class that the same tree
can provide: first come, first served. A waiter stays in the queue until the end of its lease, which
it renews; the lease of a killed process ends. The queue is cooperative: a claim that does not wait
may overtake all waiters.

The queue is separate from allocations: writes do not read it, and the change feed does not record
it.
"""

from __future__ import annotations

import dataclasses
import datetime
import uuid
from typing import Any

from resource_objects import exceptions, names
from resource_objects.resources import Amounts

#: The default lease of a waiter, in seconds.
LEASE = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Awaited:
    """An amount of a class that a consumer waits for.

    ``root_uuid`` is the root of the tree to provide it; None: any.

    >>> gpu = Awaited("PGPU", 1)
    >>> gpu.meets(Awaited("PGPU", 8, "3b0ec1b6-6b1c-4a5f-a2d4-3b1f0e5d1c11"))
    True
    """

    resource_class: str
    amount: int
    root_uuid: str | None = None

    def meets(self, other: Awaited) -> bool:
        """Return True if the same inventory could serve both."""
        return self.resource_class == other.resource_class and (
            self.root_uuid is None or other.root_uuid is None or self.root_uuid == other.root_uuid
        )


@dataclasses.dataclass(frozen=True, slots=True)
class WaitOrder:
    """An order to enter a consumer into the queue, or to renew its lease.

    ``entry`` identifies the call that waits: the last call that entered a consumer also removes it.
    ``renews`` is True for a later order of the same call. ``lease`` is the time from now until the
    waiter is removed.

    :raises InvalidInput: for an invalid name of the consumer; if it waits for nothing, or the lease
        is not above 0
    """

    consumer: str
    awaits: tuple[Awaited, ...]
    lease: datetime.timedelta = datetime.timedelta(seconds=LEASE)
    actor: str | None = None
    entry: str = dataclasses.field(default_factory=lambda: str(uuid.uuid4()))
    renews: bool = False

    def __post_init__(self) -> None:
        names.consumer_name(self.consumer)
        if not self.awaits:
            raise exceptions.InvalidInput("field", "awaits", self.awaits, "something to wait for")
        if self.lease <= datetime.timedelta(0):
            raise exceptions.InvalidInput("field", "lease", self.lease, "a timedelta above 0")


@dataclasses.dataclass(frozen=True, slots=True)
class Waiter:
    """A consumer in the queue. A smaller ``number`` came earlier.

    ``since`` is the time of arrival and ``lease_until`` the end of the lease, both by the clock of
    the ledger. ``actor`` is the author of the entry.
    """

    number: int
    consumer: str
    awaits: tuple[Awaited, ...]
    since: datetime.datetime
    lease_until: datetime.datetime
    actor: str | None = None

    @property
    def amounts(self) -> Amounts:
        """The amounts that it waits for, summed over all trees."""
        total = Amounts()
        for awaited in self.awaits:
            total += Amounts({awaited.resource_class: awaited.amount})
        return total

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "number": self.number,
            "consumer": self.consumer,
            "awaits": [dataclasses.asdict(awaited) for awaited in self.awaits],
            "since": self.since.isoformat(),
            "lease_until": self.lease_until.isoformat(),
            "actor": self.actor,
        }

    def __str__(self) -> str:
        return f"{self.consumer} waits for {self.amounts} since {self.since:%Y-%m-%d %H:%M:%S}"


@dataclasses.dataclass(frozen=True, slots=True)
class WaiterFilter:
    """Conditions on waiters with a valid lease.

    ``awaits``
        waits for an amount that meets one of these (:meth:`Awaited.meets`); None: any
    ``upto``
        has this number or a smaller one
    """

    awaits: tuple[Awaited, ...] | None = None
    upto: int | None = None
