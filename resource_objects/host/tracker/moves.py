"""Moves: the destination is allocated to the consumer, the source to its migration.

A moving consumer has one claim, at the destination. The source is allocated to another consumer,
:func:`migration_of`, whose type is the kind of the move (:data:`MIGRATION_TYPES`) and whose claim
has the id of the migration. So both places are allocated, visibly, and a second move of the
consumer cannot begin.

A move begins by the first step of its kind (:data:`_KINDS`), and ends by a call that writes one row
of this table (:data:`_END_WRITES`). A move in progress is in one of three positions. *source*: the
source is allocated to the migration. *unshelved*: the move is an unshelving, which has no source,
and the consumer is at its destination. *moved on*: such a consumer is on another host since.

===============  ================================================  ===============================
position         confirm                                           revert
===============  ================================================  ===============================
source           release the source                                restore and release the source
unshelved        confirm the claim                                 release the claim
moved on         confirm the claim                                 confirm the claim: refused
===============  ================================================  ===============================

Each step is one transaction, and an operation whose id is derived from that of the migration: it
happens once, whichever process repeats it, after a crash or at the same time. Two concurrent calls
end as two calls one after the other. Each reads, decides, and writes at the generations that it
read. If another process wrote in between, it reads and decides again. The recorded operations tell
how a move ended.

Nothing else is stored. The moves in progress are derived from the allocations; the end of a move is
known for as long as the ledger records operations.

(Source: Nova's migrations, which claim at the destination before anything is copied and drop the
claim at one side afterwards; Placement allocates the source to the migration's uuid.)
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import enum
import functools
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from resource_objects import exceptions, names
from resource_objects.host.tracker.placement import HostRequest, Placer, unassigned
from resource_objects.ledger.context import written_claim_of
from resource_objects.providers import Claim
from resource_objects.providers.allocation import CONFIRMED
from resource_objects.providers.listing import ListedProvider
from resource_objects.providers.orders import ConsumerOrder, Operation, Outcome
from resource_objects.providers.plan import Plan
from resource_objects.providers.pools import SHARES

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

_SUFFIX = "/migration"

#: The namespace of the ids of migrations and of their steps.
_NAMESPACE = uuid.UUID("8a6f3a52-5b0e-4c39-9d55-0f6a4e1c7b21")

#: Adopts hosts for a block that writes them, and writes their records after it.
Records: TypeAlias = Callable[..., contextlib.AbstractContextManager[None]]

#: A claim at the source of a move, and one at its destination.
_ClaimPair: TypeAlias = tuple[Claim | None, Claim | None]


class MigrationKind(enum.StrEnum):
    """The kinds of moves. ``REBUILD`` and ``SHELVE`` are one step."""

    RESIZE = "resize"  #: another request, on any host; on the same one old and new size both count
    COLD_MIGRATION = "cold migration"  #: to another host
    LIVE_MIGRATION = "live migration"  #: to another host, with the same page sizes
    EVACUATION = "evacuation"  #: to another host, from a failed one
    REBUILD = "rebuild"  #: another request on the same host, in place of the old one
    SHELVE = "shelve"  #: to no host: all allocations are released
    UNSHELVE = "unshelve"  #: from no host


class MigrationState(enum.StrEnum):
    """The states of a move."""

    MOVING = "moving"
    CONFIRMED = "confirmed"
    REVERTED = "reverted"


@dataclasses.dataclass(frozen=True, slots=True)
class _KindRules:
    """The first step of a kind of move, the state after it, and the arguments. None: any."""

    first_step: str = "move"  #: the kind of the operation
    state: MigrationState = MigrationState.MOVING
    other_host: bool | None = None  #: whether the destination is another host than the source
    has_request: bool | None = None  #: whether there is a request; else that of the consumer


_KINDS = {
    MigrationKind.RESIZE: _KindRules(has_request=True),
    MigrationKind.COLD_MIGRATION: _KindRules(other_host=True),
    MigrationKind.LIVE_MIGRATION: _KindRules(other_host=True),
    MigrationKind.EVACUATION: _KindRules(other_host=True),
    MigrationKind.REBUILD: _KindRules("replace", MigrationState.CONFIRMED, False, True),
    MigrationKind.SHELVE: _KindRules("apply", MigrationState.CONFIRMED, None, False),
    MigrationKind.UNSHELVE: _KindRules("claim", MigrationState.MOVING, None, True),
}

#: The types of the consumers that have the sources, with the kinds of their moves.
MIGRATION_TYPES: Mapping[str, MigrationKind] = {
    kind.name: kind for kind, rules in _KINDS.items() if rules.first_step == "move"
}

#: The other kinds, by their first steps.
_OTHER_KINDS = {
    rules.first_step: kind for kind, rules in _KINDS.items() if kind.name not in MIGRATION_TYPES
}


class _Step(enum.StrEnum):
    """The steps of a move, each of which is an operation."""

    BEGIN = "begin"
    CONFIRM = "confirm"
    REVERT = "revert"


#: The state that a step leads to, if it ends a move.
_END_STATES = {_Step.CONFIRM: MigrationState.CONFIRMED, _Step.REVERT: MigrationState.REVERTED}

#: The write that ends a move, by its position and the step.
_END_WRITES = {
    ("source", _Step.CONFIRM): "release source",
    ("source", _Step.REVERT): "restore source",
    ("unshelved", _Step.CONFIRM): "confirm claim",
    ("unshelved", _Step.REVERT): "release claim",
    ("moved on", _Step.CONFIRM): "confirm claim",
    ("moved on", _Step.REVERT): "confirm claim",
}

#: Errors by which another process may have begun the same move meanwhile.
_MAYBE_BEGUN = (
    exceptions.CapacityException,
    "ConsumerExists",
    "ConsumerNotFound",
    "InvalidMove",
    "OperationConflict",
    "StaleConsumer",
)

#: Errors by which another process wrote the consumer, or took the same step, meanwhile.
_CHANGED = ("ConsumerNotFound", "OperationConflict", "StaleConsumer")


class Revertible(abc.ABC):
    """A context manager that reverts itself if its block raises."""

    __slots__ = ()

    @abc.abstractmethod
    def revert(self) -> object:
        """Release what was allocated."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.revert()


@dataclasses.dataclass(frozen=True, slots=True)
class Migration(Revertible):
    """A move of a consumer: its source, its destination and its state.

    ``source`` is the claim of the migration at the source, ``destination`` that of the consumer at
    the destination; each is None if there is none, as for shelving and unshelving. After the end of
    the move, the claim where it ended is present for as long as the consumer has it. ``from_host``
    and ``to_host`` are the hosts. ``kind`` is None for a move that no tracker began. Concurrent
    calls about one move return equal values. In a ``with`` statement the move is reverted if the
    block raises.
    """

    consumer: str
    id: str
    kind: MigrationKind | None
    state: MigrationState
    source: Claim | None = None
    destination: Claim | None = None
    from_host: str | None = None
    to_host: str | None = None
    _first_destination: Claim | None = dataclasses.field(default=None, repr=False, compare=False)
    _moves: Moves | None = dataclasses.field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        hosts = f"{self.from_host or '-'} -> {self.to_host or '-'}"
        return f"{self.consumer}: {hosts}, {self.state}"

    def confirm(self) -> Migration:
        """End the move at the destination; see :meth:`.ResourceTracker.confirm_move`."""
        assert self._moves is not None, "a tracker made it"
        return self._moves.confirm(self.consumer, self.id)

    def revert(self) -> Migration:
        """End the move at the source; see :meth:`.ResourceTracker.revert_move`."""
        assert self._moves is not None, "a tracker made it"
        return self._moves.revert(self.consumer, self.id)


@dataclasses.dataclass(frozen=True, slots=True)
class _Stored:
    """The stored claims of a consumer and of its migration, and the move of one migration id."""

    move: Migration | None
    claim: Claim | None
    source: Claim | None  #: of whichever migration


def migration_of(consumer: str) -> str:
    """Return the name of the consumer that has the source of a move of another consumer.

    >>> migration_of("vm-1")
    'vm-1/migration'
    """
    return names.consumer_name(f"{names.consumer_name(consumer)}{_SUFFIX}")


def migration_id(consumer: str, migration: str | None) -> str:
    """Return the id of a migration: a uuid itself, one derived from its name, or a new one.

    >>> migration_id("vm-1", "6B7C0A9E0D0F4F839C0B0A4E8B7C1D2E")
    '6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e'
    >>> migration_id("vm-1", "m-7") == migration_id("vm-1", "m-7") != migration_id("vm-2", "m-7")
    True
    """
    if migration is None:
        return Operation().id
    if names.is_uuid(migration):
        return names.uuid_text(migration)
    derived = _derived_id(names.label(migration, "migration"), consumer)
    _NAMES[derived] = migration
    if len(_NAMES) > _MOST_NAMES:
        with contextlib.suppress(RuntimeError, KeyError):  # another thread removes one
            del _NAMES[next(iter(_NAMES))]
    return derived


#: The names from which this process derived ids, for messages: a ledger stores only the ids.
_NAMES: dict[str, str] = {}
_MOST_NAMES = 1000


def _described(migration: str) -> str:
    return f"migration {_NAMES.get(migration, migration)}"


def _already_moving(consumer: str, source: Claim) -> exceptions.Conflict:
    detail = f"by {_described(source.id)}; confirm or revert it first"
    return exceptions.Conflict("move", consumer, detail)


def _derived_id(*parts: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, "\0".join(parts)))


class Moves:
    """The moves of a ledger: how they begin and end, and which are in progress.

    :param placer: allocates the destinations
    :param records: adopts hosts for a block that writes them; None without records
    """

    def __init__(self, ledger: Ledger, placer: Placer, records: Records | None) -> None:
        self._ledger = ledger
        self._placer = placer
        self._records = records

    def writing(self, consumer: str, *hosts: str) -> contextlib.AbstractContextManager[None]:
        """Return the context that adopts hosts, and those of a consumer, for a write."""
        if self._records is None:
            return contextlib.nullcontext()
        claims = [claim for claim in self._claims(consumer) if claim is not None]
        providers = self._providers(*claims)
        current = (host for claim in claims for host in _hosts(claim, providers))
        return self._records(*dict.fromkeys((*hosts, *current)))

    # --- beginning ---

    def begin(
        self,
        consumer: str,
        host: str | None,
        value: Any,
        migration: str,
        kind: MigrationKind,
        options: Mapping[str, Any],
    ) -> Migration:
        """Begin a move, or return the one that this migration began.

        :param value: the request, in any form, or None
        """
        _check_arguments(kind, host, value)
        request = None if value is None else self._placer.request(value)

        def read() -> _Stored:
            stored = self._read(consumer, migration)
            if stored.move is not None:
                _check_same_move(stored.move, host, request, kind)
            elif stored.source is not None:
                raise _already_moving(consumer, stored.source)
            return stored

        def attempt() -> Migration:
            stored = read()
            if stored.move is not None:
                return stored.move
            try:
                move = self._begin(consumer, stored.claim, host, request, migration, kind, options)
            except exceptions.ResourceObjectsError as refusal:
                if not refusal.matches(*_MAYBE_BEGUN):
                    raise
                now = read()
                if now.move is not None:
                    return now.move
                before, after = (claim and claim.generation for claim in (stored.claim, now.claim))
                if before != after:
                    detail = "another process wrote it while the move began"
                    raise exceptions.Stale("consumer", consumer, detail) from refusal
                raise
            _check_same_move(move, host, request, kind)  # another process may have begun it
            return move

        with self.writing(consumer, *([] if host is None else [host])):
            return self._ledger.retries.retry(attempt, "StaleConsumer")

    def _begin(
        self,
        consumer: str,
        source: Claim | None,
        host: str | None,
        request: HostRequest | None,
        migration: str,
        kind: MigrationKind,
        options: Mapping[str, Any],
    ) -> Migration:
        """Take the first step of a move, in one transaction."""
        rules = _KINDS[kind]
        moved = functools.partial(self._migration, consumer, migration, kind, rules.state)
        arguments = {**options, "operation": _derived_id(migration, _Step.BEGIN)}
        if kind is MigrationKind.UNSHELVE:
            if source is not None:
                raise exceptions.AlreadyExists("consumer", consumer, str(source))
        elif source is None:
            raise exceptions.NotFound("consumer", consumer)
        elif kind is MigrationKind.SHELVE:
            self._apply(migration, _Step.BEGIN, _release(source))
            return moved((None, None), (source, None))
        else:
            self._check_hosts(kind, source, host, has_request=request is not None)
            request = self._destination_request(source, request, kind)
            arguments["generation"] = source.generation
        has_source = rules.first_step == "move"
        if has_source:
            arguments |= {
                "source_consumer": migration_of(consumer),
                "source_consumer_type": kind.name,
                "source_consumer_id": migration,
            }
        assert host is not None and request is not None, "checked"
        allocate = functools.partial(getattr(self._ledger, rules.first_step), consumer, **arguments)
        is_rebuilt = kind is MigrationKind.REBUILD
        claim = self._placer.place(
            consumer, host, request, allocate, options, in_place=is_rebuilt, moves=has_source
        )
        if not has_source:
            return moved((None, claim), (source, claim))
        if source is not None and claim.generation == source.generation:
            # the source was read after the first step
            raise exceptions.Stale("consumer", consumer, "another process began this move")
        written = _written(self._outcome(migration, _Step.BEGIN))
        pair = written.get(migration_of(consumer)), claim
        kind = _kind_of(pair[0]) or kind
        return self._migration(consumer, migration, kind, rules.state, pair, pair)

    def _check_hosts(
        self, kind: MigrationKind, source: Claim, host: str | None, *, has_request: bool
    ) -> None:
        """Refuse a destination that the kind of the move does not allow."""
        current = _hosts(source, self._providers(source))
        at, other_host = ", ".join(current), _KINDS[kind].other_host
        value = host
        if len(current) > 1 and not has_request:
            value, expected = None, f"a request: {source.consumer} has allocations of {at}"
        elif other_host is True and host in current:
            expected = f"another host than {source.consumer} is on"
        elif other_host is False and (host,) != current:
            expected = f"{at}, which {source.consumer} is on"
        else:
            return
        raise exceptions.InvalidInput("move", kind, value, expected)

    def _destination_request(
        self, source: Claim, request: HostRequest | None, kind: MigrationKind
    ) -> HostRequest:
        """Return the request of the destination; by default that of the consumer."""
        retains_pages = kind is MigrationKind.LIVE_MIGRATION
        if request is None and source.request is not None:
            request = self._placer.request(source)
        if request is not None and not retains_pages:
            return request
        assigned = self._ledger.assigned_amounts(source.consumer)
        if request is None:
            request = self._placer.request(unassigned(assigned))
        if not retains_pages:
            return request
        return request.with_page_sizes(
            amount for amounts in assigned.values() for amount in amounts.values()
        )

    # --- ending ---

    def confirm(self, consumer: str, migration: str) -> Migration:
        """End a move at the destination, or return it as it was confirmed."""
        with self.writing(consumer):
            return self._end(consumer, migration, _Step.CONFIRM)

    def revert(self, consumer: str, migration: str) -> Migration:
        """End a move at the source, or return it as it was reverted."""
        with self.writing(consumer):
            return self._end(consumer, migration, _Step.REVERT)

    def _end(self, consumer: str, migration: str, step: _Step) -> Migration:
        """End a move by a step, and return it in the state that the step leads to.

        The write is at the generations that were read. If another process wrote in between, the
        move is read again.

        :raises NotFound: if the migration is unknown, or its operation was removed; if a consumer
            to be reverted has no allocations
        :raises Conflict: if the move ended in the other state; if an unshelved consumer to be
            reverted is moving again
        """

        def read() -> _Stored:
            stored = self._read(consumer, migration)
            move, source = stored.move, stored.source
            if move is None:
                detail = f"{_described(migration)} is not recorded"
                if source is not None:
                    detail += f"; it is moving by {_described(source.id)}"
                raise exceptions.NotFound("move", consumer, detail)
            if move.state is MigrationState.MOVING and step is _Step.REVERT:
                if source is not None and source.id != migration:
                    raise _already_moving(consumer, source)
                if stored.claim is None:
                    detail = f"{move.source}, which confirm_move releases"
                    raise exceptions.NotFound("consumer", consumer, detail)
            return stored

        def write(stored: _Stored) -> Migration:
            assert stored.move is not None, "checked"
            if stored.move.state is not MigrationState.MOVING:
                return stored.move
            return self._write_end(stored.move, stored.claim, step)

        move = self._ledger.retries.write(read, write, *_CHANGED)
        if move.state is not _END_STATES[step]:
            raise exceptions.Conflict(f"{move.state} move", consumer, _described(migration))
        return move

    def _write_end(self, move: Migration, claim: Claim | None, step: _Step) -> Migration:
        """Write the row of the table for the position of a move and a step."""
        position = "source"
        if move.source is None:
            position = "moved on" if move.destination is None else "unshelved"
        end_write = _END_WRITES[position, step]
        if end_write == "release source":
            assert move.source is not None
            self._apply(move.id, step, _release(move.source))
            return dataclasses.replace(move, state=MigrationState.CONFIRMED, source=None)
        assert claim is not None, "a move without a source has a claim; a revert checks it"
        if end_write == "confirm claim":
            confirmed = self._ledger.confirm(
                move.consumer,
                claim=claim.id,
                generation=claim.generation,
                operation=_derived_id(move.id, _Step.CONFIRM),
            )
            destination = move.destination and confirmed
            state = MigrationState.CONFIRMED
            return dataclasses.replace(move, state=state, source=None, destination=destination)
        source = None
        if end_write == "release claim":
            self._apply(move.id, step, _release(claim))
        else:
            assert move.source is not None
            record = self._ledger.backend.consumer(move.source.consumer)
            if record is None or record.generation != move.source.generation:
                raise exceptions.Stale("consumer", move.source.consumer)
            restore = ConsumerOrder.replace(
                move.consumer, record.uses, request=record.own_request, generation=claim.generation
            )
            source, _ = self._apply(move.id, step, restore, _release(move.source))
        state = MigrationState.REVERTED
        return dataclasses.replace(move, state=state, source=source, destination=None)

    # --- reading ---

    def _read(self, consumer: str, migration: str) -> _Stored:
        """Read the move of a migration, None if it is unknown, with the claims of its consumers.

        Claims are read before and after the record of the first step, and the end of the move after
        that. So a step that another process takes meanwhile shows in one of them.
        """
        claim, source = self._claims(consumer)
        is_moving = source is not None and source.id == migration
        beginning = None
        if not is_moving or claim is None:
            beginning = self._outcome(migration, _Step.BEGIN)
        if beginning is not None and not is_moving:
            claim, source = self._claims(consumer)
            is_moving = source is not None and source.id == migration
        written = _written(beginning)
        first_claim, first_source = written.get(consumer), written.get(migration_of(consumer))
        if first_claim is not None and first_source is not None and not first_claim.allocations:
            # the record has what the write allocated: nothing if the consumer stayed where it was
            first_claim = first_claim.replace(allocations=first_source.allocations)
        if is_moving:
            assert source is not None
            kind, state = _kind_of(source), MigrationState.MOVING
            first = (first_source, first_claim)
            move = self._migration(consumer, migration, kind, state, (source, claim), first)
            return _Stored(move, claim, source)
        if beginning is None or first_claim is None:
            return _Stored(None, claim, source)
        kind = _OTHER_KINDS.get(beginning.kind, _kind_of(first_source))
        first = (first_source, first_claim)
        if kind is MigrationKind.SHELVE:
            first = (first_claim, None)
        elif kind is MigrationKind.REBUILD:
            first = (first_claim, first_claim)
        # a consumer that was released and created again has another claim under the same name
        is_released = claim is None or claim.id != first_claim.id
        state = self._recorded_state(migration, kind, is_released)
        is_reverted = state is MigrationState.REVERTED
        end = first[0] if is_reverted else first[1]
        providers = self._providers(*first, claim)
        end_claim = None
        if claim is not None and not is_released and end is not None:
            end_claim = claim if _hosts(end, providers) == _hosts(claim, providers) else None
        current = (end_claim, None) if is_reverted else (None, end_claim)
        move = self._migration(consumer, migration, kind, state, current, first, providers)
        return _Stored(move, claim, source)

    def _recorded_state(
        self, migration: str, kind: MigrationKind | None, is_released: bool
    ) -> MigrationState:
        """Return the state of a move whose migration has no allocations.

        A migration that was released together with its consumer was reverted. One whose source was
        released by other means was confirmed.
        """
        if kind is not None and _KINDS[kind].state is MigrationState.CONFIRMED:
            return MigrationState.CONFIRMED
        if self._outcome(migration, _Step.CONFIRM) is not None:
            return MigrationState.CONFIRMED
        if is_released or self._outcome(migration, _Step.REVERT) is not None:
            return MigrationState.REVERTED
        is_unshelved = kind is MigrationKind.UNSHELVE
        return MigrationState.MOVING if is_unshelved else MigrationState.CONFIRMED

    def _outcome(self, migration: str, step: _Step) -> Outcome | None:
        return self._ledger.backend.outcome(Operation(_derived_id(migration, step)))

    def _apply(self, migration: str, step: _Step, *orders: ConsumerOrder) -> tuple[Claim, ...]:
        return self._ledger.apply(Plan(orders=orders), operation=_derived_id(migration, step))

    def _claims(self, consumer: str) -> tuple[Claim | None, Claim | None]:
        """Return the claims of a consumer and of its migration, read at one moment."""
        pair = [consumer, migration_of(consumer)]
        claims = {entry.name: entry.claim for entry in self._ledger.consumers(name=pair)}
        return claims.get(pair[0]), claims.get(pair[1])

    def _providers(self, *claims: Claim | None) -> dict[str, ListedProvider]:
        """Return the existing providers of some claims, by uuid."""
        uuids = {
            allocation.provider_uuid or ""
            for claim in claims
            if claim is not None
            for allocation in claim.allocations
        }
        return {entry.uuid: entry for entry in self._ledger.providers(uuid=sorted(uuids))}

    def _migration(
        self,
        consumer: str,
        migration: str,
        kind: MigrationKind | None,
        state: MigrationState,
        current: _ClaimPair,
        first: _ClaimPair = (None, None),
        providers: Mapping[str, ListedProvider] | None = None,
    ) -> Migration:
        """Return a move.

        :param current: the current claims at the source and at the destination
        :param first: those after the first step, if it is recorded
        """
        claims = [now or then for now, then in zip(current, first, strict=True)]
        if providers is None:
            providers = self._providers(*claims)
        hosts = ["" if claim is None else ", ".join(_hosts(claim, providers)) for claim in claims]
        from_host, to_host = (host or None for host in hosts)
        return Migration(
            consumer, migration, kind, state, *current, from_host, to_host, first[1], self
        )

    def get_move(self, consumer: str) -> Migration:
        """Return the move of a consumer that is in progress.

        :raises NotFound: if the consumer is not moving
        """
        claim, source = self._claims(consumer)
        if source is None:
            raise exceptions.NotFound("move", consumer)
        return self._in_progress(source, claim, self._providers(source, claim))

    def in_progress(self, host: str | None) -> tuple[Migration, ...]:
        """Return the moves in progress from or to a host, or all, by consumer."""
        if host is None:
            listed = self._ledger.consumers(consumer_type=list(MIGRATION_TYPES))
        else:
            listed = self._ledger.consumers(tree=host)
        claims = {entry.name: entry.claim for entry in listed if entry.claim is not None}
        consumers = {
            name.removesuffix(_SUFFIX) if claim.consumer_type in MIGRATION_TYPES else name
            for name, claim in claims.items()
        }
        missing = {
            name for root in consumers for name in (root, f"{root}{_SUFFIX}")
        } - claims.keys()
        listed = self._ledger.consumers(name=sorted(missing)) if missing else iter(())
        claims |= {entry.name: entry.claim for entry in listed if entry.claim is not None}
        pairs = [
            (source, claims.get(consumer))
            for consumer in sorted(consumers)
            if (source := claims.get(f"{consumer}{_SUFFIX}")) is not None
            if source.consumer_type in MIGRATION_TYPES
        ]
        providers = self._providers(*(claim for pair in pairs for claim in pair))
        return tuple(self._in_progress(source, claim, providers) for source, claim in pairs)

    def _in_progress(
        self, source: Claim, claim: Claim | None, providers: Mapping[str, ListedProvider]
    ) -> Migration:
        consumer, state = source.consumer.removesuffix(_SUFFIX), MigrationState.MOVING
        kind, current = _kind_of(source), (source, claim)
        return self._migration(consumer, source.id, kind, state, current, providers=providers)

    def host_of(self, claim: Claim) -> str:
        """Return the host of a claim; of several the first."""
        return _hosts(claim, self._providers(claim))[0]

    # --- claims of consumers that may move ---

    def release(self, consumer: str) -> Claim:
        """Release all allocations of a consumer, and of its move, which is reverted by that.

        :raises NotFound: if it has no allocations
        """

        def read() -> list[Claim]:
            claims = [claim for claim in self._claims(consumer) if claim is not None]
            if not claims:
                raise exceptions.NotFound("consumer", consumer)
            return claims

        def write(claims: list[Claim]) -> Claim:
            return self._ledger.apply(Plan(orders=tuple(map(_release, claims))))[0]

        with self.writing(consumer):
            return self._ledger.retries.write(read, write, *_CHANGED)

    def release_claim(self, previous: Claim, *, is_confirmed: bool = False) -> None:
        """Release a claim if the consumer still has it; a move to it is reverted.

        :param previous: the claim as the caller has it
        :param is_confirmed: whether the caller knows that it was confirmed
        :raises Conflict: if the consumer is leaving it
        :raises Stale: if another process confirmed it, or it is for another request by now
        """
        consumer = previous.consumer

        def read() -> _Stored:
            claim, source = self._claims(consumer)
            if source is not None and self._is_source(previous, claim, source):
                raise _already_moving(consumer, source)
            claim = self._current(previous, claim)
            if claim is not None and claim.state == CONFIRMED and not is_confirmed:
                raise exceptions.Stale("consumer", consumer, "another process confirmed it")
            return _Stored(None, claim, source)

        def write(stored: _Stored) -> None:
            if stored.claim is not None and stored.source is not None:
                self._end(consumer, stored.source.id, _Step.REVERT)
            elif stored.claim is not None:
                self._ledger.apply(Plan(orders=(_release(stored.claim),)))

        with self.writing(consumer):
            self._ledger.retries.write(read, write, "MoveConfirmed", *_CHANGED)

    def confirm_claim(self, previous: Claim) -> Claim:
        """Confirm a claim if the consumer still has it.

        :raises NotFound: if the consumer has no allocations
        :raises Stale: if it has another claim, or is on another host
        """
        consumer = previous.consumer

        def read() -> Claim:
            claim, _ = self._claims(consumer)
            if claim is None:
                raise exceptions.NotFound("consumer", consumer)
            if self._current(previous, claim) is None:
                detail = f"{claim.amounts} by another claim"
                raise exceptions.Stale("consumer", consumer, detail)
            return claim

        def write(claim: Claim) -> Claim:
            return self._ledger.confirm(consumer, claim=claim.id, generation=claim.generation)

        return self._ledger.retries.write(read, write, *_CHANGED)

    def current_claim(self, previous: Claim) -> Claim | None:
        """Return the claim of a consumer if it is still the same one, else None."""
        try:
            return self._current(previous, self._claims(previous.consumer)[0])
        except exceptions.Stale as error:
            if not error.is_about("consumer"):
                raise
            return None

    def _current(self, previous: Claim, claim: Claim | None) -> Claim | None:
        """Return the stored claim if it is the same as the previous one; None: it was released.

        It is the same with other units, or renewed or confirmed. A consumer that moved has released
        it, although the claim keeps its id.

        :raises Stale: if it is for another request by now
        """
        if claim is None or claim.id != previous.id:
            return None
        if claim.generation == previous.generation:
            return claim
        providers = self._providers(previous, claim)
        if _hosts(previous, providers) != _hosts(claim, providers):
            return None
        if (previous.amounts, previous.request) != (claim.amounts, claim.request):
            detail = f"it has {claim.amounts} now"
            raise exceptions.Stale("consumer", previous.consumer, detail)
        return claim

    def _is_source(self, previous: Claim, claim: Claim | None, source: Claim) -> bool:
        """Return True if a claim is the source of a move."""
        if claim is not None and (
            claim.id != previous.id or claim.generation == previous.generation
        ):
            return False
        providers = self._providers(previous, source)
        # amounts of a pool that both hosts use are allocated to the consumer, not to the source
        is_part = set(source.allocations) <= set(previous.allocations)
        is_same_host = _hosts(previous, providers) == _hosts(source, providers)
        return is_same_host and is_part and previous.request == source.request


def _hosts(claim: Claim, providers: Mapping[str, ListedProvider]) -> tuple[str, ...]:
    """Return the hosts of a claim, without pools; a host may have been removed since."""
    uuids = (allocation.provider_uuid or "" for allocation in claim.allocations)
    present = [providers[uuid] for uuid in uuids if uuid in providers]
    hosts = [provider for provider in present if SHARES not in provider.traits] or present
    return tuple(dict.fromkeys(provider.root for provider in hosts))


def _check_arguments(kind: MigrationKind, host: str | None, request: Any) -> None:
    """Refuse a move without an argument that its kind needs, or with one that it cannot have."""
    if not isinstance(kind, MigrationKind):
        raise exceptions.InvalidInput("move", "kind", kind, f"one of {', '.join(MigrationKind)}")
    if (kind is MigrationKind.SHELVE) is not (host is None):
        expected = "no host" if kind is MigrationKind.SHELVE else "the destination host"
        raise exceptions.InvalidInput("move", kind, host, expected)
    has_request = _KINDS[kind].has_request
    if has_request is not None and has_request is not (request is not None):
        expected = "a request" if has_request else "no request: all allocations are released"
        raise exceptions.InvalidInput("move", kind, request, expected)


def _check_same_move(
    move: Migration, host: str | None, request: HostRequest | None, kind: MigrationKind
) -> None:
    """Refuse a repetition with other arguments than those of the move.

    The request is compared for as long as the consumer has the claim of the first step, or the move
    is in progress. Later the ledger has no record of the first request.

    :raises InvalidInput: for another kind, another host or another request
    """
    if move.kind not in (None, kind):
        raise exceptions.InvalidInput("move", "move", str(kind), f"{move.kind}, as it began")
    if move.to_host is not None and host != move.to_host:
        raise exceptions.InvalidInput("move", "move", host, f"{move.to_host}, its destination")
    claim = move.destination
    if move.state is not MigrationState.MOVING and move._first_destination != claim:
        claim = None
    if request is None or claim is None or request.equals_claim(claim):
        return
    if not request.lacks_overhead_in(claim):
        expected = f"the request that it began with: {claim.request or claim.amounts}"
        raise exceptions.InvalidInput("move", "move", str(request), expected)


def _written(outcome: Outcome | None) -> dict[str, Claim]:
    """Return the claims that an operation wrote, by consumer."""
    records = () if outcome is None else outcome.claims
    return {record.consumer: written_claim_of(record) for record in records}


def _kind_of(source: Claim | None) -> MigrationKind | None:
    """Return the kind of a move by its source; None if no tracker began it."""
    return MIGRATION_TYPES.get((source and source.consumer_type) or "")


def _release(claim: Claim) -> ConsumerOrder:
    return ConsumerOrder.release(claim.consumer, claim.generation)
