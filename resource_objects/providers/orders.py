"""What a write asks of a backend: operations, orders for consumers, changes of names.

An *order* (:class:`ConsumerOrder`) says what one consumer shall hold; a :class:`Write` carries any
number of them, with changes of definitions and names, and happens whole or not at all.

Everything here is plain, frozen data, checked when it is made.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import hashlib
import json
import secrets
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self, TypeAlias

from resource_objects import clock, exceptions, names
from resource_objects._fast import set_directly
from resource_objects.fields import MAX_AMOUNT, FrozenDict
from resource_objects.providers.allocation import CONFIRMED, HELD
from resource_objects.providers.definition import DefinitionChanges
from resource_objects.providers.disabled import DisableOrder
from resource_objects.providers.server_groups import ServerGroup
from resource_objects.requests import Request

#: (provider's uuid, resource class): where something is counted.
Key: TypeAlias = tuple[str, str]
#: How much may be used in all of some inventories; of what is absent, whatever there is.
Totals: TypeAlias = Mapping[Key, int]

#: Nothing is bounded.
UNLIMITED: Totals = FrozenDict()

#: An operation that was made within this time is certainly known, if it was done.
FRESH = datetime.timedelta(hours=1)


#: A clock that is ahead by more than this makes nothing be kept any longer.
_AHEAD = datetime.timedelta(days=1)


def new_id(milliseconds: int | None = None) -> str:
    """Return a uuid that says when it was made (version 7: milliseconds, then chance).

    :param milliseconds: since 1970; None: now
    """
    chance = secrets.randbits(74)
    number = (
        (clock.milliseconds() if milliseconds is None else milliseconds) << 80
        | 7 << 76
        | (chance >> 62) << 64
        | 2 << 62
        | chance & ((1 << 62) - 1)
    )
    text = f"{number:032x}"  # uuid.UUID takes four times as long to say the same
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _made_at(id: str) -> datetime.datetime | None:
    """Return when the id of an operation was made, None if it does not say."""
    return _at(int(id[:8] + id[9:13], 16)) if id[14] == "7" else None


def _at(milliseconds: int) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
    except ValueError:  # after the year 9999: no clock said that
        return None


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class Operation:
    """One write, by an id that makes retries harmless. ``id`` is a uuid in text form.

    One made here says when it was made, so that a repetition is refused, and not done again, once
    the ledger has forgotten what was done then. ``actor`` says who does it, for the change feed.
    """

    id: str
    actor: str | None
    #: When its id was made, by the clock of who made it; None if the id does not say.
    made_at: datetime.datetime | None = dataclasses.field(init=False, repr=False, compare=False)

    def __init__(self, id: str | None = None, actor: str | None = None) -> None:
        """Make it of an id; None: of one that is made up now."""
        if id is None:
            now = clock.milliseconds()
            id, made = new_id(now), _at(now)
        elif names.uuid_text(id) != id:
            raise exceptions.InvalidInput(
                "name", "operation", id, "a uuid in lower case with hyphens"
            )
        else:
            made = _made_at(id)
        if actor is not None:
            names.label(actor, "actor")
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "actor", actor)
        object.__setattr__(self, "made_at", made)

    def kept_from(self, now: datetime.datetime) -> datetime.datetime:
        """Return when the time begins for which it is kept: when it was done, or made, if later.

        The clock of who made its id may be ahead of the ledger's. Were it forgotten by the ledger's
        time alone, a repetition could look too young to have been forgotten.
        """
        made = self.made_at
        return now if made is None else min(max(now, made), now + _AHEAD)

    def require_known(self, now: datetime.datetime, kept_for: datetime.timedelta) -> None:
        """Raise if it may have been done and forgotten since: it is not recorded.

        :param now: the ledger's time; clocks may differ by an hour, so what was made within it is
            never refused
        :param kept_for: how long the ledger keeps operations
        :raises Expired: if it is older than that
        """
        made = self.made_at
        if made is not None and made < now - max(kept_for - FRESH, FRESH):
            raise exceptions.Expired(
                "operation", self.id, f"made at {self.made_at:%Y-%m-%d %H:%M:%S}"
            )


class StoredRequest:
    """The request that a consumer was made for, as it is stored: an object, or JSON text.

    Either is made of the other when it is first asked for, so that a claim neither writes a request
    that no backend stores nor parses what it has just written.

    ``shared`` is for a consumer that holds the source of a move: the allocations of pools that the
    moving consumer holds for both, as they were before the move. There may be no request then. The
    text contains ``shared``, so the argument ``shared`` has no effect next to a text.

    >>> stored = StoredRequest(Request("VCPU=2"))
    >>> StoredRequest(stored.text) == stored
    True
    >>> print(StoredRequest(stored.text).request)
    VCPU=2
    """

    __slots__ = ("_request", "_shared", "_text")

    def __init__(self, given: Request | str | None, shared: tuple[Use, ...] = ()) -> None:
        self._text = given if isinstance(given, str) else None
        self._request = None if isinstance(given, str) else given
        self._shared = None if isinstance(given, str) else shared

    @property
    def text(self) -> str:
        """The wire form as compact JSON."""
        if self._text is None:
            self._text = "" if self._request is None else _text_of(self._request)
            if self._shared:
                shared = [
                    [*use.key, use.amount, *([use.units] if use.units else [])]
                    for use in self._shared
                ]
                body = {**json.loads(self._text or "{}"), _SHARED: shared}
                self._text = json.dumps(body, separators=(",", ":"))
        return self._text

    @property
    def request(self) -> Request | None:
        """The request itself; None only next to ``shared``."""
        if self._request is None and self._shared is None:
            self._read()
        return self._request

    @property
    def shared(self) -> tuple[Use, ...]:
        """The allocations of pools that another consumer holds for this one."""
        if self._shared is None:
            if _SHARED not in self.text:
                return ()
            self._read()
        assert self._shared is not None, "it was read"
        return self._shared

    def _read(self) -> None:
        self._request, self._shared = _read_text(self.text)

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
    """Return a request as JSON; the same one is often claimed for many consumers."""
    return json.dumps(request.obj_to_primitive(), separators=(",", ":"))


@functools.lru_cache(maxsize=256)
def _read_text(text: str) -> tuple[Request | None, tuple[Use, ...]]:
    body = json.loads(text)
    shared = body.pop(_SHARED, ()) if isinstance(body, dict) else ()
    request = None if shared and not body else Request.obj_from_primitive(body)
    return request, tuple(Use(*one[:3], *map(tuple, one[3:])) for one in shared)


@set_directly
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
        """Where it is counted."""
        return self.provider_uuid, self.resource_class

    def beyond(self, other: Use) -> Use:
        """Return what remains of this without another use of the same inventory.

        Of units by name those remain that the other one does not have.
        """
        units = tuple(unit for unit in self.units if unit not in other.units)
        less = len(self.units) - len(units) if self.units or other.units else other.amount
        return dataclasses.replace(self, amount=self.amount - less, units=units)


class Mode(enum.StrEnum):
    """How the uses of an order become what its consumer holds."""

    SET = "set"  #: they are all that it holds then
    ADD = "add"  #: they are added to what it holds
    KEEP = "keep"  #: what it holds stays; its claim changes


class Expect(enum.StrEnum):
    """What must be there of the consumer of an order."""

    ABSENT = "absent"  #: it holds nothing yet
    PRESENT = "present"  #: it holds something
    ANY = "any"  #: it is made if need be


@set_directly
@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerOrder:
    """What one consumer shall hold, and what is said of it.

    ================================  =============  ====  =====================================
    made by                           expects        mode  does
    ================================  =============  ====  =====================================
    :meth:`claim`                     ABSENT         SET   takes, for one that holds nothing yet
    :meth:`adjust`                    ANY            ADD   changes what it holds, by amounts
    :meth:`replace`                   ANY            SET   holds this and nothing else
    :meth:`renew`                     PRESENT        KEEP  gives the claim another expiry, state
    :meth:`release`                   PRESENT        SET   gives back everything
    ================================  =============  ====  =====================================

    ``expect`` may also be the generation that the consumer was read at. ``expires_in`` counts from
    when the ledger writes it, by the ledger's clock.

    ``uuid`` is the one of a consumer that is made, and of its claim (None: one is made up); of a
    renewal, the claim meant. What is said of the consumer as None stays as it is kept, but for the
    ``request`` of one that is set: it was for what is given back. An ``aggregate`` stands for many
    consumers, of whom nothing more is known: capacity binds it, the unit rules, which are about one
    consumer, do not. An amount that does not grow is not checked against unit rules.

    One that ``adopts`` says what is in use already, whoever decided it: neither capacity nor unit
    rules bind that. A unit that is another consumer's stays that consumer's.

    One that ``overrides_disabled`` may take of what is out of service; the change feed tells of it.

    ``group`` is the name of a server group that the consumer is a member of from then on.

    A release that is ``counted`` counts as a write where something is given back (see
    ``ListedProvider.allocation_writes``); others do not.

    :raises InvalidInput: for two uses of one (provider, class)
    :raises InvalidInput: for a use that is 0, or negative where it is not added, or for none
    :raises InvalidInput: for a state that no claim of something held has
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
    def claim(cls, consumer: str, uses: tuple[Use, ...], **said: Any) -> Self:
        """Return an order to take, for a consumer that holds nothing yet."""
        return cls(consumer, Expect.ABSENT, Mode.SET, uses, **said)

    @classmethod
    def adjust(
        cls, consumer: str, uses: tuple[Use, ...], *, generation: int | None = None, **said: Any
    ) -> Self:
        """Return an order to change what a consumer holds; it goes when it is left with nothing."""
        return cls(consumer, _expected(generation, Expect.ANY), Mode.ADD, uses, **said)

    @classmethod
    def replace(
        cls, consumer: str, uses: tuple[Use, ...], *, generation: int | None = None, **said: Any
    ) -> Self:
        """Return an order to hold this and nothing else; the claim keeps id, state and expiry."""
        _check_uses(uses, 1)
        return cls(consumer, _expected(generation, Expect.ANY), Mode.SET, uses, **said)

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
        """Return an order to give a claim another expiry (neither: it never expires) and state."""
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
        """Return an order to give back everything; the consumer is forgotten."""
        return cls(consumer, _expected(generation, Expect.PRESENT), Mode.SET)

    @property
    def generation(self) -> int | None:
        """The generation that the consumer must be at, None if any will do."""
        return None if isinstance(self.expect, Expect) else self.expect

    @property
    def is_claim(self) -> bool:
        """Whether its consumer must hold nothing yet."""
        return self.expect is Expect.ABSENT

    @property
    def is_release(self) -> bool:
        """Whether it gives back everything."""
        return self.mode is Mode.SET and not self.uses


def _expected(generation: int | None, otherwise: Expect) -> Expect | int:
    return otherwise if generation is None else generation


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
    if len({names.label(unit, "unit") for unit in units}) != len(units):
        raise exceptions.InvalidInput("repetition", "units", units, "each unit once")


def _check_consumer(order: ConsumerOrder) -> None:
    """Check what an order says of its consumer and claim: what is kept can be read again."""
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
    until = order.expires_at
    if until is not None and (
        not isinstance(until, datetime.datetime) or until.tzinfo is not datetime.UTC
    ):
        raise exceptions.InvalidInput("field", "expires_at", until, "a datetime in datetime.UTC")
    if order.expires_in is not None and until is not None:
        raise exceptions.InvalidInput(
            "field", "expires_in", order.expires_in, "either this or expires_at"
        )
    if not isinstance(order.expect, Expect) and type(order.expect) is not int:
        raise exceptions.InvalidInput("field", "generation", order.expect, "an integer")


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


def class_renames(changes: Iterable[NameChange]) -> tuple[tuple[str, str], ...]:
    """Return the old and the new name of each resource class that is renamed."""
    return tuple(
        (one.name, one.to)
        for one in changes
        if one.kind is NameKind.RESOURCE_CLASS and one.action is NameAction.RENAME and one.to
    )


@dataclasses.dataclass(frozen=True, slots=True)
class GroupChange:
    """A change of one server group: made as ``wanted`` says, or found so; None: it is removed."""

    name: str
    wanted: ServerGroup | None


@set_directly
@dataclasses.dataclass(frozen=True, slots=True)
class Write:
    """Everything one operation changes: done whole or not at all, in this order.

    1. ``names`` and server ``groups`` are changed;
    2. providers and inventories of ``definitions`` are created and updated;
    3. ``orders`` are carried out together: capacity is judged by the net change of all of them;
    4. inventories and providers of ``definitions`` that go are removed.

    ``unchanged`` are definitions that the decision was made on, ``(provider's uuid, generation)``;
    ``reported`` are the uuids of providers whose owner has just said how they are, ``adopted`` of
    hosts of which all that was in use before the ledger knew them is held now; that is noted once.
    ``disabling`` puts providers out of service or into it again, before ``orders`` are carried out.
    These three may be about providers that ``definitions`` make. ``limits`` are totals that hold
    for this write alone: of an inventory that ``orders`` take more of than they give back, no more
    may be used afterwards. What is not touched they do not concern.

    An operation is known by ``kind`` and ``subject``: a repetition must say the same.
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
    limits: Totals = UNLIMITED
    groups: tuple[GroupChange, ...] = ()

    @property
    def counted(self) -> frozenset[str]:
        """The uuids of the providers whose definition it writes by Placement's count."""
        updates = () if self.definitions is None else self.definitions.updates
        return frozenset(one.definition.uuid for one in updates if one.writes)

    def __post_init__(self) -> None:
        consumers = [order.consumer for order in self.orders]
        if len(set(consumers)) != len(consumers):
            raise exceptions.InvalidInput("repetition", "orders", consumers, "each consumer once")
        if self.disabling:
            disabled = [one.provider_uuid for one in self.disabling]
            if len(set(disabled)) != len(disabled):
                raise exceptions.InvalidInput(
                    "repetition", "disabling", disabled, "each provider once"
                )
        for (_, name), total in self.limits.items() if self.limits else ():
            if type(total) is not int or not 0 <= total <= MAX_AMOUNT:
                raise exceptions.InvalidInput(
                    "amount", f"limit of {name}", total, f"an integer from 0 to {MAX_AMOUNT}"
                )


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


@set_directly
@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """What changes for one consumer at one place."""

    consumer: str
    key: Key
    before: int
    after: int
    taken: tuple[str, ...] = ()  #: units, by name
    given: tuple[str, ...] = ()


@set_directly
@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """A consumer as kept, with its claim, which has its uuid: the outcome of every order.

    ``generation`` is the number of the operation that wrote it last; no later life of a consumer of
    that name repeats it. ``writes`` counts the writes since the consumer came.
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
        """What it holds, with the whole of what a moving consumer holds for it (``shared``)."""
        own = {one.key: Use(*one.key, one.amount, one.units) for one in self.held}
        shared = () if self.request is None else self.request.shared
        return tuple({**own, **{one.key: one for one in shared}}.values())

    @property
    def own_request(self) -> StoredRequest | None:
        """Its request, without what a moving consumer holds for it."""
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
        then = {use.key: use for use in uses if use.provider_uuid in pools}
        both = {use: use.beyond(then[use.key]) for use in self.uses if use.key in then}
        shared = tuple(use for use, beyond in both.items() if beyond != use)
        left = tuple(one for use in self.uses if (one := both.get(use, use)).amount > 0)
        request = self.own_request
        if not left or not shared:  # a consumer holds something
            return {"uses": self.uses, "request": request}
        stored = StoredRequest(None if request is None else request.request, shared)
        return {"uses": left, "request": stored}

    def written(self, generation: int, state: str | None = None) -> ConsumerRecord:
        """Return the record as a write leaves it, in another state if one is said."""
        return ConsumerRecord(  # dataclasses.replace takes twice as long, and every write needs it
            self.uuid,
            self.consumer,
            self.created_at,
            self.held,
            state or self.state,
            self.request,
            generation,
            self.project,
            self.user,
            self.consumer_type,
            self.expires_at,
            self.writes,
            self.group,
        )


@set_directly
@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What a recorded operation was: its kind, for whom, and the claims that came of it."""

    kind: str
    subject: str
    claims: tuple[ConsumerRecord, ...] = ()

    @property
    def claim(self) -> ConsumerRecord | None:
        """The claim, where there is just one."""
        return self.claims[0] if len(self.claims) == 1 else None

    def require(self, operation: str, kind: str, subject: str) -> None:
        """Raise unless the operation of this id was of that kind, for that subject.

        :raises Conflict: if its id was used for something else
        """
        if (self.kind, self.subject) != (kind, subject):
            raise exceptions.Conflict("operation", operation, f"{self.kind} of {self.subject}")
