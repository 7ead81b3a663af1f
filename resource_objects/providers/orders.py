"""Writes: operations, orders for consumers, and changes of names.

An *order* (:class:`ConsumerOrder`) states the allocations of one consumer. A :class:`Write` has
any number of orders, with changes of definitions and names, and happens completely or not at all.

All classes are plain, frozen data that is checked when it is made.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self, TypeAlias

from resource_objects import clock, exceptions, names
from resource_objects._dataclass import fast_init
from resource_objects.fields import MAX_AMOUNT, FrozenDict
from resource_objects.providers.allocation import CONFIRMED, HELD
from resource_objects.providers.definition import DefinitionChanges
from resource_objects.providers.disabled import DisableOrder, check_utc
from resource_objects.providers.provider import Key as Key
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.requests import Request

#: The maximum total usage of inventories. An absent inventory has no maximum.
UseLimits: TypeAlias = Mapping[Key, int]

#: No maximum for any inventory.
UNLIMITED: UseLimits = FrozenDict()

#: The outcome of an operation that is younger than this is certainly still recorded.
FRESH = datetime.timedelta(hours=1)


#: A client's clock that is ahead prolongs the record of an operation by no more than this.
_AHEAD = datetime.timedelta(days=1)


def new_id() -> str:
    """Return a uuid with its creation time (version 7: milliseconds, then random bits)."""
    chance = int.from_bytes(os.urandom(10))
    number = (
        clock.milliseconds() << 80
        | 7 << 76
        | (chance >> 68) << 64
        | 2 << 62
        | chance & ((1 << 62) - 1)
    )
    text = f"{number:032x}"  # four times as fast as uuid.UUID
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _made_at(id: str) -> datetime.datetime | None:
    """Return the creation time of an operation id, None if the id has none."""
    if id[14] != "7":
        return None
    try:
        return datetime.datetime.fromtimestamp(int(id[:8] + id[9:13], 16) / 1000, datetime.UTC)
    except ValueError:  # after the year 9999, so from no clock
        return None


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class Operation:
    """One write, with an id that makes retries harmless. ``id`` is a uuid in text form.

    A new id has its creation time. So a repetition is refused, and not carried out again, once the
    ledger no longer records the outcome. ``actor`` is reported in the change feed.
    """

    id: str
    actor: str | None
    #: The creation time of the id, by the client's clock; None if the id has none.
    made_at: datetime.datetime | None = dataclasses.field(init=False, repr=False, compare=False)

    def __init__(self, id: str | None = None, actor: str | None = None) -> None:
        """Make an operation of an id; None: of a new one."""
        if id is None:
            id = new_id()
        elif names.uuid_text(id) != id:
            raise exceptions.InvalidInput(
                "name", "operation", id, "a uuid in lower case with hyphens"
            )
        if actor is not None:
            names.label(actor, "actor")
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "actor", actor)
        object.__setattr__(self, "made_at", _made_at(id))

    def kept_from(self, now: datetime.datetime) -> datetime.datetime:
        """Return the start of the retention: the time of the write, or of the id if that is later.

        The clock of the client may be ahead of the ledger's. With a retention by the ledger's clock
        only, a repetition could look too young to have been removed.
        """
        if self.made_at is None:
            return now
        return min(max(now, self.made_at), now + _AHEAD)

    def require_known(self, now: datetime.datetime, kept_for: datetime.timedelta) -> None:
        """Raise if an operation without a recorded outcome may have had one that was removed.

        :param now: the ledger's time. Clocks may differ, so an operation younger than an hour is
            never refused
        :param kept_for: for how long the ledger records operations
        :raises Expired: if the operation is older than that less an hour
        """
        if self.made_at is not None and self.made_at < now - max(kept_for - FRESH, FRESH):
            raise exceptions.Expired(
                "operation", self.id, f"made at {self.made_at:%Y-%m-%d %H:%M:%S}"
            )


class StoredRequest:
    """The request of a consumer as it is stored: an object, or JSON text.

    Each form is made of the other one on first use. So a claim neither writes a request that no
    backend stores nor parses the text that it has just written.

    ``shared`` is for a consumer that holds the source of a move: the allocations of pools that the
    moving consumer holds for both, as they were before the move. There may be no request then. The
    text contains ``shared``, so the argument ``shared`` has no effect next to a text.

    >>> stored = StoredRequest(Request("VCPU=2"))
    >>> StoredRequest(stored.text) == stored
    True
    >>> print(StoredRequest(stored.text).request)
    VCPU=2
    """

    __slots__ = ("_text", "_values")

    def __init__(self, request: Request | str | None, shared: tuple[Use, ...] = ()) -> None:
        self._text: str | None = None
        self._values: tuple[Request | None, tuple[Use, ...]] | None = None
        if isinstance(request, str):
            self._text = request
        else:
            self._values = request, shared

    @property
    def text(self) -> str:
        """The wire form as compact JSON."""
        if self._text is None:
            request, shared = self._read()
            self._text = "" if request is None else _text_of(request)
            if shared:
                uses = [
                    [*use.key, use.amount, *([use.units] if use.units else [])] for use in shared
                ]
                body = {**json.loads(self._text or "{}"), _SHARED: uses}
                self._text = json.dumps(body, separators=(",", ":"))
        return self._text

    @property
    def request(self) -> Request | None:
        """The request itself; None only next to ``shared``."""
        return self._read()[0]

    @property
    def shared(self) -> tuple[Use, ...]:
        """The allocations of pools that another consumer holds for this one."""
        if self._values is None and _SHARED not in self.text:
            return ()
        return self._read()[1]

    def _read(self) -> tuple[Request | None, tuple[Use, ...]]:
        if self._values is None:
            self._values = _read_text(self.text)
        return self._values

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredRequest):
            return NotImplemented
        return self is other or self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"StoredRequest({self.text!r})"


#: The key of ``StoredRequest.shared``, next to the keys of the request.
_SHARED = "ledger.shared"


@functools.lru_cache(maxsize=256)
def _text_of(request: Request) -> str:
    """Return a request as JSON; many consumers often have the same request."""
    return json.dumps(request.obj_to_primitive(), separators=(",", ":"))


@functools.lru_cache(maxsize=256)
def _read_text(text: str) -> tuple[Request | None, tuple[Use, ...]]:
    body = json.loads(text)
    shared = body.pop(_SHARED, ()) if isinstance(body, dict) else ()
    request = None if shared and not body else Request.obj_from_primitive(body)
    return request, tuple(Use(*values[:3], *map(tuple, values[3:])) for values in shared)


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """An amount of one resource class at one provider, ordered or allocated, with its units.

    In an order that adds (:attr:`Mode.ADD`) a negative amount releases, and ``units`` are those to
    release. Such an order may also allocate ``units`` and release other units, ``released``, in
    one use; its amount is the difference of their numbers, which may be 0. ``provider`` is the
    provider's name, of a stored allocation.

    >>> Use("6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e", "PGPU", 0, ("gpu1",), released=("gpu0",)).key
    ('6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e', 'PGPU')
    """

    provider_uuid: str
    resource_class: str
    amount: int
    units: tuple[str, ...] = ()
    provider: str = ""
    released: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """The inventory that the amount is counted in."""
        return self.provider_uuid, self.resource_class

    def beyond(self, other: Use) -> Use:
        """Return this use without the amount and the units of another use of the same inventory."""
        units = tuple(unit for unit in self.units if unit not in other.units)
        less = len(self.units) - len(units) if self.units or other.units else other.amount
        return dataclasses.replace(self, amount=self.amount - less, units=units)


class Mode(enum.StrEnum):
    """How the uses of an order change the allocations of its consumer."""

    SET = "set"  #: they replace all allocations
    ADD = "add"  #: they are added to the allocations
    KEEP = "keep"  #: the allocations stay; the claim changes


class Expect(enum.StrEnum):
    """The required state of the consumer of an order."""

    ABSENT = "absent"  #: it has no allocations
    PRESENT = "present"  #: it has allocations
    ANY = "any"  #: it is created if it does not exist


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerOrder:
    """The allocations that one consumer shall have, and the fields of the consumer.

    ================================  =============  ====  =====================================
    made by                           expects        mode  does
    ================================  =============  ====  =====================================
    :meth:`claim`                     ABSENT         SET   allocates, for a new consumer
    :meth:`adjust`                    ANY            ADD   changes the allocations by amounts
    :meth:`replace`                   ANY            SET   replaces all allocations
    :meth:`renew`                     PRESENT        KEEP  sets the claim's expiry and state
    :meth:`release`                   PRESENT        SET   releases all allocations
    ================================  =============  ====  =====================================

    ``expect`` may also be the generation that the consumer was read at. ``expires_in`` counts from
    the write, by the ledger's clock.

    ``uuid`` is that of a new consumer and its claim (None: a new uuid); in a renewal, that of the
    claim to renew. A field that is None keeps its stored value, except for the expiry in a renewal,
    and the ``request`` in mode SET, since that was for the released allocations. An ``aggregate``
    is many unknown consumers: capacity binds it; unit rules, which bind one consumer, do not.
    An amount that does not increase is not checked against unit rules.

    An order that ``adopts`` records amounts that are already in use: neither capacity nor unit
    rules bind it. A unit that is allocated to another consumer stays allocated to that consumer.

    An order that ``overrides_disabled`` may allocate of disabled providers; the change feed
    reports it. ``group`` is the server group that the consumer is a member of after the write.

    A release that is ``counted`` counts as a write of the providers where it releases something
    (see ``ListedProvider.allocation_writes``); other releases do not.

    :raises InvalidInput: for two uses of one (provider, class); for a use that is 0, or negative
        where it is not added, or for none; for a state that is not ``held`` or ``confirmed``
    """

    consumer: str
    expect: Expect | int
    mode: Mode
    uses: tuple[Use, ...] = ()
    uuid: str | None = None
    request: StoredRequest | None = None
    project: str | None = None
    user: str | None = None
    consumer_type: str | None = None
    expires_at: datetime.datetime | None = None
    expires_in: datetime.timedelta | None = None
    state: str | None = None
    aggregate: bool = False
    adopts: bool = False
    overrides_disabled: bool = False
    group: str | None = None
    counted: bool = False

    def __post_init__(self) -> None:
        _check_consumer(self)
        if self.mode is Mode.KEEP:
            if self.state not in (HELD, CONFIRMED):
                raise exceptions.InvalidInput(
                    "field", "state", self.state, f"{HELD} or {CONFIRMED}"
                )
        elif self.uses or self.expect in (Expect.ABSENT, Expect.ANY) or self.mode is Mode.ADD:
            _check_uses(self.uses, 1 if self.mode is Mode.SET else -MAX_AMOUNT)

    @classmethod
    def claim(cls, consumer: str, uses: tuple[Use, ...], **fields: Any) -> Self:
        """Return an order to allocate, for a consumer without allocations."""
        return cls(consumer, Expect.ABSENT, Mode.SET, uses, **fields)

    @classmethod
    def adjust(
        cls, consumer: str, uses: tuple[Use, ...], *, generation: int | None = None, **fields: Any
    ) -> Self:
        """Return an order to change allocations; a consumer without any left is removed."""
        return cls(consumer, _expected(generation, Expect.ANY), Mode.ADD, uses, **fields)

    @classmethod
    def replace(
        cls, consumer: str, uses: tuple[Use, ...], *, generation: int | None = None, **fields: Any
    ) -> Self:
        """Return an order to replace allocations; the claim keeps its id, state and expiry."""
        _check_uses(uses, 1)
        return cls(consumer, _expected(generation, Expect.ANY), Mode.SET, uses, **fields)

    @classmethod
    def renew(
        cls,
        consumer: str,
        expires_at: datetime.datetime | None = None,
        state: str = HELD,
        *,
        uuid: str | None = None,
        generation: int | None = None,
        expires_in: datetime.timedelta | None = None,
    ) -> Self:
        """Return an order to set the expiry (neither: none) and the state of a claim."""
        return cls(
            consumer,
            _expected(generation, Expect.PRESENT),
            Mode.KEEP,
            uuid=uuid,
            expires_at=expires_at,
            expires_in=expires_in,
            state=state,
        )

    @classmethod
    def release(cls, consumer: str, generation: int | None = None) -> Self:
        """Return an order to release all allocations; the consumer is removed."""
        return cls(consumer, _expected(generation, Expect.PRESENT), Mode.SET)

    @property
    def generation(self) -> int | None:
        """The required generation of the consumer, None if any is accepted."""
        return None if isinstance(self.expect, Expect) else self.expect

    @property
    def is_claim(self) -> bool:
        """Whether the consumer must have no allocations."""
        return self.expect is Expect.ABSENT

    @property
    def is_release(self) -> bool:
        """Whether the order releases all allocations."""
        return self.mode is Mode.SET and not self.uses


def _expected(generation: int | None, otherwise: Expect) -> Expect | int:
    return otherwise if generation is None else generation


def check_unique(field: str, keys: Iterable[object], expected: str = "each once") -> None:
    """Raise ``InvalidInput`` if a key occurs twice."""
    keys = list(keys)
    if len(set(keys)) != len(keys):
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise exceptions.InvalidInput("repetition", field, repeated, expected)


def _check_uses(uses: tuple[Use, ...], least: int) -> None:
    if not uses:
        raise exceptions.InvalidInput("amount", "uses", uses, "at least one")
    seen: set[Key] = set()
    for use in uses:
        key = use.provider_uuid, use.resource_class
        if key in seen:
            raise exceptions.InvalidInput("repetition", "uses", key, "each provider and class once")
        seen.add(key)
        amount = use.amount
        if use.released:
            _check_exchange(use, least)
        elif type(amount) is not int or amount == 0 or not least <= amount <= MAX_AMOUNT:
            raise exceptions.InvalidInput(
                "amount", f"use of {use.resource_class}", amount, f"an integer from {least}, not 0"
            )
        if use.units:
            _check_units(use.units)


def _check_exchange(use: Use, least: int) -> None:
    """Check a use that allocates some units and releases others.

    :param least: the least amount that the mode of the order allows
    """
    if least > 0:
        expected = "none: an order that sets replaces all units"
        raise exceptions.InvalidInput("field", "released", use.released, expected)
    _check_units((*use.units, *use.released))
    net = len(use.units) - len(use.released)
    if type(use.amount) is not int or use.amount != net:
        expected = f"{net}: the number of allocated units minus the number of released ones"
        raise exceptions.InvalidInput(
            "amount", f"use of {use.resource_class}", use.amount, expected
        )


def _check_units(units: tuple[str, ...]) -> None:
    check_unique("units", [names.label(unit, "unit") for unit in units], "each unit once")


def _check_consumer(order: ConsumerOrder) -> None:
    """Check the fields of a consumer and its claim, so that the stored rows can be read again."""
    names.consumer_name(order.consumer)
    if order.project is not None:
        names.label(order.project, "project of a consumer")
    if order.user is not None:
        names.label(order.user, "user of a consumer")
    if order.consumer_type is not None:
        names.label(order.consumer_type, "type of a consumer")
    if order.group is not None:
        names.label(order.group, "server group")
    if order.uuid is not None and names.uuid_text(order.uuid) != order.uuid:
        raise exceptions.InvalidInput(
            "name", "claim id", order.uuid, "a uuid in lower case with hyphens"
        )
    if order.expires_at is not None:
        check_utc("expires_at", order.expires_at)
        if order.expires_in is not None:
            expected = "either this or expires_at"
            raise exceptions.InvalidInput("field", "expires_in", order.expires_in, expected)
    if not isinstance(order.expect, Expect) and type(order.expect) is not int:
        raise exceptions.InvalidInput("field", "generation", order.expect, "an integer")


class NameKind(enum.StrEnum):
    """The kinds of names that a ledger stores independently of providers."""

    RESOURCE_CLASS = "resource_class"
    TRAIT = "trait"
    AGGREGATE = "aggregate"


class NameAction(enum.StrEnum):
    """The changes of a name."""

    ENSURE = "ensure"  #: create the name unless it exists
    RENAME = "rename"
    DELETE = "delete"  #: only an unused name
    SET_LEVEL = "set_level"  #: the topology level of an aggregate, such as ``rack``


@dataclasses.dataclass(frozen=True, slots=True)
class NameChange:
    """A change of one resource class, trait or aggregate.

    ``to`` is the new name of a RENAME, the level (None for none) of a SET_LEVEL.
    """

    kind: NameKind
    action: NameAction
    name: str
    to: str | None = None


def class_renames(changes: Iterable[NameChange]) -> tuple[tuple[str, str], ...]:
    """Return the old and the new name of each resource class that is renamed."""
    return tuple(
        (change.name, change.to)
        for change in changes
        if change.kind is NameKind.RESOURCE_CLASS
        and change.action is NameAction.RENAME
        and change.to
    )


@dataclasses.dataclass(frozen=True, slots=True)
class GroupChange:
    """A change of one server group: it is created as ``group``, or removed for None."""

    name: str
    group: ServerGroup | None


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class Write:
    """All changes of one operation, carried out completely or not at all, in this order.

    1. ``names`` and server ``groups`` are changed;
    2. providers and inventories of ``definitions`` are created and updated;
    3. ``orders`` are carried out together: capacity is checked by the net change of all orders;
    4. inventories and providers of ``definitions`` are removed.

    ``unchanged`` are the definitions that the decision depends on, ``(provider's uuid,
    generation)``. ``reported`` are the uuids of providers whose owner has just reported its state.
    ``adopted`` are those of hosts whose earlier usage is completely allocated now, which is
    recorded once. ``disabling`` disables and enables providers before ``orders`` are carried out.
    These three may name providers that ``definitions`` create. ``limits`` are totals for this write
    only: they bind an inventory if ``orders`` allocate more of it than they release.

    An operation is identified by its id with ``kind`` and ``subject``: a repetition has the same.
    """

    operation: Operation
    kind: str
    subject: str
    definitions: DefinitionChanges | None = None
    orders: tuple[ConsumerOrder, ...] = ()
    names: tuple[NameChange, ...] = ()
    unchanged: tuple[tuple[str, int], ...] = ()
    reported: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()
    disabling: tuple[DisableOrder, ...] = ()
    limits: UseLimits = UNLIMITED
    groups: tuple[GroupChange, ...] = ()

    @property
    def counted(self) -> frozenset[str]:
        """The uuids of the providers whose definition is written, as Placement counts writes."""
        updates = () if self.definitions is None else self.definitions.updates
        return frozenset(update.definition.uuid for update in updates if update.writes)

    def __post_init__(self) -> None:
        check_unique("orders", [order.consumer for order in self.orders], "each consumer once")
        uuids = [order.provider_uuid for order in self.disabling]
        check_unique("disabling", uuids, "each provider once")
        for (_, name), total in self.limits.items() if self.limits else ():
            if type(total) is not int or not 0 <= total <= MAX_AMOUNT:
                raise exceptions.InvalidInput(
                    "amount", f"limit of {name}", total, f"an integer from 0 to {MAX_AMOUNT}"
                )


def subject_of(consumers: Iterable[str]) -> str:
    """Return the subject of a write for several consumers, in at most 255 characters.

    >>> subject_of(["job-1"])
    'job-1'
    >>> subject_of(["job-2", "job-1"]) == subject_of(["job-1", "job-2"])
    True
    """
    ordered = sorted(consumers)
    if len(ordered) == 1:
        return ordered[0]
    digest = hashlib.sha256("\0".join(ordered).encode()).hexdigest()
    return f"{len(ordered)} consumers {digest[:32]}"


# --- outcomes ---


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """The change of the allocation of one consumer in one inventory."""

    consumer: str
    key: Key
    before: int
    after: int
    allocated_units: tuple[str, ...] = ()
    released_units: tuple[str, ...] = ()


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """A stored consumer with its claim, which has the same uuid: the outcome of every order.

    ``generation`` is the number of the operation that wrote the consumer last. A later consumer of
    the same name never repeats it. ``writes`` counts the writes since the consumer was created.
    """

    uuid: str
    consumer: str
    created_at: datetime.datetime
    held: tuple[Use, ...]
    state: str = HELD
    request: StoredRequest | None = None
    generation: int = 0
    project: str | None = None
    user: str | None = None
    consumer_type: str | None = None
    expires_at: datetime.datetime | None = None
    writes: int = dataclasses.field(default=0, compare=False)
    group: str | None = None

    @property
    def uses(self) -> tuple[Use, ...]:
        """The allocations, with the units that a moving consumer provides (``shared``) added."""
        uses = {use.key: Use(*use.key, use.amount, use.units) for use in self.held}
        if self.request is not None:
            uses |= {use.key: use for use in self.request.shared}
        return tuple(uses.values())

    @property
    def own_request(self) -> StoredRequest | None:
        """The request without the allocations that a moving consumer holds for it."""
        if self.request is None or not self.request.shared:
            return self.request
        return None if self.request.request is None else StoredRequest(self.request.request)

    def left_by(self, uses: Iterable[Use], pools: Collection[str]) -> dict[str, Any]:
        """Return ``uses`` and ``request``, arguments of a :class:`ConsumerOrder`, for a move.

        The order is for the consumer that takes over the allocations of this one. The amounts and
        units of pools that the moving consumer still uses are subtracted from them, so that they
        are counted once. ``request.shared`` records these allocations as they were before. If
        nothing would remain, all allocations are returned and nothing is subtracted, because a
        consumer needs at least one allocation.

        :param uses: the uses of the moving consumer after the move
        :param pools: the uuids of pools
        """
        pooled = {use.key: use for use in uses if use.provider_uuid in pools}
        reduced = {use: use.beyond(pooled[use.key]) for use in self.uses if use.key in pooled}
        shared = tuple(use for use, beyond in reduced.items() if beyond != use)
        remaining = tuple(use for use in (reduced.get(u, u) for u in self.uses) if use.amount > 0)
        request = self.own_request
        if not remaining or not shared:
            return {"uses": self.uses, "request": request}
        stored = StoredRequest(None if request is None else request.request, shared)
        return {"uses": remaining, "request": stored}


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """A recorded operation: its kind, its subject and the resulting claims."""

    kind: str
    subject: str
    claims: tuple[ConsumerRecord, ...] = ()

    @property
    def claim(self) -> ConsumerRecord | None:
        """The claim, if there is exactly one."""
        return self.claims[0] if len(self.claims) == 1 else None

    def require(self, operation: str, kind: str, subject: str) -> None:
        """Raise unless the operation had this kind and this subject.

        :raises Conflict: if its id was used for something else
        """
        if (self.kind, self.subject) != (kind, subject):
            raise exceptions.Conflict("operation", operation, f"{self.kind} of {self.subject}")
