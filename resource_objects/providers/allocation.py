"""Who uses what: allocations, and the claim that made them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

from resource_objects import base, exceptions, fields
from resource_objects.requests import Request
from resource_objects.resources import Amount, Amounts, resource

#: States of a claim.
HELD = "held"
RELEASED = "released"
STATES = (HELD, RELEASED)


@base.register_record
class Allocation(base.Value):
    """What one consumer uses of one resource at one provider.

    >>> from resource_objects.resources import IntegerAmount
    >>> print(Allocation(provider="host0", resource_class="VCPU", amount=IntegerAmount(2)))
    VCPU=2 of host0
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "provider": fields.NameField(),
        "provider_uuid": fields.UUIDField(nullable=True, default=None),
        "resource_class": fields.ResourceClassField(),
        "amount": fields.ObjectField("Amount"),
    }
    provider: str
    provider_uuid: str | None = None
    resource_class: str
    amount: Amount

    def __str__(self) -> str:
        kind = resource(self.resource_class)
        return f"{self.resource_class}={kind.format_amount(self.amount)} of {self.provider}"


@base.register_record
class Claim(base.Value):
    """Allocations made together for a consumer: what ``ledger.claim`` returns.

    ``id`` identifies the claim, ``state`` is ``held`` or ``released``; ``request`` is what it was
    made for, where a search found it.

    ``str()`` tells it in one line: ``job-1 holds VCPU=16 of host0, PGPU=1 of host0/gpu0``.
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "id": fields.UUIDField(),
        "consumer": fields.ConsumerNameField(),
        "consumer_uuid": fields.UUIDField(),
        "state": fields.TextField(default=HELD),
        "allocations": fields.TupleOfObjectsField("Allocation", default=()),
        "created_at": fields.TimestampField(),
        "request": fields.ObjectField("Request", nullable=True, default=None),
    }
    id: str
    consumer: str
    consumer_uuid: str
    state: str = HELD
    allocations: tuple[Allocation, ...] = ()
    created_at: datetime.datetime
    request: Request | None = None

    @property
    def amounts(self) -> Amounts:
        """All that the claim holds, summed over providers."""
        return total(self.allocations)

    def by_provider(self) -> dict[str, Amounts]:
        """Return ``{provider name: amounts}``, in the order of the allocations."""
        return by_provider(self.allocations)

    def _validate(self) -> None:
        if self.state not in STATES:
            raise exceptions.InvalidField("Claim.state", self.state, f"one of {', '.join(STATES)}")

    def __str__(self) -> str:
        verb = "holds" if self.state == HELD else "released"
        parts = (f"{amounts} of {name}" for name, amounts in self.by_provider().items())
        return f"{self.consumer} {verb} {', '.join(parts) or 'nothing'}"


def total(allocations: Iterable[Allocation]) -> Amounts:
    """Return all that allocations take, summed over providers. Cost: linear."""
    found: dict[str, Any] = {}
    for one in allocations:
        before = found.get(one.resource_class)
        found[one.resource_class] = one.amount if before is None else before + one.amount
    return Amounts(found)


def by_provider(allocations: Iterable[Allocation]) -> dict[str, Amounts]:
    """Return ``{provider name: amounts}``, in the order of the allocations. Cost: linear."""
    taken: dict[str, list[Allocation]] = {}
    for one in allocations:
        taken.setdefault(one.provider, []).append(one)
    return {name: total(ones) for name, ones in taken.items()}
