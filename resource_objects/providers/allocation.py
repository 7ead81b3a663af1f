"""Allocations, claims and consumers; resource classes, traits and aggregates as objects."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any, Self

from resource_objects import base, exceptions, fields, names
from resource_objects.requests import Request
from resource_objects.resources import Amount, Amounts, IntegerAmount, resource

#: States of a claim.
HELD = "held"
CONFIRMED = "confirmed"
RELEASED = "released"
STATES = (HELD, CONFIRMED, RELEASED)


@base.register
class Allocation(base.ResourceObject, frozen=True):
    """The amount of one resource class that a consumer uses at one provider, with its units if any.

    >>> from resource_objects.resources import IntegerAmount
    >>> print(Allocation(provider="host0", resource_class="VCPU", amount=IntegerAmount(2)))
    VCPU=2 of host0
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    provider: str = fields.provider_name()
    provider_uuid: str | None = fields.uuid(default=None)
    resource_class: str = fields.resource_class()
    amount: Amount = fields.nested("Amount")
    units: fields.TupleFrom[str] = fields.tuple_of(fields.LABEL, default=())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the allocation of plain data, as :func:`to_dicts` returns it.

        :raises InvalidInput: for data of another form
        """
        if not isinstance(data, Mapping):
            raise exceptions.InvalidInput("field", "allocation", data, "a mapping")
        values = dict(data)
        amount = IntegerAmount(values.pop("amount", None))
        return cls(provider_uuid=values.pop("uuid", None), amount=amount, **values)

    def __str__(self) -> str:
        kind = resource(self.resource_class)
        return f"{self.resource_class}={kind.format_amount(self.amount)} of {self.provider}"


def to_dicts(allocations: Iterable[Allocation]) -> list[dict[str, Any]]:
    """Return allocations as plain data for JSON, one for each counted resource class.

    >>> cpus = Allocation(provider="host0", resource_class="VCPU", amount=IntegerAmount(2))
    >>> to_dicts([cpus])
    [{'provider': 'host0', 'uuid': None, 'resource_class': 'VCPU', 'amount': 2, 'units': []}]
    >>> [Allocation.from_dict(data) for data in to_dicts([cpus])] == [cpus]
    True
    """
    return [
        {
            "provider": allocation.provider,
            "uuid": allocation.provider_uuid,
            "resource_class": record.resource_class,
            "amount": record.amount,
            "units": list(allocation.units),
        }
        for allocation in allocations
        for record in allocation.amount.to_records(allocation.resource_class)
    ]


@base.register
class Claim(base.ResourceObject, frozen=True):
    """Allocations made together for a consumer, as ``ledger.claim`` returns them.

    ``state`` is ``held``, ``confirmed`` or ``released``. ``request`` is that of the search that
    found the candidate, if there was one. ``expires_at`` is the time after which
    ``release_expired`` releases the claim; None: never. ``project``, ``user``, ``consumer_type``
    and ``group`` (the server group) are those of the consumer. ``generation`` is the version of the
    consumer; a later consumer of the same name never repeats it.

    ``str()`` returns one line: ``job-1 holds VCPU=16 of host0, PGPU=1 of host0/gpu0``.
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    id: str = fields.uuid()
    consumer: str = fields.consumer_name()
    consumer_uuid: str = fields.uuid()
    state: str = fields.text(default=HELD)
    allocations: fields.TupleFrom[Allocation] = fields.tuple_of("Allocation", default=())
    created_at: datetime.datetime = fields.timestamp()
    request: Request | None = fields.nested("Request", default=None)
    generation: int | None = fields.integer(0, default=None)
    project: str | None = fields.label(default=None)
    user: str | None = fields.label(default=None)
    consumer_type: str | None = fields.label(default=None)
    expires_at: datetime.datetime | None = fields.timestamp(default=None)
    group: str | None = fields.label(default=None)

    @property
    def amounts(self) -> Amounts:
        """The allocated amounts, summed over providers."""
        return total(self.allocations)

    def by_provider(self) -> dict[str, Amounts]:
        """Return ``{provider name: amounts}``, in the order of the allocations."""
        return by_provider(self.allocations)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, with the ``to_dict`` of the request."""
        return {
            "id": self.id,
            "consumer": self.consumer,
            "consumer_uuid": self.consumer_uuid,
            "state": self.state,
            "allocations": to_dicts(self.allocations),
            "request": None if self.request is None else self.request.to_dict(),
            "generation": self.generation,
            "project": self.project,
            "user": self.user,
            "consumer_type": self.consumer_type,
            "group": self.group,
            "created_at": self.created_at.isoformat(),
            "expires_at": None if self.expires_at is None else self.expires_at.isoformat(),
        }

    def _validate(self) -> None:
        if self.state not in STATES:
            expected = f"one of {', '.join(STATES)}"
            raise exceptions.InvalidInput("field", "Claim.state", self.state, expected)

    def __str__(self) -> str:
        verb = "released" if self.state == RELEASED else "holds"
        parts = (f"{amounts} of {name}" for name, amounts in self.by_provider().items())
        return f"{self.consumer} {verb} {', '.join(parts) or 'nothing'}"


def total(allocations: Iterable[Allocation]) -> Amounts:
    """Return the amounts of allocations, summed over providers. Cost: linear."""
    amounts: dict[str, Any] = {}
    for allocation in allocations:
        name, amount = allocation.resource_class, allocation.amount
        amounts[name] = amounts[name] + amount if name in amounts else amount
    return Amounts(amounts)


def by_provider(allocations: Iterable[Allocation]) -> dict[str, Amounts]:
    """Return ``{provider name: amounts}``, in the order of the allocations. Cost: linear."""
    grouped: dict[str, list[Allocation]] = {}
    for allocation in allocations:
        grouped.setdefault(allocation.provider, []).append(allocation)
    return {name: total(group) for name, group in grouped.items()}


# --- consumers, resource classes, traits, aggregates ---


@base.register
class Consumer(base.ResourceObject, frozen=True):
    """A consumer with its claim; a consumer without allocations is not stored.

    ``generation`` is its version, which no later consumer of that name repeats. ``str()`` returns
    its allocations: ``job-1 holds VCPU=16 of host0``.
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    name: str = fields.consumer_name()
    uuid: str = fields.uuid()
    generation: int = fields.integer(0)
    project: str | None = fields.label(default=None)
    user: str | None = fields.label(default=None)
    consumer_type: str | None = fields.label(default=None)
    group: str | None = fields.label(default=None)
    claim: Claim = fields.nested("Claim")

    @property
    def state(self) -> str:
        """The state of the claim."""
        return self.claim.state

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """The allocations of the claim."""
        return self.claim.allocations

    @property
    def request(self) -> Request | None:
        """The request of the search that found the candidate, if there was one."""
        return self.claim.request

    @property
    def created_at(self) -> datetime.datetime:
        """The time of the claim."""
        return self.claim.created_at

    @property
    def expires_at(self) -> datetime.datetime | None:
        """The time after which ``release_expired`` releases the claim; None: never."""
        return self.claim.expires_at

    def __str__(self) -> str:
        return str(self.claim)


@base.register
class ResourceClass(base.ResourceObject, frozen=True):
    """A resource class that a ledger stores: a standard one, one of a plug-in, or a custom one.

    >>> ResourceClass(name="CUSTOM_FPGA").is_custom
    True
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    name: str = fields.resource_class()

    @property
    def is_custom(self) -> bool:
        """Whether it is custom; other names can be neither renamed nor removed."""
        return self.name.startswith(names.CUSTOM_PREFIX)

    def __str__(self) -> str:
        return self.name


@base.register
class Trait(base.ResourceObject, frozen=True):
    """A trait of providers that a ledger stores.

    >>> Trait(name="HW_CPU_X86_AVX2").is_custom
    False
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    name: str = fields.trait()
    is_custom = ResourceClass.is_custom
    __str__ = ResourceClass.__str__


@base.register
class Aggregate(base.ResourceObject, frozen=True):
    """A named set of providers. Its ``level`` is a topology level, such as ``rack``.

    Its members are listed by ``ledger.providers(aggregates=[name])``.

    >>> print(Aggregate(name="r7", level="rack"))
    r7 (rack)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    name: str = fields.label()
    level: str | None = fields.label(default=None)

    def __str__(self) -> str:
        return f"{self.name} ({self.level})" if self.level else self.name
