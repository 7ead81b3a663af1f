"""What else is kept, as values: consumers, resource classes, traits, aggregates."""

from __future__ import annotations

import datetime

from resource_objects import base, fields, names
from resource_objects.providers.allocation import Allocation, Claim
from resource_objects.requests import Request


@base.register_record
class Consumer(base.Value):
    """Who uses something: any name, optionally with a project, a user and a type.

    ``claim`` is what it holds, ``generation`` its version, which no later consumer of that name
    repeats. A consumer that holds nothing is not kept.

    ``str()`` tells what it holds: ``job-1 holds VCPU=16 of host0``.
    """

    # Version 1.0: Initial version
    # Version 1.1: Claim 1.2
    VERSION = "1.1"

    CHILD_VERSIONS = {"resource_objects.Claim": [("1.0", "1.1"), ("1.1", "1.2")]}

    fields = {
        "name": fields.ConsumerNameField(),
        "uuid": fields.UUIDField(),
        "generation": fields.IntegerField(0),
        "project": fields.LabelField(nullable=True, default=None),
        "user": fields.LabelField(nullable=True, default=None),
        "consumer_type": fields.LabelField(nullable=True, default=None),
        "claim": fields.ObjectField("Claim"),
    }
    name: str
    uuid: str
    generation: int
    project: str | None = None
    user: str | None = None
    consumer_type: str | None = None
    claim: Claim

    @property
    def state(self) -> str:
        """State of its claim."""
        return self.claim.state

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """What it holds, one by one."""
        return self.claim.allocations

    @property
    def request(self) -> Request | None:
        """The request it was made for, where a search found what it holds."""
        return self.claim.request

    @property
    def created_at(self) -> datetime.datetime:
        """When its claim was made."""
        return self.claim.created_at

    @property
    def expires_at(self) -> datetime.datetime | None:
        """When whoever cleans up may release it; None: never."""
        return self.claim.expires_at

    def __str__(self) -> str:
        return str(self.claim)


@base.register_record
class ResourceClass(base.Value):
    """The name of a resource, as a ledger keeps it: a standard one, a plug-in's or a custom one.

    >>> ResourceClass(name="CUSTOM_FPGA").is_custom
    True
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {"name": fields.ResourceClassField()}
    name: str

    @property
    def is_custom(self) -> bool:
        """Whether somebody made it up; the others can be neither renamed nor removed."""
        return self.name.startswith(names.CUSTOM_PREFIX)

    def __str__(self) -> str:
        return self.name


@base.register_record
class Trait(base.Value):
    """A quality that providers may have, as a ledger keeps it.

    >>> Trait(name="HW_CPU_X86_AVX2").is_custom
    False
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {"name": fields.TraitField()}
    name: str

    @property
    def is_custom(self) -> bool:
        """Whether somebody made it up; the others can be neither renamed nor removed."""
        return self.name.startswith(names.CUSTOM_PREFIX)

    def __str__(self) -> str:
        return self.name


@base.register_record
class Aggregate(base.Value):
    """A set of providers, by name. Its ``level`` says what kind of place it is, such as ``rack``.

    Which providers are members, the providers say (``ledger.providers(aggregates=[name])``).

    >>> print(Aggregate(name="r7", level="rack"))
    r7 (rack)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        "name": fields.LabelField(),
        "level": fields.LabelField(nullable=True, default=None),
    }
    name: str
    level: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.level})" if self.level else self.name
