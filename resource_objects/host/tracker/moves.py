"""Moves: a consumer holds where it goes, its migration where it comes from, until it is decided.

Who moves has one claim, at the destination. What it leaves is held by a consumer of its own
(:func:`migration_of`), whose type says which kind of move it is (:data:`MIGRATION_TYPES`), and
whose claim has the id of the migration. So both places are taken, whoever asks can see it, and
nobody can begin a second move of it. Confirmed,
the migration is released; reverted, the consumer gets back what the migration holds. Each of these
is one transaction, and an operation whose id follows from the migration's: whichever process
repeats it, after a crash or at the same moment, it happens once.

Two calls at once end as one after the other would. Each reads, decides, and writes at the
generations that it read. If another process wrote in between, it reads and decides again; how a
move ended is then what its operations record.

Nothing else is kept. Which moves there are is read from who holds what; how one ended is told for
as long as the ledger remembers operations.

(Source: Nova's migrations, which claim at the destination before anything is copied and drop the
claim at the right side afterwards; Placement holds the source by the migration's uuid.)
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import enum
import functools
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

from resource_objects import exceptions, names
from resource_objects.host.tracker.asked import Asked, unassigned
from resource_objects.ledger.context import written_claim_of
from resource_objects.providers import Claim
from resource_objects.providers.allocation import CONFIRMED
from resource_objects.providers.orders import ConsumerOrder, Operation, Outcome
from resource_objects.providers.plan import Plan
from resource_objects.providers.pools import SHARES

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

_LEAVING = "/migration"

#: What ids of steps are made from, with the id of the migration.
_STEPS = uuid.UUID("8a6f3a52-5b0e-4c39-9d55-0f6a4e1c7b21")


class Place(Protocol):
    """Places what is asked of a host: what ``take`` took of what was found."""

    def __call__(
        self,
        consumer: str,
        host: str,
        asked: Asked,
        take: Callable[[Any], Claim],
        *,
        replaces: bool = False,
        moves: bool = False,
        overrides: bool = False,
        limits: Any = None,
    ) -> Claim: ...


#: Adopts hosts for a block that writes them, and keeps their records right after it.
Records: TypeAlias = Callable[..., contextlib.AbstractContextManager[None]]

_Hosts: TypeAlias = Callable[[Claim], tuple[str, ...]]

#: What a move has at its source and at its destination.
_Ends: TypeAlias = tuple[Claim | None, Claim | None]


class MigrationKind(enum.StrEnum):
    """Why a consumer moves. ``REBUILD`` and ``SHELVE`` are done in one step."""

    RESIZE = "resize"  #: another request, on any host: on the same one old and new both count
    COLD_MIGRATION = "cold migration"  #: to another host
    LIVE_MIGRATION = "live migration"  #: to another host, with pages of the same sizes
    EVACUATION = "evacuation"  #: to another host, from one that is dead
    REBUILD = "rebuild"  #: another request in place: the old one is gone
    SHELVE = "shelve"  #: to nowhere: it gives back all
    UNSHELVE = "unshelve"  #: from nowhere


#: The types of the consumers that hold what is left, with the moves that they are of.
MIGRATION_TYPES: Mapping[str, MigrationKind] = {
    kind.name: kind
    for kind in (
        MigrationKind.RESIZE,
        MigrationKind.COLD_MIGRATION,
        MigrationKind.LIVE_MIGRATION,
        MigrationKind.EVACUATION,
    )
}

#: The other moves, by what the ledger calls their first step.
_AT_ONCE = {
    "replace": MigrationKind.REBUILD,
    "apply": MigrationKind.SHELVE,
    "claim": MigrationKind.UNSHELVE,
}

#: What may tell that another process began the same move meanwhile.
_FASTER = (
    exceptions.CapacityException,
    "ConsumerExists",
    "ConsumerNotFound",
    "InvalidMove",
    "OperationConflict",
    "StaleConsumer",
)

#: What reports that another process wrote a consumer, or took the same step of its move, meanwhile.
_CHANGED = ("ConsumerNotFound", "OperationConflict", "StaleConsumer")


@dataclasses.dataclass(frozen=True, slots=True)
class _Rules:
    """What a move of a kind needs. None: either will do."""

    other_host: bool | None = None  #: whether it goes to another host than it is on
    request: bool | None = None  #: whether a request is said; else it asks for what it has


_RULES = {
    MigrationKind.RESIZE: _Rules(request=True),
    MigrationKind.COLD_MIGRATION: _Rules(other_host=True),
    MigrationKind.LIVE_MIGRATION: _Rules(other_host=True),
    MigrationKind.EVACUATION: _Rules(other_host=True),
    MigrationKind.REBUILD: _Rules(other_host=False, request=True),
    MigrationKind.SHELVE: _Rules(request=False),
    MigrationKind.UNSHELVE: _Rules(request=True),
}


class MigrationState(enum.StrEnum):
    """Where a move stands."""

    MOVING = "moving"
    CONFIRMED = "confirmed"
    REVERTED = "reverted"


class Revertible(abc.ABC):
    """What a ``with`` statement reverts if its block raises."""

    __slots__ = ()

    @abc.abstractmethod
    def revert(self) -> object:
        """Give back what it took."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.revert()


@dataclasses.dataclass(frozen=True, slots=True)
class Migration(Revertible):
    """A move of a consumer: from where, to where, and how it stands.

    ``source`` is what its migration holds where it comes from and ``destination`` what the consumer
    holds where it goes, each None where there is nothing (shelved, unshelved). Of a move that ended
    that is what the consumer has where it ended, as long as it has that. ``from_host`` and
    ``to_host`` are the hosts. ``kind`` is None of one that no tracker began. Whoever begins, ends
    or looks at the same move, at the same moment, gets what is equal.

    In a ``with`` statement it is reverted if the block raises.
    """

    consumer: str
    id: str
    kind: MigrationKind | None
    state: MigrationState
    source: Claim | None = None
    destination: Claim | None = None
    from_host: str | None = None
    to_host: str | None = None
    _begun: Claim | None = dataclasses.field(default=None, repr=False, compare=False)
    _moves: Moves | None = dataclasses.field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        where = f"{self.from_host or '-'} -> {self.to_host or '-'}"
        return f"{self.consumer}: {where}, {self.state}"

    def confirm(self) -> Migration:
        """End it at the destination; see :meth:`.ResourceTracker.confirm_move`."""
        assert self._moves is not None, "a tracker made it"
        return self._moves.confirm(self.consumer, self.id)

    def revert(self) -> Migration:
        """End it at the source; see :meth:`.ResourceTracker.revert_move`."""
        assert self._moves is not None, "a tracker made it"
        return self._moves.revert(self.consumer, self.id)


def migration_of(consumer: str) -> str:
    """Return the name of the consumer that holds what another one leaves, while that moves.

    >>> migration_of("vm-1")
    'vm-1/migration'
    """
    return names.consumer_name(f"{names.consumer_name(consumer)}{_LEAVING}")


def migration_id(consumer: str, migration: str | None) -> str:
    """Return the id of a migration: a uuid itself, or made of its name, or made up.

    >>> migration_id("vm-1", "6B7C0A9E0D0F4F839C0B0A4E8B7C1D2E")
    '6b7c0a9e-0d0f-4f83-9c0b-0a4e8b7c1d2e'
    >>> migration_id("vm-1", "m-7") == migration_id("vm-1", "m-7") != migration_id("vm-2", "m-7")
    True
    """
    if migration is None:
        return Operation().id
    if names.is_uuid(migration):
        return names.uuid_text(migration)
    made = _derived(names.label(migration, "migration"), consumer)
    _NAMES[made] = migration
    if len(_NAMES) > _MOST_NAMES:
        with contextlib.suppress(RuntimeError, KeyError):  # another thread removes one
            del _NAMES[next(iter(_NAMES))]
    return made


#: Names of migrations by the ids that this process has made of them, for messages: a ledger stores
#: the ids alone.
_NAMES: dict[str, str] = {}
_MOST_NAMES = 1000


def _name_of(migration: str) -> str:
    """Return the name that an id was made of, if this process has made it; else the id."""
    return _NAMES.get(migration, migration)


def _derived(*said: str) -> str:
    return str(uuid.uuid5(_STEPS, "\0".join(said)))


class _Step(enum.StrEnum):
    """The steps of a move, each of which is an operation."""

    BEGIN = "begin"
    CONFIRM = "confirm"
    REVERT = "revert"


def _operation(migration: str, step: _Step) -> str:
    return _derived(migration, step)


class Moves:
    """The moves of a ledger: how they begin, how they end, and which there are.

    :param asked: what is asked of a host, of whatever a caller gives
    :param place: places what is asked of a host, by what it is given to take with
    :param records: adopts hosts for a block that writes them, and keeps their records right
        after it; None if there are none
    """

    def __init__(
        self, ledger: Ledger, asked: Callable[[Any], Asked], place: Place, records: Records | None
    ) -> None:
        self._ledger = ledger
        self._asked = asked
        self._place = place
        self._records = records

    def writing(self, consumer: str, *hosts: str) -> contextlib.AbstractContextManager[None]:
        """Return what adopts hosts, and those that a consumer is on, for a block that writes."""
        if self._records is None:
            return contextlib.nullcontext()
        claims = self._claims(consumer).values()
        hosts_of = self._hosts(claims)
        there = (host for claim in claims for host in hosts_of(claim))
        return self._records(*dict.fromkeys((*hosts, *there)))

    # --- beginning ---

    def begin(
        self,
        consumer: str,
        host: str | None,
        request: Any,
        migration: str,
        kind: MigrationKind,
        said: Mapping[str, Any],
    ) -> Migration:
        """Begin a move, or return the one that this migration began."""
        _check(kind, host, request)
        asked = None if request is None else self._asked(request)

        def begun() -> tuple[Migration | None, Claim | None]:
            return self._begun(consumer, host, asked, migration, kind)

        def attempt() -> Migration:
            move, source = begun()
            if move is not None:
                return move
            try:
                move = self._begin(consumer, source, host, asked, migration, kind, said)
            except exceptions.ResourceObjectsError as refusal:
                if not refusal.matches(*_FASTER):
                    raise
                move, now = begun()  # by another process, in between
                if move is not None:
                    return move
                if _generation(now) != _generation(source):
                    detail = "another process wrote it while the move began"
                    raise exceptions.Stale("consumer", consumer, detail) from refusal
                raise
            _require(move, host, asked, kind)  # another process may have begun it otherwise
            return move

        with self.writing(consumer, *([] if host is None else [host])):
            return self._ledger.retries.retry(attempt, "StaleConsumer")

    def _begin(
        self,
        consumer: str,
        source: Claim | None,
        host: str | None,
        asked: Asked | None,
        migration: str,
        kind: MigrationKind,
        said: Mapping[str, Any],
    ) -> Migration:
        """Do the first step of a move, in one transaction."""
        moved = functools.partial(self._moved, consumer, migration, kind)
        operation = _operation(migration, _Step.BEGIN)
        bound = {"overrides": said["ignore_maintenance"], "limits": said["limits"]}

        def place(asked: Asked | None, take: Callable[[Any], Claim], **how: Any) -> Claim:
            assert host is not None and asked is not None, "checked"
            return self._place(consumer, host, asked, take, **bound, **how)

        if kind is MigrationKind.UNSHELVE:
            if source is not None:
                raise exceptions.AlreadyExists("consumer", consumer, str(source))
            take = functools.partial(self._ledger.claim, consumer, operation=operation, **said)
            claim = place(asked, take)
            return moved(MigrationState.MOVING, None, claim, (None, claim))
        if source is None:
            raise exceptions.NotFound("consumer", consumer)
        if kind is MigrationKind.SHELVE:
            self._apply([_release(source)], migration, _Step.BEGIN)
            return moved(MigrationState.CONFIRMED, None, None, (source, None))
        self._check_hosts(kind, source, host, is_same=asked is None)
        asked = self._wanted(source, asked, kind)
        said = {**said, "generation": source.generation, "operation": operation}
        if kind is MigrationKind.REBUILD:
            take = functools.partial(self._ledger.replace, consumer, **said)
            claim = place(asked, take, replaces=True)
            return moved(MigrationState.CONFIRMED, None, claim, (source, claim))
        take = functools.partial(
            self._ledger.move,
            consumer,
            source_consumer=migration_of(consumer),
            source_consumer_type=kind.name,
            source_consumer_id=migration,
            **said,
        )
        claim = place(asked, take, moves=True)
        if claim.generation == source.generation:  # the source was read when it had begun
            raise exceptions.Stale("consumer", consumer, "another process began this move")
        left = self._left(consumer, migration)
        kind = kind if left is None else _kind_of(left) or kind
        ends = left, claim
        return self._moved(consumer, migration, kind, MigrationState.MOVING, *ends, ends)

    def _check_hosts(
        self, kind: MigrationKind, source: Claim, host: str | None, *, is_same: bool
    ) -> None:
        """Refuse a kind of move that cannot go there from where the consumer is."""
        here = self._hosts([source])(source)
        told, other = ", ".join(here), _RULES[kind].other_host
        if len(here) > 1 and is_same:
            raise exceptions.InvalidInput(
                "move", kind, None, f"a request: {source.consumer} holds something of {told}"
            )
        if other is True and host in here:
            raise exceptions.InvalidInput(
                "move", kind, host, f"another host than {source.consumer} is on"
            )
        if other is False and (host,) != here:
            raise exceptions.InvalidInput(
                "move", kind, host, f"{told}, which {source.consumer} is on"
            )

    def _wanted(self, source: Claim, asked: Asked | None, kind: MigrationKind) -> Asked:
        """Return what is asked of the destination; by default what the consumer has."""
        keeps_pages = kind is MigrationKind.LIVE_MIGRATION
        if asked is not None and not keeps_pages:
            return asked
        if asked is None and source.request is not None:
            asked = self._asked(source)
        held = (
            self._ledger.assigned_amounts(source.consumer) if asked is None or keeps_pages else {}
        )
        if asked is None:
            asked = self._asked(unassigned(held))
        if not keeps_pages:
            return asked
        return asked.with_page_sizes(one for there in held.values() for one in there.values())

    def _begun(
        self,
        consumer: str,
        host: str | None,
        asked: Asked | None,
        migration: str,
        kind: MigrationKind,
    ) -> tuple[Migration | None, Claim | None]:
        """Return the move that a migration began already, if it did, and what the consumer has.

        What was asked is compared as long as the consumer is as the first step left it, or the move
        goes on. Of a write that others followed a ledger remembers what it changed, not what was
        asked then.

        :raises Conflict: if the consumer moves by another one
        :raises InvalidInput: if it is of another kind, goes elsewhere, or for something else
        """
        move, kept = self._found(consumer, migration)
        if move is None:
            leaving = kept.get(migration_of(consumer))
            if leaving is not None:
                told = f"by the migration {_name_of(leaving.id)}"
                raise exceptions.Conflict("move", consumer, told)
            return None, kept.get(consumer)
        _require(move, host, asked, kind)
        return move, kept.get(consumer)

    # --- ending ---

    def confirm(self, consumer: str, migration: str) -> Migration:
        """Give back the source, or return the move as it was confirmed."""
        with self.writing(consumer):
            move = self._end(consumer, migration, MigrationState.CONFIRMED, self._confirmed)
        if move.state is MigrationState.REVERTED:
            raise exceptions.Conflict("reverted move", consumer, f"migration {_name_of(migration)}")
        return move

    def revert(self, consumer: str, migration: str) -> Migration:
        """Give back the destination, or return the move as it was reverted."""
        with self.writing(consumer):
            return self._revert(consumer, migration)

    def _revert(self, consumer: str, migration: str) -> Migration:
        move = self._end(consumer, migration, MigrationState.REVERTED, self._reverted)
        if move.state is MigrationState.CONFIRMED:
            raise exceptions.Conflict(
                "confirmed move", consumer, f"migration {_name_of(migration)}"
            )
        return move

    def _confirmed(self, move: Migration, claim: Claim | None) -> Migration:
        """Release the source of a move, or confirm the claim of an unshelved consumer."""
        destination = move.destination
        if move.source is not None:
            self._apply([_release(move.source)], move.id, _Step.CONFIRM)
        else:
            assert claim is not None, "an unshelving that goes on has one"
            operation = _operation(move.id, _Step.CONFIRM)
            now = self._ledger.confirm(
                move.consumer, claim=claim.id, generation=claim.generation, operation=operation
            )
            destination = destination and now
        state = MigrationState.CONFIRMED
        return dataclasses.replace(move, state=state, source=None, destination=destination)

    def _reverted(self, move: Migration, claim: Claim | None) -> Migration:
        """Restore the source of a move, and release its destination.

        An unshelved consumer that was moved to another host since is confirmed.
        """
        assert claim is not None, "checked"
        leaving = move.source
        if leaving is None and move.destination is None:
            return self._confirmed(move, claim)
        orders = [_release(claim)]  # unshelved
        if leaving is not None:
            left = self._ledger.backend.held(leaving.consumer)
            if left is None or left.generation != leaving.generation:
                raise exceptions.Stale("consumer", leaving.consumer)
            back = ConsumerOrder.replace(
                move.consumer, left.uses, request=left.own_request, generation=claim.generation
            )
            orders = [back, _release(leaving)]
        back_again, *_ = self._apply(orders, move.id, _Step.REVERT)
        source = None if leaving is None else back_again
        state = MigrationState.REVERTED
        return dataclasses.replace(move, state=state, source=source, destination=None)

    def _end(
        self,
        consumer: str,
        migration: str,
        state: MigrationState,
        end: Callable[[Migration, Claim | None], Migration],
    ) -> Migration:
        """End a move that is in progress, and return it as it ended.

        A move that is over is returned as it is recorded, also if it ended in the other state: the
        caller compares. ``end`` writes at the generations that were read. If another process wrote
        in between, the move is read again.

        :param state: how the move is to end
        :param end: writes the end of a move, given the claim of its consumer; returns the move
        :raises NotFound: if the migration is unknown, or its operation was forgotten; if a consumer
            is to be reverted that has nothing allocated
        :raises Conflict: if an unshelved consumer is to be reverted that moves on already
        """

        def read() -> tuple[Migration, Claim | None]:
            move, kept = self._found(consumer, migration)
            claim, other = kept.get(consumer), kept.get(migration_of(consumer))
            if move is None:
                told = "by any" if other is None else f"but by {_name_of(other.id)}"
                raise exceptions.NotFound(
                    "move", consumer, f"migration {_name_of(migration)}, {told}"
                )
            if move.state is MigrationState.MOVING and state is MigrationState.REVERTED:
                if other is not None and other.id != migration:
                    told = f"by the migration {_name_of(other.id)}"
                    raise exceptions.Conflict("move", consumer, told)
                if claim is None:
                    told = f"{move.source}, which confirms gives back"
                    raise exceptions.NotFound("consumer", consumer, told)
            return move, claim

        def write(found: tuple[Migration, Claim | None]) -> Migration:
            move, claim = found
            return end(move, claim) if move.state is MigrationState.MOVING else move

        return self._ledger.retries.write(read, write, *_CHANGED)

    def _found(self, consumer: str, migration: str) -> tuple[Migration | None, Mapping[str, Claim]]:
        """Return a move as it stands, None if nobody knows of it; and what is held, by name.

        Who holds something is read before and after what was begun, and how it ended after that: of
        a step that another process takes meanwhile, one of them tells.
        """
        kept = self._claims(consumer)
        leaving, claim = kept.get(migration_of(consumer)), kept.get(consumer)
        is_moving = leaving is not None and leaving.id == migration
        begun = None
        if not is_moving or claim is None:
            begun = self._outcome(migration, _Step.BEGIN)
        if begun is not None and not is_moving:
            kept = self._claims(consumer)
            leaving, claim = kept.get(migration_of(consumer)), kept.get(consumer)
        told = {} if begun is None else {o.consumer: written_claim_of(o) for o in begun.claims}
        first, left = told.get(consumer), told.get(migration_of(consumer))
        if first is not None and left is not None and not first.allocations:
            # a ledger tells what a write took: nothing, so the consumer stayed where it was
            first = first.replace(allocations=left.allocations)
        if leaving is not None and leaving.id == migration:
            kind, state = _kind_of(leaving), MigrationState.MOVING
            made = left, first
            return self._moved(consumer, migration, kind, state, leaving, claim, made), kept
        if begun is None or first is None:
            return None, kept
        kind = _AT_ONCE.get(begun.kind, None if left is None else _kind_of(left))
        return self._ended(migration, kind, first, left, claim), kept

    def _ended(
        self,
        migration: str,
        kind: MigrationKind | None,
        first: Claim,
        left: Claim | None,
        claim: Claim | None,
    ) -> Migration:
        """Return a move of which the migration holds nothing, or never did.

        :param first, left: what the consumer and its migration held after the first step
        :param claim: what the consumer holds now
        """
        source, destination = (first, None) if kind is MigrationKind.SHELVE else (left, first)
        if kind is MigrationKind.REBUILD:
            source = first
        # the consumer was released; a consumer of the same name has another claim
        is_gone = claim is None or claim.id != first.id
        state = self._ended_as(migration, kind, is_gone=is_gone)
        place = source if state is MigrationState.REVERTED else destination
        hosts = self._hosts(filter(None, (source, destination, claim)))
        if is_gone or claim is None or place is None or hosts(place) != hosts(claim):
            claim = None  # it has nothing there now
        here, there = (claim, None) if state is MigrationState.REVERTED else (None, claim)
        made = source, destination
        return self._moved(first.consumer, migration, kind, state, here, there, made, hosts)

    def _ended_as(
        self, migration: str, kind: MigrationKind | None, *, is_gone: bool
    ) -> MigrationState:
        """Return the recorded end of a move whose migration has nothing allocated.

        A migration that was released with its consumer was reverted. One whose allocations were
        released by other means was confirmed.

        :param is_gone: whether the claim that moved was released
        """
        if kind in (MigrationKind.REBUILD, MigrationKind.SHELVE):
            return MigrationState.CONFIRMED
        if self._outcome(migration, _Step.CONFIRM) is not None:
            return MigrationState.CONFIRMED
        if is_gone or self._outcome(migration, _Step.REVERT) is not None:
            return MigrationState.REVERTED
        if kind is MigrationKind.UNSHELVE:
            return MigrationState.MOVING
        return MigrationState.CONFIRMED

    def _outcome(self, migration: str, step: _Step) -> Outcome | None:
        return self._ledger.backend.outcome(Operation(_operation(migration, step)))

    def _left(self, consumer: str, migration: str) -> Claim | None:
        """Return what a move left when it began."""
        begun, leaving = self._outcome(migration, _Step.BEGIN), migration_of(consumer)
        told = () if begun is None else begun.claims
        return next((written_claim_of(one) for one in told if one.consumer == leaving), None)

    def _apply(self, orders: list[ConsumerOrder], migration: str, step: _Step) -> tuple[Claim, ...]:
        plan = Plan(orders=tuple(orders))
        return self._ledger.apply(plan, operation=_operation(migration, step))

    # --- giving back ---

    def release(self, consumer: str) -> Claim:
        """Give back all that a consumer holds, at both places if it is moving: reverted to nothing.

        :raises NotFound: if it holds nothing
        """

        def read() -> dict[str, Claim]:
            kept = self._claims(consumer)
            if not kept:
                raise exceptions.NotFound("consumer", consumer)
            return kept

        def write(kept: dict[str, Claim]) -> Claim:
            claims = self._ledger.apply(Plan(orders=tuple(map(_release, kept.values()))))
            return next((one for one in claims if one.consumer == consumer), claims[0])

        with self.writing(consumer):
            return self._ledger.retries.write(read, write, *_CHANGED)

    def give_back(self, made: Claim, *, is_confirmed: bool = False) -> None:
        """Give back a claim that somebody made, if the consumer has it; a move to it is reverted.

        :param is_confirmed: whether who made it knows that it was confirmed
        :raises Conflict: if the consumer is leaving it
        :raises Stale: if somebody else confirmed it, or it is for something else by now
        """
        consumer = made.consumer

        def read() -> tuple[Claim | None, Claim | None]:
            kept = self._claims(consumer)
            claim, leaving = kept.get(consumer), kept.get(migration_of(consumer))
            if leaving is not None and self._is_left(made, claim, leaving):
                left = f"by the migration {_name_of(leaving.id)}"
                told = f"{left}, which decides what becomes of this claim"
                raise exceptions.Conflict("move", consumer, told)
            claim = self._as_made(made, claim)
            if claim is not None and claim.state == CONFIRMED and not is_confirmed:
                raise exceptions.Stale("consumer", consumer, "somebody else confirmed it")
            return claim, leaving

        def write(found: tuple[Claim | None, Claim | None]) -> None:
            claim, leaving = found
            if claim is not None and leaving is not None:
                self._revert(consumer, leaving.id)
            elif claim is not None:
                self._ledger.apply(Plan(orders=(_release(claim),)))

        with self.writing(consumer):
            self._ledger.retries.write(read, write, "MoveConfirmed", *_CHANGED)

    def confirm_claim(self, made: Claim) -> Claim:
        """Confirm a claim that somebody made, if the consumer has it.

        :raises NotFound: if the consumer has none
        :raises Stale: if it has another one, or is elsewhere
        """
        consumer = made.consumer

        def read() -> Claim:
            claim = self._claims(consumer).get(consumer)
            if claim is None:
                raise exceptions.NotFound("consumer", consumer)
            if self._as_made(made, claim) is None:
                raise exceptions.Stale("consumer", consumer, f"it holds {claim.amounts} by another")
            return claim

        def write(claim: Claim) -> Claim:
            return self._ledger.confirm(consumer, claim=claim.id, generation=claim.generation)

        return self._ledger.retries.write(read, write, *_CHANGED)

    def still_as_made(self, made: Claim) -> Claim | None:
        """Return the claim of a consumer if it is still the one that was made, else None."""
        try:
            return self._as_made(made, self._claims(made.consumer).get(made.consumer))
        except exceptions.Stale as error:
            if not error.is_about("consumer"):
                raise
            return None

    def _as_made(self, made: Claim, claim: Claim | None) -> Claim | None:
        """Return what a consumer has of a claim that somebody made; None: it was given back.

        It is the same with other units, and if it was renewed or confirmed. One that moved gave
        back what it was made of, though it keeps its id.

        :raises Stale: if it is for something else by now
        """
        if claim is None or claim.id != made.id:
            return None
        if claim.generation == made.generation:
            return claim
        hosts = self._hosts([made, claim])
        if hosts(made) != hosts(claim):
            return None
        if not _is_for_the_same(made, claim):
            raise exceptions.Stale("consumer", made.consumer, f"it holds {claim.amounts} now")
        return claim

    def _is_left(self, made: Claim, claim: Claim | None, leaving: Claim) -> bool:
        """Return whether a claim that somebody made is what a move leaves."""
        if claim is not None and (claim.id != made.id or claim.generation == made.generation):
            return False
        hosts = self._hosts([made, leaving])
        # the moving consumer holds what both use of a pool
        left, before = (set(one.allocations) for one in (leaving, made))
        is_same = left <= before and made.request == leaving.request
        return hosts(made) == hosts(leaving) and is_same

    # --- reading ---

    def get_move(self, consumer: str) -> Migration:
        """Return the move of a consumer that is in progress.

        :raises NotFound: if it is not moving
        """
        kept = self._claims(consumer)
        leaving = kept.get(migration_of(consumer))
        if leaving is None:
            raise exceptions.NotFound("move", consumer)
        claim = kept.get(consumer)
        return self._moving(leaving, claim, self._hosts(filter(None, (leaving, claim))))

    def in_progress(self, host: str | None) -> tuple[Migration, ...]:
        """Return the moves in progress from or to a host, or all, by consumer."""
        if host is None:
            found = self._ledger.consumers(consumer_type=list(MIGRATION_TYPES))
        else:
            found = self._ledger.consumers(tree=host)
        here = {one.name: one.claim for one in found if one.claim is not None}
        pairs = [
            (name.removesuffix(_LEAVING), name)
            if claim.consumer_type in MIGRATION_TYPES and name.endswith(_LEAVING)
            else (name, f"{name}{_LEAVING}")
            for name, claim in here.items()
        ]
        missing = {name for pair in pairs for name in pair} - here.keys()
        others = self._ledger.consumers(name=sorted(missing)) if missing else ()
        here |= {one.name: one.claim for one in others if one.claim is not None}
        moving = [
            (here.get(consumer), here[leaving])
            for consumer, leaving in sorted(dict.fromkeys(pairs))
            if leaving in here and here[leaving].consumer_type in MIGRATION_TYPES
        ]
        hosts = self._hosts([claim for pair in moving for claim in pair if claim is not None])
        return tuple(self._moving(leaving, claim, hosts) for claim, leaving in moving)

    def _moving(self, leaving: Claim, claim: Claim | None, hosts: _Hosts) -> Migration:
        """Return a move in progress, of what is held."""
        return self._moved(
            leaving.consumer.removesuffix(_LEAVING),
            leaving.id,
            _kind_of(leaving),
            MigrationState.MOVING,
            leaving,
            claim,
            hosts=hosts,
        )

    def host_of(self, claim: Claim) -> str:
        """Return the host that a claim is on; of several the first."""
        return self._hosts([claim])(claim)[0]

    def _claims(self, consumer: str) -> dict[str, Claim]:
        """Return what a consumer and its migration hold, by name."""
        found = self._ledger.consumers(name=[consumer, migration_of(consumer)])
        return {one.name: one.claim for one in found if one.claim is not None}

    def _hosts(self, claims: Iterable[Claim]) -> _Hosts:
        """Return a function: the hosts that one of these claims is on; a pool is none."""
        uuids = {one.provider_uuid or "" for claim in claims for one in claim.allocations}
        known = {one.uuid: one for one in self._ledger.providers(uuid=sorted(uuids))}

        def hosts(claim: Claim) -> tuple[str, ...]:
            uuids = (one.provider_uuid or "" for one in claim.allocations)
            at = [known[uuid] for uuid in uuids if uuid in known]  # a host may be gone since
            own = [one for one in at if SHARES not in one.traits] or at
            return tuple(dict.fromkeys(one.root for one in own))

        return hosts

    def _moved(
        self,
        consumer: str,
        migration: str,
        kind: MigrationKind | None,
        state: MigrationState,
        source: Claim | None,
        destination: Claim | None,
        made: _Ends = (None, None),
        hosts: _Hosts | None = None,
    ) -> Migration:
        """Return a move.

        :param made: source and destination as the first step left them, where that is known
        """
        places = [now or then for now, then in zip((source, destination), made, strict=True)]
        hosts = hosts or self._hosts(one for one in places if one is not None)
        here, there = (None if one is None else ", ".join(hosts(one)) for one in places)
        return Migration(
            consumer,
            migration,
            kind,
            state,
            source,
            destination,
            here or None,
            there or None,
            made[1],
            self,
        )


def _require(move: Migration, host: str | None, asked: Asked | None, kind: MigrationKind) -> None:
    """Refuse a move that began as another one by the same migration.

    :raises InvalidInput: if it is of another kind, goes elsewhere, or for another request
    """
    if move.kind not in (None, kind):
        raise exceptions.InvalidInput("move", "move", kind, f"{move.kind}, as which it began")
    if move.to_host is not None and host != move.to_host:
        raise exceptions.InvalidInput(
            "move", "move", host, f"{move.to_host}, where it went already"
        )
    claim = move.destination
    if move.state is not MigrationState.MOVING and move._begun != claim:
        claim = None
    if asked is not None and claim is not None and not asked.is_of(claim):
        expected = f"what it moves for already: {claim.request or claim.amounts}"
        raise exceptions.InvalidInput("move", "move", str(asked), expected)


def _generation(claim: Claim | None) -> int | None:
    return None if claim is None else claim.generation


def _kind_of(leaving: Claim) -> MigrationKind | None:
    """Return of which kind a move is, None of one that no tracker began."""
    return MIGRATION_TYPES.get(leaving.consumer_type or "")


def _is_for_the_same(one: Claim, other: Claim) -> bool:
    return (one.amounts, one.request) == (other.amounts, other.request)


def _release(claim: Claim) -> ConsumerOrder:
    return ConsumerOrder.release(claim.consumer, claim.generation)


def _check(kind: MigrationKind, host: str | None, request: Any) -> None:
    """Refuse a move of which it is not said what its kind needs, or what it has no use for."""
    if not isinstance(kind, MigrationKind):
        raise exceptions.InvalidInput("move", "kind", kind, f"one of {', '.join(MigrationKind)}")
    if kind is MigrationKind.SHELVE and host is not None:
        raise exceptions.InvalidInput("move", kind, host, "no host: it goes nowhere")
    if kind is not MigrationKind.SHELVE and host is None:
        raise exceptions.InvalidInput("move", kind, host, "the host where it goes")
    needs = _RULES[kind].request
    if needs is not None and needs is not (request is not None):
        expected = "a request" if needs else "no request: it gives back all"
        raise exceptions.InvalidInput("move", kind, request, expected)
