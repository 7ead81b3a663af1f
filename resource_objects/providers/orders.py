"""What a write asks of a backend: operations, orders for consumers, changes of names.

An *order* says what one consumer shall hold; a :class:`Write` carries any number of them, with
changes of definitions and names, and happens whole or not at all.

============================  =====================================================================
:class:`ClaimOrder`           take, for a consumer that holds nothing yet
:class:`Adjustment`           change what a consumer holds, by amounts; it is made if need be
:class:`Replacement`          hold this and nothing else; it is made if need be
:class:`Renewal`              give a claim another expiry or state; what is held stays
:class:`Release`              give back everything
============================  =====================================================================

Everything here is plain, frozen data, checked when it is made.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import hashlib
import uuid as uuids
from collections.abc import Iterable
from typing import TypeAlias

from resource_objects import exceptions, names
from resource_objects.fields import MAX_AMOUNT
from resource_objects.providers.allocation import CONFIRMED, HELD
from resource_objects.providers.definition import DefinitionChanges

#: (provider's uuid, resource class): where something is counted.
Key: TypeAlias = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """One write, by an id that makes retries harmless. ``id`` is a uuid in text form.

    ``actor`` says who does it, for the change feed.
    """

    id: str = dataclasses.field(default_factory=lambda: str(uuids.uuid4()))
    actor: str | None = None

    def __post_init__(self) -> None:
        if names.uuid_text(self.id) != self.id:
            raise exceptions.InvalidName("operation", self.id, "a uuid in lower case with hyphens")
        if self.actor is not None:
            names.label(self.actor, "actor")


@dataclasses.dataclass(frozen=True, slots=True)
class Delta:
    """A change of one resource class at one provider, with the units taken or given back.

    In an order to hold it is positive; in an adjustment negative ones give back.
    """

    provider_uuid: str
    resource_class: str
    amount: int
    units: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """Where it is counted."""
        return self.provider_uuid, self.resource_class


def _check_deltas(deltas: tuple[Delta, ...], least: int) -> None:
    if not deltas:
        raise exceptions.InvalidAmount("deltas", deltas, "at least one")
    seen: set[Key] = set()
    for delta in deltas:
        key = delta.provider_uuid, delta.resource_class
        if key in seen:
            raise exceptions.DuplicateKey("deltas", key, "each provider and class once")
        seen.add(key)
        amount = delta.amount
        if type(amount) is not int or amount == 0 or not least <= amount <= MAX_AMOUNT:
            raise exceptions.InvalidAmount(
                f"delta of {delta.resource_class}", amount, f"an integer from {least}, not 0"
            )
        if delta.units:
            _check_units(delta.units)


def _check_units(units: tuple[str, ...]) -> None:
    if len({names.label(unit, "unit") for unit in units}) != len(units):
        raise exceptions.DuplicateKey("units", units, "each unit once")


def _check_consumer(order: Order) -> None:
    """Check what an order says of its consumer and claim: what is kept can be read again."""
    names.consumer_name(order.consumer)
    for name, what in (("project", "project"), ("user", "user"), ("consumer_type", "type")):
        value = getattr(order, name, None)
        if value is not None:
            names.label(value, f"{what} of a consumer")
    claim = getattr(order, "claim_id", None)
    if claim is not None and names.uuid_text(claim) != claim:
        raise exceptions.InvalidName("claim id", claim, "a uuid in lower case with hyphens")
    expires_at = getattr(order, "expires_at", None)
    if expires_at is not None and (
        not isinstance(expires_at, datetime.datetime) or expires_at.tzinfo is not datetime.UTC
    ):
        raise exceptions.InvalidField("expires_at", expires_at, "a datetime in datetime.UTC")
    generation = getattr(order, "generation", None)
    if generation is not None and type(generation) is not int:
        raise exceptions.InvalidField("generation", generation, "an integer")


def _new_id() -> str:
    return str(uuids.uuid4())


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimOrder:
    """Take ``deltas``, at least one, for a consumer that holds nothing yet.

    :raises DuplicateKey: for two deltas of one (provider, class)
    :raises InvalidAmount: for a delta that is not a positive integer
    """

    consumer: str
    deltas: tuple[Delta, ...]
    claim_id: str = dataclasses.field(default_factory=_new_id)
    request: str | None = None  # the request it was made for, as JSON
    project: str | None = None
    user: str | None = None
    consumer_type: str | None = None
    expires_at: datetime.datetime | None = None

    def __post_init__(self) -> None:
        _check_consumer(self)
        _check_deltas(self.deltas, 1)


@dataclasses.dataclass(frozen=True, slots=True)
class Adjustment:
    """Change what a consumer holds by ``deltas``; it is made if need be, and goes when empty.

    An ``aggregate`` stands for many consumers, of whom nothing more is known: capacity binds it,
    the unit rules, which are about one consumer, do not. A ``generation`` is the one the consumer
    was read at; None demands none. A ``request`` takes the place of the one it was made for.

    :raises DuplicateKey: for two deltas of one (provider, class)
    :raises InvalidAmount: for a delta of 0
    """

    consumer: str
    deltas: tuple[Delta, ...]
    claim_id: str = dataclasses.field(default_factory=_new_id)
    aggregate: bool = False
    generation: int | None = None
    request: str | None = None

    def __post_init__(self) -> None:
        _check_consumer(self)
        _check_deltas(self.deltas, -MAX_AMOUNT)


@dataclasses.dataclass(frozen=True, slots=True)
class Replacement:
    """Hold ``deltas`` (positive, at least one) and nothing else; the consumer is made if need be.

    What is given as None stays as it is kept, but for the ``request``: it was for what is given
    back, and None is none. ``generation`` as in :class:`Adjustment`. The claim keeps its id, its
    state and its expiry. An amount that does not grow is not checked
    against unit rules.
    """

    consumer: str
    deltas: tuple[Delta, ...]
    claim_id: str = dataclasses.field(default_factory=_new_id)
    request: str | None = None
    project: str | None = None
    user: str | None = None
    consumer_type: str | None = None
    generation: int | None = None

    def __post_init__(self) -> None:
        _check_consumer(self)
        _check_deltas(self.deltas, 1)


@dataclasses.dataclass(frozen=True, slots=True)
class Renewal:
    """Give the claim of a consumer another expiry (None: it never expires) and state.

    :raises InvalidField: for a state that no claim of something held has
    """

    consumer: str
    expires_at: datetime.datetime | None
    state: str = HELD
    claim_id: str | None = None  # the claim meant; None: whichever the consumer has
    generation: int | None = None

    def __post_init__(self) -> None:
        _check_consumer(self)
        if self.state not in (HELD, CONFIRMED):
            raise exceptions.InvalidField("state", self.state, f"{HELD} or {CONFIRMED}")


@dataclasses.dataclass(frozen=True, slots=True)
class Release:
    """Give back all that a consumer holds and forget the consumer."""

    consumer: str
    generation: int | None = None

    def __post_init__(self) -> None:
        _check_consumer(self)


Order: TypeAlias = ClaimOrder | Adjustment | Replacement | Renewal | Release


class NameKind(enum.StrEnum):
    """The names that a ledger keeps by themselves."""

    RESOURCE_CLASS = "resource_class"
    TRAIT = "trait"
    AGGREGATE = "aggregate"


class NameAction(enum.StrEnum):
    """What may be done to a name."""

    ENSURE = "ensure"  #: create it, or leave it as it is
    RENAME = "rename"
    DELETE = "delete"  #: only one that nothing uses
    SET_LEVEL = "set_level"  #: of an aggregate: what kind of place it is, such as ``rack``


@dataclasses.dataclass(frozen=True, slots=True)
class NameChange:
    """A change of one resource class, trait or aggregate.

    ``to`` is the new name of a RENAME, the level (None for none) of a SET_LEVEL.
    """

    kind: NameKind
    action: NameAction
    name: str
    to: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Write:
    """Everything one operation changes: done whole or not at all, in this order.

    1. ``names`` are changed;
    2. providers and inventories of ``definitions`` are created and updated;
    3. ``orders`` are carried out together: capacity is judged by the net change of all of them;
    4. inventories and providers of ``definitions`` that go are removed.

    ``unchanged`` are definitions that the decision was made on, ``(provider's uuid, generation)``;
    ``reported`` are the uuids of providers whose owner has just said how they are.

    An operation is known by ``kind`` and ``subject``: a repetition must say the same.
    """

    operation: Operation
    kind: str
    subject: str
    definitions: DefinitionChanges | None = None
    orders: tuple[Order, ...] = ()
    names: tuple[NameChange, ...] = ()
    unchanged: tuple[tuple[str, int], ...] = ()
    reported: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        consumers = [order.consumer for order in self.orders]
        if len(set(consumers)) != len(consumers):
            raise exceptions.DuplicateKey("orders", consumers, "each consumer once")


def subject_of(consumers: Iterable[str]) -> str:
    """Return what a write about several consumers is about, in at most 255 characters.

    >>> subject_of(["job-1"])
    'job-1'
    >>> subject_of(["job-2", "job-1"]) == subject_of(["job-1", "job-2"])
    True
    """
    found = sorted(consumers)
    if len(found) == 1:
        return found[0]
    digest = hashlib.sha256("\0".join(found).encode()).hexdigest()
    return f"{len(found)} consumers {digest[:32]}"


# --- what came of it ---


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """One allocation as kept."""

    provider_uuid: str
    provider: str
    resource_class: str
    amount: int
    units: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """Where it is counted."""
        return self.provider_uuid, self.resource_class


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimRecord:
    """A claim as kept, with its consumer: the outcome of every order.

    ``generation`` is the number of the operation that wrote the consumer last; no later life of a
    consumer of that name repeats it.
    """

    id: str
    consumer: str
    consumer_uuid: str
    created_at: datetime.datetime
    held: tuple[Held, ...]
    state: str = HELD
    request: str | None = None
    generation: int = 0
    project: str | None = None
    user: str | None = None
    consumer_type: str | None = None
    expires_at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What a recorded operation was: its kind, for whom, and the claims that came of it."""

    kind: str
    subject: str
    claims: tuple[ClaimRecord, ...] = ()

    @property
    def claim(self) -> ClaimRecord | None:
        """The claim, where there is just one."""
        return self.claims[0] if len(self.claims) == 1 else None

    def require(self, operation: str, kind: str, subject: str) -> None:
        """Raise unless the operation of this id was of that kind, for that subject.

        :raises OperationConflict: if its id was used for something else
        """
        if (self.kind, self.subject) != (kind, subject):
            raise exceptions.OperationConflict(operation, f"{self.kind} of {self.subject}")
